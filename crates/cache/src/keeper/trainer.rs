//! Trains a dictionary on a thread of its own: it takes a tenth of a second or more, and a device may have to write it.

use crate::compression::Owned;
use crate::flash_note::{FlashNote, LyingDictionary};
use larder_compression::{Compressor, Dictionary, Samples};
use std::sync::Arc;
use std::thread::JoinHandle;

/// One value in 16 is not trained from, and says what the dictionary is worth.
const HELD_BACK_SHARE: usize = 16;

/// A dictionary that was trained.
pub(super) struct Trained {
    pub(super) owned: Owned,
    /// It lies beside the items on flash.
    pub(super) is_on_flash: bool,
}

/// A training under way.
pub(super) struct Training {
    /// The number that the dictionary will have, and whose it will be.
    pub(super) number: u8,
    pub(super) owner: u64,
    thread: JoinHandle<Option<Trained>>,
}

impl Training {
    /// Begins to train. `None` = there is no thread for it.
    pub(super) fn begin(
        samples: Samples,
        number: u8,
        owner: u64,
        note: Option<Arc<FlashNote>>,
    ) -> Option<Training> {
        let thread = std::thread::Builder::new().name("trainer".to_owned());
        let work = move || {
            let dictionary = Arc::new(train(&samples)?);
            let lying = |bytes: &[u8]| LyingDictionary { number, owner, bytes: bytes.to_vec() };
            let is_on_flash = note.is_some_and(|note| note.add(lying(dictionary.bytes())));
            Some(Trained { owned: Owned { dictionary, owner }, is_on_flash })
        };
        Some(Training { number, owner, thread: thread.spawn(work).ok()? })
    }

    /// Whether [`Training::end`] does not wait.
    pub(super) fn is_over(&self) -> bool {
        self.thread.is_finished()
    }

    /// What came of it; `None` = most values do not shrink by a quarter.
    pub(super) fn end(self) -> Option<Trained> {
        self.thread.join().ok().flatten()
    }
}

/// Trains from most of the samples, and tries the dictionary on the others.
fn train(samples: &Samples) -> Option<Dictionary> {
    let held_back = samples.lengths().len() / HELD_BACK_SHARE;
    let (lengths, tried) = samples.lengths().split_at(samples.lengths().len() - held_back);
    let (bytes, mut rest) = samples.bytes().split_at(lengths.iter().sum());
    let dictionary = Dictionary::train(bytes, lengths)?;
    let mut compressor = Compressor::default();
    let mut saved = 0;
    for length in tried {
        let (value, next) = rest.split_at(*length);
        saved += usize::from(compressor.compress(value, Some(&dictionary)).is_some());
        rest = next;
    }
    (2 * saved > tried.len()).then_some(dictionary)
}
