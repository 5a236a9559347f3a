//! Sizes that settings are given in.

/// One MiB, in bytes.
pub const MIB: u64 = 1 << 20;

/// The least memory limit, in bytes.
pub const MEMORY_BYTES_MIN: u64 = larder_cache::LIMIT_BYTES_MIN;
