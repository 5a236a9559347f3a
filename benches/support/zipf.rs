//! Zipf's law: the item of rank r is drawn in proportion to r^-exponent. Exact, without a table.

/// Draws items by Zipf's law.
pub struct Zipf {
    items: u64,
    exponent: f64,
    /// The integral of the law at one half and at the end, less what rank 1 has beyond its part of it.
    first: f64,
    last: f64,
    /// A rank that is no farther than this from the number drawn is accepted at once.
    near: f64,
    half_bits: u32,
}

impl Zipf {
    /// The law over `items` items; `exponent` is above 0 and not 1.
    pub fn new(items: u64, exponent: f64) -> Zipf {
        let bits = items.next_power_of_two().ilog2().max(2);
        let mut law = Zipf { items, exponent, first: 0.0, last: 0.0, near: 0.0, half_bits: bits.div_ceil(2) };
        law.first = law.integral(1.5) - 1.0;
        law.last = law.integral(items as f64 + 0.5);
        law.near = 2.0 - law.inverse(law.integral(2.5) - 2f64.powf(-exponent));
        law
    }

    fn integral(&self, x: f64) -> f64 {
        (x.powf(1.0 - self.exponent) - 1.0) / (1.0 - self.exponent)
    }

    fn inverse(&self, y: f64) -> f64 {
        (1.0 + y * (1.0 - self.exponent)).powf(1.0 / (1.0 - self.exponent))
    }

    /// A rank from 1 on, by rejection and inversion (Hörmann and Derflinger 1996). `unit` draws numbers from 0 to 1.
    pub fn rank(&self, mut unit: impl FnMut() -> f64) -> u64 {
        loop {
            let drawn = self.last + unit() * (self.first - self.last);
            let x = self.inverse(drawn);
            let rank = x.round().clamp(1.0, self.items as f64);
            if rank - x <= self.near || drawn >= self.integral(rank + 0.5) - rank.powf(-self.exponent) {
                return rank as u64;
            }
        }
    }

    /// The number of the item of a rank, below the number of items. Ranks are spread over the numbers, and no two have
    /// the same.
    pub fn item(&self, rank: u64) -> u64 {
        let mask = (1u64 << (2 * self.half_bits)) - 1;
        let mut number = rank - 1;
        // Every step can be undone, and so can their repetition until the number is one of an item.
        loop {
            for factor in [0x9e37_79b9_7f4a_7c15_u64, 0xbf58_476d_1ce4_e5b9] {
                number = number.wrapping_mul(factor) & mask;
                number ^= number >> self.half_bits;
            }
            number = number.wrapping_add(0x9e37) & mask;
            if number < self.items {
                return number;
            }
        }
    }
}
