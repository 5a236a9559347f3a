//! The meta commands, executed and answered.

use super::classic::say_unless;
use super::connection::Busy;
use super::{Connection, Dispatcher, meta_key};
use larder_cache::{
    Arith, ArithOutcome, Delete, DeleteOutcome, Expiry, Hit, KEY_BYTES_MAX, KeyHash, Mode, State, Store, StoreOutcome,
    Touched, Value,
};
use larder_protocol::{Meta, MetaVerb, compose, reply};

/// What `mg` shows of an item as it was before the request, gathered before anything changes it.
struct Before {
    fetched: bool,
    idle_s: u32,
    stale: bool,
    token_sent: bool,
}

/// What a write's reply can show.
struct Shown {
    cas: u64,
    value_bytes: u32,
    expiry: Option<Expiry>,
}

impl Dispatcher {
    pub(super) fn execute_meta(&mut self, connection: &mut Connection, meta: &Meta<'_>, hash: KeyHash) {
        let mut buffer = [0; KEY_BYTES_MAX];
        let is_base64 = meta.flags.has(b'b');
        let key = meta_key(meta.key, is_base64, &mut buffer);
        let hash = if is_base64 { self.worker.cache().hash(key) } else { hash };
        self.worker.counters().cmd_meta.add(1);
        match meta.verb {
            MetaVerb::Get => self.meta_get(connection, meta, key, hash),
            MetaVerb::Set => self.meta_set(connection, meta, key, hash),
            MetaVerb::Delete => self.meta_delete(connection, meta, key, hash),
            MetaVerb::Arith => self.meta_arith(connection, meta, key, hash),
            MetaVerb::Debug => self.meta_debug(connection, meta, key, hash),
        }
    }

    fn meta_get(&mut self, connection: &mut Connection, meta: &Meta<'_>, key: &[u8], hash: KeyHash) {
        let flags = &meta.flags;
        let counters = self.worker.counters();
        counters.cmd_get.add(1);
        let quiet_look = flags.has(b'u');
        let mut won = false;
        let mut created = false;
        let mut present = self.look(hash, key, quiet_look).is_some();
        if !present {
            self.worker.counters().get_misses.add(1);
            if flags.has(b'N') {
                created = self.vivify(meta, key, hash);
                won = created;
                // Somebody else may have created it first: then it is there, with the token given away.
                present = self.worker.peek(hash, key).is_some();
                if !present {
                    return connection.say(reply::NO_MEMORY_NEW_ITEM);
                }
            }
        } else {
            self.worker.counters().get_hits.add(1);
        }
        if !present {
            return meta_miss(connection, meta);
        }
        let Some(before) = self.before(hash, key) else { return meta_miss(connection, meta) };
        let old_expiry = self.worker.peek(hash, key).map(|hit| hit.expiry());
        if flags.has(b'T') && !created {
            let expiry = self.expiry(flags.ttl);
            if self.touch(key, hash, expiry) == Touched::NoRoom {
                return connection.say(reply::NO_MEMORY);
            }
        }
        let now_s = self.worker.cache().clock().now_s();
        let Some(hit) = self.worker.peek(hash, key) else { return meta_miss(connection, meta) };
        if !created {
            let soon = flags.has(b'R')
                && old_expiry
                    .and_then(|expiry| expiry.remaining_s(now_s))
                    .is_some_and(|left_s| i64::from(left_s) < i64::from(flags.r));
            if (before.stale || soon) && !before.token_sent {
                won = self.worker.claim_token(&hit);
            }
        }
        let wants_value = flags.has(b'v') && !(flags.has(b'C') && flags.compare == self.shown_cas(&hit));
        let out = connection.output();
        if wants_value {
            out.extend_from_slice(b"VA ");
            compose::decimal(out, hit.value_bytes() as u64);
        } else {
            out.extend_from_slice(b"HD");
        }
        let mut expiry = old_expiry.unwrap_or(hit.expiry());
        for (letter, rest) in flags.iter() {
            match letter {
                b'T' if !created => expiry = hit.expiry(),
                b't' => compose_ttl(out, expiry, now_s),
                b'f' => compose_number(out, b'f', hit.item.flags() as u64),
                b'c' => compose_number(out, b'c', self.shown_cas(&hit)),
                b's' => compose_number(out, b's', hit.value_bytes() as u64),
                b'h' => compose_number(out, b'h', before.fetched as u64),
                b'l' => compose_number(out, b'l', before.idle_s as u64),
                b'O' => compose_token(out, b'O', rest),
                b'k' => compose_key(out, meta),
                _ => {}
            }
        }
        if before.token_sent || (created && !won) {
            out.extend_from_slice(b" Z");
        }
        if before.stale {
            out.extend_from_slice(b" X");
        }
        if won {
            out.extend_from_slice(b" W");
        }
        out.extend_from_slice(b"\r\n");
        if !quiet_look {
            self.worker.note_fetch(&hit);
        }
        if wants_value {
            match hit.value() {
                Value::Whole(value) => {
                    out.extend_from_slice(value);
                    out.extend_from_slice(b"\r\n");
                }
                Value::Chunked { .. } => {
                    let value = self.worker.begin_large_read(&hit);
                    connection.busy = Some(Busy::Sending { value, tail: b"\r\n" });
                }
            }
        }
    }

    fn look(&self, hash: KeyHash, key: &[u8], quietly: bool) -> Option<Hit<'_>> {
        if quietly { self.worker.peek(hash, key) } else { self.worker.get(hash, key) }
    }

    fn before(&self, hash: KeyHash, key: &[u8]) -> Option<Before> {
        let hit = self.worker.peek(hash, key)?;
        let state = hit.item.state();
        Some(Before {
            fetched: state.has(State::FETCHED),
            idle_s: state.idle_s(self.worker.cache().clock().now_s()),
            stale: state.has(State::STALE),
            token_sent: state.has(State::TOKEN_SENT),
        })
    }

    /// `mg N`: an empty item whose token the caller holds. Returns whether this call created it.
    fn vivify(&mut self, meta: &Meta<'_>, key: &[u8], hash: KeyHash) -> bool {
        let expiry = self.expiry(meta.flags.n);
        let outcome = self.worker.store(&Store {
            key,
            hash,
            mode: Mode::Add,
            flags: 0,
            expiry,
            value: &[],
            compare: None,
            explicit_cas: meta.flags.has(b'E').then_some(meta.flags.explicit_cas),
            invalidate: false,
            vivify: None,
            binary_key: meta.flags.has(b'b'),
        });
        let created = matches!(outcome, StoreOutcome::Stored { .. });
        if created && let Some(hit) = self.worker.peek(hash, key) {
            return self.worker.claim_token(&hit);
        }
        false
    }

    fn meta_set(&mut self, connection: &mut Connection, meta: &Meta<'_>, key: &[u8], hash: KeyHash) {
        let flags = &meta.flags;
        let outcome = self.worker.store(&self.meta_store(meta, key, hash));
        let mode = meta_mode(flags.mode);
        self.answer_meta_set(connection, meta, key, hash, mode, outcome);
    }

    /// An `ms` in the cache's terms.
    pub(super) fn meta_store<'a>(&self, meta: &Meta<'a>, key: &'a [u8], hash: KeyHash) -> Store<'a> {
        let flags = &meta.flags;
        Store {
            key,
            hash,
            mode: meta_mode(flags.mode),
            flags: flags.client_flags,
            expiry: self.expiry(flags.ttl),
            value: meta.data,
            compare: flags.has(b'C').then_some(flags.compare),
            explicit_cas: flags.has(b'E').then_some(flags.explicit_cas),
            invalidate: flags.has(b'I'),
            vivify: flags.has(b'N').then(|| self.expiry(flags.n)),
            binary_key: flags.has(b'b'),
        }
    }

    /// The reply to `ms`, whether its value came in one piece or in many.
    pub(super) fn answer_meta_set(
        &mut self,
        connection: &mut Connection,
        meta: &Meta<'_>,
        key: &[u8],
        hash: KeyHash,
        mode: Mode,
        outcome: StoreOutcome,
    ) {
        self.count_store(outcome, meta.flags.has(b'C'));
        let (code, shown) = match outcome {
            StoreOutcome::Stored { cas, value_bytes } => {
                let cas = if self.shared.settings.cas_enabled { cas } else { 0 };
                ("HD", Shown { cas, value_bytes, expiry: None })
            }
            StoreOutcome::NotStored => ("NS", Shown { cas: 0, value_bytes: meta.bytes, expiry: None }),
            StoreOutcome::Exists => ("EX", Shown { cas: 0, value_bytes: meta.bytes, expiry: None }),
            StoreOutcome::NotFound => ("NF", Shown { cas: 0, value_bytes: meta.bytes, expiry: None }),
            StoreOutcome::TooLarge | StoreOutcome::NoRoom => {
                let answer = self.refused(key, hash, mode, outcome);
                return connection.say(answer);
            }
        };
        if code == "HD" && meta.flags.has(b'q') {
            return;
        }
        compose_reply(connection.output(), code, meta, Some(&shown), self.worker.cache().clock().now_s());
    }

    fn meta_delete(&mut self, connection: &mut Connection, meta: &Meta<'_>, key: &[u8], hash: KeyHash) {
        let flags = &meta.flags;
        let outcome = self.worker.delete(&Delete {
            key,
            hash,
            compare: flags.has(b'C').then_some(flags.compare),
            explicit_cas: flags.has(b'E').then_some(flags.explicit_cas),
            invalidate: flags.has(b'I'),
            drop_value: flags.has(b'x'),
            expiry: flags.has(b'T').then(|| self.expiry(flags.ttl)),
            flags: flags.client_flags,
        });
        let counters = self.worker.counters();
        let code = match outcome {
            DeleteOutcome::Deleted => {
                counters.delete_hits.add(1);
                "HD"
            }
            DeleteOutcome::NotFound => {
                counters.delete_misses.add(1);
                "NF"
            }
            DeleteOutcome::Exists => "EX",
            DeleteOutcome::NoRoom => return connection.say(reply::NO_MEMORY),
        };
        if code == "HD" && flags.has(b'q') {
            return;
        }
        compose_reply(connection.output(), code, meta, None, 0);
    }

    fn meta_arith(&mut self, connection: &mut Connection, meta: &Meta<'_>, key: &[u8], hash: KeyHash) {
        let flags = &meta.flags;
        let increment = flags.mode == b'I';
        let outcome = self.worker.arith(&Arith {
            key,
            hash,
            increment,
            delta: flags.delta,
            initial: flags.has(b'N').then(|| (self.expiry(flags.n), flags.initial)),
            compare: flags.has(b'C').then_some(flags.compare),
            explicit_cas: flags.has(b'E').then_some(flags.explicit_cas),
            expiry: flags.has(b'T').then(|| self.expiry(flags.ttl)),
            binary_key: flags.has(b'b'),
        });
        self.count_arith(outcome, increment);
        let now_s = self.worker.cache().clock().now_s();
        let quiet = flags.has(b'q');
        match outcome {
            ArithOutcome::Done { value, cas, expiry, .. } => {
                if quiet {
                    return;
                }
                let cas = if self.shared.settings.cas_enabled { cas } else { 0 };
                let shown = Shown { cas, value_bytes: 0, expiry: Some(expiry) };
                let out = connection.output();
                if flags.has(b'v') {
                    let mut digits = Vec::with_capacity(20);
                    compose::decimal(&mut digits, value);
                    let code = format!("VA {}", digits.len());
                    compose_reply(out, &code, meta, Some(&shown), now_s);
                    out.extend_from_slice(&digits);
                    out.extend_from_slice(b"\r\n");
                } else {
                    compose_reply(out, "HD", meta, Some(&shown), now_s);
                }
            }
            ArithOutcome::NotFound => say_code(connection, "NF", meta, quiet),
            ArithOutcome::Exists => say_code(connection, "EX", meta, false),
            ArithOutcome::NonNumeric => connection.say(reply::NON_NUMERIC),
            ArithOutcome::NoRoom if flags.has(b'N') => connection.say(reply::NO_MEMORY_NEW_ITEM),
            ArithOutcome::NoRoom => connection.say(reply::NO_MEMORY),
        }
    }

    fn meta_debug(&mut self, connection: &mut Connection, meta: &Meta<'_>, key: &[u8], hash: KeyHash) {
        let clock = self.worker.cache().clock();
        let now_s = clock.now_s();
        let Some(hit) = self.worker.peek(hash, key) else { return connection.say(reply::META_MISS) };
        let state = hit.item.state();
        let left = hit.expiry().remaining_s(now_s).map_or(-1, i64::from);
        let line = format!(
            " exp={left} la={} cas={} fetch={} cls=1 size={}\r\n",
            state.idle_s(now_s),
            self.shown_cas(&hit),
            if state.has(State::FETCHED) { "yes" } else { "no" },
            self.worker.bytes_of(&hit),
        );
        let out = connection.output();
        out.extend_from_slice(b"ME ");
        out.extend_from_slice(meta.key);
        out.extend_from_slice(line.as_bytes());
    }
}

/// The mode letter of `ms` in the cache's terms.
pub(super) fn meta_mode(letter: u8) -> Mode {
    match letter {
        b'E' => Mode::Add,
        b'A' => Mode::Append,
        b'P' => Mode::Prepend,
        b'R' => Mode::Replace,
        _ => Mode::Set,
    }
}

fn say_code(connection: &mut Connection, code: &str, meta: &Meta<'_>, quiet: bool) {
    if !quiet {
        compose_reply(connection.output(), code, meta, None, 0);
    }
}

fn meta_miss(connection: &mut Connection, meta: &Meta<'_>) {
    let flags = &meta.flags;
    if flags.has(b'q') {
        return;
    }
    if flags.opaque.is_none() && !flags.has(b'k') {
        return say_unless(connection, false, reply::META_MISS);
    }
    compose_reply(connection.output(), "EN", meta, None, 0);
}

/// A reply of code and return flags, in request order.
fn compose_reply(out: &mut Vec<u8>, code: &str, meta: &Meta<'_>, shown: Option<&Shown>, now_s: u32) {
    out.extend_from_slice(code.as_bytes());
    for (letter, rest) in meta.flags.iter() {
        match (letter, shown) {
            (b'O', _) => compose_token(out, b'O', rest),
            (b'k', _) => compose_key(out, meta),
            (b'c', Some(shown)) => compose_number(out, b'c', shown.cas),
            (b's', Some(shown)) if meta.verb == MetaVerb::Set => compose_number(out, b's', shown.value_bytes as u64),
            (b't', Some(Shown { expiry: Some(expiry), .. })) => compose_ttl(out, *expiry, now_s),
            _ => {}
        }
    }
    out.extend_from_slice(b"\r\n");
}

fn compose_number(out: &mut Vec<u8>, letter: u8, value: u64) {
    out.extend_from_slice(&[b' ', letter]);
    compose::decimal(out, value);
}

fn compose_token(out: &mut Vec<u8>, letter: u8, token: &[u8]) {
    out.extend_from_slice(&[b' ', letter]);
    out.extend_from_slice(token);
}

fn compose_key(out: &mut Vec<u8>, meta: &Meta<'_>) {
    compose_token(out, b'k', meta.key);
    if meta.flags.has(b'b') {
        out.extend_from_slice(b" b");
    }
}

fn compose_ttl(out: &mut Vec<u8>, expiry: Expiry, now_s: u32) {
    match expiry.remaining_s(now_s) {
        None => out.extend_from_slice(b" t-1"),
        Some(left_s) => compose_number(out, b't', left_s as u64),
    }
}
