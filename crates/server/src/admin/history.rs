//! The main numbers of the last hour, in bounded memory: one row for every ten seconds.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value as Json, json};

use super::family::{Moment, Source};

/// The time between two rows.
const PERIOD: Duration = Duration::from_secs(10);
/// The rows of one hour.
const ROWS: usize = 360;
/// The names of the columns. A rate is the mean of the ten seconds before the row's time, and so is the ratio, which is
/// null where nothing was read.
const COLUMNS: [&str; 11] = [
    "time_ms",
    "requests_per_s",
    "hit_ratio",
    "p50_us",
    "p99_us",
    "evictions_per_s",
    "items",
    "memory_bytes",
    "connections",
    "bytes_per_s",
    "flash_items",
];

/// The rows, and what the next one is compared with.
pub(super) struct History {
    rows: VecDeque<[Option<f64>; COLUMNS.len()]>,
    last: Moment,
    last_at: Instant,
}

impl History {
    /// No rows yet.
    pub(super) fn new(now: Moment) -> History {
        History { rows: VecDeque::new(), last: now, last_at: Instant::now() }
    }

    /// Adds a row for the time since the last one.
    fn add(&mut self, time_ms: u64, now: Moment, at: Instant) {
        let seconds = at.saturating_duration_since(self.last_at).as_secs_f64().max(1e-3);
        let then = &self.last;
        // Some counts start over at `stats reset`: that is no negative rate.
        let rate = |now: u64, then: u64| Some(now.saturating_sub(then) as f64 / seconds);
        let hits = now.hits.saturating_sub(then.hits) as f64;
        let reads = hits + now.misses.saturating_sub(then.misses) as f64;
        let times = now.requests.since(&then.requests);
        let quantile = |q| times.quantile(q).map(|ns| ns as f64 / 1e3);
        let row = [
            Some(time_ms as f64),
            Some(times.count() as f64 / seconds),
            (reads > 0.0).then(|| hits / reads),
            quantile(0.5),
            quantile(0.99),
            rate(now.evictions, then.evictions),
            Some(now.items as f64),
            Some(now.memory_bytes as f64),
            Some(now.connections as f64),
            rate(now.received_bytes + now.sent_bytes, then.received_bytes + then.sent_bytes),
            Some(now.flash_items as f64),
        ];
        if self.rows.len() == ROWS {
            self.rows.pop_front();
        }
        self.rows.push_back(row);
        (self.last, self.last_at) = (now, at);
    }

    /// The rows, the oldest first, as one JSON object.
    pub(super) fn json(&self) -> String {
        let rows: Vec<Json> = self.rows.iter().map(|row| json!(row)).collect();
        json!({ "period_s": PERIOD.as_secs(), "columns": COLUMNS, "rows": rows }).to_string()
    }
}

/// Adds a row every ten seconds, for ever.
pub(super) async fn record(source: &dyn Source, history: &Mutex<History>) {
    let mut ticks = tokio::time::interval(PERIOD);
    ticks.tick().await;
    loop {
        ticks.tick().await;
        let time_ms =
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        let moment = source.moment();
        history.lock().expect("no panic under this lock").add(time_ms, moment, Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(hits: u64, misses: u64, requests: u64) -> Moment {
        let mut moment = Moment { hits, misses, items: hits, ..Moment::default() };
        moment.requests.record(5_000, requests);
        moment
    }

    #[test]
    fn a_row_is_what_happened_since_the_last_one() {
        let mut history = History::new(moment(100, 100, 50));
        let start = history.last_at;
        history.add(1_000, moment(190, 110, 150), start + PERIOD);
        history.add(11_000, moment(190, 110, 150), start + 2 * PERIOD);
        history.add(21_000, moment(10, 0, 10), start + 3 * PERIOD);
        let read: Json = serde_json::from_str(&history.json()).expect("JSON");
        let at = |row: usize, name: &str| {
            let column = COLUMNS.iter().position(|column| *column == name).expect("a column");
            read["rows"][row][column].clone()
        };
        assert_eq!((at(0, "time_ms"), at(0, "requests_per_s")), (json!(1000.0), json!(10.0)));
        assert_eq!((at(0, "hit_ratio"), at(0, "items")), (json!(0.9), json!(190.0)));
        assert!(at(0, "p99_us").as_f64().expect("a time") >= 5.0);
        assert_eq!(
            (at(1, "hit_ratio"), at(1, "p50_us"), at(1, "requests_per_s")),
            (Json::Null, Json::Null, json!(0.0))
        );
        assert_eq!(at(2, "requests_per_s"), json!(0.0));
        assert_eq!(
            read["columns"].as_array().expect("names").len(),
            read["rows"][0].as_array().expect("row").len()
        );
    }

    #[test]
    fn an_hour_is_kept_and_no_more() {
        let mut history = History::new(Moment::default());
        let start = history.last_at;
        for n in 1..=2 * ROWS as u32 {
            history.add(n.into(), Moment::default(), start + n * PERIOD);
        }
        assert_eq!(history.rows.len(), ROWS);
        assert_eq!(history.rows[0][0], Some(ROWS as f64 + 1.0));
    }
}
