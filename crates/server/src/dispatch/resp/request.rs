//! A request of RESP, and what is known of its command.

use super::errors::{self, Error};
use crate::dispatch::item_key::is_plain;
use crate::dispatch::request_log::{Logged, first_word};
use crate::latency::Class;
use larder_protocol::resp::{Args, Command, Fault, Id, Upload, flags, lookup};
use smallvec::SmallVec;

/// A key of a `GET` or `MGET`.
#[derive(Clone, Copy)]
pub(in crate::dispatch) struct KeyRead {
    /// The key is one of several.
    pub(super) of_several: bool,
    /// No key of the request follows.
    pub(super) is_last: bool,
}

/// What is to be done with an entry of the window.
pub(in crate::dispatch) enum Work<'a> {
    /// A key of a `GET` or `MGET`.
    Key(KeyRead),
    /// The key of a `GET` before which something stands (a namespace, a database), or which is tracked.
    OwnKey,
    /// Any other request.
    Call(Call<'a>),
    /// The head of a reply of this number of values, whose keys follow in the window.
    ArrayHead(usize),
    /// A request that is a line of words.
    Line(&'a [u8]),
    /// The beginning of a request, an argument of which follows in pieces.
    Argument(Upload<'a>),
    /// What breaks the rules of the wire.
    Fault(Fault),
    /// Bytes that need no answer.
    Nothing,
}

impl Work<'_> {
    /// Whether it is a plain read of a key.
    #[inline(always)]
    pub(in crate::dispatch) fn is_read(&self) -> bool {
        matches!(self, Work::Key(_) | Work::OwnKey)
    }

    /// Whether it may need room for an item: what Redis refuses when its memory is full, and what
    /// makes a copy.
    pub(in crate::dispatch) fn may_need_room(&self) -> bool {
        match self {
            Work::Call(Call { command: Some(command), .. }) => {
                // A collection that shrinks is written anew, too.
                command.has(flags::DENYOOM)
                    || command.has(flags::COLLECTION) && command.has(flags::WRITE)
                    || matches!(
                        command.id,
                        Id::Exec | Id::Move | Id::Rename | Id::Renamenx | Id::Eval | Id::Evalsha
                    )
            }
            Work::Argument(_) => true,
            _ => false,
        }
    }

    /// How it is logged.
    pub(in crate::dispatch) fn logged(&self) -> Logged {
        match self {
            Work::Key(_) | Work::OwnKey => Logged::Key,
            Work::Call(call) => Logged::Words(call.shown()),
            Work::Line(line) => Logged::Words(first_word(line).to_vec()),
            Work::ArrayHead(_) | Work::Nothing => Logged::Nothing,
            Work::Argument(_) | Work::Fault(_) => Logged::Input,
        }
    }
}

/// A request that is no plain `GET`.
#[derive(Clone, Copy)]
pub(in crate::dispatch) struct Call<'a> {
    /// `None` = there is no such command.
    pub(super) command: Option<&'static Command>,
    pub(super) args: Args<'a>,
    /// The argument behind the name, if it is a key.
    pub(super) key: Option<&'a [u8]>,
}

impl<'a> Call<'a> {
    #[inline]
    pub(super) fn of(args: Args<'a>) -> Call<'a> {
        let mut words = args;
        let command = words.next().and_then(lookup);
        let key = command.filter(|command| command.keys.first == 1).and_then(|_| words.next());
        Call { command, args, key }
    }

    /// The words that are logged: the command and its first key.
    fn shown(&self) -> Vec<u8> {
        [self.args.clone().next().unwrap_or_default(), self.key.unwrap_or_default()].join(&b' ')
    }

    /// The first key, if an item can have it as it is.
    #[inline]
    pub(super) fn plain_key(&self) -> &'a [u8] {
        self.key.filter(|key| is_plain(key)).unwrap_or_default()
    }
}

/// The class under which the time of a command is counted.
pub(super) fn class_of(command: &Command) -> Class {
    match command.id {
        Id::Get | Id::Mget | Id::Getrange | Id::Substr | Id::Strlen => Class::Get,
        Id::Set
        | Id::Setnx
        | Id::Setex
        | Id::Psetex
        | Id::Mset
        | Id::Msetnx
        | Id::Getset
        | Id::Append
        | Id::Setrange
        | Id::Setbit => Class::Set,
        Id::Del | Id::Unlink | Id::Getdel | Id::Delex | Id::Delifeq => Class::Delete,
        Id::Incr | Id::Decr | Id::Incrby | Id::Decrby | Id::Incrbyfloat => Class::Arith,
        Id::Expire | Id::Pexpire | Id::Expireat | Id::Pexpireat | Id::Persist | Id::Getex | Id::Touch => {
            Class::Touch
        }
        _ => Class::Other,
    }
}

/// The arguments of a request on one item. Seldom there are more than a few.
pub(super) type Words<'a> = SmallVec<[&'a [u8]; 8]>;

/// Arguments, one by one.
#[inline]
pub(super) fn words_of(args: Args<'_>) -> Words<'_> {
    args.collect()
}

/// The words of a request that follow its first ones.
#[inline(always)]
pub(super) fn after(mut args: Args<'_>, count: usize) -> Args<'_> {
    (0..count).for_each(|_| _ = args.next());
    args
}

/// Whether a request begins with the name of this command.
pub(super) fn is_below(args: Args<'_>, id: Id) -> bool {
    args.clone().next().and_then(lookup).is_some_and(|above| above.id == id)
}

/// Reads `ON` or `OFF`.
pub(super) fn switch(word: &[u8]) -> Result<bool, Error> {
    match &word.to_ascii_lowercase()[..] {
        b"on" => Ok(true),
        b"off" => Ok(false),
        _ => Err(errors::SYNTAX),
    }
}

/// The words behind the name of a command, and behind that of a subcommand.
pub(super) fn words_behind<'a>(command: &Command, args: Args<'a>) -> Args<'a> {
    let is_sub = lookup(args.clone().next().unwrap_or_default()).is_some_and(|above| above.id != command.id);
    after(args, if is_sub { 2 } else { 1 })
}
