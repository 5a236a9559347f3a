//! Which evicted items are worth a write to flash. Pure arithmetic: no clock, no threads, no device.
//!
//! Three questions, each off by default, are asked in this order. Was the item ever read? Was it evicted before, lately
//! (CacheLib's reject-first policy)? Is it within the budget of bytes a day that the device's life allows? The budget is
//! spread evenly, as CacheLib's dynamic random policy does it: when more is offered than may be written, each item is admitted
//! with the probability that fits, and not just the first items of each day.

use crate::random::Random;
use larder_item::KeyHash;
use std::sync::Arc;

/// A test's own answer: whether the key's item is admitted.
#[doc(hidden)]
pub type AdmissionHook = Arc<dyn Fn(KeyHash) -> bool + Send + Sync>;

/// What admission asks of an item. The default admits everything.
#[derive(Clone)]
pub struct AdmissionOptions {
    /// Reject first: an item is admitted when it is evicted a second time within so many seconds. 0 = off.
    pub reject_first_s: u32,
    /// How many keys reject-first remembers, at 4 bytes each.
    pub reject_first_keys: u32,
    /// The most bytes of items that are written in a day; `None` = no bound.
    pub write_bytes_per_day: Option<u64>,
    /// Admit only items that were read since they were stored.
    pub only_fetched: bool,
    /// For tests, which decide about single keys, or act in the middle of a demotion.
    #[doc(hidden)]
    pub hook: Option<AdmissionHook>,
}

impl Default for AdmissionOptions {
    fn default() -> Self {
        AdmissionOptions {
            reject_first_s: 0,
            reject_first_keys: 1 << 20,
            write_bytes_per_day: None,
            only_fetched: false,
            hook: None,
        }
    }
}

impl std::fmt::Debug for AdmissionOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdmissionOptions")
            .field("reject_first_s", &self.reject_first_s)
            .field("reject_first_keys", &self.reject_first_keys)
            .field("write_bytes_per_day", &self.write_bytes_per_day)
            .field("only_fetched", &self.only_fetched)
            .finish_non_exhaustive()
    }
}

/// An evicted item.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offered {
    /// Hash of its key.
    pub(crate) hash: KeyHash,
    /// Bytes of key and value.
    pub(crate) bytes: u64,
    /// Warmth of its entry, 0..=3.
    pub(crate) warmth: u8,
    /// Whether it was read since it was stored.
    pub(crate) fetched: bool,
}

/// The answer of admission.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Admitted {
    /// The item is worth a write.
    Yes,
    /// It was never read.
    NeverRead,
    /// A test's hook rejected it.
    ByHook,
    /// It was not evicted before, lately.
    First,
    /// The budget of bytes is used up for now.
    OverBudget,
}

/// Decides about evicted items.
pub(crate) struct Admission {
    options: AdmissionOptions,
    returns: Option<Returns>,
    budget: Option<WriteBudget>,
}

impl Admission {
    /// An admission that has seen no item yet.
    pub(crate) fn new(options: AdmissionOptions) -> Admission {
        Admission {
            returns: (options.reject_first_s > 0)
                .then(|| Returns::new(options.reject_first_keys, options.reject_first_s)),
            budget: options.write_bytes_per_day.map(WriteBudget::new),
            options,
        }
    }

    /// Whether an item that is evicted at `now_s` goes to flash. If so, the budget counts it as written.
    pub(crate) fn judge(&mut self, offered: &Offered, now_s: u32) -> Admitted {
        if self.options.only_fetched && !offered.fetched && offered.warmth == 0 {
            return Admitted::NeverRead;
        }
        if let Some(hook) = &self.options.hook
            && !hook(offered.hash)
        {
            return Admitted::ByHook;
        }
        if let Some(returns) = &mut self.returns
            && !returns.was_evicted(offered.hash, now_s)
        {
            return Admitted::First;
        }
        if let Some(budget) = &mut self.budget
            && !budget.spend(offered.bytes, now_s)
        {
            return Admitted::OverBudget;
        }
        Admitted::Yes
    }

    /// Bytes of the table of evicted keys.
    pub(crate) fn bytes(&self) -> u64 {
        self.returns.as_ref().map_or(0, |returns| size_of_val(&returns.sets[..]) as u64)
    }
}

/// Remembers for a while which keys were evicted: a table of fingerprints in sets of four, of which the least recently used makes
/// room. A yes is wrong about once in 2^18 times. A no is wrong when too many keys are evicted within the window.
struct Returns {
    sets: Vec<[u32; SET_FINGERPRINTS]>,
    tick_s: u32,
}

const SET_FINGERPRINTS: usize = 4;
/// A word of the table is a fingerprint and, in its low bits, the tick of the last eviction. A window has [`WINDOW_TICKS`] ticks.
const TICK_BITS: u32 = 12;
const TICKS_MASK: u32 = (1 << TICK_BITS) - 1;
const WINDOW_TICKS: u32 = 16;

impl Returns {
    fn new(keys: u32, window_s: u32) -> Returns {
        let sets = (keys as usize / SET_FINGERPRINTS).max(1);
        Returns { sets: vec![[0; SET_FINGERPRINTS]; sets], tick_s: window_s.div_ceil(WINDOW_TICKS).max(1) }
    }

    /// Whether the key was evicted within the window. From now on it was.
    fn was_evicted(&mut self, hash: KeyHash, now_s: u32) -> bool {
        // The low half of the hash chooses the set, and its top bits are the fingerprint. No fingerprint is 0.
        let set = ((u64::from(hash.0 as u32) * self.sets.len() as u64) >> 32) as usize;
        let fingerprint = ((hash.0 >> (32 + TICK_BITS)) as u32).max(1) << TICK_BITS;
        let tick = (now_s / self.tick_s) & TICKS_MASK;
        let set = &mut self.sets[set];
        let at = set.iter().position(|word| word & !TICKS_MASK == fingerprint);
        let was_lately = at.is_some_and(|at| tick.wrapping_sub(set[at]) & TICKS_MASK < WINDOW_TICKS);
        // The words of a set are in the order of their last use.
        set[..=at.unwrap_or(SET_FINGERPRINTS - 1)].rotate_right(1);
        set[0] = fingerprint | tick;
        was_lately
    }
}

const DAY_S: u64 = 24 * 60 * 60;
/// Bytes that were not written are saved up for an hour at most. The budget protects the device's life, which a burst does not
/// harm, but a whole day's bytes at once would delay reads.
const BURST_S: u64 = 60 * 60;
/// How long offers are watched before the probability follows them.
const WATCH_S: u32 = 60;

/// A budget of bytes a day, spread evenly.
struct WriteBudget {
    per_day: u64,
    /// Bytes that may be written now. One item may overdraw it.
    left: i64,
    /// The fraction of a byte that was left over when `left` was last filled, in 1 / [`DAY_S`] bytes.
    rest: u64,
    filled_s: Option<u32>,
    /// Bytes offered since `watched_s`.
    offered: u64,
    watched_s: u32,
    /// The probability of admission, as a fraction of 2^32.
    probability: u64,
    random: Random,
}

impl WriteBudget {
    fn new(per_day: u64) -> WriteBudget {
        WriteBudget {
            per_day,
            left: burst(per_day),
            rest: 0,
            filled_s: None,
            offered: 0,
            watched_s: 0,
            probability: 1 << 32,
            random: Random::new(0x9e37_79b9_7f4a_7c15),
        }
    }

    fn spend(&mut self, bytes: u64, now_s: u32) -> bool {
        let filled_s = *self.filled_s.get_or_insert(now_s);
        if now_s != filled_s {
            self.fill(now_s.saturating_sub(filled_s));
            self.filled_s = Some(now_s);
        }
        self.watch(bytes, now_s);
        if self.left <= 0 || u64::from(self.random.next_u32()) >= self.probability {
            return false;
        }
        self.left = self.left.saturating_sub_unsigned(bytes);
        true
    }

    fn fill(&mut self, passed_s: u32) {
        let gained = u128::from(self.per_day) * u128::from(passed_s) + u128::from(self.rest);
        self.rest = (gained % u128::from(DAY_S)) as u64;
        let gained = i64::try_from(gained / u128::from(DAY_S)).unwrap_or(i64::MAX);
        self.left = self.left.saturating_add(gained).min(burst(self.per_day));
    }

    /// Once a minute, the probability goes half the way to what may be written over what was offered.
    fn watch(&mut self, bytes: u64, now_s: u32) {
        if self.offered == 0 {
            self.watched_s = now_s;
        }
        let passed_s = now_s.saturating_sub(self.watched_s);
        if passed_s >= WATCH_S {
            // The bytes that were saved up may be written within the next hour.
            let saved =
                u128::from(self.left.max(0).unsigned_abs()) * u128::from(passed_s) / u128::from(BURST_S);
            let may = u128::from(self.per_day) * u128::from(passed_s) / u128::from(DAY_S) + saved;
            let fits = ((may << 32) / u128::from(self.offered)).min(1 << 32) as u64;
            self.probability = self.probability.midpoint(fits);
            (self.offered, self.watched_s) = (0, now_s);
        }
        self.offered = self.offered.saturating_add(bytes.max(1));
    }
}

/// The most bytes that are saved up.
fn burst(per_day: u64) -> i64 {
    i64::try_from(u128::from(per_day) * u128::from(BURST_S) / u128::from(DAY_S)).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_item::KeyHasher;
    use std::collections::HashMap;

    fn offered(n: u64) -> Offered {
        let hash = KeyHasher::with_seed(3).hash(&n.to_le_bytes());
        Offered { hash, bytes: 100, warmth: 0, fetched: false }
    }

    #[test]
    fn the_default_admits_everything() {
        let mut admission = Admission::new(AdmissionOptions::default());
        assert!((0..1000).all(|n| admission.judge(&offered(n), 5) == Admitted::Yes));
        assert_eq!(admission.bytes(), 0);
    }

    #[test]
    fn items_that_nobody_read_and_items_that_the_hook_rejects_stay_out() {
        let mut admission =
            Admission::new(AdmissionOptions { only_fetched: true, ..AdmissionOptions::default() });
        assert_eq!(admission.judge(&offered(1), 5), Admitted::NeverRead);
        assert_eq!(admission.judge(&Offered { fetched: true, ..offered(1) }, 5), Admitted::Yes);
        assert_eq!(admission.judge(&Offered { warmth: 1, ..offered(1) }, 5), Admitted::Yes);

        let wanted = offered(1).hash;
        let mut admission = Admission::new(AdmissionOptions {
            hook: Some(Arc::new(move |hash| hash == wanted)),
            ..AdmissionOptions::default()
        });
        assert_eq!(admission.judge(&offered(1), 5), Admitted::Yes);
        assert_eq!(admission.judge(&offered(2), 5), Admitted::ByHook);
    }

    /// As long as there is room for all keys, the table says the same as a map that forgets nothing, up to a tick.
    #[test]
    fn the_second_time_within_the_window_is_admitted() {
        const WINDOW_S: u32 = 160;
        let tick_s = WINDOW_S / WINDOW_TICKS;
        let mut returns = Returns::new(1 << 16, WINDOW_S);
        let mut last: HashMap<u64, u32> = HashMap::new();
        let mut random = Random::new(1);
        let (mut yes, mut no) = (0, 0);
        for now_s in 100..3000 {
            for _ in 0..10 {
                let n = random.below(2000);
                let seen = returns.was_evicted(offered(n).hash, now_s);
                let age_s = last.insert(n, now_s).map(|then_s| now_s - then_s);
                match age_s {
                    Some(age_s) if age_s <= WINDOW_S - tick_s => assert!(seen, "{n} after {age_s} s"),
                    Some(age_s) if age_s <= WINDOW_S => {}
                    _ => assert!(!seen, "{n} after {age_s:?}"),
                }
                *(if seen { &mut yes } else { &mut no }) += 1;
            }
        }
        assert!(yes > 5000 && no > 5000, "{yes} {no}");
    }

    #[test]
    fn a_crowd_forgets_the_oldest() {
        let mut returns = Returns::new(1000, 1600);
        for n in 0..1_000_000 {
            returns.was_evicted(offered(n).hash, 100 + n as u32 / 1000);
        }
        // On average four of the last thousand keys fall into a set of four, and sets with more keep four: about four in five
        // keys are remembered. Each check that finds nothing displaces another key.
        let remembered =
            (999_000..1_000_000).rev().filter(|n| returns.was_evicted(offered(*n).hash, 1100)).count();
        assert!(remembered > 500, "{remembered}");
        let older = (900_000..901_000).filter(|n| returns.was_evicted(offered(*n).hash, 1100)).count();
        assert!(older < 10, "{older}");
    }

    /// Writes of a day, when `bytes` are offered in items of `item` bytes each second.
    fn day(budget: &mut WriteBudget, from_s: u32, per_second: u64, item: u64) -> [u64; 24] {
        let mut hours = [0; 24];
        for second in 0..DAY_S {
            for _ in 0..per_second / item {
                if budget.spend(item, from_s + second as u32) {
                    hours[(second / 3600) as usize] += item;
                }
            }
        }
        hours
    }

    #[test]
    fn the_budget_holds_and_is_spread_over_the_day() {
        const PER_DAY: u64 = 86_400_000;
        let mut budget = WriteBudget::new(PER_DAY);
        // The first hour may also take what is there at the start.
        day(&mut budget, 100, 4000, 500);
        for n in 1..4 {
            let hours = day(&mut budget, 100 + n * DAY_S as u32, 4000, 500);
            let sum: u64 = hours.iter().sum();
            assert!(sum <= PER_DAY + PER_DAY / 24, "{sum}");
            assert!(sum >= PER_DAY * 9 / 10, "{sum}");
            let (least, most) = (hours.iter().min().unwrap(), hours.iter().max().unwrap());
            assert!(*least * 10 >= PER_DAY / 24 * 7 && *most * 10 <= PER_DAY / 24 * 14, "{hours:?}");
        }
    }

    #[test]
    fn what_is_offered_within_the_budget_is_written() {
        let mut budget = WriteBudget::new(86_400_000);
        let sum: u64 = day(&mut budget, 100, 900, 300).iter().sum();
        assert_eq!(sum, 900 * DAY_S);
    }

    #[test]
    fn an_item_larger_than_the_budget_waits_for_its_price() {
        let mut budget = WriteBudget::new(2400);
        assert!(budget.spend(10_000, 10));
        let admitted = (11..11 + 5 * DAY_S as u32).find(|now_s| budget.spend(1, *now_s));
        // The debt is 9900 bytes, and 100 bytes come in an hour.
        assert!(admitted.is_some_and(|at_s| at_s > 10 + 99 * 3600), "{admitted:?}");
    }
}
