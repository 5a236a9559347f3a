//! The figures of each round, medians over rounds, ratios between servers, and warnings.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::client::Measured;
use crate::readthrough::HitRatio;
use crate::trials::TrialFigures;

/// One round of one load on one server.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Round {
    /// Ordinal of the round, from 0.
    pub(crate) round: usize,
    /// Requests answered.
    pub(crate) requests: u64,
    /// Requests answered per second.
    pub(crate) requests_per_s: f64,
    /// Latency; absent where the load does not measure it.
    pub(crate) latency: Option<Latency>,
    /// Processor time of the server per request, in microseconds.
    pub(crate) server_us_per_request: f64,
    /// Processor time of the client per request, in microseconds.
    pub(crate) client_us_per_request: f64,
    /// Busy cores of the server.
    pub(crate) server_busy: f64,
    /// Share of the time the client was busy, the mean of its threads.
    pub(crate) client_busy: f64,
    /// Share of the cores' time used by other programs.
    pub(crate) foreign_busy: f64,
    /// Share of the cores' time that the hypervisor withheld.
    pub(crate) stolen: f64,
    /// Share of the server's processor time that no living thread accounts for.
    pub(crate) server_unseen: f64,
    /// GETs answered with a value.
    pub(crate) hits: u64,
    /// GETs answered without a value.
    pub(crate) misses: u64,
    /// SETs done.
    pub(crate) stored: u64,
    /// Requests refused by the server.
    pub(crate) refused: u64,
    /// Resident memory of the server after the round, in bytes.
    pub(crate) resident_bytes: u64,
    /// What the server says of its items; present for values of a kind.
    pub(crate) held: Option<Held>,
    /// Present for memory loads only.
    pub(crate) memory: Option<MemoryFigures>,
    /// Hit ratio of the first, second and third third of the read-through load.
    pub(crate) hit_ratio_thirds: Option<[f64; 3]>,
    /// Present for the pressure load only.
    pub(crate) pressure: Option<PressureFigures>,
    /// Present for the loads that ask what a server keeps.
    pub(crate) trial: Option<TrialFigures>,
}

/// What a server says of its items.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Held {
    /// Items that it holds after the round.
    pub(crate) items: u64,
    /// Items that it evicted in the round, its warm-up included.
    pub(crate) evictions: u64,
}

impl Held {
    /// The same with the evictions since `before`.
    pub(crate) fn since(self, before: Option<Self>) -> Self {
        Self { evictions: self.evictions - before.unwrap_or_default().evictions, ..self }
    }
}

/// Latency in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Latency {
    /// Median.
    pub(crate) p50_us: f64,
    /// 99 of 100 are not above.
    pub(crate) p99_us: f64,
    /// 999 of 1000 are not above.
    pub(crate) p999_us: f64,
    /// The longest.
    pub(crate) max_us: f64,
}

/// Memory a server took for the items of a memory load.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct MemoryFigures {
    /// Resident memory before the first item, in bytes.
    pub(crate) before_bytes: u64,
    /// Resident memory with all items, in bytes.
    pub(crate) after_bytes: u64,
    /// Growth per item beyond its key and value, in bytes.
    pub(crate) overhead_per_item: f64,
}

/// Processor time of a server that evicts, compared with one that holds everything, for the same commands, in
/// microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct PressureFigures {
    /// Per GET or SET, with everything resident.
    pub(crate) resident_us_per_request: f64,
    /// Per GET including its SETs, under pressure.
    pub(crate) us_per_get: f64,
    /// Per GET including its SETs, with everything resident.
    pub(crate) resident_us_per_get: f64,
    /// The cost under pressure divided by the cost with everything resident.
    pub(crate) cost: f64,
}

/// The watched cores, which reveal the load of other programs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watched {
    /// The number of cores.
    pub(crate) cores: usize,
    /// The number of threads that are the client.
    pub(crate) clients: usize,
}

impl Round {
    /// The figures of a load; `resident_bytes` is the server's memory after it.
    pub(crate) fn of(round: usize, measured: &Measured, watched: Watched, resident_bytes: u64) -> Self {
        let counts = measured.counts;
        let requests = counts.total();
        let seconds = measured.elapsed.as_secs_f64().max(1e-9);
        let core_seconds = seconds * watched.cores.max(1) as f64;
        let ours = measured.server_cpu + measured.client_cpu;
        let at = |quantile| measured.latency.value_at_quantile(quantile) as f64 / 1e3;
        Self {
            round,
            requests,
            requests_per_s: requests as f64 / seconds,
            latency: Some(Latency {
                p50_us: at(0.5),
                p99_us: at(0.99),
                p999_us: at(0.999),
                max_us: measured.latency.max() as f64 / 1e3,
            }),
            server_us_per_request: per_request(measured.server_cpu, requests),
            client_us_per_request: per_request(measured.client_cpu, requests),
            server_busy: measured.server_cpu.as_secs_f64() / seconds,
            client_busy: measured.client_cpu.as_secs_f64() / seconds / watched.clients.max(1) as f64,
            foreign_busy: measured.cores.busy.saturating_sub(ours).as_secs_f64() / core_seconds,
            stolen: measured.cores.stolen.as_secs_f64() / core_seconds,
            server_unseen: measured.server_cpu_unseen.as_secs_f64()
                / measured.server_cpu.as_secs_f64().max(1e-9),
            hits: counts.hits,
            misses: counts.misses,
            stored: counts.stored,
            refused: counts.refused,
            resident_bytes,
            held: None,
            memory: None,
            hit_ratio_thirds: None,
            pressure: None,
            trial: None,
        }
    }

    /// The figures of the read-through load.
    pub(crate) fn of_hit_ratio(measured: &HitRatio, resident_bytes: u64) -> Self {
        let requests = measured.requests;
        let seconds = measured.elapsed.as_secs_f64().max(1e-9);
        Self {
            round: 0,
            requests,
            requests_per_s: requests as f64 / seconds,
            latency: None,
            server_us_per_request: per_request(measured.server_cpu, requests),
            client_us_per_request: per_request(measured.client_cpu, requests),
            server_busy: measured.server_cpu.as_secs_f64() / seconds,
            client_busy: measured.client_cpu.as_secs_f64() / seconds,
            foreign_busy: 0.0,
            stolen: 0.0,
            server_unseen: 0.0,
            hits: measured.hits,
            misses: requests - measured.hits,
            stored: measured.sets - measured.refused,
            refused: measured.refused,
            resident_bytes,
            held: None,
            memory: None,
            hit_ratio_thirds: Some(measured.thirds),
            pressure: None,
            trial: None,
        }
    }

    /// The figures of a load that asks what a server keeps, not what a request costs.
    pub(crate) fn of_trial(found: TrialFigures, resident_bytes: u64) -> Self {
        let nothing = HitRatio { requests: found.requests, ..HitRatio::default() };
        Self {
            hits: 0,
            misses: 0,
            hit_ratio_thirds: None,
            trial: Some(found),
            ..Self::of_hit_ratio(&nothing, resident_bytes)
        }
    }

    /// The figures of the pressure load. Requests are GETs and SETs of the server under pressure.
    pub(crate) fn of_pressure(
        round: usize,
        pressed: &HitRatio,
        resident: &HitRatio,
        resident_bytes: u64,
    ) -> Self {
        let requests = pressed.requests + pressed.sets;
        Self {
            round,
            requests,
            requests_per_s: requests as f64 / pressed.elapsed.as_secs_f64().max(1e-9),
            server_us_per_request: per_request(pressed.server_cpu, requests),
            client_us_per_request: per_request(pressed.client_cpu, requests),
            hit_ratio_thirds: None,
            pressure: Some(PressureFigures {
                resident_us_per_request: per_request(resident.server_cpu, resident.requests + resident.sets),
                us_per_get: per_request(pressed.server_cpu, pressed.requests),
                resident_us_per_get: per_request(resident.server_cpu, resident.requests),
                cost: pressed.server_cpu.as_secs_f64() / resident.server_cpu.as_secs_f64().max(1e-9),
            }),
            ..Self::of_hit_ratio(pressed, resident_bytes)
        }
    }
}

/// Processor time of the server per GET, with the SETs that follow misses, in microseconds; `None` without GETs.
pub(crate) fn us_per_get(round: &Round) -> Option<f64> {
    let gets = round.hits + round.misses;
    (gets > 0).then(|| round.server_us_per_request * round.requests as f64 / gets as f64)
}

/// The share of the GETs that were answered with a value; `None` without GETs.
fn hit_ratio(round: &Round) -> Option<f64> {
    let gets = round.hits + round.misses;
    (gets > 0).then(|| round.hits as f64 / gets as f64)
}

/// Whether the client was the bottleneck, so that throughput and latency say little about the server.
fn client_bound(round: &Round) -> bool {
    round.client_busy > 0.95 && round.server_busy < 0.9
}

fn per_request(time: Duration, requests: u64) -> f64 {
    time.as_secs_f64() * 1e6 / requests.max(1) as f64
}

/// One server under one load.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Row {
    /// The server.
    pub(crate) server: String,
    /// The reason why there is no result, if any.
    pub(crate) failed: Option<String>,
    /// Medians over the rounds.
    pub(crate) median: Option<Median>,
    /// Server time per request divided by that of each other server: the median of the rounds' ratios.
    pub(crate) ratios: BTreeMap<String, f64>,
    /// Remarks for the reader.
    pub(crate) notes: Vec<String>,
    /// All rounds.
    pub(crate) rounds: Vec<Round>,
}

/// Medians over the rounds of a row.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Median {
    /// Requests answered per second.
    pub(crate) requests_per_s: f64,
    /// Latency.
    pub(crate) latency: Option<Latency>,
    /// Processor time of the server per request, in microseconds.
    pub(crate) server_us_per_request: f64,
    /// The difference between the largest and the smallest of these times, as a share of the median.
    pub(crate) server_spread: f64,
    /// Processor time of the client per request, in microseconds.
    pub(crate) client_us_per_request: f64,
    /// Share of the GETs that were answered with a value.
    pub(crate) hit_ratio: Option<f64>,
    /// Resident memory afterwards, in bytes.
    pub(crate) resident_bytes: f64,
}

impl Row {
    /// A row without rounds.
    pub(crate) fn new(server: &str) -> Self {
        Self { server: server.to_owned(), ..Self::default() }
    }

    /// Adds a note, once.
    pub(crate) fn note(&mut self, text: String) {
        if !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }

    /// Computes medians and warnings from the rounds. `resident`: every GET should have hit. `rate` is that of the
    /// open loop, in requests per second.
    pub(crate) fn conclude(&mut self, resident: bool, rate: Option<f64>) {
        if self.rounds.is_empty() {
            return;
        }
        let rounds = &self.rounds;
        let of = |field: &dyn Fn(&Round) -> f64| median(rounds.iter().map(field).collect());
        let latency = |field: &dyn Fn(&Latency) -> f64| {
            median(rounds.iter().filter_map(|round| round.latency.as_ref().map(field)).collect())
        };
        let server = of(&|round| round.server_us_per_request);
        let costs = rounds.iter().map(|round| round.server_us_per_request);
        let (least, most) =
            costs.fold((f64::MAX, 0.0f64), |(low, high), cost| (low.min(cost), high.max(cost)));
        let hit_ratios: Vec<f64> = rounds.iter().filter_map(hit_ratio).collect();
        self.median = Some(Median {
            requests_per_s: of(&|round| round.requests_per_s),
            latency: rounds[0].latency.map(|_| Latency {
                p50_us: latency(&|latency| latency.p50_us),
                p99_us: latency(&|latency| latency.p99_us),
                p999_us: latency(&|latency| latency.p999_us),
                max_us: latency(&|latency| latency.max_us),
            }),
            server_us_per_request: server,
            server_spread: if server > 0.0 { (most - least) / server } else { 0.0 },
            client_us_per_request: of(&|round| round.client_us_per_request),
            hit_ratio: (!hit_ratios.is_empty()).then(|| median(hit_ratios)),
            resident_bytes: of(&|round| round.resident_bytes as f64),
        });
        let warnings = warnings(rounds, resident, rate);
        warnings.into_iter().for_each(|warning| self.note(warning));
    }
}

fn warnings(rounds: &[Round], resident: bool, rate: Option<f64>) -> Vec<String> {
    let mut notes = Vec::new();
    let sum = |field: &dyn Fn(&Round) -> u64| rounds.iter().map(field).sum::<u64>();
    let worst = |field: &dyn Fn(&Round) -> f64| rounds.iter().map(field).fold(0.0, f64::max);
    let (hits, misses, refused) = (sum(&|r| r.hits), sum(&|r| r.misses), sum(&|r| r.refused));
    if resident && misses > 0 {
        notes.push(format!("{misses} of {} GETs missed: items were evicted or never stored", hits + misses));
    }
    if refused > 0 {
        notes.push(format!("{refused} of {} requests refused", sum(&|r| r.requests)));
    }
    let slowest = rounds.iter().map(|round| round.requests_per_s).fold(f64::MAX, f64::min);
    if rate.is_some_and(|rate| slowest < 0.98 * rate) {
        notes.push(format!("fell behind its schedule: {slowest:.0} requests/s were answered"));
    }
    let bound = rounds.iter().filter(|round| client_bound(round)).count();
    // The client of the open loop is always busy, because it watches the clock.
    if rate.is_none() && 2 * bound > rounds.len() {
        notes.push(
            "the client was the bottleneck: requests/s and latency are the client's, time per request is not"
                .into(),
        );
    }
    let foreign = worst(&|round| round.foreign_busy);
    if foreign > 0.05 {
        notes.push(format!("disturbed: others used up to {:.0} % of the cores", foreign * 100.0));
    }
    let stolen = worst(&|round| round.stolen);
    if stolen > 0.01 {
        notes.push(format!("disturbed: the hypervisor withheld up to {:.0} % of the cores", stolen * 100.0));
    }
    let unseen = worst(&|round| round.server_unseen);
    if unseen > 0.05 {
        notes.push(format!(
            "threads came and went unseen: up to {:.0} % of the server's time",
            unseen * 100.0
        ));
    }
    notes
}

/// Computes every row's ratios to all others, from the rounds that both have.
pub(crate) fn compare_rows(rows: &mut [Row]) {
    let costs: Vec<(String, BTreeMap<usize, f64>)> = rows
        .iter()
        .map(|row| {
            let costs = row.rounds.iter().map(|round| (round.round, round.server_us_per_request));
            (row.server.clone(), costs.collect())
        })
        .collect();
    for (row, (_, own)) in rows.iter_mut().zip(&costs) {
        for (other, theirs) in costs.iter().filter(|(name, _)| *name != row.server) {
            let pairs = own.iter().filter_map(|(round, cost)| Some(cost / theirs.get(round)?));
            let ratios: Vec<f64> = pairs.filter(|ratio| ratio.is_finite()).collect();
            if !ratios.is_empty() {
                row.ratios.insert(other.clone(), median(ratios));
            }
        }
    }
}

/// The middle value, or the mean of the two in the middle; 0 without values.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        count if count % 2 == 1 => values[count / 2],
        count => (values[count / 2 - 1] + values[count / 2]) / 2.0,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::client::Counts;
    use crate::procfs::CoreTime;
    use hdrhistogram::Histogram;

    /// A round of `requests` hits at `server_us` each, in one second.
    pub(crate) fn round(round: usize, requests: u64, server_us: f64) -> Round {
        let mut latency = Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("good bounds");
        latency.record_n(100_000, requests * 98 / 100).expect("in bounds");
        latency.record_n(5_000_000, requests - requests * 98 / 100).expect("in bounds");
        let measured = Measured {
            counts: Counts { hits: requests, ..Counts::default() },
            refusal: None,
            elapsed: Duration::from_secs(1),
            latency,
            server_cpu: Duration::from_secs_f64(requests as f64 * server_us / 1e6),
            server_cpu_unseen: Duration::ZERO,
            client_cpu: Duration::from_millis(970),
            cores: CoreTime::default(),
        };
        Round::of(round, &measured, Watched { cores: 2, clients: 1 }, 1 << 20)
    }

    #[test]
    fn medians() {
        assert_eq!(median(vec![]), 0.0);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn a_round_divides_by_its_requests() {
        let round = round(0, 100_000, 2.0);
        assert!((round.server_us_per_request - 2.0).abs() < 1e-9 && (round.server_busy - 0.2).abs() < 1e-9);
        assert!((round.client_us_per_request - 9.7).abs() < 1e-9);
        let latency = round.latency.expect("latency");
        assert!(
            (latency.p50_us / 100.0 - 1.0).abs() < 0.002 && (latency.p99_us / 5000.0 - 1.0).abs() < 0.002
        );
        assert!(client_bound(&round));
    }

    #[test]
    fn pressure_is_divided_by_the_same_commands_all_resident() {
        let pressed = HitRatio {
            requests: 1_000,
            hits: 900,
            sets: 100,
            elapsed: Duration::from_millis(10),
            server_cpu: Duration::from_micros(2_200),
            ..HitRatio::default()
        };
        let resident = HitRatio { hits: 1_000, server_cpu: Duration::from_micros(2_000), ..pressed.clone() };
        let round = Round::of_pressure(2, &pressed, &resident, 1 << 20);
        assert_eq!((round.round, round.requests, round.misses, round.stored), (2, 1_100, 100, 100));
        assert!((round.requests_per_s - 110_000.0).abs() < 1e-6);
        let figures = round.pressure.expect("pressure");
        assert!((round.server_us_per_request - 2.0).abs() < 1e-9 && (figures.cost - 1.1).abs() < 1e-9);
        assert!((figures.resident_us_per_request - 2_000.0 / 1_100.0).abs() < 1e-9);
        assert!((figures.us_per_get - 2.2).abs() < 1e-9 && (figures.resident_us_per_get - 2.0).abs() < 1e-9);
    }

    #[test]
    fn ratios_pair_the_rounds() {
        let mut rows = [Row::new("a"), Row::new("b"), Row::new("c")];
        // The machine slows down from round to round; the ratio does not.
        for at in 0..3 {
            let slower = (at + 1) as f64;
            rows[0].rounds.push(round(at, 1_000, slower));
            rows[1].rounds.push(round(at, 1_000, 2.0 * slower));
        }
        compare_rows(&mut rows);
        assert!((rows[0].ratios["b"] - 0.5).abs() < 1e-9 && (rows[1].ratios["a"] - 2.0).abs() < 1e-9);
        assert!(!rows[0].ratios.contains_key("c") && rows[2].ratios.is_empty());
    }

    #[test]
    fn misses_and_refusals_are_said() {
        let mut row = Row::new("a");
        row.rounds.push(Round { misses: 3, refused: 2, ..round(0, 1_000, 1.0) });
        row.conclude(true, None);
        assert_eq!(row.notes.len(), 3, "{:?}", row.notes);
        let mut row = Row::new("a");
        row.rounds.push(Round { misses: 3, ..round(0, 1_000, 1.0) });
        row.conclude(false, Some(1_000.0));
        assert!(row.notes.is_empty(), "{:?}", row.notes);
        row.conclude(false, Some(1_100.0));
        assert!(row.notes[0].contains("fell behind"), "{:?}", row.notes);
    }
}
