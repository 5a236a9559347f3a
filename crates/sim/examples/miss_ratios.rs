//! Miss ratios of every policy over one trace of keys, at shares of its keys: one line per policy and size.
//!
//! `miss_ratios TRACE 0.01,0.1 [POLICY,...]`: TRACE has one key in a line, or is CSV with a header that has a column
//! `key`. Every line is a request for an item of size 1; capacities are rounded down.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::time::Instant;

use larder_sim::policy::{Access, NAMES, build};

struct Trace {
    ids: Vec<u32>,
    times_s: Vec<u32>,
    keys: usize,
}

fn read(path: &str) -> std::io::Result<Trace> {
    let mut trace = Trace { ids: Vec::new(), times_s: Vec::new(), keys: 0 };
    let mut id_of_key = HashMap::new();
    let mut columns = None;
    for line in BufReader::new(File::open(path)?).lines() {
        let line = line?;
        if trace.ids.is_empty() && columns.is_none() && line.contains(',') {
            let names: Vec<&str> = line.split(',').collect();
            let of = |name| names.iter().position(|&column| column == name);
            columns = Some((of("key").unwrap_or(0), of("timestamp")));
            continue;
        }
        let (key, time) = columns.unwrap_or((0, None));
        let fields: Vec<&str> = line.split(',').collect();
        let next = id_of_key.len() as u32;
        trace.ids.push(*id_of_key.entry(fields[key].to_owned()).or_insert(next));
        trace.times_s.push(time.and_then(|column| fields[column].parse().ok()).unwrap_or(0));
    }
    trace.keys = id_of_key.len();
    Ok(trace)
}

fn next_uses(trace: &Trace) -> Vec<u64> {
    let mut seen = vec![u64::MAX; trace.keys];
    let mut next = vec![u64::MAX; trace.ids.len()];
    for (ordinal, &id) in trace.ids.iter().enumerate().rev() {
        next[ordinal] = std::mem::replace(&mut seen[id as usize], ordinal as u64);
    }
    next
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, shares, rest @ ..] = arguments.as_slice() else {
        return Err("usage: miss_ratios TRACE SHARE,... [POLICY,...]".into());
    };
    let trace = read(path)?;
    let next = next_uses(&trace);
    let names: Vec<&str> = rest.first().map_or(NAMES.to_vec(), |names| names.split(',').collect());
    for share in shares.split(',') {
        let capacity = (trace.keys as f64 * share.parse::<f64>()?) as u64;
        for name in &names {
            let mut policy = build(name, capacity, 1)?;
            let started = Instant::now();
            let mut misses = 0u64;
            for (ordinal, &id) in trace.ids.iter().enumerate() {
                let time_s = trace.times_s[ordinal];
                let access = Access { id, size: 1, time_s, penalty_us: 0, next: next[ordinal] };
                misses += u64::from(!policy.access(&access));
            }
            let requests = trace.ids.len() as f64;
            let ns = started.elapsed().as_nanos() as f64 / requests;
            println!("{share} {capacity} {name} {:.3} {ns:.0}", 100.0 * misses as f64 / requests);
        }
    }
    Ok(())
}
