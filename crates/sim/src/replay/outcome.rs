//! The result of a replay, or the reason why it could not start.

use super::collect::Second;
use super::faults::Faults;
use super::tally::Counts;
use super::windows::Window;
use crate::SourceError;
use crate::report::Report;

/// The result of a replay.
pub struct Outcome {
    /// The report of all measurements.
    pub report: Report,
    /// Counts of the measured time.
    pub counts: Counts,
    /// The seconds of the measured time.
    pub seconds: Vec<Second>,
    /// Hit ratio and service time of read-through by windows of gets, if they were asked for.
    pub windows: Vec<Window>,
    /// Everything that went wrong, in all phases.
    pub faults: Faults,
    /// Whether the server was given up, because all connections, or one with waiting requests, were down for too
    /// long.
    pub given_up: bool,
    /// The error that ended the source early, if any.
    pub source_error: Option<SourceError>,
}

impl Outcome {
    /// Everything that went wrong, in one line, if anything did.
    pub fn complaint(&self) -> Option<String> {
        let mut parts = Vec::new();
        if let Some(error) = &self.source_error {
            parts.push(error.to_string());
        }
        if self.given_up {
            parts.push("the server was away for too long and was given up".to_owned());
        }
        if !self.faults.is_empty() {
            parts.push(self.faults.summary());
        }
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

/// The reason why there is no outcome.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The server cannot be reached or refuses the login; one line.
    Unreachable(String),
    /// The options cannot be obeyed; one line.
    Failed(String),
}

impl From<SourceError> for Failure {
    fn from(error: SourceError) -> Failure {
        Failure::Failed(error.0)
    }
}
