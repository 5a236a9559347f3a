//! How often a map is wrong about a key that was never marked, by the load of the map.
//!
//! `cargo run --release -p larder-laboratory --example false_positives`. Each item is marked once, or as often as the
//! row says; then a million other keys are looked up.

use larder_temperature::{Digest, Hitmap, LineHitmap, PublishedHitmap, PublishedOptions, Reference};

const STRANGERS: u32 = 1 << 20;

/// Different numbers have different digests, in no recognisable order.
fn digest(n: u32) -> Digest {
    Digest::from_bits(n.wrapping_mul(0x9E37_79B1) ^ 0x1234_5678)
}

/// Marks items 0 to `items`, each `times` times, in batches; then the shares of strangers in zone 1 and above, 2 and
/// above, and so on.
fn shares(map: &mut dyn Hitmap, items: u32, times: u32) -> Vec<f64> {
    let references: Vec<Reference> = (0..items).map(|n| Reference::read(digest(n))).collect();
    for _ in 0..times {
        references.chunks(10_000).for_each(|batch| map.mark(batch));
    }
    let digests: Vec<Digest> = (items..items + STRANGERS).map(digest).collect();
    let mut zones = Vec::new();
    map.zones(&digests, &mut zones);
    (1..=map.levels())
        .map(|least| zones.iter().filter(|zone| **zone >= least).count() as f64 / f64::from(STRANGERS))
        .collect()
}

fn head(load: &str, levels: usize) -> String {
    let zones: String = (2..=levels).map(|zone| format!(" >= {zone} |")).collect();
    format!("| {load} | bits per item, all levels | % in zone >= 1 |{zones}\n{}|", "|---".repeat(levels + 2))
}

fn row(load: String, bits_per_item: f64, shares: &[f64]) {
    let shares: Vec<String> = shares.iter().map(|share| format!("{:.3}", 100.0 * share)).collect();
    println!("| {load} | {bits_per_item:.1} | {} |", shares.join(" | "));
}

fn main() {
    for times in [1, 2, 4] {
        println!("line, each item marked {times} times\n\n{}", head("items per line", 3));
        for per_line in [4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16] {
            let lines = 1 << 15;
            let mut map = LineHitmap::from_words(&vec![0; lines * 8], None);
            let bits = 512.0 / f64::from(per_line);
            row(per_line.to_string(), bits, &shares(&mut map, lines as u32 * per_line, times));
        }
        println!(
            "\npublished, 3 hash bits, each item marked {times} times\n\n{}",
            head("level 1 bits per item", 4)
        );
        for bits_per_item in [2.0, 3.0, 4.0, 6.4, 8.0, 12.0, 16.0, 24.0, 32.0] {
            // The bits are a power of two, so the number of items determines the load.
            let first_bits = f64::from(1 << 21);
            let items = first_bits / bits_per_item;
            let options = PublishedOptions { bits_per_item, ..PublishedOptions::default() };
            let mut map = PublishedHitmap::for_items(items as u64, options);
            assert_eq!(map.counters()[0].bits() as f64, first_bits);
            let bits = map.bytes_for(0) as f64 * 8.0 / items;
            row(format!("{bits_per_item}"), bits, &shares(&mut map, items as u32, times));
        }
        println!();
    }
}
