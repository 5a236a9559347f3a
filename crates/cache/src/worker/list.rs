//! A walk over all items, bucket by bucket, for dumps and size statistics.

use super::Worker;
use super::read::Hit;
use crate::item_store::Life;
use larder_item::{Expiry, Location, State};

/// The most buckets that one call looks at, however few items they hold.
const BUCKETS_AT_ONCE: usize = 4096;

/// One item, as a dump shows it.
#[derive(Clone, Debug)]
pub struct Listed {
    /// The key.
    pub key: Vec<u8>,
    /// Whether the key was sent in base64.
    pub binary_key: bool,
    /// Expiry as unix time in seconds; -1 = never.
    pub expires_unix_s: i64,
    /// Last access as unix time in seconds.
    pub accessed_unix_s: i64,
    /// CAS number.
    pub cas: u64,
    /// Whether the item was ever read.
    pub fetched: bool,
    /// Bytes that the item takes, its chunks included.
    pub bytes: u64,
    /// Length of its value, bytes.
    pub value_bytes: u32,
    /// Client flags.
    pub flags: u32,
}

/// How far a walk over all items has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Walk {
    /// The bucket to go on from; `None` at the end.
    pub next: Option<u64>,
    /// How many buckets were looked at.
    pub buckets: usize,
}

impl Worker {
    /// Appends the live items of the buckets from `bucket` on to `out`, at least `least` of them if a few thousand
    /// buckets hold as many. Returns the bucket to go on from; `None` at the end. An item that is stored during the
    /// walk may be listed or not. An item whose bucket is split during the walk may be listed twice.
    pub fn list(&mut self, bucket: u64, least: usize, out: &mut Vec<Listed>) -> Option<u64> {
        let wanted = out.len() + least;
        let store = &self.cache.store;
        let walk = self.walk(bucket, BUCKETS_AT_ONCE, &mut |worker, hit| {
            let (clock, item, now_s) = (&store.clock, &hit.item, store.clock.now_s());
            out.push(Listed {
                key: item.key().to_vec(),
                binary_key: item.state().has(State::BINARY_KEY),
                expires_unix_s: match item.expiry() {
                    Expiry::NEVER => -1,
                    expiry => clock.unix_s(expiry.seconds()),
                },
                accessed_unix_s: clock.unix_s(now_s.saturating_sub(item.state().idle_s(now_s))),
                cas: item.cas(),
                fetched: item.state().has(State::FETCHED),
                bytes: worker.bytes_of(hit),
                value_bytes: item.value_bytes(),
                flags: item.flags(),
            });
            out.len() < wanted
        });
        walk.next
    }

    /// Shows the live items of the buckets from `bucket` on to `show`, bucket by bucket, until it returns `false` for
    /// one of a bucket or `buckets_max` buckets were looked at. What is said of [`Worker::list`] holds here too: an
    /// item that is there from the beginning to the end of a walk in several calls is shown at least once.
    pub fn walk(
        &self,
        mut bucket: u64,
        buckets_max: usize,
        show: &mut dyn FnMut(&Worker, &Hit<'_>) -> bool,
    ) -> Walk {
        let mut buckets = 0;
        let mut locations: Vec<Location> = Vec::new();
        loop {
            let next = self.cache.store.index.walk(bucket, &mut |entry| locations.push(entry.location));
            let mut goes_on = true;
            let guard = self.reader.pin();
            for at in locations.drain(..) {
                let item = guard.item(at);
                if self.life(at, &item) == Life::Live {
                    goes_on &= show(self, &Hit { at, item });
                }
            }
            let Some(next) = next else { return Walk { next: None, buckets } };
            (bucket, buckets) = (next, buckets + 1);
            if !goes_on || buckets >= buckets_max {
                return Walk { next: Some(bucket), buckets };
            }
        }
    }
}
