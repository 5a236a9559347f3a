use super::{DeviceError, PAGE_BYTES, ZoneId, ZoneReport, ZoneState};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};

/// What is known of each zone, and what may be done with it now. The rules of [`super::Device`], without a device.
pub(super) struct ZoneTable {
    zones: Vec<Mutex<Entry>>,
    zone_bytes: u64,
    /// Zones that take one of the device's places for zones being written.
    active: AtomicU32,
    active_max: u32,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    state: ZoneState,
    /// Somebody appends, finishes or resets.
    busy: bool,
    /// Counted in [`ZoneTable::active`].
    active: bool,
    resets: u64,
}

impl ZoneTable {
    /// `active_max` zones may be written at a time. Those that are active are counted: of `states`, the second value.
    pub(super) fn new(states: Vec<(ZoneState, bool)>, zone_bytes: u64, active_max: u32) -> ZoneTable {
        let active = states.iter().filter(|(_, active)| *active).count();
        let entry = |(state, active)| Mutex::new(Entry { state, busy: false, active, resets: 0 });
        ZoneTable {
            zones: states.into_iter().map(entry).collect(),
            zone_bytes,
            active: AtomicU32::new(active as u32),
            active_max,
        }
    }

    fn entry(&self, zone: ZoneId) -> Result<MutexGuard<'_, Entry>, DeviceError> {
        let entry = self.zones.get(zone.0 as usize);
        let entry = entry.ok_or(DeviceError::State { zone, what: "there is no such zone" })?;
        Ok(entry.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }

    /// Takes the zone for one operation.
    fn take(&self, zone: ZoneId) -> Result<MutexGuard<'_, Entry>, DeviceError> {
        let entry = self.entry(zone)?;
        if entry.busy {
            return Err(DeviceError::State { zone, what: "it is being written, finished or reset" });
        }
        if entry.state == ZoneState::Offline {
            return Err(DeviceError::State { zone, what: "it is offline" });
        }
        Ok(entry)
    }

    fn set_active(&self, entry: &mut Entry, active: bool) {
        match (entry.active, active) {
            (false, true) => self.active.fetch_add(1, Relaxed),
            (true, false) => self.active.fetch_sub(1, Relaxed),
            _ => return,
        };
        entry.active = active;
    }

    /// Makes room for one more active zone.
    fn activate(&self, zone: ZoneId, entry: &mut Entry) -> Result<(), DeviceError> {
        if entry.active {
            return Ok(());
        }
        let room = |active| (active < self.active_max).then_some(active + 1);
        if self.active.fetch_update(Relaxed, Relaxed, room).is_err() {
            return Err(DeviceError::State {
                zone,
                what: "too many zones are being written: finish or reset one first",
            });
        }
        entry.active = true;
        Ok(())
    }

    pub(super) fn report(&self, zone: ZoneId) -> Result<ZoneReport, DeviceError> {
        let entry = self.entry(zone)?;
        Ok(ZoneReport { state: entry.state, resets: entry.resets })
    }

    pub(super) fn is_offline(&self, zone: ZoneId) -> bool {
        self.entry(zone).is_ok_and(|entry| entry.state == ZoneState::Offline)
    }

    /// Whether, and where, so many bytes can be appended. If so the zone is taken until [`ZoneTable::appended`].
    pub(super) fn begin_append(&self, zone: ZoneId, bytes: usize) -> Result<u64, DeviceError> {
        let mut entry = self.take(zone)?;
        if !bytes.is_multiple_of(PAGE_BYTES) {
            return Err(DeviceError::State { zone, what: "not whole pages" });
        }
        let written = match entry.state {
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
            self.activate(zone, &mut entry)?;
        }
        entry.busy = true;
        Ok(written)
    }

    /// The append that began came to an end. Whether the zone is full now.
    pub(super) fn appended(&self, zone: ZoneId, bytes: usize, went_well: bool) -> bool {
        let Ok(mut entry) = self.entry(zone) else { return false };
        entry.busy = false;
        let written = match entry.state {
            ZoneState::Open(written) => written,
            _ => 0,
        };
        let now = if went_well { written + bytes as u64 } else { written };
        entry.state = match now {
            _ if !went_well || now == self.zone_bytes => ZoneState::Full(now),
            0 => ZoneState::Empty,
            _ => ZoneState::Open(now),
        };
        let full = matches!(entry.state, ZoneState::Full(_));
        if full {
            self.set_active(&mut entry, false);
        }
        full
    }

    /// Takes the zone for finishing it. False = there is nothing to do.
    pub(super) fn begin_finish(&self, zone: ZoneId) -> Result<bool, DeviceError> {
        let mut entry = self.take(zone)?;
        if matches!(entry.state, ZoneState::Full(_) | ZoneState::Unknown) {
            return Ok(false);
        }
        entry.busy = true;
        Ok(true)
    }

    pub(super) fn finished(&self, zone: ZoneId) {
        let Ok(mut entry) = self.entry(zone) else { return };
        entry.busy = false;
        entry.state = match entry.state {
            ZoneState::Open(written) => ZoneState::Full(written),
            ZoneState::Empty => ZoneState::Full(0),
            other => other,
        };
        self.set_active(&mut entry, false);
    }

    /// Takes the zone for erasing it.
    pub(super) fn begin_reset(&self, zone: ZoneId) -> Result<(), DeviceError> {
        self.take(zone)?.busy = true;
        Ok(())
    }

    /// The reset that began came to this.
    pub(super) fn reset(&self, zone: ZoneId, state: ZoneState) {
        let Ok(mut entry) = self.entry(zone) else { return };
        entry.busy = false;
        entry.state = state;
        if state == ZoneState::Empty {
            entry.resets += 1;
        }
        self.set_active(&mut entry, false);
    }

    /// What the device said of a zone after it failed.
    pub(super) fn went_offline(&self, zone: ZoneId) {
        let Ok(mut entry) = self.entry(zone) else { return };
        entry.state = ZoneState::Offline;
        self.set_active(&mut entry, false);
    }
}
