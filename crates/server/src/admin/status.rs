//! The numbers as JSON, for the page.
//!
//! ```json
//! { "version": "0.2.0", "host": "cache-1", "serves": ["127.0.0.1:11211"], "healthy": true,
//!   "reason": null, "time_ms": 1700000000000, "families": [
//!   { "name": "evictions", "help": "...", "unit": "", "kind": "counter",
//!     "samples": [ { "labels": {}, "value": 17 } ] },
//!   { "name": "request_duration", "help": "...", "unit": "seconds", "kind": "histogram",
//!     "samples": [ { "labels": { "command": "get" }, "count": 3, "sum": 0.000003, "buckets": [[1024, 3]],
//!                    "quantiles": { "0.5": 0.000001024 } } ] } ] }
//! ```
//!
//! A bucket is its end, in ns, and its own count. Empty buckets are left out. A reader can subtract two replies and has
//! the quantiles of the time between them.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value as Json, json};

use super::family::{CurveShown, Family, GroupRow, HotRow, KeyRows, Kind, Sample, Value, ZoneCell};
use super::hosts;

/// The quantiles of each histogram, with the names they have in the JSON.
const QUANTILES: [(&str, f64); 4] = [("0.5", 0.5), ("0.9", 0.9), ("0.99", 0.99), ("0.999", 0.999)];

/// The families as one JSON object, with what there is to know of the server itself: where it `serves`, and whether it
/// is `healthy`.
pub(super) fn json(families: &[Family], healthy: Result<(), String>, serves: &[String]) -> String {
    let families: Vec<Json> = families.iter().map(family).collect();
    let time_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "host": hosts::of_this_machine(),
        "serves": serves,
        "healthy": healthy.is_ok(),
        "reason": healthy.err(),
        "time_ms": time_ms,
        "families": families,
    })
    .to_string()
}

/// The zones as a JSON array of arrays, which is short: there may be thousands of zones.
pub(super) fn zones_json(zones: &[ZoneCell]) -> String {
    let cell = |zone: &ZoneCell| json!([zone.used, zone.written_bytes, zone.live_bytes, zone.resets]);
    Json::Array(zones.iter().map(cell).collect()).to_string()
}

/// The groups as a JSON array of objects.
pub(super) fn groups_json(groups: &[GroupRow]) -> String {
    let row = |group: &GroupRow| {
        json!({
            "size": group.size,
            "penalty": group.penalty,
            "items": group.items,
            "bytes": group.bytes,
            "columns": group.columns,
            "outgoing": group.outgoing,
            "incoming": group.incoming,
            "columns_received": group.columns_received,
            "columns_given": group.columns_given,
            "last_move": group.last_move,
            "why": group.why,
        })
    };
    Json::Array(groups.iter().map(row).collect()).to_string()
}

/// The keys as a JSON object; `null` where keys are not shown.
pub(super) fn keys_json(keys: Option<&KeyRows>) -> String {
    let Some(keys) = keys else { return Json::Null.to_string() };
    let hot = |row: &HotRow| {
        let mut object = json!({ "key": row.key, "share": row.share, "error": row.error });
        object["per_second"] = json!(row.per_second);
        object
    };
    let large = |(key, bytes): &(String, u64)| json!({ "key": key, "bytes": bytes });
    let rows = json!({
        "hot": keys.hot.iter().map(hot).collect::<Vec<_>>(),
        "large": keys.large.iter().map(large).collect::<Vec<_>>(),
    });
    rows.to_string()
}

/// The curve as a JSON object, with the curves of the namespaces in `namespaces`.
pub(super) fn curve_json(shown: &CurveShown) -> String {
    let mut json = curve(shown);
    let namespaces: Map<String, Json> =
        shown.namespaces.iter().map(|(name, shown)| (name.clone(), curve(shown))).collect();
    json["namespaces"] = namespaces.into();
    json.to_string()
}

fn curve(curve: &CurveShown) -> Json {
    json!({
        "young": curve.is_young,
        "limit_bytes": curve.limit_bytes,
        "capacity_bytes": curve.capacity_bytes,
        "span_bytes": curve.span_bytes,
        "penalties_known": curve.knows_penalties,
        "points": curve.points,
    })
}

fn family(family: &Family) -> Json {
    let kind = match family.kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
    };
    let samples: Vec<Json> = family.samples.iter().map(sample).collect();
    json!({ "name": family.name, "help": family.help, "unit": family.unit, "kind": kind, "samples": samples })
}

fn sample(sample: &Sample) -> Json {
    let labels: Map<String, Json> =
        sample.labels.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    match &sample.value {
        Value::Count(count) => json!({ "labels": labels, "value": count }),
        Value::Amount(amount) => json!({ "labels": labels, "value": amount }),
        Value::Times(times) => {
            let quantiles: Map<String, Json> = QUANTILES
                .iter()
                .map(|(name, q)| ((*name).to_owned(), json!(times.quantile(*q).map(|ns| ns as f64 / 1e9))))
                .collect();
            json!({
                "labels": labels,
                "count": times.count(),
                "sum": times.sum_ns() as f64 / 1e9,
                "buckets": times.filled().collect::<Vec<_>>(),
                "quantiles": quantiles,
            })
        }
    }
}
