use crate::device::Device;
use larder_item::KeyHasher;

/// How a merge reads, selects and writes.
#[derive(Clone, Copy)]
pub(crate) struct Settings<'a> {
    /// The device that holds all segments.
    pub(crate) device: &'a dyn Device,
    /// The hash function of the keys.
    pub(crate) hasher: &'a KeyHasher,
    /// The identity of the device, for the heads of new segments.
    pub(crate) device_uuid: [u8; 16],
    /// The time now, unix seconds.
    pub(crate) now_unix_s: u32,
    /// An item that expires within this number of seconds is dropped as if it had expired.
    pub(crate) cutoff_s: u32,
    /// Share of the live items that the merge keeps, percent. Items that were read since they were written are kept
    /// in any case.
    pub(crate) keep_percent: u8,
    /// Whether an extent of this hash may lie dead on the device. While one does, a record that supersedes it must
    /// stay, or leave a tombstone. The merge asks for such records only.
    pub(crate) dead_extents: &'a dyn Fn(u64) -> bool,
    /// Whether a record of this hash in the segment of this sequence does not exist any more: its range of hashes was
    /// dropped after it was put. Nothing is left of it, not even a tombstone.
    pub(crate) dropped: &'a dyn Fn(u64, u64) -> bool,
    /// Whether the record of this key in the segment of this sequence was deleted by prefix. It is treated as one that
    /// has expired.
    pub(crate) deleted: &'a dyn Fn(&[u8], u64) -> bool,
    /// Pages that one read of a segment of the log takes.
    pub(crate) read_pages: u32,
    /// Pages that one read of a chunk of a generation, or of the address run, takes.
    pub(crate) chunk_read_pages: u32,
    /// Pages that one append writes.
    pub(crate) write_pages: usize,
}
