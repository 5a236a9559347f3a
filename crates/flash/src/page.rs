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

/// Consecutive pages that were read, from the first one on as far as they are needed. A page is checked when it is
/// joined to those before. Its payload is then moved up to theirs, so that a record that runs over the end of a page is
/// in one piece.
pub(crate) struct Joined<'a> {
    pages: &'a mut [u8],
    sequence: u64,
    first_number: u32,
    /// Pages that are joined.
    count: usize,
    /// The end of the joined payloads in `pages`. They begin behind the header of the first page.
    end: usize,
    /// Whether the payload of the last joined page is full. If not, no page belongs behind it.
    is_full: bool,
}

impl<'a> Joined<'a> {
    /// Checks the first page. Returns it, and the offset in its payload of the first record that begins there.
    ///
    /// # Errors
    /// The check that failed.
    pub(crate) fn first(
        pages: &'a mut [u8],
        sequence: u64,
        first_number: u32,
    ) -> Result<(Joined<'a>, Option<usize>), PageError> {
        let first = pages.get(..PAGE_BYTES).ok_or(PageError::Shape)?;
        let PageHeader { first_record, used, .. } = check(first, sequence, first_number)?;
        let is_full = used == PAYLOAD_BYTES;
        let end = PAGE_HEADER_BYTES + used;
        Ok((Joined { pages, sequence, first_number, count: 1, end, is_full }, first_record))
    }

    /// The payloads of the joined pages.
    pub(crate) fn payload(&self) -> &[u8] {
        &self.pages[PAGE_HEADER_BYTES..self.end]
    }

    /// Joins the next page. Returns whether there is one.
    ///
    /// # Errors
    /// The check that failed.
    pub(crate) fn join_next(&mut self) -> Result<bool, PageError> {
        let start = self.count * PAGE_BYTES;
        let Some(page) = self.pages.get(start..start + PAGE_BYTES).filter(|_| self.is_full) else {
            return Ok(false);
        };
        let header = check(page, self.sequence, self.first_number.wrapping_add(self.count as u32))?;
        let payload = start + PAGE_HEADER_BYTES;
        self.pages.copy_within(payload..payload + header.used, self.end);
        self.count += 1;
        self.end += header.used;
        self.is_full = header.used == PAYLOAD_BYTES;
        Ok(true)
    }

    /// The payloads of the joined pages, for as long as the memory of the pages lives.
    pub(crate) fn into_payload(self) -> &'a [u8] {
        let Joined { pages, end, .. } = self;
        &pages[PAGE_HEADER_BYTES..end]
    }
}

/// Checks consecutive pages, and joins them all. Returns their payloads, and the offset in them of the first record
/// that begins in the first page.
///
/// # Errors
/// The check that failed, of the first page that is not as expected.
pub(crate) fn compact(
    pages: &mut [u8],
    sequence: u64,
    first_number: u32,
) -> Result<(&[u8], Option<usize>), PageError> {
    let (mut joined, first_record) = Joined::first(pages, sequence, first_number)?;
    while joined.join_next()? {}
    Ok((joined.into_payload(), first_record))
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

    #[test]
    fn a_page_is_checked_when_it_is_joined() {
        let header = |number| PageHeader { epoch: 5, number, first_record: Some(0), used: PAYLOAD_BYTES };
        let mut pages = [page(&[7; PAYLOAD_BYTES], header(3)), page(&[8; PAYLOAD_BYTES], header(4))].concat();
        pages[PAGE_BYTES + 100] ^= 1;
        let (mut joined, begins) = Joined::first(&mut pages, 5, 3).expect("the first page is whole");
        assert_eq!((begins, joined.payload()), (Some(0), &[7; PAYLOAD_BYTES][..]));
        assert_eq!(joined.join_next(), Err(PageError::Checksum));
        assert_eq!(compact(&mut pages, 5, 3), Err(PageError::Checksum));
        let (mut joined, _) = Joined::first(&mut pages[..PAGE_BYTES], 5, 3).expect("the first page is whole");
        assert_eq!(joined.join_next(), Ok(false), "no page is left");
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
