//! Static filters: whether a segment may hold a hash, for about nine bits a key.
//!
//! A 3-wise binary fuse filter with 8-bit fingerprints (Graf and Lemire, "Binary Fuse Filters: Fast and Smaller Than
//! Xor Filters", 2022): three bytes of one array, near each other, xor to the fingerprint of every hash it was built from,
//! and to anything else for one in 256 of the others.

/// Seeds tried before a filter gives up and says yes to everything. Each fails for about one set in a hundred at worst.
const SEEDS_MAX: u64 = 64;
/// Longest segment of the array, log2: beyond, locality is lost and nothing is won.
const SEGMENT_LOG2_MAX: u32 = 18;
/// Bytes in front of the fingerprints: seed, log2 of a segment, segments, kind.
const HEADER_BYTES: usize = 16;

/// Whether a hash was among those it was built from: never a wrong no, one yes in 256 wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Filter {
    seed: u64,
    /// Slots a hash's first byte may fall into: whole segments.
    first_slots: u32,
    segment_log2: u32,
    /// What it says where there are no fingerprints: yes to everything, or no to everything.
    otherwise: bool,
    fingerprints: Box<[u8]>,
}

/// Where the three bytes of a hash are, and what they xor to.
struct Probe {
    slots: [usize; 3],
    fingerprint: u8,
}

impl Filter {
    /// A filter of these hashes, in any order; a hash may come more than once. Takes about 18 bytes a key while it
    /// works.
    pub fn build(hashes: &[u64]) -> Filter {
        let mut mixed = Vec::with_capacity(hashes.len());
        let mut work = Peeling::default();
        for seed in 1..=SEEDS_MAX {
            let seed = mix(seed, 0);
            mixed.clear();
            mixed.extend(hashes.iter().map(|hash| mix(*hash, seed)));
            // The first slot rises with the mixed hash: sorted, the array is walked once, from left to right.
            mixed.sort_unstable();
            mixed.dedup();
            let mut filter = Filter::shape(mixed.len(), seed);
            if mixed.is_empty() || work.fill(&mut filter, &mixed) {
                return filter;
            }
        }
        Filter { otherwise: true, ..Filter::shape(0, 0) }
    }

    /// An array for so many different hashes, all zeros.
    fn shape(keys: usize, seed: u64) -> Filter {
        let (segments, segment_log2) = Filter::sizes(keys);
        let first_slots = (segments.saturating_sub(2) << segment_log2) as u32;
        let fingerprints = vec![0; (segments << segment_log2) as usize].into();
        Filter { seed, first_slots, segment_log2, otherwise: false, fingerprints }
    }

    /// Segments of the array for so many hashes, and the log2 of their slots: those of the paper.
    fn sizes(keys: usize) -> (u64, u32) {
        if keys == 0 {
            return (0, 0);
        }
        let of = (keys as f64).max(2.0);
        // Half as long segments as the paper has, and a fortieth fewer slots: the first seed does it two times of three and more
        // (it takes a second try in theirs hardly ever), and a filter of 20,000 keys is 2 % smaller, one of 40,000 4 %.
        let segment_log2 = ((of.ln() / 3.33f64.ln() + 1.25) as u32).min(SEGMENT_LOG2_MAX);
        let factor = (0.85 + 0.25 * 1e6f64.ln() / of.ln()).max(1.125);
        (((of * factor) as u64).div_ceil(1 << segment_log2).max(3), segment_log2)
    }

    /// Whether this may be one of the hashes. Three loads that wait for nothing but the hash, and no branch on what they
    /// say: of several filters asked one after the other the processor waits for all at once.
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

    /// Bytes of memory it takes.
    pub fn bytes(&self) -> usize {
        size_of::<Filter>() + self.fingerprints.len()
    }

    /// Bytes that [`Filter::to_bytes`] appends for so many hashes.
    pub fn bytes_for(keys: usize) -> usize {
        let (segments, segment_log2) = Filter::sizes(keys);
        HEADER_BYTES + (segments << segment_log2) as usize
    }

    /// Appends what [`Filter::from_bytes`] takes.
    pub fn to_bytes(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.seed.to_le_bytes());
        out.extend_from_slice(&self.first_slots.to_le_bytes());
        out.extend_from_slice(&[self.segment_log2 as u8, self.otherwise as u8, 0, 0]);
        out.extend_from_slice(&self.fingerprints);
    }

    /// The filter that was written, or `None` if this is none.
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

/// Spreads a hash, differently for every seed; no two hashes become one.
#[inline]
fn mix(hash: u64, seed: u64) -> u64 {
    let x = hash.wrapping_add(seed).wrapping_add(0x9E37_79B9_7F4A_7C15);
    let x = (x ^ (x >> 33)).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    let x = (x ^ (x >> 33)).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    x ^ (x >> 33)
}

/// The graph of hashes and slots, from which one hash after the other is taken that has a slot for itself.
#[derive(Default)]
struct Peeling {
    /// Hashes left in each slot.
    counts: Vec<u8>,
    /// Their xor: the last one's name.
    xors: Vec<u64>,
    /// Slots with one hash left.
    alone: Vec<u32>,
    /// What was taken, and which of its three slots it has for itself.
    order: Vec<(u64, u8)>,
}

impl Peeling {
    /// Writes the fingerprints of different hashes, already mixed; false if this seed does not work for them.
    fn fill(&mut self, filter: &mut Filter, mixed: &[u64]) -> bool {
        let slots = filter.fingerprints.len();
        self.counts.clear();
        self.counts.resize(slots, 0);
        self.xors.clear();
        self.xors.resize(slots, 0);
        self.alone.clear();
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
        self.alone.extend((0..slots as u32).filter(|slot| self.counts[*slot as usize] == 1));
        while let Some(slot) = self.alone.pop() {
            if self.counts[slot as usize] == 1 {
                self.take(filter, slot);
            }
        }
        if self.order.len() != mixed.len() {
            return false;
        }
        // What was taken last has slots that nobody before it may change any more: it goes first.
        for (hash, own) in self.order.iter().rev() {
            let probe = filter.probe(*hash);
            let others = probe.slots.iter().enumerate().filter(|(at, _)| *at != *own as usize);
            let others = others.fold(0, |xor, (_, slot)| xor ^ filter.fingerprints[*slot]);
            filter.fingerprints[probe.slots[*own as usize]] = others ^ probe.fingerprint;
        }
        true
    }

    /// Takes the one hash left in a slot.
    fn take(&mut self, filter: &Filter, slot: u32) {
        let hash = self.xors[slot as usize];
        for (at, other) in filter.probe(hash).slots.into_iter().enumerate() {
            if other == slot as usize {
                self.order.push((hash, at as u8));
            }
            self.xors[other] ^= hash;
            self.counts[other] -= 1;
            if self.counts[other] == 1 {
                self.alone.push(other as u32);
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
