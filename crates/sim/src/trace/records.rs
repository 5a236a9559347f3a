//! Traces of binary records of one length: oracleGeneral, lcs and vscsi. All numbers are little-endian.
//!
//! ```text
//! lcs     0       8          16                  8184        8192
//!       | magic | version  | statistics, unused | magic again |   then records:
//!         0      4    12     16   17       20     24    28
//!       | time | id | size  | op | client | next access |          version 2; version 1 is oracleGeneral
//!         0      4    12     20   21       24    28            36
//!       | time | id | size  | op | client | ttl | next access |     version 3; 4 to 8 have 1 to 16 more words
//!
//! vscsi   0    4     8     12    14    16    24    32
//!       | sn | len | nSG | cmd | ver | lbn | ts  |                 version 1
//!         0    2     4    8     12    16    24    32    40
//!       | cmd | ver | sn | len | nSG | lbn | ts  | rt |             version 2
//! ```
//!
//! Source: libCacheSim, `libCacheSim/traceReader/customizedReader/lcs.h` and `vscsi.h`. `ts` is in microseconds; the
//! version of vscsi is the upper byte of `ver`.

use super::clock::Clock;
use super::format::Format;
use super::input::Input;
use super::oracle_general;
use crate::{Fields, Op, Request, Source, SourceError};

/// The first and the last eight bytes of the header of lcs.
const LCS_MAGIC: u64 = 0x1234_5678_9abc_def0;
const LCS_HEADER_BYTES: usize = 8192;
/// Bytes of a record of lcs, by version from 1 on.
const LCS_RECORD_BYTES: [usize; 8] = [24, 28, 36, 40, 44, 52, 68, 100];
/// Bytes of a record of vscsi, and where `ver` stands in it, by version from 1 on.
const VSCSI_RECORDS: [(usize, usize); 2] = [(32, 14), (40, 2)];

/// How a record is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    OracleGeneral,
    /// lcs from version 2 on.
    Lcs(usize),
    Vscsi(usize),
}

/// Whether a file begins as one of lcs does.
pub(super) fn is_lcs(head: &[u8]) -> bool {
    head.first_chunk().is_some_and(|magic| u64::from_le_bytes(*magic) == LCS_MAGIC)
}

/// The version of vscsi that all records show, of which there are two at least.
pub(super) fn vscsi_version(head: &[u8]) -> Option<usize> {
    let of = |&version: &usize| {
        let (bytes, at) = VSCSI_RECORDS[version - 1];
        let shows = |octets: &[u8]| usize::from(octets[at + 1]) == version;
        head.len() >= 2 * bytes && head.chunks_exact(bytes).all(shows)
    };
    [2, 1].into_iter().find(of)
}

fn u16_at(octets: &[u8], at: usize) -> u16 {
    octets.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |two| u16::from_le_bytes(*two))
}

fn u32_at(octets: &[u8], at: usize) -> u32 {
    octets.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |four| u32::from_le_bytes(*four))
}

fn u64_at(octets: &[u8], at: usize) -> u64 {
    octets.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |eight| u64::from_le_bytes(*eight))
}

/// The operation of lcs: `req_op_e` of libCacheSim's `enum.h`. What is none counts as a read.
fn op_of_lcs(number: u8) -> Op {
    match number {
        3 | 13 | 14 => Op::Set,
        4 => Op::Add,
        5 => Op::Cas,
        6 => Op::Replace,
        7 => Op::Append,
        8 => Op::Prepend,
        9 => Op::Delete,
        10 => Op::Incr,
        11 => Op::Decr,
        _ => Op::Get,
    }
}

/// The operation of a SCSI command: WRITE with 6, 10, 12 or 16 bytes stores, all else reads.
fn op_of_scsi(command: u16) -> Op {
    match command & 0xff {
        0x0a | 0x2a | 0xaa | 0x8a => Op::Set,
        _ => Op::Get,
    }
}

impl Layout {
    /// The layout of lcs that a whole header names.
    fn of_lcs(header: &[u8]) -> Result<Layout, String> {
        if header.len() < LCS_HEADER_BYTES
            || !is_lcs(header)
            || u64_at(header, LCS_HEADER_BYTES - 8) != LCS_MAGIC
        {
            return Err(format!("has no whole header of lcs, of {LCS_HEADER_BYTES} bytes"));
        }
        match u64_at(header, 8) {
            1 => Ok(Layout::OracleGeneral),
            version @ 2..=8 => Ok(Layout::Lcs(version as usize)),
            other => Err(format!("is of version {other} of lcs; versions 1 to 8 can be read")),
        }
    }

    fn record_bytes(self) -> usize {
        match self {
            Layout::OracleGeneral => oracle_general::RECORD_BYTES,
            Layout::Lcs(version) => LCS_RECORD_BYTES[version - 1],
            Layout::Vscsi(version) => VSCSI_RECORDS[version - 1].0,
        }
    }

    /// Reads a record. The first result is its timestamp in seconds.
    #[inline]
    fn read(self, octets: &[u8]) -> (u64, Request) {
        match self {
            Layout::OracleGeneral => {
                let record = octets.first_chunk().map(oracle_general::Record::read).unwrap_or_default();
                let request =
                    Request { key: record.id, value_bytes: record.size_bytes, ..Request::default() };
                (record.time_s.into(), request)
            }
            Layout::Lcs(version) => {
                let wide = version > 2;
                let (size, at) =
                    if wide { (u64_at(octets, 12), 20) } else { (u32_at(octets, 12).into(), 16) };
                let request = Request {
                    key: u64_at(octets, 4),
                    value_bytes: size.min(u32::MAX.into()) as u32,
                    op: op_of_lcs(octets[at]),
                    client: u32_at(octets, at) >> 8,
                    // A lifetime below zero is one that nothing is known of.
                    ttl_s: if wide { u32_at(octets, 24) } else { 0 }.min(i32::MAX as u32) % i32::MAX as u32,
                    ..Request::default()
                };
                (u32_at(octets, 0).into(), request)
            }
            Layout::Vscsi(version) => {
                let (command, len, ts) = if version == 1 { (12, 4, 24) } else { (0, 8, 24) };
                let request = Request {
                    key: u64_at(octets, 16),
                    value_bytes: u32_at(octets, len),
                    op: op_of_scsi(u16_at(octets, command)),
                    ..Request::default()
                };
                (u64_at(octets, ts) / 1_000_000, request)
            }
        }
    }

    fn fields(self) -> Fields {
        let (ops, ttls) = match self {
            Layout::OracleGeneral => (false, false),
            Layout::Lcs(version) => (true, version > 2),
            Layout::Vscsi(_) => (true, false),
        };
        Fields { times: true, sizes: true, ops, ttls, penalties: false }
    }
}

/// A trace of records.
pub(super) struct Records {
    input: Input,
    format: Format,
    layout: Layout,
    clock: Clock,
    records: u64,
    half_bytes: usize,
    failed: Option<SourceError>,
}

impl Records {
    /// Reads `input` as records of this format.
    ///
    /// # Errors
    /// A header that is not whole, or a version that is not known.
    pub(super) fn new(mut input: Input, format: Format) -> Result<Records, SourceError> {
        let wrong = |input: &Input, why: String| SourceError::new(format!("{}: {why}", input.name()));
        let layout = match format {
            Format::Lcs => {
                input.read_ahead(LCS_HEADER_BYTES)?;
                let layout = Layout::of_lcs(input.pending()).map_err(|why| wrong(&input, why))?;
                input.consume(LCS_HEADER_BYTES);
                layout
            }
            Format::Vscsi => {
                input.read_ahead(2 * VSCSI_RECORDS[1].0)?;
                let version = vscsi_version(input.pending());
                let why = "its first two records are of neither version of vscsi".to_owned();
                Layout::Vscsi(version.ok_or_else(|| wrong(&input, why))?)
            }
            _ => Layout::OracleGeneral,
        };
        Ok(Records {
            input,
            format,
            layout,
            clock: Clock::default(),
            records: 0,
            half_bytes: 0,
            failed: None,
        })
    }

    /// Reads until a whole record is pending. Returns false at the end.
    fn have_record(&mut self) -> Result<bool, SourceError> {
        while self.input.pending().len() < self.layout.record_bytes() {
            if !self.input.more()? {
                self.half_bytes = self.input.pending().len();
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Source for Records {
    fn fill(&mut self, into: &mut Vec<Request>, most: usize) -> Result<usize, SourceError> {
        let mut got = 0;
        while got < most && self.failed.is_none() {
            match self.have_record() {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    self.failed = Some(error);
                    break;
                }
            }
            let (layout, record_bytes) = (self.layout, self.layout.record_bytes());
            let taken = (self.input.pending().len() / record_bytes).min(most - got);
            into.extend(self.input.pending().chunks_exact(record_bytes).take(taken).map(|octets| {
                let (timestamp_s, request) = layout.read(octets);
                // A time of 32 bits always fits; one of vscsi that does not is the latest there is.
                Request { time_s: self.clock.at(timestamp_s).unwrap_or(u32::MAX), ..request }
            }));
            self.input.consume(taken * record_bytes);
            got += taken;
        }
        self.records += got as u64;
        match &self.failed {
            Some(error) if got == 0 && most > 0 => Err(error.clone()),
            _ => Ok(got),
        }
    }

    fn fields(&self) -> Fields {
        self.layout.fields()
    }

    fn describe(&self) -> String {
        format!("{} ({})", self.input.name(), self.format.name())
    }

    fn name(&self) -> String {
        self.input.file_name()
    }

    fn done_ratio(&self) -> Option<f64> {
        self.input.done_ratio()
    }

    fn requests_hint(&self) -> Option<u64> {
        let header_bytes = if self.format == Format::Lcs { LCS_HEADER_BYTES as u64 } else { 0 };
        let record_bytes = self.layout.record_bytes() as u64;
        self.input.plain_bytes().map(|bytes| bytes.saturating_sub(header_bytes) / record_bytes)
    }

    fn notices(&self) -> Vec<String> {
        let half = (self.half_bytes > 0).then(|| {
            format!(
                "{}: ends within record {}: {} of its {} bytes are left out",
                self.input.name(),
                self.records + 1,
                self.half_bytes,
                self.layout.record_bytes()
            )
        });
        [self.input.notice(), half, self.clock.notice(&self.input.name())].into_iter().flatten().collect()
    }
}
