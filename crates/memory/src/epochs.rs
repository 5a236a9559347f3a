//! Quiescent-state reclamation: when may a retired column be written again?
//!
//! Goal: a reader pays one load per batch, and one store when the epoch moved. Non-goal: bounding how long a
//! reader that never announces anything can hold columns back; it must go offline before it sleeps.
//!
//! ```text
//!   retire (writer)                         quiesce (reader)              reusable_before (scanner)
//!   remove the entries from the index       ... reads of item bytes ...   fence(SeqCst)             [B]
//!   now.fetch_add(1, AcqRel)   [A] ------>  now.load(Acquire)     [A]     for every slot:
//!      = the stamp                          slot.store(Release)   [C] -->   slot.load(Acquire)      [C]
//!                                           ... reads of the index ...    stamp < smallest  =>  reusable
//!   online (reader): now.load(Acquire) [A], slot.store(Release) [C], fence(SeqCst) [B], reads of the index
//! ```
//!
//! The pairs, and what each buys:
//!
//! * **A** A reader that announces an epoch above a stamp has read `now` from that retirement or a later one
//!   (the additions form one release sequence), so it sees the index without the column's entries: it cannot
//!   find the column any more.
//! * **B** A reader coming online and a scanner cannot miss each other. Either the scanner's load sees the
//!   announcement, or the reader's fence comes after the scanner's, and then its index loads see every removal
//!   that happened before the scan.
//! * **C** What the reader read of the column before it announced (or went offline) happened before the scanner
//!   saw the announcement, hence before the column is handed out and overwritten.
//!
//! Registering and unregistering take the same lock as the scan, which orders them against it.

use crate::shim::{Arc, AtomicU64, Mutex, Ordering, fence, lock};

/// The announced epoch of one reader, alone on its cache line (two, for the adjacent-line prefetcher).
#[repr(align(128))]
struct Announcement {
    /// 0 = offline.
    announced: AtomicU64,
}

const OFFLINE: u64 = 0;

/// The global epoch and every reader's announcement.
pub(crate) struct Epochs {
    now: AtomicU64,
    slots: Mutex<Vec<Arc<Announcement>>>,
}

/// One reader's part in the epochs. Owned by one thread at a time.
pub(crate) struct Participant {
    slot: Arc<Announcement>,
    /// What the slot holds; only this participant writes it.
    announced: u64,
}

impl Epochs {
    pub(crate) fn new() -> Epochs {
        Epochs { now: AtomicU64::new(1), slots: Mutex::new(Vec::new()) }
    }

    /// A new participant, online.
    pub(crate) fn register(&self) -> Participant {
        let slot = Arc::new(Announcement { announced: AtomicU64::new(OFFLINE) });
        lock(&self.slots).push(slot.clone());
        let mut participant = Participant { slot, announced: OFFLINE };
        participant.online(self);
        participant
    }

    /// Forgets a participant, which holds nothing back from here on.
    pub(crate) fn unregister(&self, participant: &mut Participant) {
        participant.offline();
        lock(&self.slots).retain(|slot| !Arc::ptr_eq(slot, &participant.slot));
    }

    /// Stamps something that nobody can find any more. All removals from the index happen before this call.
    pub(crate) fn retire(&self) -> u64 {
        // AcqRel: pair A; Acquire also chains this retirement after those of other threads.
        self.now.fetch_add(1, Ordering::AcqRel)
    }

    /// Whatever was stamped with less than the answer is unreachable and may be written.
    pub(crate) fn reusable_before(&self) -> u64 {
        let slots = lock(&self.slots);
        // Pair B. The removals of everything stamped so far happen before this fence, because the caller got
        // the stamps from `retire` or from somebody who did.
        fence(Ordering::SeqCst);
        let mut before = self.now.load(Ordering::Acquire);
        for slot in slots.iter() {
            // Pair C.
            let announced = slot.announced.load(Ordering::Acquire);
            if announced != OFFLINE {
                before = before.min(announced);
            }
        }
        before
    }
}

impl Participant {
    /// Whether this participant is online.
    #[inline]
    pub(crate) fn is_online(&self) -> bool {
        self.announced != OFFLINE
    }

    /// Holds no location and no bytes from before this call. Does nothing offline.
    #[inline]
    pub(crate) fn quiesce(&mut self, epochs: &Epochs) {
        // Pair A.
        let now = epochs.now.load(Ordering::Acquire);
        // While the epoch stands still nothing was retired since the last announcement, so there is nothing
        // that a new one could set free.
        if now != self.announced && self.is_online() {
            self.announce(now);
        }
    }

    /// Holds nothing, and will read nothing until [`Participant::online`].
    pub(crate) fn offline(&mut self) {
        self.announce(OFFLINE);
    }

    /// Comes back. Does nothing if already online.
    pub(crate) fn online(&mut self, epochs: &Epochs) {
        if self.is_online() {
            return;
        }
        self.announce(epochs.now.load(Ordering::Acquire)); // Pair A.
        fence(Ordering::SeqCst); // Pair B.
    }

    #[inline]
    fn announce(&mut self, epoch: u64) {
        self.announced = epoch;
        // Pair C.
        self.slot.announced.store(epoch, Ordering::Release);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::atomic::AtomicUsize;
    use loom::thread;

    /// One entry of an index, and the column it leads to. loom reports a write that races with a read.
    struct Toy {
        epochs: Epochs,
        /// 1 = leads to the column, 0 = empty.
        entry: AtomicUsize,
        column: UnsafeCell<u64>,
    }

    impl Toy {
        fn new() -> Arc<Toy> {
            let toy = Toy { epochs: Epochs::new(), entry: AtomicUsize::new(1), column: UnsafeCell::new(7) };
            Arc::new(toy)
        }

        fn read(&self) {
            if self.entry.load(Ordering::Acquire) == 1 {
                // SAFETY: loom checks that no write races with this read; that is the point of the test.
                self.column.with(|column| assert_eq!(unsafe { *column }, 7));
            }
        }

        fn remove_and_retire(&self) -> u64 {
            self.entry.store(0, Ordering::Release);
            self.epochs.retire()
        }

        /// Overwrites the column if the epochs allow it.
        fn try_reuse(&self, stamp: u64) -> bool {
            let reusable = stamp < self.epochs.reusable_before();
            if reusable {
                // SAFETY: as in `read`.
                self.column.with_mut(|column| unsafe { *column = 8 });
            }
            reusable
        }
    }

    #[test]
    fn loom_a_quiescent_point_orders_reads_before_reuse() {
        loom::model(|| {
            let toy = Toy::new();
            let mut participant = toy.epochs.register();
            let reader = thread::spawn({
                let toy = toy.clone();
                move || {
                    toy.read();
                    participant.quiesce(&toy.epochs);
                    toy.read();
                }
            });
            let stamp = toy.remove_and_retire();
            toy.try_reuse(stamp);
            reader.join().unwrap();
        });
    }

    #[test]
    fn loom_coming_online_and_the_scan_cannot_miss_each_other() {
        loom::model(|| {
            let toy = Toy::new();
            let mut participant = toy.epochs.register();
            participant.offline();
            let reader = thread::spawn({
                let toy = toy.clone();
                move || {
                    participant.online(&toy.epochs);
                    toy.read();
                    participant.offline();
                }
            });
            let stamp = toy.remove_and_retire();
            toy.try_reuse(stamp);
            reader.join().unwrap();
        });
    }

    #[test]
    fn loom_a_reader_that_registers_late_cannot_find_what_is_reused() {
        loom::model(|| {
            let toy = Toy::new();
            let reader = thread::spawn({
                let toy = toy.clone();
                move || {
                    let mut participant = toy.epochs.register();
                    toy.read();
                    toy.epochs.unregister(&mut participant);
                }
            });
            let stamp = toy.remove_and_retire();
            toy.try_reuse(stamp);
            reader.join().unwrap();
        });
    }

    /// The remover, the one who retires and the one who reuses are three threads.
    #[test]
    fn loom_a_scan_by_another_thread_reuses_safely() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let toy = Toy::new();
            let stamp = Arc::new(AtomicU64::new(u64::MAX));
            let mut participant = toy.epochs.register();
            let reader = thread::spawn({
                let toy = toy.clone();
                move || {
                    toy.read();
                    participant.quiesce(&toy.epochs);
                    toy.read();
                    participant.offline();
                }
            });
            let scanner = thread::spawn({
                let (toy, stamp) = (toy.clone(), stamp.clone());
                move || {
                    let stamp = stamp.load(Ordering::Acquire);
                    toy.try_reuse(stamp);
                }
            });
            stamp.store(toy.remove_and_retire(), Ordering::Release);
            reader.join().unwrap();
            scanner.join().unwrap();
        });
    }

    /// The test tells the accident: with everybody offline the column is reused at once.
    #[test]
    fn loom_nothing_is_held_back_when_everybody_is_offline() {
        loom::model(|| {
            let toy = Toy::new();
            let mut participant = toy.epochs.register();
            participant.offline();
            let stamp = toy.remove_and_retire();
            assert!(toy.try_reuse(stamp));
        });
    }
}
