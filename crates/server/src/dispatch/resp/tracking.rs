//! What clients have read and keep copies of: which of them is told when a key changes (client-side caching).
//!
//! A client that tracks keys is a **tracker**. The table has a row for each key that trackers have read, with the
//! numbers of these trackers; a change of the key takes the row out and tells them. Trackers that want to hear of all
//! keys with a prefix (`BCAST`) have no rows, and are found by the prefix.
//!
//! No change is missed: a tracker's worker adds the row, waits until no writer holds the writer bit of the key's bucket
//! ([`Worker::expiry_after_changes`](larder_cache::Worker::expiry_after_changes)), and looks at the item then. A writer
//! that had the bit before is done, and its item is what is read. One that takes it later finds the row.
//!
//! A key also changes when its item expires. A row says when, and each worker looks at its part of the table once a
//! second; for a key with such a prefix, too, a row says when, without a number. The table has a bounded number of
//! bytes: where it is full a row goes by chance, and its trackers are told of the key as if it had changed.

use super::mailbox::{Mailbox, Post, READ};
use crate::dispatch::item_key::{PREFIX_BYTES_MAX, is_plain};
use crate::io::Charge;
use indexmap::IndexMap;
use indexmap::map::Entry;
use larder_cache::{Change, Clock, DATABASE_MARK, Expiry, FOLDED_KEY_BYTES, KeyHash, covers};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The rows are spread over this number of tables, so that those who change different keys seldom meet.
const TABLES: usize = 64;
/// One part in this many of the memory for connection buffers is the most that the rows take.
const TABLE_SHARE: u64 = 4;
/// What a row takes beside its key, in bytes: its place, of which a growing table has one and a half on average, its
/// place in the index, and the head of its key.
const ROW_BYTES: u64 = (3 * (size_of::<(KeyHash, Row)>() + 2 * size_of::<usize>()) / 2) as u64 + 16;
/// The most prefixes, added up over all connections.
const PREFIXES_MAX: usize = 10_000;
/// Bytes that the table takes from the account of connection buffers at once.
const CHARGE_STEP_BYTES: u64 = 16 << 10;

thread_local! {
    /// The client whose request this worker executes, by its number; 0 = none that is known.
    static CHANGER: Cell<u64> = const { Cell::new(0) };
}

/// Notes whose request this worker executes from now on; 0 = that is not known.
pub(super) fn set_changer(client: u64) {
    CHANGER.set(client);
}

/// A set of trackers in one word, by their numbers: up to eight numbers of 15 bits, or one of 127 groups for each bit.
/// With more than 127 trackers, a key that more than eight of them have read is told to others of their groups too.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct TrackerSet([u64; 2]);

/// The bit that says that the others stand for groups.
const ARE_GROUPS: u128 = 1 << 127;
const GROUPS: u16 = 127;
const NUMBER_BITS: u32 = 15;
const NUMBERS: u32 = 8;
/// The highest number of a tracker. 0 is none.
const NUMBER_MAX: u16 = (1 << NUMBER_BITS) - 1;

impl TrackerSet {
    fn of(bits: u128) -> TrackerSet {
        TrackerSet([bits as u64, (bits >> 64) as u64])
    }

    fn bits(self) -> u128 {
        u128::from(self.0[0]) | u128::from(self.0[1]) << 64
    }

    fn has_groups(self) -> bool {
        self.bits() & ARE_GROUPS != 0
    }

    fn numbers(self) -> impl Iterator<Item = u16> {
        let bits = if self.has_groups() { 0 } else { self.bits() };
        let all = (0..NUMBERS).map(move |at| (bits >> (at * NUMBER_BITS)) as u16 & NUMBER_MAX);
        all.filter(|number| *number != 0)
    }

    fn has(self, number: u16) -> bool {
        match self.has_groups() {
            false => self.numbers().any(|other| other == number),
            true => self.bits() & 1 << (number % GROUPS) != 0,
        }
    }

    fn with(self, number: u16) -> TrackerSet {
        let count = self.numbers().count() as u32;
        let group_of = |number: u16| 1 << (number % GROUPS);
        TrackerSet::of(match self.has_groups() {
            _ if self.has(number) => self.bits(),
            false if count < NUMBERS => self.bits() | u128::from(number) << (count * NUMBER_BITS),
            false => self.numbers().fold(ARE_GROUPS, |set, number| set | group_of(number)) | group_of(number),
            true => self.bits() | group_of(number),
        })
    }

    fn len(self) -> u64 {
        match self.has_groups() {
            false => self.numbers().count() as u64,
            true => (self.bits() & !ARE_GROUPS).count_ones().into(),
        }
    }
}

/// A key that was read.
struct Row {
    /// The key as a client knows it, with what stands before the client's keys.
    key: Box<[u8]>,
    trackers: TrackerSet,
    expiry: Expiry,
}

impl Row {
    fn bytes(&self) -> u64 {
        ROW_BYTES + self.key.len() as u64
    }

    /// Whether this is the row of the item with this key, which has the row's hash.
    fn is_of(&self, key: &[u8]) -> bool {
        // The item of a key that no item can have has another one.
        !is_plain(&self.key) || *self.key == *key
    }
}

type Table = IndexMap<KeyHash, Row>;

/// A connection that tracks keys.
pub(in crate::dispatch) struct Tracker {
    pub(super) client: u64,
    number: u16,
    mailbox: Arc<Mailbox>,
    /// The connection that hears of the changes instead, and its number.
    redirect: Option<(u64, Arc<Mailbox>)>,
    /// That connection is gone.
    is_broken: AtomicBool,
    /// It does not hear of its own changes.
    ignores_own: bool,
    /// What the keys of its user begin with.
    namespace: Box<[u8]>,
}

/// What a connection asks for that begins to track keys.
pub(super) struct Wish {
    pub(super) client: u64,
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) redirect: Option<(u64, Arc<Mailbox>)>,
    pub(super) ignores_own: bool,
    pub(super) namespace: Box<[u8]>,
    /// It hears of all keys with these prefixes. None: of those that it reads.
    pub(super) prefixes: Vec<Vec<u8>>,
}

/// Why a connection cannot track keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TooMany {
    Trackers,
    Prefixes,
}

/// What a client whose keys begin with `namespace` calls the item with this key, in whichever database. `None` = it is
/// not one of its user.
fn shown_of<'k>(namespace: &[u8], key: &'k [u8]) -> Option<&'k [u8]> {
    let key = key.strip_prefix(namespace)?;
    Some(key.strip_prefix(&DATABASE_MARK).and_then(|rest| rest.get(1..)).unwrap_or(key))
}

impl Tracker {
    /// The connection that hears of the changes, by its number; 0 = the tracker itself.
    pub(super) fn redirect(&self) -> u64 {
        self.redirect.as_ref().map_or(0, |(client, _)| *client)
    }

    /// What the keys of its user begin with.
    pub(super) fn namespace(&self) -> &[u8] {
        &self.namespace
    }

    pub(super) fn is_broken(&self) -> bool {
        self.is_broken.load(Relaxed)
    }

    /// What the tracker calls the item with this key, in whichever database. `None` = it is not one of its user.
    pub(super) fn shown<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        shown_of(&self.namespace, key)
    }

    /// Whether a delete of this prefix takes all of a database of the tracker's user.
    fn loses_all_with(&self, prefix: &[u8]) -> bool {
        let is_database =
            |rest: &[u8]| rest.starts_with(&DATABASE_MARK) && rest.len() == DATABASE_MARK.len() + 1;
        self.namespace.starts_with(prefix) || prefix.strip_prefix(&*self.namespace).is_some_and(is_database)
    }

    /// Tells of a changed key.
    fn tell_key(&self, post: &Post, group: u32, key: &Arc<[u8]>) {
        self.tell(post, |mailbox, for_another| mailbox.tell_change(post, group, key, for_another));
    }

    /// Tells that all keys may have changed.
    pub(super) fn tell_all(&self, post: &Post) {
        self.tell(post, |mailbox, for_another| mailbox.tell_all_changed(post, for_another));
    }

    /// Tells by `tell`, which says whether the connection is there.
    fn tell(&self, post: &Post, tell: impl FnOnce(&Mailbox, bool) -> bool) {
        let Some((client, mailbox)) = &self.redirect else {
            tell(&self.mailbox, false);
            return;
        };
        if !tell(mailbox, true) && !self.is_broken.swap(true, Relaxed) {
            self.mailbox.tell_broken(post, *client);
        }
    }

    fn is_changer(&self) -> bool {
        self.ignores_own && self.client == CHANGER.get()
    }
}

/// Who hears of all keys that begin with a prefix.
struct Broadcast {
    group: u32,
    trackers: Vec<Arc<Tracker>>,
}

/// The prefixes of the trackers of one namespace.
#[derive(Default)]
struct Prefixes {
    all: BTreeMap<Box<[u8]>, Broadcast>,
    /// How many have each length.
    lengths: BTreeMap<usize, usize>,
}

impl Prefixes {
    /// The prefixes of a key. With `is_folded` only the beginning of the key is known: those that may be.
    fn of<'p>(&'p self, key: &'p [u8], is_folded: bool) -> impl Iterator<Item = &'p Broadcast> {
        let exact = self.lengths.keys().take_while(move |length| !is_folded && **length <= key.len());
        let exact = exact.filter_map(move |length| self.all.get(&key[..*length]));
        let known = key.len().saturating_sub(FOLDED_KEY_BYTES - PREFIX_BYTES_MAX);
        let may_be = self.all.iter().filter(move |(prefix, _)| {
            is_folded && key[..known].starts_with(&prefix[..prefix.len().min(known)])
        });
        exact.chain(may_be.map(|(_, broadcast)| broadcast))
    }
}

#[derive(Default)]
struct Trackers {
    /// By number. The first place stays empty.
    all: Vec<Option<Arc<Tracker>>>,
    count: usize,
    /// The number that was given last.
    last: u16,
    /// How many trackers are of each group of a [`TrackerSet`].
    of_groups: Vec<u16>,
    /// By what the keys of their users begin with.
    prefixes: BTreeMap<Box<[u8]>, Prefixes>,
    last_group: u32,
}

impl Trackers {
    /// The trackers of a set.
    fn of(&self, set: TrackerSet) -> impl Iterator<Item = &Arc<Tracker>> {
        let exact = set.numbers().filter_map(|number| self.all.get(usize::from(number))?.as_ref());
        let has_groups = set.has_groups();
        let in_groups =
            self.all.iter().flatten().filter(move |tracker| has_groups && set.has(tracker.number));
        exact.chain(in_groups)
    }

    fn put(&mut self, tracker: &Arc<Tracker>, prefixes: Vec<Vec<u8>>) {
        let place = usize::from(tracker.number);
        if self.all.len() <= place {
            self.all.resize(place + 1, None);
        }
        self.all[place] = Some(tracker.clone());
        self.count += 1;
        self.of_groups.resize(GROUPS.into(), 0);
        self.of_groups[usize::from(tracker.number % GROUPS)] += 1;
        for prefix in prefixes {
            let of_namespace = self.prefixes.entry(tracker.namespace.clone()).or_default();
            let length = prefix.len();
            let broadcast = of_namespace.all.entry(prefix.into()).or_insert_with(|| {
                *of_namespace.lengths.entry(length).or_default() += 1;
                self.last_group = self.last_group.wrapping_add(1).max(READ + 1);
                Broadcast { group: self.last_group, trackers: Vec::new() }
            });
            broadcast.trackers.push(tracker.clone());
        }
    }

    fn forget(&mut self, tracker: &Arc<Tracker>, prefixes: &[Vec<u8>]) {
        self.all[usize::from(tracker.number)] = None;
        self.count -= 1;
        self.of_groups[usize::from(tracker.number % GROUPS)] -= 1;
        let Some(of_namespace) = self.prefixes.get_mut(&tracker.namespace) else { return };
        for prefix in prefixes {
            let Some(broadcast) = of_namespace.all.get_mut(&prefix[..]) else { continue };
            broadcast.trackers.retain(|other| !Arc::ptr_eq(other, tracker));
            if broadcast.trackers.is_empty() {
                of_namespace.all.remove(&prefix[..]);
                let left = of_namespace.lengths.entry(prefix.len()).or_default();
                *left -= 1;
                if *left == 0 {
                    of_namespace.lengths.remove(&prefix.len());
                }
            }
        }
        if of_namespace.all.is_empty() {
            self.prefixes.remove(&tracker.namespace);
        }
    }

    /// Whether somebody hears of all keys with a prefix of this one.
    fn has_prefix_of(&self, key: &[u8]) -> bool {
        let is_folded = key.len() == FOLDED_KEY_BYTES;
        self.prefixes.iter().any(|(namespace, prefixes)| {
            shown_of(namespace, key).is_some_and(|shown| prefixes.of(shown, is_folded).next().is_some())
        })
    }

    /// How many pairs of a prefix and a tracker there are.
    fn pairs(&self) -> usize {
        let of_namespaces = self.prefixes.values().flat_map(|of_namespace| of_namespace.all.values());
        of_namespaces.map(|broadcast| broadcast.trackers.len()).sum()
    }

    /// How many prefixes there are.
    fn prefixes(&self) -> usize {
        self.prefixes.values().map(|of_namespace| of_namespace.all.len()).sum()
    }

    /// A number that no tracker has, of a group with as few as possible.
    fn free_number(&mut self) -> Option<u16> {
        let fewest = self.of_groups.iter().min().copied().unwrap_or(0);
        (self.count < usize::from(NUMBER_MAX)).then(|| {
            loop {
                self.last = self.last % NUMBER_MAX + 1;
                let of_group = self.of_groups.get(usize::from(self.last % GROUPS)).copied().unwrap_or(0);
                let is_free = self.all.get(usize::from(self.last)).is_none_or(Option::is_none);
                // The groups do not have equally many numbers.
                if is_free && (of_group <= fewest || usize::from(fewest) >= usize::from(NUMBER_MAX / GROUPS))
                {
                    return self.last;
                }
            }
        })
    }
}

/// How much is tracked.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(in crate::dispatch) struct TrackingCounts {
    pub(in crate::dispatch) clients: usize,
    pub(in crate::dispatch) keys: usize,
    /// Pairs of a key and a client.
    pub(in crate::dispatch) items: u64,
    pub(in crate::dispatch) prefixes: usize,
}

/// What all connections track.
pub(in crate::dispatch) struct Tracking {
    tables: Box<[Mutex<Table>]>,
    bytes: AtomicU64,
    /// What the rows have taken from the account of connection buffers.
    charge: Mutex<Charge>,
    trackers: RwLock<Trackers>,
    is_on: AtomicBool,
    /// Some hear of all keys with a prefix.
    has_prefixes: AtomicBool,
    /// There are groups with several trackers.
    shares_groups: AtomicBool,
    post: Arc<Post>,
}

impl Tracking {
    pub(super) fn new(post: Arc<Post>) -> Tracking {
        Tracking {
            tables: (0..TABLES).map(|_| Mutex::default()).collect(),
            bytes: AtomicU64::new(0),
            charge: Mutex::default(),
            trackers: RwLock::default(),
            is_on: AtomicBool::new(false),
            has_prefixes: AtomicBool::new(false),
            shares_groups: AtomicBool::new(false),
            post,
        }
    }

    /// Whether anybody tracks keys.
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    fn table(&self, hash: KeyHash) -> MutexGuard<'_, Table> {
        self.lock_table(hash.tag() as usize % TABLES)
    }

    fn lock_table(&self, number: usize) -> MutexGuard<'_, Table> {
        self.tables[number].lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn trackers(&self) -> RwLockReadGuard<'_, Trackers> {
        self.trackers.read().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn trackers_mut(&self) -> RwLockWriteGuard<'_, Trackers> {
        self.trackers.write().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    // ---- trackers ----

    /// A connection begins to track keys, or to do so in another way than `before`, whose rows it keeps. `on_first` is
    /// called if it is the only one.
    ///
    /// # Errors
    /// As many connections track keys, or prefixes are tracked, as can be.
    pub(super) fn add(
        &self,
        wish: Wish,
        before: Option<(&Arc<Tracker>, &[Vec<u8>])>,
        on_first: impl FnOnce(),
    ) -> Result<Arc<Tracker>, TooMany> {
        let Wish { client, mailbox, redirect, ignores_own, namespace, prefixes } = wish;
        let mut trackers = self.trackers_mut();
        let own = before.map_or(0, |(_, prefixes)| prefixes.len());
        if trackers.pairs() + prefixes.len() > PREFIXES_MAX + own {
            return Err(TooMany::Prefixes);
        }
        let number = match before {
            Some((before, _)) => before.number,
            None => trackers.free_number().ok_or(TooMany::Trackers)?,
        };
        if let Some((before, prefixes)) = before {
            trackers.forget(before, prefixes);
        }
        let is_broken = AtomicBool::new(false);
        let tracker =
            Arc::new(Tracker { client, number, mailbox, redirect, is_broken, ignores_own, namespace });
        trackers.put(&tracker, prefixes);
        if trackers.count == 1 {
            on_first();
        }
        self.is_on.store(true, Relaxed);
        self.settle(&trackers);
        Ok(tracker)
    }

    fn settle(&self, trackers: &Trackers) {
        self.has_prefixes.store(!trackers.prefixes.is_empty(), Relaxed);
        // It stays: rows may have groups from that time.
        if trackers.of_groups.iter().any(|count| *count > 1) {
            self.shares_groups.store(true, Relaxed);
        }
    }

    /// A connection tracks no keys any more. `on_last` is called if none does.
    pub(super) fn remove(&self, tracker: &Arc<Tracker>, prefixes: &[Vec<u8>], on_last: impl FnOnce()) {
        let mut trackers = self.trackers_mut();
        trackers.forget(tracker, prefixes);
        self.settle(&trackers);
        if trackers.count > 0 {
            return;
        }
        *trackers = Trackers { last: trackers.last, last_group: trackers.last_group, ..Trackers::default() };
        self.is_on.store(false, Relaxed);
        on_last();
        let rows: Vec<Table> =
            (0..TABLES).map(|number| self.take_rows(&mut self.lock_table(number))).collect();
        *self.charge.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Charge::default();
        self.shares_groups.store(false, Relaxed);
        drop(trackers);
        drop(rows);
    }

    /// How much is tracked.
    pub(in crate::dispatch) fn counts(&self) -> TrackingCounts {
        let trackers = self.trackers();
        let (clients, prefixes) = (trackers.count, trackers.prefixes());
        drop(trackers);
        let mut counts = TrackingCounts { clients, prefixes, ..TrackingCounts::default() };
        for number in 0..TABLES {
            let table = self.lock_table(number);
            counts.keys += table.len();
            counts.items += table.values().map(|row| row.trackers.len()).sum::<u64>();
        }
        counts
    }

    // ---- rows ----

    /// A tracker reads a key, whose item has this hash. `false` = that was known already.
    pub(super) fn note_read(&self, tracker: &Tracker, hash: KeyHash, key: &[u8]) -> bool {
        self.put(hash, key, Some(tracker.number), Expiry::NEVER)
    }

    /// An item is read that expires then: the end of its time is told to those who track it.
    pub(super) fn note_expiry(&self, hash: KeyHash, key: &[u8], expiry: Expiry) {
        if expiry == Expiry::NEVER {
            return;
        }
        if let Some(row) = self.table(hash).get_mut(&hash)
            && row.is_of(key)
        {
            if row.expiry == Expiry::NEVER || expiry.milliseconds() < row.expiry.milliseconds() {
                row.expiry = expiry;
            }
            return;
        }
        if self.has_prefixes.load(Relaxed) && self.trackers().has_prefix_of(key) {
            self.put(hash, key, None, expiry);
        }
    }

    fn put(&self, hash: KeyHash, key: &[u8], number: Option<u16>, expiry: Expiry) -> bool {
        let trackers = number.map_or(TrackerSet::default(), |number| TrackerSet::default().with(number));
        let new = Row { key: Box::default(), trackers, expiry };
        let mut table = self.table(hash);
        if !self.is_on() {
            return false;
        }
        let before = match table.entry(hash) {
            Entry::Occupied(mut place) if *place.get().key == *key => {
                let row = place.get_mut();
                let known = row.trackers;
                row.trackers = number.map_or(known, |number| known.with(number));
                if number.is_none() {
                    row.expiry = expiry;
                }
                // One of several in a group may stand for another that has not waited for the writers.
                let is_vague = row.trackers.has_groups() && self.shares_groups.load(Relaxed);
                return row.trackers != known || is_vague;
            }
            // Another key of the same hash.
            Entry::Occupied(mut place) => Some(place.insert(Row { key: key.into(), ..new })),
            Entry::Vacant(place) => {
                place.insert(Row { key: key.into(), ..new });
                None
            }
        };
        self.bytes.fetch_add(ROW_BYTES + key.len() as u64, Relaxed);
        let mut displaced: Vec<Row> = before.into_iter().collect();
        displaced.iter().for_each(|row| _ = self.bytes.fetch_sub(row.bytes(), Relaxed));
        while !self.has_room() && table.len() > 1 {
            // The new row is the last one.
            let victim = (hash.0 >> 8) as usize % (table.len() - 1);
            if let Some((_, row)) = table.swap_remove_index(victim) {
                self.bytes.fetch_sub(row.bytes(), Relaxed);
                displaced.push(row);
            }
        }
        drop(table);
        for row in &displaced {
            self.tell_readers(row, |_| false);
            self.tell_broadcasts(&row.key, |_| false);
        }
        true
    }

    /// Whether the rows that there are have room. Takes more from the account of connection buffers as needed.
    fn has_room(&self) -> bool {
        let Some(buffers) = self.post.buffers() else { return true };
        let bytes = self.bytes.load(Relaxed);
        if bytes > buffers.limit_bytes() / TABLE_SHARE {
            return false;
        }
        let mut charge = self.charge.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let missing = bytes.saturating_sub(charge.bytes());
        missing == 0 || charge.try_grow(buffers, CHARGE_STEP_BYTES.max(missing))
    }

    fn take_rows(&self, table: &mut Table) -> Table {
        self.bytes.fetch_sub(table.values().map(Row::bytes).sum(), Relaxed);
        std::mem::take(table)
    }

    // ---- changes ----

    /// Something has changed.
    #[cold]
    pub(in crate::dispatch) fn note(&self, change: Change<'_>) {
        match change {
            Change::Key { hash, key, expiry } => self.note_key(hash, key, expiry),
            Change::Seen { hash, key, expiry } => self.note_expiry(hash, key, expiry),
            Change::Prefix(prefix) => self.note_prefix(prefix),
            Change::All => {
                (0..TABLES).for_each(|number| _ = self.take_rows(&mut self.lock_table(number)));
                for tracker in self.trackers().all.iter().flatten() {
                    tracker.tell_all(&self.post);
                }
            }
        }
    }

    /// The item of a key is gone, and nobody asked for that.
    #[cold]
    pub(in crate::dispatch) fn note_eviction(&self, hash: KeyHash, key: &[u8]) {
        self.tell_key(hash, key, |_| false);
    }

    /// The item of a key has changed, or is gone. `expiry` = that of the new one.
    fn note_key(&self, hash: KeyHash, key: &[u8], expiry: Expiry) {
        if self.tell_key(hash, key, Tracker::is_changer) && expiry != Expiry::NEVER {
            // So that the end of its time is told as well.
            self.put(hash, key, None, expiry);
        }
    }

    /// Tells of a key, but not those whom `skips` names. Returns whether somebody hears of all keys with its prefix.
    fn tell_key(&self, hash: KeyHash, key: &[u8], skips: fn(&Tracker) -> bool) -> bool {
        let row = {
            let mut table = self.table(hash);
            let is_its = table.get(&hash).is_some_and(|row| row.is_of(key));
            if is_its { table.swap_remove(&hash) } else { None }
        };
        if let Some(row) = row {
            self.bytes.fetch_sub(row.bytes(), Relaxed);
            self.tell_readers(&row, skips);
        }
        self.tell_broadcasts(key, skips)
    }

    fn note_prefix(&self, prefix: &[u8]) {
        for number in 0..TABLES {
            let mut gone = Vec::new();
            let mut table = self.lock_table(number);
            table.retain(|_, row| {
                let is_gone = covers(prefix, &row.key);
                if is_gone {
                    self.bytes.fetch_sub(row.bytes(), Relaxed);
                    gone.push(Row { key: std::mem::take(&mut row.key), ..*row });
                }
                !is_gone
            });
            drop(table);
            gone.iter().for_each(|row| self.tell_readers(row, |tracker| tracker.loses_all_with(prefix)));
        }
        let trackers = self.trackers();
        let mut losers: Vec<&Arc<Tracker>> =
            trackers.all.iter().flatten().filter(|tracker| tracker.loses_all_with(prefix)).collect();
        for (namespace, prefixes) in &trackers.prefixes {
            let Some(shown) = shown_of(namespace, prefix) else { continue };
            // Which keys were deleted is not known.
            for (tracked, broadcast) in &prefixes.all {
                if shown.starts_with(tracked) || tracked.starts_with(shown) {
                    losers.extend(&broadcast.trackers);
                }
            }
        }
        losers.sort_by_key(|tracker| tracker.number);
        losers.dedup_by_key(|tracker| tracker.number);
        for tracker in losers {
            tracker.tell_all(&self.post);
        }
    }

    /// Tells those who have read a key, but for those whom `skips` names.
    fn tell_readers(&self, row: &Row, skips: impl Fn(&Tracker) -> bool) {
        if row.trackers == TrackerSet::default() {
            return;
        }
        let mut shared: Option<Arc<[u8]>> = None;
        for tracker in self.trackers().of(row.trackers) {
            if let Some(shown) = tracker.shown(&row.key)
                && !skips(tracker)
            {
                let key = shared.take_if(|key| **key == *shown).unwrap_or_else(|| shown.into());
                tracker.tell_key(&self.post, READ, &key);
                shared = Some(key);
            }
        }
    }

    /// Tells those who hear of all keys with a prefix. Returns whether there are any for this key.
    fn tell_broadcasts(&self, key: &[u8], skips: fn(&Tracker) -> bool) -> bool {
        if !self.has_prefixes.load(Relaxed) {
            return false;
        }
        let trackers = self.trackers();
        let is_folded = key.len() == FOLDED_KEY_BYTES;
        let mut are_any = false;
        for (namespace, prefixes) in &trackers.prefixes {
            let Some(shown) = shown_of(namespace, key) else { continue };
            let mut shared: Option<Arc<[u8]>> = None;
            for broadcast in prefixes.of(shown, is_folded) {
                are_any = true;
                let key = &*shared.get_or_insert_with(|| shown.into());
                for tracker in broadcast.trackers.iter().filter(|tracker| !skips(tracker)) {
                    match is_folded {
                        false => tracker.tell_key(&self.post, broadcast.group, key),
                        true => tracker.tell_all(&self.post),
                    }
                }
            }
        }
        are_any
    }

    /// About once a second, worker `number` of `workers`: tells of its part of the keys whose items have expired.
    pub(super) fn tell_expired(&self, clock: &Clock, number: usize, workers: usize) {
        if !self.is_on() {
            return;
        }
        for table in (number..TABLES).step_by(workers) {
            let mut expired = Vec::new();
            let mut table = self.lock_table(table);
            let mut at = 0;
            while let Some((_, row)) = table.get_index(at) {
                match clock.has_passed(row.expiry) {
                    true => expired.extend(table.swap_remove_index(at)),
                    false => at += 1,
                }
            }
            drop(table);
            for (_, row) in expired {
                self.bytes.fetch_sub(row.bytes(), Relaxed);
                self.tell_readers(&row, |_| false);
                self.tell_broadcasts(&row.key, |_| false);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dispatch::news::News;
    use crate::io::{Buffers, ConnectionId};
    use larder_protocol::resp::Version;

    fn tracking(limit_bytes: u64) -> Tracking {
        let buffers = Arc::new(Buffers::new(limit_bytes));
        Tracking::new(Arc::new(Post::new(1, Arc::new(News::new(1, None)), Some(buffers))))
    }

    fn wish(client: u64, namespace: &str, prefixes: &[&str]) -> Wish {
        Wish {
            client,
            mailbox: Arc::new(Mailbox::new(0, ConnectionId::of(client as u32, 1))),
            redirect: None,
            ignores_own: false,
            namespace: namespace.as_bytes().into(),
            prefixes: prefixes.iter().map(|one| one.as_bytes().to_vec()).collect(),
        }
    }

    /// The keys that a tracker was told of; `*` = all.
    fn told(tracking: &Tracking, tracker: &Tracker) -> String {
        let mut out = Vec::new();
        tracker.mailbox.take(&tracking.post, Version::Resp3, false, usize::MAX, &mut out);
        let text = String::from_utf8_lossy(&out).replace("\r\n", " ");
        let words =
            text.split(' ').filter(|word| !word.starts_with(['>', '$', '*']) && *word != "invalidate");
        words.map(|word| if word == "_" { "*" } else { word }).collect::<Vec<_>>().join(" ").trim().to_owned()
    }

    fn changed(key: &str, hash: u64) -> Change<'_> {
        Change::Key { hash: KeyHash(hash), key: key.as_bytes(), expiry: Expiry::NEVER }
    }

    #[test]
    fn a_set_has_few_numbers_or_groups() {
        let mut set = TrackerSet::default();
        for (at, number) in [1, 64, 128, NUMBER_MAX, 3, 4, 5, 6].into_iter().enumerate() {
            assert!(!set.has(number));
            set = set.with(number).with(number);
            assert_eq!((set.has(number), set.len()), (true, at as u64 + 1));
        }
        assert!(!set.has(255) && set.numbers().eq([1, 64, 128, NUMBER_MAX, 3, 4, 5, 6]));
        let set = set.with(2);
        assert!([1, 64, 128, NUMBER_MAX, 2, 255].iter().all(|number| set.has(*number)));
        assert!(!set.has(7) && set.numbers().count() == 0 && set.with(7).has(134));
    }

    #[test]
    fn readers_are_told_once_and_those_of_a_prefix_each_time() {
        let tracking = tracking(1 << 20);
        let add = |wish| tracking.add(wish, None, || {}).expect("there is a number");
        let [first, second] = [1, 2].map(|client| add(wish(client, "", &[])));
        let broad = add(wish(3, "", &["page:", "user:"]));
        assert!(tracking.is_on() && tracking.note_read(&first, KeyHash(1), b"page:1"));
        assert!(!tracking.note_read(&first, KeyHash(1), b"page:1"));
        assert!(tracking.note_read(&second, KeyHash(1), b"page:1"));
        assert!(tracking.note_read(&second, KeyHash(2), b"other"));
        let counts = TrackingCounts { clients: 3, keys: 2, items: 3, prefixes: 2 };
        assert_eq!(tracking.counts(), counts);
        (0..2).for_each(|_| tracking.note(changed("page:1", 1)));
        assert_eq!(
            [&first, &second, &broad].map(|one| told(&tracking, one)),
            ["page:1", "page:1", "page:1 page:1"]
        );
        // Another key with the hash of one that was read.
        tracking.note(changed("another", 2));
        assert_eq!(told(&tracking, &second), "");
        assert!(tracking.note_read(&first, KeyHash(2), b"another"));
        assert_eq!(told(&tracking, &second), "other");
        tracking.note_eviction(KeyHash(2), b"another");
        assert_eq!(told(&tracking, &first), "another");
        tracking.note(Change::All);
        assert_eq!([&first, &broad].map(|one| told(&tracking, one)), ["*", "*"]);
        let prefixes = [b"page:".to_vec(), b"user:".to_vec()];
        for (left, tracker) in [first, second, broad].iter().enumerate() {
            let mut is_last = false;
            tracking.remove(tracker, if left == 2 { &prefixes } else { &[] }, || is_last = true);
            assert_eq!(is_last, left == 2);
        }
        assert_eq!((tracking.counts(), tracking.bytes.load(Relaxed)), (TrackingCounts::default(), 0));
        assert_eq!(tracking.post.buffers().unwrap().used_bytes(), 0);
    }

    #[test]
    fn who_has_a_namespace_hears_of_its_own_keys_alone_in_all_databases() {
        let tracking = tracking(1 << 20);
        let add = |wish| tracking.add(wish, None, || {}).expect("there is a number");
        let [root, ada, bob] =
            [(1, ""), (2, "ada:"), (3, "bob:")].map(|(client, own)| add(wish(client, own, &[])));
        let all = add(wish(4, "ada:", &[""]));
        let third = [b"ada:".as_slice(), &DATABASE_MARK, b"\x03k"].concat();
        for (hash, key) in [(1, &b"ada:k"[..]), (2, &third)] {
            for tracker in [&root, &ada, &bob] {
                tracking.note_read(tracker, KeyHash(hash), key);
            }
            tracking.note(Change::Key { hash: KeyHash(hash), key, expiry: Expiry::NEVER });
        }
        assert_eq!([&ada, &bob, &all].map(|one| told(&tracking, one)), ["k k", "", "k k"]);
        assert!(told(&tracking, &root).starts_with("ada:k ada:"));
        // Deletes by prefix: of some keys, of a database, of everything that a user has.
        for (prefix, expected) in [
            (&b"ada:pa"[..], ["ada:page", "page", "", "*"]),
            (b"ada:", ["ada:page", "*", "", "*"]),
            (b"", ["*", "*", "*", "*"]),
            (&third[..third.len() - 1], ["", "*", "", "*"]),
        ] {
            [&root, &ada].iter().for_each(|one| _ = tracking.note_read(one, KeyHash(5), b"ada:page"));
            tracking.note(Change::Prefix(prefix));
            assert_eq!([&root, &ada, &bob, &all].map(|one| told(&tracking, one)), expected, "{prefix:?}");
        }
    }

    #[test]
    fn a_full_table_tells_of_what_it_forgets() {
        let tracking = tracking(256 << 10);
        let tracker = tracking.add(wish(1, "", &[]), None, || {}).expect("there is a number");
        let keys = 1000;
        for number in 0..keys {
            tracking.note_read(&tracker, KeyHash(number << 50), format!("key{number}").as_bytes());
        }
        let kept = tracking.counts().keys;
        assert!(tracking.bytes.load(Relaxed) <= 64 << 10 && kept > 300, "{kept}");
        let told = told(&tracking, &tracker);
        assert!(told == "*" || told.split(' ').count() == keys as usize - kept, "{kept} {told}");
    }

    #[test]
    fn who_changes_a_key_and_one_whose_other_connection_is_gone() {
        let tracking = tracking(1 << 20);
        let add = |wish| tracking.add(wish, None, || {}).expect("there is a number");
        let own = add(Wish { ignores_own: true, ..wish(7, "", &[]) });
        let target = Arc::new(Mailbox::new(0, ConnectionId::of(9, 9)));
        let redirected = Wish { redirect: Some((9, target.clone())), ..wish(8, "", &[]) };
        let redirected = add(redirected);
        let read =
            || [&own, &redirected].iter().for_each(|one| _ = tracking.note_read(one, KeyHash(1), b"k"));
        read();
        set_changer(7);
        tracking.note(changed("k", 1));
        set_changer(0);
        assert_eq!((told(&tracking, &own), target.has_letters()), (String::new(), true));
        target.close(&tracking.post);
        (0..2).for_each(|_| {
            read();
            tracking.note(changed("k", 1));
        });
        assert_eq!(
            (told(&tracking, &own), told(&tracking, &redirected)),
            ("k k".into(), "tracking-redir-broken :9".into())
        );
        assert!(redirected.is_broken());
    }
}
