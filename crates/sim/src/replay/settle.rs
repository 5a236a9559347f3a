//! Handles a reply: compares it with its request, verifies it, counts it, and sends what follows from it.

use std::sync::atomic::Ordering::Relaxed;

use super::connection::{Command, Pending};
use super::faults::{Mishap, Wrong, shown};
use super::judge::{Meaning, counts_possible, meaning};
use super::link::Broken;
use super::options::{Protocol, Verify};
use super::reply::{Parsed, Reply, parse};
use super::send::is_plain;
use super::tally::Kind;
use super::value::{Checked, Flaw};
use super::wire::Verb;
use super::worker::Worker;

impl Worker {
    /// Handles all received replies of a connection.
    pub(super) fn take_replies(&mut self, at: usize) -> Result<(), Broken> {
        let connection = &mut self.connections[at];
        if connection.filled < connection.needed {
            return Ok(());
        }
        let (input, filled) = (std::mem::take(&mut connection.input), connection.filled);
        let taken = self.take_replies_of(at, &input[..filled]);
        let connection = &mut self.connections[at];
        connection.input = input;
        connection.consume(taken?);
        Ok(())
    }

    /// Handles the replies in `input`. Returns the number of bytes consumed.
    fn take_replies_of(&mut self, at: usize, input: &[u8]) -> Result<usize, Broken> {
        let protocol = self.shared.wire.protocol;
        let now_ns = self.shared.now_ns();
        let mut taken = 0;
        let mut works = false;
        self.connections[at].needed = 1;
        while taken < input.len() {
            let rest = &input[taken..];
            let Some(&pending) = self.connections[at].pending.front() else {
                let text = format!("a reply without a request: '{}'", shown(rest));
                return Err(Broken(Mishap::Impossible, text));
            };
            match parse(protocol, rest) {
                Parsed::Reply(reply, bytes) => {
                    if pending.command.counted {
                        self.measured.tally.counts.bytes_in += bytes as u64;
                    }
                    // A request with an impossible reply stays in flight and is lost with the connection.
                    self.settle(at, &pending, reply, &rest[..bytes], now_ns)?;
                    self.connections[at].pending.pop_front();
                    works |= pending.command.kind != Kind::Login;
                    taken += bytes;
                }
                Parsed::Incomplete(needed) => {
                    self.connections[at].needed = needed;
                    break;
                }
                Parsed::Garbage => {
                    let text = format!(
                        "expected a reply to {} {}, came '{}'",
                        pending.command.verb.name(),
                        self.text_of_key(&pending.command),
                        shown(rest)
                    );
                    return Err(Broken(Mishap::Garbage, text));
                }
            }
        }
        // A server that accepts the login and then stays silent, or closes, does not count as working.
        if works {
            self.is_healthy(at);
        }
        Ok(taken)
    }

    fn settle(
        &mut self,
        at: usize,
        pending: &Pending,
        reply: Reply<'_>,
        octets: &[u8],
        now_ns: u64,
    ) -> Result<(), Broken> {
        let command = &pending.command;
        if command.kind == Kind::Login {
            return match reply {
                Reply::Stored => Ok(()),
                _ => Err(Broken(Mishap::Login, format!("the server said '{}'", shown(octets)))),
            };
        }
        self.key_text.clear();
        self.shared.wire.keys.put(&mut self.key_text, command.key, command.key_length);
        let means = meaning(self.shared.wire.protocol, command.verb, &self.key_text, reply);
        if means != Meaning::Impossible {
            self.count_answer();
        }
        match means {
            Meaning::Impossible => {
                let text = format!(
                    "{} {} cannot be answered with '{}'",
                    command.verb.name(),
                    self.text_of_key(command),
                    shown(octets)
                );
                return Err(Broken(Mishap::Impossible, text));
            }
            Meaning::Hit(data, unique) => self.settle_hit(at, pending, data, unique, now_ns),
            Meaning::NotDone if command.verb == Verb::Get => self.settle_miss(at, pending, now_ns),
            Meaning::NotDone => {
                if command.verb == Verb::Delete {
                    self.ledger_of_write(command, |entry| entry.deleted(pending.version));
                }
                self.count(pending, now_ns, |answers| answers.not_done += 1);
            }
            Meaning::Done => {
                self.note_write(pending);
                self.count(pending, now_ns, |answers| answers.done += 1);
            }
            Meaning::Counted(number) => {
                self.check_count(at, pending, number);
                self.count(pending, now_ns, |answers| answers.done += 1);
            }
            Meaning::NotANumber => {
                self.measured.tally.counts.not_numbers += u64::from(command.counted);
                self.count(pending, now_ns, |answers| answers.not_done += 1);
            }
            Meaning::Refused(line) => {
                let text = || format!("{}: {}", command.verb.name(), shown(line));
                self.check.faults.add_error(line, text);
                self.count(pending, now_ns, |answers| answers.refused += 1);
            }
        }
        Ok(())
    }

    fn count(&mut self, pending: &Pending, now_ns: u64, one: impl FnOnce(&mut super::tally::Answers)) {
        let command = &pending.command;
        if command.counted {
            one(&mut self.measured.tally.counts.answers[command.kind as usize]);
            self.measured.tally.took(command.kind, latency_ns(pending, now_ns));
        }
    }

    fn settle_hit(&mut self, at: usize, pending: &Pending, data: &[u8], unique: Option<u64>, now_ns: u64) {
        self.verify(at, pending, data);
        let command = pending.command;
        if command.verb == Verb::Gets {
            let verb = unique.map_or(Verb::Set, Verb::Cas);
            let began_ns = if command.began_ns == 0 { pending.sent_ns } else { command.began_ns };
            self.connections[at].commands.push_back(Command { verb, began_ns, ..command });
            self.mark(at);
            return;
        }
        self.count(pending, now_ns, |answers| answers.done += 1);
        if command.counted && self.shared.backend.is_some() {
            self.measured.tally.served(latency_ns(pending, now_ns));
            self.measured.windows.hit();
        }
    }

    fn settle_miss(&mut self, at: usize, pending: &Pending, now_ns: u64) {
        self.count(pending, now_ns, |answers| answers.not_done += 1);
        let shared = self.shared.clone();
        let Some(backend) = &shared.backend else { return };
        let command = pending.command;
        let under_way = self.fetches.of_key(command.identity);
        let done_ns = under_way.unwrap_or_else(|| backend.fetch(now_ns, command.penalty_us));
        if under_way.is_none() {
            let fill = Command { verb: Verb::Set, kind: Kind::Fill, began_ns: 0, ..command };
            self.fetches.begin(done_ns, at, fill);
        }
        if command.counted {
            let counts = &mut self.measured.tally.counts;
            match under_way {
                Some(_) => counts.joined += 1,
                None => counts.fetched(command.penalty_us),
            }
            let waited_ns = done_ns.saturating_sub(now_ns);
            counts.waited_ns += waited_ns;
            let scale = backend.penalty_scale();
            let penalty_ns = match scale > 0.0 {
                true => waited_ns as f64 / scale,
                false => f64::from(command.penalty_us) * 1000.0,
            };
            self.measured.tally.served(latency_ns(pending, now_ns) + penalty_ns as u64);
            self.measured.windows.miss(command.penalty_us, waited_ns);
        }
    }

    /// Records an acknowledged write of its key.
    fn note_write(&mut self, pending: &Pending) {
        let (command, version) = (&pending.command, pending.version);
        let plain = is_plain(command.value_bytes);
        let resp = self.shared.wire.protocol == Protocol::Resp;
        match command.verb {
            Verb::Delete => self.ledger_of_write(command, |entry| entry.deleted(version)),
            Verb::Append => self.ledger_of_write(command, |entry| entry.grown(version, plain)),
            Verb::Prepend if !resp => self.ledger_of_write(command, |entry| entry.grown(version, plain)),
            _ if pending.zero => self.ledger_of_write(command, |entry| entry.counted(0, version)),
            _ => self.ledger_of_write(command, |entry| entry.stored(version, plain)),
        }
    }

    fn ledger_of_write(&mut self, command: &Command, note: impl FnOnce(&mut super::ledger::Entry)) {
        if self.shared.options.verify != Verify::Off && self.shared.ordered() {
            note(self.check.ledger.entry(command.identity));
        }
    }

    fn check_count(&mut self, at: usize, pending: &Pending, number: i128) {
        let command = &pending.command;
        if self.shared.options.verify == Verify::Off || !self.shared.ordered() {
            return;
        }
        let before = self.check.ledger.get(command.identity).and_then(|entry| entry.number());
        if let Some(before) = before {
            let (one, other) = counts_possible(self.shared.wire.protocol, command.verb, before);
            if number != one && number != other {
                let why = format!("{number} came, {one} was expected");
                self.wrong(at, command, Wrong::Number, || why);
            }
        }
        self.check.ledger.entry(command.identity).counted(number, pending.version);
    }

    fn verify(&mut self, at: usize, pending: &Pending, data: &[u8]) {
        if self.shared.options.verify == Verify::Off {
            return;
        }
        let command = &pending.command;
        let known =
            if self.shared.ordered() { self.check.ledger.get(command.identity).copied() } else { None };
        let checked = self.shared.wire.values.check(data, command.identity);
        if known.is_some_and(|entry| entry.is_deleted()) {
            return self.wrong(at, command, Wrong::Stale, || "the key had been deleted".to_owned());
        }
        match checked {
            Checked::Short => self.measured.tally.counts.verified += u64::from(command.counted),
            Checked::Row(_) if known.is_some_and(|entry| !entry.may_be_row()) => {
                self.wrong(at, command, Wrong::Length, || "nothing was appended to it".to_owned());
            }
            Checked::Whole(version) | Checked::Row(version) => {
                let version_min = known.map_or(0, |entry| entry.version_min());
                if version < version_min {
                    let behind_s = (version_min - version) as f64 / 1e9;
                    let text = format!(
                        "version {version} came, {version_min} had been acknowledged \
                         ({} writes of this thread, or {behind_s:.1} s for one of an earlier run)",
                        version_min - version
                    );
                    self.wrong(at, command, Wrong::Stale, || text);
                } else {
                    self.measured.tally.counts.verified += u64::from(command.counted);
                }
            }
            Checked::Wrong(flaw) => self.verify_otherwise(at, command, data, flaw, known),
        }
    }

    /// Verifies a value without a valid header: it may be a number, or have pieces that cannot be verified.
    fn verify_otherwise(
        &mut self,
        at: usize,
        command: &Command,
        data: &[u8],
        flaw: Flaw,
        known: Option<super::ledger::Entry>,
    ) {
        let shared = &self.shared;
        let growth_seen = shared.growth_seen.load(Relaxed);
        let opaque = known.map_or(growth_seen, |entry| entry.may_be_opaque(growth_seen));
        let counters_seen = shared.counters_seen.load(Relaxed);
        let counter = known.map_or(counters_seen, |entry| entry.may_be_counter(counters_seen));
        if let Some(number) = number_of(data).filter(|_| counter) {
            return match known.and_then(|entry| entry.number()).filter(|&expected| expected != number) {
                Some(expected) => {
                    let why = format!("{number} came, {expected} was expected");
                    self.wrong(at, command, Wrong::Number, || why);
                }
                None => self.measured.tally.counts.verified += u64::from(command.counted),
            };
        }
        if opaque {
            self.measured.tally.counts.unverified += u64::from(command.counted);
            return;
        }
        let wrong = match flaw {
            Flaw::Octets => Wrong::Octets,
            Flaw::Length => Wrong::Length,
            Flaw::Key => Wrong::OtherKey,
        };
        let values = &shared.wire.values;
        let differs = values.first_difference(data, command.identity);
        let at_octet = differs.map_or(String::new(), |octet| format!(", different from byte {octet} on"));
        let text = format!("{} bytes{at_octet}: '{}'", data.len(), shown(data));
        if flaw == Flaw::Key || !self.may_be_of_earlier_run(known) {
            return self.wrong(at, command, wrong, || text);
        }
        let text = self.text_of_wrong(at, command, &text);
        let all = &mut self.check.doubts;
        let doubts = if number_of(data).is_some() { &mut all.numbers } else { &mut all.others };
        doubts.faults.add_wrong(wrong, || text);
        doubts.counted += u64::from(command.counted);
    }

    /// Whether the value may come from an earlier run. For keys that are not remembered this is unknown.
    fn may_be_of_earlier_run(&self, known: Option<super::ledger::Entry>) -> bool {
        self.shared.ordered()
            && self.check.ledger.forgotten == 0
            && known.is_none_or(|entry| entry.is_unwritten())
    }

    fn wrong(&mut self, at: usize, command: &Command, wrong: Wrong, why: impl FnOnce() -> String) {
        let text = self.text_of_wrong(at, command, &why());
        self.check.faults.add_wrong(wrong, || text);
    }

    fn text_of_wrong(&self, at: usize, command: &Command, why: &str) -> String {
        let (verb, key) = (command.verb.name(), self.text_of_key(command));
        format!("{verb} {key} on connection {}: {why}", self.connections[at].number)
    }
}

/// Latency since the request was due, or since it was sent.
fn latency_ns(pending: &Pending, now_ns: u64) -> u64 {
    let began_ns = if pending.command.began_ns == 0 { pending.sent_ns } else { pending.command.began_ns };
    now_ns.saturating_sub(began_ns)
}

/// The number shown by the value of a counter. memcached leaves blanks behind a number that became shorter.
fn number_of(data: &[u8]) -> Option<i128> {
    std::str::from_utf8(data).ok()?.trim_end_matches(' ').parse().ok()
}
