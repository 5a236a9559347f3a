//! Describes a trace: one pass, and a report of facts, tables and charts.

mod inspector;
mod keys;
mod picture;
mod skew;
#[cfg(test)]
mod tests;

use crate::progress::Progress;
use crate::report::Report;
use crate::{CHUNK_REQUESTS, Source, SourceError};

pub use inspector::{Inspector, KeyFindings};
pub use keys::KEYS_EXACT_MAX;
pub use skew::Zipf;

/// Reads a source to its end and describes it. The pass takes about 25 to 50 bytes of memory per key, at most about
/// 110 MB, and half as much again for a moment while the table grows.
///
/// # Errors
/// Those of the source.
pub fn inspect(source: &mut dyn Source, progress: &mut Progress) -> Result<Report, SourceError> {
    let mut inspector = Inspector::new(source.fields())?;
    let mut chunk = Vec::with_capacity(CHUNK_REQUESTS);
    loop {
        chunk.clear();
        if source.fill(&mut chunk, CHUNK_REQUESTS)? == 0 {
            return Ok(inspector.report(source));
        }
        chunk.iter().for_each(|request| inspector.add(request));
        progress.set(source.done_ratio().unwrap_or(0.0), &format!("{} requests", inspector.requests));
    }
}
