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
use std::sync::Arc;

use super::buffers::Buffers;
use super::counters::WorkerCounters;
use super::service::{CloseReason, ConnectionId, Conversation, From, Peer, Ready, Service};
use super::shared::Shared;
use super::transport::Transport;

/// The frame.
const FRAME_BYTES: usize = 8;
/// The most bytes of a reply in one datagram, without the frame. With the frame they are 1400, which fit every common
/// path.
const PAYLOAD_BYTES_MAX: usize = 1392;
/// The longest reply, in bytes. A longer one is dropped, because no client reassembles that many datagrams.
const REPLY_BYTES_MAX: usize = 1 << 20;
/// The memory of a reply of up to this many bytes is kept for the next one.
const REPLY_BYTES_KEPT: usize = 64 << 10;
/// Datagrams that are served before the streams have their turn.
const TURN: usize = 64;
/// The longest datagram there is, in bytes.
const DATAGRAM_BYTES_MAX: usize = 65536;

/// The most conversations of datagrams that may wait for something. Others are dropped.
const WAITING_MAX: usize = 1024;
/// The slots of datagrams' conversations begin here. Streams have lower slots.
const DATAGRAM_SLOTS: u32 = 1 << 31;

/// A worker's UDP sockets, with the memory they share.
#[derive(Debug)]
pub(super) struct UdpPorts<C> {
    sockets: Vec<UdpSocket>,
    request: Vec<u8>,
    reply: Reply,
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
    /// What is left of the request.
    input: Vec<u8>,
    /// The reply so far.
    reply: Reply,
}

/// A reply as it is made. Its memory is in the account of connection buffers.
#[derive(Debug)]
struct Reply {
    bytes: Vec<u8>,
    /// Bytes that are accounted.
    charged: u64,
    buffers: Arc<Buffers>,
}

impl Reply {
    fn new(buffers: &Arc<Buffers>) -> Reply {
        Reply { bytes: Vec::new(), charged: 0, buffers: Arc::clone(buffers) }
    }

    /// Appends bytes. `false` = the reply gets too long, or there is no memory for it.
    #[must_use]
    fn append(&mut self, more: &[u8]) -> bool {
        let length = self.bytes.len() + more.len();
        if length > REPLY_BYTES_MAX {
            return false;
        }
        if length > self.bytes.capacity() {
            let capacity = length.next_power_of_two();
            if !self.buffers.try_take(capacity as u64 - self.charged) {
                return false;
            }
            self.bytes.reserve_exact(capacity - self.bytes.len());
            self.buffers.take(self.bytes.capacity() as u64 - capacity as u64);
            self.charged = self.bytes.capacity() as u64;
        }
        self.bytes.extend_from_slice(more);
        true
    }

    /// Empties the reply for the next one, which is probably short.
    fn clear(&mut self) {
        self.bytes.clear();
        if self.bytes.capacity() > REPLY_BYTES_KEPT {
            self.bytes = Vec::new();
            self.buffers.give(mem::take(&mut self.charged));
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        self.buffers.give(self.charged);
    }
}

/// How far a conversation is when nothing more can be done for it now.
#[derive(PartialEq, Eq)]
enum Progress {
    Done,
    Waits,
    /// The reply got too long, or there is no memory for it.
    TooLong,
}

impl<C: Conversation> UdpPorts<C> {
    /// With sockets, a worker takes memory to receive into.
    pub(super) fn new(sockets: Vec<UdpSocket>, buffers: &Arc<Buffers>) -> UdpPorts<C> {
        let request = if sockets.is_empty() { 0 } else { DATAGRAM_BYTES_MAX };
        buffers.take_receiving(request as u64);
        let reply = Reply::new(buffers);
        UdpPorts { sockets, request: vec![0; request], reply, waiting: Vec::new(), generation: 0 }
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
                // The network may report a client that is gone (ICMP). Others are served all the same.
                Err(_) => continue,
            };
            counters.bytes_read.add(length as u64);
            let Some(number) = request_number(&request[..length]) else {
                counters.datagrams_dropped.add(1);
                continue;
            };
            if !shared.udp_limit.allows(remote.ip()) {
                counters.datagrams_dropped.add(1);
                continue;
            }
            counters.datagrams.add(1);
            let from = From::Datagram { remote, local: socket.local_addr().ok() };
            *generation = generation.wrapping_add(1);
            let slot = waiting.iter().position(Option::is_none).unwrap_or(waiting.len());
            let id = ConnectionId { slot: DATAGRAM_SLOTS + slot as u32, generation: *generation };
            let peer = Peer {
                transport: Transport::Udp,
                fd: socket.as_raw_fd(),
                worker,
                id,
                is_stranger: false,
                from,
            };
            reply.clear();
            let mut connection = service.open(&peer);
            let mut input = &request[FRAME_BYTES..length];
            match converse(service, &mut connection, &mut input, reply) {
                Progress::Done => send(socket, remote, number, &reply.bytes, shared, counters),
                Progress::TooLong => counters.datagrams_dropped.add(1),
                Progress::Waits => {
                    let waits = Waiting {
                        connection,
                        generation: *generation,
                        socket: socket_number,
                        remote,
                        number,
                        input: input.to_vec(),
                        reply: mem::replace(reply, Reply::new(&shared.buffers)),
                    };
                    if let Some(waits) = keep(waiting, slot, waits, shared) {
                        counters.datagrams_dropped.add(1);
                        service.closed(waits.connection, CloseReason::Normal);
                    }
                    continue;
                }
            }
            service.closed(connection, CloseReason::Normal);
        }
        true
    }

    /// The worker ends. Conversations that still wait are not answered.
    pub(super) fn end<S: Service<Connection = C>>(&mut self, service: &mut S, shared: &Shared) {
        for waits in self.waiting.drain(..).flatten() {
            shared.buffers.give(waits.input.capacity() as u64);
            service.closed(waits.connection, CloseReason::Normal);
        }
        shared.buffers.give_receiving(mem::take(&mut self.request).len() as u64);
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
        shared.buffers.give(waits.input.capacity() as u64);
        let mut input = &waits.input[..];
        let progress = converse(service, &mut waits.connection, &mut input, &mut waits.reply);
        let rest = waits.input.len() - input.len();
        waits.input.drain(..rest);
        match progress {
            Progress::Waits => {
                if let Some(waits) = keep(&mut self.waiting, slot, waits, shared) {
                    counters.datagrams_dropped.add(1);
                    service.closed(waits.connection, CloseReason::Normal);
                }
                return;
            }
            Progress::Done => {
                let socket = &self.sockets[waits.socket];
                send(socket, waits.remote, waits.number, &waits.reply.bytes, shared, counters)
            }
            Progress::TooLong => counters.datagrams_dropped.add(1),
        }
        service.closed(waits.connection, CloseReason::Normal);
    }
}

/// The request's number, if the datagram is a whole request.
fn request_number(datagram: &[u8]) -> Option<u16> {
    let frame: &[u8; FRAME_BYTES] = datagram.first_chunk()?;
    let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    (word(2) == 0 && word(4) == 1 && datagram.len() > FRAME_BYTES).then(|| word(0))
}

/// Puts a conversation aside. Returns it if too many wait, or if the buffers' limit is reached.
fn keep<C>(
    waiting: &mut Vec<Option<Waiting<C>>>,
    slot: usize,
    waits: Waiting<C>,
    shared: &Shared,
) -> Option<Waiting<C>> {
    if slot >= WAITING_MAX || !shared.buffers.try_take(waits.input.capacity() as u64) {
        return Some(waits);
    }
    if slot >= waiting.len() {
        waiting.resize_with(slot + 1, || None);
    }
    waiting[slot] = Some(waits);
    None
}

/// Serves a datagram as a conversation of its own, as far as possible now. `input` = what is left of the request.
fn converse<S: Service>(
    service: &mut S,
    connection: &mut S::Connection,
    input: &mut &[u8],
    reply: &mut Reply,
) -> Progress {
    loop {
        let mut batch = [Ready { connection: &mut *connection, input, consumed: 0 }];
        service.serve(&mut batch);
        let consumed = batch[0].consumed;
        *input = &input[consumed..];
        let mut answered = false;
        while let Some(buffer) = connection.take_output() {
            answered = true;
            if !reply.append(&buffer) {
                return Progress::TooLong;
            }
            connection.recycle(buffer);
        }
        if connection.is_waiting() || connection.has_output() {
            return Progress::Waits;
        }
        let idle = consumed == 0 && !answered;
        if connection.wants_close() || idle || (input.is_empty() && connection.wants_input()) {
            return Progress::Done;
        }
    }
}

fn send(
    socket: &UdpSocket,
    to: SocketAddr,
    number: u16,
    reply: &[u8],
    shared: &Shared,
    counters: &WorkerCounters,
) {
    shared.udp_limit.charge(to.ip(), reply.len());
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
            // The rest of the reply is worthless without this datagram.
            Err(_) => {
                counters.datagrams_dropped.add(1);
                return;
            }
        }
    }
}
