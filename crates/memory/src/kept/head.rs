//! The head of the file: what a later process must know before it reads a column.
//!
//! ```text
//! words of 64 bits, in the byte order of the machine
//!  0         1         2            3      4       5        6         7      8, 9      10       11
//! +---------+---------+------------+------+-------+--------+---------+------+---------+--------+-------+
//! | magic   | version | byte order | slab | column| column | slabs   | hash | boot id | 0      | check |
//! |         |         |            |   B  |   B   | entry B| at most | seed | 128 bit |        |       |
//! +---------+---------+------------+------+-------+--------+---------+------+---------+--------+-------+
//!  written once, word 0 last                                                            checksum of 0 to 10
//!
//!  12: a bit for each dictionary that was written; 13, 14: spare
//!  15             16    17            18          19             20      21       22        23
//! +--------------+-----+-------------+-----------+--------------+-------+--------+---------+-----------+
//! | prefix floor | CAS | flush floor | flush due | clock - boot | items | slabs  | process | stopped   |
//! |              |     |             | s         | time, ms     |       | mapped |         | in order  |
//! +--------------+-----+-------------+-----------+--------------+-------+--------+---------+-----------+
//!  change while the server runs
//!
//!  24 to 58, 59 to 93: the note of the owner, twice; a new one replaces the older one
//! +---------+-------+------------------------------+-------+
//! | version | bytes | 256 bytes                    | check |
//! +---------+-------+------------------------------+-------+
//! ```

use larder_item::checksum;
use std::sync::atomic::{AtomicU64, Ordering};

/// "LARDKEEP" in ASCII.
pub(super) const MAGIC: u64 = u64::from_be_bytes(*b"LARDKEEP");
/// The version of everything in the file: head, bookkeeping of columns, records, checksum.
const VERSION: u64 = 3;
/// Reads otherwise on a machine of another byte order.
const BYTE_ORDER: u64 = 0x0102_0304_0506_0708;

/// Words that are written once. The last one is the checksum of the others.
const FIXED_WORDS: usize = 12;
/// The longest note, in bytes.
pub const NOTE_BYTES_MAX: usize = 256;
const NOTE_WORDS: usize = NOTE_BYTES_MAX / 8;

/// The head, in the file.
#[repr(C)]
pub struct Head {
    fixed: [AtomicU64; FIXED_WORDS],
    /// A bit for each dictionary that has its place in the file.
    pub(super) dictionaries: AtomicU64,
    spare: [AtomicU64; 2],
    /// Columns born before this number may hold items of deleted prefixes; 0 = no column does. A process that finds it
    /// set keeps nothing of those columns.
    pub prefix_floor: AtomicU64,
    /// The last CAS number given out, as of the last note.
    pub cas: AtomicU64,
    /// Columns born before this number hold flushed items. It never goes down.
    pub flush_floor: AtomicU64,
    /// When a delayed flush is due, on the server's clock in seconds; 0 = none.
    pub flush_due_s: AtomicU64,
    /// What the server's clock reads less the time since the machine was started, in milliseconds.
    pub clock_offset_ms: AtomicU64,
    /// About how many items there are.
    pub items: AtomicU64,
    /// Slabs from this number on were never mapped.
    pub slabs_mapped: AtomicU64,
    /// The number of the process that has the file, or had it last.
    pub process: AtomicU64,
    /// 1 after a graceful stop, 0 while a server runs.
    pub is_stopped: AtomicU64,
    notes: [NotePlace; 2],
}

/// A place for a note. A process that is killed while it writes one leaves a wrong checksum, and the other place.
#[repr(C)]
struct NotePlace {
    version: AtomicU64,
    bytes: AtomicU64,
    words: [AtomicU64; NOTE_WORDS],
    check: AtomicU64,
}

impl NotePlace {
    /// The note; `None` = there is none, or it was not written to its end.
    fn read(&self) -> Option<(u64, Vec<u8>)> {
        let version = self.version.load(Ordering::Acquire);
        let bytes = self.bytes.load(Ordering::Relaxed) as usize;
        let words = self.words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes());
        let note: Vec<u8> = words.take(bytes).collect();
        let is_whole = version != 0
            && note.len() == bytes
            && self.check.load(Ordering::Relaxed) == check(version, &note);
        is_whole.then_some((version, note))
    }

    fn write(&self, version: u64, note: &[u8]) {
        self.version.store(0, Ordering::Release);
        self.bytes.store(note.len() as u64, Ordering::Release);
        for (word, bytes) in self.words.iter().zip(note.chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_ne_bytes(whole), Ordering::Release);
        }
        self.check.store(check(version, note), Ordering::Release);
        self.version.store(version, Ordering::Release);
    }
}

fn check(version: u64, note: &[u8]) -> u64 {
    checksum(version, [note, &[]]).into()
}

/// What the words that are written once say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    pub(crate) slab_bytes: u64,
    pub(crate) column_bytes: u64,
    /// Bytes of the bookkeeping of one column.
    pub(crate) entry_bytes: u64,
    /// Slabs that there is room for.
    pub(crate) slabs: u64,
    pub(crate) seed: u64,
    /// Which start of the machine it was: 128 random bits.
    pub(crate) boot: [u64; 2],
}

/// Why a file is of no use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Unusable {
    /// It has no head: nobody wrote one, or its process was killed before.
    Blank,
    /// It is not a file of Larder.
    Foreign,
    /// It is one, and cannot be used; the text says why.
    Ours(String),
}

impl Head {
    /// Writes the words that are written once. Everything else is zero in a new file.
    pub(super) fn write(&self, layout: &Layout) {
        let words = words_of(layout);
        for (word, value) in self.fixed.iter().zip(words).skip(1) {
            word.store(value, Ordering::Relaxed);
        }
        // Release: who finds the magic number finds the rest.
        self.fixed[0].store(words[0], Ordering::Release);
    }

    /// Reads the words that are written once.
    pub(super) fn read(&self) -> Result<Layout, Unusable> {
        let words: [u64; FIXED_WORDS] = std::array::from_fn(|at| self.fixed[at].load(Ordering::Acquire));
        if words.iter().all(|word| *word == 0) {
            return Err(Unusable::Blank);
        }
        if words[0] == MAGIC.swap_bytes() {
            return Err(Unusable::Ours("it was written on a machine of another byte order".to_owned()));
        }
        if words[0] != MAGIC {
            // A head of ours whose first bytes were overwritten is still known by its others.
            let is_ours = words[1] == VERSION && words[2] == BYTE_ORDER;
            return Err(if is_ours { damaged() } else { Unusable::Foreign });
        }
        if words[1] != VERSION {
            let text =
                format!("its format has version {}, and this server writes version {VERSION}", words[1]);
            return Err(Unusable::Ours(text));
        }
        let layout = Layout {
            slab_bytes: words[3],
            column_bytes: words[4],
            entry_bytes: words[5],
            slabs: words[6],
            seed: words[7],
            boot: [words[8], words[9]],
        };
        if words != words_of(&layout) {
            return Err(damaged());
        }
        Ok(layout)
    }

    /// What the owner of the items has noted beside them; empty = nothing yet.
    pub fn note(&self) -> Vec<u8> {
        let notes = self.notes.iter().filter_map(NotePlace::read);
        notes.max_by_key(|(version, _)| *version).map(|(_, note)| note).unwrap_or_default()
    }

    /// Notes what the owner of the items wants to find beside them, up to [`NOTE_BYTES_MAX`] bytes. The note before is
    /// there until this one is complete. One thread at a time notes.
    pub fn set_note(&self, note: &[u8]) {
        let [first, second] = &self.notes;
        let versions = [first, second].map(|place| place.read().map_or(0, |(version, _)| version));
        let older = if versions[0] > versions[1] { second } else { first };
        older.write(versions[0].max(versions[1]) + 1, note);
    }
}

fn damaged() -> Unusable {
    Unusable::Ours("its head is damaged".to_owned())
}

fn words_of(layout: &Layout) -> [u64; FIXED_WORDS] {
    let Layout { slab_bytes, column_bytes, entry_bytes, slabs, seed, boot } = *layout;
    let mut words = [
        MAGIC,
        VERSION,
        BYTE_ORDER,
        slab_bytes,
        column_bytes,
        entry_bytes,
        slabs,
        seed,
        boot[0],
        boot[1],
        0,
        0,
    ];
    let bytes: Vec<u8> = words[..FIXED_WORDS - 1].iter().flat_map(|word| word.to_ne_bytes()).collect();
    words[FIXED_WORDS - 1] = checksum(VERSION, [&bytes, &[]]).into();
    words
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const LAYOUT: Layout = Layout {
        slab_bytes: 2 << 20,
        column_bytes: 128 << 10,
        entry_bytes: 128,
        slabs: 64,
        seed: 77,
        boot: [1, 2],
    };

    fn blank() -> Head {
        let word = || AtomicU64::new(0);
        Head {
            fixed: std::array::from_fn(|_| word()),
            dictionaries: word(),
            spare: std::array::from_fn(|_| word()),
            prefix_floor: word(),
            cas: word(),
            flush_floor: word(),
            flush_due_s: word(),
            clock_offset_ms: word(),
            items: word(),
            slabs_mapped: word(),
            process: word(),
            is_stopped: word(),
            notes: std::array::from_fn(|_| NotePlace {
                version: word(),
                bytes: word(),
                words: std::array::from_fn(|_| word()),
                check: word(),
            }),
        }
    }

    #[test]
    fn a_note_replaces_the_older_one_and_one_that_is_torn_does_not_count() {
        let head = blank();
        assert_eq!(head.note(), []);
        for version in 1..5 {
            let note = vec![version; usize::from(version) * 64];
            head.set_note(&note);
            assert_eq!(head.note(), note);
        }
        let newest =
            head.notes.iter().max_by_key(|place| place.version.load(Ordering::Relaxed)).expect("two places");
        newest.words[3].fetch_xor(1, Ordering::Relaxed);
        assert_eq!(head.note(), [3; 192]);
        head.set_note(b"");
        assert_eq!(head.note(), []);
    }

    #[test]
    fn what_was_written_is_read_and_a_change_of_any_word_is_noticed() {
        let head = blank();
        assert_eq!(head.read(), Err(Unusable::Blank));
        head.write(&LAYOUT);
        assert_eq!(head.read(), Ok(LAYOUT));
        for word in &head.fixed {
            let right = word.fetch_xor(1 << 40, Ordering::Relaxed);
            assert!(matches!(head.read(), Err(Unusable::Ours(_))), "{right:x}");
            word.store(right, Ordering::Relaxed);
        }
        assert_eq!(head.read(), Ok(LAYOUT));
    }

    #[test]
    fn other_versions_other_machines_and_other_files_are_told_apart() {
        let head = blank();
        head.write(&LAYOUT);
        head.fixed[1].store(VERSION + 1, Ordering::Relaxed);
        let Err(Unusable::Ours(why)) = head.read() else { panic!("another version") };
        assert!(why.contains("version 3"), "{why}");
        head.write(&LAYOUT);
        head.fixed
            .iter()
            .for_each(|word| word.store(word.load(Ordering::Relaxed).swap_bytes(), Ordering::Relaxed));
        let Err(Unusable::Ours(why)) = head.read() else { panic!("another byte order") };
        assert!(why.contains("byte order"), "{why}");
        head.fixed.iter().for_each(|word| word.store(0x0a0a, Ordering::Relaxed));
        assert_eq!(head.read(), Err(Unusable::Foreign));
    }
}
