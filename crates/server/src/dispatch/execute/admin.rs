//! Operations on the whole server.

use super::Executor;
use crate::dispatch::operation::{ClockChange, ListingForm, Operation, WorthChange};
use crate::dispatch::outcome::{Outcome, Refusal};
use crate::dispatch::progress::{Busy, Progress};
use crate::io::Buffers;
use larder_cache::WorthOptions;

/// The least memory limit that can be set, in MiB. The number is memcached's.
const LIMIT_MEGABYTES_MIN: u32 = 8;
/// memcached refuses a limit beyond this many MiB: the client must have meant bytes.
const LIMIT_MEGABYTES_MAX: u32 = 1_000_000_000;

impl Executor {
    pub(super) fn administer(
        &mut self,
        progress: &mut Progress,
        operation: &Operation<'_>,
    ) -> Outcome<'static> {
        let settings = self.state.settings();
        match operation {
            Operation::Flush { .. } if !settings.flush_enabled => return Outcome::Refused(Refusal::Disabled),
            Operation::Flush { due_s } => {
                self.worker.counters().cmd_flush.add(1);
                self.worker.cache().flush(*due_s);
            }
            Operation::SetVerbosity(level) => self.state.set_verbosity(*level),
            Operation::Shutdown { graceful } => return self.shut_down(*graceful),
            Operation::SetMemoryLimit { megabytes } => return self.set_memory_limit(*megabytes),
            Operation::SetClock(_) if !settings.debugtime_enabled => {
                return Outcome::Refused(Refusal::Disabled);
            }
            Operation::SetClock(change) => self.set_clock(*change),
            Operation::SetWorth(change) => self.set_worth(*change),
            Operation::PrefixCounts | Operation::CountPrefixes(_) if !settings.dump_enabled => {
                return Outcome::Refused(Refusal::Disabled);
            }
            Operation::ResetStats => self.state.reset_counts(self.worker.cache().totals()),
            Operation::ResetHotKeys => self.cache().hot_keys().reset(),
            Operation::ResetLargeKeys => self.cache().large_keys().reset(),
            Operation::CountPrefixes(on) => {
                self.state.prefixes().turn(*on);
                self.look_for_observers();
            }
            Operation::List { .. } if !settings.dump_enabled => return Outcome::Refused(Refusal::Disabled),
            Operation::List { is_behind_others: true, .. } => return Outcome::Refused(Refusal::NotFirst),
            Operation::List { form: ListingForm::Sizes { items_left: 0, .. }, .. } => {
                return Outcome::EmptyList;
            }
            Operation::List { form, .. } => self.begin_listing(progress, *form),
            Operation::Watch { .. } if !settings.watch_enabled => return Outcome::Refused(Refusal::Disabled),
            Operation::Watch { is_behind_others: true, .. } => return Outcome::Refused(Refusal::NotFirst),
            Operation::Watch { kinds, .. } => return self.begin_watching(progress, *kinds),
            Operation::Version => return Outcome::Version(crate::VERSION_SHOWN),
            Operation::Quit => return Outcome::Closed,
            _ => {}
        }
        Outcome::Done
    }

    fn shut_down(&self, graceful: Option<bool>) -> Outcome<'static> {
        let is_enabled = self.state.settings().shutdown_enabled;
        let hook = self.state.drivers().and_then(|drivers| drivers.on_shutdown.as_ref());
        match (is_enabled, graceful, hook) {
            (true, None, _) => Outcome::Refused(Refusal::Malformed),
            (true, Some(graceful), Some(stop)) => {
                stop(graceful);
                Outcome::Closed
            }
            _ => Outcome::Refused(Refusal::Disabled),
        }
    }

    fn set_memory_limit(&self, megabytes: u32) -> Outcome<'static> {
        if megabytes < LIMIT_MEGABYTES_MIN {
            return Outcome::Refused(Refusal::LimitTooSmall);
        }
        if megabytes > LIMIT_MEGABYTES_MAX {
            return Outcome::Refused(Refusal::LimitOfWrongUnit);
        }
        let (cache, workers) = (self.worker.cache(), self.state.settings().threads as usize);
        let limit_bytes = u64::from(megabytes) << 20;
        // The receive buffers shrink and grow with what connections may hold.
        let ring_buffers =
            cache.buffers_cap_bytes_at(limit_bytes).and_then(|cap| Buffers::ring_buffers_for(cap, workers));
        let Some(ring_buffers) = ring_buffers.filter(|_| cache.set_limit(limit_bytes)) else {
            return Outcome::Refused(Refusal::LimitOutOfBounds);
        };
        if let Some(buffers) = self.state.buffers() {
            buffers.set_limit_bytes(cache.buffers_cap_bytes());
            buffers.set_sessions_limit_bytes(cache.sessions_cap_bytes());
            buffers.set_ring_buffers(ring_buffers);
        }
        Outcome::Done
    }

    fn set_clock(&self, change: ClockChange) {
        let clock = self.clock();
        match change {
            ClockChange::Move(seconds) => clock.shift(seconds),
            ClockChange::Pause => clock.hold(),
            ClockChange::Resume => clock.run(),
        }
        self.worker.cache().tick();
    }

    fn set_worth(&self, change: WorthChange) {
        let cache = self.worker.cache();
        cache.set_worth(match change {
            WorthChange::Mode(mode) => WorthOptions { mode, ..cache.worth() },
            WorthChange::Objective(objective) => WorthOptions { objective, ..cache.worth() },
        });
    }

    fn begin_listing(&self, progress: &mut Progress, form: ListingForm) {
        progress.busy = Some(Busy::Listing { bucket: 0, form });
    }

    /// Counts a request of the meta protocol.
    #[inline]
    pub(in crate::dispatch) fn count_meta(&self) {
        self.worker.counters().cmd_meta.add(1);
    }
}
