//! The read-through loads: a cache in front of something slow, with one deterministic sequence of requests for all
//! servers.
//!
//! The cost of eviction is measured with two servers of one kind: one is too small, the other has memory for
//! everything. The small one is read through. The other gets exactly the same commands, including the SETs, so that
//! only the work inside the servers differs.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::door::Stream;
use crate::exchange::Exchange;
use crate::keys::KeyPicker;
use crate::loads::{HIT_RATIO_BATCH, PRESSURE_SLICE};
use crate::procfs::{CpuMeter, thread_cpu};
use crate::wire::Wire;

/// The measurements of a read-through load on one server.
#[derive(Clone, Debug, Default)]
pub(crate) struct HitRatio {
    /// GETs sent.
    pub(crate) requests: u64,
    /// GETs answered with a value.
    pub(crate) hits: u64,
    /// Hit ratio of the first, second and third third of the GETs.
    pub(crate) thirds: [f64; 3],
    /// SETs sent.
    pub(crate) sets: u64,
    /// SETs refused by the server.
    pub(crate) refused: u64,
    /// Time taken.
    pub(crate) elapsed: Duration,
    /// Processor time of the server.
    pub(crate) server_cpu: Duration,
    /// Processor time of this client.
    pub(crate) client_cpu: Duration,
}

/// One batch of GETs and the SETs sent after it, by key number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Batch {
    gets: Vec<u32>,
    sets: Vec<u32>,
}

/// The SETs that follow the GETs of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sets {
    /// One for every missing key; the batch remembers the keys.
    Missing,
    /// Those for the keys that the batch remembers.
    Remembered,
}

/// Samples `requests` GETs, in batches.
pub(crate) fn draw(picker: &mut KeyPicker, requests: u32) -> Vec<Batch> {
    let batch = |at: u32| {
        let size = (HIT_RATIO_BATCH as u32).min(requests - at);
        Batch { gets: (0..size).map(|_| picker.pick()).collect(), sets: Vec::new() }
    };
    (0..requests).step_by(HIT_RATIO_BATCH).map(batch).collect()
}

/// Sends `requests` GETs over one connection in batches, and after each batch a SET for every missing key.
pub(crate) fn run(
    stream: Stream,
    pid: u32,
    wire: &Wire,
    picker: &mut KeyPicker,
    requests: u32,
) -> Result<HitRatio> {
    let mut batches = draw(picker, requests);
    let mut visit = Visit::new(stream, pid, wire)?;
    let mut thirds = [0.0; 3];
    let third_batches = batches.len().div_ceil(3).max(1);
    for (third, batches) in thirds.iter_mut().zip(batches.chunks_mut(third_batches)) {
        let before = (visit.total.hits, visit.total.requests);
        visit.send(batches, Sets::Missing)?;
        let (hits, gets) = (visit.total.hits - before.0, visit.total.requests - before.1);
        *third = hits as f64 / (gets as f64).max(1.0);
    }
    Ok(HitRatio { thirds, ..visit.measured()? })
}

/// Reads `batches` through the server of `short` and repeats all commands on the server of `roomy`. The servers
/// alternate in slices, so that disturbances of the machine affect both.
pub(crate) fn side_by_side(
    short: &mut Visit<'_>,
    roomy: &mut Visit<'_>,
    batches: &mut [Batch],
) -> Result<()> {
    for slice in batches.chunks_mut(PRESSURE_SLICE) {
        short.send(slice, Sets::Missing)?;
        roomy.send(slice, Sets::Remembered)?;
    }
    Ok(())
}

/// One connection to one server, with its measurements so far.
pub(crate) struct Visit<'a> {
    exchange: Exchange<'a>,
    pid: u32,
    /// The meter also runs between two calls of `send`, because work that a server puts off until it is idle counts.
    meter: CpuMeter,
    total: HitRatio,
}

impl<'a> Visit<'a> {
    /// Starts to measure.
    pub(crate) fn new(stream: Stream, pid: u32, wire: &'a Wire) -> Result<Self> {
        Ok(Self {
            exchange: Exchange::new(stream, wire, HIT_RATIO_BATCH)?,
            pid,
            meter: CpuMeter::new(pid)?,
            total: HitRatio::default(),
        })
    }

    /// Sends batches, each when the previous one has been answered.
    pub(crate) fn send(&mut self, batches: &mut [Batch], sets: Sets) -> Result<()> {
        let (start, client) = (Instant::now(), thread_cpu());
        let mut sampled = start;
        for batch in batches {
            let mut ignored = Vec::new();
            let missing = match sets {
                Sets::Missing => &mut batch.sets,
                Sets::Remembered => &mut ignored,
            };
            missing.clear();
            self.total.hits += self.exchange.get(&batch.gets, missing)?;
            self.total.requests += batch.gets.len() as u64;
            if !batch.sets.is_empty() {
                self.total.sets += batch.sets.len() as u64;
                self.total.refused += self.exchange.set(&batch.sets)?;
            }
            if sampled.elapsed() > Duration::from_millis(250) {
                sampled = Instant::now();
                self.meter.sample()?;
            }
        }
        self.total.elapsed += start.elapsed();
        self.total.client_cpu += thread_cpu() - client;
        Ok(())
    }

    /// The measurements since the start or the last call; starts again.
    pub(crate) fn measured(&mut self) -> Result<HitRatio> {
        let server_cpu = self.meter.sample()?;
        self.meter = CpuMeter::new(self.pid)?;
        Ok(HitRatio { server_cpu, ..std::mem::take(&mut self.total) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::tests::naive_cache;
    use crate::door::Door;
    use crate::keys::Popularity;
    use crate::wire::{Protocol, ValueBytes};

    #[test]
    fn batches_are_drawn_in_the_order_of_the_picker() {
        let picker = || KeyPicker::new(500, Popularity::Zipf(0.99), 3);
        let batches = draw(&mut picker(), 150);
        assert_eq!(batches.iter().map(|batch| batch.gets.len()).collect::<Vec<_>>(), [64, 64, 22]);
        let mut picker = picker();
        assert!(batches.iter().flat_map(|batch| &batch.gets).all(|&id| id == picker.pick()));
    }

    #[test]
    fn the_roomy_server_gets_the_commands_of_the_short_one() {
        let wire = Wire::new(Protocol::Text, ValueBytes::fixed(20), true);
        let visit = || {
            let door = Door::from(naive_cache(1 << 20, Duration::ZERO));
            Visit::new(door.connect().expect("it listens"), std::process::id(), &wire)
                .expect("/proc is there")
        };
        let (mut short, mut roomy) = (visit(), visit());
        roomy.exchange.set(&(0..50).collect::<Vec<u32>>()).expect("stores");
        let mut batches = draw(&mut KeyPicker::new(50, Popularity::Uniform, 3), 640);
        side_by_side(&mut short, &mut roomy, &mut batches).expect("both answer");
        let (pressed, resident) = (short.measured().expect("/proc"), roomy.measured().expect("/proc"));
        let mut remembered: Vec<u32> = batches.iter().flat_map(|batch| batch.sets.clone()).collect();
        assert_eq!((pressed.requests, resident.requests, resident.hits), (640, 640, 640));
        assert_eq!((pressed.sets, resident.sets), (remembered.len() as u64, remembered.len() as u64));
        // Each key is missing once: the first time it is asked for.
        remembered.sort_unstable();
        let mut asked: Vec<u32> = batches.iter().flat_map(|batch| batch.gets.clone()).collect();
        asked.sort_unstable();
        asked.dedup();
        assert_eq!(remembered, asked);
        // A second pass in which nothing is missing forgets what was.
        short.send(&mut batches, Sets::Missing).expect("it answers");
        assert!(batches.iter().all(|batch| batch.sets.is_empty()));
        assert_eq!(short.measured().expect("/proc").hits, 640);
    }
}
