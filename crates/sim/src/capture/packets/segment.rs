//! From a packet to its segment of TCP.

use std::net::{IpAddr, SocketAddr};

use etherparse::{EtherType, LaxNetSlice, LaxSlicedPacket, TransportSlice, ip_number};
use pcap_parser::Linktype;

use super::file::Packet;

/// Bytes before the packet of IP, by the link: of `tcpdump -i any`, and of BSD's loopback.
const SLL_BYTES: usize = 16;
const SLL2_BYTES: usize = 20;
const LOOPBACK_BYTES: usize = 4;

/// A segment of TCP.
pub(super) struct Segment<'a> {
    /// Microseconds of the unix time.
    pub(super) time_us: u64,
    /// Who has sent it.
    pub(super) from: SocketAddr,
    /// Who is to get it.
    pub(super) to: SocketAddr,
    /// The number of its first byte.
    pub(super) sequence: u32,
    /// The number of the byte that the sender waits for.
    pub(super) acknowledges: Option<u32>,
    /// It begins a connection.
    pub(super) is_first: bool,
    /// It ends its direction, or with [`Segment::is_reset`] the connection.
    pub(super) is_last: bool,
    /// The connection is given up.
    pub(super) is_reset: bool,
    /// Its data, as much of it as was captured.
    pub(super) octets: &'a [u8],
    /// How many bytes follow that were not captured.
    pub(super) missing_bytes: u32,
}

/// The segment of a packet; `None` = it is not of TCP.
///
/// # Errors
/// Why the packet cannot be read.
pub(super) fn read<'a>(packet: &Packet<'a>) -> Result<Option<Segment<'a>>, String> {
    let octets = packet.octets;
    let short = || "it is too short".to_owned();
    let behind = |bytes: usize| octets.get(bytes..).ok_or_else(short);
    let of_type = |at: usize, bytes: usize| {
        let rest = behind(bytes)?;
        Ok::<_, String>(LaxSlicedPacket::from_ether_type(
            EtherType(u16::from_be_bytes([octets[at], octets[at + 1]])),
            rest,
        ))
    };
    let of_ip = |rest: &'a [u8]| LaxSlicedPacket::from_ip(rest).map_err(|error| error.to_string());
    let sliced = match packet.link {
        Linktype::ETHERNET => LaxSlicedPacket::from_ethernet(octets).map_err(|error| error.to_string())?,
        Linktype::LINUX_SLL => of_type(SLL_BYTES - 2, SLL_BYTES)?,
        Linktype::LINUX_SLL2 => of_type(0, SLL2_BYTES)?,
        Linktype::NULL | Linktype::LOOP => of_ip(behind(LOOPBACK_BYTES)?)?,
        // Two of the numbers are BSD's for the same.
        Linktype::RAW | Linktype::IPV4 | Linktype::IPV6 | Linktype(12 | 14) => of_ip(octets)?,
        Linktype(other) => return Err(format!("packets of link type {other} are not known")),
    };
    let Some(payload) = sliced.ip_payload() else { return Ok(None) };
    if payload.ip_number != ip_number::TCP {
        return Ok(None);
    }
    let Some(TransportSlice::Tcp(tcp)) = &sliced.transport else {
        let why = if payload.fragmented { "it is a fragment" } else { "it is cut off in its header" };
        return Err(why.to_owned());
    };
    let (from, to, bytes): (IpAddr, IpAddr, usize) = match &sliced.net {
        Some(LaxNetSlice::Ipv4(ip)) => {
            let head = ip.header();
            let extensions = ip.extensions().auth.map_or(0, |auth| auth.slice().len());
            let bytes = usize::from(head.total_len()).saturating_sub(head.slice().len() + extensions);
            (head.source_addr().into(), head.destination_addr().into(), bytes)
        }
        Some(LaxNetSlice::Ipv6(ip)) => {
            let head = ip.header();
            let bytes = usize::from(head.payload_length()).saturating_sub(ip.extensions().slice().len());
            (head.source_addr().into(), head.destination_addr().into(), bytes)
        }
        _ => return Ok(None),
    };
    Ok(Some(Segment {
        time_us: packet.time_us,
        from: SocketAddr::new(from, tcp.source_port()),
        to: SocketAddr::new(to, tcp.destination_port()),
        sequence: tcp.sequence_number(),
        acknowledges: tcp.ack().then(|| tcp.acknowledgment_number()),
        is_first: tcp.syn(),
        is_last: tcp.fin(),
        is_reset: tcp.rst(),
        octets: tcp.payload(),
        missing_bytes: if payload.incomplete { (bytes - payload.payload.len().min(bytes)) as u32 } else { 0 },
    }))
}
