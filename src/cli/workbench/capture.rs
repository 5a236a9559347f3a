//! `larder capture`.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use larder_sim::capture::Capture;
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
    /// Address of the server: host:port, [v6]:port, or the path of a UNIX socket
    #[arg(value_name = "ADDR")]
    server: String,
    /// The trace to write; a suffix .zst, .gz or .xz compresses it
    #[arg(long, short, value_name = "OUT")]
    out: PathBuf,
    /// What the server is [default: it is asked for its version]
    #[arg(long, value_name = "SERVER")]
    from: Option<From>,
    /// Stop after this time, such as 30s, 5m or 2h [default: at Ctrl-C]
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
Keys become numbers: the trace has no text of a key, and values are never seen. The size of an item that a read has
missed is that of a later store of its key. `larder mrc` and `larder plan` read the trace.

memcached and Larder tell by `watch`, which slows them down little; what they leave out is counted. Redis and Valkey
tell by MONITOR, which can take a half of their throughput.";

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
    let server = Server::parse(&args.server).map_err(Failure::Unreachable)?;
    let protocol = args.from.map(|from| match from {
        From::Memcached | From::Larder => Protocol::Memcached,
        From::Redis => Protocol::Resp,
    });
    let credentials = credentials(args.user.as_deref(), args.password_file.as_deref())?;
    let mut capture =
        Capture::begin(&server, protocol, credentials.as_ref()).map_err(Failure::Unreachable)?;
    if capture.teller() == Teller::Monitor && !args.quiet {
        eprintln!("larder: {server} tells by MONITOR, which can take a half of its throughput");
    }
    let spool = Spool(spool_of(&args.out));
    let requests = listen(args, &mut capture, &spool.0)?;
    if requests == 0 {
        return Err(Failure::Failed(format!("{server}: no client has asked for a key")));
    }
    if !args.quiet {
        if let Some(notice) = capture.notice() {
            print(&format!("notice: {notice}\n"))?;
        }
        if let Some((ratio, reads)) = capture.hit_ratio() {
            print(&format!("{server}: {:.2} % of {reads} reads have hit\n", ratio * 100.0))?;
        }
    }
    let open = || {
        traces::open(&spool.0, &traces::Options { format: Some(Format::Csv), ..traces::Options::default() })
    };
    let known = Known::learn(open()?.as_mut())?;
    let to = args.to.or_else(|| write::format_by_name(&args.out)).unwrap_or(Format::Csv);
    copy(Box::new(Filled::new(open()?, known)), &target, to, "capture").map(|_| ())
}

/// Where the requests are until the sizes of their items are known.
fn spool_of(out: &Path) -> PathBuf {
    let name = out.file_name().unwrap_or_default().to_string_lossy().into_owned();
    out.with_file_name(format!(".{name}.{}.captured", std::process::id()))
}

/// Writes what clients ask for to `spool` until it is time to stop. Returns the number of requests.
fn listen(args: &CaptureArgs, capture: &mut Capture, spool: &Path) -> Result<u64, Failure> {
    let interrupt = Interrupt::wait()?;
    let mut progress = Progress::new("capture", args.quiet);
    let mut writer = write::Writer::create(spool, Format::Csv, capture.fields(), true)?;
    let (began, mut requests, mut chunk) = (Instant::now(), 0u64, Vec::new());
    let most = args.limit.unwrap_or(u64::MAX);
    let mut goes_on = true;
    while goes_on && requests < most {
        goes_on = capture.take(&mut chunk)
            && !interrupt.stop.load(Ordering::Relaxed)
            && args.lasts.is_none_or(|lasts| began.elapsed() < lasts);
        if !goes_on {
            capture.end(&mut chunk);
        }
        chunk.truncate(usize::try_from(most - requests).unwrap_or(usize::MAX));
        requests += chunk.len() as u64;
        writer.write(&chunk)?;
        chunk.clear();
        let of_time = args.lasts.map_or(0.0, |lasts| began.elapsed().as_secs_f64() / lasts.as_secs_f64());
        progress.set(of_time.max(requests as f64 / most as f64), &format!("{requests} requests"));
    }
    writer.finish(&mut |_| {})?;
    progress.finish();
    Ok(requests)
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
