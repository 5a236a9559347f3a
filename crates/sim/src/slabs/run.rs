//! Runs simulations side by side. The requests are read once and shared.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use crate::progress::Progress;
use crate::{CHUNK_REQUESTS, Request, Source, SourceError};

use super::{Outcome, Settings, Simulator};

/// Chunks by which a slow simulation may lag behind the reader.
const CHUNKS_AHEAD: usize = 8;

/// One simulation of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Simulation {
    /// The name of the scheme.
    pub scheme: String,
    /// PAMA's m.
    pub m: usize,
    /// Memory of the cache in bytes.
    pub memory_bytes: u64,
}

/// A message from the reader to the simulations.
#[derive(Clone)]
enum Message {
    Requests(Arc<Vec<Request>>),
    EndOfPass,
}

/// The results of a run.
#[derive(Clone, Debug)]
pub struct RunOutcome {
    /// One outcome per simulation, in order.
    pub outcomes: Vec<Outcome>,
    /// Remarks of the source, such as skipped lines or a truncated file.
    pub notices: Vec<String>,
}

/// Runs `simulations` over `passes` passes of a source on `threads` threads, and returns their outcomes in order.
/// `open` opens the source for each pass. Memory use: the entries of the simulated caches, and a few chunks of
/// requests.
///
/// # Errors
/// Those of [`Simulator::new`] and of the source.
pub fn run(
    settings: &Settings,
    simulations: &[Simulation],
    passes: u32,
    threads: usize,
    open: &mut dyn FnMut() -> Result<Box<dyn Source>, SourceError>,
    progress: &mut Progress,
) -> Result<RunOutcome, SourceError> {
    let mut simulators = Vec::new();
    for simulation in simulations {
        let mut settings = settings.clone();
        settings.scheme.m = simulation.m;
        let built = Simulator::new(&simulation.scheme, simulation.memory_bytes, &settings);
        simulators.push(built.map_err(SourceError::new)?);
    }
    let threads = threads.clamp(1, simulators.len().max(1));
    let mut shares: Vec<Vec<(usize, Simulator)>> = (0..threads).map(|_| Vec::new()).collect();
    for (at, simulator) in simulators.into_iter().enumerate() {
        shares[at % threads].push((at, simulator));
    }
    let (mut outcomes, notices) = thread::scope(|scope| {
        let mut senders = Vec::new();
        let mut workers = Vec::new();
        for share in shares {
            let (sender, receiver) = sync_channel(CHUNKS_AHEAD);
            senders.push(sender);
            workers.push(scope.spawn(move || work(share, &receiver)));
        }
        let read = read(passes, open, &senders, progress);
        drop(senders);
        let mut outcomes = Vec::new();
        for worker in workers {
            match worker.join() {
                Ok(finished) => outcomes.extend(finished),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        read.map(|notices| (outcomes, notices))
    })?;
    outcomes.sort_by_key(|&(at, _)| at);
    Ok(RunOutcome { outcomes: outcomes.into_iter().map(|(_, outcome)| outcome).collect(), notices })
}

fn work(mut share: Vec<(usize, Simulator)>, messages: &Receiver<Message>) -> Vec<(usize, Outcome)> {
    for message in messages {
        for (_, simulator) in &mut share {
            match &message {
                Message::Requests(requests) => requests.iter().for_each(|request| simulator.request(request)),
                Message::EndOfPass => simulator.end_pass(),
            }
        }
    }
    share.into_iter().map(|(at, simulator)| (at, simulator.finish())).collect()
}

fn read(
    passes: u32,
    open: &mut dyn FnMut() -> Result<Box<dyn Source>, SourceError>,
    senders: &[SyncSender<Message>],
    progress: &mut Progress,
) -> Result<Vec<String>, SourceError> {
    let mut requests = 0_u64;
    // Time continues from pass to pass. Otherwise an item stored late in one pass would not expire early in the next.
    let (mut before_s, mut last_s) = (0_u32, 0_u32);
    let mut notices = Vec::new();
    for pass in 0..passes {
        let mut source = open()?;
        loop {
            let mut chunk = Vec::with_capacity(CHUNK_REQUESTS);
            if source.fill(&mut chunk, CHUNK_REQUESTS)? == 0 {
                break;
            }
            requests += chunk.len() as u64;
            for request in &mut chunk {
                request.time_s = request.time_s.saturating_add(before_s);
                last_s = last_s.max(request.time_s);
            }
            send_all(senders, &Message::Requests(Arc::new(chunk)));
            let done = source.done_ratio().unwrap_or(0.0);
            let ratio = (f64::from(pass) + done) / f64::from(passes);
            progress.set(ratio, &format!("{:.1} M requests", requests as f64 / 1e6));
        }
        send_all(senders, &Message::EndOfPass);
        before_s = last_s;
        notices = source.notices();
    }
    Ok(notices)
}

/// A simulation that panicked no longer receives. Its panic is reported when its thread is joined.
fn send_all(senders: &[SyncSender<Message>], message: &Message) {
    for sender in senders {
        let _ = sender.send(message.clone());
    }
}
