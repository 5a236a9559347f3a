//! The interface of a policy: which column goes next, and which of its items stay.

use crate::ranking::Candidate;
use larder_allocation::{ColumnBounds, GroupStats, Subclass, WorthOptions};
use larder_item::KeyHash;
use larder_memory::ColumnId;
use larder_temperature::Reference;

/// Which items a column holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Queue {
    /// Items that clients stored.
    Probation,
    /// Items that a pass kept and moved.
    Main,
}

/// One live item of a column that goes.
#[derive(Clone, Copy, Debug)]
pub struct Judged {
    /// Hash of its key.
    pub hash: KeyHash,
    /// Warmth of its entry, 0..=3.
    pub warmth: u8,
    /// Bytes it would take in another column.
    pub bytes: u32,
    /// What a miss of it costs.
    pub subclass: Subclass,
}

/// What the pass does with a live item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Move it to the keeper's open column.
    Keep {
        /// The warmth that the moved item's entry starts with, 0..=3.
        warmth: u8,
    },
    /// Drop it or, with a flash tier, demote it.
    Evict,
}

/// An item that is in the cache.
#[derive(Clone, Copy, Debug)]
pub struct Resident {
    /// Hash of its key.
    pub hash: KeyHash,
    /// The column that holds it.
    pub column: ColumnId,
    /// The birth number of that column, which tells this use of the column from later ones.
    pub birth: u64,
}

/// Samples the items that are in the cache.
pub trait Residents {
    /// Appends about `count` random items to `found`, fewer if the cache holds few.
    fn sample(&mut self, count: usize, found: &mut Vec<Resident>);

    /// Appends the hashes of the items of a sealed column, if it has this birth number. Only policies whose bookkeeping
    /// is on a device ask.
    fn of_column(&mut self, _column: ColumnId, _birth: u64, _found: &mut Vec<KeyHash>) {}
}

/// Statistics of a policy.
#[derive(Clone, Debug, Default)]
pub struct TemperatureStats {
    /// A row of `stats temperature`, name and value, that says which processor does the policy's work, if that is a
    /// matter of choice.
    pub place: Option<(&'static str, String)>,
    /// Share of the columns that new items may fill, 0..=1.
    pub probation_share: f64,
    /// Sealed columns of new items.
    pub probation_columns: u64,
    /// Sealed columns of moved items.
    pub main_columns: u64,
    /// Bytes of ghost, warmth record and shadows.
    pub bytes: u64,
    /// References that the policy was told of.
    pub references: u64,
    /// Items that went on from the probation to the main queue.
    pub promoted: u64,
    /// Promoted items that nobody had read since they were stored, but that had been evicted shortly before.
    pub ghost_hits: u64,
    /// Items evicted from columns of the probation.
    pub evicted_probation: u64,
    /// Items evicted from columns of the main queue.
    pub evicted_main: u64,
    /// Agings of the warmth record that were begun.
    pub agings: u64,
    /// Victims that were chosen while the victim pool was empty.
    pub drained: u64,
    /// Batches of references that came to nothing because the device was late.
    pub late: u64,
    /// The groups that have or had items. Empty where the policy knows no groups.
    pub groups: Vec<GroupStats>,
}

impl TemperatureStats {
    /// Name, meaning and value of each figure that is counted from the start.
    pub fn counts(&self) -> [(&'static str, &'static str, u64); 8] {
        [
            ("references", "References to keys that the keeper has read.", self.references),
            (
                "promoted_from_probation",
                "Items that moved on from probation to the main columns.",
                self.promoted,
            ),
            ("ghost_hits", "Items promoted because they had been evicted lately.", self.ghost_hits),
            ("evicted_probation", "Items evicted at the end of their probation.", self.evicted_probation),
            ("evicted_main", "Items evicted from the main columns.", self.evicted_main),
            ("agings", "Agings of the hitmap that were begun.", self.agings),
            ("victims_drained", "Columns chosen for eviction while the victim pool was empty.", self.drained),
            (
                "batches_late",
                "Batches of references that were dropped because the device was late.",
                self.late,
            ),
        ]
    }
}

/// A policy: an order of columns, and a judgement of the items in them.
///
/// A policy knows the columns that were sealed, each by number and birth. The birth number tells this use of a column
/// from later ones. Columns may go without being the policy's choice; the policy learns of it when `status_of` answers
/// [`Candidate::Gone`].
pub trait Temperature: Send {
    /// A column was filled and sealed.
    fn sealed(&mut self, column: ColumnId, birth: u64, queue: Queue);

    /// The next column to reclaim. The policy forgets it. `status_of` answers whether a column may go. If the column
    /// cannot be emptied after all, the caller calls [`Temperature::sealed`] for it again.
    fn victim(&mut self, status_of: &mut dyn FnMut(ColumnId, u64) -> Candidate) -> Option<ColumnId>;

    /// There was no room for the items of a victim that stay: the column is to be the next victim again.
    fn put_back(&mut self, column: ColumnId, birth: u64, queue: Queue);

    /// Appends a verdict on each of `items`, the live items of a column that goes. The items that are kept are within
    /// `bounds`.
    fn judge(&mut self, queue: Queue, items: &[Judged], bounds: ColumnBounds, verdicts: &mut Vec<Verdict>);

    /// An item that was judged to be evicted stays all the same.
    fn spare(&mut self, _queue: Queue, _item: &Judged) {}

    /// Judges by `worth` from now on. Without an effect on a policy that knows neither sizes nor penalties.
    fn set_worth(&mut self, _worth: WorthOptions) {}

    /// A batch of references: hits and stores of keys whose digest is below [`Temperature::wanted_below`].
    fn refer(&mut self, references: &[Reference], residents: &mut dyn Residents);

    /// The policy wants references of keys whose digest is below this number. The number changes only during
    /// [`Temperature::fit`].
    fn wanted_below(&self) -> u32;

    /// The cache holds, or will hold when it is full, about `items` items. Sizes what the policy keeps about items.
    fn fit(&mut self, items: u64);

    /// Bytes of what the policy keeps about items, when it is fitted to `items`.
    fn bytes_for(&self, items: u64) -> u64;

    /// How many of the columns of new items, those that were opened last, are in their correlated reference period:
    /// reads of their items do not count yet.
    fn correlated_columns(&self) -> usize {
        0
    }

    /// How many columns the policy knows, including those that are gone without its knowing.
    fn columns(&self) -> usize;

    /// Forgets the columns of which `status_of` says that they are gone.
    fn forget_gone(&mut self, status_of: &mut dyn FnMut(ColumnId, u64) -> Candidate);

    /// Statistics.
    fn stats(&self) -> TemperatureStats;
}
