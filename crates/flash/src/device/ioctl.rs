//! The requests to block devices beside reads and writes (`linux/fs.h`, `linux/blkzoned.h`).

use rustix::io::Result;
use rustix::ioctl::{Opcode, Setter, Updater, ioctl, opcode};
use std::fs::File;

/// Bytes of the sectors in which the kernel counts, whatever sectors the device has.
pub(super) const SECTOR_BYTES: u64 = 512;

const DISCARD: Opcode = opcode::none(0x12, 119);
const REPORT_ZONES: Opcode = opcode::read_write::<ReportHead>(0x12, 130);
const RESET_ZONE: Opcode = opcode::write::<Sectors>(0x12, 131);
const ZONE_SECTORS: Opcode = opcode::read::<u32>(0x12, 132);
const FINISH_ZONE: Opcode = opcode::write::<Sectors>(0x12, 136);

/// `struct blk_zone_range`.
#[repr(C)]
struct Sectors {
    sector: u64,
    count: u64,
}

/// `struct blk_zone_report` without the zones that follow it. The number of the request is computed from its size.
#[repr(C)]
struct ReportHead {
    sector: u64,
    zones: u32,
    flags: u32,
}

/// `struct blk_zone`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct RawZone {
    start: u64,
    sectors: u64,
    write_pointer: u64,
    kind: u8,
    condition: u8,
    non_sequential: u8,
    reset_recommended: u8,
    reserved: [u8; 4],
    capacity: u64,
    reserved_more: [u8; 24],
}

/// Zones that one request reports: 4 KiB of descriptions.
const REPORT_ZONES_MAX: usize = 64;
/// `BLK_ZONE_REP_CAPACITY`: the capacities are filled in.
const REPORT_HAS_CAPACITY: u32 = 1;
const KIND_CONVENTIONAL: u8 = 1;

/// `struct blk_zone_report` with room for its zones.
#[repr(C)]
struct Report {
    head: ReportHead,
    zones: [RawZone; REPORT_ZONES_MAX],
}

const _: () =
    assert!(size_of::<ReportHead>() == 16 && size_of::<RawZone>() == 64 && size_of::<Sectors>() == 16);

/// The device's description of one zone, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ZoneInfo {
    /// The position on the device at which the zone begins.
    pub(super) start: u64,
    /// Bytes to the beginning of the next zone.
    pub(super) bytes: u64,
    /// Bytes of the zone that can be written.
    pub(super) capacity: u64,
    /// Bytes that are written, from the start of the zone. `None` if the device does not say.
    pub(super) written: Option<u64>,
    /// Whether the zone can be written and read.
    pub(super) condition: Condition,
}

/// `enum blk_zone_cond`, as far as the differences matter here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Condition {
    /// The zone can be written anywhere: it has no write pointer.
    Conventional,
    /// Nothing is written.
    Empty,
    /// Opened by a write or by a request, or closed. The zone counts against the device's limit of active zones.
    Active,
    /// Written to its end, or finished.
    Full,
    /// The zone can be read, and never be written again.
    ReadOnly,
    /// The zone can be neither read nor written.
    Offline,
}

impl ZoneInfo {
    fn new(raw: &RawZone, has_capacity: bool) -> ZoneInfo {
        let bytes = |sectors: u64| sectors.saturating_mul(SECTOR_BYTES);
        let condition = match raw.condition {
            0 => Condition::Conventional,
            _ if raw.kind == KIND_CONVENTIONAL => Condition::Conventional,
            1 => Condition::Empty,
            2..=4 => Condition::Active,
            0xe => Condition::Full,
            0xd => Condition::ReadOnly,
            _ => Condition::Offline,
        };
        let capacity = bytes(if has_capacity { raw.capacity } else { raw.sectors });
        let written = match condition {
            Condition::Empty => Some(0),
            Condition::Active => raw.write_pointer.checked_sub(raw.start).map(bytes),
            _ => None,
        };
        ZoneInfo { start: bytes(raw.start), bytes: bytes(raw.sectors), capacity, written, condition }
    }
}

/// Tells a block device that the contents of a range are not needed any more.
pub(super) fn discard(file: &File, offset: u64, bytes: u64) -> Result<()> {
    // SAFETY: BLKDISCARD reads two u64, a beginning and a length in bytes, and keeps no pointer.
    unsafe { ioctl(file, Setter::<DISCARD, [u64; 2]>::new([offset, bytes])) }
}

/// Bytes from the beginning of one zone of a zoned device to the next. 0 if the device has no zones.
pub(super) fn zone_bytes(file: &File) -> Result<u64> {
    let mut sectors = 0u32;
    // SAFETY: BLKGETZONESZ writes one u32 and keeps no pointer.
    unsafe { ioctl(file, Updater::<ZONE_SECTORS, u32>::new(&mut sectors))? };
    Ok(u64::from(sectors) * SECTOR_BYTES)
}

/// Up to `count` zones, from the zone that holds the byte at `offset` on. Empty behind the last zone.
pub(super) fn report_zones(file: &File, offset: u64, count: usize) -> Result<Vec<ZoneInfo>> {
    let zones = count.min(REPORT_ZONES_MAX);
    let head = ReportHead { sector: offset / SECTOR_BYTES, zones: zones as u32, flags: 0 };
    let mut report = Box::new(Report { head, zones: [RawZone::default(); REPORT_ZONES_MAX] });
    // SAFETY: BLKREPORTZONE reads the head, writes it, and writes as many zones behind it as the head has room for; the
    // array holds at least as many. All bit patterns are valid for both. It keeps no pointer.
    unsafe { ioctl(file, Updater::<REPORT_ZONES, Report>::new(&mut *report))? };
    let found = (report.head.zones as usize).min(zones);
    let has_capacity = report.head.flags & REPORT_HAS_CAPACITY != 0;
    Ok(report.zones[..found].iter().map(|raw| ZoneInfo::new(raw, has_capacity)).collect())
}

/// Erases the zones in a range.
pub(super) fn reset_zones(file: &File, offset: u64, bytes: u64) -> Result<()> {
    let range = Sectors { sector: offset / SECTOR_BYTES, count: bytes / SECTOR_BYTES };
    // SAFETY: BLKRESETZONE reads one range and keeps no pointer.
    unsafe { ioctl(file, Setter::<RESET_ZONE, Sectors>::new(range)) }
}

/// Finishes the zones in a range: they are full then.
pub(super) fn finish_zones(file: &File, offset: u64, bytes: u64) -> Result<()> {
    let range = Sectors { sector: offset / SECTOR_BYTES, count: bytes / SECTOR_BYTES };
    // SAFETY: BLKFINISHZONE reads one range and keeps no pointer.
    unsafe { ioctl(file, Setter::<FINISH_ZONE, Sectors>::new(range)) }
}
