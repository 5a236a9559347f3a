//! A worker's turn: requests are read ahead, and then executed in their order.
//!
//! A turn takes all connections that have input. Their requests are gathered into a **window** of up to [`WINDOW_OPS`]
//! keys. Parsing a request hashes its key and asks for its bucket (stage 1). When the window is full, every key's tag
//! is looked up and its record asked for (stage 2), for one key in seven by way of a sub-bucket (stage 3), and then the
//! values that stand apart from their records. Only then are the requests executed, and they find everything in the
//! CPU's cache. So the latency of memory is overlapped across all pipelined requests, all keys of a multiget and all
//! connections of the turn.
//!
//! What stage 2 found is only a hint. A GET may use it as long as no write was executed in the window before it and the
//! worker has not let go of its epoch. The key is compared in any case.
//!
//! What a request is, and what is to be done with it, only the protocols know: `memcached` and `resp`, which are called
//! by the trait [`Interpreter`].

mod sample;

use super::cursor::Cursor;
use super::execute::Executor;
use super::interpreter::{Interpreter, hold_uncommitted};
use super::item_key;
use super::memcached::{self, Memcached};
use super::output::{OUTPUT_SOFT_BYTES, OUTPUT_TIGHT_BYTES, Pool};
use super::protocol::Protocol;
use super::request_log::log_progress;
use super::resp::{self, Connection, Resp};
use super::state::ServerState;
use super::window::{Hints, Progressed, WINDOW_OPS, WindowOp};
use crate::io::{CloseReason, ConnectionId, Peer, Ready, Service, Transport};
use crate::latency::WorkerLatency;
use crate::seldom::Seldom;
use crate::settings::{self, Settings};
use larder_cache::{KEY_BYTES_MAX, LookupStage, Worker};
use sample::Sampler;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

type Window<'a> = super::window::Window<'a, Work<'a>>;

/// One worker's dispatcher.
pub struct Dispatcher {
    executor: Executor,
    state: Arc<ServerState>,
    pool: Rc<Pool>,
    /// How many requests of one connection are executed before another connection has its turn (`-R`).
    requests_per_share: usize,
    /// Whether every request is logged (`-vv`).
    logs: bool,
    memcached: Memcached,
    resp: Resp,
    sampler: Sampler,
    /// What one of the workers logs for all.
    refusals: Option<Refusals>,
}

/// What is to be done with an entry of the window, by its protocol.
enum Work<'a> {
    Memcached(memcached::Work<'a>),
    Resp(resp::Work<'a>),
}

// The entries of the window stay as small as they can be.
const _: () = assert!(size_of::<Work<'_>>() == size_of::<memcached::Work<'_>>());

impl<'a> From<memcached::Work<'a>> for Work<'a> {
    #[inline(always)]
    fn from(work: memcached::Work<'a>) -> Work<'a> {
        Work::Memcached(work)
    }
}

impl<'a> From<resp::Work<'a>> for Work<'a> {
    #[inline(always)]
    fn from(work: resp::Work<'a>) -> Work<'a> {
        Work::Resp(work)
    }
}

impl Work<'_> {
    /// Whether it is a plain read of a key.
    #[inline(always)]
    fn is_read(&self) -> bool {
        match self {
            Work::Memcached(work) => work.is_read(),
            Work::Resp(work) => work.is_read(),
        }
    }

    /// Whether it may need room for an item.
    fn may_need_room(&self) -> bool {
        match self {
            Work::Memcached(work) => work.may_need_room(),
            Work::Resp(work) => work.may_need_room(),
        }
    }

    /// Whether it is a request that most often replaces or removes an item.
    #[inline(always)]
    fn is_request(&self) -> bool {
        matches!(self, Work::Memcached(work) if work.is_request())
    }
}

/// Stores that found no memory, for the log.
#[derive(Debug, Default)]
struct Refusals {
    seen: u64,
    told: Seldom,
}

impl Refusals {
    /// `count` stores have found no memory by now.
    fn look(&mut self, settings: &Settings, count: u64) {
        let more = count.saturating_sub(std::mem::replace(&mut self.seen, count));
        self.told.tell(more, |count| {
            let reason =
                if settings.evict { "nothing could be evicted in time" } else { "-M forbids evictions" };
            format!("{count} stores refused, because memory is full and {reason}")
        });
    }
}

/// Why gathering stopped.
#[derive(PartialEq, Eq)]
enum Gathered {
    /// The window is full, or what follows depends on what is in it.
    Execute,
    /// Every connection was visited.
    Done,
}

impl Dispatcher {
    /// A dispatcher over one worker of the cache.
    ///
    /// `number`: which of the workers this is, from 0 on. `shared`: what the dispatchers of the server share of RESP.
    pub fn new(
        worker: Worker,
        number: usize,
        state: Arc<ServerState>,
        shared: Arc<resp::Shared>,
        latency: Arc<WorkerLatency>,
    ) -> Dispatcher {
        let executor = Executor::new(worker, number, state.clone(), latency);
        Dispatcher {
            memcached: Memcached::new(&executor),
            resp: Resp::new(state.clone(), shared, &executor, number),
            executor,
            requests_per_share: state.settings().requests_per_event as usize,
            state,
            pool: Rc::default(),
            logs: false,
            sampler: Sampler::new(number),
            refusals: (number == 0).then(Refusals::default),
        }
    }

    /// Fills the window from the cursor on.
    fn gather<'a>(
        &mut self,
        batch: &mut [Ready<'a, Connection>],
        cursor: &mut Cursor<'a>,
        window: &mut Window<'a>,
    ) -> Gathered {
        while let Some(ready) = batch.get_mut(cursor.connection) {
            let before = window.len();
            cursor.window_stop = cursor.share_left.saturating_add(before).min(WINDOW_OPS);
            let is_resp =
                !ready.connection.speaks_text(ready.input) && ready.connection.protocol() == Protocol::Resp;
            let has_to_execute = match is_resp {
                true => self.gather_resp(ready, cursor, window),
                false => self.memcached.gather(&mut self.executor, ready, cursor, window),
            };
            cursor.share_left = cursor.share_left.saturating_sub(window.len() - before);
            if has_to_execute {
                return Gathered::Execute;
            }
            cursor.visit(batch, cursor.connection + 1);
        }
        Gathered::Done
    }

    #[inline(never)]
    fn gather_resp<'a>(
        &mut self,
        ready: &mut Ready<'a, Connection>,
        cursor: &mut Cursor<'a>,
        window: &mut Window<'a>,
    ) -> bool {
        self.resp.gather(&mut self.executor, ready, cursor, window)
    }

    /// Stages 2 and 3, and the values. Not inlined: its loops would take registers from those around it.
    #[inline(never)]
    fn look_up(&self, window: &mut Window<'_>) {
        let lookup = self.executor.lookup();
        for op in window.iter_mut() {
            if let LookupStage::Prefetched(bucket) = op.at {
                op.at = lookup.locate(op.hash, bucket);
            }
        }
        for op in window.iter_mut() {
            if let LookupStage::InSubBucket(below) = op.at {
                op.at = lookup.locate_below(op.hash, below).map_or(LookupStage::Absent, LookupStage::Matched);
            }
        }
        for op in window.iter() {
            if let Some(seen) = op.at.tag_match()
                && op.what.is_read()
            {
                lookup.prefetch_value(seen);
            }
        }
    }

    /// Prefetches what the end of present items changes. Most requests that are no retrieval replace or remove one.
    fn look_up_ends(&self, window: &Window<'_>) {
        let lookup = self.executor.lookup();
        for op in window {
            if let Some(seen) = op.at.tag_match()
                && op.what.is_request()
            {
                lookup.prefetch_end(seen);
            }
        }
    }

    /// Looks up everything in the window, then executes it in order.
    #[inline(always)]
    fn execute<'a>(&mut self, batch: &mut [Ready<'a, Connection>], window: &mut Window<'a>) {
        self.look_up(window);
        // The requests of one connection are alike: the first one stands for all.
        if window.first().is_some_and(|op| op.what.is_request()) {
            self.look_up_ends(window);
        }
        let has_scripts = self.resp.has_scripts();
        if has_scripts && !self.be_alone(batch, window) {
            window.clear();
        }
        let mut hints = Hints { epoch: self.executor.epoch(), are_outdated: has_scripts };
        let has_flash = self.executor.has_flash();
        let may_stop = has_flash || has_scripts;
        for op in window.iter() {
            let ready = &mut batch[op.connection as usize];
            // A connection whose output is full or that closed answers no more. Its requests stay in the input.
            if ready.connection.is_backed_up()
                || ready.connection.output.is_closing()
                || op.end <= ready.consumed
            {
                continue;
            }
            if may_stop {
                if has_scripts && self.resp.has_exchanged() {
                    break;
                }
                if has_flash && self.has_to_wait(ready.connection, op) {
                    continue;
                }
            }
            let answered_before = ready.connection.output.len();
            let progressed = match &op.what {
                Work::Memcached(work) => {
                    self.memcached.execute(&mut self.executor, ready, op, work, &mut hints)
                }
                Work::Resp(work) => self.resp.execute(&mut self.executor, ready, op, work, &mut hints),
            };
            if self.logs {
                log_work(ready, op, progressed, answered_before);
            }
            hold_uncommitted(&self.executor, ready.connection);
            if progressed == Progressed::Request {
                ready.consumed = op.end;
                ready.connection.completed();
            } else if progressed == Progressed::Waits && self.resp.has_exchanged() {
                break;
            }
        }
        if has_scripts {
            self.resp.end_scripts();
        }
        if self.sampler.passes(window.len()) {
            self.sample(batch, window);
        }
        window.clear();
    }

    /// The window has scripts: the worker is alone while it executes the window. `false` = it has to be gathered anew
    /// before.
    #[cold]
    #[inline(never)]
    fn be_alone(&mut self, batch: &[Ready<'_, Connection>], window: &Window<'_>) -> bool {
        for op in window {
            if let Work::Resp(work) = &op.what {
                self.resp.prepare_script(batch[op.connection as usize].connection, work);
            }
        }
        self.resp.be_alone_with_scripts(&mut self.executor)
    }

    /// Databases were exchanged: the connections of the turn have other keys from now on, unless they know already.
    #[cold]
    fn follow_exchange(&mut self, batch: &mut [Ready<'_, Connection>]) {
        self.resp.note_exchanges();
        batch.iter_mut().for_each(|ready| ready.connection.follow_exchange(self.state.databases()));
    }

    /// Whether a request waits for room that flash makes.
    #[inline(never)]
    fn has_to_wait(&mut self, connection: &mut Connection, op: &WindowOp<'_, Work<'_>>) -> bool {
        op.what.may_need_room()
            && self.executor.is_short_of_room()
            && self.executor.waits_for_room(&mut connection.progress)
    }

    /// Looks at some keys of a window that was executed.
    #[cold]
    #[inline(never)]
    fn sample(&mut self, batch: &[Ready<'_, Connection>], window: &Window<'_>) {
        let Dispatcher { sampler, executor, .. } = self;
        let mut room = [0; KEY_BYTES_MAX];
        sampler.each(window.len(), |at, stands_for, with_size| {
            let WindowOp { connection, hash, key, .. } = &window[at];
            let own_keys = batch[*connection as usize].connection.own_keys().filter(|_| !key.is_empty());
            let key = own_keys.and_then(|own| own.item_key(key, &mut room)).unwrap_or(key);
            // A login since may have given the connection other keys than the request was gathered with.
            if item_key::is_plain(key) && executor.hash(key) != *hash {
                return;
            }
            executor.note_sampled(*hash, key, stands_for, with_size);
        });
    }

    /// At the end of a turn: reads ahead for connections that wait, remembers those whose replies are held back, asks
    /// for the commit that they wait for, and hands the reads that were begun to the device.
    fn settle_flash(&mut self, batch: &mut [Ready<'_, Connection>]) {
        let Dispatcher { executor, memcached, resp, .. } = self;
        let mut any_held = false;
        for ready in batch.iter_mut() {
            if ready.connection.progress.waits {
                match ready.connection.protocol() {
                    Protocol::Resp => resp.read_ahead(executor, ready),
                    _ => memcached.read_ahead(executor, ready),
                }
                executor.note_reads(&ready.connection.progress);
            }
            let is_all_consumed = ready.consumed == ready.input.len();
            let Connection { output, progress, .. } = &mut *ready.connection;
            if !progress.waits {
                progress.absent = None;
            }
            if !progress.waits && is_all_consumed && progress.busy.is_none() {
                executor.forget_reads(progress);
            }
            if let Some(until) = output.newly_held_until() {
                executor.wake_when_durable(progress.id, until);
                any_held = true;
            }
        }
        if any_held {
            executor.want_commit();
        }
        executor.start_reads();
        executor.forget_woken();
    }
}

/// Logs what was executed.
#[cold]
fn log_work(
    ready: &Ready<'_, Connection>,
    op: &WindowOp<'_, Work<'_>>,
    progressed: Progressed,
    answered_before: usize,
) {
    let logged = match &op.what {
        Work::Memcached(work) => work.logged(),
        Work::Resp(work) => work.logged(),
    };
    log_progress(ready, op, &logged, progressed, answered_before);
}

impl Service for Dispatcher {
    type Connection = Connection;

    fn open(&mut self, peer: &Peer<'_>) -> Connection {
        let is_datagram = peer.transport == Transport::Udp;
        let protocol = match self.state.settings().protocol {
            _ if self.resp.is_port_of(peer) => Protocol::Resp,
            settings::Protocol::Auto => Protocol::Undecided,
            settings::Protocol::Ascii => Protocol::Text,
            settings::Protocol::Binary => Protocol::Binary,
        };
        self.executor.observe_open(peer);
        let access = self.state.access_without_login();
        Connection::new(&self.pool, peer, protocol, access, is_datagram, self.state.databases())
    }

    fn serve(&mut self, batch: &mut [Ready<'_, Connection>]) {
        self.resp.pass_gate(&mut self.executor);
        let started = Instant::now();
        self.executor.begin_turn(started);
        self.resp.begin_turn();
        if self.resp.knows_exchanges() {
            self.follow_exchange(batch);
        }
        self.logs = tracing::enabled!(target: "larder::requests", tracing::Level::DEBUG);
        let most = if self.state.buffers_are_tight() { OUTPUT_TIGHT_BYTES } else { OUTPUT_SOFT_BYTES };
        for ready in batch.iter_mut() {
            ready.connection.progress.waits = false;
            ready.connection.input_wanted = 0;
            ready.connection.output.limit(most);
        }
        self.resp.deliver_if_any(batch);
        let mut window = Window::new();
        let mut cursor = Cursor::new(batch, self.requests_per_share);
        loop {
            let gathered = self.gather(batch, &mut cursor, &mut window);
            self.execute(batch, &mut window);
            if self.resp.has_exchanged() {
                // What is not executed yet was gathered with the keys of before.
                self.follow_exchange(batch);
                cursor = Cursor::new(batch, self.requests_per_share);
                continue;
            }
            if let Some(ready) = batch.get(cursor.connection)
                && (ready.connection.is_backed_up() || ready.connection.output.is_closing())
            {
                // The rest of this connection's input waits.
                cursor.visit(batch, cursor.connection + 1);
            }
            if gathered == Gathered::Done && !cursor.begin_next_round(batch) {
                break;
            }
        }
        if self.executor.has_flash() {
            self.settle_flash(batch);
        }
        self.executor.quiesce();
        self.resp.leave_gate();
        let took_ns = started.elapsed().as_nanos() as u64;
        self.resp.end_turn(&self.executor, batch, took_ns);
        let executed = self.executor.record_times(took_ns);
        self.executor.count_unseen(executed);
        if batch.len() == 1 && executed > self.requests_per_share {
            // It would have given way this many times.
            self.state.count_yields((executed - 1) / self.requests_per_share);
        }
    }

    fn closed(&mut self, connection: Connection, reason: CloseReason) {
        if let Some(handle) = &connection.handle {
            self.executor.observe_close(handle, reason);
        }
        if let Some(session) = connection.session {
            self.resp.forget(&self.executor, *session);
        }
        self.executor.forget_connection(connection.progress);
    }

    fn wake_fd(&self) -> Option<RawFd> {
        self.executor.wake_fd()
    }

    fn woken(&mut self, wake: &mut Vec<ConnectionId>) {
        if let Some(committed) = self.executor.poll_flash(wake) {
            self.pool.set_committed(committed);
        }
        self.executor.wake_delayed(wake);
        self.executor.wake_told(wake);
    }

    fn has_news(&mut self) -> bool {
        self.executor.has_read_all()
    }

    fn before_wait(&mut self) {
        self.executor.offline();
    }

    fn after_wait(&mut self) {
        self.executor.online();
    }

    fn tick(&mut self, _now_s: u32) {
        self.executor.tick();
        if let Some(refusals) = &mut self.refusals {
            refusals.look(self.state.settings(), self.executor.cache().totals().store_no_memory);
        }
        self.sampler.tick();
        self.resp.tick(&self.executor);
    }
}
