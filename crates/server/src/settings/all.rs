//! All settings of a server and their defaults: plain data, one field for each setting.

use super::defaults::settings;
use super::flash::FlashSettings;
use super::fleet::FleetSettings;
use super::memory::{Pages, UserNamespace};
use super::network::{ADMIN_DEFAULT, Address, AdminAddress, Backend, Port, Protocol};
use super::process::{LogFormat, PinCpus, WithoutEffect};
use super::tls::TlsSettings;
use super::units::MIB;
use larder_cache::{Compress, Device, Namespace, Placement, TemperatureKind as Temperature, WorthOptions};
use std::path::PathBuf;

settings! {
    /// All settings of a server. How each is named and spelt, and which may change while it runs, is in the
    /// [table](crate::settings::table).
    #[derive(Clone, Debug, PartialEq)]
    pub struct Settings {
        // ---- network ----
        /// The TCP port of every address that does not name its own.
        pub tcp_port: Port = Port::Fixed(11211),
        /// The UDP port of every address that does not name its own.
        pub udp_port: Port = Port::Off,
        /// A TCP port on which every connection speaks RESP. Default off: RESP is spoken on the TCP port too.
        pub resp_port: Port = Port::Off,
        /// Reply bytes that one address gets over UDP in a second; 0 = no limit. Addresses of this machine have none.
        pub udp_reply_bytes_per_s: u64 = MIB,
        /// Whether clients of other machines are served although nothing says that they may come.
        pub open: bool = false,
        /// The addresses to listen on. Empty = every address of the machine for TCP, the loopback addresses for UDP.
        pub addresses: Vec<Address> = Vec::new(),
        /// A UNIX socket to listen on. When there is one, TCP and UDP are off, as in memcached.
        pub unix_socket: Option<PathBuf> = None,
        /// Permission bits of the UNIX socket.
        pub unix_mask: u32 = 0o700,
        /// Connections that may wait to be accepted, per listener.
        pub backlog: u32 = 1024,
        /// How the workers wait for the network.
        pub backend: Backend = Backend::Auto,
        /// The address of the admin page and the metrics; `None` = off.
        pub admin: Option<AdminAddress> = Some(AdminAddress { at: ADMIN_DEFAULT, required: false }),
        /// The servers among which the keys are shared out. Default `None`: this one has all keys.
        pub fleet: Option<FleetSettings> = None,
        /// Names, beside the machine's own, by which the admin page may be asked for.
        pub admin_hosts: Vec<String> = Vec::new(),

        // ---- memory ----
        /// The memory that the server may take for items, index and connection buffers together, in bytes.
        pub memory_bytes: u64 = 64 * MIB,
        /// The limit that was asked for, if it was below [`MEMORY_BYTES_MIN`](super::MEMORY_BYTES_MIN) and was raised.
        pub memory_raised_from: Option<u64> = None,
        /// The part of the memory that connection buffers may take, in bytes, as far as the workers can do with it.
        /// `None` = the usual part.
        pub buffers_bytes: Option<u64> = None,
        /// The largest item, in bytes of header, key and value together. 1 KiB to 1 GiB.
        pub item_bytes_max: u32 = 1 << 20,
        /// Whether a full cache evicts items or answers "out of memory".
        pub evict: bool = true,
        /// Which pages hold the items.
        pub pages: Pages = Pages::Auto,
        /// Whether memory is locked, so that the system never swaps it out.
        pub lock_memory: bool = false,
        /// Whether all memory for items is taken from the machine before the first request.
        pub prefault: bool = false,
        /// A file on a tmpfs or a hugetlbfs that the items lie in, so that a later process serves them. Default `None`:
        /// they go with the process.
        pub keep: Option<PathBuf> = None,
        /// Bytes of one column, a power of two. `None` = as the machine's cache description says.
        pub column_bytes: Option<u32> = None,
        /// Where items stand that are moved (`--placement`).
        pub placement: Placement = Placement::default(),
        /// How the cache knows which items are warm.
        pub temperature: Temperature = Temperature::ENTRY,
        /// What the worth of an item is made of. Default: penalties, and the time that clients wait.
        pub worth: WorthOptions = WorthOptions::default(),
        /// Which values are compressed in memory.
        pub compress: Compress = Compress::Auto,
        /// The namespaces that have shares of the memory, counters and longest times to live. Their keys have the name
        /// before the first [`Settings::prefix_delimiter`].
        pub namespaces: Vec<Namespace> = Vec::new(),
        /// The users whose keys get the name of a namespace and the delimiter before them.
        pub user_namespaces: Vec<UserNamespace> = Vec::new(),
        /// Which processor does the work of the temperature policy. Default: the CPU.
        pub device: Device = Device::default(),
        /// The index begins with room for two to this power entries, 12 to 32. `None` = it begins small.
        pub hashpower: Option<u32> = None,

        /// The flash tier behind memory.
        pub flash: FlashSettings = FlashSettings::default(),

        // ---- limits ----
        /// The most client connections at a time. At least 1.
        pub connections_max: u32 = 1024,
        /// Whether a client beyond the limit is told so and its connection closed, or the connection waits.
        pub maxconns_fast: bool = true,
        /// The most TCP connections of one address at a time.
        pub connections_per_address_max: u32 = 0,
        /// Seconds without a request after which a connection is closed.
        pub idle_timeout_s: u32 = 0,
        /// Worker threads. At least 1.
        pub threads: u32 = 4,
        /// Which CPU each worker stays on.
        pub pin_cpus: PinCpus = PinCpus::Off,
        /// Whether workers stay on NUMA nodes and store items in memory of their node.
        pub numa: bool = false,
        /// Requests of one connection that are answered before another connection has its turn. At least 1.
        pub requests_per_event: u32 = 20,

        // ---- protocol ----
        /// Whether items carry a compare-and-swap number.
        pub cas_enabled: bool = true,
        /// Whether `flush_all` is obeyed.
        pub flush_enabled: bool = true,
        /// Whether `stats cachedump` and `lru_crawler metadump` are answered.
        pub dump_enabled: bool = true,
        /// Whether `watch` is answered.
        pub watch_enabled: bool = true,
        /// Whether the `shutdown` command is obeyed.
        pub shutdown_enabled: bool = false,
        /// Whether `debugtime`, which moves the clock for all clients, is obeyed.
        pub debugtime_enabled: bool = false,
        /// A file of `user:password` lines. With such a file every connection has to log in first.
        pub auth_file: Option<PathBuf> = None,
        /// Whether clients log in by SASL only, over the binary protocol. Needs a file of users.
        pub sasl: bool = false,
        /// Encryption of client connections.
        pub tls: TlsSettings = TlsSettings::default(),
        /// How many databases clients of RESP can choose from, 1 to 256.
        pub databases: u32 = 16,
        /// How long a script may run, milliseconds of the processor. 1 to 60,000.
        pub script_ms: u32 = 5,
        /// How a connection's protocol is found.
        pub protocol: Protocol = Protocol::Auto,
        /// The byte that ends a key's prefix in `stats detail`.
        pub prefix_delimiter: u8 = b':',
        /// Whether `stats detail` counts from the start.
        pub detail_enabled: bool = false,
        /// Whether sizes of items are counted for `stats sizes`.
        pub track_sizes: bool = false,

        // ---- process ----
        /// Whether the process runs in the background.
        pub daemonize: bool = false,
        /// A file that holds the number of the process while it runs.
        pub pidfile: Option<PathBuf> = None,
        /// The user that a process started as root becomes: a name or a number.
        pub user: Option<String> = None,
        /// Whether the limit on core files is raised.
        pub core_dumps: bool = false,

        // ---- watching ----
        /// How much is logged to stderr: 0 = warnings, 1 = events, 2 = requests too, 3 = inner steps too.
        pub verbosity: u8 = 0,
        /// How a log line is written.
        pub log_format: LogFormat = LogFormat::Compact,

        /// The settings file, if there is one. SIGHUP reads it again.
        pub config_file: Option<PathBuf> = None,

        /// Options of memcached that were given and have no effect here, in their order.
        pub without_effect: Vec<WithoutEffect> = Vec::new(),
    }
}
