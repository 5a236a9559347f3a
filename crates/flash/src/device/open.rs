//! Opens files and block devices. Every reason not to open one is an error of one line that says what to do.

use super::handle::{Handle, Layout};
use super::path::{DevicePath, human_size};
use super::system::{queue_folder, retry, sysfs_folder, sysfs_value};
use super::{
    Device, DeviceOptions, Direct, DiskDevice, OpenError, PAGE_BYTES, PageBuffer, ReadsBy, ZONES_MIN,
    conventional, zoned,
};
use rustix::fs::{
    Advice, FallocateFlags, FlockOperation, OFlags, fadvise, fallocate, fcntl_getfl, fcntl_setfl,
};
use rustix::io::Errno;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{ErrorKind, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Number of zones that the default size of a zone aims at.
const ZONES_WANTED: u64 = 256;
/// Smallest and largest default size of a zone, bytes.
const ZONE_BYTES_RANGE: (u64, u64) = (1 << 20, 1 << 30);

/// How often a device that is in use is tried again, and how long after the last try: three seconds in all. A
/// process that was killed has its files until the kernel has taken down its rings.
const IN_USE_TRIES: u32 = 150;
const IN_USE_INTERVAL: Duration = Duration::from_millis(20);

/// The default size of a zone, in bytes, of a file or block device of `capacity` bytes.
pub fn default_zone_bytes(capacity: u64) -> u64 {
    let wanted = (capacity / ZONES_WANTED).clamp(ZONE_BYTES_RANGE.0, ZONE_BYTES_RANGE.1);
    1 << wanted.ilog2()
}

/// Opens a regular file, a block device or a zoned block device. A file that does not exist, or is empty, is created
/// with the length that the options give.
///
/// # Errors
/// The device is in use, too short, too small, read-only or of the wrong kind, or the file system has no space.
pub fn open(path: &Path, options: &DeviceOptions) -> Result<Arc<dyn Device>, OpenError> {
    open_reading_by(path, options, ReadsBy::Auto)
}

/// Whether what is at `path` can be a device, as far as that can be known without opening it. A path at which nothing
/// is can.
///
/// # Errors
/// As [`open`].
pub fn check(path: &Path, options: &DeviceOptions) -> Result<(), OpenError> {
    let opening = Opening { named: DevicePath::new(path), options: *options, reads: ReadsBy::Auto };
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => opening.file_layout(metadata.len()).map(drop),
        Ok(metadata) if metadata.file_type().is_block_device() => Ok(()),
        Ok(metadata) => Err(opening.no_device(&metadata)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(opening.named.refuse(&format!("cannot be looked at: {error}"))),
    }
}

/// [`open`] with a choice of how reads are handed to the system, for tests.
///
/// # Errors
/// As [`open`].
#[doc(hidden)]
pub fn open_reading_by(
    path: &Path,
    options: &DeviceOptions,
    reads: ReadsBy,
) -> Result<Arc<dyn Device>, OpenError> {
    if options.zone_bytes.is_some_and(|bytes| bytes == 0 || !bytes.is_multiple_of(PAGE_BYTES as u64)) {
        return Err(OpenError(format!("zones are of whole pages of {PAGE_BYTES} bytes")));
    }
    let opening = Opening { named: DevicePath::new(path), options: *options, reads };
    let device = match std::fs::metadata(path) {
        Ok(metadata) if metadata.file_type().is_block_device() => opening.open_block(&metadata)?,
        Ok(metadata) if metadata.is_file() => opening.open_file(false)?,
        Ok(metadata) => return Err(opening.no_device(&metadata)),
        Err(error) if error.kind() == ErrorKind::NotFound => opening.open_file(true)?,
        Err(error) => return Err(opening.named.refuse(&format!("cannot be looked at: {error}"))),
    };
    Ok(Arc::new(device))
}

/// A device that is being opened.
struct Opening<'a> {
    named: DevicePath<'a>,
    options: DeviceOptions,
    reads: ReadsBy,
}

impl Opening<'_> {
    fn no_device(&self, metadata: &Metadata) -> OpenError {
        self.named.refuse(match metadata.is_dir() {
            true => "is a directory: name a file in it",
            false => "is neither a file nor a block device",
        })
    }

    /// How a file of `found` bytes is divided: the bytes that are used, and their layout.
    fn file_layout(&self, found: u64) -> Result<(u64, Layout), OpenError> {
        let bytes = self.options.bytes.unwrap_or(found);
        if found == 0 && self.options.bytes.is_none() {
            return Err(self.named.refuse("is empty: give its size, so that it can be made"));
        }
        self.check_size(found, bytes, ", or remove it to have it made anew")?;
        Ok((bytes, self.layout(bytes, self.options.zone_bytes)?))
    }

    fn open_file(&self, create: bool) -> Result<DiskDevice, OpenError> {
        if create && self.options.bytes.is_none() {
            return Err(self.named.refuse("does not exist: give its size, so that it can be made"));
        }
        let mut file = self.open_with(create, OFlags::empty())?;
        self.lock(&file)?;
        let found = self.length(&mut file)?;
        let prepared = self.file_layout(found).and_then(|(bytes, layout)| {
            self.reserve(&file, found, bytes)?;
            Ok(layout)
        });
        let layout = prepared.inspect_err(|_| {
            // A file that cannot be used is not left behind.
            if found == 0 {
                let _ = file.set_len(0);
                let _ = if create { std::fs::remove_file(self.named.path) } else { Ok(()) };
            }
        })?;
        let direct = self.go_direct(&file, self.options.direct)?;
        let handle = Handle::new(file, self.named.name.clone(), layout, direct);
        Ok(conventional::file(handle, self.reads))
    }

    fn open_block(&self, metadata: &Metadata) -> Result<DiskDevice, OpenError> {
        let mut file = self.open_with(false, OFlags::EXCL)?;
        // A read-only device can be opened for writing; only the writes would fail.
        let folder = sysfs_folder(metadata.rdev());
        if sysfs_value(&folder, "ro").as_deref() == Some("1") {
            return Err(self.named.refuse("is read-only"));
        }
        self.lock(&file)?;
        match rustix::fs::ioctl_blksszget(&file) {
            Ok(block) if block as usize > PAGE_BYTES => {
                return Err(self
                    .named
                    .refuse(&format!("has blocks of {block} bytes: {PAGE_BYTES} at most can be used")));
            }
            _ => {}
        }
        let queue = queue_folder(&folder);
        if sysfs_value(&queue, "zoned").as_deref() == Some("host-managed") {
            if self.options.direct == Direct::Off {
                return Err(self.named.refuse("is zoned: it cannot be written through the page cache"));
            }
            self.go_direct(&file, Direct::On)?;
            return zoned::open(&self.named, file, &queue, &self.options, self.reads);
        }
        let found = self.length(&mut file)?;
        let bytes = self.options.bytes.unwrap_or(found);
        self.check_size(found, bytes, "")?;
        let layout = self.layout(bytes, self.options.zone_bytes)?;
        let direct = self.go_direct(&file, self.options.direct)?;
        let handle = Handle::new(file, self.named.name.clone(), layout, direct);
        Ok(conventional::block(handle, self.reads))
    }

    fn open_with(&self, create: bool, flags: OFlags) -> Result<File, OpenError> {
        let mut how = OpenOptions::new();
        how.read(true).write(true).create(create).mode(0o600).custom_flags(flags.bits() as i32);
        let opened = patiently(|| how.open(self.named.path), |error| error.kind() == ErrorKind::ResourceBusy);
        opened.map_err(|error| match error.kind() {
            ErrorKind::PermissionDenied => self.named.refuse(
                "may not be read and written: check its owner, its permissions and whether it is read-only",
            ),
            ErrorKind::ReadOnlyFilesystem => self.named.refuse("is read-only"),
            ErrorKind::ResourceBusy => {
                self.named.refuse("is in use: unmount it, or stop the program that has it")
            }
            ErrorKind::NotFound => self.named.refuse("cannot be made: its directory does not exist"),
            _ => self.named.refuse(&format!("cannot be opened: {error}")),
        })
    }

    fn lock(&self, file: &File) -> Result<(), OpenError> {
        let lock = || rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive);
        patiently(lock, |error| *error == Errno::WOULDBLOCK).map_err(|error| match error {
            Errno::WOULDBLOCK => self.named.refuse("is in use by another server: each needs its own"),
            error => self.named.refuse(&format!("cannot be locked: {error}")),
        })
    }

    fn length(&self, file: &mut File) -> Result<u64, OpenError> {
        file.seek(SeekFrom::End(0))
            .map_err(|error| self.named.refuse(&format!("does not tell its size: {error}")))
    }

    fn check_size(&self, found: u64, bytes: u64, or_else: &str) -> Result<(), OpenError> {
        if found != 0 && found < bytes {
            return Err(self.named.refuse(&format!(
                "has {} only, and {} are asked for: ask for less{or_else}",
                human_size(found),
                human_size(bytes)
            )));
        }
        Ok(())
    }

    fn layout(&self, bytes: u64, zone_bytes: Option<u64>) -> Result<Layout, OpenError> {
        let zone_bytes = zone_bytes.unwrap_or_else(|| default_zone_bytes(bytes));
        let zones = bytes / zone_bytes;
        if zones < u64::from(ZONES_MIN) {
            return Err(self.named.refuse(&format!(
                "is too small: {} hold {zones} zones of {}, and {ZONES_MIN} are needed",
                human_size(bytes),
                human_size(zone_bytes)
            )));
        }
        let zones = u32::try_from(zones).map_err(|_| {
            self.named.refuse(&format!("has too many zones of {}: make them larger", human_size(zone_bytes)))
        })?;
        Ok(Layout { zones, stride: zone_bytes, zone_bytes })
    }

    /// Reserves the space in the file system, so that no later write fails for want of it.
    fn reserve(&self, file: &File, found: u64, bytes: u64) -> Result<(), OpenError> {
        // Some file systems allocate all the space they have before they report that it is not enough: compare first.
        let has = file.metadata().map_or(0, |metadata| metadata.blocks().saturating_mul(512));
        if self.free().is_some_and(|free| bytes.saturating_sub(has) > free) {
            return Err(self.no_space(bytes));
        }
        match retry(|| fallocate(file, FallocateFlags::empty(), 0, bytes)) {
            Ok(()) => Ok(()),
            Err(Errno::NOSPC | Errno::DQUOT) => Err(self.no_space(bytes)),
            Err(Errno::FBIG) => {
                Err(self.named.refuse(&format!("cannot be {} long on this file system", human_size(bytes))))
            }
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                let device = &self.named.name;
                tracing::info!(%device, "flash: the file system reserves no space, writes may fail later");
                if found >= bytes {
                    return Ok(());
                }
                file.set_len(bytes)
                    .map_err(|error| self.named.refuse(&format!("cannot be made longer: {error}")))
            }
            Err(error) => {
                Err(self.named.refuse(&format!("cannot be made {} long: {error}", human_size(bytes))))
            }
        }
    }

    /// Bytes that are free in the file system, if it tells.
    fn free(&self) -> Option<u64> {
        let folder = self.named.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let found = rustix::fs::statvfs(folder.unwrap_or(Path::new("."))).ok()?;
        Some(found.f_bavail.saturating_mul(found.f_frsize))
    }

    fn no_space(&self, bytes: u64) -> OpenError {
        let free = self.free().map_or_else(|| "too little".into(), human_size);
        self.named.refuse(&format!(
            "needs {}, and the file system has {free} left: ask for less, or free some",
            human_size(bytes)
        ))
    }

    /// Makes the file bypass the page cache, if `wanted` allows it and the file system supports it. Returns whether
    /// it does.
    fn go_direct(&self, file: &File, wanted: Direct) -> Result<bool, OpenError> {
        if wanted != Direct::Off {
            match try_direct(file) {
                Ok(()) => return Ok(true),
                Err(error) if wanted == Direct::On => {
                    return Err(self
                        .named
                        .refuse(&format!("cannot be used without the page cache: {error}")));
                }
                Err(error) => {
                    let device = &self.named.name;
                    tracing::info!(%device, %error, "flash: no direct access, the page cache is used");
                }
            }
        }
        // Lookups read single pages: reading ahead would read in vain.
        let _ = fadvise(file, 0, None, Advice::Random);
        Ok(false)
    }
}

/// Sets `O_DIRECT`, and reads a page to see whether the alignment of [`PageBuffer`] is enough.
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

/// Repeats a call for a few seconds while the device is in use: the last reads of a server that was just killed may
/// still be in flight.
fn patiently<T, E>(call: impl Fn() -> Result<T, E>, is_in_use: impl Fn(&E) -> bool) -> Result<T, E> {
    for _ in 0..IN_USE_TRIES {
        match call() {
            Err(error) if is_in_use(&error) => std::thread::sleep(IN_USE_INTERVAL),
            result => return result,
        }
    }
    call()
}
