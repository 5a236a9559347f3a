//! The report of a run of simulations: facts, tables and curves.

use super::{Counts, OpsRule, Outcome, PolicyAtSize, Rules, Run, Unit};
use crate::policy::larder;
use crate::report::{Axis, Cell, Chart, Part, Report, SHOWN_MAX, Scale, Table, grouped, size, size_in_full};
use larder_cache::Objective;

/// The policy with which others are compared.
const BASELINE: &str = "lru";
/// The policies whose curves are always shown at first.
const REFERENCES: [&str; 2] = [BASELINE, larder::NAME];
/// Maximum number of points in the chart of hits over time.
const POINTS_MAX: usize = 128;

impl Counts {
    /// Hits per get; `None` if no get was counted.
    pub fn hit_ratio(&self) -> Option<f64> {
        ratio(self.hits, self.gets)
    }

    /// Misses per get; `None` if no get was counted.
    pub fn miss_ratio(&self) -> Option<f64> {
        ratio(self.gets - self.hits, self.gets)
    }

    /// Bytes hit per byte requested; `None` also where the trace has no sizes.
    pub fn byte_hit_ratio(&self) -> Option<f64> {
        ratio(self.hit_bytes, self.bytes)
    }

    /// Gets that flash answered, per get; `None` if there is no flash.
    pub fn flash_hit_ratio(&self) -> Option<f64> {
        ratio(self.flash?.hits, self.gets)
    }

    /// Bytes written to flash per byte that was admitted; `None` if none was.
    pub fn written_per_admitted_byte(&self) -> Option<f64> {
        ratio(self.flash?.written_bytes, self.flash?.admitted_bytes)
    }

    /// Mean service time of a get in microseconds.
    pub fn service_us(&self, rules: &Rules) -> Option<f64> {
        let on_flash_us = self.flash.map_or(0, |flash| flash.hits * u64::from(rules.flash_us));
        ratio(self.penalty_us + on_flash_us, self.gets).map(|more_us| f64::from(rules.hit_us) + more_us)
    }
}

impl Run {
    /// Bytes of bookkeeping for the items stored at the end.
    pub fn metadata_bytes(&self) -> u64 {
        (self.metadata_bits * self.items as f64 / 8.0).round() as u64
    }
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

fn number(value: Option<f64>, decimals: usize) -> Cell {
    value.map_or(Cell::Empty, |value| Cell::Number(value, decimals))
}

/// The report of a run under `rules`.
pub fn report(outcome: &Outcome, rules: &Rules) -> Report {
    let view = View { outcome, rules };
    let mut parts: Vec<Part> = view.comparisons().into_iter().map(Part::Table).collect();
    parts.push(Part::Chart(view.curve("Miss ratio", "miss ratio", &|run| run.counts.miss_ratio())));
    if outcome.fields.sizes {
        let byte_miss = |run: &Run| run.counts.byte_hit_ratio().map(|hit| 1.0 - hit);
        parts.push(Part::Chart(view.curve("Byte miss ratio", "byte miss ratio", &byte_miss)));
    }
    let service_us = |run: &Run| run.counts.service_us(rules);
    parts.push(Part::Chart(view.curve("Mean service time", "us", &service_us)));
    parts.extend(view.over_time().map(Part::Chart));
    parts.push(Part::Table(view.details()));
    parts.extend(view.remarks().into_iter().map(Part::Text));
    let (facts, settings) = view.facts();
    Report { title: view.title(), facts, settings, parts }
}

/// Facts, as (name, value).
type Facts = Vec<(String, String)>;

struct View<'a> {
    outcome: &'a Outcome,
    rules: &'a Rules,
}

impl View<'_> {
    /// What was simulated, in a line.
    fn title(&self) -> String {
        let outcome = self.outcome;
        let policies = match self.policies()[..] {
            [only] => only.to_owned(),
            ref all => format!("{} eviction policies", all.len()),
        };
        let (amount, unit): (fn(u64) -> String, _) = match outcome.unit {
            Unit::Objects => (grouped, " objects"),
            Unit::Bytes => (|bytes| size(bytes as f64), ""),
        };
        let sizes = match self.capacities()[..] {
            [] => String::new(),
            [only] => format!(", a cache of {}{unit}", amount(only)),
            [least, .., most] => format!(", caches of {} to {}{unit}", amount(least), amount(most)),
        };
        format!("{policies} on {}: {} requests{sizes}", outcome.name, grouped(outcome.requests))
    }

    /// What was simulated, and the settings that have their defaults or follow from the trace.
    fn facts(&self) -> (Facts, Facts) {
        let (outcome, rules, usual) = (self.outcome, self.rules, Rules::default());
        let (mut facts, mut settings) = (Facts::new(), Facts::new());
        let mut fact = |name: &str, value: String, is_usual: bool| {
            if is_usual { &mut settings } else { &mut facts }.push((name.to_owned(), value));
        };
        fact("requests", grouped(outcome.requests), false);
        fact("keys", grouped(outcome.keys), false);
        if outcome.fields.sizes {
            fact("items of all keys", size_in_full(outcome.bytes), false);
        }
        fact("trace", outcome.source.clone(), true);
        fact("sizes count", outcome.unit.name().to_owned(), rules.unit.is_none());
        if outcome.unit == Unit::Bytes {
            let overhead = format!("{} bytes", rules.overhead_bytes);
            fact("overhead per item", overhead, rules.overhead_bytes == usual.overhead_bytes);
        }
        let ops = match outcome.ops {
            OpsRule::Ignore => "ignored: every request is a get",
            OpsRule::Obey => "obeyed",
        };
        fact("operations", ops.to_owned(), rules.ops.is_none());
        fact("times to live", if rules.ttls { "obeyed" } else { "ignored" }.to_owned(), !rules.ttls);
        let warmup = outcome.warmup_requests;
        fact("warm-up", format!("{} requests", grouped(warmup)), warmup == 0);
        fact("a hit takes", format!("{} us", grouped(u64::from(rules.hit_us))), rules.hit_us == usual.hit_us);
        let penalty = format!("{} us", grouped(u64::from(rules.penalty_us)));
        let more = match outcome.fields.penalties {
            true => format!("as long and its penalty ({penalty} where the trace tells none)"),
            false => format!("{penalty} longer"),
        };
        fact("a miss takes", more, rules.penalty_us == usual.penalty_us);
        if let Some(bytes) = rules.flash_bytes {
            fact("flash behind larder", size_in_full(bytes), false);
            let more = format!("{} us longer", grouped(u64::from(rules.flash_us)));
            fact("a hit on flash takes", more, rules.flash_us == usual.flash_us);
        }
        if let Some(ratio) = rules.compress_ratio {
            let shrink =
                format!("{ratio} times shorter where the keeper compresses them; others' stay plain");
            fact("values of larder", shrink, false);
        }
        if let Some(objective) = rules.objective {
            fact("objective", objective.name().to_owned(), false);
        }
        (facts, settings)
    }

    /// The policies, in the requested order.
    fn policies(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.outcome.cells.iter().map(|cell| cell.policy.as_str()).collect();
        names.dedup();
        names
    }

    /// The policies that were run, in the order of their curves: first as many as a page shows at first, which are the
    /// references and the best of the others, then the rest. Each part is ordered by the mean of what a policy costs at
    /// a size, compared with the best policy there.
    fn ranked(&self) -> Vec<&str> {
        let objective = self.rules.objective.unwrap_or(Objective::Requests);
        let mut means: Vec<(&str, f64, u32)> =
            self.policies().into_iter().map(|policy| (policy, 0.0, 0)).collect();
        for capacity in self.capacities() {
            let costs: Vec<Option<f64>> =
                means.iter().map(|(policy, ..)| self.cost(objective, policy, capacity)).collect();
            let least = costs.iter().flatten().copied().fold(f64::INFINITY, f64::min);
            for ((_, sum, sizes), cost) in means.iter_mut().zip(costs) {
                // A millionth, because nothing may be missed at all.
                *sum += cost.map_or(0.0, |cost| (cost + 1e-6) / (least + 1e-6));
                *sizes += u32::from(cost.is_some());
            }
        }
        means.retain(|(.., sizes)| *sizes > 0);
        means.sort_by(|a, b| (a.1 / f64::from(a.2)).total_cmp(&(b.1 / f64::from(b.2))));
        let ranked: Vec<&str> = means.iter().map(|(policy, ..)| *policy).collect();
        let (mut first, others): (Vec<&str>, Vec<&str>) =
            ranked.iter().partition(|policy| REFERENCES.contains(policy));
        first.extend(others.into_iter().take(SHOWN_MAX.saturating_sub(first.len())));
        let (shown, rest): (Vec<&str>, Vec<&str>) = ranked.iter().partition(|policy| first.contains(policy));
        [shown, rest].concat()
    }

    fn capacities(&self) -> Vec<u64> {
        let mut sizes: Vec<u64> = self.outcome.cells.iter().map(|cell| cell.capacity).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    fn run(&self, policy: &str, capacity: u64) -> Option<&Run> {
        let is_it = |cell: &&PolicyAtSize| cell.policy == policy && cell.capacity == capacity;
        self.outcome.cells.iter().find(is_it)?.run.as_ref().ok()
    }

    /// A cache size, or what is used of it, as a cell.
    fn amount(&self, amount: u64) -> Cell {
        match self.outcome.unit {
            Unit::Objects => Cell::Count(amount),
            Unit::Bytes => Cell::Bytes(amount as f64),
        }
    }

    /// The cache size with its share of the trace.
    fn size_name(&self, capacity: u64) -> String {
        let amount = match self.outcome.unit {
            Unit::Objects => capacity.to_string(),
            Unit::Bytes => size(capacity as f64),
        };
        let share = self.share(capacity).unwrap_or(0.0) * 100.0;
        format!("{amount} ({})", if share >= 0.1 { format!("{share:.1} %") } else { format!("{share:.2} %") })
    }

    /// The cache size as a share of all keys or of their bytes.
    fn share(&self, capacity: u64) -> Option<f64> {
        let overhead = u64::from(self.rules.overhead_bytes) * self.outcome.keys;
        let whole = match self.outcome.unit {
            Unit::Objects => self.outcome.keys,
            Unit::Bytes => self.outcome.bytes + overhead,
        };
        ratio(capacity, whole)
    }

    /// A table with a row per policy and a column per size. The last column is the mean of a row in which every size
    /// has a value.
    fn by_size(&self, title: &str, decimals: usize, value: &dyn Fn(&str, u64) -> Option<f64>) -> Table {
        let capacities = self.capacities();
        let mut columns = vec!["policy".to_owned()];
        columns.extend(capacities.iter().map(|capacity| self.size_name(*capacity)));
        columns.push("mean".to_owned());
        let mut table = Table::new(title, &[]);
        table.columns = columns;
        for policy in self.policies() {
            let values: Vec<Option<f64>> =
                capacities.iter().map(|capacity| value(policy, *capacity)).collect();
            let all: Option<Vec<f64>> = values.iter().copied().collect();
            let mean = all.map(|all| all.iter().sum::<f64>() / all.len() as f64);
            let mut row = vec![Cell::Text(policy.to_owned())];
            row.extend(values.into_iter().chain([mean]).map(|value| number(value, decimals)));
            table.row(row);
        }
        table
    }

    /// The tables that compare policies. Without an objective, misses come first. With one, its own table comes first,
    /// ordered by the mean.
    fn comparisons(&self) -> Vec<Table> {
        let mut tables = Vec::new();
        let first = self.rules.objective.unwrap_or(Objective::Requests);
        tables.push(self.comparison(first));
        if self.rules.objective.is_some() {
            rank(&mut tables[0]);
        }
        tables.extend(self.against_baseline(first));
        if first != Objective::Requests {
            tables.push(self.comparison(Objective::Requests));
        }
        if self.rules.flash_bytes.is_some() {
            let of_run = |value: fn(&Counts) -> Option<f64>| {
                move |policy: &str, capacity: u64| value(&self.run(policy, capacity)?.counts)
            };
            tables.push(self.by_size("Hits on flash per get", 4, &of_run(Counts::flash_hit_ratio)));
            let written = of_run(Counts::written_per_admitted_byte);
            tables.push(self.by_size("Bytes written to flash per byte admitted", 2, &written));
        }
        if self.rules.compress_ratio.is_some() {
            let share = |policy: &str, capacity: u64| self.run(policy, capacity)?.compressed_share;
            tables.push(self.by_size("Items compressed at the end, share of all", 2, &share));
        }
        if first != Objective::Time && self.outcome.fields.penalties {
            tables.push(self.comparison(Objective::Time));
        }
        tables
    }

    /// What an objective keeps low: misses per get, missed bytes per byte, or milliseconds per get.
    fn cost(&self, objective: Objective, policy: &str, capacity: u64) -> Option<f64> {
        let counts = &self.run(policy, capacity)?.counts;
        match objective {
            Objective::Requests => counts.miss_ratio(),
            Objective::Bytes => counts.byte_hit_ratio().map(|hit| 1.0 - hit),
            Objective::Time => counts.service_us(self.rules).map(|us| us / 1000.0),
        }
    }

    fn comparison(&self, objective: Objective) -> Table {
        let (title, decimals) = match objective {
            Objective::Requests => ("Miss ratio by size", 4),
            Objective::Bytes => ("Byte miss ratio by size", 4),
            Objective::Time => ("Mean service time, ms", 3),
        };
        self.by_size(title, decimals, &|policy, capacity| self.cost(objective, policy, capacity))
    }

    /// What is saved in percent of LRU's, where LRU and another policy were run.
    fn against_baseline(&self, objective: Objective) -> Option<Table> {
        let policies = self.policies();
        if !policies.contains(&BASELINE) || policies.len() == 1 {
            return None;
        }
        let saved = |policy: &str, capacity| {
            let of_baseline = self.cost(objective, BASELINE, capacity).filter(|cost| *cost > 0.0)?;
            Some((of_baseline - self.cost(objective, policy, capacity)?) / of_baseline * 100.0)
        };
        let title = match objective {
            Objective::Requests => "Misses saved against LRU, percent of LRU's misses",
            Objective::Bytes => "Missed bytes saved against LRU, percent of LRU's missed bytes",
            Objective::Time => "Service time saved against LRU, percent of LRU's service time",
        };
        Some(self.by_size(title, 1, &saved))
    }

    fn details(&self) -> Table {
        let size = format!("size {}", self.outcome.unit.name());
        let columns = [
            "policy",
            &size,
            "size % of trace",
            "gets",
            "hits",
            "hit ratio",
            "miss ratio",
            "byte hit ratio",
            "flash hit ratio",
            "flash bytes written",
            "service time us",
            "items at end",
            "compressed share",
            "used",
            "metadata bits per item",
            "metadata bytes",
            "evictions",
            "expired",
            "seconds",
            "note",
        ];
        let mut table = Table::new("Each policy at each size", &columns);
        table.files_only = true;
        for cell in &self.outcome.cells {
            let mut row = vec![
                Cell::Text(cell.policy.clone()),
                self.amount(cell.capacity),
                number(self.share(cell.capacity).map(|share| share * 100.0), 3),
            ];
            row.extend(cell.run.as_ref().map_or(Vec::new(), |run| self.numbers(run)));
            row.resize(columns.len() - 1, Cell::Empty);
            row.push(cell.run.as_ref().map_or_else(|reason| Cell::Text(reason.clone()), |_| Cell::Empty));
            table.row(row);
        }
        table
    }

    fn numbers(&self, run: &Run) -> Vec<Cell> {
        let counts = &run.counts;
        vec![
            Cell::Count(counts.gets),
            Cell::Count(counts.hits),
            number(counts.hit_ratio(), 4),
            number(counts.miss_ratio(), 4),
            number(counts.byte_hit_ratio(), 4),
            number(counts.flash_hit_ratio(), 4),
            counts.flash.map_or(Cell::Empty, |flash| Cell::Bytes(flash.written_bytes as f64)),
            counts.service_us(self.rules).map_or(Cell::Empty, |us| Cell::Rounded(us, 3)),
            Cell::Count(run.items),
            number(run.compressed_share, 4),
            self.amount(run.used),
            Cell::Rounded(run.metadata_bits, 3),
            Cell::Bytes(run.metadata_bytes() as f64),
            Cell::Count(counts.evictions),
            Cell::Count(counts.expired),
            Cell::Rounded(run.took.as_secs_f64(), 3),
        ]
    }

    /// A curve per policy over the sizes.
    fn curve(&self, title: &str, y: &str, value: &dyn Fn(&Run) -> Option<f64>) -> Chart {
        let mut chart = Chart::new(title, "", y);
        chart.x = match self.outcome.unit {
            Unit::Objects => Axis { label: "cache size, objects".to_owned(), scale: Scale::Log },
            Unit::Bytes => Axis { label: "cache size".to_owned(), scale: Scale::Bytes },
        };
        for policy in self.ranked() {
            let of_policy = self.outcome.cells.iter().filter(|cell| cell.policy == policy);
            let points =
                of_policy.filter_map(|cell| Some((cell.capacity as f64, value(cell.run.as_ref().ok()?)?)));
            chart.line(policy, points.collect());
        }
        chart
    }

    /// Hit ratio over the trace, at the median size.
    fn over_time(&self) -> Option<Chart> {
        let capacities = self.capacities();
        let capacity = *capacities.get(capacities.len() / 2)?;
        let title = match self.outcome.unit {
            Unit::Objects => format!("Hit ratio over time at {} objects", grouped(capacity)),
            Unit::Bytes => format!("Hit ratio over time at {}", size(capacity as f64)),
        };
        let mut chart = Chart::new(&title, "requests", "hit ratio");
        for policy in self.ranked() {
            let points = self.run(policy, capacity).map(|run| points_over_time(run, self.outcome.requests));
            chart.line(policy, points.unwrap_or_default());
        }
        chart.series.iter().any(|series| !series.points.is_empty()).then_some(chart)
    }

    /// The reason why there are no ratios, if there are none.
    fn nothing_counted(&self) -> Option<&'static str> {
        let outcome = self.outcome;
        let mut runs = outcome.cells.iter().filter_map(|cell| cell.run.as_ref().ok());
        if outcome.requests == 0 {
            Some("There were no requests: nothing was counted.")
        } else if outcome.warmup_requests >= outcome.requests {
            Some("The warm-up is as long as the trace: nothing was counted.")
        } else if runs.all(|run| run.counts.gets == 0) {
            Some("There was no get to count: no ratio can be told.")
        } else {
            None
        }
    }

    /// The reasons why entries are empty: one line per policy and reason, with the sizes.
    fn reasons(&self) -> Vec<String> {
        let mut found: Vec<(&str, &str, Vec<String>)> = Vec::new();
        for cell in &self.outcome.cells {
            let Err(reason) = &cell.run else { continue };
            let size = self.size_name(cell.capacity);
            match found.iter_mut().find(|(policy, why, _)| *policy == cell.policy && why == reason) {
                Some((_, _, sizes)) => sizes.push(size),
                None => found.push((&cell.policy, reason, vec![size])),
            }
        }
        let line = |(policy, reason, sizes): (&str, &str, Vec<String>)| {
            format!("{policy} was not run at {}: {reason}.", sizes.join(", "))
        };
        found.into_iter().map(line).collect()
    }

    fn remarks(&self) -> Vec<String> {
        let outcome = self.outcome;
        let mut remarks: Vec<String> = outcome.notices.clone();
        remarks.extend(self.nothing_counted().map(str::to_owned));
        remarks.extend(self.reasons());
        if outcome.unit == Unit::Bytes && self.policies().iter().any(|name| larder::variant(name).is_some()) {
            remarks.push(
                "larder: the size is the server's -m, with the index, every header and the share for \
                 connection buffers inside it; the other policies are charged for key, value and --overhead."
                    .to_owned(),
            );
        }
        for cell in &outcome.cells {
            let flash = cell.run.as_ref().ok().and_then(|run| run.counts.flash);
            if flash.is_some_and(|flash| flash.has_failed) {
                let size = self.size_name(cell.capacity);
                remarks.push(format!("{} at {size}: its flash failed, so it missed more.", cell.policy));
            }
        }
        if let Some(error) = &outcome.error {
            remarks.push(format!("Stopped after {} requests: {error}", outcome.requests));
        }
        remarks
    }
}

/// Orders the rows of a table of [`View::by_size`] by their mean, the least first. Rows without a mean come last.
fn rank(table: &mut Table) {
    table.title += ", best mean first";
    let mean = |row: &[Cell]| match row.last() {
        Some(Cell::Number(mean, _)) => *mean,
        _ => f64::INFINITY,
    };
    table.rows.sort_by(|a, b| mean(a).total_cmp(&mean(b)));
}

/// The ends of the windows with their hit ratios. Neighbouring windows are joined until there are few enough; the
/// last one ends with the last request.
fn points_over_time(run: &Run, requests: u64) -> Vec<(f64, f64)> {
    let together = run.windows.sums.len().div_ceil(POINTS_MAX).max(1);
    let width = run.windows.requests * together as u64;
    let joined = run
        .windows
        .sums
        .chunks(together)
        .map(|some| some.iter().fold((0, 0), |sum, window| (sum.0 + window.0, sum.1 + window.1)));
    joined
        .enumerate()
        .filter_map(|(at, (gets, hits))| {
            let end = ((at as u64 + 1) * width).min(requests);
            Some((end as f64, ratio(hits, gets)?))
        })
        .collect()
}
