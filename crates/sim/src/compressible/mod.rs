//! What compression would make of the values of a cache: `larder trace compressible`.
//!
//! Values are divided by kind, as the beginnings of their keys tell (`user:17` is a `user`). Of each kind one half
//! trains a dictionary, and the other half is compressed with it.

mod measure;
mod values;

pub use measure::{KindFigures, Measured, report};
pub use values::{Origin, read};

use larder_compression::Samples;
use std::collections::HashMap;

/// Kinds that have a dictionary of their own, at most. The values of the others are one kind.
pub const KINDS_MAX: usize = 64;
/// Kinds that are told apart while values are read.
const KINDS_SEEN_MAX: usize = 4096;
/// The longest value that is looked at, in bytes; of a longer one its beginning.
const VALUE_BYTES_MAX: usize = 16 << 10;
/// What is kept of one kind: values and bytes to train a dictionary from, and as many again to measure it.
const VALUES_OF_KIND_MAX: usize = 4000;
const BYTES_OF_KIND_MAX: usize = 4 << 20;
/// What is kept of all kinds.
const BYTES_MAX: usize = 256 << 20;

/// Values by kind, as they are read.
pub struct Values {
    delimiter: u8,
    kinds: HashMap<Vec<u8>, Kind>,
    kept_bytes: usize,
    /// Values so far.
    pub count: u64,
}

/// Values of one kind.
struct Kind {
    count: u64,
    key_bytes: u64,
    value_bytes: u64,
    training: Samples,
    measured: Samples,
}

impl Kind {
    fn new(number: u64) -> Kind {
        let samples = |seed| Samples::new(VALUES_OF_KIND_MAX, BYTES_OF_KIND_MAX, VALUE_BYTES_MAX, seed);
        Kind {
            count: 0,
            key_bytes: 0,
            value_bytes: 0,
            training: samples(2 * number),
            measured: samples(2 * number + 1),
        }
    }

    fn kept_bytes(&self) -> usize {
        self.training.bytes().len() + self.measured.bytes().len()
    }
}

impl Values {
    /// No values yet. A kind is what stands before the first `delimiter` in a key.
    pub fn new(delimiter: u8) -> Values {
        Values { delimiter, kinds: HashMap::new(), kept_bytes: 0, count: 0 }
    }

    /// Adds a value. A key without a delimiter, or of one kind too many, has the kind of all others: no name.
    pub fn add(&mut self, key: &[u8], value: &[u8]) {
        let end = key.iter().position(|byte| *byte == self.delimiter).unwrap_or(0);
        let is_known = self.kinds.contains_key(&key[..end]);
        let name = if is_known || self.kinds.len() < KINDS_SEEN_MAX { &key[..end] } else { b"" };
        let number = self.kinds.len() as u64;
        let kind = self.kinds.entry(name.to_vec()).or_insert_with(|| Kind::new(number));
        self.count += 1;
        kind.count += 1;
        kind.key_bytes += key.len() as u64;
        kind.value_bytes += value.len() as u64;
        if self.kept_bytes + value.len() <= BYTES_MAX {
            let before = kind.kept_bytes();
            let half = if kind.count.is_multiple_of(2) { &mut kind.measured } else { &mut kind.training };
            half.offer(value);
            self.kept_bytes = self.kept_bytes + kind.kept_bytes() - before;
        }
    }
}
