//! The keys of the table `[flash.tuning]` of the settings file. A row gives the name of the key, its help with unit,
//! limits and default, the figure that shows when another value pays, and the setting that it sets. The settings file,
//! the help, the errors for flags of these names and the tests are made from this table, and `docs/flash.md` has a row
//! for each key.

use larder_server::settings::{Direct, Promote, ReclaimPolicy, Settings};

use super::values::{bytes, on_off, one_of, ops, whole};

/// The table's name in the settings file.
pub(crate) const TABLE: &str = "[flash.tuning]";

/// One key.
pub(crate) struct Key {
    /// Its name.
    pub(crate) name: &'static str,
    /// One sentence for the help, with unit and limits.
    pub(crate) help: &'static str,
    /// The default as it would be written; empty if it depends on the device.
    pub(crate) default: &'static str,
    /// A valid value that differs from the default.
    pub(crate) example: &'static str,
    /// The figure of `stats flash` that shows when another value pays.
    pub(crate) figure: &'static str,
    /// Checks a value and sets it. The error describes a valid value.
    pub(crate) set: fn(&mut Settings, &str) -> Result<(), String>,
}

/// The key with this name.
pub(crate) fn by_name(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// What to write instead of a flag that is none any more.
pub(crate) fn instead_of_flag(long: &str) -> Option<String> {
    let name = long.strip_prefix("flash-")?;
    if name == "format" {
        return Some("the command 'larder format-flash' erases a device, with the flags of serve".to_owned());
    }
    // The share of items to keep became the share of the flash that they may take.
    let key = by_name(if name == "keep" { "fill" } else { name })?;
    Some(format!(
        "write {name} = VALUE below {TABLE} in the settings file (--config FILE), such as {name} = \"{}\"",
        key.example,
        name = key.name
    ))
}

/// The table.
#[rustfmt::skip] // A row reads as a card: one line for each thing it says.
pub(crate) static KEYS: &[Key] = &[
    Key {
        name: "fill",
        help: "percentage of the flash that live items may take, 10 to 95; beyond it the coldest ones go, and the rest \
               is what keeps rewriting cheap",
        default: "85", example: "70", figure: "alwa",
        set: |s, v| { s.flash.fill_percent = whole(v, 10, 95)? as u8; Ok(()) },
    },
    Key {
        name: "generations",
        help: "merge old segments into sorted generations when the index of the log is crowded, on or off: an item \
               then takes about a third less memory, and is written once more",
        default: "on", example: "off", figure: "index_bytes_per_item",
        set: |s, v| { s.flash.generations = on_off(v)?; Ok(()) },
    },
    Key {
        name: "reclaim",
        help: "how space is freed: greedy (the zone with the fewest live bytes, whose live items are written again), \
               quick (the oldest zone, with all in it), normal-quick (greedy, but many old zones at once when erased \
               space runs short) or adaptive (greedy, but while there is space only zones with much garbage)",
        default: "adaptive", example: "quick", figure: "quick_drops",
        set: |s, v| {
            s.flash.reclaim = one_of(v, &[("adaptive", ReclaimPolicy::Adaptive), ("greedy", ReclaimPolicy::Greedy),
                ("quick", ReclaimPolicy::Quick), ("normal-quick", ReclaimPolicy::NormalQuick)])?;
            Ok(())
        },
    },
    Key {
        name: "ops",
        help: "how much erased space is held ready: queuing (computed from the rates of writing and erasing), \
               heuristic (doubled whenever it runs short) or static=PERCENT, 1 to 90",
        default: "queuing", example: "static=10", figure: "drops_forced",
        set: |s, v| { s.flash.ops = ops(v)?; Ok(()) },
    },
    Key {
        name: "cutoff",
        help: "an item that expires within so many seconds counts as expired when its zone is freed, 0 to 2147483647",
        default: "0", example: "300", figure: "survivor_bytes",
        set: |s, v| { s.flash.cutoff_s = whole(v, 0, i32::MAX as u32)?; Ok(()) },
    },
    Key {
        name: "promote",
        help: "what a read from flash does: lazy (an item that is read again soon moves to memory, and its copy on \
               flash stays) or strict (every item that is read moves to memory and leaves flash)",
        default: "lazy", example: "strict", figure: "elided",
        set: |s, v| {
            s.flash.promote = one_of(v, &[("lazy", Promote::Lazy), ("strict", Promote::Strict)])?;
            Ok(())
        },
    },
    Key {
        name: "save",
        help: "write the items in memory to flash when the server stops, on or off: with off, the stop is quick and \
               these items are lost",
        default: "on", example: "off", figure: "items",
        set: |s, v| { s.flash.save = on_off(v)?; Ok(()) },
    },
    Key {
        name: "depth",
        help: "most reads that one worker has under way on the flash, 1 to 4096",
        default: "64", example: "16", figure: "flash_fetch_duration",
        set: |s, v| { s.flash.depth = whole(v, 1, 4096)?; Ok(()) },
    },
    Key {
        name: "direct",
        help: "bypass the system's page cache (O_DIRECT): on, off, or auto, which does so where the file system can",
        default: "auto", example: "off", figure: "flash_fetch_duration",
        set: |s, v| {
            s.flash.direct = one_of(v, &[("auto", Direct::Auto), ("on", Direct::On), ("off", Direct::Off)])?;
            Ok(())
        },
    },
    Key {
        name: "zone",
        help: "size of a zone, the unit of erasing, of a file or plain block device: 64k to 16g, about a 256th of the \
               device if not given; fixed when the device is formatted",
        default: "", example: "64m", figure: "zones_free",
        set: |s, v| { s.flash.zone_bytes = Some(bytes(v, 1, 64 << 10, 16 << 30)?); Ok(()) },
    },
    Key {
        name: "segment",
        help: "largest size of a segment, the unit of writing: 64k to 1g, at most a zone; as zone and memory allow if \
               not given",
        default: "", example: "4m", figure: "segments_waiting",
        set: |s, v| { s.flash.segment_bytes = Some(bytes(v, 1, 64 << 10, 1 << 30)?); Ok(()) },
    },
];
