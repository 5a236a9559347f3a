//! Simulated drives by name.

use super::ftl::FtlOptions;
use super::ftl_device::FtlSsd;
use super::profile::Profile;
use super::sim::SimSsd;
use super::zoned::ZoneLayout;
use larder_flash::device::{Device, OpenError, default_zone_bytes};
use std::sync::Arc;

/// The names of the drives that [`simulated`] makes.
///
/// * `ftl`: an ordinary drive with a translation layer and 7 % of spare space.
/// * `ftl-28`: the same with 28 % of spare space, as in a server drive.
/// * `zoned`: zones that are striped over all dies, as in a drive with zoned namespaces.
/// * `open-channel`: each zone is one erase block of one die, and the host sees the channels.
pub const PROFILES: [&str; 4] = ["ftl", "ftl-28", "zoned", "open-channel"];

/// The least size of a drive, bytes.
const BYTES_MIN: u64 = 64 << 20;
/// Blocks of each die that hold zones: the least number of zones, or of superblocks of a translation layer.
const BLOCKS: u32 = 64;
/// The same for a translation layer, which needs some lines to spare.
const LINES: u32 = 96;
/// The fewest pages of a block. With fewer the next smaller parts are taken.
const PAGES_MIN: u64 = 48;
/// Always the same drive: there is nothing to learn from another one.
const SEED: u64 = 1;

/// A drive of this name that holds about `bytes` bytes, erased, in real time. It lives in memory and is gone with the
/// process. `zone_bytes` is the length of a zone where the drive leaves that to the host.
///
/// # Errors
/// There is no such name; or the drive would be too small; or there is not so much free memory.
pub fn simulated(name: &str, bytes: u64, zone_bytes: Option<u64>) -> Result<Arc<dyn Device>, OpenError> {
    let refuse = |why: String| Err(OpenError(format!("sim:{name} {why}")));
    if bytes < BYTES_MIN {
        return refuse(format!("is too small: {} MiB at least", BYTES_MIN >> 20));
    }
    let spare_percent = match name {
        "ftl" => 7.0,
        "ftl-28" => 28.0,
        "zoned" | "open-channel" => 0.0,
        _ => return refuse(format!("is not known: use {}", PROFILES.join(", "))),
    };
    let is_ftl = spare_percent > 0.0;
    let blocks = if is_ftl { LINES } else { BLOCKS };
    let raw_bytes = (bytes as f64 * (1.0 + spare_percent / 100.0)) as u64;
    let profile = parts(name_of(name), raw_bytes, blocks);
    // Beside the contents, there are tables.
    let needed = profile.raw_bytes() + profile.raw_bytes() / 64;
    if let Some(free) = free_memory()
        && needed > free
    {
        return refuse(format!(
            "lives in memory and needs {} MiB, and {} MiB are free: ask for less",
            needed >> 20,
            free >> 20
        ));
    }
    if is_ftl {
        let options = FtlOptions { over_provisioning_percent: spare_percent, ..FtlOptions::default() };
        let zone_bytes = zone_bytes.unwrap_or_else(|| default_zone_bytes(bytes));
        return Ok(FtlSsd::in_real_time(profile, options, zone_bytes, SEED).device());
    }
    let luns_per_zone = if name == "zoned" { profile.luns() } else { 1 };
    // One more block for each die to replace a block that goes bad.
    let profile = Profile { blocks: profile.blocks + 1, ..profile };
    let layout = ZoneLayout { luns_per_zone, cache_bytes: 1 << 20 };
    Ok(SimSsd::in_real_time(profile, layout, SEED).device())
}

fn name_of(name: &str) -> &'static str {
    PROFILES.into_iter().find(|known| *known == name).unwrap_or_default()
}

/// Parts that hold at least `bytes` bytes in `blocks` blocks for each die: the largest ones whose blocks are not too
/// short. The times are those of [`Profile::tlc_2024`]. No block is bad from the beginning: a drive that is asked for
/// by its size has that size.
fn parts(name: &'static str, bytes: u64, blocks: u32) -> Profile {
    let tlc = Profile { name, factory_bad_per_mille: 0, blocks, ..Profile::tlc_2024() };
    let small = Profile { dies_per_channel: 2, planes: 1, ..tlc.clone() };
    let tiny = Profile { channels: 4, page_bytes: 4096, word_line_pages: 4, ..small.clone() };
    let pages = |profile: &Profile| {
        let per_block = bytes.div_ceil(profile.luns() as u64 * blocks as u64);
        per_block.div_ceil(profile.wide_page_bytes() as u64).next_multiple_of(profile.word_line_pages as u64)
    };
    let chosen = [tlc, small].into_iter().find(|profile| pages(profile) >= PAGES_MIN).unwrap_or(tiny);
    Profile { pages: pages(&chosen) as u32, ..chosen }
}

/// Bytes of memory that the system has free or can free, if it tells.
fn free_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kibibytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_laboratory::contract;

    #[test]
    fn every_name_is_a_device_of_about_the_size() {
        for name in PROFILES {
            for mebibytes in [64u64, 100, 300, 1500] {
                let device = simulated(name, mebibytes << 20, None).expect(name);
                let geometry = device.geometry();
                let found = geometry.capacity_bytes() >> 20;
                assert!(found * 100 >= mebibytes * 97, "{name} of {mebibytes} MiB has {found} MiB");
                assert!(found <= mebibytes + mebibytes / 4 + 16, "{name} of {mebibytes} MiB has {found} MiB");
                assert!(geometry.zones >= 32, "{name} of {mebibytes} MiB: {} zones", geometry.zones);
                assert_eq!(geometry.channels > 1, name == "open-channel");
                assert!(device.counters().erases.is_some() && device.counters().media_bytes.is_some());
            }
        }
    }

    #[test]
    fn what_cannot_be_made_is_refused_in_words() {
        let refusal = |name, bytes| simulated(name, bytes, None).err().expect("it is refused").0;
        assert_eq!(refusal("disk", 1 << 30), "sim:disk is not known: use ftl, ftl-28, zoned, open-channel");
        assert_eq!(refusal("ftl", 1 << 20), "sim:ftl is too small: 64 MiB at least");
        assert!(refusal("zoned", 1 << 50).starts_with("sim:zoned lives in memory and needs "));
    }

    #[test]
    fn in_real_time_they_keep_the_contract() {
        contract::check(|| simulated("open-channel", 64 << 20, None).expect("a drive"));
        contract::check(|| simulated("ftl", 64 << 20, None).expect("a drive"));
    }

    #[test]
    fn reads_and_writes_take_their_time() {
        let device = simulated("open-channel", 64 << 20, None).expect("a drive");
        let begun = std::time::Instant::now();
        let line = vec![7; 64 << 10];
        device.append(larder_flash::device::ZoneId(0), &line).expect("an append");
        // Four word lines on one die: the last one waits for three programs.
        assert!(begun.elapsed().as_nanos() as u64 >= 3 * Profile::tlc_2024().times.program_ns);
        let begun = std::time::Instant::now();
        let mut page = larder_flash::device::PageBuffer::new(1);
        device.read(larder_flash::device::ZoneId(0), 0, &mut page).expect("a read");
        assert!(begun.elapsed().as_nanos() as u64 >= Profile::tlc_2024().times.read_ns);
        assert_eq!(page[0], 7);
    }
}
