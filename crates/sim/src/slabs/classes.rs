//! Size classes and penalty subclasses.

/// The smallest slot, in octets (PAMA, section IV: the first class holds items of 64 octets or smaller).
const SLOT_BYTES_MIN: u64 = 64;

/// Slots are whole multiples of this many octets, as in memcached.
const SLOT_ALIGN_BYTES: u64 = 8;

/// The upper ends of the penalty subclasses, in microseconds: (0, 1 ms], (1, 10], (10, 100], (100, 1000], (1
/// s, 5 s] (PAMA, section IV).
pub const SUBCLASS_PENALTY_US_MAX: [u32; 5] = [1_000, 10_000, 100_000, 1_000_000, 5_000_000];

/// The penalty subclass of a miss that costs `penalty_us` microseconds. What is above the last end is in the
/// last one.
#[inline]
pub fn subclass_of(penalty_us: u32) -> usize {
    SUBCLASS_PENALTY_US_MAX[..4].iter().filter(|&&end| penalty_us > end).count()
}

/// memcached's slab classes: slots that grow by a factor, in slabs of one size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlabClasses {
    slot_bytes: Vec<u64>,
    slab_bytes: u64,
}

impl SlabClasses {
    /// Classes of 64, 64 * `factor`, ... octets, rounded up to 8, as long as a slot fits into a slab of
    /// `slab_bytes`. A last class of one slot per slab takes what is left up to the slab's size. With
    /// `classes_max` there are at most that many, and items above the last one's slot are refused. PAMA's own
    /// classes: `factor` 2.
    ///
    /// # Errors
    /// A slab below 64 octets or above 1 GiB, a factor outside 1.01 to 16, no class at all.
    pub fn new(slab_bytes: u64, factor: f64, classes_max: Option<usize>) -> Result<SlabClasses, String> {
        if !(SLOT_BYTES_MIN..=1 << 30).contains(&slab_bytes) {
            return Err(format!("a slab has {SLOT_BYTES_MIN} octets to 1 GiB, not {slab_bytes}"));
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

    /// The class of an item of `bytes` octets; `None` if it is larger than the largest slot.
    #[inline]
    pub fn class_of(&self, bytes: u64) -> Option<usize> {
        let class = self.slot_bytes.partition_point(|&slot| slot < bytes);
        (class < self.slot_bytes.len()).then_some(class)
    }

    /// How many classes there are.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.slot_bytes.len()
    }

    /// The size of a slot of `class`, in octets: the largest item that it holds.
    pub fn slot_bytes(&self, class: usize) -> u64 {
        self.slot_bytes[class]
    }

    /// How many slots of `class` one slab has.
    pub fn slots_per_slab(&self, class: usize) -> usize {
        (self.slab_bytes / self.slot_bytes[class]) as usize
    }

    /// The size of a slab, in octets.
    pub fn slab_bytes(&self) -> u64 {
        self.slab_bytes
    }
}
