//! What the dispatchers of all workers share beside the cache.

use super::databases::Databases;
use super::fleet::{CurrentFleet, Fleet};
use super::prefixes::PrefixCounts;
use super::users::{Access, Rights, Users};
use super::watch::Watch;
use crate::flash::FlashDescription;
use crate::io::{Backend, Bells, Buffers, IoCounters, IoSnapshot, Limits, Registry};
use crate::latency::{Class, Histogram, WorkerLatency, total, total_fetches};
use crate::settings::{FleetSettings, Host, Settings, TlsSettings};
use crate::tls::Tls;
use larder_cache::{Cache, Totals};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Instant;

/// What to do on `shutdown`. The argument says whether requests in flight are waited for.
pub type ShutdownHook = Box<dyn Fn(bool) + Send + Sync>;

/// The drivers below the dispatchers. Tests run a dispatcher without drivers.
pub struct Drivers {
    /// The counters of all workers' sockets.
    pub counters: Arc<IoCounters>,
    /// The open connections.
    pub registry: Arc<Registry>,
    /// The account of connection buffers.
    pub buffers: Arc<Buffers>,
    /// The limits of connections.
    pub limits: Option<Limits>,
    /// What wakes the workers. Without it, watchers wait for the next second.
    pub bells: Option<Bells>,
    /// The system interface that moves the bytes.
    pub backend: Backend,
    /// The ports on which every connection speaks RESP.
    pub resp_ports: Vec<u16>,
    /// What encrypts connections, if anything does.
    pub tls: Option<Arc<Tls>>,
    /// Stops the server. Without it, `shutdown` is refused.
    pub on_shutdown: Option<ShutdownHook>,
}

/// The state of the whole server that any worker may read, and the few settings that a client may change.
pub struct ServerState {
    settings: Settings,
    in_effect: RwLock<Arc<Settings>>,
    /// Held while settings change.
    settings_change: Mutex<()>,
    host: Option<Arc<dyn Host>>,
    drivers: Option<Drivers>,
    flash: Option<FlashDescription>,
    users: RwLock<Option<Users>>,
    prefixes: PrefixCounts,
    places: Places,
    watch: Arc<Watch>,
    verbosity: AtomicU8,
    counts: Counts,
    /// The times of each worker's requests.
    latencies: Mutex<Vec<Arc<WorkerLatency>>>,
    started: Instant,
}

/// Where keys are.
struct Places {
    /// The servers among which they are shared out.
    fleet: CurrentFleet,
    databases: Databases,
}

/// What is counted beside what the cache counts.
#[derive(Default)]
struct Counts {
    /// The cache's totals at the last `stats reset`.
    totals_at_reset: RwLock<Totals>,
    /// How often connections had more requests than `-R` allows in one go.
    yields: AtomicU64,
}

impl ServerState {
    /// The state of a server that starts now.
    pub fn new(
        settings: Settings,
        users: Option<Users>,
        drivers: Option<Drivers>,
        flash: Option<FlashDescription>,
        host: Option<Arc<dyn Host>>,
    ) -> ServerState {
        let (bells, buffers) = drivers
            .as_ref()
            .map_or((None, None), |drivers| (drivers.bells.clone(), Some(drivers.buffers.clone())));
        ServerState {
            places: Places {
                fleet: CurrentFleet::new(settings.fleet.as_ref().map(Fleet::new)),
                databases: Databases::new(&settings),
            },
            watch: Arc::new(Watch::new(settings.threads as usize, bells, buffers)),
            drivers,
            flash,
            users: RwLock::new(users),
            prefixes: PrefixCounts::new(settings.detail_enabled, settings.prefix_delimiter),
            verbosity: AtomicU8::new(settings.verbosity),
            counts: Counts::default(),
            latencies: Mutex::default(),
            started: Instant::now(),
            in_effect: RwLock::new(Arc::new(settings.clone())),
            settings_change: Mutex::default(),
            host,
            settings,
        }
    }

    /// A worker counts the times of its requests here.
    pub(super) fn add_latency(&self, latency: Arc<WorkerLatency>) {
        self.latencies.lock().expect("no panic under this lock").push(latency);
    }

    /// The times of the requests of one class, of all workers together.
    pub(super) fn latency_of(&self, class: Class) -> Histogram {
        total(self.latencies.lock().expect("no panic under this lock").iter().map(|one| &**one), class)
    }

    /// The times of reads from flash, of all workers together.
    pub(super) fn latency_of_fetches(&self) -> Histogram {
        total_fetches(self.latencies.lock().expect("no panic under this lock").iter().map(|one| &**one))
    }

    /// The settings that the server was started with.
    #[inline]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The settings that are in effect: those of the start, with what was changed since. Not for the path of requests.
    pub fn in_effect(&self) -> Arc<Settings> {
        self.in_effect.read().expect("no panic under this lock").clone()
    }

    /// Changes the settings that are in effect, one change after another. `change` may take long, as where names of
    /// hosts are looked up: until it ends, whoever asks has the settings from before.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Settings) -> T) -> T {
        let _one_at_a_time = self.settings_change.lock().expect("no panic under this lock");
        let mut settings = Settings::clone(&self.in_effect());
        let changed = change(&mut settings);
        *self.in_effect.write().expect("no panic under this lock") = Arc::new(settings);
        changed
    }

    /// The program around the server, where there is one.
    pub(super) fn host(&self) -> Option<&dyn Host> {
        self.host.as_deref()
    }

    pub(super) fn drivers(&self) -> Option<&Drivers> {
        self.drivers.as_ref()
    }

    /// What does not change about the flash tier, where there is one.
    pub(super) fn flash(&self) -> Option<&FlashDescription> {
        self.flash.as_ref()
    }

    #[inline]
    pub(super) fn prefixes(&self) -> &PrefixCounts {
        &self.prefixes
    }

    /// What all workers share of watching.
    #[inline]
    pub(crate) fn watch(&self) -> &Arc<Watch> {
        &self.watch
    }

    /// The fleet that the server is part of.
    #[inline]
    pub(super) fn fleet(&self) -> &CurrentFleet {
        &self.places.fleet
    }

    /// SIGHUP: the server is part of another fleet, or of none. `last_cas` = the highest CAS number so far.
    pub fn set_fleet(&self, fleet: Option<&FleetSettings>, last_cas: u64) {
        let before = self.places.fleet.get();
        self.places.fleet.set(fleet.map(|fleet| Fleet::after(before.as_deref(), fleet, last_cas)));
    }

    /// The account of connection buffers.
    pub(super) fn buffers(&self) -> Option<&Arc<Buffers>> {
        self.drivers.as_ref().map(|drivers| &drivers.buffers)
    }

    /// Whether connections hold more than half of what their buffers may take.
    pub(super) fn buffers_are_tight(&self) -> bool {
        self.buffers().is_some_and(|buffers| buffers.used_bytes() * 2 > buffers.limit_bytes())
    }

    /// The drivers' counters now. All are zero without drivers.
    pub(crate) fn io_snapshot(&self) -> IoSnapshot {
        self.drivers.as_ref().map(|drivers| drivers.counters.snapshot()).unwrap_or_default()
    }

    /// The drivers' clock, in seconds: it reads 2 when the server starts.
    pub(super) fn io_now_s(&self) -> u32 {
        2 + self.started.elapsed().as_secs() as u32
    }

    pub(super) fn verbosity(&self) -> u8 {
        self.verbosity.load(Ordering::Relaxed)
    }

    pub(super) fn set_verbosity(&self, level: u8) {
        self.verbosity.store(level, Ordering::Relaxed);
        if let Some(host) = &self.host {
            host.set_verbosity(level);
        }
    }

    /// The cache's totals at the last `stats reset`.
    pub(super) fn totals_at_reset(&self) -> Totals {
        self.counts.totals_at_reset.read().expect("no panic under this lock").clone()
    }

    /// A connection had more requests than are answered in one go, `times` times over.
    pub(super) fn count_yields(&self, times: usize) {
        self.counts.yields.fetch_add(times as u64, Ordering::Relaxed);
    }

    /// How often connections had more requests than `-R` allows in one go.
    pub(super) fn yields(&self) -> u64 {
        self.counts.yields.load(Ordering::Relaxed)
    }

    /// What clients of RESP choose with `SELECT`.
    #[inline]
    pub(super) fn databases(&self) -> &Databases {
        &self.places.databases
    }

    /// Finds the databases as an earlier process has left them.
    pub(crate) fn open_databases(&self, cache: &Cache) {
        self.places.databases.open(cache);
    }

    /// `stats reset`: counts are shown from `totals` on.
    pub(super) fn reset_counts(&self, totals: Totals) {
        *self.counts.totals_at_reset.write().expect("no panic under this lock") = totals;
        self.prefixes.clear();
        self.watch.reset_counts();
        self.counts.yields.store(0, Ordering::Relaxed);
        if let Some(drivers) = &self.drivers {
            drivers.counters.reset();
        }
    }

    /// What a client may do that has not logged in. `None` = it has to log in.
    pub(super) fn access_without_login(&self) -> Option<Access> {
        self.users.read().expect("no panic under this lock").is_none().then_some(Access::Full)
    }

    /// What a client that has not logged in may do, and with which keys.
    pub(super) fn rights_without_login(&self) -> Option<Rights> {
        self.access_without_login().map(|access| Rights { access, keys: None })
    }

    /// Whether there are users who can log in.
    pub(super) fn has_users(&self) -> bool {
        self.access_without_login().is_none()
    }

    /// Whether there is a user of this name.
    pub(super) fn has_user(&self, name: &[u8]) -> bool {
        let users = self.users.read().expect("no panic under this lock");
        users.as_ref().is_some_and(|users| users.has(name))
    }

    /// What the user may do, if this is its password. Without a file of users every client may do everything.
    pub(super) fn admit(&self, name: &[u8], password: &[u8]) -> Option<Rights> {
        let users = self.users.read().expect("no panic under this lock");
        match &*users {
            Some(users) => users.admit(name, password),
            None => Some(Rights { access: Access::Full, keys: None }),
        }
    }

    /// SIGHUP: reads the file of users and the certificates again. Files that cannot be read change nothing.
    pub fn reload_files(&self) {
        self.reload_users();
        match self.refresh_certificates() {
            Some(Ok(())) => {
                tracing::info!(target: "larder::start", "SIGHUP: the certificates were read again")
            }
            Some(Err(error)) => tracing::warn!("SIGHUP: the certificates stay as they were: {error}"),
            None => {}
        }
    }

    /// Reads the certificates again. `None` = nothing is encrypted. The error is one line; nothing has changed then.
    pub(super) fn refresh_certificates(&self) -> Option<Result<(), String>> {
        self.load_certificates(&self.in_effect().tls)
    }

    /// Reads the certificates that these settings name, as [`ServerState::refresh_certificates`] does.
    pub(super) fn load_certificates(&self, settings: &TlsSettings) -> Option<Result<(), String>> {
        self.drivers.as_ref()?.tls.as_ref().map(|tls| tls.reload(settings))
    }

    /// Seconds since the certificates were read; `None` = nothing is encrypted.
    pub(super) fn certificates_age_s(&self) -> Option<u64> {
        self.drivers.as_ref()?.tls.as_ref().map(|tls| tls.refreshed_s())
    }

    fn reload_users(&self) {
        let settings = self.in_effect();
        match (self.read_users(&settings), &settings.auth_file) {
            (Ok(()), Some(path)) => tracing::info!(
                target: "larder::start",
                "SIGHUP: the users of {} were read again",
                path.display()
            ),
            (Ok(()), None) => {}
            (Err(error), _) => tracing::warn!("SIGHUP: the users stay as they were: {error}"),
        }
    }

    /// Reads the file of users. Users and their namespaces are in effect in one step. The error is one line; nothing
    /// has changed then.
    pub(super) fn read_users(&self, settings: &Settings) -> Result<(), String> {
        let users = Users::of(settings)?;
        users.iter().for_each(Users::log_warnings);
        *self.users.write().expect("no panic under this lock") = users;
        Ok(())
    }
}
