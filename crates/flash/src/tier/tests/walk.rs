//! Walks over everything: see also the model.

use super::Bench;
use crate::{Listed, Put};
use std::sync::atomic::Ordering::SeqCst;

fn listed(bench: &Bench, at_once: usize) -> Vec<Listed> {
    let (mut items, mut from) = (Vec::new(), Some(bench.flash.first_place()));
    while let Some(place) = from {
        assert_eq!(bench.flash.place_of(place.to_bits()), place);
        from = bench.flash.list(place, at_once, &mut items);
    }
    items
}

fn names(bench: &Bench) -> Vec<String> {
    let mut names: Vec<String> =
        listed(bench, 3).into_iter().map(|item| String::from_utf8(item.key).unwrap()).collect();
    names.sort_unstable();
    names
}

#[test]
fn what_is_alive_is_listed_once_wherever_it_is() {
    for generations in [false, true] {
        let bench = Bench::new(64, 64, |options| options.generations = generations);
        let mut expected = Vec::new();
        for number in 0..3000 {
            let key = format!("{}:{number}", if number % 3 == 0 { "page" } else { "user" });
            // Some are extents.
            let value = vec![1; if number % 10 == 0 { 9000 } else { 50 + number % 300 }];
            let expires = if number % 7 == 0 { super::NOW + 10 } else { 0 };
            while bench.put(key.as_bytes(), &value, expires) == Put::Shed {
                bench.flash.tend();
            }
            if number % 5 == 0 {
                bench.invalidate(key.as_bytes());
            } else if number % 11 == 0 {
                while bench.put(key.as_bytes(), b"another", 0) == Put::Shed {
                    bench.flash.tend();
                }
                expected.push((key, 0));
            } else {
                expected.push((key, expires));
            }
        }
        let keys = |now: u32, prefix: &str| {
            let alive = |(key, expires): &&(String, u32)| {
                (*expires == 0 || *expires > now) && key.starts_with(prefix)
            };
            let mut keys: Vec<String> = expected.iter().filter(alive).map(|(key, _)| key.clone()).collect();
            keys.sort_unstable();
            keys
        };
        assert_eq!(names(&bench), keys(super::NOW, ""), "partly in buffers");
        bench.flash.components().log.seal_all();
        bench.settle();
        assert_eq!(names(&bench), keys(super::NOW, ""), "on the device");
        bench.clock.fetch_add(20, SeqCst);
        assert_eq!(names(&bench), keys(super::NOW + 20, ""), "some have expired");
        assert!(bench.delete_prefix(b"page:"));
        assert_eq!(names(&bench), keys(super::NOW + 20, "user:"), "those of a prefix are deleted");
        bench.flash.begin_flush();
        assert_eq!(names(&bench), Vec::<String>::new());
        bench.flash.end_flush();
        assert_eq!(names(&bench), Vec::<String>::new());
    }
}

#[test]
fn a_call_lists_about_what_is_asked_for() {
    let bench = Bench::new(64, 64, |_| {});
    for number in 0..5000 {
        while bench.put(format!("key {number}").as_bytes(), &[1; 200], 0) == Put::Shed {
            bench.flash.tend();
        }
    }
    bench.flash.components().log.seal_all();
    bench.settle();
    let mut items = Vec::new();
    let place = bench.flash.list(bench.flash.first_place(), 10, &mut items);
    assert!(place.is_some() && items.len() >= 10 && items.len() < 600, "{}", items.len());
    assert_eq!(listed(&bench, 10).len(), 5000);
}
