//! Twins of the policies that remember keys, and of W-TinyLFU, made of the same queues.

use super::Twin;
use super::twins::{Queues, Rules, sum};
use crate::policy::Access;
use crate::policy::sketch::Sketch;

/// 0 = A1in, 1 = Am, 2 = A1out.
struct TwoQ;

impl Rules for TwoQ {
    fn hit(q: &mut Queues<TwoQ>, queue: usize, position: usize, _: &Access) {
        if queue == 1 {
            q.relink(1, position, 1);
        }
    }
    fn miss(q: &mut Queues<TwoQ>, ghost: Option<(usize, usize)>, access: &Access) {
        if let Some((queue, position)) = ghost {
            q.queues[queue].remove(position);
        }
        q.make_room(access.size);
        q.put(usize::from(ghost.is_some()), access);
    }
    fn evict(q: &mut Queues<TwoQ>) {
        if sum(&q.queues[0]) > q.capacity / 4 || q.queues[1].is_empty() {
            q.pass(0, 2);
            q.trim(2, q.capacity / 2);
        } else {
            q.queues[1].pop();
        }
    }
}

pub(super) fn two_q(capacity: u64) -> Box<dyn Twin> {
    Queues::boxed(capacity, 3, 2, TwoQ)
}

/// 0 = T1, 1 = T2, 2 = B1, 3 = B2.
struct Arc {
    p: f64,
    in_b2: bool,
}

impl Rules for Arc {
    fn hit(q: &mut Queues<Arc>, queue: usize, position: usize, _: &Access) {
        q.relink(queue, position, 1);
        q.policy.in_b2 = false;
        q.make_room(0);
        bound_ghosts(q);
    }
    fn miss(q: &mut Queues<Arc>, ghost: Option<(usize, usize)>, access: &Access) {
        let (b1, b2) = (sum(&q.queues[2]) as f64, sum(&q.queues[3]) as f64);
        let size = f64::from(access.size);
        q.policy.in_b2 = ghost.is_some_and(|(queue, _)| queue == 3);
        match ghost {
            Some((2, _)) => q.policy.p = (q.policy.p + size * f64::max(1.0, b2 / b1)).min(q.capacity as f64),
            Some(_) => q.policy.p = (q.policy.p - size * f64::max(1.0, b1 / b2)).max(0.0),
            None => {}
        }
        if let Some((queue, position)) = ghost {
            q.queues[queue].remove(position);
            q.make_room(access.size);
            q.put(1, access);
        } else {
            while q.used() + u64::from(access.size) > q.capacity {
                let l1 = sum(&q.queues[0]) + sum(&q.queues[2]);
                if l1 + u64::from(access.size) > q.capacity {
                    if q.queues[2].pop().is_some() || q.queues[0].is_empty() {
                        Arc::evict(q);
                    } else {
                        q.queues[0].pop();
                    }
                } else {
                    Arc::evict(q);
                }
            }
            q.put(0, access);
        }
        bound_ghosts(q);
    }
    fn evict(q: &mut Queues<Arc>) {
        let t1 = sum(&q.queues[0]) as f64;
        let is_above = t1 > q.policy.p || (q.policy.in_b2 && t1 == q.policy.p);
        if !q.queues[0].is_empty() && (is_above || q.queues[1].is_empty()) {
            q.pass(0, 2);
        } else if !q.queues[1].is_empty() {
            q.pass(1, 3);
        }
    }
}

fn bound_ghosts(q: &mut Queues<Arc>) {
    while sum(&q.queues[0]) + sum(&q.queues[2]) > q.capacity {
        q.queues[2].pop();
    }
    while q.queues.iter().map(sum).sum::<u64>() > 2 * q.capacity {
        q.queues[3].pop();
    }
}

pub(super) fn arc(capacity: u64) -> Box<dyn Twin> {
    Queues::boxed(capacity, 4, 2, Arc { p: 0.0, in_b2: false })
}

/// 0 = small, 1 = main, 2 = ghosts. The newest is in front.
struct S3Fifo {
    uses_for_main: u32,
    uses_max: u32,
    has_window: bool,
    has_evicted: bool,
    /// Keys and sizes that have entered the small queue, the newest in front.
    entered: Vec<(u32, u32)>,
}

impl Rules for S3Fifo {
    fn hit(q: &mut Queues<S3Fifo>, queue: usize, position: usize, _: &Access) {
        let id = q.queues[queue][position].id;
        let later = q.policy.entered.iter().take_while(|entered| entered.0 != id);
        let is_new = later.map(|entered| u64::from(entered.1)).sum::<u64>() <= q.capacity / 10 / 2;
        if q.policy.has_window && queue == 0 && is_new {
            return;
        }
        let item = &mut q.queues[queue][position];
        item.uses = (item.uses + 1).min(q.policy.uses_max);
    }
    fn miss(q: &mut Queues<S3Fifo>, ghost: Option<(usize, usize)>, access: &Access) {
        if let Some((queue, position)) = ghost {
            q.queues[queue].remove(position);
        }
        q.make_room(access.size);
        let warms_up = !q.policy.has_evicted && sum(&q.queues[0]) >= q.capacity / 10;
        let to_main = ghost.is_some() || warms_up;
        if !to_main {
            q.policy.entered.insert(0, (access.id, access.size));
        }
        q.put(usize::from(to_main), access);
    }
    fn evict(q: &mut Queues<S3Fifo>) {
        q.policy.has_evicted = true;
        let main_is_over = sum(&q.queues[1]) > q.capacity - q.capacity / 10;
        if main_is_over || q.queues[0].is_empty() {
            while q.queues[1].last().expect("something is used").uses > 0 {
                q.queues[1].last_mut().expect("it is").uses -= 1;
                q.pass(1, 1);
            }
            q.queues[1].pop();
            return;
        }
        while let Some(oldest) = q.queues[0].last_mut() {
            if oldest.uses < q.policy.uses_for_main {
                q.pass(0, 2);
                break;
            }
            oldest.uses = 0;
            q.pass(0, 1);
        }
        q.trim(2, q.capacity * 9 / 10);
    }
}

pub(super) fn s3_fifo(capacity: u64) -> Box<dyn Twin> {
    let rules =
        S3Fifo { uses_for_main: 2, uses_max: 3, has_window: false, has_evicted: false, entered: vec![] };
    Queues::boxed(capacity, 3, 2, rules)
}

pub(super) fn clock2q_plus(capacity: u64) -> Box<dyn Twin> {
    let rules =
        S3Fifo { uses_for_main: 1, uses_max: 1, has_window: true, has_evicted: false, entered: vec![] };
    Queues::boxed(capacity, 3, 2, rules)
}

/// 0 = window, 1 = probation, 2 = protected. The sketch is the policy's own; its own tests compare it with an exact
/// count.
struct TinyLfu {
    sketch: Sketch,
}

impl TinyLfu {
    fn settle(q: &mut Queues<TinyLfu>) {
        let window_max = (q.capacity / 100).max(1);
        let main_max = q.capacity - window_max;
        let main = |q: &Queues<TinyLfu>| sum(&q.queues[1]) + sum(&q.queues[2]);
        let victim = |q: &Queues<TinyLfu>| if q.queues[1].is_empty() { 2 } else { 1 };
        while main(q) > main_max {
            let queue = victim(q);
            q.queues[queue].pop();
        }
        while sum(&q.queues[0]) > window_max {
            let candidate = q.queues[0].pop().expect("the window is not empty");
            let size = u64::from(candidate.size);
            let mut gets_in = size <= main_max;
            while gets_in && main(q) + size > main_max {
                let queue = victim(q);
                let rival = q.queues[queue].last().expect("main is full").id;
                gets_in = q.policy.sketch.estimate(candidate.id) > q.policy.sketch.estimate(rival);
                if gets_in {
                    q.queues[queue].pop();
                }
            }
            if gets_in {
                q.queues[1].insert(0, candidate);
            }
        }
    }
}

impl Rules for TinyLfu {
    fn hit(q: &mut Queues<TinyLfu>, queue: usize, position: usize, access: &Access) {
        q.policy.sketch.add(access.id);
        q.relink(queue, position, if queue == 0 { 0 } else { 2 });
        let main_max = q.capacity - (q.capacity / 100).max(1);
        while sum(&q.queues[2]) > main_max * 4 / 5 {
            q.pass(2, 1);
        }
        TinyLfu::settle(q);
    }
    fn miss(q: &mut Queues<TinyLfu>, _: Option<(usize, usize)>, access: &Access) {
        let items: usize = q.queues.iter().map(Vec::len).sum();
        q.policy.sketch.fit(items as u64 + 1);
        q.policy.sketch.add(access.id);
        q.put(0, access);
        TinyLfu::settle(q);
    }
    fn evict(_: &mut Queues<TinyLfu>) {
        unreachable!("it is always settled");
    }
}

pub(super) fn tiny_lfu(capacity: u64) -> Box<dyn Twin> {
    Queues::boxed(capacity, 3, 3, TinyLfu { sketch: Sketch::new() })
}
