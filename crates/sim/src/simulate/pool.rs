//! The threads of a run: one reads the source, the caller prepares the requests, the workers simulate.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use super::feed::{Chunk, Preparer};
use super::simulation::{Run, Simulation};
use crate::progress::Progress;
use crate::{CHUNK_REQUESTS, Request, Source, SourceError};

/// Chunks that may wait between two threads: enough to keep all threads busy, and at most 4 MB.
const CHUNKS_WAITING: usize = 4;
/// Chunks between two updates of the order in which the simulations are taken.
const REORDER_EVERY: u64 = 16;
/// The longest time for which a worker sleeps before it checks again whether a simulation is ready for its chunk.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// The results of a run.
pub(super) struct Finished {
    pub(super) source: Box<dyn Source>,
    pub(super) requests: u64,
    pub(super) keys: u64,
    pub(super) bytes: u64,
    /// One per simulation, in order.
    pub(super) runs: Vec<Run>,
    pub(super) error: Option<SourceError>,
}

/// A simulation that any worker may advance, one chunk at a time.
struct SharedSimulation {
    simulation: Mutex<Simulation>,
    moved_on: Condvar,
    cost_ns: AtomicU64,
}

impl SharedSimulation {
    /// Advances the simulation by `chunk`, after waiting until all earlier chunks are simulated.
    fn run(&self, chunk: &Chunk) {
        let mut simulation = self.simulation.lock().expect("no simulation has panicked");
        while simulation.chunks_done() != chunk.number {
            simulation =
                self.moved_on.wait_timeout(simulation, LOOK_AGAIN).expect("no simulation has panicked").0;
        }
        let took = simulation.run(chunk);
        self.cost_ns.store(took.as_nanos() as u64, Ordering::Relaxed);
        drop(simulation);
        self.moved_on.notify_all();
    }
}

/// Requests from the source, and the progress of the source.
struct ReadChunk {
    requests: Vec<Request>,
    done_ratio: Option<f64>,
    error: Option<SourceError>,
}

/// Runs all simulations over the source.
pub(super) fn run(
    source: Box<dyn Source>,
    preparer: Preparer,
    simulations: Vec<Simulation>,
    threads: usize,
    progress: &mut Progress,
) -> Finished {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = if threads == 0 { cores } else { threads }.min(simulations.len()).max(1);
    let shared: Vec<SharedSimulation> = simulations
        .into_iter()
        .map(|simulation| SharedSimulation {
            simulation: Mutex::new(simulation),
            moved_on: Condvar::new(),
            cost_ns: AtomicU64::new(0),
        })
        .collect();
    let (source, preparer, error) = std::thread::scope(|scope| {
        let (into_chunks, read_chunks) = sync_channel(CHUNKS_WAITING);
        let reader = scope.spawn(move || read(source, &into_chunks));
        let senders: Vec<SyncSender<Arc<Chunk>>> = (0..workers)
            .map(|_| {
                let (sender, chunks) = sync_channel::<Arc<Chunk>>(CHUNKS_WAITING);
                let shared = &shared;
                scope.spawn(move || work(&chunks, shared));
                sender
            })
            .collect();
        let (preparer, error) = feed(read_chunks, preparer, &shared, &senders, progress);
        drop(senders);
        let source = reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (source, preparer, error)
    });
    let finish =
        |one: SharedSimulation| one.simulation.into_inner().expect("no simulation has panicked").finish();
    Finished {
        source,
        requests: preparer.requests,
        keys: preparer.population.keys() as u64,
        bytes: preparer.population.bytes(),
        runs: shared.into_iter().map(finish).collect(),
        error,
    }
}

/// Reads the source to its end, or until the receiver is gone.
fn read(mut source: Box<dyn Source>, into: &SyncSender<ReadChunk>) -> Box<dyn Source> {
    loop {
        let mut requests = Vec::with_capacity(CHUNK_REQUESTS);
        let filled = source.fill(&mut requests, CHUNK_REQUESTS);
        let is_end = !matches!(filled, Ok(more) if more > 0);
        let read_chunk = ReadChunk { requests, done_ratio: source.done_ratio(), error: filled.err() };
        if into.send(read_chunk).is_err() || is_end {
            return source;
        }
    }
}

/// Prepares the requests and sends the chunks to all workers.
fn feed(
    read_chunks: Receiver<ReadChunk>,
    mut preparer: Preparer,
    shared: &[SharedSimulation],
    senders: &[SyncSender<Arc<Chunk>>],
    progress: &mut Progress,
) -> (Preparer, Option<SourceError>) {
    let started = Instant::now();
    let mut order = order_by_cost(&vec![0; shared.len()]);
    for read_chunk in read_chunks {
        let (chunk, outcome) = preparer.chunk(&read_chunk.requests, &order);
        if chunk.number % REORDER_EVERY == REORDER_EVERY - 1 {
            let costs: Vec<u64> = shared.iter().map(|one| one.cost_ns.load(Ordering::Relaxed)).collect();
            order = order_by_cost(&costs);
        }
        let chunk = Arc::new(chunk);
        for sender in senders {
            if sender.send(chunk.clone()).is_err() {
                // The worker has panicked. Joining it will report the panic.
                return (preparer, None);
            }
        }
        let rate = preparer.requests as f64 / started.elapsed().as_secs_f64().max(1e-9);
        progress.set(
            read_chunk.done_ratio.unwrap_or(0.0),
            &format!("{:.2} M requests/s through {} simulations", rate / 1e6, shared.len()),
        );
        if let Some(error) = outcome.err().or(read_chunk.error) {
            return (preparer, Some(error));
        }
    }
    (preparer, None)
}

/// Advances simulations of each chunk, until there are no more chunks.
fn work(chunks: &Receiver<Arc<Chunk>>, shared: &[SharedSimulation]) {
    for chunk in chunks {
        // Relaxed suffices: the counter only distributes the simulations, which have locks of their own.
        while let Some(&at) = chunk.order.get(chunk.turn.fetch_add(1, Ordering::Relaxed)) {
            shared[at].run(&chunk);
        }
    }
}

/// The indices of the simulations, the most expensive first.
fn order_by_cost(costs: &[u64]) -> Arc<[usize]> {
    let mut order: Vec<usize> = (0..costs.len()).collect();
    order.sort_by_key(|at| std::cmp::Reverse(costs[*at]));
    order.into()
}
