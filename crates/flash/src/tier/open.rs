//! Opening, flushing, failing, closing.

use super::append::Append;
use super::buffer::Content;
use super::directory::Directory;
use super::fallback::Fallback;
use super::shape::Shape;
use super::stamps::Stamps;
use super::stats::Counters;
use super::write::Writing;
use super::zones::Zones;
use crate::dead_extents::DeadExtents;
use crate::device::{Device, DeviceError, ZoneId};
use crate::extent_table::ExtentTable;
use crate::flash::{Commit, Flash, FlashError};
use crate::generation::Generations;
use crate::hit_bits::HitBits;
use crate::log_table::LogTable;
use crate::meta::{META_ZONES, MetaLog, MetaOptions, Start};
use crate::options::{FlashOptions, Recover};
use crate::segment::{Kind, ScanError};
use arc_swap::ArcSwap;
use larder_item::KeyHasher;
use std::collections::VecDeque;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Instant;

/// Rounds of writing and reclaiming at the end, until everything has found its place.
const CLOSING_ROUNDS_MAX: u32 = 64;

impl Flash {
    pub(crate) fn open_device(
        device: Arc<dyn Device>,
        options: FlashOptions,
    ) -> Result<Arc<Flash>, FlashError> {
        let geometry = device.geometry();
        let shape = Shape::new(&geometry, META_ZONES, &options)?;
        let meta_options =
            MetaOptions { seed: options.seed, recover: options.recover, format: options.format };
        let opened = MetaLog::open(device.clone(), meta_options)?;
        if let Start::Dropped(why) = opened.start {
            tracing::warn!("flash: {}: everything on it is dropped: {why}", device.describe());
        }
        let table = LogTable::new(shape.log_table, shape.log_ids);
        let id_max = table.id_max();
        let append = Append {
            log: None,
            extents: None,
            sealed: VecDeque::new(),
            free: (0..shape.buffers).map(|_| Content::new(shape.buffer)).collect(),
            ids: (1..=id_max).rev().collect(),
            cas_max: opened.superblock.cas_floor,
            dead: DeadExtents::new(shape.dead_extents),
        };
        let any_dead = append.dead.any();
        let flash = Flash {
            hasher: KeyHasher::with_seed(opened.superblock.seed),
            seed: opened.superblock.seed,
            uuid: opened.superblock.uuid,
            cas_floor: AtomicU64::new(opened.superblock.cas_floor),
            zones: Mutex::new(Zones::new(&geometry, META_ZONES, &options)),
            extents: ExtentTable::new(shape.extent_table),
            directory: Directory::new(id_max),
            stamps: Stamps::new(shape.stamps),
            fallback: Fallback::new(shape.fallback),
            append: Mutex::new(append),
            meta: opened.log.clone(),
            table,
            shape,
            writing: Mutex::new(Writing::default()),
            reclaiming: Mutex::default(),
            sweeping: Mutex::default(),
            releasing: Mutex::default(),
            unreleased: AtomicBool::new(false),
            unmarked: AtomicU64::new(0),
            any_dead,
            close_log: AtomicBool::new(false),
            extents_full: AtomicBool::new(false),
            generations: Generations::new(shape.filters, shape.address_cache),
            generation_hits: ArcSwap::from_pointee(HitBits::new(shape.generation_hits * 8)),
            floor: AtomicU64::new(opened.superblock.flush_floor),
            oldest_quarter: AtomicU64::new(0),
            flushing: AtomicU32::new(0),
            on: AtomicBool::new(true),
            recovering: AtomicBool::new(false),
            threaded: AtomicBool::new(false),
            recovery: Mutex::default(),
            table_full: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            work: Mutex::default(),
            woken: Condvar::new(),
            threads: Mutex::default(),
            fetchers: Mutex::default(),
            committed: AtomicU64::new(0),
            counters: Counters::default(),
            started: Instant::now(),
            device,
            options,
        };
        flash.begin_recovery(&opened)?;
        Ok(Arc::new(flash))
    }

    pub(crate) fn zones(&self) -> MutexGuard<'_, Zones> {
        self.zones.lock().expect("no panic under this lock")
    }

    pub(crate) fn now(&self) -> u32 {
        (self.options.now_unix_s)()
    }

    pub(crate) fn is_on(&self) -> bool {
        self.on.load(SeqCst)
    }

    pub(crate) fn next_sequence(&self) -> Option<u64> {
        self.meta.next_sequence()
    }

    /// Notes an invalidation in the journal, if there is one.
    pub(crate) fn journal(&self, sequence: u64, hash: u64, key: &[u8]) -> Option<Commit> {
        (self.options.recover == Recover::Journal).then(|| Commit(self.meta.add(sequence, hash, key)))
    }

    /// The journal is written as far as it goes, and who waits for commits is told.
    pub(crate) fn commit_journal(&self) {
        self.meta.tend();
        self.tell_commits();
    }

    pub(crate) fn tell_commits(&self) {
        let committed = if self.commits_nothing() { u64::MAX } else { self.meta.committed() };
        if self.committed.swap(committed, SeqCst) != committed {
            let mut fetchers = self.fetchers.lock().expect("no panic under this lock");
            fetchers.retain(|fetcher| {
                let Some(event) = fetcher.upgrade() else { return false };
                let _ = rustix::io::write(&*event, &1u64.to_ne_bytes());
                true
            });
        }
    }

    pub(crate) fn tombstones_placed(&self, sequence: u64) {
        if self.options.recover == Recover::Journal {
            self.meta.placed(sequence);
        }
    }

    pub(crate) fn segment_durable(&self, sequence: u64) {
        if self.options.recover == Recover::Journal {
            self.meta.obsolete(sequence);
        }
    }

    /// Counts an error of the device and says so, the first times and then now and then.
    pub(crate) fn device_error(&self, what: &str, zone: ZoneId, error: &DeviceError) {
        let count = self.counters.device_errors.fetch_add(1, Relaxed);
        if count < 16 || count.is_power_of_two() {
            tracing::warn!("flash: {what} of zone {}: {error} (error {})", zone.0, count + 1);
        }
    }

    /// The same for a zone that is read from end to end.
    pub(crate) fn scan_error(&self, zone: ZoneId, error: &ScanError) {
        match error {
            ScanError::Device(error) => self.device_error("scan", zone, error),
            ScanError::Page(_) | ScanError::Records => {
                let count = self.counters.damaged_pages.fetch_add(1, Relaxed);
                if count < 16 || count.is_power_of_two() {
                    tracing::warn!("flash: scan of zone {}: {error} (damage {})", zone.0, count + 1);
                }
            }
        }
    }

    /// Nothing that was put before is found any more. What it took is given back bit by bit.
    pub(crate) fn drop_all(&self, append: &mut Append) {
        let floor = self.next_sequence().unwrap_or(u64::MAX);
        // The floor is written down before the flush ends, or everything is dropped at the next start.
        self.unreleased.store(true, SeqCst);
        // First of all: a lookup that no longer sees what the log hides sees nothing that it hid.
        self.generations.drop_all();
        self.floor.store(floor, SeqCst);
        self.stamps.bump_all();
        self.fallback.clear();
        // What waited for a place needs none: its journal records go with the flush.
        self.tombstones_placed(floor.saturating_sub(1));
        self.seal(append, Kind::Log);
        self.seal(append, Kind::Extents);
        self.wake();
    }

    pub(crate) fn begin_flush_all(&self) {
        self.flushing.fetch_add(1, SeqCst);
        self.stamps.bump_all();
    }

    pub(crate) fn end_flush_all(&self) {
        let floor = {
            let mut append = self.append();
            self.drop_all(&mut append);
            self.floor.load(SeqCst)
        };
        self.counters.flushes.fetch_add(1, Relaxed);
        if let Err(error) = self.meta.flush(floor) {
            self.device_error("flush", ZoneId(0), &error);
            self.turn_off("a flush could not be written down");
        }
        self.stamps.bump_all();
        self.flushing.fetch_sub(1, SeqCst);
    }

    /// Everything that was written is durable.
    fn note_written(&self) {
        let zones = self.zones();
        for (number, zone) in zones.zones.iter().enumerate() {
            if let Some(last) = zone.segments.last() {
                self.meta.written(ZoneId(number as u32), last.sequence());
            }
        }
    }

    /// The tier has failed: from now on everything is a miss, also after a restart as far as that can still be written down.
    pub(crate) fn turn_off(&self, why: &str) {
        if self.on.swap(false, SeqCst) {
            tracing::error!("flash is switched off: {why}");
            self.stamps.bump_all();
            let _ = self.meta.flush(self.next_sequence().unwrap_or(u64::MAX));
        }
    }

    pub(crate) fn close_device(&self) -> Result<(), FlashError> {
        self.stop_threads();
        while self.recover_step() {}
        let failed = |what: &str| FlashError(format!("flash was not closed cleanly: {what}"));
        if !self.is_on() {
            return Err(failed("it had failed"));
        }
        let cas_max = {
            let mut append = self.append();
            let mut rounds = 0;
            while !self.drain_fallback(&mut append) {
                drop(append);
                rounds += 1;
                if rounds > CLOSING_ROUNDS_MAX {
                    return Err(failed("invalidations found no room"));
                }
                // Buffers may wait for a zone, and zones for a merge.
                self.tend();
                append = self.append();
            }
            self.seal(&mut append, Kind::Log);
            self.seal(&mut append, Kind::Extents);
            append.cas_max
        };
        for _ in 0..CLOSING_ROUNDS_MAX {
            if self.append().sealed.is_empty() {
                break;
            }
            self.tend();
        }
        if !self.append().sealed.is_empty() {
            return Err(failed("segments could not be written"));
        }
        self.device.sync().map_err(|error| failed(&error.to_string()))?;
        self.commit_journal();
        self.note_written();
        self.note_generations_written();
        self.meta.close(cas_max.saturating_add(1)).map_err(|error| failed(&error.to_string()))
    }
}
