//! Bytes that stay with connections from one turn of their worker to the next, and which connection has held them
//! longest.
//!
//! A connection's bytes *park* when a turn ends and something of it is left: input that is no whole request yet, or
//! output that its client does not take. Where memory for buffers gets short, connections that got on with nothing for
//! the longest time are the first to go.

use arrayvec::ArrayVec;
use std::collections::VecDeque;

/// Outdated entries are removed from the queue when it has more entries than this, and twice the slots.
const QUEUE_MIN: usize = 64;
/// Of this many that hold their bytes for the longest time, the one with most goes. A client that is slow by chance
/// holds little, and one that fills memory much.
const OLDEST: usize = 32;

/// What is parked in one slot.
#[derive(Clone, Copy, Debug, Default)]
struct Parked {
    bytes: u64,
    /// When these bytes began to stay: a number that is counted up.
    since: u64,
    /// The same in milliseconds after the server's start.
    since_ms: u64,
}

/// One worker's account of parked bytes, by slot.
#[derive(Debug, Default)]
pub(super) struct Parking {
    slots: Vec<Parked>,
    /// Slots with the number of [`Parked::since`], the oldest first. An entry whose number is not that of its slot any
    /// more is passed over.
    queue: VecDeque<(usize, u64)>,
    bytes: u64,
    /// How many slots have something parked.
    parked: usize,
    parkings: u64,
}

impl Parking {
    /// All parked bytes of the worker.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many slots have something parked.
    pub(super) fn slots(&self) -> usize {
        self.parked
    }

    /// The slot has `bytes` parked now, at `now_ms`. `has_moved` = its connection got on since the last call.
    pub(super) fn note(&mut self, slot: usize, bytes: u64, has_moved: bool, now_ms: u64) {
        if self.slots.len() <= slot {
            self.slots.resize(slot + 1, Parked::default());
        }
        let parked = &mut self.slots[slot];
        let begins = bytes > 0 && (parked.bytes == 0 || has_moved);
        self.bytes = self.bytes + bytes - parked.bytes;
        self.parked = self.parked + usize::from(bytes > 0) - usize::from(parked.bytes > 0);
        parked.bytes = bytes;
        if begins {
            self.parkings += 1;
            (parked.since, parked.since_ms) = (self.parkings, now_ms);
            self.queue.push_back((slot, self.parkings));
            if self.queue.len() > 2 * self.slots.len() + QUEUE_MIN {
                let slots = &self.slots;
                self.queue.retain(|entry| is_current(slots, *entry));
            }
        }
    }

    /// What the slot has parked.
    #[inline]
    pub(super) fn bytes_at(&self, slot: usize) -> u64 {
        self.slots.get(slot).map_or(0, |parked| parked.bytes)
    }

    /// How often bytes have begun to stay.
    pub(super) fn parkings(&self) -> u64 {
        self.parkings
    }

    /// Takes out of the queue the slot that is to go first: of the few that got on with nothing for the longest time,
    /// and at least since `since_ms`, the one that has most parked. Slots that `may_go` refuses stay, as the last.
    /// Bytes that began to stay after the parking with the number `parkings` are for a later round.
    pub(super) fn pop(
        &mut self,
        since_ms: u64,
        parkings: u64,
        may_go: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let mut oldest = ArrayVec::<(usize, u64), OLDEST>::new();
        for _ in 0..self.queue.len() {
            let Some(entry) = self.queue.pop_front() else { break };
            if !is_current(&self.slots, entry) {
                continue;
            }
            if self.slots[entry.0].since_ms > since_ms || entry.1 > parkings {
                self.queue.push_front(entry);
                break;
            }
            if !may_go(entry.0) {
                self.queue.push_back(entry);
                continue;
            }
            oldest.push(entry);
            if oldest.is_full() {
                break;
            }
        }
        let largest = (0..oldest.len()).rev().max_by_key(|&at| self.slots[oldest[at].0].bytes)?;
        let (slot, _) = oldest.remove(largest);
        // What the connection still holds afterwards is noted anew.
        self.bytes -= std::mem::take(&mut self.slots[slot].bytes);
        self.parked -= 1;
        oldest.into_iter().rev().for_each(|entry| self.queue.push_front(entry));
        Some(slot)
    }
}

fn is_current(slots: &[Parked], (slot, since): (usize, u64)) -> bool {
    slots[slot].bytes > 0 && slots[slot].since == since
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_the_oldest_the_largest_goes_first() {
        let mut parking = Parking::default();
        let young = OLDEST + 5;
        (0..young + 5).for_each(|slot| {
            parking.note(slot, if slot == 5 || slot == young { 900 } else { 100 }, false, 0)
        });
        assert_eq!((parking.bytes(), parking.slots()), (OLDEST as u64 * 100 + 2600, OLDEST + 10));
        assert_eq!(parking.pop(0, u64::MAX, |_| true), Some(5), "it is among the oldest");
        assert_eq!(parking.pop(0, u64::MAX, |_| true), Some(0), "the other large one is not");
        // More of the same request is no progress; an answered request is.
        parking.note(1, 100, true, 0);
        parking.note(2, 120, false, 0);
        parking.note(3, 110, false, 0);
        assert_eq!(
            parking.pop(0, u64::MAX, |slot| slot != 2),
            Some(3),
            "the larger one stays, as it is asked for"
        );
        parking.note(4, 0, true, 0);
        assert_eq!((parking.bytes_at(4), parking.bytes_at(9999)), (0, 0));
        let rest: Vec<usize> = std::iter::from_fn(|| parking.pop(0, u64::MAX, |_| true)).collect();
        assert_eq!(rest[..3], [young, 6, 7]);
        assert_eq!(rest.len(), OLDEST + 10 - 4);
        assert!(rest.contains(&1) && rest.contains(&2));
    }

    #[test]
    fn who_got_on_lately_stays() {
        let mut parking = Parking::default();
        (0..3).for_each(|slot| parking.note(slot, 100, true, 10 + slot as u64));
        parking.note(0, 900, true, 13);
        assert_eq!(parking.pop(10, u64::MAX, |_| true), None);
        assert_eq!(parking.pop(11, u64::MAX, |_| true), Some(1));
        assert_eq!(parking.pop(11, u64::MAX, |_| true), None);
        assert_eq!(parking.pop(13, u64::MAX, |_| true), Some(0));
        assert_eq!(parking.pop(u64::MAX, u64::MAX, |_| true), Some(2));
    }

    #[test]
    fn what_begins_to_stay_during_a_round_is_for_the_next_one() {
        let mut parking = Parking::default();
        (0..3).for_each(|slot| parking.note(slot, 100, true, 0));
        let parkings = parking.parkings();
        let mut gone = Vec::new();
        while let Some(slot) = parking.pop(0, parkings, |_| true) {
            // It holds on to its bytes though it was let go.
            parking.note(slot, 100, true, 0);
            gone.push(slot);
        }
        gone.sort_unstable();
        assert_eq!(gone, [0, 1, 2]);
    }

    #[test]
    fn the_queue_does_not_grow_with_every_request() {
        let mut parking = Parking::default();
        for turn in 0..100_000 {
            parking.note(turn % 10, 100, true, 0);
        }
        assert!(parking.queue.len() <= 2 * 10 + QUEUE_MIN);
        assert_eq!(parking.bytes(), 1000);
        assert_eq!(std::iter::from_fn(|| parking.pop(0, u64::MAX, |_| true)).count(), 10);
    }
}
