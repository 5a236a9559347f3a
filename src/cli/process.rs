//! What is done to the process around the server: going into the background, the log, limits, the user, the pidfile.

use std::io::{self, IsTerminal};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use larder_server::settings::{LogFormat, Settings};
use nix::unistd::{Uid, User, initgroups, setgid, setuid};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// In the environment of the process in the background: the number of the process that started it. A stale value,
/// inherited from further up, is not the parent's number and means nothing.
const BACKGROUND: &str = "LARDER_STARTED_BY";
/// How long the foreground waits for the background to answer before it leaves it alone.
const START_MAX: Duration = Duration::from_secs(60);
/// Files a server has open besides its clients: listeners, rings, the log, the admin page and its readers.
const FILES_BESIDE: u64 = 256;

/// What [`daemonize`] found.
pub(crate) enum Side {
    /// This process goes on and becomes the server.
    Server,
    /// The server runs in the background, or could not start: leave with this status.
    Done(u8),
}

/// Goes into the background when the settings ask for it. Must run before any thread: the program is started a second
/// time, so nothing is forked that holds a lock. Returns in the foreground when the server says that it is ready (as it
/// does to a service manager), or ends.
pub(crate) fn daemonize(settings: &mut Settings) -> io::Result<Side> {
    if !settings.daemonize {
        return Ok(Side::Server);
    }
    if std::env::var(BACKGROUND).is_ok_and(|by| by == std::os::unix::process::parent_id().to_string()) {
        let paths = [
            &mut settings.pidfile,
            &mut settings.unix_socket,
            &mut settings.auth_file,
            &mut settings.flash.path,
        ];
        for path in paths.into_iter().flatten() {
            *path = std::path::absolute(&*path)?;
        }
        rustix::process::setsid()?;
        std::env::set_current_dir("/")?;
        return Ok(Side::Server);
    }
    start_in_background().map(Side::Done)
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

/// Starts the log on stderr: warnings and the lines of the target `larder::start`, and more with `-v`.
pub(crate) fn start_log(settings: &Settings) {
    let level = match settings.verbosity {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let wanted =
        Targets::new().with_default(level).with_target("larder::start", level.max(LevelFilter::INFO));
    let log = tracing_subscriber::registry().with(wanted);
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr).log_internal_errors(false);
    match settings.log_format {
        LogFormat::Compact => log.with(lines.compact().with_ansi(io::stderr().is_terminal())).init(),
        LogFormat::Json => log.with(lines.json().with_ansi(false)).init(),
    }
}

/// Says in a line each: which of memcached's options change nothing here, and that there are more threads than CPUs.
/// The default number of threads is nobody's wish and stays unmentioned.
pub(crate) fn tell_doubts(settings: &Settings) {
    if !settings.without_effect.is_empty() {
        let names: Vec<&str> = settings.without_effect.iter().map(|option| option.name.as_str()).collect();
        tracing::info!(target: "larder::start", "accepted for compatibility, without effect: {}", names.join(", "));
    }
    let cpus = std::thread::available_parallelism().map_or(u32::MAX, |cpus| cpus.get() as u32);
    if settings.threads > cpus.max(Settings::default().threads) {
        tracing::warn!(
            "{} threads (-t) for {cpus} CPUs: more threads than CPUs make nothing faster",
            settings.threads
        );
    }
}

/// Raises the limits of the process: files for every connection, core files and locked memory when asked for. The
/// text of an error is one line that says what to do.
pub(crate) fn raise_limits(settings: &Settings) -> Result<(), String> {
    let files = u64::from(settings.connections_max) + 16 * u64::from(settings.threads) + FILES_BESIDE;
    raise(Resource::Nofile, files).map_err(|highest| {
        format!(
            "{} connections (-c) need {files} open files, and the limit is {highest}: lower -c, or raise 'ulimit -n'",
            settings.connections_max
        )
    })?;
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

/// Raises one limit to at least `wanted`; the error is the highest there is.
fn raise(resource: Resource, wanted: u64) -> Result<(), u64> {
    let now = getrlimit(resource);
    if now.current.is_none_or(|current| current >= wanted) {
        return Ok(());
    }
    let maximum = now.maximum.map(|maximum| maximum.max(wanted));
    setrlimit(resource, Rlimit { current: Some(wanted), maximum }).map_err(|_| now.maximum.unwrap_or(wanted))
}

/// Locks every page from the moment it is first used, so that reserved and untouched memory stays free. As in
/// memcached, a machine that does not allow it is told so and served all the same.
fn lock_memory() {
    use rustix::mm::{MlockAllFlags, mlockall};
    // Only root may raise it; for others the limit they have decides below.
    let _ = setrlimit(Resource::Memlock, Rlimit { current: None, maximum: None });
    if let Err(error) = mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT) {
        tracing::warn!("memory is not locked (-k): {error}; raise 'ulimit -l'");
    }
}

/// Becomes the user of `-u`. Only root can; for others the flag means nothing, as in memcached. A server started as
/// root without `-u` stays root and says so: inside a container that is often the only user there is.
pub(crate) fn become_user(settings: &Settings) -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let Some(name) = &settings.user else {
        tracing::info!("running as root: name another user with -u");
        return Ok(());
    };
    let by_number =
        || name.parse().ok().and_then(|number| User::from_uid(Uid::from_raw(number)).ok().flatten());
    let user = User::from_name(name)
        .ok()
        .flatten()
        .or_else(by_number)
        .ok_or_else(|| format!("there is no user '{name}' (-u): name one that 'getent passwd' lists"))?;
    let login =
        std::ffi::CString::new(user.name).map_err(|error| format!("bad user '{name}' (-u): {error}"))?;
    initgroups(&login, user.gid)
        .and_then(|()| setgid(user.gid))
        .and_then(|()| setuid(user.uid))
        .map_err(|error| format!("cannot become the user '{name}' (-u): {error}"))
}

/// A pidfile that lasts as long as this value.
pub(crate) struct Pidfile(Option<PathBuf>);

impl Pidfile {
    /// Writes the number of this process, if the settings name a file. Has to come before [`become_user`]: its
    /// directory is often root's.
    pub(crate) fn write(settings: &Settings) -> Result<Pidfile, String> {
        let Some(path) = &settings.pidfile else { return Ok(Pidfile(None)) };
        if let Some(other) = running(path) {
            tracing::warn!("{} held the number of a running process, {other}", path.display());
        }
        std::fs::write(path, format!("{}\n", std::process::id()))
            .map_err(|error| format!("cannot write the pidfile {} (-P): {error}; name a file in a folder that exists and may be written to", path.display()))?;
        Ok(Pidfile(Some(path.clone())))
    }
}

impl Drop for Pidfile {
    fn drop(&mut self) {
        if let Some(path) = &self.0
            && let Err(error) = std::fs::remove_file(path)
        {
            // After -u its directory may be another user's.
            tracing::info!("could not remove the pidfile {}: {error}", path.display());
        }
    }
}

/// The process that a pidfile names, if it runs.
fn running(path: &Path) -> Option<i32> {
    let number: i32 = std::fs::read_to_string(path).ok()?.trim().parse().ok()?;
    let pid = rustix::process::Pid::from_raw(number)?;
    rustix::process::test_kill_process(pid).is_ok().then_some(number)
}
