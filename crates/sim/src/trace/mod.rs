//! Traces: files of requests, read as a stream, inspected, converted and sampled.
//!
//! ```text
//!   file -> Input (decompresses zstd, gzip, xz)
//!             \-> oracle_general (24 bytes) or lines (twitter, csv, keys, what a server tells)
//!                   \-> Clock (seconds since the first record) -> Request
//! ```
//!
//! A trace is never held in memory. `docs/workbench.md` describes the formats.

pub(crate) mod asked;
mod clock;
mod columns;
mod detect;
pub mod events;
pub(crate) mod field;
mod filled;
mod format;
pub(crate) mod input;
pub mod inspect;
mod key;
mod lines;
mod oracle_general;
mod records;
mod sample;
#[cfg(test)]
mod tests;
pub mod write;

use std::path::Path;

use crate::{Source, SourceError};

pub use clock::Clock;
pub use columns::Named;
pub use filled::{Filled, Known};
pub use format::Format;
pub use sample::Sampled;

/// Options for opening a trace.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The format; `None` = detected from the name and the first lines.
    pub format: Option<Format>,
    /// What the columns of a text without a header are; see [`Named`].
    pub columns: Option<Named>,
    /// Skip lines that cannot be read instead of stopping at the first one. [`Source::notices`] tells their number.
    pub skip_bad: bool,
}

/// Opens a trace. Compression (zstd, gzip, xz) is detected from the first bytes.
///
/// # Errors
/// A file that cannot be opened, a format that is not recognised, or a header without a key.
pub fn open(path: &Path, options: &Options) -> Result<Box<dyn Source>, SourceError> {
    let mut input = input::Input::open(path)?;
    let format = format_or_detected(&mut input, options)?;
    if matches!(format, Format::OracleGeneral | Format::Lcs | Format::Vscsi) {
        return Ok(Box::new(records::Records::new(input, format)?));
    }
    let lines = |input| lines::Lines::new(input, format, options);
    // What a server tells is read twice, unless it comes through a pipe.
    if format.is_told() && path.is_file() {
        let known = Known::learn(&mut lines(input::Input::open(path)?)?)?;
        return Ok(Box::new(Filled::new(Box::new(lines(input)?), known)));
    }
    Ok(Box::new(lines(input)?))
}

/// The format in which [`open`] would read a file.
///
/// # Errors
/// A file that cannot be opened, or a format that is not recognised.
pub fn format_of(path: &Path, options: &Options) -> Result<Format, SourceError> {
    match options.format.or(options.columns.as_ref().map(|_| Format::Csv)) {
        Some(format) => Ok(format),
        None => format_or_detected(&mut input::Input::open(path)?, options),
    }
}

/// The requested format, or the one detected from the name and the first bytes.
fn format_or_detected(input: &mut input::Input, options: &Options) -> Result<Format, SourceError> {
    if let Some(format) = options.format.or(options.columns.as_ref().map(|_| Format::Csv)) {
        return Ok(format);
    }
    input.read_ahead(detect::HEAD_BYTES)?;
    let name = input.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
    detect::detect(&name, input.pending()).map_err(|why| SourceError::new(format!("{}: {why}", input.name())))
}
