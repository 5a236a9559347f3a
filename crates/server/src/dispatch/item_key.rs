//! Keys as clients know them, and as items have them.
//!
//! An item has a key of 1 to 250 bytes. A client of RESP may use the empty key and keys of up to 64 KiB. The item of
//! such a key has a **folded** key of 251 bytes, which no client can send, and its value begins with a **head** that no
//! client is shown:
//!
//! ```text
//!  key of the item                                          value of the item
//! +---------------------------------+---------------------+ +-----------+---------------+------------------+
//! | first 219 bytes of the key,     | SHA-256 of the key, | | length of | the whole key | value            |
//! | filled up with zeros            | 32 bytes            | | key, u32  |               |                  |
//! +---------------------------------+---------------------+ +-----------+---------------+------------------+
//!                                                            \_________ head _________/
//! ```
//!
//! The head is compared whenever the item is read, so that two keys would be confused only as two items that displace
//! each other, even if their digests were equal.

use super::operation::ItemKey;
use larder_cache::{FOLDED_KEY_BYTES, Hit, KEY_BYTES_MAX, KeyHash, ListedOnFlash, Worker};
use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use std::borrow::Cow;

/// Bytes of the key that a folded key begins with, so that its prefix is that of the key.
const KEPT_BYTES: usize = FOLDED_KEY_BYTES - SHA256_OUTPUT_LEN;
/// The longest prefix by which keys are deleted, bytes: of longer keys no more is in the key of the item.
pub(super) const PREFIX_BYTES_MAX: usize = KEPT_BYTES;
/// Bytes of the length that a head begins with.
const LENGTH_BYTES: usize = 4;

/// Room for one folded key and its head.
pub(super) struct KeyRoom {
    folded: [u8; FOLDED_KEY_BYTES],
    head: Vec<u8>,
}

impl Default for KeyRoom {
    fn default() -> KeyRoom {
        KeyRoom { folded: [0; FOLDED_KEY_BYTES], head: Vec::new() }
    }
}

/// Whether an item can have the key as it is.
#[inline]
pub(super) fn is_plain(key: &[u8]) -> bool {
    // The empty key wraps around to a large number.
    key.len().wrapping_sub(1) < KEY_BYTES_MAX
}

impl KeyRoom {
    /// The key as its item has it.
    #[inline]
    pub(super) fn item_key<'a>(
        &'a mut self,
        key: &'a [u8],
        hash: impl FnOnce(&[u8]) -> KeyHash,
    ) -> ItemKey<'a> {
        if is_plain(key) {
            return ItemKey { key, hash: hash(key), head: &[] };
        }
        self.fold(key);
        ItemKey { key: &self.folded, hash: hash(&self.folded), head: &self.head }
    }

    #[cold]
    fn fold(&mut self, key: &[u8]) {
        self.folded.fill(0);
        let kept = key.len().min(KEPT_BYTES);
        self.folded[..kept].copy_from_slice(&key[..kept]);
        self.folded[KEPT_BYTES..].copy_from_slice(digest(&SHA256, key).as_ref());
        self.head.clear();
        self.head.extend_from_slice(&(key.len() as u32).to_le_bytes());
        self.head.extend_from_slice(key);
    }
}

/// The key of an item as its client knows it. The item was looked up by `worker`.
pub(super) fn client_key<'w>(worker: &Worker, hit: &Hit<'w>) -> Cow<'w, [u8]> {
    let key = hit.item.key();
    if key.len() != FOLDED_KEY_BYTES {
        return Cow::Borrowed(key);
    }
    let mut length = Vec::with_capacity(LENGTH_BYTES);
    worker.copy_part(hit, 0, LENGTH_BYTES, &mut length);
    let length = length.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes) as usize);
    let mut whole = Vec::with_capacity(length);
    worker.copy_part(hit, LENGTH_BYTES, length, &mut whole);
    Cow::Owned(whole)
}

/// The same of an item that is listed on flash.
pub(super) fn listed_key(item: &ListedOnFlash) -> Cow<'_, [u8]> {
    if item.key.len() != FOLDED_KEY_BYTES {
        return Cow::Borrowed(&item.key);
    }
    let whole = item
        .front
        .split_first_chunk()
        .and_then(|(length, rest)| rest.get(..u32::from_le_bytes(*length) as usize));
    Cow::Borrowed(whole.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_folded_if_an_item_cannot_have_it() {
        let hash = |key: &[u8]| KeyHash(key.len() as u64);
        let mut room = KeyRoom::default();
        for length in [1, 2, 249, 250] {
            let key = vec![b'k'; length];
            let item = room.item_key(&key, hash);
            assert_eq!((item.key, item.head, item.hash), (&key[..], &[][..], KeyHash(length as u64)));
        }
        let long = |last: u8| [vec![b'k'; 300], vec![last]].concat();
        let folded: Vec<Vec<u8>> = [Vec::new(), vec![b'k'; 251], long(1), long(2)]
            .iter()
            .map(|key| {
                let item = room.item_key(key, hash);
                assert_eq!(item.head, [&(key.len() as u32).to_le_bytes()[..], key].concat());
                assert_eq!(item.key[..key.len().min(219)], key[..key.len().min(219)]);
                item.key.to_vec()
            })
            .collect();
        for (number, key) in folded.iter().enumerate() {
            assert_eq!(key.len(), FOLDED_KEY_BYTES);
            assert!(!folded[..number].contains(key));
        }
    }
}
