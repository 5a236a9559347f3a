//! The numbers as text, in the form of Prometheus or in that of OpenMetrics.

use std::collections::HashSet;
use std::fmt;
use std::sync::Mutex;

use axum::http::HeaderMap;
use axum::http::header::ACCEPT;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text::encode};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use super::family::{Family, Kind, Value};
use crate::latency::Histogram;

/// A form of the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// That of Prometheus, which everything that reads metrics knows.
    Prometheus,
    /// That of OpenMetrics, for those who ask for it.
    OpenMetrics,
}

impl Form {
    /// The form that a request asks for: OpenMetrics if its `Accept` names that, and does not prefer plain text.
    pub(super) fn asked_for(headers: &HeaderMap) -> Form {
        let (mut plain, mut open) = (0.0, 0.0);
        let lines = headers.get_all(ACCEPT).iter().filter_map(|line| line.to_str().ok());
        for range in lines.flat_map(|line| line.split(',')) {
            let mut parts = range.split(';').map(str::trim);
            let quality = match parts.next().map(str::to_ascii_lowercase).as_deref() {
                Some("application/openmetrics-text") => &mut open,
                Some("text/plain") => &mut plain,
                _ => continue,
            };
            let written = parts.find_map(|part| part.strip_prefix("q=").or(part.strip_prefix("Q=")));
            let written: f64 = written.map_or(1.0, |number| number.parse().unwrap_or(0.0));
            *quality = written.max(*quality);
        }
        if open > 0.0 && open >= plain { Form::OpenMetrics } else { Form::Prometheus }
    }

    /// The content type of the text.
    pub(super) const fn content_type(self) -> &'static str {
        match self {
            Form::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Form::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// The beginning of every name.
const PREFIX: &str = "larder_";
/// The beginning of the names that every program has that is watched by Prometheus: those get no other.
const OF_PROCESS: &str = "process_";
/// The bounds of an exported histogram are powers of two, from 2^8 ns (256 ns) to 2^34 ns (17 s). The buckets of
/// [`Histogram`] have exact bounds there.
const LEAST_POWER: u32 = 8;
const MOST_POWER: u32 = 34;

/// The families as text. Fails only if writing into memory does.
pub(super) fn text(families: Vec<Family>, form: Form) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Once(Mutex::new(families))));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(match form {
        Form::Prometheus => for_prometheus(&text),
        Form::OpenMetrics => text,
    })
}

/// Text of OpenMetrics in the form of Prometheus. There, what is said of a counter is said of its sample, whose name
/// ends in `_total`. Units stand in names only, and nothing marks the end.
fn for_prometheus(text: &str) -> String {
    let counters: HashSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter")).collect();
    let mut found = String::with_capacity(text.len());
    for line in text.lines() {
        let Some(about) = line.strip_prefix("# ") else {
            found.extend([line, "\n"]);
            continue;
        };
        let mut words = about.splitn(3, ' ');
        if let (Some(what @ ("HELP" | "TYPE")), Some(name), Some(rest)) =
            (words.next(), words.next(), words.next())
        {
            let ending = if counters.contains(name) { "_total" } else { "" };
            found.extend(["# ", what, " ", name, ending, " ", rest, "\n"]);
        }
    }
    found
}

/// Families that are encoded once.
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
            let name = match family.name.starts_with(OF_PROCESS) {
                true => family.name.to_owned(),
                false => format!("{PREFIX}{}", family.name),
            };
            let mut encoder = encoder.encode_descriptor(&name, family.help, unit.as_ref(), kind)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    #[test]
    fn a_request_that_prefers_openmetrics_has_it() {
        let form = |lines: &[&'static str]| {
            let lines = lines.iter().map(|line| (ACCEPT, HeaderValue::from_static(line)));
            Form::asked_for(&lines.collect())
        };
        for plain in [
            &[][..],
            &["*/*"],
            &["text/html, text/plain;q=0.5"],
            &["application/openmetrics-text;q=0"],
            &["application/openmetrics-text-of-another-kind"],
            &["text/plain;version=0.0.4;q=0.6,application/openmetrics-text;version=1.0.0;q=0.5"],
        ] {
            assert_eq!(form(plain), Form::Prometheus, "{plain:?}");
        }
        for open in [
            &["application/openmetrics-text"][..],
            &["application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1"],
            &["text/html", "text/plain;q=0.2, Application/OpenMetrics-Text; version=0.0.1; q=0.2"],
        ] {
            assert_eq!(form(open), Form::OpenMetrics, "{open:?}");
        }
    }
}
