//! What a policy keeps of reads itself, where the index entries do not say which items are warm.

use larder_temperature::{Digest, Reference};

/// How warm keys are, as far as references tell. It is made when the number of items is known. Before that every key is
/// cold.
pub trait WarmthRecord: Send {
    /// Makes the record for `items` items, or grows it.
    fn fit(&mut self, items: u64);

    /// Whether it was made.
    fn is_made(&self) -> bool;

    /// Takes note of a batch of references.
    fn note(&mut self, references: &[Reference]);

    /// Appends the level of each key, 0 = cold.
    fn levels(&mut self, digests: &[Digest], levels: &mut Vec<u8>);

    /// Lowers the level of the keys that stand in the next `bytes` bytes by one. Returns whether a round over the whole
    /// record begins with them.
    fn age(&mut self, bytes: u64) -> bool;

    /// Bytes of the record, grown for `items` items.
    fn bytes_for(&self, items: u64) -> u64;

    /// A row of `stats temperature`, name and value, that says which processor keeps the record.
    fn place(&self) -> Option<(&'static str, String)>;
}
