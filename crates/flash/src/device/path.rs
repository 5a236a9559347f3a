use super::OpenError;
use std::path::Path;

/// The path of the device that is being opened, and the name that error messages begin with.
pub(super) struct DevicePath<'a> {
    pub(super) path: &'a Path,
    pub(super) name: String,
}

impl DevicePath<'_> {
    /// The path of a file or block device.
    pub(super) fn new(path: &Path) -> DevicePath<'_> {
        DevicePath { path, name: path.display().to_string() }
    }

    /// An error that continues the name with `why`: `/dev/sdb` + `is read-only`.
    pub(super) fn refuse(&self, why: &str) -> OpenError {
        OpenError(format!("{} {why}", self.name))
    }
}

/// A number of bytes for a person: `1.5 MiB`.
pub(super) fn human_size(bytes: u64) -> String {
    let units = [(1u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.into_iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) if bytes.is_multiple_of(unit) => format!("{} {name}", bytes / unit),
        Some((unit, name)) => format!("{:.1} {name}", bytes as f64 / unit as f64),
        None => format!("{bytes} bytes"),
    }
}
