//! Stores wait while memory is full and flash is behind.
//!
//! What would be evicted for a store then would be lost. So the connection waits, as one does that waits for a read
//! from flash: its request stays in the input, and its worker serves others. Reads wait for nothing here. The wait is
//! over when the device has written a segment, and at the latest after [`larder_cache::FlashLevel::store_wait_max_ms`]:
//! then something is evicted that flash does not take.

use super::Executor;
use crate::dispatch::progress::Progress;
use crate::io::ConnectionId;
use std::time::Instant;

/// Connections whose stores wait, and since when.
#[derive(Default)]
pub(super) struct RoomQueue {
    waiting: Vec<(ConnectionId, Instant)>,
    /// Those that were woken last. If there was no room after all, they go on waiting.
    woken: Vec<(ConnectionId, Instant)>,
}

impl Executor {
    /// Whether a store that is executed now might cost an item that flash would have kept.
    #[inline]
    pub(in crate::dispatch) fn is_short_of_room(&self) -> bool {
        self.fetches.is_some() && self.worker.waits_for_flash()
    }

    /// Makes a store wait, unless it has waited for long enough. The same request comes again when its connection is
    /// woken.
    #[cold]
    pub(in crate::dispatch) fn waits_for_room(&mut self, progress: &mut Progress) -> bool {
        let RoomQueue { waiting, woken } = &mut self.room;
        // Something else may have woken a connection that still waits.
        let of = |list: &mut Vec<(ConnectionId, Instant)>| {
            let at = list.iter().position(|(id, _)| *id == progress.id)?;
            Some(list.swap_remove(at).1)
        };
        let before = of(waiting).or_else(|| of(woken));
        let since = before.unwrap_or_else(Instant::now);
        if since.elapsed() >= self.worker.store_wait_max() {
            self.worker.wait_no_longer();
            return false;
        }
        if before.is_none() {
            self.worker.counters().store_waits.add(1);
        }
        waiting.push((progress.id, since));
        progress.waits = true;
        self.worker.want_room();
        true
    }

    /// A turn is over, in which every connection that was woken was served.
    pub(in crate::dispatch) fn forget_woken(&mut self) {
        self.room.woken.clear();
    }

    /// Names the connections whose stores may go on.
    pub(super) fn wake_stores(&mut self, wake: &mut Vec<ConnectionId>) {
        let RoomQueue { waiting, woken } = &mut self.room;
        let Some(first) = waiting.iter().map(|(_, since)| *since).min() else { return };
        if self.worker.waits_for_flash() && first.elapsed() < self.worker.store_wait_max() {
            return self.worker.want_room();
        }
        wake.extend(waiting.iter().map(|(id, _)| *id));
        woken.append(waiting);
    }
}
