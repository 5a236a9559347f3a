//! Encodes requests: keys, values, and the protocols.

use std::sync::Arc;

use crate::rng::{Rng, mix};
use crate::values::{self, Values};

/// Length of every key in bytes.
pub(crate) const KEY_BYTES: usize = 30;

/// The start of every key whose value has no kind; ten digits follow.
const PREFIX: &[u8; KEY_BYTES - DIGITS] = b"larder:bench:object:";
const DIGITS: usize = 10;

/// Bytes of random letters from which values are cut.
const POOL_BYTES: usize = 64 * 1024;

/// The longest value in bytes. A value may start anywhere in the first half of the letters.
pub(crate) const VALUE_BYTES_MAX: usize = POOL_BYTES / 2;

/// The protocol a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// memcached's text protocol.
    Text,
    /// RESP2, as Redis and Valkey speak it.
    Resp,
    /// memcached's binary protocol.
    Binary,
}

/// Minimum and maximum length of the values in bytes. The length for a key depends only on its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ValueBytes {
    /// The shortest.
    pub(crate) min: u32,
    /// The longest.
    pub(crate) max: u32,
}

impl std::str::FromStr for ValueBytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (min, max) = text.split_once('-').unwrap_or((text, text));
        let number = |text: &str| text.parse().map_err(|_| format!("`{text}` is not a number of bytes"));
        let (min, max) = (number(min)?, number(max)?);
        if min > max || !values::BYTES.contains(&min) || !values::BYTES.contains(&max) {
            let (least, most) = values::BYTES.into_inner();
            return Err(format!("want a length or MIN-MAX, both {least} to {most} bytes"));
        }
        Ok(Self { min, max })
    }
}

impl ValueBytes {
    /// All values `bytes` long.
    pub(crate) fn fixed(bytes: u32) -> Self {
        Self { min: bytes, max: bytes }
    }

    /// Length of the value of key `id`.
    pub(crate) fn of(self, id: u32) -> usize {
        let spread = self.max - self.min;
        if spread == 0 {
            return self.min as usize;
        }
        (u64::from(self.min) + mix(u64::from(id)) % (u64::from(spread) + 1)) as usize
    }

    /// Mean length, in bytes.
    pub(crate) fn mean(self) -> f64 {
        (f64::from(self.min) + f64::from(self.max)) / 2.0
    }
}

/// Encodes requests, and knows the value of each key.
pub(crate) struct Wire {
    /// The protocol spoken.
    pub(crate) protocol: Protocol,
    value_bytes: ValueBytes,
    verify: bool,
    pool: Vec<u8>,
    /// The values; `None` = letters.
    values: Option<Arc<Values>>,
}

impl Wire {
    /// With `verify` false, any value in a reply is accepted: for a server that answers everything alike.
    pub(crate) fn new(protocol: Protocol, value_bytes: ValueBytes, verify: bool) -> Self {
        assert!(value_bytes.min <= value_bytes.max && value_bytes.max as usize <= VALUE_BYTES_MAX);
        const LETTERS: &[u8; 64] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ._";
        let mut rng = Rng::new(0x1a2d_e200);
        let pool = (0..POOL_BYTES).map(|_| LETTERS[rng.below(64) as usize]).collect();
        Self { protocol, value_bytes, verify, pool, values: None }
    }

    /// The same with values of a kind, which the beginning of a key tells.
    pub(crate) fn with_values(self, values: Option<Arc<Values>>) -> Self {
        Self { values, ..self }
    }

    /// Whether a server can be asked for its items: not in the binary protocol, and not one that answers all alike.
    pub(crate) fn can_ask(&self) -> bool {
        self.protocol != Protocol::Binary && self.verify
    }

    /// An upper bound for one request or one reply, in bytes.
    pub(crate) fn message_bytes_max(&self) -> usize {
        self.value_bytes.max as usize + KEY_BYTES + 80
    }

    /// Appends a GET of key `id`.
    pub(crate) fn put_get(&self, out: &mut Vec<u8>, id: u32) {
        match self.protocol {
            Protocol::Text => out.extend_from_slice(b"get "),
            Protocol::Resp => out.extend_from_slice(b"*2\r\n$3\r\nGET\r\n$30\r\n"),
            Protocol::Binary => return self.put_packet(out, 0x00, id, b"", 0),
        }
        self.put_key(out, id);
        out.extend_from_slice(b"\r\n");
    }

    /// Appends a request that tells whether key `id` is there and that no server takes for a hit: memcached's `me`,
    /// and `EXISTS`.
    pub(crate) fn put_peek(&self, out: &mut Vec<u8>, id: u32) {
        match self.protocol {
            Protocol::Text => out.extend_from_slice(b"me "),
            Protocol::Resp => out.extend_from_slice(b"*2\r\n$6\r\nEXISTS\r\n$30\r\n"),
            Protocol::Binary => unreachable!("no packet asks for that"),
        }
        self.put_key(out, id);
        out.extend_from_slice(b"\r\n");
    }

    /// Appends a SET of key `id` to its value, which never expires.
    pub(crate) fn put_set(&self, out: &mut Vec<u8>, id: u32) {
        self.put_set_for(out, id, 0);
    }

    /// Appends a SET of key `id` to its value, with a time to live in seconds; 0 = the item never expires.
    pub(crate) fn put_set_for(&self, out: &mut Vec<u8>, id: u32, ttl_s: u32) {
        let bytes = self.value_bytes.of(id);
        if self.protocol == Protocol::Binary {
            let ttl = ttl_s.to_be_bytes();
            self.put_packet(out, 0x01, id, &[0, 0, 0, 0, ttl[0], ttl[1], ttl[2], ttl[3]], bytes);
            return self.put_value(out, id, bytes);
        }
        match self.protocol {
            Protocol::Binary => {}
            Protocol::Text => {
                out.extend_from_slice(b"set ");
                self.put_key(out, id);
                out.extend_from_slice(b" 0 ");
                put_decimal(out, ttl_s as usize);
                out.push(b' ');
            }
            Protocol::Resp => {
                let words = if ttl_s == 0 { b'3' } else { b'5' };
                out.extend_from_slice(&[b'*', words]);
                out.extend_from_slice(b"\r\n$3\r\nSET\r\n$30\r\n");
                self.put_key(out, id);
                out.extend_from_slice(b"\r\n$");
            }
        }
        put_decimal(out, bytes);
        out.extend_from_slice(b"\r\n");
        self.put_value(out, id, bytes);
        out.extend_from_slice(b"\r\n");
        if self.protocol == Protocol::Resp && ttl_s > 0 {
            let seconds = ttl_s.to_string();
            out.extend_from_slice(format!("$2\r\nEX\r\n${}\r\n{seconds}\r\n", seconds.len()).as_bytes());
        }
    }

    fn put_key(&self, out: &mut Vec<u8>, id: u32) {
        let begin = out.len();
        out.extend_from_slice(&key(id));
        if let Some(values) = &self.values {
            let name = values.kind_of(id).prefix().as_bytes();
            let (kind, rest) = out[begin..begin + PREFIX.len()].split_at_mut(name.len());
            kind.copy_from_slice(name);
            rest.fill(b'0');
            rest[0] = b':';
        }
    }

    /// Appends a packet of the binary protocol up to its value, which has `value_bytes` bytes.
    fn put_packet(&self, out: &mut Vec<u8>, opcode: u8, id: u32, extras: &[u8], value_bytes: usize) {
        let body = (extras.len() + KEY_BYTES + value_bytes) as u32;
        out.extend_from_slice(&[0x80, opcode, 0, KEY_BYTES as u8, extras.len() as u8, 0, 0, 0]);
        out.extend_from_slice(&body.to_be_bytes());
        out.extend_from_slice(&[0; 12]);
        out.extend_from_slice(extras);
        self.put_key(out, id);
    }

    fn put_value(&self, out: &mut Vec<u8>, id: u32, bytes: usize) {
        if let Some(values) = &self.values {
            return values.put(out, id, bytes);
        }
        let head = digits(id);
        let head = &head[..bytes.min(DIGITS)];
        out.extend_from_slice(head);
        out.extend_from_slice(self.tail(id, bytes - head.len()));
    }

    /// True if `value` has the length and the first bytes of the value of key `id`; if the values have a kind, all its
    /// bytes.
    pub(crate) fn belongs(&self, id: u32, value: &[u8]) -> bool {
        if !self.verify {
            return true;
        }
        if let Some(values) = &self.values {
            return values.is(id, value, |id| self.value_bytes.of(id));
        }
        let bytes = self.value_bytes.of(id);
        let head = bytes.min(DIGITS);
        value.len() == bytes && value[..head] == digits(id)[..head]
    }

    /// What follows the digits in the value of key `id`.
    fn tail(&self, id: u32, bytes: usize) -> &[u8] {
        let start = mix(u64::from(id)) as usize % (POOL_BYTES - VALUE_BYTES_MAX);
        &self.pool[start..start + bytes]
    }
}

/// Key number `id`.
pub(crate) fn key(id: u32) -> [u8; KEY_BYTES] {
    let mut out = [0; KEY_BYTES];
    out[..PREFIX.len()].copy_from_slice(PREFIX);
    out[PREFIX.len()..].copy_from_slice(&digits(id));
    out
}

/// `id` in ten decimal digits.
fn digits(id: u32) -> [u8; DIGITS] {
    let mut out = [b'0'; DIGITS];
    let mut rest = id;
    for digit in out.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    out
}

fn put_decimal(out: &mut Vec<u8>, number: usize) {
    let digits = digits(number as u32);
    let skip = digits.iter().take(DIGITS - 1).take_while(|&&digit| digit == b'0').count();
    out.extend_from_slice(&digits[skip..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::ValueKind;

    fn written(wire: &Wire, put: impl Fn(&Wire, &mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        put(wire, &mut out);
        assert!(out.len() <= wire.message_bytes_max());
        String::from_utf8(out).expect("requests are ASCII")
    }

    #[test]
    fn text_requests() {
        let wire = Wire::new(Protocol::Text, ValueBytes::fixed(12), true);
        assert_eq!(written(&wire, |w, o| w.put_get(o, 7)), "get larder:bench:object:0000000007\r\n");
        let set = written(&wire, |w, o| w.put_set(o, 4_000_000_000));
        assert!(set.starts_with("set larder:bench:object:4000000000 0 0 12\r\n4000000000"), "{set}");
        assert!(set.ends_with("\r\n") && set.len() == 43 + 12 + 2, "{set}");
    }

    #[test]
    fn resp_requests() {
        let wire = Wire::new(Protocol::Resp, ValueBytes::fixed(3), true);
        assert_eq!(
            written(&wire, |w, o| w.put_get(o, 7)),
            "*2\r\n$3\r\nGET\r\n$30\r\nlarder:bench:object:0000000007\r\n"
        );
        assert_eq!(
            written(&wire, |w, o| w.put_set(o, 1_234_567_890)),
            "*3\r\n$3\r\nSET\r\n$30\r\nlarder:bench:object:1234567890\r\n$3\r\n123\r\n"
        );
    }

    #[test]
    fn binary_requests() {
        let wire = Wire::new(Protocol::Binary, ValueBytes::fixed(3), true);
        let mut get = Vec::new();
        wire.put_get(&mut get, 7);
        assert_eq!(get[..4], [0x80, 0, 0, 30]);
        assert_eq!(&get[24..], b"larder:bench:object:0000000007");
        let mut set = Vec::new();
        wire.put_set_for(&mut set, 1_234_567_890, 9);
        assert_eq!(set[..12], [0x80, 1, 0, 30, 8, 0, 0, 0, 0, 0, 0, 41]);
        assert_eq!(set[24..32], [0, 0, 0, 0, 0, 0, 0, 9]);
        assert_eq!(&set[32..], b"larder:bench:object:1234567890123");
    }

    #[test]
    fn values_are_told_apart() {
        let wire = Wire::new(Protocol::Text, ValueBytes { min: 50, max: 550 }, true);
        let set = written(&wire, |w, o| w.put_set(o, 99));
        let value = set.split("\r\n").nth(1).expect("a value line").as_bytes();
        assert!(wire.belongs(99, value));
        assert!(!wire.belongs(98, value));
        assert!(!wire.belongs(99, &value[1..]));
        assert!(Wire::new(Protocol::Text, ValueBytes::fixed(1), false).belongs(5, b"anything"));
    }

    #[test]
    fn the_kind_of_a_value_stands_in_its_key() {
        let values = Some(Arc::new(Values::new(ValueKind::Mix, 1)));
        let wire = Wire::new(Protocol::Text, ValueBytes { min: 150, max: 390 }, true).with_values(values);
        let (mut get, mut set) = (Vec::new(), Vec::new());
        wire.put_get(&mut get, 7);
        wire.put_set(&mut set, 7);
        let key = String::from_utf8_lossy(&get[4..get.len() - 2]).into_owned();
        let value = &set[set.iter().position(|&byte| byte == b'\n').expect("a line") + 1..set.len() - 2];
        let kind = Values::new(ValueKind::Mix, 1).kind_of(7).prefix();
        assert!(key.starts_with(&format!("{kind}:00")) && key.ends_with("0000000007"), "{key}");
        assert_eq!(key.len(), KEY_BYTES);
        assert!(wire.belongs(7, value) && !wire.belongs(8, value));
        let mut damaged = value.to_vec();
        *damaged.last_mut().expect("a byte") ^= 1;
        assert!(!wire.belongs(7, &damaged));
    }

    #[test]
    fn value_lengths_cover_their_range_evenly() {
        let sizes = ValueBytes { min: 50, max: 550 };
        let lengths: Vec<usize> = (0..100_000).map(|id| sizes.of(id)).collect();
        assert_eq!((lengths.iter().min(), lengths.iter().max()), (Some(&50), Some(&550)));
        let mean = lengths.iter().sum::<usize>() as f64 / lengths.len() as f64;
        assert!((mean - sizes.mean()).abs() < 3.0, "{mean}");
    }
}
