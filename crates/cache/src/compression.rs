//! Values that are stored compressed: what the pass keeps and nobody hurries for.
//!
//! A store writes its value plain, and a hit on a plain item pays nothing. While memory is full, the pass moves what it
//! keeps of a column. There it compresses what is not hot, with a dictionary that was trained from values of the same
//! kind, and writes plain again what is hot by now (`keeper/pass/forms.rs`). A compressed item is expanded for each read.
//!
//! * `setting.rs` has what is compressed at all.
//! * `dictionaries.rs` has the dictionaries that all threads see, and expands values for one thread.
//! * `kinds.rs` tells kinds of values apart, and knows which of them shrink.
//! * `trainer.rs` trains dictionaries on a thread of its own.
//! * `stats.rs` says what all that has come to.

mod dictionaries;
mod kinds;
mod setting;
mod stats;
mod trainer;

pub(crate) use dictionaries::{Dictionaries, Expander, Owned};
pub(crate) use kinds::{Kinds, VALUE_BYTES_MIN, Way};
pub(crate) use setting::CompressSetting;
pub use setting::{Compress, check_compress};
pub use stats::{CompressionStats, DictionaryStats};
