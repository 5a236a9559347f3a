//! One worker: a thread with an event loop over its connections.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::Duration;

use mio::{Events, Poll, Token};

use super::collect::WorkerMessage;
use super::connection::{Command, Connection, Queued};
use super::faults::{AllDoubts, Faults, shown};
use super::feed::{BATCHES_MAX, Batch, Order, Phase};
use super::fetches::Fetches;
use super::ledger::Ledger;
use super::options::Pace;
use super::shared::Shared;
use super::tally::{Kind, Tally};
use super::windows::Windows;

/// Interval for time-outs, reconnects and the end of a second.
const HOUSEKEEPING_NS: u64 = 20_000_000;
/// Below this, the time to the next event is spent polling, because the kernel's timers are too coarse.
const SPIN_NS: u64 = 2_000_000;
/// The sleep in place of polling, if the options forbid polling.
const NAP: Duration = Duration::from_micros(200);
/// At this number of fetches in progress, no further requests are sent until some are done.
const FETCHES_MAX: usize = 1 << 20;
/// Maximum number of requests that wait for one connection: in a closed loop, and in an open loop, where they are
/// late.
const QUEUE_MAX: (usize, usize) = (256, 64 * 1024);
/// Token of the waker.
pub(super) const WAKER: Token = Token(usize::MAX);

/// One thread of a run.
pub(super) struct Worker {
    /// The number of the worker.
    pub(super) number: usize,
    /// The state shared by all threads.
    pub(super) shared: Arc<Shared>,
    /// The connections of this worker.
    pub(super) connections: Vec<Connection>,
    /// What its keys must answer.
    pub(super) check: Check,
    /// What is counted.
    pub(super) measured: Measured,
    /// The fetches in progress.
    pub(super) fetches: Fetches,
    /// Buffer for the text of a key.
    pub(super) key_text: Vec<u8>,
    pub(super) poll: Poll,
    /// The last written version.
    pub(super) version: u64,
    input: Input,
    messages: Sender<WorkerMessage>,
    /// Connections that may have something to send.
    marked: Vec<usize>,
    housekeeping_ns: u64,
    next_spread: usize,
}

/// What is known of the keys, and which answers contradict it.
pub(super) struct Check {
    /// The known states of the keys.
    pub(super) ledger: Ledger,
    /// Everything that went wrong.
    pub(super) faults: Faults,
    /// Values that may be wrong; the end of the run decides.
    pub(super) doubts: AllDoubts,
}

/// What is counted.
pub(super) struct Measured {
    /// The counts of the current second.
    pub(super) tally: Tally,
    /// Hit ratio and service time by windows of gets.
    pub(super) windows: Windows,
    /// The time at which measuring starts, once it is known.
    pub(super) measure_ns: Option<u64>,
    /// The current second of the measured time.
    second: u64,
    /// Answers that the other threads do not know of yet.
    answered: u64,
}

/// The requests that come from the reader.
struct Input {
    batches: Receiver<Batch>,
    empties: Sender<Vec<Order>>,
    /// The current batch, and how much of it has been distributed.
    batch: Option<(Phase, Vec<Order>, usize)>,
    gate: Gate,
    /// Whether the reader has ended.
    fed: bool,
    /// The time at which the stop was noticed.
    stopped_ns: Option<u64>,
}

/// The position of the worker relative to the gate.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gate {
    /// Before the gate.
    Ahead,
    /// At the gate, with unanswered requests.
    Draining,
    /// Waiting for the gate to open.
    Waiting,
    /// Behind the gate, which opened at this time.
    Behind(u64),
}

impl Worker {
    /// A worker with its share of the connections.
    pub(super) fn new(
        number: usize,
        shared: Arc<Shared>,
        poll: Poll,
        batches: Receiver<Batch>,
        empties: Sender<Vec<Order>>,
        messages: Sender<WorkerMessage>,
    ) -> Worker {
        let options = &shared.options;
        let connections = (number..options.connections).step_by(options.threads);
        Worker {
            number,
            connections: connections.map(|number| Connection::new(number, options.depth)).collect(),
            check: Check {
                ledger: Ledger::new(options.verify_keys / options.threads),
                faults: Faults::default(),
                doubts: AllDoubts::default(),
            },
            measured: Measured {
                tally: Tally::new(),
                windows: Windows::new(options),
                measure_ns: None,
                second: 0,
                answered: 0,
            },
            fetches: Fetches::default(),
            key_text: Vec::new(),
            poll,
            input: Input { batches, empties, batch: None, gate: Gate::Ahead, fed: false, stopped_ns: None },
            messages,
            marked: Vec::new(),
            version: shared.version_first,
            housekeeping_ns: 0,
            next_spread: 0,
            shared,
        }
    }

    /// Sends the requests it receives until there are no more, or until all threads stop.
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
                match self.shared.options.spin {
                    true => std::thread::yield_now(),
                    false => std::thread::sleep(NAP),
                }
            }
            for event in &events {
                if event.token() != WAKER {
                    self.serve(event.token().0, event.is_read_closed());
                }
            }
        }
        self.report_second(u64::MAX);
        // The collector outlives the workers, so the message is received.
        let _ = self.messages.send(WorkerMessage::End {
            thread: self.number,
            faults: Box::new(self.check.faults),
            doubts: Box::new(self.check.doubts),
            ledger_forgotten: self.check.ledger.forgotten,
            windows: self.measured.windows,
        });
        Ok(())
    }

    fn is_over(&mut self) -> bool {
        if self.shared.stop.load(Relaxed) {
            self.input.fed = true;
            self.drop_orders();
            self.fetches.clear();
            for connection in &mut self.connections {
                connection.queue.clear();
                connection.commands.clear();
                if connection.stream.is_none() {
                    connection.pending.clear();
                }
            }
        }
        self.input.fed && self.input.batch.is_none() && self.is_drained()
    }

    /// Drops all requests at the end of the run, and counts those that were due.
    fn drop_orders(&mut self) {
        let stopped_ns = *self.input.stopped_ns.get_or_insert_with(|| self.shared.now_ns());
        let measuring = self.shared.measure_ns().is_some_and(|begins_ns| begins_ns <= stopped_ns);
        let gate_ns = match self.input.gate {
            Gate::Behind(gate_ns) if self.shared.options.pace != Pace::Closed && measuring => gate_ns,
            _ => {
                self.input.batch = None;
                return;
            }
        };
        let counts = &mut self.measured.tally.counts;
        let mut unsent = |phase: Phase, due_ns: u64| {
            if phase == Phase::Measure && due_ns <= stopped_ns {
                counts.unsent += 1;
                counts.lag_ns_max = counts.lag_ns_max.max(stopped_ns - due_ns);
            }
        };
        for connection in &mut self.connections {
            connection.queue.drain(..).for_each(|queued| unsent(queued.phase, queued.order.due_ns));
        }
        if let Some((phase, orders, at)) = self.input.batch.take() {
            orders[at..].iter().for_each(|order| unsent(phase, gate_ns + order.due_ns));
        }
        for batch in self.input.batches.try_iter().take(BATCHES_MAX) {
            if let Batch::Orders(phase, orders) = batch {
                orders.iter().for_each(|order| unsent(phase, gate_ns + order.due_ns));
            }
        }
    }

    fn is_drained(&self) -> bool {
        self.fetches.is_empty() && self.connections.iter().all(Connection::is_idle)
    }

    /// Distributes requests to connections as long as there is room and they are due.
    fn take_orders(&mut self, now_ns: u64) {
        while self.pass_gate(now_ns) && (self.input.batch.is_some() || self.next_batch()) {
            if !self.share_out(now_ns) {
                return;
            }
        }
    }

    /// Whether requests may be distributed.
    fn pass_gate(&mut self, now_ns: u64) -> bool {
        if self.input.gate == Gate::Draining && self.is_drained() {
            self.shared.arrive();
            self.input.gate = Gate::Waiting;
        }
        if self.input.gate == Gate::Waiting
            && let Some(opens_ns) = self.shared.gate_ns().filter(|&opens_ns| now_ns >= opens_ns)
        {
            self.input.gate = Gate::Behind(opens_ns);
        }
        matches!(self.input.gate, Gate::Ahead | Gate::Behind(_))
    }

    /// Receives a batch, or the message to wait at the gate. Returns whether there was one.
    fn next_batch(&mut self) -> bool {
        let starving = &self.shared.starving[self.number];
        let mut found = self.input.batches.try_recv();
        if matches!(found, Err(TryRecvError::Empty)) {
            starving.store(true, Relaxed);
            // A batch may have arrived between the check and the flag.
            found = self.input.batches.try_recv();
        }
        match found {
            Ok(Batch::Orders(phase, orders)) => self.input.batch = Some((phase, orders, 0)),
            Ok(Batch::Gate) => self.input.gate = Gate::Draining,
            Err(TryRecvError::Disconnected) => self.input.fed = true,
            Err(TryRecvError::Empty) => return false,
        }
        !self.input.fed
    }

    /// Distributes the current batch. Returns whether all of it was distributed.
    fn share_out(&mut self, now_ns: u64) -> bool {
        let Some((phase, orders, mut at)) = self.input.batch.take() else { return true };
        let open_loop = self.shared.options.pace != Pace::Closed && phase != Phase::Load;
        let queue_max = if open_loop { QUEUE_MAX.1 } else { QUEUE_MAX.0.max(self.shared.options.depth * 4) };
        let gate_ns = if let Gate::Behind(gate_ns) = self.input.gate { gate_ns } else { 0 };
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
            self.input.batch = Some((phase, orders, at));
            return false;
        }
        let mut empty = orders;
        empty.clear();
        // The reader may have ended already.
        let _ = self.input.empties.send(empty);
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

    /// Marks a connection that may have something to send.
    pub(super) fn mark(&mut self, connection: usize) {
        if !self.connections[connection].marked {
            self.connections[connection].marked = true;
            self.marked.push(connection);
        }
    }

    fn end_fetches(&mut self, now_ns: u64) {
        while let Some((connection, command)) = self.fetches.next_done(now_ns) {
            self.connections[connection].commands.push_back(command);
            self.mark(connection);
        }
    }

    /// Sends on all marked connections.
    fn send_marked(&mut self) {
        while let Some(at) = self.marked.pop() {
            self.connections[at].marked = false;
            self.send(at);
        }
    }

    /// Counts an answered request.
    pub(super) fn count_answer(&mut self) {
        self.measured.answered += 1;
    }

    fn housekeep(&mut self, now_ns: u64) {
        self.housekeeping_ns = now_ns + HOUSEKEEPING_NS;
        self.shared.answered.fetch_add(std::mem::take(&mut self.measured.answered), Relaxed);
        self.keep_connections(now_ns);
        if let Some(measure_ns) = self.measured.measure_ns.or_else(|| self.shared.measure_ns())
            && let Some(measured_ns) = now_ns.checked_sub(measure_ns)
        {
            let second = measured_ns / 1_000_000_000;
            if second > self.measured.second {
                self.report_second(second);
            }
        }
    }

    /// The text of a command's key, for people.
    pub(super) fn text_of_key(&self, command: &Command) -> String {
        if command.kind == Kind::Login {
            return "(login)".to_owned();
        }
        let mut text = Vec::new();
        self.shared.wire.keys.put(&mut text, command.key, command.key_length);
        shown(&text)
    }

    /// Sends the counts so far to the collector. Seconds before `second` are complete.
    fn report_second(&mut self, second: u64) {
        let tally = Box::new(std::mem::replace(&mut self.measured.tally, Tally::new()));
        // The collector outlives the workers, so the message is received.
        let _ = self.messages.send(WorkerMessage::Second {
            thread: self.number,
            second: self.measured.second,
            next: second,
            tally,
        });
        self.measured.second = second;
    }

    /// How long to wait for events.
    fn wait(&self) -> Duration {
        if !self.marked.is_empty() {
            return Duration::ZERO;
        }
        let now_ns = self.shared.now_ns();
        let mut next_ns = self.fetches.next_ns().unwrap_or(u64::MAX);
        match (self.input.gate, &self.input.batch) {
            (Gate::Waiting, _) => next_ns = now_ns,
            (Gate::Behind(gate_ns), Some((_, orders, at))) if self.shared.options.pace != Pace::Closed => {
                next_ns = next_ns.min(gate_ns + orders.get(*at).map_or(0, |order| order.due_ns));
            }
            _ => {}
        }
        let exact = match next_ns.saturating_sub(now_ns) {
            soon if soon < SPIN_NS => Duration::ZERO,
            later => Duration::from_millis((later - SPIN_NS / 2) / 1_000_000),
        };
        exact.min(Duration::from_nanos(self.housekeeping_ns.saturating_sub(now_ns)))
    }
}
