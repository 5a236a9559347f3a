//! Repeats tables 1 and 2 of DIDACache (Shen, Chen, Jia, Shao: "DIDACache: A Deep Integration of Device and
//! Application for Flash Based Key-Value Caching", FAST'17) on the simulated SSD, at a thirtieth of the size and in
//! virtual time:
//!
//! ```sh
//! cargo run --release -p larder-laboratory --example didacache            # both tables
//! cargo run --release -p larder-laboratory --example didacache -- table1
//! # keys / deviation, keys / slots of the device:
//! cargo run --release -p larder-laboratory --example didacache -- table1 6 0.42
//! ```
//!
//! The same command gives the same figures on any machine.

#[allow(dead_code)] // The example `slides` uses the rest.
mod kv;

use kv::flash::{Blocks, Ranges, Store};
use kv::workload::{Keys, Law};
use kv::{Cache, Eviction, Settings};
use larder_flash::{OpsPolicy, ReclaimPolicy};
use larder_laboratory::ssd::{FtlOptions, Profile};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The device of the paper has 30 GB: 12 channels of 16 dies, 3,840 blocks of 8 MB. This profile has 3,840 blocks of
/// 256 KiB on 12 channels of one die, with 64 pages of 4 KiB in a block instead of 512 pages of 16 KiB. A die stands
/// for four dies of MLC, which take 1.3 ms to program and 3.8 ms to erase. So a page takes a sixteenth of 1.3 ms, and
/// a block takes a 128th of 3.8 ms.
fn profile() -> Profile {
    Profile {
        name: "didacache, 960 MiB",
        channels: 12,
        dies_per_channel: 1,
        planes: 1,
        blocks: 320,
        pages: 64,
        page_bytes: 4096,
        word_line_pages: 1,
        read_ns: 75_000,
        program_ns: 1_300_000 / 16,
        erase_ns: 3_800_000 / 128,
        bus_bytes_per_s: 400_000_000,
        reads_first: true,
        erases_max: 3000,
        factory_bad_per_mille: 0,
        spare_per_mille: 0,
        keeps_contents: false,
    }
}

/// Bytes of a slot: items of 375 bytes (30 GB / 80 million), ten slots in a page.
const SLOT_BYTES: u64 = 408;
const SLOTS: u32 = 640;
/// Number of slots in all blocks.
const RAW_SLOTS: u32 = 3840 * SLOTS;

/// Number of keys, as a share of the slots of all blocks.
const LIVE: f64 = 0.42;

const DIDA: [(&str, ReclaimPolicy); 3] = [
    ("DIDACache-Space (greedy only)", ReclaimPolicy::Greedy),
    ("DIDACache-Locality (quick only)", ReclaimPolicy::Quick),
    ("DIDACache (adaptive)", ReclaimPolicy::Adaptive),
];

const FATCACHE: [(&str, Eviction); 3] = [
    ("Fatcache-Greedy", Eviction::Greedy),
    ("Fatcache-Kick", Eviction::Kick),
    ("Fatcache-FIFO (copies)", Eviction::FifoCopies),
];

fn cache(eviction: Eviction, keys: u32, request_ns: u64) -> Cache {
    let store: Box<dyn Store> = match eviction {
        Eviction::Managed(..) => Box::new(Blocks::new(profile(), 1)),
        _ => {
            let options = FtlOptions { over_provisioning_percent: 25.0, ..FtlOptions::default() };
            Box::new(Ranges::new(profile(), options, 64 * 4096, 1))
        }
    };
    let settings = Settings {
        keys,
        slots: SLOTS,
        slots_per_page: 10,
        eviction,
        buffers: 16,
        request_ns,
        copy_ns: 500,
        drop_ns: 50_000,
        background_flush: true,
        background_reclaim: true,
    };
    Cache::new(settings, store)
}

/// Sets every key once, in an order that is independent of the popularity of the keys.
fn preload(cache: &mut Cache, keys: u32) -> u64 {
    // Steps of a number that shares no factor with the number of keys reach every key.
    let gcd = |mut a: u64, mut b: u64| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let step = (0x9e37_79b1..).find(|step| gcd(*step, keys as u64) == 1).unwrap_or(1);
    (0..keys as u64).fold(0, |now, i| cache.set(now, (i * step % keys as u64) as u32))
}

/// Runs `requests` requests of 32 clients. A client sends its next request when it has the answer. `work` carries out
/// one request. Returns the time of the last answer.
fn clients(from: u64, requests: u32, mut work: impl FnMut(u64) -> u64) -> u64 {
    let mut ready: BinaryHeap<_> = (0..32).map(|client| Reverse((from, client))).collect();
    for _ in 0..requests {
        let Some(Reverse((at, client))) = ready.pop() else { break };
        ready.push(Reverse((work(at), client)));
    }
    ready.into_iter().map(|Reverse((at, _))| at).max().unwrap_or(from)
}

fn mb(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

/// Table 1: SETs of as many bytes as the device has, with normally distributed keys. One request in ten is a GET with
/// the same distribution, and no SET follows a miss. The GETs measure the hit ratio, and mark slabs as recently used.
fn table1(law: Law, live: f64, request_ns: u64) {
    let keys = (RAW_SLOTS as f64 * live) as u32;
    println!(
        "\n### {law:?}, {keys} keys ({:.0} % of the device), a request every {request_ns} ns\n",
        live * 100.0
    );
    println!(
        "| scheme | KV MB copied | flash MB copied | erases | hit % | wear max | wear stddev | gini | quick | set/s |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    let dida = DIDA.map(|(name, reclaim)| (name, Eviction::Managed(reclaim, OpsPolicy::Queuing)));
    for (name, eviction) in dida.into_iter().chain(FATCACHE) {
        let mut cache = cache(eviction, keys, request_ns);
        let mut stream = Keys::new(law, keys, 7);
        let mut request = |cache: &mut Cache, at| {
            let key = stream.next_key();
            if stream.chance(0.1) { cache.get(at, key).0 } else { cache.set(at, key) }
        };
        let loaded = preload(&mut cache, keys);
        let begun = clients(loaded, RAW_SLOTS * 10 / 9, |at| request(&mut cache, at));
        cache.begin_measuring();
        let before = cache.store.device();
        let end = clients(begun, RAW_SLOTS * 10 / 9, |at| request(&mut cache, at));
        let (after, counters, wear) = (cache.store.device(), cache.counters, cache.store.wear());
        println!(
            "| {name} | {:.0} | {:.0} | {} | {:.1} | {} | {:.2} | {:.2} | {} of {} | {:.0} |",
            mb(counters.copied * SLOT_BYTES),
            mb(after[1] - before[1]),
            after[0] - before[0],
            counters.hits as f64 / counters.gets as f64 * 100.0,
            wear.max,
            wear.stddev,
            wear.gini,
            counters.quick,
            counters.reclaims,
            counters.sets as f64 / ((end - begun) as f64 * 1e-9),
        );
    }
}

/// Table 2: a cache in front of a slower store. A SET follows a GET that misses. A share of `sets` of the requests
/// are SETs.
fn table2(sets: f64, load: f64, request_ns: u64) {
    let keys = (RAW_SLOTS as f64 * load) as u32;
    println!(
        "\n### OPS policies: Zipf 0.99 over {load} times what the device holds, {:.0} % SETs, \
         a request every {request_ns} ns\n",
        sets * 100.0
    );
    println!(
        "| OPS | hit % | reclaims | quick | mean us | p99 us | op/s | low mark, mean % | erases | KV MB copied |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    let policies = [
        ("static 25 %", OpsPolicy::Static(25)),
        ("heuristic", OpsPolicy::Heuristic),
        ("queuing", OpsPolicy::Queuing),
    ];
    for (name, policy) in policies {
        let mut cache = cache(Eviction::Managed(ReclaimPolicy::Adaptive, policy), keys, request_ns);
        let mut stream = Keys::new(Law::Zipf(0.99), keys, 7);
        let mut request = |cache: &mut Cache, at| {
            let key = stream.next_key();
            if stream.chance(sets) {
                return cache.set(at, key);
            }
            match cache.get(at, key) {
                (end, true) => end,
                (end, false) => cache.set(end, key),
            }
        };
        let begun = clients(0, RAW_SLOTS * 3, |at| request(&mut cache, at));
        cache.begin_measuring();
        let before = cache.store.device();
        let end = clients(begun, RAW_SLOTS * 3, |at| request(&mut cache, at));
        let counters = cache.counters;
        println!(
            "| {name} | {:.1} | {} | {} | {:.1} | {:.1} | {:.0} | {:.1} | {} | {:.0} |",
            counters.hits as f64 / counters.gets as f64 * 100.0,
            counters.reclaims,
            counters.quick,
            cache.latency.mean_ns() / 1e3,
            cache.latency.quantile_ns(0.99) as f64 / 1e3,
            (RAW_SLOTS * 3) as f64 / ((end - begun) as f64 * 1e-9),
            cache.low_sum.0 as f64 / cache.low_sum.1.max(1) as f64 / 3792.0 * 100.0,
            cache.store.device()[0] - before[0],
            mb(counters.copied * SLOT_BYTES),
        );
    }
}

/// The number at this position of the command line, or the default.
fn argument(at: usize, usual: f64) -> f64 {
    std::env::args().nth(at).and_then(|argument| argument.parse().ok()).unwrap_or(usual)
}

fn main() {
    let only = std::env::args().nth(1);
    let wanted = |part: &str| only.as_deref().is_none_or(|only| only == part);
    if wanted("table1") {
        let (deviation, live) = (1.0 / argument(2, 12.0), argument(3, LIVE));
        for request_ns in [4_000, 16_000, 32_000] {
            table1(Law::Normal(deviation), live, request_ns);
        }
    }
    if wanted("table2") {
        for request_ns in [4_000, 32_000] {
            table2(0.5, 1.2, request_ns);
        }
    }
}
