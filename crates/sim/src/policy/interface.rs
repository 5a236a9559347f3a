//! What a policy is asked and what it answers.

/// One request as a policy sees it.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// Dense number of the key: 0, 1, 2 ... in the order of first appearance.
    pub id: u32,
    /// What the item is charged for: 1 where items are counted, else octets. It may change from access to
    /// access.
    pub size: u32,
    /// Seconds since the trace began.
    pub time_s: u32,
    /// What a miss costs, in microseconds.
    pub penalty_us: u32,
    /// Ordinal of the next access to the key, `u64::MAX` = never; only where [`Policy::needs_next`] is true.
    pub next: u64,
}

/// A cache of bounded capacity that decides who leaves.
///
/// Capacity is in the unit of [`Access::size`]. An item larger than the capacity is never kept.
pub trait Policy: Send {
    /// Looks an item up; a miss puts it in, evicting as needed. Returns whether it was there.
    fn access(&mut self, access: &Access) -> bool;

    /// Whether the item is there; changes nothing.
    fn contains(&self, id: u32) -> bool;

    /// Removes an item (a delete, an expiry). Nothing happens if it is not there.
    fn remove(&mut self, id: u32);

    /// The sum of sizes of what is there; never above the capacity.
    fn used(&self) -> u64;

    /// How many items are there.
    fn items(&self) -> u64;

    /// Bits of bookkeeping per resident item that an implementation in a server needs, ghosts included, as
    /// its paper counts them; the index and the item are not counted.
    fn metadata_bits(&self) -> f64;

    /// Whether [`Access::next`] must be filled in (Belady).
    fn needs_next(&self) -> bool {
        false
    }
}

/// Two pointers of a list.
pub(super) const LINKS_BITS: f64 = 128.0;

/// A key that is remembered by its digest.
pub(super) const GHOST_KEY_BITS: f64 = 64.0;

/// The warmth that the product keeps in the index entry of an item.
pub(super) const WARMTH_BITS: f64 = 2.0;
