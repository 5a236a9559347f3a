use super::{Chunk, Generation, Generations};
use crate::device::ZoneId;
use crate::expiry_histogram::ExpiryHistogram;
use crate::fence::FenceBuilder;
use crate::filter::Filter;
use crate::segment::Run;
use std::collections::HashSet;
use std::sync::Arc;

/// A generation with one record, in the zone of its number.
fn generation(number: u64) -> Generation {
    let hash = number << 40;
    let mut fences = FenceBuilder::new();
    fences.push(0, hash);
    let zone = ZoneId(number as u32);
    let run = Run { zone, sequence: number, cas_base: 0, first_data_page: 1, data_pages: 1, items: 1 };
    let chunk = Chunk {
        run,
        first_hash: 0,
        sealed_sequence: 0,
        record_bytes: 108,
        supersedes_extents: false,
        histogram: ExpiryHistogram::new(0),
        fences: fences.finish(1),
    };
    Generation::from_parts(number, vec![Arc::new(chunk)], vec![Arc::new(Filter::build(&[hash]))], None)
}

#[test]
fn a_generation_that_loses_its_last_chunk_takes_no_other_with_it() {
    for goes in 1..=3 {
        let shown = Generations::new(u64::MAX, 0);
        (1..=3).for_each(|number| drop(shown.install(Some(generation(number)), None, &[], &HashSet::new())));
        let gone = shown.drop_zone(ZoneId(goes));
        assert_eq!(gone.chunks.len(), 1);
        let left: Vec<u64> = shown.list().newest_first().iter().map(|left| left.number()).collect();
        let others: Vec<u64> = [3, 2, 1].into_iter().filter(|number| *number != u64::from(goes)).collect();
        assert_eq!(left, others);
    }
}
