//! Files of packets: pcap and pcapng, compressed or not, also while they are being written.

use std::path::Path;

use pcap_parser::nom::{Err as Stop, IResult, Needed};
use pcap_parser::traits::PcapNGPacketBlock;
use pcap_parser::{
    Block, InterfaceDescriptionBlock, LegacyPcapBlock, Linktype, PcapError, parse_block_be, parse_block_le,
    parse_pcap_frame, parse_pcap_frame_be, parse_pcap_frame_modified, parse_pcap_header,
};

use crate::SourceError;
use crate::trace::input::Input;

/// Bytes of the header of a pcap file.
const HEADER_BYTES: usize = 24;
/// The first bytes of a pcapng file.
const SECTION: &[u8] = &[0x0a, 0x0d, 0x0d, 0x0a];
/// A longer packet or block is taken for damage.
const BLOCK_BYTES_MAX: usize = 16 << 20;

/// A packet, as much of it as was captured.
pub(super) struct Packet<'a> {
    /// Microseconds of the unix time.
    pub(super) time_us: u64,
    /// What its first bytes are.
    pub(super) link: Linktype,
    /// Its bytes.
    pub(super) octets: &'a [u8],
}

/// Where packets of a pcapng file come from.
#[derive(Clone, Copy)]
struct Interface {
    link: Linktype,
    /// Units of time in a second.
    per_second: u64,
    offset_s: i64,
}

/// The layout of a file.
enum Layout {
    Pcap { parse: ParsePacket, interface: Interface },
    Ng { is_big_endian: bool, interfaces: Vec<Interface> },
}

type ParsePacket = fn(&[u8]) -> IResult<&[u8], LegacyPcapBlock<'_>, PcapError<&[u8]>>;

/// Why no packet was found at the front of the bytes.
enum Lack {
    /// More bytes are needed.
    More,
    Damage(String),
}

/// A file that is being read.
pub(super) struct File {
    input: Input,
    layout: Layout,
    packets: u64,
    /// Bytes of a packet that is not there whole.
    rest_bytes: usize,
}

impl File {
    /// Opens a file, or a pipe.
    ///
    /// # Errors
    /// It cannot be opened, or is no capture of packets.
    pub(super) fn open(path: &Path) -> Result<File, SourceError> {
        let mut input = Input::open(path)?;
        input.read_ahead(HEADER_BYTES)?;
        let layout = match parse_pcap_header(input.pending()) {
            Ok((_, header)) => {
                let parse: ParsePacket = match (header.is_modified_format(), header.is_bigendian()) {
                    (true, _) => parse_pcap_frame_modified,
                    (false, true) => parse_pcap_frame_be,
                    (false, false) => parse_pcap_frame,
                };
                let per_second = if header.is_nanosecond_precision() { 1_000_000_000 } else { 1_000_000 };
                // The upper bits tell of a check sum behind each packet.
                let link = Linktype(header.network.0 & 0xffff);
                input.consume(HEADER_BYTES);
                Layout::Pcap { parse, interface: Interface { link, per_second, offset_s: 0 } }
            }
            Err(_) if input.pending().starts_with(SECTION) => {
                Layout::Ng { is_big_endian: false, interfaces: Vec::new() }
            }
            Err(_) => {
                let name = input.name();
                return Err(SourceError::new(format!("{name}: is no capture of packets (pcap or pcapng)")));
            }
        };
        Ok(File { input, layout, packets: 0, rest_bytes: 0 })
    }

    /// The path for messages.
    pub(super) fn name(&self) -> String {
        self.input.name()
    }

    /// The share of the file that has been read, from 0 to 1.
    pub(super) fn done_ratio(&self) -> Option<f64> {
        self.input.done_ratio()
    }

    /// What to say of the end of the file, where it breaks off.
    pub(super) fn notice(&self) -> Option<String> {
        let half = || format!("the file breaks off in its packet {}", self.packets + 1);
        self.input.notice().or_else(|| (self.rest_bytes > 0).then(half))
    }

    /// Gives the next packet to `to`. `false` = there is none.
    ///
    /// # Errors
    /// The file is damaged here.
    pub(super) fn next(&mut self, mut to: impl FnMut(&Packet<'_>)) -> Result<bool, SourceError> {
        loop {
            let pending = self.input.pending();
            let found = match &mut self.layout {
                Layout::Pcap { parse, interface } => of_pcap(pending, *parse, *interface),
                Layout::Ng { is_big_endian, interfaces } => of_ng(pending, is_big_endian, interfaces),
            };
            let (bytes, is_packet) = match found {
                Ok((bytes, packet)) => {
                    packet.iter().for_each(&mut to);
                    (bytes, packet.is_some())
                }
                Err(Lack::More) => (0, false),
                Err(Lack::Damage(why)) => {
                    let (name, packets) = (self.name(), self.packets);
                    return Err(SourceError::new(format!(
                        "{name}: is damaged after {packets} packets: {why}"
                    )));
                }
            };
            self.input.consume(bytes);
            self.packets += u64::from(is_packet);
            if is_packet {
                return Ok(true);
            }
            if bytes == 0 && !self.input.more()? {
                self.rest_bytes = self.input.pending().len();
                return Ok(false);
            }
        }
    }
}

type Taken<'a> = Result<(usize, Option<Packet<'a>>), Lack>;

/// The packet at the front of the bytes of a pcap file.
fn of_pcap(pending: &[u8], parse: ParsePacket, interface: Interface) -> Taken<'_> {
    let (bytes, packet) = parsed(pending, parse(pending))?;
    if u64::from(packet.ts_usec) >= interface.per_second || packet.caplen > packet.origlen.max(1 << 16) {
        return Err(Lack::Damage("no packet begins so".to_owned()));
    }
    let ticks = u64::from(packet.ts_sec) * interface.per_second + u64::from(packet.ts_usec);
    let time_us = interface.time_us(ticks);
    Ok((bytes, Some(Packet { time_us, link: interface.link, octets: packet.data })))
}

/// The packet at the front of the bytes of a pcapng file, if the block there is one.
fn of_ng<'a>(pending: &'a [u8], is_big_endian: &mut bool, interfaces: &mut Vec<Interface>) -> Taken<'a> {
    let parse = if *is_big_endian { parse_block_be } else { parse_block_le };
    let (bytes, block) = parsed(pending, parse(pending))?;
    let packet = match block {
        Block::SectionHeader(head) => {
            *is_big_endian = head.big_endian();
            interfaces.clear();
            None
        }
        Block::InterfaceDescription(head) => {
            interfaces.push(Interface::of(&head));
            None
        }
        Block::EnhancedPacket(packet) => {
            let interface = interfaces
                .get(packet.if_id as usize)
                .ok_or_else(|| Lack::Damage(format!("a packet of the unknown interface {}", packet.if_id)))?;
            let ticks = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
            let octets = packet.data.get(..packet.caplen as usize).unwrap_or(packet.data);
            Some(Packet { time_us: interface.time_us(ticks), link: interface.link, octets })
        }
        // It has no time.
        Block::SimplePacket(packet) => interfaces.first().map(|interface| {
            let octets = packet.data.get(..packet.orig_len() as usize).unwrap_or(packet.data);
            Packet { time_us: 0, link: interface.link, octets }
        }),
        _ => None,
    };
    Ok((bytes, packet))
}

/// What a parser has found, and how many bytes it takes.
fn parsed<'a, T>(
    pending: &'a [u8],
    result: IResult<&'a [u8], T, PcapError<&'a [u8]>>,
) -> Result<(usize, T), Lack> {
    match result {
        Ok((rest, found)) => Ok((pending.len() - rest.len(), found)),
        Err(Stop::Incomplete(Needed::Size(bytes))) if bytes.get() > BLOCK_BYTES_MAX => {
            Err(Lack::Damage(format!("a packet of {bytes} bytes")))
        }
        Err(Stop::Incomplete(_)) if pending.len() > 2 * BLOCK_BYTES_MAX => {
            Err(Lack::Damage("a block without an end".to_owned()))
        }
        Err(Stop::Incomplete(_)) => Err(Lack::More),
        Err(_) => Err(Lack::Damage("no packet begins so".to_owned())),
    }
}

impl Interface {
    fn of(head: &InterfaceDescriptionBlock<'_>) -> Interface {
        let per_second = head.ts_resolution().filter(|count| *count > 0).unwrap_or(1_000_000);
        Interface { link: head.linktype, per_second, offset_s: head.ts_offset() }
    }

    fn time_us(self, ticks: u64) -> u64 {
        let us = u128::from(ticks) * 1_000_000 / u128::from(self.per_second);
        let us = u64::try_from(us).unwrap_or(u64::MAX);
        us.saturating_add_signed(self.offset_s.saturating_mul(1_000_000))
    }
}
