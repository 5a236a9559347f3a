//! Input that a connection keeps.

use super::buffers::Buffers;

/// Input of up to this many bytes gets exactly the memory that it needs, also a little beyond the limit of the buffers.
const EXACT_BYTES_MAX: usize = 128 * 1024;

/// Input that the service has not consumed, kept by the connection. It has no memory while it is empty. Its memory is
/// accounted.
#[derive(Debug, Default)]
pub(super) struct LeftOver {
    bytes: Vec<u8>,
    from: usize,
}

impl LeftOver {
    pub(super) fn capacity(&self) -> u64 {
        self.bytes.capacity() as u64
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[self.from..]
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.from..]
    }

    /// Adds `more`. While fewer than `wanted` bytes are there, the memory doubles up to that number. Otherwise short
    /// input gets the memory that it needs, and long input half as much again. `false` = the buffers' limit is reached,
    /// and nothing was added.
    #[must_use]
    pub(super) fn append(&mut self, more: &[u8], wanted: usize, buffers: &Buffers) -> bool {
        let needed = self.bytes().len() + more.len();
        let capacity = self.bytes.capacity();
        if self.bytes.len() + more.len() <= capacity {
            self.bytes.extend_from_slice(more);
            return true;
        }
        if self.from > 0 && needed <= capacity {
            self.bytes.drain(..self.from);
            self.from = 0;
            self.bytes.extend_from_slice(more);
            return true;
        }
        let target = match needed {
            _ if needed < wanted => needed.max(wanted.min(capacity * 2)),
            ..=EXACT_BYTES_MAX => needed,
            _ => needed + needed / 2,
        };
        // The old memory is freed in a moment, so only the difference is accounted.
        let more_bytes = (target - capacity) as u64;
        let fits = buffers.try_take(more_bytes)
            || (target <= EXACT_BYTES_MAX && wanted <= target && buffers.try_take_short(more_bytes));
        if !fits {
            return false;
        }
        let mut grown = Vec::with_capacity(target);
        if grown.capacity() > target {
            buffers.take((grown.capacity() - target) as u64);
        }
        grown.extend_from_slice(self.bytes());
        grown.extend_from_slice(more);
        (self.bytes, self.from) = (grown, 0);
        true
    }

    /// Drops the first `used` bytes. The memory is freed when nothing is left.
    pub(super) fn consume(&mut self, used: usize, buffers: &Buffers) {
        self.from += used;
        debug_assert!(self.from <= self.bytes.len());
        if self.from >= self.bytes.len() {
            self.clear(buffers);
        }
    }

    pub(super) fn clear(&mut self, buffers: &Buffers) {
        buffers.give(self.bytes.capacity() as u64);
        self.bytes = Vec::new();
        self.from = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_left_over_is_accounted_and_bounded() {
        let buffers = Buffers::new(4096);
        let mut left = LeftOver::default();
        assert!(left.append(b"get a", 0, &buffers));
        assert_eq!((left.bytes(), buffers.used_bytes()), (&b"get a"[..], 5));
        assert!(left.append(&[b'x'; 95], 100, &buffers));
        assert_eq!(buffers.used_bytes(), 100);
        left.consume(90, &buffers);
        assert!(left.append(&[b'y'; 90], 100, &buffers), "room at the front is found again");
        assert_eq!((left.bytes().len(), buffers.used_bytes()), (100, 100));
        assert!(!left.append(&[0; 4096], 5000, &buffers));
        assert_eq!((left.bytes().len(), buffers.used_bytes()), (100, 100));
        left.consume(100, &buffers);
        assert_eq!((left.bytes.capacity(), buffers.used_bytes()), (0, 0));
        assert!(left.append(&[0; 2000], 3900, &buffers));
        assert!(left.append(&[1; 1900], 3900, &buffers), "the memory it leaves is not in the way");
        let mut short = LeftOver::default();
        assert!(short.append(&[2; 1200], 0, &buffers), "others make room for it");
        assert!(!short.append(&[2; 100], 0, &buffers), "a quarter of the limit at most");
        short.clear(&buffers);
        assert_eq!((left.bytes().len(), buffers.used_bytes()), (3900, 3900));
    }

    #[test]
    fn a_left_over_grows_by_doubling_up_to_what_is_wanted() {
        let buffers = Buffers::new(u64::MAX);
        let mut left = LeftOver::default();
        let mut growths = 0;
        for _ in 0..1000 {
            let before = buffers.used_bytes();
            assert!(left.append(&[7; 1000], 1_000_000, &buffers));
            growths += usize::from(buffers.used_bytes() != before);
        }
        assert!(growths <= 11, "{growths}");
        assert_eq!(buffers.used_bytes(), 1_000_000);
    }
}
