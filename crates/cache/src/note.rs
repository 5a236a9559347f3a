//! What the owner of a cache notes beside the items, so that whoever opens them again finds it: in the file of a kept
//! memory, or on flash. A note is forgotten with the items that it was beside.

use crate::cache::Cache;
use larder_memory::NOTE_BYTES_MAX;

impl Cache {
    /// What is noted beside the items. Empty where nothing is, or where no item outlasts a process.
    pub fn note(&self) -> Vec<u8> {
        match (self.store.memory.head(), &self.demoter) {
            (Some(head), _) => head.note(),
            (None, Some(demoter)) => demoter.note().get(),
            (None, None) => Vec::new(),
        }
    }

    /// Notes something, up to 256 bytes, if items outlast the process. Durable when this returns: it waits for the
    /// device. One thread at a time notes.
    pub fn set_note(&self, note: &[u8]) {
        assert!(note.len() <= NOTE_BYTES_MAX, "a note of {} bytes", note.len());
        match (self.store.memory.head(), &self.demoter) {
            (Some(head), _) => head.set_note(note),
            (None, Some(demoter)) => demoter.note().set(note),
            (None, None) => {}
        }
    }
}
