//! Fuzzes without a coverage tool: mutates inputs from the transcripts at random for some seconds, or runs the inputs
//! in given files.

use larder_fuzz::mutate::{Rng, mutate};
use larder_fuzz::{Bench, Target, seeds};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const USAGE: &str = "usage: larder-fuzz [--seconds N] [--seed N] \
                     [--target parser|dispatcher|structured|binary|resp|compressed] [FILE ...]";

#[derive(Default)]
struct Arguments {
    seconds: u64,
    seed: u64,
    targets: Vec<Target>,
    files: Vec<PathBuf>,
}

fn arguments() -> Result<Arguments, String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_nanos() as u64);
    let mut found = Arguments { seconds: 20, seed: now, ..Arguments::default() };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} wants a value"));
        let number = |text: String| text.parse::<u64>().map_err(|_| format!("{text} is no number"));
        match word.as_str() {
            "--seconds" => found.seconds = number(value()?)?,
            "--seed" => found.seed = number(value()?)?,
            "--target" => {
                let name = value()?;
                found.targets.push(Target::named(&name).ok_or(format!("there is no target {name}"))?);
            }
            _ if word.starts_with('-') => return Err(USAGE.to_owned()),
            _ => found.files.push(word.into()),
        }
    }
    if found.targets.is_empty() {
        found.targets = Target::ALL.to_vec();
    }
    Ok(found)
}

/// Runs inputs until the time is over. Returns their number, or the first failing input with its error.
fn fuzz(bench: &Bench, target: Target, seconds: f64, seed: u64) -> Result<u64, (Vec<u8>, String)> {
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    let mut rng = Rng(seed);
    let seeds = seeds::of(target);
    let mut count = 0;
    for seed in &seeds {
        bench.run(target, seed).map_err(|error| (seed.clone(), error))?;
        count += 1;
    }
    while Instant::now() < until {
        let mut input = seeds[rng.below(seeds.len())].clone();
        if target == Target::Structured {
            input = (0..20 + rng.below(1500)).map(|_| rng.random() as u8).collect();
        }
        let other = rng.below(seeds.len());
        mutate(&mut input, &seeds[other], &mut rng);
        bench.run(target, &input).map_err(|error| (input, error))?;
        count += 1;
    }
    Ok(count)
}

/// Removes pieces from a failing input as long as it still fails.
fn shrink(bench: &Bench, target: Target, mut input: Vec<u8>) -> Vec<u8> {
    let until = Instant::now() + Duration::from_secs(5);
    let mut piece = input.len() / 2;
    while piece > 0 {
        let mut at = 0;
        while at < input.len() && Instant::now() < until {
            let mut shorter = input.clone();
            shorter.drain(at..(at + piece).min(input.len()));
            if bench.run(target, &shorter).is_err() { input = shorter } else { at += piece }
        }
        piece /= 2;
    }
    input
}

fn save(target: Target, input: &[u8]) -> std::io::Result<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("failures");
    std::fs::create_dir_all(&folder)?;
    let number = input
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum: u64, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    let path = folder.join(format!("{}-{number:016x}", target.name()));
    std::fs::write(&path, input)?;
    Ok(path)
}

fn replay(bench: &Bench, targets: &[Target], files: &[PathBuf]) -> Result<(u64, u64), String> {
    let (mut passed, mut failed) = (0, 0);
    for file in files {
        let input =
            std::fs::read(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
        let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        for &target in targets {
            // The name of a saved input starts with its target.
            if Target::ALL.iter().any(|other| *other != target && name.starts_with(other.name())) {
                continue;
            }
            match bench.run(target, &input) {
                Ok(()) => passed += 1,
                Err(error) => {
                    failed += 1;
                    println!("FAIL {} {}: {error}", target.name(), file.display());
                }
            }
        }
    }
    Ok((passed, failed))
}

fn run() -> Result<u64, String> {
    let arguments = arguments()?;
    let bench = Bench::start();
    let (mut passed, mut failed) = (0, 0);
    if arguments.files.is_empty() {
        std::panic::set_hook(Box::new(|_| {}));
        println!("--seed {}", arguments.seed);
        for &target in &arguments.targets {
            let seconds = arguments.seconds as f64 / arguments.targets.len() as f64;
            match fuzz(&bench, target, seconds, arguments.seed) {
                Ok(count) => {
                    passed += 1;
                    println!("{}: {count} inputs", target.name());
                }
                Err((input, _)) => {
                    failed += 1;
                    let input = shrink(&bench, target, input);
                    let error = bench.run(target, &input).err().unwrap_or_default();
                    let path =
                        save(target, &input).map_err(|error| format!("cannot save the input: {error}"))?;
                    println!("FAIL {}: {error}\n  {}", target.name(), input.escape_ascii());
                    println!("  again: cargo run --profile test -p larder-fuzz -- {}", path.display());
                }
            }
        }
    } else {
        (passed, failed) = replay(&bench, &arguments.targets, &arguments.files)?;
    }
    println!("{passed} passed, {failed} failed");
    Ok(failed)
}

fn main() -> ExitCode {
    match run() {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
