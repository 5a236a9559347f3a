//! The counts of a simulation: of the whole run, of each pass, and of windows of equally many GETs.

use super::{Totals, Window};

/// Counts, and where the present window and pass began.
pub(super) struct Tally {
    window_gets: u64,
    totals: Totals,
    window_begin: Totals,
    pass_begin: Totals,
    passes: Vec<Totals>,
    windows: Vec<Window>,
}

impl Tally {
    /// Nothing was counted yet. A window has `window_gets` GETs.
    ///
    /// # Errors
    /// A window without GETs.
    pub(super) fn new(window_gets: u64) -> Result<Tally, String> {
        if window_gets == 0 {
            return Err("a window of the report has at least one GET".to_owned());
        }
        Ok(Tally {
            window_gets,
            totals: Totals::default(),
            window_begin: Totals::default(),
            pass_begin: Totals::default(),
            passes: Vec::new(),
            windows: Vec::new(),
        })
    }

    /// The counts of the whole run.
    pub(super) fn totals(&self) -> &Totals {
        &self.totals
    }

    /// The counts of the whole run, to add to.
    pub(super) fn count(&mut self) -> &mut Totals {
        &mut self.totals
    }

    /// A GET was served. Returns whether its window is full.
    pub(super) fn window_is_full(&self) -> bool {
        self.totals.gets - self.window_begin.gets == self.window_gets
    }

    /// Ends a window in which the groups have `slabs` slabs.
    pub(super) fn close_window(&mut self, slabs: Vec<u32>) {
        let totals = self.totals.since(&self.window_begin);
        self.windows.push(Window { gets_end: self.totals.gets, totals, slabs });
        self.window_begin = self.totals;
    }

    /// Ends a pass over the trace.
    pub(super) fn end_pass(&mut self) {
        self.passes.push(self.totals.since(&self.pass_begin));
        self.pass_begin = self.totals;
    }

    /// The counts of the whole run, of the passes and of the windows. A last window that is not full is included if it
    /// has at least a tenth of its GETs.
    pub(super) fn finish(mut self, slabs: Vec<u32>) -> (Totals, Vec<Totals>, Vec<Window>) {
        if (self.totals.gets - self.window_begin.gets) * 10 >= self.window_gets {
            self.close_window(slabs);
        }
        (self.totals, self.passes, self.windows)
    }
}
