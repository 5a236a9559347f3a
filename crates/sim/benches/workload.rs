//! Measures the time per request of each law, through `fill`, on one core.
//!
//!     cargo bench -p larder-sim --bench workload
//!
//! The result is the best of five rounds in nanoseconds of processor time per request, so that other load on the
//! machine has little influence (wall-clock time where Linux's schedstat is missing). Words after `--` are workloads
//! to measure instead of the usual ones.

use std::time::Instant;

use larder_sim::{CHUNK_REQUESTS, workload};

const ROUNDS: usize = 5;
const ATTRIBUTES: &str = "keys=1m,requests=4m,reads=0.9,deletes=0.01,sizes=etc,ttls=mix";

fn main() {
    let given: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let words = if given.is_empty() { usual() } else { given };
    println!("{:>12} {:>10}  workload", "ns/request", "M/s");
    for words in words {
        let best_ns = (0..ROUNDS).map(|_| round_ns(&words)).fold(f64::INFINITY, f64::min);
        println!("{best_ns:>12.2} {:>10.1}  {words}", 1000.0 / best_ns);
    }
}

/// Every law with ETC's sizes and each kind of penalty, and laws that are harder than usual.
fn usual() -> Vec<String> {
    let laws = workload::laws().flat_map(|law| {
        ["lognormal", "tenants:correlated"].map(|kind| format!("{law}:{ATTRIBUTES},penalties={kind}"))
    });
    let plain = "zipfian:keys=1m,requests=4m";
    let more = ["keys=1g,theta=0.5", "theta=1", "theta=2.5", "sizes=app,penalties=lognormal"];
    laws.chain([plain.to_owned()])
        .chain(more.map(|more| match more.starts_with("keys") {
            true => format!("zipfian:requests=4m,{more}"),
            false => format!("{plain},{more}"),
        }))
        .collect()
}

/// One pass over the whole stream.
fn round_ns(words: &str) -> f64 {
    let mut source = workload::parse(words).unwrap_or_else(|error| panic!("{error}"));
    let mut chunk = Vec::with_capacity(CHUNK_REQUESTS);
    let (mut requests, mut sum) = (0u64, 0u64);
    let begin = processor_ns();
    let clock = Instant::now();
    while source.fill(&mut chunk, CHUNK_REQUESTS).unwrap_or_else(|error| panic!("{error}")) > 0 {
        requests += chunk.len() as u64;
        sum = chunk.iter().fold(sum, |sum, request| sum.wrapping_add(request.key));
        chunk.clear();
    }
    std::hint::black_box(sum);
    let spent_ns = match (begin, processor_ns()) {
        (Some(begin), Some(end)) => (end - begin) as f64,
        _ => clock.elapsed().as_nanos() as f64,
    };
    spent_ns / requests as f64
}

/// Nanoseconds of processor time of this thread.
fn processor_ns() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok()
}
