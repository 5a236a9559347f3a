//! The fuzz targets, and the maximum length of an input.

/// Maximum length of an input in bytes: long enough for a value that arrives in pieces.
pub const INPUT_BYTES_MAX: usize = 40_000;

/// A fuzz target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// The parser: it must not panic, must make progress, and must give the same answer for every prefix.
    Parser,
    /// The dispatcher over a small cache: answers must be well-formed and independent of how the input is cut.
    Dispatcher,
    /// Requests chosen by the input, compared with a simple model of the classic and the meta commands.
    Structured,
    /// The binary protocol: its parser, its dispatcher, and requests compared with a slow twin.
    Binary,
    /// RESP: its parser, its dispatcher, and requests compared with a slow twin.
    Resp,
    /// Compressed values: what comes of damaged ones is as long as it should be, or nothing.
    Compressed,
}

impl Target {
    /// All targets.
    pub const ALL: [Target; 6] = [
        Target::Parser,
        Target::Dispatcher,
        Target::Structured,
        Target::Binary,
        Target::Resp,
        Target::Compressed,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Target::Parser => "parser",
            Target::Dispatcher => "dispatcher",
            Target::Structured => "structured",
            Target::Binary => "binary",
            Target::Resp => "resp",
            Target::Compressed => "compressed",
        }
    }

    /// The target with that name.
    pub fn named(name: &str) -> Option<Target> {
        Target::ALL.into_iter().find(|target| target.name() == name)
    }
}
