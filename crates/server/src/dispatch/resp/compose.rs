//! How outcomes of requests on items are worded in RESP.

use super::errors::{self, Error};
use super::moment::Moment;
use crate::dispatch::outcome::{
    ComposeGet, EditOutcome, FoundItem, GetOutcome, ItemValue, Looked, LookedItem, Outcome, Refusal, Tail,
};
use crate::dispatch::output::Output;
use larder_cache::{ArithOutcome, Copied, DeleteOutcome, Kind, StoreOutcome};
use larder_protocol::resp::{Version, compose as words, decimal};

/// What follows a value that is streamed.
const END: Tail = b"\r\n";
/// The longest value that Redis keeps in one piece with its header, in bytes. It calls such a value `embstr`.
const EMBEDDED_BYTES_MAX: u32 = 44;

/// How the outcome of a request on items is worded.
#[derive(Clone, Copy)]
pub(in crate::dispatch) enum Form {
    /// `OK`, or null if the condition did not hold.
    OkOrNull,
    /// 1 if it was done, else 0.
    OneOrZero,
    /// 1 if the item is there, else null.
    OneOrNull,
    /// The value, or null.
    Value,
    /// The value, or an empty string.
    PartOfValue,
    /// The value before the change, or null.
    Old,
    /// A number; 0 if there is no item.
    Number,
    /// The position of a bit. An absent item is as if it had zeros only.
    BitPosition { on: bool },
    /// 16 hexadecimal digits, or null.
    Digest,
    /// What is left of the lifetime.
    Ttl { in_seconds: bool, moment: Moment },
    /// When the item expires, as a unix time.
    ExpireTime { in_seconds: bool, moment: Moment },
    /// `string` or `none`.
    Type,
    /// How Redis would encode the value.
    Encoding,
    /// How often the item was used lately.
    Warmth,
    /// Seconds since the last use.
    IdleTime,
    /// Bytes that the item takes.
    Usage,
    /// All that is known of the item, as a map.
    Item { moment: Moment },
    /// `OK`, or an error if there is no item.
    Renamed,
    /// 1, 0, or an error if there is no item.
    RenamedOrNot,
}

/// Appends an error.
pub(in crate::dispatch) fn say_error(output: &mut Output, error: &Error) {
    words::error(output.buffer(), error);
}

/// Appends a simple string.
pub(in crate::dispatch) fn say(output: &mut Output, text: &str) {
    words::simple(output.buffer(), text);
}

/// How one key of a `GET` or `MGET` is answered.
pub(in crate::dispatch) struct ValueReply<'a> {
    pub(in crate::dispatch) output: &'a mut Output,
    pub(in crate::dispatch) version: Version,
    /// It is an element of a list, where no client expects an error.
    pub(in crate::dispatch) of_several: bool,
}

impl ComposeGet for ValueReply<'_> {
    const SHOWS_FLAGS: bool = false;

    #[inline(always)]
    fn compose(self, outcome: GetOutcome<'_>) -> Tail {
        match outcome {
            GetOutcome::Hit(FoundItem { value, .. }) => return compose_value(self.output, value),
            GetOutcome::Miss => words::null(self.output.buffer(), self.version),
            GetOutcome::NoMemory | GetOutcome::WrongKind if self.of_several => {
                words::null(self.output.buffer(), self.version)
            }
            GetOutcome::WrongKind => say_error(self.output, &errors::WRONG_KIND),
            GetOutcome::NoMemory => say_error(self.output, &errors::NO_MEMORY),
        }
        b""
    }
}

#[inline(always)]
fn compose_value(output: &mut Output, value: ItemValue<'_>) -> Tail {
    match value {
        ItemValue::Whole(value) => {
            words::bulk(output.buffer(), value);
            b""
        }
        ItemValue::Streamed { bytes } => {
            words::bulk_head(output.buffer(), bytes as usize);
            END
        }
    }
}

/// Words the outcome of every other request on items.
pub(in crate::dispatch) fn compose_outcome(
    form: Form,
    output: &mut Output,
    version: Version,
    outcome: Outcome<'_>,
) -> Tail {
    let error = match outcome {
        Outcome::Stored(StoreOutcome::Stored { value_bytes, .. }) => {
            match form {
                Form::OkOrNull => say(output, "OK"),
                Form::OneOrZero => words::integer(output.buffer(), 1),
                _ => words::integer(output.buffer(), value_bytes.into()),
            }
            return b"";
        }
        Outcome::Stored(StoreOutcome::TooLarge) => errors::TOO_LARGE,
        Outcome::Stored(StoreOutcome::NoRoom) => errors::NO_MEMORY,
        Outcome::Stored(_) => {
            not_done(form, output, version);
            return b"";
        }
        Outcome::Looked(looked) => return compose_looked(form, output, version, looked),
        Outcome::Edited(edited) => return compose_edited(form, output, version, edited),
        Outcome::Copied(copied) => {
            compose_copied(form, output, copied);
            return b"";
        }
        Outcome::Deleted(DeleteOutcome::Deleted) | Outcome::Done => {
            words::integer(output.buffer(), 1);
            return b"";
        }
        Outcome::Deleted(_) => {
            words::integer(output.buffer(), 0);
            return b"";
        }
        Outcome::Counted(ArithOutcome::Done { value, .. }) => {
            words::integer(output.buffer(), value as i64);
            return b"";
        }
        Outcome::NoMemoryForUpload => errors::NO_MEMORY,
        Outcome::Refused(Refusal::Disabled) => errors::FLUSH_DISABLED,
        _ => errors::SYNTAX,
    };
    say_error(output, &error);
    b""
}

/// Says that a change was not done.
fn not_done(form: Form, output: &mut Output, version: Version) {
    match form {
        Form::OkOrNull => words::null(output.buffer(), version),
        _ => words::integer(output.buffer(), 0),
    }
}

fn compose_looked(form: Form, output: &mut Output, version: Version, looked: Looked<'_>) -> Tail {
    let out = output.buffer();
    match looked {
        Looked::Value(value) => return compose_value(output, value),
        Looked::Number(digest) if matches!(form, Form::Digest) => {
            words::bulk(out, format!("{:016x}", digest as u64).as_bytes());
        }
        Looked::Number(number) => words::integer(out, number),
        Looked::Present(kind) => match form {
            Form::Type => words::simple(out, type_of(kind)),
            _ => words::integer(out, 1),
        },
        Looked::Encoding(name) => words::bulk(out, name.as_bytes()),
        Looked::Description(item) => describe(form, output, version, &item),
        Looked::WrongKind => say_error(output, &errors::WRONG_KIND),
        Looked::NoMemory | Looked::Collection(_) => say_error(output, &errors::NO_MEMORY),
        Looked::Absent => match form {
            Form::Type => words::simple(out, "none"),
            Form::Ttl { .. } | Form::ExpireTime { .. } => words::integer(out, -2),
            Form::BitPosition { on } => words::integer(out, if on { -1 } else { 0 }),
            Form::PartOfValue => words::bulk(out, b""),
            Form::Number | Form::OneOrZero => words::integer(out, 0),
            _ => words::null(out, version),
        },
    }
    b""
}

fn describe(form: Form, output: &mut Output, version: Version, item: &LookedItem<'_>) {
    let out = output.buffer();
    let time = |ms: Option<i64>, in_seconds: bool| match ms {
        None => -1,
        Some(ms) if in_seconds => (ms + 500) / 1000,
        Some(ms) => ms,
    };
    match form {
        Form::Ttl { in_seconds, moment } => {
            words::integer(out, time(moment.left_ms(item.expiry), in_seconds));
        }
        Form::ExpireTime { in_seconds, moment } => {
            words::integer(out, time(moment.unix_ms_of(item.expiry), in_seconds));
        }
        Form::Encoding => words::bulk(out, encoding(item).as_bytes()),
        Form::IdleTime => words::integer(out, item.idle_s.into()),
        Form::Usage => words::integer(out, item.bytes as i64),
        Form::Item { moment } => {
            let rows = [
                ("flags", item.flags.into()),
                ("cas", item.cas as i64),
                ("ttl-ms", moment.left_ms(item.expiry).unwrap_or(-1)),
                ("expires-unix-ms", moment.unix_ms_of(item.expiry).unwrap_or(-1)),
                ("idle-s", item.idle_s.into()),
                ("value-bytes", item.value_bytes.into()),
                ("bytes", item.bytes as i64),
            ];
            words::map_head(out, version, rows.len());
            for (name, number) in rows {
                words::bulk(out, name.as_bytes());
                words::integer(out, number);
            }
        }
        Form::Warmth => match item.warmth {
            Some(warmth) => words::integer(out, warmth.into()),
            None => {
                let why = "ERR the warmth of keys is not in the index with this --temperature";
                say_error(output, &errors::made(why));
            }
        },
        _ => words::null(out, version),
    }
}

/// What Redis calls a kind of values.
pub(super) fn type_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Text | Kind::Parts => "string",
        Kind::Hash => "hash",
        Kind::Set => "set",
        Kind::SortedSet => "zset",
    }
}

/// How Redis would encode the value.
fn encoding(item: &LookedItem<'_>) -> &'static str {
    let is_whole_number = |value: &[u8]| value.len() <= 20 && decimal(value).is_some();
    match item.short_value {
        _ if item.kind == Kind::Parts => "raw",
        Some(value) if is_whole_number(value) => "int",
        _ if item.value_bytes <= EMBEDDED_BYTES_MAX => "embstr",
        _ => "raw",
    }
}

fn compose_edited(form: Form, output: &mut Output, version: Version, edited: EditOutcome<'_>) -> Tail {
    let out = output.buffer();
    let error = match edited {
        EditOutcome::Done => {
            match form {
                Form::OkOrNull => words::simple(out, "OK"),
                _ => words::integer(out, 1),
            }
            return b"";
        }
        EditOutcome::NotDone => {
            not_done(form, output, version);
            return b"";
        }
        EditOutcome::Old(Some(value)) => return compose_value(output, value),
        EditOutcome::Old(None) => {
            words::null(out, version);
            return b"";
        }
        EditOutcome::Number(number) => {
            words::integer(out, number);
            return b"";
        }
        EditOutcome::Bit(on) => {
            words::integer(out, on.into());
            return b"";
        }
        EditOutcome::Decimal(text) => {
            words::bulk(out, text);
            return b"";
        }
        EditOutcome::WrongKind => errors::WRONG_KIND,
        EditOutcome::NotInteger => errors::NOT_INTEGER,
        EditOutcome::Overflow => errors::OVERFLOW,
        EditOutcome::NotDecimal => errors::NOT_FLOAT,
        EditOutcome::Infinite => errors::INFINITE,
        EditOutcome::TooLarge => errors::TOO_LARGE,
        EditOutcome::NoMemory => errors::NO_MEMORY,
    };
    say_error(output, &error);
    b""
}

fn compose_copied(form: Form, output: &mut Output, copied: Copied) {
    let out = output.buffer();
    let is_rename = matches!(form, Form::Renamed | Form::RenamedOrNot);
    match copied {
        Copied::Done if matches!(form, Form::Renamed) => words::simple(out, "OK"),
        Copied::Done => words::integer(out, 1),
        Copied::NotFound if is_rename => say_error(output, &errors::NO_SUCH_KEY),
        Copied::NotFound | Copied::Exists => words::integer(out, 0),
        Copied::TooLarge => say_error(output, &errors::TOO_LARGE),
        Copied::NoRoom => say_error(output, &errors::NO_MEMORY),
    }
}
