use super::profile::Profile;
use super::rng::Rng;
use super::stats::{Histogram, Wear};
use larder_flash::device::ChannelCounters;
use std::collections::VecDeque;

/// A block of a die: the block with this number on all planes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BlockId {
    /// The number of the die, from 0. The die is on channel `lun % channels`.
    pub lun: u32,
    /// The number of the block on the die.
    pub block: u32,
}

/// A rule of NAND that a call broke, or a failure of the cells.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NandError {
    /// The block or the page does not exist.
    #[error("{0:?}: no such block or page")]
    Range(BlockId),
    /// The page is programmed already, or an erase of the block was cut short: the block must be erased first.
    #[error("{0:?}: programmed without being erased")]
    NotErased(BlockId),
    /// An earlier page of the block is not programmed yet.
    #[error("{0:?}: pages out of order")]
    OutOfOrder(BlockId),
    /// The bytes are not exactly one word line.
    #[error("{0:?}: not one whole word line")]
    NotAWordLine(BlockId),
    /// The page was not programmed.
    #[error("{0:?}: an unprogrammed page was read")]
    Unprogrammed(BlockId),
    /// The block is bad.
    #[error("{0:?}: a bad block")]
    Bad(BlockId),
    /// The program failed. The block is bad from now on; its earlier pages can still be read.
    #[error("{0:?}: program failed")]
    ProgramFailed(BlockId),
    /// The erase failed. The block is bad from now on.
    #[error("{0:?}: erase failed")]
    EraseFailed(BlockId),
    /// The page has more bit errors than can be corrected.
    #[error("{0:?}: uncorrectable")]
    Uncorrectable(BlockId),
    /// The power is off, or was cut during this operation.
    #[error("no power")]
    PowerLost,
}

/// The times of an operation, virtual nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// The operation began: its die had finished the operations before it.
    pub start: u64,
    /// Program: the data had left the host. Read and erase: the operation ended.
    pub accepted: u64,
    /// The operation ended.
    pub end: u64,
}

/// What the NAND has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NandCounters {
    /// Word lines programmed.
    pub programs: u64,
    /// Bytes that were programmed.
    pub program_bytes: u64,
    /// Pages that were read.
    pub reads: u64,
    /// Bytes that were read and transferred.
    pub read_bytes: u64,
    /// Blocks erased.
    pub erases: u64,
    /// Programs, erases and reads that failed in the cells.
    pub failures: u64,
}

/// An operation that is to fail; see [`Nand::inject`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The next program fails, and its block is bad.
    Program,
    /// The next erase fails, and its block is bad.
    Erase,
    /// The next read cannot be corrected. The contents stay.
    Read,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Health {
    Good,
    /// An erase was cut short. Reads return anything; the block must be erased before it is programmed.
    Undefined,
    Bad,
}

enum Content {
    /// The contents are not kept: reads return zeros.
    Nothing,
    Bytes(Box<[u8]>),
    /// The program was cut short, and left too many bit errors.
    Uncorrectable,
}

struct Block {
    health: Health,
    /// The contents of each word line that is programmed.
    content: Vec<Content>,
    erases: u32,
}

/// The times at which a bus is busy. A later transfer may use an earlier gap.
#[derive(Default)]
struct Bus {
    taken: Vec<(u64, u64)>,
    busy_ns: u64,
    /// Bytes that went over it to the cells and were programmed.
    program_bytes: u64,
}

impl Bus {
    /// Reserves the first gap of `ns` nanoseconds at or after `from`. Transfers that ended before `now` are forgotten.
    fn take(&mut self, now: u64, from: u64, ns: u64) -> u64 {
        self.taken.retain(|(_, end)| *end > now);
        let mut start = from;
        let mut at = 0;
        for (i, (taken, end)) in self.taken.iter().enumerate() {
            if start + ns <= *taken {
                break;
            }
            start = start.max(*end);
            at = i + 1;
        }
        self.taken.insert(at, (start, start + ns));
        self.busy_ns += ns;
        start
    }
}

/// The operations that a die was given and that had not ended at the last call.
#[derive(Default)]
struct Die {
    /// The operations in order of time: begin, end, and whether the operation is a read.
    work: VecDeque<(u64, u64, bool)>,
    /// The end of the last operation.
    free: u64,
}

impl Die {
    fn forget_before(&mut self, now: u64) {
        while self.work.front().is_some_and(|(_, end, _)| *end <= now) {
            self.work.pop_front();
        }
    }

    /// Adds an operation behind all others.
    fn push(&mut self, start: u64, end: u64) {
        self.work.push_back((start, end, false));
        self.free = end;
    }

    /// The position of a read that is issued at `at`, and the time when it begins. The read follows the operation in
    /// progress and earlier reads. With `reads_first` it precedes the programs and erases that wait.
    fn read_slot(&self, at: u64, reads_first: bool) -> (usize, u64) {
        let mut start = at;
        for (i, (from, to, is_read)) in self.work.iter().enumerate() {
            if reads_first && *from >= start && !is_read {
                return (i, start);
            }
            start = start.max(*to);
        }
        (self.work.len(), start.max(if reads_first { at } else { self.free }))
    }

    /// Inserts a read at a position. The operations behind it are delayed.
    fn insert_read(&mut self, slot: usize, start: u64, end: u64) {
        self.work.insert(slot, (start, end, true));
        let mut last = end;
        for (from, to, _) in self.work.iter_mut().skip(slot + 1) {
            let late = last.saturating_sub(*from);
            (*from, *to) = (*from + late, *to + late);
            last = *to;
        }
        self.free = self.free.max(last);
    }
}

/// Whether there is power, and the operation during which it is cut.
struct Power {
    operations: u64,
    cut_at: Option<u64>,
    on: bool,
}

/// The dies of an SSD, in virtual time. A call that breaks a rule of NAND is an error that names the rule.
///
/// A die carries out one operation at a time, and no operation is suspended. The dies of a channel share its bus. The
/// programs and erases of a die run in the order in which they were issued. Reads may overtake programs and erases
/// that wait ([`Profile::reads_first`]); these then end later than their [`Span`] said.
pub struct Nand {
    profile: Profile,
    blocks: Vec<Block>,
    dies: Vec<Die>,
    buses: Vec<Bus>,
    power: Power,
    faults: Vec<Fault>,
    pub(super) rng: Rng,
    counters: NandCounters,
    read_ns: Histogram,
    program_ns: Histogram,
    erase_ns: Histogram,
}

impl Nand {
    /// Erased dies. Some blocks are bad from the factory; `seed` decides which.
    pub fn new(profile: Profile, seed: u64) -> Nand {
        let mut rng = Rng::new(seed);
        let count = profile.luns() as usize * profile.blocks as usize;
        let health = |rng: &mut Rng| match rng.below(1000) < profile.factory_bad_per_mille as u64 {
            true => Health::Bad,
            false => Health::Good,
        };
        let blocks =
            (0..count).map(|_| Block { health: health(&mut rng), content: Vec::new(), erases: 0 }).collect();
        Nand {
            dies: (0..profile.luns()).map(|_| Die::default()).collect(),
            buses: (0..profile.channels).map(|_| Bus::default()).collect(),
            power: Power { operations: 0, cut_at: None, on: true },
            faults: Vec::new(),
            rng,
            counters: NandCounters::default(),
            read_ns: Histogram::default(),
            program_ns: Histogram::default(),
            erase_ns: Histogram::default(),
            profile,
            blocks,
        }
    }

    /// The profile.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    fn index(&self, id: BlockId) -> Result<usize, NandError> {
        let there = id.lun < self.profile.luns() && id.block < self.profile.blocks;
        there.then(|| (id.lun * self.profile.blocks + id.block) as usize).ok_or(NandError::Range(id))
    }

    /// Counts one operation. Answers `PowerLost` if the power is off, or is cut during this operation. Front ends
    /// call it for operations that do not reach the cells.
    pub fn step(&mut self) -> Result<(), NandError> {
        if !self.power.on {
            return Err(NandError::PowerLost);
        }
        if self.power.cut_at == Some(self.power.operations) {
            self.power.on = false;
            return Err(NandError::PowerLost);
        }
        self.power.operations += 1;
        Ok(())
    }

    /// Number of operations that completed.
    pub fn operations(&self) -> u64 {
        self.power.operations
    }

    /// Cuts the power during the operation that follows the next `operations` ones. `None` = never.
    pub fn cut_power_after(&mut self, operations: Option<u64>) {
        self.power.cut_at = operations.map(|n| self.power.operations.saturating_add(n));
    }

    /// Switches the power off or on. Switching it on cancels a requested cut.
    pub fn set_power(&mut self, on: bool) {
        if on && !self.power.on {
            self.power.cut_at = None;
        }
        self.power.on = on;
    }

    /// Whether there is power.
    pub fn is_on(&self) -> bool {
        self.power.on
    }

    /// Makes the next operation of a kind fail. Several requests add up.
    pub fn inject(&mut self, fault: Fault) {
        self.faults.push(fault);
    }

    fn fails(&mut self, fault: Fault, erases: u32) -> bool {
        if let Some(at) = self.faults.iter().position(|f| *f == fault) {
            self.faults.swap_remove(at);
            return true;
        }
        // Beyond the limit of erases, one erase in 16 and one program in 4096 fails.
        let one_in = match fault {
            Fault::Erase => 16,
            Fault::Program => 4096,
            Fault::Read => return false,
        };
        erases > self.profile.erases_max && self.rng.below(one_in) == 0
    }

    /// Programs the word line that begins at page `page` of a block, at virtual time `at`.
    ///
    /// # Errors
    /// The call breaks a rule, or the cells fail.
    pub fn program(&mut self, at: u64, id: BlockId, page: u32, bytes: &[u8]) -> Result<Span, NandError> {
        let index = self.index(id)?;
        if !self.power.on {
            return Err(NandError::PowerLost);
        }
        let per_line = self.profile.word_line_pages;
        let block = &self.blocks[index];
        let next = block.content.len() as u32 * per_line;
        match block.health {
            Health::Bad => return Err(NandError::Bad(id)),
            Health::Undefined => return Err(NandError::NotErased(id)),
            Health::Good => {}
        }
        if page >= self.profile.pages {
            return Err(NandError::Range(id));
        }
        if page < next {
            return Err(NandError::NotErased(id));
        }
        if !page.is_multiple_of(per_line) || bytes.len() != self.profile.word_line_bytes() {
            return Err(NandError::NotAWordLine(id));
        }
        if page > next {
            return Err(NandError::OutOfOrder(id));
        }
        let erases = block.erases;
        if let Err(error) = self.step() {
            let torn = self.torn(bytes);
            self.blocks[index].content.push(torn);
            return Err(error);
        }
        if self.fails(Fault::Program, erases) {
            self.counters.failures += 1;
            self.blocks[index].health = Health::Bad;
            return Err(NandError::ProgramFailed(id));
        }
        let keeps = self.profile.keeps_contents;
        self.blocks[index].content.push(if keeps { Content::Bytes(bytes.into()) } else { Content::Nothing });
        self.counters.programs += 1;
        self.counters.program_bytes += bytes.len() as u64;
        Ok(self.program_time(at, id.lun, bytes.len() as u64))
    }

    fn program_time(&mut self, at: u64, lun: u32, bytes: u64) -> Span {
        let transfer = self.profile.transfer_ns(bytes);
        let die = &mut self.dies[lun as usize];
        let bus = &mut self.buses[(lun % self.profile.channels) as usize];
        die.forget_before(at);
        let start = bus.take(at, at.max(die.free), transfer);
        bus.program_bytes += bytes;
        let span =
            Span { start, accepted: start + transfer, end: start + transfer + self.profile.times.program_ns };
        die.push(start, span.end);
        self.program_ns.add(span.end - at);
        span
    }

    /// The contents of a word line whose program was cut short.
    fn torn(&mut self, bytes: &[u8]) -> Content {
        if self.rng.below(4) == 0 {
            return Content::Uncorrectable;
        }
        let mut left: Box<[u8]> = bytes.into();
        let good = self.rng.below(bytes.len() as u64) as usize;
        self.rng.fill(&mut left[good..]);
        Content::Bytes(left)
    }

    /// Reads bytes from `offset` of a block at virtual time `at`. The bytes may span several pages.
    ///
    /// # Errors
    /// [`NandError::Unprogrammed`], [`NandError::Range`], or a failure of the cells.
    pub fn read(&mut self, at: u64, id: BlockId, offset: u64, into: &mut [u8]) -> Result<Span, NandError> {
        let index = self.index(id)?;
        if !self.power.on {
            return Err(NandError::PowerLost);
        }
        let (line_bytes, page_bytes) =
            (self.profile.word_line_bytes() as u64, self.profile.wide_page_bytes() as u64);
        if offset + into.len() as u64 > self.profile.block_bytes() {
            return Err(NandError::Range(id));
        }
        if self.fails(Fault::Read, 0) {
            self.counters.failures += 1;
            return Err(NandError::Uncorrectable(id));
        }
        let mut span: Option<Span> = None;
        let mut done = 0;
        while done < into.len() {
            let from = offset + done as u64;
            let bytes = ((page_bytes - from % page_bytes) as usize).min(into.len() - done);
            let part = &mut into[done..done + bytes];
            let within = (from % line_bytes) as usize;
            match self.blocks[index].content.get((from / line_bytes) as usize) {
                None => return Err(NandError::Unprogrammed(id)),
                Some(Content::Uncorrectable) => return Err(NandError::Uncorrectable(id)),
                Some(Content::Nothing) => part.fill(0),
                Some(Content::Bytes(kept)) => part.copy_from_slice(&kept[within..within + bytes]),
            }
            let one = self.read_time(at, id.lun, bytes as u64);
            span = Some(Span { start: span.map_or(one.start, |span| span.start), ..one });
            done += bytes;
        }
        Ok(span.unwrap_or(Span { start: at, accepted: at, end: at }))
    }

    fn read_time(&mut self, at: u64, lun: u32, bytes: u64) -> Span {
        let die = &mut self.dies[lun as usize];
        let bus = &mut self.buses[(lun % self.profile.channels) as usize];
        die.forget_before(at);
        let (slot, start) = die.read_slot(at, self.profile.reads_first);
        let transfer = self.profile.transfer_ns(bytes);
        let end = bus.take(at, start + self.profile.times.read_ns, transfer) + transfer;
        die.insert_read(slot, start, end);
        self.counters.reads += 1;
        self.counters.read_bytes += bytes;
        self.read_ns.add(end - at);
        Span { start, accepted: end, end }
    }

    /// Erases a block at virtual time `at`. If the power is cut during the erase, the contents are undefined.
    ///
    /// # Errors
    /// The block is bad, or the cells fail.
    pub fn erase(&mut self, at: u64, id: BlockId) -> Result<Span, NandError> {
        let index = self.index(id)?;
        if !self.power.on {
            return Err(NandError::PowerLost);
        }
        if self.blocks[index].health == Health::Bad {
            return Err(NandError::Bad(id));
        }
        if let Err(error) = self.step() {
            self.undefine(index);
            return Err(error);
        }
        let block = &mut self.blocks[index];
        block.erases += 1;
        let erases = block.erases;
        if self.fails(Fault::Erase, erases) {
            self.counters.failures += 1;
            self.blocks[index].health = Health::Bad;
            return Err(NandError::EraseFailed(id));
        }
        let block = &mut self.blocks[index];
        block.health = Health::Good;
        block.content.clear();
        self.counters.erases += 1;
        let die = &mut self.dies[id.lun as usize];
        die.forget_before(at);
        let start = at.max(die.free);
        let end = start + self.profile.times.erase_ns;
        die.push(start, end);
        let span = Span { start, accepted: end, end };
        self.erase_ns.add(span.end - at);
        Ok(span)
    }

    /// Applies an erase that was cut short: each word line stays, is damaged, becomes unreadable, or is gone.
    fn undefine(&mut self, index: usize) {
        let mut content = std::mem::take(&mut self.blocks[index].content);
        for line in &mut content {
            match (self.rng.below(4), &mut *line) {
                (0, Content::Bytes(bytes)) => {
                    let from = self.rng.below(bytes.len() as u64) as usize;
                    self.rng.fill(&mut bytes[from..]);
                }
                (1, _) => *line = Content::Uncorrectable,
                _ => {}
            }
        }
        let left = self.rng.below(content.len() as u64 + 1) as usize;
        content.truncate(left);
        self.blocks[index].content = content;
        self.blocks[index].health = Health::Undefined;
    }

    /// Takes back the programs of word lines `from` and later: they were still in the volatile cache when the power
    /// was cut. Returns the contents of word line `from`, if they are known.
    pub(super) fn forget(&mut self, id: BlockId, from: u32) -> Option<Box<[u8]>> {
        let index = self.index(id).ok()?;
        let content = &mut self.blocks[index].content;
        let rest = if content.len() > from as usize { content.split_off(from as usize) } else { Vec::new() };
        match rest.into_iter().next() {
            Some(Content::Bytes(bytes)) => Some(bytes),
            _ => None,
        }
    }

    /// Whether a block is good and erased.
    pub fn is_erased(&self, id: BlockId) -> bool {
        self.index(id).is_ok_and(|index| {
            self.blocks[index].health == Health::Good && self.blocks[index].content.is_empty()
        })
    }

    /// Whether a block is bad.
    pub fn is_bad(&self, id: BlockId) -> bool {
        self.index(id).is_ok_and(|index| self.blocks[index].health == Health::Bad)
    }

    /// How often a block was erased.
    pub fn erases(&self, id: BlockId) -> u32 {
        self.index(id).map_or(0, |index| self.blocks[index].erases)
    }

    /// The time when all dies have carried out everything that was issued so far.
    pub fn idle_at_ns(&self) -> u64 {
        self.dies.iter().map(|die| die.free).max().unwrap_or(0)
    }

    /// Nanoseconds for which the bus of a channel was busy.
    pub fn bus_busy_ns(&self, channel: u32) -> u64 {
        self.buses.get(channel as usize).map_or(0, |bus| bus.busy_ns)
    }

    /// The counters.
    pub fn counters(&self) -> NandCounters {
        self.counters
    }

    /// How evenly the blocks are worn.
    pub fn wear(&self) -> Wear {
        let good: Vec<_> = self.blocks.iter().filter(|b| b.health != Health::Bad).map(|b| b.erases).collect();
        let bad = self.blocks.len() - good.len();
        Wear::of(good, bad as u32)
    }

    /// What each channel has done, in their order.
    pub fn channels(&self) -> Vec<ChannelCounters> {
        let numbered = self.buses.iter().enumerate();
        let channel = |(number, bus): (usize, &Bus)| {
            let dies = self.blocks.chunks(self.profile.blocks as usize).skip(number);
            let blocks = dies.step_by(self.buses.len()).flatten();
            let good = blocks.filter(|block| block.health != Health::Bad).map(|block| block.erases);
            let erases = Wear::of(good.collect(), 0).spread();
            ChannelCounters { media_bytes: bus.program_bytes, erases }
        };
        numbered.map(channel).collect()
    }

    /// Latencies of reads, programs and erases, from issue to end, with the time of waiting.
    pub fn latencies(&self) -> [&Histogram; 3] {
        [&self.read_ns, &self.program_ns, &self.erase_ns]
    }
}
