//! The commands of the workbench: `capture`, `trace`, `workload`, `replay`, `simulate`, `mrc`, `plan`, `top`.
//!
//! Each command is one file with its flags and the presentation of its result. `source`, `output` and `values` hold
//! the flags and parsers that the commands share, `interrupt` the signals that end them early. The crate `larder-sim`
//! does the computing.

mod capture;
mod compressible;
mod failure;
mod interrupt;
mod mrc;
mod output;
mod plan;
mod replay;
mod simulate;
mod source;
mod top;
mod trace;
mod values;
mod workload;

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, FromArgMatches, Parser, Subcommand};

pub(crate) use self::failure::Failure;
use self::output::print;
use super::examples;

/// The words that start a command of the workbench.
pub(crate) const COMMANDS: &[&str] =
    &["capture", "trace", "workload", "replay", "simulate", "mrc", "plan", "top"];

#[derive(Parser)]
#[command(name = "larder", disable_help_subcommand = true)]
struct Words {
    #[command(subcommand)]
    command: Workbench,
}

#[derive(Subcommand)]
enum Workbench {
    /// Write what the clients of a server ask for to a trace
    Capture(capture::CaptureArgs),
    /// Inspect, convert or sample a trace of requests
    Trace(trace::TraceArgs),
    /// Generate requests by a law and write them to a file
    Workload(workload::WorkloadArgs),
    /// Send a trace or a workload to a memcached or RESP server and measure it
    Replay(Box<replay::ReplayArgs>),
    /// Compare eviction policies on a trace, at several cache sizes
    Simulate(simulate::SimulateArgs),
    /// Compute the miss-ratio curve of a trace: the miss ratio of LRU at every cache size
    Mrc(mrc::MrcArgs),
    /// Find the cheapest or the fastest split of DRAM and flash for a workload
    Plan(Box<plan::PlanArgs>),
    /// Watch a running server in the terminal
    Top(top::TopArgs),
}

/// The commands for clap.
pub(super) fn commands() -> Command {
    <Words as clap::CommandFactory>::command()
}

/// A command, all of whose subcommands have their examples in their help. `path` = its own words, without `larder`.
pub(super) fn with_examples(command: Command, path: &str) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|one| one.get_name().to_owned()).collect();
    let command = names.into_iter().fold(command, |command, name| {
        let path = format!("{path} {name}");
        command.mut_subcommand(&name, |one| with_examples(one, path.trim_start()))
    });
    let parts = [command.get_after_help().map(ToString::to_string).unwrap_or_default(), examples::text(path)];
    let parts: Vec<&str> = parts.iter().map(|part| part.trim_end()).filter(|part| !part.is_empty()).collect();
    let help = parts.join("\n\n");
    if help.is_empty() { command } else { command.after_help(help) }
}

/// An error of the command line in one line, which says what to do. `words` are those that were given.
fn one_line(error: &clap::Error, words: &[OsString]) -> String {
    // `larder trace inspect` has a help of its own.
    let command: Vec<_> =
        words.iter().map(|word| word.to_string_lossy()).take_while(|word| !word.starts_with('-')).collect();
    let depth = if command.first().is_some_and(|first| first == "trace") { 2 } else { 1 };
    let command = command[..command.len().min(depth)].join(" ");
    let needed = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::Strings(names)) if error.kind() == ErrorKind::MissingRequiredArgument => {
            names.as_slice()
        }
        _ => &[],
    };
    let what = match needed {
        [] => {
            let text = error.to_string();
            let shown = text.lines().take_while(|line| !line.starts_with("Usage:")).map(str::trim);
            let shown: Vec<&str> = shown.filter(|line| !line.is_empty()).collect();
            shown.join(" ").trim_start_matches("error: ").to_owned()
        }
        [trace] if trace == "<TRACE>" => {
            let example = "--workload zipfian:keys=100k,requests=1m";
            format!("a trace is missing: name its file, or a workload such as {example}")
        }
        names => format!("missing: {}", names.join(" and ")),
    };
    format!("{what}; 'larder {command} --help' explains")
}

/// Runs a command of the workbench. `words` are the command and what follows it.
pub(crate) fn run(words: &[OsString]) -> Result<(), Failure> {
    let all = std::iter::once(OsString::from("larder")).chain(words.iter().cloned());
    let parsed = with_examples(commands(), "").try_get_matches_from(all);
    let words = match parsed.and_then(|found| Words::from_arg_matches(&found)) {
        Ok(words) => words,
        Err(asked) if !asked.use_stderr() => {
            print(&asked.to_string())?;
            return Ok(());
        }
        Err(error) => return Err(Failure::Usage(one_line(&error, words))),
    };
    match words.command {
        Workbench::Capture(args) => capture::run(&args),
        Workbench::Trace(args) => trace::run(args),
        Workbench::Workload(args) => workload::run(args),
        Workbench::Replay(args) => replay::run(*args),
        Workbench::Simulate(args) => simulate::run(args),
        Workbench::Mrc(args) => mrc::run(args),
        Workbench::Plan(args) => plan::run(*args),
        Workbench::Top(args) => top::run(&args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(line: &str) -> String {
        let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        match run(&words) {
            Err(Failure::Usage(text)) => text,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn a_command_line_that_is_not_understood_is_one_line_that_says_what_to_do() {
        for command in ["simulate", "replay", "mrc", "trace inspect"] {
            let text = refused(command);
            let expected = "a trace is missing: name its file, or a workload such as \
                            --workload zipfian:keys=100k,requests=1m";
            assert_eq!(text, format!("{expected}; 'larder {command} --help' explains"));
        }
        for (line, words) in [
            (
                "plan",
                "missing: <--curve <FILE>|--trace <TRACE>|--workload <WORKLOAD>|--zipf <LAW>|--paper|--server <ADDR>>;",
            ),
            ("workload", "missing: <WORKLOAD> and <OUT>; 'larder workload --help' explains"),
            ("simulate trace --polices lru", "'--policies'"),
            ("simulate trace --sizes 5%x", "5%x"),
            ("trace", "'larder trace --help' explains"),
        ] {
            let text = refused(line);
            assert!(text.contains(words), "{line}: {text}");
            assert_eq!(text.lines().count(), 1, "{line}: {text}");
        }
    }
}
