//! Taking the memory of `-m` from the machine before the first request (`--prefault`).

use larder_cache::Cache;
use std::fs::read_to_string;
use std::time::Instant;

/// More threads than this do not fill memory faster.
const THREADS_MAX: usize = 8;

/// Takes all memory for items from the machine, until `go_on` says no.
///
/// # Errors
/// One line that says what to do: the machine, or the control group of the process, has less memory left than `-m`.
pub(crate) fn prefault(cache: &Cache, go_on: impl Fn() -> bool + Sync) -> Result<(), String> {
    let wanted = cache.memory_use().limit_bytes;
    // Reserved huge pages are in neither number: the system has set them aside.
    let available = machine_bytes().into_iter().chain(control_group_bytes()).min();
    if let Some(available) = available.filter(|available| *available < wanted && !cache.has_reserved_pages())
    {
        return Err(format!(
            "--prefault wants the {} MiB of -m at once, and {} MiB are available: lower -m, or leave --prefault out",
            wanted >> 20,
            available >> 20
        ));
    }
    let started = Instant::now();
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
    cache.prefault(threads, go_on);
    tracing::info!(target: "larder::start",
        "{} MiB of memory taken in {:.1} s", cache.memory_use().columns_bytes >> 20, started.elapsed().as_secs_f64());
    Ok(())
}

/// Bytes of memory that the machine can give without swapping.
fn machine_bytes() -> Option<u64> {
    available_in(&read_to_string("/proc/meminfo").ok()?)
}

fn available_in(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// Bytes of memory that are left to the control group which this process sees as its root, as in a container. `None` =
/// the group has no limit.
fn control_group_bytes() -> Option<u64> {
    let read = |name: &str| -> Option<u64> {
        read_to_string(format!("/sys/fs/cgroup/{name}")).ok()?.trim().parse().ok()
    };
    Some(read("memory.max")?.saturating_sub(read("memory.current")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_read() {
        let meminfo =
            "MemTotal:       24684044 kB\nMemFree:        23000000 kB\nMemAvailable:   23954432 kB\n";
        assert_eq!(available_in(meminfo), Some(23_954_432 * 1024));
        assert_eq!(available_in("MemTotal:       24684044 kB\n"), None);
        assert_eq!(available_in("MemAvailable:   many kB\n"), None);
    }
}
