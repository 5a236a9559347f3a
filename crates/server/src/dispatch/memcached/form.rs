//! How a request is answered: what words its outcome, and what the words of a classic request depend on.

use crate::dispatch::outcome::{Outcome, Tail};
use crate::dispatch::output::Output;

/// What words the outcome of a request in its protocol.
pub(in crate::dispatch) trait Compose {
    /// Words the outcome. What is returned follows a value that is streamed.
    fn compose(&self, output: &mut Output, outcome: Outcome<'_>) -> Tail;

    /// Whether `cmd_meta` counts the request.
    fn is_meta(&self) -> bool {
        false
    }
}

/// How a classic request is answered.
pub(in crate::dispatch) enum Form {
    /// A command on a key. With `noreply` nothing is said.
    Data { noreply: bool },
    /// A command on the server, with its own words.
    Admin { noreply: bool, words: Words },
    /// The reply depends on the request alone.
    Fixed(&'static str),
}

/// The words of one administrative command.
#[derive(Clone, Copy)]
pub(in crate::dispatch) struct Words {
    pub(super) done: &'static str,
    /// The settings do not allow the command.
    pub(super) disabled: &'static str,
    /// Other commands were pipelined before it.
    pub(super) not_first: &'static str,
}
