//! Requests of memcached's protocols as [`Operation`]s, and which composer words each [`Outcome`].

use super::binary::GetForm as PacketForm;
use super::binary::compose_refusal;
use super::client_time::ClientTime;
use super::form::Compose;
use super::{binary, classic, form, meta};
use crate::dispatch::operation::Operation;
use crate::dispatch::outcome::{ComposeGet, GetOutcome, Outcome, Refusal, Tail};
use crate::dispatch::output::Output;
use crate::dispatch::own_keys::{OwnKeyRoom, OwnKeys};
use crate::dispatch::protocol::Protocol;
use crate::dispatch::users::Access;
use crate::latency::Class;
use larder_cache::{KEY_BYTES_MAX, KeyHash};
use larder_protocol::{Found, Keys, ParseOptions, Request, binary as packets, parse, reply};

/// A request in the cache's terms, and how it is answered: `F` words its outcome.
pub(in crate::dispatch) struct Command<'a, F> {
    pub(in crate::dispatch) operation: Operation<'a>,
    pub(in crate::dispatch) reply: F,
    /// The class under which the time of the request is counted.
    pub(in crate::dispatch) class: Class,
}

impl<'a, F> Command<'a, F> {
    /// Takes from the command what the client may not do.
    ///
    /// # Errors
    /// Why the client may do nothing of it.
    #[cold]
    pub(in crate::dispatch) fn restrict(
        &mut self,
        access: Option<Access>,
        own_keys: Option<&'a OwnKeys>,
    ) -> Result<(), Refusal> {
        let mut operation = std::mem::replace(&mut self.operation, Operation::Nothing);
        if access != Some(Access::Full) {
            operation = operation.without_changes().ok_or(Refusal::NotAllowed)?;
        }
        // Whoever has no namespace may do as much in an exchanged database as in any.
        if let Some(own) = own_keys.filter(|own| own.has_namespace()) {
            operation = operation.within(own.prefix()).ok_or(Refusal::OfOthers)?;
        }
        self.operation = operation;
        Ok(())
    }
}

/// Which composer of the text protocol words the outcome, with what the words depend on beside the outcome.
pub(in crate::dispatch) enum TextForm<'a> {
    Classic(form::Form),
    Meta(meta::Form<'a>),
}

impl<'a> TextForm<'a> {
    /// Shows the key as `key`, whatever the item calls it.
    fn showing(self, key: &'a [u8]) -> TextForm<'a> {
        match self {
            TextForm::Meta(form) => TextForm::Meta(form.showing(key)),
            form => form,
        }
    }
}

impl Compose for TextForm<'_> {
    #[inline(always)]
    fn compose(&self, output: &mut Output, outcome: Outcome<'_>) -> Tail {
        match self {
            TextForm::Classic(form) => classic::compose(form, output, outcome),
            TextForm::Meta(form) => meta::compose(form, output, outcome),
        }
    }

    #[inline(always)]
    fn is_meta(&self) -> bool {
        matches!(self, TextForm::Meta(_))
    }
}

/// How one key of a retrieval over the text protocol is answered.
pub(in crate::dispatch) struct KeyReply<'a> {
    pub(in crate::dispatch) output: &'a mut Output,
    pub(in crate::dispatch) key: &'a [u8],
    /// No key of the request follows.
    pub(in crate::dispatch) is_last: bool,
}

impl ComposeGet for KeyReply<'_> {
    const SHOWS_FLAGS: bool = true;

    #[inline(always)]
    fn compose(self, outcome: GetOutcome<'_>) -> Tail {
        classic::compose_get(self.output, self.key, self.is_last, outcome)
    }
}

/// How a retrieval over the binary protocol is answered.
pub(in crate::dispatch) struct PacketReply<'a> {
    pub(in crate::dispatch) form: PacketForm,
    pub(in crate::dispatch) output: &'a mut Output,
    pub(in crate::dispatch) key: &'a [u8],
}

impl ComposeGet for PacketReply<'_> {
    const SHOWS_FLAGS: bool = true;

    #[inline(always)]
    fn compose(self, outcome: GetOutcome<'_>) -> Tail {
        binary::compose_get(self.output, self.form, self.key, outcome)
    }
}

/// A request of any protocol. The dispatcher's paths of frequent requests know the protocol of theirs, and have no use
/// for it.
pub(in crate::dispatch) enum AnyRequest<'a> {
    Text(Request<'a>),
    Packet(packets::Request<'a>),
}

/// The request at the front of the input.
pub(in crate::dispatch) struct Next<'a> {
    pub(in crate::dispatch) request: AnyRequest<'a>,
    /// Bytes of the request, without its value if that follows in pieces.
    pub(in crate::dispatch) consumed: usize,
    /// Bytes of the value that follows in pieces.
    pub(in crate::dispatch) upload_bytes: Option<u32>,
}

/// The request at the front of the input. `None` = it is not complete, or it is none.
pub(in crate::dispatch) fn next_request<'a>(
    protocol: Protocol,
    input: &'a [u8],
    options: &ParseOptions,
) -> Option<Next<'a>> {
    match protocol {
        Protocol::Binary => request_of(packets::parse(input, options), AnyRequest::Packet),
        Protocol::Text | Protocol::TextOfOwnKeys | Protocol::Undecided | Protocol::Resp => {
            request_of(parse(input, options), AnyRequest::Text)
        }
    }
}

fn request_of<'a, R, E>(found: Found<R, E>, request_as: fn(R) -> AnyRequest<'a>) -> Option<Next<'a>> {
    let (request, consumed, upload_bytes) = match found {
        Found::Request { request, consumed } => (request, consumed, None),
        Found::Upload { request, consumed, body_bytes } => (request, consumed, Some(body_bytes)),
        Found::NeedMore { .. } | Found::Close | Found::Refuse(_) | Found::Reject { .. } => return None,
    };
    Some(Next { request: request_as(request), consumed, upload_bytes })
}

impl<'a> AnyRequest<'a> {
    /// The keys of a retrieval. `None` for all other requests.
    pub(in crate::dispatch) fn retrieved_keys(&self) -> Option<Keys<'a>> {
        match self {
            AnyRequest::Text(Request::Get(get)) => Some(get.keys.clone()),
            AnyRequest::Packet(request) if matches!(request.command, packets::Command::Get { .. }) => {
                Some(Keys::one(request.key))
            }
            _ => None,
        }
    }

    /// Reads the request as an operation. `hash` hashes its key. `own_keys` = the keys of the client; `None` = all.
    /// `is_behind_others` = other replies wait to be sent before this one. `None` = the key is too long for an item.
    pub(in crate::dispatch) fn command<'s>(
        &'s self,
        rooms: &'s mut KeyRooms,
        own_keys: Option<&OwnKeys>,
        hash: impl Fn(&[u8]) -> KeyHash,
        time: ClientTime,
        is_behind_others: bool,
    ) -> Option<Command<'s, AnyForm<'s>>> {
        let KeyRooms { decoded, own } = rooms;
        let shown = match self {
            AnyRequest::Text(Request::FlushPrefix { prefix, .. }) => prefix,
            AnyRequest::Text(request) => decoded_key(request, decoded).unwrap_or_else(|| plain_key(request)),
            AnyRequest::Packet(request) => request.key,
        };
        let key = match own_keys {
            Some(own_keys) => own_keys.item_key(shown, own)?,
            None => shown,
        };
        let mut command = match self {
            AnyRequest::Text(request) => {
                let Command { operation, reply, class } =
                    command(request, key, hash(key), time, is_behind_others);
                Command { operation, reply: AnyForm::Text(reply.showing(shown)), class }
            }
            AnyRequest::Packet(request) => {
                let request = packets::Request { key, ..request.clone() };
                let Command { operation, reply, class } = packet_command(&request, hash(key), time);
                Command { operation, reply: AnyForm::Packet(reply), class }
            }
        };
        if let Operation::FlushPrefix { prefix } = &mut command.operation {
            *prefix = key;
        }
        Some(command)
    }

    /// Says that the key is too long for an item.
    pub(in crate::dispatch) fn refuse_key(&self, output: &mut Output) {
        match self {
            AnyRequest::Text(_) => output.say(reply::KEY_TOO_LONG),
            AnyRequest::Packet(packets::Request { echo, .. }) => compose_refusal(
                output,
                packets::Refusal { echo: *echo, status: packets::Status::Invalid, closes: false },
            ),
        }
    }
}

/// Room for the key of one request: decoded, and with the prefix of a namespace.
pub(in crate::dispatch) struct KeyRooms {
    pub(in crate::dispatch) decoded: [u8; KEY_BYTES_MAX],
    pub(in crate::dispatch) own: OwnKeyRoom,
}

impl Default for KeyRooms {
    fn default() -> KeyRooms {
        KeyRooms { decoded: [0; KEY_BYTES_MAX], own: [0; KEY_BYTES_MAX] }
    }
}

/// How a request of any protocol is answered.
pub(in crate::dispatch) enum AnyForm<'a> {
    Text(TextForm<'a>),
    Packet(binary::Form),
}

impl Compose for AnyForm<'_> {
    fn compose(&self, output: &mut Output, outcome: Outcome<'_>) -> Tail {
        match self {
            AnyForm::Text(form) => form.compose(output, outcome),
            AnyForm::Packet(form) => form.compose(output, outcome),
        }
    }

    fn is_meta(&self) -> bool {
        matches!(self, AnyForm::Text(form) if form.is_meta())
    }
}

/// The key of a request as it stands in the input. Empty where there is none, and where the key has to be decoded
/// first; see [`decoded_key`].
#[inline]
pub(in crate::dispatch) fn plain_key<'a>(request: &Request<'a>) -> &'a [u8] {
    match request {
        Request::Store(store) => store.key,
        Request::Delete { key, .. } | Request::Touch { key, .. } | Request::Arith { key, .. } => key,
        Request::Meta(meta) if !meta.flags.has(b'b') => meta.key,
        _ => &[],
    }
}

/// The key of a request that sends its key encoded. `None` for all others.
#[inline]
pub(in crate::dispatch) fn decoded_key<'b>(
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
pub(in crate::dispatch) fn command<'a>(
    request: &'a Request<'a>,
    key: &'a [u8],
    hash: KeyHash,
    time: ClientTime,
    is_behind_others: bool,
) -> Command<'a, TextForm<'a>> {
    match request {
        Request::Meta(meta) => {
            let (operation, class) = meta::command(meta, key, hash, time);
            Command { operation, reply: TextForm::Meta(meta::Form::new(meta, key, time)), class }
        }
        request => {
            let (operation, form, class) = classic::command(request, key, hash, time, is_behind_others);
            Command { operation, reply: TextForm::Classic(form), class }
        }
    }
}

/// Reads a request of the binary protocol as an operation. Retrievals and logins are no operations.
#[inline]
pub(in crate::dispatch) fn packet_command<'a>(
    request: &packets::Request<'a>,
    hash: KeyHash,
    time: ClientTime,
) -> Command<'a, binary::Form> {
    let (operation, reply, class) = binary::command(request, hash, time);
    Command { operation, reply, class }
}
