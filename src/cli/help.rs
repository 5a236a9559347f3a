//! The two helps, and the version.
//!
//! `-h` is read by programs. Wrappers and test suites of memcached take the version from its first line and search
//! the rest for the names of features, so it names only what Larder supports. `--help` is written for people.

use larder_server::settings::{Row, Settings, Takes, Topic, table};

use super::examples;
use super::file::TUNING;

/// The release of memcached whose behaviour Larder follows. Wrappers read it from the first line of `-h`.
const MEMCACHED_VERSION: &str = "1.6.45";

/// Width of a line of help in columns.
const WIDTH: usize = 96;
/// Column at which the help of a flag starts.
const INDENT: usize = 32;

const TOPICS: &[(Topic, &str)] = &[
    (Topic::Network, "Network"),
    (Topic::Memory, "Memory"),
    (Topic::Flash, "Flash"),
    (Topic::Limits, "Limits"),
    (Topic::Protocol, "Protocol"),
    (Topic::Tls, "Encryption"),
    (Topic::Process, "Process"),
    (Topic::Watching, "Logging"),
    (Topic::Compatibility, "Compatibility with memcached's command line"),
];

/// The text of `larder --help`.
pub(super) fn overview() -> String {
    format!(
        "larder {}: a cache server for clients of memcached and of Redis\n\n\
         usage: larder serve [flags]      start a server\n\
         \x20      larder check-config ...   check the settings of a server, with the flags of serve\n\
         \x20      larder format-flash ...   erase the flash of a server, with the flags of serve\n\
         \x20      larder health [ADDR]      ask the admin page of a server whether it is ready\n\
         \x20      larder capture ADDR ...   write what the clients of a server ask for to a trace\n\
         \x20      larder trace ...          inspect, convert or sample a trace of requests\n\
         \x20      larder workload ...       generate the requests of a workload and write them to a file\n\
         \x20      larder replay ...         send a trace or a workload to a memcached or RESP server\n\
         \x20      larder simulate ...       compare eviction policies on a trace\n\
         \x20      larder mrc ...            compute the miss-ratio curve of a trace\n\
         \x20      larder plan ...           find the cheapest or fastest split of DRAM and flash\n\
         \x20      larder top ADDR           watch a running server in the terminal\n\
         \x20      larder man [FOLDER]       print the man page, or write those of all commands to a folder\n\
         \x20      larder completions SHELL  print the script with which a shell completes commands\n\
         \x20      larder COMMAND --help     show the flags of a command\n\
         \x20      larder --version          show the version\n\n\
         A memcached command line works too: 'larder -p 11211 -m 64' is 'larder serve -p 11211 -m 64',\n\
         and a link named 'memcached' to this program can replace memcached.\n",
        env!("CARGO_PKG_VERSION")
    )
}

/// The text of `larder serve --help`.
pub(super) fn for_people() -> String {
    let mut text = "usage: larder serve [flags]\n\n\
        A flag overrides the settings file (--config), and the file overrides the defaults. A flag without a\n\
        value is turned off with =false. The file is TOML with the long names as keys: memory-limit = \"4g\".\n\
        The suffixes k, m, g and t of sizes, and kb, mb, gb and tb, are powers of 1024, in either case.\n\
        The flags of flash may stand in a table: [flash], path = \"/x:10g\", memory = \"256m\".\n\n"
        .to_owned();
    text.push_str(&examples::text("serve"));
    for (topic, title) in TOPICS {
        text.push_str(&format!("\n{title}\n"));
        for flag in table::flags().filter(|flag| flag.topic == *topic) {
            text.push_str(&entry(&left_side(flag, ' '), &sentence(flag, "[", "]")));
        }
        if *topic == Topic::Flash {
            text.push_str(&tuning_keys());
        }
        if *topic == Topic::Process {
            text.push_str(&entry(
                "      --config FILE",
                "settings file in TOML, with the long flag names as keys",
            ));
        }
    }
    text.push_str("\nInformation\n");
    for (flag, help) in [
        ("      --help", "show this page"),
        ("  -h", "show the flags in the format of memcached"),
        ("  -V, --version", "show the version"),
        ("  -i, --license", "show the licence"),
    ] {
        text.push_str(&entry(flag, help));
    }
    text
}

/// The text of `larder format-flash --help`.
pub(super) fn of_format_flash() -> String {
    "usage: larder format-flash --flash PATH[:SIZE] [flags of serve]\n\n\
     Erases the flash, whatever it holds, even if it is another program's. The server must not run.\n\
     Give the flags of the server, --config FILE included: sizes of zones and memory shape the flash.\n"
        .to_owned()
        + "\n"
        + &examples::text("format-flash")
}

/// The text of `larder check-config --help`.
pub(super) fn of_check_config() -> String {
    "usage: larder check-config [--quiet] [--config FILE] [flags of serve]\n\
     \x20      larder check-config --sample\n\n\
     Prints each setting that a server would have with these flags, its value, and where the value\n\
     comes from: a flag, a line of the settings file, the environment, or the default. Then it\n\
     prints all that would keep the server from starting. No port is opened, nothing is written.\n\
     --quiet prints the problems only.\n\
     --sample prints a settings file with each setting as a comment: its meaning, and its default or an example.\n\
     The exit status is 0 if nothing is wrong, else 1.\n"
        .to_owned()
        + "\n"
        + &examples::text("check-config")
}

/// A settings file with each setting, as a comment of what it means and its default, or an example where it has none.
pub(super) fn sample_file() -> String {
    let mut text =
        "# Settings of 'larder serve --config FILE'. A setting that is not here has its default.\n"
            .to_owned();
    let (flash, others): (Vec<_>, Vec<_>) = TOPICS
        .iter()
        .filter(|(topic, _)| *topic != Topic::Compatibility)
        .partition(|(topic, _)| *topic == Topic::Flash);
    for (topic, title) in others {
        text.push_str(&format!("\n## {title}\n"));
        table::settings()
            .filter(|row| row.topic == topic)
            .for_each(|row| text.push_str(&sample(row, row.name)));
    }
    for (topic, title) in flash {
        text.push_str(&format!("\n## {title}\n[flash]\n"));
        for row in table::settings().filter(|row| row.topic == topic) {
            text.push_str(&sample(row, row.name.strip_prefix("flash-").unwrap_or("path")));
        }
    }
    text.push_str(&format!("\n{TUNING}\n"));
    table::tuning().for_each(|row| text.push_str(&sample(row, row.key())));
    text
}

/// A setting of [`sample_file`].
fn sample(row: &Row, key: &str) -> String {
    let default = match row.takes {
        Takes::Nothing | Takes::Count => row.text(&Settings::default()),
        _ => row.default(),
    };
    let value = if default.is_empty() { row.example } else { &default };
    let is_number = value.parse::<i64>().is_ok_and(|number| number.to_string() == value);
    let is_bare = is_number || matches!(value, "true" | "false");
    let value = if is_bare { value.to_owned() } else { format!("\"{value}\"") };
    let mut text = String::from("\n");
    let mut line = "#".to_owned();
    for word in row.help.split(' ') {
        if line.len() + 1 + word.len() > WIDTH {
            text.push_str(&line);
            text.push('\n');
            line = "#".to_owned();
        }
        line.push(' ');
        line.push_str(word);
    }
    text + &format!("{line}\n#{key} = {value}\n")
}

/// The text of `larder health --help`.
pub(super) fn of_health() -> String {
    "usage: larder health [HOST:PORT]\n\n\
     Asks the admin page of a server (default 127.0.0.1:11219) whether it is ready.\n\
     The exit status is 0 if it is, else 1; flash that is still being read, or a stop, is the reason then.\n"
        .to_owned()
        + "\n"
        + &examples::text("health")
}

/// The text of `larder man --help`.
pub(super) fn of_man() -> String {
    "usage: larder man [FOLDER]\n\n\
     Prints the man page of larder. With a folder, which must exist, it writes the page of each command into it.\n"
        .to_owned()
}

/// The text of `larder completions --help`.
pub(super) fn of_completions() -> String {
    "usage: larder completions SHELL\n\n\
     Prints the completions for a shell: bash, zsh, fish, elvish or powershell.\n"
        .to_owned()
}

/// The text of `-h`.
pub(super) fn for_wrappers() -> String {
    let mut text = format!("{}{}", version_memcached(), version());
    for flag in table::flags().filter(|flag| flag.is_obeyed_flag()) {
        text.push_str(&entry(left_side(flag, '=').trim_start(), &sentence(flag, "(default: ", ")")));
    }
    for (flag, help) in [
        ("--config=FILE", "settings file in TOML, with the long flag names as keys"),
        ("-h", "print this list and exit"),
        ("--help", "print the flags by topic and exit"),
        ("-i, --license", "print the licence and exit"),
        ("-V, --version", "print the version and exit"),
    ] {
        text.push_str(&entry(flag, help));
    }
    text
}

/// The text of `--version`.
pub(super) fn version() -> String {
    format!("larder {} (answers as memcached {MEMCACHED_VERSION})\n", env!("CARGO_PKG_VERSION"))
}

/// The text of `--version` when started as `memcached`.
pub(super) fn version_memcached() -> String {
    format!("memcached {MEMCACHED_VERSION}\n")
}

/// The text of `--license`.
pub(super) fn license() -> String {
    format!("larder {}: {}\n", env!("CARGO_PKG_VERSION"), env!("CARGO_PKG_LICENSE"))
}

fn left_side(flag: &Row, between: char) -> String {
    let short = flag.letter.map_or("    ".to_owned(), |short| format!("-{short}, "));
    let value = match flag.takes {
        Takes::Nothing | Takes::Count => String::new(),
        Takes::Value(name) | Takes::List(name) | Takes::Options(name) => format!("{between}{name}"),
    };
    format!("  {short}--{}{value}", flag.name)
}

fn sentence(row: &Row, open: &str, close: &str) -> String {
    let (help, default) = (row.help, row.default());
    if default.is_empty() { help.to_owned() } else { format!("{help} {open}{default}{close}") }
}

/// The keys of `[flash.tuning]`, which are no flags.
fn tuning_keys() -> String {
    let mut text = format!("\nTuning of flash: keys of {} in the settings file\n", TUNING);
    for row in table::tuning() {
        let sentence = sentence(row, "[", "]");
        text.push_str(&entry(&format!("      {}", row.key()), &format!("{sentence}; see {}", row.figure)));
    }
    text
}

/// A flag and its help in two columns.
fn entry(left: &str, sentence: &str) -> String {
    let mut text = format!("{left:<INDENT$}");
    if left.len() >= INDENT {
        text = format!("{left}\n{:INDENT$}", "");
    }
    let mut column = INDENT;
    for word in sentence.split(' ') {
        if column > INDENT && column + 1 + word.len() > WIDTH {
            text.push_str(&format!("\n{:INDENT$}", ""));
            column = INDENT;
        }
        if column > INDENT {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += word.len();
    }
    text.push('\n');
    text
}
