//! Traces of lines: Twitter's format, CSV with a header, and one key per line.

use super::Options;
use super::clock::Clock;
use super::columns::{self, Columns, Named, Twitter};
use super::detect::{self, BYTE_ORDER_MARK};
use super::events::{Events, Teller};
use super::field::{self, Bad};
use super::format::Format;
use super::input::Input;
use super::key::KeyReader;
use crate::{Fields, Request, Source, SourceError};

/// The longest line that is read. A file with a longer line is no trace.
const LINE_BYTES_MAX: usize = 1 << 20;

/// The layout of a line.
#[derive(Debug)]
enum Layout {
    Twitter(Twitter),
    Csv(Columns),
    Keys,
    /// What a server tells. A line may make no request, and several.
    Events(Box<Events>),
}

/// The number of skipped lines, and a description of the first.
#[derive(Debug, Default)]
struct Skipped {
    lines: u64,
    first: String,
}

/// A trace of lines.
pub(super) struct Lines {
    input: Input,
    name: String,
    layout: Layout,
    keys: KeyReader,
    clock: Clock,
    line_number: u64,
    format: Format,
    skip_bad: bool,
    skipped: Skipped,
    /// What to say of a header where none was expected.
    header: Option<String>,
    half_line: Option<u64>,
    failed: Option<SourceError>,
}

/// The end of a line found by [`Lines::next_line`]: the length of the line, and whether a line feed ends it.
struct LineEnd {
    line_bytes: usize,
    ended: bool,
}

impl Lines {
    /// Reads `input` as lines of this format.
    ///
    /// # Errors
    /// For CSV whose columns the options do not name: no header, or a header without a key.
    pub(super) fn new(mut input: Input, format: Format, options: &Options) -> Result<Lines, SourceError> {
        input.read_ahead(detect::HEAD_BYTES)?;
        if input.pending().starts_with(BYTE_ORDER_MARK) {
            input.consume(BYTE_ORDER_MARK.len());
        }
        let name = input.name();
        let layout = match format {
            Format::Twitter => {
                let seen = detect::first_lines(input.pending()).find_map(Twitter::seen_in);
                Layout::Twitter(seen.unwrap_or(Twitter { penalties: false }))
            }
            Format::Watch => Layout::Events(Box::new(Events::new(Teller::Watch))),
            Format::Monitor => Layout::Events(Box::new(Events::new(Teller::Monitor))),
            Format::Msr => Layout::Csv(Columns::of_msr()),
            _ => Layout::Keys,
        };
        let mut lines = Lines {
            input,
            name,
            layout,
            keys: KeyReader::new(),
            clock: Clock::default(),
            line_number: 0,
            format,
            skip_bad: options.skip_bad,
            skipped: Skipped::default(),
            header: None,
            half_line: None,
            failed: None,
        };
        if format == Format::Csv {
            lines.layout = Layout::Csv(match &options.columns {
                Some(named) => lines.named(named)?,
                None => lines.header()?,
            });
        }
        Ok(lines)
    }

    /// The columns that the reader names. A first line that cannot be read by them is a header, and passed over.
    fn named(&mut self, named: &Named) -> Result<Columns, SourceError> {
        let line = |nth| detect::first_lines(self.input.pending()).nth(nth).unwrap_or_default().to_vec();
        let (head, next) = (line(0), line(1));
        let mut columns = Columns::of_reader(named, &head);
        let is_header = columns.read(&head, &self.keys).is_err() && columns.read(&next, &self.keys).is_ok();
        if is_header {
            self.header = Some(format!(
                "{}: the first line, '{}', was taken for a header",
                self.name,
                field::shown(&head)
            ));
            self.first_line()?;
        }
        Ok(columns)
    }

    /// Reads the first non-empty line as the header.
    fn header(&mut self) -> Result<Columns, SourceError> {
        let header = self.first_line()?;
        Columns::from_header(&header).map_err(|why| self.error(&why))
    }

    /// Consumes the first non-empty line.
    fn first_line(&mut self) -> Result<Vec<u8>, SourceError> {
        while let Some(found) = self.next_line(false)? {
            let line = without_return(&self.input.pending()[..found.line_bytes]).to_vec();
            self.input.consume(found.line_bytes + usize::from(found.ended));
            if !line.trim_ascii().is_empty() {
                return Ok(line);
            }
        }
        Err(SourceError::new(format!("{}: is empty: there is no header", self.name)))
    }

    /// Finds and counts the next line; `None` at the end of the file. With `skip_long`, lines that are too long are
    /// skipped and counted.
    fn next_line(&mut self, skip_long: bool) -> Result<Option<LineEnd>, SourceError> {
        let mut searched = 0;
        loop {
            let pending = self.input.pending();
            if let Some(at) = pending[searched..].iter().position(|&octet| octet == b'\n') {
                self.line_number += 1;
                return Ok(Some(LineEnd { line_bytes: searched + at, ended: true }));
            }
            searched = pending.len();
            if searched > LINE_BYTES_MAX {
                self.line_number += 1;
                let why = format!("is longer than {LINE_BYTES_MAX} bytes");
                if !skip_long {
                    return Err(self.error(&why));
                }
                self.pass_line()?;
                self.skip(&Bad::new("length", why))?;
                searched = 0;
                continue;
            }
            if !self.input.more()? {
                if searched == 0 {
                    return Ok(None);
                }
                self.line_number += 1;
                return Ok(Some(LineEnd { line_bytes: searched, ended: false }));
            }
        }
    }

    /// Consumes everything up to and including the next line feed, or up to the end of the file.
    fn pass_line(&mut self) -> Result<(), SourceError> {
        loop {
            let pending = self.input.pending();
            if let Some(at) = pending.iter().position(|&octet| octet == b'\n') {
                self.input.consume(at + 1);
                return Ok(());
            }
            self.input.consume(pending.len());
            if !self.input.more()? {
                return Ok(());
            }
        }
    }

    /// Reads the next request; `None` at the end of the file.
    fn next_request(&mut self) -> Result<Option<Request>, SourceError> {
        if let Some(request) = self.told(false)? {
            return Ok(Some(request));
        }
        while let Some(found) = self.next_line(self.skip_bad)? {
            if !found.ended && self.input.is_cut() {
                self.half_line = Some(self.line_number);
                self.input.consume(found.line_bytes);
                return Ok(None);
            }
            let read = self.read_line(found.line_bytes);
            self.input.consume(found.line_bytes + usize::from(found.ended));
            match read {
                Ok(Some(request)) => return Ok(Some(request)),
                Ok(None) => {}
                Err(_) if !found.ended => {
                    self.half_line = Some(self.line_number);
                    return Ok(None);
                }
                Err(bad) => self.skip(&bad)?,
            }
        }
        self.told(true)
    }

    /// The next request that a server has told, where the lines are such. `is_over` = no line follows.
    fn told(&mut self, is_over: bool) -> Result<Option<Request>, SourceError> {
        let Layout::Events(events) = &mut self.layout else { return Ok(None) };
        let Some((time_us, mut request)) = events.pop(is_over) else { return Ok(None) };
        match self.clock.at(time_us / 1_000_000) {
            Some(time_s) => request.time_s = time_s,
            None => return Err(self.error("its time is too long after the first")),
        }
        Ok(Some(request))
    }

    /// Parses the pending line of this length; `None` if it is empty.
    #[inline]
    fn read_line(&mut self, line_bytes: usize) -> Result<Option<Request>, Bad> {
        let whole = &self.input.pending()[..line_bytes];
        let line = whole.trim_ascii();
        if line.is_empty() {
            return Ok(None);
        }
        let (timestamp_s, mut request) = match &mut self.layout {
            Layout::Twitter(twitter) => twitter.read(line, &self.keys)?,
            Layout::Csv(columns) => columns.read(without_return(whole), &self.keys)?,
            Layout::Keys => columns::read_key(line, &self.keys),
            Layout::Events(events) => {
                events.take(line)?;
                match events.pop(false) {
                    Some((time_us, request)) => (time_us / 1_000_000, request),
                    None => return Ok(None),
                }
            }
        };
        request.time_s = self.clock.at(timestamp_s).ok_or_else(|| {
            Bad::new("timestamp", format!("{timestamp_s} lies more than {} s after the first", u32::MAX))
        })?;
        Ok(Some(request))
    }

    /// Handles a line that cannot be read: counts it, or returns an error.
    fn skip(&mut self, bad: &Bad) -> Result<(), SourceError> {
        if !self.skip_bad {
            return Err(self.error(&bad.to_string()));
        }
        self.skipped.lines += 1;
        if self.skipped.lines == 1 {
            self.skipped.first = format!("line {}: {bad}", self.line_number);
        }
        Ok(())
    }

    fn error(&self, why: &str) -> SourceError {
        SourceError::new(format!("{}: line {}: {why}", self.name, self.line_number))
    }
}

/// A line without the carriage return at its end. Other white space stays, because a tab may delimit an empty field.
fn without_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

impl Source for Lines {
    fn fill(&mut self, into: &mut Vec<Request>, most: usize) -> Result<usize, SourceError> {
        let mut got = 0;
        while got < most && self.failed.is_none() {
            match self.next_request() {
                Ok(Some(request)) => {
                    into.push(request);
                    got += 1;
                }
                Ok(None) => break,
                Err(error) => self.failed = Some(error),
            }
        }
        match &self.failed {
            Some(error) if got == 0 && most > 0 => Err(error.clone()),
            _ => Ok(got),
        }
    }

    fn fields(&self) -> Fields {
        match &self.layout {
            Layout::Twitter(twitter) => twitter.fields(),
            Layout::Csv(columns) => columns.fields(),
            Layout::Keys => Fields::default(),
            Layout::Events(events) => events.fields(),
        }
    }

    fn describe(&self) -> String {
        format!("{} ({})", self.name, self.format.name())
    }

    fn name(&self) -> String {
        self.input.file_name()
    }

    fn done_ratio(&self) -> Option<f64> {
        self.input.done_ratio()
    }

    fn notices(&self) -> Vec<String> {
        let half = self
            .half_line
            .map(|line| format!("{}: ends in the middle of line {line}, which is left out", self.name));
        let skipped = (self.skipped.lines > 0).then(|| {
            format!(
                "{}: {} lines could not be read and were skipped, the first of them {}",
                self.name, self.skipped.lines, self.skipped.first
            )
        });
        let told = match &self.layout {
            Layout::Events(events) => events.notice().map(|told| format!("{}: {told}", self.name)),
            _ => None,
        };
        [self.input.notice(), self.header.clone(), half, skipped, told, self.clock.notice(&self.name)]
            .into_iter()
            .flatten()
            .collect()
    }
}
