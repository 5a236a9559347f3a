//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::values::ValueKind;
use crate::wire::ValueBytes;

/// Loads Larder and its peers alike, one after another on the same cores, and compares the cost of each request.
#[derive(Debug, Parser)]
#[command(name = "larder-bench-compare", version, args_conflicts_with_subcommands = true)]
pub(crate) struct Options {
    /// A command other than a comparison.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    /// The comparison.
    #[command(flatten)]
    pub(crate) compare: CompareOptions,
}

/// The commands other than a comparison.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Answer every line with the same value: the lower bound set by the wire
    Empty {
        /// Port on the loopback address
        #[arg(short, long)]
        port: u16,
        /// Length of the value in bytes
        #[arg(long, default_value_t = 32)]
        value_bytes: usize,
        /// Number of threads, which share the connections evenly
        #[arg(long, default_value_t = 1)]
        threads: usize,
    },
    /// Run another program on given cores, to be killed when its parent ends
    #[command(hide = true)]
    Launch {
        /// Cores to run on
        #[arg(long, default_value = "none")]
        cores: Cores,
        /// Process that must still be the parent
        #[arg(long)]
        parent: i32,
        /// The program and its arguments
        #[arg(last = true, required = true)]
        program: Vec<String>,
    },
}

/// Flags of a comparison.
#[derive(Clone, Debug, Args)]
pub(crate) struct CompareOptions {
    /// Names of the loads to run, separated by commas; --list shows them [default: all]
    #[arg(long, value_delimiter = ',')]
    pub(crate) load: Vec<String>,
    /// List the loads and exit
    #[arg(long)]
    pub(crate) list: bool,
    /// Names of the servers to run, separated by commas [default: all that are found]
    #[arg(long, value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Path of the larder executable
    #[arg(long, default_value = "target/release/larder")]
    pub(crate) larder: PathBuf,
    /// Path of the larder executable whose `replay` is the client of the loads that need it [default: that of --larder]
    #[arg(long, value_name = "PATH")]
    pub(crate) replay: Option<PathBuf>,
    /// Further arguments of larder, such as "--temperature hitmap"; to compare two modes, add the other one with
    /// --peer
    #[arg(long, value_name = "ARGS", default_value = "", allow_hyphen_values = true)]
    pub(crate) larder_args: String,
    /// File for the flash tier of the servers that have one, overwritten by each in turn; without it, the loads that
    /// need one are skipped
    #[arg(long, value_name = "PATH")]
    pub(crate) flash_file: Option<PathBuf>,
    /// A further server as name=path[:arguments], such as another memcached or redis; may be repeated
    #[arg(long, value_name = "NAME=PATH[:ARGS]")]
    pub(crate) peer: Vec<String>,
    /// Number of rounds per load; medians are reported
    #[arg(long, default_value_t = 5)]
    pub(crate) rounds: usize,
    /// Measured time per round in seconds
    #[arg(long, default_value_t = 2.0)]
    pub(crate) seconds: f64,
    /// Warm-up before each measurement in seconds, with the same load
    #[arg(long, default_value_t = 0.5)]
    pub(crate) warmup: f64,
    /// Number of connections of the GET and mixed loads
    #[arg(long, default_value_t = 50)]
    pub(crate) connections: usize,
    /// Number of threads of the load generator, which share the connections and the cores of the client
    #[arg(long, default_value_t = 1)]
    pub(crate) clients: usize,
    /// Send this many requests per second on schedule, whether or not replies arrive (open loop) [default: closed
    /// loop]
    #[arg(long)]
    pub(crate) rate: Option<f64>,
    /// Factor for items, requests and memory limits
    #[arg(long, default_value_t = 1.0)]
    pub(crate) scale: f64,
    /// Number of distinct keys of each load [default: the load's own times --scale]
    #[arg(long)]
    pub(crate) items: Option<u32>,
    /// Values as applications store them, for all loads but those that ask what a server keeps [default: json-user for
    /// the loads `dense`, letters for the others]
    #[arg(long, value_name = "KIND")]
    pub(crate) values: Option<ValueKind>,
    /// Length of the values of --values in bytes: a number or MIN-MAX, 150 to 2000 [default: that of their kind]
    #[arg(long, value_name = "BYTES")]
    pub(crate) value_bytes: Option<ValueBytes>,
    /// Longest time in seconds until the hit ratio of the loads `dense` has settled
    #[arg(long, default_value_t = 60.0)]
    pub(crate) settle: f64,
    /// Memory to count on in MiB, for machines whose memory grows as it is used [default: what the kernel calls
    /// available]
    #[arg(long, value_name = "MIB")]
    pub(crate) memory: Option<u64>,
    /// Longest time for storing the items of a load in seconds; items that come later are left out [default: none]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) store_seconds: Option<f64>,
    /// Run one short round of each load
    #[arg(long)]
    pub(crate) quick: bool,
    /// Start every server anew for every round
    #[arg(long)]
    pub(crate) fresh: bool,
    /// Just before each server starts, touch and free as much memory as it will need, so that no server pays for
    /// pages that the machine's host has taken back (free page reporting in a virtual machine)
    #[arg(long)]
    pub(crate) warm_memory: bool,
    /// Cores of the server: numbers separated by commas, or none
    #[arg(long, default_value = "0")]
    pub(crate) server_cores: Cores,
    /// Cores of the client: numbers separated by commas, or none
    #[arg(long, default_value = "1")]
    pub(crate) client_cores: Cores,
    /// Number of worker threads of every server
    #[arg(long, default_value_t = 1)]
    pub(crate) threads: usize,
    /// Seed of the request sequence
    #[arg(long, default_value_t = 42)]
    pub(crate) seed: u64,
    /// Write all measurements of all rounds to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

/// Checks the values and applies `--quick`.
pub(crate) fn settle(mut options: CompareOptions) -> Result<CompareOptions, String> {
    if options.quick {
        options.rounds = 1;
        options.seconds = options.seconds.min(0.4);
        options.warmup = options.warmup.min(0.1);
        options.settle = options.settle.min(2.0);
    }
    let check = |good: bool, message: &str| if good { Ok(()) } else { Err(message.to_owned()) };
    check(options.scale > 0.0 && options.scale <= 100.0, "--scale must be above 0 and at most 100")?;
    check(options.seconds > 0.0 && options.seconds <= 3600.0, "--seconds must be above 0 and at most 3600")?;
    check((0.0..=3600.0).contains(&options.warmup), "--warmup must be 0 to 3600")?;
    check((0.0..=36_000.0).contains(&options.settle), "--settle must be 0 to 36000")?;
    check(
        options.items.is_none_or(|items| (1..=1_000_000_000).contains(&items)),
        "--items must be 1 to 1e9",
    )?;
    check((1..=1000).contains(&options.rounds), "--rounds must be 1 to 1000")?;
    check((1..=1000).contains(&options.connections), "--connections must be 1 to 1000")?;
    check(options.threads >= 1, "--threads must be at least 1")?;
    let (clients, connections) = (options.clients, options.connections);
    check((1..=connections).contains(&clients), "--clients must be 1 to the number of connections")?;
    let seconds = options.store_seconds.unwrap_or(1.0);
    check(seconds > 0.0 && seconds <= 3600.0, "--store-seconds must be above 0 and at most 3600")?;
    check(options.rate.is_none_or(|rate| (1.0..=1e9).contains(&rate)), "--rate must be 1 to 1e9")?;
    Ok(options)
}

/// Core numbers; an empty list means that nothing is pinned.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Cores(pub(crate) Vec<usize>);

impl std::str::FromStr for Cores {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self::default());
        }
        let number = |part: &str| part.trim().parse().map_err(|_| format!("`{part}` is not a core number"));
        text.split(',').map(number).collect::<Result<_, _>>().map(Self)
    }
}

impl std::fmt::Display for Cores {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        let numbers: Vec<String> = self.0.iter().map(usize::to_string).collect();
        f.write_str(&numbers.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Options::command().debug_assert();
        let options =
            Options::parse_from(["x", "--quick", "--load", "get-32,churn", "--server-cores", "0,2"]);
        let larder = Options::parse_from(["x", "--larder-args", "--temperature hitmap"]);
        assert_eq!(larder.compare.larder_args, "--temperature hitmap");
        assert_eq!(options.compare.load, ["get-32", "churn"]);
        assert_eq!(options.compare.server_cores, Cores(vec![0, 2]));
        assert_eq!(settle(options.compare).expect("good flags").rounds, 1);
        assert_eq!("none".parse::<Cores>(), Ok(Cores(vec![])));
        assert!("1,x".parse::<Cores>().is_err());
        assert_eq!("150-300".parse(), Ok(ValueBytes { min: 150, max: 300 }));
        assert_eq!("250".parse(), Ok(ValueBytes::fixed(250)));
        for wrong in ["149", "300-200", "150-2001", "x", "-", "200-x"] {
            assert!(wrong.parse::<ValueBytes>().is_err(), "{wrong}");
        }
    }
}
