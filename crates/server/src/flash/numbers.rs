//! The figures of the flash tier, defined once for `stats flash`, for `/metrics` and for `docs/flash-counters.md`.
//!
//! A new figure is a row of [`FIGURES`]. `stats flash` shows it under its name without the prefix `flash_`, `/metrics`
//! with it. The document adds what a figure tells; its other cells are those of the row, and a test writes them
//! when it runs with `WRITE_FIGURES=1`.

use crate::admin::{Family, Kind, Value, ZoneCell};
use larder_cache::Totals;
use larder_flash::device::{ChannelCounters, MemberStatus};
use larder_flash::{Flash, FlashStats, ZoneCounts, ZoneUse};

/// What a figure is counted in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Unit {
    /// Grows from 0 at each start of the server.
    Events,
    /// Grows from 0 at each start of the server.
    Bytes,
    Ratio,
    /// A number of this moment, as all below.
    Now,
    BytesNow,
    BytesPerItem,
    Zones,
    ZonesPerSecond,
    Erases,
    /// 0 or 1.
    Truth,
}

impl Unit {
    fn kind(self) -> Kind {
        if matches!(self, Unit::Events | Unit::Bytes) { Kind::Counter } else { Kind::Gauge }
    }

    /// What stands behind the name, in `/metrics` and in `stats flash`.
    fn suffix(self) -> &'static str {
        if matches!(self, Unit::Bytes | Unit::BytesNow) { "bytes" } else { "" }
    }
}

/// A figure, and how it is found.
struct Figure {
    /// The name in `/metrics`, without the program's prefix and the unit.
    name: &'static str,
    /// What it counts, as `/metrics` says it.
    help: &'static str,
    unit: Unit,
    /// `None` = the device does not tell.
    value: fn(&FlashStats) -> Option<Value>,
}

const fn figure(
    name: &'static str,
    help: &'static str,
    unit: Unit,
    value: fn(&FlashStats) -> Option<Value>,
) -> Figure {
    Figure { name, help, unit, value }
}

fn count(value: u64) -> Option<Value> {
    Some(Value::Count(value))
}

fn amount(value: f64) -> Option<Value> {
    Some(Value::Amount(value))
}

/// The figures without labels, in the order in which they are shown.
#[rustfmt::skip] // A row reads as a line: what it is called, what it counts, in which unit, and where it is found.
const FIGURES: &[Figure] = &[
    // The ratios by which a flash tier is judged.
    figure("flash_alwa", "Application write amplification: bytes that the flash tier has appended to the device, \
        divided by bytes of keys and values that it has accepted, since the server started.",
        Unit::Ratio, |stats| amount(stats.alwa())),
    figure("flash_reads_per_hit", "Device reads of a flash lookup that found its record on the device, on average \
        since the server started. Lookups that found it in a buffer are left out.",
        Unit::Ratio, |stats| amount(stats.reads_per_hit())),
    figure("flash_reads_per_miss", "Device reads of a flash lookup that found nothing, on average since the server \
        started. Lookups that a filter answered are included.", Unit::Ratio, |stats| amount(stats.reads_per_miss())),
    figure("flash_index_bytes_per_item", "Bytes of memory that the log's table, segments, filters and bits of the \
        flash tier take for each record on flash.", Unit::BytesPerItem, |stats| amount(stats.index_bytes_per_item())),
    figure("flash_dlwa", "Device write amplification: bytes that the device has programmed, divided by bytes that \
        were appended to it, since the server started. Only where the device tells: a simulated drive.",
        Unit::Ratio, |stats| stats.dlwa().and_then(amount)),

    // What is written.
    figure("flash_puts", "Items, and parts of large items, that the flash tier has accepted since the server \
        started.", Unit::Events, |stats| count(stats.puts)),
    figure("flash_shed", "Items, and parts of large items, that the flash tier has refused since the server started: \
        no buffer had room, the index was full, erased space was down to its reserve, a flush was under way, or the \
        flash had failed.", Unit::Events, |stats| count(stats.shed)),
    figure("flash_admitted", "Bytes of keys and values that the flash tier has accepted since the server started.",
        Unit::Bytes, |stats| count(stats.admitted_bytes)),
    figure("flash_appended", "Bytes of segments that the flash tier has appended to the device since the server \
        started, by the log, reclaim and merges, padding included. Superblocks and journal are left out.",
        Unit::Bytes, |stats| count(stats.appended_bytes)),
    figure("flash_segments_written", "Segments written to the device since the server started, by the log, for long \
        records, by reclaim and by merges.", Unit::Events, |stats| count(stats.segments_written)),
    figure("flash_tombstones", "Tombstones that deletes and replacements have left since the server started, \
        including tombstones that had to wait. A tombstone says that older versions of a key are invalid. What \
        reclaim and merges write again is not counted.", Unit::Events, |stats| count(stats.tombstones)),
    figure("flash_tombstones_waited", "Tombstones that had to wait because no segment buffer had room, since the \
        server started.", Unit::Events, |stats| count(stats.tombstones_waited)),
    figure("flash_drops_of_all", "How often the whole content of the flash was dropped since the server started, \
        because a segment had waited too long for an erased zone. What a start drops is not counted: only the log \
        tells.", Unit::Events, |stats| count(stats.drops_of_all)),
    figure("flash_range_drops", "How often a range of keys was dropped from flash since the server started, because \
        more tombstones waited for a buffer than the tier can remember: raise --flash-memory.",
        Unit::Events, |stats| count(stats.range_drops)),

    // Lookups.
    figure("flash_lookup_hits", "Flash lookups that found their record since the server started.",
        Unit::Events, |stats| count(stats.hits)),
    figure("flash_lookup_hits_in_buffers", "Flash lookups that found their record in a segment that is still in \
        memory, without a device read, since the server started. Lookups by reclaim are included.",
        Unit::Events, |stats| count(stats.hits_in_buffers)),
    figure("flash_lookup_misses", "Flash lookups that found nothing since the server started, including misses that \
        a filter answered without a look; never fewer than flash_misses.", Unit::Events, |stats| count(stats.misses)),
    figure("flash_misses_for_reads", "Flash lookups that were answered with a miss since the server started, because \
        they had used up their device reads (four of the log, two of generations), or because the item was longer \
        than the memory for reads allows: --flash-memory was larger when it was written.",
        Unit::Events, |stats| count(stats.misses_for_reads)),
    figure("flash_misses_for_damage", "Flash lookups that were answered with a miss since the server started, \
        because a page was damaged, could not be read, or was erased meanwhile.",
        Unit::Events, |stats| count(stats.misses_for_damage)),
    figure("flash_reads_for_hits", "Device reads of flash lookups that found their record, since the server started.",
        Unit::Events, |stats| count(stats.reads_for_hits)),
    figure("flash_reads_for_misses", "Device reads of flash lookups that found nothing, since the server started.",
        Unit::Events, |stats| count(stats.reads_for_misses)),
    figure("flash_false_reads", "Device reads of flash lookups that did not show the key which the index had \
        promised, because another key looked alike there, since the server started.",
        Unit::Events, |stats| count(stats.false_reads)),
    figure("flash_table_full", "Records for which the log's table or the table of long records had no room since the \
        server started. Items are refused (flash_shed) before that, when 3 percent of the log's table are left, and \
        the oldest part is merged or, without generations, dropped.", Unit::Events, |stats| count(stats.table_full)),

    // Reclaim and merges.
    figure("flash_reclaims", "Zones that were freed since the server started after their live records had been \
        written again elsewhere.", Unit::Events, |stats| count(stats.reclaims)),
    figure("flash_survivors", "Records that reclaim has written again since the server started. Tombstones are not \
        counted.", Unit::Events, |stats| count(stats.survivors)),
    figure("flash_survivor", "Bytes of keys and values that reclaim has written again since the server started.",
        Unit::Bytes, |stats| count(stats.survivor_bytes)),
    figure("flash_survivors_lost", "Records that reclaim wanted to write again and could not, since the server \
        started: the record had changed meanwhile, or no buffer had room. Most are judged once more, and some are \
        then kept.", Unit::Events, |stats| count(stats.survivors_lost)),
    figure("flash_reclaim_reads", "Device reads by which reclaim found out whether a record was replaced, since the \
        server started.", Unit::Events, |stats| count(stats.reclaim_reads)),
    figure("flash_list_reads", "Device reads by which keys were listed, since the server started.",
        Unit::Events, |stats| count(stats.list_reads)),
    figure("flash_merges", "Merges of log segments into a generation that were completed since the server started.",
        Unit::Events, |stats| count(stats.merges)),
    figure("flash_merges_given_up", "Merges of log segments into a generation that ended early since the server \
        started: there was no space for their output, or a flush, a stop or an error came in between.",
        Unit::Events, |stats| count(stats.merges_given_up)),
    figure("flash_zones_collected", "Zones of generations whose live records a merge has written again since the \
        server started.", Unit::Events, |stats| count(stats.zones_collected)),
    figure("flash_merged_records", "Live records that merges have written since the server started.",
        Unit::Events, |stats| count(stats.merged_records)),
    figure("flash_merged", "Bytes of records, with their headers, that merges have written since the server started.",
        Unit::Bytes, |stats| count(stats.merged_bytes)),
    figure("flash_merge_dropped", "Records that merges have left out since the server started, because they were \
        replaced, expired, deleted by prefix, or cold while the flash was fuller than the setting fill.",
        Unit::Events, |stats| count(stats.merge_dropped)),
    figure("flash_quick_drops", "Zones that were erased with everything in them since the server started, without a \
        look at their records, because space was short or the index was full.",
        Unit::Events, |stats| count(stats.quick_drops)),
    figure("flash_drops_forced", "Zones that the thread that writes had to erase with everything in them since the \
        server started, because no zone was erased and none came for a second.",
        Unit::Events, |stats| count(stats.drops_forced)),

    // The device.
    figure("flash_errors", "Errors of the device that the flash tier met since the server started: reads, writes, \
        erasing and the tier's own records.", Unit::Events, |stats| count(stats.device_errors)),
    figure("flash_devices_failed", "Flash devices, of several, that have failed for good since the server started. \
        What they held is lost, and the others go on. A single device that fails turns flash_on to 0.",
        Unit::Events, |stats| count(stats.devices_failed)),
    figure("flash_damaged_pages", "Device pages with a wrong checksum that were read since the server started. Pages \
        of a zone that was erased meanwhile are not counted.", Unit::Events, |stats| count(stats.damaged_pages)),
    figure("flash_flushes", "How often everything on flash was dropped since the server started, for flush_all, or \
        for a deleted prefix that found no room beside the journal.", Unit::Events, |stats| count(stats.flushes)),
    figure("flash_device_reads", "Read operations of the flash device that succeeded since the server started, \
        including reads of starts, reclaim and merges.", Unit::Events, |stats| count(stats.device.reads)),
    figure("flash_device_read", "Bytes read from the flash device since the server started.",
        Unit::Bytes, |stats| count(stats.device.read_bytes)),
    figure("flash_device_appends", "Append operations of the flash device that succeeded since the server started, \
        including appends to superblocks and journal.", Unit::Events, |stats| count(stats.device.appends)),
    figure("flash_device_appended", "Bytes appended to the flash device since the server started, by segments, \
        merges and the tier's own records together.", Unit::Bytes, |stats| count(stats.device.append_bytes)),
    figure("flash_device_resets", "Zones of the flash device that were erased since the server started.",
        Unit::Events, |stats| count(stats.device.resets)),
    figure("flash_device_errors", "Operations of the flash device that failed since the server started.",
        Unit::Events, |stats| count(stats.device.errors)),

    // Records.
    figure("flash_items", "Records that the index of the flash lists now. Replaced versions and tombstones are among \
        the records until their zone is erased.", Unit::Now, |stats| count(stats.items)),
    figure("flash_extents", "Long records on flash now: key and value are longer than 2,048 bytes together. Each has \
        an entry of its own in memory.", Unit::Now, |stats| count(stats.extents)),
    figure("flash_generations", "Generations of merged segments on flash now.",
        Unit::Now, |stats| count(stats.generations)),
    figure("flash_generation_items", "Records in the generations on flash now.",
        Unit::Now, |stats| count(stats.generation_items)),
    figure("flash_tombstones_waiting", "Tombstones that wait for a segment buffer now.",
        Unit::Now, |stats| count(stats.tombstones_waiting)),

    // Space.
    figure("flash_segments_waiting", "Full segments in memory that are not written to the device yet, the segment \
        included that is being written. With two or more the device is behind.",
        Unit::Now, |stats| count(stats.segments_waiting)),
    figure("flash_live", "Estimated bytes of records on the device now that may still be asked for.",
        Unit::BytesNow, |stats| count(stats.live_bytes)),
    figure("flash_dead", "Estimated bytes of records on the device now that were replaced, deleted or have expired.",
        Unit::BytesNow, |stats| count(stats.dead_bytes)),
    figure("flash_segments", "Segments on the device now.", Unit::Now, |stats| count(stats.segments)),
    figure("flash_zones_low", "Low mark of the erased zones: with fewer, zones with little garbage are reclaimed as \
        well.", Unit::Zones, |stats| count(stats.zones_low.into())),
    figure("flash_zones_high", "High mark of the erased zones: with as many, only zones of which nearly all is \
        garbage are reclaimed.", Unit::Zones, |stats| count(stats.zones_high.into())),
    figure("flash_zones_per_second", "Zones that the log and long records fill in a second, a mean of about 10 seconds \
        of writing. Merges are left out, and the figure stays where it is while nothing is written.",
        Unit::ZonesPerSecond, |stats| amount(stats.zones_per_s)),
    figure("flash_memory_limit", "Bytes of memory that the flash tier may take (--flash-memory).",
        Unit::BytesNow, |stats| count(stats.memory_cap)),
    figure("flash_on", "1 while the flash tier works, 0 after the device has failed for good.",
        Unit::Truth, |stats| count(stats.is_on.into())),
    figure("flash_recovering", "1 while the flash tier still reads back what the device held at the start of the \
        server, else 0.", Unit::Truth, |stats| count(stats.is_recovering.into())),

    // Wear, where the device tells of it.
    figure("flash_erases_least", "Erases of the block of the flash device that was erased the fewest times, since \
        the device was made, where the device tells.",
        Unit::Erases, |stats| stats.device.erases.and_then(|erases| count(erases.least.into()))),
    figure("flash_erases_most", "Erases of the block of the flash device that was erased the most times, since the \
        device was made, where the device tells.",
        Unit::Erases, |stats| stats.device.erases.and_then(|erases| count(erases.most.into()))),
];

/// The number of devices. Only a tier that is spread over several shows it.
const DEVICES: Figure =
    figure("flash_devices", "Devices that the flash tier is spread over.", Unit::Now, |_| None);

/// What every name in `/metrics` begins with.
const PREFIX: &str = "flash_";

impl Figure {
    /// The name in `stats flash`.
    fn line_name(&self) -> String {
        let plain = self.name.strip_prefix(PREFIX).unwrap_or(self.name);
        match self.unit.suffix() {
            "" => plain.to_owned(),
            unit => format!("{plain}_{unit}"),
        }
    }
}

/// A figure, with its value.
pub(crate) struct Row {
    figure: &'static Figure,
    value: Value,
}

impl Row {
    /// The name and the value of a line of `stats flash`.
    pub(crate) fn line(&self) -> (String, String) {
        let value = match &self.value {
            Value::Count(count) => count.to_string(),
            Value::Amount(amount) => format!("{amount:.3}"),
            Value::Times(_) => String::new(),
        };
        (self.figure.line_name(), value)
    }

    fn family(self) -> Family {
        let Figure { name, help, unit, .. } = self.figure;
        Family::single(name, help, unit.kind(), unit.suffix(), self.value)
    }
}

/// The flash tier is only asked for keys that its filters do not rule out. The cache counts the misses that a filter
/// answered, too: the larger number is the one to show.
pub(crate) fn with_all_misses(mut stats: FlashStats, totals: &Totals) -> FlashStats {
    stats.misses = stats.misses.max(totals.flash_misses);
    stats
}

/// The figures without labels, as far as the device tells.
pub(crate) fn rows(stats: &FlashStats) -> Vec<Row> {
    let row = |figure: &'static Figure| Some(Row { figure, value: (figure.value)(stats)? });
    FIGURES.iter().filter_map(row).collect()
}

/// The figures of a tier that is spread over several devices; none for a single device.
pub(crate) fn device_rows(devices: &[MemberStatus]) -> Vec<Row> {
    match devices.len() {
        0 => Vec::new(),
        several => vec![Row { figure: &DEVICES, value: Value::Count(several as u64) }],
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/flash-counters.md");

    impl Unit {
        /// What the document calls it.
        fn words(self) -> &'static str {
            match self {
                Unit::Events => "events",
                Unit::Bytes => "bytes",
                Unit::Ratio => "ratio",
                Unit::Now => "now",
                Unit::BytesNow | Unit::BytesPerItem => "bytes, now",
                Unit::Zones => "zones, now",
                Unit::ZonesPerSecond => "zones a second, now",
                Unit::Erases => "erases, now",
                Unit::Truth => "0 or 1, now",
            }
        }
    }

    /// A word as the document shows it: the names of flags, commands and figures as code.
    fn shown(word: &str) -> String {
        let name = word.trim_matches(|c: char| !c.is_alphanumeric() && !"-_".contains(c));
        match name.starts_with("--") || name.contains('_') {
            true => word.replace(name, &format!("`{}`", name.trim_start_matches(PREFIX))),
            false => word.to_owned(),
        }
    }

    /// The help as a cell of a table in which everything is counted since the server started.
    fn cell(help: &str) -> String {
        let text = help.replace(", since the server started", "").replace(" since the server started", "");
        let words: Vec<String> = text.trim_end_matches('.').split(' ').map(shown).collect();
        let text = words.join(" ");
        let (first, rest) = text.split_at(1);
        first.to_lowercase() + rest
    }

    /// The line of the document for a figure, with what the document has it tell.
    fn documented(line: &str) -> Option<String> {
        let cells: Vec<&str> = line.strip_prefix("| `")?.trim_end_matches(" |").split(" | ").collect();
        let name = cells[0].trim_end_matches('`');
        let figure = FIGURES.iter().chain([&DEVICES]).find(|figure| figure.line_name() == name)?;
        let (unit, counts) = (figure.unit.words(), cell(figure.help));
        Some(format!("| `{name}` | {unit} | {counts} | {} |", cells.last()?))
    }

    /// With `WRITE_FIGURES=1` the document gets the cells that are not right.
    #[test]
    fn the_document_has_the_cells_of_every_row() {
        let text = std::fs::read_to_string(DOCUMENT).expect("the document is there");
        let right: String =
            text.lines().map(|line| documented(line).unwrap_or_else(|| line.to_owned()) + "\n").collect();
        if std::env::var_os("WRITE_FIGURES").is_some() {
            std::fs::write(DOCUMENT, &right).expect("the document can be written");
        } else if let Some((found, right)) = text.lines().zip(right.lines()).find(|(a, b)| a != b) {
            panic!(
                "'{found}' should be '{right}': write it with WRITE_FIGURES=1 cargo test -p larder-server the_document"
            );
        }
        for figure in FIGURES.iter().chain([&DEVICES]) {
            let row = format!("| `{}` |", figure.line_name());
            assert_eq!(text.matches(&row).count(), 1, "{row}");
        }
    }
}
