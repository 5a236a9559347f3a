//! `larder check-config`: the settings of a server and where each value comes from, and everything that would keep the
//! server from starting. No port is opened, and nothing is written.

use larder_server::settings::table;

use super::Action;
use super::process;
use super::resolve::Resolved;

/// What `check-config` prints.
pub(super) fn report(resolved: &Resolved) -> Action {
    let settings = &resolved.settings;
    let rows: Vec<[String; 3]> = table::settings()
        .zip(&resolved.origins)
        .map(|(row, origin)| {
            let text = row.text(settings);
            let value = if text.is_empty() { "-".to_owned() } else { text };
            [row.name.to_owned(), value, origin.to_string()]
        })
        .collect();
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0).min(40);
    let (names, values) = (width(0), width(1));
    let mut shown = String::new();
    for [name, value, origin] in &rows {
        shown.push_str(&format!("{name:names$}  {value:values$}  {origin}\n"));
    }
    let ignored: Vec<&str> = settings.without_effect.iter().map(|option| option.name.as_str()).collect();
    if !ignored.is_empty() {
        shown.push_str(&format!("accepted for compatibility, without effect: {}\n", ignored.join(", ")));
    }
    for doubt in process::doubts(settings).into_iter().chain(larder_server::doubts_of_start(settings)) {
        shown.push_str(&format!("warning: {doubt}\n"));
    }
    let mut problems: Vec<String> = resolved.problems.iter().map(ToString::to_string).collect();
    problems.extend(larder_server::problems_of_start(settings));
    problems.extend(process::problems(settings));
    problems.dedup();
    Action::Report { shown, problems }
}

#[cfg(test)]
mod tests {
    use crate::cli::tests::File;
    use crate::cli::{Action, check_config};

    fn checked(file: &File, flags: &str) -> (String, Vec<String>) {
        let words = ["--config", file.0.to_str().unwrap()].into_iter().chain(flags.split_whitespace());
        match check_config(&words.map(Into::into).collect::<Vec<_>>(), "".as_ref()) {
            Action::Report { shown, problems } => (shown, problems),
            other => panic!("{other:?}"),
        }
    }

    /// Value and origin of a setting.
    fn row<'a>(shown: &'a str, name: &str) -> (&'a str, &'a str) {
        let mut found = shown.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix("  "));
        let rest = found.next().unwrap_or_else(|| panic!("{name}: {shown}")).trim();
        rest.split_once("  ").map(|(value, origin)| (value, origin.trim())).unwrap()
    }

    #[test]
    fn every_problem_is_told_and_not_the_first_only() {
        let text = "thread = 2\nport = 99999\n\n[flash]\nmemry = 1\n[flash.tuning]\ndepth = 0\nsvae = 1\n";
        let file = File::new("problems", text);
        let (shown, problems) = checked(&file, "-c 0 -U 1 -S -Z -I 64m -Y /no/such/file");
        let says = [
            "line 1: there is no setting 'thread'",
            "line 2: bad value '99999' for port",
            "line 5: there is no setting 'memry' in [flash]",
            "line 7: bad value '0' for depth",
            "line 8: there is no key 'svae' in [flash.tuning]",
            "bad value '0' for -c (--conn-limit)",
            "lower -I or raise -m",
            "nobody can log in over UDP",
            "TLS (-Z) needs a certificate",
            "/no/such/file",
        ];
        assert_eq!(problems.len(), says.len(), "{problems:#?}");
        for (problem, says) in problems.iter().zip(says) {
            assert!(problem.contains(says), "{problem}: {says}");
        }
        assert_eq!(row(&shown, "threads"), ("4", "default"));
    }

    #[test]
    fn each_value_has_the_place_that_decided_it() {
        let text = "memory-limit = \"1g\"\nthreads = 2\nidle-timeout = 0\n\n[flash]\npath = \"sim:ftl:64m\"\n\
                    [flash.tuning]\nsave = false\n";
        let file = File::new("origins", text);
        let (shown, problems) = checked(&file, "-t 3 -o idle_timeout=7,lru_crawler -U 11999");
        assert_eq!(problems, [""; 0]);
        let line = |number: u32| format!("{} line {number}", file.0.display());
        assert_eq!(row(&shown, "memory-limit"), ("1g", line(1).as_str()));
        assert_eq!(row(&shown, "threads"), ("3", "flag -t (--threads)"));
        assert_eq!(row(&shown, "idle-timeout"), ("7", "flag -o (--extended)"));
        assert_eq!(row(&shown, "port"), ("11999", "flag -U (--udp-port)"));
        assert_eq!(row(&shown, "flash"), ("sim:ftl:64m", line(6).as_str()));
        assert_eq!(row(&shown, "flash.tuning.save"), ("off", line(8).as_str()));
        assert_eq!(row(&shown, "pidfile"), ("-", "default"));
        assert!(shown.contains("without effect: lru_crawler\n"), "{shown}");
        // A value that is the default, but was said.
        assert_eq!(row(&checked(&file, "").0, "idle-timeout"), ("0", line(3).as_str()));
    }
}
