//! A walk over all items, bucket by bucket, for dumps and size statistics.

use super::Worker;
use super::read::Hit;
use super::tour::{Seen, Tour, Toured};
use crate::item_store::Life;
use larder_flash::Listed as OnFlash;
use larder_item::{Expiry, Location, State};
use std::time::Duration;

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
    /// The cursor to go on from; `None` at the end.
    pub next: Option<u64>,
    /// How many buckets were looked at.
    pub buckets: usize,
}

impl Worker {
    /// Appends the next live items of a tour to `out`, at least `least` of them if a few thousand buckets hold as many.
    /// It waits so long for flash.
    pub fn list(&self, tour: &mut Tour, least: usize, wait: Duration, out: &mut Vec<Listed>) -> Toured {
        let wanted = out.len() + least;
        self.tour(tour, (BUCKETS_AT_ONCE, least), wait, &mut |seen| {
            out.push(match seen {
                Seen::InMemory(worker, hit) => worker.listed(hit),
                Seen::OnFlash(item) => self.listed_on_flash(item),
            });
            out.len() < wanted
        })
    }

    fn listed(&self, hit: &Hit<'_>) -> Listed {
        let clock = &self.cache.store.clock;
        let (item, now_s) = (&hit.item, clock.now_s());
        Listed {
            key: item.key().to_vec(),
            binary_key: item.state().has(State::BINARY_KEY),
            expires_unix_s: match item.expiry() {
                Expiry::NEVER => -1,
                expiry => clock.unix_s(expiry.seconds()),
            },
            accessed_unix_s: clock.unix_s(now_s.saturating_sub(item.state().idle_s(now_s))),
            cas: item.cas(),
            fetched: item.state().has(State::FETCHED),
            bytes: self.bytes_of(hit),
            value_bytes: item.value_bytes(),
            flags: item.flags(),
        }
    }

    /// Flash does not know when an item was last used: that is told of as the time of the start.
    fn listed_on_flash(&self, item: &OnFlash) -> Listed {
        let state = item.state.state();
        Listed {
            key: item.key.clone(),
            binary_key: state.has(State::BINARY_KEY),
            expires_unix_s: if item.expires_unix_s == 0 { -1 } else { item.expires_unix_s.into() },
            accessed_unix_s: self.cache.store.clock.started_unix_s(),
            cas: item.cas,
            fetched: state.has(State::FETCHED),
            bytes: item.bytes,
            value_bytes: u32::try_from(item.value_bytes).unwrap_or(u32::MAX),
            flags: item.flags,
        }
    }

    /// Shows the live items of the buckets from a cursor on to `show`, bucket by bucket, until it returns `false` for
    /// one of a bucket or `buckets_max` buckets were looked at. A cursor is below `1 << CURSOR_BITS`, and a walk begins
    /// at 0. An item that is there from the beginning to the end of a walk in several calls is shown once, however the
    /// index grows and shrinks meanwhile. One that is stored or deleted meanwhile may be shown or not.
    pub fn walk(
        &self,
        mut cursor: u64,
        buckets_max: usize,
        show: &mut dyn FnMut(&Worker, &Hit<'_>) -> bool,
    ) -> Walk {
        let mut buckets = 0;
        let mut locations: Vec<Location> = Vec::new();
        loop {
            let store = &self.cache.store;
            let walked = store.index.walk(cursor, &mut |entry| locations.push(entry.location));
            let mut goes_on = true;
            let guard = self.reader.pin();
            for at in locations.drain(..) {
                let item = guard.item(at);
                let was_shown =
                    walked.has_repeats && store.index.is_before(store.hasher.hash(item.key()), cursor);
                if !was_shown && self.life(at, &item) == Life::Live {
                    goes_on &= show(self, &Hit { at, item });
                }
            }
            let Some(next) = walked.next else { return Walk { next: None, buckets } };
            (cursor, buckets) = (next, buckets + 1);
            if !goes_on || buckets >= buckets_max {
                return Walk { next: Some(cursor), buckets };
            }
        }
    }
}
