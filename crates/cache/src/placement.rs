//! `--placement`: where items stand that are moved, by how warm they are (Wang, Liu and Chen, "Put an elephant into a
//! fridge", VLDB 2020, sections 4.1 and 6.1).

/// Where items stand that are moved. A column covers every set of the processor's cache equally often.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Placement {
    /// Items stay where they were stored until their column is reclaimed.
    #[default]
    Off,
    /// Hot items are moved to columns of their own, which are beside each other, and a pass moves items of like warmth
    /// to the same columns.
    Column,
}

impl Placement {
    /// All placements.
    pub const ALL: [Placement; 2] = [Placement::Off, Placement::Column];

    /// Its name in flags and statistics.
    pub fn name(self) -> &'static str {
        match self {
            Placement::Off => "off",
            Placement::Column => "column",
        }
    }

    /// Whether hot items are moved while there is room.
    pub(crate) fn moves_hot_items(self) -> bool {
        self == Placement::Column
    }
}
