//! Where a server listens, and how its connections are served.

use super::names::Names;
use super::tls::ListenerTls;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};

/// Where the admin page listens by default: on this machine only.
pub const ADMIN_DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 11219);

/// The addresses on which TCP listens by default: all of the machine.
pub(crate) const EVERYWHERE: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
/// The addresses on which UDP listens by default. A reply over UDP goes to whatever address the request names as its
/// own, and is larger than the request: on the network a server would be a tool to flood others with.
pub(crate) const THIS_MACHINE: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

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
    pub fn resolve(&self, port: u16) -> Result<Vec<SocketAddr>, String> {
        if self.host == "*" {
            return Ok(vec![SocketAddr::from(([0, 0, 0, 0], port))]);
        }
        let found = (self.host.as_str(), port).to_socket_addrs().map(Iterator::collect::<Vec<_>>);
        match found {
            Ok(found) if !found.is_empty() => Ok(found),
            _ => Err(format!(
                "no address is known for the host '{}' (-l): give an address of this machine",
                self.host
            )),
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

/// The names of the ways to wait.
pub(super) const BACKEND: Names<Backend> =
    Names(&[("auto", Backend::Auto), ("ring", Backend::Ring), ("poll", Backend::Poll)]);

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

/// The names of the protocols.
pub(super) const PROTOCOL: Names<Protocol> =
    Names(&[("auto", Protocol::Auto), ("ascii", Protocol::Ascii), ("binary", Protocol::Binary)]);

impl fmt::Display for Protocol {
    /// Shows the protocol as memcached's statistics do.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Protocol::Auto => "auto-negotiate",
            other => PROTOCOL.name(*other),
        })
    }
}
