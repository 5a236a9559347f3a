//! The window: keys and requests that were read ahead, to be executed together in their order.

use super::execute::Executor;
use arrayvec::ArrayVec;
use larder_cache::{KeyHash, LookupStage, TagMatch};

/// Keys whose memory accesses are overlapped. Twice as many would still fit the first-level cache with their buckets
/// and records; more would push each other out.
pub(super) const WINDOW_OPS: usize = 32;

/// The window. `W` = what is to be done with a key or a request, which each protocol knows.
pub(super) type Window<'a, W> = ArrayVec<WindowOp<'a, W>, WINDOW_OPS>;

/// One key's work in a window.
pub(super) struct WindowOp<'a, W> {
    pub(super) connection: u32,
    /// Where the request ends in the connection's input.
    pub(super) end: usize,
    pub(super) hash: KeyHash,
    pub(super) key: &'a [u8],
    pub(super) at: LookupStage,
    pub(super) what: W,
}

/// How far the work of one window entry is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Progressed {
    /// The request is answered, and its input is done with.
    Request,
    /// The key is answered, and others of its line follow.
    Key,
    /// Nothing is answered: the request waits for flash.
    Waits,
}

/// Until when the hints of a window may be used.
pub(super) struct Hints {
    pub(super) epoch: u64,
    /// An operation may have changed what the hints say.
    pub(super) are_outdated: bool,
}

impl Hints {
    /// `epoch` = the worker's epoch now.
    #[inline]
    pub(super) fn are_valid(&self, epoch: u64) -> bool {
        !self.are_outdated && self.epoch == epoch
    }

    /// What was found ahead of a key, if it may still be used.
    #[inline]
    pub(super) fn of<W>(&self, op: &WindowOp<'_, W>, executor: &Executor) -> Option<TagMatch> {
        op.at.tag_match().filter(|_| self.are_valid(executor.epoch()))
    }
}

/// Where a request stands: which connection it is of, and where it ends in the connection's input.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) connection: u32,
    pub(super) end: usize,
}

/// Puts a request into the window, and asks for the bucket of its key. An empty key is none.
#[inline(always)]
pub(super) fn push<'a, W>(
    window: &mut Window<'a, W>,
    executor: &Executor,
    place: Place,
    key: &'a [u8],
    what: impl Into<W>,
) {
    push_hashed(window, executor, place, (key, executor.hash(key)), what);
}

/// Puts what concerns no key into the window.
#[inline(always)]
pub(super) fn push_without_key<W>(window: &mut Window<'_, W>, place: Place, what: impl Into<W>) {
    let Place { connection, end } = place;
    let at = LookupStage::Absent;
    window.push(WindowOp { connection, end, hash: KeyHash(0), key: &[], at, what: what.into() });
}

/// As [`push`], for a key whose item has this hash.
#[inline(always)]
pub(super) fn push_hashed<'a, W>(
    window: &mut Window<'a, W>,
    executor: &Executor,
    place: Place,
    (key, hash): (&'a [u8], KeyHash),
    what: impl Into<W>,
) {
    let at = match key {
        [] => LookupStage::Absent,
        _ => LookupStage::Prefetched(executor.lookup().prefetch_bucket(hash)),
    };
    window.push(WindowOp { connection: place.connection, end: place.end, hash, key, at, what: what.into() });
}
