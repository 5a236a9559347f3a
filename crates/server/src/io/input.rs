//! A connection's input that is not served yet.

use super::buffers::Buffers;
use super::left_over::LeftOver;

/// Where a driver receives to.
pub(super) trait ReceiveMemory {
    /// Received bytes that lie in the driver's memory. The owner of the value owns the bytes.
    type Filled;

    fn bytes<'a>(&'a self, filled: &'a Self::Filled) -> &'a [u8];
    fn bytes_mut<'a>(&'a mut self, filled: &'a mut Self::Filled) -> &'a mut [u8];
    fn give_back(&mut self, filled: Self::Filled);
}

/// Whether the service is to look at the input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Attention {
    /// Not before more bytes come.
    None,
    /// The service may do more with what is kept than the last time.
    Due,
    /// Not before the service wants input again: its output was full, so what is kept may have complete requests.
    Stalled,
}

/// New bytes in the memory of the driver `M`, or kept bytes.
pub(super) struct Input<M: ReceiveMemory> {
    /// New bytes. Only while nothing is kept, and the connection is not encrypted.
    direct: Option<M::Filled>,
    /// Bytes that the connection keeps.
    pub(super) kept: LeftOver,
    pub(super) attention: Attention,
}

impl<M: ReceiveMemory> Input<M> {
    pub(super) fn new(kept: LeftOver) -> Input<M> {
        let attention = if kept.bytes().is_empty() { Attention::None } else { Attention::Due };
        Input { direct: None, kept, attention }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.direct.is_none() && self.kept.bytes().is_empty()
    }

    pub(super) fn is_stalled(&self) -> bool {
        self.attention == Attention::Stalled
    }

    /// Bytes arrived. They stay in the driver's memory, if nothing is in front of them; otherwise they come back.
    pub(super) fn take_directly(&mut self, filled: M::Filled) -> Option<M::Filled> {
        if self.is_empty() && !self.is_stalled() {
            self.direct = Some(filled);
            return None;
        }
        Some(filled)
    }

    /// Keeps new bytes, behind those that wait. `false` = they do not fit the buffers' limit.
    #[must_use]
    pub(super) fn keep(
        &mut self,
        filled: M::Filled,
        wanted: usize,
        memory: &mut M,
        buffers: &Buffers,
    ) -> bool {
        let mut fits = true;
        for filled in self.direct.take().into_iter().chain([filled]) {
            fits = fits && self.kept.append(memory.bytes(&filled), wanted, buffers);
            memory.give_back(filled);
        }
        fits
    }

    /// The service looks at the input now. Returns whether there is a reason to.
    pub(super) fn begin_turn(&mut self) -> bool {
        let is_due = self.direct.is_some() || self.attention == Attention::Due;
        if is_due {
            self.attention = Attention::None;
        }
        is_due
    }

    /// All of it.
    pub(super) fn bytes<'a>(&'a self, memory: &'a M) -> &'a [u8] {
        self.direct.as_ref().map_or_else(|| self.kept.bytes(), |filled| memory.bytes(filled))
    }

    /// The new bytes, which the caller gives back.
    pub(super) fn take_direct(&mut self) -> Option<M::Filled> {
        self.direct.take()
    }

    /// Nobody needs the input any more.
    pub(super) fn clear(&mut self, memory: &mut M, buffers: &Buffers) {
        self.kept.clear(buffers);
        if let Some(filled) = self.direct.take() {
            memory.give_back(filled);
        }
    }
}
