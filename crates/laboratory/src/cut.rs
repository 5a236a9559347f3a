//! A device in memory whose power can be cut. Of the writes that were not synced some survive, some are lost, and
//! some are torn.

use super::device::{
    Device, DeviceCounters, DeviceError, Geometry, PAGE_BYTES, PageBuffer, ReadQueue, ZoneId, ZoneReport,
    ZoneState,
};
use super::{AtOnce, reads_at_once};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};

const SECTOR_BYTES: usize = 512;

/// How a device behaves where the contract of devices leaves it open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flavour {
    /// A zoned device: it keeps its write pointers through a loss of power, and erased pages cannot be read.
    Zoned,
    /// A disk with discard: it forgets its write pointers, and erased pages are zeros. Pages that were not synced
    /// survive in any order.
    Punched,
    /// A file, or a disk without discard: erased pages keep their contents until they are overwritten.
    NeverErased,
}

/// A generator of random numbers (splitmix64). Equal seeds give equal numbers.
#[derive(Clone, Debug)]
pub struct Dice(pub u64);

impl Dice {
    /// The next number of the sequence.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next_u64() % end
    }

    /// True in `percent` of 100 cases.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

struct Zone {
    /// The contents now.
    bytes: Vec<u8>,
    /// The contents at the last sync.
    synced: Vec<u8>,
    written: usize,
    synced_written: usize,
    /// The zone was erased since the last sync.
    erased: bool,
    /// The device was opened again, and the zone was not reset since.
    unknown: bool,
    finished: bool,
    resets: u64,
}

struct Contents {
    zones: Vec<Zone>,
    counters: DeviceCounters,
    /// Steps until the power is cut; `None` = never. A step is a page that is written, an erasure or a sync.
    left: Option<u64>,
    /// Steps so far.
    steps: u64,
    gone: bool,
    failing: BTreeSet<u32>,
}

/// A device whose power can be cut. Clones share its contents.
#[derive(Clone)]
pub struct CutDevice {
    geometry: Geometry,
    flavour: Flavour,
    state: Arc<Mutex<Contents>>,
}

impl CutDevice {
    /// An erased device.
    pub fn new(flavour: Flavour, zones: u32, zone_pages: u64) -> CutDevice {
        let zone_bytes = zone_pages * PAGE_BYTES as u64;
        let geometry = Geometry { zones, zone_bytes, channels: 1, open_zones_max: zones };
        let zone = || Zone {
            bytes: vec![0; zone_bytes as usize],
            synced: vec![0; zone_bytes as usize],
            written: 0,
            synced_written: 0,
            erased: false,
            unknown: flavour != Flavour::Zoned,
            finished: false,
            resets: 0,
        };
        let state = Contents {
            zones: (0..zones).map(|_| zone()).collect(),
            counters: DeviceCounters::default(),
            left: None,
            steps: 0,
            gone: false,
            failing: BTreeSet::new(),
        };
        CutDevice { geometry, flavour, state: Arc::new(Mutex::new(state)) }
    }

    fn state(&self) -> MutexGuard<'_, Contents> {
        self.state.lock().expect("no panic under this lock")
    }

    /// Cuts the power after `steps` more steps. A step is a page that is written, an erasure or a sync.
    pub fn cut_after(&self, steps: u64) {
        self.state().left = Some(steps);
    }

    /// Whether the power is cut.
    pub fn is_gone(&self) -> bool {
        self.state().gone
    }

    /// Steps so far: pages that were written, erasures and syncs.
    pub fn steps(&self) -> u64 {
        self.state().steps
    }

    /// Makes appends to a zone and its erasures fail from now on, or succeed again.
    pub fn fail(&self, zone: ZoneId, fails: bool) {
        let mut state = self.state();
        match fails {
            true => state.failing.insert(zone.0),
            false => state.failing.remove(&zone.0),
        };
    }

    /// Damages 100 bytes of a page.
    pub fn damage(&self, zone: ZoneId, page: u64) {
        let mut state = self.state();
        let at = page as usize * PAGE_BYTES;
        for bytes in [0, 1] {
            let zone = &mut state.zones[zone.0 as usize];
            let image = if bytes == 0 { &mut zone.bytes } else { &mut zone.synced };
            image[at + 100..at + 200].iter_mut().for_each(|byte| *byte ^= 0x55);
        }
    }

    /// Overwrites bytes of a zone, as another program could.
    pub fn overwrite(&self, zone: ZoneId, offset: usize, bytes: &[u8]) {
        let mut state = self.state();
        let zone = &mut state.zones[zone.0 as usize];
        zone.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
        zone.synced[offset..offset + bytes.len()].copy_from_slice(bytes);
        zone.written = zone.written.max((offset + bytes.len()).next_multiple_of(PAGE_BYTES));
        zone.synced_written = zone.written;
    }

    /// Restores the power. With `dice`, a random part of the writes that were not synced is lost. Without, all of
    /// them survive: the process was killed, and the machine went on.
    pub fn power_on(&self, mut dice: Option<&mut Dice>) {
        let mut state = self.state();
        let in_order = self.flavour == Flavour::Zoned || dice.as_mut().is_some_and(|dice| dice.chance(50));
        for zone in &mut state.zones {
            if let Some(dice) = dice.as_mut() {
                self.lose(zone, in_order, dice);
            }
            zone.synced.copy_from_slice(&zone.bytes);
            zone.synced_written = zone.written;
            (zone.erased, zone.unknown) = (false, self.flavour != Flavour::Zoned);
            zone.finished &= self.flavour == Flavour::Zoned;
        }
        (state.left, state.gone) = (None, false);
    }

    /// Decides which writes to a zone survive.
    fn lose(&self, zone: &mut Zone, in_order: bool, dice: &mut Dice) {
        let from = if zone.erased { 0 } else { zone.synced_written };
        if !zone.erased && zone.written == from {
            return;
        }
        let mut image = zone.synced.clone();
        let mut written = zone.synced_written;
        if zone.erased && !dice.chance(50) {
            written = 0;
            if self.flavour != Flavour::NeverErased {
                image.fill(0);
            }
        } else if zone.erased && self.flavour == Flavour::Zoned {
            // The erasure is lost, and all writes after it.
            zone.bytes = image;
            zone.written = zone.synced_written;
            return;
        }
        let pages = (zone.written - from) / PAGE_BYTES;
        let kept = dice.below(pages as u64 + 1) as usize;
        for page in 0..pages {
            let range = from + page * PAGE_BYTES..from + (page + 1) * PAGE_BYTES;
            let survives = if in_order { page < kept } else { dice.chance(50) };
            let torn = if in_order { page == kept && dice.chance(50) } else { dice.chance(10) };
            let bytes = match (survives, torn) {
                (_, true) => SECTOR_BYTES * dice.below((PAGE_BYTES / SECTOR_BYTES) as u64 + 1) as usize,
                (true, false) => PAGE_BYTES,
                (false, false) => continue,
            };
            let torn = range.start..range.start + bytes;
            image[torn.clone()].copy_from_slice(&zone.bytes[torn]);
            written = written.max(range.end);
        }
        (zone.bytes, zone.written) = (image, written);
    }
}

impl Contents {
    /// Counts a step, or cuts the power.
    fn step(&mut self) -> Result<(), DeviceError> {
        if self.gone {
            return Err(DeviceError::Gone);
        }
        self.steps += 1;
        if let Some(left) = self.left.as_mut() {
            if *left == 0 {
                self.gone = true;
                return Err(DeviceError::Gone);
            }
            *left -= 1;
        }
        Ok(())
    }

    fn zone(&mut self, zone: ZoneId) -> Result<&mut Zone, DeviceError> {
        if self.gone {
            return Err(DeviceError::Gone);
        }
        self.zones.get_mut(zone.0 as usize).ok_or(DeviceError::State { zone, what: "there is no such zone" })
    }

    fn check_failing(&self, zone: ZoneId) -> Result<(), DeviceError> {
        match self.failing.contains(&zone.0) {
            true => Err(DeviceError::Io { errno: Some(5), what: "it fails, as it was told".into() }),
            false => Ok(()),
        }
    }
}

impl Device for CutDevice {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn describe(&self) -> String {
        format!("a device that loses power, {:?}", self.flavour)
    }

    fn report(&self, zone: ZoneId) -> Result<ZoneReport, DeviceError> {
        let mut state = self.state();
        let found = state.zone(zone)?;
        let written = found.written as u64;
        let state = match written {
            _ if found.unknown => ZoneState::Unknown,
            _ if found.finished || written == self.geometry.zone_bytes => ZoneState::Full(written),
            0 => ZoneState::Empty,
            _ => ZoneState::Open(written),
        };
        Ok(ZoneReport { state, resets: found.resets })
    }

    fn append(&self, zone: ZoneId, pages: &[u8]) -> Result<u64, DeviceError> {
        let mut state = self.state();
        state.check_failing(zone)?;
        let found = state.zone(zone)?;
        if !pages.len().is_multiple_of(PAGE_BYTES) {
            return Err(DeviceError::State { zone, what: "not whole pages" });
        }
        if found.finished || found.unknown {
            return Err(DeviceError::State { zone, what: "it is finished or unknown" });
        }
        let offset = found.written;
        if offset + pages.len() > found.bytes.len() {
            return Err(DeviceError::Full(zone));
        }
        for page in pages.chunks_exact(PAGE_BYTES) {
            state.step()?;
            let found = state.zone(zone)?;
            let at = found.written;
            found.bytes[at..at + PAGE_BYTES].copy_from_slice(page);
            found.written += PAGE_BYTES;
        }
        state.counters.appends += 1;
        state.counters.append_bytes += pages.len() as u64;
        Ok(offset as u64)
    }

    fn read(&self, zone: ZoneId, offset: u64, into: &mut PageBuffer) -> Result<(), DeviceError> {
        let mut state = self.state();
        let found = state.zone(zone)?;
        let end = if self.flavour == Flavour::Zoned { found.written } else { found.bytes.len() };
        let from = offset as usize;
        let bytes = found.bytes[..end].get(from..from + into.len());
        into.copy_from_slice(bytes.ok_or(DeviceError::State { zone, what: "nothing is written there" })?);
        state.counters.reads += 1;
        state.counters.read_bytes += into.len() as u64;
        Ok(())
    }

    fn finish(&self, zone: ZoneId) -> Result<(), DeviceError> {
        self.state().zone(zone)?.finished = true;
        Ok(())
    }

    fn reset(&self, zone: ZoneId) -> Result<(), DeviceError> {
        let mut state = self.state();
        state.check_failing(zone)?;
        state.step()?;
        let never_erased = self.flavour == Flavour::NeverErased;
        let found = state.zone(zone)?;
        if !never_erased {
            found.bytes.fill(0);
        }
        (found.written, found.erased, found.unknown, found.finished) = (0, true, false, false);
        found.resets += 1;
        state.counters.resets += 1;
        Ok(())
    }

    fn sync(&self) -> Result<(), DeviceError> {
        let mut state = self.state();
        state.step()?;
        for zone in &mut state.zones {
            if zone.erased || zone.written != zone.synced_written {
                zone.synced.copy_from_slice(&zone.bytes);
                (zone.synced_written, zone.erased) = (zone.written, false);
            }
        }
        Ok(())
    }

    fn counters(&self) -> DeviceCounters {
        self.state().counters
    }

    fn reads(&self, depth: u32) -> Result<Box<dyn ReadQueue>, DeviceError> {
        reads_at_once(self.clone(), depth)
    }
}

impl AtOnce for CutDevice {
    fn read_now(&self, zone: ZoneId, offset: u64, into: &mut PageBuffer) -> (Result<(), DeviceError>, u64) {
        (self.read(zone, offset, into), 0)
    }
}
