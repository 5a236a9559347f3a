//! Several load generators at once, each a thread with connections of its own and its own part of the requests.

use std::thread::ScopedJoinHandle;

use anyhow::{Context, Result, anyhow};

use crate::client::{self, Measured, Shape, Source, Target};
use crate::procfs::pin;
use crate::wire::Wire;

/// Runs a load from `clients` threads, at least 1, and measures it as one. Thread n runs on the nth of the `cores`, or
/// on any if there are none. Processor time of the client is that of all threads.
///
/// # Errors
/// A client fails, as in [`client::run`].
pub(crate) fn run(
    (clients, cores): (usize, &[usize]),
    target: Target<'_>,
    wire: &Wire,
    shape: Shape,
    source: Source<'_>,
) -> Result<Measured> {
    if clients == 1 {
        return client::run(target, wire, shape, source);
    }
    let together = |sources: Vec<Source<'_>>| together(cores, target, wire, shape, sources);
    match source {
        Source::Ring { ring, position, warmup, measure, fills } => {
            // Far apart, or all would ask for the same keys one shortly after the other.
            let mut positions: Vec<usize> =
                (0..clients).map(|nth| *position + nth * (ring.length() / clients)).collect();
            let part = |position| Source::Ring { ring, position, warmup, measure, fills };
            let measured = together(positions.iter_mut().map(part).collect());
            *position = positions[0];
            measured
        }
        Source::Store(ids, until) => {
            let at = |nth: usize| ids.start + (ids.len() * nth / clients) as u32;
            together((0..clients).map(|nth| Source::Store(at(nth)..at(nth + 1), until)).collect())
        }
    }
}

fn together(
    cores: &[usize],
    target: Target<'_>,
    wire: &Wire,
    shape: Shape,
    sources: Vec<Source<'_>>,
) -> Result<Measured> {
    let clients = sources.len();
    let rate = shape.rate.map(|rate| rate / clients as f64);
    let start = |(nth, source)| {
        let connections = shape.connections * (nth + 1) / clients - shape.connections * nth / clients;
        let core: Vec<usize> = cores.get(nth % cores.len().max(1)).copied().into_iter().collect();
        (core, Shape { connections, rate, ..shape }, source)
    };
    let parts: Vec<_> = sources.into_iter().enumerate().map(start).collect();
    let measured = std::thread::scope(|scope| {
        let threads: Vec<ScopedJoinHandle<'_, Result<Measured>>> = parts
            .into_iter()
            .map(|(core, shape, source)| {
                scope.spawn(move || {
                    pin(&core).context("pin a client")?;
                    client::run(target, wire, shape, source)
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().map_err(|_| anyhow!("a client panicked"))?)
            .collect::<Result<Vec<_>>>()
    })?;
    measured.into_iter().map(Ok).reduce(|whole, part| merge(whole?, part?)).context("no client")?
}

/// What two clients measured at the same time. Each of them has read the processor time of the same server: the longer
/// time holds the shorter one.
fn merge(mut whole: Measured, part: Measured) -> Result<Measured> {
    whole.counts.add(&part.counts);
    whole.latency.add(&part.latency)?;
    whole.client_cpu += part.client_cpu;
    whole.refusal = whole.refusal.or(part.refusal);
    if part.elapsed > whole.elapsed {
        whole.elapsed = part.elapsed;
        whole.server_cpu = part.server_cpu;
        whole.server_cpu_unseen = part.server_cpu_unseen;
        whole.cores = part.cores;
    }
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::tests::naive_cache;
    use crate::door::Door;
    use crate::keys::{KeyPicker, Popularity, Ring};
    use crate::wire::{Protocol, ValueBytes};
    use std::time::{Duration, Instant};

    #[test]
    fn three_clients_store_and_fill_together() {
        let door = Door::from(naive_cache(1 << 20, Duration::ZERO));
        let target = Target { door: &door, pid: std::process::id(), cores: &[] };
        let wire = Wire::new(Protocol::Text, ValueBytes::fixed(20), true);
        let shape = Shape { connections: 7, depth: 4, rate: None };
        let stored = run((3, &[]), target, &wire, shape, Source::Store(0..500, None)).expect("stores");
        assert_eq!((stored.counts.stored, stored.latency.len()), (500, 500));
        // Nobody begins when the time is over.
        let late = Source::Store(0..500, Some(Instant::now()));
        let late = run((1, &[]), target, &wire, shape, late).expect("stores");
        assert_eq!(late.counts.total(), 0);

        let ring = Ring::resident(&mut KeyPicker::new(1_000, Popularity::Uniform, 1), 100, 1 << 12);
        let read = |fills| {
            let mut position = 0;
            let (warmup, measure) = (Duration::ZERO, Duration::from_millis(100));
            let source = Source::Ring { ring: &ring, position: &mut position, warmup, measure, fills };
            let read = run((3, &[]), target, &wire, shape, source).expect("reads");
            assert!(position > 0 && read.client_cpu > Duration::ZERO);
            read.counts
        };
        assert_eq!(read(false).stored, 0);
        let filled = read(true);
        assert!(filled.misses > 0 && filled.stored > 0 && filled.hits > 0, "{filled:?}");
    }
}
