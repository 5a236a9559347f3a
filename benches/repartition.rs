//! Re-partitioning while there is room: how soon hot items stand together, what it costs while it goes on, what mixes
//! of GETs and SETs gain or lose by it, and the latencies of a worker while the keeper works.
//!
//! `cargo bench --bench repartition [-- --mib 512 --value 300 --millions 20 --rounds 5 --parts progress,mixes,tail]`
//!
//! The paper's case is `--mib 4096`: its hot items move within 10 M requests. Costs are processor time, that of the
//! keeper's rounds included; the calling thread runs them, except in the last part. There the worker and the keeper
//! have a processor each, `--core` (1) and `--keeper-core` (0).

mod support;

use larder_cache::{Cache, CacheOptions, Placement, Worker};
use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;
use support::{Batch, KEY_BYTES, KeyPool, Rng, SEED, cpu_ns};

const BATCH: usize = 16;
const REQUESTS_PER_ROUND: usize = 1 << 16;
const MILLION: usize = 1_000_000;
/// Keys that are looked up to see where hot items stand.
const SAMPLE: usize = 100_000;
/// The slabs with the most reads, one in 24: as much as hot items may take.
const TOP_SHARE: u64 = 24;
const SLAB_BYTES: u64 = 2 << 20;

/// The share of the final effect at which hot items stand together.
const REACHED: f64 = 0.95;

fn main() {
    let args = support::Args::read(&["mib", "value", "millions", "rounds", "parts", "core", "keeper-core"]);
    let core = args.number("core", 1);
    let keeper_core = args.number("keeper-core", support::beside(core));
    support::pin(core);
    let (mib, value_bytes) = (args.number("mib", 512u64), args.number("value", 300usize));
    let (millions, rounds) = (args.number("millions", 20usize), args.number("rounds", 5usize));
    let items = (mib << 20) / (value_bytes + KEY_BYTES + 24) as u64;
    println!("{items} items of {value_bytes}-byte values, Zipf");
    for part in args.text("parts").unwrap_or("progress,mixes,tail").split(',') {
        match part {
            "progress" => progress(items, value_bytes, millions),
            "mixes" => mixes(items, value_bytes, rounds),
            "tail" => tail(items, value_bytes, core, keeper_core),
            other => panic!("--parts {other}: progress, mixes or tail"),
        }
    }
}

/// A cache and its worker.
struct Side {
    cache: Arc<Cache>,
    worker: Worker,
    value: Vec<u8>,
    random: Rng,
}

impl Side {
    fn new(placement: Placement, limit_bytes: u64, items: u64, value_bytes: usize) -> Side {
        let options =
            CacheOptions { limit_bytes, workers: 1, placement, seed: Some(SEED), ..CacheOptions::default() };
        let cache = Cache::new(options).unwrap_or_else(|error| panic!("{error}"));
        let mut side =
            Side { worker: cache.worker(), cache, value: vec![b'v'; value_bytes], random: Rng::new(SEED) };
        // Items are stored in an order that says nothing about how they are read.
        support::fill(&mut side.worker, 0..items, value_bytes);
        (0..4).for_each(|_| side.tend());
        side
    }

    fn tend(&mut self) {
        self.worker.offline();
        self.cache.tend();
        self.worker.online();
    }

    /// Asks for all keys of the pool, `updates` of a hundred by a SET. Returns the processor time of a request, and
    /// that of the keeper in it.
    fn requests(&mut self, pool: &KeyPool, updates: u64) -> (f64, f64) {
        let (mut spent, mut kept, mut sum) = (0.0, 0.0, 0);
        let mut batch = Batch::new();
        for first in (0..pool.len() / BATCH * BATCH).step_by(REQUESTS_PER_ROUND) {
            let began = cpu_ns();
            for at in (first..pool.len().min(first + REQUESTS_PER_ROUND) / BATCH * BATCH).step_by(BATCH) {
                let sets = (0..BATCH).filter(|_| self.random.below(100) < updates).count();
                sum += batch.get(&self.worker, pool, at, BATCH - sets);
                for key in pool.keys_from(at).take(BATCH).skip(BATCH - sets) {
                    support::set(&mut self.worker, self.cache.hash(key), key, &self.value);
                }
                self.worker.quiesce();
            }
            let tending = cpu_ns();
            self.tend();
            (spent, kept) = (spent + (cpu_ns() - began), kept + (cpu_ns() - tending));
        }
        black_box(sum);
        (spent / pool.len() as f64, kept / pool.len() as f64)
    }

    /// The share of reads that go to the slabs that are read most.
    fn top_share(&self, pool: &KeyPool) -> f64 {
        let mut reads: HashMap<u64, u64> = HashMap::new();
        for key in pool.keys_from(0) {
            if let Some(hit) = self.worker.peek(self.cache.hash(key), key) {
                *reads.entry(hit.at.offset() / SLAB_BYTES).or_default() += 1;
            }
        }
        let slabs = (self.cache.memory_use().columns_bytes / SLAB_BYTES / TOP_SHARE).max(1);
        let mut reads: Vec<u64> = reads.into_values().collect();
        reads.sort_unstable_by_key(|count| std::cmp::Reverse(*count));
        reads.iter().take(slabs as usize).sum::<u64>() as f64 / pool.len() as f64
    }
}

fn limit_for(items: u64, value_bytes: usize) -> u64 {
    items * (value_bytes + KEY_BYTES + 40) as u64 * 3 / 2 + (64 << 20)
}

/// A million requests of [`progress`].
struct Step {
    column_ns: f64,
    off_ns: f64,
    keeper_ns: f64,
    moved_up: u64,
    moved_down: u64,
    top_share: f64,
}

impl Step {
    /// The share of the throughput without placement that is lost; negative where some is won.
    fn lost(&self) -> f64 {
        1.0 - self.off_ns / self.column_ns
    }
}

/// Million by million: the cost beside that of a cache without placement, what was moved, where reads go, and which
/// part of the final effect that is.
fn progress(items: u64, value_bytes: usize, millions: usize) {
    let limit = limit_for(items, value_bytes);
    let [mut column, mut off] =
        [Placement::Column, Placement::Off].map(|at| Side::new(at, limit, items, value_bytes));
    let mut draw = support::draw("zipf", items);
    let sample = KeyPool::new(std::iter::repeat_with(support::draw("zipf", items)).take(SAMPLE));
    let before = column.top_share(&sample);
    let steps: Vec<Step> = (0..millions)
        .map(|million| {
            let pool = KeyPool::new(std::iter::repeat_with(&mut draw).take(MILLION));
            // Who is first changes.
            let mut all = [&mut column, &mut off];
            all.rotate_left(million % 2);
            let mut spent = all.map(|side| side.requests(&pool, 0));
            spent.rotate_right(million % 2);
            let ([(column_ns, keeper_ns), (off_ns, _)], totals) = (spent, column.cache.totals());
            let (moved_up, moved_down) = (totals.moved_up, totals.moved_down);
            Step { column_ns, off_ns, keeper_ns, moved_up, moved_down, top_share: column.top_share(&sample) }
        })
        .collect();
    print_steps(before, &steps);
}

fn print_steps(before: f64, steps: &[Step]) {
    let Some(last) = steps.last() else { return };
    println!(
        "\n{:>8}{:>12}{:>12}{:>9}{:>12}{:>10}{:>10}{:>18}{:>12}",
        "million", "ns, column", "ns, off", "lost", "of keeper", "up", "down", "reads of a 24th", "of effect"
    );
    println!("{:>8}{:>82.1}%", 0, 100.0 * before);
    let effect = |step: &Step| (step.top_share - before) / (last.top_share - before);
    for (at, step) in steps.iter().enumerate() {
        println!(
            "{:>8}{:>12.1}{:>12.1}{:>8.1}%{:>12.2}{:>10}{:>10}{:>17.1}%{:>11.1}%",
            at + 1,
            step.column_ns,
            step.off_ns,
            100.0 * step.lost(),
            step.keeper_ns,
            step.moved_up,
            step.moved_down,
            100.0 * step.top_share,
            100.0 * effect(step)
        );
    }
    let Some(reached) = steps.iter().position(|step| effect(step) >= REACHED) else { return };
    let during = &steps[..=reached];
    let sum = |of: fn(&Step) -> f64| during.iter().map(of).sum::<f64>();
    let most = during.iter().map(Step::lost).fold(f64::MIN, f64::max);
    println!(
        "{:.0} % of the final effect after {} M requests; until then {:.1} % of the throughput without placement lost, \
         at most {:.1} % in a million",
        100.0 * REACHED,
        reached + 1,
        100.0 * (1.0 - sum(|step| step.off_ns) / sum(|step| step.column_ns)),
        100.0 * most
    );
}

/// Mixes of GETs and SETs with and without placement, by turns.
fn mixes(items: u64, value_bytes: usize, rounds: usize) {
    println!("\n{:>10}{:>14}{:>14}{:>10}{:>22}", "SET %", "ns, column", "ns, off", "ratio", "of the rounds");
    // Replaced items keep their memory until a pass, so there is room for them.
    let limit = 2 * limit_for(items, value_bytes);
    let mut sides = [Placement::Column, Placement::Off].map(|at| Side::new(at, limit, items, value_bytes));
    let mut draw = support::draw("zipf", items);
    for updates in [0, 5, 50] {
        let mut samples = [const { Vec::new() }; 2];
        for round in 0..=rounds {
            let pool = KeyPool::new(std::iter::repeat_with(&mut draw).take(MILLION));
            for (side, samples) in sides.iter_mut().zip(&mut samples) {
                let (ns, _) = side.requests(&pool, updates);
                // The first round warms up.
                if round > 0 {
                    samples.push(ns);
                }
            }
        }
        let ratios: Vec<f64> = samples[0].iter().zip(&samples[1]).map(|(column, off)| column / off).collect();
        let ends = ratios.iter().fold((f64::MAX, 0.0f64), |(low, high), at| (low.min(*at), high.max(*at)));
        println!(
            "{updates:>10}{:>14.1}{:>14.1}{:>10.3}{:>13.3} to {:.3}",
            support::median(&samples[0]),
            support::median(&samples[1]),
            support::median(&ratios),
            ends.0,
            ends.1
        );
    }
}

/// Latencies of a worker's batches of GETs: while the keeper has nothing to do, while it moves hot items, and while the
/// worker's own SETs make it evict.
fn tail(items: u64, value_bytes: usize, core: usize, keeper_core: usize) {
    println!(
        "\n{:<34}{:>10}{:>10}{:>10}{:>12}",
        "batches of 16 GETs, us", "p50", "p99", "p99.9", "keeper ms/s"
    );
    let pool = KeyPool::new(std::iter::repeat_with(support::draw("zipf", items)).take(MILLION));
    let fits = limit_for(items, value_bytes);
    for (name, limit, placement, updates, warm) in [
        ("the keeper is idle", fits, Placement::Off, 0, true),
        ("it moves hot items", fits, Placement::Column, 0, false),
        ("5 % SETs of keys that are there", 2 * fits, Placement::Off, 5, true),
        ("5 % SETs of new keys, it evicts", fits / 2, Placement::Off, 5, true),
    ] {
        let mut side = Side::new(placement, limit, items, value_bytes);
        if warm {
            side.requests(&pool, 0);
        }
        let cache = side.cache.clone();
        let keeper = support::start_on(keeper_core, core, || cache.keep()).expect("a thread can be started");
        let (mut latencies, mut batch, mut new_key) = (support::latencies(), Batch::new(), items);
        let (began, keeper_began) = (Instant::now(), cache.keeper_cpu_ns());
        for at in (0..pool.len() / BATCH * BATCH).step_by(BATCH) {
            let before = Instant::now();
            black_box(batch.get(&side.worker, &pool, at, BATCH));
            latencies.saturating_record(before.elapsed().as_nanos() as u64);
            for place in at..at + BATCH {
                if side.random.below(100) < updates {
                    let key =
                        if limit < fits { support::key_of(new_key) } else { support::key_of(place as u64) };
                    new_key += 1;
                    support::set(&mut side.worker, cache.hash(&key), &key, &side.value);
                }
            }
            side.worker.quiesce();
        }
        let seconds = began.elapsed().as_secs_f64();
        let us = |quantile| latencies.value_at_quantile(quantile) as f64 / 1e3;
        let kept_ms = (cache.keeper_cpu_ns() - keeper_began) as f64 / 1e6;
        println!(
            "{name:<34}{:>10.2}{:>10.2}{:>10.2}{:>12.1}",
            us(0.5),
            us(0.99),
            us(0.999),
            kept_ms / seconds
        );
        cache.stop_keeper();
        keeper.join().expect("the keeper ends in peace");
    }
}
