//! What the running server asks of the program around it: the settings once more, their spelling, the level of the log.

use std::path::PathBuf;

use larder_server::live::Host;
use larder_server::settings::Settings;

use super::flags::by_long_name;
use super::process::{self, LogLevel};
use super::{Action, parse_in, tuning};

/// The program around a server that was started with the words of this process.
pub(crate) struct Program {
    /// The folder in which the process was started.
    base: PathBuf,
    log: LogLevel,
}

impl Program {
    /// The program. `base` is the folder in which the process was started.
    pub(crate) fn new(base: PathBuf, log: LogLevel) -> Program {
        Program { base, log }
    }
}

impl Host for Program {
    fn read_settings(&self) -> Result<Settings, String> {
        match parse_in(std::env::args_os(), &self.base) {
            Ok(Action::Serve(mut settings)) => {
                if settings.daemonize {
                    process::make_paths_absolute(&mut settings, &self.base)
                        .map_err(|error| format!("the folder of the start is not known: {error}"))?;
                }
                Ok(*settings)
            }
            Ok(_) => Err("the command line does not start a server".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn set(&self, settings: &mut Settings, name: &str, value: &str) -> Result<(), String> {
        set(settings, name, value)
    }

    fn set_verbosity(&self, level: u8) {
        self.log.set(level);
    }

    fn raise_limits(&self, settings: &Settings) -> Result<(), String> {
        process::raise_limits(settings)
    }
}

/// Sets a row of the table of settings by its name.
pub(super) fn set(settings: &mut Settings, name: &str, value: &str) -> Result<(), String> {
    let set = match name.strip_prefix("flash.tuning.") {
        Some(key) => tuning::by_name(key).map(|key| key.set),
        None => by_long_name(name).map(|flag| flag.set),
    };
    set.ok_or("it can be changed in the settings file only")?(settings, value)
}

#[cfg(test)]
mod tests {
    use larder_server::live::{Change, SETTINGS};

    use super::super::flags::{FLAGS, Takes, Topic};
    use super::*;

    /// Each setting of the file with a valid value. Flags that have no setting of their own are left out: those
    /// of [`Topic::Compatibility`], and `-L`, which is another name of a value of `--pages`.
    fn settings_of_the_file() -> Vec<(String, &'static str)> {
        let flags = FLAGS.iter().filter(|flag| {
            !matches!(flag.topic, Topic::Refused | Topic::Compatibility) && flag.long != "enable-largepages"
        });
        let flags = flags.map(|flag| {
            let value = match flag.takes {
                Takes::Nothing => {
                    if flag.default == "true" {
                        "false"
                    } else {
                        "true"
                    }
                }
                _ => flag.example,
            };
            (flag.long.to_owned(), value)
        });
        let keys = tuning::KEYS.iter().map(|key| (format!("flash.tuning.{}", key.name), key.example));
        flags.chain(keys).collect()
    }

    #[test]
    fn every_setting_of_the_file_is_in_the_table_of_settings() {
        let mut of_file: Vec<String> = settings_of_the_file().into_iter().map(|(name, _)| name).collect();
        of_file.push("fleet".to_owned());
        let mut of_table: Vec<&str> = SETTINGS.iter().map(|setting| setting.name).collect();
        of_file.sort();
        of_table.sort();
        assert_eq!(of_table, of_file);
    }

    #[test]
    fn a_value_is_written_as_it_is_read() {
        for (name, value) in settings_of_the_file() {
            let text = SETTINGS.iter().find(|setting| setting.name == name).unwrap().text;
            let mut by_value = Settings::default();
            set(&mut by_value, &name, value).unwrap();
            assert_ne!(text(&by_value), text(&Settings::default()), "{name} {value}");
            let mut by_text = Settings::default();
            set(&mut by_text, &name, &text(&by_value)).unwrap();
            assert_eq!(by_text, by_value, "{name}");
        }
    }

    #[test]
    fn the_manual_says_of_each_setting_whether_it_changes_while_the_server_runs() {
        let manual = include_str!("../../docs/operate.md");
        let rows: String = SETTINGS
            .iter()
            .map(|setting| match setting.change {
                Change::Live(_) => format!("| `{}` | at once |\n", setting.name),
                Change::ByFile(_) => format!("| `{}` | at once, by the settings file only |\n", setting.name),
                Change::AtStart(why) => format!("| `{}` | at the next start: {why} |\n", setting.name),
            })
            .collect();
        assert!(manual.contains(&rows), "docs/operate.md should have:\n{rows}");
    }
}
