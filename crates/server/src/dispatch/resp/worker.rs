//! One worker's side of RESP: what it keeps between requests, and its turns.

use super::config::Server;
use super::info;
use super::script_worker::ScriptWorker;
use super::session::{Connection, Session};
use super::shared::{Shared, WorkerCounts};
use crate::dispatch::connection::SessionState;
use crate::dispatch::decimal::Decimal;
use crate::dispatch::execute::Executor;
use crate::dispatch::fleet::Fleet;
use crate::dispatch::item_key::{KeyRoom, is_plain};
use crate::dispatch::progress::Busy;
use crate::dispatch::protocol::Protocol;
use crate::dispatch::state::ServerState;
use crate::io::{Peer, Ready};
use larder_cache::Alone;
use larder_protocol::resp::{Id, Options};
use std::sync::Arc;
use std::time::Instant;

/// One part in this many of the memory for connection buffers is the most that one request may take.
const REQUEST_SHARE: u64 = 4;
/// A request of up to this number of bytes is always waited for.
const REQUEST_BYTES_MIN: usize = 256 << 10;

/// One worker's side of RESP.
pub(in crate::dispatch) struct Resp {
    pub(super) server: Arc<ServerState>,
    pub(super) shared: Arc<Shared>,
    pub(super) number: usize,
    /// The longest value that is stored in one piece.
    whole_bytes_max: usize,
    /// Room for the keys of a request that items cannot have as they are.
    pub(super) rooms: [KeyRoom; 2],
    pub(super) decimal: Option<Decimal>,
    /// Room for a line of words, rewritten.
    pub(super) line: Vec<u8>,
    /// Room for a request of a user with a namespace, rewritten.
    pub(super) own_request: Vec<u8>,
    pub(super) fleet: Option<Arc<Fleet>>,
    fleet_version: u64,
    pub(super) turn: Turn,
    /// How often each command was executed in the present turn.
    executed: Box<[u32; Id::COUNT]>,
    /// The commands of which that is not 0.
    touched: Vec<Id>,
    random: u64,
    pub(super) scripts: ScriptWorker,
}

/// What holds in the present turn.
#[derive(Default)]
pub(super) struct Turn {
    /// The time of every request is taken.
    pub(super) measures_all: bool,
    /// Somebody tracks keys.
    pub(super) tracks: bool,
    /// [`Databases::exchanges`](crate::dispatch::databases::Databases::exchanges) when the keys of its connections were
    /// found.
    exchanges: u64,
}

/// See [`Resp::be_alone`].
#[derive(Debug)]
pub(super) struct Exchanged;

impl Resp {
    /// The side of one worker. `number`: which of the workers this is, from 0 on.
    pub(in crate::dispatch) fn new(
        server: Arc<ServerState>,
        shared: Arc<Shared>,
        executor: &Executor,
        number: usize,
    ) -> Resp {
        use std::hash::{BuildHasher, Hasher};
        Resp {
            server,
            shared,
            number,
            whole_bytes_max: executor.whole_value_bytes_max(),
            rooms: Default::default(),
            decimal: None,
            line: Vec::new(),
            own_request: Vec::new(),
            fleet: None,
            fleet_version: 0,
            turn: Turn::default(),
            executed: Box::new([0; Id::COUNT]),
            touched: Vec::new(),
            random: std::hash::RandomState::new().build_hasher().finish() | 1,
            scripts: ScriptWorker::default(),
        }
    }

    /// Waits while another worker is alone.
    #[inline]
    pub(in crate::dispatch) fn pass_gate(&self, executor: &mut Executor) {
        if !self.shared.gate.enter(self.number) {
            executor.offline();
            self.shared.gate.wait_to_enter(self.number);
            executor.online();
        }
    }

    /// A turn begins: the fleet may have changed, or what is measured.
    #[inline]
    pub(in crate::dispatch) fn begin_turn(&mut self) {
        self.turn.measures_all = self.shared.measures_all();
        self.turn.tracks = self.shared.told.tracking.is_on();
        self.note_exchanges();
        let version = self.server.fleet().version();
        if version != self.fleet_version {
            (self.fleet, self.fleet_version) = (self.server.fleet().get(), version);
        }
    }

    /// Whether a client came in by a port on which every connection speaks RESP.
    pub(in crate::dispatch) fn is_port_of(&self, peer: &Peer<'_>) -> bool {
        self.shared.is_port_of(peer)
    }

    /// The worker executes no request any more: another may be alone.
    #[inline]
    pub(in crate::dispatch) fn leave_gate(&self) {
        self.shared.gate.leave(self.number);
    }

    /// What this worker counts.
    pub(super) fn counts(&self) -> &WorkerCounts {
        self.shared.worker(self.number)
    }

    /// Whether nothing has to be known of a retrieval of this key but the key.
    #[inline]
    pub(super) fn is_fast(&self, key: &[u8]) -> bool {
        !self.turn.measures_all
            && is_plain(key)
            && self.fleet.as_ref().is_none_or(|fleet| fleet.is_plainly_here(key))
    }

    #[inline]
    pub(super) fn count(&mut self, id: Id, calls: u32) {
        let executed = &mut self.executed[id as usize];
        if *executed == 0 {
            self.touched.push(id);
        }
        *executed += calls;
    }

    /// The turn is over. Its time is shared out evenly among the commands, those of other protocols included.
    fn end_counts(&mut self, took_ns: u64, all: u64) {
        let counts = self.shared.worker(self.number);
        for id in self.touched.drain(..) {
            let calls = u64::from(std::mem::take(&mut self.executed[id as usize]));
            counts.executed(id as usize, calls, took_ns * calls / all.max(1) / 1000);
        }
    }

    /// The next number by chance (xorshift; Marsaglia, Journal of Statistical Software 2003).
    pub(super) fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    // ---- requests ----

    /// How requests of a connection are read.
    pub(super) fn options(&self, connection: &Connection) -> Options {
        let in_transaction = connection.session.as_ref().is_some_and(|session| session.transaction.is_some());
        Options {
            // A queued command has to be here as a whole.
            whole_bytes_max: if in_transaction { usize::MAX } else { self.whole_bytes_max },
            request_bytes_max: self.request_bytes_max(),
            is_authenticated: connection.access().is_some(),
        }
    }

    /// The longest request, in bytes.
    pub(super) fn request_bytes_max(&self) -> usize {
        let limit = self.server.buffers().map_or(0, |buffers| buffers.limit_bytes());
        ((limit / REQUEST_SHARE) as usize).max(REQUEST_BYTES_MIN)
    }

    /// A connection begins to speak RESP.
    pub(super) fn begin_session(&self, connection: &mut Connection) {
        let client = self.shared.clients.add(connection.handle.clone(), self.number, connection.progress.id);
        connection.set_protocol(Protocol::Resp);
        let mut session = Box::new(Session::new(client));
        // Database 0 may have been exchanged.
        session.has_own_keys(connection.own_keys().is_some());
        connection.session = Some(session);
    }

    /// What `INFO` and `CONFIG` look at.
    pub(super) fn server<'s>(&'s self, executor: &'s Executor) -> Server<'s> {
        Server { state: &self.server, resp: &self.shared, cache: executor.cache() }
    }

    /// What others see of a connection is brought up to date. `last` = the command that is executed.
    pub(super) fn note_client(&self, session: &mut Session, last: Id) {
        session.last_command = Some(last);
        session.client.note(Instant::now(), last, u64::from(std::mem::take(&mut session.commands)));
    }

    /// Lets no other worker execute requests until the result is dropped. `None` = the connection executes a
    /// transaction, or the window has scripts, so the worker is alone already.
    ///
    /// # Errors
    /// Databases were exchanged while the worker waited: the request waits until it is gathered anew.
    pub(super) fn be_alone(
        &self,
        executor: &mut Executor,
        connection: &Connection,
    ) -> Result<Option<Alone<'static>>, Exchanged> {
        let alone = self.be_alone_whatever_changes(executor, connection);
        if alone.is_some() && self.has_exchanged() { Err(Exchanged) } else { Ok(alone) }
    }

    /// As [`Resp::be_alone`], for what does not depend on keys.
    pub(super) fn be_alone_whatever_changes(
        &self,
        executor: &mut Executor,
        connection: &Connection,
    ) -> Option<Alone<'static>> {
        let in_transaction = connection.session.as_ref().is_some_and(|session| session.transaction.is_some());
        if in_transaction || self.scripts.alone.is_some() {
            return None;
        }
        // While the worker waits it holds nothing that another could wait for.
        executor.offline();
        let alone = self.shared.gate.be_alone(self.number, false);
        executor.online();
        Some(alone)
    }

    /// Whether databases were exchanged since the keys of the turn's connections were found, here or by another worker.
    #[inline]
    pub(in crate::dispatch) fn has_exchanged(&self) -> bool {
        self.turn.exchanges != self.server.databases().exchanges()
    }

    /// Whether databases were exchanged before the turn.
    #[inline]
    pub(in crate::dispatch) fn knows_exchanges(&self) -> bool {
        self.turn.exchanges > 0
    }

    /// The keys of the turn's connections are found: at its beginning, and after an exchange.
    #[inline]
    pub(in crate::dispatch) fn note_exchanges(&mut self) {
        self.turn.exchanges = self.server.databases().exchanges();
    }

    // ---- the end of a turn ----

    /// At the end of a turn, which took this long.
    #[inline]
    pub(in crate::dispatch) fn end_turn(
        &mut self,
        executor: &Executor,
        batch: &mut [Ready<'_, Connection>],
        took_ns: u64,
    ) {
        if !self.touched.is_empty() {
            self.settle_turn(executor, batch, took_ns);
        }
        self.deliver_if_any(batch);
    }

    /// Gives connections what others tell them: at the beginning of a turn, so that no reply overtakes a message that
    /// was sent before its request, and at the end.
    #[inline]
    pub(in crate::dispatch) fn deliver_if_any(&self, batch: &mut [Ready<'_, Connection>]) {
        if self.shared.told.post.has_letters(self.number) {
            self.deliver(batch);
        }
    }

    /// Gives connections what others tell them, if nothing is in the middle of its reply.
    #[cold]
    fn deliver(&self, batch: &mut [Ready<'_, Connection>]) {
        for Ready { connection, .. } in batch {
            // While an argument is taken in, nothing of the reply is there.
            let is_between_replies = !connection.is_backed_up()
                && matches!(connection.progress.busy, None | Some(Busy::Taking))
                && connection.keys_done == 0;
            let Connection { output, session: Some(session), .. } = &mut **connection else { continue };
            if let Some(mailbox) = session.client.own_mailbox()
                && mailbox.has_letters()
                && is_between_replies
                && !output.is_closing()
            {
                let is_subscriber = session.hearing.as_ref().is_some_and(|hearing| hearing.is_subscriber());
                let bytes_max = output.len() + output.room();
                let post = &self.shared.told.post;
                mailbox.take(post, session.version, is_subscriber, bytes_max, output.buffer());
            }
        }
    }

    #[inline(never)]
    fn settle_turn(&mut self, executor: &Executor, batch: &mut [Ready<'_, Connection>], took_ns: u64) {
        self.end_counts(took_ns, executor.executed());
        for ready in batch {
            if let Some(session) = &mut ready.connection.session
                && session.commands > 0
                && let Some(last) = session.last_command
            {
                self.note_client(session, last);
            }
        }
    }

    /// About once a second: memory of scripts, and by one of the workers figures over time.
    pub(in crate::dispatch) fn tick(&mut self, executor: &Executor) {
        self.scripts.tick(&self.shared.scripts, self.server.buffers());
        let workers = self.server.settings().threads as usize;
        self.shared.told.tracking.tell_expired(executor.clock(), self.number, workers);
        if self.number == 0 {
            let io = self.server.io_snapshot();
            self.shared.take_sample(io.bytes_read, io.bytes_written);
            self.shared.note_peak(info::used_bytes(&self.server(executor)));
        }
    }
}
