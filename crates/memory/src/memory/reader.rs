//! Readers: which threads may look at item bytes, and for how long.

use super::Memory;
use super::guard::Guard;
use crate::epochs::Participant;

/// One thread's right to read. While online it holds back the reuse of columns retired after its last
/// [`Reader::quiesce`]; offline it holds back nothing. A thread announces a quiescent point between batches and
/// goes offline before it blocks.
pub struct Reader {
    memory: Memory,
    participant: Participant,
}

impl Memory {
    /// A new reader, online. One per thread.
    pub fn register(&self) -> Reader {
        Reader { memory: self.clone(), participant: self.inner.epochs.register() }
    }
}

impl Reader {
    /// The memory that is read.
    #[inline]
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Begins to read. Costs a comparison; guards are copies of a few pointers.
    ///
    /// # Panics
    /// If the reader is offline.
    ///
    /// What a guard showed cannot outlive the next quiescent point:
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

    /// Announces that this thread holds no location and no bytes from before. Costs a load, and a store if
    /// something was retired since.
    #[inline]
    pub fn quiesce(&mut self) {
        self.participant.quiesce(&self.memory.inner.epochs);
    }

    /// Announces that this thread holds nothing and will read nothing until [`Reader::online`].
    pub fn offline(&mut self) {
        self.participant.offline();
    }

    /// Comes back; does nothing if online already. Locations from before are worthless.
    pub fn online(&mut self) {
        self.participant.online(&self.memory.inner.epochs);
    }

    /// Whether the reader may pin.
    pub fn is_online(&self) -> bool {
        self.participant.is_online()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.memory.inner.epochs.unregister(&mut self.participant);
    }
}
