//! A twin of LIRS: the paper's stack and queue as two `Vec`s of keys, and the state of each key.

use std::collections::BTreeMap;

use super::Twin;
use crate::policy::Access;

#[derive(Clone, Copy)]
struct Block {
    size: u32,
    is_lir: bool,
    resident: bool,
}

struct Lirs {
    capacity: u64,
    blocks: BTreeMap<u32, Block>,
    /// Bottom first.
    stack: Vec<u32>,
    /// First to be evicted first.
    queue: Vec<u32>,
    /// Oldest ghost first.
    left: Vec<u32>,
}

pub(super) fn lirs(capacity: u64) -> Box<dyn Twin> {
    let (blocks, stack, queue, left) = (BTreeMap::new(), Vec::new(), Vec::new(), Vec::new());
    Box::new(Lirs { capacity, blocks, stack, queue, left })
}

fn without(keys: &mut Vec<u32>, id: u32) -> bool {
    let before = keys.len();
    keys.retain(|&key| key != id);
    keys.len() < before
}

impl Lirs {
    fn sum(&self, which: impl Fn(&Block) -> bool) -> u64 {
        self.blocks.values().filter(|block| which(block)).map(|block| u64::from(block.size)).sum()
    }

    fn lir_max(&self) -> u64 {
        self.capacity.saturating_sub((self.capacity / 100).max(1))
    }

    fn prune(&mut self) {
        while let Some(&bottom) = self.stack.first().filter(|&id| !self.blocks[id].is_lir) {
            self.stack.remove(0);
            if !self.blocks[&bottom].resident {
                self.blocks.remove(&bottom);
                without(&mut self.left, bottom);
            }
        }
    }

    fn demote(&mut self) {
        let bottom = self.stack.remove(0);
        self.blocks.get_mut(&bottom).expect("known").is_lir = false;
        self.queue.push(bottom);
        self.prune();
    }

    fn make_room(&mut self, size: u32) {
        while self.sum(|block| block.resident) + u64::from(size) > self.capacity {
            if self.queue.is_empty() {
                self.demote();
                continue;
            }
            let first = self.queue.remove(0);
            if self.stack.contains(&first) {
                self.blocks.get_mut(&first).expect("known").resident = false;
                self.left.push(first);
            } else {
                self.blocks.remove(&first);
            }
        }
    }

    fn settle(&mut self) {
        self.prune();
        while self.sum(|block| block.is_lir) > self.lir_max() {
            self.demote();
        }
        let in_stack = |it: &Lirs| it.stack.iter().map(|id| u64::from(it.blocks[id].size)).sum::<u64>();
        while in_stack(self) > 2 * self.capacity && !self.left.is_empty() {
            let ghost = self.left.remove(0);
            without(&mut self.stack, ghost);
            self.blocks.remove(&ghost);
        }
    }
}

impl Twin for Lirs {
    fn access(&mut self, access: &Access) -> bool {
        let (id, size) = (access.id, access.size.max(1));
        let known = self.blocks.get(&id).copied();
        let hit = known.is_some_and(|block| block.resident);
        if u64::from(size) > self.capacity {
            self.remove(id);
            return hit;
        }
        let was_in_stack = without(&mut self.stack, id);
        if !hit {
            self.blocks.remove(&id);
            without(&mut self.left, id);
            self.make_room(size);
        }
        let lir_has_room = !hit && self.sum(|block| block.is_lir) + u64::from(size) <= self.lir_max();
        let is_lir = was_in_stack || lir_has_room;
        self.blocks.insert(id, Block { size, is_lir, resident: true });
        self.stack.push(id);
        without(&mut self.queue, id);
        if !is_lir {
            self.queue.push(id);
        }
        self.settle();
        self.make_room(0);
        hit
    }

    fn remove(&mut self, id: u32) {
        if self.blocks.get(&id).is_some_and(|block| block.resident) {
            self.blocks.remove(&id);
            without(&mut self.stack, id);
            without(&mut self.queue, id);
            self.prune();
        }
    }

    fn resident(&self) -> Vec<(u32, u32)> {
        let resident = self.blocks.iter().filter(|(_, block)| block.resident);
        resident.map(|(&id, block)| (id, block.size)).collect()
    }
}
