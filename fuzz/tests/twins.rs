//! Requests as random inputs choose them, without guidance: `run.sh` lets coverage choose.

use larder_fuzz::mutate::Rng;
use larder_fuzz::{Bench, Target};

#[test]
fn replies_are_those_of_the_slow_twins() {
    let bench = Bench::start();
    for seed in 0..200 {
        let mut rng = Rng(seed);
        let input: Vec<u8> = (0..2000).map(|_| rng.random() as u8).collect();
        for target in [Target::Binary, Target::Resp, Target::Compressed] {
            bench.run(target, &input).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
        }
    }
}

/// The dispatcher closes, or takes the rest of what has come: it does not go on with nothing to do.
#[test]
fn a_line_too_long_behind_a_watch_is_thrown_away() {
    let line = b"0123456789abcdef ".repeat(140);
    let input = [&[3, 1, 0, 2], &b"watch fetchers\r\n"[..], &line].concat();
    Bench::start().run(Target::Dispatcher, &input).unwrap_or_else(|wrong| panic!("{wrong}"));
}
