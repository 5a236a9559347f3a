//! What a connection is told by others: keys that have changed, and messages of channels.
//!
//! Any thread puts letters into a connection's mailbox, and wakes the connection's worker with the first one. The
//! worker takes them out between two replies. A mailbox holds a bounded number of bytes, which are in the account of
//! connection buffers. What does not fit is never lost in silence: for changed keys stands one letter that says that
//! all keys have changed, and who does not take messages is told nothing more and closed.

use crate::dispatch::news::News;
use crate::io::{Buffers, Charge, ConnectionId};
use larder_protocol::resp::{Version, compose as words};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// One part in this many of the memory for connection buffers is the most that one mailbox holds.
const MAILBOX_SHARE: u64 = 16;
const MAILBOX_BYTES_MAX: u64 = 8 << 20;
/// So much a mailbox may hold whoever has taken the rest of the memory, in bytes; and one letter of any length.
const ALWAYS_BYTES: usize = 4 << 10;
/// What a letter takes beside its text, in bytes.
const LETTER_BYTES: usize = size_of::<Letter>() + 2 * size_of::<usize>();
/// What a key takes on the wire beside its bytes, about.
const KEY_HEAD_BYTES: usize = 8;
/// A message may always have this length, in bytes.
const MESSAGE_BYTES: usize = 1 << 20;
/// Bytes that a mailbox takes from the account at once.
const CHARGE_STEP_BYTES: u64 = 4 << 10;
/// The channel on which connections of RESP2 hear of changed keys.
const CHANGES_CHANNEL: &[u8] = b"__redis__:invalidate";

/// The group of keys that the connection has read. Those that it hears of for a prefix have other numbers.
pub(super) const READ: u32 = 0;

enum Letter {
    /// A key has changed. Keys of one group, other than [`READ`], are told together.
    Changed { group: u32, key: Arc<[u8]>, for_another: bool },
    /// All keys may have changed.
    AllChanged { for_another: bool },
    /// The connection that was to hear of changed keys is gone.
    Broken(u64),
    /// A message, as RESP2 has it.
    Message(Arc<[u8]>),
}

impl Letter {
    fn bytes(&self) -> usize {
        LETTER_BYTES
            + match self {
                Letter::Changed { key: text, .. } | Letter::Message(text) => text.len(),
                Letter::AllChanged { .. } | Letter::Broken(_) => 0,
            }
    }

    fn is_change(&self) -> bool {
        matches!(self, Letter::Changed { .. } | Letter::AllChanged { .. })
    }
}

/// The mailboxes of all connections.
pub(in crate::dispatch) struct Post {
    news: Arc<News>,
    buffers: Option<Arc<Buffers>>,
    /// How many mailboxes of each worker have letters.
    waiting: Box<[AtomicUsize]>,
}

impl Post {
    pub(super) fn new(workers: usize, news: Arc<News>, buffers: Option<Arc<Buffers>>) -> Post {
        Post { news, buffers, waiting: (0..workers).map(|_| AtomicUsize::new(0)).collect() }
    }

    /// Whether a connection of this worker has letters.
    #[inline]
    pub(super) fn has_letters(&self, worker: usize) -> bool {
        self.waiting[worker].load(Ordering::Relaxed) != 0
    }

    /// The account of connection buffers.
    pub(super) fn buffers(&self) -> Option<&Arc<Buffers>> {
        self.buffers.as_ref()
    }

    /// The longest message, in bytes.
    pub(super) fn message_bytes_max(&self) -> usize {
        self.mailbox_bytes_max().max(MESSAGE_BYTES)
    }

    fn mailbox_bytes_max(&self) -> usize {
        let limit = self.buffers.as_ref().map_or(u64::MAX, |buffers| buffers.limit_bytes());
        (limit / MAILBOX_SHARE).min(MAILBOX_BYTES_MAX) as usize
    }
}

#[derive(Default)]
struct Letters {
    queue: VecDeque<Letter>,
    bytes: usize,
    charge: Charge,
    is_closed: bool,
}

impl Letters {
    /// Appends a letter if there is room for it.
    fn push(&mut self, post: &Post, letter: Letter) -> bool {
        let bytes = self.bytes + letter.bytes();
        let is_always_taken = self.queue.is_empty() || bytes <= ALWAYS_BYTES;
        if bytes > post.mailbox_bytes_max() && !is_always_taken {
            return false;
        }
        if let Some(buffers) = &post.buffers
            && bytes as u64 > self.charge.bytes()
        {
            let more = CHARGE_STEP_BYTES.max(letter.bytes() as u64);
            if !self.charge.try_grow(buffers, more) {
                if !is_always_taken {
                    return false;
                }
                // The text is there once, for all who hear it.
                self.charge.grow(buffers, more.min(ALWAYS_BYTES as u64));
            }
        }
        self.bytes = bytes;
        self.queue.push_back(letter);
        true
    }

    /// Moves letters to `out` until it has about `bytes_max` bytes. Keys of a group are told together.
    fn compose(&mut self, version: Version, is_subscriber: bool, bytes_max: usize, out: &mut Vec<u8>) {
        let mut groups: BTreeMap<u32, Vec<Arc<[u8]>>> = BTreeMap::new();
        let mut bytes_of_groups = 0;
        // With RESP2 a connection hears of changes for another one, as messages of a channel.
        let hears = |for_another: bool| version == Version::Resp3 || is_subscriber && for_another;
        while out.len() + bytes_of_groups < bytes_max
            && let Some(letter) = self.queue.pop_front()
        {
            self.bytes = self.bytes.saturating_sub(letter.bytes());
            match letter {
                Letter::Changed { for_another, .. } | Letter::AllChanged { for_another }
                    if !hears(for_another) => {}
                Letter::Changed { group: READ, key, .. } => compose_changes(out, version, Some(&[key])),
                Letter::Changed { group, key, .. } => {
                    bytes_of_groups += KEY_HEAD_BYTES + key.len();
                    groups.entry(group).or_default().push(key);
                }
                Letter::AllChanged { .. } => compose_changes(out, version, None),
                Letter::Broken(client) => {
                    if version == Version::Resp3 {
                        words::push_head(out, version, 2);
                        words::bulk(out, b"tracking-redir-broken");
                        words::integer(out, client as i64);
                    }
                }
                Letter::Message(message) => {
                    out.push(if version == Version::Resp3 { b'>' } else { b'*' });
                    out.extend_from_slice(&message[1..]);
                }
            }
        }
        groups.values().for_each(|keys| compose_changes(out, version, Some(keys)));
    }

    /// One letter says that all keys have changed, instead of any that say which.
    fn forget_changes(&mut self, for_another: bool) {
        let is_for_another = |letter: &Letter| match letter {
            Letter::Changed { for_another, .. } | Letter::AllChanged { for_another } => *for_another,
            _ => false,
        };
        let for_another = for_another || self.queue.iter().any(is_for_another);
        self.queue.retain(|letter| !letter.is_change());
        self.queue.push_back(Letter::AllChanged { for_another });
        self.bytes = self.queue.iter().map(Letter::bytes).sum();
    }
}

/// The mailbox of one connection.
pub(in crate::dispatch) struct Mailbox {
    worker: usize,
    id: ConnectionId,
    /// There are letters, and the worker knows.
    has_letters: AtomicBool,
    /// What they take, in the account of connection buffers.
    held_bytes: AtomicU64,
    letters: Mutex<Letters>,
}

impl Mailbox {
    pub(super) fn new(worker: usize, id: ConnectionId) -> Mailbox {
        Mailbox {
            worker,
            id,
            has_letters: AtomicBool::new(false),
            held_bytes: AtomicU64::new(0),
            letters: Mutex::default(),
        }
    }

    fn letters(&self) -> MutexGuard<'_, Letters> {
        self.letters.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Changes the letters, and wakes the connection if there are any now. `None` = the connection is gone.
    fn put<T>(&self, post: &Post, put: impl FnOnce(&mut Letters) -> T) -> Option<T> {
        let mut letters = self.letters();
        if letters.is_closed {
            return None;
        }
        let done = put(&mut letters);
        self.held_bytes.store(letters.charge.bytes(), Ordering::Relaxed);
        // Under the lock, as where letters are taken: so the count stays right.
        let is_news = !letters.queue.is_empty() && !self.has_letters.swap(true, Ordering::Relaxed);
        if is_news {
            post.waiting[self.worker].fetch_add(1, Ordering::Relaxed);
        }
        drop(letters);
        if is_news {
            post.news.tell(self.worker, self.id);
        }
        Some(done)
    }

    /// Tells of a changed key, of those that another connection tracks or of its own. `false` = the connection is gone.
    pub(super) fn tell_change(&self, post: &Post, group: u32, key: &Arc<[u8]>, for_another: bool) -> bool {
        let told = self.put(post, |letters| {
            let is_known = match letters.queue.back() {
                Some(Letter::AllChanged { for_another: known }) => *known || !for_another,
                _ => false,
            };
            if !is_known && !letters.push(post, Letter::Changed { group, key: key.clone(), for_another }) {
                letters.forget_changes(for_another);
            }
        });
        told.is_some()
    }

    /// Tells that all keys may have changed. `false` = the connection is gone.
    pub(super) fn tell_all_changed(&self, post: &Post, for_another: bool) -> bool {
        self.put(post, |letters| letters.forget_changes(for_another)).is_some()
    }

    /// Tells that the connection of this number, which was to hear of changed keys, is gone.
    pub(super) fn tell_broken(&self, post: &Post, client: u64) {
        self.put(post, |letters| letters.push(post, Letter::Broken(client)));
    }

    /// Sends a message, composed for RESP2. `false` = there is no room for it. Who is gone gets none.
    pub(super) fn send(&self, post: &Post, message: &Arc<[u8]>) -> bool {
        let sent = self.put(post, |letters| {
            let push = |letters: &mut Letters| letters.push(post, Letter::Message(message.clone()));
            if push(letters) {
                return true;
            }
            let has_changes = letters.queue.iter().any(Letter::is_change);
            if has_changes {
                letters.forget_changes(false);
            }
            has_changes && push(letters)
        });
        sent.unwrap_or(true)
    }

    /// What the letters take, in the account of connection buffers.
    pub(super) fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// Whether there are letters.
    #[inline]
    pub(super) fn has_letters(&self) -> bool {
        self.has_letters.load(Ordering::Relaxed)
    }

    /// Moves letters to `out` until it has about `bytes_max` bytes. `version` = that of the connection;
    /// `is_subscriber`: it has subscribed to something.
    pub(super) fn take(
        &self,
        post: &Post,
        version: Version,
        is_subscriber: bool,
        bytes_max: usize,
        out: &mut Vec<u8>,
    ) {
        let mut letters = self.letters();
        // Until there is nothing left, or the connection is served again because its output is full.
        while !letters.queue.is_empty() && out.len() < bytes_max {
            letters.compose(version, is_subscriber, bytes_max, out);
        }
        if letters.queue.is_empty() {
            self.forget_all(post, &mut letters);
        }
    }

    /// Throws the messages of channels away.
    pub(super) fn forget_messages(&self, post: &Post) {
        let mut letters = self.letters();
        letters.queue.retain(|letter| !matches!(letter, Letter::Message(_)));
        letters.bytes = letters.queue.iter().map(Letter::bytes).sum();
        if letters.queue.is_empty() {
            self.forget_all(post, &mut letters);
        }
    }

    /// Throws all letters away.
    pub(super) fn clear(&self, post: &Post) {
        self.forget_all(post, &mut self.letters());
    }

    /// The connection is gone, and gets no more letters.
    pub(super) fn close(&self, post: &Post) {
        let mut letters = self.letters();
        self.forget_all(post, &mut letters);
        letters.is_closed = true;
    }

    fn forget_all(&self, post: &Post, letters: &mut Letters) {
        *letters = Letters { is_closed: letters.is_closed, ..Letters::default() };
        self.held_bytes.store(0, Ordering::Relaxed);
        if self.has_letters.swap(false, Ordering::Relaxed) {
            post.waiting[self.worker].fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Tells of changed keys; `None` = of all.
fn compose_changes(out: &mut Vec<u8>, version: Version, keys: Option<&[Arc<[u8]>]>) {
    match version {
        Version::Resp3 => {
            words::push_head(out, version, 2);
            words::bulk(out, b"invalidate");
        }
        Version::Resp2 => {
            words::push_head(out, version, 3);
            words::bulk(out, b"message");
            words::bulk(out, CHANGES_CHANNEL);
        }
    }
    match keys {
        Some(keys) => {
            words::array_head(out, keys.len());
            keys.iter().for_each(|key| words::bulk(out, key));
        }
        None => words::null(out, version),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn post() -> Post {
        let buffers = Arc::new(Buffers::new(1 << 20));
        Post::new(1, Arc::new(News::new(1, None)), Some(buffers))
    }

    fn taken(post: &Post, mailbox: &Mailbox, version: Version, is_subscriber: bool) -> String {
        let mut out = Vec::new();
        mailbox.take(post, version, is_subscriber, usize::MAX, &mut out);
        String::from_utf8(out).expect("ASCII").replace("\r\n", " ")
    }

    fn text(text: &str) -> Arc<[u8]> {
        text.as_bytes().into()
    }

    #[test]
    fn letters_are_told_in_each_version_and_their_memory_comes_back() {
        use Version::{Resp2, Resp3};
        let (post, id) = (post(), ConnectionId::of(3, 4));
        let mailbox = Mailbox::new(0, id);
        let fill = || {
            mailbox.tell_change(&post, READ, &text("a"), true);
            mailbox.tell_change(&post, 7, &text("b"), true);
            mailbox.send(&post, &text("*1\r\n$2\r\nhi\r\n"));
            mailbox.tell_change(&post, 7, &text("c"), true);
            mailbox.tell_change(&post, READ, &text("d"), false);
            mailbox.tell_broken(&post, 9);
        };
        fill();
        assert!(mailbox.has_letters() && post.has_letters(0));
        let mut news = Vec::new();
        post.news.take(0, &mut news);
        assert_eq!(news, [id], "it is woken once");
        assert_eq!(
            taken(&post, &mailbox, Resp3, false),
            ">2 $10 invalidate *1 $1 a >1 $2 hi >2 $10 invalidate *1 $1 d >2 $21 tracking-redir-broken :9 \
             >2 $10 invalidate *2 $1 b $1 c "
        );
        assert!(!mailbox.has_letters() && !post.has_letters(0));
        assert_eq!(post.buffers.as_ref().unwrap().used_bytes(), 0);
        fill();
        let changed = "*3 $7 message $20 __redis__:invalidate";
        assert_eq!(
            taken(&post, &mailbox, Resp2, true),
            format!("{changed} *1 $1 a *1 $2 hi {changed} *2 $1 b $1 c ")
        );
        fill();
        assert_eq!(taken(&post, &mailbox, Resp2, false), "*1 $2 hi ");
        fill();
        mailbox.close(&post);
        assert!(!mailbox.tell_change(&post, READ, &text("a"), false) && !post.has_letters(0));
        assert_eq!(post.buffers.as_ref().unwrap().used_bytes(), 0);
    }

    #[test]
    fn letters_that_are_left_fill_the_output() {
        let (post, mailbox) = (post(), Mailbox::new(0, ConnectionId::of(0, 0)));
        (0..1000).for_each(|number| _ = mailbox.tell_change(&post, 7, &text(&format!("key{number}")), false));
        let (mut told, mut turns) = (0, 0);
        while mailbox.has_letters() {
            let mut out = Vec::new();
            mailbox.take(&post, Version::Resp3, false, 4096, &mut out);
            told += String::from_utf8_lossy(&out).matches("key").count();
            turns += 1;
            assert!(
                out.len() >= 4096 || !mailbox.has_letters(),
                "{} bytes: nobody would come back",
                out.len()
            );
        }
        assert!(told == 1000 && turns > 2, "{told} keys in {turns} turns");
    }

    #[test]
    fn what_does_not_fit_is_told_as_all_or_refused() {
        let post = post();
        let mailbox = Mailbox::new(0, ConnectionId::of(0, 0));
        assert!(mailbox.send(&post, &text("*0\r\n")));
        let key: Arc<[u8]> = vec![b'k'; 1000].into();
        (0..100).for_each(|_| assert!(mailbox.tell_change(&post, READ, &key, false)));
        assert_eq!(taken(&post, &mailbox, Version::Resp3, false), ">0 >2 $10 invalidate _ ");
        assert!(mailbox.tell_change(&post, READ, &key, false));
        let sent = (0..100).filter(|_| mailbox.send(&post, &key)).count();
        assert!((50..65).contains(&sent), "{sent}");
        assert!(
            mailbox.tell_change(&post, READ, &key, false),
            "where there is no room for a key, all have changed"
        );
        assert!(mailbox.held_bytes() > 50_000);
        mailbox.clear(&post);
        // Whoever has taken the memory: one letter is taken, and a few short ones.
        let buffers = post.buffers.as_ref().unwrap();
        buffers.take(1 << 20);
        let long: Arc<[u8]> = vec![b'x'; 100_000].into();
        assert!(mailbox.send(&post, &long) && !mailbox.send(&post, &text("*0\r\n")));
        mailbox.clear(&post);
        assert!((0..10).all(|_| mailbox.send(&post, &text("*0\r\n"))) && !mailbox.send(&post, &long));
        buffers.give(1 << 20);
        mailbox.close(&post);
        assert_eq!(post.buffers.as_ref().unwrap().used_bytes(), 0);
    }
}
