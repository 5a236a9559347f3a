//! Cuts the power some thousand times, at random pages, erasures and syncs, in random histories of a tier. The devices
//! lose, keep or tear the writes that were not synced. After each cut, a lookup must find nothing or a whole value
//! that was put under that key. In the modes `clean` and `journal` the value must not be older than a change that was
//! acknowledged.
//!
//! Every history follows from a seed, which a failure prints. `LARDER_CRASH_SEED` runs that seed alone.
//! `LARDER_CRASH_POINTS` sets the number of cuts.

use crate::support::history::{History, Setup, Tally};
use larder_flash::Recover;
use larder_flash::device::Device;
use larder_laboratory::ssd::{Profile, SimSsd, ZoneLayout};
use larder_laboratory::{CutDevice, Dice, Flavour};

use std::sync::Arc;

/// Number of times a tier is opened on one device. Each time but the last ends with a cut of the power.
const LIVES: u64 = 6;

fn environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// A device whose power can be cut.
#[derive(Clone)]
enum Machine {
    Cut(CutDevice),
    /// The simulated SSD, with word lines, torn programs, half-erased blocks and bad blocks.
    Ssd(SimSsd),
}

impl Machine {
    fn random(dice: &mut Dice, ssd: bool) -> (Machine, String) {
        let zone_pages = [8, 16, 24][dice.below(3) as usize];
        if ssd {
            // No bad blocks: the meta log has fixed zones, and a bad block there is an error.
            let profile =
                Profile { blocks: 6, pages: zone_pages, factory_bad_per_mille: 0, ..Profile::test_tiny() };
            let cache_bytes = [0, 16 << 10, 1 << 20][dice.below(3) as usize];
            let layout = ZoneLayout { luns_per_zone: 1, cache_bytes };
            let name = format!("SSD, {zone_pages} pages a block, cache of {cache_bytes} bytes");
            return (Machine::Ssd(SimSsd::with_layout(profile, layout, dice.next_u64())), name);
        }
        let flavour = [Flavour::Zoned, Flavour::Punched, Flavour::NeverErased][dice.below(3) as usize];
        let zones = 12 + dice.below(20) as u32;
        (Machine::Cut(CutDevice::new(flavour, zones, zone_pages as u64)), format!("{flavour:?}"))
    }

    fn device(&self) -> Arc<dyn Device> {
        match self {
            Machine::Cut(device) => Arc::new(device.clone()),
            Machine::Ssd(ssd) => ssd.device(),
        }
    }

    fn cut_after(&self, steps: u64) {
        match self {
            Machine::Cut(device) => device.cut_after(steps),
            Machine::Ssd(ssd) => ssd.cut_power_after(steps),
        }
    }

    fn is_gone(&self) -> bool {
        match self {
            Machine::Cut(device) => device.is_gone(),
            Machine::Ssd(ssd) => !ssd.is_on(),
        }
    }

    /// Cuts the power, if it is not cut yet, and restores it.
    fn power_on(&self, dice: &mut Dice) {
        match self {
            Machine::Cut(device) => device.power_on(Some(dice)),
            Machine::Ssd(ssd) => {
                ssd.cut_power();
                ssd.power_on();
            }
        }
    }
}

/// Runs a whole history on one device.
fn run(seed: u64, recover: Recover, ssd: bool) -> Result<Tally, String> {
    let mut dice = Dice(seed ^ (recover as u64) << 56 ^ (ssd as u64) << 48);
    let (machine, name) = Machine::random(&mut dice, ssd);
    let setup = Setup::random(&mut dice, recover);
    let context = |error: String| format!("{recover:?}, {name}, {setup:?}: {error}");
    let is_gone = {
        let machine = machine.clone();
        Arc::new(move || machine.is_gone())
    };
    let opens = {
        let machine = machine.clone();
        move || Ok(machine.device())
    };
    let mut history = History::open(opens, is_gone, setup.clone()).map_err(context)?;
    for life in 0..LIVES {
        live(&mut history, &machine, &mut dice, life + 1 == LIVES).map_err(context)?;
    }
    Ok(history.tally)
}

/// Runs steps until the power is cut, and recovers after it.
fn live(history: &mut History, machine: &Machine, dice: &mut Dice, last: bool) -> Result<(), String> {
    let steps = 50 + dice.below(600);
    if !last {
        // Mostly at any step, and sometimes soon after the start.
        machine.cut_after(if dice.chance(20) { dice.below(30) } else { dice.below(600) });
    }
    let closes_at = if dice.chance(40) { dice.below(steps) } else { steps };
    for step in 0..steps {
        history.step(dice)?;
        if step == closes_at {
            history.reopen(dice, |dice| machine.power_on(dice))?;
        }
        if machine.is_gone() && dice.chance(20) {
            break;
        }
    }
    if !last {
        history.crash(dice, |dice| machine.power_on(dice))?;
    }
    history.look_at_all()
}

/// Cuts the power `count` times in one mode. The seeds are the same every time.
fn losses(recover: Recover, ssd: bool, count: u64) -> Tally {
    let mut tally = Tally::default();
    let seeds = match environment("LARDER_CRASH_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..environment("LARDER_CRASH_POINTS").unwrap_or(count).div_ceil(LIVES - 1),
    };
    for seed in seeds {
        match run(seed, recover, ssd) {
            Ok(of) => tally.add(&of),
            Err(error) => panic!("LARDER_CRASH_SEED={seed}: {error}"),
        }
    }
    println!("{recover:?}, SSD {ssd}: {tally:?}");
    tally
}

#[test]
fn with_a_journal_nothing_acknowledged_is_undone() {
    let tally = losses(Recover::Journal, false, 3000);
    assert!(tally.hits_after_crash > tally.crashes, "what a crash leaves is found: {tally:?}");
    assert!(tally.commits > tally.crashes, "{tally:?}");
    assert!(tally.after_close * 10 >= tally.before_close * 9 && tally.before_close > 0, "{tally:?}");
}

#[test]
fn in_clean_mode_a_crash_leaves_nothing_and_a_shutdown_everything() {
    let tally = losses(Recover::Clean, false, 2000);
    assert_eq!(tally.hits_after_crash, 0);
    assert!(tally.after_close * 10 >= tally.before_close * 9 && tally.before_close > 0, "{tally:?}");
}

#[test]
fn best_effort_never_gives_a_wrong_value() {
    let tally = losses(Recover::BestEffort, false, 3500);
    assert!(tally.hits_after_crash > tally.crashes, "{tally:?}");
}

#[test]
fn on_a_simulated_ssd_with_a_journal() {
    let tally = losses(Recover::Journal, true, 2000);
    assert!(tally.hits_after_crash > tally.crashes && tally.commits > tally.crashes, "{tally:?}");
}

#[test]
fn on_a_simulated_ssd_in_clean_mode() {
    let tally = losses(Recover::Clean, true, 1000);
    assert_eq!(tally.hits_after_crash, 0);
    assert!(tally.after_close * 10 >= tally.before_close * 9 && tally.before_close > 0, "{tally:?}");
}

#[test]
fn on_a_simulated_ssd_with_best_effort() {
    let tally = losses(Recover::BestEffort, true, 3000);
    assert!(tally.hits_after_crash > tally.crashes, "{tally:?}");
}
