//! The server from settings to the last closed connection.

use crate::admin;
use crate::admin::process::{
    Signal, SignalThread, Start, hold_reloads, notify_ready, notify_reloaded, notify_reloading,
    notify_stopping, on_signals, start_watchdog, when_ready, write_whole,
};
use crate::cpus;
use crate::dispatch::live::{Follower, Running};
use crate::dispatch::{Dispatcher, Drivers, RespShared, ServerState, Users};
use crate::error::RunError;
use crate::flash::{self, OpenFlash};
use crate::io::{self, Buffers, Inherited, ListenAddress, ListenOptions, SESSION_BYTES, Stopper};
use crate::keep;
use crate::latency::WorkerLatency;
use crate::metrics::{Metrics, Ticks};
use crate::prefault::prefault;
use crate::settings::{self, Host, Pages, Settings};
use crate::startup_warnings::{Machine, startup_warnings};
use crate::tls::Tls;
use larder_cache::{Cache, CacheOptions, NumaNodes, PagesWanted};
use signal_hook::iterator::Signals;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long a graceful stop waits for requests in flight.
const GRACE: Duration = Duration::from_secs(10);
/// How long an ordinary stop waits until replies are sent.
const STOP: Duration = Duration::from_millis(500);

fn refuse(error: impl std::fmt::Display) -> RunError {
    RunError(error.to_string())
}

/// Serves until it is told to stop by a signal or a client. `host` is asked for the settings on SIGHUP.
///
/// # Errors
/// What kept the server from starting (memory, pages, addresses, the file of users, the admin address), or what ended a
/// worker early.
pub fn run(settings: Settings, host: Arc<dyn Host>) -> Result<(), RunError> {
    // First, while the process has one thread.
    let inherited = Inherited::take()?;
    let users = Users::of(&settings).map_err(RunError)?;
    if let Some(stranger) = users.as_ref().and_then(Users::stranger) {
        return Err(refuse(stranger));
    }
    users.iter().for_each(Users::log_warnings);
    let flash = flash::open(&settings)?;
    let served = serve(&settings, host, users, flash.as_ref(), inherited);
    match (served, flash) {
        // Signals are still handled: a second one ends a save that takes too long.
        (Ok((cache, state, _signals)), Some(flash)) => flash.close(Some(&cache), &state.in_effect()),
        // Nothing was served, so the content of the flash has not changed.
        (Err(Ended::AtStart(error)), flash) => {
            if let Some(flash) = flash {
                flash.close(None, &settings);
            }
            return Err(error);
        }
        // Memory may hold newer versions of items than flash after a failure: the next start is one after a crash.
        (Err(Ended::Early(error)), _) => return Err(error),
        (Ok((cache, state, _signals)), None) => keep::end(&cache, state.settings()),
    }
    tracing::info!("stopped");
    Ok(())
}

/// Why serving ended without being told to.
enum Ended {
    AtStart(RunError),
    Early(RunError),
}

impl From<RunError> for Ended {
    fn from(error: RunError) -> Ended {
        Ended::AtStart(error)
    }
}

/// Serves until told to stop. Returns the cache and the state, which no worker uses any more, and the thread that
/// handles signals.
fn serve(
    settings: &Settings,
    host: Arc<dyn Host>,
    users: Option<Users>,
    flash: Option<&OpenFlash>,
    inherited: Inherited,
) -> Result<(Arc<Cache>, Arc<ServerState>, SignalThread), Ended> {
    let level = flash.map(|flash| flash.level(settings));
    let nodes = cpus::nodes(settings);
    let options = CacheOptions { nodes: nodes.clone(), ..cache_options(settings) };
    let cache = Cache::with_flash(options, level).map_err(refuse)?;
    keep::announce(&cache, settings);
    cache.set_namespaces(&settings.namespaces, settings.prefix_delimiter).map_err(RunError)?;
    let may_share = settings::may_share_dictionaries(&settings.namespaces, &settings.user_namespaces);
    cache.share_dictionaries(may_share);
    let ring_buffers = ring_buffers(settings, &cache)?;
    let tls =
        settings.tls.enabled.then(|| Tls::load(&settings.tls)).transpose().map_err(RunError)?.map(Arc::new);
    let options = listen_options(settings, &cache, ring_buffers, tls.clone());
    let signals = hold_reloads().map_err(cannot_wait)?;
    let bound = io::bind(&options, &inherited)?;
    // The listeners have descriptors of their own.
    drop(inherited);
    bound.buffers().set_sessions_limit_bytes(cache.sessions_cap_bytes());
    let buffers = bound.buffers();
    cache.measure_buffers_by(move || buffers.used_bytes());
    let description = flash.map(|flash| flash.describe());
    let state = Arc::new(ServerState::new(
        settings.clone(),
        users,
        Some(drivers(&bound, tls)),
        description,
        Some(host),
    ));
    state.open_databases(&cache);
    let shared = Arc::new(RespShared::new(&state));
    let watch = state.watch().clone();
    let told = shared.clone();
    cache.on_departure(move |gone| {
        watch.tell_departure(gone);
        told.note_departure(gone);
    });
    let told = shared.clone();
    cache.on_change(move |change| told.note_change(change));
    let latency: Arc<[Arc<WorkerLatency>]> =
        (0..settings.threads).map(|_| Arc::from(WorkerLatency::new())).collect();

    // A service manager takes the end of a reload for readiness.
    let is_ready = Arc::new(AtomicBool::new(false));
    let signals = obey_signals(signals, bound.stopper(), state.clone(), cache.clone(), is_ready.clone())?;

    let (counters, stopping) = (bound.counters(), bound.stopper());
    let ticks: Ticks = Arc::new(move || (!stopping.is_stopping()).then(|| counters.ticks()));
    let serves = places(&bound);
    let metrics = Metrics::new(cache.clone(), state.clone(), latency.clone(), ticks.clone(), serves);
    let metrics = Arc::new(metrics);
    if settings.prefault {
        let stopper = bound.stopper();
        prefault(&cache, || !stopper.is_stopping()).map_err(RunError)?;
    }
    let admin = start_admin(settings, metrics)?;
    let keeper = cache.keep().map_err(|error| RunError(format!("cannot start the keeper: {error}")))?;
    announce(settings, &bound, &cache, admin.as_ref(), flash);
    write_ports(&bound)?;

    let (service_cache, service_state) = (cache.clone(), state.clone());
    let running = bound
        .start(move |number| {
            let node = cpus::pin(service_state.settings(), &nodes, number);
            let worker = service_cache.worker_on(node);
            Dispatcher::new(worker, number, service_state.clone(), shared.clone(), latency[number].clone())
        })
        .map_err(Ended::Early)?;
    tell_when_ready(settings, &cache, running.stopper(), is_ready);
    start_watchdog(move || ticks());
    let ended = running.join();
    notify_stopping();
    cache.stop_keeper();
    let _ = keeper.join();
    if let Some(admin) = admin {
        admin.stop();
    }
    ended.map_err(|error| Ended::Early(RunError(format!("a worker ended early: {error}"))))?;
    Ok((cache, state, signals))
}

/// What the state shows and changes of the sockets.
fn drivers(bound: &io::Bound, tls: Option<Arc<Tls>>) -> Drivers {
    let stopper = bound.stopper();
    Drivers {
        counters: bound.counters(),
        registry: bound.registry(),
        buffers: bound.buffers(),
        limits: Some(bound.limits()),
        bells: Some(bound.bells()),
        backend: bound.backend(),
        resp_ports: bound.addresses().resp.iter().map(SocketAddr::port).collect(),
        tls,
        on_shutdown: Some(Box::new(move |graceful| {
            stopper.stop_gracefully(if graceful { GRACE } else { STOP });
        })),
    }
}

/// Stops the server, or reads its settings again, when a signal says so. A service manager is told of a reload once
/// the server `is_ready`.
fn obey_signals(
    signals: Signals,
    stopper: Stopper,
    state: Arc<ServerState>,
    cache: Arc<Cache>,
    is_ready: Arc<AtomicBool>,
) -> Result<SignalThread, RunError> {
    let mut follower = Follower::new(state.settings());
    let obey = move |signal| match signal {
        Signal::Stop => stopper.stop_gracefully(STOP),
        Signal::StopGracefully => stopper.stop_gracefully(GRACE),
        Signal::Reload => {
            let tell = is_ready.load(Ordering::Acquire);
            if tell {
                notify_reloading();
            }
            follower.reload(&Running { state: &state, cache: &cache });
            let settings = state.in_effect();
            if settings.auth_file.is_none() && !settings.tls.enabled && settings.config_file.is_none() {
                tracing::info!(
                    target: "larder::start",
                    "SIGHUP: there is nothing to read again: no users (-Y), certificates (-Z), settings file (--config)"
                );
            }
            if tell {
                notify_reloaded();
            }
        }
    };
    on_signals(signals, obey).map_err(cannot_wait)
}

fn cannot_wait(error: std::io::Error) -> RunError {
    RunError(format!("cannot wait for signals: {error}"))
}

/// Says that the server is ready once everything that flash kept can be found. Clients are answered before that, too.
fn tell_when_ready(settings: &Settings, cache: &Arc<Cache>, stopper: Stopper, is_ready: Arc<AtomicBool>) {
    let (settings, cache) = (settings.clone(), cache.clone());
    let look = move || match cache.flash_tier() {
        _ if stopper.is_stopping() => Start::Stopping,
        Some(flash) if flash.is_recovering() => Start::Recovering,
        _ => Start::Ready,
    };
    when_ready(look, move || {
        notify_ready(&settings);
        is_ready.store(true, Ordering::Release);
    });
}

/// The receive buffers of each worker.
fn ring_buffers(settings: &Settings, cache: &Cache) -> Result<usize, RunError> {
    let workers = settings.threads as usize;
    Buffers::ring_buffers_for(cache.buffers_cap_bytes(), workers).ok_or_else(|| {
        RunError(format!(
            "{workers} worker threads (-t) receive into {} MiB, more than half of what {} MiB (-m) leave for \
             connections: lower -t or raise -m",
            Buffers::receiving_bytes_min(workers) >> 20,
            settings.memory_bytes >> 20
        ))
    })
}

/// What would keep [`run`] from serving with these settings, as far as that can be known beforehand, in one line each.
/// Files are read and host names are looked up; no port is opened, and nothing is written.
pub fn problems_of_start(settings: &Settings) -> Vec<String> {
    let mut found: Vec<String> = settings::tcp_sockets(settings).err().into_iter().collect();
    found.extend(listening_problems(settings));
    match Users::of(settings) {
        Ok(users) => found.extend(users.as_ref().and_then(Users::stranger).map(str::to_owned)),
        Err(error) => found.push(error),
    }
    if settings.tls.enabled && settings.tls.chain_cert.is_some() {
        found.extend(Tls::load(&settings.tls).err());
    }
    // A server that runs may hold all huge pages of the machine, so that this check asks for none.
    let options = CacheOptions {
        pages: PagesWanted::Small,
        keep: None,
        device: Default::default(),
        ..cache_options(settings)
    };
    match Cache::with_flash(options, None) {
        Ok(cache) => found.extend(ring_buffers(settings, &cache).err().map(|error| error.to_string())),
        Err(error) => found.push(error.to_string()),
    }
    found.extend(settings.keep.as_deref().and_then(keep::problem_of_start));
    found.extend(flash::problems_of_start(settings));
    found
}

/// What is wrong with the addresses and the paths on which the server is to listen.
fn listening_problems(settings: &Settings) -> Vec<String> {
    let on_the_network = settings.unix_socket.is_none()
        && [settings.tcp_port, settings.udp_port].iter().any(|port| *port != settings::Port::Off);
    let addresses: Vec<ListenAddress> = match on_the_network || settings.resp_port != settings::Port::Off {
        true => settings.addresses.iter().map(listen_address).collect(),
        false => Vec::new(),
    };
    let admin = settings.admin.filter(|admin| admin.required);
    let mut found = io::problems_of_listening(&addresses, settings.unix_socket.as_deref());
    found.extend(admin.and_then(|admin| admin::problem_of_listening(admin.at)));
    found
}

/// What is probably not wanted, in one line each, as far as files say it.
pub fn doubts_of_start(settings: &Settings) -> Vec<String> {
    let is_read = settings.tls.enabled && settings.tls.chain_cert.is_some();
    let problem = is_read.then(|| Tls::load(&settings.tls).ok()?.certificate_problem()).flatten();
    let shown = settings.tls.chain_cert.as_deref().unwrap_or(Path::new("")).display();
    let told = |why| format!("the certificate {shown} (--tls-cert) {why}: clients that look will refuse it");
    problem.map(told).into_iter().collect()
}

fn cache_options(settings: &Settings) -> CacheOptions {
    CacheOptions {
        limit_bytes: settings.memory_bytes,
        item_bytes_max: settings.item_bytes_max as u64,
        evict: settings.evict,
        workers: settings.threads as usize,
        sessions_bytes: match settings.tls.enabled {
            true => u64::from(settings.connections_max) * SESSION_BYTES,
            false => 0,
        },
        buffers_bytes: settings.buffers_bytes,
        lends_buffers: true,
        pages: match settings.pages {
            Pages::Auto => PagesWanted::Auto,
            Pages::Huge => PagesWanted::Huge,
            Pages::Transparent => PagesWanted::Transparent,
            Pages::Small => PagesWanted::Small,
            Pages::Coloured => PagesWanted::Coloured,
        },
        keep: settings.keep.clone(),
        column_bytes: settings.column_bytes,
        inline_value_bytes: None,
        placement: settings.placement,
        hashpower: settings.hashpower,
        seed: None,
        temperature: settings.temperature,
        worth: settings.worth,
        compress: settings.compress.clone(),
        prefix_delimiter: settings.prefix_delimiter,
        device: settings.device,
        nodes: NumaNodes::default(),
    }
}

fn listen_options(
    settings: &Settings,
    cache: &Cache,
    ring_buffers: usize,
    tls: Option<Arc<Tls>>,
) -> ListenOptions {
    let port = |port: settings::Port| match port {
        settings::Port::Off => None,
        settings::Port::Random => Some(0),
        settings::Port::Fixed(number) => Some(number),
    };
    let on_the_network = settings.unix_socket.is_none();
    ListenOptions {
        tcp_port: port(settings.tcp_port).filter(|_| on_the_network),
        udp_port: port(settings.udp_port).filter(|_| on_the_network),
        udp_reply_bytes_per_s: settings.udp_reply_bytes_per_s,
        resp_port: port(settings.resp_port),
        addresses: settings.addresses.iter().map(listen_address).collect(),
        serves_strangers: settings::serves_strangers(settings),
        tls,
        unix: settings.unix_socket.clone().map(|path| (path, settings.unix_mask)),
        backlog: settings.backlog,
        connections_max: settings.connections_max as usize,
        connections_max_fast: settings.maxconns_fast,
        connections_per_address_max: settings.connections_per_address_max as usize,
        idle_timeout_s: settings.idle_timeout_s,
        workers: settings.threads as usize,
        backend: settings.backend,
        ring_buffers,
        buffers_limit_bytes: cache.buffers_cap_bytes(),
    }
}

fn listen_address(address: &settings::Address) -> ListenAddress {
    ListenAddress { at: address.to_string(), tls: address.tls }
}

/// Starts the admin endpoint. Where its address is taken and was not given with `--admin`, the server runs without.
fn start_admin(settings: &Settings, metrics: Arc<Metrics>) -> Result<Option<admin::AdminHandle>, RunError> {
    let Some(address) = settings.admin else { return Ok(None) };
    match admin::start(address.at, &settings.admin_hosts, metrics) {
        Ok(handle) => Ok(Some(handle)),
        Err(error) if address.required => Err(refuse(error)),
        Err(error) => {
            tracing::warn!("no admin page: {error}");
            Ok(None)
        }
    }
}

/// Writes the file of ports from which memcached's test suites learn where the server listens.
fn write_ports(bound: &io::Bound) -> Result<(), RunError> {
    let Some(path) = std::env::var_os("MEMCACHED_PORT_FILENAME").map(PathBuf::from) else { return Ok(()) };
    write_whole(&path, &bound.addresses().port_file()).map_err(|error| {
        RunError(format!("cannot write {}: {error}; see MEMCACHED_PORT_FILENAME", path.display()))
    })
}

/// Where clients reach the server.
fn places(bound: &io::Bound) -> Vec<String> {
    let addresses = bound.addresses();
    let mut places: Vec<String> = addresses.tcp.iter().map(|at| at.to_string()).collect();
    places.extend(addresses.resp.iter().map(|at| format!("{at} (RESP)")));
    places.extend(addresses.udp.iter().map(|at| format!("udp {at}")));
    places.extend(addresses.unix.iter().map(|path| path.display().to_string()));
    places
}

fn announce(
    settings: &Settings,
    bound: &io::Bound,
    cache: &Cache,
    admin: Option<&admin::AdminHandle>,
    flash: Option<&OpenFlash>,
) {
    let places = places(bound);
    let places = if places.is_empty() { "no port (-p 0)".to_owned() } else { places.join(", ") };
    tracing::info!(
        target: "larder::start",
        "listening on {}: {} MiB, {} workers, {}, {}{}{}",
        places,
        settings.memory_bytes >> 20,
        settings.threads,
        bound.backend().interface(),
        cache.pages_sentence(),
        flash.map_or(String::new(), |flash| format!("; {}", flash.sentence())),
        admin.map_or(String::new(), |admin| format!("; http://{}", admin.local_addr)),
    );
    for warning in doubts_of_start(settings) {
        tracing::warn!("{warning}");
    }
    for warning in startup_warnings(settings, bound.addresses(), Machine::here()) {
        tracing::warn!("{warning}");
    }
}
