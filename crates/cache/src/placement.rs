//! `--placement`: where items stand that are moved, by how warm they are (Wang, Liu and Chen, "Put an elephant into a
//! fridge", VLDB 2020, sections 4.1 and 6.1).

/// Where items stand that are moved. A column covers every set of the processor's cache equally often.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Placement {
    /// Items stay where they were stored until their column is reclaimed.
    Off,
    /// As `Off`, and a pass moves all items to the same columns, whatever their warmth.
    Random,
    /// Hot items are moved to the same sets of the cache: the low eighth of columns whose rest stays empty. They push
    /// each other out. This shows what the other placements are good for.
    Row,
    /// Hot items are moved to columns of their own, which are beside each other, and a pass moves items of like warmth
    /// to the same columns.
    #[default]
    Column,
}

impl Placement {
    /// All placements.
    pub const ALL: [Placement; 4] = [Placement::Off, Placement::Random, Placement::Row, Placement::Column];

    /// Its name in flags and statistics.
    pub fn name(self) -> &'static str {
        match self {
            Placement::Off => "off",
            Placement::Random => "random",
            Placement::Row => "row",
            Placement::Column => "column",
        }
    }

    /// Whether hot items are moved while there is room.
    pub(crate) fn moves_hot_items(self) -> bool {
        matches!(self, Placement::Row | Placement::Column)
    }
}
