use super::nand::{BlockId, Nand, NandCounters, NandError};
use super::profile::Profile;
use larder_flash::device::{DeviceError, Geometry, PAGE_BYTES, ZoneId, ZoneReport, ZoneState};

/// How zones are made of blocks, and what a loss of power may destroy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneLayout {
    /// Number of dies over which a zone is striped, with one block on each. It divides the number of dies. With 1, a
    /// zone is one block of one channel, like the slabs of DIDACache.
    pub luns_per_zone: u32,
    /// Bytes of each zone that are in a volatile cache. A loss of power may destroy as many of the bytes that were
    /// appended since the last sync, newest first. Bytes that do not fill a word line yet may always be lost until
    /// they are synced.
    pub cache_bytes: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Condition {
    Writable,
    Finished,
    /// A reset was cut short.
    Unknown,
    /// No good block is left for the zone.
    Offline,
}

struct Zone {
    /// One block of each die of the stripe.
    blocks: Vec<BlockId>,
    condition: Condition,
    written: u64,
    /// Bytes that are programmed: whole word lines. The rest of `written` is in `staged`.
    programmed: u64,
    synced: u64,
    staged: Vec<u8>,
    resets: u64,
}

/// An open-channel drive: zones that are stripes of erase blocks. Between the zones and the cells there are only a
/// table of bad blocks and a buffer of one word line per zone.
///
/// All times are virtual, in nanoseconds. A caller says when an operation begins; the method returns when it ends.
pub struct OpenChannel {
    nand: Nand,
    layout: ZoneLayout,
    zones: Vec<Zone>,
    /// For each die, its erased blocks that belong to no zone.
    spares: Vec<Vec<BlockId>>,
}

impl OpenChannel {
    /// An erased drive.
    ///
    /// # Panics
    /// If the layout does not divide the dies.
    pub fn new(profile: Profile, layout: ZoneLayout, seed: u64) -> OpenChannel {
        let luns = profile.luns();
        let wide = layout.luns_per_zone;
        assert!(wide > 0 && luns.is_multiple_of(wide), "{wide} of {luns} dies to a zone");
        assert!(profile.pages.is_multiple_of(profile.word_line_pages), "whole word lines to a block");
        let reserved = (profile.blocks * profile.spare_per_mille / 1000).max(1);
        let (stripes, groups) = (profile.blocks - reserved, luns / wide);
        let nand = Nand::new(profile, seed);
        let mut spares: Vec<Vec<BlockId>> = (0..luns)
            .map(|lun| (stripes..stripes + reserved).map(|block| BlockId { lun, block }).collect())
            .collect();
        spares.iter_mut().for_each(|spares| spares.retain(|id| !nand.is_bad(*id)));
        let mut ssd = OpenChannel { nand, layout, zones: Vec::new(), spares };
        for zone in 0..stripes * groups {
            let (block, first) = (zone / groups, zone % groups * wide);
            let blocks = (first..first + wide).map(|lun| BlockId { lun, block }).collect();
            ssd.zones.push(Zone {
                blocks,
                condition: Condition::Writable,
                written: 0,
                programmed: 0,
                synced: 0,
                staged: Vec::new(),
                resets: 0,
            });
            ssd.replace_bad(zone as usize);
        }
        ssd
    }

    /// Replaces the bad blocks of a zone by spare ones. Without spares the zone is offline.
    fn replace_bad(&mut self, zone: usize) {
        let zone = &mut self.zones[zone];
        for id in &mut zone.blocks {
            while self.nand.is_bad(*id) {
                let Some(spare) = self.spares[id.lun as usize].pop() else {
                    zone.condition = Condition::Offline;
                    return;
                };
                *id = spare;
            }
        }
    }

    /// The NAND.
    pub fn nand(&self) -> &Nand {
        &self.nand
    }

    /// The NAND, to cut the power or to inject faults.
    pub fn nand_mut(&mut self) -> &mut Nand {
        &mut self.nand
    }

    /// The shape of the device. All zones may be open for writing, because each has its buffer.
    pub fn geometry(&self) -> Geometry {
        let profile = self.nand.profile();
        let zones = self.zones.len() as u32;
        let one_channel = self.layout.luns_per_zone == 1;
        Geometry {
            zones,
            zone_bytes: profile.block_bytes() * self.layout.luns_per_zone as u64,
            channels: if one_channel { profile.channels } else { 1 },
            open_zones_max: zones,
        }
    }

    /// The counters of the NAND. Padding counts as programmed.
    pub fn media(&self) -> NandCounters {
        self.nand.counters()
    }

    fn find(&self, zone: ZoneId) -> Result<usize, DeviceError> {
        if !self.nand.is_on() {
            return Err(DeviceError::Gone);
        }
        let found = (zone.0 as usize) < self.zones.len();
        found.then_some(zone.0 as usize).ok_or(DeviceError::State { zone, what: "there is no such zone" })
    }

    /// The state of a zone.
    ///
    /// # Errors
    /// The zone does not exist, or there is no power.
    pub fn report(&self, zone: ZoneId) -> Result<ZoneReport, DeviceError> {
        let zone = &self.zones[self.find(zone)?];
        let full = zone.written == self.geometry().zone_bytes;
        let state = match zone.condition {
            Condition::Offline => ZoneState::Offline,
            Condition::Unknown => ZoneState::Unknown,
            Condition::Finished => ZoneState::Full(zone.written),
            Condition::Writable if full => ZoneState::Full(zone.written),
            Condition::Writable if zone.written == 0 => ZoneState::Empty,
            Condition::Writable => ZoneState::Open(zone.written),
        };
        Ok(ZoneReport { state, resets: zone.resets })
    }

    /// The word line that holds a byte of a zone: its block, and its first page in the block.
    fn line_at(&self, zone: usize, offset: u64) -> (BlockId, u32) {
        let profile = self.nand.profile();
        let line = offset / profile.word_line_bytes() as u64;
        let wide = self.layout.luns_per_zone as u64;
        let block = self.zones[zone].blocks[(line % wide) as usize];
        (block, (line / wide) as u32 * profile.word_line_pages)
    }

    /// Appends whole pages to a zone. Returns their offset, and the time when the last page had left the host.
    ///
    /// # Errors
    /// As [`larder_flash::device::Device::append`].
    pub fn append(&mut self, at: u64, zone: ZoneId, pages: &[u8]) -> Result<(u64, u64), DeviceError> {
        let index = self.find(zone)?;
        if !pages.len().is_multiple_of(PAGE_BYTES) {
            return Err(DeviceError::State { zone, what: "not whole pages" });
        }
        match self.zones[index].condition {
            Condition::Writable => {}
            Condition::Finished => return Err(DeviceError::State { zone, what: "it is finished" }),
            Condition::Unknown => return Err(DeviceError::State { zone, what: "it is not erased" }),
            Condition::Offline => return Err(DeviceError::State { zone, what: "it is offline" }),
        }
        let offset = self.zones[index].written;
        if offset + pages.len() as u64 > self.geometry().zone_bytes {
            return Err(DeviceError::Full(zone));
        }
        let mut accepted = at;
        for page in pages.chunks_exact(PAGE_BYTES) {
            if self.nand.step().is_err() {
                self.tear_page(index, page);
                return Err(self.power_lost());
            }
            let zone = &mut self.zones[index];
            zone.staged.extend_from_slice(page);
            zone.written += PAGE_BYTES as u64;
            if zone.staged.len() == self.nand.profile().word_line_bytes() {
                match self.program_staged(at, index) {
                    Ok(end) => accepted = accepted.max(end),
                    Err(error) => return Err(self.failed_append(index, offset, error)),
                }
            }
        }
        Ok((offset, accepted))
    }

    /// Programs the staged word line, which is complete.
    fn program_staged(&mut self, at: u64, index: usize) -> Result<u64, NandError> {
        let (block, page) = self.line_at(index, self.zones[index].programmed);
        let staged = std::mem::take(&mut self.zones[index].staged);
        match self.nand.program(at, block, page, &staged) {
            Ok(span) => {
                self.zones[index].programmed += staged.len() as u64;
                Ok(span.accepted)
            }
            Err(error) => {
                // The bytes stay in the buffer until they are programmed.
                self.zones[index].staged = staged;
                Err(error)
            }
        }
    }

    fn failed_append(&mut self, index: usize, offset: u64, error: NandError) -> DeviceError {
        self.zones[index].condition = Condition::Finished;
        if error == NandError::PowerLost {
            return self.power_lost();
        }
        // The bytes of earlier appends stay, in the cells or in the buffer. The bytes of this append are dropped.
        let zone = &mut self.zones[index];
        zone.written = offset.max(zone.programmed);
        zone.staged.truncate((zone.written - zone.programmed) as usize);
        zone.synced = zone.synced.min(zone.written);
        io(error)
    }

    /// Stages a page that was torn by the loss of power: its first bytes are right, its rest is random.
    fn tear_page(&mut self, index: usize, page: &[u8]) {
        let mut torn = page.to_vec();
        let good = self.nand.rng.below(page.len() as u64) as usize;
        self.nand.rng.fill(&mut torn[good..]);
        let zone = &mut self.zones[index];
        zone.staged.extend_from_slice(&torn);
        zone.written += PAGE_BYTES as u64;
    }

    /// Reads whole pages. Returns the time when the last page was there.
    ///
    /// # Errors
    /// As [`larder_flash::device::Device::read`].
    pub fn read(&mut self, at: u64, zone: ZoneId, offset: u64, into: &mut [u8]) -> Result<u64, DeviceError> {
        let index = self.find(zone)?;
        let found = &self.zones[index];
        let (bound, programmed) = match found.condition {
            Condition::Offline => return Err(DeviceError::State { zone, what: "it is offline" }),
            Condition::Unknown => (self.geometry().zone_bytes, self.geometry().zone_bytes),
            _ => (found.written, found.programmed),
        };
        if !offset.is_multiple_of(PAGE_BYTES as u64) || !into.len().is_multiple_of(PAGE_BYTES) {
            return Err(DeviceError::State { zone, what: "not whole pages" });
        }
        if offset.checked_add(into.len() as u64).is_none_or(|end| end > bound) {
            return Err(DeviceError::State { zone, what: "nothing is written there" });
        }
        let line_bytes = self.nand.profile().word_line_bytes() as u64;
        let (mut done, mut end) = (0, at);
        while done < into.len() {
            let from = offset + done as u64;
            let within = from % line_bytes;
            let bytes = ((line_bytes - within) as usize).min(into.len() - done);
            let part = &mut into[done..done + bytes];
            if from < programmed {
                let (block, page) = self.line_at(index, from);
                let from = page as u64 * self.nand.profile().wide_page_bytes() as u64 + within;
                end = end.max(self.nand.read(at, block, from, part).map_err(io)?.end);
            } else {
                let staged = &self.zones[index].staged;
                part.copy_from_slice(&staged[within as usize..within as usize + bytes]);
            }
            done += bytes;
        }
        Ok(end)
    }

    /// Ends a zone. A word line that is not complete is filled with zeros and programmed.
    ///
    /// # Errors
    /// As [`larder_flash::device::Device::finish`].
    pub fn finish(&mut self, at: u64, zone: ZoneId) -> Result<u64, DeviceError> {
        let index = self.find(zone)?;
        if self.nand.step().is_err() {
            return Err(self.power_lost());
        }
        let found = &mut self.zones[index];
        match found.condition {
            Condition::Writable => found.condition = Condition::Finished,
            Condition::Finished => return Ok(at),
            _ => return Err(DeviceError::State { zone, what: "it is not erased, or offline" }),
        }
        if found.staged.is_empty() {
            return Ok(at);
        }
        found.staged.resize(self.nand.profile().word_line_bytes(), 0);
        match self.program_staged(at, index) {
            Ok(accepted) => Ok(accepted),
            Err(error) => {
                let found = &mut self.zones[index];
                found.staged.truncate((found.written - found.programmed) as usize);
                // The bytes stay in the buffer, and can be read. A finished zone needs no good block.
                if error == NandError::PowerLost { Err(self.power_lost()) } else { Ok(at) }
            }
        }
    }

    /// Erases the blocks of a zone, in parallel. Returns the time when all were erased.
    ///
    /// # Errors
    /// As [`larder_flash::device::Device::reset`]: the zone is offline if a block is bad and no spare is left.
    pub fn reset(&mut self, at: u64, zone: ZoneId) -> Result<u64, DeviceError> {
        let index = self.find(zone)?;
        if self.zones[index].condition == Condition::Offline {
            return Err(DeviceError::State { zone, what: "it is offline" });
        }
        if self.nand.step().is_err() {
            return Err(self.power_lost());
        }
        let found = &mut self.zones[index];
        found.condition = Condition::Unknown;
        (found.written, found.programmed, found.synced) = (0, 0, 0);
        found.staged.clear();
        let mut end = at;
        for id in found.blocks.clone() {
            // An erased block is not worn once more, and a bad block cannot be erased.
            if self.nand.is_erased(id) || self.nand.is_bad(id) {
                continue;
            }
            match self.nand.erase(at, id) {
                Ok(span) => end = end.max(span.end),
                Err(NandError::PowerLost) => return Err(self.power_lost()),
                Err(_) => {}
            }
        }
        self.zones[index].condition = Condition::Writable;
        self.zones[index].resets += 1;
        self.replace_bad(index);
        match self.zones[index].condition {
            Condition::Offline => {
                Err(DeviceError::Io { errno: None, what: format!("zone {zone:?}: worn out") })
            }
            _ => Ok(end),
        }
    }

    /// Makes all appends durable.
    ///
    /// # Errors
    /// There is no power.
    pub fn sync(&mut self) -> Result<(), DeviceError> {
        if !self.nand.is_on() {
            return Err(DeviceError::Gone);
        }
        if self.nand.step().is_err() {
            return Err(self.power_lost());
        }
        self.zones.iter_mut().for_each(|zone| zone.synced = zone.written);
        Ok(())
    }

    /// Cuts the power now, between two operations.
    pub fn cut_power(&mut self) {
        if self.nand.is_on() {
            self.power_lost();
        }
    }

    /// Handles a loss of power during the operation that just failed. Of the bytes that were not synced a random part
    /// survives.
    fn power_lost(&mut self) -> DeviceError {
        self.nand.set_power(false);
        let (line_bytes, page) = (self.nand.profile().word_line_bytes(), PAGE_BYTES as u64);
        for index in 0..self.zones.len() {
            let zone = &self.zones[index];
            if matches!(zone.condition, Condition::Unknown | Condition::Offline) {
                continue;
            }
            if zone.written > zone.synced {
                let cached = zone.written.saturating_sub(self.layout.cache_bytes / page * page);
                self.lose(index, zone.synced.max(zone.programmed.min(cached)));
            }
            let zone = &mut self.zones[index];
            if zone.staged.len() == line_bytes {
                // A complete word line is only in the buffer, and its cells are torn: the zone takes no more appends.
                zone.condition = Condition::Finished;
            }
        }
        DeviceError::Gone
    }

    /// Keeps a random number of the pages that a zone has beyond `least` bytes, and drops the rest.
    fn lose(&mut self, index: usize, least: u64) {
        let page = PAGE_BYTES as u64;
        let (written, programmed) = (self.zones[index].written, self.zones[index].programmed);
        let pages = (written - least) / page;
        let keep = least
            + page
                * match self.nand.rng.below(3) {
                    0 => pages,
                    1 => 0,
                    _ => self.nand.rng.below(pages + 1),
                };
        if keep == written {
            return;
        }
        let line_bytes = self.nand.profile().word_line_bytes() as u64;
        let base = (keep - keep % line_bytes).min(programmed);
        let line = if base < programmed { self.take_back(index, base) } else { None };
        let torn_page = self.nand.rng.below(2) == 0;
        let zone = &mut self.zones[index];
        if base < programmed {
            zone.staged = line.map_or_else(|| vec![0; line_bytes as usize], |line| line.into_vec());
            zone.programmed = base;
        }
        // The first page that is lost may be torn instead.
        let end = if torn_page { keep + page } else { keep };
        zone.written = end;
        zone.staged.truncate((end - base) as usize);
        if torn_page {
            let from = (keep - base) as usize;
            let good = self.nand.rng.below(page) as usize;
            self.nand.rng.fill(&mut self.zones[index].staged[from + good..]);
        }
    }

    /// Takes back the word lines from byte `base` of a zone on: they were still in the volatile cache. Returns the
    /// contents of the first one.
    fn take_back(&mut self, index: usize, base: u64) -> Option<Box<[u8]>> {
        let wide = self.layout.luns_per_zone as u64;
        let line = base / self.nand.profile().word_line_bytes() as u64;
        let mut first = None;
        for (lun, id) in self.zones[index].blocks.clone().into_iter().enumerate() {
            // The first word line at or behind `line` that is on this die.
            let ahead = (lun as u64 + wide - line % wide) % wide;
            let bytes = self.nand.forget(id, ((line + ahead) / wide) as u32);
            if ahead == 0 {
                first = bytes;
            }
        }
        first
    }

    /// Restores the power. The states of zones show which resets and appends were cut short.
    pub fn power_on(&mut self) {
        self.nand.set_power(true);
    }
}

/// An error of the NAND as an error of a device.
pub(super) fn io(error: NandError) -> DeviceError {
    match error {
        NandError::PowerLost => DeviceError::Gone,
        _ => DeviceError::Io { errno: None, what: error.to_string() },
    }
}
