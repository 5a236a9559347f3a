//! memcached's binary protocol.

use super::classic_admin::stats_operation;
use super::client_time::ClientTime;
use super::form::Compose;
use crate::dispatch::operation::{DeleteItem, OldItem, Operation, StoreItem};
use crate::dispatch::outcome::{FoundItem, GetOutcome, ItemValue, Outcome, Refusal, StatRows, Tail};
use crate::dispatch::output::Output;
use crate::dispatch::prefixes::PrefixCount;
use crate::latency::Class;
use larder_cache::{Arith, ArithOutcome, Delete, DeleteOutcome, KeyHash, Mode, Store, StoreOutcome, Touched};
use larder_protocol::StoreVerb;
use larder_protocol::binary::{Command, Echo, Refusal as PacketRefusal, Request, Status, reply};

/// How a request is answered.
#[derive(Clone, Copy)]
pub(in crate::dispatch) struct Form {
    echo: Echo,
    /// Success is not told.
    quiet: bool,
    /// The status of a refusal: of a store because of what is there, or is not, and of a command that the settings do
    /// not allow.
    refused: Status,
}

/// How a retrieval is answered.
#[derive(Clone, Copy)]
pub(in crate::dispatch) struct GetForm {
    echo: Echo,
    /// A miss is not told.
    quiet: bool,
    with_key: bool,
}

impl GetForm {
    pub(in crate::dispatch) fn new(request: &Request<'_>, with_key: bool) -> GetForm {
        GetForm { echo: request.echo, quiet: request.quiet, with_key }
    }

    /// The refusal of a key that no item can have.
    pub(in crate::dispatch) fn invalid(self) -> PacketRefusal {
        PacketRefusal { echo: self.echo, status: Status::Invalid, closes: false }
    }
}

// ---- requests ----

/// Reads a request as an operation. Retrievals and logins are read elsewhere: they are no operations.
#[inline]
pub(super) fn command<'a>(
    request: &Request<'a>,
    hash: KeyHash,
    time: ClientTime,
) -> (Operation<'a>, Form, Class) {
    let Request { echo, quiet, cas, key, command } = *request;
    let compare = (cas != 0).then_some(cas);
    let mut form = Form { echo, quiet, refused: Status::NotStored };
    let (operation, class) = match command {
        Command::Store { verb, flags, exptime, bytes, data } => {
            form.refused = match verb {
                StoreVerb::Add => Status::Exists,
                StoreVerb::Replace => Status::NotFound,
                _ => Status::NotStored,
            };
            let mode = match verb {
                StoreVerb::Append => Mode::Append,
                StoreVerb::Prepend => Mode::Prepend,
                // With a CAS number the three are one command.
                _ if compare.is_some() => Mode::Set,
                StoreVerb::Add => Mode::Add,
                StoreVerb::Replace => Mode::Replace,
                StoreVerb::Set | StoreVerb::Cas => Mode::Set,
            };
            let item = StoreItem {
                store: Store {
                    mode,
                    flags,
                    expiry: time.expiry(exptime),
                    compare,
                    ..Store::set(key, hash, data)
                },
                value_bytes: bytes,
                old_if_refused: if verb == StoreVerb::Set { OldItem::Goes } else { OldItem::Stays },
                counts_prefix: true,
            };
            (Operation::Store(item), Class::Set)
        }
        Command::Delete => {
            let delete = Delete { compare, ..Delete::of(key, hash) };
            // A miss is told, also to a quiet delete.
            (Operation::Delete(DeleteItem { delete, is_answered: true, counts_prefix: true }), Class::Delete)
        }
        Command::Arith { incr, delta, initial } => {
            let initial = initial.map(|(value, exptime)| (time.expiry(exptime), value));
            (Operation::Arith(Arith { compare, initial, ..Arith::of(key, hash, incr, delta) }), Class::Arith)
        }
        Command::Touch { exptime } => {
            let expiry = time.expiry(exptime);
            (Operation::Touch { key, hash, expiry, shows_item: true }, Class::Touch)
        }
        other => {
            form.refused =
                if matches!(other, Command::Flush { .. }) { Status::AuthError } else { Status::NotFound };
            (administration(other, time), Class::Other)
        }
    };
    (operation, form, class)
}

/// Reads a command on the server as an operation.
fn administration<'a>(command: Command<'a>, time: ClientTime) -> Operation<'a> {
    match command {
        Command::Flush { exptime } => {
            let due_s = exptime.filter(|&delay| delay > 0).map(|delay| time.expiry(delay).seconds());
            Operation::Flush { due_s }
        }
        Command::Version => Operation::Version,
        Command::Quit => Operation::Quit,
        Command::Stats(kind) => stats_operation(kind),
        _ => Operation::Nothing,
    }
}

// ---- replies ----

/// Words the outcome of a retrieval.
#[inline]
pub(super) fn compose_get(output: &mut Output, form: GetForm, key: &[u8], outcome: GetOutcome<'_>) -> Tail {
    let GetForm { echo, quiet, with_key } = form;
    let shown_key = if with_key { key } else { &[] };
    match outcome {
        GetOutcome::Hit(FoundItem { flags, cas, value: ItemValue::Whole(value) }) => {
            let out = output.buffer();
            reply::hit(out, echo, flags, shown_key, value.len() as u32, cas.unwrap_or(0));
            out.extend_from_slice(value);
        }
        GetOutcome::Hit(FoundItem { flags, cas, value: ItemValue::Streamed { bytes } }) => {
            reply::hit(output.buffer(), echo, flags, shown_key, bytes, cas.unwrap_or(0));
        }
        GetOutcome::Miss | GetOutcome::WrongKind if quiet => {}
        GetOutcome::Miss | GetOutcome::WrongKind if with_key => {
            reply::miss_with_key(output.buffer(), echo, key)
        }
        GetOutcome::Miss | GetOutcome::WrongKind => reply::error(output.buffer(), echo, Status::NotFound),
        GetOutcome::NoMemory => reply::error(output.buffer(), echo, Status::NoMemory),
    }
    b""
}

impl Compose for Form {
    /// Words the outcome of every other request.
    #[inline]
    fn compose(&self, output: &mut Output, outcome: Outcome<'_>) -> Tail {
        let Form { echo, quiet, .. } = *self;
        if let Some(status) = failure(self, &outcome) {
            reply::error(output.buffer(), echo, status);
            return b"";
        }
        match outcome {
            Outcome::Closed => {
                if !quiet {
                    reply::empty(output.buffer(), echo, 0);
                }
                output.close();
            }
            _ if quiet => {}
            Outcome::Stored(StoreOutcome::Stored { cas, .. }) => reply::empty(output.buffer(), echo, cas),
            Outcome::Counted(ArithOutcome::Done { value, cas, .. }) => {
                reply::number(output.buffer(), echo, value, cas);
            }
            Outcome::TouchedItem(Some(item)) => {
                reply::hit(output.buffer(), echo, item.flags, b"", 0, item.cas)
            }
            Outcome::Version(version) => {
                reply::value_alone(output.buffer(), echo, Status::Ok, version.as_bytes());
            }
            Outcome::Stats(rows) => compose_stats(output, echo, rows),
            Outcome::Prefixes(counts) => compose_prefixes(output, echo, counts),
            _ => reply::empty(output.buffer(), echo, 0),
        }
        b""
    }
}

/// The status of an error. `None` = the request was executed.
#[inline]
fn failure(form: &Form, outcome: &Outcome<'_>) -> Option<Status> {
    Some(match outcome {
        Outcome::Stored(StoreOutcome::Stored { .. })
        | Outcome::Deleted(DeleteOutcome::Deleted)
        | Outcome::Counted(ArithOutcome::Done { .. })
        | Outcome::TouchedItem(Some(_)) => return None,
        Outcome::Refused(Refusal::NotAllowed | Refusal::OfOthers) => Status::AuthError,
        Outcome::Refused(Refusal::TooManyPrefixes) => Status::NoMemory,
        Outcome::Stored(StoreOutcome::NotStored) | Outcome::Refused(_) => form.refused,
        Outcome::Stored(StoreOutcome::Exists)
        | Outcome::Deleted(DeleteOutcome::Exists)
        | Outcome::Counted(ArithOutcome::Exists) => Status::Exists,
        Outcome::Stored(StoreOutcome::NotFound)
        | Outcome::Deleted(DeleteOutcome::NotFound)
        | Outcome::Counted(ArithOutcome::NotFound)
        | Outcome::TouchedItem(None) => Status::NotFound,
        Outcome::Stored(StoreOutcome::TooLarge) => Status::TooLarge,
        Outcome::Counted(ArithOutcome::NonNumeric) => Status::NonNumeric,
        Outcome::Stored(StoreOutcome::NoRoom)
        | Outcome::Deleted(DeleteOutcome::NoRoom)
        | Outcome::Counted(ArithOutcome::NoRoom)
        | Outcome::Touched(Touched::NoRoom)
        | Outcome::NoMemoryForUpload => Status::NoMemory,
        _ => return None,
    })
}

/// Words the refusal of a packet that the parser could not read.
#[cold]
pub(in crate::dispatch) fn compose_refusal(output: &mut Output, refusal: PacketRefusal) {
    reply::error(output.buffer(), refusal.echo, refusal.status);
    if refusal.closes {
        output.close_failed();
    }
}

fn compose_stats(output: &mut Output, echo: Echo, rows: &StatRows) {
    let out = output.buffer();
    for (name, value) in rows.iter() {
        reply::stat(out, echo, name.as_bytes(), value.as_bytes());
    }
    reply::stat(out, echo, b"", b"");
}

/// All prefixes are one statistic, whose value is the list that the text protocol has.
fn compose_prefixes(output: &mut Output, echo: Echo, counts: &[(Vec<u8>, PrefixCount)]) {
    let list = super::classic::prefix_lines(counts);
    let out = output.buffer();
    reply::stat(out, echo, b"detailed", &list);
    reply::stat(out, echo, b"", b"");
}
