//! memcached over UDP: an 8-byte frame of four big-endian numbers before each datagram.
//!
//! ```text
//!   0          2                 4                   6          8
//!   | request  | sequence number | datagrams in all  | reserved | payload ..
//! ```
//!
//! A request is one datagram. A reply is as many as it takes, numbered from 0, with the request's number.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;

use super::counters::WorkerCounters;
use super::service::{Conversation, From, Peer, Ready, Service, Transport};

/// The frame.
const FRAME_BYTES: usize = 8;
/// The most of a reply in one datagram, without the frame: 1400 bytes with it fit every common path.
const PAYLOAD_BYTES_MAX: usize = 1392;
/// A longer reply is dropped: nobody reassembles that many datagrams.
const REPLY_BYTES_MAX: usize = 1 << 20;
/// How many datagrams are served before the streams have their turn.
const TURN: usize = 64;
/// No datagram is longer.
const DATAGRAM_BYTES_MAX: usize = 65536;

/// A worker's UDP sockets, with the memory they share.
#[derive(Debug)]
pub(super) struct UdpPorts {
    sockets: Vec<UdpSocket>,
    request: Vec<u8>,
    reply: Vec<u8>,
}

impl UdpPorts {
    pub(super) fn new(sockets: Vec<UdpSocket>) -> UdpPorts {
        let request = if sockets.is_empty() { 0 } else { DATAGRAM_BYTES_MAX };
        UdpPorts { sockets, request: vec![0; request], reply: Vec::new() }
    }

    pub(super) fn fds(&self) -> impl Iterator<Item = i32> {
        self.sockets.iter().map(|socket| socket.as_raw_fd())
    }

    /// Serves the datagrams that wait at one socket. `true` = there may be more.
    pub(super) fn serve<S: Service>(
        &mut self,
        socket: usize,
        worker: usize,
        service: &mut S,
        counters: &WorkerCounters,
    ) -> bool {
        let UdpPorts { sockets, request, reply } = self;
        let socket = &sockets[socket];
        for _ in 0..TURN {
            let (length, remote) = match socket.recv_from(request) {
                Ok(received) => received,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                // Word of a client that is gone (ICMP) is no reason to stop.
                Err(_) => continue,
            };
            counters.bytes_read.add(length as u64);
            let Some(number) = request_number(&request[..length]) else {
                counters.datagrams_dropped.add(1);
                continue;
            };
            counters.datagrams.add(1);
            let from = From::Datagram { remote, local: socket.local_addr().ok() };
            let peer = Peer { transport: Transport::Udp, fd: socket.as_raw_fd(), worker, from };
            reply.clear();
            if converse(service, &peer, &request[FRAME_BYTES..length], reply) {
                send(socket, remote, number, reply, counters);
            } else {
                counters.datagrams_dropped.add(1);
            }
        }
        true
    }
}

/// The request's number, if the datagram is a whole request.
fn request_number(datagram: &[u8]) -> Option<u16> {
    let frame: &[u8; FRAME_BYTES] = datagram.first_chunk()?;
    let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    (word(2) == 0 && word(4) == 1 && datagram.len() > FRAME_BYTES).then(|| word(0))
}

/// Serves one datagram as a conversation of its own. `false` = the reply got too long.
fn converse<S: Service>(service: &mut S, peer: &Peer<'_>, mut input: &[u8], reply: &mut Vec<u8>) -> bool {
    let mut connection = service.open(peer);
    let mut whole = true;
    while (!input.is_empty() || !connection.wants_input()) && whole {
        let mut batch = [Ready { connection: &mut connection, input, consumed: 0 }];
        service.serve(&mut batch);
        let consumed = batch[0].consumed;
        input = &input[consumed..];
        let mut answered = false;
        while let Some(buffer) = connection.take_output() {
            answered = true;
            whole = reply.len() + buffer.len() <= REPLY_BYTES_MAX;
            if !whole {
                break;
            }
            reply.extend_from_slice(&buffer);
            connection.recycle(buffer);
        }
        if connection.wants_close() || (consumed == 0 && !answered) {
            break;
        }
    }
    service.closed(connection);
    whole
}

fn send(socket: &UdpSocket, to: SocketAddr, number: u16, reply: &[u8], counters: &WorkerCounters) {
    let total = reply.len().div_ceil(PAYLOAD_BYTES_MAX) as u16;
    let mut datagram = [0; FRAME_BYTES + PAYLOAD_BYTES_MAX];
    for (sequence, payload) in reply.chunks(PAYLOAD_BYTES_MAX).enumerate() {
        datagram[0..2].copy_from_slice(&number.to_be_bytes());
        datagram[2..4].copy_from_slice(&(sequence as u16).to_be_bytes());
        datagram[4..6].copy_from_slice(&total.to_be_bytes());
        let length = FRAME_BYTES + payload.len();
        datagram[FRAME_BYTES..length].copy_from_slice(payload);
        match socket.send_to(&datagram[..length], to) {
            Ok(sent) => counters.bytes_written.add(sent as u64),
            // UDP promises nothing, and the rest is worthless without this one.
            Err(_) => {
                counters.datagrams_dropped.add(1);
                return;
            }
        }
    }
}
