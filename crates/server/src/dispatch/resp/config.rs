//! `CONFIG GET` and `CONFIG SET`: the settings under Redis's names.

use super::glob;
use super::shared::Shared;
use crate::dispatch::live::Running;
use crate::dispatch::state::ServerState;
use crate::settings::{Change, Row, Settings, check, serves_strangers, table};
use larder_cache::Cache;
use std::sync::atomic::Ordering::Relaxed;

/// What is asked for a setting: the whole server.
pub(in crate::dispatch) struct Server<'a> {
    pub(in crate::dispatch) state: &'a ServerState,
    pub(in crate::dispatch) resp: &'a Shared,
    pub(in crate::dispatch) cache: &'a Cache,
}

/// One setting.
struct Parameter {
    name: &'static str,
    get: fn(&Server<'_>) -> String,
    set: Setting,
}

/// Whether a setting can change.
enum Setting {
    /// No: only the value that it has is accepted.
    Fixed,
    /// The function says what is wrong with a value, or sets it.
    Changes(fn(&Server<'_>, &str) -> Result<(), String>),
}

impl Parameter {
    fn change_to(&self, server: &Server<'_>, value: &str) -> Result<(), String> {
        match self.set {
            Setting::Changes(set) => set(server, value),
            Setting::Fixed if (self.get)(server) == value => Ok(()),
            Setting::Fixed => Err("can't set immutable config".to_owned()),
        }
    }
}

const fn fixed(name: &'static str, get: fn(&Server<'_>) -> String) -> Parameter {
    Parameter { name, get, set: Setting::Fixed }
}

/// The settings, in the order in which they are shown.
const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "maxmemory",
        get: |s| s.cache.memory_use().limit_bytes.to_string(),
        set: Setting::Changes(set_memory),
    },
    Parameter {
        name: "maxmemory-policy",
        get: |s| s.resp.accepted.policy(policy(s.state)),
        set: Setting::Changes(|s, value| s.resp.accepted.set_policy(value, s.state.settings().evict)),
    },
    fixed("maxmemory-samples", |_| "5".to_owned()),
    Parameter {
        name: "maxclients",
        get: |s| s.state.in_effect().connections_max.to_string(),
        set: Setting::Changes(|s, value| set_by_name(s, "conn-limit", value)),
    },
    Parameter {
        name: "timeout",
        get: |s| s.state.in_effect().idle_timeout_s.to_string(),
        set: Setting::Changes(|s, value| set_by_name(s, "idle-timeout", value)),
    },
    fixed("databases", |s| s.state.databases().count().to_string()),
    fixed("save", |_| String::new()),
    fixed("appendonly", |_| "no".to_owned()),
    fixed("appendfsync", |_| "everysec".to_owned()),
    fixed("dir", |_| "/".to_owned()),
    fixed("dbfilename", |_| String::new()),
    fixed("daemonize", |_| "no".to_owned()),
    fixed("slaveof", |_| String::new()),
    fixed("replicaof", |_| String::new()),
    fixed("slave-read-only", |_| "yes".to_owned()),
    fixed("replica-read-only", |_| "yes".to_owned()),
    fixed("proto-max-bulk-len", |s| s.state.in_effect().item_bytes_max.to_string()),
    fixed("port", |s| s.state.in_effect().tcp_port.to_string()),
    fixed("tcp-backlog", |s| s.state.in_effect().backlog.to_string()),
    fixed("tcp-keepalive", |_| "300".to_owned()),
    fixed("bind", |s| {
        let addresses: Vec<String> = s.state.in_effect().addresses.iter().map(ToString::to_string).collect();
        if addresses.is_empty() { "* -::*".to_owned() } else { addresses.join(" ") }
    }),
    Parameter {
        name: "protected-mode",
        get: |s| {
            let settings = s.state.in_effect();
            yes_no(settings.addresses.is_empty() && !serves_strangers(&settings))
        },
        set: Setting::Changes(|s, value| match value.to_ascii_lowercase().as_str() {
            "yes" => change(s, "open", |wanted| wanted.open = false),
            "no" => change(s, "open", |wanted| wanted.open = true),
            _ => Err("argument must be 'yes' or 'no'".to_owned()),
        }),
    },
    fixed("unixsocket", |s| {
        s.state.in_effect().unix_socket.as_ref().map_or(String::new(), |path| path.display().to_string())
    }),
    fixed("io-threads", |s| s.state.in_effect().threads.to_string()),
    fixed("cluster-enabled", |s| yes_no(s.state.fleet().get().is_some())),
    fixed("requirepass", |_| String::new()),
    Parameter {
        name: "notify-keyspace-events",
        get: |s| s.resp.accepted.events(),
        set: Setting::Changes(|s, value| s.resp.accepted.set_events(value)),
    },
    Parameter { name: "busy-reply-threshold", get: script_ms, set: Setting::Changes(set_script_ms) },
    Parameter { name: "lua-time-limit", get: script_ms, set: Setting::Changes(set_script_ms) },
    fixed("lazyfree-lazy-eviction", |_| "yes".to_owned()),
    fixed("lazyfree-lazy-expire", |_| "yes".to_owned()),
    fixed("lazyfree-lazy-server-del", |_| "yes".to_owned()),
    fixed("lazyfree-lazy-user-del", |_| "yes".to_owned()),
    fixed("lazyfree-lazy-user-flush", |_| "yes".to_owned()),
    fixed("activedefrag", |_| "no".to_owned()),
    fixed("hz", |_| "10".to_owned()),
    fixed("latency-tracking", |_| "no".to_owned()),
    Parameter {
        name: "latency-monitor-threshold",
        get: |s| s.resp.accepted.monitor_ms().to_string(),
        set: Setting::Changes(|s, value| s.resp.accepted.set_monitor_ms(value)),
    },
    Parameter {
        name: "slowlog-log-slower-than",
        get: |s| s.resp.slower_than_us.load(Relaxed).to_string(),
        set: Setting::Changes(|s, value| {
            let us =
                value.parse::<i64>().map_err(|_| "argument couldn't be parsed into an integer".to_owned())?;
            s.resp.slower_than_us.store(us, Relaxed);
            Ok(())
        }),
    },
    Parameter {
        name: "slowlog-max-len",
        get: |s| s.resp.slow_max.load(Relaxed).to_string(),
        set: Setting::Changes(|s, value| {
            let most =
                value.parse::<u64>().map_err(|_| "argument couldn't be parsed into an integer".to_owned())?;
            if most > SLOW_MAX {
                return Err(format!("argument must be between 0 and {SLOW_MAX} inclusive"));
            }
            s.resp.slow_max.store(most, Relaxed);
            s.resp.trim_slow();
            Ok(())
        }),
    },
    Parameter {
        name: "loglevel",
        get: |s| LEVELS[usize::from(s.state.verbosity().min(2))].to_owned(),
        set: Setting::Changes(|s, value| match LEVELS.iter().position(|level| *level == value) {
            Some(level) => change(s, "verbose", |wanted| wanted.verbosity = level as u8),
            None => Err("argument(s) must be one of the following: warning, notice, verbose".to_owned()),
        }),
    },
];

/// The most slow commands that can be remembered, of 4 KiB each at most.
const SLOW_MAX: u64 = 1024;
/// Redis's names of how much is logged.
const LEVELS: [&str; 3] = ["warning", "notice", "verbose"];

fn yes_no(on: bool) -> String {
    if on { "yes" } else { "no" }.to_owned()
}

/// Redis's name of what becomes of items when memory is full.
pub(super) fn policy(state: &ServerState) -> &'static str {
    if state.settings().evict { "allkeys-lfu" } else { "noeviction" }
}

/// A memory limit in bytes, or with a unit as in Redis.
fn set_memory(server: &Server<'_>, value: &str) -> Result<(), String> {
    let lower = value.to_ascii_lowercase();
    let units = [
        ("tb", 1 << 40),
        ("gb", 1 << 30),
        ("mb", 1 << 20),
        ("kb", 1 << 10),
        ("g", 1_000_000_000),
        ("m", 1_000_000),
        ("k", 1000),
        ("b", 1),
    ];
    let (digits, unit) = units
        .iter()
        .find_map(|(suffix, unit)| lower.strip_suffix(suffix).map(|digits| (digits, *unit)))
        .unwrap_or((&lower, 1u64));
    let bytes = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    let bytes = bytes.ok_or("argument must be a memory value")?;
    change(server, "memory-limit", |wanted| wanted.memory_bytes = bytes)
}

/// Changes one setting of the table of live settings.
fn change(server: &Server<'_>, name: &str, change: impl FnOnce(&mut Settings)) -> Result<(), String> {
    let mut wanted = Settings::clone(&server.state.in_effect());
    change(&mut wanted);
    check(&wanted)?;
    Running { state: server.state, cache: server.cache }.change_one(name, &wanted)
}

/// Changes one setting to a value that is written as in the settings file.
fn script_ms(server: &Server<'_>) -> String {
    server.state.in_effect().script_ms.to_string()
}

fn set_script_ms(server: &Server<'_>, value: &str) -> Result<(), String> {
    set_by_name(server, "script-ms", value)
}

fn set_by_name(server: &Server<'_>, name: &str, value: &str) -> Result<(), String> {
    let row = table::by_name(name).ok_or("there is no such setting")?;
    let mut wanted = Settings::clone(&server.state.in_effect());
    row.set(&mut wanted, value)?;
    change(server, name, |settings| *settings = wanted)
}

/// Changes settings of the table, which belong together: all of them, or none where one of their values is wrong.
fn set_of_table(
    server: &Server<'_>,
    changes: &[(&'static Row, String)],
) -> Result<(), (&'static str, String)> {
    let mut wanted = Settings::clone(&server.state.in_effect());
    for (setting, value) in changes {
        let is_same = setting.text(&wanted) == *value;
        match setting.change {
            Change::Live(_) => setting.set(&mut wanted, value).map_err(|what| (setting.name, what))?,
            _ if is_same => {}
            Change::ByFile(_) => {
                return Err((
                    setting.name,
                    "can't set protected config: the settings file only can".to_owned(),
                ));
            }
            Change::AtStart(_) | Change::NoSetting => {
                return Err((setting.name, "can't set immutable config".to_owned()));
            }
        }
    }
    let last = changes.last().map_or("", |(setting, _)| setting.name);
    check(&wanted).map_err(|what| (last, what))?;
    let settings: Vec<_> = changes.iter().map(|(setting, _)| *setting).collect();
    let done = Running { state: server.state, cache: server.cache }.change(&settings, &wanted);
    let failed = settings.iter().zip(done).find_map(|(setting, done)| Some((setting.name, done.err()?)));
    failed.map_or(Ok(()), Err)
}

/// The settings of the table that have no name in Redis: they have the names of the settings file.
fn of_table() -> impl Iterator<Item = &'static Row> {
    table::settings().filter(|setting| PARAMETERS.iter().all(|parameter| parameter.name != setting.name))
}

/// The settings whose names match one of these patterns, with their values.
pub(in crate::dispatch) fn get<'a>(
    server: &Server<'_>,
    patterns: impl Iterator<Item = &'a [u8]>,
) -> Vec<(&'static str, String)> {
    let patterns: Vec<&[u8]> = patterns.collect();
    let is_wanted = |name: &str| patterns.iter().any(|pattern| glob::matches(pattern, name.as_bytes(), true));
    let wanted = PARAMETERS.iter().filter(|parameter| is_wanted(parameter.name));
    let mut found: Vec<_> = wanted.map(|parameter| (parameter.name, (parameter.get)(server))).collect();
    let in_effect = server.state.in_effect();
    let more = of_table().filter(|setting| is_wanted(setting.name));
    found.extend(more.map(|setting| (setting.name, setting.text(&in_effect))));
    found
}

/// Changes settings. Where one cannot have its value, those before it get back what they had.
///
/// # Errors
/// The error to answer.
pub(in crate::dispatch) fn set<'a>(
    server: &Server<'_>,
    words: impl Iterator<Item = &'a [u8]>,
) -> Result<(), String> {
    let words: Vec<&[u8]> = words.collect();
    let (mut changes, mut of_file) = (Vec::new(), Vec::new());
    for pair in words.chunks(2) {
        let [name, value] = pair else {
            return Err("ERR syntax error".to_owned());
        };
        let shown = String::from_utf8_lossy(name).into_owned();
        let found = PARAMETERS.iter().find(|parameter| parameter.name.as_bytes().eq_ignore_ascii_case(name));
        if let Some(setting) = of_table().find(|setting| setting.name.as_bytes().eq_ignore_ascii_case(name)) {
            of_file.push((setting, String::from_utf8_lossy(value).into_owned()));
            continue;
        }
        let Some(parameter) = found else {
            return Err(format!("ERR Unknown option or number of arguments for CONFIG SET - '{shown}'"));
        };
        if changes.iter().any(|(before, _): &(&Parameter, String)| before.name == parameter.name) {
            let why = "duplicate parameter";
            return Err(format!("ERR CONFIG SET failed (possibly related to argument '{shown}') - {why}"));
        }
        changes.push((parameter, String::from_utf8_lossy(value).into_owned()));
    }
    let before = server.state.in_effect();
    let (slower_than_us, slow_max) =
        (server.resp.slower_than_us.load(Relaxed), server.resp.slow_max.load(Relaxed));
    let accepted = server.resp.accepted.values();
    let set_all = || {
        set_of_table(server, &of_file)?;
        changes.iter().try_for_each(|(parameter, value)| {
            parameter.change_to(server, value).map_err(|why| (parameter.name, why))
        })
    };
    set_all().map_err(|(name, why)| {
        let live: Vec<_> = table::settings().filter(|row| matches!(row.change, Change::Live(_))).collect();
        Running { state: server.state, cache: server.cache }.change(&live, &before);
        server.resp.slower_than_us.store(slower_than_us, Relaxed);
        server.resp.slow_max.store(slow_max, Relaxed);
        server.resp.accepted.restore(accepted);
        format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {why}")
    })
}
