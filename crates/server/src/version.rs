//! The version that clients see.

/// The reply to `version`: the memcached release whose behaviour Larder follows, for clients that look at it, then
/// Larder's own version.
pub(crate) const VERSION_SHOWN: &str = concat!("1.6.45-larder-", env!("CARGO_PKG_VERSION"));
