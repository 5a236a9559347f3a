//! The commands of the workbench: `trace`, `workload`, `replay`, `simulate`, `slabs`, `mrc`, `plan`.
//!
//! Each command is one file with its flags and the presentation of its result. `source`, `output` and `values` hold
//! the flags and parsers that the commands share. The crate `larder-sim` does the computing.

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

/// The words that start a command of the workbench.
pub(crate) const COMMANDS: &[&str] = &["trace", "workload", "replay", "simulate", "slabs", "mrc", "plan"];

#[derive(Parser)]
#[command(name = "larder", disable_help_subcommand = true)]
struct Words {
    #[command(subcommand)]
    command: Workbench,
}

#[derive(Subcommand)]
enum Workbench {
    /// Inspect, convert or sample a trace of requests
    Trace(trace::TraceArgs),
    /// Generate requests by a law and write them to a file
    Workload(workload::WorkloadArgs),
    /// Send a trace or a workload to a memcached or RESP server and measure it
    Replay(Box<replay::ReplayArgs>),
    /// Compare eviction policies on a trace, at several cache sizes
    Simulate(simulate::SimulateArgs),
    /// Compare slab allocation schemes on a trace
    Slabs(slabs::SlabsArgs),
    /// Compute the miss-ratio curve of a trace: the miss ratio of LRU at every cache size
    Mrc(mrc::MrcArgs),
    /// Find the cheapest or the fastest split of DRAM and flash for a workload
    Plan(Box<plan::PlanArgs>),
}

/// Runs a command of the workbench. `words` are the command and what follows it.
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
