//! What a device holds when it is opened: the meta log that is found, and how much of the device is kept.

use super::frame::NOTE_BYTES;
use super::frame::{self, JournalRecord, LogState, META_ZONES, Superblock};
use super::holds_bounds;
use super::scan::{self, ScannedLog, ZoneContent};
use super::zone::{erase, round_end};
use crate::device::{Device, DeviceError, PAGE_BYTES, ZoneId, ZoneState};
use crate::error::FlashError;
use crate::options::Recover;
use larder_item::PrefixFloors;

/// Fewest pages of a zone that the log can live in.
const ZONE_PAGES_MIN: u64 = 4;
/// Sequences of segments that one write reserves.
pub(super) const RESERVE: u64 = 1 << 20;

/// How the log is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MetaOptions {
    /// The seed of the key hash for a device that has none yet.
    pub seed: u64,
    /// What of the device is kept after a crash, and whether there is a journal from now on.
    pub recover: Recover,
    /// Erase whatever the device holds, even if another program wrote it.
    pub format: bool,
}

/// What of the device is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Start {
    /// Nothing: the device was blank, or is to be formatted.
    Formatted,
    /// Everything: the device was closed cleanly.
    Clean,
    /// Everything that is found, after a crash. The journal records are to be put again.
    Crashed,
    /// Nothing, for this reason.
    Dropped(&'static str),
}

/// The log as it was found, or a fresh one.
pub(super) struct Found {
    pub(super) start: Start,
    /// The zone that holds the log. The next round begins in the other one.
    pub(super) zone: ZoneId,
    /// Number of the last frame.
    pub(super) last: u64,
    pub(super) state: LogState,
    pub(super) journal: Vec<JournalRecord>,
}

/// Finds the log of a device, or makes a fresh one for a device that is blank or is to be formatted.
///
/// # Errors
/// The device cannot be used; see [`super::MetaLog::open`].
pub(super) fn find_or_format(device: &dyn Device, options: MetaOptions) -> Result<Found, FlashError> {
    check_geometry(device)?;
    match if options.format { None } else { find(device)? } {
        None => format(device, options.seed),
        Some((zone, log)) => {
            check_superblock(device, &log.state.superblock)?;
            Ok(keep(zone, *log, options.recover))
        }
    }
}

/// Erases both meta zones.
fn format(device: &dyn Device, seed: u64) -> Result<Found, FlashError> {
    let name = device.describe();
    let failed = |error: DeviceError| FlashError(format!("{name}: the meta zones: {error}"));
    // Frames of an earlier format may survive the erasure. The new frames have higher numbers, so that after a crash
    // the old frames are not taken for the log.
    let mut last = 0;
    for zone in [ZoneId(0), ZoneId(1)] {
        let newest = scan::newest_round(device, zone, None).map_err(failed)?;
        last = last.max(newest.map_or(0, |first| round_end(device, first)));
        erase(device, zone).map_err(failed)?;
    }
    let state = fresh_state(device, seed)?;
    Ok(Found { start: Start::Formatted, zone: ZoneId(1), last, state, journal: Vec::new() })
}

/// Decides what is kept of a device that has a log.
fn keep(zone: ZoneId, log: ScannedLog, recover: Recover) -> Found {
    let start = decide(&log, recover);
    let dropped = matches!(start, Start::Dropped(_));
    let journal = if dropped { Vec::new() } else { log.journal };
    let mut state = log.state;
    if log.damaged {
        // One of the lost frames may have reserved more sequences.
        state.superblock.next_sequence += 16 * RESERVE;
    }
    if dropped {
        state.superblock.flush_floor = state.superblock.next_sequence;
        state.zones.clear();
        state.prefixes = PrefixFloors::default();
        state.note.clear();
    }
    Found { start, zone, last: log.last, state, journal }
}

fn decide(log: &ScannedLog, recover: Recover) -> Start {
    let superblock = &log.state.superblock;
    match recover {
        _ if log.damaged && recover != Recover::BestEffort => Start::Dropped("its log is damaged"),
        _ if superblock.clean && !log.damaged => Start::Clean,
        Recover::Clean => Start::Dropped("it was not closed cleanly"),
        Recover::Journal if !superblock.journaled => {
            Start::Dropped("it was not closed cleanly, and had no journal")
        }
        Recover::Journal | Recover::BestEffort => Start::Crashed,
    }
}

fn check_geometry(device: &dyn Device) -> Result<(), FlashError> {
    let (name, geometry) = (device.describe(), device.geometry());
    if geometry.zones <= META_ZONES {
        return Err(FlashError(format!(
            "{name}: {} zones are too few: two hold the log of the device, and at least one must hold items",
            geometry.zones
        )));
    }
    if geometry.zone_bytes < ZONE_PAGES_MIN * PAGE_BYTES as u64 {
        return Err(FlashError(format!("{name}: zones of {} bytes are too small", geometry.zone_bytes)));
    }
    if !holds_bounds(geometry.zones.into(), geometry.zone_bytes, NOTE_BYTES) {
        let capacity = geometry.capacity_bytes();
        let mut lengths = (1..44).map(|log2| 1u64 << log2).filter(|bytes| *bytes > geometry.zone_bytes);
        let enough = lengths.find(|bytes| holds_bounds(capacity / bytes, *bytes, NOTE_BYTES));
        return Err(FlashError(format!(
            "{name}: {} zones of {} KiB are too many: what is known of all of them does not fit into one; make larger \
             zones, of {} KiB at least, or take the default",
            geometry.zones,
            geometry.zone_bytes >> 10,
            enough.unwrap_or(capacity) >> 10,
        )));
    }
    for zone in [ZoneId(0), ZoneId(1)] {
        let report = device.report(zone).map_err(|error| FlashError(format!("{name}: {error}")))?;
        if report.state == ZoneState::Offline {
            return Err(FlashError(format!(
                "{name}: zone {} is broken, and the log has no other place",
                zone.0
            )));
        }
    }
    Ok(())
}

fn check_superblock(device: &dyn Device, superblock: &Superblock) -> Result<(), FlashError> {
    let geometry = device.geometry();
    if (superblock.zones, superblock.zone_bytes) == (geometry.zones, geometry.zone_bytes) {
        return Ok(());
    }
    Err(FlashError(format!(
        "{}: it was formatted as {} zones of {} bytes, and has {} zones of {} bytes now: give it its old size, or \
         format it",
        device.describe(),
        superblock.zones,
        superblock.zone_bytes,
        geometry.zones,
        geometry.zone_bytes
    )))
}

/// The state of a device that holds nothing, with a new identity.
fn fresh_state(device: &dyn Device, seed: u64) -> Result<LogState, FlashError> {
    let mut random = [0; 24];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| FlashError(format!("no random numbers: {error}")))?;
    let (uuid, start) = random.split_at(16);
    let start = u64::from_le_bytes(start.try_into().expect("eight bytes"));
    // Sequences begin at a random number, so that pages of an earlier format do not have the sequences of new segments.
    let start = (start % (1 << 20) + 1) * RESERVE;
    let geometry = device.geometry();
    let superblock = Superblock {
        uuid: uuid.try_into().expect("sixteen bytes"),
        zones: geometry.zones,
        zone_bytes: geometry.zone_bytes,
        seed,
        clean: false,
        journaled: false,
        flush_floor: start,
        next_sequence: start,
        cas_floor: 0,
    };
    Ok(LogState::empty(superblock))
}

/// The log of the device, and its zone. `None` if the device is blank, or power was lost while it was formatted.
fn find(device: &dyn Device) -> Result<Option<(ZoneId, Box<ScannedLog>)>, FlashError> {
    let name = device.describe();
    let failed = |error: DeviceError| FlashError(format!("{name}: the meta zones cannot be read: {error}"));
    let read = |zone| scan::read(device, ZoneId(zone)).map_err(failed);
    let mut best: Option<(ZoneId, Box<ScannedLog>)> = None;
    let (mut torn, mut foreign, mut other_version) = (false, false, None);
    for zone in 0..META_ZONES {
        match read(zone)? {
            ZoneContent::Log(log) => {
                if best.as_ref().is_none_or(|(_, best)| best.first < log.first) {
                    best = Some((ZoneId(zone), log));
                }
            }
            ZoneContent::Blank => {}
            ZoneContent::Torn => torn = true,
            ZoneContent::Version(version) => other_version = Some(version),
            ZoneContent::Foreign => foreign = true,
        }
    }
    if let Some((zone, mut log)) = best {
        // The other zone may hold a newer log that has lost its beginning.
        let uuid = log.state.superblock.uuid;
        let newest = scan::newest_round(device, ZoneId(1 - zone.0), Some(uuid)).map_err(failed)?;
        if let Some(first) = newest.filter(|first| *first > log.first) {
            log.damaged = true;
            log.last = log.last.max(round_end(device, first));
        }
        return Ok(Some((zone, log)));
    }
    if let Some(version) = other_version {
        return Err(FlashError(format!(
            "{name}: written in version {version} of the format, and this program knows version {}: format it, or \
             use the program that wrote it",
            frame::VERSION
        )));
    }
    if torn {
        tracing::warn!("flash: {name}: no log can be read, so it is formatted again");
        return Ok(None);
    }
    if foreign || !is_blank(device).map_err(failed)? {
        return Err(FlashError(format!(
            "{name}: it is not blank, and holds nothing of this cache (or with other zones): format it if it may be \
             erased"
        )));
    }
    Ok(None)
}

/// Whether nothing was ever written to the device. Looks at the pages in which file systems, partition tables and
/// volume managers begin, and at the first page of every zone.
fn is_blank(device: &dyn Device) -> Result<bool, DeviceError> {
    let geometry = device.geometry();
    for zone in 0..geometry.zones {
        let pages = if zone < META_ZONES { 64 } else { 1 };
        if !scan::is_blank(device, ZoneId(zone), pages)? {
            return Ok(false);
        }
    }
    Ok(true)
}
