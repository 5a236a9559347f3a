//! Runs the schemes of the slides "Optimizing Flash-based Key-value Cache Systems" (2025-02-28) and of DIDACache
//! (FAST'17, tables 1 and 2) on the flash tier itself, over the simulated SSD in virtual time:
//!
//! ```sh
//! cargo run --release -p larder-laboratory --example tier_schemes             # everything
//! cargo run --release -p larder-laboratory --example tier_schemes -- slides   # or reclaim, or ops
//! ```
//!
//! The schemes are settings of the tier. Fatcache with FIFO is the tier on a drive with a translation layer, whose
//! oldest zone is dropped unread. The same command gives the same figures on any machine.

use larder_flash::device::Device;
use larder_flash::{Begun, Fetcher, Flash, FlashItem, FlashOptions, OpsPolicy, Put, ReclaimPolicy, Recover};
use larder_item::{KeyHash, KeyHasher};
use larder_laboratory::AtOnce;
use larder_laboratory::ssd::{FtlOptions, FtlSsd, Histogram, Profile, Rng, SimSsd, Wear, ZoneLayout};
use std::sync::Arc;

/// Bytes of a value. With key and header a record has about 1,000 bytes.
const VALUE_BYTES: usize = 960;
/// Bytes of the drive.
const DRIVE_BYTES: u64 = 256 << 20;
/// Processor time of a request, nanoseconds.
const REQUEST_NS: u64 = 4_000;
/// The thread of the tier looks for work after so many puts.
const ROUND_PUTS: u32 = 64;

/// 256 MiB in blocks of 512 KiB on four channels, about 500 MB/s of programming.
fn profile(blocks: u32) -> Profile {
    Profile {
        name: "256 MiB",
        channels: 4,
        dies_per_channel: 4,
        blocks,
        pages: 128,
        word_line_pages: 4,
        program_ns: 480_000,
        read_ns: 60_000,
        erase_ns: 1_000_000,
        factory_bad_per_mille: 0,
        ..Profile::test_tiny()
    }
}

/// A setting of the tier, and the drive below it.
#[derive(Clone, Copy)]
struct Scheme {
    name: &'static str,
    reclaim: ReclaimPolicy,
    ops: OpsPolicy,
    has_ftl: bool,
}

const MANAGED: Scheme = Scheme {
    name: "tier, adaptive",
    reclaim: ReclaimPolicy::Adaptive,
    ops: OpsPolicy::Heuristic,
    has_ftl: false,
};
const FIFO: Scheme = Scheme {
    name: "FIFO on an FTL (like Fatcache)",
    reclaim: ReclaimPolicy::Quick,
    ops: OpsPolicy::Static(4),
    has_ftl: true,
};

enum Drive {
    Zones(SimSsd),
    Ftl(FtlSsd),
}

impl Drive {
    fn new(scheme: &Scheme) -> Drive {
        let blocks = (DRIVE_BYTES / profile(1).block_bytes() / profile(1).luns() as u64) as u32;
        if scheme.has_ftl {
            let zone_bytes = profile(1).block_bytes();
            let options = FtlOptions { over_provisioning_percent: 25.0, ..FtlOptions::default() };
            return Drive::Ftl(FtlSsd::new(profile(blocks * 5 / 4), options, zone_bytes, 1));
        }
        let layout = ZoneLayout { luns_per_zone: 1, cache_bytes: 1 << 20 };
        Drive::Zones(SimSsd::with_layout(profile(blocks + 1), layout, 1))
    }

    fn device(&self) -> Arc<dyn Device> {
        match self {
            Drive::Zones(ssd) => ssd.device(),
            Drive::Ftl(ssd) => ssd.device(),
        }
    }

    fn now_ns(&self) -> u64 {
        match self {
            Drive::Zones(ssd) => ssd.now_ns(),
            Drive::Ftl(ssd) => ssd.now_ns(),
        }
    }

    /// Nothing happens before this time any more.
    fn reached(&self, ns: u64) {
        match self {
            Drive::Zones(ssd) => ssd.reached(ns),
            Drive::Ftl(ssd) => ssd.reached(ns),
        }
    }

    fn wear(&self) -> Wear {
        match self {
            Drive::Zones(ssd) => ssd.wear(),
            Drive::Ftl(ssd) => ssd.wear(),
        }
    }
}

/// A tier on a drive, and one client of it.
struct Run {
    drive: Drive,
    flash: Arc<Flash>,
    fetcher: Fetcher,
    hasher: KeyHasher,
    /// Whether the tier writes and reclaims while requests go on. If not, requests wait for it.
    background: bool,
    puts: u32,
    latency: Histogram,
}

impl Run {
    fn new(scheme: &Scheme, background: bool) -> Run {
        let drive = Drive::new(scheme);
        let options = FlashOptions {
            memory_bytes: 32 << 20,
            segment_bytes: None,
            generations: false,
            recover: Recover::Clean,
            ops: scheme.ops,
            reclaim: scheme.reclaim,
            cutoff_s: 0,
            keep_percent: 100,
            seed: 1,
            now_unix_s: Arc::new(|| 1_800_000_000),
            format: true,
        };
        let flash = Flash::open(drive.device(), options).expect("a tier");
        let (fetcher, hasher) = (flash.fetcher().expect("a reader"), KeyHasher::with_seed(flash.seed()));
        Run { drive, flash, fetcher, hasher, background, puts: 0, latency: Histogram::default() }
    }

    fn key(&self, number: u32) -> ([u8; 16], KeyHash) {
        let mut key = *b"key ............";
        key[4..8].copy_from_slice(&number.to_le_bytes());
        (key, self.hasher.hash(&key))
    }

    /// Stores a key at this time. Returns the time of the answer.
    fn put(&mut self, at: u64, number: u32) -> u64 {
        let (key, hash) = self.key(number);
        let mut value = [7; VALUE_BYTES];
        value[..4].copy_from_slice(&number.to_le_bytes());
        let item = FlashItem {
            key: &key,
            value: &value,
            value_bytes: VALUE_BYTES as u64,
            flags: 0,
            expires_unix_s: 0,
            cas: 1,
            state: 0,
        };
        let mut end = at + REQUEST_NS;
        self.puts += 1;
        // In the background the thread takes the next work once it has done the last.
        if self.puts.is_multiple_of(ROUND_PUTS) && (!self.background || self.drive.now_ns() <= at) {
            self.drive.reached(at);
            self.flash.tend();
            if !self.background {
                end = self.drive.now_ns() + REQUEST_NS;
            }
        }
        // Without a buffer the client waits for the device.
        while self.flash.put(hash, &item) != Put::Stored {
            self.drive.reached(end);
            self.flash.tend();
            end = end.max(self.drive.now_ns());
        }
        self.latency.add(end - at);
        end
    }

    /// Whether a key is found, and the time of the answer.
    fn get(&mut self, at: u64, number: u32) -> (bool, u64) {
        let (key, hash) = self.key(number);
        self.drive.reached(at);
        let mut answer = match self.fetcher.begin(0, hash, &key) {
            Begun::Absent | Begun::Busy => Some(None),
            Begun::Here(found) => Some(Some(found)),
            Begun::Started => None,
        };
        while answer.is_none() {
            self.fetcher.kick();
            self.fetcher.poll(&mut |_, found| answer = Some(found));
        }
        let found = answer.flatten();
        assert!(found.iter().all(|found| found.value[..4] == number.to_le_bytes()), "another key's value");
        (found.is_some(), self.drive.now_ns().max(at) + REQUEST_NS)
    }

    /// The share of the keys that are found, percent.
    fn found(&mut self, keys: u32) -> f64 {
        let now = self.drive.now_ns();
        (0..keys).filter(|key| self.get(now, *key).0).count() as f64 / keys as f64 * 100.0
    }

    /// Megabytes that the tier wrote again, and that the drive did; erases of blocks, and their spread.
    fn costs(&self) -> String {
        let stats = self.flash.stats();
        let device = stats.device;
        let copied = device.media_bytes.unwrap_or(0).saturating_sub(device.append_bytes);
        let wear = self.drive.wear();
        format!(
            "{:.0} | {:.0} | {} of {} | {} to {} ({:.2})",
            stats.survivor_bytes as f64 / 1e6,
            copied as f64 / 1e6,
            stats.quick_drops,
            stats.quick_drops + stats.reclaims,
            wear.min,
            wear.max,
            wear.stddev
        )
    }
}

const COSTS: &str = "KV MB copied | drive MB copied | quick | erases, least to most (deviation)";

/// The slides: keys are stored `rounds` times each, in order, and then read once.
fn slides(title: &str, keys: u32, rounds: u32, every_ns: u64) {
    println!("\n### {title}\n\n| scheme | background | put/s | put p99.9 us | hit % | {COSTS} |");
    println!("|---|---|---|---|---|---|---|---|---|");
    let runs = [(MANAGED, true), (MANAGED, false), (FIFO, true), (FIFO, false)];
    for (scheme, background) in runs {
        let mut run = Run::new(&scheme, background);
        let (mut last, puts) = (0, keys as u64 * rounds as u64);
        for i in 0..puts {
            last = run.put(last.max(i * every_ns), (i % keys as u64) as u32);
        }
        let p999 = run.latency.quantile_ns(0.999) as f64 / 1e3;
        println!(
            "| {} | {} | {:.0} | {p999:.0} | {:.1} | {} |",
            scheme.name,
            if background { "on" } else { "off" },
            puts as f64 / (last as f64 * 1e-9),
            run.found(keys),
            run.costs()
        );
    }
}

/// Keys of a normal distribution around the middle key.
fn normal(rng: &mut Rng, keys: u32, deviation: f64) -> u32 {
    loop {
        let (u, v) = (rng.unit().max(1e-300), rng.unit());
        let z = (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos();
        let key = (0.5 + z * deviation) * keys as f64;
        if (0.0..keys as f64).contains(&key) {
            return key as u32;
        }
    }
}

/// Stores each key once, then as many bytes as the drive has four times over; one request in ten is a read.
fn overwrite(scheme: &Scheme, fill: f64, every_ns: u64) -> (Run, f64) {
    let slots = (DRIVE_BYTES / 1_000) as u32;
    let keys = (slots as f64 * fill) as u32;
    let mut run = Run::new(scheme, true);
    let mut last = 0;
    for key in 0..keys {
        last = run.put(last, key);
    }
    run.latency = Histogram::default();
    let mut rng = Rng::new(7);
    let (mut gets, mut hits) = (0u32, 0u32);
    for _ in 0..slots * 4 {
        let key = normal(&mut rng, keys, 1.0 / 12.0);
        last += every_ns;
        if rng.unit() < 0.1 {
            let (hit, end) = run.get(last, key);
            (gets, hits, last) = (gets + 1, hits + hit as u32, last.max(end));
        } else {
            last = run.put(last, key);
        }
    }
    (run, hits as f64 / gets.max(1) as f64 * 100.0)
}

/// DIDACache, table 1: the ways to reclaim.
fn reclaim(every_ns: u64) {
    println!(
        "\n### Ways to reclaim, 42 % live, a request every {every_ns} ns\n\n| scheme | hit % | {COSTS} |"
    );
    println!("|---|---|---|---|---|---|");
    let of = |name, reclaim| Scheme { name, reclaim, ops: OpsPolicy::Queuing, has_ftl: false };
    let schemes = [
        of("tier, greedy only (DIDACache-Space)", ReclaimPolicy::Greedy),
        of("tier, quick only (DIDACache-Locality)", ReclaimPolicy::Quick),
        of("tier, adaptive (DIDACache)", ReclaimPolicy::Adaptive),
        FIFO,
    ];
    for scheme in schemes {
        let (run, hit) = overwrite(&scheme, 0.42, every_ns);
        println!("| {} | {hit:.1} | {} |", scheme.name, run.costs());
    }
}

/// DIDACache, table 2: how much erased space is held ready.
fn ops(every_ns: u64) {
    println!("\n### Erased space held ready, 70 % live, a request every {every_ns} ns\n");
    println!(
        "| OPS | hit % | put p99 us | low mark at the end | {COSTS} |\n|---|---|---|---|---|---|---|---|"
    );
    let policies = [
        ("static 25 %", OpsPolicy::Static(25)),
        ("heuristic", OpsPolicy::Heuristic),
        ("queuing", OpsPolicy::Queuing),
    ];
    for (name, ops) in policies {
        let (run, hit) = overwrite(&Scheme { ops, ..MANAGED }, 0.7, every_ns);
        let p99 = run.latency.quantile_ns(0.99) as f64 / 1e3;
        println!("| {name} | {hit:.1} | {p99:.0} | {} | {} |", run.flash.stats().zones_low, run.costs());
    }
}

fn main() {
    let only = std::env::args().nth(1);
    let wanted = |part: &str| only.as_deref().is_none_or(|only| only == part);
    if wanted("slides") {
        slides("0 % garbage: 200,000 keys once, 100,000 a second", 200_000, 1, 10_000);
        slides("0 % garbage, 1.2 times what the drive holds", 314_000, 1, 10_000);
        slides("50 % garbage: 125,000 keys five times, 10,000 a second", 125_000, 5, 100_000);
        slides("50 % garbage, 0.85 of the drive, three times", 218_000, 3, 100_000);
    }
    if wanted("reclaim") {
        [4_000, 16_000].into_iter().for_each(reclaim);
    }
    if wanted("ops") {
        [4_000, 16_000].into_iter().for_each(ops);
    }
}
