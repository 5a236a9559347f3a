//! Reading items, and counting hits and misses.

use super::Executor;
use super::flash::Looked;
use super::parts::is_over;
use crate::dispatch::operation::{Create, Get, ItemKey, Need, Read, Recache, ValueWanted};
use crate::dispatch::outcome::{
    ComposeGet, FoundItem, GetOutcome, ItemDetails, ItemValue, Outcome, ReadOutcome, Tail,
};
use crate::dispatch::output::OUTPUT_SOFT_BYTES;
use crate::dispatch::progress::{Progress, ValueSource};
use crate::io::Charge;
use larder_cache::{
    Expanded, Expiry, Found, Hit, KeyHash, Mode, State, Store, StoreOutcome, TagMatch, Touched, Value,
};

/// Seconds that an item lives which a read created with an expiry in the past: until its first reply is written.
const CREATED_TTL_S: i64 = 60;

impl Executor {
    /// Reads a value. `hint` = what a lookup ahead found. Returns `false` if the key has to be waited for; see
    /// [`Executor::execute`].
    #[inline(always)]
    pub(in crate::dispatch) fn get(
        &mut self,
        progress: &mut Progress,
        get: &Get<'_>,
        hint: Option<TagMatch>,
        composer: impl ComposeGet,
    ) -> bool {
        let hit = match hint.and_then(|seen| self.worker.confirm(get.hash, seen, get.key)) {
            Some(hit) => Some(hit),
            None => self.worker.get(get.hash, get.key),
        };
        match hit {
            Some(hit) if get.touch.is_none() => self.show(progress, get, &hit, composer),
            Some(_) => self.touch_and_get(progress, get, composer),
            None if self.fetches.is_some() => return self.get_from_flash(progress, get, composer),
            None => self.show_miss(progress, get, composer),
        }
        true
    }

    /// Counts a hit in memory and shows it.
    #[inline(always)]
    fn show<C: ComposeGet>(&self, progress: &mut Progress, get: &Get<'_>, hit: &Hit<'_>, composer: C) {
        progress.tries = 0;
        self.count_hit(get);
        self.observe_hit(progress.fd, get, || hit.value_bytes());
        self.worker.note_fetch(hit);
        let cas = get.with_cas.then(|| self.shown_cas(hit.cas()));
        // That it is no collection is told by the flags, where they are shown, or by the header, whichever is cheaper.
        let flags = if C::SHOWS_FLAGS { hit.item.flags() } else { 0 };
        let whole = match hit.value() {
            _ if !C::SHOWS_FLAGS => hit.item.plain_value(),
            Value::Whole(value) if flags == 0 || !hit.item.kind().is_collection() => Some(value),
            _ => None,
        };
        match whole {
            Some(value) => {
                composer.compose(GetOutcome::Hit(FoundItem { flags, cas, value: ItemValue::Whole(value) }));
            }
            None => self.show_unusual(progress, hit, (flags, cas), composer),
        }
    }

    /// Shows an item that is large or compressed, or expires within a second, or is a collection.
    #[inline(never)]
    fn show_unusual(
        &self,
        progress: &mut Progress,
        hit: &Hit<'_>,
        (flags, cas): (u32, Option<u64>),
        composer: impl ComposeGet,
    ) {
        if hit.item.kind().is_collection() {
            let is_over = is_over(&self.worker, hit, &[], self.unix_ms());
            composer.compose(if is_over { GetOutcome::Miss } else { GetOutcome::WrongKind });
            return;
        }
        let mut room = None;
        match self.shown_value(hit, &mut room) {
            None => _ = composer.compose(GetOutcome::NoMemory),
            Some((value, source)) => {
                let tail = composer.compose(GetOutcome::Hit(FoundItem { flags, cas, value }));
                progress.send(source, tail);
            }
        }
    }

    /// Counts a hit, in memory or on flash. A retrieval that touches counts as a touch only, as in memcached; the touch
    /// itself is counted by [`Executor::touch`].
    #[inline(always)]
    fn count_hit(&self, get: &Get<'_>) {
        if get.touch.is_none() {
            let counters = self.worker.counters();
            counters.cmd_get.add(1);
            counters.get_hits.add(1);
        }
    }

    /// The value of an item as it is shown, and where it comes from if it is large. `None` = there is no memory to
    /// stream it. `room` is for a value that is compressed.
    #[inline(always)]
    pub(super) fn shown_value<'s, 'h>(
        &'s self,
        hit: &'h Hit<'_>,
        room: &'h mut Option<Expanded<'s>>,
    ) -> Option<(ItemValue<'h>, Option<ValueSource>)> {
        match hit.value() {
            Value::Whole(value) => Some((ItemValue::Whole(value), None)),
            Value::Compressed(stored) => {
                Some((ItemValue::Whole(room.insert(self.worker.expand(hit.at, stored))), None))
            }
            Value::Chunked { total, .. } => {
                let source = ValueSource::Memory(self.worker.begin_large_read(hit)?);
                Some((ItemValue::Streamed { bytes: total }, Some(source)))
            }
        }
    }

    /// Sets a new expiry and shows the value of an item that is there. An expiry in the past shows the item once more
    /// and then ends it; any other is set first, for the client must not hear of a success if it cannot be set.
    #[cold]
    #[inline(never)]
    fn touch_and_get(&mut self, progress: &mut Progress, get: &Get<'_>, composer: impl ComposeGet) {
        if self.is_collection(&ItemKey { key: get.key, hash: get.hash, head: &[] }) {
            progress.tries = 0;
            composer.compose(GetOutcome::WrongKind);
            return;
        }
        let past = get.touch.filter(|expiry| expiry.is_past(self.clock().now_s()));
        if let Some(expiry) = get.touch.filter(|_| past.is_none())
            && self.touch_shown(get.key, get.hash, expiry) == Touched::NoRoom
        {
            progress.tries = 0;
            _ = composer.compose(GetOutcome::NoMemory);
            return;
        }
        match self.worker.peek(get.hash, get.key) {
            Some(hit) => self.show(progress, get, &hit, composer),
            None => return self.show_miss(progress, get, composer),
        }
        if let Some(expiry) = past {
            self.touch_shown(get.key, get.hash, expiry);
        }
    }

    /// Counts a miss.
    #[inline]
    fn show_miss(&self, progress: &mut Progress, get: &Get<'_>, composer: impl ComposeGet) {
        progress.tries = 0;
        let counters = self.worker.counters();
        if get.touch.is_none() {
            counters.cmd_get.add(1);
            counters.get_misses.add(1);
        } else {
            counters.cmd_touch.add(1);
            counters.touch_misses.add(1);
        }
        self.worker.note_miss(get.hash, get.key);
        self.observe_miss(progress.fd, get);
        composer.compose(GetOutcome::Miss);
    }

    /// Reads a value that memory does not have.
    #[inline(never)]
    fn get_from_flash(&mut self, progress: &mut Progress, get: &Get<'_>, composer: impl ComposeGet) -> bool {
        // What is touched has to be in memory.
        let need = if get.touch.is_some() { Need::Memory } else { Need::Show };
        match self.look_on_flash(progress, get.hash, get.key, need) {
            Looked::Waits => return false,
            Looked::Promoted => match self.worker.get(get.hash, get.key) {
                Some(hit) if get.touch.is_none() => self.show(progress, get, &hit, composer),
                Some(_) => self.touch_and_get(progress, get, composer),
                None => self.show_miss(progress, get, composer),
            },
            Looked::Found(found, charge) => self.show_from_flash(progress, get, found, charge, composer),
            Looked::Miss | Looked::NotBrought => self.show_miss(progress, get, composer),
        }
        true
    }

    /// Shows what came from flash without taking it to memory.
    fn show_from_flash(
        &self,
        progress: &mut Progress,
        get: &Get<'_>,
        found: Found,
        charge: Charge,
        composer: impl ComposeGet,
    ) {
        progress.tries = 0;
        self.count_hit(get);
        self.observe_hit(progress.fd, get, || found.value.len() as u32);
        self.worker.note_flash_hit(get.hash, get.key, &found);
        if found.state.extension().kind.is_collection() {
            composer.compose(GetOutcome::WrongKind);
            return;
        }
        let is_large = found.value.len() > OUTPUT_SOFT_BYTES;
        let value = match is_large {
            false => ItemValue::Whole(&found.value),
            true => ItemValue::Streamed { bytes: found.value.len() as u32 },
        };
        let cas = get.with_cas.then(|| self.shown_cas(found.cas));
        let tail = composer.compose(GetOutcome::Hit(FoundItem { flags: found.flags, cas, value }));
        if is_large {
            progress.send(Some(ValueSource::Copy { value: found.value, sent: 0, charge }), tail);
        }
    }

    /// The CAS number that clients are shown: 0 where CAS is switched off (`-C`).
    #[inline]
    pub(super) fn shown_cas(&self, cas: u64) -> u64 {
        if self.state.settings().cas_enabled { cas } else { 0 }
    }

    /// Reads an item with its details, and does what the read asks for beside.
    #[inline]
    pub(super) fn read(
        &mut self,
        progress: &mut Progress,
        read: &Read<'_>,
        compose: impl FnOnce(Outcome<'_>) -> Tail,
    ) {
        match read.create.is_some() || read.touch.is_some() {
            true => self.read_and_change(progress, read, compose),
            false => self.show_read(progress, read, Changed::default(), compose),
        }
    }

    /// A read that may create the item, or set its expiry.
    #[inline(never)]
    fn read_and_change(
        &mut self,
        progress: &mut Progress,
        read: &Read<'_>,
        compose: impl FnOnce(Outcome<'_>) -> Tail,
    ) {
        let Read { key, hash, .. } = *read;
        if !matches!(read.value, ValueWanted::No) && self.is_collection(&ItemKey { key, hash, head: &[] }) {
            // It is not shown, so it is not changed.
            return self.show_read(progress, read, Changed::default(), compose);
        }
        let missing = read.create.as_ref().filter(|_| self.worker.peek(hash, key).is_none());
        if missing.is_some() {
            self.worker.note_miss(hash, key);
        }
        // Another client may create the item first: then it is there, with its token given away.
        let created = missing.is_some_and(|create| self.create(key, hash, create));
        let before = match self.touch_first(read, created) {
            Ok(before) => before,
            Err(refused) => {
                compose(Outcome::Read(refused));
                return;
            }
        };
        self.show_read(progress, read, Changed { was_missing: missing.is_some(), created, before }, compose);
    }

    /// Shows an item.
    #[inline(always)]
    fn show_read(
        &mut self,
        progress: &mut Progress,
        read: &Read<'_>,
        changed: Changed,
        compose: impl FnOnce(Outcome<'_>) -> Tail,
    ) {
        let Read { key, hash, .. } = *read;
        let Changed { was_missing, created, before } = changed;
        // What was missing is shown, but was not used.
        let hit = match read.leaves_no_trace || was_missing {
            true => self.worker.peek(hash, key),
            false => self.worker.get(hash, key),
        };
        let wants_value = !matches!(read.value, ValueWanted::No);
        // The clients of memcached have no use for a collection.
        let hit =
            hit.filter(|hit| !(wants_value && hit.item.flags() != 0 && hit.item.kind().is_collection()));
        let counters = self.worker.counters();
        self.count_for_namespace(key, hit.is_some() && !was_missing);
        let Some(hit) = hit else {
            counters.cmd_get.add(1);
            counters.get_misses.add(1);
            if !was_missing {
                self.worker.note_miss(hash, key);
            }
            let is_refused = was_missing && !created;
            let outcome = if is_refused { ReadOutcome::NoMemoryToCreate } else { ReadOutcome::Miss };
            compose(Outcome::Read(outcome));
            return;
        };
        // A read that touches is counted by the touch below.
        if read.touch.is_none() {
            counters.cmd_get.add(1);
            if was_missing { &counters.get_misses } else { &counters.get_hits }.add(1);
        }
        let cas = if read.with_cas { self.shown_cas(hit.cas()) } else { 0 };
        let wants_value = match read.value {
            ValueWanted::No => false,
            ValueWanted::Yes => true,
            ValueWanted::UnlessCas(known) => known != self.shown_cas(hit.cas()),
        };
        let (mut value, mut source, mut room) = (None, None, None);
        if wants_value {
            let Some(shown) = self.shown_value(&hit, &mut room) else {
                compose(Outcome::Read(ReadOutcome::NoMemoryToShow));
                return;
            };
            (value, source) = (Some(shown.0), shown.1);
        }
        let (state, expiry) = before.unwrap_or_else(|| (hit.item.state(), hit.expiry()));
        let token_taken = state.has(State::TOKEN_SENT) && !created;
        let token_won = created || (!token_taken && self.wins_token(read, state, expiry));
        if !read.leaves_no_trace {
            self.worker.note_fetch(&hit);
        }
        let tail = compose(Outcome::Read(ReadOutcome::Hit(ItemDetails {
            value,
            flags: hit.item.flags(),
            cas,
            value_bytes: hit.value_bytes(),
            expiry,
            created,
            was_fetched: state.has(State::FETCHED),
            idle_s: state.idle_s(self.clock().now_s()),
            penalty: hit.penalty(),
            binary_key: state.has(State::BINARY_KEY),
            is_stale: state.has(State::STALE),
            token_taken,
            token_won,
        })));
        progress.send(source, tail);
        drop(room);
        if let Some(expiry) = new_expiry(read, created, expiry).filter(|_| before.is_none()) {
            self.touch_shown(key, hash, expiry);
        }
    }

    /// As for a plain read: an expiry in the past is set after the item was shown, and any other before. Returns the
    /// state and the expiry that the item had then.
    fn touch_first(
        &mut self,
        read: &Read<'_>,
        created: bool,
    ) -> Result<Option<(State, Expiry)>, ReadOutcome<'static>> {
        let Some(hit) = self.worker.peek(read.hash, read.key) else { return Ok(None) };
        let before = (hit.item.state(), hit.expiry());
        let expiry = new_expiry(read, created, before.1).filter(|new| !new.is_past(self.clock().now_s()));
        match expiry.map(|expiry| self.touch_shown(read.key, read.hash, expiry)) {
            None => Ok(None),
            Some(Touched::NoRoom) => Err(ReadOutcome::NoMemoryToShow),
            Some(_) => Ok(Some(before)),
        }
    }

    /// Whether the client gets the token of an item that nobody has it of.
    #[inline]
    fn wins_token(&self, read: &Read<'_>, state: State, expiry: Expiry) -> bool {
        let wants = match read.recache {
            Recache::Never => false,
            recache => state.has(State::STALE) || wants_recache(recache, expiry),
        };
        let wins = wants && self.worker.claim_token(read.hash, read.key);
        if wins {
            // The client fetches the value now, whether there is an old one or none.
            self.worker.note_miss(read.hash, read.key);
        }
        wins
    }

    /// Creates an empty item whose token the caller holds. Returns whether this call created it. The item lives long
    /// enough to be shown, though its expiry may be past.
    fn create(&mut self, key: &[u8], hash: KeyHash, create: &Create) -> bool {
        let clock = self.clock();
        let expiry = match create.expiry {
            past if past.is_past(clock.now_s()) => {
                Expiry::from_exptime(CREATED_TTL_S, clock.now_s(), clock.started_unix_s())
            }
            expiry => expiry,
        };
        let outcome = self.worker.store_placeholder(&Store {
            key,
            hash,
            mode: Mode::Add,
            flags: 0,
            expiry,
            value: &[],
            compare: None,
            explicit_cas: create.explicit_cas,
            invalidate: false,
            vivify: None,
            binary_key: create.binary_key,
            penalty: None,
            marks_parts: false,
        });
        matches!(outcome, StoreOutcome::Stored { .. }) && self.worker.claim_token(hash, key)
    }
}

/// What a read has done before the item is shown.
#[derive(Default)]
struct Changed {
    /// There was no item.
    was_missing: bool,
    /// It was created.
    created: bool,
    /// The state and the expiry that it had before it got another expiry.
    before: Option<(State, Expiry)>,
}

/// The expiry that an item gets, if it gets another. `shown` = the one it is shown with.
fn new_expiry(read: &Read<'_>, created: bool, shown: Expiry) -> Option<Expiry> {
    match (&read.create, created) {
        (Some(create), true) if read.touch.is_some() || create.final_expiry != shown => {
            Some(create.final_expiry)
        }
        (Some(_), true) => None,
        _ => read.touch,
    }
}

/// Whether a client that reads an item of this expiry wants to fetch it anew.
fn wants_recache(recache: Recache, expiry: Expiry) -> bool {
    match recache {
        Recache::Never | Recache::WhenStale => false,
        Recache::Before(limit) => expiry != Expiry::NEVER && expiry < limit,
        Recache::Always => true,
    }
}
