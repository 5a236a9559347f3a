//! A copy of the entries of one bucket.

use crate::bucket::BUCKET_ENTRIES_MAX;
use crate::entry::warmth_of;

/// The entries of a bucket, its sub-buckets included, as they were read one after the other.
pub(crate) struct Snapshot {
    pub(crate) header: u64,
    len: usize,
    words: [u64; BUCKET_ENTRIES_MAX],
}

impl Snapshot {
    pub(crate) fn empty(header: u64) -> Snapshot {
        Snapshot { header, len: 0, words: [0; BUCKET_ENTRIES_MAX] }
    }

    #[inline]
    pub(crate) fn push(&mut self, word: u64) {
        if word != 0 {
            self.words[self.len] = word;
            self.len += 1;
        }
    }

    pub(crate) fn sort_warmest_first(&mut self) {
        self.words[..self.len].sort_unstable_by_key(|word| std::cmp::Reverse(warmth_of(*word)));
    }

    pub(crate) fn words(&self) -> &[u64] {
        &self.words[..self.len]
    }
}
