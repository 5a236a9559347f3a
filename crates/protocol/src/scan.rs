//! Scanning bytes for the ends of words and for numbers.

const ONES: u64 = u64::from_ne_bytes([0x01; 8]);
const HIGHS: u64 = u64::from_ne_bytes([0x80; 8]);

/// The index of the first space or newline at or after `from`, or the length of `bytes` if there is none.
///
/// The scan reads eight bytes at a time. If 0x21 is subtracted from every byte, a byte below 0x21 borrows into its
/// own high bit. The lowest such bit is always right, because a borrow can only change the bits above it. Tabs,
/// carriage returns and other control bytes belong to the token and are stepped over one by one.
#[inline]
pub(crate) fn token_end(bytes: &[u8], from: usize) -> usize {
    let mut at = from;
    loop {
        while let Some(word) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
            let word = u64::from_le_bytes(*word);
            let below = word.wrapping_sub(ONES * 0x21) & !word & HIGHS;
            if below != 0 {
                at += (below.trailing_zeros() / 8) as usize;
                break;
            }
            at += 8;
        }
        while let Some(&byte) = bytes.get(at) {
            if byte == b' ' || byte == b'\n' {
                return at;
            }
            at += 1;
            if byte > b' ' && bytes.len() - at >= 8 {
                break;
            }
        }
        if at >= bytes.len() {
            return bytes.len();
        }
    }
}

/// The words of a line, separated by one or more spaces.
#[derive(Clone, Debug)]
pub(crate) struct Words<'a> {
    rest: &'a [u8],
}

impl<'a> Words<'a> {
    pub(crate) fn new(line: &'a [u8]) -> Self {
        Words { rest: line }
    }

    /// The part of the line behind the words taken so far.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let mut start = 0;
        while self.rest.get(start) == Some(&b' ') {
            start += 1;
        }
        if start == self.rest.len() {
            self.rest = &[];
            return None;
        }
        let end = token_end(self.rest, start);
        let word = &self.rest[start..end];
        self.rest = &self.rest[end..];
        Some(word)
    }
}

/// The last word of a line. Empty if the line has no words.
pub(crate) fn last_word(line: &[u8]) -> &[u8] {
    let end = line.iter().rposition(|&byte| byte != b' ').map_or(0, |last| last + 1);
    let start = line[..end].iter().rposition(|&byte| byte == b' ').map_or(0, |space| space + 1);
    &line[start..end]
}

/// Whether `word` stands for the word `full` of a command: memcached compares only as many bytes as were sent.
pub(crate) fn abbreviates(word: &[u8], full: &[u8]) -> bool {
    full.starts_with(word)
}

/// Longest decimal, in bytes, that memcached reads as a 64-bit or as a 32-bit number. Zeros and a sign count.
const NUMBER_64_BYTES_MAX: usize = 22;
const NUMBER_32_BYTES_MAX: usize = 11;

/// The digits of a word as a 64-bit number. `None` if there is none, or anything else, or if the number is too large.
#[inline]
fn digits(word: &[u8]) -> Option<u64> {
    if word.is_empty() {
        return None;
    }
    let mut sum: u64 = 0;
    for &byte in word {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        sum = sum.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(sum)
}

/// An unsigned 64-bit decimal of at most 22 digits and nothing else.
#[inline]
pub(crate) fn number_u64(word: &[u8]) -> Option<u64> {
    if word.len() <= NUMBER_64_BYTES_MAX { digits(word) } else { None }
}

/// An unsigned 32-bit decimal of at most 11 digits and nothing else.
#[inline]
pub(crate) fn number_u32(word: &[u8]) -> Option<u32> {
    if word.len() > NUMBER_32_BYTES_MAX {
        return None;
    }
    digits(word).and_then(|number| u32::try_from(number).ok())
}

/// A signed 32-bit decimal of at most 11 bytes: an optional `-`, then digits and nothing else. As in memcached a `-`
/// alone is 0.
#[inline]
pub(crate) fn number_i32(word: &[u8]) -> Option<i32> {
    if word.len() > NUMBER_32_BYTES_MAX {
        return None;
    }
    match word.strip_prefix(b"-") {
        Some(b"") => Some(0),
        Some(word) => digits(word).and_then(|n| i64::try_from(n).ok()).and_then(|n| i32::try_from(-n).ok()),
        None => digits(word).and_then(|n| i32::try_from(n).ok()),
    }
}

/// The flags of a storage line: an optional `+`, then a decimal that fits 64 bits, of which the low 32 bits count.
pub(crate) fn wrapped_u32(word: &[u8]) -> Option<u32> {
    digits(word.strip_prefix(b"+").unwrap_or(word)).map(|number| number as u32)
}

/// The exptime of a storage line: an optional sign, then a decimal that fits signed 64 bits. Its low 32 bits count, as
/// a signed number: 4294967295 is -1.
pub(crate) fn wrapped_i32(word: &[u8]) -> Option<i32> {
    let (is_negative, word) = match *word {
        [b'-', ref word @ ..] => (true, word),
        [b'+', ref word @ ..] => (false, word),
        _ => (false, word),
    };
    let number = digits(word)?;
    let fits = number <= i64::MAX as u64 + u64::from(is_negative);
    let number = if is_negative { number.wrapping_neg() } else { number };
    fits.then_some(number as i32)
}

/// A finite decimal fraction, for the few administrative settings that accept one.
pub(crate) fn number_f64(word: &[u8]) -> Option<f64> {
    let plain =
        word.iter().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'-' | b'+' | b'e' | b'E'));
    if !plain {
        return None;
    }
    std::str::from_utf8(word).ok()?.parse().ok().filter(|number: &f64| number.is_finite())
}

/// Up to nine digits at `from`: the number and the index behind it. `None` if there is no digit, or there are more
/// than nine; the exact parsers above then read the number.
#[inline]
pub(crate) fn short_number(bytes: &[u8], from: usize) -> Option<(u32, usize)> {
    let mut sum = 0u32;
    let mut at = from;
    while let Some(&byte) = bytes.get(at) {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        if at - from == 9 {
            return None;
        }
        sum = sum * 10 + u32::from(digit);
        at += 1;
    }
    (at > from).then_some((sum, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_at_every_position_ends_a_token_or_does_not() {
        for length in 0..40 {
            for position in 0..length {
                for byte in 0..=255u8 {
                    let mut bytes = vec![b'k'; length];
                    bytes[position] = byte;
                    let expected = if byte == b' ' || byte == b'\n' { position } else { length };
                    assert_eq!(token_end(&bytes, 0), expected, "{byte:#x} at {position} of {length}");
                }
            }
        }
    }

    #[test]
    fn control_bytes_before_the_end_are_stepped_over() {
        let mut bytes = vec![b'\r'; 30];
        bytes.extend_from_slice(b"\t\0\x1f!\xff\n ");
        assert_eq!(token_end(&bytes, 0), 35);
        assert_eq!(token_end(&bytes, 36), 36);
        assert_eq!(token_end(&bytes, 37), 37);
    }

    #[test]
    fn numbers_have_digits_and_a_longest_length() {
        assert_eq!(number_u64(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(number_u64(b"18446744073709551616"), None);
        assert_eq!(number_u64(b"0000000000000000000007"), Some(7));
        assert_eq!(number_u64(b"00000000000000000000007"), None, "23 digits");
        for word in ["", "+", "+5", "-5", "5 ", "5x", "\t5"] {
            assert_eq!(number_u64(word.as_bytes()), None, "{word:?}");
        }
        assert_eq!(number_u32(b"4294967295"), Some(u32::MAX));
        assert_eq!(number_u32(b"4294967296"), None);
        assert_eq!(number_u32(b"00000000001"), Some(1));
        assert_eq!(number_u32(b"000000000001"), None, "12 digits");
        assert_eq!(number_i32(b"-2147483648"), Some(i32::MIN));
        assert_eq!(number_i32(b"-2147483649"), None);
        assert_eq!(number_i32(b"2147483647"), Some(i32::MAX));
        assert_eq!(number_i32(b"2147483648"), None);
        assert_eq!(number_i32(b"-00000000001"), None, "12 bytes");
        assert_eq!(number_i32(b"-"), Some(0));
        for word in ["", "+1", "-+1", "--1"] {
            assert_eq!(number_i32(word.as_bytes()), None, "{word:?}");
        }
    }

    #[test]
    fn the_numbers_of_a_storage_line_wrap() {
        assert_eq!(wrapped_u32(b"+5"), Some(5));
        assert_eq!(wrapped_u32(b"4294967296"), Some(0));
        assert_eq!(wrapped_u32(b"18446744073709551615"), Some(u32::MAX));
        assert_eq!(wrapped_u32(b"00000000000000000000000000007"), Some(7));
        for word in ["", "+", "-1", "++1", "18446744073709551616", "1x"] {
            assert_eq!(wrapped_u32(word.as_bytes()), None, "{word:?}");
        }
        assert_eq!(wrapped_i32(b"4294967295"), Some(-1));
        assert_eq!(wrapped_i32(b"2147483648"), Some(i32::MIN));
        assert_eq!(wrapped_i32(b"4102444800"), Some(-192_522_496));
        assert_eq!(wrapped_i32(b"9223372036854775807"), Some(-1));
        assert_eq!(wrapped_i32(b"-9223372036854775808"), Some(0));
        assert_eq!(wrapped_i32(b"+5"), Some(5));
        assert_eq!(wrapped_i32(b"-5"), Some(-5));
        for word in ["", "+", "-", "-+1", "9223372036854775808", "-9223372036854775809"] {
            assert_eq!(wrapped_i32(word.as_bytes()), None, "{word:?}");
        }
    }

    #[test]
    fn fractions_and_short_numbers() {
        assert_eq!(number_f64(b"0.8"), Some(0.8));
        assert_eq!(number_f64(b"inf"), None);
        assert_eq!(number_f64(b"1e999"), None);
        assert_eq!(number_f64(b""), None);
        assert_eq!(short_number(b"123456789 ", 0), Some((123_456_789, 9)));
        assert_eq!(short_number(b"1234567890", 0), None);
        assert_eq!(short_number(b"x", 0), None);
    }

    #[test]
    fn the_last_word_ignores_trailing_spaces() {
        assert_eq!(last_word(b"a b  c  "), b"c");
        assert_eq!(last_word(b"abc"), b"abc");
        assert_eq!(last_word(b"   "), b"");
        assert_eq!(last_word(b""), b"");
    }
}
