//! The traits of a device and of its queues of reads.

use super::{DeviceError, PageBuffer, ZoneId, ZoneReport};
use std::os::fd::BorrowedFd;

/// The shape of a device. It does not change while the device is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Number of zones, bad ones included.
    pub zones: u32,
    /// Bytes that a zone can hold: a multiple of [`PAGE_BYTES`].
    pub zone_bytes: u64,
    /// Independent channels. Zone `z` is on channel `z % channels`. With 1, every zone is spread over all channels.
    pub channels: u32,
    /// How many zones may be open for writing at the same time.
    pub open_zones_max: u32,
}

impl Geometry {
    /// Bytes of all zones together.
    pub fn capacity_bytes(&self) -> u64 {
        self.zones as u64 * self.zone_bytes
    }
}

/// What a device has done since it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeviceCounters {
    /// Reads that succeeded.
    pub reads: u64,
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Appends that succeeded.
    pub appends: u64,
    /// Bytes that were appended.
    pub append_bytes: u64,
    /// Zones that were erased.
    pub resets: u64,
    /// Operations that failed.
    pub errors: u64,
    /// Bytes programmed to the NAND cells, if the device tells. `media_bytes / append_bytes` is the device-level write
    /// amplification.
    pub media_bytes: Option<u64>,
    /// How often the blocks of the NAND were erased, if the device tells.
    pub erases: Option<EraseSpread>,
}

/// How often the blocks of a device were erased. The closer together, the longer the device lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EraseSpread {
    /// Erases of the block that was erased the fewest times.
    pub least: u32,
    /// Erases of the block that was erased the most times.
    pub most: u32,
}

impl EraseSpread {
    /// The spread over the blocks of two devices, of which one may not tell.
    pub fn over(one: Option<EraseSpread>, other: Option<EraseSpread>) -> Option<EraseSpread> {
        match (one, other) {
            (Some(one), Some(other)) => {
                Some(EraseSpread { least: one.least.min(other.least), most: one.most.max(other.most) })
            }
            (one, other) => one.or(other),
        }
    }
}

/// What a channel of a device has done since the device was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ChannelCounters {
    /// Bytes programmed to its cells.
    pub media_bytes: u64,
    /// How often its blocks were erased.
    pub erases: EraseSpread,
}

/// One of several devices that work as one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberStatus {
    /// The device, in a few words.
    pub name: String,
    /// Zones that are used of it.
    pub zones: u32,
    /// What it has done.
    pub counters: DeviceCounters,
    /// Whether it has failed for good. Its zones are offline.
    pub has_failed: bool,
}

/// A device of zones.
///
/// Any thread may call any method. Operations on different zones run in parallel. One thread at a time appends to a
/// zone: a second append that arrives meanwhile is refused, and the bytes of the two never mix.
pub trait Device: Send + Sync {
    /// The shape of the device.
    fn geometry(&self) -> Geometry;

    /// A few words for a person, for example `file /var/cache/larder.flash, direct`.
    fn describe(&self) -> String;

    /// The state of a zone.
    ///
    /// # Errors
    /// The zone does not exist, or the device does not answer.
    fn report(&self, zone: ZoneId) -> Result<ZoneReport, DeviceError>;

    /// Appends whole pages to a zone. Returns the offset in the zone, in bytes, of the first page.
    ///
    /// # Errors
    /// [`DeviceError::Full`] if the pages do not fit; nothing is written then. [`DeviceError::State`] if the zone is
    /// full, unknown or offline. Another error if the device fails; the zone then takes no more appends until it is
    /// reset, and the pages that were appended before can still be read.
    fn append(&self, zone: ZoneId, pages: &[u8]) -> Result<u64, DeviceError>;

    /// Reads whole pages from `offset` bytes into the zone. A page that was not written since the last reset reads as
    /// an error or as anything at all.
    ///
    /// # Errors
    /// The read passes the end of the zone, or the device fails.
    fn read(&self, zone: ZoneId, offset: u64, into: &mut PageBuffer) -> Result<(), DeviceError>;

    /// Ends a zone: no more is appended to it until it is reset.
    ///
    /// # Errors
    /// The device fails.
    fn finish(&self, zone: ZoneId) -> Result<(), DeviceError>;

    /// Erases a zone. Its old contents cannot be read afterwards, except in a file and on a device that is unable to
    /// erase: there they stay until they are written over.
    ///
    /// # Errors
    /// The device fails. The zone is then [`ZoneState::Offline`] or [`ZoneState::Unknown`].
    fn reset(&self, zone: ZoneId) -> Result<(), DeviceError>;

    /// Makes durable what was appended and reset before this call: it survives a loss of power after this call.
    ///
    /// # Errors
    /// The device fails.
    fn sync(&self) -> Result<(), DeviceError>;

    /// The counters of the device.
    fn counters(&self) -> DeviceCounters;

    /// A queue for the reads of one thread, with room for `depth` reads at a time.
    ///
    /// # Errors
    /// The operating system has no room for another queue.
    fn reads(&self, depth: u32) -> Result<Box<dyn ReadQueue>, DeviceError>;

    /// The channels of the device, in their order; none if the device does not tell.
    fn channels(&self) -> Vec<ChannelCounters> {
        Vec::new()
    }

    /// The devices that this one is made of; none if it is a single one.
    fn members(&self) -> Vec<MemberStatus> {
        Vec::new()
    }
}

/// The reads that one thread has in flight. No method blocks.
pub trait ReadQueue: Send {
    /// A descriptor that is readable whenever a read has completed that [`ReadQueue::reap`] has not returned yet. The
    /// descriptor is level-triggered: reap until nothing new comes. It stays open as long as the queue.
    fn fd(&self) -> BorrowedFd<'_>;

    /// Whether another read can be submitted.
    fn has_room(&self) -> bool;

    /// Asks for `buffer.len()` bytes from `offset` bytes into the zone. The buffer comes back with the result.
    ///
    /// # Errors
    /// The queue is full: the buffer comes back at once.
    fn submit(&mut self, token: u64, zone: ZoneId, offset: u64, buffer: PageBuffer)
    -> Result<(), PageBuffer>;

    /// Hands all submitted reads to the device, with one system call.
    fn kick(&mut self);

    /// Appends the reads that have completed to `done`.
    fn reap(&mut self, done: &mut Vec<ReadDone>);

    /// Reads that were submitted and not reaped yet.
    fn in_flight(&self) -> usize;

    /// Whether there are such reads, and all of them have completed. It costs no system call; a queue that does not
    /// know says no.
    fn is_complete(&mut self) -> bool {
        false
    }
}

/// A read that has completed.
#[derive(Debug)]
pub struct ReadDone {
    /// The token that was given to [`ReadQueue::submit`].
    pub token: u64,
    /// The buffer that was given to [`ReadQueue::submit`]. It holds the pages if `result` is `Ok`.
    pub buffer: PageBuffer,
    /// Whether the read succeeded.
    pub result: Result<(), DeviceError>,
}
