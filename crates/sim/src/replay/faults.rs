//! What went wrong: counted by kind, and the first few of each kind in full.

use std::collections::BTreeMap;

/// How many of a kind are shown in full.
const EXAMPLES_MAX: usize = 5;
/// How many different error texts are kept apart.
const TEXTS_MAX: usize = 200;
/// How much of foreign bytes is shown.
const SHOWN_BYTES_MAX: usize = 80;

/// How a reply that is well-formed is wrong all the same.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Wrong {
    /// Bytes of a value differ from what was stored.
    Octets,
    /// A value is longer or shorter than what was stored.
    Length,
    /// The value of another key.
    OtherKey,
    /// A value older than the last acknowledged write or delete of its key.
    Stale,
    /// A counter's number does not follow from the one before.
    Number,
}

impl Wrong {
    /// How a report names it.
    pub fn name(self) -> &'static str {
        match self {
            Wrong::Octets => "wrong octets",
            Wrong::Length => "wrong length",
            Wrong::OtherKey => "another key's value",
            Wrong::Stale => "stale value",
            Wrong::Number => "wrong number",
        }
    }
}

/// What happened to a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Mishap {
    /// Nobody accepts, or nothing is there.
    NotConnected,
    /// The server closed it.
    Closed,
    /// The server or the network reset it.
    Reset,
    /// A request was not answered in time.
    Timeout,
    /// What came is no reply of the protocol.
    Garbage,
    /// A reply came that the request cannot have.
    Impossible,
    /// The login, or the choice of a database, was refused.
    Login,
}

impl Mishap {
    /// How a report names it.
    pub fn name(self) -> &'static str {
        match self {
            Mishap::NotConnected => "could not connect",
            Mishap::Closed => "closed by the server",
            Mishap::Reset => "reset",
            Mishap::Timeout => "no reply in time",
            Mishap::Garbage => "garbage came",
            Mishap::Impossible => "an impossible reply came",
            Mishap::Login => "login refused",
        }
    }
}

/// Everything that went wrong.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Wrong replies.
    pub wrong: BTreeMap<Wrong, u64>,
    /// Error replies by text; digits are written as `#`.
    pub errors: BTreeMap<String, u64>,
    /// Connections that were lost, or not made.
    pub mishaps: BTreeMap<Mishap, u64>,
    /// Requests in flight on connections that were lost.
    pub lost: u64,
    /// The first few in full: (kind, text).
    pub examples: Vec<(&'static str, String)>,
}

impl Faults {
    /// Whether nothing went wrong.
    pub fn is_empty(&self) -> bool {
        self.wrong.is_empty() && self.errors.is_empty() && self.mishaps.is_empty() && self.lost == 0
    }

    /// A wrong reply; `text` is asked for only if it will be shown.
    pub(super) fn add_wrong(&mut self, wrong: Wrong, text: impl FnOnce() -> String) {
        *self.wrong.entry(wrong).or_default() += 1;
        self.example(wrong.name(), text);
    }

    /// An error reply; `text` is asked for only if it will be shown.
    pub(super) fn add_error(&mut self, line: &[u8], text: impl FnOnce() -> String) {
        let mut name = error_name(line);
        if !self.errors.contains_key(&name) && self.errors.len() >= TEXTS_MAX {
            name = "other texts".to_owned();
        }
        *self.errors.entry(name).or_default() += 1;
        self.example("error reply", text);
    }

    /// A connection was lost with so many requests in flight.
    pub(super) fn add_mishap(&mut self, mishap: Mishap, lost: u64, text: impl FnOnce() -> String) {
        *self.mishaps.entry(mishap).or_default() += 1;
        self.lost += lost;
        self.example(mishap.name(), text);
    }

    fn example(&mut self, kind: &'static str, text: impl FnOnce() -> String) {
        if self.examples.iter().filter(|(known, _)| *known == kind).count() < EXAMPLES_MAX {
            self.examples.push((kind, text()));
        }
    }

    /// Adds what another thread saw.
    pub(super) fn merge(&mut self, other: Faults) {
        other.wrong.into_iter().for_each(|(wrong, count)| *self.wrong.entry(wrong).or_default() += count);
        other.errors.into_iter().for_each(|(text, count)| *self.errors.entry(text).or_default() += count);
        other.mishaps.into_iter().for_each(|(what, count)| *self.mishaps.entry(what).or_default() += count);
        self.lost += other.lost;
        other.examples.into_iter().for_each(|(kind, text)| self.example(kind, || text));
    }

    /// One line: how many of what.
    pub(super) fn summary(&self) -> String {
        let mut parts: Vec<String> = Vec::new();
        let mut add = |name: &str, count: u64| parts.push(format!("{count} x {name}"));
        self.wrong.iter().for_each(|(wrong, count)| add(wrong.name(), *count));
        self.errors.iter().for_each(|(text, count)| add(text, *count));
        self.mishaps.iter().for_each(|(mishap, count)| add(mishap.name(), *count));
        if self.lost > 0 {
            add("request lost", self.lost);
        }
        parts.join(", ")
    }
}

/// Values that are wrong unless an earlier run counted with their keys, or appended to them. This run's source tells at its
/// end whether it does such things at all.
#[derive(Clone, Debug, Default)]
pub(super) struct Doubts {
    /// What is wrong then.
    pub(super) faults: Faults,
    /// How many of them are of the measured time.
    pub(super) counted: u64,
}

impl Doubts {
    /// Adds what another thread saw.
    pub(super) fn merge(&mut self, other: Doubts) {
        self.faults.merge(other.faults);
        self.counted += other.counted;
    }
}

/// The doubts of one thread, or of all.
#[derive(Clone, Debug, Default)]
pub(super) struct AllDoubts {
    /// Values that are numbers.
    pub(super) numbers: Doubts,
    /// Other values.
    pub(super) others: Doubts,
}

/// The text by which errors are counted: runs of digits are `#`, for slots and addresses differ.
fn error_name(line: &[u8]) -> String {
    let mut name = String::new();
    for character in shown(line).chars() {
        match character {
            '0'..='9' if name.ends_with('#') => {}
            '0'..='9' => name.push('#'),
            other => name.push(other),
        }
    }
    name
}

/// Foreign bytes for people: escaped, and only the first of them.
pub(super) fn shown(octets: &[u8]) -> String {
    let first = &octets[..octets.len().min(SHOWN_BYTES_MAX)];
    let more = if octets.len() > first.len() { "..." } else { "" };
    format!("{}{more}", first.escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_counted_by_text_without_digits() {
        let mut faults = Faults::default();
        for slot in 0..7 {
            let line = format!("-MOVED {slot}{slot} 10.0.0.{slot}:6379");
            faults.add_error(line.as_bytes(), || line.clone());
        }
        assert_eq!(faults.errors.into_iter().collect::<Vec<_>>(), [("-MOVED # #.#.#.#:#".to_owned(), 7)]);
        assert_eq!(faults.examples.len(), EXAMPLES_MAX);
    }

    #[test]
    fn foreign_octets_are_escaped_and_cut() {
        assert_eq!(shown(b"a\r\n\xff"), "a\\r\\n\\xff");
        assert_eq!(shown(&[b'x'; 90]), format!("{}...", "x".repeat(80)));
    }

    #[test]
    fn merging_adds_counts_and_keeps_the_first_examples() {
        let one = || {
            let mut faults = Faults::default();
            for _ in 0..4 {
                faults.add_wrong(Wrong::Stale, || "text".to_owned());
            }
            faults.add_mishap(Mishap::Closed, 3, String::new);
            faults
        };
        let mut both = one();
        both.merge(one());
        assert_eq!((both.wrong[&Wrong::Stale], both.mishaps[&Mishap::Closed], both.lost), (8, 2, 6));
        assert_eq!(both.examples.iter().filter(|(kind, _)| *kind == "stale value").count(), EXAMPLES_MAX);
        assert_eq!(both.summary(), "8 x stale value, 2 x closed by the server, 6 x request lost");
    }
}
