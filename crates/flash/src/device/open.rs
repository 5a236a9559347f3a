//! Opening files and block devices, and every reason not to, in one line.

use super::handle::{Handle, Layout};
use super::{Device, DeviceOptions, Direct, DiskDevice, PAGE_BYTES, PageBuffer, conventional, zoned};
use rustix::fs::{
    Advice, FallocateFlags, FlockOperation, OFlags, fadvise, fallocate, fcntl_getfl, fcntl_setfl,
};
use rustix::io::Errno;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{ErrorKind, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A device has at least as many zones: two for itself, one that is written, one that is erased.
pub const ZONES_MIN: u32 = 4;
/// Unless a size of zones is chosen there are about as many.
const ZONES_WANTED: u64 = 256;
/// Of zones whose size was not chosen.
const ZONE_BYTES_RANGE: (u64, u64) = (1 << 20, 1 << 30);

/// A device in use is tried for half a second.
const IN_USE_TRIES: u32 = 25;
const IN_USE_INTERVAL: Duration = Duration::from_millis(20);

/// Why a device could not be opened: one line that says what to do.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct OpenError(pub String);

/// Bytes of the zones of a file or block device of `capacity` bytes, where nobody chose.
pub fn default_zone_bytes(capacity: u64) -> u64 {
    let wanted = (capacity / ZONES_WANTED).clamp(ZONE_BYTES_RANGE.0, ZONE_BYTES_RANGE.1);
    1 << wanted.ilog2()
}

/// Opens a regular file, a block device or a zoned block device. A file that is not there, or empty, is made as long as
/// the options say.
///
/// # Errors
/// It is used by somebody else, too short, too small, read-only, of the wrong kind, or the file system has no room.
pub fn open(path: &Path, options: &DeviceOptions) -> Result<Arc<dyn Device>, OpenError> {
    if options.zone_bytes.is_some_and(|bytes| bytes == 0 || !bytes.is_multiple_of(PAGE_BYTES as u64)) {
        return Err(OpenError(format!("zones are of whole pages of {PAGE_BYTES} bytes")));
    }
    let place = Place { path, name: path.display().to_string() };
    let device = match std::fs::metadata(path) {
        Ok(metadata) if metadata.file_type().is_block_device() => place.open_block(&metadata, options)?,
        Ok(metadata) if metadata.is_file() => place.open_file(options, false)?,
        Ok(metadata) if metadata.is_dir() => {
            return Err(place.refuse("is a directory: name a file in it"));
        }
        Ok(_) => return Err(place.refuse("is neither a file nor a block device")),
        Err(error) if error.kind() == ErrorKind::NotFound => place.open_file(options, true)?,
        Err(error) => return Err(place.refuse(&format!("cannot be looked at: {error}"))),
    };
    Ok(Arc::new(device))
}

/// What is to be opened.
pub(super) struct Place<'a> {
    pub(super) path: &'a Path,
    pub(super) name: String,
}

impl Place<'_> {
    pub(super) fn refuse(&self, why: &str) -> OpenError {
        OpenError(format!("{} {why}", self.name))
    }

    fn open_file(&self, options: &DeviceOptions, create: bool) -> Result<DiskDevice, OpenError> {
        if create && options.bytes.is_none() {
            return Err(self.refuse("does not exist: give its size, so that it can be made"));
        }
        let mut file = self.open_with(create, OFlags::empty())?;
        self.lock(&file)?;
        let found = self.length(&mut file)?;
        let bytes = options.bytes.unwrap_or(found);
        if found == 0 && options.bytes.is_none() {
            return Err(self.refuse("is empty: give its size, so that it can be made"));
        }
        let prepared = self.check_size(found, bytes, ", or remove it to have it made anew").and_then(|()| {
            let layout = self.layout(bytes, options.zone_bytes)?;
            self.reserve(&file, found, bytes)?;
            Ok(layout)
        });
        let layout = prepared.inspect_err(|_| {
            // Nothing half made is left behind.
            if found == 0 {
                let _ = file.set_len(0);
                let _ = if create { std::fs::remove_file(self.path) } else { Ok(()) };
            }
        })?;
        let direct = self.go_direct(&file, options.direct)?;
        let handle = Handle::new(file, self.name.clone(), layout, direct, options.reads);
        Ok(conventional::file(handle))
    }

    fn open_block(&self, metadata: &Metadata, options: &DeviceOptions) -> Result<DiskDevice, OpenError> {
        let mut file = self.open_with(false, OFlags::EXCL)?;
        // Opening works, writing would not.
        let folder = sysfs_folder(metadata.rdev());
        if setting(&folder, "ro").as_deref() == Some("1") {
            return Err(self.refuse("is read-only"));
        }
        self.lock(&file)?;
        match rustix::fs::ioctl_blksszget(&file) {
            Ok(block) if block as usize > PAGE_BYTES => {
                return Err(
                    self.refuse(&format!("has blocks of {block} bytes: {PAGE_BYTES} at most can be used"))
                );
            }
            _ => {}
        }
        let queue = queue_folder(&folder);
        if setting(&queue, "zoned").as_deref() == Some("host-managed") {
            if options.direct == Direct::Off {
                return Err(self.refuse("is zoned: it cannot be written through the page cache"));
            }
            self.go_direct(&file, Direct::On)?;
            return zoned::open(self, file, &queue, options);
        }
        let found = self.length(&mut file)?;
        let bytes = options.bytes.unwrap_or(found);
        self.check_size(found, bytes, "")?;
        let layout = self.layout(bytes, options.zone_bytes)?;
        let direct = self.go_direct(&file, options.direct)?;
        let handle = Handle::new(file, self.name.clone(), layout, direct, options.reads);
        Ok(conventional::block(handle))
    }

    fn open_with(&self, create: bool, flags: OFlags) -> Result<File, OpenError> {
        let mut how = OpenOptions::new();
        how.read(true).write(true).create(create).mode(0o600).custom_flags(flags.bits() as i32);
        let opened = patiently(|| how.open(self.path), |error| error.kind() == ErrorKind::ResourceBusy);
        opened.map_err(|error| match error.kind() {
            ErrorKind::PermissionDenied => self.refuse(
                "may not be read and written: check its owner, its permissions and whether it is read-only",
            ),
            ErrorKind::ReadOnlyFilesystem => self.refuse("is read-only"),
            ErrorKind::ResourceBusy => self.refuse("is in use: unmount it, or stop the program that has it"),
            ErrorKind::NotFound => self.refuse("cannot be made: its directory does not exist"),
            _ => self.refuse(&format!("cannot be opened: {error}")),
        })
    }

    fn lock(&self, file: &File) -> Result<(), OpenError> {
        let lock = || rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive);
        patiently(lock, |error| *error == Errno::WOULDBLOCK).map_err(|error| match error {
            Errno::WOULDBLOCK => self.refuse("is in use by another server: each needs its own"),
            error => self.refuse(&format!("cannot be locked: {error}")),
        })
    }

    fn length(&self, file: &mut File) -> Result<u64, OpenError> {
        file.seek(SeekFrom::End(0)).map_err(|error| self.refuse(&format!("does not tell its size: {error}")))
    }

    fn check_size(&self, found: u64, bytes: u64, or_else: &str) -> Result<(), OpenError> {
        if found != 0 && found < bytes {
            return Err(self.refuse(&format!(
                "has {} only, and {} are asked for: ask for less{or_else}",
                size(found),
                size(bytes)
            )));
        }
        Ok(())
    }

    pub(super) fn layout(&self, bytes: u64, zone_bytes: Option<u64>) -> Result<Layout, OpenError> {
        let zone_bytes = zone_bytes.unwrap_or_else(|| default_zone_bytes(bytes));
        let zones = bytes / zone_bytes;
        if zones < u64::from(ZONES_MIN) {
            return Err(self.refuse(&format!(
                "is too small: {} hold {zones} zones of {}, and {ZONES_MIN} are needed",
                size(bytes),
                size(zone_bytes)
            )));
        }
        let zones = u32::try_from(zones).map_err(|_| {
            self.refuse(&format!("has too many zones of {}: make them larger", size(zone_bytes)))
        })?;
        Ok(Layout { zones, stride: zone_bytes, zone_bytes })
    }

    /// Makes the file system promise the space, so that no write fails for want of it later.
    fn reserve(&self, file: &File, found: u64, bytes: u64) -> Result<(), OpenError> {
        // Asked first: some file systems give all they have before they say that it is not enough.
        let has = file.metadata().map_or(0, |metadata| metadata.blocks().saturating_mul(512));
        if self.free().is_some_and(|free| bytes.saturating_sub(has) > free) {
            return Err(self.no_space(bytes));
        }
        match retry(|| fallocate(file, FallocateFlags::empty(), 0, bytes)) {
            Ok(()) => Ok(()),
            Err(Errno::NOSPC | Errno::DQUOT) => Err(self.no_space(bytes)),
            Err(Errno::FBIG) => {
                Err(self.refuse(&format!("cannot be {} long on this file system", size(bytes))))
            }
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                tracing::info!(device = %self.name, "flash: the file system reserves no space, writes may fail later");
                if found >= bytes {
                    return Ok(());
                }
                file.set_len(bytes).map_err(|error| self.refuse(&format!("cannot be made longer: {error}")))
            }
            Err(error) => Err(self.refuse(&format!("cannot be made {} long: {error}", size(bytes)))),
        }
    }

    /// Bytes that the file system has left for us, if it tells.
    fn free(&self) -> Option<u64> {
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let found = rustix::fs::statvfs(folder.unwrap_or(Path::new("."))).ok()?;
        Some(found.f_bavail.saturating_mul(found.f_frsize))
    }

    fn no_space(&self, bytes: u64) -> OpenError {
        let free = self.free().map_or_else(|| "too little".into(), size);
        self.refuse(&format!(
            "needs {}, and the file system has {free} left: ask for less, or free some",
            size(bytes)
        ))
    }

    /// Bypasses the page cache from now on, if that is wanted and works. Returns whether.
    fn go_direct(&self, file: &File, wanted: Direct) -> Result<bool, OpenError> {
        if wanted != Direct::Off {
            match try_direct(file) {
                Ok(()) => return Ok(true),
                Err(error) if wanted == Direct::On => {
                    return Err(self.refuse(&format!("cannot be used without the page cache: {error}")));
                }
                Err(error) => {
                    tracing::info!(device = %self.name, %error, "flash: no direct access, the page cache is used");
                }
            }
        }
        // Reads are of single pages: nothing is gained by reading ahead.
        let _ = fadvise(file, 0, None, Advice::Random);
        Ok(false)
    }
}

/// Sets `O_DIRECT`, and reads a page to see whether that works with our alignment.
fn try_direct(file: &File) -> std::io::Result<()> {
    let flags = fcntl_getfl(file)?;
    fcntl_setfl(file, flags | OFlags::DIRECT)?;
    let read = file.read_at(&mut PageBuffer::new(1), 0);
    if let Err(error) = read {
        fcntl_setfl(file, flags)?;
        return Err(error);
    }
    Ok(())
}

/// Where sysfs tells of a block device.
fn sysfs_folder(device: u64) -> PathBuf {
    let folder = format!("/sys/dev/block/{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    std::fs::canonicalize(&folder).unwrap_or_else(|_| folder.into())
}

/// The queue of a block device; of the whole one, if it is a partition.
fn queue_folder(folder: &Path) -> PathBuf {
    match folder.parent() {
        Some(whole) if folder.join("partition").exists() => whole.join("queue"),
        _ => folder.join("queue"),
    }
}

/// One value of sysfs.
pub(super) fn setting(folder: &Path, name: &str) -> Option<String> {
    Some(std::fs::read_to_string(folder.join(name)).ok()?.trim().to_owned())
}

/// Again while signals come.
pub(super) fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

/// Again for a moment while somebody else has it: of a server that was killed just now, the last reads may be under way.
fn patiently<T, E>(call: impl Fn() -> Result<T, E>, is_in_use: impl Fn(&E) -> bool) -> Result<T, E> {
    for _ in 0..IN_USE_TRIES {
        match call() {
            Err(error) if is_in_use(&error) => std::thread::sleep(IN_USE_INTERVAL),
            result => return result,
        }
    }
    call()
}

/// A size for a person.
pub(super) fn size(bytes: u64) -> String {
    let units = [(1u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.into_iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) if bytes.is_multiple_of(unit) => format!("{} {name}", bytes / unit),
        Some((unit, name)) => format!("{:.1} {name}", bytes as f64 / unit as f64),
        None => format!("{bytes} bytes"),
    }
}
