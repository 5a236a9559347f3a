//! What compression has come to.

/// What compression has come to. What was counted is in [`Totals`](crate::Totals).
#[derive(Clone, Debug, Default)]
pub struct CompressionStats {
    /// About how many items are stored plain, and the bytes of their values. Large values in chunks count here.
    pub plain_items: u64,
    /// See `plain_items`.
    pub plain_bytes: u64,
    /// About how many items are stored compressed, the bytes of their values, and what those take.
    pub compressed_items: u64,
    /// See `compressed_items`.
    pub expanded_bytes: u64,
    /// See `compressed_items`.
    pub compressed_bytes: u64,
    /// Bytes of dictionaries, inside `-m`.
    pub dictionaries_bytes: u64,
    /// A dictionary is being trained.
    pub is_training: bool,
    /// The dictionaries that records need or may need.
    pub dictionaries: Vec<DictionaryStats>,
}

/// One dictionary.
#[derive(Clone, Debug, Default)]
pub struct DictionaryStats {
    /// Its number, from 1 on.
    pub number: u8,
    /// No new record needs it: it goes with the last one that does.
    pub is_outgoing: bool,
    /// It is that of all kinds of values which have none of their own.
    pub is_shared: bool,
    /// Its length.
    pub bytes: u64,
    /// When it was trained, on the cache's clock, in seconds; or the start, if an earlier process trained it.
    pub made_s: u32,
    /// Values that were compressed with it since the start.
    pub values: u64,
    /// Bytes of values for each byte that is stored of them, lately. 0 = nothing was compressed with it yet.
    pub ratio: f64,
    /// About how many items of memory need it.
    pub items: u64,
}
