//! Sources of requests.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

use crate::{Fields, Request};

/// Requests per call of [`Source::fill`]: enough to make the cost of the call negligible, few enough to stay in the
/// CPU cache.
pub const CHUNK_REQUESTS: usize = 16 * 1024;

/// The reason why a source cannot continue: one line that names the file and line, or the parameter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceError(pub String);

impl SourceError {
    /// An error with this text.
    pub fn new(text: impl Into<String>) -> SourceError {
        SourceError(text.into())
    }
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SourceError {}

/// A stream of requests, in order. A source holds only a small buffer, so a trace may be larger than memory.
pub trait Source: Send {
    /// Appends up to `most` further requests to `into` and returns how many were added; 0 means the end of the
    /// source.
    ///
    /// # Errors
    /// A line that cannot be read, with its number and the reason. All requests before that line have been delivered
    /// by then. A truncated file is no error: the requests that could be read are delivered, and [`Source::notices`]
    /// mentions the truncation.
    fn fill(&mut self, into: &mut Vec<Request>, most: usize) -> Result<usize, SourceError>;

    /// The fields of the requests that this source knows.
    fn fields(&self) -> Fields;

    /// A description for a report: the name of the file, or the parameters of the workload.
    fn describe(&self) -> String;

    /// A short name for a title: the file without its folder, or a workload with what was chosen of it.
    fn name(&self) -> String {
        self.describe()
    }

    /// Progress from 0 to 1, if known.
    fn done_ratio(&self) -> Option<f64>;

    /// The total number of requests, if known in advance.
    fn requests_hint(&self) -> Option<u64> {
        None
    }

    /// Remarks for the user, such as "the file is truncated" or "3 lines were skipped".
    fn notices(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Another source, which ends early when a flag is set, and counts its requests.
pub struct Stoppable {
    inner: Box<dyn Source>,
    stop: Arc<AtomicBool>,
    passed: Arc<AtomicU64>,
}

impl Stoppable {
    /// The requests of `inner` until `stop` is set. Their number is added to `passed`.
    pub fn new(inner: Box<dyn Source>, stop: Arc<AtomicBool>, passed: Arc<AtomicU64>) -> Stoppable {
        Stoppable { inner, stop, passed }
    }
}

impl Source for Stoppable {
    fn fill(&mut self, into: &mut Vec<Request>, most: usize) -> Result<usize, SourceError> {
        let got = if self.stop.load(Relaxed) { 0 } else { self.inner.fill(into, most)? };
        self.passed.fetch_add(got as u64, Relaxed);
        Ok(got)
    }

    fn fields(&self) -> Fields {
        self.inner.fields()
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn name(&self) -> String {
        self.inner.name()
    }

    fn done_ratio(&self) -> Option<f64> {
        self.inner.done_ratio()
    }

    fn requests_hint(&self) -> Option<u64> {
        self.inner.requests_hint()
    }

    fn notices(&self) -> Vec<String> {
        self.inner.notices()
    }
}

/// The first requests of another source.
pub struct Limited {
    inner: Box<dyn Source>,
    most: u64,
    left: u64,
}

impl Limited {
    /// At most `most` requests of `inner`.
    pub fn new(inner: Box<dyn Source>, most: u64) -> Limited {
        Limited { inner, most, left: most }
    }
}

impl Source for Limited {
    fn fill(&mut self, into: &mut Vec<Request>, most: usize) -> Result<usize, SourceError> {
        let most = (most as u64).min(self.left) as usize;
        let got = if most == 0 { 0 } else { self.inner.fill(into, most)? };
        self.left -= got as u64;
        Ok(got)
    }

    fn fields(&self) -> Fields {
        self.inner.fields()
    }

    fn describe(&self) -> String {
        format!("{}, at most {} requests", self.inner.describe(), self.most)
    }

    fn name(&self) -> String {
        self.inner.name()
    }

    fn done_ratio(&self) -> Option<f64> {
        let of_limit = 1.0 - self.left as f64 / self.most.max(1) as f64;
        Some(self.inner.done_ratio().map_or(of_limit, |of_inner| of_inner.max(of_limit)))
    }

    fn requests_hint(&self) -> Option<u64> {
        self.inner.requests_hint().map(|inner| inner.min(self.most))
    }

    fn notices(&self) -> Vec<String> {
        self.inner.notices()
    }
}
