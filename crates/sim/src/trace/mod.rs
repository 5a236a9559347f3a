//! Traces: files of requests, read as a stream, inspected, converted, sampled.

use std::path::Path;

use crate::{Source, SourceError};

/// How a trace is written down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// libCacheSim's oracleGeneral: 24-octet records.
    OracleGeneral,
    /// Twitter's: `timestamp,key,key size,value size,client,op,TTL`, without a header.
    Twitter,
    /// A header names the columns.
    Csv,
    /// One key in a line.
    Keys,
}

/// How a trace is opened.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Its format; `None` = by name and first lines.
    pub format: Option<Format>,
}

/// Opens a trace; compression (zstd, gzip, xz) is recognised by its first octets.
///
/// # Errors
/// A file that cannot be opened, a format that is not recognised, a header without a key.
pub fn open(path: &Path, options: &Options) -> Result<Box<dyn Source>, SourceError> {
    let _ = options;
    Err(SourceError::new(format!("{}: reading traces is not built", path.display())))
}
