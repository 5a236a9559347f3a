//! The formats of traces, by name.

/// How a trace is written down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// libCacheSim's oracleGeneral: 24-octet records.
    OracleGeneral,
    /// Twitter's: `timestamp,key,key size,value size,client,op,TTL`, without a header.
    Twitter,
    /// A header names the columns.
    Csv,
    /// One key in a line.
    Keys,
}

impl Format {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Format::OracleGeneral => "oracle-general",
            Format::Twitter => "twitter",
            Format::Csv => "csv",
            Format::Keys => "keys",
        }
    }
}
