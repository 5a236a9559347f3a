//! Keys that are on flash: a connection that needs one waits, and its worker goes on with others.
//!
//! A request is executed again from its beginning when what it waited for has come, so nothing of it is remembered but
//! what was fetched: the connection keeps the tokens, in the order it asked for them, and the worker's [`Fetches`] the
//! results, until the request looks for them. While a connection waits, the keys of what follows in its input are fetched
//! as well. What came is only a hint: it is used if it is still the newest version when its request is executed.
//!
//! Replies to writes that are not durable yet (mode `journal`) are held back by the connection; they go out when the
//! worker hears that their commit is.

use super::connection::{Busy, Charge, Promoting, Wanted};
use super::{Connection, Dispatcher, meta_key};
use crate::io::{Buffers, ConnectionId, Ready};
use crate::latency::WorkerLatency;
use larder_cache::{Commit, Fetch, Found, KEY_BYTES_MAX, KeyHash};
use larder_protocol::{MetaVerb, Request, Step, StoreVerb, parse};
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

/// After so many results that were out of date when they came, the key counts as absent.
const TRIES_MAX: u8 = 3;
/// Reads of one worker while connection buffers are half full.
const TIGHT_DEPTH: usize = 4;
/// Keys looked at ahead of a request that waits.
const LOOKS_AHEAD: usize = 256;

/// What there is of a key that memory does not have.
pub(super) enum Looked {
    /// Nothing.
    Miss,
    /// This, and it is the newest version.
    Found(Found, Charge),
    /// It is in memory now.
    Promoted,
    /// The connection waits.
    Waits,
}

/// What a request does with the present item.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// Shows its value: promotion is a matter of warmth.
    Show,
    /// Needs it in memory.
    Memory,
    /// Needs to know whether it is there.
    Know,
}

/// One worker's fetches, by token.
pub(super) struct Fetches {
    slots: Vec<Slot>,
    free: Vec<u32>,
    in_flight: usize,
    depth: usize,
    /// Whatever is read is promoted.
    strict: bool,
    buffers: Option<Arc<Buffers>>,
    /// Connections that found the queue full, in their order, and which of them still wait.
    queue: VecDeque<ConnectionId>,
    queued: HashSet<ConnectionId>,
    /// Connections whose replies are held back, and until when.
    uncommitted: Vec<(ConnectionId, Commit)>,
}

struct Slot {
    id: ConnectionId,
    state: State,
    /// The connection can do nothing without it.
    blocks: bool,
    began: Instant,
}

enum State {
    Free,
    Pending,
    /// Under way, but nobody waits for it any more.
    Orphan,
    Done(Option<(Found, Charge)>),
    /// It came when buffers were full, and has to be fetched again.
    Dropped,
}

impl Fetches {
    pub(super) fn new(depth: u32, strict: bool) -> Fetches {
        Fetches {
            slots: Vec::new(),
            free: Vec::new(),
            in_flight: 0,
            depth: depth as usize,
            strict,
            buffers: None,
            queue: VecDeque::new(),
            queued: HashSet::new(),
            uncommitted: Vec::new(),
        }
    }

    fn is_tight(&self) -> bool {
        self.buffers.as_ref().is_some_and(|buffers| buffers.used_bytes() * 2 > buffers.limit_bytes())
    }

    /// How many more reads may be started now.
    fn room(&self) -> usize {
        let depth = if self.is_tight() { self.depth.min(TIGHT_DEPTH) } else { self.depth };
        depth.saturating_sub(self.in_flight)
    }

    fn take_token(&mut self, id: ConnectionId) -> u32 {
        let slot = Slot { id, state: State::Pending, blocks: false, began: Instant::now() };
        match self.free.pop() {
            Some(token) => {
                self.slots[token as usize] = slot;
                token
            }
            None => {
                self.slots.push(slot);
                self.slots.len() as u32 - 1
            }
        }
    }

    fn give_token(&mut self, token: u32) {
        self.slots[token as usize].state = State::Free;
        self.free.push(token);
    }

    /// The connection finds the queue full: it has its turn when there is room.
    fn wait_for_room(&mut self, id: ConnectionId) {
        if self.queued.insert(id) {
            self.queue.push_back(id);
        }
    }

    /// Nobody waits for the fetch any more.
    fn forget(&mut self, token: u32) {
        match self.slots[token as usize].state {
            State::Pending => self.slots[token as usize].state = State::Orphan,
            State::Done(_) | State::Dropped => self.give_token(token),
            State::Free | State::Orphan => {}
        }
    }

    /// A fetch came to its end. Names its connection if that could do nothing without it.
    fn done(
        &mut self,
        token: u64,
        found: Option<Found>,
        wake: &mut Vec<ConnectionId>,
        latency: &WorkerLatency,
    ) {
        let Some(slot) = self.slots.get_mut(token as usize) else { return };
        latency.record_fetch(slot.began.elapsed().as_nanos() as u64);
        self.in_flight = self.in_flight.saturating_sub(1);
        if !matches!(slot.state, State::Pending) {
            return self.give_token(token as u32);
        }
        let result = match found {
            None => Ok(None),
            // Without what blocks it a connection would never get on, however full the buffers are.
            Some(found) => match charge(self.buffers.as_ref(), &found, slot.blocks) {
                Some(charge) => Ok(Some((found, charge))),
                None => Err(()),
            },
        };
        slot.state = result.map_or(State::Dropped, State::Done);
        if slot.blocks {
            wake.push(slot.id);
        }
    }

    /// Names connections that wait for room in the queue, as many as there is room for.
    fn wake_queue(&mut self, wake: &mut Vec<ConnectionId>) {
        let mut room = self.room();
        while room > 0
            && let Some(id) = self.queue.pop_front()
        {
            if self.queued.remove(&id) {
                wake.push(id);
                room -= 1;
            }
        }
    }
}

/// Accounts a result, if there is room for it or there has to be.
fn charge(buffers: Option<&Arc<Buffers>>, found: &Found, required: bool) -> Option<Charge> {
    let Some(buffers) = buffers else { return Some(Charge::default()) };
    let bytes = found.value.capacity() as u64;
    if required {
        buffers.take(bytes);
    } else if !buffers.try_take(bytes) {
        return None;
    }
    Some(Charge::of(buffers.clone(), bytes))
}

impl Dispatcher {
    /// Looks for a key that memory does not have. After [`Looked::Waits`] the request is not answered; it is executed again
    /// when the connection is woken.
    pub(super) fn look_on_flash(
        &mut self,
        connection: &mut Connection,
        hash: KeyHash,
        key: &[u8],
        wanted: Use,
    ) -> Looked {
        // A key that memory got meanwhile, or that was never on flash; the one branch of a server without flash.
        if !self.worker.flash_may_hold(hash, key) {
            return self.missed(hash, key);
        }
        let looked = self.look_further(connection, hash, key, wanted);
        if matches!(looked, Looked::Waits) {
            connection.waits = true;
        } else {
            connection.tries = 0;
        }
        looked
    }

    fn look_further(
        &mut self,
        connection: &mut Connection,
        hash: KeyHash,
        key: &[u8],
        wanted: Use,
    ) -> Looked {
        while connection.tries < TRIES_MAX {
            let Some(fetches) = &mut self.fetches else { return Looked::Miss };
            let result = match connection.fetched(hash, key) {
                Some(at) => {
                    let token = connection.wanted[at].token;
                    let slot = &mut fetches.slots[token as usize];
                    if matches!(slot.state, State::Pending) {
                        slot.blocks = true;
                        return Looked::Waits;
                    }
                    let state = std::mem::replace(&mut slot.state, State::Free);
                    fetches.free.push(token);
                    connection.wanted.remove(at);
                    match state {
                        State::Done(result) => result,
                        _ => continue,
                    }
                }
                None => match self.begin(connection, hash, key, true) {
                    Begun::Done(result) => result,
                    Begun::Waits => return Looked::Waits,
                },
            };
            let Some((found, charge)) = result else { return Looked::Miss };
            if !self.worker.is_current(hash, key, &found) {
                connection.tries += 1;
                continue;
            }
            return self.use_found(connection, (hash, key), found, charge, wanted);
        }
        Looked::Miss
    }

    /// What becomes of an item that is the newest version now.
    fn use_found(
        &mut self,
        connection: &mut Connection,
        (hash, key): (KeyHash, &[u8]),
        found: Found,
        charge: Charge,
        wanted: Use,
    ) -> Looked {
        let strict = self.fetches.as_ref().is_some_and(|fetches| fetches.strict);
        if wanted == Use::Know {
            return Looked::Found(found, charge);
        }
        if found.value.len() as u64 != found.value_bytes {
            return self.begin_promoting(connection, hash, key, found, charge);
        }
        if (wanted == Use::Memory || found.warm || strict) && self.worker.promote(hash, key, &found) {
            return Looked::Promoted;
        }
        match wanted {
            Use::Show => Looked::Found(found, charge),
            Use::Memory | Use::Know => self.missed(hash, key),
        }
    }

    /// Nothing of it on flash: but another worker may have brought it to memory since this one looked there.
    fn missed(&self, hash: KeyHash, key: &[u8]) -> Looked {
        match self.fetches.is_some() && self.worker.peek(hash, key).is_some() {
            true => Looked::Promoted,
            false => Looked::Miss,
        }
    }

    /// Begins to fetch a key. What `blocks` waits for room if there is none.
    fn begin(&mut self, connection: &mut Connection, hash: KeyHash, key: &[u8], blocks: bool) -> Begun {
        let Some(fetches) = &mut self.fetches else { return Begun::Done(None) };
        if fetches.buffers.is_none() {
            fetches.buffers = self.shared.buffers.get().cloned();
        }
        if fetches.room() == 0 {
            if blocks {
                fetches.wait_for_room(connection.id);
            }
            return Begun::Waits;
        }
        let token = fetches.take_token(connection.id);
        match self.worker.fetch(token.into(), hash, key) {
            Fetch::Started => {
                fetches.in_flight += 1;
                fetches.slots[token as usize].blocks = blocks;
                connection.wanted.push(Wanted { token, hash, key: key.into() });
                Begun::Waits
            }
            Fetch::Here(found) => {
                fetches.give_token(token);
                Begun::Done(charge(fetches.buffers.as_ref(), &found, true).map(|charge| (found, charge)))
            }
            Fetch::Absent => {
                fetches.give_token(token);
                Begun::Done(None)
            }
            Fetch::Busy => {
                fetches.give_token(token);
                if blocks {
                    fetches.wait_for_room(connection.id);
                }
                Begun::Waits
            }
        }
    }

    /// Fetches the keys of what follows in the input of a connection that waits.
    pub(super) fn fetch_ahead(&mut self, ready: &mut Ready<'_, Connection>) {
        let connection = &mut *ready.connection;
        let Some(fetches) = &self.fetches else { return };
        // What is under way for it is enough to go on with.
        if connection.wanted.len() * 2 > fetches.depth
            || connection.busy.is_some()
            || !connection.authenticated
        {
            return;
        }
        let mut buffer = [0; KEY_BYTES_MAX];
        let (mut at, mut skip, mut looks) = (ready.consumed, connection.keys_done, 0);
        while looks < LOOKS_AHEAD {
            let Step::Request { request, consumed } = parse(&ready.input[at..], &self.parse_options) else {
                return;
            };
            if let Request::Get(get) = &request {
                for key in get.keys.clone().skip(skip) {
                    looks += 1;
                    if looks > LOOKS_AHEAD || !self.begin_ahead(connection, key) {
                        return;
                    }
                }
            } else if let Some((key, _)) = present_key(&request, &mut buffer) {
                looks += 1;
                if !self.begin_ahead(connection, key) {
                    return;
                }
            } else {
                looks += 1;
            }
            skip = 0;
            at += consumed;
        }
    }

    /// Returns whether there is room for more.
    fn begin_ahead(&mut self, connection: &mut Connection, key: &[u8]) -> bool {
        let hash = self.worker.cache().hash(key);
        if connection.fetched(hash, key).is_some() || !self.worker.flash_might_be_asked(hash, key) {
            return true;
        }
        let Some(fetches) = &self.fetches else { return false };
        if fetches.room() == 0 || fetches.is_tight() || connection.wanted.len() >= fetches.depth {
            return false;
        }
        // What need not be waited for is found again as quickly when its request is executed.
        self.begin(connection, hash, key, false);
        true
    }

    /// Before a request that needs the present item: brings it to memory if it is on flash. Returns whether the request can be
    /// executed, and whether the item is there although memory does not have it.
    pub(super) fn bring_present(
        &mut self,
        connection: &mut Connection,
        request: &Request<'_>,
        hash: KeyHash,
    ) -> Option<bool> {
        let mut buffer = [0; KEY_BYTES_MAX];
        let Some((key, wanted)) = present_key(request, &mut buffer) else { return Some(false) };
        let is_base64 = matches!(request, Request::Meta(meta) if meta.flags.has(b'b'));
        let hash = if is_base64 { self.worker.cache().hash(key) } else { hash };
        match self.look_on_flash(connection, hash, key, wanted) {
            Looked::Waits => None,
            Looked::Found(..) => Some(true),
            Looked::Miss | Looked::Promoted => Some(false),
        }
    }

    // ---- values in parts ----

    fn begin_promoting(
        &mut self,
        connection: &mut Connection,
        hash: KeyHash,
        key: &[u8],
        found: Found,
        charge: Charge,
    ) -> Looked {
        let Some(promotion) = self.worker.begin_promotion(hash, key, &found) else { return Looked::Miss };
        let mut promoting = Box::new(Promoting { promotion, hash, key: key.into(), found, token: None });
        // The first part is in the promotion now; what else is in `found` is still needed.
        promoting.found.value = Vec::new();
        drop(charge);
        connection.busy = Some(Busy::Promoting(promoting));
        self.continue_promoting(connection);
        // In memory, if all went well and nothing had to be waited for.
        if connection.busy.is_some() { Looked::Waits } else { Looked::Promoted }
    }

    /// Goes on with a value in parts: takes in the part that has come, and asks for the next.
    pub(super) fn continue_promoting(&mut self, connection: &mut Connection) {
        let Some(Busy::Promoting(mut promoting)) = connection.busy.take() else { return };
        loop {
            match self.promote_part(connection.id, &mut promoting) {
                Part::Taken => {}
                Part::Waits => {
                    connection.waits = true;
                    connection.busy = Some(Busy::Promoting(promoting));
                    return;
                }
                Part::Last => {
                    let Promoting { promotion, hash, key, found, .. } = *promoting;
                    if !self.worker.complete_promotion(promotion, hash, &key, &found) {
                        // It was replaced meanwhile, or there is no room.
                        connection.tries += 1;
                    }
                    return;
                }
                Part::Missing => {
                    self.worker.abandon_promotion(promoting.promotion);
                    connection.tries = TRIES_MAX;
                    return;
                }
            }
        }
    }

    fn promote_part(&mut self, id: ConnectionId, promoting: &mut Promoting) -> Part {
        let Some(fetches) = &mut self.fetches else { return Part::Missing };
        let result = match promoting.token {
            Some(token) => {
                let slot = &mut fetches.slots[token as usize];
                if matches!(slot.state, State::Pending) {
                    slot.blocks = true;
                    return Part::Waits;
                }
                promoting.token = None;
                let state = std::mem::replace(&mut slot.state, State::Free);
                fetches.free.push(token);
                match state {
                    State::Done(Some((part, _))) => part,
                    _ => return Part::Missing,
                }
            }
            None => {
                let Some(part) = promoting.promotion.next_part() else { return Part::Last };
                if fetches.room() == 0 {
                    fetches.wait_for_room(id);
                    return Part::Waits;
                }
                let token = fetches.take_token(id);
                let Promoting { hash, key, found, .. } = promoting;
                match self.worker.fetch_part(token.into(), *hash, key, found, part) {
                    Fetch::Started => {
                        fetches.in_flight += 1;
                        fetches.slots[token as usize].blocks = true;
                        promoting.token = Some(token);
                        return Part::Waits;
                    }
                    Fetch::Busy => {
                        fetches.give_token(token);
                        fetches.wait_for_room(id);
                        return Part::Waits;
                    }
                    Fetch::Absent => {
                        fetches.give_token(token);
                        return Part::Missing;
                    }
                    Fetch::Here(part) => {
                        fetches.give_token(token);
                        part
                    }
                }
            }
        };
        if self.worker.fill_promotion(&mut promoting.promotion, &result) {
            Part::Taken
        } else {
            Part::Missing
        }
    }

    // ---- news ----

    /// Reads that this worker has under way.
    pub(super) fn reads_under_way(&self) -> u64 {
        self.fetches.as_ref().map_or(0, |fetches| fetches.in_flight as u64)
    }

    /// What was fetched has come, or invalidations have become durable.
    pub(super) fn hear_of_flash(&mut self, wake: &mut Vec<ConnectionId>) {
        let Some(fetches) = &mut self.fetches else { return };
        let latency = &*self.latency;
        self.worker.poll_fetches(&mut |token, found| fetches.done(token, found, wake, latency));
        fetches.wake_queue(wake);
        let committed = self.worker.flash_committed();
        self.pool.committed.set(committed);
        fetches.uncommitted.retain(|(id, commit)| {
            let holds = *commit > committed;
            if !holds {
                wake.push(*id);
            }
            holds
        });
    }

    /// After an operation: what it wrote may have to be durable before it is answered.
    #[inline]
    pub(super) fn hold_uncommitted(&mut self, connection: &mut Connection) {
        if self.fetches.is_some()
            && let Some(commit) = self.worker.take_commit()
        {
            connection.hold(commit);
        }
    }

    /// At the end of a turn: fetches ahead for connections that wait, remembers those whose replies are held back, and
    /// hands what was begun to the device.
    pub(super) fn settle_flash(&mut self, batch: &mut [Ready<'_, Connection>]) {
        for ready in batch.iter_mut() {
            if ready.connection.waits {
                self.fetch_ahead(ready);
            }
            let Some(fetches) = &mut self.fetches else { return };
            if !ready.connection.waits
                && ready.consumed == ready.input.len()
                && ready.connection.busy.is_none()
            {
                // Everything was answered: this was fetched ahead of requests that memory answered then.
                ready.connection.wanted.drain(..).for_each(|wanted| fetches.forget(wanted.token));
            }
            if let Some(commit) = ready.connection.newly_held_until() {
                fetches.uncommitted.push((ready.connection.id, commit));
            }
        }
        self.worker.kick_fetches();
        if self.fetches.as_ref().is_some_and(|fetches| fetches.in_flight == 0 && !fetches.queue.is_empty()) {
            // Those whose turn it was needed no read after all: no read will end and wake the next.
            self.worker.wake_for_fetches();
        }
    }

    /// The connection is gone, and with it whoever waited for its fetches.
    pub(super) fn forget_fetches(&mut self, connection: &mut Connection) {
        let Some(fetches) = &mut self.fetches else { return };
        for wanted in connection.wanted.drain(..) {
            fetches.forget(wanted.token);
        }
        fetches.queued.remove(&connection.id);
    }

    pub(super) fn forget_promotion(&mut self, promoting: Promoting) {
        let Promoting { promotion, token, .. } = promoting;
        if let (Some(token), Some(fetches)) = (token, &mut self.fetches) {
            fetches.forget(token);
        }
        self.worker.abandon_promotion(promotion);
    }
}

/// What came of beginning a fetch.
enum Begun {
    Done(Option<(Found, Charge)>),
    Waits,
}

/// What came of going on with a value in parts.
enum Part {
    Taken,
    Waits,
    Last,
    Missing,
}

/// The key of a request that depends on the present item, and how. A plain set does not, nor does a delete that nobody
/// waits for.
fn present_key<'a>(request: &Request<'a>, buffer: &'a mut [u8; KEY_BYTES_MAX]) -> Option<(&'a [u8], Use)> {
    match request {
        Request::Store(store) if store.verb != StoreVerb::Set => Some((store.key, Use::Memory)),
        Request::Delete { key, noreply: false } => Some((key, Use::Know)),
        Request::Touch { key, .. } | Request::Arith { key, .. } => Some((key, Use::Memory)),
        Request::Meta(meta) => {
            let flags = &meta.flags;
            let wanted = match meta.verb {
                MetaVerb::Set if flags.mode == b'S' && !flags.has(b'C') => return None,
                MetaVerb::Delete if ![b'C', b'I', b'x', b'T'].iter().any(|letter| flags.has(*letter)) => {
                    Use::Know
                }
                _ => Use::Memory,
            };
            Some((meta_key(meta.key, flags.has(b'b'), buffer), wanted))
        }
        _ => None,
    }
}
