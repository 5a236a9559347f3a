//! One worker thread's connections, with any driver.
//!
//! A driver tells the worker what happened (`receive`, `ended`, `writable`, `accepted`, ...), then calls
//! [`Worker::serve_ready`] once for all of it. The worker sends at once what the socket takes. What does not fit goes
//! back to the driver, which waits for room.

use std::io;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use socket2::Socket;

use super::accept::Acceptor;
use super::accepted::Accepted;
use super::counters::WorkerCounters;
use super::link::{Arrival, Driver, Link};
use super::links::{BoxedLink, Links};
use super::listen::Listener;
use super::parking::Parking;
use super::registry::ConnectionInfo;
use super::service::{CloseReason, ConnectionId, From, Peer, Ready, Service};
use super::shared::{Shared, Stage};
use super::udp::UdpPorts;

pub(super) struct Worker<S: Service, D: Driver> {
    number: usize,
    pub(super) shared: Arc<Shared>,
    pub(super) service: S,
    pub(super) driver: D,
    links: Links<S::Connection, D>,
    turn: Turn<S::Connection, D>,
    pub(super) acceptor: Option<Acceptor>,
    pub(super) udp: UdpPorts<S::Connection>,
    /// Connections that the service named. Empty between turns.
    woken: Vec<ConnectionId>,
    /// Connections from the acceptor. Empty between turns.
    inbox: Vec<Accepted>,
    now_s: u32,
    stage: Stage,
    /// What stays with connections from one turn to the next.
    parking: Parking,
    /// Connections that wait for the client's end, and until when.
    lingering: Vec<(ConnectionId, u32)>,
}

/// What a turn works through. All lists but the queue are empty between turns, and are kept for their memory.
struct Turn<C: 'static, D: Driver> {
    /// Slots with something to serve.
    queue: Vec<usize>,
    /// The connections that are served together, what the service gets of them, and what it has consumed of each.
    batch: Vec<(usize, BoxedLink<C, D>)>,
    ready: Vec<Ready<'static, C>>,
    consumed: Vec<usize>,
    /// Whether the service had news at the end of the last batch.
    has_news: bool,
    /// Slots of connections whose replies are held back until those news are heard.
    held: Vec<usize>,
}

impl<C: 'static, D: Driver> Turn<C, D> {
    fn new() -> Turn<C, D> {
        Turn {
            queue: Vec::new(),
            batch: Vec::new(),
            ready: Vec::new(),
            consumed: Vec::new(),
            has_news: false,
            held: Vec::new(),
        }
    }
}

/// How long a connection waits for the client's end, in seconds; see [`Link::linger`].
const LINGER_S: u32 = 2;
/// How long a client stays that is not served, in seconds: it is told why when it has sent something.
const STRANGER_STAYS_S: u32 = 5;

/// Empties a list and keeps its memory, for references of another lifetime.
fn reuse<'b, C>(mut list: Vec<Ready<'_, C>>) -> Vec<Ready<'b, C>> {
    list.clear();
    // An empty iterator collects into the allocation it came from.
    list.into_iter().map(|_| -> Ready<'b, C> { unreachable!("the list is empty") }).collect()
}

impl<S: Service, D: Driver> Worker<S, D> {
    pub(super) fn new(
        number: usize,
        shared: Arc<Shared>,
        service: S,
        driver: D,
        acceptor: Option<Acceptor>,
        udp: UdpPorts<S::Connection>,
    ) -> Worker<S, D> {
        let now_s = shared.now_s();
        Worker {
            number,
            shared,
            service,
            driver,
            links: Links::new(),
            turn: Turn::new(),
            acceptor,
            udp,
            woken: Vec::new(),
            inbox: Vec::new(),
            now_s,
            stage: Stage::Serving,
            parking: Parking::default(),
            lingering: Vec::new(),
        }
    }

    pub(super) fn counters(&self) -> &WorkerCounters {
        &self.shared.counters.workers[self.number]
    }

    /// Whether there is work that needs no event.
    pub(super) fn has_work(&self) -> bool {
        !self.turn.queue.is_empty()
    }

    pub(super) fn link(&mut self, slot: usize) -> Option<&mut Link<S::Connection, D>> {
        self.links.get_mut(slot)
    }

    /// The connection and the driver, to work on both.
    pub(super) fn link_and_driver(&mut self, slot: usize) -> Option<(&mut Link<S::Connection, D>, &mut D)> {
        Some((self.links.get_mut(slot)?, &mut self.driver))
    }

    // ---- events from the driver ----

    /// Bytes arrived on a connection.
    pub(super) fn receive(&mut self, slot: usize, filled: D::Filled) {
        if self.shared.buffers.are_crowded() {
            self.relieve();
        }
        let Some(link) = self.links.get_mut(slot) else {
            return self.driver.give_back(filled);
        };
        let counters = &self.shared.counters.workers[self.number];
        let bytes = self.driver.bytes(&filled).len() as u64;
        counters.bytes_read.add(bytes);
        link.info().received.add(bytes);
        let arrival = link.receive(filled, &mut self.driver, &self.shared.buffers);
        match arrival {
            Arrival::Serve => {}
            Arrival::OutOfMemory => counters.out_of_memory.add(1),
            Arrival::BadRecord => counters.tls_errors.add(1),
            Arrival::Steer | Arrival::Wait => {
                if arrival == Arrival::Steer {
                    link.set_aside(&self.shared.buffers);
                    self.driver.steer(slot, link);
                }
                return self.parking.note(slot, link.held_bytes(), link.take_moved(), self.shared.now_ms());
            }
            Arrival::Ignored => return,
        }
        if link.enqueue() {
            self.turn.queue.push(slot);
        }
    }

    /// The client sends no more. Its replies are still wanted unless the socket is `broken`.
    pub(super) fn ended(&mut self, slot: usize, broken: bool) {
        if self.close_if(slot, CloseReason::Normal, Link::is_killed) {
            return;
        }
        if let Some(link) = self.link(slot) {
            link.end(broken);
            if link.enqueue() {
                self.turn.queue.push(slot);
            }
        }
    }

    /// There may be room in a socket that was full. `bytes` more of the buffer were sent meanwhile.
    pub(super) fn writable(&mut self, slot: usize, bytes: io::Result<usize>) {
        let Some(link) = self.links.get_mut(slot) else { return };
        if let Ok(bytes) = bytes {
            self.shared.counters.workers[self.number].bytes_written.add(bytes as u64);
            link.info().sent.add(bytes as u64);
        }
        link.writable(bytes.ok(), &self.shared.buffers);
        if link.enqueue() {
            self.turn.queue.push(slot);
        }
    }

    /// The service's descriptor is readable: connections that waited for what it says go on.
    pub(super) fn woken(&mut self) {
        let mut woken = mem::take(&mut self.woken);
        self.service.woken(&mut woken);
        for id in woken.drain(..) {
            if UdpPorts::<S::Connection>::has_named(id) {
                self.udp.resume(id, &mut self.service, &self.shared, self.number);
                continue;
            }
            let slot = id.slot as usize;
            let Some(link) = self.links.get_mut(slot) else { continue };
            if link.generation() != id.generation || link.is_closed() {
                continue;
            }
            link.wake();
            if link.enqueue() {
                self.turn.queue.push(slot);
            }
        }
        self.woken = woken;
    }

    // ---- a turn ----

    /// Serves all queued connections in one batch, and sends their replies. If the service has news for them then, they
    /// are served once more.
    pub(super) fn serve_ready(&mut self) {
        if !self.turn.queue.is_empty() {
            self.serve_all();
        }
        if self.shared.buffers.are_crowded() {
            self.relieve();
        }
    }

    fn serve_all(&mut self) {
        self.serve_queue(true);
        if self.turn.has_news {
            self.woken();
            self.serve_queue(false);
        }
        // What was held back is sent by now, unless the news did not name the connection.
        let mut held = mem::take(&mut self.turn.held);
        for slot in held.drain(..) {
            if let Some(mut link) = self.links.take(slot) {
                self.advance(slot, &mut link);
                self.links.put(slot, link);
                self.release_if_closed(slot);
            }
        }
        self.turn.held = held;
    }

    /// `asks` = ask the service for news, and hold back the replies of connections that wait for them: they leave
    /// together with the next.
    fn serve_queue(&mut self, asks: bool) {
        self.turn.has_news = false;
        let mut queue = mem::take(&mut self.turn.queue);
        for slot in queue.drain(..) {
            let Some(mut link) = self.links.take_if(slot, |link| link.dequeue()) else {
                continue;
            };
            if link.begin_turn() {
                self.turn.batch.push((slot, link));
            } else {
                self.advance(slot, &mut link);
                self.links.put(slot, link);
                self.release_if_closed(slot);
            }
        }
        // `advance` may have queued connections for the next turn.
        queue.append(&mut self.turn.queue);
        self.turn.queue = queue;
        if !self.turn.batch.is_empty() {
            self.serve_batch(asks);
        }
    }

    fn serve_batch(&mut self, asks: bool) {
        let Worker { driver, service, turn: Turn { batch, ready: ready_memory, consumed, .. }, .. } = self;
        let mut ready = reuse(mem::take(ready_memory));
        for (_, link) in batch {
            let (connection, input) = link.conversation_and_input(driver);
            ready.push(Ready { connection, input, consumed: 0 });
        }
        service.serve(&mut ready);
        consumed.extend(ready.iter().map(|one| one.consumed.min(one.input.len())));
        *ready_memory = reuse(ready);
        let has_news = asks && service.has_news();
        self.turn.has_news = has_news;

        let mut batch = mem::take(&mut self.turn.batch);
        let mut consumed = mem::take(&mut self.turn.consumed);
        for ((slot, mut link), used) in batch.drain(..).zip(consumed.drain(..)) {
            if self.shared.buffers.are_full() {
                self.relieve();
            }
            if !link.end_turn(used, self.now_s, &mut self.driver, &self.shared.buffers) {
                self.counters().out_of_memory.add(1);
            }
            if has_news && link.is_waiting() {
                self.turn.held.push(slot);
                self.links.put(slot, link);
                continue;
            }
            self.advance(slot, &mut link);
            self.links.put(slot, link);
            self.release_if_closed(slot);
        }
        self.turn.batch = batch;
        self.turn.consumed = consumed;
    }

    /// Sends what can be sent, then decides how the connection goes on.
    fn advance(&mut self, slot: usize, link: &mut Link<S::Connection, D>) {
        if link.is_closed() {
            return;
        }
        let counters = &self.shared.counters.workers[self.number];
        let all_sent = link.transmit(&self.shared.buffers, &counters.bytes_written);
        if !all_sent && link.is_blocked() {
            link.set_aside(&self.shared.buffers);
        }
        if link.wants_another_turn(all_sent) && link.enqueue() {
            self.turn.queue.push(slot);
        }
        if link.is_finished(all_sent) {
            let was_lingering = link.is_lingering();
            if !link.linger() {
                self.close(slot, link);
            } else if !was_lingering {
                link.set_close_reason(link.close_reason());
                let id = ConnectionId { slot: slot as u32, generation: link.generation() };
                self.lingering.push((id, self.now_s + LINGER_S));
            }
        }
        if !link.is_closed() {
            self.driver.steer(slot, link);
            self.park(slot, link);
        }
    }

    /// Closes a connection. What its conversation holds goes when the kernel has let go of the connection.
    fn close(&mut self, slot: usize, link: &mut Link<S::Connection, D>) {
        link.close(slot, &mut self.driver, &self.shared.buffers);
        self.shared.buffers.begin_to_leave(link.leave());
        self.parking.note(slot, 0, false, 0);
    }

    // ---- bytes that stay with connections ----

    /// Notes how many bytes stay with a connection.
    #[inline]
    fn park(&mut self, slot: usize, link: &mut Link<S::Connection, D>) {
        let bytes = link.held_bytes();
        if bytes > 0 || self.parking.bytes_at(slot) > 0 {
            link.show_held(bytes);
            self.parking.note(slot, bytes, link.take_moved(), self.shared.now_ms());
        }
    }

    /// Lets connections go, if this worker's hold more than their share: of those that got on with nothing for a while,
    /// the one that holds most is the first, and one that holds no more than an equal part stays. So a client that does
    /// not read, or does not end what it has begun to send, costs itself its connection, and no other client an answer.
    #[cold]
    fn relieve(&mut self) {
        let share = self.shared.buffers.parked_bytes_max() / self.shared.counters.workers.len() as u64;
        // A worker whose connections hold less than those of others waits until the others' have made room.
        let others_bytes = self.shared.note_parked(self.number, self.parking.bytes());
        let others = self.shared.counters.workers.len() as u64 - 1;
        let is_over = |worker: &Self| {
            let parked = worker.parking.bytes();
            parked > share && parked * others >= others_bytes
        };
        // Each connection goes once in a round, though it may hold on to bytes after it was let go.
        let mut slots = match self.late_since_ms() {
            // Those that wait for flash are not late themselves.
            Some(since_ms) if is_over(self) => self
                .parking
                .largest(since_ms, share, |slot| self.links.get(slot).is_some_and(|link| !link.is_waiting())),
            _ => Vec::new(),
        };
        while let Some(since_ms) = self.late_since_ms()
            && is_over(self)
        {
            // One connection alone may have its half of the limit: the other half is enough for all others, while it
            // is not full.
            if self.parking.slots() == 1 && !self.shared.buffers.are_full() {
                break;
            }
            let Some(slot) = slots.pop() else { break };
            if !self.parking.let_go(slot, since_ms) {
                continue;
            }
            let Some(mut link) = self.links.take(slot) else { continue };
            let counters = self.counters();
            if link.is_blocked() { &counters.unread } else { &counters.out_of_memory }.add(1);
            link.give_up(&mut self.driver, &self.shared.buffers);
            self.advance(slot, &mut link);
            self.links.put(slot, link);
            self.release_if_closed(slot);
        }
        if self.shared.buffers.are_crowded() {
            self.shared.ask_for_relief(self.number);
        }
    }

    /// Who got on with nothing since then, in milliseconds after the start, may be let go. `None` = nobody.
    fn late_since_ms(&self) -> Option<u64> {
        let patience_ms = self.shared.buffers.patience_ms()?;
        Some(self.shared.now_ms().saturating_sub(patience_ms))
    }

    /// Connections that were paused because memory was short go on if it is not any more.
    fn go_on_with_paused(&mut self) {
        for slot in self.parking.parked() {
            if let Some(mut link) = self.links.take_if(slot, |link| link.is_paused()) {
                self.advance(slot, &mut link);
                self.links.put(slot, link);
                self.release_if_closed(slot);
            }
        }
    }

    /// Forgets a connection that is closed and that the kernel does not use any more.
    pub(super) fn release_if_closed(&mut self, slot: usize) {
        let gone = |link: &mut BoxedLink<S::Connection, D>| link.is_closed() && !D::is_busy(&link.state);
        let Some(link) = self.links.take_if(slot, gone) else { return };
        self.shared.registry.set(self.number, slot, None);
        let (reason, leaving_bytes) = (link.close_reason(), link.leaving_bytes());
        self.service.closed(link.into_conversation(), reason);
        self.shared.buffers.have_left(leaving_bytes);
        self.links.release(slot);
        let counters = self.counters();
        counters.open.sub(1);
        counters.assigned.fetch_sub(1, Ordering::Relaxed);
        self.shared.one_less();
    }

    // ---- connections open and close ----

    /// A connection of this worker begins.
    fn open(&mut self, accepted: Accepted) {
        let Accepted {
            socket, transport, place, session, is_kernel_tls, plain, has_ended, is_stranger, ..
        } = accepted;
        let info = Arc::new(ConnectionInfo::new(socket, transport, is_kernel_tls, self.now_s));
        let id = self.links.reserve();
        let slot = id.slot as usize;
        let peer =
            Peer { transport, fd: info.fd, worker: self.number, id, is_stranger, from: From::Socket(&info) };
        let conversation = self.service.open(&peer);
        self.shared.registry.set(self.number, slot, Some(Arc::clone(&info)));
        let mut link = Box::new(Link::new(conversation, info, place, id.generation, session, plain));
        let counters = self.counters();
        counters.open.add(1);
        counters.opened.add(1);
        self.driver.open(slot, &mut link);
        if link.begin() && link.enqueue() {
            self.turn.queue.push(slot);
        }
        self.links.put(slot, link);
        if is_stranger {
            self.lingering.push((id, self.now_s + STRANGER_STAYS_S));
        }
        if has_ended {
            self.ended(slot, false);
        }
    }

    /// The accepting worker has a new connection.
    pub(super) fn accepted(&mut self, socket: Socket, listener: &Listener) {
        let Some(acceptor) = &mut self.acceptor else { return };
        if self.stage != Stage::Serving {
            return;
        }
        if let Some((worker, accepted)) =
            acceptor.admit(acceptor.accepted(socket, listener), &self.shared, self.number)
        {
            self.assign(worker, accepted);
        }
        self.listen_as_acceptor_says();
    }

    pub(super) fn accept_failed(&mut self, error: &io::Error) {
        if let Some(acceptor) = &mut self.acceptor {
            acceptor.failed(error, &self.shared);
        }
        self.listen_as_acceptor_says();
    }

    fn assign(&mut self, worker: usize, mut accepted: Accepted) {
        if let (Some(config), Some(handshakes)) = (accepted.handshake.take(), self.shared.handshakes()) {
            handshakes.begin(worker, accepted, config);
        } else if worker == self.number {
            self.open(accepted);
        } else {
            self.shared.hand_over(worker, accepted);
        }
    }

    fn listen_as_acceptor_says(&mut self) {
        if let Some(on) = self.acceptor.as_mut().and_then(Acceptor::listening_changed) {
            self.driver.listen(on);
        }
    }

    /// The accepting worker goes on if there is room for connections again.
    fn resume_accepting(&mut self, after_tick: bool) {
        if self.stage != Stage::Serving {
            return;
        }
        while let Some((worker, accepted)) =
            self.acceptor.as_mut().and_then(|acceptor| acceptor.resume(&self.shared, self.number, after_tick))
        {
            self.assign(worker, accepted);
        }
        self.listen_as_acceptor_says();
    }

    /// Another thread rang the bell: there may be new connections, or the server may be stopping.
    pub(super) fn rung(&mut self) {
        let mut inbox = mem::take(&mut self.inbox);
        self.shared.collect(self.number, &mut inbox);
        for accepted in inbox.drain(..) {
            self.open(accepted);
        }
        self.inbox = inbox;
        // Another thread may have news for the service.
        self.woken();
        self.resume_accepting(false);
        let stage = self.shared.stage();
        if stage > self.stage {
            self.stage = stage;
            self.acceptor = None;
            self.driver.stop_listening();
            self.driver.hurry();
            if stage == Stage::Stopping {
                self.close_all(|_| true);
            }
        }
    }

    /// Called about once a second, and often while the server is stopping.
    pub(super) fn tick(&mut self) {
        self.counters().ticks.add(1);
        let now_s = self.shared.now_s();
        if now_s != self.now_s {
            self.now_s = now_s;
            self.service.tick(now_s);
            // A connection may have begun to wait after its news came: the service names it now.
            self.woken();
            self.close_idle();
            self.close_lingering();
        }
        self.resume_accepting(true);
        self.go_on_with_paused();
        if self.stage == Stage::Draining {
            self.close_all(Link::is_idle);
            if self.shared.drain_is_over() {
                self.stage = Stage::Stopping;
                self.close_all(|_| true);
            }
        }
    }

    /// The worker has left its loop. Datagrams that still wait are dropped.
    pub(super) fn end(&mut self) {
        self.udp.end(&mut self.service, &self.shared);
    }

    /// Whether the worker was told to stop and has nothing left to finish.
    pub(super) fn is_finished(&self) -> bool {
        self.stage != Stage::Serving && self.links.are_none()
    }

    fn close_all(&mut self, which: impl Fn(&Link<S::Connection, D>) -> bool) {
        for slot in 0..self.links.slots() {
            self.close_if(slot, CloseReason::Shutdown, &which);
        }
    }

    fn close_if(
        &mut self,
        slot: usize,
        reason: CloseReason,
        which: impl Fn(&Link<S::Connection, D>) -> bool,
    ) -> bool {
        let chosen = |link: &mut BoxedLink<S::Connection, D>| !link.is_closed() && which(link);
        let Some(mut link) = self.links.take_if(slot, chosen) else { return false };
        link.set_close_reason(reason);
        self.close(slot, &mut link);
        self.links.put(slot, link);
        self.release_if_closed(slot);
        true
    }

    /// Closes connections that were idle for too long. One call looks at as many as it takes to see all within a
    /// quarter of the timeout, and at no fewer than a thousand.
    fn close_idle(&mut self) {
        let timeout_s = self.shared.limits.idle_timeout_s();
        let slots = self.links.slots();
        if timeout_s == 0 || slots == 0 {
            return;
        }
        let quarter_s = (timeout_s as usize / 4).max(1);
        let looks = slots.div_ceil(quarter_s).max(1000).min(slots);
        let now_s = self.now_s;
        for _ in 0..looks {
            let slot = self.links.next_to_look_at();
            let idle = |link: &Link<S::Connection, D>| {
                let idle_s = now_s.saturating_sub(link.info().active_s.load(Ordering::Relaxed));
                !link.is_blocked() && !link.is_waiting() && !link.may_be_idle() && idle_s > timeout_s
            };
            if self.close_if(slot, CloseReason::IdleTimeout, idle) {
                self.counters().idle_kicks.add(1);
            }
        }
    }

    /// Closes connections that have waited for the client's end for long enough.
    fn close_lingering(&mut self) {
        let mut lingering = mem::take(&mut self.lingering);
        lingering.retain(|&(id, until_s)| {
            if until_s <= self.now_s {
                self.close_if(id.slot as usize, CloseReason::Normal, |link| {
                    link.generation() == id.generation
                });
            }
            until_s > self.now_s
        });
        self.lingering.append(&mut lingering);
    }

    /// Serves the datagrams waiting at one UDP socket. `true` = there may be more.
    pub(super) fn datagrams(&mut self, socket: usize) -> bool {
        self.udp.serve(socket, self.number, &mut self.service, &self.shared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_emptied_list_keeps_its_memory() {
        let (mut connection, input) = (0_u8, [1, 2, 3]);
        let mut list = Vec::with_capacity(100);
        list.push(Ready { connection: &mut connection, input: &input, consumed: 0 });
        let (memory, capacity) = (list.as_ptr().addr(), list.capacity());
        let again: Vec<Ready<'static, u8>> = reuse(list);
        assert_eq!((again.as_ptr().addr(), again.capacity(), again.len()), (memory, capacity, 0));
    }
}
