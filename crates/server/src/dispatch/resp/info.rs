//! `INFO`: what clients and exporters read about the server, under Redis's names.

use super::client_list::is_subscriber;
use super::config::{Server, policy};
use crate::dispatch::execute::{ItemCount, rusage};
use crate::own_process::resident_bytes;
use larder_protocol::resp::{Version, all, compose as words};
use rustix::process::getpid;
use rustix::system::uname;
use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

/// The version of Redis whose commands and replies clients may expect: they choose by it what they send. From this one
/// on, redis-py and Jedis keep copies of what they have read.
pub(in crate::dispatch) const REDIS_VERSION: &str = "7.4.0";

/// Names of sections, in their order. The first ones are shown without being asked for.
const SECTIONS: [&str; 13] = [
    "server",
    "clients",
    "memory",
    "persistence",
    "stats",
    "replication",
    "cpu",
    "modules",
    "errorstats",
    "cluster",
    "keyspace",
    "commandstats",
    "latencystats",
];
const SHOWN_BY_DEFAULT: usize = 11;

/// The sections that the words of an `INFO` name, each once.
fn chosen<'a>(words: impl Iterator<Item = &'a [u8]>) -> Vec<&'static str> {
    let mut wanted = [false; SECTIONS.len()];
    let mut has_words = false;
    for word in words {
        has_words = true;
        let word = word.to_ascii_lowercase();
        let from_first = match &word[..] {
            b"default" => SHOWN_BY_DEFAULT,
            b"all" | b"everything" => SECTIONS.len(),
            _ => 0,
        };
        wanted[..from_first].fill(true);
        if let Some(at) = SECTIONS.iter().position(|name| name.as_bytes() == word) {
            wanted[at] = true;
        }
    }
    if !has_words {
        wanted[..SHOWN_BY_DEFAULT].fill(true);
    }
    SECTIONS.into_iter().zip(wanted).filter(|(_, is_wanted)| *is_wanted).map(|(name, _)| name).collect()
}

/// The text of the sections that are asked for.
pub(in crate::dispatch) fn text<'a>(
    server: &Server<'_>,
    count_items: impl Fn() -> Vec<ItemCount>,
    words: impl Iterator<Item = &'a [u8]>,
) -> String {
    let mut text = String::new();
    for section in chosen(words) {
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        let mut rows = Rows { text: &mut text };
        rows.title(section);
        match section {
            "server" => about_server(server, &mut rows),
            "clients" => about_clients(server, &mut rows),
            "memory" => about_memory(server, &mut rows),
            "persistence" => about_persistence(&mut rows),
            "stats" => about_stats(server, &mut rows),
            "replication" => about_replication(server, &mut rows),
            "cpu" => about_cpu(&mut rows),
            "errorstats" => {
                for (name, count) in server.resp.errors() {
                    rows.put(&format!("errorstat_{name}"), format!("count={count}"));
                }
            }
            "cluster" => rows.put("cluster_enabled", u8::from(server.state.fleet().get().is_some())),
            "keyspace" => about_keys(count_items(), &mut rows),
            "commandstats" => about_commands(server, &mut rows),
            _ => {}
        }
    }
    text
}

struct Rows<'t> {
    text: &'t mut String,
}

impl Rows<'_> {
    fn title(&mut self, section: &str) {
        let mut letters = section.chars();
        let title = match section {
            "cpu" => "CPU".to_owned(),
            _ => letters
                .next()
                .map_or(String::new(), |first| first.to_ascii_uppercase().to_string() + letters.as_str()),
        };
        let _ = write!(self.text, "# {title}\r\n");
    }

    fn put(&mut self, name: &str, value: impl std::fmt::Display) {
        let _ = write!(self.text, "{name}:{value}\r\n");
    }

    fn zeros(&mut self, names: &[&str]) {
        names.iter().for_each(|name| self.put(name, 0));
    }
}

fn about_server(server: &Server<'_>, rows: &mut Rows<'_>) {
    let settings = server.state.in_effect();
    let uptime_s = server.cache.clock().uptime_s();
    let system = uname();
    rows.put("redis_version", REDIS_VERSION);
    rows.put("server_name", "larder");
    rows.put("larder_version", env!("CARGO_PKG_VERSION"));
    rows.put("redis_git_sha1", "00000000");
    rows.put("redis_git_dirty", 0);
    rows.put("redis_build_id", "0");
    rows.put("redis_mode", if server.state.fleet().get().is_some() { "cluster" } else { "standalone" });
    rows.put(
        "os",
        format!(
            "{} {} {}",
            system.sysname().to_string_lossy(),
            system.release().to_string_lossy(),
            system.machine().to_string_lossy()
        ),
    );
    rows.put("arch_bits", usize::BITS);
    if let Some(drivers) = server.state.drivers() {
        rows.put("multiplexing_api", drivers.backend.interface());
    }
    rows.put("process_id", getpid().as_raw_nonzero());
    rows.put("run_id", &server.resp.run_id);
    rows.put("tcp_port", settings.tcp_port);
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    rows.put("server_time_usec", since.as_micros());
    rows.put("uptime_in_seconds", uptime_s);
    rows.put("uptime_in_days", uptime_s / 86_400);
    rows.put("hz", 10);
    rows.put("configured_hz", 10);
    rows.put("io_threads_active", settings.threads);
    rows.put("executable", std::env::current_exe().map_or(String::new(), |path| path.display().to_string()));
    rows.put(
        "config_file",
        settings.config_file.as_ref().map_or(String::new(), |path| path.display().to_string()),
    );
}

fn about_clients(server: &Server<'_>, rows: &mut Rows<'_>) {
    let io = server.state.io_snapshot();
    rows.put("connected_clients", io.curr_connections.max(server.resp.clients.count() as u64));
    rows.put("resp_clients", server.resp.clients.count());
    rows.put("maxclients", server.state.in_effect().connections_max);
    rows.zeros(&["cluster_connections", "client_recent_max_input_buffer", "client_recent_max_output_buffer"]);
    let reports: Vec<_> = server.resp.clients.list().iter().map(|client| client.report()).collect();
    rows.put("blocked_clients", 0);
    rows.put("tracking_clients", reports.iter().filter(|report| report.redirect >= 0).count());
    rows.put("pubsub_clients", reports.iter().filter(|report| is_subscriber(report)).count());
    rows.put("clients_in_timeout_table", 0);
    rows.put("watching_clients", reports.iter().filter(|report| report.watched > 0).count());
    rows.zeros(&["total_watched_keys", "total_blocking_keys", "total_blocking_keys_on_nokey"]);
}

/// Bytes in a form for people: 1.50M.
fn human(bytes: u64) -> String {
    let units = ["B", "K", "M", "G", "T"];
    let power = (bytes.max(1).ilog2() / 10).min(4);
    match power {
        0 => format!("{bytes}B"),
        _ => format!("{:.2}{}", bytes as f64 / (1u64 << (10 * power)) as f64, units[power as usize]),
    }
}

/// Bytes that are used for items, index, bookkeeping and connections.
pub(in crate::dispatch) fn used_bytes(server: &Server<'_>) -> u64 {
    let used = server.cache.memory_use();
    used.items_bytes
        + used.index_bytes
        + used.bookkeeping_bytes
        + used.temperature_bytes
        + server.state.io_snapshot().buffer_bytes
}

fn about_memory(server: &Server<'_>, rows: &mut Rows<'_>) {
    let memory = server.cache.memory_use();
    let (used, resident) = (used_bytes(server), resident_bytes());
    let peak = server.resp.note_peak(used);
    for (name, bytes) in [("used_memory", used), ("used_memory_rss", resident), ("used_memory_peak", peak)] {
        rows.put(name, bytes);
        rows.put(&format!("{name}_human"), human(bytes));
    }
    rows.put("used_memory_peak_perc", format!("{:.2}%", used as f64 * 100.0 / peak.max(1) as f64));
    rows.put("used_memory_overhead", used - memory.items_bytes);
    rows.put("used_memory_startup", 0);
    rows.put("used_memory_dataset", memory.items_bytes);
    let share = memory.items_bytes as f64 * 100.0 / used.max(1) as f64;
    rows.put("used_memory_dataset_perc", format!("{share:.2}%"));
    rows.put("allocator_allocated", used);
    rows.put("allocator_active", memory.columns_bytes + memory.index_bytes);
    rows.put("allocator_resident", resident);
    rows.put("total_system_memory", 0);
    let scripts = server.resp.scripts.figures();
    rows.put("used_memory_vm_eval", scripts.interpreter_bytes);
    rows.put("used_memory_lua", scripts.interpreter_bytes);
    rows.put("used_memory_scripts_eval", scripts.text_bytes);
    rows.put("number_of_cached_scripts", scripts.count);
    rows.put("used_memory_scripts", scripts.text_bytes + scripts.interpreter_bytes);
    rows.put("maxmemory", memory.limit_bytes);
    rows.put("maxmemory_human", human(memory.limit_bytes));
    rows.put("maxmemory_policy", server.resp.accepted.policy(policy(server.state)));
    rows.put("mem_fragmentation_ratio", format!("{:.2}", resident as f64 / used.max(1) as f64));
    rows.put("mem_fragmentation_bytes", resident as i64 - used as i64);
    rows.zeros(&["mem_not_counted_for_evict", "mem_replication_backlog", "mem_total_replication_buffers"]);
    rows.zeros(&["mem_clients_slaves"]);
    rows.put("mem_clients_normal", server.state.io_snapshot().buffer_bytes);
    rows.zeros(&["mem_cluster_links", "mem_aof_buffer"]);
    rows.put("mem_allocator", "larder");
    rows.zeros(&["active_defrag_running", "lazyfree_pending_objects", "lazyfreed_objects"]);
}

/// `MEMORY STATS`. `items` = how many keys there are.
pub(in crate::dispatch) fn compose_memory_stats(
    server: &Server<'_>,
    items: u64,
    out: &mut Vec<u8>,
    version: Version,
) {
    let memory = server.cache.memory_use();
    let (used, resident) = (used_bytes(server), resident_bytes());
    let peak = server.resp.note_peak(used);
    let percent = |part: u64, whole: u64| part as f64 * 100.0 / whole.max(1) as f64;
    let numbers = [
        ("peak.allocated", peak),
        ("total.allocated", used),
        ("startup.allocated", 0),
        ("replication.backlog", 0),
        ("clients.slaves", 0),
        ("clients.normal", server.state.io_snapshot().buffer_bytes),
        ("cluster.links", 0),
        ("aof.buffer", 0),
        ("lua.caches", 0),
        ("functions.caches", 0),
        ("overhead.total", used - memory.items_bytes),
        ("keys.count", items),
        ("keys.bytes-per-key", memory.items_bytes / items.max(1)),
        ("dataset.bytes", memory.items_bytes),
        ("allocator.allocated", used),
        ("allocator.active", memory.columns_bytes + memory.index_bytes),
        ("allocator.resident", resident),
        ("fragmentation.bytes", resident.saturating_sub(used)),
    ];
    let shares = [
        ("dataset.percentage", percent(memory.items_bytes, used)),
        ("peak.percentage", percent(used, peak)),
        ("fragmentation", resident as f64 / used.max(1) as f64),
    ];
    words::map_head(out, version, numbers.len() + shares.len());
    for (name, number) in numbers {
        words::bulk(out, name.as_bytes());
        words::integer(out, number as i64);
    }
    for (name, share) in shares {
        words::bulk(out, name.as_bytes());
        words::double(out, version, share);
    }
}

fn about_persistence(rows: &mut Rows<'_>) {
    rows.zeros(&["loading", "async_loading", "rdb_changes_since_last_save", "rdb_bgsave_in_progress"]);
    rows.put("rdb_last_save_time", 0);
    rows.put("rdb_last_bgsave_status", "ok");
    rows.put("rdb_last_bgsave_time_sec", -1);
    rows.put("rdb_current_bgsave_time_sec", -1);
    rows.zeros(&["aof_enabled", "aof_rewrite_in_progress", "aof_rewrite_scheduled"]);
    rows.put("aof_last_bgrewrite_status", "ok");
    rows.put("aof_last_write_status", "ok");
}

fn about_stats(server: &Server<'_>, rows: &mut Rows<'_>) {
    let io = server.state.io_snapshot();
    let totals = server.cache.totals().since(&server.state.totals_at_reset());
    let calls: u64 = server.resp.command_stats().iter().map(|command| command.calls).sum();
    let rates = server.resp.rates();
    rows.put("total_connections_received", io.total_connections);
    rows.put("total_commands_processed", calls);
    rows.put("instantaneous_ops_per_sec", rates.commands);
    rows.put("total_net_input_bytes", io.bytes_read);
    rows.put("total_net_output_bytes", io.bytes_written);
    rows.put("instantaneous_input_kbps", format!("{:.2}", rates.bytes_in as f64 / 1024.0));
    rows.put("instantaneous_output_kbps", format!("{:.2}", rates.bytes_out as f64 / 1024.0));
    rows.put("rejected_connections", io.rejected_connections);
    rows.zeros(&["sync_full", "sync_partial_ok", "sync_partial_err"]);
    rows.put("expired_keys", totals.reclaimed);
    rows.put("expired_stale_perc", "0.00");
    rows.zeros(&["expired_time_cap_reached_count"]);
    rows.put("evicted_keys", totals.evictions);
    rows.put("evicted_clients", 0);
    rows.put("keyspace_hits", totals.get_hits);
    rows.put("keyspace_misses", totals.get_misses);
    let ([channels, patterns, shards], dropped) = server.resp.told.channels.counts();
    let tracked = server.resp.told.tracking.counts();
    rows.put("pubsub_channels", channels);
    rows.put("pubsub_patterns", patterns);
    rows.put("pubsubshard_channels", shards);
    rows.zeros(&["latest_fork_usec", "total_forks"]);
    rows.zeros(&["migrate_cached_sockets", "slave_expires_tracked_keys"]);
    rows.put("tracking_total_keys", tracked.keys);
    rows.put("tracking_total_items", tracked.items);
    rows.put("tracking_total_prefixes", tracked.prefixes);
    rows.put("client_output_buffer_limit_disconnections", dropped);
    rows.zeros(&["unexpected_error_replies"]);
    rows.put("total_error_replies", server.resp.errors().values().sum::<u64>());
    rows.put("acl_access_denied_auth", totals.auth_errors);
    rows.zeros(&["acl_access_denied_cmd", "acl_access_denied_key", "acl_access_denied_channel"]);
}

fn about_replication(server: &Server<'_>, rows: &mut Rows<'_>) {
    rows.put("role", "master");
    rows.put("connected_slaves", 0);
    rows.put("master_failover_state", "no-failover");
    rows.put("master_replid", &server.resp.run_id);
    rows.put("master_replid2", "0".repeat(40));
    rows.put("master_repl_offset", 0);
    rows.put("second_repl_offset", -1);
    rows.zeros(&["repl_backlog_active", "repl_backlog_size", "repl_backlog_first_byte_offset"]);
    rows.zeros(&["repl_backlog_histlen"]);
}

fn about_cpu(rows: &mut Rows<'_>) {
    let (user, system) = rusage();
    rows.put("used_cpu_sys", system);
    rows.put("used_cpu_user", user);
    rows.put("used_cpu_sys_children", "0.000000");
    rows.put("used_cpu_user_children", "0.000000");
}

fn about_keys(counts: Vec<ItemCount>, rows: &mut Rows<'_>) {
    for ItemCount { database, items, expiring, mean_ttl_ms } in counts {
        rows.put(&format!("db{database}"), format!("keys={items},expires={expiring},avg_ttl={mean_ttl_ms}"));
    }
}

fn about_commands(server: &Server<'_>, rows: &mut Rows<'_>) {
    let stats = server.resp.command_stats();
    for command in all().flat_map(|command| std::iter::once(command).chain(command.subcommands)) {
        let counts = stats[command.id as usize];
        if counts.calls + counts.rejected > 0 {
            let each = counts.us as f64 / counts.calls.max(1) as f64;
            rows.put(
                &format!("cmdstat_{}", command.full_name()),
                format!(
                    "calls={},usec={},usec_per_call={each:.2},rejected_calls={},failed_calls={}",
                    counts.calls, counts.us, counts.rejected, counts.failed
                ),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sections(words: &str) -> String {
        chosen(words.split_whitespace().map(str::as_bytes)).join(" ")
    }

    #[test]
    fn sections_are_chosen_by_name() {
        let default =
            "server clients memory persistence stats replication cpu modules errorstats cluster keyspace";
        assert_eq!(sections(""), default);
        assert_eq!(sections("default"), default);
        assert_eq!(sections("all"), format!("{default} commandstats latencystats"));
        assert_eq!(sections("KEYSPACE server"), "server keyspace");
        assert_eq!(sections("nonsense"), "");
        assert_eq!(sections("default commandstats"), format!("{default} commandstats"));
    }

    #[test]
    fn sizes_are_shown_for_people() {
        let shown = [0, 1023, 1024, 1_572_864, 1 << 31].map(human);
        assert_eq!(shown, ["0B", "1023B", "1.00K", "1.50M", "2.00G"]);
    }
}
