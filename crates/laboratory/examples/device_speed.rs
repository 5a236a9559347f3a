//! Measures a file or block device: sequential appends, and random reads of single pages at queue depths 1 and 32.
//!
//!     device_speed PATH [SIZE_MIB [SECONDS]] [--buffered] [--threads]
//!
//! A file that does not exist is created (with 1 GiB by default) and removed at the end. The contents of a device are
//! lost.

use larder_flash::device::{
    Device, DeviceError, DeviceOptions, Direct, PAGE_BYTES, PageBuffer, ReadsBy, ZoneId, ZoneState,
    open_reading_by,
};
use larder_laboratory::readable;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut flag = |name: &str| {
        let found = arguments.iter().position(|argument| argument == name);
        found.map(|at| arguments.remove(at)).is_some()
    };
    let direct = if flag("--buffered") { Direct::Off } else { Direct::Auto };
    let reads = if flag("--threads") { ReadsBy::Threads } else { ReadsBy::Auto };
    let [path, rest @ ..] = &arguments[..] else {
        return Err("device_speed PATH [SIZE_MIB [SECONDS]] [--buffered] [--threads]".into());
    };
    let path = PathBuf::from(path);
    let mib: Option<u64> = rest.first().map(|text| text.parse()).transpose()?;
    let seconds: f64 = rest.get(1).map_or(Ok(3.0), |text| text.parse())?;
    let is_ours = !path.exists();
    let bytes = mib.or(is_ours.then_some(1024)).map(|mib| mib * MIB);
    let device = open_reading_by(&path, &DeviceOptions { bytes, direct, ..DeviceOptions::default() }, reads)?;
    let geometry = device.geometry();
    println!("{}", device.describe());
    println!("{} zones of {} MiB", geometry.zones, geometry.zone_bytes as f64 / MIB as f64);
    println!("{:<28} {:>12} {:>12} {:>10} {:>10} {:>10}", "", "op/s", "MiB/s", "mean us", "p99 us", "max us");
    let time = Duration::from_secs_f64(seconds);
    let written = append(&*device, time)?;
    for depth in [1, 32] {
        random_reads(&*device, depth, written, time)?;
    }
    if is_ours {
        std::fs::remove_file(&path)?;
    }
    Ok(())
}

fn row(name: &str, bytes: u64, elapsed: Duration, mut latencies: Vec<Duration>) {
    latencies.sort_unstable();
    let count = latencies.len().max(1);
    let seconds = elapsed.as_secs_f64();
    let us = |latency: Duration| latency.as_secs_f64() * 1e6;
    let p99 = latencies.get(count * 99 / 100).copied().unwrap_or_default();
    println!(
        "{name:<28} {:>12.0} {:>12.1} {:>10.1} {:>10.1} {:>10.1}",
        latencies.len() as f64 / seconds,
        bytes as f64 / MIB as f64 / seconds,
        us(latencies.iter().sum::<Duration>()) / count as f64,
        us(p99),
        us(latencies.last().copied().unwrap_or_default()),
    );
}

/// Fills zones by appends of 1 MiB, with a sync for each zone. Returns how many zones are full, one at least.
fn append(device: &dyn Device, time: Duration) -> Result<u32, DeviceError> {
    let geometry = device.geometry();
    let mut pages = PageBuffer::new((geometry.zone_bytes.min(MIB) / PAGE_BYTES as u64) as usize);
    for (index, byte) in pages.iter_mut().enumerate() {
        *byte = (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()[7];
    }
    let mut latencies = Vec::new();
    let mut zones = 0;
    let start = Instant::now();
    for zone in (0..geometry.zones).map(ZoneId) {
        if zones > 0 && start.elapsed() >= time {
            break;
        }
        if device.report(zone)?.state == ZoneState::Offline {
            continue;
        }
        device.reset(zone)?;
        for _ in 0..geometry.zone_bytes / pages.len() as u64 {
            let before = Instant::now();
            device.append(zone, &pages)?;
            latencies.push(before.elapsed());
        }
        device.sync()?;
        zones += 1;
    }
    row(
        "append 1 MiB, sync per zone",
        latencies.len() as u64 * pages.len() as u64,
        start.elapsed(),
        latencies,
    );
    Ok(zones)
}

fn random_reads(device: &dyn Device, depth: u32, zones: u32, time: Duration) -> Result<(), DeviceError> {
    let zone_pages = device.geometry().zone_bytes / PAGE_BYTES as u64;
    let mut queue = device.reads(depth)?;
    let mut buffers: Vec<PageBuffer> = (0..depth).map(|_| PageBuffer::new(1)).collect();
    let mut started = vec![Instant::now(); depth as usize];
    let mut free: Vec<u64> = (0..u64::from(depth)).collect();
    let mut latencies = Vec::new();
    let mut done = Vec::new();
    let mut word = 0x9e37_79b9_7f4a_7c15u64;
    let start = Instant::now();
    while start.elapsed() < time || queue.in_flight() > 0 {
        while start.elapsed() < time
            && let Some(token) = free.pop()
            && let Some(buffer) = buffers.pop()
        {
            word ^= word << 13;
            word ^= word >> 7;
            word ^= word << 17;
            let page = (word >> 11) % (u64::from(zones) * zone_pages);
            let zone = ZoneId((page / zone_pages) as u32);
            started[token as usize] = Instant::now();
            let offset = page % zone_pages * PAGE_BYTES as u64;
            queue.submit(token, zone, offset, buffer).expect("as many buffers as there is room");
        }
        queue.kick();
        readable(&*queue, true);
        queue.reap(&mut done);
        for read in done.drain(..) {
            read.result?;
            latencies.push(started[read.token as usize].elapsed());
            free.push(read.token);
            buffers.push(read.buffer);
        }
    }
    let bytes = (latencies.len() * PAGE_BYTES) as u64;
    row(&format!("random 4-KiB reads, depth {depth}"), bytes, start.elapsed(), latencies);
    Ok(())
}
