//! The gate: a worker may ask to be alone for a moment, in which no other worker reads or changes items.
//!
//! A transaction is executed alone, so that nothing happens between its commands. Everything else passes the gate once
//! a turn, with one store, one fence and one load.
//!
//! ```text
//!   worker that passes                     worker that wants to be alone
//!   inside[n] = true                       closed = true
//!   fence           (pair D)               fence           (pair D)
//!   closed?                                inside[each other]?   waits until none is
//!     yes: inside[n] = false, waits
//! ```
//!
//! Of two sequentially consistent fences one comes first: either the worker that passes sees the gate closed, or the
//! other sees it inside. So the two are never both inside.
//!
//! A worker that waits, for the gate or for others to leave, must not be online: the one that is alone may need columns
//! that come back only when all others have let go.

use crate::shim::{AtomicBool, AtomicU64, Mutex, MutexGuard, Ordering, fence, lock, wait_a_little};
use std::time::{Duration, Instant};

/// How often a worker looks whether the gate is open again before it sleeps.
#[cfg(not(loom))]
const LOOKS_BEFORE_SLEEP: u32 = 16;
#[cfg(loom)]
const LOOKS_BEFORE_SLEEP: u32 = 1;
/// How often it tries to enter a gate that it saw open, before it sleeps.
const TRIES_BEFORE_SLEEP: u32 = if cfg!(loom) { 1 } else { 16 };
/// A worker that has waited for this time is let in before another is alone once more.
const PATIENCE: Duration = Duration::from_micros(500);
/// How often a worker that wants to be alone looks whether those before it are in. (loom knows no time.)
const LOOKS_FOR_OTHERS: u32 = if cfg!(loom) { 0 } else { 200 };

/// One worker, on a cache line of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Passer {
    is_inside: AtomicBool,
    /// Since when it has waited for the mutex, in nanoseconds after the gate was made; 0 = it does not wait.
    waits_since: AtomicU64,
}

/// The gate of all workers.
#[derive(Debug)]
pub struct Gate {
    workers: Box<[Passer]>,
    closed: AtomicBool,
    /// The worker that is alone will be for long.
    is_long: AtomicBool,
    began: Instant,
    /// Held by the worker that is alone.
    alone: Mutex<()>,
}

/// The worker is alone until this is dropped. Then it is inside as before.
#[derive(Debug)]
pub struct Alone<'g> {
    gate: &'g Gate,
    worker: usize,
    turn: Option<MutexGuard<'g, ()>>,
}

impl Gate {
    /// A gate for `workers` workers, none of which is inside.
    pub fn new(workers: usize) -> Gate {
        Gate {
            workers: (0..workers)
                .map(|_| Passer { is_inside: AtomicBool::new(false), waits_since: AtomicU64::new(0) })
                .collect(),
            closed: AtomicBool::new(false),
            is_long: AtomicBool::new(false),
            began: Instant::now(),
            alone: Mutex::new(()),
        }
    }

    /// Goes inside, until [`Gate::leave`]. Returns `false` if the gate is closed: then the worker goes offline and
    /// calls [`Gate::wait_to_enter`]. `worker` counts from 0, and each number belongs to one thread.
    #[inline]
    pub fn enter(&self, worker: usize) -> bool {
        self.workers[worker].is_inside.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst); // Pair D.
        // Acquire pairs with the Release of `Alone::drop`: what was done alone is seen.
        if self.closed.load(Ordering::Acquire) {
            self.leave(worker);
            return false;
        }
        true
    }

    /// Goes outside.
    #[inline]
    pub fn leave(&self, worker: usize) {
        // Release pairs with the Acquire of `be_alone`: what was done inside is seen by the one that is alone.
        self.workers[worker].is_inside.store(false, Ordering::Release);
    }

    /// Goes inside when the gate is open again. The worker is offline.
    #[cold]
    pub fn wait_to_enter(&self, worker: usize) {
        for _ in 0..TRIES_BEFORE_SLEEP {
            if !self.is_open_soon() {
                break;
            }
            if self.enter(worker) {
                return;
            }
        }
        // Whoever holds this is the only one that can close the gate.
        let turn = self.wait(worker);
        let is_inside = self.enter(worker);
        debug_assert!(is_inside);
        drop(turn);
    }

    /// Waits until no other worker is alone, and keeps it so.
    fn wait(&self, worker: usize) -> MutexGuard<'_, ()> {
        let since = &self.workers[worker].waits_since;
        since.store(self.began.elapsed().as_nanos() as u64, Ordering::Relaxed);
        let turn = lock(&self.alone);
        since.store(0, Ordering::Relaxed);
        turn
    }

    /// Whether a worker has waited for long.
    fn keeps_waiting(&self) -> bool {
        let least = self.began.elapsed().saturating_sub(PATIENCE).as_nanos() as u64;
        self.workers.iter().any(|worker| (1..least).contains(&worker.waits_since.load(Ordering::Relaxed)))
    }

    /// Whether the gate opens while the worker looks at it. Most who are alone are for some microseconds, which is less
    /// than it takes to sleep and to be woken.
    fn is_open_soon(&self) -> bool {
        for looks in 1..=LOOKS_BEFORE_SLEEP {
            if !self.closed.load(Ordering::Acquire) {
                return true;
            }
            if self.is_long.load(Ordering::Relaxed) {
                break;
            }
            wait_a_little(looks);
        }
        false
    }

    /// Waits until no other worker is inside, and keeps them out. The worker is inside and offline. `is_long`: others
    /// had better sleep meanwhile.
    pub fn be_alone(&self, worker: usize, is_long: bool) -> Alone<'_> {
        // Outside while it waits: another worker may want to be alone too.
        self.leave(worker);
        for looks in 1..=LOOKS_FOR_OTHERS {
            if !self.keeps_waiting() {
                break;
            }
            wait_a_little(looks);
        }
        self.is_open_soon();
        let turn = self.wait(worker);
        self.is_long.store(is_long, Ordering::Relaxed);
        self.closed.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst); // Pair D.
        for (_, other) in self.workers.iter().enumerate().filter(|(number, _)| *number != worker) {
            let mut looks = 0;
            while other.is_inside.load(Ordering::Acquire) {
                looks += 1;
                wait_a_little(looks);
            }
        }
        Alone { gate: self, worker, turn: Some(turn) }
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        // Inside before the gate opens, so that nobody is alone in between. The mutex orders this for the next one that
        // is. A worker that panics leaves for good.
        self.gate.workers[self.worker].is_inside.store(!std::thread::panicking(), Ordering::Relaxed);
        self.gate.closed.store(false, Ordering::Release);
        self.turn = None;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    /// Two counters that are always changed together: by workers that are alone, and looked at by others.
    #[test]
    fn nobody_is_inside_with_a_worker_that_is_alone() {
        const WORKERS: usize = 4;
        const ROUNDS: u64 = if cfg!(miri) { 30 } else { 20_000 };
        let gate = Gate::new(WORKERS);
        let counters = [AtomicU64::new(0), AtomicU64::new(0)];
        std::thread::scope(|scope| {
            for worker in 0..WORKERS {
                let (gate, counters) = (&gate, &counters);
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        if !gate.enter(worker) {
                            gate.wait_to_enter(worker);
                        }
                        if round % 3 == 0 && worker < 2 {
                            let _alone = gate.be_alone(worker, round % 2 == 0);
                            for counter in counters {
                                let before = counter.load(Ordering::Relaxed);
                                std::hint::spin_loop();
                                counter.store(before + 1, Ordering::Relaxed);
                            }
                        }
                        let [a, b] = [0, 1].map(|at: usize| counters[at].load(Ordering::Relaxed));
                        assert_eq!(a, b);
                        gate.leave(worker);
                    }
                });
            }
        });
        assert_eq!(counters[0].load(Ordering::Relaxed), 2 * ROUNDS.div_ceil(3));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    /// What only a worker that is inside reads, and only one that is alone writes.
    struct Shared {
        gate: Gate,
        value: UnsafeCell<u32>,
    }

    impl Shared {
        fn new() -> Arc<Shared> {
            Arc::new(Shared { gate: Gate::new(2), value: UnsafeCell::new(0) })
        }

        /// One turn, in which the worker reads.
        fn pass(&self, worker: usize) -> u32 {
            if !self.gate.enter(worker) {
                self.gate.wait_to_enter(worker);
            }
            // SAFETY: loom checks that no write races with this read, which is the purpose of the test.
            let seen = self.value.with(|value| unsafe { *value });
            self.gate.leave(worker);
            seen
        }

        /// One turn, in which the worker is alone and writes.
        fn change(&self, worker: usize) {
            if !self.gate.enter(worker) {
                self.gate.wait_to_enter(worker);
            }
            let alone = self.gate.be_alone(worker, false);
            // SAFETY: loom checks that nothing races with this write.
            self.value.with_mut(|value| unsafe { *value += 1 });
            drop(alone);
            self.gate.leave(worker);
        }
    }

    // SAFETY: the gate orders the accesses, which loom checks.
    unsafe impl Sync for Shared {}

    #[test]
    fn loom_a_worker_that_passes_sees_all_or_nothing_of_one_that_is_alone() {
        loom::model(|| {
            let shared = Shared::new();
            let other = shared.clone();
            let changes = thread::spawn(move || other.change(1));
            let first = shared.pass(0);
            assert!(first <= shared.pass(0));
            changes.join().expect("it does not panic");
            assert_eq!(shared.pass(0), 1);
        });
    }

    #[test]
    fn loom_two_workers_are_alone_one_after_the_other() {
        loom::model(|| {
            let shared = Shared::new();
            let other = shared.clone();
            let changes = thread::spawn(move || other.change(1));
            shared.change(0);
            changes.join().expect("it does not panic");
            assert_eq!(shared.pass(0), 2);
        });
    }
}
