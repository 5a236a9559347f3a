//! The keys of a client that has not all of them: its user has a namespace (`--user-namespaces`), or it has chosen a
//! database (`SELECT`).
//!
//! The items of such a client have keys that begin with a **prefix**: the name of the namespace and the delimiter, and
//! then, unless the database is 0, [`DATABASE_MARK`] and its number. The client neither sends nor sees the prefix: it
//! is put before every key of a request and taken from every key of a reply. So the shares, the counters and the
//! longest time to live of the namespace are those of the user, a delete by prefix deletes what the user has, and two
//! users with the same key have two items.

use larder_cache::{DATABASE_MARK, KEY_BYTES_MAX, covers};

/// Room for one key with its prefix.
pub(super) type OwnKeyRoom = [u8; KEY_BYTES_MAX];

/// Which keys are a client's.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct OwnKeys {
    prefix: Box<[u8]>,
    has_namespace: bool,
}

impl OwnKeys {
    pub(super) fn new(namespace: &str, delimiter: u8) -> OwnKeys {
        OwnKeys { prefix: [namespace.as_bytes(), &[delimiter]].concat().into(), has_namespace: true }
    }

    /// Those of a database that is not 0.
    pub(super) fn in_database(namespace: Option<&OwnKeys>, database: u8) -> OwnKeys {
        let name = namespace.map_or(&[][..], OwnKeys::prefix);
        let prefix = [name, &DATABASE_MARK, &[database]].concat().into();
        OwnKeys { prefix, has_namespace: namespace.is_some() }
    }

    /// What the keys of the items begin with.
    pub(super) fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// Whether they are those of a namespace, and not only of a database.
    pub(super) fn has_namespace(&self) -> bool {
        self.has_namespace
    }

    /// The key of the item that the client calls `key`, for protocols whose keys are those of items. `None` = the item
    /// cannot have it: it is too long.
    pub(super) fn item_key<'r>(&self, key: &[u8], room: &'r mut OwnKeyRoom) -> Option<&'r [u8]> {
        let (prefix_bytes, bytes) = (self.prefix.len(), self.prefix.len() + key.len());
        let whole = room.get_mut(..bytes)?;
        whole[..prefix_bytes].copy_from_slice(&self.prefix);
        whole[prefix_bytes..].copy_from_slice(key);
        Some(whole)
    }

    /// What the client calls the item with this key. `None` = it is not the client's.
    pub(super) fn shown<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        covers(&self.prefix, key).then(|| &key[self.prefix.len()..])
    }
}

/// What a client calls the item with this key; `None` = the client may not see it.
pub(super) fn shown_to<'k>(own_keys: Option<&OwnKeys>, key: &'k [u8]) -> Option<&'k [u8]> {
    match own_keys {
        Some(own) => own.shown(key),
        None => covers(b"", key).then_some(key),
    }
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
        let chosen = OwnKeys::in_database(Some(&own), 3);
        assert_eq!(chosen.item_key(b"k", &mut room), Some(&b"shop:\xff\xfe\xfd\x03k"[..]));
        assert_eq!(chosen.shown(b"shop:\xff\xfe\xfd\x03k"), Some(&b"k"[..]));
        assert_eq!(own.shown(b"shop:\xff\xfe\xfd\x03k"), None);
        let chosen = OwnKeys::in_database(None, 3);
        assert_eq!(chosen.item_key(b"k", &mut room), Some(&b"\xff\xfe\xfd\x03k"[..]));
        assert_eq!(chosen.shown(b"shop:k"), None);
        assert_eq!(shown_to(None, b"\xff\xfe\xfd\x03k"), None);
    }
}
