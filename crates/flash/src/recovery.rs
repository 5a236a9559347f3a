//! What a restart finds: which segments the device has, and in which order they are taken in.
//!
//! [`Recovery::begin`] reads one page for each segment (its head) and follows every zone to its end; that takes moments. Then
//! [`Recovery::step`] reads one foot after the other, while lookups work already:
//!
//! 1. log segments, newest first, so that what is found meanwhile is the newest version or, if that is not known yet, nothing older
//!    that it replaced: the older segment is not known either;
//! 2. generations, newest first: every log segment is newer than every generation, whatever their sequences say;
//! 3. address pages;
//! 4. extents, newest first, once everything that may supersede one is known. A lookup asks the extent table first, so an
//!    entry must not be there that a later put or tombstone took out; each of those says so in its segment's foot.
//!
//! An extents segment fills while log segments do, and their sequences are those of their beginnings. So a record of a log
//! segment that was sealed after the extents segment was begun may be older or newer than an extent: the extent is dropped
//! then. A miss is always legal.
//!
//! A segment whose foot does not check out was not written to its end, and does not exist; nor do those below the flush
//! floor, those below the floor of their zone, and those of another device or an earlier format.
//!
//! Unless it is known to have been durable (see [`crate::meta::ZoneBounds`]): then the device has lost something, perhaps the tombstone of what
//! an older segment holds. Everything older than a lost segment is dropped.

use crate::device::{Device, DeviceError, PAGE_BYTES, ZoneId, ZoneState};
use crate::meta::{META_ZONES, Opened, ZoneBounds};
use crate::segment::{Head, Kind, SegmentFacts, last_page, read_foot, read_head};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// Threads that read heads. What they wait for is the device.
const READERS: u32 = 8;

/// Takes in what is found.
pub(crate) trait Sink {
    /// A segment that exists. Its extents are those that nothing is known to supersede; `dead` are the hashes of the others. Says
    /// `false` if there is no room for it: then nothing older may be found either.
    fn add_segment(&mut self, facts: SegmentFacts, dead: Vec<u64>) -> bool;

    /// A segment that does not exist: it was not written to its end or is damaged, or something newer that might have replaced what
    /// is in it is damaged. Its pages are garbage.
    fn lost_segment(&mut self, zone: ZoneId, sequence: u64);
}

/// A segment whose head was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FoundSegment {
    pub(crate) head: Head,
    pub(crate) zone: ZoneId,
    /// Page of the head in the zone.
    pub(crate) first_page: u32,
    /// Behind its last page.
    pub(crate) end_page: u32,
}

/// How far a recovery is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    /// Segments left.
    Left(usize),
    /// All of them were taken in.
    Done,
}

/// What of the device counts.
#[derive(Clone, Debug)]
struct Bounds {
    uuid: [u8; 16],
    flush_floor: u64,
    /// Sequences from here on are this session's.
    next_sequence: u64,
    zones: Vec<ZoneBounds>,
}

impl Bounds {
    fn of(opened: &Opened) -> Bounds {
        Bounds {
            uuid: opened.superblock.uuid,
            flush_floor: opened.superblock.flush_floor,
            next_sequence: opened.next_sequence,
            zones: opened.zones.clone(),
        }
    }

    /// Whether a segment with this head in this zone exists.
    fn admits(&self, head: &Head, zone: ZoneId) -> bool {
        let floor = self.of_zone(zone).floor.max(self.flush_floor);
        head.device_uuid == self.uuid && head.sequence >= floor && head.sequence < self.next_sequence
    }

    fn of_zone(&self, zone: ZoneId) -> ZoneBounds {
        self.zones.get(zone.0 as usize).copied().unwrap_or_default()
    }

    /// Segments that were durable and have not even a head.
    fn missing(&self, found: &[FoundSegment]) -> Vec<u64> {
        let mut newest = vec![0; self.zones.len()];
        for of in found {
            if let Some(newest) = newest.get_mut(of.zone.0 as usize) {
                *newest = of.head.sequence.max(*newest);
            }
        }
        let floor = self.flush_floor;
        let zones = self.zones.iter().zip(newest);
        zones
            .filter(|(of, newest)| of.top >= floor.max(1) && *newest < of.top)
            .map(|(of, _)| of.top)
            .collect()
    }
}

/// A recovery that runs. It holds no lock and no memory to speak of: the feet pass through it.
pub(crate) struct Recovery {
    device: Arc<dyn Device>,
    left: VecDeque<FoundSegment>,
    bounds: Bounds,
    /// The newest segment of those that are damaged and may have held tombstones of anything; everything older is dropped.
    damaged: Option<u64>,
    /// The same for generations and for extents, of their own kind.
    damaged_kind: [Option<u64>; 4],
    /// By hash, when the last segment was sealed that has a record which took an entry out of the extent table.
    superseded: HashMap<u64, u64>,
}

impl Recovery {
    /// Finds the heads of all segments.
    ///
    /// # Errors
    /// The device is gone. A zone that cannot be read has no segments.
    pub(crate) fn begin(device: Arc<dyn Device>, opened: &Opened) -> Result<Recovery, DeviceError> {
        let bounds = Bounds::of(opened);
        let mut found = Vec::new();
        if bounds.flush_floor < bounds.next_sequence {
            found = find_heads(&*device, &bounds)?;
        }
        found.sort_unstable_by_key(|of| (turn(of.head.kind), std::cmp::Reverse(of.head.sequence)));
        // What kind it was nobody can say.
        let damaged = bounds.missing(&found).into_iter().max();
        if let Some(sequence) = damaged {
            tracing::warn!(
                "flash: segment {sequence} was written and is not there; everything older is dropped"
            );
        }
        let left = found.into();
        Ok(Recovery { device, left, bounds, damaged, damaged_kind: [None; 4], superseded: HashMap::new() })
    }

    /// Segments that were found and not yet taken in, next one first.
    pub(crate) fn left(&self) -> impl Iterator<Item = &FoundSegment> {
        self.left.iter()
    }

    /// Reads the next foot and hands over what it says.
    ///
    /// # Errors
    /// The device is gone.
    pub(crate) fn step(&mut self, sink: &mut dyn Sink) -> Result<Progress, DeviceError> {
        let Some(found) = self.left.pop_front() else { return Ok(Progress::Done) };
        let FoundSegment { head, zone, first_page, end_page } = found;
        let facts =
            if self.is_cut_off(&head) { Ok(None) } else { self.foot(zone, &head, (first_page, end_page)) };
        match facts? {
            Some(facts) => {
                let (facts, dead) = self.part_extents(facts);
                if !sink.add_segment(facts, dead) {
                    self.cut_off(&head);
                    sink.lost_segment(zone, head.sequence);
                }
            }
            None => sink.lost_segment(zone, head.sequence),
        }
        Ok(match self.left.len() {
            0 => Progress::Done,
            left => Progress::Left(left),
        })
    }

    /// Whether something newer is damaged that may have held a tombstone of what is in this segment.
    fn is_cut_off(&self, head: &Head) -> bool {
        let older_than = |damaged: Option<u64>| damaged.is_some_and(|damaged| head.sequence < damaged);
        let by_log = match head.kind {
            Kind::Log => older_than(self.damaged),
            // Older than all of the log.
            Kind::Generation | Kind::Address => self.damaged.is_some(),
            // Some were begun while the lost segment was filling. Which, nobody has to know.
            // Or what marked them as superseded was merged since.
            Kind::Extents => {
                self.damaged.is_some() || self.damaged_kind[turn(Kind::Generation) as usize].is_some()
            }
        };
        by_log || older_than(self.damaged_kind[turn(head.kind) as usize])
    }

    /// The foot, if it is there. Damage is noted.
    fn foot(
        &mut self,
        zone: ZoneId,
        head: &Head,
        (first_page, end_page): (u32, u32),
    ) -> Result<Option<SegmentFacts>, DeviceError> {
        let facts = match read_foot(&*self.device, zone, head, first_page, end_page) {
            Err(DeviceError::Gone) => return Err(DeviceError::Gone),
            other => other.ok().flatten(),
        };
        if facts.is_none() && head.sequence <= self.bounds.of_zone(zone).top {
            let sequence = head.sequence;
            tracing::warn!(
                "flash: zone {}: segment {sequence} is damaged; what it may hide is dropped",
                zone.0
            );
            self.cut_off(head);
        }
        Ok(facts)
    }

    /// Nothing that this segment might hide is taken in.
    fn cut_off(&mut self, head: &Head) {
        let damaged = match head.kind {
            Kind::Log => &mut self.damaged,
            kind => &mut self.damaged_kind[turn(kind) as usize],
        };
        *damaged = (*damaged).max(Some(head.sequence));
    }

    /// Parts the extents that nothing supersedes from the others, and remembers what the segment itself supersedes.
    fn part_extents(&mut self, mut facts: SegmentFacts) -> (SegmentFacts, Vec<u64>) {
        let (sequence, sealed) = (facts.head.sequence, facts.head.sealed_sequence);
        let mut dead = Vec::new();
        facts.extents.retain(|extent| {
            // What was sealed after these extents were begun may have been put after any of them.
            let alive = self.superseded.get(&extent.hash).is_none_or(|sealed| *sealed <= sequence);
            if !alive {
                dead.push(extent.hash);
            }
            alive
        });
        // Extents are in order of arrival, and none supersedes a later one.
        let sealed = if facts.head.kind == Kind::Extents { sequence + 1 } else { sealed };
        for (hash, below) in std::mem::take(&mut facts.superseded_extents) {
            let below = below.min(sealed);
            let by = self.superseded.entry(hash).or_insert(below);
            *by = below.max(*by);
        }
        (facts, dead)
    }
}

/// When segments of a kind are taken in.
fn turn(kind: Kind) -> u8 {
    match kind {
        Kind::Log => 0,
        Kind::Generation => 1,
        Kind::Address => 2,
        Kind::Extents => 3,
    }
}

/// The heads in all zones that hold segments, in no order.
fn find_heads(device: &dyn Device, bounds: &Bounds) -> Result<Vec<FoundSegment>, DeviceError> {
    let zones = device.geometry().zones;
    let next = AtomicU32::new(META_ZONES);
    let found = Mutex::new(Ok(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..READERS.min(zones) {
            scope.spawn(|| {
                loop {
                    let zone = next.fetch_add(1, Ordering::Relaxed);
                    if zone >= zones {
                        return;
                    }
                    let heads = follow(device, bounds, ZoneId(zone));
                    let mut found = found.lock().expect("no panic under this lock");
                    match (&mut *found, heads) {
                        (Ok(found), Ok(heads)) => found.extend(heads),
                        (found, Err(error)) => *found = Err(error),
                        (Err(_), Ok(_)) => return,
                    }
                }
            });
        }
    });
    found.into_inner().expect("no panic under this lock")
}

/// The segments of one zone, from its beginning to the first page that is no head.
fn follow(device: &dyn Device, bounds: &Bounds, zone: ZoneId) -> Result<Vec<FoundSegment>, DeviceError> {
    let mut found: Vec<FoundSegment> = Vec::new();
    let bytes = match device.report(zone) {
        Ok(report) => match report.state {
            ZoneState::Empty | ZoneState::Offline => return Ok(found),
            ZoneState::Open(bytes) | ZoneState::Full(bytes) => bytes,
            ZoneState::Unknown => device.geometry().zone_bytes,
        },
        Err(DeviceError::Gone) => return Err(DeviceError::Gone),
        Err(_) => return Ok(found),
    };
    let end = u32::try_from(bytes / PAGE_BYTES as u64).unwrap_or(u32::MAX);
    let mut page = 0;
    while page < end {
        let head = match read_head(device, zone, page) {
            Ok(Some(head)) => head,
            Err(DeviceError::Gone) => return Err(DeviceError::Gone),
            Ok(None) | Err(_) => break,
        };
        // Segments of a zone are written one after the other: an older one behind a newer one was left by an earlier round.
        if found.last().is_some_and(|before| before.head.sequence >= head.sequence) {
            break;
        }
        let end_page = last_page(device, zone, &head, page, end) + 1;
        if bounds.admits(&head, zone) {
            found.push(FoundSegment { head, zone, first_page: page, end_page });
        } else if head.device_uuid != bounds.uuid {
            break;
        }
        page = end_page;
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
