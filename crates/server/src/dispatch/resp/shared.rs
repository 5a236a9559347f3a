//! What all workers share of RESP: connections, counts of commands and errors, slow commands, the gate.

use super::accepted::Accepted;
use super::channels::Channels;
use super::clients::{Clients, unix_s};
use super::mailbox::Post;
use super::scripts::Scripts;
use super::tracking::Tracking;
use crate::dispatch::state::ServerState;
use crate::io::{Peer, Transport};
use larder_cache::{Change, Departure, Destination, Gate};
use larder_protocol::resp::{Args, Id};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

/// Kinds of errors that each worker counts.
const ERRORS_MAX: usize = 128;
/// Arguments of a slow command that are remembered, and bytes of each. The limits are Redis's.
const SLOW_ARGS_MAX: usize = 32;
const SLOW_ARG_BYTES_MAX: usize = 128;
/// Redis's defaults.
const SLOWER_THAN_US: i64 = 10_000;
const SLOW_MAX: u64 = 128;
/// A command of constant time takes less, in microseconds.
const SHORT_US: i64 = 1000;

/// Counts of one command.
#[derive(Default)]
pub(in crate::dispatch) struct CommandCount {
    calls: AtomicU64,
    us: AtomicU64,
    rejected: AtomicU64,
    failed: AtomicU64,
}

/// What is counted of one command.
#[derive(Clone, Copy, Default)]
pub(in crate::dispatch) struct CommandStats {
    pub(in crate::dispatch) calls: u64,
    pub(in crate::dispatch) us: u64,
    /// Refused before they were executed.
    pub(in crate::dispatch) rejected: u64,
    /// Executed, and answered with an error.
    pub(in crate::dispatch) failed: u64,
}

/// One worker's counts. Only that worker counts here.
#[repr(align(128))]
pub(in crate::dispatch) struct WorkerCounts {
    commands: Box<[CommandCount]>,
    /// How often each kind of error was answered, by its first word.
    errors: Mutex<BTreeMap<Box<str>, u64>>,
}

fn add(count: &AtomicU64, more: u64) {
    count.store(count.load(Relaxed).wrapping_add(more), Relaxed);
}

impl WorkerCounts {
    fn new() -> WorkerCounts {
        let commands = (0..Id::COUNT).map(|_| CommandCount::default()).collect();
        WorkerCounts { commands, errors: Mutex::default() }
    }

    /// Counts an error by its first word.
    pub(in crate::dispatch) fn error(&self, text: &[u8]) {
        let word = text.split(|byte| *byte == b' ').next().unwrap_or_default();
        let word = String::from_utf8_lossy(word);
        let mut errors = lock(&self.errors);
        if let Some(count) = errors.get_mut(&*word) {
            *count += 1;
        } else if errors.len() < ERRORS_MAX {
            errors.insert(word.into(), 1);
        }
    }

    pub(in crate::dispatch) fn executed(&self, command: usize, calls: u64, us: u64) {
        add(&self.commands[command].calls, calls);
        add(&self.commands[command].us, us);
    }

    pub(in crate::dispatch) fn rejected(&self, command: Id) {
        add(&self.commands[command as usize].rejected, 1);
    }

    pub(in crate::dispatch) fn failed(&self, command: Id) {
        add(&self.commands[command as usize].failed, 1);
    }
}

/// A command that took long.
#[derive(Clone)]
pub(in crate::dispatch) struct SlowCommand {
    pub(in crate::dispatch) id: u64,
    pub(in crate::dispatch) unix_s: u64,
    pub(in crate::dispatch) us: u64,
    pub(in crate::dispatch) args: Vec<Vec<u8>>,
    pub(in crate::dispatch) address: String,
    pub(in crate::dispatch) name: Vec<u8>,
}

/// Commands, and bytes received and sent: in all, or for each second.
#[derive(Clone, Copy, Default)]
pub(in crate::dispatch) struct Rates {
    pub(in crate::dispatch) commands: u64,
    pub(in crate::dispatch) bytes_in: u64,
    pub(in crate::dispatch) bytes_out: u64,
}

#[derive(Default)]
struct Sample {
    taken: Option<Instant>,
    totals: Rates,
    rates: Rates,
}

/// The commands that took long, the latest first.
#[derive(Default)]
struct SlowLog {
    last_id: u64,
    commands: VecDeque<SlowCommand>,
}

/// What all workers share of RESP.
pub struct Shared {
    pub(in crate::dispatch) clients: Clients,
    /// It stays as long as the process: so a worker can keep that it is alone.
    pub(in crate::dispatch) gate: &'static Gate,
    workers: Box<[WorkerCounts]>,
    counts_at_reset: Mutex<Vec<CommandStats>>,
    slow: Mutex<SlowLog>,
    /// A command that takes longer is remembered, microseconds; negative = none is.
    pub(in crate::dispatch) slower_than_us: AtomicI64,
    /// How many slow commands are remembered.
    pub(in crate::dispatch) slow_max: AtomicU64,
    pub(in crate::dispatch) accepted: Accepted,
    /// The scripts that are kept.
    pub(in crate::dispatch) scripts: Scripts,
    pub(in crate::dispatch) told: Told,
    /// The most memory that was used, in bytes, as far as anybody looked.
    peak_bytes: AtomicU64,
    sample: Mutex<Sample>,
    /// Ports on which every connection speaks RESP.
    pub(in crate::dispatch) ports: Vec<u16>,
    /// 40 hexadecimal digits that name this run of the server.
    pub(in crate::dispatch) run_id: String,
}

/// What connections tell each other.
pub(in crate::dispatch) struct Told {
    pub(in crate::dispatch) post: Arc<Post>,
    pub(in crate::dispatch) channels: Channels,
    pub(in crate::dispatch) tracking: Arc<Tracking>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Shared {
    /// What the workers of a server share that begins now.
    pub fn new(server: &ServerState) -> Shared {
        let workers = server.settings().threads as usize;
        let ports = server.drivers().map_or(Vec::new(), |drivers| drivers.resp_ports.clone());
        let post = Arc::new(Post::new(workers, server.watch().news().clone(), server.buffers().cloned()));
        let tracking = Arc::new(Tracking::new(post.clone()));
        Shared {
            clients: Clients::default(),
            gate: Box::leak(Box::new(Gate::new(workers))),
            workers: (0..workers).map(|_| WorkerCounts::new()).collect(),
            counts_at_reset: Mutex::new(vec![CommandStats::default(); Id::COUNT]),
            slow: Mutex::default(),
            slower_than_us: AtomicI64::new(SLOWER_THAN_US),
            slow_max: AtomicU64::new(SLOW_MAX),
            accepted: Accepted::default(),
            scripts: Scripts::default(),
            told: Told { post, channels: Channels::default(), tracking },
            peak_bytes: AtomicU64::new(0),
            sample: Mutex::default(),
            ports,
            run_id: random_name(),
        }
    }

    /// Something has changed in the cache: clients that track keys are told.
    pub fn note_change(&self, change: Change<'_>) {
        self.told.tracking.note(change);
    }

    /// The same of an item that leaves memory.
    pub fn note_departure(&self, gone: &Departure<'_>) {
        if gone.to == Destination::Nowhere {
            self.told.tracking.note_eviction(gone.hash, gone.key);
        }
    }

    pub(in crate::dispatch) fn worker(&self, number: usize) -> &WorkerCounts {
        &self.workers[number]
    }

    /// What is counted of every command, in the order of the ids.
    pub(in crate::dispatch) fn command_stats(&self) -> Vec<CommandStats> {
        let base = lock(&self.counts_at_reset);
        self.total_counts()
            .into_iter()
            .zip(base.iter())
            .map(|(now, then)| CommandStats {
                calls: now.calls.saturating_sub(then.calls),
                us: now.us.saturating_sub(then.us),
                rejected: now.rejected.saturating_sub(then.rejected),
                failed: now.failed.saturating_sub(then.failed),
            })
            .collect()
    }

    fn total_counts(&self) -> Vec<CommandStats> {
        let sum = |of: fn(&CommandCount) -> &AtomicU64, id: usize| {
            self.workers.iter().map(|worker| of(&worker.commands[id]).load(Relaxed)).sum()
        };
        (0..Id::COUNT)
            .map(|id| CommandStats {
                calls: sum(|count| &count.calls, id),
                us: sum(|count| &count.us, id),
                rejected: sum(|count| &count.rejected, id),
                failed: sum(|count| &count.failed, id),
            })
            .collect()
    }

    /// How often each kind of error was answered.
    pub(in crate::dispatch) fn errors(&self) -> BTreeMap<Box<str>, u64> {
        let mut all = BTreeMap::new();
        for worker in &self.workers {
            for (word, count) in &*lock(&worker.errors) {
                *all.entry(word.clone()).or_default() += count;
            }
        }
        all
    }

    /// `CONFIG RESETSTAT`.
    pub(in crate::dispatch) fn reset(&self) {
        *lock(&self.counts_at_reset) = self.total_counts();
        self.workers.iter().for_each(|worker| lock(&worker.errors).clear());
    }

    /// Whether a client came in by a port on which every connection speaks RESP.
    pub(in crate::dispatch) fn is_port_of(&self, peer: &Peer<'_>) -> bool {
        // Without such a port nobody asks the system.
        peer.transport == Transport::Tcp
            && !self.ports.is_empty()
            && peer.local_port().is_some_and(|port| self.ports.contains(&port))
    }

    // ---- slow commands ----

    /// Whether a command that took so long is remembered.
    pub(in crate::dispatch) fn is_slow(&self, us: u64) -> bool {
        u64::try_from(self.slower_than_us.load(Relaxed)).is_ok_and(|least| us >= least)
    }

    /// Whether commands that take constant time may count as slow.
    #[inline]
    pub(in crate::dispatch) fn measures_all(&self) -> bool {
        (0..SHORT_US).contains(&self.slower_than_us.load(Relaxed))
    }

    /// Remembers a command that took long.
    pub(in crate::dispatch) fn remember_slow(&self, us: u64, args: Args<'_>, address: String, name: Vec<u8>) {
        let most = self.slow_max.load(Relaxed) as usize;
        let count = args.len();
        let mut kept: Vec<Vec<u8>> = args
            .take(if count > SLOW_ARGS_MAX { SLOW_ARGS_MAX - 1 } else { count })
            .map(|argument| match argument.len() {
                ..=SLOW_ARG_BYTES_MAX => argument.to_vec(),
                length => {
                    let more = format!("... ({} more bytes)", length - SLOW_ARG_BYTES_MAX);
                    [&argument[..SLOW_ARG_BYTES_MAX], more.as_bytes()].concat()
                }
            })
            .collect();
        if count > SLOW_ARGS_MAX {
            kept.push(format!("... ({} more arguments)", count - SLOW_ARGS_MAX + 1).into_bytes());
        }
        let mut slow = lock(&self.slow);
        let id = slow.last_id;
        slow.last_id += 1;
        slow.commands.push_front(SlowCommand { id, unix_s: unix_s(), us, args: kept, address, name });
        slow.commands.truncate(most);
    }

    /// The slow commands, the latest first.
    pub(in crate::dispatch) fn slow_commands(&self, most: usize) -> Vec<SlowCommand> {
        lock(&self.slow).commands.iter().take(most).cloned().collect()
    }

    pub(in crate::dispatch) fn slow_count(&self) -> usize {
        lock(&self.slow).commands.len()
    }

    pub(in crate::dispatch) fn forget_slow(&self) {
        lock(&self.slow).commands.clear();
    }

    /// Forgets the oldest slow commands beyond what is remembered.
    pub(in crate::dispatch) fn trim_slow(&self) {
        let most = self.slow_max.load(Relaxed) as usize;
        lock(&self.slow).commands.truncate(most);
    }

    // ---- figures over time ----

    /// Takes note of the memory that is used now. Returns the most so far.
    pub(in crate::dispatch) fn note_peak(&self, bytes: u64) -> u64 {
        self.peak_bytes.fetch_max(bytes, Relaxed).max(bytes)
    }

    /// About once a second: the totals of bytes received and sent.
    pub(in crate::dispatch) fn take_sample(&self, bytes_in: u64, bytes_out: u64) {
        let commands = self.total_counts().iter().map(|count| count.calls).sum();
        let now = Rates { commands, bytes_in, bytes_out };
        let mut sample = lock(&self.sample);
        let (before, since) = (sample.totals, sample.taken.map(|taken| taken.elapsed().as_secs_f64()));
        let rate = |now: u64, then: u64| match since {
            Some(seconds) if seconds > 0.0 => (now.saturating_sub(then) as f64 / seconds) as u64,
            _ => 0,
        };
        sample.rates = Rates {
            commands: rate(now.commands, before.commands),
            bytes_in: rate(now.bytes_in, before.bytes_in),
            bytes_out: rate(now.bytes_out, before.bytes_out),
        };
        (sample.totals, sample.taken) = (now, Some(Instant::now()));
    }

    /// The rates of the last second or so, for each second.
    pub(in crate::dispatch) fn rates(&self) -> Rates {
        lock(&self.sample).rates
    }
}

/// 40 hexadecimal digits by chance.
fn random_name() -> String {
    use std::hash::{BuildHasher, Hasher};
    let random = || std::collections::hash_map::RandomState::new().build_hasher().finish();
    let digits = format!("{:016x}{:016x}{:016x}", random(), random(), random());
    digits[..40].to_owned()
}
