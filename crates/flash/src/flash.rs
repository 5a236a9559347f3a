//! The flash tier as the cache sees it: it puts the components together, and hands each call to the one that does it.

use crate::device::{ChannelCounters, Device, DeviceError, MemberStatus, PAGE_BYTES};
use crate::error::FlashError;
use crate::fetcher::{CommitListener, Fetcher, ReadLimits};
use crate::generation::Generations;
use crate::item::{Commit, FlashItem, Listed, Put, Room, Stamp};
use crate::meta::{META_ZONES, MetaLog, MetaOptions, Start};
use crate::options::{FlashOptions, Recover};
use crate::record::{PartOfValue, Record, part_hash};
use crate::tier::index::Index;
use crate::tier::lister::{Lister, Listing};
use crate::tier::log::Log;
use crate::tier::lookup::Lookup;
use crate::tier::merging::Merging;
use crate::tier::meta::Meta;
use crate::tier::picture::ZoneView;
use crate::tier::reclaim::Reclaim;
use crate::tier::recover::Restart;
use crate::tier::release::Release;
use crate::tier::shape::Shape;
use crate::tier::space::Space;
use crate::tier::stats::{FlashStats, MemoryUse};
use crate::tier::status::{NAP, Status};
use crate::tier::survivors::Survivors;
use crate::tier::threads::Threads;
use crate::tier::walk::{Place, Walk};
use crate::tier::writer::LogWriter;
use larder_item::{KeyHash, KeyHasher, PrefixesFull};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long [`Flash::put_part`] waits for a buffer.
const PART_WAIT_MAX: Duration = Duration::from_millis(50);
/// How long it sleeps between two tries.
const PART_PAUSE: Duration = Duration::from_millis(1);
/// How long [`Flash::write_prefixes`] waits for room, and how long it sleeps between two tries.
const PREFIX_WAIT_MAX: Duration = Duration::from_secs(1);
const PREFIX_PAUSE: Duration = Duration::from_millis(1);
/// How long [`Flash::wait_for_invalidations`] sleeps between two tries.
const TOMBSTONES_PAUSE: Duration = Duration::from_micros(200);
/// Rounds of writing and reclaiming when the tier is closed, until everything is on the device.
const CLOSING_ROUNDS_MAX: u32 = 64;

/// The flash tier. Shared by all threads.
pub struct Flash {
    device: Arc<dyn Device>,
    options: FlashOptions,
    shape: Shape,
    seed: u64,
    cas_floor: u64,
    status: Arc<Status>,
    meta: Arc<Meta>,
    lookup: Lookup,
    lister: Arc<Lister>,
    space: Arc<Space>,
    log: Arc<Log>,
    reclaim: Arc<Reclaim>,
    writer: Arc<LogWriter>,
    restart: Arc<Restart>,
    threads: Threads,
}

impl Flash {
    /// Opens what the device holds, or formats it.
    ///
    /// # Errors
    /// The device holds something else, has too few zones, or the memory is too small for its geometry.
    pub fn open(device: Arc<dyn Device>, options: FlashOptions) -> Result<Arc<Flash>, FlashError> {
        let shape = Shape::new(&device.geometry(), META_ZONES, &options)?;
        let meta_options =
            MetaOptions { seed: options.seed, recover: options.recover, format: options.format };
        let opened = MetaLog::open(device.clone(), meta_options)?;
        if let Start::Dropped(why) = opened.start {
            tracing::warn!("flash: {}: everything on it is dropped: {why}", device.describe());
        }
        let (seed, cas_floor) = (opened.superblock.seed, opened.superblock.cas_floor);
        let hasher = KeyHasher::with_seed(seed);
        let status = Arc::new(Status::new(options.now_unix_s.clone()));
        let meta = Arc::new(Meta::new(status.clone(), &opened, options.recover, shape.budget.stamps));
        let generations = Generations::new(shape.budget.filters, shape.budget.address_cache);
        let hits = shape.budget.generation_hits * 8;
        generations.reset_hits(hits);
        let lookup = Lookup {
            status: status.clone(),
            meta: meta.clone(),
            index: Arc::new(Index::new(&shape)),
            generations: Arc::new(generations),
            has_generations: options.generations,
        };
        let sizes = (META_ZONES, shape.buffered_zones());
        let space = Space::new(device.clone(), status.clone(), meta.clone(), sizes, &options);
        let space = Arc::new(space);
        let log = Arc::new(Log::new(lookup.clone(), space.clone(), shape, hasher.clone(), cas_floor));
        let parts = || (lookup.clone(), space.clone(), log.clone());
        let reads = || (device.clone(), hasher.clone());
        let release = Arc::new(Release::new(parts(), hits));
        let merging = Merging::new(release.clone(), parts(), reads(), shape, &options);
        // Beside what it scans, a reclaim reads as many pages of other segments: together as much as three chunks.
        let read_pages = (shape.chunk_pages as u32 * 3 / 4).max(1);
        let survivors = Survivors::new(parts(), reads(), read_pages, &options);
        let zone_bytes = shape.zone_pages as u64 * PAGE_BYTES as u64;
        let reclaim = Reclaim::new(parts(), release.clone(), (merging, survivors), zone_bytes, &options);
        let reclaim = Arc::new(reclaim);
        let lister = Arc::new(Lister::new(Walk::new(lookup.clone(), device.clone(), hasher.clone())));
        let writer = LogWriter::new(parts(), (release, reclaim.clone()), device.clone(), shape);
        let restart = Arc::new(Restart::begin(parts(), device.clone(), &writer, &opened)?);
        let (writer, threads) = (Arc::new(writer), Threads::new(status.clone()));
        Ok(Arc::new(Flash {
            device,
            options,
            shape,
            seed,
            cas_floor,
            status,
            meta,
            lookup,
            lister,
            space,
            log,
            reclaim,
            writer,
            restart,
            threads,
        }))
    }

    /// Seed of the key hash. Positions on flash depend on it, so every hash that is given to the tier must be
    /// [`KeyHasher::with_seed`] with this seed of the key.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// A number above every CAS number of an item on the device.
    pub fn cas_floor(&self) -> u64 {
        self.cas_floor
    }

    /// Longest value, or part of one, that one [`Flash::put`] takes, bytes.
    pub fn part_bytes_max(&self) -> usize {
        self.shape.part_bytes_max
    }

    // Storing and invalidating.

    /// Stores the newest version of an item. It never waits for the device.
    ///
    /// If the item is shed, older versions on flash stay: the caller, who has a newer version, must invalidate the key.
    pub fn put(&self, hash: KeyHash, item: &FlashItem<'_>) -> Put {
        let part = (item.value_bytes != item.value.len() as u64)
            .then_some(PartOfValue { value_bytes: item.value_bytes, number: 0 });
        let record = Record {
            key: item.key,
            value: item.value,
            flags: item.flags,
            expires_unix_s: item.expires_unix_s,
            cas: item.cas,
            state: item.state,
            tombstone: false,
            supersedes_extent: false,
            part,
        };
        self.store(hash.0, &record)
    }

    /// Stores part `part` (from 1) of a long value, before part 0 makes the value visible. It may wait for the device.
    pub fn put_part(&self, hash: KeyHash, key: &[u8], cas: u64, part: u32, value: &[u8]) -> Put {
        let of_value = Some(PartOfValue { value_bytes: value.len() as u64, number: part });
        let record = Record { value, cas, part: of_value, tombstone: false, ..Record::tombstone(key, false) };
        let hash = part_hash(hash, cas, part);
        let started = Instant::now();
        loop {
            let put = self.try_store(hash, &record);
            // A long value may be longer than the free buffers together, and is worth nothing if one part is shed.
            if put == Put::Stored || !self.meta.is_on() || started.elapsed() > PART_WAIT_MAX {
                self.log.count_put(&record, put);
                return put;
            }
            std::thread::sleep(PART_PAUSE);
        }
    }

    fn store(&self, hash: u64, record: &Record<'_>) -> Put {
        let put = self.try_store(hash, record);
        self.log.count_put(record, put);
        put
    }

    fn try_store(&self, hash: u64, record: &Record<'_>) -> Put {
        let is_stored = self.log.takes(record) && self.log.put(hash, record).is_ok();
        if is_stored { Put::Stored } else { Put::Shed }
    }

    /// No version of the key on flash is the newest one any more: leaves a tombstone where one is needed. In mode
    /// `journal` the reply to the client waits for the commit.
    pub fn invalidate(&self, hash: KeyHash, key: &[u8]) -> Option<Commit> {
        self.log.invalidate(hash, key)
    }

    /// What a reply has to wait for whose key was invalidated before: the last invalidation of all keys. `None`: every
    /// invalidation is durable, or there is no journal.
    pub fn last_uncommitted(&self) -> Option<Commit> {
        if self.meta.is_on() { self.meta.last_uncommitted() } else { None }
    }

    /// Whether the tier works. Once it has failed, it stays off.
    pub fn is_on(&self) -> bool {
        self.meta.is_on()
    }

    /// Whether the device is behind: so few buffers are free that the next puts may be shed.
    pub fn is_behind(&self) -> bool {
        self.meta.is_on() && self.log.is_behind()
    }

    /// Whether so few zones are erased that only what has to be appended still is.
    pub fn is_short_of_space(&self) -> bool {
        self.space.is_down_to_reserve()
    }

    /// For how long the device has taken nothing of a segment, milliseconds. It says nothing of a device that is given
    /// nothing.
    pub fn stalled_for_ms(&self) -> u64 {
        self.status.stalled_for_ms()
    }

    /// Somebody waits until the device is not behind any more. [`Fetcher::fd`] of each reader becomes readable then,
    /// and with [`Flash::tell_waiting`].
    pub fn want_room(&self) {
        self.status.want_room();
    }

    /// Makes those look again who wait for room, if there are any.
    pub fn tell_waiting(&self) {
        if self.status.take_room_wanted() {
            self.meta.tell();
        }
    }

    /// Whether the index of the log is so full that the next puts may be shed.
    pub fn is_index_full(&self) -> bool {
        self.meta.is_on() && self.log.is_index_full()
    }

    /// The room in the buffers for items of this length, key and value together.
    pub fn room(&self, item_bytes: u64) -> Room {
        self.log.room(item_bytes)
    }

    /// The same while all buffers are empty.
    pub fn room_of_all_buffers(&self) -> Room {
        let buffer_bytes = self.shape.buffer.record_bytes() as u64;
        let all_bytes = u64::from(self.shape.buffers) * buffer_bytes;
        Room { free_bytes: all_bytes, buffer_bytes, all_bytes }
    }

    /// Whether tombstones wait for room.
    pub fn owes_invalidations(&self) -> bool {
        self.meta.is_on() && self.lookup.index.has_waiting_tombstones()
    }

    /// Whether tombstones wait for room in such number that a thread without a lock should wait before it invalidates
    /// another key: [`Flash::wait_for_invalidations`]. If too many wait, items of other keys are dropped.
    #[inline]
    pub fn is_crowded(&self) -> bool {
        self.lookup.index.is_crowded() && self.meta.is_on()
    }

    /// Whether threads wait now for fewer tombstones to wait.
    pub fn is_waited_for(&self) -> bool {
        self.is_crowded() && !self.lookup.index.is_stalled()
    }

    /// Waits until fewer tombstones wait for room, or the device has taken nothing for a second.
    pub fn wait_for_invalidations(&self) {
        while self.is_waited_for() {
            std::thread::sleep(TOMBSTONES_PAUSE);
            self.log.drain_waiting();
        }
    }

    /// Nothing is found or stored from now on, until [`Flash::end_flush`].
    pub fn begin_flush(&self) {
        self.meta.begin_flush();
    }

    /// Removes everything that was stored before, also from what a restart finds.
    pub fn end_flush(&self) {
        self.log.flush();
        self.meta.end_flush();
    }

    /// Whether there is room for another deleted prefix. While nobody else deletes one, [`Flash::drop_prefix`] then
    /// succeeds.
    pub fn takes_prefix(&self, prefix: &[u8]) -> bool {
        self.meta.takes_prefix(prefix)
    }

    /// A prefix is about to be deleted. All that flash has of it is hidden until [`Flash::end_prefix_flush`]. One at a
    /// time.
    pub fn begin_prefix_flush(&self, prefix: &[u8]) {
        self.meta.begin_prefix_flush(prefix);
    }

    /// Whether an item that was found was deleted by prefix since, or is being deleted. `age` is [`Found::age`].
    pub fn hides(&self, key: &[u8], age: u64) -> bool {
        self.meta.hides(key, age)
    }

    /// After [`Flash::begin_prefix_flush`]: removes what was stored before and has a key with this prefix.
    ///
    /// # Errors
    /// As many prefixes are being deleted as there is room for: nothing is removed.
    pub fn drop_prefix(&self, prefix: &[u8]) -> Result<(), PrefixesFull> {
        self.log.drop_prefix(prefix)
    }

    /// The prefix is deleted.
    pub fn end_prefix_flush(&self) {
        self.meta.end_prefix_flush();
    }

    /// Removes what was dropped also from what a restart finds. Waits for the device. If the prefixes find no room
    /// beside the journal, everything is dropped.
    pub fn write_prefixes(&self) {
        self.write_state("a deleted prefix");
    }

    /// What the owner of the items has noted beside them. Empty = nothing yet, or the items are gone that had it beside
    /// them.
    pub fn note(&self) -> Vec<u8> {
        self.meta.note()
    }

    /// The longest note, in bytes: 256 at least.
    pub fn note_bytes_max(&self) -> usize {
        self.meta.note_bytes_max()
    }

    /// Notes what the owner of the items wants to find beside them after a restart, up to [`Flash::note_bytes_max`]
    /// bytes. Durable when this returns; where that is not possible, all items are dropped.
    pub fn set_note(&self, note: &[u8]) {
        self.meta.set_note(note);
        self.write_state("a note");
    }

    /// Makes something durable that belongs to the items.
    fn write_state(&self, what: &str) {
        let begun = Instant::now();
        while self.meta.is_on() {
            match self.meta.write_state_now() {
                Ok(()) => return,
                Err(DeviceError::Full(_)) if begun.elapsed() < PREFIX_WAIT_MAX => {
                    self.log.seal_all();
                    self.log.make_room_in_journal();
                    std::thread::sleep(PREFIX_PAUSE);
                }
                Err(error) => {
                    tracing::warn!("flash: {what} cannot be kept: {error}; everything is dropped");
                    return self.log.flush();
                }
            }
        }
    }

    /// How many deleted prefixes there may still be records of. A prefix is forgotten when no segment is as old as its
    /// deletion.
    pub fn deleted_prefixes(&self) -> usize {
        self.meta.prefixes()
    }

    // Looking.

    /// Loads what lookups of these hashes look at. It does so in stages, each for all hashes before the next one, so
    /// that the cache misses of different hashes overlap. About 16 hashes at a time are enough.
    pub fn touch(&self, hashes: impl Iterator<Item = KeyHash> + Clone) {
        self.lookup.touch(hashes.map(|hash| hash.0));
    }

    /// Whether a version of a key with this hash may be on flash. A no is never wrong; a yes is wrong for one absent
    /// hash in 16 to 200, by the width of the log table.
    pub fn may_hold(&self, hash: KeyHash) -> bool {
        self.lookup.may_hold(hash.0)
    }

    /// Whether the newest version under this hash is on flash still, and is not reclaimed soon, so that it need not be
    /// written again.
    pub fn still_holds(&self, hash: KeyHash) -> bool {
        self.lookup.holds_for_a_while(hash.0, &self.space)
    }

    /// The stamp of a hash; see [`Stamp`].
    pub fn stamp(&self, hash: KeyHash) -> Stamp {
        self.meta.stamp(hash.0)
    }

    /// Invalidations up to this one are durable.
    pub fn committed(&self) -> Commit {
        self.meta.committed()
    }

    /// Somebody waits until every invalidation so far is durable. Without this call they are within 100 ms, and more of
    /// them with one write.
    pub fn want_commit(&self) {
        self.meta.want_commit();
    }

    /// Whether no invalidation will ever be durable again: the device takes nothing any more, and has to be formatted
    /// before it is used again.
    pub fn commits_nothing(&self) -> bool {
        self.meta.commits_nothing()
    }

    /// Makes a reader for one thread.
    ///
    /// # Errors
    /// The device has no room for another queue, or there is no memory for the buffers of another reader.
    pub fn fetcher(&self) -> Result<Fetcher, FlashError> {
        let limits =
            ReadLimits { bytes_max: self.shape.budget.reads, part_bytes_max: self.shape.part_bytes_max };
        Fetcher::new(self.lookup.clone(), &*self.device, limits)
    }

    /// Tells a thread that has no [`Fetcher`] when its invalidations are durable. A fetcher tells that itself.
    ///
    /// # Errors
    /// The operating system gives no descriptor.
    pub fn commit_listener(&self) -> Result<CommitListener, FlashError> {
        CommitListener::new(&self.lookup.meta)
    }

    /// Appends items on flash to `out`, from a place on, at least `least` of them unless they take many reads. Returns
    /// the place to go on from; `None` at the end. An item that is there from the beginning to the end of a walk in
    /// several calls is listed at least once. While the tier has failed, or a flush is under way, nothing is there. It
    /// waits for the device, for at most 64 reads of 68 KiB and one for each record that the tables take for a
    /// superseded one.
    pub fn list(&self, from: Place, least: usize, out: &mut Vec<Listed>) -> Option<Place> {
        self.lister.walk().list(from, least, out)
    }

    /// The place where a walk begins.
    pub fn first_place(&self) -> Place {
        self.lister.walk().first_place()
    }

    /// Some place, chosen by a random number.
    pub fn random_place(&self, random: u64) -> Place {
        self.lister.walk().random_place(random)
    }

    /// The place that [`Place::to_bits`] made this number of.
    pub fn place_of(&self, bits: u64) -> Place {
        self.lister.walk().place_of(bits)
    }

    /// Begins [`Flash::list`] on a thread of its own, for a caller that must not wait for the device. While the tier
    /// has no threads, it is done at once.
    pub fn begin_list(&self, from: Place, least: usize) -> Listing {
        self.lister.begin(from, least)
    }

    /// About how many items are on flash. The estimate counts what is alive of each segment. It is exact while nothing
    /// was replaced or deleted; a replacement that the log table only takes for one makes it too low by one.
    pub fn live_items(&self) -> u64 {
        self.lister.walk().live_items()
    }

    // The work of the threads.

    /// Starts the threads that write, reclaim and recover.
    ///
    /// # Errors
    /// Of the operating system.
    pub fn start(&self) -> std::io::Result<()> {
        let (writer, reclaim) = (self.writer.clone(), self.reclaim.clone());
        self.threads
            .start("flash-write", move |status| status.work_until_stopped(|| writer.write_sealed()))?;
        self.threads.start("flash-reclaim", move |status| {
            status.work_until_stopped(|| reclaim.round());
        })?;
        if self.status.is_recovering() {
            let restart = self.restart.clone();
            self.threads
                .start("flash-recover", move |status| while !status.is_stopping() && restart.step() {})?;
        }
        let lister = self.lister.clone();
        self.threads.start("flash-list", move |status| lister.serve(status))?;
        let (meta, log) = (self.meta.clone(), self.log.clone());
        if self.options.recover == Recover::Journal {
            self.threads.start("flash-journal", move |_| {
                while meta.wait_and_commit(NAP) {
                    log.make_room_in_journal();
                }
            })
        } else {
            self.threads.start("flash-meta", move |status| {
                status.work_until_stopped(|| {
                    meta.tend();
                    false
                });
            })
        }
    }

    /// One round of what the threads do, for a caller that runs the tier without them.
    pub fn tend(&self) {
        self.restart.step();
        self.log.drain_waiting();
        self.log.make_room_in_journal();
        self.writer.write_sealed();
        self.meta.commit();
        self.reclaim.round();
        self.writer.write_sealed();
    }

    /// Ends the threads, writes what is in memory, and marks the device as cleanly closed.
    ///
    /// # Errors
    /// Of the device. A later open then recovers as after a crash.
    pub fn close(&self) -> Result<(), FlashError> {
        self.threads.stop(|| self.meta.stop());
        while self.restart.step() {}
        let failed = |what: &str| FlashError(format!("flash was not closed cleanly: {what}"));
        if !self.meta.is_on() {
            return Err(failed("it had failed"));
        }
        let mut rounds = 0;
        let cas_max = loop {
            if let Some(cas_max) = self.log.seal_for_good() {
                break cas_max;
            }
            rounds += 1;
            if rounds > CLOSING_ROUNDS_MAX {
                return Err(failed("invalidations found no room"));
            }
            // Buffers may wait for a zone, and zones for a merge.
            self.tend();
        };
        for _ in 0..CLOSING_ROUNDS_MAX {
            if self.log.next_sealed().is_none() {
                break;
            }
            self.tend();
        }
        if self.log.next_sealed().is_some() {
            return Err(failed("segments could not be written"));
        }
        self.device.sync().map_err(|error| failed(&error.to_string()))?;
        self.meta.commit();
        self.space.note_segments_durable();
        self.space.note_generations_durable();
        // An extent that was dropped may have been all that said that one in such a zone is dead.
        self.writer.release_drained();
        self.meta.close(cas_max.saturating_add(1)).map_err(|error| failed(&error.to_string()))
    }

    // What is shown.

    /// The figures of the tier. Looks at every zone and segment: for a person or a monitor, not for each request.
    pub fn stats(&self) -> FlashStats {
        let now = self.status.now();
        let index = self.lookup.index.stats();
        let counted = self.status.counters.snapshot();
        let generations = self.lookup.generations.stats(now);
        let space = self.space.stats(now);
        let (segments_waiting, dead_extents_bytes) = self.log.stats();
        let memory = MemoryUse {
            buffers: self.shape.buffers as u64 * self.shape.buffer.bytes(),
            log_table: index.log_table_bytes,
            extent_table: index.extent_table_bytes,
            segments: generations.chunk_bytes + space.segment_bytes + index.directory_bytes,
            filters: generations.filter_bytes,
            address_cache: generations.cache_bytes,
            hit_bits: counted.hit_bits_bytes + generations.hits_bytes,
            stamps: self.meta.stamps_bytes(),
            reads: counted.read_bytes,
            work: self.shape.budget.work,
            tombstones: self.shape.budget.waiting_tombstones,
            dead_extents: dead_extents_bytes,
            journal: self.meta.journal_bytes(),
        };
        FlashStats {
            items: index.log_entries + index.extents + generations.items,
            extents: index.extents,
            generations: generations.generations,
            generation_items: generations.items,
            tombstones_kept: space.tombstones,
            tombstones_waiting: index.tombstones_waiting,
            segments_waiting,
            live_bytes: generations.live_bytes + space.live_bytes,
            dead_bytes: generations.dead_bytes + space.dead_bytes,
            segments: generations.chunks + space.segments,
            zones: space.zones,
            zones_low: space.low,
            zones_high: space.high,
            zones_per_s: space.zones_per_s,
            device: self.device.counters(),
            devices_failed: self.device.members().iter().filter(|device| device.has_failed).count() as u64,
            memory,
            memory_cap: self.options.memory_bytes,
            is_on: self.meta.is_on(),
            is_recovering: self.status.is_recovering(),
            ..counted
        }
    }

    /// Whether items of an earlier run cannot be found yet, because their segments are still being taken in. A tier
    /// that has failed recovers no more.
    pub fn is_recovering(&self) -> bool {
        self.status.is_recovering() && self.meta.is_on()
    }

    /// Bytes of all zones of the device, those for the tier's own records included.
    pub fn device_bytes(&self) -> u64 {
        self.device.geometry().capacity_bytes()
    }

    /// The devices that the tier is spread over; none if it has one alone.
    pub fn devices(&self) -> Vec<MemberStatus> {
        self.device.members()
    }

    /// The channels of the device, in their order; none if it does not tell. Those of several devices follow one
    /// another.
    pub fn channels(&self) -> Vec<ChannelCounters> {
        self.device.channels()
    }

    /// One line for each zone, in their order. For a person, not for each request.
    pub fn zone_views(&self) -> Vec<ZoneView> {
        self.space.views(self.status.now())
    }

    /// The components, for tests of the tier.
    #[cfg(test)]
    pub(crate) fn components(&self) -> Components<'_> {
        let Flash { meta, space, log, reclaim, writer, restart, .. } = self;
        Components { meta, space, log, reclaim, writer, restart }
    }
}

/// What tests of the tier reach into.
#[cfg(test)]
#[allow(missing_docs)]
pub(crate) struct Components<'a> {
    pub(crate) meta: &'a Meta,
    pub(crate) space: &'a Space,
    pub(crate) log: &'a Log,
    pub(crate) reclaim: &'a Reclaim,
    pub(crate) writer: &'a LogWriter,
    pub(crate) restart: &'a Restart,
}
