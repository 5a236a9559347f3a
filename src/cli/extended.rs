//! memcached's extended options (`-o`): flags under another name, and options that have no effect here.

use larder_server::settings::{Row, Settings, Takes, WithoutEffect, table};

use super::error::nearest;

/// Extended options of memcached that change nothing here: Larder has no slab classes to move pages between, no LRU
/// queue to maintain or crawl, and no threads whose buffers could be sized.
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

/// Options that must not be ignored silently: the start of their name, and what to do instead.
const REFUSED: &[(&str, &str)] = &[
    ("proxy_", "the proxy is not served: leave it out, and run a proxy beside the server"),
    (
        "drop_privileges",
        "system calls are not filtered: leave it out, and use the sandbox of your service manager",
    ),
];

/// Sets what a flag or a key of the settings file says.
///
/// # Errors
/// A description of a valid value.
pub(super) fn set(row: &Row, settings: &mut Settings, text: &str) -> Result<(), String> {
    match row.takes {
        Takes::Options(_) => set_options(settings, text),
        _ => row.set(settings, text),
    }
}

/// Applies memcached's `-o` list. An option that is also a flag sets what the flag sets.
fn set_options(settings: &mut Settings, list: &str) -> Result<(), String> {
    for word in list.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
        if let Some((row, value)) = as_flag(name, value)? {
            // memcached takes several paths of its flash storage, each as an option of its own.
            let all = |word: &'_ str| word.trim().strip_prefix(name)?.strip_prefix('=').map(str::to_owned);
            let value = match row.takes {
                Takes::List(_) => list.split(',').filter_map(all).collect::<Vec<_>>().join(","),
                _ => value.to_owned(),
            };
            row.set(settings, &value).map_err(|expected| format!("{name}: {expected}"))?;
        } else if WITHOUT_EFFECT.contains(&name) {
            let option = WithoutEffect { name: name.to_owned(), value: value.map(str::to_owned) };
            settings.without_effect.push(option);
        } else if let Some((_, why)) = REFUSED.iter().find(|(start, _)| name.starts_with(start)) {
            return Err(format!("{name}: {why}"));
        } else {
            let known = table::flags().filter_map(|row| row.option);
            let near = nearest(name, known.chain(WITHOUT_EFFECT.iter().copied()));
            return Err(format!("there is no option '{name}'; the nearest is '{near}'"));
        }
    }
    Ok(())
}

/// The flag that an option stands for, and the value that the option gives it. `no_` before a switch turns it off.
fn as_flag<'a>(name: &str, value: Option<&'a str>) -> Result<Option<(&'static Row, &'a str)>, String> {
    if let Some(row) = table::by_option(name) {
        return match (row.takes, value) {
            (Takes::Nothing, None) => Ok(Some((row, "true"))),
            (_, Some(value)) => Ok(Some((row, value))),
            (_, None) => Err(format!("{name} needs a value: write {name}=NUM")),
        };
    }
    match name.strip_prefix("no_").and_then(table::by_option) {
        Some(row) if row.takes == Takes::Nothing && value.is_none() => Ok(Some((row, "false"))),
        _ => Ok(None),
    }
}
