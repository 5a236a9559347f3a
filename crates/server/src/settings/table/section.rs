//! What only the settings file has: the keys of `[flash.tuning]`, and the fleet.

use crate::settings::flash::{DIRECT, PROMOTE};
use crate::settings::fleet::FLEET;
use crate::settings::row::{At, Change, DEVICES, LIVE, ROW, Row, Takes, Topic, at};
use crate::settings::values::{Bytes, Maybe, ON_OFF, Whole};

const TUNING: Row = Row { topic: Topic::Tuning, takes: Takes::Value("VALUE"), change: DEVICES, ..ROW };

#[rustfmt::skip] // A row reads as a card.
pub(super) static ROWS: &[Row] = &[
    Row { name: "flash.tuning.fill", example: "70", figure: "alwa",
        help: "percentage of the flash that live items may take, 10 to 95; beyond it the coldest ones go, and the rest \
               is what keeps rewriting cheap",
        value: at!(flash.fill_percent, Whole(10, 95)), ..TUNING },
    Row { name: "flash.tuning.generations", example: "off", figure: "index_bytes_per_item",
        help: "merge old segments into sorted generations when the index of the log is crowded, on or off: an item \
               then takes about a third less memory, and is written once more",
        value: at!(flash.generations, ON_OFF), ..TUNING },
    Row { name: "flash.tuning.cutoff", example: "300", figure: "survivor_bytes",
        help: "an item that expires within so many seconds counts as expired when its zone is freed, 0 to 2147483647",
        value: at!(flash.cutoff_s, Whole(0, i32::MAX as u32)), ..TUNING },
    Row { name: "flash.tuning.promote", example: "strict", figure: "elided",
        help: "what a read from flash does: lazy (an item that is read again soon moves to memory, and its copy on \
               flash stays) or strict (every item that is read moves to memory and leaves flash)",
        value: at!(flash.promote, PROMOTE), ..TUNING },
    Row { name: "flash.tuning.save", example: "off", figure: "items",
        help: "write the items in memory to flash when the server stops, on or off: with off, the stop is quick and \
               these items are lost",
        value: at!(flash.save, ON_OFF), change: LIVE, ..TUNING },
    Row { name: "flash.tuning.store-wait", example: "200", figure: "store_waits",
        help: "most milliseconds that a store waits while memory is full and the flash is behind, 0 to 60000; then an \
               item is evicted that flash does not take",
        value: at!(flash.store_wait_ms, Whole(0, 60_000)),
        change: Change::Live(|running, _, new| {
            running.cache().set_store_wait_max_ms(new.flash.store_wait_ms);
            Ok(())
        }), ..TUNING },
    Row { name: "flash.tuning.depth", example: "16", figure: "flash_fetch_duration",
        help: "most reads that one worker has under way on the flash, 1 to 4096",
        value: at!(flash.depth, Whole(1, 4096)), ..TUNING },
    Row { name: "flash.tuning.direct", example: "off", figure: "flash_fetch_duration",
        help: "bypass the system's page cache (O_DIRECT): on, off, or auto, which does so where the file system can",
        value: at!(flash.direct, DIRECT), ..TUNING },
    Row { name: "flash.tuning.zone", example: "64m", figure: "zones_free",
        help: "size of a zone, the unit of erasing, of a file or plain block device: 64k to 16g, about a 256th of the \
               device if not given; fixed when the device is formatted",
        value: at!(flash.zone_bytes, Maybe(Bytes(1, 64 << 10, 16 << 30))), ..TUNING },
    Row { name: "flash.tuning.segment", example: "4m", figure: "segments_waiting",
        help: "largest size of a segment, the unit of writing: 64k to 1g, at most a zone; as zone and memory allow if \
               not given",
        value: at!(flash.segment_bytes, Maybe(Bytes(1, 64 << 10, 1 << 30))), ..TUNING },
    Row { name: "fleet", topic: Topic::Section,
        value: at!(fleet, FLEET),
        change: Change::ByFile(|running, _, new| { running.set_fleet(new.fleet.as_ref()); Ok(()) }), ..ROW },
];
