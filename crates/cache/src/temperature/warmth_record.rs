//! What a policy keeps of reads itself, where the index entries do not say which items are warm.

use super::policy::Residents;
use larder_item::KeyHash;
use larder_memory::ColumnId;
use larder_temperature::{Digest, Reference};

/// The level of a key that a record apart does not know yet.
pub(super) const UNKNOWN_LEVEL: u8 = u8::MAX;
/// How many of the next columns of a queue are asked for with a batch of references.
pub(super) const COLUMNS_AHEAD: usize = 8;

/// How warm keys are, as far as references tell. It is made when the number of items is known. Before that every key is
/// cold.
pub trait WarmthRecord: Send {
    /// Makes the record for `items` items, or grows it.
    fn fit(&mut self, items: u64);

    /// Whether it was made.
    fn is_made(&self) -> bool;

    /// Takes note of a batch of references.
    fn note(&mut self, references: &[Reference]);

    /// Whether [`WarmthRecord::levels`] knows the items of the column with this birth number only if it is asked ahead.
    /// That is so where another processor keeps the record, which is not waited for.
    fn wants_ahead(&self, birth: u64) -> bool;

    /// Asks for the levels of the items of a column that will go soon. They are known a batch of references later.
    fn ask_ahead(&mut self, birth: u64, hashes: &[KeyHash]);

    /// Appends the level of each key, 0 = cold. A record apart has [`UNKNOWN_LEVEL`] for a key that it was not asked
    /// for, or has not answered yet.
    fn levels(&mut self, digests: &[Digest], levels: &mut Vec<u8>);

    /// Lowers the level of the keys that stand in the next `bytes` bytes by one. Returns whether a round over the whole
    /// record begins with them.
    fn age(&mut self, bytes: u64) -> bool;

    /// Bytes of the record, grown for `items` items.
    fn bytes_for(&self, items: u64) -> u64;

    /// Batches that came to nothing because the other processor was late.
    fn late(&self) -> u64;

    /// A row of `stats temperature`, name and value, that says which processor keeps the record.
    fn place(&self) -> Option<(&'static str, String)>;
}

/// Asks ahead for the items of the columns that go next, if the record wants that.
pub(super) fn look_ahead(
    record: &mut dyn WarmthRecord,
    next: impl Iterator<Item = (ColumnId, u64)>,
    residents: &mut dyn Residents,
) {
    for (column, birth) in next {
        if record.wants_ahead(birth) {
            let mut hashes = Vec::new();
            residents.of_column(column, birth, &mut hashes);
            record.ask_ahead(birth, &hashes);
        }
    }
}
