//! The columns that one worker fills, and which item goes to which of them.
//!
//! Items of like lifetime stand together, so that they expire together and their column goes as a whole (Yang et al.,
//! "Segcache: a memory-efficient and scalable in-memory key-value cache for small objects", NSDI 2021, section 4.2).
//! A class of lifetimes has a column of its own while it fills one within a quarter of its lifetime. The other items
//! that expire share a column, and those that never expire have the general one. If there are few columns, all share
//! that.
//!
//! The workers together fill at most one column in 20 of all, or two each if that is more: the general column, and the
//! one for chunks. So with 64 MiB, columns of 64 KiB and 4 workers there are about 880 columns, and each worker has 9
//! places for classes. With 8 MiB and 4 workers there are about 110 columns, and there is no such place.

use crate::lifetime_class::{LifetimeClass, open_columns_max};
use larder_item::Expiry;
use larder_memory::{ColumnId, OpenColumn};

/// The most classes that have a column of their own, for each worker.
const CLASSES_MAX: usize = 10;
const PLACES: usize = Place::FIRST_CLASS + CLASSES_MAX;
/// A class has a column of its own if it fills one in at most a quarter of its lifetime.
const FILLED_SHARE: u32 = 4;
/// A place where nothing is stored for 60 ticks, one a second, gives its column up.
const IDLE_TICKS_MAX: u32 = 60;

/// A place for an open column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place(u8);

impl Place {
    /// The general column: items that never expire, the owner records of chains of chunks, and what has no other place.
    pub(super) const GENERAL: Place = Place(0);
    /// Chunks have a column of their own, so that large values that arrive slowly pin no more columns than they need.
    pub(super) const CHUNKS: Place = Place(1);
    /// Where nothing may be evicted and there is no room: what takes the place of an item that is not smaller.
    pub(super) const REPLACING: Place = Place(2);
    /// Items that expire, and whose class has no place.
    const EXPIRING: Place = Place(3);
    const FIRST_CLASS: usize = 4;

    /// All places.
    pub(super) fn all() -> impl Iterator<Item = Place> {
        (0..PLACES as u8).map(Place)
    }
}

/// What a class has brought to a column that it shares.
#[derive(Clone, Copy, Default)]
struct Brought {
    bytes: u32,
    /// Since when, on the server's clock.
    since_s: u32,
}

/// How long nothing was stored in a place.
#[derive(Clone, Copy, Default)]
struct Idle {
    ticks: u32,
    /// Room in the column at the last tick, in bytes.
    free_bytes: u32,
}

/// The open columns of one worker.
pub(super) struct OpenColumns {
    columns: [Option<OpenColumn>; PLACES],
    idle: [Idle; PLACES],
    /// The place of each class.
    places: [Place; LifetimeClass::COUNT],
    brought: [Brought; LifetimeClass::COUNT],
    /// The class that has each of the places for classes.
    classes: [Option<LifetimeClass>; CLASSES_MAX],
    /// How many classes may have a place.
    classes_max: usize,
}

impl OpenColumns {
    /// No open columns, for one of `workers` workers that share `columns` columns.
    pub(super) fn new(columns: u64, workers: usize) -> OpenColumns {
        let mut open = OpenColumns {
            columns: [const { None }; PLACES],
            idle: [Idle::default(); PLACES],
            places: [Place::GENERAL; LifetimeClass::COUNT],
            brought: [Brought::default(); LifetimeClass::COUNT],
            classes: [None; CLASSES_MAX],
            classes_max: 0,
        };
        open.set_limit(columns, workers);
        open
    }

    /// Where an item goes that expires at `expiry`.
    #[inline]
    pub(super) fn place_for(&self, expiry: Expiry, now_s: u32) -> Place {
        if expiry == Expiry::NEVER {
            Place::GENERAL
        } else {
            self.places[LifetimeClass::of(expiry, now_s).number()]
        }
    }

    /// The open column at a place.
    #[inline]
    pub(super) fn at(&mut self, place: Place) -> Option<&mut OpenColumn> {
        self.columns[usize::from(place.0)].as_mut()
    }

    /// The open column that has this number.
    pub(super) fn with_id(&mut self, column: ColumnId) -> Option<&mut OpenColumn> {
        self.columns.iter_mut().flatten().find(|open| open.id() == column)
    }

    /// Fills an empty place with a column that nothing was placed in.
    pub(super) fn put(&mut self, place: Place, mut open: OpenColumn) {
        let number = usize::from(place.0);
        if let Some(Some(class)) = number.checked_sub(Place::FIRST_CLASS).map(|number| self.classes[number]) {
            open.expect_lifetimes(class.lifetimes());
        }
        self.columns[number] = Some(open);
    }

    /// Takes the column away from a place.
    pub(super) fn take(&mut self, place: Place) -> Option<OpenColumn> {
        self.columns[usize::from(place.0)].take()
    }

    /// Whether a place is shared by several classes.
    #[inline]
    pub(super) fn is_shared(&self, place: Place) -> bool {
        usize::from(place.0) < Place::FIRST_CLASS
    }

    /// Takes note of `bytes` of an item with an expiry that went to a shared column of `column_bytes`. A class that
    /// fills columns fast enough gets a place, if one is left.
    pub(super) fn brought(&mut self, expiry: Expiry, now_s: u32, bytes: u32, column_bytes: u32) {
        let class = LifetimeClass::of(expiry, now_s);
        let brought = &mut self.brought[class.number()];
        if brought.bytes == 0 {
            brought.since_s = now_s;
        }
        brought.bytes += bytes;
        if brought.bytes < column_bytes {
            return;
        }
        brought.bytes = 0;
        if now_s.saturating_sub(brought.since_s) <= class.seconds_max() / FILLED_SHARE
            && let Some(free) = self.classes[..self.classes_max].iter().position(Option::is_none)
        {
            self.classes[free] = Some(class);
            self.places[class.number()] = Place((Place::FIRST_CLASS + free) as u8);
        }
    }

    /// Once a second: finds the places where nothing is stored any more, and those that are too many for `columns`
    /// columns and `workers` workers. The caller seals what is open there.
    pub(super) fn give_up_idle(&mut self, columns: u64, workers: usize) -> Vec<Place> {
        let mut given_up = self.set_limit(columns, workers);
        for place in Place::all().skip(usize::from(Place::EXPIRING.0)) {
            let number = usize::from(place.0);
            let free_bytes = self.at(place).map_or(0, |open| open.free_bytes());
            let idle = &mut self.idle[number];
            idle.ticks = if idle.free_bytes == free_bytes { idle.ticks + 1 } else { 0 };
            idle.free_bytes = free_bytes;
            if idle.ticks >= IDLE_TICKS_MAX {
                idle.ticks = 0;
                self.give_up_class(place);
                given_up.push(place);
            }
        }
        given_up
    }

    /// Sets how many places there may be. Returns those that are too many.
    fn set_limit(&mut self, columns: u64, workers: usize) -> Vec<Place> {
        let places_max = open_columns_max(columns, workers).min(1 + CLASSES_MAX);
        let shared = if places_max == 0 { Place::GENERAL } else { Place::EXPIRING };
        for place in &mut self.places {
            if usize::from(place.0) < Place::FIRST_CLASS {
                *place = shared;
            }
        }
        self.classes_max = places_max.saturating_sub(1);
        let too_many = Place::all().skip(usize::from(Place::EXPIRING.0) + places_max);
        let given_up: Vec<Place> =
            too_many.filter(|place| self.columns[usize::from(place.0)].is_some()).collect();
        given_up.iter().for_each(|place| self.give_up_class(*place));
        given_up
    }

    /// The class of a place goes back to the column that classes share.
    fn give_up_class(&mut self, place: Place) {
        let number = usize::from(place.0).checked_sub(Place::FIRST_CLASS);
        if let Some(class) = number.and_then(|number| self.classes[number].take()) {
            let shared = if self.classes_max == 0 { Place::GENERAL } else { Place::EXPIRING };
            self.places[class.number()] = shared;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Expiry = Expiry::at_s(60);

    #[test]
    fn a_class_has_a_place_while_it_brings_much() {
        let mut open = OpenColumns::new(1000, 4);
        assert_eq!(open.place_for(MINUTE, 0), Place::EXPIRING);
        (0..9).for_each(|_| open.brought(MINUTE, 0, 100, 1000));
        assert_eq!(open.place_for(MINUTE, 0), Place::EXPIRING, "not a column's worth");
        open.brought(Expiry::at_s(100), 40, 100, 1000);
        assert_eq!(open.place_for(Expiry::at_s(100), 40), Place::EXPIRING, "it has taken too long");
        open.brought(Expiry::at_s(100), 40, 500, 1000);
        open.brought(Expiry::at_s(110), 50, 500, 1000);
        let place = open.place_for(MINUTE, 0);
        assert!(!open.is_shared(place));
        assert_eq!(open.place_for(Expiry::at_s(49), 0), place, "49 to 64 seconds are one class");
        assert_eq!(open.place_for(Expiry::at_s(3600), 0), Place::EXPIRING);
        assert_eq!(open.place_for(Expiry::NEVER, 0), Place::GENERAL);
        for _ in 0..IDLE_TICKS_MAX - 1 {
            assert_eq!(open.give_up_idle(1000, 4), []);
        }
        assert!(open.give_up_idle(1000, 4).contains(&place));
        assert_eq!(open.place_for(MINUTE, 0), Place::EXPIRING);
    }

    #[test]
    fn there_are_no_more_places_than_the_columns_allow() {
        let with_place = |columns| {
            let mut open = OpenColumns::new(columns, 4);
            (0..20).for_each(|log2| open.brought(Expiry::at_s(1 << log2), 0, 1000, 1000));
            (0..20).filter(|log2| !open.is_shared(open.place_for(Expiry::at_s(1 << log2), 0))).count()
        };
        assert_eq!([160, 240, 480, 880, 1_000_000].map(with_place), [0, 0, 3, 8, CLASSES_MAX]);
        assert_eq!(OpenColumns::new(160, 4).place_for(MINUTE, 0), Place::GENERAL);
    }
}
