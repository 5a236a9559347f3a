//! When the live bytes of a column expire: a histogram with 32 buckets, in one cache line.
//!
//! ```text
//!  seconds after the column was opened, for lifetimes of up to 32 steps
//!    0    1    2        15   16        18        30        32            36          60
//!    |----|----|-- .. --|----|----|----|-- .. ---|----|----|------|------|--- .. ----|--------> late
//!      0    1              15     16        17        23      24     25       30         31
//! ```
//!
//! A bucket has expired when the last second that belongs to it has passed. So bytes are known to have expired a little
//! late, and never too early: what the histogram calls expired has expired. The last bucket takes everything that is
//! later than the others, and has expired when the latest expiry that was ever counted in it has passed.
//!
//! Counts change by place (the owner of the column), by death and by touch (any thread). A record is counted before its
//! location is published and taken off after its entry was removed, so a bucket never goes below zero. A reader adds
//! buckets up without a lock. It may miss what other threads are doing at this moment.

use crate::shim::{AtomicU16, AtomicU32, Ordering};
use larder_item::Expiry;

/// Buckets of a histogram. The last one has no fixed end.
pub(crate) const BUCKETS: usize = 32;
const LATE: usize = BUCKETS - 1;

/// Which lifetimes the histogram of a column distinguishes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lifetimes {
    /// Log2 of the seconds of the first bucket.
    step_log2: u8,
    /// Log2 of the number of buckets for each doubling of the lifetime.
    parts_log2: u8,
}

impl Lifetimes {
    /// Any lifetime: two buckets for each doubling, from 1 second to 18 hours. Bytes are known to have expired after
    /// at most one and a half times their lifetime.
    pub const ANY: Lifetimes = Lifetimes { step_log2: 0, parts_log2: 1 };

    /// Lifetimes of a quarter of `seconds_max` to `seconds_max`: eight buckets for each doubling. Bytes that were
    /// placed soon after the column was opened are known to have expired after at most 9/8 of their lifetime.
    pub const fn up_to(seconds_max: u32) -> Lifetimes {
        let log2 = match seconds_max {
            0 | 1 => 0,
            _ => (seconds_max - 1).ilog2() as u8 + 1,
        };
        Lifetimes { step_log2: log2.saturating_sub(5), parts_log2: 3 }
    }

    /// The bucket of what expires `after_s` seconds after the column was opened.
    #[inline]
    pub(crate) fn bucket(self, after_s: u32) -> usize {
        let (steps, parts) = (after_s >> self.step_log2, u32::from(self.parts_log2));
        if steps >> parts == 0 {
            return steps as usize;
        }
        let doublings = steps.ilog2() - parts;
        ((doublings << parts) + (steps >> doublings)).min(LATE as u32) as usize
    }

    pub(crate) fn to_u8(self) -> u8 {
        self.parts_log2 << 5 | self.step_log2
    }

    pub(crate) fn from_u8(byte: u8) -> Lifetimes {
        Lifetimes { step_log2: byte & 31, parts_log2: byte >> 5 }
    }
}

/// The histogram of one use of a column. It counts in units of a power of two of bytes, such that a bucket can hold
/// the whole column; see [`unit_log2`].
#[repr(align(64))]
pub(crate) struct Expiring {
    units: [AtomicU16; BUCKETS],
}

/// What the histogram must know of its column.
#[derive(Clone, Copy)]
pub(crate) struct Scale {
    /// Server time at which the column was opened, in seconds.
    pub(crate) opened_s: u32,
    pub(crate) lifetimes: Lifetimes,
    /// Log2 of the bytes of one unit.
    pub(crate) unit_log2: u8,
}

/// Log2 of the bytes of one unit in columns of `column_bytes`. Records have a multiple of 4 bytes, so up to columns of
/// 128 KiB the counts are exact. In larger columns up to 28 bytes of a record are not counted.
pub(crate) fn unit_log2(column_bytes: u32) -> u8 {
    (column_bytes.trailing_zeros() as u8).saturating_sub(15).max(2)
}

impl Expiring {
    /// Begins anew. The caller holds the column alone.
    pub(crate) fn clear(&self) {
        self.units.iter().for_each(|units| units.store(0, Ordering::Relaxed));
    }

    /// Counts `bytes` that expire at `expiry`. `latest_s` is the latest expiry in the last bucket.
    #[inline]
    pub(crate) fn add(&self, scale: Scale, latest_s: &AtomicU32, expiry: Expiry, bytes: u32) {
        if expiry == Expiry::NEVER {
            return;
        }
        let bucket = scale.bucket(expiry);
        if bucket == LATE {
            latest_s.fetch_max(expiry.seconds(), Ordering::Relaxed);
        }
        // Release pairs with the Acquire in `expired_bytes`: whoever sees these bytes in the last bucket sees that the
        // bucket ends no earlier than they do.
        self.units[bucket].fetch_add(scale.units(bytes), Ordering::Release);
    }

    /// Counts `bytes` that expire at `expiry` no longer.
    #[inline]
    pub(crate) fn remove(&self, scale: Scale, expiry: Expiry, bytes: u32) {
        if expiry != Expiry::NEVER {
            self.units[scale.bucket(expiry)].fetch_sub(scale.units(bytes), Ordering::Relaxed);
        }
    }

    /// Bytes in the buckets that have expired at `now_s`.
    pub(crate) fn expired_bytes(&self, scale: Scale, latest_s: &AtomicU32, now_s: u32) -> u32 {
        let Some(age_s) = now_s.checked_sub(scale.opened_s) else { return 0 };
        // What expires in the next second is in the first bucket that has not ended.
        let ended = scale.lifetimes.bucket(age_s.saturating_add(1));
        let in_ended = |units: &AtomicU16| u32::from(units.load(Ordering::Relaxed));
        let mut units: u32 = self.units[..ended].iter().map(in_ended).sum();
        if ended == LATE {
            let late = u32::from(self.units[LATE].load(Ordering::Acquire));
            if latest_s.load(Ordering::Relaxed) <= now_s {
                units += late;
            }
        }
        units << scale.unit_log2
    }
}

impl Scale {
    fn bucket(self, expiry: Expiry) -> usize {
        self.lifetimes.bucket(expiry.seconds().saturating_sub(self.opened_s))
    }

    fn units(self, bytes: u32) -> u16 {
        // At most 32768 for a whole column, so no sum wraps around.
        (bytes >> self.unit_log2) as u16
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The last second of each bucket but the last, found by looking at every second of a day and a half.
    fn ends_s(lifetimes: Lifetimes) -> Vec<u32> {
        let mut ends = vec![0];
        for after_s in 0..1 << 17 {
            match lifetimes.bucket(after_s) {
                bucket if bucket + 1 == ends.len() => *ends.last_mut().unwrap() = after_s,
                bucket => {
                    assert_eq!(bucket, ends.len(), "{lifetimes:?}: no bucket is left out");
                    ends.push(after_s);
                }
            }
        }
        assert_eq!(ends.len(), BUCKETS, "{lifetimes:?}");
        ends
    }

    #[test]
    #[cfg_attr(miri, ignore = "a hundred thousand seconds, each interpreted; arithmetic only")]
    fn buckets_are_as_fine_as_they_are_said_to_be() {
        for (lifetimes, parts, least_s, most_s) in [
            (Lifetimes::ANY, 2, 2, 48 << 10),
            (Lifetimes::up_to(1), 8, 8, 60),
            (Lifetimes::up_to(32), 8, 8, 60),
            (Lifetimes::up_to(33), 8, 16, 120),
            (Lifetimes::up_to(4096), 8, 1024, 7680),
        ] {
            let ends = ends_s(lifetimes);
            for after_s in least_s..most_s {
                let late_s = ends[lifetimes.bucket(after_s)] - after_s;
                assert!(
                    late_s * parts < after_s,
                    "{lifetimes:?}: what ends after {after_s} s is {late_s} s late"
                );
            }
            assert_eq!(lifetimes.bucket(most_s), LATE);
            assert_eq!(Lifetimes::from_u8(lifetimes.to_u8()), lifetimes);
        }
    }

    #[test]
    fn a_unit_is_exact_up_to_columns_of_128_kib() {
        for column_log2 in 15..=20 {
            let log2 = unit_log2(1 << column_log2);
            assert!((1u32 << column_log2) >> log2 <= 1 << 15 || log2 == 2);
            assert_eq!(log2 == 2, column_log2 <= 17);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 128,
            failure_persistence: None,
            ..Default::default()
        })]

        /// The histogram against a list of what was counted: it never says more than has expired, and says all that has
        /// expired by the ends of the buckets.
        #[test]
        #[cfg_attr(miri, ignore = "the ends of all buckets are found second by second, each interpreted")]
        fn what_it_calls_expired_has_expired_and_nothing_is_forgotten(
            lifetime_log2 in 0u32..12,
            is_any: bool,
            counted in prop::collection::vec((1u32..100_000, 1u32..200, any::<bool>()), 1..60),
            looks in prop::collection::vec(0u32..120_000, 1..20),
        ) {
            let lifetimes = if is_any { Lifetimes::ANY } else { Lifetimes::up_to(1 << lifetime_log2) };
            let scale = Scale { opened_s: 1000, lifetimes, unit_log2: 2 };
            let ends = ends_s(lifetimes);
            let (latest_s, expiring) = (AtomicU32::new(0), Expiring { units: Default::default() });
            let mut twin = Vec::new();
            let mut latest = 0;
            for (after_s, words, dies) in counted {
                let (expiry, bytes) = (Expiry::at_s(1000 + after_s), words * 4);
                expiring.add(scale, &latest_s, expiry, bytes);
                if lifetimes.bucket(after_s) == LATE {
                    latest = latest.max(after_s);
                }
                if dies {
                    expiring.remove(scale, expiry, bytes);
                } else {
                    twin.push((after_s, bytes));
                }
            }
            for age_s in looks {
                let said = expiring.expired_bytes(scale, &latest_s, 1000 + age_s);
                let has_expired = |end: &dyn Fn(u32) -> u32| -> u32 {
                    twin.iter().filter(|(after_s, _)| end(*after_s) <= age_s).map(|(_, bytes)| bytes).sum()
                };
                prop_assert!(said <= has_expired(&|after_s| after_s));
                let known = has_expired(&|after_s| match lifetimes.bucket(after_s) {
                    LATE => latest,
                    bucket => ends[bucket],
                });
                prop_assert_eq!(said, known, "at {} s of {:?}", age_s, lifetimes);
            }
            prop_assert_eq!(expiring.expired_bytes(scale, &latest_s, 999), 0, "before it was opened");
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    const SCALE: Scale = Scale { opened_s: 10, lifetimes: Lifetimes::up_to(1), unit_log2: 2 };

    struct Toy {
        expiring: Expiring,
        latest_s: AtomicU32,
        /// 1 = an entry leads to the record.
        entry: AtomicU32,
    }

    impl Toy {
        fn new() -> Arc<Toy> {
            let units = std::array::from_fn(|_| AtomicU16::new(0));
            let toy =
                Toy { expiring: Expiring { units }, latest_s: AtomicU32::new(0), entry: AtomicU32::new(0) };
            Arc::new(toy)
        }

        fn expired_bytes(&self, now_s: u32) -> u32 {
            self.expiring.expired_bytes(SCALE, &self.latest_s, now_s)
        }
    }

    #[test]
    fn loom_a_record_that_dies_while_others_are_placed_is_never_counted_below_zero() {
        loom::model(|| {
            let toy = Toy::new();
            let owner = thread::spawn({
                let toy = toy.clone();
                move || {
                    toy.expiring.add(SCALE, &toy.latest_s, Expiry::at_s(12), 40);
                    toy.entry.store(1, Ordering::Release);
                    toy.expiring.add(SCALE, &toy.latest_s, Expiry::at_s(12), 8);
                }
            });
            let remover = thread::spawn({
                let toy = toy.clone();
                move || {
                    if toy.entry.load(Ordering::Acquire) == 1 {
                        toy.expiring.remove(SCALE, Expiry::at_s(12), 40);
                    }
                }
            });
            assert!(toy.expired_bytes(12) <= 48);
            assert_eq!(toy.expired_bytes(11), 0);
            owner.join().unwrap();
            remover.join().unwrap();
            let rest = if toy.expired_bytes(12) == 8 { 8 } else { 48 };
            assert_eq!(toy.expired_bytes(12), rest);
        });
    }

    #[test]
    fn loom_late_bytes_are_not_seen_before_their_end_is() {
        loom::model(|| {
            let toy = Toy::new();
            toy.expiring.add(SCALE, &toy.latest_s, Expiry::at_s(500), 40);
            let owner = thread::spawn({
                let toy = toy.clone();
                move || toy.expiring.add(SCALE, &toy.latest_s, Expiry::at_s(900), 8)
            });
            assert!([40, 0].contains(&toy.expired_bytes(600)), "the later record has not expired");
            owner.join().unwrap();
            assert_eq!(toy.expired_bytes(600), 0);
            assert_eq!(toy.expired_bytes(900), 48);
        });
    }
}
