//! The load generator: one thread, many connections, each with a batch of requests in flight.
//!
//! Closed loop: a connection sends its next batch when the last reply of the one before has come. Open loop: batches
//! are due at fixed times, whatever the server does, and latency counts from when a batch was due, so that a server
//! that stalls is charged for every request that had to wait.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

use crate::door::{Door, Stream};
use crate::keys::{Request, Ring};
use crate::procfs::{CoreTime, CpuMeter, thread_cpu};
use crate::reply::{Reply, parse};
use crate::wire::Wire;

/// A server that sends nothing for this long is given up.
const SILENCE_MAX: Duration = Duration::from_secs(20);

/// Interval at which the server's threads are sampled during a measurement.
const SAMPLE_EVERY: Duration = Duration::from_millis(250);

/// The source of the requests.
pub(crate) enum Source<'a> {
    /// The ring of requests from a position on, for some time.
    Ring {
        /// The requests.
        ring: &'a Ring,
        /// The position of the next request, which is advanced.
        position: &'a mut usize,
        /// Duration of the warm-up.
        warmup: Duration,
        /// Duration of the measurement.
        measure: Duration,
        /// A GET that misses is followed by a SET of the same key.
        fills: bool,
    },
    /// One SET of every key number in the range, as far as they begin before the time; all of them are measured.
    Store(std::ops::Range<u32>, Option<Instant>),
}

/// Key numbers stored between two looks at the clock.
const STORED_BETWEEN_LOOKS: u32 = 1024;

impl Source<'_> {
    fn next(&mut self) -> Option<Request> {
        match self {
            Self::Ring { ring, position, .. } => {
                let request = ring.at(**position);
                **position += 1;
                Some(request)
            }
            Self::Store(ids, until) => {
                let looks = ids.start.is_multiple_of(STORED_BETWEEN_LOOKS);
                if looks && until.is_some_and(|until| Instant::now() >= until) {
                    ids.start = ids.end;
                }
                ids.next().map(|id| Request { id, set: true })
            }
        }
    }

    fn fills(&self) -> bool {
        matches!(self, Self::Ring { fills: true, .. })
    }
}

/// The shape of the load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Number of connections.
    pub(crate) connections: usize,
    /// Requests in a batch, all in flight together.
    pub(crate) depth: usize,
    /// Requests per second over all connections; `None` is a closed loop.
    pub(crate) rate: Option<f64>,
}

/// The server under load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'a> {
    /// The way to it.
    pub(crate) door: &'a Door,
    /// Its process id.
    pub(crate) pid: u32,
    /// The cores of server and client together.
    pub(crate) cores: &'a [usize],
}

/// Replies, by kind.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// GETs answered with a value.
    pub(crate) hits: u64,
    /// GETs answered without a value.
    pub(crate) misses: u64,
    /// SETs done.
    pub(crate) stored: u64,
    /// Requests refused by the server.
    pub(crate) refused: u64,
}

impl Counts {
    /// All replies.
    pub(crate) fn total(&self) -> u64 {
        self.hits + self.misses + self.stored + self.refused
    }

    /// Adds the replies of another client.
    pub(crate) fn add(&mut self, other: &Self) {
        self.hits += other.hits;
        self.misses += other.misses;
        self.stored += other.stored;
        self.refused += other.refused;
    }

    fn since(&self, earlier: &Self) -> Self {
        Self {
            hits: self.hits - earlier.hits,
            misses: self.misses - earlier.misses,
            stored: self.stored - earlier.stored,
            refused: self.refused - earlier.refused,
        }
    }
}

/// The measurements of one round.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    /// Replies in the measured time.
    pub(crate) counts: Counts,
    /// The first refusal of the server.
    pub(crate) refusal: Option<String>,
    /// The measured time.
    pub(crate) elapsed: Duration,
    /// Nanoseconds from sending (closed loop) or being due (open loop) to the reply.
    pub(crate) latency: Histogram<u64>,
    /// Processor time of the server.
    pub(crate) server_cpu: Duration,
    /// Processor time of the server that the kernel knows of, but no thread shows.
    pub(crate) server_cpu_unseen: Duration,
    /// Processor time of this client.
    pub(crate) client_cpu: Duration,
    /// The activity of the cores during the measurement.
    pub(crate) cores: CoreTime,
}

struct Connection {
    stream: Stream,
    out: Vec<u8>,
    sent: usize,
    input: Vec<u8>,
    filled: usize,
    pending: Vec<Request>,
    answered: usize,
    /// Keys of GETs that missed.
    missed: Vec<u32>,
    /// The time from which latency counts, in nanoseconds after the start.
    since_ns: u64,
    /// Open loop: when the next batch is due, in nanoseconds after the start.
    due_ns: u64,
}

/// Runs a load on a server and measures it.
pub(crate) fn run(target: Target<'_>, wire: &Wire, shape: Shape, source: Source<'_>) -> Result<Measured> {
    let mut poll = Poll::new()?;
    let connections = connect(target.door, wire, shape, &mut poll)?;
    let mut client = Client {
        wire,
        shape,
        source,
        connections,
        start: Instant::now(),
        live: 0,
        answered: Answered::default(),
        latency: Histogram::new_with_bounds(1, 60_000_000_000, 3)?,
    };
    let measured = client.run(&mut poll, target)?;
    let Answered { wrong, first_wrong, counts, .. } = &client.answered;
    if let Some(first) = first_wrong {
        bail!("{wrong} of {} values are wrong: {first}", wrong + counts.hits);
    }
    Ok(measured)
}

/// Nanoseconds between two batches of one connection in the open loop.
fn interval_ns(shape: Shape) -> Option<f64> {
    shape.rate.map(|rate| 1e9 * (shape.connections * shape.depth) as f64 / rate)
}

fn connect(door: &Door, wire: &Wire, shape: Shape, poll: &mut Poll) -> Result<Vec<Connection>> {
    let batch_bytes = wire.message_bytes_max() * shape.depth;
    let open = |at: usize| -> Result<Connection> {
        let stream = door.connect()?;
        stream.socket().set_nonblocking(true)?;
        let interest = Interest::READABLE | Interest::WRITABLE;
        poll.registry().register(&mut SourceFd(&stream.socket().as_raw_fd()), Token(at), interest)?;
        let due_ns =
            interval_ns(shape).map_or(0, |interval| (interval * at as f64 / shape.connections as f64) as u64);
        Ok(Connection {
            stream,
            out: Vec::with_capacity(batch_bytes),
            sent: 0,
            input: vec![0; batch_bytes + 4096],
            filled: 0,
            pending: Vec::with_capacity(shape.depth),
            answered: 0,
            missed: Vec::new(),
            since_ns: 0,
            due_ns,
        })
    };
    (0..shape.connections).map(open).collect()
}

/// What the server has answered so far.
#[derive(Default)]
struct Answered {
    counts: Counts,
    /// The first refusal.
    refusal: Option<String>,
    /// Values that are not those of their keys.
    wrong: u64,
    /// The first of them.
    first_wrong: Option<String>,
}

struct Client<'a> {
    wire: &'a Wire,
    shape: Shape,
    source: Source<'a>,
    connections: Vec<Connection>,
    start: Instant,
    /// Connections with a batch in flight.
    live: usize,
    answered: Answered,
    latency: Histogram<u64>,
}

/// Readings at the start of the measured time.
struct Window {
    at: Instant,
    counts: Counts,
    server: CpuMeter,
    client: Duration,
    cores: CoreTime,
    sampled: Instant,
}

impl Client<'_> {
    fn run(&mut self, poll: &mut Poll, target: Target<'_>) -> Result<Measured> {
        let (warmup, measure) = match &self.source {
            Source::Ring { warmup, measure, .. } => (*warmup, Some(*measure)),
            Source::Store(..) => (Duration::ZERO, None),
        };
        let mut window = if warmup.is_zero() { Some(self.open_window(target)?) } else { None };
        let mut measured = None;
        self.start = Instant::now();
        if self.shape.rate.is_none() {
            for at in 0..self.connections.len() {
                self.send_batch(at, 0)?;
            }
        }
        let mut events = Events::with_capacity(self.connections.len().max(16));
        let mut heard = Instant::now();
        loop {
            let now = Instant::now();
            if window.is_none() && now - self.start >= warmup {
                window = Some(self.open_window(target)?);
                self.latency.reset();
            }
            if let Some(window) = window.as_mut().filter(|_| measured.is_none()) {
                let over = measure.map_or(self.live == 0, |measure| now - window.at >= measure);
                if over {
                    measured = Some(self.close_window(window, now, target)?);
                } else if now - window.sampled >= SAMPLE_EVERY {
                    window.sampled = now;
                    window.server.sample()?;
                }
            }
            if self.live == 0
                && let Some(measured) = measured.take()
            {
                return Ok(measured);
            }
            if self.shape.rate.is_some() && measured.is_none() {
                self.send_due()?;
            }
            let spin = self.shape.rate.is_some() && measured.is_none();
            let patience = if spin { Duration::ZERO } else { Duration::from_millis(50) };
            match poll.poll(&mut events, Some(patience)) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                other => other?,
            }
            if !events.is_empty() || self.live == 0 {
                heard = now;
            } else if now - heard > SILENCE_MAX {
                bail!("no reply for {} s, with requests in flight", SILENCE_MAX.as_secs());
            }
            for event in &events {
                self.serve(event.token().0, measured.is_none())?;
            }
        }
    }

    fn open_window(&mut self, target: Target<'_>) -> Result<Window> {
        let server = CpuMeter::new(target.pid)?;
        let cores = CoreTime::now(target.cores)?;
        let at = Instant::now();
        Ok(Window { at, counts: self.answered.counts, server, client: thread_cpu(), cores, sampled: at })
    }

    fn close_window(&mut self, window: &mut Window, now: Instant, target: Target<'_>) -> Result<Measured> {
        let client_cpu = thread_cpu() - window.client;
        Ok(Measured {
            counts: self.answered.counts.since(&window.counts),
            refusal: self.answered.refusal.take(),
            elapsed: now - window.at,
            latency: self.latency.clone(),
            server_cpu: window.server.sample()?,
            server_cpu_unseen: window.server.unseen(),
            client_cpu,
            cores: CoreTime::now(target.cores)?.since(window.cores),
        })
    }

    /// Open loop: sends what is due on connections that are free.
    fn send_due(&mut self) -> Result<()> {
        let Some(interval) = interval_ns(self.shape) else { return Ok(()) };
        let now_ns = self.start.elapsed().as_nanos() as u64;
        for at in 0..self.connections.len() {
            let connection = &mut self.connections[at];
            if connection.pending.is_empty() && connection.due_ns <= now_ns {
                let due_ns = connection.due_ns;
                connection.due_ns += interval as u64;
                self.send_batch(at, due_ns)?;
            }
        }
        Ok(())
    }

    /// Sends the next batch on an idle connection, if there are requests left.
    fn send_batch(&mut self, at: usize, since_ns: u64) -> Result<()> {
        let connection = &mut self.connections[at];
        connection.out.clear();
        connection.sent = 0;
        connection.since_ns = since_ns;
        while connection.pending.len() < self.shape.depth {
            let missed = connection.missed.pop().map(|id| Request { id, set: true });
            let Some(request) = missed.or_else(|| self.source.next()) else { break };
            if request.set {
                self.wire.put_set(&mut connection.out, request.id);
            } else {
                self.wire.put_get(&mut connection.out, request.id);
            }
            connection.pending.push(request);
        }
        if connection.pending.is_empty() {
            return Ok(());
        }
        self.live += 1;
        connection.flush()
    }

    /// Reads the replies of a ready connection. When the whole batch is answered, a closed loop sends the next one.
    fn serve(&mut self, at: usize, go_on: bool) -> Result<()> {
        let connection = &mut self.connections[at];
        connection.flush()?;
        loop {
            let room = &mut connection.input[connection.filled..];
            let room_bytes = room.len();
            let read = match connection.stream.read(room) {
                Ok(0) => bail!("the server closed a connection"),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error).context("read"),
            };
            connection.filled += read;
            let now_ns = self.start.elapsed().as_nanos() as u64;
            let before = connection.answered;
            connection.take_replies(self.wire, &mut self.answered)?;
            if !self.source.fills() {
                connection.missed.clear();
            }
            let answered = (connection.answered - before) as u64;
            let waited = now_ns.saturating_sub(connection.since_ns).max(1);
            self.latency.saturating_record_n(waited, answered);
            if !connection.pending.is_empty() && connection.answered == connection.pending.len() {
                connection.pending.clear();
                connection.answered = 0;
                self.live -= 1;
                return if go_on && self.shape.rate.is_none() { self.send_batch(at, now_ns) } else { Ok(()) };
            }
            // Readiness is reported again for every arrival, so a read that left room was the last.
            if read < room_bytes && connection.stream.reads_all_at_once() {
                return Ok(());
            }
        }
    }
}

impl Connection {
    /// Writes the rest of the batch, as far as the socket takes it.
    fn flush(&mut self) -> Result<()> {
        while self.sent < self.out.len() {
            match self.stream.write(&self.out[self.sent..]) {
                Ok(written) => self.sent += written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("write"),
            }
        }
        Ok(())
    }

    /// Parses, counts and verifies the complete replies.
    fn take_replies(&mut self, wire: &Wire, seen: &mut Answered) -> Result<()> {
        let (mut at, counts) = (0, &mut seen.counts);
        while let Some(request) = self.pending.get(self.answered) {
            let input = &self.input[at..self.filled];
            let Ok(parsed) = parse(wire.protocol, input) else { bail!(bad_reply(input)) };
            let Some((reply, consumed)) = parsed else { break };
            match reply {
                Reply::Hit(value) if !request.set && wire.belongs(request.id, value) => counts.hits += 1,
                Reply::Hit(value) if !request.set => {
                    seen.wrong += 1;
                    let first = || format!("a wrong value for key {}: {}", request.id, bad_reply(value));
                    seen.first_wrong.get_or_insert_with(first);
                }
                Reply::Miss if !request.set => {
                    counts.misses += 1;
                    self.missed.push(request.id);
                }
                Reply::Stored if request.set => counts.stored += 1,
                Reply::Refused(text) => {
                    counts.refused += 1;
                    seen.refusal.get_or_insert_with(|| String::from_utf8_lossy(text).into_owned());
                }
                Reply::Hit(_) | Reply::Miss | Reply::Stored => {
                    bail!("a reply of the wrong kind: {}", bad_reply(input))
                }
            }
            at += consumed;
            self.answered += 1;
        }
        if self.answered == self.pending.len() && at < self.filled {
            bail!("a reply without a request: {}", bad_reply(&self.input[at..self.filled]));
        }
        self.input.copy_within(at..self.filled, 0);
        self.filled -= at;
        if self.filled == self.input.len() {
            bail!("a reply longer than any value stored");
        }
        Ok(())
    }
}

/// The printable start of an unexpected reply.
fn bad_reply(bytes: &[u8]) -> String {
    format!("`{}`", bytes[..bytes.len().min(80)].escape_ascii())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::keys::{KeyPicker, Popularity};
    use crate::wire::{Protocol, ValueBytes};
    use std::collections::HashSet;
    use std::net::{SocketAddr, TcpListener};

    /// A text-protocol cache of one thread per connection that replies in pieces of `piece` bytes and keeps quiet for
    /// `stall` before its first reply.
    pub(crate) fn naive_cache(piece: usize, stall: Duration) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let stored = std::sync::Arc::new(std::sync::Mutex::new(std::collections::HashMap::new()));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let stored = stored.clone();
                std::thread::spawn(move || {
                    stream.set_nodelay(true).ok();
                    std::thread::sleep(stall);
                    let mut input = std::io::BufReader::new(stream.try_clone().expect("a clone"));
                    let mut line = String::new();
                    while std::io::BufRead::read_line(&mut input, &mut line).is_ok_and(|read| read > 0) {
                        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
                        line.clear();
                        let reply = if words[0] == "set" {
                            let mut data = vec![0; words[4].parse::<usize>().expect("a length") + 2];
                            input.read_exact(&mut data).expect("the data");
                            stored.lock().expect("no panic").insert(words[1].clone(), data);
                            b"STORED\r\n".to_vec()
                        } else if let Some(data) = stored.lock().expect("no panic").get(&words[1]) {
                            let head = format!("VALUE {} 0 {}\r\n", words[1], data.len() - 2);
                            [head.as_bytes(), data, b"END\r\n"].concat()
                        } else {
                            b"END\r\n".to_vec()
                        };
                        for piece in reply.chunks(piece) {
                            if (&stream).write_all(piece).is_err() {
                                return;
                            }
                        }
                    }
                });
            }
        });
        address
    }

    fn target(door: &Door) -> Target<'_> {
        Target { door, pid: std::process::id(), cores: &[] }
    }

    fn ring_for(items: u32) -> Ring {
        Ring::resident(&mut KeyPicker::new(items, Popularity::Uniform, 1), 80, 1 << 12)
    }

    fn timed<'a>(ring: &'a Ring, position: &'a mut usize, milliseconds: u64) -> Source<'a> {
        let warmup = Duration::from_millis(10);
        Source::Ring { ring, position, warmup, measure: Duration::from_millis(milliseconds), fills: false }
    }

    #[test]
    fn stores_everything_once_and_reads_it_back() {
        let door = Door::from(naive_cache(7, Duration::ZERO));
        let wire = Wire::new(Protocol::Text, ValueBytes { min: 5, max: 200 }, true);
        let shape = Shape { connections: 3, depth: 8, rate: None };
        let stored = run(target(&door), &wire, shape, Source::Store(0..500, None)).expect("stores");
        assert_eq!((stored.counts.stored, stored.counts.total()), (500, 500));
        assert_eq!(stored.latency.len(), 500);
        let (ring, mut position) = (ring_for(1_000), 0);
        let read = run(target(&door), &wire, shape, timed(&ring, &mut position, 100)).expect("reads");
        assert!(read.counts.hits > 0 && read.counts.misses > 0 && read.counts.stored > 0);
        assert!(position as u64 >= read.counts.total());
        let asked: HashSet<u32> = (0..position).map(|at| ring.at(at).id).collect();
        assert!(asked.len() > 1);
    }

    #[test]
    fn a_wrong_value_is_found() {
        let door = Door::from(naive_cache(1 << 20, Duration::ZERO));
        let shape = Shape { connections: 1, depth: 4, rate: None };
        let short = Wire::new(Protocol::Text, ValueBytes::fixed(20), true);
        run(target(&door), &short, shape, Source::Store(0..100, None)).expect("stores");
        let long = Wire::new(Protocol::Text, ValueBytes::fixed(21), true);
        let (ring, mut position) = (ring_for(100), 0);
        let error = run(target(&door), &long, shape, timed(&ring, &mut position, 50));
        let text = error.expect_err("wrong lengths").to_string();
        let words: Vec<&str> = text.split(' ').collect();
        assert!(text.contains("values are wrong: a wrong value for key "), "{text}");
        // Not only the first is counted; those that the client itself has stored meanwhile are right.
        let (wrong, all): (u64, u64) =
            (words[0].parse().expect("a count"), words[2].parse().expect("a count"));
        assert!(1 < wrong && wrong <= all, "{text}");
    }

    #[test]
    fn the_open_loop_charges_a_stall_to_everyone_who_waited() {
        let door = Door::from(naive_cache(1 << 20, Duration::from_millis(300)));
        let wire = Wire::new(Protocol::Text, ValueBytes::fixed(20), true);
        let shape = Shape { connections: 1, depth: 1, rate: Some(100.0) };
        let (ring, mut position) = (ring_for(100), 0);
        let read = run(target(&door), &wire, shape, timed(&ring, &mut position, 600)).expect("reads");
        // Some thirty requests were due during the stall; a closed loop would have been late with one only.
        let late = read.latency.count_between(20_000_000, 60_000_000_000);
        assert!((15..45).contains(&late), "{late} late of {}", read.latency.len());
    }
}
