//! The cost of reading random pages of a file, with nothing around it: the floor of a hit on flash.
//!
//! `cargo bench -p larder-flash --bench reads [-- FILE]`. FILE is made if it is not there, with 1 GiB; it is opened as
//! a flash device and all of it is overwritten. Each row reads for two seconds past the page cache (`O_DIRECT`), in
//! turn with the others, and says how many reads there were each second, the processor time of one, and its latency.
//! *pread* is one blocking system call a read; *queue* is the tier's queue of reads, on io_uring where the system has
//! it.

use larder_flash::device::{Device, DeviceOptions, Direct, PAGE_BYTES, PageBuffer, ZoneId, open};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::OFlags;
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

const BYTES: u64 = 1 << 30;
const ZONE_BYTES: u64 = 16 << 20;
const TIME: Duration = Duration::from_secs(2);

/// Processor time that this thread has used, ns.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

/// Page numbers in no order.
struct Random(u64);

impl Random {
    /// The first of `pages` pages that are read together.
    fn page(&mut self, pages: usize) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let whole = ZONE_BYTES / PAGE_BYTES as u64;
        let page = (self.0 >> 33) % (BYTES / PAGE_BYTES as u64);
        // The pages lie in one zone.
        page.min(page / whole * whole + whole - pages as u64)
    }
}

fn report(name: &str, pages: usize, depth: usize, began: (Instant, u64), mut latencies: Vec<Duration>) {
    let (took, cpu_ns) = (began.0.elapsed().as_secs_f64(), cpu_ns() - began.1);
    latencies.sort_unstable();
    let count = latencies.len().max(1);
    let us = |part: usize| latencies.get(count * part / 1000).map_or(0.0, |took| took.as_secs_f64() * 1e6);
    println!(
        "{name:6} {:3} KiB  depth {depth:3}  {:8.0} reads/s  {:6.2} us of CPU  p50 {:7.1} us  p99 {:8.1} us",
        pages * PAGE_BYTES / 1024,
        count as f64 / took,
        cpu_ns as f64 / 1e3 / count as f64,
        us(500),
        us(990),
    );
}

/// Reads by blocking calls.
fn by_pread(file: &File, pages: usize) {
    let (mut buffer, mut random) = (PageBuffer::new(pages), Random(7));
    let (began, mut latencies) = ((Instant::now(), cpu_ns()), Vec::new());
    while began.0.elapsed() < TIME {
        let at = Instant::now();
        file.read_exact_at(&mut buffer, random.page(pages) * PAGE_BYTES as u64).expect("a read");
        latencies.push(at.elapsed());
    }
    report("pread", pages, 1, began, latencies);
}

/// Reads by a queue of the device.
fn by_queue(device: &Arc<dyn Device>, pages: usize, depth: usize) {
    let mut queue = device.reads(depth as u32).expect("a queue");
    let mut buffers: Vec<PageBuffer> = (0..depth).map(|_| PageBuffer::new(pages)).collect();
    let (mut random, mut done) = (Random(9), Vec::new());
    let mut starts = vec![Instant::now(); depth];
    let mut free: Vec<usize> = (0..depth).collect();
    let (began, mut latencies) = ((Instant::now(), cpu_ns()), Vec::new());
    loop {
        let now = Instant::now();
        if now.duration_since(began.0) < TIME {
            while let (Some(token), Some(buffer)) = (free.pop(), buffers.pop()) {
                let at = random.page(pages) * PAGE_BYTES as u64;
                let zone = ZoneId((at / ZONE_BYTES) as u32);
                starts[token] = now;
                assert!(queue.submit(token as u64, zone, at % ZONE_BYTES, buffer).is_ok(), "there is room");
            }
        }
        queue.kick();
        if queue.in_flight() == 0 {
            break;
        }
        poll(&mut [PollFd::from_borrowed_fd(queue.fd(), PollFlags::IN)], None).expect("a poll");
        queue.reap(&mut done);
        let now = Instant::now();
        for read in done.drain(..) {
            read.result.expect("a read");
            latencies.push(now.duration_since(starts[read.token as usize]));
            free.push(read.token as usize);
            buffers.push(read.buffer);
        }
    }
    report("queue", pages, depth, began, latencies);
}

fn main() {
    let path = std::env::args().skip(1).find(|word| !word.starts_with("--"));
    let path = path.map_or_else(|| std::env::temp_dir().join("larder-reads.bench"), PathBuf::from);
    let options = DeviceOptions { bytes: Some(BYTES), zone_bytes: Some(ZONE_BYTES), direct: Direct::On };
    let device = open(&path, &options).expect("a file that can be read past the page cache");
    let mut content = PageBuffer::new((1 << 20) / PAGE_BYTES);
    content.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at % 251) as u8);
    for zone in 0..(BYTES / ZONE_BYTES) as u32 {
        device.reset(ZoneId(zone)).expect("a reset");
        for _ in 0..ZONE_BYTES >> 20 {
            device.append(ZoneId(zone), &content).expect("an append");
        }
    }
    device.sync().expect("a sync");
    let mut file = File::options();
    let file = file.read(true).custom_flags(OFlags::DIRECT.bits() as i32).open(&path).expect("the file");
    for _ in 0..3 {
        for pages in [1, 2] {
            by_pread(&file, pages);
            [1, 16, 64].into_iter().for_each(|depth| by_queue(&device, pages, depth));
        }
    }
}
