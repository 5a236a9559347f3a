//! Runs the schemes of the slides "Optimizing Flash-based Key-value Cache Systems" (2025-02-28) and of DIDACache
//! (FAST'17, tables 1 and 2) on the flash tier itself, over the simulated SSD, and prints tables in Markdown:
//!
//! ```sh
//! cargo run --release -p larder-laboratory --example tier_schemes             # everything
//! cargo run --release -p larder-laboratory --example tier_schemes -- slides   # or reclaim, or ops
//! ```
//!
//! The tier frees zones by its own rule, or by another [`Rule`]. Fatcache with FIFO is the tier whose oldest zone is
//! dropped unread, on a drive with a translation layer. `slides` and `reclaim` run in virtual time: the same command
//! gives the same figures on any machine. The marks of `ops` follow rates, so `ops` runs in real time, with the threads
//! of the tier, and its figures differ a little from run to run.

use larder_flash::device::Device;
use larder_flash::space::{GARBAGE_MIN_PERCENT, MakeSpacePolicy, Rates, SpacePolicy, Watermarks, Work};
use larder_flash::{Begun, Fetcher, Flash, FlashItem, FlashOptions, Put, Recover};
use larder_item::{KeyHash, KeyHasher};
use larder_laboratory::AtOnce;
use larder_laboratory::ssd::{
    CellTimes, FtlOptions, FtlSsd, Histogram, Profile, Rng, SimSsd, Wear, ZoneLayout,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of a value. With key and header a record has about 1,000 bytes.
const VALUE_BYTES: usize = 960;
/// Bytes of a record, about.
const RECORD_BYTES: u64 = 1_000;
/// Bytes of the drive: a quarter of the slides'.
const DRIVE_BYTES: u64 = 256 << 20;
/// Memory of the tier: a quarter of what the slides give to slabs and index.
const MEMORY_BYTES: u64 = 32 << 20;
/// Processor time of a request, nanoseconds.
const REQUEST_NS: u64 = 4_000;
/// Without threads, the tier looks for work after this number of puts.
const ROUND_PUTS: u32 = 64;

/// Four channels with one die each, in blocks of 512 KiB. A die stands for several: together the four program 970 MB/s,
/// like the disk of the slides.
fn profile(blocks: u32) -> Profile {
    Profile {
        name: "256 MiB",
        channels: 4,
        dies_per_channel: 1,
        blocks,
        pages: 128,
        word_line_pages: 4,
        times: CellTimes { read_ns: 60_000, program_ns: 67_000, erase_ns: 1_000_000 },
        factory_bad_per_mille: 0,
        ..Profile::test_tiny()
    }
}

/// What is below the tier.
#[derive(Clone, Copy, PartialEq)]
enum Below {
    /// Each zone is an erase block, and the tier sees the channels.
    Blocks,
    /// A drive with a translation layer and 25 % of spare space.
    Ftl { trims: bool },
}

impl Below {
    /// Blocks on each die. A drive of blocks has one more, to replace a bad one.
    fn blocks(self) -> u32 {
        let blocks = (DRIVE_BYTES / profile(1).block_bytes() / profile(1).luns() as u64) as u32;
        if self == Below::Blocks { blocks + 1 } else { blocks * 5 / 4 }
    }
}

/// How zones are freed.
#[derive(Clone, Copy, PartialEq)]
enum Rule {
    /// By garbage, the tier's own: while many zones are erased, only zones with much garbage.
    Adaptive,
    /// By garbage, whatever there is to gain.
    Greedy,
    /// Below the low mark the oldest zone is dropped unread.
    Quick,
    /// Greedy between the marks; below the low one, 1.8 times as many zones as it has are dropped at once.
    NormalQuick,
}

/// A rule between marks.
struct Ruled {
    rule: Rule,
    marks: Box<dyn SpacePolicy>,
}

impl SpacePolicy for Ruled {
    fn low(&self) -> u32 {
        self.marks.low()
    }

    fn high(&self) -> u32 {
        self.marks.high()
    }

    fn next(&mut self, free: u32, rates: Rates) -> Work {
        let adaptive = self.marks.next(free, rates);
        let (low, high) = (self.low(), self.high());
        match self.rule {
            Rule::Adaptive => adaptive,
            Rule::Quick if free < low => Work::Drop(1),
            Rule::NormalQuick if free < low => {
                Work::Drop(((1.8 * f64::from(low)).ceil() as u32).min(high - free))
            }
            Rule::Greedy | Rule::NormalQuick if free < high => Work::Greedy(GARBAGE_MIN_PERCENT),
            _ => Work::Idle,
        }
    }
}

/// A rule of the tier, and the drive below it.
#[derive(Clone, Copy)]
struct Scheme {
    name: &'static str,
    rule: Rule,
    /// The percentage of the zones that is held erased; `None` = by the rates.
    erased_percent: Option<u8>,
    below: Below,
}

impl Scheme {
    fn policy(self) -> MakeSpacePolicy {
        let marks = self.erased_percent.map_or_else(Watermarks::by_rates, Watermarks::fixed);
        Arc::new(move |bounds| Box::new(Ruled { rule: self.rule, marks: marks(bounds) }))
    }
}

const fn on_blocks(name: &'static str, rule: Rule) -> Scheme {
    Scheme { name, rule, erased_percent: None, below: Below::Blocks }
}

const fn on_ftl(name: &'static str, rule: Rule, trims: bool) -> Scheme {
    Scheme { name, rule, erased_percent: Some(4), below: Below::Ftl { trims } }
}

const ADAPTIVE: Scheme = on_blocks("adaptive, the tier's own", Rule::Adaptive);
const GREEDY: Scheme = on_blocks("greedy (DIDACache-Space)", Rule::Greedy);
const QUICK: Scheme = on_blocks("quick (DIDACache-Locality)", Rule::Quick);
const NORMAL_QUICK: Scheme = on_blocks("normal-quick (the slides)", Rule::NormalQuick);
const FIFO: Scheme = on_ftl("FIFO on an FTL (like Fatcache)", Rule::Quick, true);

enum Drive {
    Blocks(SimSsd),
    Ftl(FtlSsd),
}

impl Drive {
    fn new(below: Below, real_time: bool) -> Drive {
        let profile = profile(below.blocks());
        let Below::Ftl { trims } = below else {
            let layout = ZoneLayout { luns_per_zone: 1, cache_bytes: 1 << 20 };
            let make = if real_time { SimSsd::in_real_time } else { SimSsd::with_layout };
            return Drive::Blocks(make(profile, layout, 1));
        };
        let options = FtlOptions { over_provisioning_percent: 25.0, ..FtlOptions::default() };
        let make = if real_time { FtlSsd::in_real_time } else { FtlSsd::new };
        let zone_bytes = profile.block_bytes();
        let drive = make(profile, options, zone_bytes, 1);
        drive.set_trims(trims);
        Drive::Ftl(drive)
    }

    fn device(&self) -> Arc<dyn Device> {
        match self {
            Drive::Blocks(ssd) => ssd.device(),
            Drive::Ftl(ssd) => ssd.device(),
        }
    }

    fn now_ns(&self) -> u64 {
        match self {
            Drive::Blocks(ssd) => ssd.now_ns(),
            Drive::Ftl(ssd) => ssd.now_ns(),
        }
    }

    /// Nothing happens before this time any more.
    fn reached(&self, ns: u64) {
        match self {
            Drive::Blocks(ssd) => ssd.reached(ns),
            Drive::Ftl(ssd) => ssd.reached(ns),
        }
    }

    fn wear(&self) -> Wear {
        match self {
            Drive::Blocks(ssd) => ssd.wear(),
            Drive::Ftl(ssd) => ssd.wear(),
        }
    }
}

/// A tier on a drive, and its client.
struct Tier {
    drive: Drive,
    /// Erase blocks of the drive.
    blocks: u32,
    flash: Arc<Flash>,
    fetcher: Fetcher,
    hasher: KeyHasher,
}

impl Tier {
    fn new(scheme: &Scheme, real_time: bool) -> Tier {
        let drive = Drive::new(scheme.below, real_time);
        let options = FlashOptions {
            memory_bytes: MEMORY_BYTES,
            segment_bytes: None,
            generations: false,
            recover: Recover::Clean,
            space: scheme.policy(),
            cutoff_s: 0,
            log_percent: 8,
            fill_percent: 100,
            seed: 1,
            now_unix_s: Arc::new(|| 1_800_000_000),
            format: true,
        };
        let flash = Flash::open(drive.device(), options).expect("a tier");
        let (fetcher, hasher) = (flash.fetcher().expect("a reader"), KeyHasher::with_seed(flash.seed()));
        let blocks = scheme.below.blocks() * profile(1).luns();
        Tier { drive, blocks, flash, fetcher, hasher }
    }

    fn key(&self, number: u32) -> ([u8; 16], KeyHash) {
        let mut key = *b"key ............";
        key[4..8].copy_from_slice(&number.to_le_bytes());
        (key, self.hasher.hash(&key))
    }

    /// Whether the tier took the item.
    fn put(&self, number: u32) -> bool {
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
            state: larder_flash::FlashState::PLAIN,
        };
        self.flash.put(hash, &item) == Put::Stored
    }

    /// Whether a key is found.
    fn get(&mut self, number: u32) -> bool {
        let (key, hash) = self.key(number);
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
        found.is_some()
    }

    /// What it cost, in the columns of [`COSTS`].
    fn costs(&self) -> String {
        let (stats, wear) = (self.flash.stats(), self.drive.wear());
        let programmed = self.flash.channels().into_iter().map(|channel| channel.media_bytes as f64 / 1e6);
        let (least, most) =
            programmed.fold((f64::MAX, 0.0f64), |(least, most), mb| (least.min(mb), most.max(mb)));
        let copied = stats.device.media_bytes.unwrap_or(0).saturating_sub(stats.device.append_bytes);
        format!(
            "{:.0} | {:.0} | {} of {} | {:.0} | {} to {}, {:.2} | {least:.0} to {most:.0} |",
            stats.survivor_bytes as f64 / 1e6,
            copied as f64 / 1e6,
            stats.quick_drops,
            stats.quick_drops + stats.reclaims,
            wear.mean * self.blocks as f64,
            wear.min,
            wear.max,
            wear.stddev,
        )
    }
}

const COSTS: &str = "tier MB copied | drive MB copied | dropped, of all zones freed | erases | erases of a block: \
                     least to most, deviation | MB on a channel, least to most |";

/// Prints the head of a table: a title, the columns of its own, and those of [`COSTS`].
fn head(title: &str, columns: &str) {
    let line = format!("| {columns} | {COSTS}");
    println!("\n### {title}\n\n{line}\n|{}", "---|".repeat(line.matches('|').count() - 1));
}

/// A tier in virtual time, and one client that waits.
struct Run {
    tier: Tier,
    /// Whether the tier writes and reclaims while requests go on. If not, requests wait for it.
    background: bool,
    puts: u32,
    latency: Histogram,
}

impl Run {
    fn new(scheme: &Scheme, background: bool) -> Run {
        Run { tier: Tier::new(scheme, false), background, puts: 0, latency: Histogram::default() }
    }

    /// Stores a key at this time. Returns the time of the answer.
    fn put(&mut self, at: u64, number: u32) -> u64 {
        let (drive, flash) = (&self.tier.drive, &self.tier.flash);
        let mut end = at + REQUEST_NS;
        self.puts += 1;
        // In the background the thread takes the next work once it has done the last.
        if self.puts.is_multiple_of(ROUND_PUTS) && (!self.background || drive.now_ns() <= at) {
            drive.reached(at);
            flash.tend();
            if !self.background {
                end = drive.now_ns() + REQUEST_NS;
            }
        }
        // Without a buffer the client waits for the device.
        while !self.tier.put(number) {
            drive.reached(end);
            flash.tend();
            end = end.max(drive.now_ns());
        }
        self.latency.add(end - at);
        end
    }
}

/// The slides: keys are stored `rounds` times each, in order, and then read once.
fn slides(title: &str, keys: u32, rounds: u32, every_ns: u64) {
    head(title, "scheme | background | put/s | put p99.9 us | hit %");
    for (scheme, background) in
        [ADAPTIVE, QUICK, NORMAL_QUICK, FIFO].into_iter().flat_map(|one| [(one, true), (one, false)])
    {
        let mut run = Run::new(&scheme, background);
        let (mut last, puts) = (0, keys as u64 * rounds as u64);
        for i in 0..puts {
            last = run.put(last.max(i * every_ns), (i % keys as u64) as u32);
        }
        let costs = run.tier.costs();
        let found = (0..keys).filter(|key| run.tier.get(*key)).count();
        println!(
            "| {} | {} | {:.0} | {:.0} | {:.1} | {costs}",
            scheme.name,
            if background { "on" } else { "off" },
            puts as f64 / (last as f64 * 1e-9),
            run.latency.quantile_ns(0.999) as f64 / 1e3,
            found as f64 / keys as f64 * 100.0,
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

/// The requests of DIDACache's table 1: one in ten is a read.
struct Requests {
    rng: Rng,
    keys: u32,
    gets: u32,
    hits: u32,
}

impl Requests {
    /// As many keys as fill this share of the drive.
    fn new(fill: f64) -> Requests {
        let keys = (DRIVE_BYTES as f64 * fill / RECORD_BYTES as f64) as u32;
        Requests { rng: Rng::new(7), keys, gets: 0, hits: 0 }
    }

    /// As many requests as fill the drive this many times.
    fn count(times: u64) -> u64 {
        DRIVE_BYTES / RECORD_BYTES * times
    }

    /// Reads a key, or returns one to be stored.
    fn next(&mut self, tier: &mut Tier) -> Option<u32> {
        let key = normal(&mut self.rng, self.keys, 1.0 / 12.0);
        if self.rng.unit() >= 0.1 {
            return Some(key);
        }
        self.gets += 1;
        self.hits += tier.get(key) as u32;
        None
    }

    fn hit_percent(&self) -> f64 {
        self.hits as f64 / self.gets.max(1) as f64 * 100.0
    }
}

/// DIDACache, table 1: the ways to reclaim. Each key is stored once, then as many bytes as the drive has three times.
fn reclaim(every_ns: u64) {
    head(&format!("Ways to reclaim, 42 % live, a request every {every_ns} ns"), "scheme | put/s | hit %");
    let schemes = [
        QUICK,
        NORMAL_QUICK,
        ADAPTIVE,
        GREEDY,
        on_ftl("FIFO on an FTL, TRIM", Rule::Quick, true),
        on_ftl("FIFO on an FTL, no TRIM (Fatcache-Kick)", Rule::Quick, false),
        on_ftl("greedy on an FTL, TRIM", Rule::Greedy, true),
        on_ftl("greedy on an FTL, no TRIM (Fatcache-Greedy)", Rule::Greedy, false),
    ];
    for scheme in schemes {
        let mut run = Run::new(&scheme, true);
        let mut requests = Requests::new(0.42);
        let mut last = (0..requests.keys).fold(0, |last, key| run.put(last, key));
        let (begun, mut puts) = (last, 0u64);
        for i in 0..Requests::count(3) {
            if let Some(key) = requests.next(&mut run.tier) {
                last = run.put(last.max(begun + i * every_ns), key);
                puts += 1;
            }
        }
        let per_s = puts as f64 / ((last - begun) as f64 * 1e-9);
        println!("| {} | {per_s:.0} | {:.1} | {}", scheme.name, requests.hit_percent(), run.tier.costs());
    }
}

/// DIDACache, table 2: how much erased space is held ready. In real time, with the threads of the tier. Each key is
/// stored once, then as many bytes as the drive has.
fn ops(every_ns: u64) {
    let title = format!("Erased space held ready, 70 % live, a request every {every_ns} ns");
    head(&title, "OPS | put/s | put p99 us | hit % | zones held erased, at the end");
    let policies = [("static 25 %", Some(25)), ("queuing, the tier's own", None)];
    for (name, erased_percent) in policies {
        let mut tier = Tier::new(&Scheme { erased_percent, ..ADAPTIVE }, true);
        tier.flash.start().expect("threads");
        let mut requests = Requests::new(0.7);
        let mut latency = Histogram::default();
        let wait_for_room = |tier: &Tier, key| {
            while !tier.put(key) {
                std::thread::sleep(Duration::from_micros(50));
            }
        };
        (0..requests.keys).for_each(|key| wait_for_room(&tier, key));
        let (begun, mut puts) = (Instant::now(), 0u64);
        for i in 0..Requests::count(1) {
            let due = begun + Duration::from_nanos(i * every_ns);
            if let Some(early) =
                due.checked_duration_since(Instant::now()).filter(|early| early.as_micros() > 100)
            {
                std::thread::sleep(early);
            }
            if let Some(key) = requests.next(&mut tier) {
                let sent = Instant::now();
                wait_for_room(&tier, key);
                latency.add(sent.elapsed().as_nanos() as u64);
                puts += 1;
            }
        }
        println!(
            "| {name} | {:.0} | {:.0} | {:.1} | {} to {} | {}",
            puts as f64 / begun.elapsed().as_secs_f64(),
            latency.quantile_ns(0.99) as f64 / 1e3,
            requests.hit_percent(),
            tier.flash.stats().zones_low,
            tier.flash.stats().zones_high,
            tier.costs()
        );
        tier.flash.close().expect("a clean end");
    }
}

fn main() {
    let only = std::env::args().nth(1);
    let wanted = |part: &str| only.as_deref().is_none_or(|only| only == part);
    if wanted("slides") {
        slides("0 % garbage: 250,000 keys once, 100,000 a second", 250_000, 1, 10_000);
        slides("0 % garbage, 1.2 times what the drive holds", 314_000, 1, 10_000);
        slides("50 % garbage: 125,000 keys five times, 10,000 a second", 125_000, 5, 100_000);
        slides("50 % garbage, 218,000 keys (0.81 of the drive) three times", 218_000, 3, 100_000);
    }
    if wanted("reclaim") {
        [4_000, 64_000].into_iter().for_each(reclaim);
    }
    if wanted("ops") {
        [4_000, 120_000].into_iter().for_each(ops);
    }
}
