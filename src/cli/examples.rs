//! Examples of each command, in its help and in its man page.

/// A command line, and what it does.
type Example = (&'static str, &'static str);

/// The examples of each command. A test has all of them parsed.
const EXAMPLES: &[(&str, &[Example])] = &[
    (
        "serve",
        &[
            ("larder serve -m 4g", "4 GiB, for clients of this machine, of memcached and of Redis"),
            ("larder serve -m 4g -l 0.0.0.0", "for clients of all machines"),
            ("larder serve -m 4g --flash /data/flash:100g", "what memory has no room for stays on flash"),
            ("larder serve -m 4g --keep /dev/shm/larder", "items outlive the process"),
            ("larder serve --config /etc/larder/larder.toml", "settings of a file"),
        ],
    ),
    (
        "check-config",
        &[
            (
                "larder check-config --config /etc/larder/larder.toml",
                "what a server would have, and what is wrong",
            ),
            ("larder check-config --sample", "a settings file with every setting as a comment"),
        ],
    ),
    ("format-flash", &[("larder format-flash --flash /data/flash:100g", "erase it, whatever it holds")]),
    ("health", &[("larder health 127.0.0.1:11219", "status 0 if the server is ready")]),
    (
        "capture",
        &[
            ("larder capture cache-1:11211 --for 5m -o cache-1.csv.zst", "five minutes of its traffic"),
            (
                "larder capture cache-1.pcap -o cache-1.csv.zst",
                "from packets: tcpdump -w cache-1.pcap port 11211",
            ),
            ("larder capture - --port 7000 --limit 10m -o a.csv.zst", "from a pipe: tcpdump -w - port 7000"),
        ],
    ),
    (
        "trace compressible",
        &[
            ("larder trace compressible --server cache-1:11211", "what compression would make of its values"),
            (
                "larder trace compressible users.jsonl --html values.html",
                "of a file with a value in each line",
            ),
        ],
    ),
    ("trace inspect", &[("larder trace inspect cache-1.csv.zst --html trace.html", "what a trace holds")]),
    (
        "trace convert",
        &[
            ("larder trace convert cache-1.csv.zst cache-1.oracleGeneral.zst", "for libCacheSim"),
            ("larder trace convert a.txt a.csv --columns time=1,key=2,size=3", "a text without a header"),
        ],
    ),
    (
        "trace sample",
        &[("larder trace sample cache-1.csv.zst small.csv.zst --rate 0.01", "a hundredth of the keys")],
    ),
    ("workload", &[("larder workload zipfian:keys=1m,requests=10m zipf.csv.zst", "ten million requests")]),
    (
        "replay",
        &[
            ("larder replay cache-1.csv.zst --server cache-2:11211 --read-through", "a miss is stored"),
            (
                "larder replay --workload zipfian:keys=1m,requests=10m --rate 50000",
                "at a pace, on this machine",
            ),
        ],
    ),
    (
        "simulate",
        &[(
            "larder simulate cache-1.csv.zst --sizes 1%,10% --html policies.html",
            "which policy misses least",
        )],
    ),
    ("mrc", &[("larder mrc cache-1.csv.zst --sizes 4g,8g", "what each size would miss")]),
    (
        "plan",
        &[
            ("larder plan --trace cache-1.csv.zst --dram 4g --flash 20g", "what this machine would do"),
            ("larder plan --trace cache-1.csv.zst --target 500us", "the cheapest with this latency"),
            ("larder plan --server cache-1:11211", "by the curve that a running server keeps"),
        ],
    ),
    ("top", &[("larder top cache-1:11211", "once a second, until q is pressed")]),
];

/// The examples of a command, such as `trace inspect`.
pub(super) fn of(command: &str) -> &'static [Example] {
    EXAMPLES.iter().find(|(of, _)| *of == command).map_or(&[], |(_, examples)| examples)
}

/// The examples of a command as a part of its help; empty if there are none.
pub(super) fn text(command: &str) -> String {
    let lines = of(command).iter().map(|(line, what)| format!("  {line}\n      {what}\n"));
    let lines: String = lines.collect();
    if lines.is_empty() { lines } else { format!("Examples:\n{lines}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Action, parse, workbench};
    use std::ffi::OsString;

    #[test]
    fn each_example_is_understood() {
        for (command, examples) in EXAMPLES {
            assert!(!examples.is_empty());
            for (line, _) in *examples {
                assert!(line.starts_with(&format!("larder {command}")) && line.len() < 90, "{line}");
                let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
                match parse(words.clone()) {
                    Ok(Action::Workbench(_)) => {
                        workbench::commands()
                            .try_get_matches_from(words)
                            .unwrap_or_else(|error| panic!("{error}"));
                    }
                    Ok(_) => {}
                    // The file of settings is not on every machine.
                    Err(error) => assert!(line.contains("--config"), "{line}: {error}"),
                }
            }
        }
    }

    #[test]
    fn each_command_has_examples_in_its_help() {
        for command in workbench::COMMANDS.iter().filter(|command| **command != "trace") {
            assert!(text(command).starts_with("Examples:\n  larder "), "{command}");
        }
        let mut commands = workbench::with_examples(workbench::commands(), "");
        let inspect =
            commands.find_subcommand_mut("trace").and_then(|trace| trace.find_subcommand_mut("inspect"));
        assert!(inspect.unwrap().render_help().to_string().contains("\nExamples:\n  larder trace inspect "));
    }
}
