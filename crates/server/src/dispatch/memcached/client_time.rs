//! The times that clients send.

use larder_cache::{Clock, Expiry};

/// The moment at which a request is read. Times that clients send are relative to it.
#[derive(Clone, Copy)]
pub(in crate::dispatch) struct ClientTime {
    now_s: u32,
    started_unix_s: i64,
}

impl ClientTime {
    #[inline]
    pub(in crate::dispatch) fn now(clock: &Clock) -> ClientTime {
        ClientTime { now_s: clock.now_s(), started_unix_s: clock.started_unix_s() }
    }

    /// Reads an exptime by memcached's rule: 0 = never, negative = at once, up to 30 days = seconds from now,
    /// else a unix time. The text protocol sends a signed number, the binary one a number without a sign.
    #[inline]
    pub(in crate::dispatch) fn expiry(self, exptime: impl Into<i64>) -> Expiry {
        Expiry::from_exptime(exptime.into(), self.now_s, self.started_unix_s)
    }

    /// Seconds until then; `None` = never.
    pub(super) fn remaining_s(self, expiry: Expiry) -> Option<u32> {
        expiry.remaining_s(self.now_s)
    }
}
