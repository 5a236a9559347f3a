//! Reclaim: which zones are reclaimed, and when, so that there is always an erased zone to write to.
//!
//! Lock: `reclaiming`, held during a round: one at a time. Comes after the writer's lock and before the releasing lock.

use super::log::Log;
use super::lookup::Lookup;
use super::merging::{Merging, RECLAIMED_BYTES_MIN, Round};
use super::release::Release;
use super::space::{Space, Unkept};
use super::survivors::Survivors;
use crate::device::ZoneId;
use crate::options::FlashOptions;
use crate::space::{GARBAGE_ALWAYS_PERCENT, Work, ZoneSummary};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// For how long the writer waits for an erased zone.
const ZONE_WAIT_MAX: Duration = Duration::from_secs(1);

/// Where space is short, at most about 4 zones wait for their survivors to become durable.
const DRAINING_MAX: usize = 4;

/// Reclaims zones.
pub(crate) struct Reclaim {
    lookup: Lookup,
    space: Arc<Space>,
    log: Arc<Log>,
    release: Arc<Release>,
    merging: Merging,
    survivors: Survivors,
    cutoff_s: u32,
    zone_bytes: u64,
    reclaiming: Mutex<()>,
}

impl Reclaim {
    /// Nothing is reclaimed yet.
    pub(crate) fn new(
        (lookup, space, log): (Lookup, Arc<Space>, Arc<Log>),
        release: Arc<Release>,
        (merging, survivors): (Merging, Survivors),
        zone_bytes: u64,
        options: &FlashOptions,
    ) -> Reclaim {
        Reclaim {
            lookup,
            space,
            log,
            release,
            merging,
            survivors,
            cutoff_s: options.cutoff_s,
            zone_bytes,
            reclaiming: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.reclaiming.lock().expect("no panic under this lock")
    }

    /// One round: zones in which nothing is left, then what the watermarks ask for. Says whether anything was done.
    pub(crate) fn round(&self) -> bool {
        let _reclaiming = self.lock();
        self.space.note_failed_devices();
        // During a recovery, what is not known yet may be what something hides.
        if !self.lookup.meta.is_on() || self.lookup.status.is_recovering() {
            return false;
        }
        let release = &self.release;
        release.forget_prefixes();
        let mut released = release.drained() | release.flushed() | release.idle_generation_zones();
        if self.log.take_extents_full() {
            released |= release.drop_oldest_extents();
        }
        if self.lookup.has_generations {
            match self.merging.round() {
                Round::NotDue => {}
                Round::Waits => return released,
                Round::Ended(gained) => return gained || released,
            }
        } else if self.log.take_table_full() && !self.log.sweep_retired() {
            let dropped = release.drop_oldest();
            self.log.set_close_zone(!dropped);
            return dropped || released;
        }
        let worked = match self.space.next_work() {
            Work::Idle => false,
            Work::Drop(zones) => (0..zones).fold(false, |dropped, _| self.drop_oldest() || dropped),
            Work::Greedy(garbage_percent) if self.lookup.has_generations && self.merging.has_merged() => {
                match self.merging.collect(garbage_percent) {
                    Round::NotDue => self.reclaim_greedily(garbage_percent),
                    Round::Waits => false,
                    Round::Ended(gained) => gained,
                }
            }
            Work::Greedy(garbage_percent) => self.reclaim_greedily(garbage_percent),
        };
        let has_worked = worked || released || self.reclaim_for_entries();
        self.log.tell_room();
        has_worked
    }

    /// Drops what could not be read, or what is oldest.
    fn drop_oldest(&self) -> bool {
        self.release.drop_unreadable_extents()
            || self.lookup.has_generations && self.release.drop_oldest_of_all()
            || self.release.drop_oldest()
    }

    /// Makes room for the writer, which has found no erased zone for so long. While there is garbage, a reclaim makes
    /// the room, and the writer waits a while for it; otherwise the oldest zone is dropped. Says whether there may be
    /// an erased zone now.
    pub(crate) fn make_room(&self, waited: Duration) -> bool {
        let may_wait = self.lookup.status.is_threaded();
        let has_garbage = || self.space.has_garbage() || self.merging.has_garbage();
        if may_wait && waited < ZONE_WAIT_MAX && has_garbage() {
            self.lookup.status.ask();
            return false;
        }
        let drops_forced = &self.lookup.status.counters.drops_forced;
        // A round that is under way may be reading such a zone again.
        if self.reclaiming.try_lock().is_ok_and(|_reclaiming| self.release.drop_unreadable_extents()) {
            drops_forced.fetch_add(1, Relaxed);
            return true;
        }
        let recovering = || self.lookup.status.is_recovering();
        if self.lookup.has_generations && !recovering() && self.release.drop_oldest_of_all() {
            drops_forced.fetch_add(1, Relaxed);
            return true;
        }
        let _reclaiming = self.lock();
        if recovering() {
            return false;
        }
        if self.release.drained() | self.release.flushed() {
            return true;
        }
        let dropped = self.release.drop_oldest();
        drops_forced.fetch_add(dropped as u64, Relaxed);
        dropped
    }

    /// Where the log table is crowded, reclaims a zone with less garbage than the watermarks ask for. Short records are
    /// merged instead, if they can be.
    fn reclaim_for_entries(&self) -> bool {
        let garbage_percent = self.lookup.index.garbage_percent_for_entries();
        let may_reclaim = garbage_percent < GARBAGE_ALWAYS_PERCENT && !self.merging.has_merged();
        if !may_reclaim || self.space.draining() >= DRAINING_MAX {
            return false;
        }
        let record_bytes_min = if self.lookup.has_generations { RECLAIMED_BYTES_MIN } else { 0 };
        let (victim, _) = self.begin_draining(garbage_percent, (record_bytes_min, true));
        victim.is_some_and(|victim| self.reclaim_zone(victim.zone))
    }

    /// See [`Space::begin_draining`].
    fn begin_draining(&self, garbage_percent: u32, which: (u64, bool)) -> (Option<ZoneSummary>, bool) {
        let deadline = self.lookup.status.now().saturating_add(self.cutoff_s);
        let gain_bytes = self.zone_bytes * garbage_percent as u64 / 100;
        let choose = || self.space.begin_draining(deadline, gain_bytes, which);
        self.release.while_none_is_released(choose)
    }

    /// The share of live records, percent, that a reclaim keeps.
    fn keep_percent(&self) -> u32 {
        self.space.keep_percent(&self.lookup.generations, self.lookup.status.now())
    }

    /// Reclaims the zone with the fewest live bytes, if `garbage_percent` of it is garbage: its survivors are appended
    /// again. If no zone has any garbage, and erased zones are few, the oldest zone goes.
    fn reclaim_greedily(&self, garbage_percent: u32) -> bool {
        let record_bytes_min = if self.merging.has_merged() { RECLAIMED_BYTES_MIN } else { 0 };
        let (victim, is_below_low) = self.begin_draining(garbage_percent, (record_bytes_min, false));
        let Some(victim) = victim else {
            if self.space.draining() > 1 {
                // Their survivors are not durable yet. When they are, the zones are erased. For one zone that gains
                // nothing: its survivors would take another.
                self.log.seal_all();
                return false;
            }
            if self.lookup.has_generations && self.space.is_down_to_reserve() && self.merging.want() {
                return false;
            }
            let must_go = self.keep_percent() < 100 || self.space.is_down_to_reserve();
            return is_below_low && must_go && self.drop_oldest();
        };
        self.reclaim_zone(victim.zone)
    }

    /// Appends the survivors of a draining zone again. Says whether there is more to do at once.
    fn reclaim_zone(&self, zone: ZoneId) -> bool {
        let begun = Instant::now();
        let kept = self.survivors.keep(zone, self.keep_percent());
        self.space.end_draining(zone, kept);
        self.lookup.status.counters.reclaims.fetch_add(kept.is_ok() as u64, Relaxed);
        self.release.drained();
        if self.space.is_short() && self.space.draining() >= DRAINING_MAX {
            // Where few records go to the log, its segment with the survivors would stay open for long.
            self.log.seal_all();
        }
        self.space.note_reclaimed(begun.elapsed().as_secs_f64());
        match kept {
            // After a zone that cannot be read, the next round chooses another one.
            Ok(_) | Err(Unkept::Unreadable) => true,
            // At a stop, a restart finds all that is in the zone. Otherwise the writer may wait for an erased zone, and
            // cannot make room itself during a round.
            Err(Unkept::NotNow) => {
                let status = &self.lookup.status;
                let goes_on = status.is_threaded() && !status.is_stopping();
                goes_on && self.space.is_used_up() && self.drop_oldest()
            }
        }
    }
}
