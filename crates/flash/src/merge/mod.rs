//! Merges the oldest segments of the log into a generation: in order of hash, in steps of bounded work.
//!
//! Of every key the newest version is kept, unless it has expired or is too cold. A version that is dropped may hide
//! an older version in an older generation. In that case, and for a tombstone that still hides something, a tombstone
//! is written.
//!
//! A merge may collect the oldest generations as well, or the part of the oldest with the lowest hashes: of their
//! records those stay that nothing newer supersedes. The address run says what newer generations have. Where another
//! key has the same prefix it says so by mistake, and an item is lost: of 1,000 million items, one in 16,000.
//!
//! A merge changes nothing until its result is installed ([`crate::generation::Generations::install`]). It can be
//! given up at any time ([`Merge::abort`]); then only the zones that it wrote to have to be erased.
//!
//! * `source.rs` reads one input segment.
//! * `output.rs` writes the segments of the result.
//! * `addresses.rs` writes the address run beside the generation.

mod addresses;
mod output;
mod settings;
mod source;
#[cfg(all(test, not(loom)))]
mod tests;

pub(crate) use output::{Room, Rooms};
pub(crate) use settings::Settings;
pub(crate) use source::Input;

use crate::address::{AddressCounts, AddressRun};
use crate::device::{DeviceError, ZoneId};
use crate::generation::{Generation, List, MergeOutputs};
use crate::hit_bits::HitBits;
use crate::record::Record;
use crate::segment::{Gap, Head, Kind};
use addresses::Addresses;
use output::Output;
use source::Source;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// What a merge did. Numbers of records, where nothing else is said.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct MergeCounts {
    /// Records that were read.
    pub(crate) read: u64,
    /// Records that were written again.
    pub(crate) kept: u64,
    /// Bytes of the records that were written again.
    pub(crate) kept_bytes: u64,
    /// Records that were kept because they had been read since they were written.
    pub(crate) warm: u64,
    /// Records that were dropped because there was a newer version.
    pub(crate) superseded: u64,
    /// Records that were dropped because they had expired, were about to, or were deleted by prefix.
    pub(crate) expired: u64,
    /// Records that were dropped because they were cold, and the share that is kept was exceeded.
    pub(crate) cold: u64,
    /// Tombstones that were written again.
    pub(crate) tombstones_kept: u64,
    /// Tombstones that were dropped because they hide nothing any more.
    pub(crate) tombstones_dropped: u64,
    /// Tombstones that were written in place of a dropped record.
    pub(crate) tombstones_left: u64,
    /// Pages of the inputs that were read.
    pub(crate) pages_read: u64,
    /// Pages of the inputs that could not be read.
    pub(crate) pages_damaged: u64,
}

/// How far a merge has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    /// Call [`Merge::step`] again.
    Working,
    /// Call [`Merge::step`] again when there is space for a segment of this kind.
    NeedsRoom(Kind),
    /// Everything is written: sync the device, then install the result.
    Done,
}

/// The result of a merge.
pub(crate) struct Merged {
    /// The new generation; `None` if no record was kept.
    pub(crate) generation: Option<Generation>,
    /// The address run, if one was wanted and it has entries.
    pub(crate) address: Option<AddressRun>,
    /// Ranges of hashes of which a newer version may have been lost to a damaged page: see
    /// [`crate::generation::Generations::install`].
    pub(crate) voids: Vec<RangeInclusive<u64>>,
    /// The counters of the merge.
    pub(crate) counts: MergeCounts,
    /// What was counted among the entries of the address run, if there is one.
    pub(crate) addresses: Option<AddressCounts>,
    /// Whether a record of a collected generation went that may have said that an extent is superseded, and nothing
    /// else says so for sure.
    pub(crate) lost_marks: bool,
}

/// What a merge collects of the oldest generations.
#[derive(Clone, Copy, Default)]
pub(crate) struct Collected {
    /// The number of inputs, the first ones, that are chunks of generations.
    pub(crate) inputs: usize,
    /// The number of the generation of which only a part is collected, and the first hash that stays.
    pub(crate) below: Option<(u64, u64)>,
}

impl Collected {
    /// The inputs of a merge that collects the chunks in these zones: the oldest generations, from the lowest hashes
    /// on.
    pub(crate) fn inputs<'a>(
        list: &List,
        zones: &HashSet<ZoneId>,
        hits: &'a HitBits,
    ) -> (Vec<Input<'a>>, Collected) {
        let (mut inputs, mut below) = (Vec::new(), None);
        for generation in list.newest_first().iter().rev() {
            let age = generation.number();
            let (taken, rest): (Vec<_>, Vec<_>) =
                generation.ranges().partition(|(chunk, _)| zones.contains(&chunk.run.zone));
            if let (false, Some((first, _))) = (taken.is_empty(), rest.first()) {
                below = Some((age, first.first_hash));
            }
            inputs.extend(taken.into_iter().map(|(chunk, last_hash)| Input {
                run: chunk.run,
                age,
                hashes: (chunk.first_hash, last_hash),
                sealed_sequence: chunk.sealed_sequence,
                hits: Some(hits),
            }));
        }
        let collected = Collected { inputs: inputs.len(), below };
        (inputs, collected)
    }
}

/// A range of hashes that was lost to a damaged page of the input with this index. The versions that older inputs
/// have of these hashes may be stale, so they are dropped.
struct Void {
    age: usize,
    hashes: RangeInclusive<u64>,
}

/// The stages of a merge, in their order.
#[derive(PartialEq, Eq)]
enum Stage {
    /// The records of the inputs are merged.
    Records,
    /// The old address entries above the last new record are copied.
    Addresses,
    /// The last segments are ended.
    Ending,
    Done,
}

/// Keys and part numbers of the current hash that were merged already.
#[derive(Default)]
struct Seen {
    /// The first `len` of them count. The rest keep their allocations for later hashes.
    keys: Vec<(Vec<u8>, u32)>,
    len: usize,
}

impl Seen {
    fn has(&self, key: &[u8], part: u32) -> bool {
        self.keys[..self.len].iter().any(|(seen, number)| seen == key && *number == part)
    }

    fn add(&mut self, key: &[u8], part: u32) {
        if self.len == self.keys.len() {
            self.keys.push(Default::default());
        }
        let (seen, number) = &mut self.keys[self.len];
        seen.clear();
        seen.extend_from_slice(key);
        *number = part;
        self.len += 1;
    }
}

/// What a merge writes.
struct Outputs<'a> {
    /// The number of the new generation.
    number: u64,
    records: Output<'a>,
    addresses: Option<Addresses<'a>>,
}

impl Outputs<'_> {
    /// Writes a record to the new generation, and its address entry.
    fn write(&mut self, hash: u64, record: &Record<'_>) -> Result<(), DeviceError> {
        self.records.push(hash, record)?;
        if let Some(addresses) = &mut self.addresses {
            addresses.push(hash, self.number);
        }
        Ok(())
    }

    /// Ends the last segments. The address run has these gaps.
    fn end(&mut self, rooms: &mut dyn Rooms, gaps: Vec<Gap>) -> Result<(), DeviceError> {
        self.records.end(rooms, Vec::new())?;
        match &mut self.addresses {
            Some(addresses) => addresses.output.end(rooms, gaps),
            None => Ok(()),
        }
    }

    fn into_rooms(self) -> Vec<Room> {
        let mut rooms = self.records.into_rooms();
        rooms.extend(self.addresses.map(|addresses| addresses.output.into_rooms()).unwrap_or_default());
        rooms
    }
}

/// A merge that is under way.
pub(crate) struct Merge<'a> {
    settings: Settings<'a>,
    /// The older generations at the beginning of the merge, without what is collected. A generation that was dropped
    /// since only causes a tombstone that is not needed.
    older: Arc<List>,
    /// The number of sources, the first ones, that are chunks of generations that are collected.
    collected: usize,
    lost_marks: bool,
    /// Records of collected generations that newer records of the merge superseded.
    renewed: u64,
    /// The inputs, oldest first.
    sources: Vec<Source<'a>>,
    /// The sources that have a current record, ordered by its hash. Of equal hashes the newest source comes first.
    queue: BinaryHeap<Reverse<(u64, Reverse<usize>)>>,
    voids: Vec<Void>,
    /// Ranges that were lost in rescanned generations.
    old_voids: Vec<RangeInclusive<u64>>,
    seen: Seen,
    result: Outputs<'a>,
    /// Live records so far, kept or not.
    live: u64,
    counts: MergeCounts,
    stage: Stage,
}

impl<'a> Merge<'a> {
    /// Begins a merge of `inputs`: chunks that are collected, oldest first and in order of hash, and then the oldest
    /// segments of the log, without a gap, oldest first. `older` are the other generations; no generation may be added
    /// until this merge is installed or given up. `number` and `address_number` are sequences that were never used.
    pub(crate) fn begin(
        settings: Settings<'a>,
        (inputs, collected): (&[Input<'a>], Collected),
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
            Addresses::new(settings, &older, (number, collected.below), output, &mut old_voids)
        });
        let source = |(age, input): (usize, &Input<'a>)| {
            let pages = if age < collected.inputs { settings.chunk_read_pages } else { settings.read_pages };
            Source::new(settings.device, settings.hasher, input, pages)
        };
        let mut merge = Merge {
            settings,
            sources: inputs.iter().enumerate().map(source).collect(),
            queue: BinaryHeap::new(),
            voids: Vec::new(),
            old_voids,
            seen: Seen::default(),
            result: Outputs {
                number,
                records: output(head(Kind::Generation, number, cas_base), wanted.filter),
                addresses,
            },
            older,
            collected: collected.inputs,
            lost_marks: false,
            renewed: 0,
            live: 0,
            counts: MergeCounts::default(),
            stage: Stage::Records,
        };
        // A chunk is read from where its range of hashes begins, so that one of each generation is in memory at a time.
        let chunks = inputs.iter().zip(0..collected.inputs);
        merge.queue.extend(chunks.map(|(input, age)| Reverse((input.hashes.0, Reverse(age)))));
        (collected.inputs..inputs.len()).for_each(|age| merge.advance(age));
        merge
    }

    /// Goes to the next record of an input.
    fn advance(&mut self, age: usize) {
        let mut lost = Vec::new();
        let source = &mut self.sources[age];
        let before = source.pages_read();
        if source.advance(&mut lost) {
            self.queue.push(Reverse((source.hash(), Reverse(age))));
        }
        self.counts.pages_read += source.pages_read() - before;
        self.voids.extend(lost.into_iter().map(|hashes| Void { age, hashes }));
    }

    fn pages_read(&self) -> u64 {
        self.counts.pages_read + self.result.addresses.as_ref().map_or(0, Addresses::pages_read)
    }

    /// Works until about `pages` more pages have been read.
    ///
    /// # Errors
    /// The device cannot be written: give the merge up. (Pages that cannot be read are no error.)
    pub(crate) fn step(&mut self, pages: u64, rooms: &mut dyn Rooms) -> Result<Progress, DeviceError> {
        let end = self.pages_read() + pages;
        loop {
            if let Some(addresses) = &mut self.result.addresses
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

    /// Merges all records of the next hash. Returns what the merge has to wait for, if anything.
    fn next_hash(&mut self, end: u64, rooms: &mut dyn Rooms) -> Result<Option<Progress>, DeviceError> {
        let Some(Reverse((hash, _))) = self.queue.peek() else {
            self.stage = Stage::Addresses;
            return Ok(None);
        };
        let hash = *hash;
        let waiting = self.queue.peek().map(|Reverse((_, Reverse(age)))| *age);
        if let Some(age) = waiting.filter(|age| !self.sources[*age].is_begun()) {
            self.queue.pop();
            self.advance(age);
            return Ok(None);
        }
        if let Some(addresses) = &mut self.result.addresses {
            let pages = end.saturating_sub(self.counts.pages_read + addresses.pages_read()).max(1);
            if !addresses.advance(Some(hash), pages, &mut self.old_voids) {
                return Ok(None);
            }
        }
        if !self.result.records.make_room(hash, rooms)? {
            return Ok(Some(Progress::NeedsRoom(self.result.records.kind())));
        }
        self.seen.len = 0;
        while let Some(Reverse((next, Reverse(age)))) = self.queue.peek().copied()
            && next == hash
        {
            self.queue.pop();
            self.merge_record(age, hash)?;
            self.advance(age);
        }
        Ok(None)
    }

    /// Keeps or drops the current record of an input. The records of newer inputs with the same hash were handled
    /// before.
    fn merge_record(&mut self, age: usize, hash: u64) -> Result<(), DeviceError> {
        self.counts.read += 1;
        let lost = self.voids.iter().any(|void| void.age > age && void.hashes.contains(&hash));
        let source = &self.sources[age];
        let Some((record, bytes)) = source.record() else { return Ok(()) };
        let part = record.part.map_or(0, |part| part.number);
        let lost = lost || (self.settings.dropped)(hash, source.age());
        let is_collected = age < self.collected;
        if let (true, Some(addresses)) = (is_collected, &mut self.result.addresses) {
            // Where a part of a generation stays, the new run covers it, and after a crash it may be whole again.
            addresses.push(hash, source.age());
        }
        let is_seen = self.seen.has(record.key, part);
        if lost || is_seen {
            self.counts.superseded += 1;
            self.renewed += (is_collected && is_seen) as u64;
            return Ok(());
        }
        let newer_may_hold = || {
            self.result.addresses.as_ref().is_none_or(Addresses::newer_may_hold)
                || self.old_voids.iter().any(|void| void.contains(&hash))
        };
        if is_collected && newer_may_hold() {
            self.counts.superseded += 1;
            self.lost_marks |= record.supersedes_extent && (self.settings.dead_extents)(hash);
            return Ok(());
        }
        self.seen.add(record.key, part);
        let supersedes_extent = record.supersedes_extent && (self.settings.dead_extents)(hash);
        if !record.tombstone && is_worth(&self.settings, &record, source, &mut self.live, &mut self.counts) {
            self.counts.kept += 1;
            self.counts.kept_bytes += bytes as u64;
            let record = Record { supersedes_extent, ..record };
            return self.result.write(hash, &record);
        }
        // The key of a part contains the version of its item, so a part never hides an older record.
        // Nothing is older than what is collected.
        let older = || !is_collected && older_may_hold(&self.older, &self.result.addresses, hash);
        let hides = part == 0 && (supersedes_extent || older());
        match (record.tombstone, hides) {
            (true, true) => self.counts.tombstones_kept += 1,
            (true, false) => self.counts.tombstones_dropped += 1,
            (false, true) => self.counts.tombstones_left += 1,
            (false, false) => {}
        }
        if hides {
            // The new tombstone supersedes the same extents as the old record, whatever segment it is written to.
            let below =
                if record.tombstone && record.cas != 0 { record.cas } else { source.sealed_sequence() };
            let cas = if supersedes_extent { below } else { 0 };
            let record = Record { cas, ..Record::tombstone(record.key, supersedes_extent) };
            self.result.write(hash, &record)?;
        }
        Ok(())
    }

    /// Copies the old address entries above the last new record.
    fn drain_addresses(&mut self, pages: u64) {
        let done = match &mut self.result.addresses {
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

    /// Ends the last segments.
    fn end(&mut self, rooms: &mut dyn Rooms) -> Result<(), DeviceError> {
        self.result.end(rooms, self.gaps())?;
        self.counts.pages_damaged = self.sources.iter().map(Source::pages_damaged).sum();
        self.stage = Stage::Done;
        Ok(())
    }

    /// Where the new address run may lack entries of older generations. After a crash a restart may find what this
    /// merge would have taken out of the list: chunks with hashes that were lost, and chunks that were collected.
    fn gaps(&self) -> Vec<Gap> {
        let of_others = self.old_voids.iter().map(|hashes| Gap::new(hashes, self.result.number));
        let of_collected = self.voids.iter().filter(|void| void.age < self.collected);
        let of_collected = of_collected.map(|void| Gap::new(&void.hashes, self.sources[void.age].age() + 1));
        of_others.chain(of_collected).collect()
    }

    /// The result, to be installed; `None` before [`Progress::Done`].
    pub(crate) fn finish(self) -> Option<Merged> {
        if self.stage != Stage::Done {
            return None;
        }
        // A void of what was collected hides nothing: all that is older was collected, too. Its records may have had
        // marks.
        let (of_log, of_collected): (Vec<_>, Vec<_>) =
            self.voids.into_iter().partition(|void| void.age >= self.collected);
        let voids = of_log.into_iter().map(|void| void.hashes).chain(self.old_voids).collect();
        let of_log = (self.sources.len() > self.collected).then_some(self.renewed);
        let addresses = self.result.addresses.as_ref().map(|addresses| addresses.counts(of_log));
        Some(Merged {
            addresses,
            lost_marks: self.lost_marks || !of_collected.is_empty(),
            generation: Generation::of(self.result.records.into_segments()),
            address: self.result.addresses.and_then(Addresses::into_run),
            voids,
            counts: self.counts,
        })
    }

    /// Gives the merge up. Returns the rooms that were written to: their zones can be erased.
    pub(crate) fn abort(self) -> Vec<Room> {
        self.result.into_rooms()
    }
}

/// Whether the newest version of a key is kept.
fn is_worth(
    settings: &Settings<'_>,
    record: &Record<'_>,
    source: &Source<'_>,
    live: &mut u64,
    counts: &mut MergeCounts,
) -> bool {
    if record.expired(settings.now_unix_s.saturating_add(settings.cutoff_s))
        || (settings.deleted)(record.key, source.age())
    {
        counts.expired += 1;
        return false;
    }
    *live += 1;
    if source.is_warm() {
        counts.warm += 1;
        return true;
    }
    // The share is kept at every hash, so that all ranges of hashes lose the same share.
    let room = counts.kept * 100 < *live * settings.keep_percent as u64;
    counts.cold += !room as u64;
    room
}

/// Whether a generation that is older than the merged segments may hold the hash. The addresses have advanced to the
/// hash.
fn older_may_hold(older: &List, addresses: &Option<Addresses<'_>>, hash: u64) -> bool {
    let unfiltered = || addresses.as_ref().is_none_or(Addresses::unfiltered_may_hold);
    older.filters_may_hold(hash) || older.has_unfiltered() && unfiltered()
}
