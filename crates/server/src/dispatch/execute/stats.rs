//! `stats` in all its forms, with memcached's names in memcached's order.
//!
//! Larder has no slab classes, no LRU lists and no crawler. Names that speak of those are there, because tools ask for
//! them, and say 0; all items stand in the one class 1.

use super::connection::{Busy, Listing};
use super::{Connection, Dispatcher};
use larder_cache::Totals;
use larder_protocol::{StatsKind, compose, reply};
use rustix::process::getpid;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

/// The class all items are said to be in.
pub(super) const THE_CLASS: u32 = 1;
/// Most bytes of a `stats cachedump`; memcached's limit.
const CACHEDUMP_BYTES_MAX: usize = 2 << 20;
/// Prefixes counted by `stats detail`, at most: about a megabyte.
const PREFIXES_MAX: usize = 8192;
/// Longest prefix that is counted, in bytes.
const PREFIX_BYTES_MAX: usize = 64;

/// Counts per key prefix, while `stats detail` is on.
#[derive(Default)]
pub struct Detail(Mutex<BTreeMap<Vec<u8>, PrefixCounts>>);

#[derive(Default, Clone, Copy)]
struct PrefixCounts {
    get: u64,
    hit: u64,
    set: u64,
    del: u64,
}

/// What `stats detail` counts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Detailed {
    Hit,
    Miss,
    Set,
    Delete,
}

impl Detail {
    fn note(&self, key: &[u8], delimiter: u8, what: Detailed) {
        let Some(end) = key.iter().take(PREFIX_BYTES_MAX).position(|&byte| byte == delimiter) else { return };
        let mut counts = self.0.lock().expect("no panic under this lock");
        if counts.len() >= PREFIXES_MAX && !counts.contains_key(&key[..end]) {
            return;
        }
        let counts = counts.entry(key[..end].to_vec()).or_default();
        match what {
            Detailed::Hit => (counts.get, counts.hit) = (counts.get + 1, counts.hit + 1),
            Detailed::Miss => counts.get += 1,
            Detailed::Set => counts.set += 1,
            Detailed::Delete => counts.del += 1,
        }
    }

    fn clear(&self) {
        self.0.lock().expect("no panic under this lock").clear();
    }

    fn dump(&self, out: &mut Vec<u8>) {
        for (prefix, counts) in self.0.lock().expect("no panic under this lock").iter() {
            out.extend_from_slice(b"PREFIX ");
            out.extend_from_slice(prefix);
            let PrefixCounts { get, hit, set, del } = counts;
            out.extend_from_slice(format!(" get {get} hit {hit} set {set} del {del}\r\n").as_bytes());
        }
    }
}

/// Lines of the form `STAT <name> <value>`.
pub(super) struct Lines<'a>(pub(super) &'a mut Vec<u8>);

impl Lines<'_> {
    pub(super) fn put(&mut self, name: &str, value: impl std::fmt::Display) {
        compose::stat_line(self.0, name.as_bytes(), value.to_string().as_bytes());
    }

    fn zeros(&mut self, names: &[&str]) {
        for name in names {
            self.put(name, 0);
        }
    }
}

fn yes_no(value: bool) -> &'static str {
    if value { "yes" } else { "no" }
}

impl Dispatcher {
    /// Counts a key's prefix if `stats detail` is on.
    #[inline]
    pub(super) fn note_detail(&self, key: &[u8], what: Detailed) {
        if self.shared.detail_on.load(Ordering::Relaxed) {
            self.shared.detail.note(key, self.shared.settings.prefix_delimiter, what);
        }
    }

    fn totals_since_reset(&self) -> Totals {
        // In this order: what is subtracted is never the newer of the two.
        let reset = self.shared.reset.read().expect("no panic under this lock").clone();
        self.worker.cache().totals().since(&reset)
    }

    pub(super) fn stats(&mut self, connection: &mut Connection, kind: StatsKind<'_>) {
        match kind {
            StatsKind::General => self.stats_general(connection.output()),
            StatsKind::Settings => self.stats_settings(connection.output()),
            StatsKind::Items => self.stats_items(connection.output()),
            StatsKind::Slabs => self.stats_slabs(connection.output()),
            StatsKind::Sizes => self.stats_sizes(connection.output()),
            StatsKind::Conns => self.stats_conns(connection.output()),
            StatsKind::Temperature => self.stats_temperature(connection.output()),
            StatsKind::Reset => {
                *self.shared.reset.write().expect("no panic under this lock") = self.worker.cache().totals();
                self.shared.detail.clear();
                if let Some((io, _)) = self.shared.io.get() {
                    io.reset();
                }
                return connection.say(reply::RESET);
            }
            StatsKind::DetailOn | StatsKind::DetailOff => {
                self.shared.detail_on.store(kind == StatsKind::DetailOn, Ordering::Relaxed);
                return connection.say(reply::OK);
            }
            StatsKind::DetailDump => self.shared.detail.dump(connection.output()),
            StatsKind::Cachedump { class, limit } => {
                if !self.shared.settings.dump_enabled {
                    return connection.say(reply::CACHEDUMP_NOT_ALLOWED);
                }
                if class == THE_CLASS {
                    let items_left = if limit == 0 { usize::MAX } else { limit as usize };
                    let form = Listing::Cachedump { items_left, bytes_left: CACHEDUMP_BYTES_MAX };
                    connection.busy = Some(Busy::Listing { bucket: 0, form });
                    return;
                }
            }
            StatsKind::Flash | StatsKind::Extstore => self.stats_flash(connection.output()),
            StatsKind::Other(_) => return connection.say(reply::ERROR),
        }
        connection.say(reply::END);
    }

    fn stats_general(&self, out: &mut Vec<u8>) {
        let cache = self.worker.cache();
        let t = self.totals_since_reset();
        let io = self.shared.io.get().map(|(io, _)| io.snapshot()).unwrap_or_default();
        let settings = &self.shared.settings;
        let clock = cache.clock();
        let usage = rusage();
        let used = cache.memory_use();
        let mut lines = Lines(out);
        lines.put("pid", getpid().as_raw_nonzero());
        lines.put("uptime", clock.uptime_s());
        lines.put("time", clock.unix_s(clock.now_s()));
        lines.put("version", crate::VERSION_SHOWN);
        lines.put("libevent", "none");
        lines.put("pointer_size", usize::BITS);
        lines.put("rusage_user", &usage.0);
        lines.put("rusage_system", &usage.1);
        lines.put("max_connections", settings.connections_max);
        lines.put("curr_connections", io.curr_connections);
        lines.put("total_connections", io.total_connections);
        lines.put("rejected_connections", io.rejected_connections);
        lines.put("connection_structures", io.curr_connections);
        lines.zeros(&["response_obj_oom", "response_obj_count", "response_obj_bytes", "read_buf_count"]);
        lines.put("read_buf_bytes", io.buffer_bytes);
        lines.zeros(&["read_buf_bytes_free"]);
        lines.put("read_buf_oom", io.read_out_of_memory);
        lines.zeros(&["reserved_fds"]);
        for (name, value) in [
            ("cmd_get", t.cmd_get),
            ("cmd_set", t.cmd_set),
            ("cmd_flush", t.cmd_flush),
            ("cmd_touch", t.cmd_touch),
            ("cmd_meta", t.cmd_meta),
            ("get_hits", t.get_hits),
            ("get_misses", t.get_misses),
            ("get_expired", t.get_expired),
            ("get_flushed", t.get_flushed),
            ("delete_misses", t.delete_misses),
            ("delete_hits", t.delete_hits),
            ("incr_misses", t.incr_misses),
            ("incr_hits", t.incr_hits),
            ("decr_misses", t.decr_misses),
            ("decr_hits", t.decr_hits),
            ("cas_misses", t.cas_misses),
            ("cas_hits", t.cas_hits),
            ("cas_badval", t.cas_badval),
            ("touch_hits", t.touch_hits),
            ("touch_misses", t.touch_misses),
            ("store_too_large", t.store_too_large),
            ("store_no_memory", t.store_no_memory),
            ("auth_cmds", t.auth_cmds),
            ("auth_errors", t.auth_errors),
        ] {
            lines.put(name, value);
        }
        if settings.idle_timeout_s > 0 {
            lines.put("idle_kicks", io.idle_kicks);
        }
        lines.put("bytes_read", io.bytes_read);
        lines.put("bytes_written", io.bytes_written);
        lines.put("limit_maxbytes", used.limit_bytes);
        lines.put("accepting_conns", io.accepting as u8);
        lines.put("listen_disabled_num", io.listen_disabled_num);
        lines.put("time_in_listen_disabled_us", io.time_in_listen_disabled_us);
        lines.put("threads", settings.threads);
        lines.zeros(&["conn_yields"]);
        lines.put("hash_power_level", cache.hashpower());
        lines.put("hash_bytes", used.index_bytes);
        lines.put("hash_is_expanding", cache.is_growing() as u8);
        lines.zeros(&[
            "slab_reassign_rescues",
            "slab_reassign_chunk_rescues",
            "slab_reassign_inline_reclaim",
            "slab_reassign_busy_items",
            "slab_reassign_busy_deletes",
            "slab_reassign_busy_nomem",
            "slab_reassign_last_busy_status",
            "slab_reassign_running",
            "slabs_moved",
            "lru_crawler_running",
            "lru_crawler_starts",
            "lru_maintainer_juggles",
            "malloc_fails",
            "log_worker_dropped",
            "log_worker_written",
            "log_watcher_skipped",
            "log_watcher_sent",
            "log_watchers",
            "unexpected_napi_ids",
            "round_robin_fallback",
        ]);
        lines.put("bytes", used.items_bytes);
        lines.put("curr_items", cache.items());
        lines.put("total_items", t.total_items);
        lines.put("slab_global_page_pool", used.free_columns_bytes / cache.column_bytes() as u64);
        lines.put("expired_unfetched", t.expired_unfetched);
        lines.put("evicted_unfetched", t.evicted_unfetched);
        lines.put("evicted_active", t.evicted_active);
        lines.put("evictions", t.evictions);
        lines.put("reclaimed", t.reclaimed);
        lines.zeros(&["crawler_reclaimed", "crawler_items_checked", "lrutail_reflocked", "moves_to_cold"]);
        lines.zeros(&["moves_to_warm"]);
        lines.put("moves_within_lru", t.moved);
        lines.put("direct_reclaims", t.starved);
        lines.zeros(&["lru_bumps_dropped"]);
        self.stats_of_extstore(&mut lines, &t);
    }

    fn stats_settings(&self, out: &mut Vec<u8>) {
        let settings = &self.shared.settings;
        let cache = self.worker.cache();
        let used = cache.memory_use();
        let mut lines = Lines(out);
        lines.put("maxbytes", used.limit_bytes);
        lines.put("maxconns", settings.connections_max);
        lines.put("tcpport", settings.tcp_port.number().unwrap_or(0));
        lines.put("udpport", settings.udp_port.number().unwrap_or(0));
        let inter: Vec<String> = settings.addresses.iter().map(|address| address.to_string()).collect();
        lines.put("inter", if inter.is_empty() { "NULL".to_owned() } else { inter.join(",") });
        lines.put("verbosity", self.shared.verbosity.load(Ordering::Relaxed));
        lines.zeros(&["oldest"]);
        lines.put("evictions", if settings.evict { "on" } else { "off" });
        let socket =
            settings.unix_socket.as_ref().map_or("NULL".to_owned(), |path| path.display().to_string());
        lines.put("domain_socket", socket);
        lines.put("umask", format!("{:o}", settings.unix_mask));
        lines.put("shutdown_command", yes_no(settings.shutdown_enabled));
        lines.put("growth_factor", "1.00");
        lines.put("chunk_size", larder_item::HEADER_BYTES);
        lines.put("num_threads", settings.threads);
        lines.put("num_threads_per_udp", settings.threads);
        lines.put("stat_key_prefix", settings.prefix_delimiter as char);
        lines.put("detail_enabled", yes_no(self.shared.detail_on.load(Ordering::Relaxed)));
        lines.put("reqs_per_event", settings.requests_per_event);
        lines.put("cas_enabled", yes_no(settings.cas_enabled));
        lines.put("tcp_backlog", settings.backlog);
        lines.put("binding_protocol", settings.protocol.to_string());
        lines.put("auth_enabled_sasl", "no");
        lines.put(
            "auth_enabled_ascii",
            settings.auth_file.as_ref().map_or("no".to_owned(), |p| p.display().to_string()),
        );
        lines.put("item_size_max", settings.item_bytes_max);
        lines.put("maxconns_fast", yes_no(settings.maxconns_fast));
        lines.put("hashpower_init", settings.hashpower.unwrap_or(0));
        lines.put("slab_reassign", "no");
        lines.put("slab_automove", 0);
        lines.put("slab_automove_ratio", "0.00");
        lines.put("slab_automove_window", 0);
        lines.put("slab_chunk_max", cache.whole_value_bytes_max());
        lines.put("lru_crawler", "no");
        lines.zeros(&["lru_crawler_sleep", "lru_crawler_tocrawl"]);
        lines.put("tail_repair_time", 0);
        lines.put("flush_enabled", yes_no(settings.flush_enabled));
        lines.put("dump_enabled", yes_no(settings.dump_enabled));
        lines.put("hash_algorithm", "rapidhash");
        lines.put("lru_maintainer_thread", "no");
        lines.put("lru_segmented", "no");
        lines.zeros(&["hot_lru_pct", "warm_lru_pct"]);
        lines.put("hot_max_factor", "0.00");
        lines.put("warm_max_factor", "0.00");
        lines.put("temp_lru", "no");
        lines.zeros(&["temporary_ttl"]);
        lines.put("idle_timeout", settings.idle_timeout_s);
        lines.zeros(&["watcher_logbuf_size", "worker_logbuf_size"]);
        lines.put("read_buf_mem_limit", used.buffers_cap_bytes);
        lines.put("track_sizes", yes_no(settings.track_sizes));
        lines.put("inline_ascii_response", "no");
        lines.put("memory_file", "(null)");
        lines.put("client_flags_size", 4);
        lines.put("pages", &self.shared.pages);
        lines.put("column_bytes", cache.column_bytes());
        lines.put("temperature", cache.temperature_kind().name());
        lines.put("device", settings.device);
        self.flash_settings(&mut lines);
        lines.put(
            "backend",
            self.shared.backend.get().map_or_else(String::new, |backend| backend.to_string()),
        );
    }

    /// `stats temperature`, which memcached does not have.
    fn stats_temperature(&self, out: &mut Vec<u8>) {
        let cache = self.worker.cache();
        let facts = cache.temperature_facts();
        let mut lines = Lines(out);
        lines.put("temperature", cache.temperature_kind().name());
        if !facts.place.is_empty() {
            lines.put("hitmap_on", &facts.place);
        }
        lines.put("bytes", cache.memory_use().temperature_bytes);
        lines.put("probation_share", format!("{:.2}", facts.probation_share));
        lines.put("probation_columns", facts.probation_columns);
        lines.put("main_columns", facts.main_columns);
        for (name, _, value) in facts.counts() {
            lines.put(name, value);
        }
        let totals = cache.totals();
        lines.put("moved", totals.moved);
        lines.put("reference_pages_dropped", cache.dropped_pages());
        lines.put("note_ns", totals.note_ns);
        lines.put("pass_ns", totals.pass_ns);
        lines.put("keeper_cpu_ns", cache.keeper_cpu_ns());
    }

    fn stats_items(&self, out: &mut Vec<u8>) {
        let cache = self.worker.cache();
        let t = self.totals_since_reset();
        let used = cache.memory_use();
        if cache.items() == 0 {
            return;
        }
        let mut lines = Lines(out);
        for (name, value) in [
            ("number", cache.items()),
            ("number_hot", 0),
            ("number_warm", 0),
            ("number_cold", cache.items()),
            ("age_hot", 0),
            ("age_warm", 0),
            ("age", cache.age_s().into()),
            ("mem_requested", used.items_bytes),
            ("evicted", t.evictions),
            ("evicted_nonzero", t.evicted_nonzero),
            ("evicted_time", cache.evicted_idle_s().into()),
            ("outofmemory", t.store_no_memory),
            ("tailrepairs", 0),
            ("reclaimed", t.reclaimed),
            ("expired_unfetched", t.expired_unfetched),
            ("evicted_unfetched", t.evicted_unfetched),
            ("evicted_active", t.evicted_active),
            ("crawler_reclaimed", 0),
            ("crawler_items_checked", 0),
            ("lrutail_reflocked", 0),
            ("moves_to_cold", 0),
            ("moves_to_warm", 0),
            ("moves_within_lru", t.moved),
            ("direct_reclaims", t.starved),
            ("hits_to_hot", 0),
            ("hits_to_warm", 0),
            ("hits_to_cold", t.get_hits),
            ("hits_to_temp", 0),
        ] {
            lines.put(&format!("items:{THE_CLASS}:{name}"), value);
        }
    }

    fn stats_slabs(&self, out: &mut Vec<u8>) {
        let cache = self.worker.cache();
        let t = self.totals_since_reset();
        let used = cache.memory_use();
        let column_bytes = cache.column_bytes() as u64;
        let mut lines = Lines(out);
        if cache.items() > 0 {
            let columns = used.columns_bytes / column_bytes;
            for (name, value) in [
                ("chunk_size", 1),
                ("chunks_per_page", column_bytes),
                ("total_pages", columns),
                ("total_chunks", used.columns_bytes),
                ("used_chunks", used.items_bytes),
                ("free_chunks", used.columns_bytes.saturating_sub(used.items_bytes)),
                ("free_chunks_end", 0),
                ("get_hits", t.get_hits),
                ("cmd_set", t.cmd_set),
                ("delete_hits", t.delete_hits),
                ("incr_hits", t.incr_hits),
                ("decr_hits", t.decr_hits),
                ("cas_hits", t.cas_hits),
                ("cas_badval", t.cas_badval),
                ("touch_hits", t.touch_hits),
            ] {
                lines.put(&format!("{THE_CLASS}:{name}"), value);
            }
        }
        lines.put("active_slabs", (cache.items() > 0) as u8);
        lines.put("total_malloced", used.columns_bytes);
    }

    fn stats_sizes(&mut self, out: &mut Vec<u8>) {
        if !self.shared.settings.track_sizes {
            return Lines(out).put("sizes_status", "disabled");
        }
        let mut sizes: BTreeMap<u64, u64> = BTreeMap::new();
        let (mut listed, mut bucket) = (Vec::new(), 0);
        loop {
            let next = self.worker.list(bucket, 1024, &mut listed);
            for item in listed.drain(..) {
                *sizes.entry(item.bytes.next_multiple_of(32)).or_default() += 1;
            }
            self.worker.quiesce();
            let Some(next) = next else { break };
            bucket = next;
        }
        let mut lines = Lines(out);
        for (size, count) in sizes {
            lines.put(&size.to_string(), count);
        }
    }

    fn stats_conns(&self, out: &mut Vec<u8>) {
        let Some((_, registry)) = self.shared.io.get() else { return };
        let mut lines = Lines(out);
        for report in registry.report(self.shared.io_now_s()) {
            let fd = report.fd;
            lines.put(&format!("{fd}:addr"), &report.addr);
            if let Some(listen_addr) = &report.listen_addr {
                lines.put(&format!("{fd}:listen_addr"), listen_addr);
            }
            lines.put(&format!("{fd}:state"), report.state);
            lines.put(&format!("{fd}:secs_since_last_cmd"), report.idle_s);
        }
    }
}

/// User and system time of this process, as memcached prints them.
fn rusage() -> (String, String) {
    let time = |number: &str| -> String {
        let ticks: u64 = number.parse().unwrap_or(0);
        let hz = rustix::param::clock_ticks_per_second().max(1);
        format!("{}.{:06}", ticks / hz, ticks % hz * 1_000_000 / hz)
    };
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Behind the program's name, which may hold anything but ends at the last parenthesis: utime is the 12th field.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_ascii_whitespace().collect();
    (time(fields.get(11).unwrap_or(&"0")), time(fields.get(12).unwrap_or(&"0")))
}
