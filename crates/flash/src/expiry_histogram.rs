//! When the records of a segment expire: with it, the live bytes of a segment are known without reading the segment.

/// Buckets of a histogram.
const BUCKETS: usize = 64;
/// The last bucket: bytes that never expire, or later than 42 days.
const NEVER: usize = BUCKETS - 1;
/// The width of the first four buckets, seconds. After them there are four buckets for each doubling of the time.
/// Bucket 62 ends after 42 days.
const NARROWEST_S: u32 = 32;

/// Bytes by the time at which they expire, counted from the moment when the histogram was begun. A bucket is at most a
/// quarter as wide as the time from the beginning to it, so the answer for a time is that of a time at most a quarter
/// off.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExpiryHistogram {
    base_unix_s: u32,
    bytes: [u32; BUCKETS],
}

impl ExpiryHistogram {
    /// An empty histogram that is begun now.
    pub fn new(now_unix_s: u32) -> ExpiryHistogram {
        ExpiryHistogram { base_unix_s: now_unix_s, bytes: [0; BUCKETS] }
    }

    /// When a bucket begins, seconds after the beginning of the histogram.
    fn begin_s(bucket: usize) -> u64 {
        let units = match bucket {
            0..4 => bucket as u64,
            _ => (4 + bucket as u64 % 4) << (bucket / 4 - 1),
        };
        units * NARROWEST_S as u64
    }

    fn bucket(&self, expires_unix_s: u32) -> usize {
        if expires_unix_s == 0 {
            return NEVER;
        }
        let units = expires_unix_s.saturating_sub(self.base_unix_s) / NARROWEST_S;
        let bucket = match units {
            0..4 => units as usize,
            _ => {
                let log2 = units.ilog2();
                (log2 as usize - 1) * 4 + (units >> (log2 - 2)) as usize % 4
            }
        };
        bucket.min(NEVER)
    }

    /// Adds bytes that expire at a time, unix seconds; 0 = never.
    pub fn add(&mut self, expires_unix_s: u32, bytes: u32) {
        let bucket = self.bucket(expires_unix_s);
        self.bytes[bucket] = self.bytes[bucket].saturating_add(bytes);
    }

    /// Adds all bytes of another histogram. Both should have been begun at about the same time.
    pub fn add_all(&mut self, other: &ExpiryHistogram) {
        for (bucket, bytes) in other.bytes.iter().enumerate() {
            let expires = other.base_unix_s as u64 + Self::begin_s(bucket);
            let expires = if bucket == NEVER { 0 } else { u32::try_from(expires).unwrap_or(0) };
            self.add(expires, *bytes);
        }
    }

    /// Estimates how many bytes have not expired at a time. The bucket of that time counts in proportion.
    pub fn live_bytes(&self, now_unix_s: u32) -> u64 {
        let now = now_unix_s.saturating_sub(self.base_unix_s) as u64;
        let live = |(bucket, bytes): (usize, &u32)| {
            let bytes = *bytes as u64;
            let (begin, end) = (Self::begin_s(bucket), Self::begin_s(bucket + 1));
            match now {
                _ if bucket == NEVER || now <= begin => bytes,
                _ if now >= end => 0,
                _ => bytes * (end - now) / (end - begin),
            }
        };
        self.bytes.iter().enumerate().map(live).sum()
    }

    /// How many bytes [`ExpiryHistogram::to_bytes`] appends.
    pub const ENCODED_BYTES: usize = 4 + 4 * BUCKETS;

    /// Appends the histogram in the form that [`ExpiryHistogram::from_bytes`] reads: the beginning and the buckets,
    /// little endian.
    pub fn to_bytes(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.base_unix_s.to_le_bytes());
        self.bytes.iter().for_each(|bytes| out.extend_from_slice(&bytes.to_le_bytes()));
    }

    /// Reads a histogram; `None` if the length is wrong.
    pub fn from_bytes(bytes: &[u8]) -> Option<ExpiryHistogram> {
        if bytes.len() != Self::ENCODED_BYTES {
            return None;
        }
        let mut words =
            bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
        let base_unix_s = words.next()?;
        let mut histogram = ExpiryHistogram::new(base_unix_s);
        histogram.bytes.iter_mut().zip(words).for_each(|(bucket, bytes)| *bucket = bytes);
        Some(histogram)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BASE: u32 = 1_800_000_000;

    #[test]
    fn buckets_are_next_to_each_other_and_reach_six_weeks() {
        let histogram = ExpiryHistogram::new(BASE);
        for bucket in 0..NEVER {
            let (begin, end) = (ExpiryHistogram::begin_s(bucket), ExpiryHistogram::begin_s(bucket + 1));
            assert!(begin < end);
            assert_eq!(histogram.bucket(BASE + begin as u32), bucket);
            assert_eq!(histogram.bucket(BASE + end as u32 - 1), bucket);
        }
        assert!(ExpiryHistogram::begin_s(NEVER) > 42 * 86_400);
        assert_eq!(histogram.bucket(0), NEVER);
        assert_eq!(histogram.bucket(u32::MAX), NEVER);
        assert_eq!(histogram.bucket(BASE - 5), 0);
    }

    proptest! {
        #[test]
        fn live_bytes_are_those_of_now_give_or_take_a_bucket(
            items in prop::collection::vec((prop_oneof![Just(0), 0u32..5_000_000], 1u32..5000), 0..200),
            after in 0u32..6_000_000,
        ) {
            let mut histogram = ExpiryHistogram::new(BASE);
            let expires = |ttl: u32| if ttl == 0 { 0 } else { BASE + ttl };
            items.iter().for_each(|(ttl, bytes)| histogram.add(expires(*ttl), *bytes));
            let exact = |at: u64| -> u64 {
                let late = ExpiryHistogram::begin_s(NEVER);
                let lives = |ttl: u32| ttl == 0 || ttl as u64 >= late || ttl as u64 > at;
                items.iter().filter(|(ttl, _)| lives(*ttl)).map(|(_, bytes)| *bytes as u64).sum()
            };
            let live = histogram.live_bytes(BASE + after);
            let slack = (after / 4 + NARROWEST_S) as u64;
            prop_assert!(live <= exact((after as u64).saturating_sub(slack)), "{live}");
            prop_assert!(live >= exact(after as u64 + slack), "{live}");
            let mut bytes = Vec::new();
            histogram.to_bytes(&mut bytes);
            prop_assert_eq!(ExpiryHistogram::from_bytes(&bytes), Some(histogram.clone()));
            let mut twice = histogram.clone();
            twice.add_all(&histogram);
            prop_assert_eq!(twice.live_bytes(BASE + after), {
                let mut by_hand = histogram.clone();
                by_hand.bytes.iter_mut().for_each(|bytes| *bytes *= 2);
                by_hand.live_bytes(BASE + after)
            });
        }
    }
}
