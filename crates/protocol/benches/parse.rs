//! Nanoseconds per request for the most frequent lines, parsed off a buffer of pipelined requests.

use std::hint::black_box;
use std::time::Instant;

use larder_protocol::{ParseOptions, Request, Step, compose, parse};

const BUFFER_BYTES: usize = 64 << 10;
const ROUNDS: usize = 200;

fn main() {
    let key = |number: usize| format!("user:{number:08}:profile:abcdefgh");
    measure("get, 30-byte key", |n| format!("get {}\r\n", key(n)));
    measure("get, 8-byte key", |n| format!("get {n:08}\r\n"));
    measure("get, 100-byte key", |n| format!("get {n:0100}\r\n"));
    measure("gets, 30-byte key", |n| format!("gets {}\r\n", key(n)));
    measure("get, 10 keys of 30 bytes", |n| {
        let keys: Vec<String> = (n..n + 10).map(key).collect();
        format!("get {}\r\n", keys.join(" "))
    });
    measure("mg, 30-byte key, v", |n| format!("mg {} v\r\n", key(n)));
    measure("mg, 30-byte key, v t f c Oabcd k q", |n| format!("mg {} v t f c Oabcd k q\r\n", key(n)));
    measure("set, 30-byte key, 100-byte value", |n| {
        format!("set {} 0 3600 100\r\n{}\r\n", key(n), "x".repeat(100))
    });
    measure("set noreply (general reader)", |n| {
        format!("set {} 0 3600 100 noreply\r\n{}\r\n", key(n), "x".repeat(100))
    });
    measure("ms, 30-byte key, 100-byte value, T", |n| {
        format!("ms {} 100 T3600\r\n{}\r\n", key(n), "x".repeat(100))
    });
    measure("delete, 30-byte key", |n| format!("delete {}\r\n", key(n)));
    measure_replies();
}

fn measure(name: &str, request: impl Fn(usize) -> String) {
    let mut buffer = String::new();
    let mut count = 0;
    while buffer.len() < BUFFER_BYTES {
        buffer += &request(count);
        count += 1;
    }
    let options = ParseOptions::default();
    let best_ns = best(|| {
        let mut rest = black_box(buffer.as_bytes());
        while !rest.is_empty() {
            let consumed = match parse(rest, &options) {
                Step::Request { request: Request::Get(get), consumed } => {
                    for key in get.keys {
                        black_box(key);
                    }
                    consumed
                }
                Step::Request { request, consumed } => {
                    black_box(&request);
                    consumed
                }
                step => panic!("{step:?}"),
            };
            rest = &rest[consumed..];
        }
    });
    println!("{name:40} {:7.1} ns", best_ns / count as f64);
}

fn measure_replies() {
    let mut out = Vec::with_capacity(BUFFER_BYTES * 2);
    let count = 500;
    let value = [b'x'; 100];
    let best_ns = best(|| {
        out.clear();
        for number in 0..count {
            compose::value(&mut out, b"user:00000000:profile:abcdefgh", number, &value, None);
        }
        black_box(&out);
    });
    println!("{:40} {:7.1} ns", "VALUE reply, 100-byte value", best_ns / f64::from(count));
}

fn best(mut work: impl FnMut()) -> f64 {
    let round = |work: &mut dyn FnMut()| {
        let start = Instant::now();
        work();
        start.elapsed().as_nanos() as f64
    };
    (0..ROUNDS).map(|_| round(&mut work)).fold(f64::INFINITY, f64::min)
}
