//! Nothing is known of any item.

use super::{Candidate, Judged, Part, Queue, Residents, Temperature, TemperatureFacts, Verdict};
use larder_memory::ColumnId;
use larder_temperature::Reference;

/// First in, first out; a column that is mostly dead goes before its turn.
#[derive(Default)]
pub struct Fifo {
    queue: Queue,
    evicted: u64,
}

impl Temperature for Fifo {
    fn sealed(&mut self, column: ColumnId, birth: u64, _: Part) {
        self.queue.push(column, birth);
    }

    fn victim(&mut self, standing: &mut dyn FnMut(ColumnId, u64) -> Candidate) -> Option<ColumnId> {
        let next = self.queue.next(standing)?;
        self.queue.take(next)
    }

    fn put_back(&mut self, column: ColumnId, birth: u64, _: Part) {
        self.queue.put_back(column, birth);
    }

    fn judge(&mut self, _: Part, items: &[Judged], _: u64, verdicts: &mut Vec<Verdict>) {
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
        self.queue.len()
    }

    fn forget_gone(&mut self, standing: &mut dyn FnMut(ColumnId, u64) -> Candidate) {
        self.queue.forget_gone(standing);
    }

    fn facts(&self) -> TemperatureFacts {
        TemperatureFacts {
            probation_share: 1.0,
            probation_columns: self.queue.len() as u64,
            evicted_probation: self.evicted,
            ..TemperatureFacts::default()
        }
    }
}
