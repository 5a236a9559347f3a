//! Submissions that the device has not answered yet.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use larder_temperature::Answers;

use crate::context::Context;
use crate::driver::CudaError;
use crate::page::Page;

/// The most submissions that are under way. While the device does one, the next one is copied, and two wait.
pub(crate) const FLIGHTS: usize = 4;

/// One submission: the references that are marked, and the digests that are looked up after that.
pub(super) struct Flight {
    pub(super) references: Page,
    pub(super) digests: Page,
    asked: usize,
    begun: Instant,
}

/// Submissions in the order in which they are answered.
pub(super) struct Flights {
    flights: Vec<Flight>,
    /// The number of a flight, or `None`: the device was late, and the answer is empty.
    order: VecDeque<Option<usize>>,
    /// The flight that takes the next submission: they take turns, so no other is free before it.
    next: usize,
    late: u64,
}

impl Flights {
    pub(super) fn new(context: &Arc<Context>) -> Result<Flights, CudaError> {
        let flight = |_| {
            let (references, digests) = (Page::new(context)?, Page::new(context)?);
            Ok(Flight { references, digests, asked: 0, begun: Instant::now() })
        };
        let flights = (0..FLIGHTS).map(flight).collect::<Result<_, CudaError>>()?;
        Ok(Flights { flights, order: VecDeque::new(), next: 0, late: 0 })
    }

    /// Appends the answers that are there, the oldest first, up to the first one that is not. Does not wait.
    pub(super) fn land(&mut self, answers: &mut Answers) -> Result<(), CudaError> {
        while let Some(next) = self.order.front() {
            let zones = match next {
                None => Vec::new(),
                Some(nth) => {
                    let Flight { digests, asked, .. } = &self.flights[*nth];
                    if !digests.done.is_reached()? {
                        break;
                    }
                    digests.host.slice()[..*asked].to_vec()
                }
            };
            self.order.pop_front();
            answers.push_back(zones);
        }
        Ok(())
    }

    /// A flight for `asked` digests that is free. `None` = all are under way: the submission comes to nothing.
    ///
    /// # Errors
    /// The oldest one has been under way for longer than `timeout`.
    pub(super) fn begin(
        &mut self,
        asked: usize,
        timeout: Duration,
    ) -> Result<Option<&mut Flight>, CudaError> {
        let nth = self.next % FLIGHTS;
        let flight = &mut self.flights[nth];
        if self.order.contains(&Some(nth)) {
            if flight.begun.elapsed() > timeout {
                return Err(CudaError::NoAnswer(timeout));
            }
            self.late += 1;
            self.order.push_back(None);
            return Ok(None);
        }
        self.next = nth + 1;
        self.order.push_back(Some(nth));
        (flight.asked, flight.begun) = (asked, Instant::now());
        Ok(Some(flight))
    }

    pub(super) fn late(&self) -> u64 {
        self.late
    }
}
