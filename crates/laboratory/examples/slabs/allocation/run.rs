//! Runs simulations side by side. The requests are read once and shared.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use larder_sim::progress::Progress;
use larder_sim::{CHUNK_REQUESTS, Request, Source, SourceError};

use super::real::RealSimulator;
use super::{Outcome, SchemeSettings, Settings, Simulator, build};
use larder_sim::policy::larder;

/// Chunks by which a slow simulation may lag behind the reader.
const CHUNKS_AHEAD: usize = 8;

/// One simulation of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Simulation {
    /// The name of the scheme: one of [`NAMES`](super::NAMES), or of [`larder::names`] for the server's own cache.
    pub(crate) scheme: String,
    /// PAMA's m.
    pub(crate) m: usize,
    /// Memory of the cache in bytes.
    pub(crate) memory_bytes: u64,
}

/// Whether there is a scheme with this name, and whether it has an m.
///
/// # Errors
/// An unknown name; the error lists the known names.
pub(crate) fn check(scheme: &str) -> Result<bool, String> {
    if larder::variant(scheme).is_some() {
        return Ok(false);
    }
    build(scheme, &SchemeSettings::default(), 1).map(|scheme| scheme.segments() > 0)
}

/// A cache under a scheme, or the server's own.
enum Model {
    Slabs(Box<Simulator>),
    Real(Box<RealSimulator>),
}

impl Model {
    fn new(simulation: &Simulation, settings: &Settings) -> Result<Model, String> {
        let Simulation { scheme, m, memory_bytes } = simulation;
        if let Some(real) = RealSimulator::new(scheme, *memory_bytes, settings) {
            return real.map(|real| Model::Real(Box::new(real)));
        }
        let mut settings = settings.clone();
        settings.scheme.m = *m;
        Simulator::new(scheme, *memory_bytes, &settings).map(|slabs| Model::Slabs(Box::new(slabs)))
    }

    fn request(&mut self, request: &Request) {
        match self {
            Model::Slabs(slabs) => slabs.request(request),
            Model::Real(real) => real.request(request),
        }
    }

    fn end_pass(&mut self) {
        match self {
            Model::Slabs(slabs) => slabs.end_pass(),
            Model::Real(real) => real.end_pass(),
        }
    }

    fn finish(self) -> Outcome {
        match self {
            Model::Slabs(slabs) => slabs.finish(),
            Model::Real(real) => real.finish(),
        }
    }
}

/// A message from the reader to the simulations.
#[derive(Clone)]
enum Message {
    Requests(Arc<Vec<Request>>),
    EndOfPass,
}

/// The results of a run.
#[derive(Clone, Debug)]
pub(crate) struct RunOutcome {
    /// One outcome per simulation, in order.
    pub(crate) outcomes: Vec<Outcome>,
    /// Remarks of the source, such as skipped lines or a truncated file.
    pub(crate) notices: Vec<String>,
}

/// Runs `simulations` over `passes` passes of a source on `threads` threads, and returns their outcomes in order.
/// `open` opens the source for each pass. Memory use: the entries of the simulated caches, and a few chunks of
/// requests.
///
/// # Errors
/// Those of [`Simulator::new`] and of the source, and less memory than the server's cache needs.
pub(crate) fn run(
    settings: &Settings,
    simulations: &[Simulation],
    passes: u32,
    threads: usize,
    open: &mut dyn FnMut() -> Result<Box<dyn Source>, SourceError>,
    progress: &mut Progress,
) -> Result<RunOutcome, SourceError> {
    let models: Result<Vec<Model>, String> =
        simulations.iter().map(|simulation| Model::new(simulation, settings)).collect();
    let models = models.map_err(SourceError::new)?;
    let threads = threads.clamp(1, models.len().max(1));
    let mut shares: Vec<Vec<(usize, Model)>> = (0..threads).map(|_| Vec::new()).collect();
    for (at, model) in models.into_iter().enumerate() {
        shares[at % threads].push((at, model));
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

fn work(mut share: Vec<(usize, Model)>, messages: &Receiver<Message>) -> Vec<(usize, Outcome)> {
    for message in messages {
        for (_, model) in &mut share {
            match &message {
                Message::Requests(requests) => requests.iter().for_each(|request| model.request(request)),
                Message::EndOfPass => model.end_pass(),
            }
        }
    }
    share.into_iter().map(|(at, model)| (at, model.finish())).collect()
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
