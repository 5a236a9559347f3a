//! Where requests come from.

use std::fmt;

use crate::{Fields, Request};

/// How many requests are asked for at a time: enough that a call costs nothing per request, few enough to stay in cache.
pub const CHUNK_REQUESTS: usize = 16 * 1024;

/// Why a source cannot go on, in one line that names the file and the line or the parameter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceError(pub String);

impl SourceError {
    /// An error of this text.
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

/// A stream of requests, in order. Nothing is kept: a trace larger than memory works.
pub trait Source: Send {
    /// Puts up to `most` further requests at the end of `into` and says how many; 0 means the end.
    ///
    /// # Errors
    /// A broken line, with its number and reason; the requests before it have been delivered by then. A file that ends
    /// in the middle is no error: what was read is delivered, and [`Source::notices`] says so.
    fn fill(&mut self, into: &mut Vec<Request>, most: usize) -> Result<usize, SourceError>;

    /// Which fields are known.
    fn fields(&self) -> Fields;

    /// What it is, for a report: a file's name, or the workload's parameters.
    fn describe(&self) -> String;

    /// How far it is, from 0 to 1, if that can be told.
    fn done_ratio(&self) -> Option<f64>;

    /// How many requests there are in all, if that is known before the end.
    fn requests_hint(&self) -> Option<u64> {
        None
    }

    /// What the reader should be told: a truncated file, lines that were skipped.
    fn notices(&self) -> Vec<String> {
        Vec::new()
    }
}

/// The first requests of a source.
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
