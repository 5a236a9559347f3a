//! The threads of the tier, and the same work without them.

use crate::flash::Flash;
use crate::options::Recover;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// How long a thread sleeps that nobody wakes.
const NAP: Duration = Duration::from_millis(100);

/// What the thread that reclaims and merges adds to its nice value: on a core that is wanted, it gets about a third of what
/// another thread gets. Where it falls behind, whole zones go unread.
const NICENESS: i32 = 5;

/// Lowers the priority of the calling thread. (On Linux the value is each thread's own.)
fn step_back() {
    if let Err(error) = rustix::process::nice(NICENESS) {
        tracing::debug!("flash: the priority of a thread stays as it is: {error}");
    }
}

/// How long what is not urgent goes on before it lets others have the core, which a worker may need, and what it leaves them.
const TURN_MAX: Duration = Duration::from_micros(100);
const PAUSE: Duration = Duration::from_micros(300);

/// Threads that were started.
pub(crate) type Threads = Vec<JoinHandle<()>>;

impl Flash {
    /// Called often by what reclaims and merges, with the time its turn began: lets others run if that was long enough ago, and
    /// nobody waits for what is reclaimed. A mere yield would not do: the scheduler owes more to who has slept for long than
    /// to who has been at work.
    pub(crate) fn breathe(&self, turn: &mut Instant) {
        self.breathe_unless(turn, || self.is_pressed());
    }

    /// The same for whoever knows himself whether he is waited for.
    pub(crate) fn breathe_unless(&self, turn: &mut Instant, is_pressed: impl Fn() -> bool) {
        if turn.elapsed() < TURN_MAX {
            return;
        }
        if self.threaded.load(SeqCst) && !is_pressed() {
            std::thread::sleep(PAUSE);
        }
        *turn = Instant::now();
    }

    /// There is work.
    pub(crate) fn wake(&self) {
        // Not missed: who sleeps looked at the number under the lock.
        *self.work.lock().expect("no panic under this lock") += 1;
        self.woken.notify_all();
    }

    pub(crate) fn start_threads(self: &Arc<Flash>) -> std::io::Result<()> {
        let mut threads = Vec::new();
        self.threaded.store(true, SeqCst);
        let mut start = |name: &str, run: fn(&Flash)| {
            let flash = self.clone();
            threads.push(Builder::new().name(name.into()).spawn(move || run(&flash))?);
            std::io::Result::Ok(())
        };
        if self.options.background_flush {
            start("flash-write", |flash| flash.work_until_stopped(|flash| flash.write_sealed()))?;
        }
        if self.options.background_reclaim {
            start("flash-reclaim", |flash| {
                step_back();
                flash.work_until_stopped(|flash| flash.reclaim_round());
            })?;
        }
        if self.recovering.load(SeqCst) {
            start("flash-recover", |flash| {
                let mut more = true;
                while more && !flash.stop.load(SeqCst) {
                    more = flash.recover_step();
                }
            })?;
        }
        if self.options.recover == Recover::Journal {
            start("flash-journal", |flash| {
                while flash.meta.wait_and_tend(NAP) {
                    flash.tell_commits();
                    flash.seal_for_journal();
                }
                flash.tell_commits();
            })?;
        } else {
            start("flash-meta", |flash| {
                flash.work_until_stopped(|flash| {
                    flash.meta.tend();
                    false
                });
            })?;
        }
        self.threads.lock().expect("no panic under this lock").append(&mut threads);
        Ok(())
    }

    fn work_until_stopped(&self, work: fn(&Flash) -> bool) {
        let mut seen = 0;
        while !self.stop.load(SeqCst) {
            if !work(self) {
                let waiting = self.work.lock().expect("no panic under this lock");
                let waited = self.woken.wait_timeout_while(waiting, NAP, |now| *now == seen);
                seen = *waited.expect("no panic under this lock").0;
            }
        }
    }

    /// Journal records go when their segments are durable.
    fn seal_for_journal(&self) {
        if self.meta.wants_seal() {
            self.seal(&mut self.append(), crate::segment::Kind::Log);
        }
        if self.meta.is_broken() {
            self.turn_off("the meta zones take nothing any more");
        }
    }

    pub(crate) fn stop_threads(&self) {
        self.stop.store(true, SeqCst);
        self.wake();
        self.meta.stop();
        let threads = std::mem::take(&mut *self.threads.lock().expect("no panic under this lock"));
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a thread of the flash tier panicked");
            }
        }
        // What is left to do is done without them, merges as well.
        self.stop.store(false, SeqCst);
        self.threaded.store(false, SeqCst);
    }

    pub(crate) fn tend_once(&self) {
        self.recover_step();
        let mut append = self.append();
        self.drain_fallback(&mut append);
        drop(append);
        self.seal_for_journal();
        self.write_sealed();
        self.commit_journal();
        self.reclaim_round();
        self.write_sealed();
    }
}
