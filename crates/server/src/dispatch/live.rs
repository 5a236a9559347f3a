//! Every setting, by the name that the settings file gives it: how its value is written, and what becomes of a new
//! value while the server runs. The table [`SETTINGS`] decides that. SIGHUP, `CONFIG SET` and `larder check-config`
//! read it.

use super::state::ServerState;
use crate::io::Buffers;
use crate::settings::{
    Address, FlashDevice, FleetSettings, KeyFormat, ListenerTls, LogFormat, PinCpus, Protocol, Settings,
    UserNamespace, VerifyMode, ops_name, reclaim_name, recover_name,
};
use larder_cache::{Cache, Namespace};
use std::path::PathBuf;

/// One setting.
pub struct Setting {
    /// Its name: that of the long flag, `flash.tuning.KEY` for a key of that table, or `fleet`.
    pub name: &'static str,
    /// Its value as it would be written after the flag; empty if there is none.
    pub text: fn(&Settings) -> String,
    /// What becomes of a new value while the server runs.
    pub change: Change,
}

/// What becomes of a new value.
pub enum Change {
    /// It takes effect at once, whether the settings file or a client has it. The function puts it into effect, or says
    /// why that is not possible.
    Live(Apply),
    /// The same, but clients cannot change it: it says what clients may do, or names a file.
    ByFile(Apply),
    /// It takes effect at the next start, for this reason.
    AtStart(&'static str),
}

/// Puts the value of one setting of the second `Settings` into effect and into the first, which are those in effect.
pub type Apply = fn(&Running<'_>, &mut Settings, &Settings) -> Result<(), String>;

/// What a change reaches.
pub struct Running<'a> {
    /// What the workers share.
    pub state: &'a ServerState,
    /// The cache.
    pub cache: &'a Cache,
}

/// The program around the server. It knows where settings come from and how they are spelt.
pub trait Host: Send + Sync {
    /// The settings as flags, settings file and environment have them today.
    ///
    /// # Errors
    /// One line that says what is wrong with them.
    fn read_settings(&self) -> Result<Settings, String>;

    /// Sets one setting of the table by its name, to a value as it would be written after the flag.
    ///
    /// # Errors
    /// A description of a valid value.
    fn set(&self, settings: &mut Settings, name: &str, value: &str) -> Result<(), String>;

    /// Logs as much as this verbosity asks for, from now on.
    fn set_verbosity(&self, level: u8);

    /// Raises the limits of the process to what these settings need.
    ///
    /// # Errors
    /// One line that says what to do.
    fn raise_limits(&self, settings: &Settings) -> Result<(), String>;
}

const LISTENERS: Change = Change::AtStart("listeners are opened once");
const ARENA: Change = Change::AtStart("memory is laid out once");
const INDEX: Change = Change::AtStart("the index is laid out once");
const THREADS: Change = Change::AtStart("threads are started once");
const DEVICES: Change = Change::AtStart("flash is opened once");
const CONNECTIONS: Change = Change::AtStart("connections that are open rely on it");
const PROCESS: Change = Change::AtStart("the process is prepared once");

const fn row(name: &'static str, text: fn(&Settings) -> String, change: Change) -> Setting {
    Setting { name, text, change }
}

/// The table, in the order of the help.
#[rustfmt::skip] // A row reads as a line: its name, how its value is written, what becomes of a new one.
pub static SETTINGS: &[Setting] = &[
    row("port", |s| s.tcp_port.to_string(), LISTENERS),
    row("udp-port", |s| s.udp_port.to_string(), LISTENERS),
    row("resp-port", |s| s.resp_port.to_string(), LISTENERS),
    row("udp-reply-limit", |s| size(s.udp_reply_bytes_per_s), LISTENERS),
    row("listen", |s| list(&s.addresses, address), LISTENERS),
    row("unix-socket", |s| path(&s.unix_socket), LISTENERS),
    row("unix-mask", |s| format!("{:o}", s.unix_mask), LISTENERS),
    row("listen-backlog", |s| s.backlog.to_string(), LISTENERS),
    row("backend", |s| s.backend.to_string(), THREADS),
    row("admin", |s| s.admin.map_or("off".to_owned(), |admin| admin.at.to_string()), LISTENERS),
    row("admin-host", |s| s.admin_hosts.join(","), LISTENERS),

    row("memory-limit", |s| size(s.memory_bytes), Change::Live(memory_limit)),
    row("max-item-size", |s| size(s.item_bytes_max.into()), ARENA),
    row("disable-evictions", |s| (!s.evict).to_string(), ARENA),
    row("pages", |s| s.pages.to_string(), ARENA),
    row("temperature", |s| s.temperature.name().to_owned(), ARENA),
    row("worth", |s| s.worth.mode.name().to_owned(), Change::Live(|running, now, new| {
        now.worth.mode = new.worth.mode;
        running.cache.set_worth(now.worth);
        Ok(())
    })),
    row("objective", |s| s.worth.objective.name().to_owned(), Change::Live(|running, now, new| {
        now.worth.objective = new.worth.objective;
        running.cache.set_worth(now.worth);
        Ok(())
    })),
    row("namespaces", |s| list(&s.namespaces, namespace), Change::Live(|running, now, new| {
        running.cache.set_namespaces(&new.namespaces, now.prefix_delimiter)?;
        now.namespaces.clone_from(&new.namespaces);
        Ok(())
    })),
    row("user-namespaces", |s| list(&s.user_namespaces, user_namespace), Change::ByFile(|_, now, new| {
        now.user_namespaces.clone_from(&new.user_namespaces);
        Ok(())
    })),
    row("device", |s| s.device.to_string(), ARENA),
    row("device-managed-memory", |s| s.device.has_managed_memory().to_string(), ARENA),
    row("lock-memory", |s| s.lock_memory.to_string(), PROCESS),
    row("prefault", |s| s.prefault.to_string(), ARENA),
    row("keep", |s| path(&s.keep), ARENA),
    row("column-bytes", |s| maybe(s.column_bytes, |bytes| size(bytes.into())), ARENA),
    row("placement", |s| s.placement.name().to_owned(), ARENA),
    row("hashpower", |s| maybe(s.hashpower, |power| power.to_string()), INDEX),

    row("flash", |s| list(&s.flash.devices, device), DEVICES),
    row("flash-memory", |s| maybe(s.flash.memory_bytes, size), DEVICES),
    row("flash-recover", |s| recover_name(s.flash.recover).to_owned(), DEVICES),
    row("flash-admit", |s| s.flash.admit.to_string(), DEVICES),
    row("flash-write-budget", |s| size(s.flash.write_budget_bytes.unwrap_or(0)), Change::Live(|running, now, new| {
        running.cache.set_flash_write_budget(new.flash.write_budget_bytes);
        now.flash.write_budget_bytes = new.flash.write_budget_bytes;
        Ok(())
    })),

    row("conn-limit", |s| s.connections_max.to_string(), Change::Live(connections)),
    row("maxconns-fast", |s| s.maxconns_fast.to_string(), Change::Live(|_, now, new| {
        now.maxconns_fast = new.maxconns_fast;
        Ok(())
    })),
    row("address-conn-limit", |s| s.connections_per_address_max.to_string(), Change::Live(|_, now, new| {
        now.set_connections_per_address_max(new.connections_per_address_max);
        Ok(())
    })),
    row("read-buf-mem-limit", |s| maybe(s.buffers_bytes, size), ARENA),
    row("idle-timeout", |s| s.idle_timeout_s.to_string(), Change::Live(|_, now, new| {
        now.idle_timeout_s = new.idle_timeout_s;
        Ok(())
    })),
    row("threads", |s| s.threads.to_string(), THREADS),
    row("pin-cpus", |s| cpus(&s.pin_cpus), THREADS),
    row("numa", |s| if s.numa { "on" } else { "off" }.to_owned(), THREADS),
    row("max-reqs-per-event", |s| s.requests_per_event.to_string(), THREADS),

    row("protocol", |s| protocol(s.protocol).to_owned(), CONNECTIONS),
    row("disable-cas", |s| (!s.cas_enabled).to_string(), CONNECTIONS),
    row("disable-flush-all", |s| (!s.flush_enabled).to_string(), Change::ByFile(|_, now, new| {
        now.flush_enabled = new.flush_enabled;
        Ok(())
    })),
    row("disable-dumping", |s| (!s.dump_enabled).to_string(), Change::ByFile(|_, now, new| {
        now.dump_enabled = new.dump_enabled;
        Ok(())
    })),
    row("disable-watch", |s| (!s.watch_enabled).to_string(), Change::ByFile(|_, now, new| {
        now.watch_enabled = new.watch_enabled;
        Ok(())
    })),
    row("enable-shutdown", |s| s.shutdown_enabled.to_string(), Change::ByFile(|_, now, new| {
        now.shutdown_enabled = new.shutdown_enabled;
        Ok(())
    })),
    row("enable-debugtime", |s| s.debugtime_enabled.to_string(), Change::ByFile(|_, now, new| {
        now.debugtime_enabled = new.debugtime_enabled;
        Ok(())
    })),
    row("auth-file", |s| path(&s.auth_file), Change::ByFile(auth_file)),
    row("enable-sasl", |s| s.sasl.to_string(), CONNECTIONS),
    row("prefix-delimiter", |s| char::from(s.prefix_delimiter).to_string(), CONNECTIONS),
    row("track-sizes", |s| s.track_sizes.to_string(), Change::AtStart("items in memory were not counted")),

    row("enable-ssl", |s| s.tls.enabled.to_string(), LISTENERS),
    row("tls-cert", |s| path(&s.tls.chain_cert), Change::ByFile(|_, now, new| {
        now.tls.chain_cert.clone_from(&new.tls.chain_cert);
        Ok(())
    })),
    row("tls-key", |s| path(&s.tls.key), Change::ByFile(|_, now, new| {
        now.tls.key.clone_from(&new.tls.key);
        Ok(())
    })),
    row("tls-key-format", |s| key_format(s.tls.key_format).to_owned(), Change::ByFile(|_, now, new| {
        now.tls.key_format = new.tls.key_format;
        Ok(())
    })),
    row("tls-verify", |s| verify(s.tls.verify).to_owned(), Change::ByFile(|_, now, new| {
        now.tls.verify = new.tls.verify;
        Ok(())
    })),
    row("tls-ca", |s| path(&s.tls.ca_cert), Change::ByFile(|_, now, new| {
        now.tls.ca_cert.clone_from(&new.tls.ca_cert);
        Ok(())
    })),
    row("tls-ciphers", |s| s.tls.ciphers.join(":"), Change::ByFile(|_, now, new| {
        now.tls.ciphers.clone_from(&new.tls.ciphers);
        Ok(())
    })),
    row("tls-min-version", |s| s.tls.min_version.to_string(), Change::ByFile(|_, now, new| {
        now.tls.min_version = new.tls.min_version;
        Ok(())
    })),
    row("tls-kernel", |s| s.tls.kernel.to_string(), CONNECTIONS),
    row("tls-session-cache", |s| s.tls.session_cache.to_string(), CONNECTIONS),

    row("daemon", |s| s.daemonize.to_string(), PROCESS),
    row("pidfile", |s| path(&s.pidfile), PROCESS),
    row("user", |s| s.user.clone().unwrap_or_default(), PROCESS),
    row("enable-coredumps", |s| s.core_dumps.to_string(), PROCESS),
    row("verbose", |s| s.verbosity.to_string(), Change::Live(|running, now, new| {
        now.verbosity = new.verbosity;
        running.state.set_verbosity(new.verbosity);
        Ok(())
    })),
    row("log-format", |s| log_format(s.log_format).to_owned(), PROCESS),

    row("flash.tuning.fill", |s| s.flash.fill_percent.to_string(), DEVICES),
    row("flash.tuning.generations", |s| on_off(s.flash.generations), DEVICES),
    row("flash.tuning.reclaim", |s| reclaim_name(s.flash.reclaim).to_owned(), DEVICES),
    row("flash.tuning.ops", |s| ops_name(s.flash.ops), DEVICES),
    row("flash.tuning.cutoff", |s| s.flash.cutoff_s.to_string(), DEVICES),
    row("flash.tuning.promote", |s| s.flash.promote.to_string(), DEVICES),
    row("flash.tuning.save", |s| on_off(s.flash.save), Change::Live(|_, now, new| {
        now.flash.save = new.flash.save;
        Ok(())
    })),
    row("flash.tuning.depth", |s| s.flash.depth.to_string(), DEVICES),
    row("flash.tuning.direct", |s| s.flash.direct.to_string(), DEVICES),
    row("flash.tuning.zone", |s| maybe(s.flash.zone_bytes, size), DEVICES),
    row("flash.tuning.segment", |s| maybe(s.flash.segment_bytes, size), DEVICES),

    row("fleet", |s| s.fleet.as_ref().map_or(String::new(), fleet), Change::ByFile(|running, now, new| {
        running.state.set_fleet(new.fleet.as_ref(), running.cache.last_cas());
        now.fleet.clone_from(&new.fleet);
        let servers = now.fleet.as_ref().map_or(0, |fleet| fleet.nodes.len());
        tracing::info!(target: "larder::settings", "SIGHUP: the fleet was read again: {servers} servers");
        if let Some(doubt) = now.fleet.as_ref().and_then(FleetSettings::doubt) {
            tracing::warn!("{doubt}");
        }
        Ok(())
    })),
];

/// The setting of this name.
pub fn by_name(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.name == name)
}

/// memcached's `cache_memlimit`, and `-m` of the settings file. The receive buffers shrink and grow with what
/// connections may hold.
fn memory_limit(running: &Running<'_>, now: &mut Settings, new: &Settings) -> Result<(), String> {
    let (cache, limit_bytes) = (running.cache, new.memory_bytes);
    let ring_buffers = cache
        .buffers_cap_bytes_at(limit_bytes)
        .and_then(|cap| Buffers::ring_buffers_for(cap, now.threads as usize));
    let Some(ring_buffers) = ring_buffers.filter(|_| cache.set_limit(limit_bytes)) else {
        return Err(
            "the limit is below what the server needs or above what was reserved at the start".to_owned()
        );
    };
    if let Some(buffers) = running.state.buffers() {
        buffers.set_limit_bytes(cache.buffers_cap_bytes());
        buffers.set_sessions_limit_bytes(cache.sessions_cap_bytes());
        buffers.set_ring_buffers(ring_buffers);
    }
    now.memory_bytes = limit_bytes;
    Ok(())
}

fn connections(running: &Running<'_>, now: &mut Settings, new: &Settings) -> Result<(), String> {
    let started = running.state.settings();
    if now.tls.enabled && new.connections_max > started.connections_max {
        return Err(format!(
            "the memory for the sessions of {} encrypted connections was set aside at the start",
            started.connections_max
        ));
    }
    let wanted = Settings { connections_max: new.connections_max, ..now.clone() };
    if let Some(host) = running.state.host() {
        host.raise_limits(&wanted)?;
    }
    now.connections_max = new.connections_max;
    Ok(())
}

fn auth_file(running: &Running<'_>, now: &mut Settings, new: &Settings) -> Result<(), String> {
    if new.auth_file.is_some() != now.auth_file.is_some() {
        return Err(
            "whether clients log in is decided at the start; only the file may be another one".to_owned()
        );
    }
    running.state.read_users(new)?;
    now.auth_file.clone_from(&new.auth_file);
    Ok(())
}

impl Running<'_> {
    /// Changes settings of the table to what `wanted` has. The answer has a value for each: whether it is another value
    /// than the one that was in effect, or why it cannot take effect. In the latter case the setting stays as it was.
    pub(super) fn change(&self, settings: &[&Setting], wanted: &Settings) -> Vec<Result<bool, String>> {
        self.state.change(|now| {
            let before = now.clone();
            let mut done: Vec<_> = settings.iter().map(|setting| self.apply(setting, now, wanted)).collect();
            // A certificate and its key belong together, so all settings are taken before the files are read.
            if now.tls != before.tls
                && let Some(Err(why)) = self.state.load_certificates(&now.tls)
            {
                now.tls = before.tls;
                for (setting, done) in settings.iter().zip(&mut done) {
                    if setting.name.starts_with("tls-") && *done == Ok(true) {
                        *done = Err(why.clone());
                    }
                }
            }
            if let Some(limits) = self.state.drivers().and_then(|drivers| drivers.limits.as_ref()) {
                limits.set(now.connections_max as usize, now.maxconns_fast, now.idle_timeout_s);
                limits.set_per_address(now.connections_per_address_max as usize);
            }
            done
        })
    }

    /// Changes the setting of this name to what `wanted` has.
    ///
    /// # Errors
    /// As [`Running::change`], or there is no such setting.
    pub(super) fn change_one(&self, name: &str, wanted: &Settings) -> Result<(), String> {
        let setting = by_name(name).ok_or_else(|| format!("there is no setting '{name}'"))?;
        self.change(&[setting], wanted).into_iter().try_for_each(|done| done.map(drop))
    }

    fn apply(&self, setting: &Setting, now: &mut Settings, wanted: &Settings) -> Result<bool, String> {
        if (setting.text)(now) == (setting.text)(wanted) {
            return Ok(false);
        }
        match setting.change {
            Change::Live(apply) | Change::ByFile(apply) => apply(self, now, wanted).map(|()| true),
            Change::AtStart(why) => Err(format!("it takes effect at the next start, because {why}")),
        }
    }
}

/// Follows the settings file: each SIGHUP puts into effect what has changed in it since it was read last. So a value
/// that a client has set stays until the file gets another one.
pub struct Follower {
    /// The value of each setting when it was read last, as far as it took effect.
    read: Vec<String>,
}

impl Follower {
    /// A follower of a server that has started with `settings`.
    pub fn new(settings: &Settings) -> Follower {
        Follower { read: SETTINGS.iter().map(|setting| (setting.text)(settings)).collect() }
    }

    /// SIGHUP: reads the settings again, then the file of users and the certificates. What is wrong changes nothing,
    /// and is logged.
    pub fn reload(&mut self, running: &Running<'_>) {
        let state = running.state;
        match state.host().map(|host| host.read_settings()) {
            Some(Ok(wanted)) => self.follow(running, &wanted),
            Some(Err(what)) => tracing::warn!("all settings stay as they were: {what}"),
            None => {}
        }
        state.reload_files();
    }

    fn follow(&mut self, running: &Running<'_>, wanted: &Settings) {
        let new: Vec<String> = SETTINGS.iter().map(|setting| (setting.text)(wanted)).collect();
        let changed: Vec<usize> = (0..SETTINGS.len()).filter(|at| self.read[*at] != new[*at]).collect();
        let settings: Vec<&Setting> = changed.iter().map(|at| &SETTINGS[*at]).collect();
        for (at, done) in changed.into_iter().zip(running.change(&settings, wanted)) {
            let (name, before, after) = (SETTINGS[at].name, shown(&self.read[at]), shown(&new[at]));
            match done {
                Ok(_) => {
                    tracing::info!(target: "larder::settings", "{name} is {after} now, it was {before}");
                    self.read[at].clone_from(&new[at]);
                }
                Err(why) => tracing::warn!("{name} stays {before}, though the settings say {after}: {why}"),
            }
        }
    }
}

/// A value in a line of the log.
fn shown(text: &str) -> &str {
    if text.is_empty() { "not set" } else { text }
}

// ---- how values are written ----

/// A size with the largest suffix that leaves it whole: `64m`, `1000`.
fn size(bytes: u64) -> String {
    for (letter, power) in [('t', 40), ('g', 30), ('m', 20), ('k', 10)] {
        if bytes != 0 && bytes.is_multiple_of(1 << power) {
            return format!("{}{letter}", bytes >> power);
        }
    }
    bytes.to_string()
}

fn maybe<T>(value: Option<T>, text: impl Fn(T) -> String) -> String {
    value.map(text).unwrap_or_default()
}

/// A namespace as it would be written.
fn namespace(of: &Namespace) -> String {
    let ttl = if of.ttl_max_s == 0 { String::new() } else { format!("/{}", of.ttl_max_s) };
    format!("{}={}-{}{ttl}", of.name, of.least_percent, of.most_percent)
}

/// The namespace of a user as it would be written.
fn user_namespace(of: &UserNamespace) -> String {
    format!("{}={}", of.user, of.namespace)
}

fn list<T>(values: &[T], text: impl Fn(&T) -> String) -> String {
    values.iter().map(text).collect::<Vec<_>>().join(",")
}

fn path(path: &Option<PathBuf>) -> String {
    path.as_ref().map(|path| path.display().to_string()).unwrap_or_default()
}

fn on_off(on: bool) -> String {
    if on { "on" } else { "off" }.to_owned()
}

fn address(address: &Address) -> String {
    let word = match address.tls {
        ListenerTls::Default => "",
        ListenerTls::Off => "notls:",
        ListenerTls::Basic => "btls:",
        ListenerTls::Mutual => "mtls:",
    };
    format!("{word}{address}")
}

fn device(device: &FlashDevice) -> String {
    let size_bytes = match device {
        FlashDevice::Path { size_bytes, .. } => *size_bytes,
        FlashDevice::Simulated { size_bytes, .. } => Some(*size_bytes),
    };
    size_bytes.map_or(device.to_string(), |bytes| format!("{device}:{}", size(bytes)))
}

fn cpus(pinned: &PinCpus) -> String {
    match pinned {
        PinCpus::Off => "off".to_owned(),
        PinCpus::Auto => "auto".to_owned(),
        PinCpus::List(cpus) => list(cpus, u32::to_string),
    }
}

fn protocol(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Auto => "auto",
        Protocol::Ascii => "ascii",
        Protocol::Binary => "binary",
    }
}

fn key_format(format: KeyFormat) -> &'static str {
    match format {
        KeyFormat::Pem => "pem",
        KeyFormat::Der => "der",
    }
}

fn verify(mode: VerifyMode) -> &'static str {
    match mode {
        VerifyMode::None => "none",
        VerifyMode::Request => "request",
        VerifyMode::Require => "require",
        VerifyMode::Once => "once",
    }
}

fn log_format(format: LogFormat) -> &'static str {
    match format {
        LogFormat::Compact => "compact",
        LogFormat::Json => "json",
    }
}

/// A fleet in one line: its version, this server, and each server with its slots.
fn fleet(fleet: &FleetSettings) -> String {
    let nodes = fleet.nodes.iter().map(|node| {
        let slots = list(&node.slots, |range| format!("{}-{}", range.0, range.1));
        format!("{}={}:{}:{} {slots}", node.name, node.host, node.port, node.resp_port)
    });
    format!("version {}, self {}, {}", fleet.version, fleet.own, nodes.collect::<Vec<_>>().join("; "))
}
