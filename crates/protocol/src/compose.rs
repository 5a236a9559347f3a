//! Composing replies: from values to bytes. Every function appends to the buffer of its caller. The fixed replies
//! are in [`crate::reply`].

pub use crate::base64::base64;

const PAIRS: &[u8; 200] = b"00010203040506070809101112131415161718192021222324252627282930313233343536373839\
40414243444546474849505152535455565758596061626364656667686970717273747576777879\
8081828384858687888990919293949596979899";

/// A short text that is built from its end. Three numbers of 20 digits and the separators between them fit.
struct Backward {
    bytes: [u8; 72],
    start: usize,
}

impl Backward {
    #[inline]
    fn new() -> Self {
        Backward { bytes: [0; 72], start: 72 }
    }

    #[inline]
    fn byte(&mut self, byte: u8) {
        self.start -= 1;
        self.bytes[self.start] = byte;
    }

    #[inline]
    fn number(&mut self, mut number: u64) {
        while number >= 10 {
            let pair = (number % 100) as usize * 2;
            number /= 100;
            self.start -= 2;
            self.bytes[self.start..self.start + 2].copy_from_slice(&PAIRS[pair..pair + 2]);
            if number == 0 {
                return;
            }
        }
        self.byte(b'0' + number as u8);
    }

    #[inline]
    fn text(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

#[inline]
fn line_end(out: &mut Vec<u8>) {
    out.extend_from_slice(b"\r\n");
}

/// Appends a number in decimal.
#[inline]
pub fn decimal(out: &mut Vec<u8>, number: u64) {
    let mut text = Backward::new();
    text.number(number);
    out.extend_from_slice(text.text());
}

/// Appends a signed number in decimal.
#[inline]
pub fn signed(out: &mut Vec<u8>, number: i64) {
    let mut text = Backward::new();
    text.number(number.unsigned_abs());
    if number < 0 {
        text.byte(b'-');
    }
    out.extend_from_slice(text.text());
}

/// Appends `VALUE <key> <flags> <bytes>[ <cas>]\r\n`. The value and its own `\r\n` follow.
#[inline(always)]
pub fn value_line(out: &mut Vec<u8>, key: &[u8], flags: u32, bytes: u32, cas: Option<u64>) {
    let mut tail = Backward::new();
    tail.byte(b'\n');
    tail.byte(b'\r');
    if let Some(cas) = cas {
        tail.number(cas);
        tail.byte(b' ');
    }
    tail.number(u64::from(bytes));
    tail.byte(b' ');
    tail.number(u64::from(flags));
    tail.byte(b' ');
    let tail = tail.text();
    out.reserve(6 + key.len() + tail.len());
    out.extend_from_slice(b"VALUE ");
    out.extend_from_slice(key);
    out.extend_from_slice(tail);
}

/// Appends a hit of a classic retrieval: the value line, the value, `\r\n`.
#[inline(always)]
pub fn value(out: &mut Vec<u8>, key: &[u8], flags: u32, data: &[u8], cas: Option<u64>) {
    value_line(out, key, flags, data.len() as u32, cas);
    out.extend_from_slice(data);
    line_end(out);
}

/// Appends a number on its own line: the reply of `incr` and `decr`.
#[inline]
pub fn number_line(out: &mut Vec<u8>, number: u64) {
    decimal(out, number);
    line_end(out);
}

/// Appends `VERSION <text>\r\n`.
pub fn version_line(out: &mut Vec<u8>, version: &str) {
    out.extend_from_slice(b"VERSION ");
    out.extend_from_slice(version.as_bytes());
    line_end(out);
}

/// Appends the reply of `config get cluster`, as Amazon's ElastiCache words it. `list` ends in a line feed.
pub fn fleet(out: &mut Vec<u8>, list: &str) {
    out.extend_from_slice(b"CONFIG cluster 0 ");
    decimal(out, list.len() as u64);
    line_end(out);
    out.extend_from_slice(list.as_bytes());
    out.extend_from_slice(b"\r\nEND\r\n");
}

/// Appends `STAT <name> <value>\r\n`.
pub fn stat_line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(b"STAT ");
    out.extend_from_slice(name);
    out.push(b' ');
    out.extend_from_slice(value);
    line_end(out);
}

/// Appends the start of a meta reply with a value: `VA <bytes>`. The flags follow, then `\r\n`, the value and
/// `\r\n`.
#[inline]
pub fn meta_value(out: &mut Vec<u8>, bytes: u32) {
    let mut text = Backward::new();
    text.number(u64::from(bytes));
    text.byte(b' ');
    text.byte(b'A');
    text.byte(b'V');
    out.extend_from_slice(text.text());
}

/// Appends a flag without a value: ` W`, ` X`, ` Z`, ` b`.
#[inline]
pub fn meta_flag(out: &mut Vec<u8>, letter: u8) {
    out.extend_from_slice(&[b' ', letter]);
}

/// Appends a flag with a number: ` f123`, ` c456`, ` s2`, ` h1`, ` l7`.
#[inline]
pub fn meta_number(out: &mut Vec<u8>, letter: u8, number: u64) {
    let mut text = Backward::new();
    text.number(number);
    text.byte(letter);
    text.byte(b' ');
    out.extend_from_slice(text.text());
}

/// Appends a flag with a token: ` Oabc`.
#[inline]
pub fn meta_token(out: &mut Vec<u8>, letter: u8, token: &[u8]) {
    meta_flag(out, letter);
    out.extend_from_slice(token);
}

/// Appends the return flag `k` with the key, and the flag `b` if the key is shown in base64.
pub fn meta_key(out: &mut Vec<u8>, key: &[u8], as_base64: bool) {
    if as_base64 {
        out.extend_from_slice(b" k");
        base64(out, key);
        meta_flag(out, b'b');
    } else {
        meta_token(out, b'k', key);
    }
}

/// Appends a key percent-encoded as in memcached's dumps and logs: letters, digits and `-._~` stay as they are, and
/// every other byte becomes `%XX` in capitals.
fn urlencoded(out: &mut Vec<u8>, key: &[u8]) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in key {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(byte);
        } else {
            out.extend_from_slice(&[b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
    }
}

/// What `lru_crawler metadump` and `me` report about an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemReport<'a> {
    /// The key itself, not encoded.
    pub key: &'a [u8],
    /// Expiry: unix time for `metadump`, seconds left for `me`. -1 if the item never expires.
    pub expiry: i64,
    /// Last access: unix time for `metadump`, seconds ago for `me`.
    pub last_access: i64,
    /// CAS number.
    pub cas: u64,
    /// Whether the item was read since it was stored.
    pub fetched: bool,
    /// Slab class, or a number that stands for it.
    pub class: u32,
    /// Bytes of the item, with its overhead.
    pub bytes: u64,
    /// Client flags. Only `metadump` prints them.
    pub flags: u32,
}

impl ItemReport<'_> {
    fn body(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b" exp=");
        signed(out, self.expiry);
        out.extend_from_slice(b" la=");
        signed(out, self.last_access);
        out.extend_from_slice(b" cas=");
        decimal(out, self.cas);
        out.extend_from_slice(if self.fetched { b" fetch=yes cls=" } else { b" fetch=no cls=" });
        decimal(out, u64::from(self.class));
        out.extend_from_slice(b" size=");
        decimal(out, self.bytes);
    }
}

/// Appends a line of `lru_crawler metadump`. The line ends in a bare `\n`, as memcached's does. The stream ends
/// with [`crate::reply::END`].
pub fn metadump_line(out: &mut Vec<u8>, item: &ItemReport<'_>) {
    out.extend_from_slice(b"key=");
    urlencoded(out, item.key);
    item.body(out);
    out.extend_from_slice(b" flags=");
    decimal(out, u64::from(item.flags));
    out.push(b'\n');
}

/// Appends a line of `lru_crawler mgdump`: a request that would fetch the key. The key is written in base64 with
/// the `b` flag if it contains a space or a line end, or if `base64_key` is set because it was stored that way. The
/// stream ends with [`crate::reply::META_MISS`].
pub fn mgdump_line(out: &mut Vec<u8>, key: &[u8], base64_key: bool) {
    out.extend_from_slice(b"mg ");
    if base64_key || key.iter().any(|byte| matches!(byte, b' ' | b'\n' | b'\r')) {
        base64(out, key);
        out.extend_from_slice(b" b\r\n");
    } else {
        out.extend_from_slice(key);
        line_end(out);
    }
}

/// Appends the reply of `me` for an item that exists, with its key in base64 or as it is. `ttl_ms` = what is left of a
/// lifetime in milliseconds, of an item that does not expire at a whole second, as those of memcached do.
pub fn meta_debug_line(out: &mut Vec<u8>, as_base64: bool, item: &ItemReport<'_>, ttl_ms: Option<u64>) {
    out.extend_from_slice(b"ME ");
    if as_base64 {
        base64(out, item.key)
    } else {
        out.extend_from_slice(item.key)
    }
    item.body(out);
    if let Some(ttl_ms) = ttl_ms {
        out.extend_from_slice(b" ttl_ms=");
        decimal(out, ttl_ms);
    }
    line_end(out);
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
    fn decimals_agree_with_the_standard_library() {
        let mut numbers: Vec<u64> = (0..=10_100).collect();
        for power in 0..20 {
            let ten = 10u64.pow(power);
            numbers.extend([ten - 1, ten, ten + 1, ten.saturating_mul(2), ten.saturating_mul(9)]);
        }
        numbers.push(u64::MAX);
        for number in numbers {
            assert_eq!(made(|out| decimal(out, number)), number.to_string());
        }
        for number in [0, 1, -1, 9, -10, i64::MAX, i64::MIN] {
            assert_eq!(made(|out| signed(out, number)), number.to_string());
        }
    }

    #[test]
    fn a_hit_is_a_line_and_a_block() {
        assert_eq!(made(|out| value(out, b"key", 5, b"hello", None)), "VALUE key 5 5\r\nhello\r\n");
        assert_eq!(made(|out| value(out, b"k", 0, b"", Some(7))), "VALUE k 0 0 7\r\n\r\n");
        assert_eq!(
            made(|out| value_line(out, b"k", u32::MAX, u32::MAX, Some(u64::MAX))),
            "VALUE k 4294967295 4294967295 18446744073709551615\r\n"
        );
    }

    #[test]
    fn meta_pieces_join_to_a_reply() {
        let reply = made(|out| {
            meta_value(out, 10);
            meta_number(out, b'f', 123);
            meta_token(out, b'O', b"abc");
            meta_flag(out, b'W');
            line_end(out);
        });
        assert_eq!(reply, "VA 10 f123 Oabc W\r\n");
    }

    #[test]
    fn small_lines() {
        assert_eq!(made(|out| number_line(out, 10)), "10\r\n");
        assert_eq!(made(|out| version_line(out, "1.6.45")), "VERSION 1.6.45\r\n");
        assert_eq!(made(|out| stat_line(out, b"pid", b"7")), "STAT pid 7\r\n");
    }

    #[test]
    fn dumps_encode_their_keys() {
        assert_eq!(made(|out| urlencoded(out, b"aZ9-._~ /%\xff\0")), "aZ9-._~%20%2F%25%FF%00");
        assert_eq!(made(|out| mgdump_line(out, b"foo", false)), "mg foo\r\n");
        assert_eq!(made(|out| mgdump_line(out, b"foo", true)), "mg Zm9v b\r\n");
        assert_eq!(made(|out| mgdump_line(out, b"f o", false)), "mg ZiBv b\r\n");
        let item = ItemReport {
            key: b"a b",
            expiry: -1,
            last_access: 1700000000,
            cas: 12,
            fetched: true,
            class: 1,
            bytes: 66,
            flags: 9,
        };
        assert_eq!(
            made(|out| metadump_line(out, &item)),
            "key=a%20b exp=-1 la=1700000000 cas=12 fetch=yes cls=1 size=66 flags=9\n"
        );
        assert_eq!(
            made(|out| meta_debug_line(out, true, &ItemReport { fetched: false, ..item }, Some(1234))),
            "ME YSBi exp=-1 la=1700000000 cas=12 fetch=no cls=1 size=66 ttl_ms=1234\r\n"
        );
    }
}
