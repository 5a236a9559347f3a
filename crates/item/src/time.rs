//! Expiry, on the server's own clock.

/// A client's exptime above this many seconds is an absolute unix time. The limit is 30 days, as in memcached.
pub const RELATIVE_EXPTIME_MAX_S: i64 = 60 * 60 * 24 * 30;

/// The least second of an expiry. The server's clock never reads less, so such an item has expired.
const SECOND_MIN: u32 = 2;
/// Bits of the milliseconds.
const MS_BITS: u32 = 10;

/// When an item expires, on the server's clock, to the millisecond.
///
/// ```text
///  63        42 41                              10 9            0
/// +------------+----------------------------------+--------------+
/// |     0      |  whole seconds                   | milliseconds |     the word 0 = never
/// +------------+----------------------------------+--------------+
/// ```
///
/// The server's clock starts at 2 seconds and not at 0, so that the word 0 can mean "never". memcached's times are
/// whole seconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub struct Expiry(u64);

impl Expiry {
    /// The item never expires.
    pub const NEVER: Expiry = Expiry(0);
    /// The item is stored, but has already expired.
    pub const AT_ONCE: Expiry = Expiry::at_s(SECOND_MIN);

    /// At a whole second of the server's clock. 0 and 1 are long past.
    #[inline]
    pub const fn at_s(at_s: u32) -> Expiry {
        let at_s = if at_s < SECOND_MIN { SECOND_MIN } else { at_s };
        Expiry((at_s as u64) << MS_BITS)
    }

    /// At a millisecond of the server's clock. A time before its start is [`Expiry::AT_ONCE`], and one that is too late
    /// to be written down the latest that can.
    pub const fn at_ms(at_ms: i64) -> Expiry {
        if at_ms <= SECOND_MIN as i64 * 1000 {
            return Expiry::AT_ONCE;
        }
        let at_s = at_ms as u64 / 1000;
        if at_s >= u32::MAX as u64 {
            Expiry::at_s(u32::MAX)
        } else {
            Expiry((at_s << MS_BITS) | (at_ms as u64 % 1000))
        }
    }

    /// `early_ms` milliseconds, at most 999, before the second `at_s`: the inverse of [`Expiry::seconds`] and
    /// [`Expiry::early_ms`]. `at_s` = 0 is never.
    #[inline]
    pub const fn from_parts(at_s: u32, early_ms: u16) -> Expiry {
        if at_s == 0 {
            return Expiry::NEVER;
        }
        match early_ms {
            1..1000 if at_s > SECOND_MIN => Expiry(((at_s - 1) as u64) << MS_BITS | (1000 - early_ms as u64)),
            _ => Expiry::at_s(at_s),
        }
    }

    /// The first whole second of the server's clock at which the item has expired; 0 = never.
    #[inline]
    pub const fn seconds(self) -> u32 {
        ((self.0 + (1 << MS_BITS) - 1) >> MS_BITS) as u32
    }

    /// How many milliseconds before that second the item expires: 0 to 999.
    #[inline]
    pub const fn early_ms(self) -> u16 {
        match self.0 & ((1 << MS_BITS) - 1) {
            0 => 0,
            ms => 1000 - ms as u16,
        }
    }

    /// The time in milliseconds of the server's clock; `None` = never.
    pub const fn milliseconds(self) -> Option<i64> {
        match self.0 {
            0 => None,
            word => Some((word >> MS_BITS) as i64 * 1000 + (word & ((1 << MS_BITS) - 1)) as i64),
        }
    }

    /// Converts a client's exptime. 0 means never, and a negative number means that the item has expired already.
    /// Up to 30 days, the exptime counts from `now_s`; a larger one is a unix time. `started_unix_s` is the unix
    /// time at which the server's clock read 0.
    #[inline]
    pub fn from_exptime(exptime: i64, now_s: u32, started_unix_s: i64) -> Expiry {
        if exptime == 0 {
            Expiry::NEVER
        } else if exptime < 0 {
            Expiry::AT_ONCE
        } else if exptime > RELATIVE_EXPTIME_MAX_S {
            let at_s = exptime - started_unix_s;
            if at_s <= 1 { Expiry::AT_ONCE } else { Expiry::at_s(u32::try_from(at_s).unwrap_or(u32::MAX)) }
        } else {
            Expiry::at_s(now_s.saturating_add(exptime as u32))
        }
    }

    /// Whether an item with this expiry must no longer be served at the whole second `now_s`. An item that expires
    /// within the second that begins then may still be served.
    #[inline]
    pub fn is_past(self, now_s: u32) -> bool {
        self.0 != 0 && self.seconds() <= now_s
    }

    /// Whole seconds until the expiry, the last one counted in full, or `None` for an item that never expires.
    pub fn remaining_s(self, now_s: u32) -> Option<u32> {
        (self.0 != 0).then(|| self.seconds().saturating_sub(now_s))
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
        assert_eq!(at(10), Expiry::at_s(110));
        assert_eq!(at(RELATIVE_EXPTIME_MAX_S), Expiry::at_s(100 + 2_592_000));
        assert_eq!(at(RELATIVE_EXPTIME_MAX_S + 1), Expiry::AT_ONCE, "a unix time long past");
        assert_eq!(at(1_000_000_500), Expiry::at_s(500));
        let past = |at_s, now_s| Expiry::at_s(at_s).is_past(now_s);
        assert!(past(100, 100) && !past(101, 100) && !Expiry::NEVER.is_past(u32::MAX));
    }

    #[test]
    fn milliseconds_are_exact_and_in_order() {
        let mut before = Expiry::AT_ONCE;
        for at_ms in 2001..12_000 {
            let expiry = Expiry::at_ms(at_ms);
            assert!(expiry > before, "{at_ms}");
            before = expiry;
            assert_eq!(expiry.milliseconds(), Some(at_ms));
            assert_eq!(i64::from(expiry.seconds()) * 1000 - i64::from(expiry.early_ms()), at_ms);
            assert_eq!(Expiry::from_parts(expiry.seconds(), expiry.early_ms()), expiry);
            let second = (at_ms as u32).div_ceil(1000);
            assert!(expiry.is_past(second) && !expiry.is_past(second - 1), "{at_ms}");
        }
        assert_eq!(Expiry::at_ms(5000), Expiry::at_s(5));
        for past_ms in [i64::MIN, -1, 0, 1999, 2000] {
            assert_eq!(Expiry::at_ms(past_ms), Expiry::AT_ONCE);
        }
        assert_eq!(Expiry::at_ms(i64::MAX), Expiry::at_s(u32::MAX));
        assert_eq!((Expiry::NEVER.milliseconds(), Expiry::NEVER.seconds()), (None, 0));
        assert_eq!(Expiry::from_parts(0, 7), Expiry::NEVER);
    }
}
