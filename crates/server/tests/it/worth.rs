//! The command `worth`, and what `stats` says of it.

use crate::dispatch_support::{Talk, dispatcher, on_a_connection};
use larder_server::settings::{Objective, Settings, WorthMode, WorthOptions};

const USAGE: &str =
    "CLIENT_ERROR usage: worth mode auto|penalty|hits|static, or worth objective requests|bytes|time\r\n";

#[test]
fn a_client_changes_mode_and_objective_while_the_server_runs() {
    on_a_connection(|client| {
        let settings = Settings { memory_bytes: 64 << 20, threads: 1, ..Settings::default() };
        let (mut dispatcher, cache) = dispatcher(settings, None, None);
        let mut talk = Talk::open(&mut dispatcher, client.peer);
        let mut ask = |request: &str| {
            talk.send(&mut dispatcher, format!("{request}\r\n").as_bytes());
            String::from_utf8(std::mem::take(&mut talk.answered)).expect("replies are text")
        };
        assert_eq!(cache.worth(), WorthOptions::default());
        let stats = ask("stats worth");
        assert!(
            stats.starts_with("STAT mode auto\r\nSTAT mode_now hits\r\nSTAT mode_now_why no sign was seen ")
        );
        assert!(stats.contains("STAT value_unit misses\r\n"), "{stats}");
        assert_eq!(ask("worth mode hits"), "OK\r\n");
        assert_eq!(ask("worth objective bytes"), "OK\r\n");
        assert_eq!(cache.worth(), WorthOptions { mode: WorthMode::Hits, objective: Objective::Bytes });
        let stats = ask("stats worth");
        for row in ["mode hits", "objective bytes", "value_unit bytes", "groups 0"] {
            assert!(stats.contains(&format!("STAT {row}\r\n")), "{stats}");
        }
        let stats = ask("stats settings");
        assert!(stats.contains("STAT worth hits\r\nSTAT objective bytes\r\n"), "{stats}");
        for wrong in [
            "worth",
            "worth mode",
            "worth mode dear",
            "worth mode \u{fc}",
            "worth objective hits",
            "worth hits",
        ] {
            assert_eq!(ask(wrong), USAGE, "{wrong}");
        }
        assert_eq!(cache.worth(), WorthOptions { mode: WorthMode::Hits, objective: Objective::Bytes });
    });
}

/// The value of a row of statistics.
fn row(stats: &str, name: &str) -> Option<f64> {
    let row = stats.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
    row?.parse().ok()
}

#[test]
fn a_full_cache_shows_the_groups_of_its_items() {
    on_a_connection(|client| {
        let settings = Settings { memory_bytes: 16 << 20, threads: 1, ..Settings::default() };
        let (mut dispatcher, cache) = dispatcher(settings, None, None);
        let mut talk = Talk::open(&mut dispatcher, client.peer);
        for number in 0..80_000 {
            // Every fourth item is larger than the others.
            let value = if number % 4 == 0 { 2_000 } else { 150 };
            let set = format!("set k{number} 0 0 {value} noreply\r\n{}\r\n", "v".repeat(value));
            talk.send(&mut dispatcher, set.as_bytes());
            if number % 500 == 0 {
                cache.tend();
            }
        }
        talk.send(&mut dispatcher, b"stats worth\r\n");
        let stats = String::from_utf8(std::mem::take(&mut talk.answered)).expect("replies are text");
        let of = |name: &str| row(&stats, name).unwrap_or_else(|| panic!("{name} in {stats}"));
        assert!(of("groups") >= 2.0, "{stats}");
        let (small, large) = (of("256:100ms:items"), of("4k:100ms:items"));
        let items = cache.items() as f64;
        assert!(small > 0.0 && large > 0.0 && small + large < 2.0 * items, "{items} items, {stats}");
        let columns = of("256:100ms:columns") + of("4k:100ms:columns");
        assert!(columns > 16.0 && columns * f64::from(cache.column_bytes()) < 17e6, "{stats}");
    });
}
