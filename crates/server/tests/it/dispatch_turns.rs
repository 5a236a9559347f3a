//! How the requests of several connections share one turn of a worker.

use crate::dispatch_support::{dispatcher, on_a_connection};
use larder_server::io::{Conversation, Ready, Service};
use larder_server::settings::Settings;

/// The replies to what connections send at once, in one turn with `-R per_share`, and the server's `conn_yields` after
/// that.
fn replies(per_share: u32, inputs: &[&[u8]]) -> (Vec<String>, u64) {
    let inputs: Vec<Vec<u8>> = inputs.iter().map(|input| input.to_vec()).collect();
    on_a_connection(move |client| {
        let settings = Settings {
            memory_bytes: 64 << 20,
            threads: 1,
            requests_per_event: per_share,
            ..Settings::default()
        };
        let (mut dispatcher, _cache) = dispatcher(settings, None, None);
        let mut serve = |inputs: &[Vec<u8>]| -> Vec<String> {
            let mut connections: Vec<_> = inputs.iter().map(|_| dispatcher.open(client.peer)).collect();
            let mut batch: Vec<_> = connections
                .iter_mut()
                .zip(inputs)
                .map(|(connection, input)| Ready { connection, input, consumed: 0 })
                .collect();
            dispatcher.serve(&mut batch);
            for ready in &batch {
                let rest = &ready.input[ready.consumed..];
                assert!(!rest.contains(&b'\n'), "a request is left: {}", rest.escape_ascii());
            }
            let replies =
                connections.iter_mut().map(|connection| connection.take_output().unwrap_or_default());
            replies.map(|reply| String::from_utf8(reply).expect("replies are text")).collect()
        };
        serve(&[b"set n 0 0 1\r\n0\r\n".to_vec()]);
        let all = serve(&inputs);
        let stats = serve(&[b"stats\r\n".to_vec()]);
        let row = stats[0].lines().find_map(|line| line.strip_prefix("STAT conn_yields "));
        (all, row.expect("there is such a row").parse().expect("a number"))
    })
}

fn numbers(all: impl IntoIterator<Item = u32>) -> String {
    all.into_iter().map(|number| format!("{number}\r\n")).collect()
}

#[test]
fn connections_give_way_to_each_other_after_their_share() {
    let (long, short) = (b"incr n 1\r\n".repeat(7), b"incr n 1\r\n".repeat(2));
    let (all, yields) = replies(2, &[&long, b"get x\r\nincr n ", &short, &long]);
    assert_eq!(all[0], numbers([1, 2, 7, 8, 11, 12, 15]));
    assert_eq!(all[1], "END\r\n");
    assert_eq!(all[2], numbers([3, 4]));
    assert_eq!(all[3], numbers([5, 6, 9, 10, 13, 14, 16]));
    assert_eq!(yields, 6);
}

#[test]
fn a_share_that_is_larger_than_a_window_is_counted_over_windows() {
    let many = b"incr n 1\r\n".repeat(90);
    let (all, yields) = replies(50, &[&many, &many]);
    assert_eq!(all[0], numbers((1..=50).chain(101..=140)));
    assert_eq!(all[1], numbers((51..=100).chain(141..=180)));
    assert_eq!(yields, 2);
}

#[test]
fn the_line_of_a_multiget_is_not_divided() {
    let keys = format!("get{}\r\nincr n 1\r\n", " n".repeat(70));
    let (all, _) = replies(1, &[keys.as_bytes(), b"incr n 1\r\nincr n 1\r\n"]);
    assert_eq!(all[0], format!("{}END\r\n2\r\n", "VALUE n 0 1\r\n0\r\n".repeat(70)));
    assert_eq!(all[1], numbers([1, 3]));
}

#[test]
fn values_and_refusals_have_their_share_too() {
    let first = b"set a 0 0 1\r\na\r\nset b 0 x 1\r\nb\r\nset c 0 0 1\r\nc\r\n";
    let (all, _) = replies(1, &[first, b"get a\r\nget a\r\nget c\r\nget c\r\n"]);
    assert_eq!(all[0], "STORED\r\nCLIENT_ERROR bad command line format\r\nSTORED\r\n");
    assert!(all[1].ends_with("END\r\nVALUE c 0 1\r\nc\r\nEND\r\n"), "{}", all[1]);
    assert!(all[1].starts_with("VALUE a 0 1\r\na\r\nEND\r\n"), "{}", all[1]);
}

#[test]
fn a_connection_that_is_alone_is_served_to_the_end_and_its_yields_are_counted() {
    let many = b"incr n 1\r\n".repeat(64);
    for (per_share, expected) in [(1, 63), (20, 3), (64, 0), (1000, 0)] {
        let (all, yields) = replies(per_share, &[&many]);
        assert_eq!(all[0], numbers(1..=64));
        assert_eq!(yields, expected, "-R {per_share}");
    }
}
