//! Kinds of values, told apart by what their keys begin with, and which dictionary each has.
//!
//! A kind with a large part of what passes meet has a dictionary of its own. All others share one, unless their
//! prefixes may be those of tenants: the length of what one tenant stores would then tell what others do. While there
//! is room for one dictionary only, it is the shared one.
//!
//! A kind whose values do not shrink by a quarter is left alone for longer and longer.

use super::trainer::{Trained, Training};
use crate::compression::{Compress, CompressionStats, DictionaryStats, Owned};
use crate::flash_note::FlashNote;
use crate::item_store::ItemStore;
use larder_compression::{DICTIONARY_BYTES_MAX, Dictionary, Samples};
use larder_item::{DATABASE_MARK, FOLDED_KEY_BYTES};
use larder_memory::{ColumnId, ColumnState, DICTIONARIES_MAX};
use memchr::memchr;
use std::collections::HashMap;
use std::sync::Arc;

/// Shorter values are not compressed: they have little to save, and clients ask what the shortest look like.
pub(super) const VALUE_BYTES_MIN: usize = 64;
/// What a dictionary takes: its bytes are there for each way, with tables.
const DICTIONARY_TIMES: u64 = 4;
const DICTIONARY_TABLES_BYTES: u64 = 440 << 10;
/// Dictionaries take at most this part of the limit, or there is one, which is as long as this part of it.
const LIMIT_SHARE: u64 = 200;
const LENGTH_SHARE_OF_LIMIT: u64 = 512;
/// Nothing is trained where one dictionary, and what values are compressed and expanded with, would take more than this
/// part of the limit: what they save may be less.
const OVERHEAD_SHARE: u64 = 12;
/// What a training takes while it runs, and the part of the limit that is set aside for it at most: in a small cache
/// the rest is in what a process takes beside its limit.
const TRAINING_BYTES: u64 = 4 << 20;
const TRAINING_SHARE: u64 = 6;
/// What values are compressed with, and expanded with by each worker.
const COMPRESSOR_BYTES: u64 = 256 << 10;
const EXPANDER_BYTES: u64 = 112 << 10;
/// Numbers that are left for dictionaries that no new record needs.
const OUTGOING_MAX: usize = 4;
/// Bytes that are trained from, for each byte of the dictionary; and what is taken of one value at most.
const SAMPLES_TIMES: usize = 8;
const SAMPLE_BYTES_MAX: usize = 4 << 10;
/// One value in four that could be trained from is.
const SAMPLED_SHARE: u32 = 4;
/// Kinds that are known at once; the smallest ones make room.
const KINDS_MAX: usize = 256;
/// A kind with a sixteenth of what was met lately has a dictionary of its own.
const OWN_SHARE: u64 = 16;
/// What was met counts by half after 256 MiB.
const HALVED_AFTER_BYTES: u64 = 256 << 20;
/// Values that say whether those of a kind shrink, and the fewest of them that have to.
const TRIES: u32 = 64;
const SAVED_MIN: u32 = TRIES / 8;
/// Values of a kind that does not shrink that are left alone the first time; then four times as many, each time. And
/// those that are after a training has come to nothing.
const LEFT_ALONE_MIN: u32 = 256;
const LEFT_ALONE_MAX: u32 = 1 << 15;
const LEFT_ALONE_UNTRAINED: u32 = 1 << 18;
/// The ratio of a dictionary is looked at anew after 8 MiB of values. Where it has risen by a fifth, another one is
/// trained.
const RATIO_BYTES: u64 = 8 << 20;
const RATIO_RISE: f64 = 1.2;

/// Who uses a dictionary: a kind, by the hash of its prefix, or all that have none of their own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Scope(u64);

impl Scope {
    /// All kinds without a dictionary of their own.
    const SHARED: Scope = Scope(1);
    /// Nobody any more.
    const NOBODY: Scope = Scope(2);
}

/// What is known of one kind.
#[derive(Default)]
struct Kind {
    /// Bytes of values that were met lately.
    met_bytes: u64,
    tried: u32,
    saved: u32,
    /// The values that were tried last shrank.
    has_shrunk: bool,
    /// Values that are left alone from now on, and that will be the next time.
    leave: u32,
    leave_next: u32,
}

impl Kind {
    /// Returns whether its values shrank before, and do no more.
    fn note(&mut self, is_saved: bool) -> bool {
        self.tried += 1;
        self.saved += u32::from(is_saved);
        if self.tried < TRIES {
            return false;
        }
        let shrinks = self.saved >= SAVED_MIN;
        let is_news = !shrinks && self.has_shrunk;
        self.has_shrunk = shrinks;
        if shrinks {
            self.leave_next = 0;
        } else {
            self.leave = self.leave_next.max(LEFT_ALONE_MIN);
            self.leave_next = (self.leave * 4).min(LEFT_ALONE_MAX);
        }
        (self.tried, self.saved) = (0, 0);
        is_news
    }
}

/// A dictionary that records may need.
struct Known {
    number: u8,
    scope: Scope,
    made_s: u32,
    dictionary: Arc<Dictionary>,
    /// Values that were compressed with it since the start.
    values: u64,
    /// Bytes of values since the last look at its ratio, and what they took.
    plain_bytes: u64,
    stored_bytes: u64,
    /// What it was at first, and at the last look.
    first_ratio: Option<f64>,
    ratio: Option<f64>,
    /// The values of a kind that uses it have ceased to shrink: it may be that it does not fit them any more.
    is_outdated: bool,
}

/// Values that another dictionary is to be trained from.
struct Collecting {
    scope: Scope,
    samples: Samples,
    bytes_max: usize,
    /// Values of kinds that are left alone count, too: the dictionary that they were tried with may be outdated.
    takes_all: bool,
}

impl Collecting {
    fn is_full(&self) -> bool {
        self.samples.bytes().len() + SAMPLE_BYTES_MAX >= self.bytes_max
    }
}

/// The kinds of values, and their dictionaries. The keeper owns it.
#[derive(Default)]
pub(super) struct Kinds {
    kinds: HashMap<u64, Kind>,
    met_bytes: u64,
    known: Vec<Known>,
    collecting: Option<Collecting>,
    training: Option<Training>,
    /// Where dictionaries lie beside items on flash.
    note: Option<Arc<FlashNote>>,
    /// Bytes of values that are met before the shared dictionary is tried anew, after values that did not shrink.
    shared_rests: u64,
    offered: u32,
    /// The setting that `kinds` were met under.
    setting: Compress,
    /// When it was last looked which dictionaries are needed.
    looked_s: u32,
}

impl Kinds {
    /// Those of a store, with the dictionaries that an earlier process has left.
    pub(super) fn of(store: &ItemStore, note: Option<Arc<FlashNote>>) -> Kinds {
        let mut kinds = Kinds { note, ..Kinds::default() };
        for number in 1..DICTIONARIES_MAX {
            if let Some(owned) = store.compression.dictionaries.get(number) {
                kinds.know(store, number, owned);
            }
        }
        kinds
    }

    fn know(&mut self, store: &ItemStore, number: u8, owned: Owned) {
        let scope = Scope(owned.owner);
        self.known.iter_mut().filter(|known| known.scope == scope).for_each(Known::goes_out);
        self.known.push(Known::new(number, scope, store.clock.now_s(), owned.dictionary));
    }

    /// The dictionary that a value of this key would be compressed with; `None` = it is left alone.
    pub(super) fn choose(&mut self, store: &ItemStore, key: &[u8], value_bytes: usize) -> Option<Choice> {
        let setting = store.compression.setting.get();
        if value_bytes < VALUE_BYTES_MIN || key.len() == FOLDED_KEY_BYTES {
            return None;
        }
        let (kind, name) = kind_of(store, key);
        if !setting.admits(name) {
            return None;
        }
        if let Compress::Modelled(thousandths) = **setting {
            return Some(Choice { kind, way: Way::Modelled(thousandths) });
        }
        let number = self.number_for(kind, store.compression.setting.may_share())?;
        let known = self.kinds.get_mut(&kind)?;
        if known.leave > 0 {
            known.leave -= 1;
            return None;
        }
        let of = self.known.iter().find(|known| known.number == number)?;
        Some(Choice { kind, way: Way::Dictionary(number, of.dictionary.clone()) })
    }

    fn number_for(&self, kind: u64, may_share: bool) -> Option<u8> {
        let of =
            |scope: Scope| self.known.iter().rfind(|known| known.scope == scope).map(|known| known.number);
        of(Scope(kind)).or_else(|| may_share.then(|| of(Scope::SHARED))?)
    }

    /// Whether new records need this dictionary no more.
    pub(super) fn is_outgoing(&self, number: u8) -> bool {
        self.known.iter().any(|known| known.number == number && known.scope == Scope::NOBODY)
    }

    /// What came of a choice: the bytes of a value, and those that are stored; `None` = it does not shrink.
    pub(super) fn note(&mut self, choice: &Choice, plain_bytes: usize, stored_bytes: Option<usize>) {
        let kind = self.kinds.get_mut(&choice.kind);
        let is_news = kind.is_some_and(|kind| kind.note(stored_bytes.is_some()));
        let Way::Dictionary(number, _) = choice.way else { return };
        let Some(known) = self.known.iter_mut().find(|known| known.number == number) else { return };
        known.is_outdated |= is_news;
        if let Some(stored) = stored_bytes {
            known.values += 1;
            known.plain_bytes += plain_bytes as u64;
            known.stored_bytes += stored as u64;
        }
        if known.plain_bytes >= RATIO_BYTES {
            let ratio = known.stored_bytes as f64 / known.plain_bytes as f64;
            known.first_ratio.get_or_insert(ratio);
            known.ratio = Some(ratio);
            (known.plain_bytes, known.stored_bytes) = (0, 0);
        }
    }

    /// A pass has met a live item with a plain value: it may be trained from.
    pub(super) fn meet(&mut self, store: &ItemStore, key: &[u8], value: &[u8]) {
        let (kind, name) = kind_of(store, key);
        if !store.compression.setting.get().admits(name) {
            return;
        }
        if self.kinds.len() >= KINDS_MAX && !self.kinds.contains_key(&kind) {
            self.forget_smallest();
        }
        let bytes = value.len() as u64;
        self.met_bytes += bytes;
        self.shared_rests = self.shared_rests.saturating_sub(bytes);
        let known = self.kinds.entry(kind).or_default();
        known.met_bytes += bytes;
        let is_left_alone = known.leave > 0;
        if self.met_bytes >= HALVED_AFTER_BYTES {
            self.met_bytes /= 2;
            self.kinds.values_mut().for_each(|kind| kind.met_bytes /= 2);
        }
        self.offered = self.offered.wrapping_add(1);
        if value.len() < VALUE_BYTES_MIN || !self.offered.is_multiple_of(SAMPLED_SHARE) {
            return;
        }
        let has_own = self.known.iter().any(|known| known.scope == Scope(kind));
        let Some(collecting) = self.collecting.as_mut().filter(|collecting| !collecting.is_full()) else {
            return;
        };
        if is_left_alone && !collecting.takes_all {
            return;
        }
        if collecting.scope == Scope(kind) || collecting.scope == Scope::SHARED && !has_own {
            collecting.samples.offer(value);
        }
    }

    fn forget_smallest(&mut self) {
        let smallest = self.kinds.iter().min_by_key(|(_, kind)| kind.met_bytes).map(|(hash, _)| *hash);
        if let Some(hash) = smallest {
            self.kinds.remove(&hash);
        }
    }

    /// Begins to train, once there is memory for it. The number of a dictionary on flash is not given again, even if
    /// that one is damaged: another one would make wrong values of its records.
    fn train(&mut self, store: &ItemStore) {
        let is_free = |number: &u8| {
            !self.known.iter().any(|known| known.number == *number)
                && !store.compression.dictionaries.is_on_flash(*number)
        };
        let number = (1..DICTIONARIES_MAX).find(is_free);
        let has_room =
            store.limits.dictionaries_bytes() >= self.bytes(store) && store.memory.over_limit_slabs() == 0;
        if has_room && let (Some(number), Some(full)) = (number, self.collecting.take()) {
            self.training = Training::begin(full.samples, number, full.scope.0, self.note.clone());
        }
    }

    /// Before flash is closed: waits for a training, which might yet write there.
    pub(super) fn end_training(&mut self) {
        _ = self.training.take().map(Training::end);
    }

    /// From time to time: takes in a dictionary that was trained, begins to collect for the next one, and forgets those
    /// that no record needs.
    pub(super) fn tend(&mut self, store: &ItemStore) {
        if !store.compression.setting.may_share() {
            self.known.iter_mut().filter(|known| known.scope == Scope::SHARED).for_each(Known::goes_out);
        }
        if let Some(training) = self.training.take_if(|training| training.is_over()) {
            let (number, scope) = (training.number, Scope(training.owner));
            match training.end() {
                Some(trained) => self.take_in(store, number, trained),
                None => self.comes_to_nothing(scope),
            }
        }
        self.forget_unneeded(store);
        if **store.compression.setting.get() != self.setting {
            // What was met before says nothing of what will be compressed.
            self.setting = (**store.compression.setting.get()).clone();
            (self.collecting, self.met_bytes) = (None, 0);
            self.kinds.clear();
        }
        let is_trained = matches!(**store.compression.setting.get(), Compress::Auto | Compress::Only(_));
        // Where nothing may be evicted, no memory could be taken for it.
        if !is_trained || !store.leaving.happens() {
            self.collecting = None;
            return self.account(store);
        }
        if self.collecting.as_ref().is_some_and(Collecting::is_full) {
            self.train(store);
        }
        self.account(store);
        if self.collecting.is_none() && self.training.is_none() {
            self.collecting = self.next_scope(store).map(|scope| {
                let length = (store.memory.limit_bytes() / LENGTH_SHARE_OF_LIMIT) as usize;
                let bytes_max = SAMPLES_TIMES * length.min(DICTIONARY_BYTES_MAX);
                let samples = Samples::new(usize::MAX, bytes_max, SAMPLE_BYTES_MAX, 1);
                let takes_all = self.known.iter().any(|known| known.scope == scope && known.is_outdated);
                Collecting { scope, samples, bytes_max, takes_all }
            });
        }
    }

    /// Who needs another dictionary most.
    fn next_scope(&mut self, store: &ItemStore) -> Option<Scope> {
        let may_share = store.compression.setting.may_share();
        let length =
            (store.memory.limit_bytes() / LENGTH_SHARE_OF_LIMIT).clamp(1, DICTIONARY_BYTES_MAX as u64);
        let dictionary_bytes = DICTIONARY_TABLES_BYTES + length * DICTIONARY_TIMES;
        let overhead_bytes = contexts_bytes(store) + dictionary_bytes;
        if overhead_bytes * OVERHEAD_SHARE > store.limits.budget().limit_bytes {
            return None;
        }
        let of_limit = store.memory.limit_bytes() / LIMIT_SHARE / dictionary_bytes;
        let most = (of_limit as usize).clamp(1, usize::from(DICTIONARIES_MAX) - 1 - OUTGOING_MAX);
        let in_use = self.known.iter().filter(|known| known.scope != Scope::NOBODY).count();
        if self.known.len() >= most + OUTGOING_MAX || self.met_bytes == 0 {
            return None;
        }
        let has = |scope: Scope| self.known.iter().any(|known| known.scope == scope);
        if may_share && !has(Scope::SHARED) && self.shared_rests == 0 {
            return Some(Scope::SHARED);
        }
        let worse = self.known.iter().find(|known| match (known.first_ratio, known.ratio) {
            _ if known.scope == Scope::NOBODY || self.shared_rests > 0 => false,
            _ if known.is_outdated => true,
            (Some(first), Some(now)) => now > first * RATIO_RISE,
            _ => false,
        });
        if let Some(known) = worse {
            return Some(known.scope);
        }
        let candidates = self.kinds.iter().filter(|(hash, kind)| {
            kind.leave == 0 && kind.met_bytes * OWN_SHARE >= self.met_bytes && !has(Scope(**hash))
        });
        let largest = candidates.max_by_key(|(_, kind)| kind.met_bytes).map(|(hash, _)| Scope(*hash));
        // One kind alone needs no dictionary beside the shared one.
        let is_alone =
            may_share && largest.is_some_and(|scope| self.kinds[&scope.0].met_bytes * 8 > self.met_bytes * 7);
        let largest = largest.filter(|_| !is_alone)?;
        if in_use >= most {
            // A kind that is met far less makes room.
            let met = |scope: Scope| self.kinds.get(&scope.0).map_or(0, |kind| kind.met_bytes);
            let is_own = |known: &Known| known.scope != Scope::SHARED && known.scope != Scope::NOBODY;
            let least = (0..self.known.len()).filter(|nth| is_own(&self.known[*nth]));
            let least = least.min_by_key(|nth| met(self.known[*nth].scope))?;
            if met(self.known[least].scope) * 2 >= met(largest) {
                return None;
            }
            self.known[least].goes_out();
        }
        Some(largest)
    }

    fn take_in(&mut self, store: &ItemStore, number: u8, Trained { owned, is_on_flash }: Trained) {
        // Before the first record that needs it.
        if let Err(error) = store.memory.keep_dictionary(number, owned.owner, owned.dictionary.bytes()) {
            tracing::warn!("a dictionary cannot be kept ({error}): values of its kind stay plain");
            return;
        }
        store.compression.dictionaries.set(number, Some(owned.clone()));
        if is_on_flash {
            store.compression.dictionaries.lies_on_flash(number);
        }
        // Who was left alone with the last one is tried anew.
        let scope = Scope(owned.owner);
        let uses = |kind: u64| scope == Scope::SHARED || scope == Scope(kind);
        self.kinds.iter_mut().filter(|(kind, _)| uses(**kind)).for_each(|(_, kind)| kind.leave = 0);
        self.know(store, number, owned);
        self.account(store);
    }

    /// The values that a dictionary was to be trained from do not shrink. An outdated one fits as well as it did.
    fn comes_to_nothing(&mut self, scope: Scope) {
        self.known
            .iter_mut()
            .filter(|known| known.scope == scope)
            .for_each(|known| known.is_outdated = false);
        if scope == Scope::SHARED {
            self.shared_rests = (self.met_bytes * 4).max(RATIO_BYTES);
        } else if let Some(kind) = self.kinds.get_mut(&scope.0) {
            kind.leave = LEFT_ALONE_UNTRAINED;
        }
    }

    /// Forgets dictionaries that nobody uses and no record needs.
    fn forget_unneeded(&mut self, store: &ItemStore) {
        let now_s = store.clock.now_s();
        if self.looked_s == now_s || !self.known.iter().any(|known| known.scope == Scope::NOBODY) {
            return;
        }
        self.looked_s = now_s;
        let columns = (0..store.memory.columns_mapped()).map(|id| store.memory.column(ColumnId(id)));
        let needed = columns
            .filter(|column| !matches!(column.state(), ColumnState::Absent | ColumnState::Free))
            .fold(0, |needed, column| needed | column.dictionaries());
        let before = self.known.len();
        self.known.retain(|known| {
            let stays = known.scope != Scope::NOBODY
                || needed >> known.number & 1 != 0
                || store.compression.dictionaries.is_on_flash(known.number);
            if !stays {
                store.compression.dictionaries.set(known.number, None);
            }
            stays
        });
        if self.known.len() < before {
            self.account(store);
        }
    }

    /// Bytes of dictionaries, of what values are compressed and expanded with, and of a training that is under way or
    /// about to begin.
    fn bytes(&self, store: &ItemStore) -> u64 {
        let is_used = !self.known.is_empty();
        let trains = self.training.is_some() || self.collecting.as_ref().is_some_and(Collecting::is_full);
        let training = TRAINING_BYTES.min(store.limits.budget().limit_bytes / TRAINING_SHARE);
        store.compression.dictionaries.bytes()
            + if is_used { contexts_bytes(store) } else { 0 }
            + if trains { training } else { 0 }
    }

    /// What all that takes is not there for columns.
    fn account(&self, store: &ItemStore) {
        let bytes = self.bytes(store);
        if bytes != store.limits.dictionaries_bytes() {
            store.limits.set_dictionaries_bytes(bytes);
            store.share_out();
        }
    }

    /// What is known of each dictionary.
    pub(super) fn describe(&self) -> CompressionStats {
        let of = |known: &Known| DictionaryStats {
            number: known.number,
            is_outgoing: known.scope == Scope::NOBODY,
            is_shared: known.scope == Scope::SHARED,
            bytes: known.dictionary.bytes().len() as u64,
            made_s: known.made_s,
            values: known.values,
            ratio: known.ratio.or_else(|| known.ratio_so_far()).map_or(0.0, |ratio| 1.0 / ratio),
            items: 0,
        };
        CompressionStats {
            is_training: self.training.is_some(),
            dictionaries: self.known.iter().map(of).collect(),
            ..CompressionStats::default()
        }
    }
}

impl Known {
    fn new(number: u8, scope: Scope, made_s: u32, dictionary: Arc<Dictionary>) -> Known {
        Known {
            number,
            scope,
            made_s,
            dictionary,
            values: 0,
            plain_bytes: 0,
            stored_bytes: 0,
            first_ratio: None,
            ratio: None,
            is_outdated: false,
        }
    }

    /// No new record needs it.
    fn goes_out(&mut self) {
        self.scope = Scope::NOBODY;
    }

    fn ratio_so_far(&self) -> Option<f64> {
        (self.plain_bytes > 0).then(|| self.stored_bytes as f64 / self.plain_bytes as f64)
    }
}

/// How a value is to be compressed.
pub(super) struct Choice {
    kind: u64,
    pub(super) way: Way,
}

/// With which dictionary.
pub(super) enum Way {
    Dictionary(u8, Arc<Dictionary>),
    /// None: it is taken for granted that it shrinks to this number of thousandths.
    Modelled(u16),
}

/// Bytes of what values are compressed and expanded with.
fn contexts_bytes(store: &ItemStore) -> u64 {
    COMPRESSOR_BYTES + store.counters.workers_max() as u64 * EXPANDER_BYTES
}

/// The kind of the value of a key, as the hash of what stands before the first delimiter; and that itself. It is the
/// same in all databases.
fn kind_of<'k>(store: &ItemStore, key: &'k [u8]) -> (u64, Option<&'k [u8]>) {
    let key = key.strip_prefix(&DATABASE_MARK).and_then(|rest| rest.get(1..)).unwrap_or(key);
    let name = memchr(store.compression.setting.delimiter, key).map(|end| &key[..end]);
    // Small numbers are scopes of another sort.
    (name.map_or(0, |name| store.hasher.hash(name).0 | 1 << 63), name)
}
