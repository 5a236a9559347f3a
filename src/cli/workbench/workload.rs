//! `larder workload`.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use larder_sim::progress::Progress;
use larder_sim::{CHUNK_REQUESTS, Limited, Op, Source, workload};

use super::{Failure, OutputArgs, count, print};

/// Flags of `larder workload`.
#[derive(Args)]
pub(super) struct WorkloadArgs {
    /// The law and its parameters, such as zipfian:keys=1m,requests=10m,theta=0.99,sizes=etc,penalties=lognormal
    #[arg(value_name = "WORKLOAD", required_unless_present = "list")]
    words: Option<String>,
    /// Where the requests go, as CSV with a header; - is standard output
    #[arg(value_name = "OUT", required_unless_present_any = ["list", "check"], conflicts_with = "check")]
    out: Option<PathBuf>,
    /// Say which laws and parameters there are
    #[arg(long, conflicts_with = "check")]
    list: bool,
    /// Say what the stream is like instead of writing it: operations, rates, sizes, penalties, popularity
    #[arg(long)]
    check: bool,
    /// Stop after this many requests
    #[arg(long, value_name = "REQUESTS", value_parser = count)]
    limit: Option<u64>,
    #[command(flatten)]
    output: OutputArgs,
}

/// Runs it.
pub(super) fn run(args: WorkloadArgs) -> Result<(), Failure> {
    if args.list {
        return print(&workload::list());
    }
    let mut source = workload::parse(args.words.as_deref().unwrap_or_default())?;
    if let Some(most) = args.limit {
        source = Box::new(Limited::new(source, most));
    }
    let mut progress = Progress::new("workload", args.output.quiet);
    match &args.out {
        None => {
            let report = workload::check(source.as_mut(), &mut progress)?;
            progress.finish();
            args.output.deliver(&report)
        }
        Some(out) => {
            let written = write_trace(source.as_mut(), out, &mut progress);
            progress.finish();
            written
        }
    }
}

/// Writes a source's requests to a file or, for `-`, to standard output.
fn write_trace(source: &mut dyn Source, out: &Path, progress: &mut Progress) -> Result<(), Failure> {
    let standard = out == Path::new("-");
    let cannot = |error: io::Error| Failure::Failed(format!("{}: {error}", out.display()));
    let to: Box<dyn Write> =
        if standard { Box::new(io::stdout()) } else { Box::new(File::create(out).map_err(cannot)?) };
    let mut to = BufWriter::with_capacity(1 << 16, to);
    match write_csv(source, &mut to, progress)? {
        // A reader that has seen enough, such as `head`, is no failure.
        Err(error) if standard && error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(cannot),
    }
}

/// The requests as CSV. The outer error is the source's, the inner one the writer's.
fn write_csv(
    source: &mut dyn Source,
    to: &mut impl Write,
    progress: &mut Progress,
) -> Result<io::Result<()>, Failure> {
    let mut chunk = Vec::with_capacity(CHUNK_REQUESTS);
    let mut written = writeln!(to, "timestamp,key,key_size,value_size,client,op,ttl,penalty_us");
    while written.is_ok() && source.fill(&mut chunk, CHUNK_REQUESTS)? > 0 {
        written = chunk.iter().try_for_each(|r| {
            let op = op_name(r.op);
            let (time, key, key_bytes, value_bytes) = (r.time_s, r.key, r.key_bytes, r.value_bytes);
            writeln!(
                to,
                "{time},{key},{key_bytes},{value_bytes},{},{op},{},{}",
                r.client, r.ttl_s, r.penalty_us
            )
        });
        chunk.clear();
        progress.set(source.done_ratio().unwrap_or(0.0), "");
    }
    Ok(written.and_then(|()| to.flush()))
}

/// An operation as memcached names it.
fn op_name(op: Op) -> &'static str {
    match op {
        Op::Get => "get",
        Op::Set => "set",
        Op::Add => "add",
        Op::Replace => "replace",
        Op::Cas => "cas",
        Op::Append => "append",
        Op::Prepend => "prepend",
        Op::Delete => "delete",
        Op::Incr => "incr",
        Op::Decr => "decr",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_is_written_with_a_header_and_a_line_per_request() {
        let mut source = workload::parse("uniform:keys=10,requests=100,penalties=fixed:2.5").unwrap();
        let mut text = Vec::new();
        write_csv(source.as_mut(), &mut text, &mut Progress::new("", true)).unwrap().unwrap();
        let text = String::from_utf8(text).unwrap();
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("timestamp,key,key_size,value_size,client,op,ttl,penalty_us"));
        let first: Vec<&str> = lines.next().unwrap().split(',').collect();
        assert_eq!((first[0], &first[2..]), ("0", &["24", "1000", "0", "get", "0", "2500"][..]));
        assert_eq!(lines.count(), 99);
    }

    #[test]
    fn an_output_that_cannot_be_written_is_named() {
        let mut source = workload::parse("uniform:keys=10,requests=100").unwrap();
        let mut progress = Progress::new("", true);
        let failure = write_trace(source.as_mut(), Path::new("/nowhere/at/all"), &mut progress).unwrap_err();
        assert!(matches!(failure, Failure::Failed(why) if why.starts_with("/nowhere/at/all: ")));
    }
}
