//! Channels: who hears what is published (`PUBLISH`, `SUBSCRIBE`).
//!
//! A message is composed once, and put into the mailboxes of those who have subscribed to its channel, or to a pattern
//! of channels. Nobody waits for anybody: who does not take its messages is told no more of them, and is closed.
//! Channels know no databases. Those of a user with a namespace are the user's own: their names begin with it here, and
//! no client sees that.

use super::clients::Client;
use super::errors::{self, Error};
use super::glob::Pattern;
use super::mailbox::Post;
use larder_protocol::resp::{Version, compose as words};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

/// The most patterns of all connections: each is compared with the channel of every message.
const PATTERNS_MAX: usize = 4096;

/// What a connection subscribes to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Kind {
    /// A channel.
    Channel,
    /// All channels whose names match a pattern.
    Pattern,
    /// A channel of one server of a fleet.
    Shard,
}

impl Kind {
    pub(super) const ALL: [Kind; 3] = [Kind::Channel, Kind::Pattern, Kind::Shard];

    /// The word for a message.
    fn message(self) -> &'static [u8] {
        match self {
            Kind::Channel => b"message",
            Kind::Pattern => b"pmessage",
            Kind::Shard => b"smessage",
        }
    }
}

/// A connection that hears of something.
struct Hearer {
    client: Arc<Client>,
    /// Bytes before the names of its channels that it does not see.
    hidden: usize,
}

/// Those who hear of one channel, or of one pattern, by their numbers.
#[derive(Default)]
struct Hearers {
    all: BTreeMap<u64, Hearer>,
    /// Of a pattern: what its channels begin with, and the rest of their names.
    pattern: Option<(Box<[u8]>, Pattern)>,
}

/// By which name it is listed who hears of a channel or of a pattern. Patterns of two namespaces have two names, though
/// one behind the other they may read alike.
fn name_of(kind: Kind, namespace: &[u8], name: &[u8]) -> Box<[u8]> {
    let mark = (namespace.len() as u32).to_le_bytes();
    [if kind == Kind::Pattern { &mark[..] } else { &[] }, namespace, name].concat().into()
}

/// For each [`Kind`], who hears of what, by name.
type Rooms = [HashMap<Box<[u8]>, Hearers>; 3];

impl Hearers {
    /// Those that are there. One that is killed is gone, though its worker may not have closed it yet.
    fn present(&self) -> impl Iterator<Item = &Hearer> {
        self.all.values().filter(|hearer| !hearer.client.is_killed())
    }

    /// Sends a message to all. Those who do not take theirs are listed in `slow`.
    fn send(
        &self,
        post: &Post,
        kind: Kind,
        (pattern, channel): (Option<&[u8]>, &[u8]),
        payload: &[u8],
        slow: &mut Vec<Arc<Client>>,
    ) -> i64 {
        let mut composed: Option<(usize, Arc<[u8]>)> = None;
        let mut count = 0;
        for Hearer { client, hidden } in self.present() {
            count += 1;
            let of_others = composed.take_if(|(other, _)| other == hidden);
            let (_, message) = composed.insert(of_others.unwrap_or_else(|| {
                let mut out = Vec::new();
                words::push_head(&mut out, Version::Resp2, 3 + usize::from(pattern.is_some()));
                words::bulk(&mut out, kind.message());
                pattern.iter().for_each(|pattern| words::bulk(&mut out, pattern));
                words::bulk(&mut out, &channel[*hidden..]);
                words::bulk(&mut out, payload);
                (*hidden, out.into())
            }));
            if !client.mailbox().send(post, message) {
                slow.push(client.clone());
            }
        }
        count
    }
}

/// The channels of a server.
#[derive(Default)]
pub(in crate::dispatch) struct Channels {
    rooms: Mutex<Rooms>,
    /// Connections that were closed because they did not take their messages.
    dropped: AtomicU64,
}

impl Channels {
    fn rooms(&self) -> MutexGuard<'_, Rooms> {
        self.rooms.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// A connection hears of a channel, or of those of a pattern. `namespace` = what the names of its channels begin
    /// with.
    ///
    /// # Errors
    /// The pattern is too long, or there are as many as may be.
    pub(super) fn add(
        &self,
        kind: Kind,
        namespace: &[u8],
        name: &[u8],
        client: &Arc<Client>,
    ) -> Result<(), Error> {
        let mut read = None;
        if kind == Kind::Pattern {
            read = Some(Pattern::read(name).ok_or(errors::PATTERN_TOO_LONG)?);
        }
        let mut rooms = self.rooms();
        if kind == Kind::Pattern && rooms[kind as usize].len() >= PATTERNS_MAX {
            return Err(errors::TOO_MANY_PATTERNS);
        }
        let hearers = rooms[kind as usize].entry(name_of(kind, namespace, name)).or_insert_with(|| Hearers {
            all: BTreeMap::new(),
            pattern: read.map(|pattern| (namespace.into(), pattern)),
        });
        hearers.all.insert(client.id, Hearer { client: client.clone(), hidden: namespace.len() });
        Ok(())
    }

    /// A connection does not hear of it any more.
    pub(super) fn remove(&self, kind: Kind, namespace: &[u8], name: &[u8], client: &Arc<Client>) {
        let mut rooms = self.rooms();
        let (room, name) = (&mut rooms[kind as usize], name_of(kind, namespace, name));
        let Some(hearers) = room.get_mut(&name[..]) else { return };
        hearers.all.remove(&client.id);
        if hearers.all.is_empty() {
            room.remove(&name[..]);
        }
    }

    /// Publishes a message. Returns how many hear it. `kind`: [`Kind::Channel`] or [`Kind::Shard`].
    pub(super) fn publish(&self, post: &Post, kind: Kind, channel: &[u8], payload: &[u8]) -> i64 {
        let rooms = self.rooms();
        let (mut count, mut slow) = (0, Vec::new());
        if let Some(hearers) = rooms[kind as usize].get(channel) {
            count += hearers.send(post, kind, (None, channel), payload, &mut slow);
        }
        if kind == Kind::Channel {
            for (name, hearers) in &rooms[Kind::Pattern as usize] {
                let Some((namespace, pattern)) = &hearers.pattern else { continue };
                if channel.strip_prefix(&**namespace).is_some_and(|rest| pattern.matches(rest)) {
                    let name = &name[size_of::<u32>() + namespace.len()..];
                    count += hearers.send(post, Kind::Pattern, (Some(name), channel), payload, &mut slow);
                }
            }
        }
        drop(rooms);
        for client in slow {
            self.dropped.fetch_add(1, Relaxed);
            tracing::warn!(
                "client {} is closed: it takes its messages too slowly, and the memory for them (a 16th of that for \
                 connection buffers) is full",
                client.id
            );
            client.kill(false, post);
        }
        count
    }

    /// How many hear of a channel.
    pub(super) fn hearers(&self, kind: Kind, name: &[u8]) -> usize {
        self.rooms()[kind as usize].get(name).map_or(0, |hearers| hearers.present().count())
    }

    /// The channels that somebody hears of, without what they begin with; only of those that begin so.
    pub(super) fn names(&self, kind: Kind, namespace: &[u8], wanted: Option<&Pattern>) -> Vec<Box<[u8]>> {
        let rooms = self.rooms();
        let heard = rooms[kind as usize].iter().filter(|(_, hearers)| hearers.present().next().is_some());
        let own = heard.filter_map(|(name, _)| name.strip_prefix(namespace));
        own.filter(|name| wanted.is_none_or(|wanted| wanted.matches(name))).map(Into::into).collect()
    }

    /// How many patterns somebody hears of, of a namespace or of all.
    pub(super) fn patterns(&self, namespace: &[u8]) -> usize {
        let rooms = self.rooms();
        let of_namespace = |hearers: &&Hearers| {
            let is_its = hearers.pattern.as_ref().is_some_and(|(own, _)| own.starts_with(namespace));
            is_its && hearers.present().next().is_some()
        };
        rooms[Kind::Pattern as usize].values().filter(of_namespace).count()
    }

    /// How many different channels, patterns and shard channels there are, and how many connections were closed.
    pub(in crate::dispatch) fn counts(&self) -> ([usize; 3], u64) {
        (self.rooms().each_ref().map(HashMap::len), self.dropped.load(Relaxed))
    }
}
