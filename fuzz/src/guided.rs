//! The same targets, guided by coverage: a libFuzzer binary. `run.sh` builds it and explains how to call it.
//!
//! `LARDER_FUZZ_TARGET` names the target. With `LARDER_FUZZ_WRITE_SEEDS` it writes the initial inputs to that folder
//! and ends.
#![no_main]

use larder_fuzz::{Bench, Target, seeds};
use libfuzzer_sys::fuzz_target;
use std::sync::{Mutex, OnceLock};

static SESSION: OnceLock<(Target, Mutex<Bench>)> = OnceLock::new();

fn begin() -> (Target, Mutex<Bench>) {
    let name = std::env::var("LARDER_FUZZ_TARGET").unwrap_or_default();
    let Some(target) = Target::named(&name) else {
        eprintln!("LARDER_FUZZ_TARGET={name} is no target");
        std::process::exit(2);
    };
    if let Some(folder) = std::env::var_os("LARDER_FUZZ_WRITE_SEEDS") {
        let written = seeds::write(target, folder.as_ref());
        std::process::exit(i32::from(written.is_err()));
    }
    // A panic ends on the thread of [`Bench`], so libFuzzer must be told of it here.
    std::panic::set_hook(Box::new(|_| {}));
    (target, Mutex::new(Bench::start()))
}

fuzz_target!(|input: &[u8]| {
    let (target, bench) = SESSION.get_or_init(begin);
    let result = bench.lock().map_err(|error| error.to_string()).and_then(|bench| bench.run(*target, input));
    if let Err(error) = result {
        eprintln!("FAIL {}: {error}", target.name());
        std::process::abort();
    }
});
