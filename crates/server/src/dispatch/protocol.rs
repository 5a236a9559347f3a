//! The protocol that a connection speaks, and what follows from it before a request is read.

use larder_protocol::binary::REQUEST_MAGIC;

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

    /// What a client is told whose unfinished request does not fit into the memory for connection buffers.
    pub(super) fn out_of_memory(self) -> &'static str {
        match self {
            Protocol::Resp => "-ERR out of memory reading request\r\n",
            _ => "SERVER_ERROR out of memory reading request\r\n",
        }
    }
}
