//! One line for each zone, for the picture of the device on the admin page.

/// The use of a zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ZoneUse {
    /// Superblocks and journal.
    Meta,
    /// Erased, or to be erased before it is written.
    Free,
    /// Being filled.
    Open,
    /// Full, with segments of the log.
    Log,
    /// Full, with segments of a generation.
    Generation,
    /// Full, with long records (extents).
    Extents,
    /// Full, with address pages.
    Addresses,
    /// Reclaimed, but not erased yet: the copies of its survivors are not durable yet.
    Draining,
    /// Broken, and no longer used.
    Retired,
}

/// What is shown of a zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneView {
    /// The use of the zone.
    pub used: ZoneUse,
    /// Length of all records that were written to the zone, bytes.
    pub written_bytes: u64,
    /// Estimated length of those records that are neither superseded nor expired, bytes.
    pub live_bytes: u64,
    /// How often the zone was erased since the device was opened.
    pub resets: u64,
}
