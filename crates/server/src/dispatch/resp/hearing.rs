//! What a connection hears of from others: keys that it tracks, and channels.

use super::channels::Kind;
use super::glob::Pattern;
use super::tracking::Tracker;
use crate::io::{Buffers, Charge};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What a name that is subscribed to takes beside its bytes, here and where it is listed for all, in bytes.
const NAME_BYTES: u64 = 640;

/// What one connection hears of.
#[derive(Default)]
pub(in crate::dispatch) struct Hearing {
    pub(super) tracks: Option<Tracks>,
    /// For each [`Kind`], the names that it has subscribed to.
    names: [BTreeSet<Vec<u8>>; 3],
    /// What the names of its channels begin with, which it does not see.
    pub(super) namespace: Box<[u8]>,
    /// What the names take, in the account of connection buffers.
    charge: Charge,
}

/// How a connection tracks keys.
pub(in crate::dispatch) struct Tracks {
    pub(super) tracker: Arc<Tracker>,
    pub(super) mode: Mode,
    /// For the next command it is the other way round (`CLIENT CACHING`).
    pub(super) is_turned: bool,
    pub(super) ignores_own: bool,
    /// With [`Mode::Broadcast`]: the prefixes.
    pub(super) prefixes: Vec<Vec<u8>>,
}

/// Which keys a connection tracks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mode {
    /// Those that it reads.
    Read,
    /// Those that it reads with a command behind `CLIENT CACHING YES`.
    OptIn,
    /// Those that it reads, but not with a command behind `CLIENT CACHING NO`.
    OptOut,
    /// Those with a prefix, whoever reads them.
    Broadcast,
}

impl Tracks {
    /// Whether something has to be known of the keys that the present command reads: where prefixes are tracked, when
    /// the items expire.
    pub(super) fn remembers(&self) -> bool {
        match self.mode {
            Mode::Read | Mode::Broadcast => true,
            Mode::OptIn => self.is_turned,
            Mode::OptOut => !self.is_turned,
        }
    }
}

/// What a name takes, in bytes.
fn bytes_of(kind: Kind, name: &[u8]) -> u64 {
    let read = if kind == Kind::Pattern { Pattern::bytes_of(name.len()) as u64 } else { 0 };
    NAME_BYTES + 2 * name.len() as u64 + read
}

impl Hearing {
    /// Whether it has subscribed to something.
    pub(super) fn is_subscriber(&self) -> bool {
        self.names.iter().any(|names| !names.is_empty())
    }

    pub(super) fn names(&self, kind: Kind) -> &BTreeSet<Vec<u8>> {
        &self.names[kind as usize]
    }

    pub(super) fn counts(&self) -> [usize; 3] {
        self.names.each_ref().map(BTreeSet::len)
    }

    /// Subscribes to a name. `None` = there is no room for it; `Some(false)` = it has done so before.
    pub(super) fn add(&mut self, kind: Kind, name: &[u8], buffers: Option<&Arc<Buffers>>) -> Option<bool> {
        if self.names(kind).contains(name) {
            return Some(false);
        }
        let fits = buffers.is_none_or(|buffers| self.charge.try_grow(buffers, bytes_of(kind, name)));
        fits.then(|| self.names[kind as usize].insert(name.to_vec()))
    }

    /// Ends a subscription. Returns whether there was one.
    pub(super) fn remove(&mut self, kind: Kind, name: &[u8]) -> bool {
        let was_there = self.names[kind as usize].remove(name);
        if was_there {
            self.charge.shrink(bytes_of(kind, name));
        }
        was_there
    }

    /// What the names take, in the account of connection buffers.
    pub(super) fn held_bytes(&self) -> u64 {
        self.charge.bytes()
    }
}
