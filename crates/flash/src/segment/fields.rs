//! Reading numbers from the bytes of a head or a foot.

/// Reads little-endian fields off the front of a slice; `None` where the slice is too short.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    /// The next `N` bytes.
    pub(super) fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    /// The next 4 bytes as a number.
    pub(super) fn word(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    /// The next 8 bytes as a number.
    pub(super) fn long(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    /// A piece that begins with its length, 4 bytes.
    pub(super) fn piece(&mut self) -> Option<&'a [u8]> {
        let length = self.word()? as usize;
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }
}
