//! The hitmap on a real CUDA device: whether it is correct, and how fast it is for each batch size (Catalyst, Fig.
//! 9, and section 4.3.8 for managed memory).
//!
//! `cargo run --release -p larder-laboratory --example cuda_curve -- [--part PART] [--batch N,N] [--json FILE]
//! [DEVICE [ITEMS [REFERENCES]]]`
//!
//! ITEMS is the number of items that the measured maps are sized for (100 million by default, about as large as the
//! paper's). REFERENCES is the number of references for which the results are compared (10 million by default).
//! Maps in managed memory are for a tenth of the items, so that they are never near the memory of the device. PART is
//! one of `same` (whether the results are those of the CPU), `marks`, `lookups` (of sampled keys) and `aging`
//! (compaction); all if none is named. Each figure is also a line of FILE, an object in JSON, appended when it is
//! known. Without a driver the program says so and does nothing.

use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
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

/// The sizes of the lookups that are timed. A batch looks up as many sampled keys as it has references.
const LOOKUPS: [usize; 4] = [100, 1_000, 10_000, 100_000];
/// Number of agings whose median is printed.
const AGINGS: usize = 5;

/// The hitmap on a CUDA device: correctness and speed.
#[derive(Parser)]
struct Options {
    /// Number of the device, counted from 0
    #[arg(default_value_t = 0)]
    device: u32,
    /// Items that the measured maps are sized for
    #[arg(default_value_t = 100_000_000, value_parser = clap::value_parser!(u64).range(1..=u32::MAX as u64))]
    items: u64,
    /// References for which the results are compared
    #[arg(default_value_t = 10_000_000)]
    references: usize,
    /// Parts to run; may be repeated [default: all]
    #[arg(long)]
    part: Vec<Part>,
    /// Sizes of the batches that are timed, separated by commas
    #[arg(long, value_delimiter = ',', default_values_t = BATCHES)]
    batch: Vec<usize>,
    /// File to which each figure is appended, a JSON object a line
    #[arg(long)]
    json: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Same,
    Marks,
    Lookups,
    Aging,
}

/// Where figures go beside the output.
struct Figures(Option<File>);

impl Figures {
    fn add(&mut self, figure: &serde_json::Value) -> std::io::Result<()> {
        self.0.as_mut().map_or(Ok(()), |file| file.write_all(format!("{figure}\n").as_bytes()))
    }
}

/// Where a map is, for the tables.
#[derive(Clone, Copy)]
enum Place {
    Device(u32, MemoryMode),
    Cpu,
}

impl Place {
    fn name(self) -> &'static str {
        match self {
            Place::Device(_, MemoryMode::Explicit) => "explicit",
            Place::Device(_, MemoryMode::Managed) => "managed",
            Place::Cpu => "CPU",
        }
    }

    /// Items that maps here are sized for.
    fn items(self, items: u64) -> u64 {
        if let Place::Device(_, MemoryMode::Managed) = self { (items / 10).max(1) } else { items }
    }

    fn open(self, layout: Layout, items: u64) -> Result<Box<dyn Watched>, CudaError> {
        Ok(match (self, layout) {
            (Place::Device(number, mode), _) => Box::new(CudaHitmap::open(number, layout, items, mode)?),
            (Place::Cpu, Layout::Line) => Box::new(LineHitmap::for_items(items)),
            (Place::Cpu, Layout::Published(options)) => Box::new(PublishedHitmap::for_items(items, options)),
        })
    }
}

/// A map that can have failed.
trait Watched: Hitmap {
    fn failure(&self) -> Result<(), CudaError> {
        Ok(())
    }

    /// Marks a batch and waits for it. On the CPU there is nothing to transfer.
    fn times(&mut self, references: &[Reference]) -> Result<BatchTimes, CudaError> {
        let whole = timed(|| self.mark(references));
        Ok(BatchTimes { transfer: Duration::ZERO, kernels: whole, whole })
    }

    /// Waits until all that was submitted is done.
    fn wait(&mut self) -> Result<(), CudaError> {
        self.zones(&[Digest::from_bits(1)], &mut Vec::new());
        self.failure()
    }
}

impl Watched for LineHitmap {}
impl Watched for PublishedHitmap {}
impl Watched for CudaHitmap {
    fn failure(&self) -> Result<(), CudaError> {
        self.error().map_or(Ok(()), |error| Err(error.clone()))
    }

    fn times(&mut self, references: &[Reference]) -> Result<BatchTimes, CudaError> {
        self.measure(references)
    }
}

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
        Layout::Line => "line",
        Layout::Published(_) => "published",
    }
}

/// Does the same to a map on the device and to one on the CPU, and compares every word at the end.
fn compare(
    device: u32,
    layout: Layout,
    mode: MemoryMode,
    references: usize,
) -> Result<(usize, usize), CudaError> {
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
                // The device ages a published map at once.
                if !map.age_some(0) {
                    twin.age_some(usize::MAX);
                }
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
    Ok((done, questions))
}

/// The median of `times`, in microseconds.
fn middle(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1e6
}

fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

/// Prints a row for each batch size.
fn curve(
    place: Place,
    layout: Layout,
    items: u64,
    batches: &[usize],
    figures: &mut Figures,
) -> Result<(), Box<dyn Error>> {
    let mut map = place.open(layout, items)?;
    let references = Random(2).references(4_000_000.min(items as usize * 100), items);
    for &size in batches.iter().filter(|size| (1..=references.len()).contains(*size)) {
        // Another part of the references each time, so that the caches help no more than they would in use.
        let mut batches = references.chunks_exact(size).cycle();
        let mut next = || batches.next().expect("there are some");
        map.times(next())?;
        let times = (0..MEASURED).map(|_| map.times(next())).collect::<Result<Vec<BatchTimes>, _>>()?;
        let of = |part: fn(&BatchTimes) -> Duration| middle(times.iter().map(part).collect());
        let (transfer, kernels) = (of(|times| times.transfer), of(|times| times.kernels));
        let whole = of(|times| times.whole);
        // What the host pays for handing over a batch, while no other batch is waiting.
        let mut submit = Vec::new();
        for _ in 0..MEASURED {
            submit.push(timed(|| map.mark(next())));
            map.wait()?;
        }
        let submit = middle(submit);
        let (start, mut given) = (Instant::now(), 0);
        while start.elapsed() < STREAMED {
            map.mark(next());
            given += size;
        }
        map.wait()?;
        let rate = given as f64 / start.elapsed().as_secs_f64() / 1e6;
        let (layout, place) = (name(layout), place.name());
        println!(
            "| {layout} | {place} | {size} | {transfer:.1} | {kernels:.1} | {whole:.1} | {submit:.1} | {rate:.2} |"
        );
        figures.add(&serde_json::json!({
            "figure": "marks", "layout": layout, "memory": place, "items": items, "batch": size,
            "transfer_us": transfer, "kernels_us": kernels, "whole_us": whole, "submit_us": submit,
            "million_a_second": rate, "bytes_copied": if place == "CPU" { 0 } else { 4 * size },
        }))?;
    }
    Ok(())
}

/// Prints a row for each size of lookup.
fn lookups(place: Place, layout: Layout, items: u64, figures: &mut Figures) -> Result<(), Box<dyn Error>> {
    let mut map = place.open(layout, items)?;
    let references = Random(3).references(4_000_000.min(items as usize * 100), items);
    map.mark(&references);
    let digests: Vec<Digest> = references.iter().map(|reference| reference.digest()).collect();
    for size in LOOKUPS.into_iter().filter(|size| *size <= digests.len()) {
        let mut sampled = digests.chunks_exact(size).cycle();
        let mut zones = Vec::with_capacity(size);
        let mut look = || {
            zones.clear();
            map.zones(sampled.next().expect("there are some"), &mut zones);
        };
        look();
        let whole = middle((0..MEASURED).map(|_| timed(&mut look)).collect());
        map.failure()?;
        let (layout, place) = (name(layout), place.name());
        let rate = size as f64 / whole;
        println!("| {layout} | {place} | {size} | {whole:.1} | {rate:.2} |");
        figures.add(&serde_json::json!({
            "figure": "lookups", "layout": layout, "memory": place, "items": items, "batch": size,
            "whole_us": whole, "million_a_second": rate, "bytes_copied": if place == "CPU" { 0 } else { 5 * size },
        }))?;
    }
    Ok(())
}

/// Prints how long an aging of the whole map takes.
fn aging(place: Place, layout: Layout, items: u64, figures: &mut Figures) -> Result<(), Box<dyn Error>> {
    let mut map = place.open(layout, items)?;
    map.mark(&Random(4).references(1_000_000.min(items as usize), items));
    let mut times = Vec::new();
    for _ in 0..AGINGS {
        map.wait()?;
        let start = Instant::now();
        map.age();
        while map.age_some(1 << 30) {}
        map.wait()?;
        times.push(start.elapsed());
    }
    let (whole, bytes) = (middle(times), map.bytes_for(0));
    let (layout, place) = (name(layout), place.name());
    println!("| {layout} | {place} | {:.1} | {whole:.1} |", bytes as f64 / (1 << 20) as f64);
    figures.add(&serde_json::json!({
        "figure": "aging", "layout": layout, "memory": place, "items": items, "map_bytes": bytes, "whole_us": whole,
    }))?;
    Ok(())
}

/// A part that is timed, and the heading of its table.
const TIMED: [(Part, &str); 3] = [
    (
        Part::Marks,
        "| layout | memory | batch | transfer, us | kernels, us | whole, us | submit, us | million references/s |\n\
         |---|---|---:|---:|---:|---:|---:|---:|",
    ),
    (Part::Lookups, "| layout | memory | keys | whole, us | million keys/s |\n|---|---|---:|---:|---:|"),
    (Part::Aging, "| layout | memory | map, MiB | an aging, us |\n|---|---|---:|---:|"),
];

fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let file = options.json.as_ref().map(|path| File::options().append(true).create(true).open(path));
    let mut figures = Figures(file.transpose()?);
    let wanted = |part| options.part.is_empty() || options.part.contains(&part);
    let layouts = [Layout::Line, Layout::Published(PublishedOptions::default())];
    let modes = [MemoryMode::Explicit, MemoryMode::Managed];
    let device = options.device;
    println!("{}\n", CudaHitmap::open(device, Layout::Line, 1, MemoryMode::Explicit)?.processor());
    for (layout, mode) in layouts.iter().flat_map(|layout| modes.map(|mode| (*layout, mode))) {
        if wanted(Part::Same) {
            let (references, questions) = compare(device, layout, mode, options.references)?;
            let (layout, place) = (name(layout), Place::Device(device, mode).name());
            println!(
                "- {layout}, {place} memory: {references} references and {questions} questions: the bits and zones \
                 of the CPU"
            );
            figures.add(&serde_json::json!({
                "figure": "same", "layout": layout, "memory": place, "references": references,
                "questions": questions,
            }))?;
        }
    }
    println!("\nMaps for {} items. Times are medians of {MEASURED}, the rate is of batches", options.items);
    println!("that are not waited for.");
    let places = [Place::Device(device, modes[0]), Place::Device(device, modes[1]), Place::Cpu];
    for (part, heading) in TIMED.iter().filter(|(part, _)| wanted(*part)) {
        println!("\n{heading}");
        for (layout, place) in layouts.iter().flat_map(|layout| places.map(|place| (*layout, place))) {
            let items = place.items(options.items);
            match part {
                Part::Marks => curve(place, layout, items, &options.batch, &mut figures)?,
                Part::Lookups => lookups(place, layout, items, &mut figures)?,
                Part::Same | Part::Aging => aging(place, layout, items, &mut figures)?,
            }
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let Err(error) = run(&Options::parse()) else { return ExitCode::SUCCESS };
    if let Some(error @ (CudaError::NoDriver | CudaError::NoDevice { .. })) = error.downcast_ref() {
        println!("nothing measured: {error}");
        return ExitCode::SUCCESS;
    }
    eprintln!("{error}");
    ExitCode::FAILURE
}
