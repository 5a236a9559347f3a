//! Every zone at a glance, for a picture.

use super::zones::{Use, Zone};
use crate::flash::Flash;
use crate::segment::Kind;

/// What a zone is used for, and by what.
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
    /// Full, with long records.
    Extents,
    /// Full, with places of records.
    Addresses,
    /// Reclaimed, but for what must become durable first.
    Draining,
    /// Broken.
    Retired,
}

/// A zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneView {
    /// What it is used for.
    pub used: ZoneUse,
    /// Bytes of records written to it.
    pub written_bytes: u64,
    /// Of them, those that may still be wanted, about.
    pub live_bytes: u64,
    /// How often it was erased since the device was opened.
    pub resets: u64,
}

impl Zone {
    fn view(&self, now_unix_s: u32) -> ZoneView {
        let used = match (self.used, self.segments.first().map(|segment| segment.kind)) {
            (Use::Meta, _) => ZoneUse::Meta,
            (Use::Free { .. }, _) => ZoneUse::Free,
            (Use::Open | Use::Merging(_), _) => ZoneUse::Open,
            (Use::Generation(_), Some(Kind::Address)) => ZoneUse::Addresses,
            (Use::Generation(_), _) => ZoneUse::Generation,
            (Use::Draining(_), _) => ZoneUse::Draining,
            (Use::Retired, _) => ZoneUse::Retired,
            (Use::Full, Some(Kind::Generation)) => ZoneUse::Generation,
            (Use::Full, Some(Kind::Extents)) => ZoneUse::Extents,
            (Use::Full, Some(Kind::Address)) => ZoneUse::Addresses,
            (Use::Full, Some(Kind::Log) | None) => ZoneUse::Log,
        };
        ZoneView {
            used,
            written_bytes: self.segments.iter().map(|segment| segment.record_bytes).sum(),
            live_bytes: self.segments.iter().map(|segment| segment.live_bytes(now_unix_s)).sum(),
            resets: self.resets,
        }
    }
}

impl Flash {
    /// Every zone, in their order. For a person, not for every request.
    pub fn zone_views(&self) -> Vec<ZoneView> {
        let now_unix_s = self.now();
        self.zones().zones.iter().map(|zone| zone.view(now_unix_s)).collect()
    }
}
