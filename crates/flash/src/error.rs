//! The error of opening, reading and closing a flash tier.

/// Why the flash tier could not be opened, read or closed: one line that says what to do.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct FlashError(pub String);
