//! Side-by-side benchmark of Larder and its peers: the same loads on the same cores, in alternation.

#![forbid(unsafe_code)]

mod client;
mod compare;
mod crowd;
mod door;
mod empty;
mod exchange;
mod figures;
mod keys;
mod loads;
mod options;
mod procfs;
mod readthrough;
mod reply;
mod report;
mod rng;
mod servers;
mod settling;
mod trials;
mod values;
mod wire;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Parser;

use options::{Command, CompareOptions, Options, settle};
use report::{Document, preamble};

fn main() -> ExitCode {
    let options = Options::parse();
    let result = match options.command {
        Some(Command::Empty { port, value_bytes, threads }) => {
            empty::serve(port, value_bytes, threads).map(|()| true)
        }
        Some(Command::Launch { cores, parent, program }) => {
            servers::launch(&cores, parent, &program).map(|()| true)
        }
        None => compare(options.compare),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("larder-bench-compare: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a comparison. Returns whether every server completed every load.
fn compare(options: CompareOptions) -> Result<bool> {
    let options = settle(options).map_err(anyhow::Error::msg)?;
    if options.list {
        for load in loads::catalogue(options.scale) {
            println!("{:16} {}", load.name, load.about);
        }
        return Ok(true);
    }
    let servers = servers::Server::all(&options)?;
    if servers.is_empty() {
        bail!("there is no server to measure");
    }
    // The file is opened first, so that a wrong path is reported before the measurements.
    let json = options
        .json
        .as_ref()
        .map(|path| File::create(path).with_context(|| format!("write {}", path.display())));
    let json = json.transpose()?;
    let machine = procfs::Machine::here();
    println!("{}", preamble(&machine, &options));
    let loads = compare::run(&options, &servers, |report| println!("{}", report.text()))?;
    if let Some(file) = json {
        let mut file = BufWriter::new(file);
        serde_json::to_writer_pretty(&mut file, &Document::new(&machine, &options, &servers, &loads))?;
        writeln!(file)?;
        file.flush()?;
    }
    Ok(loads.iter().all(|load| load.rows.iter().all(|row| row.failed.is_none())))
}
