//! The read-through load: what a cache in front of something slow does all day, one deterministic sequence for all.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::keys::KeyPicker;
use crate::loads::HIT_RATIO_BATCH;
use crate::procfs::{CpuMeter, thread_cpu};
use crate::reply::{Reply, parse};
use crate::wire::Wire;

/// What the read-through load measured.
#[derive(Clone, Debug, Default)]
pub(crate) struct HitRatio {
    /// GETs sent.
    pub(crate) requests: u64,
    /// GETs answered with a value.
    pub(crate) hits: u64,
    /// Hit ratio of the first, second and third third of the GETs.
    pub(crate) thirds: [f64; 3],
    /// SETs sent, one for every key missed in a batch.
    pub(crate) sets: u64,
    /// SETs the server said no to.
    pub(crate) refused: u64,
    /// Time taken.
    pub(crate) elapsed: Duration,
    /// Processor time of the server.
    pub(crate) server_cpu: Duration,
    /// Processor time of this client.
    pub(crate) client_cpu: Duration,
}

/// Sends `requests` GETs over one connection in batches, and after each batch a SET for every key that was missing.
pub(crate) fn run(
    stream: TcpStream,
    pid: u32,
    wire: &Wire,
    picker: &mut KeyPicker,
    requests: u32,
) -> Result<HitRatio> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    let input = vec![0; wire.message_bytes_max() * HIT_RATIO_BATCH + 4096];
    let mut exchange = Exchange { stream, wire, out: Vec::new(), input };
    let mut total = HitRatio::default();
    let mut third_hits = [0u64; 3];
    let mut third_requests = [0u64; 3];
    let mut meter = CpuMeter::new(pid)?;
    let (start, client) = (Instant::now(), thread_cpu());
    let mut batch = Vec::with_capacity(HIT_RATIO_BATCH);
    let mut missing = Vec::with_capacity(HIT_RATIO_BATCH);
    let mut sampled = start;
    while total.requests < u64::from(requests) {
        let third = (total.requests * 3 / u64::from(requests)) as usize;
        let size = HIT_RATIO_BATCH.min((u64::from(requests) - total.requests) as usize);
        batch.clear();
        batch.extend((0..size).map(|_| picker.pick()));
        missing.clear();
        let hits = exchange.get(&batch, &mut missing)?;
        total.requests += size as u64;
        total.hits += hits;
        third_requests[third] += size as u64;
        third_hits[third] += hits;
        if !missing.is_empty() {
            total.sets += missing.len() as u64;
            total.refused += exchange.set(&missing)?;
        }
        if sampled.elapsed() > Duration::from_millis(250) {
            sampled = Instant::now();
            meter.sample()?;
        }
    }
    for third in 0..3 {
        total.thirds[third] = third_hits[third] as f64 / (third_requests[third] as f64).max(1.0);
    }
    total.elapsed = start.elapsed();
    total.client_cpu = thread_cpu() - client;
    total.server_cpu = meter.sample()?;
    Ok(total)
}

/// One connection on which a batch goes out and all its replies come back.
struct Exchange<'a> {
    stream: TcpStream,
    wire: &'a Wire,
    out: Vec<u8>,
    input: Vec<u8>,
}

impl Exchange<'_> {
    /// GETs a batch; returns the hits and adds to `missing` every key that was missing, once.
    fn get(&mut self, ids: &[u32], missing: &mut Vec<u32>) -> Result<u64> {
        self.out.clear();
        ids.iter().for_each(|&id| self.wire.put_get(&mut self.out, id));
        let wire = self.wire;
        let mut hits = 0;
        self.replies(ids, |id, reply| {
            match reply {
                Reply::Hit(value) if wire.belongs(id, value) => hits += 1,
                Reply::Hit(_) => bail!("a wrong value for key {id}"),
                Reply::Miss if missing.contains(&id) => {}
                Reply::Miss => missing.push(id),
                other => bail!("GET was answered with {other:?}"),
            }
            Ok(())
        })?;
        Ok(hits)
    }

    /// SETs a batch; returns how many were refused.
    fn set(&mut self, ids: &[u32]) -> Result<u64> {
        self.out.clear();
        ids.iter().for_each(|&id| self.wire.put_set(&mut self.out, id));
        let mut refused = 0;
        self.replies(ids, |_, reply| {
            match reply {
                Reply::Stored => {}
                Reply::Refused(_) => refused += 1,
                other => bail!("SET was answered with {other:?}"),
            }
            Ok(())
        })?;
        Ok(refused)
    }

    fn replies(&mut self, ids: &[u32], mut each: impl FnMut(u32, Reply<'_>) -> Result<()>) -> Result<()> {
        self.stream.write_all(&self.out).context("write")?;
        let (mut filled, mut at, mut answered) = (0, 0, 0);
        while answered < ids.len() {
            let read = self.stream.read(&mut self.input[filled..]).context("read")?;
            if read == 0 {
                bail!("the server closed the connection");
            }
            filled += read;
            while answered < ids.len() {
                let Ok(parsed) = parse(self.wire.protocol, &self.input[at..filled]) else {
                    bail!("a reply that is none");
                };
                let Some((reply, consumed)) = parsed else { break };
                each(ids[answered], reply)?;
                at += consumed;
                answered += 1;
            }
        }
        if at < filled {
            bail!("a reply without a request");
        }
        Ok(())
    }
}
