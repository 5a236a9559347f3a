//! Which evicted items are worth a write to flash. Pure arithmetic: no clock, no threads, no device.
//!
//! Three questions, each off by default, are asked. Was the item ever read? Was it evicted before, lately (CacheLib's
//! reject-first policy)? Is it within the budget of bytes a day that the device's life allows? Before the last one, the
//! item may be refused because flash is behind and items that are worth more need the buffers ([`buffer_share`]).
//!
//! The budget is spread evenly over the day. When more is offered than may be written, the items go that save most for
//! each byte written ([`saved_per_byte`]), and only among equals does chance decide. (CacheLib's dynamic random policy
//! admits every item with the same probability.)

mod buffer_share;

use crate::random::Random;
use buffer_share::BufferShare;
use larder_allocation::{Objective, Subclass, WorthMode, WorthOptions};
use larder_flash::Room;
use larder_item::KeyHash;

/// What admission asks of an item. The default admits everything.
#[derive(Clone, Debug)]
pub struct AdmissionOptions {
    /// Reject first: an item is admitted when it is evicted a second time within this number of seconds. 0 = off.
    pub reject_first_s: u32,
    /// How many keys reject-first remembers, at 4 bytes each.
    pub reject_first_keys: u32,
    /// The most bytes of items that are written in a day; `None` = no bound.
    pub write_bytes_per_day: Option<u64>,
    /// Admit only items that were read since they were stored.
    pub only_fetched: bool,
}

impl Default for AdmissionOptions {
    fn default() -> Self {
        AdmissionOptions {
            reject_first_s: 0,
            reject_first_keys: 1 << 20,
            write_bytes_per_day: None,
            only_fetched: false,
        }
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
    /// What a miss of it costs.
    pub(crate) subclass: Subclass,
}

/// The answer of admission.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Admitted {
    /// The item is worth a write.
    Yes,
    /// It was never read.
    NeverRead,
    /// It was not evicted before, lately.
    First,
    /// The device is behind, and items that save more need its buffers.
    Outranked,
    /// The budget of bytes is used up for now, or is kept for items that save more.
    OverBudget,
}

/// A read from flash takes about 100 microseconds: one page from an NVMe device.
const FLASH_READ_US: f32 = 100.0;
/// Bytes of a record on flash beside key and value, with its share of fences and filter.
const RECORD_BYTES: u64 = 32;

/// What an item is expected to save on flash, for each byte written, in the unit of [`WorthOptions::cost_unit`].
///
/// An item that was read r times during its stay in memory is expected to be read r + 1/2 times in another such stay:
/// the mean of a Poisson rate, with Jeffreys' prior. Its warmth stands for r, and an item that was read before it
/// became cold counts as read once. Each read from flash saves a miss, less what the read itself costs. With mode
/// `static` neither size nor penalty counts.
fn saved_per_byte(offered: &Offered, worth: WorthOptions) -> f32 {
    let reads = f32::from(offered.warmth.max(u8::from(offered.fetched))) + 0.5;
    let bytes = (offered.bytes + RECORD_BYTES) as f32;
    match worth.cost_unit() {
        _ if worth.mode == WorthMode::Static => reads,
        Objective::Time => reads * (offered.subclass.typical_us() as f32 - FLASH_READ_US) / bytes,
        Objective::Requests => reads / bytes,
        // A miss costs the bytes of the item.
        Objective::Bytes => reads,
    }
}

/// Decides about evicted items.
pub(crate) struct Admission {
    options: AdmissionOptions,
    returns: Option<Returns>,
    buffer_share: BufferShare,
    budget: Option<WriteBudget>,
}

impl Admission {
    /// An admission that has seen no item yet.
    pub(crate) fn new(options: AdmissionOptions) -> Admission {
        Admission {
            returns: (options.reject_first_s > 0)
                .then(|| Returns::new(options.reject_first_keys, options.reject_first_s)),
            buffer_share: BufferShare::new(),
            budget: options.write_bytes_per_day.map(WriteBudget::new),
            options,
        }
    }

    /// Another budget of bytes per day; `None` = no bound. What is left of the day is shared out anew.
    pub(crate) fn set_write_budget(&mut self, per_day: Option<u64>) {
        self.options.write_bytes_per_day = per_day;
        match (&mut self.budget, per_day) {
            (Some(budget), Some(per_day)) => {
                budget.per_day = per_day;
                budget.left = budget.left.min(burst(per_day));
            }
            (budget, per_day) => *budget = per_day.map(WriteBudget::new),
        }
    }

    /// Whether an item that is evicted at `now_s` goes to flash, where items are ranked by `worth` and `room` is left
    /// in the buffers. If so, the budget counts it as written.
    pub(crate) fn judge(
        &mut self,
        offered: &Offered,
        worth: WorthOptions,
        room: Room,
        now_s: u32,
    ) -> Admitted {
        if self.options.only_fetched && !offered.fetched && offered.warmth == 0 {
            return Admitted::NeverRead;
        }
        if let Some(returns) = &mut self.returns
            && !returns.was_evicted(offered.hash, now_s)
        {
            return Admitted::First;
        }
        if !self.buffer_share.admits(offered, worth, room) {
            return Admitted::Outranked;
        }
        if let Some(budget) = &mut self.budget
            && !budget.spend(offered, worth, now_s)
        {
            return Admitted::OverBudget;
        }
        Admitted::Yes
    }

    /// Flash was too far behind to take an item that was admitted. What the budget has paid for it comes back, if
    /// nothing of it `was_written`.
    pub(crate) fn note_shed(&mut self, offered: &Offered, worth: WorthOptions, was_written: bool) {
        self.buffer_share.lose(offered, worth);
        if let Some(budget) = self.budget.as_mut().filter(|_| !was_written) {
            budget.left = budget.left.saturating_add_unsigned(offered.bytes).min(burst(budget.per_day));
        }
    }

    /// Bytes of the table of evicted keys and of the rankings.
    pub(crate) fn bytes(&self) -> u64 {
        let returns = self.returns.as_ref().map_or(0, |returns| size_of_val(&returns.sets[..]));
        let ranking = self.budget.as_ref().map_or(0, |budget| size_of_val(&budget.ranking.offered[..]));
        (returns + ranking + self.buffer_share.bytes()) as u64
    }
}

/// Remembers for a while which keys were evicted: a table of fingerprints in sets of four, of which the least recently
/// used makes room. A yes is wrong about once in 2^18 times. A no is wrong when too many keys are evicted within the
/// window.
struct Returns {
    sets: Vec<[u32; SET_FINGERPRINTS]>,
    tick_s: u32,
}

const SET_FINGERPRINTS: usize = 4;
/// A word of the table is a fingerprint and, in its low bits, the tick of the last eviction. A window has
/// [`WINDOW_TICKS`] ticks.
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
/// Bytes that were not written are saved up for an hour at most. The budget protects the device's life, which a burst
/// does not harm, but a whole day's bytes at once would delay reads.
const BURST_S: u64 = 60 * 60;
/// How long offers are watched before the share follows them.
const WATCH_S: u32 = 60;

/// Classes of what items save for each byte: four for each power of two that a float can hold.
const RANKS: usize = 1 << (8 + 2);

/// The class of an item. A higher class saves more. The bits of positive floats are in the order of the floats.
fn rank_of(saved_per_byte: f32) -> usize {
    ((saved_per_byte.max(0.0).to_bits() >> 21) as usize).min(RANKS - 1)
}

/// Finds how much an item has to save for each byte so that a given share of what is offered goes.
struct Ranking {
    /// Bytes that were offered of each rank. They count half as much after each cut.
    offered: Box<[u64]>,
    /// What the ranks were made by.
    worth: WorthOptions,
    cut: Cut,
}

/// Which ranks go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Cut {
    /// Higher ranks go, lower ones do not. `None`: chance decides about each item.
    rank: Option<usize>,
    /// The share of the items of this rank that go, as a fraction of 2^32.
    share: u64,
}

impl Ranking {
    fn new() -> Ranking {
        Ranking {
            offered: vec![0; RANKS].into(),
            worth: WorthOptions::default(),
            cut: Cut { rank: None, share: 1 << 32 },
        }
    }

    /// Takes note of an offer. Returns whether the item goes; `random` decides at the cut.
    fn admits(&mut self, offered: &Offered, worth: WorthOptions, random: u32) -> bool {
        if worth != self.worth {
            // The old ranks say nothing about items by the new options. Until the next cut, chance decides.
            self.worth = worth;
            self.offered.fill(0);
            self.cut.rank = None;
        }
        let rank = rank_of(saved_per_byte(offered, worth));
        self.offered[rank] = self.offered[rank].saturating_add(offered.bytes.max(1));
        match self.cut.rank {
            Some(cut) if rank != cut => rank > cut,
            _ => u64::from(random) < self.cut.share,
        }
    }

    /// From now on, `share` of the bytes that are offered goes, a fraction of 2^32.
    fn cut(&mut self, share: u64) {
        let all: u128 = self.offered.iter().map(|bytes| u128::from(*bytes)).sum();
        if all == 0 {
            self.cut = Cut { rank: None, share };
            return;
        }
        self.cut = Cut { rank: Some(0), share: 1 << 32 };
        let mut left = (all * u128::from(share)) >> 32;
        for (rank, bytes) in self.offered.iter().enumerate().rev() {
            let bytes = u128::from(*bytes);
            if bytes > left {
                self.cut = Cut { rank: Some(rank), share: ((left << 32) / bytes) as u64 };
                break;
            }
            left -= bytes;
        }
        self.offered.iter_mut().for_each(|bytes| *bytes /= 2);
    }
}

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
    /// The share of the offered bytes that is admitted, as a fraction of 2^32.
    share: u64,
    ranking: Ranking,
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
            share: 1 << 32,
            ranking: Ranking::new(),
            random: Random::new(0x9e37_79b9_7f4a_7c15),
        }
    }

    fn spend(&mut self, offered: &Offered, worth: WorthOptions, now_s: u32) -> bool {
        let filled_s = *self.filled_s.get_or_insert(now_s);
        if now_s != filled_s {
            self.fill(now_s.saturating_sub(filled_s));
            self.filled_s = Some(now_s);
        }
        self.watch(offered.bytes, now_s);
        let is_wanted = self.ranking.admits(offered, worth, self.random.next_u32());
        if self.left <= 0 || !is_wanted {
            return false;
        }
        self.left = self.left.saturating_sub_unsigned(offered.bytes);
        true
    }

    fn fill(&mut self, passed_s: u32) {
        let gained = u128::from(self.per_day) * u128::from(passed_s) + u128::from(self.rest);
        self.rest = (gained % u128::from(DAY_S)) as u64;
        let gained = i64::try_from(gained / u128::from(DAY_S)).unwrap_or(i64::MAX);
        self.left = self.left.saturating_add(gained).min(burst(self.per_day));
    }

    /// Once a minute, the share goes half the way to what may be written over what was offered.
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
            self.share = self.share.midpoint(fits);
            self.ranking.cut(self.share);
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
        Offered { hash, bytes: 100, warmth: 0, fetched: false, subclass: Subclass::UNKNOWN }
    }

    /// Of a device that keeps up.
    const ROOM: Room = Room { free_bytes: 3 << 20, buffer_bytes: 1 << 20, all_bytes: 3 << 20 };

    const BY_TIME: WorthOptions = WorthOptions { mode: WorthMode::Penalty, objective: Objective::Time };

    fn judge(admission: &mut Admission, offered: &Offered, now_s: u32) -> Admitted {
        admission.judge(offered, BY_TIME, ROOM, now_s)
    }

    #[test]
    fn the_default_admits_everything() {
        let mut admission = Admission::new(AdmissionOptions::default());
        assert!((0..1000).all(|n| judge(&mut admission, &offered(n), 5) == Admitted::Yes));
    }

    #[test]
    fn items_that_nobody_read_stay_out() {
        let mut admission =
            Admission::new(AdmissionOptions { only_fetched: true, ..AdmissionOptions::default() });
        assert_eq!(judge(&mut admission, &offered(1), 5), Admitted::NeverRead);
        assert_eq!(judge(&mut admission, &Offered { fetched: true, ..offered(1) }, 5), Admitted::Yes);
        assert_eq!(judge(&mut admission, &Offered { warmth: 1, ..offered(1) }, 5), Admitted::Yes);
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
        // On average four of the last thousand keys fall into a set of four, and sets with more keep four: about four
        // in five keys are remembered. Each check that finds nothing displaces another key.
        let remembered =
            (999_000..1_000_000).rev().filter(|n| returns.was_evicted(offered(*n).hash, 1100)).count();
        assert!(remembered > 500, "{remembered}");
        let older = (900_000..901_000).filter(|n| returns.was_evicted(offered(*n).hash, 1100)).count();
        assert!(older < 10, "{older}");
    }

    /// An offer of `bytes` bytes against a budget that knows no other items.
    fn spend(budget: &mut WriteBudget, bytes: u64, now_s: u32) -> bool {
        budget.spend(&Offered { bytes, ..offered(1) }, BY_TIME, now_s)
    }

    /// Writes of a day, when `bytes` are offered in items of `item` bytes each second.
    fn day(budget: &mut WriteBudget, from_s: u32, per_second: u64, item: u64) -> [u64; 24] {
        let mut hours = [0; 24];
        for second in 0..DAY_S {
            for _ in 0..per_second / item {
                if spend(budget, item, from_s + second as u32) {
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
    fn a_budget_may_change_while_items_are_offered() {
        /// Of an hour of items, one each second: how many are written.
        fn hour(admission: &mut Admission, hour: u32) -> usize {
            let seconds = hour * 3600..(hour + 1) * 3600;
            seconds.filter(|now_s| judge(admission, &offered(*now_s as u64), *now_s) == Admitted::Yes).count()
        }
        let mut admission = Admission::new(AdmissionOptions::default());
        assert_eq!(hour(&mut admission, 0), 3600);
        let per_day = |items_per_hour: u64| Some(offered(1).bytes * items_per_hour * 24);
        admission.set_write_budget(per_day(360));
        // What was there at the start is spread over the first hours.
        for past in 1..4 {
            hour(&mut admission, past);
        }
        assert!((300..=430).contains(&hour(&mut admission, 4)));
        admission.set_write_budget(per_day(1800));
        hour(&mut admission, 5);
        assert!((1500..=2150).contains(&hour(&mut admission, 6)));
        admission.set_write_budget(None);
        assert_eq!(hour(&mut admission, 7), 3600);
    }

    #[test]
    fn what_flash_does_not_take_costs_no_budget() {
        let options = AdmissionOptions { write_bytes_per_day: Some(2400), ..AdmissionOptions::default() };
        let mut admission = Admission::new(options);
        let item = offered(1);
        let mut admit = |is_shed| {
            let is_admitted = judge(&mut admission, &item, 10) == Admitted::Yes;
            if is_admitted && is_shed {
                admission.note_shed(&item, BY_TIME, false);
            }
            is_admitted
        };
        assert!((0..100).all(|_| admit(true)));
        assert_eq!((0..100).filter(|_| admit(false)).count(), 1, "an hour's budget");
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
        assert!(spend(&mut budget, 10_000, 10));
        let admitted = (11..11 + 5 * DAY_S as u32).find(|now_s| spend(&mut budget, 1, *now_s));
        // The debt is 9900 bytes, and 100 bytes come in an hour.
        assert!(admitted.is_some_and(|at_s| at_s > 10 + 99 * 3600), "{admitted:?}");
    }

    /// A stream of evicted items of many sizes, costs and temperatures.
    fn mixed(random: &mut Random) -> Offered {
        let subclass = Subclass::from_number(random.below(Subclass::COUNT as u64) as u8).unwrap();
        let (bytes, warmth) = (50 << random.below(8), random.below(4) as u8);
        Offered { hash: KeyHash(random.next_u32().into()), bytes, warmth, fetched: warmth > 0, subclass }
    }

    /// The slow twin: of all offers, those that save most per byte, until `share` of the bytes is reached. Returns the
    /// rank of the last one that goes.
    fn last_rank_that_goes(offers: &[Offered], worth: WorthOptions, share: f64) -> usize {
        let mut ranked: Vec<(f32, u64)> =
            offers.iter().map(|offer| (saved_per_byte(offer, worth), offer.bytes)).collect();
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
        let all: u64 = ranked.iter().map(|(_, bytes)| bytes).sum();
        let mut left = share * all as f64;
        for (saved, bytes) in ranked {
            left -= bytes as f64;
            if left < 0.0 {
                return rank_of(saved);
            }
        }
        0
    }

    #[test]
    fn the_cut_is_where_a_sorted_list_would_be_cut() {
        let mut random = Random::new(5);
        for mode in WorthMode::ALL {
            for objective in Objective::ALL {
                let worth = WorthOptions { mode, objective };
                for percent in [1, 10, 35, 80, 100] {
                    let offers: Vec<Offered> = (0..2000).map(|_| mixed(&mut random)).collect();
                    let mut ranking = Ranking::new();
                    offers.iter().for_each(|offer| _ = ranking.admits(offer, worth, 0));
                    ranking.cut((percent << 32) / 100);
                    let wanted = last_rank_that_goes(&offers, worth, percent as f64 / 100.0);
                    let rank = ranking.cut.rank.expect("something was offered");
                    // Two ranks are as good as each other where the share ends between them.
                    assert!(
                        rank == wanted || ranking.cut.share == 0,
                        "{worth:?} {percent} %: {rank}, {wanted}"
                    );
                    let all: u64 = offers.iter().map(|offer| offer.bytes).sum();
                    let went: u64 = offers
                        .iter()
                        .filter(|offer| ranking.admits(offer, worth, random.next_u32()))
                        .map(|offer| offer.bytes)
                        .sum();
                    let share = went as f64 / all as f64 * 100.0;
                    assert!((share - percent as f64).abs() < 6.0, "{worth:?} {percent} %: {share}");
                }
            }
        }
    }

    #[test]
    fn what_saves_more_per_byte_goes_first() {
        let item = offered(1);
        let time = BY_TIME;
        let (cheap, dear) = (Subclass::of_us(1_000), Subclass::of_us(2_000_000));
        let saved = |item: Offered, worth| saved_per_byte(&item, worth);
        assert!(
            saved(Offered { subclass: dear, ..item }, time)
                > saved(Offered { subclass: cheap, ..item }, time)
        );
        assert!(saved(item, time) > saved(Offered { bytes: 200, ..item }, time));
        assert!(saved(Offered { warmth: 2, ..item }, time) > saved(Offered { fetched: true, ..item }, time));
        assert!(saved(Offered { fetched: true, ..item }, time) > saved(item, time));
        let hits = WorthOptions { mode: WorthMode::Hits, ..time };
        assert_eq!(saved(Offered { subclass: dear, ..item }, hits), saved(item, hits));
        let fixed = WorthOptions { mode: WorthMode::Static, ..time };
        assert_eq!(saved(Offered { subclass: dear, bytes: 9, ..item }, fixed), saved(item, fixed));
        let bytes = WorthOptions { objective: Objective::Bytes, ..time };
        assert_eq!(saved(Offered { bytes: 9, ..item }, bytes), saved(item, bytes));
    }

    /// The first cut comes after a minute, and after new options another minute has to pass.
    #[test]
    fn new_options_begin_with_chance() {
        let mut budget = WriteBudget::new(8_640_000);
        let mut random = Random::new(6);
        let (old, new) = (BY_TIME, WorthOptions { mode: WorthMode::Hits, ..BY_TIME });
        for now_s in 0..600 {
            (0..10).for_each(|_| _ = budget.spend(&mixed(&mut random), old, now_s));
        }
        assert!(budget.ranking.cut.rank.is_some_and(|rank| rank > 0));
        budget.spend(&mixed(&mut random), new, 600);
        assert_eq!(budget.ranking.cut.rank, None);
        for now_s in 600..800 {
            (0..10).for_each(|_| _ = budget.spend(&mixed(&mut random), new, now_s));
        }
        assert!(budget.ranking.cut.rank.is_some());
    }

    /// Mean time in microseconds that clients wait for a key that is not in memory, when flash has room for a fifth of
    /// the bytes and may be written with an eighth of what is evicted.
    fn wait_us(worth: WorthOptions) -> f64 {
        const KEYS: u64 = 4_000;
        const ROUNDS: u64 = 100;
        let mut random = Random::new(7);
        let items: Vec<Offered> =
            (0..KEYS).map(|_| Offered { fetched: false, warmth: 0, ..mixed(&mut random) }).collect();
        let all: u64 = items.iter().map(|item| item.bytes).sum();
        // In each round, a minute long, a quarter of the keys is asked for and evicted again.
        let mut admission = Admission::new(AdmissionOptions {
            write_bytes_per_day: Some(all / 4 / 8 * DAY_S / 60),
            ..AdmissionOptions::default()
        });
        let (mut flash, mut order, mut flash_bytes) =
            (vec![false; KEYS as usize], std::collections::VecDeque::new(), 0);
        let (mut waited_us, mut asked) = (0.0, 0.0);
        for round in 0..ROUNDS {
            for nth in 0..KEYS / 4 {
                let at = random.below(KEYS) as usize;
                if round >= ROUNDS / 4 {
                    asked += 1.0;
                    waited_us += f64::from(if flash[at] {
                        FLASH_READ_US
                    } else {
                        items[at].subclass.typical_us() as f32
                    });
                }
                let now_s = (round * 60 + nth * 60 / (KEYS / 4)) as u32;
                if !flash[at] && admission.judge(&items[at], worth, ROOM, now_s) == Admitted::Yes {
                    flash[at] = true;
                    order.push_back(at);
                    flash_bytes += items[at].bytes;
                    while flash_bytes > all / 5 {
                        let oldest: usize =
                            order.pop_front().expect("what is on flash has a place in the order");
                        flash[oldest] = false;
                        flash_bytes -= items[oldest].bytes;
                    }
                }
            }
        }
        waited_us / asked
    }

    #[test]
    fn with_the_same_budget_clients_wait_less_than_with_chance() {
        // Nothing was read, so mode static has nothing to rank by.
        let chance_us = wait_us(WorthOptions { mode: WorthMode::Static, ..BY_TIME });
        let ranked_us = wait_us(BY_TIME);
        assert!(ranked_us < 0.7 * chance_us, "{ranked_us} us ranked, {chance_us} us by chance");
    }
}
