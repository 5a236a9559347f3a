//! Fuzzes compressed values: whole, damaged, and with damaged dictionaries.

use larder_compression::{Compressor, Damaged, Decompressor, Dictionary, Samples};
use std::sync::OnceLock;

/// Bytes of an input that say how it is used: the dictionary, what is damaged in it, and the length that is asked for.
const CHOICES: usize = 8;
/// No value is longer than this when it is expanded.
const PLAIN_BYTES_MAX: usize = 1 << 16;

fn user(number: u32) -> String {
    format!(
        "{{\"id\":{number},\"mail\":\"user{number}@example.org\",\"city\":\"Lima\",\"roles\":[\"reader\",\"editor\"],\
         \"active\":{},\"score\":{}}}",
        number.is_multiple_of(3),
        number.wrapping_mul(7919) % 10_007
    )
}

fn dictionary() -> &'static Dictionary {
    static DICTIONARY: OnceLock<Dictionary> = OnceLock::new();
    DICTIONARY.get_or_init(|| {
        let mut samples = Samples::new(1000, 1 << 17, 1 << 12, 1);
        (0..1000).for_each(|number| samples.offer(user(number).as_bytes()));
        Dictionary::train(samples.bytes(), samples.lengths()).expect("they have much in common")
    })
}

/// Expands the rest of the input as if it had been stored, with a dictionary that may be damaged: what comes is as long
/// as it should be, or nothing. Then stores the rest: the same comes back.
pub(crate) fn run(input: &[u8]) {
    let Some((choices, rest)) = input.split_first_chunk::<CHOICES>() else { return };
    let [which, at @ .., low, high, more] = *choices;
    let mut bytes = dictionary().bytes().to_vec();
    let at = u32::from_le_bytes(at) as usize % bytes.len();
    let damaged = match which % 4 {
        0 => None,
        1 => Some(bytes),
        2 => {
            bytes[at] ^= which | 1;
            Some(bytes)
        }
        _ => Some(bytes[..at].to_vec()),
    };
    let known = damaged.and_then(|bytes| Dictionary::read(&bytes));
    let plain_bytes = usize::from(low) | usize::from(high) << 8;
    expand(rest, known.as_ref(), plain_bytes.min(PLAIN_BYTES_MAX));
    let (mut compressor, dictionary) = (Compressor::default(), dictionary());
    let value = [rest, user(more.into()).as_bytes()].concat();
    for known in [None, Some(dictionary)] {
        let Some(stored) = compressor.compress(&value, known) else { continue };
        let mut out = Vec::new();
        assert_eq!(Decompressor::default().decompress(stored, known, value.len(), &mut out), Ok(()));
        assert_eq!(out, value);
        let mut stored = stored.to_vec();
        let at = at % stored.len();
        stored[at] ^= which | 1;
        expand(&stored, known, value.len());
    }
}

fn expand(stored: &[u8], known: Option<&Dictionary>, plain_bytes: usize) {
    let mut out = b"before".to_vec();
    let came = Decompressor::default().decompress(stored, known, plain_bytes, &mut out);
    let value = out.strip_prefix(b"before").expect("what was there is left alone");
    assert_eq!(value.len(), if came == Err(Damaged) { 0 } else { plain_bytes });
}

/// Stored values, with and without the dictionary, and the texts themselves.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let mut compressor = Compressor::default();
    let mut seed = |which: u8, number: u32| {
        let value = user(number).repeat(1 + number as usize % 9).into_bytes();
        let known = (!which.is_multiple_of(4)).then(dictionary);
        let stored = compressor.compress(&value, known).map_or_else(|| value.clone(), <[u8]>::to_vec);
        let length = (value.len() as u16).to_le_bytes();
        [&[which, 40, number as u8, 0, 0, length[0], length[1], 7], &stored[..]].concat()
    };
    (0..40).map(|number| seed(number as u8, 5000 + number)).collect()
}
