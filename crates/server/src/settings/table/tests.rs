//! What every row of the table keeps.

use super::*;
use crate::settings::{Settings, Takes};

/// A valid value that differs from the default.
fn example(row: &Row) -> String {
    match row.takes {
        Takes::Nothing if row.topic != Topic::Section => (row.default() != "true").to_string(),
        _ => row.example.to_owned(),
    }
}

#[test]
fn names_are_unique_and_keys_are_plain() {
    let all: Vec<&Row> = rows().collect();
    for (at, row) in all.iter().enumerate() {
        for other in &all[at + 1..] {
            assert_ne!(row.name, other.name);
            assert!(row.letter.is_none() || row.letter != other.letter, "-{:?}", row.letter);
            assert!(row.option.is_none() || row.option != other.option, "{:?}", row.option);
        }
        let plain = |letter: u8| letter.is_ascii_lowercase() || letter == b'-';
        assert!(row.key().bytes().all(plain), "{}", row.name);
    }
}

#[test]
fn a_value_is_read_as_it_is_written() {
    let default = Settings::default();
    for row in settings().filter(|row| row.topic != Topic::Section) {
        let text = example(row);
        let mut by_example = Settings::default();
        row.set(&mut by_example, &text).unwrap_or_else(|why| panic!("{}: {why}", row.name));
        assert_ne!(row.text(&by_example), row.text(&default), "{}", row.name);
        let mut again = Settings::default();
        row.set(&mut again, &row.text(&by_example)).unwrap_or_else(|why| panic!("{}: {why}", row.name));
        assert_eq!(again, by_example, "{}", row.name);
        let mut copied = Settings::default();
        row.value.copy(&mut copied, &by_example);
        assert_eq!(row.text(&copied), row.text(&by_example), "{}", row.name);
        if !row.text(&default).is_empty() {
            row.set(&mut again, &row.text(&default)).unwrap_or_else(|why| panic!("{}: {why}", row.name));
            assert_eq!(row.text(&again), row.text(&default), "{}", row.name);
        }
    }
}

#[test]
fn the_default_of_the_help_is_the_default() {
    let default = Settings::default();
    for row in rows().filter(|row| !row.default().is_empty()) {
        let mut found = Settings::default();
        row.set(&mut found, &row.default()).unwrap_or_else(|why| panic!("{}: {why}", row.name));
        assert_eq!(row.text(&found), row.text(&default), "{}", row.name);
    }
}

#[test]
fn a_setting_is_known_by_its_help() {
    for row in rows().filter(|row| row.is_obeyed_flag() || row.topic == Topic::Tuning) {
        assert!(!row.help.is_empty() && !row.help.ends_with('.'), "{}", row.name);
        assert_eq!(row.figure.is_empty(), row.topic != Topic::Tuning, "{}", row.name);
    }
}

/// Where `docs/operate.md` has the table of settings.
const BEGIN: &str =
    "<!-- The table of settings: LARDER_BLESS=1 cargo test -p larder-server manual writes it. -->\n";
const END: &str = "<!-- The end of the table of settings. -->\n";

/// The table of settings for people.
fn table_for_people() -> String {
    let mut text = "| setting | also | default | a new value takes effect |\n|---|---|---|---|\n".to_owned();
    for row in settings() {
        let letter = row.letter.map(|letter| format!("`-{letter}`"));
        let option = row.option.map(|option| format!("`-o {option}`"));
        let also: Vec<String> = letter.into_iter().chain(option).collect();
        let default = Some(row.default()).filter(|text| !text.is_empty());
        let default = default.map_or(String::new(), |text| format!("`{text}`"));
        let cells = [format!("`{}`", row.name), also.join(", "), default, row.takes_effect()];
        text.push_str(&format!("| {} |\n", cells.join(" | ")).replace("|  |", "| |").replace("|  |", "| |"));
    }
    text
}

#[test]
fn the_manual_has_the_table_of_settings() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operate.md");
    let manual = std::fs::read_to_string(path).expect("the manual");
    let (before, rest) = manual.split_once(BEGIN).expect("the beginning of the table");
    let (shown, after) = rest.split_once(END).expect("the end of the table");
    let wanted = format!("\n{}\n", table_for_people());
    if std::env::var_os("LARDER_BLESS").is_some() {
        std::fs::write(path, [before, BEGIN, &wanted, END, after].concat())
            .expect("the manual can be written");
    } else {
        assert!(shown == wanted, "the table in docs/operate.md is stale: LARDER_BLESS=1 writes it");
    }
}
