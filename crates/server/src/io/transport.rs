//! How bytes travel, and how addresses are shown.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Whom a peer's address stands for: an IPv4 address for itself, an IPv6 address for the 64 bits of its network,
/// because a network gives one machine as many addresses as it likes. An IPv4 address that is written as an IPv6
/// address is an IPv4 address.
pub(crate) fn address_block(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX))),
        v4 => v4,
    }
}

/// How the bytes of a connection travel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// A TCP stream over IPv4 or IPv6.
    Tcp,
    /// A stream over a unix socket.
    Unix,
    /// One UDP datagram and its reply.
    Udp,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Transport::Tcp => "tcp",
            Transport::Unix => "unix",
            Transport::Udp => "udp",
        })
    }
}

/// An address as memcached shows it in `stats conns`: `tcp:127.0.0.1:11211`, `tcp6:[::1]:11211`.
pub(super) fn address_text(transport: Transport, address: Option<SocketAddr>) -> String {
    match address {
        None => format!("{transport}:"),
        Some(SocketAddr::V4(v4)) => format!("{transport}:{v4}"),
        Some(SocketAddr::V6(v6)) => match v6.ip().to_ipv4_mapped() {
            Some(ip) => format!("{transport}:{ip}:{}", v6.port()),
            None => format!("{transport}6:[{}]:{}", v6.ip(), v6.port()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_network_of_ipv6_is_one_address() {
        let block = |text: &str| address_block(text.parse().unwrap()).to_string();
        assert_eq!(block("192.0.2.7"), "192.0.2.7");
        assert_eq!(block("::ffff:192.0.2.7"), "192.0.2.7");
        assert_eq!(block("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        assert_eq!(block("2001:db8:1:2::9"), "2001:db8:1:2::");
        assert_eq!(block("2001:db8:1:3::9"), "2001:db8:1:3::");
    }
}
