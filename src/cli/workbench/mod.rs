//! The workbench's commands: `trace`, `workload`, `replay`, `simulate`, `slabs`, `mrc`, `plan`.
//!
//! Each command is one file: its flags, each defined once, and how its answer is shown. What is computed lives in the
//! `sim` crate.

mod failure;
mod mrc;
mod output;
mod plan;
mod replay;
mod simulate;
mod slabs;
mod source;
mod trace;
mod values;
mod workload;

use std::ffi::OsString;

use clap::{Parser, Subcommand};

pub(crate) use self::failure::Failure;
use self::output::print;

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
