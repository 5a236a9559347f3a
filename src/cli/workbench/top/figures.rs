//! What `larder top` shows: figures of a server between two looks, in panels.

use std::time::Instant;

use larder_sim::live::{Live, LiveError, Stats};
use larder_sim::trace::events::unescaped;

/// Some figures with a title.
pub(super) struct Panel {
    pub(super) title: &'static str,
    /// What it is, and its value. What matters most comes first: a small terminal shows the first rows.
    pub(super) rows: Vec<(String, String)>,
}

/// One look at a server. What a server does not know is empty.
pub(super) struct Sample {
    at: Instant,
    general: Stats,
    latency: Stats,
    temperature: Stats,
    flash: Stats,
    sizes: Stats,
    hot_keys: Stats,
    namespaces: Stats,
    compression: Stats,
}

/// Asks a server.
///
/// # Errors
/// It does not answer, or speaks another protocol.
pub(super) fn sample(live: &mut Live) -> Result<Sample, LiveError> {
    let general = live.stats("")?;
    let mut ask = |topic| match live.stats(topic) {
        Err(LiveError::Refused(_)) => Ok(Stats::default()),
        other => other,
    };
    Ok(Sample {
        general,
        latency: ask("latency")?,
        temperature: ask("temperature")?,
        flash: ask("flash")?,
        sizes: ask("mrc")?,
        hot_keys: ask("hotkeys")?,
        namespaces: ask("namespaces")?,
        compression: ask("compression")?,
        at: Instant::now(),
    })
}

impl Sample {
    /// Whether the server counts from a later start than at `then`.
    pub(super) fn is_restarted_since(&self, then: &Sample) -> bool {
        self.general.text("pid") != then.general.text("pid")
            || self.general.number("uptime") < then.general.number("uptime")
    }

    /// Requests of all kinds for each second since `then`.
    pub(super) fn requests_per_s(&self, then: &Sample) -> f64 {
        if self.latency.is_empty() {
            return ["cmd_get", "cmd_set", "cmd_touch"].iter().map(|name| self.rate(then, name)).sum();
        }
        grown(&self.latency, &then.latency, "all:count") / self.seconds(then)
    }

    fn seconds(&self, then: &Sample) -> f64 {
        self.at.saturating_duration_since(then.at).as_secs_f64().max(1e-3)
    }

    fn rate(&self, then: &Sample, name: &str) -> f64 {
        grown(&self.general, &then.general, name) / self.seconds(then)
    }

    /// The share of reads since `then` that hit, in percent.
    pub(super) fn hits_percent(&self, then: &Sample) -> Option<u64> {
        let (hits, misses) = (self.rate(then, "get_hits"), self.rate(then, "get_misses"));
        (hits + misses > 0.0).then(|| (100.0 * hits / (hits + misses)) as u64)
    }

    /// The time that the share `q` of all requests since `then` did not exceed, in microseconds.
    fn quantile_us(&self, then: Option<&Sample>, q: f64) -> Option<f64> {
        let bucket = |(name, value): (&str, &str)| {
            let end_ns: f64 = name.strip_prefix("bucket:")?.parse().ok()?;
            let before = then.and_then(|then| then.latency.number(name)).unwrap_or(0.0);
            Some((end_ns, (value.parse::<f64>().ok()? - before).max(0.0)))
        };
        let buckets: Vec<(f64, f64)> = self.latency.rows().filter_map(bucket).collect();
        let wanted = buckets.iter().map(|(_, count)| count).sum::<f64>() * q;
        let mut seen = 0.0;
        buckets.into_iter().filter(|(_, count)| *count > 0.0).find_map(|(end_ns, count)| {
            seen += count;
            (seen >= wanted).then_some(end_ns / 1e3)
        })
    }
}

/// How much a count has grown. It starts over at `stats reset`.
fn grown(now: &Stats, then: &Stats, name: &str) -> f64 {
    (now.number(name).unwrap_or(0.0) - then.number(name).unwrap_or(0.0)).max(0.0)
}

/// The panels of a look, with what happened since the look before. Without one, what is counted is left out. What
/// matters most comes first.
pub(super) fn panels(then: Option<&Sample>, now: &Sample) -> Vec<Panel> {
    let panels = [traffic(then, now), latency(then, now), memory(now), leaving(then, now), hot_keys(now)];
    let panels = panels.into_iter().chain([flash(then, now), sizes(now), namespaces(then, now)]);
    panels.filter(|panel| !panel.rows.is_empty()).collect()
}

fn row(name: &str, value: String) -> (String, String) {
    (name.to_owned(), value)
}

fn traffic(then: Option<&Sample>, now: &Sample) -> Panel {
    let text = |name| now.general.text(name).unwrap_or("-").to_owned();
    let mut rows = Vec::new();
    if let Some(then) = then {
        let rate = |name| now.rate(then, name);
        let (hits, misses) = (rate("get_hits"), rate("get_misses"));
        rows.extend([
            row("requests/s", plain(now.requests_per_s(then))),
            row("hit ratio", ratio(hits, hits + misses)),
            row("keys read/s", plain(hits + misses)),
            row("stores/s", plain(rate("cmd_set"))),
            row("deletes/s", plain(rate("delete_hits") + rate("delete_misses"))),
            row("in, out", format!("{}/s, {}/s", bytes(rate("bytes_read")), bytes(rate("bytes_written")))),
        ]);
    }
    let all = |name| now.general.number(name).unwrap_or(0.0);
    rows.extend([
        row("hit ratio since start", ratio(all("get_hits"), all("get_hits") + all("get_misses"))),
        row("connections", text("curr_connections")),
        row("up for", span(now.general.number("uptime").unwrap_or(0.0))),
        row("version", text("version")),
    ]);
    Panel { title: "traffic", rows }
}

fn latency(then: Option<&Sample>, now: &Sample) -> Panel {
    let quantile = |(name, q): &(&str, f64)| Some(row(name, time(now.quantile_us(then, *q)?)));
    let quantiles = [("p99", 0.99), ("p50", 0.5), ("p90", 0.9), ("p99.9", 0.999)];
    let mut rows: Vec<_> = quantiles.iter().filter_map(quantile).collect();
    if let Some(us) = now.latency.number("flash_fetch:mean_us") {
        rows.push(row("a read from flash, mean", time(us)));
    }
    Panel { title: "latency within the server", rows }
}

fn memory(now: &Sample) -> Panel {
    let number = |name| now.general.number(name);
    let mut rows = Vec::new();
    for (words, name) in [
        ("limit", "limit_maxbytes"),
        ("live items", "bytes"),
        ("expired, not yet back", "expired_bytes"),
        ("dead (replaced, deleted)", "dead_bytes"),
        ("index", "hash_bytes"),
        ("connection buffers", "read_buf_bytes"),
    ] {
        rows.extend(number(name).map(|value| row(words, bytes(value))));
    }
    let at = rows.len().min(2);
    let items = number("curr_items").map(|items| row("items", plain(items)));
    rows.splice(at..at, items.into_iter().chain(compressed(&now.compression)));
    Panel { title: "memory", rows }
}

/// Only while anything is compressed.
fn compressed(stats: &Stats) -> Option<(String, String)> {
    let [plain, compressed] =
        ["plain_items", "compressed_items"].map(|name| stats.number(name).unwrap_or(0.0));
    let by = stats.text("ratio").filter(|_| compressed > 0.0)?;
    Some(row("of these compressed", format!("{}, {by} to 1", ratio(compressed, plain + compressed))))
}

fn leaving(then: Option<&Sample>, now: &Sample) -> Panel {
    let mut rows = Vec::new();
    let Some(then) = then else { return Panel { title: "who leaves memory, items/s", rows } };
    let seconds = now.seconds(then);
    for (words, name) in [
        ("evicted", "evictions"),
        ("of these never read", "evicted_unfetched"),
        ("of these read within a minute", "evicted_active"),
        ("expired or flushed", "reclaimed"),
        ("of these never read", "expired_unfetched"),
        ("not stored, no memory", "store_no_memory"),
    ] {
        rows.push(row(words, plain(now.rate(then, name))));
    }
    for (words, name) in [
        ("evicted at the end of probation", "evicted_probation"),
        ("evicted when cold", "evicted_main"),
        ("moved on from probation", "promoted_from_probation"),
    ] {
        if now.temperature.number(name).is_some() {
            rows.push(row(words, plain(grown(&now.temperature, &then.temperature, name) / seconds)));
        }
    }
    Panel { title: "who leaves memory, items/s", rows }
}

fn flash(then: Option<&Sample>, now: &Sample) -> Panel {
    let mut rows = Vec::new();
    if now.flash.is_empty() {
        return Panel { title: "flash", rows };
    }
    let number = |name| now.flash.number(name);
    rows.extend(number("items").map(|items| row("records", plain(items))));
    rows.extend(number("live_bytes").map(|live| row("wanted", bytes(live))));
    rows.extend(number("capacity_bytes").map(|all| row("size", bytes(all))));
    if let Some(then) = then {
        let rate = |name| grown(&now.flash, &then.flash, name) / now.seconds(then);
        let (hits, misses) = (rate("hits"), rate("misses"));
        rows.extend([
            row("lookups/s", plain(hits + misses)),
            row("of these hits", ratio(hits, hits + misses)),
            row("items written/s", plain(rate("demoted"))),
            row("brought to memory/s", plain(rate("promoted"))),
        ]);
    }
    let text = |name| now.flash.text(name).unwrap_or("-").to_owned();
    rows.push(row("bytes written per byte admitted", text("alwa")));
    Panel { title: "flash", rows }
}

fn sizes(now: &Sample) -> Panel {
    let mut rows = Vec::new();
    match now.sizes.text("state") {
        None => {}
        Some("young") => rows.push(row("too few reads were sampled so far", String::new())),
        Some(_) => {
            for size in ["0.5x", "1x", "2x", "4x"] {
                let number = |what| now.sizes.number(&format!("{size}:{what}"));
                if let (Some(memory), Some(misses)) = (number("memory_bytes"), number("miss_ratio")) {
                    let value = format!(
                        "{:.1} % hits, {}",
                        100.0 - 100.0 * misses,
                        time(number("service_us").unwrap_or(0.0))
                    );
                    rows.push((format!("{size}  {}", bytes(memory)), value));
                }
            }
        }
    }
    Panel { title: "other sizes of memory (model)", rows }
}

/// How the tenants fare that are asked for most.
fn namespaces(then: Option<&Sample>, now: &Sample) -> Panel {
    let title = "namespaces: reads, hits, memory, evicted";
    let Some(then) = then else { return Panel { title, rows: Vec::new() } };
    let seconds = now.seconds(then);
    let grown = |name: &str, what| grown(&now.namespaces, &then.namespaces, &format!("{name}:{what}"));
    let names = now.namespaces.rows().filter_map(|(name, _)| name.strip_suffix(":gets"));
    let mut found: Vec<_> = names.map(|name| (grown(name, "gets"), name)).collect();
    found.sort_by(|one, other| other.0.total_cmp(&one.0));
    let shown = found.into_iter().map(|(gets, name)| {
        let (reads, hits) = (plain(gets / seconds), ratio(grown(name, "hits"), gets));
        let memory = bytes(now.namespaces.number(&format!("{name}:bytes")).unwrap_or(0.0));
        row(name, format!("{reads}/s, {hits}, {memory}, {}/s", plain(grown(name, "evictions") / seconds)))
    });
    Panel { title, rows: shown.collect() }
}

/// The keys that are asked for most, by their share of all requests, and the requests for each second.
fn hot_keys(now: &Sample) -> Panel {
    let stats = &now.hot_keys;
    let seconds = stats.number("seconds").unwrap_or(0.0).max(1e-3);
    let hot = (1..).map_while(|rank: u32| {
        let key = stats.text(&format!("{rank}:key"))?;
        let number = |what| stats.number(&format!("{rank}:{what}")).unwrap_or(0.0);
        let value = format!("{}  {}/s", ratio(number("share"), 1.0), plain(number("requests") / seconds));
        Some((readable(key), value))
    });
    Panel { title: "keys asked for most", rows: hot.collect() }
}

/// A key, whose bytes come percent-encoded, as its user wrote it. One that is no text, or none that a terminal may
/// show, stays as it came.
fn readable(key: &str) -> String {
    let plain = String::from_utf8(unescaped(key.as_bytes()).into_owned());
    plain.ok().filter(|plain| !plain.chars().any(char::is_control)).unwrap_or_else(|| key.to_owned())
}

/// A number with three digits and a unit.
fn scaled(value: f64, step: f64, units: &[&str]) -> String {
    let mut value = value;
    let mut units = units.iter();
    let mut unit = units.next().copied().unwrap_or_default();
    while value >= step
        && let Some(next) = units.next()
    {
        value /= step;
        unit = next;
    }
    let digits = if value >= 100.0 || value.fract() == 0.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    let space = if unit.is_empty() { "" } else { " " };
    format!("{value:.digits$}{space}{unit}")
}

fn plain(value: f64) -> String {
    scaled(value.round(), 1000.0, &["", "k", "M", "G", "T"])
}

fn bytes(value: f64) -> String {
    scaled(value, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB"])
}

fn time(us: f64) -> String {
    scaled(us, 1000.0, &["us", "ms", "s"])
}

fn ratio(part: f64, whole: f64) -> String {
    if whole > 0.0 { format!("{:.1} %", 100.0 * part / whole) } else { "-".to_owned() }
}

fn span(seconds: f64) -> String {
    let seconds = seconds as u64;
    match (seconds / 86400, seconds / 3600 % 24, seconds / 60 % 60) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min"),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn look(at: Instant, general: &str, latency: &str) -> Sample {
        Sample {
            at,
            general: Stats::parse(general),
            latency: Stats::parse(latency),
            temperature: Stats::default(),
            flash: Stats::default(),
            sizes: Stats::default(),
            hot_keys: Stats::default(),
            namespaces: Stats::default(),
            compression: Stats::default(),
        }
    }

    #[test]
    fn rates_are_what_happened_between_two_looks() {
        let start = Instant::now();
        let then = look(
            start,
            "STAT pid 7\nSTAT uptime 100\nSTAT get_hits 10\nSTAT get_misses 10\nSTAT evictions 5",
            "STAT all:count 20\nSTAT bucket:1000 20",
        );
        let now = look(
            start + Duration::from_secs(2),
            "STAT pid 7\nSTAT uptime 102\nSTAT get_hits 100\nSTAT get_misses 20\nSTAT evictions 25",
            "STAT all:count 2020\nSTAT bucket:1000 1020\nSTAT bucket:2000 980\nSTAT bucket:9000 20",
        );
        assert_eq!(now.requests_per_s(&then), 1000.0);
        assert_eq!(now.quantile_us(Some(&then), 0.5), Some(1.0));
        assert_eq!(now.quantile_us(Some(&then), 0.999), Some(9.0));
        assert!(!now.is_restarted_since(&then) && then.is_restarted_since(&now));
        let panels = panels(Some(&then), &now);
        let value = |title: &str, name: &str| {
            let panel = panels.iter().find(|panel| panel.title.starts_with(title)).expect(title);
            panel.rows.iter().find(|row| row.0 == name).expect(name).1.clone()
        };
        assert_eq!(value("traffic", "hit ratio"), "90.0 %");
        assert_eq!(value("traffic", "hit ratio since start"), "83.3 %");
        assert_eq!(value("who leaves", "evicted"), "10");
        assert_eq!(value("latency", "p90"), "2 us");
        assert!(panels.iter().all(|panel| panel.title != "flash"), "this server has none");
    }

    #[test]
    fn namespaces_are_in_the_order_of_their_reads() {
        let start = Instant::now();
        let at = |seconds, namespaces| Sample {
            namespaces: Stats::parse(namespaces),
            ..look(start + Duration::from_secs(seconds), "", "")
        };
        let then = at(0, "STAT namespaces 1\nSTAT a:gets 10\nSTAT a:hits 5\nSTAT b:gets 0");
        let now = at(
            2,
            "STAT namespaces 2\nSTAT a:gets 30\nSTAT a:hits 15\nSTAT a:bytes 2048\nSTAT a:evictions 4\nSTAT b:gets 400",
        );
        let panel = namespaces(Some(&then), &now);
        assert_eq!(panel.rows[0], ("b".into(), "200/s, 0.0 %, 0 B, 0/s".into()));
        assert_eq!(panel.rows[1], ("a".into(), "10/s, 50.0 %, 2 KiB, 2/s".into()));
        assert!(namespaces(None, &now).rows.is_empty(), "nothing is known of the time before");
    }

    #[test]
    fn what_is_compressed_is_told_while_anything_is() {
        let of = |compressed| {
            let stats = format!("STAT plain_items 25\nSTAT compressed_items {compressed}\nSTAT ratio 3.14");
            memory(&Sample {
                compression: Stats::parse(&stats),
                ..look(Instant::now(), "STAT limit_maxbytes 9\nSTAT bytes 8\nSTAT curr_items 100", "")
            })
        };
        let rows = of(75).rows;
        assert_eq!(rows[2].0, "items");
        assert_eq!(rows[3], ("of these compressed".into(), "75.0 %, 3.14 to 1".into()));
        assert_eq!(of(0).rows.len(), 3);
    }

    #[test]
    fn hot_keys_are_readable() {
        let stats = "STAT sampled 9\nSTAT seconds 10\nSTAT 1:key caf%C3%A9%3A1%25\nSTAT 1:share 0.25\n\
                     STAT 1:requests 40\nSTAT 1:too_high_max 3\nSTAT 2:key a%1B%5B2J\nSTAT 2:share 0.1";
        let now = Sample { hot_keys: Stats::parse(stats), ..look(Instant::now(), "", "") };
        let rows = hot_keys(&now).rows;
        assert_eq!(rows[0], ("café:1%".into(), "25.0 %  4/s".into()));
        assert_eq!(rows[1].0, "a%1B%5B2J", "nothing moves the cursor");
        assert_eq!((rows.len(), readable("%C3%zz%4")), (2, "%C3%zz%4".into()));
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            (plain(999.0), plain(1234.0), plain(5_000_000.0)),
            ("999".into(), "1.23 k".into(), "5 M".into())
        );
        assert_eq!((bytes(1536.0), time(2500.0)), ("1.50 KiB".into(), "2.50 ms".into()));
        assert_eq!(
            (span(59.0), span(3700.0), span(90_000.0)),
            ("59 s".into(), "1 h 1 min".into(), "1 d 1 h".into())
        );
        assert_eq!((ratio(1.0, 0.0), ratio(1.0, 8.0)), ("-".into(), "12.5 %".into()));
    }
}
