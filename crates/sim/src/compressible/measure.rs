//! Trains dictionaries and measures them.

use super::{KINDS_MAX, Kind, Values};
use crate::report::{Cell, Part, Report, Table, grouped, size_in_full};
use larder_compression::{Compressor, Decompressor, Dictionary};
use larder_item::HEADER_BYTES;
use std::time::{Duration, Instant};

/// What an item takes in Larder beside its key and its value, in bytes: the header of its record, and its part of the
/// index.
const OVERHEAD_BYTES: f64 = HEADER_BYTES as f64 + 10.0;

/// What became of the values of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct KindFigures {
    /// What their keys begin with; empty = all other values.
    pub name: String,
    /// Values of the kind.
    pub values: u64,
    /// Mean length of their keys and values, in bytes.
    pub key_bytes: f64,
    /// See `key_bytes`.
    pub value_bytes: f64,
    /// Bytes stored for each byte of a value, with the kind's dictionary; a value that does not save a quarter is
    /// stored as it is.
    pub stored_ratio: f64,
    /// The same without a dictionary.
    pub alone_ratio: f64,
    /// The part of the values that is stored compressed.
    pub compressed_share: f64,
    /// Bytes of the dictionary; 0 = there is none.
    pub dictionary_bytes: usize,
    /// Mean time of one value.
    pub compress: Duration,
    /// See `compress`.
    pub decompress: Duration,
}

/// All kinds, those that save most first.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// The kinds.
    pub kinds: Vec<KindFigures>,
    /// Bytes of memory of all dictionaries, with their tables.
    pub dictionary_memory_bytes: usize,
}

impl Measured {
    /// Trains a dictionary for each of the largest kinds, and compresses the other half of the values with it.
    ///
    /// # Errors
    /// A value is not what was compressed: a fault of this program.
    pub fn of(values: Values) -> Result<Measured, String> {
        let mut kinds: Vec<(Vec<u8>, Kind)> = values.kinds.into_iter().collect();
        kinds.sort_by(|a, b| b.1.value_bytes.cmp(&a.1.value_bytes).then_with(|| a.0.cmp(&b.0)));
        let mut measured = Measured::default();
        let mut tools = Tools::default();
        let rest = kinds.split_off(kinds.len().min(KINDS_MAX));
        for (name, kind) in &kinds {
            let (figures, memory_bytes) = tools.measure(name, kind)?;
            measured.kinds.push(figures);
            measured.dictionary_memory_bytes += memory_bytes;
        }
        measured.kinds.extend(left_alone(&rest));
        let saved = |kind: &KindFigures| kind.values as f64 * kind.value_bytes * (1.0 - kind.stored_ratio);
        measured.kinds.sort_by(|a, b| saved(b).total_cmp(&saved(a)));
        Ok(measured)
    }

    fn sum(&self, of: impl Fn(&KindFigures) -> f64) -> f64 {
        self.kinds.iter().map(|kind| kind.values as f64 * of(kind)).sum()
    }

    /// Mean bytes of memory of an item: plain, and compressed.
    pub fn item_bytes(&self) -> (f64, f64) {
        let values = self.sum(|_| 1.0).max(1.0);
        let beside = self.sum(|kind| kind.key_bytes) / values + OVERHEAD_BYTES;
        let plain = self.sum(|kind| kind.value_bytes) / values;
        let stored = self.sum(|kind| kind.value_bytes * kind.stored_ratio) / values;
        (beside + plain, beside + stored)
    }
}

/// Kinds beyond those that have a dictionary, as one.
fn left_alone(kinds: &[(Vec<u8>, Kind)]) -> Option<KindFigures> {
    let sum = |of: fn(&Kind) -> u64| kinds.iter().map(|(_, kind)| of(kind)).sum::<u64>();
    let values = sum(|kind| kind.count);
    (values > 0).then(|| KindFigures {
        name: format!("{} other kinds", kinds.len()),
        values,
        key_bytes: sum(|kind| kind.key_bytes) as f64 / values as f64,
        value_bytes: sum(|kind| kind.value_bytes) as f64 / values as f64,
        stored_ratio: 1.0,
        alone_ratio: 1.0,
        compressed_share: 0.0,
        dictionary_bytes: 0,
        compress: Duration::ZERO,
        decompress: Duration::ZERO,
    })
}

#[derive(Default)]
struct Tools {
    compressor: Compressor,
    decompressor: Decompressor,
    stored: Vec<Vec<u8>>,
    plain: Vec<u8>,
}

impl Tools {
    fn measure(&mut self, name: &[u8], kind: &Kind) -> Result<(KindFigures, usize), String> {
        let dictionary = Dictionary::train(kind.training.bytes(), kind.training.lengths());
        let mut at = 0;
        let values: Vec<&[u8]> = kind
            .measured
            .lengths()
            .iter()
            .map(|length| {
                at += length;
                &kind.measured.bytes()[at - length..at]
            })
            .collect();
        let bytes = at.max(1);
        let (stored_bytes, compressed, compress) = self.compress(&values, dictionary.as_ref());
        let decompress = self.decompress(&values, dictionary.as_ref())?;
        let (alone_bytes, ..) = self.compress(&values, None);
        let count = values.len().max(1);
        let each = |time: Duration, of: usize| time.checked_div(of as u32).unwrap_or_default();
        let figures = KindFigures {
            name: String::from_utf8_lossy(name).into_owned(),
            values: kind.count,
            key_bytes: kind.key_bytes as f64 / kind.count as f64,
            value_bytes: kind.value_bytes as f64 / kind.count as f64,
            stored_ratio: if values.is_empty() { 1.0 } else { stored_bytes as f64 / bytes as f64 },
            alone_ratio: if values.is_empty() { 1.0 } else { alone_bytes as f64 / bytes as f64 },
            compressed_share: compressed as f64 / count as f64,
            dictionary_bytes: dictionary.as_ref().map_or(0, |dictionary| dictionary.bytes().len()),
            compress: each(compress, values.len()),
            decompress: each(decompress, compressed),
        };
        Ok((figures, dictionary.map_or(0, |dictionary| dictionary.memory_bytes())))
    }

    /// Compresses values. Returns the bytes of all, how many are compressed, and the time. `self.stored` has what
    /// became of each; nothing = it stays plain.
    fn compress(&mut self, values: &[&[u8]], dictionary: Option<&Dictionary>) -> (usize, usize, Duration) {
        self.stored.resize_with(values.len(), Vec::new);
        let (mut bytes, mut compressed) = (0, 0);
        let began = Instant::now();
        for (value, stored) in values.iter().zip(&mut self.stored) {
            stored.clear();
            match self.compressor.compress(value, dictionary) {
                Some(short) => {
                    stored.extend_from_slice(short);
                    (bytes, compressed) = (bytes + short.len(), compressed + 1);
                }
                None => bytes += value.len(),
            }
        }
        (bytes, compressed, began.elapsed())
    }

    /// Brings the values back that were compressed, and compares them.
    fn decompress(&mut self, values: &[&[u8]], dictionary: Option<&Dictionary>) -> Result<Duration, String> {
        let mut took = Duration::ZERO;
        for (value, stored) in values.iter().zip(&self.stored).filter(|(_, stored)| !stored.is_empty()) {
            self.plain.clear();
            let began = Instant::now();
            let came = self.decompressor.decompress(stored, dictionary, value.len(), &mut self.plain);
            took += began.elapsed();
            if came.is_err() || self.plain != *value {
                return Err("a value did not come back as it was compressed".to_owned());
            }
        }
        Ok(took)
    }
}

/// The report.
pub fn report(measured: &Measured, name: &str) -> Report {
    let (plain, stored) = measured.item_bytes();
    let values = measured.sum(|_| 1.0) as u64;
    let facts = vec![
        ("values".to_owned(), grouped(values)),
        ("an item in memory".to_owned(), format!("{plain:.0} bytes, compressed {stored:.0}")),
        ("items in the same memory".to_owned(), format!("{:.2} times as many", plain / stored.max(1.0))),
        ("dictionaries in memory".to_owned(), size_in_full(measured.dictionary_memory_bytes as u64)),
    ];
    let columns = [
        "kind",
        "values",
        "mean bytes",
        "stored",
        "times smaller",
        "without dictionary",
        "compressed %",
        "compress us",
        "decompress us",
    ];
    let mut table = Table::new("Values by kind, those that save most first", &columns);
    for kind in &measured.kinds {
        let us = |time: Duration| Cell::Rounded(time.as_secs_f64() * 1e6, 2);
        let name = if kind.name.is_empty() { "(no kind)" } else { &kind.name };
        table.row(vec![
            Cell::Text(name.to_owned()),
            Cell::Count(kind.values),
            Cell::Rounded(kind.value_bytes, 3),
            Cell::Rounded(kind.value_bytes * kind.stored_ratio, 3),
            Cell::Number(1.0 / kind.stored_ratio, 2),
            Cell::Number(1.0 / kind.alone_ratio, 2),
            Cell::Rounded(kind.compressed_share * 100.0, 3),
            us(kind.compress),
            us(kind.decompress),
        ]);
    }
    Report {
        title: format!("What compression makes of {} values of {name}", grouped(values)),
        facts,
        settings: Vec::new(),
        parts: vec![Part::Table(table)],
    }
}
