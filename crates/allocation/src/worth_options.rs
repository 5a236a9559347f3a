//! What the worth of an item is made of.

/// What the cache is to save.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Objective {
    /// Misses: each costs the same, whatever the item.
    Requests,
    /// Bytes that clients fetch from the back end: a miss costs the bytes of its item.
    Bytes,
    /// Time that clients wait: a miss costs its penalty.
    #[default]
    Time,
}

impl Objective {
    /// All objectives.
    pub const ALL: [Objective; 3] = [Objective::Requests, Objective::Bytes, Objective::Time];

    /// The name in flags, settings and statistics.
    pub const fn name(self) -> &'static str {
        match self {
            Objective::Requests => "requests",
            Objective::Bytes => "bytes",
            Objective::Time => "time",
        }
    }

    /// The objective with this name.
    pub fn of_name(name: &str) -> Option<Objective> {
        Objective::ALL.into_iter().find(|objective| objective.name() == name)
    }
}

/// How room moves between groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WorthMode {
    /// Room goes where a miss costs most (PAMA).
    #[default]
    Penalty,
    /// Every miss costs the same: room goes where most hits are (pre-PAMA).
    Hits,
    /// Temperature alone decides. Sizes and penalties do not count.
    Static,
}

impl WorthMode {
    /// All modes.
    pub const ALL: [WorthMode; 3] = [WorthMode::Penalty, WorthMode::Hits, WorthMode::Static];

    /// The name in flags, settings and statistics.
    pub const fn name(self) -> &'static str {
        match self {
            WorthMode::Penalty => "penalty",
            WorthMode::Hits => "hits",
            WorthMode::Static => "static",
        }
    }

    /// The mode with this name.
    pub fn of_name(name: &str) -> Option<WorthMode> {
        WorthMode::ALL.into_iter().find(|mode| mode.name() == name)
    }
}

/// What the worth of an item is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WorthOptions {
    /// How room moves between groups.
    pub mode: WorthMode,
    /// What the cache is to save.
    pub objective: Objective,
}

impl WorthOptions {
    /// What the cost of a miss is counted in: the objective, but where every miss costs the same there is no time to
    /// count.
    #[inline]
    pub fn cost_unit(self) -> Objective {
        match (self.mode, self.objective) {
            (WorthMode::Hits | WorthMode::Static, Objective::Time) => Objective::Requests,
            (_, objective) => objective,
        }
    }
}
