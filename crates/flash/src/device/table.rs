use super::{DeviceError, PAGE_BYTES, ZoneId, ZoneReport, ZoneState};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};

/// The state and the write pointer of every zone of a [`super::DiskDevice`], and the rules of [`super::Device`]: which
/// operations a zone allows now.
///
/// An operation that changes a zone marks the zone as busy, runs without a lock, and reports its end. Another
/// operation on the zone meanwhile is refused.
pub(super) struct ZoneTable {
    zones: Vec<Mutex<TrackedZone>>,
    zone_bytes: u64,
    /// Zones that are open for writing: at most `active_max`.
    active: AtomicU32,
    active_max: u32,
}

#[derive(Clone, Copy, Debug)]
struct TrackedZone {
    state: ZoneState,
    /// A thread appends to the zone, finishes it or resets it.
    busy: bool,
    /// The zone is counted in [`ZoneTable::active`].
    active: bool,
    resets: u64,
}

impl ZoneTable {
    /// `states` holds, for every zone, its state and whether it is open for writing. At most `active_max` zones may be.
    pub(super) fn new(states: Vec<(ZoneState, bool)>, zone_bytes: u64, active_max: u32) -> ZoneTable {
        let active = states.iter().filter(|(_, active)| *active).count();
        let tracked = |(state, active)| Mutex::new(TrackedZone { state, busy: false, active, resets: 0 });
        ZoneTable {
            zones: states.into_iter().map(tracked).collect(),
            zone_bytes,
            active: AtomicU32::new(active as u32),
            active_max,
        }
    }

    fn tracked(&self, zone: ZoneId) -> Result<MutexGuard<'_, TrackedZone>, DeviceError> {
        let tracked = self.zones.get(zone.0 as usize);
        let tracked = tracked.ok_or(DeviceError::State { zone, what: "there is no such zone" })?;
        Ok(tracked.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }

    /// The zone, if no other operation changes it now.
    fn take(&self, zone: ZoneId) -> Result<MutexGuard<'_, TrackedZone>, DeviceError> {
        let tracked = self.tracked(zone)?;
        if tracked.busy {
            return Err(DeviceError::State { zone, what: "it is being written, finished or reset" });
        }
        if tracked.state == ZoneState::Offline {
            return Err(DeviceError::State { zone, what: "it is offline" });
        }
        Ok(tracked)
    }

    fn set_active(&self, tracked: &mut TrackedZone, active: bool) {
        match (tracked.active, active) {
            (false, true) => self.active.fetch_add(1, Relaxed),
            (true, false) => self.active.fetch_sub(1, Relaxed),
            _ => return,
        };
        tracked.active = active;
    }

    /// Counts the zone as open for writing, if the limit allows one more.
    fn activate(&self, zone: ZoneId, tracked: &mut TrackedZone) -> Result<(), DeviceError> {
        if tracked.active {
            return Ok(());
        }
        let room = |active| (active < self.active_max).then_some(active + 1);
        if self.active.fetch_update(Relaxed, Relaxed, room).is_err() {
            return Err(DeviceError::State {
                zone,
                what: "too many zones are being written: finish or reset one first",
            });
        }
        tracked.active = true;
        Ok(())
    }

    /// The state of a zone, and how often it was reset.
    pub(super) fn report(&self, zone: ZoneId) -> Result<ZoneReport, DeviceError> {
        let tracked = self.tracked(zone)?;
        Ok(ZoneReport { state: tracked.state, resets: tracked.resets })
    }

    /// Whether the zone is broken.
    pub(super) fn is_offline(&self, zone: ZoneId) -> bool {
        self.tracked(zone).is_ok_and(|tracked| tracked.state == ZoneState::Offline)
    }

    /// The offset at which `bytes` bytes can be appended. The zone is busy until [`ZoneTable::appended`].
    pub(super) fn begin_append(&self, zone: ZoneId, bytes: usize) -> Result<u64, DeviceError> {
        let mut tracked = self.take(zone)?;
        if !bytes.is_multiple_of(PAGE_BYTES) {
            return Err(DeviceError::State { zone, what: "not whole pages" });
        }
        let written = match tracked.state {
            ZoneState::Empty => 0,
            ZoneState::Open(written) => written,
            ZoneState::Full(_) => return Err(DeviceError::State { zone, what: "it is full" }),
            ZoneState::Unknown => {
                return Err(DeviceError::State { zone, what: "it is reset before it is written" });
            }
            ZoneState::Offline => return Err(DeviceError::State { zone, what: "it is offline" }),
        };
        if bytes as u64 > self.zone_bytes.saturating_sub(written) {
            return Err(DeviceError::Full(zone));
        }
        if bytes > 0 {
            self.activate(zone, &mut tracked)?;
        }
        tracked.busy = true;
        Ok(written)
    }

    /// Reports the end of the append that [`ZoneTable::begin_append`] allowed. Returns whether the zone is full now.
    pub(super) fn appended(&self, zone: ZoneId, bytes: usize, went_well: bool) -> bool {
        let Ok(mut tracked) = self.tracked(zone) else { return false };
        tracked.busy = false;
        let written = match tracked.state {
            ZoneState::Open(written) => written,
            _ => 0,
        };
        let now = if went_well { written + bytes as u64 } else { written };
        tracked.state = match now {
            _ if !went_well || now == self.zone_bytes => ZoneState::Full(now),
            0 => ZoneState::Empty,
            _ => ZoneState::Open(now),
        };
        let full = matches!(tracked.state, ZoneState::Full(_));
        if full {
            self.set_active(&mut tracked, false);
        }
        full
    }

    /// Allows a finish of the zone. Returns false if there is nothing to do; else the zone is busy until
    /// [`ZoneTable::finished`].
    pub(super) fn begin_finish(&self, zone: ZoneId) -> Result<bool, DeviceError> {
        let mut tracked = self.take(zone)?;
        if matches!(tracked.state, ZoneState::Full(_) | ZoneState::Unknown) {
            return Ok(false);
        }
        tracked.busy = true;
        Ok(true)
    }

    /// Reports the end of the finish that [`ZoneTable::begin_finish`] allowed.
    pub(super) fn finished(&self, zone: ZoneId) {
        let Ok(mut tracked) = self.tracked(zone) else { return };
        tracked.busy = false;
        tracked.state = match tracked.state {
            ZoneState::Open(written) => ZoneState::Full(written),
            ZoneState::Empty => ZoneState::Full(0),
            other => other,
        };
        self.set_active(&mut tracked, false);
    }

    /// Allows a reset of the zone, which is busy until [`ZoneTable::reset`].
    pub(super) fn begin_reset(&self, zone: ZoneId) -> Result<(), DeviceError> {
        self.take(zone)?.busy = true;
        Ok(())
    }

    /// Reports the end of the reset that [`ZoneTable::begin_reset`] allowed, and the state of the zone after it.
    pub(super) fn reset(&self, zone: ZoneId, state: ZoneState) {
        let Ok(mut tracked) = self.tracked(zone) else { return };
        tracked.busy = false;
        tracked.state = state;
        if state == ZoneState::Empty {
            tracked.resets += 1;
        }
        self.set_active(&mut tracked, false);
    }

    /// Records that the device reported the zone as broken.
    pub(super) fn went_offline(&self, zone: ZoneId) {
        let Ok(mut tracked) = self.tracked(zone) else { return };
        tracked.state = ZoneState::Offline;
        self.set_active(&mut tracked, false);
    }
}
