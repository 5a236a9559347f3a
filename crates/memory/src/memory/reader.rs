//! Readers: which threads may read item bytes, and for how long.

use super::Memory;
use super::guard::Guard;
use crate::epochs::Participant;

/// One thread's right to read. While a reader is online, it holds back the reuse of columns retired after its last
/// [`Reader::quiesce`]. While it is offline, it holds nothing back. A thread announces a quiescent point between
/// batches and goes offline before it blocks.
pub struct Reader {
    memory: Memory,
    participant: Participant,
}

impl Memory {
    /// A new reader, online. Each thread has its own.
    pub fn register(&self) -> Reader {
        Reader { memory: self.clone(), participant: self.inner.epochs.register() }
    }
}

impl Reader {
    /// The memory that the reader reads.
    #[inline]
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Begins to read. It costs a comparison and the copy of a few pointers.
    ///
    /// # Panics
    /// If the reader is offline.
    ///
    /// Bytes from a guard cannot be used after the next quiescent point:
    /// ```compile_fail,E0502
    /// # let memory = larder_memory::Memory::new(Default::default()).unwrap();
    /// # let at = larder_item::Location::from_offset(0);
    /// let mut reader = memory.register();
    /// let key = reader.pin().item(at).key();
    /// reader.quiesce();
    /// assert!(key.is_empty());
    /// ```
    #[inline]
    pub fn pin(&self) -> Guard<'_> {
        assert!(self.participant.is_online(), "an offline reader has nothing to read");
        Guard::new(&self.memory)
    }

    /// Announces that this thread holds no location and no bytes from before the call. It costs a load, and a store
    /// if something was retired since the last announcement.
    #[inline]
    pub fn quiesce(&mut self) {
        self.participant.quiesce(&self.memory.inner.epochs);
    }

    /// Announces that this thread holds nothing and will read nothing until [`Reader::online`].
    pub fn offline(&mut self) {
        self.participant.offline();
    }

    /// Brings the reader back online. Does nothing if it is online already. Locations from before are no longer
    /// valid.
    pub fn online(&mut self) {
        self.participant.online(&self.memory.inner.epochs);
    }

    /// Whether the reader is online, as [`Reader::pin`] requires.
    pub fn is_online(&self) -> bool {
        self.participant.is_online()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.memory.inner.epochs.unregister(&mut self.participant);
    }
}
