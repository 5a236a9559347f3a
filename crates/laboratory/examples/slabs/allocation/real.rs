//! The server's own cache under the requests of a run, beside the schemes on slabs.

use super::burst::Injector;
use super::simulator::penalty_us;
use super::tally::Tally;
use super::{Outcome, Settings};
use larder_sim::policy::larder::{LIMIT_BYTES_MIN, RealCache, RealItem, variant};
use larder_sim::simulate::Interner;
use larder_sim::{Op, Request};

/// What the run knows of a key: the penalty, the size and the expiry of its last store.
#[derive(Clone, Copy, Default)]
struct Known {
    penalty_us: Option<u32>,
    item_bytes: u32,
    /// Seconds since the start of the trace; 0 = never.
    expires_s: u32,
}

/// What a request did to its item.
enum Effect {
    Unchanged,
    Stored,
    Removed,
}

/// The server's cache with one worker. Its memory is the server's `-m`, with index, headers and the share for
/// connection buffers inside it.
pub(super) struct RealSimulator {
    name: String,
    memory_bytes: u64,
    settings: Settings,
    cache: RealCache,
    keys: Interner,
    known: Vec<Known>,
    tally: Tally,
    injector: Injector,
}

impl RealSimulator {
    /// An empty cache. `None`: no policy of the server has this name.
    ///
    /// # Errors
    /// Parameters out of range, or less memory than the server accepts.
    pub(super) fn new(
        name: &str,
        memory_bytes: u64,
        settings: &Settings,
    ) -> Option<Result<RealSimulator, String>> {
        let mut variant = variant(name)?;
        variant.worth.objective = settings.objective.unwrap_or_default();
        if memory_bytes < LIMIT_BYTES_MIN {
            return Some(Err(format!(
                "{name}: the server needs at least {} MiB of memory",
                LIMIT_BYTES_MIN >> 20
            )));
        }
        let build = || {
            Ok(RealSimulator {
                name: name.to_owned(),
                memory_bytes,
                settings: settings.clone(),
                cache: RealCache::new(memory_bytes, variant, settings.scheme.seed)?,
                keys: Interner::new(),
                known: Vec::new(),
                tally: Tally::new(settings.window_gets)?,
                injector: Injector::new(settings, memory_bytes)?,
            })
        };
        Some(build())
    }

    /// Serves one request.
    pub(super) fn request(&mut self, request: &Request) {
        self.serve(request);
        if request.op == Op::Get {
            for set in self.injector.due(self.tally.totals().gets) {
                self.serve(&set);
            }
            if self.tally.window_is_full() {
                self.tally.close_window(Vec::new());
            }
        }
    }

    /// Marks the end of a pass over the trace.
    pub(super) fn end_pass(&mut self) {
        self.tally.end_pass();
    }

    /// The result. There are no slabs in it.
    pub(super) fn finish(self) -> Outcome {
        let (totals, passes, windows) = self.tally.finish(Vec::new());
        Outcome {
            scheme: self.name,
            m: None,
            memory_bytes: self.memory_bytes,
            subclasses: 1,
            totals,
            passes,
            windows,
            audit: None,
        }
    }

    fn serve(&mut self, request: &Request) {
        let Some(id) = self.keys.intern(request.key) else { return };
        if id as usize == self.known.len() {
            self.known.push(Known::default());
        }
        let mut known = self.known[id as usize];
        if known.expires_s != 0 && known.expires_s <= request.time_s {
            known = Known::default();
        }
        let penalty_us = penalty_us(request, known.penalty_us);
        let item_bytes = match request.op {
            Op::Append | Op::Prepend => known.item_bytes.saturating_add(request.value_bytes),
            Op::Incr | Op::Decr => known.item_bytes,
            _ => u32::try_from(request.item_bytes()).unwrap_or(u32::MAX),
        };
        let item =
            RealItem { id, key_bytes: request.key_bytes, item_bytes, ttl_s: request.ttl_s, penalty_us };
        self.cache.set_time(request.time_s);
        let keeps_expiry = matches!(request.op, Op::Append | Op::Prepend | Op::Incr | Op::Decr);
        let expires_s = match request.ttl_s {
            _ if keeps_expiry => known.expires_s,
            0 => 0,
            ttl_s => request.time_s.saturating_add(ttl_s),
        };
        let effect = match request.op {
            Op::Get => self.get(request, &item),
            Op::Delete => self.delete(&item),
            _ => self.write(request.op, &item),
        };
        self.known[id as usize] = match effect {
            Effect::Unchanged => known,
            Effect::Stored => Known { penalty_us: Some(penalty_us), item_bytes, expires_s },
            Effect::Removed => Known::default(),
        };
    }

    /// Serves a GET, and stores the item after a miss.
    fn get(&mut self, request: &Request, item: &RealItem) -> Effect {
        let hit = self.cache.get(item);
        let service_us = if hit { self.settings.hit_us } else { item.penalty_us };
        self.tally.count().get(request, hit, service_us);
        if hit || !self.settings.refill { Effect::Unchanged } else { self.write(Op::Set, item) }
    }

    /// Serves a write. An item that no slab could hold is refused here too, so that all schemes serve the same.
    fn write(&mut self, op: Op, item: &RealItem) -> Effect {
        let present = self.cache.contains(item);
        match op {
            Op::Add if present => {
                // In the server this is a use of the item.
                self.cache.add(item);
                return Effect::Unchanged;
            }
            Op::Add | Op::Set | Op::Get => {}
            _ if !present => return Effect::Unchanged,
            _ => {}
        }
        let charged_bytes = u64::from(item.item_bytes) + u64::from(self.settings.overhead_bytes);
        if self.settings.classes.class_of(charged_bytes).is_none() {
            self.tally.count().too_large += 1;
            return self.delete(item);
        }
        match op {
            Op::Append | Op::Prepend | Op::Incr | Op::Decr => self.cache.alter(item),
            _ => self.cache.set(item),
        };
        Effect::Stored
    }

    fn delete(&mut self, item: &RealItem) -> Effect {
        self.cache.delete(item);
        Effect::Removed
    }
}
