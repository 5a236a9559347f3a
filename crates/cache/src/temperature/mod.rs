//! Who deserves room.
//!
//! The keeper asks three things of a [`Temperature`]: which column goes next ([`Temperature::victim`]), which of its items
//! stay ([`Temperature::judge`]), and that it take note of what was referenced ([`Temperature::refer`]). Everything else
//! about a column is the keeper's. The simulator asks the same code the same questions.
//!
//! * [`Sweep`] is the default: columns of new items are on probation, what was asked for meanwhile moves on to the main
//!   columns, which are swept in the order they were filled. How warm an item is, the index entry says (`entry`) or a
//!   hitmap (`hitmap`).
//! * [`Published`] is Catalyst as its paper has it, over columns (`hitmap-published`).
//! * [`Fifo`] keeps nothing (`off`).

mod fifo;
mod published;
mod sweep;
#[cfg(test)]
mod tests;

pub use fifo::Fifo;
pub use published::{Published, PublishedPolicyOptions};
pub use sweep::Sweep;

use larder_cuda::{CudaHitmap, Layout, MemoryMode};
use larder_item::KeyHash;
use larder_memory::ColumnId;
use larder_temperature::{Hitmap, LineHitmap, PublishedHitmap, PublishedOptions, Reference, Resilient};
use std::collections::VecDeque;

/// `--temperature`: how the cache knows what is warm.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TemperatureKind {
    /// Two bits in the index entry.
    #[default]
    Entry,
    /// A hitmap with all levels of a key in one cache line.
    Hitmap,
    /// Catalyst's hitmap and its choice of victims.
    HitmapPublished,
    /// Nothing: first in, first out.
    Off,
}

impl TemperatureKind {
    /// All kinds.
    pub const ALL: [TemperatureKind; 4] = [
        TemperatureKind::Entry,
        TemperatureKind::Hitmap,
        TemperatureKind::HitmapPublished,
        TemperatureKind::Off,
    ];

    /// The word for it in flags and statistics.
    pub fn name(self) -> &'static str {
        match self {
            TemperatureKind::Entry => "entry",
            TemperatureKind::Hitmap => "hitmap",
            TemperatureKind::HitmapPublished => "hitmap-published",
            TemperatureKind::Off => "off",
        }
    }

    /// Whether hits raise the warmth in the index entry.
    pub(crate) fn marks_entries(self) -> bool {
        self == TemperatureKind::Entry
    }

    /// Whether the keeper wants to know of every access, and not of a sample at most.
    pub(crate) fn logs_all(self) -> bool {
        matches!(self, TemperatureKind::Hitmap | TemperatureKind::HitmapPublished)
    }

    /// The policy of this kind, with its hitmap on the CPU.
    pub fn build(self) -> Box<dyn Temperature> {
        self.build_on(None)
    }

    /// The policy of this kind, with its hitmap on a CUDA device if there is one; what is found, or why not, is logged in
    /// one line.
    pub fn build_on(self, cuda: Option<CudaOptions>) -> Box<dyn Temperature> {
        let options = PublishedOptions::default();
        match self {
            TemperatureKind::Entry => Box::new(Sweep::by_entry()),
            TemperatureKind::Hitmap => Box::new(Sweep::by_hitmap(HitmapMaker::line().on(cuda, Layout::Line))),
            TemperatureKind::HitmapPublished => {
                let maker = HitmapMaker::published(options);
                Box::new(Published::new(maker.on(cuda, Layout::Published(options))))
            }
            TemperatureKind::Off => Box::<Fifo>::default(),
        }
    }
}

/// `--device cuda:N`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CudaOptions {
    /// The device's number, from 0 on.
    pub number: u32,
    /// Whether the map lies in managed memory.
    pub managed: bool,
}

/// Which items a column holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// What clients stored.
    Probation,
    /// What a pass moved.
    Main,
}

/// One live item of a column that goes.
#[derive(Clone, Copy, Debug)]
pub struct Judged {
    /// Its key's hash.
    pub hash: KeyHash,
    /// Warmth of its entry, 0..=3.
    pub warmth: u8,
    /// Bytes it would take in another column.
    pub bytes: u32,
}

/// What the pass does with a live item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Move it to the keeper's open column; its warmth starts at the given number.
    Keep {
        /// Warmth of the moved item's entry, 0..=3.
        warmth: u8,
    },
    /// Drop it (or, with a flash tier, demote it).
    Evict,
}

/// What is known of a column when a victim is chosen.
#[derive(Clone, Copy, Debug)]
pub struct ColumnStanding {
    /// The column.
    pub column: ColumnId,
    /// Bytes of items still findable.
    pub live_bytes: u64,
    /// Bytes a column holds.
    pub column_bytes: u64,
}

impl ColumnStanding {
    /// Whether the column is mostly dead.
    fn is_hollow(&self) -> bool {
        self.live_bytes * 2 < self.column_bytes
    }
}

/// The answer to "may this column go?".
#[derive(Clone, Copy, Debug)]
pub enum Candidate {
    /// It may.
    Ready(ColumnStanding),
    /// Not now: something is pinned in it.
    Later,
    /// It is no longer sealed, or it is another one by now; forget it.
    Gone,
}

/// An item that is in the cache.
#[derive(Clone, Copy, Debug)]
pub struct Resident {
    /// Its key's hash.
    pub hash: KeyHash,
    /// The column it stands in.
    pub column: ColumnId,
    /// Which use of that column this is.
    pub birth: u64,
}

/// Where items are drawn from at random.
pub trait Residents {
    /// Appends about `count` items drawn at random, fewer if there are few.
    fn sample(&mut self, count: usize, found: &mut Vec<Resident>);
}

/// Numbers for whoever looks on.
#[derive(Clone, Debug, Default)]
pub struct TemperatureFacts {
    /// Where the hitmap's work is done; empty where there is no hitmap.
    pub place: String,
    /// Part of the columns that new items may fill, 0..=1.
    pub probation_share: f64,
    /// Sealed columns of new items.
    pub probation_columns: u64,
    /// Sealed columns of moved items.
    pub main_columns: u64,
    /// Bytes of ghost, hitmap and shadows.
    pub bytes: u64,
    /// References taken note of.
    pub references: u64,
    /// Items that moved on from probation to the main columns.
    pub promoted: u64,
    /// Of those, items that nobody read meanwhile, but that had been evicted lately.
    pub ghost_hits: u64,
    /// Items evicted from probation columns.
    pub evicted_probation: u64,
    /// Items evicted from main columns.
    pub evicted_main: u64,
    /// Agings (rolling compactions) begun.
    pub agings: u64,
    /// Victims chosen without a candidate in the victim pool.
    pub drained: u64,
}

impl TemperatureFacts {
    /// Name, meaning and value of what is counted from the start.
    pub fn counts(&self) -> [(&'static str, &'static str, u64); 7] {
        [
            ("references", "References that the keeper took note of.", self.references),
            (
                "promoted_from_probation",
                "Items that moved on from probation to the main columns.",
                self.promoted,
            ),
            ("ghost_hits", "Items promoted because they had been evicted lately.", self.ghost_hits),
            ("evicted_probation", "Items evicted at the end of their probation.", self.evicted_probation),
            ("evicted_main", "Items evicted from the main columns.", self.evicted_main),
            ("agings", "Agings of the hitmap begun.", self.agings),
            ("victims_drained", "Victims chosen while the victim pool was empty.", self.drained),
        ]
    }
}

/// Chooses columns, and the items in them, that may go.
pub trait Temperature: Send {
    /// A column was filled and sealed. `birth` tells this use of the column from later ones.
    fn sealed(&mut self, column: ColumnId, birth: u64, part: Part);

    /// The next column to reclaim. `standing` answers for a candidate. Whoever asks calls [`Temperature::sealed`] again if
    /// the column cannot go after all.
    fn victim(&mut self, standing: &mut dyn FnMut(ColumnId, u64) -> Candidate) -> Option<ColumnId>;

    /// A victim could not be emptied for want of room: it is the next one again.
    fn put_back(&mut self, column: ColumnId, birth: u64, part: Part);

    /// Appends a verdict on each of the live items of a column that goes; those that are kept have at most
    /// `keep_bytes_max` bytes.
    fn judge(&mut self, part: Part, items: &[Judged], keep_bytes_max: u64, verdicts: &mut Vec<Verdict>);

    /// Takes note of a batch of references: hits and stores whose digest is below [`Temperature::wanted_below`].
    fn refer(&mut self, references: &[Reference], residents: &mut dyn Residents);

    /// Only references whose digest is below this number are wanted. It changes only when [`Temperature::fit`] is
    /// called.
    fn wanted_below(&self) -> u32;

    /// The cache holds, or will hold when it is full, about `items` items. Sizes what is kept about them.
    fn fit(&mut self, items: u64);

    /// Bytes of what is kept about items, when fitted to `items`.
    fn bytes_for(&self, items: u64) -> u64;

    /// How many columns are known, those included that are gone without its knowing.
    fn columns(&self) -> usize;

    /// Forgets the columns that `standing` says are gone.
    fn forget_gone(&mut self, standing: &mut dyn FnMut(ColumnId, u64) -> Candidate);

    /// Numbers for whoever looks on.
    fn facts(&self) -> TemperatureFacts;
}

/// How many of the oldest columns are looked at for one that is mostly dead already.
const LOOK_AHEAD_COLUMNS: usize = 16;
/// How many columns that cannot go now are sent to the end of the queue before the search is given up.
const LATER_MAX: usize = 64;

/// Columns in the order they were sealed.
#[derive(Default)]
struct Queue(VecDeque<(ColumnId, u64)>);

/// Where the next column of a queue is.
#[derive(Clone, Copy)]
struct Next {
    at: usize,
    is_hollow: bool,
}

impl Queue {
    fn push(&mut self, column: ColumnId, birth: u64) {
        self.0.push_back((column, birth));
    }

    fn put_back(&mut self, column: ColumnId, birth: u64) {
        self.0.push_front((column, birth));
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    /// The oldest that may go, unless a younger one is mostly dead. Those that are gone are forgotten.
    fn next(&mut self, standing: &mut dyn FnMut(ColumnId, u64) -> Candidate) -> Option<Next> {
        let mut hollow: Option<(usize, u64)> = None;
        let mut at = 0;
        let mut later = 0;
        while at < self.0.len().min(LOOK_AHEAD_COLUMNS) && later < LATER_MAX {
            let (column, birth) = self.0[at];
            match standing(column, birth) {
                Candidate::Gone => {
                    self.0.remove(at);
                }
                // Sent to the end, so that slow uploads at the head cannot starve the pass.
                Candidate::Later => {
                    later += 1;
                    let column = self.0.remove(at);
                    self.0.extend(column);
                }
                Candidate::Ready(found) => {
                    if found.is_hollow() && hollow.is_none_or(|h| found.live_bytes < h.1) {
                        hollow = Some((at, found.live_bytes));
                    }
                    at += 1;
                }
            }
        }
        // Everything before `at` may go.
        (at > 0).then(|| Next { at: hollow.map_or(0, |h| h.0), is_hollow: hollow.is_some() })
    }

    fn forget_gone(&mut self, standing: &mut dyn FnMut(ColumnId, u64) -> Candidate) {
        self.0.retain(|(column, birth)| !matches!(standing(*column, *birth), Candidate::Gone));
    }

    fn take(&mut self, next: Next) -> Option<ColumnId> {
        self.0.remove(next.at).map(|(column, _)| column)
    }
}

/// How much of a column may stay. All of it, at first: keys that are wanted were often stored one after another, and none
/// of them should go because they stand together. But a cache of nothing but warm items must give some room in the end,
/// or a writer would wait until the sweep has cooled them all.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Passes in a row that gave less than an eighth of a column, and how many there may be.
    fruitless: u32,
    fruitless_max: u32,
}

/// So many passes in a row may give next to nothing: together about half a millisecond.
const FRUITLESS_MAX: u32 = 8;
/// The part of a column that the next pass has to give, then.
const GIVEN_SHARE: u64 = 8;

impl Default for Patience {
    /// That of the keeper, whose columns hold hundreds of items.
    fn default() -> Patience {
        Patience::of_passes(FRUITLESS_MAX)
    }
}

impl Patience {
    /// So many passes in a row may give next to nothing.
    pub fn of_passes(fruitless_max: u32) -> Patience {
        Patience { fruitless: 0, fruitless_max }
    }

    /// The most that may stay of a column of so many bytes.
    pub fn keep_bytes_max(&self, column_bytes: u64) -> u64 {
        if self.fruitless < self.fruitless_max {
            column_bytes
        } else {
            column_bytes - column_bytes.div_ceil(GIVEN_SHARE)
        }
    }

    /// So many bytes of the column stayed.
    pub fn spend(&mut self, kept_bytes: u64, column_bytes: u64) {
        let is_fruitless = kept_bytes > column_bytes - column_bytes.div_ceil(GIVEN_SHARE);
        self.fruitless = if is_fruitless { self.fruitless + 1 } else { 0 };
    }
}

/// Evicts of what would stay (level above 0) the least warm, the first ones first, until at most `keep_bytes_max` bytes
/// stay.
fn keep_within(levels: &mut [u8], items: &[Judged], keep_bytes_max: u64) {
    let kept = |(level, item): (&u8, &Judged)| if *level > 0 { u64::from(item.bytes) } else { 0 };
    let mut kept_bytes: u64 = levels.iter().zip(items).map(kept).sum();
    let mut least = 1;
    while kept_bytes > keep_bytes_max {
        for (level, item) in levels.iter_mut().zip(items) {
            if *level == least && kept_bytes > keep_bytes_max {
                *level = 0;
                kept_bytes -= u64::from(item.bytes);
            }
        }
        least += 1;
    }
}

/// Makes a hitmap once the number of items is known.
pub struct HitmapMaker {
    /// Makes one for so many items.
    pub make: Box<dyn Fn(u64) -> Box<dyn Hitmap> + Send>,
    /// Bytes of this machine's memory that one for so many items takes.
    pub bytes_for: Box<dyn Fn(u64) -> u64 + Send>,
}

impl HitmapMaker {
    /// A one-line hitmap on the CPU.
    pub fn line() -> HitmapMaker {
        HitmapMaker {
            make: Box::new(|items| Box::new(LineHitmap::for_items(items))),
            bytes_for: Box::new(LineHitmap::bytes_for_items),
        }
    }

    /// Catalyst's hitmap on the CPU.
    pub fn published(options: PublishedOptions) -> HitmapMaker {
        HitmapMaker {
            make: Box::new(move |items| Box::new(PublishedHitmap::for_items(items, options))),
            bytes_for: Box::new(move |items| options.bytes_for(items)),
        }
    }

    /// The same maps on a device, or these where there is none. The device is asked for a small map now, so that whoever
    /// starts the server learns at once what it got. Memory for the map is reckoned with all the same: if the device fails,
    /// it comes back here.
    fn on(self, cuda: Option<CudaOptions>, layout: Layout) -> HitmapMaker {
        let Some(CudaOptions { number, managed }) = cuda else { return self };
        let mode = if managed { MemoryMode::Managed } else { MemoryMode::Explicit };
        match CudaHitmap::open(number, layout, 1, mode) {
            Ok(map) => tracing::info!("the hitmap is kept on {}", map.place()),
            Err(why) => {
                tracing::warn!("{why}: the CPU keeps the hitmap");
                return self;
            }
        }
        let HitmapMaker { make, bytes_for } = self;
        HitmapMaker {
            make: Box::new(move |items| match CudaHitmap::open(number, layout, items, mode) {
                Ok(map) => Box::new(Resilient::new(map)),
                Err(why) => {
                    tracing::warn!("{why}: the CPU keeps the hitmap");
                    make(items)
                }
            }),
            bytes_for,
        }
    }

    /// Bytes of the hitmap there is, grown for `items` items, or of the one that would be made.
    fn bytes(&self, hitmap: Option<&dyn Hitmap>, items: u64) -> u64 {
        hitmap.map_or_else(|| (self.bytes_for)(items), |hitmap| hitmap.bytes_for(items))
    }
}
