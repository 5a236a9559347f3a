//! Bytes that stay with connections from one turn of their worker to the next, and which connection has held them
//! longest.
//!
//! A connection's bytes *park* when a turn ends and something of it is left: input that is no whole request yet, or
//! output that its client does not take. Where memory for buffers gets short, those go that got on with nothing for a
//! while, the one that holds most first: a client that is slow by chance holds little, and one that fills memory much.

use std::cmp::Reverse;
use std::collections::VecDeque;

/// Outdated entries are removed from the queue when it has more entries than this, and twice the slots.
const QUEUE_MIN: usize = 64;

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

    /// The slots that may be let go, those with most parked last: what they have parked has stayed since `since_ms` at
    /// least, and is more than an equal part of the `share_bytes` of all slots, which one of them always has where all
    /// together are above the share. Slots that `may_go` refuses are left out.
    pub(super) fn largest(
        &self,
        since_ms: u64,
        share_bytes: u64,
        may_go: impl Fn(usize) -> bool,
    ) -> Vec<usize> {
        // The queue is in the order of time. Most often none has stayed for long enough.
        let old = self
            .queue
            .iter()
            .filter(|entry| is_current(&self.slots, **entry))
            .take_while(|entry| self.slots[entry.0].since_ms <= since_ms);
        let has_more = |slot: usize| self.slots[slot].bytes * self.parked as u64 > share_bytes;
        let mut slots: Vec<usize> =
            old.map(|entry| entry.0).filter(|slot| has_more(*slot) && may_go(*slot)).collect();
        // Of those that have the same, the one that has had it longest goes first.
        slots.sort_by_key(|slot| (self.slots[*slot].bytes, Reverse(self.slots[*slot].since)));
        slots
    }

    /// Forgets what the slot has parked, if that has stayed since `since_ms` at least. What its connection still holds
    /// afterwards is noted anew.
    pub(super) fn let_go(&mut self, slot: usize, since_ms: u64) -> bool {
        let parked = &mut self.slots[slot];
        if parked.bytes == 0 || parked.since_ms > since_ms {
            return false;
        }
        self.bytes -= std::mem::take(&mut parked.bytes);
        self.parked -= 1;
        true
    }

    /// The slots that have something parked.
    pub(super) fn parked(&self) -> Vec<usize> {
        let queue = self.queue.iter().filter(|entry| is_current(&self.slots, **entry));
        queue.map(|entry| entry.0).collect()
    }
}

fn is_current(slots: &[Parked], (slot, since): (usize, u64)) -> bool {
    slots[slot].bytes > 0 && slots[slot].since == since
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_goes_first() {
        let mut parking = Parking::default();
        (0..100).for_each(|slot| parking.note(slot, if slot == 99 { 900 } else { 100 }, false, 0));
        assert_eq!((parking.bytes(), parking.slots()), (99 * 100 + 900, 100));
        let slots = parking.largest(0, 0, |slot| slot != 1);
        assert_eq!(slots.len(), 99, "one may not go");
        assert_eq!(
            slots[96..],
            [2, 0, 99],
            "the largest is the youngest; of equal ones the oldest goes first"
        );
        // More of the same request is no progress; an answered request is.
        parking.note(2, 120, false, 5);
        parking.note(3, 110, true, 5);
        assert_eq!(parking.largest(0, 0, |_| true)[96..], [0, 2, 99]);
        assert!(parking.let_go(99, 0) && !parking.let_go(99, 0));
        assert_eq!((parking.bytes(), parking.slots()), (97 * 100 + 230, 99));
        parking.note(4, 0, true, 5);
        assert_eq!((parking.bytes_at(4), parking.bytes_at(9999)), (0, 0));
        assert_eq!(parking.parked().len(), 98);
    }

    #[test]
    fn who_got_on_lately_stays() {
        let mut parking = Parking::default();
        (0..3).for_each(|slot| parking.note(slot, 100, true, 10 + slot as u64));
        parking.note(0, 900, true, 13);
        assert_eq!(parking.largest(10, 0, |_| true), [0; 0]);
        assert_eq!(parking.largest(11, 0, |_| true), [1]);
        assert!(!parking.let_go(2, 11));
        assert_eq!(parking.largest(13, 0, |_| true), [2, 1, 0]);
    }

    #[test]
    fn who_has_no_more_than_an_equal_part_stays() {
        let mut parking = Parking::default();
        [500, 120, 100, 90].iter().enumerate().for_each(|(slot, bytes)| parking.note(slot, *bytes, false, 0));
        assert_eq!(parking.largest(0, 400, |_| true), [1, 0]);
        assert_eq!(parking.largest(0, 400, |slot| slot > 1), [0; 0], "their going would not help");
        assert_eq!(parking.largest(0, 809, |_| true), [0], "one has more where all together have");
    }

    #[test]
    fn the_queue_does_not_grow_with_every_request() {
        let mut parking = Parking::default();
        for turn in 0..100_000 {
            parking.note(turn % 10, 100, true, 0);
        }
        assert!(parking.queue.len() <= 2 * 10 + QUEUE_MIN);
        assert_eq!(parking.bytes(), 1000);
        assert_eq!(parking.largest(0, 0, |_| true).len(), 10);
    }
}
