use super::nand::{BlockId, Nand, NandError};
use super::profile::Profile;
use super::stats::Wear;
use std::collections::BTreeSet;

/// Bytes of a logical block, which is the unit of the map.
pub const LBA_BYTES: usize = 4096;

/// The address of a logical block that holds nothing, and the owner of an address without valid data.
const NOWHERE: u32 = u32::MAX;

/// The parameters of the translation layer.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FtlOptions {
    /// Space that the host does not see, percent of the space that it sees: 7 in a consumer drive, 28 in a server
    /// drive.
    pub over_provisioning_percent: f64,
    /// Collection starts when fewer lines than this are erased. At least 2: collection itself needs one.
    pub gc_below_lines: u32,
    /// Collection ends when this many lines are erased.
    pub gc_until_lines: u32,
    /// Static wear levelling: when the most and the least worn line differ by this many erases, the data of the least
    /// worn line is moved, even if all of it is valid. `None` = off.
    pub level_wear_at: Option<u32>,
}

impl Default for FtlOptions {
    fn default() -> FtlOptions {
        FtlOptions {
            over_provisioning_percent: 7.0,
            gc_below_lines: 2,
            gc_until_lines: 2,
            level_wear_at: None,
        }
    }
}

/// What the translation layer has done. `media_bytes / host_bytes` is the device-level write amplification.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FtlCounters {
    /// Bytes that the host wrote.
    pub host_bytes: u64,
    /// Valid bytes that collection copied.
    pub copied_bytes: u64,
    /// All bytes that were programmed.
    pub media_bytes: u64,
    /// Lines that were collected.
    pub collected: u64,
    /// Lines that were collected to level the wear.
    pub levelled: u64,
    /// Blocks that were erased.
    pub erases: u64,
}

/// Why an operation of the translation layer failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FtlError {
    /// The logical block does not exist.
    #[error("logical block {0} is beyond the end")]
    Range(u32),
    /// The drive is worn out: no line is left to write to.
    #[error("worn out: it can only be read")]
    WornOut,
    /// The cells failed.
    #[error(transparent)]
    Nand(#[from] NandError),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LineState {
    Free,
    Open,
    Full,
    Dead,
}

/// A superblock: one block of every die.
struct Line {
    state: LineState,
    valid: u32,
    erases: u32,
    /// For each die, whether its block can still be programmed.
    good: Vec<bool>,
}

/// The line to which one kind of data is written, word line by word line over all dies.
#[derive(Default)]
struct Stream {
    line: Option<u32>,
    /// The next word line, counted over all dies.
    next: u32,
    /// Logical blocks of the word line that is being filled, and their contents.
    lbas: Vec<u32>,
    bytes: Vec<u8>,
}

/// The origin of a write; each has a stream of its own.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    Host = 0,
    Collector = 1,
}

/// The baseline: a page-mapped flash translation layer (FTL) of the ordinary kind.
///
/// The map has an address for every 4 KiB. A line is a superblock over all dies. The victim of garbage collection is
/// the line with the fewest valid blocks. The collector writes to a line of its own. Capacitors protect the map and
/// the buffers, as in a server drive, so a loss of power is not modelled.
pub struct Ftl {
    nand: Nand,
    options: FtlOptions,
    lbas: u32,
    lines: Vec<Line>,
    free: BTreeSet<(u32, u32)>,
    /// For each logical block, its address.
    map: Vec<u32>,
    /// For each address, the logical block whose valid data are there.
    owner: Vec<u32>,
    streams: [Stream; 2],
    counters: FtlCounters,
    collecting: bool,
}

impl Ftl {
    /// An erased drive.
    ///
    /// # Panics
    /// If there are fewer than four lines beyond those that the host sees, or more than 16 TiB.
    pub fn new(profile: Profile, options: FtlOptions, seed: u64) -> Ftl {
        let nand = Nand::new(profile.clone(), seed);
        let raw = profile.raw_bytes() / LBA_BYTES as u64;
        let lbas = (raw as f64 / (1.0 + options.over_provisioning_percent / 100.0)) as u64;
        let per_line = profile.block_bytes() / LBA_BYTES as u64 * profile.luns() as u64;
        assert!(raw < NOWHERE as u64, "addresses have 32 bits");
        assert!(
            options.gc_below_lines >= 2 && options.gc_until_lines >= options.gc_below_lines,
            "watermarks"
        );
        let spare_lines = profile.blocks as u64 - lbas.div_ceil(per_line);
        assert!(spare_lines >= options.gc_until_lines as u64 + 2, "{spare_lines} lines to spare");
        let line = |block| {
            let good = (0..profile.luns()).map(|lun| !nand.is_bad(BlockId { lun, block })).collect();
            Line { state: LineState::Free, valid: 0, erases: 0, good }
        };
        let lines: Vec<Line> = (0..profile.blocks).map(line).collect();
        Ftl {
            free: (0..profile.blocks).map(|line| (0, line)).collect(),
            map: vec![NOWHERE; lbas as usize],
            owner: vec![NOWHERE; raw as usize],
            streams: Default::default(),
            counters: FtlCounters::default(),
            collecting: false,
            lbas: lbas as u32,
            nand,
            options,
            lines,
        }
    }

    /// Number of logical blocks that the host sees.
    pub fn lbas(&self) -> u32 {
        self.lbas
    }

    /// The NAND.
    pub fn nand(&self) -> &Nand {
        &self.nand
    }

    /// The NAND, to inject faults.
    pub fn nand_mut(&mut self) -> &mut Nand {
        &mut self.nand
    }

    /// The counters.
    pub fn counters(&self) -> FtlCounters {
        let nand = self.nand.counters();
        FtlCounters { media_bytes: nand.program_bytes, erases: nand.erases, ..self.counters }
    }

    /// How evenly the blocks are worn.
    pub fn wear(&self) -> Wear {
        self.nand.wear()
    }

    /// Number of erased lines.
    pub fn free_lines(&self) -> u32 {
        self.free.len() as u32
    }

    fn per_word_line(&self) -> u32 {
        (self.nand.profile().word_line_bytes() / LBA_BYTES) as u32
    }

    fn per_line(&self) -> u32 {
        self.per_word_line() * self.nand.profile().word_lines() * self.nand.profile().luns()
    }

    /// Writes whole logical blocks from `lba` on, at virtual time `at`. Returns the time when the last one was
    /// accepted.
    ///
    /// # Errors
    /// A logical block does not exist, or the drive is worn out.
    pub fn write(&mut self, at: u64, lba: u32, bytes: &[u8]) -> Result<u64, FtlError> {
        let count = (bytes.len() / LBA_BYTES) as u32;
        if lba.checked_add(count).is_none_or(|end| end > self.lbas) {
            return Err(FtlError::Range(lba));
        }
        let mut taken = at;
        for (i, bytes) in bytes.chunks_exact(LBA_BYTES).enumerate() {
            taken = taken.max(self.put(at, Origin::Host, lba + i as u32, bytes)?);
            self.counters.host_bytes += LBA_BYTES as u64;
        }
        Ok(taken)
    }

    /// Adds one logical block to the word line of a stream, and programs the word line when it is complete.
    fn put(&mut self, at: u64, origin: Origin, lba: u32, bytes: &[u8]) -> Result<u64, FtlError> {
        let mut taken = at;
        if self.streams[origin as usize].line.is_none() {
            taken = self.open_line(at, origin)?;
        }
        self.forget(lba);
        let address = self.address(origin, self.streams[origin as usize].lbas.len() as u32);
        self.map_to(lba, address);
        let stream = &mut self.streams[origin as usize];
        stream.lbas.push(lba);
        stream.bytes.extend_from_slice(bytes);
        if stream.bytes.len() == self.nand.profile().word_line_bytes() {
            taken = taken.max(self.program(at, origin)?);
        }
        Ok(taken)
    }

    /// The address of block `nth` of the word line that a stream fills.
    fn address(&self, origin: Origin, nth: u32) -> u32 {
        let stream = &self.streams[origin as usize];
        stream.line.map_or(NOWHERE, |line| line * self.per_line() + stream.next * self.per_word_line() + nth)
    }

    /// Maps a logical block to an address.
    fn map_to(&mut self, lba: u32, address: u32) {
        self.map[lba as usize] = address;
        self.owner[address as usize] = lba;
        let line = (address / self.per_line()) as usize;
        self.lines[line].valid += 1;
    }

    /// Unmaps a logical block: its old contents are garbage.
    fn forget(&mut self, lba: u32) {
        let address = std::mem::replace(&mut self.map[lba as usize], NOWHERE);
        if address != NOWHERE {
            self.owner[address as usize] = NOWHERE;
            let line = (address / self.per_line()) as usize;
            self.lines[line].valid -= 1;
        }
    }

    /// The block and the first page of a word line.
    fn block_at(&self, line: u32, word_line: u32) -> (BlockId, u32) {
        let profile = self.nand.profile();
        let luns = profile.luns();
        (BlockId { lun: word_line % luns, block: line }, word_line / luns * profile.word_line_pages)
    }

    /// Programs the complete word line of a stream. If its block fails, the contents are put again.
    fn program(&mut self, at: u64, origin: Origin) -> Result<u64, FtlError> {
        let Some(line) = self.streams[origin as usize].line else { return Ok(at) };
        let (block, page) = self.block_at(line, self.streams[origin as usize].next);
        let from = self.address(origin, 0);
        let bytes = std::mem::take(&mut self.streams[origin as usize].bytes);
        let lbas = std::mem::take(&mut self.streams[origin as usize].lbas);
        let result = self.nand.program(at, block, page, &bytes);
        if result.is_err() {
            self.lines[line as usize].good[block.lun as usize] = false;
        }
        self.advance(origin);
        match result {
            Ok(span) => return Ok(span.accepted),
            Err(NandError::ProgramFailed(_) | NandError::Bad(_)) => {}
            Err(error) => return Err(error.into()),
        }
        // The host may have written or trimmed some of these blocks meanwhile. The others are unmapped until they are
        // put again.
        let lost = (0..).zip(lbas).zip(bytes.chunks_exact(LBA_BYTES));
        let lost: Vec<_> = lost.filter(|((i, lba), _)| self.map[*lba as usize] == from + i).collect();
        lost.iter().for_each(|((_, lba), _)| self.forget(*lba));
        let mut taken = at;
        for ((_, lba), bytes) in lost {
            taken = taken.max(self.put(at, origin, lba, bytes)?);
        }
        Ok(taken)
    }

    /// Goes to the next word line on a good block. If there is none, the line is full.
    fn advance(&mut self, origin: Origin) {
        let Some(line) = self.streams[origin as usize].line else { return };
        let next = self.streams[origin as usize].next + 1;
        match self.next_good(line, next) {
            Some(next) => self.streams[origin as usize].next = next,
            None => {
                self.lines[line as usize].state = LineState::Full;
                self.streams[origin as usize].line = None;
            }
        }
    }

    fn next_good(&self, line: u32, from: u32) -> Option<u32> {
        let profile = self.nand.profile();
        let good = &self.lines[line as usize].good;
        (from..profile.word_lines() * profile.luns()).find(|next| good[(next % profile.luns()) as usize])
    }

    /// Opens a line for a stream: the least worn erased one. Collects first if there are too few.
    fn open_line(&mut self, at: u64, origin: Origin) -> Result<u64, FtlError> {
        let mut taken = at;
        if origin == Origin::Host {
            taken = self.collect_to_watermark(at)?;
        }
        // The last erased line is for the collector, which needs one to make another.
        if origin == Origin::Host && self.free.len() < 2 {
            return Err(FtlError::WornOut);
        }
        while let Some((_, line)) = self.free.pop_first() {
            if let Some(next) = self.next_good(line, 0) {
                self.lines[line as usize].state = LineState::Open;
                let stream = &mut self.streams[origin as usize];
                (stream.line, stream.next) = (Some(line), next);
                return Ok(taken);
            }
            self.lines[line as usize].state = LineState::Dead;
        }
        Err(FtlError::WornOut)
    }

    fn collect_to_watermark(&mut self, at: u64) -> Result<u64, FtlError> {
        let mut taken = at;
        if self.collecting || self.free_lines() >= self.options.gc_below_lines {
            return Ok(taken);
        }
        self.collecting = true;
        // Collecting a line with bad blocks may gain nothing: collect each line at most once.
        for _ in 0..self.lines.len() {
            let victim = self.victim().filter(|_| self.free_lines() < self.options.gc_until_lines);
            let Some(line) = victim else { break };
            let result = self.collect(at, line);
            taken = taken.max(result.inspect_err(|_| self.collecting = false)?);
        }
        if let Some(line) = self.cold_line() {
            self.counters.levelled += 1;
            let result = self.collect(at, line);
            taken = taken.max(result.inspect_err(|_| self.collecting = false)?);
        }
        self.collecting = false;
        Ok(taken)
    }

    /// The full line with the fewest valid blocks; `None` if all blocks of all full lines are valid.
    fn victim(&self) -> Option<u32> {
        let full = self.lines.iter().enumerate().filter(|(_, line)| line.state == LineState::Full);
        let (line, found) = full.min_by_key(|(_, line)| line.valid)?;
        (found.valid < self.per_line()).then_some(line as u32)
    }

    /// The least worn full line, if it differs from the most worn line by too many erases.
    fn cold_line(&self) -> Option<u32> {
        let apart = self.options.level_wear_at?;
        let most =
            self.lines.iter().filter(|line| line.state != LineState::Dead).map(|line| line.erases).max()?;
        let full = self.lines.iter().enumerate().filter(|(_, line)| line.state == LineState::Full);
        let (line, least) = full.min_by_key(|(_, line)| line.erases)?;
        (most - least.erases >= apart).then_some(line as u32)
    }

    /// Copies the valid blocks of a line, and erases it. Returns the time when its reads had ended.
    fn collect(&mut self, at: u64, line: u32) -> Result<u64, FtlError> {
        self.counters.collected += 1;
        let (first, per_line) = (line * self.per_line(), self.per_line());
        let (mut bytes, mut end) = (vec![0; LBA_BYTES], at);
        for address in first..first + per_line {
            let lba = self.owner[address as usize];
            if lba == NOWHERE {
                continue;
            }
            let read = self.read_address(at, address, &mut bytes)?;
            // A real drive would lose a block that cannot be read. In this model that is an error.
            self.put(read, Origin::Collector, lba, &bytes)?;
            self.counters.copied_bytes += LBA_BYTES as u64;
            end = end.max(read);
        }
        let luns = self.nand.profile().luns();
        for lun in 0..luns {
            let block = BlockId { lun, block: line };
            if self.lines[line as usize].good[lun as usize] && self.nand.erase(end, block).is_err() {
                self.lines[line as usize].good[lun as usize] = false;
            }
        }
        let found = &mut self.lines[line as usize];
        found.erases += 1;
        found.state = if found.good.contains(&true) { LineState::Free } else { LineState::Dead };
        if found.state == LineState::Free {
            self.free.insert((found.erases, line));
        }
        Ok(end)
    }

    fn read_address(&mut self, at: u64, address: u32, into: &mut [u8]) -> Result<u64, FtlError> {
        for stream in &self.streams {
            let Some(line) = stream.line else { continue };
            let first = line * self.per_line() + stream.next * self.per_word_line();
            if let Some(nth) = address.checked_sub(first).filter(|nth| (*nth as usize) < stream.lbas.len()) {
                let from = nth as usize * LBA_BYTES;
                into.copy_from_slice(&stream.bytes[from..from + LBA_BYTES]);
                return Ok(at);
            }
        }
        let (line, within) = (address / self.per_line(), address % self.per_line());
        let (word_line, nth) = (within / self.per_word_line(), within % self.per_word_line());
        let (block, page) = self.block_at(line, word_line);
        let page_bytes = self.nand.profile().wide_page_bytes() as u64;
        let offset = page as u64 * page_bytes + nth as u64 * LBA_BYTES as u64;
        Ok(self.nand.read(at, block, offset, into)?.end)
    }

    /// Reads logical blocks from `lba` on. A block that was never written, or was trimmed, reads as zeros. Returns
    /// the time when the last block was there.
    ///
    /// # Errors
    /// A logical block does not exist, or the cells fail.
    pub fn read(&mut self, at: u64, lba: u32, into: &mut [u8]) -> Result<u64, FtlError> {
        let count = (into.len() / LBA_BYTES) as u32;
        if lba.checked_add(count).is_none_or(|end| end > self.lbas) {
            return Err(FtlError::Range(lba));
        }
        let mut end = at;
        for (i, part) in into.chunks_exact_mut(LBA_BYTES).enumerate() {
            match self.map[lba as usize + i] {
                NOWHERE => part.fill(0),
                address => end = end.max(self.read_address(at, address, part)?),
            }
        }
        Ok(end)
    }

    /// Trims `count` logical blocks from `lba` on: the host does not need their contents any more.
    ///
    /// # Errors
    /// A logical block does not exist.
    pub fn trim(&mut self, lba: u32, count: u32) -> Result<(), FtlError> {
        if lba.checked_add(count).is_none_or(|end| end > self.lbas) {
            return Err(FtlError::Range(lba));
        }
        (lba..lba + count).for_each(|lba| self.forget(lba));
        Ok(())
    }

    /// Whether a logical block was written and not trimmed.
    pub fn is_mapped(&self, lba: u32) -> bool {
        self.map.get(lba as usize).is_some_and(|address| *address != NOWHERE)
    }

    /// Checks that the map and its inverse agree, and that the counts of valid blocks are right.
    ///
    /// # Panics
    /// If they do not: the model has an error.
    pub fn check(&self) {
        let mut valid = vec![0; self.lines.len()];
        for (lba, address) in self.map.iter().enumerate().filter(|(_, address)| **address != NOWHERE) {
            assert_eq!(self.owner[*address as usize], lba as u32);
            valid[(address / self.per_line()) as usize] += 1;
        }
        assert!(self.lines.iter().zip(&valid).all(|(line, valid)| line.valid == *valid));
        assert_eq!(
            self.owner.iter().filter(|lba| **lba != NOWHERE).count() as u32,
            valid.iter().sum::<u32>()
        );
        assert!(self.free.iter().all(|(_, line)| valid[*line as usize] == 0));
    }
}
