//! Values compressed with dictionaries of their own kind.
//!
//! A value of some hundred bytes says little about itself: alone it shrinks by a sixth. What it has in common with its
//! like, a dictionary has learned from a sample of them, and the value shrinks to a third (zstd, RFC 8878; Collet and
//! Handte's "managed compression").
//!
//! ```text
//!   Samples --- train ---> Dictionary ----+----------------+
//!                                         v                v
//!   value ---------------------------> Compressor ---> Decompressor ---> value
//! ```
//!
//! What is stored is a frame of zstd without its header, which is 6 to 13 bytes and says nothing that is not known: the
//! length of the value and the number of the dictionary.
#![deny(unsafe_code)]

mod codec;
mod dictionary;
mod header;
#[expect(unsafe_code, reason = "the safe binding has no training with a bound on its memory")]
mod learn;
mod samples;

pub use codec::{Compressor, Damaged, Decompressor};
pub use dictionary::{DICTIONARY_BYTES_MAX, Dictionary};
pub use samples::Samples;
