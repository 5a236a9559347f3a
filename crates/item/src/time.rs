//! Expiry, in seconds of the server's own clock.

/// A client's exptime above this many seconds is an absolute unix time. The limit is 30 days, as in memcached.
pub const RELATIVE_EXPTIME_MAX_S: i64 = 60 * 60 * 24 * 30;

/// When an item expires, in seconds of the server's clock. 0 means never.
///
/// The server's clock starts at 2 and not at 0, as memcached's does, so that 1 can mean "already expired".
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub struct Expiry(pub u32);

impl Expiry {
    /// The item never expires.
    pub const NEVER: Expiry = Expiry(0);
    /// The item is stored, but has already expired.
    pub const AT_ONCE: Expiry = Expiry(1);

    /// Converts a client's exptime. 0 means never, and a negative number means that the item has expired already.
    /// Up to 30 days, the exptime counts from `now_s`; a larger one is a unix time. `started_unix_s` is the unix
    /// time at which the server's clock read 0.
    pub fn from_exptime(exptime: i64, now_s: u32, started_unix_s: i64) -> Expiry {
        if exptime == 0 {
            Expiry::NEVER
        } else if exptime < 0 {
            Expiry::AT_ONCE
        } else if exptime > RELATIVE_EXPTIME_MAX_S {
            let at_s = exptime - started_unix_s;
            if at_s <= 1 { Expiry::AT_ONCE } else { Expiry(u32::try_from(at_s).unwrap_or(u32::MAX)) }
        } else {
            Expiry(now_s.saturating_add(exptime as u32))
        }
    }

    /// Whether an item with this expiry must no longer be served at `now_s`.
    #[inline]
    pub fn is_past(self, now_s: u32) -> bool {
        self.0 != 0 && self.0 <= now_s
    }

    /// Seconds until the expiry, or `None` for an item that never expires.
    pub fn remaining_s(self, now_s: u32) -> Option<u32> {
        (self.0 != 0).then(|| self.0.saturating_sub(now_s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exptime_follows_memcached() {
        let at = |exptime| Expiry::from_exptime(exptime, 100, 1_000_000_000);
        assert_eq!(at(0), Expiry::NEVER);
        assert_eq!(at(-1), Expiry::AT_ONCE);
        assert_eq!(at(10), Expiry(110));
        assert_eq!(at(RELATIVE_EXPTIME_MAX_S), Expiry(100 + 2_592_000));
        assert_eq!(at(RELATIVE_EXPTIME_MAX_S + 1), Expiry::AT_ONCE, "a unix time long past");
        assert_eq!(at(1_000_000_500), Expiry(500));
        assert!(Expiry(100).is_past(100) && !Expiry(101).is_past(100) && !Expiry::NEVER.is_past(u32::MAX));
    }
}
