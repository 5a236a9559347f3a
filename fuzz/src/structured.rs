//! Sends requests chosen by the input, classic and meta, and compares the answers with a model: a map without any
//! cache.
//!
//! The model predicts every byte of an answer except CAS numbers. It learns these, and a number that is learned again
//! must be the same. The cache is large enough and the clock only moves when the input says so; therefore a miss is a
//! failure.

use crate::choices::Choices;
use crate::talk::{Client, Talk, dispatcher};
use larder_server::dispatch::Dispatcher;
use larder_server::settings::Settings;
use std::collections::HashMap;

/// Maximum number of requests per run.
const REQUESTS_MAX: usize = 120;
/// Maximum bytes of values per run, far below the memory of the cache.
const VALUE_BYTES_MAX: usize = 4 << 20;
/// Number of keys; the last one has the maximum length.
const KEYS: usize = 6;

struct Item {
    value: Vec<u8>,
    flags: u32,
    /// Expiry in seconds on the model's clock.
    ends_s: Option<i64>,
    cas: Option<u64>,
    stale: bool,
    token_sent: bool,
}

struct Play<'a, 'c> {
    choices: Choices<'a>,
    dispatcher: Dispatcher,
    talk: Talk,
    client: &'c Client<'c>,
    items: HashMap<usize, Item>,
    now_s: i64,
    value_bytes: usize,
    count: u32,
    /// The requests so far, for the text of a failure.
    told: Vec<String>,
}

pub(crate) fn run(input: &[u8], client: &Client<'_>) {
    let settings =
        Settings { memory_bytes: 64 << 20, threads: 1, debugtime_enabled: true, ..Settings::default() };
    let (mut dispatcher, cache) = dispatcher(settings, Some(1), None);
    cache.clock().hold();
    let talk = Talk::open(&mut dispatcher, client.peer);
    let mut play = Play {
        choices: Choices::new(input),
        dispatcher,
        talk,
        client,
        items: HashMap::new(),
        now_s: 0,
        value_bytes: 0,
        count: 0,
        told: Vec::new(),
    };
    for _ in 0..REQUESTS_MAX {
        if play.choices.is_empty() {
            break;
        }
        play.request();
    }
    for key in 0..KEYS {
        play.get(&[key], true, None);
    }
    play.talk.close(&mut play.dispatcher);
}

fn name_of(key: usize) -> String {
    if key == KEYS - 1 { "k".repeat(250) } else { format!("key{key}") }
}

impl Play<'_, '_> {
    fn request(&mut self) {
        self.count += 1;
        let key = self.choices.below(KEYS);
        match self.choices.below(16) {
            0..3 => self.store_classic(key),
            3..6 => self.store_meta(key),
            6 => {
                let count = 1 + self.choices.below(12);
                let keys: Vec<usize> = (0..count).map(|_| self.choices.below(KEYS)).collect();
                let with_cas = self.choices.once_in(2);
                let touch = self.choices.once_in(4).then(|| self.ttl());
                self.get(&keys, with_cas, touch);
            }
            7..10 => self.get_meta(key),
            10 => self.delete(key),
            11 => self.delete_meta(key),
            12 => self.count_classic(key),
            13 => self.count_meta(key),
            14 => self.touch(key),
            _ => self.around(),
        }
    }

    /// Sends bytes, sometimes in pieces.
    fn send(&mut self, bytes: &[u8]) {
        let head = bytes.split(|&byte| byte == b'\n').next().unwrap_or_default();
        self.told.push(format!("{} ({} bytes)", head.escape_ascii(), bytes.len()));
        let longest = self.choices.of(&[usize::MAX, usize::MAX, 1, 3, 50, 5000]);
        // A large value byte by byte would only take time.
        let longest = if bytes.len() > 4000 { longest.max(5000) } else { longest };
        for piece in bytes.chunks(longest.min(bytes.len())) {
            self.talk.send(&mut self.dispatcher, piece);
        }
    }

    fn fail(&self, text: &str) -> ! {
        let from = self.told.len().saturating_sub(40);
        panic!("{text}\nafter:\n{}", self.told[from..].join("\n"));
    }

    /// The whole answer to the last request.
    fn answer(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.talk.answered)
    }

    fn expect(&mut self, expected: &[u8]) {
        let answer = self.answer();
        if answer != expected {
            let head = |bytes: &[u8]| bytes[..bytes.len().min(300)].escape_ascii().to_string();
            self.fail(&format!("expected {}\nanswered {}", head(expected), head(&answer)));
        }
    }

    /// Like `expect`, but `#` in `expected` stands for a CAS number, which is returned.
    fn expect_cas(&mut self, before: &[u8], after: &[u8]) -> u64 {
        let answer = self.answer();
        let number = answer
            .strip_prefix(before)
            .and_then(|rest| rest.strip_suffix(after))
            .and_then(|digits| std::str::from_utf8(digits).ok()?.parse::<u64>().ok());
        match number {
            Some(number) => number,
            None => {
                let head = |bytes: &[u8]| bytes[..bytes.len().min(300)].escape_ascii().to_string();
                self.fail(&format!("expected {}#{}\nanswered {}", head(before), head(after), head(&answer)))
            }
        }
    }

    fn ttl(&mut self) -> i64 {
        match self.choices.below(6) {
            0..3 => 0,
            3 => -1,
            _ => 1 + self.choices.below(40) as i64,
        }
    }

    fn ends_s(&self, ttl: i64) -> Option<i64> {
        match ttl {
            0 => None,
            ..0 => Some(i64::MIN),
            _ => Some(self.now_s + ttl),
        }
    }

    /// Forgets an expired item. Returns whether the key exists.
    fn is_live(&mut self, key: usize) -> bool {
        let now_s = self.now_s;
        self.items.retain(|_, item| item.ends_s.is_none_or(|ends_s| ends_s > now_s));
        self.items.contains_key(&key)
    }

    fn value(&mut self) -> Vec<u8> {
        let bytes = match self.choices.below(12) {
            0..7 => self.choices.below(80),
            7 => return self.choices.below(100_000).to_string().into_bytes(),
            8 | 9 => 500 + self.choices.below(30),
            10 => self.choices.below(20_000),
            _ => self.choices.below(300_000),
        };
        let bytes = if self.value_bytes > VALUE_BYTES_MAX { bytes.min(10) } else { bytes };
        self.value_bytes += bytes;
        let count = self.count;
        (0..bytes as u32).map(|at| (at.wrapping_mul(count | 1) ^ at >> 7) as u8).collect()
    }

    /// A CAS number for a comparison: the right one if it is known, or a wrong one.
    fn compare(&mut self, key: usize) -> u64 {
        let known = if self.is_live(key) { self.items[&key].cas } else { None };
        match (known, self.choices.below(3)) {
            (Some(cas), 0 | 1) => cas,
            (Some(cas), _) => cas.wrapping_add(1),
            // No item gets such a high number by itself.
            (None, _) => u64::MAX - 7,
        }
    }

    /// Applies a store to the model. `mode` is the letter of `ms`.
    fn stored(&mut self, key: usize, mode: u8, value: &[u8], flags: u32, ttl: i64, cas: Option<u64>) {
        let ends_s = self.ends_s(ttl);
        let mut item = Item { value: value.to_vec(), flags, ends_s, cas, stale: false, token_sent: false };
        if let (b'A' | b'P', Some(old)) = (mode, self.items.get(&key)) {
            let (head, tail) = if mode == b'A' { (&old.value[..], value) } else { (value, &old.value[..]) };
            item = Item { value: [head, tail].concat(), flags: old.flags, ends_s: old.ends_s, ..item };
        }
        self.items.insert(key, item);
    }

    /// Whether an append or prepend of this length keeps the item below the limit.
    fn joins(&self, key: usize, more: usize) -> bool {
        self.items.get(&key).is_none_or(|item| item.value.len() + more < 1_000_000)
    }

    fn store_classic(&mut self, key: usize) {
        let (verb, mode) = self.choices.of(&[
            ("set", b'S'),
            ("set", b'S'),
            ("set", b'S'),
            ("add", b'E'),
            ("replace", b'R'),
            ("append", b'A'),
            ("prepend", b'P'),
            ("cas", b'S'),
        ]);
        let value = self.value();
        let live = self.is_live(key);
        if matches!(mode, b'A' | b'P') && !self.joins(key, value.len()) {
            return;
        }
        let (flags, ttl) = (self.count, self.ttl());
        let compare = (verb == "cas").then(|| self.compare(key));
        let noreply = self.choices.once_in(5);
        let mut line = format!("{verb} {} {flags} {ttl} {}", name_of(key), value.len());
        if let Some(compare) = compare {
            line += &format!(" {compare}");
        }
        if noreply {
            line += " noreply";
        }
        self.send(&[line.as_bytes(), b"\r\n", &value, b"\r\n"].concat());
        let answer = match (mode, compare) {
            (b'E', _) if live => "NOT_STORED\r\n",
            (b'R' | b'A' | b'P', _) if !live => "NOT_STORED\r\n",
            (_, Some(_)) if !live => "NOT_FOUND\r\n",
            (_, Some(compare)) if self.items[&key].cas != Some(compare) => "EXISTS\r\n",
            _ => "STORED\r\n",
        };
        if answer == "STORED\r\n" {
            self.stored(key, mode, &value, flags, ttl, None);
        }
        self.expect(if noreply { b"" } else { answer.as_bytes() });
    }

    fn store_meta(&mut self, key: usize) {
        let mode = self.choices.of(b"SSSSERAP");
        let value = self.value();
        let live = self.is_live(key);
        if matches!(mode, b'A' | b'P') && !self.joins(key, value.len()) {
            return;
        }
        let (flags, ttl) = (self.count, self.ttl());
        let compare = (matches!(mode, b'S' | b'R') && self.choices.once_in(3)).then(|| self.compare(key));
        let quiet = self.choices.once_in(4);
        let opaque = self.choices.once_in(2);
        let vivify = matches!(mode, b'A' | b'P') && self.choices.once_in(3);
        let mut line = format!("ms {} {} F{flags} T{ttl}", name_of(key), value.len());
        if mode != b'S' || self.choices.once_in(2) {
            line += &format!(" M{}", mode as char);
        }
        if let Some(compare) = compare {
            line += &format!(" C{compare}");
        }
        line += if vivify { " N0" } else { "" };
        line += if opaque { " k O7" } else { "" };
        line += if quiet { " q" } else { "" };
        line += " s c";
        self.send(&[line.as_bytes(), b"\r\n", &value, b"\r\n"].concat());
        let code = match (mode, compare) {
            (b'E', _) if live => "NS",
            (b'A' | b'P', _) if !live && !vivify => "NS",
            (b'R' | b'S', Some(_)) if !live => "NF",
            (b'R', None) if !live => "NS",
            (_, Some(compare)) if self.items[&key].cas != Some(compare) => "EX",
            _ => "HD",
        };
        let echoed = if opaque { format!(" k{} O7", name_of(key)) } else { String::new() };
        if code != "HD" {
            return self.expect(format!("{code}{echoed} s{} c0\r\n", value.len()).as_bytes());
        }
        let ttl = if !live && vivify { 0 } else { ttl };
        self.stored(key, mode, &value, flags, ttl, None);
        if quiet {
            return self.expect(b"");
        }
        let length = self.items[&key].value.len();
        let cas = self.expect_cas(format!("HD{echoed} s{length} c").as_bytes(), b"\r\n");
        if let Some(item) = self.items.get_mut(&key) {
            item.cas = Some(cas);
        }
    }

    /// `get`, `gets`, `gat` or `gats` of several keys.
    fn get(&mut self, keys: &[usize], with_cas: bool, touch: Option<i64>) {
        let mut line = match (with_cas, touch) {
            (false, None) => "get".to_owned(),
            (true, None) => "gets".to_owned(),
            (false, Some(ttl)) => format!("gat {ttl}"),
            (true, Some(ttl)) => format!("gats {ttl}"),
        };
        for &key in keys {
            line += &format!(" {}", name_of(key));
        }
        self.send(format!("{line}\r\n").as_bytes());
        let answer = self.answer();
        let mut rest = &answer[..];
        for &key in keys {
            if !self.is_live(key) {
                continue;
            }
            let item = &self.items[&key];
            let head = format!("VALUE {} {} {}", name_of(key), item.flags, item.value.len());
            let Some(more) = rest.strip_prefix(head.as_bytes()) else {
                self.fail(&format!("no {head} but {}", rest[..rest.len().min(300)].escape_ascii()));
            };
            let end = more.windows(2).position(|two| two == b"\r\n").unwrap_or(more.len());
            let cas = std::str::from_utf8(&more[..end]).ok().and_then(|text| text.trim().parse::<u64>().ok());
            if cas.is_some() != with_cas || (with_cas && item.cas.is_some() && cas != item.cas) {
                self.fail(&format!("{head}: CAS {cas:?} instead of {:?}", item.cas));
            }
            let Some(more) = more.get(end + 2..).and_then(|more| more.strip_prefix(&item.value[..])) else {
                self.fail(&format!("{head}: another value"));
            };
            let Some(more) = more.strip_prefix(b"\r\n") else { self.fail(&format!("{head}: no end")) };
            rest = more;
            let ends_s = touch.map(|ttl| self.ends_s(ttl));
            if let Some(item) = self.items.get_mut(&key) {
                item.cas = cas.or(item.cas);
                item.ends_s = ends_s.unwrap_or(item.ends_s);
            }
        }
        if rest != b"END\r\n" {
            self.fail(&format!("no END but {}", rest[..rest.len().min(300)].escape_ascii()));
        }
    }

    fn get_meta(&mut self, key: usize) {
        let wants_value = self.choices.once_in(2);
        let touch = self.choices.once_in(5).then(|| self.ttl());
        let vivify = self.choices.once_in(5).then(|| 1 + self.choices.below(60) as i64);
        let recache = self.choices.once_in(4).then(|| self.choices.below(30) as i64);
        let quiet = self.choices.once_in(4);
        let opaque = self.choices.once_in(3);
        let mut line = format!("mg {} s f t", name_of(key));
        line += if wants_value { " v" } else { "" };
        if let Some(ttl) = touch {
            line += &format!(" T{ttl}");
        }
        if let Some(ttl) = vivify {
            line += &format!(" N{ttl}");
        }
        if let Some(least) = recache {
            line += &format!(" R{least}");
        }
        line += if quiet { " q" } else { "" };
        line += if opaque { " O123 k" } else { "" };
        self.send(format!("{line}\r\n").as_bytes());
        let echoed = if opaque { format!(" O123 k{}", name_of(key)) } else { String::new() };
        let live = self.is_live(key);
        if !live && vivify.is_none() {
            let miss = if opaque { format!("EN{echoed}\r\n") } else { "EN\r\n".to_owned() };
            return self.expect(if quiet { b"" } else { miss.as_bytes() });
        }
        if !live {
            self.stored(key, b'S', &[], 0, vivify.unwrap_or(0), None);
        }
        let now_s = self.now_s;
        let touched = touch.map(|ttl| self.ends_s(ttl));
        let left = |ends_s: Option<i64>| ends_s.map_or(-1, |ends_s| ends_s.saturating_sub(now_s).max(0));
        let Some(item) = self.items.get_mut(&key) else { return };
        // In the order of the request: `t`, `T`, `N`, `R`.
        let shown = left(item.ends_s.filter(|_| live));
        item.ends_s = touched.filter(|_| live).unwrap_or(item.ends_s);
        let soon = recache.is_some_and(|least| {
            least > 0 && item.ends_s.is_some_and(|ends_s| ends_s.saturating_sub(now_s) < least)
        });
        let (stale, sent) = (item.stale, item.token_sent);
        let won = !live || (!sent && (stale || soon));
        item.token_sent |= won;
        let value = item.value.clone();
        let mut answer = if wants_value { format!("VA {}", value.len()) } else { "HD".to_owned() };
        answer += &format!(" s{} f{} t{shown}{echoed}", value.len(), item.flags);
        answer += if won { " W" } else { "" };
        answer += if stale { " X" } else { "" };
        answer += if sent { " Z" } else { "" };
        let mut answer = (answer + "\r\n").into_bytes();
        if wants_value {
            answer.extend_from_slice(&value);
            answer.extend_from_slice(b"\r\n");
        }
        self.expect_marks(&answer);
    }

    /// Like `expect`, but the marks `W`, `X` and `Z` may be in any order.
    fn expect_marks(&mut self, expected: &[u8]) {
        let sorted = |bytes: &[u8]| {
            let end = bytes.iter().position(|&byte| byte == b'\r').unwrap_or(bytes.len());
            let mut words: Vec<Vec<u8>> =
                bytes[..end].split(|&byte| byte == b' ').map(<[u8]>::to_vec).collect();
            words.sort();
            (words, bytes[end..].to_vec())
        };
        if sorted(&self.talk.answered) == sorted(expected) {
            self.talk.answered.clear();
        } else {
            self.expect(expected);
        }
    }

    fn delete(&mut self, key: usize) {
        let noreply = self.choices.once_in(4);
        let line = format!("delete {}{}\r\n", name_of(key), if noreply { " noreply" } else { "" });
        self.send(line.as_bytes());
        let answer = if self.is_live(key) { "DELETED\r\n" } else { "NOT_FOUND\r\n" };
        self.items.remove(&key);
        self.expect(if noreply { b"" } else { answer.as_bytes() });
    }

    fn delete_meta(&mut self, key: usize) {
        let live = self.is_live(key);
        let compare = self.choices.once_in(3).then(|| self.compare(key));
        let invalidate = self.choices.once_in(2);
        let ttl = (invalidate && self.choices.once_in(2)).then(|| self.ttl());
        let drop_value = self.choices.once_in(5);
        let quiet = self.choices.once_in(4);
        let mut line = format!("md {}", name_of(key));
        if let Some(compare) = compare {
            line += &format!(" C{compare}");
        }
        line += if invalidate { " I" } else { "" };
        line += if drop_value { " x" } else { "" };
        if let Some(ttl) = ttl {
            line += &format!(" T{ttl}");
        }
        line += if quiet { " q" } else { "" };
        self.send(format!("{line}\r\n").as_bytes());
        if !live {
            // A quiet delete hides a miss as well.
            let answer = self.answer();
            if !(answer == b"NF\r\n" || (quiet && answer.is_empty())) {
                self.fail(&format!("NF expected, not {}", answer.escape_ascii()));
            }
            return;
        }
        if compare.is_some_and(|compare| self.items[&key].cas != Some(compare)) {
            return self.expect(b"EX\r\n");
        }
        let ends_s = ttl.map(|ttl| self.ends_s(ttl));
        if let Some(item) = self.items.get_mut(&key) {
            if drop_value {
                // An item without its value is a new one.
                (item.value, item.flags, item.ends_s) = (Vec::new(), 0, None);
                (item.stale, item.token_sent) = (false, false);
            }
            item.stale |= invalidate;
            item.token_sent &= !invalidate;
            if invalidate {
                item.cas = None;
            }
            item.ends_s = ends_s.unwrap_or(item.ends_s);
        }
        if !invalidate && !drop_value {
            self.items.remove(&key);
        }
        self.expect(if quiet { b"" } else { b"HD\r\n" });
    }

    /// The number that an item holds; `Err` if its value is not a number. An item of a length for which servers
    /// differ is skipped.
    fn number(&self, key: usize) -> Option<Result<u64, ()>> {
        let value = &self.items.get(&key)?.value;
        if value.is_empty() || value.first().is_some_and(u8::is_ascii_whitespace) {
            return None;
        }
        let digits = value.trim_ascii_end();
        if value.len() > 20 && digits.iter().all(u8::is_ascii_digit) {
            return None;
        }
        let is_number = digits.len() <= 19 && digits.iter().all(u8::is_ascii_digit);
        if !is_number && digits.first().is_some_and(|first| first.is_ascii_digit() || b"+-".contains(first)) {
            return None;
        }
        Some(if is_number {
            std::str::from_utf8(digits).map_err(drop).and_then(|text| text.parse().map_err(drop))
        } else {
            Err(())
        })
    }

    fn counted(&mut self, key: usize, old: u64, up: bool, delta: u64) -> u64 {
        let value = if up { old.wrapping_add(delta) } else { old.saturating_sub(delta) };
        if let Some(item) = self.items.get_mut(&key) {
            let mut digits = value.to_string().into_bytes();
            if digits.len() > item.value.len() {
                // A number that gets longer is a new item.
                (item.stale, item.token_sent) = (false, false);
            }
            digits.resize(digits.len().max(item.value.len()), b' ');
            (item.value, item.cas) = (digits, None);
        }
        value
    }

    fn count_classic(&mut self, key: usize) {
        let live = self.is_live(key);
        let number = self.number(key);
        if live && number.is_none() {
            return;
        }
        let (up, delta) = (self.choices.once_in(2), self.choices.below(100_000) as u64);
        let noreply = self.choices.once_in(5);
        let verb = if up { "incr" } else { "decr" };
        let line = format!("{verb} {} {delta}{}\r\n", name_of(key), if noreply { " noreply" } else { "" });
        self.send(line.as_bytes());
        let answer = match number {
            None => "NOT_FOUND\r\n".to_owned(),
            Some(Err(())) => "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n".to_owned(),
            Some(Ok(old)) => format!("{}\r\n", self.counted(key, old, up, delta)),
        };
        self.expect(if noreply { b"" } else { answer.as_bytes() });
    }

    fn count_meta(&mut self, key: usize) {
        let live = self.is_live(key);
        let number = self.number(key);
        if live && number.is_none() {
            return;
        }
        let (up, delta) = (self.choices.once_in(2), self.choices.below(100_000) as u64);
        let initial = self.choices.once_in(2).then(|| self.choices.below(1000) as u64);
        let mut line = format!("ma {} v D{delta}", name_of(key));
        line += if up { "" } else { " MD" };
        if let Some(initial) = initial {
            line += &format!(" N0 J{initial}");
        }
        self.send(format!("{line}\r\n").as_bytes());
        let value = match (number, initial) {
            (None, None) => return self.expect(b"NF\r\n"),
            (None, Some(initial)) => {
                self.stored(key, b'S', initial.to_string().as_bytes(), 0, 0, None);
                initial
            }
            (Some(Err(())), _) => {
                return self.expect(b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n");
            }
            (Some(Ok(old)), _) => self.counted(key, old, up, delta),
        };
        self.expect(format!("VA {}\r\n{value}\r\n", value.to_string().len()).as_bytes());
    }

    fn touch(&mut self, key: usize) {
        let ttl = self.ttl();
        self.send(format!("touch {} {ttl}\r\n", name_of(key)).as_bytes());
        let live = self.is_live(key);
        let ends_s = self.ends_s(ttl);
        if let Some(item) = self.items.get_mut(&key) {
            item.ends_s = ends_s;
        }
        self.expect(if live { b"TOUCHED\r\n" } else { b"NOT_FOUND\r\n" });
    }

    /// Requests that concern no key: time, a flush, another connection.
    fn around(&mut self) {
        match self.choices.below(4) {
            0 | 1 => {
                let seconds = 1 + self.choices.below(12);
                self.now_s += seconds as i64;
                self.send(format!("debugtime {seconds}\r\n").as_bytes());
                self.expect(b"OK\r\n");
            }
            2 => {
                self.items.clear();
                self.send(b"flush_all\r\n");
                self.expect(b"OK\r\n");
            }
            _ => {
                self.talk.close(&mut self.dispatcher);
                self.talk = Talk::open(&mut self.dispatcher, self.client.peer);
                self.send(b"mn\r\n");
                self.expect(b"MN\r\n");
            }
        }
    }
}
