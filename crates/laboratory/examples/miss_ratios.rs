//! Prints the miss ratios of every policy on one trace, at shares of its footprint: share, capacity, policy, miss
//! ratio in percent, nanoseconds per request.
//!
//! `miss_ratios TRACE 0.01,0.1 items|bytes [POLICY,...]`: TRACE has one key per line, or is CSV with a header that
//! has a column `key`. Every line is a request. With `items` each item has size 1, and the footprint is the number of
//! keys. With `bytes` an item has the size of its key and value (columns `key_size`, `value_size`), and the footprint
//! is the sum of the sizes at the first request of each key. Capacities are rounded down.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::time::Instant;

use larder_sim::policy::{Access, NAMES, build, larder};

struct Trace {
    ids: Vec<u32>,
    times_s: Vec<u32>,
    sizes: Vec<u32>,
    keys: usize,
    footprint: u64,
}

fn read(path: &str, octets: bool) -> std::io::Result<Trace> {
    let mut trace = Trace { ids: Vec::new(), times_s: Vec::new(), sizes: Vec::new(), keys: 0, footprint: 0 };
    let mut id_of_key = HashMap::new();
    let mut columns: Option<(usize, Option<usize>, Vec<usize>)> = None;
    for line in BufReader::new(File::open(path)?).lines() {
        let line = line?;
        if trace.ids.is_empty() && columns.is_none() && line.contains(',') {
            let names: Vec<&str> = line.split(',').collect();
            let of = |name| names.iter().position(|&column| column == name);
            let sizes = [of("key_size"), of("value_size")].into_iter().flatten().collect();
            columns = Some((of("key").unwrap_or(0), of("timestamp"), sizes));
            continue;
        }
        let (key, time, sizes) = columns.get_or_insert((0, None, Vec::new()));
        let fields: Vec<&str> = line.split(',').collect();
        let number = |column: usize| fields[column].parse().unwrap_or(0);
        let next = id_of_key.len() as u32;
        let id = *id_of_key.entry(fields[*key].to_owned()).or_insert(next);
        let size: u32 = if octets { sizes.iter().map(|&column| number(column)).sum() } else { 1 };
        if id == next {
            trace.footprint += u64::from(size);
        }
        trace.ids.push(id);
        trace.sizes.push(size);
        trace.times_s.push(time.map_or(0, number));
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
    let [path, shares, unit, rest @ ..] = arguments.as_slice() else {
        return Err("usage: miss_ratios TRACE SHARE,... items|octets [POLICY,...]".into());
    };
    let trace = read(path, unit == "octets")?;
    let next = next_uses(&trace);
    let names: Vec<&str> = rest.first().map_or(NAMES.to_vec(), |names| names.split(',').collect());
    for share in shares.split(',') {
        let capacity = (trace.footprint as f64 * share.parse::<f64>()?) as u64;
        for name in &names {
            let mut policy = match larder::variant(name) {
                Some(variant) => larder::build(variant, capacity, 1)?,
                None => build(name, capacity, 1)?,
            };
            let started = Instant::now();
            let mut misses = 0u64;
            for (ordinal, &id) in trace.ids.iter().enumerate() {
                let (size, time_s) = (trace.sizes[ordinal], trace.times_s[ordinal]);
                let access = Access { id, size, time_s, penalty_us: 0, next: next[ordinal] };
                misses += u64::from(!policy.access(&access));
            }
            let requests = trace.ids.len() as f64;
            let ns = started.elapsed().as_nanos() as f64 / requests;
            println!("{share} {capacity} {name} {:.3} {ns:.0}", 100.0 * misses as f64 / requests);
        }
    }
    Ok(())
}
