//! What a protocol does in a worker's turn. `memcached` and `resp` each have one room that does it.

use super::connection::{Connection, SessionState};
use super::cursor::Cursor;
use super::execute::Executor;
use super::progress::Busy;
use super::window::{Hints, Progressed, Window, WindowOp};
use crate::io::Ready;
use std::ops::ControlFlow;

/// One worker's side of a protocol, or of protocols that are alike. `S` = what a connection keeps for its protocol.
///
/// The dispatcher calls it in this order: `gather` fills the window, `execute` executes each entry of it, and at the
/// end of the turn `read_ahead` looks at what a connection that waits for flash has behind.
pub(super) trait Interpreter<S: SessionState> {
    /// What is to be done with one entry of the window.
    type Work<'a>;

    /// Fills the window with the requests of one connection, whose buckets are asked for. Returns whether the window
    /// has to be executed before more of this connection is read.
    fn gather<'a, W: From<Self::Work<'a>>>(
        &mut self,
        executor: &mut Executor,
        ready: &mut Ready<'a, Connection<S>>,
        cursor: &mut Cursor<'a>,
        window: &mut Window<'a, W>,
    ) -> bool;

    /// Executes an entry of the window, unless it has to wait for flash first.
    fn execute<W>(
        &mut self,
        executor: &mut Executor,
        ready: &mut Ready<'_, Connection<S>>,
        op: &WindowOp<'_, W>,
        work: &Self::Work<'_>,
        hints: &mut Hints,
    ) -> Progressed;

    /// Begins to read from flash the keys of what follows in the input of a connection that waits.
    fn read_ahead(&mut self, executor: &mut Executor, ready: &mut Ready<'_, Connection<S>>);

    /// Goes on with what only this protocol knows: a login, a value that comes in pieces, a list.
    fn go_on(&mut self, executor: &mut Executor, ready: &mut Ready<'_, Connection<S>>);

    /// Does what has to be done before the input at the cursor can be read as a request. It breaks if nothing more of
    /// this connection can be read, with whether the window has to be executed first.
    #[inline(always)]
    fn come_to_request(
        &mut self,
        executor: &mut Executor,
        ready: &mut Ready<'_, Connection<S>>,
        cursor: &mut Cursor<'_>,
    ) -> ControlFlow<bool> {
        while ready.connection.needs_turn() {
            // A turn of its own, once the requests before it are executed.
            if cursor.at != ready.consumed {
                return ControlFlow::Break(true);
            }
            let protocol = ready.connection.protocol();
            self.take_turn(executor, ready);
            let progressed = ready.consumed > cursor.at;
            cursor.at = ready.consumed;
            // Who has logged in may have a namespace, and is gathered otherwise.
            if ready.connection.protocol() != protocol {
                return ControlFlow::Break(true);
            }
            if ready.connection.needs_turn() && !progressed {
                return ControlFlow::Break(false);
            }
        }
        let ends = ready.connection.output.is_closing()
            || ready.connection.is_backed_up()
            || cursor.at >= ready.input.len();
        if ends { ControlFlow::Break(false) } else { ControlFlow::Continue(()) }
    }

    /// Something that is not a request: the next piece of a large value or of a list, bytes to throw away, a login.
    #[inline(never)]
    fn take_turn(&mut self, executor: &mut Executor, ready: &mut Ready<'_, Connection<S>>) {
        if ready.connection.turned_away(ready.input) {
            ready.consumed = ready.input.len();
            return;
        }
        let Connection { output, progress, swallow, .. } = &mut *ready.connection;
        let takes_in = matches!(progress.busy, Some(Busy::Receiving(_) | Busy::Taking));
        if takes_in && executor.is_short_of_room() && executor.waits_for_room(progress) {
            return;
        }
        let is_own = match &progress.busy {
            Some(Busy::Sending(_) | Busy::Listing { .. } | Busy::Answering) if output.is_full() => false,
            Some(Busy::Sending(_)) => {
                executor.continue_sending(progress, output.room(), output.buffer());
                false
            }
            Some(Busy::Promoting(_)) => {
                executor.continue_promoting(progress);
                progress.busy.is_none()
            }
            Some(Busy::Measuring { .. }) => {
                executor.continue_measuring(progress);
                false
            }
            Some(Busy::Pausing) => {
                progress.busy = None;
                false
            }
            // What a watcher sends means nothing.
            Some(Busy::Watching(watcher)) => {
                watcher.take(output.room(), output.buffer());
                *swallow = u64::MAX;
                false
            }
            Some(Busy::Receiving(_) | Busy::Listing { .. } | Busy::Answering | Busy::Taking) => true,
            None => *swallow == 0,
        };
        if is_own {
            self.go_on(executor, ready);
        }
        hold_uncommitted(executor, ready.connection);
        // Receiving may have failed just now. The rest of the value is then thrown away in the same turn.
        let left = (ready.input.len() - ready.consumed) as u64;
        let gone = left.min(ready.connection.swallow);
        ready.connection.swallow -= gone;
        ready.consumed += gone as usize;
    }
}

/// After an operation: what it wrote may have to be durable before its reply is sent.
#[inline]
pub(super) fn hold_uncommitted<S>(executor: &Executor, connection: &mut Connection<S>) {
    if let Some(until) = executor.take_commit() {
        connection.output.hold(until);
    }
}
