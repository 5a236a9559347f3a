//! What every zone is used for.

use super::directory::Segment;
use crate::device::{Geometry, ZoneId};
use crate::options::FlashOptions;
use crate::segment::Kind;
use crate::space::{self, ChannelLoad, FreeZones, Meter, Watermarks, ZoneFacts};
use std::sync::Arc;

/// What a zone is used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Use {
    /// Superblocks and journal.
    Meta,
    /// To be written: erased, or to be erased first.
    Free {
        /// Whether it has been erased.
        erased: bool,
    },
    /// Segments go there.
    Open,
    /// Nothing more goes there.
    Full,
    /// What is worth keeping of it was put again; it can go when the segment of this sequence is durable.
    Draining(u64),
    /// A merge writes to it; its newest segment so far.
    Merging(u64),
    /// Segments of generations or address pages; the newest of them.
    Generation(u64),
    /// It failed: neither read nor written any more.
    Retired,
}

/// A zone.
pub(crate) struct Zone {
    /// What it is used for.
    pub(crate) used: Use,
    /// Its segments, oldest first.
    pub(crate) segments: Vec<Arc<Segment>>,
    /// How often it was erased.
    pub(crate) resets: u64,
}

/// All of them. Behind one lock, held for moments only.
pub(crate) struct Zones {
    pub(crate) zones: Vec<Zone>,
    pub(crate) free: FreeZones,
    pub(crate) load: ChannelLoad,
    pub(crate) marks: Watermarks,
    pub(crate) meter: Meter,
}

impl Zones {
    /// All zones free and not erased, but for the first `meta` ones.
    pub(crate) fn new(geometry: &Geometry, meta: u32, options: &FlashOptions) -> Zones {
        let mut free = FreeZones::new(geometry.channels);
        let zone = |number| {
            let used = if number < meta { Use::Meta } else { Use::Free { erased: false } };
            if number >= meta {
                free.add(ZoneId(number), 0);
            }
            Zone { used, segments: Vec::new(), resets: 0 }
        };
        let zones = (0..geometry.zones).map(zone).collect();
        Zones {
            zones,
            free,
            load: ChannelLoad::new(geometry.channels),
            marks: Watermarks::new(options.ops, geometry.zones.saturating_sub(meta)),
            meter: Meter::new(10.0),
        }
    }

    /// The zone with this number.
    pub(crate) fn get(&mut self, zone: ZoneId) -> &mut Zone {
        &mut self.zones[zone.0 as usize]
    }

    /// What a restart knows of each zone that may be written; `None` if nothing.
    pub(crate) fn reuse(&mut self, known: impl Fn(ZoneId) -> Option<Use>) {
        self.free = FreeZones::new(self.load.channels());
        for (number, zone) in self.zones.iter_mut().enumerate().filter(|(_, zone)| zone.used != Use::Meta) {
            let number = ZoneId(number as u32);
            zone.used = known(number).unwrap_or(Use::Free { erased: false });
            if matches!(zone.used, Use::Free { .. }) {
                self.free.add(number, zone.resets);
            }
        }
    }

    /// Zones in which nothing was found after all.
    pub(crate) fn give_back_empty(&mut self) {
        let is_empty = |zone: &Zone| zone.used == Use::Full && zone.segments.is_empty();
        let empty: Vec<usize> =
            (0..self.zones.len()).filter(|number| is_empty(&self.zones[*number])).collect();
        empty.into_iter().for_each(|number| self.give_back(ZoneId(number as u32), false));
    }

    /// The next zone to write, and whether it has been erased.
    pub(crate) fn take(&mut self) -> Option<(ZoneId, bool)> {
        let zone = self.free.take(&self.load)?;
        let erased = self.get(zone).used == Use::Free { erased: true };
        self.get(zone).used = Use::Open;
        Some((zone, erased))
    }

    /// It can be written again.
    pub(crate) fn give_back(&mut self, zone: ZoneId, erased: bool) {
        let found = self.get(zone);
        found.used = Use::Free { erased };
        found.segments.clear();
        found.resets += erased as u64;
        let resets = found.resets;
        self.free.add(zone, resets);
    }

    /// Zones that may be reclaimed, and what is known of them: full ones that nobody reclaims yet.
    pub(crate) fn victims(&self, now_unix_s: u32) -> impl Iterator<Item = (ZoneFacts, Kind)> + '_ {
        self.zones.iter().enumerate().filter(|(_, zone)| zone.used == Use::Full).filter_map(
            move |(number, zone)| {
                let first = zone.segments.first()?;
                let facts = ZoneFacts {
                    zone: ZoneId(number as u32),
                    written_bytes: zone.segments.iter().map(|segment| segment.record_bytes).sum(),
                    live_bytes: zone.segments.iter().map(|segment| segment.live_bytes(now_unix_s)).sum(),
                    order: first.sequence(),
                };
                Some((facts, first.kind))
            },
        )
    }

    /// The oldest zone of extents that nobody writes or reclaims.
    pub(crate) fn oldest_extents(&self) -> Option<ZoneFacts> {
        space::oldest(self.victims(0).filter(|(_, kind)| *kind == Kind::Extents).map(|(facts, _)| facts))
    }

    /// Sequence below which segments stand in the oldest quarter of the written zones.
    pub(crate) fn oldest_quarter(&self) -> u64 {
        // Where a quarter of all zones is free, none of the others goes soon.
        let at_risk = (self.zones.len() / 4).saturating_sub(self.free.len() as usize);
        if at_risk == 0 {
            return 0;
        }
        let first = |zone: &Zone| zone.segments.first().map(|segment| segment.sequence());
        let mut orders: Vec<u64> = self.zones.iter().filter_map(first).collect();
        orders.sort_unstable();
        orders.get(at_risk).copied().unwrap_or(0)
    }
}
