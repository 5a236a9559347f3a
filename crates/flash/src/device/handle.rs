use super::{DeviceCounters, DeviceError, PAGE_BYTES, PageBuffer, ZoneId};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::time::{Duration, Instant};

/// Pages copied at a time for a caller whose memory is not aligned.
const BOUNCE_PAGES: usize = 256;
/// The log gets at most one warning a second about failures. The counters count all of them.
const WARNING_INTERVAL: Duration = Duration::from_secs(1);
/// Bytes of one write at most, on devices that say nothing of their own.
const WRITE_BYTES_MAX: usize = 4 << 20;

/// An open file or block device, and its counters. Every operation in flight holds a reference to it.
pub(super) struct Handle {
    pub(super) file: File,
    /// The name for messages.
    pub(super) name: String,
    pub(super) layout: Layout,
    pub(super) direct: bool,
    write_bytes_max: usize,
    pub(super) counters: Counters,
    warned: Mutex<Option<Instant>>,
    /// An `fdatasync` has failed.
    sync_failed: AtomicBool,
}

/// The positions of the zones in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Layout {
    pub(super) zones: u32,
    /// Bytes from the beginning of one zone to the beginning of the next.
    pub(super) stride: u64,
    /// Bytes of each zone that can be written.
    pub(super) zone_bytes: u64,
}

impl Layout {
    /// The position in the file at which a zone begins.
    pub(super) fn start(&self, zone: ZoneId) -> Result<u64, DeviceError> {
        if zone.0 >= self.zones {
            return Err(DeviceError::State { zone, what: "there is no such zone" });
        }
        Ok(u64::from(zone.0) * self.stride)
    }

    /// The position in the file of `bytes` bytes at `offset` of a zone.
    pub(super) fn position(&self, zone: ZoneId, offset: u64, bytes: usize) -> Result<u64, DeviceError> {
        let start = self.start(zone)?;
        if !offset.is_multiple_of(PAGE_BYTES as u64) {
            return Err(DeviceError::State { zone, what: "not at the beginning of a page" });
        }
        match offset.checked_add(bytes as u64) {
            Some(end) if end <= self.zone_bytes => Ok(start + offset),
            _ => Err(DeviceError::State { zone, what: "it ends before that" }),
        }
    }
}

impl Drop for Handle {
    /// Gives the lock of the file back. No operation is under way any more; but the kernel may hold the file open for a
    /// while after the last ring is gone, and the lock with it, so that the next server would find the device in use.
    fn drop(&mut self) {
        if let Err(error) = flock(&self.file, FlockOperation::Unlock) {
            tracing::debug!(device = %self.name, %error, "flash: the lock is left to the kernel");
        }
    }
}

/// Counts the operations of a device from all threads.
#[derive(Default)]
pub(super) struct Counters {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    appends: AtomicU64,
    append_bytes: AtomicU64,
    resets: AtomicU64,
    errors: AtomicU64,
}

impl Counters {
    /// Counts reads, and how many bytes they were together.
    pub(super) fn read(&self, reads: u64, bytes: u64) {
        self.reads.fetch_add(reads, Relaxed);
        self.read_bytes.fetch_add(bytes, Relaxed);
    }

    fn append(&self, bytes: usize) {
        self.appends.fetch_add(1, Relaxed);
        self.append_bytes.fetch_add(bytes as u64, Relaxed);
    }

    /// Counts a reset of a zone.
    pub(super) fn reset(&self) {
        self.resets.fetch_add(1, Relaxed);
    }

    /// The values now.
    pub(super) fn snapshot(&self) -> DeviceCounters {
        DeviceCounters {
            reads: self.reads.load(Relaxed),
            read_bytes: self.read_bytes.load(Relaxed),
            appends: self.appends.load(Relaxed),
            append_bytes: self.append_bytes.load(Relaxed),
            resets: self.resets.load(Relaxed),
            errors: self.errors.load(Relaxed),
            media_bytes: None,
            erases: None,
        }
    }
}

impl Handle {
    /// `direct` says that `file` bypasses the page cache.
    pub(super) fn new(file: File, name: String, layout: Layout, direct: bool) -> Handle {
        let (counters, warned) = (Counters::default(), Mutex::new(None));
        let (write_bytes_max, sync_failed) = (WRITE_BYTES_MAX, AtomicBool::new(false));
        Handle { file, name, layout, direct, write_bytes_max, counters, warned, sync_failed }
    }

    /// Limits the bytes of one write.
    pub(super) fn with_write_bytes_max(mut self, write_bytes_max: usize) -> Handle {
        self.write_bytes_max = write_bytes_max;
        self
    }

    /// Counts a failure of the device, writes a warning, and returns the error for the caller.
    pub(super) fn failed(&self, what: &str, zone: Option<ZoneId>, error: std::io::Error) -> DeviceError {
        self.counters.errors.fetch_add(1, Relaxed);
        let mut last = self.warned.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if last.is_none_or(|at| at.elapsed() >= WARNING_INTERVAL) {
            *last = Some(Instant::now());
            let errors = self.counters.errors.load(Relaxed);
            tracing::warn!(device = %self.name, zone = zone.map(|zone| zone.0), errors, %error, "flash: {what} failed");
        }
        drop(last);
        let code = error.raw_os_error();
        if code == Some(Errno::NODEV.raw_os_error()) || code == Some(Errno::NXIO.raw_os_error()) {
            return DeviceError::Gone;
        }
        DeviceError::io(&format!("{}: {what}", self.name), error)
    }

    /// Reads whole pages, in as many system calls as it takes.
    pub(super) fn read(&self, zone: ZoneId, offset: u64, into: &mut PageBuffer) -> Result<(), DeviceError> {
        let position = self.layout.position(zone, offset, into.len())?;
        match self.file.read_exact_at(into, position) {
            Ok(()) => {
                self.counters.read(1, into.len() as u64);
                Ok(())
            }
            Err(error) => Err(self.failed("reading", Some(zone), error)),
        }
    }

    /// Writes whole pages at a position of the file. After an error some of them may be written.
    pub(super) fn write(&self, zone: ZoneId, position: u64, pages: &[u8]) -> Result<(), DeviceError> {
        let result = if self.direct && pages.as_ptr().align_offset(PAGE_BYTES) != 0 {
            self.write_unaligned(position, pages)
        } else {
            self.write_aligned(position, pages)
        };
        match result {
            Ok(()) => {
                self.counters.append(pages.len());
                Ok(())
            }
            Err(error) => Err(self.failed("writing", Some(zone), error)),
        }
    }

    /// `write_all_at` continues after a short write and after `EINTR`.
    fn write_aligned(&self, mut position: u64, pages: &[u8]) -> std::io::Result<()> {
        for part in pages.chunks(self.write_bytes_max) {
            self.file.write_all_at(part, position)?;
            position += part.len() as u64;
        }
        Ok(())
    }

    fn write_unaligned(&self, mut position: u64, pages: &[u8]) -> std::io::Result<()> {
        let mut buffer = PageBuffer::new((pages.len() / PAGE_BYTES).clamp(1, BOUNCE_PAGES));
        for part in pages.chunks(buffer.len()) {
            buffer[..part.len()].copy_from_slice(part);
            self.write_aligned(position, &buffer[..part.len()])?;
            position += part.len() as u64;
        }
        Ok(())
    }

    /// Makes durable what was written.
    ///
    /// # Errors
    /// `fdatasync` fails, or has failed before: the kernel reports what it could not write once, forgets it, and says
    /// of the next `fdatasync` that all is well (Rebello et al., "Can applications recover from fsync failures?",
    /// USENIX ATC 2020).
    pub(super) fn sync(&self) -> Result<(), DeviceError> {
        let result = self.file.sync_data().map_err(|error| {
            self.sync_failed.store(true, SeqCst);
            self.failed("fdatasync", None, error)
        });
        if result.is_ok() && self.sync_failed.load(SeqCst) {
            let what =
                format!("{}: an earlier fdatasync failed, and what was written may be lost", self.name);
            return Err(DeviceError::Io { errno: None, what });
        }
        result
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_lock_goes_with_the_handle_though_the_kernel_still_has_the_file() {
        let path = tempfile::NamedTempFile::new().expect("a file");
        let open = || File::options().read(true).write(true).open(&path).expect("the file");
        let lock = |file: &File| flock(file, FlockOperation::NonBlockingLockExclusive);
        let file = open();
        lock(&file).expect("nobody else has it");
        // As a ring that is being taken down holds it.
        let _held = file.try_clone().expect("a second descriptor");
        let layout = Layout { zones: 1, stride: PAGE_BYTES as u64, zone_bytes: PAGE_BYTES as u64 };
        let handle = Handle::new(file, "flash".into(), layout, false);
        let next = open();
        assert!(lock(&next).is_err(), "it is in use");
        drop(handle);
        lock(&next).expect("it is free");
    }

    #[test]
    fn after_a_failed_sync_none_succeeds() {
        let layout = Layout { zones: 1, stride: PAGE_BYTES as u64, zone_bytes: PAGE_BYTES as u64 };
        let (_reader, pipe) = std::io::pipe().expect("a pipe");
        let mut handle =
            Handle::new(File::from(std::os::fd::OwnedFd::from(pipe)), "flash".into(), layout, false);
        assert!(handle.sync().is_err(), "pipes have nothing to sync");
        // A file in its stead would sync.
        handle.file = tempfile::tempfile().expect("a file");
        let error = handle.sync().expect_err("what was written before may be lost");
        assert!(error.to_string().contains("an earlier fdatasync failed"), "{error}");
    }
}
