//! Instruction counts of the hot paths: they reveal small increases in cost that timings on a noisy machine would
//! hide.
//!
//! The benchmark needs valgrind and the runner; see `README.md` in this folder. Each figure is for 16 operations on a
//! small, warm cache that is the same in every run, so the same build gives the same count.
#![allow(missing_docs, reason = "the benchmark macros make items that have none")]

mod support;

use gungraun::{library_benchmark, library_benchmark_group, main};
use larder_cache::Worker;
use larder_protocol::{ParseOptions, Step, compose, parse};
use std::hint::black_box;
use support::{Batch, KeyPool};

/// Operations per figure.
const OPS: usize = 16;
const ITEMS: u64 = 4096;
const VALUE_BYTES: usize = 32;

/// A small cache and the keys to request from it.
struct Bench {
    worker: Worker,
    pool: &'static KeyPool,
    room: Batch<'static>,
}

/// A cache of `ITEMS` items. The keys of the pool are resident and so warm that a hit writes nothing.
fn resident() -> Bench {
    let cache = support::cache(64 << 20, 1, Some(10));
    let mut worker = cache.worker();
    support::fill(&mut worker, 0..ITEMS, VALUE_BYTES);
    let pool = pool((0..OPS as u64).map(|number| number * 97));
    let mut room = Batch::new();
    for _ in 0..4 {
        black_box(room.get(&worker, pool, 0, OPS));
    }
    worker.quiesce();
    Bench { worker, pool, room }
}

/// A pool of the keys of `numbers`, kept until the process ends.
fn pool(numbers: impl Iterator<Item = u64>) -> &'static KeyPool {
    Box::leak(Box::new(KeyPool::new(numbers)))
}

/// Like `resident`, but the keys of the pool are absent.
fn absent() -> Bench {
    Bench { pool: pool((0..OPS as u64).map(|number| ITEMS + number)), ..resident() }
}

/// A pipeline of `OPS` requests, each made from its number.
fn pipeline(request: fn(u64) -> Vec<u8>) -> Vec<u8> {
    (0..OPS as u64).flat_map(request).collect()
}

fn gets() -> Vec<u8> {
    pipeline(|number| [b"get ", &support::key_of(number)[..], b"\r\n"].concat())
}

fn sets() -> Vec<u8> {
    pipeline(|number| {
        [b"set ", &support::key_of(number)[..], b" 0 0 32\r\n", &[b'v'; VALUE_BYTES], b"\r\n"].concat()
    })
}

fn room_for_replies() -> Vec<u8> {
    Vec::with_capacity(4096)
}

fn parse_all(input: &[u8]) {
    let options = ParseOptions::default();
    let mut rest = input;
    while !rest.is_empty() {
        let Step::Request { request, consumed } = parse(rest, &options) else {
            panic!("a request is refused")
        };
        black_box(&request);
        rest = &rest[consumed..];
    }
}

#[library_benchmark]
#[bench::of_16(setup = gets)]
fn parse_get(input: Vec<u8>) -> Vec<u8> {
    parse_all(black_box(&input));
    input
}

#[library_benchmark]
#[bench::of_16(setup = sets)]
fn parse_set(input: Vec<u8>) -> Vec<u8> {
    parse_all(black_box(&input));
    input
}

#[library_benchmark]
#[bench::of_16(setup = resident)]
fn get_hit_staged(mut bench: Bench) -> Bench {
    black_box(bench.room.get(&bench.worker, bench.pool, 0, OPS));
    bench.worker.quiesce();
    bench
}

#[library_benchmark]
#[bench::of_16(setup = resident)]
fn get_hit_single(bench: Bench) -> Bench {
    for at in 0..OPS {
        let hash = bench.worker.cache().hash(bench.pool.key(at));
        black_box(bench.worker.get(hash, bench.pool.key(at)).is_some());
    }
    bench
}

fn set_all(mut bench: Bench) -> Bench {
    for at in 0..OPS {
        let hash = bench.worker.cache().hash(bench.pool.key(at));
        support::set(&mut bench.worker, hash, bench.pool.key(at), black_box(&[b'w'; VALUE_BYTES]));
    }
    bench
}

#[library_benchmark]
#[bench::of_16(setup = absent)]
fn set_new(bench: Bench) -> Bench {
    set_all(bench)
}

#[library_benchmark]
#[bench::of_16(setup = resident)]
fn set_over(bench: Bench) -> Bench {
    set_all(bench)
}

#[library_benchmark]
#[bench::of_16(setup = resident)]
fn delete(mut bench: Bench) -> Bench {
    for at in 0..OPS {
        let hash = bench.worker.cache().hash(bench.pool.key(at));
        black_box(support::delete(&mut bench.worker, hash, bench.pool.key(at)));
    }
    bench
}

#[library_benchmark]
#[bench::of_16(setup = room_for_replies)]
fn compose_value(mut out: Vec<u8>) -> Vec<u8> {
    for number in 0..OPS as u64 {
        compose::value(
            &mut out,
            black_box(&support::key_of(number)),
            0,
            black_box(&[b'v'; VALUE_BYTES]),
            None,
        );
    }
    out
}

library_benchmark_group!(name = protocol, benchmarks = [parse_get, parse_set, compose_value]);
library_benchmark_group!(
    name = cache,
    benchmarks = [get_hit_staged, get_hit_single, set_new, set_over, delete]
);

main!(library_benchmark_groups = [protocol, cache]);
