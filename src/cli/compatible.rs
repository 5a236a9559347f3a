//! What memcached's command line may say that means nothing, or something else, here.

use larder_server::settings::{Protocol, Settings, WithoutEffect};

use super::flags::{Takes, by_option_name};
use super::nearest;

/// memcached's extended options that change nothing here: there is no chunk class to move pages between, no queue of
/// recency to maintain or crawl, and no thread whose buffers could be sized.
const WITHOUT_EFFECT: &[&str] = &[
    "slab_reassign",
    "no_slab_reassign",
    "slab_automove",
    "no_slab_automove",
    "slab_automove_ratio",
    "slab_automove_window",
    "slab_automove_freeratio",
    "slab_chunk_max",
    "slab_sizes",
    "no_chunked_items",
    "lru_crawler",
    "no_lru_crawler",
    "lru_crawler_sleep",
    "lru_crawler_tocrawl",
    "lru_maintainer",
    "no_lru_maintainer",
    "hot_lru_pct",
    "warm_lru_pct",
    "hot_max_factor",
    "warm_max_factor",
    "temporary_ttl",
    "hash_algorithm",
    "no_hashexpand",
    "tail_repair_time",
    "modern",
    "no_modern",
    "inline_ascii_response",
    "no_inline_ascii_resp",
    "read_buf_mem_limit",
    "resp_obj_mem_limit",
    "watcher_logbuf_size",
    "worker_logbuf_size",
    "sock_cookie_id",
    "relaxed_privileges",
    "no_drop_privileges",
    "ext_page_size",
    "ext_wbuf_size",
    "ext_threads",
    "ext_io_depth",
    "ext_item_size",
    "ext_item_age",
    "ext_low_ttl",
    "ext_drop_unread",
    "ext_recache_rate",
    "ext_compact_under",
    "ext_drop_under",
    "ext_max_frag",
    "ext_max_sleep",
];

/// Options whose silent loss would surprise: what they begin with, and what to do.
const REFUSED: &[(&str, &str)] = &[
    ("ssl_", "TLS is not served: leave it out, and put a TLS proxy in front"),
    ("proxy_", "the proxy is not served: leave it out, and run a proxy beside the server"),
    (
        "drop_privileges",
        "system calls are not filtered: leave it out, and use the sandbox of your service manager",
    ),
];

/// Takes memcached's `-o` list apart. An option that is also a flag sets what the flag sets.
pub(super) fn extended(settings: &mut Settings, list: &str) -> Result<(), String> {
    for word in list.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
        if let Some((flag, value)) = as_flag(name, value)? {
            (flag.set)(settings, value).map_err(|expected| format!("{name}: {expected}"))?;
        } else if WITHOUT_EFFECT.contains(&name) {
            without_effect(settings, name, value);
        } else if let Some((_, why)) = REFUSED.iter().find(|(start, _)| name.starts_with(start)) {
            return Err(format!("{name}: {why}"));
        } else {
            let known = super::flags::FLAGS.iter().filter_map(|flag| flag.option);
            let near = nearest(name, known.chain(WITHOUT_EFFECT.iter().copied()));
            return Err(format!("there is no option '{name}'; the nearest is '{near}'"));
        }
    }
    Ok(())
}

/// The flag that an option stands for, and the value it gives it: `no_` before a switch turns it off.
fn as_flag<'a>(
    name: &str,
    value: Option<&'a str>,
) -> Result<Option<(&'static super::flags::Flag, &'a str)>, String> {
    if let Some(flag) = by_option_name(name) {
        return match (flag.takes, value) {
            (Takes::Nothing, None) => Ok(Some((flag, "true"))),
            (_, Some(value)) => Ok(Some((flag, value))),
            (_, None) => Err(format!("{name} needs a value: write {name}=NUM")),
        };
    }
    match name.strip_prefix("no_").and_then(by_option_name) {
        Some(flag) if flag.takes == Takes::Nothing && value.is_none() => Ok(Some((flag, "false"))),
        _ => Ok(None),
    }
}

/// Notes an option of memcached that was given and changes nothing.
pub(super) fn without_effect(settings: &mut Settings, name: &str, value: Option<&str>) {
    settings.without_effect.push(WithoutEffect { name: name.to_owned(), value: value.map(str::to_owned) });
}

/// The protocols of memcached's `-B`; the binary one is known by name only.
pub(super) fn protocol(text: &str) -> Result<Protocol, String> {
    match text {
        "auto" => Ok(Protocol::Auto),
        "ascii" => Ok(Protocol::Ascii),
        "binary" => Err("the binary protocol is not served: use auto or ascii".to_owned()),
        _ => Err("expected auto or ascii".to_owned()),
    }
}
