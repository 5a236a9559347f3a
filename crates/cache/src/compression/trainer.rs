//! Trains a dictionary on a thread of its own: it takes a tenth of a second or more.

use larder_compression::{Compressor, Dictionary, Samples};
use std::thread::JoinHandle;

/// One value in so many is not trained from, and says what the dictionary is worth.
const HELD_BACK_SHARE: usize = 16;

/// A training under way.
pub(super) struct Training(JoinHandle<Option<Dictionary>>);

impl Training {
    /// Begins to train. `None` = there is no thread for it.
    pub(super) fn begin(samples: Samples) -> Option<Training> {
        let thread = std::thread::Builder::new().name("trainer".to_owned());
        thread.spawn(move || train(&samples)).ok().map(Training)
    }

    /// Whether [`Training::end`] does not wait.
    pub(super) fn is_over(&self) -> bool {
        self.0.is_finished()
    }

    /// What came of it; `None` = most values do not shrink by a quarter.
    pub(super) fn end(self) -> Option<Dictionary> {
        self.0.join().ok().flatten()
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
