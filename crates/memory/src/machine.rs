//! What the machine reports about itself: cache geometry, huge pages, limits. Each value is a hint that is read
//! once.

use crate::memory_options::{COLUMN_BYTES_DEFAULT, COLUMN_BYTES_MAX, COLUMN_BYTES_MIN, COLUMNS_WANTED_MIN};
use std::path::Path;

/// Bytes that cover every set of the second-level cache once, if the machine describes its cache.
pub(crate) fn cache_column_bytes(caches: &Path) -> Option<u32> {
    for index in 0..8 {
        let cache = caches.join(format!("index{index}"));
        let read = |name: &str| std::fs::read_to_string(cache.join(name)).ok();
        let (Some(level), Some(kind)) = (read("level"), read("type")) else { continue };
        if level.trim() != "2" || kind.trim() == "Instruction" {
            continue;
        }
        let number = |name: &str| read(name)?.trim().parse::<u32>().ok();
        return number("number_of_sets")?.checked_mul(number("coherency_line_size")?);
    }
    None
}

/// The column size for a cache whose sets hold `cache_bytes` bytes with one line each: twice that number. A column
/// then covers every set equally often, and the space left over at its end is a smaller part of it. The size is
/// halved until `limit_bytes` holds enough columns.
pub(crate) fn choose_column_bytes(cache_bytes: Option<u32>, limit_bytes: u64) -> u32 {
    let wanted = cache_bytes
        .filter(|bytes| bytes.is_power_of_two() && *bytes <= COLUMN_BYTES_MAX)
        .unwrap_or(COLUMN_BYTES_DEFAULT);
    let mut column_bytes = (COVERS * wanted).clamp(COLUMN_BYTES_MIN, COLUMN_BYTES_MAX);
    while column_bytes > COLUMN_BYTES_MIN && limit_bytes / u64::from(column_bytes) < COLUMNS_WANTED_MIN {
        column_bytes /= 2;
    }
    column_bytes
}

/// Processor time that the calling thread has used, in nanoseconds.
#[cfg(not(any(miri, loom)))]
pub(crate) fn thread_cpu_ns() -> u64 {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    spent.tv_sec as u64 * 1_000_000_000 + spent.tv_nsec as u64
}

/// Processor time that the calling thread has used: unknown here.
#[cfg(any(miri, loom))]
pub(crate) fn thread_cpu_ns() -> u64 {
    0
}

/// How often a column covers every set of the cache, if the memory is large enough.
const COVERS: u32 = 2;

/// The folder in which Linux describes the caches of the first processor.
pub(crate) const CACHES: &str = "/sys/devices/system/cpu/cpu0/cache";

#[cfg(not(any(miri, loom)))]
mod kernel {
    /// Explicit huge pages of 2 MiB that are neither in use nor reserved.
    pub(crate) fn free_huge_pages() -> u64 {
        let read = |name: &str| -> Option<u64> {
            let path = format!("/sys/kernel/mm/hugepages/hugepages-2048kB/{name}");
            std::fs::read_to_string(path).ok()?.trim().parse().ok()
        };
        read("free_hugepages").unwrap_or(0).saturating_sub(read("resv_hugepages").unwrap_or(0))
    }

    /// Whether the kernel provides transparent huge pages to a process that asks for them with madvise.
    pub(crate) fn transparent_huge_pages() -> bool {
        std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled")
            .is_ok_and(|text| text.contains("[always]") || text.contains("[madvise]"))
    }

    /// How many separate mappings a process may have.
    pub(crate) fn mappings_max() -> usize {
        let text = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
        text.trim().parse().unwrap_or(65_530)
    }
}
#[cfg(not(any(miri, loom)))]
pub(crate) use kernel::*;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_small_limit_gets_small_columns() {
        assert_eq!(choose_column_bytes(Some(128 << 10), 1 << 30), 256 << 10);
        assert_eq!(choose_column_bytes(Some(128 << 10), 200 << 20), 128 << 10);
        assert_eq!(choose_column_bytes(Some(128 << 10), 64 << 20), 64 << 10);
        assert_eq!(choose_column_bytes(Some(128 << 10), 8 << 20), 32 << 10, "never below 32 KiB");
        assert_eq!(choose_column_bytes(Some(1 << 20), 1 << 40), 1 << 20, "never above 1 MiB");
        assert_eq!(choose_column_bytes(None, 1 << 40), 256 << 10);
        assert_eq!(
            choose_column_bytes(Some(8 << 20), 1 << 40),
            256 << 10,
            "no second-level cache is that large"
        );
        assert_eq!(choose_column_bytes(Some(3 << 16), 1 << 40), 256 << 10, "1.5 times a power of two");
    }

    #[test]
    #[cfg(not(miri))]
    fn the_cache_description_is_read_as_linux_writes_it() {
        let caches = std::env::temp_dir().join(format!("larder-caches-{}", std::process::id()));
        for (index, level, kind, sets) in [(0, "1", "Data", 64), (1, "2", "Unified", 2048)] {
            let cache = caches.join(format!("index{index}"));
            std::fs::create_dir_all(&cache).unwrap();
            std::fs::write(cache.join("level"), format!("{level}\n")).unwrap();
            std::fs::write(cache.join("type"), format!("{kind}\n")).unwrap();
            std::fs::write(cache.join("number_of_sets"), format!("{sets}\n")).unwrap();
            std::fs::write(cache.join("coherency_line_size"), "64\n").unwrap();
        }
        assert_eq!(cache_column_bytes(&caches), Some(131_072));
        std::fs::remove_dir_all(&caches).unwrap();
        assert_eq!(cache_column_bytes(&caches), None);
    }
}
