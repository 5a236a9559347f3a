//! The tier as the cache sees it.

use crate::device::Device;
use crate::extent_table::ExtentTable;
use crate::fetcher::Fetcher;
use crate::generation::Generations;
use crate::hit_bits::HitBits;
use crate::log_table::LogTable;
use crate::meta::MetaLog;
use crate::options::FlashOptions;
use crate::tier::append::Append;
use crate::tier::directory::Directory;
use crate::tier::fallback::Fallback;
use crate::tier::recover::Recovering;
use crate::tier::shape::Shape;
use crate::tier::stamps::Stamps;
use crate::tier::stats::Counters;
use crate::tier::threads::Threads;
use crate::tier::write::Writing;
use crate::tier::zones::Zones;
use arc_swap::ArcSwap;
use larder_item::{KeyHash, KeyHasher};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::{Duration, Instant};

/// How long [`Flash::put_part`] waits for a buffer, and how long between two looks.
const PART_WAIT_MAX: Duration = Duration::from_millis(50);
const PART_PAUSE: Duration = Duration::from_millis(1);

/// Why a flash tier could not be opened: one line that says what to do.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct FlashError(pub String);

/// An item on its way to flash.
#[derive(Clone, Copy, Debug)]
pub struct FlashItem<'a> {
    /// The key, 1 to 250 bytes.
    pub key: &'a [u8],
    /// The value, or its first part if it is longer than [`Flash::part_bytes_max`].
    pub value: &'a [u8],
    /// Bytes of the whole value.
    pub value_bytes: u64,
    /// Client flags.
    pub flags: u32,
    /// When it expires, unix seconds; 0 = never.
    pub expires_unix_s: u32,
    /// Its CAS number.
    pub cas: u64,
    /// The state bits of [`larder_item::State`] that are kept.
    pub state: u8,
}

/// What came of putting an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Put {
    /// It can be found from now on.
    Stored,
    /// The device is behind, failed or full: nothing was stored, and nothing waited.
    Shed,
}

/// Names a moment: whether anything was put, invalidated or flushed under hashes like this one since.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp(pub u64);

/// An invalidation that is not durable yet (mode `journal`); see [`Flash::committed`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Commit(pub u64);

/// An item that came from flash. Owns its bytes.
#[derive(Debug)]
pub struct Found {
    /// The value, or its first part.
    pub value: Vec<u8>,
    /// Bytes of the whole value.
    pub value_bytes: u64,
    /// Client flags.
    pub flags: u32,
    /// When it expires, unix seconds; 0 = never.
    pub expires_unix_s: u32,
    /// Its CAS number.
    pub cas: u64,
    /// State bits.
    pub state: u8,
    /// Whether it was read from flash before, lately: worth a place in memory.
    pub warm: bool,
    /// Taken before the lookup: if [`Flash::stamp`] is the same still, this is still the newest version.
    pub stamp: Stamp,
}

/// The tier. Shared by all threads.
pub struct Flash {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) options: FlashOptions,
    pub(crate) hasher: KeyHasher,
    pub(crate) seed: u64,
    pub(crate) uuid: [u8; 16],
    pub(crate) cas_floor: AtomicU64,
    pub(crate) shape: Shape,
    /// Which segments of the log may hold a hash.
    pub(crate) table: LogTable,
    /// Where extents are.
    pub(crate) extents: ExtentTable,
    pub(crate) directory: Directory,
    pub(crate) stamps: Stamps,
    pub(crate) fallback: Fallback,
    pub(crate) append: Mutex<Append>,
    pub(crate) writing: Mutex<Writing>,
    pub(crate) zones: Mutex<Zones>,
    /// One reclaim at a time.
    pub(crate) reclaiming: Mutex<()>,
    /// Held by who chooses a zone that nothing is to be found in any more until it has forgotten and erased it: two that chose
    /// the same would erase it twice, and the second time it may have been written again. Below `reclaiming`.
    pub(crate) releasing: Mutex<()>,
    pub(crate) generations: Generations,
    /// Whether something of generations is not looked for any more, and a restart would still find it: until that is written
    /// down, anything may be held.
    pub(crate) unreleased: AtomicBool,
    /// Extents below this sequence go before any zone of a generation is freed: what said of some of them that they are superseded
    /// is gone. 0: none has to.
    pub(crate) unmarked: AtomicU64,
    /// Whether some extent lies dead: see [`crate::dead_extents::DeadExtents::any`].
    pub(crate) any_dead: Arc<AtomicBool>,
    /// The log's zone is to be closed, full or not, so that it can be merged or dropped: the log table has no room for another
    /// version of some key, and all those that it has are there.
    pub(crate) close_log: AtomicBool,
    /// The extent table had no room.
    pub(crate) extents_full: AtomicBool,
    /// Which items of generations were read since the last merge.
    pub(crate) generation_hits: ArcSwap<HitBits>,
    /// One sweep of the log table at a time.
    pub(crate) sweeping: Mutex<()>,
    pub(crate) meta: Arc<MetaLog>,
    /// Segments below this sequence do not exist any more.
    pub(crate) floor: AtomicU64,
    /// See [`Zones::oldest_quarter`].
    pub(crate) oldest_quarter: AtomicU64,
    /// Flushes that have begun and not ended.
    pub(crate) flushing: AtomicU32,
    pub(crate) on: AtomicBool,
    pub(crate) recovering: AtomicBool,
    /// There are threads: what reclaims shares a core with others.
    pub(crate) threaded: AtomicBool,
    pub(crate) recovery: Mutex<Option<Recovering>>,
    pub(crate) table_full: AtomicBool,
    pub(crate) stop: AtomicBool,
    /// Goes up when there is something to do.
    pub(crate) work: Mutex<u64>,
    pub(crate) woken: Condvar,
    pub(crate) threads: Mutex<Threads>,
    /// Who is told of commits.
    pub(crate) fetchers: Mutex<Vec<Weak<OwnedFd>>>,
    pub(crate) committed: AtomicU64,
    pub(crate) counters: Counters,
    pub(crate) started: Instant,
}

impl Flash {
    /// Opens what the device holds, or formats it.
    ///
    /// # Errors
    /// The device holds something else, has too few zones, or the memory is too small for its geometry.
    pub fn open(device: Arc<dyn Device>, options: FlashOptions) -> Result<Arc<Flash>, FlashError> {
        Flash::open_device(device, options)
    }

    /// Seed of the key hash: positions depend on it, so every hash that is given here must be
    /// [`KeyHasher::with_seed`] with this seed of the key.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Above every CAS number that an item on the device has.
    pub fn cas_floor(&self) -> u64 {
        self.cas_floor.load(Ordering::Relaxed)
    }

    /// Starts the threads that write, reclaim and recover.
    ///
    /// # Errors
    /// Of the operating system.
    pub fn start(self: &Arc<Flash>) -> std::io::Result<()> {
        self.start_threads()
    }

    /// One round of what the threads do, for a caller that runs the tier without them.
    pub fn tend(&self) {
        self.tend_once();
    }

    /// Longest value, or part of one, that one [`Flash::put`] takes, bytes.
    pub fn part_bytes_max(&self) -> usize {
        self.shape.part_bytes_max
    }

    /// Stores the newest version of an item. Never blocks on the device, unless there is no thread to write.
    ///
    /// When it is shed, what was here of the key is here still: whoever has a newer version must invalidate it.
    pub fn put(&self, hash: KeyHash, item: &FlashItem<'_>) -> Put {
        self.put_item(hash, item)
    }

    /// Whether the device is behind: so few buffers are free that the next puts may be shed.
    pub fn is_behind(&self) -> bool {
        self.is_on() && self.append().free.len() < 2
    }

    /// Whether invalidations wait for room. If too many do, everything is dropped.
    pub fn owes_invalidations(&self) -> bool {
        self.is_on() && !self.fallback.is_empty()
    }

    /// Stores part `part` (from 1) of a long value, before part 0 makes it visible. May wait for the device.
    pub fn put_part(&self, hash: KeyHash, key: &[u8], cas: u64, part: u32, value: &[u8]) -> Put {
        let started = Instant::now();
        loop {
            let put = self.put_part_of(hash, key, cas, part, value);
            // A long value is longer than what is free of the buffers: all of it is worth nothing if one part is shed.
            if put == Put::Stored || !self.is_on() || started.elapsed() > PART_WAIT_MAX {
                return put;
            }
            std::thread::sleep(PART_PAUSE);
        }
    }

    /// Whether a version of a key with this hash may be here. Wrong about once in thirty, and then with yes.
    pub fn may_hold(&self, hash: KeyHash) -> bool {
        self.may_hold_hash(hash.0)
    }

    /// Whether the version promoted at `stamp` is here still and will be for a while, so that it need not be written again.
    pub fn still_holds(&self, hash: KeyHash) -> bool {
        self.holds_for_a_while(hash.0)
    }

    /// Whatever is here of the key is not the newest version any more: leaves a tombstone where one is needed. In mode
    /// `journal` the answer to the client waits for the commit.
    pub fn invalidate(&self, hash: KeyHash, key: &[u8]) -> Option<Commit> {
        self.invalidate_key(hash, key)
    }

    /// Commits up to this one are durable.
    pub fn committed(&self) -> Commit {
        Commit(self.meta.committed())
    }

    /// Whether no commit will ever be durable again: the device takes nothing any more, and has to be formatted before it is
    /// used again.
    pub fn commits_nothing(&self) -> bool {
        self.meta.is_broken()
    }

    /// See [`Stamp`].
    pub fn stamp(&self, hash: KeyHash) -> Stamp {
        self.stamps.get(hash.0)
    }

    /// From now on until [`Flash::end_flush`] nothing is found, and nothing is stored.
    pub fn begin_flush(&self) {
        self.begin_flush_all();
    }

    /// Everything put before is gone, also after a restart.
    pub fn end_flush(&self) {
        self.end_flush_all();
    }

    /// A thread's hand for reading.
    ///
    /// # Errors
    /// When the device has no room for another queue, or the memory none for its buffers.
    pub fn fetcher(self: &Arc<Flash>) -> Result<Fetcher, FlashError> {
        Fetcher::new(self)
    }

    /// Writes what is in memory, marks the device as cleanly closed, and ends the threads.
    ///
    /// # Errors
    /// The device's; a later open then recovers as after a crash.
    pub fn close(&self) -> Result<(), FlashError> {
        self.close_device()
    }
}
