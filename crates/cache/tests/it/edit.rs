//! Edits, copies and walks beside a map that defines what they do.

use larder_cache::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

fn cache(workers: usize) -> Arc<Cache> {
    let options = CacheOptions { limit_bytes: 64 << 20, workers, seed: Some(1), ..CacheOptions::default() };
    Cache::new(options).expect("a small cache can be made")
}

/// An item as the map has it.
#[derive(Clone, Debug, PartialEq)]
struct Known {
    value: Vec<u8>,
    flags: u32,
    expiry: Expiry,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Step {
    Keep(u8),
    Remove(u8),
    Expire(u8, Expiry),
    Given(u8, Vec<u8>, u32, Expiry, Kind),
    /// The present value, reversed and with a byte behind it.
    Made(u8, u8),
    Append(u8, Vec<u8>),
    Copy {
        from: u8,
        to: u8,
        replaces: bool,
        skip: usize,
        head: Vec<u8>,
    },
    Part(u8, usize, usize),
    Walk,
    Flush,
}

/// A kind of values.
fn kinds() -> impl Strategy<Value = Kind> {
    prop::sample::select(vec![Kind::Text, Kind::Parts, Kind::Hash, Kind::Set, Kind::SortedSet])
}

fn expiry() -> impl Strategy<Value = Expiry> {
    prop_oneof![
        Just(Expiry::NEVER),
        (1_000_000u32..2_000_000).prop_map(Expiry::at_s),
        (1_000_000_000i64..2_000_000_000).prop_map(Expiry::at_ms),
    ]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    let long = (15_000usize..70_000).prop_map(|length| (0..length).map(|at| (at * 7) as u8).collect());
    let bytes = |lengths| prop::collection::vec(any::<u8>(), lengths);
    prop_oneof![6 => bytes(0..40), 1 => bytes(900..3000), 1 => long]
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0u8..6;
    prop_oneof![
        1 => key.clone().prop_map(Step::Keep),
        2 => key.clone().prop_map(Step::Remove),
        3 => (key.clone(), expiry()).prop_map(|(key, expiry)| Step::Expire(key, expiry)),
        4 => (key.clone(), value(), 0u32..3, expiry(), kinds())
            .prop_map(|(key, value, flags, expiry, kind)| Step::Given(key, value, flags, expiry, kind)),
        3 => (key.clone(), any::<u8>()).prop_map(|(key, byte)| Step::Made(key, byte)),
        3 => (key.clone(), value()).prop_map(|(key, value)| Step::Append(key, value)),
        3 => (key.clone(), key.clone(), any::<bool>(), 0usize..3, prop::collection::vec(any::<u8>(), 0..4))
            .prop_map(|(from, to, replaces, skip, head)| Step::Copy { from, to, replaces, skip, head }),
        3 => (key, 0usize..70_000, 0usize..70_000).prop_map(|(key, from, bytes)| Step::Part(key, from, bytes)),
        1 => Just(Step::Walk),
        1 => Just(Step::Flush),
    ]
}

struct Both {
    cache: Arc<Cache>,
    worker: Worker,
    map: BTreeMap<Vec<u8>, Known>,
}

fn name(key: u8) -> Vec<u8> {
    vec![b'k', key]
}

impl Both {
    fn hash(&self, key: &[u8]) -> KeyHash {
        self.cache.hash(key)
    }

    fn known(&self, key: &[u8]) -> Option<Known> {
        let hit = self.worker.peek(self.hash(key), key)?;
        let mut value = Vec::new();
        self.worker.copy_value(&hit, &mut value);
        let kind = hit.item.kind();
        Some(Known { value, flags: hit.item.flags(), expiry: hit.expiry(), kind })
    }

    /// An edit that sees what the map has.
    fn edit(
        &mut self,
        key: &[u8],
        given: [&[u8]; 2],
        decide: impl Fn(Option<&Known>, &mut Vec<u8>) -> Edit,
    ) -> Edited {
        let (hash, known) = (self.hash(key), self.map.get(key).cloned());
        self.worker.edit(hash, key, given, &mut |worker, hit, buffer| {
            assert!(buffer.is_empty());
            let mut value = Vec::new();
            if let Some(hit) = hit {
                worker.copy_value(hit, &mut value);
            }
            assert_eq!(hit.map(|_| &value), known.as_ref().map(|known| &known.value));
            decide(known.as_ref(), buffer)
        })
    }

    /// A part of a value is copied behind what is there.
    fn copy_part(&self, key: u8, from: usize, bytes: usize) {
        let Some(hit) = self.worker.peek(self.hash(&name(key)), &name(key)) else { return };
        let value = &self.map[&name(key)].value;
        let mut part = b"before".to_vec();
        self.worker.copy_part(&hit, from, bytes, &mut part);
        let rest = value.get(from..).unwrap_or_default();
        assert_eq!(part, [&b"before"[..], &rest[..bytes.min(rest.len())]].concat());
    }

    /// A walk meets every key.
    fn walk(&mut self) {
        let (mut keys, mut bucket) = (BTreeSet::new(), Some(0));
        while let Some(from) = bucket {
            let walk = self.worker.walk(from, 100, &mut |_, hit| {
                keys.insert(hit.item.key().to_vec());
                false
            });
            bucket = walk.next;
        }
        assert_eq!(keys, self.map.keys().cloned().collect());
        assert_eq!(self.cache.items_not_flushed(), self.map.len() as u64);
    }

    fn flush(&mut self) {
        self.cache.flush(None);
        self.map.clear();
        assert_eq!(self.cache.items_not_flushed(), 0);
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Keep(key) => {
                self.edit(&name(key), [&[]; 2], |_, _| Edit::Keep);
            }
            Step::Remove(key) => {
                self.edit(&name(key), [&[]; 2], |_, _| Edit::Remove);
                self.map.remove(&name(key));
            }
            Step::Expire(key, expiry) => {
                let edited = self.edit(&name(key), [&[]; 2], |_, _| Edit::Expire(expiry));
                assert_eq!(edited, Edited::Done { value_bytes: 0 });
                self.map.entry(name(key)).and_modify(|known| known.expiry = expiry);
            }
            Step::Given(key, value, flags, expiry, kind) => {
                let (front, back) = value.split_at(value.len() / 3);
                let edited =
                    self.edit(&name(key), [front, back], |_, _| Edit::PutGiven(Made { flags, expiry, kind }));
                assert_eq!(edited, Edited::Done { value_bytes: value.len() as u32 });
                self.map.insert(name(key), Known { value, flags, expiry, kind });
            }
            Step::Made(key, byte) => {
                let made = |known: Option<&Known>| {
                    let mut value = known.map_or(Vec::new(), |known| known.value.clone());
                    value.reverse();
                    value.push(byte);
                    value
                };
                let of = |known: Option<&Known>| Made {
                    flags: known.map_or(0, |known| known.flags),
                    expiry: known.map_or(Expiry::NEVER, |known| known.expiry),
                    kind: if known.is_some() { Kind::Parts } else { Kind::Text },
                };
                let edited = self.edit(&name(key), [&[]; 2], |known, buffer| {
                    buffer.extend_from_slice(&made(known));
                    Edit::PutMade(of(known))
                });
                let known = self.map.get(&name(key));
                let (value, Made { flags, expiry, kind }) = (made(known), of(known));
                assert_eq!(edited, Edited::Done { value_bytes: value.len() as u32 });
                self.map.insert(name(key), Known { value, flags, expiry, kind });
            }
            Step::Append(key, bytes) => {
                let edited = self.edit(&name(key), [b"head", &bytes], |_, _| Edit::Append);
                let known = match self.map.get(&name(key)) {
                    Some(known) => Known {
                        value: [&known.value[..], &bytes].concat(),
                        kind: Kind::Parts,
                        ..known.clone()
                    },
                    None => Known {
                        value: [b"head", &bytes[..]].concat(),
                        flags: 0,
                        expiry: Expiry::NEVER,
                        kind: Kind::Text,
                    },
                };
                if known.value.len() < 1_000_000 {
                    assert_eq!(edited, Edited::Done { value_bytes: known.value.len() as u32 });
                    self.map.insert(name(key), known);
                }
            }
            Step::Copy { from, to, replaces, skip, head } => {
                let (from, to) = (name(from), name(to));
                let plan =
                    CopyTo { key: &to, hash: self.hash(&to), skip, head: &head, replaces, moves: false };
                let copied = self.worker.copy(self.hash(&from), &from, &plan);
                let expected = match (self.map.get(&from), self.map.contains_key(&to)) {
                    (None, _) => Copied::NotFound,
                    (Some(_), true) if !replaces => Copied::Exists,
                    (Some(known), _) => {
                        let rest = known.value.get(skip..).unwrap_or_default();
                        let known = Known { value: [&head[..], rest].concat(), ..known.clone() };
                        self.map.insert(to, known);
                        Copied::Done
                    }
                };
                assert_eq!(copied, expected);
            }
            Step::Part(key, from, bytes) => self.copy_part(key, from, bytes),
            Step::Walk => self.walk(),
            Step::Flush => self.flush(),
        }
        self.worker.quiesce();
        for key in (0..6).map(name) {
            assert_eq!(self.known(&key), self.map.get(&key).cloned(), "{key:?}");
        }
        assert_eq!(self.cache.items_not_flushed(), self.map.len() as u64);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..Default::default() })]
    #[test]
    fn edits_copies_and_walks_do_what_a_map_does(steps in prop::collection::vec(step(), 1..80)) {
        let cache = cache(1);
        cache.clock().hold();
        let worker = cache.worker();
        let mut both = Both { cache, worker, map: BTreeMap::new() };
        for step in steps {
            both.step(step);
        }
    }
}

#[test]
fn no_edit_of_two_threads_is_lost() {
    const EACH: u64 = 20_000;
    let cache = cache(3);
    let add = |worker: &mut Worker| {
        let hash = cache.hash(b"sum");
        for _ in 0..EACH {
            let edited = worker.edit(hash, b"sum", [&[]; 2], &mut |worker, hit, buffer| {
                let mut value = Vec::new();
                if let Some(hit) = hit {
                    worker.copy_value(hit, &mut value);
                }
                let sum: u64 =
                    std::str::from_utf8(&value).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
                buffer.extend_from_slice((sum + 1).to_string().as_bytes());
                Edit::PutMade(Made { flags: 0, expiry: Expiry::NEVER, kind: Kind::Text })
            });
            assert!(matches!(edited, Edited::Done { .. }));
            worker.quiesce();
        }
        worker.offline();
    };
    std::thread::scope(|scope| {
        (0..2).for_each(|_| _ = scope.spawn(|| add(&mut cache.worker())));
    });
    let worker = cache.worker();
    let hit = worker.peek(cache.hash(b"sum"), b"sum").expect("it was stored");
    assert_eq!(hit.value(), Value::Whole((2 * EACH).to_string().as_bytes()));
}

/// Another worker changes the expiry, in its record, after an edit has looked at it.
#[test]
fn an_edit_is_decided_anew_if_the_expiry_has_changed() {
    let cache = cache(2);
    cache.clock().hold();
    let (mut worker, mut other) = (cache.worker(), cache.worker());
    let (hash, now_s) = (cache.hash(b"key"), cache.clock().now_s());
    let [early, late] = [100, 200].map(|after_s| Expiry::at_s(now_s + after_s));
    let kept = |hit: &Hit<'_>| Made { flags: 0, expiry: hit.expiry(), kind: Kind::Text };
    type Decide<'a> = &'a dyn Fn(&Hit<'_>) -> Edit;
    // The value is replaced and its expiry kept; and the expiry is set if it is the early one.
    let put: Decide<'_> = &|hit| Edit::PutGiven(kept(hit));
    let expire: Decide<'_> =
        &|hit| if hit.expiry() == early { Edit::Expire(Expiry::at_s(now_s + 300)) } else { Edit::Keep };
    for decide in [put, expire] {
        worker.store(&Store { expiry: early, ..Store::set(b"key", hash, b"value") });
        let mut decisions = 0;
        let edited = worker.edit(hash, b"key", [b"new", b""], &mut |_, hit, _| {
            decisions += 1;
            let edit = decide(hit.expect("it is there"));
            if decisions == 1 {
                assert_eq!(other.set_expiry(hash, b"key", late), Touched::Done);
            }
            edit
        });
        assert!(matches!(edited, Edited::Done { .. }));
        assert_eq!((decisions, worker.peek(hash, b"key").unwrap().expiry()), (2, late));
        other.quiesce();
    }
}

/// A walk in many calls shows what is there all the time, although the index grows and others come and go.
#[test]
fn a_walk_shows_what_is_there_from_its_beginning_to_its_end() {
    let cache = cache(1);
    let mut worker = cache.worker();
    let set = |worker: &mut Worker, key: &str| {
        let store = Store::set(key.as_bytes(), cache.hash(key.as_bytes()), b"value");
        assert!(matches!(worker.store(&store), StoreOutcome::Stored { .. }));
    };
    let stays: BTreeSet<String> = (0..20_000).map(|number| format!("stays-{number}")).collect();
    stays.iter().for_each(|key| set(&mut worker, key));
    let (mut seen, mut bucket, mut others) = (BTreeSet::new(), Some(0), 0);
    let before = cache.buckets();
    while let Some(from) = bucket {
        let walk = worker.walk(from, 50, &mut |_, hit| {
            seen.insert(String::from_utf8(hit.item.key().to_vec()).expect("ASCII"));
            true
        });
        bucket = walk.next;
        assert!(walk.buckets <= 50);
        // Fewer than 50 more buckets hold: the index does not grow faster than the walk goes.
        for _ in 0..100 {
            set(&mut worker, &format!("comes-{others}"));
            // What stays is written anew, and so moves in memory.
            set(&mut worker, &format!("stays-{}", others % 20_000));
            others += 1;
        }
        worker.quiesce();
    }
    assert!(cache.buckets() > before, "the index has grown meanwhile");
    assert!(stays.is_subset(&seen));
}
