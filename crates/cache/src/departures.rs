//! News of live items that leave memory to make room, for those who watch evictions.
//!
//! An item that leaves is told of under the writer bit of its bucket, so a listener must not block. While nobody wants
//! the news they cost one load for each item that leaves.

use larder_item::State;
use larder_memory::Item;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// A live item that leaves memory.
#[derive(Clone, Copy, Debug)]
pub struct Departure<'a> {
    /// Its key.
    pub key: &'a [u8],
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

/// A listener. It must not block.
type Listener = Box<dyn Fn(&Departure<'_>) + Send + Sync>;

/// Who is told of items that leave.
#[derive(Default)]
pub(crate) struct Departures {
    are_wanted: AtomicBool,
    listener: OnceLock<Listener>,
}

impl Departures {
    /// Whether the news are wanted now.
    #[inline]
    pub(crate) fn are_wanted(&self) -> bool {
        self.are_wanted.load(Ordering::Relaxed)
    }

    /// Sets the listener, once.
    pub(crate) fn listen(&self, listener: Listener) {
        let _ = self.listener.set(listener);
    }

    /// Whether the listener wants to hear the news from now on.
    pub(crate) fn want(&self, on: bool) {
        self.are_wanted.store(on, Ordering::Relaxed);
    }

    /// Tells of an item.
    #[cold]
    pub(crate) fn tell(&self, item: &Item<'_>, to: Destination, now_s: u32) {
        let Some(listener) = self.listener.get() else { return };
        let state = item.state();
        listener(&Departure {
            key: item.key(),
            value_bytes: item.value_bytes(),
            was_fetched: state.has(State::FETCHED),
            ttl_s: item.expiry().remaining_s(now_s),
            idle_s: state.idle_s(now_s),
            to,
        });
    }
}
