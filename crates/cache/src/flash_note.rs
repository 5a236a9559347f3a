//! What lies beside the items on flash: what the owner of the cache has noted, and the dictionaries of compressed
//! items.
//!
//! Flash has one note for both. While there are no dictionaries it is that of the owner. Otherwise it is longer than
//! such a one can be, and has the owner's first:
//!
//! ```text
//!  length u16, the owner's note, then for each dictionary: number u8, whose it is u64, length u32, its bytes
//! ```

use larder_flash::Flash;
use larder_memory::NOTE_BYTES_MAX;
use std::sync::{Arc, Mutex};

/// A dictionary that lies beside items.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LyingDictionary {
    pub(crate) number: u8,
    /// Whose values it is for.
    pub(crate) owner: u64,
    pub(crate) bytes: Vec<u8>,
}

/// What lies beside the items on flash.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Beside {
    note: Vec<u8>,
    dictionaries: Vec<LyingDictionary>,
}

impl Beside {
    fn read(bytes: &[u8]) -> Beside {
        if bytes.len() <= NOTE_BYTES_MAX {
            return Beside { note: bytes.to_vec(), dictionaries: Vec::new() };
        }
        let mut rest = bytes;
        let mut beside = Beside::default();
        let length =
            take(&mut rest, 2).map_or(0, |length| usize::from(u16::from_le_bytes([length[0], length[1]])));
        beside.note = take(&mut rest, length).unwrap_or_default().to_vec();
        while let Some(dictionary) = read_dictionary(&mut rest) {
            beside.dictionaries.push(dictionary);
        }
        beside
    }

    fn write(&self) -> Vec<u8> {
        if self.dictionaries.is_empty() {
            return self.note.clone();
        }
        let mut out = (self.note.len() as u16).to_le_bytes().to_vec();
        out.extend_from_slice(&self.note);
        for LyingDictionary { number, owner, bytes } in &self.dictionaries {
            out.push(*number);
            out.extend_from_slice(&owner.to_le_bytes());
            out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            out.extend_from_slice(bytes);
        }
        out
    }
}

fn take<'b>(rest: &mut &'b [u8], bytes: usize) -> Option<&'b [u8]> {
    let (taken, after) = rest.split_at_checked(bytes)?;
    *rest = after;
    Some(taken)
}

fn read_dictionary(rest: &mut &[u8]) -> Option<LyingDictionary> {
    let number = take(rest, 1)?[0];
    let owner = u64::from_le_bytes(take(rest, 8)?.try_into().ok()?);
    let length = u32::from_le_bytes(take(rest, 4)?.try_into().ok()?);
    Some(LyingDictionary { number, owner, bytes: take(rest, length as usize)?.to_vec() })
}

/// The note of a flash tier, which several threads change. The lock is held while the device writes.
pub(crate) struct FlashNote {
    flash: Arc<Flash>,
    one_at_a_time: Mutex<()>,
}

impl FlashNote {
    pub(crate) fn new(flash: Arc<Flash>) -> FlashNote {
        FlashNote { flash, one_at_a_time: Mutex::default() }
    }

    /// The dictionaries of items on flash.
    pub(crate) fn dictionaries(&self) -> Vec<LyingDictionary> {
        Beside::read(&self.flash.note()).dictionaries
    }

    /// Writes a dictionary. Returns whether it is durable; if not, nothing has changed.
    pub(crate) fn add(&self, dictionary: LyingDictionary) -> bool {
        let _one_at_a_time = self.one_at_a_time.lock().expect("no panic under this lock");
        let mut beside = Beside::read(&self.flash.note());
        beside.dictionaries.retain(|other| other.number != dictionary.number);
        beside.dictionaries.push(dictionary);
        let bytes = beside.write();
        // The owner may note more later.
        let bytes_max = bytes.len() - beside.note.len() + NOTE_BYTES_MAX;
        let fits = bytes_max <= self.flash.note_bytes_max() && self.flash.is_on();
        if fits {
            self.flash.set_note(&bytes);
        }
        fits && self.flash.is_on()
    }

    /// What the owner of the cache has noted.
    pub(crate) fn get(&self) -> Vec<u8> {
        Beside::read(&self.flash.note()).note
    }

    /// The owner of the cache notes something.
    pub(crate) fn set(&self, note: &[u8]) {
        let _one_at_a_time = self.one_at_a_time.lock().expect("no panic under this lock");
        let beside = Beside { note: note.to_vec(), ..Beside::read(&self.flash.note()) };
        self.flash.set_note(&beside.write());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_beside_items_is_read_as_it_was_written() {
        let dictionary = |number: u8| LyingDictionary {
            number,
            owner: u64::MAX - u64::from(number),
            bytes: vec![number; 300 + usize::from(number)],
        };
        for note in [&b""[..], b"note", &[7; NOTE_BYTES_MAX]] {
            for numbers in [&[][..], &[1], &[3, 1, 31]] {
                let dictionaries = numbers.iter().map(|number| dictionary(*number)).collect();
                let beside = Beside { note: note.to_vec(), dictionaries };
                let bytes = beside.write();
                assert_eq!(Beside::read(&bytes), beside);
                assert_eq!(bytes.len() > NOTE_BYTES_MAX, !numbers.is_empty());
            }
        }
        let bytes = Beside { note: vec![1], dictionaries: vec![dictionary(1), dictionary(2)] }.write();
        for cut in NOTE_BYTES_MAX + 1..bytes.len() {
            assert!(Beside::read(&bytes[..cut]).dictionaries.len() < 2, "{cut}");
        }
    }
}
