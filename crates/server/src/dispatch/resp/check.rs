//! Whether a request may be executed: the checks of Redis, in its order.

use super::errors::{self, Error};
use super::own_request::item_keys;
use super::request::{Call, after};
use super::session::Connection;
use super::worker::Resp;
use crate::dispatch::fleet::Route;
use crate::dispatch::users::Access;
use larder_protocol::resp::limits::KEY_BYTES_MAX;
use larder_protocol::resp::{Args, Command, Id, Keys, flags, slot_of};

impl Resp {
    /// Whether a request of `count` arguments may be executed. The error is `None` if the connection is to be closed
    /// without a word.
    pub(super) fn checked(
        &self,
        connection: &Connection,
        call: &Call<'_>,
        count: usize,
    ) -> Result<&'static Command, Option<Error>> {
        let mut args = call.args;
        let name = args.next().unwrap_or_default();
        if connection.access().is_none() && !call.command.is_some_and(|command| command.has(flags::NO_AUTH)) {
            return Err(Some(errors::NO_AUTH));
        }
        let Some(mut command) = call.command else {
            let is_http = name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:");
            return Err((!is_http).then(|| errors::unknown_command(call.args)));
        };
        if !command.subcommands.is_empty()
            && let Some(word) = args.next()
        {
            command = command.subcommand(word).ok_or_else(|| errors::unknown_subcommand(command, word))?;
        }
        if !command.takes(count) {
            return Err(Some(errors::wrong_arity(command)));
        }
        let session = connection.session.as_ref();
        let in_transaction = session.is_some_and(|session| session.transaction.is_some());
        // A script's version of the protocol is not that of its connection.
        if session.is_some_and(|session| !session.is_plain && session.is_confined())
            && self.scripts.time.is_none()
            && !may_be_confined(command.id)
        {
            return Err(Some(errors::confined(command)));
        }
        if in_transaction && command.has(flags::NO_MULTI) {
            return Err(Some(errors::not_in_transaction(command)));
        }
        let may_do_all = matches!(connection.access(), None | Some(Access::Full));
        if !may_do_all && is_more_than_reading(command) {
            return Err(Some(errors::not_permitted(command)));
        }
        if connection.namespace().is_some() && is_about_others(command) {
            return Err(Some(errors::about_others(command)));
        }
        let is_too_long = |key: &[u8]| key.len() > KEY_BYTES_MAX;
        let has_long_key = match command.keys {
            Keys::ONE => call.key.is_some_and(is_too_long),
            Keys::NONE | Keys::COUNTED => false,
            keys => keys.of(call.args).any(is_too_long),
        };
        if has_long_key {
            return Err(Some(errors::KEY_TOO_LONG));
        }
        self.route(connection, command, call.args)?;
        Ok(command)
    }

    /// Whether the keys of a request are served here. The keys of an `EXEC` are those of what was queued.
    fn route(
        &self,
        connection: &Connection,
        command: &'static Command,
        args: Args<'_>,
    ) -> Result<(), Option<Error>> {
        let Some(fleet) = &self.fleet else { return Ok(()) };
        let queued = connection.session.as_ref().and_then(|session| session.transaction.as_ref());
        let own = connection.own_keys();
        let route = match (command.id, queued) {
            (Id::Exec, Some(transaction)) => fleet.route_slots(transaction.keys().map(|key| slot_of(&key))),
            (Id::Ssubscribe | Id::Sunsubscribe, _) => fleet.route_slots(after(args, 1).map(slot_of)),
            (Id::Spublish, _) => fleet.route_slots(after(args, 1).take(1).map(slot_of)),
            _ => fleet.route_slots(item_keys(own, command, args).map(|key| slot_of(&key))),
        };
        Err(Some(match route {
            Route::Here => return Ok(()),
            Route::Moved { slot, node } => errors::made(fleet.moved(slot, node)),
            Route::CrossSlot => errors::CROSS_SLOT,
            Route::Nobody => errors::SLOT_NOT_SERVED,
        }))
    }
}

/// Whether users who may only read cannot send a command.
fn is_more_than_reading(command: &Command) -> bool {
    command.has(flags::WRITE)
        || matches!(command.id, Id::ScriptFlush | Id::Publish | Id::Spublish)
        || command.has(flags::ADMIN) && !shows_only(command.id)
}

/// Whether a connection of RESP2 that has subscribed to something may send a command.
fn may_be_confined(id: Id) -> bool {
    matches!(
        id,
        Id::Subscribe
            | Id::Psubscribe
            | Id::Ssubscribe
            | Id::Unsubscribe
            | Id::Punsubscribe
            | Id::Sunsubscribe
            | Id::Ping
            | Id::Quit
            | Id::Reset
    )
}

/// Whether a command for administrators only shows something.
fn shows_only(id: Id) -> bool {
    matches!(
        id,
        Id::ClientList
            | Id::ConfigGet
            | Id::LatencyDoctor
            | Id::LatencyHistogram
            | Id::LatencyHistory
            | Id::LatencyLatest
            | Id::SlowlogGet
            | Id::SlowlogLen
            | Id::Role
            | Id::Lastsave
            | Id::ClusterReplicas
    )
}

/// Whether a command changes the server, or shows keys of others.
fn is_about_others(command: &Command) -> bool {
    // `CLIENT NO-EVICT` changes nothing at all.
    let is_harmless = shows_only(command.id) || command.id == Id::ClientNoEvict;
    matches!(command.id, Id::SlowlogGet | Id::ScriptFlush) || command.has(flags::ADMIN) && !is_harmless
}
