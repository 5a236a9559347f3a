//! Composing RESP replies: from values to bytes. Every function appends to the buffer of its caller.

use crate::compose::{decimal, signed};

/// The version of the protocol that a connection speaks. A connection begins with [`Version::Resp2`]; `HELLO` changes
/// it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// RESP2.
    #[default]
    Resp2,
    /// RESP3, with types for maps, sets, doubles, booleans and nulls.
    Resp3,
}

#[inline]
fn line_end(out: &mut Vec<u8>) {
    out.extend_from_slice(b"\r\n");
}

/// A head of one byte and a number: `*3\r\n`.
#[inline]
fn head(out: &mut Vec<u8>, kind: u8, number: usize) {
    out.push(kind);
    decimal(out, number as u64);
    line_end(out);
}

/// Appends `$<length>\r\n`. The bytes and their own `\r\n` follow.
#[inline]
pub fn bulk_head(out: &mut Vec<u8>, length: usize) {
    head(out, b'$', length);
}

/// Appends a bulk string.
#[inline]
pub fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    bulk_head(out, bytes.len());
    out.extend_from_slice(bytes);
    line_end(out);
}

/// Appends a simple string, which must not contain a line end: `+OK\r\n`.
pub fn simple(out: &mut Vec<u8>, text: &str) {
    out.push(b'+');
    out.extend_from_slice(text.as_bytes());
    line_end(out);
}

/// Appends an error. Line ends in the text become spaces.
pub fn error(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'-');
    out.extend(text.iter().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }));
    line_end(out);
}

/// Appends an integer: `:7\r\n`.
#[inline]
pub fn integer(out: &mut Vec<u8>, number: i64) {
    out.push(b':');
    signed(out, number);
    line_end(out);
}

/// Appends the null of a value that is not there.
#[inline]
pub fn null(out: &mut Vec<u8>, version: Version) {
    out.extend_from_slice(match version {
        Version::Resp2 => b"$-1\r\n",
        Version::Resp3 => b"_\r\n",
    });
}

/// Appends the null of an array that is not there, as `EXEC` answers when a watched key has changed.
pub fn null_array(out: &mut Vec<u8>, version: Version) {
    out.extend_from_slice(match version {
        Version::Resp2 => b"*-1\r\n",
        Version::Resp3 => b"_\r\n",
    });
}

/// Appends the head of an array of `count` replies, which follow.
pub fn array_head(out: &mut Vec<u8>, count: usize) {
    head(out, b'*', count);
}

/// Appends the head of `count` values that answer no request: they are pushed.
pub fn push_head(out: &mut Vec<u8>, version: Version, count: usize) {
    match version {
        Version::Resp2 => head(out, b'*', count),
        Version::Resp3 => head(out, b'>', count),
    }
}

/// Appends the head of a map of `count` pairs, whose keys and values follow by turns.
pub fn map_head(out: &mut Vec<u8>, version: Version, count: usize) {
    match version {
        Version::Resp2 => head(out, b'*', 2 * count),
        Version::Resp3 => head(out, b'%', count),
    }
}

/// Appends the head of a set of `count` replies, which follow.
pub fn set_head(out: &mut Vec<u8>, version: Version, count: usize) {
    match version {
        Version::Resp2 => head(out, b'*', count),
        Version::Resp3 => head(out, b'~', count),
    }
}

/// The shortest text that is read as the same number, in the form of Redis (`d2string`): with an exponent where the
/// number is very large or very small.
fn number_text(number: f64) -> String {
    /// Whole numbers up to this one are written out.
    const WHOLE_MAX: f64 = (i64::MAX / 2) as f64;
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    if number == number.trunc() && number.abs() <= WHOLE_MAX {
        return format!("{}", number as i64);
    }
    let scientific = format!("{number:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let digits = mantissa.bytes().filter(u8::is_ascii_digit).count() as i32;
    // The number is its digits times ten to this power.
    let power = exponent - (digits - 1);
    let is_plain = power >= 0 && exponent < digits + 7 || power < 0 && (power > -7 || exponent.abs() < 4);
    match is_plain {
        true => format!("{number}"),
        false if exponent < 0 => scientific,
        false => format!("{mantissa}e+{exponent}"),
    }
}

/// Appends a floating-point number.
pub fn double(out: &mut Vec<u8>, version: Version, number: f64) {
    let text = number_text(number);
    match version {
        Version::Resp2 => bulk(out, text.as_bytes()),
        Version::Resp3 => {
            out.push(b',');
            out.extend_from_slice(text.as_bytes());
            line_end(out);
        }
    }
}

/// Appends plain text that is meant for people.
pub fn verbatim(out: &mut Vec<u8>, version: Version, text: &[u8]) {
    match version {
        Version::Resp2 => bulk(out, text),
        Version::Resp3 => {
            head(out, b'=', text.len() + 4);
            out.extend_from_slice(b"txt:");
            out.extend_from_slice(text);
            line_end(out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(compose: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        compose(&mut out);
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn numbers_are_written_as_redis_writes_them() {
        for (number, expected) in [
            (0.0, "0"),
            (-0.0, "0"),
            (3.0, "3"),
            (-2.5, "-2.5"),
            (0.1, "0.1"),
            (1e15, "1000000000000000"),
            (1e17, "100000000000000000"),
            (1e19, "1e+19"),
            (12345678901234567890.0, "12345678901234567000"),
            (0.00012345, "1.2345e-4"),
            (1e21, "1e+21"),
            (1e-5, "0.00001"),
            (1e-7, "1e-7"),
            (1.5e300, "1.5e+300"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(number_text(number), expected);
        }
    }

    #[test]
    fn each_type_has_its_form_in_each_version() {
        use Version::{Resp2, Resp3};
        assert_eq!(made(|out| bulk(out, b"hello")), "$5\r\nhello\r\n");
        assert_eq!(made(|out| bulk(out, b"")), "$0\r\n\r\n");
        assert_eq!(made(|out| simple(out, "OK")), "+OK\r\n");
        assert_eq!(made(|out| error(out, b"ERR a\r\nb")), "-ERR a  b\r\n");
        assert_eq!(made(|out| integer(out, -7)), ":-7\r\n");
        assert_eq!(made(|out| array_head(out, 3)), "*3\r\n");
        for (version, expected) in [
            (Resp2, "$-1\r\n*-1\r\n*4\r\n*2\r\n*3\r\n$3\r\n1.5\r\n$1\r\nx\r\n"),
            (Resp3, "_\r\n_\r\n%2\r\n~2\r\n>3\r\n,1.5\r\n=5\r\ntxt:x\r\n"),
        ] {
            let found = made(|out| {
                null(out, version);
                null_array(out, version);
                map_head(out, version, 2);
                set_head(out, version, 2);
                push_head(out, version, 3);
                double(out, version, 1.5);
                verbatim(out, version, b"x");
            });
            assert_eq!(found, expected);
        }
    }
}
