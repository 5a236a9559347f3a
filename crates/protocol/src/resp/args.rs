//! The arguments of a request, and the numbers in front of them.

use memchr::memchr;

/// The arguments of a request, the name of the command included: an iterator over slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Args<'a> {
    /// Bulk strings whose form was checked.
    bytes: &'a [u8],
    left: usize,
}

impl<'a> Args<'a> {
    /// `count` bulk strings at the front of `bytes`, whose form the caller has checked.
    #[inline]
    pub fn new(bytes: &'a [u8], count: usize) -> Args<'a> {
        Args { bytes, left: count }
    }

    /// The bytes that the arguments take in the request.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

impl<'a> Iterator for Args<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        if self.left == 0 {
            return None;
        }
        // The form was checked, so a failure here would be an error of this crate: the request then ends early.
        let (length, at) = short_length(self.bytes, 0).or_else(|| long_length(self.bytes))?;
        let argument = self.bytes.get(at..at + length)?;
        self.bytes = self.bytes.get(at + length + 2..).unwrap_or_default();
        self.left -= 1;
        Some(argument)
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Args<'_> {}

/// A length of up to five digits at `from`: `$123\r\n`. `None` for everything unusual, which the parser
/// then reads as a line.
#[inline]
pub(super) fn short_length(input: &[u8], from: usize) -> Option<(usize, usize)> {
    // The longest one, `$12345\r\n`, has eight bytes: they are read at once.
    let Some(&[dollar, a, b, c, d, e, f, g]) = input.get(from..)?.first_chunk() else {
        return short_length_by_bytes(input, from);
    };
    const END: [u8; 2] = *b"\r\n";
    if dollar != b'$' {
        return None;
    }
    let one = digit(a)?;
    if [b, c] == END {
        return Some((one, from + 4));
    }
    if one == 0 {
        return None;
    }
    let two = one * 10 + digit(b)?;
    if [c, d] == END {
        return Some((two, from + 5));
    }
    let three = two * 10 + digit(c)?;
    if [d, e] == END {
        return Some((three, from + 6));
    }
    let four = three * 10 + digit(d)?;
    if [e, f] == END {
        return Some((four, from + 7));
    }
    let five = four * 10 + digit(e)?;
    ([f, g] == END).then_some((five, from + 8))
}

/// As [`short_length`], one byte after the other: where fewer than eight bytes are left.
#[inline(never)]
fn short_length_by_bytes(input: &[u8], from: usize) -> Option<(usize, usize)> {
    if *input.get(from)? != b'$' {
        return None;
    }
    let mut length = digit(*input.get(from + 1)?)?;
    if length == 0 {
        return (input.get(from + 2..from + 4)? == b"\r\n").then_some((0, from + 4));
    }
    let mut at = from + 2;
    loop {
        let byte = *input.get(at)?;
        if byte == b'\r' {
            return (*input.get(at + 1)? == b'\n').then_some((length, at + 2));
        }
        if at - from > 5 {
            return None;
        }
        length = length * 10 + digit(byte)?;
        at += 1;
    }
}

/// A length of any number of digits at the front of bytes whose form was checked.
fn long_length(bytes: &[u8]) -> Option<(usize, usize)> {
    let end = memchr(b'\r', bytes)?;
    Some((decimal(bytes.get(1..end)?)? as usize, end + 2))
}

#[inline]
fn digit(byte: u8) -> Option<usize> {
    let digit = byte.wrapping_sub(b'0');
    (digit <= 9).then_some(usize::from(digit))
}

/// A whole number of 64 bits as Redis reads one: no plus, no spaces, no leading zeros, no `-0`.
pub fn decimal(text: &[u8]) -> Option<i64> {
    let (is_negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] if !is_negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() <= 19 => {}
        _ => return None,
    }
    let mut sum = 0u64;
    for byte in digits {
        sum = sum * 10 + digit(*byte)? as u64;
    }
    match is_negative {
        true if sum <= 1 << 63 => Some((sum as i64).wrapping_neg()),
        false => i64::try_from(sum).ok(),
        true => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_read_at_once_are_those_read_byte_by_byte() {
        const SYMBOLS: &[u8; 5] = b"01x\r\n";
        for digits in 0..=8 {
            for number in 0..SYMBOLS.len().pow(digits) {
                let tail =
                    (0..digits).map(|place| SYMBOLS[number / SYMBOLS.len().pow(place) % SYMBOLS.len()]);
                let text: Vec<u8> = [b'$'].into_iter().chain(tail).collect();
                assert_eq!(short_length(&text, 0), short_length_by_bytes(&text, 0), "{text:?}");
            }
        }
        assert_eq!(short_length(b"*1\r\n$12\r\nx", 4), Some((12, 9)));
        assert_eq!(short_length(b"12345678", 0), None);
    }

    #[test]
    fn numbers_are_as_strict_as_those_of_redis() {
        for (text, number) in [
            ("0", Some(0)),
            ("7", Some(7)),
            ("-7", Some(-7)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("-9223372036854775809", None),
            ("99999999999999999999", None),
            ("", None),
            ("-", None),
            ("-0", None),
            ("00", None),
            ("01", None),
            ("+1", None),
            (" 1", None),
            ("1 ", None),
            ("1x", None),
        ] {
            assert_eq!(decimal(text.as_bytes()), number, "{text:?}");
        }
    }
}
