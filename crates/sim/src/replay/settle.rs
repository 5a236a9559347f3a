//! What a reply does: it is held against its request, verified, counted, and may have consequences.

use std::sync::atomic::Ordering::Relaxed;

use super::connection::{Errand, Pending};
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
    /// Takes all replies of a connection that have come.
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

    /// Says how many octets were taken.
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
                    if pending.errand.counted {
                        self.tally.counts.bytes_in += bytes as u64;
                    }
                    // A request whose reply is impossible stays in flight: it is lost with the connection.
                    self.settle(at, &pending, reply, &rest[..bytes], now_ns)?;
                    self.connections[at].pending.pop_front();
                    works |= pending.errand.kind != Kind::Login;
                    taken += bytes;
                }
                Parsed::Incomplete(needed) => {
                    self.connections[at].needed = needed;
                    break;
                }
                Parsed::Garbage => {
                    let text = format!(
                        "expected a reply to {} {}, came '{}'",
                        pending.errand.verb.name(),
                        self.text_of_key(&pending.errand),
                        shown(rest)
                    );
                    return Err(Broken(Mishap::Garbage, text));
                }
            }
        }
        // A server that lets us in and then goes silent, or closes, does not work.
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
        let errand = &pending.errand;
        if errand.kind == Kind::Login {
            return match reply {
                Reply::Stored => Ok(()),
                _ => Err(Broken(Mishap::Login, format!("the server said '{}'", shown(octets)))),
            };
        }
        self.key_text.clear();
        self.shared.wire.keys.put(&mut self.key_text, errand.key, errand.key_length);
        let means = meaning(self.shared.wire.protocol, errand.verb, &self.key_text, reply);
        if means != Meaning::Impossible {
            self.count_answer();
        }
        match means {
            Meaning::Impossible => {
                let text = format!(
                    "{} {} cannot be answered with '{}'",
                    errand.verb.name(),
                    self.text_of_key(errand),
                    shown(octets)
                );
                return Err(Broken(Mishap::Impossible, text));
            }
            Meaning::Hit(data, unique) => self.settle_hit(at, pending, data, unique, now_ns),
            Meaning::NotDone if errand.verb == Verb::Get => self.settle_miss(at, pending, now_ns),
            Meaning::NotDone => {
                if errand.verb == Verb::Delete {
                    self.ledger_of_write(errand, |entry| entry.deleted(pending.version));
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
                self.tally.counts.not_numbers += u64::from(errand.counted);
                self.count(pending, now_ns, |answers| answers.not_done += 1);
            }
            Meaning::Refused(line) => {
                let text = || format!("{}: {}", errand.verb.name(), shown(line));
                self.faults.add_error(line, text);
                self.count(pending, now_ns, |answers| answers.refused += 1);
            }
        }
        Ok(())
    }

    fn count(&mut self, pending: &Pending, now_ns: u64, one: impl FnOnce(&mut super::tally::Answers)) {
        let errand = &pending.errand;
        if errand.counted {
            one(&mut self.tally.counts.answers[errand.kind as usize]);
            self.tally.took(errand.kind, latency_ns(pending, now_ns));
        }
    }

    fn settle_hit(&mut self, at: usize, pending: &Pending, data: &[u8], unique: Option<u64>, now_ns: u64) {
        self.verify(at, pending, data);
        let errand = pending.errand;
        if errand.verb == Verb::Gets {
            let verb = unique.map_or(Verb::Set, Verb::Cas);
            let began_ns = if errand.began_ns == 0 { pending.sent_ns } else { errand.began_ns };
            self.connections[at].errands.push_back(Errand { verb, began_ns, ..errand });
            self.mark(at);
            return;
        }
        self.count(pending, now_ns, |answers| answers.done += 1);
        if errand.counted && self.shared.backend.is_some() {
            self.tally.served(latency_ns(pending, now_ns));
        }
    }

    fn settle_miss(&mut self, at: usize, pending: &Pending, now_ns: u64) {
        self.count(pending, now_ns, |answers| answers.not_done += 1);
        let shared = self.shared.clone();
        let Some(backend) = &shared.backend else { return };
        let errand = pending.errand;
        let under_way = self.fetches.of_key(errand.identity);
        let done_ns = under_way.unwrap_or_else(|| backend.fetch(now_ns, errand.penalty_us));
        if under_way.is_none() {
            let fill = Errand { verb: Verb::Set, kind: Kind::Fill, began_ns: 0, ..errand };
            self.fetches.begin(done_ns, at, fill);
        }
        if errand.counted {
            let counts = &mut self.tally.counts;
            match under_way {
                Some(_) => counts.joined += 1,
                None => {
                    counts.fetches += 1;
                    counts.penalties_us += u64::from(errand.penalty_us);
                }
            }
            let waited_ns = done_ns.saturating_sub(now_ns);
            counts.waited_ns += waited_ns;
            let scale = backend.penalty_scale();
            let penalty_ns = match scale > 0.0 {
                true => waited_ns as f64 / scale,
                false => f64::from(errand.penalty_us) * 1000.0,
            };
            self.tally.served(latency_ns(pending, now_ns) + penalty_ns as u64);
        }
    }

    /// What an acknowledged write says about its key.
    fn note_write(&mut self, pending: &Pending) {
        let (errand, version) = (&pending.errand, pending.version);
        let plain = is_plain(errand.value_bytes);
        let resp = self.shared.wire.protocol == Protocol::Resp;
        match errand.verb {
            Verb::Delete => self.ledger_of_write(errand, |entry| entry.deleted(version)),
            Verb::Append => self.ledger_of_write(errand, |entry| entry.grown(version, plain)),
            Verb::Prepend if !resp => self.ledger_of_write(errand, |entry| entry.grown(version, plain)),
            _ if pending.zero => self.ledger_of_write(errand, |entry| entry.counted(0, version)),
            _ => self.ledger_of_write(errand, |entry| entry.stored(version, plain)),
        }
    }

    fn ledger_of_write(&mut self, errand: &Errand, note: impl FnOnce(&mut super::ledger::Entry)) {
        if self.shared.options.verify != Verify::Off && self.shared.ordered() {
            note(self.ledger.entry(errand.identity));
        }
    }

    fn check_count(&mut self, at: usize, pending: &Pending, number: i128) {
        let errand = &pending.errand;
        if self.shared.options.verify == Verify::Off || !self.shared.ordered() {
            return;
        }
        let before = self.ledger.get(errand.identity).and_then(|entry| entry.number());
        if let Some(before) = before {
            let (one, other) = counts_possible(self.shared.wire.protocol, errand.verb, before);
            if number != one && number != other {
                let why = format!("{number} came, {one} was expected");
                self.wrong(at, errand, Wrong::Number, || why);
            }
        }
        self.ledger.entry(errand.identity).counted(number, pending.version);
    }

    fn verify(&mut self, at: usize, pending: &Pending, data: &[u8]) {
        if self.shared.options.verify == Verify::Off {
            return;
        }
        let errand = &pending.errand;
        let known = if self.shared.ordered() { self.ledger.get(errand.identity).copied() } else { None };
        let checked = self.shared.wire.values.check(data, errand.identity);
        if known.is_some_and(|entry| entry.is_deleted()) {
            return self.wrong(at, errand, Wrong::Stale, || "the key had been deleted".to_owned());
        }
        match checked {
            Checked::Short => self.tally.counts.verified += u64::from(errand.counted),
            Checked::Row(_) if known.is_some_and(|entry| !entry.may_be_row()) => {
                self.wrong(at, errand, Wrong::Length, || "nothing was appended to it".to_owned());
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
                    self.wrong(at, errand, Wrong::Stale, || text);
                } else {
                    self.tally.counts.verified += u64::from(errand.counted);
                }
            }
            Checked::Wrong(flaw) => self.verify_otherwise(at, errand, data, flaw, known),
        }
    }

    /// A value that is none of ours may be a number, or have pieces that cannot be told.
    fn verify_otherwise(
        &mut self,
        at: usize,
        errand: &Errand,
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
                    self.wrong(at, errand, Wrong::Number, || why);
                }
                None => self.tally.counts.verified += u64::from(errand.counted),
            };
        }
        if opaque {
            self.tally.counts.unverified += u64::from(errand.counted);
            return;
        }
        let wrong = match flaw {
            Flaw::Octets => Wrong::Octets,
            Flaw::Length => Wrong::Length,
            Flaw::Key => Wrong::OtherKey,
        };
        let values = &shared.wire.values;
        let differs = values.first_difference(data, errand.identity);
        let at_octet = differs.map_or(String::new(), |octet| format!(", different from octet {octet} on"));
        let text = format!("{} octets{at_octet}: '{}'", data.len(), shown(data));
        if flaw == Flaw::Key || !self.may_be_of_earlier_run(known) {
            return self.wrong(at, errand, wrong, || text);
        }
        let text = self.text_of_wrong(at, errand, &text);
        let all = &mut self.doubts;
        let doubts = if number_of(data).is_some() { &mut all.numbers } else { &mut all.others };
        doubts.faults.add_wrong(wrong, || text);
        doubts.counted += u64::from(errand.counted);
    }

    /// Whether this run has surely not stored what is there; of keys that are not remembered it is not known.
    fn may_be_of_earlier_run(&self, known: Option<super::ledger::Entry>) -> bool {
        self.shared.ordered() && self.ledger.forgotten == 0 && known.is_none_or(|entry| entry.is_unwritten())
    }

    fn wrong(&mut self, at: usize, errand: &Errand, wrong: Wrong, why: impl FnOnce() -> String) {
        let text = self.text_of_wrong(at, errand, &why());
        self.faults.add_wrong(wrong, || text);
    }

    fn text_of_wrong(&self, at: usize, errand: &Errand, why: &str) -> String {
        let (verb, key) = (errand.verb.name(), self.text_of_key(errand));
        format!("{verb} {key} on connection {}: {why}", self.connections[at].number)
    }
}

/// From when the request was due, or sent.
fn latency_ns(pending: &Pending, now_ns: u64) -> u64 {
    let began_ns = if pending.errand.began_ns == 0 { pending.sent_ns } else { pending.errand.began_ns };
    now_ns.saturating_sub(began_ns)
}

/// The number that a counter's value shows; memcached leaves blanks behind a number that became shorter.
fn number_of(data: &[u8]) -> Option<i128> {
    std::str::from_utf8(data).ok()?.trim_end_matches(' ').parse().ok()
}
