//! The accepting worker: which worker gets a new connection, and when to stop accepting.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::accepted::Accepted;
use super::listen::Listener;
use super::shared::Shared;
use super::transport::Transport;
use crate::seldom::Seldom;
use crate::tls::Tls;
use socket2::Socket;

/// The place of all strangers together, where others are counted by address.
const STRANGERS: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// What a client is told that is one too many.
const TOO_MANY: Words = Words {
    memcached: "ERROR Too many open connections\r\n",
    resp: "-ERR max number of clients reached\r\n",
};
/// What a client is told whose address has too many.
const TOO_MANY_OF_ADDRESS: Words = Words {
    memcached: "ERROR Too many open connections from this address\r\n",
    resp: "-ERR max number of clients reached for this address\r\n",
};

/// The same in two protocols.
struct Words {
    memcached: &'static str,
    resp: &'static str,
}

/// Why no connections are accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pause {
    /// The limit of connections is reached. The pause ends when one closes.
    Limit,
    /// The system gave no descriptor or no memory. The pause ends when a connection closes, or at the next tick.
    Resources,
}

#[derive(Debug)]
pub(super) struct Acceptor {
    pub(super) listeners: Rc<[Listener]>,
    /// Connections that the kernel had accepted already when the limit was reached.
    parked: VecDeque<Accepted>,
    pause: Option<(Pause, Instant)>,
    /// What the driver was told last.
    listening: bool,
    /// Where the search for the least busy worker starts, so that equals take turns.
    turn: usize,
    tls: Option<Arc<Tls>>,
    /// What is logged of connections beyond the limit, of those beyond that of their address, and of strangers.
    told: [Seldom; 3],
}

impl Acceptor {
    pub(super) fn new(listeners: Vec<Listener>, tls: Option<Arc<Tls>>) -> Acceptor {
        Acceptor {
            listeners: listeners.into(),
            parked: VecDeque::new(),
            pause: None,
            listening: true,
            turn: 0,
            tls,
            told: Default::default(),
        }
    }

    /// Whether to listen, if that has changed since the last call.
    pub(super) fn listening_changed(&mut self) -> Option<bool> {
        let on = self.pause.is_none();
        (on != std::mem::replace(&mut self.listening, on)).then_some(on)
    }

    /// A connection that a listener has accepted.
    pub(super) fn accepted(&self, socket: Socket, listener: &Listener) -> Accepted {
        let handshake = self.tls.as_ref().and_then(|tls| tls.config(listener.tls));
        let (is_resp, is_stranger) = (listener.is_resp, listener.is_unasked && is_of_elsewhere(&socket));
        Accepted { handshake, is_resp, is_stranger, ..Accepted::new(socket, listener.transport) }
    }

    /// Finds the worker for a new connection. `None` = the connection was turned away, or waits until another closes.
    pub(super) fn admit(
        &mut self,
        mut accepted: Accepted,
        shared: &Shared,
        own: usize,
    ) -> Option<(usize, Accepted)> {
        if accepted.place.is_none()
            && let Some(address) = address_of(&accepted)
        {
            accepted.place = shared.address_limit.enter(address);
            if accepted.place.is_none() {
                shared.counters.workers[own].rejected_per_address.add(1);
                refuse(&accepted, &TOO_MANY_OF_ADDRESS);
                let most = shared.address_limit.most();
                self.told[1].tell(1, |count| {
                    format!(
                        "{count} refused beyond the most connections of one address ({most}, \
                         --address-conn-limit), the last one from {address}"
                    )
                });
                return None;
            }
        }
        if accepted.is_stranger {
            accepted.is_stranger = !shared.limits.serves_strangers();
        }
        if accepted.is_stranger {
            self.tell_stranger(&accepted, shared, own);
            // Strangers who stay take few of the places of others. One that finds none is told nothing.
            accepted.place = Some(shared.limits.strangers.enter(STRANGERS)?);
        }
        if shared.is_full() {
            if shared.limits.refuses() {
                // First: the client may ask for the count as soon as it is refused.
                shared.counters.workers[own].rejected.add(1);
                refuse(&accepted, &TOO_MANY);
                let most = shared.limits.most();
                self.told[0]
                    .tell(1, |count| format!("{count} refused beyond the most connections ({most}, -c)"));
            } else {
                self.parked.push_back(accepted);
                self.pause(Pause::Limit, shared);
            }
            return None;
        }
        let now_open = shared.open.fetch_add(1, Ordering::SeqCst) + 1;
        if now_open >= shared.limits.most() && !shared.limits.refuses() {
            self.pause(Pause::Limit, shared);
        }
        let worker = self.least_busy(shared);
        shared.counters.workers[worker].assigned.fetch_add(1, Ordering::Relaxed);
        Some((worker, accepted))
    }

    #[cold]
    fn tell_stranger(&mut self, accepted: &Accepted, shared: &Shared, own: usize) {
        shared.counters.workers[own].rejected_strangers.add(1);
        let address = address_of(accepted).map_or("an unknown address".to_owned(), |at| at.to_string());
        self.told[2].tell(1, |count| {
            format!(
                "{count} of other machines turned away, the last one from {address}: name addresses with -l, ask for \
                 passwords with -Y, or give --open"
            )
        });
    }

    /// Accepting failed. Errors of one client are ignored. A lack of descriptors is a reason to pause.
    pub(super) fn failed(&mut self, error: &io::Error, shared: &Shared) {
        match error.kind() {
            ErrorKind::ConnectionAborted | ErrorKind::Interrupted | ErrorKind::WouldBlock => {}
            _ => {
                if self.pause.is_none() {
                    tracing::warn!(
                        %error,
                        "cannot accept connections for now; raise the limit of open files (ulimit -n)"
                    );
                }
                self.pause(Pause::Resources, shared);
            }
        }
    }

    /// Ends the pause if it may end now. The caller opens each connection that is returned, and calls again until
    /// `None`.
    pub(super) fn resume(
        &mut self,
        shared: &Shared,
        own: usize,
        after_tick: bool,
    ) -> Option<(usize, Accepted)> {
        let (pause, since) = self.pause?;
        // Where clients are told that there is no room for them, none waits.
        let waits_for_room = shared.is_full() && !shared.limits.refuses();
        if waits_for_room || (pause == Pause::Resources && !after_tick) {
            return None;
        }
        while let Some(accepted) = self.parked.pop_front() {
            let admitted = self.admit(accepted, shared, own);
            // One that was parked again waits for room.
            if admitted.is_some() || !shared.limits.refuses() {
                return admitted;
            }
        }
        self.pause = None;
        shared.accept_paused.store(false, Ordering::SeqCst);
        shared.counters.accepting.store(true, Ordering::Relaxed);
        let paused_us = since.elapsed().as_micros() as u64;
        shared.counters.listen_disabled_us.fetch_add(paused_us, Ordering::Relaxed);
        None
    }

    fn pause(&mut self, why: Pause, shared: &Shared) {
        if self.pause.is_none() {
            self.pause = Some((why, Instant::now()));
            shared.counters.accepting.store(false, Ordering::Relaxed);
            shared.counters.listen_disabled.fetch_add(1, Ordering::Relaxed);
            shared.accept_paused.store(true, Ordering::SeqCst);
            // A connection may have closed after the look at the limit and before this flag was set: look again.
            if !shared.is_full() {
                shared.wake(0);
            }
        }
    }

    fn least_busy(&mut self, shared: &Shared) -> usize {
        let workers = &shared.counters.workers;
        let from = self.turn;
        let load = |at: &usize| workers[*at].assigned.load(Ordering::Relaxed);
        let order = (0..workers.len()).map(|i| (from + i) % workers.len());
        let chosen = order.min_by_key(load).unwrap_or(0);
        self.turn = (chosen + 1) % workers.len();
        chosen
    }
}

/// The address of a client. `None` = it has none, or is gone already.
fn address_of(accepted: &Accepted) -> Option<IpAddr> {
    match accepted.transport {
        Transport::Tcp => Some(accepted.socket.peer_addr().ok()?.as_socket()?.ip()),
        Transport::Unix | Transport::Udp => None,
    }
}

/// Whether a client has come from another machine. One that is gone already has no address any more, and what it has
/// sent is there all the same: it may be of any machine.
fn is_of_elsewhere(socket: &Socket) -> bool {
    let address = socket.peer_addr().ok().and_then(|address| address.as_socket());
    address.is_none_or(|address| !address.ip().to_canonical().is_loopback())
}

/// Tells a client that its connection is one too many. A few words fit the buffer of any socket. A client that is gone
/// need not read them, and one that expects a handshake cannot.
fn refuse(accepted: &Accepted, why: &Words) {
    if accepted.handshake.is_none() {
        let words = if accepted.is_resp { why.resp } else { why.memcached };
        let _ = accepted
            .socket
            .set_nonblocking(true)
            .and_then(|()| (&accepted.socket).write_all(words.as_bytes()));
    }
}
