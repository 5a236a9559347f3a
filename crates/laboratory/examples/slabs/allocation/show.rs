//! The report of a run.

use larder_cache::Objective;
use larder_sim::policy::larder;
use larder_sim::report::{Cell, Chart, Part, Report, Series, Style, Table};

use super::{Outcome, Settings, SlabClasses, Totals};

/// Options of a report.
#[derive(Clone, Debug)]
pub(crate) struct ReportOptions {
    /// The description of the trace or workload.
    pub(crate) source: String,
    /// Classes whose subclasses are charted over time (PAMA, Fig. 4).
    pub(crate) classes: Vec<usize>,
}

/// Tables and charts of all outcomes, grouped by memory size.
pub(crate) fn report(settings: &Settings, outcomes: &[Outcome], options: &ReportOptions) -> Report {
    let mut report = Report { title: "Slab allocation".to_owned(), ..Report::default() };
    report.facts = facts(settings, options);
    report.parts.push(Part::Table(summary(outcomes, settings.objective)));
    if outcomes.iter().any(|outcome| outcome.passes.len() > 1) {
        report.parts.push(Part::Table(passes(outcomes)));
    }
    report.parts.extend(sweep(outcomes).into_iter().map(Part::Chart));
    if outcomes.iter().any(|outcome| outcome.audit.is_some()) {
        report.parts.push(Part::Table(audits(outcomes)));
    }
    let mut sizes: Vec<u64> = outcomes.iter().map(|outcome| outcome.memory_bytes).collect();
    sizes.dedup();
    for memory in sizes {
        let of_size: Vec<&Outcome> =
            outcomes.iter().filter(|outcome| outcome.memory_bytes == memory).collect();
        report.parts.push(Part::Heading(format!("Memory {}", size(memory))));
        let on_slabs: Vec<&Outcome> = of_size.iter().copied().filter(|outcome| has_slabs(outcome)).collect();
        if !on_slabs.is_empty() {
            report.parts.push(Part::Table(allocation(&settings.classes, &on_slabs)));
        }
        if settings.burst.is_some() {
            report.parts.push(Part::Table(window_table(&of_size)));
        }
        report.parts.extend(charts(&settings.classes, &of_size, options).into_iter().map(Part::Chart));
    }
    report
}

fn facts(settings: &Settings, options: &ReportOptions) -> Vec<(String, String)> {
    let classes = &settings.classes;
    let scheme = &settings.scheme;
    let mut facts = vec![
        ("requests".to_owned(), options.source.clone()),
        ("slab".to_owned(), size(classes.slab_bytes())),
        (
            "classes".to_owned(),
            format!("{}, slots of 64 to {} bytes", classes.len(), classes.slot_bytes(classes.len() - 1)),
        ),
        ("service time of a hit".to_owned(), format!("{} us", settings.hit_us)),
        ("window of the report".to_owned(), format!("{} GETs", settings.window_gets)),
        (
            "PAMA's values".to_owned(),
            format!(
                "window of {} accesses, roll-over {:?}, {}",
                scheme.value_window,
                scheme.rollover,
                if scheme.follow_slabs { "values follow slabs" } else { "values stay" }
            ),
        ),
        ("PSA".to_owned(), format!("a slab every {} misses", scheme.psa_misses)),
        ("automove".to_owned(), format!("windows of {} accesses", scheme.automove_window)),
    ];
    if let Some(objective) = settings.objective {
        facts.push(("objective".to_owned(), objective.name().to_owned()));
    }
    if let Some(burst) = &settings.burst {
        let last = burst.class_first + burst.classes - 1;
        facts.push((
            "burst".to_owned(),
            format!(
                "after {} GETs, {} of the memory, classes {} to {last}, {} SETs per GET",
                burst.at_gets, burst.memory_ratio, burst.class_first, burst.sets_per_get
            ),
        ));
    }
    facts
}

/// Whether the scheme has slabs.
fn has_slabs(outcome: &Outcome) -> bool {
    larder::variant(&outcome.scheme).is_none()
}

/// All outcomes, by memory size. With an objective, the best of each size comes first.
fn summary(outcomes: &[Outcome], objective: Option<Objective>) -> Table {
    let mut table = Table::new(
        "Schemes",
        &[
            "memory MiB",
            "scheme",
            "m",
            "GETs",
            "hit ratio %",
            "service time ms",
            "of static %",
            "of psa %",
            "slabs moved",
            "too large",
            "without slab",
        ],
    );
    if objective == Some(Objective::Bytes) {
        table.columns.insert(BYTE_HIT_RATIO_AT, "byte hit ratio %".to_owned());
    }
    for outcome in ranked(outcomes, objective) {
        let totals = &outcome.totals;
        let count = |count: u64| if has_slabs(outcome) { Cell::Count(count) } else { Cell::Empty };
        let of = |scheme: &str| {
            let other = outcomes
                .iter()
                .find(|other| other.scheme == scheme && other.memory_bytes == outcome.memory_bytes);
            other.map_or(Cell::Empty, |other| {
                Cell::Number(100.0 * totals.service_ms() / other.totals.service_ms(), 1)
            })
        };
        let mut row = vec![
            Cell::Number(mib(outcome.memory_bytes), 2),
            Cell::Text(outcome.scheme.clone()),
            outcome.m.map_or(Cell::Empty, |m| Cell::Count(m as u64)),
            Cell::Count(totals.gets),
            Cell::Number(100.0 * totals.hit_ratio(), 2),
            Cell::Number(totals.service_ms(), 3),
            of("static"),
            of("psa"),
            count(totals.slabs_moved),
            Cell::Count(totals.too_large),
            count(totals.without_slab),
        ];
        if objective == Some(Objective::Bytes) {
            row.insert(BYTE_HIT_RATIO_AT, Cell::Number(100.0 * totals.byte_hit_ratio(), 2));
        }
        table.row(row);
    }
    table
}

/// Where the byte hit ratio stands in the summary: behind the hit ratio.
const BYTE_HIT_RATIO_AT: usize = 5;

/// The outcomes in the order of the summary. Those of one memory size stand together already.
fn ranked(outcomes: &[Outcome], objective: Option<Objective>) -> Vec<&Outcome> {
    let cost = |outcome: &Outcome| match objective {
        None => 0.0,
        Some(Objective::Requests) => 1.0 - outcome.totals.hit_ratio(),
        Some(Objective::Bytes) => 1.0 - outcome.totals.byte_hit_ratio(),
        Some(Objective::Time) => outcome.totals.service_ms(),
    };
    let mut ranked: Vec<&Outcome> = outcomes.iter().collect();
    for of_size in ranked.chunk_by_mut(|one, other| one.memory_bytes == other.memory_bytes) {
        of_size.sort_by(|one, other| cost(one).total_cmp(&cost(other)));
    }
    ranked
}

fn passes(outcomes: &[Outcome]) -> Table {
    let mut table = Table::new(
        "Passes over the same requests",
        &["memory MiB", "scheme", "m", "pass", "hit ratio %", "service time ms", "of static %", "of psa %"],
    );
    for outcome in outcomes {
        for (at, pass) in outcome.passes.iter().enumerate() {
            let of = |scheme: &str| {
                let other = outcomes
                    .iter()
                    .find(|other| other.scheme == scheme && other.memory_bytes == outcome.memory_bytes);
                other.map_or(Cell::Empty, |other| {
                    Cell::Number(100.0 * pass.service_ms() / other.passes[at].service_ms(), 1)
                })
            };
            table.row(vec![
                Cell::Number(mib(outcome.memory_bytes), 2),
                Cell::Text(outcome.scheme.clone()),
                outcome.m.map_or(Cell::Empty, |m| Cell::Count(m as u64)),
                Cell::Count(at as u64 + 1),
                Cell::Number(100.0 * pass.hit_ratio(), 2),
                Cell::Number(pass.service_ms(), 3),
                of("static"),
                of("psa"),
            ]);
        }
    }
    table
}

/// Service time over m, with a line for each scheme and size (PAMA, Fig. 10); `None` where m does not vary.
fn sweep(outcomes: &[Outcome]) -> Option<Chart> {
    let mut chart = Chart::new("Service time by m", "m", "service time ms");
    for outcome in outcomes {
        let Some(m) = outcome.m else { continue };
        let name = format!("{} {}", outcome.scheme, size(outcome.memory_bytes));
        let point = (m as f64, outcome.totals.service_ms());
        match chart.series.iter_mut().find(|series| series.name == name) {
            Some(series) => series.points.push(point),
            None => chart.line(&name, vec![point]),
        }
    }
    chart.series.iter_mut().for_each(|series| series.points.sort_by(|a, b| a.0.total_cmp(&b.0)));
    chart.series.iter().any(|series| series.points.len() > 1).then_some(chart)
}

fn audits(outcomes: &[Outcome]) -> Table {
    let mut table = Table::new(
        "Bloom filters against exact tracking",
        &[
            "memory MiB",
            "scheme",
            "m",
            "judged",
            "in a segment",
            "false positives %",
            "false negatives %",
            "wrong segment %",
            "value of exact %",
        ],
    );
    for outcome in outcomes {
        let Some(audit) = &outcome.audit else { continue };
        let of = |part: u64, whole: u64| Cell::Number(100.0 * part as f64 / whole.max(1) as f64, 3);
        let value = match audit.exact_value_us > 0.0 {
            true => Cell::Number(100.0 * audit.judged_value_us / audit.exact_value_us, 2),
            false => Cell::Empty,
        };
        table.row(vec![
            Cell::Number(mib(outcome.memory_bytes), 2),
            Cell::Text(outcome.scheme.clone()),
            outcome.m.map_or(Cell::Empty, |m| Cell::Count(m as u64)),
            Cell::Count(audit.judged),
            Cell::Count(audit.in_segment),
            of(audit.false_positives, audit.judged - audit.in_segment),
            of(audit.false_negatives, audit.in_segment),
            of(audit.wrong_segment, audit.in_segment),
            value,
        ]);
    }
    table
}

/// Memory per class at the end.
fn allocation(classes: &SlabClasses, outcomes: &[&Outcome]) -> Table {
    let mut table = Table::new("Memory per class at the end, %", &["class", "slot bytes"]);
    table.columns.extend(outcomes.iter().map(|outcome| label(outcome, outcomes)));
    for class in 0..classes.len() {
        let mut row = vec![Cell::Count(class as u64), Cell::Count(classes.slot_bytes(class))];
        for outcome in outcomes {
            let slabs = outcome.windows.last().map_or(0, |window| class_slabs(outcome, &window.slabs, class));
            let all = outcome.memory_bytes / classes.slab_bytes();
            row.push(Cell::Number(100.0 * f64::from(slabs) / all as f64, 2));
        }
        table.row(row);
    }
    table
}

fn window_table(outcomes: &[&Outcome]) -> Table {
    let mut table = Table::new("Windows", &["GETs"]);
    table.files_only = outcomes.len() > 3;
    for outcome in outcomes {
        table.columns.push(format!("{} hit ratio %", label(outcome, outcomes)));
        table.columns.push(format!("{} service time ms", label(outcome, outcomes)));
    }
    let windows = outcomes.first().map_or(0, |outcome| outcome.windows.len());
    for at in 0..windows {
        let mut row = vec![Cell::Count(outcomes[0].windows[at].gets_end)];
        for outcome in outcomes {
            let totals = &outcome.windows[at].totals;
            row.push(Cell::Number(100.0 * totals.hit_ratio(), 2));
            row.push(Cell::Number(totals.service_ms(), 3));
        }
        table.row(row);
    }
    table
}

fn charts(classes: &SlabClasses, outcomes: &[&Outcome], options: &ReportOptions) -> Vec<Chart> {
    let Some(first) = outcomes.first() else { return Vec::new() };
    let memory = size(first.memory_bytes);
    let lines = |title: &str, unit: &str, value: &dyn Fn(&Totals) -> f64| {
        let mut chart = Chart::new(&format!("{title}, {memory}"), "GETs", unit);
        for outcome in outcomes {
            let points = outcome.windows.iter().map(|window| (window.gets_end as f64, value(&window.totals)));
            chart.line(&label(outcome, outcomes), points.collect());
        }
        chart
    };
    let mut charts = vec![
        lines("Hit ratio", "hit ratio %", &|totals| 100.0 * totals.hit_ratio()),
        lines("Service time", "service time ms", &|totals| totals.service_ms()),
    ];
    for outcome in outcomes.iter().filter(|outcome| has_slabs(outcome)) {
        let name = label(outcome, outcomes);
        let of_classes = (0..classes.len()).map(|class| {
            let name = format!("class {class}, {} bytes", classes.slot_bytes(class));
            (name, outcome.windows.iter().map(|window| class_slabs(outcome, &window.slabs, class)).collect())
        });
        let title = format!("Memory per class, {name}, {memory}");
        charts.push(stacked(&title, classes.slab_bytes(), outcome, of_classes.collect()));
        if outcome.subclasses == 1 {
            continue;
        }
        for &class in options.classes.iter().filter(|&&class| class < classes.len()) {
            let of_subclasses = (0..outcome.subclasses).map(|subclass| {
                let group = class * outcome.subclasses + subclass;
                let slabs = outcome.windows.iter().map(|window| window.slabs[group]).collect();
                (SUBCLASSES[subclass].to_owned(), slabs)
            });
            let title = format!("Memory per subclass of class {class}, {name}, {memory}");
            charts.push(stacked(&title, classes.slab_bytes(), outcome, of_subclasses.collect()));
        }
    }
    charts
}

/// The names of the penalty subclasses.
const SUBCLASSES: [&str; 5] = ["to 1 ms", "1 to 10 ms", "10 to 100 ms", "100 ms to 1 s", "1 to 5 s"];

fn stacked(title: &str, slab_bytes: u64, outcome: &Outcome, areas: Vec<(String, Vec<u32>)>) -> Chart {
    let mut chart = Chart::new(title, "GETs", "MiB");
    for (name, slabs) in areas {
        let points = outcome.windows.iter().zip(slabs);
        let points =
            points.map(|(window, slabs)| (window.gets_end as f64, mib(u64::from(slabs) * slab_bytes)));
        chart.series.push(Series { name, points: points.collect(), style: Style::Stacked });
    }
    chart
}

fn class_slabs(outcome: &Outcome, slabs: &[u32], class: usize) -> u32 {
    slabs[class * outcome.subclasses..][..outcome.subclasses].iter().sum()
}

/// The name of the scheme, with m where it is needed to tell outcomes apart.
fn label(outcome: &Outcome, among: &[&Outcome]) -> String {
    match outcome.m {
        Some(m) if among.iter().filter(|other| other.scheme == outcome.scheme).count() > 1 => {
            format!("{} m={m}", outcome.scheme)
        }
        _ => outcome.scheme.clone(),
    }
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn size(bytes: u64) -> String {
    match bytes {
        bytes if bytes.is_multiple_of(1 << 30) => format!("{} GiB", bytes >> 30),
        bytes if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        bytes if bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        bytes => format!("{bytes} bytes"),
    }
}
