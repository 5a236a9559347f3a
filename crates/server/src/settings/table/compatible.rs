//! Flags of memcached that change nothing here, or stand for others.

use crate::settings::all::Settings;
use crate::settings::process::WithoutEffect;
use crate::settings::row::Takes::{Options, Value};
use crate::settings::row::{Change, Given, ROW, Row, Topic};
use crate::settings::values::whole;

const COMPATIBILITY: Row = Row { topic: Topic::Compatibility, change: Change::NoSetting, ..ROW };

fn without_effect(settings: &mut Settings, name: &str, value: &str) -> Result<(), String> {
    settings.without_effect.push(WithoutEffect { name: name.to_owned(), value: Some(value.to_owned()) });
    Ok(())
}

#[rustfmt::skip] // A row reads as a card.
pub(super) static ROWS: &[Row] = &[
    Row { letter: Some('o'), name: "extended", takes: Options("OPTIONS"),
        example: "hashpower=20,no_maxconns_fast,lru_crawler",
        help: "memcached's extended options, separated by commas: hashpower, idle_timeout, maxconns_fast, \
               read_buf_mem_limit and track_sizes set the flags of these names (no_ before a switch turns it off), and \
               the path of memcached's flash storage sets --flash; other options of memcached are accepted and \
               ignored",
        value: &Given(|_, _| Err("expected options of memcached".to_owned())), ..COMPATIBILITY },
    Row { letter: Some('f'), name: "slab-growth-factor", takes: Value("NUM"), example: "1.05",
        help: "accepted and ignored: Larder has no slab classes",
        value: &Given(|s, v| {
            let factor: Option<f64> = v.parse().ok().filter(|factor: &f64| *factor > 1.0 && factor.is_finite());
            factor.ok_or("expected a number greater than 1")?;
            without_effect(s, "slab-growth-factor", v)
        }), ..COMPATIBILITY },
    Row { letter: Some('n'), name: "slab-min-size", takes: Value("BYTES"), example: "96",
        help: "accepted and ignored: Larder has no slab classes",
        value: &Given(|s, v| { whole(v, 1, 1 << 30)?; without_effect(s, "slab-min-size", v) }), ..COMPATIBILITY },
    Row { letter: Some('N'), name: "napi-ids", takes: Value("NUM"), example: "4",
        help: "accepted and ignored: a new connection goes to the worker with the fewest connections",
        value: &Given(|s, v| { whole(v, 1, 1 << 30)?; without_effect(s, "napi-ids", v) }), ..COMPATIBILITY },
    Row { name: "memory-file", takes: Value("FILE"), example: "/tmp/memory", topic: Topic::Refused,
        value: &Given(|_, _| {
            Err("the file that items are kept in over a restart is named with --keep FILE, or -e FILE".to_owned())
        }), ..COMPATIBILITY },
];
