//! The protocols: what each request means as an [`Operation`], and how each [`Outcome`] is worded.
//!
//! ```text
//!   bytes --parse--> Request --command--> Operation  (+ ReplyForm)
//!                                             | execute
//!   bytes <------compose--- ReplyForm <--- Outcome
//! ```
//!
//! A protocol is three things: a parser in `larder_protocol`, a function `command` that reads its requests as
//! operations, and a function `compose` that words outcomes. This file registers them: another protocol adds its
//! requests to [`next_request`] and [`command`], and its composer to [`ReplyForm`] and [`GetForm`]. Nothing below knows
//! which protocol was spoken.
//!
//! * `classic`, `classic_admin` and `form` are memcached's text protocol, `meta` its meta commands;
//! * `client_time` reads the times that clients send;
//! * `login` is the login of text connections.

mod classic;
mod classic_admin;
mod client_time;
mod form;
mod login;
mod meta;

pub(super) use classic::compose_listing;
pub(super) use client_time::ClientTime;
pub(super) use login::{Login, log_in};

use super::operation::Operation;
use super::outcome::{ComposeGet, GetOutcome, Outcome, Tail};
use super::output::Output;
use crate::latency::Class;
use larder_cache::{KEY_BYTES_MAX, KeyHash};
use larder_protocol::{ParseOptions, Request, Step, parse};

/// What follows the value of an upload.
pub(super) const UPLOAD_END: &[u8] = b"\r\n";

/// A request in the cache's terms, and how it is answered.
pub(super) struct Command<'a> {
    pub(super) operation: Operation<'a>,
    pub(super) reply: ReplyForm<'a>,
    /// The class under which the time of the request is counted.
    pub(super) class: Class,
}

/// Which composer words the outcome, with what the words depend on beside the outcome.
pub(super) enum ReplyForm<'a> {
    Classic(form::Form),
    Meta(meta::Form<'a>),
}

impl ReplyForm<'_> {
    /// Words the outcome. What is returned follows a value that is streamed.
    #[inline(always)]
    pub(super) fn compose(&self, output: &mut Output, outcome: Outcome<'_>) -> Tail {
        match self {
            ReplyForm::Classic(form) => classic::compose(form, output, outcome),
            ReplyForm::Meta(form) => meta::compose(form, output, outcome),
        }
    }

    /// Whether `cmd_meta` counts the request.
    #[inline]
    pub(super) fn is_meta(&self) -> bool {
        matches!(self, ReplyForm::Meta(_))
    }
}

/// Which composer words the outcome of a retrieval, one key at a time.
#[derive(Clone, Copy)]
pub(super) enum GetForm {
    Classic,
}

/// How one key of a retrieval is answered.
pub(super) struct KeyReply<'a> {
    pub(super) form: GetForm,
    pub(super) output: &'a mut Output,
    pub(super) key: &'a [u8],
    /// No key of the request follows.
    pub(super) is_last: bool,
}

impl ComposeGet for KeyReply<'_> {
    #[inline(always)]
    fn compose(self, outcome: GetOutcome<'_>) -> Tail {
        match self.form {
            GetForm::Classic => classic::compose_get(self.output, self.key, self.is_last, outcome),
        }
    }
}

/// The request at the front of the input.
#[inline]
pub(super) fn next_request<'a>(input: &'a [u8], options: &ParseOptions) -> Step<'a> {
    parse(input, options)
}

/// The key of a request as it stands in the input. Empty where there is none, and where the key has to be decoded
/// first; see [`decoded_key`].
#[inline]
pub(super) fn plain_key<'a>(request: &Request<'a>) -> &'a [u8] {
    match request {
        Request::Store(store) => store.key,
        Request::Delete { key, .. } | Request::Touch { key, .. } | Request::Arith { key, .. } => key,
        Request::Meta(meta) if !meta.flags.has(b'b') => meta.key,
        _ => &[],
    }
}

/// The key of a request that sends its key encoded. `None` for all others.
#[inline]
pub(super) fn decoded_key<'b>(
    request: &Request<'_>,
    buffer: &'b mut [u8; KEY_BYTES_MAX],
) -> Option<&'b [u8]> {
    match request {
        Request::Meta(meta) if meta.flags.has(b'b') => Some(meta::decoded_key(meta, buffer)),
        _ => None,
    }
}

/// Reads a request as an operation on `key`. `is_behind_others` = other replies wait to be sent before this one.
#[inline(always)]
pub(super) fn command<'a>(
    request: &'a Request<'a>,
    key: &'a [u8],
    hash: KeyHash,
    time: ClientTime,
    is_behind_others: bool,
) -> Command<'a> {
    match request {
        Request::Meta(meta) => {
            let (operation, class) = meta::command(meta, key, hash, time);
            Command { operation, reply: ReplyForm::Meta(meta::Form::new(meta, key, time)), class }
        }
        request => {
            let (operation, form, class) = classic::command(request, key, hash, time, is_behind_others);
            Command { operation, reply: ReplyForm::Classic(form), class }
        }
    }
}
