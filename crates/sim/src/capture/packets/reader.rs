//! The bytes of a direction that are not read yet.

/// Bytes that wait for the rest of a line or word, and how many of those that follow do not matter.
#[derive(Default)]
pub(super) struct Reader {
    pub(super) buffer: Vec<u8>,
    /// Bytes that follow the buffer and are passed over, such as the rest of a value.
    skip: u64,
}

impl Reader {
    /// Takes bytes.
    pub(super) fn take(&mut self, octets: &[u8]) {
        let passed = self.skip.min(octets.len() as u64);
        self.skip -= passed;
        self.buffer.extend_from_slice(&octets[passed as usize..]);
    }

    /// Passes over bytes that were not captured. `false` = they matter.
    pub(super) fn hole(&mut self, bytes: u64) -> bool {
        let is_passed = self.buffer.is_empty() && bytes <= self.skip;
        self.skip -= if is_passed { bytes } else { 0 };
        is_passed
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.buffer.is_empty() && self.skip == 0
    }

    /// Passes over `bytes` from the place `at` of the buffer on. Returns the place behind those that are there.
    pub(super) fn pass(&mut self, at: usize, bytes: u64) -> usize {
        let here = bytes.min((self.buffer.len() - at) as u64);
        self.skip += bytes - here;
        at + here as usize
    }

    /// Forgets the bytes before the place `at` of the buffer.
    pub(super) fn forget(&mut self, at: usize) {
        self.buffer.drain(..at);
    }

    /// The line at the place `at` of the buffer, without its end, and the place behind it.
    pub(super) fn line(&self, at: usize) -> Option<(&[u8], usize)> {
        let rest = &self.buffer[at..];
        let end = rest.iter().position(|&octet| octet == b'\n')?;
        Some((rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]), at + end + 1))
    }
}
