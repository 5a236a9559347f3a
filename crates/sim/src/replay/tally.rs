//! Counters and latency histograms of a run, by kind of request.

use std::array;

use hdrhistogram::Histogram;

/// The longest distinguishable latency in nanoseconds: two hours, longer than any penalty.
const LATENCY_NS_MAX: u64 = 7_200_000_000_000;
/// Significant decimal digits of a latency.
const LATENCY_DIGITS: u8 = 3;

/// The kind of a request in the report.
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
    /// A `cas`; its two exchanges count as one.
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

/// The number of kinds in the report.
pub(super) const KINDS: usize = Kind::Load as usize;

impl Kind {
    /// The kinds in the report.
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

    /// The name in the report.
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

/// The answers to requests of one kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct Answers {
    /// Hits, and writes that were done.
    pub done: u64,
    /// Misses, and writes whose condition did not hold.
    pub not_done: u64,
    /// Error replies.
    pub refused: u64,
}

impl Answers {
    /// The sum of all answers.
    pub fn all(&self) -> u64 {
        self.done + self.not_done + self.refused
    }
}

/// Upper ends of the ranges of penalties in microseconds: PAMA's subclasses (section IV).
pub(super) const PENALTY_US_MAX: [u32; 5] = [1_000, 10_000, 100_000, 1_000_000, 5_000_000];

/// The counters.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Answers by kind.
    pub answers: [Answers; KINDS],
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Fetches from the back end.
    pub fetches: u64,
    /// Misses that joined a fetch in progress.
    pub joined: u64,
    /// Time in nanoseconds for which misses waited for the back end.
    pub waited_ns: u64,
    /// Sum of the unscaled penalties of the fetches, in microseconds.
    pub penalties_us: u64,
    /// Fetches by the unscaled penalty, in the ranges of [`PENALTY_US_MAX`].
    pub fetches_by_penalty: [u64; PENALTY_US_MAX.len()],
    /// Requests sent more than a millisecond after they were due.
    pub late: u64,
    /// Requests that were due but not sent when the run ended.
    pub unsent: u64,
    /// The largest delay between due time and sending in nanoseconds; at the end also that of unsent requests.
    pub lag_ns_max: u64,
    /// Values that could not be verified.
    pub unverified: u64,
    /// Values that were verified.
    pub verified: u64,
    /// Counting commands that met a value that is not a number.
    pub not_numbers: u64,
}

impl Counts {
    /// Adds other counters.
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
        for (mine, theirs) in self.fetches_by_penalty.iter_mut().zip(other.fetches_by_penalty) {
            *mine += theirs;
        }
        self.late += other.late;
        self.unsent += other.unsent;
        self.lag_ns_max = self.lag_ns_max.max(other.lag_ns_max);
        self.unverified += other.unverified;
        self.verified += other.verified;
        self.not_numbers += other.not_numbers;
    }

    /// Counts a fetch of this unscaled penalty in microseconds.
    pub(super) fn fetched(&mut self, penalty_us: u32) {
        self.fetches += 1;
        self.penalties_us += u64::from(penalty_us);
        let range = PENALTY_US_MAX.iter().position(|&max| penalty_us <= max);
        self.fetches_by_penalty[range.unwrap_or(PENALTY_US_MAX.len() - 1)] += 1;
    }

    /// The answers to one kind.
    pub fn of(&self, kind: Kind) -> Answers {
        self.answers[kind as usize]
    }

    /// Answered requests of the trace; fills do not count.
    pub fn requests(&self) -> u64 {
        self.answers[..Kind::Fill as usize].iter().map(Answers::all).sum()
    }

    /// Hit ratio of all answered gets.
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

/// Counters and latencies of some time.
pub(super) struct Tally {
    /// The counters.
    pub(super) counts: Counts,
    /// Latencies by kind.
    pub(super) latencies: [Option<Box<Latencies>>; KINDS],
    /// Service times of gets: latency, and the penalty of a miss.
    pub(super) service: Option<Box<Latencies>>,
}

impl Tally {
    /// An empty tally.
    pub(super) fn new() -> Tally {
        Tally { counts: Counts::default(), latencies: array::from_fn(|_| None), service: None }
    }

    /// Records the latency of a request of this kind.
    #[inline]
    pub(super) fn took(&mut self, kind: Kind, ns: u64) {
        self.latencies[kind as usize]
            .get_or_insert_with(|| Box::new(latencies()))
            .saturating_record(ns.max(1));
    }

    /// Records the service time of a get, including the penalty of a miss.
    pub(super) fn served(&mut self, ns: u64) {
        self.service.get_or_insert_with(|| Box::new(latencies())).saturating_record(ns.max(1));
    }

    /// Adds another tally.
    pub(super) fn add(&mut self, other: &Tally) {
        self.counts.add(&other.counts);
        for (mine, theirs) in self.latencies.iter_mut().zip(&other.latencies) {
            add_latencies(mine, theirs.as_deref());
        }
        add_latencies(&mut self.service, other.service.as_deref());
    }

    /// The latencies of all requests of the trace.
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
