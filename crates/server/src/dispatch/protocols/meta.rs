//! The meta commands, executed and answered.

use super::classic::say_unless;
use super::connection::Busy;
use super::stats::THE_CLASS;
use super::{Connection, Dispatcher, meta_key};
use larder_cache::{
    Arith, ArithOutcome, Delete, DeleteOutcome, Expiry, Hit, KEY_BYTES_MAX, KeyHash, Mode, State, Store,
    StoreOutcome, Value,
};
use larder_protocol::{Meta, MetaFlags, MetaVerb, compose, reply};

/// Seconds an item gets that is created with an expiry in the past, until its first reply is written.
const VIVIFIED_TTL_S: i32 = 60;

/// What a write's reply can show.
struct Shown {
    cas: u64,
    value_bytes: u32,
    /// The expiry in front of the flag `T`, and behind it.
    expiry: Option<(Expiry, Option<Expiry>)>,
}

impl Dispatcher {
    pub(super) fn execute_meta(
        &mut self,
        connection: &mut Connection,
        meta: &Meta<'_>,
        hash: KeyHash,
        on_flash: bool,
    ) {
        let mut buffer = [0; KEY_BYTES_MAX];
        let is_base64 = meta.flags.has(b'b');
        let key = meta_key(meta.key, is_base64, &mut buffer);
        let hash = if is_base64 { self.worker.cache().hash(key) } else { hash };
        self.worker.counters().cmd_meta.add(1);
        match meta.verb {
            MetaVerb::Get => self.meta_get(connection, meta, key, hash),
            MetaVerb::Set => self.meta_set(connection, meta, key, hash),
            MetaVerb::Delete => self.meta_delete(connection, meta, key, hash, on_flash),
            MetaVerb::Arith => self.meta_arith(connection, meta, key, hash),
            MetaVerb::Debug => self.meta_debug(connection, meta, key, hash),
        }
    }

    fn meta_get(&mut self, connection: &mut Connection, meta: &Meta<'_>, key: &[u8], hash: KeyHash) {
        let flags = &meta.flags;
        self.worker.counters().cmd_get.add(1);
        let quiet_look = flags.has(b'u');
        let absent = flags.has(b'N') && self.worker.peek(hash, key).is_none();
        // Somebody else may create it first: then it is there, with the token given away.
        let created = absent && self.vivify(meta, key, hash);
        let counters = self.worker.counters();
        let Some(hit) = self.look(hash, key, quiet_look) else {
            counters.get_misses.add(1);
            return if absent && !created {
                connection.say(reply::NO_MEMORY_NEW_ITEM)
            } else {
                meta_miss(connection, meta)
            };
        };
        if absent { &counters.get_misses } else { &counters.get_hits }.add(1);
        let now_s = self.worker.cache().clock().now_s();
        let state = hit.item.state();
        let (stale, token_sent) = (state.has(State::STALE), state.has(State::TOKEN_SENT) && !created);
        let wants_value = flags.has(b'v') && !(flags.has(b'C') && flags.compare == self.shown_cas(&hit));
        let large = match hit.value() {
            Value::Chunked { .. } if wants_value => match self.worker.begin_large_read(&hit) {
                None => return connection.say(reply::NO_MEMORY_GET),
                large => large,
            },
            _ => None,
        };
        let out = connection.output();
        if wants_value {
            compose::meta_value(out, hit.value_bytes());
        } else {
            out.extend_from_slice(b"HD");
        }
        let old_expiry = hit.expiry();
        // What changes the expiry and what looks at it act in the order they were written in.
        let mut expiry = if created { Expiry::NEVER } else { old_expiry };
        let mut soon = false;
        for (letter, rest) in flags.iter() {
            match letter {
                b'N' if created => expiry = self.expiry(flags.n),
                b'T' => expiry = self.expiry(flags.ttl),
                b'R' => soon = expiry != Expiry::NEVER && expiry < self.expiry(flags.r),
                b't' => compose_ttl(out, expiry, now_s),
                b'f' => compose::meta_number(out, b'f', hit.item.flags().into()),
                b'c' => compose::meta_number(out, b'c', self.shown_cas(&hit)),
                b's' => compose::meta_number(out, b's', hit.value_bytes().into()),
                b'h' => compose::meta_number(out, b'h', state.has(State::FETCHED).into()),
                b'l' => compose::meta_number(out, b'l', state.idle_s(now_s).into()),
                b'O' => compose::meta_token(out, b'O', rest),
                b'k' => compose::meta_key(out, meta.key, flags),
                _ => {}
            }
        }
        let won = created || (!token_sent && (stale || soon) && self.worker.claim_token(hash, key));
        for (shown, letter) in [(token_sent, b'Z'), (stale, b'X'), (won, b'W')] {
            if shown {
                compose::meta_flag(out, letter);
            }
        }
        out.extend_from_slice(b"\r\n");
        if !quiet_look {
            self.worker.note_fetch(&hit);
        }
        if let (Value::Whole(value), true) = (hit.value(), wants_value) {
            out.extend_from_slice(value);
            out.extend_from_slice(b"\r\n");
        }
        if let Some(value) = large {
            connection.busy = Some(Busy::Sending { value, tail: b"\r\n" });
        }
        // Touched after it was read: a time in the past answers once more and then ends the item.
        if flags.has(b'T') || (created && expiry != old_expiry) {
            self.touch(key, hash, expiry);
        }
    }

    fn look(&self, hash: KeyHash, key: &[u8], quietly: bool) -> Option<Hit<'_>> {
        if quietly { self.worker.peek(hash, key) } else { self.worker.get(hash, key) }
    }

    /// `mg N`: an empty item whose token the caller holds. Returns whether this call created it. It lives long enough to be
    /// looked at, though its expiry may be past.
    fn vivify(&mut self, meta: &Meta<'_>, key: &[u8], hash: KeyHash) -> bool {
        let expiry = match self.expiry(meta.flags.n) {
            past if past.is_past(self.worker.cache().clock().now_s()) => self.expiry(VIVIFIED_TTL_S),
            expiry => expiry,
        };
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
        matches!(outcome, StoreOutcome::Stored { .. }) && self.worker.claim_token(hash, key)
    }

    fn meta_set(&mut self, connection: &mut Connection, meta: &Meta<'_>, key: &[u8], hash: KeyHash) {
        let outcome = self.worker.store(&self.meta_store(meta, key, hash));
        self.answer_meta_set(connection, meta, key, hash, outcome);
    }

    /// The CAS number that the item has to have, if the request names one.
    fn compare_of(&self, flags: &MetaFlags<'_>) -> Option<u64> {
        flags.has(b'C').then(|| self.compared_cas(flags.compare))
    }

    /// An `ms` in the cache's terms.
    pub(super) fn meta_store<'a>(&self, meta: &Meta<'a>, key: &'a [u8], hash: KeyHash) -> Store<'a> {
        let flags = &meta.flags;
        let mode = meta_mode(flags.mode);
        let joins = matches!(mode, Mode::Append | Mode::Prepend);
        Store {
            key,
            hash,
            mode,
            flags: flags.client_flags,
            expiry: self.expiry(flags.ttl),
            value: meta.data,
            // No CAS number is 0: where nothing is replaced, memcached takes that for none.
            compare: self.compare_of(flags).filter(|&cas| cas != 0 || !joins),
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
                // What was to be joined to something stays, unless its other half alone is too large.
                let joins = matches!(meta.flags.mode, b'A' | b'P');
                let takes_old = !joins || !self.worker.fits(key.len(), meta.bytes.into());
                let answer = self.refused(key, hash, takes_old, outcome);
                return connection.say(answer);
            }
        };
        if code == "HD" && meta.flags.has(b'q') {
            return;
        }
        compose_reply(connection.output(), code, meta, Some(&shown), self.worker.cache().clock().now_s());
    }

    fn meta_delete(
        &mut self,
        connection: &mut Connection,
        meta: &Meta<'_>,
        key: &[u8],
        hash: KeyHash,
        on_flash: bool,
    ) {
        let flags = &meta.flags;
        let outcome = self.worker.delete(&Delete {
            key,
            hash,
            // Every item's CAS number is 0 where CAS is switched off.
            compare: self.compare_of(flags).filter(|&cas| cas != 0 || self.shared.settings.cas_enabled),
            explicit_cas: flags.has(b'E').then_some(flags.explicit_cas),
            invalidate: flags.has(b'I'),
            drop_value: flags.has(b'x'),
            expiry: flags.has(b'T').then(|| self.expiry(flags.ttl)),
            flags: flags.client_flags,
        });
        let counters = self.worker.counters();
        let code = match outcome {
            DeleteOutcome::NotFound if on_flash => {
                counters.delete_hits.add(1);
                "HD"
            }
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
            compare: self.compare_of(flags).filter(|&cas| cas != 0),
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
                let touched = flags.has(b'T').then(|| self.expiry(flags.ttl));
                let shown = Shown { cas, value_bytes: 0, expiry: Some((expiry, touched)) };
                let out = connection.output();
                if flags.has(b'v') {
                    let digits = value.checked_ilog10().unwrap_or(0) + 1;
                    out.extend_from_slice(b"VA ");
                    compose::decimal(out, digits.into());
                    compose_reply(out, "", meta, Some(&shown), now_s);
                    compose::decimal(out, value);
                    out.extend_from_slice(b"\r\n");
                } else {
                    compose_reply(out, "HD", meta, Some(&shown), now_s);
                }
            }
            ArithOutcome::NotFound => compose_reply(connection.output(), "NF", meta, None, 0),
            ArithOutcome::Exists => compose_reply(connection.output(), "EX", meta, None, 0),
            ArithOutcome::NonNumeric => connection.say(reply::NON_NUMERIC),
            ArithOutcome::NoRoom if flags.has(b'N') => connection.say(reply::NO_MEMORY_NEW_ITEM),
            ArithOutcome::NoRoom => connection.say(reply::NO_MEMORY),
        }
    }

    fn meta_debug(&mut self, connection: &mut Connection, meta: &Meta<'_>, key: &[u8], hash: KeyHash) {
        let now_s = self.worker.cache().clock().now_s();
        let Some(hit) = self.worker.peek(hash, key) else { return connection.say(reply::META_MISS) };
        let state = hit.item.state();
        let report = compose::ItemReport {
            key,
            expiry: hit.expiry().remaining_s(now_s).map_or(-1, i64::from),
            last_access: state.idle_s(now_s).into(),
            cas: self.shown_cas(&hit),
            fetched: state.has(State::FETCHED),
            class: THE_CLASS,
            bytes: self.worker.bytes_of(&hit),
            flags: hit.item.flags(),
        };
        compose::meta_debug_line(connection.output(), meta.key, &report);
    }
}

/// The mode letter of `ms` in the cache's terms.
fn meta_mode(letter: u8) -> Mode {
    match letter {
        b'E' => Mode::Add,
        b'A' => Mode::Append,
        b'P' => Mode::Prepend,
        b'R' => Mode::Replace,
        _ => Mode::Set,
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
    let (mut expiry, touched) = shown.and_then(|shown| shown.expiry).unzip();
    for (letter, rest) in meta.flags.iter() {
        match (letter, shown) {
            (b'T', _) => expiry = touched.flatten().or(expiry),
            (b'O', _) => compose::meta_token(out, b'O', rest),
            (b'k', _) => compose::meta_key(out, meta.key, &meta.flags),
            (b'c', Some(shown)) => compose::meta_number(out, b'c', shown.cas),
            (b's', Some(shown)) if meta.verb == MetaVerb::Set => {
                compose::meta_number(out, b's', shown.value_bytes.into())
            }
            (b't', _) => {
                if let Some(expiry) = expiry {
                    compose_ttl(out, expiry, now_s);
                }
            }
            _ => {}
        }
    }
    out.extend_from_slice(b"\r\n");
}

fn compose_ttl(out: &mut Vec<u8>, expiry: Expiry, now_s: u32) {
    match expiry.remaining_s(now_s) {
        None => out.extend_from_slice(b" t-1"),
        Some(left_s) => compose::meta_number(out, b't', left_s.into()),
    }
}
