//! How many connections each address has, and how many it may have.
//!
//! Connections are counted with and without a limit, so that a limit that is set while the server runs holds for those
//! that are open already.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::transport::address_block;

/// The connections of each address ([`address_block`]), over all workers.
#[derive(Debug)]
pub(super) struct AddressLimit {
    /// 0 = none.
    most: AtomicUsize,
    open: Mutex<HashMap<IpAddr, usize>>,
}

impl AddressLimit {
    /// No connections. Each address may have `most`; 0 = any number.
    pub(super) fn new(most: usize) -> AddressLimit {
        AddressLimit { most: AtomicUsize::new(most), open: Mutex::default() }
    }

    /// The most connections of one address; 0 = any number.
    pub(super) fn most(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }

    /// From now on each address may have `most`; 0 = any number. Connections beyond a lowered limit stay.
    pub(super) fn set_most(&self, most: usize) {
        self.most.store(most, Ordering::Relaxed);
    }

    /// Counts a new connection. `None` = its address has as many as it may.
    pub(super) fn enter(self: &Arc<Self>, peer: IpAddr) -> Option<AddressPlace> {
        let (address, most) = (address_block(peer), self.most());
        let mut open = self.open.lock().expect("no panic under this lock");
        let count = open.entry(address).or_default();
        // A count of 0 is never left in the map: an address that may have one connection gets it.
        if most > 0 && *count >= most {
            return None;
        }
        *count += 1;
        Some(AddressPlace { limit: Arc::clone(self), address })
    }
}

/// One connection of an address. It counts until this is dropped.
#[derive(Debug)]
pub(super) struct AddressPlace {
    limit: Arc<AddressLimit>,
    address: IpAddr,
}

impl Drop for AddressPlace {
    fn drop(&mut self) {
        let mut open = self.limit.open.lock().expect("no panic under this lock");
        let Some(count) = open.get_mut(&self.address) else { return };
        *count -= 1;
        if *count == 0 {
            open.remove(&self.address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_has_its_own_count_and_a_new_limit_holds_at_once() {
        let limit = Arc::new(AddressLimit::new(0));
        let enter = |text: &str| limit.enter(text.parse().unwrap());
        let mut held: Vec<_> = (0..3).map(|_| enter("192.0.2.1").expect("there is no limit")).collect();
        limit.set_most(2);
        assert!(enter("192.0.2.1").is_none() && enter("::ffff:192.0.2.1").is_none());
        let others = (enter("2001:db8::1"), enter("2001:db8::2"));
        assert!(others.0.is_some() && others.1.is_some() && enter("2001:db8::3").is_none());
        held.truncate(1);
        assert!(enter("192.0.2.1").is_some());
        drop((held, others));
        assert!(limit.open.lock().expect("no panic under this lock").is_empty());
    }
}
