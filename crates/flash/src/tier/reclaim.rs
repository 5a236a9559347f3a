//! Reclaim: which zones are reclaimed, and when, so that there is always an erased zone to write to.
//!
//! Lock: `reclaiming`, held during a round: one at a time. Comes after the writer's lock and before the releasing lock.

use super::log::Log;
use super::lookup::Lookup;
use super::merging::Merging;
use super::release::Release;
use super::space::Space;
use super::survivors::Survivors;
use crate::options::{FlashOptions, ReclaimPolicy};
use crate::space::Work;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

/// A zone is reclaimed greedily if at least one part in so many of it is dead.
const GAIN_PART: u64 = 16;

/// Reclaims zones.
pub(crate) struct Reclaim {
    lookup: Lookup,
    space: Arc<Space>,
    log: Arc<Log>,
    release: Arc<Release>,
    merging: Merging,
    survivors: Survivors,
    policy: ReclaimPolicy,
    cutoff_s: u32,
    /// Fewest dead bytes of a zone that is reclaimed greedily.
    gain_bytes: u64,
    reclaiming: Mutex<()>,
}

impl Reclaim {
    /// Nothing is reclaimed yet.
    pub(crate) fn new(
        (lookup, space, log): (Lookup, Arc<Space>, Arc<Log>),
        release: Arc<Release>,
        merging: Merging,
        survivors: Survivors,
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
            policy: options.reclaim,
            cutoff_s: options.cutoff_s,
            gain_bytes: zone_bytes / GAIN_PART,
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
            return self.merging.round() || self.drop_below_mark() || released;
        }
        if self.log.take_table_full() {
            let dropped = release.drop_oldest();
            self.log.set_close_zone(!dropped);
            return dropped || released;
        }
        let worked = match self.space.work(self.policy) {
            Work::Idle => false,
            Work::Quick => release.drop_oldest(),
            Work::Greedy => self.reclaim_greedily(),
        };
        worked || released
    }

    /// With generations: drops what is oldest while fewer zones are erased than the low mark asks for.
    fn drop_below_mark(&self) -> bool {
        self.space.observe_low() && (self.release.drop_oldest_of_all() || self.release.drop_oldest())
    }

    /// Makes room for the writer, which found no erased zone: the oldest zone is dropped. Says whether there may be an
    /// erased zone now.
    pub(crate) fn make_room(&self) -> bool {
        let drops_forced = &self.lookup.status.counters.drops_forced;
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

    /// Reclaims the zone with the fewest live bytes, if there is anything to gain: its survivors are appended again.
    fn reclaim_greedily(&self) -> bool {
        let begun = Instant::now();
        let deadline = self.lookup.status.now().saturating_add(self.cutoff_s);
        let (victim, is_below_low) = self.space.begin_draining(deadline, self.gain_bytes);
        let Some(victim) = victim else { return is_below_low && self.release.drop_oldest() };
        let after = self.survivors.keep(victim.zone);
        self.space.end_draining(victim.zone, after);
        self.lookup.status.counters.reclaims.fetch_add(after.is_some() as u64, Relaxed);
        self.release.drained();
        self.space.note_reclaimed(begun.elapsed().as_secs_f64());
        // A zone that could not be read would be chosen again by the next round.
        after.is_some() || self.release.drop_oldest()
    }
}
