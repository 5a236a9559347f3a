//! What the cache is told about the flash tier behind memory.

use crate::admission::AdmissionOptions;
use crate::clock::Clock;
use larder_flash::{Flash, Recover};
use larder_item::Expiry;
use std::sync::Arc;

/// Whether an item may be in memory and on flash at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Exclusive {
    /// The flash copy of a promoted item stays. If the item leaves memory unchanged, nothing is written. The default.
    #[default]
    Lazy,
    /// A promoted item is removed from flash, and is written again when it leaves memory (Mlcached's exclusive levels).
    Strict,
}

/// A flash tier, and how the cache uses it.
#[derive(Clone)]
pub struct FlashLevel {
    /// The tier.
    pub flash: Arc<Flash>,
    /// Whether a promoted item stays on flash.
    pub exclusive: Exclusive,
    /// Which evicted items are worth a write.
    pub admission: AdmissionOptions,
    /// What the tier was opened with. With [`Recover::Journal`], a store over a key that flash may hold is an invalidation
    /// that is committed before the store is answered.
    pub recover: Recover,
}

impl From<Arc<Flash>> for FlashLevel {
    fn from(flash: Arc<Flash>) -> FlashLevel {
        FlashLevel {
            flash,
            exclusive: Exclusive::default(),
            admission: AdmissionOptions::default(),
            recover: Recover::default(),
        }
    }
}

/// An expiry on the server's clock as flash keeps it: unix seconds, 0 = never. A time beyond 2106 becomes 2106.
pub(crate) fn to_unix_s(clock: &Clock, expiry: Expiry) -> u32 {
    match expiry {
        Expiry::NEVER => 0,
        Expiry(at_s) => clock.unix_s(at_s).clamp(1, u32::MAX.into()) as u32,
    }
}

/// The inverse of [`to_unix_s`], for a server that may have started later.
pub(crate) fn from_unix_s(clock: &Clock, expires_unix_s: u32) -> Expiry {
    match expires_unix_s {
        0 => Expiry::NEVER,
        at_s => {
            let at_s = i64::from(at_s) - clock.started_unix_s();
            Expiry(at_s.clamp(Expiry::AT_ONCE.0.into(), u32::MAX.into()) as u32)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]
        #[test]
        fn an_expiry_comes_back_from_flash_as_it_went(at_s in 2u32..2_000_000_000) {
            let clock = Clock::new();
            prop_assert_eq!(from_unix_s(&clock, to_unix_s(&clock, Expiry(at_s))), Expiry(at_s));
        }
    }

    #[test]
    fn the_ends_of_time_are_no_other_times() {
        let clock = Clock::new();
        assert_eq!(to_unix_s(&clock, Expiry::NEVER), 0);
        assert_eq!(from_unix_s(&clock, 0), Expiry::NEVER);
        assert_eq!(from_unix_s(&clock, 1), Expiry::AT_ONCE, "long before the server started");
        assert_eq!(to_unix_s(&clock, Expiry(u32::MAX)), u32::MAX);
        assert!(from_unix_s(&clock, u32::MAX) > Expiry(clock.now_s() + 1_000_000_000));
    }
}
