//! Replies that wait behind a socket that is full.

use super::buffers::{Buffers, Charge};
use std::collections::VecDeque;
use std::sync::Arc;

/// A reply of up to this many bytes is kept once, with how often it comes: the answers to writes are all alike.
const ALIKE_BYTES_MAX: usize = 64;
/// Replies that are alike are sent in pieces of about this many bytes.
const PIECE_BYTES: usize = 64 << 10;

/// Replies that were taken from the service while the socket is full, in their order.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    pieces: VecDeque<Piece>,
    /// What they take in the account of buffers.
    charged_bytes: u64,
    /// Bytes of requests that were served since replies were last taken.
    served_bytes: usize,
    /// The replies are longer than their requests: it costs less to keep the requests.
    replies_are_long: bool,
    /// There is memory to receive more.
    takes_input: bool,
}

#[derive(Debug)]
enum Piece {
    Bytes(Vec<u8>, Charge),
    /// One reply, this many times.
    Alike {
        reply: Vec<u8>,
        times: usize,
    },
}

impl Backlog {
    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Requests of `bytes` bytes were served.
    #[inline]
    pub(super) fn served(&mut self, bytes: usize) {
        self.served_bytes += bytes;
    }

    /// Whether it costs less to keep replies than requests.
    pub(super) fn takes_replies(&self) -> bool {
        !self.replies_are_long
    }

    /// Whether more input may be received though the service can do nothing with it now.
    pub(super) fn takes_input(&self) -> bool {
        self.takes_input
    }

    /// Says whether more input may be received.
    pub(super) fn may_take_input(&mut self, may: bool) {
        self.takes_input = may;
    }

    /// Bytes in the account of buffers.
    pub(super) fn charged_bytes(&self) -> u64 {
        self.charged_bytes
    }

    /// Adds a buffer of the service. It comes back if its content is kept in another form.
    pub(super) fn push(&mut self, buffer: Vec<u8>, buffers: &Arc<Buffers>) -> Option<Vec<u8>> {
        let served_bytes = std::mem::take(&mut self.served_bytes);
        if let Some(reply) = reply_repeated_in(&buffer) {
            let more = buffer.len() / reply.len();
            match self.pieces.back_mut() {
                Some(Piece::Alike { reply: last, times }) if last == reply => *times += more,
                _ => self.pieces.push_back(Piece::Alike { reply: reply.to_vec(), times: more }),
            }
            return Some(buffer);
        }
        self.replies_are_long = buffer.len() > served_bytes;
        let bytes = buffer.capacity() as u64;
        self.charged_bytes += bytes;
        buffers.take(bytes);
        self.pieces.push_back(Piece::Bytes(buffer, Charge::of(Arc::clone(buffers), bytes)));
        None
    }

    /// The next bytes to send.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<Vec<u8>> {
        if self.pieces.is_empty() { None } else { self.pop_piece() }
    }

    #[cold]
    fn pop_piece(&mut self) -> Option<Vec<u8>> {
        let next = match self.pieces.front_mut()? {
            Piece::Bytes(bytes, charge) => {
                self.charged_bytes -= charge.bytes();
                std::mem::take(bytes)
            }
            Piece::Alike { reply, times } => {
                let now = (*times).min(PIECE_BYTES / reply.len());
                *times -= now;
                if *times > 0 {
                    return Some(reply.repeat(now));
                }
                reply.repeat(now)
            }
        };
        self.pieces.pop_front();
        if self.pieces.is_empty() {
            // The socket takes bytes again: what comes next may be something else.
            *self = Backlog::default();
        }
        Some(next)
    }
}

/// Whether these replies take next to no room.
pub(super) fn are_alike(replies: &[u8]) -> bool {
    reply_repeated_in(replies).is_some()
}

/// The short reply that the buffer consists of, if it is the same reply again and again.
fn reply_repeated_in(buffer: &[u8]) -> Option<&[u8]> {
    let end = buffer.iter().take(ALIKE_BYTES_MAX).position(|byte| *byte == b'\n')? + 1;
    let (reply, rest) = buffer.split_at(end);
    let is_repeated = buffer.len().is_multiple_of(end) && rest == &buffer[..rest.len()];
    (!rest.is_empty() && is_repeated).then_some(reply)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(backlog: &mut Backlog) -> Vec<u8> {
        std::iter::from_fn(|| backlog.pop())
            .inspect(|piece| assert!(piece.len() <= 2 * PIECE_BYTES))
            .flatten()
            .collect()
    }

    #[test]
    fn replies_that_are_alike_take_no_room_and_come_back_in_their_order() {
        let buffers = Arc::new(Buffers::new(1 << 30));
        let mut backlog = Backlog::default();
        let mut expected = Vec::new();
        for _ in 0..100 {
            let buffer = b"STORED\r\n".repeat(9000);
            expected.extend_from_slice(&buffer);
            backlog.served(400_000);
            assert!(backlog.push(buffer, &buffers).is_some() && backlog.takes_replies());
        }
        assert_eq!((backlog.charged_bytes(), buffers.used_bytes()), (0, 0));
        for other in [&b"+OK\r\n+OK\r\n"[..], b"+OK\r\n:1\r\n", b":1\r\n", b"no line"] {
            expected.extend_from_slice(other);
            backlog.push(other.to_vec(), &buffers);
        }
        assert!(buffers.used_bytes() >= 20);
        assert!(drain(&mut backlog) == expected && backlog.is_empty());
        assert_eq!(buffers.used_bytes(), 0);
    }

    #[test]
    fn where_replies_are_longer_than_requests_the_requests_are_kept() {
        let buffers = Arc::new(Buffers::new(1 << 30));
        let mut backlog = Backlog::default();
        backlog.served(100);
        assert!(backlog.push(vec![b'x'; 90], &buffers).is_none() && backlog.takes_replies());
        backlog.served(100);
        assert!(backlog.push(vec![b'x'; 110], &buffers).is_none() && !backlog.takes_replies());
        assert_eq!(backlog.charged_bytes(), buffers.used_bytes());
        drain(&mut backlog);
        assert!(backlog.takes_replies(), "it begins again");
    }
}
