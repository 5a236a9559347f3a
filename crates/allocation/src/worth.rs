//! Worth: which items of a column go.
//!
//! The worth of an item is what it will save before the pass meets it again: expected hits times the cost of a miss,
//! per byte. The design follows PAMA (section III) with three differences that log-structured memory allows. Room
//! moves item by item, and not slab by slab, so a group needs no columns of its own. The candidate segment and the
//! reference segments of a group are the items whose worth is next to the margin, and not the end of a stack. And
//! where PAMA asks Bloom filters for the segment of an access, the keeper follows a sample of the keys exactly.

use crate::costs::ExpectedCosts;
use crate::hits::{Class, ExpectedHits, MetIn, Warmth};
use crate::ledger::Ledger;
use crate::margin::Margin;
use crate::prices::Prices;
use crate::watch::{Meeting, Watch, Watched};
use crate::{Group, GroupStats, Objective, Subclass, WorthMode, WorthOptions};

/// Bytes that an item takes outside its column: its share of the index and of the ghost.
const BESIDE_BYTES: u32 = 16;
/// A window has as many sampled accesses as there are sampled items, 512 at least. It goes on until as many watches
/// have ended, so that what was learnt does not fade faster than it is learnt anew.
const WINDOW_MIN: u64 = 512;

/// While only sizes differ, an item that the temperature would keep counts as worth four times as much. Sizes differ
/// less than penalties, and against less than this the temperature knows better. Without it, requests of APP's sizes
/// hit 72.2 instead of 74.0 %.
const TRUST: f32 = 4.0;
/// A round has at least an eighth of the items, and at least 64 items.
const ROUND_SHARE_MAX: u64 = 8;
const ROUND_ITEMS_MIN: u64 = 64;
const ROUND_ITEMS_MAX: u64 = 1 << 30;

/// An item of a column that goes.
#[derive(Clone, Copy, Debug)]
pub struct Appraised {
    /// Digest of the key.
    pub digest: u32,
    /// What the temperature knows of the item.
    pub warmth: Warmth,
    /// What a miss of the item costs.
    pub subclass: Subclass,
    /// Bytes of the item.
    pub bytes: u32,
}

/// How much of a column may stay.
#[derive(Clone, Copy, Debug)]
pub struct ColumnBounds {
    /// Bytes of a column.
    pub column_bytes: u64,
    /// The most bytes that may stay.
    pub keep_bytes_max: u64,
}

/// Learns what items are worth, and chooses which go.
pub struct Worth {
    options: WorthOptions,
    hits: ExpectedHits,
    expected_costs: ExpectedCosts,
    watch: Watch,
    margin: Margin,
    ledger: Ledger,
    /// What a miss costs per byte of its item, and as a whole.
    prices: Prices,
    costs: Prices,
    /// Keys with a digest below this number are watched.
    watched_below: u32,
    /// Items of the cache.
    items: u64,
    /// Items of the main queue that are judged while the sweep goes round once.
    round_items: u32,
    /// Items of the main queue that were judged so far.
    swept_items: u32,
    window: Window,
    column_bytes: u64,
    /// Worth and bytes of each item of a column. Kept for its memory.
    appraised: Vec<(f32, u32)>,
}

/// The present window.
struct Window {
    /// The fewest sampled accesses of a window, and the fewest watches that end in it.
    least: u64,
    /// Sampled accesses so far.
    accesses: u64,
    /// Watches that ended so far.
    observed: u64,
}

impl Window {
    /// Counts an access. Returns whether the window is over, and begins another one if it is.
    #[inline]
    fn count(&mut self) -> bool {
        self.accesses += 1;
        let is_over = self.accesses >= self.least && self.observed >= self.least;
        if is_over {
            (self.accesses, self.observed) = (0, 0);
        }
        is_over
    }
}

impl Worth {
    /// Nothing is known yet. `options` do not have the mode [`WorthMode::Auto`]: see [`WorthOptions::by`].
    pub fn new(options: WorthOptions) -> Worth {
        Worth {
            options,
            hits: ExpectedHits::new(),
            expected_costs: ExpectedCosts::new(),
            watch: Watch::default(),
            margin: Margin::default(),
            ledger: Ledger::new(),
            prices: Prices::default(),
            costs: Prices::default(),
            watched_below: 0,
            items: 0,
            round_items: ROUND_ITEMS_MIN as u32,
            swept_items: 0,
            window: Window { least: WINDOW_MIN, accesses: 0, observed: 0 },
            column_bytes: 1,
            appraised: Vec::new(),
        }
    }

    /// The cache has about `items` items. Keys with a digest below `watched_below`, of 2^31, are sampled.
    pub fn fit(&mut self, items: u64, watched_below: u32) {
        self.watched_below = watched_below;
        self.items = items;
        let sampled = (u128::from(items) * u128::from(watched_below)) >> 31;
        self.window.least = WINDOW_MIN.max(sampled as u64);
    }

    /// Judges by `options` from now on.
    pub fn set_options(&mut self, options: WorthOptions) {
        if options != self.options {
            self.options = options;
            self.margin.reset();
            (self.prices, self.costs) = Default::default();
            self.ledger.forget_values();
        }
    }

    /// A key was read, or stored.
    #[inline]
    pub fn refer(&mut self, digest: u32, is_store: bool) {
        if digest >= self.watched_below {
            return;
        }
        self.watch.refer(digest, is_store);
        if self.window.count() {
            self.hits.end_window();
            self.expected_costs.end_window();
            self.ledger.end_window();
            self.prices.end_window();
            self.costs.end_window();
        }
    }

    /// Chooses the items of a column that go: sets `goes` for each. Together they have about as many bytes as the
    /// temperature asks for, less where the items are dear and more where they are cheap. If all items have the same
    /// price per byte, and in the static mode, those go that the temperature asks for.
    ///
    /// `main_items` is about how many items the sweep of the main queue meets while it goes round once.
    pub fn choose(&mut self, items: &[Appraised], bounds: ColumnBounds, main_items: u64, goes: &mut [bool]) {
        let round_items = main_items.max(self.items / ROUND_SHARE_MAX);
        self.round_items = round_items.clamp(ROUND_ITEMS_MIN, ROUND_ITEMS_MAX) as u32;
        self.column_bytes = bounds.column_bytes;
        let mut appraised = std::mem::take(&mut self.appraised);
        appraised.clear();
        let (mut asked, mut gone) = ([0; Group::COUNT], [0; Group::COUNT]);
        let trust = if self.costs.differ() { 1.0 } else { TRUST };
        for item in items {
            let group = Group::of(item.bytes, item.subclass);
            let cost = self.cost(item.subclass, item.bytes);
            let price = cost / (item.bytes + BESIDE_BYTES) as f32;
            self.prices.see(price);
            self.costs.see(cost);
            let trust = if item.warmth.stays { trust } else { 1.0 };
            appraised.push((self.hits.of(Class::of(item.warmth, group)) * price * trust, item.bytes));
            self.ledger.hold(item.warmth.met_in, group, item.bytes);
            if !item.warmth.stays {
                asked[group.number()] += u64::from(item.bytes);
            }
        }
        let ColumnBounds { column_bytes, keep_bytes_max } = bounds;
        if self.options.mode == WorthMode::Static || !self.prices.differ() {
            goes.iter_mut().zip(items).for_each(|(goes, item)| *goes = !item.warmth.stays);
        } else {
            self.margin.choose(&appraised, asked.iter().sum(), keep_bytes_max, column_bytes, goes);
        }
        for ((item, &(worth, bytes)), goes) in items.iter().zip(&appraised).zip(goes.iter()) {
            let group = Group::of(bytes, item.subclass);
            if *goes {
                gone[group.number()] += u64::from(bytes);
            }
            self.swept_items = self.swept_items.wrapping_add((item.warmth.met_in == MetIn::Main).into());
            if item.digest < self.watched_below {
                self.begin_watch(item, group, worth, !*goes);
            }
        }
        self.appraised = appraised;
        self.ledger.settle(&asked, &gone, column_bytes);
        while let Some(ended) = self.watch.next_ended(self.swept_items, self.round_items) {
            self.observe(&ended);
        }
    }

    /// What a miss costs, in the unit of the objective.
    fn cost(&self, subclass: Subclass, bytes: u32) -> f32 {
        match (self.options.objective, self.options.mode) {
            (Objective::Bytes, _) => (bytes + BESIDE_BYTES) as f32,
            (Objective::Time, WorthMode::Penalty) => self.expected_costs.of(subclass),
            (Objective::Time | Objective::Requests, _) => 1.0,
        }
    }

    fn begin_watch(&mut self, item: &Appraised, group: Group, worth: f32, kept: bool) {
        if let Some(before) =
            self.watch.returned(item.digest).and_then(|number| Group::from_number(number.into()))
        {
            // What is remembered of prices is of another time then.
            if self.expected_costs.observe(before.subclass, item.subclass) {
                (self.prices, self.costs) = Default::default();
            }
        }
        match self.watch.meet(item.digest, self.swept_items, self.round_items) {
            Meeting::GoesOn => return,
            Meeting::Ended(ended) => self.observe(&ended),
            Meeting::New => {}
        }
        let watched = Watched {
            class: Class::of(item.warmth, group),
            group: group.number() as u8,
            distance: self.margin.distance(worth),
            kept,
            returned: false,
            hits: 0,
            bytes: item.bytes,
        };
        self.watch.begin(item.digest, self.swept_items, watched);
    }

    fn observe(&mut self, ended: &Watched) {
        self.window.observed += 1;
        self.hits.observe(ended.class, ended.hits.into());
        if let Some(group) = Group::from_number(ended.group.into()) {
            self.ledger.observe(ended, self.cost(group.subclass, ended.bytes));
        }
    }

    /// What is shown of the groups. There are `probation_columns` columns of new items and `main_columns` of kept ones.
    pub fn stats(&self, probation_columns: u64, main_columns: u64) -> Vec<GroupStats> {
        self.ledger.stats([probation_columns, main_columns], self.column_bytes)
    }

    /// About how many bytes of memory the bookkeeping takes.
    pub fn bytes(&self) -> u64 {
        self.hits.bytes() + self.watch.bytes() + self.ledger.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MetIn;

    const BOUNDS: ColumnBounds = ColumnBounds { column_bytes: 10_000, keep_bytes_max: 10_000 };

    fn item(nth: u32, penalty_us: u32, stays: bool) -> Appraised {
        let warmth = Warmth { met_in: MetIn::Main, level: stays.into(), stays };
        Appraised { digest: nth, warmth, subclass: Subclass::of_us(penalty_us), bytes: 100 }
    }

    /// What goes of a column of 100 items, of which every other one is warm.
    fn goes(worth: &mut Worth, penalty_us: impl Fn(u32) -> u32) -> Vec<bool> {
        let items: Vec<_> = (0..100).map(|nth| item(nth, penalty_us(nth), nth % 2 == 0)).collect();
        let mut goes = vec![false; items.len()];
        worth.choose(&items, BOUNDS, 1000, &mut goes);
        goes
    }

    #[test]
    fn at_equal_prices_the_temperature_alone_decides() {
        for mode in WorthMode::ALL {
            let mut worth = Worth::new(WorthOptions { mode, objective: Objective::Time });
            for _ in 0..100 {
                assert!(
                    goes(&mut worth, |_| 40_000)
                        .iter()
                        .enumerate()
                        .all(|(nth, goes)| *goes == (nth % 2 == 1))
                );
            }
        }
    }

    #[test]
    fn a_cold_dear_item_stays_before_a_warm_cheap_one_if_penalties_count() {
        // The cheap half has 25 warm items and 25 cold ones, and so has the dear half.
        let dear_half = |nth: u32| if nth < 50 { 500 } else { 2_000_000 };
        let penalty = WorthOptions { mode: WorthMode::Penalty, ..WorthOptions::default() };
        let mut worth = Worth::new(penalty);
        let by_penalty = goes(&mut worth, dear_half);
        assert!(by_penalty[..50].iter().all(|goes| *goes) && !by_penalty[50..].contains(&true));
        worth.set_options(WorthOptions { mode: WorthMode::Hits, ..penalty });
        let by_hits = goes(&mut worth, dear_half);
        assert!(by_hits.iter().enumerate().all(|(nth, goes)| *goes == (nth % 2 == 1)));
    }
}
