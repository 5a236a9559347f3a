//! Where the server listens: the options, and the sockets that are bound for them.

use std::cell::RefCell;
use std::fs;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::inherited::{self, Inherited, MEMCACHED, RESP, UNIX};
use super::transport::Transport;
use crate::error::RunError;
use crate::settings::{Backend, EVERYWHERE, ListenerTls, THIS_MACHINE};
use crate::tls::Tls;

/// How often another random port is tried when the port is taken at one of several addresses.
const RANDOM_PORT_TRIES: usize = 8;

/// Where and how to listen.
#[derive(Clone, Debug)]
pub struct ListenOptions {
    /// TCP port; `Some(0)` = a random free one, `None` = no TCP.
    pub tcp_port: Option<u16>,
    /// UDP port; `Some(0)` = a random free one, `None` = no UDP.
    pub udp_port: Option<u16>,
    /// TCP port for connections that speak RESP; `Some(0)` = a random free one, `None` = none.
    pub resp_port: Option<u16>,
    /// Reply bytes that one address gets over UDP in a second; 0 = no limit. Addresses of this machine have none.
    pub udp_reply_bytes_per_s: u64,
    /// Addresses to listen on: `host`, `host:port`, `[v6]:port`. A port given here is for TCP and replaces `tcp_port`.
    /// Empty = every IPv4 and IPv6 address for TCP, and the loopback addresses for UDP.
    pub addresses: Vec<ListenAddress>,
    /// Whether clients of other machines are served where no address is given here.
    pub serves_strangers: bool,
    /// What encrypts TCP connections; `None` = nothing does.
    pub tls: Option<Arc<Tls>>,
    /// A unix socket and its access mode (0o700).
    pub unix: Option<(PathBuf, u32)>,
    /// How many connections the kernel may hold that are not yet accepted.
    pub backlog: u32,
    /// The most stream connections at one time, over all workers.
    pub connections_max: usize,
    /// What happens to connections beyond `connections_max`: `true` = the client is told and the connection is closed,
    /// `false` = nothing is accepted until another connection closes.
    pub connections_max_fast: bool,
    /// The most TCP connections of one address at one time; 0 = no limit. An IPv6 address stands for its network of 64
    /// bits.
    pub connections_per_address_max: usize,
    /// A connection without a request for this many seconds is closed; 0 = never.
    pub idle_timeout_s: u32,
    /// Worker threads; at least 1.
    pub workers: usize,
    /// The system interface that moves the bytes.
    pub backend: Backend,
    /// Receive buffers of 16 KiB per worker (io_uring only), rounded up to a power of two from 4 to 32768. The system
    /// gives memory only for those that were in use at one time.
    pub ring_buffers: usize,
    /// The most bytes of connection buffers over all workers.
    pub buffers_limit_bytes: u64,
}

impl Default for ListenOptions {
    fn default() -> ListenOptions {
        ListenOptions {
            tcp_port: Some(11211),
            udp_port: None,
            resp_port: None,
            udp_reply_bytes_per_s: 0,
            addresses: Vec::new(),
            serves_strangers: true,
            tls: None,
            unix: None,
            backlog: 1024,
            connections_max: 1024,
            connections_max_fast: true,
            connections_per_address_max: 0,
            idle_timeout_s: 0,
            workers: 4,
            backend: Backend::Auto,
            ring_buffers: 64,
            buffers_limit_bytes: u64::MAX,
        }
    }
}

/// An address to listen on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListenAddress {
    /// `host`, `host:port` or `[v6]:port`.
    pub at: String,
    /// How TCP connections to it are encrypted, where there is TLS.
    pub tls: ListenerTls,
}

impl From<&str> for ListenAddress {
    fn from(at: &str) -> ListenAddress {
        ListenAddress { at: at.to_owned(), tls: ListenerTls::Default }
    }
}

/// Where the server listens.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Addresses {
    /// TCP addresses with their ports.
    pub tcp: Vec<SocketAddr>,
    /// UDP addresses with their ports.
    pub udp: Vec<SocketAddr>,
    /// TCP addresses for RESP with their ports.
    pub resp: Vec<SocketAddr>,
    /// Some of TCP was opened on all addresses, because none was asked for by name.
    pub are_unasked: bool,
    /// The unix socket.
    pub unix: Option<PathBuf>,
}

impl Addresses {
    /// The content of memcached's `MEMCACHED_PORT_FILENAME`: a line `TCP INET: <port>` or `UDP INET6: <port>` each.
    pub fn port_file(&self) -> String {
        let line = |kind: &str, at: &SocketAddr| {
            format!("{kind} {}: {}\n", if at.is_ipv4() { "INET" } else { "INET6" }, at.port())
        };
        let tcp = self.tcp.iter().map(|at| line("TCP", at));
        tcp.chain(self.udp.iter().map(|at| line("UDP", at))).collect()
    }
}

/// A bound stream socket.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) socket: Socket,
    pub(super) transport: Transport,
    /// All its clients speak RESP.
    pub(super) is_resp: bool,
    pub(super) tls: ListenerTls,
    /// It was opened without being asked for by name.
    pub(super) is_unasked: bool,
}

impl Listener {
    fn of_unix(socket: Socket) -> Listener {
        Listener {
            socket,
            transport: Transport::Unix,
            is_resp: false,
            tls: ListenerTls::Off,
            is_unasked: false,
        }
    }
}

/// Everything that is bound.
#[derive(Debug)]
pub(super) struct Sockets {
    pub(super) listeners: Vec<Listener>,
    /// One set of sockets per worker. The kernel spreads the clients over them.
    pub(super) udp: Vec<Vec<UdpSocket>>,
    pub(super) addresses: Addresses,
    /// The UNIX socket that goes with the server. One that was inherited stays.
    pub(super) unix_file: Option<PathBuf>,
}

impl Sockets {
    pub(super) fn bind(options: &ListenOptions, inherited: &Inherited) -> Result<Sockets, RunError> {
        let mut listeners = Vec::new();
        let (mut addresses, mut is_any_unasked) = (Addresses::default(), false);
        let ports = [
            (options.tcp_port, "-p", true, MEMCACHED, &mut addresses.tcp),
            (options.resp_port, "--resp-port", false, RESP, &mut addresses.resp),
        ];
        for (port, flag, own_ports, name, found) in ports {
            let mut bound = named(options, inherited, name, own_ports)?;
            let is_named = !bound.is_empty() || !options.addresses.is_empty();
            let inherited_at = RefCell::new(Vec::new());
            if let (Some(port), true) = (port, bound.is_empty()) {
                let bind = |at| match inherited.at(at)? {
                    Some(socket) => {
                        inherited_at.borrow_mut().push(at);
                        Ok(socket)
                    }
                    None => tcp(at, options.backlog),
                };
                // What was inherited and fits nothing is the likely reason for a port that is taken.
                bound = bind_all(&options.addresses, port, flag, own_ports, EVERYWHERE, bind)
                    .map_err(|error| inherited.unused().unwrap_or(error))?;
            }
            for (socket, tls) in bound {
                let at = tcp_address(&socket);
                found.extend(at);
                let is_unasked = !is_named && at.is_none_or(|at| !inherited_at.borrow().contains(&at));
                is_any_unasked |= is_unasked;
                let is_resp = name == RESP;
                listeners.push(Listener { socket, transport: Transport::Tcp, is_resp, tls, is_unasked });
            }
        }
        addresses.are_unasked = is_any_unasked;
        let udp = bind_udp(options, &mut addresses)?;
        let mut unix_file = None;
        let inherited_unix = inherited_unix(options, inherited)?;
        let opens_unix = inherited_unix.is_empty();
        for socket in inherited_unix {
            addresses.unix = inherited::path_of(&socket).or(addresses.unix);
            listeners.push(Listener::of_unix(socket));
        }
        if let Some((path, mode)) = &options.unix
            && opens_unix
        {
            let socket = unix(path, *mode, options.backlog)?;
            listeners.push(Listener::of_unix(socket));
            addresses.unix = Some(path.clone());
            unix_file = addresses.unix.clone();
        }
        match inherited.unused() {
            Some(error) => Err(error),
            None => Ok(Sockets { listeners, udp, addresses, unix_file }),
        }
    }
}

fn cannot_take(error: &io::Error) -> RunError {
    RunError(format!("cannot take a socket of the service manager (LISTEN_FDS): {error}"))
}

fn tcp_address(socket: &Socket) -> Option<SocketAddr> {
    socket.local_addr().ok().and_then(|at| at.as_socket())
}

/// The inherited TCP sockets of this name. Where one has an address that was given with a word for TLS, that counts.
fn named(
    options: &ListenOptions,
    inherited: &Inherited,
    name: &str,
    own_ports: bool,
) -> Result<Vec<(Socket, ListenerTls)>, RunError> {
    let mut found = Vec::new();
    for socket in inherited.named(name).map_err(|error| cannot_take(&error))? {
        let at = tcp_address(&socket).ok_or_else(|| {
            RunError(format!("an inherited socket named {name} is not of TCP: name a UNIX socket {UNIX}"))
        })?;
        let wanted = resolve_all(&options.addresses, at.port(), own_ports, EVERYWHERE)?;
        let tls = wanted.iter().find(|(other, _)| *other == at).map_or(ListenerTls::Default, |(_, tls)| *tls);
        found.push((socket, tls));
    }
    Ok(found)
}

/// The inherited UNIX sockets: those with the name for it, or else the one with the path of the options.
fn inherited_unix(options: &ListenOptions, inherited: &Inherited) -> Result<Vec<Socket>, RunError> {
    let mut found = inherited.named(UNIX).map_err(|error| cannot_take(&error))?;
    if found.iter().any(|socket| !inherited::is_unix(socket)) {
        return Err(RunError(format!("an inherited socket named {UNIX} is no UNIX socket")));
    }
    if let (Some((path, _)), true) = (&options.unix, found.is_empty()) {
        found.extend(inherited.at_path(path).map_err(|error| cannot_take(&error))?);
    }
    Ok(found)
}

/// One UDP socket per worker and address, so that the kernel spreads the clients.
fn bind_udp(options: &ListenOptions, addresses: &mut Addresses) -> Result<Vec<Vec<UdpSocket>>, RunError> {
    let mut per_worker: Vec<Vec<UdpSocket>> = (0..options.workers).map(|_| Vec::new()).collect();
    let Some(port) = options.udp_port else { return Ok(per_worker) };
    let shared = options.workers > 1;
    let first = |at: SocketAddr| {
        // A shared port could be shared with another server, so it is tried without sharing first.
        if shared && at.port() != 0 {
            udp(at, false)?;
        }
        udp(at, shared)
    };
    for (socket, _) in bind_all(&options.addresses, port, "-U", false, THIS_MACHINE, first)? {
        let at = socket.local_addr().ok().and_then(|a| a.as_socket());
        let at = at.ok_or_else(|| RunError("cannot read back the UDP port".into()))?;
        addresses.udp.push(at);
        per_worker[0].push(socket.into());
        for sockets in &mut per_worker[1..] {
            sockets.push(udp(at, true).map_err(|e| refused(&at.to_string(), &e, "-U"))?.into());
        }
    }
    Ok(per_worker)
}

/// How long to wait for a port that is taken. The kernel closes the ring of a killed server, and with the ring its
/// listening sockets, in the background: a server that is restarted at once finds its port taken for a moment.
const PREDECESSOR_WAIT_MAX: Duration = Duration::from_secs(1);
/// How often the port is tried in that time.
const PREDECESSOR_LOOK_EVERY: Duration = Duration::from_millis(20);

/// Whether a machine without IPv6 is no error: where no address is named, or only `*`.
fn may_lack_ipv6(addresses: &[ListenAddress]) -> bool {
    let is_everywhere = |address: &ListenAddress| matches!(split_port(address.at.trim()), Some(("*", _)));
    addresses.iter().all(is_everywhere)
}

/// Binds every address. A random port is the same on all of them.
fn bind_all(
    addresses: &[ListenAddress],
    port: u16,
    flag: &str,
    own_ports: bool,
    default: [IpAddr; 2],
    bind: impl Fn(SocketAddr) -> io::Result<Socket>,
) -> Result<Vec<(Socket, ListenerTls)>, RunError> {
    let wanted = resolve_all(addresses, port, own_ports, default)?;
    let mut tries_left = RANDOM_PORT_TRIES;
    let started = Instant::now();
    loop {
        match bind_once(may_lack_ipv6(addresses), &wanted, flag, &bind) {
            Err((ErrorKind::AddrInUse, _)) if port == 0 && wanted.len() > 1 && tries_left > 0 => {
                tries_left -= 1
            }
            Err((ErrorKind::AddrInUse, _)) if port != 0 && started.elapsed() < PREDECESSOR_WAIT_MAX => {
                std::thread::sleep(PREDECESSOR_LOOK_EVERY);
            }
            done => return done.map_err(|(_, error)| error),
        }
    }
}

fn bind_once(
    may_lack_ipv6: bool,
    wanted: &[(SocketAddr, ListenerTls)],
    flag: &str,
    bind: &impl Fn(SocketAddr) -> io::Result<Socket>,
) -> Result<Vec<(Socket, ListenerTls)>, (ErrorKind, RunError)> {
    let mut bound = Vec::new();
    let mut random = None;
    for (at, tls) in wanted {
        let mut at = *at;
        if at.port() == 0 {
            at.set_port(random.unwrap_or(0));
        }
        match bind(at) {
            Ok(socket) => {
                let own = tcp_address(&socket);
                random = random.or(own.map(|a| a.port()));
                // An inherited socket may serve all of IPv4 and all of IPv6.
                if bound.iter().all(|(other, _)| tcp_address(other) != own) {
                    bound.push((socket, *tls));
                }
            }
            // Without IPv6 in the kernel, IPv4 is served all the same.
            Err(error)
                if may_lack_ipv6
                    && at.is_ipv6()
                    && !bound.is_empty()
                    && error.kind() != ErrorKind::AddrInUse => {}
            Err(error) => return Err((error.kind(), refused(&at.to_string(), &error, flag))),
        }
    }
    Ok(bound)
}

fn refused(at: &str, error: &io::Error, flag: &str) -> RunError {
    let what = match error.kind() {
        ErrorKind::AddrInUse => {
            format!("address already in use; stop the other server or choose another port with {flag}")
        }
        ErrorKind::PermissionDenied => {
            format!(
                "permission denied; choose a port from 1024 up with {flag}, or give the server the capability \
                 CAP_NET_BIND_SERVICE"
            )
        }
        ErrorKind::AddrNotAvailable => {
            "this machine has no such address; give one of its own with -l (0.0.0.0 means all)".to_owned()
        }
        _ => format!("{error}; check the addresses given with -l and the port given with {flag}"),
    };
    RunError(format!("cannot listen on {at}: {what}"))
}

/// `own_ports`: the addresses may have ports of their own. `default`: they are meant if none is given.
fn resolve_all(
    addresses: &[ListenAddress],
    port: u16,
    own_ports: bool,
    default: [IpAddr; 2],
) -> Result<Vec<(SocketAddr, ListenerTls)>, RunError> {
    if addresses.is_empty() {
        return Ok(default.map(|ip| (SocketAddr::new(ip, port), ListenerTls::Default)).to_vec());
    }
    let mut resolved = Vec::new();
    for (text, tls) in addresses.iter().map(|address| (address.at.trim(), address.tls)) {
        let (host, own_port) =
            split_port(text).ok_or_else(|| unknown(text, "the port is not a number up to 65535"))?;
        let port = own_port.filter(|_| own_ports).unwrap_or(port);
        if host == "*" {
            resolved.extend(EVERYWHERE.map(|ip| (SocketAddr::new(ip, port), tls)));
            continue;
        }
        let found = (host, port).to_socket_addrs().map_err(|error| unknown(text, &error.to_string()))?;
        for at in found {
            if !resolved.iter().any(|(known, _)| *known == at) {
                resolved.push((at, tls));
            }
        }
    }
    Ok(resolved)
}

fn unknown(text: &str, why: &str) -> RunError {
    RunError(format!("cannot listen on {text}: {why}; give an address as host or host:port with -l"))
}

/// Splits `host`, `host:port`, `[v6]:port` and a bare v6 address. `None` if the port is not one.
fn split_port(text: &str) -> Option<(&str, Option<u16>)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, tail) = rest.split_once(']')?;
        return match tail.strip_prefix(':') {
            Some(port) => Some((host, Some(port.parse().ok()?))),
            None => tail.is_empty().then_some((host, None)),
        };
    }
    match text.split_once(':') {
        Some((host, port)) if !port.contains(':') => Some((host, Some(port.parse().ok()?))),
        _ => Some((text, None)),
    }
}

fn tcp(at: SocketAddr, backlog: u32) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(at), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if at.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    // Accepted sockets inherit both.
    socket.set_tcp_nodelay(true)?;
    socket.set_keepalive(true)?;
    socket.bind(&at.into())?;
    socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
    Ok(socket)
}

fn udp(at: SocketAddr, shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(at), Type::DGRAM, Some(Protocol::UDP))?;
    if at.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    if shared {
        socket.set_reuse_port(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&at.into())?;
    Ok(socket)
}

/// What would keep a server from listening on these addresses or on this path, in one line each. No port is opened: an
/// address is this machine's if a datagram could be sent from it.
pub(crate) fn problems_of_listening(addresses: &[ListenAddress], unix: Option<&Path>) -> Vec<String> {
    let mut found = Vec::new();
    for address in addresses {
        let address = std::slice::from_ref(address);
        // A name that nobody knows is told with the settings.
        let resolved = resolve_all(address, 0, false, EVERYWHERE).unwrap_or_default();
        found.extend(resolved.into_iter().find_map(|(at, _)| {
            let may_lack = at.is_ipv6() && may_lack_ipv6(address);
            let error = udp(at, false).err().filter(|_| !may_lack)?;
            Some(refused(&address[0].at, &error, "-p").0)
        }));
    }
    let path_problem = |path: &Path| match SockAddr::unix(path) {
        Ok(_) => unused_unix(path).err(),
        Err(error) => Some(unix_refused(path, &error)),
    };
    found.extend(unix.and_then(path_problem).map(|error| error.0));
    found
}

fn unix_refused(path: &Path, error: &io::Error) -> RunError {
    let shown = path.display();
    match error.kind() {
        ErrorKind::AddrInUse => RunError(format!(
            "cannot listen on {shown}: the file exists; remove it or choose another path with -s"
        )),
        _ => RunError(format!("cannot listen on {shown}: {error}; choose another path with -s")),
    }
}

/// Refuses a path at which another server listens, or something else is. Returns whether a socket was left there.
fn unused_unix(path: &Path) -> Result<bool, RunError> {
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.file_type().is_socket() => match UnixStream::connect(path) {
            Ok(_) => Err(RunError(format!(
                "cannot listen on {}: another server listens there; stop it or choose another path with -s",
                path.display()
            ))),
            Err(_) => Ok(true),
        },
        Ok(_) => Err(unix_refused(path, &ErrorKind::AddrInUse.into())),
        Err(_) => Ok(false),
    }
}

/// Listens on a unix socket. A socket file on which no server listens is replaced.
fn unix(path: &Path, mode: u32, backlog: u32) -> Result<Socket, RunError> {
    let refused = |error: &io::Error| unix_refused(path, error);
    if unused_unix(path)? {
        fs::remove_file(path).map_err(|error| refused(&error))?;
    }
    let bind = || {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.bind(&SockAddr::unix(path)?)?;
        fs::set_permissions(path, fs::Permissions::from_mode(mode & 0o777))?;
        socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
        Ok(socket)
    };
    bind().map_err(|error| refused(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_split_off() {
        assert_eq!(split_port("127.0.0.1"), Some(("127.0.0.1", None)));
        assert_eq!(split_port("localhost:22122"), Some(("localhost", Some(22122))));
        assert_eq!(split_port("[::1]:22122"), Some(("::1", Some(22122))));
        assert_eq!(split_port("[::1]"), Some(("::1", None)));
        assert_eq!(split_port("::"), Some(("::", None)));
        assert_eq!(split_port("host:port"), None);
        assert_eq!(split_port("[::1]x"), None);
    }

    #[test]
    fn a_machine_without_ipv6_serves_all_of_its_addresses() {
        let bind = |at: SocketAddr| match at.is_ipv6() {
            true => Err(io::Error::from(ErrorKind::AddrNotAvailable)),
            false => Socket::new(Domain::IPV4, Type::STREAM, None),
        };
        let bound = |addresses: &[&str]| {
            let addresses: Vec<ListenAddress> = addresses.iter().map(|at| (*at).into()).collect();
            bind_all(&addresses, 0, "-p", true, EVERYWHERE, bind).map(|bound| bound.len())
        };
        assert_eq!(bound(&[]).ok(), Some(1));
        assert_eq!(bound(&["*"]).ok(), Some(1));
        assert_eq!(bound(&["*:11311"]).ok(), Some(1));
        assert!(bound(&["0.0.0.0", "::"]).is_err(), "it was asked for by name");
        assert!(bound(&["*", "::1"]).is_err());
    }

    #[test]
    fn a_taken_port_says_what_to_do() {
        let options = ListenOptions {
            tcp_port: Some(0),
            addresses: vec!["127.0.0.1".into()],
            workers: 1,
            ..ListenOptions::default()
        };
        let first = Sockets::bind(&options, &Inherited::default()).expect("a random port is free");
        let port = first.addresses.tcp[0].port();
        let options = ListenOptions { tcp_port: Some(port), ..options };
        let error = Sockets::bind(&options, &Inherited::default()).expect_err("taken");
        assert_eq!(
            error.to_string(),
            format!(
                "cannot listen on 127.0.0.1:{port}: address already in use; stop the other server or choose another \
                 port with -p"
            )
        );
    }

    #[test]
    fn ports_are_written_as_memcached_writes_them() {
        let at = |text: &str| text.parse().expect("an address");
        let addresses = Addresses {
            tcp: vec![at("127.0.0.1:5"), at("[::1]:6")],
            udp: vec![at("0.0.0.0:7")],
            ..Addresses::default()
        };
        assert_eq!(addresses.port_file(), "TCP INET: 5\nTCP INET6: 6\nUDP INET: 7\n");
    }
}
