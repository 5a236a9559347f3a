//! The report of a plan.

use larder_sim::plan::{Frontier, Goal, Model, Planner, Prices, Split, frontier};
use larder_sim::report::{Cell, Chart, Part, Report, Scale, Table, rounded, size};

/// Number of budgets at which the front is computed.
const BUDGETS: u32 = 40;
/// Maximum number of rows of the front in a table; the chart shows all.
const FRONT_ROWS: usize = 14;
/// Digits of a price, which a flag gives.
const PRICE_DIGITS: usize = 6;

/// The plan: the best splits for each goal, their dependence on prices, and the front.
/// `machines` are evaluated first, each with a title.
pub(super) fn report(
    planner: &Planner,
    machines: &[(String, Split)],
    goals: &[Goal],
    notices: &[String],
) -> Result<Report, String> {
    let mut report = Report { title: "What to buy".to_owned(), facts: facts(planner), ..Report::default() };
    report.facts.extend(notices.iter().map(|notice| ("notice".to_owned(), notice.clone())));
    for (title, machine) in machines {
        let mut rows = table(title, "levels");
        let alone = planner.split(machine.dram_bytes, 0.0);
        if machine.flash_bytes > 0.0 {
            add(&mut rows, "DRAM and flash", Some(machine));
        }
        add(&mut rows, "DRAM alone", alone.as_ref());
        report.parts.push(Part::Table(rows));
    }
    for goal in goals {
        report.parts.push(Part::Table(answers(planner, *goal)));
        report.parts.push(Part::Text(verdict(planner, *goal)));
        report.parts.push(Part::Table(sensitivity(planner, *goal)?));
    }
    let front = frontier(planner, BUDGETS);
    report.parts.push(Part::Table(front_table(&front)));
    report.parts.push(Part::Chart(front_chart(&front)));
    Ok(report)
}

/// The inputs of the plan.
fn facts(planner: &Planner) -> Vec<(String, String)> {
    let (model, curve) = (planner.model(), planner.curve());
    let Model { prices, latencies, overheads, limits, .. } = model;
    let mut facts = vec![
        ("popularity", format!("{}; {}", curve.source, curve.method)),
        ("footprint", size(curve.footprint() as f64)),
        ("mean item", format!("{} bytes of key and value", rounded(model.item_bytes, 3))),
        (
            "prices",
            format!(
                "DRAM {} per GiB, flash {} per GiB",
                rounded(prices.dram_per_gb, PRICE_DIGITS),
                rounded(prices.flash_per_gb, PRICE_DIGITS)
            ),
        ),
        (
            "latencies",
            format!(
                "network {} us one way, DRAM {} us, flash {} us, back end {} us",
                rounded(latencies.network_us, 3),
                rounded(latencies.dram_us, 3),
                rounded(latencies.flash_us, 3),
                rounded(latencies.backend_us, 3)
            ),
        ),
        (
            "overheads",
            format!(
                "{} bytes per item in DRAM; per item on flash {} bytes of flash, {} of DRAM",
                rounded(overheads.dram_item_bytes, 3),
                rounded(overheads.flash_item_bytes, 3),
                rounded(overheads.flash_index_bytes, 3)
            ),
        ),
    ];
    if limits.dram_bytes_min > 0.0 || limits.dram_bytes_max.is_finite() || limits.flash_bytes_max.is_finite()
    {
        let up_to = |bytes: f64| if bytes.is_finite() { size(bytes) } else { "any amount".to_owned() };
        let (least, most) = (size(limits.dram_bytes_min), up_to(limits.dram_bytes_max));
        facts.push(("limits", format!("DRAM {least} to {most}, flash to {}", up_to(limits.flash_bytes_max))));
    }
    if model.compress_ratio > 1.0 {
        let ratio = rounded(model.compress_ratio, 3);
        facts.push((
            "compression",
            format!("items are {ratio} times shorter in nine tenths of the DRAM, at best"),
        ));
    }
    if let Some(steps) = model.steps {
        facts.push(("steps", format!("DRAM {}, flash {}", size(steps.dram_bytes), size(steps.flash_bytes))));
    }
    facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The columns of a split.
pub(super) const COLUMNS: [&str; 6] =
    ["DRAM bytes", "flash bytes", "DRAM hits %", "all hits %", "cost", "latency us"];

/// The cells of a split, with this many digits of its cost and latency.
pub(super) fn cells(split: &Split, digits: usize) -> Vec<Cell> {
    vec![
        Cell::Bytes(split.dram_bytes),
        Cell::Bytes(split.flash_bytes),
        Cell::Number(split.hit_ratio_dram * 100.0, 2),
        Cell::Number(split.hit_ratio * 100.0, 2),
        Cell::Rounded(split.cost, digits),
        Cell::Rounded(split.latency_us, digits),
    ]
}

/// What a flag gives, without groups of digits, because programs look tables up by their titles.
fn given(amount: f64) -> f64 {
    (amount * 1e6).round() / 1e6
}

/// The title of the table that answers a goal.
fn named(goal: Goal) -> String {
    match goal {
        Goal::Sla(us) => format!("Cheapest at a mean latency of at most {} us", given(us)),
        Goal::Budget(budget) => format!("Fastest for at most {}", given(budget)),
    }
}

fn table(title: &str, first: &str) -> Table {
    let columns: Vec<&str> = std::iter::once(first).chain(COLUMNS).collect();
    Table::new(title, &columns)
}

fn add(table: &mut Table, name: &str, split: Option<&Split>) {
    let mut row = vec![Cell::Text(name.to_owned())];
    match split {
        Some(split) => row.extend(cells(split, 3)),
        None => row.extend([const { Cell::Empty }; COLUMNS.len()]),
    }
    table.row(row);
}

fn answers(planner: &Planner, goal: Goal) -> Table {
    let mut answers = table(&named(goal), "levels");
    add(&mut answers, "DRAM and flash", planner.best(goal).as_ref());
    add(&mut answers, "DRAM alone", planner.best_of_memory_alone(goal).as_ref());
    answers
}

fn verdict(planner: &Planner, goal: Goal) -> String {
    match (planner.best(goal), planner.best_of_memory_alone(goal)) {
        (None, _) => {
            let limits = planner.model().limits;
            let least = planner.best(Goal::Budget(f64::MAX)).map_or(f64::INFINITY, |split| split.latency_us);
            let bounded = if limits.dram_bytes_max.is_finite() || limits.flash_bytes_max.is_finite() {
                " within the limits"
            } else {
                ""
            };
            match goal {
                Goal::Sla(_) => {
                    format!("This cannot be reached: the least latency{bounded} is {} us.", rounded(least, 3))
                }
                Goal::Budget(_) => {
                    "This cannot be reached: the least that must be bought costs more.".to_owned()
                }
            }
        }
        (Some(_), None) => "DRAM alone cannot reach this within the limits.".to_owned(),
        (Some(both), Some(alone)) if both == alone => "Flash brings nothing here.".to_owned(),
        (Some(both), Some(alone)) => match goal {
            Goal::Sla(_) => format!("DRAM alone costs {} times as much.", rounded(alone.cost / both.cost, 3)),
            Goal::Budget(_) => {
                format!("DRAM alone takes {} times as long.", rounded(alone.latency_us / both.latency_us, 3))
            }
        },
    }
}

fn sensitivity(planner: &Planner, goal: Goal) -> Result<Table, String> {
    let title = format!("Were prices other: {}", named(goal).to_lowercase());
    let mut rows = table(&title, "prices");
    let model = planner.model();
    for (name, dram, flash) in [
        ("DRAM x 0.5", 0.5, 1.0),
        ("as given", 1.0, 1.0),
        ("DRAM x 2", 2.0, 1.0),
        ("flash x 0.5", 1.0, 0.5),
        ("flash x 2", 1.0, 2.0),
    ] {
        let prices = Prices {
            dram_per_gb: model.prices.dram_per_gb * dram,
            flash_per_gb: model.prices.flash_per_gb * flash,
        };
        let other = Planner::new(Model { prices, ..*model }, planner.curve())?;
        add(&mut rows, name, other.best(goal).as_ref());
    }
    Ok(rows)
}

fn front_table(front: &Frontier) -> Table {
    let mut rows = table("Pareto front: nothing is both cheaper and faster", "levels");
    for (name, splits) in [("DRAM and flash", &front.two_levels), ("DRAM alone", &front.memory_alone)] {
        let every = splits.len().div_ceil(FRONT_ROWS).max(1);
        for split in splits.iter().step_by(every) {
            add(&mut rows, name, Some(split));
        }
    }
    rows
}

fn front_chart(front: &Frontier) -> Chart {
    let mut chart = Chart::new("Cost and latency", "cost", "mean latency, us");
    chart.x.scale = Scale::Log;
    chart.y.scale = Scale::Log;
    for (name, splits) in [("DRAM and flash", &front.two_levels), ("DRAM alone", &front.memory_alone)] {
        chart.line(name, splits.iter().map(|split| (split.cost, split.latency_us)).collect());
    }
    chart
}
