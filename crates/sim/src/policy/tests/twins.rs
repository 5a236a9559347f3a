//! Twins of the policies that consist of queues. Each queue is a `Vec` with the newest item first, and every search
//! starts at the beginning.

use super::Twin;
use crate::policy::Access;

/// An item in a queue, with the data of all policies.
#[derive(Clone)]
pub(super) struct Item {
    pub(super) id: u32,
    pub(super) size: u32,
    pub(super) uses: u32,
    fetched: bool,
    time_s: u32,
}

pub(super) type Queue = Vec<Item>;

/// A row of queues. The first `resident` queues hold items, the others ghosts.
pub(super) struct Queues<P> {
    pub(super) capacity: u64,
    pub(super) queues: Vec<Queue>,
    resident: usize,
    pub(super) policy: P,
}

/// The rules by which a policy uses its queues.
pub(super) trait Rules: Sized {
    fn hit(queues: &mut Queues<Self>, queue: usize, position: usize, access: &Access);
    fn miss(queues: &mut Queues<Self>, ghost: Option<(usize, usize)>, access: &Access);
    fn evict(queues: &mut Queues<Self>);
    fn removed(_queues: &mut Queues<Self>, _queue: usize, _place: usize) {}
}

pub(super) fn sum(queue: &Queue) -> u64 {
    queue.iter().map(|item| u64::from(item.size)).sum()
}

impl<P> Queues<P> {
    pub(super) fn boxed(capacity: u64, queues: usize, resident: usize, policy: P) -> Box<dyn Twin>
    where
        P: Rules + 'static,
    {
        Box::new(Queues { capacity, queues: vec![Vec::new(); queues], resident, policy })
    }

    fn find(&self, id: u32) -> Option<(usize, usize)> {
        self.queues.iter().enumerate().find_map(|(queue, items)| {
            items.iter().position(|item| item.id == id).map(|position| (queue, position))
        })
    }

    pub(super) fn used(&self) -> u64 {
        self.queues[..self.resident].iter().map(sum).sum()
    }

    pub(super) fn relink(&mut self, from: usize, position: usize, to: usize) {
        let item = self.queues[from].remove(position);
        self.queues[to].insert(0, item);
    }

    /// Moves the oldest item of a queue to the head of another.
    pub(super) fn pass(&mut self, from: usize, to: usize) {
        self.relink(from, self.queues[from].len() - 1, to);
    }

    pub(super) fn put(&mut self, queue: usize, access: &Access) {
        let Access { id, size, time_s, .. } = *access;
        self.queues[queue].insert(0, Item { id, size, uses: 0, fetched: false, time_s });
    }

    pub(super) fn make_room(&mut self, size: u32)
    where
        P: Rules,
    {
        while self.used() + u64::from(size) > self.capacity {
            P::evict(self);
        }
    }

    pub(super) fn trim(&mut self, queue: usize, most: u64) {
        while sum(&self.queues[queue]) > most {
            self.queues[queue].pop();
        }
    }
}

impl<P: Rules> Twin for Queues<P> {
    fn access(&mut self, access: &Access) -> bool {
        let mut access = *access;
        access.size = access.size.max(1);
        let fits = u64::from(access.size) <= self.capacity;
        match self.find(access.id) {
            Some((queue, _)) if queue < self.resident && !fits => {
                self.remove(access.id);
                true
            }
            Some((queue, position)) if queue < self.resident => {
                self.queues[queue][position].size = access.size;
                P::hit(self, queue, position, &access);
                self.make_room(0);
                true
            }
            ghost => {
                if fits {
                    P::miss(self, ghost, &access);
                }
                false
            }
        }
    }

    fn remove(&mut self, id: u32) {
        if let Some((queue, position)) = self.find(id).filter(|&(queue, _)| queue < self.resident) {
            P::removed(self, queue, position);
            self.queues[queue].remove(position);
        }
    }

    fn resident(&self) -> Vec<(u32, u32)> {
        self.queues[..self.resident].iter().flatten().map(|item| (item.id, item.size)).collect()
    }
}

struct Lru;

impl Rules for Lru {
    fn hit(q: &mut Queues<Lru>, _: usize, position: usize, _: &Access) {
        q.relink(0, position, 0);
    }
    fn miss(q: &mut Queues<Lru>, _: Option<(usize, usize)>, access: &Access) {
        q.make_room(access.size);
        q.put(0, access);
    }
    fn evict(q: &mut Queues<Lru>) {
        q.queues[0].pop();
    }
}

pub(super) fn lru(capacity: u64) -> Box<dyn Twin> {
    Queues::boxed(capacity, 1, 1, Lru)
}

struct Fifo;

impl Rules for Fifo {
    fn hit(_: &mut Queues<Fifo>, _: usize, _: usize, _: &Access) {}
    fn miss(q: &mut Queues<Fifo>, _: Option<(usize, usize)>, access: &Access) {
        q.make_room(access.size);
        q.put(0, access);
    }
    fn evict(q: &mut Queues<Fifo>) {
        q.queues[0].pop();
    }
}

pub(super) fn fifo(capacity: u64) -> Box<dyn Twin> {
    Queues::boxed(capacity, 1, 1, Fifo)
}

/// A ring in an array with a hand; the newest item is just behind the hand. The policy moves items instead of the
/// hand.
struct Clock {
    capacity: u64,
    ring: Vec<(u32, u32, bool)>,
    hand: usize,
}

impl Clock {
    fn make_room(&mut self, size: u32) {
        let used = |ring: &[(u32, u32, bool)]| ring.iter().map(|item| u64::from(item.1)).sum::<u64>();
        while used(&self.ring) + u64::from(size) > self.capacity {
            self.hand %= self.ring.len();
            if self.ring[self.hand].2 {
                self.ring[self.hand].2 = false;
                self.hand += 1;
            } else {
                self.ring.remove(self.hand);
            }
        }
    }
}

impl Twin for Clock {
    fn access(&mut self, access: &Access) -> bool {
        let size = access.size.max(1);
        if u64::from(size) > self.capacity {
            let was_there = self.ring.iter().any(|item| item.0 == access.id);
            self.remove(access.id);
            return was_there;
        }
        if let Some(item) = self.ring.iter_mut().find(|item| item.0 == access.id) {
            item.1 = size;
            item.2 = true;
            self.make_room(0);
            return true;
        }
        self.make_room(size);
        self.ring.insert(self.hand, (access.id, size, false));
        self.hand += 1;
        false
    }

    fn remove(&mut self, id: u32) {
        if let Some(position) = self.ring.iter().position(|item| item.0 == id) {
            self.ring.remove(position);
            self.hand -= usize::from(position < self.hand);
        }
    }

    fn resident(&self) -> Vec<(u32, u32)> {
        self.ring.iter().map(|item| (item.0, item.1)).collect()
    }
}

pub(super) fn clock(capacity: u64) -> Box<dyn Twin> {
    Box::new(Clock { capacity, ring: Vec::new(), hand: 0 })
}

/// `hand` is the number of items that are older than the one under the hand.
struct Sieve {
    hand: usize,
}

impl Rules for Sieve {
    fn hit(q: &mut Queues<Sieve>, _: usize, position: usize, _: &Access) {
        q.queues[0][position].uses = 1;
    }
    fn miss(q: &mut Queues<Sieve>, _: Option<(usize, usize)>, access: &Access) {
        q.make_room(access.size);
        q.put(0, access);
    }
    fn evict(q: &mut Queues<Sieve>) {
        loop {
            if q.policy.hand >= q.queues[0].len() {
                q.policy.hand = 0;
            }
            let position = q.queues[0].len() - 1 - q.policy.hand;
            if q.queues[0][position].uses == 0 {
                q.queues[0].remove(position);
                // The hand is at the head if no item is newer, and then starts again at the tail.
                if position == 0 {
                    q.policy.hand = 0;
                }
                return;
            }
            q.queues[0][position].uses = 0;
            q.policy.hand = if position == 0 { 0 } else { q.policy.hand + 1 };
        }
    }
    fn removed(q: &mut Queues<Sieve>, _: usize, position: usize) {
        let older = q.queues[0].len() - 1 - position;
        if older < q.policy.hand {
            q.policy.hand -= 1;
        } else if older == q.policy.hand && position == 0 {
            q.policy.hand = 0;
        }
    }
}

pub(super) fn sieve(capacity: u64) -> Box<dyn Twin> {
    Queues::boxed(capacity, 1, 1, Sieve { hand: 0 })
}

/// 0 = HOT, 1 = WARM, 2 = COLD; `uses` 1 = active.
struct Segmented {
    now_s: u32,
}

impl Segmented {
    fn juggle(q: &mut Queues<Segmented>) {
        let now_s = q.policy.now_s;
        let cold_age = q.queues[2].last().map_or(0, |item| now_s - item.time_s);
        let limits = [(20, f64::from(cold_age) * 0.2), (40, f64::from(cold_age) * 2.0)];
        for (queue, (percent, age_max)) in limits.into_iter().enumerate() {
            while let Some(item) = q.queues[queue].last().cloned() {
                let above = sum(&q.queues[queue]) > q.used() * percent / 100;
                if item.uses == 1 {
                    q.queues[queue].last_mut().expect("it is").uses = 0;
                    q.pass(queue, 1);
                } else if above || now_s - item.time_s > age_max as u32 {
                    q.pass(queue, 2);
                } else {
                    break;
                }
            }
        }
    }
}

impl Rules for Segmented {
    fn hit(q: &mut Queues<Segmented>, queue: usize, position: usize, access: &Access) {
        q.policy.now_s = access.time_s;
        let item = &mut q.queues[queue][position];
        if !item.fetched {
            item.fetched = true;
        } else if queue == 2 {
            item.time_s = access.time_s;
            q.relink(2, position, 1);
        } else if item.uses == 0 {
            item.uses = 1;
            item.time_s = access.time_s;
        }
        Segmented::juggle(q);
    }
    fn miss(q: &mut Queues<Segmented>, _: Option<(usize, usize)>, access: &Access) {
        q.policy.now_s = access.time_s;
        q.make_room(access.size);
        q.put(0, access);
        Segmented::juggle(q);
    }
    fn evict(q: &mut Queues<Segmented>) {
        if q.queues[2].pop().is_some() {
            return;
        }
        let from = if q.queues[0].is_empty() { 1 } else { 0 };
        let item = q.queues[from].last_mut().expect("something is used");
        let was_active = std::mem::replace(&mut item.uses, 0) == 1;
        q.pass(from, if was_active { 1 } else { 2 });
    }
}

pub(super) fn segmented(capacity: u64) -> Box<dyn Twin> {
    Queues::boxed(capacity, 3, 3, Segmented { now_s: 0 })
}

struct Slru;

impl Rules for Slru {
    fn hit(q: &mut Queues<Slru>, queue: usize, position: usize, _: &Access) {
        q.relink(queue, position, (queue + 1).min(3));
        for segment in [3, 2, 1] {
            while sum(&q.queues[segment]) > q.capacity / 4 {
                q.pass(segment, segment - 1);
            }
        }
    }
    fn miss(q: &mut Queues<Slru>, _: Option<(usize, usize)>, access: &Access) {
        q.make_room(access.size);
        for segment in 0..4 {
            if sum(&q.queues[segment]) + u64::from(access.size) <= q.capacity / 4 {
                return q.put(segment, access);
            }
        }
        q.put(0, access);
    }
    fn evict(q: &mut Queues<Slru>) {
        q.queues.iter_mut().find(|queue| !queue.is_empty()).expect("something is used").pop();
    }
}

pub(super) fn slru(capacity: u64) -> Box<dyn Twin> {
    Queues::boxed(capacity, 4, 4, Slru)
}
