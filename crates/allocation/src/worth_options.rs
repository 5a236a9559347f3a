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
    /// [`WorthMode::Penalty`] as long as something speaks for it ([`CostEvidence`]), else [`WorthMode::Hits`].
    #[default]
    Auto,
    /// Room goes where a miss costs most (PAMA).
    Penalty,
    /// Every miss costs the same: room goes where most hits are (pre-PAMA).
    Hits,
    /// Temperature alone decides. Sizes and penalties do not count.
    Static,
}

impl WorthMode {
    /// All modes.
    pub const ALL: [WorthMode; 4] = [WorthMode::Auto, WorthMode::Penalty, WorthMode::Hits, WorthMode::Static];

    /// The name in flags, settings and statistics.
    pub const fn name(self) -> &'static str {
        match self {
            WorthMode::Auto => "auto",
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

/// What speaks for it that the penalty of a miss says something about the next miss of the key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CostEvidence {
    /// Nothing so far, or nothing any more.
    #[default]
    None,
    /// Keys that were dropped and came back had about the penalty of before.
    Skill,
    /// Clients state the penalties.
    Stated,
}

impl CostEvidence {
    /// All kinds of evidence.
    pub const ALL: [CostEvidence; 3] = [CostEvidence::None, CostEvidence::Skill, CostEvidence::Stated];

    /// The evidence in a sentence.
    pub const fn sentence(self) -> &'static str {
        match self {
            CostEvidence::None => "no sign was seen that what a miss took foretells the next miss of its key",
            CostEvidence::Skill => "what a miss took foretells what the next miss of its key takes",
            CostEvidence::Stated => "clients state what a miss costs",
        }
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
    /// The same with a mode that is not [`WorthMode::Auto`]: what that comes to by this evidence.
    #[inline]
    pub fn by(self, evidence: CostEvidence) -> WorthOptions {
        // Where the objective is not time, the two come to the same.
        let counts = evidence != CostEvidence::None && self.objective == Objective::Time;
        let mode = match self.mode {
            WorthMode::Auto if counts => WorthMode::Penalty,
            WorthMode::Auto => WorthMode::Hits,
            mode => mode,
        };
        WorthOptions { mode, ..self }
    }

    /// What the cost of a miss is counted in: the objective, but where every miss costs the same there is no time to
    /// count. To be asked after [`WorthOptions::by`].
    #[inline]
    pub fn cost_unit(self) -> Objective {
        match (self.mode, self.objective) {
            (WorthMode::Auto | WorthMode::Hits | WorthMode::Static, Objective::Time) => Objective::Requests,
            (_, objective) => objective,
        }
    }
}
