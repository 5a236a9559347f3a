//! memcached over UDP: an 8-byte frame of four big-endian numbers before each datagram.
//!
//! ```text
//!   0          2                 4                   6          8
//!   | request  | sequence number | datagrams in all  | reserved | payload ..
//! ```
//!
//! A request is one datagram. A reply is as many as it takes, numbered from 0, with the request's number.

use std::io::ErrorKind;
use std::mem;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;

use super::counters::WorkerCounters;
use super::service::{ConnectionId, Conversation, From, Peer, Ready, Service};
use super::shared::Shared;
use super::transport::Transport;

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

/// Conversations of datagrams that wait for something, at most; those beyond it are dropped.
const WAITING_MAX: usize = 1024;
/// Marks the name of a datagram's conversation: streams have lower slots.
const DATAGRAM_SLOTS: u32 = 1 << 31;

/// A worker's UDP sockets, with the memory they share.
#[derive(Debug)]
pub(super) struct UdpPorts<C> {
    sockets: Vec<UdpSocket>,
    request: Vec<u8>,
    reply: Vec<u8>,
    waiting: Vec<Option<Waiting<C>>>,
    generation: u32,
}

/// A datagram's conversation that waits for something, as [`Conversation::is_waiting`] has it.
#[derive(Debug)]
struct Waiting<C> {
    connection: C,
    generation: u32,
    socket: usize,
    remote: SocketAddr,
    number: u16,
    /// What is left of the request, and the reply so far.
    input: Vec<u8>,
    reply: Vec<u8>,
}

impl<C> Waiting<C> {
    fn bytes(&self) -> u64 {
        (self.input.capacity() + self.reply.capacity()) as u64
    }
}

/// How a conversation stands when nothing more can be done for it now.
#[derive(PartialEq, Eq)]
enum Stand {
    Done,
    Waits,
    /// The reply got too long.
    TooLong,
}

impl<C: Conversation> UdpPorts<C> {
    pub(super) fn new(sockets: Vec<UdpSocket>) -> UdpPorts<C> {
        let request = if sockets.is_empty() { 0 } else { DATAGRAM_BYTES_MAX };
        UdpPorts { sockets, request: vec![0; request], reply: Vec::new(), waiting: Vec::new(), generation: 0 }
    }

    /// Whether the name is one of a datagram's conversation.
    pub(super) fn has_named(id: ConnectionId) -> bool {
        id.slot >= DATAGRAM_SLOTS
    }

    pub(super) fn fds(&self) -> impl Iterator<Item = i32> {
        self.sockets.iter().map(|socket| socket.as_raw_fd())
    }

    /// Serves the datagrams that wait at one socket. `true` = there may be more.
    pub(super) fn serve<S: Service<Connection = C>>(
        &mut self,
        socket_number: usize,
        worker: usize,
        service: &mut S,
        shared: &Shared,
    ) -> bool {
        let counters = &shared.counters.workers[worker];
        let UdpPorts { sockets, request, reply, waiting, generation } = self;
        let socket = &sockets[socket_number];
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
            *generation = generation.wrapping_add(1);
            let slot = waiting.iter().position(Option::is_none).unwrap_or(waiting.len());
            let id = ConnectionId { slot: DATAGRAM_SLOTS + slot as u32, generation: *generation };
            let peer = Peer { transport: Transport::Udp, fd: socket.as_raw_fd(), worker, id, from };
            reply.clear();
            let mut connection = service.open(&peer);
            let mut input = &request[FRAME_BYTES..length];
            match converse(service, &mut connection, &mut input, reply) {
                Stand::Done => send(socket, remote, number, reply, counters),
                Stand::TooLong => counters.datagrams_dropped.add(1),
                Stand::Waits => {
                    let waits = Waiting {
                        connection,
                        generation: *generation,
                        socket: socket_number,
                        remote,
                        number,
                        input: input.to_vec(),
                        reply: mem::take(reply),
                    };
                    if let Some(waits) = keep(waiting, slot, waits, shared) {
                        counters.datagrams_dropped.add(1);
                        service.closed(waits.connection);
                    }
                    continue;
                }
            }
            service.closed(connection);
        }
        true
    }

    /// The worker ends: what still waits is not answered.
    pub(super) fn end<S: Service<Connection = C>>(&mut self, service: &mut S, shared: &Shared) {
        for waits in self.waiting.drain(..).flatten() {
            shared.buffers.give(waits.bytes());
            service.closed(waits.connection);
        }
    }

    /// What the conversation waited for has come.
    pub(super) fn resume<S: Service<Connection = C>>(
        &mut self,
        id: ConnectionId,
        service: &mut S,
        shared: &Shared,
        worker: usize,
    ) {
        let counters = &shared.counters.workers[worker];
        let slot = (id.slot - DATAGRAM_SLOTS) as usize;
        let named = |waits: &mut Waiting<C>| waits.generation == id.generation;
        let Some(mut waits) = self.waiting.get_mut(slot).and_then(|place| place.take_if(named)) else {
            return;
        };
        shared.buffers.give(waits.bytes());
        let mut input = &waits.input[..];
        let stand = converse(service, &mut waits.connection, &mut input, &mut waits.reply);
        let rest = waits.input.len() - input.len();
        waits.input.drain(..rest);
        match stand {
            Stand::Waits => {
                if let Some(waits) = keep(&mut self.waiting, slot, waits, shared) {
                    counters.datagrams_dropped.add(1);
                    service.closed(waits.connection);
                }
                return;
            }
            Stand::Done => {
                send(&self.sockets[waits.socket], waits.remote, waits.number, &waits.reply, counters)
            }
            Stand::TooLong => counters.datagrams_dropped.add(1),
        }
        service.closed(waits.connection);
    }
}

/// The request's number, if the datagram is a whole request.
fn request_number(datagram: &[u8]) -> Option<u16> {
    let frame: &[u8; FRAME_BYTES] = datagram.first_chunk()?;
    let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    (word(2) == 0 && word(4) == 1 && datagram.len() > FRAME_BYTES).then(|| word(0))
}

/// Puts a conversation aside, or gives it back if too many, or too large ones, wait.
fn keep<C>(
    waiting: &mut Vec<Option<Waiting<C>>>,
    slot: usize,
    waits: Waiting<C>,
    shared: &Shared,
) -> Option<Waiting<C>> {
    if slot >= WAITING_MAX || !shared.buffers.try_take(waits.bytes()) {
        return Some(waits);
    }
    if slot >= waiting.len() {
        waiting.resize_with(slot + 1, || None);
    }
    waiting[slot] = Some(waits);
    None
}

/// Serves a datagram as a conversation of its own, as far as it goes now. `input` is what is left of the request.
fn converse<S: Service>(
    service: &mut S,
    connection: &mut S::Connection,
    input: &mut &[u8],
    reply: &mut Vec<u8>,
) -> Stand {
    loop {
        let mut batch = [Ready { connection: &mut *connection, input, consumed: 0 }];
        service.serve(&mut batch);
        let consumed = batch[0].consumed;
        *input = &input[consumed..];
        let mut answered = false;
        while let Some(buffer) = connection.take_output() {
            answered = true;
            if reply.len() + buffer.len() > REPLY_BYTES_MAX {
                return Stand::TooLong;
            }
            reply.extend_from_slice(&buffer);
            connection.recycle(buffer);
        }
        if connection.is_waiting() || connection.has_output() {
            return Stand::Waits;
        }
        let idle = consumed == 0 && !answered;
        if connection.wants_close() || idle || (input.is_empty() && connection.wants_input()) {
            return Stand::Done;
        }
    }
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
