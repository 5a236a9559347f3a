//! The collector: merges the counts of all threads second by second, and shows the progress.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime};

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};

use super::faults::{AllDoubts, Faults};
use super::shared::Shared;
use super::tally::{Counts, Kind, Tally};
use super::windows::Windows;
use crate::progress::Progress;

/// Interval between two updates of the progress, which also check the connections.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A message from a worker to the collector.
pub(super) enum WorkerMessage {
    /// The counts of one second of the measured time. Seconds before `next` are complete.
    Second { thread: usize, second: u64, next: u64, tally: Box<Tally> },
    /// The worker ends.
    End {
        thread: usize,
        faults: Box<Faults>,
        doubts: Box<AllDoubts>,
        ledger_forgotten: u64,
        windows: Windows,
    },
}

/// One second of the measured time.
#[derive(Clone, Debug)]
pub struct Second {
    /// Ordinal of the second, from 0.
    pub second: u64,
    /// How much of the second was measured, in seconds.
    pub length_s: f64,
    /// The counts.
    pub counts: Counts,
    /// Median latency in microseconds.
    pub p50_us: f64,
    /// 99th percentile of the latency in microseconds.
    pub p99_us: f64,
}

/// All measurements of a run.
pub(super) struct Collected {
    /// The counts of the whole measured time.
    pub(super) total: Tally,
    /// The counts of each second.
    pub(super) seconds: Vec<Second>,
    /// Hit ratio and service time by windows of gets.
    pub(super) windows: Windows,
    /// Everything that went wrong.
    pub(super) faults: Faults,
    /// Length of the measured time in seconds.
    pub(super) measured_s: f64,
    /// Whether the server was given up.
    pub(super) given_up: bool,
    /// How often a worker forgot the versions of its keys for lack of memory.
    pub(super) ledger_forgotten: u64,
    /// The error that truncated the HDR log, if any.
    pub(super) hdr_error: Option<String>,
}

/// The inputs of the collector.
pub(super) struct ToCollect {
    /// The messages of the workers.
    pub(super) messages: Receiver<WorkerMessage>,
    /// The file of the HDR log.
    pub(super) hdr: Option<File>,
    /// The start of the run.
    pub(super) began: SystemTime,
}

/// Collects until all workers have ended.
pub(super) fn run(shared: &Shared, to_collect: ToCollect) -> Collected {
    let ToCollect { messages, hdr, began } = to_collect;
    let mut file = hdr.map(BufWriter::new);
    let mut serializer = V2DeflateSerializer::new();
    let mut builder = IntervalLogWriterBuilder::new();
    builder
        .add_comment("larder replay: latencies in ns, the largest of an interval in ms, tagged by operation");
    builder.with_start_time(began).with_max_value_divisor(1e6);
    let mut collector = Collector {
        shared,
        pending: BTreeMap::new(),
        complete_to: vec![0; shared.options.threads],
        running: shared.options.threads,
        collected: Collected {
            total: Tally::new(),
            seconds: Vec::new(),
            windows: Windows::default(),
            faults: Faults::default(),
            measured_s: 0.0,
            given_up: false,
            ledger_forgotten: 0,
            hdr_error: None,
        },
        doubts: AllDoubts::default(),
        watch: Watch::new(shared),
        offset_s: 0.0,
    };
    let mut hdr_error = None;
    let mut log = file.as_mut().and_then(|file| {
        let begun = builder.begin_log_with(file, &mut serializer);
        begun.map_err(|error| hdr_error = Some(error.to_string())).ok()
    });
    while collector.running > 0 {
        match messages.recv_timeout(LOOK_EVERY) {
            Ok(messages) => collector.take(messages),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        for (second, tally) in collector.complete() {
            if let Some(log) = &mut log {
                let start = Duration::from_secs_f64(collector.offset_s + second as f64);
                for kind in Kind::REPORTED {
                    let Some(latencies) = &tally.latencies[kind as usize] else { continue };
                    let length = Duration::from_secs_f64(collector.length_s(second));
                    let written = log.write_histogram(&**latencies, start, length, Tag::new(kind.name()));
                    if let Err(error) = written {
                        hdr_error = Some(format!("{error:?}"));
                    }
                }
            }
        }
        collector.look();
    }
    drop(log);
    let mut collected = collector.finish();
    if let Some(mut file) = file
        && let Err(error) = std::io::Write::flush(&mut file)
    {
        hdr_error = Some(error.to_string());
    }
    collected.hdr_error = hdr_error;
    collected
}

/// Creates the file of the HDR log.
///
/// # Errors
/// One line that names the file.
pub(super) fn create(path: &Path) -> Result<File, String> {
    File::create(path).map_err(|error| format!("{}: {error}", path.display()))
}

struct Collector<'a> {
    shared: &'a Shared,
    pending: BTreeMap<u64, Tally>,
    complete_to: Vec<u64>,
    running: usize,
    collected: Collected,
    doubts: AllDoubts,
    watch: Watch,
    /// Seconds from the start of the run to the start of the measured time.
    offset_s: f64,
}

impl Collector<'_> {
    fn take(&mut self, messages: WorkerMessage) {
        match messages {
            WorkerMessage::Second { thread, second, next, tally } => {
                self.pending.entry(second).or_insert_with(Tally::new).add(&tally);
                self.complete_to[thread] = next;
                let counts = &mut self.watch.counts;
                counts.add(&tally.counts);
            }
            WorkerMessage::End { thread, faults, doubts, ledger_forgotten, windows } => {
                self.complete_to[thread] = u64::MAX;
                self.running -= 1;
                self.collected.faults.merge(*faults);
                self.doubts.numbers.merge(doubts.numbers);
                self.doubts.others.merge(doubts.others);
                self.collected.ledger_forgotten += ledger_forgotten;
                self.collected.windows.merge(&windows);
            }
        }
    }

    /// Removes the seconds to which no worker will add.
    fn complete(&mut self) -> Vec<(u64, Tally)> {
        let complete_to = self.complete_to.iter().copied().min().unwrap_or(u64::MAX);
        if let Some(measure_ns) = self.shared.measure_ns() {
            self.offset_s = measure_ns as f64 / 1e9;
            // The measured time ends when the last worker ends.
            self.collected.measured_s =
                (self.shared.now_ns().saturating_sub(measure_ns) as f64 / 1e9).max(1e-9);
        }
        let mut complete = Vec::new();
        while let Some(entry) = self.pending.first_entry().filter(|entry| *entry.key() < complete_to) {
            let (second, tally) = entry.remove_entry();
            self.add_second(second, &tally);
            complete.push((second, tally));
        }
        complete
    }

    fn length_s(&self, second: u64) -> f64 {
        (self.collected.measured_s - second as f64).clamp(1e-6, 1.0)
    }

    fn add_second(&mut self, second: u64, tally: &Tally) {
        let all = tally.all();
        let at_us = |quantile: f64| all.value_at_quantile(quantile) as f64 / 1000.0;
        self.collected.seconds.push(Second {
            second,
            length_s: self.length_s(second),
            counts: tally.counts,
            p50_us: at_us(0.5),
            p99_us: at_us(0.99),
        });
        self.collected.total.add(tally);
    }

    fn look(&mut self) {
        let measured_s = self.collected.measured_s;
        if let Some(limit) = self.shared.options.time_limit
            && measured_s >= limit.as_secs_f64()
        {
            self.shared.stop.store(true, Relaxed);
        }
        if self.watch.look(self.shared, measured_s) || self.shared.abandoned.load(Relaxed) {
            self.collected.given_up = true;
            self.shared.stop.store(true, Relaxed);
        }
    }

    /// If the source counts or appends, an earlier run may have stored these values, and they stay unverified.
    /// Otherwise they are wrong.
    fn settle_doubts(&mut self) {
        let growth_seen = self.shared.growth_seen.load(Relaxed);
        let counters_seen = self.shared.counters_seen.load(Relaxed);
        let AllDoubts { numbers, others } = std::mem::take(&mut self.doubts);
        for (doubts, may_be) in [(numbers, growth_seen || counters_seen), (others, growth_seen)] {
            if may_be {
                self.collected.total.counts.unverified += doubts.counted;
            } else {
                self.collected.faults.merge(doubts.faults);
            }
        }
    }

    fn finish(mut self) -> Collected {
        self.settle_doubts();
        // A second that began but contains no request is dropped.
        self.collected.seconds.retain(|second| second.counts.requests() > 0 || second.length_s > 0.5);
        if let Some(progress) = self.watch.progress.take() {
            progress.finish();
        }
        self.collected
    }
}

/// Shows the progress and checks whether the server is still reachable.
struct Watch {
    progress: Option<Progress>,
    counts: Counts,
    looked: Instant,
    answered: u64,
    alive: Instant,
}

impl Watch {
    fn new(shared: &Shared) -> Watch {
        let now = Instant::now();
        let progress = Progress::new("replay", shared.options.quiet);
        Watch { progress: Some(progress), counts: Counts::default(), looked: now, answered: 0, alive: now }
    }

    /// Returns whether the server has been unreachable for too long.
    fn look(&mut self, shared: &Shared, measured_s: f64) -> bool {
        let now = Instant::now();
        if shared.healthy.load(Relaxed) > 0 {
            self.alive = now;
        }
        let passed = now - self.looked;
        if passed >= LOOK_EVERY
            && let Some(progress) = &mut self.progress
        {
            let answered = shared.answered.load(Relaxed);
            let rate = (answered - self.answered) as f64 / passed.as_secs_f64();
            (self.looked, self.answered) = (now, answered);
            let of_time = shared.options.time_limit.map(|limit| measured_s / limit.as_secs_f64());
            let ratio = shared.progress().unwrap_or(0.0).max(of_time.unwrap_or(0.0));
            let hits = self
                .counts
                .hit_ratio()
                .map_or(String::new(), |hits| format!(", hit ratio {:.2} %", hits * 100.0));
            let errors: u64 = self.counts.answers.iter().map(|answers| answers.refused).sum();
            let down = match shared.healthy.load(Relaxed) {
                healthy if healthy < shared.options.connections => {
                    format!(", {} connections down", shared.options.connections - healthy)
                }
                _ => String::new(),
            };
            progress.set(ratio, &format!("{rate:.0} requests/s{hits}, {errors} errors{down}"));
        }
        now - self.alive > shared.options.give_up
    }
}
