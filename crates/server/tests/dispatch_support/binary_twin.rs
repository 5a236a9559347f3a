//! The slow twin of the binary protocol: a map, and for each opcode the reply that memcached 1.6.45 gives.
//!
//! Nothing expires while the twin looks on, unless a request says that its item has expired already. No item is too
//! large.

#![allow(dead_code, reason = "each user takes its part")]

use std::collections::HashMap;

/// The length of a header.
const HEADER_BYTES: usize = 24;
/// An expiry in the past: a unix time of January 1970.
pub(crate) const EXPIRED: u32 = 2_592_001;
/// An expiry with which a counter is not created.
pub(crate) const DO_NOT_CREATE: u32 = u32::MAX;

/// A request, or what a reply consists of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) opcode: u8,
    /// In a reply.
    pub(crate) status: u16,
    pub(crate) opaque: u32,
    pub(crate) cas: u64,
    pub(crate) extras: Vec<u8>,
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

impl Packet {
    /// A request for a key.
    pub(crate) fn new(opcode: u8, key: &[u8]) -> Packet {
        Packet { opcode, opaque: 0xdead_beef, key: key.to_vec(), ..Packet::default() }
    }

    pub(crate) fn extras(mut self, extras: &[u8]) -> Packet {
        self.extras = extras.to_vec();
        self
    }

    pub(crate) fn value(mut self, value: &[u8]) -> Packet {
        self.value = value.to_vec();
        self
    }

    pub(crate) fn cas(mut self, cas: u64) -> Packet {
        self.cas = cas;
        self
    }

    /// A store with flags and expiry.
    pub(crate) fn store(opcode: u8, key: &[u8], flags: u32, exptime: u32, value: &[u8]) -> Packet {
        let extras = [flags.to_be_bytes(), exptime.to_be_bytes()].concat();
        Packet::new(opcode, key).extras(&extras).value(value)
    }

    /// An increment or decrement.
    pub(crate) fn arith(opcode: u8, key: &[u8], delta: u64, initial: u64, exptime: u32) -> Packet {
        let extras = [&delta.to_be_bytes()[..], &initial.to_be_bytes(), &exptime.to_be_bytes()].concat();
        Packet::new(opcode, key).extras(&extras)
    }

    /// The packet as a client sends it.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let body = self.extras.len() + self.key.len() + self.value.len();
        let mut bytes = vec![0x80, self.opcode];
        bytes.extend_from_slice(&(self.key.len() as u16).to_be_bytes());
        bytes.extend_from_slice(&[self.extras.len() as u8, 0, 0, 0]);
        bytes.extend_from_slice(&(body as u32).to_be_bytes());
        bytes.extend_from_slice(&self.opaque.to_be_bytes());
        bytes.extend_from_slice(&self.cas.to_be_bytes());
        [&bytes[..], &self.extras, &self.key, &self.value].concat()
    }

    /// Takes the replies off the front of what a server said. What is left is no whole reply.
    pub(crate) fn replies(mut said: &[u8]) -> (Vec<Packet>, &[u8]) {
        let mut replies = Vec::new();
        while let Some((reply, rest)) = Packet::reply(said) {
            replies.push(reply);
            said = rest;
        }
        (replies, said)
    }

    fn reply(said: &[u8]) -> Option<(Packet, &[u8])> {
        let header = said.get(..HEADER_BYTES).filter(|header| header[0] == 0x81)?;
        let number =
            |from: usize, to: usize| header[from..to].iter().fold(0, |sum, &b| sum << 8 | u64::from(b));
        let body = said.get(HEADER_BYTES..HEADER_BYTES + number(8, 12) as usize)?;
        let (extras, key) = (number(4, 5) as usize, number(2, 4) as usize);
        let reply = Packet {
            opcode: header[1],
            status: number(6, 8) as u16,
            opaque: number(12, 16) as u32,
            cas: number(16, 24),
            extras: body.get(..extras)?.to_vec(),
            key: body.get(extras..extras + key)?.to_vec(),
            value: body.get(extras + key..)?.to_vec(),
        };
        Some((reply, &said[HEADER_BYTES + body.len()..]))
    }
}

/// A reply that the twin expects. Which CAS number it has, the twin cannot know at first.
#[derive(Debug)]
pub(crate) struct Expected {
    reply: Packet,
    /// The item of this key has got a new number with this reply, or with one that was not sent.
    changes: Option<Vec<u8>>,
    /// The reply has the number of the item of this key.
    shows: bool,
}

struct Item {
    value: Vec<u8>,
    flags: u32,
    /// `None` = no reply has told it yet.
    cas: Option<u64>,
}

/// What the server should know.
pub(crate) struct Twin {
    /// Longer values are in several pieces, and no number.
    whole_bytes_max: usize,
    items: HashMap<Vec<u8>, Item>,
    /// The connection is closed behind the last reply.
    pub(crate) is_closed: bool,
}

/// The loud opcode of a quiet one.
fn loud(opcode: u8) -> u8 {
    match opcode {
        0x09 => 0x00,
        0x0d => 0x0c,
        0x11..=0x18 => opcode - 0x10,
        0x19 | 0x1a => opcode - 0x0b,
        0x1e => 0x1d,
        0x24 => 0x23,
        other => other,
    }
}

fn text(status: u16) -> &'static [u8] {
    match status {
        0x01 => b"Not found",
        0x02 => b"Data exists for key.",
        0x03 => b"Too large.",
        0x04 => b"Invalid arguments",
        0x05 => b"Not stored.",
        0x06 => b"Non-numeric server-side value for incr or decr",
        0x81 => b"Unknown command",
        _ => b"",
    }
}

fn number32(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes.try_into().expect("four bytes"))
}

fn number64(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes.try_into().expect("eight bytes"))
}

/// Whether the CAS number that the client names is another one than the item's.
fn differs(request: &Packet, cas: Option<u64>) -> bool {
    request.cas != 0 && cas != Some(request.cas)
}

impl Twin {
    /// The twin of a server that stores values up to this length in one piece.
    pub(crate) fn new(whole_bytes_max: usize) -> Twin {
        Twin { whole_bytes_max, items: HashMap::new(), is_closed: false }
    }

    /// The CAS number of an item, as far as a reply has told it.
    pub(crate) fn cas_of(&self, key: &[u8]) -> Option<u64> {
        self.items.get(key)?.cas
    }

    /// The length of a value, bytes.
    pub(crate) fn value_bytes(&self, key: &[u8]) -> usize {
        self.items.get(key).map_or(0, |item| item.value.len())
    }

    /// Executes a request of good shape on the map. Returns the reply, if there is to be one.
    pub(crate) fn execute(&mut self, request: &Packet) -> Option<Expected> {
        let opcode = loud(request.opcode);
        let is_quiet = opcode != request.opcode;
        let Packet { key, extras, .. } = request;
        let found = self.items.get(key).map(|item| item.cas);
        let mut reply = Packet { opcode: request.opcode, opaque: request.opaque, ..Packet::default() };
        let (mut changes, mut shows) = (false, false);
        let status = match opcode {
            0x00 | 0x0c | 0x1d | 0x23 => match self.items.get(key) {
                None if is_quiet => return None,
                None if opcode == 0x0c || opcode == 0x23 => {
                    reply.key.clone_from(key);
                    1
                }
                None => 1,
                Some(item) => {
                    reply.extras = item.flags.to_be_bytes().to_vec();
                    reply.value.clone_from(&item.value);
                    if opcode == 0x0c || opcode == 0x23 {
                        reply.key.clone_from(key);
                    }
                    shows = true;
                    0
                }
            },
            0x1c => match self.items.get(key) {
                None => 1,
                Some(item) => {
                    reply.extras = item.flags.to_be_bytes().to_vec();
                    shows = true;
                    0
                }
            },
            0x01..=0x03 => {
                let (status, is_stored) = self.store(opcode, request);
                changes = is_stored;
                status
            }
            0x0e | 0x0f => {
                let status = self.join(opcode, request);
                changes = status == 0;
                status
            }
            0x04 => match found {
                None => 1,
                Some(cas) if differs(request, cas) => 2,
                Some(_) => {
                    self.items.remove(key);
                    0
                }
            },
            0x05 | 0x06 => {
                let (status, number) = self.count(opcode, request);
                changes = status == 0;
                reply.value = number.map_or(Vec::new(), |number| number.to_be_bytes().to_vec());
                status
            }
            0x07 => {
                self.is_closed = true;
                0
            }
            0x08 => {
                self.items.clear();
                0
            }
            0x0a => 0,
            _ => 0x81,
        };
        if let 0x1c | 0x1d | 0x23 = opcode
            && status == 0
            && number32(extras) == EXPIRED
        {
            reply.status = 0;
            let item = self.items.remove(key);
            reply.cas = item.and_then(|item| item.cas).unwrap_or(0);
            return Some(Expected { reply, changes: None, shows: false });
        }
        reply.status = status;
        if status != 0 && reply.key.is_empty() {
            reply.value = text(status).to_vec();
        }
        let is_retrieval = matches!(opcode, 0x00 | 0x0c | 0x1d | 0x23);
        if changes && let Some(item) = self.items.get_mut(key) {
            item.cas = None;
        }
        if is_quiet && !is_retrieval && status == 0 {
            return None;
        }
        Some(Expected { reply, changes: changes.then(|| key.clone()), shows })
    }

    /// `set`, `add` and `replace`: the status, and whether the value was stored.
    fn store(&mut self, opcode: u8, request: &Packet) -> (u16, bool) {
        let Packet { key, value, extras, .. } = request;
        let found = self.items.get(key).map(|item| item.cas);
        let is_stored = match (found, request.cas) {
            (found, 0) => opcode == 1 || found.is_some() == (opcode == 3),
            (None, _) => false,
            (Some(cas), _) => !differs(request, cas),
        };
        if !is_stored {
            return (if found.is_some() { 2 } else { 1 }, false);
        }
        let (flags, exptime) = (number32(&extras[..4]), number32(&extras[4..]));
        self.items.insert(key.clone(), Item { value: value.clone(), flags, cas: None });
        if exptime == EXPIRED {
            self.items.remove(key);
        }
        (0, true)
    }

    /// `append` and `prepend`: the status.
    fn join(&mut self, opcode: u8, request: &Packet) -> u16 {
        let Packet { key, value, .. } = request;
        match self.items.get_mut(key) {
            None => 5,
            Some(item) if differs(request, item.cas) => 2,
            Some(item) => {
                item.value = match opcode {
                    0x0e => [&item.value[..], value].concat(),
                    _ => [&value[..], &item.value].concat(),
                };
                0
            }
        }
    }

    /// `increment` and `decrement`: the status, and the number now.
    fn count(&mut self, opcode: u8, request: &Packet) -> (u16, Option<u64>) {
        let Packet { key, extras, .. } = request;
        let (delta, initial) = (number64(&extras[..8]), number64(&extras[8..16]));
        let exptime = number32(&extras[16..]);
        let Some(item) = self.items.get_mut(key) else {
            if exptime == DO_NOT_CREATE {
                return (1, None);
            }
            let item = Item { value: initial.to_string().into_bytes(), flags: 0, cas: None };
            self.items.insert(key.clone(), item);
            if exptime == EXPIRED {
                self.items.remove(key);
            }
            return (0, Some(initial));
        };
        if !item.value.is_empty() && differs(request, item.cas) {
            return (2, None);
        }
        let Some(number) = counter(&item.value, self.whole_bytes_max) else { return (6, None) };
        let number = match opcode {
            0x05 => number.wrapping_add(delta),
            _ => number.saturating_sub(delta),
        };
        let mut digits = number.to_string().into_bytes();
        // A shorter number is padded to the length of the old one.
        digits.resize(digits.len().max(item.value.len()), b' ');
        item.value = digits;
        (0, Some(number))
    }

    /// Compares a reply with what was expected, and learns from it.
    pub(crate) fn check(
        &mut self,
        expected: &Expected,
        reply: &Packet,
        request: &Packet,
    ) -> Result<(), String> {
        let mut wanted = expected.reply.clone();
        let known = self.items.get(&request.key).and_then(|item| item.cas);
        wanted.cas = match (&expected.changes, expected.shows) {
            (Some(_), _) if reply.cas == 0 => return Err(format!("no CAS number in {reply:?}")),
            (Some(_), _) => reply.cas,
            (None, true) => known.unwrap_or(reply.cas),
            (None, false) if wanted.cas == 0 && wanted.status == 0 && reply.extras.len() == 4 => reply.cas,
            (None, false) => wanted.cas,
        };
        if *reply != wanted {
            return Err(format!("expected {wanted:?}, got {reply:?}"));
        }
        if (expected.changes.is_some() || expected.shows)
            && let Some(item) = self.items.get_mut(&request.key)
        {
            item.cas = Some(reply.cas);
        }
        Ok(())
    }
}

/// The number that a value begins with: blanks and a plus perhaps, then digits, then the end, or a blank or a NUL and
/// anything. A value of more than `bytes_max` is no number.
fn counter(value: &[u8], bytes_max: usize) -> Option<u64> {
    let is_blank = |byte: &u8| *byte == b' ' || (9..=13).contains(byte);
    let start = value.iter().position(|byte| !is_blank(byte)).filter(|_| value.len() <= bytes_max)?;
    let word = value[start..].split(|byte| is_blank(byte) || *byte == 0).next()?;
    let digits = word.strip_prefix(b"+").unwrap_or(word);
    // `parse` takes a plus of its own.
    let is_plain = digits.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(digits).ok().filter(|_| is_plain)?.parse().ok()
}
