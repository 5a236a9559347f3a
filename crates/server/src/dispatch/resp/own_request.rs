//! Requests of a user with a namespace, with the namespace before their keys.

use crate::dispatch::own_keys::OwnKeys;
use larder_protocol::resp::{Args, Command, Keys, command_of, compose as words};
use std::borrow::Cow;
use std::sync::Arc;

/// A request of RESP, or the beginning of one with `count` arguments, with the prefix before its keys.
pub(super) fn own_request<'r>(
    own: &OwnKeys,
    args: Args<'_>,
    count: usize,
    room: &'r mut Vec<u8>,
) -> Args<'r> {
    let prefix = own.prefix();
    let here = args.len();
    let is_key = command_of(args).map(|command| command.keys.places(args, count));
    room.clear();
    for (place, word) in args.enumerate() {
        match is_key.as_ref().is_some_and(|is_key| is_key(place)) {
            true => {
                words::bulk_head(room, prefix.len() + word.len());
                room.extend_from_slice(prefix);
                room.extend_from_slice(word);
                room.extend_from_slice(b"\r\n");
            }
            false => words::bulk(room, word),
        }
    }
    Args::new(room, here)
}

/// The keys of a request, as the items have them. Those of a script do not stand in the request as the items have them,
/// unlike all others.
pub(super) fn item_keys<'a>(
    own: Option<&'a Arc<OwnKeys>>,
    command: &Command,
    args: Args<'a>,
) -> impl Iterator<Item = Cow<'a, [u8]>> + Clone {
    let own = own.filter(|_| command.keys == Keys::COUNTED);
    command.keys.of(args).map(move |key| match own {
        Some(own) => Cow::Owned([own.prefix(), key].concat()),
        None => Cow::Borrowed(key),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_of_resp_keeps_what_is_no_key() {
        let own = OwnKeys::new("a", b':');
        let rewritten = |line: &str| {
            let mut request = Vec::new();
            line.split(' ').for_each(|word| words::bulk(&mut request, word.as_bytes()));
            let count = line.split(' ').count();
            let mut room = b"what was there before".to_vec();
            let args = own_request(&own, Args::new(&request, count), count, &mut room);
            args.map(|word| std::str::from_utf8(word).expect("text")).collect::<Vec<_>>().join(" ")
        };
        for (sent, executed) in [
            ("GET k", "GET a:k"),
            ("set k a:k EX 5", "set a:k a:k EX 5"),
            ("MSET k 1 j 2", "MSET a:k 1 a:j 2"),
            ("DEL k j i", "DEL a:k a:j a:i"),
            ("RENAME k j", "RENAME a:k a:j"),
            ("OBJECT FREQ k", "OBJECT FREQ a:k"),
            ("LARDER ITEM k", "LARDER ITEM a:k"),
            ("KEYS *", "KEYS *"),
            ("PING k", "PING k"),
            ("NOSUCH k", "NOSUCH k"),
        ] {
            assert_eq!(rewritten(sent), executed);
        }
    }
}
