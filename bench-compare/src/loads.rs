//! The loads: what is stored, and what is requested.

use std::sync::Arc;

use crate::keys::Popularity;
use crate::options::CompareOptions;
use crate::trials::{self, Trial};
use crate::values::{ValueKind, Values};
use crate::wire::{KEY_BYTES, Protocol, ValueBytes, Wire};

/// A load as it will run, after scaling.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    /// One line of description.
    pub(crate) about: &'static str,
    /// Number of distinct keys stored.
    pub(crate) items: u32,
    /// Length of their values.
    pub(crate) value_bytes: ValueBytes,
    /// The values; `None` = letters.
    pub(crate) values: Option<Arc<Values>>,
    /// The requests.
    pub(crate) kind: Kind,
    /// Memory limit of the server in MiB, including the memory for its flash tier.
    pub(crate) limit_mib: u64,
    /// Size of the file for the flash tier in MiB; 0 = memory only.
    pub(crate) flash_mib: u64,
}

/// The kind of a load.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    /// All items are stored first and fit in memory. Then `get_percent` of a hundred requests are GETs.
    Resident {
        /// The popularity of the keys.
        popularity: Popularity,
        /// GETs in a hundred requests; the others are SETs of stored keys.
        get_percent: u32,
        /// Requests in flight per connection.
        depth: usize,
    },
    /// Storing the items is measured.
    Store,
    /// Storing the items, and the memory they take, are measured.
    Memory,
    /// Read-through under a memory limit: every miss is stored.
    HitRatio {
        /// GETs in all.
        requests: u32,
    },
    /// Read-through under a memory limit, compared with the same commands in memory for everything.
    Pressure {
        /// Number of measured GETs; as many come before to warm up.
        requests: u32,
    },
    /// All items are stored first, far more than the memory holds; a file takes the rest. Then GETs are measured.
    Flash {
        /// Which keys the GETs ask for.
        popularity: Popularity,
        /// Requests in flight per connection.
        depth: usize,
    },
    /// What a server keeps. These loads run only when they are named.
    Trial(Trial),
    /// More items than fit under the memory limit. GETs, and a SET after each miss, are measured.
    ReadThrough {
        /// Requests in flight per connection.
        depth: usize,
        /// The server starts empty and is measured when its hit ratio has settled. Otherwise all items are stored
        /// first.
        settles: bool,
    },
    /// Half of the requests store new keys, far beyond the memory limit; the others GET recent keys.
    Churn {
        /// Requests in flight per connection.
        depth: usize,
        /// The number of the newest keys that are requested.
        window: u32,
    },
}

/// Connections and depth used for storing the items of any load.
pub(crate) const STORE_CONNECTIONS: usize = 4;
/// Batch of the read-through loads.
pub(crate) const HIT_RATIO_BATCH: usize = 64;
/// Batches sent to one server before the other one follows: a few tenths of a second, so that the contents of the CPU
/// caches matter little.
pub(crate) const PRESSURE_SLICE: usize = 4_000;
/// Memory limit of the pressure load in MiB at full size: about one GET in ten misses in Larder.
const PRESSURE_LIMIT_MIB: f64 = 144.0;

/// How the names of the loads begin whose values are those of applications, where nothing else is said.
const DENSE: &str = "dense";

const MIB: u64 = 1 << 20;

impl Load {
    /// Whether two loads can share servers that already hold the items.
    pub(crate) fn shares_items_with(&self, other: &Load) -> bool {
        let kept = |load: &Load| match load.kind {
            Kind::Resident { .. } | Kind::Flash { .. } => Some(false),
            Kind::ReadThrough { settles: true, .. } => Some(true),
            _ => None,
        };
        kept(self).is_some()
            && kept(self) == kept(other)
            && self.value_kind() == other.value_kind()
            && (self.limit_mib, self.flash_mib) == (other.limit_mib, other.flash_mib)
            && (self.items, self.value_bytes) == (other.items, other.value_bytes)
    }

    /// The load with other items, and limits that suit them: `items`, `values` and `value_bytes` of the command line. A
    /// load that asks what a server keeps stays as it is.
    pub(crate) fn adapted(self, options: &CompareOptions) -> Self {
        let kind = options.values.or(self.value_kind());
        if matches!(self.kind, Kind::Trial(_)) || (kind.is_none() && options.items.is_none()) {
            return self;
        }
        let natural = kind.map(|kind| {
            let (min, max) = kind.bytes();
            options.value_bytes.unwrap_or(ValueBytes { min, max })
        });
        let roomy = self.limit_mib == self.roomy_limit_mib();
        let mut load = Self {
            items: options.items.unwrap_or(self.items),
            value_bytes: natural.unwrap_or(self.value_bytes),
            values: kind.map(|kind| Arc::new(Values::new(kind, options.seed))),
            ..self
        };
        if roomy {
            load.limit_mib = load.roomy_limit_mib();
        }
        load
    }

    /// What its values are; `None` = letters.
    pub(crate) fn value_kind(&self) -> Option<ValueKind> {
        self.values.as_ref().map(|values| values.kind())
    }

    /// Requests for its items in a protocol; `verify` as for [`Wire::new`].
    pub(crate) fn wire(&self, protocol: Protocol, verify: bool) -> Wire {
        Wire::new(protocol, self.value_bytes, verify).with_values(self.values.clone())
    }

    /// Whether the load runs only when it is named.
    pub(crate) fn only_named(&self) -> bool {
        matches!(self.kind, Kind::Trial(_) | Kind::ReadThrough { .. }) || self.name.starts_with(DENSE)
    }

    /// A generous estimate of the memory that the items need in any server, in bytes, including bookkeeping.
    pub(crate) fn footprint_bytes(&self) -> u64 {
        if let Kind::ReadThrough { .. } = self.kind {
            return self.limit_mib * MIB / 10 * 11;
        }
        let value = self.value_bytes.mean();
        (f64::from(self.items) * (KEY_BYTES as f64 + value + 100.0 + value / 4.0)) as u64
    }

    /// A memory limit that leaves the items room to spare in any server, in MiB.
    pub(crate) fn roomy_limit_mib(&self) -> u64 {
        (self.footprint_bytes() * 13 / 10).div_ceil(MIB) + 64
    }

    /// Whether a name on the command line means this load: its own, or that of all loads `flash-holds-...`.
    pub(crate) fn is_named(&self, name: &str) -> bool {
        self.name == name || (name == "flash-holds" && self.name.starts_with("flash-holds-"))
    }

    /// The part of the limit, in MiB, that is for the flash tier; `None` = the server's own default, beside the limit.
    pub(crate) fn flash_memory_mib(&self) -> Option<u64> {
        (!matches!(self.kind, Kind::Trial(_))).then_some(self.limit_mib / 4)
    }

    /// Whether the empty server can take the load: GETs only, with values of one length.
    pub(crate) fn fits_empty(&self) -> bool {
        matches!(self.kind, Kind::Resident { get_percent: 100, .. })
    }

    /// Lowers the number of items until they fit `bytes` of memory. Returns whether that was necessary.
    pub(crate) fn shrink_to(&mut self, bytes: u64) -> bool {
        let needed = self.footprint_bytes();
        if needed <= bytes {
            return false;
        }
        self.items = ((u128::from(self.items) * u128::from(bytes) / u128::from(needed)) as u32).max(1);
        if let Kind::ReadThrough { .. } = self.kind {
            self.limit_mib = (u128::from(self.limit_mib) * u128::from(bytes) / u128::from(needed)) as u64;
        }
        true
    }
}

/// All loads in the order of running, with `scale` times the items of the full size.
pub(crate) fn catalogue(scale: f64) -> Vec<Load> {
    let items = |full: u32| ((f64::from(full) * scale) as u32).clamp(1_000, 1_000_000_000);
    let million = items(1_000_000);
    let ten_million = items(10_000_000);
    let resident = |name, about, items, bytes, popularity, get_percent, depth| {
        roomy(name, about, items, bytes, Kind::Resident { popularity, get_percent, depth })
    };
    let zipf = Popularity::Zipf(0.99);
    let mut all = vec![
        resident("get-32", "GET, 1 M items of 32 B, Zipf 0.99, depth 16", million, 32, zipf, 100, 16),
        resident("get-32-d1", "GET, 1 M items of 32 B, Zipf 0.99, depth 1", million, 32, zipf, 100, 1),
        resident("get-300", "GET, 1 M items of 300 B, Zipf 0.99, depth 16", million, 300, zipf, 100, 16),
        resident("get-300-d1", "GET, 1 M items of 300 B, Zipf 0.99, depth 1", million, 300, zipf, 100, 1),
        resident(
            "mixed-95-5",
            "95 GET : 5 SET, 1 M items of 300 B, Zipf 0.99, depth 16",
            million,
            300,
            zipf,
            95,
            16,
        ),
        overwrite(million),
        roomy("set-300", "SET, 1 M new items of 300 B, depth 64, 4 connections", million, 300, Kind::Store),
        resident(
            "uniform-10m-256",
            "GET, 10 M items of 256 B, uniform, depth 16",
            ten_million,
            256,
            Popularity::Uniform,
            100,
            16,
        ),
        resident(
            "zipf-10m-256",
            "GET, 10 M items of 256 B, Zipf 0.99, depth 16",
            ten_million,
            256,
            zipf,
            100,
            16,
        ),
        roomy("memory-64", "memory of 10 M items of 64 B", ten_million, 64, Kind::Memory),
        roomy("memory-256", "memory of 10 M items of 256 B", ten_million, 256, Kind::Memory),
        roomy("memory-1024", "memory of 10 M items of 1024 B", ten_million, 1024, Kind::Memory),
        hit_ratio(scale),
        hit_ratio_of_sizes(scale),
        pressure(scale),
        churn(scale),
        read_through(scale),
    ];
    all.extend(dense_loads(scale));
    all.extend(flash_loads(scale));
    all.extend(all_trials(scale));
    all
}

/// Loads that tell what a server that compresses gains and what that costs. The users in JSON stand for any kind.
fn dense_loads(scale: f64) -> Vec<Load> {
    let limit_mib = (64.0 * limited_scale(scale)) as u64;
    let items = |full: f64| (full * limited_scale(scale)) as u32;
    let zipf = Popularity::Zipf(0.99);
    let of = |name, about, items, kind| {
        let values = Some(Arc::new(Values::new(ValueKind::JsonUser, 0)));
        Load { values, ..roomy(name, about, items, 250, kind) }
    };
    let through = |name, about, depth| {
        let kind = Kind::ReadThrough { depth, settles: true };
        Load { limit_mib, ..of(name, about, items(1e6), kind) }
    };
    vec![
        through(
            "dense",
            "read-through in 64 MiB, 1 M keys, values of a kind, Zipf 0.99, depth 16, once settled",
            16,
        ),
        through("dense-d1", "the same with one request in flight", 1),
        Load {
            limit_mib,
            ..of(
                "dense-sets",
                "SET of 4 M new items in 64 MiB, depth 64, 4 connections",
                items(4e6),
                Kind::Store,
            )
        },
        of(
            "dense-fits",
            "GET, 1 M items that fit, values of a kind, Zipf 0.99, depth 16",
            items(1e6),
            Kind::Resident { popularity: zipf, get_percent: 100, depth: 16 },
        ),
    ]
}

/// The loads for a flash tier.
fn flash_loads(scale: f64) -> Vec<Load> {
    let zipf = Popularity::Zipf(0.99);
    let kilobyte = |name, about, popularity, depth| {
        flash((name, about), (1_000_000, 994, 256), Kind::Flash { popularity, depth }, scale)
    };
    let small = |name, about, popularity, depth| {
        flash((name, about), (4_000_000, 70, 64), Kind::Flash { popularity, depth }, scale)
    };
    vec![
        kilobyte(
            "flash-1k",
            "GET, uniform, 1 M items of 1 KB behind 256 MiB, depth 16",
            Popularity::Uniform,
            16,
        ),
        kilobyte(
            "flash-1k-d1",
            "GET, uniform, 1 M items of 1 KB behind 256 MiB, depth 1",
            Popularity::Uniform,
            1,
        ),
        kilobyte("flash-1k-zipf", "GET, Zipf 0.99, 1 M items of 1 KB behind 256 MiB, depth 16", zipf, 16),
        small(
            "flash-100",
            "GET, uniform, 4 M items of 100 B behind 64 MiB, depth 16",
            Popularity::Uniform,
            16,
        ),
        small(
            "flash-100-d1",
            "GET, uniform, 4 M items of 100 B behind 64 MiB, depth 1",
            Popularity::Uniform,
            1,
        ),
        small("flash-100-zipf", "GET, Zipf 0.99, 4 M items of 100 B behind 64 MiB, depth 16", zipf, 16),
    ]
}

/// A load for a flash tier twice as large as the items: its name and text; number of items, bytes of a value and MiB
/// of memory at full scale.
fn flash(
    (name, about): (&'static str, &'static str),
    (items, bytes, limit_mib): (u32, u32, u64),
    kind: Kind,
    scale: f64,
) -> Load {
    let scale = limited_scale(scale);
    let items = (f64::from(items) * scale) as u32;
    let payload = u64::from(items) * (KEY_BYTES as u64 + u64::from(bytes));
    Load {
        name,
        about,
        items,
        value_bytes: ValueBytes::fixed(bytes),
        values: None,
        kind,
        limit_mib: ((limit_mib as f64 * scale) as u64).max(32),
        flash_mib: (2 * payload / MIB).max(256),
    }
}

/// A load whose items fit in memory with room to spare. The limit is far above what the items need, so that it shows
/// which servers grow.
fn overwrite(items: u32) -> Load {
    let kind = Kind::Resident { popularity: Popularity::Uniform, get_percent: 0, depth: 16 };
    let load = roomy(
        "overwrite-300",
        "SET of 1 M items of 300 B again and again, uniform, depth 16",
        items,
        300,
        kind,
    );
    Load { limit_mib: 4 * load.limit_mib, ..load }
}

fn roomy(name: &'static str, about: &'static str, items: u32, bytes: u32, kind: Kind) -> Load {
    let value_bytes = ValueBytes::fixed(bytes);
    let mut load = Load { name, about, items, value_bytes, values: None, kind, limit_mib: 0, flash_mib: 0 };
    load.limit_mib = load.roomy_limit_mib();
    load
}

/// Below an eighth of the full size, the slabs of some servers are too coarse for the limit to have an effect.
fn limited_scale(scale: f64) -> f64 {
    scale.max(0.125)
}

fn hit_ratio(scale: f64) -> Load {
    let requests = 3_000_000.0 * scale;
    let scale = limited_scale(scale);
    // At least one GET per key, or the cache would never be full.
    let requests = requests.max(1_000_000.0 * scale) as u32;
    Load {
        name: "hit-ratio-64mb",
        about: "read-through in 64 MiB, 1 M keys, 300 B, Zipf 0.99, 3 M GETs on one connection",
        items: (1_000_000.0 * scale) as u32,
        value_bytes: ValueBytes::fixed(300),
        values: None,
        kind: Kind::HitRatio { requests },
        limit_mib: (64.0 * scale) as u64,
        flash_mib: 0,
    }
}

/// Values of many lengths, until the hit ratio is steady.
fn hit_ratio_of_sizes(scale: f64) -> Load {
    let Kind::HitRatio { requests } = hit_ratio(scale).kind else { unreachable!("a hit ratio") };
    Load {
        name: "hit-ratio-sizes",
        about: "read-through in 64 MiB, 1 M keys, 50-550 B, Zipf 0.99, 6 M GETs on one connection",
        value_bytes: ValueBytes { min: 50, max: 550 },
        kind: Kind::HitRatio { requests: 2 * requests },
        ..hit_ratio(scale)
    }
}

/// The loads that ask what a server keeps.
fn all_trials(scale: f64) -> impl Iterator<Item = Load> {
    let scale = limited_scale(scale);
    trials::catalogue(scale).into_iter().map(move |(name, about, limit_mib, trial)| {
        let (value_bytes, flash_mib) = match &trial {
            Trial::Holds(holds) => (holds.value_bytes(), holds.flash_mib()),
            Trial::Items(items) => (items.value_bytes(), 0),
            // With the key, 400 bytes.
            _ => (ValueBytes::fixed(400 - KEY_BYTES as u32), 0),
        };
        let items = (1_000_000.0 * scale) as u32;
        let kind = Kind::Trial(trial);
        Load { name, about, items, value_bytes, values: None, kind, limit_mib, flash_mib }
    })
}

fn pressure(scale: f64) -> Load {
    let scale = limited_scale(scale);
    Load {
        name: "pressure-10",
        about: "read-through with some 10 % misses, 1 M keys, 300 B, Zipf 0.99, beside the same commands all resident",
        items: (1_000_000.0 * scale) as u32,
        value_bytes: ValueBytes::fixed(300),
        values: None,
        kind: Kind::Pressure { requests: (2_000_000.0 * scale) as u32 },
        limit_mib: (PRESSURE_LIMIT_MIB * scale) as u64,
        flash_mib: 0,
    }
}

/// A fifth more items than fit, if an item takes 360 bytes.
fn read_through(scale: f64) -> Load {
    Load {
        name: "read-through-1g",
        about: "3.6 M items of 300 B stored in 1 GiB, then read-through, Zipf 0.99, depth 16",
        items: (3_600_000.0 * scale) as u32,
        value_bytes: ValueBytes::fixed(300),
        values: None,
        kind: Kind::ReadThrough { depth: 16, settles: false },
        limit_mib: (1024.0 * scale) as u64,
        flash_mib: 0,
    }
}

fn churn(scale: f64) -> Load {
    let scale = limited_scale(scale);
    Load {
        name: "churn",
        about: "every second request a SET of a new key of 50-550 B, far beyond 64 MiB; GETs of recent keys; depth 16",
        // Twice what fits, so that the limit is reached before the measurement starts.
        items: (400_000.0 * scale) as u32,
        value_bytes: ValueBytes { min: 50, max: 550 },
        values: None,
        kind: Kind::Churn { depth: 16, window: (50_000.0 * scale) as u32 },
        limit_mib: (64.0 * scale) as u64,
        flash_mib: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_sizes_scale() {
        let full = catalogue(1.0);
        let small = catalogue(0.01);
        for (at, load) in full.iter().enumerate() {
            assert!(full[..at].iter().all(|other| other.name != load.name));
            assert!(small[at].items < load.items);
        }
        assert_eq!(full[0].items, 1_000_000);
        assert_eq!(
            full.iter().find(|load| load.name == "memory-256").map(|load| load.items),
            Some(10_000_000)
        );
        assert!(full[0].shares_items_with(&full[1]));
        assert!(!full[0].shares_items_with(&full[2]));
    }

    #[test]
    fn shrinking_stops_at_the_memory_there_is() {
        let mut load = catalogue(1.0).into_iter().find(|load| load.name == "memory-1024").expect("a load");
        assert!(!load.clone().shrink_to(1 << 40));
        assert!(load.shrink_to(1 << 30));
        assert!(load.footprint_bytes() <= 1 << 30 && load.items > 700_000, "{}", load.items);
    }
}
