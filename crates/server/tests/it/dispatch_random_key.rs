//! `RANDOMKEY` draws every key.

use crate::dispatch_support::{Talk, dispatcher, on_a_connection};
use larder_server::settings::Settings;
use std::collections::BTreeMap;

/// How often each of three keys is drawn, by 200 draws. `seed` says where in the index the keys are, `hashpower` how
/// large it is.
fn draws(seed: u64, hashpower: Option<u32>) -> BTreeMap<String, u32> {
    on_a_connection(move |client| {
        let settings = Settings { memory_bytes: 64 << 20, threads: 1, hashpower, ..Settings::default() };
        let (mut dispatcher, _cache) = dispatcher(settings, Some(seed), None);
        let mut talk = Talk::open(&mut dispatcher, client.peer);
        for key in ["a", "b", "c"] {
            let request = format!("*3\r\n$3\r\nSET\r\n$1\r\n{key}\r\n$1\r\nv\r\n");
            talk.send(&mut dispatcher, request.as_bytes());
            assert_eq!(talk.line().as_deref(), Some(&b"+OK"[..]));
        }
        let mut drawn = BTreeMap::new();
        for _ in 0..200 {
            talk.send(&mut dispatcher, b"*1\r\n$9\r\nRANDOMKEY\r\n");
            assert_eq!(talk.line().as_deref(), Some(&b"$1"[..]));
            let key = String::from_utf8(talk.line().expect("a key")).expect("a letter");
            *drawn.entry(key).or_default() += 1;
        }
        talk.close(&mut dispatcher);
        drawn
    })
}

#[test]
fn a_key_right_behind_another_is_drawn_too() {
    // An index of one stretch of buckets, and one of two, which may begin anywhere.
    for hashpower in [None, Some(16)] {
        for seed in 1..=40 {
            let drawn = draws(seed, hashpower);
            // At least a sixth of the draws is expected for each key.
            assert_eq!(drawn.len(), 3, "seed {seed}, hashpower {hashpower:?}: {drawn:?}");
        }
    }
}
