//! The server's flash tier behind a simulated memory.
//!
//! It lies in a file in the folder for temporary files, which has no name any more once it is open. The threads of the
//! tier do not run: what they do is done between requests, so the device always keeps up and a run can be repeated.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use larder_cache::{Cache, Fetch, FlashLevel, Found, KeyHash, RecentReads, Worker};
use larder_flash::device::{self, DeviceOptions, Direct};
use larder_flash::{Flash, FlashOptions};
use rustix::fs::{FallocateFlags, fallocate};

/// The smallest flash, in bytes.
pub const FLASH_BYTES_MIN: u64 = 16 << 20;
/// The pause between two looks at whether a read has ended.
const READ_PAUSE: Duration = Duration::from_micros(20);
/// Rounds of writing after which a memory that finds no room is left to itself.
const ROUNDS_MAX: u32 = 64;
/// Tokens of reads: of an item, and of a part of one.
const ITEM: u64 = 0;
const PART: u64 = 1;

/// What flash has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FlashCounts {
    /// Gets that flash answered.
    pub hits: u64,
    /// Bytes of keys and values that were admitted.
    pub admitted_bytes: u64,
    /// Bytes that were written to the device.
    pub written_bytes: u64,
    /// The file failed, and everything on it is missed since.
    pub has_failed: bool,
}

impl std::ops::Sub for FlashCounts {
    type Output = FlashCounts;

    fn sub(self, before: FlashCounts) -> FlashCounts {
        FlashCounts {
            hits: self.hits - before.hits,
            admitted_bytes: self.admitted_bytes - before.admitted_bytes,
            written_bytes: self.written_bytes - before.written_bytes,
            has_failed: self.has_failed,
        }
    }
}

/// The tier, and what one worker of the server knows of it.
pub(super) struct SecondLevel {
    flash: Arc<Flash>,
    recent: RecentReads,
    now_unix_s: Arc<AtomicU32>,
    hits: u64,
}

impl SecondLevel {
    /// A blank flash of `bytes` bytes behind a memory of `memory_bytes`.
    ///
    /// # Errors
    /// Fewer than [`FLASH_BYTES_MIN`]; or the folder for temporary files has no room for it.
    pub(super) fn new(bytes: u64, memory_bytes: u64, seed: u64) -> Result<SecondLevel, String> {
        if bytes < FLASH_BYTES_MIN {
            return Err(format!("a flash has {} MiB at least", FLASH_BYTES_MIN >> 20));
        }
        let path = file_of(bytes)?;
        // Reads by way of the page cache take less time, and nothing here depends on what they take.
        let options = DeviceOptions { bytes: Some(bytes), direct: Direct::Off, ..DeviceOptions::default() };
        let device = device::open(&path, &options);
        // Whatever comes of it, the file goes with the process.
        let _ = std::fs::remove_file(&path);
        let device = device.map_err(|error| error.0)?;
        let now_unix_s = Arc::new(AtomicU32::new(0));
        let now = now_unix_s.clone();
        let options = FlashOptions::for_device(bytes, seed, Arc::new(move || now.load(Ordering::Relaxed)));
        let flash = Flash::open(device, options).map_err(|error| error.0)?;
        Ok(SecondLevel { flash, recent: RecentReads::new(memory_bytes), now_unix_s, hits: 0 })
    }

    /// The tier as the cache uses it.
    pub(super) fn level(&self) -> FlashLevel {
        FlashLevel::from(self.flash.clone())
    }

    /// The clock of the cache has moved.
    pub(super) fn set_time(&self, cache: &Cache) {
        let now_s = cache.clock().unix_s(cache.clock().now_s());
        self.now_unix_s.store(now_s.clamp(0, u32::MAX.into()) as u32, Ordering::Relaxed);
    }

    /// Does what the threads of the tier do.
    pub(super) fn tend(&self) {
        self.flash.tend();
    }

    /// Writes until memory finds room for a store.
    pub(super) fn make_room(&self, cache: &Cache, worker: &mut Worker) {
        for _ in 0..ROUNDS_MAX {
            if !worker.waits_for_flash() {
                return;
            }
            self.flash.tend();
            worker.offline();
            cache.tend();
            worker.online();
        }
        worker.wait_no_longer();
    }

    /// A get that missed in memory: the length of the value that flash has. The item comes to memory if it was read
    /// lately, as in the server.
    pub(super) fn get(&mut self, worker: &mut Worker, hash: KeyHash, key: &[u8]) -> Option<u64> {
        let found = find(worker, hash, key)?;
        self.hits += 1;
        if self.recent.note(hash) {
            promote(worker, hash, key, &found);
        }
        Some(found.value_bytes)
    }

    /// Brings an item to memory for a command that changes it.
    pub(super) fn bring(&self, worker: &mut Worker, hash: KeyHash, key: &[u8]) {
        if let Some(found) = find(worker, hash, key) {
            promote(worker, hash, key, &found);
        }
    }

    pub(super) fn counts(&self) -> FlashCounts {
        let stats = self.flash.stats();
        FlashCounts {
            hits: self.hits,
            admitted_bytes: stats.admitted_bytes,
            written_bytes: stats.device.append_bytes,
            has_failed: !stats.is_on,
        }
    }
}

/// Makes a file of this length, for which there is room.
fn file_of(bytes: u64) -> Result<std::path::PathBuf, String> {
    static FILES: AtomicU64 = AtomicU64::new(0);
    let number = FILES.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir();
    let path = folder.join(format!("larder-simulate-{}-{number}", std::process::id()));
    let refused = |error: std::io::Error| {
        format!("no flash of {} MiB in {} (TMPDIR): {error}", bytes >> 20, folder.display())
    };
    let file = std::fs::File::create_new(&path).map_err(refused)?;
    let made = fallocate(&file, FallocateFlags::empty(), 0, bytes).map_err(std::io::Error::from);
    made.map(|()| path.clone()).map_err(|error| {
        let _ = std::fs::remove_file(&path);
        refused(error)
    })
}

/// Looks for a key on flash until it is known whether it is there.
fn find(worker: &mut Worker, hash: KeyHash, key: &[u8]) -> Option<Found> {
    if !worker.flash_may_hold(hash, key) {
        return None;
    }
    let begun = worker.fetch(ITEM, hash, key);
    end(worker, begun, ITEM)
}

/// What comes of a read that was begun.
fn end(worker: &mut Worker, begun: Fetch, token: u64) -> Option<Found> {
    match begun {
        Fetch::Absent | Fetch::Busy => return None,
        Fetch::Here(found) => return Some(found),
        Fetch::Started => worker.kick_fetches(),
    }
    let mut came = None;
    while came.is_none() {
        worker.poll_fetches(&mut |done, found| came = (done == token).then_some(found).or(came.take()));
        if came.is_none() {
            std::thread::sleep(READ_PAUSE);
        }
    }
    came.flatten()
}

/// Takes an item to memory.
fn promote(worker: &mut Worker, hash: KeyHash, key: &[u8], found: &Found) {
    if found.value.len() as u64 == found.value_bytes {
        worker.promote(hash, key, found);
        return;
    }
    let Some(mut promotion) = worker.begin_promotion(hash, key, found) else { return };
    while let Some(number) = promotion.next_part() {
        let begun = worker.fetch_part(PART, hash, key, found, number);
        let part = end(worker, begun, PART);
        if !part.is_some_and(|part| worker.fill_promotion(&mut promotion, &part)) {
            return worker.abandon_promotion(promotion);
        }
    }
    worker.complete_promotion(promotion, hash, key, found);
}
