//! `larder plan --server`: the plan for the traffic of a running server.

use larder_sim::live::{Live, LiveError, LiveSizing, Stats};
use larder_sim::plan::{Goal, Planner, Split};
use larder_sim::replay::Server;
use larder_sim::report::{grouped, rounded, size};

use super::{FLASH_US, Failure, PlanArgs, show};

/// How much slower than now a plan may be that is to be as fast as now: half a percent.
const AS_FAST: f64 = 1.005;

impl From<LiveError> for Failure {
    fn from(error: LiveError) -> Failure {
        match error {
            LiveError::Unreachable(what) => Failure::Unreachable(what),
            LiveError::Refused(what) | LiveError::Young(what) => Failure::Failed(what),
        }
    }
}

/// Asks the server for its curve, and plans with what it measured where no flag says otherwise.
pub(super) fn run(args: &PlanArgs, address: &str) -> Result<(), Failure> {
    let mut live = Live::connect(&Server::parse(address).map_err(Failure::Unreachable)?)?;
    let sizing = live.sizing()?;
    let latency = live.stats("latency")?;
    let flash = if sizing.flash_bytes > 0.0 { live.stats("flash")? } else { Stats::default() };
    if sizing.curve.item_bytes_mean <= 0.0 {
        return Err(Failure::Failed(format!("{address} holds no items, so nothing can be planned")));
    }
    let mut model = args.model_of(&sizing.curve)?;
    if args.dram_latency.is_none() && sizing.answer_us > 0.0 {
        model.latencies.dram_us = sizing.answer_us;
    }
    if args.flash_latency.is_none() {
        model.latencies.flash_us = latency.number("flash_fetch:mean_us").unwrap_or(FLASH_US);
    }
    if args.dram_overhead.is_none() {
        model.overheads.dram_item_bytes = sizing.overhead_bytes();
    }
    let planner = Planner::new(model, &sizing.curve).map_err(Failure::Usage)?;
    let now = planner.split(sizing.limit_bytes, sizing.flash_bytes);
    let mut machines: Vec<_> =
        now.map(|now| ("What the server has now, by the model".to_owned(), now)).into_iter().collect();
    machines.extend(args.machine(&planner)?);
    let mut goals: Vec<Goal> = args.sla.map(Goal::Sla).into_iter().collect();
    goals.extend(args.budget.map(Goal::Budget));
    goals.extend(args.target);
    if goals.is_empty() && args.dram.is_none() {
        goals.extend(now.map(|now| Goal::Sla((now.latency_us * AS_FAST).ceil())));
    }
    let mut notices = notices(&sizing, &flash, now.as_ref());
    notices.extend(of_namespaces(&mut live)?);
    args.output.deliver(&show::report(&planner, &machines, &goals, &notices).map_err(Failure::Failed)?)
}

/// What each namespace that has a curve would miss with more memory and less.
fn of_namespaces(live: &mut Live) -> Result<Vec<String>, LiveError> {
    let namespaces = live.stats("namespaces")?;
    let mut notices = Vec::new();
    for name in namespaces.rows().filter_map(|(row, _)| row.strip_suffix(":gets")) {
        // One that is gone by now is refused.
        let Ok(stats) = live.stats(&format!("mrc {name}")) else { continue };
        if stats.text("state") == Some("ready") {
            let missed = |times: &str| {
                let ratio = stats.number(&format!("{times}:miss_ratio")).unwrap_or(1.0);
                format!("{times} {}", percent(ratio))
            };
            notices.push(format!(
                "namespace {name}: its items take {}; reads that would miss with multiples of that: {}",
                size(stats.number("item_bytes").unwrap_or(0.0)),
                ["0.5x", "1x", "2x", "4x"].map(missed).join(", ")
            ));
        }
    }
    Ok(notices)
}

fn percent(ratio: f64) -> String {
    format!("{:.1} %", ratio * 100.0)
}

/// What a reader should know of the figures.
fn notices(sizing: &LiveSizing, flash: &Stats, now: Option<&Split>) -> Vec<String> {
    let mut notices = vec![format!(
        "the server has {} of memory, in which {} of items fit; its sample reaches to {} of items, and beyond that the \
         curve is taken to be flat",
        size(sizing.limit_bytes),
        size(sizing.capacity_bytes),
        size(sizing.span_bytes)
    )];
    if let Some(now) = now {
        notices.push(format!(
            "the model (LRU) expects {} misses of what the server has now; since its start {} of the reads missed",
            percent(1.0 - now.hit_ratio),
            percent(sizing.miss_ratio_since_start)
        ));
    }
    if !sizing.knows_penalties {
        notices.push(
            "the server has not measured what a miss costs, and takes it to be 100 ms: give --backend-latency"
                .to_owned(),
        );
    }
    let number = |name| flash.number(name).unwrap_or(0.0);
    if sizing.flash_bytes > 0.0 {
        notices.push(format!(
            "flash: {} of {} lookups on it hit; {} bytes written for each byte admitted, {} reads for a hit",
            grouped(number("hits") as u64),
            grouped((number("hits") + number("misses")) as u64),
            flash.number("alwa").map_or("-".to_owned(), |ratio| rounded(ratio, 3)),
            flash.number("reads_per_hit").map_or("-".to_owned(), |ratio| rounded(ratio, 3)),
        ));
    }
    notices
}
