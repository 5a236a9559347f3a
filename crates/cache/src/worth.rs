//! What the worth of an item is made of, while the cache runs.

use larder_allocation::{Objective, WorthMode, WorthOptions};
use std::sync::atomic::{AtomicU8, Ordering};

/// The options of worth, which an operator may change at any time. Whoever judges items reads them anew for each
/// column.
///
/// Relaxed: no other memory depends on the options, and a judgement by the old ones is as good as one that came a
/// little earlier. Both options are in one atomic, so a reader never sees half of a change.
pub(crate) struct WorthSetting(AtomicU8);

impl WorthSetting {
    /// A setting with the options that the cache starts with.
    pub(crate) fn new(options: WorthOptions) -> WorthSetting {
        WorthSetting(AtomicU8::new(pack(options)))
    }

    /// The options now.
    #[inline]
    pub(crate) fn get(&self) -> WorthOptions {
        let packed = usize::from(self.0.load(Ordering::Relaxed));
        WorthOptions {
            mode: WorthMode::ALL[packed / Objective::ALL.len()],
            objective: Objective::ALL[packed % Objective::ALL.len()],
        }
    }

    /// Takes other options from now on.
    pub(crate) fn set(&self, options: WorthOptions) {
        self.0.store(pack(options), Ordering::Relaxed);
    }
}

fn pack(options: WorthOptions) -> u8 {
    options.mode as u8 * Objective::ALL.len() as u8 + options.objective as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_of_options_is_kept() {
        let setting = WorthSetting::new(WorthOptions::default());
        assert_eq!(setting.get(), WorthOptions::default());
        for mode in WorthMode::ALL {
            for objective in Objective::ALL {
                setting.set(WorthOptions { mode, objective });
                assert_eq!(setting.get(), WorthOptions { mode, objective });
            }
        }
    }
}
