//! The databases that clients of RESP choose with `SELECT` (`--databases`).
//!
//! In database 0 the keys of the items are those of the clients. In every other one they begin with [`DATABASE_MARK`]
//! and a byte with its number, which no client sends or sees ([`OwnKeys`](super::own_keys::OwnKeys)). So databases
//! share memory, eviction and flash. memcached's clients have database 0.

use super::own_keys::OwnKeys;
use crate::settings::Settings;
use larder_cache::DATABASE_MARK;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The databases of a server.
pub(super) struct Databases {
    count: usize,
    /// There may be items in others than 0.
    are_several: AtomicBool,
}

impl Databases {
    pub(super) fn new(settings: &Settings) -> Databases {
        // What an earlier process has left may be in any.
        let may_be_left = settings.keep.is_some() || !settings.flash.devices.is_empty();
        Databases { count: settings.databases as usize, are_several: AtomicBool::new(may_be_left) }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Whether there may be items in others than 0. If not, whatever there is belongs to 0.
    pub(super) fn are_several(&self) -> bool {
        self.are_several.load(Relaxed)
    }

    /// A client has chosen this one.
    pub(super) fn choose(&self, database: u8) {
        if database != 0 {
            self.are_several.store(true, Relaxed);
        }
    }
}

/// Which keys of `namespace` belong to a database; `None` = all that are of no other one.
pub(super) fn keys_of(namespace: Option<&Arc<OwnKeys>>, database: u8) -> Option<Arc<OwnKeys>> {
    match database {
        0 => namespace.cloned(),
        _ => Some(Arc::new(OwnKeys::in_database(namespace.map(|keys| &**keys), database))),
    }
}

/// The database that has a key of an item.
pub(super) fn database_of(key: &[u8]) -> u8 {
    key.strip_prefix(&DATABASE_MARK).and_then(|rest| rest.first()).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_of_a_database_begin_with_its_number() {
        let marked = |name: &[u8], number: u8| [name, &DATABASE_MARK[..], &[number]].concat();
        let prefix = |namespace: Option<&Arc<OwnKeys>>, database| {
            keys_of(namespace, database).map(|keys| keys.prefix().to_vec())
        };
        assert_eq!([prefix(None, 0), prefix(None, 1)], [None, Some(marked(b"", 1))]);
        let tenant = Arc::new(OwnKeys::new("a", b':'));
        assert_eq!(prefix(Some(&tenant), 0), Some(b"a:".to_vec()));
        assert_eq!(prefix(Some(&tenant), 1), Some(marked(b"a:", 1)));
        assert_eq!((database_of(b"k"), database_of(&[&marked(b"", 2)[..], b"k"].concat())), (0, 2));
        let databases = Databases::new(&Settings::default());
        databases.choose(0);
        assert!(!databases.are_several());
        databases.choose(1);
        assert!(databases.are_several());
    }
}
