//! What is fuzzed, and how long an input may be.

/// Longest input a target is given, in bytes: long enough for a value that arrives in pieces.
pub const INPUT_BYTES_MAX: usize = 40_000;

/// What is fuzzed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// The parser: no panic, progress, the same answer for every prefix.
    Parser,
    /// The dispatcher over a small cache: well-formed answers, the same however the input is cut.
    Dispatcher,
    /// Requests that the input chooses, against a naive model of both protocols.
    Structured,
}

impl Target {
    /// All of them.
    pub const ALL: [Target; 3] = [Target::Parser, Target::Dispatcher, Target::Structured];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Target::Parser => "parser",
            Target::Dispatcher => "dispatcher",
            Target::Structured => "structured",
        }
    }

    /// The target of that name.
    pub fn named(name: &str) -> Option<Target> {
        Target::ALL.into_iter().find(|target| target.name() == name)
    }
}
