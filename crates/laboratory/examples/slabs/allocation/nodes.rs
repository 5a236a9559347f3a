//! The nodes of all LRU stacks, in one vector. Freed nodes are reused.

/// No node.
pub(super) const NONE: u32 = u32::MAX;

/// One item or ghost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Node {
    /// The key.
    pub(super) key: u64,
    /// Time of the last use, in accesses since the start.
    pub(super) used_at: u64,
    /// The neighbour towards the top of the stack.
    pub(super) prev: u32,
    /// The neighbour towards the bottom of the stack.
    pub(super) next: u32,
    /// Size of the item in bytes.
    pub(super) size_bytes: u32,
    /// Cost of a miss in microseconds.
    pub(super) penalty_us: u32,
    /// Second of the trace at which the item expires; 0 = never.
    pub(super) expires_s: u32,
    /// The group whose stack holds the node.
    pub(super) group: u16,
    /// The zone of the stack that holds the node.
    pub(super) zone: u8,
}

/// The nodes of all stacks.
#[derive(Default)]
pub(super) struct Nodes {
    all: Vec<Node>,
    free: Vec<u32>,
}

impl Nodes {
    /// Stores a node and returns its number.
    pub(super) fn put(&mut self, node: Node) -> u32 {
        match self.free.pop() {
            Some(at) => {
                self.all[at as usize] = node;
                at
            }
            None => {
                self.all.push(node);
                (self.all.len() - 1) as u32
            }
        }
    }

    /// Frees a node.
    pub(super) fn free(&mut self, at: u32) {
        self.free.push(at);
    }

    /// The number of nodes in use.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.all.len() - self.free.len()
    }

    #[inline]
    pub(super) fn get(&self, at: u32) -> &Node {
        &self.all[at as usize]
    }

    #[inline]
    pub(super) fn get_mut(&mut self, at: u32) -> &mut Node {
        &mut self.all[at as usize]
    }
}
