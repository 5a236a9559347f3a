//! The two helps, and the version.
//!
//! `-h` is read by programs: wrappers and test suites of memcached take the version from its first line and search the
//! rest for the features it names, so it names those that are served and no other. `--help` is read by people.

use super::flags::{FLAGS, Flag, Takes, Topic};

/// The release of memcached whose behaviour is answered for; wrappers read it from the first line of `-h`.
const MEMCACHED_VERSION: &str = "1.6.45";

/// Columns of a line of help.
const WIDTH: usize = 96;
/// Where the sentence of a flag begins.
const INDENT: usize = 32;

const TOPICS: &[(Topic, &str)] = &[
    (Topic::Network, "Network"),
    (Topic::Memory, "Memory"),
    (Topic::Flash, "Flash"),
    (Topic::Limits, "Limits"),
    (Topic::Protocol, "Protocol"),
    (Topic::Process, "Process"),
    (Topic::Watching, "Watching"),
    (Topic::Compatibility, "Kept for memcached's command lines"),
];

/// What `larder --help` prints.
pub(super) fn overview() -> String {
    format!(
        "larder {}: a cache server for memcached clients\n\n\
         usage: larder serve [flags]      start a server\n\
         \x20      larder trace ...          look into a trace, convert it, take a sample of it\n\
         \x20      larder workload ...       write down the requests of a generated workload\n\
         \x20      larder replay ...         drive a memcached or RESP server with a trace or a workload\n\
         \x20      larder simulate ...       eviction policies side by side over a trace\n\
         \x20      larder slabs ...          slab allocation schemes side by side over a trace\n\
         \x20      larder mrc ...            the miss-ratio curve of a trace\n\
         \x20      larder plan ...           what to buy: the best split of DRAM and flash\n\
         \x20      larder COMMAND --help     its flags\n\
         \x20      larder --version          the version\n\n\
         A memcached command line works too: 'larder -p 11211 -m 64' is 'larder serve -p 11211 -m 64',\n\
         and a link to this program that is called 'memcached' takes memcached's place.\n",
        env!("CARGO_PKG_VERSION")
    )
}

/// What `larder serve --help` prints.
pub(super) fn for_people() -> String {
    let mut text = "usage: larder serve [flags]\n\n\
        Flags win over the settings file, and the file over the defaults. A flag that takes no value can\n\
        be turned off with =false. The keys of the file are the long names: memory-limit = \"4g\".\n"
        .to_owned();
    for (topic, title) in TOPICS {
        text.push_str(&format!("\n{title}\n"));
        for flag in FLAGS.iter().filter(|flag| flag.topic == *topic) {
            text.push_str(&entry(&left_side(flag, ' '), &sentence(flag, "[", "]")));
        }
        if *topic == Topic::Process {
            text.push_str(&entry("      --config FILE", "settings file (TOML)"));
        }
    }
    text.push_str("\nTelling\n");
    for (flag, help) in [
        ("      --help", "this page"),
        ("  -h", "the short list, in memcached's form"),
        ("  -V, --version", "the version"),
        ("  -i, --license", "the licence"),
    ] {
        text.push_str(&entry(flag, help));
    }
    text
}

/// What `-h` prints.
pub(super) fn for_wrappers() -> String {
    let mut text = format!("{}{}", version_memcached(), version());
    for flag in FLAGS.iter().filter(|flag| flag.topic != Topic::Refused) {
        text.push_str(&entry(left_side(flag, '=').trim_start(), &sentence(flag, "(default: ", ")")));
    }
    for (flag, help) in [
        ("--config=FILE", "settings file (TOML)"),
        ("-h", "print this list and exit"),
        ("--help", "print the flags by topic and exit"),
        ("-i, --license", "print the licence and exit"),
        ("-V, --version", "print the version and exit"),
    ] {
        text.push_str(&entry(flag, help));
    }
    text
}

/// What `--version` prints.
pub(super) fn version() -> String {
    format!("larder {} (answers as memcached {MEMCACHED_VERSION})\n", env!("CARGO_PKG_VERSION"))
}

/// What `--version` prints under memcached's name.
pub(super) fn version_memcached() -> String {
    format!("memcached {MEMCACHED_VERSION}\n")
}

/// What `--license` prints.
pub(super) fn license() -> String {
    format!("larder {}: {}\n", env!("CARGO_PKG_VERSION"), env!("CARGO_PKG_LICENSE"))
}

fn left_side(flag: &Flag, between: char) -> String {
    let short = flag.short.map_or("    ".to_owned(), |short| format!("-{short}, "));
    let value = match flag.takes {
        Takes::Nothing | Takes::Count => String::new(),
        Takes::Value(name) | Takes::List(name) => format!("{between}{name}"),
    };
    format!("  {short}--{}{value}", flag.long)
}

fn sentence(flag: &Flag, open: &str, close: &str) -> String {
    if flag.default.is_empty() {
        flag.help.to_owned()
    } else {
        format!("{} {open}{}{close}", flag.help, flag.default)
    }
}

/// A flag and its sentence, in two columns.
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
