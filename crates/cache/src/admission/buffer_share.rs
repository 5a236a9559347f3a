//! Who gets the buffers of flash while the device is behind.
//!
//! Flash has a few buffers, and the device empties them at its own rate. If more is evicted than the device takes, what
//! comes first would fill the buffers, and what comes later would be lost, whatever it is worth. So an item has to
//! leave as much room in the buffers as items that are worth more per byte will need until the device gives a buffer
//! back:
//!
//! ```text
//!  room to leave = spare x share of offered bytes that is worth more / share of offered bytes that the device takes
//! ```
//!
//! in buffers, at most all but two. Both shares are measured. The spare part is measured as well: it goes up while
//! items are lost that the device could have taken with all that is worth more, and slowly down again. It has to be
//! above one because memory is evicted column by column, and the items of a column are often all read or all unread. An
//! item that nothing outranks has to leave no room, and items of equal worth come in the order of their arrival.

use super::{Offered, RANKS, rank_of, saved_per_byte};
use larder_allocation::WorthOptions;
use larder_flash::Room;

/// The room that is left, in parts of what is expected to be needed, when the first items are lost.
const SPARE: f32 = 2.0;
/// The spare part is between these.
const SPARE_MIN: f32 = 1.0;
const SPARE_MAX: f32 = 32.0;
/// The same while nothing is lost.
const SPARE_IN_CALM: f32 = 0.25;
/// The spare part goes up by this factor after a period in which a larger share than [`DESERVING_LOST_MAX`] of all
/// bytes was of items that were lost although the device could have taken them.
const SPARE_UP: f32 = 1.3;
const DESERVING_LOST_MAX: f32 = 1.0 / 64.0;
/// And down by this one after another period in which something was lost.
const SPARE_DOWN: f32 = 0.99;
/// The device counts as taking at least so much of what is offered.
const SHARE_MIN: f32 = 1.0 / 64.0;
/// How fast the share of what is taken goes up again when nothing is lost.
const RECOVERY: f32 = 1.25;
/// The shares are those of the last eight periods, about.
const PERIODS: u64 = 8;

/// Measures what is offered and what is taken. A period is as long as it takes until one buffer was offered.
pub(super) struct BufferShare {
    /// Bytes that were offered of each rank. They count a little less after each period.
    offered: Box<[u64]>,
    /// For each rank, the share of the offered bytes of higher ranks, as of the last period.
    outranked: Box<[f32]>,
    /// What the ranks were made by.
    worth: WorthOptions,
    /// Bytes offered in this period.
    seen: u64,
    /// Those of them that were not taken.
    lost: u64,
    /// Those of them that were not taken though the device could take them and all that outranks them.
    deserving_lost: u64,
    /// The share of the offered bytes that is taken, of the last few periods.
    taken: f32,
    spare: f32,
}

impl BufferShare {
    pub(super) fn new() -> BufferShare {
        BufferShare {
            offered: vec![0; RANKS].into(),
            outranked: vec![0.0; RANKS].into(),
            worth: WorthOptions::default(),
            seen: 0,
            lost: 0,
            deserving_lost: 0,
            taken: 1.0,
            spare: SPARE,
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
        let spare = if self.taken >= 1.0 { SPARE_IN_CALM } else { self.spare };
        // The device always has one buffer to write while the next one is filled.
        let others = room.all_bytes.saturating_sub(2 * room.buffer_bytes).max(room.buffer_bytes);
        let leaves =
            (spare * self.outranked[rank] / self.taken * room.buffer_bytes as f32).min(others as f32);
        // A put that finds no room at all is for flash to refuse. A value longer than a buffer goes in parts, which
        // wait for the device.
        let needs = (leaves as u64 + bytes.min(room.buffer_bytes)).min(others);
        let is_admitted = leaves == 0.0 || room.free_bytes >= needs;
        if !is_admitted {
            self.lose(offered, worth);
        }
        is_admitted
    }

    /// Flash did not take an item that was offered.
    pub(super) fn lose(&mut self, offered: &Offered, worth: WorthOptions) {
        self.lost = self.lost.saturating_add(offered.bytes);
        let rank = rank_of(saved_per_byte(offered, worth));
        // The share of the offered bytes that is of this rank or a higher one.
        let with_it = if rank == 0 { 1.0 } else { self.outranked[rank - 1] };
        if with_it <= self.taken {
            self.deserving_lost = self.deserving_lost.saturating_add(offered.bytes);
        }
    }

    /// Bytes of the ranking.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&self.offered[..]) + size_of_val(&self.outranked[..])
    }

    fn end_period(&mut self) {
        let taken = 1.0 - self.lost as f32 / self.seen as f32;
        self.taken = match self.lost {
            0 => (self.taken * RECOVERY).min(1.0),
            _ => self.taken + (taken - self.taken) / PERIODS as f32,
        };
        self.taken = self.taken.max(SHARE_MIN);
        if self.lost > 0 {
            let lost_too_much = self.deserving_lost as f32 > self.seen as f32 * DESERVING_LOST_MAX;
            let spare = self.spare * if lost_too_much { SPARE_UP } else { SPARE_DOWN };
            self.spare = spare.clamp(SPARE_MIN, SPARE_MAX);
        }
        (self.seen, self.lost, self.deserving_lost) = (0, 0, 0);
        let all: u64 = self.offered.iter().sum();
        let mut above = 0;
        for (outranked, offered) in self.outranked.iter_mut().zip(&mut self.offered).rev() {
            *outranked = above as f32 / all.max(1) as f32;
            above += *offered;
            *offered -= offered.div_ceil(PERIODS);
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
            Room { free_bytes: self.room, buffer_bytes: BUFFER_BYTES, all_bytes: self.all }
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
        burst_of(times, &|n| n % read_of == 0, (3, 1), by_worth)
    }

    /// As [`burst`], where `is_read` says which items were read. `buffers` buffers are there, and `at_once` items are
    /// offered at once.
    fn burst_of(
        times: f64,
        is_read: &dyn Fn(u64) -> bool,
        (buffers, at_once): (u64, u64),
        by_worth: bool,
    ) -> (f64, f64) {
        let (mut buffer_share, mut buffers) = (BufferShare::new(), Buffers::new(buffers));
        let (mut taken, mut offered, mut owed) = ([0u64; 2], [0u64; 2], 0.0);
        for n in 0..100 * BUFFER_BYTES / ITEM_BYTES {
            let is_read = is_read(n);
            offered[usize::from(is_read)] += 1;
            let of = item(n, is_read);
            if !by_worth || buffer_share.admits(&of, WorthOptions::default(), buffers.room()) {
                match buffers.put(ITEM_BYTES) {
                    true => taken[usize::from(is_read)] += 1,
                    false => buffer_share.lose(&of, WorthOptions::default()),
                }
            }
            owed += ITEM_BYTES as f64 / times;
            while owed >= ITEM_BYTES as f64 && n % at_once == 0 {
                buffers.write(ITEM_BYTES);
                owed -= ITEM_BYTES as f64;
            }
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
    fn a_burst_that_comes_by_columns_loses_what_nobody_read() {
        // One column in four was read, which ones is random. Two columns leave at once.
        let column_items = 2 * BUFFER_BYTES / ITEM_BYTES;
        let is_read = |n: u64| (n / column_items).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 62 == 0;
        let (read, unread) = burst_of(1.5, &is_read, (4, 2 * column_items), true);
        assert!(read > 0.92, "{read}");
        assert!(unread > 0.3, "{unread}");
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
        let mut buffer_share = BufferShare::new();
        let worth = WorthOptions::default();
        let room = Room {
            free_bytes: 3 * BUFFER_BYTES / 2,
            buffer_bytes: BUFFER_BYTES,
            all_bytes: 3 * BUFFER_BYTES,
        };
        assert!((0..1000).all(|n| buffer_share.admits(&item(n, true), worth, room)));
        let long = Offered { bytes: 20 * BUFFER_BYTES, ..item(1000, false) };
        assert!(buffer_share.admits(&long, worth, room));
        assert!(!buffer_share.admits(&long, worth, Room { free_bytes: BUFFER_BYTES / 2, ..room }));
    }

    #[test]
    fn equals_come_in_the_order_of_arrival() {
        let (read, _) = burst(2.0, 1, true);
        let (by_arrival, _) = burst(2.0, 1, false);
        assert!((read - by_arrival).abs() < 0.02, "{read} {by_arrival}");
    }
}
