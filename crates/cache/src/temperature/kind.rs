//! `--temperature`: the policies by name.

use super::fifo::Fifo;
use super::hitmap_maker::{CudaOptions, HitmapMaker};
use super::policy::Temperature;
use super::published::Published;
use super::sweep::Sweep;
use larder_cuda::Layout;
use larder_temperature::PublishedOptions;

/// `--temperature`: how the cache knows which items are warm.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TemperatureKind {
    /// Two bits in the index entry.
    #[default]
    Entry,
    /// A hitmap with all levels of a key in one cache line.
    Hitmap,
    /// Catalyst's hitmap, and its choice of victims.
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

    /// Its name in flags and statistics.
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

    /// Whether the policy wants to hear of every access, and not only of a sample.
    pub(crate) fn logs_all(self) -> bool {
        matches!(self, TemperatureKind::Hitmap | TemperatureKind::HitmapPublished)
    }

    /// The policy of this kind, with its hitmap on the CPU.
    pub fn build(self) -> Box<dyn Temperature> {
        self.build_on(None)
    }

    /// The policy of this kind, with its hitmap on a CUDA device if there is one. One line of the log says which device was
    /// found, or why none was.
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
