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
