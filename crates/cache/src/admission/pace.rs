//! Who gets the buffers of flash while the device is behind.
//!
//! Flash has a few buffers, and the device empties them at its own rate. If more is evicted than the device takes, what
//! comes first would fill the buffers, and what comes later would be lost, whatever it is worth. So an item has to
//! leave as much room in the buffers as items that are worth more per byte will need until the device gives a buffer
//! back:
//!
//! ```text
//!  room to leave = 2 x share of offered bytes that is worth more / share of offered bytes that the device takes
//! ```
//!
//! in buffers, at most one. Both shares are measured. Twice, because memory is evicted column by column, and the items
//! of a column are often all read or all unread. An item that nothing outranks has to leave no room, and items of equal
//! worth come in the order of their arrival.

use super::{Offered, RANKS, rank_of, saved_per_byte};
use larder_allocation::WorthOptions;
use larder_flash::Room;

/// The room that is left, in parts of what is expected to be needed.
const SPARE: f32 = 2.0;
/// The same while nothing is lost.
const SPARE_IN_CALM: f32 = 0.25;
/// The device counts as taking at least so much of what is offered.
const SHARE_MIN: f32 = 1.0 / 64.0;
/// How fast the share of what is taken goes up again when nothing is lost.
const RECOVERY: f32 = 1.25;

/// Measures what is offered and what is taken. A period is as long as it takes until one buffer was offered.
pub(super) struct Pace {
    /// Bytes that were offered of each rank. They count half as much after each period.
    offered: Box<[u64]>,
    /// For each rank, the share of the offered bytes of higher ranks, as of the last period.
    outranked: Box<[f32]>,
    /// What the ranks were made by.
    worth: WorthOptions,
    /// Bytes offered in this period.
    seen: u64,
    /// Those of them that were not taken.
    lost: u64,
    /// The share of the offered bytes that is taken, of the last few periods.
    taken: f32,
}

impl Pace {
    pub(super) fn new() -> Pace {
        Pace {
            offered: vec![0; RANKS].into(),
            outranked: vec![0.0; RANKS].into(),
            worth: WorthOptions::default(),
            seen: 0,
            lost: 0,
            taken: 1.0,
        }
    }

    /// Whether an item may take a part of this room.
    pub(super) fn admits(&mut self, offered: &Offered, worth: WorthOptions, room: Room) -> bool {
        if worth != self.worth {
            // The old ranks say nothing about items by the new options.
            self.worth = worth;
            self.offered.fill(0);
            self.outranked.fill(0.0);
        }
        if self.seen >= room.buffer_bytes {
            self.end_period();
        }
        let (rank, bytes) = (rank_of(saved_per_byte(offered, worth)), offered.bytes.max(1));
        self.offered[rank] = self.offered[rank].saturating_add(bytes);
        self.seen = self.seen.saturating_add(bytes);
        let spare = if self.taken >= 1.0 { SPARE_IN_CALM } else { SPARE };
        let leaves = (spare * self.outranked[rank] / self.taken).min(1.0) * room.buffer_bytes as f32;
        // A put that finds no room at all is for flash to refuse. A value longer than a buffer goes in parts, which
        // wait for the device.
        let needs = (leaves as u64 + bytes).min(room.buffer_bytes);
        let is_admitted = leaves == 0.0 || room.free_bytes >= needs;
        if !is_admitted {
            self.lose(bytes);
        }
        is_admitted
    }

    /// Flash did not take so many bytes that were offered.
    pub(super) fn lose(&mut self, bytes: u64) {
        self.lost = self.lost.saturating_add(bytes);
    }

    /// Bytes of the ranking.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&self.offered[..]) + size_of_val(&self.outranked[..])
    }

    fn end_period(&mut self) {
        let taken = 1.0 - self.lost as f32 / self.seen as f32;
        self.taken = match self.lost {
            0 => (self.taken * RECOVERY).min(1.0),
            _ => self.taken.midpoint(taken).max(SHARE_MIN),
        };
        (self.seen, self.lost) = (0, 0);
        let all: u64 = self.offered.iter().sum();
        let mut above = 0;
        for (outranked, offered) in self.outranked.iter_mut().zip(&mut self.offered).rev() {
            *outranked = above as f32 / all.max(1) as f32;
            above += *offered;
            *offered /= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_allocation::Subclass;
    use larder_item::KeyHash;

    const BUFFER_BYTES: u64 = 1 << 20;
    const ITEM_BYTES: u64 = 8 << 10;

    /// Buffers that are filled one after the other, and a device that empties full ones.
    struct Buffers {
        room: u64,
        /// Bytes in full buffers.
        full: u64,
        all: u64,
        /// Bytes of the oldest full buffer that are written.
        written: u64,
    }

    impl Buffers {
        fn new(buffers: u64) -> Buffers {
            Buffers { room: buffers * BUFFER_BYTES, full: 0, all: buffers * BUFFER_BYTES, written: 0 }
        }

        fn room(&self) -> Room {
            Room { free_bytes: self.room, buffer_bytes: BUFFER_BYTES }
        }

        fn put(&mut self, bytes: u64) -> bool {
            let fits = bytes <= self.room;
            if fits {
                self.room -= bytes;
                let filled = self.all - self.room;
                self.full = filled / BUFFER_BYTES * BUFFER_BYTES;
            }
            fits
        }

        fn write(&mut self, bytes: u64) {
            if self.full > 0 {
                self.written += bytes;
            }
            if self.written >= BUFFER_BYTES {
                self.written = 0;
                self.full -= BUFFER_BYTES;
                self.room += BUFFER_BYTES;
            }
        }
    }

    fn item(n: u64, fetched: bool) -> Offered {
        let hash = KeyHash(n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Offered { hash, bytes: ITEM_BYTES, warmth: 0, fetched, subclass: Subclass::UNKNOWN }
    }

    /// Offers 100 buffers of items, of which one in `read_of` was read, `times` as fast as the device writes. Returns
    /// the shares that were taken of the read and of the other ones.
    fn burst(times: f64, read_of: u64, by_worth: bool) -> (f64, f64) {
        let (mut pace, mut buffers) = (Pace::new(), Buffers::new(3));
        let (mut taken, mut offered, mut owed) = ([0u64; 2], [0u64; 2], 0.0);
        for n in 0..100 * BUFFER_BYTES / ITEM_BYTES {
            let is_read = n % read_of == 0;
            offered[usize::from(is_read)] += 1;
            let of = item(n, is_read);
            if !by_worth || pace.admits(&of, WorthOptions::default(), buffers.room()) {
                match buffers.put(ITEM_BYTES) {
                    true => taken[usize::from(is_read)] += 1,
                    false => pace.lose(ITEM_BYTES),
                }
            }
            owed += ITEM_BYTES as f64 / times;
            buffers.write(owed as u64);
            owed -= owed.floor();
        }
        let share = |of: usize| taken[of] as f64 / offered[of] as f64;
        (share(1), share(0))
    }

    #[test]
    fn a_burst_loses_what_nobody_read() {
        let (read, unread) = burst(2.0, 4, true);
        assert!(read > 0.97, "{read}");
        // The device is not idle meanwhile: half of what is offered goes, and a half of it is of read items.
        assert!(unread > 0.27, "{unread}");
        let (by_arrival, _) = burst(2.0, 4, false);
        assert!(by_arrival < 0.6, "{by_arrival}");
    }

    #[test]
    fn a_longer_burst_than_the_read_items_alone_would_fill_loses_evenly() {
        let (read, unread) = burst(10.0, 4, true);
        assert!((0.3..0.45).contains(&read), "{read}");
        assert!(unread < 0.06, "{unread}");
    }

    #[test]
    fn a_device_that_keeps_up_gets_everything() {
        for read_of in [1, 4, 1000] {
            let (read, unread) = burst(0.9, read_of, true);
            assert_eq!(read, 1.0, "{read_of}");
            assert!(read_of == 1 || unread == 1.0, "{read_of}: {unread}");
        }
    }

    #[test]
    fn a_value_longer_than_all_buffers_goes_to_a_device_that_keeps_up() {
        let mut pace = Pace::new();
        let worth = WorthOptions::default();
        let room = Room { free_bytes: 3 * BUFFER_BYTES / 2, buffer_bytes: BUFFER_BYTES };
        assert!((0..1000).all(|n| pace.admits(&item(n, true), worth, room)));
        let long = Offered { bytes: 20 * BUFFER_BYTES, ..item(1000, false) };
        assert!(pace.admits(&long, worth, room));
        assert!(!pace.admits(&long, worth, Room { free_bytes: BUFFER_BYTES / 2, ..room }));
    }

    #[test]
    fn equals_come_in_the_order_of_arrival() {
        let (read, _) = burst(2.0, 1, true);
        let (by_arrival, _) = burst(2.0, 1, false);
        assert!((read - by_arrival).abs() < 0.02, "{read} {by_arrival}");
    }
}
