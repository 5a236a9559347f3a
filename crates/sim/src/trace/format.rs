//! The formats of traces, by name.

/// The format of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// libCacheSim's oracleGeneral: binary records of 24 bytes.
    OracleGeneral,
    /// Twitter's CSV without a header: `timestamp,key,key size,value size,client,op,TTL`.
    Twitter,
    /// CSV with a header that names the columns.
    Csv,
    /// One key per line.
    Keys,
    /// The lines of memcached's `watch fetchers mutations deletions`. It can be read only.
    Watch,
    /// The lines of Redis's `MONITOR`. It can be read only.
    Monitor,
}

impl Format {
    /// All formats.
    pub const ALL: [Format; 6] =
        [Format::OracleGeneral, Format::Twitter, Format::Csv, Format::Keys, Format::Watch, Format::Monitor];

    /// Whether traces can be written in this format.
    pub fn can_be_written(self) -> bool {
        !matches!(self, Format::Watch | Format::Monitor)
    }

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Format::OracleGeneral => "oracle-general",
            Format::Twitter => "twitter",
            Format::Csv => "csv",
            Format::Keys => "keys",
            Format::Watch => "watch",
            Format::Monitor => "monitor",
        }
    }
}
