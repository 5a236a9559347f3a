//! The threads: one reads, the caller numbers, the workers simulate.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use super::feed::{Chunk, Preparer};
use super::simulation::{Run, Simulation};
use crate::progress::Progress;
use crate::{CHUNK_REQUESTS, Request, Source, SourceError};

/// Chunks that may wait between two threads: enough to keep all busy, and 4 MB at most.
const CHUNKS_WAITING: usize = 4;
/// How often the order of turns follows the measured costs, in chunks.
const REORDER_EVERY: u64 = 16;
/// How long a worker sleeps at most before it looks again whether a simulation is ready for its chunk.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// What came of it.
pub(super) struct Fed {
    pub(super) source: Box<dyn Source>,
    pub(super) requests: u64,
    pub(super) keys: u64,
    pub(super) bytes: u64,
    /// In the order of the simulations.
    pub(super) runs: Vec<Run>,
    pub(super) error: Option<SourceError>,
}

/// A simulation that any worker may move on, by one chunk after the other.
struct Slot {
    simulation: Mutex<Simulation>,
    moved_on: Condvar,
    cost_ns: AtomicU64,
}

impl Slot {
    /// Takes the simulation over `chunk`, once it is through those before.
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

/// Some requests, and how far the source is.
struct Batch {
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
) -> Fed {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = if threads == 0 { cores } else { threads }.min(simulations.len()).max(1);
    let slots: Vec<Slot> = simulations
        .into_iter()
        .map(|simulation| Slot {
            simulation: Mutex::new(simulation),
            moved_on: Condvar::new(),
            cost_ns: AtomicU64::new(0),
        })
        .collect();
    let (source, preparer, error) = std::thread::scope(|scope| {
        let (into_batches, batches) = sync_channel(CHUNKS_WAITING);
        let reader = scope.spawn(move || read(source, &into_batches));
        let hands: Vec<SyncSender<Arc<Chunk>>> = (0..workers)
            .map(|_| {
                let (hand, chunks) = sync_channel::<Arc<Chunk>>(CHUNKS_WAITING);
                let slots = &slots;
                scope.spawn(move || work(&chunks, slots));
                hand
            })
            .collect();
        let (preparer, error) = feed(batches, preparer, &slots, &hands, progress);
        drop(hands);
        let source = reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (source, preparer, error)
    });
    let finish = |slot: Slot| slot.simulation.into_inner().expect("no simulation has panicked").finish();
    Fed {
        source,
        requests: preparer.requests,
        keys: preparer.population.keys() as u64,
        bytes: preparer.population.bytes(),
        runs: slots.into_iter().map(finish).collect(),
        error,
    }
}

/// Reads the source to its end, or until nobody wants more.
fn read(mut source: Box<dyn Source>, into: &SyncSender<Batch>) -> Box<dyn Source> {
    loop {
        let mut requests = Vec::with_capacity(CHUNK_REQUESTS);
        let filled = source.fill(&mut requests, CHUNK_REQUESTS);
        let is_end = !matches!(filled, Ok(more) if more > 0);
        let batch = Batch { requests, done_ratio: source.done_ratio(), error: filled.err() };
        if into.send(batch).is_err() || is_end {
            return source;
        }
    }
}

/// Numbers the requests and hands them to all workers.
fn feed(
    batches: Receiver<Batch>,
    mut preparer: Preparer,
    slots: &[Slot],
    hands: &[SyncSender<Arc<Chunk>>],
    progress: &mut Progress,
) -> (Preparer, Option<SourceError>) {
    let started = Instant::now();
    let mut order = order_by_cost(&vec![0; slots.len()]);
    for batch in batches {
        let (chunk, outcome) = preparer.chunk(&batch.requests, &order);
        if chunk.number % REORDER_EVERY == REORDER_EVERY - 1 {
            let costs: Vec<u64> = slots.iter().map(|slot| slot.cost_ns.load(Ordering::Relaxed)).collect();
            order = order_by_cost(&costs);
        }
        let chunk = Arc::new(chunk);
        for hand in hands {
            if hand.send(chunk.clone()).is_err() {
                // The worker has panicked, and the scope is about to say so.
                return (preparer, None);
            }
        }
        let rate = preparer.requests as f64 / started.elapsed().as_secs_f64().max(1e-9);
        progress.set(
            batch.done_ratio.unwrap_or(0.0),
            &format!("{:.2} M requests/s through {} simulations", rate / 1e6, slots.len()),
        );
        if let Some(error) = outcome.err().or(batch.error) {
            return (preparer, Some(error));
        }
    }
    (preparer, None)
}

/// Takes turns at the simulations of each chunk until there are no more chunks.
fn work(chunks: &Receiver<Arc<Chunk>>, slots: &[Slot]) {
    for chunk in chunks {
        // Relaxed: the turns are all that is shared by it; the simulations have their locks.
        while let Some(&at) = chunk.order.get(chunk.turn.fetch_add(1, Ordering::Relaxed)) {
            slots[at].run(&chunk);
        }
    }
}

/// The order of turns: the most expensive first.
fn order_by_cost(costs: &[u64]) -> Arc<[usize]> {
    let mut order: Vec<usize> = (0..costs.len()).collect();
    order.sort_by_key(|at| std::cmp::Reverse(costs[*at]));
    order.into()
}
