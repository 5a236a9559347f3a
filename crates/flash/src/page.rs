//! A page of a segment: 4096 bytes with one checksum.
//!
//! ```text
//! 0      4        8             12             14     16                                4096
//! +------+--------+-------------+--------------+------+----------------------------------+
//! | crc  | epoch  | page number | first record | used | payload, 4080 bytes              |
//! +------+--------+-------------+--------------+------+----------------------------------+
//! ```
//!
//! Little endian.
//!
//! * `crc` is the CRC-32C of the other 4092 bytes. A torn page fails this check.
//! * `epoch` is the xor of the two halves of the segment's sequence. A page that an earlier segment left fails this
//!   check.
//! * `page number` counts from the beginning of the zone. A page at the wrong address fails this check.
//! * `first record` is the offset (header included) of the first record that begins in this page; 0xffff if none does.
//!   Records run on over the ends of pages.
//! * `used` is how many bytes of the payload are used.

use crate::device::PAGE_BYTES;

/// Length of a page's header, bytes.
pub(crate) const PAGE_HEADER_BYTES: usize = 16;
/// Length of a page's payload, bytes.
pub(crate) const PAYLOAD_BYTES: usize = PAGE_BYTES - PAGE_HEADER_BYTES;
/// In the header: no record begins in this page.
const NO_RECORD: u16 = 0xffff;

/// The epoch of a segment's pages: it tells them from pages of other segments.
pub(crate) fn epoch_of(sequence: u64) -> u32 {
    sequence as u32 ^ (sequence >> 32) as u32
}

/// The header of a page, without its checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PageHeader {
    /// See [`epoch_of`].
    pub(crate) epoch: u32,
    /// Number of the page in its zone.
    pub(crate) number: u32,
    /// Offset in the payload of the first record that begins in this page.
    pub(crate) first_record: Option<usize>,
    /// Bytes of payload in use.
    pub(crate) used: usize,
}

/// Why a page is not the expected one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PageError {
    /// The checksum does not fit: the page is torn, damaged, or was never written.
    Checksum,
    /// The page is of another segment.
    Epoch,
    /// The page was written to another address.
    Number,
    /// The checksum fits, but the header is not valid: another program has written the page.
    Shape,
}

/// Writes the header of `page`, whose payload is written already.
///
/// # Panics
/// If `page` is not one page long, or the header names bytes outside of it.
pub(crate) fn seal(page: &mut [u8], header: PageHeader) {
    assert!(page.len() == PAGE_BYTES && header.used <= PAYLOAD_BYTES, "a page and its payload");
    let first_record = header.first_record.map_or(NO_RECORD, |at| (at + PAGE_HEADER_BYTES) as u16);
    page[4..8].copy_from_slice(&header.epoch.to_le_bytes());
    page[8..12].copy_from_slice(&header.number.to_le_bytes());
    page[12..14].copy_from_slice(&first_record.to_le_bytes());
    page[14..16].copy_from_slice(&(header.used as u16).to_le_bytes());
    let crc = crc32c::crc32c(&page[4..]);
    page[..4].copy_from_slice(&crc.to_le_bytes());
}

/// Checks a page of any segment, and reads its header.
///
/// # Errors
/// [`PageError::Checksum`] or [`PageError::Shape`].
pub(crate) fn open(page: &[u8]) -> Result<PageHeader, PageError> {
    let (Some((crc, rest)), PAGE_BYTES) = (page.split_first_chunk::<4>(), page.len()) else {
        return Err(PageError::Shape);
    };
    if u32::from_le_bytes(*crc) != crc32c::crc32c(rest) {
        return Err(PageError::Checksum);
    }
    let word = |at: usize| u32::from_le_bytes([page[at], page[at + 1], page[at + 2], page[at + 3]]);
    let half = |at: usize| u16::from_le_bytes([page[at], page[at + 1]]);
    let used = half(14) as usize;
    let first_record = match half(12) {
        NO_RECORD => None,
        at => Some((at as usize).checked_sub(PAGE_HEADER_BYTES).ok_or(PageError::Shape)?),
    };
    if used > PAYLOAD_BYTES || first_record.is_some_and(|at| at >= used) {
        return Err(PageError::Shape);
    }
    Ok(PageHeader { epoch: word(4), number: word(8), first_record, used })
}

/// Checks that a page has this number in its zone, and belongs to the segment with this sequence.
///
/// # Errors
/// The check that failed.
pub(crate) fn check(page: &[u8], sequence: u64, number: u32) -> Result<PageHeader, PageError> {
    let header = open(page)?;
    if header.epoch != epoch_of(sequence) {
        return Err(PageError::Epoch);
    }
    if header.number != number {
        return Err(PageError::Number);
    }
    Ok(header)
}

/// Checks consecutive pages, and moves their payloads together, so that a record that runs over the end of a page is in
/// one piece. Returns the payloads, and the offset in them of the first record that begins in the first page.
///
/// # Errors
/// The check that failed, of the first page that is not as expected.
pub(crate) fn compact(
    pages: &mut [u8],
    sequence: u64,
    first_number: u32,
) -> Result<(&[u8], Option<usize>), PageError> {
    let mut filled = 0;
    let mut first_record = None;
    for index in 0..pages.len() / PAGE_BYTES {
        let start = index * PAGE_BYTES;
        let number = first_number.wrapping_add(index as u32);
        let header = check(&pages[start..start + PAGE_BYTES], sequence, number)?;
        if index == 0 {
            first_record = header.first_record;
        }
        let payload = start + PAGE_HEADER_BYTES;
        pages.copy_within(payload..payload + header.used, filled);
        filled += header.used;
        if header.used < PAYLOAD_BYTES {
            break;
        }
    }
    Ok((&pages[..filled], first_record))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn page(content: &[u8], header: PageHeader) -> Vec<u8> {
        let mut page = vec![0; PAGE_BYTES];
        page[PAGE_HEADER_BYTES..][..content.len()].copy_from_slice(content);
        seal(&mut page, header);
        page
    }

    #[test]
    fn a_page_knows_its_segment_and_its_place() {
        let header =
            PageHeader { epoch: epoch_of(0x1_0000_0007), number: 9, first_record: Some(3), used: 100 };
        let page = page(&[1; 100], header);
        assert_eq!(check(&page, 0x1_0000_0007, 9), Ok(header));
        assert_eq!(check(&page, 7, 9), Err(PageError::Epoch));
        assert_eq!(check(&page, 0x1_0000_0007, 8), Err(PageError::Number));
        assert_eq!(check(&[0; PAGE_BYTES], 0, 0), Err(PageError::Checksum));
    }

    #[test]
    fn payloads_are_moved_together() {
        let first = PageHeader { epoch: 5, number: 3, first_record: Some(80), used: PAYLOAD_BYTES };
        let second = PageHeader { epoch: 5, number: 4, first_record: None, used: 10 };
        let mut pages = page(&[7; PAYLOAD_BYTES], first);
        pages.extend(page(&[8; 10], second));
        let (piece, begins) = compact(&mut pages, 5, 3).unwrap();
        assert_eq!(begins, Some(80));
        assert_eq!(piece, [vec![7; PAYLOAD_BYTES], vec![8; 10]].concat());
    }

    proptest! {
        #[test]
        fn any_flipped_bit_is_seen(bit in 0..PAGE_BYTES * 8) {
            let header = PageHeader { epoch: 5, number: 3, first_record: None, used: 4000 };
            let mut page = page(&[3; 4000], header);
            page[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(open(&page), Err(PageError::Checksum));
        }

        #[test]
        fn no_bytes_make_it_panic(mut bytes in proptest::collection::vec(any::<u8>(), PAGE_BYTES)) {
            let crc = crc32c::crc32c(&bytes[4..]);
            bytes[..4].copy_from_slice(&crc.to_le_bytes());
            let _ = compact(&mut bytes, 1, 1);
        }
    }
}
