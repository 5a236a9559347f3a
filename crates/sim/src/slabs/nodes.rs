//! Items and ghosts, in one vector; a node that is freed is used again.

/// No node.
pub(super) const NONE: u32 = u32::MAX;

/// What is known of one item or ghost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Node {
    /// Its key.
    pub(super) key: u64,
    /// When it was last used, in accesses since the beginning.
    pub(super) used_at: u64,
    /// The neighbour towards the top of its stack.
    pub(super) prev: u32,
    /// The neighbour towards the bottom of its stack.
    pub(super) next: u32,
    /// Octets of the item.
    pub(super) size_bytes: u32,
    /// What a miss costs, in microseconds.
    pub(super) penalty_us: u32,
    /// The second of the trace from which on it is gone; 0 = never.
    pub(super) expires_s: u32,
    /// Whose stack it is in.
    pub(super) group: u16,
    /// Where in the stack it is.
    pub(super) zone: u8,
}

/// The nodes of all stacks.
#[derive(Default)]
pub(super) struct Nodes {
    all: Vec<Node>,
    free: Vec<u32>,
}

impl Nodes {
    /// Keeps a node and gives its number.
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

    /// Gives a node up.
    pub(super) fn free(&mut self, at: u32) {
        self.free.push(at);
    }

    /// How many nodes are kept.
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
