//! The flags that name a trace or a workload.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use larder_sim::replay::Credentials;
use larder_sim::{Limited, Source, SourceError, trace as traces, workload as workloads};

use super::failure::Failure;
use super::values::{count, format};

/// The source of the requests.
#[derive(Args)]
pub(super) struct SourceArgs {
    /// The trace file: oracleGeneral, lcs, vscsi, Twitter's CSV, block traces of Microsoft Research, CSV with a header,
    /// one key per line, or the lines of memcached's `watch` or Redis's `MONITOR`; optionally compressed with zstd,
    /// gzip or xz
    #[arg(value_name = "TRACE", required_unless_present = "workload", conflicts_with = "workload")]
    pub(super) trace: Option<PathBuf>,
    /// Format of the trace: oracle-general, lcs, vscsi, twitter, msr, csv, keys, watch or monitor [default: detected
    /// from the name and the first lines]
    #[arg(long, value_parser = format)]
    pub(super) format: Option<traces::Format>,
    /// What the columns of a text are that has no header, such as time=1,key=2,size=3; also time_ms (us, ns, 100ns),
    /// volume, sectors, key_size, op, ttl, client and penalty_us (ms, s). Commas, tabs, semicolons or blanks separate
    /// them
    #[arg(long, value_name = "NAME=PLACE,...", conflicts_with = "format")]
    pub(super) columns: Option<traces::Named>,
    /// Skip and count lines that cannot be read, instead of stopping at the first one
    #[arg(long)]
    pub(super) skip_bad: bool,
    /// A generated workload instead of a trace, such as zipfian:keys=1m,requests=10m,theta=0.99; 'larder workload
    /// --list' shows all laws
    #[arg(long, value_name = "WORKLOAD")]
    pub(super) workload: Option<String>,
    /// Stop after this many requests, such as 10m
    #[arg(long, value_name = "REQUESTS", value_parser = count)]
    pub(super) limit: Option<u64>,
    /// Whether the source has been opened before.
    #[arg(skip)]
    opened: AtomicBool,
}

impl SourceArgs {
    /// The options for opening the trace.
    pub(super) fn options(&self) -> traces::Options {
        traces::Options { format: self.format, columns: self.columns.clone(), skip_bad: self.skip_bad }
    }

    /// The trace if it is a pipe or a device, which can be read only once.
    pub(super) fn pipe(&self) -> Option<&Path> {
        let path = self.trace.as_deref()?;
        std::fs::metadata(path).is_ok_and(|meta| !meta.is_file() && !meta.is_dir()).then_some(path)
    }

    /// Opens the source. It may be opened again for another pass.
    ///
    /// # Errors
    /// Those of the trace or workload, or a pipe that is opened again.
    pub(super) fn open(&self) -> Result<Box<dyn Source>, SourceError> {
        if self.opened.swap(true, Ordering::Relaxed)
            && let Some(path) = self.pipe()
        {
            return Err(SourceError::new(format!(
                "{}: is a pipe and cannot be read twice; write it to a file first",
                path.display()
            )));
        }
        let source = match (&self.trace, &self.workload) {
            (Some(path), _) => traces::open(path, &self.options())?,
            (None, Some(words)) => workloads::parse(words)?,
            (None, None) => return Err(SourceError::new("a trace or --workload is needed")),
        };
        Ok(match self.limit {
            Some(most) => Box::new(Limited::new(source, most)),
            None => source,
        })
    }
}

/// The login of a user whose password is the first line of a file.
///
/// # Errors
/// The file cannot be read.
pub(super) fn credentials(user: Option<&str>, file: Option<&Path>) -> Result<Option<Credentials>, Failure> {
    let Some(path) = file else { return Ok(None) };
    let text = larder_server::settings::read_short_text(path)
        .map_err(|error| Failure::Failed(format!("{}: {error}", path.display())))?;
    let password = text.lines().next().unwrap_or_default().to_owned();
    Ok(Some(Credentials { user: user.unwrap_or_default().to_owned(), password }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_that_is_no_regular_file_is_not_opened_twice() {
        let mut source = SourceArgs {
            trace: Some(PathBuf::from("/dev/null")),
            format: Some(traces::Format::Keys),
            columns: None,
            skip_bad: false,
            workload: None,
            limit: None,
            opened: AtomicBool::default(),
        };
        assert!(source.open().is_ok());
        let error = source.open().err().map(|error| error.0);
        let told = "/dev/null: is a pipe and cannot be read twice; write it to a file first";
        assert_eq!(error.as_deref(), Some(told));
        source.trace = None;
        source.workload = Some("zipfian:keys=10,requests=10".to_owned());
        assert!(source.open().is_ok() && source.open().is_ok());
    }
}
