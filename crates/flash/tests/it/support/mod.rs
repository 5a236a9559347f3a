//! Files, loop devices and file systems for tests.

pub(crate) mod history;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// A folder on the file system of the build. A file system in memory would not support `O_DIRECT`.
pub(crate) fn folder() -> TempDir {
    TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder for the test")
}

/// A loop device over a file. It is detached when it is dropped.
pub(crate) struct Loop {
    _folder: Option<TempDir>,
    backing: PathBuf,
    path: PathBuf,
}

impl Loop {
    /// A loop device; `None`, after a line that says why, if the system gives none.
    pub(crate) fn new(bytes: u64) -> Option<Loop> {
        Loop::with(bytes, &["--direct-io=on"])
    }

    /// A loop device with these options for `losetup`.
    pub(crate) fn with(bytes: u64, options: &[&str]) -> Option<Loop> {
        let folder = folder();
        let mut made = Loop::make(&folder.path().join("loop"), bytes, options)?;
        made._folder = Some(folder);
        Some(made)
    }

    /// A loop device over a sparse file that is created at `backing`.
    pub(crate) fn on(backing: &Path, bytes: u64) -> Option<Loop> {
        Loop::make(backing, bytes, &[])
    }

    fn make(backing: &Path, bytes: u64, options: &[&str]) -> Option<Loop> {
        let file = std::fs::File::create(backing).expect("a file");
        file.set_len(bytes).expect("a length");
        let said =
            output("losetup", Command::new("losetup").args(["--find", "--show"]).args(options).arg(backing))?;
        Some(Loop { _folder: None, backing: backing.into(), path: said.into() })
    }

    /// The path of the device.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Number of sectors of 512 bytes that the file below takes.
    pub(crate) fn blocks(&self) -> u64 {
        let file = std::fs::File::open(&self.backing).expect("the file below");
        file.sync_all().expect("a sync");
        file.metadata().expect("its metadata").blocks()
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.path).status();
    }
}

/// A small file system in memory.
pub(crate) struct Small(TempDir);

impl Small {
    /// A file system of `bytes` bytes; `None`, after a line that says why, if the system mounts none.
    pub(crate) fn new(bytes: u64) -> Option<Small> {
        let folder = folder();
        let options = format!("size={bytes}");
        output(
            "mount",
            Command::new("mount").args(["-t", "tmpfs", "-o", &options, "none"]).arg(folder.path()),
        )?;
        Some(Small(folder))
    }

    /// The folder where it is mounted.
    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0.path()).status();
    }
}

/// A new file system on a block device, mounted.
pub(crate) struct Mounted(TempDir);

impl Mounted {
    /// A file system on `device`; `None`, after a line that says why, if it cannot be made or mounted.
    pub(crate) fn new(device: &Path) -> Option<Mounted> {
        let folder = folder();
        output("mkfs.ext4", Command::new("mkfs.ext4").arg("-q").arg(device))?;
        output("mount", Command::new("mount").arg(device).arg(folder.path()))?;
        Some(Mounted(folder))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

/// The output of a command; `None`, after a line that says what is skipped, if it fails.
fn output(name: &str, command: &mut Command) -> Option<String> {
    match command.stderr(Stdio::piped()).output() {
        Ok(output) if output.status.success() => Some(String::from_utf8_lossy(&output.stdout).trim().into()),
        Ok(output) => {
            println!("skip: {name}: {}", String::from_utf8_lossy(&output.stderr).trim());
            None
        }
        Err(error) => {
            println!("skip: {name}: {error}");
            None
        }
    }
}
