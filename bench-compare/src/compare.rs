//! The comparison: decides which server runs which load at which time.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::client::{Measured, Shape, Source, Target};
use crate::crowd;
use crate::exchange::{Exchange, STORE_DEPTH};
use crate::figures::{Held, MemoryFigures, Round, Row, Watched, compare_rows};
use crate::keys::{KeyPicker, Popularity, Ring};
use crate::loads::{Kind, Load, STORE_CONNECTIONS, catalogue};
use crate::options::{CompareOptions, Cores};
use crate::procfs;
use crate::readthrough::{self, Visit};
use crate::report::LoadReport;
use crate::servers::{Family, Process, Server, Setting};
use crate::settling::Settling;
use crate::trials::{self, Stage, Trial};
use crate::wire::{KEY_BYTES, ValueBytes, Wire};

/// Requests sampled in advance, at full size.
const RING_REQUESTS: f64 = 8_388_608.0;
/// The most requests sampled for a load whose popular keys are few beside its items.
const READ_THROUGH_REQUESTS_MAX: usize = 1 << 25;

/// Bytes that memcached keeps in memory for a value on flash.
const HEADER_BYTES: u32 = 12;
/// Items stored at once in a server with a flash tier. Together with the pause this gives 50,000 items per second.
const FLASH_STORED_AT_ONCE: u32 = 5_000;
/// See [`FLASH_STORED_AT_ONCE`].
const FLASH_STORE_PAUSE: Duration = Duration::from_millis(100);

/// Requests in flight per connection while a hit ratio settles, and the time of which each ratio is.
const SETTLE_DEPTH: usize = 16;
/// See [`SETTLE_DEPTH`].
const SETTLE_WINDOW: Duration = Duration::from_secs(1);

/// Maximum time for a server to become idle after its items were stored.
const SETTLE_TIME_MAX: Duration = Duration::from_secs(10);

/// Runs the comparison. `show` gets the report of each load as soon as it is complete.
pub(crate) fn run(
    options: &CompareOptions,
    servers: &[Server],
    mut show: impl FnMut(&LoadReport),
) -> Result<Vec<LoadReport>> {
    let loads = selected_loads(options)?;
    let groups = loads.chunk_by(|one, next| one.shares_items_with(next));
    let bench = Bench::new(options, servers, &loads)?;
    let mut reports = Vec::new();
    for group in groups {
        let group = bench.fit_to_memory(group);
        for report in bench.run_group(&group) {
            bench.progress.suspend(|| show(&report));
            reports.push(report);
        }
    }
    bench.progress.finish_and_clear();
    Ok(reports)
}

/// Allocates memory, at most half of what is free, writes to every page of it, and frees it.
fn touch_memory(bytes: u64) {
    let mut memory = vec![0u8; bytes.min(procfs::available_bytes() / 2) as usize];
    memory.chunks_mut(4096).for_each(|page| page[0] = 1);
    std::hint::black_box(&memory);
}

fn selected_loads(options: &CompareOptions) -> Result<Vec<Load>> {
    let all: Vec<Load> = catalogue(options.scale).into_iter().map(|load| load.adapted(options)).collect();
    for name in &options.load {
        if !all.iter().any(|load| load.is_named(name)) {
            let names: Vec<&str> = all.iter().map(|load| load.name).collect();
            bail!("there is no load `{name}`; there are {}", names.join(", "));
        }
    }
    let wanted = |load: &Load| match options.load.is_empty() {
        true => !load.only_named(),
        false => options.load.iter().any(|name| load.is_named(name)),
    };
    let loads: Vec<Load> = all.into_iter().filter(wanted).collect();
    let (flash, memory): (Vec<Load>, Vec<Load>) = loads.into_iter().partition(|load| load.flash_mib > 0);
    match (&options.flash_file, flash.is_empty()) {
        (None, false) if !options.load.is_empty() => bail!("{} needs --flash-file PATH", flash[0].name),
        (None, _) => Ok(memory),
        (Some(_), _) => Ok([memory, flash].concat()),
    }
}

struct Bench<'a> {
    options: &'a CompareOptions,
    servers: &'a [Server],
    server_cores: Cores,
    watched_cores: Vec<usize>,
    watched: Watched,
    progress: ProgressBar,
}

/// A server that holds the items of a load.
struct Running {
    process: Process,
    wire: Wire,
    /// The position in the ring where the next round continues.
    position: usize,
    notes: Vec<String>,
}

impl Running {
    fn visit(&self) -> Result<Visit<'_>> {
        Visit::new(self.process.door.connect()?, self.process.pid(), &self.wire)
    }

    /// What the server says of its items, if the values of the load have a kind.
    fn held(&self, load: &Load) -> Result<Option<Held>> {
        if load.values.is_none() || !self.wire.can_ask() {
            return Ok(None);
        }
        let mut exchange = Exchange::new(self.process.door.connect()?, &self.wire, 1)?;
        Ok(Some(Held { items: exchange.items()?, evictions: exchange.evictions()? }))
    }
}

impl<'a> Bench<'a> {
    fn new(options: &'a CompareOptions, servers: &'a [Server], loads: &[Load]) -> Result<Self> {
        let allowed = procfs::allowed_cores()?;
        for cores in [&options.server_cores, &options.client_cores] {
            if let Some(core) = cores.0.iter().find(|core| !allowed.contains(core)) {
                bail!(
                    "core {core} is not ours to use: choose with --server-cores and --client-cores, or `none`"
                );
            }
        }
        procfs::pin(&options.client_cores.0).context("pin the client")?;
        let unpinned = options.server_cores.0.is_empty() || options.client_cores.0.is_empty();
        let server_cores = match &options.server_cores {
            // The pinning of this program must not be inherited.
            Cores(none) if none.is_empty() => Cores(allowed.clone()),
            some => some.clone(),
        };
        let mut watched_cores = if unpinned { allowed } else { options.server_cores.0.clone() };
        watched_cores.extend(&options.client_cores.0);
        watched_cores.sort_unstable();
        watched_cores.dedup();
        let watched = Watched { cores: watched_cores.len(), clients: options.clients };
        let steps: usize = loads.iter().map(|load| rounds_of(load, options) * servers.len()).sum();
        let progress = ProgressBar::with_draw_target(Some(steps as u64), ProgressDrawTarget::stderr());
        progress.set_style(ProgressStyle::with_template("[{elapsed_precise}] {wide_bar} {pos}/{len} {msg}")?);
        Ok(Self { options, servers, server_cores, watched_cores, watched, progress })
    }

    fn available_bytes(&self) -> u64 {
        self.options.memory.map_or_else(procfs::available_bytes, |mib| mib << 20)
    }

    /// Reduces the items of loads for which the memory of this machine is too small.
    fn fit_to_memory(&self, group: &[Load]) -> Vec<(Load, Option<String>)> {
        let usable = self.available_bytes() / 10 * 8;
        let fit = |load: &Load| {
            let mut load = load.clone();
            let full = load.items;
            let shrunk = load.shrink_to(usable);
            let note =
                shrunk.then(|| format!("{} of {full} items: the memory here is not enough", load.items));
            (load, note)
        };
        group.iter().map(fit).collect()
    }

    fn run_group(&self, group: &[(Load, Option<String>)]) -> Vec<LoadReport> {
        let first = &group[0].0;
        if let (Some(values), false) = (&first.values, first.kind == Kind::Store) {
            values.learn(first.items, |id| first.value_bytes.of(id));
        }
        // All servers keep their items between rounds if they fit side by side.
        let storing = self.servers.iter().filter(|server| server.family != Family::Empty).count() as u64;
        let side_by_side = first.footprint_bytes().saturating_mul(storing) <= self.available_bytes() / 10 * 7;
        // A file belongs to one server at a time.
        let keep = side_by_side && !self.options.fresh && self.keeps_items(first) && first.flash_mib == 0;
        let mut running: Vec<Option<Running>> = self.servers.iter().map(|_| None).collect();
        let mut reports = Vec::new();
        for (load, note) in group {
            let ring = self.ring_of(load);
            let mut rows: Vec<Row> = self.servers.iter().map(|server| Row::new(&server.name)).collect();
            running.iter_mut().flatten().for_each(|running| running.position = 0);
            for round in 0..rounds_of(load, self.options) {
                for turn in 0..self.servers.len() {
                    // The order alternates: the server that ran first in this round runs last in the next.
                    let at = (turn + round) % self.servers.len();
                    self.progress.set_message(format!("{} {}", load.name, self.servers[at].name));
                    if self.takes(at, load) && rows[at].failed.is_none() {
                        let result =
                            self.turn(load, ring.as_ref(), at, round, &mut running[at], &mut rows[at]);
                        if let Err(error) = result {
                            rows[at].failed = Some(format!("{error:#}"));
                            running[at] = None;
                        }
                    }
                    if !keep {
                        running[at] = None;
                    }
                    self.progress.inc(1);
                }
            }
            reports.push(self.report(load, note.clone(), rows));
        }
        reports
    }

    fn report(&self, load: &Load, note: Option<String>, rows: Vec<Row>) -> LoadReport {
        let resident = matches!(load.kind, Kind::Resident { .. } | Kind::Memory);
        let taken = |row: &Row| row.failed.is_some() || !row.rounds.is_empty();
        let mut rows: Vec<Row> = rows.into_iter().filter(taken).collect();
        rows.iter_mut().for_each(|row| row.conclude(resident, self.shape_of(load).rate));
        compare_rows(&mut rows);
        LoadReport::new(load, self.shape_of(load), note, rows)
    }

    fn takes(&self, at: usize, load: &Load) -> bool {
        let server = &self.servers[at];
        if load.flash_mib > 0 {
            server.has_flash()
        } else {
            server.family != Family::Empty || load.fits_empty()
        }
    }

    fn keeps_items(&self, load: &Load) -> bool {
        matches!(load.kind, Kind::Resident { .. } | Kind::Churn { .. } | Kind::ReadThrough { .. })
    }

    fn ring_of(&self, load: &Load) -> Option<Ring> {
        let seed = self.options.seed;
        let length = ((RING_REQUESTS * self.options.scale) as usize).clamp(1 << 16, 1 << 26);
        match load.kind {
            Kind::Flash { popularity, .. } => {
                Some(Ring::resident(&mut KeyPicker::new(load.items, popularity, seed), 100, length))
            }
            Kind::Resident { popularity, get_percent, .. } => {
                Some(Ring::resident(&mut KeyPicker::new(load.items, popularity, seed), get_percent, length))
            }
            Kind::ReadThrough { .. } => {
                let mut picker = KeyPicker::new(load.items, Popularity::Zipf(0.99), seed);
                Some(Ring::resident(&mut picker, 100, length.min(READ_THROUGH_REQUESTS_MAX)))
            }
            Kind::Churn { window, .. } => Some(Ring::churn(load.items, window, seed, length.max(1 << 21))),
            Kind::Memory => {
                // Checks whether the items are still stored.
                Some(Ring::resident(&mut KeyPicker::new(load.items, Popularity::Uniform, seed), 100, 1 << 18))
            }
            Kind::Store | Kind::HitRatio { .. } | Kind::Pressure { .. } | Kind::Trial(_) => None,
        }
    }

    fn shape_of(&self, load: &Load) -> Shape {
        let (connections, depth) = match load.kind {
            Kind::Resident { depth, .. }
            | Kind::Churn { depth, .. }
            | Kind::Flash { depth, .. }
            | Kind::ReadThrough { depth, .. } => (self.options.connections, depth),
            Kind::Store | Kind::Memory => (self.store_shape().connections, STORE_DEPTH),
            Kind::Trial(_) => (1, STORE_DEPTH),
            Kind::HitRatio { .. } | Kind::Pressure { .. } => (1, crate::loads::HIT_RATIO_BATCH),
        };
        let closed = matches!(
            load.kind,
            Kind::Store | Kind::Memory | Kind::Trial(_) | Kind::HitRatio { .. } | Kind::Pressure { .. }
        );
        Shape { connections, depth, rate: if closed { None } else { self.options.rate } }
    }

    fn store_shape(&self) -> Shape {
        Shape { connections: STORE_CONNECTIONS * self.options.clients, depth: STORE_DEPTH, rate: None }
    }

    fn run_clients(
        &self,
        running: &Running,
        shape: Shape,
        source: Source<'_>,
        row: &mut Row,
    ) -> Result<Measured> {
        let clients = (self.options.clients, &self.options.client_cores.0[..]);
        let measured = crowd::run(clients, self.target(&running.process), &running.wire, shape, source)?;
        note_refusal(&measured, row);
        Ok(measured)
    }

    /// One round of one load on one server.
    fn turn(
        &self,
        load: &Load,
        ring: Option<&Ring>,
        at: usize,
        round: usize,
        running: &mut Option<Running>,
        row: &mut Row,
    ) -> Result<()> {
        let server = &self.servers[at];
        let result = match (&load.kind, ring) {
            (
                Kind::Resident { .. } | Kind::Churn { .. } | Kind::Flash { .. } | Kind::ReadThrough { .. },
                Some(ring),
            ) => {
                let running = match running {
                    Some(running) => running,
                    empty => empty.insert(self.start_and_fill(server, load, ring, row)?),
                };
                running.notes.iter().for_each(|note| row.note(note.clone()));
                let before = running.held(load)?;
                let seconds = Duration::from_secs_f64(self.options.seconds);
                let measured = self.read(running, load, ring, seconds, row)?;
                let held = running.held(load)?.map(|held| held.since(before));
                Ok(Round { held, ..self.round_of(round, &measured, &running.process) })
            }
            (Kind::HitRatio { requests }, _) => self.hit_ratio(server, load, *requests),
            (Kind::Pressure { requests }, _) => self.pressure(server, load, *requests, round, row),
            (Kind::Memory, Some(ring)) => self.memory(server, load, ring, row),
            (Kind::Trial(trial), _) => self.trial(server, load, trial, row),
            _ => {
                let running = self.start(server, load)?;
                let measured = self.store(&running, load, row)?;
                let held = running.held(load)?;
                Ok(Round { held, ..self.round_of(round, &measured, &running.process) })
            }
        };
        row.rounds.push(result?);
        Ok(())
    }

    fn round_of(&self, round: usize, measured: &Measured, process: &Process) -> Round {
        let resident = procfs::resident_bytes(process.pid()).unwrap_or(0);
        Round::of(round, measured, self.watched, resident)
    }

    fn start(&self, server: &Server, load: &Load) -> Result<Running> {
        let setting = Setting {
            limit_mib: load.limit_mib,
            threads: self.options.threads,
            value_bytes: load.value_bytes.max,
            cores: &self.server_cores,
            flash: match &self.options.flash_file {
                Some(path) if load.flash_mib > 0 => Some((path, load.flash_mib)),
                _ => None,
            },
            flash_memory_mib: load.flash_memory_mib(),
        };
        if let (Some(path), true) = (&self.options.flash_file, load.flash_mib > 0) {
            // Removes the file of another server.
            std::fs::remove_file(path).or_else(|error| match error.kind() {
                std::io::ErrorKind::NotFound => Ok(()),
                _ => Err(error),
            })?;
        }
        if self.options.warm_memory {
            touch_memory((load.limit_mib * 3 / 2) << 20);
        }
        let process = server.start(&setting)?;
        let verify = server.family != Family::Empty;
        let wire = load.wire(server.protocol(), verify);
        Ok(Running { process, wire, position: 0, notes: Vec::new() })
    }

    /// Starts a server and fills it with the items of a load, without measuring.
    fn start_and_fill(&self, server: &Server, load: &Load, ring: &Ring, row: &mut Row) -> Result<Running> {
        let Kind::ReadThrough { settles: true, .. } = load.kind else {
            return self.start_and_store(server, load);
        };
        let mut running = self.start(server, load)?;
        let note = self.settle(&mut running, load, ring, row).context("until the hit ratio has settled")?;
        running.notes.push(note);
        Ok(running)
    }

    /// Reads through the server until its hit ratio changes no more, or for the longest time. Says what that took.
    fn settle(&self, running: &mut Running, load: &Load, ring: &Ring, row: &mut Row) -> Result<String> {
        let (began, mut settling) = (Instant::now(), Settling::default());
        let shape = Shape { connections: self.options.connections, depth: SETTLE_DEPTH, rate: None };
        while !settling.is_over() && began.elapsed().as_secs_f64() < self.options.settle {
            let mut position = running.position;
            let (warmup, measure) = (Duration::ZERO, SETTLE_WINDOW);
            let source = Source::Ring { ring, position: &mut position, warmup, measure, fills: true };
            let counts = self.run_clients(running, shape, source, row)?.counts;
            running.position = position;
            settling.add(counts.hits, counts.misses);
        }
        let verb = if settling.is_over() { "settled" } else { "had not settled" };
        let (ratio, items) = (settling.latest(), running.held(load)?.map_or(0, |held| held.items));
        let seconds = began.elapsed().as_secs_f64();
        Ok(format!("the hit ratio {verb} after {seconds:.0} s at {ratio:.4} with {items} items"))
    }

    /// Starts a server and stores the items of a load, without measuring.
    fn start_and_store(&self, server: &Server, load: &Load) -> Result<Running> {
        let mut running = self.start(server, load)?;
        if server.family == Family::Empty {
            return Ok(running);
        }
        let mut row = Row::default();
        if load.flash_mib > 0 && server.family == Family::Memcached {
            self.make_room_for_headers(server, &mut running, load, &mut row)
                .context("storing small items")?;
        }
        let stored = self.store(&running, load, &mut row).context("storing the items")?;
        running.notes = row.notes;
        if matches!(load.kind, Kind::ReadThrough { .. }) {
            running.notes.push(stored_in(&stored, load));
        }
        if stored.counts.refused > 0 {
            running.notes.push(format!("{} of {} items refused", stored.counts.refused, load.items));
        }
        if !running.process.settle(SETTLE_TIME_MAX)? {
            running.notes.push("still tidying up when the measurement began".to_owned());
        }
        Ok(running)
    }

    /// Stores items as small as headers first, under the same keys. memcached assigns its memory to the first size
    /// class that needs it, and its page mover is too slow to give it back; otherwise there would be no memory for
    /// the headers of values on flash.
    fn make_room_for_headers(
        &self,
        server: &Server,
        running: &mut Running,
        load: &Load,
        row: &mut Row,
    ) -> Result<()> {
        let small = Wire::new(server.protocol(), ValueBytes::fixed(HEADER_BYTES), false);
        let wire = std::mem::replace(&mut running.wire, small);
        self.store_some(running, 0..load.items, row)?;
        running.wire = wire;
        Ok(())
    }

    fn target<'t>(&'t self, process: &'t Process) -> Target<'t> {
        Target { door: &process.door, pid: process.pid(), cores: &self.watched_cores }
    }

    fn store(&self, running: &Running, load: &Load, row: &mut Row) -> Result<Measured> {
        // memcached drops items that arrive faster than it can write them to its file, which shall not be compared.
        let at_once = if load.flash_mib > 0 { FLASH_STORED_AT_ONCE.min(load.items) } else { load.items };
        let first = load.items - (load.items - 1) / at_once * at_once;
        let mut done = first;
        let mut last = self.store_some(running, 0..first, row)?;
        while done < load.items {
            let started = Instant::now();
            let refused = last.counts.refused;
            last = self.store_some(running, done..done + at_once, row)?;
            last.counts.refused += refused;
            done += at_once;
            std::thread::sleep(FLASH_STORE_PAUSE.saturating_sub(started.elapsed()));
        }
        Ok(last)
    }

    fn store_some(&self, running: &Running, ids: std::ops::Range<u32>, row: &mut Row) -> Result<Measured> {
        let until =
            self.options.store_seconds.map(|seconds| Instant::now() + Duration::from_secs_f64(seconds));
        self.run_clients(running, self.store_shape(), Source::Store(ids, until), row)
    }

    fn read(
        &self,
        running: &mut Running,
        load: &Load,
        ring: &Ring,
        measure: Duration,
        row: &mut Row,
    ) -> Result<Measured> {
        let warmup = Duration::from_secs_f64(self.options.warmup);
        let fills = matches!(load.kind, Kind::ReadThrough { .. });
        let mut position = running.position;
        let source = Source::Ring { ring, position: &mut position, warmup, measure, fills };
        let measured = self.run_clients(running, self.shape_of(load), source, row)?;
        running.position = position;
        Ok(measured)
    }

    fn memory(&self, server: &Server, load: &Load, ring: &Ring, row: &mut Row) -> Result<Round> {
        let mut running = self.start(server, load)?;
        running.process.settle(SETTLE_TIME_MAX)?;
        let before_bytes = procfs::resident_bytes(running.process.pid())?;
        let stored = self.store(&running, load, row)?;
        if !running.process.settle(SETTLE_TIME_MAX)? {
            row.note("still tidying up when the memory was read".to_owned());
        }
        let after_bytes = procfs::resident_bytes(running.process.pid())?;
        let payload = mean_value_bytes(load.value_bytes, load.items) + KEY_BYTES as f64;
        let growth = (after_bytes as f64 - before_bytes as f64) / f64::from(load.items);
        let check = self.read(&mut running, load, ring, Duration::from_millis(200), row)?;
        let mut round = self.round_of(0, &stored, &running.process);
        (round.hits, round.misses) = (check.counts.hits, check.counts.misses);
        let overhead_per_item = growth - payload;
        round.memory = Some(MemoryFigures { before_bytes, after_bytes, overhead_per_item });
        Ok(round)
    }

    fn hit_ratio(&self, server: &Server, load: &Load, requests: u32) -> Result<Round> {
        let running = self.start(server, load)?;
        let stream = running.process.door.connect()?;
        let mut picker = KeyPicker::new(load.items, Popularity::Zipf(0.99), self.options.seed);
        let pid = running.process.pid();
        let measured = readthrough::run(stream, pid, &running.wire, &mut picker, requests)?;
        Ok(Round::of_hit_ratio(&measured, procfs::resident_bytes(pid)?))
    }

    fn trial(&self, server: &Server, load: &Load, trial: &Trial, row: &mut Row) -> Result<Round> {
        let start = || self.start(server, load).map(|running| running.process);
        let wire = load.wire(server.protocol(), true);
        let stage = Stage {
            start: &start,
            wire: &wire,
            larder: self.options.replay.as_ref().unwrap_or(&self.options.larder),
            cores: &self.options.client_cores,
        };
        let (found, process) = trials::run(trial, &stage)?;
        found.notes.iter().for_each(|note| row.note(note.clone()));
        Ok(Round::of_trial(found, procfs::resident_bytes(process.pid())?))
    }

    fn pressure(
        &self,
        server: &Server,
        load: &Load,
        requests: u32,
        round: usize,
        row: &mut Row,
    ) -> Result<Round> {
        let mut picker = KeyPicker::new(load.items, Popularity::Zipf(0.99), self.options.seed);
        let (mut warmup, mut batches) =
            (readthrough::draw(&mut picker, requests), readthrough::draw(&mut picker, requests));
        let roomy = Load { limit_mib: load.roomy_limit_mib(), ..load.clone() };
        // The items are stored in both, so that the small server is full from the start.
        let (short, roomy) = (self.start_and_store(server, load)?, self.start_and_store(server, &roomy)?);
        roomy.notes.iter().for_each(|note| row.note(format!("all resident: {note}")));
        let (mut on_short, mut on_roomy) = (short.visit()?, roomy.visit()?);
        readthrough::side_by_side(&mut on_short, &mut on_roomy, &mut warmup)?;
        // Drops the measurements of the warm-up.
        on_short.measured()?;
        on_roomy.measured()?;
        readthrough::side_by_side(&mut on_short, &mut on_roomy, &mut batches)?;
        let (pressed, resident) = (on_short.measured()?, on_roomy.measured()?);
        let missed = resident.requests - resident.hits;
        if missed + resident.refused > 0 {
            row.note(format!(
                "all resident: {missed} of {} GETs missed, {} of {} SETs refused",
                resident.requests, resident.refused, resident.sets
            ));
        }
        let resident_bytes = procfs::resident_bytes(short.process.pid())?;
        Ok(Round::of_pressure(round, &pressed, &resident, resident_bytes))
    }
}

/// The number of rounds of a load. Memory and hit ratio are the same every time, so one round suffices.
fn rounds_of(load: &Load, options: &CompareOptions) -> usize {
    match load.kind {
        Kind::Memory | Kind::HitRatio { .. } | Kind::Trial(_) => 1,
        _ => options.rounds,
    }
}

fn mean_value_bytes(sizes: ValueBytes, items: u32) -> f64 {
    if sizes.min == sizes.max {
        return f64::from(sizes.min);
    }
    (0..items).map(|id| sizes.of(id) as f64).sum::<f64>() / f64::from(items.max(1))
}

/// What storing the items took.
fn stored_in(stored: &Measured, load: &Load) -> String {
    let (count, seconds) = (stored.counts.stored, stored.elapsed.as_secs_f64());
    let cpu_us = stored.server_cpu.as_secs_f64() * 1e6 / count.max(1) as f64;
    let rate = count as f64 / seconds.max(1e-9);
    let items = load.items;
    format!(
        "stored {count} of {items} items in {seconds:.1} s: {rate:.0} a second, {cpu_us:.3} us of server CPU each"
    )
}

fn note_refusal(measured: &Measured, row: &mut Row) {
    if let Some(text) = &measured.refusal {
        row.note(format!("said no with `{text}`"));
    }
}
