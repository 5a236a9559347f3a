//! The moment at which a request is read, on the server's clock and as a unix time.

use larder_cache::{Clock, Expiry};

/// The moment at which a request is read.
#[derive(Clone, Copy)]
pub(in crate::dispatch) struct Moment {
    /// On the server's clock.
    now_ms: i64,
    /// What has to be added to a time of the server's clock to make it a unix time.
    unix_offset_ms: i64,
}

impl Moment {
    /// `now_ms` on the server's clock.
    pub(in crate::dispatch) fn new(now_ms: i64, clock: &Clock) -> Moment {
        Moment { now_ms, unix_offset_ms: clock.started_unix_s() * 1000 }
    }

    /// The time of the server's clock in milliseconds.
    pub(super) fn now_ms(self) -> i64 {
        self.now_ms
    }

    /// The unix time in milliseconds.
    pub(super) fn unix_ms(self) -> i64 {
        self.now_ms + self.unix_offset_ms
    }

    /// The expiry at a unix time.
    pub(super) fn at_unix_ms(self, at_ms: i64) -> Expiry {
        Expiry::at_ms(at_ms.saturating_sub(self.unix_offset_ms))
    }

    /// Milliseconds until an expiry; `None` = never.
    pub(super) fn left_ms(self, expiry: Expiry) -> Option<i64> {
        expiry.milliseconds().map(|at_ms| (at_ms - self.now_ms).max(0))
    }

    /// The unix time in milliseconds of an expiry; `None` = never.
    pub(super) fn unix_ms_of(self, expiry: Expiry) -> Option<i64> {
        expiry.milliseconds().map(|at_ms| at_ms + self.unix_offset_ms)
    }
}
