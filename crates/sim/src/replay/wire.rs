//! Encodes requests: memcached's classic commands, and their RESP counterparts.

use super::key::Keys;
use super::options::Protocol;
use super::value::Values;

/// The meta flag of Larder's `ms` that states the cost of a miss in microseconds.
const COST_FLAG: u8 = b'G';
/// memcached reads a longer time to live as a point in time (protocol.txt: 30 days).
const MEMCACHED_TTL_S_MAX: u64 = 60 * 60 * 24 * 30;

/// The verb of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verb {
    /// Read.
    Get,
    /// Read, with the CAS number.
    Gets,
    /// Store.
    Set,
    /// Store if absent.
    Add,
    /// Store if present.
    Replace,
    /// Store if the item still has this CAS number.
    Cas(u64),
    /// Append to the value.
    Append,
    /// Prepend to the value. RESP has no such command and gets a `SET`.
    Prepend,
    /// Remove.
    Delete,
    /// Increase by 1.
    Incr,
    /// Decrease by 1.
    Decr,
}

/// The content to store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Content {
    /// A value with this version and length.
    Value { version: u64, bytes: u32 },
    /// The number 0, for a key that is counted with.
    Zero,
}

/// One message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    /// The verb.
    pub(super) verb: Verb,
    /// The number of the key.
    pub(super) key: u64,
    /// Length of the key's text in bytes.
    pub(super) key_length: usize,
    /// The content, for verbs that store.
    pub(super) content: Content,
    /// Time to live in seconds; 0 = the item never expires.
    pub(super) ttl_s: u32,
    /// Cost of a miss in microseconds that a `set` states, if any.
    pub(super) cost_us: Option<u32>,
}

/// Encodes messages.
pub(super) struct Wire {
    /// The protocol.
    pub(super) protocol: Protocol,
    /// Renders keys.
    pub(super) keys: Keys,
    /// Makes values.
    pub(super) values: Values,
    /// Unix time of the start of the run, from which long times to live count.
    pub(super) began_unix_s: u64,
}

impl Wire {
    /// Appends a message to `out`.
    #[inline]
    pub(super) fn put(&self, out: &mut Vec<u8>, message: &Message) {
        match self.protocol {
            Protocol::Memcached => self.put_memcached(out, message),
            Protocol::Resp => self.put_resp(out, message),
        }
    }

    #[inline]
    fn put_memcached(&self, out: &mut Vec<u8>, message: &Message) {
        if let (Verb::Set, Some(cost_us)) = (message.verb, message.cost_us) {
            return self.put_meta_set(out, message, cost_us);
        }
        let command: &[u8] = match message.verb {
            Verb::Get => b"get ",
            Verb::Gets => b"gets ",
            Verb::Set => b"set ",
            Verb::Add => b"add ",
            Verb::Replace => b"replace ",
            Verb::Cas(_) => b"cas ",
            Verb::Append => b"append ",
            Verb::Prepend => b"prepend ",
            Verb::Delete => b"delete ",
            Verb::Incr => b"incr ",
            Verb::Decr => b"decr ",
        };
        out.extend_from_slice(command);
        self.keys.put(out, message.key, message.key_length);
        match message.verb {
            Verb::Get | Verb::Gets | Verb::Delete => {}
            Verb::Incr | Verb::Decr => out.extend_from_slice(b" 1"),
            _ => {
                out.extend_from_slice(b" 0 ");
                put_number(out, self.memcached_ttl(message.ttl_s));
                out.push(b' ');
                put_number(out, content_bytes(message.content) as u64);
                if let Verb::Cas(unique) = message.verb {
                    out.push(b' ');
                    put_number(out, unique);
                }
                out.extend_from_slice(b"\r\n");
                self.put_content(out, message);
            }
        }
        out.extend_from_slice(b"\r\n");
    }

    /// A `set` that states the cost of a miss.
    fn put_meta_set(&self, out: &mut Vec<u8>, message: &Message, cost_us: u32) {
        out.extend_from_slice(b"ms ");
        self.keys.put(out, message.key, message.key_length);
        out.push(b' ');
        put_number(out, content_bytes(message.content) as u64);
        out.extend_from_slice(b" T");
        put_number(out, self.memcached_ttl(message.ttl_s));
        out.extend_from_slice(&[b' ', COST_FLAG]);
        put_number(out, u64::from(cost_us));
        out.extend_from_slice(b"\r\n");
        self.put_content(out, message);
        out.extend_from_slice(b"\r\n");
    }

    fn memcached_ttl(&self, ttl_s: u32) -> u64 {
        let ttl_s = u64::from(ttl_s);
        if ttl_s > MEMCACHED_TTL_S_MAX { self.began_unix_s + ttl_s } else { ttl_s }
    }

    #[inline]
    fn put_resp(&self, out: &mut Vec<u8>, message: &Message) {
        let (head, tail): (&[u8], &[u8]) = match message.verb {
            Verb::Get | Verb::Gets => (b"*2\r\n$3\r\nGET\r\n", b""),
            Verb::Delete => (b"*2\r\n$3\r\nDEL\r\n", b""),
            Verb::Incr => (b"*3\r\n$6\r\nINCRBY\r\n", b"$1\r\n1\r\n"),
            Verb::Decr => (b"*3\r\n$6\r\nDECRBY\r\n", b"$1\r\n1\r\n"),
            Verb::Append => (b"*3\r\n$6\r\nAPPEND\r\n", b""),
            Verb::Set | Verb::Cas(_) | Verb::Prepend if message.ttl_s == 0 => (b"*3\r\n$3\r\nSET\r\n", b""),
            Verb::Set | Verb::Cas(_) | Verb::Prepend => (b"*5\r\n$3\r\nSET\r\n", b""),
            Verb::Add if message.ttl_s == 0 => (b"*4\r\n$3\r\nSET\r\n", b"$2\r\nNX\r\n"),
            Verb::Add => (b"*6\r\n$3\r\nSET\r\n", b"$2\r\nNX\r\n"),
            Verb::Replace if message.ttl_s == 0 => (b"*4\r\n$3\r\nSET\r\n", b"$2\r\nXX\r\n"),
            Verb::Replace => (b"*6\r\n$3\r\nSET\r\n", b"$2\r\nXX\r\n"),
        };
        out.extend_from_slice(head);
        put_bulk_head(out, message.key_length as u64);
        self.keys.put(out, message.key, message.key_length);
        out.extend_from_slice(b"\r\n");
        if message.verb.stores() {
            put_bulk_head(out, content_bytes(message.content) as u64);
            self.put_content(out, message);
            out.extend_from_slice(b"\r\n");
            if message.ttl_s != 0 && message.verb != Verb::Append {
                out.extend_from_slice(b"$2\r\nEX\r\n");
                put_bulk_head(out, decimal_digits(u64::from(message.ttl_s)) as u64);
                put_number(out, u64::from(message.ttl_s));
                out.extend_from_slice(b"\r\n");
            }
        }
        out.extend_from_slice(tail);
    }

    #[inline]
    fn put_content(&self, out: &mut Vec<u8>, message: &Message) {
        match message.content {
            Content::Zero => out.push(b'0'),
            Content::Value { version, bytes } => {
                let identity = Keys::identity(message.key, message.key_length);
                self.values.put(out, identity, version, bytes as usize);
            }
        }
    }

    /// Encodes a login: memcached's ASCII authentication or RESP's `AUTH`.
    pub(super) fn put_login(protocol: Protocol, out: &mut Vec<u8>, user: &str, password: &str) {
        match protocol {
            Protocol::Memcached => {
                let both = format!("{user} {password}");
                out.extend_from_slice(format!("set auth 0 0 {}\r\n{both}\r\n", both.len()).as_bytes());
            }
            Protocol::Resp if user.is_empty() => put_words(out, &["AUTH", password]),
            Protocol::Resp => put_words(out, &["AUTH", user, password]),
        }
    }

    /// Encodes RESP's `SELECT`.
    pub(super) fn put_select(out: &mut Vec<u8>, database: u32) {
        put_words(out, &["SELECT", &database.to_string()]);
    }
}

impl Verb {
    /// Whether the message carries a value.
    pub(super) fn stores(self) -> bool {
        !matches!(self, Verb::Get | Verb::Gets | Verb::Delete | Verb::Incr | Verb::Decr)
    }

    /// The name in an error message.
    pub(super) fn name(self) -> &'static str {
        match self {
            Verb::Get => "get",
            Verb::Gets => "gets",
            Verb::Set => "set",
            Verb::Add => "add",
            Verb::Replace => "replace",
            Verb::Cas(_) => "cas",
            Verb::Append => "append",
            Verb::Prepend => "prepend",
            Verb::Delete => "delete",
            Verb::Incr => "incr",
            Verb::Decr => "decr",
        }
    }
}

#[inline]
fn content_bytes(content: Content) -> usize {
    match content {
        Content::Zero => 1,
        Content::Value { bytes, .. } => bytes as usize,
    }
}

fn put_words(out: &mut Vec<u8>, words: &[&str]) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
}

#[inline]
fn put_bulk_head(out: &mut Vec<u8>, bytes: u64) {
    out.push(b'$');
    put_number(out, bytes);
    out.extend_from_slice(b"\r\n");
}

#[inline]
fn decimal_digits(number: u64) -> usize {
    number.checked_ilog10().unwrap_or(0) as usize + 1
}

/// Appends a decimal number to `out`.
#[inline]
pub(super) fn put_number(out: &mut Vec<u8>, number: u64) {
    let mut text = [0u8; 20];
    let mut at = text.len();
    let mut rest = number;
    loop {
        at -= 1;
        text[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&text[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::options::Verify;

    fn text(protocol: Protocol, verb: Verb, content: Content, ttl_s: u32) -> String {
        costly(protocol, verb, content, ttl_s, None)
    }

    fn costly(protocol: Protocol, verb: Verb, content: Content, ttl_s: u32, cost_us: Option<u32>) -> String {
        let wire = Wire {
            protocol,
            keys: Keys::new("p:", protocol),
            values: Values::new(Verify::Full),
            began_unix_s: 1_000_000_000,
        };
        let mut out = Vec::new();
        let message = Message { verb, key: 10, key_length: 4, content, ttl_s, cost_us };
        wire.put(&mut out, &message);
        String::from_utf8(out).expect("plain text")
    }

    #[test]
    fn memcached_requests() {
        let plain = |verb, ttl_s| text(Protocol::Memcached, verb, Content::Zero, ttl_s);
        assert_eq!(plain(Verb::Get, 5), "get p:a.\r\n");
        assert_eq!(plain(Verb::Gets, 0), "gets p:a.\r\n");
        assert_eq!(plain(Verb::Set, 5), "set p:a. 0 5 1\r\n0\r\n");
        assert_eq!(plain(Verb::Set, 2_592_000), "set p:a. 0 2592000 1\r\n0\r\n");
        assert_eq!(plain(Verb::Add, 2_592_001), "add p:a. 0 1002592001 1\r\n0\r\n");
        assert_eq!(plain(Verb::Cas(77), 0), "cas p:a. 0 0 1 77\r\n0\r\n");
        assert_eq!(plain(Verb::Delete, 0), "delete p:a.\r\n");
        assert_eq!(plain(Verb::Incr, 9), "incr p:a. 1\r\n");
        assert_eq!(plain(Verb::Prepend, 0), "prepend p:a. 0 0 1\r\n0\r\n");
        let empty = Content::Value { version: 1, bytes: 0 };
        assert_eq!(text(Protocol::Memcached, Verb::Set, empty, 0), "set p:a. 0 0 0\r\n\r\n");
    }

    #[test]
    fn a_set_states_its_cost_and_other_verbs_do_not() {
        let said = |verb, ttl_s| costly(Protocol::Memcached, verb, Content::Zero, ttl_s, Some(1_500));
        assert_eq!(said(Verb::Set, 5), "ms p:a. 1 T5 G1500\r\n0\r\n");
        assert_eq!(said(Verb::Add, 5), "add p:a. 0 5 1\r\n0\r\n");
        assert_eq!(said(Verb::Get, 0), "get p:a.\r\n");
    }

    #[test]
    fn resp_requests() {
        let plain = |verb, ttl_s| text(Protocol::Resp, verb, Content::Zero, ttl_s);
        let key = "$4\r\np:a.\r\n";
        assert_eq!(plain(Verb::Get, 5), format!("*2\r\n$3\r\nGET\r\n{key}"));
        assert_eq!(plain(Verb::Set, 0), format!("*3\r\n$3\r\nSET\r\n{key}$1\r\n0\r\n"));
        assert_eq!(
            plain(Verb::Set, 60),
            format!("*5\r\n$3\r\nSET\r\n{key}$1\r\n0\r\n$2\r\nEX\r\n$2\r\n60\r\n")
        );
        assert_eq!(plain(Verb::Add, 0), format!("*4\r\n$3\r\nSET\r\n{key}$1\r\n0\r\n$2\r\nNX\r\n"));
        let replace = format!("*6\r\n$3\r\nSET\r\n{key}$1\r\n0\r\n$2\r\nEX\r\n$1\r\n7\r\n$2\r\nXX\r\n");
        assert_eq!(plain(Verb::Replace, 7), replace);
        assert_eq!(plain(Verb::Delete, 0), format!("*2\r\n$3\r\nDEL\r\n{key}"));
        assert_eq!(plain(Verb::Decr, 0), format!("*3\r\n$6\r\nDECRBY\r\n{key}$1\r\n1\r\n"));
        assert_eq!(plain(Verb::Append, 9), format!("*3\r\n$6\r\nAPPEND\r\n{key}$1\r\n0\r\n"));
    }

    #[test]
    fn logins() {
        let mut out = Vec::new();
        Wire::put_login(Protocol::Memcached, &mut out, "me", "pw");
        Wire::put_login(Protocol::Resp, &mut out, "", "pw");
        Wire::put_login(Protocol::Resp, &mut out, "me", "pw");
        Wire::put_select(&mut out, 3);
        let text = "set auth 0 0 5\r\nme pw\r\n*2\r\n$4\r\nAUTH\r\n$2\r\npw\r\n\
                    *3\r\n$4\r\nAUTH\r\n$2\r\nme\r\n$2\r\npw\r\n*2\r\n$6\r\nSELECT\r\n$1\r\n3\r\n";
        assert_eq!(String::from_utf8(out).expect("plain text"), text);
    }

    #[test]
    fn numbers_are_written_like_format_does() {
        for number in [0, 7, 10, 99, 100, 12_345, u64::MAX] {
            let mut out = Vec::new();
            put_number(&mut out, number);
            assert_eq!(out, number.to_string().into_bytes());
            assert_eq!(out.len(), decimal_digits(number));
        }
    }
}
