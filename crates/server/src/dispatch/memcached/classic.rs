//! The classic commands of memcached's text protocol: `get`, `set`, `delete`, `incr`, ...

use super::classic_admin;
use super::client_time::ClientTime;
use super::form::{Form, Words};
use crate::dispatch::operation::{DeleteItem, ListingForm, OldItem, Operation, StoreItem, THE_CLASS};
use crate::dispatch::outcome::{
    FoundItem, GetOutcome, ItemValue, ListingPage, Outcome, Refusal, StatRows, Tail,
};
use crate::dispatch::output::Output;
use crate::dispatch::own_keys::{OwnKeys, shown_to};
use crate::dispatch::prefixes::PrefixCount;
use crate::latency::Class;
use larder_cache::{
    Arith, ArithOutcome, Delete, DeleteOutcome, KeyHash, Listed, Mode, Store, StoreOutcome, Touched,
};
use larder_protocol::{Request, Store as StoreRequest, StoreVerb, compose as words, reply};

/// Bytes of a line of `stats cachedump` beside its key, at most.
const CACHEDUMP_LINE_BYTES: usize = 48;

/// Reads a classic request as an operation.
#[inline(always)]
pub(super) fn command<'a>(
    request: &Request<'a>,
    key: &'a [u8],
    hash: KeyHash,
    time: ClientTime,
    is_behind_others: bool,
) -> (Operation<'a>, Form, Class) {
    match request {
        Request::Store(store) => {
            let operation = Operation::Store(store_item(store, key, hash, time));
            (operation, Form::Data { noreply: store.noreply }, Class::Set)
        }
        Request::Delete { noreply, .. } => {
            let delete = Delete::of(key, hash);
            let item = DeleteItem { delete, is_answered: !noreply, counts_prefix: true };
            (Operation::Delete(item), Form::Data { noreply: *noreply }, Class::Delete)
        }
        Request::Touch { exptime, noreply, .. } => {
            let operation = Operation::Touch { key, hash, expiry: time.expiry(*exptime), shows_item: false };
            (operation, Form::Data { noreply: *noreply }, Class::Touch)
        }
        Request::Arith { incr, delta, noreply, .. } => {
            let arith = Arith::of(key, hash, *incr, *delta);
            (Operation::Arith(arith), Form::Data { noreply: *noreply }, Class::Arith)
        }
        other => {
            let (operation, form) = classic_admin::command(other, time, is_behind_others);
            (operation, form, Class::Other)
        }
    }
}

#[inline(always)]
fn store_item<'a>(store: &StoreRequest<'a>, key: &'a [u8], hash: KeyHash, time: ClientTime) -> StoreItem<'a> {
    let mode = match store.verb {
        StoreVerb::Set | StoreVerb::Cas => Mode::Set,
        StoreVerb::Add => Mode::Add,
        StoreVerb::Replace => Mode::Replace,
        StoreVerb::Append => Mode::Append,
        StoreVerb::Prepend => Mode::Prepend,
    };
    let is_plain_set = store.verb == StoreVerb::Set;
    StoreItem {
        store: Store {
            mode,
            flags: store.flags,
            expiry: time.expiry(store.exptime),
            compare: (store.verb == StoreVerb::Cas).then_some(store.cas),
            ..Store::set(key, hash, store.data)
        },
        value_bytes: store.bytes,
        old_if_refused: if is_plain_set { OldItem::Goes } else { OldItem::Stays },
        counts_prefix: true,
    }
}

/// Words the outcome of one key of a retrieval. `is_last` = no key of the line follows.
#[inline(always)]
pub(in crate::dispatch) fn compose_get(
    output: &mut Output,
    key: &[u8],
    is_last: bool,
    outcome: GetOutcome<'_>,
) -> Tail {
    match outcome {
        GetOutcome::Hit(FoundItem { flags, cas, value: ItemValue::Whole(value) }) => {
            words::value(output.buffer(), key, flags, value, cas);
        }
        GetOutcome::Hit(FoundItem { flags, cas, value: ItemValue::Streamed { bytes } }) => {
            words::value_line(output.buffer(), key, flags, bytes, cas);
            return if is_last { b"\r\nEND\r\n" } else { b"\r\n" };
        }
        GetOutcome::Miss | GetOutcome::WrongKind => {}
        // A miss would make the client fetch and store what is here. memcached has words for this.
        GetOutcome::NoMemory => {
            output.say(reply::NO_MEMORY_GET);
            output.close_failed();
            return b"";
        }
    }
    if is_last {
        output.buffer().extend_from_slice(reply::END.as_bytes());
    }
    b""
}

/// Words the outcome of every other classic request.
#[inline(always)]
pub(super) fn compose(form: &Form, output: &mut Output, outcome: Outcome<'_>) -> Tail {
    match (form, outcome) {
        (Form::Data { noreply: true }, _) => {}
        // The most frequent one is worded in place.
        (Form::Data { .. }, Outcome::Stored(stored)) => output.say(stored_text(stored)),
        (form, outcome) => compose_other(form, output, outcome),
    }
    b""
}

fn compose_other(form: &Form, output: &mut Output, outcome: Outcome<'_>) {
    match form {
        Form::Data { .. } => compose_data(output, outcome),
        Form::Fixed(text) => output.say(text),
        Form::Admin { noreply: true, .. } => {}
        Form::Admin { words, .. } => compose_admin(words, output, outcome),
    }
}

#[inline]
fn compose_data(output: &mut Output, outcome: Outcome<'_>) {
    let text = match outcome {
        Outcome::Deleted(DeleteOutcome::Deleted) => reply::DELETED,
        Outcome::Deleted(_) => reply::NOT_FOUND,
        Outcome::Touched(Touched::Done) => reply::TOUCHED,
        Outcome::Touched(Touched::NotFound) => reply::NOT_FOUND,
        Outcome::Touched(Touched::NoRoom) => reply::NO_MEMORY,
        Outcome::Counted(ArithOutcome::Done { value, .. }) => {
            return words::number_line(output.buffer(), value);
        }
        Outcome::Counted(ArithOutcome::NotFound) => reply::NOT_FOUND,
        Outcome::Counted(ArithOutcome::NonNumeric) => reply::NON_NUMERIC,
        Outcome::Counted(ArithOutcome::Exists) => reply::EXISTS,
        Outcome::Counted(ArithOutcome::NoRoom) => reply::NO_MEMORY,
        Outcome::BadUploadEnd => reply::BAD_CHUNK,
        Outcome::NoMemoryForUpload => reply::NO_MEMORY_DURING_READ,
        Outcome::Refused(_) => reply::READ_ONLY,
        _ => reply::ERROR,
    };
    output.say(text);
}

/// The words of a store. The meta commands have no others for stores that were refused.
#[inline]
pub(super) fn stored_text(outcome: StoreOutcome) -> &'static str {
    match outcome {
        StoreOutcome::Stored { .. } => reply::STORED,
        StoreOutcome::NotStored => reply::NOT_STORED,
        StoreOutcome::Exists => reply::EXISTS,
        StoreOutcome::NotFound => reply::NOT_FOUND,
        StoreOutcome::TooLarge => reply::TOO_LARGE,
        StoreOutcome::NoRoom => reply::NO_MEMORY_STORING,
    }
}

fn compose_admin(form: &Words, output: &mut Output, outcome: Outcome<'_>) {
    match outcome {
        Outcome::Done => output.say(form.done),
        Outcome::Closed => output.close(),
        Outcome::Version(version) => words::version_line(output.buffer(), version),
        Outcome::Stats(rows) => compose_stats(output, rows),
        Outcome::Prefixes(counts) => output.buffer().extend_from_slice(&prefix_lines(counts)),
        Outcome::Certificates(None) => output.say(reply::TLS_NOT_ENABLED),
        Outcome::Certificates(Some(Ok(()))) => output.say(form.done),
        Outcome::Certificates(Some(Err(error))) => {
            output.say(&format!("Error loading the certificates: {error}\r\n"))
        }
        Outcome::Fleet(list) => words::fleet(output.buffer(), list),
        Outcome::EmptyList => output.say(reply::END),
        Outcome::Refused(refusal) => output.say(match refusal {
            Refusal::Disabled => form.disabled,
            Refusal::NotAllowed => reply::READ_ONLY,
            Refusal::OfOthers => reply::OF_OTHERS,
            Refusal::BadPrefix => reply::BAD_PREFIX,
            Refusal::TooManyPrefixes => reply::TOO_MANY_PREFIXES,
            Refusal::NotFirst => form.not_first,
            Refusal::NotByDatagram => reply::NOT_OVER_UDP,
            Refusal::Malformed => reply::BAD_SHUTDOWN,
            Refusal::NoSuchNamespace => reply::NO_SUCH_NAMESPACE,
            Refusal::TooManyWatchers => reply::WATCHER_TOO_MANY,
            Refusal::NoRoomToWatch => reply::WATCHER_FAILED,
            Refusal::LimitTooSmall => reply::MEMLIMIT_TOO_SMALL,
            Refusal::LimitOfWrongUnit => reply::MEMLIMIT_NOT_MEGABYTES,
            Refusal::LimitOutOfBounds => reply::MEMLIMIT_OUT_OF_BOUNDS,
        }),
        _ => output.say(reply::ERROR),
    }
}

fn compose_stats(output: &mut Output, rows: &StatRows) {
    let out = output.buffer();
    for (name, value) in rows.iter() {
        words::stat_line(out, name.as_bytes(), value.as_bytes());
    }
    output.say(reply::END);
}

/// The lines of `stats detail dump`.
pub(super) fn prefix_lines(counts: &[(Vec<u8>, PrefixCount)]) -> Vec<u8> {
    let mut lines = Vec::new();
    for (prefix, PrefixCount { get, hit, set, del }) in counts {
        lines.extend_from_slice(b"PREFIX ");
        lines.extend_from_slice(prefix);
        lines.extend_from_slice(format!(" get {get} hit {hit} set {set} del {del}\r\n").as_bytes());
    }
    lines.extend_from_slice(reply::END.as_bytes());
    lines
}

/// Words the next items of a dump, as far as they are the client's. Returns whether more of them are wanted.
pub(in crate::dispatch) fn compose_listing(
    output: &mut Output,
    page: ListingPage<'_>,
    own_keys: Option<&OwnKeys>,
) -> bool {
    let out = output.buffer();
    for item in page.items {
        let Some(key) = shown_to(own_keys, &item.key) else { continue };
        match page.form {
            // Only RESP has an empty key, and only as that of a user who has a namespace. No line can name it.
            ListingForm::Keys | ListingForm::Sizes { .. } if key.is_empty() => {}
            ListingForm::Keys => words::mgdump_line(out, key, item.binary_key),
            ListingForm::Everything => words::metadump_line(out, &report(item, key)),
            ListingForm::Sizes { items_left, bytes_left } => {
                let line_bytes_max = key.len() + CACHEDUMP_LINE_BYTES;
                if *items_left == 0 || *bytes_left < line_bytes_max || item.binary_key {
                    continue;
                }
                let before = out.len();
                out.extend_from_slice(b"ITEM ");
                out.extend_from_slice(key);
                let expires = item.expires_unix_s.max(0);
                out.extend_from_slice(format!(" [{} b; {expires} s]\r\n", item.value_bytes).as_bytes());
                *items_left -= 1;
                *bytes_left -= out.len() - before;
            }
        }
    }
    let is_full = matches!(page.form, ListingForm::Sizes { items_left: 0, .. });
    let has_more = !page.is_last && !is_full;
    if !has_more {
        output.say(if matches!(page.form, ListingForm::Keys) { reply::META_MISS } else { reply::END });
    }
    has_more
}

fn report<'a>(item: &Listed, key: &'a [u8]) -> words::ItemReport<'a> {
    words::ItemReport {
        key,
        expiry: item.expires_unix_s,
        last_access: item.accessed_unix_s,
        cas: item.cas,
        fetched: item.fetched,
        class: THE_CLASS,
        bytes: item.bytes,
        flags: item.flags,
    }
}
