//! Collections beside maps that define what they are.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn kinds() -> impl Strategy<Value = Kind> {
    prop::sample::select(vec![Kind::Hash, Kind::Set, Kind::SortedSet])
}

fn field() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => prop::collection::vec(any::<u8>(), 0..3),
        1 => (250usize..260).prop_map(|length| vec![b'x'; length]),
    ]
}

proptest! {
    #[test]
    fn an_editor_does_what_a_map_does(
        steps in prop::collection::vec((0..4u8, field(), 0..3000usize, -3..3i8, 0..3u64), 0..60),
        kind in kinds(),
    ) {
        let (mut value, mut twin) = (Vec::new(), BTreeMap::<Vec<u8>, (Vec<u8>, i8, u64)>::new());
        Editor::new(kind, None, 0).write(&mut value);
        for (what, field, length, score, until_ms) in steps {
            let present = Collection::read(kind, &value, 0).expect("it was written");
            // With room for two more, every entry goes through the table.
            let mut slow = Editor::new(kind, Some(present), 2);
            let mut editor = Editor::new(kind, Some(present), 1);
            let text = vec![b'v'; if kind == Kind::Hash { length } else { 0 }];
            let score = if kind == Kind::SortedSet { score } else { 0 };
            let until_ms = if kind == Kind::Hash { until_ms } else { 0 };
            if what == 0 {
                slow.remove(&field);
                prop_assert_eq!(editor.remove(&field).is_some(), twin.remove(&field).is_some());
            } else {
                let entry = Entry { field: &field, value: &text, score: score.into(), until_ms };
                slow.put(entry);
                let old = twin.insert(field.clone(), (text.clone(), score, until_ms));
                let found = editor.put(entry).map(|old| (old.value.to_vec(), old.score, old.until_ms));
                prop_assert_eq!(found, old.map(|(text, score, until_ms)| (text, f64::from(score), until_ms)));
            }
            if what == 3 {
                // A second change.
                slow.remove(b"second");
                editor.put(Entry::member(b"second"));
                editor.remove(b"second");
            }
            prop_assert_eq!((editor.len(), editor.get(&field)), (slow.len(), slow.get(&field)));
            let (mut next, mut by_table) = (Vec::new(), Vec::new());
            editor.write(&mut next);
            slow.write(&mut by_table);
            prop_assert_eq!(&next, &by_table);
            value = next;
            let read = Collection::read(kind, &value, 0).expect("it was written");
            prop_assert_eq!((read.len(), read.iter().count()), (twin.len(), twin.len()));
            let part = |places: std::ops::Range<usize>| value.get(places).unwrap_or_default().to_vec();
            let are_past = !twin.is_empty() && twin.values().all(|(_, _, until_ms)| *until_ms == 1);
            prop_assert!(twin.is_empty() || is_past(part, 1) == are_past);
            for (field, (text, score, until_ms)) in &twin {
                let entry = read.get(field).expect("it is there");
                prop_assert_eq!(
                    (entry.value, entry.score, entry.until_ms), (&text[..], f64::from(*score), *until_ms)
                );
            }
            if kind == Kind::SortedSet {
                let order: Vec<_> = read.iter().map(|entry| (entry.score, entry.field)).collect();
                prop_assert!(order.windows(2).all(|pair| pair[0] < pair[1]));
                let lower = order.iter().filter(|(score, _)| *score < 1.0).count();
                prop_assert_eq!(read.partition(|entry| entry.score < 1.0), lower);
            }
            let lives = twin.values().filter(|(_, _, until_ms)| *until_ms != 1).count();
            prop_assert_eq!(Collection::read(kind, &value, 1).expect("it was written").len(), lives);
        }
    }

    #[test]
    fn any_bytes_can_be_read(bytes in prop::collection::vec(any::<u8>(), 0..200), count in 0u8..9, kind in kinds()) {
        for value in [bytes.clone(), [&[1, count, 0, 0], &bytes[..]].concat()] {
            if let Some(read) = Collection::read(kind, &value, 5) {
                read.iter().for_each(drop);
                read.find(b"x");
                for more in 1..3 {
                    let mut editor = Editor::new(kind, Some(read), more);
                    editor.put(Entry::scored(b"x", 1.0));
                    editor.write(&mut Vec::new());
                    let mut editor = Editor::new(kind, Some(read), more);
                    read.iter().take(1).for_each(|entry| _ = editor.remove(entry.field));
                    editor.write(&mut Vec::new());
                }
            }
        }
    }
}

#[test]
fn a_value_is_no_number_to_memcached() {
    let mut value = Vec::new();
    Editor::new(Kind::Set, None, 0).write(&mut value);
    assert!(value[0] < b'\t');
}

#[test]
fn long_entries_need_wide_ends() {
    let (field, text) = (vec![b'f'; 300], vec![b'v'; 70_000]);
    let mut editor = Editor::new(Kind::Hash, None, 1);
    editor.put(Entry::pair(&field, &text));
    editor.put(Entry::pair(b"short", b""));
    let mut value = Vec::new();
    editor.write(&mut value);
    let read = Collection::read(Kind::Hash, &value, 0).expect("it was written");
    assert_eq!(read.get(&field).map(|entry| entry.value.len()), Some(70_000));
    assert_eq!((read.get(b"short"), read.longest()), (Some(Entry::pair(b"short", b"")), 70_000));
}
