//! Values beside their keys or apart from them, by size: what a GET costs, and what the pass costs for each item that
//! it evicts.
//!
//! `cargo bench --bench separation [-- --mib 256 --requests 1000000 --rounds 3 --values 64,256,1024,4096]`
//!
//! All caches of a size are there at the same time and are measured by turns. Figures are processor time of the thread,
//! which also does the keeper's rounds.

mod support;

use larder_cache::{Cache, CacheOptions, GetBatch, Value, Worker};
use std::hint::black_box;
use std::sync::Arc;
use support::{KEY_BYTES, KeyPool, OPS_PER_QUIESCE, SEED, cpu_ns};

const BATCH: usize = 16;
/// The longest value, and the highest limit for values beside their keys.
const VALUE_BYTES_MAX: usize = 4096;

fn main() {
    let args = support::Args::read(&["mib", "requests", "rounds", "values", "core"]);
    support::pin(args.number("core", 1));
    let (bytes, requests) = (args.number("mib", 256u64) << 20, args.number("requests", 1_000_000usize));
    let rounds = args.number("rounds", 3usize);
    println!(
        "{:>8}{:>24}{:>24}{:>24}",
        "value", "ns a GET", "ns an evicted item", "items in the same memory"
    );
    println!("{:>8}{}", "", format!("{:>12}{:>12}", "together", "apart").repeat(3));
    for value_bytes in args.text("values").unwrap_or("64,128,256,512,1024,2048,4096").split(',') {
        let value_bytes: usize = value_bytes.parse().expect("sizes of values are numbers");
        assert!(value_bytes <= VALUE_BYTES_MAX, "values of at most {VALUE_BYTES_MAX} bytes");
        let items = bytes / (value_bytes + KEY_BYTES + 24) as u64;
        let mut sides = [VALUE_BYTES_MAX as u32, 0].map(|inline| {
            let mut resident = Side::new(2 * bytes + (64 << 20), inline, value_bytes);
            resident.store(items);
            let mut full = Side::new(bytes, inline, value_bytes);
            full.store(items * 3 / 2);
            (resident, full)
        });
        let pool = KeyPool::new(std::iter::repeat_with(support::draw("uniform", items)).take(requests));
        let mut samples = [const { [const { Vec::new() }; 2] }; 2];
        for _ in 0..rounds {
            for ((resident, full), [gets, evictions]) in sides.iter_mut().zip(&mut samples) {
                gets.push(resident.gets(&pool));
                evictions.push(full.evictions(items / 2));
            }
        }
        print!("{value_bytes:>8}");
        for what in 0..2 {
            samples.iter().for_each(|side| print!("{:>12.1}", support::median(&side[what])));
        }
        sides.iter().for_each(|(_, full)| print!("{:>12}", full.cache.items()));
        println!();
    }
}

/// A cache and its worker.
struct Side {
    cache: Arc<Cache>,
    worker: Worker,
    value: Vec<u8>,
    /// The number of the next new item.
    next: u64,
}

impl Side {
    fn new(limit_bytes: u64, inline: u32, value_bytes: usize) -> Side {
        let options = CacheOptions {
            limit_bytes,
            workers: 1,
            inline_value_bytes: Some(inline),
            seed: Some(SEED),
            ..CacheOptions::default()
        };
        let cache = Cache::new(options).unwrap_or_else(|error| panic!("{error}"));
        Side { worker: cache.worker(), cache, value: vec![b'v'; value_bytes], next: 0 }
    }

    /// Stores new items. Returns the processor time of the keeper's rounds.
    fn store(&mut self, count: u64) -> f64 {
        let mut kept = 0.0;
        for number in self.next..self.next + count {
            let key = support::key_of(number);
            support::set(&mut self.worker, self.cache.hash(&key), &key, &self.value);
            if number.is_multiple_of(OPS_PER_QUIESCE) {
                self.worker.offline();
                let began = cpu_ns();
                self.cache.tend();
                kept += cpu_ns() - began;
                self.worker.online();
            }
        }
        self.next += count;
        kept
    }

    /// Processor time of the keeper for each item that left for a new one.
    fn evictions(&mut self, count: u64) -> f64 {
        let before = self.cache.totals().evictions;
        let kept = self.store(count);
        kept / (self.cache.totals().evictions - before).max(1) as f64
    }

    /// Processor time of a GET of a key that is there, with a copy of the value.
    fn gets(&mut self, pool: &KeyPool) -> f64 {
        let (mut batch, mut keys, mut out) = (GetBatch::default(), [&[][..]; BATCH], [0; VALUE_BYTES_MAX]);
        let began = cpu_ns();
        for first in (0..pool.len() / BATCH * BATCH).step_by(BATCH) {
            keys.iter_mut().zip(pool.keys_from(first)).for_each(|(room, key)| *room = key);
            batch.get(&self.worker, &keys, |_, hit| {
                if let Some(hit) = hit
                    && let Value::Whole(value) = hit.value()
                {
                    out[..value.len()].copy_from_slice(value);
                    black_box(&out);
                }
            });
            self.worker.quiesce();
        }
        (cpu_ns() - began) / pool.len() as f64
    }
}
