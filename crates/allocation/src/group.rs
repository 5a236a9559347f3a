//! Groups of items, and what is shown of them.

use crate::Subclass;
use std::fmt;

/// The class of an item's size: the bytes that the item takes in a column, header and key included. The classes end at
/// powers of four.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SizeClass(u8);

impl SizeClass {
    /// How many size classes there are.
    pub const COUNT: usize = 6;
    /// Upper ends of the classes in bytes. The last class has none.
    pub const BYTES_MAX: [u32; SizeClass::COUNT] = [64, 256, 1 << 10, 4 << 10, 16 << 10, u32::MAX];

    /// The upper ends in words.
    const NAMES: [&str; SizeClass::COUNT] = ["64", "256", "1k", "4k", "16k", "large"];

    /// The class of an item of `bytes` bytes.
    #[inline]
    pub const fn of_bytes(bytes: u32) -> SizeClass {
        let mut number = 0;
        while bytes > SizeClass::BYTES_MAX[number] {
            number += 1;
        }
        SizeClass(number as u8)
    }

    /// The class with a number below [`SizeClass::COUNT`]. `None` for any other number.
    pub const fn from_number(number: u8) -> Option<SizeClass> {
        if (number as usize) < SizeClass::COUNT { Some(SizeClass(number)) } else { None }
    }

    /// The number of the class, from 0 for the smallest items.
    pub const fn number(self) -> usize {
        self.0 as usize
    }

    /// The upper end of the class, as statistics and labels show it; of the last class, that it has none.
    pub const fn name(self) -> &'static str {
        SizeClass::NAMES[self.0 as usize]
    }

    /// The upper end of the class in bytes. `None`: the class has no end.
    pub const fn bytes_max(self) -> Option<u32> {
        let bytes_max = SizeClass::BYTES_MAX[self.0 as usize];
        if bytes_max < u32::MAX { Some(bytes_max) } else { None }
    }
}

/// The items of one size class and one penalty subclass. A group is an account: its items stand in columns with items
/// of other groups.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Group {
    /// How large the items are.
    pub size: SizeClass,
    /// What a miss of one of them costs.
    pub subclass: Subclass,
}

impl Group {
    /// How many groups there are.
    pub const COUNT: usize = SizeClass::COUNT * Subclass::COUNT;

    /// The group of an item of `bytes` bytes.
    #[inline]
    pub const fn of(bytes: u32, subclass: Subclass) -> Group {
        Group { size: SizeClass::of_bytes(bytes), subclass }
    }

    /// The number of the group, below [`Group::COUNT`].
    #[inline]
    pub const fn number(self) -> usize {
        self.size.number() * Subclass::COUNT + self.subclass.number()
    }

    /// The group with a number below [`Group::COUNT`]. `None` for any other number.
    pub const fn from_number(number: usize) -> Option<Group> {
        if number >= Group::COUNT {
            return None;
        }
        let size = SizeClass::from_number((number / Subclass::COUNT) as u8);
        let subclass = Subclass::from_number((number % Subclass::COUNT) as u8);
        match (size, subclass) {
            (Some(size), Some(subclass)) => Some(Group { size, subclass }),
            _ => None,
        }
    }
}

impl fmt::Display for Group {
    /// In plain words: `items up to 256 bytes with misses of up to 100ms`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.size.bytes_max() {
            Some(bytes_max) => write!(f, "items up to {bytes_max} bytes")?,
            None => write!(f, "items above {} bytes", SizeClass::BYTES_MAX[SizeClass::COUNT - 2])?,
        }
        write!(f, " with misses of up to {}", self.subclass.name())
    }
}

/// Why room moved between two groups, or stayed (PAMA, section III).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MoveReason {
    /// What one more column would have saved the receiver was more than what the giver lost.
    HigherIncoming {
        /// The group that gave.
        from: Group,
        /// The group that received.
        to: Group,
    },
    /// The group needed room, and no group had a lower outgoing value: it replaced its own items.
    OwnLeast,
    /// The group needed room, and its incoming value was below the least outgoing value: it replaced its own items.
    LowIncoming,
}

impl MoveReason {
    /// The reason in one word, as seen from `group`.
    pub fn name(&self, group: Group) -> &'static str {
        match self {
            MoveReason::HigherIncoming { to, .. } if *to == group => "received",
            MoveReason::HigherIncoming { .. } => "gave",
            MoveReason::OwnLeast => "own_least",
            MoveReason::LowIncoming => "low_incoming",
        }
    }
}

impl fmt::Display for MoveReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MoveReason::HigherIncoming { from, to } => {
                write!(f, "{to} had a higher incoming value than the outgoing value of {from}")
            }
            MoveReason::OwnLeast => f.write_str("stayed: no other group had a lower outgoing value"),
            MoveReason::LowIncoming => {
                f.write_str("stayed: the incoming value was below the least outgoing value of any group")
            }
        }
    }
}

/// What is shown of a group.
///
/// The two values are in the unit of the objective: microseconds of waiting, misses, or bytes, each within a window of
/// accesses.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct GroupStats {
    /// Which group.
    pub group: Group,
    /// Items in memory, as estimated.
    pub items: u64,
    /// Bytes of these items, as estimated.
    pub bytes: u64,
    /// Outgoing value: what would be lost if the group gave a column.
    pub outgoing: f64,
    /// Incoming value: what would be saved if the group received a column.
    pub incoming: f64,
    /// Bytes that the group took from other groups since the start.
    pub moved_in_bytes: u64,
    /// Bytes that the group gave to other groups since the start.
    pub moved_out_bytes: u64,
    /// Why room moved to or from the group the last time, or stayed. `None`: it was never decided.
    pub last_move: Option<MoveReason>,
}

impl GroupStats {
    /// A group without items, of which nothing is known.
    pub fn empty(group: Group) -> GroupStats {
        GroupStats {
            group,
            items: 0,
            bytes: 0,
            outgoing: 0.0,
            incoming: 0.0,
            moved_in_bytes: 0,
            moved_out_bytes: 0,
            last_move: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_size_is_in_the_class_that_ends_next_above_it() {
        for (number, end) in SizeClass::BYTES_MAX.into_iter().enumerate() {
            assert_eq!(SizeClass::of_bytes(end).number(), number);
            assert_eq!(
                SizeClass::of_bytes(end.saturating_add(1)).number(),
                (number + 1).min(SizeClass::COUNT - 1)
            );
        }
        assert_eq!(SizeClass::of_bytes(0).number(), 0);
        assert_eq!(SizeClass::from_number(SizeClass::COUNT as u8), None);
        assert_eq!(SizeClass::of_bytes(65).bytes_max(), Some(256));
        assert_eq!(SizeClass::of_bytes(1 << 20).bytes_max(), None);
    }

    #[test]
    fn a_number_names_one_group() {
        for number in 0..Group::COUNT {
            let group = Group::from_number(number).expect("a number below the count");
            assert_eq!(group.number(), number);
        }
        assert_eq!(Group::from_number(Group::COUNT), None);
    }

    #[test]
    fn reasons_are_sentences_about_groups() {
        let (from, to) =
            (Group::of(100, Subclass::of_us(900)), Group::of(1 << 20, Subclass::of_us(2_000_000)));
        assert_eq!(
            MoveReason::HigherIncoming { from, to }.to_string(),
            "items above 16384 bytes with misses of up to 5s had a higher incoming value than the outgoing value of \
             items up to 256 bytes with misses of up to 1ms"
        );
        assert_eq!(MoveReason::HigherIncoming { from, to }.name(to), "received");
        assert_eq!(MoveReason::HigherIncoming { from, to }.name(from), "gave");
    }
}
