//! The table of all settings and flags. A row ([`Row`]) says everything about one of them. From it come the command
//! line, the settings file, memcached's `-o` list, the helps, the manual page, `CONFIG`, the reload at SIGHUP,
//! `larder check-config` and the table in `docs/operate.md`. A new setting is one more row, and a field in `Settings`.

mod compatible;
mod flash;
mod limits;
mod memory;
mod network;
mod process;
mod protocol;
mod section;
mod tls;

#[cfg(test)]
mod tests;

use super::row::{Change, Row, Topic};

/// In the order of the help.
static TABLE: [&[Row]; 9] = [
    network::ROWS,
    memory::ROWS,
    flash::ROWS,
    limits::ROWS,
    protocol::ROWS,
    tls::ROWS,
    process::ROWS,
    compatible::ROWS,
    section::ROWS,
];

/// All rows.
pub fn rows() -> impl Iterator<Item = &'static Row> {
    TABLE.into_iter().flatten()
}

/// The flags of the command line.
pub fn flags() -> impl Iterator<Item = &'static Row> {
    rows().filter(|row| row.is_flag())
}

/// The keys of `[flash.tuning]` of the settings file.
pub fn tuning() -> impl Iterator<Item = &'static Row> {
    rows().filter(|row| row.topic == Topic::Tuning)
}

/// The rows that have a value of their own.
pub fn settings() -> impl Iterator<Item = &'static Row> {
    rows().filter(|row| !matches!(row.change, Change::NoSetting))
}

/// The row of this name.
pub fn by_name(name: &str) -> Option<&'static Row> {
    rows().find(|row| row.name == name)
}

/// The flag with this name in memcached's `-o` list.
pub fn by_option(name: &str) -> Option<&'static Row> {
    rows().find(|row| row.option == Some(name))
}
