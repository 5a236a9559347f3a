//! What the reply to a classic request depends on, beside the outcome.

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
