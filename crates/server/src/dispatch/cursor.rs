//! Where gathering stands, and in which order the connections have their turns.

use super::connection::Connection;
use super::execute::Executor;
use super::progress::{KeyRead, RestOfLine};
use super::window::{Place, Window};
use crate::io::Ready;
use larder_protocol::resp::Args;
use larder_protocol::{Keys, resume_keys};
use std::mem;

/// Where gathering stands: which connection, how far into its input, and the rest of a retrieval's line.
pub(super) struct Cursor<'a> {
    pub(super) connection: usize,
    pub(super) at: usize,
    pub(super) keys: Option<(Keys<'a>, KeyRead, usize)>,
    /// The rest of an `MGET`, and where it ends.
    pub(super) args: Option<(Args<'a>, usize)>,
    /// How many requests of a connection may come before the next connection has its turn.
    share: usize,
    /// How many requests of the connection may still come before the next connection has its turn. Every key of a
    /// multiget counts, but its line is read to the end.
    pub(super) share_left: usize,
    /// The length of the window at which that many are in it, or at which it is full.
    pub(super) window_stop: usize,
    /// Whether every connection has had its share, and those that gave way have their next.
    is_later_round: bool,
    /// Whether a connection gave way in this round.
    has_next_round: bool,
}

impl<'a> Cursor<'a> {
    /// At the first connection. `requests_per_share` = how many requests of one connection are executed before another
    /// connection has its turn.
    pub(super) fn new<S>(batch: &mut [Ready<'_, Connection<S>>], requests_per_share: usize) -> Cursor<'a> {
        // A connection that is alone has nobody to give way to.
        let share = if batch.len() > 1 { requests_per_share } else { usize::MAX };
        let mut cursor = Cursor {
            connection: 0,
            at: 0,
            keys: None,
            args: None,
            share,
            share_left: share,
            window_stop: 0,
            is_later_round: false,
            has_next_round: false,
        };
        cursor.visit(batch, 0);
        cursor
    }

    /// Moves to the next connection that has its turn, from the number `from` on.
    #[inline]
    pub(super) fn visit<S>(&mut self, batch: &mut [Ready<'_, Connection<S>>], from: usize) {
        self.connection = from;
        if self.is_later_round {
            let next =
                batch.iter_mut().skip(from).position(|ready| mem::take(&mut ready.connection.gave_way));
            self.connection = next.map_or(batch.len(), |steps| from + steps);
        }
        self.at = batch.get(self.connection).map_or(0, |ready| ready.consumed);
        (self.keys, self.args) = (None, None);
        self.share_left = self.share;
    }

    /// Goes on with the line at the front of the input that was interrupted.
    #[cold]
    pub(super) fn go_on<S>(&mut self, ready: &mut Ready<'a, Connection<S>>) {
        if let Some(line) = ready.connection.rest_of_line.take() {
            let RestOfLine { read, at, end } = *line;
            let end = ready.consumed + end;
            let rest: &'a [u8] = &ready.input[ready.consumed + at..end];
            self.keys = Some((resume_keys(rest, read.left), read, end));
        }
    }

    /// Every connection has had its turn. Moves to the first that gave way, if one did.
    pub(super) fn begin_next_round<S>(&mut self, batch: &mut [Ready<'_, Connection<S>>]) -> bool {
        let begins = mem::take(&mut self.has_next_round);
        if begins {
            self.is_later_round = true;
            self.visit(batch, 0);
        }
        begins
    }

    /// Where a request stands that ends where the cursor is.
    #[inline(always)]
    pub(super) fn place(&self) -> Place {
        Place { connection: self.connection as u32, end: self.at }
    }

    /// The window is full, or the connection has had its share. Returns whether the window is full.
    #[cold]
    pub(super) fn stop<S, W>(
        &mut self,
        executor: &Executor,
        ready: &mut Ready<'_, Connection<S>>,
        window: &Window<'_, W>,
    ) -> bool {
        if !window.is_full() && self.gives_way(ready) {
            executor.state().count_yields(1);
        }
        window.is_full()
    }

    /// The connection has had its share. If it has more input, it has another turn in the next round. Returns whether
    /// it has.
    fn gives_way<S>(&mut self, ready: &mut Ready<'_, Connection<S>>) -> bool {
        let has_more = self.at < ready.input.len();
        if has_more {
            ready.connection.gave_way = true;
            self.has_next_round = true;
        }
        has_more
    }
}
