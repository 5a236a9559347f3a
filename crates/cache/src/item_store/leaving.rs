//! Live items that leave memory to make room: whether they may, and who is told of them.
//!
//! An item that leaves is told of under the writer bit of its bucket, so a listener must not block. While nobody wants
//! the news they cost one load for each item that leaves.

use crate::clock::Clock;
use crate::padded::CachePadded;
use larder_item::{KeyHash, State};
use larder_memory::Item;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

/// A live item that leaves memory.
#[derive(Clone, Copy, Debug)]
pub struct Departure<'a> {
    /// Its key.
    pub key: &'a [u8],
    /// The hash of the key.
    pub hash: KeyHash,
    /// Length of its value, in bytes.
    pub value_bytes: u32,
    /// Whether it was ever read.
    pub was_fetched: bool,
    /// Seconds until it would have expired. `None` = never.
    pub ttl_s: Option<u32>,
    /// Seconds since its last use.
    pub idle_s: u32,
    /// Where it goes.
    pub to: Destination,
}

/// Where an item goes that leaves memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Destination {
    /// It is evicted for good.
    Nowhere,
    /// It is written to flash.
    Flash,
    /// Flash has it since it came from there.
    OnFlashAlready,
}

/// For whose sake departures are told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hearer {
    /// Those who watch what happens.
    Watchers = 1,
    /// Those who keep copies of what they have read.
    Readers = 2,
}

/// A listener. It must not block.
type Listener = Box<dyn Fn(&Departure<'_>) + Send + Sync>;

/// What becomes of live items when room is needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rule {
    /// They are evicted, whether flash takes them or not.
    Anyhow,
    /// They leave if flash takes them (`-M` with flash).
    ForFlash,
    /// They stay (`-M`).
    Never,
}

/// Live items that leave memory.
pub(crate) struct Leaving {
    rule: Rule,
    /// Who wants to hear of them: a bit for each [`Hearer`].
    hearers: AtomicU8,
    listener: OnceLock<Listener>,
    /// Seconds since the last use of the item that was evicted last.
    last_idle_s: CachePadded<AtomicU32>,
}

impl Leaving {
    /// With `evicts` room is made by evicting (`-M` says no).
    pub(super) fn new(evicts: bool, has_flash: bool) -> Leaving {
        let rule = match (evicts, has_flash) {
            (true, _) => Rule::Anyhow,
            (false, true) => Rule::ForFlash,
            (false, false) => Rule::Never,
        };
        Leaving {
            rule,
            hearers: AtomicU8::default(),
            listener: OnceLock::default(),
            last_idle_s: CachePadded(AtomicU32::new(0)),
        }
    }

    /// Whether live items leave memory to make room. With flash, [`crate::demoter::Levels::evicts`] knows better.
    #[inline]
    pub(crate) fn happens(&self) -> bool {
        self.rule != Rule::Never
    }

    /// Whether an item that leaves memory may be lost. If not, it leaves only for flash.
    #[inline]
    pub(crate) fn may_lose(&self) -> bool {
        self.rule == Rule::Anyhow
    }

    /// Whether the news are wanted now.
    #[inline]
    pub(crate) fn is_told(&self) -> bool {
        self.hearers.load(Ordering::Relaxed) != 0
    }

    /// Sets the listener, once.
    pub(crate) fn listen(&self, listener: Listener) {
        let _ = self.listener.set(listener);
    }

    /// Whether the listener wants to hear the news from now on for the sake of `hearer`.
    pub(crate) fn tell_from_now_on(&self, hearer: Hearer, on: bool) {
        match on {
            true => self.hearers.fetch_or(hearer as u8, Ordering::Relaxed),
            false => self.hearers.fetch_and(!(hearer as u8), Ordering::Relaxed),
        };
    }

    /// Tells of an item, if anybody wants to hear of it.
    #[inline]
    pub(crate) fn tell(&self, hash: KeyHash, item: &Item<'_>, to: Destination, clock: &Clock) {
        if self.is_told() {
            self.tell_listener(hash, item, to, clock.now_s());
        }
    }

    #[cold]
    fn tell_listener(&self, hash: KeyHash, item: &Item<'_>, to: Destination, now_s: u32) {
        let Some(listener) = self.listener.get() else { return };
        let state = item.state();
        listener(&Departure {
            key: item.key(),
            hash,
            value_bytes: item.value_bytes(),
            was_fetched: state.has(State::FETCHED),
            ttl_s: item.expiry().remaining_s(now_s),
            idle_s: state.idle_s(now_s),
            to,
        });
    }

    /// An item is evicted that was last used `idle_s` seconds ago.
    pub(super) fn note_idle(&self, idle_s: u32) {
        self.last_idle_s.0.store(idle_s, Ordering::Relaxed);
    }

    /// Seconds since the last use of the item that was evicted last; 0 before the first eviction.
    pub(crate) fn last_idle_s(&self) -> u32 {
        self.last_idle_s.0.load(Ordering::Relaxed)
    }
}
