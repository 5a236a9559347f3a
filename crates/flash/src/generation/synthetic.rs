//! Generations without a device, for the benchmark of the index structures.

use super::{Chunk, Generation, Generations, Next};
use crate::device::ZoneId;
use crate::expiry_histogram::ExpiryHistogram;
use crate::fence::FenceBuilder;
use crate::filter::Filter;
use crate::segment::Run;
use std::collections::HashSet;
use std::sync::Arc;

/// `generations` generations of `chunks` chunks of `items` hashes each. Returns a function that
/// says how many generations would be read for a hash.
pub fn generations(generations: u64, chunks: u64, items: u64) -> impl Fn(u64) -> u32 {
    let hash = |n: u64| {
        let x = (n + 1).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let x = (x ^ (x >> 31)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 29)
    };
    let shown = Generations::new(u64::MAX, 0);
    for generation in 0..generations {
        let first = generation * chunks * items;
        let mut hashes: Vec<u64> = (first..first + chunks * items).map(hash).collect();
        hashes.sort_unstable();
        let (mut row, mut filters) = (Vec::new(), Vec::new());
        for (n, hashes) in hashes.chunks(items as usize).enumerate() {
            let mut fences = FenceBuilder::new();
            hashes.iter().enumerate().for_each(|(at, hash)| fences.push((at * 108 / 4080) as u32, *hash));
            let data_pages = (items * 108).div_ceil(4080) as u32;
            let run = Run {
                zone: ZoneId(n as u32),
                sequence: generation + 1,
                cas_base: 0,
                first_data_page: 1,
                data_pages,
                items: items as u32,
            };
            row.push(Arc::new(Chunk {
                run,
                first_hash: if n == 0 { 0 } else { hashes[0] },
                sealed_sequence: 0,
                record_bytes: items * 108,
                supersedes_extents: false,
                histogram: ExpiryHistogram::new(0),
                fences: fences.finish(data_pages),
            }));
            filters.push(Arc::new(Filter::build(hashes)));
        }
        shown.install(
            Some(Generation::from_parts(generation + 1, row, filters, None)),
            None,
            &[],
            &HashSet::new(),
        );
    }
    move |hash| {
        let mut search = shown.search(hash, 0);
        let mut reads = 0;
        while search.next() != Next::Nowhere {
            reads += 1;
        }
        reads
    }
}
