//! One worker's side of memcached's protocols, and what is to be done with a request.

use super::binary::GetForm as PacketForm;
use super::client_time::ClientTime;
use super::command::{AnyForm, AnyRequest, Command, KeyRooms};
use super::form::Compose;
use crate::dispatch::connection::Connection;
use crate::dispatch::execute::Executor;
use crate::dispatch::own_keys::OwnKeys;
use crate::dispatch::progress::KeyRead;
use crate::dispatch::request_log::Logged;
use crate::dispatch::window::{Hints, Progressed};
use larder_cache::Expiry;
use larder_protocol::{MetaVerb, ParseOptions, Request, binary as wire};

/// One worker's side of memcached's protocols.
pub(in crate::dispatch) struct Memcached {
    pub(super) parse_options: ParseOptions,
    pub(super) key_rooms: Box<KeyRooms>,
}

/// What is to be done with an entry of the window.
pub(in crate::dispatch) enum Work<'a> {
    /// One key of a retrieval.
    Key(KeyRead),
    /// A request that is executed in one go.
    Request(Request<'a>),
    /// The line of a storage request whose value follows in pieces, or the packet up to the value.
    Upload(&'a [u8]),
    /// A request refused by the parser.
    Reject { error: &'static str, swallow: u64 },
    /// The connection is closed with this reply, or without a word.
    Close(&'static str),
    /// A retrieval over the binary protocol.
    PacketGet { touch: Option<Expiry>, form: PacketForm },
    /// Another request over the binary protocol.
    Packet(wire::Request<'a>),
    /// A packet refused by the parser.
    Refuse { refusal: wire::Refusal, swallow: u64 },
}

impl Work<'_> {
    /// Whether it is a plain read of a key.
    #[inline(always)]
    pub(in crate::dispatch) fn is_read(&self) -> bool {
        matches!(self, Work::Key(_) | Work::PacketGet { .. })
    }

    /// Whether it is a request that most often replaces or removes an item.
    #[inline(always)]
    pub(in crate::dispatch) fn is_request(&self) -> bool {
        matches!(self, Work::Request(_))
    }

    /// Whether it may need room for an item.
    pub(in crate::dispatch) fn may_need_room(&self) -> bool {
        match self {
            Work::Request(Request::Store(_) | Request::Arith { .. }) | Work::Upload(_) => true,
            Work::Request(Request::Meta(meta)) => matches!(meta.verb, MetaVerb::Set | MetaVerb::Arith),
            Work::Packet(packet) => {
                matches!(packet.command, wire::Command::Store { .. } | wire::Command::Arith { .. })
            }
            _ => false,
        }
    }

    /// How it is logged.
    pub(in crate::dispatch) fn logged(&self) -> Logged {
        if matches!(self, Work::Key(_)) { Logged::Key } else { Logged::Input }
    }
}

impl Memcached {
    /// One worker's side, over the executor of that worker.
    pub(in crate::dispatch) fn new(executor: &Executor) -> Memcached {
        let whole_bytes_max = executor.whole_value_bytes_max();
        let parse_options = ParseOptions { whole_bytes_max, ..ParseOptions::default() };
        Memcached { parse_options, key_rooms: Box::default() }
    }
}

/// Reads a request that did not come through the window as an operation. `None` = its key is too long for an item.
#[cold]
pub(super) fn read_command<'a>(
    request: &'a AnyRequest<'a>,
    executor: &Executor,
    rooms: &'a mut KeyRooms,
    own_keys: Option<&OwnKeys>,
    is_behind_others: bool,
) -> Option<Command<'a, AnyForm<'a>>> {
    let time = ClientTime::now(executor.clock());
    request.command(rooms, own_keys, |key| executor.hash(key), time, is_behind_others)
}

/// Executes a command, unless it has to wait for flash first.
#[inline(always)]
pub(super) fn execute_command<S, F: Compose>(
    executor: &mut Executor,
    connection: &mut Connection<S>,
    command: &Command<'_, F>,
    hints: &mut Hints,
) -> Progressed {
    let Connection { output, progress, .. } = connection;
    hints.are_outdated |= command.operation.may_change_items();
    let is_answered =
        executor.execute(progress, &command.operation, |outcome| command.reply.compose(output, outcome));
    if !is_answered {
        return Progressed::Waits;
    }
    if command.reply.is_meta() {
        executor.count_meta();
    }
    executor.count_time(command.class);
    Progressed::Request
}
