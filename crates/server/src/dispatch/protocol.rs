//! The protocol that a connection speaks, and what follows from it before a request is read.

use larder_protocol::binary::reply::{self, Lengths};
use larder_protocol::binary::{Echo, REQUEST_MAGIC, Status};

/// The byte that a request of RESP begins with, unless it is a line of words.
const ARRAY_OF_RESP: u8 = b'*';

/// The protocol that a connection speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Protocol {
    /// The first byte of the connection will tell.
    Undecided,
    /// memcached's text protocol.
    Text,
    /// memcached's text protocol, on a connection whose user has a namespace: it takes a way of its own, so that all
    /// others pay nothing for it.
    TextOfOwnKeys,
    /// memcached's binary protocol.
    Binary,
    /// RESP, the protocol of Redis.
    Resp,
}

impl Protocol {
    /// The protocol that begins with this byte. No command of the text protocol begins with the first byte of another
    /// protocol. Over datagrams there is no RESP.
    pub(super) fn told_by(first: u8, is_datagram: bool) -> Protocol {
        match first {
            REQUEST_MAGIC => Protocol::Binary,
            ARRAY_OF_RESP if !is_datagram => Protocol::Resp,
            _ => Protocol::Text,
        }
    }

    /// What follows the value of an upload.
    pub(super) fn upload_end(self) -> &'static [u8] {
        match self {
            Protocol::Binary => b"",
            Protocol::Text | Protocol::TextOfOwnKeys | Protocol::Undecided | Protocol::Resp => b"\r\n",
        }
    }

    /// What a client of another machine is told where nothing says that such may come. `request` = what it has sent.
    #[cold]
    pub(super) fn turns_away(self, request: &[u8]) -> Vec<u8> {
        const WHY: &str = "only clients of the server's own machine are served, because it was started without an \
                           address to listen on (-l), without users (-Y) and without --open";
        match self {
            Protocol::Resp => format!("-DENIED {WHY}\r\n").into_bytes(),
            Protocol::Binary => {
                let echo = Echo {
                    opcode: request.get(1).copied().unwrap_or_default(),
                    opaque: request
                        .get(12..)
                        .and_then(|rest| rest.first_chunk())
                        .map_or(0, |bytes| u32::from_be_bytes(*bytes)),
                };
                let lengths = Lengths { value: WHY.len() as u32, ..Lengths::default() };
                let mut packet = Vec::new();
                reply::header(&mut packet, echo, Status::AuthError, lengths, 0);
                packet.extend_from_slice(WHY.as_bytes());
                packet
            }
            _ => format!("SERVER_ERROR {WHY}\r\n").into_bytes(),
        }
    }

    /// What a client is told whose unfinished request does not fit into the memory for connection buffers.
    pub(super) fn out_of_memory(self) -> &'static str {
        match self {
            Protocol::Resp => "-ERR out of memory reading request\r\n",
            _ => "SERVER_ERROR out of memory reading request\r\n",
        }
    }
}
