//! The account of connection buffers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The account of all connection buffers: left-overs, output in flight and the receive buffers of the workers.
#[derive(Debug)]
pub struct Buffers {
    used: AtomicU64,
    limit: AtomicU64,
}

impl Buffers {
    /// An empty account that refuses above `limit_bytes`.
    pub fn new(limit_bytes: u64) -> Buffers {
        Buffers { used: AtomicU64::new(0), limit: AtomicU64::new(limit_bytes) }
    }

    /// Bytes accounted now. May exceed the limit by what could not be refused.
    pub fn used_bytes(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// The limit, in bytes.
    pub fn limit_bytes(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Sets the limit. Nothing that is already accounted is taken away.
    pub fn set_limit_bytes(&self, limit_bytes: u64) {
        self.limit.store(limit_bytes, Ordering::Relaxed);
    }

    /// Accounts `bytes` more, unless that would exceed the limit.
    pub fn try_take(&self, bytes: u64) -> bool {
        let before = self.used.fetch_add(bytes, Ordering::Relaxed);
        let fits = before.saturating_add(bytes) <= self.limit_bytes();
        if !fits {
            self.give(bytes);
        }
        fits
    }

    /// Accounts `bytes` that exist already and cannot be refused.
    pub fn take(&self, bytes: u64) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Gives back what was taken.
    pub fn give(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Bytes in the account of connection buffers. They are given back when the charge is dropped.
#[derive(Debug, Default)]
pub struct Charge(Option<(Arc<Buffers>, u64)>);

impl Charge {
    /// A charge for bytes that were taken from the account already.
    pub(crate) fn of(buffers: Arc<Buffers>, bytes: u64) -> Charge {
        Charge(Some((buffers, bytes)))
    }

    /// Takes bytes that cannot be refused.
    pub(super) fn take(buffers: &Arc<Buffers>, bytes: u64) -> Charge {
        buffers.take(bytes);
        Charge::of(Arc::clone(buffers), bytes)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if let Some((buffers, bytes)) = &self.0 {
            buffers.give(*bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charge_gives_back_what_it_holds() {
        let buffers = Arc::new(Buffers::new(100));
        buffers.take(30);
        let charge = Charge::of(buffers.clone(), 30);
        assert_eq!(buffers.used_bytes(), 30);
        drop(charge);
        assert_eq!(buffers.used_bytes(), 0);
    }
}
