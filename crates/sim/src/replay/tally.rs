//! What is counted while it runs: by operation, and in a histogram for each.

use std::array;

use hdrhistogram::Histogram;

/// The longest latency that is told apart, in nanoseconds: two hours, longer than the longest penalty.
const LATENCY_NS_MAX: u64 = 7_200_000_000_000;
/// Significant decimal digits of a latency.
const LATENCY_DIGITS: u8 = 3;

/// What was asked, as a report tells it apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// A `get` of the trace.
    Get,
    /// A `set` of the trace.
    Set,
    /// An `add`.
    Add,
    /// A `replace`.
    Replace,
    /// A `cas`; both of its exchanges together.
    Cas,
    /// An `append`.
    Append,
    /// A `prepend`.
    Prepend,
    /// A `delete`.
    Delete,
    /// An `incr`.
    Incr,
    /// A `decr`.
    Decr,
    /// The `set` after a miss.
    Fill,
    /// The `set` of the load phase.
    Load,
    /// The login of a connection.
    Login,
}

/// How many kinds a report tells.
pub(super) const KINDS: usize = Kind::Load as usize;

impl Kind {
    /// The kinds that a report tells.
    pub(super) const REPORTED: [Kind; KINDS] = [
        Kind::Get,
        Kind::Set,
        Kind::Add,
        Kind::Replace,
        Kind::Cas,
        Kind::Append,
        Kind::Prepend,
        Kind::Delete,
        Kind::Incr,
        Kind::Decr,
        Kind::Fill,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Get => "get",
            Kind::Set => "set",
            Kind::Add => "add",
            Kind::Replace => "replace",
            Kind::Cas => "cas",
            Kind::Append => "append",
            Kind::Prepend => "prepend",
            Kind::Delete => "delete",
            Kind::Incr => "incr",
            Kind::Decr => "decr",
            Kind::Fill => "fill",
            Kind::Load => "load",
            Kind::Login => "login",
        }
    }
}

/// Answers of one kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct Answers {
    /// Hits; writes that were done.
    pub done: u64,
    /// Misses; writes whose condition did not hold.
    pub not_done: u64,
    /// Error replies.
    pub refused: u64,
}

impl Answers {
    /// All of them.
    pub fn all(&self) -> u64 {
        self.done + self.not_done + self.refused
    }
}

/// Plain counts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// By kind.
    pub answers: [Answers; KINDS],
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Fetches from the back end.
    pub fetches: u64,
    /// Misses that waited for a fetch that was under way.
    pub joined: u64,
    /// Time that misses waited for the back end, in nanoseconds of the run.
    pub waited_ns: u64,
    /// Penalties of the fetches, in microseconds, not scaled.
    pub penalties_us: u64,
    /// Requests sent more than a millisecond after they were due.
    pub late: u64,
    /// Requests that were due and not sent when the run was ended.
    pub unsent: u64,
    /// How long after its time the latest request was sent, or was not yet sent at the end, in nanoseconds.
    pub lag_ns_max: u64,
    /// Values that could not be told right from wrong.
    pub unverified: u64,
    /// Values that were found right.
    pub verified: u64,
    /// Counts of a value that is no number.
    pub not_numbers: u64,
}

impl Counts {
    /// Adds others.
    pub(super) fn add(&mut self, other: &Counts) {
        for (mine, theirs) in self.answers.iter_mut().zip(&other.answers) {
            mine.done += theirs.done;
            mine.not_done += theirs.not_done;
            mine.refused += theirs.refused;
        }
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
        self.fetches += other.fetches;
        self.joined += other.joined;
        self.waited_ns += other.waited_ns;
        self.penalties_us += other.penalties_us;
        self.late += other.late;
        self.unsent += other.unsent;
        self.lag_ns_max = self.lag_ns_max.max(other.lag_ns_max);
        self.unverified += other.unverified;
        self.verified += other.verified;
        self.not_numbers += other.not_numbers;
    }

    /// Answers to one kind.
    pub fn of(&self, kind: Kind) -> Answers {
        self.answers[kind as usize]
    }

    /// Requests of the trace that were answered; fills are none.
    pub fn requests(&self) -> u64 {
        self.answers[..Kind::Fill as usize].iter().map(Answers::all).sum()
    }

    /// Hits of all gets that got an answer.
    pub fn hit_ratio(&self) -> Option<f64> {
        let gets = self.of(Kind::Get);
        let all = gets.done + gets.not_done;
        (all > 0).then(|| gets.done as f64 / all as f64)
    }
}

/// Latencies in nanoseconds.
pub(super) type Latencies = Histogram<u64>;

/// An empty histogram.
pub(super) fn latencies() -> Latencies {
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, LATENCY_DIGITS).expect("the bounds are constants that fit")
}

/// Counts and latencies of a stretch of time.
pub(super) struct Tally {
    /// Plain counts.
    pub(super) counts: Counts,
    /// Latencies by kind.
    pub(super) latencies: [Option<Box<Latencies>>; KINDS],
    /// Service times of gets: latency, and the penalty of a miss.
    pub(super) service: Option<Box<Latencies>>,
}

impl Tally {
    /// Nothing yet.
    pub(super) fn new() -> Tally {
        Tally { counts: Counts::default(), latencies: array::from_fn(|_| None), service: None }
    }

    /// A request of this kind took so long.
    #[inline]
    pub(super) fn took(&mut self, kind: Kind, ns: u64) {
        self.latencies[kind as usize]
            .get_or_insert_with(|| Box::new(latencies()))
            .saturating_record(ns.max(1));
    }

    /// A get took so long with its penalty.
    pub(super) fn served(&mut self, ns: u64) {
        self.service.get_or_insert_with(|| Box::new(latencies())).saturating_record(ns.max(1));
    }

    /// Adds another's.
    pub(super) fn add(&mut self, other: &Tally) {
        self.counts.add(&other.counts);
        for (mine, theirs) in self.latencies.iter_mut().zip(&other.latencies) {
            add_latencies(mine, theirs.as_deref());
        }
        add_latencies(&mut self.service, other.service.as_deref());
    }

    /// Latencies of all requests of the trace together.
    pub(super) fn all(&self) -> Latencies {
        let mut sum = latencies();
        for of_kind in self.latencies[..Kind::Fill as usize].iter().flatten() {
            sum.add(&**of_kind).expect("all have the same bounds");
        }
        sum
    }
}

fn add_latencies(mine: &mut Option<Box<Latencies>>, theirs: Option<&Latencies>) {
    if let Some(theirs) = theirs.filter(|theirs| !theirs.is_empty()) {
        mine.get_or_insert_with(|| Box::new(latencies())).add(theirs).expect("all have the same bounds");
    }
}
