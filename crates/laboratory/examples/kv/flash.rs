//! The flash under the slabs: blocks of an open-channel SSD, or ranges of an ordinary SSD.

use larder_flash::device::ZoneId;
use larder_flash::space::{ChannelLoad, FreeZones};
use larder_laboratory::ssd::{Ftl, FtlOptions, LBA_BYTES, OpenChannel, Profile, Wear, ZoneLayout};
use std::collections::VecDeque;

/// Holds slabs on flash. Times are virtual nanoseconds.
pub(crate) trait Store {
    fn slabs(&self) -> u32;
    /// Number of free slabs.
    fn free(&self) -> u32;
    fn take(&mut self) -> Option<u32>;
    fn give_back(&mut self, slab: u32);
    /// Writes a whole slab. Reoperations the time when its last byte had left memory.
    fn write(&mut self, at: u64, slab: u32) -> u64;
    /// Reads one page of 4 KiB. Reoperations the time when it was there.
    fn read(&mut self, at: u64, slab: u32, page: u32) -> u64;
    /// Erases a slab. Reoperations the time from which on it can be written.
    fn erase(&mut self, at: u64, slab: u32) -> u64;
    /// Duration of an erase without waiting.
    fn erase_ns(&self) -> u64;
    /// Number of blocks erased, bytes that the device copied by itself, and bytes programmed.
    fn device(&self) -> [u64; 3];
    fn wear(&self) -> Wear;
}

/// An open-channel SSD: a slab is a block of one channel.
pub(crate) struct Blocks {
    ssd: OpenChannel,
    free: FreeZones,
    load: ChannelLoad,
    buffer: Vec<u8>,
    page: Vec<u8>,
    operations: u32,
}

impl Blocks {
    pub(crate) fn new(profile: Profile, seed: u64) -> Blocks {
        let ssd = OpenChannel::new(profile, ZoneLayout { luns_per_zone: 1, cache_bytes: 0 }, seed);
        let geometry = ssd.geometry();
        let mut free = FreeZones::new(geometry.channels);
        (0..geometry.zones).for_each(|zone| free.add(ZoneId(zone), 0));
        let buffer = vec![0; geometry.zone_bytes as usize];
        Blocks {
            free,
            load: ChannelLoad::new(geometry.channels),
            buffer,
            page: vec![0; 4096],
            operations: 0,
            ssd,
        }
    }

    fn busy(&mut self, slab: u32, ns: u64) {
        self.load.add(ZoneId(slab), ns);
        self.operations += 1;
        if self.operations.is_multiple_of(1024) {
            self.load.age();
        }
    }
}

impl Store for Blocks {
    fn slabs(&self) -> u32 {
        self.ssd.geometry().zones
    }

    fn free(&self) -> u32 {
        self.free.len()
    }

    fn take(&mut self) -> Option<u32> {
        self.free.take(&self.load).map(|zone| zone.0)
    }

    fn give_back(&mut self, slab: u32) {
        let resets = self.ssd.report(ZoneId(slab)).expect("a zone").resets;
        self.free.add(ZoneId(slab), resets);
    }

    fn write(&mut self, at: u64, slab: u32) -> u64 {
        let profile = self.ssd.nand().profile();
        let ns = profile.program_ns * profile.word_lines() as u64;
        self.busy(slab, ns);
        self.ssd.append(at, ZoneId(slab), &self.buffer).expect("an erased block").1
    }

    fn read(&mut self, at: u64, slab: u32, page: u32) -> u64 {
        let ns = self.ssd.nand().profile().read_ns;
        self.busy(slab, ns);
        self.ssd.read(at, ZoneId(slab), page as u64 * 4096, &mut self.page).expect("a written page")
    }

    fn erase(&mut self, at: u64, slab: u32) -> u64 {
        let ns = self.ssd.nand().profile().erase_ns;
        self.busy(slab, ns);
        self.ssd.reset(at, ZoneId(slab)).expect("a good block")
    }

    fn erase_ns(&self) -> u64 {
        self.ssd.nand().profile().erase_ns
    }

    fn device(&self) -> [u64; 3] {
        let nand = self.ssd.nand().counters();
        [nand.erases, 0, nand.program_bytes]
    }

    fn wear(&self) -> Wear {
        self.ssd.nand().wear()
    }
}

/// An ordinary SSD: a slab is a range of logical blocks. Like Fatcache, the store does not tell the device that a
/// slab is free.
pub(crate) struct Ranges {
    ftl: Ftl,
    free: VecDeque<u32>,
    lbas: u32,
    slabs: u32,
    buffer: Vec<u8>,
    page: Vec<u8>,
}

impl Ranges {
    /// A store with slabs of `bytes` bytes.
    pub(crate) fn new(profile: Profile, options: FtlOptions, bytes: usize, seed: u64) -> Ranges {
        let ftl = Ftl::new(profile, options, seed);
        let lbas = (bytes / LBA_BYTES) as u32;
        let slabs = ftl.lbas() / lbas;
        Ranges { free: (0..slabs).collect(), lbas, slabs, buffer: vec![0; bytes], page: vec![0; 4096], ftl }
    }
}

impl Store for Ranges {
    fn slabs(&self) -> u32 {
        self.slabs
    }

    fn free(&self) -> u32 {
        self.free.len() as u32
    }

    fn take(&mut self) -> Option<u32> {
        self.free.pop_front()
    }

    fn give_back(&mut self, slab: u32) {
        self.free.push_back(slab);
    }

    fn write(&mut self, at: u64, slab: u32) -> u64 {
        self.ftl.write(at, slab * self.lbas, &self.buffer).expect("a drive that is not worn out")
    }

    fn read(&mut self, at: u64, slab: u32, page: u32) -> u64 {
        self.ftl.read(at, slab * self.lbas + page, &mut self.page).expect("a page of the drive")
    }

    fn erase(&mut self, at: u64, _slab: u32) -> u64 {
        at
    }

    fn erase_ns(&self) -> u64 {
        0
    }

    fn device(&self) -> [u64; 3] {
        let counters = self.ftl.counters();
        [counters.erases, counters.copied_bytes, counters.media_bytes]
    }

    fn wear(&self) -> Wear {
        self.ftl.wear()
    }
}
