//! One client's conversation, above its socket.

use super::output::{Output, Pool};
use super::progress::Progress;
use crate::io::{Awaits, ConnectionId, Conversation};
use std::rc::Rc;

/// One client's conversation: its replies, its unfinished work, and how far its input is read.
pub struct Connection {
    pub(super) output: Output,
    pub(super) progress: Progress,
    /// The client has logged in, or does not have to.
    pub(super) is_authenticated: bool,
    /// Keys of the `get` line at the front of the input that were answered before the output was full.
    pub(super) keys_done: usize,
    /// Bytes of a refused data block that are still to be thrown away.
    pub(super) swallow: u64,
    /// Bytes of input that make the next turn worth while.
    pub(super) input_wanted: usize,
    /// The connection ends in the middle of what the client sends.
    pub(super) ends_unserved: bool,
    /// The connection has had its share of the present turn, and has more input.
    pub(super) gave_way: bool,
}

impl Connection {
    pub(super) fn new(
        pool: &Rc<Pool>,
        id: ConnectionId,
        is_authenticated: bool,
        is_datagram: bool,
    ) -> Connection {
        Connection {
            output: Output::new(pool.clone(), is_datagram),
            progress: Progress::new(id),
            is_authenticated,
            keys_done: 0,
            swallow: 0,
            input_wanted: 0,
            ends_unserved: false,
            gave_way: false,
        }
    }

    /// Whether nothing more may be answered before the output is sent, or before flash has answered.
    #[inline]
    pub(super) fn is_backed_up(&self) -> bool {
        self.output.is_full() || self.progress.blocks_replies()
    }

    /// Whether something has to be done before the input can be read as requests.
    #[inline]
    pub(super) fn needs_turn(&self) -> bool {
        self.swallow > 0 || self.progress.busy.is_some() || !self.is_authenticated
    }

    /// The request at the front of the input is answered.
    #[inline]
    pub(super) fn completed(&mut self) {
        self.progress.tries = 0;
        self.keys_done = 0;
        self.input_wanted = 0;
    }
}

impl Conversation for Connection {
    fn take_output(&mut self) -> Option<Vec<u8>> {
        self.output.take()
    }

    fn recycle(&mut self, buffer: Vec<u8>) {
        self.output.recycle(buffer);
    }

    fn has_output(&self) -> bool {
        self.output.has_any()
    }

    fn is_waiting(&self) -> bool {
        self.progress.waits
    }

    fn wants_close(&self) -> bool {
        self.output.is_closing() && self.progress.busy.is_none()
    }

    fn ends_unserved(&self) -> bool {
        self.ends_unserved
    }

    fn awaits(&self, held: usize) -> Awaits {
        if self.swallow > 0 {
            Awaits::RefusedValue
        } else if self.progress.is_receiving() || self.input_wanted > held + 1 {
            Awaits::Value
        } else {
            Awaits::Request
        }
    }

    fn wants_input(&self) -> bool {
        !self.output.is_closing() && !self.is_backed_up()
    }

    fn input_wanted(&self) -> usize {
        self.input_wanted
    }
}
