//! Options of memcached's command line that have no effect here, or another one.

use super::values::bytes;
use larder_server::settings::{MEMORY_BYTES_MIN, MIB, Protocol, Settings, WithoutEffect};

/// Extended options of memcached that change nothing here: Larder has no slab classes to move pages between, no LRU
/// queue to maintain or crawl, and no threads whose buffers could be sized.
pub(super) const WITHOUT_EFFECT: &[&str] = &[
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
pub(super) const REFUSED: &[(&str, &str)] = &[
    ("proxy_", "the proxy is not served: leave it out, and run a proxy beside the server"),
    (
        "drop_privileges",
        "system calls are not filtered: leave it out, and use the sandbox of your service manager",
    ),
];

/// Records that an option of memcached was given and has no effect.
pub(super) fn without_effect(settings: &mut Settings, name: &str, value: Option<&str>) {
    settings.without_effect.push(WithoutEffect { name: name.to_owned(), value: value.map(str::to_owned) });
}

/// memcached's `-m`. A limit with which nothing could be done is raised, as memcached would take it.
pub(super) fn memory_limit(settings: &mut Settings, text: &str) -> Result<(), String> {
    let wanted = bytes(text, MIB, 0, 1 << 45).map_err(|_| "expected a size from 8m to 32t")?;
    settings.memory_bytes = wanted.max(MEMORY_BYTES_MIN);
    settings.memory_raised_from = Some(wanted).filter(|&wanted| wanted < MEMORY_BYTES_MIN);
    Ok(())
}

/// The protocols of memcached's `-B`.
pub(super) fn protocol(text: &str) -> Result<Protocol, String> {
    match text {
        "auto" => Ok(Protocol::Auto),
        "ascii" => Ok(Protocol::Ascii),
        "binary" => Ok(Protocol::Binary),
        _ => Err("expected auto, ascii or binary".to_owned()),
    }
}
