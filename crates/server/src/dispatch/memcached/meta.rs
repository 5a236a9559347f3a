//! The meta commands of memcached's text protocol: `mg`, `ms`, `md`, `ma` and `me`; and `mf`, which is Larder's own.
//!
//! A flag that asks for an effect is read in [`command`]. A flag that asks for something in the reply is worded in
//! [`compose`], in the order in which the request has its flags.

use super::classic::stored_text;
use super::client_time::ClientTime;
use crate::dispatch::operation::{
    Create, DeleteItem, ItemKey, Look, OldItem, Operation, Part, Read, Recache, StoreItem, THE_CLASS,
    ValueWanted,
};
use crate::dispatch::outcome::{
    ItemDetails, ItemValue, Looked, LookedItem, Outcome, ReadOutcome, Refusal, Tail,
};
use crate::dispatch::output::Output;
use crate::latency::Class;
use larder_cache::{
    Arith, ArithOutcome, Delete, DeleteOutcome, Expiry, KEY_BYTES_MAX, KeyHash, Mode, Store, StoreOutcome,
    Subclass,
};
use larder_protocol::{Meta, MetaVerb, compose as words, decode_key, reply};

/// How a meta request is answered: by its own flags.
pub(in crate::dispatch) struct Form<'a> {
    meta: &'a Meta<'a>,
    /// The key itself, decoded if it was sent in base64.
    key: &'a [u8],
    time: ClientTime,
}

impl<'a> Form<'a> {
    pub(super) fn new(meta: &'a Meta<'a>, key: &'a [u8], time: ClientTime) -> Form<'a> {
        Form { meta, key, time }
    }

    /// Shows the key as `key`, whatever the item calls it.
    pub(super) fn showing(self, key: &'a [u8]) -> Form<'a> {
        Form { key, ..self }
    }
}

/// What the reply to a write can show.
struct Shown {
    cas: u64,
    value_bytes: u32,
    /// The expiry that the flag `t` shows in front of flags that change it.
    expiry: Option<Expiry>,
    /// The request created the item, so that the flag `N` changes its expiry.
    created: bool,
}

/// The key that a request with the flag `b` means.
pub(super) fn decoded_key<'b>(meta: &Meta<'_>, buffer: &'b mut [u8; KEY_BYTES_MAX]) -> &'b [u8] {
    decode_key(meta.key, buffer).unwrap_or(&[])
}

// ---- requests ----

/// Reads a meta request as an operation on `key`.
#[inline]
pub(super) fn command<'a>(
    meta: &Meta<'a>,
    key: &'a [u8],
    hash: KeyHash,
    time: ClientTime,
) -> (Operation<'a>, Class) {
    match meta.verb {
        MetaVerb::Get => (Operation::Read(read(meta, key, hash, time)), Class::MetaGet),
        MetaVerb::Set => (Operation::Store(store_item(meta, key, hash, time)), Class::MetaSet),
        MetaVerb::Delete => (Operation::Delete(delete_item(meta, key, hash, time)), Class::Delete),
        MetaVerb::Arith => (Operation::Arith(arith(meta, key, hash, time)), Class::Arith),
        MetaVerb::Flush => (Operation::FlushPrefix { prefix: key }, Class::Other),
        MetaVerb::Debug => {
            let key = ItemKey { key, hash, head: &[] };
            (Operation::Look(Look { key, part: Part::Description, leaves_no_trace: true }), Class::Other)
        }
    }
}

#[inline]
fn read<'a>(meta: &Meta<'_>, key: &'a [u8], hash: KeyHash, time: ClientTime) -> Read<'a> {
    let flags = &meta.flags;
    let mut touch = None;
    let mut recache = Recache::WhenStale;
    // What changes the expiry and what looks at it act in the order in which they are written.
    if flags.has(b'T') || flags.has(b'R') {
        for (letter, _) in flags.iter() {
            match letter {
                b'T' => touch = Some(time.expiry(flags.ttl)),
                b'R' => {
                    let limit = time.expiry(flags.r);
                    recache = match touch {
                        None => Recache::Before(limit),
                        Some(new) if new != Expiry::NEVER && new < limit => Recache::Always,
                        Some(_) => Recache::WhenStale,
                    };
                }
                _ => {}
            }
        }
    }
    Read {
        key,
        hash,
        value: match (flags.has(b'v'), flags.has(b'C')) {
            (false, _) => ValueWanted::No,
            (true, false) => ValueWanted::Yes,
            (true, true) => ValueWanted::UnlessCas(flags.compare),
        },
        with_cas: flags.has(b'c'),
        leaves_no_trace: flags.has(b'u'),
        create: flags.has(b'N').then(|| Create {
            expiry: time.expiry(flags.n),
            final_expiry: expiry_of_new(meta, time),
            explicit_cas: flags.has(b'E').then_some(flags.explicit_cas),
            binary_key: flags.has(b'b'),
        }),
        touch,
        recache,
    }
}

fn store_item<'a>(meta: &Meta<'a>, key: &'a [u8], hash: KeyHash, time: ClientTime) -> StoreItem<'a> {
    let flags = &meta.flags;
    let mode = match flags.mode {
        b'E' => Mode::Add,
        b'A' => Mode::Append,
        b'P' => Mode::Prepend,
        b'R' => Mode::Replace,
        _ => Mode::Set,
    };
    let joins = matches!(mode, Mode::Append | Mode::Prepend);
    StoreItem {
        store: Store {
            key,
            hash,
            mode,
            flags: flags.client_flags,
            expiry: time.expiry(flags.ttl),
            value: meta.data,
            compare: flags.has(b'C').then_some(flags.compare),
            // 0 stands for the next number.
            explicit_cas: Some(flags.explicit_cas).filter(|&cas| cas != 0),
            invalidate: flags.has(b'I'),
            vivify: flags.has(b'N').then(|| time.expiry(flags.n)),
            binary_key: flags.has(b'b'),
            penalty: flags.has(b'G').then(|| Subclass::of_us(flags.penalty_us)),
            marks_parts: false,
        },
        value_bytes: meta.bytes,
        // An item that was to be added to stays, unless the addition alone is too large.
        old_if_refused: if joins { OldItem::GoesIfTooLarge } else { OldItem::Goes },
        counts_prefix: false,
    }
}

fn delete_item<'a>(meta: &Meta<'_>, key: &'a [u8], hash: KeyHash, time: ClientTime) -> DeleteItem<'a> {
    let flags = &meta.flags;
    DeleteItem {
        delete: Delete {
            key,
            hash,
            compare: flags.has(b'C').then_some(flags.compare),
            explicit_cas: flags.has(b'E').then_some(flags.explicit_cas),
            invalidate: flags.has(b'I'),
            drop_value: flags.has(b'x'),
            expiry: flags.has(b'T').then(|| time.expiry(flags.ttl)),
            flags: flags.client_flags,
        },
        is_answered: true,
        counts_prefix: false,
    }
}

fn arith<'a>(meta: &Meta<'_>, key: &'a [u8], hash: KeyHash, time: ClientTime) -> Arith<'a> {
    let flags = &meta.flags;
    Arith {
        key,
        hash,
        increment: flags.mode == b'I',
        delta: flags.delta,
        initial: flags.has(b'N').then(|| (expiry_of_new(meta, time), flags.initial)),
        compare: flags.has(b'C').then_some(flags.compare),
        explicit_cas: flags.has(b'E').then_some(flags.explicit_cas),
        expiry: flags.has(b'T').then(|| time.expiry(flags.ttl)),
        binary_key: flags.has(b'b'),
    }
}

/// The expiry of an item that a request with the flag `N` creates: that of the last of its flags `N` and `T`.
fn expiry_of_new(meta: &Meta<'_>, time: ClientTime) -> Expiry {
    let flags = &meta.flags;
    let last = flags.iter().map(|(letter, _)| letter).filter(|letter| matches!(letter, b'N' | b'T')).last();
    time.expiry(if last == Some(b'T') { flags.ttl } else { flags.n })
}

// ---- replies ----

/// Words the outcome of a meta request.
pub(super) fn compose(form: &Form<'_>, output: &mut Output, outcome: Outcome<'_>) -> Tail {
    match outcome {
        Outcome::Read(ReadOutcome::Hit(item)) => return compose_hit(form, output, &item),
        Outcome::Read(ReadOutcome::Miss) => compose_miss(form, output),
        Outcome::Read(ReadOutcome::NoMemoryToShow) => output.say(reply::NO_MEMORY_GET),
        Outcome::Read(ReadOutcome::NoMemoryToCreate) => output.say(reply::NO_MEMORY_NEW_ITEM),
        Outcome::Stored(outcome) => compose_stored(form, output, outcome),
        Outcome::Deleted(outcome) => compose_deleted(form, output, outcome),
        Outcome::Counted(outcome) => compose_counted(form, output, outcome),
        Outcome::Looked(Looked::Description(item)) => compose_described(form, output, &item),
        Outcome::Looked(_) => output.say(reply::META_MISS),
        Outcome::BadUploadEnd => output.say(reply::BAD_CHUNK),
        Outcome::NoMemoryForUpload => output.say(reply::NO_MEMORY_DURING_READ),
        // Of the meta commands only `mf` ends so.
        Outcome::Done if form.meta.flags.has(b'q') => {}
        Outcome::Done => compose_flags(form, output.buffer(), "HD", None),
        Outcome::Refused(Refusal::Disabled) => output.say(reply::FLUSH_PREFIX_NOT_ALLOWED),
        Outcome::Refused(Refusal::BadPrefix) => output.say(reply::BAD_PREFIX),
        Outcome::Refused(Refusal::TooManyPrefixes) => output.say(reply::TOO_MANY_PREFIXES),
        Outcome::Refused(_) => output.say(reply::READ_ONLY),
        _ => output.say(reply::ERROR),
    }
    b""
}

fn compose_hit(form: &Form<'_>, output: &mut Output, item: &ItemDetails<'_>) -> Tail {
    let Form { meta, key, time } = form;
    let flags = &meta.flags;
    let out = output.buffer();
    match item.value {
        Some(_) => words::meta_value(out, item.value_bytes),
        None => out.extend_from_slice(b"HD"),
    }
    // The flags `N` and `T` change the expiry that a `t` behind them shows.
    let mut expiry = if item.created { Expiry::NEVER } else { item.expiry };
    for (letter, rest) in flags.iter() {
        match letter {
            b'N' if item.created => expiry = time.expiry(flags.n),
            b'T' => expiry = time.expiry(flags.ttl),
            b't' => compose_ttl(out, *time, expiry),
            b'f' => words::meta_number(out, b'f', item.flags.into()),
            b'c' => words::meta_number(out, b'c', item.cas),
            b's' => words::meta_number(out, b's', item.value_bytes.into()),
            b'h' => words::meta_number(out, b'h', item.was_fetched.into()),
            b'l' => words::meta_number(out, b'l', item.idle_s.into()),
            b'g' => compose_penalty(out, item.penalty),
            b'O' => words::meta_token(out, b'O', rest),
            b'k' => words::meta_key(out, key, item.binary_key),
            _ => {}
        }
    }
    for (is_shown, letter) in [(item.token_taken, b'Z'), (item.is_stale, b'X'), (item.token_won, b'W')] {
        if is_shown {
            words::meta_flag(out, letter);
        }
    }
    out.extend_from_slice(b"\r\n");
    if let Some(ItemValue::Whole(value)) = item.value {
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }
    b"\r\n"
}

fn compose_miss(form: &Form<'_>, output: &mut Output) {
    let flags = &form.meta.flags;
    if flags.has(b'q') {
        return;
    }
    if flags.opaque.is_none() && !flags.has(b'k') {
        return output.say(reply::META_MISS);
    }
    compose_flags(form, output.buffer(), "EN", None);
}

fn compose_stored(form: &Form<'_>, output: &mut Output, outcome: StoreOutcome) {
    let shown = |cas, value_bytes| Shown { cas, value_bytes, expiry: None, created: false };
    let (code, shown) = match outcome {
        StoreOutcome::Stored { .. } if form.meta.flags.has(b'q') => return,
        StoreOutcome::Stored { cas, value_bytes } => ("HD", shown(cas, value_bytes)),
        StoreOutcome::NotStored => ("NS", shown(0, form.meta.bytes)),
        StoreOutcome::Exists => ("EX", shown(0, form.meta.bytes)),
        StoreOutcome::NotFound => ("NF", shown(0, form.meta.bytes)),
        StoreOutcome::TooLarge | StoreOutcome::NoRoom => return output.say(stored_text(outcome)),
    };
    compose_flags(form, output.buffer(), code, Some(&shown));
}

fn compose_deleted(form: &Form<'_>, output: &mut Output, outcome: DeleteOutcome) {
    let code = match outcome {
        DeleteOutcome::Deleted if form.meta.flags.has(b'q') => return,
        DeleteOutcome::Deleted => "HD",
        DeleteOutcome::NotFound => "NF",
        DeleteOutcome::Exists => "EX",
        DeleteOutcome::NoRoom => return output.say(reply::NO_MEMORY),
    };
    compose_flags(form, output.buffer(), code, None);
}

fn compose_counted(form: &Form<'_>, output: &mut Output, outcome: ArithOutcome) {
    let flags = &form.meta.flags;
    match outcome {
        ArithOutcome::Done { .. } if flags.has(b'q') => {}
        ArithOutcome::Done { value, cas, expiry, created } => {
            let expiry = if created { Expiry::NEVER } else { expiry };
            let shown = Shown { cas, value_bytes: 0, expiry: Some(expiry), created };
            let out = output.buffer();
            if flags.has(b'v') {
                let digits = value.checked_ilog10().unwrap_or(0) + 1;
                out.extend_from_slice(b"VA ");
                words::decimal(out, digits.into());
                compose_flags(form, out, "", Some(&shown));
                words::number_line(out, value);
            } else {
                compose_flags(form, out, "HD", Some(&shown));
            }
        }
        ArithOutcome::NotFound => compose_flags(form, output.buffer(), "NF", None),
        ArithOutcome::Exists => compose_flags(form, output.buffer(), "EX", None),
        ArithOutcome::NonNumeric => output.say(reply::NON_NUMERIC),
        ArithOutcome::NoRoom if flags.has(b'N') => output.say(reply::NO_MEMORY_NEW_ITEM),
        ArithOutcome::NoRoom => output.say(reply::NO_MEMORY),
    }
}

fn compose_described(form: &Form<'_>, output: &mut Output, item: &LookedItem<'_>) {
    // Whole seconds tell it all, unless a client of RESP named milliseconds.
    let left_ms = item.left_ms.filter(|_| item.expiry.milliseconds().is_some_and(|at_ms| at_ms % 1000 != 0));
    let report = words::ItemReport {
        key: form.key,
        expiry: form.time.remaining_s(item.expiry).map_or(-1, i64::from),
        last_access: item.idle_s.into(),
        cas: item.cas,
        fetched: item.was_fetched,
        class: THE_CLASS,
        bytes: item.bytes,
        flags: item.flags,
    };
    words::meta_debug_line(output.buffer(), item.binary_key, &report, left_ms.map(|ms| ms as u64));
}

/// A reply of a code and the return flags, in the order in which the request has its flags.
fn compose_flags(form: &Form<'_>, out: &mut Vec<u8>, code: &str, shown: Option<&Shown>) {
    let Form { meta, key, time } = form;
    let flags = &meta.flags;
    out.extend_from_slice(code.as_bytes());
    // The flags `N` and `T` change the expiry that a `t` behind them shows.
    let mut expiry = shown.and_then(|shown| shown.expiry);
    for (letter, rest) in flags.iter() {
        match (letter, shown) {
            (b'N', Some(shown)) if shown.created => expiry = Some(time.expiry(flags.n)),
            (b'T', _) => expiry = expiry.map(|_| time.expiry(flags.ttl)),
            (b'O', _) => words::meta_token(out, b'O', rest),
            (b'k', _) => words::meta_key(out, key, flags.has(b'b')),
            (b'c', Some(shown)) => words::meta_number(out, b'c', shown.cas),
            (b's', Some(shown)) if meta.verb == MetaVerb::Set => {
                words::meta_number(out, b's', shown.value_bytes.into());
            }
            (b't', _) => {
                if let Some(expiry) = expiry {
                    compose_ttl(out, *time, expiry);
                }
            }
            _ => {}
        }
    }
    out.extend_from_slice(b"\r\n");
}

/// What a miss of the item costs at most, in microseconds; -1 = that is unknown.
fn compose_penalty(out: &mut Vec<u8>, penalty: Option<Subclass>) {
    match penalty {
        None => out.extend_from_slice(b" g-1"),
        Some(subclass) => words::meta_number(out, b'g', Subclass::PENALTY_US_MAX[subclass.number()].into()),
    }
}

fn compose_ttl(out: &mut Vec<u8>, time: ClientTime, expiry: Expiry) {
    match time.remaining_s(expiry) {
        None => out.extend_from_slice(b" t-1"),
        Some(left_s) => words::meta_number(out, b't', left_s.into()),
    }
}
