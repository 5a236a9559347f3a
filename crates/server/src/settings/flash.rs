//! The settings of the flash tier.

use super::defaults::settings;
use std::fmt;
use std::path::PathBuf;

use larder_cache::STORE_WAIT_MAX_MS;
pub use larder_flash::Recover;
use larder_flash::{FILL_PERCENT, memory_bytes_for};

use super::names::Names;

/// A device of the flash tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlashDevice {
    /// A file, a block device or a zoned block device.
    Path {
        /// Where it is.
        path: PathBuf,
        /// How many bytes of it are used; `None` = all. A file that does not exist yet needs a size.
        size_bytes: Option<u64>,
    },
    /// A simulated SSD in memory.
    Simulated {
        /// One of [`larder_ssd::PROFILES`].
        profile: String,
        /// Bytes that it holds.
        size_bytes: u64,
    },
}

impl FlashDevice {
    /// Whether it is a simulated SSD, which is blank at every start.
    pub(crate) fn is_simulated(&self) -> bool {
        matches!(self, FlashDevice::Simulated { .. })
    }
}

impl fmt::Display for FlashDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FlashDevice::Path { path, .. } => path.display().fmt(f),
            FlashDevice::Simulated { profile, .. } => write!(f, "sim:{profile}"),
        }
    }
}

settings! {
    /// The flash tier. Without a device there is none, and the other fields have no effect.
    #[derive(Clone, Debug, PartialEq)]
    pub struct FlashSettings {
        /// The devices that zones are spread over, in their order.
        pub devices: Vec<FlashDevice> = Vec::new(),
        /// The most memory of the tier, in bytes, beside that of `-m`. `None` = see [`FlashSettings::memory_for`].
        pub memory_bytes: Option<u64> = None,
        /// What a restart after a crash keeps.
        pub recover: Recover = Recover::Clean,
        /// Whether a promoted item stays on flash.
        pub promote: Promote = Promote::Lazy,
        /// Which evicted items are written to flash. Default: all.
        pub admit: Admit = Admit::default(),
        /// The most bytes of items that are written in one day. Default `None` = no bound.
        pub write_budget_bytes: Option<u64> = None,
        /// How long a store waits at most while memory is full and the device is behind, in milliseconds.
        pub store_wait_ms: u32 = STORE_WAIT_MAX_MS,
        /// The part of the flash that live items may take, in percent. Beyond it the coldest are dropped.
        pub fill_percent: u8 = FILL_PERCENT,
        /// Seconds. An item with a shorter time to live is dropped when its zone is reclaimed.
        pub cutoff_s: u32 = 0,
        /// Whether reads and writes bypass the system's page cache.
        pub direct: Direct = Direct::Auto,
        /// Bytes of a segment. `None` = as the sizes of zones and memory allow.
        pub segment_bytes: Option<u64> = None,
        /// Bytes of a zone of a file or plain block device. `None` = about a 256th of the device.
        pub zone_bytes: Option<u64> = None,
        /// Whether old segments are merged into generations.
        pub generations: bool = true,
        /// Whether the items in memory are written to flash when the server stops.
        pub save: bool = true,
        /// The most reads that one worker has under way at a time.
        pub depth: u32 = 64,
    }
}

impl FlashSettings {
    /// Whether there is a flash tier.
    pub fn is_set(&self) -> bool {
        !self.devices.is_empty()
    }

    /// The most memory of the tier, in bytes, for a device of `device_bytes`.
    pub fn memory_for(&self, device_bytes: u64) -> u64 {
        self.memory_bytes.unwrap_or_else(|| memory_bytes_for(device_bytes))
    }

    /// Tells of settings that would have no effect: without a device, or beside each other. `evicts`: whether a full
    /// memory evicts items (not with `-M`).
    pub(super) fn tell_problems(&self, evicts: bool, wrong: &mut dyn FnMut(String)) {
        let mut refuse = |what: &str| wrong(what.to_owned());
        if !self.is_set() {
            if *self != FlashSettings::default() {
                refuse(
                    "flash is spoken of, but there is none: give --flash PATH:SIZE, or leave all other settings of \
                     flash out",
                );
            }
            return;
        }
        let simulated = self.devices.iter().filter(|device| device.is_simulated()).count();
        if simulated > 0 && simulated < self.devices.len() {
            refuse(
                "a simulated drive is blank at every start, so a device beside it would not be known again: give \
                 --flash sim:PROFILE:SIZE or --flash PATH:SIZE, not both",
            );
        }
        let has_zones = |device: &FlashDevice| match device {
            FlashDevice::Simulated { profile, .. } => !profile.starts_with("ftl"),
            FlashDevice::Path { .. } => false,
        };
        if self.zone_bytes.is_some() && self.devices.iter().any(has_zones) {
            refuse(
                "the simulated drives sim:zoned and sim:open-channel have zones of their own, so zone would change \
                 nothing: leave it out of [flash.tuning], or take sim:ftl",
            );
        }
        if simulated > 0 && self.direct != Direct::Auto {
            refuse(
                "a simulated drive has no page cache before it, so direct would change nothing: leave it out of \
                 [flash.tuning]",
            );
        }
        if !evicts && (self.admit != Admit::default() || self.write_budget_bytes.is_some()) {
            refuse(
                "with -M an item leaves memory only if flash takes it, so --flash-admit and --flash-write-budget would \
                 change nothing: leave them or -M out",
            );
        }
        if let (Some(segment), Some(zone)) = (self.segment_bytes, self.zone_bytes)
            && segment > zone
        {
            refuse(
                "a segment is part of a zone: give a segment of [flash.tuning] that is no larger than its zone",
            );
        }
    }
}

/// Whether a promoted item stays on flash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Promote {
    /// An item that is read again is taken to memory, and its copy on flash stays. If the item is evicted unchanged,
    /// nothing is written.
    Lazy,
    /// Every item that is read is taken to memory, and removed from flash.
    Strict,
}

/// The names of what becomes of promoted items.
pub(crate) const PROMOTE: Names<Promote> = Names(&[("lazy", Promote::Lazy), ("strict", Promote::Strict)]);

/// Which evicted items are written to flash.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Admit {
    /// The most seconds since an earlier eviction of an item that is written; 0 = items without one are written too.
    pub reject_first_s: u32,
    /// Only items that were read since they were stored.
    pub only_read: bool,
}

impl fmt::Display for Admit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.reject_first_s, self.only_read) {
            (0, false) => f.write_str("all"),
            (0, true) => f.write_str("read"),
            (seconds, false) => write!(f, "reject-first={seconds}"),
            (seconds, true) => write!(f, "read,reject-first={seconds}"),
        }
    }
}

/// Whether reads and writes bypass the system's page cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direct {
    /// They do where the file system allows it.
    Auto,
    /// They do. Where the file system does not allow it, the server does not start.
    On,
    /// They do not.
    Off,
}

/// The names of the ways to the device.
pub(crate) const DIRECT: Names<Direct> =
    Names(&[("auto", Direct::Auto), ("on", Direct::On), ("off", Direct::Off)]);

/// The names of the recovery modes.
pub(crate) const RECOVER: Names<Recover> =
    Names(&[("clean", Recover::Clean), ("journal", Recover::Journal), ("best-effort", Recover::BestEffort)]);

#[cfg(test)]
mod tests {
    use super::*;

    impl FlashSettings {
        /// The first problem.
        fn check(&self, evicts: bool) -> Result<(), String> {
            let mut first = Ok(());
            self.tell_problems(evicts, &mut |what| first = first.clone().and(Err(what)));
            first
        }
    }

    #[test]
    fn memory_is_a_share_of_the_device_unless_it_is_given() {
        let settings = FlashSettings::default();
        assert_eq!(settings.memory_for(64 << 30), 1 << 30);
        assert_eq!(settings.memory_for(1 << 20), 16 << 20);
        let given = FlashSettings { memory_bytes: Some(5), ..settings };
        assert_eq!(given.memory_for(64 << 30), 5);
    }

    fn one() -> Vec<FlashDevice> {
        vec![FlashDevice::Path { path: "/x".into(), size_bytes: None }]
    }

    #[test]
    fn settings_of_a_flash_that_is_not_there_are_a_mistake() {
        assert!(FlashSettings::default().check(true).is_ok());
        assert!(FlashSettings::default().check(false).is_ok());
        let settings = FlashSettings { depth: 5, ..FlashSettings::default() };
        assert!(settings.check(true).unwrap_err().contains("--flash PATH"));
        assert!(FlashSettings { devices: one(), ..settings }.check(true).is_ok());
    }

    #[test]
    fn settings_that_would_change_nothing_are_a_mistake() {
        let flash = FlashSettings { devices: one(), ..FlashSettings::default() };
        let refused = |settings: FlashSettings, evicts, says: &str| {
            let error = settings.check(evicts).expect_err(says);
            assert!(error.contains(says), "{error}");
        };
        assert!(flash.check(false).is_ok());
        let drive = FlashDevice::Simulated { profile: "ftl".to_owned(), size_bytes: 1 << 30 };
        let drives = |devices| FlashSettings { devices, ..flash.clone() };
        assert!(drives(vec![drive.clone(), drive.clone()]).check(true).is_ok());
        refused(drives([one(), vec![drive.clone()]].concat()), true, "not both");
        let zones = |profile: &str| FlashSettings {
            devices: vec![FlashDevice::Simulated { profile: profile.to_owned(), size_bytes: 1 << 30 }],
            zone_bytes: Some(1 << 20),
            ..flash.clone()
        };
        assert!(zones("ftl-28").check(true).is_ok());
        refused(zones("zoned"), true, "zones of their own");
        refused(zones("open-channel"), true, "zones of their own");
        refused(
            FlashSettings { direct: Direct::Off, ..drives(vec![drive]) },
            true,
            "direct would change nothing",
        );
        let read = FlashSettings { admit: Admit { only_read: true, reject_first_s: 0 }, ..flash.clone() };
        assert!(read.check(true).is_ok());
        refused(read, false, "with -M");
        refused(FlashSettings { write_budget_bytes: Some(5), ..flash.clone() }, false, "with -M");
        let mib = |segment: u64, zone: u64| FlashSettings {
            segment_bytes: Some(segment << 20),
            zone_bytes: Some(zone << 20),
            ..flash.clone()
        };
        assert!(mib(4, 4).check(true).is_ok());
        refused(mib(8, 4), true, "no larger than its zone");
    }
}
