//! Prepares the process around the server: background, log, limits, user and pidfile.

use std::io::{self, IsTerminal};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use larder_server::settings::{FlashDevice, ListenerTls, LogFormat, Port, Settings, TlsSettings, VerifyMode};
use nix::unistd::{Uid, User, initgroups, setgid, setuid};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Registry;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt;

/// Environment variable of the background process: the id of the process that started it. An inherited value that is
/// not the parent's id is ignored.
const BACKGROUND: &str = "LARDER_STARTED_BY";
/// How long the foreground process waits for the server to be ready.
const START_MAX: Duration = Duration::from_secs(60);
/// Open files of a server in addition to its clients: listeners, rings, the log, the admin page and its readers.
const FILES_BESIDE: u64 = 256;

/// The role of this process after [`daemonize`].
pub(crate) enum Side {
    /// This process becomes the server.
    Server,
    /// The server runs in the background, or could not start. Exit with this status.
    Done(u8),
}

/// Enters the background if the settings ask for it. It must run before any thread starts: the program is started a
/// second time, so no lock is forked. In the foreground it returns when the server reports that it is ready (as to a
/// service manager), or when the server ends.
pub(crate) fn daemonize(settings: &mut Settings) -> io::Result<Side> {
    if !settings.daemonize {
        return Ok(Side::Server);
    }
    if std::env::var(BACKGROUND).is_ok_and(|by| by == std::os::unix::process::parent_id().to_string()) {
        make_paths_absolute(settings, Path::new(""))?;
        rustix::process::setsid()?;
        std::env::set_current_dir("/")?;
        return Ok(Side::Server);
    }
    start_in_background().map(Side::Done)
}

/// Makes all paths absolute that are relative to `base`: a background process leaves the folder of its start.
pub(crate) fn make_paths_absolute(settings: &mut Settings, base: &Path) -> io::Result<()> {
    let tls = &mut settings.tls;
    let paths = [
        &mut settings.pidfile,
        &mut settings.unix_socket,
        &mut settings.auth_file,
        &mut settings.keep,
        &mut tls.chain_cert,
        &mut tls.key,
        &mut tls.ca_cert,
    ];
    let devices = settings.flash.devices.iter_mut().filter_map(|device| match device {
        FlashDevice::Path { path, .. } => Some(path),
        FlashDevice::Simulated { .. } => None,
    });
    for path in paths.into_iter().flatten().chain(devices) {
        *path = std::path::absolute(base.join(&*path))?;
    }
    Ok(())
}

fn start_in_background() -> io::Result<u8> {
    let me = std::process::id();
    let name =
        format!("larder-start-{me}-{}", std::time::UNIX_EPOCH.elapsed().map_or(0, |age| age.as_nanos()));
    let news = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
    news.set_read_timeout(Some(Duration::from_millis(50)))?;
    let mut words = std::env::args_os();
    let mut command = Command::new(std::env::current_exe()?);
    if let Some(program) = words.next() {
        command.arg0(program);
    }
    let mut server = command
        .args(words)
        .env(BACKGROUND, me.to_string())
        .env("NOTIFY_SOCKET", format!("@{name}"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()?;
    let begun = Instant::now();
    let mut message = [0; 512];
    while begun.elapsed() < START_MAX {
        if let Ok(length) = news.recv(&mut message)
            && message[..length].split(|octet| *octet == b'\n').any(|line| line == b"READY=1")
        {
            return Ok(0);
        }
        if let Some(status) = server.try_wait()? {
            let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
            return Ok(u8::try_from(code).unwrap_or(1));
        }
    }
    Ok(0)
}

/// How much is logged, which may change while the server runs.
pub(crate) struct LogLevel(reload::Handle<Targets, Registry>);

impl LogLevel {
    /// Logs as much as this verbosity (`-v`) asks for.
    pub(crate) fn set(&self, verbosity: u8) {
        if let Err(error) = self.0.reload(targets(verbosity)) {
            tracing::warn!("the log stays as it was: {error}");
        }
    }
}

/// What is logged with this verbosity: warnings, what is said of the start and of changed settings, and more with `-v`.
fn targets(verbosity: u8) -> Targets {
    let level = match verbosity {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let always = level.max(LevelFilter::INFO);
    Targets::new()
        .with_default(level)
        .with_target("larder::start", always)
        .with_target("larder::settings", always)
}

/// Starts the log on stderr.
pub(crate) fn start_log(settings: &Settings) -> LogLevel {
    let (wanted, handle) = reload::Layer::new(targets(settings.verbosity));
    let log = tracing_subscriber::registry().with(wanted);
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr).log_internal_errors(false);
    match settings.log_format {
        LogFormat::Compact => log.with(lines.compact().with_ansi(io::stderr().is_terminal())).init(),
        LogFormat::Json => log.with(lines.json().with_ansi(false)).init(),
    }
    LogLevel(handle)
}

/// Warns, in one line each, about options of memcached without effect, and of what [`doubts`] finds.
pub(crate) fn tell_doubts(settings: &Settings) {
    if !settings.without_effect.is_empty() {
        let names: Vec<&str> = settings.without_effect.iter().map(|option| option.name.as_str()).collect();
        tracing::info!(target: "larder::start", "accepted for compatibility, without effect: {}", names.join(", "));
    }
    for doubt in doubts(settings) {
        tracing::warn!("{doubt}");
    }
}

/// Settings that are probably not what the user wants, in one line each. The default number of threads is none.
pub(crate) fn doubts(settings: &Settings) -> Vec<String> {
    let mut found = Vec::new();
    let mut doubt = |what: &str| found.push(what.to_owned());
    let Settings { tls, .. } = settings;
    if !tls.enabled && *tls != TlsSettings::default() {
        doubt("nothing is encrypted, though a flag of TLS (--tls-...) is given: -Z turns it on");
    }
    let verifies = tls.verify != VerifyMode::None
        || settings.addresses.iter().any(|address| address.tls == ListenerTls::Mutual);
    if tls.enabled && verifies && tls.ca_cert.is_none() {
        doubt("no client certificate is accepted: name their authorities with --tls-ca");
    }
    if tls.enabled && settings.unix_socket.is_none() && settings.udp_port != Port::Off {
        doubt("UDP (-U) is not encrypted");
    }
    let cpus = std::thread::available_parallelism().map_or(u32::MAX, |cpus| cpus.get() as u32);
    if settings.threads > cpus.max(Settings::default().threads) {
        let threads = settings.threads;
        doubt(&format!("{threads} threads (-t) for {cpus} CPUs: more threads than CPUs make nothing faster"));
    }
    found
}

/// What would keep this process from becoming the server that the settings ask for, in one line each. Nothing is
/// changed but the limits of this process.
pub(crate) fn problems(settings: &Settings) -> Vec<String> {
    let mut found = Vec::new();
    found.extend(user(settings).err());
    // Only an attempt tells what this process may have. A limit of its own outlives no process.
    let files = raise(Resource::Nofile, files_needed(settings));
    found.extend(files.err().map(|highest| too_few_files(settings, highest)));
    for (path, what) in
        [(&settings.pidfile, "the pidfile (-P)"), (&settings.unix_socket, "the UNIX socket (-s)")]
    {
        let folder =
            path.as_deref().and_then(|path| std::path::absolute(path).ok()?.parent().map(Path::to_owned));
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            found.push(format!(
                "there is no folder {} for {what}: make it, or name another one",
                folder.display()
            ));
        }
    }
    found
}

/// Raises the limits of the process: open files for every connection, and core files and locked memory if asked for.
/// An error is one line that says what to do.
pub(crate) fn raise_limits(settings: &Settings) -> Result<(), String> {
    raise(Resource::Nofile, files_needed(settings)).map_err(|highest| too_few_files(settings, highest))?;
    if settings.core_dumps {
        let highest = getrlimit(Resource::Core).maximum;
        let limit = Rlimit { current: highest, maximum: highest };
        setrlimit(Resource::Core, limit)
            .map_err(|error| format!("cannot raise the limit of core files (-r): {error}"))?;
    }
    if settings.lock_memory {
        lock_memory();
    }
    Ok(())
}

/// The open files that the server may have at one time.
fn files_needed(settings: &Settings) -> u64 {
    u64::from(settings.connections_max) + 16 * u64::from(settings.threads) + FILES_BESIDE
}

fn too_few_files(settings: &Settings, highest: u64) -> String {
    format!(
        "{} connections (-c) need {} open files, and the limit is {highest}: lower -c, or raise 'ulimit -n'",
        settings.connections_max,
        files_needed(settings)
    )
}

/// Raises one limit to at least `wanted`. The error is the maximum.
fn raise(resource: Resource, wanted: u64) -> Result<(), u64> {
    let now = getrlimit(resource);
    if now.current.is_none_or(|current| current >= wanted) {
        return Ok(());
    }
    let maximum = now.maximum.map(|maximum| maximum.max(wanted));
    setrlimit(resource, Rlimit { current: Some(wanted), maximum }).map_err(|_| now.maximum.unwrap_or(wanted))
}

/// Locks each page when it is first used, so that reserved but unused memory stays free. As in memcached, the server
/// warns and continues if the system refuses.
fn lock_memory() {
    use rustix::mm::{MlockAllFlags, mlockall};
    // Only root may raise the limit; for other users the existing limit decides below.
    let _ = setrlimit(Resource::Memlock, Rlimit { current: None, maximum: None });
    if let Err(error) = mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT) {
        tracing::warn!("memory is not locked (-k): {error}; raise 'ulimit -l'");
    }
}

/// Changes to the user of `-u`. Only root can; for other users the flag has no effect, as in memcached. A server
/// started as root without `-u` stays root, because a container often has no other user.
pub(crate) fn become_user(settings: &Settings) -> Result<(), String> {
    let (Some(name), Some(user)) = (&settings.user, user(settings)?) else { return Ok(()) };
    let login =
        std::ffi::CString::new(user.name).map_err(|error| format!("bad user '{name}' (-u): {error}"))?;
    initgroups(&login, user.gid)
        .and_then(|()| setgid(user.gid))
        .and_then(|()| setuid(user.uid))
        .map_err(|error| format!("cannot become the user '{name}' (-u): {error}"))
}

/// The user that this process becomes, if it becomes another one.
fn user(settings: &Settings) -> Result<Option<User>, String> {
    let Some(name) = settings.user.as_ref().filter(|_| rustix::process::geteuid().is_root()) else {
        return Ok(None);
    };
    let by_number =
        || name.parse().ok().and_then(|number| User::from_uid(Uid::from_raw(number)).ok().flatten());
    User::from_name(name)
        .ok()
        .flatten()
        .or_else(by_number)
        .map(Some)
        .ok_or_else(|| format!("there is no user '{name}' (-u): name one that 'getent passwd' lists"))
}

/// A pidfile that exists as long as this value.
pub(crate) struct Pidfile(Option<PathBuf>);

impl Pidfile {
    /// Writes the id of this process if the settings name a file. It must run before [`become_user`], because the
    /// directory often belongs to root.
    pub(crate) fn write(settings: &Settings) -> Result<Pidfile, String> {
        let Some(path) = &settings.pidfile else { return Ok(Pidfile(None)) };
        if let Some(other) = running(path) {
            tracing::warn!("{} held the number of a running process, {other}", path.display());
        }
        std::fs::write(path, format!("{}\n", std::process::id())).map_err(|error| {
            format!(
                "cannot write the pidfile {} (-P): {error}; name a file in a writable folder",
                path.display()
            )
        })?;
        Ok(Pidfile(Some(path.clone())))
    }
}

impl Drop for Pidfile {
    fn drop(&mut self) {
        if let Some(path) = &self.0
            && let Err(error) = std::fs::remove_file(path)
        {
            // After `-u`, the directory may belong to another user.
            tracing::info!("could not remove the pidfile {}: {error}", path.display());
        }
    }
}

/// The process named in a pidfile, if it is running.
fn running(path: &Path) -> Option<i32> {
    let number: i32 = std::fs::read_to_string(path).ok()?.trim().parse().ok()?;
    let pid = rustix::process::Pid::from_raw(number)?;
    rustix::process::test_kill_process(pid).is_ok().then_some(number)
}
