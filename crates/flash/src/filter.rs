//! Static filters: whether a segment may hold a hash. About nine bits for each key.
//!
//! A 3-wise binary fuse filter with 8-bit fingerprints (Graf and Lemire, "Binary Fuse Filters: Fast and Smaller Than
//! Xor Filters", 2022). For each hash that the filter was built from, the xor of three bytes of one array is the
//! fingerprint of the hash. For another hash that is so once in 256 times. The three bytes are near each other.

/// Seeds that are tried before a filter gives up, and says yes to everything. A seed fails one time in three at worst.
const SEEDS_MAX: u64 = 64;
/// Longest segment of the array, log2. Longer ones make the three bytes lie farther apart, and gain nothing.
const SEGMENT_LOG2_MAX: u32 = 18;
/// Bytes in front of the fingerprints: seed, first slots, log2 of a segment, kind.
const HEADER_BYTES: usize = 16;

/// A filter. It says whether a hash was among those it was built from: a no is never wrong, one yes in 256 is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Filter {
    seed: u64,
    /// Slots that the first byte of a hash may be in: all segments except the last two.
    first_slots: u32,
    segment_log2: u32,
    /// The answer to every hash if there are no fingerprints.
    otherwise: bool,
    fingerprints: Box<[u8]>,
}

/// The three slots of a hash, and the fingerprint that their bytes xor to.
struct Probe {
    slots: [usize; 3],
    fingerprint: u8,
}

impl Filter {
    /// Builds a filter of hashes, given in any order; a hash may come more than once. Needs about 18 bytes of memory a
    /// key.
    pub fn build(hashes: &[u64]) -> Filter {
        let mut mixed = Vec::with_capacity(hashes.len());
        let mut work = Peeling::default();
        for seed in 1..=SEEDS_MAX {
            let seed = mix(seed, 0);
            mixed.clear();
            mixed.extend(hashes.iter().map(|hash| mix(*hash, seed)));
            // A higher mixed hash has a higher first slot: in sorted order the array is walked once, from left to
            // right.
            mixed.sort_unstable();
            mixed.dedup();
            let mut filter = Filter::shape(mixed.len(), seed);
            if mixed.is_empty() || work.fill(&mut filter, &mixed) {
                return filter;
            }
        }
        Filter { otherwise: true, ..Filter::shape(0, 0) }
    }

    /// A filter with an array for `keys` different hashes, all zeros.
    fn shape(keys: usize, seed: u64) -> Filter {
        let (segments, segment_log2) = Filter::sizes(keys);
        let first_slots = (segments.saturating_sub(2) << segment_log2) as u32;
        let fingerprints = vec![0; (segments << segment_log2) as usize].into();
        Filter { seed, first_slots, segment_log2, otherwise: false, fingerprints }
    }

    /// How many segments the array has for `keys` hashes, and the log2 of the slots of a segment.
    fn sizes(keys: usize) -> (u64, u32) {
        if keys == 0 {
            return (0, 0);
        }
        let of = (keys as f64).max(2.0);
        // Segments are half as long as in the paper, and there is a fortieth fewer slots. The first seed then works two
        // times in three (in the paper nearly always), and a filter of 20,000 keys is 2 % smaller, one of 40,000 keys 4
        // %.
        let segment_log2 = ((of.ln() / 3.33f64.ln() + 1.25) as u32).min(SEGMENT_LOG2_MAX);
        let factor = (0.85 + 0.25 * 1e6f64.ln() / of.ln()).max(1.125);
        (((of * factor) as u64).div_ceil(1 << segment_log2).max(3), segment_log2)
    }

    /// Whether this may be one of the hashes. The three loads depend only on the hash, and no branch depends on them:
    /// when several filters are asked one after the other, their cache misses overlap.
    #[inline]
    pub fn may_contain(&self, hash: u64) -> bool {
        if self.fingerprints.is_empty() {
            return self.otherwise;
        }
        let Probe { slots: [a, b, c], fingerprint } = self.probe(mix(hash, self.seed));
        self.fingerprints[a] ^ self.fingerprints[b] ^ self.fingerprints[c] == fingerprint
    }

    #[inline]
    fn probe(&self, mixed: u64) -> Probe {
        let segment = 1 << self.segment_log2;
        let a = ((mixed as u128 * self.first_slots as u128) >> 64) as usize;
        let b = (a + segment) ^ ((mixed >> 18) as usize & (segment - 1));
        let c = (a + 2 * segment) ^ (mixed as usize & (segment - 1));
        Probe { slots: [a, b, c], fingerprint: (mixed ^ (mixed >> 32)) as u8 }
    }

    /// Memory taken, bytes.
    pub fn bytes(&self) -> usize {
        size_of::<Filter>() + self.fingerprints.len()
    }

    /// How many bytes [`Filter::to_bytes`] appends for `keys` hashes.
    pub fn bytes_for(keys: usize) -> usize {
        let (segments, segment_log2) = Filter::sizes(keys);
        HEADER_BYTES + (segments << segment_log2) as usize
    }

    /// Appends the filter in the form that [`Filter::from_bytes`] reads.
    pub fn to_bytes(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.seed.to_le_bytes());
        out.extend_from_slice(&self.first_slots.to_le_bytes());
        out.extend_from_slice(&[self.segment_log2 as u8, self.otherwise as u8, 0, 0]);
        out.extend_from_slice(&self.fingerprints);
    }

    /// Reads a filter; `None` if the bytes are no filter.
    pub fn from_bytes(bytes: &[u8]) -> Option<Filter> {
        let (header, fingerprints) = bytes.split_at_checked(HEADER_BYTES)?;
        let seed = u64::from_le_bytes(header[..8].try_into().ok()?);
        let first_slots = u32::from_le_bytes(header[8..12].try_into().ok()?);
        let (segment_log2, otherwise) = (header[12] as u32, header[13]);
        if segment_log2 > SEGMENT_LOG2_MAX || otherwise > 1 || header[14..] != [0, 0] {
            return None;
        }
        let segment = 1u64 << segment_log2;
        let slots = if first_slots == 0 { 0 } else { first_slots as u64 + 2 * segment };
        let fits = fingerprints.len() as u64 == slots && (first_slots as u64).is_multiple_of(segment);
        let fingerprints = fingerprints.into();
        fits.then_some(Filter { seed, first_slots, segment_log2, otherwise: otherwise == 1, fingerprints })
    }
}

/// Mixes a hash, differently for each seed. Different hashes stay different.
#[inline]
fn mix(hash: u64, seed: u64) -> u64 {
    let x = hash.wrapping_add(seed).wrapping_add(0x9E37_79B9_7F4A_7C15);
    let x = (x ^ (x >> 33)).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    let x = (x ^ (x >> 33)).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    x ^ (x >> 33)
}

/// The graph of hashes and slots while a filter is built. Hashes are taken out one after the other, each when it is the
/// only one left in one of its slots.
#[derive(Default)]
struct Peeling {
    /// How many hashes are left in each slot.
    counts: Vec<u8>,
    /// The xor of the hashes left in each slot: where one is left, that hash.
    xors: Vec<u64>,
    /// Slots with one hash left.
    single: Vec<u32>,
    /// The hashes that were taken out, each with the number (0 to 2) of the slot in which it was the only one.
    order: Vec<(u64, u8)>,
}

impl Peeling {
    /// Writes the fingerprints of different hashes, which are mixed already; `false` if this seed does not work for
    /// them.
    fn fill(&mut self, filter: &mut Filter, mixed: &[u64]) -> bool {
        let slots = filter.fingerprints.len();
        self.counts.clear();
        self.counts.resize(slots, 0);
        self.xors.clear();
        self.xors.resize(slots, 0);
        self.single.clear();
        self.order.clear();
        for hash in mixed {
            for slot in filter.probe(*hash).slots {
                self.xors[slot] ^= hash;
                match self.counts[slot].checked_add(1) {
                    Some(count) => self.counts[slot] = count,
                    None => return false,
                }
            }
        }
        self.single.extend((0..slots as u32).filter(|slot| self.counts[*slot as usize] == 1));
        while let Some(slot) = self.single.pop() {
            if self.counts[slot as usize] == 1 {
                self.take(filter, slot);
            }
        }
        if self.order.len() != mixed.len() {
            return false;
        }
        // In reverse order: the own slot of a hash is in none of the hashes that were taken out after it, so writing it
        // does not change their xor.
        for (hash, own) in self.order.iter().rev() {
            let probe = filter.probe(*hash);
            let others = probe.slots.iter().enumerate().filter(|(at, _)| *at != *own as usize);
            let others = others.fold(0, |xor, (_, slot)| xor ^ filter.fingerprints[*slot]);
            filter.fingerprints[probe.slots[*own as usize]] = others ^ probe.fingerprint;
        }
        true
    }

    /// Takes out the one hash that is left in a slot.
    fn take(&mut self, filter: &Filter, slot: u32) {
        let hash = self.xors[slot as usize];
        for (at, other) in filter.probe(hash).slots.into_iter().enumerate() {
            if other == slot as usize {
                self.order.push((hash, at as u8));
            }
            self.xors[other] ^= hash;
            self.counts[other] -= 1;
            if self.counts[other] == 1 {
                self.single.push(other as u32);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    /// Hashes that are not spread at all, and hashes that are.
    fn hashes(from: u64, count: u64, spread: bool) -> Vec<u64> {
        (from..from + count).map(|n| if spread { mix(n, 7) } else { n << 40 }).collect()
    }

    fn wrong(filter: &Filter, hashes: impl Iterator<Item = u64>) -> f64 {
        let (mut asked, mut yes) = (0, 0);
        for hash in hashes {
            asked += 1;
            yes += filter.may_contain(hash) as u32;
        }
        yes as f64 / asked as f64
    }

    #[test]
    fn one_answer_in_256_is_wrong_and_a_key_takes_nine_bits() {
        for (keys, bits) in [(10_000, 10.7), (100_000, 9.8), (600_000, 9.2), (2_000_000, 9.2)] {
            let filter = Filter::build(&hashes(0, keys, true));
            assert!(hashes(0, keys, true).iter().all(|hash| filter.may_contain(*hash)));
            let rate = wrong(&filter, hashes(1 << 40, 1_000_000, true).into_iter());
            let bits_per_key = filter.bytes() as f64 * 8.0 / keys as f64;
            println!("{keys} keys: {bits_per_key:.2} bits per key, {rate:.5} false");
            assert!(rate < 1.15 / 256.0, "{rate} of {keys}");
            assert!(bits_per_key <= bits, "{bits_per_key} of {keys}");
        }
    }

    #[test]
    fn hashes_of_a_narrow_range_do_not_matter() {
        let keys = hashes(1, 50_000, false);
        let filter = Filter::build(&keys);
        assert!(keys.iter().all(|hash| filter.may_contain(*hash)));
        assert!(wrong(&filter, hashes(1 << 20, 200_000, false).into_iter()) < 1.2 / 256.0);
    }

    #[test]
    fn without_hashes_nothing_is_contained() {
        let filter = Filter::build(&[]);
        assert_eq!(wrong(&filter, hashes(0, 1000, true).into_iter()), 0.0);
        let mut bytes = Vec::new();
        filter.to_bytes(&mut bytes);
        assert_eq!(Filter::from_bytes(&bytes), Some(filter));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]
        #[test]
        fn what_it_was_built_from_is_contained(
            keys in prop::collection::vec(any::<u64>(), 0..300),
            again in 0usize..300,
        ) {
            let mut twice = keys.clone();
            twice.extend(keys.iter().take(again));
            let filter = Filter::build(&twice);
            let twin: HashSet<u64> = keys.into_iter().collect();
            for hash in &twin {
                prop_assert!(filter.may_contain(*hash));
            }
            let others = (0..4000).map(|n| mix(n, 3)).filter(|hash| !twin.contains(hash));
            prop_assert!(wrong(&filter, others) < 0.02);
            let mut bytes = Vec::new();
            filter.to_bytes(&mut bytes);
            prop_assert_eq!(bytes.len(), Filter::bytes_for(twin.len()));
            prop_assert_eq!(Filter::from_bytes(&bytes), Some(filter));
        }

        #[test]
        fn bytes_that_are_no_filter_make_none_or_one_that_answers(
            mut bytes in prop::collection::vec(any::<u8>(), 0..200),
            first_slots in 0u32..64,
            hash in any::<u64>(),
        ) {
            if bytes.len() >= HEADER_BYTES {
                bytes[8..12].copy_from_slice(&first_slots.to_le_bytes());
                let kind = [bytes[12] & 7, bytes[13] & 1, 0, 0];
                bytes[12..16].copy_from_slice(&kind);
            }
            if let Some(filter) = Filter::from_bytes(&bytes) {
                filter.may_contain(hash);
            }
        }
    }
}
