//! Compares the hitmap on a CUDA device with the one on the CPU, with a stand-in for the driver: every line of the
//! code runs except the device's own. `crates/laboratory/examples/cuda_curve.rs` does the same on a real device.

#![cfg(not(miri))]

mod stand_in_driver;

use std::process::Command;
use std::time::Duration;

use larder_cuda::{CudaError, CudaHitmap, Layout, MemoryMode};
use larder_temperature::{
    Answers, DeviceHitmap, Digest, Hitmap, LineHitmap, PublishedHitmap, PublishedOptions, Reference,
    ResilientHitmap,
};
use libloading::Library;
use stand_in_driver::{Driver, StandIn, folder, in_child, warnings};

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

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// A digest of one of `keys` keys, some of which are much more frequent than others.
    fn digest(&mut self, keys: u64) -> Digest {
        let end = 1 + self.below(keys);
        Digest::from_bits((self.below(end) as u32).wrapping_mul(0x9E37_79B1))
    }

    fn references(&mut self, count: u64, keys: u64) -> Vec<Reference> {
        (0..count)
            .map(|_| {
                let digest = self.digest(keys);
                if self.below(3) == 0 { Reference::store(digest) } else { Reference::read(digest) }
            })
            .collect()
    }

    fn digests(&mut self, count: u64, keys: u64) -> Vec<Digest> {
        (0..count).map(|_| self.digest(keys)).collect()
    }
}

fn published(levels: u8, hash_bits: u8, set_counter: bool) -> Layout {
    Layout::Published(PublishedOptions { levels, hash_bits, set_counter, ..PublishedOptions::default() })
}

fn layouts() -> [Layout; 6] {
    [
        Layout::Line,
        Layout::Published(PublishedOptions::default()),
        published(4, 3, false),
        published(1, 1, false),
        published(1, 2, true),
        published(6, 4, true),
    ]
}

/// The map on the CPU, with access to its words.
enum Twin {
    Line(LineHitmap),
    Published(PublishedHitmap),
}

impl Twin {
    fn new(layout: Layout, items: u64) -> Twin {
        match layout {
            Layout::Line => Twin::Line(LineHitmap::for_items(items)),
            Layout::Published(options) => Twin::Published(PublishedHitmap::for_items(items, options)),
        }
    }

    fn map(&mut self) -> &mut dyn Hitmap {
        match self {
            Twin::Line(map) => map,
            Twin::Published(map) => map,
        }
    }

    /// The words once an aging of levels is over: the device does all of it at once.
    fn words(&mut self) -> Vec<u64> {
        match self {
            Twin::Line(map) => map.words().to_vec(),
            Twin::Published(map) => {
                map.age_some(usize::MAX);
                let counters = map.counters().iter().chain(map.set_counter());
                counters.flat_map(|counter| counter.words().iter().copied()).collect()
            }
        }
    }
}

fn zones(map: &mut dyn Hitmap, digests: &[Digest]) -> Vec<u8> {
    let mut zones = vec![77];
    map.zones(digests, &mut zones);
    assert_eq!(zones.remove(0), 77, "zones are appended");
    zones
}

/// Does one random step on both maps and compares the results. Returns the number of references and digests.
fn step(random: &mut Random, map: &mut dyn Hitmap, twin: &mut dyn Hitmap, keys: u64, batch: u64) -> u64 {
    assert_eq!(map.bytes_for(0), twin.bytes_for(0));
    assert_eq!(map.levels(), twin.levels());
    match random.below(20) {
        0 => {
            // A device has aged its levels by then. The CPU begins no aging while one is in progress.
            if map.age_some(0) || !twin.age_some(0) {
                map.age();
                twin.age();
            }
        }
        1..4 => {
            let bytes = random.below(1 + twin.bytes_for(0)) as usize;
            let more = (map.age_some(bytes), twin.age_some(bytes));
            // A device ages levels at once, and gives the same zones as the CPU meanwhile.
            assert!(more.0 == more.1 || !more.0 && !twin.age_some(usize::MAX), "{more:?}");
        }
        4 => {
            let items = random.below(3 * keys);
            assert_eq!(map.bytes_for(items), twin.bytes_for(items));
            map.grow(items);
            twin.grow(items);
        }
        5..9 => {
            let count = random.below(batch);
            let digests = random.digests(count, keys);
            assert_eq!(zones(map, &digests), zones(twin, &digests));
            return count;
        }
        _ => {
            // Small batches often, large ones sometimes.
            let most = 1 + random.below(batch);
            let count = random.below(most);
            let references = random.references(count, keys);
            map.mark(&references);
            twin.mark(&references);
            return count;
        }
    }
    0
}

#[test]
fn bits_and_zones_are_those_of_the_cpu() {
    let Some(log) = in_child("bits_and_zones_are_those_of_the_cpu", Driver::StandIn, "") else {
        let stand_in = StandIn::find();
        let mut random = Random(1);
        let mut total = 0;
        for layout in layouts() {
            for mode in [MemoryMode::Explicit, MemoryMode::Managed] {
                let (keys, batch) = (30_000, 30_000);
                let mut map = CudaHitmap::open(0, layout, 100, mode).unwrap();
                let mut twin = Twin::new(layout, 100);
                let mut done = 0;
                while done < 300_000 {
                    done += step(&mut random, &mut map, twin.map(), keys, batch);
                    assert_eq!(map.error(), None);
                }
                assert_eq!(map.download().unwrap(), twin.words(), "{layout:?}");
                total += done;
                let managed = if mode == MemoryMode::Managed { ", managed memory" } else { "" };
                assert_eq!(map.processor(), format!("CUDA device 0 (stand-in{managed})"));
                // Upload the words of another map, and download them again.
                let mut words = twin.words();
                words.iter_mut().for_each(|word| *word ^= random.next() & 0xffff_ffff);
                map.upload(&words).unwrap();
                assert_eq!(map.download().unwrap(), words);
                assert_eq!(map.upload(&words[1..]), Err(CudaError::Size));
                assert_eq!(map.error(), None);
                drop(map);
                assert_eq!(stand_in.live(), 0, "all is freed");
            }
        }
        assert!(total > 3_000_000 && stand_in.launches() > 100);
        return;
    };
    assert_eq!(warnings(&log), [""; 0]);
}

#[test]
fn any_number_of_lines_will_do() {
    let Some(log) = in_child("any_number_of_lines_will_do", Driver::StandIn, "") else {
        let mut random = Random(7);
        for lines in (1..=17).chain([31, 97, 1000, 1023]) {
            let items = 11 * lines;
            let mut map = CudaHitmap::open(0, Layout::Line, items, MemoryMode::Explicit).unwrap();
            let mut twin = Twin::new(Layout::Line, items);
            assert_eq!((map.bytes_for(0), map.bytes_for(items + 1)), (64 * lines, 128 * lines));
            for nth in 0..60 {
                if nth == 30 {
                    map.grow(2 * items);
                    twin.map().grow(2 * items);
                }
                step(&mut random, &mut map, twin.map(), items, items);
                assert_eq!(map.error(), None);
            }
            assert_eq!(map.download().unwrap(), twin.words(), "{lines} lines at first, {map:?}");
            let doubled = map.bytes_for(0) / (64 * lines);
            assert!(doubled > 1 && doubled.is_power_of_two(), "{lines} lines at first, {map:?}");
            if let Twin::Line(twin) = &twin {
                assert_eq!(map.cursor(), twin.cursor());
            }
        }
        return;
    };
    assert_eq!(warnings(&log), [""; 0]);
}

#[test]
fn a_map_moves_between_threads() {
    let Some(_) = in_child("a_map_moves_between_threads", Driver::StandIn, "delay_us=500") else {
        let mut random = Random(2);
        let mut map = CudaHitmap::open(0, Layout::Line, 1000, MemoryMode::Explicit).unwrap();
        let mut twin = Twin::new(Layout::Line, 1000);
        for _ in 0..20 {
            let references = random.references(2000, 1000);
            twin.map().mark(&references);
            map = std::thread::spawn(move || {
                map.mark(&references);
                map
            })
            .join()
            .unwrap();
        }
        assert_eq!(map.download().unwrap(), twin.words());
        std::thread::spawn(move || drop(map)).join().unwrap();
        assert_eq!(StandIn::find().live(), 0);
        return;
    };
}

#[test]
fn a_batch_is_not_waited_for() {
    let Some(_) = in_child("a_batch_is_not_waited_for", Driver::StandIn, "delay_us=20000") else {
        let stand_in = StandIn::find();
        let mut map = CudaHitmap::open(0, Layout::Line, 1000, MemoryMode::Explicit).unwrap();
        let batch: Vec<Reference> = (0..100).map(|key| Reference::read(Digest::from_bits(key))).collect();
        let before = stand_in.ended();
        // No kernel ends meanwhile: a call that waited for one would not return.
        stand_in.set("hold", 1);
        map.mark(&batch);
        map.mark(&batch);
        stand_in.set("hold", 0);
        map.mark(&batch);
        // A batch runs two kernels.
        assert!(stand_in.ended() >= before + 2, "the third waits for the first");
        let digests: Vec<Digest> = batch.iter().map(|reference| reference.digest()).collect();
        assert!(
            zones(&mut map, &digests).iter().all(|zone| *zone >= 3),
            "a question sees all marks before it"
        );
        let times = map.measure(&batch).unwrap();
        assert!(times.kernels >= Duration::from_millis(39) && times.whole >= times.kernels, "{times:?}");
        return;
    };
}

/// Submits batches, and knows what each is answered.
struct Submissions<'a> {
    map: &'a mut dyn Hitmap,
    answers: Answers,
    expected: Answers,
}

impl Submissions<'_> {
    fn new(map: &mut dyn Hitmap) -> Submissions<'_> {
        Submissions { map, answers: Answers::new(), expected: Answers::new() }
    }

    fn submit(&mut self, references: &[Reference], digests: &[Digest], expected: Vec<u8>) {
        self.map.submit(references, digests, &mut self.answers);
        self.expected.push_back(expected);
    }

    /// Submits nothing until all before it is answered.
    fn settle(&mut self) {
        let submitted = self.expected.len();
        while self.answers.len() < submitted {
            zones(self.map, &[Digest::from_bits(1)]);
            self.submit(&[], &[], Vec::new());
        }
    }
}

#[test]
fn a_submission_is_not_waited_for_and_what_is_too_much_is_dropped() {
    let Some(log) =
        in_child("a_submission_is_not_waited_for_and_what_is_too_much_is_dropped", Driver::StandIn, "")
    else {
        let stand_in = StandIn::find();
        for layout in layouts() {
            let mut random = Random(11);
            let mut map = CudaHitmap::open(0, layout, 1000, MemoryMode::Explicit).unwrap();
            let mut twin = Twin::new(layout, 1000);
            let mut all = Submissions::new(&mut map);
            // Each of the four grows its pages once: a device frees nothing while it works.
            for _ in 0..4 {
                let (references, digests) = (random.references(3000, 3000), random.digests(2000, 3000));
                twin.map().mark(&references);
                all.submit(&references, &digests, zones(twin.map(), &digests));
            }
            all.settle();
            for _ in 0..30 {
                zones(all.map, &[Digest::from_bits(1)]);
                // No kernel ends meanwhile. Four submissions are under way at most.
                stand_in.set("hold", 1);
                let (submitted, late) = (all.expected.len(), all.map.late());
                for nth in 0..6 {
                    let (many, few) = (1 + random.below(3000), random.below(2000));
                    let (references, digests) = (random.references(many, 3000), random.digests(few, 3000));
                    let mut expected = Vec::new();
                    if nth < 4 {
                        twin.map().mark(&references);
                        twin.map().zones(&digests, &mut expected);
                    }
                    all.submit(&references, &digests, expected);
                }
                assert_eq!((all.answers.len(), all.map.late() - late), (submitted, 2));
                stand_in.set("hold", 0);
                all.settle();
                let digests = random.digests(500, 3000);
                assert_eq!(zones(all.map, &digests), zones(twin.map(), &digests));
            }
            let Submissions { answers, expected, .. } = all;
            assert!(expected.iter().zip(&answers).all(|(expected, answer)| expected == answer), "{layout:?}");
            assert_eq!(map.download().unwrap(), twin.words(), "{layout:?}");
        }
        return;
    };
    assert_eq!(warnings(&log), [""; 0]);
}

#[test]
fn every_submission_is_answered_even_if_the_device_is_lost() {
    let Some(log) = in_child("every_submission_is_answered_even_if_the_device_is_lost", Driver::StandIn, "")
    else {
        let stand_in = StandIn::find();
        for seed in 0..60 {
            let mut random = Random(seed);
            let layout = layouts()[seed as usize % 6];
            let map = CudaHitmap::open(0, layout, 300, MemoryMode::Explicit).unwrap();
            let mut map = ResilientHitmap::new(map);
            let order = ["refuse_launch", "refuse_copy", "refuse_answer"][seed as usize / 6 % 3];
            stand_in.set(order, 1 + random.below(20) as i64);
            let (mut answers, mut asked) = (Answers::new(), Vec::new());
            while map.lost().is_none() {
                let (many, few) = (random.below(300), 1 + random.below(300));
                let (references, digests) = (random.references(many, 2000), random.digests(few, 2000));
                asked.push(digests.len());
                map.submit(&references, &digests, &mut answers);
                if random.below(3) == 0 {
                    // The device may be lost by this call, too.
                    zones(&mut map, &digests);
                }
            }
            stand_in.set(order, 0);
            asked.push(1);
            map.submit(&[], &[Digest::from_bits(7)], &mut answers);
            assert_eq!(answers.len(), asked.len(), "{order}");
            for (answer, asked) in answers.iter().zip(&asked) {
                assert!(answer.is_empty() || answer.len() == *asked, "{} of {asked}", answer.len());
            }
            assert!(!map.is_apart() && answers.back().is_some_and(|answer| answer.len() == 1));
        }
        return;
    };
    assert_eq!(warnings(&log).iter().filter(|line| line.contains(" lost, ")).count(), 60, "{log}");
}

#[test]
fn a_device_that_does_not_answer_is_not_waited_for_but_given_up() {
    let Some(log) =
        in_child("a_device_that_does_not_answer_is_not_waited_for_but_given_up", Driver::StandIn, "")
    else {
        let stand_in = StandIn::find();
        let mut map = CudaHitmap::open(0, Layout::Line, 1000, MemoryMode::Explicit).unwrap();
        map.set_timeout(Duration::from_millis(20));
        let mut map = ResilientHitmap::new(map);
        stand_in.set("hold", 1);
        let mut random = Random(3);
        let (mut answers, mut submitted) = (Answers::new(), 0);
        while map.lost().is_none() {
            map.submit(&random.references(100, 1000), &random.digests(100, 1000), &mut answers);
            submitted += 1;
        }
        assert_eq!(answers.len(), submitted, "the CPU answers the last one, nobody the others");
        assert!(answers.iter().rev().skip(1).all(Vec::is_empty) && answers[submitted - 1].len() == 100);
        assert_eq!(map.late(), submitted as u64 - 5);
        stand_in.set("hold", 0);
        return;
    };
    let [late, lost] = warnings(&log)[..] else { panic!("{log}") };
    assert!(late.contains("CUDA device is late: ") && lost.contains("CUDA device lost, "), "{log}");
}

#[test]
fn the_map_goes_on_on_the_cpu() {
    let Some(log) = in_child("the_map_goes_on_on_the_cpu", Driver::StandIn, "") else {
        let stand_in = StandIn::find();
        let mut losses = 0;
        for seed in 0..240 {
            let mut random = Random(1000 + seed);
            let layout = layouts()[seed as usize % 6];
            let mut map =
                ResilientHitmap::new(CudaHitmap::open(0, layout, 300, MemoryMode::default()).unwrap());
            let mut twin = Twin::new(layout, 300);
            let (order, value) = match seed / 6 % 4 {
                0 => ("refuse_launch", 1 + random.below(40)),
                1 => ("refuse_copy", 1 + random.below(20)),
                2 => ("refuse_answer", 1 + random.below(5)),
                _ => ("memory", 100_000),
            };
            stand_in.set(order, value as i64);
            for _ in 0..100 {
                step(&mut random, &mut map, twin.map(), 2000, 500);
            }
            let all: Vec<Digest> =
                (0..2000u32).map(|key| Digest::from_bits(key.wrapping_mul(0x9E37_79B1))).collect();
            assert_eq!(zones(&mut map, &all), zones(twin.map(), &all), "nothing is forgotten, nothing added");
            stand_in.set(order, 0);
            if let Some(why) = map.lost() {
                assert_eq!(map.processor(), format!("the CPU (CUDA device lost: {why})"));
                losses += 1;
            }
            drop(map);
            assert_eq!(stand_in.live(), 0, "all is freed");
        }
        eprintln!("LOSSES {losses}");
        return;
    };
    let losses = log.lines().find_map(|line| line.strip_prefix("LOSSES ")).unwrap();
    assert!(losses.parse::<usize>().unwrap() > 120, "{losses} losses");
    assert_eq!(warnings(&log).len().to_string(), losses, "one line for each loss\n{log}");
    assert!(
        warnings(&log).iter().all(|line| line.contains("the hitmap moves to the CPU with its bits: ")),
        "{log}"
    );
}

#[test]
fn an_aging_that_is_refused_is_brought_to_its_end() {
    let Some(log) = in_child("an_aging_that_is_refused_is_brought_to_its_end", Driver::StandIn, "") else {
        let stand_in = StandIn::find();
        let options = PublishedOptions::default();
        for refused in 1..=3 {
            let mut random = Random(refused);
            let mut map = CudaHitmap::open(0, Layout::Published(options), 500, MemoryMode::Explicit).unwrap();
            let mut twin = Twin::new(Layout::Published(options), 500);
            for _ in 0..6 {
                let references = random.references(300, 300);
                map.mark(&references);
                twin.map().mark(&references);
            }
            let mut map = ResilientHitmap::new(map);
            stand_in.set("refuse_launch", refused as i64);
            map.age();
            assert!(map.lost().is_some());
            twin.map().age();
            let digests = random.digests(3000, 1000);
            assert_eq!(zones(&mut map, &digests), zones(twin.map(), &digests));
        }
        return;
    };
    assert_eq!(warnings(&log).len(), 3, "{log}");
}

/// What is done to a map when its device is lost: every call that can find out about the loss.
const WAYS: [fn(&mut dyn Hitmap); 4] = [
    |map| (0..4).for_each(|_| map.mark(&[Reference::read(Digest::from_bits(1))])),
    |map| drop(zones(map, &[Digest::from_bits(1)])),
    |map| {
        map.age();
        map.age_some(usize::MAX);
        drop(zones(map, &[Digest::from_bits(1)]));
    },
    |map| map.grow(1_000_000),
];

#[test]
fn a_lost_device_leaves_an_empty_map() {
    for (order, value) in [("lost", 719), ("lose", 1), ("hang", 1), ("refuse_answers", 1)] {
        for way in 0..WAYS.len() {
            let orders = format!("order={order},value={value},way={way}");
            let ordered = |name: &str| {
                let orders = std::env::var("STAND_IN").unwrap();
                let value = orders
                    .split(',')
                    .find_map(|order| order.strip_prefix(&format!("{name}=")).map(String::from));
                value.unwrap()
            };
            let Some(log) = in_child("a_lost_device_leaves_an_empty_map", Driver::StandIn, &orders) else {
                let stand_in = StandIn::find();
                let mut map = CudaHitmap::open(0, Layout::Line, 1000, MemoryMode::Explicit).unwrap();
                if ordered("order") == "hang" {
                    map.set_timeout(Duration::from_secs(1));
                }
                let mut map = ResilientHitmap::new(map);
                let old: Vec<Reference> =
                    (0..500).map(|key| Reference::read(Digest::from_bits(key))).collect();
                let digests: Vec<Digest> = old.iter().map(|reference| reference.digest()).collect();
                map.mark(&old);
                assert!(zones(&mut map, &digests).iter().all(|zone| *zone >= 1));
                assert_eq!(map.main_memory_bytes_for(5_000_000), 0, "the map is in the memory of the device");
                // If the bits cannot be read back, the map is lost as soon as another call is refused.
                if ordered("order") == "refuse_answers" {
                    stand_in.set("refuse_launch", 1);
                }
                stand_in.set(&ordered("order"), ordered("value").parse().unwrap());
                WAYS[ordered("way").parse::<usize>().unwrap()](&mut map);
                if map.lost().is_none() {
                    // A growth starts no kernel, but the next batch does.
                    map.mark(&old);
                }
                let before = zones(&mut map, &digests);
                assert!(map.lost().is_some(), "{map:?}");
                assert!(map.processor().starts_with("the CPU (CUDA device lost: "), "{}", map.processor());
                assert!(before.iter().filter(|zone| **zone > 1).count() < 50, "the old bits are gone");
                map.mark(&old);
                assert!(zones(&mut map, &digests).iter().all(|zone| *zone >= 1), "it is a map again");
                map.age();
                assert!(!map.age_some(usize::MAX));
                map.grow(100_000);
                let bytes = map.bytes_for(5_000_000);
                assert_eq!((map.main_memory_bytes_for(5_000_000), bytes > 5_000_000), (bytes, true));
                return;
            };
            let warnings = warnings(&log);
            assert_eq!(warnings.len(), 1, "{orders}\n{log}");
            assert!(warnings[0].contains("the hitmap begins anew on the CPU: "), "{orders}\n{log}");
            let why = match order {
                "lost" | "lose" => "CUDA_ERROR_LAUNCH_FAILED (719)",
                "hang" => "no answer from the device in 1.0 s",
                _ => "CUDA_ERROR_",
            };
            assert!(warnings[0].contains(why), "{orders}\n{log}");
        }
    }
}

#[test]
fn a_device_that_hangs_is_left_alone() {
    let Some(_) = in_child("a_device_that_hangs_is_left_alone", Driver::StandIn, "") else {
        let stand_in = StandIn::find();
        let mut map = CudaHitmap::open(0, Layout::Line, 1000, MemoryMode::Explicit).unwrap();
        map.set_timeout(Duration::from_millis(300));
        stand_in.set("hang", 1);
        map.mark(&[Reference::read(Digest::from_bits(1))]);
        assert_eq!(map.error(), None, "no call has waited for it yet");
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            drop(map);
            sender.send(()).unwrap();
        });
        receiver.recv_timeout(Duration::from_secs(60)).expect("the map is given up");
        assert!(stand_in.live() > 10, "what the device may still write to is not freed");
        return;
    };
}

#[test]
fn a_number_that_no_header_knows_is_an_error_too() {
    let Some(log) =
        in_child("a_number_that_no_header_knows_is_an_error_too", Driver::StandIn, "launch_code=54321")
    else {
        let mut map =
            ResilientHitmap::new(CudaHitmap::open(0, Layout::Line, 1000, MemoryMode::Explicit).unwrap());
        StandIn::find().set("refuse_launch", 2);
        map.mark(&[Reference::read(Digest::from_bits(1))]);
        assert_eq!(
            map.processor(),
            "the CPU (CUDA device lost: starting a kernel: an error without a name (54321))"
        );
        assert_eq!(zones(&mut map, &[Digest::from_bits(1)]), [1], "the batch that was refused is marked");
        return;
    };
    assert_eq!(warnings(&log).len(), 1, "{log}");
}

#[test]
fn a_map_that_cannot_be_opened_says_why() {
    let cases = [
        ("init=100", 0, "no CUDA device 0 on this machine: the driver sees none"),
        ("devices=0", 0, "no CUDA device 0 on this machine: the driver sees none"),
        ("devices=1", 1, "no CUDA device 1 on this machine: there is only device 0"),
        ("devices=4", 7, "no CUDA device 7 on this machine: there are 0 to 3"),
        ("init=803", 0, "starting the CUDA driver: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)"),
        ("lost=999", 0, "opening the device: CUDA_ERROR_UNKNOWN (999)"),
        ("memory=50000", 0, "allocating memory on the device: CUDA_ERROR_OUT_OF_MEMORY (2)"),
    ];
    for (at, (orders, number, _)) in cases.into_iter().enumerate() {
        let orders = format!("case={at},{orders}");
        let Some(log) = in_child("a_map_that_cannot_be_opened_says_why", Driver::StandIn, &orders) else {
            let orders = std::env::var("STAND_IN").unwrap();
            let at: usize = orders.split(['=', ',']).nth(1).unwrap().parse().unwrap();
            let (_, number, expected) = cases[at];
            let stand_in = StandIn::find();
            if orders.contains("lost=") {
                stand_in.set("lost", 999);
            }
            let error = CudaHitmap::open(number, Layout::Line, 10_000, MemoryMode::Explicit).unwrap_err();
            assert_eq!(error.to_string(), expected);
            if !orders.contains("lost=") {
                assert_eq!(stand_in.live(), 0, "all is freed");
            }
            return;
        };
        assert_eq!(warnings(&log), [""; 0], "device {number}");
    }
}

#[test]
fn a_machine_without_a_driver_says_so() {
    let Some(_) = in_child("a_machine_without_a_driver_says_so", Driver::OfTheMachine, "") else {
        // On a machine with a driver this test checks nothing.
        match CudaHitmap::open(0, Layout::Line, 10_000, MemoryMode::Explicit) {
            Err(error @ CudaError::NoDriver) => {
                assert_eq!(error.to_string(), "no CUDA driver on this machine (libcuda.so.1 was not found)");
            }
            // SAFETY: the library is only loaded.
            found => assert!(unsafe { Library::new("libcuda.so.1") }.is_ok(), "{found:?}"),
        }
        return;
    };
}

#[test]
fn a_driver_that_lacks_a_function_is_none() {
    let Some(_) = in_child("a_driver_that_lacks_a_function_is_none", Driver::Incomplete, "") else {
        let error = CudaHitmap::open(0, Layout::Line, 10_000, MemoryMode::Explicit).unwrap_err();
        assert_eq!(error.to_string(), "the CUDA driver on this machine has no cuGetErrorName");
        return;
    };
}

#[test]
fn growth_takes_the_old_and_the_new_map() {
    let Some(_) = in_child("growth_takes_the_old_and_the_new_map", Driver::StandIn, "") else {
        let stand_in = StandIn::find();
        let mut random = Random(5);
        for layout in [Layout::Line, Layout::Published(PublishedOptions::default())] {
            let mut map = CudaHitmap::open(0, layout, 10, MemoryMode::Explicit).unwrap();
            let mut twin = Twin::new(layout, 10);
            let managed = CudaHitmap::open(0, layout, 10, MemoryMode::Managed).unwrap();
            assert_eq!(managed.main_memory_bytes_for(9999), managed.bytes_for(9999), "it may be anywhere");
            drop(managed);
            let references = random.references(40, 100);
            // From one line to 2^17 lines, which takes more than one step of growth.
            for items in [0, 1_200_000, 2_400_000, 2_000_000] {
                map.mark(&references);
                twin.map().mark(&references);
                map.age();
                twin.map().age();
                let bytes = map.bytes_for(0) / 2 + 10;
                let more = (map.age_some(bytes as usize), twin.map().age_some(bytes as usize));
                assert_eq!(more, (layout == Layout::Line, true), "a device ages levels at once");
                map.grow(items);
                twin.map().grow(items);
                assert!(map.error().is_none(), "{map:?}");
                assert!(map.download().unwrap() == twin.words(), "{map:?}");
                if let Twin::Line(twin) = &twin {
                    assert_eq!(map.cursor(), twin.cursor());
                }
                assert_eq!(map.age_some(usize::MAX), twin.map().age_some(usize::MAX));
                assert!(map.download().unwrap() == twin.words(), "{map:?}");
            }
            let pages = 100_000;
            assert!(stand_in.device_bytes_max() <= map.bytes_for(0) as i64 * 3 / 2 + pages);
        }
        return;
    };
}

/// The kernels compiled for the host, without a driver.
struct HostKernels(Library);

impl HostKernels {
    /// Runs a kernel in `threads` threads and three more, the last one first.
    fn run(&self, threads: usize, kernel: impl Fn(&Library)) {
        for thread in (0..threads as u64 + 3).rev() {
            // SAFETY: the function has this type.
            unsafe {
                self.0.get::<unsafe extern "C" fn(u64)>(b"set_thread_number\0").unwrap()(thread);
            }
            kernel(&self.0);
        }
    }
}

#[test]
fn a_kernel_by_itself_does_what_its_part_of_the_map_does() {
    // SAFETY: only the kernels of the library are used.
    let kernels = HostKernels(unsafe { Library::new(folder().join("libcuda.so.1")) }.unwrap());
    let mut random = Random(9);
    let mut map = LineHitmap::for_items(100);
    for _ in 0..12 {
        let references = random.references(60, 80);
        let digests: Vec<Digest> = references.iter().map(|reference| reference.digest()).collect();
        let before = map.words().to_vec();
        let (mut words, lines, count) = (before.clone(), before.len() as u64 / 8, references.len() as u32);
        let mut found = vec![0u8; references.len()];
        let zones_at = found.as_mut_ptr();
        kernels.run(references.len(), |library| {
            type Zones = unsafe extern "C" fn(*const u64, u64, *const Reference, u32, *mut u8);
            // SAFETY: the kernel has this type. A reference is a number of 32 bits, and each slice has `count`
            // elements.
            unsafe {
                let kernel = library.get::<Zones>(b"line_zones\0").unwrap();
                kernel(before.as_ptr(), lines, references.as_ptr(), count, zones_at);
            }
        });
        assert_eq!(found, zones(&mut map, &digests));
        let words_at = words.as_mut_ptr();
        kernels.run(references.len(), |library| {
            type Mark = unsafe extern "C" fn(*mut u64, u64, *const Reference, *const u8, u32);
            // SAFETY: as above.
            unsafe {
                let kernel = library.get::<Mark>(b"line_mark\0").unwrap();
                kernel(words_at, lines, references.as_ptr(), found.as_ptr(), count);
            }
        });
        map.mark(&references);
        assert_eq!(words, map.words());
    }
    let mut words = map.words().to_vec();
    let words_at = words.as_mut_ptr();
    kernels.run(5, |library| {
        // SAFETY: the kernel has this type, and there are 10 lines.
        unsafe {
            library.get::<unsafe extern "C" fn(*mut u64, u64, u64)>(b"line_fold\0").unwrap()(words_at, 0, 5);
        }
    });
    map.age();
    assert!(map.age_some(5 * 64));
    assert_eq!(words, map.words());
}

#[test]
fn the_text_for_the_driver_is_of_this_source() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/regenerate.sh");
    let output = Command::new(script).arg("--check").output().unwrap();
    println!("{}", String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
