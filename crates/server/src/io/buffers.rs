//! The account of connection buffers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// One part in this many of the limit is for bytes that are served at once. What stays with a connection longer gets
/// the rest. In one turn the workers may find all their receive buffers full, which are a quarter of the limit, and
/// copy them to memory that is half as large again.
const RESERVE_SHARE: u64 = 2;
/// How long a connection may stand still while half of the limit is accounted, in milliseconds.
const PATIENCE_MS_MAX: u64 = 2000;
/// With less than this below the limit, the next connection may be refused what it needs, in bytes.
const ROOM_BYTES_MIN: u64 = 64 << 10;
/// One part in this many of the limit stays between what is set aside for clients that do not read and the half above
/// which buffers are crowded.
const SPARE_SHARE: u64 = 16;

/// The receive buffers of all workers may take one part in this many of the limit.
const RING_SHARE: u64 = 4;
/// Bytes of one receive buffer.
const RING_BUFFER_BYTES: u64 = 16 << 10;
/// The fewest and the most receive buffers of a worker.
pub(super) const RING_BUFFERS_MIN: usize = 4;
const RING_BUFFERS_MAX: usize = 128;

/// The account of all connection buffers: input that is not served yet, output that waits for its socket, values from
/// flash, and the receive buffers of the workers.
#[derive(Debug)]
pub struct Buffers {
    used: AtomicU64,
    limit: AtomicU64,
    /// The sessions of encrypted connections have an account of their own: they stay for as long as their connections.
    sessions: AtomicU64,
    sessions_limit: AtomicU64,
    /// The part of `used` that workers hold to receive into.
    receiving: AtomicU64,
    /// The part of `used` of closed connections, which the kernel lets go of in a moment.
    leaving: AtomicU64,
    /// Receive buffers that each worker should have (io_uring only).
    ring_buffers: AtomicUsize,
}

impl Buffers {
    /// An empty account that refuses above `limit_bytes`.
    pub fn new(limit_bytes: u64) -> Buffers {
        Buffers {
            used: AtomicU64::new(0),
            limit: AtomicU64::new(limit_bytes),
            sessions: AtomicU64::new(0),
            sessions_limit: AtomicU64::new(u64::MAX),
            receiving: AtomicU64::new(0),
            leaving: AtomicU64::new(0),
            ring_buffers: AtomicUsize::new(0),
        }
    }

    /// Bytes accounted now. They may exceed the limit, because some bytes cannot be refused.
    pub fn used_bytes(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// The limit, in bytes.
    pub fn limit_bytes(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Sets the limit. What is already accounted stays, also above the limit.
    pub fn set_limit_bytes(&self, limit_bytes: u64) {
        self.limit.store(limit_bytes, Ordering::Relaxed);
    }

    /// Sets the limit of the sessions of encrypted connections.
    pub fn set_sessions_limit_bytes(&self, limit_bytes: u64) {
        self.sessions_limit.store(limit_bytes, Ordering::Relaxed);
    }

    /// Bytes of the sessions of encrypted connections now.
    pub fn sessions_bytes(&self) -> u64 {
        self.sessions.load(Ordering::Relaxed)
    }

    /// The fewest bytes that `workers` receive into.
    pub fn receiving_bytes_min(workers: usize) -> u64 {
        workers as u64 * RING_BUFFERS_MIN as u64 * RING_BUFFER_BYTES
    }

    /// The receive buffers that each of the workers should have within a limit of `limit_bytes`. `None`: the limit is
    /// too small for `workers` workers.
    pub fn ring_buffers_for(limit_bytes: u64, workers: usize) -> Option<usize> {
        let per_worker = limit_bytes / RING_SHARE / workers.max(1) as u64 / RING_BUFFER_BYTES;
        let count = (per_worker as usize).clamp(RING_BUFFERS_MIN, RING_BUFFERS_MAX);
        (2 * Buffers::receiving_bytes_min(workers) <= limit_bytes).then_some(count)
    }

    /// Sets how many receive buffers each worker should have. The workers follow within a second or so.
    pub fn set_ring_buffers(&self, count: usize) {
        self.ring_buffers.store(count, Ordering::Relaxed);
    }

    /// How many receive buffers each worker should have.
    #[inline]
    pub(super) fn ring_buffers(&self) -> usize {
        self.ring_buffers.load(Ordering::Relaxed)
    }

    /// A worker takes bytes to receive into. They cannot be refused.
    pub(super) fn take_receiving(&self, bytes: u64) {
        self.receiving.fetch_add(bytes, Ordering::Relaxed);
        self.take(bytes);
    }

    /// The counterpart of [`Buffers::take_receiving`].
    pub(super) fn give_receiving(&self, bytes: u64) {
        self.receiving.fetch_sub(bytes, Ordering::Relaxed);
        self.give(bytes);
    }

    /// Whether more than half of the limit is accounted: what is served at once may soon find nothing.
    #[inline]
    pub(super) fn are_crowded(&self) -> bool {
        let limit = self.limit_bytes();
        self.used_bytes() > limit - limit / RESERVE_SHARE
    }

    /// For how long a connection may hold bytes and get on with nothing, in milliseconds; `None` = for any time,
    /// because the buffers are not crowded. The less of the limit is left, the shorter the time. It is 0 with a quarter
    /// left, which the workers may need in one turn. What closed connections still hold is about to be given back.
    pub(super) fn patience_ms(&self) -> Option<u64> {
        let leaving = self.leaving.load(Ordering::Relaxed);
        let (limit, used) = (self.limit_bytes(), self.used_bytes().saturating_sub(leaving));
        let (crowded, end) = (limit - limit / RESERVE_SHARE, limit - limit / (2 * RESERVE_SHARE));
        let share = end.saturating_sub(used) as f64 / (end - crowded).max(1) as f64;
        (used > crowded).then_some((PATIENCE_MS_MAX as f64 * share.powi(3)) as u64)
    }

    /// A connection was closed that still holds `bytes`.
    pub(super) fn begin_to_leave(&self, bytes: u64) {
        self.leaving.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The counterpart of [`Buffers::begin_to_leave`], once the bytes were given back.
    pub(super) fn have_left(&self, bytes: u64) {
        self.leaving.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Whether there may be no room for what the next connection needs.
    #[inline]
    pub(super) fn are_full(&self) -> bool {
        self.used_bytes() + ROOM_BYTES_MIN > self.limit_bytes()
    }

    /// What may stay with connections from one turn of their worker to the next, in bytes over all workers.
    pub(super) fn parked_bytes_max(&self) -> u64 {
        let limit = self.limit_bytes();
        (limit - limit / RESERVE_SHARE).saturating_sub(self.receiving.load(Ordering::Relaxed))
    }

    /// Accounts `bytes` more, unless that would exceed the limit.
    pub fn try_take(&self, bytes: u64) -> bool {
        self.try_take_below(self.limit_bytes(), bytes)
    }

    /// Accounts `bytes` more that a request makes stay with its connection, unless that would exceed three quarters of
    /// the limit. The last quarter is for what arrives, whoever holds the rest.
    pub fn try_hold(&self, bytes: u64) -> bool {
        let limit = self.limit_bytes();
        self.try_take_below(limit - limit / (2 * RESERVE_SHARE), bytes)
    }

    /// Accounts `bytes` more of a short input. It may exceed the limit by a quarter: the connections that hold most
    /// make up for it, and on other workers that takes a moment.
    pub(super) fn try_take_short(&self, bytes: u64) -> bool {
        let limit = self.limit_bytes();
        self.try_take_below(limit.saturating_add(limit / (2 * RESERVE_SHARE)), bytes)
    }

    /// How many bytes more may stay with connections now ([`Buffers::try_hold`]).
    pub fn left_to_hold(&self) -> u64 {
        let limit = self.limit_bytes();
        (limit - limit / (2 * RESERVE_SHARE)).saturating_sub(self.used_bytes())
    }

    fn try_take_below(&self, most: u64, bytes: u64) -> bool {
        let before = self.used.fetch_add(bytes, Ordering::Relaxed);
        let fits = before.saturating_add(bytes) <= most;
        if !fits {
            self.give(bytes);
        }
        fits
    }

    /// How many bytes connections may set aside for clients that do not read before the buffers are crowded.
    pub(super) fn spare_bytes(&self) -> u64 {
        let limit = self.limit_bytes();
        (limit - limit / RESERVE_SHARE - limit / SPARE_SHARE).saturating_sub(self.used_bytes())
    }

    /// Accounts `bytes` that exist already and cannot be refused.
    pub fn take(&self, bytes: u64) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Gives bytes back that were taken.
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

    /// The bytes that are held.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.as_ref().map_or(0, |(_, bytes)| *bytes)
    }

    /// Takes bytes more, unless they do not fit; see [`Buffers::try_hold`].
    pub(crate) fn try_grow(&mut self, buffers: &Arc<Buffers>, bytes: u64) -> bool {
        let fits = buffers.try_hold(bytes);
        if fits {
            match &mut self.0 {
                Some((_, held)) => *held += bytes,
                none => *none = Some((Arc::clone(buffers), bytes)),
            }
        }
        fits
    }

    /// Takes bytes more that cannot be refused.
    pub(crate) fn grow(&mut self, buffers: &Arc<Buffers>, bytes: u64) {
        buffers.take(bytes);
        match &mut self.0 {
            Some((_, held)) => *held += bytes,
            none => *none = Some((Arc::clone(buffers), bytes)),
        }
    }

    /// Gives bytes back.
    pub(crate) fn shrink(&mut self, bytes: u64) {
        if let Some((buffers, held)) = &mut self.0 {
            let bytes = bytes.min(*held);
            buffers.give(bytes);
            *held -= bytes;
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if let Some((buffers, bytes)) = &self.0 {
            buffers.give(*bytes);
        }
    }
}

/// Bytes of one session in its account. They are given back when the charge is dropped.
#[derive(Debug)]
pub(super) struct SessionCharge(Arc<Buffers>, u64);

impl SessionCharge {
    /// Takes bytes, unless that would exceed the limit.
    pub(super) fn try_take(buffers: &Arc<Buffers>, bytes: u64) -> Option<SessionCharge> {
        let before = buffers.sessions.fetch_add(bytes, Ordering::Relaxed);
        // What does not fit is given back by the drop of this.
        let charge = SessionCharge(Arc::clone(buffers), bytes);
        (before + bytes <= buffers.sessions_limit.load(Ordering::Relaxed)).then_some(charge)
    }
}

impl Drop for SessionCharge {
    fn drop(&mut self) {
        self.0.sessions.fetch_sub(self.1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_is_left_for_what_is_served_at_once() {
        assert_eq!(Buffers::ring_buffers_for(4 << 20, 4), Some(16));
        assert_eq!(Buffers::ring_buffers_for(1 << 30, 4), Some(RING_BUFFERS_MAX));
        assert_eq!(Buffers::ring_buffers_for(4 << 20, 32), Some(RING_BUFFERS_MIN));
        assert_eq!(Buffers::ring_buffers_for(4 << 20, 33), None);
        let buffers = Buffers::new(1000);
        buffers.take_receiving(200);
        assert_eq!(buffers.parked_bytes_max(), 300);
        assert!(buffers.try_take(300) && !buffers.are_crowded());
        assert_eq!(buffers.patience_ms(), None);
        assert!(buffers.try_take(1) && buffers.are_crowded());
        assert_eq!(buffers.patience_ms(), Some(1976));
        buffers.begin_to_leave(1);
        assert_eq!(buffers.patience_ms(), None);
        buffers.have_left(1);
        buffers.set_limit_bytes(100);
        assert_eq!((buffers.parked_bytes_max(), buffers.are_crowded()), (0, true));
        assert_eq!(buffers.patience_ms(), Some(0));
        buffers.give_receiving(200);
        assert_eq!(buffers.used_bytes(), 301);
    }

    #[test]
    fn a_charge_gives_back_what_it_holds() {
        let buffers = Arc::new(Buffers::new(100));
        buffers.take(30);
        let mut charge = Charge::of(buffers.clone(), 30);
        assert_eq!(buffers.used_bytes(), 30);
        assert!(
            charge.try_grow(&buffers, 45) && !charge.try_grow(&buffers, 1),
            "a quarter is left for input"
        );
        assert_eq!((buffers.used_bytes(), charge.bytes()), (75, 75));
        charge.grow(&buffers, 30);
        charge.shrink(30);
        assert_eq!((buffers.used_bytes(), charge.bytes()), (75, 75));
        assert!(buffers.try_take(25) && !buffers.try_take(1));
        assert!(buffers.try_take_short(25) && !buffers.try_take_short(1));
        buffers.give(50);
        drop(charge);
        assert_eq!((buffers.used_bytes(), buffers.spare_bytes()), (0, 44));
    }

    #[test]
    fn sessions_have_an_account_of_their_own() {
        let buffers = Arc::new(Buffers::new(0));
        buffers.set_sessions_limit_bytes(10);
        let first = SessionCharge::try_take(&buffers, 6);
        assert!(first.is_some() && SessionCharge::try_take(&buffers, 5).is_none());
        assert_eq!((buffers.sessions_bytes(), buffers.used_bytes()), (6, 0));
        drop(first);
        assert!(SessionCharge::try_take(&buffers, 10).is_some());
        assert_eq!(buffers.sessions_bytes(), 0);
    }
}
