//! Penalty subclasses.

/// The subclass of a miss penalty: all that the cache remembers of the penalty of one item. The bounds are PAMA's
/// (section IV): (0, 1 ms], (1, 10 ms], (10, 100 ms], (100 ms, 1 s], (1 s, 5 s].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Subclass(u8);

impl Subclass {
    /// How many subclasses there are.
    pub const COUNT: usize = 5;
    /// Upper ends of the subclasses in microseconds.
    pub const PENALTY_US_MAX: [u32; Subclass::COUNT] = [1_000, 10_000, 100_000, 1_000_000, 5_000_000];
    /// The penalty that an item of unknown penalty is taken to have, in microseconds (PAMA, section III).
    pub const PENALTY_UNKNOWN_US: u32 = 100_000;
    /// The subclass of an item of unknown penalty.
    pub const UNKNOWN: Subclass = Subclass::of_us(Subclass::PENALTY_UNKNOWN_US);
    /// The upper ends in words.
    const NAMES: [&str; Subclass::COUNT] = ["1ms", "10ms", "100ms", "1s", "5s"];
    /// A typical penalty of each subclass in microseconds, about the geometric mean of its bounds.
    const TYPICAL_US: [u32; Subclass::COUNT] = [500, 4_000, 40_000, 350_000, 2_200_000];

    /// The subclass of a penalty in microseconds. A penalty above the last end belongs to the last subclass.
    pub const fn of_us(penalty_us: u32) -> Subclass {
        let mut number = 0;
        while number < Subclass::COUNT - 1 && penalty_us > Subclass::PENALTY_US_MAX[number] {
            number += 1;
        }
        Subclass(number as u8)
    }

    /// The subclass with a number below [`Subclass::COUNT`]. `None` for any other number.
    pub const fn from_number(number: u8) -> Option<Subclass> {
        if (number as usize) < Subclass::COUNT { Some(Subclass(number)) } else { None }
    }

    /// The upper end of the subclass, as statistics and labels show it.
    pub const fn name(self) -> &'static str {
        Subclass::NAMES[self.0 as usize]
    }

    /// The number of the subclass, from 0 for the cheapest.
    pub const fn number(self) -> usize {
        self.0 as usize
    }

    /// A typical penalty of the subclass in microseconds.
    pub const fn typical_us(self) -> u32 {
        Subclass::TYPICAL_US[self.0 as usize]
    }
}

impl Default for Subclass {
    fn default() -> Subclass {
        Subclass::UNKNOWN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_belongs_to_its_own_subclass() {
        for (number, end) in Subclass::PENALTY_US_MAX.into_iter().enumerate() {
            assert_eq!(Subclass::of_us(end).number(), number);
            assert_eq!(Subclass::of_us(end + 1).number(), (number + 1).min(Subclass::COUNT - 1));
            let subclass = Subclass::from_number(number as u8).expect("a number below the count");
            assert_eq!(Subclass::of_us(subclass.typical_us()), subclass);
        }
        assert_eq!(Subclass::of_us(0).number(), 0);
        assert_eq!(Subclass::from_number(Subclass::COUNT as u8), None);
    }
}
