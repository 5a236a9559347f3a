//! Simulates one cache under one scheme: requests in; hit ratio, service time and allocations out.

use larder_sim::{Op, PENALTY_UNKNOWN_US, Request};

use larder_cache::Objective;

use super::burst::Injector;
use super::store::{Item, Shape};
use super::tally::{Tally, Totals, Window};
use super::{
    Audit, Burst, SUBCLASS_PENALTY_US_MAX, Scheme, SchemeSettings, SlabAccess, SlabClasses, StackPosition,
    Store,
};
use super::{build, subclass_of};

/// The settings common to all simulations of a run.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The size classes.
    pub(crate) classes: SlabClasses,
    /// Bytes per item in addition to key and value; 0 in PAMA.
    pub(crate) overhead_bytes: u32,
    /// Service time of a hit in microseconds.
    pub(crate) hit_us: u32,
    /// Whether the client stores what its GET missed. Otherwise only the trace's own SETs fill the cache.
    pub(crate) refill: bool,
    /// GETs per window of the report.
    pub(crate) window_gets: u64,
    /// A burst of cold items to inject, if any.
    pub(crate) burst: Option<Burst>,
    /// The parameters of the schemes.
    pub(crate) scheme: SchemeSettings,
    /// What the first table compares, best first, and what `larder` saves. `None` = the table is in the requested
    /// order, and `larder` has the server's default.
    pub(crate) objective: Option<Objective>,
}

/// The result of a simulation.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// The name of the scheme.
    pub(crate) scheme: String,
    /// PAMA's m, where the scheme has one.
    pub(crate) m: Option<usize>,
    /// Memory of the cache in bytes.
    pub(crate) memory_bytes: u64,
    /// Penalty subclasses per class. The number of a group is `class * subclasses + subclass`.
    pub(crate) subclasses: usize,
    /// Counts of the whole run.
    pub(crate) totals: Totals,
    /// Counts of each pass over the trace.
    pub(crate) passes: Vec<Totals>,
    /// The windows, in order.
    pub(crate) windows: Vec<Window>,
    /// Accuracy of the Bloom filters, for a scheme that uses them.
    pub(crate) audit: Option<Audit>,
}

/// A cache under a scheme.
pub(crate) struct Simulator {
    name: String,
    m: Option<usize>,
    memory_bytes: u64,
    settings: Settings,
    scheme: Box<dyn Scheme>,
    store: Store,
    tally: Tally,
    audit: Option<Audit>,
    injector: Injector,
}

impl Simulator {
    /// An empty cache of `memory_bytes`, rounded down to whole slabs.
    ///
    /// # Errors
    /// An unknown scheme, parameters out of range, or memory below one slab or above 2^32 slabs.
    pub(crate) fn new(scheme: &str, memory_bytes: u64, settings: &Settings) -> Result<Simulator, String> {
        let built = build(scheme, &settings.scheme, settings.classes.len())?;
        let slabs = memory_bytes / settings.classes.slab_bytes();
        if slabs == 0 || slabs > u64::from(u32::MAX) {
            return Err(format!("{memory_bytes} bytes of memory are {slabs} slabs; 1 to 2^32 are possible"));
        }
        let tally = Tally::new(settings.window_gets)?;
        let injector = Injector::new(settings, memory_bytes)?;
        let shape =
            Shape { subclasses: built.subclasses(), segments: built.segments(), filtered: built.filtered() };
        Ok(Simulator {
            name: scheme.to_owned(),
            m: shape.segments.checked_sub(1),
            memory_bytes,
            store: Store::new(&settings.classes, slabs as u32, shape),
            audit: shape.filtered.then(Audit::default),
            scheme: built,
            settings: settings.clone(),
            tally,
            injector,
        })
    }

    /// The cache, for tests.
    #[cfg(test)]
    pub(super) fn store(&self) -> &Store {
        &self.store
    }

    /// The counts so far, for tests.
    #[cfg(test)]
    pub(super) fn totals(&self) -> &Totals {
        self.tally.totals()
    }

    /// Serves one request.
    pub(crate) fn request(&mut self, request: &Request) {
        self.serve(request);
        if request.op == Op::Get {
            for set in self.injector.due(self.tally.totals().gets) {
                self.serve(&set);
            }
            if self.tally.window_is_full() {
                self.tally.close_window(self.store.slabs().to_vec());
            }
        }
    }

    /// Marks the end of a pass over the trace.
    pub(crate) fn end_pass(&mut self) {
        self.tally.end_pass();
    }

    /// The result. A last window that is not full is included if it has at least a tenth of its GETs.
    pub(crate) fn finish(self) -> Outcome {
        let (totals, passes, windows) = self.tally.finish(self.store.slabs().to_vec());
        Outcome {
            scheme: self.name,
            m: self.m,
            memory_bytes: self.memory_bytes,
            subclasses: self.store.subclasses(),
            totals,
            passes,
            windows,
            audit: self.audit,
        }
    }

    fn serve(&mut self, request: &Request) {
        self.store.tick();
        match request.op {
            Op::Get => self.get(request),
            Op::Set => self.set(request),
            Op::Add => {
                if self.size_of_resident(request).is_none() {
                    self.set(request);
                }
            }
            Op::Replace | Op::Cas => {
                if self.size_of_resident(request).is_some() {
                    self.set(request);
                }
            }
            Op::Append | Op::Prepend => {
                if let Some((size, lasting)) = self.changed(request) {
                    self.store_item(&lasting, u64::from(size) + u64::from(request.value_bytes));
                }
            }
            Op::Incr | Op::Decr => {
                if let Some((size, lasting)) = self.changed(request) {
                    self.store_item(&lasting, u64::from(size));
                }
            }
            Op::Delete => self.delete(request.key),
        }
        if self.audit.is_some() && self.scheme.filters_due() {
            self.store.rebuild_filters();
        }
        if let Some((from, to)) = self.scheme.due(&self.store) {
            self.move_slab(from, to);
        }
    }

    fn get(&mut self, request: &Request) {
        self.drop_if_expired(request);
        let found = self.store.find(request.key);
        let penalty_us = penalty_us(request, found.map(|(_, node)| node.penalty_us));
        if let Some((at, node)) = found
            && self.store.is_resident(&node)
        {
            let group = usize::from(node.group);
            let position = self.position(group, request.key, true, self.store.position(&node), penalty_us);
            self.tally.count().get(request, true, self.settings.hit_us);
            self.scheme
                .on_access(&SlabAccess { group, get: true, hit: true, position, penalty_us }, &self.store);
            self.store.use_item(at);
            return;
        }
        self.tally.count().get(request, false, penalty_us);
        let item = self.item(request, self.item_bytes(request), penalty_us);
        let Some(group) = self.group(&item) else {
            self.tally.count().too_large += u64::from(self.settings.refill);
            return;
        };
        // The ghost is in the group where the item was when it was evicted. The filters are asked in the group that
        // will store the item.
        let ghost = found.map(|(_, node)| (usize::from(node.group), self.store.position(&node)));
        let (group_exact, exact) = ghost.unwrap_or((group, StackPosition::Elsewhere));
        let (in_group, position) = match self.audit {
            Some(_) => (group, self.position(group, request.key, false, exact, penalty_us)),
            None => (group_exact, exact),
        };
        let access = SlabAccess { group: in_group, get: true, hit: false, position, penalty_us };
        self.scheme.on_access(&access, &self.store);
        if self.settings.refill {
            self.put(group, &item, found.map(|(at, _)| at));
        }
    }

    fn set(&mut self, request: &Request) {
        self.drop_if_expired(request);
        self.store_item(request, self.item_bytes(request));
    }

    /// Stores an item of `size_bytes` unconditionally.
    fn store_item(&mut self, request: &Request, size_bytes: u64) {
        let found = self.store.find(request.key);
        let penalty_us = penalty_us(request, found.map(|(_, node)| node.penalty_us));
        let item = self.item(request, size_bytes, penalty_us);
        let Some(group) = self.group(&item) else {
            self.tally.count().too_large += 1;
            self.delete(request.key);
            return;
        };
        let resident = found.filter(|(_, node)| self.store.is_resident(node));
        let position = resident.map_or(StackPosition::Elsewhere, |(_, node)| self.store.position(&node));
        if self.audit.is_some() {
            // The item leaves its segment, so the removal filter must learn of it. A SET does not count towards a
            // value.
            let at = resident.map_or(group, |(_, node)| usize::from(node.group));
            self.store.judge(at, request.key, resident.is_some());
        }
        let access = SlabAccess { group, get: false, hit: resident.is_some(), position, penalty_us };
        self.scheme.on_access(&access, &self.store);
        match resident {
            Some((at, node)) if usize::from(node.group) == group => {
                self.store.update(at, &item);
                self.store.use_item(at);
            }
            _ => self.put(group, &item, found.map(|(at, _)| at)),
        }
    }

    fn delete(&mut self, key: u64) {
        if let Some((at, node)) = self.store.find(key) {
            let resident = self.store.is_resident(&node);
            self.store.judge(usize::from(node.group), key, resident);
            self.store.remove(at);
        }
    }

    /// Stores an item in `group` and removes the entry `old` of its key.
    fn put(&mut self, group: usize, item: &Item, old: Option<u32>) {
        if let Some(old) = old {
            self.store.remove(old);
        }
        if self.make_room(group) {
            self.store.insert(group, item);
        } else {
            self.tally.count().without_slab += 1;
            if self.scheme.segments() > 0 {
                self.store.insert_ghost(group, item);
            }
        }
    }

    /// Frees a slot in `group` if needed. Returns whether there is one.
    fn make_room(&mut self, group: usize) -> bool {
        if self.store.has_slot(group) || self.store.take_free_slab(group) {
            return true;
        }
        let first = self.store.slabs()[group] == 0 && self.scheme.first_slab_for_all();
        let donor = match first {
            true => super::scheme::richest(&self.store, group),
            false => self.scheme.donor(group, &self.store).filter(|&donor| donor != group),
        };
        if let Some(donor) = donor {
            self.move_slab(donor, group);
        } else if self.store.items(group) > 0 {
            self.store.evict(group);
        }
        self.store.has_slot(group)
    }

    fn move_slab(&mut self, from: usize, to: usize) {
        self.store.move_slab(from, to);
        self.scheme.moved(from, to);
        self.tally.count().slabs_moved += 1;
    }

    /// The position reported to the scheme: according to the filters if there are any, else the exact one.
    fn position(
        &mut self,
        group: usize,
        key: u64,
        hit: bool,
        exact: StackPosition,
        penalty_us: u32,
    ) -> StackPosition {
        let Some(judged) = self.store.judge(group, key, hit) else { return exact };
        if let Some(audit) = &mut self.audit {
            audit.count(exact, judged, penalty_us);
        }
        judged
    }

    /// The size of the resident item that a request changes, and the request with the item's remaining time to live,
    /// because a change keeps the expiry.
    fn changed(&mut self, request: &Request) -> Option<(u32, Request)> {
        let size = self.size_of_resident(request)?;
        let (_, node) = self.store.find(request.key)?;
        let ttl_s = node.expires_s.saturating_sub(request.time_s);
        Some((size, Request { ttl_s, ..*request }))
    }

    fn size_of_resident(&mut self, request: &Request) -> Option<u32> {
        self.drop_if_expired(request);
        let (_, node) = self.store.find(request.key)?;
        self.store.is_resident(&node).then_some(node.size_bytes)
    }

    fn drop_if_expired(&mut self, request: &Request) {
        if let Some((at, node)) = self.store.find(request.key)
            && node.expires_s != 0
            && node.expires_s <= request.time_s
        {
            self.store.remove(at);
        }
    }

    fn item_bytes(&self, request: &Request) -> u64 {
        request.item_bytes() + u64::from(self.settings.overhead_bytes)
    }

    fn item(&self, request: &Request, size_bytes: u64, penalty_us: u32) -> Item {
        Item {
            key: request.key,
            size_bytes: size_bytes.min(u64::from(u32::MAX)) as u32,
            penalty_us,
            expires_s: if request.ttl_s == 0 { 0 } else { request.time_s.saturating_add(request.ttl_s) },
        }
    }

    fn group(&self, item: &Item) -> Option<usize> {
        let class = self.settings.classes.class_of(u64::from(item.size_bytes))?;
        let subclasses = self.store.subclasses();
        Some(class * subclasses + if subclasses > 1 { subclass_of(item.penalty_us) } else { 0 })
    }
}

/// Cost of a miss: as the request says, else as stored with the item, else the default. Costs above 5 s are
/// discarded, as in the paper.
pub(super) fn penalty_us(request: &Request, known: Option<u32>) -> u32 {
    let longest = SUBCLASS_PENALTY_US_MAX[SUBCLASS_PENALTY_US_MAX.len() - 1];
    match request.penalty_us {
        0 => known.unwrap_or(PENALTY_UNKNOWN_US),
        penalty if penalty > longest => known.unwrap_or(PENALTY_UNKNOWN_US),
        penalty => penalty,
    }
}
