//! What the cache is told about the flash tier behind memory.

use crate::admission::AdmissionOptions;
use crate::clock::Clock;
use larder_flash::{Flash, Found, Listed, Recover};
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
    /// What the tier was opened with. With [`Recover::Journal`], a store over a key that flash may hold is an
    /// invalidation that is committed before the store is answered.
    pub recover: Recover,
    /// How long a store waits at most while memory is full and the device is behind, milliseconds. Then something is
    /// evicted that flash does not take.
    pub store_wait_max_ms: u32,
}

/// See [`FlashLevel::store_wait_max_ms`].
pub const STORE_WAIT_MAX_MS: u32 = 50;

impl From<Arc<Flash>> for FlashLevel {
    fn from(flash: Arc<Flash>) -> FlashLevel {
        FlashLevel {
            flash,
            exclusive: Exclusive::default(),
            admission: AdmissionOptions::default(),
            recover: Recover::default(),
            store_wait_max_ms: STORE_WAIT_MAX_MS,
        }
    }
}

/// The second of an expiry on the server's clock as flash keeps it: unix seconds, 0 = never. A time beyond 2106 becomes
/// 2106. The milliseconds are in the state.
pub(crate) fn to_unix_s(clock: &Clock, expiry: Expiry) -> u32 {
    match expiry {
        Expiry::NEVER => 0,
        expiry => clock.unix_s(expiry.seconds()).clamp(1, u32::MAX.into()) as u32,
    }
}

/// The expiry of an item that comes from flash, on the clock of a server that may have started later.
pub(crate) fn expiry_of(clock: &Clock, found: &Found) -> Expiry {
    from_unix_s(clock, found.expires_unix_s, found.state.extension().early_ms)
}

/// The same of an item that is listed.
pub(crate) fn expiry_of_listed(clock: &Clock, item: &Listed) -> Expiry {
    from_unix_s(clock, item.expires_unix_s, item.state.extension().early_ms)
}

/// The inverse of [`to_unix_s`].
fn from_unix_s(clock: &Clock, expires_unix_s: u32, early_ms: u16) -> Expiry {
    match expires_unix_s {
        0 => Expiry::NEVER,
        at_s => {
            let at_s = i64::from(at_s) - clock.started_unix_s();
            Expiry::from_parts(at_s.clamp(Expiry::AT_ONCE.seconds().into(), u32::MAX.into()) as u32, early_ms)
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
        fn an_expiry_comes_back_from_flash_as_it_went(at_ms in 2000i64..2_000_000_000_000) {
            let clock = Clock::new();
            let expiry = Expiry::at_ms(at_ms);
            prop_assert_eq!(from_unix_s(&clock, to_unix_s(&clock, expiry), expiry.early_ms()), expiry);
        }
    }

    #[test]
    fn the_ends_of_time_are_no_other_times() {
        let clock = Clock::new();
        assert_eq!(to_unix_s(&clock, Expiry::NEVER), 0);
        assert_eq!(from_unix_s(&clock, 0, 0), Expiry::NEVER);
        assert_eq!(from_unix_s(&clock, 1, 0), Expiry::AT_ONCE, "long before the server started");
        assert_eq!(to_unix_s(&clock, Expiry::at_s(u32::MAX)), u32::MAX);
        assert!(from_unix_s(&clock, u32::MAX, 0) > Expiry::at_s(clock.now_s() + 1_000_000_000));
    }
}
