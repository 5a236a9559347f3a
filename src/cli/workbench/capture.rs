//! `larder capture`.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use larder_sim::SourceError;
use larder_sim::capture::Listener;
use larder_sim::capture::packets::{PORTS, Packets};
use larder_sim::capture::server::Capture;
use larder_sim::progress::Progress;
use larder_sim::replay::{Protocol, Server};
use larder_sim::trace::events::Teller;
use larder_sim::trace::{self as traces, Filled, Format, Known, write};

use super::failure::Failure;
use super::interrupt::Interrupt;
use super::output::print;
use super::source::credentials;
use super::trace::{TargetArgs, copy};
use super::values::{count, number_and_unit, written_format};

/// Flags of `larder capture`.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct CaptureArgs {
    /// Address of the server: host:port, [v6]:port, or the path of a UNIX socket; or a file of packets as `tcpdump -w`
    /// writes it (pcap or pcapng, also compressed with zstd, gzip or xz; - is standard input)
    #[arg(value_name = "ADDR|FILE")]
    server: String,
    /// The trace to write; a suffix .zst, .gz or .xz compresses it
    #[arg(long, short, value_name = "OUT")]
    out: PathBuf,
    /// What the server is [default: it is asked for its version]
    #[arg(long, value_name = "SERVER")]
    from: Option<From>,
    /// Ports of the servers in a file of packets, such as 11211,6379 [default: 11211,6379]
    #[arg(long, value_name = "PORTS", value_delimiter = ',')]
    port: Vec<u16>,
    /// Stop after this time, such as 30s, 5m or 2h; of a file, so much of its time is read [default: at Ctrl-C]
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    lasts: Option<Duration>,
    /// Stop after this many requests, such as 10m
    #[arg(long, value_name = "REQUESTS", value_parser = count)]
    limit: Option<u64>,
    /// User name for RESP's AUTH or memcached's ASCII authentication
    #[arg(long, value_name = "USER", requires = "password_file")]
    user: Option<String>,
    /// File whose first line is the password
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Format of the trace: oracle-general, twitter, csv or keys [default: by its name, else csv]
    #[arg(long, value_name = "FORMAT", value_parser = written_format)]
    to: Option<Format>,
    /// Overwrite the file if it exists
    #[arg(long)]
    force: bool,
    /// Print nothing but errors
    #[arg(long, short)]
    quiet: bool,
}

const AFTER_HELP: &str = "\
Keys become numbers: the trace has no text of a key, and no value. The size of an item that a read has missed is that
of a later store of its key. `larder mrc` and `larder plan` read the trace.

memcached and Larder tell by `watch`, which slows them down little; what they leave out is counted. Redis and Valkey
tell by MONITOR, which can take a half of their throughput. Packets ask nothing of the server, and the answers in them
tell what was found: `tcpdump -i any -w FILE port 11211`.";

#[derive(Clone, Copy, ValueEnum)]
enum From {
    Memcached,
    Larder,
    Redis,
}

/// A file that is removed at the end.
struct Spool(PathBuf);

impl Drop for Spool {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Runs the command.
pub(super) fn run(args: &CaptureArgs) -> Result<(), Failure> {
    let target = TargetArgs { out: args.out.clone(), to: args.to, force: args.force, quiet: args.quiet };
    target.may_be_written()?;
    let (name, mut listener) = args.listener()?;
    let spool = Spool(spool_of(&args.out));
    let listened = listen(args, listener.as_mut(), &spool.0)?;
    if listened.requests == 0 {
        let why = listened.failed.map_or_else(|| args.nothing(&name, listener.notice()), |error| error.0);
        return Err(Failure::Failed(why));
    }
    if !args.quiet {
        if let Some(notice) = listener.notice() {
            print(&format!("notice: {notice}\n"))?;
        }
        if let Some((ratio, reads)) = listener.hit_ratio() {
            print(&format!("{name}: {:.2} % of {reads} reads have hit\n", ratio * 100.0))?;
        }
    }
    let open = || {
        traces::open(&spool.0, &traces::Options { format: Some(Format::Csv), ..traces::Options::default() })
    };
    let known = Known::learn(open()?.as_mut())?;
    let to = args.to.or_else(|| write::format_by_name(&args.out)).unwrap_or(Format::Csv);
    copy(Box::new(Filled::new(open()?, known)), &target, to, "capture")?;
    match (listened.failed, listened.ended) {
        (Some(error), _) => Err(Failure::Failed(format!("{error}; the trace has what came before"))),
        (None, Some((status, done))) => {
            Err(Failure::Interrupted(status, format!("{done}: the trace is incomplete")))
        }
        (None, None) => Ok(()),
    }
}

impl CaptureArgs {
    /// The file of packets, if it is one that is to be read.
    fn file(&self) -> Option<&Path> {
        let path = Path::new(&self.server);
        match std::fs::metadata(path) {
            _ if self.server == "-" => Some(Path::new("/dev/stdin")),
            Ok(meta) => (!meta.file_type().is_socket() && !meta.is_dir()).then_some(path),
            // A name that no host has.
            Err(_) => {
                let is_packets = path.extension().is_some_and(|end| end == "pcap" || end == "pcapng");
                is_packets.then_some(path)
            }
        }
    }

    /// Who hears the requests, and its name for messages.
    fn listener(&self) -> Result<(String, Box<dyn Listener>), Failure> {
        if let Some(path) = self.file() {
            if self.from.is_some() || self.password_file.is_some() {
                let why =
                    "--from and --password-file are for a running server, and this is a file of packets";
                return Err(Failure::Usage(format!("{}: {why}", path.display())));
            }
            let ports = if self.port.is_empty() { &PORTS } else { self.port.as_slice() };
            let packets = Packets::open(path, ports, self.lasts)?;
            return Ok((path.display().to_string(), Box::new(packets)));
        }
        if !self.port.is_empty() {
            return Err(Failure::Usage(format!(
                "--port is for a file of packets, and there is no file {}; an address has its port behind a colon",
                self.server
            )));
        }
        let server = Server::parse(&self.server).map_err(Failure::Unreachable)?;
        let protocol = self.from.map(|from| match from {
            From::Memcached | From::Larder => Protocol::Memcached,
            From::Redis => Protocol::Resp,
        });
        let credentials = credentials(self.user.as_deref(), self.password_file.as_deref())?;
        let capture =
            Capture::begin(&server, protocol, credentials.as_ref()).map_err(Failure::Unreachable)?;
        if capture.teller() == Teller::Monitor && !self.quiet {
            eprintln!("larder: {server} tells by MONITOR, which can take a half of its throughput");
        }
        Ok((server.to_string(), Box::new(capture)))
    }

    /// What to say where nothing was asked for.
    fn nothing(&self, name: &str, notice: Option<String>) -> String {
        let ports = if self.port.is_empty() { &PORTS } else { self.port.as_slice() };
        let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
        let notice = notice.map_or(String::new(), |notice| format!(" ({notice})"));
        match self.file() {
            Some(_) => format!(
                "{name}: no client has asked for a key at port {}: --port names others{notice}",
                ports.join(" or ")
            ),
            None => format!("{name}: no client has asked for a key"),
        }
    }
}

/// What was listened to.
struct Listened {
    requests: u64,
    /// Why it ended early.
    failed: Option<SourceError>,
    /// The exit status, and how far a file was read, where a signal came before its end.
    ended: Option<(u8, String)>,
}

/// Where the requests are until the sizes of their items are known.
fn spool_of(out: &Path) -> PathBuf {
    let name = out.file_name().unwrap_or_default().to_string_lossy().into_owned();
    out.with_file_name(format!(".{name}.{}.captured", std::process::id()))
}

/// Writes what clients ask for to `spool` until it is time to stop.
fn listen(args: &CaptureArgs, listener: &mut dyn Listener, spool: &Path) -> Result<Listened, Failure> {
    let interrupt = Interrupt::wait()?;
    let mut progress = Progress::new("capture", args.quiet);
    let mut writer = write::Writer::create(spool, Format::Csv, listener.fields(), true)?;
    let (began, mut requests, mut chunk) = (Instant::now(), 0u64, Vec::new());
    let most = args.limit.unwrap_or(u64::MAX);
    // A file has a time of its own.
    let lasts = args.lasts.filter(|_| args.file().is_none());
    let (mut goes_on, mut failed) = (true, None);
    while goes_on && requests < most {
        let follows = listener.take(&mut chunk).unwrap_or_else(|error| {
            failed = Some(error);
            false
        });
        goes_on = follows
            && !interrupt.stop.load(Ordering::Relaxed)
            && lasts.is_none_or(|lasts| began.elapsed() < lasts);
        if !goes_on {
            listener.end(&mut chunk);
        }
        chunk.truncate(usize::try_from(most - requests).unwrap_or(usize::MAX));
        requests += chunk.len() as u64;
        writer.write(&chunk)?;
        chunk.clear();
        let of_time = lasts.map_or(0.0, |lasts| began.elapsed().as_secs_f64() / lasts.as_secs_f64());
        let ratio = listener.done_ratio().unwrap_or(0.0).max(of_time).max(requests as f64 / most as f64);
        progress.set(ratio, &format!("{requests} requests"));
    }
    writer.finish(&mut |_| {})?;
    progress.finish();
    // What has no end of its own ends by a signal.
    let has_end = args.file().is_some_and(Path::is_file);
    let ended = if has_end && requests > 0 {
        interrupt.ended((requests, "requests"), listener.done_ratio())?
    } else {
        None
    };
    Ok(Listened { requests, failed, ended })
}

/// A time such as `30s`, `5m`, `2h`; a number alone is seconds.
fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}' is not a time: give one such as 30s, 5m or 2h");
    let (number, unit) = number_and_unit(text).ok_or_else(wrong)?;
    let seconds = match unit {
        "" | "s" => number,
        "m" | "min" => number * 60.0,
        "h" => number * 3600.0,
        _ => return Err(wrong()),
    };
    Duration::try_from_secs_f64(seconds).ok().filter(|time| !time.is_zero()).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_unit() {
        for (text, seconds) in [("90", 90), ("30s", 30), ("5m", 300), ("2h", 7200)] {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)));
        }
        for text in ["", "0", "5x", "-1", "m"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
