//! Where connections go whose TLS handshake is still to be done. A [thread](super::handshake_thread) collects them.

use super::accepted::Accepted;
use mio::{Poll, Token, Waker};
use rustls::server::ServerConfig;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// One thread for handshakes to this many workers.
const WORKERS_PER_THREAD: usize = 4;
/// Says that a thread is to look at its inbox, and at the server's stage.
pub(super) const WAKER: Token = Token(usize::MAX);

/// What to give a handshake to.
#[derive(Debug)]
pub(super) struct Handshakes {
    posts: Box<[Post]>,
    next: AtomicUsize,
}

#[derive(Debug)]
struct Post {
    inbox: Mutex<Vec<Incoming>>,
    waker: Waker,
}

/// A connection whose handshake is to be done.
#[derive(Debug)]
pub(super) struct Incoming {
    /// The worker that gets the connection afterwards.
    pub(super) worker: usize,
    pub(super) accepted: Accepted,
    pub(super) config: Arc<ServerConfig>,
}

impl Handshakes {
    /// What a server of `workers` workers needs, and for each thread its end.
    pub(super) fn new(workers: usize) -> io::Result<(Handshakes, Vec<Poll>)> {
        let (mut posts, mut polls) = (Vec::new(), Vec::new());
        for _ in 0..workers.div_ceil(WORKERS_PER_THREAD) {
            let poll = Poll::new()?;
            posts.push(Post { inbox: Mutex::default(), waker: Waker::new(poll.registry(), WAKER)? });
            polls.push(poll);
        }
        Ok((Handshakes { posts: posts.into(), next: AtomicUsize::new(0) }, polls))
    }

    /// Begins a handshake. The connection goes to `worker` afterwards.
    pub(super) fn begin(&self, worker: usize, accepted: Accepted, config: Arc<ServerConfig>) {
        let number = self.next.fetch_add(1, Ordering::Relaxed) % self.posts.len();
        self.posts[number].inbox.lock().expect("no panic under this lock").push(Incoming {
            worker,
            accepted,
            config,
        });
        self.wake(number);
    }

    /// The connections that wait for a thread.
    pub(super) fn collect(&self, number: usize) -> Vec<Incoming> {
        std::mem::take(&mut self.posts[number].inbox.lock().expect("no panic under this lock"))
    }

    /// Makes every thread look at the server's stage.
    pub(super) fn wake_all(&self) {
        (0..self.posts.len()).for_each(|number| self.wake(number));
    }

    fn wake(&self, number: usize) {
        if let Err(error) = self.posts[number].waker.wake() {
            tracing::error!("a thread for handshakes cannot be woken: {error}");
        }
    }
}
