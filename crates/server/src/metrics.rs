//! The numbers of the whole server, for the admin endpoint.
//!
//! A new number of the server is a family here. Numbers of the cache are rows of `larder_cache::Totals`, those of the
//! flash tier rows of `flash::numbers`.

use crate::admin::process::Pulse;
use crate::admin::{
    CurveShown, Family, GroupRow, KeyRows, Kind, Moment, Sample, Source, Value, ZoneCell, names,
};
use crate::compression;
use crate::dispatch::{ServerState, WatchCounts};
use crate::flash::numbers;
use crate::io::IoSnapshot;
use crate::keys;
use crate::latency::{Class, Histogram, WorkerLatency, total, total_fetches};
use crate::own_process;
use crate::sizing;
use crate::worth;
use larder_cache::{Cache, NamespaceStats, Sizing, TemperatureStats, Totals};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A worker that has not moved for this time is stuck, and the process is not alive.
const STUCK_AFTER: Duration = Duration::from_secs(30);

/// How often each worker has moved; `None` = the server stops.
pub(crate) type Ticks = Arc<dyn Fn() -> Option<Vec<u64>> + Send + Sync>;

/// Reads the counters of the cache, the drivers and the workers whenever the admin endpoint is asked.
pub(crate) struct Metrics {
    cache: Arc<Cache>,
    state: Arc<ServerState>,
    latency: Arc<[Arc<WorkerLatency>]>,
    ticks: Ticks,
    serves: Vec<String>,
    /// What earlier probes of liveness have seen.
    pulse: Mutex<Option<Pulse>>,
}

impl Metrics {
    /// A source over these. `serves`: where clients reach the server.
    pub(crate) fn new(
        cache: Arc<Cache>,
        state: Arc<ServerState>,
        latency: Arc<[Arc<WorkerLatency>]>,
        ticks: Ticks,
        serves: Vec<String>,
    ) -> Metrics {
        Metrics { cache, state, latency, ticks, serves, pulse: Mutex::default() }
    }
}

fn counter(name: &'static str, help: &'static str, value: u64) -> Family {
    Family::single(name, help, Kind::Counter, "", Value::Count(value))
}

/// A row of the totals. Times are in seconds.
fn of_totals((name, help, value): (&'static str, &'static str, u64)) -> Family {
    let times = [("_ns", 1e9), ("_us", 1e6), ("_s", 1.0)];
    let time = times.into_iter().find_map(|(unit, a_second)| Some((name.strip_suffix(unit)?, a_second)));
    match time {
        Some((name, a_second)) => {
            Family::single(name, help, Kind::Counter, "seconds", Value::Amount(value as f64 / a_second))
        }
        None => counter(name, help, value),
    }
}

fn penalties(totals: &Totals) -> Family {
    Family::labelled(
        "penalties",
        "Penalties of misses, measured or stated, since the server started, by the most that they cost.",
        Kind::Counter,
        "",
        "up_to",
        [
            count("1ms", totals.penalties_to_1_ms),
            count("10ms", totals.penalties_to_10_ms),
            count("100ms", totals.penalties_to_100_ms),
            count("1s", totals.penalties_to_1_s),
            count("5s", totals.penalties_to_5_s),
        ],
    )
}

fn gauge(name: &'static str, help: &'static str, unit: &'static str, value: u64) -> Family {
    Family::single(name, help, Kind::Gauge, unit, Value::Count(value))
}

fn count(label: &'static str, value: u64) -> (&'static str, Value) {
    (label, Value::Count(value))
}

impl Source for Metrics {
    fn serves(&self) -> Vec<String> {
        self.serves.clone()
    }

    fn families(&self) -> Vec<Family> {
        let totals = self.cache.totals();
        let io = self.state.io_snapshot();
        let mut families = vec![build(), self.lookups(&totals), self.request_times()];
        families.extend(self.memory(&io));
        families.extend(self.gauges(&io));
        families.push(counter(
            names::EVICTIONS,
            "Live items that were evicted from memory to make room since the server started.",
            totals.evictions,
        ));
        let shown = ["get_hits", "get_misses", "evictions"];
        let others = totals.rows().into_iter().filter(|row| !shown.contains(&row.0));
        families.extend(others.filter(|row| !row.0.starts_with("penalties_to_")).map(of_totals));
        families.push(penalties(&totals));
        let stats = self.cache.temperature_stats();
        families.extend(self.temperature(&stats));
        families.push(self.worth());
        families.extend(group_families(&worth::rows(&stats.groups, self.cache.column_bytes())));
        families.extend(io_counters(&io));
        families.extend(compression::families(&self.cache));
        families.extend(keys::families(&self.cache));
        families.extend(namespace_families(&self.cache.namespaces()));
        families.extend(watch_families(&self.state.watch().counts(), self.state.watch().watchers()));
        families.extend(self.sizes());
        families.extend(self.sizes_of_namespaces());
        families.extend(self.flash());
        families.extend(own_process::families());
        families
    }

    fn zones(&self) -> Vec<ZoneCell> {
        self.cache.flash_tier().map(|flash| numbers::cells(flash)).unwrap_or_default()
    }

    fn groups(&self) -> Vec<GroupRow> {
        worth::groups(&self.cache)
    }

    fn keys(&self) -> Option<KeyRows> {
        self.state.in_effect().dump_enabled.then(|| keys::rows(&self.cache))
    }

    fn curve(&self) -> CurveShown {
        let shown = |sizing: &Sizing| CurveShown {
            is_young: sizing.is_young,
            limit_bytes: sizing.limit_bytes,
            capacity_bytes: sizing.capacity_bytes,
            span_bytes: sizing.span_bytes,
            knows_penalties: sizing::knows_penalties(&self.cache),
            points: sizing::points(sizing),
            namespaces: Vec::new(),
        };
        let namespaces = self.sizings_of_namespaces().map(|(name, sizing)| (name, shown(&sizing)));
        CurveShown { namespaces: namespaces.collect(), ..shown(&self.cache.sizing()) }
    }

    fn moment(&self) -> Moment {
        let totals = self.cache.totals();
        let io = self.state.io_snapshot();
        let used = self.cache.memory_use();
        let flash = self.cache.flash_tier().map(|flash| flash.stats());
        Moment {
            requests: self.all_requests(),
            hits: totals.get_hits,
            misses: totals.get_misses,
            evictions: totals.evictions,
            items: self.cache.items_not_flushed(),
            memory_bytes: used.items_bytes + used.index_bytes + io.buffer_bytes + io.session_bytes,
            connections: io.curr_connections,
            received_bytes: io.bytes_read,
            sent_bytes: io.bytes_written,
            flash_items: flash.map_or(0, |stats| stats.items),
        }
    }

    fn healthy(&self) -> Result<(), String> {
        if (self.ticks)().is_none() {
            return Err("the server stops".to_owned());
        }
        if self.cache.flash_tier().is_some_and(|flash| flash.is_recovering()) {
            return Err("flash is being read: not all of its items can be found yet".to_owned());
        }
        Ok(())
    }

    fn alive(&self) -> Result<(), String> {
        // The workers of a server that stops need not move.
        let Some(ticks) = (self.ticks)() else { return Ok(()) };
        let now = Instant::now();
        let mut pulse = self.pulse.lock().expect("no panic under this lock");
        let pulse = pulse.get_or_insert_with(|| Pulse::new(STUCK_AFTER, now));
        if pulse.all_move(&ticks, now) { Ok(()) } else { Err("a worker is stuck".to_owned()) }
    }
}

fn build() -> Family {
    Family {
        name: "build_info",
        help: "Always 1; the labels say which version of Larder runs, and for which architecture it was built.",
        unit: "",
        kind: Kind::Gauge,
        samples: vec![Sample {
            labels: vec![
                ("version", env!("CARGO_PKG_VERSION").to_owned()),
                ("arch", std::env::consts::ARCH.to_owned()),
            ],
            value: Value::Count(1),
        }],
    }
}

fn watch_families(counts: &WatchCounts, watchers: usize) -> [Family; 4] {
    [
        gauge("watchers", "Connections that watch now (`watch`).", "", watchers as u64),
        counter(
            "watch_lines",
            "Lines that watchers were given since the server started, or since `stats reset`.",
            counts.watcher_sent,
        ),
        counter(
            "watch_lines_skipped",
            "Lines that watchers were not given since the server started, or since `stats reset`, because they had \
             not read earlier ones.",
            counts.watcher_skipped,
        ),
        counter(
            "watch_events_dropped",
            "Events that watchers were not told of since the server started, or since `stats reset`, because more \
             happened than is made lines of.",
            counts.worker_dropped,
        ),
    ]
}

impl Metrics {
    fn lookups(&self, totals: &Totals) -> Family {
        Family::labelled(
            names::LOOKUPS,
            "Keys that get commands have looked up since the server started, by result.",
            Kind::Counter,
            "",
            "result",
            [count("hit", totals.get_hits), count("miss", totals.get_misses)],
        )
    }

    fn request_times(&self) -> Family {
        let workers = || self.latency.iter().map(|worker| &**worker);
        Family {
            name: names::REQUESTS,
            help: "Time that requests have spent in the server since it started, in seconds: from the beginning of the \
                   worker's turn to the last reply of that turn.",
            unit: "seconds",
            kind: Kind::Histogram,
            samples: Class::ALL
                .iter()
                .map(|&class| Sample {
                    labels: vec![("command", class.name().to_owned())],
                    value: Value::Times(total(workers(), class)),
                })
                .collect(),
        }
    }

    /// The times of all requests, whatever they asked for.
    fn all_requests(&self) -> Histogram {
        let mut all = Histogram::default();
        for worker in self.latency.iter() {
            Class::ALL.iter().for_each(|class| worker.add_to(*class, &mut all));
        }
        all
    }

    /// What other sizes of memory would miss.
    fn sizes(&self) -> [Family; 3] {
        let sizing = self.cache.sizing();
        let answers = total(self.latency.iter().map(|worker| &**worker), Class::Get);
        let answer_us = answers.sum_ns() as f64 / 1e3 / answers.count().max(1) as f64;
        let rows = sizing::rows(&sizing, answer_us);
        let of = |value: fn(&sizing::SizeRow) -> f64| {
            rows.iter().map(|row| (row.name, Value::Amount(value(row)))).collect::<Vec<_>>()
        };
        [
            Family::labelled(
                "expected_miss_ratio",
                "Share of recent reads, from 0 to 1, that would miss if the memory limit were the multiple of the \
                 present one that the label says, as estimated by a model of LRU from a sample of the keys.",
                Kind::Gauge,
                "",
                "memory",
                of(|row| row.miss_ratio),
            ),
            Family::labelled(
                "expected_service_time",
                "Mean time of a read in seconds, the cost of misses included, if the memory limit were the multiple \
                 of the present one that the label says, as estimated by a model of LRU from a sample of the keys.",
                Kind::Gauge,
                "seconds",
                "memory",
                of(|row| row.service_us / 1e6),
            ),
            gauge(
                "expected_sampled_reads",
                "Reads that the estimates for other sizes of memory rest on, since the server started.",
                "",
                sizing.reads,
            ),
        ]
    }

    /// The namespaces that have a curve, in order of name.
    fn sizings_of_namespaces(&self) -> impl Iterator<Item = (String, Sizing)> + '_ {
        let names = self.cache.namespaces().into_iter().map(|of| of.namespace.name);
        names.filter_map(|name| Some((name.clone(), self.cache.sizing_of_namespace(name.as_bytes()).ok()?)))
    }

    /// What each namespace would miss if it had more bytes, or fewer. No family where no namespace has a curve that
    /// rests on enough reads.
    fn sizes_of_namespaces(&self) -> Option<Family> {
        let ready = self.sizings_of_namespaces().filter(|(_, sizing)| !sizing.is_young);
        let samples: Vec<Sample> = ready
            .flat_map(|(name, sizing)| {
                sizing::rows(&sizing, 0.0).into_iter().map(move |row| Sample {
                    labels: vec![("namespace", name.clone()), ("memory", row.name.to_owned())],
                    value: Value::Amount(row.miss_ratio),
                })
            })
            .collect();
        let family = Family {
            name: "namespace_expected_miss_ratio",
            help: "Share of recent reads of a namespace, from 0 to 1, that would miss if its items could take the \
                   multiple that the label says of the bytes that they take now, as estimated by a model of LRU from \
                   a sample of its keys.",
            unit: "",
            kind: Kind::Gauge,
            samples,
        };
        (!family.samples.is_empty()).then_some(family)
    }

    fn memory(&self, io: &IoSnapshot) -> [Family; 5] {
        let used = self.cache.memory_use();
        let prefixes = self.cache.deleted_prefixes();
        let records = self.cache.column_bytes_held();
        let dead = used.columns_bytes.saturating_sub(used.free_columns_bytes + used.items_bytes);
        [
            Family::labelled(
                names::MEMORY,
                "Bytes of memory that the server takes now, by purpose.",
                Kind::Gauge,
                "bytes",
                "purpose",
                [
                    count("items", used.items_bytes),
                    count("columns_free", used.free_columns_bytes),
                    count("columns_dead", dead),
                    count("index", used.index_bytes),
                    count("connection_buffers", io.buffer_bytes),
                    count("tls_sessions", io.session_bytes),
                    count("bookkeeping", used.bookkeeping_bytes),
                    count("temperature", used.temperature_bytes),
                ],
            ),
            gauge(
                names::MEMORY_LIMIT,
                "Bytes of memory that the server may take (-m, or cache_memlimit).",
                "bytes",
                used.limit_bytes,
            ),
            gauge(
                "memory_columns",
                "Bytes of memory that are mapped for columns of items now, free columns included.",
                "bytes",
                used.columns_bytes,
            ),
            Family::labelled(
                "memory_records",
                "Bytes of records in columns now, by what has become of their items. Live ones can be served. Dead \
                 ones were replaced, deleted or moved. Expired, flushed and dead bytes take memory until their \
                 column is emptied.",
                Kind::Gauge,
                "bytes",
                "state",
                [
                    count("live", records.live),
                    count("expired", records.expired),
                    count("flushed", records.flushed),
                    count("dead", records.dead),
                ],
            ),
            Family::labelled(
                "deleted_prefixes",
                "Prefixes that were deleted (flush_prefix) and of which older items may still take room now: in memory \
                 for some seconds, on flash until nothing there is as old. Of either, 256 are the most.",
                Kind::Gauge,
                "",
                "level",
                [count("memory", prefixes.0 as u64), count("flash", prefixes.1 as u64)],
            ),
        ]
    }

    fn gauges(&self, io: &IoSnapshot) -> [Family; 3] {
        [
            gauge(names::ITEMS, "Items in memory now.", "", self.cache.items_not_flushed()),
            gauge(names::CONNECTIONS, "Client connections that are open now.", "", io.curr_connections),
            gauge(
                names::UPTIME,
                "Seconds since the server started.",
                "seconds",
                self.cache.clock().uptime_s() as u64,
            ),
        ]
    }

    fn worth(&self) -> Family {
        let (wanted, (now, _)) = (self.cache.worth(), self.cache.worth_now());
        Family {
            name: names::WORTH_OPTIONS,
            help: "Always 1; the labels say what the worth of an item is made of now: how room moves between groups, \
                   what the mode auto comes to now, what the cache is to save, and the unit of the values of groups.",
            unit: "",
            kind: Kind::Gauge,
            samples: vec![Sample {
                labels: vec![
                    ("mode", wanted.mode.name().to_owned()),
                    ("mode_now", now.mode.name().to_owned()),
                    ("objective", now.objective.name().to_owned()),
                    ("value_unit", worth::value_unit(now).to_owned()),
                ],
                value: Value::Count(1),
            }],
        }
    }

    fn temperature(&self, stats: &TemperatureStats) -> Vec<Family> {
        let counts = stats.counts();
        let mut families: Vec<Family> =
            counts.into_iter().map(|(name, help, value)| counter(name, help, value)).collect();
        families.extend([
            Family::single(
                "probation_share",
                "Share of the columns, from 0 to 1, that new items may fill now before the oldest of those columns \
                 is reclaimed.",
                Kind::Gauge,
                "",
                Value::Amount(stats.probation_share),
            ),
            Family::labelled(
                "columns_sealed",
                "Full columns of items now, by the queue that they are in.",
                Kind::Gauge,
                "",
                "part",
                [count("probation", stats.probation_columns), count("main", stats.main_columns)],
            ),
            counter(
                "reference_pages_dropped",
                "Pages of access records that were dropped since the server started, because the keeper had not read \
                 them in time.",
                self.cache.dropped_pages(),
            ),
            of_totals((
                "keeper_cpu_ns",
                "CPU time that the keeper's thread has used since the server started.",
                self.cache.keeper_cpu_ns(),
            )),
        ]);
        families
    }

    /// No family where there is no flash.
    fn flash(&self) -> Vec<Family> {
        let Some(flash) = self.cache.flash_tier() else { return Vec::new() };
        let stats = numbers::with_all_misses(flash.stats(), &self.cache.totals());
        let mut families = numbers::families(&stats);
        families.extend(numbers::families_of_devices(&flash.devices()));
        families.extend(numbers::families_of_channels(&flash.channels()));
        families.extend([
            Family::single(
                "flash_fetch_duration",
                "Time that reads of items from flash have taken since the server started, in seconds: from the moment \
                 a worker asked for the item until it came.",
                Kind::Histogram,
                "seconds",
                Value::Times(total_fetches(self.latency.iter().map(|worker| &**worker))),
            ),
            gauge(
                "flash_write_budget",
                "Most bytes of items that may be written to flash in one day; 0 = no bound.",
                "bytes",
                self.state.in_effect().flash.write_budget_bytes.unwrap_or(0),
            ),
        ]);
        families
    }
}

/// What the tenants have, and what was counted of them. No family where there is none.
fn namespace_families(namespaces: &[NamespaceStats]) -> Vec<Family> {
    let family = |name, help, kind, unit, value: fn(&NamespaceStats) -> u64| {
        let values = namespaces.iter().map(|of| (of.namespace.name.clone(), Value::Count(value(of))));
        Family::labelled(name, help, kind, unit, "namespace", values)
    };
    if namespaces.is_empty() {
        return Vec::new();
    }
    vec![
        family(
            "namespace_gets",
            "Reads of keys of a namespace (--namespaces) since it was named.",
            Kind::Counter,
            "",
            |of| of.gets,
        ),
        family(
            "namespace_hits",
            "Reads of keys of a namespace that found an item, since it was named.",
            Kind::Counter,
            "",
            |of| of.hits,
        ),
        family(
            "namespace_sets",
            "Items of a namespace that were stored since it was named.",
            Kind::Counter,
            "",
            |of| of.sets,
        ),
        family(
            "namespace_evictions",
            "Live items of a namespace that were evicted from memory since it was named.",
            Kind::Counter,
            "",
            |of| of.evictions,
        ),
        family(
            "namespace_items",
            "Items of a namespace in memory now, as estimated from a sample.",
            Kind::Gauge,
            "",
            |of| of.items,
        ),
        family(
            "namespace_memory",
            "Bytes that the items of a namespace take in memory now, as estimated from a sample.",
            Kind::Gauge,
            "bytes",
            |of| of.bytes,
        ),
        family(
            "namespace_least",
            "Bytes of memory below which items of a namespace are kept now.",
            Kind::Gauge,
            "bytes",
            |of| of.share_bytes.0,
        ),
        family(
            "namespace_most",
            "Bytes of memory above which items of a namespace go first now.",
            Kind::Gauge,
            "bytes",
            |of| of.share_bytes.1,
        ),
    ]
}

/// What is shown of each group that has items. No family where there is no group.
fn group_families(groups: &[GroupRow]) -> Vec<Family> {
    let labels =
        |group: &GroupRow| vec![("size", group.size.to_owned()), ("penalty", group.penalty.to_owned())];
    let family = |name, help, kind, unit, value: fn(&GroupRow) -> Value| {
        let sample = |group| Sample { labels: labels(group), value: value(group) };
        Family { name, help, unit, kind, samples: groups.iter().map(sample).collect() }
    };
    let reason = |group: &GroupRow| {
        let mut labels = labels(group);
        labels.push(("reason", group.last_move?.to_owned()));
        Some(Sample { labels, value: Value::Count(1) })
    };
    let families = [
        family(
            names::GROUP_ITEMS,
            "Items in memory now, as estimated, by the upper end of their size and of the cost of a miss.",
            Kind::Gauge,
            "",
            |group| Value::Count(group.items),
        ),
        family(
            "group_memory",
            "Bytes of the items in memory now, as estimated, by the upper end of their size and of the cost of a miss.",
            Kind::Gauge,
            "bytes",
            |group| Value::Count(group.bytes),
        ),
        family(
            "group_columns",
            "Columns that the items in memory fill now, as estimated, by the upper end of their size and of the cost \
             of a miss.",
            Kind::Gauge,
            "",
            |group| Value::Amount(group.columns),
        ),
        family(
            "group_outgoing_value",
            "What a group of items would lose within a window of accesses without one of its columns, in \
             microseconds of waiting, misses or bytes (see larder_worth_options).",
            Kind::Gauge,
            "",
            |group| Value::Amount(group.outgoing),
        ),
        family(
            "group_incoming_value",
            "What a group of items would save within a window of accesses with one more column, in microseconds \
             of waiting, misses or bytes (see larder_worth_options).",
            Kind::Gauge,
            "",
            |group| Value::Amount(group.incoming),
        ),
        family(
            "group_columns_received",
            "Columns that a group of items has received from other groups since the server started.",
            Kind::Counter,
            "",
            |group| Value::Amount(group.columns_received),
        ),
        family(
            "group_columns_given",
            "Columns that a group of items has given to other groups since the server started.",
            Kind::Counter,
            "",
            |group| Value::Amount(group.columns_given),
        ),
        Family {
            name: "group_last_move",
            help: "Always 1; the label reason says what was decided last about the room of a group of items: received, \
                   gave, own_least or low_incoming.",
            unit: "",
            kind: Kind::Gauge,
            samples: groups.iter().filter_map(reason).collect(),
        },
    ];
    families.into_iter().filter(|family| !family.samples.is_empty()).collect()
}

fn io_counters(io: &IoSnapshot) -> [Family; 12] {
    [
        counter(
            "connections_opened",
            "Client connections that were opened since the server started or since stats reset.",
            io.total_connections,
        ),
        counter(
            "connections_rejected",
            "Client connections that were turned away at the limit (-c) since the server started or since stats reset.",
            io.rejected_connections,
        ),
        counter(
            "connections_rejected_per_address",
            "Client connections that were turned away since the server started or since stats reset, because their \
             address had as many as one may have (--address-conn-limit).",
            io.address_rejected_connections,
        ),
        counter(
            "connections_rejected_strangers",
            "Client connections of other machines that were turned away since the server started or since stats reset, \
             because no address (-l), no users (-Y) and no --open say that they may come.",
            io.stranger_rejected_connections,
        ),
        counter(
            "connections_idle_closed",
            "Client connections that were closed since the server started or since stats reset, because they were \
             idle for too long.",
            io.idle_kicks,
        ),
        counter(
            "received_bytes",
            "Bytes received from clients since the server started or since stats reset.",
            io.bytes_read,
        ),
        counter(
            "sent_bytes",
            "Bytes sent to clients since the server started or since stats reset.",
            io.bytes_written,
        ),
        counter(
            "waits",
            "System calls in which a worker waited for events since the server started or since stats reset.",
            io.waits,
        ),
        counter(
            "udp_requests",
            "UDP requests received since the server started or since stats reset.",
            io.udp_requests,
        ),
        counter(
            "udp_dropped",
            "UDP requests or replies that were dropped since the server started or since stats reset: malformed, in \
             more than one datagram, or with too long a reply.",
            io.udp_dropped,
        ),
        Family::labelled(
            "tls_handshakes",
            "TLS handshakes of clients since the server started or since stats reset: full ones, ones that resumed a \
             session, and ones that failed or took too long.",
            Kind::Counter,
            "",
            "kind",
            [
                count("full", io.tls_handshakes_full),
                count("resumed", io.tls_handshakes_resumed),
                count("failed", io.tls_handshakes_failed),
            ],
        ),
        counter(
            "tls_errors",
            "Encrypted connections that were closed since the server started or since stats reset, because what came \
             could not be decrypted.",
            io.tls_errors,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(penalty: &'static str, last_move: Option<&'static str>) -> GroupRow {
        GroupRow {
            size: "256",
            penalty,
            items: 12,
            bytes: 2_400,
            columns: 0.5,
            outgoing: 7.0,
            incoming: 8.0,
            columns_received: 1.5,
            columns_given: 0.0,
            last_move,
            why: None,
        }
    }

    #[test]
    fn the_version_is_a_label() {
        let build = build();
        assert_eq!(build.samples[0].labels[0], ("version", env!("CARGO_PKG_VERSION").to_owned()));
        assert!(matches!(build.samples[..], [Sample { value: Value::Count(1), .. }]));
    }

    #[test]
    fn each_family_of_groups_has_a_sample_for_each_group() {
        assert!(group_families(&[]).is_empty());
        let families = group_families(&[group("1ms", Some("gave")), group("5s", None)]);
        for family in &families {
            assert!(family.name.starts_with("group_"), "{}", family.name);
            let is_decision = family.name == "group_last_move";
            assert_eq!(family.samples.len(), if is_decision { 1 } else { 2 }, "{}", family.name);
            let labels: Vec<_> =
                family.samples[0].labels.iter().map(|(name, value)| (*name, value.as_str())).collect();
            assert_eq!(labels[..2], [("size", "256"), ("penalty", "1ms")], "{}", family.name);
            assert_eq!(labels.get(2), is_decision.then_some(&("reason", "gave")), "{}", family.name);
        }
        assert!(group_families(&[group("1ms", None)]).iter().all(|family| family.name != "group_last_move"));
    }
}
