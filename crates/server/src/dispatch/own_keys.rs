//! The keys of a user who has a namespace (`--user-namespaces`).
//!
//! The items of such a user have keys that begin with the **prefix**, the name of the namespace and the delimiter. The
//! user neither sends nor sees the prefix: it is put before every key of a request and taken from every key of a reply.
//! So the shares, the counters and the longest time to live of the namespace are those of the user, a delete by prefix
//! deletes what the user has, and two users with the same key have two items.

use larder_cache::KEY_BYTES_MAX;
use larder_protocol::resp::{Args, command_of, compose as words};

/// Room for one key with its prefix.
pub(super) type OwnKeyRoom = [u8; KEY_BYTES_MAX];

/// Which keys are a user's.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct OwnKeys {
    prefix: Box<[u8]>,
}

impl OwnKeys {
    pub(super) fn new(namespace: &str, delimiter: u8) -> OwnKeys {
        OwnKeys { prefix: [namespace.as_bytes(), &[delimiter]].concat().into() }
    }

    /// What the keys of the items begin with.
    pub(super) fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// The key of the item that the user calls `key`, for protocols whose keys are those of items. `None` = the item
    /// cannot have it: it is too long.
    pub(super) fn item_key<'r>(&self, key: &[u8], room: &'r mut OwnKeyRoom) -> Option<&'r [u8]> {
        let (prefix_bytes, bytes) = (self.prefix.len(), self.prefix.len() + key.len());
        let whole = room.get_mut(..bytes)?;
        whole[..prefix_bytes].copy_from_slice(&self.prefix);
        whole[prefix_bytes..].copy_from_slice(key);
        Some(whole)
    }

    /// What the user calls the item with this key. `None` = it is not the user's.
    pub(super) fn shown<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        key.strip_prefix(&*self.prefix)
    }

    /// A request of RESP, or the beginning of one with `count` arguments, with the prefix before its keys.
    pub(super) fn request<'r>(&self, args: Args<'_>, count: usize, room: &'r mut Vec<u8>) -> Args<'r> {
        let (keys, here) = (command_of(args).map(|command| command.keys), args.len());
        room.clear();
        for (place, word) in args.enumerate() {
            match keys.is_some_and(|keys| keys.has(place, count)) {
                true => {
                    words::bulk_head(room, self.prefix.len() + word.len());
                    room.extend_from_slice(&self.prefix);
                    room.extend_from_slice(word);
                    room.extend_from_slice(b"\r\n");
                }
                false => words::bulk(room, word),
            }
        }
        Args::new(room, here)
    }
}

/// What a client calls the item with this key; `None` = the client may not see it.
pub(super) fn shown_to<'k>(own_keys: Option<&OwnKeys>, key: &'k [u8]) -> Option<&'k [u8]> {
    own_keys.map_or(Some(key), |own| own.shown(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_put_before_keys_and_taken_from_them() {
        let own = OwnKeys::new("shop", b':');
        let mut room = [0; KEY_BYTES_MAX];
        assert_eq!(own.item_key(b"k", &mut room), Some(&b"shop:k"[..]));
        assert_eq!(own.item_key(b"", &mut room), Some(&b"shop:"[..]));
        assert_eq!(own.item_key(&[b'k'; 245], &mut room).map(<[u8]>::len), Some(250));
        assert_eq!(own.item_key(&[b'k'; 246], &mut room), None);
        assert_eq!(own.shown(b"shop:k:j"), Some(&b"k:j"[..]));
        assert_eq!(own.shown(b"shops:k"), None);
        assert_eq!(shown_to(None, b"k"), Some(&b"k"[..]));
        assert_eq!(shown_to(Some(&own), b"k"), None);
    }

    #[test]
    fn a_request_of_resp_keeps_what_is_no_key() {
        let own = OwnKeys::new("a", b':');
        let rewritten = |line: &str| {
            let mut request = Vec::new();
            line.split(' ').for_each(|word| words::bulk(&mut request, word.as_bytes()));
            let count = line.split(' ').count();
            let mut room = b"what was there before".to_vec();
            let args = own.request(Args::new(&request, count), count, &mut room);
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
