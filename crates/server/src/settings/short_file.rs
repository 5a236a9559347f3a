//! Files that a person writes: settings, users, certificates, passwords.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

/// The longest such file, in bytes. A device such as `/dev/zero` has no end.
const BYTES_MAX: u64 = 16 << 20;

/// Reads a file of at most 16 MiB.
///
/// # Errors
/// The file cannot be read, or is longer.
pub fn read_short_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > BYTES_MAX {
        true => Err(io::Error::new(ErrorKind::InvalidData, "it is longer than 16 MiB")),
        false => Ok(bytes),
    }
}

/// The same for a text.
///
/// # Errors
/// Those of [`read_short_file`], and bytes that are no UTF-8.
pub fn read_short_text(path: &Path) -> io::Result<String> {
    let no_text = |_| io::Error::new(ErrorKind::InvalidData, "stream did not contain valid UTF-8");
    String::from_utf8(read_short_file(path)?).map_err(no_text)
}
