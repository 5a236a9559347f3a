//! What a cache is made of, and what it holds.

use crate::compression::Compress;
use crate::placement::Placement;
use crate::temperature::{Device, TemperatureKind};
use larder_allocation::WorthOptions;
use larder_memory::{NumaNodes, PagesWanted};
use std::path::PathBuf;

/// What a cache is made of.
#[derive(Clone, Debug)]
pub struct CacheOptions {
    /// `-m` in bytes: the hard bound over columns, index, connection buffers and bookkeeping.
    pub limit_bytes: u64,
    /// `-I` in bytes: the largest item, counted as memcached counts it.
    pub item_bytes_max: u64,
    /// Whether a full cache makes room by evicting (`-M` says no). If not, and there is flash, items leave memory for
    /// flash, and stay if flash does not take them.
    pub evict: bool,
    /// How many workers will register.
    pub workers: usize,
    /// What the sessions of encrypted connections may hold, in bytes: at most an eighth of the limit. Default 0.
    pub sessions_bytes: u64,
    /// What connection buffers may take together, in bytes: at least what the workers need, and at most a quarter of
    /// the limit. `None` = a sixteenth, and at least 4 MiB.
    pub buffers_bytes: Option<u64>,
    /// Whether columns have up to half of that, and a 32nd of the limit at most, while connections do not need it: the
    /// cache then has to be told what they hold ([`crate::Cache::measure_buffers_by`]). It has no effect without
    /// eviction.
    pub lends_buffers: bool,
    /// Which pages the arena asks the kernel for.
    pub pages: PagesWanted,
    /// A file on a tmpfs or a hugetlbfs that the items lie in, so that they outlive the process. It decides about the
    /// pages. Not with flash.
    pub keep: Option<PathBuf>,
    /// Column size in bytes; `None` = from the machine's CPU cache.
    pub column_bytes: Option<u32>,
    /// Values up to this many bytes are written behind their key; `None` = the default of the memory crate.
    pub inline_value_bytes: Option<u32>,
    /// Where items stand that are moved.
    pub placement: Placement,
    /// Log2 of the first number of index entries, memcached's hash power; `None` = as few as can be.
    pub hashpower: Option<u32>,
    /// Seed of the key hash; `None` = random.
    pub seed: Option<u64>,
    /// How the cache knows which items are warm.
    pub temperature: TemperatureKind,
    /// What the worth of an item is made of.
    pub worth: WorthOptions,
    /// Which values the keeper compresses while memory is full.
    pub compress: Compress,
    /// The byte that ends the prefix of a key (`-D`). What misses cost is estimated for each prefix, and values are
    /// compressed by prefix.
    pub prefix_delimiter: u8,
    /// Which processor does the work of the temperature policy. Default: the CPU.
    pub device: Device,
    /// The nodes that columns are divided among. Coloured pages and a file count as one node. Default: one.
    pub nodes: NumaNodes,
}

impl Default for CacheOptions {
    fn default() -> Self {
        CacheOptions {
            limit_bytes: 64 << 20,
            item_bytes_max: 1 << 20,
            evict: true,
            workers: 4,
            sessions_bytes: 0,
            buffers_bytes: None,
            lends_buffers: false,
            pages: PagesWanted::Auto,
            keep: None,
            column_bytes: None,
            inline_value_bytes: None,
            placement: Placement::default(),
            hashpower: None,
            seed: None,
            temperature: TemperatureKind::default(),
            worth: WorthOptions::default(),
            compress: Compress::default(),
            prefix_delimiter: b':',
            device: Device::default(),
            nodes: NumaNodes::default(),
        }
    }
}

/// Why a cache could not be made: one line that says what to do.
#[derive(Debug)]
pub struct CacheError(pub String);

impl std::fmt::Display for CacheError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CacheError {}

/// Bytes held, by purpose.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryUse {
    /// The limit, `-m`.
    pub limit_bytes: u64,
    /// Slabs mapped for columns.
    pub columns_bytes: u64,
    /// The part of the mapped columns that holds nothing now.
    pub free_columns_bytes: u64,
    /// Live items in columns: keys, values and headers.
    pub items_bytes: u64,
    /// Buckets and sub-buckets of the index.
    pub index_bytes: u64,
    /// The most that connection buffers may hold. It is set aside whether it is used or not.
    pub buffers_cap_bytes: u64,
    /// The most that the sessions of encrypted connections may hold, set aside in the same way.
    pub sessions_cap_bytes: u64,
    /// Bookkeeping of columns, pages of references, samples for curves, and what admission to flash remembers.
    pub bookkeeping_bytes: u64,
    /// Ghost, warmth record and shadows, or what is set aside for them.
    pub temperature_bytes: u64,
}
