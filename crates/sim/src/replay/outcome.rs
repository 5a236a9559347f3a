//! What a replay found, or why it could not start.

use super::collect::Second;
use super::faults::Faults;
use super::tally::Counts;
use crate::SourceError;
use crate::report::Report;

/// What a replay found.
pub struct Outcome {
    /// Everything that was measured, for people and programs.
    pub report: Report,
    /// Counts of the measured time.
    pub counts: Counts,
    /// By second.
    pub seconds: Vec<Second>,
    /// What went wrong, in all phases.
    pub faults: Faults,
    /// Whether all connections, or one for which requests waited, were down for so long that the server was given up.
    pub given_up: bool,
    /// Why the source could not be read to its end.
    pub source_error: Option<SourceError>,
}

impl Outcome {
    /// What went wrong in one line, if anything did.
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

/// Why there is no outcome.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The server cannot be reached, or does not let us in; one line.
    Unreachable(String),
    /// What was asked cannot be done; one line.
    Failed(String),
}

impl From<SourceError> for Failure {
    fn from(error: SourceError) -> Failure {
        Failure::Failed(error.0)
    }
}
