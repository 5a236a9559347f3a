//! Chooses the next key: popularity laws, and the precomputed ring of requests.

use crate::rng::Rng;

/// The distribution of requests over the keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Popularity {
    /// All keys are equally popular.
    Uniform,
    /// The k-th most popular key with probability proportional to `k^-theta`.
    Zipf(f64),
}

/// Exact Zipf ranks by Vose's alias method: two table look-ups per sample, without rejection.
pub(crate) struct Zipf {
    /// Probability of keeping the sampled column.
    keep: Vec<f64>,
    /// The rank taken otherwise.
    other: Vec<u32>,
}

impl Zipf {
    /// Tables for ranks `0..items` (12 bytes per rank); `items` must not be 0.
    pub(crate) fn new(items: u32, theta: f64) -> Self {
        let mut keep: Vec<f64> = (1..=items).map(|rank| f64::from(rank).powf(-theta)).collect();
        let scale = f64::from(items) / keep.iter().rev().sum::<f64>();
        keep.iter_mut().for_each(|weight| *weight *= scale);
        let mut other: Vec<u32> = (0..items).collect();
        let (mut small, mut large): (Vec<u32>, Vec<u32>) =
            (0..items).partition(|&rank| keep[rank as usize] < 1.0);
        while let (Some(&needy), Some(&giver)) = (small.last(), large.last()) {
            small.pop();
            other[needy as usize] = giver;
            keep[giver as usize] -= 1.0 - keep[needy as usize];
            if keep[giver as usize] < 1.0 {
                large.pop();
                small.push(giver);
            }
        }
        // The remaining values differ from 1 only by rounding.
        for rank in small.into_iter().chain(large) {
            keep[rank as usize] = 1.0;
        }
        Self { keep, other }
    }

    /// Samples a rank; 0 is the most popular.
    pub(crate) fn rank(&self, rng: &mut Rng) -> u32 {
        let column = rng.below(self.keep.len() as u32);
        if rng.unit() < self.keep[column as usize] { column } else { self.other[column as usize] }
    }
}

/// Samples key numbers in `0..items`. Popular keys are scattered over the numbers, so that keys loaded one after
/// another differ in popularity.
pub(crate) struct KeyPicker {
    items: u32,
    zipf: Option<Zipf>,
    stride: u64,
    rng: Rng,
}

impl KeyPicker {
    /// A picker with its own random sequence; `items` must not be 0.
    pub(crate) fn new(items: u32, popularity: Popularity, seed: u64) -> Self {
        let zipf = match popularity {
            Popularity::Uniform => None,
            Popularity::Zipf(theta) => Some(Zipf::new(items, theta)),
        };
        Self { items, zipf, stride: coprime_stride(u64::from(items)), rng: Rng::new(seed) }
    }

    /// The next key number.
    pub(crate) fn pick(&mut self) -> u32 {
        match &self.zipf {
            None => self.rng.below(self.items),
            Some(zipf) => {
                let rank = u64::from(zipf.rank(&mut self.rng));
                (rank * self.stride % u64::from(self.items)) as u32
            }
        }
    }

    /// True with a probability of `percent` in a hundred.
    fn chance(&mut self, percent: u32) -> bool {
        self.rng.below(100) < percent
    }
}

/// A step that visits every number below `items` once: near the golden section, and sharing no factor with `items`.
fn coprime_stride(items: u64) -> u64 {
    fn gcd(a: u64, b: u64) -> u64 {
        if b == 0 { a } else { gcd(b, a % b) }
    }
    let mut stride = ((items as f64 * 0.618_033_988_749_895) as u64).max(1);
    while gcd(stride, items) != 1 {
        stride += 1;
    }
    stride
}

/// One request of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// The key number, below 2^31.
    pub(crate) id: u32,
    /// True for a SET, false for a GET.
    pub(crate) set: bool,
}

impl Request {
    const SET: u32 = 1 << 31;

    fn pack(self) -> u32 {
        self.id | if self.set { Self::SET } else { 0 }
    }

    fn unpack(packed: u32) -> Self {
        Self { id: packed & !Self::SET, set: packed & Self::SET != 0 }
    }
}

/// Requests sampled in advance, so that sampling costs the client nothing during the measurement.
pub(crate) struct Ring {
    packed: Vec<u32>,
}

impl Ring {
    /// `length` (rounded up to a power of two) requests over resident keys; `get_percent` of a hundred are GETs.
    pub(crate) fn resident(picker: &mut KeyPicker, get_percent: u32, length: usize) -> Self {
        let draw = |_| {
            let id = picker.pick();
            Request { id, set: !picker.chance(get_percent) }.pack()
        };
        Self { packed: (0..length.next_power_of_two()).map(draw).collect() }
    }

    /// `length` (rounded up) requests, every second one a SET of a key never used before, counting from `first_id`;
    /// the others GET one of the `window` keys SET most recently.
    pub(crate) fn churn(first_id: u32, window: u32, seed: u64, length: usize) -> Self {
        let mut rng = Rng::new(seed);
        let mut fresh = first_id;
        let draw = |at: usize| {
            if at.is_multiple_of(2) {
                fresh += 1;
                Request { id: fresh - 1, set: true }.pack()
            } else {
                // Not the very last keys: their SETs may still be on the wire of another connection.
                let back = CHURN_IN_FLIGHT + rng.below(window);
                Request { id: fresh.saturating_sub(back), set: false }.pack()
            }
        };
        Self { packed: (0..length.next_power_of_two()).map(draw).collect() }
    }

    /// Number of requests.
    pub(crate) fn length(&self) -> usize {
        self.packed.len()
    }

    /// The request at `position`, which may run past the end: the ring starts over.
    pub(crate) fn at(&self, position: usize) -> Request {
        Request::unpack(self.packed[position & (self.packed.len() - 1)])
    }
}

/// Keys that a churning GET stays behind the newest SET: more than all connections have in flight together.
pub(crate) const CHURN_IN_FLIGHT: u32 = 2_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zipf_frequencies_are_those_of_the_law() {
        const ITEMS: u32 = 1_000;
        const DRAWS: u32 = 2_000_000;
        let zipf = Zipf::new(ITEMS, 0.99);
        let mut rng = Rng::new(42);
        let mut counts = vec![0u32; ITEMS as usize];
        for _ in 0..DRAWS {
            counts[zipf.rank(&mut rng) as usize] += 1;
        }
        let total: f64 = (1..=ITEMS).map(|rank| f64::from(rank).powf(-0.99)).sum();
        let mut chi_squared = 0.0;
        for (rank, &count) in counts.iter().enumerate() {
            let expected = f64::from(DRAWS) * (rank as f64 + 1.0).powf(-0.99) / total;
            chi_squared += (f64::from(count) - expected).powi(2) / expected;
        }
        // 999 degrees of freedom: mean 999, standard deviation 45.
        assert!((800.0..1200.0).contains(&chi_squared), "{chi_squared}");
    }

    #[test]
    fn the_alias_table_adds_up_exactly() {
        for (items, theta) in [(1, 0.99), (2, 0.5), (1000, 0.99), (4096, 1.2), (77, 0.0)] {
            let zipf = Zipf::new(items, theta);
            let mut mass = vec![0.0f64; items as usize];
            for (column, (&keep, &other)) in zipf.keep.iter().zip(&zipf.other).enumerate() {
                mass[column] += keep;
                mass[other as usize] += 1.0 - keep;
            }
            let total: f64 = (1..=items).map(|rank| f64::from(rank).powf(-theta)).sum();
            for (rank, &got) in mass.iter().enumerate() {
                let expected = (rank as f64 + 1.0).powf(-theta) / total * f64::from(items);
                assert!((got - expected).abs() < 1e-9 * f64::from(items), "rank {rank}: {got} {expected}");
            }
        }
    }

    #[test]
    fn scattering_is_one_to_one() {
        for items in [1u64, 2, 3, 10, 999, 1000, 4096, 10_007] {
            let stride = coprime_stride(items);
            let mut seen = vec![false; items as usize];
            (0..items).for_each(|rank| seen[(rank * stride % items) as usize] = true);
            assert!(seen.iter().all(|&hit| hit), "{items}");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_ring() {
        let ring = || {
            let mut picker = KeyPicker::new(5_000, Popularity::Zipf(0.99), 7);
            Ring::resident(&mut picker, 95, 1 << 16)
        };
        let (one, two) = (ring(), ring());
        assert_eq!(one.packed, two.packed);
        let sets = (0..one.packed.len()).filter(|&at| one.at(at).set).count();
        let share = sets as f64 / one.packed.len() as f64;
        assert!((0.045..0.055).contains(&share), "{share}");
        assert_eq!(one.at(3), one.at(3 + one.packed.len()));
    }

    #[test]
    fn churn_reads_only_what_was_written_before() {
        let first = 50_000;
        let ring = Ring::churn(first, 10_000, 9, 1 << 15);
        let mut newest = first;
        for at in 0..ring.packed.len() {
            let request = ring.at(at);
            if request.set {
                assert_eq!(request.id, newest);
                newest += 1;
            } else {
                let age = newest - request.id;
                assert!((CHURN_IN_FLIGHT..CHURN_IN_FLIGHT + 10_000).contains(&age), "{age}");
            }
        }
    }
}
