//! Progress on the terminal: a bar where somebody looks, a line now and then where nobody does.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// How often a line is written where standard error is not a terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// A bar on standard error, from 0 to 1. Nothing is shown by a silent one.
pub struct Progress {
    shown: Shown,
}

enum Shown {
    Nothing,
    Bar(ProgressBar),
    Lines { what: String, last: Instant },
}

impl Progress {
    /// A bar that says `what` is going on.
    pub fn new(what: &str, silent: bool) -> Progress {
        let shown = if silent {
            Shown::Nothing
        } else if std::io::stderr().is_terminal() {
            let bar = ProgressBar::new(1000);
            if let Ok(style) =
                ProgressStyle::with_template("{prefix} [{bar:40}] {percent:>3}% {msg} eta {eta}")
            {
                bar.set_style(style.progress_chars("=> "));
            }
            bar.set_prefix(what.to_owned());
            Shown::Bar(bar)
        } else {
            Shown::Lines { what: what.to_owned(), last: Instant::now() }
        };
        Progress { shown }
    }

    /// `ratio` of the work is done (0 to 1); `message` is what else there is to say, such as a live rate.
    pub fn set(&mut self, ratio: f64, message: &str) {
        match &mut self.shown {
            Shown::Nothing => {}
            Shown::Bar(bar) => {
                bar.set_position((ratio.clamp(0.0, 1.0) * 1000.0) as u64);
                bar.set_message(message.to_owned());
            }
            Shown::Lines { what, last } => {
                if last.elapsed() >= LINE_EVERY {
                    *last = Instant::now();
                    eprintln!("{what}: {:.0} % {message}", ratio.clamp(0.0, 1.0) * 100.0);
                }
            }
        }
    }

    /// The work is done; the bar goes.
    pub fn finish(self) {
        if let Shown::Bar(bar) = self.shown {
            bar.finish_and_clear();
        }
    }
}
