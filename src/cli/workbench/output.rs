//! The flags that say where the result of a command goes, and the writing to files and standard output.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use larder_sim::report::{Part, Report};

use super::failure::Failure;

/// Where the result goes.
#[derive(Args)]
pub(super) struct OutputArgs {
    /// Write the report as one self-contained HTML file
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
    /// Write the report as JSON; - is standard output
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
    /// Write the tables of the report as CSV, one after another; - is standard output
    #[arg(long, value_name = "FILE")]
    pub(super) csv: Option<PathBuf>,
    /// Write each chart as an SVG file into this folder, which is created if needed
    #[arg(long, value_name = "FOLDER")]
    pub(super) svg: Option<PathBuf>,
    /// Print nothing but errors
    #[arg(long, short)]
    pub(super) quiet: bool,
}

impl OutputArgs {
    /// Prints a report on the terminal and writes the requested files.
    pub(super) fn deliver(&self, report: &Report) -> Result<(), Failure> {
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

/// Turns a title into a file name of letters, digits and dashes.
fn file_name(title: &str) -> String {
    let words: Vec<String> = title
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_ascii_lowercase)
        .collect();
    words.join("-")
}

/// Writes a file. Returns whether it was standard output.
pub(super) fn write(path: &Path, text: &str) -> Result<bool, Failure> {
    if path == Path::new("-") {
        return print(text).map(|()| true);
    }
    std::fs::write(path, text).map_err(|error| Failure::Failed(format!("{}: {error}", path.display())))?;
    Ok(false)
}

/// Writes to standard output. A reader such as `head` that stops early is no failure.
pub(super) fn print(text: &str) -> Result<(), Failure> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::Failed(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}
