//! How a command of the workbench may end badly.

use larder_sim::SourceError;

/// How a command ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The command line cannot be obeyed; the text is clap's own, or one line.
    Usage(String),
    /// The work failed, in one line.
    Failed(String),
    /// A server could not be reached, in one line.
    Unreachable(String),
}

impl From<SourceError> for Failure {
    fn from(error: SourceError) -> Failure {
        Failure::Failed(error.0)
    }
}
