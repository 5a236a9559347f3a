//! The pass over one column: every item in it is dropped, moved or evicted.
//!
//! The pass reads the key rows of the column, 32 records at a time. Dead, expired and flushed items are dropped. If
//! the victim may be evicted, the policy judges its live items together: those that stay are moved to the keeper's
//! own open column, the others are evicted. Otherwise all live items are moved. `chunks.rs` has what becomes of large
//! values. A move replaces, under the bucket's writer bit, exactly the entry that pointed at the old record. If the
//! entry points elsewhere by then, a writer has replaced the item and there is nothing to do. After the pass nothing in
//! the column can be found, and the column is reused once every worker has passed a quiescent point.

mod chunks;
mod forms;

pub(super) use forms::Forms;

use super::survivors::{Survivors, Zone};
use super::time_slice::TimeSlice;
use crate::counters::Counters;
use crate::demoter::{Leaving, Levels, SentParts};
use crate::flash_note::FlashNote;
use crate::item_store::{ItemStore, Life, first_chunk};
use crate::namespaces::{Standing, Standings};
use crate::penalties::remembered;
use crate::selector::{Emptied, Selector, Victim, is_hot, queue_of};
use crate::temperature::{Judged, KeepLimit, Queue, Verdict};
use forms::Form;
use larder_allocation::ColumnBounds;
use larder_index::{BucketGuard, Found};
use larder_item::{Expiry, KeyHash, Location, State};
use larder_memory::{
    ColumnId, Compressed, Guard, Item, NewChunked, NewItem, OpenColumn, Reader, Record, Value,
};
use std::sync::Arc;

/// Records whose buckets are prefetched together before the first of them is judged.
const PREFETCHED_TOGETHER: usize = 32;
/// Records between two looks at whether the time slice is over.
const RECORDS_PER_LOOK: usize = 8;
/// Items that expire within an hour are not moved to the columns of hot items.
const EXPIRES_SOON_S: u32 = 3600;

/// What every pass needs.
pub(super) struct Pass {
    reader: Reader,
    survivors: Survivors,
    /// Columns that the last pass moved chunks of large values from.
    thinned: Vec<ColumnId>,
    /// Records of the present column. The vectors are kept for their memory.
    met: Vec<Met>,
    judged: Vec<Judged>,
    judgement: Judgement,
    /// How copies are written.
    pub(super) forms: Forms,
}

/// What is to become of the live items of a column.
#[derive(Default)]
struct Judgement {
    keep_limit: KeepLimit,
    verdicts: Vec<Verdict>,
    /// What shares have to do with the live items; empty if nothing.
    shares: Vec<Share>,
    unfinished: Option<Unfinished>,
}

/// A column that was judged, and for some of whose items there was no room: the policy is not asked about it again, for
/// it would remember the same items as evicted twice.
struct Unfinished {
    column: ColumnId,
    birth: u64,
    /// The policy's verdicts, in the order of the locations.
    verdicts: Vec<(Location, Verdict)>,
}

impl Unfinished {
    /// The verdict on a live item, which was judged then.
    fn verdict(&self, at: Location) -> Verdict {
        let known = self.verdicts.binary_search_by_key(&at.bits(), |(at, _)| at.bits());
        known.map_or(Verdict::Evict, |nth| self.verdicts[nth].1)
    }
}

/// What the shares of namespaces have to do with an item.
#[derive(Clone, Copy, Default)]
struct Share {
    /// It goes, whatever the verdict: its namespace has more than its most.
    goes: bool,
    /// It stays, whatever the verdict. Once there are verdicts: the verdict was to evict, and is not because of this.
    is_spared: bool,
    /// A least share keeps it.
    is_kept: bool,
}

impl Share {
    fn of(standings: &Standings, key: &[u8]) -> Share {
        match standings.of(key) {
            Standing::Above => Share { goes: true, ..Share::default() },
            Standing::Below => Share { is_spared: true, is_kept: true, ..Share::default() },
            // While those that have more than their most have much, all others are spared.
            Standing::Within => Share { is_spared: standings.others_give(), ..Share::default() },
        }
    }
}

/// A record that the pass has met.
#[derive(Clone, Copy)]
struct Met {
    at: Location,
    hash: KeyHash,
    kind: MetKind,
}

/// What kind of record it is.
#[derive(Clone, Copy)]
enum MetKind {
    /// A chunk of a large value. The hash is that of the owner's key.
    Chunk,
    /// An item that has expired or was flushed.
    Over,
    /// A live item, and the number of its verdict.
    Live(u32),
}

impl Pass {
    /// A pass over columns of `store` that reads through `reader`.
    pub(super) fn new(store: &ItemStore, mut reader: Reader, note: Option<Arc<FlashNote>>) -> Pass {
        reader.offline();
        Pass {
            forms: Forms::new(store, note),
            reader,
            survivors: Survivors::default(),
            thinned: Vec::new(),
            met: Vec::new(),
            judged: Vec::new(),
            judgement: Judgement::default(),
        }
    }

    /// Runs `f` with a guard on the memory.
    pub(super) fn with_guard<T>(&mut self, f: impl FnOnce(Guard<'_>) -> T) -> T {
        self.reader.online();
        let result = f(self.reader.pin());
        self.reader.offline();
        result
    }

    /// Bytes that are free in the column that items of all kinds are packed in.
    pub(super) fn packed_free_bytes(&self) -> u64 {
        self.survivors.packed_free_bytes()
    }

    /// Calls `f` with each column that the last pass moved chunks of large values from.
    pub(super) fn each_thinned(&mut self, f: impl FnMut(ColumnId)) {
        self.thinned.sort_unstable();
        self.thinned.dedup();
        self.thinned.drain(..).for_each(f);
    }

    /// Ends a column that is being filled with survivors, so that it can be reclaimed as others are.
    pub(super) fn stop_filling(&mut self, store: &ItemStore, selector: &mut Selector, column: ColumnId) {
        self.survivors.stop_filling(store, column, |column| selector.sealed(store, column));
    }

    /// Seals columns of survivors that expire, if they were opened long ago.
    pub(super) fn seal_old(&mut self, store: &ItemStore, selector: &mut Selector) {
        self.survivors.seal_old(store, |column| selector.sealed(store, column));
    }

    /// Seals the columns of survivors that were born before `birth`.
    pub(super) fn seal_below(&mut self, store: &ItemStore, selector: &mut Selector, birth: u64) {
        self.survivors.seal_below(store, birth, |column| selector.sealed(store, column));
    }

    /// Empties a column, and retires it if nothing has to stay in it.
    pub(super) fn empty(
        &mut self,
        levels: Levels<'_>,
        selector: &mut Selector,
        victim: Victim,
        slice: &mut TimeSlice,
    ) -> Emptied {
        let store = levels.store;
        let counters = store.counters.keeper();
        let worked_before = slice.worked();
        self.reader.online();
        self.thinned.clear();
        let emptied = self.empty_column(levels, selector, victim, slice, counters);
        if emptied == Emptied::NoRoom && victim.may_evict {
            self.judgement.keep(store, victim.column, &self.met);
        }
        if emptied == Emptied::Yes {
            store.memory.retire(victim.column);
            counters.columns_reclaimed.add(1);
        }
        self.reader.offline();
        counters.pass_ns.add((slice.worked() - worked_before).as_nanos() as u64);
        emptied
    }

    fn empty_column(
        &mut self,
        levels: Levels<'_>,
        selector: &mut Selector,
        victim: Victim,
        slice: &mut TimeSlice,
        counters: &Counters,
    ) -> Emptied {
        let Pass { reader, survivors, thinned, met, judged, judgement, forms } = self;
        let (store, column, may_evict) = (levels.store, victim.column, victim.may_evict);
        let guard = reader.pin();
        if !meet(store, &guard, column, met, judged) {
            return Emptied::Refused;
        }
        judgement.clear();
        // The policy remembers an item that it judged to be evicted. Where no item can leave now, it is not asked.
        if may_evict && !judged.is_empty() && !levels.can_evict() {
            return Emptied::NoRoom;
        }
        let queue = queue_of(store, column);
        if may_evict {
            if store.namespaces.are_on() {
                let standings = store.namespaces.standings(store.memory.limit_bytes());
                judgement.shares.extend(live(met).map(|at| Share::of(&standings, guard.item(at).key())));
            }
            // The policy is not asked about a column that stays: it would remember items as evicted that are not.
            if victim.may_stay()
                && queue == Queue::Probation
                && is_full_of_spared(judged, &judgement.shares, store.column_bytes())
            {
                return Emptied::Shared;
            }
            judgement.decide(store, selector, column, met, judged);
        } else {
            let kept = judged.iter().map(|item| Verdict::Keep { warmth: item.warmth });
            judgement.verdicts.extend(kept);
        }
        let to = MovesTo::of(victim, queue, || is_hot(store, column));
        let is_pressed = may_evict || victim.is_packed();
        let forms_of = (is_pressed && store.compression.setting.is_on()).then_some(queue);
        forms.meet(store, slice, live(met).filter(|_| forms_of.is_some()).map(|at| guard.item(at)));
        let mut settle = Settle {
            levels,
            selector,
            guard: &guard,
            may_evict,
            is_kept: false,
            survivors,
            thinned,
            to,
            forms,
            form: Form::Same,
            counters,
        };
        let (mut has_time, mut emptied) = (false, Emptied::Yes);
        for (nth, met) in met.iter().enumerate() {
            if nth % RECORDS_PER_LOOK == 0 {
                // While a writer will soon have to wait, there is no pause.
                slice.yield_if_due(|| store.memory.available_columns() > store.free_columns_low());
                has_time = !slice.is_for_writer() && !store.has_waiting_writers();
                // Each item that flash does not take may need an invalidation.
                levels.wait_for_invalidations(counters);
                if may_evict && (!levels.can_evict() || levels.holds_back()) {
                    return Emptied::NoRoom;
                }
            }
            settle.form = Form::Same;
            let settled = match met.kind {
                MetKind::Chunk => settle.chunk(met),
                MetKind::Over => settle.item(met, Verdict::Evict),
                MetKind::Live(nth) => {
                    let nth = nth as usize;
                    let share = judgement.shares.get(nth).copied().unwrap_or_default();
                    settle.to = if share.is_spared { MovesTo::Queue(Queue::Probation) } else { to };
                    settle.is_kept = share.is_kept && victim.heeds_shares;
                    let (verdict, of) =
                        (judgement.verdicts[nth], forms_of.map(|of| (of, judged[nth].warmth)));
                    settle.choose_form(met, verdict, of, has_time);
                    settle.item(met, verdict)
                }
            };
            match settled {
                Emptied::Yes => {}
                // What else is in the column goes all the same.
                Emptied::Shared => emptied = Emptied::Shared,
                Emptied::Refused | Emptied::NoRoom => return settled,
            }
        }
        emptied
    }
}

impl Pass {
    /// Moves single items whose entries were seen at these locations. Returns how many it moved. It stops where there
    /// is no room, and says so.
    pub(super) fn move_items(
        &mut self,
        levels: Levels<'_>,
        selector: &mut Selector,
        to: MovesTo,
        seen: &[(Location, u8)],
    ) -> (usize, bool) {
        let (store, counters) = (levels.store, levels.store.counters.keeper());
        let Pass { reader, survivors, thinned, forms, .. } = self;
        let guard = reader.pin();
        seen.iter().for_each(|(at, _)| guard.prefetch(*at));
        let (may_evict, is_kept) = (false, false);
        let form = Form::Same;
        let mut settle = Settle {
            levels,
            selector,
            guard: &guard,
            may_evict,
            is_kept,
            survivors,
            thinned,
            to,
            forms,
            form,
            counters,
        };
        let (moved_before, mut is_stuck) = (counters.moved.get(), false);
        for (at, warmth) in seen {
            let item = guard.item(*at);
            let stays =
                to == MovesTo::Hot && expires_soon(store, item.expiry()) || first_chunk(&item).is_some();
            let is_movable = !stays && may_be_found(&guard, *at, &Record::Item(item));
            if is_movable && store.life(*at, &item) == Life::Live {
                let met = Met { at: *at, hash: store.hasher.hash(item.key()), kind: MetKind::Live(0) };
                is_stuck = settle.item(&met, Verdict::Keep { warmth: *warmth }) != Emptied::Yes;
                if is_stuck {
                    break;
                }
            }
        }
        ((counters.moved.get() - moved_before) as usize, is_stuck)
    }

    /// Begins to read entries and records, until [`Pass::offline`].
    pub(super) fn online(&mut self) {
        self.reader.online();
    }

    /// Ends what [`Pass::online`] began.
    pub(super) fn offline(&mut self) {
        self.reader.offline();
    }

    /// Gives up columns that were taken for hot items and hold none.
    pub(super) fn give_up_hot(&mut self, store: &ItemStore, selector: &mut Selector) {
        self.survivors.give_up_hot(store, |column| selector.sealed(store, column));
    }
}

impl Judgement {
    /// Forgets the last column, unless it is unfinished.
    fn clear(&mut self) {
        self.verdicts.clear();
        self.shares.clear();
    }

    /// Asks the policy about the items of a column, and heeds shares. What was asked before, and found no room, is not
    /// asked again.
    fn decide(
        &mut self,
        store: &ItemStore,
        selector: &mut Selector,
        column: ColumnId,
        met: &[Met],
        judged: &[Judged],
    ) {
        let Judgement { keep_limit, verdicts, shares, unfinished } = self;
        let (birth, column_bytes) = (store.memory.column(column).birth(), store.column_bytes());
        if let Some(known) = unfinished.take_if(|known| (known.column, known.birth) == (column, birth)) {
            let live = met.iter().filter(|met| matches!(met.kind, MetKind::Live(_)));
            verdicts.extend(live.map(|met| known.verdict(met.at)));
            return heed_shares(verdicts, shares);
        }
        let queue = queue_of(store, column);
        let bounds = ColumnBounds { column_bytes, keep_bytes_max: keep_limit.keep_bytes_max(column_bytes) };
        selector.judge(store, queue, judged, bounds, verdicts);
        heed_shares(verdicts, shares);
        let spared = judged.iter().zip(shares.iter()).filter(|(_, share)| share.is_spared);
        selector.spare(queue, spared.map(|(item, _)| item));
        let kept = judged.iter().zip(verdicts.iter()).filter(|(_, verdict)| **verdict != Verdict::Evict);
        keep_limit.note_kept(kept.map(|(item, _)| u64::from(item.bytes)).sum(), column_bytes);
    }

    /// Keeps the verdicts on the items of a column, for some of which there was no room.
    fn keep(&mut self, store: &ItemStore, column: ColumnId, met: &[Met]) {
        if self.verdicts.is_empty() {
            return;
        }
        let live = met.iter().filter_map(|met| match met.kind {
            MetKind::Live(nth) => {
                let is_spared = self.shares.get(nth as usize).is_some_and(|share| share.is_spared);
                Some((met.at, if is_spared { Verdict::Evict } else { self.verdicts[nth as usize] }))
            }
            _ => None,
        });
        let mut verdicts: Vec<_> = live.collect();
        verdicts.sort_unstable_by_key(|(at, _)| at.bits());
        let birth = store.memory.column(column).birth();
        self.unfinished = Some(Unfinished { column, birth, verdicts });
    }
}

/// Whether an item stays where it expires together with its neighbours.
fn expires_soon(store: &ItemStore, expiry: Expiry) -> bool {
    expiry != Expiry::NEVER && expiry.seconds().saturating_sub(store.clock.now_s()) < EXPIRES_SOON_S
}

/// Carries what shares say over to the verdicts.
fn heed_shares(verdicts: &mut [Verdict], shares: &mut [Share]) {
    for (verdict, share) in verdicts.iter_mut().zip(shares) {
        share.is_spared &= *verdict == Verdict::Evict;
        if share.goes {
            *verdict = Verdict::Evict;
        } else if share.is_spared {
            *verdict = Verdict::Keep { warmth: 0 };
        }
    }
}

/// Whether a column is full of what shares keep. To move all that would give no room.
fn is_full_of_spared(judged: &[Judged], shares: &[Share], column_bytes: u64) -> bool {
    let spared = judged.iter().zip(shares).filter(|(_, share)| share.is_spared);
    spared.map(|(item, _)| u64::from(item.bytes)).sum::<u64>() * 4 >= column_bytes * 3
}

/// Reads the key rows of a column into `met`, and its live items into `judged`. Returns false if the column cannot be
/// read now.
fn meet(
    store: &ItemStore,
    guard: &Guard<'_>,
    column: ColumnId,
    met: &mut Vec<Met>,
    judged: &mut Vec<Judged>,
) -> bool {
    met.clear();
    judged.clear();
    store.counters.learn_unknown_penalty();
    let unknown = store.counters.unknown_penalty();
    let records = store.memory.records(guard, column);
    // A large value may have begun to be sent since the column was chosen.
    if records.is_refused() {
        return false;
    }
    let mut findable = records.filter(|(at, record)| may_be_found(guard, *at, record));
    loop {
        let ahead = met.len();
        for (at, record) in findable.by_ref().take(PREFETCHED_TOGETHER) {
            let (hash, kind) = match record {
                Record::Item(item) if store.life(at, &item) == Life::Live => {
                    let nth = judged.len() as u32;
                    let hash = store.hasher.hash(item.key());
                    let subclass = remembered(item.state()).unwrap_or(unknown);
                    judged.push(Judged { hash, warmth: 0, bytes: item.bytes(), subclass });
                    (hash, MetKind::Live(nth))
                }
                Record::Item(item) => (store.hasher.hash(item.key()), MetKind::Over),
                Record::Chunk(chunk) => (chunk.owner, MetKind::Chunk),
            };
            store.index.prefetch(hash);
            met.push(Met { at, hash, kind });
        }
        if met.len() == ahead {
            return true;
        }
        for met in &met[ahead..] {
            if let MetKind::Live(nth) = met.kind {
                // An entry that is being moved at this moment counts as cold.
                judged[nth as usize].warmth = store.index.warmth_at(met.hash, met.at).unwrap_or(0);
            }
        }
    }
}

/// Whether an entry may lead to the record, or to the owner of the chunk.
fn may_be_found(guard: &Guard<'_>, at: Location, record: &Record<'_>) -> bool {
    let item = if let Record::Item(item) = record { *item } else { guard.item(at) };
    !item.state().has(State::DEAD)
}

/// Carries out the verdicts on the records of one column.
struct Settle<'a, 'g> {
    levels: Levels<'a>,
    selector: &'a mut Selector,
    guard: &'a Guard<'g>,
    /// Whether live items may be evicted. Otherwise all of them are moved.
    may_evict: bool,
    /// A least share keeps the item: where there is no column for it, it stays where it is.
    is_kept: bool,
    survivors: &'a mut Survivors,
    thinned: &'a mut Vec<ColumnId>,
    /// Where the item goes. What a share alone keeps goes to the end of probation: were it to stay in the main queue, a
    /// policy that finds that queue too long would meet it again and again, and gain nothing.
    to: MovesTo,
    forms: &'a mut Forms,
    /// How a copy of the item is written.
    form: Form,
    counters: &'a Counters,
}

/// Where items go that are moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum MovesTo {
    /// To the columns of a queue.
    Queue(Queue),
    /// To the columns of hot items.
    Hot,
    /// To the column that items of all kinds are packed in.
    Packed,
}

impl MovesTo {
    /// Where the items of a column of `queue` go. Those that a policy kept go on to the main queue; those that are only
    /// moved stay in their own.
    fn of(victim: Victim, queue: Queue, is_hot: impl FnOnce() -> bool) -> MovesTo {
        match victim.may_evict {
            true => MovesTo::Queue(Queue::Main),
            false if victim.is_packed() => MovesTo::Packed,
            false if is_hot() => MovesTo::Hot,
            false => MovesTo::Queue(queue),
        }
    }
}

/// Where the live items are that a pass has met.
fn live(met: &[Met]) -> impl Iterator<Item = Location> {
    met.iter().filter(|met| matches!(met.kind, MetKind::Live(_))).map(|met| met.at)
}

impl Settle<'_, '_> {
    /// Chooses how an item `of` a queue and a warmth is to be written, where it stays or where it goes; `None` = as it
    /// is.
    fn choose_form(&mut self, met: &Met, verdict: Verdict, of: Option<(Queue, u8)>, has_time: bool) {
        let (store, item) = (self.levels.store, self.guard.item(met.at));
        self.form = match (verdict, of) {
            (Verdict::Keep { .. }, Some(of)) => self.forms.of(store, &item, of, has_time, self.counters),
            (Verdict::Evict, Some(_)) if self.levels.demoter.is_some() && has_time => {
                self.forms.of_leaving(store, &item, self.counters)
            }
            _ => Form::Same,
        };
    }

    /// Carries out the verdict on one item. Any result but [`Emptied::Yes`] says why the item must stay where it is.
    fn item(&mut self, met: &Met, verdict: Verdict) -> Emptied {
        let Levels { store, .. } = self.levels;
        let (guard, counters) = (self.guard, self.counters);
        let parts = match verdict {
            Verdict::Evict => self.levels.send_parts(guard, met.hash, met.at, counters),
            Verdict::Keep { .. } => SentParts::None,
        };
        let mut bucket = store.index.lock(met.hash);
        let Some(found) = bucket.find_at(met.at) else { return Emptied::Yes };
        let item = guard.item(met.at);
        let mut life = store.life(met.at, &item);
        let verdict = match verdict {
            Verdict::Evict if life == Life::Live && !store.leaving.may_lose() => {
                let warmth = found.entry.warmth;
                let leaving =
                    Leaving { hash: met.hash, at: met.at, warmth, parts, compressed: self.compressed() };
                if self.levels.leave_for_flash(guard, &leaving, counters) {
                    self.forget(bucket, &found, life);
                    return Emptied::Yes;
                }
                Verdict::Keep { warmth }
            }
            verdict => verdict,
        };
        if let Verdict::Keep { warmth } = verdict
            && life == Life::Live
        {
            let copy = self.copy(met.at, &item, warmth, None);
            // A flush may have come before the copy's column was taken: then the item and its copy are both flushed.
            life = store.life(met.at, &item);
            match copy {
                Some(new) if life == Life::Live => {
                    self.replace(&mut bucket, &found, new, warmth);
                    return Emptied::Yes;
                }
                Some(new) => counters.bytes_given_up.add(guard.item(new).die().into()),
                None if life != Life::Live => {}
                // Columns are on their way back and come as soon as every worker has passed a quiescent point. Warm
                // items are not evicted just because the pass did not wait for that.
                None if store.memory.returning_columns() > 0 => return Emptied::NoRoom,
                None if !self.may_evict || !store.leaving.may_lose() => return Emptied::Refused,
                None if self.is_kept => return Emptied::Shared,
                None => {}
            }
        }
        self.remove(bucket, &found, met.hash, parts, life);
        Emptied::Yes
    }

    /// Makes the entry lead to the copy at `new`.
    fn replace(&self, bucket: &mut BucketGuard<'_>, found: &Found, new: Location, warmth: u8) {
        self.levels.store.move_entry(self.guard, bucket, found, (new, warmth), self.counters);
        self.counters.moved.add(1);
    }

    /// Removes an item that is evicted, expired or flushed.
    fn remove(&self, bucket: BucketGuard<'_>, found: &Found, hash: KeyHash, parts: SentParts, life: Life) {
        let (at, warmth) = (found.entry.location, found.entry.warmth);
        let leaving = Leaving { hash, at, warmth, parts, compressed: self.compressed() };
        self.levels.leave(self.guard, &leaving, self.counters);
        self.forget(bucket, found, life);
    }

    /// What the value of the item was compressed to.
    fn compressed(&self) -> Option<&[u8]> {
        (self.form == Form::Compressed).then(|| self.forms.made())
    }

    /// Removes the entry of an item. Flash is right about the key by now.
    fn forget(&self, mut bucket: BucketGuard<'_>, found: &Found, life: Life) {
        let (store, at, warmth) = (self.levels.store, found.entry.location, found.entry.warmth);
        self.guard.revoke(at);
        bucket.remove(found);
        drop(bucket);
        store.count_removal(self.guard, at, life, warmth, self.counters);
    }

    /// Copies the item at `at`, whose entry will have `warmth`, to the survivors' column. It stays on its NUMA node if
    /// there is room there. The copy of a large value has its chunks, or those from `copied` on. `None`: there is no
    /// room for it.
    fn copy(
        &mut self,
        at: Location,
        item: &Item<'_>,
        warmth: u8,
        copied: Option<Location>,
    ) -> Option<Location> {
        let store = self.levels.store;
        let node = store.memory.node_of(store.memory.column_of(at));
        let floor = store.floors.highest();
        let zone = match self.to {
            MovesTo::Queue(queue) => Zone::Kept(queue, warmth),
            MovesTo::Hot => Zone::Hot,
            MovesTo::Packed => Zone::Packed,
        };
        loop {
            let (open, class) = self.survivors.place_for(store, node, zone, item.expiry());
            if let Some(open) = open
                && open.birth() >= floor
                && let Some(new) = place_copy(open, item, copied, self.forms, self.form)
            {
                return Some(new);
            }
            if let Some(full) = open.take() {
                let sealed = full.seal_at(store.clock.now_s());
                self.selector.sealed(store, sealed);
            }
            let mut taken = self.survivors.take(store, node, zone, item.cas())?;
            if let Some(class) = class {
                taken.expect_lifetimes(class.lifetimes());
            }
            *self.survivors.place_for(store, node, zone, item.expiry()).0 = Some(taken);
        }
    }
}

/// Copies a record, with its CAS number, expiry and state, and if `copied` is given with these chunks instead of its
/// own, or in another form. `None`: the column has no room for it.
fn place_copy(
    open: &mut OpenColumn,
    item: &Item<'_>,
    copied: Option<Location>,
    forms: &Forms,
    form: Form,
) -> Option<Location> {
    let (key, flags, expiry, cas, state) =
        (item.key(), item.flags(), item.expiry(), item.cas(), item.state());
    let (kind, value) = (item.kind(), [&[][..]; 2]);
    let new = NewItem { key, value, flags, expiry, cas, state, kind };
    match item.value() {
        _ if form == Form::Compressed => open.place_compressed(&new, &Compressed::read(forms.made())),
        Value::Whole(value) => open.place(&NewItem { value: [value, &[]], ..new }),
        Value::Compressed(value) => open.place_compressed(&new, &value),
        Value::Chunked { total, first } => {
            let first = copied.unwrap_or(first);
            open.place_chunked(&NewChunked { key, total, first, flags, expiry, cas, state, kind })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache_options::CacheOptions;
    use crate::keeper::time_slice::Pace;
    use crate::ranking::Candidate;
    use crate::temperature::{Residents, Temperature, TemperatureStats};
    use larder_memory::{NodeId, PagesWanted};
    use larder_temperature::Reference;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A policy that keeps everything, and counts how often it is asked.
    struct Asked(Arc<AtomicUsize>);

    impl Temperature for Asked {
        fn sealed(&mut self, _: ColumnId, _: u64, _: Queue) {}
        fn victim(&mut self, _: &mut dyn FnMut(ColumnId, u64) -> Candidate) -> Option<ColumnId> {
            None
        }
        fn put_back(&mut self, _: ColumnId, _: u64, _: Queue) {}
        fn judge(&mut self, _: Queue, items: &[Judged], _: ColumnBounds, verdicts: &mut Vec<Verdict>) {
            self.0.fetch_add(1, Ordering::Relaxed);
            verdicts.extend(items.iter().map(|_| Verdict::Keep { warmth: 1 }));
        }
        fn refer(&mut self, _: &[Reference], _: &mut dyn Residents) {}
        fn wanted_below(&self) -> u32 {
            0
        }
        fn fit(&mut self, _: u64) {}
        fn bytes_for(&self, _: u64) -> u64 {
            0
        }
        fn columns(&self) -> usize {
            0
        }
        fn forget_gone(&mut self, _: &mut dyn FnMut(ColumnId, u64) -> Candidate) {}
        fn stats(&self) -> TemperatureStats {
            TemperatureStats::default()
        }
    }

    #[test]
    fn a_column_for_whose_items_there_was_no_room_is_judged_once() {
        let options = CacheOptions {
            limit_bytes: 8 << 20,
            workers: 1,
            pages: PagesWanted::Small,
            column_bytes: Some(32 << 10),
            ..CacheOptions::default()
        };
        let store = ItemStore::new(&options, None, 0).expect("a small store can be made");
        let take = || store.take_column_near(NodeId::default(), 1);
        let mut open = take().expect("a free column");
        for number in 0..20u32 {
            let key = number.to_le_bytes();
            let value: [&[u8]; 2] = [b"value", b""];
            let (expiry, state) = (Expiry::NEVER, State::at(2, 0));
            let item =
                NewItem { key: &key, value, flags: 0, expiry, cas: 1, state, kind: larder_item::Kind::Text };
            let at = open.place(&item).expect("it has room");
            store.index.lock(store.hasher.hash(&key)).insert(at, 0).expect("it has room");
        }
        let column = open.seal_at(2);
        // A reader holds up the last column that is on its way back.
        let mut others: Vec<_> = std::iter::from_fn(take).collect();
        let mut reader = store.memory.register();
        store.memory.retire(others.pop().expect("there were more").seal_at(2));
        let asked = Arc::new(AtomicUsize::new(0));
        let mut selector = Selector::new(Box::new(Asked(asked.clone())));
        let mut pass = Pass::new(&store, store.memory.register(), None);
        let levels = Levels { store: &store, demoter: None, is_urgent: false };
        let mut empty = || {
            store.memory.recycle();
            let victim = Selector::chosen_by_caller(column, true);
            pass.empty(levels, &mut selector, victim, &mut TimeSlice::begin(Pace::Hurried))
        };
        assert_eq!([empty(), empty()], [Emptied::NoRoom; 2]);
        reader.offline();
        assert_eq!(empty(), Emptied::Yes);
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        assert_eq!(store.index.len(), 20, "all were moved");
    }
}
