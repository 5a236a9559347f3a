//! Measures the costs of the flash tier for items of 100 bytes on a device in memory: DRAM, reads, write
//! amplification, and time.
//!
//! ```sh
//! cargo run --release -p larder-laboratory --example tier_costs -- \
//!     [log|generations] [items] [memory MiB] [fill percent] [items that fill the device]
//! ```

use larder_flash::space::Watermarks;
use larder_flash::{Begun, Fetcher, Flash, FlashItem, FlashOptions, Put, Recover};
use larder_item::KeyHasher;
use larder_laboratory::MemoryDevice;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

fn key(n: u64) -> [u8; 16] {
    let mut key = *b"key ............";
    key[4..12].copy_from_slice(&n.to_le_bytes());
    key
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let generations = arguments.get(1).is_some_and(|kind| kind == "generations");
    let number =
        |at: usize, default: u64| arguments.get(at).and_then(|text| text.parse().ok()).unwrap_or(default);
    let (items, memory) = (number(2, 3_000_000), number(3, 64) << 20);
    // One twenty-sixth larger than the items, unless the device is to be too small for them.
    let zone_pages = (number(5, items) * 112 * 27 / 26 / 4096 / 238).next_multiple_of(16);
    let options = FlashOptions {
        memory_bytes: memory,
        segment_bytes: None,
        generations,
        recover: Recover::Clean,
        space: Watermarks::fixed(4),
        cutoff_s: 0,
        log_percent: 8,
        fill_percent: number(4, 100) as u8,
        seed: 1,
        now_unix_s: Arc::new(|| 1_800_000_000),
        format: true,
    };
    let flash = Flash::open(Arc::new(MemoryDevice::new(240, zone_pages)), options).expect("it opens");
    put_all(&flash, items);
    look_up(&flash, "present", |n| (n * 7919) % items);
    look_up(&flash, "absent", |n| (1 << 40) + (n * 7919) % items);
    report(&flash);
}

/// Puts all items, and prints the time of a put.
fn put_all(flash: &Flash, items: u64) {
    let hasher = KeyHasher::with_seed(flash.seed());
    let (mut in_puts, mut tends) = (0u128, 0);
    for n in 0..items {
        let key = key(n);
        let item = FlashItem {
            key: &key,
            value: &[7; 84],
            value_bytes: 84,
            flags: 0,
            expires_unix_s: 0,
            cas: n + 1,
            state: larder_flash::FlashState::PLAIN,
        };
        let begun = Instant::now();
        let mut put = flash.put(hasher.hash(&key), &item);
        in_puts += begun.elapsed().as_nanos();
        while put == Put::Shed {
            tends += 1;
            flash.tend();
            put = flash.put(hasher.hash(&key), &item);
        }
    }
    let begun = Instant::now();
    flash.tend();
    println!(
        "{items} items: {} ns a put (clock included), {tends} rounds, the last {:?}",
        in_puts / items as u128,
        begun.elapsed()
    );
}

/// Looks up 500,000 keys, and prints how many were found and the time of a lookup.
fn look_up(flash: &Arc<Flash>, what: &str, nth: impl Fn(u64) -> u64) {
    let hasher = KeyHasher::with_seed(flash.seed());
    let mut fetcher = flash.fetcher().expect("there is memory");
    let lookups = 500_000u64;
    let (mut found, mut answered, begun) = (0, 0, Instant::now());
    for n in 0..lookups {
        let key = key(nth(n));
        let hash = hasher.hash(&key);
        loop {
            match fetcher.begin(n, hash, &key) {
                Begun::Absent => answered += 1,
                Begun::Here(item) => {
                    black_box(item);
                    found += 1;
                    answered += 1;
                }
                Begun::Started => {}
                Begun::Busy => {
                    poll(&mut fetcher, &mut answered, &mut found);
                    continue;
                }
            }
            break;
        }
    }
    while answered < lookups {
        poll(&mut fetcher, &mut answered, &mut found);
    }
    let each = begun.elapsed().as_nanos() / lookups as u128;
    println!("{what}: {found} of {lookups} found, {each} ns a lookup, reads from memory included");
}

/// Sends the reads to the device, and counts the answers.
fn poll(fetcher: &mut Fetcher, answered: &mut u64, found: &mut u64) {
    fetcher.kick();
    fetcher.poll(&mut |_, item| {
        *answered += 1;
        *found += item.is_some() as u64;
    });
}

/// Prints the counters of the tier.
fn report(flash: &Flash) {
    let stats = flash.stats();
    println!(
        "index {:.3} B an item; {:.4} reads a hit, {:.4} a miss; ALWA {:.3}; {} of {} KiB; {} merges, {} quick drops, \
         {} items",
        stats.index_bytes_per_item(),
        stats.reads_per_hit(),
        stats.reads_per_miss(),
        stats.alwa(),
        stats.memory.total() >> 10,
        stats.memory_cap >> 10,
        stats.merges,
        stats.quick_drops,
        stats.items,
    );
    println!(
        "misses for want of a third read: {}, for damage: {}; {} records merged, {} dropped in merges",
        stats.misses_for_reads, stats.misses_for_damage, stats.merged_records, stats.merge_dropped,
    );
    let used = stats.memory;
    println!("{used:?}");
}
