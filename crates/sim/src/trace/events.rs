//! Lines in which a server tells what its clients ask for: memcached's `watch` and Redis's `MONITOR`.
//!
//! `watch fetchers mutations deletions` tells of each key that is looked up, also by a store or a delete, which looks
//! its key up first: a look-up is a `get` unless the next line of its connection is about a change of the same key.
//! `MONITOR` tells of each command as it was sent, and nothing of what was found.

use std::borrow::Cow;
use std::collections::HashMap;

use super::asked::{Asked, Word};
use super::field::{Bad, digits, op_by_name, shown};
use crate::{Fields, Op, Request};

/// Look-ups that may wait for the next line of their connection. The line of a change comes within some lines, as many
/// as there are threads.
const WAITING_MAX: usize = 1024;
/// Connections of which the last line is remembered.
const CONNECTIONS_MAX: usize = 100_000;
/// Values of this length may come in pieces. Larder does not tell of the look-up of such a store: the one before it is
/// the client's, unless it came right before.
const PIECES_BYTES_MIN: u32 = 4096;
const PIECES_GAP_US_MAX: u64 = 50;

/// Which server tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Teller {
    /// memcached's `watch`, which Larder has as well.
    Watch,
    /// Redis's `MONITOR`.
    Monitor,
}

impl Teller {
    /// Who tells such a line, if anybody does.
    pub fn of_line(line: &[u8]) -> Option<Teller> {
        if line.starts_with(b"ts=") && field(line, b"type=").is_some() {
            return Some(Teller::Watch);
        }
        let line = line.strip_prefix(b"+").unwrap_or(line);
        let (time, rest) = line.split_at(line.iter().position(|&octet| octet == b' ')?);
        (microseconds(time).is_some() && rest.starts_with(b" [") && rest.ends_with(b"\""))
            .then_some(Teller::Monitor)
    }
}

/// Makes requests of lines. Times are microseconds of the unix time.
#[derive(Debug)]
pub struct Events {
    teller: Teller,
    asked: Asked,
    /// The look-up that was the last line of a connection: its place.
    look_ups: HashMap<Vec<u8>, u64>,
    lost: u64,
    others: u64,
}

impl Events {
    /// Nothing has been told yet.
    pub fn new(teller: Teller) -> Events {
        let waiting_max = if teller == Teller::Monitor { 0 } else { WAITING_MAX };
        Events { teller, asked: Asked::new(waiting_max), look_ups: HashMap::new(), lost: 0, others: 0 }
    }

    /// The fields of the requests that these lines tell.
    pub fn fields(&self) -> Fields {
        Fields { times: true, sizes: true, ops: true, ttls: true, penalties: self.teller == Teller::Watch }
    }

    /// A remark for the user about what is missing, where something is.
    pub fn notice(&self) -> Option<String> {
        let lost = (self.lost > 0).then(|| format!("the server has left out {} events", self.lost));
        let others = (self.others > 0).then(|| format!("lines of other commands: {}", self.others));
        let parts: Vec<String> = lost.into_iter().chain(others).collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }

    /// The share of the reads that found an item, where the lines tell, and how many reads there were.
    pub fn hit_ratio(&self) -> Option<(f64, u64)> {
        self.asked.hit_ratio()
    }

    /// Takes a line without its end.
    pub(super) fn take(&mut self, line: &[u8]) -> Result<(), Bad> {
        match self.teller {
            // The answer to the command with which it began.
            _ if matches!(line, b"OK" | b"+OK") => Ok(()),
            Teller::Watch => self.take_watched(line),
            Teller::Monitor => self.take_monitored(line),
        }
    }

    /// Takes a line without its end, from a server that is listened to.
    ///
    /// # Errors
    /// What is wrong with the line.
    pub fn push(&mut self, line: &[u8]) -> Result<(), String> {
        self.take(line).map_err(|bad| bad.to_string())
    }

    /// The next request, with its time in microseconds, once it is known what it is. `is_over` = no line follows.
    pub fn pop(&mut self, is_over: bool) -> Option<(u64, Request)> {
        self.asked.pop(is_over)
    }

    fn take_watched(&mut self, line: &[u8]) -> Result<(), Bad> {
        if let Some(count) = line.strip_prefix(b"skipped=") {
            self.lost += digits(count).unwrap_or(1);
            return Ok(());
        }
        let wanted = |name: &'static str| {
            let begin = format!("{name}=");
            field(line, begin.as_bytes())
                .ok_or_else(|| Bad::new(name, format!("is missing in '{}'", shown(line))))
        };
        let time_us = microseconds(wanted("ts")?).ok_or_else(|| Bad::new("ts", "is no time"))?;
        let op = match wanted("type")? {
            b"item_get" => Op::Get,
            b"item_store" => field(line, b"cmd=").and_then(op_by_name).unwrap_or(Op::Set),
            b"deleted" => Op::Delete,
            _ => {
                self.others += 1;
                return Ok(());
            }
        };
        let key = unescaped(wanted("key")?);
        let number = |name: &[u8]| field(line, name).and_then(digits).unwrap_or(0);
        let mut request = Request {
            key: self.asked.number(&key),
            key_bytes: key.len().min(usize::from(u16::MAX)) as u16,
            value_bytes: number(b"size=").min(u32::MAX.into()) as u32,
            op,
            ..Request::default()
        };
        let connection = field(line, b"cfd=").unwrap_or_default();
        let is_hit = field(line, b"status=") == Some(b"found");
        if is_hit || op != Op::Get && op != Op::Delete {
            // 0 would mean that it is not known.
            request.value_bytes = request.value_bytes.max(1);
        }
        if op != Op::Get {
            self.was_looked_up(connection, &request, time_us);
            request.ttl_s = number(b"ttl=").min(u32::MAX.into()) as u32;
        } else if self.look_ups.len() < CONNECTIONS_MAX || self.look_ups.contains_key(connection) {
            self.look_ups.insert(connection.to_vec(), self.asked.next_place());
        }
        self.asked.add(time_us, request, Some(is_hit));
        Ok(())
    }

    /// A change of this key: the look-up before it on the same connection belongs to it. The line of a delete names no
    /// connection.
    fn was_looked_up(&mut self, connection: &[u8], change: &Request, time_us: u64) {
        let last = match connection {
            [] => self.asked.last_of(change.key),
            _ => self.look_ups.remove(connection),
        };
        if let Some(one) = last.and_then(|place| self.asked.at(place))
            && one.request.key == change.key
            && one.request.op == Op::Get
            && (change.value_bytes < PIECES_BYTES_MIN
                || time_us.saturating_sub(one.time_us) <= PIECES_GAP_US_MAX)
        {
            one.is_part = true;
        }
    }

    fn take_monitored(&mut self, line: &[u8]) -> Result<(), Bad> {
        let line = line.strip_prefix(b"+").unwrap_or(line);
        let end = line.iter().position(|&octet| octet == b' ').unwrap_or(line.len());
        let time_us =
            microseconds(&line[..end]).ok_or_else(|| Bad::new("time", format!("'{}'", shown(line))))?;
        let at = line.iter().position(|&octet| octet == b']').unwrap_or(line.len());
        let source = line.get(end..at).unwrap_or_default().trim_ascii_start();
        let database = source.strip_prefix(b"[").and_then(|rest| rest.split(|&octet| octet == b' ').next());
        let words = quoted(&line[at..]);
        if !self.asked.add_command(time_us, database.unwrap_or(b"0"), &words) {
            self.others += 1;
        }
        Ok(())
    }
}

/// The value of the field that begins with `name`, which ends in `=`.
fn field<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    line.split(|&octet| octet == b' ').find_map(|word| word.strip_prefix(name))
}

/// Microseconds of a time `seconds.microseconds`. memcached writes the microseconds without leading zeros.
fn microseconds(text: &[u8]) -> Option<u64> {
    let dot = text.iter().position(|&octet| octet == b'.')?;
    digits(&text[..dot])?
        .checked_mul(1_000_000)?
        .checked_add(digits(&text[dot + 1..]).filter(|&us| us < 1_000_000)?)
}

/// A key in which `%xx` stands for a byte, as it is. What stands for no byte stays.
pub fn unescaped(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.contains(&b'%') {
        return Cow::Borrowed(text);
    }
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [octet, tail @ ..] = rest {
        let code = (*octet == b'%').then(|| tail.get(..2).and_then(hexadecimal)).flatten();
        plain.push(code.unwrap_or(*octet));
        rest = if code.is_some() { &tail[2..] } else { tail };
    }
    Cow::Owned(plain)
}

fn hexadecimal(two: &[u8]) -> Option<u8> {
    u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok()
}

/// The words of a line of `MONITOR`, each between quotes.
fn quoted(line: &[u8]) -> Vec<Word> {
    let (mut words, mut word, mut rest) = (Vec::new(), None::<Vec<u8>>, line);
    while let [octet, tail @ ..] = rest {
        rest = tail;
        match (&mut word, octet) {
            (None, b'"') => word = Some(Vec::new()),
            (None, _) => {}
            (Some(_), b'"') => words.extend(word.take().map(Word::from)),
            (Some(text), b'\\') => match tail {
                [b'x', code @ ..] if code.get(..2).and_then(hexadecimal).is_some() => {
                    text.extend(code.get(..2).and_then(hexadecimal));
                    rest = &code[2..];
                }
                [escaped, after @ ..] => {
                    text.push(match escaped {
                        b'n' => b'\n',
                        b'r' => b'\r',
                        b't' => b'\t',
                        b'a' => 7,
                        b'b' => 8,
                        other => *other,
                    });
                    rest = after;
                }
                [] => {}
            },
            (Some(text), other) => text.push(*other),
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::key::KeyReader;

    fn told(teller: Teller, lines: &[&str]) -> (Vec<(u64, Op, u32, u32)>, Events) {
        let mut events = Events::new(teller);
        for line in lines {
            assert_eq!(Teller::of_line(line.as_bytes()), Some(teller), "{line}");
            events.push(line.as_bytes()).unwrap_or_else(|why| panic!("{line}: {why}"));
        }
        let all = std::iter::from_fn(|| events.pop(true));
        let all =
            all.map(|(_, request)| (request.key, request.op, request.value_bytes, request.ttl_s)).collect();
        (all, events)
    }

    /// Lines of memcached 1.6.45: what was sent is beside them.
    #[test]
    fn a_look_up_of_a_change_is_no_read() {
        let lines = [
            "ts=1795995583.618931 gid=2 type=item_get key=1 status=not_found clsid=0 cfd=30 size=0", // get 1
            "ts=1795995583.669486 gid=3 type=item_get key=1 status=not_found clsid=0 cfd=30 size=0", // set 1
            "ts=1795995583.618999 gid=3 type=item_get key=2 status=found clsid=1 cfd=31 size=9", // get 2, another
            "ts=1795995583.669515 gid=4 type=item_store key=1 status=stored cmd=set ttl=100 clsid=1 cfd=30 size=3",
            "ts=1795995583.719157 gid=5 type=item_get key=1 status=found clsid=1 cfd=30 size=3", // get 1
            "ts=1795995584.224654 gid=19 type=item_get key=1 status=found clsid=1 cfd=30 size=3", // delete 1
            "ts=1795995584.224656 gid=20 type=deleted key=1 cmd=delete clsid=1 size=3",
            "ts=1795995584.21425 gid=15 type=item_get key=a%20b status=found clsid=1 cfd=30 size=1", // get
            "ts=1795995584.425485 gid=24 type=item_store key=3 status=stored cmd=append ttl=0 clsid=1 cfd=30 size=5",
        ];
        let (all, events) = told(Teller::Watch, &lines);
        let blank = KeyReader::new().read(b"a b");
        let expected = [
            (1, Op::Get, 0, 0),
            (2, Op::Get, 9, 0),
            (1, Op::Set, 3, 100),
            (1, Op::Get, 3, 0),
            (1, Op::Delete, 3, 0),
            (blank, Op::Get, 1, 0),
            (3, Op::Append, 5, 0),
        ];
        assert_eq!(all, expected);
        assert_eq!(events.hit_ratio(), Some((0.75, 4)));
        assert_eq!(events.notice(), None);
    }

    #[test]
    fn the_time_from_a_miss_to_its_store_is_the_penalty() {
        let mut events = Events::new(Teller::Watch);
        for line in [
            "ts=100.5 gid=1 type=item_get key=1 status=not_found clsid=0 cfd=30 size=0",
            "skipped=12",
            "ts=100.20005 gid=2 type=item_store key=1 status=stored cmd=set ttl=0 clsid=1 cfd=31 size=3",
            "ts=200.1 gid=3 type=item_store key=1 status=stored cmd=set ttl=0 clsid=1 cfd=31 size=3",
        ] {
            events.push(line.as_bytes()).expect("it is a line");
        }
        assert!(events.pop(false).is_none(), "a store may follow");
        let penalties: Vec<u32> =
            std::iter::from_fn(|| events.pop(true)).map(|(_, request)| request.penalty_us).collect();
        assert_eq!(penalties, [0, 20_000, 0]);
        assert!(events.notice().is_some_and(|told| told.contains("12 events")));
    }

    #[test]
    fn commands_of_redis_are_requests_for_their_keys() {
        let lines = [
            r#"1339518083.107412 [0 127.0.0.1:60866] "SET" "1" "a\x00b\"c" "PX" "1500""#,
            r#"+1339518083.107413 [0 127.0.0.1:60866] "mget" "1" "2""#,
            r#"1339518083.107414 [0 lua] "HSET" "3" "field" "value""#,
            r#"1339518083.107415 [3 unix:/x] "mset" "4" "four" "5" "fives""#,
            r#"1339518083.107416 [0 [::1]:5] "publish" "1" "2""#,
            r#"1339518083.107417 [0 [::1]:5] "del" "1" "2""#,
        ];
        let (all, events) = told(Teller::Monitor, &lines);
        // Keys of one name in two databases are two keys.
        let (four, five) = (KeyReader::new().read(b"3:4"), KeyReader::new().read(b"3:5"));
        let expected = [
            (1, Op::Set, 5, 2),
            (1, Op::Get, 0, 0),
            (2, Op::Get, 0, 0),
            (3, Op::Append, 10, 0),
            (four, Op::Set, 4, 0),
            (five, Op::Set, 5, 0),
            (1, Op::Delete, 0, 0),
            (2, Op::Delete, 0, 0),
        ];
        assert_eq!(all, expected);
        assert!(events.notice().is_some_and(|told| told.contains("other commands: 1")));
    }

    #[test]
    fn other_lines_are_refused() {
        let mut events = Events::new(Teller::Watch);
        for line in ["ts=1.1 type=item_get", "ts=x type=item_get key=1", "type=item_get key=1"] {
            assert!(events.push(line.as_bytes()).is_err(), "{line}");
        }
        assert!(Events::new(Teller::Monitor).push(b"x [0 y] \"get\" \"1\"").is_err());
        for line in ["1,2,3", "ts=1", "12.5 [0 x] get", ""] {
            assert_eq!(Teller::of_line(line.as_bytes()), None, "{line}");
        }
    }
}
