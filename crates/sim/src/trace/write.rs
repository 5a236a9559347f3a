//! Writes a stream of requests as a trace, in any of the formats, compressed according to the file name.
//!
//! The file has a temporary name in its folder until it is complete. It is not forced to disk, so a power failure may
//! lose it. Records of oracleGeneral point forward to the next access. Therefore the records are first written
//! uncompressed into a second temporary file. Then they are walked from the end to the start, with a table of the
//! next access of each key (16 bytes per key, about 20 to 40 in memory).

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::format::Format;
use super::oracle_general::{RECORD_BYTES, Record};
use crate::mix::KeyMap;
use crate::{CHUNK_REQUESTS, Fields, Request, Source, SourceError};

/// Text is passed on when it reaches this length.
const FLUSH_BYTES: usize = 128 * 1024;

/// Records per read-modify-write step of the second pass.
const BLOCK_RECORDS: u64 = 32 * 1024;

/// A compressor, or none.
enum Sink {
    Plain(File),
    Zstd(zstd::stream::write::Encoder<'static, File>),
    Gzip(flate2::write::GzEncoder<File>),
    Xz(liblzma::write::XzEncoder<File>),
}

impl Sink {
    /// Selects the compression from the suffix of the name: `.zst`, `.gz` or `.xz`.
    fn new(file: File, name: &Path) -> io::Result<Sink> {
        let suffix = name.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        Ok(match suffix.as_str() {
            "zst" | "zstd" => {
                let mut encoder = zstd::stream::write::Encoder::new(file, 3)?;
                encoder.include_checksum(true)?;
                Sink::Zstd(encoder)
            }
            "gz" => Sink::Gzip(flate2::write::GzEncoder::new(file, flate2::Compression::default())),
            "xz" => Sink::Xz(liblzma::write::XzEncoder::new(file, 6)),
            _ => Sink::Plain(file),
        })
    }

    fn finish(self) -> io::Result<File> {
        match self {
            Sink::Plain(file) => Ok(file),
            Sink::Zstd(encoder) => encoder.finish(),
            Sink::Gzip(encoder) => encoder.finish(),
            Sink::Xz(encoder) => encoder.finish(),
        }
    }
}

impl Write for Sink {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        match self {
            Sink::Plain(file) => file.write(octets),
            Sink::Zstd(encoder) => encoder.write(octets),
            Sink::Gzip(encoder) => encoder.write(octets),
            Sink::Xz(encoder) => encoder.write(octets),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Sink::Plain(file) => file.flush(),
            Sink::Zstd(encoder) => encoder.flush(),
            Sink::Gzip(encoder) => encoder.flush(),
            Sink::Xz(encoder) => encoder.flush(),
        }
    }
}

/// A file that is removed when this value is dropped, unless it was renamed.
struct Temporary {
    path: PathBuf,
}

impl Temporary {
    /// Creates a file in the folder of `beside`, open for reading and writing.
    fn create(beside: &Path, what: &str) -> io::Result<(Temporary, File)> {
        let name = beside.file_name().unwrap_or_default().to_string_lossy().into_owned();
        for number in 0..1000 {
            let path = beside.with_file_name(format!(".{name}.{}-{number}.{what}", std::process::id()));
            match OpenOptions::new().read(true).write(true).create_new(true).open(&path) {
                Ok(file) => return Ok((Temporary { path }, file)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::other("no free temporary name"))
    }

    fn rename(&self, to: &Path) -> io::Result<()> {
        std::fs::rename(&self.path, to)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // After a rename there is no file of this name any more, and the call does nothing.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The destination of the lines or records until the file is complete.
enum Body {
    /// Lines, passed through the compressor.
    Lines { sink: Sink, format: Format, text: Vec<u8> },
    /// Records whose next accesses are not known yet.
    Records { records: File, _spool: Temporary, sink: Sink, octets: Vec<u8> },
}

/// The size of a written trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// The number of requests.
    pub requests: u64,
    /// The size of the file in bytes.
    pub file_bytes: u64,
}

/// Writes a trace. A writer that is dropped before [`Writer::finish`] leaves no file behind.
pub struct Writer {
    path: PathBuf,
    temporary: Temporary,
    fields: Fields,
    body: Body,
    requests: u64,
}

/// The format implied by a file name, if any: `oracleGeneral` anywhere in the name or `.bin`; `.csv`; `.txt` or
/// `.keys`.
pub fn format_by_name(path: &Path) -> Option<Format> {
    let name = path.file_name()?.to_string_lossy().to_ascii_lowercase();
    let stem =
        [".zst", ".zstd", ".gz", ".xz"].iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(&name);
    match stem {
        _ if name.contains("oraclegeneral") || name.contains("oracle-general") => Some(Format::OracleGeneral),
        _ if stem.ends_with(".bin") => Some(Format::OracleGeneral),
        _ if stem.contains("twitter") => Some(Format::Twitter),
        _ if stem.ends_with(".csv") => Some(Format::Csv),
        _ if stem.ends_with(".txt") || stem.ends_with(".keys") => Some(Format::Keys),
        _ => None,
    }
}

/// The known fields that a format cannot store, in words.
pub fn lost(fields: Fields, format: Format) -> Vec<&'static str> {
    let (times, sizes, others) = match format {
        Format::OracleGeneral => (true, true, false),
        Format::Twitter | Format::Csv => (true, true, true),
        _ => (false, false, false),
    };
    let mut lost = Vec::new();
    for (name, known, kept) in [
        ("times", fields.times, times),
        ("sizes", fields.sizes, sizes),
        ("operations", fields.ops, others),
        ("TTLs", fields.ttls, others),
        ("penalties", fields.penalties, others),
    ] {
        if known && !kept {
            lost.push(name);
        }
    }
    lost
}

impl Writer {
    /// Creates a file. `fields` are those that the source knows; CSV gets a column for each of them and for key and
    /// client. If `path` is a symbolic link, the file it leads to is overwritten and the link stays.
    ///
    /// # Errors
    /// The file exists and `overwrite` is false; the path is a folder, a device or a pipe; or the folder cannot be
    /// written to.
    pub fn create(
        path: &Path,
        format: Format,
        fields: Fields,
        overwrite: bool,
    ) -> Result<Writer, SourceError> {
        if !format.can_be_written() {
            return Err(SourceError::new(format!(
                "a trace cannot be written as {}: only servers do",
                format.name()
            )));
        }
        if !overwrite && path.exists() {
            return Err(SourceError::new(format!("{}: exists already", path.display())));
        }
        let begin = || -> io::Result<Writer> {
            let target = target(path)?;
            let (temporary, file) = Temporary::create(&target, "partial")?;
            let sink = Sink::new(file, path)?;
            let body = if format == Format::OracleGeneral {
                let (spool, records) = Temporary::create(&target, "records")?;
                Body::Records { records, _spool: spool, sink, octets: Vec::new() }
            } else {
                let mut text = Vec::with_capacity(FLUSH_BYTES + 256);
                if format == Format::Csv {
                    header(&mut text, fields);
                }
                Body::Lines { sink, format, text }
            };
            Ok(Writer { path: target, temporary, fields, body, requests: 0 })
        };
        begin().map_err(|error| SourceError::new(format!("{}: {error}", path.display())))
    }

    /// Writes further requests.
    ///
    /// # Errors
    /// The disk is full, or an item does not fit into 32 bits (oracleGeneral).
    pub fn write(&mut self, requests: &[Request]) -> Result<(), SourceError> {
        for request in requests {
            self.requests += 1;
            let done = match &mut self.body {
                Body::Lines { sink, format, text } => {
                    line(text, *format, self.fields, request);
                    flush(text, sink, FLUSH_BYTES)
                }
                Body::Records { records, octets, .. } => {
                    let Ok(size_bytes) = u32::try_from(request.item_bytes()) else {
                        return Err(SourceError::new(format!(
                            "{}: request {}: an item of {} bytes does not fit into 32 bits",
                            self.path.display(),
                            self.requests,
                            request.item_bytes()
                        )));
                    };
                    // Where no size is known, all items count as equal: readers leave out those without a size.
                    let size_bytes = if self.fields.sizes { size_bytes } else { 1 };
                    let (time_s, id) = (request.time_s, request.key);
                    octets.extend_from_slice(&Record { time_s, id, size_bytes, next_access: -1 }.octets());
                    flush(octets, records, FLUSH_BYTES)
                }
            };
            done.map_err(|error| SourceError::new(format!("{}: {error}", self.path.display())))?;
        }
        Ok(())
    }

    /// Completes the file and gives it its name. `progress` gets the progress of the second pass, from 0 to 1.
    ///
    /// # Errors
    /// The disk is full.
    pub fn finish(self, progress: &mut dyn FnMut(f64)) -> Result<Written, SourceError> {
        let Writer { path, temporary, body, requests, .. } = self;
        let end = || -> io::Result<Written> {
            let sink = match body {
                Body::Lines { mut sink, mut text, .. } => {
                    flush(&mut text, &mut sink, 0)?;
                    sink
                }
                Body::Records { mut records, _spool, mut sink, mut octets } => {
                    flush(&mut octets, &mut records, 0)?;
                    point_forward(&mut records, requests, progress)?;
                    records.seek(SeekFrom::Start(0))?;
                    io::copy(&mut BufReader::with_capacity(FLUSH_BYTES, records), &mut sink)?;
                    sink
                }
            };
            let file = sink.finish()?;
            let file_bytes = file.metadata()?.len();
            temporary.rename(&path)?;
            Ok(Written { requests, file_bytes })
        };
        end().map_err(|error| SourceError::new(format!("{}: {error}", path.display())))
    }
}

/// The file to which an output path leads.
fn target(path: &Path) -> io::Result<PathBuf> {
    if std::fs::metadata(path).is_ok_and(|meta| !meta.is_file()) {
        return Err(io::Error::other("is no regular file"));
    }
    match std::fs::symlink_metadata(path) {
        Ok(meta) if meta.is_symlink() => std::fs::canonicalize(path),
        _ => Ok(path.to_owned()),
    }
}

/// Writes all requests of a source as lines to a stream, such as standard output. The outer error is the source's,
/// the inner one the stream's.
///
/// # Errors
/// The source fails, or `format` is not made of lines.
pub fn stream(
    source: &mut dyn Source,
    format: Format,
    to: &mut impl Write,
) -> Result<io::Result<()>, SourceError> {
    if format == Format::OracleGeneral {
        return Err(SourceError::new("oracle-general needs a file: its records point to later ones"));
    }
    let mut text = Vec::with_capacity(FLUSH_BYTES + 256);
    if format == Format::Csv {
        header(&mut text, source.fields());
    }
    let mut chunk = Vec::with_capacity(CHUNK_REQUESTS);
    while source.fill(&mut chunk, CHUNK_REQUESTS)? > 0 {
        for request in chunk.drain(..) {
            line(&mut text, format, source.fields(), &request);
            if let Err(error) = flush(&mut text, to, FLUSH_BYTES) {
                return Ok(Err(error));
            }
        }
    }
    Ok(flush(&mut text, to, 0).and_then(|()| to.flush()))
}

/// Passes the text on if it has at least `least` bytes.
fn flush(text: &mut Vec<u8>, sink: &mut impl Write, least: usize) -> io::Result<()> {
    if text.len() >= least {
        sink.write_all(text)?;
        text.clear();
    }
    Ok(())
}

/// Walks the records from the last to the first and writes the ordinal of each key's next access into them, counted
/// from 0.
fn point_forward(records: &mut File, requests: u64, progress: &mut dyn FnMut(f64)) -> io::Result<()> {
    let mut next: KeyMap<i64> = KeyMap::default();
    let mut block = Vec::new();
    let mut end = requests;
    while end > 0 {
        let begin = end.saturating_sub(BLOCK_RECORDS);
        block.resize((end - begin) as usize * RECORD_BYTES, 0);
        records.seek(SeekFrom::Start(begin * RECORD_BYTES as u64))?;
        records.read_exact(&mut block)?;
        let (octets, _) = block.as_chunks_mut::<RECORD_BYTES>();
        let mut at = end as i64;
        for octets in octets.iter_mut().rev() {
            at -= 1;
            let mut record = Record::read(octets);
            record.next_access = next.insert(record.id, at).unwrap_or(-1);
            *octets = record.octets();
        }
        records.seek(SeekFrom::Start(begin * RECORD_BYTES as u64))?;
        records.write_all(&block)?;
        end = begin;
        progress(1.0 - end as f64 / requests as f64);
    }
    Ok(())
}

/// Writes the header with the columns for these fields.
fn header(text: &mut Vec<u8>, fields: Fields) {
    let names = [
        (fields.times, "timestamp,"),
        (true, "key,"),
        (fields.sizes, "key_size,value_size,"),
        (true, "client"),
        (fields.ops, ",op"),
        (fields.ttls, ",ttl"),
        (fields.penalties, ",penalty_us"),
    ];
    names.iter().filter(|(known, _)| *known).for_each(|(_, name)| text.extend_from_slice(name.as_bytes()));
    text.push(b'\n');
}

/// Writes a request as a line.
fn line(text: &mut Vec<u8>, format: Format, known: Fields, request: &Request) {
    match format {
        Format::Csv => fields(text, known, request),
        Format::Keys => decimal(text, request.key),
        // All others have a place for every field, or are not written as lines.
        _ => {
            let all = Fields { times: true, sizes: true, ops: true, ttls: true, penalties: known.penalties };
            fields(text, all, request);
        }
    }
    text.push(b'\n');
}

fn fields(text: &mut Vec<u8>, known: Fields, request: &Request) {
    let mut number = |shown: bool, value: u64| {
        if shown {
            decimal(text, value);
            text.push(b',');
        }
    };
    number(known.times, u64::from(request.time_s));
    number(true, request.key);
    number(known.sizes, u64::from(request.key_bytes));
    number(known.sizes, u64::from(request.value_bytes));
    number(true, u64::from(request.client));
    if known.ops {
        text.extend_from_slice(request.op.name().as_bytes());
        text.push(b',');
    }
    let mut number = |shown: bool, value: u32| {
        if shown {
            decimal(text, u64::from(value));
            text.push(b',');
        }
    };
    number(known.ttls, request.ttl_s);
    number(known.penalties, request.penalty_us);
    text.pop();
}

/// Appends a decimal number.
fn decimal(text: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    text.extend_from_slice(&digits[at..]);
}
