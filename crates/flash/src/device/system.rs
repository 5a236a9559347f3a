//! Small requests to the operating system that several kinds of devices need.

use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// Repeats a system call that a signal interrupted.
pub(super) fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

/// The folder in sysfs that describes a block device.
pub(super) fn sysfs_folder(device: u64) -> PathBuf {
    let folder = format!("/sys/dev/block/{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    std::fs::canonicalize(&folder).unwrap_or_else(|_| folder.into())
}

/// The folder `queue` of a block device. A partition has none; the whole disk has it.
pub(super) fn queue_folder(folder: &Path) -> PathBuf {
    match folder.parent() {
        Some(whole) if folder.join("partition").exists() => whole.join("queue"),
        _ => folder.join("queue"),
    }
}

/// One value of sysfs, without white space around it.
pub(super) fn sysfs_value(folder: &Path, name: &str) -> Option<String> {
    Some(std::fs::read_to_string(folder.join(name)).ok()?.trim().to_owned())
}
