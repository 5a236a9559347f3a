//! How the requests of several connections share one turn of a worker.

use crate::dispatch_support::{dispatcher, on_a_connection};
use larder_server::dispatch::Dispatcher;
use larder_server::io::{Conversation, Peer, Ready, Service};
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

/// Sends a heavy request and a light one in one turn. Returns what the light one is answered in that turn, what the
/// heavy one is answered at last, and in how many turns.
fn beside(dispatcher: &mut Dispatcher, peer: &Peer<'_>, heavy: &[u8], light: &[u8]) -> (String, String, u32) {
    let mut connections = [dispatcher.open(peer), dispatcher.open(peer)];
    let (mut replies, mut turns, mut consumed) = ([Vec::new(), Vec::new()], 0, [0, 0]);
    let mut first = None;
    while turns < 10_000 {
        let mut batch: Vec<_> = connections
            .iter_mut()
            .zip([heavy, light])
            .zip(consumed)
            .map(|((connection, input), consumed)| Ready {
                connection,
                input: &input[consumed..],
                consumed: 0,
            })
            .collect();
        dispatcher.serve(&mut batch);
        turns += 1;
        let used: Vec<usize> = batch.iter().map(|ready| ready.consumed).collect();
        drop(batch);
        for (nth, connection) in connections.iter_mut().enumerate() {
            consumed[nth] += used[nth];
            while let Some(reply) = connection.take_output() {
                replies[nth].extend_from_slice(&reply);
                connection.recycle(reply);
            }
        }
        first.get_or_insert_with(|| replies[1].clone());
        if consumed[0] == heavy.len() && connections[0].wants_input() {
            break;
        }
    }
    let [heavy, _] = replies;
    let text = |reply: Vec<u8>| String::from_utf8(reply).expect("replies are text");
    (text(first.unwrap_or_default()), text(heavy), turns)
}

/// A request of RESP.
fn request(words: &[String]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
    bytes
}

#[test]
fn a_measure_of_all_items_gives_way_to_other_connections() {
    on_a_connection(|client| {
        let settings =
            Settings { memory_bytes: 64 << 20, threads: 1, track_sizes: true, ..Settings::default() };
        let (mut dispatcher, cache) = dispatcher(settings, None, None);
        let stores: Vec<u8> =
            (0..10_000).flat_map(|n| format!("set key{n:05} 0 0 1 noreply\r\nx\r\n").into_bytes()).collect();
        beside(&mut dispatcher, client.peer, &stores, b"");
        assert_eq!(cache.items(), 10_000);
        let (light, sizes, turns) =
            beside(&mut dispatcher, client.peer, b"stats sizes\r\nmn\r\n", b"mg key00000 v\r\n");
        assert_eq!(light, "VA 1\r\nx\r\n");
        assert!(sizes.starts_with("STAT 32 10000\r\n") || sizes.starts_with("STAT 64 10000\r\n"), "{sizes}");
        assert!(sizes.ends_with("END\r\nMN\r\n"), "{sizes}");
        assert!(turns > 3, "{turns} turns for 10,000 items");
    });
}

#[test]
fn a_command_on_many_keys_gives_way_to_other_connections() {
    on_a_connection(|client| {
        let settings = Settings { memory_bytes: 64 << 20, threads: 1, ..Settings::default() };
        let (mut dispatcher, cache) = dispatcher(settings, None, None);
        let keys = || (0..2000).map(|n| format!("key{n}"));
        let with_name = |name: &str| [vec![name.to_owned()], keys().collect()].concat();
        let pairs = keys().flat_map(|key| [key.clone(), key]).collect();
        let all = [vec!["mset".to_owned()], pairs].concat();
        let get = request(&["get".to_owned(), "key7".to_owned()]);
        // What follows in the same input is answered after it.
        let ping = request(&["ping".to_owned()]);
        let mut run = |words: &[String]| {
            let heavy = [request(words), ping.clone()].concat();
            beside(&mut dispatcher, client.peer, &heavy, &get)
        };
        for (words, reply, others) in [
            (all, "+OK", "$4\r\nkey7\r\n"),
            (with_name("exists"), ":2000", "$4\r\nkey7\r\n"),
            (with_name("touch"), ":2000", "$4\r\nkey7\r\n"),
            (["keys", "absent*"].map(str::to_owned).to_vec(), "*0", "$4\r\nkey7\r\n"),
            (with_name("del"), ":2000", "$-1\r\n"),
            (with_name("unlink"), ":0", "$-1\r\n"),
        ] {
            let (light, heavy, turns) = run(&words);
            assert_eq!((heavy.as_str(), light.as_str()), (&*format!("{reply}\r\n+PONG\r\n"), others));
            assert!((4..=12).contains(&turns), "{turns} turns for 2,000 keys of {}", words[0]);
        }
        assert_eq!(cache.items(), 0);
        // A transaction is executed in one piece.
        let transaction =
            [request(&["multi".to_owned()]), request(&with_name("exists")), request(&["exec".to_owned()])];
        let (_, heavy, _) = beside(&mut dispatcher, client.peer, &transaction.concat(), &get);
        assert_eq!(heavy, "+OK\r\n+QUEUED\r\n*1\r\n:0\r\n");
    });
}

#[test]
fn a_long_retrieval_gives_way_to_other_connections() {
    on_a_connection(|client| {
        let settings = Settings { memory_bytes: 64 << 20, threads: 1, ..Settings::default() };
        let (mut dispatcher, _cache) = dispatcher(settings, None, None);
        // Every third key has a value, and one of them is sent in parts.
        let value =
            |n: usize| (n.is_multiple_of(3)).then(|| "v".repeat(if n == 1500 { 200_000 } else { n % 7 }));
        let stores: String = (0..3000)
            .filter_map(|n| Some((n, value(n)?)))
            .map(|(n, value)| format!("set key{n} 0 0 {} noreply\r\n{value}\r\n", value.len()))
            .collect();
        beside(&mut dispatcher, client.peer, stores.as_bytes(), b"");
        let shown = |n| Some(format!("VALUE key{n} 0 {}\r\n{}\r\n", value(n)?.len(), value(n)?));
        let expected: String = (0..3000).filter_map(shown).chain(["END\r\n".to_owned()]).collect();
        for (command, between, end) in
            [("get", " ", "\r\n"), ("get", "  ", "\n"), ("get", " ", " \r\n"), ("gat 100", " ", "\n")]
        {
            // memcached's limit for a line of `gat`.
            let keys = if command == "get" { 3000 } else { 1700 };
            let line: String = (0..keys).map(|n| format!("{between}key{n}")).collect();
            let expected = match keys {
                3000 => expected.clone(),
                _ => (0..keys).filter_map(shown).chain(["END\r\n".to_owned()]).collect(),
            };
            let heavy = format!("mn\r\n{command}{line}{end}get key3\r\n");
            let light = b"get key6 key1500\r\n";
            let (first, all, turns) = beside(&mut dispatcher, client.peer, heavy.as_bytes(), light);
            assert!(first.starts_with("VALUE key6 0 6\r\nvvvvvv\r\nVALUE key1500 0 200000\r\n"));
            let expected = format!("MN\r\n{expected}VALUE key3 0 3\r\nvvv\r\nEND\r\n");
            assert!(all == expected, "{command}, {between:?}, {end:?}: {} bytes", all.len());
            assert!(turns as usize >= keys / 512, "{turns} turns");
        }
        let names = (0..3000).map(|n| format!("key{n}"));
        let heavy = request(&["mget".to_owned()].into_iter().chain(names).collect::<Vec<_>>());
        let shown =
            |n| value(n).map_or("$-1\r\n".to_owned(), |value| format!("${}\r\n{value}\r\n", value.len()));
        let expected: String = ["*3000\r\n".to_owned()].into_iter().chain((0..3000).map(shown)).collect();
        let get = request(&["get".to_owned(), "key3".to_owned()]);
        let (first, all, turns) = beside(&mut dispatcher, client.peer, &heavy, &get);
        assert_eq!(first, "$3\r\nvvv\r\n");
        assert!(all == expected && turns >= 2, "{turns} turns, {} bytes", all.len());
    });
}

#[test]
fn few_items_in_a_large_index_are_not_counted_one_by_one() {
    on_a_connection(|client| {
        for (hashpower, live) in [(None, ":1\r\n"), (Some(20), ":2\r\n")] {
            let settings = Settings { memory_bytes: 64 << 20, threads: 1, hashpower, ..Settings::default() };
            let (mut dispatcher, cache) = dispatcher(settings, None, None);
            cache.clock().hold();
            let mut say = |input: &[u8]| beside(&mut dispatcher, client.peer, input, b"").1;
            assert_eq!(say(b"set a 0 0 1\r\na\r\nset b 0 1 1\r\nb\r\n"), "STORED\r\nSTORED\r\n");
            cache.clock().shift(10);
            assert_eq!(say(&request(&["dbsize".to_owned()])), live, "hashpower {hashpower:?}");
        }
    });
}
