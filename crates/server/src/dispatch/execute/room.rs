//! Stores wait while memory is full and flash is behind.
//!
//! What would be evicted for a store then would be lost. So the connection waits, as one does that waits for a read
//! from flash: its request stays in the input, and its worker serves others. Reads wait for nothing here. The wait is
//! over when the device has written a segment, and at the latest after [`larder_cache::FlashLevel::store_wait_max_ms`]:
//! then something is evicted that flash does not take.

use super::Executor;
use crate::dispatch::progress::Progress;
use crate::io::ConnectionId;
use std::collections::HashMap;
use std::time::Instant;

/// Connections whose stores wait.
#[derive(Default)]
pub(super) struct RoomQueue {
    /// In the order in which they are woken.
    waiting: Vec<ConnectionId>,
    /// Since when each waits, and whether it is among those that wait. Those that were woken last are not: if there is
    /// no room for them after all, they go on waiting.
    since: HashMap<ConnectionId, (Instant, bool)>,
}

impl Executor {
    /// Whether a store that is executed now might cost an item that flash would have kept.
    #[inline]
    pub(in crate::dispatch) fn is_short_of_room(&self) -> bool {
        self.has_flash() && self.worker.waits_for_flash()
    }

    /// Makes a store wait, unless it has waited for long enough. The same request comes again when its connection is
    /// woken.
    #[cold]
    pub(in crate::dispatch) fn waits_for_room(&mut self, progress: &mut Progress) -> bool {
        let RoomQueue { waiting, since } = &mut self.room;
        let is_new = !since.contains_key(&progress.id);
        let (began, is_waiting) = since.entry(progress.id).or_insert_with(|| (Instant::now(), false));
        if began.elapsed() >= self.worker.store_wait_max() {
            since.remove(&progress.id);
            self.worker.wait_no_longer();
            return false;
        }
        if is_new {
            self.worker.counters().store_waits.add(1);
        }
        // Something else may have woken a connection that still waits.
        if !std::mem::replace(is_waiting, true) {
            waiting.push(progress.id);
        }
        progress.waits = true;
        self.worker.want_room();
        true
    }

    /// A turn is over, in which every connection that was woken was served.
    pub(in crate::dispatch) fn forget_woken(&mut self) {
        let RoomQueue { waiting, since } = &mut self.room;
        if since.len() > waiting.len() {
            since.retain(|_, (_, is_waiting)| *is_waiting);
        }
    }

    /// Names the connections whose stores may go on.
    pub(super) fn wake_stores(&mut self, wake: &mut Vec<ConnectionId>) {
        let RoomQueue { waiting, since } = &mut self.room;
        let began = since.values().filter(|(_, is_waiting)| *is_waiting).map(|(began, _)| *began);
        let Some(first) = began.min() else { return };
        if self.worker.waits_for_flash() && first.elapsed() < self.worker.store_wait_max() {
            return self.worker.want_room();
        }
        since.values_mut().for_each(|(_, is_waiting)| *is_waiting = false);
        wake.append(waiting);
    }
}
