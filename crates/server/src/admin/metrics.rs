//! The numbers as OpenMetrics text.

use std::fmt;
use std::sync::Mutex;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text::encode};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use super::family::{Family, Kind, Value};
use crate::latency::Histogram;

/// What the text is.
pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// What every name begins with.
const PREFIX: &str = "larder";
/// The bounds of an exported histogram are powers of two, where bounds of our buckets are exact: from 2^8 ns (256 ns)
/// to 2^34 ns (17 s).
const LEAST_POWER: u32 = 8;
const MOST_POWER: u32 = 34;

/// The families as text. Fails only if writing into memory does.
pub(super) fn text(families: Vec<Family>) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix(PREFIX);
    registry.register_collector(Box::new(Once(Mutex::new(families))));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

/// Families that are encoded once and then gone.
#[derive(Debug)]
struct Once(Mutex<Vec<Family>>);

impl Collector for Once {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut families = self.0.lock().map_err(|_| fmt::Error)?;
        for family in families.drain(..) {
            let kind = match family.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Histogram => MetricType::Histogram,
            };
            let unit = match family.unit {
                "" => None,
                "bytes" => Some(Unit::Bytes),
                "seconds" => Some(Unit::Seconds),
                other => Some(Unit::Other(other.to_owned())),
            };
            let mut encoder = encoder.encode_descriptor(family.name, family.help, unit.as_ref(), kind)?;
            for sample in &family.samples {
                if sample.labels.is_empty() {
                    number(&sample.value, family.kind, &mut encoder)?;
                } else {
                    number(&sample.value, family.kind, &mut encoder.encode_family(&sample.labels)?)?;
                }
            }
        }
        Ok(())
    }
}

fn number(value: &Value, kind: Kind, encoder: &mut MetricEncoder<'_>) -> Result<(), fmt::Error> {
    match (value, kind) {
        (Value::Count(count), Kind::Counter) => encoder.encode_counter::<NoLabelSet, _, u64>(count, None),
        (Value::Amount(amount), Kind::Counter) => encoder.encode_counter::<NoLabelSet, _, u64>(amount, None),
        (Value::Count(count), _) => encoder.encode_gauge(count),
        (Value::Amount(amount), _) => encoder.encode_gauge(amount),
        (Value::Times(times), _) => {
            let seconds = times.sum_ns() as f64 / 1e9;
            encoder.encode_histogram::<NoLabelSet>(seconds, times.count(), &bounds(times), None)
        }
    }
}

/// Upper bounds in seconds, and what each bucket counted by itself.
fn bounds(times: &Histogram) -> Vec<(f64, u64)> {
    let counts = times.by_power(LEAST_POWER, MOST_POWER);
    let rest = times.count().saturating_sub(counts.iter().sum());
    let bound = |power: u32| (1u64 << power) as f64 / 1e9;
    (LEAST_POWER..=MOST_POWER)
        .map(bound)
        .chain([f64::INFINITY])
        .zip(counts.into_iter().chain([rest]))
        .collect()
}
