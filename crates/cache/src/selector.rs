//! The one place that chooses which column goes next.
//!
//! Every route but one asks [`Selector::next`] for its victims: the keeper's pass, a writer that helps the pass, and
//! the search for sparse columns before fresh memory is taken. A cache that may not evict (`-M`) packs columns
//! together, in an order of its own (`keeper/packing.rs`). What differs is the [`Need`] of the search:
//!
//! | need | candidates | threshold | what the pass may do |
//! |---|---|---|---|
//! | [`Need::Nothing`] | the emptiest of those in which much has expired | [`Sparse::WITHOUT_NEED`] | move |
//! | [`Need::BeforeFreshMemory`] | all columns in turn, from a cursor | [`Sparse::BEFORE_FRESH_MEMORY`] | move |
//! | [`Need::FreeColumn`], while some of memory has expired | as for nothing | [`Sparse::BEFORE_EVICTION`] | move |
//! | [`Need::FreeColumn`], while much of memory is dead | 32 random columns | [`Sparse::BEFORE_EVICTION`] | move |
//! | [`Need::FreeColumn`], else | the policy's order | | evict |
//!
//! After some columns in a row that the shares of namespaces keep, a column is drawn by lot instead of in the policy's
//! order.
//!
//! What [`Need::Nothing`] would find comes first for [`Need::FreeColumn`] too.
//!
//! How columns are compared is in `ranking.rs`; the order of a policy is in `temperature/`. The caller tells the
//! outcome back through [`Selector::settle`], so that a column that was refused is not chosen again and again.

use crate::column_group::{HOLDS_UNMOVABLE, HOT, MAIN_GROUP};
use crate::expired_columns::ExpiredColumns;
use crate::index_sampler::IndexSampler;
use crate::item_store::ItemStore;
use crate::random::Random;
use crate::ranking::{Candidate, CheapestSparse, ColumnStatus, Sparse};
use crate::temperature::{Judged, Queue, Temperature, TemperatureStats, Verdict};
use larder_allocation::ColumnBounds;
use larder_memory::{ColumnId, ColumnState, Guard, OpenColumn};
use larder_temperature::Reference;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

/// Live items are moved out of columns that have expired in part, and nothing is evicted, while more than a
/// 128th of the used bytes has expired or was flushed. With lifetimes spread evenly over a minute and 64 MiB, a 64th
/// kept 96.6 % of what an oracle would and moved 5 items for 100 stores; a 256th kept 97.9 % and moved 31.
const SOME_OVER_SHARE: u64 = 128;
/// The policy may know a 16th more columns than there are. To forget the others costs one look at each that it knows.
const GONE_SHARE: usize = 16;
/// Random columns among which the cheapest sparse one is looked for.
const SAMPLED_COLUMNS: u32 = 32;
/// Sampled columns that may be refused before the policy is asked.
const SAMPLED_REFUSED_MAX: usize = 16;
/// After four columns in a row that shares keep, a column is drawn by lot. What shares keep was moved in a row, and
/// lies in a row: in the policy's order a writer could wait for all of it.
const SHARED_IN_A_ROW: usize = 4;
/// Columns that are drawn until one is a candidate.
const DRAWN_COLUMNS: u32 = 8;
/// Columns that a search may leave to what a least share keeps. The next one goes with all that it holds, so
/// that a writer gets its room. A tenant that stores much at once has as many columns in a row in a small cache. Each
/// of them costs a few hundredths of a millisecond, for nothing is copied.
const SHARED_MAX: usize = 256;
/// Columns that one search before fresh memory looks at.
const BEFORE_FRESH_MEMORY_LOOKS: u32 = 4096;
/// Columns that may be refused in a search before fresh memory.
const BEFORE_FRESH_MEMORY_REFUSED_MAX: usize = 16;
/// The random numbers start here, so that a simulation can be repeated.
const RANDOM_SEED: u64 = 0x1234_5678_9abc_def1;

/// What a column is needed for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Need {
    /// Nothing needs it. Only what is nearly free of live items is taken.
    Nothing,
    /// Fresh memory would be taken from the machine otherwise. Nothing is evicted.
    BeforeFreshMemory,
    /// The free columns are few, or a writer waits for one.
    FreeColumn,
}

/// One search: it begins with [`Search::new`] and ends when [`Selector::next`] returns `None`.
pub(crate) struct Search {
    need: Need,
    /// Columns that may still be looked at from the cursor.
    looks_left: u32,
    /// Victims of this search that could not be emptied.
    refused: usize,
    /// Victims of the policy of which nothing is left but what a least share keeps.
    shared: usize,
    stage: Stage,
}

/// Where a search looks now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// Among columns in which much has expired or was flushed.
    Expired,
    /// Among sparse columns.
    Sparse,
    /// In the policy's order.
    Policy,
    /// Nowhere any more.
    Over,
}

impl Search {
    /// A search that has not looked at any column yet.
    pub(crate) fn new(need: Need) -> Search {
        let looks_left = match need {
            Need::BeforeFreshMemory => BEFORE_FRESH_MEMORY_LOOKS,
            Need::FreeColumn | Need::Nothing => 0,
        };
        let stage = if need == Need::BeforeFreshMemory { Stage::Sparse } else { Stage::Expired };
        Search { need, looks_left, refused: 0, shared: 0, stage }
    }

    /// Whether nothing more is to be found.
    pub(crate) fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }
}

/// A column that goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Victim {
    /// The column.
    pub(crate) column: ColumnId,
    /// Whether live items in it may be evicted. Otherwise all of them are moved.
    pub(crate) may_evict: bool,
    /// Whether what a least share keeps stays in it where there is no column to move it to.
    pub(crate) heeds_shares: bool,
    chosen: Chosen,
}

impl Victim {
    /// A column whose live items are moved.
    fn to_be_moved(column: ColumnId, chosen: Chosen) -> Victim {
        Victim { column, may_evict: false, heeds_shares: true, chosen }
    }

    /// Whether its live items are packed together with those of other columns.
    pub(crate) fn is_packed(&self) -> bool {
        self.chosen == Chosen::Packed
    }

    /// Whether another column may go in its place if shares keep what it holds.
    pub(crate) fn may_stay(&self) -> bool {
        self.heeds_shares && matches!(self.chosen, Chosen::ByPolicy | Chosen::ByLot)
    }
}

/// How a victim was chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Chosen {
    /// Among the columns behind the cursor.
    AtCursor,
    /// Among the columns in which much has expired.
    Expired,
    /// Among random columns.
    BySample,
    /// By the policy, which has forgotten the column with that.
    ByPolicy,
    /// By lot, after columns that shares keep.
    ByLot,
    /// By the caller: its slab is given back, or its items were flushed.
    ByCaller,
    /// To be packed together with others.
    Packed,
}

/// What came of the pass over a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Emptied {
    /// Nothing in the column can be found any more.
    Yes,
    /// Something in the column cannot go now.
    Refused,
    /// There was no column for the items that stay.
    NoRoom,
    /// There was no column for items that a least share keeps, and all others are gone. Or the column is full of what
    /// shares keep, and nothing was done.
    Shared,
}

/// Columns that were sealed since the selector last looked. It has a lock of its own, so that no worker waits for a
/// pass.
#[derive(Default)]
pub(crate) struct SealedQueue(Mutex<Vec<ColumnId>>);

impl SealedQueue {
    /// Adds a column.
    pub(crate) fn push(&self, column: ColumnId) {
        self.0.lock().expect("no panic under this lock").push(column);
    }

    /// How many columns wait.
    pub(crate) fn len(&self) -> usize {
        self.0.lock().expect("no panic under this lock").len()
    }
}

/// Chooses columns.
pub(crate) struct Selector {
    policy: Box<dyn Temperature>,
    expired: ExpiredColumns,
    random: Random,
    /// The column that was last looked at in turn.
    cursor: u32,
}

impl Selector {
    /// A selector that knows no columns yet.
    pub(crate) fn new(policy: Box<dyn Temperature>) -> Selector {
        Selector { policy, expired: ExpiredColumns::default(), random: Random::new(RANDOM_SEED), cursor: 0 }
    }

    /// The next victim of a search, and what the pass may do with it. `None`: there is none, and the search is over.
    pub(crate) fn next(&mut self, store: &ItemStore, search: &mut Search) -> Option<Victim> {
        let found = self.next_expired(store, search);
        let found = found.or_else(|| match search.need {
            Need::Nothing => None,
            Need::BeforeFreshMemory => self.next_at_cursor(store, search, Sparse::BEFORE_FRESH_MEMORY),
            Need::FreeColumn => {
                self.next_sampled(store, search).or_else(|| self.next_by_policy(store, search))
            }
        });
        if found.is_none() {
            search.stage = Stage::Over;
        }
        found
    }

    /// Looks at some more columns for what has expired, if it is time to.
    pub(crate) fn look_for_expired(&mut self, store: &ItemStore) {
        self.expired.look(store, status);
    }

    /// The emptiest of the columns in which much has expired, if it is empty enough.
    fn next_expired(&mut self, store: &ItemStore, search: &mut Search) -> Option<Victim> {
        if search.stage != Stage::Expired {
            return None;
        }
        let is_short = search.need == Need::FreeColumn;
        let threshold =
            if is_short && is_some_over(store) { Sparse::BEFORE_EVICTION } else { Sparse::WITHOUT_NEED };
        if search.refused < SAMPLED_REFUSED_MAX
            && let Some(column) = self.expired.take(store, movable, |found| found.is_sparse(threshold))
        {
            return Some(Victim::to_be_moved(column, Chosen::Expired));
        }
        search.stage = Stage::Sparse;
        None
    }

    /// The next column in turn that is sparse by `threshold`.
    fn next_at_cursor(
        &mut self,
        store: &ItemStore,
        search: &mut Search,
        threshold: Sparse,
    ) -> Option<Victim> {
        let columns = store.memory.columns_mapped();
        search.looks_left = search.looks_left.min(columns);
        while search.looks_left > 0 && !search.is_over() {
            search.looks_left -= 1;
            self.cursor = if self.cursor + 1 < columns { self.cursor + 1 } else { 0 };
            if let Candidate::Ready(found) = status(store, ColumnId(self.cursor))
                && found.is_sparse(threshold)
            {
                return Some(Victim::to_be_moved(found.column, Chosen::AtCursor));
            }
        }
        None
    }

    /// While much of memory is dead: the cheapest of a few random columns, if it is sparse.
    fn next_sampled(&mut self, store: &ItemStore, search: &mut Search) -> Option<Victim> {
        if search.stage != Stage::Sparse {
            return None;
        }
        if search.refused < SAMPLED_REFUSED_MAX && store.is_much_dead() {
            // Random columns, because neighbours were filled at about the same time and are equally sparse.
            let columns = u64::from(store.memory.columns_mapped());
            let mut cheapest = CheapestSparse::new(Sparse::BEFORE_EVICTION);
            for _ in 0..SAMPLED_COLUMNS {
                let column = ColumnId(self.random.below(columns) as u32);
                if let Candidate::Ready(found) = movable(store, column) {
                    cheapest.offer(column, &found);
                }
            }
            if let Some(column) = cheapest.found() {
                return Some(Victim::to_be_moved(column, Chosen::BySample));
            }
        }
        search.stage = Stage::Policy;
        None
    }

    /// The policy's choice, once in a search, and again after one in which a share keeps something.
    fn next_by_policy(&mut self, store: &ItemStore, search: &mut Search) -> Option<Victim> {
        if search.stage != Stage::Policy {
            return None;
        }
        search.stage = Stage::Over;
        if search.shared % (SHARED_IN_A_ROW + 1) == SHARED_IN_A_ROW
            && let Some(column) = self.draw(store)
        {
            return Some(Victim { column, may_evict: true, heeds_shares: true, chosen: Chosen::ByLot });
        }
        let victim = self.policy.victim(&mut |column, birth| status_of(store, column, birth));
        let heeds_shares = search.shared < SHARED_MAX;
        victim.map(|column| Victim { column, may_evict: true, heeds_shares, chosen: Chosen::ByPolicy })
    }

    /// A random column, but none of hot items.
    fn draw(&mut self, store: &ItemStore) -> Option<ColumnId> {
        let columns = u64::from(store.memory.columns_mapped());
        let mut drawn = (0..DRAWN_COLUMNS).map(|_| ColumnId(self.random.below(columns) as u32));
        drawn.find(|&column| !is_hot(store, column) && matches!(status(store, column), Candidate::Ready(_)))
    }

    /// Takes note of what came of the pass over a victim of this search.
    pub(crate) fn settle(
        &mut self,
        store: &ItemStore,
        search: &mut Search,
        victim: Victim,
        emptied: Emptied,
    ) {
        let column = victim.column;
        search.refused += usize::from(emptied == Emptied::Refused);
        match (victim.chosen, emptied) {
            (_, Emptied::Yes) | (Chosen::ByCaller | Chosen::Packed, _) => {}
            // The policy knows it still.
            (Chosen::ByLot, _) => {
                search.shared += 1;
                search.stage = Stage::Policy;
            }
            (Chosen::ByPolicy, Emptied::Refused) => self.sealed(store, column),
            (_, Emptied::Shared) => {
                self.sealed(store, column);
                search.shared += 1;
                search.stage = Stage::Policy;
            }
            // The column is next again when the columns that are on their way back have come.
            (Chosen::ByPolicy, Emptied::NoRoom) => {
                self.policy.put_back(column, store.memory.column(column).birth(), queue_of(store, column));
            }
            (Chosen::Expired | Chosen::BySample, Emptied::Refused) => {
                if store.memory.available_columns() == 0 {
                    // Nothing can be moved without a column to move it to.
                    search.stage = Stage::Policy;
                } else {
                    note_unmovable(store, column);
                }
            }
            (Chosen::AtCursor, Emptied::Refused) => {
                if search.need == Need::BeforeFreshMemory && search.refused > BEFORE_FRESH_MEMORY_REFUSED_MAX
                {
                    search.stage = Stage::Over;
                }
            }
            (Chosen::Expired | Chosen::AtCursor | Chosen::BySample, Emptied::NoRoom) => {
                search.stage = Stage::Over;
            }
        }
    }

    /// A column that the caller chose: its slab is given back, or its items were flushed.
    pub(crate) fn chosen_by_caller(column: ColumnId, may_evict: bool) -> Victim {
        Victim { column, may_evict, heeds_shares: true, chosen: Chosen::ByCaller }
    }

    /// A column whose live items are packed together with those of others.
    pub(crate) fn to_be_packed(column: ColumnId) -> Victim {
        Victim::to_be_moved(column, Chosen::Packed)
    }

    /// Tells the policy of the columns that were sealed since. When the policy knows noticeably more columns than there
    /// are, it forgets those that went without being its choice: it decides by how many columns its queues have.
    pub(crate) fn learn_sealed(&mut self, store: &ItemStore, queue: &SealedQueue) {
        for column in queue.0.lock().expect("no panic under this lock").drain(..) {
            self.policy.sealed(column, store.memory.column(column).birth(), queue_of(store, column));
        }
        let there = store.memory.columns_mapped() as usize;
        if self.policy.columns() > there + there / GONE_SHARE {
            self.policy.forget_gone(&mut |column, birth| status_of(store, column, birth));
        }
        store.want_new_columns(self.policy.correlated_columns());
    }

    /// Tells the policy of one sealed column.
    pub(crate) fn sealed(&mut self, store: &ItemStore, column: ColumnId) {
        self.policy.sealed(column, store.memory.column(column).birth(), queue_of(store, column));
    }

    /// Appends the policy's verdict on each live item of a victim, by the present options of worth. The items that are
    /// kept are within `bounds`.
    pub(crate) fn judge(
        &mut self,
        store: &ItemStore,
        queue: Queue,
        items: &[Judged],
        bounds: ColumnBounds,
        verdicts: &mut Vec<Verdict>,
    ) {
        self.policy.set_worth(store.worth.get());
        self.policy.judge(queue, items, bounds, verdicts);
    }

    /// Tells the policy of items that stay although it judged them to be evicted.
    pub(crate) fn spare<'a>(&mut self, queue: Queue, items: impl Iterator<Item = &'a Judged>) {
        items.for_each(|item| self.policy.spare(queue, item));
    }

    /// Hands a page of references to the policy, which may sample items of the cache at random.
    pub(crate) fn refer(&mut self, references: &[Reference], store: &ItemStore, guard: Guard<'_>) {
        let mut sampler = IndexSampler::new(store, guard, &mut self.random);
        self.policy.refer(references, &mut sampler);
    }

    /// Sizes what the policy keeps about items for `items` of them. Returns the digest below which it wants references.
    pub(crate) fn fit(&mut self, items: u64) -> u32 {
        self.policy.fit(items);
        self.policy.wanted_below()
    }

    /// Bytes of what the policy keeps about items, when it is fitted to `items`.
    pub(crate) fn bytes_for(&self, items: u64) -> u64 {
        self.policy.bytes_for(items)
    }

    /// The policy's statistics.
    pub(crate) fn stats(&self) -> TemperatureStats {
        self.policy.stats()
    }
}

/// Whether so much has expired or was flushed that nothing live need be evicted.
fn is_some_over(store: &ItemStore) -> bool {
    store.over_bytes() > store.used_bytes() / SOME_OVER_SHARE
}

/// A column could not be emptied: unless that is because of a pin, which passes, for it means that a large value is
/// being sent, it is not tried again.
pub(crate) fn note_unmovable(store: &ItemStore, column: ColumnId) {
    if !store.memory.column(column).is_pinned() {
        store.memory.column(column).group.fetch_or(HOLDS_UNMOVABLE, Ordering::Relaxed);
    }
}

/// Whether a column may go, and its snapshot.
pub(crate) fn status(store: &ItemStore, column: ColumnId) -> Candidate {
    let found = store.memory.column(column);
    if found.state() != ColumnState::Sealed {
        Candidate::Gone
    } else if found.is_pinned() {
        Candidate::Later
    } else {
        // A column from before a flush may hold chunks of a value that was stored after it.
        let is_flushed = found.birth() < store.floors.flush() && group(store, column) & HOLDS_UNMOVABLE == 0;
        let expired = found.expired_bytes(store.clock.now_s());
        let live = if is_flushed { 0 } else { found.live_bytes().saturating_sub(expired) };
        Candidate::Ready(ColumnStatus {
            column,
            live_bytes: u64::from(live),
            column_bytes: store.column_bytes(),
        })
    }
}

/// As [`status`], for a search whose victims are emptied by moving what is live.
pub(crate) fn movable(store: &ItemStore, column: ColumnId) -> Candidate {
    match status(store, column) {
        Candidate::Ready(found)
            if !found.is_sparse(Sparse::EMPTY) && group(store, column) & HOLDS_UNMOVABLE != 0 =>
        {
            Candidate::Later
        }
        other => other,
    }
}

/// As [`status`], of the use of the column that began with `birth`.
fn status_of(store: &ItemStore, column: ColumnId, birth: u64) -> Candidate {
    if store.memory.column(column).birth() == birth { status(store, column) } else { Candidate::Gone }
}

#[inline]
fn group(store: &ItemStore, column: ColumnId) -> u16 {
    store.memory.column(column).group.load(Ordering::Relaxed)
}

/// The queue that a column belongs to.
pub(crate) fn queue_of(store: &ItemStore, column: ColumnId) -> Queue {
    if group(store, column) & MAIN_GROUP != 0 { Queue::Main } else { Queue::Probation }
}

/// Whether a column is one of those that hot items are moved to.
pub(crate) fn is_hot(store: &ItemStore, column: ColumnId) -> bool {
    group(store, column) & HOT != 0
}

/// Says that a new column is for hot items.
pub(crate) fn set_hot(store: &ItemStore, column: &OpenColumn) {
    store.memory.column(column.id()).group.store(MAIN_GROUP | HOT, Ordering::Relaxed);
}

/// Says which queue a new column belongs to.
pub(crate) fn set_queue(store: &ItemStore, column: &OpenColumn, queue: Queue) {
    let group = match queue {
        Queue::Probation => 0,
        Queue::Main => MAIN_GROUP,
    };
    store.memory.column(column.id()).group.store(group, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache_options::CacheOptions;
    use crate::column_group::CORRELATED;
    use crate::temperature::TemperatureKind;
    use larder_index::{Entry, HoldsKey};
    use larder_item::{Expiry, Kind, Location, State};
    use larder_memory::{NewItem, NodeId, PagesWanted};

    const COLUMN_BYTES: u32 = 32 << 10;
    const ITEM_BYTES: usize = 1000;

    fn store() -> ItemStore {
        let options = CacheOptions {
            limit_bytes: 16 << 20,
            workers: 1,
            pages: PagesWanted::Small,
            column_bytes: Some(COLUMN_BYTES),
            ..CacheOptions::default()
        };
        ItemStore::new(&options, None, 0).expect("a small store can be made")
    }

    fn new_item(expiry: Expiry) -> NewItem<'static> {
        let value: [&[u8]; 2] = [&[0; ITEM_BYTES], &[]];
        let state = State::at(2, 0);
        NewItem { key: b"key", value, flags: 0, expiry, cas: 1, state, kind: Kind::Text }
    }

    /// Fills and seals a column of which about `live_eighths` eighths are live, and tells the selector of it.
    fn column(store: &ItemStore, selector: &mut Selector, live_eighths: u32) -> ColumnId {
        let mut open = store.take_column_near(NodeId::default(), 0).expect("a free column");
        let item = new_item(Expiry::NEVER);
        while open.place(&item).is_some() {}
        let id = open.seal_at(2);
        let found = store.memory.column(id);
        let stored = found.live_bytes();
        found.died(stored - stored / 8 * live_eighths, Expiry::NEVER);
        let counters = store.counters.keeper();
        counters.bytes_stored.add(stored.into());
        counters.bytes_died.add((stored - found.live_bytes()).into());
        selector.sealed(store, id);
        id
    }

    fn selector() -> Selector {
        Selector::new(TemperatureKind::OFF.build())
    }

    /// The next victim of a new search, and whether live items in it may be evicted.
    fn first(selector: &mut Selector, store: &ItemStore, need: Need) -> Option<(ColumnId, bool)> {
        selector.next(store, &mut Search::new(need)).map(|victim| (victim.column, victim.may_evict))
    }

    #[test]
    fn while_little_is_dead_the_policy_chooses_and_items_may_be_evicted() {
        let (store, mut selector) = (store(), selector());
        let columns: Vec<_> = (0..40).map(|_| column(&store, &mut selector, 8)).collect();
        assert!(!store.is_much_dead());
        assert_eq!(first(&mut selector, &store, Need::FreeColumn), Some((columns[0], true)));
        assert_eq!(first(&mut selector, &store, Need::BeforeFreshMemory), None);
    }

    #[test]
    fn while_much_is_dead_sparse_columns_go_and_nothing_is_evicted() {
        let (store, mut selector) = (store(), selector());
        let columns: Vec<_> =
            (0..40).map(|n| column(&store, &mut selector, if n == 30 { 0 } else { 4 })).collect();
        assert!(store.is_much_dead());
        let (_, may_evict) = first(&mut selector, &store, Need::FreeColumn).expect("sparse columns");
        assert!(!may_evict);
        assert_eq!(first(&mut selector, &store, Need::BeforeFreshMemory), Some((columns[30], false)));
    }

    /// Fills and seals a column of which `eighths` eighths expire at `expiry`.
    fn expiring(store: &ItemStore, selector: &mut Selector, eighths: usize, expiry: Expiry) -> ColumnId {
        let mut open = store.take_column_near(NodeId::default(), 0).expect("a free column");
        let mut placed = 0;
        loop {
            let expiry = if placed % 8 < eighths { expiry } else { Expiry::NEVER };
            let item = new_item(expiry);
            if open.place(&item).is_none() {
                break;
            }
            placed += 1;
        }
        let id = open.seal_at(2);
        store.counters.keeper().bytes_stored.add(store.memory.column(id).live_bytes().into());
        selector.sealed(store, id);
        id
    }

    #[test]
    fn what_has_expired_goes_first_and_the_emptiest_of_it_before_the_rest() {
        let (store, mut selector) = (store(), selector());
        store.clock.hold();
        let soon = Expiry::at_s(store.clock.now_s() + 8);
        for _ in 0..60 {
            expiring(&store, &mut selector, 0, soon);
        }
        let expiring = [2, 8, 5].map(|eighths| expiring(&store, &mut selector, eighths, soon));
        selector.look_for_expired(&store);
        assert_eq!(first(&mut selector, &store, Need::Nothing), None, "nothing has expired");
        store.clock.shift(12);
        assert_eq!(first(&mut selector, &store, Need::Nothing), None, "nobody has looked");
        selector.look_for_expired(&store);
        assert_eq!(first(&mut selector, &store, Need::Nothing), Some((expiring[1], false)));
        assert_eq!(first(&mut selector, &store, Need::Nothing), None, "too much is live in the others");
        assert_eq!(first(&mut selector, &store, Need::FreeColumn), Some((expiring[2], false)));
        assert!(first(&mut selector, &store, Need::FreeColumn).is_some_and(|(_, may_evict)| may_evict));
    }

    #[test]
    fn a_victim_of_the_policy_that_stays_is_known_to_the_policy_again() {
        let (store, mut selector) = (store(), selector());
        let columns: Vec<_> = (0..3).map(|_| column(&store, &mut selector, 8)).collect();
        let mut take = |emptied| {
            let mut search = Search::new(Need::FreeColumn);
            let victim = selector.next(&store, &mut search).expect("a column");
            selector.settle(&store, &mut search, victim, emptied);
            assert!(selector.next(&store, &mut search).is_none(), "the policy is asked once in a search");
            victim.column
        };
        // Without room the same column is next; a column that was refused is last.
        assert_eq!(take(Emptied::NoRoom), columns[0]);
        assert_eq!(take(Emptied::Refused), columns[0]);
        assert_eq!(take(Emptied::Yes), columns[1]);
        assert_eq!(take(Emptied::Yes), columns[2]);
        assert_eq!(take(Emptied::Yes), columns[0]);
    }

    #[test]
    fn reads_and_overwrites_do_not_count_in_the_columns_of_new_items_that_were_opened_last() {
        let (store, mut selector) = (store(), selector());
        let take = || {
            let taken = store.take_column(NodeId::default(), 0, 0, store.counters.keeper());
            let mut open = taken.expect("a free column");
            let at = open.place(&new_item(Expiry::NEVER)).expect("room for an item");
            (open, at)
        };
        let (_, before) = take();
        store.want_new_columns(2);
        let columns = [take(), take(), take()];
        let counts = |at: Location| {
            let reader = store.memory.register();
            let counts = store.key_reader(&reader.pin()).reads_count(at);
            let entry = |warmth| Entry { location: at, warmth };
            assert_eq!(store.warmer(&entry(1)), if counts { 2 } else { 1 });
            assert_eq!(store.warmer(&entry(3)), 3);
            counts
        };
        assert!(counts(before), "no column was wanted then");
        assert_eq!([0, 1, 2].map(|nth: usize| counts(columns[nth].1)), [true, false, false]);
        let survivors = store.take_column_near(NodeId::default(), 0).expect("a free column");
        set_queue(&store, &survivors, Queue::Main);
        assert_eq!(group(&store, survivors.id()) & CORRELATED, 0, "of items that stay");
        // The policy of these tests knows no bursts: the period of all columns ends when it is asked.
        selector.learn_sealed(&store, &SealedQueue::default());
        assert!(columns.iter().all(|(_, at)| counts(*at)));
    }

    #[test]
    fn after_a_column_that_a_share_keeps_another_one_goes_and_in_the_end_one_as_a_whole() {
        let (store, mut selector) = (store(), selector());
        let columns: Vec<_> = (0..3).map(|_| column(&store, &mut selector, 8)).collect();
        let mut search = Search::new(Need::FreeColumn);
        let (mut in_order, mut by_lot) = (0, 0);
        for nth in 0..=SHARED_MAX {
            let victim = selector.next(&store, &mut search).expect("the policy is asked again");
            if victim.chosen == Chosen::ByLot {
                assert_eq!(nth % (SHARED_IN_A_ROW + 1), SHARED_IN_A_ROW, "after four in a row");
                by_lot += 1;
            } else {
                assert_eq!(victim.column, columns[in_order % columns.len()]);
                in_order += 1;
            }
            assert_eq!(victim.heeds_shares, nth < SHARED_MAX);
            let emptied = if victim.heeds_shares { Emptied::Shared } else { Emptied::Refused };
            selector.settle(&store, &mut search, victim, emptied);
        }
        assert!(by_lot > 0, "of {} draws", SHARED_MAX / (SHARED_IN_A_ROW + 1));
        assert!(selector.next(&store, &mut search).is_none());
    }

    #[test]
    fn a_sampled_column_that_holds_something_unmovable_is_not_sampled_again() {
        let (store, mut selector) = (store(), selector());
        let columns: Vec<_> = (0..40).map(|_| column(&store, &mut selector, 4)).collect();
        let mut search = Search::new(Need::FreeColumn);
        let mut refused = Vec::new();
        while let Some(victim) = selector.next(&store, &mut search) {
            if victim.may_evict {
                break;
            }
            assert!(!refused.contains(&victim.column));
            selector.settle(&store, &mut search, victim, Emptied::Refused);
            refused.push(victim.column);
        }
        assert_eq!(refused.len(), SAMPLED_REFUSED_MAX, "then the policy is asked");
        assert!(columns.len() > refused.len());
    }
}
