//! A connection below the protocol: bytes that wait for the service, and bytes that wait for the socket.
//!
//! A [`Link`] owns what is known of the connection and decides how it goes on. The worker and the drivers call its
//! methods.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::address_limit::AddressPlace;
use super::buffers::Buffers;
use super::counters::Count;
use super::left_over::LeftOver;
use super::registry::{ConnectionInfo, Doing};
use super::service::{CloseReason, Conversation};
use super::tls::{Session, Stage};

/// Receiving pauses while a connection has this many bytes of unserved input, unless one request needs more.
const HELD_BYTES_MAX: usize = 64 * 1024;
/// A client whose connection waits for its end may send so many bytes more.
const LINGERED_BYTES_MAX: usize = 16 << 20;

/// What a worker needs of a driver.
pub(super) trait Driver: Sized {
    /// Received bytes that lie in the driver's memory. The owner of the value owns the bytes.
    type Filled;
    /// What the driver knows of one connection.
    type PerConnection: Default;

    fn bytes<'a>(&'a self, filled: &'a Self::Filled) -> &'a [u8];
    fn bytes_mut<'a>(&'a mut self, filled: &'a mut Self::Filled) -> &'a mut [u8];
    fn give_back(&mut self, filled: Self::Filled);
    /// A connection is new.
    fn open<C: Conversation>(&mut self, slot: usize, link: &mut Link<C, Self>);
    /// Something has changed in a connection that stays open: the driver starts or stops reading, or waits for room in
    /// the socket.
    fn steer<C: Conversation>(&mut self, slot: usize, link: &mut Link<C, Self>);
    /// Ends all work on the connection. While it [is busy](Driver::is_busy) the kernel still holds some; the driver
    /// tells the worker when it does not any more.
    fn close<C: Conversation>(&mut self, slot: usize, link: &mut Link<C, Self>);
    /// Whether the kernel still works on a connection that was closed.
    fn is_busy(state: &Self::PerConnection) -> bool;
    /// Begins or stops to accept connections.
    fn listen(&mut self, on: bool);
    /// Stops accepting for good.
    fn stop_listening(&mut self);
    /// From now on ticks are wanted often, because the server is stopping.
    fn hurry(&mut self);
}

/// Send without a signal and without waiting: the socket takes the bytes now, or says that it is full.
#[cfg(target_os = "linux")]
const SEND_FLAGS: i32 = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
#[cfg(not(target_os = "linux"))]
const SEND_FLAGS: i32 = 0;

/// One connection.
#[derive(Debug)]
pub(super) struct Link<C, D: Driver> {
    conversation: C,
    info: Arc<ConnectionInfo>,
    /// Counts the connection for its address as long as it is there.
    _place: Option<AddressPlace>,
    /// Tells the connection from others that had its slot.
    generation: u32,
    /// What encrypts the connection. `None` = nothing does, or the kernel.
    session: Option<Box<Session>>,
    /// New input that is not served yet. Only while `left_over` is empty, and the connection not encrypted.
    direct: Option<D::Filled>,
    left_over: LeftOver,
    /// The buffer being sent, and how much of it is sent.
    sending: Vec<u8>,
    sent: usize,
    /// Bytes accounted for `sending` while it waits.
    charged: u64,
    /// The socket takes no more for now.
    blocked: bool,
    /// The client sends no more.
    ended: bool,
    /// The socket is of no further use.
    broken: bool,
    /// The service stopped because its output was full: complete requests may lie in `left_over`.
    stalled: bool,
    /// `left_over` has something that the service may do more with than the last time.
    unseen: bool,
    /// No more input is served. The connection closes once the output is sent.
    doomed: bool,
    /// The connection waits in the worker's queue.
    queued: bool,
    /// Input was thrown away unserved, or more may come that nobody serves: the end must not overtake the last reply.
    unserved: bool,
    /// Everything is said, and the client was told so. What it still sends is thrown away.
    lingering: bool,
    /// Bytes that were thrown away since.
    lingered_bytes: usize,
    /// The connection is closed. Only the kernel still holds on to it.
    closing: bool,
    /// A request was served, or a buffer was sent, since the worker last looked.
    moved: bool,
    /// Why the worker closed it. `None` = it ended by itself.
    close_reason: Option<CloseReason>,
    /// What is said before closing, after all other output.
    last_words: Option<&'static str>,
    /// What the driver knows of the connection. Only the driver uses it.
    pub(super) state: D::PerConnection,
}

/// What to do after bytes were received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Arrival {
    /// There is something to serve.
    Serve,
    /// The bytes are kept until more have come.
    Wait,
    /// The bytes are kept until the service wants input again. The driver may have to stop reading.
    Steer,
    /// The bytes do not fit the buffers' limit: the connection is about to close.
    OutOfMemory,
    /// The bytes cannot be decrypted: the connection is about to close.
    BadRecord,
    /// The connection takes no more input.
    Ignored,
}

impl<C: Conversation, D: Driver> Link<C, D> {
    pub(super) fn new(
        conversation: C,
        info: Arc<ConnectionInfo>,
        place: Option<AddressPlace>,
        generation: u32,
        session: Option<Box<Session>>,
        plain: LeftOver,
    ) -> Link<C, D> {
        Link {
            conversation,
            info,
            _place: place,
            generation,
            session,
            direct: None,
            unseen: !plain.bytes().is_empty(),
            left_over: plain,
            sending: Vec::new(),
            sent: 0,
            charged: 0,
            blocked: false,
            ended: false,
            broken: false,
            stalled: false,
            doomed: false,
            queued: false,
            unserved: false,
            lingering: false,
            lingered_bytes: 0,
            closing: false,
            moved: false,
            close_reason: None,
            last_words: None,
            state: D::PerConnection::default(),
        }
    }

    /// The service may have spoken first, or refused the peer. Returns whether that gives work.
    pub(super) fn begin(&mut self) -> bool {
        self.doomed = self.conversation.wants_close();
        self.doomed || self.unseen || self.has_output()
    }

    pub(super) fn info(&self) -> &ConnectionInfo {
        &self.info
    }

    pub(super) fn generation(&self) -> u32 {
        self.generation
    }

    /// Whether the socket takes no more for now.
    pub(super) fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// Whether the socket is of no further use.
    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    /// Whether only the client's end is waited for.
    pub(super) fn is_lingering(&self) -> bool {
        self.lingering
    }

    /// Whether the connection is closed, and only the kernel still holds on to it.
    pub(super) fn is_closing(&self) -> bool {
        self.closing
    }

    /// Whether the service waits for something that is not the client.
    pub(super) fn is_waiting(&self) -> bool {
        self.conversation.is_waiting()
    }

    /// Whether the connection may be without a request for any time.
    pub(super) fn may_be_idle(&self) -> bool {
        self.conversation.may_be_idle()
    }

    /// The worker closes the connection for this reason.
    pub(super) fn set_close_reason(&mut self, reason: CloseReason) {
        self.close_reason.get_or_insert(reason);
    }

    /// Why the connection has ended.
    pub(super) fn close_reason(&self) -> CloseReason {
        let by_itself = if self.broken { CloseReason::Error } else { CloseReason::Normal };
        self.close_reason.unwrap_or(by_itself)
    }

    /// Whether every request is answered.
    pub(super) fn is_idle(&self) -> bool {
        !self.blocked
            && !self.queued
            && !self.stalled
            && self.direct.is_none()
            && self.left_over.bytes().is_empty()
            && !self.conversation.has_output()
            && !self.conversation.is_waiting()
    }

    /// Whether there is so much unserved input that more would only cost memory.
    pub(super) fn holds_enough(&self) -> bool {
        let held = self.left_over.bytes().len();
        held >= HELD_BYTES_MAX && held >= self.conversation.input_wanted()
    }

    /// Whether the driver should receive for this connection.
    pub(super) fn wants_receive(&self) -> bool {
        let open = !self.ended && !self.broken && !self.closing;
        let serves = !self.doomed && !self.stalled && self.conversation.wants_input() && !self.holds_enough();
        open && (serves || self.lingering)
    }

    /// Returns `true` if the connection was not in the worker's queue. The caller then puts it there.
    #[must_use]
    pub(super) fn enqueue(&mut self) -> bool {
        !std::mem::replace(&mut self.queued, true)
    }

    /// Takes the connection out of the worker's queue. Returns whether it was in it.
    pub(super) fn dequeue(&mut self) -> bool {
        std::mem::take(&mut self.queued)
    }

    // ---- input ----

    /// Bytes arrived.
    pub(super) fn receive(&mut self, filled: D::Filled, driver: &mut D, buffers: &Buffers) -> Arrival {
        if self.doomed || self.closing {
            self.lingered_bytes += driver.bytes(&filled).len();
            driver.give_back(filled);
            let is_endless = self.lingering && self.lingered_bytes > LINGERED_BYTES_MAX;
            self.broken |= is_endless;
            return if is_endless { Arrival::Serve } else { Arrival::Ignored };
        }
        if self.session.is_some() {
            return self.decrypt(filled, driver, buffers);
        }
        if self.direct.is_none() && self.left_over.bytes().is_empty() && !self.stalled {
            self.direct = Some(filled);
            return Arrival::Serve;
        }
        let wanted = self.conversation.input_wanted();
        for filled in self.direct.take().into_iter().chain([filled]) {
            if !self.doomed && !self.left_over.append(driver.bytes(&filled), wanted, buffers) {
                self.doom(buffers);
            }
            driver.give_back(filled);
        }
        if self.doomed {
            return Arrival::OutOfMemory;
        }
        if self.stalled {
            return Arrival::Steer;
        }
        if self.left_over.bytes().len() < wanted {
            return Arrival::Wait;
        }
        self.unseen = true;
        Arrival::Serve
    }

    /// Records arrived.
    fn decrypt(&mut self, mut filled: D::Filled, driver: &mut D, buffers: &Buffers) -> Arrival {
        let Link { session, left_over, conversation, .. } = self;
        let Some(session) = session else { return Arrival::Ignored };
        let (before, wanted) = (left_over.bytes().len(), conversation.input_wanted());
        let stage = session.receive(driver.bytes_mut(&mut filled), left_over, wanted, buffers);
        driver.give_back(filled);
        let (now, has_outgoing) = (left_over.bytes().len(), session.has_outgoing());
        match stage {
            Stage::Open | Stage::Handshake => {}
            Stage::Ended => self.ended = true,
            Stage::OutOfMemory => {
                self.doom(buffers);
                return Arrival::OutOfMemory;
            }
            Stage::Failed => {
                self.doomed = true;
                return Arrival::BadRecord;
            }
        }
        let has_more = now > before;
        if has_more && !self.stalled && now >= wanted {
            self.unseen = true;
        }
        match self.unseen || has_outgoing || self.ended {
            true => Arrival::Serve,
            false if self.stalled && has_more => Arrival::Steer,
            false => Arrival::Wait,
        }
    }

    /// An unfinished request does not fit the buffers' limit. Nobody needs its bytes any more.
    fn doom(&mut self, buffers: &Buffers) {
        self.doomed = true;
        self.unserved = true;
        self.left_over.clear(buffers);
        self.last_words = Some(self.conversation.out_of_memory());
    }

    /// The connection has held on to memory for longer than others that need it. A client that does not read gets no
    /// word; one that sends is told.
    pub(super) fn give_up(&mut self, driver: &mut D, buffers: &Buffers) {
        if self.blocked {
            self.broken = true;
            return;
        }
        if !self.doomed {
            self.doom(buffers);
        }
        // Its end is not waited for: it would go on sending.
        self.unserved = false;
        self.forget_input(driver, buffers);
    }

    /// Lets go of input that nobody needs any more.
    fn forget_input(&mut self, driver: &mut D, buffers: &Buffers) {
        self.left_over.clear(buffers);
        if let Some(session) = &mut self.session {
            session.close(buffers);
        }
        if let Some(filled) = self.direct.take() {
            driver.give_back(filled);
        }
    }

    /// Bytes that stay with the connection now.
    #[inline]
    pub(super) fn held_bytes(&self) -> u64 {
        let undecrypted = self.session.as_ref().map_or(0, |session| session.held_bytes());
        self.left_over.capacity() + self.charged + undecrypted + self.conversation.held_bytes()
    }

    /// Whether the connection got on since the last time the worker asked.
    pub(super) fn take_moved(&mut self) -> bool {
        std::mem::take(&mut self.moved)
    }

    /// The client sends no more. With `broken` it reads no more either.
    pub(super) fn end(&mut self, broken: bool) {
        self.ended = true;
        self.broken |= broken;
    }

    /// The socket is of no further use.
    pub(super) fn fail(&mut self) {
        self.broken = true;
    }

    /// What the service waited for may have come.
    pub(super) fn wake(&mut self) {
        self.stalled = false;
        self.unseen = true;
    }

    /// Whether the connection has something for the service. The caller then serves it.
    pub(super) fn begin_turn(&mut self) -> bool {
        if !self.doomed && (self.direct.is_some() || std::mem::take(&mut self.unseen)) {
            self.stalled = false;
            self.info.does(Doing::Serving);
            return true;
        }
        false
    }

    /// The connection above the socket, and its input.
    pub(super) fn conversation_and_input<'a>(&'a mut self, driver: &'a D) -> (&'a mut C, &'a [u8]) {
        let Link { conversation, direct, left_over, .. } = self;
        let input = direct.as_ref().map_or_else(|| left_over.bytes(), |filled| driver.bytes(filled));
        (conversation, input)
    }

    /// After the service's turn: keeps the input that was not consumed. Returns `false` if it does not fit the buffers'
    /// limit.
    #[must_use]
    pub(super) fn end_turn(&mut self, used: usize, now_s: u32, driver: &mut D, buffers: &Buffers) -> bool {
        if used > 0 {
            self.moved = true;
            self.info.active_s.store(now_s, Ordering::Relaxed);
        }
        let done = self.conversation.wants_close();
        let (mut fits, mut has_rest) = (true, false);
        if let Some(filled) = self.direct.take() {
            let rest = &driver.bytes(&filled)[used..];
            has_rest = !rest.is_empty();
            if has_rest && !done {
                let wanted = self.conversation.input_wanted();
                if !self.left_over.append(rest, wanted, buffers) {
                    self.doom(buffers);
                    fits = false;
                }
            }
            driver.give_back(filled);
        } else {
            self.left_over.consume(used, buffers);
        }
        if done || self.doomed {
            self.doomed = true;
            self.unserved |=
                has_rest || !self.left_over.bytes().is_empty() || self.conversation.ends_unserved();
            self.left_over.clear(buffers);
        }
        self.stalled = !self.doomed && !self.conversation.wants_input();
        self.show_awaited();
        fits
    }

    fn show_awaited(&self) {
        self.info.does(self.conversation.awaits(self.left_over.bytes().len()).into());
    }

    /// Whether the service is to be asked again. A service that wanted no input is asked once its output is sent: it
    /// may have more to say. One that waits says itself when to go on.
    pub(super) fn wants_another_turn(&mut self, all_sent: bool) -> bool {
        let is_due = self.stalled
            && !self.is_waiting()
            && (self.conversation.wants_input() || (all_sent && !self.broken))
            && !self.doomed;
        if is_due {
            self.wake();
        }
        is_due
    }

    /// Before a finished connection is closed: a client that is still sending could find the connection reset before it
    /// has read the last reply. Returns whether the client's end is waited for first.
    pub(super) fn linger(&mut self) -> bool {
        if !self.unserved || self.broken || self.ended {
            return false;
        }
        self.lingering = self.lingering || self.info.socket.shutdown(std::net::Shutdown::Write).is_ok();
        self.lingering
    }

    /// Whether the connection is to be closed.
    pub(super) fn is_finished(&self, all_sent: bool) -> bool {
        let has_ended = self.doomed || (self.ended && !self.queued && !self.is_waiting());
        self.broken || (all_sent && has_ended)
    }

    // ---- output ----

    /// Sends what the socket takes, and adds the bytes to `count`. `true` = everything that the service wanted to say
    /// is sent.
    pub(super) fn transmit(&mut self, buffers: &Buffers, count: &Count) -> bool {
        while !self.blocked && !self.broken {
            if self.sending.is_empty() {
                match self.next_output() {
                    None => return !self.has_output(),
                    Some(buffer) => (self.sending, self.sent) = (buffer, 0),
                }
            }
            match self.info.socket.send_with_flags(&self.sending[self.sent..], SEND_FLAGS) {
                Ok(sent) => {
                    count.add(sent as u64);
                    self.sent += sent;
                    if self.sent == self.sending.len() {
                        self.moved = true;
                        self.conversation.recycle(std::mem::take(&mut self.sending));
                    } else {
                        self.block(buffers);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.block(buffers),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.broken = true,
            }
        }
        false
    }

    /// Whether something is left to be sent, now or later.
    fn has_output(&self) -> bool {
        self.conversation.has_output() || self.session.as_ref().is_some_and(|session| session.has_outgoing())
    }

    /// The next buffer to send.
    fn next_output(&mut self) -> Option<Vec<u8>> {
        if let Some(session) = self.session.as_mut().filter(|session| session.has_failed()) {
            let reason = session.take_outgoing();
            self.broken |= reason.is_none();
            return reason;
        }
        match self.next_words() {
            Some(words) if self.session.is_some() => self.encrypt(words),
            None if self.session.is_some() => self.next_records(),
            words => words,
        }
    }

    fn next_words(&mut self) -> Option<Vec<u8>> {
        if let Some(buffer) = self.conversation.take_output() {
            return Some(buffer);
        }
        if self.conversation.has_output() {
            return None;
        }
        self.last_words.take().map(|words| words.as_bytes().to_vec())
    }

    fn encrypt(&mut self, words: Vec<u8>) -> Option<Vec<u8>> {
        let records = self.session.as_mut().and_then(|session| session.encrypt(&words));
        self.conversation.recycle(words);
        self.broken |= records.is_none();
        records
    }

    /// Records without words of the service. The last of them says that no more will come.
    fn next_records(&mut self) -> Option<Vec<u8>> {
        let is_waiting = self.conversation.is_waiting() || self.conversation.has_output();
        let is_last = self.doomed || (self.ended && !self.queued && !self.stalled);
        let session = self.session.as_mut()?;
        if is_last && !is_waiting {
            session.say_goodbye();
        }
        session.take_outgoing()
    }

    /// The socket is full: the rest of `sending` waits, and is accounted.
    fn block(&mut self, buffers: &Buffers) {
        if self.blocked {
            return;
        }
        let rest = self.sending.len() - self.sent;
        if self.sending.capacity() > 2 * rest {
            let rest = self.sending[self.sent..].to_vec();
            self.conversation.recycle(std::mem::replace(&mut self.sending, rest));
            self.sent = 0;
        }
        self.blocked = true;
        self.charged = self.sending.capacity() as u64;
        self.info.does(Doing::Writing);
        // It exists already. Where that is too much, the worker lets a connection go.
        buffers.take(self.charged);
    }

    fn unblock(&mut self, buffers: &Buffers) {
        if self.blocked {
            self.blocked = false;
            buffers.give(std::mem::take(&mut self.charged));
            self.show_awaited();
        }
    }

    /// The driver sends the rest of the buffer: the buffer, and how much of it is sent.
    pub(super) fn lend_sending(&mut self) -> (Vec<u8>, usize) {
        (std::mem::take(&mut self.sending), self.sent)
    }

    /// The driver gives the buffer back.
    pub(super) fn return_sending(&mut self, buffer: Vec<u8>) {
        self.sending = buffer;
    }

    /// There may be room in the socket again. `sent` = the bytes that the driver sent meanwhile; `None` = it failed.
    pub(super) fn writable(&mut self, sent: Option<usize>, buffers: &Buffers) {
        self.unblock(buffers);
        match sent {
            Some(bytes) => {
                self.sent += bytes;
                if self.sent >= self.sending.len() && !self.sending.is_empty() {
                    self.moved = true;
                    self.conversation.recycle(std::mem::take(&mut self.sending));
                }
            }
            None => self.broken = true,
        }
    }

    // ---- the end ----

    /// Closes the connection, and lets go of its memory.
    pub(super) fn close(&mut self, slot: usize, driver: &mut D, buffers: &Buffers) {
        self.closing = true;
        self.doomed = true;
        self.forget_input(driver, buffers);
        self.unblock(buffers);
        driver.close(slot, self);
    }

    /// What is left of a connection that is gone.
    pub(super) fn into_conversation(self) -> C {
        self.conversation
    }
}
