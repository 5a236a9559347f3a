//! All entries of a collection, for many changes.

use super::{
    Collection, Entry, HEAD_BYTES, Kind, SCORE_BYTES, TIME_BYTES, TIMED, WIDE, end_bytes, fingerprint,
};
use memchr::memchr_iter;
use std::collections::HashMap;

/// With this number of changes, a map of all fields is made first.
const PLACES_MIN: usize = 64;

/// All entries. Finding a field costs as in a [`Collection`], putting and removing one no more.
#[derive(Clone, Debug)]
pub(super) struct Table<'a> {
    kind: Kind,
    fingerprints: Vec<u8>,
    /// `None`: it was removed.
    entries: Vec<Option<Entry<'a>>>,
    count: usize,
    data_bytes: usize,
    /// Entries with a time.
    timed: usize,
    /// The members of a sorted set do not stand in their order.
    is_unsorted: bool,
    /// Where each field is, if there are many changes.
    places: Option<HashMap<&'a [u8], usize>>,
}

impl<'a> Table<'a> {
    pub(super) fn new(kind: Kind, present: Option<Collection<'a>>, changes: usize) -> Table<'a> {
        let room = present.map_or(0, |present| present.count) + changes;
        let mut table = Table {
            kind,
            fingerprints: Vec::with_capacity(room),
            entries: Vec::with_capacity(room),
            count: 0,
            data_bytes: 0,
            timed: 0,
            is_unsorted: false,
            places: (changes >= PLACES_MIN).then(HashMap::new),
        };
        if let Some(present) = present {
            let marked = present.fingerprints.iter().enumerate();
            for (mark, entry) in marked.filter_map(|(place, mark)| Some((*mark, present.at(place)?))) {
                table.push(mark, entry);
            }
        }
        table
    }

    pub(super) fn of(kind: Kind, entries: impl Iterator<Item = Entry<'a>>) -> Table<'a> {
        let mut table = Table::new(kind, None, 0);
        table.is_unsorted = true;
        entries.for_each(|entry| table.push(fingerprint(entry.field), entry));
        table
    }

    fn push(&mut self, mark: u8, entry: Entry<'a>) {
        self.count += 1;
        self.data_bytes += entry.bytes(self.kind);
        self.timed += usize::from(entry.until_ms != 0);
        if let Some(places) = &mut self.places {
            places.insert(entry.field, self.entries.len());
        }
        self.fingerprints.push(mark);
        self.entries.push(Some(entry));
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn data_bytes(&self) -> usize {
        self.data_bytes
    }

    fn find(&self, mark: u8, field: &[u8]) -> Option<usize> {
        if let Some(places) = &self.places {
            return places.get(field).copied().filter(|place| self.entries[*place].is_some());
        }
        memchr_iter(mark, &self.fingerprints)
            .find(|place| self.entries[*place].is_some_and(|entry| entry.field == field))
    }

    pub(super) fn get(&self, field: &[u8]) -> Option<Entry<'a>> {
        self.entries[self.find(fingerprint(field), field)?]
    }

    pub(super) fn put(&mut self, entry: Entry<'a>) -> Option<Entry<'a>> {
        let mark = fingerprint(entry.field);
        let Some(place) = self.find(mark, entry.field) else {
            self.is_unsorted = true;
            self.push(mark, entry);
            return None;
        };
        let old = self.entries[place].replace(entry)?;
        self.data_bytes = self.data_bytes + entry.bytes(self.kind) - old.bytes(self.kind);
        self.timed = self.timed + usize::from(entry.until_ms != 0) - usize::from(old.until_ms != 0);
        self.is_unsorted |= old.score != entry.score;
        Some(old)
    }

    pub(super) fn remove(&mut self, field: &[u8]) -> Option<Entry<'a>> {
        let place = self.find(fingerprint(field), field)?;
        let old = self.entries[place].take()?;
        self.count -= 1;
        self.data_bytes -= old.bytes(self.kind);
        self.timed -= usize::from(old.until_ms != 0);
        Some(old)
    }

    pub(super) fn write(&mut self, out: &mut Vec<u8>) {
        let kind = self.kind;
        let marks = self.fingerprints.iter().zip(&self.entries);
        let mut rows: Vec<(u8, Entry<'a>)> =
            marks.filter_map(|(mark, entry)| Some((*mark, (*entry)?))).collect();
        if kind == Kind::SortedSet && self.is_unsorted {
            // Those that were there stand in their order: the sort takes them as one run.
            rows.sort_by(|(_, one), (_, other)| one.order(other));
        }
        let (is_wide, is_timed) = (self.data_bytes > usize::from(u16::MAX), self.timed > 0);
        let numbers = 1 + end_bytes(is_wide) + SCORE_BYTES + if is_timed { TIME_BYTES } else { 0 };
        out.reserve(HEAD_BYTES + rows.len() * numbers + self.data_bytes);
        out.push(if is_wide { WIDE } else { 0 } | if is_timed { TIMED } else { 0 });
        out.extend_from_slice(&(rows.len() as u32).to_le_bytes()[..3]);
        out.extend(rows.iter().map(|(mark, _)| *mark));
        let mut end = 0;
        for (_, entry) in &rows {
            end += entry.bytes(kind);
            out.extend_from_slice(&(end as u32).to_le_bytes()[..end_bytes(is_wide)]);
        }
        if kind == Kind::SortedSet {
            rows.iter().for_each(|(_, entry)| out.extend_from_slice(&entry.score.to_le_bytes()));
        }
        if is_timed {
            rows.iter().for_each(|(_, entry)| out.extend_from_slice(&entry.until_ms.to_le_bytes()));
        }
        rows.iter().for_each(|(_, entry)| entry.write(kind, out));
    }
}
