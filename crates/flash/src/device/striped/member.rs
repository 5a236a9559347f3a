use crate::device::{Device, DeviceCounters, DeviceError, MemberStatus, ZoneId};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// Three appends and erasures that fail, without an append in between that succeeds, mean that the device has failed.
/// Fewer than the failures after which the tier gives up.
const FAILURES_MAX: u32 = 3;
/// What is wrong with a zone whose device has failed.
pub(super) const HAS_FAILED: &str = "its device has failed";

/// A device of a set. Once it has failed, it is not used any more until the set is opened again.
///
/// A device has failed if it says that it is gone, if it cannot make durable what it has accepted, or if
/// [`FAILURES_MAX`] appends and erasures fail without an append that succeeds. Reads that fail count for nothing: a bad
/// sector is not a bad device.
pub(super) struct Member {
    device: Arc<dyn Device>,
    failed: AtomicBool,
    /// Appends and erasures that failed since the last append that succeeded. (An erasure that succeeds proves nothing:
    /// a device that is unable to erase does nothing at all, and so does one that has lost its bytes.)
    failures: AtomicU32,
    /// Something was appended or erased since the last sync.
    dirty: AtomicBool,
    /// Held during a sync. A sync that finds nothing to do has waited for the one before it.
    syncing: Mutex<()>,
}

impl Member {
    /// A device that works.
    pub(super) fn new(device: Arc<dyn Device>) -> Member {
        Member {
            device,
            failed: AtomicBool::new(false),
            failures: AtomicU32::new(0),
            dirty: AtomicBool::new(false),
            syncing: Mutex::default(),
        }
    }

    /// The device.
    pub(super) fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// Whether the device has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    fn fail(&self, why: &DeviceError) {
        if !self.failed.swap(true, Ordering::AcqRel) {
            let device = self.device.describe();
            tracing::error!(%device, "flash: a device has failed, and what it holds is lost: {why}");
        }
    }

    /// An append ended like this.
    pub(super) fn appended<T>(&self, result: Result<T, DeviceError>) -> Result<T, DeviceError> {
        if result.is_ok() {
            self.failures.store(0, Ordering::Relaxed);
        }
        self.wrote(result)
    }

    /// An append or an erasure ended like this.
    pub(super) fn wrote<T>(&self, result: Result<T, DeviceError>) -> Result<T, DeviceError> {
        self.dirty.store(true, Ordering::Release);
        match &result {
            Ok(_) => {}
            Err(DeviceError::Full(_) | DeviceError::State { .. }) => {}
            Err(error @ DeviceError::Gone) => self.fail(error),
            Err(error @ DeviceError::Io { .. }) => {
                if self.failures.fetch_add(1, Ordering::Relaxed) + 1 >= FAILURES_MAX {
                    self.fail(error);
                }
            }
        }
        result
    }

    /// Another operation ended like this.
    pub(super) fn did<T>(&self, result: Result<T, DeviceError>) -> Result<T, DeviceError> {
        if let Err(error @ DeviceError::Gone) = &result {
            self.fail(error);
        }
        result
    }

    /// Makes durable what was appended and erased.
    ///
    /// # Errors
    /// The device has failed now: what was appended since the last sync is lost. Once that was said, a sync has nothing
    /// to do.
    pub(super) fn sync(&self) -> Result<(), DeviceError> {
        let _syncing = self.syncing.lock().expect("no panic under this lock");
        if self.has_failed() || !self.dirty.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        self.device.sync().inspect_err(|error| self.fail(error))
    }

    /// The counters of the device.
    pub(super) fn counters(&self) -> DeviceCounters {
        self.device.counters()
    }

    /// What is shown of the member, which has `zones` zones of the set.
    pub(super) fn status(&self, zones: u32) -> MemberStatus {
        let (name, counters) = (self.device.describe(), self.counters());
        MemberStatus { name, zones, counters, has_failed: self.has_failed() }
    }

    /// An error of the device, with the number that the zone has in the set.
    pub(super) fn error(error: DeviceError, zone: ZoneId) -> DeviceError {
        match error {
            DeviceError::Full(_) => DeviceError::Full(zone),
            DeviceError::State { what, .. } => DeviceError::State { zone, what },
            DeviceError::Gone => DeviceError::State { zone, what: HAS_FAILED },
            error @ DeviceError::Io { .. } => error,
        }
    }
}
