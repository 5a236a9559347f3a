//! How references to keys get from the workers to the keeper: pages and a bounded queue (Catalyst's reference pools, section
//! 3.2.1 of the paper).
//!
//! A worker writes to a page of its own, which it shares with nobody. It exchanges a full page for an empty one at the queue.
//! If the keeper is late, the oldest page in the queue is dropped and counted: bookkeeping never slows a request.

use crossbeam_queue::ArrayQueue;
use larder_temperature::Reference;
use std::cell::RefCell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Bytes of a page.
const PAGE_BYTES: usize = 4096;
/// References that fit into a page.
const PAGE_REFERENCES: usize = PAGE_BYTES / size_of::<Reference>();
/// The most pages in the queue, if every reference is logged: a keeper that is busy with a pass for some milliseconds loses none.
/// And the same if only a sample is logged.
const QUEUE_PAGES_FOR_ALL: usize = 64;
const QUEUE_PAGES_FOR_A_SAMPLE: usize = 4;

/// A page of references.
pub(crate) type Page = Vec<Reference>;

fn empty_page() -> Page {
    Vec::with_capacity(PAGE_REFERENCES)
}

/// The queue that all workers write to and the keeper reads.
pub(crate) struct ReferenceQueue {
    /// Pages that wait for the keeper.
    full: ArrayQueue<Page>,
    /// Pages that were read.
    empty: ArrayQueue<Page>,
    /// Only references whose digest is below this number are wanted.
    below: AtomicU32,
    dropped_pages: AtomicU64,
}

impl ReferenceQueue {
    /// A queue for all references, or for a sample.
    pub(crate) fn new(for_all: bool) -> ReferenceQueue {
        let pages = queue_pages(for_all);
        ReferenceQueue {
            full: ArrayQueue::new(pages),
            empty: ArrayQueue::new(pages),
            below: AtomicU32::new(0),
            dropped_pages: AtomicU64::new(0),
        }
    }

    /// Whether a reference is wanted.
    #[inline(always)]
    pub(crate) fn wants(&self, reference: Reference) -> bool {
        // Relaxed: a few references more or fewer after a change do no harm.
        reference.digest().bits() < self.below.load(Relaxed)
    }

    /// Only references whose digest is below `below` are wanted from now on.
    pub(crate) fn want_below(&self, below: u32) {
        if self.below.load(Relaxed) != below {
            self.below.store(below, Relaxed);
        }
    }

    /// Queues a page and puts an empty one in its place. Returns whether so many pages wait now that the keeper should be woken.
    fn exchange(&self, page: &mut Page) -> bool {
        let full = std::mem::take(page);
        if let Some(oldest) = self.full.force_push(full) {
            self.dropped_pages.fetch_add(1, Relaxed);
            self.give_back(oldest);
        }
        *page = self.empty.pop().unwrap_or_else(empty_page);
        self.full.len() * WAKE_SHARE >= self.full.capacity()
    }

    /// The oldest page that waits.
    pub(crate) fn take(&self) -> Option<Page> {
        self.full.pop()
    }

    /// A page that has been read.
    pub(crate) fn give_back(&self, mut page: Page) {
        page.clear();
        // If there are enough empty pages already, the memory of this one is freed.
        let _ = self.empty.push(page);
    }

    /// Pages dropped because the keeper was late.
    pub(crate) fn dropped_pages(&self) -> u64 {
        self.dropped_pages.load(Relaxed)
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
#[derive(Default)]
pub(crate) struct ReferencePool(RefCell<Page>);

/// The keeper is woken when one part in so many of the queue is full.
const WAKE_SHARE: usize = 8;

impl ReferencePool {
    /// Writes a reference. Returns whether the keeper should be woken.
    #[inline]
    pub(crate) fn push(&self, reference: Reference, queue: &ReferenceQueue) -> bool {
        let mut page = self.0.borrow_mut();
        // A new pool's page has no room at all.
        if page.len() == page.capacity() {
            Self::turn_page(&mut page, reference, queue)
        } else {
            page.push(reference);
            false
        }
    }

    #[cold]
    #[inline(never)]
    fn turn_page(page: &mut Page, reference: Reference, queue: &ReferenceQueue) -> bool {
        let wake = page.capacity() > 0 && queue.exchange(page);
        if page.capacity() == 0 {
            *page = empty_page();
        }
        page.push(reference);
        wake
    }

    /// Queues the references that were written so far.
    pub(crate) fn flush(&self, queue: &ReferenceQueue) {
        let mut page = self.0.borrow_mut();
        if !page.is_empty() {
            queue.exchange(&mut page);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_temperature::Digest;

    fn reference(n: u32) -> Reference {
        Reference::read(Digest::from_bits(n))
    }

    #[test]
    fn pages_come_in_order_and_the_oldest_is_dropped_when_nobody_takes_them() {
        let (queue, pool) = (ReferenceQueue::new(true), ReferencePool::default());
        queue.want_below(u32::MAX);
        let pages = QUEUE_PAGES_FOR_ALL as u32 + 3;
        let per_page = PAGE_REFERENCES as u32;
        let mut wakes = 0;
        for n in 0..pages * per_page {
            assert!(queue.wants(reference(n)));
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
    fn only_references_below_the_bound_are_wanted() {
        let queue = ReferenceQueue::new(false);
        assert!(!queue.wants(reference(0)));
        queue.want_below(10);
        assert!(queue.wants(reference(9)) && !queue.wants(reference(10)));
        assert!(queue.wants(Reference::store(Digest::from_bits(9))));
    }
}
