//! How near the curve that a server keeps of itself is to the exact one, on traces.
//!
//! ```text
//! cargo run --release -p larder-laboratory --example live_curve -- 8192 TRACE...
//! ```
//!
//! The first number is the most keys of the sample. Every request is a read, and a miss stores the item. The cache
//! holds a tenth of all items; the sample spans eight times as many, as in a server. The exact curve is that of
//! `larder mrc`. Printed are the mean and the largest difference in miss ratio at 1000 sizes up to four times the
//! cache, and the time for each sampled use.

use std::time::Instant;

use larder_curve::mix::hash_of;
use larder_curve::{Sampled, Use};
use larder_sim::CHUNK_REQUESTS;
use larder_sim::mrc::{Analysis, Method, OpRule, Settings, Unit};
use larder_sim::trace::{Options, open};

const DIGEST_BITS: u32 = 31;
const RATE_SHIFT: u32 = 5;

fn main() {
    let mut words = std::env::args().skip(1);
    let keys_max: usize =
        words.next().and_then(|word| word.parse().ok()).expect("the most keys of the sample");
    println!(
        "{:24} {:>10} {:>8} {:>8} {:>9} {:>9} {:>8}",
        "trace", "reads", "rate", "keys", "mean", "largest", "ns/use"
    );
    for path in words {
        let read = |mut each: Box<dyn FnMut(&larder_sim::Request) + '_>| {
            let mut source = open(path.as_ref(), &Options::default()).expect("a trace");
            let mut chunk = Vec::with_capacity(CHUNK_REQUESTS);
            loop {
                chunk.clear();
                if source.fill(&mut chunk, CHUNK_REQUESTS).expect("a trace that can be read") == 0 {
                    break;
                }
                chunk.iter().for_each(&mut each);
            }
        };
        let has_sizes = open(path.as_ref(), &Options::default()).expect("a trace").fields().sizes;
        let unit = if has_sizes { Unit::Bytes } else { Unit::Objects };
        let settings = Settings { ops: OpRule::Ignore, ..Settings::new(unit, Method::Exact) };
        let mut analysis = Analysis::new(settings).expect("settings");
        read(Box::new(|request| analysis.request(request)));
        let exact = analysis.curve(&path);
        let cache = exact.footprint() / 10;
        let mut sample = Sampled::new(keys_max, DIGEST_BITS, RATE_SHIFT);
        sample.set_span(8 * cache);
        let (mut sampled, mut spent) = (0u64, 0u128);
        read(Box::new(|request| {
            sample.count_reads(1.0);
            let digest = (hash_of(request.key) >> (64 - DIGEST_BITS)) as u32;
            if digest >= sample.below() {
                return;
            }
            let bytes = if has_sizes { request.item_bytes() } else { 1 };
            let item = Use { bytes, cost_us: 1000.0, expires_s: u32::MAX };
            let started = Instant::now();
            sample.read(digest, Some(item));
            spent += started.elapsed().as_nanos();
            sampled += 1;
        }));
        let curve = sample.curve();
        let sizes = (1..=1000u64).map(|nth| 4 * cache * nth / 1000);
        let apart: Vec<f64> =
            sizes.map(|size| (curve.at(size).miss_ratio - exact.miss_ratio(size as f64)).abs()).collect();
        let name = path.rsplit('/').next().unwrap_or(&path);
        println!(
            "{name:24} {:>10} {:>8.5} {:>8} {:>9.4} {:>9.4} {:>8.0}",
            exact.requests,
            sample.rate(),
            sample.keys(),
            apart.iter().sum::<f64>() / apart.len() as f64,
            apart.iter().copied().fold(0.0, f64::max),
            spent as f64 / sampled.max(1) as f64
        );
    }
}
