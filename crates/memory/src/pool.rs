//! Which slabs are mapped and which columns are free, of each NUMA node: plain data behind one lock, which is taken
//! once per column.

use crate::column::{ColumnId, SlabId};
use crate::numa::{NodeId, Stripes};
use std::collections::VecDeque;

/// The pages of a mapped slab.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SlabPages {
    /// Small pages, which come and go column by column. `may_collapse`: a huge page may take their place.
    Small { may_collapse: bool },
    /// One huge page, or pages that were arranged together: all of the slab comes and goes as a whole.
    Whole,
}

#[derive(Clone, Copy, Default)]
struct Slab {
    /// The free columns of the slab, one bit per column.
    free: u64,
    /// The columns whose memory is there: a write to them does not wait for the kernel.
    resident: u64,
    /// The resident columns that were not taken since they became resident.
    unused: u64,
    /// `None`: the slab is not mapped.
    pages: Option<SlabPages>,
    /// The slab was chosen to be given back: its free columns are not handed out.
    releasing: bool,
    /// A column held up its release: the other slabs go first.
    put_off: bool,
    /// The slab is in `OfNode::with_ready`, and in `OfNode::with_fresh`.
    listed_ready: bool,
    listed_fresh: bool,
}

impl Slab {
    fn ready(&self) -> u64 {
        self.free & self.resident
    }

    fn fresh(&self) -> u64 {
        self.free & !self.resident
    }
}

/// The slabs of one node.
struct OfNode {
    /// Slabs with free columns that are resident. The last one is used next. The list may contain slabs that have no
    /// such column any more.
    with_ready: Vec<SlabId>,
    /// The same for free columns that are not resident.
    with_fresh: Vec<SlabId>,
    /// Slabs that were mapped once and given back.
    given_back: Vec<SlabId>,
    /// This slab, and those of the node after it, were never mapped.
    untouched: SlabId,
    /// Number of free columns in slabs that are not being released, and how many of them are resident.
    free_columns: usize,
    ready_columns: usize,
}

impl OfNode {
    fn new(first: SlabId) -> OfNode {
        OfNode {
            with_ready: Vec::new(),
            with_fresh: Vec::new(),
            given_back: Vec::new(),
            untouched: first,
            free_columns: 0,
            ready_columns: 0,
        }
    }
}

/// The slabs and their free columns.
pub(crate) struct Pool {
    slabs: Vec<Slab>,
    columns_per_slab: u32,
    stripes: Stripes,
    /// One for each node.
    nodes: Box<[OfNode]>,
    /// The slabs before this number are used up, whichever node they belong to, before any slab behind.
    first_slabs: u32,
    /// Slabs of small pages all of whose columns are resident.
    complete: VecDeque<SlabId>,
    /// This slab and those after it were never mapped.
    untouched: u32,
    mapped: u32,
    /// How many slabs are being released.
    releasing: usize,
    /// How often a column was taken that was not used since it became resident.
    fresh_taken: u64,
    /// The slab at which the next `choose_release` begins.
    release_cursor: u32,
    next_birth: u64,
}

/// An eighth of a slab's columns may be free when a huge page takes the place of small ones.
const COMPLETE_FREE_SHARE: u32 = 8;
/// Slabs with equally many free columns whose live bytes one `choose_release` compares.
const RELEASE_CANDIDATES_MAX: usize = 64;

impl Pool {
    pub(crate) fn new(slabs: u32, columns_per_slab: u32, stripes: Stripes, first_slabs: u32) -> Pool {
        assert!((1..=64).contains(&columns_per_slab), "a slab's columns fit one word");
        Pool {
            slabs: vec![Slab::default(); slabs as usize],
            columns_per_slab,
            stripes,
            nodes: (0..stripes.nodes()).map(|node| OfNode::new(stripes.first(NodeId(node)))).collect(),
            first_slabs,
            complete: VecDeque::new(),
            untouched: 0,
            mapped: 0,
            releasing: 0,
            fresh_taken: 0,
            release_cursor: 0,
            next_birth: 1,
        }
    }

    fn all(&self) -> u64 {
        u64::MAX >> (64 - self.columns_per_slab)
    }

    pub(crate) fn slab_of(&self, column: ColumnId) -> SlabId {
        SlabId(column.0 / self.columns_per_slab)
    }

    pub(crate) fn columns(&self, slab: SlabId) -> std::ops::Range<u32> {
        slab.0 * self.columns_per_slab..(slab.0 + 1) * self.columns_per_slab
    }

    pub(crate) fn mapped(&self) -> u32 {
        self.mapped
    }

    /// The nodes, this one first.
    pub(crate) fn nodes_from(&self, node: NodeId) -> impl Iterator<Item = NodeId> + use<> {
        let count = self.stripes.nodes();
        (0..count).map(move |n| NodeId((node.0 + n) % count))
    }

    fn of(&mut self, slab: SlabId) -> &mut OfNode {
        &mut self.nodes[self.stripes.node_of(slab).0 as usize]
    }

    pub(crate) fn free_columns(&self) -> usize {
        self.nodes.iter().map(|of| of.free_columns).sum()
    }

    pub(crate) fn free_columns_of(&self, node: NodeId) -> usize {
        self.nodes[node.0 as usize].free_columns
    }

    /// Free columns whose memory is there.
    pub(crate) fn ready_columns(&self) -> usize {
        self.nodes.iter().map(|of| of.ready_columns).sum()
    }

    pub(crate) fn ready_columns_of(&self, node: NodeId) -> usize {
        self.nodes[node.0 as usize].ready_columns
    }

    /// How many columns of fresh memory were taken since the start.
    pub(crate) fn fresh_taken(&self) -> u64 {
        self.fresh_taken
    }

    /// The slabs before this number are those that were ever mapped, and with several nodes some between them.
    pub(crate) fn slabs_touched(&self) -> u32 {
        self.untouched
    }

    /// A new birth number.
    pub(crate) fn birth(&mut self) -> u64 {
        self.next_birth += 1;
        self.next_birth - 1
    }

    /// The highest birth number so far; 0 = none yet.
    pub(crate) fn last_birth(&self) -> u64 {
        self.next_birth - 1
    }

    /// Takes over the first slabs from an earlier process: of each, one bit for each free column, or `None` if it is
    /// not mapped. Births go on above `last_birth`. Nothing was mapped so far, and there is one node.
    #[cfg(not(any(miri, loom)))]
    pub(crate) fn take_over(&mut self, slabs: &[Option<u64>], last_birth: u64) {
        assert_eq!((self.untouched, self.next_birth, self.nodes.len()), (0, 1, 1), "the pool was used");
        self.next_birth = last_birth + 1;
        self.untouched = slabs.len() as u32;
        self.nodes[0].untouched = SlabId(self.untouched);
        for (id, free) in (0..).map(SlabId).zip(slabs) {
            let Some(free) = *free else {
                self.nodes[0].given_back.push(id);
                continue;
            };
            let all = self.all();
            let slab = &mut self.slabs[id.0 as usize];
            *slab =
                Slab { free: free & all, resident: all, pages: Some(SlabPages::Whole), ..Slab::default() };
            let free_columns = slab.free.count_ones() as usize;
            self.mapped += 1;
            self.nodes[0].free_columns += free_columns;
            self.nodes[0].ready_columns += free_columns;
            self.list(id);
        }
    }

    /// Takes a free column, of this node if there is one, and a resident one of the node if there is one.
    pub(crate) fn take(&mut self, node: NodeId) -> Option<ColumnId> {
        let mut nodes = self.nodes_from(node);
        let column = nodes.find_map(|node| self.next_ready(node).or_else(|| self.next_fresh(node)))?;
        self.become_resident(column);
        let (id, bit) = (self.slab_of(column), self.bit(column));
        let slab = &mut self.slabs[id.0 as usize];
        slab.free &= !bit;
        self.fresh_taken += u64::from(slab.unused & bit != 0);
        slab.unused &= !bit;
        self.of(id).free_columns -= 1;
        self.of(id).ready_columns -= 1;
        Some(column)
    }

    /// The node with the fewest ready columns, of those that have other free columns, or a slab to map if `may_map`.
    pub(crate) fn least_ready(&mut self, may_map: bool) -> Option<NodeId> {
        let mut least: Option<NodeId> = None;
        for node in self.nodes_from(NodeId(0)) {
            let can_grow = self.next_fresh(node).is_some() || may_map && self.next_unmapped(node).is_some();
            let ready = self.ready_columns_of(node);
            if can_grow && least.is_none_or(|least| ready < self.ready_columns_of(least)) {
                least = Some(node);
            }
        }
        least
    }

    /// Chooses a free column of the node that is not resident and counts it as resident. Returns the columns whose
    /// memory the caller touches: it alone, or all of its slab.
    pub(crate) fn next_to_touch(&mut self, node: NodeId) -> Option<std::ops::Range<u32>> {
        let column = self.next_fresh(node)?;
        self.become_resident(column);
        let slab = self.slab_of(column);
        Some(match self.slabs[slab.0 as usize].pages {
            Some(SlabPages::Whole) => self.columns(slab),
            _ => column.0..column.0 + 1,
        })
    }

    fn next_ready(&mut self, node: NodeId) -> Option<ColumnId> {
        let list = &mut self.nodes[node.0 as usize].with_ready;
        while let Some(&id) = list.last() {
            let slab = &mut self.slabs[id.0 as usize];
            if slab.ready() == 0 || slab.releasing {
                slab.listed_ready = false;
                list.pop();
                continue;
            }
            return Some(ColumnId(id.0 * self.columns_per_slab + slab.ready().trailing_zeros()));
        }
        None
    }

    fn next_fresh(&mut self, node: NodeId) -> Option<ColumnId> {
        let list = &mut self.nodes[node.0 as usize].with_fresh;
        while let Some(&id) = list.last() {
            let slab = &mut self.slabs[id.0 as usize];
            if slab.fresh() == 0 || slab.releasing {
                slab.listed_fresh = false;
                list.pop();
                continue;
            }
            return Some(ColumnId(id.0 * self.columns_per_slab + slab.fresh().trailing_zeros()));
        }
        None
    }

    /// A free column becomes resident, and with it the others of its slab if the slab comes as a whole.
    fn become_resident(&mut self, column: ColumnId) {
        let (id, bit, all) = (self.slab_of(column), self.bit(column), self.all());
        let slab = &mut self.slabs[id.0 as usize];
        let touched = if slab.pages == Some(SlabPages::Whole) { all } else { bit } & !slab.resident;
        slab.resident |= touched;
        slab.unused |= touched;
        let ready_columns = (touched & slab.free).count_ones() as usize;
        if touched != 0 && slab.resident == all && slab.pages == Some(SlabPages::Small { may_collapse: true })
        {
            self.complete.push_back(id);
        }
        self.of(id).ready_columns += ready_columns;
        self.list(id);
    }

    fn bit(&self, column: ColumnId) -> u64 {
        1 << (column.0 % self.columns_per_slab)
    }

    /// Puts a column back.
    ///
    /// # Panics
    /// If the column is free already.
    pub(crate) fn put(&mut self, column: ColumnId) {
        let (id, bit) = (self.slab_of(column), self.bit(column));
        let slab = &mut self.slabs[id.0 as usize];
        assert!(slab.pages.is_some() && slab.free & bit == 0, "{column:?} was freed twice");
        slab.free |= bit;
        if !slab.releasing {
            self.of(id).free_columns += 1;
            self.of(id).ready_columns += 1;
        }
        self.list(id);
    }

    fn list(&mut self, id: SlabId) {
        let slab = &mut self.slabs[id.0 as usize];
        let of = &mut self.nodes[self.stripes.node_of(id).0 as usize];
        if slab.releasing {
            return;
        }
        if !slab.listed_ready && slab.ready() != 0 {
            slab.listed_ready = true;
            of.with_ready.push(id);
        }
        if !slab.listed_fresh && slab.fresh() != 0 {
            slab.listed_fresh = true;
            of.with_fresh.push(id);
        }
    }

    /// The slab of this node to map next, if there is one. While other nodes have slabs among the first ones, a node
    /// gets none behind them.
    pub(crate) fn next_unmapped(&self, node: NodeId) -> Option<SlabId> {
        let of = &self.nodes[node.0 as usize];
        let untouched = (of.untouched.0 < self.slabs.len() as u32).then_some(of.untouched);
        let next = of.given_back.last().copied().or(untouched)?;
        let has_first = || self.nodes.iter().any(|of| of.untouched.0 < self.first_slabs);
        (next.0 < self.first_slabs || !has_first()).then_some(next)
    }

    /// Records that the slab from `next_unmapped` was mapped. All its columns are free, and none is resident.
    pub(crate) fn mapped_now(&mut self, id: SlabId, pages: SlabPages) {
        let (free, columns, after) = (self.all(), self.columns_per_slab as usize, self.stripes.after(id));
        let of = self.of(id);
        if of.given_back.last() == Some(&id) {
            of.given_back.pop();
        } else {
            assert_eq!(id, of.untouched);
            of.untouched = after;
        }
        of.free_columns += columns;
        self.untouched = self.untouched.max(id.0 + 1);
        let slab = &mut self.slabs[id.0 as usize];
        slab.pages = Some(pages);
        slab.free = free;
        self.mapped += 1;
        self.list(id);
    }

    /// A slab of small pages whose place a huge page should take: all of it is resident, and nearly all of it is used.
    /// From now on it comes and goes as a whole.
    pub(crate) fn take_complete(&mut self) -> Option<SlabId> {
        for _ in 0..self.complete.len() {
            let (id, all) = (self.complete.pop_front()?, self.all());
            let slab = &mut self.slabs[id.0 as usize];
            // Columns may have been given back since, or the slab, which may be in the list twice then.
            if slab.pages != Some(SlabPages::Small { may_collapse: true }) || slab.resident != all {
                continue;
            }
            if slab.free.count_ones() * COMPLETE_FREE_SHARE > self.columns_per_slab {
                self.complete.push_back(id);
                continue;
            }
            slab.pages = Some(SlabPages::Whole);
            return Some(id);
        }
        None
    }

    /// Slabs that may have ready columns: first those of the node that has the most such columns.
    fn most_ready(&self) -> impl Iterator<Item = SlabId> {
        let most = self.nodes.iter().max_by_key(|of| of.ready_columns);
        most.into_iter().chain(&self.nodes).flat_map(|of| of.with_ready.iter().rev().copied())
    }

    /// Takes a free column whose memory alone can be given back. The caller gives it back and then puts the column back
    /// with [`Pool::put_untouched`].
    pub(crate) fn take_idle(&mut self) -> Option<ColumnId> {
        let found = self.most_ready().find_map(|id| {
            let slab = &self.slabs[id.0 as usize];
            let is_small = matches!(slab.pages, Some(SlabPages::Small { .. }));
            (is_small && !slab.releasing && slab.ready() != 0)
                .then(|| ColumnId(id.0 * self.columns_per_slab + slab.ready().ilog2()))
        })?;
        let (id, bit) = (self.slab_of(found), self.bit(found));
        let slab = &mut self.slabs[id.0 as usize];
        slab.resident &= !bit;
        slab.unused &= !bit;
        slab.free &= !bit;
        self.of(id).free_columns -= 1;
        self.of(id).ready_columns -= 1;
        Some(found)
    }

    /// Puts a column back whose memory was given back.
    pub(crate) fn put_untouched(&mut self, column: ColumnId) {
        let (id, bit) = (self.slab_of(column), self.bit(column));
        let slab = &mut self.slabs[id.0 as usize];
        slab.free |= bit;
        let is_usable = !slab.releasing;
        self.of(id).free_columns += usize::from(is_usable);
        self.list(id);
    }

    /// A mapped slab all of whose columns are free and resident.
    pub(crate) fn idle_slab(&self) -> Option<SlabId> {
        let is_idle = |id: &SlabId| {
            let slab = &self.slabs[id.0 as usize];
            slab.pages.is_some() && !slab.releasing && slab.ready() == self.all()
        };
        self.most_ready().find(is_idle)
    }

    /// The mapped slab that is cheapest to empty: the one with the most free columns, and among equals the one with
    /// the least `cost`. One whose release was put off waits for the others, as long as it `is_held_up`.
    pub(crate) fn choose_release(
        &mut self,
        cost: impl Fn(std::ops::Range<u32>) -> u64,
        is_held_up: impl Fn(std::ops::Range<u32>) -> bool,
    ) -> Option<SlabId> {
        for id in (0..self.untouched).map(SlabId) {
            let columns = self.columns(id);
            let slab = &mut self.slabs[id.0 as usize];
            slab.put_off = slab.put_off && is_held_up(columns);
        }
        if let Some(found) = self.cheapest_release(&cost) {
            return Some(found);
        }
        // Each of them has had its turn.
        self.slabs.iter_mut().for_each(|slab| slab.put_off = false);
        self.cheapest_release(&cost)
    }

    /// The same of the slabs whose release was not put off.
    fn cheapest_release(&mut self, cost: impl Fn(std::ops::Range<u32>) -> u64) -> Option<SlabId> {
        let candidate = |slab: &&Slab| slab.pages.is_some() && !slab.releasing && !slab.put_off;
        let free_most = self.slabs.iter().filter(candidate).map(|slab| slab.free.count_ones()).max()?;
        let count = self.untouched;
        let found = (0..count)
            .map(|n| SlabId((self.release_cursor + n) % count))
            .filter(|id| {
                let slab = &self.slabs[id.0 as usize];
                candidate(&slab) && slab.free.count_ones() == free_most
            })
            .take(RELEASE_CANDIDATES_MAX)
            .min_by_key(|&id| cost(self.columns(id)))?;
        self.release_cursor = (found.0 + 1) % count;
        Some(found)
    }

    /// How many slabs are being released.
    pub(crate) fn releasing_slabs(&self) -> usize {
        self.releasing
    }

    /// Stops handing out the columns of the slab.
    pub(crate) fn begin_release(&mut self, id: SlabId) {
        let slab = &mut self.slabs[id.0 as usize];
        assert!(slab.pages.is_some() && !slab.releasing);
        slab.releasing = true;
        self.releasing += 1;
        let slab = &self.slabs[id.0 as usize];
        let (free, ready) = (slab.free.count_ones() as usize, slab.ready().count_ones() as usize);
        self.of(id).free_columns -= free;
        self.of(id).ready_columns -= ready;
    }

    /// Hands out the columns of the slab again.
    ///
    /// # Panics
    /// If the slab is not being released.
    pub(crate) fn cancel_release(&mut self, id: SlabId) {
        let slab = &mut self.slabs[id.0 as usize];
        assert!(slab.releasing, "{id:?} is not being released");
        slab.releasing = false;
        self.releasing -= 1;
        let slab = &self.slabs[id.0 as usize];
        let (free, ready) = (slab.free.count_ones() as usize, slab.ready().count_ones() as usize);
        self.of(id).free_columns += free;
        self.of(id).ready_columns += ready;
        self.list(id);
    }

    /// The same where a column holds up the slab: the other slabs are chosen first.
    ///
    /// # Panics
    /// If the slab is not being released.
    pub(crate) fn put_off_release(&mut self, id: SlabId) {
        self.cancel_release(id);
        self.slabs[id.0 as usize].put_off = true;
    }

    pub(crate) fn is_releasing(&self, id: SlabId) -> bool {
        self.slabs[id.0 as usize].releasing
    }

    /// Whether every column of the slab is free.
    pub(crate) fn is_all_free(&self, id: SlabId) -> bool {
        self.slabs[id.0 as usize].free == self.all()
    }

    /// Records that a slab was unmapped. It was being released, and all its columns are free.
    pub(crate) fn unmapped_now(&mut self, id: SlabId) {
        assert!(self.is_all_free(id) && self.is_releasing(id));
        let slab = &mut self.slabs[id.0 as usize];
        let Slab { listed_ready, listed_fresh, .. } = *slab;
        *slab = Slab { listed_ready, listed_fresh, ..Slab::default() };
        self.mapped -= 1;
        self.releasing -= 1;
        self.of(id).given_back.push(id);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    /// The columns that become resident with `column`.
    fn made_resident(pool: &Pool, column: ColumnId) -> Vec<ColumnId> {
        let slab = pool.slab_of(column);
        match pool.slabs[slab.0 as usize].pages {
            Some(SlabPages::Whole) => pool.columns(slab).map(ColumnId).collect(),
            _ => vec![column],
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 2 } else { 256 },
            failure_persistence: None,
            ..Default::default()
        })]

        /// Columns are never handed out twice and never from a slab that is being released, and the number of free
        /// columns is right.
        #[test]
        fn free_columns_are_counted_and_handed_out_once(
            nodes in 1u32..4,
            steps in prop::collection::vec((0u8..8, any::<u32>()), 1..if cfg!(miri) { 60 } else { 200 }),
        ) {
            let stripes = Stripes::new(nodes, 4);
            let mut pool = Pool::new(4, 4, stripes, 3);
            let mut taken: Vec<ColumnId> = Vec::new();
            let mut resident: HashSet<ColumnId> = HashSet::new();
            let mut releasing: HashSet<SlabId> = HashSet::new();
            for (step, number) in steps {
                match step {
                    0 => if let Some(slab) = pool.next_unmapped(NodeId(number % nodes)) {
                        prop_assert_eq!(stripes.node_of(slab), NodeId(number % nodes));
                        let small = SlabPages::Small { may_collapse: number % 3 == 1 };
                        pool.mapped_now(slab, if number % 3 == 0 { SlabPages::Whole } else { small });
                    },
                    1 => {
                        let node = NodeId(number % nodes);
                        let (free, ready) = (pool.free_columns_of(node), pool.ready_columns_of(node));
                        let is_any_free = pool.free_columns() > 0;
                        let column = pool.take(node);
                        prop_assert_eq!(column.is_some(), is_any_free);
                        if let Some(column) = column {
                            prop_assert!(!taken.contains(&column) && !releasing.contains(&pool.slab_of(column)));
                            let is_own = stripes.node_of(pool.slab_of(column)) == node;
                            prop_assert_eq!(is_own, free > 0, "those of the node go first");
                            prop_assert!(ready == 0 || resident.contains(&column), "resident columns go first");
                            taken.push(column);
                            resident.extend(made_resident(&pool, column));
                        }
                    }
                    5 => if let Some(touched) = pool.next_to_touch(NodeId(number % nodes)) {
                        let is_new = |id| !taken.contains(&ColumnId(id)) && !resident.contains(&ColumnId(id));
                        prop_assert!(touched.clone().any(is_new));
                        resident.extend(touched.map(ColumnId));
                    },
                    6 => if let Some(column) = pool.take_idle() {
                        prop_assert!(!taken.contains(&column) && resident.remove(&column));
                        pool.put_untouched(column);
                    },
                    7 => if let Some(slab) = pool.take_complete() {
                        prop_assert!(pool.columns(slab).all(|id| resident.contains(&ColumnId(id))));
                    },
                    2 => if !taken.is_empty() { pool.put(taken.swap_remove(number as usize % taken.len())) },
                    3 => if let Some(slab) = pool.choose_release(|columns| columns.start.into(), |_| true) {
                        pool.begin_release(slab);
                        releasing.insert(slab);
                    },
                    _ => if let Some(&slab) = releasing.iter().next() {
                        releasing.remove(&slab);
                        if pool.is_all_free(slab) {
                            pool.unmapped_now(slab);
                            resident.retain(|column| pool.slab_of(*column) != slab);
                        } else if number % 2 == 0 {
                            pool.put_off_release(slab);
                        } else {
                            pool.cancel_release(slab);
                        }
                    },
                }
                let held = taken.iter().filter(|&&column| !releasing.contains(&pool.slab_of(column))).count();
                prop_assert_eq!(pool.releasing_slabs(), releasing.len());
                let usable = (pool.mapped() as usize - releasing.len()) * 4;
                prop_assert_eq!(pool.free_columns(), usable - held);
                let is_ready = |column: &&ColumnId| {
                    !taken.contains(column) && !releasing.contains(&pool.slab_of(**column))
                };
                prop_assert_eq!(pool.ready_columns(), resident.iter().filter(is_ready).count());
                let of_nodes: usize = (0..nodes).map(|node| pool.free_columns_of(NodeId(node))).sum();
                prop_assert_eq!(pool.free_columns(), of_nodes);
            }
        }
    }

    /// Maps the next slab of a node.
    fn map(pool: &mut Pool, node: u32) -> Option<SlabId> {
        let slab = pool.next_unmapped(NodeId(node))?;
        pool.mapped_now(slab, SlabPages::Whole);
        Some(slab)
    }

    #[test]
    fn the_first_slabs_are_used_up_before_those_behind() {
        let mut pool = Pool::new(8, 4, Stripes::new(2, 8), 4);
        assert_eq!([0; 3].map(|node| map(&mut pool, node)), [Some(SlabId(0)), Some(SlabId(2)), None]);
        assert_eq!(pool.least_ready(true), Some(NodeId(0)), "its free columns are not ready yet");
        assert_eq!([1; 2].map(|node| map(&mut pool, node)), [Some(SlabId(1)), Some(SlabId(3))]);
        assert_eq!(map(&mut pool, 0), Some(SlabId(4)));
        assert_eq!((pool.slabs_touched(), pool.mapped()), (5, 5));
    }

    #[test]
    fn memory_is_made_ready_where_there_is_least() {
        let mut pool = Pool::new(4, 4, Stripes::new(2, 4), 4);
        map(&mut pool, 0);
        assert_eq!((pool.least_ready(false), pool.least_ready(true)), (Some(NodeId(0)), Some(NodeId(0))));
        assert_eq!(pool.next_to_touch(NodeId(0)), Some(0..4));
        assert_eq!((pool.least_ready(false), pool.least_ready(true)), (None, Some(NodeId(1))));
        let taken = pool.take(NodeId(1)).unwrap();
        assert_eq!(taken, ColumnId(0), "there is none of node 1");
        map(&mut pool, 1);
        assert_eq!(pool.take(NodeId(1)), Some(ColumnId(4)));
        pool.put(taken);
        assert_eq!(pool.idle_slab(), Some(SlabId(0)));
        assert_eq!((pool.ready_columns_of(NodeId(0)), pool.ready_columns_of(NodeId(1))), (4, 3));
    }

    #[test]
    fn a_slab_that_is_held_up_lets_the_others_go_first() {
        let mut pool = Pool::new(3, 4, Stripes::new(1, 3), 3);
        for _ in 0..3 {
            map(&mut pool, 0);
        }
        let taken: Vec<ColumnId> = std::iter::from_fn(|| pool.take(NodeId(0))).collect();
        let in_first: Vec<_> = taken.into_iter().filter(|column| column.0 < 3).collect();
        in_first.into_iter().for_each(|column| pool.put(column));
        let mut put_off_next = |is_held_up: bool| {
            let slab = pool.choose_release(|columns| columns.start.into(), |_| is_held_up).unwrap();
            pool.begin_release(slab);
            pool.put_off_release(slab);
            slab.0
        };
        assert_eq!([true; 3].map(&mut put_off_next), [0, 1, 2], "the others go first, though they are full");
        assert_eq!([true; 2].map(&mut put_off_next), [0, 1], "all are held up: each has its turn again");
        assert_eq!(put_off_next(false), 0, "nothing holds it up any more");
    }
}
