//! Failures of a command of the workbench.

use larder_sim::SourceError;

/// The reason why a command failed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The command line cannot be obeyed. The text is clap's, or one line.
    Usage(String),
    /// The work failed: one line.
    Failed(String),
    /// A server could not be reached: one line.
    Unreachable(String),
    /// A signal has ended the work: the exit status, and one line.
    Interrupted(u8, String),
}

impl From<SourceError> for Failure {
    fn from(error: SourceError) -> Failure {
        Failure::Failed(error.0)
    }
}
