//! `stats` in all its forms, with memcached's names in memcached's order.
//!
//! Larder has no slab classes, no LRU lists and no crawler. Names that speak of those are there, because tools ask for
//! them, and their value is 0. All items are shown in the one class 1.

use super::Executor;
use crate::dispatch::operation::{StatsTopic, THE_CLASS};
use crate::dispatch::outcome::StatRows;
use crate::dispatch::progress::{Busy, Progress};
use crate::io::IoSnapshot;
use crate::own_process;
use crate::settings::{Protocol, TlsSettings};
use larder_cache::{MemoryUse, Totals};
use rustix::process::getpid;
use std::path::PathBuf;
use std::time::Duration;

/// Buckets whose items `stats sizes` measures in one turn: about 1,500 items, so some tens of microseconds.
const MEASURED_BUCKETS: usize = 256;
/// `stats sizes` rounds sizes up to multiples of this number of bytes.
const SIZES_STEP_BYTES: u64 = 32;

fn yes_no(value: bool) -> &'static str {
    if value { "yes" } else { "no" }
}

impl Executor {
    pub(in crate::dispatch) fn totals_since_reset(&self) -> Totals {
        // Read in this order, the totals at the reset are never the newer of the two.
        let at_reset = self.state.totals_at_reset();
        self.worker.cache().totals().since(&at_reset)
    }

    pub(super) fn stats(&mut self, topic: StatsTopic, progress: &mut Progress) -> StatRows {
        let mut rows = StatRows::default();
        match topic {
            StatsTopic::General => self.stats_general(&mut rows),
            StatsTopic::Settings => self.stats_settings(&mut rows),
            StatsTopic::Items => self.stats_items(&mut rows),
            StatsTopic::Slabs => self.stats_slabs(&mut rows),
            StatsTopic::Sizes => self.stats_sizes(&mut rows, progress),
            StatsTopic::Connections => self.stats_connections(&mut rows),
            StatsTopic::Temperature => self.stats_temperature(&mut rows),
            StatsTopic::Worth => self.stats_worth(&mut rows),
            StatsTopic::Namespaces => self.stats_namespaces(&mut rows),
            StatsTopic::Compression => self.stats_compression(&mut rows),
            StatsTopic::Flash => self.stats_flash(&mut rows),
            StatsTopic::Penalties => self.stats_penalties(&mut rows),
            StatsTopic::HotKeys => self.stats_hot_keys(&mut rows),
            StatsTopic::LargeKeys => self.stats_large_keys(&mut rows),
            StatsTopic::Mrc => self.stats_mrc(&mut rows),
            StatsTopic::Latency => self.stats_latency(&mut rows),
        }
        rows
    }

    fn stats_general(&self, rows: &mut StatRows) {
        let cache = self.worker.cache();
        let totals = self.totals_since_reset();
        let io = self.state.io_snapshot();
        let settings = self.state.in_effect();
        let clock = cache.clock();
        let usage = rusage();
        let used = cache.memory_use();
        rows.put("pid", getpid().as_raw_nonzero());
        rows.put("uptime", clock.uptime_s());
        rows.put("time", clock.unix_s(clock.now_s()));
        rows.put("version", crate::version::VERSION_SHOWN);
        rows.put("libevent", "none");
        rows.put("pointer_size", usize::BITS);
        rows.put("rusage_user", &usage.0);
        rows.put("rusage_system", &usage.1);
        rows.put("max_connections", settings.connections_max);
        rows.put("curr_connections", io.curr_connections);
        rows.put("total_connections", io.total_connections);
        rows.put("rejected_connections", io.rejected_connections);
        rows.put("address_rejected_connections", io.address_rejected_connections);
        rows.put("stranger_rejected_connections", io.stranger_rejected_connections);
        rows.put("connection_structures", io.curr_connections);
        rows.put("response_obj_oom", io.unread_kicks);
        rows.zeros(&["response_obj_count", "response_obj_bytes", "read_buf_count"]);
        rows.put("read_buf_bytes", io.buffer_bytes);
        rows.zeros(&["read_buf_bytes_free"]);
        rows.put("read_buf_oom", io.read_out_of_memory);
        rows.zeros(&["reserved_fds"]);
        command_counts(rows, &totals);
        if settings.idle_timeout_s > 0 {
            rows.put("idle_kicks", io.idle_kicks);
        }
        rows.put("bytes_read", io.bytes_read);
        rows.put("bytes_written", io.bytes_written);
        rows.put("limit_maxbytes", used.limit_bytes);
        rows.put("accepting_conns", io.accepting as u8);
        rows.put("listen_disabled_num", io.listen_disabled_num);
        rows.put("time_in_listen_disabled_us", io.time_in_listen_disabled_us);
        rows.put("threads", settings.threads);
        rows.put("conn_yields", self.state.yields());
        rows.put("hash_power_level", cache.hashpower());
        rows.put("hash_bytes", used.index_bytes);
        rows.put("hash_is_expanding", cache.is_growing() as u8);
        rows.zeros(&[
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
        ]);
        let watched = self.state.watch().counts();
        rows.put("log_worker_dropped", watched.worker_dropped);
        rows.put("log_worker_written", watched.worker_written);
        rows.put("log_watcher_skipped", watched.watcher_skipped);
        rows.put("log_watcher_sent", watched.watcher_sent);
        rows.put("log_watchers", self.state.watch().watchers());
        self.stats_of_tls(rows, &io);
        rows.zeros(&["unexpected_napi_ids", "round_robin_fallback"]);
        self.item_counts(rows, &totals, &used);
        self.stats_of_extstore(rows, &totals);
    }

    /// Only where connections are encrypted.
    fn stats_of_tls(&self, rows: &mut StatRows, io: &IoSnapshot) {
        let Some(age_s) = self.state.certificates_age_s() else { return };
        if self.state.settings().tls.session_cache {
            rows.put("ssl_new_sessions", io.tls_handshakes_full);
        }
        rows.put("ssl_handshake_errors", io.tls_handshakes_failed);
        rows.put("ssl_proto_errors", io.tls_errors);
        rows.put("time_since_server_cert_refresh", age_s);
    }

    fn item_counts(&self, rows: &mut StatRows, totals: &Totals, used: &MemoryUse) {
        let cache = self.worker.cache();
        rows.put("bytes", used.items_bytes);
        rows.put("curr_items", cache.items_not_flushed() + self.items_on_flash());
        rows.put("total_items", totals.total_items);
        rows.put("slab_global_page_pool", used.free_columns_bytes / cache.column_bytes() as u64);
        rows.put("expired_unfetched", totals.expired_unfetched);
        rows.put("evicted_unfetched", totals.evicted_unfetched);
        rows.put("evicted_active", totals.evicted_active);
        rows.put("evictions", totals.evictions);
        rows.put("reclaimed", totals.reclaimed);
        rows.zeros(&["crawler_reclaimed", "crawler_items_checked", "lrutail_reflocked", "moves_to_cold"]);
        rows.zeros(&["moves_to_warm"]);
        rows.put("moves_within_lru", totals.moved);
        rows.put("direct_reclaims", totals.starved);
        rows.zeros(&["lru_bumps_dropped"]);
        let records = cache.column_bytes_held();
        rows.put("expired_bytes", records.expired);
        rows.put("flushed_bytes", records.flushed);
        rows.put("dead_bytes", records.dead);
        let (in_memory, on_flash) = cache.deleted_prefixes();
        rows.put("deleted_prefixes", in_memory);
        rows.put("deleted_prefixes_flash", on_flash);
        if cache.nodes() > 1 {
            rows.put("numa_local_columns", totals.numa_local_columns);
            rows.put("numa_remote_columns", totals.numa_remote_columns);
            rows.put("numa_unbound_slabs", cache.unbound_slabs());
        }
    }

    fn stats_settings(&self, rows: &mut StatRows) {
        let settings = self.state.in_effect();
        let cache = self.worker.cache();
        let used = cache.memory_use();
        rows.put("maxbytes", used.limit_bytes);
        rows.put("maxconns", settings.connections_max);
        rows.put("tcpport", settings.tcp_port.number().unwrap_or(0));
        rows.put("udpport", settings.udp_port.number().unwrap_or(0));
        let inter: Vec<String> = settings.addresses.iter().map(|address| address.to_string()).collect();
        rows.put("inter", if inter.is_empty() { "NULL".to_owned() } else { inter.join(",") });
        rows.put("verbosity", self.state.verbosity());
        rows.zeros(&["oldest"]);
        rows.put("evictions", if settings.evict { "on" } else { "off" });
        let socket =
            settings.unix_socket.as_ref().map_or("NULL".to_owned(), |path| path.display().to_string());
        rows.put("domain_socket", socket);
        rows.put("umask", format!("{:o}", settings.unix_mask));
        rows.put("shutdown_command", yes_no(settings.shutdown_enabled));
        rows.put("growth_factor", "1.00");
        rows.put("chunk_size", larder_item::HEADER_BYTES);
        rows.put("num_threads", settings.threads);
        rows.put("num_threads_per_udp", settings.threads);
        rows.put("stat_key_prefix", settings.prefix_delimiter as char);
        rows.put("detail_enabled", yes_no(self.state.prefixes().is_on()));
        rows.put("reqs_per_event", settings.requests_per_event);
        rows.put("cas_enabled", yes_no(settings.cas_enabled));
        rows.put("tcp_backlog", settings.backlog);
        rows.put("binding_protocol", settings.protocol.to_string());
        let users = settings.auth_file.as_ref().map(|path| path.display().to_string());
        let serves = |other| users.is_some() && settings.protocol != other;
        rows.put("auth_enabled_sasl", yes_no(serves(Protocol::Ascii)));
        let ascii = users.as_deref().filter(|_| serves(Protocol::Binary));
        rows.put("auth_enabled_ascii", ascii.unwrap_or("no"));
        rows.put("item_size_max", settings.item_bytes_max);
        rows.put("maxconns_fast", yes_no(settings.maxconns_fast));
        rows.put("address_conn_limit", settings.connections_per_address_max);
        rows.put("hashpower_init", settings.hashpower.unwrap_or(0));
        rows.put("slab_reassign", "no");
        rows.put("slab_automove", 0);
        rows.put("slab_automove_ratio", "0.00");
        rows.put("slab_automove_window", 0);
        rows.put("slab_chunk_max", cache.whole_value_bytes_max());
        rows.put("lru_crawler", "no");
        rows.zeros(&["lru_crawler_sleep", "lru_crawler_tocrawl"]);
        rows.put("tail_repair_time", 0);
        rows.put("flush_enabled", yes_no(settings.flush_enabled));
        rows.put("dump_enabled", yes_no(settings.dump_enabled));
        rows.put("hash_algorithm", "rapidhash");
        rows.put("lru_maintainer_thread", "no");
        rows.put("lru_segmented", "no");
        rows.zeros(&["hot_lru_pct", "warm_lru_pct"]);
        rows.put("hot_max_factor", "0.00");
        rows.put("warm_max_factor", "0.00");
        rows.put("temp_lru", "no");
        rows.zeros(&["temporary_ttl"]);
        rows.put("idle_timeout", settings.idle_timeout_s);
        let (watcher_bytes, worker_bytes) = self.state.watch().buffer_bytes();
        rows.put("watcher_logbuf_size", watcher_bytes);
        rows.put("worker_logbuf_size", worker_bytes);
        rows.put("read_buf_mem_limit", used.buffers_cap_bytes);
        rows.put("track_sizes", yes_no(settings.track_sizes));
        rows.put("inline_ascii_response", "no");
        let kept_in = settings.keep.as_ref().map(|path| path.display().to_string());
        rows.put("memory_file", kept_in.as_deref().unwrap_or("(null)"));
        rows.put("client_flags_size", 4);
        tls_settings(rows, &settings.tls);
        rows.put("pages", cache.pages());
        rows.put("column_bytes", cache.column_bytes());
        rows.put("numa_nodes", cache.nodes());
        rows.put("temperature", cache.temperature_kind().name());
        let worth = cache.worth();
        rows.put("worth", worth.mode.name());
        rows.put("objective", worth.objective.name());
        self.compress_setting(rows);
        rows.put("device", settings.device);
        self.flash_settings(rows);
        rows.put("backend", self.state.drivers().map_or("", |drivers| drivers.backend.interface()));
    }

    /// `stats temperature`, which memcached does not have.
    fn stats_temperature(&self, rows: &mut StatRows) {
        let cache = self.worker.cache();
        let temperature = cache.temperature_stats();
        rows.put("temperature", cache.temperature_kind().name());
        if let Some((name, place)) = &temperature.place {
            rows.put(*name, place);
        }
        rows.put("bytes", cache.memory_use().temperature_bytes);
        rows.put("probation_share", format!("{:.2}", temperature.probation_share));
        rows.put("probation_columns", temperature.probation_columns);
        rows.put("main_columns", temperature.main_columns);
        for (name, _, value) in temperature.counts() {
            rows.put(name, value);
        }
        let totals = cache.totals();
        rows.put("moved", totals.moved);
        rows.put("reference_pages_dropped", cache.dropped_pages());
        rows.put("note_ns", totals.note_ns);
        rows.put("pass_ns", totals.pass_ns);
        rows.put("keeper_cpu_ns", cache.keeper_cpu_ns());
    }

    /// `stats penalties`, which memcached does not have.
    fn stats_penalties(&self, rows: &mut StatRows) {
        let totals = self.totals_since_reset();
        rows.put("measured", totals.penalties_measured);
        rows.put("measured_us", totals.penalties_measured_us);
        rows.put("stated", totals.penalties_stated);
        rows.put("discarded", totals.penalties_discarded);
        rows.put("misses_forgotten", totals.misses_forgotten);
        rows.put("to_1_ms", totals.penalties_to_1_ms);
        rows.put("to_10_ms", totals.penalties_to_10_ms);
        rows.put("to_100_ms", totals.penalties_to_100_ms);
        rows.put("to_1_s", totals.penalties_to_1_s);
        rows.put("to_5_s", totals.penalties_to_5_s);
    }

    fn stats_items(&self, rows: &mut StatRows) {
        let cache = self.worker.cache();
        let t = self.totals_since_reset();
        let used = cache.memory_use();
        if cache.items() == 0 {
            return;
        }
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
            rows.put(format!("items:{THE_CLASS}:{name}"), value);
        }
    }

    fn stats_slabs(&self, rows: &mut StatRows) {
        let cache = self.worker.cache();
        let t = self.totals_since_reset();
        let used = cache.memory_use();
        let column_bytes = cache.column_bytes() as u64;
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
                rows.put(format!("{THE_CLASS}:{name}"), value);
            }
        }
        rows.put("active_slabs", (cache.items() > 0) as u8);
        rows.put("total_malloced", used.columns_bytes);
    }

    /// Before `stats sizes` is executed: items are measured, a few at a time. Returns whether there is something left
    /// to measure.
    pub(super) fn begin_measuring(&mut self, progress: &mut Progress) -> bool {
        if !self.state.settings().track_sizes || progress.sizes.is_some() {
            return false;
        }
        progress.busy = Some(Busy::Measuring { bucket: 0, sizes: Box::default() });
        true
    }

    /// Measures the items of some more buckets.
    pub(in crate::dispatch) fn continue_measuring(&mut self, progress: &mut Progress) {
        let (bucket, mut sizes) = match progress.busy.take() {
            Some(Busy::Measuring { bucket, sizes }) => (bucket, sizes),
            busy => {
                progress.busy = busy;
                return;
            }
        };
        let walk = self.worker.walk(bucket, MEASURED_BUCKETS, &mut |worker, hit| {
            *sizes.entry(worker.bytes_of(hit).next_multiple_of(SIZES_STEP_BYTES)).or_default() += 1;
            true
        });
        match walk.next {
            Some(bucket) => progress.busy = Some(Busy::Measuring { bucket, sizes }),
            None => progress.sizes = Some(sizes),
        }
    }

    fn stats_sizes(&self, rows: &mut StatRows, progress: &mut Progress) {
        if !self.state.settings().track_sizes {
            return rows.put("sizes_status", "disabled");
        }
        for (size, count) in *progress.sizes.take().unwrap_or_default() {
            rows.put(size.to_string(), count);
        }
    }

    fn stats_connections(&self, rows: &mut StatRows) {
        let Some(drivers) = self.state.drivers() else { return };
        for report in drivers.registry.report(self.state.io_now_s()) {
            let fd = report.fd;
            if report.is_udp {
                rows.put(format!("{fd}:UDP"), "UDP");
            }
            rows.put(format!("{fd}:addr"), &report.addr);
            if let Some(listen_addr) = &report.listen_addr {
                rows.put(format!("{fd}:listen_addr"), listen_addr);
            }
            rows.put(format!("{fd}:state"), report.state);
            rows.put(format!("{fd}:secs_since_last_cmd"), report.idle_s);
        }
    }
}

/// With the names and the numbers of memcached.
fn tls_settings(rows: &mut StatRows, tls: &TlsSettings) {
    let shown =
        |path: &Option<PathBuf>| path.as_ref().map_or("NULL".to_owned(), |path| path.display().to_string());
    rows.put("ssl_enabled", yes_no(tls.enabled));
    rows.put("ssl_chain_cert", shown(&tls.chain_cert));
    rows.put("ssl_key", shown(&tls.key));
    rows.put("ssl_verify_mode", tls.verify.number());
    rows.put("ssl_keyformat", tls.key_format.number());
    let ciphers = tls.ciphers.join(":");
    rows.put("ssl_ciphers", if ciphers.is_empty() { "NULL" } else { &ciphers });
    rows.put("ssl_ca_cert", shown(&tls.ca_cert));
    rows.put("ssl_wbuf_size", tls.write_buffer_kib << 10);
    rows.put("ssl_session_cache", yes_no(tls.session_cache));
    rows.put("ssl_kernel_tls", yes_no(tls.kernel));
    rows.put("ssl_min_version", tls.min_version);
}

fn command_counts(rows: &mut StatRows, totals: &Totals) {
    for (name, value) in [
        ("cmd_get", totals.cmd_get),
        ("cmd_set", totals.cmd_set),
        ("cmd_flush", totals.cmd_flush),
        ("cmd_flush_prefix", totals.cmd_flush_prefix),
        ("cmd_touch", totals.cmd_touch),
        ("cmd_meta", totals.cmd_meta),
        ("get_hits", totals.get_hits),
        ("get_misses", totals.get_misses),
        ("get_expired", totals.get_expired),
        ("get_flushed", totals.get_flushed),
        ("delete_misses", totals.delete_misses),
        ("delete_hits", totals.delete_hits),
        ("incr_misses", totals.incr_misses),
        ("incr_hits", totals.incr_hits),
        ("decr_misses", totals.decr_misses),
        ("decr_hits", totals.decr_hits),
        ("cas_misses", totals.cas_misses),
        ("cas_hits", totals.cas_hits),
        ("cas_badval", totals.cas_badval),
        ("touch_hits", totals.touch_hits),
        ("touch_misses", totals.touch_misses),
        ("store_too_large", totals.store_too_large),
        ("store_no_memory", totals.store_no_memory),
        ("auth_cmds", totals.auth_cmds),
        ("auth_errors", totals.auth_errors),
    ] {
        rows.put(name, value);
    }
}

/// User and system time of this process, in seconds, as memcached shows them.
pub(in crate::dispatch) fn rusage() -> (String, String) {
    let shown = |time: Duration| format!("{}.{:06}", time.as_secs(), time.subsec_micros());
    let (user, system) = own_process::cpu_times();
    (shown(user), shown(system))
}
