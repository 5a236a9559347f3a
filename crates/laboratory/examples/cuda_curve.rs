//! The hitmap on a real CUDA device: whether it is correct, and how fast it is for each batch size (Catalyst, Fig.
//! 9, and section 4.3.8 for managed memory).
//!
//! `cargo run --release -p larder-laboratory --example cuda_curve -- [DEVICE [ITEMS [REFERENCES]]]`
//!
//! ITEMS is the number of items that the measured maps are sized for (100 million by default, about as large as the
//! paper's). REFERENCES is the number of references for which the results are compared (10 million by default).
//! Without a driver the program says so and does nothing.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use larder_cuda::{BatchTimes, CudaError, CudaHitmap, Layout, MemoryMode};
use larder_temperature::{
    DeviceHitmap, Digest, Hitmap, LineHitmap, PublishedHitmap, PublishedOptions, Reference,
};

const BATCHES: [usize; 13] =
    [1, 10, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 200_000, 300_000, 500_000, 1_000_000];
/// Number of batches of each size that are timed one by one. The median is printed.
const MEASURED: usize = 51;
/// How long batches of each size are submitted as fast as the device accepts them.
const STREAMED: Duration = Duration::from_millis(300);

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    /// References to `keys` keys, all equally frequent. One in four is a store.
    fn references(&mut self, count: usize, keys: u64) -> Vec<Reference> {
        (0..count)
            .map(|_| {
                let random = self.next();
                let key = ((u128::from(random) * u128::from(keys)) >> 64) as u32;
                let digest = Digest::from_bits(key.wrapping_mul(0x9E37_79B1));
                if random & 3 == 0 { Reference::store(digest) } else { Reference::read(digest) }
            })
            .collect()
    }
}

fn name(layout: Layout) -> &'static str {
    match layout {
        Layout::Line => "one line",
        Layout::Published(_) => "published",
    }
}

/// Does the same to a map on the device and to one on the CPU, and compares every word at the end.
fn compare(device: u32, layout: Layout, mode: MemoryMode, references: usize) -> Result<String, CudaError> {
    let keys = 1_000_000;
    let items = keys / 8;
    let mut random = Random(1);
    let mut map = CudaHitmap::open(device, layout, items, mode)?;
    let mut line = LineHitmap::for_items(items);
    let mut published = match layout {
        Layout::Published(options) => Some(PublishedHitmap::for_items(items, options)),
        Layout::Line => None,
    };
    let mut done = 0;
    let mut questions = 0;
    while done < references {
        let twin: &mut dyn Hitmap = published.as_mut().map_or(&mut line, |map| map);
        let batch = 1 << (random.next() % 18);
        let batch = random.references(batch, keys);
        map.mark(&batch);
        twin.mark(&batch);
        done += batch.len();
        match random.next() % 16 {
            0 => {
                map.age();
                twin.age();
            }
            1..8 => {
                let bytes = map.bytes_for(0) as usize / 16;
                assert_eq!(map.age_some(bytes), twin.age_some(bytes));
            }
            8 => {
                let items = random.next() % keys;
                map.grow(items);
                twin.grow(items);
            }
            9..12 => {
                let digests: Vec<Digest> = batch.iter().map(|reference| reference.digest()).collect();
                let (mut zones, mut expected) = (Vec::new(), Vec::new());
                map.zones(&digests, &mut zones);
                twin.zones(&digests, &mut expected);
                if let Some(error) = map.error() {
                    return Err(error.clone());
                }
                assert!(zones == expected, "zones differ from the CPU's after {done} references");
                questions += digests.len();
            }
            _ => {}
        }
    }
    let expected = match &published {
        Some(map) => map
            .counters()
            .iter()
            .chain(map.set_counter())
            .flat_map(|counter| counter.words())
            .copied()
            .collect(),
        None => line.words().to_vec(),
    };
    let words = map.download()?;
    if let Some(error) = map.error() {
        return Err(error.clone());
    }
    assert!(words == expected, "bits differ from the CPU's after {done} references");
    Ok(format!("{done} references and {questions} questions: the bits and zones of the CPU"))
}

fn middle(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1e6
}

/// Prints a row for each batch size.
fn curve(device: u32, layout: Layout, mode: MemoryMode, items: u64) -> Result<(), CudaError> {
    let mut map = CudaHitmap::open(device, layout, items, mode)?;
    let references = Random(2).references(4_000_000, items);
    for size in BATCHES {
        // Another part of the references each time, so that the caches help no more than they would in use.
        let mut batches = references.chunks_exact(size).cycle();
        let mut next = || batches.next().expect("there are some");
        map.measure(next())?;
        let times = (0..MEASURED).map(|_| map.measure(next())).collect::<Result<Vec<BatchTimes>, _>>()?;
        let of = |part: fn(&BatchTimes) -> Duration| middle(times.iter().map(part).collect());

        let (start, mut given) = (Instant::now(), 0);
        while start.elapsed() < STREAMED {
            map.mark(next());
            given += size;
        }
        map.zones(&[references[0].digest()], &mut Vec::new());
        let rate = given as f64 / start.elapsed().as_secs_f64() / 1e6;
        if let Some(error) = map.error() {
            return Err(error.clone());
        }
        println!(
            "| {} | {mode:?} | {size} | {:.1} | {:.1} | {:.1} | {rate:.2} |",
            name(layout),
            of(|times| times.transfer),
            of(|times| times.kernels),
            of(|times| times.whole),
        );
    }
    Ok(())
}

fn run(device: u32, items: u64, references: usize) -> Result<(), CudaError> {
    let layouts = [Layout::Line, Layout::Published(PublishedOptions::default())];
    let modes = [MemoryMode::Explicit, MemoryMode::Managed];
    let place = CudaHitmap::open(device, Layout::Line, 1, MemoryMode::Explicit)?.processor();
    println!("{place}\n");
    for layout in layouts {
        for mode in modes {
            println!("- {}, {mode:?} memory: {}", name(layout), compare(device, layout, mode, references)?);
        }
    }
    println!(
        "\nMaps for {items} items; times are medians of {MEASURED} batches, the rate is of batches that are not"
    );
    println!("waited for.\n");
    println!("| layout | memory | batch | transfer, us | kernels, us | whole, us | million references/s |");
    println!("|---|---|---:|---:|---:|---:|---:|");
    for layout in layouts {
        for mode in modes {
            curve(device, layout, mode, items)?;
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let mut numbers = [0, 100_000_000, 10_000_000];
    for (number, argument) in numbers.iter_mut().zip(std::env::args().skip(1)) {
        match argument.parse() {
            Ok(given) => *number = given,
            Err(_) => {
                eprintln!("{argument}: not a number; the arguments are DEVICE ITEMS REFERENCES");
                return ExitCode::FAILURE;
            }
        }
    }
    let [device, items, references] = numbers;
    match run(device as u32, items.clamp(1, u64::from(u32::MAX)), references as usize) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error @ (CudaError::NoDriver | CudaError::NoDevice { .. })) => {
            println!("nothing measured: {error}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
