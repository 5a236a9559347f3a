//! One thread: an event loop over its connections.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::BuildHasherDefault;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::Duration;

use mio::{Events, Poll, Token};

use super::collect::Told;
use super::connection::{Connection, Errand, Pending, Queued, State};
use super::faults::{Faults, Mishap};
use super::feed::{MixedHasher, Order, Parcel, Phase};
use super::key::Keys;
use super::ledger::Ledger;
use super::options::{CasAs, Pace, Protocol};
use super::shared::Shared;
use super::tally::{Kind, Tally};
use super::wire::{Content, Message, Verb, Wire};
use crate::{Op, Request};

/// Octets that may wait to be written before no more requests are written down.
const OUT_BYTES_MAX: usize = 256 * 1024;
/// How often time-outs, reconnects and the end of a second are looked after.
const HOUSEKEEPING_NS: u64 = 20_000_000;
/// Below this, the time to the next event is spent polling: the kernel's timers are too coarse.
const SPIN_NS: u64 = 2_000_000;
/// How late a request must be sent to be called late.
const LATE_NS: u64 = 1_000_000;
/// Fetches under way, at which no further requests are sent until some are done.
const FETCHES_MAX: usize = 1 << 20;
/// How long a new connection must last to count as healthy without a reply.
const PROVED_NS: u64 = 1_000_000_000;
/// Requests that wait for one connection: in a closed loop, and in an open one, where they are late.
const QUEUE_MAX: (usize, usize) = (256, 64 * 1024);
/// Token of the waker.
pub(super) const WAKER: Token = Token(usize::MAX);

/// A fetch that is under way: (when it is done, a number that keeps the order, connection, what to store).
struct Fetch {
    done_ns: u64,
    number: u64,
    connection: usize,
    errand: Errand,
}

impl PartialEq for Fetch {
    fn eq(&self, other: &Fetch) -> bool {
        self.number == other.number
    }
}

impl Eq for Fetch {}

impl PartialOrd for Fetch {
    fn partial_cmp(&self, other: &Fetch) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Fetch {
    fn cmp(&self, other: &Fetch) -> std::cmp::Ordering {
        (self.done_ns, self.number).cmp(&(other.done_ns, other.number))
    }
}

/// Why a connection has to go, with what a person should read.
pub(super) struct Broken(pub(super) Mishap, pub(super) String);

/// One thread of a run.
pub(super) struct Worker {
    pub(super) number: usize,
    pub(super) shared: Arc<Shared>,
    pub(super) connections: Vec<Connection>,
    pub(super) ledger: Ledger,
    pub(super) faults: Faults,
    pub(super) tally: Tally,
    /// Fetches of the keys that are being fetched: when they are done.
    pub(super) fetching: HashMap<u64, u64, BuildHasherDefault<MixedHasher>>,
    pub(super) key_text: Vec<u8>,
    poll: Poll,
    parcels: Receiver<Parcel>,
    empties: Sender<Vec<Order>>,
    told: Sender<Told>,
    fetches: BinaryHeap<Reverse<Fetch>>,
    fetches_begun: u64,
    parcel: Option<(Phase, Vec<Order>, usize)>,
    gate: Gate,
    fed: bool,
    marked: Vec<usize>,
    version: u64,
    second: u64,
    measure_ns: Option<u64>,
    housekeeping_ns: u64,
    answered: u64,
    next_spread: usize,
}

/// Where the thread is with respect to the gate.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gate {
    Ahead,
    Draining,
    Waiting,
    Behind(u64),
}

impl Worker {
    /// A thread with its share of the connections.
    pub(super) fn new(
        number: usize,
        shared: Arc<Shared>,
        poll: Poll,
        parcels: Receiver<Parcel>,
        empties: Sender<Vec<Order>>,
        told: Sender<Told>,
    ) -> Worker {
        let options = &shared.options;
        let connections = (number..options.connections).step_by(options.threads);
        Worker {
            number,
            connections: connections.map(|number| Connection::new(number, options.depth)).collect(),
            ledger: Ledger::new(options.verify_keys / options.threads),
            faults: Faults::default(),
            tally: Tally::new(),
            fetching: HashMap::default(),
            key_text: Vec::new(),
            poll,
            parcels,
            empties,
            told,
            fetches: BinaryHeap::new(),
            fetches_begun: 0,
            parcel: None,
            gate: Gate::Ahead,
            fed: false,
            marked: Vec::new(),
            version: shared.version_first,
            second: 0,
            measure_ns: None,
            housekeeping_ns: 0,
            answered: 0,
            next_spread: 0,
            shared,
        }
    }

    /// Sends what it is handed until there is no more, or everybody stops.
    pub(super) fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(1024);
        while !self.is_over() {
            let now_ns = self.shared.now_ns();
            self.take_orders(now_ns);
            self.end_fetches(now_ns);
            self.send_marked();
            if now_ns >= self.housekeeping_ns {
                self.housekeep(now_ns);
            }
            let wait = self.wait();
            match self.poll.poll(&mut events, Some(wait)) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                other => other?,
            }
            if events.is_empty() && wait.is_zero() {
                std::thread::yield_now();
            }
            for event in &events {
                if event.token() != WAKER {
                    self.serve(event.token().0);
                }
            }
        }
        self.report_second(u64::MAX);
        // The collector outlives its threads.
        let _ = self.told.send(Told::End {
            thread: self.number,
            faults: Box::new(self.faults),
            ledger_forgotten: self.ledger.forgotten,
        });
        Ok(())
    }

    fn is_over(&mut self) -> bool {
        if self.shared.stop.load(Relaxed) {
            self.fed = true;
            self.parcel = None;
            self.fetches.clear();
            for connection in &mut self.connections {
                connection.queue.clear();
                connection.errands.clear();
                if connection.stream.is_none() {
                    connection.pending.clear();
                }
            }
        }
        self.fed && self.parcel.is_none() && self.is_drained()
    }

    fn is_drained(&self) -> bool {
        self.fetches.is_empty() && self.connections.iter().all(Connection::is_idle)
    }

    /// Hands orders to connections as long as there is room, and their time has come.
    fn take_orders(&mut self, now_ns: u64) {
        loop {
            match self.gate {
                Gate::Draining if self.is_drained() => {
                    self.shared.arrive();
                    self.gate = Gate::Waiting;
                }
                Gate::Waiting => match self.shared.gate_ns() {
                    Some(opens_ns) if now_ns >= opens_ns => self.gate = Gate::Behind(opens_ns),
                    _ => return,
                },
                Gate::Draining => return,
                Gate::Ahead | Gate::Behind(_) => {}
            }
            if self.gate == Gate::Draining || self.gate == Gate::Waiting {
                continue;
            }
            if self.parcel.is_none() && !self.next_parcel() {
                return;
            }
            if self.parcel.is_some() && !self.share_out(now_ns) {
                return;
            }
        }
    }

    /// Whether there was one.
    fn next_parcel(&mut self) -> bool {
        let starving = &self.shared.starving[self.number];
        let mut found = self.parcels.try_recv();
        if matches!(found, Err(TryRecvError::Empty)) {
            starving.store(true, Relaxed);
            // One may have come between the look and the word.
            found = self.parcels.try_recv();
        }
        match found {
            Ok(Parcel::Orders(phase, orders)) => self.parcel = Some((phase, orders, 0)),
            Ok(Parcel::Gate) => self.gate = Gate::Draining,
            Err(TryRecvError::Disconnected) => self.fed = true,
            Err(TryRecvError::Empty) => return false,
        }
        !self.fed
    }

    /// Shares out the parcel at hand; says whether all of it could be.
    fn share_out(&mut self, now_ns: u64) -> bool {
        let Some((phase, orders, mut at)) = self.parcel.take() else { return true };
        let open_loop = self.shared.options.pace != Pace::Closed && phase != Phase::Load;
        let queue_max = if open_loop { QUEUE_MAX.1 } else { QUEUE_MAX.0.max(self.shared.options.depth * 4) };
        let gate_ns = if let Gate::Behind(gate_ns) = self.gate { gate_ns } else { 0 };
        while let Some(order) = orders.get(at) {
            let mut order = *order;
            if self.fetches.len() >= FETCHES_MAX || (open_loop && gate_ns + order.due_ns > now_ns) {
                break;
            }
            let Some(to) = self.connection_for(order.request.key, queue_max) else { break };
            order.due_ns = if open_loop { gate_ns + order.due_ns } else { 0 };
            self.connections[to].queue.push_back(Queued { order, phase });
            self.mark(to);
            at += 1;
        }
        if at < orders.len() {
            self.parcel = Some((phase, orders, at));
            return false;
        }
        let mut empty = orders;
        empty.clear();
        // The reader may be gone already.
        let _ = self.empties.send(empty);
        true
    }

    /// The connection for a key, if it has room.
    fn connection_for(&mut self, key: u64, queue_max: usize) -> Option<usize> {
        if self.shared.ordered() {
            let to = self.shared.connection_of(key) / self.shared.options.threads;
            return (self.connections[to].queue.len() < queue_max).then_some(to);
        }
        for _ in 0..self.connections.len() {
            self.next_spread = (self.next_spread + 1) % self.connections.len();
            if self.connections[self.next_spread].queue.len() < queue_max {
                return Some(self.next_spread);
            }
        }
        None
    }

    pub(super) fn mark(&mut self, connection: usize) {
        if !self.connections[connection].marked {
            self.connections[connection].marked = true;
            self.marked.push(connection);
        }
    }

    /// A miss is fetched; it is stored at `done_ns`.
    pub(super) fn begin_fetch(&mut self, connection: usize, done_ns: u64, errand: Errand) {
        self.fetches_begun += 1;
        self.fetches.push(Reverse(Fetch { done_ns, number: self.fetches_begun, connection, errand }));
    }

    fn end_fetches(&mut self, now_ns: u64) {
        while self.fetches.peek().is_some_and(|Reverse(fetch)| fetch.done_ns <= now_ns) {
            let Some(Reverse(fetch)) = self.fetches.pop() else { return };
            self.connections[fetch.connection].errands.push_back(fetch.errand);
            self.mark(fetch.connection);
        }
    }

    fn send_marked(&mut self) {
        while let Some(at) = self.marked.pop() {
            self.connections[at].marked = false;
            self.send(at);
        }
    }

    /// Fills a connection up to its depth and writes.
    fn send(&mut self, at: usize) {
        if !matches!(self.connections[at].state, State::Up { .. }) {
            return;
        }
        let now_ns = self.shared.now_ns();
        let depth = self.shared.options.depth;
        loop {
            let connection = &mut self.connections[at];
            if connection.pending.len() >= depth || connection.unwritten_bytes() >= OUT_BYTES_MAX {
                break;
            }
            if let Some(errand) = connection.errands.pop_front() {
                self.put(at, errand, now_ns);
            } else if let Some(queued) = connection.queue.pop_front() {
                let errand = self.errand(&queued, now_ns);
                self.put(at, errand, now_ns);
            } else {
                break;
            }
        }
        if let Err(error) = self.connections[at].flush() {
            self.lose(at, broken_by(&error));
        }
    }

    /// What is sent for an order.
    fn errand(&mut self, queued: &Queued, now_ns: u64) -> Errand {
        let Queued { order: Order { request, due_ns }, phase } = *queued;
        let (kind, verb) = self.kind_and_verb(&request, phase);
        let key_length = self.shared.wire.keys.length(request.key, request.key_bytes);
        let counted = phase == Phase::Measure && self.is_measuring(now_ns);
        if counted && due_ns != 0 {
            let lag_ns = now_ns.saturating_sub(due_ns);
            self.tally.counts.lag_ns_max = self.tally.counts.lag_ns_max.max(lag_ns);
            self.tally.counts.late += u64::from(lag_ns > LATE_NS);
        }
        Errand {
            verb,
            kind,
            counted,
            key: request.key,
            key_length,
            identity: Keys::identity(request.key, key_length),
            value_bytes: request.value_bytes,
            ttl_s: request.ttl_s,
            penalty_us: request.penalty_or_default_us(),
            began_ns: due_ns,
        }
    }

    fn kind_and_verb(&self, request: &Request, phase: Phase) -> (Kind, Verb) {
        let options = &self.shared.options;
        match request.op {
            _ if phase == Phase::Load => (Kind::Load, Verb::Set),
            Op::Get => (Kind::Get, Verb::Get),
            Op::Set => (Kind::Set, Verb::Set),
            Op::Add => (Kind::Add, Verb::Add),
            Op::Replace => (Kind::Replace, Verb::Replace),
            Op::Cas
                if self.shared.wire.protocol == Protocol::Memcached && options.cas_as == CasAs::GetsCas =>
            {
                (Kind::Cas, Verb::Gets)
            }
            Op::Cas => (Kind::Cas, Verb::Set),
            Op::Append => (Kind::Append, Verb::Append),
            Op::Prepend => (Kind::Prepend, Verb::Prepend),
            Op::Delete => (Kind::Delete, Verb::Delete),
            Op::Incr => (Kind::Incr, Verb::Incr),
            Op::Decr => (Kind::Decr, Verb::Decr),
        }
    }

    fn is_measuring(&mut self, now_ns: u64) -> bool {
        let begins_ns = match self.measure_ns.or_else(|| self.shared.measure_ns()) {
            Some(ns) => ns,
            None => self.shared.begin_measuring(now_ns),
        };
        self.measure_ns = Some(begins_ns);
        now_ns >= begins_ns
    }

    /// Writes a message down.
    fn put(&mut self, at: usize, errand: Errand, now_ns: u64) {
        let mut pending = Pending { errand, version: 0, zero: false, sent_ns: now_ns };
        let verb = errand.verb;
        if !matches!(verb, Verb::Get | Verb::Gets) {
            self.version += 1;
            pending.version = self.version;
        }
        match verb {
            Verb::Incr | Verb::Decr => {
                self.ledger.entry(errand.identity).mark_counter();
                self.shared.counters_seen.store(true, Relaxed);
            }
            Verb::Append | Verb::Prepend if is_plain(errand.value_bytes) => {
                self.shared.plain_pieces_seen.store(true, Relaxed);
            }
            Verb::Set | Verb::Add | Verb::Replace | Verb::Cas(_)
                if self.shared.counters_seen.load(Relaxed) =>
            {
                pending.zero = self.ledger.get(errand.identity).is_some_and(|entry| entry.is_counter());
            }
            _ => {}
        }
        if errand.kind == Kind::Fill {
            self.fetching.remove(&errand.identity);
        }
        let value = Content::Value { version: pending.version, bytes: errand.value_bytes };
        let message = Message {
            verb,
            key: errand.key,
            key_length: errand.key_length,
            content: if pending.zero { Content::Zero } else { value },
            ttl_s: errand.ttl_s,
        };
        let connection = &mut self.connections[at];
        let before = connection.out.len();
        self.shared.wire.put(&mut connection.out, &message);
        if errand.counted {
            self.tally.counts.bytes_out += (connection.out.len() - before) as u64;
        }
        connection.pending.push_back(pending);
    }

    /// A socket is ready for something.
    fn serve(&mut self, at: usize) {
        let now_ns = self.shared.now_ns();
        if let State::Connecting { .. } = self.connections[at].state
            && !self.establish(at, now_ns)
        {
            return;
        }
        loop {
            match self.connections[at].read() {
                Ok(None) => break,
                Err(error) => return self.lose(at, broken_by(&error)),
                Ok(Some(more)) => {
                    if let Err(broken) = self.take_replies(at) {
                        return self.lose(at, broken);
                    }
                    if !more {
                        break;
                    }
                }
            }
        }
        self.mark(at);
    }

    /// Whether the connection stands now.
    fn establish(&mut self, at: usize, now_ns: u64) -> bool {
        let standing = match &self.connections[at].stream {
            Some(stream) => stream.established(),
            None => return false,
        };
        match standing {
            Ok(false) => false,
            Err(error) => {
                self.lose(at, Broken(Mishap::NotConnected, error.to_string()));
                false
            }
            Ok(true) => {
                self.connections[at].state = State::Up { since_ns: now_ns };
                self.log_in(at, now_ns);
                self.mark(at);
                true
            }
        }
    }

    fn log_in(&mut self, at: usize, now_ns: u64) {
        let (shared, connection) = (&self.shared, &mut self.connections[at]);
        let errand = Errand {
            verb: Verb::Set,
            kind: Kind::Login,
            counted: false,
            key: 0,
            key_length: 0,
            identity: 0,
            value_bytes: 0,
            ttl_s: 0,
            penalty_us: 0,
            began_ns: 0,
        };
        let pending = Pending { errand, version: 0, zero: false, sent_ns: now_ns };
        if let Some(who) = &shared.options.credentials {
            Wire::put_login(shared.wire.protocol, &mut connection.out, &who.user, &who.password);
            connection.pending.push_back(pending);
        }
        if let Some(database) = shared.options.database.filter(|_| shared.wire.protocol == Protocol::Resp) {
            Wire::put_select(&mut connection.out, database);
            connection.pending.push_back(pending);
        }
    }

    /// The connection goes; what was in flight is lost.
    fn lose(&mut self, at: usize, broken: Broken) {
        let now_ns = self.shared.now_ns();
        let Broken(mishap, text) = broken;
        let connection = &mut self.connections[at];
        if let Some(stream) = &mut connection.stream {
            stream.deregister(self.poll.registry());
        }
        let was_up = matches!(connection.state, State::Up { .. });
        let mut lost = 0;
        while let Some(pending) = connection.pending.pop_front() {
            lost += u64::from(pending.errand.kind != Kind::Login);
            if pending.version != 0 {
                self.ledger.entry(pending.errand.identity).lost();
            }
        }
        if std::mem::take(&mut connection.healthy) {
            self.shared.healthy.fetch_sub(1, Relaxed);
        }
        connection.drop_stream(now_ns);
        let number = connection.number;
        let mishap = if mishap == Mishap::Reset && !was_up { Mishap::NotConnected } else { mishap };
        self.faults
            .add_mishap(mishap, lost, || format!("connection {number}, {lost} requests in flight: {text}"));
    }

    pub(super) fn is_healthy(&mut self, at: usize) {
        let connection = &mut self.connections[at];
        connection.prove();
        if !std::mem::replace(&mut connection.healthy, true) {
            self.shared.healthy.fetch_add(1, Relaxed);
        }
    }

    /// One more request was answered.
    pub(super) fn count_answer(&mut self) {
        self.answered += 1;
    }

    fn housekeep(&mut self, now_ns: u64) {
        self.housekeeping_ns = now_ns + HOUSEKEEPING_NS;
        self.shared.answered.fetch_add(std::mem::take(&mut self.answered), Relaxed);
        let timeout_ns = self.shared.options.timeout.as_nanos() as u64;
        for at in 0..self.connections.len() {
            match self.connections[at].state {
                State::Down { retry_ns } if now_ns >= retry_ns => self.connect(at, now_ns),
                State::Connecting { since_ns } if now_ns > since_ns + timeout_ns => {
                    self.lose(at, Broken(Mishap::NotConnected, "no answer to the attempt".to_owned()));
                }
                State::Up { since_ns } => {
                    self.look_for_silence(at, now_ns, timeout_ns);
                    if now_ns > since_ns + PROVED_NS && self.connections[at].pending.is_empty() {
                        self.is_healthy(at);
                    }
                }
                _ => {}
            }
        }
        if let Some(measure_ns) = self.measure_ns.or_else(|| self.shared.measure_ns())
            && let Some(measured_ns) = now_ns.checked_sub(measure_ns)
        {
            let second = measured_ns / 1_000_000_000;
            if second > self.second {
                self.report_second(second);
            }
        }
    }

    fn look_for_silence(&mut self, at: usize, now_ns: u64, timeout_ns: u64) {
        let connection = &self.connections[at];
        let Some(oldest) = connection.pending.front().filter(|oldest| now_ns > oldest.sent_ns + timeout_ns)
        else {
            return;
        };
        let waited_s = (now_ns - oldest.sent_ns) as f64 / 1e9;
        let came = super::faults::shown(&connection.input[..connection.filled]);
        let text = format!(
            "no whole reply to {} {} after {waited_s:.1} s; so far: '{came}'",
            oldest.errand.verb.name(),
            self.text_of_key(&oldest.errand)
        );
        self.lose(at, Broken(Mishap::Timeout, text));
    }

    /// The text of an errand's key, for people.
    pub(super) fn text_of_key(&self, errand: &Errand) -> String {
        if errand.kind == Kind::Login {
            return "(login)".to_owned();
        }
        let mut text = Vec::new();
        self.shared.wire.keys.put(&mut text, errand.key, errand.key_length);
        super::faults::shown(&text)
    }

    fn connect(&mut self, at: usize, now_ns: u64) {
        if self.shared.stop.load(Relaxed) {
            return;
        }
        let connected = self.shared.options.server.connect().and_then(|mut stream| {
            stream.register(self.poll.registry(), Token(at))?;
            Ok(stream)
        });
        match connected {
            Ok(stream) => {
                self.connections[at].stream = Some(stream);
                self.connections[at].state = State::Connecting { since_ns: now_ns };
                // A UNIX socket is connected at once.
                self.establish(at, now_ns);
            }
            Err(error) => self.lose(at, Broken(Mishap::NotConnected, error.to_string())),
        }
    }

    /// Hands what was counted so far to the collector; seconds before `second` are complete.
    fn report_second(&mut self, second: u64) {
        let tally = Box::new(std::mem::replace(&mut self.tally, Tally::new()));
        // The collector outlives its threads.
        let _ =
            self.told.send(Told::Second { thread: self.number, second: self.second, next: second, tally });
        self.second = second;
    }

    /// How long to wait for events.
    fn wait(&self) -> Duration {
        if !self.marked.is_empty() {
            return Duration::ZERO;
        }
        let now_ns = self.shared.now_ns();
        let mut next_ns = self.housekeeping_ns;
        if let Some(Reverse(fetch)) = self.fetches.peek() {
            next_ns = next_ns.min(fetch.done_ns);
        }
        match (self.gate, &self.parcel) {
            (Gate::Waiting, _) => next_ns = next_ns.min(now_ns + SPIN_NS),
            (Gate::Behind(gate_ns), Some((_, orders, at))) if self.shared.options.pace != Pace::Closed => {
                next_ns = next_ns.min(gate_ns + orders.get(*at).map_or(0, |order| order.due_ns));
            }
            _ => {}
        }
        match next_ns.saturating_sub(now_ns) {
            soon if soon < SPIN_NS => Duration::ZERO,
            later => Duration::from_millis((later - SPIN_NS / 2) / 1_000_000),
        }
    }
}

/// Whether an appended piece of this length has no header.
pub(super) fn is_plain(value_bytes: u32) -> bool {
    (value_bytes as usize) < super::value::HEADER_BYTES
}

fn broken_by(error: &io::Error) -> Broken {
    match error.kind() {
        ErrorKind::UnexpectedEof => Broken(Mishap::Closed, "the server closed it".to_owned()),
        ErrorKind::ConnectionRefused | ErrorKind::NotFound => Broken(Mishap::NotConnected, error.to_string()),
        _ => Broken(Mishap::Reset, error.to_string()),
    }
}
