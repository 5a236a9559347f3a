//! What the worth of an item is made of, while the cache runs.

use larder_allocation::{CostEvidence, CostSkill, Objective, Subclass, WorthMode, WorthOptions};
use larder_item::KeyHash;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering::Relaxed};

/// The options of worth, which an operator may change at any time, and what speaks for penalties. Whoever judges items
/// reads both anew for each column.
///
/// Relaxed: no other memory depends on the options or the evidence, and a judgement by the old ones is as good as one
/// that came a little earlier. Both options are in one atomic, so a reader never sees half of a change.
///
/// Lock: `skill`, a leaf, for misses of sampled keys.
pub(crate) struct WorthSetting {
    wanted: AtomicU8,
    skill: Mutex<CostSkill>,
    /// See [`CostSkill::shift_for`], to be read without the lock.
    shift: AtomicU32,
    /// Number of the evidence that `skill` has.
    evidence: AtomicU8,
    /// Whether a penalty that a client states counts by itself.
    trusts_clients: AtomicBool,
}

impl WorthSetting {
    /// A setting with the options that the cache starts with.
    pub(crate) fn new(options: WorthOptions) -> WorthSetting {
        WorthSetting {
            wanted: AtomicU8::new(pack(options)),
            skill: Mutex::default(),
            shift: AtomicU32::new(CostSkill::shift_for(0)),
            evidence: AtomicU8::new(CostEvidence::None as u8),
            trusts_clients: AtomicBool::new(true),
        }
    }

    /// What is judged by now: the options without the mode `auto`.
    pub(crate) fn get(&self) -> WorthOptions {
        self.wanted().by(self.evidence())
    }

    /// What speaks for penalties.
    pub(crate) fn evidence(&self) -> CostEvidence {
        CostEvidence::ALL[usize::from(self.evidence.load(Relaxed))]
    }

    /// The cache holds about `items` items.
    pub(crate) fn fit(&self, items: u64) {
        self.shift.store(CostSkill::shift_for(items), Relaxed);
    }

    /// A miss of this key cost so much: a client said so (`stated`), or it was measured.
    #[inline]
    pub(crate) fn learn(&self, hash: KeyHash, penalty: Subclass, stated: bool) {
        if CostSkill::samples(hash.0, self.shift.load(Relaxed)) {
            self.learn_sampled(hash, penalty, stated);
        }
    }

    #[cold]
    fn learn_sampled(&self, hash: KeyHash, penalty: Subclass, stated: bool) {
        // While another thread is at it, a key goes unnoticed: it is a sample.
        let Ok(mut skill) = self.skill.try_lock() else { return };
        skill.note(hash.0, penalty, stated && self.trusts_clients.load(Relaxed));
        self.evidence.store(skill.evidence() as u8, Relaxed);
    }

    /// From now on what clients state has to show skill, as what is measured.
    pub(crate) fn distrust_clients(&self) {
        self.trusts_clients.store(false, Relaxed);
    }

    /// The options that were asked for.
    #[inline]
    pub(crate) fn wanted(&self) -> WorthOptions {
        let packed = usize::from(self.wanted.load(Relaxed));
        WorthOptions {
            mode: WorthMode::ALL[packed / Objective::ALL.len()],
            objective: Objective::ALL[packed % Objective::ALL.len()],
        }
    }

    /// Takes other options from now on.
    pub(crate) fn set(&self, options: WorthOptions) {
        self.wanted.store(pack(options), Relaxed);
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
        assert_eq!(setting.wanted(), WorthOptions::default());
        for mode in WorthMode::ALL {
            for objective in Objective::ALL {
                setting.set(WorthOptions { mode, objective });
                assert_eq!(setting.wanted(), WorthOptions { mode, objective });
                for (stated, evidence) in [(true, CostEvidence::Stated), (false, CostEvidence::None)] {
                    (0..2000).for_each(|n| setting.learn(KeyHash(n), Subclass::UNKNOWN, stated));
                    assert_eq!(setting.get(), WorthOptions { mode, objective }.by(evidence));
                }
            }
        }
    }
}
