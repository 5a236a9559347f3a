//! The numbers of the flash, once, for `stats flash` and for the metrics.

use crate::admin::{Family, Kind, Value, ZoneCell};
use larder_cache::Totals;
use larder_flash::{Flash, FlashStats, ZoneCounts, ZoneUse};

/// One number: its name in `stats flash`; in the metrics it has `flash_` before it.
pub(crate) struct Row {
    /// With `flash_` before it.
    name: &'static str,
    help: &'static str,
    unit: &'static str,
    kind: Kind,
    value: Value,
}

/// What every name begins with in the metrics.
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

/// The tier sees only the keys that it might hold; a miss that its filters knew of is one too.
pub(crate) fn with_all_misses(mut stats: FlashStats, totals: &Totals) -> FlashStats {
    stats.misses = stats.misses.max(totals.flash_misses);
    stats
}

/// The numbers that have no label.
pub(crate) fn rows(stats: &FlashStats) -> Vec<Row> {
    let mut rows = ratios(stats);
    rows.extend(counts(stats));
    rows.extend(standing(stats));
    rows
}

/// What a person looks at first.
fn ratios(stats: &FlashStats) -> Vec<Row> {
    let mut rows = vec![
        ratio(
            "flash_alwa",
            "Application write amplification: bytes appended for a byte admitted.",
            stats.alwa(),
        ),
        ratio(
            "flash_reads_per_hit",
            "Reads of a lookup that found its item on the device.",
            stats.reads_per_hit(),
        ),
        ratio("flash_reads_per_miss", "Reads of a lookup that found nothing.", stats.reads_per_miss()),
        ratio(
            "flash_index_bytes_per_item",
            "Memory of tables, filters and fences for each item, bytes.",
            stats.index_bytes_per_item(),
        ),
    ];
    if let Some(dlwa) = stats.dlwa() {
        rows.push(ratio(
            "flash_dlwa",
            "Device write amplification: bytes programmed for a byte appended.",
            dlwa,
        ));
    }
    rows
}

fn counts(stats: &FlashStats) -> Vec<Row> {
    vec![
        count("flash_puts", "Items and parts of items put.", "", stats.puts),
        count("flash_shed", "Items not put, because the device was behind or failed.", "", stats.shed),
        count("flash_admitted", "Keys and values put.", "bytes", stats.admitted_bytes),
        count("flash_appended", "Appended to the device in segments.", "bytes", stats.appended_bytes),
        count("flash_segments_written", "Segments written.", "", stats.segments_written),
        count("flash_tombstones", "Tombstones for invalidated keys.", "", stats.tombstones),
        count(
            "flash_tombstones_waited",
            "Tombstones that found no buffer at first.",
            "",
            stats.tombstones_waited,
        ),
        count(
            "flash_drops_of_all",
            "Times too many tombstones did, and everything was dropped.",
            "",
            stats.drops_of_all,
        ),
        count("flash_lookup_hits", "Lookups that found their item.", "", stats.hits),
        count("flash_lookup_hits_in_buffers", "Of them, without a read.", "", stats.hits_in_buffers),
        count("flash_lookup_misses", "Lookups that found nothing.", "", stats.misses),
        count(
            "flash_misses_for_reads",
            "Misses that would have needed a third read.",
            "",
            stats.misses_for_reads,
        ),
        count(
            "flash_misses_for_damage",
            "Misses because what was read was damaged.",
            "",
            stats.misses_for_damage,
        ),
        count("flash_reads_for_hits", "Reads for lookups that found their item.", "", stats.reads_for_hits),
        count("flash_reads_for_misses", "Reads for lookups that found nothing.", "", stats.reads_for_misses),
        count("flash_false_reads", "Reads that did not show the key.", "", stats.false_reads),
        count("flash_table_full", "Times a table was full.", "", stats.table_full),
        count("flash_reclaims", "Zones reclaimed with their survivors.", "", stats.reclaims),
        count("flash_survivors", "Records put again by reclaims.", "", stats.survivors),
        count("flash_survivor", "Keys and values of them.", "bytes", stats.survivor_bytes),
        count(
            "flash_survivors_lost",
            "Records worth it that found no room or changed.",
            "",
            stats.survivors_lost,
        ),
        count(
            "flash_reclaim_reads",
            "Reads to find out whether a record was replaced.",
            "",
            stats.reclaim_reads,
        ),
        count("flash_merges", "Merges of the log into a generation.", "", stats.merges),
        count("flash_merges_given_up", "Merges that came to no end.", "", stats.merges_given_up),
        count("flash_merged_records", "Records that merges wrote.", "", stats.merged_records),
        count("flash_merged", "Bytes of them.", "bytes", stats.merged_bytes),
        count(
            "flash_merge_dropped",
            "Records that merges left out: cold, expired, replaced.",
            "",
            stats.merge_dropped,
        ),
        count("flash_quick_drops", "Zones dropped whole.", "", stats.quick_drops),
        count(
            "flash_drops_forced",
            "Of them, by the writer, because there was no zone.",
            "",
            stats.drops_forced,
        ),
        count("flash_errors", "Errors of the device.", "", stats.device_errors),
        count("flash_damaged_pages", "Pages that were not what was written.", "", stats.damaged_pages),
        count("flash_flushes", "Flushes.", "", stats.flushes),
        count("flash_device_reads", "Reads of the device.", "", stats.device.reads),
        count("flash_device_read", "Read from the device.", "bytes", stats.device.read_bytes),
        count("flash_device_appends", "Appends to the device.", "", stats.device.appends),
        count("flash_device_appended", "Appended to the device, by all.", "bytes", stats.device.append_bytes),
        count("flash_device_resets", "Zones erased.", "", stats.device.resets),
        count("flash_device_errors", "Operations of the device that failed.", "", stats.device.errors),
    ]
}

fn standing(stats: &FlashStats) -> Vec<Row> {
    vec![
        gauge(
            "flash_items",
            "Records that can be found; replaced ones and tombstones count.",
            "",
            stats.items,
        ),
        gauge("flash_extents", "Of them, long ones, each with an entry of its own.", "", stats.extents),
        gauge("flash_generations", "Generations.", "", stats.generations),
        gauge("flash_generation_items", "Records in them.", "", stats.generation_items),
        gauge("flash_tombstones_waiting", "Tombstones that wait for a buffer.", "", stats.tombstones_waiting),
        gauge(
            "flash_segments_waiting",
            "Full segments that are not written yet; two or more: the device is behind.",
            "",
            stats.segments_waiting,
        ),
        gauge("flash_live", "Records on the device that may be wanted, about.", "bytes", stats.live_bytes),
        gauge(
            "flash_dead",
            "Records on the device that are replaced or expired, about.",
            "bytes",
            stats.dead_bytes,
        ),
        gauge("flash_segments", "Segments on the device.", "", stats.segments),
        gauge("flash_zones_low", "Below so many free zones, reclaim is quick.", "", stats.zones_low.into()),
        gauge(
            "flash_zones_high",
            "With so many free zones, nothing is reclaimed.",
            "",
            stats.zones_high.into(),
        ),
        ratio("flash_zones_per_s", "Zones written in a second, lately.", stats.zones_per_s),
        gauge("flash_memory_limit", "The promise of --flash-memory.", "bytes", stats.memory_cap),
        gauge("flash_on", "1 while the flash works.", "", stats.is_on.into()),
        gauge(
            "flash_recovering",
            "1 while it finds out what the device holds.",
            "",
            stats.is_recovering.into(),
        ),
    ]
}

/// Zones by what they are used for.
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

/// Memory by purpose, bytes.
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

/// Everything, as the metrics have it.
pub(crate) fn families(stats: &FlashStats) -> Vec<Family> {
    let labelled = |name, help, unit, label, values: &[(&'static str, u64)]| {
        let values = values.iter().map(|(text, value)| (*text, Value::Count(*value)));
        Family::labelled(name, help, Kind::Gauge, unit, label, values)
    };
    let mut families: Vec<Family> = rows(stats).into_iter().map(Row::family).collect();
    families.push(labelled("flash_zones", "Zones by what they are used for.", "", "state", &zones(stats)));
    families.push(labelled("flash_memory", "Memory of the flash.", "bytes", "purpose", &memory(stats)));
    families
}

/// Every zone, for the picture.
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
