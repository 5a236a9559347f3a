//! Everything that went wrong: counted by kind, with the first few of each kind in full.

use std::collections::BTreeMap;

/// Examples per kind that are shown in full.
const EXAMPLES_MAX: usize = 5;
/// Different error texts that are counted separately.
const TEXTS_MAX: usize = 200;
/// Maximum length of quoted bytes.
const SHOWN_BYTES_MAX: usize = 80;

/// The way in which a well-formed reply is wrong.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Wrong {
    /// The bytes of a value differ from those stored.
    Octets,
    /// A value is longer or shorter than the one stored.
    Length,
    /// The value of another key.
    OtherKey,
    /// A value is older than the last acknowledged write or delete of its key.
    Stale,
    /// The number of a counter does not follow from the one before.
    Number,
}

impl Wrong {
    /// The name in a report.
    pub fn name(self) -> &'static str {
        match self {
            Wrong::Octets => "wrong bytes",
            Wrong::Length => "wrong length",
            Wrong::OtherKey => "another key's value",
            Wrong::Stale => "stale value",
            Wrong::Number => "wrong number",
        }
    }
}

/// A failure of a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Mishap {
    /// The server does not exist or does not accept.
    NotConnected,
    /// The server closed the connection.
    Closed,
    /// The server or the network reset the connection.
    Reset,
    /// A request was not answered in time.
    Timeout,
    /// The received bytes are not a reply of the protocol.
    Garbage,
    /// A reply that is impossible for its request.
    Impossible,
    /// The login, or the selection of a database, was refused.
    Login,
}

impl Mishap {
    /// The name in a report.
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
    /// Error replies by text, with digits written as `#`.
    pub errors: BTreeMap<String, u64>,
    /// Connections that were lost or could not be made.
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

    /// Records a wrong reply. `text` is evaluated only if it will be shown.
    pub(super) fn add_wrong(&mut self, wrong: Wrong, text: impl FnOnce() -> String) {
        *self.wrong.entry(wrong).or_default() += 1;
        self.example(wrong.name(), text);
    }

    /// Records an error reply. `text` is evaluated only if it will be shown.
    pub(super) fn add_error(&mut self, line: &[u8], text: impl FnOnce() -> String) {
        let mut name = error_name(line);
        if !self.errors.contains_key(&name) && self.errors.len() >= TEXTS_MAX {
            name = "other texts".to_owned();
        }
        *self.errors.entry(name).or_default() += 1;
        self.example("error reply", text);
    }

    /// Records a lost connection with this many requests in flight.
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

    /// Adds the faults of another thread.
    pub(super) fn merge(&mut self, other: Faults) {
        other.wrong.into_iter().for_each(|(wrong, count)| *self.wrong.entry(wrong).or_default() += count);
        other.errors.into_iter().for_each(|(text, count)| *self.errors.entry(text).or_default() += count);
        other.mishaps.into_iter().for_each(|(what, count)| *self.mishaps.entry(what).or_default() += count);
        self.lost += other.lost;
        other.examples.into_iter().for_each(|(kind, text)| self.example(kind, || text));
    }

    /// One line with the number of faults of each kind.
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

/// Values that are wrong unless an earlier run changed their keys by counting or appending. The end of the run tells
/// whether this run's source contains such commands at all.
#[derive(Clone, Debug, Default)]
pub(super) struct Doubts {
    /// The faults, if the values are wrong.
    pub(super) faults: Faults,
    /// How many of them belong to the measured time.
    pub(super) counted: u64,
}

impl Doubts {
    /// Adds the doubts of another thread.
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

/// The text under which an error is counted. Runs of digits become `#`, because slots and addresses differ.
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

/// Quotes received bytes: escaped and truncated.
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
