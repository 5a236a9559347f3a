//! The zones after a restart.

use super::{Role, Space, Zone};
use crate::device::{ZoneId, ZoneState};
use crate::space::FreeZones;
use std::sync::atomic::Ordering::Relaxed;

impl Space {
    /// Zones that `is_used` says yes to hold segments of an earlier run and are not written; of the others the device
    /// says whether they are erased.
    pub(crate) fn begin_recovery(&self, is_used: impl Fn(ZoneId) -> bool) {
        let role = |zone: ZoneId| {
            if is_used(zone) {
                return Role::Full;
            }
            match self.device.report(zone).map(|report| report.state) {
                Ok(ZoneState::Empty) => Role::Free { erased: true },
                Ok(ZoneState::Offline) => Role::Retired,
                _ => Role::Free { erased: false },
            }
        };
        let mut zones = self.zones();
        zones.free = FreeZones::new(zones.load.channels());
        for number in 0..zones.all.len() as u32 {
            let number = ZoneId(number);
            if zones.get(number).role == Role::Meta {
                continue;
            }
            let role = role(number);
            let zone = zones.get(number);
            zone.role = role;
            let resets = zone.resets;
            if matches!(role, Role::Free { .. }) {
                zones.free.add(number, resets);
            }
        }
        self.note_free(&zones);
    }

    /// All segments were taken in: zones in which none was found are free.
    pub(crate) fn end_recovery(&self) {
        let mut zones = self.zones();
        let is_empty = |zone: &Zone| zone.role == Role::Full && zone.segments.is_empty();
        let empty: Vec<ZoneId> =
            zones.numbered().filter(|(_, zone)| is_empty(zone)).map(|(number, _)| number).collect();
        empty.into_iter().for_each(|number| zones.give_back(number, false));
        self.note_free(&zones);
        self.oldest_quarter.store(zones.oldest_quarter(), Relaxed);
    }
}
