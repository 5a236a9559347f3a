//! The decompressed bytes of a trace file, in one buffer.

use std::fs::File;
use std::io::{self, BufReader, Chain, Cursor, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::SourceError;

/// Bytes per read.
const BUFFER_BYTES: usize = 256 * 1024;

const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
const GZIP: &[u8] = &[0x1f, 0x8b];
const XZ: &[u8] = &[0xfd, b'7', b'z', b'X', b'Z', 0x00];

/// zstd's largest window (`--long=31`).
const ZSTD_WINDOW_LOG_MAX: u32 = 31;

/// A file that counts the bytes read from it, for the progress.
struct Counted {
    file: File,
    read_bytes: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let got = self.file.read(into)?;
        self.read_bytes.fetch_add(got as u64, Ordering::Relaxed);
        Ok(got)
    }
}

/// Whether there is more to read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    NotYet,
    Whole,
    Cut,
}

/// A file that is decompressed as it is read. Bytes that were read and not yet consumed are [`Input::pending`].
pub(crate) struct Input {
    path: PathBuf,
    reader: Box<dyn Read + Send>,
    compression: Option<&'static str>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    state: End,
    file_bytes: Option<u64>,
    read_bytes: Arc<AtomicU64>,
}

impl Input {
    /// Opens a file and detects its compression from its first bytes. Nothing seeks, so a pipe works.
    pub(crate) fn open(path: &Path) -> Result<Input, SourceError> {
        let cannot = |error: io::Error| SourceError::new(format!("{}: {error}", path.display()));
        let file = File::open(path).map_err(cannot)?;
        let meta = file.metadata().map_err(cannot)?;
        if meta.is_dir() {
            return Err(SourceError::new(format!("{}: is a folder", path.display())));
        }
        let read_bytes = Arc::new(AtomicU64::new(0));
        let counted = Counted { file, read_bytes: read_bytes.clone() };
        let (compression, reader) = decompressed(counted).map_err(cannot)?;
        Ok(Input {
            path: path.to_owned(),
            reader,
            compression,
            buffer: vec![0; BUFFER_BYTES],
            start: 0,
            end: 0,
            state: End::NotYet,
            file_bytes: meta.is_file().then_some(meta.len()),
            read_bytes,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The path for messages.
    pub(crate) fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// The name of the file without its folder.
    pub(crate) fn file_name(&self) -> String {
        self.path.file_name().unwrap_or(self.path.as_os_str()).to_string_lossy().into_owned()
    }

    /// The bytes that were read and not yet consumed.
    #[inline]
    pub(crate) fn pending(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Consumes the first `bytes` of [`Input::pending`].
    #[inline]
    pub(crate) fn consume(&mut self, octets: usize) {
        self.start += octets;
        debug_assert!(self.start <= self.end);
    }

    /// Reads more bytes behind the pending ones. Returns false at the end. A truncated compressed stream ends
    /// normally; see [`Input::is_cut`].
    pub(crate) fn more(&mut self) -> Result<bool, SourceError> {
        if self.state != End::NotYet {
            return Ok(false);
        }
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.end == self.buffer.len() {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        loop {
            match self.reader.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.state = End::Whole,
                Ok(got) => self.end += got,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => self.state = End::Cut,
                Err(error) => return Err(self.broken(&error)),
            }
            return Ok(self.state == End::NotYet);
        }
    }

    fn broken(&self, error: &io::Error) -> SourceError {
        let read_bytes = self.read_bytes.load(Ordering::Relaxed);
        match self.compression {
            Some(compression) => SourceError::new(format!(
                "{}: broken {compression} data within the first {read_bytes} bytes: {error}",
                self.name()
            )),
            None => SourceError::new(format!("{}: {error}", self.name())),
        }
    }

    /// Reads until `octets` bytes are pending or the input ends.
    pub(crate) fn read_ahead(&mut self, octets: usize) -> Result<(), SourceError> {
        while self.end - self.start < octets && self.more()? {}
        Ok(())
    }

    /// Whether the compressed stream was truncated.
    pub(crate) fn is_cut(&self) -> bool {
        self.state == End::Cut
    }

    /// A remark for the user if the stream was truncated.
    pub(crate) fn notice(&self) -> Option<String> {
        self.is_cut().then(|| {
            format!(
                "{}: the {} stream breaks off; what could be read of it counts",
                self.name(),
                self.compression.unwrap_or_default()
            )
        })
    }

    /// The length of the file, if it is known and not compressed.
    pub(crate) fn plain_bytes(&self) -> Option<u64> {
        self.file_bytes.filter(|_| self.compression.is_none())
    }

    /// The share of the file that has been read, from 0 to 1.
    pub(crate) fn done_ratio(&self) -> Option<f64> {
        let file_bytes = self.file_bytes.filter(|&bytes| bytes > 0)?;
        let mut read_bytes = self.read_bytes.load(Ordering::Relaxed);
        if self.compression.is_none() {
            read_bytes = read_bytes.saturating_sub((self.end - self.start) as u64);
        }
        Some((read_bytes as f64 / file_bytes as f64).min(1.0))
    }
}

type Plain = BufReader<Chain<Cursor<Vec<u8>>, Counted>>;

/// Adds a decompressor if the first bytes show a compression.
fn decompressed(mut counted: Counted) -> io::Result<(Option<&'static str>, Box<dyn Read + Send>)> {
    let mut magic = Vec::with_capacity(XZ.len());
    (&mut counted).take(XZ.len() as u64).read_to_end(&mut magic)?;
    let (is_zstd, is_gzip, is_xz) = (is_zstd(&magic), starts(&magic, GZIP), starts(&magic, XZ));
    let plain: Plain = BufReader::with_capacity(BUFFER_BYTES, Cursor::new(magic).chain(counted));
    Ok(if is_zstd {
        let mut decoder = zstd::stream::read::Decoder::with_buffer(plain)?;
        decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
        (Some("zstd"), Box::new(decoder))
    } else if is_gzip {
        (Some("gzip"), Box::new(flate2::bufread::MultiGzDecoder::new(plain)))
    } else if is_xz {
        (Some("xz"), Box::new(liblzma::bufread::XzDecoder::new_multi_decoder(plain)))
    } else {
        (None, Box::new(plain))
    })
}

/// Whether this is a zstd frame, or one of the skippable frames with which parallel compressors start.
fn is_zstd(magic: &[u8]) -> bool {
    let skippable = magic.len() >= 4 && magic[0] & 0xf0 == 0x50 && magic[1..4] == [0x2a, 0x4d, 0x18];
    skippable || starts(magic, ZSTD)
}

/// Whether a file starts with `with`, or ends within it after at least two bytes.
fn starts(magic: &[u8], with: &[u8]) -> bool {
    magic.starts_with(with) || (magic.len() >= 2 && with.starts_with(magic))
}
