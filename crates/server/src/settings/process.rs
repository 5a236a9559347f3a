//! The process around a server: its CPUs, its log, and options of memcached that change nothing.

use super::names::Names;

/// Which CPU each worker stays on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PinCpus {
    /// On any CPU, as the scheduler decides.
    Off,
    /// Worker `n` on the `n`-th CPU that this process may use. With more workers than CPUs, the CPUs are used again.
    Auto,
    /// Worker `n` on the `n`-th of these CPUs. There is at least one for each worker.
    List(Vec<u32>),
}

/// How a log line is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// One short line, for people.
    Compact,
    /// One JSON object a line, for machines.
    Json,
}

/// The names of the formats.
pub(super) const LOG_FORMAT: Names<LogFormat> =
    Names(&[("compact", LogFormat::Compact), ("json", LogFormat::Json)]);

/// An option of memcached that was given and has no effect here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WithoutEffect {
    /// Its name in memcached.
    pub name: String,
    /// Its value, if it had one.
    pub value: Option<String>,
}
