//! Twins of the policies that rank or sample items. The items are in one `Vec`, and the least rank is found by
//! scanning it.

use super::Twin;
use crate::mix::SplitMix;
use crate::policy::Access;
use crate::policy::lhd_classes::Classes;

#[derive(Clone)]
struct Item {
    id: u32,
    size: u32,
    uses: u64,
    used_at: u64,
    came_at: u64,
    rank: f64,
    next: u64,
}

/// The ranking of a policy.
struct Ranked<P> {
    capacity: u64,
    /// In the order of sampling: a new item goes to the end, and the last item takes the position of a removed one.
    items: Vec<Item>,
    now: u64,
    policy: P,
}

trait Rules {
    /// An item was stored or used.
    fn touched(&mut self, item: &mut Item);
    /// The position of the victim.
    fn victim(&mut self, items: &[Item], now: u64) -> usize;
}

impl<P: Rules> Ranked<P> {
    fn boxed(capacity: u64, policy: P) -> Box<dyn Twin>
    where
        P: 'static,
    {
        Box::new(Ranked { capacity, items: Vec::new(), now: 0, policy })
    }

    fn make_room(&mut self, size: u32) {
        while self.items.iter().map(|item| u64::from(item.size)).sum::<u64>() + u64::from(size)
            > self.capacity
        {
            let position = self.policy.victim(&self.items, self.now);
            self.items.swap_remove(position);
        }
    }
}

impl<P: Rules> Twin for Ranked<P> {
    fn access(&mut self, access: &Access) -> bool {
        let size = access.size.max(1);
        let position = self.items.iter().position(|item| item.id == access.id);
        if u64::from(size) > self.capacity {
            self.remove(access.id);
            return position.is_some();
        }
        self.now += 1;
        if position.is_none() {
            self.make_room(size);
            self.items.push(Item {
                id: access.id,
                size,
                uses: 0,
                used_at: 0,
                came_at: self.now,
                rank: 0.0,
                next: 0,
            });
        }
        let newest = self.items.len() - 1;
        let item = &mut self.items[position.unwrap_or(newest)];
        item.size = size;
        item.uses += 1;
        item.used_at = self.now;
        item.next = access.next;
        self.policy.touched(item);
        self.make_room(0);
        position.is_some()
    }

    fn remove(&mut self, id: u32) {
        if let Some(position) = self.items.iter().position(|item| item.id == id) {
            self.items.swap_remove(position);
        }
    }

    fn resident(&self) -> Vec<(u32, u32)> {
        self.items.iter().map(|item| (item.id, item.size)).collect()
    }
}

/// The position of the item with the least key.
fn least<K: PartialOrd>(items: &[Item], key: impl Fn(&Item) -> K) -> usize {
    let mut position = 0;
    for other in 1..items.len() {
        if key(&items[other]) < key(&items[position]) {
            position = other;
        }
    }
    position
}

struct Lfu;

impl Rules for Lfu {
    fn touched(&mut self, _: &mut Item) {}
    fn victim(&mut self, items: &[Item], _: u64) -> usize {
        least(items, |item| (item.uses, item.used_at))
    }
}

pub(super) fn lfu(capacity: u64) -> Box<dyn Twin> {
    Ranked::boxed(capacity, Lfu)
}

struct Gdsf {
    inflation: f64,
}

impl Rules for Gdsf {
    fn touched(&mut self, item: &mut Item) {
        item.rank = self.inflation + item.uses as f64 / f64::from(item.size);
    }
    fn victim(&mut self, items: &[Item], _: u64) -> usize {
        let position = least(items, |item| (item.rank, item.used_at));
        self.inflation = items[position].rank;
        position
    }
}

pub(super) fn gdsf(capacity: u64) -> Box<dyn Twin> {
    Ranked::boxed(capacity, Gdsf { inflation: 0.0 })
}

struct Belady;

impl Rules for Belady {
    fn touched(&mut self, _: &mut Item) {}
    fn victim(&mut self, items: &[Item], _: u64) -> usize {
        least(items, |item| (std::cmp::Reverse(item.next), item.used_at))
    }
}

pub(super) fn belady(capacity: u64) -> Box<dyn Twin> {
    Ranked::boxed(capacity, Belady)
}

/// The pool as Redis keeps it: 16 positions, filled from the left, the most idle item on the right.
struct Redis {
    rng: SplitMix,
    pool: [Option<(u64, u32)>; 16],
}

impl Rules for Redis {
    fn touched(&mut self, _: &mut Item) {}
    fn victim(&mut self, items: &[Item], now: u64) -> usize {
        for _ in 0..5 {
            let item = &items[self.rng.below(items.len() as u32) as usize];
            let idle = now - item.used_at;
            let mut k = 0;
            while k < 16 && self.pool[k].is_some_and(|(pooled, _)| pooled < idle) {
                k += 1;
            }
            if k == 0 && self.pool[15].is_some() {
                continue;
            }
            if self.pool[15].is_none() {
                self.pool[k..].rotate_right(1);
                self.pool[k] = Some((idle, item.id));
            } else {
                self.pool[..k].rotate_left(1);
                self.pool[k - 1] = Some((idle, item.id));
            }
        }
        for k in (0..16).rev() {
            if let Some((_, id)) = self.pool[k].take()
                && let Some(position) = items.iter().position(|item| item.id == id)
            {
                return position;
            }
        }
        panic!("the pool has at least what was sampled just now, or sixteen that are idle for longer");
    }
}

pub(super) fn redis(capacity: u64, seed: u64) -> Box<dyn Twin> {
    Ranked::boxed(capacity, Redis { rng: SplitMix::new(seed), pool: [None; 16] })
}

struct Hyperbolic {
    rng: SplitMix,
}

impl Rules for Hyperbolic {
    fn touched(&mut self, _: &mut Item) {}
    fn victim(&mut self, items: &[Item], now: u64) -> usize {
        let drawn: Vec<usize> = (0..64).map(|_| self.rng.below(items.len() as u32) as usize).collect();
        let sample: Vec<Item> = drawn.iter().map(|&position| items[position].clone()).collect();
        drawn[least(&sample, |item| item.uses as f64 / (now - item.came_at) as f64)]
    }
}

pub(super) fn hyperbolic(capacity: u64, seed: u64) -> Box<dyn Twin> {
    Ranked::boxed(capacity, Hyperbolic { rng: SplitMix::new(seed) })
}

#[derive(Clone)]
struct Tag {
    id: u32,
    size: u32,
    used_at: u64,
    last_age: u32,
    last_last_age: u32,
    explorer: Option<u32>,
}

/// LHD without the classes, which have tests of their own.
pub(super) struct LhdTwin {
    capacity: u64,
    rng: SplitMix,
    tags: Vec<Tag>,
    classes: Classes,
    every: u64,
    now: u64,
    /// The keys stored with a low density, the oldest first; at most 8.
    admitted: Vec<u32>,
    victims: f32,
    budget: i64,
}

impl LhdTwin {
    pub(super) fn new(capacity: u64, seed: u64, classes: Classes, every: u32) -> LhdTwin {
        LhdTwin {
            capacity,
            rng: SplitMix::new(seed),
            tags: Vec::new(),
            classes,
            every: u64::from(every),
            now: 0,
            admitted: Vec::new(),
            victims: 0.0,
            budget: capacity as i64 / 100,
        }
    }

    fn rank(&self, tag: &Tag) -> f32 {
        let age = self.classes.coarse(self.now - tag.used_at);
        if age == self.classes.oldest() {
            return f32::MIN;
        }
        let density = self.classes.density(tag.last_age + tag.last_last_age, age) / tag.size as f32;
        if tag.explorer.is_some() { density + 1.0 } else { density }
    }

    fn make_room(&mut self, size: u32) {
        while self.tags.iter().map(|tag| u64::from(tag.size)).sum::<u64>() + u64::from(size) > self.capacity {
            let samples = if self.now / self.every > 50 { 32 } else { 8 };
            let mut looked_at: Vec<usize> =
                (0..samples).map(|_| self.rng.below(self.tags.len() as u32) as usize).collect();
            // The policy keeps these in a ring of 8 and scans it from its first position.
            let mut ring = self.admitted.clone();
            let turned = ring.len().saturating_sub(8);
            ring.drain(..turned);
            ring.rotate_right(turned % 8);
            looked_at.extend(ring.iter().filter_map(|&id| self.tags.iter().position(|tag| tag.id == id)));
            let mut victim = looked_at[0];
            for &position in &looked_at {
                if self.rank(&self.tags[position]) < self.rank(&self.tags[victim]) {
                    victim = position;
                }
            }
            let keeps = 0.9f32;
            self.victims = keeps * self.victims + (1.0 - keeps) * self.rank(&self.tags[victim]);
            let tag = self.tags.swap_remove(victim);
            self.budget += i64::from(tag.explorer.unwrap_or(0));
            let age = self.classes.coarse(self.now - tag.used_at);
            self.classes.count_eviction(tag.last_age + tag.last_last_age, age);
        }
    }
}

impl Twin for LhdTwin {
    fn access(&mut self, access: &Access) -> bool {
        let size = access.size.max(1);
        let there = self.tags.iter().position(|tag| tag.id == access.id);
        if u64::from(size) > self.capacity {
            self.remove(access.id);
            return there.is_some();
        }
        if let Some(position) = there {
            let tag = &mut self.tags[position];
            let age = self.classes.coarse(self.now - tag.used_at);
            self.classes.count_hit(tag.last_age + tag.last_last_age, age);
            self.budget += i64::from(tag.explorer.take().unwrap_or(0));
            (tag.last_last_age, tag.last_age) = (tag.last_age, age as u32);
            tag.size = size;
        } else {
            self.make_room(size);
            self.tags.push(Tag {
                id: access.id,
                size,
                used_at: 0,
                last_age: 0,
                last_last_age: self.classes.oldest() as u32 + 1,
                explorer: None,
            });
        }
        let position = there.unwrap_or(self.tags.len() - 1);
        let explores = self.rng.next().is_multiple_of(32);
        self.tags[position].used_at = self.now;
        if explores && self.budget > 0 && self.now / self.every < 50 {
            self.tags[position].explorer = Some(size);
            self.budget -= i64::from(size);
        }
        if there.is_none() && !explores && self.rank(&self.tags[position]) < self.victims {
            self.admitted.push(access.id);
        }
        self.now += 1;
        if self.now.is_multiple_of(self.every) {
            self.classes.reconfigure(self.tags.len() as u64, (self.now / self.every - 1) as u32);
        }
        self.make_room(0);
        there.is_some()
    }

    fn remove(&mut self, id: u32) {
        if let Some(position) = self.tags.iter().position(|tag| tag.id == id) {
            let tag = self.tags.swap_remove(position);
            self.budget += i64::from(tag.explorer.unwrap_or(0));
        }
    }

    fn resident(&self) -> Vec<(u32, u32)> {
        self.tags.iter().map(|tag| (tag.id, tag.size)).collect()
    }
}
