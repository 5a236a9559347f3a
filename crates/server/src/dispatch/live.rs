//! Changes of settings while the server runs. The [table](crate::settings::table) says of each setting what becomes of
//! a new value; here is what such a change reaches. SIGHUP, `CONFIG SET` and commands of memcached change settings.

use super::state::ServerState;
use crate::io::Buffers;
use crate::settings::{Change, Effects, FleetSettings, Row, Settings, serves_strangers, table};
use larder_cache::Cache;

/// What a change reaches.
pub struct Running<'a> {
    /// What the workers share.
    pub state: &'a ServerState,
    /// The cache.
    pub cache: &'a Cache,
}

impl Effects for Running<'_> {
    fn cache(&self) -> &Cache {
        self.cache
    }

    /// The receive buffers shrink and grow with what connections may hold.
    fn set_memory_bytes(&self, now: &Settings, memory_bytes: u64) -> Result<(), String> {
        let ring_buffers = self
            .cache
            .buffers_cap_bytes_at(memory_bytes)
            .and_then(|cap| Buffers::ring_buffers_for(cap, now.threads as usize));
        let Some(ring_buffers) = ring_buffers.filter(|_| self.cache.set_limit(memory_bytes)) else {
            return Err(
                "the limit is below what the server needs or above what was reserved at the start".to_owned()
            );
        };
        if let Some(buffers) = self.state.buffers() {
            buffers.set_limit_bytes(self.cache.buffers_cap_bytes());
            buffers.set_sessions_limit_bytes(self.cache.sessions_cap_bytes());
            buffers.set_ring_buffers(ring_buffers);
        }
        Ok(())
    }

    fn make_room_for_connections(&self, now: &Settings, connections_max: u32) -> Result<(), String> {
        let started = self.state.settings();
        if now.tls.enabled && connections_max > started.connections_max {
            return Err(format!(
                "the memory for the sessions of {} encrypted connections was set aside at the start",
                started.connections_max
            ));
        }
        let wanted = Settings { connections_max, ..now.clone() };
        self.state.host().map_or(Ok(()), |host| host.raise_limits(&wanted))
    }

    fn read_users(&self, settings: &Settings) -> Result<(), String> {
        self.state.read_users(settings)
    }

    fn set_verbosity(&self, verbosity: u8) {
        self.state.set_verbosity(verbosity);
    }

    fn set_fleet(&self, fleet: Option<&FleetSettings>) {
        self.state.set_fleet(fleet, self.cache.last_cas());
        let servers = fleet.map_or(0, |fleet| fleet.nodes.len());
        tracing::info!(target: "larder::settings", "SIGHUP: the fleet was read again: {servers} servers");
        if let Some(doubt) = fleet.and_then(FleetSettings::doubt) {
            tracing::warn!("{doubt}");
        }
    }
}

impl Running<'_> {
    /// Changes settings of the table to what `wanted` has. The answer has a value for each: whether it is another value
    /// than the one that was in effect, or why it cannot take effect. In the latter case the setting stays as it was.
    pub(super) fn change(&self, settings: &[&Row], wanted: &Settings) -> Vec<Result<bool, String>> {
        self.state.change(|now| {
            let before = now.clone();
            let mut done: Vec<_> = settings.iter().map(|setting| self.apply(setting, now, wanted)).collect();
            // A certificate and its key belong together, so all settings are taken before the files are read.
            if now.tls != before.tls
                && let Some(Err(why)) = self.state.load_certificates(&now.tls)
            {
                now.tls = before.tls.clone();
                for (setting, done) in settings.iter().zip(&mut done) {
                    if setting.name.starts_with("tls-") && *done == Ok(true) {
                        *done = Err(why.clone());
                    }
                }
            }
            if let Some(limits) = self.state.drivers().and_then(|drivers| drivers.limits.as_ref()) {
                limits.set(now.connections_max as usize, now.maxconns_fast, now.idle_timeout_s);
                limits.set_strangers(serves_strangers(now));
                limits.set_per_address(now.connections_per_address_max as usize);
            }
            for (setting, _) in settings.iter().zip(&done).filter(|(_, done)| **done == Ok(true)) {
                let (old, new) = (setting.text(&before), setting.text(now));
                let (name, old, new) = (setting.name, shown(&old), shown(&new));
                tracing::info!(target: "larder::settings", "{name} is {new} now, it was {old}");
            }
            done
        })
    }

    /// Changes the setting of this name to what `wanted` has.
    ///
    /// # Errors
    /// As [`Running::change`], or there is no such setting.
    pub(super) fn change_one(&self, name: &str, wanted: &Settings) -> Result<(), String> {
        let setting = table::by_name(name).ok_or_else(|| format!("there is no setting '{name}'"))?;
        self.change(&[setting], wanted).into_iter().try_for_each(|done| done.map(drop))
    }

    fn apply(&self, setting: &Row, now: &mut Settings, wanted: &Settings) -> Result<bool, String> {
        if setting.text(now) == setting.text(wanted) {
            return Ok(false);
        }
        match setting.change {
            Change::Live(apply) | Change::ByFile(apply) => apply(self, now, wanted)?,
            Change::AtStart(why) => return Err(format!("it takes effect at the next start, because {why}")),
            Change::NoSetting => return Err("it is no setting".to_owned()),
        }
        setting.value.copy(now, wanted);
        Ok(true)
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
        Follower { read: texts(settings) }
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
        let read = table::settings().zip(&mut self.read).zip(texts(wanted));
        let (settings, values): (Vec<&Row>, Vec<_>) = read
            .filter(|((_, before), after)| *before != after)
            .map(|((row, before), after)| (row, (before, after)))
            .unzip();
        let done = running.change(&settings, wanted);
        for ((row, (read, new)), done) in settings.iter().zip(values).zip(done) {
            let (name, before, after) = (row.name, shown(read), shown(&new));
            match done {
                Ok(_) => *read = new,
                Err(why) => tracing::warn!("{name} stays {before}, though the settings say {after}: {why}"),
            }
        }
    }
}

/// The value of each setting of the table, as it would be written.
fn texts(settings: &Settings) -> Vec<String> {
    table::settings().map(|row| row.text(settings)).collect()
}

/// A value in a line of the log.
fn shown(text: &str) -> &str {
    if text.is_empty() { "not set" } else { text }
}
