//! The server as a process: signals come in, readiness goes out.

use std::fs;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixDatagram};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sd_notify::NotifyState;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::{Handle, Signals};

use crate::settings::Settings;

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Stop now (SIGINT, SIGTERM).
    Stop,
    /// Finish what was begun, then stop (SIGUSR1).
    StopGracefully,
    /// Read the settings, the file of users and the certificates again (SIGHUP).
    Reload,
}

/// The thread that waits for signals. Dropping it ends the thread; signals are ignored from then on.
#[derive(Debug)]
pub struct SignalThread {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

/// From now on a reload that is asked for waits for [`on_signals`]. Before, SIGHUP ends the process. Call this before
/// clients can connect.
pub fn hold_reloads() -> io::Result<Signals> {
    Signals::new([SIGHUP])
}

/// Calls `obey` from a thread named `signals`, once for each signal, those of [`hold_reloads`] included. A second
/// [`Signal::Stop`] ends the process at once with status 1, in case the first one is stuck.
pub fn on_signals(
    mut signals: Signals,
    mut obey: impl FnMut(Signal) + Send + 'static,
) -> io::Result<SignalThread> {
    let handle = signals.handle();
    for number in [SIGINT, SIGTERM, SIGUSR1] {
        handle.add_signal(number)?;
    }
    let thread = std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let mut stopping = false;
        for number in &mut signals {
            let signal = match number {
                SIGHUP => Signal::Reload,
                SIGUSR1 => Signal::StopGracefully,
                _ => Signal::Stop,
            };
            if signal == Signal::Stop && std::mem::replace(&mut stopping, true) {
                std::process::exit(1);
            }
            obey(signal);
        }
    })?;
    Ok(SignalThread { handle, thread: Some(thread) })
}

impl Drop for SignalThread {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(thread) = self.thread.take() {
            // A panic of that thread was already reported on stderr.
            let _ = thread.join();
        }
    }
}

/// Tells the process that started the server (a service manager, or the foreground process of `-d`) that the server
/// is ready. With `-d` and without `-v`, stderr is closed then. Call this once, when every listener is open and
/// everything that the server kept can be found.
pub fn notify_ready(settings: &Settings) {
    if let Err(error) = notify(&[NotifyState::Ready]) {
        tracing::warn!("could not say that the server is ready: {error}");
    }
    if settings.daemonize
        && settings.verbosity == 0
        && let Ok(nowhere) = fs::OpenOptions::new().write(true).open("/dev/null")
        && let Err(error) = rustix::stdio::dup2_stderr(&nowhere)
    {
        tracing::warn!("stderr stays open: {error}");
    }
}

/// How often a service manager is told that the start is still under way.
const START_NEWS_EVERY: Duration = Duration::from_secs(5);
/// How much more time a service manager is asked for each time.
const START_EXTENSION: Duration = Duration::from_secs(30);
/// How often it is looked whether the server is ready.
const READY_LOOK_EVERY: Duration = Duration::from_millis(50);

/// How far a start is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Flash is still being read.
    Recovering,
    /// Everything that the server kept can be found.
    Ready,
    /// The server was told to stop.
    Stopping,
}

/// Calls `ready` once the server is ready: at once, or from a thread named `readiness` that asks `look` until then. A
/// service manager is asked for more time meanwhile. A server that is told to stop before it is ready never is.
pub fn when_ready(look: impl Fn() -> Start + Send + 'static, ready: impl FnOnce() + Send + 'static) {
    match look() {
        Start::Ready => return ready(),
        Start::Stopping => return,
        Start::Recovering => {}
    }
    let wait = move || {
        let tell = |states: &[NotifyState<'_>]| drop(notify(states));
        if wait_for_readiness(&look, &tell, &std::thread::sleep) {
            tell(&[NotifyState::Status("")]);
            ready();
        }
    };
    if let Err(error) = std::thread::Builder::new().name("readiness".to_owned()).spawn(wait) {
        tracing::warn!("nobody is told when the server is ready: {error}");
    }
}

/// Waits until the server is ready. `false` = it stops.
fn wait_for_readiness(
    look: &impl Fn() -> Start,
    tell: &impl Fn(&[NotifyState<'_>]),
    sleep: &impl Fn(Duration),
) -> bool {
    let mut until_news = Duration::ZERO;
    loop {
        match look() {
            Start::Ready => return true,
            Start::Stopping => return false,
            Start::Recovering => {}
        }
        if until_news.is_zero() {
            until_news = START_NEWS_EVERY;
            tell(&[
                NotifyState::ExtendTimeoutUsec(START_EXTENSION.as_micros() as u32),
                NotifyState::Status("flash is being read"),
            ]);
        }
        sleep(READY_LOOK_EVERY);
        until_news = until_news.saturating_sub(READY_LOOK_EVERY);
    }
}

/// Tells a service manager that the server stops.
pub fn notify_stopping() {
    // There may be no service manager, or it may not listen any more.
    let _ = notify(&[NotifyState::Stopping]);
}

/// Tells a service manager that settings are read again, until [`notify_reloaded`].
pub fn notify_reloading() {
    // Managers that know of reloads want to know when this one began.
    let since = NotifyState::monotonic_usec_now().unwrap_or(NotifyState::MonotonicUsec(0));
    let _ = notify(&[NotifyState::Reloading, since]);
}

/// Tells a service manager that settings were read again.
pub fn notify_reloaded() {
    let _ = notify(&[NotifyState::Ready]);
}

/// Tells a service manager again and again that the server works, if it asked for that (`WATCHDOG_USEC`): twice in the
/// time that it gave, and only while each worker moves. `ticks` = how often each worker has moved; `None` = the server
/// stops, and its workers need not move.
pub fn start_watchdog(ticks: impl Fn() -> Option<Vec<u64>> + Send + 'static) {
    let Some(patience) = sd_notify::watchdog_enabled() else { return };
    let watch = move || {
        let mut pulse = Pulse::new(patience.max(TICKS_MISSED_MAX), Instant::now());
        loop {
            std::thread::sleep(patience / 2);
            match ticks() {
                Some(ticks) if !pulse.all_move(&ticks, Instant::now()) => {
                    tracing::error!(
                        "a worker is stuck: the service manager is not told that the server works"
                    );
                }
                _ => {
                    let _ = notify(&[NotifyState::Watchdog]);
                }
            }
        }
    };
    // The thread lives as long as the process: writing memory to flash at the end may take long.
    if let Err(error) = std::thread::Builder::new().name("watchdog".to_owned()).spawn(watch) {
        tracing::warn!("no watchdog: {error}");
    }
}

/// A worker moves about once a second. One that has not moved for this time is stuck.
const TICKS_MISSED_MAX: Duration = Duration::from_secs(5);

/// When each worker was seen to move.
pub(crate) struct Pulse {
    patience: Duration,
    begun: Instant,
    seen: Vec<(u64, Instant)>,
}

impl Pulse {
    /// No worker was seen to move yet. One that does not for as long as `patience` is stuck.
    pub(crate) fn new(patience: Duration, begun: Instant) -> Pulse {
        Pulse { patience, begun, seen: Vec::new() }
    }

    /// Whether each worker has moved lately. `ticks` = how often each has moved.
    pub(crate) fn all_move(&mut self, ticks: &[u64], now: Instant) -> bool {
        self.seen.resize(ticks.len(), (0, self.begun));
        for ((before, at), ticks) in self.seen.iter_mut().zip(ticks) {
            if before != ticks {
                (*before, *at) = (*ticks, now);
            }
        }
        self.seen.iter().all(|(_, at)| now.saturating_duration_since(*at) < self.patience)
    }
}

/// Sends a datagram to the socket that a service manager names in `NOTIFY_SOCKET`: a path, or after an `@` a name
/// without a file, which `sd_notify::notify` does not know.
fn notify(states: &[NotifyState<'_>]) -> io::Result<()> {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return Ok(()) };
    let socket = UnixDatagram::unbound()?;
    match name.as_bytes().strip_prefix(b"@") {
        Some(name) => socket.connect_addr(&UnixAddress::from_abstract_name(name)?)?,
        None => socket.connect(&name)?,
    }
    let text: String = states.iter().map(|state| format!("{state}\n")).collect();
    socket.send(text.as_bytes()).map(drop)
}

/// Writes a file at once: it is renamed to its name when it is complete.
pub fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    let mut written = path.as_os_str().to_owned();
    written.push(".tmp");
    let written = PathBuf::from(written);
    fs::write(&written, text)?;
    fs::rename(&written, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};
    use std::sync::mpsc;

    #[test]
    fn a_file_is_written_whole_or_not_at_all() {
        let path = std::env::temp_dir().join(format!("larder-ports-{}", std::process::id()));
        write_whole(&path, "TCP INET: 5\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "TCP INET: 5\n");
        fs::remove_file(&path).unwrap();
        assert!(write_whole(Path::new("/no such folder/ports"), "").is_err());
    }

    #[test]
    fn a_worker_that_does_not_move_for_long_is_stuck() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let mut pulse = Pulse::new(Duration::from_secs(5), begun);
        assert!(pulse.all_move(&[1, 1], at(1)));
        assert!(pulse.all_move(&[4, 1], at(4)));
        assert!(!pulse.all_move(&[6, 1], at(6)));
        assert!(pulse.all_move(&[7, 2], at(7)));
        // A worker that never moved is stuck, too.
        assert!(!Pulse::new(Duration::from_secs(5), begun).all_move(&[0], at(5)));
    }

    #[test]
    fn readiness_waits_for_recovery_and_asks_for_time() {
        let (looks, asked, slept) = (Cell::new(0), RefCell::new(Vec::new()), Cell::new(Duration::ZERO));
        let look = |until: u32, then: Start| {
            let looks = &looks;
            move || {
                looks.set(looks.get() + 1);
                if looks.get() > until { then } else { Start::Recovering }
            }
        };
        let tell = |states: &[NotifyState<'_>]| {
            asked.borrow_mut().push(states.iter().map(NotifyState::to_string).collect::<Vec<_>>());
        };
        let sleep = |time: Duration| slept.set(slept.get() + time);
        assert!(wait_for_readiness(&look(0, Start::Ready), &tell, &sleep));
        assert!(asked.borrow().is_empty());
        looks.set(0);
        // Two hundred looks are ten seconds, in which the time is asked for twice.
        assert!(wait_for_readiness(&look(200, Start::Ready), &tell, &sleep));
        assert_eq!((slept.get(), asked.borrow().len()), (Duration::from_secs(10), 2));
        assert_eq!(asked.borrow()[0][0], "EXTEND_TIMEOUT_USEC=30000000");
        looks.set(0);
        assert!(!wait_for_readiness(&look(3, Start::Stopping), &tell, &sleep));
    }

    #[test]
    fn signals_reach_the_closure() {
        let (send, receive) = mpsc::channel();
        let signals = hold_reloads().unwrap();
        signal_hook::low_level::raise(SIGHUP).unwrap();
        let thread = on_signals(signals, move |signal| send.send(signal).unwrap()).unwrap();
        assert_eq!(receive.recv_timeout(Duration::from_secs(10)), Ok(Signal::Reload), "it was held");
        for (number, signal) in
            [(SIGHUP, Signal::Reload), (SIGUSR1, Signal::StopGracefully), (SIGTERM, Signal::Stop)]
        {
            signal_hook::low_level::raise(number).unwrap();
            assert_eq!(receive.recv_timeout(Duration::from_secs(10)), Ok(signal));
        }
        drop(thread);
        assert!(receive.recv().is_err());
    }
}
