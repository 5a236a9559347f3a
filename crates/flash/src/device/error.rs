use super::ZoneId;

/// Why a device could not be opened: one line that names the device and says what to do.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct OpenError(pub String);

/// Why an operation on a device failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DeviceError {
    /// The pages do not fit into the rest of the zone.
    #[error("zone {0:?} is full")]
    Full(ZoneId),
    /// The state of the zone does not allow the operation, or the operation reaches outside of the zone.
    #[error("zone {zone:?}: {what}")]
    State {
        /// The zone.
        zone: ZoneId,
        /// What is wrong.
        what: &'static str,
    },
    /// The device failed.
    #[error("{what}")]
    Io {
        /// The operating system's error number, if there was one.
        errno: Option<i32>,
        /// What was tried, and how it failed.
        what: String,
    },
    /// The device is gone: no operation will succeed any more.
    #[error("the device is gone")]
    Gone,
}

impl DeviceError {
    /// An error of the operating system while doing `what`.
    pub fn io(what: &str, error: std::io::Error) -> DeviceError {
        DeviceError::Io { errno: error.raw_os_error(), what: format!("{what}: {error}") }
    }
}
