//! The possible replies to a request, and their meaning.

use super::options::Protocol;
use super::reply::Reply;
use super::wire::Verb;

/// The meaning of a reply for its request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Meaning<'a> {
    /// A value was read; with its CAS number, if there is one.
    Hit(&'a [u8], Option<u64>),
    /// The item is absent, or the condition of the write did not hold.
    NotDone,
    /// The write was done.
    Done,
    /// The new number of the counter.
    Counted(i128),
    /// The stored value is not a number.
    NotANumber,
    /// An error reply.
    Refused(&'a [u8]),
    /// The request cannot have this reply.
    Impossible,
}

/// The meaning of `reply` to a request with this verb and the key with this text.
#[inline]
pub(super) fn meaning<'a>(protocol: Protocol, verb: Verb, key: &[u8], reply: Reply<'a>) -> Meaning<'a> {
    if let Reply::Error(line) = reply {
        let counts = matches!(verb, Verb::Incr | Verb::Decr);
        return if counts && is_not_a_number(line) { Meaning::NotANumber } else { Meaning::Refused(line) };
    }
    match protocol {
        Protocol::Memcached => memcached(verb, key, reply),
        Protocol::Resp => resp(verb, reply),
    }
}

#[inline]
fn memcached<'a>(verb: Verb, key: &[u8], reply: Reply<'a>) -> Meaning<'a> {
    match (verb, reply) {
        (Verb::Get, Reply::Value { key: Some(came), data, .. }) if came == key => Meaning::Hit(data, None),
        (Verb::Gets, Reply::Value { key: Some(came), data, unique: Some(unique) }) if came == key => {
            Meaning::Hit(data, Some(unique))
        }
        (Verb::Get | Verb::Gets, Reply::None) => Meaning::NotDone,
        (Verb::Get | Verb::Gets, _) => Meaning::Impossible,
        (Verb::Delete, Reply::Deleted) => Meaning::Done,
        (Verb::Delete, Reply::NotFound) => Meaning::NotDone,
        (Verb::Incr | Verb::Decr, Reply::Number(number)) => Meaning::Counted(number),
        (Verb::Incr | Verb::Decr, Reply::NotFound) => Meaning::NotDone,
        (Verb::Delete | Verb::Incr | Verb::Decr, _) => Meaning::Impossible,
        (Verb::Cas(_), Reply::Exists | Reply::NotFound) => Meaning::NotDone,
        (_, Reply::Stored) => Meaning::Done,
        (_, Reply::NotStored) => Meaning::NotDone,
        _ => Meaning::Impossible,
    }
}

#[inline]
fn resp(verb: Verb, reply: Reply<'_>) -> Meaning<'_> {
    match (verb, reply) {
        (Verb::Get | Verb::Gets, Reply::Value { data, .. }) => Meaning::Hit(data, None),
        (Verb::Get | Verb::Gets | Verb::Add | Verb::Replace, Reply::None) => Meaning::NotDone,
        (Verb::Delete, Reply::Number(1)) => Meaning::Done,
        (Verb::Delete, Reply::Number(0)) => Meaning::NotDone,
        (Verb::Incr | Verb::Decr, Reply::Number(number)) => Meaning::Counted(number),
        (Verb::Append, Reply::Number(0..)) => Meaning::Done,
        (Verb::Set | Verb::Add | Verb::Replace | Verb::Cas(_) | Verb::Prepend, Reply::Stored) => {
            Meaning::Done
        }
        _ => Meaning::Impossible,
    }
}

/// Whether an error line says that the value to count with is not a number.
fn is_not_a_number(line: &[u8]) -> bool {
    let line = String::from_utf8_lossy(line);
    line.contains("non-numeric") || line.contains("not an integer")
}

/// The two possible numbers after counting from a known number.
pub(super) fn counts_possible(protocol: Protocol, verb: Verb, before: i128) -> (i128, i128) {
    let down = verb == Verb::Decr;
    match protocol {
        Protocol::Memcached => {
            let after = if down { (before - 1).max(0) } else { (before + 1) & i128::from(u64::MAX) };
            (after, after)
        }
        // A key that was evicted in the meantime starts at zero.
        Protocol::Resp => {
            let step = if down { -1 } else { 1 };
            (before + step, step)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Verb; 11] = [
        Verb::Get,
        Verb::Gets,
        Verb::Set,
        Verb::Add,
        Verb::Replace,
        Verb::Cas(1),
        Verb::Append,
        Verb::Prepend,
        Verb::Delete,
        Verb::Incr,
        Verb::Decr,
    ];

    fn possible(protocol: Protocol, reply: Reply<'_>) -> Vec<&'static str> {
        let fits = |verb: &&Verb| meaning(protocol, **verb, b"k", reply) != Meaning::Impossible;
        ALL.iter().filter(fits).map(|verb| verb.name()).collect()
    }

    #[test]
    fn each_memcached_reply_fits_only_its_requests() {
        let fit = |reply| possible(Protocol::Memcached, reply);
        let storing = ["set", "add", "replace", "cas", "append", "prepend"];
        assert_eq!(fit(Reply::None), ["get", "gets"]);
        assert_eq!(fit(Reply::Stored), storing);
        assert_eq!(fit(Reply::NotStored), storing);
        assert_eq!(fit(Reply::Exists), ["cas"]);
        assert_eq!(fit(Reply::NotFound), ["cas", "delete", "incr", "decr"]);
        assert_eq!(fit(Reply::Deleted), ["delete"]);
        assert_eq!(fit(Reply::Number(5)), ["incr", "decr"]);
        assert_eq!(fit(Reply::Value { key: Some(b"k"), unique: None, data: b"" }), ["get"]);
        assert_eq!(fit(Reply::Value { key: Some(b"k"), unique: Some(1), data: b"" }), ["get", "gets"]);
        assert!(fit(Reply::Value { key: Some(b"other"), unique: Some(1), data: b"" }).is_empty());
        assert_eq!(fit(Reply::Error(b"ERROR")).len(), ALL.len());
    }

    #[test]
    fn each_resp_reply_fits_only_its_requests() {
        let fit = |reply| possible(Protocol::Resp, reply);
        assert_eq!(fit(Reply::None), ["get", "gets", "add", "replace"]);
        assert_eq!(fit(Reply::Stored), ["set", "add", "replace", "cas", "prepend"]);
        assert_eq!(fit(Reply::Number(-1)), ["incr", "decr"]);
        // An empty value appended to an absent item.
        assert_eq!(fit(Reply::Number(0)), ["append", "delete", "incr", "decr"]);
        assert_eq!(fit(Reply::Number(1)), ["append", "delete", "incr", "decr"]);
        assert_eq!(fit(Reply::Value { key: None, unique: None, data: b"" }), ["get", "gets"]);
    }

    #[test]
    fn a_value_that_is_no_number_is_no_error_of_the_server() {
        let said = b"CLIENT_ERROR cannot increment or decrement non-numeric value";
        assert_eq!(meaning(Protocol::Memcached, Verb::Incr, b"k", Reply::Error(said)), Meaning::NotANumber);
        let said = b"-ERR value is not an integer or out of range";
        assert_eq!(meaning(Protocol::Resp, Verb::Decr, b"k", Reply::Error(said)), Meaning::NotANumber);
        assert_eq!(meaning(Protocol::Resp, Verb::Get, b"k", Reply::Error(said)), Meaning::Refused(said));
    }

    #[test]
    fn counts_follow_the_servers_rules() {
        assert_eq!(counts_possible(Protocol::Memcached, Verb::Decr, 0), (0, 0));
        assert_eq!(counts_possible(Protocol::Memcached, Verb::Incr, u64::MAX.into()), (0, 0));
        assert_eq!(counts_possible(Protocol::Resp, Verb::Decr, 0), (-1, -1));
        assert_eq!(counts_possible(Protocol::Resp, Verb::Incr, 6), (7, 1));
    }
}
