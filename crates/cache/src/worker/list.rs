//! Walking over all items, a bucket at a time, for dumps and size statistics.

use super::Worker;
use crate::item_store::Life;
use larder_item::{Location, State};

/// Buckets looked at in one call, however few items they hold.
const BUCKETS_AT_ONCE: usize = 4096;

/// What a dump tells of one item.
#[derive(Clone, Debug)]
pub struct Listed {
    /// The key.
    pub key: Vec<u8>,
    /// Whether it was sent in base64.
    pub binary_key: bool,
    /// Expiry as unix time in seconds; -1 = never.
    pub expires_unix_s: i64,
    /// Last access as unix time in seconds.
    pub accessed_unix_s: i64,
    /// CAS number.
    pub cas: u64,
    /// Whether it was ever read.
    pub fetched: bool,
    /// Bytes it takes, chunks included.
    pub bytes: u64,
    /// Length of its value, bytes.
    pub value_bytes: u32,
    /// Client flags.
    pub flags: u32,
}

impl Worker {
    /// Lists the live items of the buckets from `bucket` on, at least `least` of them if some thousand buckets hold as many, and returns
    /// the bucket to go on from; `None` at the end. Items stored meanwhile may be listed or not, items of a bucket that is split meanwhile twice.
    pub fn list(&mut self, mut bucket: u64, least: usize, out: &mut Vec<Listed>) -> Option<u64> {
        let wanted = out.len() + least;
        let mut looked = 0;
        let mut locations: Vec<Location> = Vec::new();
        loop {
            let next = self.cache.store.index.walk(bucket, &mut |entry| locations.push(entry.location));
            {
                let guard = self.reader.pin();
                for &at in &locations {
                    let item = guard.item(at);
                    if self.life(at, &item) != Life::Live {
                        continue;
                    }
                    let clock = &self.cache.store.clock;
                    let now_s = clock.now_s();
                    out.push(Listed {
                        key: item.key().to_vec(),
                        binary_key: item.state().has(State::BINARY_KEY),
                        expires_unix_s: if item.expiry().0 == 0 { -1 } else { clock.unix_s(item.expiry().0) },
                        accessed_unix_s: clock.unix_s(now_s.saturating_sub(item.state().idle_s(now_s))),
                        cas: item.cas(),
                        fetched: item.state().has(State::FETCHED),
                        bytes: self.cache.store.bytes_of(&guard, at),
                        value_bytes: item.value_bytes(),
                        flags: item.flags(),
                    });
                }
            }
            locations.clear();
            bucket = next?;
            looked += 1;
            if out.len() >= wanted || looked >= BUCKETS_AT_ONCE {
                return Some(bucket);
            }
        }
    }
}
