//! Memory that is kept in a file (`--keep`): what is told of it at the start and at the stop.

use crate::settings::Settings;
use larder_cache::{Cache, Left, Recovered, check_keep_path};
use std::path::Path;

/// Says in the log what a start found in the file.
pub(crate) fn announce(cache: &Cache, settings: &Settings) {
    let (Some(recovered), Some(path)) = (cache.recovered(), &settings.keep) else { return };
    match &recovered.left {
        Left::Unusable(why) => {
            tracing::warn!("nothing is kept of {} (--keep), and the cache is empty: {why}", path.display());
        }
        _ => tracing::info!(target: "larder::start", "{}", sentence(recovered, path)),
    }
    if recovered.damaged_columns > 0 {
        tracing::warn!(
            "{} columns of {} (--keep) were damaged: their items are lost, and the others are served",
            recovered.damaged_columns,
            path.display()
        );
    }
}

/// The start in one sentence.
fn sentence(recovered: &Recovered, path: &Path) -> String {
    let after = match recovered.left {
        Left::Stopped => "a graceful stop",
        Left::Killed => "a crash",
        _ => return format!("items are kept in {}, which is new", path.display()),
    };
    let expired = match recovered.expired {
        0 => String::new(),
        expired => format!("; {expired} had expired"),
    };
    let lost = match recovered.lost {
        0 => String::new(),
        lost => format!("; {lost} were lost"),
    };
    format!(
        "after {after}, {} items ({} MiB) are served again from {}; this took {:.2} s{expired}{lost}",
        recovered.items,
        recovered.bytes >> 20,
        path.display(),
        recovered.took.as_secs_f64(),
    )
}

/// Why a file cannot be used, as far as that can be known without making it.
pub(crate) fn problem_of_start(path: &Path) -> Option<String> {
    check_keep_path(path).err().map(|error| error.to_string())
}

/// Leaves the file as one of a server that stopped in order. No worker runs any more.
pub(crate) fn end(cache: &Cache, settings: &Settings) {
    if let Some(path) = &settings.keep {
        cache.end_kept();
        tracing::info!("{} items are kept in {}", cache.items(), path.display());
    }
}
