//! The formats of traces, by name.

/// The format of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// libCacheSim's oracleGeneral: binary records of 24 bytes.
    OracleGeneral,
    /// libCacheSim's lcs, versions 1 to 8: a header, then binary records. It can be read only.
    Lcs,
    /// Block accesses of virtual machines as VMware's vscsiStats writes them, versions 1 and 2. It can be read only.
    Vscsi,
    /// Twitter's CSV without a header: `timestamp,key,key size,value size,client,op,TTL`.
    Twitter,
    /// Block accesses as in the traces of Microsoft Research Cambridge. It can be read only.
    Msr,
    /// CSV with a header that names the columns, or with columns that the reader names.
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
    pub const ALL: [Format; 9] = [
        Format::OracleGeneral,
        Format::Lcs,
        Format::Vscsi,
        Format::Twitter,
        Format::Msr,
        Format::Csv,
        Format::Keys,
        Format::Watch,
        Format::Monitor,
    ];

    /// Whether traces can be written in this format.
    pub fn can_be_written(self) -> bool {
        matches!(self, Format::OracleGeneral | Format::Twitter | Format::Csv | Format::Keys)
    }

    /// Whether a file is what a server tells of its requests. Sizes and penalties of misses are known only from stores
    /// that follow.
    pub(super) fn is_told(self) -> bool {
        matches!(self, Format::Watch | Format::Monitor)
    }

    /// The names of the formats that `of` admits, for messages.
    pub fn names(of: impl Fn(Format) -> bool) -> String {
        let names: Vec<&str> =
            Format::ALL.into_iter().filter(|format| of(*format)).map(Format::name).collect();
        let Some((last, others)) = names.split_last() else { return String::new() };
        if others.is_empty() { (*last).to_owned() } else { format!("{} or {last}", others.join(", ")) }
    }

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Format::OracleGeneral => "oracle-general",
            Format::Lcs => "lcs",
            Format::Vscsi => "vscsi",
            Format::Twitter => "twitter",
            Format::Msr => "msr",
            Format::Csv => "csv",
            Format::Keys => "keys",
            Format::Watch => "watch",
            Format::Monitor => "monitor",
        }
    }
}
