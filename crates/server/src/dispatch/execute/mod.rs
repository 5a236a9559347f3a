//! Executing operations: the cache's worker, the wait for flash, and all counting.
//!
//! Nothing here knows a word of a protocol. An operation comes in, and its outcome goes to a function of the caller,
//! which composes the reply. It is a function because the outcome of a read borrows the item, and because some of what
//! the operation asked for is done only after the item was shown.
//!
//! * `parts` reads parts of items, `edit` changes them by what they are, `keys` walks over them;
//! * `get` reads, `write` changes items, `admin` does the rest, `stats` tells what was counted;
//! * `hot` knows which keys are hot, and which items are large;
//! * `observe` tells those who watch;
//! * `login` decides who may log in, and delays attempts that fail;
//! * `flash` makes an operation wait for an item that only flash has, with the reads that `fetches` keeps account of;
//! * `room` makes a store wait while memory is full and flash is behind;
//! * `streams` takes in and sends large values, piece by piece, and lists items.

mod admin;
mod edit;
mod fetches;
mod flash;
mod get;
mod hot;
mod keys;
mod login;
mod observe;
mod parts;
mod room;
mod stats;
mod stats_compression;
mod stats_flash;
mod stats_latency;
mod stats_mrc;
mod stats_namespaces;
mod stats_worth;
mod streams;
mod write;

pub(super) use keys::ItemCount;
pub(super) use login::Admission;
pub(super) use stats::rusage;
pub(super) use streams::{Received, UploadEnd, UploadStart};

use super::databases::Databases;
use super::operation::{Operation, StatsTopic, Whereabouts};
use super::outcome::{Outcome, Refusal, StatRows, Tail};
use super::progress::Progress;
use super::state::ServerState;
use crate::latency::{Class, WorkerLatency};
use crate::settings::Promote;
use arrayvec::ArrayVec;
use fetches::Fetches;
use larder_cache::{Cache, Clock, KeyHash, Lookup, RecentReads, Worker};
use login::Delays;
use room::RoomQueue;
use std::cell::Cell;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Instant;

/// Keys that are read ahead from flash together.
pub(super) type KeyGroup<'a> = ArrayVec<(KeyHash, &'a [u8]), 16>;

/// One worker's side of the cache.
pub(super) struct Executor {
    worker: Worker,
    state: Arc<ServerState>,
    latency: Arc<WorkerLatency>,
    /// Which of the workers this is, from 0 on.
    number: usize,
    /// Who wants to hear of what is executed in the present turn; 0 = nobody.
    observers: Cell<u16>,
    /// Watchers are not told of what is executed in the present turn, because there is no room for it.
    is_unseen: Cell<bool>,
    /// Larger values than this are noted.
    large_floor: Cell<u32>,
    /// Values that may still be noted in the present second.
    large_notes_left: Cell<u32>,
    /// Operations may wait for flash, or are watched.
    has_detour: Cell<bool>,
    /// The reads from flash that are on their way, where there is flash.
    fetches: Option<Box<Fetches>>,
    room: RoomQueue,
    delays: Delays,
    turn: Turn,
    /// How many requests of each class the present turn executed.
    executed: [u32; Class::ALL.len()],
}

/// What is known of the present turn.
#[derive(Default)]
struct Turn {
    /// The time on the cache's clock, in milliseconds, as somebody asked for it.
    now_ms: Cell<Option<i64>>,
    /// When it had something to tell watchers first, in microseconds since 1970.
    first_told_us: Cell<Option<u64>>,
    /// A listing has waited for flash.
    has_listed: Cell<bool>,
}

impl Executor {
    /// What clients of RESP choose with `SELECT`.
    pub(super) fn databases(&self) -> &Databases {
        self.state.databases()
    }

    pub(super) fn new(
        worker: Worker,
        number: usize,
        state: Arc<ServerState>,
        latency: Arc<WorkerLatency>,
    ) -> Executor {
        state.add_latency(latency.clone());
        let flash = &state.settings().flash;
        let has_flash = worker.cache().flash_tier().is_some();
        let fetches = has_flash.then(|| {
            let depth = flash.depth.min(worker.fetch_depth());
            let is_strict = flash.promote == Promote::Strict;
            let recent = RecentReads::new(state.settings().memory_bytes);
            Box::new(Fetches::new(depth, is_strict, recent, state.buffers().cloned()))
        });
        let executor = Executor {
            worker,
            state,
            latency,
            number,
            observers: Cell::default(),
            has_detour: Cell::default(),
            is_unseen: Cell::default(),
            large_floor: Cell::default(),
            large_notes_left: Cell::default(),
            fetches,
            room: RoomQueue::default(),
            delays: Delays::default(),
            turn: Turn::default(),
            executed: [0; Class::ALL.len()],
        };
        executor.look_for_observers();
        executor.tick_of_keys();
        executor
    }

    /// Executes an operation and hands its outcome to `compose`. Returns `false` if the operation has to wait for flash
    /// first, or needs more than one turn: nothing is answered then, and the same request comes again when the
    /// connection is woken, or has had those turns.
    #[inline]
    pub(super) fn execute(
        &mut self,
        progress: &mut Progress,
        operation: &Operation<'_>,
        compose: impl FnOnce(Outcome<'_>) -> Tail,
    ) -> bool {
        if self.has_detour.get() {
            return self.execute_by_detour(progress, operation, compose);
        }
        self.carry_out(progress, operation, false, compose)
    }

    /// Executes an operation that may have to wait for flash, or is watched.
    #[inline(never)]
    fn execute_by_detour(
        &mut self,
        progress: &mut Progress,
        operation: &Operation<'_>,
        compose: impl FnOnce(Outcome<'_>) -> Tail,
    ) -> bool {
        let mut is_on_flash = false;
        if self.fetches.is_some() {
            match self.bring_present(progress, operation) {
                // What would be made of nothing would take the place of what is there.
                Some(Whereabouts::OutOfReach) if operation.depends_on_value() => {
                    compose(Outcome::NoMemoryForUpload);
                    return true;
                }
                Some(whereabouts) => is_on_flash = whereabouts == Whereabouts::Flash,
                None => return false,
            }
        }
        if self.is_watched() {
            self.carry_out_watched(progress, operation, is_on_flash, compose)
        } else {
            self.carry_out(progress, operation, is_on_flash, compose)
        }
    }

    /// Carries out an operation. `is_on_flash` = memory does not have its item, but flash does. Returns `false` if it
    /// was only begun.
    #[inline(always)]
    fn carry_out(
        &mut self,
        progress: &mut Progress,
        operation: &Operation<'_>,
        is_on_flash: bool,
        compose: impl FnOnce(Outcome<'_>) -> Tail,
    ) -> bool {
        let outcome = match operation {
            // The two that matter for speed compose in their own place.
            Operation::Store(item) => {
                let stored = self.store(item);
                compose(Outcome::Stored(stored));
                return true;
            }
            Operation::Read(read) => {
                self.read(progress, read, compose);
                return true;
            }
            Operation::Look(look) => {
                self.look(progress, look, compose);
                return true;
            }
            Operation::Edit(key, change) => {
                self.edit(progress, key, change, None, compose);
                return true;
            }
            Operation::Copy(copy) => Outcome::Copied(self.copy(copy)),
            Operation::Stats(StatsTopic::HotKeys | StatsTopic::LargeKeys)
                if !self.state.in_effect().dump_enabled =>
            {
                Outcome::Refused(Refusal::Disabled)
            }
            // A datagram has one turn, and all items take many.
            Operation::Stats(StatsTopic::Sizes)
                if progress.is_datagram && self.state.settings().track_sizes =>
            {
                Outcome::Refused(Refusal::NotByDatagram)
            }
            Operation::Stats(StatsTopic::Sizes) if self.begin_measuring(progress) => return false,
            Operation::Stats(topic) => {
                let rows = self.stats(*topic, progress);
                compose(Outcome::Stats(&rows));
                return true;
            }
            Operation::SizingOf(name) => {
                let mut rows = StatRows::default();
                if self.stats_mrc_of(name, &mut rows) {
                    compose(Outcome::Stats(&rows));
                    return true;
                }
                Outcome::Refused(Refusal::NoSuchNamespace)
            }
            Operation::RefreshCertificates => {
                let refreshed = self.state.refresh_certificates();
                compose(Outcome::Certificates(&refreshed));
                return true;
            }
            Operation::NameFleet => {
                let Some(fleet) = self.state.fleet().get() else {
                    compose(Outcome::Refused(Refusal::Disabled));
                    return true;
                };
                compose(Outcome::Fleet(&fleet.discovery_text()));
                return true;
            }
            Operation::PrefixCounts if self.state.in_effect().dump_enabled => {
                let counts = self.state.prefixes().all();
                compose(Outcome::Prefixes(&counts));
                return true;
            }
            Operation::Delete(item) => Outcome::Deleted(self.delete(item, is_on_flash)),
            Operation::Touch { key, hash, expiry, shows_item: false } => {
                Outcome::Touched(self.touch(key, *hash, *expiry))
            }
            Operation::Touch { key, hash, expiry, shows_item: true } => {
                self.touch_and_show(key, *hash, *expiry)
            }
            Operation::Arith(arith) => Outcome::Counted(self.arith(arith)),
            other => self.administer(progress, other),
        };
        compose(outcome);
        true
    }

    // ---- for reading requests ahead ----

    /// The hash of a key.
    #[inline]
    pub(super) fn hash(&self, key: &[u8]) -> KeyHash {
        self.worker.cache().hash(key)
    }

    /// The stages of a lookup, for many keys at a time.
    #[inline]
    pub(super) fn lookup(&self) -> Lookup<'_> {
        self.worker.lookup()
    }

    /// Changes whenever the worker lets go of its epoch, after which nothing that was looked up ahead may be used.
    #[inline]
    pub(super) fn epoch(&self) -> u64 {
        self.worker.quiesced()
    }

    /// What all workers share beside the cache.
    #[inline]
    pub(super) fn state(&self) -> &Arc<ServerState> {
        &self.state
    }

    /// The cache of all workers.
    pub(super) fn cache(&self) -> &Cache {
        self.worker.cache()
    }

    /// The clock on which items expire.
    #[inline]
    pub(super) fn clock(&self) -> &Clock {
        self.worker.cache().clock()
    }

    /// The time on the cache's clock, in milliseconds, of the present turn. It is looked at once in a turn, if at all.
    pub(super) fn now_ms(&self) -> i64 {
        let now_ms = self.turn.now_ms.get().unwrap_or_else(|| self.clock().now_ms());
        self.turn.now_ms.set(Some(now_ms));
        now_ms
    }

    /// The longest value, in bytes, that is stored in one piece. A longer one is received as an upload.
    pub(super) fn whole_value_bytes_max(&self) -> usize {
        self.worker.cache().whole_value_bytes_max()
    }

    // ---- the worker's turns ----

    /// A request of this class was executed. Its time is that of the turn.
    #[inline]
    pub(super) fn count_time(&mut self, class: Class) {
        self.executed[class as usize] += 1;
    }

    /// How many requests the present turn executed.
    pub(super) fn executed(&self) -> u64 {
        self.executed.iter().map(|count| u64::from(*count)).sum()
    }

    /// The requests of the present turn took this long. Returns how many they were.
    #[inline]
    pub(super) fn record_times(&mut self, took_ns: u64) -> usize {
        let mut executed = 0;
        for (class, count) in self.executed.iter_mut().enumerate() {
            if *count > 0 {
                executed += *count as usize;
                self.latency.record(Class::ALL[class], took_ns, *count as u64);
                *count = 0;
            }
        }
        executed
    }

    /// Begins to read the keys of a group from flash. Returns whether there is room for more.
    pub(super) fn read_group_ahead(&mut self, progress: &mut Progress, group: &mut KeyGroup<'_>) -> bool {
        self.touch_flash(group.iter().map(|(hash, _)| *hash));
        group.drain(..).all(|(hash, key)| self.read_ahead(progress, hash, key))
    }

    /// A turn begins.
    #[inline]
    pub(super) fn begin_turn(&mut self, now: Instant) {
        self.worker.begin_batch(now);
        self.turn.now_ms.set(None);
        self.turn.first_told_us.set(None);
        self.turn.has_listed.set(false);
        self.look_for_observers();
        if let Some(fetches) = &mut self.fetches {
            fetches.begin_turn(now);
        }
    }

    /// The turn is over: no item is looked at any more.
    #[inline]
    pub(super) fn quiesce(&mut self) {
        self.worker.quiesce();
    }

    /// The worker is about to block.
    pub(super) fn offline(&mut self) {
        self.worker.offline();
    }

    /// The worker is awake again.
    pub(super) fn online(&mut self) {
        self.worker.online();
    }

    /// About once a second.
    pub(super) fn tick(&mut self) {
        self.worker.cache().tick();
        self.worker.tick();
        self.tick_of_keys();
        self.pass_delays();
    }

    /// Readable whenever reads from flash have ended; see [`Executor::poll_flash`].
    pub(super) fn wake_fd(&self) -> Option<RawFd> {
        self.worker.fetch_fd()
    }
}
