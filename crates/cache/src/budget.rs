//! How the limit `-m` is shared out.
//!
//! Everything that the server keeps is inside the limit:
//!
//! ```text
//! limit = columns + index + connection buffers (their cap) + sessions (their cap) + bookkeeping + temperature
//!         + curves of namespaces + dictionaries
//! ```
//!
//! Columns get what the others leave. As the index grows, the share of the columns shrinks by whole slabs, and the
//! keeper empties slabs to give them back. Once the index has had its share, it stops growing.
//!
//! Most servers use little of the share of connection buffers. Columns are **lent** up to a half of it. When
//! connections need it, the keeper takes it back within some rounds.

use larder_memory::Column;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

/// Connection buffers get a sixteenth of the limit, within the two bounds below. Code, stacks, the allocator and logs
/// are not in the budget: the promise "`-m` plus 5 % plus 16 MiB" leaves room for them.
const BUFFERS_SHARE: u64 = 16;
const BUFFERS_MIN_BYTES: u64 = 4 << 20;
const BUFFERS_MAX_BYTES: u64 = 256 << 20;
/// Half of the share of connection buffers may be lent, and a 32nd of the limit at most. So the resident memory stays
/// within the promise also before the keeper has taken back what was lent.
const LENT_SHARE: u64 = 2;
const LENT_SHARE_OF_LIMIT: u64 = 32;
/// What came back is lent again in 256 steps: buffers that were needed are soon needed again.
const LENDING_STEPS: u64 = 256;
/// The time between two of these steps.
pub(crate) const LENDING_PERIOD: Duration = Duration::from_millis(100);
/// The sessions of encrypted connections may take at most an eighth of the limit.
const SESSIONS_SHARE: u64 = 8;
/// The index may take at most a third of the limit. Items smaller than about 40 bytes reach that.
const INDEX_SHARE: u64 = 3;
/// Smallest limit that leaves room for columns, in bytes.
pub const LIMIT_BYTES_MIN: u64 = 8 << 20;
/// What connection buffers get at least for each worker, in bytes, if that is not more than a quarter of the limit.
pub(crate) const WORKER_BUFFERS_BYTES: u64 = 256 << 10;
/// Memory's bookkeeping for one column, in bytes (see `larder_memory::Column`).
const COLUMN_META_BYTES: u64 = size_of::<Column>() as u64;

/// The shares of one limit, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Budget {
    /// The limit, `-m`.
    pub(crate) limit_bytes: u64,
    /// The most that the connection buffers of all workers may hold.
    pub(crate) buffers_bytes: u64,
    /// The most that the sessions of encrypted connections may hold.
    pub(crate) sessions_bytes: u64,
    /// Bookkeeping that grows with the number of columns, and what [`SetAside`] names.
    pub(crate) bookkeeping_bytes: u64,
}

impl Budget {
    /// Shares out `limit_bytes`.
    pub(crate) fn new(limit_bytes: u64, set_aside: &SetAside) -> Budget {
        let buffers_bytes = (limit_bytes / BUFFERS_SHARE).clamp(BUFFERS_MIN_BYTES, BUFFERS_MAX_BYTES);
        let buffers_bytes_max = (limit_bytes / 4).max(buffers_bytes);
        let buffers_wanted = set_aside.workers as u64 * WORKER_BUFFERS_BYTES;
        let buffers_bytes = set_aside.buffers_bytes.unwrap_or(buffers_bytes);
        Budget {
            limit_bytes,
            buffers_bytes: buffers_bytes.max(buffers_wanted).min(buffers_bytes_max),
            sessions_bytes: set_aside.sessions_bytes.min(limit_bytes / SESSIONS_SHARE),
            bookkeeping_bytes: limit_bytes / set_aside.column_bytes * COLUMN_META_BYTES
                + set_aside.kept_bytes,
        }
    }

    /// What is left for columns beside `others_bytes` of index and temperature, when the connection buffers lend so
    /// many bytes of their share.
    pub(crate) fn columns_bytes(&self, others_bytes: u64, lent_bytes: u64) -> u64 {
        let buffers_bytes = self.buffers_bytes.saturating_sub(lent_bytes);
        let set_aside = buffers_bytes + self.sessions_bytes + self.bookkeeping_bytes;
        self.limit_bytes.saturating_sub(set_aside + others_bytes)
    }

    /// The most that connection buffers lend.
    fn lent_bytes_max(&self) -> u64 {
        (self.buffers_bytes / LENT_SHARE).min(self.limit_bytes / LENT_SHARE_OF_LIMIT)
    }

    /// The most that the index may take.
    pub(crate) fn index_bytes_max(&self) -> u64 {
        self.limit_bytes / INDEX_SHARE
    }
}

/// What is taken from any limit before the columns get theirs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SetAside {
    /// Workers, each with connection buffers.
    pub(crate) workers: usize,
    /// Bytes that the sessions of encrypted connections may take, if that is not more than their share.
    pub(crate) sessions_bytes: u64,
    /// What connection buffers may take, if not their usual share. It is never less than the workers need, and never
    /// more than a quarter of the limit.
    pub(crate) buffers_bytes: Option<u64>,
    /// Bytes of one column. Each column costs bookkeeping.
    pub(crate) column_bytes: u64,
    /// Bytes of pages of references, and of what admission to flash remembers.
    pub(crate) kept_bytes: u64,
}

/// The limit, which `cache_memlimit` moves while the cache runs.
pub(crate) struct Limits {
    budget: Mutex<Budget>,
    set_aside: SetAside,
    /// The limit that address space was reserved for. A higher one is refused.
    bytes_max: u64,
    /// Bytes of ghost, warmth record and shadows, or what is set aside for them.
    temperature_bytes: AtomicU64,
    /// Bytes that are set aside for the curves of namespaces.
    curves_bytes: AtomicU64,
    /// Bytes of the dictionaries that values are compressed with.
    dictionaries_bytes: AtomicU64,
    /// Whether connection buffers lend anything.
    lends_buffers: bool,
    /// Bytes of the share of connection buffers that columns have.
    lent_bytes: AtomicU64,
    /// Says how many bytes the connection buffers hold now.
    buffers_meter: OnceLock<BuffersMeter>,
}

type BuffersMeter = Box<dyn Fn() -> u64 + Send + Sync>;

impl Limits {
    /// A limit that starts at `budget` and may be raised to `bytes_max`. With `lends_buffers`, columns have a part of
    /// the share of connection buffers from the start.
    pub(crate) fn new(budget: Budget, set_aside: SetAside, bytes_max: u64, lends_buffers: bool) -> Limits {
        Limits {
            budget: Mutex::new(budget),
            set_aside,
            bytes_max,
            temperature_bytes: AtomicU64::new(0),
            curves_bytes: AtomicU64::new(0),
            dictionaries_bytes: AtomicU64::new(0),
            lends_buffers,
            lent_bytes: AtomicU64::new(if lends_buffers { budget.lent_bytes_max() } else { 0 }),
            buffers_meter: OnceLock::new(),
        }
    }

    /// The shares of the present limit.
    pub(crate) fn budget(&self) -> Budget {
        *self.budget.lock().expect("no panic under this lock")
    }

    /// How a limit of `bytes` would be shared out. `None`: it is too low or too high.
    pub(crate) fn budget_for(&self, bytes: u64) -> Option<Budget> {
        (LIMIT_BYTES_MIN..=self.bytes_max).contains(&bytes).then(|| Budget::new(bytes, &self.set_aside))
    }

    /// Moves the limit.
    pub(crate) fn set(&self, budget: Budget) {
        *self.budget.lock().expect("no panic under this lock") = budget;
        self.lent_bytes.fetch_min(budget.lent_bytes_max(), Ordering::Relaxed);
    }

    /// `used_bytes` says from now on how many bytes the connection buffers hold. The first one counts.
    pub(crate) fn measure_buffers_by(&self, used_bytes: BuffersMeter) {
        let _ = self.buffers_meter.set(used_bytes);
    }

    /// Lends columns what connection buffers do not need, if there is a meter. What buffers need comes back at once,
    /// and half as much again. With `may_rise` a step more is lent. Returns whether anything has changed. Only the
    /// keeper calls this.
    pub(crate) fn lend(&self, may_rise: bool) -> bool {
        let meter = self.buffers_meter.get().filter(|_| self.lends_buffers);
        let Some(used_bytes) = meter.map(|used_bytes| used_bytes()) else { return false };
        let (budget, before) = (self.budget(), self.lent_bytes());
        let most = budget.lent_bytes_max();
        let spare = budget.buffers_bytes.saturating_sub(used_bytes + used_bytes / 2);
        let step = if may_rise { most.div_ceil(LENDING_STEPS) } else { 0 };
        let now = spare.min(most).min(before + step);
        self.lent_bytes.store(now, Ordering::Relaxed);
        now != before
    }

    /// Bytes of the share of connection buffers that columns have.
    pub(crate) fn lent_bytes(&self) -> u64 {
        self.lent_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of ghost, warmth record and shadows.
    pub(crate) fn temperature_bytes(&self) -> u64 {
        self.temperature_bytes.load(Ordering::Relaxed)
    }

    /// Sets aside `bytes` for ghost, warmth record and shadows.
    pub(crate) fn set_temperature_bytes(&self, bytes: u64) {
        self.temperature_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Bytes that the curves of namespaces may take.
    pub(crate) fn curves_bytes(&self) -> u64 {
        self.curves_bytes.load(Ordering::Relaxed)
    }

    /// Sets aside `bytes` for the curves of namespaces.
    pub(crate) fn set_curves_bytes(&self, bytes: u64) {
        self.curves_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Bytes that are set aside for dictionaries, and what is done with them.
    pub(crate) fn dictionaries_bytes(&self) -> u64 {
        self.dictionaries_bytes.load(Ordering::Relaxed)
    }

    /// Sets aside `bytes` for dictionaries.
    pub(crate) fn set_dictionaries_bytes(&self, bytes: u64) {
        self.dictionaries_bytes.store(bytes, Ordering::Relaxed);
    }

    /// What temperature and the curves of namespaces take of what the columns would have.
    pub(crate) fn others_bytes(&self) -> u64 {
        self.temperature_bytes() + self.curves_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_never_exceed_the_limit() {
        for limit_mib in [16u64, 64, 1024, 100_000] {
            let limit = limit_mib << 20;
            for workers in [1, 4, 1000] {
                let set_aside = SetAside {
                    workers,
                    sessions_bytes: 5 << 20,
                    buffers_bytes: None,
                    column_bytes: 65536,
                    kept_bytes: 1 << 20,
                };
                let budget = Budget::new(limit, &set_aside);
                for index in [0, limit / 100, limit / 4] {
                    let lent = budget.lent_bytes_max();
                    let sum = budget.columns_bytes(index, lent)
                        + index
                        + (budget.buffers_bytes - lent)
                        + budget.sessions_bytes
                        + budget.bookkeeping_bytes;
                    assert!(sum <= limit, "{limit_mib} MiB: {sum} > {limit}");
                    assert!(budget.columns_bytes(index, 0) > 0);
                }
            }
        }
    }

    #[test]
    fn connection_buffers_get_what_was_asked_for_within_bounds() {
        let buffers = |limit_mib: u64, workers, wanted_mib: Option<u64>| {
            let buffers_bytes = wanted_mib.map(|mib| mib << 20);
            let set_aside =
                SetAside { workers, sessions_bytes: 0, buffers_bytes, column_bytes: 65536, kept_bytes: 0 };
            Budget::new(limit_mib << 20, &set_aside).buffers_bytes >> 20
        };
        assert_eq!(buffers(64, 4, None), 4);
        assert_eq!(buffers(64, 4, Some(2)), 2);
        assert_eq!(buffers(64, 16, Some(2)), 4, "the workers need that");
        assert_eq!(buffers(64, 4, Some(40)), 16, "a quarter of the limit");
        assert_eq!(buffers(8, 4, Some(40)), 4);
    }

    #[test]
    fn columns_are_lent_what_connections_do_not_need() {
        let set_aside = SetAside {
            workers: 1,
            sessions_bytes: 0,
            buffers_bytes: None,
            column_bytes: 65536,
            kept_bytes: 0,
        };
        let budget = Budget::new(1 << 30, &set_aside);
        let limits = Limits::new(budget, set_aside, 2 << 30, true);
        let half = budget.buffers_bytes / 2;
        assert!(limits.lent_bytes() == half && !limits.lend(true), "nobody says what is used");
        let used = std::sync::Arc::new(AtomicU64::new(half / 2));
        let meter = used.clone();
        limits.measure_buffers_by(Box::new(move || meter.load(Ordering::Relaxed)));
        assert!(!limits.lend(true));
        used.store(half, Ordering::Relaxed);
        assert!(limits.lend(true) && limits.lent_bytes() == half / 2);
        used.store(3 * half, Ordering::Relaxed);
        assert!(limits.lend(true) && limits.lent_bytes() == 0);
        used.store(0, Ordering::Relaxed);
        assert!(!limits.lend(false));
        for step in 1..=LENDING_STEPS {
            assert!(limits.lend(true) && limits.lent_bytes() == half / LENDING_STEPS * step);
        }
        assert!(!limits.lend(true));
        limits.set(Budget::new(1 << 29, &set_aside));
        assert_eq!(limits.lent_bytes(), half / 2);
        let limits = Limits::new(budget, set_aside, 2 << 30, false);
        limits.measure_buffers_by(Box::new(|| 0));
        assert!(!limits.lend(true) && limits.lent_bytes() == 0, "it lends nothing");
        let set_aside = SetAside { buffers_bytes: Some(256 << 20), ..set_aside };
        assert_eq!(Budget::new(1 << 30, &set_aside).lent_bytes_max(), 32 << 20, "a 32nd of the limit");
    }
}
