//! Devices: one trait, [`Device`], for everything that holds zones.
//!
//! A zone is written in whole pages from its beginning to its end, and erased whole. Every device shows itself like
//! that. A regular file could be overwritten anywhere; the device that is made of a file refuses it all the same, so
//! that the tier behaves the same on a file, on a block device and on a zoned block device.
//!
//! [`open`] opens a path and returns the device that fits it ([`DiskDevice`]). [`together`] makes one device of
//! several. The checks that every implementation
//! passes are in the crate `larder-laboratory` (`contract.rs`), beside the devices that only tests use.

mod buffer;
mod conventional;
mod disk;
mod error;
mod handle;
mod interface;
#[allow(unsafe_code)]
mod ioctl;
mod open;
mod options;
mod path;
mod pool;
mod striped;
mod system;
mod table;
#[allow(unsafe_code)]
mod uring;
mod zone;
mod zoned;

pub use buffer::{PAGE_BYTES, PageBuffer};
pub use disk::DiskDevice;
pub use error::{DeviceError, OpenError};
pub use interface::{
    ChannelCounters, Device, DeviceCounters, EraseSpread, Geometry, MemberStatus, ReadDone, ReadQueue,
};
#[doc(hidden)]
pub use open::open_reading_by;
pub use open::{check, default_zone_bytes, open};
#[doc(hidden)]
pub use options::ReadsBy;
pub use options::{DeviceOptions, Direct};
pub use striped::together;
pub use zone::{ZONES_MIN, ZoneId, ZoneReport, ZoneState};
