//! One connection of an event loop: its buffers, the commands in flight and those waiting to be sent.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};

use super::feed::{Order, Phase};
use super::server::Stream;
use super::tally::Kind;
use super::wire::Verb;

/// Initial size of the input buffer.
const INPUT_BYTES: usize = 64 * 1024;
/// An input buffer that grew for a long value is released above this size.
const INPUT_BYTES_KEPT: usize = 4 * 1024 * 1024;
/// Written bytes are dropped from the output buffer once there are this many, and at least as many as unwritten ones.
const WRITTEN_BYTES_KEPT: usize = 128 * 1024;
/// An output buffer that grew for a long value is released above this size.
const OUT_BYTES_KEPT: usize = 4 * 1024 * 1024;
/// Initial and maximum delay before a lost connection is made again.
const BACK_OFF_NS: (u64, u64) = (10_000_000, 1_000_000_000);

/// A command to send.
#[derive(Clone, Copy, Debug)]
pub(super) struct Command {
    /// The verb of the message.
    pub(super) verb: Verb,
    /// The kind under which the report counts it.
    pub(super) kind: Kind,
    /// Whether it is counted.
    pub(super) counted: bool,
    /// The number of the key.
    pub(super) key: u64,
    /// Length of the key's text in bytes.
    pub(super) key_length: usize,
    /// The identity of the key, which depends on its number and length.
    pub(super) identity: u64,
    /// Length of the value in bytes, where one is sent.
    pub(super) value_bytes: u32,
    /// Time to live in seconds.
    pub(super) ttl_s: u32,
    /// Cost of a miss in microseconds.
    pub(super) penalty_us: u32,
    /// The time from which latency counts; 0 = the time of sending.
    pub(super) began_ns: u64,
}

/// A command that was sent and is not yet answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    /// The command.
    pub(super) command: Command,
    /// The version that it wrote; 0 = none.
    pub(super) version: u64,
    /// Whether the number 0 was stored instead of a value.
    pub(super) zero: bool,
    /// The time of sending.
    pub(super) sent_ns: u64,
}

/// A request that waits for its connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queued {
    /// The request with its time.
    pub(super) order: Order,
    /// The phase that it belongs to.
    pub(super) phase: Phase,
}

/// The state of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ConnectionState {
    /// Not connected; the next attempt is at this time.
    Down { retry_ns: u64 },
    /// Being connected since this time.
    Connecting { since_ns: u64 },
    /// Connected since this time.
    Up { since_ns: u64 },
}

/// A connection.
pub(super) struct Connection {
    /// Number among the connections of all threads.
    pub(super) number: usize,
    /// The state.
    pub(super) state: ConnectionState,
    /// Whether the connection has proved that it works, and counts as healthy.
    pub(super) healthy: bool,
    /// The time since which the connection has not been healthy, while it is not.
    pub(super) unhealthy_ns: u64,
    /// The socket, unless the connection is down.
    pub(super) stream: Option<Stream>,
    /// Commands in flight, in order.
    pub(super) pending: VecDeque<Pending>,
    /// Commands to send before anything else.
    pub(super) commands: VecDeque<Command>,
    /// Requests to send.
    pub(super) queue: VecDeque<Queued>,
    /// Whether the connection is on the list of those that may have something to send.
    pub(super) marked: bool,
    /// Output. The bytes from `written` on are still to be written.
    pub(super) out: Vec<u8>,
    written: usize,
    /// Input. The first `filled` bytes are valid.
    pub(super) input: Vec<u8>,
    /// Number of valid bytes of the input.
    pub(super) filled: usize,
    /// Minimum length of the reply at the start of the input.
    pub(super) needed: usize,
    back_off_ns: u64,
}

impl Connection {
    /// A connection that is to be made at once.
    pub(super) fn new(number: usize, depth: usize) -> Connection {
        Connection {
            number,
            state: ConnectionState::Down { retry_ns: 0 },
            healthy: false,
            unhealthy_ns: 0,
            stream: None,
            pending: VecDeque::with_capacity(depth + 2),
            commands: VecDeque::new(),
            queue: VecDeque::new(),
            marked: false,
            out: Vec::new(),
            written: 0,
            input: vec![0; INPUT_BYTES],
            filled: 0,
            needed: 1,
            back_off_ns: BACK_OFF_NS.0,
        }
    }

    /// Whether nothing is in flight and nothing waits.
    pub(super) fn is_idle(&self) -> bool {
        self.pending.is_empty() && self.commands.is_empty() && self.queue.is_empty()
    }

    /// Bytes that still have to be written.
    pub(super) fn unwritten_bytes(&self) -> usize {
        self.out.len() - self.written
    }

    /// Writes as much as the socket takes.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        while self.written < self.out.len() {
            match stream.write(&self.out[self.written..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(bytes) => self.written += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.drop_written();
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.clear_out();
        Ok(())
    }

    /// Drops the written bytes. It never moves more bytes than it drops, so that the total work stays linear.
    fn drop_written(&mut self) {
        if self.written >= WRITTEN_BYTES_KEPT.max(self.unwritten_bytes()) {
            self.out.drain(..self.written);
            self.written = 0;
        }
    }

    fn clear_out(&mut self) {
        self.out.clear();
        self.written = 0;
        if self.out.capacity() > OUT_BYTES_KEPT {
            self.out = Vec::new();
        }
    }

    /// Reads once into the buffer. `None`: nothing was available. `Some`: whether more may be available.
    pub(super) fn read(&mut self) -> io::Result<Option<bool>> {
        let Some(stream) = &mut self.stream else { return Ok(None) };
        if self.input.len() < self.needed {
            self.input.resize(self.needed.next_power_of_two(), 0);
        }
        loop {
            let room = &mut self.input[self.filled..];
            let room_bytes = room.len();
            match stream.read(room) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => {
                    self.filled += bytes;
                    return Ok(Some(bytes == room_bytes));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Removes the first `taken` bytes of the input.
    pub(super) fn consume(&mut self, taken: usize) {
        if taken > 0 {
            self.input.copy_within(taken..self.filled, 0);
            self.filled -= taken;
        }
        if self.input.len() > INPUT_BYTES_KEPT && self.filled == 0 && self.needed <= INPUT_BYTES {
            self.input = vec![0; INPUT_BYTES];
        }
    }

    /// Closes the connection. It is made again after a delay that grows each time. Commands in flight stay in
    /// `pending`.
    pub(super) fn drop_stream(&mut self, now_ns: u64) {
        self.stream = None;
        self.state = ConnectionState::Down { retry_ns: now_ns + self.back_off_ns };
        self.back_off_ns = (self.back_off_ns * 2).min(BACK_OFF_NS.1);
        self.clear_out();
        (self.filled, self.needed) = (0, 1);
    }

    /// Whether the connection was never lost.
    pub(super) fn is_new(&self) -> bool {
        self.back_off_ns == BACK_OFF_NS.0
    }

    /// Resets the delay, because the connection works.
    pub(super) fn prove(&mut self) {
        self.back_off_ns = BACK_OFF_NS.0;
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn connected() -> (Connection, mio::net::UnixStream) {
        let (own, peer) = mio::net::UnixStream::pair().expect("a pair of sockets");
        let mut connection = Connection::new(0, 1);
        connection.stream = Some(Stream::Unix(own));
        (connection, peer)
    }

    #[test]
    fn output_for_a_slow_reader_stays_bounded_and_whole() {
        let (mut connection, mut peer) = connected();
        let (mut put, mut read) = (0u32, Vec::new());
        let mut piece = vec![0; 48 * 1024];
        for _ in 0..400 {
            while connection.unwritten_bytes() < 256 * 1024 {
                connection.out.extend((put..put + 1024).flat_map(u32::to_le_bytes));
                put += 1024;
            }
            connection.flush().expect("an open socket");
            assert!(connection.out.len() <= 1024 * 1024, "{} octets", connection.out.len());
            if let Ok(bytes) = peer.read(&mut piece) {
                read.extend_from_slice(&piece[..bytes]);
            }
        }
        assert!(read.len() > 4 * 1024 * 1024, "{} octets", read.len());
        let expected: Vec<u8> = (0..put).flat_map(u32::to_le_bytes).take(read.len()).collect();
        assert!(read == expected);
    }

    #[test]
    fn the_room_of_a_long_value_is_given_back() {
        let (mut connection, mut peer) = connected();
        connection.out = vec![7; 2 * OUT_BYTES_KEPT];
        let mut piece = vec![0; 256 * 1024];
        while connection.unwritten_bytes() > 0 {
            connection.flush().expect("an open socket");
            while peer.read(&mut piece).is_ok() {}
        }
        assert!(connection.out.capacity() <= OUT_BYTES_KEPT);
    }
}
