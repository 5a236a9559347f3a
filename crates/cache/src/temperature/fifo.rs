//! A policy that knows nothing of any item.

use super::column_queue::ColumnQueue;
use super::policy::{Judged, Queue, Residents, Temperature, TemperatureStats, Verdict};
use crate::ranking::Candidate;
use larder_allocation::ColumnBounds;
use larder_memory::ColumnId;
use larder_temperature::Reference;

/// First in, first out. A sparse column goes before its turn.
#[derive(Default)]
pub struct Fifo {
    columns: ColumnQueue,
    evicted: u64,
}

impl Temperature for Fifo {
    fn sealed(&mut self, column: ColumnId, birth: u64, _: Queue) {
        self.columns.push(column, birth);
    }

    fn victim(&mut self, status_of: &mut dyn FnMut(ColumnId, u64) -> Candidate) -> Option<ColumnId> {
        let next = self.columns.next(status_of)?;
        self.columns.take(next)
    }

    fn put_back(&mut self, column: ColumnId, birth: u64, _: Queue) {
        self.columns.put_back(column, birth);
    }

    fn judge(&mut self, _: Queue, items: &[Judged], _: ColumnBounds, verdicts: &mut Vec<Verdict>) {
        self.evicted += items.len() as u64;
        verdicts.extend(items.iter().map(|_| Verdict::Evict));
    }

    fn refer(&mut self, _: &[Reference], _: &mut dyn Residents) {}

    fn wanted_below(&self) -> u32 {
        0
    }

    fn fit(&mut self, _: u64) {}

    fn bytes_for(&self, _: u64) -> u64 {
        0
    }

    fn columns(&self) -> usize {
        self.columns.len()
    }

    fn forget_gone(&mut self, status_of: &mut dyn FnMut(ColumnId, u64) -> Candidate) {
        self.columns.forget_gone(status_of);
    }

    fn stats(&self) -> TemperatureStats {
        TemperatureStats {
            probation_share: 1.0,
            probation_columns: self.columns.len() as u64,
            evicted_probation: self.evicted,
            ..TemperatureStats::default()
        }
    }
}
