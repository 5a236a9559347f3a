//! Converts a line of comma-separated fields into a request.

use super::field::{self, Bad};
use super::key::KeyReader;
use crate::{Fields, Op, Request};

const U16_MAX: u64 = u16::MAX as u64;
const U32_MAX: u64 = u32::MAX as u64;

/// The unit of block devices.
const SECTOR_BYTES: u32 = 512;

/// What separates columns where nothing else does: any white space.
const BLANK: u8 = b' ';

/// The meaning of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    /// Time, in units of a second divided by this.
    Time(u32),
    Key,
    /// A further part of the key: keys of one name in two volumes are two keys.
    Volume,
    KeyBytes,
    /// Length of the value, in units of this many bytes.
    ValueBytes(u32),
    Client,
    Op,
    Ttl,
    /// Penalty, in units of this many microseconds.
    Penalty(u32),
    Ignored,
}

impl Column {
    /// The column with this name in a header.
    pub(super) fn named(name: &[u8]) -> Column {
        let name =
            String::from_utf8_lossy(name.trim_ascii()).to_ascii_lowercase().replace(['-', ' ', '.'], "_");
        match name.trim_matches('"') {
            "timestamp" | "time" | "ts" | "time_s" | "timestamp_s" | "op_time" | "clock_time"
            | "relative_unix" => Column::Time(1),
            "time_ms" | "timestamp_ms" => Column::Time(1_000),
            "time_us" | "timestamp_us" => Column::Time(1_000_000),
            "time_100ns" => Column::Time(10_000_000),
            "time_ns" | "timestamp_ns" => Column::Time(1_000_000_000),
            "key"
            | "id"
            | "obj_id"
            | "object_id"
            | "objid"
            | "item"
            | "lbn"
            | "hashed_path_query"
            | "hashed_host_path_query" => Column::Key,
            "volume" | "volume_id" => Column::Volume,
            "key_size" | "key_bytes" | "keysize" | "key_length" => Column::KeyBytes,
            "value_size" | "size" | "value_bytes" | "valuesize" | "obj_size" | "object_size" | "bytes"
            | "value_length" | "response_size" => Column::ValueBytes(1),
            "sectors" => Column::ValueBytes(SECTOR_BYTES),
            "client" | "client_id" => Column::Client,
            "op" | "operation" | "command" | "cmd" => Column::Op,
            "ttl" | "ttl_s" => Column::Ttl,
            "penalty_us" | "penalty" | "cost" | "miss_penalty" | "miss_penalty_us" | "cost_us" => {
                Column::Penalty(1)
            }
            "penalty_ms" | "miss_penalty_ms" => Column::Penalty(1_000),
            "penalty_s" | "time_firstbyte" => Column::Penalty(1_000_000),
            _ => Column::Ignored,
        }
    }
}

/// What the columns of a file without a header are, as its reader says: `time=1,key=2,size=3`, the names as those of a
/// header, the places from 1 on. Columns without a name are ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named(Vec<Column>);

/// The most columns that may be named.
const NAMED_MAX: usize = 1000;

impl std::str::FromStr for Named {
    type Err = String;

    /// # Errors
    /// A name that is not known, a place that is none, a place or a meaning that comes twice, or no key.
    fn from_str(text: &str) -> Result<Named, String> {
        let mut columns = Vec::new();
        for part in text.split(',') {
            let (name, place) =
                part.split_once('=').ok_or_else(|| format!("'{part}' is not NAME=PLACE, as time=1"))?;
            let column = Column::named(name.as_bytes());
            if column == Column::Ignored {
                return Err(format!(
                    "'{name}' is no column: there are time, key, volume, size, sectors, key_size, op, ttl, \
                     client, penalty, and their like with a unit, as time_ms"
                ));
            }
            let at = place.trim().parse().ok().filter(|place| (1..=NAMED_MAX).contains(place));
            let at =
                at.ok_or_else(|| format!("'{place}' is no place of a column: give 1 for the first one"))? - 1;
            columns.resize(columns.len().max(at + 1), Column::Ignored);
            if columns[at] != Column::Ignored {
                return Err(format!("column {} has two names", at + 1));
            }
            columns[at] = column;
        }
        let names: Vec<String> = (1..=columns.len()).map(|place| format!("column {place}")).collect();
        let names: Vec<&[u8]> = names.iter().map(String::as_bytes).collect();
        check(&columns, &names)?;
        Ok(Named(columns))
    }
}

/// Whether there is a key, and each meaning at most once.
fn check(columns: &[Column], names: &[&[u8]]) -> Result<(), String> {
    if !columns.contains(&Column::Key) {
        return Err("names no key (key, id, obj_id, object_id)".to_owned());
    }
    for (at, column) in columns.iter().enumerate() {
        let same = |other: &Column| std::mem::discriminant(other) == std::mem::discriminant(column);
        if *column != Column::Ignored
            && let Some(before) = columns[..at].iter().position(same)
        {
            let (a, b) = (field::shown(names[before].trim_ascii()), field::shown(names[at].trim_ascii()));
            return Err(format!("names two columns of one meaning: '{a}' and '{b}'"));
        }
    }
    Ok(())
}

/// The columns of a file with a header, or of one whose reader names them.
#[derive(Debug)]
pub(super) struct Columns {
    columns: Vec<Column>,
    delimiter: u8,
    unquoted: Vec<u8>,
    /// Whether lines may have further columns, for which there is no name.
    may_be_more: bool,
}

impl Columns {
    /// Reads the columns from a header.
    ///
    /// # Errors
    /// No column is the key, or a meaning occurs twice.
    pub(super) fn from_header(line: &[u8]) -> Result<Columns, String> {
        let delimiter = delimiter(line);
        let names: Vec<&[u8]> = line.split(|&octet| octet == delimiter).collect();
        let columns: Vec<Column> = names.iter().map(|name| Column::named(name)).collect();
        check(&columns, &names).map_err(|why| match why.strip_prefix("names no key") {
            Some(rest) => format!("the header '{}' names no key{rest}", field::shown(line)),
            None => format!("the header {why}"),
        })?;
        Ok(Columns { columns, delimiter, unquoted: Vec::new(), may_be_more: false })
    }

    /// The columns that the reader of a file names, and the file's first line, which shows what separates them: a
    /// comma, tab or semicolon, or else blanks.
    pub(super) fn of_reader(named: &Named, line: &[u8]) -> Columns {
        let found = [b',', b'\t', b';'].into_iter().find(|separator| line.trim_ascii().contains(separator));
        let (columns, delimiter) = (named.0.clone(), found.unwrap_or(BLANK));
        Columns { columns, delimiter, unquoted: Vec::new(), may_be_more: true }
    }

    /// The columns of Microsoft Research Cambridge.
    pub(super) fn of_msr() -> Columns {
        let columns = MSR.map(|(column, _)| column).to_vec();
        Columns { columns, delimiter: b',', unquoted: Vec::new(), may_be_more: false }
    }

    /// The fields that the columns provide.
    pub(super) fn fields(&self) -> Fields {
        let has = |wanted: fn(&Column) -> bool| self.columns.iter().any(wanted);
        Fields {
            times: has(|column| matches!(column, Column::Time(_))),
            sizes: has(|column| matches!(column, Column::KeyBytes | Column::ValueBytes(_))),
            ops: has(|column| *column == Column::Op),
            ttls: has(|column| *column == Column::Ttl),
            penalties: has(|column| matches!(column, Column::Penalty(_))),
        }
    }

    /// Reads a line. The first result is the timestamp in seconds.
    #[inline]
    pub(super) fn read(&mut self, line: &[u8], keys: &KeyReader) -> Result<(u64, Request), Bad> {
        if line.contains(&b'"') {
            return self.read_quoted(line, keys);
        }
        if self.delimiter == BLANK {
            return self
                .read_texts(line.split(u8::is_ascii_whitespace).filter(|text| !text.is_empty()), keys);
        }
        self.read_texts(line.split(|&octet| octet == self.delimiter), keys)
    }

    #[inline]
    fn read_texts<'a>(
        &self,
        mut texts: impl Iterator<Item = &'a [u8]>,
        keys: &KeyReader,
    ) -> Result<(u64, Request), Bad> {
        let mut taken = Taken::default();
        for (at, &column) in self.columns.iter().enumerate() {
            let Some(text) = texts.next() else {
                return Err(too_few(at, self.columns.len()));
            };
            taken.take(column, text.trim_ascii(), keys)?;
        }
        if !self.may_be_more && texts.next().is_some() {
            return Err(self.too_many());
        }
        Ok(taken.whole(keys))
    }

    #[cold]
    fn too_many(&self) -> Bad {
        Bad::new("columns", format!("there are more than the header's {}", self.columns.len()))
    }

    /// Reads a line with quoted fields (RFC 4180, except that a field may not span lines).
    #[cold]
    fn read_quoted(&mut self, line: &[u8], keys: &KeyReader) -> Result<(u64, Request), Bad> {
        let mut taken = Taken::default();
        let mut rest = Some(line);
        for at in 0..self.columns.len() {
            let Some(text) = rest else {
                return Err(too_few(at, self.columns.len()));
            };
            rest = unquote(text, self.delimiter, &mut self.unquoted)?;
            taken.take(self.columns[at], self.unquoted.trim_ascii(), keys)?;
        }
        if !self.may_be_more && rest.is_some() {
            return Err(self.too_many());
        }
        Ok(taken.whole(keys))
    }
}

fn too_few(found: usize, needed: usize) -> Bad {
    Bad::new("columns", format!("there are {found} where {needed} are needed"))
}

/// The delimiter of the fields of a header.
pub(super) fn delimiter(line: &[u8]) -> u8 {
    [b',', b'\t', b';'].into_iter().find(|separator| line.contains(separator)).unwrap_or(b',')
}

/// Writes the first field of `text` without quotes into `into`. Returns the text after its delimiter.
fn unquote<'a>(text: &'a [u8], delimiter: u8, into: &mut Vec<u8>) -> Result<Option<&'a [u8]>, Bad> {
    into.clear();
    // A tab is white space, yet it may be the delimiter.
    let blank = |octet: &u8| octet.is_ascii_whitespace() && *octet != delimiter;
    let text = &text[text.iter().take_while(|octet| blank(octet)).count()..];
    let mut at = 0;
    if text.first() == Some(&b'"') {
        at = 1;
        loop {
            match (text.get(at), text.get(at + 1)) {
                (None, _) => return Err(Bad::new("columns", "a quote is not closed on its line")),
                (Some(b'"'), Some(b'"')) => {
                    into.push(b'"');
                    at += 2;
                }
                (Some(b'"'), _) => break,
                (Some(&octet), _) => {
                    into.push(octet);
                    at += 1;
                }
            }
        }
        at += 1;
    }
    let rest = &text[at..];
    let end = rest.iter().position(|&octet| octet == delimiter);
    into.extend_from_slice(rest[..end.unwrap_or(rest.len())].trim_ascii_end());
    Ok(end.map(|end| &rest[end + 1..]))
}

/// A line while it is being read.
#[derive(Default)]
struct Taken {
    time_s: u64,
    volume: Option<u64>,
    request: Request,
}

impl Taken {
    #[inline]
    fn take(&mut self, column: Column, text: &[u8], keys: &KeyReader) -> Result<(), Bad> {
        let request = &mut self.request;
        match column {
            Column::Time(1) => self.time_s = field::number("timestamp", text, u64::MAX)?,
            Column::Time(parts) => {
                self.time_s = field::number("timestamp", text, u64::MAX)? / u64::from(parts);
            }
            Column::Key if text.is_empty() => return Err(Bad::new("key", "is empty")),
            Column::Key => request.key = keys.read(text),
            Column::Volume => self.volume = Some(keys.read(text)),
            Column::KeyBytes => request.key_bytes = field::number("key size", text, U16_MAX)? as u16,
            Column::ValueBytes(1) => {
                request.value_bytes = field::number("value size", text, U32_MAX)? as u32;
            }
            Column::ValueBytes(unit) => {
                request.value_bytes = field::scaled("value size", text, f64::from(unit), U32_MAX)? as u32;
            }
            Column::Client => request.client = field::client(text),
            Column::Op => request.op = field::op(text)?,
            Column::Ttl => request.ttl_s = field::number_or_zero("ttl", text, U32_MAX)? as u32,
            Column::Penalty(1) => {
                request.penalty_us = field::number_or_zero("penalty", text, U32_MAX)? as u32
            }
            Column::Penalty(_) if text.is_empty() => {}
            Column::Penalty(parts) => {
                request.penalty_us = field::scaled("penalty", text, f64::from(parts), U32_MAX)? as u32;
            }
            Column::Ignored => {}
        }
        Ok(())
    }

    /// The time in seconds and the request, once all columns are taken.
    #[inline]
    fn whole(mut self, keys: &KeyReader) -> (u64, Request) {
        if let Some(volume) = self.volume {
            self.request.key = keys.in_volume(volume, self.request.key);
        }
        (self.time_s, self.request)
    }
}

/// The columns of Microsoft Research Cambridge, and whether they are numbers:
/// `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`. The time is in units of 100 ns. Source: README.txt of
/// the traces (SNIA IOTTA, trace set 388).
const MSR: [(Column, bool); 7] = [
    (Column::Time(10_000_000), true),
    (Column::Ignored, false),
    (Column::Ignored, true),
    (Column::Op, false),
    (Column::Key, true),
    (Column::ValueBytes(1), true),
    (Column::Ignored, true),
];

/// Whether a line is one of Microsoft Research Cambridge: its time is of this century, in units of 100 ns since 1601.
pub(super) fn is_msr(line: &[u8]) -> bool {
    let texts: Vec<&[u8]> = line.split(|&octet| octet == b',').map(<[u8]>::trim_ascii).collect();
    texts.len() == MSR.len()
        && texts.iter().zip(MSR).all(|(text, (_, is_number))| !is_number || field::digits(text).is_some())
        && field::digits(texts[0]).is_some_and(|time| time > 125_000_000_000_000_000)
        && field::op_by_name(texts[3]).is_some()
}

/// Twitter's columns after the key, from the last to the first, with and without penalties.
const TWITTER_BACKWARDS: [Column; 6] =
    [Column::Penalty(1), Column::Ttl, Column::Op, Column::Client, Column::ValueBytes(1), Column::KeyBytes];

/// The layout of Twitter's lines: `timestamp,key,key size,value size,client,op,TTL`, followed by a penalty in files
/// with eight columns. The fields after the key are counted from the end of the line, because a key may contain
/// commas.
#[derive(Clone, Copy, Debug)]
pub(super) struct Twitter {
    /// Whether the lines have a penalty.
    pub(super) penalties: bool,
}

impl Twitter {
    /// The layout of a line, if it is one of Twitter's.
    pub(super) fn seen_in(line: &[u8]) -> Option<Twitter> {
        let fields: Vec<&[u8]> = line.split(|&octet| octet == b',').map(<[u8]>::trim_ascii).collect();
        let is_number = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
        let is_op = |text: &[u8]| field::op_by_name(text).is_some();
        if fields.len() < 7 || !is_number(fields[0]) {
            return None;
        }
        let last = fields.len() - 1;
        let seven = is_op(fields[last - 1]) && is_number(fields[last - 3]) && is_number(fields[last - 4]);
        let eight = last >= 7
            && is_op(fields[last - 2])
            && is_number(fields[last - 4])
            && is_number(fields[last - 5]);
        if seven || eight { Some(Twitter { penalties: eight }) } else { None }
    }

    /// The fields that the layout provides.
    pub(super) fn fields(self) -> Fields {
        Fields { times: true, sizes: true, ops: true, ttls: true, penalties: self.penalties }
    }

    /// Reads a line. The first result is the timestamp in seconds.
    #[inline]
    pub(super) fn read(self, line: &[u8], keys: &KeyReader) -> Result<(u64, Request), Bad> {
        let columns = &TWITTER_BACKWARDS[usize::from(!self.penalties)..];
        let wrong = |found: usize| too_few(found, columns.len() + 2);
        let comma = |text: &[u8]| text.iter().position(|&octet| octet == b',');
        let mut taken = Taken::default();
        let first = comma(line).ok_or_else(|| wrong(1))?;
        let mut rest = &line[first + 1..];
        let mut texts = [&line[..0]; TWITTER_BACKWARDS.len()];
        for (at, text) in texts[..columns.len()].iter_mut().enumerate() {
            let last = rest.iter().rposition(|&octet| octet == b',').ok_or_else(|| wrong(at + 2))?;
            *text = &rest[last + 1..];
            rest = &rest[..last];
        }
        taken.take(Column::Time(1), line[..first].trim_ascii(), keys)?;
        taken.take(Column::Key, rest.trim_ascii(), keys)?;
        for (&column, text) in columns.iter().zip(texts).rev() {
            taken.take(column, text.trim_ascii(), keys)?;
        }
        Ok(taken.whole(keys))
    }
}

/// Reads a line that consists of a key.
#[inline]
pub(super) fn read_key(line: &[u8], keys: &KeyReader) -> (u64, Request) {
    (0, Request { key: keys.read(line), op: Op::Get, ..Request::default() })
}
