//! How much one address gets over UDP.
//!
//! The address that a datagram comes from can be forged. A request of 17 bytes may have a reply of hundreds of
//! kilobytes, which goes to whoever the request names. So each address gets a bounded number of reply bytes a second
//! (GCRA, the leaky bucket as a meter: one number for each address).

use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Addresses that are told apart. More share their slots by chance, and then their limit.
const SLOTS: usize = 4096;
/// How long a slot may be in debt before its addresses are not answered.
const BURST: Duration = Duration::from_secs(1);

/// The limit of all addresses, for all workers.
#[derive(Debug)]
pub(super) struct UdpLimit {
    /// Reply bytes that one address gets a second. 0 = no limit.
    bytes_per_s: u64,
    /// When each slot will have paid for what it got, in nanoseconds after `started`.
    paid_ns: Box<[AtomicU64]>,
    hasher: std::hash::RandomState,
    started: Instant,
}

impl UdpLimit {
    /// A limit of `bytes_per_s` for each address; 0 = none.
    pub(super) fn new(bytes_per_s: u64) -> UdpLimit {
        let slots = if bytes_per_s == 0 { 0 } else { SLOTS };
        UdpLimit {
            bytes_per_s,
            paid_ns: (0..slots).map(|_| AtomicU64::new(0)).collect(),
            hasher: std::hash::RandomState::new(),
            started: Instant::now(),
        }
    }

    /// The slot of an address. An address of this machine has none, because nobody else is harmed by what it gets. A
    /// network of IPv6 is as an address of IPv4: whoever has one has all addresses in it.
    fn slot(&self, address: IpAddr) -> Option<&AtomicU64> {
        let address = address.to_canonical();
        if self.paid_ns.is_empty() || address.is_loopback() {
            return None;
        }
        let network = match address {
            IpAddr::V4(address) => u64::from(address.to_bits()),
            IpAddr::V6(address) => (address.to_bits() >> 64) as u64,
        };
        Some(&self.paid_ns[self.hasher.hash_one((address.is_ipv4(), network)) as usize % SLOTS])
    }

    fn now_ns(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    /// Whether the address may get a reply now.
    pub(super) fn allows(&self, address: IpAddr) -> bool {
        self.allows_at(address, self.now_ns())
    }

    /// The address gets a reply of `bytes` bytes.
    pub(super) fn charge(&self, address: IpAddr, bytes: usize) {
        self.charge_at(address, bytes, self.now_ns());
    }

    fn allows_at(&self, address: IpAddr, now_ns: u64) -> bool {
        self.slot(address).is_none_or(|paid| paid.load(Ordering::Relaxed) <= now_ns + BURST.as_nanos() as u64)
    }

    fn charge_at(&self, address: IpAddr, bytes: usize, now_ns: u64) {
        let Some(paid) = self.slot(address) else { return };
        let cost_ns = (u128::from(bytes as u64) * 1_000_000_000 / u128::from(self.bytes_per_s)) as u64;
        let later = |paid_ns: u64| Some(paid_ns.max(now_ns).saturating_add(cost_ns));
        let _ = paid.fetch_update(Ordering::Relaxed, Ordering::Relaxed, later);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn an_address_gets_its_bytes_each_second() {
        let limit = UdpLimit::new(1000);
        let client = ip("192.0.2.1");
        let mut sent = 0;
        // It asks a hundred times a second for 100 bytes.
        for tick in 0..1000 {
            let now_ns = tick * SECOND / 100;
            if limit.allows_at(client, now_ns) {
                limit.charge_at(client, 100, now_ns);
                sent += 100;
            }
        }
        // The burst, and what comes in ten seconds.
        assert!((11_000..=11_200).contains(&sent), "{sent}");
    }

    #[test]
    fn one_long_reply_is_paid_for_before_the_next() {
        let limit = UdpLimit::new(1000);
        let client = ip("192.0.2.1");
        assert!(limit.allows_at(client, 0));
        limit.charge_at(client, 10_000, 0);
        assert!(!limit.allows_at(client, 8 * SECOND));
        assert!(limit.allows_at(client, 9 * SECOND));
    }

    #[test]
    fn addresses_do_not_pay_for_each_other() {
        let limit = UdpLimit::new(1);
        limit.charge_at(ip("192.0.2.1"), 1000, 0);
        limit.charge_at(ip("2001:db8::1"), 1000, 0);
        assert!(!limit.allows_at(ip("192.0.2.1"), 0));
        assert!(!limit.allows_at(ip("::ffff:192.0.2.1"), 0), "the same address in IPv6");
        assert!(!limit.allows_at(ip("2001:db8::2"), 0), "the same network");
        // Another address may have the same slot by chance, but not many have.
        let others = (2..102).filter(|last| limit.allows_at(ip(&format!("192.0.2.{last}")), 0)).count();
        assert!(others >= 98, "{others}");
    }

    #[test]
    fn this_machine_is_not_limited_and_neither_is_anyone_without_a_limit() {
        let limit = UdpLimit::new(1);
        let free = UdpLimit::new(0);
        for address in ["127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1"] {
            limit.charge_at(ip(address), 1000, 0);
            assert!(limit.allows_at(ip(address), 0), "{address}");
        }
        free.charge_at(ip("192.0.2.1"), 1000, 0);
        assert!(free.allows_at(ip("192.0.2.1"), 0));
    }
}
