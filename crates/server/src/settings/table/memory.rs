//! Where items lie, which of them stay, and whose they are.

use crate::settings::all::Settings;
use crate::settings::memory::{PAGES, Pages, may_share_dictionaries};
use crate::settings::names::one_of;
use crate::settings::row::Takes::{List, Value};
use crate::settings::row::{ARENA, At, Change, Given, PREPARED, Part, ROW, Row, Topic, at};
use crate::settings::units::{MEMORY_BYTES_MIN, MIB};
use crate::settings::values::{
    By, Bytes, COMPRESS, Kind, Maybe, NAMESPACES, PATH, SWITCH, SWITCH_OFF, USER_NAMESPACES, Whole, bytes,
    size,
};
use larder_cache::{Objective, Placement, TemperatureKind, WorthMode, WorthOptions};

const MEMORY: Row = Row { topic: Topic::Memory, change: ARENA, ..ROW };

/// The names that a type of the cache gives its values.
macro_rules! named {
    ($type:ty) => {
        By::<$type>(
            |text| one_of(text, &<$type>::ALL.map(|one| (one.name(), one))),
            |one| one.name().to_owned(),
        )
    };
}

/// The memory limit, as memcached's `-m` has it: any size is taken.
const LIMIT: By<u64> = By(
    |text| bytes(text, MIB, 0, 1 << 45).map_err(|_| "expected a size from 8m to 32t".to_owned()),
    |limit| size(*limit),
);

/// A limit with which nothing could be done is raised, as memcached would take it.
fn at_least_the_minimum(settings: &mut Settings) {
    let wanted = settings.memory_bytes;
    settings.memory_bytes = wanted.max(MEMORY_BYTES_MIN);
    settings.memory_raised_from = Some(wanted).filter(|&wanted| wanted < MEMORY_BYTES_MIN);
}

/// The bytes of a column.
const COLUMN: By<u32> = By(
    |text| match bytes(text, 1, 32 << 10, 1 << 20)? {
        power if power.is_power_of_two() => Ok(power as u32),
        _ => Err("expected a power of two: 32k, 64k, 128k, 256k, 512k or 1m".to_owned()),
    },
    |column_bytes| size((*column_bytes).into()),
);

#[rustfmt::skip] // A row reads as a card.
pub(super) static ROWS: &[Row] = &[
    Row { letter: Some('m'), name: "memory-limit", takes: Value("NUM"), default: Some("64"), example: "4g",
        help: "memory for items, index and buffers together, in MiB, or with a suffix k, m, g or t; less than 8m \
               becomes 8m",
        value: at!(memory_bytes, LIMIT, then at_least_the_minimum),
        change: Change::Live(|running, now, new| running.set_memory_bytes(now, new.memory_bytes)), ..MEMORY },
    Row { letter: Some('I'), name: "max-item-size", takes: Value("NUM"), example: "2m",
        help: "maximum size of an item in bytes, or with a suffix k, m or g; from 1k to 1g, and at most half of the \
               memory",
        value: at!(item_bytes_max, Bytes(1, 1 << 10, 1 << 30)), ..MEMORY },
    Row { letter: Some('M'), name: "disable-evictions",
        help: "answer \"out of memory\" when memory is full, instead of evicting items",
        value: at!(evict, SWITCH_OFF), ..MEMORY },
    Row { name: "pages", takes: Value("NAME"), example: "coloured",
        help: "kind of memory pages for items: huge (2 MiB, reserved by the system), transparent (huge where the \
               kernel finds room), small (4 KiB), coloured (4 KiB, sorted by CPU cache set), or auto, which takes the \
               best available",
        value: at!(pages, PAGES), ..MEMORY },
    Row { name: "temperature", takes: Value("NAME"), example: "hitmap",
        help: "how eviction tells hot items from cold ones: entry (two bits per item in the index), hitmap or \
               hitmap-published (bit maps fed by a log of all accesses), or off (first in, first out)",
        value: at!(temperature, named!(TemperatureKind)), ..MEMORY },
    Row { name: "worth", takes: Value("NAME"), example: "hits",
        help: "what decides which items stay, beside temperature: penalty (what a miss costs, as --objective counts \
               it, for each byte), hits (every miss costs the same), auto (penalty while clients state what a miss \
               costs or the last miss of a key foretells the next one, else hits) or static (nothing else); the \
               command worth mode NAME changes it while the server runs",
        value: at!(worth.mode, named!(WorthMode)),
        change: Change::Live(|running, now, new| {
            running.cache().set_worth(WorthOptions { mode: new.worth.mode, ..now.worth });
            Ok(())
        }), ..MEMORY },
    Row { name: "objective", takes: Value("NAME"), example: "bytes",
        help: "what --worth auto and penalty save: time (that clients wait for the back end), requests (misses) or \
               bytes (fetched from the back end); the command worth objective NAME changes it while the server runs",
        value: at!(worth.objective, named!(Objective)),
        change: Change::Live(|running, now, new| {
            running.cache().set_worth(WorthOptions { objective: new.worth.objective, ..now.worth });
            Ok(())
        }), ..MEMORY },
    Row { name: "compress", takes: List("NAME"), example: "session,page",
        help: "values to compress in memory while it is full, where they are not hot and shrink by a quarter: auto \
               (all), off (none), or those whose keys begin with a NAME of this list and the delimiter (-D, else :); \
               stats compression shows what comes of it",
        value: at!(compress, COMPRESS),
        change: Change::Live(|running, _, new| {
            running.cache().set_compress(new.compress.clone());
            Ok(())
        }), ..MEMORY },
    Row { name: "namespaces", takes: List("NAME=LEAST-MOST[/SECONDS]"), example: "session=20-50/3600,page=0-40",
        help: "tenants, separated by commas, whose keys begin with NAME and the delimiter (-D, else :): the least and \
               the most of the memory for items that each has while memory is short, in percent, and the longest time \
               to live of its items; stats namespaces shows what they have, stats mrc NAME what one would miss with \
               more memory or less",
        value: at!(namespaces, NAMESPACES),
        change: Change::Live(|running, now, new| {
            running.cache().set_namespaces(&new.namespaces, now.prefix_delimiter)?;
            let may_share = may_share_dictionaries(&new.namespaces, &now.user_namespaces);
            running.cache().share_dictionaries(may_share);
            Ok(())
        }), ..MEMORY },
    Row { name: "user-namespaces", takes: List("USER=NAME"), example: "alice=session,bob=page",
        help: "users of the file of -Y, separated by commas, each with the NAME of a namespace (--namespaces): NAME \
               and the delimiter are put before each of the user's keys, and taken off again in what the user is shown",
        value: at!(user_namespaces, USER_NAMESPACES),
        change: Change::ByFile(|running, now, new| {
            let may_share = may_share_dictionaries(&now.namespaces, &new.user_namespaces);
            running.cache().share_dictionaries(may_share);
            Ok(())
        }), ..MEMORY },
    Row { name: "device", takes: Value("NAME"), example: "cuda:1",
        help: "device that works on a hitmap: cpu, cuda, or cuda:N for GPU number N; the CPU takes over if there is no \
               GPU or if it fails",
        value: &Part {
            set: |s, v| s.device.choose(v),
            text: |s| s.device.to_string(),
            copy: |to, from| to.device.choose_as(from.device),
        }, ..MEMORY },
    Row { name: "device-batch", takes: Value("NUM"), example: "4096",
        help: "references to keys that a GPU (--device cuda) is handed together, 1 to 1000000: a large batch costs the \
               CPU less and reaches the hitmap later",
        value: &Part {
            set: |s, v| s.device.set_batch_references(v.parse().map_err(|_| "expected a number".to_owned())?),
            text: |s| s.device.batch_references().to_string(),
            copy: |to, from| { _ = to.device.set_batch_references(from.device.batch_references()); },
        }, ..MEMORY },
    Row { name: "device-managed-memory",
        help: "keep a hitmap on a GPU (--device cuda) in managed memory, which may exceed the memory of the GPU but is \
               slower",
        value: &Part {
            set: |s, v| { s.device.set_managed_memory(SWITCH.read(v)?); Ok(()) },
            text: |s| s.device.has_managed_memory().to_string(),
            copy: |to, from| to.device.set_managed_memory(from.device.has_managed_memory()),
        }, ..MEMORY },
    Row { letter: Some('L'), name: "enable-largepages",
        help: "use large pages where the machine has them; the same as --pages auto",
        value: &Given(|s, v| { if SWITCH.read(v)? { s.pages = Pages::Auto; } Ok(()) }), change: Change::NoSetting,
        ..MEMORY },
    Row { letter: Some('k'), name: "lock-memory",
        help: "lock memory into RAM as it is used, so that it is never swapped out",
        value: at!(lock_memory, SWITCH), change: PREPARED, ..MEMORY },
    Row { name: "prefault",
        help: "take all memory for items from the system at start instead of when it is first used: the first write to \
               a page then costs no more than later ones",
        value: at!(prefault, SWITCH), ..MEMORY },
    Row { letter: Some('e'), name: "keep", takes: Value("FILE"), example: "/dev/shm/larder",
        help: "keep the items in a file on a tmpfs, such as /dev/shm, or on a hugetlbfs, so that the server has them \
               again when it is started anew, after a stop and after a crash of the process alike; not with --flash",
        value: at!(keep, PATH), ..MEMORY },
    Row { name: "column-bytes", takes: Value("NUM"), example: "64k",
        help: "size of a column, the unit in which memory is filled and reclaimed: a power of two from 32k to 1m; \
               derived from the CPU cache if not given",
        value: at!(column_bytes, Maybe(COLUMN)), ..MEMORY },
    Row { name: "placement", takes: Value("NAME"), example: "column",
        help: "where items stand that are moved: off (items stay where they were stored until their column is \
               reclaimed) or column (hot items in columns of their own, also while there is room)",
        value: at!(placement, named!(Placement)), ..MEMORY },
    Row { name: "hashpower", option: Some("hashpower"), takes: Value("NUM"), example: "22",
        help: "initial size of the index as a power of two, 12 to 32: 22 means 4 million items; the index begins \
               small and grows by itself if not given",
        value: at!(hashpower, Maybe(Whole(12, 32))),
        change: Change::AtStart("the index is laid out once"), ..MEMORY },
];
