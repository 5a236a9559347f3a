//! Replays a trace or a workload against a real server, measures it and verifies its answers.
//!
//! ```text
//!   source --> feed ---- batches of requests, by hash of key ----> worker (a thread, an event loop)
//!                                                                    |  connection: command -> wire -> pending
//!              backend <---- misses ---------------------------------|              settle <- reply
//!   report <-- summary <-- collect <------ tallies, every second ----+
//! ```
//!
//! All requests of a key use one connection, in the order of the trace. Therefore it is known exactly which value a
//! read must return: the value contains its key and the version of its write ([`value`]), and the [`ledger`] records
//! the last acknowledged write of each key.
//!
//! A replay runs on the time of the machine, unlike the simulations.

mod backend;
mod collect;
mod connection;
mod faults;
mod feed;
mod fetches;
mod judge;
mod key;
mod ledger;
mod link;
mod options;
mod outcome;
pub(crate) mod probe;
mod reply;
mod send;
pub(crate) mod server;
mod settle;
mod shared;
mod summary;
mod tally;
#[cfg(test)]
mod tests;
mod value;
mod windows;
mod wire;
mod worker;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, mpsc};
use std::time::{SystemTime, UNIX_EPOCH};

use mio::{Poll, Waker};

pub use self::collect::Second;
pub use self::faults::{Faults, Mishap, Wrong};
pub use self::options::{CasAs, Credentials, Options, Pace, Protocol, ReadThrough, Verify, Warmup};
pub use self::outcome::{Failure, Outcome};
pub(crate) use self::server::Blocking;
pub use self::server::Server;
pub use self::tally::{Answers, Counts, Kind};
pub use self::windows::Window;

use self::collect::{Collected, ToCollect};
use self::feed::{Fed, WorkerQueue};
use self::key::Keys;
use self::shared::Shared;
use self::value::Values;
use self::wire::Wire;
use self::worker::Worker;
use crate::{Source, SourceError};

/// Replays a source against a server. `open` opens the source, once for each pass. The run ends early when `stop` is
/// set, by the caller or by a limit of the options.
///
/// # Errors
/// Options that cannot be obeyed, a source that cannot be opened, or a server that is unreachable at the start.
/// Everything that goes wrong later is part of the [`Outcome`].
pub fn run(
    options: Options,
    open: &(dyn Fn() -> Result<Box<dyn Source>, SourceError> + Sync),
    stop: Arc<AtomicBool>,
) -> Result<Outcome, Failure> {
    options::check(&options).map_err(Failure::Failed)?;
    let first = open()?;
    if matches!(options.pace, Pace::Speed(_)) && !first.fields().times {
        return Err(Failure::Failed(format!("{}: it has no times, so it has no speed", first.describe())));
    }
    let hdr = options.hdr.as_deref().map(collect::create).transpose().map_err(Failure::Failed)?;
    let found = probe::look(&options).map_err(Failure::Unreachable)?;
    if options.state_costs && found.protocol != Protocol::Memcached {
        return Err(Failure::Failed("costs can be stated with memcached's meta commands only".to_owned()));
    }
    let began = SystemTime::now();
    let since_1970 = began.duration_since(UNIX_EPOCH).unwrap_or_default();
    let wire = Wire {
        protocol: found.protocol,
        keys: Keys::new(&options.key_prefix, found.protocol),
        values: Values::new(options.verify),
        began_unix_s: since_1970.as_secs(),
    };
    let shared = Arc::new(Shared::new(options, wire, since_1970.as_nanos() as u64, stop));
    let failed = |error: std::io::Error| Failure::Failed(format!("cannot start a thread: {error}"));
    let (messages, collected) = mpsc::channel();
    let mut queues = Vec::new();
    let mut workers = Vec::new();
    for number in 0..shared.options.threads {
        let poll = Poll::new().map_err(failed)?;
        let waker = Waker::new(poll.registry(), worker::WAKER).map_err(failed)?;
        let (batches, orders) = mpsc::sync_channel(feed::BATCHES_MAX);
        let (empties, emptied) = mpsc::channel();
        queues.push(WorkerQueue { batches, empties: emptied, waker });
        workers.push(Worker::new(number, shared.clone(), poll, orders, empties, messages.clone()));
    }
    drop(messages);
    let to_collect = ToCollect { messages: collected, hdr, began };
    let (collected, fed) = run_threads(&shared, workers, queues, open, first, to_collect)?;
    Ok(summary::outcome(&shared.options, &found, collected, fed))
}

/// Starts the threads and waits until all have ended.
fn run_threads(
    shared: &Arc<Shared>,
    workers: Vec<Worker>,
    queues: Vec<WorkerQueue>,
    open: &(dyn Fn() -> Result<Box<dyn Source>, SourceError> + Sync),
    first: Box<dyn Source>,
    to_collect: ToCollect,
) -> Result<(Collected, Fed), Failure> {
    std::thread::scope(|scope| {
        let feed = scope.spawn(|| feed::run(open, first, shared, queues));
        let running: Vec<_> = workers.into_iter().map(|worker| scope.spawn(move || worker.run())).collect();
        let collected = collect::run(shared, to_collect);
        let mut failure = None;
        for thread in running {
            match thread.join() {
                Ok(Ok(())) => {}
                Ok(Err(error)) => failure = Some(format!("a thread failed: {error}")),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        let fed = feed.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        match failure {
            Some(failure) => Err(Failure::Failed(failure)),
            None => Ok((collected, fed)),
        }
    })
}
