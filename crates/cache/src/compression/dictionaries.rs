//! The dictionaries that records in memory, or on flash, were compressed with.
//!
//! A dictionary has a number, which its records name. The number is given to another dictionary only when no column
//! that a reader may hold a record of has one that needs it. So a thread that sees a record finds its dictionary, and
//! what it remembers of a number holds until the version of the number changes.

use larder_compression::{Decompressor, Dictionary};
use larder_memory::{Compressed, DICTIONARIES_MAX, Memory};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

const NUMBERS: usize = DICTIONARIES_MAX as usize;

/// The dictionaries that all threads see. The lock is a leaf.
#[derive(Default)]
pub(crate) struct Dictionaries {
    /// How often each number was given.
    versions: [AtomicU32; NUMBERS],
    table: Mutex<[Option<Arc<Dictionary>>; NUMBERS]>,
    bytes: AtomicU64,
}

impl Dictionaries {
    /// Those that an earlier process has left in a kept memory.
    pub(crate) fn kept(memory: &Memory) -> Dictionaries {
        let dictionaries = Dictionaries::default();
        for number in 1..DICTIONARIES_MAX {
            let kept = memory.kept_dictionary(number).and_then(|(_, bytes)| Dictionary::read(&bytes));
            if let Some(dictionary) = kept {
                dictionaries.set(number, Some(Arc::new(dictionary)));
            }
        }
        dictionaries
    }

    /// The dictionary of a number.
    pub(crate) fn get(&self, number: u8) -> Option<Arc<Dictionary>> {
        self.table.lock().expect("no panic under this lock").get(usize::from(number))?.clone()
    }

    /// Gives a number to a dictionary, or to none: no record needs the one before.
    pub(crate) fn set(&self, number: u8, dictionary: Option<Arc<Dictionary>>) {
        let mut table = self.table.lock().expect("no panic under this lock");
        table[usize::from(number)] = dictionary;
        let bytes = table.iter().flatten().map(|dictionary| dictionary.memory_bytes() as u64).sum();
        self.bytes.store(bytes, Ordering::Relaxed);
        // Release: a thread that sees a record of the new dictionary, which is placed later, sees this.
        self.versions[usize::from(number)].fetch_add(1, Ordering::Release);
    }

    /// Bytes of memory of all of them.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// Expands values, for one thread.
pub(crate) struct Expander {
    decompressor: Option<Decompressor>,
    /// The dictionaries that were needed before, with the versions of their numbers.
    known: [Option<(u32, Arc<Dictionary>)>; NUMBERS],
}

impl Default for Expander {
    fn default() -> Expander {
        Expander { decompressor: None, known: [const { None }; NUMBERS] }
    }
}

impl Expander {
    /// Appends the value that was compressed to `stored`. Returns whether it could be read; if not, `out` is as before.
    pub(crate) fn expand(
        &mut self,
        dictionaries: &Dictionaries,
        stored: Compressed<'_>,
        out: &mut Vec<u8>,
    ) -> bool {
        let number = usize::from(stored.dictionary);
        let version = dictionaries.versions[number].load(Ordering::Acquire);
        let known = &mut self.known[number];
        if known.as_ref().is_none_or(|(of, _)| *of != version) {
            *known = dictionaries.get(stored.dictionary).map(|dictionary| (version, dictionary));
        }
        let Some((_, dictionary)) = known else { return false };
        let decompressor = self.decompressor.get_or_insert_default();
        decompressor.decompress(stored.frame(), Some(dictionary), stored.plain_bytes as usize, out).is_ok()
    }
}
