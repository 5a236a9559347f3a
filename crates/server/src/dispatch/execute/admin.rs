//! Operations on the whole server.

use super::Executor;
use crate::dispatch::item_key::PREFIX_BYTES_MAX;
use crate::dispatch::live::Running;
use crate::dispatch::operation::{ClockChange, ListingForm, Operation, WorthChange};
use crate::dispatch::outcome::{Outcome, Refusal};
use crate::dispatch::progress::{Busy, Progress};
use crate::settings::Settings;
use larder_cache::DATABASE_MARK;

/// The least memory limit that can be set, in MiB. The number is memcached's.
const LIMIT_MEGABYTES_MIN: u32 = 8;
/// memcached refuses a limit beyond this many MiB: the client must have meant bytes.
const LIMIT_MEGABYTES_MAX: u32 = 1_000_000_000;

/// The outcome of a change. The only setting with values that cannot take effect is the memory limit.
fn done(changed: Result<(), String>) -> Outcome<'static> {
    changed.map_or(Outcome::Refused(Refusal::LimitOutOfBounds), |()| Outcome::Done)
}

impl Executor {
    pub(super) fn administer(
        &mut self,
        progress: &mut Progress,
        operation: &Operation<'_>,
    ) -> Outcome<'static> {
        let settings = self.state.in_effect();
        match operation {
            Operation::Flush { .. } if !settings.flush_enabled => return Outcome::Refused(Refusal::Disabled),
            Operation::Flush { due_s } => {
                self.worker.counters().cmd_flush.add(1);
                self.worker.cache().flush(*due_s);
            }
            Operation::FlushPrefix { .. } | Operation::FlushKeys { .. } if !settings.flush_enabled => {
                return Outcome::Refused(Refusal::Disabled);
            }
            Operation::FlushPrefix { prefix } => {
                // One that ends in the beginning of the mark would be one of other databases, too.
                let is_cut = (1..=DATABASE_MARK.len()).any(|count| prefix.ends_with(&DATABASE_MARK[..count]));
                if !(1..=PREFIX_BYTES_MAX).contains(&prefix.len()) || is_cut {
                    return Outcome::Refused(Refusal::BadPrefix);
                }
                return self.flush_prefix(prefix);
            }
            Operation::FlushKeys { prefix, in_all_databases } => {
                if *in_all_databases
                    && self.state.databases().are_several()
                    && let refused @ Outcome::Refused(_) =
                        self.flush_prefix(&[prefix, &DATABASE_MARK[..]].concat())
                {
                    return refused;
                }
                return self.flush_prefix(prefix);
            }
            Operation::SetVerbosity(level) => {
                return done(self.change("verbose", |wanted| wanted.verbosity = *level));
            }
            Operation::Shutdown { graceful } => return self.shut_down(*graceful),
            Operation::SetMemoryLimit { megabytes } => return self.set_memory_limit(*megabytes),
            Operation::SetClock(_) if !settings.debugtime_enabled => {
                return Outcome::Refused(Refusal::Disabled);
            }
            Operation::SetClock(change) => self.set_clock(*change),
            Operation::SetWorth(change) => return done(self.set_worth(*change)),
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
            Operation::List { .. } if progress.is_datagram => {
                return Outcome::Refused(Refusal::NotByDatagram);
            }
            Operation::List { is_behind_others: true, .. } => return Outcome::Refused(Refusal::NotFirst),
            Operation::List { form: ListingForm::Sizes { items_left: 0, .. }, .. } => {
                return Outcome::EmptyList;
            }
            Operation::List { form, .. } => self.begin_listing(progress, *form),
            Operation::Watch { .. } if !settings.watch_enabled => return Outcome::Refused(Refusal::Disabled),
            Operation::Watch { is_behind_others: true, .. } => return Outcome::Refused(Refusal::NotFirst),
            Operation::Watch { kinds, .. } => return self.begin_watching(progress, *kinds),
            Operation::Version => return Outcome::Version(crate::version::VERSION_SHOWN),
            Operation::Quit => return Outcome::Closed,
            _ => {}
        }
        Outcome::Done
    }

    fn flush_prefix(&self, prefix: &[u8]) -> Outcome<'static> {
        if self.worker.cache().flush_prefix(prefix).is_err() {
            return Outcome::Refused(Refusal::TooManyPrefixes);
        }
        self.worker.counters().cmd_flush_prefix.add(1);
        Outcome::Done
    }

    fn shut_down(&self, graceful: Option<bool>) -> Outcome<'static> {
        let is_enabled = self.state.in_effect().shutdown_enabled;
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
        done(self.change("memory-limit", |wanted| wanted.memory_bytes = u64::from(megabytes) << 20))
    }

    /// Changes one setting of the table of live settings.
    fn change(&self, name: &str, change: impl FnOnce(&mut Settings)) -> Result<(), String> {
        let mut wanted = Settings::clone(&self.state.in_effect());
        change(&mut wanted);
        Running { state: &self.state, cache: self.worker.cache() }.change_one(name, &wanted)
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

    fn set_worth(&self, change: WorthChange) -> Result<(), String> {
        match change {
            WorthChange::Mode(mode) => self.change("worth", |wanted| wanted.worth.mode = mode),
            WorthChange::Objective(objective) => {
                self.change("objective", |wanted| wanted.worth.objective = objective)
            }
        }
    }

    fn begin_listing(&self, progress: &mut Progress, form: ListingForm) {
        progress.busy = Some(Busy::Listing { tour: Box::new(self.worker.begin_tour()), form });
    }

    /// Counts a request of the meta protocol.
    #[inline]
    pub(in crate::dispatch) fn count_meta(&self) {
        self.worker.counters().cmd_meta.add(1);
    }
}
