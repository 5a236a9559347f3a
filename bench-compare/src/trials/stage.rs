//! What a trial is run with.

use std::path::Path;

use anyhow::Result;

use crate::exchange::{Exchange, STORE_DEPTH};
use crate::options::Cores;
use crate::servers::Process;
use crate::wire::Wire;

/// What a trial needs.
pub(crate) struct Stage<'a> {
    /// Starts the server anew.
    pub(crate) start: &'a dyn Fn() -> Result<Process>,
    /// Requests to the server.
    pub(crate) wire: &'a Wire,
    /// The executable of `larder`, whose `replay` is the client.
    pub(crate) larder: &'a Path,
    /// The cores of the client.
    pub(crate) cores: &'a Cores,
}

impl Stage<'_> {
    /// A connection to the server.
    pub(super) fn visit(&self, process: &Process) -> Result<Exchange<'_>> {
        Exchange::new(process.door.connect()?, self.wire, STORE_DEPTH)
    }
}
