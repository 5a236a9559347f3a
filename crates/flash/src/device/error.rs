use super::ZoneId;

/// Why a device did not do what it was asked.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DeviceError {
    /// More than the zone has left.
    #[error("zone {0:?} is full")]
    Full(ZoneId),
    /// Not in this state of the zone, or outside of it.
    #[error("zone {zone:?}: {what}")]
    State {
        /// Which zone.
        zone: ZoneId,
        /// What is wrong.
        what: &'static str,
    },
    /// The device failed: an operating system's error number, if there was one, and words.
    #[error("{what}")]
    Io {
        /// The operating system's number.
        errno: Option<i32>,
        /// What was tried, and what came of it.
        what: String,
    },
    /// The device is gone: nothing will work any more.
    #[error("the device is gone")]
    Gone,
}

impl DeviceError {
    /// An error of the operating system while doing `what`.
    pub fn io(what: &str, error: std::io::Error) -> DeviceError {
        DeviceError::Io { errno: error.raw_os_error(), what: format!("{what}: {error}") }
    }
}
