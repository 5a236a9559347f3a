//! The numbers of the whole server, for the admin endpoint.

use crate::admin::{Family, Kind, Sample, Source, Value, ZoneCell, names};
use crate::dispatch::ServerState;
use crate::flash::numbers;
use crate::latency::{Class, WorkerLatency, total, total_fetches};
use larder_cache::Cache;
use std::sync::Arc;

/// Reads cache, drivers and histograms when asked.
pub(crate) struct Metrics {
    cache: Arc<Cache>,
    state: Arc<ServerState>,
    latency: Arc<[Arc<WorkerLatency>]>,
}

impl Metrics {
    /// A source over these.
    pub(crate) fn new(
        cache: Arc<Cache>,
        state: Arc<ServerState>,
        latency: Arc<[Arc<WorkerLatency>]>,
    ) -> Metrics {
        Metrics { cache, state, latency }
    }
}

fn counter(name: &'static str, help: &'static str, value: u64) -> Family {
    Family::single(name, help, Kind::Counter, "", Value::Count(value))
}

fn gauge(name: &'static str, help: &'static str, unit: &'static str, value: u64) -> Family {
    Family::single(name, help, Kind::Gauge, unit, Value::Count(value))
}

impl Source for Metrics {
    fn families(&self) -> Vec<Family> {
        let totals = self.cache.totals();
        let used = self.cache.memory_use();
        let io = self.state.io_snapshot();
        let count = |label: &'static str, value: u64| (label, Value::Count(value));
        let mut families = vec![
            Family::labelled(
                names::LOOKUPS,
                "Keys looked up by get commands.",
                Kind::Counter,
                "",
                "result",
                [count("hit", totals.get_hits), count("miss", totals.get_misses)],
            ),
            Family {
                name: names::REQUESTS,
                help: "Time of a request within the server: its turn, from the first byte read to the last reply composed.",
                unit: "seconds",
                kind: Kind::Histogram,
                samples: Class::ALL
                    .iter()
                    .map(|&class| Sample {
                        labels: vec![("command", class.name().to_owned())],
                        value: Value::Times(total(self.latency.iter().map(|worker| &**worker), class)),
                    })
                    .collect(),
            },
            Family::labelled(
                names::MEMORY,
                "Where the memory went.",
                Kind::Gauge,
                "bytes",
                "purpose",
                [
                    count("items", used.items_bytes),
                    count("columns_free", used.free_columns_bytes),
                    count(
                        "columns_dead",
                        used.columns_bytes.saturating_sub(used.free_columns_bytes + used.items_bytes),
                    ),
                    count("index", used.index_bytes),
                    count("connection_buffers", io.buffer_bytes),
                    count("bookkeeping", used.bookkeeping_bytes),
                    count("temperature", used.temperature_bytes),
                ],
            ),
            gauge(names::MEMORY_LIMIT, "The promise of -m.", "bytes", used.limit_bytes),
            gauge("memory_columns", "Slabs mapped for columns.", "bytes", used.columns_bytes),
            gauge(names::ITEMS, "Items held.", "", self.cache.items()),
            gauge(names::CONNECTIONS, "Clients connected.", "", io.curr_connections),
            gauge(names::UPTIME, "Time since the start.", "seconds", self.cache.clock().uptime_s() as u64),
            counter(names::EVICTIONS, "Items that had to go.", totals.evictions),
        ];
        let shown = ["get_hits", "get_misses", "evictions"];
        families.extend(
            totals
                .rows()
                .into_iter()
                .filter(|row| !shown.contains(&row.0))
                .map(|(name, help, value)| counter(name, help, value)),
        );
        let facts = self.cache.temperature_facts();
        families.extend(facts.counts().into_iter().map(|(name, help, value)| counter(name, help, value)));
        families.extend([
            Family::single(
                "probation_share",
                "Part of the columns that new items may fill.",
                Kind::Gauge,
                "",
                Value::Amount(facts.probation_share),
            ),
            Family::labelled(
                "columns_sealed",
                "Columns of items, by what they hold.",
                Kind::Gauge,
                "",
                "part",
                [count("probation", facts.probation_columns), count("main", facts.main_columns)],
            ),
            counter(
                "reference_pages_dropped",
                "Pages of references dropped because the keeper was late.",
                self.cache.dropped_pages(),
            ),
            counter(
                "keeper_cpu_ns",
                "CPU time of the keeper's thread, nanoseconds.",
                self.cache.keeper_cpu_ns(),
            ),
        ]);
        families.extend([
            counter("connections_opened", "Connections ever opened.", io.total_connections),
            counter("connections_rejected", "Connections turned away at the limit.", io.rejected_connections),
            counter("connections_idle_closed", "Connections closed for being idle.", io.idle_kicks),
            counter("received_bytes", "Bytes received.", io.bytes_read),
            counter("sent_bytes", "Bytes sent.", io.bytes_written),
            counter("waits", "Times a worker waited in the kernel.", io.waits),
            counter("udp_requests", "UDP requests received.", io.udp_requests),
            counter("udp_dropped", "UDP requests or replies dropped.", io.udp_dropped),
        ]);
        if let Some(flash) = self.cache.flash_tier() {
            let stats = numbers::with_all_misses(flash.stats(), &self.cache.totals());
            families.extend(numbers::families(&stats));
            families.extend([
                Family::single(
                    "flash_fetch_duration",
                    "Time of a fetch from flash, from the moment it was asked for until it came.",
                    Kind::Histogram,
                    "seconds",
                    Value::Times(total_fetches(self.latency.iter().map(|worker| &**worker))),
                ),
                gauge(
                    "flash_write_budget",
                    "Most bytes of items written in a day; 0 = no bound.",
                    "bytes",
                    self.state.settings().flash.write_budget_bytes.unwrap_or(0),
                ),
            ]);
        }
        families
    }

    fn zones(&self) -> Vec<ZoneCell> {
        self.cache.flash_tier().map(|flash| numbers::cells(flash)).unwrap_or_default()
    }

    fn healthy(&self) -> Result<(), String> {
        Ok(())
    }
}
