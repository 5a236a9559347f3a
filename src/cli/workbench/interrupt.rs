//! Signals that end a command early. The command then reports what it has.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use larder_sim::report::{Report, grouped, rounded};
use larder_sim::{Source, Stoppable};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::failure::Failure;

/// What the signals have asked for.
pub(super) struct Interrupt {
    /// Whether the work is to end.
    pub(super) stop: Arc<AtomicBool>,
    /// The first signal; 0 = none.
    signal: Arc<AtomicUsize>,
    /// How many requests the sources have given that it ends.
    passed: Arc<AtomicU64>,
}

impl Interrupt {
    /// Waits for SIGINT, SIGTERM and SIGHUP from now on. A second signal ends the program at once.
    pub(super) fn wait() -> Result<Interrupt, Failure> {
        use signal_hook::flag;
        let interrupt = Interrupt { stop: Arc::default(), signal: Arc::default(), passed: Arc::default() };
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            flag::register_conditional_shutdown(signal, 128 + signal, interrupt.stop.clone())
                .and_then(|_| flag::register_usize(signal, interrupt.signal.clone(), signal as usize))
                .and_then(|_| flag::register(signal, interrupt.stop.clone()))
                .map_err(|error| Failure::Failed(format!("cannot wait for signals: {error}")))?;
        }
        Ok(interrupt)
    }

    /// A source that ends when a signal comes.
    pub(super) fn ends(&self, source: Box<dyn Source>) -> Box<dyn Source> {
        Box::new(Stoppable::new(source, self.stop.clone(), self.passed.clone()))
    }

    /// How many requests the sources have given that it ends.
    pub(super) fn passed(&self) -> (u64, &'static str) {
        (self.passed.load(Ordering::Relaxed), "requests")
    }

    /// Marks the report if a signal has ended the work after this number of requests or reads (`unit`), and says how
    /// much of the trace that was if it is known. The failure is to be returned after the report is delivered.
    ///
    /// # Errors
    /// A signal has ended the work before there was anything to report.
    pub(super) fn mark(
        &self,
        report: &mut Report,
        done: (u64, &str),
        ratio: Option<f64>,
    ) -> Result<Option<Failure>, Failure> {
        let Some((status, done)) = self.ended(done, ratio)? else { return Ok(None) };
        report.mark_incomplete(&done);
        Ok(Some(Failure::Interrupted(status, format!("{done}: the report is incomplete"))))
    }

    /// The exit status and how far the work came, as in [`Interrupt::mark`], if a signal has ended it.
    ///
    /// # Errors
    /// A signal has ended the work before there was anything to report.
    pub(super) fn ended(
        &self,
        (count, unit): (u64, &str),
        ratio: Option<f64>,
    ) -> Result<Option<(u8, String)>, Failure> {
        let status = match self.signal.load(Ordering::Relaxed) {
            0 => return Ok(None),
            signal => 128 + signal as u8,
        };
        if count == 0 {
            return Err(Failure::Interrupted(status, "interrupted before anything was measured".to_owned()));
        }
        let share =
            ratio.map_or(String::new(), |ratio| format!(", {} % of the trace", rounded(ratio * 100.0, 2)));
        Ok(Some((status, format!("interrupted after {} {unit}{share}", grouped(count)))))
    }
}
