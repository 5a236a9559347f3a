//! One client's conversation, above its socket.

use super::databases::Databases;
use super::output::{Output, Pool};
use super::own_keys::OwnKeys;
use super::progress::{Busy, Progress, RestOfLine};
use super::protocol::Protocol;
use super::users::{Access, Rights};
use crate::io::{Awaits, Conversation, Handle, Peer};
use std::rc::Rc;
use std::sync::Arc;

/// What a protocol keeps of a connection between requests.
pub trait SessionState {
    /// What it has in the account of connection buffers.
    fn held_bytes(&self) -> u64;

    /// What a request has there that takes several turns.
    fn unfinished_bytes(&self) -> u64;

    /// The client waits for what others tell it.
    fn may_be_idle(&self) -> bool;

    /// Something stands before the keys of the client from now on, or nothing does.
    fn has_own_keys(&mut self, has: bool);

    /// What stands before the keys of the client has changed, because databases were exchanged. `is_in_request`: a part
    /// of the request at the front of the input is done.
    fn keys_have_changed(&mut self, is_in_request: bool);
}

/// One client's conversation: its replies, its unfinished work, and how far its input is read. `S` = what a protocol
/// keeps between requests.
pub struct Connection<S> {
    pub(super) output: Output,
    pub(super) progress: Progress,
    protocol: Protocol,
    reach: Reach,
    /// The client may do everything, with all keys.
    may_do_all: bool,
    /// The client has to log in before its input is read as requests, or is none that may come.
    is_locked: bool,
    /// The client has named a mechanism of SASL, and its name and password follow.
    pub(super) has_begun_sasl: bool,
    /// What a connection that speaks RESP is in the middle of. It is made with the first request.
    pub(super) session: Option<Box<S>>,
    /// The connection for those who are not its worker. `None` for a datagram.
    pub(super) handle: Option<Handle>,
    /// Keys of the `get` line at the front of the input that were answered before the output was full.
    pub(super) keys_done: usize,
    /// What is left of that line, if it was interrupted after a key.
    pub(super) rest_of_line: Option<Box<RestOfLine>>,
    /// Bytes of a refused data block that are still to be thrown away.
    pub(super) swallow: u64,
    /// Bytes of input that make the next turn worth while.
    pub(super) input_wanted: usize,
    /// The connection ends in the middle of what the client sends.
    pub(super) ends_unserved: bool,
    /// The connection has had its share of the present turn, and has more input.
    pub(super) gave_way: bool,
}

/// What a client may do, and with which keys.
#[derive(Default)]
struct Reach {
    /// `None` = it has to log in first.
    rights: Option<Rights>,
    /// It is of another machine, and is not served.
    is_stranger: bool,
    /// The database that it has chosen.
    database: u8,
    /// [`Databases::exchanges`] when its keys were found.
    exchanges: u64,
    /// The keys of the client in it. `None` = all that are of no other database; or it has to log in first.
    own_keys: Option<Arc<OwnKeys>>,
}

impl<S: SessionState> Connection<S> {
    pub(super) fn new(
        pool: &Rc<Pool>,
        peer: &Peer<'_>,
        protocol: Protocol,
        access: Option<Access>,
        is_datagram: bool,
        databases: &Databases,
    ) -> Connection<S> {
        let mut connection = Connection {
            output: Output::new(pool.clone(), is_datagram),
            progress: Progress::new(peer.id, peer.fd, is_datagram),
            protocol,
            reach: Reach {
                rights: access.map(|access| Rights { access, keys: None }),
                is_stranger: peer.is_stranger,
                ..Reach::default()
            },
            may_do_all: false,
            is_locked: false,
            has_begun_sasl: false,
            session: None,
            handle: peer.handle(),
            keys_done: 0,
            rest_of_line: None,
            swallow: 0,
            input_wanted: 0,
            ends_unserved: false,
            gave_way: false,
        };
        connection.find_keys(databases);
        connection
    }

    /// The protocol or the access has changed.
    fn settle(&mut self) {
        self.is_locked =
            self.reach.is_stranger || (self.protocol == Protocol::Text && self.reach.rights.is_none());
        self.may_do_all = self.access() == Some(Access::Full) && self.own_keys().is_none();
        match (self.protocol, self.own_keys()) {
            (Protocol::Text, Some(_)) => self.protocol = Protocol::TextOfOwnKeys,
            (Protocol::TextOfOwnKeys, None) => self.protocol = Protocol::Text,
            _ => {}
        }
    }

    #[inline]
    pub(super) fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// The client speaks this protocol from now on.
    pub(super) fn set_protocol(&mut self, protocol: Protocol) {
        self.protocol = protocol;
        self.settle();
    }

    /// Whether the client speaks the text protocol. The first byte of its input tells, if the settings do not.
    #[inline]
    pub(super) fn speaks_text(&mut self, input: &[u8]) -> bool {
        self.protocol == Protocol::Text || self.turns_out_text(input)
    }

    #[inline(never)]
    fn turns_out_text(&mut self, input: &[u8]) -> bool {
        if self.protocol == Protocol::Undecided
            && let Some(&first) = input.first()
        {
            self.protocol = Protocol::told_by(first, self.output.is_datagram());
            self.settle();
        }
        matches!(self.protocol, Protocol::Text | Protocol::Undecided)
    }

    #[inline]
    pub(super) fn access(&self) -> Option<Access> {
        self.reach.rights.as_ref().map(|rights| rights.access)
    }

    /// Whether the client may do everything, with all keys.
    #[inline]
    pub(super) fn may_do_all(&self) -> bool {
        self.may_do_all
    }

    /// The keys of the client in its database. `None` = all that are of no other database.
    #[inline]
    pub(super) fn own_keys(&self) -> Option<&Arc<OwnKeys>> {
        self.reach.own_keys.as_ref()
    }

    /// The keys of its user in database 0. `None` = the user has no namespace.
    pub(super) fn namespace(&self) -> Option<&Arc<OwnKeys>> {
        self.reach.rights.as_ref()?.keys.as_ref()
    }

    /// The database that the client has chosen.
    pub(super) fn database(&self) -> u8 {
        self.reach.database
    }

    /// The client has logged in, or has failed to.
    pub(super) fn set_rights(&mut self, rights: Option<Rights>, databases: &Databases) {
        self.reach.rights = rights;
        self.find_keys(databases);
    }

    /// The client chooses a database.
    pub(super) fn choose_database(&mut self, database: u8, databases: &Databases) {
        self.reach.database = database;
        self.find_keys(databases);
    }

    /// Databases may have been exchanged: what is not begun goes on with the keys of the client from now on.
    pub(super) fn follow_exchange(&mut self, databases: &Databases) {
        if self.reach.exchanges != databases.exchanges() {
            self.find_keys(databases);
            self.rest_of_line = None;
            let is_in_request = self.keys_done > 0 || self.progress.busy.is_some();
            if let Some(session) = &mut self.session {
                session.keys_have_changed(is_in_request);
            }
        }
    }

    fn find_keys(&mut self, databases: &Databases) {
        self.reach.exchanges = databases.exchanges();
        // Whoever has not logged in has no keys yet.
        let is_in = self.reach.rights.is_some();
        self.reach.own_keys =
            is_in.then(|| databases.keys_of(self.namespace(), self.reach.database)).flatten();
        let has_own_keys = self.reach.own_keys.is_some();
        if let Some(session) = &mut self.session {
            session.has_own_keys(has_own_keys);
        }
        self.settle();
    }

    /// Whether nothing more may be answered before the output is sent, or before flash has answered.
    #[inline]
    pub(super) fn is_backed_up(&self) -> bool {
        self.output.is_full() || self.progress.blocks_replies()
    }

    /// Whether the client has to log in before its input is read as requests.
    pub(super) fn is_locked(&self) -> bool {
        self.is_locked
    }

    /// The first request of a client of another machine: it is told why it is not served.
    ///
    /// `true` = it is one.
    pub(super) fn turned_away(&mut self, request: &[u8]) -> bool {
        if self.reach.is_stranger && !self.output.is_closing() {
            self.output.buffer().extend(self.protocol.turns_away(request));
            self.output.close();
            self.ends_unserved = true;
        }
        self.reach.is_stranger
    }

    /// Whether something has to be done before the input can be read as requests.
    #[inline]
    pub(super) fn needs_turn(&self) -> bool {
        self.swallow > 0 || self.progress.busy.is_some() || self.is_locked
    }

    /// After a key of a retrieval, which is not its last: the next one comes in another turn if `keys_at_once` were
    /// answered in this one. What a datagram asks for is answered in one turn. While buffers are short, whoever keeps
    /// input and sends nothing may have to go: then there is no pause.
    #[inline]
    pub(super) fn pause_if_due(&mut self, keys_at_once: usize) {
        let is_due = self.keys_done.is_multiple_of(keys_at_once) && !self.output.is_limited();
        if is_due && self.progress.busy.is_none() {
            self.progress.busy = Some(Busy::Pausing);
        }
    }

    /// What the unfinished work has in the account of connection buffers.
    #[cold]
    fn unfinished_bytes(&self) -> u64 {
        self.session.as_ref().map_or(0, |session| session.unfinished_bytes()) + self.progress.held_bytes()
    }

    /// The request at the front of the input is answered.
    #[inline]
    pub(super) fn completed(&mut self) {
        self.progress.tries = 0;
        self.keys_done = 0;
    }
}

impl<S: SessionState> Conversation for Connection<S> {
    fn take_output(&mut self) -> Option<Vec<u8>> {
        self.output.take()
    }

    fn recycle(&mut self, buffer: Vec<u8>) {
        self.output.recycle(buffer);
    }

    fn has_output(&self) -> bool {
        self.output.has_any()
    }

    fn output(&self) -> &[u8] {
        self.output.bytes()
    }

    fn is_waiting(&self) -> bool {
        self.progress.waits
    }

    fn wants_close(&self) -> bool {
        self.output.is_closing() && self.progress.busy.is_none()
    }

    fn ends_unserved(&self) -> bool {
        self.ends_unserved
    }

    fn has_failed(&self) -> bool {
        self.output.has_failed()
    }

    fn awaits(&self, held: usize) -> Awaits {
        if self.progress.watcher().is_some() {
            Awaits::Nothing
        } else if self.swallow > 0 {
            Awaits::RefusedValue
        } else if self.progress.is_receiving() || self.input_wanted > held + 1 {
            Awaits::Value
        } else {
            Awaits::Request
        }
    }

    fn wants_input(&self) -> bool {
        // What a watcher sends is thrown away.
        let is_watching = self.progress.watcher().is_some() && !self.output.is_full();
        !self.output.is_closing() && (is_watching || !self.is_backed_up())
    }

    fn out_of_memory(&self) -> &'static str {
        self.protocol.out_of_memory()
    }

    fn input_wanted(&self) -> usize {
        self.input_wanted
    }

    fn held_bytes(&self) -> u64 {
        let unfinished = if self.progress.busy.is_some() { self.unfinished_bytes() } else { 0 };
        self.session.as_ref().map_or(0, |session| session.held_bytes()) + unfinished
    }

    fn may_be_idle(&self) -> bool {
        self.progress.watcher().is_some()
            || self.session.as_ref().is_some_and(|session| session.may_be_idle())
    }
}
