//! From a value to what is stored, and back.

use crate::dictionary::{Dictionary, LEVEL};
use crate::header::{HEADER_BYTES_MAX, header};
use zstd::zstd_safe::{CCtx, DCtx};

/// A value that keeps more than this of its length is stored plain: three quarters.
const KEPT_MOST: (usize, usize) = (3, 4);

/// What was stored is not what a value was compressed to: damaged, or of another dictionary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Damaged;

/// Compresses values, one at a time. One for each thread.
pub struct Compressor {
    context: CCtx<'static>,
    frame: Vec<u8>,
}

impl Default for Compressor {
    fn default() -> Compressor {
        Compressor { context: CCtx::create(), frame: Vec::new() }
    }
}

impl Compressor {
    /// What is stored of `value`; `None` = it would not save a quarter. Without a dictionary the value has to do by
    /// itself.
    pub fn compress(&mut self, value: &[u8], dictionary: Option<&Dictionary>) -> Option<&[u8]> {
        let (header, header_bytes) = header(value.len(), dictionary.map_or(0, Dictionary::number));
        let stored_max = value.len() * KEPT_MOST.0 / KEPT_MOST.1;
        self.frame.clear();
        // A frame that does not fit is refused early.
        self.frame.reserve_exact(header_bytes + stored_max);
        let written = match dictionary {
            Some(dictionary) => {
                self.context.compress_using_cdict(&mut self.frame, value, dictionary.encoder.as_cdict())
            }
            None => self.context.compress(&mut self.frame, value, LEVEL),
        };
        written.ok()?;
        let stored = self.frame.strip_prefix(&header[..header_bytes])?;
        (stored.len() <= stored_max).then_some(stored)
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        self.context.sizeof() + self.frame.capacity()
    }
}

/// Brings values back. One for each thread.
pub struct Decompressor {
    context: DCtx<'static>,
    frame: Vec<u8>,
}

impl Default for Decompressor {
    fn default() -> Decompressor {
        Decompressor { context: DCtx::create(), frame: Vec::new() }
    }
}

impl Decompressor {
    /// Appends the value of `plain_bytes` bytes that was compressed to `stored`, with this dictionary.
    ///
    /// # Errors
    /// It is none. `out` is as before.
    pub fn decompress(
        &mut self,
        stored: &[u8],
        dictionary: Option<&Dictionary>,
        plain_bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Damaged> {
        let (header, header_bytes) = header(plain_bytes, dictionary.map_or(0, Dictionary::number));
        self.frame.clear();
        self.frame.reserve(HEADER_BYTES_MAX + stored.len());
        self.frame.extend_from_slice(&header[..header_bytes]);
        self.frame.extend_from_slice(stored);
        let begin = out.len();
        out.resize(begin + plain_bytes, 0);
        let room = &mut out[begin..];
        let written = match dictionary {
            Some(dictionary) => {
                self.context.decompress_using_ddict(room, &self.frame, dictionary.decoder.as_ddict())
            }
            None => self.context.decompress(room, &self.frame),
        };
        if written == Ok(plain_bytes) {
            return Ok(());
        }
        out.truncate(begin);
        Err(Damaged)
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        self.context.sizeof() + self.frame.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Samples;
    use proptest::prelude::*;

    fn user(number: u64) -> Vec<u8> {
        let city = ["Lagos", "Lima", "Oslo", "Pune"][(number % 4) as usize];
        format!(
            "{{\"id\":{number},\"name\":\"user {number}\",\"mail\":\"user{number}@example.org\",\"city\":\"{city}\",\
             \"active\":{},\"score\":{},\"roles\":[\"reader\",\"editor\"],\"created\":\"2026-03-{:02}T10:00:00Z\"}}",
            number.is_multiple_of(3),
            number * 7919 % 10_007,
            number % 28 + 1
        )
        .into_bytes()
    }

    fn users() -> Dictionary {
        let mut samples = Samples::new(2000, 1 << 20, 16 << 10, 1);
        (0..2000).for_each(|number| samples.offer(&user(2 * number)));
        Dictionary::train(samples.bytes(), samples.lengths()).expect("they have much in common")
    }

    #[test]
    fn values_of_one_kind_shrink_to_a_third_and_come_back() {
        let (dictionary, mut compressor, mut decompressor) =
            (users(), Compressor::default(), Decompressor::default());
        let (mut plain, mut stored, mut alone) = (0, 0, 0);
        for number in 0..500 {
            let value = user(2 * number + 1);
            alone += compressor.compress(&value, None).map_or(value.len(), <[u8]>::len);
            let short = compressor.compress(&value, Some(&dictionary)).expect("it saves much");
            (plain, stored) = (plain + value.len(), stored + short.len());
            let mut out = b"before".to_vec();
            assert_eq!(decompressor.decompress(short, Some(&dictionary), value.len(), &mut out), Ok(()));
            assert_eq!(out.strip_prefix(b"before"), Some(&value[..]));
        }
        assert!(stored * 3 < plain && alone * 5 > plain * 3, "{plain} bytes: {stored}, alone {alone}");
    }

    #[test]
    fn what_does_not_save_a_quarter_is_left_as_it_is() {
        let (dictionary, mut compressor) = (users(), Compressor::default());
        let mut random = 1u64;
        let mut noise = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 56) as u8
        };
        let noise: Vec<u8> = (0..1000).map(|_| noise()).collect();
        for value in [&noise[..], b"", b"x", b"12345"] {
            assert_eq!(compressor.compress(value, Some(&dictionary)), None);
            assert_eq!(compressor.compress(value, None), None);
        }
        assert!(compressor.compress(&[7; 100_000], None).is_some_and(|stored| stored.len() < 100));
    }

    #[test]
    fn a_dictionary_is_read_again_and_another_one_does_not_fit() {
        let (dictionary, mut compressor, mut decompressor) =
            (users(), Compressor::default(), Decompressor::default());
        let again = Dictionary::read(dictionary.bytes()).expect("it is one");
        let value = user(77);
        let stored = compressor.compress(&value, Some(&dictionary)).expect("it saves much").to_vec();
        let mut out = Vec::new();
        assert_eq!(decompressor.decompress(&stored, Some(&again), value.len(), &mut out), Ok(()));
        assert_eq!(out, value);
        for (length, known) in
            [(value.len() - 1, true), (value.len() + 1, true), (0, true), (value.len(), false)]
        {
            let known = known.then_some(&again);
            assert_eq!(decompressor.decompress(&stored, known, length, &mut out), Err(Damaged));
            assert_eq!(out, value, "nothing is appended");
        }
        assert!(dictionary.memory_bytes() > dictionary.bytes().len());
        for none in [&b""[..], b"short", &[7; 2000], &dictionary.bytes()[..9]] {
            assert!(Dictionary::read(none).is_none());
        }
        assert!(Dictionary::train(&[], &[]).is_none());
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Any value comes back; and whatever is stored instead makes an error, or as many bytes as were asked for.
        #[test]
        fn any_value_comes_back_and_no_bytes_do_harm(
            word in proptest::collection::vec(any::<u8>(), 1..40), times in 1..2000usize, cut in any::<u16>(), flip: u8
        ) {
            let dictionary = Dictionary::read(users_once()).unwrap();
            let (mut compressor, mut decompressor) = (Compressor::default(), Decompressor::default());
            let value: Vec<u8> = word.iter().copied().cycle().take(times).collect();
            for known in [None, Some(&dictionary)] {
                let Some(stored) = compressor.compress(&value, known) else { continue };
                let mut stored = stored.to_vec();
                let mut out = Vec::new();
                prop_assert_eq!(decompressor.decompress(&stored, known, value.len(), &mut out), Ok(()));
                prop_assert_eq!(&out, &value);
                let at = usize::from(cut) % stored.len();
                stored[at] ^= flip;
                out.clear();
                let came = decompressor.decompress(&stored, known, value.len(), &mut out);
                prop_assert_eq!(out.len(), if came.is_ok() { value.len() } else { 0 });
                stored.truncate(at);
                out.clear();
                prop_assert_eq!(decompressor.decompress(&stored, known, value.len(), &mut out), Err(Damaged));
            }
        }
    }

    fn users_once() -> &'static [u8] {
        static USERS: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
        USERS.get_or_init(|| users().bytes().to_vec())
    }
}
