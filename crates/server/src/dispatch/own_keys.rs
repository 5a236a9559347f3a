//! The keys of a user who has a namespace (`--user-namespaces`).
//!
//! The items of such a user have keys that begin with the **prefix**, the name of the namespace and the delimiter. The
//! user neither sends nor sees the prefix: it is put before every key of a request and taken from every key of a reply.
//! So the shares, the counters and the longest time to live of the namespace are those of the user, a delete by prefix
//! deletes what the user has, and two users with the same key have two items.

use larder_cache::KEY_BYTES_MAX;

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
}
