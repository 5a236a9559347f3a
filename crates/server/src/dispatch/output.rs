//! A connection's replies: the buffer they are composed into, and those that are held back until a commit is durable.

use larder_cache::Commit;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// With this many bytes the output is full: nothing more is read or answered until it is sent.
pub(super) const OUTPUT_SOFT_BYTES: usize = 64 << 10;
/// The same while connections hold half of what their buffers may take.
pub(super) const OUTPUT_TIGHT_BYTES: usize = 4 << 10;
/// The same for the reply to a datagram, which is sent as a whole at the end.
const DATAGRAM_OUTPUT_BYTES: usize = 1 << 20;
/// Buffers larger than this are not kept for reuse. A buffer doubles as it grows, and takes one reply more when it is
/// not full yet.
const KEPT_BUFFER_BYTES: usize = 2 * OUTPUT_SOFT_BYTES;
/// The most bytes of buffers that one worker keeps for reuse. Others are given back to the allocator, which gives their
/// pages back to the kernel: each use of such a page then begins with a page fault.
const KEPT_BYTES: usize = 512 << 10;

/// What the connections of one worker share: output buffers that wait for their next use, and the news of what is
/// durable.
pub(super) struct Pool {
    kept: RefCell<Vec<Vec<u8>>>,
    /// Capacity of the buffers that are kept, bytes.
    kept_bytes: Cell<usize>,
    committed: Cell<Commit>,
}

impl Default for Pool {
    fn default() -> Pool {
        Pool { kept: RefCell::default(), kept_bytes: Cell::new(0), committed: Cell::new(Commit(0)) }
    }
}

impl Pool {
    /// Replies that were held back until this commit may be sent.
    pub(super) fn set_committed(&self, committed: Commit) {
        self.committed.set(committed);
    }

    fn take(&self) -> Vec<u8> {
        let Some(buffer) = self.kept.borrow_mut().pop() else { return Vec::with_capacity(4096) };
        self.kept_bytes.set(self.kept_bytes.get() - buffer.capacity());
        buffer
    }

    fn give(&self, mut buffer: Vec<u8>) {
        let kept_bytes = self.kept_bytes.get() + buffer.capacity();
        if (1..=KEPT_BUFFER_BYTES).contains(&buffer.capacity()) && kept_bytes <= KEPT_BYTES {
            buffer.clear();
            self.kept.borrow_mut().push(buffer);
            self.kept_bytes.set(kept_bytes);
        }
    }
}

/// Replies that wait until something is durable.
struct Held {
    bytes: Vec<u8>,
    until: Commit,
}

/// What one connection has still to say.
pub(super) struct Output {
    bytes: Vec<u8>,
    pool: Rc<Pool>,
    /// The connection ends once everything is sent.
    closing: bool,
    /// It ends because of what the client sent, or because something found no room.
    failed: bool,
    /// With this many bytes the output is full.
    bytes_max: usize,
    is_datagram: bool,
    held: Option<Held>,
    /// The commit that the replies in `bytes` wait for.
    until: Option<Commit>,
    /// The last commit that the worker knows this connection to wait for.
    told_until: Option<Commit>,
}

impl Output {
    pub(super) fn new(pool: Rc<Pool>, is_datagram: bool) -> Output {
        Output {
            bytes: Vec::new(),
            pool,
            closing: false,
            failed: false,
            bytes_max: if is_datagram { DATAGRAM_OUTPUT_BYTES } else { OUTPUT_SOFT_BYTES },
            is_datagram,
            held: None,
            until: None,
            told_until: None,
        }
    }

    /// Whether the replies are sent as datagrams.
    pub(super) fn is_datagram(&self) -> bool {
        self.is_datagram
    }

    /// Whether the output is a datagram's, or buffers are short.
    pub(super) fn is_limited(&self) -> bool {
        self.bytes_max != OUTPUT_SOFT_BYTES
    }

    /// The buffer, ready to be written to.
    #[inline]
    pub(super) fn buffer(&mut self) -> &mut Vec<u8> {
        if self.bytes.capacity() == 0 {
            self.bytes = self.pool.take();
        }
        &mut self.bytes
    }

    /// Takes back what was appended since the output had this many bytes.
    pub(super) fn truncate(&mut self, bytes: usize) {
        self.bytes.truncate(bytes);
    }

    /// Appends a fixed reply.
    #[inline]
    pub(super) fn say(&mut self, reply: &str) {
        self.buffer().extend_from_slice(reply.as_bytes());
    }

    /// The connection ends once everything is sent. No request is executed any more.
    pub(super) fn close(&mut self) {
        self.closing = true;
    }

    /// The same, for a connection that cannot go on.
    pub(super) fn close_failed(&mut self) {
        self.closing = true;
        self.failed = true;
    }

    /// Whether it ends because it cannot go on.
    pub(super) fn has_failed(&self) -> bool {
        self.failed
    }

    #[inline]
    pub(super) fn is_closing(&self) -> bool {
        self.closing
    }

    /// The replies composed since the last time they were taken.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.bytes.len() >= self.bytes_max
    }

    /// How many bytes may be added before the output is full.
    pub(super) fn room(&self) -> usize {
        self.bytes_max.saturating_sub(self.bytes.len())
    }

    /// From now on the output is full with this many bytes. A datagram's output keeps its own limit.
    #[inline]
    pub(super) fn limit(&mut self, bytes_max: usize) {
        if !self.is_datagram {
            self.bytes_max = bytes_max;
        }
    }

    /// What is in the buffer now is sent only when `until` is durable. Replies that come later have to wait behind it,
    /// but those that are held already do not: however fast a client writes, replies go out with every commit.
    pub(super) fn hold(&mut self, until: Commit) {
        self.until = self.until.max(Some(until));
    }

    /// A commit that the replies in the buffer wait for and that the worker was not told of yet. The worker asks before
    /// [`Output::take`], so it knows of every commit that replies are held for.
    pub(super) fn newly_held_until(&mut self) -> Option<Commit> {
        let until = self.until.filter(|until| self.told_until.is_none_or(|told| *until > told));
        self.told_until = until.or(self.told_until);
        until
    }

    /// The next bytes that may be sent.
    pub(super) fn take(&mut self) -> Option<Vec<u8>> {
        let committed = self.pool.committed.get();
        if let Some(held) = self.held.take_if(|held| held.until <= committed) {
            return Some(held.bytes);
        }
        if self.bytes.is_empty() || self.held.is_some() {
            return None;
        }
        match self.until.take() {
            Some(until) if until > committed => {
                self.held = Some(Held { bytes: std::mem::take(&mut self.bytes), until });
                None
            }
            _ => Some(std::mem::take(&mut self.bytes)),
        }
    }

    /// A buffer of [`Output::take`] comes back.
    pub(super) fn recycle(&self, buffer: Vec<u8>) {
        self.pool.give(buffer);
    }

    /// Whether something is left to be sent, now or after a commit.
    pub(super) fn has_any(&self) -> bool {
        !self.bytes.is_empty() || self.held.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn say(output: &mut Output, text: &str, until: Option<u64>) {
        output.say(text);
        if let Some(until) = until {
            output.hold(Commit(until));
        }
    }

    #[test]
    fn buffers_are_kept_up_to_a_length_each_and_all_together() {
        let pool = Pool::default();
        pool.give(Vec::new());
        pool.give(Vec::with_capacity(KEPT_BUFFER_BYTES + 1));
        assert_eq!((pool.kept.borrow().len(), pool.kept_bytes.get()), (0, 0));
        (0..100).for_each(|_| pool.give(vec![1; KEPT_BUFFER_BYTES]));
        let most = KEPT_BYTES / KEPT_BUFFER_BYTES;
        assert_eq!((pool.kept.borrow().len(), pool.kept_bytes.get()), (most, KEPT_BYTES));
        for _ in 0..most {
            let buffer = pool.take();
            assert!(buffer.is_empty() && buffer.capacity() == KEPT_BUFFER_BYTES);
        }
        assert_eq!((pool.take().capacity(), pool.kept_bytes.get()), (4096, 0));
    }

    #[test]
    fn replies_wait_for_their_own_commit_and_no_later_one() {
        let pool: Rc<Pool> = Rc::default();
        let mut output = Output::new(pool.clone(), false);
        say(&mut output, "free ", None);
        assert_eq!(output.take().as_deref(), Some(&b"free "[..]));

        say(&mut output, "one ", Some(1));
        assert_eq!(output.newly_held_until(), Some(Commit(1)));
        assert_eq!(output.take(), None);
        assert!(output.has_any(), "it is not done");
        // What comes behind what is held waits for its own commit, and the worker is told of that one too.
        say(&mut output, "two ", Some(2));
        assert_eq!(output.newly_held_until(), Some(Commit(2)));
        assert_eq!(output.newly_held_until(), None, "told once");
        assert_eq!(output.take(), None);

        pool.set_committed(Commit(1));
        assert_eq!(output.take().as_deref(), Some(&b"one "[..]));
        assert_eq!(output.take(), None);
        say(&mut output, "behind ", None);
        assert_eq!(output.take(), None, "not before what came before it");
        pool.set_committed(Commit(2));
        assert_eq!(output.take().as_deref(), Some(&b"two "[..]));
        assert_eq!(output.take().as_deref(), Some(&b"behind "[..]));
        assert!(!output.has_any());
    }
}
