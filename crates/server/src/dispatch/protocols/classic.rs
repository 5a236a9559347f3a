//! The classic commands, executed and answered.

use super::connection::{Busy, Charge, Listing, OUTPUT_SOFT_BYTES};
use super::fetches::{Looked, Use};
use super::stats::Detailed;
use super::{Connection, Dispatcher, KeyOf};
use crate::latency::Class;
use larder_cache::{
    Arith, ArithOutcome, Delete, DeleteOutcome, Expiry, Found, Hit, KeyHash, Mode, Seen, Store, StoreOutcome,
    Touched, Value,
};
use larder_protocol::{
    DebugTime, Lru, LruCrawler, Request, Slabs, Store as StoreRequest, StoreVerb, compose, reply,
};
use std::sync::atomic::Ordering;

/// A dump is answered alone, because it goes on for as long as it takes.
const METADUMP_PIPELINED: &str = "ERROR cannot pipeline other commands before metadump\r\n";
const MGDUMP_PIPELINED: &str = "ERROR cannot pipeline other commands before mgdump\r\n";
/// memcached's slab classes are numbered up to this.
const CLASSES_SHOWN_MAX: i32 = 63;
/// memcached refuses a limit beyond this many MiB: somebody meant bytes.
const MEMLIMIT_MEGABYTES_MAX: u32 = 1_000_000_000;

/// How far a retrieval is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Answered {
    /// The key is answered, and others follow.
    Key,
    /// The last key of the line is answered.
    Line,
    /// The key is on its way from flash.
    Waits,
}

impl Dispatcher {
    /// Answers one key of a retrieval.
    #[inline]
    pub(super) fn answer_key(
        &mut self,
        connection: &mut Connection,
        hash: KeyHash,
        key: &[u8],
        hint: Option<Seen>,
        of: KeyOf,
    ) -> Answered {
        let KeyOf { with_cas, touch, last } = of;
        let hit = match hint.and_then(|seen| self.worker.lookup().confirm(hash, seen, key)) {
            Some(hit) => Some(hit),
            None => self.worker.get(hash, key),
        };
        let mut found = None;
        let hit = match hit {
            // What is touched has to be in memory.
            None if self.fetches.is_some() => {
                let wanted = if touch.is_some() { Use::Memory } else { Use::Show };
                match self.look_on_flash(connection, hash, key, wanted) {
                    Looked::Waits => return Answered::Waits,
                    Looked::Promoted => self.worker.get(hash, key),
                    Looked::Found(item, charge) => {
                        found = Some((item, charge));
                        None
                    }
                    Looked::Miss => None,
                }
            }
            hit => hit,
        };
        let counters = self.worker.counters();
        counters.cmd_get.add(1);
        connection.keys_done += 1;
        connection.tries = 0;
        let mut sending = false;
        if let Some(hit) = hit {
            counters.get_hits.add(1);
            self.worker.note_fetch(&hit);
            self.note_detail(key, Detailed::Hit);
            let cas = with_cas.then(|| self.shown_cas(&hit));
            let out = connection.output();
            match hit.value() {
                Value::Whole(value) => compose::value(out, key, hit.item.flags(), value, cas),
                Value::Chunked { total, .. } => {
                    sending = true;
                    if let Some(value) = self.worker.begin_large_read(&hit) {
                        compose::value_line(out, key, hit.item.flags(), total, cas);
                        let tail: &[u8] = if last { b"\r\nEND\r\n" } else { b"\r\n" };
                        connection.busy = Some(Busy::Sending { value, tail });
                    } else {
                        // A miss would make the client fetch and store what is here; memcached has words for this.
                        connection.say(reply::NO_MEMORY_GET);
                        connection.closing = true;
                    }
                }
            }
            if let Some(exptime) = touch {
                // Touched after it was read: a time in the past answers once more and then ends the item.
                let expiry = self.expiry(exptime);
                self.touch(key, hash, expiry);
            }
        } else if let Some((found, charge)) = found {
            counters.get_hits.add(1);
            self.note_detail(key, Detailed::Hit);
            sending = self.hand_over(connection, key, found, charge, of);
        } else {
            counters.get_misses.add(1);
            self.note_detail(key, Detailed::Miss);
            if touch.is_some() {
                counters.cmd_touch.add(1);
                counters.touch_misses.add(1);
            }
        }
        if last {
            if !sending {
                connection.output().extend_from_slice(reply::END.as_bytes());
            }
            let class = if touch.is_some() { Class::Touch } else { Class::Get };
            self.executed[class as usize] += 1;
        }
        if last { Answered::Line } else { Answered::Key }
    }

    /// Answers a key with what came from flash, without taking it to memory. Returns whether the value is still on its way out,
    /// with the end of the reply behind it.
    fn hand_over(
        &self,
        connection: &mut Connection,
        key: &[u8],
        found: Found,
        charge: Charge,
        of: KeyOf,
    ) -> bool {
        let cas_shown = if self.shared.settings.cas_enabled { found.cas } else { 0 };
        let cas = of.with_cas.then_some(cas_shown);
        let out = connection.output();
        if found.value.len() <= OUTPUT_SOFT_BYTES {
            compose::value(out, key, found.flags, &found.value, cas);
            return false;
        }
        compose::value_line(out, key, found.flags, found.value.len() as u32, cas);
        let tail: &[u8] = if of.last { b"\r\nEND\r\n" } else { b"\r\n" };
        connection.busy = Some(Busy::Handing { value: found.value, sent: 0, tail, _charge: charge });
        true
    }

    /// The CAS number shown to clients: 0 where CAS is switched off (`-C`).
    pub(super) fn shown_cas(&self, hit: &Hit<'_>) -> u64 {
        if self.shared.settings.cas_enabled { hit.cas() } else { 0 }
    }

    /// The CAS number to compare an item's with. Where CAS is switched off no item has the one a client names, as nobody was
    /// told any.
    pub(super) fn compared_cas(&self, named: u64) -> u64 {
        if self.shared.settings.cas_enabled || named == 0 { named } else { u64::MAX }
    }

    /// Reads a client's exptime on the server's clock.
    pub(super) fn expiry(&self, exptime: i32) -> Expiry {
        let clock = self.worker.cache().clock();
        Expiry::from_exptime(exptime as i64, clock.now_s(), clock.started_unix_s())
    }

    pub(super) fn execute_classic(
        &mut self,
        connection: &mut Connection,
        request: Request<'_>,
        hash: KeyHash,
        on_flash: bool,
    ) {
        match request {
            Request::Store(store) => self.store_classic(connection, &store, hash),
            Request::Delete { key, noreply } => {
                let answer = match self.delete_plain(key, hash, on_flash) {
                    DeleteOutcome::Deleted => reply::DELETED,
                    _ => reply::NOT_FOUND,
                };
                say_unless(connection, noreply, answer);
            }
            Request::Touch { key, exptime, noreply } => {
                let expiry = self.expiry(exptime);
                let answer = match self.touch(key, hash, expiry) {
                    Touched::Done => reply::TOUCHED,
                    Touched::NotFound => reply::NOT_FOUND,
                    Touched::NoRoom => reply::NO_MEMORY,
                };
                say_unless(connection, noreply, answer);
            }
            Request::Arith { key, incr, delta, noreply } => {
                self.arith_classic(connection, key, hash, incr, delta, noreply);
            }
            Request::MetaNoop => connection.say(reply::META_NOOP),
            Request::Version => {
                let out = connection.output();
                out.extend_from_slice(b"VERSION ");
                out.extend_from_slice(crate::VERSION_SHOWN.as_bytes());
                out.extend_from_slice(b"\r\n");
            }
            Request::Quit => connection.closing = true,
            other => self.execute_admin(connection, other),
        }
    }

    fn store_classic(&mut self, connection: &mut Connection, store: &StoreRequest<'_>, hash: KeyHash) {
        let expiry = self.expiry(store.exptime);
        let (mode, compare) = mode_of(store.verb, self.compared_cas(store.cas));
        let outcome = self.worker.store(&Store {
            key: store.key,
            hash,
            mode,
            flags: store.flags,
            expiry,
            value: store.data,
            compare,
            explicit_cas: None,
            invalidate: false,
            vivify: None,
            binary_key: false,
        });
        self.count_store(outcome, compare.is_some());
        self.note_detail(store.key, Detailed::Set);
        let answer = match outcome {
            StoreOutcome::Stored { .. } => reply::STORED,
            refused => self.refused(store.key, hash, store.verb == StoreVerb::Set, refused),
        };
        say_unless(connection, store.noreply, answer);
    }

    /// The classic reply to a store that did not go through. A plain set (`takes_old`) that found no room takes the old
    /// value with it: the client must not read what it meant to replace.
    pub(super) fn refused(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        takes_old: bool,
        outcome: StoreOutcome,
    ) -> &'static str {
        match outcome {
            StoreOutcome::Stored { .. } => reply::STORED,
            StoreOutcome::NotStored => reply::NOT_STORED,
            StoreOutcome::Exists => reply::EXISTS,
            StoreOutcome::NotFound => reply::NOT_FOUND,
            StoreOutcome::TooLarge | StoreOutcome::NoRoom => {
                if takes_old {
                    self.delete_quietly(key, hash);
                }
                if outcome == StoreOutcome::TooLarge { reply::TOO_LARGE } else { reply::NO_MEMORY_STORING }
            }
        }
    }

    /// Counts a store the way memcached does.
    pub(super) fn count_store(&self, outcome: StoreOutcome, compared: bool) {
        let counters = self.worker.counters();
        match outcome {
            StoreOutcome::TooLarge => return counters.store_too_large.add(1),
            StoreOutcome::NoRoom => return counters.store_no_memory.add(1),
            StoreOutcome::Stored { .. } if compared => counters.cas_hits.add(1),
            StoreOutcome::Exists if compared => counters.cas_badval.add(1),
            StoreOutcome::NotFound if compared => counters.cas_misses.add(1),
            _ => {}
        }
        counters.cmd_set.add(1);
    }

    /// Deletes and counts. `on_flash`: memory does not have the item, but flash does.
    fn delete_plain(&mut self, key: &[u8], hash: KeyHash, on_flash: bool) -> DeleteOutcome {
        let outcome = match self.delete_quietly(key, hash) {
            DeleteOutcome::NotFound if on_flash => DeleteOutcome::Deleted,
            outcome => outcome,
        };
        self.note_detail(key, Detailed::Delete);
        let counters = self.worker.counters();
        match outcome {
            DeleteOutcome::Deleted => counters.delete_hits.add(1),
            _ => counters.delete_misses.add(1),
        }
        outcome
    }

    pub(super) fn delete_quietly(&mut self, key: &[u8], hash: KeyHash) -> DeleteOutcome {
        self.worker.delete(&Delete {
            key,
            hash,
            compare: None,
            explicit_cas: None,
            invalidate: false,
            drop_value: false,
            expiry: None,
            flags: 0,
        })
    }

    /// Touches and counts.
    pub(super) fn touch(&mut self, key: &[u8], hash: KeyHash, expiry: Expiry) -> Touched {
        let touched = self.worker.touch(hash, key, expiry);
        let counters = self.worker.counters();
        counters.cmd_touch.add(1);
        match touched {
            Touched::Done => counters.touch_hits.add(1),
            _ => counters.touch_misses.add(1),
        }
        touched
    }

    fn arith_classic(
        &mut self,
        connection: &mut Connection,
        key: &[u8],
        hash: KeyHash,
        increment: bool,
        delta: u64,
        noreply: bool,
    ) {
        let outcome = self.worker.arith(&Arith {
            key,
            hash,
            increment,
            delta,
            initial: None,
            compare: None,
            explicit_cas: None,
            expiry: None,
            binary_key: false,
        });
        self.count_arith(outcome, increment);
        if noreply {
            return;
        }
        match outcome {
            ArithOutcome::Done { value, .. } => {
                let out = connection.output();
                compose::decimal(out, value);
                out.extend_from_slice(b"\r\n");
            }
            ArithOutcome::NotFound => connection.say(reply::NOT_FOUND),
            ArithOutcome::NonNumeric => connection.say(reply::NON_NUMERIC),
            ArithOutcome::Exists => connection.say(reply::EXISTS),
            ArithOutcome::NoRoom => connection.say(reply::NO_MEMORY),
        }
    }

    pub(super) fn count_arith(&self, outcome: ArithOutcome, increment: bool) {
        let counters = self.worker.counters();
        match (outcome, increment) {
            (ArithOutcome::Done { .. }, true) => counters.incr_hits.add(1),
            (ArithOutcome::Done { .. }, false) => counters.decr_hits.add(1),
            (ArithOutcome::NotFound, true) => counters.incr_misses.add(1),
            (ArithOutcome::NotFound, false) => counters.decr_misses.add(1),
            _ => {}
        }
    }

    fn execute_admin(&mut self, connection: &mut Connection, request: Request<'_>) {
        match request {
            Request::FlushAll { exptime, noreply } => self.flush_all(connection, exptime, noreply),
            Request::Verbosity { level, noreply } => {
                self.shared.verbosity.store(level, Ordering::Relaxed);
                say_unless(connection, noreply, reply::OK);
            }
            Request::Shutdown { graceful } => {
                match (self.shared.settings.shutdown_enabled, graceful, self.shared.on_shutdown.get()) {
                    (true, None, _) => connection.say(reply::BAD_SHUTDOWN),
                    (true, Some(graceful), Some(stop)) => {
                        connection.closing = true;
                        stop(graceful);
                    }
                    _ => connection.say(reply::SHUTDOWN_NOT_ENABLED),
                }
            }
            Request::CacheMemlimit { megabytes, noreply } => {
                let answer = if megabytes < 8 {
                    reply::MEMLIMIT_TOO_SMALL
                } else if megabytes > MEMLIMIT_MEGABYTES_MAX {
                    reply::MEMLIMIT_NOT_MEGABYTES
                } else if self.worker.cache().set_limit((megabytes as u64) << 20) {
                    if let Some(buffers) = self.shared.buffers.get() {
                        buffers.set_limit_bytes(self.worker.cache().buffers_cap_bytes());
                    }
                    reply::OK
                } else {
                    reply::MEMLIMIT_OUT_OF_BOUNDS
                };
                say_unless(connection, noreply, answer);
            }
            // Whoever may not flush may not make everything expire either.
            Request::DebugTime(_) if !self.shared.settings.flush_enabled => connection.say(reply::ERROR),
            Request::DebugTime(debug) => {
                let clock = self.worker.cache().clock();
                match debug {
                    DebugTime::Move(seconds) => clock.shift(seconds as i64),
                    DebugTime::Pause => clock.hold(),
                    DebugTime::Resume => clock.run(),
                }
                self.worker.cache().tick();
                connection.say(reply::OK);
            }
            Request::Stats(kind) => self.stats(connection, kind),
            Request::LruCrawler(command) => self.crawler(connection, command),
            // There are no slab classes and no LRU lists here: what memcached would tune is accepted and has no effect.
            Request::Slabs(Slabs::Reassign { source, destination }) => {
                let known = |class: i32| (1..=CLASSES_SHOWN_MAX).contains(&class);
                connection.say(if source == destination {
                    reply::SLABS_SAME
                } else if !known(destination) || !(known(source) || source == -1) {
                    reply::SLABS_BAD_CLASS
                } else {
                    reply::SLABS_NO_SPARE
                });
            }
            Request::Slabs(_) | Request::Lru(Lru::ModeFlat | Lru::ModeSegmented | Lru::TempTtl(_)) => {
                connection.say(reply::OK);
            }
            Request::Lru(Lru::Tune { hot_percent, warm_percent, hot_factor, warm_factor }) => {
                let answer = if hot_percent + warm_percent > 80 {
                    reply::LRU_BAD_PERCENTS
                } else if hot_factor <= 0.0 || warm_factor <= 0.0 {
                    reply::LRU_BAD_FACTORS
                } else {
                    reply::OK
                };
                connection.say(answer);
            }
            Request::Watch(_) if !connection.out.is_empty() => connection.say(reply::WATCH_PIPELINED),
            Request::Watch(_) => {
                let allowed = self.shared.settings.watch_enabled;
                connection.say(if allowed { reply::WATCHER_FAILED } else { reply::WATCH_NOT_ALLOWED });
            }
            Request::RefreshCerts => connection.say(reply::TLS_NOT_ENABLED),
            _ => connection.say(reply::ERROR),
        }
    }

    fn flush_all(&mut self, connection: &mut Connection, exptime: Option<i32>, noreply: bool) {
        if !self.shared.settings.flush_enabled {
            return say_unless(connection, noreply, reply::FLUSH_NOT_ALLOWED);
        }
        self.worker.counters().cmd_flush.add(1);
        let due_s = exptime.filter(|&delay| delay > 0).map(|delay| self.expiry(delay).0);
        self.worker.cache().flush(due_s);
        say_unless(connection, noreply, reply::OK);
    }

    fn crawler(&mut self, connection: &mut Connection, command: LruCrawler<'_>) {
        let mgdump = matches!(command, LruCrawler::Mgdump(_));
        match command {
            LruCrawler::Metadump(_) | LruCrawler::Mgdump(_) => {
                if !self.shared.settings.dump_enabled {
                    return connection.say(reply::METADUMP_NOT_ALLOWED);
                }
                if !connection.out.is_empty() {
                    return connection.say(if mgdump { MGDUMP_PIPELINED } else { METADUMP_PIPELINED });
                }
                connection.say(reply::OK);
                let form = if mgdump { Listing::Mgdump } else { Listing::Metadump };
                connection.busy = Some(Busy::Listing { bucket: 0, form });
            }
            // The pass drops expired items; there is nothing to start or to tune.
            _ => connection.say(reply::OK),
        }
    }
}

/// Appends the reply, unless the client wants none.
#[inline]
pub(super) fn say_unless(connection: &mut Connection, noreply: bool, answer: &str) {
    if !noreply {
        connection.say(answer);
    }
}

/// A classic storage command in the cache's terms.
pub(super) fn mode_of(verb: StoreVerb, cas: u64) -> (Mode, Option<u64>) {
    match verb {
        StoreVerb::Set => (Mode::Set, None),
        StoreVerb::Add => (Mode::Add, None),
        StoreVerb::Replace => (Mode::Replace, None),
        StoreVerb::Append => (Mode::Append, None),
        StoreVerb::Prepend => (Mode::Prepend, None),
        StoreVerb::Cas => (Mode::Set, Some(cas)),
    }
}
