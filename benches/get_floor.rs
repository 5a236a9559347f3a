//! GET of random resident keys, compared with the limit that memory itself sets.
//!
//! The limit ("floor") is two dependent memory accesses per key: a bucket's line leads to an item's line. Both are
//! prefetched for a whole batch before they are needed, in an arena of the size and page kind of the cache. Larder's
//! GET is `GetBatch`. Both run in the same process in alternating rounds; the medians are printed.
//!
//! `cargo bench --bench get_floor -- --gib 4 [--value 32] [--rounds 9]`

mod support;

use larder_cache::Worker;
use larder_memory::prefetch_read;
use memmap2::{Advice, MmapMut};
use std::hint::black_box;
use std::ops::Range;
use support::{BATCH_MAX, Batch, KEY_BYTES, KeyPool, Rng, SEED};

/// Keys read, or lines read, per measurement.
const KEYS: usize = 1 << 18;
/// Keys in the pool: with their lines more than any CPU cache holds between two measurements of the same keys.
const POOL_KEYS: usize = 1 << 22;
const BATCHES: [usize; 5] = [1, 8, 16, 32, BATCH_MAX];
const LINE_BYTES: usize = 64;

fn main() {
    let args = support::Args::read(&["gib", "value", "rounds", "core"]);
    let bytes = (args.number("gib", 0.5) * (1u64 << 30) as f64) as u64;
    let rounds: usize = args.number("rounds", 9);
    support::pin(args.number("core", 1));
    match args.text("value") {
        Some(_) => compare(bytes, args.number("value", 0), rounds),
        None => [32, 256].into_iter().for_each(|value_bytes| compare(bytes, value_bytes, rounds)),
    }
}

/// The variants, each measured with every batch size.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Subject {
    /// The floor. `apart` makes the locations of a batch depend on the last line of the batch before, so that no
    /// access of a batch starts before the previous batch has ended.
    Floor { apart: bool },
    /// Larder, with or without the same dependence.
    Larder { apart: bool },
    /// Larder's stage 1 without the prefetch: reading the pool and hashing.
    Hash,
}

const SUBJECTS: [(&str, Subject); 5] = [
    ("floor, batches apart", Subject::Floor { apart: true }),
    ("larder, batches apart", Subject::Larder { apart: true }),
    ("floor, flowing", Subject::Floor { apart: false }),
    ("larder, flowing", Subject::Larder { apart: false }),
    ("of which key and hash", Subject::Hash),
];

fn compare(bytes: u64, value_bytes: usize, rounds: usize) {
    let cache = support::cache(bytes * 2 + (64 << 20), 1, None);
    let mut worker = cache.worker();
    let mut items = 0;
    while used_bytes(&cache) < bytes {
        support::fill(&mut worker, items..items + (1 << 16), value_bytes);
        items += 1 << 16;
    }
    let mut random = Rng::new(SEED);
    let pool = KeyPool::new((0..POOL_KEYS).map(|_| random.below(items)));
    let mut floor = Floor::new(bytes as usize);

    println!(
        "\n{items} items, {KEY_BYTES}-byte keys, {value_bytes}-byte values, {} MiB",
        used_bytes(&cache) >> 20
    );
    support::print_machine(&cache);
    for pass in ["first", "second", "third"] {
        // The pool is read three times before the measurement, so that all entries have the maximum warmth.
        let ns =
            support::time_each(POOL_KEYS as u64, || larder::<true>(&mut worker, &pool, 0..POOL_KEYS, 16));
        println!("{pass} hits, each marks its entry: {ns:.1} ns per key, batch of 16");
    }
    let mut turn = 0;
    let mut samples = vec![Vec::new(); SUBJECTS.len() * BATCHES.len()];
    for _ in 0..rounds {
        for (cell, samples) in samples.iter_mut().enumerate() {
            let (subject, batch) = (SUBJECTS[cell / BATCHES.len()].1, BATCHES[cell % BATCHES.len()]);
            // Each measurement uses other keys than those before it.
            let keys = turn..turn + KEYS;
            turn = keys.end % POOL_KEYS;
            let ns = support::time_each(KEYS as u64, || match subject {
                Subject::Floor { apart: true } => floor.read::<true>(batch),
                Subject::Floor { apart: false } => floor.read::<false>(batch),
                Subject::Larder { apart: true } => larder::<true>(&mut worker, &pool, keys, batch),
                Subject::Larder { apart: false } => larder::<false>(&mut worker, &pool, keys, batch),
                Subject::Hash => hash(&worker, &pool, keys),
            });
            samples.push(ns);
        }
    }
    print_table(&samples);
}

fn used_bytes(cache: &larder_cache::Cache) -> u64 {
    let used = cache.memory_use();
    used.columns_bytes + used.index_bytes
}

fn print_table(samples: &[Vec<f64>]) {
    let medians: Vec<f64> = samples.iter().map(|samples| support::median(samples)).collect();
    print!("{:<24}", "ns per key, batch of");
    BATCHES.iter().for_each(|batch| print!("{batch:>9}"));
    println!();
    for (row, (name, subject)) in SUBJECTS.iter().enumerate() {
        let cells = &medians[row * BATCHES.len()..][..BATCHES.len()];
        print!("{name:<24}");
        cells.iter().for_each(|ns| print!("{ns:>9.1}"));
        println!();
        if let Subject::Larder { .. } = subject {
            print!("{:<24}", "  times the floor");
            let floor = &medians[(row - 1) * BATCHES.len()..];
            cells.iter().zip(floor).for_each(|(larder, floor)| print!("{:>9.2}", larder / floor));
            println!();
        }
    }
}

/// Gets `keys` of the pool in batches.
#[inline(never)]
fn larder<const APART: bool>(worker: &mut Worker, pool: &KeyPool, keys: Range<usize>, batch: usize) {
    let mut room = Batch::new();
    let (mut sum, zero) = (0, black_box(0));
    for first in keys.step_by(batch) {
        let first = if APART { first + (sum & zero) as usize } else { first };
        sum += room.get(worker, pool, first, batch);
        worker.quiesce();
    }
    black_box(sum);
}

fn hash(worker: &Worker, pool: &KeyPool, keys: Range<usize>) {
    let sum = keys.fold(0, |sum, at| sum ^ worker.cache().hash(pool.key(at)).0);
    black_box(sum);
}

/// An arena of lines, each of which contains the number of another.
struct Floor {
    arena: MmapMut,
    random: Rng,
}

impl Floor {
    fn new(bytes: usize) -> Floor {
        let mut arena =
            MmapMut::map_anon(bytes).expect("the machine has room for an arena as large as the cache");
        arena.advise(Advice::HugePage).expect("the kernel knows huge pages");
        let mut random = Rng::new(SEED + 1);
        let lines = (bytes / LINE_BYTES) as u64;
        for line in arena.as_chunks_mut::<LINE_BYTES>().0 {
            line[..8].copy_from_slice(&random.below(lines).to_ne_bytes());
        }
        Floor { arena, random }
    }

    /// Reads [`KEYS`] random lines and the lines whose numbers they contain.
    #[inline(never)]
    fn read<const APART: bool>(&mut self, batch: usize) {
        let lines = self.arena.as_chunks::<LINE_BYTES>().0;
        let random = &mut self.random;
        let mut places = [0usize; BATCH_MAX];
        let places = &mut places[..batch];
        let (mut sum, zero) = (0, black_box(0));
        for _ in 0..KEYS / batch {
            if APART {
                random.mix(sum & zero);
            }
            for place in places.iter_mut() {
                *place = random.below(lines.len() as u64) as usize;
                prefetch_read(lines[*place].as_ptr());
            }
            for place in places.iter_mut() {
                *place = named_by(&lines[*place]) as usize;
                prefetch_read(lines[*place].as_ptr());
            }
            for place in places.iter() {
                sum += named_by(&lines[*place]);
            }
        }
        black_box(sum);
    }
}

/// The number at the start of a line.
#[inline(always)]
fn named_by(line: &[u8; LINE_BYTES]) -> u64 {
    u64::from_ne_bytes(line[..8].try_into().expect("eight bytes"))
}
