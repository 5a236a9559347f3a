//! What becomes of the zones of a device that has failed, where there are several.

use super::{LogZone, Role, Space, Zone, bounds};
use crate::device::{ZoneId, ZoneState};
use std::sync::atomic::Ordering::Relaxed;

impl Space {
    /// Whether the device of a zone has failed, or the zone has.
    pub(crate) fn is_offline(&self, zone: ZoneId) -> bool {
        self.device.report(zone).is_ok_and(|report| report.state == ZoneState::Offline)
    }

    /// Whether one of several devices has failed.
    pub(crate) fn has_failed_devices(&self) -> bool {
        self.device.members().iter().any(|member| member.has_failed)
    }

    /// What a zone with segments that takes no more of them is from now on. To be called under the lock of the zones: a
    /// device that fails later is found by [`Space::note_failed_devices`], which looks at full zones only.
    pub(super) fn full_or_lost(&self, zone: ZoneId) -> Role {
        if self.is_offline(zone) { Role::Lost } else { Role::Full }
    }

    /// Whether a zone of the log that a merge has read, or one that it has written, is offline by now. Such zones of
    /// the log are lost from now on, so that the next merge leaves them out.
    pub(crate) fn has_lost_merge(&self, log: &[LogZone]) -> bool {
        let mut zones = self.zones();
        let is_merging = |(_, zone): &(ZoneId, &Zone)| matches!(zone.role, Role::Merging(_));
        let mut any = zones.numbered().filter(is_merging).any(|(number, _)| self.is_offline(number));
        for (zone, _) in log {
            if zones.get(*zone).role == Role::Full && self.is_offline(*zone) {
                zones.get(*zone).role = Role::Lost;
                any = true;
            }
        }
        any
    }

    /// Takes the zones of devices that have failed out of everything that goes on. The marks are those of the zones
    /// that are left.
    pub(crate) fn note_failed_devices(&self) {
        let failed = self.device.members().iter().filter(|member| member.has_failed).count();
        if self.failed_devices.swap(failed, Relaxed) == failed {
            return;
        }
        let mut zones = self.zones();
        let mut working = 0;
        for number in (0..zones.all.len() as u32).map(ZoneId) {
            if !self.is_offline(number) {
                working += (zones.get(number).role != Role::Meta) as u32;
                continue;
            }
            let found = zones.get(number);
            match found.role {
                Role::Free { .. } => {
                    found.role = Role::Retired;
                    let resets = found.resets;
                    zones.free.remove(number, resets);
                }
                Role::Full => found.role = Role::Lost,
                // The writer, the merge or the reclaim that is at work on the zone finds out by itself, at the latest
                // when it has ended its work there.
                _ => {}
            }
        }
        zones.marks = (self.policy)(bounds(working, self.fill_percent, self.reserve));
        self.note_free(&zones);
    }
}
