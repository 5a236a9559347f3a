//! The slow twin of RESP: a map, and for each command the few lines that define its reply.

use std::collections::BTreeMap;

/// A request: its words.
pub(crate) type Words = Vec<Vec<u8>>;

/// A request of these words.
pub(crate) fn words(line: &str) -> Words {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

/// The bytes of a request, as an array of bulk strings.
pub(crate) fn encoded(words: &Words) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    words.iter().for_each(|word| bytes.extend(bulk(word)));
    bytes
}

/// The bytes of a request, as a line of quoted words.
pub(crate) fn line(words: &Words) -> Vec<u8> {
    let quoted = words.iter().map(|word| {
        let inner: String = word.iter().map(|byte| format!("\\x{byte:02x}")).collect();
        format!("\"{inner}\"")
    });
    format!("{}\r\n", quoted.collect::<Vec<_>>().join(" ")).into_bytes()
}

struct Item {
    value: Vec<u8>,
    /// What is left of the lifetime, in milliseconds, on a clock that stands still.
    ttl_ms: Option<i64>,
}

/// What a server of RESP is: a map. Its clock stands still.
#[derive(Default)]
pub(crate) struct Twin {
    items: BTreeMap<Vec<u8>, Item>,
    pub(crate) is_resp3: bool,
}

fn bulk(bytes: &[u8]) -> Vec<u8> {
    [format!("${}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

fn integer(number: i64) -> Vec<u8> {
    format!(":{number}\r\n").into_bytes()
}

fn text(text: &str) -> Vec<u8> {
    format!("{text}\r\n").into_bytes()
}

fn number(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    let number: i64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

fn parsed(word: &[u8]) -> i64 {
    number(word).expect("the tests send numbers")
}

/// Bytes `start` to `end` of a value, both included, negative ones from the end.
fn range(value: &[u8], start: i64, end: i64) -> Vec<u8> {
    let length = value.len() as i64;
    if start < 0 && end < 0 && start > end {
        return Vec::new();
    }
    let at = |place: i64| if place < 0 { (length + place).max(0) } else { place };
    (at(start)..=at(end).min(length - 1)).map(|place| value[place as usize]).collect()
}

impl Twin {
    fn null(&self) -> Vec<u8> {
        text(if self.is_resp3 { "_" } else { "$-1" })
    }

    fn value_or_null(&self, value: Option<Vec<u8>>) -> Vec<u8> {
        value.map_or_else(|| self.null(), |value| bulk(&value))
    }

    fn value(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.items.get(key).map(|item| item.value.clone())
    }

    fn put(&mut self, key: &[u8], value: Vec<u8>, ttl_ms: Option<i64>) {
        self.items.insert(key.to_vec(), Item { value, ttl_ms });
    }

    /// Puts a value and keeps what is left of the lifetime.
    fn change(&mut self, key: &[u8], value: Vec<u8>) {
        let ttl_ms = self.items.get(key).and_then(|item| item.ttl_ms);
        self.put(key, value, ttl_ms);
    }

    fn set(&mut self, key: &[u8], value: &[u8], options: &[Vec<u8>]) -> Vec<u8> {
        let has = |name: &str| options.iter().any(|word| word == name.as_bytes());
        let after = |name: &str| {
            let at = options.iter().position(|word| word == name.as_bytes())?;
            Some(parsed(&options[at + 1]))
        };
        let old = self.value(key);
        let ttl_ms = match (after("EX"), after("PX"), has("KEEPTTL")) {
            (Some(s), ..) => Some(s * 1000),
            (_, Some(ms), _) => Some(ms),
            (.., true) => self.items.get(key).and_then(|item| item.ttl_ms),
            _ => None,
        };
        let may = !(has("NX") && old.is_some() || has("XX") && old.is_none());
        if may {
            self.put(key, value.to_vec(), ttl_ms);
        }
        match (has("GET"), may) {
            (true, _) => self.value_or_null(old),
            (false, true) => text("+OK"),
            (false, false) => self.null(),
        }
    }

    fn add(&mut self, key: &[u8], delta: i64) -> Vec<u8> {
        let old = self.value(key).unwrap_or_else(|| b"0".to_vec());
        let Some(old) = number(&old) else {
            return text("-ERR value is not an integer or out of range");
        };
        let Some(sum) = old.checked_add(delta) else {
            return text("-ERR increment or decrement would overflow");
        };
        self.change(key, sum.to_string().into_bytes());
        integer(sum)
    }

    fn copy(&mut self, from: &[u8], to: &[u8], replaces: bool) -> bool {
        let Some(Item { value, ttl_ms }) = self.items.get(from) else { return false };
        let (value, ttl_ms) = (value.clone(), *ttl_ms);
        let may = replaces || !self.items.contains_key(to);
        if may {
            self.put(to, value, ttl_ms);
        }
        may
    }

    fn rename(&mut self, from: &[u8], to: &[u8], replaces: bool) -> Option<bool> {
        self.items.get(from)?;
        let is_done = match from == to {
            true => replaces,
            false => self.copy(from, to, replaces),
        };
        if is_done && from != to {
            self.items.remove(from);
        }
        Some(is_done)
    }

    /// The reply to a request that it knows.
    pub(crate) fn execute(&mut self, request: &Words) -> Vec<u8> {
        let name = request[0].to_ascii_uppercase();
        let name = std::str::from_utf8(&name).expect("the tests send names in ASCII");
        let words = &request[1..];
        let key = words.first().cloned().unwrap_or_default();
        let old = self.value(&key);
        match name {
            "GET" => self.value_or_null(old),
            "MGET" => {
                let values = words.iter().flat_map(|key| self.value_or_null(self.value(key)));
                [text(&format!("*{}", words.len())), values.collect()].concat()
            }
            "SET" => self.set(&key, &words[1], &words[2..]),
            "SETNX" => {
                if old.is_none() {
                    self.put(&key, words[1].clone(), None);
                }
                integer(old.is_none().into())
            }
            "SETEX" => self.set(&key, &words[2], &[b"EX".to_vec(), words[1].clone()]),
            "GETSET" => self.set(&key, &words[1], &[b"GET".to_vec()]),
            "MSET" | "MSETNX" => {
                let is_any_there = words.chunks(2).any(|pair| self.items.contains_key(&pair[0]));
                let may = name == "MSET" || !is_any_there;
                for pair in words.chunks(2).filter(|_| may) {
                    self.put(&pair[0], pair[1].clone(), None);
                }
                if name == "MSET" { text("+OK") } else { integer(may.into()) }
            }
            "GETDEL" => {
                self.items.remove(&key);
                self.value_or_null(old)
            }
            "APPEND" => {
                let value = [old.unwrap_or_default(), words[1].clone()].concat();
                self.change(&key, value.clone());
                integer(value.len() as i64)
            }
            "STRLEN" => integer(old.map_or(0, |value| value.len() as i64)),
            "GETRANGE" => bulk(&range(&old.unwrap_or_default(), parsed(&words[1]), parsed(&words[2]))),
            "SETRANGE" => {
                let (at, bytes, mut value) = (parsed(&words[1]) as usize, &words[2], old.unwrap_or_default());
                if !bytes.is_empty() {
                    value.resize(value.len().max(at + bytes.len()), 0);
                    value[at..at + bytes.len()].copy_from_slice(bytes);
                    self.change(&key, value.clone());
                }
                integer(value.len() as i64)
            }
            "INCR" => self.add(&key, 1),
            "DECRBY" => self.add(&key, -parsed(&words[1])),
            "INCRBY" => self.add(&key, parsed(&words[1])),
            "DEL" | "UNLINK" => {
                integer(words.iter().filter(|key| self.items.remove(*key).is_some()).count() as i64)
            }
            "EXISTS" => integer(words.iter().filter(|key| self.items.contains_key(*key)).count() as i64),
            "TYPE" => text(if old.is_some() { "+string" } else { "+none" }),
            "PEXPIRE" => {
                let ttl_ms = parsed(&words[1]);
                match self.items.get_mut(&key) {
                    Some(item) if ttl_ms > 0 => item.ttl_ms = Some(ttl_ms),
                    _ => _ = self.items.remove(&key),
                }
                integer(old.is_some().into())
            }
            "PERSIST" => {
                let had = self.items.get_mut(&key).and_then(|item| item.ttl_ms.take());
                integer(had.is_some().into())
            }
            "PTTL" => integer(self.items.get(&key).map_or(-2, |item| item.ttl_ms.unwrap_or(-1))),
            "RENAME" => match self.rename(&key, &words[1], true) {
                None => text("-ERR no such key"),
                Some(_) => text("+OK"),
            },
            "RENAMENX" => match self.rename(&key, &words[1], false) {
                None => text("-ERR no such key"),
                Some(is_done) => integer(is_done.into()),
            },
            "COPY" if key == words[1] => text("-ERR source and destination objects are the same"),
            "COPY" => integer(self.copy(&key, &words[1], words.len() > 2).into()),
            "FLUSHALL" => {
                self.items.clear();
                text("+OK")
            }
            "PING" => text("+PONG"),
            _ => unreachable!("the twin does not know {name}"),
        }
    }
}
