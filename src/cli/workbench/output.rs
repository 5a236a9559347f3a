//! Where the answer of a command goes: the flags that name files, and standard output.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use larder_sim::report::{Part, Report};

use super::failure::Failure;

/// Where the answer goes.
#[derive(Args)]
pub(super) struct OutputArgs {
    /// Write one self-contained HTML report
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
    /// Write everything as JSON; - is standard output
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
    /// Write the tables as CSV, one after another; - is standard output
    #[arg(long, value_name = "FILE")]
    pub(super) csv: Option<PathBuf>,
    /// Write each picture as an SVG file into this folder
    #[arg(long, value_name = "FOLDER")]
    pub(super) svg: Option<PathBuf>,
    /// Say nothing but errors
    #[arg(long, short)]
    pub(super) quiet: bool,
}

impl OutputArgs {
    /// Shows a report on the terminal and writes the files that were asked for.
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
pub(super) fn write(path: &Path, text: &str) -> Result<bool, Failure> {
    if path == Path::new("-") {
        return print(text).map(|()| true);
    }
    std::fs::write(path, text).map_err(|error| Failure::Failed(format!("{}: {error}", path.display())))?;
    Ok(false)
}

/// Writes to standard output. A reader that has seen enough, such as `head`, is no failure.
pub(super) fn print(text: &str) -> Result<(), Failure> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::Failed(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}
