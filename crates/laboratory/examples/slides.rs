//! Repeats the experiments of the slides "Optimizing Flash-based Key-value Cache Systems" (2025-02-28) on the
//! simulated SSD, with the slabs and rates that the slides give: 0 % and 50 % garbage, with flush and garbage
//! collection in the background or not.
//!
//! ```sh
//! cargo run --release -p larder-laboratory --example slides
//! ```

#[allow(dead_code)] // The example `didacache` uses the rest.
mod kv;

use kv::flash::{Blocks, Ranges, Store};
use kv::{Cache, Eviction, Settings};
use larder_flash::{OpsPolicy, ReclaimPolicy};
use larder_laboratory::ssd::{FtlOptions, Profile};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A drive of 1 GiB with blocks of 200 KiB on four channels, as fast as the disk of the slides: about 970 MB/s.
fn profile(blocks: u32) -> Profile {
    Profile {
        name: "slides, 1 GiB",
        channels: 4,
        dies_per_channel: 8,
        blocks,
        pages: 50,
        word_line_pages: 1,
        program_ns: 120_000,
        read_ns: 60_000,
        erase_ns: 100_000,
        factory_bad_per_mille: 0,
        spare_per_mille: 0,
        keeps_contents: false,
        ..Profile::test_tiny()
    }
}

/// Blocks on each of 32 dies: 1 GiB in blocks of 200 KiB.
const BLOCKS: u32 = 164;
const MANAGED: Eviction = Eviction::Managed(ReclaimPolicy::Adaptive, OpsPolicy::Heuristic);

#[derive(Clone, Copy)]
struct Run {
    name: &'static str,
    eviction: Eviction,
    flush: bool,
    reclaim: bool,
}

/// Sets `keys` items of 1,000 bytes, `rounds` times each, with one request per `every_ns` ns; then reads each key once.
fn run(run: Run, keys: u32, rounds: u32, every_ns: u64) {
    let managed = matches!(run.eviction, Eviction::Managed(..));
    // A slab of Fatcache in the slides has 4 KiB: a header and four items of 1,000 bytes.
    let (slots, per_page) = if managed { (200, 4) } else { (4, 4) };
    let store: Box<dyn Store> = if managed {
        Box::new(Blocks::new(profile(BLOCKS), 1))
    } else {
        // The drive has spare space of its own beside the 1 GiB.
        Box::new(Ranges::new(profile(BLOCKS * 108 / 100), FtlOptions::default(), 4096, 1))
    };
    let settings = Settings {
        keys,
        slots,
        slots_per_page: per_page,
        eviction: run.eviction,
        // 64 MiB of slabs in memory.
        buffers: if managed { 320 } else { 16_000 },
        request_ns: 4_000,
        copy_ns: 500,
        drop_ns: slots as u64 * 100,
        background_flush: run.flush,
        background_reclaim: run.reclaim,
    };
    let mut cache = Cache::new(settings, store);
    let mut last = 0;
    let requests = keys as u64 * rounds as u64;
    for i in 0..requests {
        last = last.max(cache.set(i * every_ns, (i % keys as u64) as u32));
    }
    let (put, p99) = (requests as f64 / (last as f64 * 1e-9), cache.latency.quantile_ns(0.999));
    let sets = cache.counters;
    let before = last;
    // A hundred connections, as in the slides. Each sends its next request when it has the answer.
    let mut ready: BinaryHeap<_> = (0..100).map(|connection| Reverse((before, connection))).collect();
    for key in 0..keys {
        let Some(Reverse((at, connection))) = ready.pop() else { break };
        let end = cache.get(at, key).0;
        last = last.max(end);
        ready.push(Reverse((end, connection)));
    }
    let counters = cache.counters;
    let [erases, copied, _] = cache.store.device();
    println!(
        "| {} | {} | {} | {:.0} | {:.0} | {:.0} | {:.1} | {} of {} | {:.0} | {erases} | {:.0} |",
        run.name,
        run.flush as u8,
        run.reclaim as u8,
        put,
        p99 as f64 / 1e3,
        keys as f64 / ((last - before) as f64 * 1e-9),
        counters.hits as f64 / counters.gets as f64 * 100.0,
        sets.quick,
        sets.reclaims,
        sets.copied as f64 / 1e3,
        copied as f64 / 1e6,
    );
}

fn table(title: &str, keys: u32, rounds: u32, every_ns: u64) {
    println!("\n### {title}\n");
    println!(
        "| scheme | flush | gc | put/s | put p99.9 us | get/s | hit % | quick | KV MB copied | erases | \
         flash MB copied |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    for (flush, reclaim) in [(true, true), (true, false), (false, true), (false, false)] {
        run(Run { name: "managed, adaptive", eviction: MANAGED, flush, reclaim }, keys, rounds, every_ns);
    }
    for (name, guarded) in
        [("Fatcache, guarded delete", true), ("Fatcache, unguarded delete (as it is)", false)]
    {
        run(
            Run { name, eviction: Eviction::Fifo { guarded }, flush: true, reclaim: false },
            keys,
            rounds,
            every_ns,
        );
    }
}

fn main() {
    table("0 % garbage: 1,000,000 keys once, 100,000 a second", 1_000_000, 1, 10_000);
    table("0 % garbage, 1.2 times what the device holds", 1_257_600, 1, 10_000);
    table("50 % garbage: 500,000 keys five times, 10,000 a second", 500_000, 5, 100_000);
    table("50 % garbage, 950,000 keys (0.91 of the device) three times", 950_000, 3, 100_000);
}
