//! Merges segments of the log into a generation, in order of hash, in steps.
//!
//! Of every key the newest version stays, unless it has expired or is not worth keeping; where such a version, or a
//! tombstone, hides something older that may still be there, a tombstone stays in its place. Nothing is changed until the
//! result is installed: a merge may be given up at any point, and all that is left of it are zones to erase.

mod addresses;
mod output;
mod source;
#[cfg(test)]
mod tests;

use crate::address::AddressRun;
use crate::device::{Device, DeviceError, ZoneId};
use crate::generation::{Generation, List, MergeOutputs};
use crate::hit_bits::HitBits;
use crate::record::Record;
use crate::segment::{Head, Kind, Run, SegmentFacts};
use addresses::Addresses;
use larder_item::KeyHasher;
use output::Output;
use source::Source;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Where a segment may be written: from this page of the zone, which is where it ends so far, so many pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Room {
    /// The zone.
    pub(crate) zone: ZoneId,
    /// Its first page that is free.
    pub(crate) first_page: u32,
    /// Pages that may be used.
    pub(crate) pages: u32,
}

/// Gives a merge what it needs.
pub(crate) trait Rooms {
    /// Room for a segment of this kind, if there is some now. Zones with segments of two generations cannot be dropped with
    /// either: a merge's first segment of a kind gets a fresh zone.
    fn room(&mut self, kind: Kind) -> Option<Room>;

    /// A sequence for another segment.
    fn sequence(&mut self) -> u64;

    /// A segment is complete: its room ends behind it. (An empty one may follow in the same room.)
    fn written(&mut self, facts: &SegmentFacts);
}

/// A segment of the log to be merged.
#[derive(Clone, Copy)]
pub(crate) struct Input<'a> {
    /// Its pages.
    pub(crate) run: Run,
    /// See [`Head`].
    pub(crate) sealed_sequence: u64,
    /// Which of its records were read.
    pub(crate) hits: Option<&'a HitBits>,
}

/// How to merge.
#[derive(Clone, Copy)]
pub(crate) struct Settings<'a> {
    /// Of all segments.
    pub(crate) device: &'a dyn Device,
    /// Of all keys.
    pub(crate) hasher: &'a KeyHasher,
    /// What heads say.
    pub(crate) device_uuid: [u8; 16],
    /// What is the time, unix seconds.
    pub(crate) now_unix_s: u32,
    /// What expires within so many seconds is as good as expired.
    pub(crate) cutoff_s: u32,
    /// How much of what is alive stays, percent; what was read stays in any case.
    pub(crate) keep_percent: u8,
    /// Whether an extent of this hash may lie dead on the device: a record that says so (supersedes it) stays, or leaves a
    /// tombstone, while one does. Asked for such records only.
    pub(crate) dead_extents: &'a dyn Fn(u64) -> bool,
    /// Pages of one read of one input.
    pub(crate) read_pages: u32,
    /// Pages of one append.
    pub(crate) write_pages: usize,
}

/// What a merge did, in records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct MergeCounts {
    /// Read.
    pub(crate) read: u64,
    /// Written again.
    pub(crate) kept: u64,
    /// Bytes of them.
    pub(crate) kept_bytes: u64,
    /// Kept ones that had been read.
    pub(crate) warm: u64,
    /// Dropped: there was a newer version.
    pub(crate) superseded: u64,
    /// Dropped: expired, or about to.
    pub(crate) expired: u64,
    /// Dropped: cold, and more than the share that is kept.
    pub(crate) cold: u64,
    /// Tombstones that stay.
    pub(crate) tombstones_kept: u64,
    /// Tombstones that hide nothing any more.
    pub(crate) tombstones_dropped: u64,
    /// Tombstones left in place of a dropped record.
    pub(crate) tombstones_left: u64,
    /// Pages read of the inputs.
    pub(crate) pages_read: u64,
    /// Pages that could not be read.
    pub(crate) pages_damaged: u64,
}

/// How far a merge has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    /// Another step.
    Working,
    /// Another step when there is room for a segment of this kind.
    NeedsRoom(Kind),
    /// Everything is written: sync the device, then install.
    Done,
}

/// What came out.
pub(crate) struct Merged {
    /// The generation; `None` if nothing was worth keeping.
    pub(crate) generation: Option<Generation>,
    /// The address run, if one was wanted and not empty.
    pub(crate) address: Option<AddressRun>,
    /// Ranges of hashes of which newer versions may have been lost to damaged pages: see
    /// [`crate::generation::Generations::install`].
    pub(crate) voids: Vec<RangeInclusive<u64>>,
    /// What was done.
    pub(crate) counts: MergeCounts,
}

/// Hashes lost to a damaged page of input `age`: what older inputs have of them may be stale.
struct Void {
    age: usize,
    hashes: RangeInclusive<u64>,
}

#[derive(PartialEq, Eq)]
enum Stage {
    Records,
    Addresses,
    Ending,
    Done,
}

/// A merge. See the module.
pub(crate) struct Merge<'a> {
    settings: Settings<'a>,
    /// The older generations, as they were when it began; what has been dropped since hides nothing, and is no harm.
    older: Arc<List>,
    number: u64,
    sources: Vec<Source<'a>>,
    /// Sources that have a record: the least hash first, of one hash the newest first.
    heads: BinaryHeap<Reverse<(u64, Reverse<usize>)>>,
    voids: Vec<Void>,
    /// Voids of rescanned generations.
    old_voids: Vec<RangeInclusive<u64>>,
    /// Keys and parts of the current hash that were seen.
    seen: Vec<(Vec<u8>, u32)>,
    seen_len: usize,
    output: Output<'a>,
    addresses: Option<Addresses<'a>>,
    live: u64,
    counts: MergeCounts,
    stage: Stage,
}

impl<'a> Merge<'a> {
    /// Of the oldest segments of the log, all of them up to some sequence, oldest first. `older` are the generations now; none
    /// may be added until this one is installed or given up. `number` and `address_number` are sequences never used.
    pub(crate) fn begin(
        settings: Settings<'a>,
        inputs: &[Input<'a>],
        older: Arc<List>,
        wanted: MergeOutputs,
        number: u64,
        address_number: u64,
    ) -> Merge<'a> {
        let sealed_sequence = inputs.iter().map(|input| input.sealed_sequence).max().unwrap_or(0);
        let head = |kind, generation, cas_base| Head {
            kind,
            sequence: generation,
            sealed_sequence,
            device_uuid: settings.device_uuid,
            cas_base,
            generation,
            first_hash: 0,
            last_hash: u64::MAX,
            begun_unix_s: settings.now_unix_s,
        };
        let output = |head, filter| Output::new(settings.device, head, settings.write_pages, filter);
        let cas_base = inputs.iter().map(|input| input.run.cas_base).min().unwrap_or(0);
        let mut old_voids = Vec::new();
        let addresses = wanted.address.then(|| {
            let output = output(head(Kind::Address, address_number, 0), false);
            Addresses::new(settings, &older, number, output, &mut old_voids)
        });
        let source =
            |input: &Input<'a>| Source::new(settings.device, settings.hasher, input, settings.read_pages);
        let mut merge = Merge {
            settings,
            number,
            sources: inputs.iter().map(source).collect(),
            heads: BinaryHeap::new(),
            voids: Vec::new(),
            old_voids,
            seen: Vec::new(),
            seen_len: 0,
            output: output(head(Kind::Generation, number, cas_base), wanted.filter),
            addresses,
            older,
            live: 0,
            counts: MergeCounts::default(),
            stage: Stage::Records,
        };
        (0..inputs.len()).for_each(|age| merge.advance(age));
        merge
    }

    fn advance(&mut self, age: usize) {
        let mut lost = Vec::new();
        let source = &mut self.sources[age];
        let before = source.pages_read();
        if source.advance(&mut lost) {
            self.heads.push(Reverse((source.hash(), Reverse(age))));
        }
        self.counts.pages_read += source.pages_read() - before;
        self.voids.extend(lost.into_iter().map(|hashes| Void { age, hashes }));
    }

    fn pages_read(&self) -> u64 {
        self.counts.pages_read + self.addresses.as_ref().map_or(0, Addresses::pages_read)
    }

    /// Goes on until about `pages` more pages have been read.
    ///
    /// # Errors
    /// The device takes no more: give the merge up. (Pages that cannot be read are no error.)
    pub(crate) fn step(&mut self, pages: u64, rooms: &mut dyn Rooms) -> Result<Progress, DeviceError> {
        let end = self.pages_read() + pages;
        loop {
            if let Some(addresses) = &mut self.addresses
                && !addresses.write(rooms)?
            {
                return Ok(Progress::NeedsRoom(Kind::Address));
            }
            match self.stage {
                Stage::Records => {
                    if let Some(needed) = self.next_hash(end, rooms)? {
                        return Ok(needed);
                    }
                }
                Stage::Addresses => self.drain_addresses(pages),
                Stage::Ending => self.end(rooms)?,
                Stage::Done => return Ok(Progress::Done),
            }
            if self.pages_read() >= end && self.stage != Stage::Done {
                return Ok(Progress::Working);
            }
        }
    }

    /// Merges the records of the next hash; says what is missing.
    fn next_hash(&mut self, end: u64, rooms: &mut dyn Rooms) -> Result<Option<Progress>, DeviceError> {
        let Some(Reverse((hash, _))) = self.heads.peek() else {
            self.stage = Stage::Addresses;
            return Ok(None);
        };
        let hash = *hash;
        if let Some(addresses) = &mut self.addresses {
            let pages = end.saturating_sub(self.counts.pages_read + addresses.pages_read()).max(1);
            if !addresses.advance(Some(hash), pages, &mut self.old_voids) {
                return Ok(None);
            }
        }
        if !self.output.make_room(hash, rooms)? {
            return Ok(Some(Progress::NeedsRoom(self.output.kind())));
        }
        self.seen_len = 0;
        while let Some(Reverse((next, Reverse(age)))) = self.heads.peek().copied()
            && next == hash
        {
            self.heads.pop();
            self.merge_record(age, hash)?;
            self.advance(age);
        }
        Ok(None)
    }

    /// Decides on the current record of an input, newer inputs with the same hash having been asked.
    fn merge_record(&mut self, age: usize, hash: u64) -> Result<(), DeviceError> {
        self.counts.read += 1;
        let lost = self.voids.iter().any(|void| void.age > age && void.hashes.contains(&hash));
        let source = &self.sources[age];
        let Some((record, bytes)) = source.record() else { return Ok(()) };
        let part = record.part.map_or(0, |part| part.number);
        if lost || self.seen[..self.seen_len].iter().any(|(key, number)| key == record.key && *number == part)
        {
            self.counts.superseded += 1;
            return Ok(());
        }
        if self.seen_len == self.seen.len() {
            self.seen.push(Default::default());
        }
        let (key, number) = &mut self.seen[self.seen_len];
        key.clear();
        key.extend_from_slice(record.key);
        *number = part;
        self.seen_len += 1;
        let supersedes_extent = record.supersedes_extent && (self.settings.dead_extents)(hash);
        if !record.tombstone && is_worth(&self.settings, &record, source, &mut self.live, &mut self.counts) {
            self.counts.kept += 1;
            self.counts.kept_bytes += bytes as u64;
            let record = Record { supersedes_extent, ..record };
            return write(&mut self.output, &mut self.addresses, hash, self.number, &record);
        }
        // What a part is found under names its version: there is no other that it could hide.
        let hides = part == 0 && (supersedes_extent || older_may_hold(&self.older, &self.addresses, hash));
        match (record.tombstone, hides) {
            (true, true) => self.counts.tombstones_kept += 1,
            (true, false) => self.counts.tombstones_dropped += 1,
            (false, true) => self.counts.tombstones_left += 1,
            (false, false) => {}
        }
        if hides {
            // Which extents it is about does not change with the segment that says so.
            let below =
                if record.tombstone && record.cas != 0 { record.cas } else { source.sealed_sequence() };
            let cas = if supersedes_extent { below } else { 0 };
            let record = Record { cas, ..Record::tombstone(record.key, supersedes_extent) };
            write(&mut self.output, &mut self.addresses, hash, self.number, &record)?;
        }
        Ok(())
    }

    /// Old entries above all new ones.
    fn drain_addresses(&mut self, pages: u64) {
        let done = match &mut self.addresses {
            Some(addresses) => {
                let done = addresses.advance(None, pages, &mut self.old_voids);
                if done {
                    addresses.close();
                }
                done
            }
            None => true,
        };
        if done {
            self.stage = Stage::Ending;
        }
    }

    fn end(&mut self, rooms: &mut dyn Rooms) -> Result<(), DeviceError> {
        self.output.end(rooms)?;
        if let Some(addresses) = &mut self.addresses {
            addresses.output.end(rooms)?;
        }
        self.counts.pages_damaged = self.sources.iter().map(Source::pages_damaged).sum();
        self.stage = Stage::Done;
        Ok(())
    }

    /// What came out, to be installed; `None` if it is not [`Progress::Done`].
    pub(crate) fn finish(self) -> Option<Merged> {
        if self.stage != Stage::Done {
            return None;
        }
        let voids = self.voids.into_iter().map(|void| void.hashes).chain(self.old_voids).collect();
        Some(Merged {
            generation: Generation::of(self.output.into_segments()),
            address: self.addresses.and_then(Addresses::into_run),
            voids,
            counts: self.counts,
        })
    }

    /// Gives up. Wherever something was written nobody will look: the zones may be erased.
    pub(crate) fn abort(self) -> Vec<Room> {
        let mut rooms = self.output.into_rooms();
        rooms.extend(self.addresses.map(|addresses| addresses.output.into_rooms()).unwrap_or_default());
        rooms
    }
}

/// Whether a version that nothing newer replaces is worth writing again.
fn is_worth(
    settings: &Settings<'_>,
    record: &Record<'_>,
    source: &Source<'_>,
    live: &mut u64,
    counts: &mut MergeCounts,
) -> bool {
    if record.expired(settings.now_unix_s.saturating_add(settings.cutoff_s)) {
        counts.expired += 1;
        return false;
    }
    *live += 1;
    if source.is_warm() {
        counts.warm += 1;
        return true;
    }
    // Evenly over all hashes, so that no range is favoured.
    let room = counts.kept * 100 < *live * settings.keep_percent as u64;
    counts.cold += !room as u64;
    room
}

/// Whether a generation that is older than the merged segments may hold the hash, to which the addresses have advanced.
fn older_may_hold(older: &List, addresses: &Option<Addresses<'_>>, hash: u64) -> bool {
    let unfiltered = || addresses.as_ref().is_none_or(Addresses::unfiltered_may_hold);
    older.filters_may_hold(hash) || older.has_unfiltered() && unfiltered()
}

fn write(
    output: &mut Output<'_>,
    addresses: &mut Option<Addresses<'_>>,
    hash: u64,
    number: u64,
    record: &Record<'_>,
) -> Result<(), DeviceError> {
    output.push(hash, record)?;
    if let Some(addresses) = addresses {
        addresses.push(hash, number);
    }
    Ok(())
}
