//! What the workers count about their sockets.
//!
//! A worker's counters have one writer, so counting is a plain load and a plain store, on cache lines of the worker's
//! own.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::buffers::Buffers;

/// A number with one writer and any number of readers.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    /// Only the owning thread calls this: it is a load and a store, not one atomic step.
    #[inline]
    pub(super) fn add(&self, more: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    }

    pub(super) fn sub(&self, less: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_sub(less), Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One worker's counters, on cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct WorkerCounters {
    pub(super) bytes_read: Count,
    pub(super) bytes_written: Count,
    pub(super) waits: Count,
    pub(super) open: Count,
    pub(super) opened: Count,
    pub(super) rejected: Count,
    pub(super) rejected_per_address: Count,
    /// Connections of other machines, which nothing says may come.
    pub(super) rejected_strangers: Count,
    pub(super) idle_kicks: Count,
    /// How often the worker looked at its clock: about once a second, unless it is stuck.
    pub(super) ticks: Count,
    pub(super) out_of_memory: Count,
    pub(super) unread: Count,
    pub(super) datagrams: Count,
    pub(super) datagrams_dropped: Count,
    pub(super) tls_errors: Count,
    /// Connections given to this worker, open or still in its inbox. New connections go to the worker with the fewest.
    /// The accepting worker writes the count too, so it is atomic.
    pub(super) assigned: AtomicU64,
}

/// The sums of all workers' counters. Each number is exact, but the numbers are not read at one instant. Counts start
/// with the server, or with the last [`IoCounters::reset`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IoSnapshot {
    /// Stream connections open now.
    pub curr_connections: u64,
    /// Stream connections opened.
    pub total_connections: u64,
    /// Connections turned away because the limit was reached.
    pub rejected_connections: u64,
    /// Connections turned away because their address had too many.
    pub address_rejected_connections: u64,
    /// Connections of other machines that were turned away, because nothing says that they may come.
    pub stranger_rejected_connections: u64,
    /// Whether new connections are accepted now.
    pub accepting: bool,
    /// How often accepting stopped because connections or file descriptors ran out.
    pub listen_disabled_num: u64,
    /// How long accepting was stopped in all, in microseconds.
    pub time_in_listen_disabled_us: u64,
    /// Bytes received, including UDP payload.
    pub bytes_read: u64,
    /// Bytes sent, including UDP frames.
    pub bytes_written: u64,
    /// Connections closed because no request came for the idle timeout.
    pub idle_kicks: u64,
    /// Connections closed because a partial request did not fit the buffers' limit.
    pub read_out_of_memory: u64,
    /// Connections closed because their clients did not read replies while memory for buffers was short.
    pub unread_kicks: u64,
    /// UDP requests received.
    pub udp_requests: u64,
    /// UDP requests or replies dropped: malformed, more than one datagram, or a reply too long.
    pub udp_dropped: u64,
    /// TLS handshakes that made a new session.
    pub tls_handshakes_full: u64,
    /// TLS handshakes that resumed a session.
    pub tls_handshakes_resumed: u64,
    /// TLS handshakes that failed, or took too long.
    pub tls_handshakes_failed: u64,
    /// TLS connections that ended because their client broke the rules.
    pub tls_errors: u64,
    /// How often the workers waited in the kernel. Requests divided by this number is the average batch.
    pub waits: u64,
    /// Bytes of connection buffers, as [`Buffers::used_bytes`].
    pub buffer_bytes: u64,
    /// Bytes of the sessions of encrypted connections, as [`Buffers::sessions_bytes`].
    pub session_bytes: u64,
}

/// The counters of all workers. Any thread may read them at any time.
#[derive(Debug)]
pub struct IoCounters {
    pub(super) workers: Box<[WorkerCounters]>,
    pub(super) accepting: AtomicBool,
    pub(super) listen_disabled: AtomicU64,
    pub(super) listen_disabled_us: AtomicU64,
    /// TLS handshakes that made a new session, that resumed one, and that failed.
    pub(super) handshakes_full: AtomicU64,
    pub(super) handshakes_resumed: AtomicU64,
    pub(super) handshakes_failed: AtomicU64,
    pub(super) buffers: Arc<Buffers>,
    baseline: Mutex<IoSnapshot>,
}

impl IoCounters {
    /// How often each worker looked at its clock.
    pub fn ticks(&self) -> Vec<u64> {
        self.workers.iter().map(|worker| worker.ticks.get()).collect()
    }

    pub(super) fn new(workers: usize, buffers: Arc<Buffers>) -> IoCounters {
        IoCounters {
            workers: (0..workers).map(|_| WorkerCounters::default()).collect(),
            accepting: AtomicBool::new(true),
            listen_disabled: AtomicU64::new(0),
            listen_disabled_us: AtomicU64::new(0),
            handshakes_full: AtomicU64::new(0),
            handshakes_resumed: AtomicU64::new(0),
            handshakes_failed: AtomicU64::new(0),
            buffers,
            baseline: Mutex::new(IoSnapshot::default()),
        }
    }

    /// The sums since the server started, or since the last [`IoCounters::reset`].
    pub fn snapshot(&self) -> IoSnapshot {
        let base = *self.baseline.lock().expect("no panic under this lock");
        let now = self.totals();
        let grown = |of: fn(&IoSnapshot) -> u64| of(&now).saturating_sub(of(&base));
        IoSnapshot {
            total_connections: grown(|at| at.total_connections),
            rejected_connections: grown(|at| at.rejected_connections),
            address_rejected_connections: grown(|at| at.address_rejected_connections),
            stranger_rejected_connections: grown(|at| at.stranger_rejected_connections),
            listen_disabled_num: grown(|at| at.listen_disabled_num),
            time_in_listen_disabled_us: grown(|at| at.time_in_listen_disabled_us),
            bytes_read: grown(|at| at.bytes_read),
            bytes_written: grown(|at| at.bytes_written),
            idle_kicks: grown(|at| at.idle_kicks),
            read_out_of_memory: grown(|at| at.read_out_of_memory),
            unread_kicks: grown(|at| at.unread_kicks),
            udp_requests: grown(|at| at.udp_requests),
            udp_dropped: grown(|at| at.udp_dropped),
            tls_handshakes_full: grown(|at| at.tls_handshakes_full),
            tls_handshakes_resumed: grown(|at| at.tls_handshakes_resumed),
            tls_handshakes_failed: grown(|at| at.tls_handshakes_failed),
            tls_errors: grown(|at| at.tls_errors),
            waits: grown(|at| at.waits),
            ..now
        }
    }

    /// Counts from zero again (`stats reset`). Numbers that are no counts, such as the open connections, stay.
    pub fn reset(&self) {
        *self.baseline.lock().expect("no panic under this lock") = self.totals();
    }

    /// How many connections each worker has open, by worker number.
    pub fn connections_per_worker(&self) -> Vec<u64> {
        self.workers.iter().map(|w| w.open.get()).collect()
    }

    fn totals(&self) -> IoSnapshot {
        let sum = |of: fn(&WorkerCounters) -> &Count| self.workers.iter().map(|w| of(w).get()).sum();
        IoSnapshot {
            curr_connections: sum(|w| &w.open),
            total_connections: sum(|w| &w.opened),
            rejected_connections: sum(|w| &w.rejected),
            address_rejected_connections: sum(|w| &w.rejected_per_address),
            stranger_rejected_connections: sum(|w| &w.rejected_strangers),
            accepting: self.accepting.load(Ordering::Relaxed),
            listen_disabled_num: self.listen_disabled.load(Ordering::Relaxed),
            time_in_listen_disabled_us: self.listen_disabled_us.load(Ordering::Relaxed),
            bytes_read: sum(|w| &w.bytes_read),
            bytes_written: sum(|w| &w.bytes_written),
            idle_kicks: sum(|w| &w.idle_kicks),
            read_out_of_memory: sum(|w| &w.out_of_memory),
            unread_kicks: sum(|w| &w.unread),
            udp_requests: sum(|w| &w.datagrams),
            udp_dropped: sum(|w| &w.datagrams_dropped),
            tls_handshakes_full: self.handshakes_full.load(Ordering::Relaxed),
            tls_handshakes_resumed: self.handshakes_resumed.load(Ordering::Relaxed),
            tls_handshakes_failed: self.handshakes_failed.load(Ordering::Relaxed),
            tls_errors: sum(|w| &w.tls_errors),
            waits: sum(|w| &w.waits),
            buffer_bytes: self.buffers.used_bytes(),
            session_bytes: self.buffers.sessions_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reset_is_subtracted_and_a_later_one_leaves_nothing() {
        let counters = IoCounters::new(2, Arc::new(Buffers::new(100)));
        counters.workers[0].bytes_read.add(3);
        counters.reset();
        counters.workers[1].bytes_read.add(4);
        assert_eq!(counters.snapshot().bytes_read, 4);
        counters.baseline.lock().expect("no panic under this lock").bytes_read = 9;
        assert_eq!(counters.snapshot().bytes_read, 0);
    }
}
