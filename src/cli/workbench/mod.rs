//! The workbench's commands: `trace`, `workload`, `replay`, `simulate`, `slabs`, `mrc`, `plan`.
//!
//! Each command is one file: its flags, each defined once, and how its answer is shown. What is computed lives in the
//! `sim` crate.

mod mrc;
mod plan;
mod replay;
mod simulate;
mod slabs;
mod trace;
mod workload;

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{Args, Parser, Subcommand};
use larder_sim::report::{Part, Report};
use larder_sim::{Limited, Source, SourceError, trace as traces, workload as workloads};

/// The words that begin a command of the workbench.
pub(crate) const COMMANDS: &[&str] = &["trace", "workload", "replay", "simulate", "slabs", "mrc", "plan"];

#[derive(Parser)]
#[command(name = "larder", disable_help_subcommand = true)]
struct Words {
    #[command(subcommand)]
    command: Workbench,
}

#[derive(Subcommand)]
enum Workbench {
    /// Look into a trace, convert it, take a sample of it
    Trace(trace::TraceArgs),
    /// Write down the requests of a generated workload
    Workload(workload::WorkloadArgs),
    /// Drive a memcached or RESP server with a trace or a workload
    Replay(Box<replay::ReplayArgs>),
    /// Eviction policies side by side over a trace
    Simulate(simulate::SimulateArgs),
    /// Slab allocation schemes side by side over a trace
    Slabs(slabs::SlabsArgs),
    /// The miss-ratio curve of a trace
    Mrc(mrc::MrcArgs),
    /// What to buy: the cheapest or fastest split of DRAM and flash
    Plan(Box<plan::PlanArgs>),
}

/// How a command ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The command line cannot be obeyed; the text is clap's own, or one line.
    Usage(String),
    /// The work failed, in one line.
    Failed(String),
    /// A server could not be reached, in one line.
    Unreachable(String),
}

impl From<SourceError> for Failure {
    fn from(error: SourceError) -> Failure {
        Failure::Failed(error.0)
    }
}

/// Runs a command of the workbench. `words`: the command and what follows it.
pub(crate) fn run(words: &[OsString]) -> Result<(), Failure> {
    let all = std::iter::once(OsString::from("larder")).chain(words.iter().cloned());
    let words = match Words::try_parse_from(all) {
        Ok(words) => words,
        Err(asked) if !asked.use_stderr() => {
            print(&asked.to_string())?;
            return Ok(());
        }
        Err(error) => {
            return Err(Failure::Usage(
                error.to_string().trim_start_matches("error: ").trim_end().to_owned(),
            ));
        }
    };
    match words.command {
        Workbench::Trace(args) => trace::run(args),
        Workbench::Workload(args) => workload::run(args),
        Workbench::Replay(args) => replay::run(*args),
        Workbench::Simulate(args) => simulate::run(args),
        Workbench::Slabs(args) => slabs::run(args),
        Workbench::Mrc(args) => mrc::run(args),
        Workbench::Plan(args) => plan::run(*args),
    }
}

/// Where the requests come from.
#[derive(Args)]
struct SourceArgs {
    /// The trace: oracleGeneral, Twitter's CSV, CSV with a header, or a key per line; zstd, gzip and xz are seen through
    #[arg(value_name = "TRACE", required_unless_present = "workload", conflicts_with = "workload")]
    trace: Option<PathBuf>,
    /// The trace's format, where its name and first lines do not tell: oracle-general, twitter, csv, keys
    #[arg(long, value_parser = format)]
    format: Option<traces::Format>,
    /// Skip lines that cannot be read, and count them, instead of stopping at the first
    #[arg(long)]
    skip_bad: bool,
    /// A generated workload instead of a trace, such as zipfian:keys=1m,requests=10m,theta=0.99
    #[arg(long, value_name = "WORKLOAD")]
    workload: Option<String>,
    /// Stop after this many requests
    #[arg(long, value_name = "REQUESTS", value_parser = count)]
    limit: Option<u64>,
    /// Whether it has been opened before.
    #[arg(skip)]
    opened: AtomicBool,
}

impl SourceArgs {
    /// How the trace is opened.
    fn options(&self) -> traces::Options {
        traces::Options { format: self.format, skip_bad: self.skip_bad }
    }

    /// The trace if it is a pipe or a device, which can be read only once.
    fn pipe(&self) -> Option<&Path> {
        let path = self.trace.as_deref()?;
        std::fs::metadata(path).is_ok_and(|meta| !meta.is_file() && !meta.is_dir()).then_some(path)
    }

    /// Opens it. It may be opened again for another pass.
    ///
    /// # Errors
    /// Those of the trace or workload; a pipe that is opened again.
    fn open(&self) -> Result<Box<dyn Source>, SourceError> {
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

/// Where the answer goes.
#[derive(Args)]
struct OutputArgs {
    /// Write one self-contained HTML report
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write everything as JSON; - is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the tables as CSV, one after another; - is standard output
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write each picture as an SVG file into this folder
    #[arg(long, value_name = "FOLDER")]
    svg: Option<PathBuf>,
    /// Say nothing but errors
    #[arg(long, short)]
    quiet: bool,
}

impl OutputArgs {
    /// Shows a report on the terminal and writes the files that were asked for.
    fn deliver(&self, report: &Report) -> Result<(), Failure> {
        let mut taken = false;
        if let Some(path) = &self.json {
            taken |= write(path, &report.to_json())?;
        }
        if let Some(path) = &self.csv {
            let tables = report.parts.iter().filter_map(|part| match part {
                Part::Table(table) => Some(table.to_csv()),
                _ => None,
            });
            taken |= write(path, &tables.collect::<Vec<_>>().join("\n"))?;
        }
        if let Some(path) = &self.html {
            taken |= write(path, &report.to_html())?;
        }
        if let Some(folder) = &self.svg {
            let cannot = |error: std::io::Error| Failure::Failed(format!("{}: {error}", folder.display()));
            std::fs::create_dir_all(folder).map_err(cannot)?;
            for part in &report.parts {
                if let Part::Chart(chart) = part {
                    write(&folder.join(format!("{}.svg", file_name(&chart.title))), &chart.to_svg())?;
                }
            }
        }
        if !taken && !self.quiet {
            print(&report.to_text())?;
        }
        Ok(())
    }
}

/// A title as the name of a file: letters, digits and dashes.
fn file_name(title: &str) -> String {
    let words: Vec<String> = title
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_ascii_lowercase)
        .collect();
    words.join("-")
}

/// Writes a file; says whether it was standard output.
fn write(path: &Path, text: &str) -> Result<bool, Failure> {
    if path == Path::new("-") {
        return print(text).map(|()| true);
    }
    std::fs::write(path, text).map_err(|error| Failure::Failed(format!("{}: {error}", path.display())))?;
    Ok(false)
}

/// Writes to standard output. A reader that has seen enough, such as `head`, is no failure.
fn print(text: &str) -> Result<(), Failure> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::Failed(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// A count such as `250`, `10k`, `5m`, `2g` (powers of ten).
fn count(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.trim().char_indices().last() {
        Some((at, 'k' | 'K')) => (&text.trim()[..at], 1_000),
        Some((at, 'm' | 'M')) => (&text.trim()[..at], 1_000_000),
        Some((at, 'g' | 'G')) => (&text.trim()[..at], 1_000_000_000),
        _ => (text.trim(), 1),
    };
    let wrong = || format!("'{text}' is no count, such as 250, 10k, 5m");
    let whole: f64 = digits.parse().map_err(|_| wrong())?;
    let value = whole * unit as f64;
    if !(0.0..=1e18).contains(&value) || value.fract() != 0.0 {
        return Err(wrong());
    }
    Ok(value as u64)
}

/// A trace's format by name.
fn format(text: &str) -> Result<traces::Format, String> {
    match text {
        "oracle-general" => Ok(traces::Format::OracleGeneral),
        "twitter" => Ok(traces::Format::Twitter),
        "csv" => Ok(traces::Format::Csv),
        "keys" => Ok(traces::Format::Keys),
        _ => Err("formats are oracle-general, twitter, csv, keys".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_that_is_no_regular_file_is_not_opened_twice() {
        let mut source = SourceArgs {
            trace: Some(PathBuf::from("/dev/null")),
            format: Some(traces::Format::Keys),
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
