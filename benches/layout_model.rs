//! The processor's cache as a model: what the layout of items in memory is worth, counted by valgrind.
//!
//! Hardware counters are not everywhere, and they count whatever else runs. So the engine runs in this process under
//! callgrind's simulation of a first-level and a last-level cache, beside a twin that keeps items as memcached does. A
//! run has one thread, fixed seeds and no address that changes, so the same build gives the same figures to the
//! second decimal.
//!
//! `cargo bench --bench layout_model [-- --sizes app,etc,sys,300 --laws zipfian,hotspot --mib 128 --requests 400000]`
//!
//! It needs valgrind on PATH. `--variants a,b` and `--geometries a,b` choose; `--out FILE` also writes CSV. A number
//! among the sizes stands for values of as many bytes and keys of 30. The variant `inline-0256` is Larder with values
//! of at most 256 bytes beside their keys, and so for other limits of four digits. `--count` chooses what is counted:
//! `gets`, or of Larder only `false-keys` and `new-items`, see `Count`.

#[path = "support/buckets.rs"]
#[allow(dead_code, reason = "another benchmark counts bytes and items")]
mod buckets;
#[path = "layout_model/plan.rs"]
mod plan;
mod support;
#[path = "layout_model/twin.rs"]
mod twin;

use buckets::{Overflow, Shape};
use larder_cache::{
    Cache, CacheOptions, GetBatch, Hit, PagesWanted, Placement, Store, StoreOutcome, Value, Worker,
};
use plan::{Item, KEY_BYTES_MAX, Plan};
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use twin::{Bump, Search, Twin};

/// Requests between two rounds of the keeper.
const REQUESTS_PER_ROUND: usize = 4096;
/// New items between two rounds of the keeper in a full cache: less than a column.
const NEW_ITEMS_PER_ROUND: usize = 64;
/// Room for the longest value.
const OUT_BYTES: usize = 8192;

/// A first level and a last one: bytes, ways, bytes of a line. The last level is as much smaller than a machine's as
/// the data are. A TLB is a cache whose lines are pages.
const GEOMETRIES: [(&str, &str, &str); 5] = [
    // As in the paper: 2,048 sets, so that a column of 128 KiB covers each once. 4 ways of the 120.
    ("paper", "32768,8,64", "524288,4,64"),
    // 16 ways, as most last levels of today have, and as many bytes.
    ("today", "32768,8,64", "524288,16,64"),
    // As today, with the longer lines of some processors.
    ("lines-128", "32768,8,128", "524288,16,128"),
    // 8 and 32 entries, the same for both sizes of pages, as in most processors.
    ("tlb-4k", "32768,8,4096", "131072,8,4096"),
    ("tlb-2m", "16777216,8,2097152", "67108864,8,2097152"),
];

#[derive(Clone, Copy)]
enum Engine {
    Twin(Bump, Search),
    Larder { placement: Placement, inline_value_bytes: u32, batch: usize },
}

const fn larder(placement: Placement, inline_value_bytes: u32, batch: usize) -> Engine {
    Engine::Larder { placement, inline_value_bytes, batch }
}

/// The twin with buckets of a cache line, of as many entries as the paper's (with tags) or one more (without).
const fn buckets(overflow: Overflow, tags: bool, load: f64) -> Engine {
    let slots = if tags { 6 } else { 7 };
    Engine::Twin(Bump::Seldom, Search::Buckets(Shape { overflow, slots, tags, load }))
}

/// What is counted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Count {
    /// GETs that copy the value.
    Gets,
    /// False key reads: GETs, one at a time, of a key that is not there but has the hash of one that is.
    FalseKeys,
    /// SETs of new items in a full cache, with the keeper's rounds that make room for them.
    NewItems,
}

const COUNTS: [(&str, Count); 3] =
    [("gets", Count::Gets), ("false-keys", Count::FalseKeys), ("new-items", Count::NewItems)];

/// What is compared.
const VARIANTS: [(&str, Engine); 13] = [
    ("memcached-like", Engine::Twin(Bump::Seldom, Search::Chains)),
    ("exact-lru", Engine::Twin(Bump::Always, Search::Chains)),
    ("list-1.5", buckets(Overflow::List, false, 1.5)),
    ("list-6", buckets(Overflow::List, false, 6.0)),
    ("tree-6", buckets(Overflow::Tree, false, 6.0)),
    ("list-tags-1.5", buckets(Overflow::List, true, 1.5)),
    ("list-tags-6", buckets(Overflow::List, true, 6.0)),
    ("tree-tags-6", buckets(Overflow::Tree, true, 6.0)),
    ("larder", larder(Placement::Column, 1024, 16)),
    ("one-at-a-time", larder(Placement::Column, 1024, 1)),
    ("placement-off", larder(Placement::Off, 1024, 16)),
    ("values-apart", larder(Placement::Column, 0, 16)),
    ("values-apart-off", larder(Placement::Off, 0, 16)),
];

const KNOWN: [&str; 11] =
    ["sizes", "laws", "mib", "requests", "variants", "geometries", "count", "out", "child", "plan", "core"];

fn main() {
    let args = support::Args::read(&KNOWN);
    match args.text("child") {
        Some(variant) => {
            run(variant, count_of(&args), Path::new(args.text("plan").expect("the parent names a plan")))
        }
        None => compare(&args),
    }
}

fn count_of(args: &support::Args) -> Count {
    let name = args.text("count").unwrap_or("gets");
    COUNTS.iter().find(|of| of.0 == name).unwrap_or_else(|| panic!("--count {name}: not known")).1
}

fn engine_of(variant: &str) -> Engine {
    if let Some(limit) = variant.strip_prefix("inline-") {
        return larder(Placement::Column, limit.parse().expect("a limit is a number"), 16);
    }
    VARIANTS.iter().find(|of| of.0 == variant).expect("a known variant").1
}

// ---- the parent ----

/// What callgrind counted in the measured part.
struct Counted {
    instructions: f64,
    /// Data accesses that the first level did not have.
    first_misses: f64,
    /// Of these, those that the last level did not have either.
    last_misses: f64,
}

fn compare(args: &support::Args) {
    let list = |name: &str, default: &str| -> Vec<String> {
        args.text(name).unwrap_or(default).split(',').map(str::to_string).collect()
    };
    let (mib, requests): (usize, usize) = (args.number("mib", 128), args.number("requests", 400_000));
    let all = VARIANTS.map(|(name, _)| name).join(",");
    let variants = list("variants", &all);
    let chosen = list("geometries", "paper,today,tlb-4k,tlb-2m");
    let mut csv =
        String::from("sizes,law,geometry,variant,instructions,l1_misses,llc_misses,llc_hit_ratio\n");
    let counting = count_of(args);
    let plan_file = std::env::temp_dir().join(format!("layout-model-{:08}", std::process::id()));
    for sizes in list("sizes", "app,etc,sys") {
        for law in list("laws", "zipfian,hotspot,uniform") {
            let law_words = match law.as_str() {
                // The paper's hotspot: a tenth of the keys has nearly all requests.
                "hotspot" => "hotspot:hot-keys=0.1,hot-requests=0.9".to_string(),
                other => other.to_string(),
            };
            let keys = keys_for(&sizes, mib << 20);
            let plan = Plan::make(&sizes, &law_words, keys, 2 * requests);
            plan.write(&plan_file).expect("a temporary file can be written");
            for (name, first, last) in GEOMETRIES.iter().filter(|of| chosen.iter().any(|name| name == of.0)) {
                println!(
                    "\n{sizes}, {law}: {keys} items, {mib} MiB of keys and values; {name}: \
                     first level {first}, last {last}"
                );
                println!(
                    "{:<18}{:>13}{:>13}{:>13}{:>11}",
                    "", "instructions", "not in first", "not in last", "last hits"
                );
                if let Some(bytes) = last.strip_suffix(",64").and_then(|of| of.split(',').next()) {
                    let lines = bytes.parse::<usize>().expect("a size") / 64;
                    println!("{:<18}{:>49.1}%", "at best", 100.0 * plan.share_of_hottest(lines, requests));
                }
                for variant in &variants {
                    let counted = count(variant, counting, &plan_file, first, last);
                    let hits = 1.0 - counted.last_misses / counted.first_misses;
                    let each = |sum: f64| sum / requests as f64;
                    println!(
                        "{variant:<18}{:>13.1}{:>13.3}{:>13.3}{:>10.1}%",
                        each(counted.instructions),
                        each(counted.first_misses),
                        each(counted.last_misses),
                        100.0 * hits
                    );
                    csv.push_str(&format!(
                        "{sizes},{law},{name},{variant},{:.1},{:.3},{:.3},{hits:.4}\n",
                        each(counted.instructions),
                        each(counted.first_misses),
                        each(counted.last_misses)
                    ));
                }
            }
        }
    }
    let _ = std::fs::remove_file(&plan_file);
    if let Some(out) = args.text("out") {
        std::fs::write(out, csv).expect("the table can be written");
    }
}

/// About as many items as have `bytes` of keys and values.
fn keys_for(sizes: &str, bytes: usize) -> usize {
    let sample = Plan::make(sizes, "uniform", 2000, 1);
    let sum: usize =
        sample.items.iter().map(|item| usize::from(item.key_bytes) + usize::from(item.value_bytes)).sum();
    bytes * sample.items.len() / sum
}

fn count(variant: &str, counting: Count, plan: &Path, first: &str, last: &str) -> Counted {
    let counting = COUNTS.iter().find(|of| of.1 == counting).expect("each has a name").0;
    let out = PathBuf::from(format!("{}.callgrind", plan.display()));
    let program = std::env::current_exe().expect("this program has a path");
    // Where the stack begins depends on the environment and the arguments.
    let status = Command::new("valgrind")
        .env_clear()
        .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
        .args(["--tool=callgrind", "--cache-sim=yes", "--toggle-collect=*measured_*", "-q"])
        .args([format!("--I1={first}"), format!("--D1={first}"), format!("--LL={last}")])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(program)
        .args(["--count", counting, "--child", variant, "--plan"])
        .arg(plan)
        .status()
        .unwrap_or_else(|error| panic!("valgrind cannot be started ({error}): install it"));
    assert!(status.success(), "the run of {variant} failed");
    let text = std::fs::read_to_string(&out).expect("callgrind wrote its counts");
    let _ = std::fs::remove_file(&out);
    let words = |name: &str| -> Vec<String> {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("callgrind names its events");
        line.split_whitespace().map(str::to_string).collect()
    };
    let (names, sums) = (words("events:"), words("totals:"));
    let sum = |event: &str| -> f64 {
        let at = names.iter().position(|name| name == event).expect("the event is simulated");
        sums.get(at).map_or(0.0, |sum| sum.parse().expect("a number"))
    };
    Counted {
        instructions: sum("Ir"),
        first_misses: sum("D1mr") + sum("D1mw"),
        last_misses: sum("DLmr") + sum("DLmw"),
    }
}

// ---- the child ----

fn run(variant: &str, counting: Count, plan: &Path) {
    let plan = Plan::read(plan).expect("the parent wrote the plan");
    let (warm_up, measured) = plan.requests.split_at(plan.requests.len() / 2);
    match engine_of(variant) {
        Engine::Twin(bump, search) => {
            assert!(counting == Count::Gets, "of the twin GETs are counted");
            let mut twin = Twin::new(bytes_with(&plan, 160) as usize + (96 << 20), bump, search);
            let mut room = [0; KEY_BYTES_MAX];
            for number in &plan.order {
                let item = &plan.items[*number as usize];
                let key = plan::key(&mut room, *number, item);
                twin.set(plan::hash(key), key, item);
            }
            twin_requests(&mut twin, &plan, warm_up);
            measured_requests_of_twin(&mut twin, &plan, measured);
        }
        Engine::Larder { placement, inline_value_bytes, .. } if counting == Count::NewItems => {
            let limit_bytes = bytes_with(&plan, 20) * 3 / 4;
            let (cache, mut worker) = filled(&plan, placement, inline_value_bytes, limit_bytes);
            let first = plan.items.len();
            new_items(&cache, &mut worker, &plan, first, warm_up);
            let before = cache.totals().evictions;
            measured_new_items(&cache, &mut worker, &plan, first + warm_up.len(), measured);
            let left = (cache.totals().evictions - before) as f64 / measured.len() as f64;
            assert!((0.9..1.1).contains(&left), "{left} items left for each new one");
        }
        Engine::Larder { placement, inline_value_bytes, batch } => {
            let limit_bytes = 2 * bytes_with(&plan, 100) + (64 << 20);
            let (cache, mut worker) = filled(&plan, placement, inline_value_bytes, limit_bytes);
            for requests in warm_up.chunks(REQUESTS_PER_ROUND) {
                larder_requests(&mut worker, &plan, requests, batch);
                worker.offline();
                cache.tend();
                worker.online();
            }
            match counting {
                Count::FalseKeys => measured_false_keys(&mut worker, &plan, measured),
                _ => measured_requests_of_larder(&mut worker, &plan, measured, batch),
            }
        }
    }
}

/// Bytes of all keys and values, and `more` for each item.
fn bytes_with(plan: &Plan, more: u64) -> u64 {
    plan.items.iter().map(|item| u64::from(item.key_bytes + item.value_bytes) + more).sum()
}

/// A cache of `limit_bytes` in which all items of the plan were stored.
fn filled(
    plan: &Plan,
    placement: Placement,
    inline_value_bytes: u32,
    limit_bytes: u64,
) -> (Arc<Cache>, Worker) {
    let options = CacheOptions {
        limit_bytes,
        workers: 1,
        pages: PagesWanted::Small,
        column_bytes: Some(128 << 10),
        inline_value_bytes: Some(inline_value_bytes),
        placement,
        seed: Some(support::SEED),
        ..CacheOptions::default()
    };
    let cache = Cache::new(options).unwrap_or_else(|error| panic!("{error}"));
    let mut worker = cache.worker();
    plan.order.iter().for_each(|number| store(&mut worker, *number, &plan.items[*number as usize]));
    (cache, worker)
}

/// Stores an item of a plan under the key of `number`.
fn store(worker: &mut Worker, number: u32, item: &Item) {
    static VALUE: [u8; OUT_BYTES] = [b'v'; OUT_BYTES];
    let mut room = [0; KEY_BYTES_MAX];
    let key = plan::key(&mut room, number, item);
    let hash = worker.cache().hash(key);
    let outcome = worker.store(&Store::set(key, hash, &VALUE[..usize::from(item.value_bytes)]));
    assert!(matches!(outcome, StoreOutcome::Stored { .. }), "{outcome:?}");
    worker.quiesce();
}

#[inline(never)]
fn measured_requests_of_twin(twin: &mut Twin, plan: &Plan, requests: &[u32]) {
    twin_requests(twin, plan, requests);
}

#[inline(never)]
fn measured_requests_of_larder(worker: &mut Worker, plan: &Plan, requests: &[u32], batch: usize) {
    larder_requests(worker, plan, requests, batch);
}

#[inline(never)]
fn measured_new_items(cache: &Cache, worker: &mut Worker, plan: &Plan, first: usize, sizes: &[u32]) {
    new_items(cache, worker, plan, first, sizes);
}

#[inline(never)]
fn measured_false_keys(worker: &mut Worker, plan: &Plan, requests: &[u32]) {
    let mut room = [0; KEY_BYTES_MAX];
    for number in requests {
        let key = plan::key(&mut room, *number, &plan.items[*number as usize]);
        let (hash, key_bytes) = (worker.cache().hash(key), key.len());
        room[key_bytes - 1] ^= 1;
        assert!(worker.get(hash, &room[..key_bytes]).is_none(), "no such key");
        worker.quiesce();
    }
}

/// Gets each key and copies its value.
#[inline(always)]
fn twin_requests(twin: &mut Twin, plan: &Plan, requests: &[u32]) {
    let (mut room, mut out) = ([0; KEY_BYTES_MAX], [0; OUT_BYTES]);
    for number in requests {
        let key = plan::key(&mut room, *number, &plan.items[*number as usize]);
        let length = twin.get(plan::hash(key), key, &mut out);
        assert_eq!(length, usize::from(plan.items[*number as usize].value_bytes), "every GET hits");
        black_box(&out);
    }
}

#[inline(always)]
fn larder_requests(worker: &mut Worker, plan: &Plan, requests: &[u32], batch: usize) {
    let (mut rooms, mut out) = ([[0; KEY_BYTES_MAX]; 16], [0; OUT_BYTES]);
    let mut found = GetBatch::default();
    for requests in requests.chunks(batch) {
        let mut keys = [&[][..]; 16];
        for ((room, key), number) in rooms.iter_mut().zip(&mut keys).zip(requests) {
            *key = plan::key(room, *number, &plan.items[*number as usize]);
        }
        let copy = |_, hit: Option<Hit<'_>>| {
            if let Some(hit) = hit
                && let Value::Whole(value) = hit.value()
            {
                out[..value.len()].copy_from_slice(value);
                black_box(&out);
            }
        };
        found.get(worker, &keys[..requests.len()], copy);
        worker.quiesce();
    }
}

/// Stores new items, numbered from `first`, each of the sizes of the item that `sizes` names, and lets the keeper make
/// room for them.
fn new_items(cache: &Cache, worker: &mut Worker, plan: &Plan, first: usize, sizes: &[u32]) {
    for (at, number) in sizes.iter().enumerate() {
        store(worker, (first + at) as u32, &plan.items[*number as usize]);
        if at.is_multiple_of(NEW_ITEMS_PER_ROUND) {
            worker.offline();
            cache.tend();
            worker.online();
        }
    }
}
