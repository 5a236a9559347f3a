//! Compares the whole simulator with a slow twin: vectors for stacks, a log of requests for values, no Bloom filters.

use proptest::prelude::*;

use super::super::*;
use larder_curve::mix::hash_of;
use larder_sim::{Op, PENALTY_UNKNOWN_US, Request};

/// The settings shared by the tests.
pub(super) fn settings(slab_bytes: u64, burst: Option<Burst>) -> Settings {
    Settings {
        classes: SlabClasses::new(slab_bytes, 2.0, None).unwrap(),
        overhead_bytes: 0,
        hit_us: 100,
        refill: true,
        window_gets: 10_000,
        burst,
        scheme: SchemeSettings {
            value_window: 5_000,
            psa_misses: 50,
            automove_window: 1_000,
            ..SchemeSettings::default()
        },
        objective: None,
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Entry {
    key: u64,
    size: u64,
    penalty: u32,
    expires: u32,
    used: u64,
}

#[derive(Clone, Default)]
struct Group {
    slabs: u32,
    residents: Vec<Entry>,
    ghosts: Vec<Entry>,
}

/// A request for an item in a segment. Depth 0 is S_0, depth -1 is G_0.
#[derive(Clone, Copy)]
struct Logged {
    window: u64,
    group: usize,
    depth: i64,
    worth: f64,
}

struct Twin {
    name: &'static str,
    settings: Settings,
    classes: usize,
    subclasses: usize,
    segments: usize,
    groups: Vec<Group>,
    free: u32,
    clock: u64,
    log: Vec<Logged>,
    seen: u64,
    drawn: u64,
    requests: Vec<u64>,
    misses: Vec<u64>,
    history: Vec<Vec<u64>>,
    streak_begin: usize,
    hits: u64,
    service: u64,
    moved: u64,
}

impl Twin {
    fn new(name: &'static str, slabs: u32, settings: &Settings) -> Twin {
        let classes = settings.classes.len();
        let subclasses = if matches!(name, "pama-exact" | "pre-pama-subclasses") { 5 } else { 1 };
        let segments = if name.contains("pama") { settings.scheme.m + 1 } else { 0 };
        let groups = classes * subclasses;
        Twin {
            name,
            settings: settings.clone(),
            classes,
            subclasses,
            segments,
            groups: vec![Group::default(); groups],
            free: slabs,
            clock: 0,
            log: Vec::new(),
            seen: 0,
            drawn: 0,
            requests: vec![0; groups],
            misses: vec![0; groups],
            history: Vec::new(),
            streak_begin: 0,
            hits: 0,
            service: 0,
            moved: 0,
        }
    }

    fn slots(&self, group: usize) -> usize {
        self.settings.classes.slots_per_slab(group / self.subclasses)
    }

    fn resident(&self, key: u64) -> Option<(usize, usize)> {
        (0..self.groups.len()).find_map(|group| {
            let at = self.groups[group].residents.iter().position(|entry| entry.key == key)?;
            Some((group, at))
        })
    }

    fn ghost(&self, key: u64) -> Option<(usize, usize)> {
        (0..self.groups.len()).find_map(|group| {
            let at = self.groups[group].ghosts.iter().position(|entry| entry.key == key)?;
            Some((group, at))
        })
    }

    fn forget(&mut self, key: u64) {
        for group in &mut self.groups {
            group.residents.retain(|entry| entry.key != key);
            group.ghosts.retain(|entry| entry.key != key);
        }
    }

    fn expire(&mut self, request: &Request) {
        for group in &mut self.groups {
            let alive = |entry: &Entry| {
                entry.key != request.key || entry.expires == 0 || entry.expires > request.time_s
            };
            group.residents.retain(alive);
            group.ghosts.retain(alive);
        }
    }

    fn penalty(&self, request: &Request) -> u32 {
        let known = self
            .resident(request.key)
            .map(|(group, at)| self.groups[group].residents[at].penalty)
            .or_else(|| self.ghost(request.key).map(|(group, at)| self.groups[group].ghosts[at].penalty));
        match request.penalty_us {
            1..=5_000_000 => request.penalty_us,
            _ => known.unwrap_or(PENALTY_UNKNOWN_US),
        }
    }

    fn group_of(&self, size: u64, penalty: u32) -> Option<usize> {
        let class = (0..self.classes).find(|&class| size <= self.settings.classes.slot_bytes(class))?;
        let ends = [1_000, 10_000, 100_000, 1_000_000];
        let subclass = ends.iter().position(|&end| penalty <= end).unwrap_or(4);
        Some(class * self.subclasses + if self.subclasses > 1 { subclass } else { 0 })
    }

    fn depth(&self, key: u64) -> Option<(usize, i64)> {
        let (group, depth) = match (self.resident(key), self.ghost(key)) {
            (Some((group, at)), _) => {
                let below = self.groups[group].residents.len() - 1 - at;
                (group, (below / self.slots(group)) as i64)
            }
            (None, Some((group, at))) => (group, -1 - (at / self.slots(group)) as i64),
            (None, None) => return None,
        };
        (depth < self.segments as i64).then_some((group, depth))
    }

    fn saw(&mut self, group: usize, get: bool, hit: bool, depth: Option<i64>, penalty: u32) {
        self.seen += 1;
        self.requests[group] += 1;
        self.misses[group] += u64::from(!hit);
        if let Some(depth) = depth.filter(|_| get) {
            let worth = if self.name == "pama-exact" { f64::from(penalty) } else { 1.0 };
            let window = self.seen / self.settings.scheme.value_window;
            self.log.push(Logged { window, group, depth, worth });
        }
    }

    fn value(&self, group: usize, outgoing: bool) -> f64 {
        let length = self.settings.scheme.value_window;
        let (now, left) = (self.seen / length, 1.0 - (self.seen % length) as f64 / length as f64);
        let sum = |share: &dyn Fn(u64) -> f64| -> f64 {
            let of_group = self.log.iter().filter(|logged| logged.group == group);
            let of_side = of_group.filter(|logged| (logged.depth >= 0) == outgoing);
            let weighted = of_side.map(|logged| {
                let i = if outgoing { logged.depth } else { -1 - logged.depth };
                logged.worth * 0.5_f64.powi(i as i32 + 1) * share(logged.window)
            });
            weighted.sum()
        };
        let this = sum(&|window| f64::from(u8::from(window == now)));
        let last = sum(&|window| f64::from(u8::from(window + 1 == now)));
        match self.settings.scheme.rollover {
            Rollover::Sliding => this + left * last,
            Rollover::Reset => this,
            Rollover::Last => last,
            Rollover::Decay => sum(&|window| 0.5_f64.powi((now - window) as i32)),
        }
    }

    fn shift(&mut self, group: usize, by: i64) {
        if !self.settings.scheme.follow_slabs {
            return;
        }
        let n = self.segments as i64;
        self.log.iter_mut().filter(|logged| logged.group == group).for_each(|logged| logged.depth += by);
        self.log.retain(|logged| (-n..n).contains(&logged.depth));
    }

    fn move_slab(&mut self, from: usize, to: usize) {
        self.groups[from].slabs -= 1;
        while self.groups[from].residents.len() > self.groups[from].slabs as usize * self.slots(from) {
            self.evict(from);
        }
        self.groups[to].slabs += 1;
        self.moved += 1;
        self.shift(from, -1);
        self.shift(to, 1);
    }

    fn evict(&mut self, group: usize) {
        let most = self.segments * self.slots(group);
        let group = &mut self.groups[group];
        if let Some(entry) = group.residents.pop() {
            group.ghosts.insert(0, entry);
            group.ghosts.truncate(most);
        }
    }

    fn has_slot(&self, group: usize) -> bool {
        self.groups[group].residents.len() < self.groups[group].slabs as usize * self.slots(group)
    }

    fn richest(&self, but: usize) -> Option<usize> {
        let most = (0..self.groups.len()).filter(|&g| g != but).map(|g| self.groups[g].slabs).max()?;
        (0..self.groups.len()).find(|&g| g != but && most > 0 && self.groups[g].slabs == most)
    }

    fn donor(&mut self, needy: usize) -> Option<usize> {
        let owners: Vec<usize> = (0..self.groups.len()).filter(|&g| self.groups[g].slabs > 0).collect();
        match self.name {
            "twemcache" => {
                self.drawn += 1;
                let random = hash_of(hash_of(self.settings.scheme.seed) ^ self.drawn);
                owners.get((random % owners.len() as u64) as usize).copied()
            }
            "age" => {
                let age = |group: usize| self.groups[group].residents.last().map(|e| self.clock - e.used);
                let others: Vec<(usize, u64)> = (0..self.groups.len())
                    .filter(|&g| g != needy)
                    .filter_map(|g| age(g).map(|age| (g, age)))
                    .collect();
                let sum: u64 = others.iter().map(|other| other.1).sum();
                let oldest = others.iter().map(|other| other.1).max()?;
                let young = age(needy)? as f64 * (others.len() as f64) < 0.8 * sum as f64;
                others.iter().find(|o| o.1 == oldest && young).map(|o| o.0)
            }
            name if name.contains("pama") => {
                let least = owners.iter().map(|&g| self.value(g, true)).min_by(f64::total_cmp)?;
                let donor = owners.into_iter().find(|&g| self.value(g, true) == least)?;
                (least < self.value(needy, false)).then_some(donor)
            }
            _ => None,
        }
    }

    fn put(&mut self, group: usize, entry: Entry) {
        self.forget(entry.key);
        if !self.has_slot(group) && self.free > 0 {
            self.free -= 1;
            self.groups[group].slabs += 1;
        } else if !self.has_slot(group) {
            let first = self.groups[group].slabs == 0 && !self.name.contains("pama");
            let donor = if first { self.richest(group) } else { self.donor(group) };
            match donor.filter(|&donor| donor != group) {
                Some(donor) => self.move_slab(donor, group),
                None => self.evict(group),
            }
        }
        let most = self.segments * self.slots(group);
        if self.has_slot(group) {
            self.groups[group].residents.insert(0, entry);
        } else {
            self.groups[group].ghosts.insert(0, entry);
            self.groups[group].ghosts.truncate(most);
        }
    }

    fn store(&mut self, request: &Request, size: u64) {
        let penalty = self.penalty(request);
        let Some(group) = self.group_of(size, penalty) else { return self.forget(request.key) };
        let resident = self.resident(request.key);
        self.saw(group, false, resident.is_some(), None, penalty);
        let expires = if request.ttl_s == 0 { 0 } else { request.time_s + request.ttl_s };
        let entry = Entry { key: request.key, size, penalty, expires, used: self.clock };
        match resident {
            Some((old, at)) if old == group => {
                self.groups[group].residents.remove(at);
                self.groups[group].residents.insert(0, entry);
            }
            _ => self.put(group, entry),
        }
    }

    fn get(&mut self, request: &Request) {
        self.expire(request);
        let penalty = self.penalty(request);
        let depth = self.depth(request.key);
        if let Some((group, at)) = self.resident(request.key) {
            self.hits += 1;
            self.service += 100;
            self.saw(group, true, true, depth.map(|(_, depth)| depth), penalty);
            let mut entry = self.groups[group].residents.remove(at);
            entry.used = self.clock;
            self.groups[group].residents.insert(0, entry);
            return;
        }
        self.service += u64::from(penalty);
        let size = request.item_bytes();
        let Some(group) = self.group_of(size, penalty) else { return };
        let of_ghost = depth.map_or(group, |(group, _)| group);
        self.saw(of_ghost, true, false, depth.map(|(_, depth)| depth), penalty);
        let expires = if request.ttl_s == 0 { 0 } else { request.time_s + request.ttl_s };
        self.put(group, Entry { key: request.key, size, penalty, expires, used: self.clock });
    }

    fn request(&mut self, request: &Request) {
        self.clock += 1;
        self.expire(request);
        let there = self.resident(request.key);
        let (size, expires) = there.map_or((0, 0), |(group, at)| {
            let entry = &self.groups[group].residents[at];
            (entry.size, entry.expires)
        });
        let lasting = Request { ttl_s: expires.saturating_sub(request.time_s), ..*request };
        match request.op {
            Op::Get => self.get(request),
            Op::Set => self.store(request, request.item_bytes()),
            Op::Add if there.is_none() => self.store(request, request.item_bytes()),
            Op::Replace | Op::Cas if there.is_some() => self.store(request, request.item_bytes()),
            Op::Append | Op::Prepend if there.is_some() => {
                self.store(&lasting, size + u64::from(request.value_bytes));
            }
            Op::Incr | Op::Decr if there.is_some() => self.store(&lasting, size),
            Op::Delete => self.forget(request.key),
            _ => {}
        }
        self.periodic();
    }

    fn periodic(&mut self) {
        let first_max = |of: &[u64]| {
            let most = of.iter().max().copied().unwrap_or(0);
            of.iter().position(|&count| count == most).map(|at| (at, most))
        };
        if self.name == "psa" && self.misses.iter().sum::<u64>() >= self.settings.scheme.psa_misses {
            let to = first_max(&self.misses).map(|(to, _)| to).unwrap();
            let donors = (0..self.groups.len()).filter(|&g| g != to && self.groups[g].slabs > 1);
            let density = |g: usize| self.requests[g] as f64 / f64::from(self.groups[g].slabs);
            let from = donors.min_by(|&a, &b| density(a).total_cmp(&density(b)));
            self.requests.fill(0);
            self.misses.fill(0);
            if let Some(from) = from.filter(|_| self.free == 0) {
                self.move_slab(from, to);
            }
        }
        if self.name == "automove"
            && self.requests.iter().sum::<u64>() >= self.settings.scheme.automove_window
        {
            self.requests.fill(0);
            self.history.push(std::mem::replace(&mut self.misses, vec![0; self.groups.len()]));
            self.automove(first_max);
        }
    }

    fn automove(&mut self, first_max: impl Fn(&[u64]) -> Option<(usize, u64)>) {
        let Some(last) = self.history.len().checked_sub(3) else { return };
        if last < self.streak_begin {
            return;
        }
        let worst: Vec<_> = self.history[last..].iter().map(|misses| first_max(misses).unwrap()).collect();
        let (to, _) = worst[0];
        if worst.iter().any(|&(group, misses)| group != to || misses == 0) || self.free > 0 {
            return;
        }
        let quiet = |g: usize| self.history[last..].iter().all(|misses| misses[g] == 0);
        let donors: Vec<usize> =
            (0..self.groups.len()).filter(|&g| quiet(g) && self.groups[g].slabs > 1).collect();
        let most = donors.iter().map(|&g| self.groups[g].slabs).max();
        if let Some(from) = donors.into_iter().find(|&g| Some(self.groups[g].slabs) == most) {
            self.streak_begin = self.history.len();
            self.move_slab(from, to);
        }
    }
}

pub(super) fn a_request() -> impl Strategy<Value = Request> {
    let op = prop_oneof![
        12 => Just(Op::Get),
        4 => Just(Op::Set),
        1 => Just(Op::Delete),
        1 => prop_oneof![Just(Op::Add), Just(Op::Replace), Just(Op::Append), Just(Op::Incr), Just(Op::Cas)],
    ];
    let size = prop_oneof![8 => 1_u32..64, 4 => 65_u32..128, 3 => 129_u32..256, 1 => Just(300_u32)];
    let penalty = prop::sample::select(vec![0, 500, 1_000, 1_001, 40_000, 700_000, 3_000_000, 6_000_000]);
    (op, 0_u64..60, size, penalty, 0_u32..40).prop_map(|(op, key, size, penalty, ttl)| {
        // Most requests for a key have the same size and penalty, as in a trace.
        let (size, penalty) = match key % 4 {
            0 => (size, penalty),
            1 => (20, 500),
            2 => (100, 40_000),
            _ => (200, 3_000_000),
        };
        let ttl_s = if ttl < 3 { ttl } else { 0 };
        Request { key, value_bytes: size, penalty_us: penalty, ttl_s, op, ..Request::default() }
    })
}

const EXACT: [&str; 8] =
    ["static", "automove", "psa", "twemcache", "age", "pre-pama", "pre-pama-subclasses", "pama-exact"];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn every_scheme_does_what_its_slow_twin_does(
        which in 0_usize..EXACT.len(),
        slabs in 2_u32..24,
        m in 0_usize..4,
        window in 10_u64..200,
        misses in 1_u64..40,
        rollover in prop::sample::select(
            vec![Rollover::Sliding, Rollover::Reset, Rollover::Last, Rollover::Decay]
        ),
        follow_slabs in any::<bool>(),
        requests in prop::collection::vec(a_request(), 50..600),
    ) {
        let mut settings = settings(256, None);
        settings.scheme = SchemeSettings {
            m,
            value_window: window,
            rollover,
            follow_slabs,
            psa_misses: misses,
            automove_window: window,
            seed: 9,
        };
        let name = EXACT[which];
        let mut fast = Simulator::new(name, u64::from(slabs) * 256, &settings).unwrap();
        let mut slow = Twin::new(name, slabs, &settings);
        for (at, request) in requests.iter().enumerate() {
            let request = Request { time_s: at as u32 / 4, ..*request };
            fast.request(&request);
            slow.request(&request);
            let totals = fast.totals();
            prop_assert_eq!((totals.hits, totals.service_us), (slow.hits, slow.service), "{} {}", name, at);
            prop_assert_eq!(totals.slabs_moved, slow.moved);
            let store = fast.store();
            let of_groups = store.slabs().iter().sum::<u32>();
            prop_assert_eq!(of_groups + store.slabs_free(), slabs);
            for (group, of_twin) in slow.groups.iter().enumerate() {
                prop_assert_eq!(store.slabs()[group], of_twin.slabs, "slabs of {}", group);
                let both = of_twin.residents.iter().chain(&of_twin.ghosts);
                let keys: Vec<u64> = both.map(|entry| entry.key).collect();
                let segments = slow.segments;
                prop_assert_eq!(store.keys(group, segments).1, keys, "group {} of {}", group, name);
                prop_assert_eq!(store.items(group), of_twin.residents.len());
                prop_assert_eq!(store.ghosts(group), of_twin.ghosts.len());
            }
        }
    }

    #[test]
    fn no_scheme_loses_a_slab_or_fills_a_slot_twice(
        which in 0_usize..NAMES.len(),
        slabs in 1_u32..40,
        requests in prop::collection::vec(a_request(), 50..600),
    ) {
        let mut settings = settings(256, None);
        settings.scheme.value_window = 50;
        let mut simulator = Simulator::new(NAMES[which], u64::from(slabs) * 256, &settings).unwrap();
        for request in &requests {
            simulator.request(request);
            let store = simulator.store();
            prop_assert_eq!(store.slabs().iter().sum::<u32>() + store.slabs_free(), slabs);
            let mut entries = 0;
            for group in 0..store.groups() {
                let slots = store.slots_per_slab(group);
                prop_assert!(store.items(group) <= store.slabs()[group] as usize * slots);
                prop_assert!(store.ghosts(group) <= 3 * slots);
                entries += store.items(group) + store.ghosts(group);
            }
            prop_assert_eq!(store.entries(), entries);
        }
    }
}
