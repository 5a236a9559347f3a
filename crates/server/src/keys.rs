//! Hot keys and large items as they are shown: in `stats`, on the admin page, and in the metrics, which name no key.

use crate::admin::{Family, HotRow, KeyRows, Kind, Value};
use larder_cache::{Cache, HotKey};

/// Keys that are shown.
pub(crate) const SHOWN: usize = 20;
/// Keys whose shares are in the metrics, by rank.
const RANKS: usize = 10;

/// Writes a key as memcached shows keys in its logs: what is neither a letter nor a digit nor one of `-._~` as `%` and
/// two hexadecimal digits.
pub(crate) fn url_encode(out: &mut Vec<u8>, key: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in key {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(byte);
        } else {
            out.extend_from_slice(&[b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        }
    }
}

/// A key as the lines of `watch` show it.
pub(crate) fn shown_key(key: &[u8]) -> String {
    let mut out = Vec::new();
    url_encode(&mut out, key);
    String::from_utf8_lossy(&out).into_owned()
}

/// A part of all requests, from 0 to 1.
pub(crate) fn share(part: u64, all: u64) -> f64 {
    part as f64 / all.max(1) as f64
}

/// The rows of the admin page.
pub(crate) fn rows(cache: &Cache) -> KeyRows {
    let report = cache.hot_keys().report(SHOWN);
    let row = |hot: &HotKey| HotRow {
        key: shown_key(&hot.key),
        share: share(hot.requests, report.requests),
        error: share(hot.too_high_max + hot.sample_error, report.requests),
        per_second: hot.requests as f64 / report.seconds.max(1.0),
    };
    let large = cache.large_keys().largest(SHOWN);
    KeyRows {
        hot: report.keys.iter().map(row).collect(),
        large: large.iter().map(|large| (shown_key(&large.key), large.value_bytes.into())).collect(),
    }
}

/// The families of the metrics. They name no key: keys may be secret, and there may be any number of them.
pub(crate) fn families(cache: &Cache) -> [Family; 3] {
    let report = cache.hot_keys().report(RANKS);
    let ranks = (1..).zip(&report.keys);
    let largest = cache.large_keys().largest(1);
    [
        Family::labelled(
            "hot_key_share",
            "Share of the requests, from 0 to 1, that named one of the ten keys asked for most, by rank. It is \
             estimated from a sample of the last minutes; `stats hotkeys` names the keys.",
            Kind::Gauge,
            "",
            "rank",
            ranks.map(|(rank, hot)| (rank.to_string(), Value::Amount(share(hot.requests, report.requests)))),
        ),
        Family::single(
            "keys_sampled",
            "Requests whose keys were looked at for that since the server started.",
            Kind::Counter,
            "",
            Value::Count(report.sampled),
        ),
        Family::single(
            "largest_item",
            "Bytes of the value of the largest item that was seen and is still there; `stats largekeys` names more.",
            Kind::Gauge,
            "bytes",
            Value::Count(largest.first().map_or(0, |large| large.value_bytes.into())),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_cache::CacheOptions;

    #[test]
    fn keys_are_on_the_page_and_not_in_the_metrics() {
        let options = CacheOptions { limit_bytes: 16 << 20, workers: 1, ..CacheOptions::default() };
        let cache = Cache::new(options).expect("a small cache can be made");
        for (key, weight) in [(&b"a b"[..], 3), (b"c", 1)] {
            cache.hot_keys().note(cache.hash(key), key, weight);
        }
        cache.large_keys().note(cache.hash(b"c"), b"c", 5000);
        let rows = rows(&cache);
        let hot: Vec<_> = rows.hot.iter().map(|row| (&row.key[..], row.share)).collect();
        assert_eq!(hot, [("a%20b", 0.75), ("c", 0.25)]);
        assert_eq!(rows.large, [("c".to_owned(), 5000)]);
        let [shares, sampled, largest] = families(&cache);
        let labels: Vec<_> = shares.samples.iter().map(|sample| &sample.labels[..]).collect();
        assert_eq!(labels, [[("rank", "1".to_owned())], [("rank", "2".to_owned())]]);
        assert!(matches!(sampled.samples[0].value, Value::Count(2)));
        assert!(matches!(largest.samples[0].value, Value::Count(5000)));
    }
}
