//! The hashes of the records of a log segment. With them a restart fills the log table without reading the records.
//!
//! The list holds the upper 40 bits of each hash, sorted. Each hash is stored as the difference to the hash before,
//! in a Golomb-Rice code (Rice and Plaunt, 1971). `n` hashes take about `40 - log2 n + 1.5` bits each: 2.8 bytes at
//! 600,000 hashes.

/// Bits of a hash that the list keeps.
const LISTED_BITS: u32 = 40;

/// The part of a hash that the list keeps, mixed again so that all 64 bits of the result can be used. The log table
/// must not use any other part of a hash: a restart could not give it.
pub(crate) fn listed(hash: u64) -> u64 {
    crate::record::mix(hash >> (64 - LISTED_BITS))
}

/// The encoded list.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct HashList {
    count: u32,
    remainder_bits: u8,
    code: Vec<u8>,
}

/// Encodes a list from hashes in ascending order.
#[derive(Debug)]
pub(crate) struct HashListBuilder {
    list: HashList,
    /// The last bits, which do not fill a byte yet, lowest first.
    pending: u64,
    pending_bits: u32,
    last: u64,
}

impl HashListBuilder {
    /// A builder for about `expected` hashes.
    pub(crate) fn new(expected: u32) -> HashListBuilder {
        let gap = (1u64 << LISTED_BITS) / expected.max(1) as u64;
        // The best parameter of the code is near 0.69 of the mean gap.
        let remainder_bits = (gap.max(2).ilog2() - 1).min(LISTED_BITS - 1) as u8;
        HashListBuilder {
            list: HashList { remainder_bits, ..HashList::default() },
            pending: 0,
            pending_bits: 0,
            last: 0,
        }
    }

    fn put(&mut self, bits: u64, count: u32) {
        self.pending |= bits << self.pending_bits;
        self.pending_bits += count;
        while self.pending_bits >= 8 {
            self.list.code.push(self.pending as u8);
            self.pending >>= 8;
            self.pending_bits -= 8;
        }
    }

    /// Adds a hash that is not below the hash before.
    pub(crate) fn push(&mut self, hash: u64) {
        let value = hash >> (64 - LISTED_BITS);
        let gap = value - self.last;
        let remainder_bits = self.list.remainder_bits as u32;
        for _ in 0..gap >> remainder_bits {
            self.put(1, 1);
        }
        self.put(0, 1);
        self.put(gap & ((1 << remainder_bits) - 1), remainder_bits);
        self.last = value;
        self.list.count += 1;
    }

    /// The list of the hashes so far.
    pub(crate) fn finish(mut self) -> HashList {
        let rest = self.pending_bits.next_multiple_of(8) - self.pending_bits;
        self.put(0, rest);
        self.list
    }
}

impl HashList {
    /// [`listed`] of every hash, in ascending order of the hashes.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        let mut bit = 0usize;
        let mut value = 0u64;
        let read = move |bit: &mut usize, count: u32| -> Option<u64> {
            let mut bits = 0;
            for index in 0..count {
                let byte = self.code.get(*bit / 8)?;
                bits |= ((byte >> (*bit % 8) & 1) as u64) << index;
                *bit += 1;
            }
            Some(bits)
        };
        (0..self.count).map_while(move |_| {
            let mut quotient = 0u64;
            while read(&mut bit, 1)? == 1 {
                quotient += 1;
            }
            let remainder = read(&mut bit, self.remainder_bits as u32)?;
            value = value.wrapping_add(quotient << self.remainder_bits | remainder);
            Some(crate::record::mix(value & ((1 << LISTED_BITS) - 1)))
        })
    }

    /// Number of hashes.
    #[cfg(test)]
    fn len(&self) -> u32 {
        self.count
    }

    /// Most bytes that [`HashList::to_bytes`] appends for `count` hashes.
    pub(crate) fn bytes_max(count: u32) -> u64 {
        // The quotients of sorted values sum up to at most the range over 2^remainder_bits: four for each hash.
        let remainder_bits = HashListBuilder::new(count).list.remainder_bits as u64;
        5 + ((remainder_bits + 1) * count as u64 + 4 * count.max(1) as u64 + 8).div_ceil(8)
    }

    /// Appends the list for [`HashList::from_bytes`].
    pub(crate) fn to_bytes(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.count.to_le_bytes());
        out.push(self.remainder_bits);
        out.extend_from_slice(&self.code);
    }

    /// The list that [`HashList::to_bytes`] wrote, or `None` if `bytes` are not a list.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<HashList> {
        let (count, rest) = bytes.split_first_chunk::<4>()?;
        let (remainder_bits, code) = rest.split_first()?;
        let count = u32::from_le_bytes(*count);
        if *remainder_bits as u32 >= LISTED_BITS || count as u64 > code.len() as u64 * 8 {
            return None;
        }
        Some(HashList { count, remainder_bits: *remainder_bits, code: code.to_vec() })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn list(hashes: &[u64], expected: u32) -> HashList {
        let mut builder = HashListBuilder::new(expected);
        hashes.iter().for_each(|hash| builder.push(*hash));
        builder.finish()
    }

    #[test]
    fn evenly_spread_hashes_take_less_than_three_bytes() {
        let mut hashes: Vec<u64> = (0..600_000u64).map(|n| crate::record::mix(n + 1)).collect();
        hashes.sort_unstable();
        let mut bytes = Vec::new();
        list(&hashes, 600_000).to_bytes(&mut bytes);
        let each = bytes.len() as f64 / 600_000.0;
        assert!((2.6..2.95).contains(&each), "{each}");
    }

    proptest! {
        #[test]
        fn round_trip(
            mut hashes in proptest::collection::vec(
                prop_oneof![any::<u64>(), 0..1000u64, Just(u64::MAX)], 0..300),
        ) {
            hashes.sort_unstable();
            let coded = list(&hashes, hashes.len() as u32);
            let mut bytes = Vec::new();
            coded.to_bytes(&mut bytes);
            prop_assert!(bytes.len() as u64 <= HashList::bytes_max(hashes.len() as u32));
            let read = HashList::from_bytes(&bytes).unwrap();
            let expected: Vec<u64> = hashes.iter().map(|hash| listed(*hash)).collect();
            prop_assert_eq!(read.iter().collect::<Vec<_>>(), expected);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            if let Some(list) = HashList::from_bytes(&bytes) {
                prop_assert!(list.iter().count() <= list.len() as usize);
            }
        }
    }
}
