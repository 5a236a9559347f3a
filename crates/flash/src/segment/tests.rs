use super::*;
use crate::device::{Device, PAGE_BYTES, PageBuffer, ZoneId};
use crate::page::{self};
use crate::record::{Decoded, Record};
use crate::test_devices::MemoryDevice;
use larder_item::KeyHasher;
use proptest::prelude::*;

const UUID: [u8; 16] = [7; 16];

fn head(kind: Kind, sequence: u64) -> Head {
    Head {
        kind,
        sequence,
        sealed_sequence: sequence + 1,
        device_uuid: UUID,
        cas_base: 100,
        generation: 0,
        first_hash: 0,
        last_hash: u64::MAX,
        begun_unix_s: 1000,
    }
}

/// Items as a segment of that kind has them: key, value, expiry, and whether it is a tombstone.
type Items = Vec<(u64, Vec<u8>, Vec<u8>, u32, bool)>;

fn items(hasher: &KeyHasher, lengths: &[(u16, bool)], sorted: bool) -> Items {
    let item = |(n, (length, tombstone)): (usize, &(u16, bool))| {
        let key = format!("key {n}").into_bytes();
        let value = if *tombstone { Vec::new() } else { vec![n as u8; *length as usize] };
        let expires = if n % 3 == 0 && !tombstone { 2000 } else { 0 };
        (hasher.hash(&key).0, key, value, expires, *tombstone)
    };
    let mut items: Items = lengths.iter().enumerate().map(item).collect();
    if sorted {
        items.sort();
    }
    items
}

fn record(item: &(u64, Vec<u8>, Vec<u8>, u32, bool)) -> Record<'_> {
    Record {
        value: &item.2,
        expires_unix_s: item.3,
        cas: if item.4 { 0 } else { 105 },
        tombstone: item.4,
        ..Record::tombstone(&item.1, item.4)
    }
}

fn write(device: &MemoryDevice, head: Head, first_page: u32, items: &Items, filter: bool) -> SegmentSummary {
    let mut writer = Writer::begin(device, ZoneId(2), first_page, head, 4, items.len() as u32, filter);
    for item in items {
        writer.push(item.0, &record(item)).unwrap();
    }
    writer.finish().unwrap()
}

fn scanned(device: &MemoryDevice, hasher: &KeyHasher, summary: &SegmentSummary) -> Items {
    scanned_with(device, hasher, summary, &mut ScanReads::default())
}

fn scanned_with(
    device: &MemoryDevice,
    hasher: &KeyHasher,
    summary: &SegmentSummary,
    reads: &mut ScanReads,
) -> Items {
    let mut scan = Scan::over(device, hasher, Run::of(summary), 3, reads);
    let mut seen = Items::new();
    while let Some(Scanned { hash, record, .. }) = scan.next().unwrap() {
        seen.push((
            hash,
            record.key.to_vec(),
            record.value.to_vec(),
            record.expires_unix_s,
            record.tombstone,
        ));
    }
    seen
}

#[track_caller]
fn assert_same(read: &SegmentSummary, written: &SegmentSummary) {
    assert_eq!(format!("{read:?}"), format!("{written:?}"));
}

proptest! {
    #[test]
    fn what_is_written_is_scanned_and_found_by_its_fences(
        lengths in proptest::collection::vec((0u16..2000, proptest::bool::weighted(0.1)), 1..120),
        filter: bool,
    ) {
        let hasher = KeyHasher::with_seed(3);
        let device = MemoryDevice::new(3, 256);
        let items = items(&hasher, &lengths, true);
        let summary = write(&device, head(Kind::Log, 9), 0, &items, filter);
        prop_assert_eq!(&scanned(&device, &hasher, &summary), &items);
        prop_assert!(summary.pages - 1 - summary.data_pages
            <= foot_pages_max(summary.data_pages, summary.items, summary.tombstones, 0) + filter as u32);
        for item in &items {
            let pages = summary.fences.page(item.0);
            let first = summary.first_page + 1 + pages.first;
            let mut buffer = PageBuffer::new(pages.count as usize);
            device.read(ZoneId(2), first as u64 * PAGE_BYTES as u64, &mut buffer).unwrap();
            let (mut piece, begins) = page::compact(&mut buffer, 9, first).unwrap();
            piece = &piece[begins.unwrap()..];
            let mut found = false;
            while let Decoded::Whole(record, bytes) = Record::decode(piece, 100) {
                found |= record.key == item.1;
                piece = &piece[bytes..];
                if piece.is_empty() { break }
            }
            prop_assert!(found);
            prop_assert!(summary.filter.as_ref().is_none_or(|filter| filter.may_contain(item.0)));
        }
        let listed_hashes: Vec<u64> = items.iter().map(|item| listed(item.0)).collect();
        prop_assert_eq!(summary.hashes.iter().collect::<Vec<_>>(), listed_hashes);
    }

    #[test]
    fn heads_and_feet_are_found_again(
        lengths in proptest::collection::vec((0u16..3000, proptest::bool::weighted(0.1)), 1..80),
        knows_end: bool,
    ) {
        let hasher = KeyHasher::with_seed(3);
        let device = MemoryDevice::new(3, 400);
        let first = write(&device, head(Kind::Log, 9), 0, &items(&hasher, &lengths, true), true);
        let extents = items(&hasher, &lengths, false);
        let second = write(&device, head(Kind::Extents, 10), first.pages, &extents, false);
        prop_assert_eq!(second.extents.len(), lengths.len());
        let end = if knows_end { first.pages + second.pages } else { 400 };
        let mut at = 0;
        for written in [&first, &second] {
            let head = read_head(&device, ZoneId(2), at).unwrap().unwrap();
            prop_assert_eq!(&head, &written.head);
            let read = read_foot(&device, ZoneId(2), &head, at, end).unwrap().unwrap();
            assert_same(&read, written);
            at += read.pages;
        }
        prop_assert_eq!(scanned(&device, &hasher, &second), extents);
    }
}

/// A device on which the segment was written but for its last pages, or with one bit wrong.
fn copy_of(device: &MemoryDevice, pages: u32, flip: Option<u32>) -> MemoryDevice {
    let copy = MemoryDevice::new(3, 400);
    let mut buffer = PageBuffer::new(pages as usize);
    device.read(ZoneId(2), 0, &mut buffer).unwrap();
    if let Some(page) = flip {
        buffer[page as usize * PAGE_BYTES + 2000] ^= 1;
    }
    copy.append(ZoneId(2), &buffer).unwrap();
    copy
}

#[test]
fn a_segment_without_its_whole_foot_does_not_exist() {
    let hasher = KeyHasher::with_seed(3);
    let device = MemoryDevice::new(3, 400);
    let items = items(&hasher, &[(1000, false); 60], true);
    let summary = write(&device, head(Kind::Log, 9), 0, &items, true);
    for pages in 1..summary.pages {
        let cut = copy_of(&device, pages, None);
        let head = read_head(&cut, ZoneId(2), 0).unwrap().unwrap();
        assert!(read_foot(&cut, ZoneId(2), &head, 0, 400).unwrap().is_none(), "{pages} of {}", summary.pages);
    }
    for page in summary.data_pages + 1..summary.pages {
        let rotten = copy_of(&device, summary.pages, Some(page));
        assert!(read_foot(&rotten, ZoneId(2), &summary.head, 0, 400).unwrap().is_none());
    }
    assert!(read_head(&copy_of(&device, 1, Some(0)), ZoneId(2), 0).unwrap().is_none());
}

#[test]
fn a_rotten_page_ends_a_scan() {
    let hasher = KeyHasher::with_seed(3);
    let device = MemoryDevice::new(3, 400);
    let summary = write(&device, head(Kind::Log, 9), 0, &items(&hasher, &[(1000, false); 60], true), false);
    let rotten = copy_of(&device, summary.pages, Some(5));
    let mut reads = ScanReads::default();
    let mut scan = Scan::over(&rotten, &hasher, Run::of(&summary), 2, &mut reads);
    let error = loop {
        match scan.next() {
            Ok(record) => assert!(record.is_some(), "the damage was not seen"),
            Err(error) => break error,
        }
    };
    assert_eq!(error, ScanError::Page(page::PageError::Checksum));
}

#[test]
fn a_read_of_a_scan_that_was_given_up_is_not_taken_for_one_of_the_next() {
    let hasher = KeyHasher::with_seed(3);
    let device = MemoryDevice::new(3, 400);
    let written = items(&hasher, &[(1000, false); 60], true);
    let summary = write(&device, head(Kind::Log, 9), 0, &written, false);
    let mut reads = ScanReads::default();
    for taken in [1, 20, 40] {
        let mut scan = Scan::over(&device, &hasher, Run::of(&summary), 3, &mut reads);
        (0..taken).for_each(|_| assert!(scan.next().is_ok_and(|record| record.is_some())));
        reads.rest();
        assert_eq!(scanned_with(&device, &hasher, &summary, &mut reads), written);
    }
}

#[test]
fn a_head_in_another_place_is_none() {
    let device = MemoryDevice::new(3, 400);
    write(&device, head(Kind::Log, 9), 0, &Items::new(), false);
    let mut buffer = PageBuffer::new(1);
    device.read(ZoneId(2), 0, &mut buffer).unwrap();
    device.append(ZoneId(1), &buffer).unwrap();
    assert!(read_head(&device, ZoneId(1), 0).unwrap().is_none());
    assert!(read_head(&device, ZoneId(2), 0).unwrap().is_some());
}
