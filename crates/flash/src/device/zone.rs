/// Fewest zones of a device: two for the tier's own log, one that is written, and one that is erased.
pub const ZONES_MIN: u32 = 4;

/// The number of a zone, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ZoneId(pub u32);

/// What the device knows of a zone without reading it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ZoneState {
    /// Erased: nothing can be read.
    Empty,
    /// Written up to this byte. More can be appended.
    Open(u64),
    /// Written up to this byte. No more can be appended until the zone is reset.
    Full(u64),
    /// The device keeps no write pointer, and the zone was not reset since the device was opened. The zone may hold
    /// anything. It can be read; before it is written it must be reset.
    Unknown,
    /// Broken: the zone can be neither read nor written.
    Offline,
}

/// The answer of [`super::Device::report`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneReport {
    /// Whether the zone can be read, appended to, or only reset.
    pub state: ZoneState,
    /// How often the zone was erased, as far as the device knows.
    pub resets: u64,
}
