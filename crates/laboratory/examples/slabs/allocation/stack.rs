//! One LRU stack with its segments: the lowest residents slab by slab, and the ghosts below them.
//!
//! ```text
//!   top      zone 0            everything above the segments
//!            zone 1 .. n       S_m .. S_0        n = m + 1; S_0 is the candidate segment
//!            ------------      the end of the residents
//!            zone n+1 .. 2n    G_0 .. G_m        G_0 is the receiving segment
//!   bottom
//! ```
//!
//! The stack is one linked list, and a zone is a run of the list that is known by its two ends. When an item leaves,
//! each border below or above it moves by one item, which changes only that item's zone. So the segment of an item is
//! known in O(1), and a change costs O(n).

use super::filters::GroupFilters;
use super::nodes::{NONE, Nodes};

/// The position of an accessed item in its stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StackPosition {
    /// In no segment: the item is above the segments, or unknown.
    Elsewhere,
    /// In resident segment S_i; 0 is the candidate segment.
    Segment(usize),
    /// In ghost segment G_i; 0 is the receiving segment.
    Ghost(usize),
}

/// The accuracy of the Bloom filters, compared with exact tracking. Segment i has the weight 2^-(i+1).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Audit {
    /// Accesses for which the filters were asked.
    pub(crate) judged: u64,
    /// Accesses to an item that was in a segment.
    pub(crate) in_segment: u64,
    /// Accesses outside the segments for which the filters named a segment.
    pub(crate) false_positives: u64,
    /// Accesses in a segment for which the filters named none.
    pub(crate) false_negatives: u64,
    /// Accesses in a segment for which the filters named another segment.
    pub(crate) wrong_segment: u64,
    /// Sum of the weighted penalties by exact tracking, in microseconds.
    pub(crate) exact_value_us: f64,
    /// Sum of the weighted penalties by the filters, in microseconds.
    pub(crate) judged_value_us: f64,
}

impl Audit {
    /// Records one access.
    pub(super) fn count(&mut self, exact: StackPosition, judged: StackPosition, penalty_us: u32) {
        self.judged += 1;
        self.in_segment += u64::from(exact != StackPosition::Elsewhere);
        match (exact, judged) {
            (StackPosition::Elsewhere, StackPosition::Elsewhere) => {}
            (StackPosition::Elsewhere, _) => self.false_positives += 1,
            (_, StackPosition::Elsewhere) => self.false_negatives += 1,
            (exact, judged) => self.wrong_segment += u64::from(exact != judged),
        }
        self.exact_value_us += weight(exact) * f64::from(penalty_us);
        self.judged_value_us += weight(judged) * f64::from(penalty_us);
    }
}

fn weight(position: StackPosition) -> f64 {
    match position {
        StackPosition::Elsewhere => 0.0,
        StackPosition::Segment(at) | StackPosition::Ghost(at) => 0.5_f64.powi(at as i32 + 1),
    }
}

/// A run of the list.
#[derive(Clone, Copy)]
struct Zone {
    top: u32,
    bottom: u32,
    len: usize,
}

const EMPTY: Zone = Zone { top: NONE, bottom: NONE, len: 0 };

/// An LRU stack.
pub(super) struct Stack {
    zones: Vec<Zone>,
    head: u32,
    segments: usize,
    slots: usize,
    items: usize,
    filters: Option<GroupFilters>,
}

impl Stack {
    /// An empty stack with `segments` segments (n = m + 1; 0 = neither segments nor ghosts) of `slots` items each.
    pub(super) fn new(segments: usize, slots: usize, filtered: bool) -> Stack {
        Stack {
            zones: vec![EMPTY; 2 * segments + 1],
            head: NONE,
            segments,
            slots,
            items: 0,
            filters: (filtered && segments > 0).then(|| GroupFilters::new(segments, slots)),
        }
    }

    /// The number of residents.
    pub(super) fn items(&self) -> usize {
        self.items
    }

    /// The number of ghosts.
    #[cfg(test)]
    pub(super) fn ghosts(&self) -> usize {
        self.zones[self.segments + 1..].iter().map(|zone| zone.len).sum()
    }

    /// The resident item that would be evicted next.
    pub(super) fn last_resident(&self) -> Option<u32> {
        self.zones[..=self.segments].iter().rev().find(|zone| zone.len > 0).map(|zone| zone.bottom)
    }

    /// Whether a zone holds residents.
    pub(super) fn is_resident(&self, zone: u8) -> bool {
        usize::from(zone) <= self.segments
    }

    /// The position that a zone stands for.
    pub(super) fn position(&self, zone: usize) -> StackPosition {
        match zone {
            0 => StackPosition::Elsewhere,
            zone if zone <= self.segments => StackPosition::Segment(self.segments - zone),
            zone => StackPosition::Ghost(zone - self.segments - 1),
        }
    }

    /// Puts a node that is in no list on the top.
    pub(super) fn put_on_top(&mut self, nodes: &mut Nodes, at: u32) {
        let zone = match self.segments {
            0 => 0,
            segments => segments - (self.items / self.slots).min(segments),
        };
        self.link_head(nodes, at);
        self.join_top(nodes, at, zone);
        self.items += 1;
        self.rebuild_filters(nodes);
    }

    /// Moves a resident item to the top.
    pub(super) fn use_item(&mut self, nodes: &mut Nodes, at: u32) {
        if nodes.get(at).zone == 0 {
            if self.head == at {
                return;
            }
            self.leave(nodes, at);
            self.unlink(nodes, at);
            self.link_head(nodes, at);
            self.join_top(nodes, at, 0);
        } else {
            self.remove(nodes, at);
            self.put_on_top(nodes, at);
        }
    }

    /// Takes an item or a ghost out of the list.
    pub(super) fn remove(&mut self, nodes: &mut Nodes, at: u32) {
        let zone = usize::from(nodes.get(at).zone);
        self.leave(nodes, at);
        self.unlink(nodes, at);
        if zone <= self.segments {
            self.items -= 1;
            self.sink_residents(nodes, zone);
        } else {
            self.raise_ghosts(nodes, zone);
        }
        self.rebuild_filters(nodes);
    }

    /// Evicts the lowest resident item, which becomes a ghost. Returns the node that is forgotten and no longer in
    /// the list: the lowest ghost, or the item itself where there are no ghosts. There must be a resident item.
    #[must_use]
    pub(super) fn evict(&mut self, nodes: &mut Nodes) -> Option<u32> {
        let at = self.zones[self.segments].bottom;
        self.leave(nodes, at);
        self.items -= 1;
        let forgotten = if self.segments == 0 {
            self.unlink(nodes, at);
            Some(at)
        } else {
            self.join_top(nodes, at, self.segments + 1);
            self.sink_residents(nodes, self.segments);
            self.sink_ghosts(nodes)
        };
        self.rebuild_filters(nodes);
        forgotten
    }

    /// Adds an item that found no slot in a stack without residents, as if it had been stored and evicted at once.
    /// Returns the node that is forgotten and no longer in the list; without ghosts that is the node itself.
    #[must_use]
    pub(super) fn put_ghost(&mut self, nodes: &mut Nodes, at: u32) -> Option<u32> {
        debug_assert_eq!(self.items, 0);
        if self.segments == 0 {
            return Some(at);
        }
        self.link_head(nodes, at);
        self.join_top(nodes, at, self.segments + 1);
        let forgotten = self.sink_ghosts(nodes);
        self.rebuild_filters(nodes);
        forgotten
    }

    /// The position of a key according to the filters; `None` without filters. `hit` tells whether the item is
    /// resident. An item found in a segment is then taken to leave it.
    pub(super) fn judge(&mut self, key: u64, hit: bool) -> Option<StackPosition> {
        let filters = self.filters.as_mut()?;
        let n = self.segments;
        let judged = filters.judge(if hit { 1..=n } else { n + 1..=2 * n }, key);
        if judged.is_some() {
            filters.remove(key);
        }
        Some(judged.map_or(StackPosition::Elsewhere, |zone| self.position(zone)))
    }

    /// Fills the hole in resident zone `zone`: the lowest item of each zone above moves down.
    fn sink_residents(&mut self, nodes: &mut Nodes, zone: usize) {
        for zone in (1..=zone).rev() {
            if self.zones[zone - 1].len == 0 {
                break;
            }
            let at = self.zones[zone - 1].bottom;
            self.leave(nodes, at);
            self.join_top(nodes, at, zone);
        }
    }

    /// Fills the hole in ghost zone `zone`: the topmost ghost of each zone below moves up.
    fn raise_ghosts(&mut self, nodes: &mut Nodes, zone: usize) {
        for zone in zone..2 * self.segments {
            if self.zones[zone + 1].len == 0 {
                break;
            }
            let at = self.zones[zone + 1].top;
            self.leave(nodes, at);
            self.join_bottom(nodes, at, zone);
        }
    }

    /// Moves the excess of each ghost zone to the next. Returns the ghost that is forgotten and no longer in the
    /// list.
    fn sink_ghosts(&mut self, nodes: &mut Nodes) -> Option<u32> {
        for zone in self.segments + 1..=2 * self.segments {
            if self.zones[zone].len <= self.slots {
                return None;
            }
            let at = self.zones[zone].bottom;
            self.leave(nodes, at);
            if zone == 2 * self.segments {
                self.unlink(nodes, at);
                return Some(at);
            }
            self.join_top(nodes, at, zone + 1);
        }
        None
    }

    fn link_head(&mut self, nodes: &mut Nodes, at: u32) {
        let node = nodes.get_mut(at);
        (node.prev, node.next) = (NONE, self.head);
        if self.head != NONE {
            nodes.get_mut(self.head).prev = at;
        }
        self.head = at;
    }

    fn unlink(&mut self, nodes: &mut Nodes, at: u32) {
        let (prev, next) = (nodes.get(at).prev, nodes.get(at).next);
        match prev {
            NONE => self.head = next,
            prev => nodes.get_mut(prev).next = next,
        }
        if next != NONE {
            nodes.get_mut(next).prev = prev;
        }
    }

    /// Removes a node from its zone; its links stay.
    fn leave(&mut self, nodes: &Nodes, at: u32) {
        let node = nodes.get(at);
        let zone = &mut self.zones[usize::from(node.zone)];
        zone.len -= 1;
        if zone.len == 0 {
            *zone = EMPTY;
        } else if zone.top == at {
            zone.top = node.next;
        } else if zone.bottom == at {
            zone.bottom = node.prev;
        }
    }

    fn join_top(&mut self, nodes: &mut Nodes, at: u32, zone: usize) {
        let run = &mut self.zones[zone];
        run.top = at;
        if run.len == 0 {
            run.bottom = at;
        }
        self.join(nodes, at, zone);
    }

    fn join_bottom(&mut self, nodes: &mut Nodes, at: u32, zone: usize) {
        let run = &mut self.zones[zone];
        run.bottom = at;
        if run.len == 0 {
            run.top = at;
        }
        self.join(nodes, at, zone);
    }

    fn join(&mut self, nodes: &mut Nodes, at: u32, zone: usize) {
        self.zones[zone].len += 1;
        let node = nodes.get_mut(at);
        node.zone = zone as u8;
        if let Some(filters) = &mut self.filters {
            filters.enter(zone, node.key);
        }
    }

    /// Rebuilds the filters that took too many items.
    fn rebuild_filters(&mut self, nodes: &Nodes) {
        let due = self.filters.as_mut().map(GroupFilters::take_due).unwrap_or_default();
        due.into_iter().for_each(|zone| self.rebuild_filter(nodes, zone));
    }

    /// Rebuilds all filters and clears the removal filter, which is then not needed.
    pub(super) fn rebuild_all_filters(&mut self, nodes: &Nodes) {
        let Some(filters) = &mut self.filters else { return };
        filters.forget_removals();
        (1..=2 * self.segments).for_each(|zone| self.rebuild_filter(nodes, zone));
    }

    fn rebuild_filter(&mut self, nodes: &Nodes, zone: usize) {
        let Some(filters) = &mut self.filters else { return };
        let run = self.zones[zone];
        let first = (run.len > 0).then_some(run.top);
        let all = std::iter::successors(first, |&at| Some(nodes.get(at).next)).take(run.len);
        filters.rebuild(zone, all.map(|at| nodes.get(at).key));
    }

    /// The keys of a zone from its top.
    #[cfg(test)]
    pub(super) fn keys(&self, nodes: &Nodes, zone: usize) -> Vec<u64> {
        let run = self.zones[zone];
        let mut keys = Vec::new();
        let mut at = run.top;
        for _ in 0..run.len {
            keys.push(nodes.get(at).key);
            at = nodes.get(at).next;
        }
        assert!(run.len == 0 || *keys.last().unwrap() == nodes.get(run.bottom).key);
        keys
    }

    /// The keys of the whole list from the top.
    #[cfg(test)]
    pub(super) fn all_keys(&self, nodes: &Nodes) -> Vec<u64> {
        let first = (self.head != NONE).then_some(self.head);
        let all = std::iter::successors(first, |&at| Some(nodes.get(at).next).filter(|&next| next != NONE));
        all.map(|at| nodes.get(at).key).collect()
    }
}
