//! The numbers of the flash tier, defined once for `stats flash` and for `/metrics`.
//!
//! A new number is a row here. `stats flash` shows it under its name without the prefix `flash_`, `/metrics` with it.

use crate::admin::{Family, Kind, Value, ZoneCell};
use larder_cache::Totals;
use larder_flash::device::{ChannelCounters, MemberStatus};
use larder_flash::{Flash, FlashStats, ZoneCounts, ZoneUse};

/// One number, with its name, its text for `/metrics` and its unit.
pub(crate) struct Row {
    /// The name in `/metrics`, without the program's prefix.
    name: &'static str,
    help: &'static str,
    unit: &'static str,
    kind: Kind,
    value: Value,
}

/// What every name in `/metrics` begins with.
const PREFIX: &str = "flash_";

impl Row {
    /// The name and the value of a line of `stats flash`.
    pub(crate) fn line(&self) -> (String, String) {
        let plain = self.name.strip_prefix(PREFIX).unwrap_or(self.name);
        let name = if self.unit.is_empty() { plain.to_owned() } else { format!("{plain}_{}", self.unit) };
        match &self.value {
            Value::Count(count) => (name, count.to_string()),
            Value::Amount(amount) => (name, format!("{amount:.3}")),
            Value::Times(_) => (name, String::new()),
        }
    }

    fn family(self) -> Family {
        Family::single(self.name, self.help, self.kind, self.unit, self.value)
    }
}

fn count(name: &'static str, help: &'static str, unit: &'static str, value: u64) -> Row {
    Row { name, help, unit, kind: Kind::Counter, value: Value::Count(value) }
}

fn gauge(name: &'static str, help: &'static str, unit: &'static str, value: u64) -> Row {
    Row { name, help, unit, kind: Kind::Gauge, value: Value::Count(value) }
}

fn ratio(name: &'static str, help: &'static str, value: f64) -> Row {
    Row { name, help, unit: "", kind: Kind::Gauge, value: Value::Amount(value) }
}

/// The flash tier is only asked for keys that its filters do not rule out. The cache counts the misses that a filter
/// answered, too: the larger number is the one to show.
pub(crate) fn with_all_misses(mut stats: FlashStats, totals: &Totals) -> FlashStats {
    stats.misses = stats.misses.max(totals.flash_misses);
    stats
}

/// The numbers without labels.
pub(crate) fn rows(stats: &FlashStats) -> Vec<Row> {
    let mut rows = ratios(stats);
    rows.extend(counts(stats));
    rows.extend(gauges_of_records(stats));
    rows.extend(gauges_of_space(stats));
    rows.extend(gauges_of_wear(stats));
    rows
}

/// The ratios by which a flash tier is judged.
fn ratios(stats: &FlashStats) -> Vec<Row> {
    let mut rows = vec![
        ratio(
            "flash_alwa",
            "Application write amplification: bytes that the flash tier has appended to the device, divided by \
             bytes of keys and values that it has admitted, since the server started.",
            stats.alwa(),
        ),
        ratio(
            "flash_reads_per_hit",
            "Device reads of a flash lookup that found its item on the device, on average since the server started.",
            stats.reads_per_hit(),
        ),
        ratio(
            "flash_reads_per_miss",
            "Device reads of a flash lookup that found nothing, on average since the server started.",
            stats.reads_per_miss(),
        ),
        ratio(
            "flash_index_bytes_per_item",
            "Memory that tables, filters and fences of the flash tier take now, in bytes per record on flash.",
            stats.index_bytes_per_item(),
        ),
    ];
    if let Some(dlwa) = stats.dlwa() {
        rows.push(ratio(
            "flash_dlwa",
            "Device write amplification: bytes that the device has programmed, divided by bytes that were appended to \
             it, since the server started.",
            dlwa,
        ));
    }
    rows
}

fn counts(stats: &FlashStats) -> Vec<Row> {
    let mut rows = counts_of_writes(stats);
    rows.extend(counts_of_lookups(stats));
    rows.extend(counts_of_reclaim(stats));
    rows.extend(counts_of_device(stats));
    rows
}

fn counts_of_writes(stats: &FlashStats) -> Vec<Row> {
    vec![
        count(
            "flash_puts",
            "Items, and parts of large items, that the flash tier has accepted since the server started.",
            "",
            stats.puts,
        ),
        count(
            "flash_shed",
            "Items that the flash tier has refused since the server started, because the device was behind with its \
             writes or had failed.",
            "",
            stats.shed,
        ),
        count(
            "flash_admitted",
            "Bytes of keys and values that the flash tier has accepted since the server started.",
            "bytes",
            stats.admitted_bytes,
        ),
        count(
            "flash_appended",
            "Bytes of segments that the flash tier has appended to the device since the server started, padding \
             included.",
            "bytes",
            stats.appended_bytes,
        ),
        count(
            "flash_segments_written",
            "Segments written to the device since the server started.",
            "",
            stats.segments_written,
        ),
        count(
            "flash_tombstones",
            "Tombstones written since the server started. A tombstone says that older versions of a key are invalid.",
            "",
            stats.tombstones,
        ),
        count(
            "flash_tombstones_waited",
            "Tombstones that had to wait because no segment buffer had room, since the server started.",
            "",
            stats.tombstones_waited,
        ),
        count(
            "flash_drops_of_all",
            "How often the whole content of the flash was dropped since the server started, because a segment had \
             waited too long for an erased zone.",
            "",
            stats.drops_of_all,
        ),
        count(
            "flash_range_drops",
            "How often a range of keys was dropped from flash since the server started, because more tombstones waited \
             for a buffer than the tier can remember: raise --flash-memory.",
            "",
            stats.range_drops,
        ),
    ]
}

fn counts_of_lookups(stats: &FlashStats) -> Vec<Row> {
    vec![
        count(
            "flash_lookup_hits",
            "Flash lookups that found their item since the server started.",
            "",
            stats.hits,
        ),
        count(
            "flash_lookup_hits_in_buffers",
            "Flash lookups that found their item in a segment buffer, without a device read, since the server started.",
            "",
            stats.hits_in_buffers,
        ),
        count(
            "flash_lookup_misses",
            "Flash lookups that found nothing since the server started, those included that a filter answered.",
            "",
            stats.misses,
        ),
        count(
            "flash_misses_for_reads",
            "Flash lookups that were answered with a miss since the server started, because they had used up their \
             device reads (four of the log, two of generations), or because the item was longer than the memory for \
             reads allows: --flash-memory was larger when it was written.",
            "",
            stats.misses_for_reads,
        ),
        count(
            "flash_misses_for_damage",
            "Flash lookups that were answered with a miss since the server started, because a page was damaged, could \
             not be read, or was erased meanwhile.",
            "",
            stats.misses_for_damage,
        ),
        count(
            "flash_reads_for_hits",
            "Device reads of flash lookups that found their item, since the server started.",
            "",
            stats.reads_for_hits,
        ),
        count(
            "flash_reads_for_misses",
            "Device reads of flash lookups that found nothing, since the server started.",
            "",
            stats.reads_for_misses,
        ),
        count(
            "flash_false_reads",
            "Device reads of flash lookups that did not show the key which the filters promised, since the server \
             started.",
            "",
            stats.false_reads,
        ),
        count(
            "flash_table_full",
            "How often a lookup table had no room for a new record since the server started.",
            "",
            stats.table_full,
        ),
    ]
}

fn counts_of_reclaim(stats: &FlashStats) -> Vec<Row> {
    vec![
        count(
            "flash_reclaims",
            "Zones that were reclaimed since the server started with their live records written again elsewhere.",
            "",
            stats.reclaims,
        ),
        count(
            "flash_survivors",
            "Records that reclaiming has written again since the server started.",
            "",
            stats.survivors,
        ),
        count(
            "flash_survivor",
            "Bytes of keys and values that reclaiming has written again since the server started.",
            "bytes",
            stats.survivor_bytes,
        ),
        count(
            "flash_survivors_lost",
            "Records that reclaiming wanted to write again and could not, since the server started: there was no room, \
             or the record had changed.",
            "",
            stats.survivors_lost,
        ),
        count(
            "flash_reclaim_reads",
            "Device reads of reclaiming since the server started, to find out whether a record was replaced.",
            "",
            stats.reclaim_reads,
        ),
        count(
            "flash_merges",
            "Merges of log segments into a generation that were completed since the server started.",
            "",
            stats.merges,
        ),
        count(
            "flash_merges_given_up",
            "Merges of log segments into a generation that were given up before their end since the server started.",
            "",
            stats.merges_given_up,
        ),
        count(
            "flash_zones_collected",
            "Zones of generations whose live items a merge has written again since the server started.",
            "",
            stats.zones_collected,
        ),
        count(
            "flash_merged_records",
            "Records that merges have written since the server started.",
            "",
            stats.merged_records,
        ),
        count(
            "flash_merged",
            "Bytes of records that merges have written since the server started.",
            "bytes",
            stats.merged_bytes,
        ),
        count(
            "flash_merge_dropped",
            "Records that merges have left out since the server started, because they were cold, expired or replaced.",
            "",
            stats.merge_dropped,
        ),
        count(
            "flash_quick_drops",
            "Zones that were erased with everything in them since the server started, without a look at their \
             records.",
            "",
            stats.quick_drops,
        ),
        count(
            "flash_drops_forced",
            "Zones that the writer had to erase with everything in them since the server started, because no zone was \
             free.",
            "",
            stats.drops_forced,
        ),
    ]
}

fn counts_of_device(stats: &FlashStats) -> Vec<Row> {
    vec![
        count(
            "flash_errors",
            "Errors of the device that the flash tier met since the server started.",
            "",
            stats.device_errors,
        ),
        count(
            "flash_devices_failed",
            "Flash devices that have failed for good since the server started. What they held is lost, and the \
             others go on.",
            "",
            stats.devices_failed,
        ),
        count(
            "flash_damaged_pages",
            "Device pages with a wrong checksum that were read since the server started.",
            "",
            stats.damaged_pages,
        ),
        count(
            "flash_flushes",
            "Times that everything on flash was dropped for a flush_all since the server started.",
            "",
            stats.flushes,
        ),
        count(
            "flash_device_reads",
            "Read operations of the flash device since the server started.",
            "",
            stats.device.reads,
        ),
        count(
            "flash_device_read",
            "Bytes read from the flash device since the server started.",
            "bytes",
            stats.device.read_bytes,
        ),
        count(
            "flash_device_appends",
            "Append operations of the flash device since the server started.",
            "",
            stats.device.appends,
        ),
        count(
            "flash_device_appended",
            "Bytes appended to the flash device since the server started, by segments, merges and metadata together.",
            "bytes",
            stats.device.append_bytes,
        ),
        count(
            "flash_device_resets",
            "Zones of the flash device that were erased since the server started.",
            "",
            stats.device.resets,
        ),
        count(
            "flash_device_errors",
            "Operations of the flash device that failed since the server started.",
            "",
            stats.device.errors,
        ),
    ]
}

/// How often the blocks of a device were erased, where the device tells.
fn gauges_of_wear(stats: &FlashStats) -> Vec<Row> {
    let Some(erases) = stats.device.erases else { return Vec::new() };
    vec![
        gauge(
            "flash_erases_least",
            "Erases of the block of the flash device that was erased the fewest times, since the device was made.",
            "",
            erases.least.into(),
        ),
        gauge(
            "flash_erases_most",
            "Erases of the block of the flash device that was erased the most times, since the device was made.",
            "",
            erases.most.into(),
        ),
    ]
}

fn gauges_of_records(stats: &FlashStats) -> Vec<Row> {
    vec![
        gauge(
            "flash_items",
            "Records that a flash lookup can find now. Replaced records and tombstones are counted too.",
            "",
            stats.items,
        ),
        gauge(
            "flash_extents",
            "Long records on flash now, each with an entry of its own in memory.",
            "",
            stats.extents,
        ),
        gauge("flash_generations", "Generations of merged segments on flash now.", "", stats.generations),
        gauge(
            "flash_generation_items",
            "Records in the generations on flash now.",
            "",
            stats.generation_items,
        ),
        gauge(
            "flash_tombstones_waiting",
            "Tombstones that wait for a segment buffer now.",
            "",
            stats.tombstones_waiting,
        ),
    ]
}

fn gauges_of_space(stats: &FlashStats) -> Vec<Row> {
    vec![
        gauge(
            "flash_segments_waiting",
            "Full segments that are not written to the device yet. With two or more the device is behind.",
            "",
            stats.segments_waiting,
        ),
        gauge(
            "flash_live",
            "Estimated bytes of records on the device now that may still be asked for.",
            "bytes",
            stats.live_bytes,
        ),
        gauge(
            "flash_dead",
            "Estimated bytes of records on the device now that are replaced or expired.",
            "bytes",
            stats.dead_bytes,
        ),
        gauge("flash_segments", "Segments on the device now.", "", stats.segments),
        gauge(
            "flash_zones_low",
            "Low mark of the free zones: with fewer, zones with little garbage are reclaimed, or, with the quick \
             policies, zones are erased without a look at their records.",
            "",
            stats.zones_low.into(),
        ),
        gauge(
            "flash_zones_high",
            "High mark of the free zones: with so many, only zones of which nearly all is garbage are reclaimed, or \
             none.",
            "",
            stats.zones_high.into(),
        ),
        ratio(
            "flash_zones_per_s",
            "Zones written per second, averaged over the recent past.",
            stats.zones_per_s,
        ),
        gauge(
            "flash_memory_limit",
            "Bytes of memory that the flash tier may take (--flash-memory).",
            "bytes",
            stats.memory_cap,
        ),
        gauge(
            "flash_on",
            "1 while the flash tier works, 0 after the device has failed.",
            "",
            stats.is_on.into(),
        ),
        gauge(
            "flash_recovering",
            "1 while the flash tier still reads back what the device held at the start of the server, else 0.",
            "",
            stats.is_recovering.into(),
        ),
    ]
}

/// The numbers of a tier that is spread over several devices; none for a single device.
pub(crate) fn device_rows(devices: &[MemberStatus]) -> Vec<Row> {
    if devices.is_empty() {
        return Vec::new();
    }
    vec![gauge("flash_devices", "Devices that the flash tier is spread over.", "", devices.len() as u64)]
}

/// What `stats flash` shows of one of several devices.
pub(crate) fn of_device(device: &MemberStatus) -> [(&'static str, String); 8] {
    let counters = &device.counters;
    [
        ("name", device.name.clone()),
        ("state", state(device).to_owned()),
        ("zones", device.zones.to_string()),
        ("reads", counters.reads.to_string()),
        ("read_bytes", counters.read_bytes.to_string()),
        ("appends", counters.appends.to_string()),
        ("appended_bytes", counters.append_bytes.to_string()),
        ("errors", counters.errors.to_string()),
    ]
}

fn state(device: &MemberStatus) -> &'static str {
    if device.has_failed { "failed" } else { "works" }
}

/// The numbers of each of several devices, for `/metrics`.
pub(crate) fn families_of_devices(devices: &[MemberStatus]) -> Vec<Family> {
    let mut families: Vec<Family> = device_rows(devices).into_iter().map(Row::family).collect();
    if devices.is_empty() {
        return families;
    }
    let family = |name, help, kind, unit, value: fn(&MemberStatus) -> u64| {
        let values = devices.iter().map(|device| (device.name.clone(), Value::Count(value(device))));
        Family::labelled(name, help, kind, unit, "device", values)
    };
    families.extend([
        family(
            "flash_device_works",
            "1 while a device of the flash tier works, 0 after it has failed, by device.",
            Kind::Gauge,
            "",
            |device| (!device.has_failed).into(),
        ),
        family(
            "flash_device_zones",
            "Zones of the flash tier that are on a device, by device.",
            Kind::Gauge,
            "",
            |device| device.zones.into(),
        ),
        family(
            "flash_reads_of_device",
            "Read operations of a device of the flash tier since the server started, by device.",
            Kind::Counter,
            "",
            |device| device.counters.reads,
        ),
        family(
            "flash_appended_to_device",
            "Bytes appended to a device of the flash tier since the server started, by device.",
            Kind::Counter,
            "bytes",
            |device| device.counters.append_bytes,
        ),
        family(
            "flash_errors_of_device",
            "Operations of a device of the flash tier that failed since the server started, by device.",
            Kind::Counter,
            "",
            |device| device.counters.errors,
        ),
    ]);
    families
}

/// What `stats flash` shows of a channel of the device.
pub(crate) fn of_channel(channel: &ChannelCounters) -> [(&'static str, u64); 3] {
    let ChannelCounters { media_bytes, erases } = channel;
    [
        ("programmed_bytes", *media_bytes),
        ("erases_least", erases.least.into()),
        ("erases_most", erases.most.into()),
    ]
}

/// The numbers of each channel, for `/metrics`; none if the device does not tell.
pub(crate) fn families_of_channels(channels: &[ChannelCounters]) -> Vec<Family> {
    if channels.is_empty() {
        return Vec::new();
    }
    let family = |name, help, kind, unit, value: fn(&ChannelCounters) -> u64| {
        let numbered = channels.iter().enumerate();
        let values =
            numbered.map(|(number, channel)| ((number + 1).to_string(), Value::Count(value(channel))));
        Family::labelled(name, help, kind, unit, "channel", values)
    };
    vec![
        family(
            "flash_programmed_on_channel",
            "Bytes that the flash device has programmed to its cells since it was made, by channel.",
            Kind::Counter,
            "bytes",
            |channel| channel.media_bytes,
        ),
        family(
            "flash_erases_least_on_channel",
            "Erases of the flash block that was erased the fewest times since the device was made, by channel.",
            Kind::Gauge,
            "",
            |channel| channel.erases.least.into(),
        ),
        family(
            "flash_erases_most_on_channel",
            "Erases of the flash block that was erased the most times since the device was made, by channel.",
            Kind::Gauge,
            "",
            |channel| channel.erases.most.into(),
        ),
    ]
}

/// How many zones are in which use.
pub(crate) fn zones(stats: &FlashStats) -> [(&'static str, u64); 7] {
    let ZoneCounts { meta, free, open, full, generations, draining, retired } = stats.zones;
    [
        ("meta", meta.into()),
        ("free", free.into()),
        ("open", open.into()),
        ("full", full.into()),
        ("generation", generations.into()),
        ("draining", draining.into()),
        ("retired", retired.into()),
    ]
}

/// Memory of the flash tier by purpose, in bytes.
pub(crate) fn memory(stats: &FlashStats) -> [(&'static str, u64); 13] {
    let used = &stats.memory;
    [
        ("buffers", used.buffers),
        ("log_table", used.log_table),
        ("extent_table", used.extent_table),
        ("segments", used.segments),
        ("filters", used.filters),
        ("address_cache", used.address_cache),
        ("hit_bits", used.hit_bits),
        ("stamps", used.stamps),
        ("reads", used.reads),
        ("work", used.work),
        ("tombstones", used.tombstones),
        ("dead_extents", used.dead_extents),
        ("journal", used.journal),
    ]
}

/// All numbers of the flash tier, for `/metrics`.
pub(crate) fn families(stats: &FlashStats) -> Vec<Family> {
    let labelled = |name, help, unit, label, values: &[(&'static str, u64)]| {
        let values = values.iter().map(|(text, value)| (*text, Value::Count(*value)));
        Family::labelled(name, help, Kind::Gauge, unit, label, values)
    };
    let mut families: Vec<Family> = rows(stats).into_iter().map(Row::family).collect();
    families.push(labelled(
        "flash_zones",
        "Zones of the flash device now, by their use.",
        "",
        "state",
        &zones(stats),
    ));
    families.push(labelled(
        "flash_memory",
        "Bytes of memory that the flash tier takes now, by purpose.",
        "bytes",
        "purpose",
        &memory(stats),
    ));
    families
}

/// Every zone, for the picture on the admin page.
pub(crate) fn cells(flash: &Flash) -> Vec<ZoneCell> {
    let cell = |view: larder_flash::ZoneView| ZoneCell {
        used: match view.used {
            ZoneUse::Meta => "meta",
            ZoneUse::Free => "free",
            ZoneUse::Open => "open",
            ZoneUse::Log => "log",
            ZoneUse::Generation => "generation",
            ZoneUse::Extents => "extents",
            ZoneUse::Addresses => "addresses",
            ZoneUse::Draining => "draining",
            ZoneUse::Retired => "retired",
        },
        written_bytes: view.written_bytes,
        live_bytes: view.live_bytes,
        resets: view.resets,
    };
    flash.zone_views().into_iter().map(cell).collect()
}
