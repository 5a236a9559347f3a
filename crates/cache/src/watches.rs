//! Keys that somebody watches, and what has become of them since.
//!
//! Whoever watches a key wants to know later whether it was changed, whatever the change left behind: a key that was
//! stored and deleted again was changed. A state that is compared later does not tell. So the watched keys are listed,
//! by hash, and every writer of a listed key notes its change under the writer bit of the key's bucket. While nobody
//! watches, a writer finds that out from a word that it reads anyway ([`Extras`]).
//!
//! Items that are evicted, moved, demoted to flash or promoted are not changed: whoever does that writes nothing down.
//!
//! A listener may hear of every change ([`Change`]): whoever keeps track of what clients have read.

use larder_item::{Expiry, KeyHash};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};

/// Watched keys are spread over this number of tables, so that writers of different keys seldom meet.
const TABLES: usize = 64;

/// What a writer has to do beside its write. Mostly nothing, so all of it is one word.
pub(crate) struct Extras(AtomicU32);

/// The bit that says that items may outlast the process.
const LASTING: u32 = 1 << 31;
/// The bit that says that the listener hears of changes; those below count the watches.
const TOLD: u32 = 1 << 30;

/// What has happened to items.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change<'a> {
    /// A key is being stored, deleted, or given another expiry. It is told under a lock that readers of the new state
    /// can wait for: [`Worker::expiry_after_changes`](crate::Worker::expiry_after_changes).
    Key {
        /// The hash of the key.
        hash: KeyHash,
        /// The key.
        key: &'a [u8],
        /// When the new item expires; never, if there is none.
        expiry: Expiry,
    },
    /// Nothing has: an item that was on flash is shown, or is in memory from now on.
    Seen {
        /// The hash of its key.
        hash: KeyHash,
        /// Its key.
        key: &'a [u8],
        /// When it expires.
        expiry: Expiry,
    },
    /// All items whose keys begin so were flushed.
    Prefix(&'a [u8]),
    /// All items were flushed, or clients call them by other keys from now on.
    All,
}

/// Hears of changes. It must not block, and must not call the cache.
type Listener = Box<dyn Fn(Change<'_>) + Send + Sync>;

impl Extras {
    /// `is_lasting`: items may outlast this process.
    pub(crate) fn new(is_lasting: bool) -> Extras {
        Extras(AtomicU32::new(if is_lasting { LASTING } else { 0 }))
    }

    /// Whether there is anything. To be asked under the writer bit of the key's bucket: see [`Watches::begin`].
    #[inline]
    pub(crate) fn are_any(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Items may outlast this process: there is flash, or memory is kept.
    pub(crate) fn is_lasting(&self) -> bool {
        self.0.load(Ordering::Relaxed) & LASTING != 0
    }

    /// Some key is watched.
    #[inline]
    fn is_watched(&self) -> bool {
        self.0.load(Ordering::Relaxed) & !(LASTING | TOLD) != 0
    }

    /// The listener hears of changes.
    pub(crate) fn is_told(&self) -> bool {
        self.0.load(Ordering::Relaxed) & TOLD != 0
    }

    /// Somebody wants to know of changes.
    #[inline]
    pub(crate) fn are_noted(&self) -> bool {
        self.0.load(Ordering::Relaxed) & !LASTING != 0
    }

    /// Whether the listener hears of changes from now on.
    pub(crate) fn tell(&self, on: bool) {
        match on {
            true => self.0.fetch_or(TOLD, Ordering::Relaxed),
            false => self.0.fetch_and(!TOLD, Ordering::Relaxed),
        };
    }

    fn add_watch(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn take_watch(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How often something happened to a watched key.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Marks {
    /// It was stored, deleted, or got another expiry.
    pub(crate) changes: u64,
    /// Its item was flushed, if there was one.
    pub(crate) flushes: u64,
}

/// A key that is watched.
struct Row {
    key: Box<[u8]>,
    watchers: u32,
    marks: Marks,
}

/// Bytes that a watched key takes in the tables at most, beside the key.
pub(crate) const ROW_BYTES: usize = 2 * size_of::<(KeyHash, Row)>();

type Table = HashMap<KeyHash, Row>;

/// The keys that are watched. Keys of one hash are one key here.
pub(crate) struct Watches {
    pub(crate) extras: Extras,
    tables: [Mutex<Table>; TABLES],
    listener: OnceLock<Listener>,
}

impl Watches {
    /// Nothing is watched. `is_lasting`: see [`Extras::is_lasting`].
    pub(crate) fn new(is_lasting: bool) -> Watches {
        Watches {
            extras: Extras::new(is_lasting),
            tables: std::array::from_fn(|_| Mutex::default()),
            listener: OnceLock::new(),
        }
    }

    /// Sets the listener, once.
    pub(crate) fn listen(&self, listener: Listener) {
        let _ = self.listener.set(listener);
    }

    /// Tells the listener of a change.
    pub(crate) fn tell(&self, change: Change<'_>) {
        if self.extras.is_told()
            && let Some(listener) = self.listener.get()
        {
            listener(change);
        }
    }

    fn table(&self, hash: KeyHash) -> MutexGuard<'_, Table> {
        self.tables[hash.tag() as usize % TABLES].lock().expect("no panic under this lock")
    }

    /// Lists a key for one more watcher. The caller takes and releases the writer bit of the key's bucket afterwards,
    /// before it looks at the item. A writer that holds the bit before has ended then, so what it did is seen by that
    /// look; one that takes the bit later sees that the key is listed, and notes its change.
    pub(crate) fn begin(&self, hash: KeyHash, key: &[u8]) -> Marks {
        let mut table = self.table(hash);
        let row = table.entry(hash).or_insert_with(|| Row {
            key: key.into(),
            watchers: 0,
            marks: Marks::default(),
        });
        row.watchers += 1;
        self.extras.add_watch();
        row.marks
    }

    /// A watch has ended.
    pub(crate) fn end(&self, hash: KeyHash) {
        let mut table = self.table(hash);
        let is_last = table.get_mut(&hash).is_some_and(|row| {
            row.watchers -= 1;
            row.watchers == 0
        });
        if is_last {
            table.remove(&hash);
        }
        if table.is_empty() {
            *table = Table::new();
        }
        self.extras.take_watch();
    }

    /// What has happened to a key that is watched.
    pub(crate) fn marks(&self, hash: KeyHash) -> Marks {
        self.table(hash).get(&hash).map_or(Marks::default(), |row| row.marks)
    }

    /// A key is changed, under the writer bit of its bucket. `expiry` = that of the new item.
    #[cold]
    pub(crate) fn note_change(&self, hash: KeyHash, key: &[u8], expiry: Expiry) {
        if self.extras.is_watched()
            && let Some(row) = self.table(hash).get_mut(&hash)
        {
            row.marks.changes += 1;
        }
        self.tell(Change::Key { hash, key, expiry });
    }

    /// Every key may have another item than before.
    pub(crate) fn note_exchange(&self) {
        for table in &self.tables {
            let mut table = table.lock().expect("no panic under this lock");
            table.values_mut().for_each(|row| row.marks.changes += 1);
        }
        self.tell(Change::All);
    }

    /// The items of these keys were flushed.
    pub(crate) fn note_flush(&self, is_flushed: impl Fn(&[u8]) -> bool) {
        if !self.extras.is_watched() {
            return;
        }
        for table in &self.tables {
            let mut table = table.lock().expect("no panic under this lock");
            for row in table.values_mut().filter(|row| is_flushed(&row.key)) {
                row.marks.flushes += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_sees_what_happens_while_it_lasts() {
        let watches = Watches::new(false);
        let (a, b) = (KeyHash(1 << 50), KeyHash(2 << 50));
        let change = |hash| watches.note_change(hash, b"", Expiry::NEVER);
        change(a);
        assert!(!watches.extras.are_any());
        let first = watches.begin(a, b"page:a");
        let other = watches.begin(b, b"b");
        assert!(watches.extras.are_any() && watches.extras.is_watched());
        change(a);
        let second = watches.begin(a, b"page:a");
        assert_ne!(watches.marks(a), first);
        assert_eq!(watches.marks(a), second);
        assert_eq!(watches.marks(b), other);
        watches.note_flush(|key| key.starts_with(b"page:"));
        assert_eq!(watches.marks(a), Marks { changes: second.changes, flushes: 1 });
        assert_eq!(watches.marks(b), other);
        watches.note_exchange();
        assert_ne!(watches.marks(b), other);
        for hash in [a, a, b] {
            watches.end(hash);
        }
        assert!(!watches.extras.are_any());
        assert!(watches.tables.iter().all(|table| table.lock().unwrap().capacity() == 0));
    }

    #[test]
    fn what_outlasts_the_process_is_no_watch() {
        let watches = Watches::new(true);
        assert!(watches.extras.are_any() && watches.extras.is_lasting() && !watches.extras.is_watched());
        watches.begin(KeyHash(0), b"key");
        assert!(watches.extras.is_watched() && watches.extras.is_lasting());
        watches.end(KeyHash(0));
        assert!(watches.extras.are_any() && !watches.extras.is_watched());
    }

    #[test]
    fn the_listener_hears_of_changes_while_they_are_wanted() {
        let watches = Watches::new(true);
        let heard = std::sync::Arc::new(Mutex::new(Vec::new()));
        let list = heard.clone();
        watches.listen(Box::new(move |change| list.lock().unwrap().push(format!("{change:?}"))));
        let change = || watches.note_change(KeyHash(0), b"k", Expiry::NEVER);
        change();
        watches.extras.tell(true);
        assert!(watches.extras.are_noted() && !watches.extras.is_watched() && watches.extras.is_lasting());
        change();
        watches.tell(Change::All);
        watches.extras.tell(false);
        change();
        assert_eq!(heard.lock().unwrap().len(), 2);
        assert!(!watches.extras.are_noted() && watches.extras.is_lasting());
    }
}
