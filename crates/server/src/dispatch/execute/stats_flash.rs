//! The flash tier in `stats`: under extstore's names where they mean the same, and all of it in `stats flash`.

use super::Executor;
use crate::dispatch::outcome::StatRows;
use crate::flash::numbers;
use crate::settings::{DIRECT, PROMOTE, RECOVER};
use larder_cache::Totals;

impl Executor {
    /// Adds the rows of extstore to `stats`, in memcached's order. There are none without flash.
    pub(super) fn stats_of_extstore(&self, rows: &mut StatRows, totals: &Totals) {
        let Some(flash) = self.worker.cache().flash_tier() else { return };
        let stats = flash.stats();
        let zones = stats.zones;
        let used = u64::from(zones.open + zones.full + zones.generations + zones.draining);
        let zone_bytes = self.state.flash().map_or(0, |known| known.zone_bytes);
        for (name, value) in [
            ("get_extstore", totals.flash_hits),
            ("get_aborted_extstore", 0),
            ("get_oom_extstore", 0),
            ("recache_from_extstore", totals.promoted),
            ("miss_from_extstore", totals.flash_misses),
            ("badcrc_from_extstore", stats.misses_for_damage),
            ("extstore_memory_pressure", stats.shed),
            ("extstore_compact_lost", stats.survivors_lost),
            ("extstore_compact_rescues", stats.survivors),
            ("extstore_compact_skipped", 0),
            ("extstore_page_allocs", stats.device.resets),
            ("extstore_page_evictions", stats.quick_drops),
            ("extstore_page_reclaims", stats.reclaims + stats.quick_drops),
            ("extstore_pages_free", zones.free.into()),
            ("extstore_pages_used", used),
            ("extstore_objects_evicted", 0),
            ("extstore_objects_read", stats.hits),
            ("extstore_objects_written", stats.puts),
            ("extstore_objects_used", stats.items),
            ("extstore_bytes_evicted", 0),
            ("extstore_bytes_written", stats.device.append_bytes),
            ("extstore_bytes_read", stats.device.read_bytes),
            ("extstore_bytes_used", stats.live_bytes),
            ("extstore_bytes_fragmented", stats.dead_bytes),
            ("extstore_limit_maxbytes", self.state.flash().map_or(0, |known| known.capacity_bytes)),
            ("extstore_io_queue", self.reads_under_way()),
        ] {
            rows.put(name, value);
        }
        if zone_bytes > 0 {
            rows.put("extstore_page_size", zone_bytes);
        }
    }

    /// `stats flash`, which memcached does not have, and `stats extstore`: everything that the flash tier counts.
    pub(super) fn stats_flash(&self, rows: &mut StatRows) {
        let Some(flash) = self.worker.cache().flash_tier() else { return };
        let stats = flash.stats();
        let totals = self.worker.cache().totals();
        if let Some(known) = self.state.flash() {
            rows.put("device", &known.description);
            rows.put("capacity_bytes", known.capacity_bytes);
            rows.put("zone_bytes", known.zone_bytes);
        }
        for (name, value) in [
            ("hits", totals.flash_hits),
            ("misses", totals.flash_misses),
            ("demoted", totals.demoted),
            ("demotions_shed", totals.demotions_shed),
            ("shed_read", totals.shed_read),
            ("shed_unread", totals.shed_unread),
            ("shed_for_space", totals.shed_for_space),
            ("shed_for_index", totals.shed_for_index),
            ("store_waits", totals.store_waits),
            ("admission_rejected", totals.admission_rejected),
            ("elided", totals.elided),
            ("promoted", totals.promoted),
            ("promotion_lost", totals.promotion_lost),
        ] {
            rows.put(name, value);
        }
        for row in numbers::rows(&numbers::with_all_misses(stats.clone(), &totals)) {
            let (name, value) = row.line();
            rows.put(name, value);
        }
        for row in numbers::device_rows(&flash.devices()) {
            let (name, value) = row.line();
            rows.put(name, value);
        }
        for (number, device) in flash.devices().iter().enumerate() {
            for (name, value) in numbers::of_device(device) {
                rows.put(format!("device_{}:{name}", number + 1), value);
            }
        }
        for (number, channel) in flash.channels().iter().enumerate() {
            for (name, value) in numbers::of_channel(channel) {
                rows.put(format!("channel_{}:{name}", number + 1), value);
            }
        }
        for (state, zones) in numbers::zones(&stats) {
            rows.put(format!("zones_{state}"), zones);
        }
        for (purpose, bytes) in numbers::memory(&stats) {
            rows.put(format!("memory_{purpose}_bytes"), bytes);
        }
        rows.put("memory_bytes", stats.memory.total());
        rows.put("write_budget_bytes", self.state.in_effect().flash.write_budget_bytes.unwrap_or(0));
    }

    /// Adds the settings of flash to `stats settings`.
    pub(super) fn flash_settings(&self, rows: &mut StatRows) {
        let flash = &self.state.in_effect().flash;
        if flash.devices.is_empty() {
            return rows.put("flash", "off");
        }
        let devices: Vec<String> = flash.devices.iter().map(ToString::to_string).collect();
        rows.put("flash", devices.join(","));
        if let Some(known) = self.state.flash() {
            rows.put("flash_bytes", known.capacity_bytes);
            rows.put("flash_memory", known.memory_bytes);
            rows.put("flash_zone", known.zone_bytes);
        }
        let on_off = |on| if on { "on" } else { "off" };
        rows.put("flash_recover", RECOVER.name(flash.recover));
        rows.put("flash_promote", PROMOTE.name(flash.promote));
        rows.put("flash_admit", flash.admit);
        rows.put("flash_write_budget", flash.write_budget_bytes.unwrap_or(0));
        rows.put("flash_store_wait", flash.store_wait_ms);
        rows.put("flash_fill", flash.fill_percent);
        rows.put("flash_cutoff", flash.cutoff_s);
        rows.put("flash_direct", DIRECT.name(flash.direct));
        rows.put("flash_segment", flash.segment_bytes.unwrap_or(0));
        rows.put("flash_generations", on_off(flash.generations));
        rows.put("flash_save", on_off(flash.save));
        rows.put("flash_depth", flash.depth);
    }
}
