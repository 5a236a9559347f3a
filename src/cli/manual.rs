//! Man pages and completions for shells, made from the table of settings: `larder man` and `larder completions SHELL`.

use std::ffi::OsString;
use std::path::Path;

use clap::{Arg, Command, ValueHint, value_parser};
use clap_complete::Shell;

use super::error::CliError;
use super::examples;
use super::{Action, CHECK_CONFIG, FORMAT_FLASH, HEALTH, command, help, workbench};

/// Commands that packages call.
pub(super) const MAN: &str = "man";
pub(super) const COMPLETIONS: &str = "completions";

/// The whole program for clap, with a help for each command.
fn program() -> Command {
    let server = |name: &'static str, about: &'static str| command().name(name).about(about);
    let commands = workbench::commands();
    commands
        .about("A cache server for clients of memcached and of Redis, and a workbench for caches")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand(server("serve", "Start a server"))
        .subcommand(
            server(CHECK_CONFIG, "Check the settings of a server, and show where each comes from")
                .arg(
                    Arg::new("quiet")
                        .long("quiet")
                        .action(clap::ArgAction::SetTrue)
                        .help("print the problems only"),
                )
                .arg(
                    Arg::new("sample")
                        .long("sample")
                        .action(clap::ArgAction::SetTrue)
                        .help("print a settings file with each setting as a comment"),
                ),
        )
        .subcommand(
            Command::new(HEALTH)
                .about("Ask the admin page of a server whether it serves")
                .arg(Arg::new("ADDR").help("host:port of the admin page (default: 127.0.0.1:11219)")),
        )
        .subcommand(server(FORMAT_FLASH, "Erase the flash of a server"))
        .subcommand(
            Command::new(MAN)
                .about("Print the man page, or write those of all commands to a folder")
                .arg(Arg::new("FOLDER").help("a folder that exists").value_hint(ValueHint::DirPath)),
        )
        .subcommand(
            Command::new(COMPLETIONS)
                .about("Print the script with which a shell completes commands")
                .arg(Arg::new("SHELL").required(true).value_parser(value_parser!(Shell))),
        )
}

/// `larder man`: the page of the program. `larder man FOLDER`: writes a page for each command into the folder.
pub(super) fn man(words: &[OsString]) -> Result<Action, CliError> {
    match words {
        [word] if word == "--help" || word == "-h" => Ok(Action::Print(help::of_man())),
        [] => {
            let mut page = Vec::new();
            let rendered = clap_mangen::Man::new(program()).render(&mut page);
            rendered.map_err(|error| CliError::new(format!("cannot write the page: {error}")))?;
            Ok(Action::Print(String::from_utf8_lossy(&page).into_owned()))
        }
        [folder] => {
            let folder = Path::new(folder);
            let written = clap_mangen::generate_to(program(), folder).and_then(|()| add_sections(folder));
            written.map_err(|error| {
                CliError::new(format!("cannot write pages to {}: {error}", folder.display()))
            })?;
            Ok(Action::Print(String::new()))
        }
        _ => {
            Err(CliError::new("'larder man' prints a page, 'larder man FOLDER' writes all pages to a folder"))
        }
    }
}

/// What the page of `serve` says of files and signals.
const SERVE: [(&str, &[(&str, &str)]); 2] = [
    (
        "FILES",
        &[
            (
                "/etc/larder/larder.toml",
                "the settings of the service, where the Debian package has installed one",
            ),
            ("/usr/share/doc/larder", "the documents, there likewise"),
        ],
    ),
    (
        "SIGNALS",
        &[
            (
                "SIGTERM, SIGINT",
                "stop; with flash, the items in memory are written there, and a second one ends at once",
            ),
            ("SIGUSR1", "answer the requests that have come, for 10 seconds at most, then stop"),
            ("SIGHUP", "read the settings file, the file of users and the certificates again"),
        ],
    ),
];

/// Adds examples, files, signals and further pages to the pages in a folder.
fn add_sections(folder: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let Some(command) = name.strip_prefix("larder").and_then(|rest| rest.strip_suffix(".1")) else {
            continue;
        };
        let command = command.trim_start_matches('-').replacen("trace-", "trace ", 1);
        let mut page = std::fs::read_to_string(&path)?;
        page.push_str(&section("EXAMPLES", examples::of(&command)));
        if command == "serve" {
            SERVE.iter().for_each(|(title, entries)| page.push_str(&section(title, entries)));
        }
        let others = if command.is_empty() { "larder\\-serve(1), larder\\-plan(1)" } else { "larder(1)" };
        page.push_str(&format!(".SH \"SEE ALSO\"\n{others}\n"));
        std::fs::write(&path, page)?;
    }
    Ok(())
}

/// A section of a page in roff: words, and what they mean. Empty without any.
fn section(title: &str, entries: &[(&str, &str)]) -> String {
    let safe = |text: &str| text.replace('\\', "\\\\").replace('-', "\\-");
    let entry = |(words, what): &(&str, &str)| format!(".TP\n\\&{}\n\\&{}\n", safe(words), safe(what));
    let entries: String = entries.iter().map(entry).collect();
    if entries.is_empty() { entries } else { format!(".SH {title}\n{entries}") }
}

/// `larder completions SHELL`: the script that the shell reads.
pub(super) fn completions(words: &[OsString]) -> Result<Action, CliError> {
    let shell = match words {
        [word] if word == "--help" || word == "-h" => return Ok(Action::Print(help::of_completions())),
        [shell] => shell.to_str().and_then(|shell| shell.parse::<Shell>().ok()),
        _ => None,
    };
    let shell = shell.ok_or_else(|| {
        CliError::new("name a shell: 'larder completions bash', or zsh, fish, elvish or powershell")
    })?;
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut program(), "larder", &mut script);
    Ok(Action::Print(String::from_utf8_lossy(&script).into_owned()))
}

/// What clap is told of a flag that it shows to people.
pub(super) fn shown(arg: Arg, help: &str, default: &str) -> Arg {
    let default = if default.is_empty() { String::new() } else { format!(" (default: {default})") };
    arg.help(format!("{help}{default}"))
}
