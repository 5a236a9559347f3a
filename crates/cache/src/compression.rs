//! Values that are stored compressed: what the pass keeps and nobody hurries for.
//!
//! A store writes its value plain, and a hit on a plain item pays nothing. While memory is full, the pass moves what it
//! keeps of a column, and compresses it with a dictionary that was trained from values of the same kind
//! (`keeper/pass/forms.rs`). A compressed item is expanded for each read, and a worker writes it plain again if it is
//! hot (`worker/expand.rs`).
//!
//! * `setting.rs` has what is compressed at all.
//! * `dictionaries.rs` has the dictionaries that all threads see, and expands values for one thread.
//! * `stats.rs` has what all that has come to; `compression_sample.rs` estimates it.
//! * In the keeper, `kinds.rs` tells kinds of values apart, and knows which of them shrink; `trainer.rs` trains
//!   dictionaries on a thread of its own.

mod dictionaries;
mod setting;
mod stats;

pub(crate) use dictionaries::{Expander, Owned};
pub use setting::{Compress, check_compress};
pub use stats::{CompressionStats, DictionaryStats};

use dictionaries::Dictionaries;
use larder_memory::Memory;
use setting::CompressSetting;

/// Which values are compressed, and with what.
pub(crate) struct Compression {
    pub(crate) setting: CompressSetting,
    pub(crate) dictionaries: Dictionaries,
}

impl Compression {
    /// With the dictionaries that lie beside the items of a kept memory.
    pub(crate) fn new(wanted: Compress, delimiter: u8, memory: &Memory) -> Compression {
        Compression {
            setting: CompressSetting::new(wanted, delimiter),
            dictionaries: Dictionaries::kept(memory),
        }
    }
}
