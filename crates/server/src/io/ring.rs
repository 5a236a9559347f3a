//! Completions: one io_uring per worker.
//!
//! Receiving is started once and completes many times (multishot). It takes its memory from one pool of buffers per
//! worker at the moment bytes arrive, so idle connections hold no memory. Accepting is started for a few connections at
//! a time, because a multishot accept takes in all that wait, and requests would wait for that. The worker sends
//! directly. Only what does not fit a socket is handed to the ring.
//!
//! A turn: wait, read every completion, serve all connections that have input, start again what has ended.
//!
//! Memory that the kernel may touch at any time belongs to [`RingDriver`]: the receive buffers, the buffers being sent
//! and the bell's. Its `Drop` cancels every operation and waits for the end of each before it frees that memory.

use std::io::{self, ErrorKind};
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::Arc;

use io_uring::types::{CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{CompletionQueue, IoUring, SubmissionQueue, Submitter, cqueue, opcode, squeue};
use socket2::Socket;

use super::buffers::Buffers;
use super::input::ReceiveMemory;
use super::link::{Driver, Link};
use super::listen::Listener;
use super::receive_pool::{Filled, GROUP, Pool, pool_size};
use super::service::{Conversation, Service};
use super::worker::Worker;

const SUBMISSIONS: u32 = 512;
const COMPLETIONS: u32 = 4096;
/// The most connections that one listener takes in during a turn.
const ACCEPTS: u32 = 8;

static TICK: Timespec = Timespec::new().sec(1);
static TICK_HURRIED: Timespec = Timespec::new().nsec(20_000_000);
/// How long `Drop` waits for one more cancelled operation.
static DROP_PATIENCE: Timespec = Timespec::new().sec(2);

/// The operation that a completion belongs to: the upper half of its user data. The lower half is a slot or a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
enum Operation {
    Accept = 1,
    Receive = 2,
    Send = 3,
    Bell = 4,
    Tick = 5,
    Datagrams = 6,
    Cancel = 7,
    CancelReceive = 8,
    Wake = 9,
}

fn tag(operation: Operation, number: usize) -> u64 {
    (operation as u64) << 32 | number as u64
}

/// Makes a ring with what a worker needs.
pub(super) fn build() -> io::Result<IoUring> {
    IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_clamp()
        .setup_cqsize(COMPLETIONS)
        .build(SUBMISSIONS)
}

/// Tries on a pair of sockets whether this kernel allows what the driver does.
pub(super) fn probe() -> io::Result<()> {
    let mut ring = build()?;
    // The pool is leaked if anything fails below, because the kernel may still write to it.
    let mut pool = mem::ManuallyDrop::new(Pool::new(1)?);
    pool.register(&ring.submitter())?;
    let (ours, mut theirs) = UnixStream::pair()?;
    io::Write::write_all(&mut theirs, b"?")?;
    let receive = opcode::RecvMulti::new(Fd(ours.as_raw_fd()), GROUP).build();
    // SAFETY: the entry refers to no memory but the registered pool, which goes only after the last completion.
    unsafe { ring.submission().push(&receive).map_err(io::Error::other)? };
    ring.submit_and_wait(1)?;
    let first = ring.completion().next().ok_or_else(|| io::Error::other("no completion"))?;
    drop(theirs);
    if cqueue::more(first.flags()) {
        ring.submit_and_wait(1)?;
    }
    // SAFETY: dropped once. The operation has ended: the peer is gone.
    unsafe { mem::ManuallyDrop::drop(&mut pool) };
    match (first.result(), cqueue::buffer_select(first.flags())) {
        (1, Some(_)) => Ok(()),
        (error, _) if error < 0 => Err(io::Error::from_raw_os_error(-error)),
        _ => Err(io::Error::other("multishot receive does not work")),
    }
}

/// What the ring does for one connection now.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    receiving: bool,
    cancelling: bool,
    sending: bool,
}

pub(super) struct RingDriver<'r> {
    submitter: Submitter<'r>,
    submissions: SubmissionQueue<'r>,
    completions: CompletionQueue<'r>,
    /// Operations whose last completion was not read yet.
    in_flight: usize,
    pool: mem::ManuallyDrop<Pool>,
    /// Buffers of the pool that are not given back yet.
    filled: usize,
    /// The account in which the pool stands.
    buffers: Arc<Buffers>,
    /// Buffers that are being sent, by slot.
    sends: mem::ManuallyDrop<Vec<Option<Vec<u8>>>>,
    bell: UnixStream,
    rings: mem::ManuallyDrop<Box<[u8; 64]>>,
    listeners: Option<Rc<[Listener]>>,
    accepting: Vec<u32>,
    listening: bool,
    hurried: bool,
    /// Connections whose receiving has ended in this turn.
    lapsed: Vec<usize>,
}

impl<'r> RingDriver<'r> {
    pub(super) fn new(
        ring: &'r mut IoUring,
        bell: UnixStream,
        listeners: Option<Rc<[Listener]>>,
        buffers: Arc<Buffers>,
    ) -> io::Result<RingDriver<'r>> {
        let (mut submitter, submissions, completions) = ring.split();
        let mut pool = Pool::new(pool_size(buffers.ring_buffers()))?;
        pool.register(&submitter)?;
        buffers.take_receiving(pool.bytes_held());
        // Saves the kernel a look at the file table in every call. The driver works without it, too.
        let _ = submitter.register_ring_fd();
        let accepting = vec![0; listeners.as_ref().map_or(0, |listeners| listeners.len())];
        Ok(RingDriver {
            submitter,
            submissions,
            completions,
            in_flight: 0,
            pool: mem::ManuallyDrop::new(pool),
            filled: 0,
            buffers,
            sends: mem::ManuallyDrop::new(Vec::new()),
            bell,
            rings: mem::ManuallyDrop::new(Box::new([0; 64])),
            listeners,
            accepting,
            listening: true,
            hurried: false,
            lapsed: Vec::new(),
        })
    }

    /// Queues an operation.
    ///
    /// # Safety
    /// Memory that the entry refers to must stay valid, and be left alone, until its last completion is reaped.
    unsafe fn push(&mut self, entry: squeue::Entry) {
        self.in_flight += 1;
        // SAFETY: the caller vouches for the entry.
        while unsafe { self.submissions.push(&entry) }.is_err() {
            // The queue is full: the kernel takes what is queued. Its errors are transient (out of memory, or
            // completions to be read first), and the next round tries again.
            let _ = self.enter(0);
        }
    }

    /// Submits the queued operations and waits for `want` completions.
    fn enter(&mut self, want: u32) -> io::Result<()> {
        self.submissions.sync();
        let queued = self.submissions.len() as u32;
        let flags = io_uring::EnterFlags::GETEVENTS.bits();
        // SAFETY: `queued` entries lie in the submission queue, and no argument is passed.
        unsafe { self.submitter.enter::<libc::sigset_t>(queued, want, flags, None)? };
        self.submissions.sync();
        Ok(())
    }

    fn next_completion(&mut self) -> Option<cqueue::Entry> {
        let completion = self.completions.next()?;
        if !cqueue::more(completion.flags()) {
            self.in_flight -= 1;
        }
        Some(completion)
    }

    /// Gives the worker as many receive buffers as it should have. Nothing happens while one is in use; the next turn
    /// tries again.
    #[cold]
    fn resize_pool(&mut self) {
        self.completions.sync();
        let has_unread = !self.completions.is_empty() || self.submissions.cq_overflow();
        let count = pool_size(self.buffers.ring_buffers());
        if self.filled > 0 || has_unread {
            return;
        }
        let Ok(mut pool) = Pool::new(count) else { return };
        if self.submitter.unregister_buf_ring(GROUP).is_err() {
            return;
        }
        if pool.register(&self.submitter).is_err() {
            if let Err(error) = self.pool.register(&self.submitter) {
                tracing::error!(%error, "a worker has lost its receive buffers");
            }
            return;
        }
        self.buffers.take_receiving(pool.bytes_held());
        // The kernel has let go of the old pool: it receives in calls of this thread only, into buffers that are
        // registered, and every completion that names a buffer was read and its buffer given back.
        let old = mem::replace(&mut *self.pool, pool);
        self.buffers.give_receiving(old.bytes_held());
    }

    fn receive(&mut self, slot: usize, fd: i32, state: &mut InFlight) {
        let entry = opcode::RecvMulti::new(Fd(fd), GROUP).build().user_data(tag(Operation::Receive, slot));
        state.receiving = true;
        // SAFETY: receives into the pool only, which lives until every operation has ended.
        unsafe { self.push(entry) };
    }

    fn cancel_receive(&mut self, slot: usize) {
        let entry = opcode::AsyncCancel::new(tag(Operation::Receive, slot))
            .build()
            .user_data(tag(Operation::CancelReceive, slot));
        // SAFETY: refers to no memory.
        unsafe { self.push(entry) };
    }

    /// Sends `bytes[from..]` whenever the socket has room: all of it, with `flags` for that.
    fn send(&mut self, slot: usize, fd: i32, bytes: Vec<u8>, from: usize, flags: i32) {
        if self.sends.len() <= slot {
            self.sends.resize_with(slot + 1, || None);
        }
        let rest = &bytes[from..];
        let entry = opcode::Send::new(Fd(fd), rest.as_ptr(), u32::try_from(rest.len()).unwrap_or(u32::MAX))
            .flags(flags | libc::MSG_NOSIGNAL)
            .build()
            .user_data(tag(Operation::Send, slot));
        self.sends[slot] = Some(bytes);
        // SAFETY: the bytes lie on the heap, owned by `sends` and unchanged until this operation's completion.
        unsafe { self.push(entry) };
    }

    fn accept(&mut self, number: usize) {
        let Some(listeners) = &self.listeners else { return };
        let listener = Fd(listeners[number].socket.as_raw_fd());
        while self.accepting[number] < ACCEPTS {
            self.accepting[number] += 1;
            let entry = opcode::Accept::new(listener, std::ptr::null_mut(), std::ptr::null_mut())
                .flags(libc::SOCK_CLOEXEC)
                .build()
                .user_data(tag(Operation::Accept, number));
            // SAFETY: refers to no memory: no address is asked for.
            unsafe { self.push(entry) };
        }
    }

    fn stop_accepting(&mut self, number: usize) {
        if self.accepting[number] > 0 {
            let which = CancelBuilder::user_data(tag(Operation::Accept, number)).all();
            let entry = opcode::AsyncCancel2::new(which).build().user_data(tag(Operation::Cancel, number));
            // SAFETY: refers to no memory.
            unsafe { self.push(entry) };
        }
    }

    fn hear_bell(&mut self) {
        let bell = Fd(self.bell.as_raw_fd());
        let entry = opcode::Read::new(bell, self.rings.as_mut_ptr(), self.rings.len() as u32)
            .build()
            .user_data(tag(Operation::Bell, 0));
        // SAFETY: `rings` is on the heap, read by nobody, and lives until every operation has ended.
        unsafe { self.push(entry) };
    }

    fn arm_tick(&mut self) {
        let period: &'static Timespec = if self.hurried { &TICK_HURRIED } else { &TICK };
        let entry = opcode::Timeout::new(period).build().user_data(tag(Operation::Tick, 0));
        // SAFETY: the period is static.
        unsafe { self.push(entry) };
    }

    /// Watches the service's descriptor for one event. A descriptor that is readable already is one.
    fn watch_service(&mut self, fd: i32) {
        let entry = opcode::PollAdd::new(Fd(fd), libc::POLLIN as u32)
            .build()
            .user_data(tag(Operation::Wake, fd as usize));
        // SAFETY: refers to no memory.
        unsafe { self.push(entry) };
    }

    fn watch_datagrams(&mut self, number: usize, fd: i32) {
        let entry = opcode::PollAdd::new(Fd(fd), libc::POLLIN as u32)
            .multi(true)
            .build()
            .user_data(tag(Operation::Datagrams, number));
        // SAFETY: refers to no memory.
        unsafe { self.push(entry) };
    }
}

impl ReceiveMemory for RingDriver<'_> {
    type Filled = Filled;

    fn bytes<'a>(&'a self, filled: &'a Filled) -> &'a [u8] {
        self.pool.bytes(filled)
    }

    fn bytes_mut<'a>(&'a mut self, filled: &'a mut Filled) -> &'a mut [u8] {
        self.pool.bytes_mut(filled)
    }

    fn give_back(&mut self, filled: Filled) {
        self.filled -= 1;
        self.pool.give_back(filled);
    }
}

impl Driver for RingDriver<'_> {
    type PerConnection = InFlight;

    fn open<C: Conversation>(&mut self, slot: usize, link: &mut Link<C, Self>) {
        self.receive(slot, link.info().fd, &mut link.state);
    }

    fn steer<C: Conversation>(&mut self, slot: usize, link: &mut Link<C, Self>) {
        if link.is_blocked() && !link.state.sending {
            link.state.sending = true;
            let (bytes, sent) = link.lend_sending();
            // A socket that the kernel encrypts does not know the flag, and sends what there is room for.
            let flags = if link.info().is_kernel_tls { 0 } else { libc::MSG_WAITALL };
            self.send(slot, link.info().fd, bytes, sent, flags);
        }
        if link.wants_receive() {
            if !link.state.receiving {
                self.receive(slot, link.info().fd, &mut link.state);
            }
        } else if link.state.receiving && !link.state.cancelling && (link.is_blocked() || link.holds_enough())
        {
            link.state.cancelling = true;
            self.cancel_receive(slot);
        }
    }

    fn close<C: Conversation>(&mut self, slot: usize, link: &mut Link<C, Self>) {
        if Self::is_busy(&link.state) {
            // Otherwise a client that goes on sending would keep the operation alive.
            if link.state.receiving && !mem::replace(&mut link.state.cancelling, true) {
                self.cancel_receive(slot);
            }
            // This ends receiving and sending. It fails only on a dead connection, which ends them too.
            let _ = link.info().socket.shutdown(std::net::Shutdown::Both);
        }
    }

    fn is_busy(state: &InFlight) -> bool {
        state.receiving || state.sending
    }

    fn listen(&mut self, on: bool) {
        self.listening = on;
        for number in 0..self.accepting.len() {
            if on { self.accept(number) } else { self.stop_accepting(number) }
        }
    }

    fn stop_listening(&mut self) {
        self.listen(false);
        self.listeners = None;
    }

    fn hurry(&mut self) {
        if !mem::replace(&mut self.hurried, true) {
            self.arm_tick();
        }
    }
}

impl Drop for RingDriver<'_> {
    fn drop(&mut self) {
        if self.in_flight > 0 {
            let all =
                opcode::AsyncCancel2::new(CancelBuilder::any()).build().user_data(tag(Operation::Cancel, 0));
            // SAFETY: refers to no memory.
            unsafe { self.push(all) };
        }
        while self.in_flight > 0 {
            self.submissions.sync();
            let patience = SubmitArgs::new().timespec(&DROP_PATIENCE);
            match self.submitter.submit_with_args(1, &patience) {
                Err(error) if error.kind() != ErrorKind::Interrupted => break,
                _ => {}
            }
            self.completions.sync();
            while let Some(completion) = self.next_completion() {
                // A connection that was accepted meanwhile is not served any more.
                if completion.user_data() >> 32 == Operation::Accept as u64 && completion.result() >= 0 {
                    // SAFETY: the kernel made this descriptor for this completion alone.
                    drop(unsafe { Socket::from_raw_fd(completion.result()) });
                }
            }
        }
        self.buffers.give_receiving(self.pool.bytes_held());
        if self.in_flight == 0 {
            // SAFETY: dropped here only, once; no operation is left that could touch them.
            unsafe {
                mem::ManuallyDrop::drop(&mut self.pool);
                mem::ManuallyDrop::drop(&mut self.sends);
                mem::ManuallyDrop::drop(&mut self.rings);
            }
        }
    }
}

/// Runs a worker until it is stopped.
pub(super) fn run<S: Service>(worker: &mut Worker<S, RingDriver<'_>>) -> io::Result<()> {
    let udp: Vec<i32> = worker.udp.fds().collect();
    let mut udp_pending: Vec<usize> = Vec::new();
    worker.driver.listen(true);
    worker.driver.hear_bell();
    worker.driver.arm_tick();
    udp.iter().enumerate().for_each(|(number, fd)| worker.driver.watch_datagrams(number, *fd));
    if let Some(fd) = worker.service.wake_fd() {
        worker.driver.watch_service(fd);
    }
    while !worker.is_finished() {
        let want = u32::from(!worker.has_work() && udp_pending.is_empty());
        worker.service.before_wait();
        let entered = worker.driver.enter(want);
        worker.service.after_wait();
        worker.counters().waits.add(1);
        if let Err(error) = entered {
            // Interrupted, or the kernel is short of something: completions are read, and the call is tried again.
            if !matches!(error.raw_os_error(), Some(libc::EINTR | libc::EBUSY | libc::EAGAIN | libc::ETIME)) {
                return Err(error);
            }
        }
        worker.driver.completions.sync();
        while let Some(completion) = worker.driver.next_completion() {
            complete(worker, &completion, &udp, &mut udp_pending);
        }
        worker.serve_ready();
        udp_pending.retain(|number| worker.datagrams(*number));
        if pool_size(worker.shared.buffers.ring_buffers()) != worker.driver.pool.count() {
            worker.driver.resize_pool();
        }
        rearm(worker);
    }
    Ok(())
}

fn complete<S: Service>(
    worker: &mut Worker<S, RingDriver<'_>>,
    completion: &cqueue::Entry,
    udp: &[i32],
    udp_pending: &mut Vec<usize>,
) {
    let (result, flags) = (completion.result(), completion.flags());
    let number = completion.user_data() as u32 as usize;
    const RECEIVE: u64 = Operation::Receive as u64;
    const SEND: u64 = Operation::Send as u64;
    const ACCEPT: u64 = Operation::Accept as u64;
    const BELL: u64 = Operation::Bell as u64;
    const TICK: u64 = Operation::Tick as u64;
    const DATAGRAMS: u64 = Operation::Datagrams as u64;
    const WAKE: u64 = Operation::Wake as u64;
    const CANCEL_RECEIVE: u64 = Operation::CancelReceive as u64;
    match completion.user_data() >> 32 {
        RECEIVE => received(worker, number, result, flags),
        SEND => sent(worker, number, result),
        ACCEPT => accepted(worker, number, result),
        BELL => {
            worker.driver.hear_bell();
            worker.rung();
        }
        TICK => {
            worker.driver.arm_tick();
            worker.tick();
        }
        CANCEL_RECEIVE => {
            // The kernel was just working on the operation: try again at the end of the turn.
            if result < 0
                && let Some((link, driver)) = worker.link_and_driver(number)
            {
                link.state.cancelling = false;
                driver.lapsed.push(number);
            }
        }
        WAKE => {
            // The descriptor is watched again only after the service has read its news, so that no event comes twice.
            worker.woken();
            if result >= 0 {
                worker.driver.watch_service(number as i32);
            } else {
                tracing::error!(
                    "the service's descriptor cannot be watched any more: {}",
                    io::Error::from_raw_os_error(-result)
                );
            }
        }
        DATAGRAMS => {
            if !cqueue::more(flags) && result >= 0 {
                worker.driver.watch_datagrams(number, udp[number]);
            }
            if !udp_pending.contains(&number) {
                udp_pending.push(number);
            }
        }
        _ => {}
    }
}

fn received<S: Service>(worker: &mut Worker<S, RingDriver<'_>>, slot: usize, result: i32, flags: u32) {
    if !cqueue::more(flags) {
        if let Some(link) = worker.link(slot) {
            link.state.receiving = false;
            link.state.cancelling = false;
        }
        worker.driver.lapsed.push(slot);
    }
    match (result, cqueue::buffer_select(flags)) {
        (1.., Some(buffer)) => {
            worker.driver.filled += 1;
            // SAFETY: both are of this completion, which is looked at once.
            let filled = unsafe { Filled::new(buffer, result as u32) };
            worker.receive(slot, filled);
        }
        (0, buffer) => {
            if let Some(buffer) = buffer {
                // SAFETY: both are of this completion, which is looked at once.
                let filled = unsafe { Filled::new(buffer, 0) };
                worker.driver.pool.give_back(filled);
            }
            worker.ended(slot, false);
        }
        _ => match -result {
            // Receiving starts again at the end of the turn, when there are more buffers or some are free.
            libc::ENOBUFS => worker.driver.pool.double(),
            libc::ECANCELED | libc::EINTR | libc::EAGAIN => {}
            _ => worker.ended(slot, true),
        },
    }
}

fn sent<S: Service>(worker: &mut Worker<S, RingDriver<'_>>, slot: usize, result: i32) {
    let bytes = worker.driver.sends[slot].take();
    if let Some(link) = worker.link(slot) {
        link.state.sending = false;
        link.return_sending(bytes.unwrap_or_default());
    }
    worker.writable(slot, usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result)));
    worker.driver.lapsed.push(slot);
}

fn accepted<S: Service>(worker: &mut Worker<S, RingDriver<'_>>, number: usize, result: i32) {
    worker.driver.accepting[number] -= 1;
    if result >= 0 {
        // SAFETY: the kernel made this descriptor for this completion alone.
        let socket = unsafe { Socket::from_raw_fd(result) };
        if let Some(listeners) = worker.driver.listeners.clone() {
            worker.accepted(socket, &listeners[number]);
        }
    } else if result != -libc::ECANCELED {
        worker.accept_failed(&io::Error::from_raw_os_error(-result));
    }
    if worker.driver.listening {
        worker.driver.accept(number);
    } else {
        // The kernel may have been working on others when they were cancelled.
        worker.driver.stop_accepting(number);
    }
}

/// Starts again what has ended and is still wanted, and releases closed connections.
fn rearm<S: Service>(worker: &mut Worker<S, RingDriver<'_>>) {
    if worker.driver.lapsed.is_empty() {
        return;
    }
    let mut lapsed = mem::take(&mut worker.driver.lapsed);
    for slot in lapsed.drain(..) {
        worker.release_if_closed(slot);
        if let Some((link, driver)) = worker.link_and_driver(slot) {
            if link.is_closed() {
                driver.close(slot, link);
            } else {
                driver.steer(slot, link);
            }
        }
    }
    worker.driver.lapsed = lapsed;
}
