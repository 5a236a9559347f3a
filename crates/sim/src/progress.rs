//! Progress of a long run: a bar on a terminal, or a line every few seconds in a log.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Time between two lines where standard error is not a terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// A progress display on standard error. A silent one shows nothing.
pub struct Progress {
    output: Output,
}

enum Output {
    Nothing,
    Bar(ProgressBar),
    Lines { what: String, last: Instant },
}

impl Progress {
    /// Starts a display; `what` names the work.
    pub fn new(what: &str, silent: bool) -> Progress {
        let output = if silent {
            Output::Nothing
        } else if std::io::stderr().is_terminal() {
            let bar = ProgressBar::new(1000);
            if let Ok(style) =
                ProgressStyle::with_template("{prefix} [{bar:40}] {percent:>3}% {msg} eta {eta}")
            {
                bar.set_style(style.progress_chars("=> "));
            }
            bar.set_prefix(what.to_owned());
            Output::Bar(bar)
        } else {
            Output::Lines { what: what.to_owned(), last: Instant::now() }
        };
        Progress { output }
    }

    /// Shows that the share `ratio` of the work is done (0 to 1), with a message such as the current rate.
    pub fn set(&mut self, ratio: f64, message: &str) {
        match &mut self.output {
            Output::Nothing => {}
            Output::Bar(bar) => {
                bar.set_position((ratio.clamp(0.0, 1.0) * 1000.0) as u64);
                bar.set_message(message.to_owned());
            }
            Output::Lines { what, last } => {
                if last.elapsed() >= LINE_EVERY {
                    *last = Instant::now();
                    eprintln!("{what}: {:.0} % {message}", ratio.clamp(0.0, 1.0) * 100.0);
                }
            }
        }
    }

    /// Removes the display.
    pub fn finish(self) {
        if let Output::Bar(bar) = self.output {
            bar.finish_and_clear();
        }
    }
}
