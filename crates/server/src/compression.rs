//! What compression has come to, as it is shown: in `stats compression`, on the admin page, and in the metrics.

use crate::admin::{Family, Kind, Value};
use larder_cache::{Cache, CompressionStats};

/// Length of the values that are compressed now, for each byte that they take; 0 = none is compressed.
pub(crate) fn ratio(stats: &CompressionStats) -> f64 {
    stats.expanded_bytes as f64 / stats.compressed_bytes.max(1) as f64
}

/// The families of the metrics, beside the counters of the cache.
pub(crate) fn families(cache: &Cache) -> [Family; 4] {
    let stats = cache.compression_stats();
    let by_form =
        |plain, compressed| [("plain", Value::Count(plain)), ("compressed", Value::Count(compressed))];
    [
        Family::labelled(
            "compression_items",
            "Items in memory now, by the form in which their values are stored, as estimated from a sample.",
            Kind::Gauge,
            "",
            "form",
            by_form(stats.plain_items, stats.compressed_items),
        ),
        Family::labelled(
            "compression_values",
            "Bytes of memory that values take now, by the form in which they are stored, as estimated from a sample.",
            Kind::Gauge,
            "bytes",
            "form",
            by_form(stats.plain_bytes, stats.compressed_bytes),
        ),
        Family::single(
            "compression_ratio",
            "Length of the values that are compressed now, for each byte that they take, as estimated from a sample; \
             0 = no value is compressed.",
            Kind::Gauge,
            "",
            Value::Amount(ratio(&stats)),
        ),
        Family::single(
            "compression_dictionaries",
            "Bytes of memory that the dictionaries take now with which values are compressed.",
            Kind::Gauge,
            "bytes",
            Value::Count(stats.dictionaries_bytes),
        ),
    ]
}
