//! Size classes and penalty subclasses.

/// The smallest slot in bytes. In PAMA, section IV, the first class holds items of up to 64 bytes.
const SLOT_BYTES_MIN: u64 = 64;

/// Slot sizes are multiples of this many bytes, as in memcached.
const SLOT_ALIGN_BYTES: u64 = 8;

/// Upper ends of the penalty subclasses in microseconds: (0, 1 ms], (1, 10 ms], (10, 100 ms], (100 ms, 1 s], (1 s, 5
/// s] (PAMA, section IV).
pub(crate) const SUBCLASS_PENALTY_US_MAX: [u32; 5] = [1_000, 10_000, 100_000, 1_000_000, 5_000_000];

/// The penalty subclass of a miss that costs `penalty_us` microseconds. A cost above the last end belongs to the last
/// subclass.
#[inline]
pub(crate) fn subclass_of(penalty_us: u32) -> usize {
    SUBCLASS_PENALTY_US_MAX[..4].iter().filter(|&&end| penalty_us > end).count()
}

/// memcached's slab classes: slot sizes that grow by a factor, in slabs of one size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SlabClasses {
    slot_bytes: Vec<u64>,
    slab_bytes: u64,
}

impl SlabClasses {
    /// Classes with slots of 64, 64 * `factor`, ... bytes, rounded up to a multiple of 8, as long as a slot fits into
    /// a slab of `slab_bytes`. A last class with one slot per slab takes larger items up to the slab size. With
    /// `classes_max` there are at most that many classes, and items larger than the last slot are refused. PAMA's own
    /// classes have `factor` 2.
    ///
    /// # Errors
    /// A slab below 64 bytes or above 1 GiB, a factor outside 1.01 to 16, or no class.
    pub(crate) fn new(
        slab_bytes: u64,
        factor: f64,
        classes_max: Option<usize>,
    ) -> Result<SlabClasses, String> {
        if !(SLOT_BYTES_MIN..=1 << 30).contains(&slab_bytes) {
            return Err(format!("a slab has {SLOT_BYTES_MIN} bytes to 1 GiB, not {slab_bytes}"));
        }
        if !(1.01..=16.0).contains(&factor) {
            return Err(format!("the growth factor is from 1.01 to 16, not {factor}"));
        }
        if classes_max == Some(0) {
            return Err("at least one class is needed".to_owned());
        }
        let mut slot_bytes = Vec::new();
        let mut slot = SLOT_BYTES_MIN;
        while slot < slab_bytes {
            slot_bytes.push(slot);
            let grown = ((slot as f64 * factor) as u64).next_multiple_of(SLOT_ALIGN_BYTES);
            slot = grown.max(slot + SLOT_ALIGN_BYTES);
        }
        slot_bytes.push(slab_bytes);
        slot_bytes.truncate(classes_max.unwrap_or(usize::MAX));
        Ok(SlabClasses { slot_bytes, slab_bytes })
    }

    /// The class of an item of `bytes` bytes; `None` if the item is larger than the largest slot.
    #[inline]
    pub(crate) fn class_of(&self, bytes: u64) -> Option<usize> {
        let class = self.slot_bytes.partition_point(|&slot| slot < bytes);
        (class < self.slot_bytes.len()).then_some(class)
    }

    /// The number of classes.
    #[allow(clippy::len_without_is_empty)]
    pub(crate) fn len(&self) -> usize {
        self.slot_bytes.len()
    }

    /// The slot size of `class` in bytes, which is also the size of its largest item.
    pub(crate) fn slot_bytes(&self, class: usize) -> u64 {
        self.slot_bytes[class]
    }

    /// The number of slots of `class` in one slab.
    pub(crate) fn slots_per_slab(&self, class: usize) -> usize {
        (self.slab_bytes / self.slot_bytes[class]) as usize
    }

    /// The slab size in bytes.
    pub(crate) fn slab_bytes(&self) -> u64 {
        self.slab_bytes
    }
}
