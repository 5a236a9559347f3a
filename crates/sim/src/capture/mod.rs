//! What clients ask for, as requests: told by a running server (`server`), or read from its packets (`packets`).

pub mod packets;
pub mod server;

use crate::{Fields, Request, SourceError};

/// What hears the requests of clients.
pub trait Listener {
    /// The fields of the requests.
    fn fields(&self) -> Fields;

    /// Waits a moment for what clients do, and appends it to `into`. `false` = nothing follows.
    ///
    /// # Errors
    /// What follows cannot be read. What came before it counts.
    fn take(&mut self, into: &mut Vec<Request>) -> Result<bool, SourceError>;

    /// Appends what has come and may have waited for more.
    fn end(&mut self, into: &mut Vec<Request>);

    /// The share of the reads that found an item, where that is known, and of how many reads it is.
    fn hit_ratio(&self) -> Option<(f64, u64)>;

    /// What is missing, where something is.
    fn notice(&self) -> Option<String>;

    /// How much has been read, from 0 to 1, if that is known.
    fn done_ratio(&self) -> Option<f64>;
}

/// Gives the requests of one capture their times.
#[derive(Debug, Default)]
struct Times {
    /// The times of the first request and of the latest one, in seconds.
    first_and_latest_s: Option<(u64, u64)>,
}

impl Times {
    /// The request with its time since the first one. Requests may come out of order.
    fn stamp(&mut self, (time_us, mut request): (u64, Request)) -> Request {
        let time_s = time_us / 1_000_000;
        let (first_s, latest_s) = self.first_and_latest_s.get_or_insert((time_s, time_s));
        *latest_s = time_s.max(*latest_s);
        request.time_s = (*latest_s - *first_s).min(u32::MAX.into()) as u32;
        request
    }
}
