//! The address of a server, and connections to it.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use mio::event::Source as EventSource;
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Server {
    /// A TCP address, with the name that was resolved.
    Tcp {
        /// The name as given.
        name: String,
        /// The resolved address.
        address: SocketAddr,
    },
    /// A UNIX socket.
    Unix(PathBuf),
}

impl Server {
    /// Parses `host:port`, `[::1]:port`, a host alone (port 11211), or the path of a UNIX socket (with a `/` in it).
    ///
    /// # Errors
    /// A name that cannot be resolved, or an invalid port; in one line.
    pub fn parse(text: &str) -> Result<Server, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(Server::Unix(PathBuf::from(path)));
        }
        if text.contains('/') {
            return Ok(Server::Unix(PathBuf::from(text)));
        }
        let bare_v6 = text.parse::<std::net::Ipv6Addr>().is_ok();
        let full = match text {
            _ if bare_v6 => format!("[{text}]:11211"),
            _ if text.rsplit_once(':').is_some_and(|(host, _)| !host.is_empty()) && !text.ends_with(']') => {
                text.to_owned()
            }
            _ => format!("{text}:11211"),
        };
        let found = full.to_socket_addrs().map_err(|error| format!("--server '{text}': {error}"))?;
        let mut found: Vec<SocketAddr> = found.collect();
        // `localhost` often has addresses of both kinds, and servers listen on IPv4 more often.
        found.sort_by_key(SocketAddr::is_ipv6);
        let reached = found.iter().copied().find(|address| {
            found.len() == 1 || std::net::TcpStream::connect_timeout(address, Duration::from_secs(1)).is_ok()
        });
        match reached.or(found.first().copied()) {
            Some(address) => Ok(Server::Tcp { name: full, address }),
            None => Err(format!("--server '{text}': the name has no address")),
        }
    }

    /// Connects and waits for the connection. Reads and writes time out after `timeout`.
    pub(crate) fn connect_blocking(&self, timeout: Duration) -> io::Result<Blocking> {
        match self {
            Server::Tcp { address, .. } => {
                let stream = std::net::TcpStream::connect_timeout(address, timeout)?;
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(timeout))?;
                stream.set_nodelay(true)?;
                Ok(Blocking::Tcp(stream))
            }
            Server::Unix(path) => {
                let stream = std::os::unix::net::UnixStream::connect(path)?;
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(timeout))?;
                Ok(Blocking::Unix(stream))
            }
        }
    }

    /// Starts to connect. The stream becomes writable when the connection is up.
    pub(super) fn connect(&self) -> io::Result<Stream> {
        Ok(match self {
            Server::Tcp { address, .. } => Stream::Tcp(TcpStream::connect(*address)?),
            Server::Unix(path) => Stream::Unix(UnixStream::connect(path)?),
        })
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Server::Tcp { name, .. } => f.write_str(name),
            Server::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// A connection with blocking reads and writes.
pub(crate) enum Blocking {
    /// Over TCP.
    Tcp(std::net::TcpStream),
    /// Over a UNIX socket.
    Unix(std::os::unix::net::UnixStream),
}

impl Blocking {
    /// Reads wait so long from now on.
    pub(crate) fn set_read_timeout(&self, timeout: Duration) -> io::Result<()> {
        match self {
            Blocking::Tcp(stream) => stream.set_read_timeout(Some(timeout)),
            Blocking::Unix(stream) => stream.set_read_timeout(Some(timeout)),
        }
    }
}

impl Read for Blocking {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Blocking::Tcp(stream) => stream.read(into),
            Blocking::Unix(stream) => stream.read(into),
        }
    }
}

impl Write for Blocking {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Blocking::Tcp(stream) => stream.write(from),
            Blocking::Unix(stream) => stream.write(from),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A connection of an event loop.
pub(super) enum Stream {
    /// Over TCP.
    Tcp(TcpStream),
    /// Over a UNIX socket.
    Unix(UnixStream),
}

impl Stream {
    /// Registers for readiness in both directions.
    pub(super) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        let both = Interest::READABLE | Interest::WRITABLE;
        match self {
            Stream::Tcp(stream) => stream.register(registry, token, both),
            Stream::Unix(stream) => stream.register(registry, token, both),
        }
    }

    /// Ends the registration.
    pub(super) fn deregister(&mut self, registry: &Registry) {
        // A closed socket leaves the poll by itself.
        let _ = match self {
            Stream::Tcp(stream) => stream.deregister(registry),
            Stream::Unix(stream) => stream.deregister(registry),
        };
    }

    /// Whether the connection is up; `Ok(false)` while it is still being made.
    pub(super) fn established(&self) -> io::Result<bool> {
        let (error, peer) = match self {
            Stream::Tcp(stream) => (stream.take_error()?, stream.peer_addr().map(|_| ())),
            Stream::Unix(stream) => (stream.take_error()?, stream.peer_addr().map(|_| ())),
        };
        match (error, peer) {
            (Some(error), _) => Err(error),
            (None, Ok(())) => {
                if let Stream::Tcp(stream) = self {
                    stream.set_nodelay(true)?;
                }
                Ok(true)
            }
            (None, Err(error)) if error.kind() == io::ErrorKind::NotConnected => Ok(false),
            (None, Err(error)) => Err(error),
        }
    }

    /// Reads the available bytes.
    pub(super) fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(into),
            Stream::Unix(stream) => stream.read(into),
        }
    }

    /// Writes as many bytes as fit.
    pub(super) fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(from),
            Stream::Unix(stream) => stream.write(from),
        }
    }
}
