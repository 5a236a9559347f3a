//! Quiescent-state reclamation: when may a retired column be written again?
//!
//! Goal: a reader pays one load per batch, and one store if the epoch has moved. Non-goal: a bound on how long a
//! reader that announces nothing can hold columns back. Such a reader must go offline before it sleeps.
//!
//! ```text
//!   retire (writer)                         quiesce (reader)              reusable_before (scanner)
//!   remove the entries from the index       ... reads of item bytes ...   fence(SeqCst)             [B]
//!   now.fetch_add(1, AcqRel)   [A] ------>  now.load(Acquire)     [A]     for every reader:
//!      = the stamp                          epoch.store(Release)  [C] -->   epoch.load(Acquire)     [C]
//!                                           ... reads of the index ...    stamp < smallest  =>  reusable
//!   online (reader): now.load(Acquire) [A], epoch.store(Release) [C], fence(SeqCst) [B], reads of the index
//! ```
//!
//! What each pair of orderings guarantees:
//!
//! * **A** A reader that announces an epoch above a stamp has read `now` from that retirement or a later one,
//!   because the additions form one release sequence. It therefore sees the index without the entries of the
//!   column, and can no longer find the column.
//! * **B** A reader that comes online and a scanner cannot miss each other. Either the load of the scanner sees the
//!   announcement, or the fence of the reader comes after the fence of the scanner. In the second case the reader's
//!   loads of the index see every removal that happened before the scan.
//! * **C** What the reader read from the column before it announced an epoch or went offline happened before the
//!   scanner saw the announcement. It therefore happened before the column is handed out and overwritten.
//!
//! Registering and unregistering take the same lock as the scan, which orders them against it.

use crate::shim::{Arc, AtomicU64, Mutex, Ordering, fence, lock};

/// The announced epoch of one reader. It is aligned to two cache lines because processors fetch neighbouring lines
/// in pairs.
#[repr(align(128))]
struct Announcement {
    /// The epoch, or 0 while the reader is offline.
    announced: AtomicU64,
}

const OFFLINE: u64 = 0;

/// The global epoch and the announcements of all readers.
pub(crate) struct Epochs {
    now: AtomicU64,
    slots: Mutex<Vec<Arc<Announcement>>>,
}

/// One reader's part in the epochs. One thread owns it at a time.
pub(crate) struct Participant {
    slot: Arc<Announcement>,
    /// The value in `slot`, which only this participant writes.
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

    /// Removes a participant, which from then on holds nothing back.
    pub(crate) fn unregister(&self, participant: &mut Participant) {
        participant.offline();
        lock(&self.slots).retain(|slot| !Arc::ptr_eq(slot, &participant.slot));
    }

    /// Returns the stamp of something that no reader can find any more. All removals from the index happen before
    /// this call.
    pub(crate) fn retire(&self) -> u64 {
        // AcqRel: Release is pair A. Acquire chains this retirement after those of other threads.
        self.now.fetch_add(1, Ordering::AcqRel)
    }

    /// Everything with a stamp below the result is unreachable and may be overwritten.
    pub(crate) fn reusable_before(&self) -> u64 {
        let slots = lock(&self.slots);
        // Pair B. The removals of everything stamped so far happen before this fence: the caller got the stamps
        // from `retire`, or from a thread that did.
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

    /// Announces that the participant holds no location and no bytes from before this call. Does nothing if it is
    /// offline.
    #[inline]
    pub(crate) fn quiesce(&mut self, epochs: &Epochs) {
        // Pair A.
        let now = epochs.now.load(Ordering::Acquire);
        // While the epoch has not moved, nothing was retired since the last announcement, so a new announcement
        // would free nothing.
        if now != self.announced && self.is_online() {
            self.announce(now);
        }
    }

    /// Announces that the participant holds nothing, and will read nothing until [`Participant::online`].
    pub(crate) fn offline(&mut self) {
        self.announce(OFFLINE);
    }

    /// Brings the participant back online. Does nothing if it is online already.
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

    /// One index entry and the column it leads to. Loom reports a write that races with a read.
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
                // SAFETY: loom checks that no write races with this read, which is the purpose of the test.
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

    /// Three threads: one removes and retires, one reads, one reuses.
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

    /// Shows that the other tests test something: with every reader offline the column is reused at once.
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
