//! `--temperature`: the policies by name.

use super::fifo::Fifo;
use super::hitmap::{self, Device};
use super::policy::Temperature;
use super::sweep::Sweep;
use std::fmt;

/// `--temperature`: how the cache knows which items are warm.
#[derive(Clone, Copy)]
pub struct TemperatureKind(&'static Row);

/// What is known of a kind.
struct Row {
    /// Its name in flags and statistics.
    name: &'static str,
    /// Hits raise the warmth in the index entry.
    marks_entries: bool,
    /// The policy wants to hear of every access, and not only of a sample.
    logs_all: bool,
    /// The policy was made to judge single items.
    judges_single_items: bool,
    /// A device can do the policy's work.
    can_use_device: bool,
    /// Makes the policy. Where a device is to do its work, one line of the log says which device was found, or why none
    /// was.
    build: fn(Device) -> Box<dyn Temperature>,
}

const ENTRY: Row = Row {
    name: "entry",
    marks_entries: true,
    logs_all: false,
    judges_single_items: false,
    can_use_device: false,
    build: |_| Box::new(Sweep::by_entry()),
};

const LINE: Row = Row {
    name: hitmap::LINE,
    marks_entries: false,
    logs_all: true,
    judges_single_items: false,
    can_use_device: true,
    build: hitmap::line,
};

const PUBLISHED: Row =
    Row { name: hitmap::PUBLISHED, judges_single_items: true, build: hitmap::published, ..LINE };

const OFF: Row = Row { name: "off", marks_entries: false, build: |_| Box::<Fifo>::default(), ..ENTRY };

impl TemperatureKind {
    /// Two bits in the index entry: the default.
    pub const ENTRY: TemperatureKind = TemperatureKind(&ENTRY);
    /// Nothing: first in, first out.
    pub const OFF: TemperatureKind = TemperatureKind(&OFF);
    /// All kinds.
    pub const ALL: [TemperatureKind; 4] =
        [TemperatureKind::ENTRY, TemperatureKind(&LINE), TemperatureKind(&PUBLISHED), TemperatureKind::OFF];

    /// The kind with this name.
    pub fn named(name: &str) -> Option<TemperatureKind> {
        TemperatureKind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Its name in flags and statistics.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// Whether hits raise the warmth in the index entry.
    pub fn marks_entries(self) -> bool {
        self.0.marks_entries
    }

    /// Whether the policy wants to hear of every access, and not only of a sample.
    pub(crate) fn logs_all(self) -> bool {
        self.0.logs_all
    }

    /// Whether the policy was made to judge single items, and not those of a column together.
    pub fn judges_single_items(self) -> bool {
        self.0.judges_single_items
    }

    /// Whether a device can do the policy's work.
    pub fn can_use_device(self) -> bool {
        self.0.can_use_device
    }

    /// The policy of this kind, with its work on the CPU.
    pub fn build(self) -> Box<dyn Temperature> {
        self.build_on(Device::default())
    }

    /// The policy of this kind, with its work on a device if it is there.
    pub(crate) fn build_on(self, device: Device) -> Box<dyn Temperature> {
        (self.0.build)(device)
    }
}

impl Default for TemperatureKind {
    fn default() -> TemperatureKind {
        TemperatureKind::ENTRY
    }
}

impl PartialEq for TemperatureKind {
    fn eq(&self, other: &TemperatureKind) -> bool {
        self.name() == other.name()
    }
}

impl Eq for TemperatureKind {}

impl fmt::Debug for TemperatureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
