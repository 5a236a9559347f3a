//! What a server is told before it starts: plain data, one field per setting.
//!
//! The defaults are memcached's, so a server that is started without flags behaves like memcached. The command line
//! defines how each setting is spelt and which values it may have (`src/cli/flags.rs`, `src/cli/tuning.rs`, `larder
//! serve --help`).
//! [`Settings::check`] looks only for settings that contradict each other.

mod flash;
mod fleet;
mod tls;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

pub use flash::{Admit, Direct, FlashDevice, FlashSettings, OpsPolicy, Promote, ReclaimPolicy, Recover};
pub(crate) use flash::{ops_name, reclaim_name, recover_name};
pub use fleet::{FleetNode, FleetSettings, slot_ranges};
pub use larder_ssd::PROFILES as SIMULATED_PROFILES;
pub use tls::{KeyFormat, ListenerTls, TlsSettings, TlsVersion, VerifyMode};

/// One MiB, in bytes.
pub const MIB: u64 = 1 << 20;

/// The least memory limit, in bytes.
pub const MEMORY_BYTES_MIN: u64 = larder_cache::LIMIT_BYTES_MIN;

/// Where the admin page listens by default: on this machine only.
pub const ADMIN_DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 11219);

/// The addresses on which TCP listens by default: all of the machine.
pub(crate) const EVERYWHERE: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
/// The addresses on which UDP listens by default. A reply over UDP goes to whatever address the request names as its
/// own, and is larger than the request: on the network a server would be a tool to flood others with.
pub(crate) const THIS_MACHINE: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// All settings of a server. Which of them may change while it runs is in the table of
/// [`live`](crate::dispatch::live::SETTINGS).
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    // ---- network ----
    /// The TCP port of every address that does not name its own. Default 11211.
    pub tcp_port: Port,
    /// The UDP port of every address that does not name its own. Default off.
    pub udp_port: Port,
    /// A TCP port on which every connection speaks RESP. Default off: RESP is spoken on the TCP port too.
    pub resp_port: Port,
    /// Reply bytes that one address gets over UDP in a second; 0 = no limit. Addresses of this machine have none.
    /// Default 1 MiB.
    pub udp_reply_bytes_per_s: u64,
    /// The addresses to listen on. Empty = every address of the machine for TCP, and the loopback addresses for UDP.
    pub addresses: Vec<Address>,
    /// A UNIX socket to listen on. When there is one, TCP and UDP are off, as in memcached.
    pub unix_socket: Option<PathBuf>,
    /// Permission bits of the UNIX socket. Default `0o700`.
    pub unix_mask: u32,
    /// Connections that may wait to be accepted, per listener. Default 1024.
    pub backlog: u32,
    /// How the workers wait for the network. Default [`Backend::Auto`].
    pub backend: Backend,
    /// The address of the admin page and the metrics; `None` = off. Default [`ADMIN_DEFAULT`], not required.
    pub admin: Option<AdminAddress>,
    /// The servers among which the keys are shared out. Default `None`: this one has all keys.
    pub fleet: Option<FleetSettings>,
    /// Names, beside the machine's own, by which the admin page may be asked for.
    pub admin_hosts: Vec<String>,

    // ---- memory ----
    /// The memory that the server may take for items, index and connection buffers together, in bytes. Default 64 MiB.
    pub memory_bytes: u64,
    /// The limit that was asked for, if it was below [`MEMORY_BYTES_MIN`] and was raised.
    pub memory_raised_from: Option<u64>,
    /// The part of the memory that connection buffers may take, in bytes, as far as the workers can do with it. `None`
    /// = the usual part.
    pub buffers_bytes: Option<u64>,
    /// The largest item, in bytes of header, key and value together. 1 KiB to 1 GiB, default 1 MiB.
    pub item_bytes_max: u32,
    /// Whether a full cache evicts items (true, the default) or answers "out of memory".
    pub evict: bool,
    /// Which pages hold the items. Default [`Pages::Auto`].
    pub pages: Pages,
    /// Whether memory is locked, so that the system never swaps it out. Default false.
    pub lock_memory: bool,
    /// Whether all memory for items is taken from the machine before the first request. Default false.
    pub prefault: bool,
    /// A file on a tmpfs or a hugetlbfs that the items lie in, so that a later process serves them. Default `None`:
    /// they go with the process.
    pub keep: Option<PathBuf>,
    /// Bytes of one column, a power of two. `None` = as the machine's cache description says.
    pub column_bytes: Option<u32>,
    /// Where items stand that are moved (`--placement`).
    pub placement: Placement,
    /// How the cache knows which items are warm. Default [`Temperature::ENTRY`].
    pub temperature: Temperature,
    /// What the worth of an item is made of. Default: penalties, and the time that clients wait. A client may change it
    /// while the server runs.
    pub worth: WorthOptions,
    /// The namespaces that have shares of the memory, counters and longest times to live. Their keys have the name
    /// before the first [`Settings::prefix_delimiter`]. Default none.
    pub namespaces: Vec<Namespace>,
    /// The users whose keys get the name of a namespace and the delimiter before them. Default none.
    pub user_namespaces: Vec<UserNamespace>,
    /// Which processor does the work of the temperature policy. Default: the CPU.
    pub device: Device,
    /// The index begins with room for two to this power entries, 12 to 32. `None` = it begins small.
    pub hashpower: Option<u32>,

    /// The flash tier behind memory.
    pub flash: FlashSettings,

    // ---- limits ----
    /// The most client connections at a time. At least 1, default 1024.
    pub connections_max: u32,
    /// Whether a client beyond the limit is told so and its connection closed (true, the default), or the connection
    /// waits.
    pub maxconns_fast: bool,
    /// The most TCP connections of one address at a time. Default 0 = no limit.
    pub connections_per_address_max: u32,
    /// Seconds without a request after which a connection is closed. Default 0 = never.
    pub idle_timeout_s: u32,
    /// Worker threads. At least 1, default 4.
    pub threads: u32,
    /// Which CPU each worker stays on. Default [`PinCpus::Off`].
    pub pin_cpus: PinCpus,
    /// Whether workers stay on NUMA nodes and store items in memory of their node. Default false.
    pub numa: bool,
    /// Requests of one connection that are answered before another connection has its turn. At least 1, default 20.
    pub requests_per_event: u32,

    // ---- protocol ----
    /// Whether items carry a compare-and-swap number. Default true.
    pub cas_enabled: bool,
    /// Whether `flush_all` is obeyed. Default true.
    pub flush_enabled: bool,
    /// Whether `stats cachedump` and `lru_crawler metadump` are answered. Default true.
    pub dump_enabled: bool,
    /// Whether `watch` is answered. Default true.
    pub watch_enabled: bool,
    /// Whether the `shutdown` command is obeyed. Default false.
    pub shutdown_enabled: bool,
    /// Whether `debugtime`, which moves the clock for all clients, is obeyed. Default false.
    pub debugtime_enabled: bool,
    /// A file of `user:password` lines. With such a file every connection has to log in first.
    pub auth_file: Option<PathBuf>,
    /// Whether clients log in by SASL only, over the binary protocol. Needs a file of users. Default false.
    pub sasl: bool,
    /// Encryption of client connections.
    pub tls: TlsSettings,
    /// How a connection's protocol is found. Default [`Protocol::Auto`].
    pub protocol: Protocol,
    /// The byte that ends a key's prefix in `stats detail`. Default `:`.
    pub prefix_delimiter: u8,
    /// Whether `stats detail` counts from the start. Default false.
    pub detail_enabled: bool,
    /// Whether sizes of items are counted for `stats sizes`. Default false.
    pub track_sizes: bool,

    // ---- process ----
    /// Whether the process runs in the background. Default false.
    pub daemonize: bool,
    /// A file that holds the number of the process while it runs.
    pub pidfile: Option<PathBuf>,
    /// The user that a process started as root becomes: a name or a number.
    pub user: Option<String>,
    /// Whether the limit on core files is raised. Default false.
    pub core_dumps: bool,

    // ---- watching ----
    /// How much is logged to stderr: 0 = warnings, 1 = events, 2 = requests too, 3 = inner steps too. Default 0.
    pub verbosity: u8,
    /// How a log line is written. Default [`LogFormat::Compact`].
    pub log_format: LogFormat,

    /// The settings file, if there is one. SIGHUP reads it again.
    pub config_file: Option<PathBuf>,

    /// Options of memcached that were given and have no effect here, in their order. They are shown in one line of the
    /// log.
    pub without_effect: Vec<WithoutEffect>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            tcp_port: Port::Fixed(11211),
            udp_port: Port::Off,
            resp_port: Port::Off,
            udp_reply_bytes_per_s: MIB,
            addresses: Vec::new(),
            unix_socket: None,
            unix_mask: 0o700,
            backlog: 1024,
            backend: Backend::Auto,
            admin: Some(AdminAddress { at: ADMIN_DEFAULT, required: false }),
            fleet: None,
            admin_hosts: Vec::new(),
            memory_bytes: 64 * MIB,
            memory_raised_from: None,
            buffers_bytes: None,
            item_bytes_max: 1 << 20,
            evict: true,
            pages: Pages::Auto,
            temperature: Temperature::ENTRY,
            worth: WorthOptions::default(),
            namespaces: Vec::new(),
            user_namespaces: Vec::new(),
            device: Device::default(),
            lock_memory: false,
            prefault: false,
            keep: None,
            column_bytes: None,
            placement: Placement::default(),
            hashpower: None,
            flash: FlashSettings::default(),
            connections_max: 1024,
            maxconns_fast: true,
            connections_per_address_max: 0,
            idle_timeout_s: 0,
            threads: 4,
            pin_cpus: PinCpus::Off,
            numa: false,
            requests_per_event: 20,
            cas_enabled: true,
            flush_enabled: true,
            dump_enabled: true,
            watch_enabled: true,
            shutdown_enabled: false,
            debugtime_enabled: false,
            auth_file: None,
            sasl: false,
            tls: TlsSettings::default(),
            protocol: Protocol::Auto,
            prefix_delimiter: b':',
            detail_enabled: false,
            track_sizes: false,
            daemonize: false,
            pidfile: None,
            user: None,
            core_dumps: false,
            verbosity: 0,
            log_format: LogFormat::Compact,
            config_file: None,
            without_effect: Vec::new(),
        }
    }
}

impl Settings {
    /// Each address may have so many TCP connections at a time; 0 = no limit.
    pub(crate) fn set_connections_per_address_max(&mut self, most: u32) {
        self.connections_per_address_max = most;
    }

    /// Looks for settings that contradict each other.
    ///
    /// # Errors
    /// One line that says what to do.
    pub fn check(&self) -> Result<(), SettingsError> {
        self.problems().into_iter().next().map_or(Ok(()), Err)
    }

    /// All contradictions between settings, each as [`Settings::check`] words it.
    pub fn problems(&self) -> Vec<SettingsError> {
        let mut found = Vec::new();
        let mut wrong = |what: String| found.push(SettingsError(what));
        if u64::from(self.item_bytes_max) > self.memory_bytes / 2 {
            wrong(format!(
                "the largest item ({} bytes, -I) may take at most half of the memory ({} MiB, -m): \
                 lower -I or raise -m",
                self.item_bytes_max,
                self.memory_bytes / MIB
            ));
        }
        self.check_ports(&mut wrong);
        self.check_login(&mut wrong);
        self.check_user_namespaces(&mut wrong);
        self.tls.tell_problems(&mut wrong);
        if !self.tls.enabled && self.addresses.iter().any(|address| address.tls != ListenerTls::Default) {
            wrong(
                "notls, btls and mtls before an address (-l) say how it is encrypted: turn TLS on with -Z"
                    .to_owned(),
            );
        }
        if self.device.is_apart() && !self.temperature.can_use_device() {
            wrong(
                "a device (--device) works on a hitmap: give --temperature hitmap too, or leave --device out"
                    .to_owned(),
            );
        }
        self.flash.tell_problems(self.evict, &mut wrong);
        self.check_keep(&mut wrong);
        if self.numa && self.keep.is_some() {
            wrong(
                "the items in a file (--keep) stay where they are: leave --numa out, or use --numa off"
                    .to_owned(),
            );
        }
        if self.numa && self.pages == Pages::Coloured {
            wrong(
                "pages that are sorted by colour lie on any NUMA node: choose other --pages, or use --numa off"
                    .to_owned(),
            );
        }
        if let PinCpus::List(cpus) = &self.pin_cpus
            && (cpus.len() as u64) < u64::from(self.threads)
        {
            wrong(format!(
                "--pin-cpus names {} CPUs for {} threads (-t): name one for each thread, or use --pin-cpus auto",
                cpus.len(),
                self.threads
            ));
        }
        found
    }

    /// RESP has a port of its own, or none.
    fn check_ports(&self, wrong: &mut dyn FnMut(String)) {
        let (Port::Fixed(resp), None) = (self.resp_port, &self.unix_socket) else { return };
        let tcp = |address: &Address| address.port.map_or(self.tcp_port, Port::Fixed);
        let mut ports =
            self.addresses.iter().map(tcp).chain(self.addresses.is_empty().then_some(self.tcp_port));
        if self.tcp_port != Port::Off && ports.any(|port| port == Port::Fixed(resp)) {
            wrong(format!(
                "port {resp} is that of --resp-port and that of -p (or -l): RESP is understood on the port of -p too, \
                 so leave --resp-port out, or name another port"
            ));
        }
    }

    /// A file that memory is kept in decides about the pages, and flash keeps items already.
    fn check_keep(&self, wrong: &mut dyn FnMut(String)) {
        if self.keep.is_none() {
            return;
        }
        if self.flash.is_set() {
            wrong(
                "with flash (--flash) items outlive the process already: leave --keep out, or use memory alone"
                    .to_owned(),
            );
        }
        if !matches!(self.pages, Pages::Auto | Pages::Small) {
            wrong(format!(
                "the file system of --keep decides about the pages: leave --pages {} out, and name a file on a \
                 hugetlbfs for huge ones",
                self.pages
            ));
        }
    }

    fn check_login(&self, wrong: &mut dyn FnMut(String)) {
        let mut wrong = |what: &str| wrong(what.to_owned());
        if self.sasl && self.auth_file.is_none() {
            wrong(
                "SASL (-S) needs users: name a file of user:password lines with -Y FILE, or with the environment \
                 variable MEMCACHED_SASL_PWDB",
            );
        }
        if self.sasl && self.protocol != Protocol::Binary {
            wrong(
                "SASL (-S) is a login of the binary protocol: leave -B out, or replace -S by -Y FILE, which serves \
                 logins of all protocols",
            );
        }
        if self.auth_file.is_some() && self.unix_socket.is_none() && self.udp_port != Port::Off {
            wrong("nobody can log in over UDP: turn it off with -U 0, or leave the users out (-Y, -S)");
        }
    }

    fn check_user_namespaces(&self, wrong: &mut dyn FnMut(String)) {
        let list = &self.user_namespaces;
        if list.is_empty() {
            return;
        }
        if self.auth_file.is_none() {
            wrong(
                "namespaces of users (--user-namespaces) need users: name a file of them with -Y".to_owned(),
            );
        }
        if self.fleet.is_some() {
            wrong(
                "clients of a fleet choose the server by the key that they send: give no namespaces to users \
                 (--user-namespaces)"
                    .to_owned(),
            );
        }
        for (nth, UserNamespace { user, namespace }) in list.iter().enumerate() {
            if list[..nth].iter().any(|other| other.user == *user) {
                wrong(format!("the user '{user}' has two namespaces (--user-namespaces)"));
            }
            let is_good = |byte: u8| byte.is_ascii_graphic() && byte != self.prefix_delimiter;
            if !(1..=NAMESPACE_BYTES_MAX).contains(&namespace.len()) || !namespace.bytes().all(is_good) {
                wrong(format!(
                    "the namespace of the user '{user}' has 1 to {NAMESPACE_BYTES_MAX} letters, digits and signs \
                     without '{}': '{namespace}'",
                    char::from(self.prefix_delimiter)
                ));
            }
        }
    }

    /// The TCP addresses to bind, with host names looked up. Empty if TCP is off or a UNIX socket is used instead. Port
    /// 0 asks the system for a free port. Without addresses in the settings these are `0.0.0.0` and `[::]`. The second
    /// one may fail to bind on a machine without IPv6, and has to be opened for IPv6 only.
    pub fn tcp_sockets(&self) -> Result<Vec<SocketAddr>, SettingsError> {
        self.sockets(self.tcp_port, true)
    }

    /// The UDP addresses to bind, by the same rules as [`Settings::tcp_sockets`], but `127.0.0.1` and `[::1]` without
    /// addresses in the settings. A port within an address is a TCP port. UDP has its own port, which is the same on
    /// every address.
    pub fn udp_sockets(&self) -> Result<Vec<SocketAddr>, SettingsError> {
        self.sockets(self.udp_port, false)
    }

    fn sockets(&self, port: Port, named_ports: bool) -> Result<Vec<SocketAddr>, SettingsError> {
        let Some(port) = port.number() else { return Ok(Vec::new()) };
        if self.unix_socket.is_some() {
            return Ok(Vec::new());
        }
        if self.addresses.is_empty() {
            let both = if named_ports { EVERYWHERE } else { THIS_MACHINE };
            return Ok(both.map(|ip| SocketAddr::new(ip, port)).to_vec());
        }
        let mut found = Vec::new();
        for address in &self.addresses {
            let port = address.port.filter(|_| named_ports).unwrap_or(port);
            for at in address.resolve(port)? {
                if !found.contains(&at) || at.port() == 0 {
                    found.push(at);
                }
            }
        }
        Ok(found)
    }
}

/// A port to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// Nothing listens (`0`).
    Off,
    /// The system chooses a free port (`-1`).
    Random,
    /// This port, which is never 0.
    Fixed(u16),
}

impl Port {
    /// The number to bind: 0 for a random port, `None` when off.
    pub fn number(self) -> Option<u16> {
        match self {
            Port::Off => None,
            Port::Random => Some(0),
            Port::Fixed(port) => Some(port),
        }
    }
}

impl fmt::Display for Port {
    /// Shows the port as memcached does: `0` = off, `-1` = random.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Port::Off => f.write_str("0"),
            Port::Random => f.write_str("-1"),
            Port::Fixed(port) => write!(f, "{port}"),
        }
    }
}

/// One address of `-l`: a host name or a number, with or without a port of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// An IPv4 or IPv6 address (no brackets) or the name of a host.
    pub host: String,
    /// The TCP port, when the address names one.
    pub port: Option<u16>,
    /// How it is encrypted, when the address says so.
    pub tls: ListenerTls,
}

impl Address {
    /// All socket addresses of the host, at `port`. `*` means every IPv4 address of the machine.
    pub fn resolve(&self, port: u16) -> Result<Vec<SocketAddr>, SettingsError> {
        if self.host == "*" {
            return Ok(vec![SocketAddr::from(([0, 0, 0, 0], port))]);
        }
        let found = (self.host.as_str(), port).to_socket_addrs().map(Iterator::collect::<Vec<_>>);
        match found {
            Ok(found) if !found.is_empty() => Ok(found),
            _ => Err(SettingsError(format!(
                "no address is known for the host '{}' (-l): give an address of this machine",
                self.host
            ))),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.port, self.host.contains(':')) {
            (Some(port), true) => write!(f, "[{}]:{port}", self.host),
            (Some(port), false) => write!(f, "{}:{port}", self.host),
            (None, _) => f.write_str(&self.host),
        }
    }
}

/// Where the admin page listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdminAddress {
    /// The address to bind.
    pub at: SocketAddr,
    /// Whether the address was given by the user. If not, and the address is taken, the server logs that and runs
    /// without admin page.
    pub required: bool,
}

/// Which pages of the operating system hold the items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// The best pages that the machine gives: huge, else transparent, else small.
    Auto,
    /// Reserved 2-MiB pages. Without them the server does not start.
    Huge,
    /// 2-MiB pages as far as the kernel has them.
    Transparent,
    /// 4-KiB pages.
    Small,
    /// 4-KiB pages sorted by the colour of their physical frame.
    Coloured,
}

impl fmt::Display for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Pages::Auto => "auto",
            Pages::Huge => "huge",
            Pages::Transparent => "transparent",
            Pages::Small => "small",
            Pages::Coloured => "coloured",
        })
    }
}

/// How the cache knows which items are warm.
pub use larder_cache::TemperatureKind as Temperature;
pub use larder_cache::{Device, NAMESPACE_BYTES_MAX, Namespace, Placement, check_namespaces};

/// Whose keys are in a namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UserNamespace {
    /// The name of a user, as in the file of users.
    pub user: String,
    /// The name of the namespace: 1 to [`NAMESPACE_BYTES_MAX`] printable bytes of ASCII, none of them the delimiter.
    pub namespace: String,
}

pub use larder_cache::{Objective, WorthMode, WorthOptions};

/// How the workers wait for the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// io_uring where the kernel allows it, else readiness polling.
    Auto,
    /// io_uring. Without it the server does not start.
    Ring,
    /// Readiness polling.
    Poll,
}

impl Backend {
    /// The name of the system's interface, as statistics show it.
    pub fn interface(self) -> &'static str {
        match self {
            Backend::Auto => "auto",
            Backend::Ring => "io_uring",
            Backend::Poll => "poll",
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Backend::Auto => "auto",
            Backend::Ring => "ring",
            Backend::Poll => "poll",
        })
    }
}

/// How a connection's protocol is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// From the first byte of the connection.
    Auto,
    /// Always memcached's text protocol.
    Ascii,
    /// Always memcached's binary protocol.
    Binary,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Protocol::Auto => "auto-negotiate",
            Protocol::Ascii => "ascii",
            Protocol::Binary => "binary",
        })
    }
}

/// Which CPU each worker stays on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PinCpus {
    /// On any CPU, as the scheduler decides.
    Off,
    /// Worker `n` on the `n`-th CPU that this process may use. With more workers than CPUs, the CPUs are used again.
    Auto,
    /// Worker `n` on the `n`-th of these CPUs. There is at least one for each worker.
    List(Vec<u32>),
}

/// How a log line is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// One short line, for people.
    Compact,
    /// One JSON object a line, for machines.
    Json,
}

/// An option of memcached that was given and has no effect here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WithoutEffect {
    /// Its name in memcached.
    pub name: String,
    /// Its value, if it had one.
    pub value: Option<String>,
}

/// Settings that contradict each other or this machine. The text is one line that says what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsError(pub String);

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SettingsError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_a_server_that_can_start() {
        let settings = Settings::default();
        assert_eq!(settings.check(), Ok(()));
        let at: Vec<String> = settings.tcp_sockets().unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(at, ["0.0.0.0:11211", "[::]:11211"]);
        assert_eq!(settings.udp_sockets(), Ok(Vec::new()));
        let udp = Settings { udp_port: Port::Fixed(9), ..settings };
        let at: Vec<String> = udp.udp_sockets().unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(at, ["127.0.0.1:9", "[::1]:9"]);
    }

    #[test]
    fn an_item_may_take_half_of_memory_and_no_more() {
        let half = Settings { memory_bytes: 2 * MIB, ..Settings::default() };
        assert_eq!(half.check(), Ok(()));
        let more = Settings { memory_bytes: MIB, ..Settings::default() };
        assert!(more.check().unwrap_err().0.contains("lower -I or raise -m"));
    }

    #[test]
    fn a_unix_socket_turns_the_network_off() {
        let settings =
            Settings { unix_socket: Some("/tmp/s".into()), udp_port: Port::Random, ..Settings::default() };
        assert_eq!(settings.tcp_sockets(), Ok(Vec::new()));
        assert_eq!(settings.udp_sockets(), Ok(Vec::new()));
    }

    #[test]
    fn an_address_with_its_own_port_keeps_it_for_tcp_only() {
        let address = |host: &str, port| Address { host: host.to_owned(), port, tls: ListenerTls::Default };
        let settings = Settings {
            addresses: vec![
                address("127.0.0.1", Some(5)),
                address("::1", None),
                address("127.0.0.1", Some(5)),
            ],
            udp_port: Port::Fixed(9),
            ..Settings::default()
        };
        let text = |found: Vec<SocketAddr>| found.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(text(settings.tcp_sockets().unwrap()), ["127.0.0.1:5", "[::1]:11211"]);
        assert_eq!(text(settings.udp_sockets().unwrap()), ["127.0.0.1:9", "[::1]:9"]);
        assert_eq!(settings.addresses[0].to_string(), "127.0.0.1:5");
        let nowhere = Settings { addresses: vec![address("no such host", None)], ..Settings::default() };
        assert!(nowhere.tcp_sockets().unwrap_err().0.contains("'no such host'"));
    }

    #[test]
    fn every_worker_needs_a_cpu_of_a_list() {
        let settings = Settings { pin_cpus: PinCpus::List(vec![0, 1]), threads: 3, ..Settings::default() };
        assert!(settings.check().unwrap_err().0.contains("one for each thread"));
    }
}
