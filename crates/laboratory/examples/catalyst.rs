//! Measures Catalyst's policy and the contribution of each of its parts (Wang and Chen, "Catalyst", PVLDB 16(13),
//! 2023).
//!
//! `catalyst [KEYS [PART,...]]`: KEYS is the number of keys of each workload (1 million), a PART is one of [`PARTS`]
//! (all). Prints tables in Markdown. Hit ratios are those of the gets in the second half of the requests, in percent.
//! `docs/evidence/catalyst.md` shows them beside the paper's claims.

use std::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use larder_cache::hitmap::{HitmapMaker, Published, PublishedPolicyOptions};
use larder_cache::{
    Candidate, ColumnBounds, ColumnId, Judged, Queue, Residents, Temperature, TemperatureKind,
    TemperatureStats, Verdict,
};
use larder_sim::policy::{Access, Policy, build, larder};
use larder_sim::simulate::Interner;
use larder_sim::{CHUNK_REQUESTS, Op, workload};
use larder_temperature::{Digest, HashCounter, Hitmap, PublishedHitmap, PublishedOptions, Reference, mix};

/// A part of the output: its name, and the function that prints it.
type Section = (&'static str, fn(&Lab));

/// The parts, in the order of printing.
const PARTS: &[Section] = &[
    ("policies", policies),
    ("bound", bound),
    ("levels", levels),
    ("hash-bits", hash_bits),
    ("size", size),
    ("shape", shape),
    ("threshold", threshold),
    ("time", time),
    ("set-counter", set_counter),
    ("batch", batch),
    ("draws", draws),
    ("victims", victims),
    ("zombies", zombies),
    ("room", room),
    ("memory", memory),
];

const LAWS: [&str; 5] = ["zipfian", "hotspot", "latest", "uniform", "mix"];
/// Cache sizes as shares of the keys: the paper's tenth, and a hundredth.
const SHARES: [f64; 2] = [0.1, 0.01];
/// Requests per key.
const REQUESTS_PER_KEY: u64 = 4;
const SEED: u64 = 1;
/// The largest number of levels, plus zone 0.
const ZONES: usize = 7;

/// Requests with dense keys. The highest bit marks a write.
struct Trace {
    law: &'static str,
    requests: Vec<u32>,
}

const WRITE: u32 = 1 << 31;

impl Trace {
    fn new(law: &'static str, keys: u64, requests: u64) -> Trace {
        let mut source = workload::parse(&format!("{law}:keys={keys},requests={requests},sizes=none"))
            .expect("a law with its parameters");
        let mut interner = Interner::new();
        let (mut buffer, mut all) = (Vec::new(), Vec::with_capacity(requests as usize));
        while source.fill(&mut buffer, CHUNK_REQUESTS).expect("a workload does not fail") > 0 {
            all.extend(buffer.drain(..).map(|request| {
                let id = interner.intern(request.key).filter(|id| *id < WRITE).expect("fewer than 2^31 keys");
                id | if request.op == Op::Get { 0 } else { WRITE }
            }));
        }
        Trace { law, requests: all }
    }

    /// For each request, the ordinal of the next request of its key.
    fn next_uses(&self) -> Vec<u64> {
        let keys = self.requests.iter().map(|request| request & !WRITE).max().map_or(0, |id| id as usize + 1);
        let mut seen = vec![u64::MAX; keys];
        let mut next = vec![u64::MAX; self.requests.len()];
        for (ordinal, &request) in self.requests.iter().enumerate().rev() {
            next[ordinal] = std::mem::replace(&mut seen[(request & !WRITE) as usize], ordinal as u64);
        }
        next
    }
}

/// Catalyst's parameters. The default is the paper's, with batches of half a percent of the cache.
#[derive(Clone, Copy, Default)]
struct Catalyst {
    hitmap: PublishedOptions,
    policy: PublishedPolicyOptions,
    batch: Option<usize>,
    /// Every level has the bits of level 1 of a pyramid, times this.
    equal_levels: Option<u64>,
}

impl Catalyst {
    fn hitmap_for(&self, items: u64) -> Box<dyn Hitmap> {
        match self.equal_levels {
            Some(times) => Box::new(EqualLevels::new(self.hitmap, self.hitmap.first_bits_for(items) * times)),
            None => Box::new(PublishedHitmap::for_items(items, self.hitmap)),
        }
    }
}

/// A hitmap of equal levels, with which the paper compares its pyramid (section 4.3.3).
struct EqualLevels {
    levels: Vec<HashCounter>,
    set_counter: HashCounter,
}

impl EqualLevels {
    fn new(options: PublishedOptions, bits: u64) -> EqualLevels {
        let counter = || HashCounter::new(bits, options.hash_bits);
        EqualLevels { levels: (0..options.levels).map(|_| counter()).collect(), set_counter: counter() }
    }

    fn zone(&self, digest: Digest) -> u8 {
        let mixed = mix(digest);
        self.levels.iter().take_while(|level| level.is_marked(mixed)).count() as u8
    }
}

impl Hitmap for EqualLevels {
    fn mark(&mut self, references: &[Reference]) {
        let zones: Vec<u8> = references.iter().map(|reference| self.zone(reference.digest())).collect();
        for (reference, &zone) in references.iter().zip(&zones) {
            let mixed = mix(reference.digest());
            if let Some(level) = self.levels.get_mut(usize::from(zone)) {
                level.mark(mixed);
            }
            if zone == 0 && reference.is_store() {
                self.set_counter.mark(mixed);
            }
        }
    }

    fn zones(&mut self, digests: &[Digest], zones: &mut Vec<u8>) {
        zones.extend(digests.iter().map(|&digest| self.zone(digest)));
    }

    fn age(&mut self) {
        self.levels.rotate_left(1);
        self.levels.last_mut().expect("a level").clear();
        self.levels[0].or(&self.set_counter);
        self.set_counter.clear();
    }

    fn age_some(&mut self, _: usize) -> bool {
        false
    }

    fn grow(&mut self, _: u64) {}

    fn bytes_for(&self, _: u64) -> u64 {
        self.levels.iter().chain([&self.set_counter]).map(|counter| counter.bits() / 8).sum()
    }

    fn levels(&self) -> u8 {
        self.levels.len() as u8
    }

    fn processor(&self) -> String {
        "the CPU".into()
    }
}

/// A hitmap that can be inspected while a policy uses it.
#[derive(Clone)]
struct Shared(Arc<Mutex<Box<dyn Hitmap>>>);

impl Shared {
    fn map(&self) -> MutexGuard<'_, Box<dyn Hitmap>> {
        self.0.lock().expect("nobody panics with it")
    }

    /// The share of never requested keys that are not in zone 0.
    fn wrong(&self) -> f64 {
        let strangers: Vec<Digest> = (0..100_000u32).map(|n| Digest::from_bits(n * 21_383)).collect();
        let mut zones = Vec::new();
        self.map().zones(&strangers, &mut zones);
        zones.iter().filter(|zone| **zone > 0).count() as f64 / strangers.len() as f64
    }
}

impl Hitmap for Shared {
    fn mark(&mut self, references: &[Reference]) {
        self.map().mark(references);
    }

    fn zones(&mut self, digests: &[Digest], zones: &mut Vec<u8>) {
        self.map().zones(digests, zones);
    }

    fn age(&mut self) {
        self.map().age();
    }

    fn age_some(&mut self, bytes: usize) -> bool {
        self.map().age_some(bytes)
    }

    fn grow(&mut self, items: u64) {
        self.map().grow(items);
    }

    fn bytes_for(&self, items: u64) -> u64 {
        self.map().bytes_for(items)
    }

    fn levels(&self) -> u8 {
        self.map().levels()
    }

    fn processor(&self) -> String {
        self.map().processor()
    }
}

/// Counts of a policy since the start of the run.
#[derive(Clone, Copy, Default)]
struct PolicyCounts {
    /// Victims by the zone they were in.
    victims: [u64; ZONES],
    agings: u64,
    drained: u64,
}

impl PolicyCounts {
    fn evicted(&self) -> u64 {
        self.victims.iter().sum()
    }

    fn since(&self, earlier: &PolicyCounts) -> PolicyCounts {
        let mut victims = self.victims;
        victims.iter_mut().zip(earlier.victims).for_each(|(victims, earlier)| *victims -= earlier);
        PolicyCounts {
            victims,
            agings: self.agings - earlier.agings,
            drained: self.drained - earlier.drained,
        }
    }
}

/// Catalyst's policy with counters.
struct Watched {
    inner: Published,
    hitmap: Shared,
    zones: Vec<u8>,
    seen: Arc<Mutex<PolicyCounts>>,
}

impl Temperature for Watched {
    fn sealed(&mut self, column: ColumnId, birth: u64, part: Queue) {
        self.inner.sealed(column, birth, part);
    }

    fn victim(&mut self, standing: &mut dyn FnMut(ColumnId, u64) -> Candidate) -> Option<ColumnId> {
        self.inner.victim(standing)
    }

    fn put_back(&mut self, column: ColumnId, birth: u64, part: Queue) {
        self.inner.put_back(column, birth, part);
    }

    fn judge(&mut self, part: Queue, items: &[Judged], bounds: ColumnBounds, verdicts: &mut Vec<Verdict>) {
        let digests: Vec<Digest> = items.iter().map(|item| Digest::of(item.hash)).collect();
        self.zones.clear();
        self.hitmap.map().zones(&digests, &mut self.zones);
        let mut seen = self.seen.lock().expect("nobody panics with it");
        self.zones.iter().for_each(|&zone| seen.victims[usize::from(zone)] += 1);
        drop(seen);
        self.inner.judge(part, items, bounds, verdicts);
    }

    fn refer(&mut self, references: &[Reference], residents: &mut dyn Residents) {
        self.inner.refer(references, residents);
        let facts = self.inner.stats();
        let mut seen = self.seen.lock().expect("nobody panics with it");
        (seen.agings, seen.drained) = (facts.agings, facts.drained);
    }

    fn wanted_below(&self) -> u32 {
        self.inner.wanted_below()
    }

    fn fit(&mut self, items: u64) {
        self.inner.fit(items);
    }

    fn bytes_for(&self, items: u64) -> u64 {
        self.inner.bytes_for(items)
    }

    fn columns(&self) -> usize {
        self.inner.columns()
    }

    fn forget_gone(&mut self, standing: &mut dyn FnMut(ColumnId, u64) -> Candidate) {
        self.inner.forget_gone(standing);
    }

    fn stats(&self) -> TemperatureStats {
        self.inner.stats()
    }
}

/// A cache of single items under Catalyst's policy.
struct Watch {
    policy: Box<dyn Policy>,
    hitmap: Shared,
    seen: Arc<Mutex<PolicyCounts>>,
}

impl Watch {
    fn new(catalyst: Catalyst, capacity: u64) -> Watch {
        let hitmap = Shared(Arc::new(Mutex::new(catalyst.hitmap_for(capacity))));
        let (made, seen) = (hitmap.clone(), Arc::new(Mutex::new(PolicyCounts::default())));
        let bytes = hitmap.bytes_for(0);
        let make = HitmapMaker {
            make: Box::new(move |_| Box::new(made.clone())),
            bytes_for: Box::new(move |_| bytes),
            batch_references: 0,
            asks_ahead: false,
        };
        let watched = Watched {
            inner: Published::with_options(make, catalyst.policy),
            hitmap: hitmap.clone(),
            zones: Vec::new(),
            seen: seen.clone(),
        };
        let policy = larder::build_items(Box::new(watched), capacity, catalyst.batch, SEED);
        Watch { policy: policy.expect("fewer than 2^31 items"), hitmap, seen }
    }

    fn seen(&self) -> PolicyCounts {
        *self.seen.lock().expect("nobody panics with it")
    }
}

/// The policy that runs.
#[derive(Clone, Copy)]
enum Who {
    Named(&'static str),
    Catalyst(Catalyst),
}

/// The result of a run.
struct Outcome {
    hit_ratio: f64,
    seen: PolicyCounts,
    /// The share of unknown keys that the map takes for known, at the end.
    wrong: f64,
    bits: f64,
}

/// Sends requests to a cache. Returns the hit ratio of the gets.
fn request(policy: &mut dyn Policy, requests: &[u32], next: &[u64]) -> f64 {
    let (mut gets, mut hits) = (0u64, 0u64);
    for (at, &request) in requests.iter().enumerate() {
        let next = next.get(at).copied().unwrap_or(u64::MAX);
        let hit = policy.access(&Access { id: request & !WRITE, size: 1, time_s: 0, penalty_us: 0, next });
        gets += u64::from(request & WRITE == 0);
        hits += u64::from(request & WRITE == 0 && hit);
    }
    hits as f64 / gets.max(1) as f64
}

/// Runs a trace; the first half warms the cache up.
fn run(trace: &Trace, who: Who, capacity: u64) -> Outcome {
    let half = trace.requests.len() / 2;
    let (warm_up, measured) = trace.requests.split_at(half);
    match who {
        Who::Named(name) => {
            let mut policy = match TemperatureKind::named(name) {
                Some(kind) => larder::build(kind, capacity, SEED),
                None => build(name, capacity, SEED),
            }
            .expect("a policy of this name");
            let next = if policy.needs_next() { trace.next_uses() } else { Vec::new() };
            request(&mut *policy, warm_up, &next);
            let hit_ratio = request(&mut *policy, measured, next.get(half..).unwrap_or(&[]));
            Outcome { hit_ratio, seen: PolicyCounts::default(), wrong: 0.0, bits: policy.metadata_bits() }
        }
        Who::Catalyst(catalyst) => {
            let mut watch = Watch::new(catalyst, capacity);
            request(&mut *watch.policy, warm_up, &[]);
            let earlier = watch.seen();
            let hit_ratio = request(&mut *watch.policy, measured, &[]);
            let seen = watch.seen().since(&earlier);
            Outcome { hit_ratio, seen, wrong: watch.hitmap.wrong(), bits: watch.policy.metadata_bits() }
        }
    }
}

/// The workloads, and the threads that do the work.
struct Lab {
    keys: u64,
    traces: Vec<Trace>,
}

impl Lab {
    fn trace(&self, law: &str) -> &Trace {
        self.traces.iter().find(|trace| trace.law == law).expect("a law of the list")
    }

    fn capacity(&self, share: f64) -> u64 {
        (self.keys as f64 * share).round() as u64
    }

    /// Runs all jobs on one thread per processor. Returns the results in the order of the jobs.
    fn all<T: Send>(&self, count: usize, job: impl Fn(usize) -> T + Sync) -> Vec<T> {
        let next = AtomicUsize::new(0);
        let done = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
                scope.spawn(|| {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= count {
                            break;
                        }
                        let outcome = job(number);
                        done.lock().expect("nobody panics with it").push((number, outcome));
                    }
                });
            }
        });
        let mut done = done.into_inner().expect("nobody panics with it");
        done.sort_by_key(|(number, _)| *number);
        done.into_iter().map(|(_, outcome)| outcome).collect()
    }

    /// A table with a row for each of `who` and a column for each of `cells`.
    fn table(&self, title: &str, who: &[(String, Who)], cells: &[(&str, f64)]) -> Vec<Vec<Outcome>> {
        let outcomes = self.all(who.len() * cells.len(), |number| {
            let (law, share) = cells[number % cells.len()];
            run(self.trace(law), who[number / cells.len()].1, self.capacity(share))
        });
        let heads: Vec<String> =
            cells.iter().map(|(law, share)| format!("{law} {} %", share * 100.0)).collect();
        println!("\n| {title} | {} |\n|{}", heads.join(" | "), "---|".repeat(cells.len() + 1));
        let mut outcomes = outcomes.into_iter();
        let rows: Vec<Vec<Outcome>> =
            who.iter().map(|_| outcomes.by_ref().take(cells.len()).collect()).collect();
        for ((name, _), row) in who.iter().zip(&rows) {
            let cells: Vec<String> = row.iter().map(|outcome| percent(outcome.hit_ratio)).collect();
            println!("| {name} | {} |", cells.join(" | "));
        }
        rows
    }

    /// A table of variants of Catalyst, with LRU below.
    fn ablation(
        &self,
        title: &str,
        who: Vec<(String, Catalyst)>,
        cells: &[(&str, f64)],
    ) -> Vec<Vec<Outcome>> {
        let mut who: Vec<(String, Who)> =
            who.into_iter().map(|(name, catalyst)| (name, Who::Catalyst(catalyst))).collect();
        who.push(("lru".into(), Who::Named("lru")));
        self.table(title, &who, cells)
    }
}

/// The workloads and sizes on which most parts are measured.
const CELLS: &[(&str, f64)] =
    &[("zipfian", 0.1), ("latest", 0.1), ("mix", 0.1), ("zipfian", 0.01), ("mix", 0.01)];
/// The workloads and sizes for which the paper shows all workloads.
const ALL_CELLS: &[(&str, f64)] = &[
    ("zipfian", 0.1),
    ("hotspot", 0.1),
    ("latest", 0.1),
    ("uniform", 0.1),
    ("mix", 0.1),
    ("zipfian", 0.01),
    ("mix", 0.01),
];

fn percent(ratio: f64) -> String {
    format!("{:.2}", ratio * 100.0)
}

fn policies(lab: &Lab) {
    let names = [
        "lru",
        "clock",
        "redis-lru",
        "segmented-lru",
        "s3-fifo",
        "hitmap-published",
        "hitmap",
        "entry",
        "lfu",
        "belady",
    ];
    let who = names.map(|name| (name.to_owned(), Who::Named(name)));
    for share in SHARES {
        let rows = lab.table("policy", &who, &LAWS.map(|law| (law, share)));
        let bits: Vec<String> =
            rows.iter().zip(names).map(|(row, name)| format!("{name} {:.1}", row[0].bits)).collect();
        println!("\nBits per item: {}", bits.join(", "));
    }
}

/// The hit ratio if exactly the most popular keys of a Zipf law were stored. No policy without foresight does better
/// where popularity does not change, on `zipfian` and on `mix`.
fn bound(lab: &Lab) {
    const THETA: f64 = 0.99;
    let weight = |ranks: u64| -> f64 { (1..=ranks).map(|rank| (rank as f64).powf(-THETA)).sum() };
    println!("\n| cache | the most popular keys alone |\n|---|---|");
    for share in SHARES {
        println!("| {} % | {} |", share * 100.0, percent(weight(lab.capacity(share)) / weight(lab.keys)));
    }
}

fn levels(lab: &Lab) {
    let of =
        |levels| Catalyst { hitmap: PublishedOptions { levels, ..Default::default() }, ..Default::default() };
    lab.ablation("levels", (1..=6).map(|levels| (levels.to_string(), of(levels))).collect(), ALL_CELLS);
}

fn hash_bits(lab: &Lab) {
    let of = |hash_bits| Catalyst {
        hitmap: PublishedOptions { hash_bits, ..Default::default() },
        ..Default::default()
    };
    lab.ablation("hash bits", (1..=4).map(|bits| (bits.to_string(), of(bits))).collect(), CELLS);
}

fn size(lab: &Lab) {
    let usual = PublishedOptions::default().bits_per_item;
    let of = |times: f64| Catalyst {
        hitmap: PublishedOptions { bits_per_item: usual * times, ..Default::default() },
        ..Default::default()
    };
    let items = lab.capacity(0.1);
    let who: Vec<(String, Catalyst)> = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0]
        .into_iter()
        .map(|times| {
            let bits = of(times).hitmap.first_bits_for(items) as f64 / items as f64;
            (format!("{times} ({bits:.1})"), of(times))
        })
        .collect();
    show_wrong(&lab.ablation("level 1, times the paper's (bits per item at 10 %)", who, CELLS));
}

fn show_wrong(rows: &[Vec<Outcome>]) {
    let wrong: Vec<String> =
        rows[..rows.len() - 1].iter().map(|row| format!("{:.3}", 100.0 * row[0].wrong)).collect();
    println!("\n% of strangers not in zone 0 at the end, zipfian, row by row: {}", wrong.join(", "));
}

fn shape(lab: &Lab) {
    let equal = |times| Catalyst { equal_levels: Some(times), ..Default::default() };
    let who = vec![
        ("four levels of B".to_owned(), equal(1)),
        ("pyramid, B to 8 B".to_owned(), Catalyst::default()),
        ("four levels of 8 B".to_owned(), equal(8)),
    ];
    show_wrong(&lab.ablation("shape", who, CELLS));
}

fn compacting_below(compact_below: f64) -> Catalyst {
    Catalyst { policy: PublishedPolicyOptions { compact_below, ..Default::default() }, ..Default::default() }
}

fn threshold_name(below: f64) -> String {
    if below == 0.0 { "never".into() } else { format!("{} %", below * 100.0) }
}

fn threshold(lab: &Lab) {
    let who = [0.0, 0.01, 0.02, 0.05, 0.1, 0.2].map(|below| (threshold_name(below), compacting_below(below)));
    let rows = lab.ablation("compaction below", who.to_vec(), CELLS);
    let per_turnover = |(outcome, (_, share)): (&Outcome, &(&str, f64))| {
        let turnovers = outcome.seen.evicted() as f64 / lab.capacity(*share) as f64;
        format!("{:.2}", outcome.seen.agings as f64 / turnovers)
    };
    let heads: Vec<String> = CELLS.iter().map(|(law, share)| format!("{law} {} %", share * 100.0)).collect();
    println!("\n| compactions per turnover, below | {} |\n|{}", heads.join(" | "), "---|".repeat(6));
    for ((name, _), row) in who.iter().zip(&rows) {
        let cells: Vec<String> = row.iter().zip(CELLS).map(per_turnover).collect();
        println!("| {name} | {} |", cells.join(" | "));
    }
}

/// Hit ratios in windows of time.
fn time(lab: &Lab) {
    const WINDOWS: usize = 10;
    let requests = 8 * REQUESTS_PER_KEY * lab.keys;
    let traces = [Trace::new("zipfian", lab.keys, requests), Trace::new("mix", lab.keys, requests)];
    let below = [0.0, 0.05];
    let rows = lab.all(traces.len() * (below.len() + 1), |number| {
        let (trace, who) = (&traces[number / (below.len() + 1)], number % (below.len() + 1));
        let capacity = lab.capacity(0.1);
        let mut policy = match below.get(who) {
            Some(&below) => Watch::new(compacting_below(below), capacity).policy,
            None => build("lru", capacity, SEED).expect("there is LRU"),
        };
        let windows = trace.requests.chunks(trace.requests.len() / WINDOWS);
        let ratios: Vec<String> = windows.map(|window| percent(request(&mut *policy, window, &[]))).collect();
        let name = below.get(who).map_or("lru".to_owned(), |below| threshold_name(*below));
        format!("| {} {name} | {} |", trace.law, ratios.join(" | "))
    });
    let heads: Vec<String> = (1..=WINDOWS)
        .map(|n| format!("{:.1} M", (requests / WINDOWS as u64 * n as u64) as f64 / 1e6))
        .collect();
    println!("\n| 10 %, until request | {} |\n|{}", heads.join(" | "), "---|".repeat(WINDOWS + 1));
    rows.iter().for_each(|row| println!("{row}"));
}

fn set_counter(lab: &Lab) {
    let of = |set_counter| Catalyst {
        hitmap: PublishedOptions { set_counter, ..Default::default() },
        ..Default::default()
    };
    let who = vec![("with".to_owned(), of(true)), ("without".to_owned(), of(false))];
    lab.ablation("set counter", who, ALL_CELLS);
}

fn batch(lab: &Lab) {
    let capacity = lab.capacity(0.1) as usize;
    let batches = [1, 10, 100, capacity / 200, capacity / 100, capacity / 20, capacity / 10, capacity / 5]
        .into_iter()
        .chain([capacity / 2, capacity]);
    let name = |batch| format!("{batch} ({} %)", 100.0 * batch as f64 / capacity as f64);
    let mut who: Vec<(String, Catalyst)> =
        batches.map(|batch| (name(batch), Catalyst { batch: Some(batch), ..Default::default() })).collect();
    for batch in [10, 100, capacity / 100] {
        let policy = PublishedPolicyOptions { sampled_min: 1, ..Default::default() };
        let alone = Catalyst { batch: Some(batch), policy, ..Default::default() };
        who.push((format!("{}, each judged alone", name(batch)), alone));
    }
    let laws = ["zipfian", "latest", "mix"];
    let rows = lab.ablation("batch (of the cache)", who.clone(), &laws.map(|law| (law, 0.1)));
    println!("\n| % of victims with the pool empty | {} |\n|{}", laws.join(" | "), "---|".repeat(4));
    for ((name, _), row) in who.iter().zip(&rows) {
        let drained = |o: &Outcome| percent(o.seen.drained as f64 / o.seen.evicted().max(1) as f64);
        let cells: Vec<String> = row.iter().map(drained).collect();
        println!("| {name} | {} |", cells.join(" | "));
    }
}

fn draws(lab: &Lab) {
    let of = |sampled_per_reference| Catalyst {
        policy: PublishedPolicyOptions { sampled_per_reference, ..Default::default() },
        ..Default::default()
    };
    let who = [0.25, 0.5, 1.0, 2.0, 4.0].map(|draws| (draws.to_string(), of(draws)));
    lab.ablation("draws per reference", who.to_vec(), CELLS);
}

fn victims(lab: &Lab) {
    let without = PublishedOptions { set_counter: false, ..Default::default() };
    let kinds = [Catalyst::default(), Catalyst { hitmap: without, ..Default::default() }];
    let cells: Vec<(f64, &str, usize)> = SHARES
        .iter()
        .flat_map(|&share| LAWS.map(|law| [(share, law, 0), (share, law, 1)]))
        .flatten()
        .collect();
    let outcomes = lab.all(cells.len(), |number| {
        let (share, law, kind) = cells[number];
        run(lab.trace(law), Who::Catalyst(kinds[kind]), lab.capacity(share))
    });
    println!(
        "\n| % of victims in zone | 0 | 1 | 2 | 3 | 4 | compactions per turnover | pool empty, % |\n|{}",
        "---|".repeat(8)
    );
    for ((share, law, kind), outcome) in cells.iter().zip(&outcomes) {
        let evicted = outcome.seen.evicted().max(1) as f64;
        let zones: Vec<String> =
            outcome.seen.victims[..5].iter().map(|count| percent(*count as f64 / evicted)).collect();
        let turnovers = evicted / lab.capacity(*share) as f64;
        println!(
            "| {law} {} %{} | {} | {:.2} | {} |",
            share * 100.0,
            ["", ", no set counter"][*kind],
            zones.join(" | "),
            outcome.seen.agings as f64 / turnovers,
            percent(outcome.seen.drained as f64 / evicted),
        );
    }
}

/// The share of a cohort of one-time items that is still stored, by turnovers and by compactions.
fn zombies(lab: &Lab) {
    const STEPS: [f64; 10] = [0.1, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0];
    let capacity = lab.capacity(0.1);
    let trace = lab.trace("mix");
    let without = PublishedOptions { set_counter: false, ..Default::default() };
    let catalysts = [Catalyst::default(), Catalyst { hitmap: without, ..Default::default() }];
    let names = ["lru", "s3-fifo", "hitmap", "entry", "hitmap-published", "hitmap-published, no set counter"];
    let rows = lab.all(names.len(), |number| {
        let watch = number.checked_sub(4).map(|at| Watch::new(catalysts[at], capacity));
        let seen = watch.as_ref().map(|watch| watch.seen.clone());
        let agings = || seen.as_ref().map_or(0, |seen| seen.lock().expect("nobody panics").agings);
        let mut policy = match watch {
            Some(watch) => watch.policy,
            None => match TemperatureKind::named(names[number]) {
                Some(kind) => larder::build(kind, capacity, SEED).expect("few items"),
                None => build(names[number], capacity, SEED).expect("a name that is known"),
            },
        };
        let half = trace.requests.len() / 2;
        request(&mut *policy, &trace.requests[..half], &[]);
        let (mut cohort, mut inserts, mut begun) = (Vec::new(), 0u64, 0);
        let mut left = Vec::new();
        let mut by_compaction = Vec::new();
        for &request in &trace.requests[half..] {
            if inserts < capacity / 100 && request & WRITE != 0 {
                cohort.push(request & !WRITE);
            }
            let access = Access { id: request & !WRITE, size: 1, time_s: 0, penalty_us: 0, next: u64::MAX };
            inserts += u64::from(!policy.access(&access));
            if inserts <= capacity / 100 {
                begun = agings();
                continue;
            }
            let alive =
                || cohort.iter().filter(|id| policy.contains(**id)).count() as f64 / cohort.len() as f64;
            if agings() > begun + by_compaction.len() as u64 && by_compaction.len() < 5 {
                by_compaction.push(percent(alive()));
            }
            match STEPS.get(left.len()) {
                Some(step) if inserts as f64 >= step * capacity as f64 => left.push(percent(alive())),
                Some(_) => {}
                None => break,
            }
        }
        format!("| {} | {} | {} |", names[number], left.join(" | "), by_compaction.join(", "))
    });
    let heads = STEPS.map(|step| step.to_string()).join(" | ");
    println!("\n| mix 10 %: % left after turnovers | {heads} | at each compaction |\n|{}", "---|".repeat(12));
    rows.iter().for_each(|row| println!("{row}"));
}

/// Mean size of key and value of a data set, in bytes.
fn mean_bytes(sizes: &str) -> f64 {
    let mut source = workload::parse(&format!("uniform:requests=1m,sizes={sizes}")).expect("a law of sizes");
    let (mut buffer, mut sum, mut count) = (Vec::new(), 0u64, 0u64);
    while source.fill(&mut buffer, CHUNK_REQUESTS).expect("a workload does not fail") > 0 {
        count += buffer.len() as u64;
        sum += buffer.drain(..).map(|request| request.item_bytes()).sum::<u64>();
    }
    sum as f64 / count as f64
}

/// LRU's pointers, in bytes per item.
const POINTERS: f64 = 16.0;

/// The value of the pointers' memory if it is given to items.
fn room(lab: &Lab) {
    let item = mean_bytes("app");
    let more = (item + POINTERS) / item;
    println!("\nAPP: {item:.1} octets an item; without pointers {:.2} % more items", 100.0 * (more - 1.0));
    println!("\n| cache | lru | hitmap-published | the same with more items | gain |\n|---|---|---|---|---|");
    let shares = [0.01, 0.05, 0.1, 0.4];
    for law in ["zipfian", "hotspot"] {
        let outcomes = lab.all(shares.len() * 3, |number| {
            let capacity = lab.capacity(shares[number / 3]);
            let published = Who::Named("hitmap-published");
            let (who, capacity) = match number % 3 {
                0 => (Who::Named("lru"), capacity),
                1 => (published, capacity),
                _ => (published, (capacity as f64 * more) as u64),
            };
            run(lab.trace(law), who, capacity).hit_ratio
        });
        for (share, hits) in shares.iter().zip(outcomes.chunks(3)) {
            println!(
                "| {law} {} % | {} | {} | {} | {:+.2} |",
                share * 100.0,
                percent(hits[0]),
                percent(hits[1]),
                percent(hits[2]),
                100.0 * (hits[2] - hits[0])
            );
        }
    }
}

/// Memory of the bookkeeping for 100 GB of items.
fn memory(_: &Lab) {
    println!(
        "\n| data set | octets an item | items, M | LRU's pointers, GB | three levels, GB | of LRU | \
         four levels, GB | of LRU | one line, GB | of LRU |\n|{}",
        "---|".repeat(10)
    );
    for sizes in ["app", "sys", "etc"] {
        let item = mean_bytes(sizes);
        let items = 100e9 / item;
        let pointers = items * POINTERS;
        let published =
            |levels| PublishedOptions { levels, ..Default::default() }.bytes_for(items as u64) as f64;
        let maps = [published(3), published(4), (HitmapMaker::line().bytes_for)(items as u64) as f64];
        let maps: Vec<String> =
            maps.iter().map(|map| format!("{:.2} | {:.0} %", map / 1e9, 100.0 * map / pointers)).collect();
        println!(
            "| {} | {item:.0} | {:.0} | {:.2} | {} |",
            sizes.to_uppercase(),
            items / 1e6,
            pointers / 1e9,
            maps.join(" | ")
        );
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let keys = arguments.first().map_or(Ok(1_000_000), |keys| keys.parse())?;
    let wanted: Vec<&str> = match arguments.get(1) {
        Some(parts) => parts.split(',').collect(),
        None => PARTS.iter().map(|(name, _)| *name).collect(),
    };
    let traces = LAWS.iter().map(|law| Trace::new(law, keys, REQUESTS_PER_KEY * keys)).collect();
    let lab = Lab { keys, traces };
    for name in wanted {
        let known: Vec<&str> = PARTS.iter().map(|(name, _)| *name).collect();
        let at = known.iter().position(|known| *known == name);
        let at = at.ok_or_else(|| format!("no part '{name}'; there are {}", known.join(", ")))?;
        let (_, part) = PARTS[at];
        println!("\n## {name}, {keys} keys");
        part(&lab);
    }
    Ok(())
}
