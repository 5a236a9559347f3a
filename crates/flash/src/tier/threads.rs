//! The threads of the tier.
//!
//! | thread | does |
//! |---|---|
//! | `flash-write` | writes sealed segments |
//! | `flash-reclaim` | reclaims zones, merges |
//! | `flash-recover` | takes in segments of an earlier run, and ends |
//! | `flash-list` | walks over all items for listings |
//! | `flash-journal` | writes invalidations (mode `journal`) |
//! | `flash-meta` | reserves sequences (without a journal) |

use super::status::Status;
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle};

/// Threads that were started.
pub(crate) struct Threads {
    status: Arc<Status>,
    started: Mutex<Vec<JoinHandle<()>>>,
}

impl Threads {
    /// No threads yet.
    pub(crate) fn new(status: Arc<Status>) -> Threads {
        Threads { status, started: Mutex::default() }
    }

    fn started(&self) -> std::sync::MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.started.lock().expect("no panic under this lock")
    }

    /// Starts a thread.
    ///
    /// # Errors
    /// Of the operating system.
    pub(crate) fn start(
        &self,
        name: &str,
        run: impl FnOnce(&Status) + Send + 'static,
    ) -> std::io::Result<()> {
        let status = self.status.clone();
        status.set_threaded(true);
        let thread = Builder::new().name(name.into()).spawn(move || run(&status))?;
        self.started().push(thread);
        Ok(())
    }

    /// Ends all threads, and waits for them. `wake` wakes those that wait for something else than [`Status::wake`].
    pub(crate) fn stop(&self, wake: impl FnOnce()) {
        self.status.set_stopping(true);
        wake();
        let threads = std::mem::take(&mut *self.started());
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a thread of the flash tier panicked");
            }
        }
        // What is left to do is done by the caller, merges as well.
        self.status.set_stopping(false);
        self.status.set_threaded(false);
    }
}
