//! One direction of a connection of TCP, put together again: segments may come twice, out of order, or not at all.

use std::collections::BTreeMap;

use super::segment::Segment;

/// Segments that wait for one before them, and their bytes. With more of them the one before is lost.
const EARLY_MAX: usize = 256;
const EARLY_BYTES_MAX: usize = 1 << 20;

/// What comes next in a direction.
pub(super) enum Piece<'a> {
    /// Data.
    Octets(Octets<'a>),
    /// Data that were not captured, of this many bytes.
    Hole(u64),
}

/// The data of a segment.
#[derive(Clone, Copy)]
pub(super) struct Octets<'a> {
    /// When the segment was captured, in microseconds of the unix time.
    pub(super) time_us: u64,
    /// The data.
    pub(super) octets: &'a [u8],
    /// The number of the first byte.
    pub(super) sequence: u32,
    /// The number of the byte that the sender waits for.
    pub(super) acknowledges: Option<u32>,
    /// Whether the data begin with a segment, as they were sent.
    pub(super) begins: bool,
}

/// A segment that waits for one before it.
struct Early {
    time_us: u64,
    octets: Vec<u8>,
    missing_bytes: u32,
    acknowledges: Option<u32>,
}

/// A direction. Places are numbers of bytes, of which the numbers in segments are the lower 32 bits.
#[derive(Default)]
pub(super) struct Stream {
    /// The place of the next byte.
    next: Option<u64>,
    /// The number of the first byte.
    first: u32,
    early: BTreeMap<u64, Early>,
    early_bytes: usize,
    /// The place behind the last byte that came, and what the segment with that byte acknowledges.
    reached: u64,
    answers: Option<u32>,
    /// What the latest segment acknowledges.
    acknowledged: Option<u32>,
    has_data: bool,
    /// Bytes that were not captured because their segments were not.
    pub(super) lost_bytes: u64,
}

impl Stream {
    /// What the sender has got of the other direction.
    pub(super) fn acknowledged(&self) -> Option<u32> {
        self.acknowledged
    }

    /// Whether nothing has come.
    fn is_new(&self) -> bool {
        self.next.is_none()
    }

    /// Whether data have come.
    pub(super) fn has_data(&self) -> bool {
        self.has_data
    }

    /// Whether the first segment of a connection, with this number, is that of another connection than this one.
    pub(super) fn begins_anew(&self, sequence: u32) -> bool {
        !self.is_new() && self.first != sequence.wrapping_add(1)
    }

    /// How many segments wait.
    #[cfg(test)]
    pub(super) fn early_count(&self) -> usize {
        self.early.len()
    }

    /// Takes a segment of this direction, and gives `to` what comes next. `got` = what the other side has acknowledged
    /// of this direction.
    pub(super) fn take(&mut self, segment: &Segment<'_>, got: Option<u32>, to: &mut impl FnMut(Piece<'_>)) {
        let sequence = segment.sequence.wrapping_add(u32::from(segment.is_first));
        // Places are far enough from 0 for numbers before the first one.
        let next = *self.next.get_or_insert_with(|| {
            self.first = sequence;
            u64::from(sequence) + (1 << 32)
        });
        let place = next.saturating_add_signed(i64::from(sequence.wrapping_sub(next as u32) as i32));
        let bytes = segment.octets.len() as u64 + u64::from(segment.missing_bytes);
        self.acknowledged = segment.acknowledges.or(self.acknowledged);
        self.has_data |= bytes > 0;
        if place + bytes > self.reached {
            (self.reached, self.answers) = (place + bytes, segment.acknowledges);
        }
        if bytes > 0 && place + bytes > next {
            if place <= next {
                self.give(place, Early::of(segment, &[]), segment.octets, to);
            } else if self.early.get(&place).is_none_or(|early| early.octets.len() < segment.octets.len()) {
                self.early_bytes += segment.octets.len();
                let replaced = self.early.insert(place, Early::of(segment, segment.octets));
                self.early_bytes -= replaced.map_or(0, |early| early.octets.len());
            }
        }
        self.give_early(got, to);
    }

    /// Gives what waits: no segment follows.
    pub(super) fn finish(&mut self, to: &mut impl FnMut(Piece<'_>)) {
        while self.pass_gap(to) {}
    }

    /// The segment that reached furthest acknowledges all bytes before `sequence` of the other direction, and all of
    /// its own are acknowledged: what follows answers what is asked from there on. What waits before is given up.
    pub(super) fn is_quiet(&mut self, sequence: u32, acknowledges: u32) -> bool {
        if self.is_new() {
            let place = u64::from(acknowledges) + (1 << 32);
            (self.next, self.reached) = (Some(place), place);
            return true;
        }
        let is_quiet = self.reached as u32 == acknowledges && self.answers == Some(sequence);
        if is_quiet {
            self.next = Some(self.reached);
            self.early.clear();
            self.early_bytes = 0;
        }
        is_quiet
    }

    /// Gives the early segments that follow now or have come to the other side, which has acknowledged `got`, and
    /// passes the gaps before those.
    pub(super) fn give_early(&mut self, got: Option<u32>, to: &mut impl FnMut(Piece<'_>)) {
        while let (Some(next), Some((&place, _))) = (self.next, self.early.first_key_value()) {
            let is_got = got.is_some_and(|got| got.wrapping_sub(place as u32) as i32 >= 0);
            let is_full = self.early.len() > EARLY_MAX || self.early_bytes > EARLY_BYTES_MAX;
            if place > next && !is_got && !is_full {
                return;
            }
            self.pass_gap(to);
        }
    }

    /// Gives the first of the early segments, with the gap before it. `false` = there is none.
    fn pass_gap(&mut self, to: &mut impl FnMut(Piece<'_>)) -> bool {
        let (Some(next), Some((place, mut early))) = (self.next, self.early.pop_first()) else {
            return false;
        };
        self.early_bytes -= early.octets.len();
        if place > next {
            self.lost_bytes += place - next;
            self.next = Some(place);
            to(Piece::Hole(place - next));
        }
        let octets = std::mem::take(&mut early.octets);
        self.give(place, early, &octets, to);
        true
    }

    /// Gives what is new of a segment whose place is no later than the next byte.
    fn give(&mut self, place: u64, of: Early, octets: &[u8], to: &mut impl FnMut(Piece<'_>)) {
        let next = self.next.unwrap_or(place);
        let (captured, end) =
            (place + octets.len() as u64, place + octets.len() as u64 + u64::from(of.missing_bytes));
        if end <= next {
            return;
        }
        self.next = Some(end);
        if captured > next {
            to(Piece::Octets(Octets {
                time_us: of.time_us,
                octets: &octets[(next - place) as usize..],
                sequence: next as u32,
                acknowledges: of.acknowledges,
                begins: next == place,
            }));
        }
        if end > captured.max(next) {
            to(Piece::Hole(end - captured.max(next)));
        }
    }
}

impl Early {
    fn of(segment: &Segment<'_>, octets: &[u8]) -> Early {
        Early {
            time_us: segment.time_us,
            octets: octets.to_vec(),
            missing_bytes: segment.missing_bytes,
            acknowledges: segment.acknowledges,
        }
    }
}
