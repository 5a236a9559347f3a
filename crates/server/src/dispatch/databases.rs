//! The databases that clients of RESP choose with `SELECT` (`--databases`).
//!
//! In database 0 the keys of the items are those of the clients. In every other one they begin with [`DATABASE_MARK`]
//! and a byte with its number, which no client sends or sees ([`OwnKeys`](super::own_keys::OwnKeys)). So databases
//! share memory, eviction and flash. memcached's clients have database 0.
//!
//! `SWAPDB` changes which number stands before the keys of a database, and no item ([`Order`]). The order is noted
//! beside the items, so that a later process finds each where it was. It is that of the clients without a namespace:
//! the databases of a namespace are in the order of their numbers.
//!
//! Databases are exchanged by a worker that is alone (see `crates/memory/src/gate.rs`). Every other one finds that out
//! where it may go on: at the beginning of a turn, and after it wanted to be alone itself. What it gathered before is
//! gathered anew.

use super::own_keys::OwnKeys;
use crate::settings::Settings;
use larder_cache::{Cache, DATABASE_MARK};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

/// Numbers that a database can have.
const NUMBERS: usize = 256;

/// The databases of a server.
pub(super) struct Databases {
    count: usize,
    /// There may be items in others than 0.
    are_several: AtomicBool,
    order: RwLock<Order>,
    /// A database is not in its own place.
    are_exchanged: AtomicBool,
    /// How often databases were exchanged.
    exchanges: AtomicU64,
}

/// The number before the keys of each database.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Order([u8; NUMBERS]);

impl Default for Order {
    fn default() -> Order {
        Order(std::array::from_fn(|number| number as u8))
    }
}

impl Order {
    /// The order that was noted; `None` = it is none.
    fn noted(note: &[u8]) -> Option<Order> {
        let mut order = Order::default();
        order.0.get_mut(..note.len())?.copy_from_slice(note);
        let mut numbers = order.0;
        numbers.sort_unstable();
        (numbers == Order::default().0).then_some(order)
    }

    /// As it is noted: up to the last database that is not in its own place.
    fn note(&self) -> &[u8] {
        let in_place =
            self.0.iter().enumerate().rev().take_while(|(place, number)| *place == usize::from(**number));
        &self.0[..NUMBERS - in_place.count()]
    }

    /// Two databases are exchanged.
    pub(super) fn exchange(&mut self, one: u8, other: u8) {
        self.0.swap(one.into(), other.into());
    }

    /// See [`Databases::keys_of`].
    pub(super) fn keys_of(&self, namespace: Option<&Arc<OwnKeys>>, database: u8) -> Option<Arc<OwnKeys>> {
        let number = if namespace.is_some() { database } else { self.0[usize::from(database)] };
        match number {
            0 => namespace.cloned(),
            _ => Some(Arc::new(OwnKeys::in_database(namespace.map(|keys| &**keys), number))),
        }
    }

    /// The database that has a key of an item.
    pub(super) fn database_of(&self, key: &[u8]) -> u8 {
        let number = key.strip_prefix(&DATABASE_MARK).and_then(|rest| rest.first()).copied().unwrap_or(0);
        self.0.iter().position(|other| *other == number).unwrap_or(0) as u8
    }
}

impl Databases {
    pub(super) fn new(settings: &Settings) -> Databases {
        // What an earlier process has left may be in any.
        let may_be_left = settings.keep.is_some() || !settings.flash.devices.is_empty();
        Databases {
            count: settings.databases as usize,
            are_several: AtomicBool::new(may_be_left),
            order: RwLock::default(),
            are_exchanged: AtomicBool::new(false),
            exchanges: AtomicU64::new(0),
        }
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

    /// Which keys of `namespace` belong to a database; `None` = all that are of no other one.
    pub(super) fn keys_of(&self, namespace: Option<&Arc<OwnKeys>>, database: u8) -> Option<Arc<OwnKeys>> {
        // Most connections are in database 0, and need no lock to know that.
        match database == 0 && !self.are_exchanged.load(Relaxed) {
            true => namespace.cloned(),
            false => self.order().keys_of(namespace, database),
        }
    }

    /// Which number stands before the keys of which database now.
    pub(super) fn order(&self) -> RwLockReadGuard<'_, Order> {
        self.order.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often databases were exchanged since the server was started. Whoever asks for the order afterwards has one
    /// that is not older: a connection is opened outside the gate.
    #[inline]
    pub(super) fn exchanges(&self) -> u64 {
        self.exchanges.load(Acquire)
    }

    /// Finds the databases as an earlier process has left them.
    pub(super) fn open(&self, cache: &Cache) {
        let note = cache.note();
        match Order::noted(&note) {
            Some(order) => self.set_order(order),
            None => tracing::warn!("what was noted of exchanged databases (SWAPDB) cannot be read: {note:?}"),
        }
    }

    /// Exchanges two databases. The worker is alone. It waits for the device, if there is one.
    pub(super) fn exchange(&self, cache: &Cache, one: u8, other: u8) {
        self.choose(one | other);
        let mut order = self.order().clone();
        order.exchange(one, other);
        cache.set_note(order.note());
        self.set_order(order);
        self.exchanges.fetch_add(1, Release);
        cache.note_exchange();
    }

    fn set_order(&self, order: Order) {
        self.are_exchanged.store(!order.note().is_empty(), Relaxed);
        *self.order.write().unwrap_or_else(PoisonError::into_inner) = order;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(name: &[u8], number: u8) -> Vec<u8> {
        [name, &DATABASE_MARK[..], &[number]].concat()
    }

    #[test]
    fn the_keys_of_a_database_begin_with_its_number() {
        let databases = Databases::new(&Settings::default());
        let prefix = |namespace: Option<&Arc<OwnKeys>>, database| {
            databases.keys_of(namespace, database).map(|keys| keys.prefix().to_vec())
        };
        assert_eq!([prefix(None, 0), prefix(None, 1)], [None, Some(marked(b"", 1))]);
        let tenant = Arc::new(OwnKeys::new("a", b':'));
        assert_eq!(prefix(Some(&tenant), 0), Some(b"a:".to_vec()));
        assert_eq!(prefix(Some(&tenant), 1), Some(marked(b"a:", 1)));
        let order = databases.order().clone();
        assert_eq!((order.database_of(b"k"), order.database_of(&marked(b"", 2))), (0, 2));
        databases.choose(0);
        assert!(!databases.are_several());
        databases.choose(1);
        assert!(databases.are_several());
    }

    #[test]
    fn exchanged_databases_have_each_others_keys_and_those_of_a_namespace_stay() {
        let databases = Databases::new(&Settings::default());
        let mut order = Order::default();
        order.exchange(0, 3);
        databases.set_order(order.clone());
        let prefix = |database| databases.keys_of(None, database).map(|keys| keys.prefix().to_vec());
        assert_eq!([prefix(0), prefix(3), prefix(1)], [Some(marked(b"", 3)), None, Some(marked(b"", 1))]);
        assert_eq!([order.database_of(b"k"), order.database_of(&marked(b"", 3))], [3, 0]);
        let tenant = Arc::new(OwnKeys::new("a", b':'));
        assert_eq!(databases.keys_of(Some(&tenant), 0), Some(tenant));
        databases.set_order(Order::default());
        assert_eq!(prefix(0), None);
    }

    #[test]
    fn an_order_is_noted_and_what_is_none_is_not_read() {
        let mut order = Order::default();
        assert_eq!((order.note(), Order::noted(b"")), (&[][..], Some(Order::default())));
        order.exchange(1, 4);
        assert_eq!(order.note(), [0, 4, 2, 3, 1]);
        assert_eq!(Order::noted(order.note()), Some(order));
        let mut last = Order::default();
        last.exchange(0, 255);
        assert_eq!(Order::noted(last.note()), Some(last));
        for wrong in [&[1][..], &[0, 0], &[0; 257]] {
            assert_eq!(Order::noted(wrong), None);
        }
    }
}
