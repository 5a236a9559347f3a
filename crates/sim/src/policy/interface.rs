//! The interface of an eviction policy: the access that a policy sees, and the trait [`Policy`].

/// One access, as a policy sees it.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// Number of the key. Keys are numbered 0, 1, 2 ... in the order of their first appearance.
    pub id: u32,
    /// Size of the item in the unit of the capacity: 1 where a cache is measured in items, else bytes. The size of an
    /// item may change from access to access.
    pub size: u32,
    /// Time in seconds since the start of the trace.
    pub time_s: u32,
    /// Cost of a miss in microseconds.
    pub penalty_us: u32,
    /// Ordinal of the next access to this key; `u64::MAX` = no further access. Valid only where
    /// [`Policy::needs_next`] returns true.
    pub next: u64,
}

/// A cache of limited capacity with its eviction rule.
///
/// The capacity is in the unit of [`Access::size`]. An item larger than the capacity is never stored.
pub trait Policy: Send {
    /// Looks an item up. A miss stores the item and evicts others as needed. Returns whether the access was a hit.
    fn access(&mut self, access: &Access) -> bool;

    /// Whether the item is stored. Changes nothing.
    fn contains(&self, id: u32) -> bool;

    /// Removes an item that was deleted or has expired. Does nothing if the item is not stored.
    fn remove(&mut self, id: u32);

    /// The sum of the sizes of the stored items; never above the capacity.
    fn used(&self) -> u64;

    /// The number of stored items.
    fn items(&self) -> u64;

    /// Bits of bookkeeping per stored item in a server that implements this policy, as the policy's paper counts
    /// them. Ghost entries count; the index and the item itself do not.
    fn metadata_bits(&self) -> f64;

    /// Whether the caller must fill in [`Access::next`]. Only Belady's policy needs it.
    fn needs_next(&self) -> bool {
        false
    }
}

/// Bits of the two pointers of a doubly linked list.
pub(super) const LINKS_BITS: f64 = 128.0;

/// Bits of the digest that stands for the key of a ghost entry.
pub(super) const GHOST_KEY_BITS: f64 = 64.0;

/// Bits of the access counter that Larder keeps in each index entry.
pub(super) const WARMTH_BITS: f64 = 2.0;
