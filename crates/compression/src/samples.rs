//! A sample of the values of one kind, from which a dictionary is trained.

/// Values by chance among all that were offered, as many as there is room for (reservoir sampling: Vitter, ACM TOMS
/// 1985, algorithm R).
pub struct Samples {
    bytes: Vec<u8>,
    lengths: Vec<usize>,
    /// What is taken of one value, at most: the beginnings of values have most in common.
    value_bytes_max: usize,
    values_max: usize,
    bytes_max: usize,
    offered: u64,
    random: u64,
}

impl Samples {
    /// Room for `values_max` values and `bytes_max` bytes in all. Of each value the first `value_bytes_max` bytes are
    /// taken. `seed` starts the random numbers.
    pub fn new(values_max: usize, bytes_max: usize, value_bytes_max: usize, seed: u64) -> Samples {
        Samples {
            bytes: Vec::new(),
            lengths: Vec::new(),
            value_bytes_max,
            values_max,
            bytes_max,
            offered: 0,
            random: seed,
        }
    }

    /// Offers a value. While there is room it is taken; later it takes the place of another one by chance, if it has
    /// room there.
    pub fn offer(&mut self, value: &[u8]) {
        self.offered += 1;
        let value = &value[..value.len().min(self.value_bytes_max)];
        if value.is_empty() {
            return;
        }
        let has_room =
            self.lengths.len() < self.values_max && self.bytes.len() + value.len() <= self.bytes_max;
        if has_room {
            self.bytes.extend_from_slice(value);
            self.lengths.push(value.len());
            return;
        }
        let chosen = (u128::from(self.next()) * u128::from(self.offered)) >> 64;
        let Some(&length) = self.lengths.get(chosen as usize) else { return };
        let begin: usize = self.lengths[..chosen as usize].iter().sum();
        if self.bytes.len() - length + value.len() <= self.bytes_max {
            self.bytes.splice(begin..begin + length, value.iter().copied());
            self.lengths[chosen as usize] = value.len();
        }
    }

    /// The values, one behind the other.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The length of each value.
    pub fn lengths(&self) -> &[usize] {
        &self.lengths
    }

    /// SplitMix64 (Steele et al., OOPSLA 2014).
    fn next(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
