//! Items that expire beside items that live on: the share of the memory that the dead take, and what is evicted.

use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::figures::{Curve, Figure, TrialFigures};
use super::stage::Stage;
use crate::exchange::{Exchange, STORE_DEPTH};
use crate::procfs::CpuMeter;
use crate::rng::{Rng, mix};
use crate::servers::Process;

/// The stream of items comes in 10 parts a second.
const TICKS_PER_S: u32 = 10;
/// Seconds between two points of the curve.
const SAMPLE_S: u32 = 5;
/// Keys asked for at each point.
const SAMPLE_KEYS: u32 = 2_000;
/// A key that expires this soon is not asked for, because servers' clocks have whole seconds.
const MARGIN_S: f64 = 1.5;

/// Items that never expire, then a stream of items with times to live of 1 s to `ttl_s_max`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Expiring {
    permanent: u32,
    per_s: u32,
    ttl_s_max: u32,
    seconds: u32,
}

impl Expiring {
    /// Of 64 MiB times `scale`, two thirds are alive in the long run. A short run at a small scale lives faster.
    pub(crate) fn new(scale: f64) -> Self {
        let faster = (1.0 / scale).clamp(1.0, 6.0);
        Self {
            permanent: (42_000.0 * scale) as u32,
            per_s: (1_400.0 * scale * faster) as u32,
            ttl_s_max: (60.0 / faster) as u32,
            seconds: (180.0 / faster) as u32,
        }
    }

    /// The time to live in seconds of a key of the stream.
    fn ttl_s(&self, id: u32) -> u32 {
        1 + (mix(u64::from(id)) % u64::from(self.ttl_s_max)) as u32
    }
}

/// Stores the stream and looks at the server every few seconds.
pub(crate) fn run(trial: &Expiring, stage: &Stage<'_>) -> Result<(TrialFigures, Process)> {
    let process = (stage.start)()?;
    let mut exchange = stage.visit(&process)?;
    store(&mut exchange, 0..trial.permanent, |_| 0)?;
    let (began, mut meter) = (Instant::now(), CpuMeter::new(process.pid())?);
    // The time of storing of each key of the stream, in seconds.
    let mut stored_s: Vec<f64> = Vec::new();
    let mut points = Vec::new();
    let (per_tick, mut rng) = (trial.per_s / TICKS_PER_S, Rng::new(1));
    for tick in 0..trial.seconds * TICKS_PER_S {
        let due = Duration::from_secs_f64(f64::from(tick) / f64::from(TICKS_PER_S));
        std::thread::sleep(due.saturating_sub(began.elapsed()));
        let first = trial.permanent + stored_s.len() as u32;
        store(&mut exchange, first..first + per_tick, |id| trial.ttl_s(id))?;
        let now_s = began.elapsed().as_secs_f64();
        stored_s.extend(std::iter::repeat_n(now_s, per_tick as usize));
        if (tick + 1).is_multiple_of(SAMPLE_S * TICKS_PER_S) {
            let live = Live { trial, stored_s: &stored_s, now_s: began.elapsed().as_secs_f64() };
            points.push((now_s, 100.0 * live.expired_share(&mut exchange, &mut rng)?));
        }
    }
    let server_s = meter.sample()?.as_secs_f64();
    let live = Live { trial, stored_s: &stored_s, now_s: began.elapsed().as_secs_f64() };
    let kept = |ids: Vec<u32>, exchange: &mut Exchange<'_>| -> Result<f64> {
        Ok(100.0 * held(exchange, &ids)? as f64 / ids.len().max(1) as f64)
    };
    let permanent = kept((0..trial.permanent).collect(), &mut exchange)?;
    let passing = kept(live.passing(MARGIN_S), &mut exchange)?;
    let share =
        |points: &[(f64, f64)]| points.iter().map(|(_, share)| share).sum::<f64>() / points.len() as f64;
    let figures = TrialFigures {
        requests: u64::from(trial.permanent) + stored_s.len() as u64,
        figures: vec![
            Figure::new("kept % of those for ever", Some(permanent), 2),
            Figure::new("kept % of those not yet expired", Some(passing), 2),
            Figure::new("expired % of items, second half", Some(share(&points[points.len() / 2..])), 1),
            Figure::new("server CPU of the stream, s", Some(server_s), 2),
        ],
        curves: vec![Curve { name: "expired %", x: "seconds", points }],
        notes: exchange
            .stats("stats")?
            .remove("expired_bytes")
            .map_or(Vec::new(), |bytes| vec![format!("says itself that {bytes} bytes have expired")]),
    };
    Ok((figures, process))
}

/// What is alive at a moment.
struct Live<'a> {
    trial: &'a Expiring,
    stored_s: &'a [f64],
    now_s: f64,
}

impl Live<'_> {
    /// The keys of the stream that live on for longer than `margin_s`.
    fn passing(&self, margin_s: f64) -> Vec<u32> {
        let ids = (self.trial.permanent..).zip(self.stored_s);
        ids.filter(|(id, stored_s)| *stored_s + f64::from(self.trial.ttl_s(*id)) > self.now_s + margin_s)
            .map(|(id, _)| id)
            .collect()
    }

    /// The share of the items in the server that have expired: all that it counts, less those that live. How many
    /// live is estimated from a sample, without hits that would change what is evicted.
    fn expired_share(&self, exchange: &mut Exchange<'_>, rng: &mut Rng) -> Result<f64> {
        let sure: Vec<u32> = (0..self.trial.permanent).chain(self.passing(MARGIN_S)).collect();
        let sample: Vec<u32> =
            (0..SAMPLE_KEYS).map(|_| sure[rng.below(sure.len() as u32) as usize]).collect();
        let mut found = 0;
        for batch in sample.chunks(STORE_DEPTH) {
            found += exchange.peek(batch)?;
        }
        let alive = f64::from(self.trial.permanent) + self.passing(0.0).len() as f64;
        let alive = alive * found as f64 / f64::from(SAMPLE_KEYS);
        Ok((1.0 - alive / exchange.items()?.max(1) as f64).max(0.0))
    }
}

fn store(exchange: &mut Exchange<'_>, ids: Range<u32>, ttl_s: impl Fn(u32) -> u32) -> Result<()> {
    let ids: Vec<u32> = ids.collect();
    for batch in ids.chunks(STORE_DEPTH) {
        let refused = exchange.set_for(batch, &ttl_s)?;
        if refused > 0 {
            bail!("{refused} of {} SETs refused", batch.len());
        }
    }
    Ok(())
}

/// How many of the keys a GET finds.
fn held(exchange: &mut Exchange<'_>, ids: &[u32]) -> Result<u64> {
    let mut hits = 0;
    for batch in ids.chunks(STORE_DEPTH) {
        hits += exchange.get(batch, &mut Vec::new())?;
    }
    Ok(hits)
}

/// Items that never expire, items that do, a pause in which they do, and new items that never expire.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Kept {
    first: u32,
    passing: u32,
    new: u32,
}

/// Time to live of the passing items in seconds, and the pause after them.
const KEPT: (u32, Duration) = (2, Duration::from_millis(3_500));

impl Kept {
    /// What lives always fits in 64 MiB times `scale`.
    pub(crate) fn new(scale: f64) -> Self {
        let items = |full: f64| (full * scale) as u32;
        Self { first: items(50_000.0), passing: items(70_000.0), new: items(70_000.0) }
    }
}

/// Stores and looks what is left.
pub(crate) fn run_kept(kept: &Kept, stage: &Stage<'_>) -> Result<(TrialFigures, Process)> {
    let process = (stage.start)()?;
    let mut exchange = stage.visit(&process)?;
    let (second, third) = (kept.first + kept.passing, kept.first + kept.passing + kept.new);
    store(&mut exchange, 0..kept.first, |_| 0)?;
    store(&mut exchange, kept.first..second, |_| KEPT.0)?;
    std::thread::sleep(KEPT.1);
    store(&mut exchange, second..third, |_| 0)?;
    let first = held(&mut exchange, &(0..kept.first).collect::<Vec<_>>())? as f64;
    let new = held(&mut exchange, &(second..third).collect::<Vec<_>>())? as f64;
    let (of_first, of_new) = (f64::from(kept.first.max(1)), f64::from(kept.new.max(1)));
    let figures = TrialFigures {
        requests: u64::from(third),
        figures: vec![
            Figure::new("first ones left", Some(first), 0),
            Figure::new("new ones left", Some(new), 0),
            Figure::new("kept % of the living", Some(100.0 * (first + new) / (of_first + of_new)), 2),
        ],
        ..TrialFigures::default()
    };
    Ok((figures, process))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_to_live_are_even_and_a_key_dies_when_its_time_is_over() {
        let trial = Expiring { permanent: 10, per_s: 100, ttl_s_max: 4, seconds: 10 };
        let mut counts = [0; 5];
        (10..4_010).for_each(|id| counts[trial.ttl_s(id) as usize] += 1);
        assert!(counts[0] == 0 && counts[1..].iter().all(|count| (850..1_150).contains(count)), "{counts:?}");
        let stored_s = vec![0.0; 400];
        let alive = |now_s| Live { trial: &trial, stored_s: &stored_s, now_s }.passing(0.0).len();
        assert_eq!((alive(0.5), alive(4.0)), (400, 0));
        assert!((60..140).contains(&alive(3.5)), "{}", alive(3.5));
    }

    #[test]
    fn a_small_trial_lives_faster_with_the_same_share_alive() {
        for scale in [1.0, 0.5, 0.125] {
            let trial = Expiring::new(scale);
            let alive = f64::from(trial.per_s) * f64::from(trial.ttl_s_max + 1) / 2.0;
            let share = alive / f64::from(trial.permanent);
            assert!((0.9..1.15).contains(&share), "{scale}: {share}");
            assert!(trial.seconds >= 3 * trial.ttl_s_max);
        }
    }
}
