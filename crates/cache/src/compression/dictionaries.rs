//! The dictionaries that records in memory, or on flash, were compressed with.
//!
//! A dictionary has a number, which its records name. The number is given to another dictionary only when no column
//! that a reader may hold a record of has one that needs it. So a thread that sees a record finds its dictionary, and
//! what it remembers of a number holds until the version of the number changes. Nobody knows which dictionaries records
//! on flash need: those that lie there stay.

use crate::flash_note::LyingDictionary;
use larder_compression::{Decompressor, Dictionary};
use larder_memory::{Compressed, DICTIONARIES_MAX, Memory};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

const NUMBERS: usize = DICTIONARIES_MAX as usize;

/// A dictionary, and whose values it is for.
#[derive(Clone)]
pub(crate) struct Owned {
    pub(crate) dictionary: Arc<Dictionary>,
    pub(crate) owner: u64,
}

/// The dictionaries that all threads see. The lock is a leaf.
#[derive(Default)]
pub(crate) struct Dictionaries {
    /// How often each number was given.
    versions: [AtomicU32; NUMBERS],
    table: Mutex<[Option<Owned>; NUMBERS]>,
    /// A bit for each that lies beside items on flash.
    on_flash: AtomicU32,
    bytes: AtomicU64,
}

impl Dictionaries {
    /// Those that an earlier process has left in a kept memory.
    pub(crate) fn kept(memory: &Memory) -> Dictionaries {
        let dictionaries = Dictionaries::default();
        for number in 1..DICTIONARIES_MAX {
            if let Some((owner, bytes)) = memory.kept_dictionary(number) {
                dictionaries.read(LyingDictionary { number, owner, bytes });
            }
        }
        dictionaries
    }

    /// Takes in those that an earlier process has left on flash. One that is damaged makes misses.
    pub(crate) fn take_in(&self, lying: Vec<LyingDictionary>) {
        for dictionary in lying {
            let number = dictionary.number;
            if (1..DICTIONARIES_MAX).contains(&number) {
                self.read(dictionary);
                self.lies_on_flash(number);
            }
        }
    }

    fn read(&self, LyingDictionary { number, owner, bytes }: LyingDictionary) {
        match Dictionary::read(&bytes).map(Arc::new) {
            Some(dictionary) => self.set(number, Some(Owned { dictionary, owner })),
            None => tracing::warn!("dictionary {number} is damaged: the items that need it are lost"),
        }
    }

    /// The dictionary of a number.
    pub(crate) fn get(&self, number: u8) -> Option<Owned> {
        self.table.lock().expect("no panic under this lock").get(usize::from(number))?.clone()
    }

    /// Gives a number to a dictionary, or to none: no record needs the one before.
    pub(crate) fn set(&self, number: u8, dictionary: Option<Owned>) {
        let mut table = self.table.lock().expect("no panic under this lock");
        table[usize::from(number)] = dictionary;
        let bytes = table.iter().flatten().map(|owned| owned.dictionary.memory_bytes() as u64).sum();
        self.bytes.store(bytes, Ordering::Relaxed);
        // Release: a thread that sees a record of the new dictionary, which is placed later, sees this.
        self.versions[usize::from(number)].fetch_add(1, Ordering::Release);
    }

    /// A dictionary lies beside the items on flash from now on.
    pub(crate) fn lies_on_flash(&self, number: u8) {
        self.on_flash.fetch_or(1 << number, Ordering::Relaxed);
    }

    /// Whether records on flash may need a dictionary.
    pub(crate) fn is_on_flash(&self, number: u8) -> bool {
        self.on_flash.load(Ordering::Relaxed) >> number & 1 != 0
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
            *known = dictionaries.get(stored.dictionary).map(|owned| (version, owned.dictionary));
        }
        let Some((_, dictionary)) = known else { return false };
        let decompressor = self.decompressor.get_or_insert_default();
        decompressor.decompress(stored.frame(), Some(dictionary), stored.plain_bytes as usize, out).is_ok()
    }
}
