use super::{BlockId, Nand, NandError, Profile, Wear};
use std::collections::BTreeSet;

/// Bytes of a logical block: what is mapped as one.
pub const LBA_BYTES: usize = 4096;

const NOWHERE: u32 = u32::MAX;

/// How the FTL is set up.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FtlOptions {
    /// Space that the host does not see, percent of what it sees: 7 is a consumer drive's, 28 a server's.
    pub over_provisioning_percent: f64,
    /// Garbage is collected when fewer lines than this are erased; at least 2, one of which collection itself needs.
    pub gc_below_lines: u32,
    /// ... until so many are.
    pub gc_until_lines: u32,
    /// Static wear levelling: when the most and the least worn line are this many erases apart, the data of the least worn
    /// one is moved, however much of it is valid. `None` = off.
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

/// What the FTL did. `media_bytes / host_bytes` is DLWA.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FtlCounters {
    /// Bytes the host wrote.
    pub host_bytes: u64,
    /// Bytes that collection moved: valid ones of its victims.
    pub copied_bytes: u64,
    /// Bytes programmed, for whatever reason.
    pub media_bytes: u64,
    /// Lines collected.
    pub collected: u64,
    /// Of them, for the sake of wear.
    pub levelled: u64,
    /// Blocks erased.
    pub erases: u64,
}

/// Why the FTL did not do it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FtlError {
    /// Beyond the last block.
    #[error("logical block {0} is beyond the end")]
    Range(u32),
    /// Worn out: no line is left to write to.
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
    /// By die: whether its block can still be programmed.
    good: Vec<bool>,
}

/// Where one kind of data is being written: word line by word line, over all dies.
#[derive(Default)]
struct Stream {
    line: Option<u32>,
    /// Word lines of it that are done with, counted over the dies.
    next: u32,
    lbas: Vec<u32>,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Who {
    Host = 0,
    Collector = 1,
}

/// The baseline that keeps nobody's promises: a page-mapped flash translation layer of the ordinary kind.
///
/// 4 KiB are mapped at a time; lines are superblocks over all dies; the victim is the line with the fewest valid blocks; what
/// the collector moves goes to a line of its own. The map and the buffers are protected by capacitors, as a server drive's:
/// power is no matter here.
pub struct Ftl {
    nand: Nand,
    options: FtlOptions,
    lbas: u32,
    lines: Vec<Line>,
    free: BTreeSet<(u32, u32)>,
    /// By logical block: the place of it.
    map: Vec<u32>,
    /// By place: the logical block that is there, if it still is.
    owner: Vec<u32>,
    streams: [Stream; 2],
    counters: FtlCounters,
    collecting: bool,
}

impl Ftl {
    /// An erased drive.
    ///
    /// # Panics
    /// If there are not enough lines: at least four more than the host sees; or more than 16 TiB.
    pub fn new(profile: Profile, options: FtlOptions, seed: u64) -> Ftl {
        let nand = Nand::new(profile.clone(), seed);
        let raw = profile.raw_bytes() / LBA_BYTES as u64;
        let lbas = (raw as f64 / (1.0 + options.over_provisioning_percent / 100.0)) as u64;
        let per_line = profile.block_bytes() / LBA_BYTES as u64 * profile.luns() as u64;
        assert!(raw < NOWHERE as u64, "places are numbered in 32 bits");
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

    /// Logical blocks that the host sees.
    pub fn lbas(&self) -> u32 {
        self.lbas
    }

    /// The cells.
    pub fn nand(&self) -> &Nand {
        &self.nand
    }

    /// The cells, to inject faults.
    pub fn nand_mut(&mut self) -> &mut Nand {
        &mut self.nand
    }

    /// What was done.
    pub fn counters(&self) -> FtlCounters {
        let nand = self.nand.counters();
        FtlCounters { media_bytes: nand.program_bytes, erases: nand.erases, ..self.counters }
    }

    /// How evenly the cells are worn.
    pub fn wear(&self) -> Wear {
        self.nand.wear()
    }

    /// Bytes of DRAM for the map, which an open-channel device does not have: 4 for every 4 KiB.
    pub fn map_bytes(&self) -> u64 {
        self.map.len() as u64 * 4
    }

    /// Erased lines held ready.
    pub fn free_lines(&self) -> u32 {
        self.free.len() as u32
    }

    fn per_word_line(&self) -> u32 {
        (self.nand.profile().word_line_bytes() / LBA_BYTES) as u32
    }

    fn per_line(&self) -> u32 {
        self.per_word_line() * self.nand.profile().word_lines() * self.nand.profile().luns()
    }

    /// Writes whole logical blocks from `lba` on, at virtual time `at`. Returns when the last of them was taken.
    ///
    /// # Errors
    /// Beyond the end; worn out.
    pub fn write(&mut self, at: u64, lba: u32, bytes: &[u8]) -> Result<u64, FtlError> {
        let count = (bytes.len() / LBA_BYTES) as u32;
        if lba.checked_add(count).is_none_or(|end| end > self.lbas) {
            return Err(FtlError::Range(lba));
        }
        let mut taken = at;
        for (i, bytes) in bytes.chunks_exact(LBA_BYTES).enumerate() {
            taken = taken.max(self.put(at, Who::Host, lba + i as u32, bytes)?);
            self.counters.host_bytes += LBA_BYTES as u64;
        }
        Ok(taken)
    }

    /// Adds one logical block to a stream's word line, and programs that when it is whole.
    fn put(&mut self, at: u64, who: Who, lba: u32, bytes: &[u8]) -> Result<u64, FtlError> {
        let mut taken = at;
        if self.streams[who as usize].line.is_none() {
            taken = self.open_line(at, who)?;
        }
        self.forget(lba);
        let place = self.place(who, self.streams[who as usize].lbas.len() as u32);
        self.take_place(lba, place);
        let stream = &mut self.streams[who as usize];
        stream.lbas.push(lba);
        stream.bytes.extend_from_slice(bytes);
        if stream.bytes.len() == self.nand.profile().word_line_bytes() {
            taken = taken.max(self.program(at, who)?);
        }
        Ok(taken)
    }

    /// The place of the `nth` block in the stream's word line.
    fn place(&self, who: Who, nth: u32) -> u32 {
        let stream = &self.streams[who as usize];
        stream.line.map_or(NOWHERE, |line| line * self.per_line() + stream.next * self.per_word_line() + nth)
    }

    fn take_place(&mut self, lba: u32, place: u32) {
        self.map[lba as usize] = place;
        self.owner[place as usize] = lba;
        let line = (place / self.per_line()) as usize;
        self.lines[line].valid += 1;
    }

    /// What `lba` was mapped to is garbage now.
    fn forget(&mut self, lba: u32) {
        let place = std::mem::replace(&mut self.map[lba as usize], NOWHERE);
        if place != NOWHERE {
            self.owner[place as usize] = NOWHERE;
            let line = (place / self.per_line()) as usize;
            self.lines[line].valid -= 1;
        }
    }

    fn block_at(&self, line: u32, word_line: u32) -> (BlockId, u32) {
        let profile = self.nand.profile();
        let luns = profile.luns();
        (BlockId { lun: word_line % luns, block: line }, word_line / luns * profile.word_line_pages)
    }

    /// Programs the whole word line of a stream; if its block fails, what was in it is put again.
    fn program(&mut self, at: u64, who: Who) -> Result<u64, FtlError> {
        let Some(line) = self.streams[who as usize].line else { return Ok(at) };
        let (block, page) = self.block_at(line, self.streams[who as usize].next);
        let from = self.place(who, 0);
        let bytes = std::mem::take(&mut self.streams[who as usize].bytes);
        let lbas = std::mem::take(&mut self.streams[who as usize].lbas);
        let result = self.nand.program(at, block, page, &bytes);
        if result.is_err() {
            self.lines[line as usize].good[block.lun as usize] = false;
        }
        self.advance(who);
        match result {
            Ok(span) => return Ok(span.accepted),
            Err(NandError::ProgramFailed(_) | NandError::Bad(_)) => {}
            Err(error) => return Err(error.into()),
        }
        // The host may have written or trimmed some of it meanwhile. None of it is anywhere until it is put again.
        let lost = (0..).zip(lbas).zip(bytes.chunks_exact(LBA_BYTES));
        let lost: Vec<_> = lost.filter(|((i, lba), _)| self.map[*lba as usize] == from + i).collect();
        lost.iter().for_each(|((_, lba), _)| self.forget(*lba));
        let mut taken = at;
        for ((_, lba), bytes) in lost {
            taken = taken.max(self.put(at, who, lba, bytes)?);
        }
        Ok(taken)
    }

    /// To the next word line that lies on a good block; the line is full when there is none.
    fn advance(&mut self, who: Who) {
        let Some(line) = self.streams[who as usize].line else { return };
        let next = self.streams[who as usize].next + 1;
        match self.next_good(line, next) {
            Some(next) => self.streams[who as usize].next = next,
            None => {
                self.lines[line as usize].state = LineState::Full;
                self.streams[who as usize].line = None;
            }
        }
    }

    fn next_good(&self, line: u32, from: u32) -> Option<u32> {
        let profile = self.nand.profile();
        let good = &self.lines[line as usize].good;
        (from..profile.word_lines() * profile.luns()).find(|next| good[(next % profile.luns()) as usize])
    }

    /// A line for a stream: the least worn of the erased ones. Collects first if there are too few.
    fn open_line(&mut self, at: u64, who: Who) -> Result<u64, FtlError> {
        let mut taken = at;
        if who == Who::Host {
            taken = self.collect_to_watermark(at)?;
        }
        // The last line is the collector's: without one it could not make another.
        if who == Who::Host && self.free.len() < 2 {
            return Err(FtlError::WornOut);
        }
        while let Some((_, line)) = self.free.pop_first() {
            if let Some(next) = self.next_good(line, 0) {
                self.lines[line as usize].state = LineState::Open;
                let stream = &mut self.streams[who as usize];
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
        // Lines with bad blocks may give less than they take: no more turns than there are lines.
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

    /// The full line with the fewest valid blocks; none if all of them are valid everywhere.
    fn victim(&self) -> Option<u32> {
        let full = self.lines.iter().enumerate().filter(|(_, line)| line.state == LineState::Full);
        let (line, found) = full.min_by_key(|(_, line)| line.valid)?;
        (found.valid < self.per_line()).then_some(line as u32)
    }

    /// The least worn line, if it lags behind and rests.
    fn cold_line(&self) -> Option<u32> {
        let apart = self.options.level_wear_at?;
        let most =
            self.lines.iter().filter(|line| line.state != LineState::Dead).map(|line| line.erases).max()?;
        let full = self.lines.iter().enumerate().filter(|(_, line)| line.state == LineState::Full);
        let (line, least) = full.min_by_key(|(_, line)| line.erases)?;
        (most - least.erases >= apart).then_some(line as u32)
    }

    /// Moves what is valid in a line, and erases it. Returns when its reads were over.
    fn collect(&mut self, at: u64, line: u32) -> Result<u64, FtlError> {
        self.counters.collected += 1;
        let (first, per_line) = (line * self.per_line(), self.per_line());
        let (mut bytes, mut end) = (vec![0; LBA_BYTES], at);
        for place in first..first + per_line {
            let lba = self.owner[place as usize];
            if lba == NOWHERE {
                continue;
            }
            let read = self.read_place(at, place, &mut bytes)?;
            // A block that does not come back is lost to the host; here it would be an error of the model.
            self.put(read, Who::Collector, lba, &bytes)?;
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

    fn read_place(&mut self, at: u64, place: u32, into: &mut [u8]) -> Result<u64, FtlError> {
        for stream in &self.streams {
            let Some(line) = stream.line else { continue };
            let first = line * self.per_line() + stream.next * self.per_word_line();
            if let Some(nth) = place.checked_sub(first).filter(|nth| (*nth as usize) < stream.lbas.len()) {
                let from = nth as usize * LBA_BYTES;
                into.copy_from_slice(&stream.bytes[from..from + LBA_BYTES]);
                return Ok(at);
            }
        }
        let (line, within) = (place / self.per_line(), place % self.per_line());
        let (word_line, nth) = (within / self.per_word_line(), within % self.per_word_line());
        let (block, page) = self.block_at(line, word_line);
        let page_bytes = self.nand.profile().wide_page_bytes() as u64;
        let offset = page as u64 * page_bytes + nth as u64 * LBA_BYTES as u64;
        Ok(self.nand.read(at, block, offset, into)?.end)
    }

    /// Reads logical blocks from `lba` on; those that were never written, or trimmed, are zeros. Returns when the last was
    /// there.
    ///
    /// # Errors
    /// Beyond the end; a failure of the cells.
    pub fn read(&mut self, at: u64, lba: u32, into: &mut [u8]) -> Result<u64, FtlError> {
        let count = (into.len() / LBA_BYTES) as u32;
        if lba.checked_add(count).is_none_or(|end| end > self.lbas) {
            return Err(FtlError::Range(lba));
        }
        let mut end = at;
        for (i, part) in into.chunks_exact_mut(LBA_BYTES).enumerate() {
            match self.map[lba as usize + i] {
                NOWHERE => part.fill(0),
                place => end = end.max(self.read_place(at, place, part)?),
            }
        }
        Ok(end)
    }

    /// The host does not need `count` logical blocks from `lba` on any more.
    ///
    /// # Errors
    /// Beyond the end.
    pub fn trim(&mut self, lba: u32, count: u32) -> Result<(), FtlError> {
        if lba.checked_add(count).is_none_or(|end| end > self.lbas) {
            return Err(FtlError::Range(lba));
        }
        (lba..lba + count).for_each(|lba| self.forget(lba));
        Ok(())
    }

    /// Whether a logical block holds something.
    pub fn is_mapped(&self, lba: u32) -> bool {
        self.map.get(lba as usize).is_some_and(|place| *place != NOWHERE)
    }

    /// Checks that the map and its inverse agree, and that lines count right.
    ///
    /// # Panics
    /// If not: an error of the model.
    pub fn check(&self) {
        let mut valid = vec![0; self.lines.len()];
        for (lba, place) in self.map.iter().enumerate().filter(|(_, place)| **place != NOWHERE) {
            assert_eq!(self.owner[*place as usize], lba as u32);
            valid[(place / self.per_line()) as usize] += 1;
        }
        assert!(self.lines.iter().zip(&valid).all(|(line, valid)| line.valid == *valid));
        assert_eq!(
            self.owner.iter().filter(|lba| **lba != NOWHERE).count() as u32,
            valid.iter().sum::<u32>()
        );
        assert!(self.free.iter().all(|(_, line)| valid[*line as usize] == 0));
    }
}
