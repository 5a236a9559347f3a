//! The command `worth`, and what `stats` says of it.

use crate::dispatch_support::{Talk, dispatcher, on_a_connection};
use larder_server::settings::{Objective, Settings, WorthMode, WorthOptions};

const USAGE: &str =
    "CLIENT_ERROR usage: worth mode penalty|hits|static, or worth objective requests|bytes|time\r\n";

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
