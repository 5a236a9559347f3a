/// The parts of a simulated SSD and their timing. A caller may change any field before the SSD is built.
///
/// The planes of a die always work together, as in a drive that stripes over planes. So a *block* here is one block
/// of every plane of a die, a *page* is one page of every plane, and a *word line* is the pages that are programmed
/// in one shot.
#[derive(Clone, Debug)]
pub struct Profile {
    /// The name of the profile.
    pub name: &'static str,
    /// Number of channels. Each channel has a bus of its own.
    pub channels: u32,
    /// Dies on each channel. A die is a LUN: it carries out one operation at a time.
    pub dies_per_channel: u32,
    /// Planes on each die.
    pub planes: u32,
    /// Blocks on each plane.
    pub blocks: u32,
    /// Pages in each block.
    pub pages: u32,
    /// Bytes of a page of one plane: a multiple of 4096.
    pub page_bytes: u32,
    /// Pages programmed in one shot (3 for TLC); divides `pages`.
    pub word_line_pages: u32,
    /// How long the cells take.
    pub times: CellTimes,
    /// Bytes per second on the bus of a channel.
    pub bus_bytes_per_s: u64,
    /// Whether a read overtakes the programs and erases that wait for its die. It still waits for the operation in
    /// progress.
    pub reads_first: bool,
    /// Number of erases after which the erases and programs of a block begin to fail.
    pub erases_max: u32,
    /// Share of the blocks that are bad from the factory, per mille, on average.
    pub factory_bad_per_mille: u32,
    /// Share of the blocks of each die that are spares for bad blocks, per mille; at least one block. Only
    /// [`super::OpenChannel`] has spares.
    pub spare_per_mille: u32,
    /// Whether the contents are kept. Without them every read returns zeros, which is enough to measure wear and time.
    pub keeps_contents: bool,
}

/// How long the cells of a die take, nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct CellTimes {
    /// tR: the time from the cells to the register, for one page.
    pub read_ns: u64,
    /// tPROG: the time from the register to the cells, for one word line.
    pub program_ns: u64,
    /// tBERS: the time to erase one block.
    pub erase_ns: u64,
}

impl Profile {
    /// A TLC drive of about 2024: 8 channels of 4 dies of 4 planes, blocks of 18 MiB per plane, 3 GB/s of
    /// programming, 144 GiB. Change `blocks` for another size. The figures are rounded from NVMeVirt's model of the
    /// WD ZN540, from py_ssd_sim and from ISSCC'23. The limit of 3000 erases is from a datasheet of MLC; the limit of
    /// TLC varies.
    pub fn tlc_2024() -> Profile {
        Profile {
            name: "tlc-2024",
            channels: 8,
            dies_per_channel: 4,
            planes: 4,
            blocks: 64,
            pages: 1152,
            page_bytes: 16 << 10,
            word_line_pages: 3,
            times: CellTimes { read_ns: 60_000, program_ns: 2_100_000, erase_ns: 10_000_000 },
            bus_bytes_per_s: 800_000_000,
            reads_first: true,
            erases_max: 3000,
            factory_bad_per_mille: 5,
            spare_per_mille: 20,
            keeps_contents: true,
        }
    }

    /// A drive of 128 MiB with the times of [`Profile::tlc_2024`], small enough to be overwritten many times in a
    /// test: 4 channels of 2 dies of 1 plane, 64 blocks of 64 pages of 4 KiB, four pages to a word line.
    pub fn test_tiny() -> Profile {
        Profile {
            name: "test-tiny",
            channels: 4,
            dies_per_channel: 2,
            planes: 1,
            blocks: 64,
            pages: 64,
            page_bytes: 4096,
            word_line_pages: 4,
            ..Profile::tlc_2024()
        }
    }

    /// Number of dies. Die `i` is on channel `i % channels`.
    pub fn luns(&self) -> u32 {
        self.channels * self.dies_per_channel
    }

    /// Bytes of one page of all planes of a die.
    pub fn wide_page_bytes(&self) -> usize {
        self.page_bytes as usize * self.planes as usize
    }

    /// Bytes that are programmed in one shot.
    pub fn word_line_bytes(&self) -> usize {
        self.wide_page_bytes() * self.word_line_pages as usize
    }

    /// Word lines in each block.
    pub fn word_lines(&self) -> u32 {
        self.pages / self.word_line_pages
    }

    /// Bytes of a block, over all planes.
    pub fn block_bytes(&self) -> u64 {
        self.word_line_bytes() as u64 * self.word_lines() as u64
    }

    /// Bytes of all blocks.
    pub fn raw_bytes(&self) -> u64 {
        self.block_bytes() * self.blocks as u64 * self.luns() as u64
    }

    /// Nanoseconds that a transfer of `bytes` bytes takes on a bus.
    pub fn transfer_ns(&self, bytes: u64) -> u64 {
        (bytes as u128 * 1_000_000_000 / self.bus_bytes_per_s.max(1) as u128) as u64
    }
}
