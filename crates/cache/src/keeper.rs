//! The keeper: the background thread that reclaims columns.
//!
//! One pass over a column reads its key rows and decides for every item in it: dead, expired or flushed items are
//! dropped, warm ones are moved to the keeper's own open column, the rest is evicted. The move is a replacement
//! under the bucket's writer bit of exactly the entry that pointed here; if the entry points elsewhere, somebody replaced
//! the item and there is nothing to do. Afterwards nobody can find anything in the column, and it is reused once
//! every worker has passed a quiescent point.

pub(crate) mod hollow;
mod turns;

pub(crate) use turns::{Pace, Turns};

use crate::counters::Counters;
use crate::demote::{Leaving, Parts};
use crate::engine::{Cache, Life, Owner, RESERVED_COLUMNS};
use crate::temperature::{
    Candidate, ColumnStanding, Judged, Part, Patience, Resident, Residents, Temperature, TemperatureFacts,
    Verdict,
};
use larder_index::{BucketGuard, Found};
use larder_item::{Expiry, KeyHash, Location, State};
use larder_memory::{
    ColumnId, ColumnState, Guard, NewChunked, NewItem, OpenColumn, Reader, Record, SlabId, Value,
};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// What the pass owns; behind a mutex so that a starved writer can help.
pub(crate) struct Keeper {
    reader: Reader,
    /// Where what stays is moved to, by group: what was only moved out of a column of the probation, and all else.
    survivors: [Option<OpenColumn>; 2],
    temperature: Box<dyn Temperature>,
    patience: Patience,
    /// The column that is looked at next for being a husk.
    husk_hand: u32,
    /// State of the generator that draws items and columns.
    lots: u64,
    /// Rounds in which no slab is given back, because none could be.
    rests: u32,
    sweep: Sweep,
    /// The column at hand; kept for their memory.
    met: Vec<Met>,
    judged: Vec<Judged>,
    verdicts: Vec<Verdict>,
}

impl Keeper {
    pub(crate) fn new(mut reader: Reader, temperature: Box<dyn Temperature>) -> Keeper {
        reader.offline();
        Keeper {
            reader,
            survivors: [None, None],
            temperature,
            patience: Patience::default(),
            husk_hand: 0,
            lots: 0x1234_5678_9abc_def1,
            rests: 0,
            sweep: Sweep::default(),
            met: Vec::new(),
            judged: Vec::new(),
            verdicts: Vec::new(),
        }
    }

    /// Drops a column that is being filled with survivors, which seals it: then it is reclaimed as the others are.
    fn stop_filling(&mut self, id: ColumnId) {
        for open in &mut self.survivors {
            *open = open.take().filter(|open| open.id() != id);
        }
    }
}

/// Records whose buckets are asked for ahead of being judged.
const LOOK_AHEAD_RECORDS: usize = 32;
/// Records between two looks at how long the turn has been.
const TURN_RECORDS: usize = 8;
/// How often the keeper looks around without being woken.
const KEEPER_PERIOD: Duration = Duration::from_millis(100);
/// Buckets the keeper splits in one round, at most.
const SPLITS_PER_ROUND: usize = 4096;
/// Slabs that may be held up by somebody's column before a round of giving back ends.
const SLABS_STUCK_MAX: usize = 8;
/// Rounds of the keeper without another try, where nothing may be evicted and so many slabs could not be given back.
const ROUNDS_OF_REST: u32 = 20;
/// A column with less than this share of live bytes is worth reclaiming even where nothing may be evicted.
const HOLLOW_SHARE: u64 = 2;

/// How long the keeper waits for flash before it goes on with a column, and how long between two looks.
const FLASH_WAIT_MAX: Duration = Duration::from_millis(20);
const FLASH_PAUSE: Duration = Duration::from_micros(200);

/// The part of the keeper's time that may go to references; those it does not get to are dropped in the queue.
const NOTE_SHARE: u32 = 4;
/// Items of one draw whose records are asked for together.
const DRAWN_TOGETHER: usize = 64;
/// A change of the temperature's needs by fewer bytes is not worth sharing out anew.
const TEMPERATURE_STEP_BYTES: u64 = 64 << 10;
/// [`larder_memory::Column::group`] of columns of moved items; 0 = of new ones.
const MAIN_GROUP: u16 = 1;
/// Beside the group: something in the column is not moved, such as a part of a large value.
const UNMOVED: u16 = 1 << 15;

/// How far the columns from before a flush are swept out.
#[derive(Clone, Copy, Default)]
struct Sweep {
    /// Of which flush; 0 = of none.
    floor: u64,
    /// The column that is next.
    next: u32,
    /// Whether a column before that could not be emptied.
    left: bool,
}

/// What one pass works with.
struct Pass<'a> {
    /// Of which column.
    column: ColumnId,
    /// Whether live items may go; else all are moved.
    evict: bool,
    survivors: &'a mut Option<OpenColumn>,
    /// The part that the survivors belong to.
    part: Part,
    temperature: &'a mut dyn Temperature,
    counters: &'a Counters,
}

/// One record met by the pass.
#[derive(Clone, Copy)]
struct Met {
    at: Location,
    hash: KeyHash,
    what: What,
}

/// What came of a pass over a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Emptied {
    /// Nobody finds anything in it any more.
    Yes,
    /// Something in it cannot go now.
    Refused,
    /// There was no column for what stays.
    NoRoom,
}

/// What is to become of a record.
#[derive(Clone, Copy)]
enum What {
    Chunk,
    /// An item that is over, expired or flushed.
    Over,
    /// An item, and the number of its verdict.
    Live(u32),
}

/// Whether an entry may lead to the record, or to the owner of the chunk.
fn may_live(guard: &Guard<'_>, at: Location, record: &Record<'_>) -> bool {
    let item = if let Record::Item(item) = record { *item } else { guard.item(at) };
    !item.state().has(State::DEAD)
}

impl Cache {
    /// Starts the keeper. It ends when [`Cache::stop_keeper`] is called.
    pub fn keep(self: &Arc<Cache>) -> std::io::Result<std::thread::JoinHandle<()>> {
        let cache = self.clone();
        std::thread::Builder::new().name("keeper".into()).spawn(move || cache.keeper_loop())
    }

    /// Takes all memory for columns from the machine now, `threads` at a time, so that no write waits later for the kernel
    /// to fill it with zeros. Gives up between two slabs when `go_on` says no.
    pub fn prefault(&self, threads: usize, go_on: impl Fn() -> bool + Sync) {
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    let mut free = 0;
                    // The more columns are free, the more are asked for, until there are no more.
                    while go_on() {
                        let now = self.memory.map_ahead(free + self.ahead_columns);
                        if now <= free {
                            break;
                        }
                        free = now;
                    }
                });
            }
        });
    }

    /// Ends the keeper thread.
    pub fn stop_keeper(&self) {
        self.stopping.store(true, Ordering::Release);
        self.wake_keeper();
    }

    /// Tells the keeper that there is work. Cheap when it was told already.
    pub(crate) fn wake_keeper(&self) {
        // Relaxed: a wake-up missed here is made up for within one period.
        if !self.woken.swap(true, Ordering::Relaxed) {
            *self.wake.0.lock().expect("no panic under this lock") = true;
            self.wake.1.notify_one();
        }
    }

    /// A column was taken: wakes the keeper if it should reclaim, or map another slab before a writer has to wait for it.
    pub(crate) fn wake_keeper_if_short(&self) {
        let (free, available) = (self.memory.free_columns(), self.memory.available_columns());
        let short = self.evict && available < self.free_columns_target() / 2;
        if short || (free < self.ahead_columns / 2 && available > free) {
            self.wake_keeper();
        }
    }

    /// A worker filled a column.
    pub(crate) fn sealed(&self, column: ColumnId) {
        self.sealed.lock().expect("no panic under this lock").push(column);
    }

    fn keeper_loop(&self) {
        while !self.stopping.load(Ordering::Acquire) {
            {
                let awake = self.wake.0.lock().expect("no panic under this lock");
                let (mut awake, _) = self
                    .wake
                    .1
                    .wait_timeout_while(awake, KEEPER_PERIOD, |awake| !*awake)
                    .expect("no panic under this lock");
                *awake = false;
                self.woken.store(false, Ordering::Relaxed);
            }
            self.tick();
            self.take_note(Some(KEEPER_PERIOD / NOTE_SHARE));
            self.keep_in_order(Pace::Calm);
            let spent = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
            let spent_ns = spent.tv_sec as u64 * 1_000_000_000 + spent.tv_nsec as u64;
            self.keeper_cpu_ns.store(spent_ns, Ordering::Relaxed);
        }
    }

    /// One round of the keeper: take note of references, bring retired columns back, hold enough free ones ready, give
    /// slabs back that the budget no longer allows, sweep out what was flushed. For a caller that runs the cache without
    /// the keeper's thread.
    pub fn tend(&self) {
        self.take_note(None);
        self.keep_in_order(Pace::Hurried);
    }

    fn keep_in_order(&self, pace: Pace) {
        let mut turns = Turns::begin(pace);
        self.fit_temperature();
        self.memory.recycle();
        let has_enough = self.reclaim_husks(&mut turns);
        while self.evict
            && self.goes_on(&turns)
            && self.memory.available_columns() + self.memory.returning_columns() < self.free_columns_target()
        {
            self.wait_for_flash();
            if !self.reclaim_one(&mut turns) {
                break;
            }
            self.memory.recycle();
        }
        if !has_enough {
            // The kernel fills fresh pages with zeros, which a SET should not wait for.
            self.memory.map_ahead(self.ahead_columns);
        }
        self.finish_growth();
        // The index may have taken sub-buckets since it last split a bucket.
        self.share_out();
        self.give_slabs_back(&mut turns);
        self.sweep_flushed(&mut turns);
        if turns.is_round_over() {
            self.wake_keeper();
        }
    }

    /// Whether this round of the keeper goes on with what has no end of its own. The next one takes it up again.
    fn goes_on(&self, turns: &Turns) -> bool {
        !turns.is_round_over() && !self.stopping.load(Ordering::Relaxed)
    }

    /// What is evicted while flash is behind is lost: as long as writers find columns enough, the keeper waits for it.
    fn wait_for_flash(&self) {
        let Some(level) = &self.level else { return };
        let started = Instant::now();
        while self.memory.available_columns() > self.free_columns_low()
            && started.elapsed() < FLASH_WAIT_MAX
            && level.flash.is_behind()
        {
            std::thread::sleep(FLASH_PAUSE);
            self.memory.recycle();
        }
    }

    /// Hands the pages that wait to the temperature, for `at_most` of time.
    fn take_note(&self, at_most: Option<Duration>) {
        let started = Instant::now();
        let counters = &self.blocks[self.blocks.len() - 1];
        while at_most.is_none_or(|most| started.elapsed() < most)
            && let Some(page) = self.references.take()
        {
            let mut keeper = self.keeper.lock().expect("no panic under this lock");
            let Keeper { reader, temperature, lots, .. } = &mut *keeper;
            reader.online();
            temperature.refer(&page, &mut Draw { cache: self, guard: reader.pin(), lots });
            reader.offline();
            drop(keeper);
            self.references.give_back(page);
        }
        counters.note_ns.add(started.elapsed().as_nanos() as u64);
    }

    /// Sizes what is kept about items. From the day half of the columns are taken it is known how many items there will
    /// be; until then room is set aside for those that are there.
    fn fit_temperature(&self) {
        let columns = self.memory.limit_bytes() / u64::from(self.column_bytes());
        let taken = columns.saturating_sub(self.memory.available_columns() as u64);
        let mut items = self.index.len();
        let mut keeper = self.keeper.lock().expect("no panic under this lock");
        if items > 0 && taken * 2 >= columns {
            items = (items as u128 * u128::from(columns) / u128::from(taken)) as u64;
            keeper.temperature.fit(items);
            self.references.want_below(keeper.temperature.wanted_below());
        }
        let bytes = keeper.temperature.bytes_for(items);
        drop(keeper);
        if bytes.abs_diff(self.temperature_bytes.load(Ordering::Relaxed)) >= TEMPERATURE_STEP_BYTES {
            self.temperature_bytes.store(bytes, Ordering::Relaxed);
            self.share_out();
        }
    }

    /// What the temperature has to say of itself, and how the references come to it. Waits for a pass that is going on.
    pub fn temperature_facts(&self) -> TemperatureFacts {
        self.keeper.lock().expect("no panic under this lock").temperature.facts()
    }

    /// Pages of references that were dropped because the keeper was late.
    pub fn dropped_pages(&self) -> u64 {
        self.references.dropped_pages()
    }

    /// CPU time of the keeper's thread, in nanoseconds, up to its last round.
    pub fn keeper_cpu_ns(&self) -> u64 {
        self.keeper_cpu_ns.load(Ordering::Relaxed)
    }

    /// Splits the buckets that writers left to be split when they stopped writing.
    fn finish_growth(&self) {
        if !self.index.needs_growth() {
            return;
        }
        let mut keeper = self.keeper.lock().expect("no panic under this lock");
        keeper.reader.online();
        {
            let guard = keeper.reader.pin();
            let owner = Owner { guard: &guard, hasher: &self.hasher };
            self.index.grow(&owner, SPLITS_PER_ROUND);
        }
        keeper.reader.offline();
    }

    /// Lets others run if this turn has been long enough and no writer will soon have to wait.
    fn breathe(&self, turns: &mut Turns) {
        if turns.is_over() && self.memory.available_columns() > self.free_columns_low() {
            turns.pause();
        }
    }

    /// With so few columns left, writers will soon have to wait.
    /// How many free columns the keeper holds ready: an eighth of all there may be at most, also under a lower limit.
    pub(crate) fn free_columns_target(&self) -> usize {
        let columns = self.memory.limit_bytes() / u64::from(self.column_bytes());
        self.free_columns_wanted.min(columns as usize / 8).max(RESERVED_COLUMNS + 1)
    }

    fn free_columns_low(&self) -> usize {
        self.free_columns_target() / 4 + RESERVED_COLUMNS
    }

    /// Reclaims a column. Returns whether it did.
    pub(crate) fn reclaim_one(&self, turns: &mut Turns) -> bool {
        let mut keeper = self.keeper.lock().expect("no panic under this lock");
        self.hand_over_sealed(&mut *keeper.temperature);
        if let Some(is_reclaimed) = self.reclaim_hollow(&mut keeper, turns) {
            return is_reclaimed;
        }
        let limit = self.memory.geometry().column_bytes as u64;
        let evict = self.evict;
        let victim = keeper.temperature.victim(&mut |column, birth| {
            match self.standing_of(column, birth) {
                // Where nothing may be evicted, only columns that are mostly dead are worth the pass.
                Candidate::Ready(found) if !evict && found.live_bytes * HOLLOW_SHARE > limit => {
                    Candidate::Later
                }
                other => other,
            }
        });
        victim.is_some_and(|victim| self.reclaim(&mut keeper, victim, turns))
    }

    /// Tells the temperature of the columns that were sealed since, and has it forget those that went without its choosing
    /// them, when it knows twice as many as there are.
    fn hand_over_sealed(&self, temperature: &mut dyn Temperature) {
        for column in self.sealed.lock().expect("no panic under this lock").drain(..) {
            self.hand_over(temperature, column);
        }
        if temperature.columns() > 2 * self.memory.columns_mapped() as usize {
            temperature.forget_gone(&mut |column, birth| self.standing_of(column, birth));
        }
    }

    /// Tells the temperature of a sealed column.
    fn hand_over(&self, temperature: &mut dyn Temperature, column: ColumnId) {
        temperature.sealed(column, self.memory.column(column).birth(), self.part(column));
    }

    /// Of the use of the column that began with `birth`.
    fn standing_of(&self, column: ColumnId, birth: u64) -> Candidate {
        if self.memory.column(column).birth() == birth { self.standing(column) } else { Candidate::Gone }
    }

    fn standing(&self, column: ColumnId) -> Candidate {
        let found = self.memory.column(column);
        if found.state() != ColumnState::Sealed {
            Candidate::Gone
        } else if found.is_pinned() {
            Candidate::Later
        } else {
            Candidate::Ready(ColumnStanding {
                column,
                live_bytes: found.live_bytes() as u64,
                column_bytes: self.memory.geometry().column_bytes as u64,
            })
        }
    }

    /// The pass over a column that the temperature chose: afterwards nothing in it can be found, and it is retired. Returns
    /// false if the column has to stay: it is pinned, or it holds what may not be evicted and cannot be moved. Then it is
    /// met again later.
    fn reclaim(&self, keeper: &mut Keeper, column: ColumnId, turns: &mut Turns) -> bool {
        let emptied = self.empty(keeper, column, self.evict, turns);
        match emptied {
            Emptied::Yes => {}
            Emptied::Refused => self.hand_over(&mut *keeper.temperature, column),
            // It is next when the columns that are on their way back have come.
            Emptied::NoRoom => {
                keeper.temperature.put_back(column, self.memory.column(column).birth(), self.part(column))
            }
        }
        emptied == Emptied::Yes
    }

    /// Empties a column and retires it, if nothing has to stay in it.
    fn empty(&self, keeper: &mut Keeper, column: ColumnId, evict: bool, turns: &mut Turns) -> Emptied {
        let before = turns.worked();
        let counters = &self.blocks[self.blocks.len() - 1];
        keeper.reader.online();
        let emptied = self.empty_column(keeper, column, evict, turns, counters);
        if emptied == Emptied::Yes {
            self.memory.retire(column);
            counters.columns_reclaimed.add(1);
        }
        keeper.reader.offline();
        counters.pass_ns.add((turns.worked() - before).as_nanos() as u64);
        emptied
    }

    fn empty_column(
        &self,
        keeper: &mut Keeper,
        column: ColumnId,
        evict: bool,
        turns: &mut Turns,
        counters: &Counters,
    ) -> Emptied {
        let Keeper { reader, survivors, temperature, patience, met, judged, verdicts, .. } = keeper;
        let guard = reader.pin();
        if !self.meet(&guard, column, met, judged) {
            return Emptied::Refused;
        }
        verdicts.clear();
        let part = self.part(column);
        if evict {
            let column_bytes = u64::from(self.memory.geometry().column_bytes);
            temperature.judge(part, judged, patience.keep_bytes_max(column_bytes), verdicts);
            let kept = judged.iter().zip(verdicts.iter()).filter(|(_, verdict)| **verdict != Verdict::Evict);
            patience.spend(kept.map(|(item, _)| u64::from(item.bytes)).sum(), column_bytes);
        } else {
            verdicts.extend(judged.iter().map(|item| Verdict::Keep { warmth: item.warmth }));
        }
        // What a judge kept is the main part's; what was only moved stays in its own.
        let part = if evict { Part::Main } else { part };
        let survivors = &mut survivors[usize::from(group_of(part))];
        let mut pass = Pass { column, evict, survivors, part, temperature: temperature.as_mut(), counters };
        for (nth, met) in met.iter().enumerate() {
            if nth % TURN_RECORDS == 0 {
                self.breathe(turns);
            }
            let settled = match met.what {
                What::Chunk => self.judge_chunk(&guard, met, evict, counters),
                What::Over => self.settle(&guard, &mut pass, met, Verdict::Evict),
                What::Live(nth) => self.settle(&guard, &mut pass, met, verdicts[nth as usize]),
            };
            if settled != Emptied::Yes {
                return settled;
            }
        }
        Emptied::Yes
    }

    /// Which items the column holds.
    fn part(&self, column: ColumnId) -> Part {
        match self.group(column) & !UNMOVED {
            MAIN_GROUP => Part::Main,
            _ => Part::Probation,
        }
    }

    fn group(&self, column: ColumnId) -> u16 {
        self.memory.column(column).group.load(Ordering::Relaxed)
    }

    /// Reads the key rows of a column: what is met in it, and what there is to judge. Returns false if the column cannot be
    /// read now.
    fn meet(
        &self,
        guard: &Guard<'_>,
        column: ColumnId,
        met: &mut Vec<Met>,
        judged: &mut Vec<Judged>,
    ) -> bool {
        met.clear();
        judged.clear();
        let records = self.memory.records(guard, column);
        // A large value may have begun to be sent since the column was chosen.
        if records.is_refused() {
            return false;
        }
        let mut live = records.filter(|(at, record)| may_live(guard, *at, record));
        loop {
            let ahead = met.len();
            for (at, record) in live.by_ref().take(LOOK_AHEAD_RECORDS) {
                let (hash, what) = match record {
                    Record::Item(item) if self.life(at, &item) == Life::Live => {
                        let nth = judged.len() as u32;
                        let hash = self.hasher.hash(item.key());
                        judged.push(Judged { hash, warmth: 0, bytes: item.bytes() });
                        (hash, What::Live(nth))
                    }
                    Record::Item(item) => (self.hasher.hash(item.key()), What::Over),
                    Record::Chunk(chunk) => (chunk.owner, What::Chunk),
                };
                self.index.prefetch(hash);
                met.push(Met { at, hash, what });
            }
            if met.len() == ahead {
                return true;
            }
            for met in &met[ahead..] {
                if let What::Live(nth) = met.what {
                    // An entry that is being moved at this moment counts as cold.
                    judged[nth as usize].warmth = self.index.warmth_at(met.hash, met.at).unwrap_or(0);
                }
            }
        }
    }

    /// Carries out the verdict on one item of a column that goes. Whatever is not [`Emptied::Yes`] says why the item must
    /// stay where it is.
    fn settle(&self, guard: &Guard<'_>, pass: &mut Pass<'_>, met: &Met, verdict: Verdict) -> Emptied {
        let counters = pass.counters;
        let parts = match verdict {
            Verdict::Evict => self.send_parts(guard, met.hash, met.at, counters),
            Verdict::Keep { .. } => Parts::None,
        };
        let mut bucket = self.index.lock(met.hash);
        let Some(found) = bucket.find_at(met.at) else { return Emptied::Yes };
        let item = guard.item(met.at);
        let mut life = self.life(met.at, &item);
        if let Verdict::Keep { warmth } = verdict
            && life == Life::Live
        {
            let moved = self.move_item(guard, pass, met.at);
            // A flush may have come before the column that the copy stands in: then both are flushed.
            life = self.life(met.at, &item);
            match moved {
                Some(new) if life == Life::Live => {
                    // A copy does without the word of an expiry that was taken away, and may need one for its CAS number.
                    let (old_bytes, new_bytes) = (item.bytes(), guard.item(new).bytes());
                    counters.bytes_died.add(old_bytes.saturating_sub(new_bytes).into());
                    counters.bytes_stored.add(new_bytes.saturating_sub(old_bytes).into());
                    // The expiry or the state may have changed since the copy: under the writer bit they hold still.
                    guard.item(new).copy_state_from(&item);
                    bucket.replace(&found, new, warmth);
                    counters.moved.add(1);
                    // The column may have to stay after all, for something that is met later.
                    item.mark_dead();
                    self.memory.column(pass.column).died(item.bytes());
                    return Emptied::Yes;
                }
                Some(new) => self.memory.column(self.memory.column_of(new)).died(guard.item(new).bytes()),
                None if life != Life::Live => {}
                // Columns are on their way back, as soon as every worker has passed a quiescent point: what is warm does
                // not go for want of so little patience.
                None if self.memory.returning_columns() > 0 => return Emptied::NoRoom,
                None if !pass.evict => return Emptied::Refused,
                None => {}
            }
        }
        let leaving = Leaving { hash: met.hash, at: met.at, warmth: found.entry.warmth, parts };
        self.leave(guard, &leaving, counters);
        bucket.remove(&found);
        drop(bucket);
        let fetched = item.state().has(State::FETCHED);
        match life {
            Life::Expired | Life::Flushed => {
                counters.reclaimed.add(1);
                if !fetched && life == Life::Expired {
                    counters.expired_unfetched.add(1);
                }
            }
            Life::Live => self.count_eviction(&item, found.entry.warmth, counters),
        }
        self.died(guard, met.at, counters);
        Emptied::Yes
    }

    /// Counts an item that is evicted, by the state it was last in.
    pub(crate) fn count_eviction(&self, item: &larder_memory::Item<'_>, warmth: u8, counters: &Counters) {
        let idle_s = item.state().idle_s(self.clock.now_s());
        self.evicted_idle_s.0.store(idle_s, Ordering::Relaxed);
        counters.evictions.add(1);
        counters.evicted_idle_s.add(idle_s.into());
        if !item.state().has(State::FETCHED) {
            counters.evicted_unfetched.add(1);
        }
        if warmth > 0 {
            counters.evicted_active.add(1);
        }
        if item.expiry() != Expiry::NEVER {
            counters.evicted_nonzero.add(1);
        }
    }

    /// Copies the record at `at` to the survivors' column. `None`: there is no room for it.
    fn move_item(&self, guard: &Guard<'_>, pass: &mut Pass<'_>, at: Location) -> Option<Location> {
        let item = guard.item(at);
        let floor = self.flush_floor.0.load(Ordering::Acquire);
        loop {
            if let Some(open) = pass.survivors
                && open.birth() >= floor
                && let Some(new) = place_copy(open, &item)
            {
                return Some(new);
            }
            if let Some(full) = pass.survivors.take() {
                let sealed = full.seal_at(self.clock.now_s());
                self.hand_over(pass.temperature, sealed);
            }
            let taken = self.take_any_column()?;
            self.memory.column(taken.id()).group.store(group_of(pass.part), Ordering::Relaxed);
            *pass.survivors = Some(taken);
        }
    }

    /// Decides about a chunk of a large value: if its owner is still there, the whole item goes. (Large items get no second
    /// chance until a policy asks for one: moving them would copy megabytes.)
    fn judge_chunk(&self, guard: &Guard<'_>, met: &Met, evict: bool, counters: &Counters) -> Emptied {
        // Only this pass moves an owner; if it is replaced meanwhile, its parts are nobody's.
        let parts = match (&self.level, evict) {
            (Some(_), true) => {
                let owner = self.owner_of(guard, met, &self.index.lock(met.hash));
                owner.map_or(Parts::None, |owner| {
                    self.send_parts(guard, met.hash, owner.entry.location, counters)
                })
            }
            _ => Parts::None,
        };
        let mut bucket = self.index.lock(met.hash);
        let Some(found) = self.owner_of(guard, met, &bucket) else { return Emptied::Yes };
        let owner = found.entry.location;
        let life = self.life(owner, &guard.item(owner));
        if !evict && life == Life::Live {
            return Emptied::Refused;
        }
        let leaving = Leaving { hash: met.hash, at: owner, warmth: found.entry.warmth, parts };
        self.leave(guard, &leaving, counters);
        bucket.remove(&found);
        drop(bucket);
        match life {
            Life::Live => self.count_eviction(&guard.item(owner), found.entry.warmth, counters),
            _ => counters.reclaimed.add(1),
        }
        self.died(guard, owner, counters);
        Emptied::Yes
    }

    /// The entry of the item that a chunk belongs to.
    fn owner_of(&self, guard: &Guard<'_>, chunk: &Met, bucket: &BucketGuard<'_>) -> Option<Found> {
        let chain = guard.chunk(chunk.at).chain;
        bucket.entries().find(|found| {
            let item = guard.item(found.entry.location);
            crate::large::first_chunk(&item).is_some_and(|first| guard.chunk(first).chain == chain)
        })
    }

    /// Empties and returns slabs that the budget no longer allows.
    fn give_slabs_back(&self, turns: &mut Turns) {
        let mut stuck: Vec<SlabId> = Vec::new();
        let mut released = false;
        if self.memory.over_limit_slabs() == 0 {
            return;
        }
        {
            let mut keeper = self.keeper.lock().expect("no panic under this lock");
            if keeper.rests > 0 {
                keeper.rests -= 1;
                return;
            }
        }
        while self.memory.over_limit_slabs() > 0 && stuck.len() <= SLABS_STUCK_MAX && self.goes_on(turns) {
            let Some(slab) = self.memory.begin_release_slab() else { break };
            let columns: Vec<_> = self.memory.slab_columns(slab).map(|(id, _)| id).collect();
            for id in columns {
                let mut keeper = self.keeper.lock().expect("no panic under this lock");
                keeper.stop_filling(id);
                // Nobody chose it: if it has to stay, the temperature knows it still.
                if let Candidate::Ready(_) = self.standing(id) {
                    self.empty(&mut keeper, id, self.evict, turns);
                }
            }
            if self.memory.finish_release(slab) {
                released = true;
            } else {
                stuck.push(slab);
            }
        }
        // What may not be evicted does not go away by being looked at again and again.
        let found_none = !released && !stuck.is_empty() && !self.goes_on(turns);
        if !self.evict && (found_none || stuck.len() > SLABS_STUCK_MAX) {
            self.keeper.lock().expect("no panic under this lock").rests = ROUNDS_OF_REST;
        }
        // A column that a worker fills, or that is pinned or still read, holds up its slab. It is handed out again for
        // now, and another slab goes in its place in this round or the next.
        for slab in stuck {
            if self.memory.over_limit_slabs() == 0 || !self.memory.finish_release(slab) {
                self.memory.cancel_release(slab);
            }
        }
    }

    /// After a flush: reclaims the columns born before it, and forgets the flush when none is left.
    fn sweep_flushed(&self, turns: &mut Turns) {
        let floor = self.flush_floor.0.load(Ordering::Acquire);
        if floor == 0 {
            return;
        }
        let begun = self.keeper.lock().expect("no panic under this lock").sweep;
        let Sweep { next, mut left, .. } =
            if begun.floor == floor { begun } else { Sweep { floor, ..Sweep::default() } };
        for column in (next..self.memory.columns_mapped()).map(ColumnId) {
            if !self.goes_on(turns) {
                let sweep = Sweep { floor, next: column.0, left };
                self.keeper.lock().expect("no panic under this lock").sweep = sweep;
                return;
            }
            let found = self.memory.column(column);
            if found.birth() >= floor {
                continue;
            }
            let mut keeper = self.keeper.lock().expect("no panic under this lock");
            keeper.stop_filling(column);
            match self.standing(column) {
                Candidate::Ready(_) => {
                    // What lives here is a part of a value that was stored after the flush.
                    left |= self.empty(&mut keeper, column, false, turns) != Emptied::Yes;
                }
                Candidate::Later => left = true,
                // A worker may have sealed it between the two looks.
                Candidate::Gone => left |= matches!(found.state(), ColumnState::Open | ColumnState::Sealed),
            }
        }
        self.keeper.lock().expect("no panic under this lock").sweep = Sweep::default();
        // Nothing has to be chosen while flushes make all the room: the temperature hears of what was sealed here.
        let sealed = self.sealed.lock().expect("no panic under this lock").len();
        if sealed > self.memory.columns_mapped() as usize {
            self.hand_over_sealed(&mut *self.keeper.lock().expect("no panic under this lock").temperature);
        }
        self.memory.recycle();
        // A reader that found an entry before it was removed may still be about to ask whether its item was flushed; it
        // has passed a quiescent point when no column is waiting for one.
        if !left && self.memory.retired_columns() == 0 {
            // Only this floor is forgotten; a flush that came meanwhile set a higher one.
            let _ = self.flush_floor.0.compare_exchange(floor, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Whether the item at `at` may be served.
    #[inline]
    pub(crate) fn life(&self, at: Location, item: &larder_memory::Item<'_>) -> Life {
        if item.expiry().is_past(self.clock.now_s()) {
            Life::Expired
        } else if self.is_flushed(at) {
            Life::Flushed
        } else {
            Life::Live
        }
    }
}

/// The group of columns of a part.
fn group_of(part: Part) -> u16 {
    match part {
        Part::Probation => 0,
        Part::Main => MAIN_GROUP,
    }
}

/// Copies a record, with its CAS number, expiry and state. `None`: it does not fit any more.
fn place_copy(open: &mut OpenColumn, item: &larder_memory::Item<'_>) -> Option<Location> {
    let (key, flags, expiry, cas, state) =
        (item.key(), item.flags(), item.expiry(), item.cas(), item.state());
    match item.value() {
        Value::Whole(value) => open.place(&NewItem { key, value: [value, &[]], flags, expiry, cas, state }),
        Value::Chunked { total, first } => {
            open.place_chunked(&NewChunked { key, total, first, flags, expiry, cas, state })
        }
    }
}

/// Draws a number below `below`, which is at most 2^32.
fn draw(lots: &mut u64, below: u64) -> u64 {
    // xorshift64* (Vigna, An experimental exploration of Marsaglia's xorshift generators, scrambled, 2016).
    *lots ^= *lots >> 12;
    *lots ^= *lots << 25;
    *lots ^= *lots >> 27;
    let lot = lots.wrapping_mul(0x2545_F491_4F6C_DD1D);
    ((lot >> 32) * below) >> 32
}

/// Draws items from random buckets of the index.
struct Draw<'a> {
    cache: &'a Cache,
    guard: Guard<'a>,
    lots: &'a mut u64,
}

impl Residents for Draw<'_> {
    fn sample(&mut self, count: usize, found: &mut Vec<Resident>) {
        let wanted = found.len() + count;
        let mut places: Vec<Location> = Vec::with_capacity(2 * DRAWN_TOGETHER);
        let buckets = self.cache.index.buckets();
        // An index that is nearly empty would be searched for ever.
        let mut looks = 2 * count;
        while found.len() < wanted && looks > 0 {
            places.clear();
            while places.len() < DRAWN_TOGETHER && looks > 0 {
                looks -= 1;
                let bucket = draw(self.lots, buckets);
                self.cache.index.walk(bucket, &mut |entry| {
                    self.guard.prefetch(entry.location);
                    places.push(entry.location);
                });
            }
            for &at in places.iter().take(wanted - found.len()) {
                let column = self.cache.memory.column_of(at);
                let hash = self.cache.hasher.hash(self.guard.item(at).key());
                found.push(Resident { hash, column, birth: self.cache.memory.column(column).birth() });
            }
        }
    }
}
