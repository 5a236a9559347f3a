//! What values of one kind have in common.

use crate::learn::learn;
use zstd::dict::{DecoderDictionary, EncoderDictionary};

/// The longest dictionary, in bytes.
pub const DICTIONARY_BYTES_MAX: usize = 64 << 10;
/// The level of compression. Of 226 bytes of JSON level 1 leaves 74, level 3 leaves 67, level 9 leaves 67 and takes six
/// times as long. What level 3 wrote is read as fast.
pub(crate) const LEVEL: i32 = 3;
/// A dictionary is at most this part of what it is trained from. A longer one learns the samples by heart.
const SAMPLES_SHARE: usize = 8;
/// The shortest dictionary that is worth its trouble, in bytes.
const DICTIONARY_BYTES_MIN: usize = 1 << 10;
/// What a dictionary begins with, and where its number stands in it (RFC 8878, section 5). zstd would take anything
/// else for the beginning of a text.
const MAGIC: [u8; 4] = 0xec30_a437_u32.to_le_bytes();
const NUMBER_AT: std::ops::Range<usize> = 4..8;

/// A dictionary, ready for both ways.
pub struct Dictionary {
    bytes: Box<[u8]>,
    number: u32,
    pub(crate) encoder: EncoderDictionary<'static>,
    pub(crate) decoder: DecoderDictionary<'static>,
}

impl Dictionary {
    /// Learns what values, which stand one behind the other and have these lengths, have in common; `None` = they are
    /// too few, or have nothing in common. Takes about a second for 8 MiB.
    pub fn train(values: &[u8], lengths: &[usize]) -> Option<Dictionary> {
        let bytes_max = (values.len() / SAMPLES_SHARE).min(DICTIONARY_BYTES_MAX);
        if bytes_max < DICTIONARY_BYTES_MIN {
            return None;
        }
        Dictionary::read(&learn(values, lengths, LEVEL, bytes_max)?)
    }

    /// A dictionary that was trained before, from its bytes; `None` = they are none.
    pub fn read(bytes: &[u8]) -> Option<Dictionary> {
        let number = u32::from_le_bytes(bytes.get(NUMBER_AT)?.try_into().ok()?);
        if !bytes.starts_with(&MAGIC) || bytes.len() > DICTIONARY_BYTES_MAX || number == 0 {
            return None;
        }
        Some(Dictionary {
            bytes: bytes.into(),
            number,
            encoder: EncoderDictionary::try_copy(bytes, LEVEL).ok()?,
            decoder: DecoderDictionary::try_copy(bytes).ok()?,
        })
    }

    /// What [`Dictionary::read`] takes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The number that zstd knows it by: random, and never 0.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Bytes of memory, with the tables for both ways.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.len() + self.encoder.as_cdict().sizeof() + self.decoder.as_ddict().sizeof()
    }
}

impl std::fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Dictionary({:#x}, {} bytes)", self.number, self.bytes.len())
    }
}
