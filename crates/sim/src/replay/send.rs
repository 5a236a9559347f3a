//! Turns requests into commands and commands into bytes.

use std::sync::atomic::Ordering::Relaxed;

use super::connection::{Command, ConnectionState, Pending, Queued};
use super::feed::{Order, Phase};
use super::key::Keys;
use super::link::broken_by;
use super::options::{CasAs, Protocol};
use super::tally::Kind;
use super::wire::{Content, Message, Verb};
use super::worker::Worker;
use crate::{Op, Request};

/// Unwritten bytes at which no further requests are encoded.
const OUT_BYTES_MAX: usize = 256 * 1024;
/// A request sent later than this after its due time counts as late.
const LATE_NS: u64 = 1_000_000;

impl Worker {
    /// Fills a connection up to its depth and writes.
    pub(super) fn send(&mut self, at: usize) {
        if !matches!(self.connections[at].state, ConnectionState::Up { .. }) {
            return;
        }
        let now_ns = self.shared.now_ns();
        let depth = self.shared.options.depth;
        loop {
            let connection = &mut self.connections[at];
            if connection.pending.len() >= depth || connection.unwritten_bytes() >= OUT_BYTES_MAX {
                break;
            }
            if let Some(command) = connection.commands.pop_front() {
                self.put(at, command, now_ns);
            } else if let Some(queued) = connection.queue.pop_front() {
                let command = self.command(&queued, now_ns);
                self.put(at, command, now_ns);
            } else {
                break;
            }
        }
        if let Err(error) = self.connections[at].flush() {
            self.lose(at, broken_by(&error));
        }
    }

    /// The command for a request; `None` if nothing has to be sent.
    fn command(&mut self, queued: &Queued, now_ns: u64) -> Command {
        let Queued { order: Order { request, due_ns }, phase } = *queued;
        let (kind, verb) = self.kind_and_verb(&request, phase);
        let key_length = self.shared.wire.keys.length(request.key, request.key_bytes);
        let counted = phase == Phase::Measure && self.is_measuring(now_ns);
        if counted && due_ns != 0 {
            let lag_ns = now_ns.saturating_sub(due_ns);
            self.measured.tally.counts.lag_ns_max = self.measured.tally.counts.lag_ns_max.max(lag_ns);
            self.measured.tally.counts.late += u64::from(lag_ns > LATE_NS);
        }
        Command {
            verb,
            kind,
            counted,
            key: request.key,
            key_length,
            identity: Keys::identity(request.key, key_length),
            value_bytes: request.value_bytes,
            ttl_s: request.ttl_s,
            penalty_us: request.penalty_or_default_us(),
            began_ns: due_ns,
        }
    }

    fn kind_and_verb(&self, request: &Request, phase: Phase) -> (Kind, Verb) {
        let options = &self.shared.options;
        match request.op {
            _ if phase == Phase::Load => (Kind::Load, Verb::Set),
            Op::Get => (Kind::Get, Verb::Get),
            Op::Set => (Kind::Set, Verb::Set),
            Op::Add => (Kind::Add, Verb::Add),
            Op::Replace => (Kind::Replace, Verb::Replace),
            Op::Cas
                if self.shared.wire.protocol == Protocol::Memcached && options.cas_as == CasAs::GetsCas =>
            {
                (Kind::Cas, Verb::Gets)
            }
            Op::Cas => (Kind::Cas, Verb::Set),
            Op::Append => (Kind::Append, Verb::Append),
            Op::Prepend => (Kind::Prepend, Verb::Prepend),
            Op::Delete => (Kind::Delete, Verb::Delete),
            Op::Incr => (Kind::Incr, Verb::Incr),
            Op::Decr => (Kind::Decr, Verb::Decr),
        }
    }

    fn is_measuring(&mut self, now_ns: u64) -> bool {
        let begins_ns = match self.measured.measure_ns.or_else(|| self.shared.measure_ns()) {
            Some(ns) => ns,
            None => self.shared.begin_measuring(now_ns),
        };
        self.measured.measure_ns = Some(begins_ns);
        now_ns >= begins_ns
    }

    /// Encodes a command.
    fn put(&mut self, at: usize, command: Command, now_ns: u64) {
        let mut pending = Pending { command, version: 0, zero: false, sent_ns: now_ns };
        let verb = command.verb;
        if !matches!(verb, Verb::Get | Verb::Gets) {
            self.version += 1;
            pending.version = self.version;
        }
        match verb {
            Verb::Incr | Verb::Decr => {
                self.check.ledger.entry(command.identity).mark_counter();
                self.shared.counters_seen.store(true, Relaxed);
            }
            Verb::Append | Verb::Prepend => {
                self.shared.growth_seen.store(true, Relaxed);
            }
            Verb::Set | Verb::Add | Verb::Replace | Verb::Cas(_)
                if self.shared.counters_seen.load(Relaxed) =>
            {
                pending.zero =
                    self.check.ledger.get(command.identity).is_some_and(|entry| entry.is_counter());
            }
            _ => {}
        }
        if command.kind == Kind::Fill {
            self.fetches.stored(command.identity);
        }
        let value = Content::Value { version: pending.version, bytes: command.value_bytes };
        let message = Message {
            verb,
            key: command.key,
            key_length: command.key_length,
            content: if pending.zero { Content::Zero } else { value },
            ttl_s: command.ttl_s,
            cost_us: self.shared.options.state_costs.then_some(command.penalty_us),
        };
        let connection = &mut self.connections[at];
        let before = connection.out.len();
        self.shared.wire.put(&mut connection.out, &message);
        if command.counted {
            self.measured.tally.counts.bytes_out += (connection.out.len() - before) as u64;
        }
        connection.pending.push_back(pending);
    }
}

/// Whether an appended piece of this length has no header.
pub(super) fn is_plain(value_bytes: u32) -> bool {
    (value_bytes as usize) < super::value::HEADER_BYTES
}
