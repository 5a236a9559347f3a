//! The counts of a simulation: of the whole run, of each pass, and of windows of equally many GETs.

use larder_sim::Request;

/// Counts over some requests. Only GETs count for the hit ratio and the service time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// GETs.
    pub(crate) gets: u64,
    /// GETs that were hits.
    pub(crate) hits: u64,
    /// Bytes of key and value of all GETs.
    pub(crate) bytes: u64,
    /// Bytes of key and value of the hits.
    pub(crate) hit_bytes: u64,
    /// Sum of the service times of all GETs in microseconds: a constant per hit, the penalty per miss.
    pub(crate) service_us: u64,
    /// Items not stored because no slot is large enough.
    pub(crate) too_large: u64,
    /// Items not stored because their group has no slab and got none.
    pub(crate) without_slab: u64,
    /// Slabs moved between groups.
    pub(crate) slabs_moved: u64,
}

impl Totals {
    /// Hits per GET; 0 without GETs.
    pub(crate) fn hit_ratio(&self) -> f64 {
        self.hits as f64 / self.gets.max(1) as f64
    }

    /// Bytes hit per byte asked for; 0 where the requests have no sizes.
    pub(crate) fn byte_hit_ratio(&self) -> f64 {
        self.hit_bytes as f64 / self.bytes.max(1) as f64
    }

    /// Counts a GET that took `service_us`.
    pub(super) fn get(&mut self, request: &Request, hit: bool, service_us: u32) {
        self.gets += 1;
        self.bytes += request.item_bytes();
        if hit {
            self.hits += 1;
            self.hit_bytes += request.item_bytes();
        }
        self.service_us += u64::from(service_us);
    }

    /// Mean service time of a GET in milliseconds.
    pub(crate) fn service_ms(&self) -> f64 {
        self.service_us as f64 / self.gets.max(1) as f64 / 1000.0
    }

    /// The counts since `before`.
    fn since(&self, before: &Totals) -> Totals {
        Totals {
            gets: self.gets - before.gets,
            hits: self.hits - before.hits,
            bytes: self.bytes - before.bytes,
            hit_bytes: self.hit_bytes - before.hit_bytes,
            service_us: self.service_us - before.service_us,
            too_large: self.too_large - before.too_large,
            without_slab: self.without_slab - before.without_slab,
            slabs_moved: self.slabs_moved - before.slabs_moved,
        }
    }
}

/// One window of the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    /// GETs since the start, at the end of the window.
    pub(crate) gets_end: u64,
    /// Counts of the window.
    pub(crate) totals: Totals,
    /// Slabs of each group at the end of the window. Empty for a scheme without slabs.
    pub(crate) slabs: Vec<u32>,
}

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
