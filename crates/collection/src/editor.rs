//! Making the next value of a collection.

use super::table::Table;
use super::{Collection, ENTRIES_MAX, Entry, HEAD_BYTES, Kind, SCORE_BYTES, WIDE, end_bytes, fingerprint};
use std::ops::Range;

/// The entries of the next value: those that were there, and what is put and removed.
///
/// Most commands change one entry. The next value is then made of pieces of the present one. For more changes, all
/// entries are put into a table first.
#[derive(Clone, Debug)]
pub struct Editor<'a> {
    kind: Kind,
    present: Option<Collection<'a>>,
    changes: Changes<'a>,
}

#[derive(Clone, Debug)]
enum Changes<'a> {
    /// One entry, or none: the one at a place goes, and another comes.
    One(Option<usize>, Option<Entry<'a>>),
    Many(Table<'a>),
}

impl<'a> Editor<'a> {
    /// Begins with the entries of a collection, or with none. `changes`: about how many entries will be put
    /// or removed.
    pub fn new(kind: Kind, present: Option<Collection<'a>>, changes: usize) -> Editor<'a> {
        let mut editor = Editor { kind, present, changes: Changes::One(None, None) };
        if changes > 1 || present.is_none_or(|present| present.is_timed()) {
            editor.changes = Changes::Many(Table::new(kind, present, changes));
        }
        editor
    }

    /// Begins with these entries, which have different fields.
    pub fn of(kind: Kind, entries: impl Iterator<Item = Entry<'a>>) -> Editor<'a> {
        Editor { kind, present: None, changes: Changes::Many(Table::of(kind, entries)) }
    }

    /// All entries, for another change.
    fn table(&mut self) -> &mut Table<'a> {
        if let Changes::One(gone, new) = self.changes {
            let mut table = Table::new(self.kind, self.present, 1);
            let gone = gone.and_then(|gone| self.present?.at(gone));
            match (gone, new) {
                (_, Some(new)) => _ = table.put(new),
                (Some(gone), None) => _ = table.remove(gone.field),
                (None, None) => {}
            }
            self.changes = Changes::Many(table);
        }
        match &mut self.changes {
            Changes::Many(table) => table,
            Changes::One(..) => unreachable!("it was made a table"),
        }
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        match &self.changes {
            Changes::Many(table) => table.len(),
            Changes::One(gone, new) => {
                let count = self.present.map_or(0, |present| present.count);
                count + usize::from(new.is_some()) - usize::from(gone.is_some())
            }
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a value can hold what there is.
    pub fn fits(&self) -> bool {
        self.len() <= ENTRIES_MAX && u32::try_from(self.data_bytes()).is_ok()
    }

    /// Bytes of the entries themselves.
    fn data_bytes(&self) -> usize {
        match (&self.changes, self.present) {
            (Changes::Many(table), _) => table.data_bytes(),
            (Changes::One(gone, new), Some(present)) => {
                let gone = gone.map_or(0, |gone| present.span(gone).len());
                present.data.len().saturating_sub(gone) + new.map_or(0, |new| new.bytes(self.kind))
            }
            (Changes::One(..), None) => 0,
        }
    }

    /// The entry of a field.
    pub fn get(&self, field: &[u8]) -> Option<Entry<'a>> {
        match &self.changes {
            Changes::Many(table) => table.get(field),
            Changes::One(_, Some(new)) if new.field == field => Some(*new),
            Changes::One(gone, _) => {
                let place = self.present?.find(field).filter(|place| Some(*place) != *gone)?;
                self.present?.at(place)
            }
        }
    }

    /// Puts an entry in the place of that of the same field, or adds it. Returns the one before. The score is a
    /// number.
    pub fn put(&mut self, entry: Entry<'a>) -> Option<Entry<'a>> {
        match (&mut self.changes, self.present) {
            (Changes::One(gone @ None, new @ None), Some(present)) if entry.until_ms == 0 => {
                (*gone, *new) = (present.find(entry.field), Some(entry));
                gone.and_then(|gone| present.at(gone))
            }
            _ => self.table().put(entry),
        }
    }

    /// Removes a field. Returns what it had.
    pub fn remove(&mut self, field: &[u8]) -> Option<Entry<'a>> {
        match (&mut self.changes, self.present) {
            (Changes::One(gone @ None, None), Some(present)) => {
                *gone = present.find(field);
                gone.and_then(|gone| present.at(gone))
            }
            _ => self.table().remove(field),
        }
    }

    /// Appends the value to `out`.
    pub fn write(mut self, out: &mut Vec<u8>) {
        let is_as_wide =
            |present: &Collection<'_>| present.is_wide == (self.data_bytes() > usize::from(u16::MAX));
        match (&self.changes, self.present.filter(is_as_wide)) {
            (Changes::One(None, None), Some(present)) => out.extend_from_slice(present.value),
            (Changes::One(Some(gone), None), Some(present)) => splice(&present, *gone..gone + 1, None, out),
            (Changes::One(gone, Some(new)), Some(present)) => {
                let at = match self.kind {
                    Kind::SortedSet => present.partition(|entry| entry.order(new).is_lt()),
                    _ => gone.unwrap_or(present.count),
                };
                match gone {
                    None => splice(&present, at..at, Some(new), out),
                    Some(gone) if (*gone..=gone + 1).contains(&at) => {
                        splice(&present, *gone..gone + 1, Some(new), out);
                    }
                    // It moves to another place.
                    Some(gone) => {
                        let mut rest = Vec::new();
                        splice(&present, *gone..gone + 1, None, &mut rest);
                        let at = if at > *gone { at - 1 } else { at };
                        if let Some(rest) = Collection::read(self.kind, &rest, 0) {
                            splice(&rest, at..at, Some(new), out);
                        }
                    }
                }
            }
            _ => self.table().write(out),
        }
    }
}

/// Appends a collection in which entries are missing, and another stands in their place. The ends are as wide as they
/// were, and no field has a time.
fn splice(present: &Collection<'_>, gone: Range<usize>, new: Option<&Entry<'_>>, out: &mut Vec<u8>) {
    let (kind, count, width) = (present.kind, present.count, end_bytes(present.is_wide));
    let rows = count - gone.len() + usize::from(new.is_some());
    let new_bytes = new.map_or(0, |new| new.bytes(kind));
    let span = present.spans(gone.clone());
    out.reserve(HEAD_BYTES + rows * (1 + width + SCORE_BYTES) + present.data.len() + new_bytes);
    out.push(if present.is_wide { WIDE } else { 0 });
    out.extend_from_slice(&(rows as u32).to_le_bytes()[..3]);
    out.extend_from_slice(&present.fingerprints[..gone.start]);
    out.extend(new.map(|new| fingerprint(new.field)));
    out.extend_from_slice(&present.fingerprints[gone.end..]);
    out.extend_from_slice(&present.ends[..gone.start * width]);
    let end = span.start + new_bytes;
    if new.is_some() {
        out.extend_from_slice(&(end as u32).to_le_bytes()[..width]);
    }
    let behind = out.len();
    out.extend_from_slice(&present.ends[gone.end * width..]);
    move_ends(&mut out[behind..], end.wrapping_sub(span.end), present.is_wide);
    if kind == Kind::SortedSet {
        out.extend_from_slice(&present.scores[..gone.start * SCORE_BYTES]);
        new.iter().for_each(|new| out.extend_from_slice(&new.score.to_le_bytes()));
        out.extend_from_slice(&present.scores[gone.end * SCORE_BYTES..]);
    }
    out.extend_from_slice(present.data.get(..span.start).unwrap_or_default());
    new.iter().for_each(|new| new.write(kind, out));
    out.extend_from_slice(present.data.get(span.end..).unwrap_or_default());
}

/// Moves ends by a number of bytes, which may be one below 0 that has wrapped around.
fn move_ends(ends: &mut [u8], by: usize, are_wide: bool) {
    match are_wide {
        _ if by == 0 => {}
        true => ends.as_chunks_mut().0.iter_mut().for_each(|end| {
            *end = u32::from_le_bytes(*end).wrapping_add(by as u32).to_le_bytes();
        }),
        false => ends.as_chunks_mut().0.iter_mut().for_each(|end| {
            *end = u16::from_le_bytes(*end).wrapping_add(by as u16).to_le_bytes();
        }),
    }
}
