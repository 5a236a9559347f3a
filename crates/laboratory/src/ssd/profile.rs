/// What a simulated SSD is made of. The fields may be changed before it is built.
///
/// The planes of a die always work together, as FTLs that stripe over planes have it: a *block* here is one block of every
/// plane of a die, a *page* one page of every plane, and a *word line* the pages that are programmed in one shot.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Its name.
    pub name: &'static str,
    /// Channels; each has a bus of its own.
    pub channels: u32,
    /// Dies on each channel. A die is a LUN: it does one thing at a time.
    pub dies_per_channel: u32,
    /// Planes of a die.
    pub planes: u32,
    /// Blocks of a plane.
    pub blocks: u32,
    /// Pages of a block.
    pub pages: u32,
    /// Bytes of a page of one plane: a multiple of 4096.
    pub page_bytes: u32,
    /// Pages programmed in one shot (3 for TLC); divides `pages`.
    pub word_line_pages: u32,
    /// tR, nanoseconds: array to register, one page.
    pub read_ns: u64,
    /// tPROG, nanoseconds: register to array, one word line.
    pub program_ns: u64,
    /// tBERS, nanoseconds: one block.
    pub erase_ns: u64,
    /// Bytes per second on a channel's bus.
    pub bus_bytes_per_s: u64,
    /// Whether a read goes before programs and erases of its die that wait; it waits for the one under way.
    pub reads_first: bool,
    /// How often a block can be erased before erases and programs begin to fail.
    pub erases_max: u32,
    /// Blocks of each die, per mille, that are bad from the factory, on average.
    pub factory_bad_per_mille: u32,
    /// Blocks of each die, per mille, that stand in for bad ones (open-channel front end); at least one.
    pub spare_per_mille: u32,
    /// Whether programmed bytes are kept. Without, everything reads as zeros: for runs about wear and time only.
    pub keeps_contents: bool,
}

impl Profile {
    /// A TLC drive of about 2024: 8 channels of 4 dies of 4 planes, 18-MiB blocks a plane, 3 GB/s of programming. Sources: the
    /// parameters of NVMeVirt's WD ZN540 model, py_ssd_sim and ISSCC'23, rounded. 64 blocks a plane = 144 GiB; change
    /// `blocks` for another size. The limit of 3000 erases is a datasheet's for MLC; TLC varies.
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
            read_ns: 60_000,
            program_ns: 2_100_000,
            erase_ns: 10_000_000,
            bus_bytes_per_s: 800_000_000,
            reads_first: true,
            erases_max: 3000,
            factory_bad_per_mille: 5,
            spare_per_mille: 20,
            keeps_contents: true,
        }
    }

    /// The same, faster: 300 layers and more, about twice the programming.
    pub fn tlc_fast() -> Profile {
        Profile {
            name: "tlc-fast",
            read_ns: 45_000,
            program_ns: 1_000_000,
            erase_ns: 5_000_000,
            bus_bytes_per_s: 1_200_000_000,
            ..Profile::tlc_2024()
        }
    }

    /// 128 MiB with the same times, so that a test can write it over many times: 4 channels of 2 dies of 1 plane, 64 blocks
    /// of 64 pages of 4 KiB, four pages to a word line.
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

    /// Dies in all. Die `i` is on channel `i % channels`.
    pub fn luns(&self) -> u32 {
        self.channels * self.dies_per_channel
    }

    /// Bytes of a page of all planes.
    pub fn wide_page_bytes(&self) -> usize {
        self.page_bytes as usize * self.planes as usize
    }

    /// Bytes programmed in one shot.
    pub fn word_line_bytes(&self) -> usize {
        self.wide_page_bytes() * self.word_line_pages as usize
    }

    /// Word lines of a block.
    pub fn word_lines(&self) -> u32 {
        self.pages / self.word_line_pages
    }

    /// Bytes of a block (all planes).
    pub fn block_bytes(&self) -> u64 {
        self.word_line_bytes() as u64 * self.word_lines() as u64
    }

    /// Bytes of everything.
    pub fn raw_bytes(&self) -> u64 {
        self.block_bytes() * self.blocks as u64 * self.luns() as u64
    }

    /// Nanoseconds that `bytes` take on a bus.
    pub fn transfer_ns(&self, bytes: u64) -> u64 {
        (bytes as u128 * 1_000_000_000 / self.bus_bytes_per_s.max(1) as u128) as u64
    }
}
