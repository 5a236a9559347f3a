//! Requests as random inputs choose them, without guidance: `run.sh` lets coverage choose.

use larder_fuzz::mutate::Rng;
use larder_fuzz::{Bench, Target};

#[test]
fn replies_are_those_of_the_slow_twins() {
    let bench = Bench::start();
    for seed in 0..200 {
        let mut rng = Rng(seed);
        let input: Vec<u8> = (0..2000).map(|_| rng.random() as u8).collect();
        for target in [Target::Binary, Target::Resp] {
            bench.run(target, &input).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
        }
    }
}
