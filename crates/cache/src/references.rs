//! How references to keys get from the workers to the keeper: pages and a bounded queue (Catalyst's reference pools,
//! section 3.2.1 of the paper).
//!
//! A worker writes to a page of its own, which it shares with nobody. It exchanges a full page for an empty one at the
//! queue. If the keeper is late, the oldest page in the queue is dropped and counted: bookkeeping never slows a
//! request.

use crossbeam_queue::ArrayQueue;
use larder_temperature::{Digest, Reference};
use std::cell::RefCell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Bytes of a page of references.
const PAGE_BYTES: usize = 4096;
/// References that fit into a page.
const PAGE_REFERENCES: usize = PAGE_BYTES / size_of::<Reference>();
/// The most pages in the queue, if every reference is logged: a keeper that is busy with a pass for some milliseconds
/// loses none. And the same if only a sample is logged.
const QUEUE_PAGES_FOR_ALL: usize = 64;
const QUEUE_PAGES_FOR_A_SAMPLE: usize = 4;

/// The queue of pages that all workers write to and the keeper reads.
pub(crate) struct PageQueue<T> {
    /// Pages that wait for the keeper.
    full: ArrayQueue<Vec<T>>,
    /// Pages that were read.
    empty: ArrayQueue<Vec<T>>,
    /// Records that fit into a page.
    page_records: usize,
    dropped_pages: AtomicU64,
}

impl<T> PageQueue<T> {
    /// A queue for at most `pages` pages of `page_records` records.
    pub(crate) fn new(pages: usize, page_records: usize) -> PageQueue<T> {
        PageQueue {
            full: ArrayQueue::new(pages),
            empty: ArrayQueue::new(pages),
            page_records,
            dropped_pages: AtomicU64::new(0),
        }
    }

    fn empty_page(&self) -> Vec<T> {
        Vec::with_capacity(self.page_records)
    }

    /// Queues a page and puts an empty one in its place. Returns whether the keeper should be woken, because many pages
    /// wait now.
    fn exchange(&self, page: &mut Vec<T>) -> bool {
        let full = std::mem::take(page);
        if let Some(oldest) = self.full.force_push(full) {
            self.dropped_pages.fetch_add(1, Relaxed);
            self.give_back(oldest);
        }
        *page = self.empty.pop().unwrap_or_else(|| self.empty_page());
        self.full.len() * WAKE_SHARE >= self.full.capacity()
    }

    /// The oldest page that waits.
    pub(crate) fn take(&self) -> Option<Vec<T>> {
        self.full.pop()
    }

    /// A page that has been read.
    pub(crate) fn give_back(&self, mut page: Vec<T>) {
        page.clear();
        // If there are enough empty pages already, the memory of this one is freed.
        let _ = self.empty.push(page);
    }

    /// Pages dropped because the keeper was late.
    pub(crate) fn dropped_pages(&self) -> u64 {
        self.dropped_pages.load(Relaxed)
    }
}

/// References on their way to the keeper, and which of them are wanted.
pub(crate) struct ReferenceQueue {
    pub(crate) pages: PageQueue<Reference>,
    /// References whose digest is below this number are wanted, by the policy or for a curve.
    below: AtomicU32,
    /// Those that the policy wants.
    policy_below: AtomicU32,
    /// Those that a curve wants, of the cache or of a namespace.
    curve_below: AtomicU32,
    /// Those that the curve of the whole cache wants.
    whole_curve_below: AtomicU32,
}

impl ReferenceQueue {
    /// A queue for all references, or for a sample.
    pub(crate) fn new(for_all: bool) -> ReferenceQueue {
        ReferenceQueue {
            pages: PageQueue::new(queue_pages(for_all), PAGE_REFERENCES),
            below: AtomicU32::new(0),
            policy_below: AtomicU32::new(0),
            curve_below: AtomicU32::new(0),
            whole_curve_below: AtomicU32::new(0),
        }
    }

    /// Whether anybody wants a reference to this key.
    #[inline(always)]
    pub(crate) fn is_wanted(&self, digest: Digest) -> bool {
        // Relaxed: a few references more or fewer after a change do no harm.
        digest.bits() < self.below.load(Relaxed)
    }

    /// Whether the policy wants it.
    #[inline(always)]
    pub(crate) fn policy_wants(&self, digest: Digest) -> bool {
        digest.bits() < self.policy_below.load(Relaxed)
    }

    /// Whether a curve wants it, of the cache or of a namespace.
    #[inline(always)]
    pub(crate) fn curve_wants(&self, digest: Digest) -> bool {
        digest.bits() < self.curve_below.load(Relaxed)
    }

    /// Whether the curve of the whole cache wants it.
    pub(crate) fn whole_curve_wants(&self, digest: Digest) -> bool {
        digest.bits() < self.whole_curve_below.load(Relaxed)
    }

    /// The policy wants only references whose digest is below `below` from now on.
    pub(crate) fn policy_wants_below(&self, below: u32) {
        self.want(&self.policy_below, below);
    }

    /// The curve of the whole cache wants only references whose digest is below `whole` from now on, and those of
    /// namespaces want only references whose digest is below `namespaces`.
    pub(crate) fn curves_want_below(&self, whole: u32, namespaces: u32) {
        self.whole_curve_below.store(whole, Relaxed);
        self.want(&self.curve_below, whole.max(namespaces));
    }

    fn want(&self, whose: &AtomicU32, below: u32) {
        if whose.load(Relaxed) != below {
            whose.store(below, Relaxed);
            self.below.store(self.policy_below.load(Relaxed).max(self.curve_below.load(Relaxed)), Relaxed);
        }
    }
}

/// Pages that the queue holds.
fn queue_pages(for_all: bool) -> usize {
    if for_all { QUEUE_PAGES_FOR_ALL } else { QUEUE_PAGES_FOR_A_SAMPLE }
}

/// The most bytes of pages, if `workers` workers log all references, or a sample.
pub(crate) fn pages_bytes_max(workers: usize, for_all: bool) -> u64 {
    ((2 * queue_pages(for_all) + workers) * PAGE_BYTES) as u64
}

/// A worker's page.
pub(crate) struct PagePool<T>(RefCell<Vec<T>>);

impl<T> Default for PagePool<T> {
    fn default() -> PagePool<T> {
        PagePool(RefCell::default())
    }
}

/// The keeper is woken when an eighth of the queue is full.
const WAKE_SHARE: usize = 8;

impl<T> PagePool<T> {
    /// Writes a record. Returns whether the keeper should be woken.
    #[inline]
    pub(crate) fn push(&self, record: T, queue: &PageQueue<T>) -> bool {
        let mut page = self.0.borrow_mut();
        // A new pool's page has no room at all.
        if page.len() == page.capacity() {
            Self::turn_page(&mut page, record, queue)
        } else {
            page.push(record);
            false
        }
    }

    #[cold]
    #[inline(never)]
    fn turn_page(page: &mut Vec<T>, record: T, queue: &PageQueue<T>) -> bool {
        let wake = page.capacity() > 0 && queue.exchange(page);
        if page.capacity() == 0 {
            *page = queue.empty_page();
        }
        page.push(record);
        wake
    }

    /// Queues the records that were written so far.
    pub(crate) fn flush(&self, queue: &PageQueue<T>) {
        let mut page = self.0.borrow_mut();
        if !page.is_empty() {
            queue.exchange(&mut page);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    fn reference(n: u32) -> Reference {
        Reference::read(Digest::from_bits(n))
    }

    #[test]
    fn pages_come_in_order_and_the_oldest_is_dropped_when_nobody_takes_them() {
        let (queue, pool) = (PageQueue::new(QUEUE_PAGES_FOR_ALL, PAGE_REFERENCES), PagePool::default());
        let pages = QUEUE_PAGES_FOR_ALL as u32 + 3;
        let per_page = PAGE_REFERENCES as u32;
        let mut wakes = 0;
        for n in 0..pages * per_page {
            wakes += u32::from(pool.push(reference(n), &queue));
        }
        assert!(wakes > 0);
        pool.flush(&queue);
        assert_eq!(queue.dropped_pages(), 3);
        let mut expected = 3 * per_page;
        while let Some(page) = queue.take() {
            for found in &page {
                assert_eq!(*found, reference(expected));
                expected += 1;
            }
            queue.give_back(page);
        }
        assert_eq!(expected, pages * per_page);
        pool.flush(&queue);
        assert!(queue.take().is_none());
    }

    #[test]
    fn each_gets_the_references_below_its_own_bound() {
        let queue = ReferenceQueue::new(false);
        let asks = |bits| {
            let digest = Digest::from_bits(bits);
            (queue.is_wanted(digest), queue.policy_wants(digest), queue.curve_wants(digest))
        };
        assert_eq!(asks(0), (false, false, false));
        queue.policy_wants_below(10);
        assert_eq!((asks(9), asks(10)), ((true, true, false), (false, false, false)));
        queue.curves_want_below(20, 0);
        assert_eq!(
            (asks(9), asks(19), asks(20)),
            ((true, true, true), (true, false, true), (false, false, false))
        );
        queue.policy_wants_below(0);
        queue.curves_want_below(5, 0);
        assert_eq!((asks(4), asks(5)), ((true, false, true), (false, false, false)));
        queue.curves_want_below(5, 7);
        assert_eq!((asks(6), asks(7)), ((true, false, true), (false, false, false)));
        let whole = |bits| queue.whole_curve_wants(Digest::from_bits(bits));
        assert_eq!((whole(4), whole(5)), (true, false));
    }
}
