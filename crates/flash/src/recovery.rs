//! Recovery: which segments a device has after a restart, and in which order they are taken in.
//!
//! [`Recovery::begin`] reads one page for each segment, its head, and follows every zone to its end. Then
//! [`Recovery::step`] reads one foot after the other, while lookups work already:
//!
//! 1. Log segments, newest first. A lookup in the meantime finds the newest version of a key or nothing, because
//!    segments with older versions are not known yet.
//! 2. Generations, newest first. Every log segment is newer than every generation, whatever their sequences are.
//! 3. Address pages.
//! 4. Extents, newest first. A lookup asks the extent table first, so an extent may enter the table only when
//!    everything that may supersede it is known. Records that supersede an extent are listed in the foot of their
//!    segment.
//!
//! An extents segment is filled while log segments are, and a sequence is that of the moment when a segment was opened.
//! So a record in a log segment that was sealed after an extents segment was opened may be older or newer than its
//! extents. If such a record supersedes an extent, the extent is dropped: a miss is always allowed.
//!
//! Two segments of one kind and sequence are copies: the writing of one of them failed, perhaps after its last page.
//! The one that is known to be durable counts, or else the first that is whole.
//!
//! A segment does not exist if its foot is not valid, because then it was not written to its end. Nor does a segment
//! below the flush floor, one outside the bounds of its zone, and one of another device or of an earlier format.
//!
//! A segment that was durable (see [`crate::meta::ZoneBounds`]) and has no valid foot is **lost**: the device is
//! damaged. The lost segment may have had tombstones that hide versions in older segments, so everything older is
//! dropped.

use crate::device::{Device, DeviceError, PAGE_BYTES, ZoneId, ZoneState};
use crate::meta::{META_ZONES, Opened, ZoneBounds};
use crate::segment::{Head, Kind, SegmentSummary, last_page, read_foot, read_head};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// Threads that read heads. They mostly wait for the device.
const READERS: u32 = 8;

/// Takes in the segments that a recovery finds.
pub(crate) trait Sink {
    /// Takes in a segment that exists. Its extents are those that no known record supersedes; `dead` has the hashes of
    /// the others. Returns `false` if there is no room for the segment: then nothing older may be found either.
    fn add_segment(&mut self, facts: SegmentSummary, dead: Vec<u64>) -> bool;

    /// Notes a segment that does not count: it was not written to its end or is damaged, or a newer segment that may
    /// hide its records is damaged.
    fn lost_segment(&mut self, zone: ZoneId, sequence: u64);
}

/// A segment whose head was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FoundSegment {
    pub(crate) head: Head,
    pub(crate) zone: ZoneId,
    /// Number of the head's page in the zone.
    pub(crate) first_page: u32,
    /// Number of the page behind its last one.
    pub(crate) end_page: u32,
}

/// The progress of a recovery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    /// The number of segments that are left.
    Left(usize),
    /// All segments were taken in.
    Done,
}

/// Which segments of the device count.
#[derive(Clone, Debug)]
struct Bounds {
    uuid: [u8; 16],
    flush_floor: u64,
    /// Sequences from here on are of this run.
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

    /// Whether a segment with this head in this zone counts.
    fn admits(&self, head: &Head, zone: ZoneId) -> bool {
        head.device_uuid == self.uuid
            && (self.flush_floor..self.next_sequence).contains(&head.sequence)
            && self.of_zone(zone).admits(head.sequence)
    }

    fn of_zone(&self, zone: ZoneId) -> ZoneBounds {
        self.zones.get(zone.0 as usize).copied().unwrap_or_default()
    }

    /// Sequences of segments that were durable, and whose heads were not found.
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

/// A recovery that has begun. It keeps the heads of the segments that are left, and the hashes of superseded extents.
pub(crate) struct Recovery {
    device: Arc<dyn Device>,
    left: VecDeque<FoundSegment>,
    bounds: Bounds,
    /// Sequence of the newest log segment that is lost, or had no room. Everything older is dropped.
    damaged: Option<u64>,
    /// The same for each other kind, by [`rank`]. Older segments of that kind are dropped.
    damaged_kind: [Option<u64>; 4],
    /// For each hash with a superseded extent: the sequence below which its extents are superseded.
    superseded: HashMap<u64, u64>,
    /// Kind and sequence of the segment that was taken in last.
    taken: Option<(Kind, u64)>,
}

impl Recovery {
    /// Finds the heads of all segments.
    ///
    /// # Errors
    /// The device is gone. A zone that cannot be read counts as one without segments.
    pub(crate) fn begin(device: Arc<dyn Device>, opened: &Opened) -> Result<Recovery, DeviceError> {
        let bounds = Bounds::of(opened);
        let mut found = Vec::new();
        if bounds.flush_floor < bounds.next_sequence {
            found = find_heads(&*device, &bounds)?;
        }
        found.sort_unstable_by_key(|of| {
            let is_durable = of.head.sequence <= bounds.of_zone(of.zone).top;
            (rank(of.head.kind), std::cmp::Reverse(of.head.sequence), !is_durable)
        });
        // Of which kind they were is not known.
        let damaged = bounds.missing(&found).into_iter().max();
        if let Some(sequence) = damaged {
            tracing::warn!(
                "flash: segment {sequence} was written and is not there; everything older is dropped"
            );
        }
        let left = found.into();
        let (damaged_kind, superseded) = ([None; 4], HashMap::new());
        Ok(Recovery { device, left, bounds, damaged, damaged_kind, superseded, taken: None })
    }

    /// Segments that were found and are not taken in yet, the next one first.
    pub(crate) fn left(&self) -> impl Iterator<Item = &FoundSegment> {
        self.left.iter()
    }

    /// Reads the next foot, and hands its segment to the sink.
    ///
    /// # Errors
    /// The device is gone.
    pub(crate) fn step(&mut self, sink: &mut dyn Sink) -> Result<Progress, DeviceError> {
        let Some(found) = self.left.pop_front() else { return Ok(Progress::Done) };
        let FoundSegment { head, zone, first_page, end_page } = found;
        let is_copy = self.taken == Some((head.kind, head.sequence));
        let facts = match is_copy || self.is_cut_off(&head) {
            true => None,
            false => self.foot(zone, &head, (first_page, end_page))?,
        };
        match facts {
            Some(facts) => {
                self.taken = Some((head.kind, head.sequence));
                let (facts, dead) = self.split_extents(facts);
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

    /// Whether a newer segment is damaged that may have had a tombstone of a key in this segment.
    fn is_cut_off(&self, head: &Head) -> bool {
        let older_than = |damaged: Option<u64>| damaged.is_some_and(|damaged| head.sequence < damaged);
        let by_log = match head.kind {
            Kind::Log => older_than(self.damaged),
            // They are older than all of the log.
            Kind::Generation | Kind::Address => self.damaged.is_some(),
            // Some were opened while the lost segment was filled; and what marks extents as superseded may have been
            // merged.
            Kind::Extents => {
                self.damaged.is_some() || self.damaged_kind[rank(Kind::Generation) as usize].is_some()
            }
        };
        by_log || older_than(self.damaged_kind[rank(head.kind) as usize])
    }

    /// Reads the foot of a segment; `None` if it has no valid one. Notes if the segment is lost.
    fn foot(
        &mut self,
        zone: ZoneId,
        head: &Head,
        (first_page, end_page): (u32, u32),
    ) -> Result<Option<SegmentSummary>, DeviceError> {
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

    /// From now on no segment is taken in whose records this segment may hide.
    fn cut_off(&mut self, head: &Head) {
        let damaged = match head.kind {
            Kind::Log => &mut self.damaged,
            kind => &mut self.damaged_kind[rank(kind) as usize],
        };
        *damaged = (*damaged).max(Some(head.sequence));
    }

    /// Separates the extents that no record supersedes from the others (their hashes are returned), and notes which
    /// extents the segment itself supersedes.
    fn split_extents(&mut self, mut facts: SegmentSummary) -> (SegmentSummary, Vec<u64>) {
        let (sequence, sealed) = (facts.head.sequence, facts.head.sealed_sequence);
        let mut dead = Vec::new();
        facts.extents.retain(|extent| {
            // A record in a segment that was sealed after this one was opened may be newer than any extent of this one.
            let alive = self.superseded.get(&extent.hash).is_none_or(|sealed| *sealed <= sequence);
            if !alive {
                dead.push(extent.hash);
            }
            alive
        });
        // Extents are in order of arrival, and an extent supersedes no later one.
        let sealed = if facts.head.kind == Kind::Extents { sequence + 1 } else { sealed };
        // They stay with the segment: its zone may be dropped later.
        for (hash, below) in facts.superseded_extents.iter().copied() {
            let below = below.min(sealed);
            let by = self.superseded.entry(hash).or_insert(below);
            *by = below.max(*by);
        }
        (facts, dead)
    }
}

/// The rank of a kind: segments of a lower rank are taken in first.
fn rank(kind: Kind) -> u8 {
    match kind {
        Kind::Log => 0,
        Kind::Generation => 1,
        Kind::Address => 2,
        Kind::Extents => 3,
    }
}

/// Finds the heads in all zones, in no order.
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

/// Finds the segments of one zone, from its beginning to the first page that should be a head and is none.
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
        // Segments of a zone are written one after the other. An older one behind a newer one was there before the zone
        // was erased.
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

#[cfg(all(test, not(loom)))]
mod tests;
