//! The flash behind memory.

use crate::settings::flash::RECOVER;
use crate::settings::row::Takes::{List as Many, Value};
use crate::settings::row::{At, Change, DEVICES, ROW, Row, Topic, at};
use crate::settings::units::MIB;
use crate::settings::values::{ADMIT, By, Bytes, FLASH_DEVICE, Kind, List, Maybe};

const FLASH: Row = Row { topic: Topic::Flash, change: DEVICES, ..ROW };

/// Bytes in one day; 0 is no limit.
const DAILY: Bytes = Bytes(1, 0, 1 << 60);
const WRITE_BUDGET: By<Option<u64>> = By(
    |text| Ok(Some(DAILY.read(text)?).filter(|bytes| *bytes > 0)),
    |budget| DAILY.write(&budget.unwrap_or(0)),
);

#[rustfmt::skip] // A row reads as a card.
pub(super) static ROWS: &[Row] = &[
    Row { name: "flash", option: Some("ext_path"), takes: Many("PATH[:SIZE]"), example: "/var/cache/larder.flash:10g",
        help: "keep evicted items on flash: a file, a block device or a zoned block device, and the size to use \
               (suffix k, m, g or t; the whole device if not given); a new file needs a size; given several times, \
               items are spread over all these devices; sim:PROFILE:SIZE is a simulated drive in memory, to try \
               without a device, and PROFILE is ftl, ftl-28, zoned or open-channel",
        value: at!(flash.devices, List(FLASH_DEVICE, &[','])), ..FLASH },
    Row { name: "flash-memory", takes: Value("NUM"), example: "256m",
        help: "memory for the buffers, tables and filters of flash, in addition to -m, in MiB or with a suffix k, m, g \
               or t; a 64th of the flash size, and at least 16m, if not given",
        value: at!(flash.memory_bytes, Maybe(Bytes(MIB, 64 << 10, 1 << 45))), ..FLASH },
    Row { name: "flash-recover", takes: Value("NAME"), example: "journal",
        help: "what a crash leaves on flash: clean (nothing), journal (everything written; a delete or overwrite is \
               answered once it is durable) or best-effort (like journal without that wait, so old values may come \
               back); a normal stop keeps everything",
        value: at!(flash.recover, RECOVER), ..FLASH },
    Row { name: "flash-admit", takes: Many("WHAT"), example: "read,reject-first=600",
        help: "evicted items that are written to flash: all, or one or both of read (only items that were read) and \
               reject-first=SECONDS (only keys that were also evicted within the last SECONDS), separated by a comma",
        value: at!(flash.admit, ADMIT), ..FLASH },
    Row { name: "flash-write-budget", takes: Value("NUM"), example: "500g",
        help: "maximum bytes of items written to flash per day, spread evenly over the day; the items go that save \
               most per byte (see --worth); a suffix k, m, g or t multiplies; 0 is no limit",
        value: at!(flash.write_budget_bytes, WRITE_BUDGET),
        change: Change::Live(|running, _, new| {
            running.cache().set_flash_write_budget(new.flash.write_budget_bytes);
            Ok(())
        }), ..FLASH },
];
