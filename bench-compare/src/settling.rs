//! When the hit ratio of a cache has settled.

/// Windows whose mean is compared with that of as many windows before them.
const WINDOWS: usize = 5;
/// Two means that differ by less are the same: a tenth of a point.
const SAME: f64 = 0.001;

/// Hit ratios of windows, one after another.
#[derive(Debug, Default)]
pub(crate) struct Settling {
    ratios: Vec<f64>,
}

impl Settling {
    /// The hits and misses of another window.
    pub(crate) fn add(&mut self, hits: u64, misses: u64) {
        self.ratios.push(hits as f64 / (hits + misses).max(1) as f64);
    }

    /// Whether the last windows hit as often as those before them.
    pub(crate) fn is_over(&self) -> bool {
        let Some((before, last)) =
            self.ratios.last_chunk::<{ 2 * WINDOWS }>().map(|windows| windows.split_at(WINDOWS))
        else {
            return false;
        };
        (mean(last) - mean(before)).abs() < SAME
    }

    /// The mean of the last windows; 0 without any.
    pub(crate) fn latest(&self) -> f64 {
        mean(&self.ratios[self.ratios.len().saturating_sub(WINDOWS)..])
    }
}

fn mean(ratios: &[f64]) -> f64 {
    ratios.iter().sum::<f64>() / ratios.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_over_when_nothing_rises_any_more() {
        let mut settling = Settling::default();
        assert_eq!(settling.latest(), 0.0);
        for at in 0..20u64 {
            settling.add(500 + 10 * at, 500 - 10 * at);
            assert!(!settling.is_over(), "window {at}");
        }
        for at in 0..2 * WINDOWS {
            assert!(!settling.is_over(), "window {at}");
            settling.add(700, 300);
        }
        assert!(settling.is_over());
        assert!((settling.latest() - 0.7).abs() < 1e-9);
    }
}
