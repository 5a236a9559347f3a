//! The connections that speak RESP, as `CLIENT LIST` shows them.

use super::mailbox::{Mailbox, Post};
use crate::io::{ConnectionId, Handle, Traffic};
use larder_protocol::resp::{Id, Version};
use std::collections::BTreeMap;
use std::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed,
};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// What is known of one connection, beyond its worker. Its worker writes it, and any may read it.
pub(in crate::dispatch) struct Client {
    pub(in crate::dispatch) id: u64,
    handle: Option<Handle>,
    began: Instant,
    /// Milliseconds after `began` at which the last command came.
    last_ms: AtomicU64,
    last_command: AtomicU16,
    commands: AtomicU64,
    is_resp3: AtomicBool,
    /// Commands queued in a transaction; -1 = there is none.
    queued: AtomicI64,
    watched: AtomicU32,
    database: AtomicU8,
    told: Mutex<Told>,
    /// The connection is to be closed before its next request.
    is_killed: AtomicBool,
    hears: Hears,
}

/// What others tell a connection.
struct Hears {
    worker: usize,
    id: ConnectionId,
    /// It is made for the first who wants to tell something.
    mailbox: OnceLock<Arc<Mailbox>>,
    /// How many channels, patterns and shard channels it has subscribed to.
    subscriptions: [AtomicU32; 3],
    /// The connection that hears of the keys that this one tracks; 0 = it does itself, -1 = it tracks none.
    redirect: AtomicI64,
    /// It hears of all keys with a prefix.
    is_broadcast: AtomicBool,
}

/// What the client has told about itself.
#[derive(Clone, Default)]
pub(in crate::dispatch) struct Told {
    pub(in crate::dispatch) name: Vec<u8>,
    pub(in crate::dispatch) library: Vec<u8>,
    pub(in crate::dispatch) library_version: Vec<u8>,
    pub(in crate::dispatch) user: Vec<u8>,
}

/// One connection, as it is shown.
pub(in crate::dispatch) struct ClientReport {
    pub(in crate::dispatch) id: u64,
    pub(in crate::dispatch) remote: String,
    pub(in crate::dispatch) local: String,
    pub(in crate::dispatch) fd: i32,
    pub(in crate::dispatch) traffic: Traffic,
    pub(in crate::dispatch) told: Told,
    pub(in crate::dispatch) age_s: u64,
    pub(in crate::dispatch) idle_s: u64,
    /// Commands queued in a transaction; -1 = there is none.
    pub(in crate::dispatch) queued: i64,
    pub(in crate::dispatch) watched: u32,
    pub(in crate::dispatch) database: u8,
    pub(in crate::dispatch) commands: u64,
    /// The number of the last command, as an [`Id`].
    pub(in crate::dispatch) last_command: u16,
    pub(in crate::dispatch) version: u8,
    /// How many channels, patterns and shard channels it has subscribed to.
    pub(in crate::dispatch) subscriptions: [u32; 3],
    /// The connection that hears of the keys that this one tracks; 0 = it does itself, -1 = it tracks none.
    pub(in crate::dispatch) redirect: i64,
    pub(in crate::dispatch) is_broadcast: bool,
}

/// No command has come yet.
pub(in crate::dispatch) const NO_COMMAND: u16 = u16::MAX;

impl Client {
    fn new(id: u64, handle: Option<Handle>, worker: usize, connection: ConnectionId) -> Client {
        Client {
            id,
            handle,
            began: Instant::now(),
            last_ms: AtomicU64::new(0),
            last_command: AtomicU16::new(NO_COMMAND),
            commands: AtomicU64::new(0),
            is_resp3: AtomicBool::new(false),
            queued: AtomicI64::new(-1),
            watched: AtomicU32::new(0),
            database: AtomicU8::new(0),
            told: Mutex::new(Told { user: b"default".to_vec(), ..Told::default() }),
            is_killed: AtomicBool::new(false),
            hears: Hears {
                worker,
                id: connection,
                mailbox: OnceLock::new(),
                subscriptions: Default::default(),
                redirect: AtomicI64::new(-1),
                is_broadcast: AtomicBool::new(false),
            },
        }
    }

    /// Where others put what they tell the connection.
    pub(in crate::dispatch) fn mailbox(&self) -> &Arc<Mailbox> {
        self.hears.mailbox.get_or_init(|| Arc::new(Mailbox::new(self.hears.worker, self.hears.id)))
    }

    /// The same if it was made.
    #[inline]
    pub(in crate::dispatch) fn own_mailbox(&self) -> Option<&Arc<Mailbox>> {
        self.hears.mailbox.get()
    }

    pub(in crate::dispatch) fn set_subscriptions(&self, counts: [usize; 3]) {
        for (shown, count) in self.hears.subscriptions.iter().zip(counts) {
            shown.store(count as u32, Relaxed);
        }
    }

    /// The connection tracks keys for this one; `None` = it tracks none.
    pub(in crate::dispatch) fn set_tracking(&self, redirect: Option<u64>, is_broadcast: bool) {
        self.hears.redirect.store(redirect.map_or(-1, |client| client as i64), Relaxed);
        self.hears.is_broadcast.store(is_broadcast, Relaxed);
    }

    pub(in crate::dispatch) fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(in crate::dispatch) fn forget_name(&self) {
        let mut told = self.told();
        told.name.clear();
        told.user = b"default".to_vec();
    }

    /// At the end of a turn in which `commands` were executed, the last of which was `last`.
    pub(in crate::dispatch) fn note(&self, now: Instant, last: Id, commands: u64) {
        self.last_ms.store(now.saturating_duration_since(self.began).as_millis() as u64, Relaxed);
        self.last_command.store(last as u16, Relaxed);
        self.commands.store(self.commands.load(Relaxed) + commands, Relaxed);
    }

    pub(in crate::dispatch) fn set_state(&self, version: Version, queued: Option<usize>, watched: usize) {
        self.is_resp3.store(version == Version::Resp3, Relaxed);
        self.queued.store(queued.map_or(-1, |queued| queued as i64), Relaxed);
        self.watched.store(watched as u32, Relaxed);
    }

    pub(in crate::dispatch) fn set_database(&self, database: u8) {
        self.database.store(database, Relaxed);
    }

    #[inline]
    pub(in crate::dispatch) fn is_killed(&self) -> bool {
        self.is_killed.load(Relaxed)
    }

    /// Closes the connection. `is_own` = it asks for that itself, and is answered first. It hears of nothing from now
    /// on, though its worker may not have closed it yet.
    pub(in crate::dispatch) fn kill(&self, is_own: bool, post: &Post) {
        self.is_killed.store(true, Relaxed);
        self.mailbox().close(post);
        if let (false, Some(handle)) = (is_own, &self.handle) {
            handle.shut_down();
        }
    }

    /// What is known of the connection now.
    pub(in crate::dispatch) fn report(&self) -> ClientReport {
        let address = |text: String| match text.split_once(':') {
            Some((_, address)) => address.to_owned(),
            None => text,
        };
        let age = self.began.elapsed();
        ClientReport {
            id: self.id,
            remote: self.handle.as_ref().map_or(String::new(), |handle| address(handle.remote())),
            local: self.handle.as_ref().map_or(String::new(), |handle| address(handle.local())),
            fd: self.handle.as_ref().map_or(-1, Handle::fd),
            traffic: self.handle.as_ref().map(Handle::traffic).unwrap_or_default(),
            told: self.told().clone(),
            age_s: age.as_secs(),
            idle_s: (age.as_millis() as u64).saturating_sub(self.last_ms.load(Relaxed)) / 1000,
            queued: self.queued.load(Relaxed),
            watched: self.watched.load(Relaxed),
            database: self.database.load(Relaxed),
            commands: self.commands.load(Relaxed),
            last_command: self.last_command.load(Relaxed),
            version: if self.is_resp3.load(Relaxed) { 3 } else { 2 },
            subscriptions: self.hears.subscriptions.each_ref().map(|count| count.load(Relaxed)),
            redirect: self.hears.redirect.load(Relaxed),
            is_broadcast: self.hears.is_broadcast.load(Relaxed),
        }
    }
}

/// All connections that speak RESP.
#[derive(Default)]
pub(in crate::dispatch) struct Clients {
    last_id: AtomicU64,
    all: Mutex<BTreeMap<u64, Arc<Client>>>,
}

impl Clients {
    fn all(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Client>>> {
        self.all.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// A connection begins to speak RESP.
    pub(in crate::dispatch) fn add(
        &self,
        handle: Option<Handle>,
        worker: usize,
        connection: ConnectionId,
    ) -> Arc<Client> {
        let id = self.last_id.fetch_add(1, Relaxed) + 1;
        let client = Arc::new(Client::new(id, handle, worker, connection));
        self.all().insert(client.id, client.clone());
        client
    }

    /// A connection is gone.
    pub(in crate::dispatch) fn remove(&self, client: &Client) {
        self.all().remove(&client.id);
    }

    /// All of them, by number.
    pub(in crate::dispatch) fn list(&self) -> Vec<Arc<Client>> {
        self.all().values().cloned().collect()
    }

    /// The one of this number, unless it was killed.
    pub(in crate::dispatch) fn find(&self, id: u64) -> Option<Arc<Client>> {
        self.all().get(&id).filter(|client| !client.is_killed()).cloned()
    }

    pub(in crate::dispatch) fn count(&self) -> usize {
        self.all().len()
    }
}

/// The unix time in seconds.
pub(in crate::dispatch) fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
