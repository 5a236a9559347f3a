use super::*;
use crate::device::{
    Device, DeviceCounters, Geometry, PAGE_BYTES, PageBuffer, ReadQueue, ZoneId, ZoneReport,
};
use crate::generation::{DataPages, Generations, Next, Released};
use crate::hit_bits::HitBits;
use crate::page::{self, PAYLOAD_BYTES};
use crate::record::{Decoded, mix};
use crate::segment::{Gap, Run, SegmentSummary, Writer};
use crate::test_devices::MemoryDevice;
use larder_item::KeyHasher;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

const NOW: u32 = 1_800_000_000;

/// A memory device on which some pages cannot be read.
struct Scratched {
    device: MemoryDevice,
    bad: Mutex<BTreeSet<(u32, u64)>>,
}

impl Device for Scratched {
    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }
    fn describe(&self) -> String {
        "scratched".into()
    }
    fn report(&self, zone: ZoneId) -> Result<ZoneReport, DeviceError> {
        self.device.report(zone)
    }
    fn append(&self, zone: ZoneId, pages: &[u8]) -> Result<u64, DeviceError> {
        self.device.append(zone, pages)
    }
    fn read(&self, zone: ZoneId, offset: u64, into: &mut PageBuffer) -> Result<(), DeviceError> {
        let first = offset / PAGE_BYTES as u64;
        let pages = (zone.0, first)..(zone.0, first + into.pages() as u64);
        if self.bad.lock().unwrap().range(pages).next().is_some() {
            return Err(DeviceError::State { zone, what: "scratched" });
        }
        self.device.read(zone, offset, into)
    }
    fn finish(&self, zone: ZoneId) -> Result<(), DeviceError> {
        self.device.finish(zone)
    }
    fn reset(&self, zone: ZoneId) -> Result<(), DeviceError> {
        self.device.reset(zone)
    }
    fn sync(&self) -> Result<(), DeviceError> {
        Ok(())
    }
    fn counters(&self) -> DeviceCounters {
        self.device.counters()
    }
    fn reads(&self, depth: u32) -> Result<Box<dyn ReadQueue>, DeviceError> {
        self.device.reads(depth)
    }
}

/// Zones that are free, and the next sequence.
struct Free {
    zones: Vec<ZoneId>,
    sequence: u64,
    zone_pages: u32,
    /// Zones that a merge has asked for, and refusals to come before each.
    refusals: u32,
    refused: u32,
    written: Vec<(ZoneId, u64)>,
}

impl Rooms for Free {
    fn room(&mut self, _kind: Kind) -> Option<Room> {
        if self.refused < self.refusals {
            self.refused += 1;
            return None;
        }
        self.refused = 0;
        Some(Room { zone: self.zones.pop()?, first_page: 0, pages: self.zone_pages })
    }
    fn sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }
    fn written(&mut self, summary: &SegmentSummary) {
        self.written.push((summary.zone, summary.head.sequence));
    }
}

/// A version of a key: `None` is a tombstone.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Version {
    value: Option<Vec<u8>>,
    expires_unix_s: u32,
    supersedes_extent: bool,
}

fn value(text: &str) -> Version {
    Version { value: Some(text.into()), expires_unix_s: 0, supersedes_extent: false }
}

fn tombstone() -> Version {
    Version { value: None, expires_unix_s: 0, supersedes_extent: false }
}

/// A tier of the simplest kind: every log segment is asked, one after the other.
struct Tier {
    device: Scratched,
    hasher: KeyHasher,
    free: Free,
    log: Vec<(SegmentSummary, HitBits)>,
    generations: Generations,
    keep_percent: u8,
    cutoff_s: u32,
    dead_extents: bool,
    /// Segments below this sequence have lost the hashes with this highest bit.
    dropped: Option<(u64, u64)>,
    step_pages: u64,
    last: MergeCounts,
    lost_marks: bool,
}

/// What a lookup found: a version or a tombstone, nothing, or a page that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Version(Version),
    Nothing,
    Damaged,
}

impl Tier {
    fn new(zones: u32, zone_pages: u32, filter_budget: u64, cache_bytes: u64) -> Tier {
        let device = MemoryDevice::new(zones, zone_pages as u64);
        let zones = (2..zones).rev().map(ZoneId).collect();
        Tier {
            device: Scratched { device, bad: Mutex::default() },
            hasher: KeyHasher::with_seed(5),
            free: Free { zones, sequence: 0, zone_pages, refusals: 0, refused: 0, written: Vec::new() },
            log: Vec::new(),
            generations: Generations::new(filter_budget, cache_bytes),
            keep_percent: 100,
            cutoff_s: 0,
            dead_extents: false,
            dropped: None,
            step_pages: 3,
            last: MergeCounts::default(),
            lost_marks: false,
        }
    }

    fn head(&mut self, kind: Kind) -> Head {
        Head {
            kind,
            sequence: self.free.sequence(),
            sealed_sequence: self.free.sequence,
            device_uuid: [1; 16],
            cas_base: 0,
            generation: 0,
            first_hash: 0,
            last_hash: u64::MAX,
            begun_unix_s: NOW,
        }
    }

    /// Writes a log segment.
    fn flush(&mut self, versions: &BTreeMap<Vec<u8>, Version>) {
        let mut sorted: Vec<_> =
            versions.iter().map(|(key, version)| (self.hasher.hash(key).0, key, version)).collect();
        sorted.sort_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)));
        let head = self.head(Kind::Log);
        let zone = self.free.zones.pop().expect("a free zone");
        let mut writer = Writer::begin(&self.device, zone, 0, head, 16, sorted.len() as u32, false);
        for (hash, key, version) in &sorted {
            let record = Record {
                value: version.value.as_deref().unwrap_or_default(),
                expires_unix_s: version.expires_unix_s,
                cas: version.value.is_some() as u64,
                tombstone: version.value.is_none(),
                ..Record::tombstone(key, version.supersedes_extent)
            };
            writer.push(*hash, &record).unwrap();
        }
        let summary = writer.finish().unwrap();
        self.log.push((summary, HitBits::new(2 * sorted.len() as u64)));
    }

    fn released(&mut self, released: Released) {
        let list = self.generations.list();
        let mut used: BTreeSet<u32> = BTreeSet::new();
        for generation in list.newest_first() {
            used.extend(generation.chunks().iter().map(|chunk| chunk.run.zone.0));
        }
        let gone = released.chunks.iter().map(|chunk| chunk.run.zone);
        let gone: BTreeSet<ZoneId> = gone.filter(|zone| !used.contains(&zone.0)).collect();
        let runs = released.address.iter().flat_map(|run| run.segments()).map(|segment| segment.run.zone);
        for zone in gone.into_iter().chain(runs.collect::<Vec<_>>()) {
            self.device.reset(zone).unwrap();
            self.free.zones.push(zone);
        }
    }

    /// Merges all of the log; with `abandon`, stops there after that number of steps.
    fn merge(&mut self, abandon: Option<u32>) -> Option<Released> {
        self.merge_and_collect(abandon, 0, false)
    }

    /// Merges all of the log and collects `zones` zones of generations. With `crashes` nothing is installed, and
    /// nothing released: a restart has to follow.
    fn merge_and_collect(&mut self, abandon: Option<u32>, zones: usize, crashes: bool) -> Option<Released> {
        let (list, hits) = (self.generations.list(), self.generations.hits());
        let zones = self.generations.zones_to_collect(NOW, zones).into_iter().map(|(zone, _)| zone).collect();
        let older = Arc::new(list.without(&zones));
        let (mut inputs, collected) = Collected::inputs(&list, &zones, &hits);
        let items = self.log.iter().map(|(summary, _)| summary.items as u64).sum();
        let wanted = self.generations.wanted(items, !zones.is_empty());
        let settings = Settings {
            device: &self.device,
            hasher: &self.hasher,
            device_uuid: [1; 16],
            now_unix_s: NOW,
            cutoff_s: self.cutoff_s,
            keep_percent: self.keep_percent,
            dead_extents: &|_| self.dead_extents,
            deleted: &|_, _| false,
            dropped: &|hash, sequence| {
                self.dropped.is_some_and(|(below, half)| sequence < below && hash >> 63 == half)
            },
            read_pages: 4,
            chunk_read_pages: 4,
            write_pages: 8,
        };
        inputs.extend(self.log.iter().map(|(summary, hits)| Input {
            run: Run::of(summary),
            age: summary.head.sequence,
            hashes: (0, u64::MAX),
            sealed_sequence: summary.head.sealed_sequence,
            hits: Some(hits),
        }));
        let (number, address_number) = (self.free.sequence(), self.free.sequence());
        let mut merge = Merge::begin(settings, (&inputs, collected), older, wanted, number, address_number);
        let mut steps = 0;
        loop {
            if abandon == Some(steps) {
                for room in merge.abort() {
                    self.device.reset(room.zone).unwrap();
                    self.free.zones.push(room.zone);
                }
                return None;
            }
            steps += 1;
            assert!(steps < 100_000, "no end");
            match merge.step(self.step_pages, &mut self.free).unwrap() {
                Progress::Done => break,
                Progress::NeedsRoom(kind) => assert!(self.free.refused > 0, "no room for {kind:?}"),
                Progress::Working => {}
            }
        }
        let merged = merge.finish().expect("it is done");
        (self.last, self.lost_marks) = (merged.counts, merged.lost_marks);
        if crashes {
            return None;
        }
        let released = self.generations.install(merged.generation, merged.address, &merged.voids, &zones);
        for zone in zones {
            self.device.reset(zone).unwrap();
            self.free.zones.push(zone);
        }
        for (summary, _) in std::mem::take(&mut self.log) {
            self.device.reset(summary.zone).unwrap();
            self.free.zones.push(summary.zone);
        }
        self.released(released);
        Some(Released::default())
    }

    fn drop_oldest_zone(&mut self) {
        if let Some(zone) = self.generations.oldest_zone() {
            let released = self.generations.drop_zone(zone);
            assert!(!released.chunks.is_empty());
            self.released(released);
        }
    }

    fn read(&self, at: &DataPages, key: &[u8]) -> Seen {
        let mut buffer = PageBuffer::new(at.pages as usize);
        if self.device.read(at.zone, at.page as u64 * PAGE_BYTES as u64, &mut buffer).is_err() {
            return Seen::Damaged;
        }
        let Ok((mut piece, first)) = page::compact(&mut buffer, at.sequence, at.page) else {
            return Seen::Damaged;
        };
        piece = &piece[first.unwrap_or(piece.len())..];
        while !piece.is_empty()
            && let Decoded::Whole(record, bytes) = Record::decode(piece, at.cas_base)
        {
            if record.is(key, 0, 0) {
                return Seen::Version(Version {
                    value: (!record.tombstone).then(|| record.value.to_vec()),
                    expires_unix_s: record.expires_unix_s,
                    supersedes_extent: record.supersedes_extent,
                });
            }
            piece = &piece[bytes..];
        }
        Seen::Nothing
    }

    /// What the generations have, and how many reads it took; at most `reads_max`.
    fn find_old(&self, key: &[u8], reads_max: u32) -> (Seen, u32) {
        let mut search = self.generations.search(self.hasher.hash(key).0, 0);
        let mut reads = 0;
        loop {
            match search.next() {
                Next::Data(at) if reads < reads_max => {
                    reads += 1;
                    let seen = self.read(&at, key);
                    if seen != Seen::Nothing {
                        return (seen, reads);
                    }
                }
                Next::Address(at) if reads + 1 < reads_max => {
                    reads += 1;
                    let mut buffer = PageBuffer::new(at.pages as usize);
                    let read = self.device.read(at.zone, at.page as u64 * PAGE_BYTES as u64, &mut buffer);
                    let Ok((payload, _)) =
                        read.map(|()| page::compact(&mut buffer, at.sequence, at.page).unwrap())
                    else {
                        return (Seen::Damaged, reads);
                    };
                    assert!(search.address_page(payload));
                    self.generations.keep_page(at, payload);
                }
                _ => return (Seen::Nothing, reads),
            }
        }
    }

    fn find(&self, key: &[u8], reads_max: u32) -> Seen {
        let hash = self.hasher.hash(key).0;
        for (summary, _) in self.log.iter().rev() {
            let pages = summary.fences.page(hash);
            if pages.count > 0 {
                let at = DataPages {
                    generation: 0,
                    zone: summary.zone,
                    page: summary.first_page + 1 + pages.first,
                    pages: pages.count,
                    sequence: summary.head.sequence,
                    cas_base: 0,
                };
                let seen = self.read(&at, key);
                if seen != Seen::Nothing {
                    return seen;
                }
            }
        }
        self.find_old(key, reads_max).0
    }
}

/// The newest version of every key.
#[derive(Default)]
struct Twin {
    newest: HashMap<Vec<u8>, Version>,
}

impl Twin {
    /// Asserts that a lookup finds the newest version or nothing; how many lookups found nothing though there is one.
    fn check(&self, tier: &Tier, reads_max: u32) -> u32 {
        let mut missing = 0;
        for (key, newest) in &self.newest {
            match (tier.find(key, reads_max), &newest.value) {
                (Seen::Version(found), Some(_)) if found.value.is_some() => {
                    assert_eq!(found.value, newest.value)
                }
                (Seen::Version(found), _) => assert_eq!(found.value, None, "{key:?}"),
                (_, value) => missing += value.is_some() as u32,
            }
            if newest.value.is_none() {
                assert!(!matches!(tier.find(key, reads_max), Seen::Version(Version { value: Some(_), .. })));
            }
        }
        missing
    }
}

#[derive(Clone, Debug)]
enum Act {
    /// Puts and deletes, in one segment: key, bytes of the value (`None` deletes), expiry, whether it is read then.
    Flush(Vec<(u16, Option<u16>, bool, bool)>),
    Merge,
    /// The number of zones of generations that are collected. The machine may crash before the merge is noted.
    Collect(usize, bool),
    Abandon(u32, usize),
    DropZone,
    Restart,
}

fn act() -> impl Strategy<Value = Act> {
    let item = (0u16..400, prop::option::weighted(0.85, 0u16..900), prop::bool::weighted(0.1), any::<bool>());
    prop_oneof![
        6 => prop::collection::vec(item, 1..120).prop_map(Act::Flush),
        3 => Just(Act::Merge),
        3 => (1usize..12, prop::bool::weighted(0.2)).prop_map(|(zones, crashes)| Act::Collect(zones, crashes)),
        1 => (0u32..20, 0usize..8).prop_map(|(steps, zones)| Act::Abandon(steps, zones)),
        1 => Just(Act::DropZone),
        1 => Just(Act::Restart),
    ]
}

/// Everything that a restart finds, by kind and row.
fn restart(tier: &mut Tier, filter_budget: u64) {
    let pages = tier.free.zone_pages;
    let mut rows: BTreeMap<(bool, u64), Vec<SegmentSummary>> = BTreeMap::new();
    for zone in (0..tier.device.geometry().zones).map(ZoneId) {
        let mut at = 0;
        while let Ok(Some(head)) = crate::segment::read_head(&tier.device, zone, at) {
            let found = crate::segment::read_foot(&tier.device, zone, &head, at, pages).unwrap();
            let Some(summary) = found else { break };
            at += summary.pages;
            if matches!(head.kind, Kind::Generation | Kind::Address) {
                rows.entry((head.kind == Kind::Address, head.generation)).or_default().push(summary);
            }
        }
    }
    let (mut generations, mut address) = (Vec::new(), None);
    for ((is_address, _), segments) in rows {
        if is_address {
            let covers = crate::address::AddressRun::covered(&tier.device, &segments);
            address = crate::address::AddressRun::of(segments, covers).or(address);
        } else {
            generations.extend(Generation::of(segments));
        }
    }
    tier.generations = Generations::new(filter_budget, 0);
    let released = tier.generations.restore(generations, address);
    tier.released(released);
}

/// Makes a page unreadable that a merge may read: of the log, of a generation, or of the address run. Says whether it
/// did.
fn scratch(tier: &Tier, bad: Option<u64>) -> bool {
    let list = tier.generations.list();
    let mut runs: Vec<Run> = tier.log.iter().map(|(summary, _)| Run::of(summary)).collect();
    runs.extend(list.newest_first().iter().flat_map(|generation| generation.chunks()).map(|chunk| chunk.run));
    runs.extend(list.address().iter().flat_map(|run| run.segments()).map(|segment| segment.run));
    let Some(bad) = bad.filter(|_| !runs.is_empty()) else { return false };
    let run = runs[bad as usize % runs.len()];
    let page = run.first_data_page as u64 + mix(bad) % run.data_pages as u64;
    tier.device.bad.lock().unwrap().insert((run.zone.0, page));
    true
}

fn run(acts: Vec<Act>, budget: u64, cache: u64, keep_percent: u8, refusals: u32, bad: Option<u64>) {
    let mut tier = Tier::new(700, 24, budget, cache);
    (tier.keep_percent, tier.free.refusals, tier.cutoff_s) = (keep_percent, refusals, 60);
    let mut twin = Twin::default();
    let (mut version, mut dropped) = (0, keep_percent < 100);
    for act in acts {
        match act {
            Act::Flush(items) => {
                let mut versions = BTreeMap::new();
                let mut read = Vec::new();
                for (key, bytes, expires, hit) in items {
                    version += 1;
                    let key = format!("key {key}").into_bytes();
                    let value = bytes.map(|bytes| {
                        let mut value = format!("{version}:").into_bytes();
                        value.resize(value.len() + bytes as usize, b'.');
                        value
                    });
                    // What expires in half a minute is within the cut-off window.
                    let expires_unix_s = if expires && value.is_some() { NOW + 30 } else { 0 };
                    dropped |= expires_unix_s != 0;
                    read.extend(hit.then(|| tier.hasher.hash(&key).0));
                    versions.insert(key, Version { value, expires_unix_s, supersedes_extent: false });
                }
                // The bytes that a zone has room for.
                while versions.values().map(|v| v.value.as_ref().map_or(0, Vec::len) + 24).sum::<usize>()
                    > 18 * 4000
                {
                    versions.pop_first();
                }
                tier.flush(&versions);
                let (_, hits) = tier.log.last().unwrap();
                read.iter().for_each(|hash| hits.mark(*hash));
                twin.newest.extend(versions);
            }
            Act::Merge => {
                dropped |= scratch(&tier, bad);
                tier.merge(None);
                tier.device.bad.lock().unwrap().clear();
            }
            Act::Collect(zones, crashes) => {
                dropped |= scratch(&tier, bad);
                tier.merge_and_collect(None, zones, crashes);
                tier.device.bad.lock().unwrap().clear();
                if crashes {
                    restart(&mut tier, budget);
                }
            }
            Act::Abandon(steps, zones) => {
                // If it came to its end first nothing is to be seen of it either.
                tier.merge_and_collect(Some(steps), zones, false);
            }
            Act::DropZone => {
                dropped = true;
                tier.drop_oldest_zone();
            }
            Act::Restart => {
                let before = tier.generations.list().newest_first().len();
                restart(&mut tier, budget);
                let after = tier.generations.list().newest_first().len();
                assert!(dropped || before == after, "{before} generations before, {after} after");
            }
        }
        // A filter may be wrong twice on the way, so only without a bound on reads nothing is missing.
        let missing = twin.check(&tier, 40);
        assert!(missing == 0 || dropped, "{missing} missing");
        twin.check(&tier, 2);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_lookup_finds_the_newest_version_or_nothing(
        acts in prop::collection::vec(act(), 1..25),
        budget in prop::sample::select(vec![0, 700, 3000, 1 << 20]),
        cache in prop::sample::select(vec![0, 9000]),
        keep_percent in prop::sample::select(vec![0, 50, 100]),
        refusals in 0u32..3,
    ) {
        run(acts, budget, cache, keep_percent, refusals, None);
    }

    #[test]
    fn damaged_pages_cost_items_and_bring_none_back(
        acts in prop::collection::vec(act(), 1..25),
        budget in prop::sample::select(vec![0, 3000, 1 << 20]),
        bad in any::<u64>(),
    ) {
        // Whatever is stepped over, nothing stale is found afterwards.
        run(acts, budget, 0, 100, 0, Some(bad));
    }
}

fn versions(items: &[(&str, Version)]) -> BTreeMap<Vec<u8>, Version> {
    items.iter().map(|(key, version)| (key.as_bytes().to_vec(), version.clone())).collect()
}

#[test]
fn a_tombstone_stays_while_something_older_may_hold_the_key() {
    let mut tier = Tier::new(40, 24, 1 << 20, 0);
    tier.flush(&versions(&[("a", value("1")), ("b", value("1"))]));
    tier.merge(None);
    tier.flush(&versions(&[("a", tombstone()), ("c", tombstone())]));
    tier.merge(None);
    assert_eq!((tier.last.tombstones_kept, tier.last.tombstones_dropped), (1, 1));
    assert_eq!(tier.find(b"a", 2), Seen::Version(tombstone()));
    assert_eq!(tier.find(b"c", 2), Seen::Nothing);
    tier.drop_oldest_zone();
    assert_eq!(tier.find(b"b", 2), Seen::Nothing);
    // Nothing is older than a tombstone of the first generation.
    tier.flush(&versions(&[("b", tombstone())]));
    tier.drop_oldest_zone();
    tier.merge(None);
    assert_eq!((tier.last.tombstones_kept, tier.last.tombstones_dropped), (0, 1));
    assert!(tier.generations.list().newest_first().is_empty());
}

#[test]
fn a_crash_before_a_collected_part_is_released_brings_nothing_back() {
    let mut tier = Tier::new(60, 24, 1 << 20, 0);
    let keys: Vec<String> = (0..200).map(|n| format!("key {n}")).collect();
    tier.flush(&keys.iter().map(|key| (key.as_bytes().to_vec(), value("old"))).collect());
    tier.merge(None);
    for half in keys.chunks(100) {
        let mut newer: BTreeMap<_, _> =
            half.iter().map(|key| (key.as_bytes().to_vec(), tombstone())).collect();
        newer.extend(half.iter().map(|key| (format!("filling {key}").into_bytes(), value(&"x".repeat(600)))));
        tier.flush(&newer);
    }
    tier.merge(None);
    let list = tier.generations.list();
    assert!(list.newest_first()[0].chunks().len() > 1, "a part of it can be collected");
    // All of the older generation and the first part of the newer one are collected, and both are still there.
    tier.merge_and_collect(None, 2, true);
    restart(&mut tier, 1 << 20);
    assert_eq!(tier.generations.list().newest_first().len(), 3);
    tier.merge_and_collect(None, 1, false);
    for key in &keys {
        let seen = tier.find(key.as_bytes(), 40);
        assert!(!matches!(&seen, Seen::Version(Version { value: Some(_), .. })), "{key}: {seen:?}");
    }
}

#[test]
fn a_crash_after_a_page_was_lost_brings_nothing_back() {
    // The page is of a chunk that stays, of one that is collected with the older generation, of one beside that.
    for (collected, damaged) in [(1, 0), (1, 1), (2, 0), (2, 1)] {
        let mut tier = Tier::new(60, 24, 1 << 20, 0);
        let keys: Vec<String> = (0..60).map(|n| format!("key {n}")).collect();
        let old = keys.iter().map(|key| (key.as_bytes().to_vec(), value("old")));
        let others = (0..60).map(|n| (format!("other {n}").into_bytes(), value("other")));
        tier.flush(&old.chain(others).collect());
        tier.merge(None);
        for half in keys.chunks(30) {
            let new = value(&"new".repeat(600));
            tier.flush(&half.iter().map(|key| (key.as_bytes().to_vec(), new.clone())).collect());
        }
        tier.merge(None);
        let chunks: Vec<Run> =
            tier.generations.list().newest_first()[0].chunks().iter().map(|chunk| chunk.run).collect();
        assert!(chunks.len() > 1, "a part of it can be collected");
        let page = (chunks[damaged].zone.0, chunks[damaged].first_data_page as u64 + 3);
        tier.device.bad.lock().unwrap().insert(page);
        tier.merge_and_collect(None, collected, true);
        tier.device.bad.lock().unwrap().clear();
        restart(&mut tier, 1 << 20);
        for round in 0..2 {
            let seen: Vec<Seen> = keys.iter().map(|key| tier.find(key.as_bytes(), 40)).collect();
            assert!(!seen.contains(&Seen::Version(value("old"))), "{collected} {damaged} {round}: {seen:?}");
            assert!(seen.iter().any(|seen| *seen != Seen::Nothing), "{collected} {damaged} {round}");
            tier.merge_and_collect(None, 1, false);
        }
        // What the crash cost is lost once.
        let items = |tier: &Tier| {
            tier.generations.list().newest_first().iter().map(|generation| generation.items()).sum::<u64>()
        };
        let before = items(&tier);
        restart(&mut tier, 1 << 20);
        assert_eq!(items(&tier), before);
    }
}

#[test]
fn a_page_of_marks_that_is_lost_is_told() {
    for is_damaged in [false, true] {
        let mut tier = Tier::new(40, 24, 1 << 20, 0);
        tier.dead_extents = true;
        tier.flush(&versions(&[("a", Version { supersedes_extent: true, ..value("1") })]));
        tier.merge(None);
        let run = tier.generations.list().newest_first()[0].chunks()[0].run;
        if is_damaged {
            tier.device.bad.lock().unwrap().insert((run.zone.0, run.first_data_page as u64));
        }
        tier.merge_and_collect(None, 1, false);
        assert_eq!(tier.lost_marks, is_damaged);
    }
}

#[test]
fn the_mark_of_a_merge_holds_many_gaps() {
    let gaps: Vec<Gap> = (0..1000).rev().map(|n| Gap::new(&(n * 100..=n * 100 + n % 120), n % 7)).collect();
    let joined = Gap::join(gaps.clone(), output::GAPS_MAX);
    let holds = |gap: &Gap, other: &Gap| {
        gap.first_hash <= other.first_hash && gap.last_hash >= other.last_hash && gap.below >= other.below
    };
    assert!(gaps.iter().all(|gap| joined.iter().any(|one| holds(one, gap))));
    let mut tier = Tier::new(4, 24, 0, 0);
    let head = tier.head(Kind::Address);
    let mut writer = Writer::begin(&tier.device, ZoneId(2), 0, head.clone(), 16, 0, false);
    writer.set_gaps(joined.clone());
    assert!(writer.finish().unwrap().pages <= output::MARK_PAGES);
    let found = crate::segment::read_foot(&tier.device, ZoneId(2), &head, 0, 24).unwrap().unwrap();
    assert_eq!(found.gaps, joined);
    assert_eq!(Gap::join(gaps[..3].to_vec(), output::GAPS_MAX).len(), 3);
    assert!(Gap::join(Vec::new(), output::GAPS_MAX).is_empty());
}

#[test]
fn what_expires_leaves_a_tombstone_only_over_something_older() {
    let mut tier = Tier::new(40, 24, 1 << 20, 0);
    tier.cutoff_s = 100;
    let soon = Version { expires_unix_s: NOW + 100, ..value("2") };
    let later = Version { expires_unix_s: NOW + 101, ..value("2") };
    tier.flush(&versions(&[("a", value("1"))]));
    tier.merge(None);
    tier.flush(&versions(&[("a", soon.clone()), ("b", soon), ("c", later.clone())]));
    tier.merge(None);
    assert_eq!((tier.last.expired, tier.last.tombstones_left, tier.last.kept), (2, 1, 1));
    assert_eq!(tier.find(b"a", 2), Seen::Version(tombstone()));
    assert_eq!(tier.find(b"b", 2), Seen::Nothing);
    assert_eq!(tier.find(b"c", 2), Seen::Version(later));
}

#[test]
fn a_word_on_an_extent_stays_while_one_lies_dead() {
    for stays in [true, false] {
        let mut tier = Tier::new(40, 24, 1 << 20, 0);
        tier.dead_extents = stays;
        let over = |version: Version| Version { supersedes_extent: true, ..version };
        let dead = Version { expires_unix_s: NOW - 1, ..value("1") };
        tier.flush(&versions(&[("a", over(value("1"))), ("b", over(tombstone())), ("c", over(dead))]));
        let sealed = tier.log[0].0.head.sealed_sequence;
        tier.merge(None);
        let Seen::Version(found) = tier.find(b"a", 2) else { panic!("a is gone") };
        assert_eq!(found.supersedes_extent, stays);
        for key in [b"b", b"c"] {
            let expected = if stays { Seen::Version(over(tombstone())) } else { Seen::Nothing };
            assert_eq!(tier.find(key, 2), expected);
        }
        let marks = tier.generations.list().newest_first()[0].chunks()[0].supersedes_extents;
        assert_eq!(marks, stays);
        // A restart learns of which extents it is: those that were there when the log segment was sealed.
        let (zone, sequence) = tier.free.written[0];
        let head = crate::segment::read_head(&tier.device, zone, 0).unwrap().unwrap();
        let summary = crate::segment::read_foot(&tier.device, zone, &head, 0, 24).unwrap().unwrap();
        assert_eq!((head.sequence, head.sealed_sequence), (sequence, sealed));
        let expected = if stays { vec![sealed; 3] } else { Vec::new() };
        assert_eq!(summary.superseded_extents.iter().map(|(_, below)| *below).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn what_was_read_stays_and_of_the_rest_a_share() {
    let mut tier = Tier::new(100, 64, 1 << 20, 0);
    tier.keep_percent = 40;
    let key = |n: u32| format!("key {n}").into_bytes();
    for segment in 0..5 {
        tier.flush(&(segment * 1000..segment * 1000 + 1000).map(|n| (key(n), value("v"))).collect());
        let (_, hits) = tier.log.last().unwrap();
        (0..1000).step_by(10).for_each(|n| hits.mark(tier.hasher.hash(&key(segment * 1000 + n)).0));
    }
    tier.merge(None);
    assert!((0..5000).step_by(10).all(|n| matches!(tier.find(&key(n), 2), Seen::Version(_))));
    assert_eq!(tier.last.kept, 2000);
    assert!((500..800).contains(&tier.last.warm), "{}", tier.last.warm);
    assert_eq!(tier.last.kept + tier.last.cold, 5000);
}

/// Eight generations of items of 100 bytes, 1.2 million in all.
fn grown(filter_budget: u64, cache_bytes: u64) -> (Tier, Vec<(u32, u32)>) {
    let mut tier = Tier::new(120, 1024, filter_budget, cache_bytes);
    tier.step_pages = 1 << 30;
    let mut ranges = Vec::new();
    for generation in 0..8u32 {
        for segment in 0..5 {
            let first = (generation * 5 + segment) * 30_000;
            tier.flush(&(first..first + 30_000).map(|n| (key_of(n), value(&"v".repeat(84)))).collect());
            ranges.push((first, first + 30_000));
        }
        tier.merge(None);
    }
    (tier, ranges)
}

fn key_of(n: u32) -> Vec<u8> {
    format!("key {n:012}").into_bytes()
}

#[test]
fn an_item_takes_one_and_a_half_bytes_of_memory() {
    let (tier, ranges) = grown(1 << 30, 0);
    let items = ranges.last().unwrap().1;
    let list = tier.generations.list();
    assert_eq!(list.newest_first().len(), 8);
    assert_eq!(list.newest_first().iter().map(|generation| generation.items()).sum::<u64>(), items as u64);
    let bytes = tier.generations.bytes() as f64 / items as f64;
    let (mut reads, mut asked) = (0, 0);
    for n in (0..items).step_by(97) {
        let (seen, read) = tier.find_old(&key_of(n), 2);
        assert!(matches!(seen, Seen::Version(_)) || read == 2);
        (reads, asked) = (reads + read, asked + 1);
    }
    let per_hit = reads as f64 / asked as f64;
    let reads: u32 = (items..items + 20_000).map(|n| tier.find_old(&key_of(n), 2).1).sum();
    let per_miss = reads as f64 / 20_000.0;
    println!(
        "{items} items in 8 generations: {bytes:.3} bytes an item, {per_hit:.4} reads a hit, {per_miss:.4} a miss"
    );
    assert!(bytes <= 1.5, "{bytes}");
    assert!(per_hit <= 1.03, "{per_hit}");
    assert!(per_miss <= 0.05, "{per_miss}");
}

#[test]
fn with_hardly_any_memory_two_reads_find_all_the_same() {
    // Room for the filters of the newest generation or so.
    let (tier, ranges) = grown(300_000, 0);
    let items = ranges.last().unwrap().1;
    let list = tier.generations.list();
    assert_eq!(list.newest_first().iter().map(|generation| generation.items()).sum::<u64>(), items as u64);
    assert!(list.has_unfiltered() && tier.generations.filter_bytes() <= 300_000);
    let (mut reads, mut asked, mut missing) = (0, 0, 0);
    for n in (0..items).step_by(97) {
        let (seen, read) = tier.find_old(&key_of(n), 2);
        missing += !matches!(seen, Seen::Version(_)) as u32;
        (reads, asked) = (reads + read, asked + 1);
    }
    let missing = missing as f64 / asked as f64;
    let per_hit = reads as f64 / asked as f64;
    let bytes = tier.generations.bytes() as f64 / items as f64;
    let reads: u32 = (items..items + 20_000).map(|n| tier.find_old(&key_of(n), 2).1).sum();
    let per_miss = reads as f64 / 20_000.0;
    let pages: u32 = list.address().unwrap().segments().iter().map(|segment| segment.run.data_pages).sum();
    let flash = pages as f64 * PAYLOAD_BYTES as f64 / items as f64;
    println!(
        "{bytes:.3} bytes an item, {flash:.3} on flash; {per_hit:.4} reads a hit, {per_miss:.4} a miss, {missing:.5} \
         not found"
    );
    assert!(bytes <= 0.35 && per_hit <= 2.0 && flash <= 4.8);
    assert!(missing <= 0.01, "{missing}");
    assert!(per_miss <= 1.05, "{per_miss}");
}
