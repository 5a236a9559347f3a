//! Sequences of operations against a map that forgets nothing.
//!
//! Four caches are compared with the map: one with room to spare and one that may not evict, where a hit is required;
//! and a small one under pressure, in memory alone or with flash behind it, where a miss is always allowed. No cache
//! may return a value other than the last one stored, or any value after a delete, an expiry or a flush.

use crate::model_ops::{
    Cas, Choosy, KEYS, Levels, Op, Ttl, Wanted, key_of, number_of, op, prefix_of, value_of,
};
use crate::tier::unix_now_s;
use larder_cache::*;
use larder_flash::Recover;
use larder_laboratory::{FaultyDevice, MemoryDevice};
use proptest::prelude::*;
use proptest::sample::select;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

/// Items of one `Fill`, and the bytes of each: 2 MiB together, so that a few fills replace all items of the smallest
/// cache.
const FILL_ITEMS: u32 = 2048;
const FILL_BYTES: usize = 1000;
/// Zones of the smallest tier.
const TINY_ZONES: u32 = 12;

/// What the map knows of a key.
#[derive(Clone, Debug)]
struct Known {
    value: Vec<u8>,
    flags: u32,
    /// `None` after a write that does not return the number, until the item is read.
    cas: Option<u64>,
    expiry: Expiry,
    stale: bool,
    token_sent: bool,
}

/// A value that arrives while other operations run.
struct Arriving {
    upload: Upload,
    worker: usize,
    key: u8,
    value: Vec<u8>,
    filled: usize,
}

/// The result of a lookup on flash.
enum Brought {
    Nothing,
    Served,
    Promoted,
}

#[derive(Clone, Copy)]
struct Setup {
    limit_bytes: u64,
    evict: bool,
    /// A miss is always allowed.
    lossy: bool,
    keeper: bool,
    /// Flash behind memory. Keys that memory misses are looked for there, and promoted before a command works on them.
    levels: Option<Levels>,
}

struct Play {
    setup: Setup,
    device: Option<FaultyDevice>,
    is_stalled: bool,
    cache: Arc<Cache>,
    workers: [Worker; 2],
    turn: usize,
    known: HashMap<u8, Known>,
    flush_due_s: Option<u32>,
    arriving: Option<Arriving>,
    reading: Option<(LargeRead, usize, Vec<u8>, Vec<u8>)>,
    lossy: bool,
    evict: bool,
    /// A number that makes every value different.
    count: u32,
    /// The clock of the tier, which follows the cache's.
    tier_now_s: Option<Arc<AtomicU32>>,
    /// An item that was found on flash a while ago and is to be promoted, whatever happened since.
    late: Option<(u8, Found)>,
}

impl Drop for Play {
    /// Hundreds of plays run in one process: each ends the threads of its tier.
    fn drop(&mut self) {
        self.stall(false);
        if let Some(flash) = self.cache.flash_tier() {
            // A device that is closed already, or a play that failed, is no second failure.
            let _ = flash.close();
        }
    }
}

impl Play {
    fn open(setup: &Setup, device: Option<&FaultyDevice>, now_s: Option<Arc<AtomicU32>>) -> Arc<Cache> {
        let flash = setup.levels.zip(device).map(|(levels, device)| {
            let mut level = FlashLevel::from(crate::tier::open(device, levels.recover, now_s));
            level.exclusive = levels.exclusive;
            level.recover = levels.recover;
            level.admission.only_fetched = levels.choosy == Choosy::Read;
            if levels.choosy == Choosy::Budget {
                level.admission.write_bytes_per_day = Some(240_000);
            }
            level
        });
        let options = CacheOptions {
            limit_bytes: setup.limit_bytes,
            evict: setup.evict,
            workers: 2,
            seed: Some(7),
            ..CacheOptions::default()
        };
        let cache = Cache::with_flash(options, flash).expect("a small cache can be made");
        cache.clock().hold();
        cache
    }

    /// A graceful stop and a start. The map stays, but the clock is another one.
    fn restart(&mut self) {
        if self.device.is_none() || self.setup.keeper {
            return;
        }
        self.stall(false);
        self.let_go();
        self.hand(0);
        self.cache.save_to_flash();
        let flash = self.cache.flash_tier().expect("there is a device");
        let closed = flash.close();
        // A tier of few zones that is full of garbage may have no room to be closed in order: that counts as a crash.
        let is_tiny = self.setup.levels.is_some_and(|levels| levels.zones == TINY_ZONES);
        assert!(closed.is_ok() || is_tiny && flash.is_on(), "a device of memory does not fail: {closed:?}");
        let cache = Play::open(&self.setup, self.device.as_ref(), self.tier_now_s.clone());
        let (old, new) = (self.cache.clock(), cache.clock());
        new.shift(old.unix_s(old.now_s()) - new.unix_s(new.now_s()));
        for known in self.known.values_mut().filter(|known| known.expiry != Expiry::NEVER) {
            known.expiry =
                Expiry::at_s((old.unix_s(known.expiry.seconds()) - new.started_unix_s()).max(1) as u32);
        }
        (self.flush_due_s, self.late) = (None, None);
        self.workers = [cache.worker(), cache.worker()];
        self.cache = cache;
    }

    /// Makes the device take nothing, or go on.
    fn stall(&mut self, stalls: bool) {
        let Some(device) = &self.device else { return };
        if stalls {
            device.close_gate()
        } else {
            device.open_gate()
        }
        self.is_stalled = stalls;
    }

    /// Ends all transfers of large values.
    fn let_go(&mut self) {
        if let Some(arriving) = self.arriving.take() {
            self.hand(arriving.worker).abandon_upload(arriving.upload);
        }
        if let Some((read, worker, ..)) = self.reading.take() {
            self.workers[worker].end_large_read(read);
        }
    }

    fn new(setup: &Setup) -> Play {
        let tier_now_s = setup.levels.map(|_| Arc::new(AtomicU32::new(unix_now_s())));
        let device =
            setup.levels.map(|levels| FaultyDevice::new(Arc::new(MemoryDevice::new(levels.zones, 64))));
        let cache = Play::open(setup, device.as_ref(), tier_now_s.clone());
        Play {
            setup: *setup,
            device,
            is_stalled: false,
            workers: [cache.worker(), cache.worker()],
            cache,
            turn: 0,
            known: HashMap::new(),
            flush_due_s: None,
            arriving: None,
            reading: None,
            lossy: setup.lossy,
            evict: setup.evict,
            count: 0,
            tier_now_s,
            late: None,
        }
    }

    fn now_s(&self) -> u32 {
        self.cache.clock().now_s()
    }

    fn expiry(&self, ttl: Ttl) -> Expiry {
        match ttl {
            Ttl::Never => Expiry::NEVER,
            Ttl::AtOnce => Expiry::AT_ONCE,
            Ttl::Seconds(seconds) => Expiry::at_s(self.now_s() + seconds),
        }
    }

    fn value(&mut self, key: u8, bytes: usize) -> Vec<u8> {
        self.count += 1;
        value_of(key, self.count, bytes)
    }

    /// What the map expects of a key now.
    fn live(&self, key: u8) -> Option<&Known> {
        self.known.get(&key).filter(|known| !known.expiry.is_past(self.now_s()))
    }

    /// The worker whose turn it is.
    fn worker(&mut self) -> &mut Worker {
        self.hand(self.turn)
    }

    /// One of the workers. The other one is offline, because nothing moves it on while this one waits for room.
    fn hand(&mut self, number: usize) -> &mut Worker {
        self.workers[1 - number].offline();
        self.workers[number].online();
        &mut self.workers[number]
    }

    /// The cache says that the key is absent.
    fn absent(&mut self, key: u8, by: &str) {
        assert!(
            self.lossy || self.live(key).is_none(),
            "{by}: key {key} is gone, but had {:?}",
            self.told(key)
        );
        // A miss on flash does not prove that the item is not there.
        if self.tier_now_s.is_none() || by == "delete" {
            self.known.remove(&key);
        }
    }

    fn told(&self, key: u8) -> Option<String> {
        self.known.get(&key).map(|known| {
            format!(
                "{} bytes, cas {:?}, {:?}, at {}",
                known.value.len(),
                known.cas,
                known.expiry,
                self.now_s()
            )
        })
    }

    /// There was no memory. That is allowed only where nothing may be evicted.
    fn no_room(&self, by: &str) {
        assert!(!self.evict, "{by}: no room although everything may be evicted");
    }

    /// Looks the key up and compares everything the map knows.
    fn check(&mut self, key: u8, in_stages: bool) {
        let name = key_of(key);
        let hash = self.cache.hash(&name);
        let worker = self.worker();
        let mut found = None;
        if in_stages {
            let lookup = worker.lookup();
            let seen = match lookup.locate(hash, lookup.prefetch_bucket(hash)) {
                LookupStage::InSubBucket(below) => lookup.locate_below(hash, below),
                found => found.tag_match(),
            };
            if let Some(seen) = seen {
                lookup.prefetch_value(seen);
                found = lookup.confirm(hash, seen, &name);
            }
        }
        let hit = found.or_else(|| worker.get(hash, &name));
        let seen = hit.map(|hit| {
            worker.note_fetch(&hit);
            let mut value = Vec::new();
            worker.copy_value(&hit, &mut value);
            let state = hit.item.state();
            Known {
                value,
                flags: hit.item.flags(),
                cas: Some(hit.cas()),
                expiry: hit.expiry(),
                stale: state.has(State::STALE),
                token_sent: state.has(State::TOKEN_SENT),
            }
        });
        let Some(seen) = seen else {
            // Sometimes the item is served from flash and not promoted.
            let is_wanted = self.count.is_multiple_of(3);
            return match self.bring(key, is_wanted) {
                Brought::Nothing => self.absent(key, "get"),
                Brought::Served => {}
                Brought::Promoted => {
                    let worker = self.worker();
                    assert!(worker.peek(hash, &name).is_some(), "key {key} was promoted but is absent");
                    self.check(key, in_stages)
                }
            };
        };
        self.agrees(key, seen);
    }

    /// Compares an item with everything the map knows of it.
    fn agrees(&mut self, key: u8, seen: Known) {
        let told = self.told(key);
        let Some(known) = self.live(key).cloned() else {
            panic!("get: key {key} came back with {} bytes, but had {told:?}", seen.value.len());
        };
        assert!(
            seen.value == known.value,
            "get: key {key} has another value of {} bytes; {told:?}",
            seen.value.len()
        );
        let fields = |known: &Known| (known.flags, known.expiry, known.stale, known.token_sent);
        assert_eq!(fields(&seen), fields(&known), "flags, expiry, stale, token of key {key}");
        assert!(known.cas.is_none() || known.cas == seen.cas, "key {key}: {:?} {:?}", known.cas, seen.cas);
        self.known.insert(key, seen);
    }

    /// The CAS numbers to send with a write.
    fn terms(&mut self, key: u8, cas: Cas) -> (Option<u64>, Option<u64>, bool) {
        if !matches!(cas, Cas::Any | Cas::Chosen(_)) {
            // The number has to be learnt first.
            self.check(key, false);
        }
        let now = self.live(key).and_then(|known| known.cas);
        match cas {
            Cas::Any => (None, None, false),
            Cas::Chosen(number) => (None, Some(number), false),
            Cas::Right => (Some(now.unwrap_or(1)), None, false),
            Cas::Wrong => (Some(now.unwrap_or(1).wrapping_add(1)), None, false),
            Cas::LowerMarksStale => (Some(now.unwrap_or(1).saturating_sub(1)), None, true),
        }
    }

    /// Looks for a key on flash if memory has no entry of it.
    fn bring(&mut self, key: u8, promote: bool) -> Brought {
        let name = key_of(key);
        let hash = self.cache.hash(&name);
        let worker = self.worker();
        if worker.peek(hash, &name).is_some() || !worker.flash_may_hold(hash, &name) {
            return Brought::Nothing;
        }
        // The keeper, or the flash itself, may change another key of the same stamp between the two calls.
        let mut looks = 0;
        let found = loop {
            let Some(found) = crate::tier::fetch(worker, hash, &name) else { return Brought::Nothing };
            if worker.is_current(hash, &name, &found) {
                break found;
            }
            looks += 1;
            assert!(looks < 1000, "nothing happened since key {key} was found");
        };
        let Some((value, promoted)) = crate::tier::take_in(worker, hash, &name, &found, promote) else {
            return Brought::Nothing;
        };
        let state = found.state.state();
        let expiry = match i64::from(found.expires_unix_s) {
            0 => Expiry::NEVER,
            unix_s => Expiry::at_s((unix_s - self.cache.clock().started_unix_s()) as u32),
        };
        let seen = Known {
            value,
            flags: found.flags,
            cas: Some(found.cas),
            expiry,
            stale: state.has(State::STALE),
            token_sent: state.has(State::TOKEN_SENT),
        };
        self.agrees(key, seen);
        if promoted {
            return Brought::Promoted;
        }
        self.late = Some((key, found));
        Brought::Served
    }

    /// Promotes the item that was found a while ago. The next lookup of the key shows whether it was still the newest
    /// version.
    fn promote_late(&mut self) {
        let Some((key, found)) = self.late.take() else { return };
        let name = key_of(key);
        let hash = self.cache.hash(&name);
        let worker = self.worker();
        let was_current = worker.is_current(hash, &name, &found);
        let is_promoted = worker.promote(hash, &name, &found);
        assert!(was_current || !is_promoted, "key {key} was promoted although it was out of date");
        if is_promoted {
            self.check(key, false);
        }
    }

    fn store(&mut self, wanted: Wanted) {
        let Wanted { key, mode, value, ttl, cas, vivify, pieces } = wanted;
        if mode != Mode::Set || !matches!(cas, Cas::Any) {
            self.bring(key, true);
        }
        let (compare, explicit_cas, invalidate) = self.terms(key, cas);
        let name = key_of(key);
        let hash = self.cache.hash(&name);
        let flags = self.count;
        let expiry = self.expiry(ttl);
        // If the old item may be gone, the new length tells whether it was. With an empty old value it does not.
        let is_open = self.lossy && self.live(key).is_some_and(|known| known.value.is_empty());
        let vivify = vivify.filter(|_| !is_open).map(|ttl| self.expiry(ttl));
        let store = Store {
            mode,
            flags,
            expiry,
            compare,
            explicit_cas,
            invalidate,
            vivify,
            ..Store::set(&name, hash, if pieces == 0 { &value } else { &[] })
        };
        let worker = self.worker();
        let outcome = if pieces == 0 {
            worker.store(&store)
        } else {
            let Some(mut upload) = worker.begin_upload(hash, value.len() as u32) else {
                return self.no_room("upload");
            };
            if !value.chunks(value.len().div_ceil(pieces)).all(|piece| worker.fill_upload(&mut upload, piece))
            {
                worker.abandon_upload(upload);
                return self.no_room("upload");
            }
            assert_eq!(upload.missing_bytes(), 0);
            worker.complete_upload(upload, &store)
        };
        let fresh = Known { value: value.clone(), flags, cas: None, expiry, stale: false, token_sent: false };
        self.stored(key, &store, fresh, outcome);
    }

    /// Compares the outcome of a store with what the map expects, and brings the map up to date.
    fn stored(&mut self, key: u8, store: &Store<'_>, mut fresh: Known, outcome: StoreOutcome) {
        let now = self.live(key).cloned();
        let joins = matches!(store.mode, Mode::Append | Mode::Prepend);
        match outcome {
            StoreOutcome::Stored { cas, value_bytes } => {
                assert!(store.explicit_cas.is_none_or(|wanted| wanted == cas));
                // A store that needed an absent key proves that the old item is lost.
                let is_new = joins && store.vivify.is_some() && fresh.value.len() == value_bytes as usize;
                let now = now.filter(|_| !(self.lossy && (is_new || store.mode == Mode::Add)));
                let stale = match (store.compare, &now) {
                    (None, _) => false,
                    (Some(compare), Some(now)) => {
                        let lower = now.cas.is_some_and(|cas| compare < cas);
                        assert!(
                            now.cas == Some(compare) || (store.invalidate && lower),
                            "stored over another CAS"
                        );
                        now.cas != Some(compare)
                    }
                    // An add, and a write that creates an absent item, compares with nothing.
                    (Some(_), None) => false,
                };
                match now {
                    Some(now) if joins => {
                        let (a, b) = if store.mode == Mode::Append {
                            (&now.value, &fresh.value)
                        } else {
                            (&fresh.value, &now.value)
                        };
                        fresh = Known {
                            value: [&a[..], b].concat(),
                            flags: now.flags,
                            expiry: now.expiry,
                            ..fresh
                        };
                    }
                    Some(now) => {
                        assert!(store.mode != Mode::Add, "add: key {key} was there");
                        if stale {
                            fresh = Known { stale, token_sent: now.token_sent, expiry: now.expiry, ..fresh };
                        }
                    }
                    None => {
                        assert!(store.mode != Mode::Replace, "replace: key {key} was absent");
                        assert!(!joins || store.vivify.is_some(), "append: key {key} was absent");
                        fresh.expiry = store.vivify.filter(|_| joins).unwrap_or(fresh.expiry);
                    }
                }
                assert_eq!(value_bytes as usize, fresh.value.len(), "length of key {key}");
                self.known.insert(key, Known { cas: Some(cas), ..fresh });
            }
            StoreOutcome::NotStored if store.mode == Mode::Add => {
                assert!(now.is_some(), "add: key {key} was absent");
            }
            StoreOutcome::NotStored | StoreOutcome::NotFound => {
                assert!(store.mode != Mode::Set || store.compare.is_some());
                self.absent(key, "store");
            }
            StoreOutcome::Exists => {
                let now = now.expect("compared with something");
                assert!(store.compare.is_some() && store.compare != now.cas, "the CAS number was right");
            }
            StoreOutcome::TooLarge => assert!(joins, "no single value is too large"),
            StoreOutcome::NoRoom => self.no_room("store"),
        }
    }

    fn delete(&mut self, key: u8, cas: Cas, invalidate: bool, drop_value: bool, ttl: Option<Ttl>) {
        // A plain delete does not depend on the present item.
        if invalidate || drop_value || !matches!(cas, Cas::Any) {
            self.bring(key, true);
        }
        let (compare, explicit_cas, _) = self.terms(key, cas);
        let name = key_of(key);
        let hash = self.cache.hash(&name);
        let expiry = ttl.map(|ttl| self.expiry(ttl));
        let delete = Delete {
            key: &name,
            hash,
            compare,
            explicit_cas,
            invalidate,
            drop_value,
            expiry,
            flags: self.count,
        };
        let outcome = self.worker().delete(&delete);
        let now = self.live(key).cloned();
        match outcome {
            DeleteOutcome::Deleted => {
                let mut now = now.expect("deleted what was not there");
                assert!(compare.is_none() || compare == now.cas, "deleted another CAS number");
                if !invalidate && !drop_value {
                    self.known.remove(&key);
                    return;
                }
                now.cas = explicit_cas.or(if invalidate { None } else { now.cas });
                if drop_value {
                    (now.value, now.flags, now.expiry) =
                        (Vec::new(), self.count, expiry.unwrap_or(Expiry::NEVER));
                    (now.stale, now.token_sent) = (false, false);
                }
                now.expiry = expiry.unwrap_or(now.expiry);
                if invalidate {
                    (now.stale, now.token_sent) = (true, false);
                }
                self.known.insert(key, now);
            }
            DeleteOutcome::NotFound if compare.is_some() => self.absent(key, "delete of a CAS number"),
            DeleteOutcome::NotFound => self.absent(key, "delete"),
            DeleteOutcome::Exists => {
                assert!(compare.is_some() && compare != now.expect("something is there").cas);
            }
            DeleteOutcome::NoRoom => self.no_room("delete"),
        }
    }

    fn arith(&mut self, key: u8, increment: bool, delta: u64, initial: Option<u64>, cas: Cas) {
        self.bring(key, true);
        let (compare, explicit_cas, _) = self.terms(key, cas);
        let name = key_of(key);
        let hash = self.cache.hash(&name);
        let initial = initial.map(|value| (Expiry::NEVER, value));
        let outcome = self.worker().arith(&Arith {
            key: &name,
            hash,
            increment,
            delta,
            initial,
            compare,
            explicit_cas,
            expiry: None,
            binary_key: false,
        });
        let now = self.live(key).cloned();
        match outcome {
            ArithOutcome::Done { value, cas, expiry, created: true } => {
                self.absent(key, "arith");
                assert_eq!(Some((expiry, value)), initial);
                let value = value.to_string().into_bytes();
                let known =
                    Known { value, flags: 0, cas: Some(cas), expiry, stale: false, token_sent: false };
                self.known.insert(key, known);
            }
            ArithOutcome::Done { value, cas, expiry, created: false } => {
                let now = now.expect("counted what was not there");
                assert!(compare.is_none() || compare == now.cas);
                let old = number_of(&now.value).expect("a number");
                let counted = if increment { old.wrapping_add(delta) } else { old.saturating_sub(delta) };
                assert_eq!(value, counted);
                assert_eq!(expiry, now.expiry);
                let mut digits = value.to_string().into_bytes();
                // A number that gets longer is a new item.
                let is_new = digits.len() > now.value.len();
                digits.resize(digits.len().max(now.value.len()), b' ');
                let (stale, token_sent) = (now.stale && !is_new, now.token_sent && !is_new);
                self.known.insert(key, Known { value: digits, cas: Some(cas), stale, token_sent, ..now });
            }
            ArithOutcome::NotFound => self.absent(key, "arith"),
            ArithOutcome::NonNumeric => {
                // The value of a chain is no number, as in memcached.
                let value = now.expect("something is there").value;
                assert!(number_of(&value).is_none() || value.len() > self.cache.whole_value_bytes_max());
            }
            ArithOutcome::Exists => {
                assert!(compare.is_some() && compare != now.expect("something is there").cas);
            }
            ArithOutcome::NoRoom => self.no_room("arith"),
        }
    }

    fn touch(&mut self, key: u8, ttl: Ttl) {
        self.bring(key, true);
        let name = key_of(key);
        let hash = self.cache.hash(&name);
        let expiry = self.expiry(ttl);
        match self.worker().touch(hash, &name, expiry) {
            Touched::Done => {
                assert!(self.live(key).is_some(), "touched key {key}, which was not there");
                self.known.get_mut(&key).expect("live").expiry = expiry;
            }
            Touched::NotFound => self.absent(key, "touch"),
            Touched::NoRoom => self.no_room("touch"),
        }
    }

    fn claim(&mut self, key: u8) {
        self.check(key, false);
        let name = key_of(key);
        let hash = self.cache.hash(&name);
        let worker = self.worker();
        let won = worker.get(hash, &name).is_some().then(|| worker.claim_token(hash, &name));
        match won {
            None => self.absent(key, "claim"),
            Some(won) => {
                let known = self.known.get_mut(&key).expect("it was looked up");
                assert_eq!(won, !known.token_sent, "only the first claim wins");
                known.token_sent = true;
            }
        }
    }

    fn go_on_uploading(&mut self, share: u8) {
        let Some(mut arriving) = self.arriving.take() else { return };
        let left = arriving.value.len() - arriving.filled;
        let end = arriving.filled + (left * share as usize).div_ceil(255);
        let worker = self.hand(arriving.worker);
        if !worker.fill_upload(&mut arriving.upload, &arriving.value[arriving.filled..end]) {
            worker.abandon_upload(arriving.upload);
            return self.no_room("upload");
        }
        arriving.filled = end;
        if end < arriving.value.len() {
            self.arriving = Some(arriving);
            return;
        }
        let Arriving { upload, worker, key, value, .. } = arriving;
        let name = key_of(key);
        let store = Store { flags: 5, ..Store::set(&name, self.cache.hash(&name), &[]) };
        let outcome = self.hand(worker).complete_upload(upload, &store);
        let fresh =
            Known { value, flags: 5, cas: None, expiry: Expiry::NEVER, stale: false, token_sent: false };
        self.stored(key, &store, fresh, outcome);
    }

    fn begin_read(&mut self, key: u8) {
        self.check(key, false);
        let name = key_of(key);
        let hash = self.cache.hash(&name);
        let turn = self.turn;
        let worker = &*self.hand(turn);
        let Some(hit) = worker.get(hash, &name) else { return };
        if matches!(hit.value(), Value::Chunked { .. }) {
            // All readers together may pin only a part of the columns.
            let Some(read) = worker.begin_large_read(&hit) else { return };
            let expected = self.known[&key].value.clone();
            if let Some((old, worker, ..)) = self.reading.replace((read, turn, Vec::new(), expected)) {
                self.workers[worker].end_large_read(old);
            }
        }
    }

    fn go_on_reading(&mut self, most: usize) {
        let Some((mut read, worker, mut out, expected)) = self.reading.take() else { return };
        let more = self.hand(worker).continue_large_read(&mut read, most, &mut out);
        assert!(out.len() <= expected.len() && out[..] == expected[..out.len()], "a large read went astray");
        assert!(more || out.len() == expected.len(), "a large read ended early");
        if more {
            self.reading = Some((read, worker, out, expected));
        } else {
            self.workers[worker].end_large_read(read);
        }
    }

    fn list(&mut self) {
        let mut listed = Vec::new();
        let mut tour = self.worker().begin_tour();
        while self.worker().list(&mut tour, 1000, Duration::ZERO, &mut listed) != Toured::End {}
        for key in 0..KEYS {
            let name = key_of(key);
            let mut of_key = listed.iter().filter(|item| item.key == name);
            let first = of_key.next();
            // The keeper splits buckets during the walk. An item whose bucket is split may be listed twice, but it is
            // one item.
            assert!(
                of_key.all(|again| first.is_some_and(|first| first.cas == again.cas)),
                "key {key} is listed twice"
            );
            match (first.map(|item| item.value_bytes as usize), self.live(key)) {
                (Some(bytes), Some(known)) => assert_eq!(bytes, known.value.len()),
                (None, Some(_)) => assert!(self.lossy, "key {key} is not listed"),
                (None, None) => {}
                (Some(_), None) => panic!("key {key} is listed, but was not there"),
            }
        }
    }

    fn flush(&mut self, after_s: Option<u32>) {
        // A flush waits until the device has it.
        self.stall(false);
        let due_s = after_s.map(|seconds| self.now_s() + seconds);
        self.cache.flush(due_s);
        self.flush_due_s = due_s;
        if due_s.is_none() {
            self.known.clear();
        }
    }

    fn flush_prefix(&mut self, key: u8, less: usize) {
        self.stall(false);
        let prefix = prefix_of(key, less);
        // Flash may have no room for another prefix.
        if self.cache.flush_prefix(&prefix).is_ok() {
            self.known.retain(|key, _| !key_of(*key).starts_with(&prefix));
        }
    }

    fn wait(&mut self, seconds: u32) {
        if self.flush_due_s.is_some() {
            self.stall(false);
        }
        self.cache.clock().shift(i64::from(seconds));
        if let Some(tier_now_s) = &self.tier_now_s {
            tier_now_s.fetch_add(seconds, Relaxed);
        }
        let now_s = self.cache.tick();
        (0..2).for_each(|number| self.hand(number).tick());
        if self.flush_due_s.is_some_and(|due_s| due_s <= now_s) {
            self.flush_due_s = None;
            self.known.clear();
        }
    }

    fn fill(&mut self) {
        let value = vec![b'f'; FILL_BYTES];
        for number in 0..FILL_ITEMS {
            self.count += 1;
            // Where nothing is evicted, the same items are stored again.
            let name = format!("fill-{}-{number}", if self.evict { self.count } else { 0 }).into_bytes();
            let store = Store::set(&name, self.cache.hash(&name), &value);
            let outcome = self.worker().store(&store);
            if outcome == StoreOutcome::NoRoom {
                return self.no_room("fill");
            }
        }
    }

    fn play(&mut self, op: Op) {
        match op {
            Op::Store { key, mode, bytes, ttl, cas, vivify } => {
                let value = self.value(key, bytes);
                let vivify = vivify
                    .then_some(Ttl::Seconds(9))
                    .filter(|_| matches!(mode, Mode::Append | Mode::Prepend));
                self.store(Wanted { key, mode, value, ttl, cas, vivify, pieces: 0 });
            }
            Op::Upload { key, mode, bytes, pieces, ttl, cas } => {
                let value = self.value(key, bytes);
                self.store(Wanted { key, mode, value, ttl, cas, vivify: None, pieces });
            }
            Op::BeginUpload { key, bytes } if self.arriving.is_none() => {
                let value = self.value(key, bytes);
                let (hash, worker) = (self.cache.hash(&key_of(key)), self.turn);
                match self.worker().begin_upload(hash, bytes as u32) {
                    Some(upload) => self.arriving = Some(Arriving { upload, worker, key, value, filled: 0 }),
                    None => self.no_room("upload"),
                }
            }
            Op::BeginUpload { .. } => {}
            Op::GoOnUploading { share } => self.go_on_uploading(share),
            Op::AbandonUpload => {
                if let Some(arriving) = self.arriving.take() {
                    self.hand(arriving.worker).abandon_upload(arriving.upload);
                }
            }
            Op::Delete { key, cas, invalidate, drop_value, ttl } => {
                self.count += 1;
                self.delete(key, cas, invalidate, drop_value, ttl);
            }
            Op::Number { key, value, end } => {
                self.count += 1;
                let digits = format!("{value}{end}").into_bytes();
                let (mode, ttl, cas) = (Mode::Set, Ttl::Never, Cas::Any);
                self.store(Wanted { key, mode, value: digits, ttl, cas, vivify: None, pieces: 0 });
            }
            Op::Arith { key, increment, delta, initial, cas } => {
                self.arith(key, increment, delta, initial, cas)
            }
            Op::Touch { key, ttl } => self.touch(key, ttl),
            Op::Get { key } => self.check(key, false),
            Op::GetInStages { key } => self.check(key, true),
            Op::Claim { key } => self.claim(key),
            Op::BeginRead { key } => self.begin_read(key),
            Op::GoOnReading { most } => self.go_on_reading(most),
            Op::List => self.list(),
            Op::Flush { after_s } => self.flush(after_s),
            Op::FlushPrefix { key, less } => self.flush_prefix(key, less),
            Op::Wait { seconds } => self.wait(seconds),
            Op::Change => self.turn = 1 - self.turn,
            Op::Sleep => {
                self.promote_late();
                self.worker().offline();
                self.worker().online();
            }
            Op::Restart => self.restart(),
            Op::Stall => self.stall(!self.is_stalled),
            Op::Fill if self.lossy || !self.evict => self.fill(),
            Op::Fill => {}
        }
        if let Some(flash) = self.cache.flash_tier()
            && !self.is_stalled
        {
            flash.tend();
        }
        let used = self.cache.memory_use();
        assert!(
            used.columns_bytes + used.index_bytes + used.bookkeeping_bytes <= used.limit_bytes,
            "{used:?}"
        );
    }

    fn end(mut self) {
        for key in 0..KEYS {
            self.check(key, false);
        }
        self.let_go();
    }
}

fn play(setup: &Setup, ops: Vec<Op>) {
    let mut play = Play::new(setup);
    let keeper = setup.keeper.then(|| play.cache.keep().expect("a thread can be started"));
    let cache = play.cache.clone();
    // The keeper must end, however the play ends.
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
        for op in ops {
            play.play(op);
        }
        play.end();
    }));
    if let Some(keeper) = keeper {
        cache.stop_keeper();
        keeper.join().expect("the keeper does not panic");
    }
    if let Err(panic) = ended {
        std::panic::resume_unwind(panic);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 256, max_shrink_iters: 2000, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn with_room_to_spare_nothing_is_lost(ops in prop::collection::vec(op(), 1..250), keeper in any::<bool>()) {
        play(&Setup { limit_bytes: 128 << 20, evict: true, lossy: false, keeper, levels: None }, ops);
    }

    #[test]
    fn without_eviction_nothing_is_lost(ops in prop::collection::vec(op(), 1..250), keeper in any::<bool>()) {
        play(&Setup { limit_bytes: 16 << 20, evict: false, lossy: false, keeper, levels: None }, ops);
    }

    #[test]
    fn under_pressure_nothing_wrong_is_served(
        ops in prop::collection::vec(op(), 1..250),
        keeper in any::<bool>(),
        limit_mib in 10u64..17,
    ) {
        play(&Setup { limit_bytes: limit_mib << 20, evict: true, lossy: true, keeper, levels: None }, ops);
    }

    #[test]
    fn two_levels_serve_nothing_wrong(
        ops in prop::collection::vec(op(), 1..250),
        keeper in any::<bool>(),
        limit_mib in 8u64..14,
        exclusive in select(vec![Exclusive::Lazy, Exclusive::Strict]),
        recover in select(vec![Recover::Clean, Recover::Journal]),
        choosy in select(vec![Choosy::All, Choosy::All, Choosy::Read, Choosy::Budget]),
        zones in select(vec![TINY_ZONES, 40, 300]),
        evict in prop::bool::weighted(0.8),
    ) {
        let levels = Some(Levels { exclusive, recover, choosy, zones });
        play(&Setup { limit_bytes: limit_mib << 20, evict, lossy: true, keeper, levels }, ops);
    }
}
