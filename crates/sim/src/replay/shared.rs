//! The state shared by the threads of a run.

use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::time::Instant;

use super::backend::Backend;
use super::options::{Options, Warmup};
use super::wire::Wire;
use crate::mix::mix64;

/// Delay between the last worker's arrival at the gate and its opening.
const GATE_NS: u64 = 1_000_000;

/// The state shared by the threads of a run.
pub(super) struct Shared {
    /// The options.
    pub(super) options: Options,
    /// The encoding of requests.
    pub(super) wire: Wire,
    /// The simulated back end, if misses are fetched.
    pub(super) backend: Option<Backend>,
    /// The first version; a later run starts with a higher one.
    pub(super) version_first: u64,
    /// Whether all threads shall end.
    pub(super) stop: Arc<AtomicBool>,
    /// Whether a connection with waiting requests was down for too long.
    pub(super) abandoned: AtomicBool,
    /// Requests answered so far, in all phases.
    pub(super) answered: AtomicU64,
    /// Number of healthy connections.
    pub(super) healthy: AtomicUsize,
    /// Whether some key was counted with.
    pub(super) counters_seen: AtomicBool,
    /// Whether some value was appended or prepended to.
    pub(super) growth_seen: AtomicBool,
    /// For each worker, whether it has nothing to send.
    pub(super) starving: Vec<AtomicBool>,
    began: Instant,
    gate: Gate,
    progress: AtomicU64,
}

/// Where all workers wait for each other, once everything before it is answered. Times are 0 until they are known.
#[derive(Default)]
struct Gate {
    /// The number of workers that wait.
    waiting: AtomicUsize,
    /// When it opens.
    opens_ns: AtomicU64,
    /// When measuring starts.
    measure_ns: AtomicU64,
}

impl Shared {
    /// A run that starts now.
    pub(super) fn new(options: Options, wire: Wire, version_first: u64, stop: Arc<AtomicBool>) -> Shared {
        Shared {
            backend: options.read_through.map(Backend::new),
            wire,
            version_first,
            stop,
            abandoned: AtomicBool::new(false),
            answered: AtomicU64::new(0),
            healthy: AtomicUsize::new(0),
            counters_seen: AtomicBool::new(false),
            growth_seen: AtomicBool::new(false),
            starving: (0..options.threads).map(|_| AtomicBool::new(false)).collect(),
            began: Instant::now(),
            gate: Gate::default(),
            progress: AtomicU64::new(f64::NAN.to_bits()),
            options,
        }
    }

    /// For tests of one part without a server.
    #[cfg(test)]
    pub(super) fn of_test(options: Options) -> Shared {
        let protocol = super::options::Protocol::Memcached;
        let wire = Wire {
            protocol,
            keys: super::key::Keys::new("", protocol),
            values: super::value::Values::new(options.verify),
            began_unix_s: 0,
        };
        Shared::new(options, wire, 1, Arc::default())
    }

    /// Nanoseconds since the start of the run; never 0.
    #[inline]
    pub(super) fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64 + 1
    }

    /// Whether all requests of a key use one connection.
    #[inline]
    pub(super) fn ordered(&self) -> bool {
        !self.options.spread
    }

    /// The connection of a key, among the connections of all threads.
    #[inline]
    pub(super) fn connection_of(&self, key: u64) -> usize {
        ((u128::from(mix64(key ^ 0x5ca1_ab1e)) * self.options.connections as u128) >> 64) as usize
    }

    /// The worker of a connection.
    #[inline]
    pub(super) fn thread_of(&self, connection: usize) -> usize {
        connection % self.options.threads
    }

    /// A worker has answered everything before the gate.
    pub(super) fn arrive(&self) {
        if self.gate.waiting.fetch_add(1, AcqRel) + 1 == self.options.threads {
            let opens_ns = self.now_ns() + GATE_NS;
            match self.options.warmup {
                Some(Warmup::Requests(1..)) => {}
                Some(Warmup::Time(time)) => {
                    self.gate.measure_ns.store(opens_ns + time.as_nanos() as u64, Release);
                }
                _ => self.gate.measure_ns.store(opens_ns, Release),
            }
            self.gate.opens_ns.store(opens_ns, Release);
        }
    }

    /// The time at which the gate opens, once it is known.
    pub(super) fn gate_ns(&self) -> Option<u64> {
        Some(self.gate.opens_ns.load(Acquire)).filter(|&ns| ns != 0)
    }

    /// The time at which measuring starts, once it is known.
    #[inline]
    pub(super) fn measure_ns(&self) -> Option<u64> {
        Some(self.gate.measure_ns.load(Acquire)).filter(|&ns| ns != 0)
    }

    /// The first measured request is sent. Returns the time at which measuring started, which another thread may have
    /// set.
    pub(super) fn begin_measuring(&self, now_ns: u64) -> u64 {
        match self.gate.measure_ns.compare_exchange(0, now_ns, AcqRel, Acquire) {
            Ok(_) => now_ns,
            Err(earlier) => earlier,
        }
    }

    /// Sets how much of the source has been read.
    pub(super) fn set_progress(&self, ratio: Option<f64>) {
        self.progress.store(ratio.unwrap_or(f64::NAN).to_bits(), Relaxed);
    }

    /// How much of the source has been read, from 0 to 1, if known.
    pub(super) fn progress(&self) -> Option<f64> {
        Some(f64::from_bits(self.progress.load(Relaxed))).filter(|ratio| !ratio.is_nan())
    }
}
