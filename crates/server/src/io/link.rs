//! A connection below the protocol: bytes that wait for the service, and bytes that wait for the socket.
//!
//! A [`Link`] owns what is known of the connection and decides how it goes on. The worker and the drivers call its
//! methods.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::address_limit::AddressPlace;
use super::backlog::{Backlog, are_alike};
use super::buffers::Buffers;
use super::counters::Count;
use super::input::{Attention, Input, ReceiveMemory};
use super::left_over::LeftOver;
use super::registry::{ConnectionInfo, Doing};
use super::sending::Sending;
use super::service::{CloseReason, Conversation};
use super::tls::{Session, Stage};

/// Receiving pauses while a connection has this many bytes of unserved input, unless one request needs more.
const HELD_BYTES_MAX: usize = 64 * 1024;
/// The most that a service says at once, in bytes.
const OUTPUT_BYTES: u64 = 128 * 1024;
/// A client whose connection waits for its end may send this many bytes more.
const LINGERED_BYTES_MAX: usize = 16 << 20;

/// What a worker needs of a driver.
pub(super) trait Driver: ReceiveMemory + Sized {
    /// What the driver knows of one connection.
    type PerConnection: Default;

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

/// How near its end a connection is. It never gets farther from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Its input is served.
    Serving,
    /// No more input is served, and the connection closes once the output is sent.
    Finishing {
        /// Input was thrown away unserved, or more may come that nobody serves: the end must not overtake the last
        /// reply.
        unserved: bool,
    },
    /// Everything is said, and the client was told so. What it still sends is thrown away.
    Lingering { thrown_bytes: usize },
    /// The connection is closed. Only the kernel still holds on to it.
    Closed,
}

/// What may be expected of the client, in the order in which it gets less.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Client {
    Sends,
    /// It sends no more, and reads.
    HasEnded,
    /// The socket is of no further use.
    IsGone,
}

/// One connection.
pub(super) struct Link<C, D: Driver> {
    conversation: C,
    info: Arc<ConnectionInfo>,
    /// Counts the connection for its address as long as it is there.
    _place: Option<AddressPlace>,
    /// Tells the connection from others that had its slot.
    generation: u32,
    /// What encrypts the connection. `None` = nothing does, or the kernel.
    session: Option<Box<Session>>,
    input: Input<D>,
    sending: Sending,
    phase: Phase,
    client: Client,
    /// The connection waits in the worker's queue.
    queued: bool,
    /// A request was served, or a buffer was sent, since the worker last looked.
    moved: bool,
    /// Once it is closed: what its conversation still holds.
    leaving_bytes: u64,
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
            input: Input::new(plain),
            sending: Sending::default(),
            phase: Phase::Serving,
            client: Client::Sends,
            queued: false,
            moved: false,
            leaving_bytes: 0,
            close_reason: None,
            last_words: None,
            state: D::PerConnection::default(),
        }
    }

    /// The service may have spoken first, or refused the peer. Returns whether that gives work.
    pub(super) fn begin(&mut self) -> bool {
        if self.conversation.wants_close() {
            self.phase = Phase::Finishing { unserved: false };
        }
        !self.is_serving() || self.input.attention == Attention::Due || self.has_output()
    }

    pub(super) fn info(&self) -> &ConnectionInfo {
        &self.info
    }

    pub(super) fn generation(&self) -> u32 {
        self.generation
    }

    /// Whether the socket takes no more for now.
    pub(super) fn is_blocked(&self) -> bool {
        self.sending.is_blocked()
    }

    /// Whether the socket is of no further use.
    pub(super) fn is_broken(&self) -> bool {
        self.client == Client::IsGone
    }

    /// Whether input is served.
    fn is_serving(&self) -> bool {
        matches!(self.phase, Phase::Serving)
    }

    /// Whether only the client's end is waited for.
    pub(super) fn is_lingering(&self) -> bool {
        matches!(self.phase, Phase::Lingering { .. })
    }

    /// Whether the connection is closed, and only the kernel still holds on to it.
    pub(super) fn is_closed(&self) -> bool {
        matches!(self.phase, Phase::Closed)
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
        let has_failed = self.is_broken() || self.conversation.has_failed();
        let by_itself = if has_failed { CloseReason::Error } else { CloseReason::Normal };
        self.close_reason.unwrap_or(by_itself)
    }

    /// Whether every request is answered.
    pub(super) fn is_idle(&self) -> bool {
        !self.is_blocked()
            && !self.queued
            && !self.input.is_stalled()
            && self.input.is_empty()
            && !self.conversation.has_output()
            && !self.conversation.is_waiting()
    }

    /// Whether there are 64 KiB of unserved input, and at least what one request needs: more would only cost memory.
    pub(super) fn holds_enough(&self) -> bool {
        let held = self.input.kept.bytes().len();
        held >= HELD_BYTES_MAX && held >= self.conversation.input_wanted()
    }

    /// Whether the driver should receive for this connection.
    pub(super) fn wants_receive(&self) -> bool {
        let wants = match self.phase {
            Phase::Serving if self.input.is_stalled() => {
                self.is_blocked() && self.sending.backlog.takes_input()
            }
            Phase::Serving => self.conversation.wants_input() && !self.holds_enough(),
            Phase::Lingering { .. } => true,
            Phase::Finishing { .. } | Phase::Closed => false,
        };
        wants && self.client == Client::Sends
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
        if !self.is_serving() {
            return self.throw_away(filled, driver);
        }
        if self.session.is_some() {
            return self.decrypt(filled, driver, buffers);
        }
        let Some(filled) = self.input.take_directly(filled) else { return Arrival::Serve };
        let wanted = self.conversation.input_wanted();
        if !self.input.keep(filled, wanted, driver, buffers) {
            self.doom(buffers);
            return Arrival::OutOfMemory;
        }
        if self.input.is_stalled() {
            return Arrival::Steer;
        }
        if self.input.kept.bytes().len() < wanted {
            return Arrival::Wait;
        }
        self.input.attention = Attention::Due;
        Arrival::Serve
    }

    /// Bytes arrived that nobody serves.
    fn throw_away(&mut self, filled: D::Filled, driver: &mut D) -> Arrival {
        let bytes = driver.bytes(&filled).len();
        driver.give_back(filled);
        let Phase::Lingering { thrown_bytes } = &mut self.phase else { return Arrival::Ignored };
        *thrown_bytes += bytes;
        if *thrown_bytes <= LINGERED_BYTES_MAX {
            return Arrival::Ignored;
        }
        self.fail();
        Arrival::Serve
    }

    /// Records arrived.
    fn decrypt(&mut self, mut filled: D::Filled, driver: &mut D, buffers: &Buffers) -> Arrival {
        let Link { session, input, conversation, .. } = self;
        let Some(session) = session else { return Arrival::Ignored };
        let (before, wanted) = (input.kept.bytes().len(), conversation.input_wanted());
        let stage = session.receive(driver.bytes_mut(&mut filled), &mut input.kept, wanted, buffers);
        driver.give_back(filled);
        let (now, has_outgoing) = (input.kept.bytes().len(), session.has_outgoing());
        match stage {
            Stage::Open | Stage::Handshake => {}
            Stage::Ended => self.end(false),
            Stage::OutOfMemory => {
                self.doom(buffers);
                return Arrival::OutOfMemory;
            }
            Stage::Failed => {
                self.phase = Phase::Finishing { unserved: false };
                return Arrival::BadRecord;
            }
        }
        let has_more = now > before;
        if has_more && !self.input.is_stalled() && now >= wanted {
            self.input.attention = Attention::Due;
        }
        match self.input.attention {
            Attention::Due => Arrival::Serve,
            _ if has_outgoing || self.client != Client::Sends => Arrival::Serve,
            Attention::Stalled if has_more => Arrival::Steer,
            _ => Arrival::Wait,
        }
    }

    /// An unfinished request does not fit the buffers' limit. Nobody needs its bytes any more.
    fn doom(&mut self, buffers: &Buffers) {
        self.phase = Phase::Finishing { unserved: true };
        self.set_close_reason(CloseReason::Error);
        self.input.kept.clear(buffers);
        self.last_words = Some(self.conversation.out_of_memory());
    }

    /// The connection has held on to memory for longer than others that need it. A client that does not read gets no
    /// word; one that sends is told.
    pub(super) fn give_up(&mut self, driver: &mut D, buffers: &Buffers) {
        if self.is_blocked() {
            return self.fail();
        }
        if self.is_serving() {
            self.doom(buffers);
        }
        if !self.is_closed() {
            // The end of the client is not waited for: the client would go on sending.
            self.phase = Phase::Finishing { unserved: false };
        }
        self.forget_input(driver, buffers);
    }

    /// Lets go of input that nobody needs any more.
    fn forget_input(&mut self, driver: &mut D, buffers: &Buffers) {
        self.input.clear(driver, buffers);
        if let Some(session) = &mut self.session {
            session.close(buffers);
        }
    }

    /// Bytes that stay with the connection now.
    #[inline]
    pub(super) fn held_bytes(&self) -> u64 {
        let undecrypted = self.session.as_ref().map_or(0, |session| session.held_bytes());
        self.input.kept.capacity()
            + self.sending.charged_bytes()
            + self.sending.backlog.charged_bytes()
            + undecrypted
            + self.conversation.held_bytes()
    }

    /// Shows what stays with the connection.
    pub(super) fn show_held(&self, bytes: u64) {
        let output = self.sending.charged_bytes() + self.sending.backlog.charged_bytes();
        self.info.holds([self.input.kept.capacity(), output, bytes]);
    }

    /// Whether the connection got on since the last time the worker asked.
    pub(super) fn take_moved(&mut self) -> bool {
        std::mem::take(&mut self.moved)
    }

    /// The client sends no more. With `broken` it reads no more either.
    pub(super) fn end(&mut self, broken: bool) {
        self.client = self.client.max(if broken { Client::IsGone } else { Client::HasEnded });
    }

    /// The socket is of no further use.
    pub(super) fn fail(&mut self) {
        self.client = Client::IsGone;
    }

    /// What the service waited for may have come.
    pub(super) fn wake(&mut self) {
        self.input.attention = Attention::Due;
    }

    /// Whether the connection has something for the service. The caller then serves it.
    pub(super) fn begin_turn(&mut self) -> bool {
        let is_due = self.is_serving() && self.input.begin_turn();
        if is_due {
            self.info.does(Doing::Serving);
        }
        is_due
    }

    /// The connection above the socket, and its input.
    pub(super) fn conversation_and_input<'a>(&'a mut self, driver: &'a D) -> (&'a mut C, &'a [u8]) {
        let Link { conversation, input, .. } = self;
        (conversation, input.bytes(driver))
    }

    /// After the service's turn: keeps the input that was not consumed. Returns `false` if it does not fit the buffers'
    /// limit.
    #[must_use]
    pub(super) fn end_turn(&mut self, used: usize, now_s: u32, driver: &mut D, buffers: &Buffers) -> bool {
        if used > 0 {
            self.moved = true;
            self.sending.backlog.served(used);
            self.info.active_s.store(now_s, Ordering::Relaxed);
        }
        let done = self.conversation.wants_close();
        let (mut fits, mut has_rest) = (true, false);
        if let Some(filled) = self.input.take_direct() {
            let rest = &driver.bytes(&filled)[used..];
            has_rest = !rest.is_empty();
            if has_rest && !done {
                let wanted = self.conversation.input_wanted();
                if !self.input.kept.append(rest, wanted, buffers) {
                    self.doom(buffers);
                    fits = false;
                }
            }
            driver.give_back(filled);
        } else {
            self.input.kept.consume(used, buffers);
        }
        if done {
            let unserved =
                has_rest || !self.input.kept.bytes().is_empty() || self.conversation.ends_unserved();
            self.phase = Phase::Finishing { unserved };
            self.input.kept.clear(buffers);
        }
        if self.is_serving() && !self.conversation.wants_input() {
            self.input.attention = Attention::Stalled;
        }
        self.show_awaited();
        fits
    }

    fn show_awaited(&self) {
        if self.is_blocked() {
            return self.info.does(Doing::Writing);
        }
        self.info.does(self.conversation.awaits(self.input.kept.bytes().len()).doing());
    }

    /// Whether the service is to be asked again. A service that wanted no input is asked once its output is sent: it
    /// may have more to say. One that waits says itself when to go on.
    pub(super) fn wants_another_turn(&mut self, all_sent: bool) -> bool {
        let is_due = self.input.is_stalled()
            && !self.is_waiting()
            && (self.conversation.wants_input() || (all_sent && !self.is_broken()))
            && self.is_serving();
        if is_due {
            self.wake();
        }
        is_due
    }

    /// Before a finished connection is closed: a client that is still sending could find the connection reset before it
    /// has read the last reply. Returns whether the client's end is waited for first.
    pub(super) fn linger(&mut self) -> bool {
        if self.client != Client::Sends {
            return false;
        }
        if self.phase == (Phase::Finishing { unserved: true })
            && self.info.socket.shutdown(std::net::Shutdown::Write).is_ok()
        {
            self.phase = Phase::Lingering { thrown_bytes: 0 };
        }
        self.is_lingering()
    }

    /// Whether the connection is to be closed.
    pub(super) fn is_finished(&self, all_sent: bool) -> bool {
        let has_ended =
            !self.is_serving() || (self.client == Client::HasEnded && !self.queued && !self.is_waiting());
        self.is_broken() || (all_sent && has_ended)
    }

    // ---- output ----

    /// Sends what the socket takes, and adds the bytes to `count`. `true` = everything that the service wanted to say
    /// is sent.
    pub(super) fn transmit(&mut self, buffers: &Buffers, count: &Count) -> bool {
        while !self.is_blocked() && !self.is_broken() {
            if self.sending.is_empty() {
                match self.next_output() {
                    None => return !self.has_output(),
                    Some(buffer) => self.sending.begin(buffer),
                }
            }
            match self.info.socket.send_with_flags(self.sending.rest(), SEND_FLAGS) {
                Ok(sent) => {
                    count.add(sent as u64);
                    self.info.sent.add(sent as u64);
                    match self.sending.advance(sent) {
                        Some(buffer) => {
                            self.moved = true;
                            self.conversation.recycle(buffer);
                        }
                        None => self.block(buffers),
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.block(buffers),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.fail(),
            }
        }
        false
    }

    /// Whether something is left to be sent, now or later.
    fn has_output(&self) -> bool {
        !self.sending.backlog.is_empty()
            || self.conversation.has_output()
            || self.session.as_ref().is_some_and(|session| session.has_outgoing())
    }

    /// The next buffer to send.
    fn next_output(&mut self) -> Option<Vec<u8>> {
        if let Some(session) = self.session.as_mut().filter(|session| session.has_failed()) {
            let reason = session.take_outgoing();
            if reason.is_none() {
                self.fail();
            }
            return reason;
        }
        match self.next_words() {
            Some(words) if self.session.is_some() => self.encrypt(words),
            None if self.session.is_some() => self.next_records(),
            words => words,
        }
    }

    fn next_words(&mut self) -> Option<Vec<u8>> {
        if let Some(buffer) = self.sending.backlog.pop() {
            return Some(buffer);
        }
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
        if records.is_none() {
            self.fail();
        }
        records
    }

    /// Records without words of the service. The last of them says that no more will come.
    fn next_records(&mut self) -> Option<Vec<u8>> {
        let is_waiting = self.conversation.is_waiting() || self.conversation.has_output();
        let has_ended = self.client != Client::Sends && !self.queued && !self.input.is_stalled();
        let is_last = !self.is_serving() || has_ended;
        let session = self.session.as_mut()?;
        if is_last && !is_waiting {
            session.say_goodbye();
        }
        session.take_outgoing()
    }

    /// The socket is full. A client that sends all its requests before it reads a reply is waiting for the server to
    /// read on, so the server does, as far as memory allows: it answers more requests while the replies are shorter
    /// than the requests, and receives more while they are not.
    #[cold]
    pub(super) fn set_aside(&mut self, buffers: &Arc<Buffers>) {
        let is_held_up = |link: &Self| {
            link.is_blocked()
                && link.is_serving()
                && link.input.is_stalled()
                && !link.is_waiting()
                && !link.conversation.wants_input()
        };
        while is_held_up(self)
            && self.sending.backlog.takes_replies()
            && (!buffers.are_crowded() || are_alike(self.conversation.output()))
        {
            let Some(buffer) = self.conversation.take_output() else { break };
            if let Some(buffer) = self.sending.backlog.push(buffer, buffers) {
                self.conversation.recycle(buffer);
            }
        }
        // Long input grows by half.
        let room = OUTPUT_BYTES.max(self.input.kept.capacity() / 2 + 1);
        self.sending.backlog.may_take_input(is_held_up(self) && buffers.spare_bytes() > room);
    }

    /// Whether replies wait, and more input is not received because there is no memory for it.
    pub(super) fn is_paused(&self) -> bool {
        self.is_blocked()
            && self.is_serving()
            && self.input.is_stalled()
            && !self.sending.backlog.takes_input()
    }

    /// The socket is full: the rest of the buffer waits.
    fn block(&mut self, buffers: &Buffers) {
        if let Some(buffer) = self.sending.block(buffers) {
            self.conversation.recycle(buffer);
        }
        self.info.does(Doing::Writing);
    }

    fn unblock(&mut self, buffers: &Buffers) {
        if self.sending.unblock(buffers) {
            self.show_awaited();
        }
    }

    /// The driver sends the rest of the buffer: the buffer, and how much of it is sent.
    pub(super) fn lend_sending(&mut self) -> (Vec<u8>, usize) {
        self.sending.lend()
    }

    /// The driver gives the buffer back.
    pub(super) fn return_sending(&mut self, buffer: Vec<u8>) {
        self.sending.give_back(buffer);
    }

    /// There may be room in the socket again. `sent` = the bytes that the driver sent meanwhile; `None` = it failed.
    pub(super) fn writable(&mut self, sent: Option<usize>, buffers: &Buffers) {
        self.unblock(buffers);
        match sent {
            Some(bytes) if !self.sending.is_empty() => {
                if let Some(buffer) = self.sending.advance(bytes) {
                    self.moved = true;
                    self.conversation.recycle(buffer);
                }
            }
            Some(_) => {}
            None => self.fail(),
        }
    }

    // ---- the end ----

    /// Whether another thread has ended the connection.
    pub(super) fn is_killed(&self) -> bool {
        self.info.is_killed()
    }

    /// Tells the client that nothing more will be sent, so that it can tell this end from one that somebody else made,
    /// if the socket takes that.
    fn say_goodbye(&mut self) {
        if self.is_blocked() || self.is_broken() {
            return;
        }
        if let Some(session) = &mut self.session {
            session.say_goodbye();
            let last = session.take_outgoing();
            last.map(|last| self.info.socket.send_with_flags(&last, SEND_FLAGS));
        }
    }

    /// Closes the connection, and lets go of its memory.
    pub(super) fn close(&mut self, slot: usize, driver: &mut D, buffers: &Buffers) {
        self.say_goodbye();
        self.phase = Phase::Closed;
        self.sending.backlog = Backlog::default();
        self.forget_input(driver, buffers);
        self.unblock(buffers);
        driver.close(slot, self);
    }

    /// The connection is closed: what its conversation holds on to for a moment.
    pub(super) fn leave(&mut self) -> u64 {
        self.leaving_bytes = self.held_bytes();
        self.leaving_bytes
    }

    /// What [`Link::leave`] has said.
    pub(super) fn leaving_bytes(&self) -> u64 {
        self.leaving_bytes
    }

    /// What is left of a connection that is gone.
    pub(super) fn into_conversation(self) -> C {
        self.conversation
    }
}
