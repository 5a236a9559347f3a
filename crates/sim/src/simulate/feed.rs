//! Prepares the requests of a source for the simulations: dense key numbers, charged sizes, verbs.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use super::interner::Interner;
use super::rules::{OpsRule, Rules};
use super::size::Unit;
use crate::policy::Access;
use crate::{Op, Request, SourceError};

/// The effect of a request on a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verb {
    /// Reads; a miss stores the item.
    Get,
    /// Stores unconditionally.
    Write,
    /// Stores if the key is absent.
    Add,
    /// Stores if the key is present.
    Replace,
    /// Changes a present item, which keeps its expiry.
    Alter,
    /// Removes.
    Delete,
}

impl Verb {
    fn of(op: Op, ops: OpsRule) -> Verb {
        match (ops, op) {
            (OpsRule::Ignore, _) | (_, Op::Get) => Verb::Get,
            (_, Op::Set) => Verb::Write,
            (_, Op::Add) => Verb::Add,
            (_, Op::Replace | Op::Cas) => Verb::Replace,
            (_, Op::Append | Op::Prepend | Op::Incr | Op::Decr) => Verb::Alter,
            (_, Op::Delete) => Verb::Delete,
        }
    }

    /// Whether the item stored before this request will never be read again.
    fn ends_the_old(self) -> bool {
        matches!(self, Verb::Write | Verb::Delete)
    }
}

/// A prepared request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prepared {
    pub(super) id: u32,
    /// The charged size, in the unit of the cache sizes.
    pub(super) size: u32,
    /// Length of key and value together, in bytes.
    pub(super) bytes: u32,
    pub(super) time_s: u32,
    pub(super) penalty_us: u32,
    /// Time to live in seconds of an item stored now; 0 = the item never expires.
    pub(super) ttl_s: u32,
    pub(super) key_bytes: u16,
    pub(super) verb: Verb,
}

/// Consecutive requests, shared by all workers.
pub(super) struct Chunk {
    /// Ordinal of the chunk.
    pub(super) number: u64,
    /// Ordinal of its first request.
    pub(super) first: u64,
    pub(super) requests: Vec<Prepared>,
    /// Number of keys up to the end of the chunk. Every key number in the chunk is below it.
    pub(super) keys: usize,
    /// For every request of the trace, the ordinal of the next access to the same key. Present only where a policy
    /// needs it.
    pub(super) next: Option<Arc<[u32]>>,
    /// The order in which workers take the simulations for this chunk, and the index of the next one to take.
    pub(super) order: Arc<[usize]>,
    pub(super) turn: AtomicUsize,
}

impl Chunk {
    /// The access of the request at index `at`.
    #[inline]
    pub(super) fn access(&self, at: usize) -> Access {
        let request = &self.requests[at];
        let next = match &self.next {
            Some(next) => match next.get(self.first as usize + at) {
                Some(&ordinal) if ordinal != NEVER => u64::from(ordinal),
                _ => u64::MAX,
            },
            None => u64::MAX,
        };
        Access {
            id: request.id,
            size: request.size,
            time_s: request.time_s,
            penalty_us: request.penalty_us,
            next,
        }
    }
}

/// No further access.
const NEVER: u32 = u32::MAX;

/// The distinct keys of a trace and the sizes of their items.
#[derive(Default)]
pub(super) struct Population {
    interner: Interner,
    /// The largest size of each key's item, in bytes.
    largest: Vec<u32>,
    bytes: u64,
}

impl Population {
    fn see(&mut self, request: &Request) -> Result<u32, SourceError> {
        let too_many =
            || SourceError::new("more than 4,294,967,294 distinct keys: take a sample of the trace");
        let id = self.interner.intern(request.key).ok_or_else(too_many)?;
        let bytes = item_bytes(request);
        match self.largest.get_mut(id as usize) {
            None => {
                self.largest.push(bytes);
                self.bytes += u64::from(bytes);
            }
            Some(largest) if *largest < bytes => {
                self.bytes += u64::from(bytes - *largest);
                *largest = bytes;
            }
            Some(_) => {}
        }
        Ok(id)
    }

    /// The number of distinct keys.
    pub(super) fn keys(&self) -> usize {
        self.interner.len()
    }

    /// Bytes of the items of all keys, each at its largest size.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

fn item_bytes(request: &Request) -> u32 {
    u32::try_from(request.item_bytes()).unwrap_or(u32::MAX)
}

/// Turns the requests of a source into chunks.
pub(super) struct Preparer {
    pub(super) population: Population,
    unit: Unit,
    ops: OpsRule,
    overhead_bytes: u32,
    penalty_us: u32,
    /// The time to live of each key's last write; empty where times to live are ignored.
    ttl_s: Vec<u32>,
    ttls: bool,
    next: Option<Arc<[u32]>>,
    chunks: u64,
    /// Requests prepared so far.
    pub(super) requests: u64,
}

impl Preparer {
    /// A preparer that charges in `unit`. `penalty_us` of the rules applies to misses of unknown cost.
    pub(super) fn new(rules: &Rules, unit: Unit, ops: OpsRule, next: Option<Arc<[u32]>>) -> Preparer {
        Preparer {
            population: Population::default(),
            unit,
            ops,
            overhead_bytes: rules.overhead_bytes,
            penalty_us: rules.penalty_us,
            ttl_s: Vec::new(),
            ttls: rules.ttls,
            next,
            chunks: 0,
            requests: 0,
        }
    }

    /// Makes a chunk of `requests`. If one of them is an error, the chunk holds the requests before it.
    pub(super) fn chunk(
        &mut self,
        requests: &[Request],
        order: &Arc<[usize]>,
    ) -> (Chunk, Result<(), SourceError>) {
        let mut prepared = Vec::with_capacity(requests.len());
        let mut outcome = Ok(());
        for request in requests {
            match self.prepare(request) {
                Ok(request) => prepared.push(request),
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        let chunk = Chunk {
            number: self.chunks,
            first: self.requests,
            keys: self.population.keys(),
            next: self.next.clone(),
            order: order.clone(),
            turn: AtomicUsize::new(0),
            requests: prepared,
        };
        self.chunks += 1;
        self.requests += chunk.requests.len() as u64;
        (chunk, outcome)
    }

    fn prepare(&mut self, request: &Request) -> Result<Prepared, SourceError> {
        let id = self.population.see(request)?;
        let verb = Verb::of(request.op, self.ops);
        let bytes = item_bytes(request);
        let size = match self.unit {
            Unit::Objects => 1,
            Unit::Bytes => bytes.saturating_add(self.overhead_bytes).max(1),
        };
        let penalty_us = if request.penalty_us == 0 { self.penalty_us } else { request.penalty_us };
        let ttl_s = if self.ttls { self.ttl_of(id, verb, request.ttl_s) } else { 0 };
        let Request { time_s, key_bytes, .. } = *request;
        Ok(Prepared { id, size, bytes, time_s, penalty_us, ttl_s, key_bytes, verb })
    }

    /// The time to live of an item stored by this request. Traces give it for writes only, so the fill after a miss
    /// uses that of the key's last write.
    fn ttl_of(&mut self, id: u32, verb: Verb, ttl_s: u32) -> u32 {
        let at = id as usize;
        if at == self.ttl_s.len() {
            self.ttl_s.push(0);
        }
        if ttl_s != 0 || matches!(verb, Verb::Write | Verb::Add | Verb::Replace) {
            self.ttl_s[at] = ttl_s;
        }
        self.ttl_s[at]
    }
}

/// The result of a first pass over the trace.
pub(super) struct Survey {
    pub(super) requests: u64,
    pub(super) keys: u64,
    pub(super) bytes: u64,
    /// For every request, the ordinal of the next access to the same key. It takes 4 bytes per request, and as much
    /// again while it is made.
    pub(super) next: Option<Arc<[u32]>>,
}

/// Collects a [`Survey`].
pub(super) struct Surveyor {
    population: Population,
    requests: u64,
    ops: OpsRule,
    /// The key number of every request, and whether the request ends the use of the old item
    /// ([`Verb::ends_the_old`]). Present only where the next accesses are needed.
    trail: Option<(Vec<u32>, Vec<bool>)>,
}

impl Surveyor {
    pub(super) fn new(ops: OpsRule, wants_next: bool) -> Surveyor {
        let trail = wants_next.then(Default::default);
        Surveyor { population: Population::default(), requests: 0, ops, trail }
    }

    pub(super) fn see(&mut self, requests: &[Request]) -> Result<(), SourceError> {
        for request in requests {
            let id = self.population.see(request)?;
            self.requests += 1;
            if let Some((ids, ends)) = &mut self.trail {
                if self.requests >= u64::from(NEVER) {
                    return Err(SourceError::new(
                        "more than 4,294,967,294 requests: leave Belady's policy out",
                    ));
                }
                ids.push(id);
                ends.push(Verb::of(request.op, self.ops).ends_the_old());
            }
        }
        Ok(())
    }

    /// Completes the survey. Going backwards, the key number of each request is replaced by the ordinal of the next
    /// access to the key. If the next request to the key is a write or a delete, the ordinal is "never", because
    /// nobody reads the copy stored until then.
    pub(super) fn finish(self) -> Survey {
        let next = self.trail.map(|(mut ids, ends)| {
            let mut upcoming = vec![NEVER; self.population.keys()];
            for (at, id) in ids.iter_mut().enumerate().rev() {
                let key = *id as usize;
                *id = upcoming[key];
                upcoming[key] = if ends[at] { NEVER } else { at as u32 };
            }
            ids.into()
        });
        let (keys, bytes) = (self.population.keys() as u64, self.population.bytes());
        Survey { requests: self.requests, keys, bytes, next }
    }
}
