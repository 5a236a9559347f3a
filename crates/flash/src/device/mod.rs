//! Places that hold zones: one trait, one contract (see `contract.rs`), several devices.
//!
//! A zone is written from its beginning to its end, in whole pages, and erased whole. Whatever a device is made of, it
//! shows itself like that, and a device that can be overwritten refuses to be.

mod buffer;
mod conventional;
mod disk;
mod error;
mod handle;
#[allow(unsafe_code)]
mod ioctl;
mod open;
mod options;
mod pool;
mod table;
#[allow(unsafe_code)]
mod uring;
mod zoned;

pub use buffer::PageBuffer;
pub use disk::DiskDevice;
pub use error::DeviceError;
pub use open::{OpenError, ZONES_MIN, default_zone_bytes, open};
pub use options::{DeviceOptions, Direct, ReadsBy};

use std::os::fd::BorrowedFd;

/// Bytes of a page: what is read at least, written at least, and checked by one checksum.
pub const PAGE_BYTES: usize = 4096;

/// The number of a zone, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ZoneId(pub u32);

/// What a device looks like. Does not change while it is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Zones in all, bad ones included.
    pub zones: u32,
    /// Bytes that can be written to a zone: whole pages.
    pub zone_bytes: u64,
    /// Independent channels; zone `z` lies on channel `z % channels`, or on all of them where this is 1.
    pub channels: u32,
    /// How many zones may be written at a time.
    pub open_zones_max: u32,
}

impl Geometry {
    /// Bytes of all zones together.
    pub fn capacity_bytes(&self) -> u64 {
        self.zones as u64 * self.zone_bytes
    }
}

/// How much is known of a zone without reading it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ZoneState {
    /// Erased: nothing can be read.
    Empty,
    /// Written up to here, in bytes; more may follow.
    Open(u64),
    /// Finished, with so many bytes written.
    Full(u64),
    /// Whatever an earlier user left: the device keeps no write pointer and has not been told since it was opened. It may
    /// be read; before it is written it is reset.
    Unknown,
    /// Broken: neither read nor written.
    Offline,
}

/// One zone as the device sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneReport {
    /// What can be done with it.
    pub state: ZoneState,
    /// How often it was erased, as far as the device knows.
    pub resets: u64,
}

/// What a device counts. Bytes and operations since it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeviceCounters {
    /// Reads asked for, and their bytes.
    pub reads: u64,
    /// Bytes of them.
    pub read_bytes: u64,
    /// Appends asked for, and their bytes.
    pub appends: u64,
    /// Bytes of them.
    pub append_bytes: u64,
    /// Zones erased.
    pub resets: u64,
    /// Operations that failed.
    pub errors: u64,
    /// Bytes programmed to NAND, where the device tells: `media_bytes / append_bytes` is DLWA.
    pub media_bytes: Option<u64>,
}

/// A device of zones. Every method may be called from any thread; operations on different zones run side by side. Appends to
/// one zone come from one thread at a time (a second one meanwhile is an error, not a mixture).
pub trait Device: Send + Sync {
    /// What it looks like.
    fn geometry(&self) -> Geometry;

    /// What it is, in a few words for a person: `file /var/cache/larder.flash, direct`.
    fn describe(&self) -> String;

    /// How a zone stands.
    ///
    /// # Errors
    /// A zone beyond the last one, or a device that does not answer.
    fn report(&self, zone: ZoneId) -> Result<ZoneReport, DeviceError>;

    /// Writes whole pages behind what the zone has. Returns the offset, in bytes in the zone, at which they begin.
    ///
    /// # Errors
    /// [`DeviceError::Full`] if they do not fit, and nothing is written; [`DeviceError::State`] if the zone is full,
    /// unknown or offline; an error of the device, after which the zone takes no more appends until it is reset, and what
    /// was written before can be read.
    fn append(&self, zone: ZoneId, pages: &[u8]) -> Result<u64, DeviceError>;

    /// Reads whole pages from `offset` bytes into the zone. Pages that were never written since the last reset
    /// read as an error or as anything at all.
    ///
    /// # Errors
    /// Beyond the end of the zone, or an error of the device.
    fn read(&self, zone: ZoneId, offset: u64, into: &mut PageBuffer) -> Result<(), DeviceError>;

    /// No more will be appended until it is reset.
    ///
    /// # Errors
    /// Of the device.
    fn finish(&self, zone: ZoneId) -> Result<(), DeviceError>;

    /// Erases the zone; what it held cannot be read any more (a device that cannot erase may still show it).
    ///
    /// # Errors
    /// Of the device. The zone is then [`ZoneState::Offline`] or [`ZoneState::Unknown`].
    fn reset(&self, zone: ZoneId) -> Result<(), DeviceError>;

    /// Everything appended and reset before this call survives a loss of power after it.
    ///
    /// # Errors
    /// Of the device.
    fn sync(&self) -> Result<(), DeviceError>;

    /// What was counted.
    fn counters(&self) -> DeviceCounters;

    /// A queue of reads for one thread, with room for `depth` of them at a time.
    ///
    /// # Errors
    /// When the system has no room for it.
    fn reads(&self, depth: u32) -> Result<Box<dyn ReadQueue>, DeviceError>;
}

/// Reads in flight, for one thread. Nothing blocks.
pub trait ReadQueue: Send {
    /// Readable whenever something has completed that [`ReadQueue::reap`] has not returned. Level-triggered: reap until it
    /// returns nothing new. Open as long as the queue.
    fn fd(&self) -> BorrowedFd<'_>;

    /// Whether another read can be submitted.
    fn has_room(&self) -> bool;

    /// Asks for `buffer.len()` bytes from `offset`. The buffer comes back with the result.
    ///
    /// # Errors
    /// Gives the buffer back if there is no room.
    fn submit(&mut self, token: u64, zone: ZoneId, offset: u64, buffer: PageBuffer)
    -> Result<(), PageBuffer>;

    /// Hands what was submitted to the device; one system call for all of it.
    fn kick(&mut self);

    /// Appends what has completed to `done`.
    fn reap(&mut self, done: &mut Vec<ReadDone>);

    /// Reads submitted and not yet reaped.
    fn in_flight(&self) -> usize;
}

/// A read that came to an end.
#[derive(Debug)]
pub struct ReadDone {
    /// As submitted.
    pub token: u64,
    /// The buffer, with what was read if that went well.
    pub buffer: PageBuffer,
    /// How it went.
    pub result: Result<(), DeviceError>,
}
