//! What the caller chooses, the sizes that result, and the errors at start.

use crate::numa::NumaNodes;
use std::fmt;
use std::path::PathBuf;

/// Bytes of a slab: one huge page, the unit in which memory is mapped and given back.
pub const SLAB_BYTES: usize = 2 << 20;
/// The longest dictionary that a file has a place for, in bytes.
pub const DICTIONARY_BYTES_MAX: usize = 64 << 10;
/// Dictionaries have numbers below this one, from 1 on. A file has room for 31 of
/// [`DICTIONARY_BYTES_MAX`] in its first 2 MiB.
pub const DICTIONARIES_MAX: u8 = 32;
/// Smallest column, in bytes.
pub const COLUMN_BYTES_MIN: u32 = 32 << 10;
/// Largest column, in bytes.
pub const COLUMN_BYTES_MAX: u32 = 1 << 20;
/// Column size if the machine does not describe its cache: 2048 sets of 64 bytes.
pub const COLUMN_BYTES_DEFAULT: u32 = 128 << 10;
/// The number of columns that a limit should hold. Columns are made smaller to reach it.
pub const COLUMNS_WANTED_MIN: u64 = 1000;
/// Default for [`MemoryOptions::inline_value_bytes_max`].
pub const INLINE_VALUE_BYTES_MAX_DEFAULT: u32 = 1024;
/// Bytes of an operating-system page.
#[cfg(not(any(miri, loom)))]
pub(crate) const PAGE_BYTES: usize = 4096;

/// The kind of pages that the arena should use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PagesWanted {
    /// Explicit huge pages as far as the machine has them in reserve, otherwise transparent ones, otherwise small
    /// ones.
    #[default]
    Auto,
    /// Explicit huge pages, or an error.
    Huge,
    /// Transparent huge pages, or an error if the kernel never provides any.
    Transparent,
    /// 4-KiB pages.
    Small,
    /// 4-KiB pages sorted by cache colour, or plain ones if the kernel hides physical addresses.
    Coloured,
}

/// The kind of pages that the arena uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageKind {
    /// 2-MiB pages from the machine's reserve (`vm.nr_hugepages`).
    ExplicitHuge,
    /// 2-MiB pages that the kernel provides when it can.
    Transparent,
    /// 4-KiB pages.
    Small,
    /// 4-KiB pages arranged so that each column covers every cache set once.
    Coloured {
        /// Number of colours, which is the number of pages of a column.
        colours: u32,
    },
}

/// How to set up a [`Memory`](crate::Memory).
#[derive(Clone, Debug)]
pub struct MemoryOptions {
    /// Bytes of all columns together, rounded down to whole slabs, but at least one slab.
    pub limit_bytes: u64,
    /// The highest limit that [`Memory::set_limit`](crate::Memory::set_limit) may set later, in bytes. It costs
    /// address space only. `None` means that the limit cannot be raised.
    pub reserve_bytes: Option<u64>,
    /// Bytes of a column, a power of two from 32 KiB to 1 MiB. `None` means that the cache description of the
    /// machine decides.
    pub column_bytes: Option<u32>,
    /// Which pages to use.
    pub pages: PagesWanted,
    /// Values up to this many bytes are stored behind their key. Longer ones are stored at the high end of the
    /// column.
    pub inline_value_bytes_max: u32,
    /// Whether every record has a word for an expiry, also that of an item that never expires: it can then be given
    /// one in place, without room for another record.
    pub always_expiry_word: bool,
    /// The nodes whose memory is used, in equal parts. Coloured pages and a file count as one node. Default: one.
    pub nodes: NumaNodes,
}

impl Default for MemoryOptions {
    /// 64 MiB, and the machine decides everything else.
    fn default() -> Self {
        MemoryOptions {
            limit_bytes: 64 << 20,
            reserve_bytes: None,
            column_bytes: None,
            pages: PagesWanted::Auto,
            inline_value_bytes_max: INLINE_VALUE_BYTES_MAX_DEFAULT,
            always_expiry_word: false,
            nodes: NumaNodes::default(),
        }
    }
}

/// A file that the memory is to lie in, so that it outlives the process.
#[derive(Clone, Debug)]
pub struct KeepOptions {
    /// The file, on a tmpfs or a hugetlbfs. It is made if there is none.
    pub path: PathBuf,
    /// The seed of the hash of the keys, if the file is begun anew.
    pub seed: u64,
}

/// What an earlier process left in the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Left {
    /// Nothing: the file is new.
    Nothing,
    /// The columns of a server that stopped in order.
    Stopped,
    /// The columns of a server that was killed.
    Killed,
    /// Something that cannot be used, for this reason. The file was begun anew.
    Unusable(String),
}

/// The sizes that were chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Bytes of a column, a power of two.
    pub column_bytes: u32,
    /// Bytes of a slab: 2 MiB.
    pub slab_bytes: u32,
    /// Columns of a slab, at most 64.
    pub columns_per_slab: u32,
    /// Number of columns in the whole reservation.
    pub columns_max: u32,
    /// Values up to this many bytes are stored behind their key.
    pub inline_value_bytes_max: u32,
    /// Longest value that should be given to `OpenColumn::place`, in bytes. A longer value goes into chunks. At
    /// most `VALUE_LENGTH_MAX`, and at most a quarter of a column.
    pub whole_value_bytes_max: u32,
    /// Longest chunk, in bytes: 16 KiB less 4 bytes, or an eighth of a column, whichever is less.
    pub chunk_bytes_max: u32,
}

/// Why the memory could not be set up. Each message is one line and says what to do.
#[derive(Debug)]
pub enum MemoryError {
    /// The limit is smaller than one slab, or larger than a location can express.
    Limit {
        /// The requested limit.
        bytes: u64,
    },
    /// The column size is not a power of two in the allowed range.
    ColumnBytes {
        /// The requested size.
        bytes: u32,
    },
    /// Explicit huge pages were demanded, and the machine has too few.
    HugePagesAbsent {
        /// Huge pages needed.
        wanted: u64,
        /// Huge pages free in the machine's reserve.
        free: u64,
    },
    /// Transparent huge pages were demanded, and the kernel gives none.
    TransparentAbsent,
    /// The file of a kept memory cannot be used.
    Keep {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        what: String,
    },
    /// The kernel refused the address space.
    Reserve {
        /// Bytes that were requested.
        bytes: u64,
        /// The kernel's error.
        error: std::io::Error,
    },
}

impl fmt::Display for MemoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MemoryError::Limit { bytes } => {
                write!(
                    f,
                    "a memory limit of {bytes} bytes is out of range: give at least 2 MiB and at most 64 TiB"
                )
            }
            MemoryError::ColumnBytes { bytes } => {
                write!(
                    f,
                    "columns of {bytes} bytes are impossible: give a power of two from 32768 to 1048576"
                )
            }
            MemoryError::HugePagesAbsent { wanted, free } => write!(
                f,
                "{wanted} huge pages of 2 MiB are needed and {free} are free: run `sysctl vm.nr_hugepages={wanted}` \
                 or choose other pages with --pages"
            ),
            MemoryError::TransparentAbsent => write!(
                f,
                "the kernel gives no transparent huge pages: write `madvise` to \
                 /sys/kernel/mm/transparent_hugepage/enabled or choose other pages with --pages"
            ),
            MemoryError::Keep { path, what } => {
                write!(f, "cannot keep memory in {} (--keep): {what}", path.display())
            }
            MemoryError::Reserve { bytes, error } => {
                write!(
                    f,
                    "the kernel refused {bytes} bytes of address space ({error}): lower the limit or raise `ulimit -v`"
                )
            }
        }
    }
}

impl std::error::Error for MemoryError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            MemoryError::Reserve { error, .. } => Some(error),
            _ => None,
        }
    }
}
