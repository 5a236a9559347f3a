//! The label of a member: one page in its first zone that says which set of devices it belongs to, and its place there.
//!
//! ```text
//!  0 magic u64      8 crc32c u32 over everything behind it      12 version u16      14 number of the member u16
//! 16 uuid of the set (16 bytes)     32 bytes of a zone u64      40 members u16      42 zones of each member, u32 each
//! ```

use crate::device::{Device, DeviceError, PAGE_BYTES, PageBuffer, ZoneId, ZoneState};

const MAGIC: u64 = u64::from_le_bytes(*b"LARDSET1");
const VERSION: u16 = 1;
/// The zone that holds the label.
const ZONE: ZoneId = ZoneId(0);
/// Pages of the first zone that are looked at before the device counts as blank: file systems, partition tables and
/// volume managers begin there.
const BLANK_PAGES: usize = 64;

/// Which set a member belongs to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Label {
    /// A random number from the time the set was formatted.
    pub(super) uuid: [u8; 16],
    /// The place of the member, from 0.
    pub(super) number: u16,
    /// Bytes of a zone.
    pub(super) zone_bytes: u64,
    /// The zones of each member.
    pub(super) zones: Vec<u32>,
}

/// What the first zone of a device holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Content {
    /// A label.
    Label(Label),
    /// Nothing, and the other zones hold nothing as well.
    Blank,
    /// Something else.
    Other,
}

impl Label {
    fn encode(&self) -> PageBuffer {
        let mut page = PageBuffer::new(1);
        let mut put = |at: usize, bytes: &[u8]| page[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &MAGIC.to_le_bytes());
        put(12, &VERSION.to_le_bytes());
        put(14, &self.number.to_le_bytes());
        put(16, &self.uuid);
        put(32, &self.zone_bytes.to_le_bytes());
        put(40, &(self.zones.len() as u16).to_le_bytes());
        for (n, zones) in self.zones.iter().enumerate() {
            put(42 + 4 * n, &zones.to_le_bytes());
        }
        let sum = crc32c::crc32c(&page[12..]);
        page[8..12].copy_from_slice(&sum.to_le_bytes());
        page
    }

    fn decode(page: &[u8]) -> Option<Label> {
        let u16_at = |at: usize| u16::from_le_bytes([page[at], page[at + 1]]);
        let u32_at = |at: usize| Some(u32::from_le_bytes(page.get(at..at + 4)?.try_into().ok()?));
        let u64_at = |at: usize| Some(u64::from_le_bytes(page.get(at..at + 8)?.try_into().ok()?));
        if u64_at(0)? != MAGIC || u32_at(8)? != crc32c::crc32c(&page[12..]) || u16_at(12) != VERSION {
            return None;
        }
        let zones = (0..u16_at(40) as usize).map(|n| u32_at(42 + 4 * n)).collect::<Option<Vec<u32>>>()?;
        let label =
            Label { uuid: page[16..32].try_into().ok()?, number: u16_at(14), zone_bytes: u64_at(32)?, zones };
        ((label.number as usize) < label.zones.len()).then_some(label)
    }

    /// Erases the first zone of a member and writes the label there. Durable when this returns.
    pub(super) fn write(&self, device: &dyn Device) -> Result<(), DeviceError> {
        erase(device)?;
        device.append(ZONE, &self.encode())?;
        device.finish(ZONE)?;
        device.sync()
    }
}

/// Erases the label of a member, and whatever else its first zone holds.
pub(super) fn erase(device: &dyn Device) -> Result<(), DeviceError> {
    match device.report(ZONE)?.state {
        ZoneState::Empty => Ok(()),
        _ => device.reset(ZONE),
    }
}

/// What the first zone of a device holds.
pub(super) fn read(device: &dyn Device) -> Result<Content, DeviceError> {
    let mut page = PageBuffer::new(1);
    if !is_empty(device, ZONE)? {
        device.read(ZONE, 0, &mut page)?;
    }
    Ok(match Label::decode(&page) {
        Some(label) => Content::Label(label),
        None if is_blank(device)? => Content::Blank,
        None => Content::Other,
    })
}

fn is_empty(device: &dyn Device, zone: ZoneId) -> Result<bool, DeviceError> {
    Ok(matches!(device.report(zone)?.state, ZoneState::Empty | ZoneState::Offline))
}

/// Whether nothing was ever written to the device, as far as the first pages of its zones show.
fn is_blank(device: &dyn Device) -> Result<bool, DeviceError> {
    for zone in (0..device.geometry().zones).map(ZoneId) {
        let pages = match device.report(zone)?.state {
            ZoneState::Empty | ZoneState::Offline => continue,
            ZoneState::Open(bytes) | ZoneState::Full(bytes) => (bytes / PAGE_BYTES as u64) as usize,
            ZoneState::Unknown => (device.geometry().zone_bytes / PAGE_BYTES as u64) as usize,
        };
        let mut buffer = PageBuffer::new(pages.min(if zone == ZONE { BLANK_PAGES } else { 1 }));
        if buffer.pages() > 0 {
            device.read(zone, 0, &mut buffer)?;
        }
        if buffer.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::test_devices::MemoryDevice;

    fn label() -> Label {
        Label { uuid: [7; 16], number: 1, zone_bytes: 1 << 20, zones: vec![9, 17, 4] }
    }

    #[test]
    fn a_label_is_read_as_it_was_written_and_no_bit_may_differ() {
        let page = label().encode();
        assert_eq!(Label::decode(&page), Some(label()));
        for at in [0, 8, 12, 14, 16, 32, 40, 42, 53, 4095] {
            let mut other = page.to_vec();
            other[at] ^= 1;
            assert_eq!(Label::decode(&other), None, "byte {at}");
        }
    }

    #[test]
    fn a_device_is_blank_labelled_or_something_else() {
        let device = MemoryDevice::new(4, 16);
        assert_eq!(read(&device), Ok(Content::Blank));
        label().write(&device).expect("a label");
        assert_eq!(read(&device), Ok(Content::Label(label())));
        erase(&device).expect("an erasure");
        assert_eq!(read(&device), Ok(Content::Blank));
        // What stands in another zone counts as well.
        device.append(ZoneId(2), &[1; PAGE_BYTES]).expect("an append");
        assert_eq!(read(&device), Ok(Content::Other));
    }
}
