//! The reader: one thread that reads the source and passes each request to the worker that sends it.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError};
use std::time::Duration;

use mio::Waker;

use super::options::{Pace, Warmup};
use super::shared::Shared;
use crate::mix::KeySet;
use crate::{CHUNK_REQUESTS, Fields, Op, Request, Source, SourceError};

/// Requests per batch.
const BATCH_ORDERS: usize = 1024;
/// Batches that may wait for one worker.
pub(super) const BATCHES_MAX: usize = 16;
/// Delay before a worker with a full queue is tried again, while requests for another worker are held back.
const FULL_AGAIN: Duration = Duration::from_micros(500);
/// If one second of a trace has more requests than this, the further ones are sent at its end.
const SECOND_REQUESTS_MAX: usize = 2_000_000;

/// Opens the source for another pass.
pub(super) type Open<'a> = &'a (dyn Fn() -> Result<Box<dyn Source>, SourceError> + Sync);

/// The phase of the run that a request belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// Storing every key once.
    Load,
    /// Warm-up, which is not measured.
    Warm,
    /// The measured time.
    Measure,
}

/// A request and the time at which it is due.
#[derive(Clone, Copy, Debug)]
pub(super) struct Order {
    /// The request.
    pub(super) request: Request,
    /// Due time in nanoseconds after the gate. Closed loops ignore it.
    pub(super) due_ns: u64,
}

/// A message to a worker.
pub(super) enum Batch {
    /// Requests.
    Orders(Phase, Vec<Order>),
    /// Answer everything, wait for the other workers, then continue.
    Gate,
}

/// The sending side of one worker's queue.
pub(super) struct WorkerQueue {
    /// Batches to the worker.
    pub(super) batches: SyncSender<Batch>,
    /// Empty batches from the worker, for reuse.
    pub(super) empties: Receiver<Vec<Order>>,
    /// Wakes the worker.
    pub(super) waker: Waker,
}

/// A worker has ended, so the reader stops.
struct Stopped;

/// The result of the reader.
#[derive(Debug, Default)]
pub(super) struct Fed {
    /// The error that ended the source early, if any.
    pub(super) error: Option<SourceError>,
    /// Remarks of the source.
    pub(super) notices: Vec<String>,
    /// Distinct keys stored by the load phase.
    pub(super) keys_loaded: u64,
    /// Requests passed to workers after the load phase.
    pub(super) requests: u64,
    /// The fields that the source knows.
    pub(super) fields: Fields,
    /// The description of the source.
    pub(super) description: String,
    /// The name of the source in a title.
    pub(super) name: String,
}

/// Passes all requests of all passes to the workers.
pub(super) fn run(open: Open<'_>, first: Box<dyn Source>, shared: &Shared, queues: Vec<WorkerQueue>) -> Fed {
    let fields = first.fields();
    let mut feed = Feed {
        shared,
        open_batches: queues.iter().map(|_| Vec::with_capacity(BATCH_ORDERS)).collect(),
        queues,
        phase: Phase::Load,
        fields,
        schedule: Schedule::new(shared.options.pace),
        next_spread: 0,
        fed: Fed { fields, description: first.describe(), name: first.name(), ..Fed::default() },
    };
    match feed.all(open, first) {
        Ok(Ok(())) | Ok(Err(Stopped)) => {}
        Err(error) => feed.fed.error = Some(error),
    }
    let _ = feed.flush();
    feed.fed
}

struct Feed<'a> {
    shared: &'a Shared,
    queues: Vec<WorkerQueue>,
    open_batches: Vec<Vec<Order>>,
    phase: Phase,
    fields: Fields,
    schedule: Schedule,
    next_spread: usize,
    fed: Fed,
}

type Handed = Result<Result<(), Stopped>, SourceError>;

impl Feed<'_> {
    fn all(&mut self, open: Open<'_>, first: Box<dyn Source>) -> Handed {
        let options = &self.shared.options;
        let mut source = first;
        if options.load {
            if self.load(source.as_mut())?.is_err() {
                return Ok(Err(Stopped));
            }
            source = open()?;
        }
        if self.flush().and_then(|()| self.gate()).is_err() {
            return Ok(Err(Stopped));
        }
        self.phase =
            if matches!(options.warmup, Some(Warmup::Requests(1..))) { Phase::Warm } else { Phase::Measure };
        let mut pass = 0;
        loop {
            if self.pass(source.as_mut(), pass)?.is_err() {
                return Ok(Err(Stopped));
            }
            pass += 1;
            if pass == options.repeat {
                self.fed.notices.extend(source.notices());
                return Ok(Ok(()));
            }
            if self.fed.requests == 0 {
                return Ok(Ok(()));
            }
            source = open()?;
        }
    }

    fn load(&mut self, source: &mut dyn Source) -> Handed {
        let mut seen = KeySet::default();
        let mut chunk = Vec::with_capacity(CHUNK_REQUESTS);
        loop {
            chunk.clear();
            if source.fill(&mut chunk, CHUNK_REQUESTS)? == 0 {
                break;
            }
            for request in &chunk {
                if seen.insert(request.key) {
                    let request = self.adapted(Request { op: Op::Set, ..*request });
                    if self.hand(Order { request, due_ns: 0 }).is_err() {
                        return Ok(Err(Stopped));
                    }
                }
            }
            self.shared.set_progress(source.done_ratio());
        }
        self.fed.keys_loaded = seen.len() as u64;
        Ok(Ok(()))
    }

    fn pass(&mut self, source: &mut dyn Source, pass: u32) -> Handed {
        let repeat = f64::from(self.shared.options.repeat.max(1));
        let mut chunk = Vec::with_capacity(CHUNK_REQUESTS);
        self.schedule.begin_pass();
        loop {
            chunk.clear();
            // Requests before a broken line were delivered with the error. They are still sent.
            let end = source.fill(&mut chunk, CHUNK_REQUESTS);
            for request in &chunk {
                self.schedule.push(*request);
                if self.hand_scheduled(false).is_err() {
                    return Ok(Err(Stopped));
                }
            }
            let over = !matches!(end, Ok(1..));
            if over && self.hand_scheduled(true).is_err() {
                return Ok(Err(Stopped));
            }
            if end? == 0 {
                return Ok(Ok(()));
            }
            self.shared.set_progress(source.done_ratio().map(|ratio| (f64::from(pass) + ratio) / repeat));
        }
    }

    /// Passes on the requests whose due time is known; `all`: no more requests follow in this pass.
    fn hand_scheduled(&mut self, all: bool) -> Result<(), Stopped> {
        while let Some(order) = self.schedule.pop(all) {
            if let (Phase::Warm, Some(Warmup::Requests(most))) = (self.phase, self.shared.options.warmup)
                && self.fed.requests >= most
            {
                self.flush()?;
                self.phase = Phase::Measure;
            }
            self.fed.requests += 1;
            self.hand(Order { request: self.adapted(order.request), ..order })?;
        }
        Ok(())
    }

    /// Adapts a request to the options: fills in unknown sizes, limits the value, and drops the time to live if it is
    /// not to be sent.
    fn adapted(&self, mut request: Request) -> Request {
        let options = &self.shared.options;
        if !self.fields.sizes {
            (request.value_bytes, request.key_bytes) = (options.value_bytes, 0);
        }
        request.value_bytes = request.value_bytes.min(options.value_bytes_max);
        if !options.ttls {
            request.ttl_s = 0;
        }
        request
    }

    fn hand(&mut self, order: Order) -> Result<(), Stopped> {
        let to = if self.shared.options.spread {
            self.next_spread = (self.next_spread + 1) % self.queues.len();
            self.next_spread
        } else {
            self.shared.thread_of(self.shared.connection_of(order.request.key))
        };
        self.open_batches[to].push(order);
        if self.open_batches[to].len() == BATCH_ORDERS { self.send_batch(to) } else { Ok(()) }
    }

    /// Sends a worker its batch. While its queue is full, the requests held back for other workers are sent to them,
    /// so that one slow worker does not delay the others.
    fn send_batch(&mut self, to: usize) -> Result<(), Stopped> {
        while !self.offer(to)? {
            let mut held_back = false;
            for other in (0..self.queues.len()).filter(|&other| other != to) {
                held_back |= !self.offer(other)?;
            }
            if !held_back {
                let batch = Batch::Orders(self.phase, self.take_batch(to));
                return self.send(to, batch);
            }
            std::thread::sleep(FULL_AGAIN);
        }
        Ok(())
    }

    /// Sends a worker its batch if there is one and the queue has room. Returns whether nothing is left to send.
    fn offer(&mut self, to: usize) -> Result<bool, Stopped> {
        if self.open_batches[to].is_empty() {
            return Ok(true);
        }
        let orders = std::mem::take(&mut self.open_batches[to]);
        match self.queues[to].batches.try_send(Batch::Orders(self.phase, orders)) {
            Ok(()) => {
                self.open_batches[to] = self.empty_batch(to);
                self.wake(to);
                Ok(true)
            }
            Err(TrySendError::Full(Batch::Orders(_, orders))) => {
                self.open_batches[to] = orders;
                Ok(false)
            }
            Err(_) => Err(Stopped),
        }
    }

    fn take_batch(&mut self, to: usize) -> Vec<Order> {
        let empty = self.empty_batch(to);
        std::mem::replace(&mut self.open_batches[to], empty)
    }

    fn empty_batch(&self, to: usize) -> Vec<Order> {
        self.queues[to].empties.try_recv().unwrap_or_else(|_| Vec::with_capacity(BATCH_ORDERS))
    }

    fn send(&self, to: usize, batch: Batch) -> Result<(), Stopped> {
        self.queues[to].batches.send(batch).map_err(|_| Stopped)?;
        self.wake(to);
        Ok(())
    }

    fn wake(&self, to: usize) {
        if self.shared.starving[to].swap(false, Relaxed) {
            // A worker that could not be woken checks its queue a little later.
            let _ = self.queues[to].waker.wake();
        }
    }

    fn flush(&mut self) -> Result<(), Stopped> {
        for to in 0..self.queues.len() {
            if !self.open_batches[to].is_empty() {
                self.send_batch(to)?;
            }
        }
        Ok(())
    }

    fn gate(&mut self) -> Result<(), Stopped> {
        (0..self.queues.len()).try_for_each(|to| self.send(to, Batch::Gate))
    }
}

/// Computes when requests are due.
struct Schedule {
    pace: Pace,
    waiting: VecDeque<Request>,
    sent: u64,
    /// The first and the last second of this pass.
    pass_s: Option<(u32, u32)>,
    /// Seconds of all earlier passes.
    before_s: u64,
    /// The second whose requests are being passed on, the number of its requests, and how many were passed on.
    second: Option<(u32, usize, usize)>,
    /// Due time of the previous request. No later request is due earlier.
    last_due_ns: u64,
}

impl Schedule {
    fn new(pace: Pace) -> Schedule {
        Schedule {
            pace,
            waiting: VecDeque::new(),
            sent: 0,
            pass_s: None,
            before_s: 0,
            second: None,
            last_due_ns: 0,
        }
    }

    fn begin_pass(&mut self) {
        if let Some((first, last)) = self.pass_s.take() {
            self.before_s += u64::from(last.saturating_sub(first)) + 1;
        }
        self.second = None;
    }

    fn push(&mut self, request: Request) {
        self.waiting.push_back(request);
    }

    /// The next request with a known due time.
    fn pop(&mut self, all: bool) -> Option<Order> {
        let due_ns = match self.pace {
            Pace::Closed => 0,
            Pace::Rate(rate) => (self.sent as f64 * 1e9 / rate) as u64,
            Pace::Speed(speed) => self.due_at_speed(speed, all)?,
        };
        let request = self.waiting.pop_front()?;
        self.sent += 1;
        Some(Order { request, due_ns })
    }

    /// Times of traces are whole seconds, so the requests of a second are spread evenly over it. A time that goes
    /// backwards belongs to the current second.
    fn due_at_speed(&mut self, speed: f64, all: bool) -> Option<u64> {
        let (time_s, count, handed) = match self.second {
            Some(second) => second,
            None => {
                let time_s = self.waiting.front()?.time_s.max(self.pass_s.map_or(0, |(_, last)| last));
                let more = self.waiting.len() < SECOND_REQUESTS_MAX && !all;
                if more && self.waiting.back()?.time_s <= time_s {
                    return None;
                }
                let count = self.waiting.iter().take_while(|request| request.time_s <= time_s).count();
                (time_s, count, 0)
            }
        };
        self.second = (handed + 1 < count).then_some((time_s, count, handed + 1));
        let (first, last) = self.pass_s.unwrap_or((time_s, time_s));
        self.pass_s = Some((first, last.max(time_s)));
        let second = self.before_s as f64 + f64::from(time_s.saturating_sub(first));
        // The remaining requests of a second with too many are due at its end.
        let due_ns = ((second + handed as f64 / count as f64) / speed * 1e9) as u64;
        self.last_due_ns = self.last_due_ns.max(due_ns);
        Some(self.last_due_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::super::options::Options;
    use super::super::server::Server;
    use super::*;

    fn dues(pace: Pace, passes: &[&[u32]]) -> Vec<u64> {
        let mut schedule = Schedule::new(pace);
        let mut due = Vec::new();
        for times in passes {
            schedule.begin_pass();
            for &time_s in *times {
                schedule.push(Request { time_s, ..Request::default() });
                while let Some(order) = schedule.pop(false) {
                    due.push(order.due_ns);
                }
            }
            while let Some(order) = schedule.pop(true) {
                due.push(order.due_ns);
            }
        }
        due
    }

    #[test]
    fn a_rate_spaces_requests_evenly_over_all_passes() {
        assert_eq!(dues(Pace::Rate(1000.0), &[&[0, 9], &[5, 5]]), [0, 1_000_000, 2_000_000, 3_000_000]);
    }

    #[test]
    fn the_requests_of_a_second_are_spread_over_it() {
        let seconds = dues(Pace::Speed(2.0), &[&[10, 10, 10, 10, 13], &[10, 13]]);
        assert_eq!(
            seconds,
            [0, 125_000_000, 250_000_000, 375_000_000, 1_500_000_000, 2_000_000_000, 3_500_000_000]
        );
    }

    #[test]
    fn a_time_that_goes_back_is_part_of_the_second_at_hand() {
        let seconds = dues(Pace::Speed(1.0), &[&[10, 11, 9, 10, 11, 12, 11], &[10, 9, 11]]);
        let expected = [0.0, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0];
        assert_eq!(seconds, expected.map(|second| (second * 1e9) as u64));
    }

    #[test]
    fn a_second_with_too_many_requests_goes_on_from_its_last_due() {
        let times = vec![0; SECOND_REQUESTS_MAX + 3];
        let due = dues(Pace::Speed(1.0), &[&times]);
        assert!(due.is_sorted());
        assert_eq!(due.len(), times.len());
        assert!(due[SECOND_REQUESTS_MAX + 2] < 1_000_000_000);
    }

    /// A list of requests of one key after the other.
    struct Keys(Vec<u64>);

    impl Source for Keys {
        fn fill(&mut self, into: &mut Vec<Request>, most: usize) -> Result<usize, SourceError> {
            let now = self.0.len().min(most);
            into.extend(self.0.drain(..now).map(|key| Request { key, ..Request::default() }));
            Ok(now)
        }

        fn fields(&self) -> Fields {
            Fields::default()
        }

        fn describe(&self) -> String {
            "keys".to_owned()
        }

        fn done_ratio(&self) -> Option<f64> {
            None
        }
    }

    #[test]
    fn a_thread_with_a_full_queue_holds_nothing_back_from_another() {
        let server = Server::Unix("/nowhere/at/all".into());
        let options = Options { connections: 2, threads: 2, ..Options::new(server) };
        let shared = Shared::of_test(options);
        let key_of = |thread| {
            (0..).find(|&key| shared.thread_of(shared.connection_of(key)) == thread).expect("one of all keys")
        };
        let mut keys = vec![key_of(1); 5];
        keys.extend(vec![key_of(0); BATCH_ORDERS + 1]);
        let (mut queues, mut receivers) = (Vec::new(), Vec::new());
        for _ in 0..2 {
            let poll = mio::Poll::new().expect("a poll");
            let waker = Waker::new(poll.registry(), mio::Token(0)).expect("a waker");
            let (batches, queue) = std::sync::mpsc::sync_channel(1);
            queues.push(WorkerQueue { batches, empties: std::sync::mpsc::channel().1, waker });
            receivers.push(queue);
        }
        std::thread::scope(|scope| {
            let receivers = receivers;
            scope.spawn(|| run(&|| unreachable!(), Box::new(Keys(keys)), &shared, queues));
            let next = |of: usize| receivers[of].recv_timeout(Duration::from_secs(5));
            // The gate message fills both queues; that of the first worker stays full.
            assert!(matches!(next(1), Ok(Batch::Gate)));
            assert!(matches!(next(1), Ok(Batch::Orders(_, orders)) if orders.len() == 5));
            assert!(matches!(next(0), Ok(Batch::Gate)));
            assert!(matches!(next(0), Ok(Batch::Orders(_, orders)) if orders.len() == BATCH_ORDERS));
            assert!(matches!(next(0), Ok(Batch::Orders(_, orders)) if orders.len() == 1));
        });
    }
}
