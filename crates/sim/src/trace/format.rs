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
}

impl Format {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Format::OracleGeneral => "oracle-general",
            Format::Twitter => "twitter",
            Format::Csv => "csv",
            Format::Keys => "keys",
        }
    }
}
