//! Which items of a column go: the temperature's view of an item, joined with what a miss of it costs.

use super::keep_limit::keep_within;
use super::policy::{Judged, Queue};
use larder_allocation::{Appraised, ColumnBounds, GroupStats, MetIn, Warmth, Worth, WorthOptions};
use larder_temperature::{Digest, Reference};

/// The choice among the items of one column.
pub(super) struct Appraisal {
    worth: Worth,
    /// The items of the present column, and the answer. Both are kept for their memory.
    items: Vec<Appraised>,
    goes: Vec<bool>,
}

impl Default for Appraisal {
    /// An appraisal that has seen no item yet.
    fn default() -> Appraisal {
        Appraisal { worth: Worth::new(WorthOptions::default()), items: Vec::new(), goes: Vec::new() }
    }
}

impl Appraisal {
    /// Judges by `options` from now on.
    pub(super) fn set_options(&mut self, options: WorthOptions) {
        self.worth.set_options(options);
    }

    /// The cache has about `items` items. Keys with a digest below `sampled_below` are followed one by one.
    pub(super) fn fit(&mut self, items: u64, sampled_below: u32) {
        self.worth.fit(items, sampled_below);
    }

    /// Takes note of a batch of references.
    pub(super) fn refer(&mut self, references: &[Reference]) {
        references.iter().for_each(|one| self.worth.refer(one.digest().bits(), one.is_store()));
    }

    /// The next items are those of a column of `queue`, with so much warmth each.
    pub(super) fn begin(&mut self, queue: Queue, items: &[Judged], warmth: &[u8]) {
        let met_in = match queue {
            Queue::Probation => MetIn::Probation,
            Queue::Main => MetIn::Main,
        };
        self.items.clear();
        self.items.extend(items.iter().zip(warmth).map(|(item, &level)| Appraised {
            digest: Digest::of(item.hash).bits(),
            warmth: Warmth { met_in, level, stays: false },
            subclass: item.subclass,
            bytes: item.bytes,
        }));
    }

    /// Whether each of the items goes. The temperature alone would have those with level 0 go, and more of the lowest
    /// levels if too much stayed. The main queue holds about `main_items` items.
    pub(super) fn decide(
        &mut self,
        levels: &mut [u8],
        items: &[Judged],
        bounds: ColumnBounds,
        main_items: u64,
    ) -> &[bool] {
        let Appraisal { worth, items: appraised, goes } = self;
        keep_within(levels, items, bounds.keep_bytes_max);
        appraised.iter_mut().zip(levels.iter()).for_each(|(item, level)| item.warmth.stays = *level > 0);
        goes.clear();
        goes.extend(appraised.iter().map(|item| !item.warmth.stays));
        worth.choose(appraised, bounds, main_items, goes);
        goes
    }

    /// What is shown of the groups.
    pub(super) fn stats(&self, probation_columns: u64, main_columns: u64) -> Vec<GroupStats> {
        self.worth.stats(probation_columns, main_columns)
    }

    /// About how many bytes of memory the appraisal takes.
    pub(super) fn bytes(&self) -> u64 {
        self.worth.bytes()
    }
}
