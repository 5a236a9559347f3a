//! A page of a segment: what one checksum covers.
//!
//! ```text
//! 0      4        8             12             14     16                                4096
//! +------+--------+-------------+--------------+------+----------------------------------+
//! | crc  | epoch  | page number | first record | used | payload, 4080 bytes              |
//! +------+--------+-------------+--------------+------+----------------------------------+
//! ```
//!
//! Little endian. `crc` is the CRC-32C of the other 4092 bytes; `epoch` is the sequence of the segment, its halves xored;
//! the page number counts from the beginning of the zone. A torn page fails by its crc, one that an earlier segment left by
//! its epoch, one that was written or read at the wrong place by its number. Records run on over the ends of pages:
//! `first record` is where in the page (header included) the first one begins that begins here.

use crate::device::PAGE_BYTES;

/// Bytes of the page's own header.
pub(crate) const PAGE_HEADER_BYTES: usize = 16;
/// Bytes of a page that belong to its content.
pub(crate) const PAYLOAD_BYTES: usize = PAGE_BYTES - PAGE_HEADER_BYTES;
/// In the header: no record begins in this page.
const NO_RECORD: u16 = 0xffff;

/// What the pages of a segment carry to be told from those of any other.
pub(crate) fn epoch_of(sequence: u64) -> u32 {
    sequence as u32 ^ (sequence >> 32) as u32
}

/// What a page says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PageHeader {
    /// See [`epoch_of`].
    pub(crate) epoch: u32,
    /// Number of the page in its zone.
    pub(crate) number: u32,
    /// Where in the payload the first record begins that begins in this page.
    pub(crate) first_record: Option<usize>,
    /// Bytes of payload in use.
    pub(crate) used: usize,
}

/// Why a page is not what was wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PageError {
    /// The checksum does not fit: torn, rotten, or never written.
    Checksum,
    /// A page of another segment.
    Epoch,
    /// A page from another place.
    Number,
    /// The checksum fits, but the numbers make no sense: written by something else.
    Shape,
}

/// Writes the header of `page`, whose payload is in place.
///
/// # Panics
/// If `page` is not one page, or the header's numbers lie outside of it: a mistake of the caller.
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

/// Checks a page by itself, whichever segment it is of.
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

/// Checks that a page is page `number` of its zone, and of the segment with this sequence.
///
/// # Errors
/// What is wrong with it.
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

/// Checks consecutive pages and moves their payloads together, so that records that run over page ends lie in one piece.
/// Returns that piece, and where in it the first record begins that begins in the first page.
///
/// # Errors
/// The first page that is not right.
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

#[cfg(test)]
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
