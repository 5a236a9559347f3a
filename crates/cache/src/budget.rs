//! `-m` is a hard promise: everything the server keeps is inside it.
//!
//! ```text
//! limit = columns + index + connection buffers (their cap) + bookkeeping + temperature
//! ```
//!
//! The columns get what the others leave. As the index grows, the columns' share shrinks by whole slabs, and
//! the keeper empties slabs to give back; when the index has had its share it stops growing instead.

/// The fixed part of what the process holds beside the budget: code, stacks, allocator, logs. It is what the
/// promise "-m plus 5 % plus 16 MiB" leaves room for.
const BUFFERS_SHARE: u64 = 16;
const BUFFERS_MIN_BYTES: u64 = 4 << 20;
const BUFFERS_MAX_BYTES: u64 = 256 << 20;
/// The index may take at most this share of the limit: items smaller than about 40 bytes reach it.
const INDEX_SHARE: u64 = 3;

/// How the limit is shared out, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// `-m`.
    pub limit_bytes: u64,
    /// Most that connection buffers of all workers may hold.
    pub buffers_bytes: u64,
    /// Bookkeeping that grows with the number of columns, pages of references, and what admission to flash remembers.
    pub bookkeeping_bytes: u64,
}

impl Budget {
    /// Shares out `limit_bytes`, with `column_meta_bytes` of bookkeeping for each column of `column_bytes`.
    pub fn new(limit_bytes: u64, column_bytes: u64, column_meta_bytes: u64) -> Budget {
        Budget {
            limit_bytes,
            buffers_bytes: (limit_bytes / BUFFERS_SHARE).clamp(BUFFERS_MIN_BYTES, BUFFERS_MAX_BYTES),
            bookkeeping_bytes: limit_bytes / column_bytes * column_meta_bytes,
        }
    }

    /// Gives connection buffers at least `bytes`, but no more than a quarter of all.
    pub fn with_buffers(self, bytes: u64) -> Budget {
        let most = (self.limit_bytes / 4).max(self.buffers_bytes);
        Budget { buffers_bytes: self.buffers_bytes.max(bytes).min(most), ..self }
    }

    /// Sets `bytes` more aside, for pages of references and the like.
    pub fn with_pages(self, bytes: u64) -> Budget {
        Budget { bookkeeping_bytes: self.bookkeeping_bytes + bytes, ..self }
    }

    /// What is left for columns beside an index of `index_bytes`.
    pub fn columns_bytes(&self, index_bytes: u64) -> u64 {
        self.limit_bytes.saturating_sub(self.buffers_bytes + self.bookkeeping_bytes + index_bytes)
    }

    /// The most the index may take.
    pub fn index_bytes_max(&self) -> u64 {
        self.limit_bytes / INDEX_SHARE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_never_exceed_the_limit() {
        for limit_mib in [16u64, 64, 1024, 100_000] {
            let limit = limit_mib << 20;
            let budget = Budget::new(limit, 65536, 128);
            for index in [0, limit / 100, limit / 4] {
                let sum =
                    budget.columns_bytes(index) + index + budget.buffers_bytes + budget.bookkeeping_bytes;
                assert!(sum <= limit, "{limit_mib} MiB: {sum} > {limit}");
                assert!(budget.columns_bytes(index) > 0);
            }
        }
    }
}
