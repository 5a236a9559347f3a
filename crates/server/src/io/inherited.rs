//! Listening sockets that a service manager hands over (socket activation): `LISTEN_PID`, `LISTEN_FDS` and
//! `LISTEN_FDNAMES`, as systemd sets them.
//!
//! A socket takes the place of one that the server would open itself: by its name (`memcached`, `resp` or `unix`), or,
//! with any other name, by its address. A socket that fits nothing keeps the server from starting, because clients
//! would wait for ever behind a port that nobody serves.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use socket2::{Domain, Socket, Type};

use crate::error::RunError;

/// The name of sockets that speak memcached's protocols.
pub(super) const MEMCACHED: &str = "memcached";
/// The name of sockets that speak RESP.
pub(super) const RESP: &str = "resp";
/// The name of the UNIX socket.
pub(super) const UNIX: &str = "unix";

/// The name of a socket that was given none.
const UNNAMED: &str = "unknown";

/// The variables of the protocol.
const VARIABLES: [&str; 3] = ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"];

/// The sockets that a service manager handed over to this process.
#[derive(Debug, Default)]
pub struct Inherited {
    sockets: Vec<Handed>,
}

#[derive(Debug)]
struct Handed {
    name: String,
    socket: Socket,
    /// A listener of the server took its place.
    is_used: Cell<bool>,
}

impl Inherited {
    /// Takes the sockets that were handed over to this process, if any were. Only the first call finds them. The
    /// variables are removed, as far as no other thread may read variables meanwhile; for child processes they mean
    /// nothing, because they name this process.
    ///
    /// # Errors
    /// Variables that cannot be understood, or a descriptor that is no listening stream socket.
    pub fn take() -> Result<Inherited, RunError> {
        static TAKEN: AtomicBool = AtomicBool::new(false);
        if TAKEN.swap(true, Ordering::Relaxed) {
            return Ok(Inherited::default());
        }
        // This closes the descriptors in child processes, and fails where one is not open. There are none where the
        // variables name another process, which may have started this one.
        let handed = sd_notify::listen_fds().map_err(|error| {
            RunError(format!("cannot take the sockets of the service manager (LISTEN_FDS): {error}"))
        })?;
        let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
        let names = names.split(':').chain(std::iter::repeat(UNNAMED));
        let sockets = handed
            .zip(names)
            .map(|(fd, name)| Handed::new(fd, if name.is_empty() { UNNAMED } else { name }.to_owned()))
            .collect::<Result<_, _>>()?;
        if is_alone() {
            for variable in VARIABLES {
                // SAFETY: this is the only thread of the process, so none reads or writes variables meanwhile, and none
                // can begin, because only this one could start it.
                unsafe { std::env::remove_var(variable) };
            }
        }
        Ok(Inherited { sockets })
    }

    /// The sockets of this name. They are all that the server listens on in this way.
    pub(super) fn named(&self, name: &str) -> io::Result<Vec<Socket>> {
        self.sockets.iter().filter(|handed| handed.name == name).map(Handed::listener).collect()
    }

    /// The socket that serves clients of a TCP address.
    pub(super) fn at(&self, wanted: SocketAddr) -> io::Result<Option<Socket>> {
        let exact = self.unnamed().find(|handed| handed.tcp_address() == Some(wanted));
        let found = exact.or_else(|| self.unnamed().find(|handed| handed.serves_both(wanted)));
        found.map(Handed::listener).transpose()
    }

    /// The UNIX socket with this path.
    pub(super) fn at_path(&self, wanted: &Path) -> io::Result<Option<Socket>> {
        let found = self.unnamed().find(|handed| path_of(&handed.socket).as_deref() == Some(wanted));
        found.map(Handed::listener).transpose()
    }

    /// The sockets whose names say nothing.
    fn unnamed(&self) -> impl Iterator<Item = &Handed> {
        self.sockets.iter().filter(|handed| ![MEMCACHED, RESP, UNIX].contains(&handed.name.as_str()))
    }

    /// Says what is wrong if a socket fits nothing that the server listens on.
    pub(super) fn unused(&self) -> Option<RunError> {
        let handed = self.sockets.iter().find(|handed| !handed.is_used.get())?;
        Some(RunError(format!(
            "the service manager hands over {}, where the server does not listen: set FileDescriptorName= to \
             {MEMCACHED}, {RESP} or {UNIX}, or choose the same address with -l and -p, --resp-port or -s",
            handed.shown()
        )))
    }
}

impl Handed {
    fn new(fd: RawFd, name: String) -> Result<Handed, RunError> {
        // SAFETY: the service manager says that it opened this descriptor for this process, it is open, and it becomes
        // an owned one only once.
        let socket = Socket::from(unsafe { OwnedFd::from_raw_fd(fd) });
        let handed = Handed { name, socket, is_used: Cell::new(false) };
        let is_listener = handed.socket.is_listener().unwrap_or(false);
        if !is_listener || handed.socket.r#type().ok() != Some(Type::STREAM) {
            return Err(RunError(format!(
                "the service manager hands over {}, which is no listening stream socket: the server takes \
                 ListenStream= with Accept=no, and opens UDP ports (-U) itself",
                handed.shown()
            )));
        }
        Ok(handed)
    }

    /// Another descriptor of the socket, as drivers want it.
    fn listener(&self) -> io::Result<Socket> {
        let socket = self.socket.try_clone()?;
        socket.set_nonblocking(false)?;
        if self.tcp_address().is_some() {
            // Accepted sockets inherit both.
            socket.set_tcp_nodelay(true)?;
            socket.set_keepalive(true)?;
        }
        self.is_used.set(true);
        Ok(socket)
    }

    fn tcp_address(&self) -> Option<SocketAddr> {
        self.socket.local_addr().ok()?.as_socket()
    }

    /// Whether the wanted address is that of all of IPv4, and the socket is one of IPv6 that serves it, too.
    fn serves_both(&self, wanted: SocketAddr) -> bool {
        let own = self.tcp_address();
        wanted.is_ipv4()
            && wanted.ip().is_unspecified()
            && own
                .is_some_and(|own| own.is_ipv6() && own.ip().is_unspecified() && own.port() == wanted.port())
            && self.socket.only_v6().is_ok_and(|only| !only)
    }

    fn shown(&self) -> String {
        let path = path_of(&self.socket).map(|path| path.display().to_string());
        let at = self.tcp_address().map(|at| at.to_string()).or(path);
        format!("{} ({})", at.as_deref().unwrap_or("a descriptor"), self.name)
    }
}

/// The path of a UNIX socket.
pub(super) fn path_of(socket: &Socket) -> Option<PathBuf> {
    let address = socket.local_addr().ok()?;
    Some(address.as_pathname()?.to_owned())
}

/// Whether a socket is one of the file system, or of a name without a file.
pub(super) fn is_unix(socket: &Socket) -> bool {
    socket.domain().is_ok_and(|domain| domain == Domain::UNIX)
}

/// Whether the process has one thread. Where that cannot be known it may have more.
fn is_alone() -> bool {
    std::fs::read_dir("/proc/self/task").is_ok_and(|tasks| tasks.count() == 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::Protocol;

    fn inherited(name: &str, at: &str, both: bool) -> (Inherited, SocketAddr) {
        let at: SocketAddr = at.parse().unwrap();
        let socket = Socket::new(Domain::for_address(at), Type::STREAM, Some(Protocol::TCP)).unwrap();
        if at.is_ipv6() {
            socket.set_only_v6(!both).unwrap();
        }
        socket.bind(&at.into()).unwrap();
        socket.listen(1).unwrap();
        let handed = Handed { name: name.to_owned(), socket, is_used: Cell::new(false) };
        let at = handed.tcp_address().unwrap();
        (Inherited { sockets: vec![handed] }, at)
    }

    #[test]
    fn a_socket_is_found_by_its_name_and_by_its_address() {
        let (inherited, at) = inherited("larder.socket", "127.0.0.1:0", false);
        assert!(inherited.named(MEMCACHED).unwrap().is_empty());
        let elsewhere = SocketAddr::new(at.ip(), at.port() ^ 1);
        assert!(inherited.at(elsewhere).unwrap().is_none());
        let error = inherited.unused().unwrap().to_string();
        assert!(error.contains(&format!("{at} (larder.socket)")) && error.contains("-l"), "{error}");
        let found = inherited.at(at).unwrap().expect("it has this address");
        assert_eq!(found.local_addr().unwrap().as_socket(), Some(at));
        assert!(inherited.unused().is_none());
        assert_eq!(inherited.named("larder.socket").unwrap().len(), 1);
    }

    #[test]
    fn a_socket_of_both_families_serves_all_of_ipv4() {
        let (both, at) = inherited("x", "[::]:0", true);
        let ipv4 = SocketAddr::from(([0, 0, 0, 0], at.port()));
        assert!(both.at(ipv4).unwrap().is_some() && both.at(at).unwrap().is_some());
        assert!(both.at(SocketAddr::from(([127, 0, 0, 1], at.port()))).unwrap().is_none());
        let (one, at) = inherited("x", "[::]:0", false);
        assert!(one.at(SocketAddr::from(([0, 0, 0, 0], at.port()))).unwrap().is_none());
    }
}
