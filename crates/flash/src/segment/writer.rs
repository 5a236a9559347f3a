//! Writes a segment, page after page, in large appends.

use super::foot::Foot;
use super::{ExtentEntry, Gap, HashListBuilder, Head, Kind, SegmentSummary};
use crate::device::{Device, DeviceError, PAGE_BYTES, PageBuffer, ZoneId};
use crate::expiry_histogram::ExpiryHistogram;
use crate::fence::FenceBuilder;
use crate::filter::Filter;
use crate::page::{self, PAGE_HEADER_BYTES, PAYLOAD_BYTES, PageHeader};
use crate::record::Record;

/// A segment that is being written. If a write fails, the segment is abandoned: without a foot it does not exist.
pub(crate) struct Writer<'a> {
    device: &'a dyn Device,
    zone: ZoneId,
    first_page: u32,
    head: Head,
    /// The pages of the next append.
    chunk: PageBuffer,
    /// Complete pages in the chunk.
    chunk_pages: usize,
    /// Pages that were appended to the device.
    appended_pages: u32,
    /// Bytes of payload in the page that is being filled. That page follows the complete ones in the chunk.
    used: usize,
    /// Where the first record begins in the payload of that page.
    first_record: Option<usize>,
    scratch: Vec<u8>,
    foot: Foot,
    fences: FenceBuilder,
    hashes: HashListBuilder,
    /// All hashes so far, if the segment gets a filter.
    filtered: Option<Vec<u64>>,
}

impl<'a> Writer<'a> {
    /// Begins a segment at page `first_page` of the zone, where the write pointer of the zone is. Each append writes
    /// `chunk_pages` pages. About `items` records are expected. `filter` says whether the segment gets a filter.
    pub(crate) fn begin(
        device: &'a dyn Device,
        zone: ZoneId,
        first_page: u32,
        head: Head,
        chunk_pages: usize,
        items: u32,
        filter: bool,
    ) -> Writer<'a> {
        let mut chunk = PageBuffer::new(chunk_pages.max(2));
        head.write(&mut chunk[..PAGE_BYTES], zone, first_page);
        let foot = Foot::new(ExpiryHistogram::new(head.begun_unix_s));
        Writer {
            device,
            zone,
            first_page,
            head,
            chunk,
            chunk_pages: 1,
            appended_pages: 0,
            used: 0,
            first_record: None,
            scratch: Vec::new(),
            foot,
            fences: FenceBuilder::new(),
            hashes: HashListBuilder::new(items),
            filtered: filter.then(|| Vec::with_capacity(items as usize)),
        }
    }

    /// Pages so far, with the head and the page that is being filled.
    pub(crate) fn pages(&self) -> u32 {
        self.appended_pages + self.chunk_pages as u32 + (self.used > 0) as u32
    }

    /// Records so far.
    pub(crate) fn items(&self) -> u32 {
        self.foot.items
    }

    /// Most bytes of memory that a writer takes for a segment with this number of pages and items.
    pub(crate) fn bytes_for(chunk_pages: usize, pages: u64, items: u64, filter: bool) -> u64 {
        let filter = if filter { items * (8 + 18) + Filter::bytes_for(items as usize) as u64 } else { 0 };
        (chunk_pages.max(2) as u64 + 1) * PAGE_BYTES as u64
            + FenceBuilder::bytes_for(pages)
            + 3 * items
            + filter
    }

    /// Adds a record, found under `hash`. In an extents segment the records come in any order, else in ascending
    /// order of hash.
    ///
    /// # Errors
    /// The device fails. The segment is lost then.
    pub(crate) fn push(&mut self, hash: u64, record: &Record<'_>) -> Result<(), DeviceError> {
        let mut bytes = std::mem::take(&mut self.scratch);
        bytes.clear();
        record.encode(self.head.cas_base, &mut bytes);
        self.foot.histogram.add(record.expires_unix_s, bytes.len() as u32);
        self.foot.tombstones += record.tombstone as u32;
        if record.tombstone && self.head.kind == Kind::Log {
            self.foot.which_tombstones.add(self.foot.items, bytes.len() as u64);
        }
        if !record.tombstone {
            self.foot.cas_max = self.foot.cas_max.max(record.cas);
        }
        if record.supersedes_extent {
            let is_bounded = record.tombstone && record.cas != 0;
            let below = if is_bounded { record.cas } else { self.head.sealed_sequence };
            self.foot.superseded_extents.push((hash, below));
        }
        let result = self.push_bytes(hash, &bytes);
        self.scratch = bytes;
        result
    }

    /// Adds bytes that are no record, found under `hash`, in ascending order of hash. For [`Kind::Address`].
    ///
    /// # Errors
    /// The device fails. The segment is lost then.
    pub(crate) fn push_bytes(&mut self, hash: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.make_page()?;
        let data_page = self.appended_pages + self.chunk_pages as u32 - 1;
        let begins = self.used;
        self.first_record.get_or_insert(begins);
        match self.head.kind {
            Kind::Extents => {
                let pages = (begins + bytes.len()).div_ceil(PAYLOAD_BYTES) as u32;
                let page = self.first_page + 1 + data_page;
                self.foot.extents.push(ExtentEntry { hash, page, pages });
            }
            _ => {
                self.fences.push(data_page, hash);
                if begins + bytes.len() > PAYLOAD_BYTES {
                    self.fences.runs_on();
                }
            }
        }
        if self.head.kind == Kind::Log {
            self.hashes.push(hash);
        }
        if let Some(hashes) = &mut self.filtered {
            hashes.push(hash);
        }
        self.foot.items += 1;
        self.foot.record_bytes += bytes.len() as u64;
        self.spill(bytes)
    }

    /// Notes the gaps of the address run that the segment marks the end of.
    pub(crate) fn set_gaps(&mut self, gaps: Vec<Gap>) {
        self.foot.gaps = gaps;
    }

    /// Makes sure that at least one byte fits into the page that is being filled.
    fn make_page(&mut self) -> Result<(), DeviceError> {
        if self.used == PAYLOAD_BYTES {
            self.end_page()?;
        }
        Ok(())
    }

    /// Appends bytes to the payload, over as many pages as it takes.
    fn spill(&mut self, mut bytes: &[u8]) -> Result<(), DeviceError> {
        while !bytes.is_empty() {
            self.make_page()?;
            if self.chunk_pages == self.chunk.pages() {
                self.append()?;
            }
            let (now, later) = bytes.split_at(bytes.len().min(PAYLOAD_BYTES - self.used));
            let at = self.chunk_pages * PAGE_BYTES + PAGE_HEADER_BYTES + self.used;
            self.chunk[at..at + now.len()].copy_from_slice(now);
            self.used += now.len();
            bytes = later;
        }
        Ok(())
    }

    /// Completes the page that is being filled.
    fn end_page(&mut self) -> Result<(), DeviceError> {
        let start = self.chunk_pages * PAGE_BYTES;
        let number = self.first_page + self.appended_pages + self.chunk_pages as u32;
        let page = &mut self.chunk[start..start + PAGE_BYTES];
        page[PAGE_HEADER_BYTES + self.used..].fill(0);
        let epoch = page::epoch_of(self.head.sequence);
        page::seal(page, PageHeader { epoch, number, first_record: self.first_record, used: self.used });
        self.used = 0;
        self.first_record = None;
        self.chunk_pages += 1;
        if self.chunk_pages == self.chunk.pages() {
            self.append()?;
        }
        Ok(())
    }

    /// Appends the complete pages to the device.
    fn append(&mut self) -> Result<(), DeviceError> {
        let expected = (self.first_page + self.appended_pages) as u64 * PAGE_BYTES as u64;
        let at = self.device.append(self.zone, &self.chunk[..self.chunk_pages * PAGE_BYTES])?;
        if at != expected {
            return Err(DeviceError::State { zone: self.zone, what: "its write pointer is elsewhere" });
        }
        self.appended_pages += self.chunk_pages as u32;
        self.chunk_pages = 0;
        Ok(())
    }

    /// Writes the foot. The caller syncs the device if the segment is to survive a loss of power.
    ///
    /// # Errors
    /// The device fails. The segment is lost then.
    pub(crate) fn finish(mut self) -> Result<SegmentSummary, DeviceError> {
        if self.used > 0 {
            self.end_page()?;
        }
        self.foot.data_pages = self.appended_pages + self.chunk_pages as u32 - 1;
        self.foot.fences = std::mem::take(&mut self.fences).finish(self.foot.data_pages);
        self.foot.filter = self.filtered.take().map(|hashes| Filter::build(&hashes));
        self.foot.hashes = std::mem::replace(&mut self.hashes, HashListBuilder::new(1)).finish();
        let bytes = self.foot.to_pages_of_bytes();
        for page in bytes.chunks(PAYLOAD_BYTES) {
            self.spill(page)?;
            self.end_page()?;
        }
        if self.chunk_pages > 0 {
            self.append()?;
        }
        Ok(self.foot.into_summary(self.head, self.zone, self.first_page, self.appended_pages))
    }
}
