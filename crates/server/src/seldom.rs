//! A line of the log about what may happen very often.

use std::time::{Duration, Instant};

/// How often one line is written.
const EVERY: Duration = Duration::from_secs(60);

/// Counts what happens, and has it logged once a minute at most.
#[derive(Debug, Default)]
pub(crate) struct Seldom {
    /// What has happened since the last line.
    unlogged: u64,
    logged: Option<Instant>,
}

impl Seldom {
    /// It has happened `times` more. `line` makes a line of how often it has happened since the line before.
    pub(crate) fn tell(&mut self, times: u64, line: impl FnOnce(u64) -> String) {
        self.unlogged += times;
        if self.unlogged > 0 && self.logged.is_none_or(|logged| logged.elapsed() >= EVERY) {
            self.logged = Some(Instant::now());
            let line = line(std::mem::take(&mut self.unlogged));
            tracing::warn!(target: "larder::refused", "{line}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_told_at_once_and_the_others_together() {
        let (mut seldom, mut told) = (Seldom::default(), Vec::new());
        for times in [0, 2, 3, 1] {
            seldom.tell(times, |count| {
                told.push(count);
                String::new()
            });
        }
        seldom.logged = Instant::now().checked_sub(EVERY);
        seldom.tell(0, |count| {
            told.push(count);
            String::new()
        });
        assert_eq!(told, [2, 4]);
    }
}
