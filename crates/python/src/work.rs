//! Long work outside the interpreter's lock, which Ctrl-C ends.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Time between two looks at the signals of Python.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Does `work` on a thread of its own, while other threads of Python run. A signal of which Python makes an exception,
/// such as Ctrl-C, sets the flag that `work` gets; the exception is raised once `work` has returned.
///
/// # Errors
/// That exception, or a `ValueError` with the error of `work`.
pub(crate) fn interruptible<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(&Arc<AtomicBool>) -> Result<T, String> + Send,
) -> PyResult<T> {
    let stop = Arc::new(AtomicBool::new(false));
    py.detach(|| {
        thread::scope(|scope| {
            let (until_end, end) = channel::<()>();
            let worker = scope.spawn(|| {
                let _until_end = until_end;
                work(&stop)
            });
            let mut interrupt = Ok(());
            while end.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
                if interrupt.is_ok() {
                    interrupt = Python::attach(|py| py.check_signals());
                    stop.store(interrupt.is_err(), Ordering::Relaxed);
                }
            }
            let done = worker.join().unwrap_or_else(|panic| resume_unwind(panic));
            interrupt?;
            done.map_err(PyValueError::new_err)
        })
    })
}
