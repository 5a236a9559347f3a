//! Contents for the pages that tests write, and waiting for the reads of a queue.

use super::device::{PageBuffer, ReadQueue};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How long [`readable`] waits, seconds.
const WAIT_MAX_S: i64 = 30;

/// `count` pages whose contents follow from the seed. The pages of one call differ from each other.
pub fn pages(count: usize, seed: u64) -> PageBuffer {
    let mut buffer = PageBuffer::new(count);
    for (index, word) in buffer.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let mixed = (seed << 32 | index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        *word = (mixed ^ mixed >> 29).to_le_bytes();
    }
    buffer
}

/// Whether the descriptor of the queue is readable: now, or with `wait` within 30 seconds.
///
/// # Panics
/// If the system cannot wait for the descriptor.
pub fn readable(queue: &dyn ReadQueue, wait: bool) -> bool {
    let limit = Timespec { tv_sec: if wait { WAIT_MAX_S } else { 0 }, tv_nsec: 0 };
    let mut fds = [PollFd::from_borrowed_fd(queue.fd(), PollFlags::IN)];
    loop {
        match poll(&mut fds, Some(&limit)) {
            Err(rustix::io::Errno::INTR) => {}
            ready => return ready.expect("poll") > 0,
        }
    }
}
