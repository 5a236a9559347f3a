//! What a connection that speaks RESP is in the middle of, beside the request at the front of its input.

use super::clients::Client;
use super::hearing::Hearing;
use super::own_request::item_keys;
use super::unfinished::{ManyKeys, Unfinished};
use crate::dispatch::connection::SessionState;
use crate::dispatch::databases::Order;
use crate::dispatch::own_keys::OwnKeys;
use crate::io::{Buffers, Charge};
use larder_cache::Watch;
use larder_protocol::resp::{Args, Id, Resume, Version, command_of};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

/// A connection that may speak RESP.
pub type Connection = crate::dispatch::connection::Connection<Session>;

/// The version of the protocol that a connection speaks.
pub(super) fn version_of(connection: &Connection) -> Version {
    connection.session.as_ref().map_or(Version::Resp2, |session| session.version)
}

/// One connection's session.
pub struct Session {
    pub(in crate::dispatch) version: Version,
    /// What other connections may see of this one.
    pub(in crate::dispatch) client: Arc<Client>,
    pub(in crate::dispatch) replies: Replies,
    /// Reads leave no trace (`CLIENT NO-TOUCH`).
    pub(in crate::dispatch) leaves_no_trace: bool,
    pub(in crate::dispatch) transaction: Option<Box<Transaction>>,
    watched: Watched,
    /// What the connection hears of from others. `None` = of nothing.
    pub(in crate::dispatch) hearing: Option<Box<Hearing>>,
    /// How far an incomplete request at the front of the input was read.
    pub(in crate::dispatch) resume: Resume,
    /// How far a command on several keys is.
    pub(super) many_keys: ManyKeys,
    /// The request at the front of the input, as it is executed for a user with a namespace.
    pub(in crate::dispatch) own_request: Option<OwnRequest>,
    /// Commands that were executed in the present turn, and the last one of them.
    pub(in crate::dispatch) commands: u32,
    pub(in crate::dispatch) last_command: Option<Id>,
    /// Something stands before the keys of the client: a namespace, a database.
    pub(in crate::dispatch) has_own_keys: bool,
    /// What the request at the front of the input needs more turns for.
    pub(super) unfinished: Unfinished,
    /// Requests need nothing but to be executed and answered: no transaction, every reply is sent, and keys are taken
    /// as they are.
    pub(in crate::dispatch) is_plain: bool,
}

/// The watched keys.
#[derive(Default)]
struct Watched {
    keys: HashMap<Vec<u8>, Watch>,
    /// What they take, in the account of connection buffers.
    charge: Charge,
}

/// Which replies are sent (`CLIENT REPLY`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::dispatch) enum Replies {
    All,
    None,
    /// All but that of the next request.
    NotNext,
    /// All but that of the request that is executed.
    NotThis,
}

/// Commands that were queued since `MULTI`.
#[derive(Default)]
pub(in crate::dispatch) struct Transaction {
    /// The arguments of all commands, one behind the other.
    pub(in crate::dispatch) bytes: Vec<u8>,
    pub(in crate::dispatch) commands: Vec<Queued>,
    /// A command was refused when it was queued: nothing will be executed.
    pub(in crate::dispatch) is_broken: bool,
    /// The keys of the client after a `SELECT` or `SWAPDB` that was queued.
    pub(in crate::dispatch) own_keys: Option<Option<Arc<OwnKeys>>>,
    /// The database that was chosen by then, and the order of databases after those that were exchanged.
    pub(in crate::dispatch) database: Option<u8>,
    pub(in crate::dispatch) order: Option<Box<Order>>,
    /// What the queue takes, in the account of connection buffers.
    charge: Charge,
}

impl Transaction {
    /// Takes room for a command of `bytes` bytes. `false` = there is none.
    pub(in crate::dispatch) fn take_room(&mut self, buffers: Option<&Arc<Buffers>>, bytes: usize) -> bool {
        // A vector doubles, and each command has an entry of its own.
        let bytes = 2 * (bytes + size_of::<Queued>()) as u64;
        buffers.is_none_or(|buffers| self.charge.try_grow(buffers, bytes))
    }

    /// The keys of all queued commands.
    pub(in crate::dispatch) fn keys(&self) -> impl Iterator<Item = Cow<'_, [u8]>> {
        let queued = self.commands.iter().map(|queued| (queued.own_keys.as_ref(), self.args(queued)));
        queued
            .filter_map(|(own, args)| command_of(args).map(|command| item_keys(own, command, args)))
            .flatten()
    }

    /// The arguments of a queued command.
    pub(in crate::dispatch) fn args(&self, queued: &Queued) -> Args<'_> {
        Args::new(&self.bytes[queued.from..queued.until], queued.count)
    }
}

/// A queued command.
pub(in crate::dispatch) struct Queued {
    /// Where its arguments begin and end.
    pub(in crate::dispatch) from: usize,
    pub(in crate::dispatch) until: usize,
    pub(in crate::dispatch) count: usize,
    /// What stands before the keys of a script.
    pub(in crate::dispatch) own_keys: Option<Arc<OwnKeys>>,
}

/// A request with the prefix of the user before its keys. It is kept while the request goes on.
pub(in crate::dispatch) struct OwnRequest {
    pub(in crate::dispatch) bytes: Vec<u8>,
    /// What it takes, in the account of connection buffers.
    charge: Charge,
}

impl OwnRequest {
    /// `None` = there is no room to keep it.
    pub(in crate::dispatch) fn new(bytes: Vec<u8>, buffers: Option<&Arc<Buffers>>) -> Option<OwnRequest> {
        let mut charge = Charge::default();
        let fits = buffers.is_none_or(|buffers| charge.try_grow(buffers, bytes.capacity() as u64));
        fits.then_some(OwnRequest { bytes, charge })
    }
}

impl Session {
    pub(in crate::dispatch) fn new(client: Arc<Client>) -> Session {
        Session {
            version: Version::Resp2,
            client,
            replies: Replies::All,
            leaves_no_trace: false,
            transaction: None,
            watched: Watched::default(),
            hearing: None,
            resume: Resume::default(),
            many_keys: ManyKeys::default(),
            own_request: None,
            commands: 0,
            last_command: None,
            has_own_keys: false,
            unfinished: Unfinished::default(),
            is_plain: true,
        }
    }

    /// Whether requests need nothing but to be executed and answered, unless something stands before their keys.
    pub(in crate::dispatch) fn is_plain_but_for_keys(&self) -> bool {
        self.transaction.is_none()
            && self.replies == Replies::All
            && !self.leaves_no_trace
            && !self.is_confined()
    }

    /// Whether the connection may do little else but hear of its channels: RESP2 cannot tell replies from messages.
    pub(in crate::dispatch) fn is_confined(&self) -> bool {
        self.version == Version::Resp2 && self.hearing.as_ref().is_some_and(|hearing| hearing.is_subscriber())
    }

    /// Whether keys that the present command reads are tracked.
    pub(in crate::dispatch) fn remembers_reads(&self) -> bool {
        let tracks = self.hearing.as_ref().and_then(|hearing| hearing.tracks.as_ref());
        tracks.is_some_and(|tracks| tracks.remembers())
    }

    /// After a change of what requests need.
    pub(in crate::dispatch) fn settle(&mut self) {
        let tracks_reads = self.hearing.as_ref().is_some_and(|hearing| hearing.tracks.is_some());
        self.is_plain = self.is_plain_but_for_keys() && !self.has_own_keys && !tracks_reads;
        let queued = self.transaction.as_ref().map(|transaction| transaction.commands.len());
        self.client.set_state(self.version, queued, self.watched.keys.len());
    }

    /// Watches a key, as `begin` does. `false` = there is no room for it.
    pub(in crate::dispatch) fn watch(
        &mut self,
        key: &[u8],
        begin: impl FnOnce() -> Watch,
        buffers: Option<&Arc<Buffers>>,
    ) -> bool {
        // The map has up to twice as many places as keys.
        let bytes = (2 * key.len() + Watch::BYTES + 2 * size_of::<(Vec<u8>, Watch)>()) as u64;
        let fits = buffers.is_none_or(|buffers| self.watched.charge.try_grow(buffers, bytes));
        if fits {
            self.watched.keys.insert(key.to_vec(), begin());
        }
        fits
    }

    /// What the watched keys take, in the account of connection buffers.
    pub(in crate::dispatch) fn watched_bytes(&self) -> u64 {
        self.watched.charge.bytes()
    }

    /// No key is watched any more.
    pub(in crate::dispatch) fn forget_watched(&mut self) {
        self.watched = Watched::default();
    }

    /// Whether a key is watched.
    pub(in crate::dispatch) fn is_watching(&self, key: &[u8]) -> bool {
        self.watched.keys.contains_key(key)
    }

    /// Whether no watched key has changed.
    pub(in crate::dispatch) fn is_unchanged(&self) -> bool {
        self.watched.keys.values().all(Watch::is_unchanged)
    }

    /// There is no transaction any more, and no key is watched.
    pub(in crate::dispatch) fn end_transaction(&mut self) {
        self.transaction = None;
        self.forget_watched();
        self.settle();
    }

    /// A request is executed.
    pub(in crate::dispatch) fn begin_reply(&mut self) {
        if self.replies == Replies::NotNext {
            self.replies = Replies::NotThis;
        }
    }

    /// The request is answered, though the client may not get the reply.
    pub(in crate::dispatch) fn end_reply(&mut self) {
        if self.replies == Replies::NotThis {
            self.replies = Replies::All;
            self.settle();
        }
    }

    /// Notes that a command was executed.
    #[inline]
    pub(in crate::dispatch) fn count(&mut self, command: Id) {
        self.commands += 1;
        self.last_command = Some(command);
    }

    /// As it was when the connection was opened (`RESET`).
    pub(in crate::dispatch) fn reset(&mut self) {
        self.client.forget_name();
        *self = Session { resume: self.resume, ..Session::new(self.client.clone()) };
        self.settle();
    }
}

impl SessionState for Session {
    fn held_bytes(&self) -> u64 {
        let queued = self.transaction.as_ref().map_or(0, |transaction| transaction.charge.bytes());
        let own = self.own_request.as_ref().map_or(0, |request| request.charge.bytes());
        let names = self.hearing.as_ref().map_or(0, |hearing| hearing.held_bytes());
        let heard = names + self.client.own_mailbox().map_or(0, |mailbox| mailbox.held_bytes());
        queued + own + self.watched_bytes() + heard
    }

    fn unfinished_bytes(&self) -> u64 {
        self.unfinished.held_bytes()
    }

    fn may_be_idle(&self) -> bool {
        self.hearing.as_ref().is_some_and(|hearing| hearing.is_subscriber())
    }

    fn has_own_keys(&mut self, has: bool) {
        self.has_own_keys = has;
        self.settle();
    }

    fn keys_have_changed(&mut self, is_in_request: bool) {
        if !is_in_request {
            self.own_request = None;
        }
        // The keys of what was queued are those of before.
        if let Some(transaction) = &mut self.transaction {
            transaction.is_broken |= !transaction.commands.is_empty();
        }
    }
}
