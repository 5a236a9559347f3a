//! Whether prices differ: what a miss costs per byte of its item.

/// Prices that differ by less than this factor are equal.
const EQUAL: f32 = 1.05;

/// The lowest and the highest price of the present window and of the one before.
#[derive(Clone, Copy)]
pub(crate) struct Prices {
    now: (f32, f32),
    before: (f32, f32),
}

const NONE: (f32, f32) = (f32::MAX, 0.0);

impl Default for Prices {
    /// No price was seen yet.
    fn default() -> Prices {
        Prices { now: NONE, before: NONE }
    }
}

impl Prices {
    /// An item has this price.
    #[inline]
    pub(crate) fn see(&mut self, price: f32) {
        self.now = (self.now.0.min(price), self.now.1.max(price));
    }

    /// Whether two items had different prices lately.
    pub(crate) fn differ(&self) -> bool {
        self.now.1.max(self.before.1) > EQUAL * self.now.0.min(self.before.0)
    }

    /// A window of accesses has ended.
    pub(crate) fn end_window(&mut self) {
        (self.before, self.now) = (self.now, NONE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_differ_for_two_windows() {
        let mut prices = Prices::default();
        assert!(!prices.differ());
        prices.see(2.0);
        prices.see(2.05);
        assert!(!prices.differ());
        prices.see(4.0);
        assert!(prices.differ());
        prices.end_window();
        prices.see(2.0);
        assert!(prices.differ());
        prices.end_window();
        assert!(!prices.differ());
    }
}
