/// How a device is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeviceOptions {
    /// Bytes of the device. A file that does not exist is made this long; of a longer file or block device this much is
    /// used. `None` = all there is. Zoned devices are always used whole.
    pub bytes: Option<u64>,
    /// Bytes of a zone: whole pages. `None` = a power of two, so that there are about 256 zones of 1 MiB to 1 GiB. Zoned
    /// devices have their own.
    pub zone_bytes: Option<u64>,
    /// Whether the system's page cache is bypassed.
    pub direct: Direct,
    /// How reads are handed to the system.
    pub reads: ReadsBy,
}

/// Whether the system's page cache is bypassed (`O_DIRECT`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Direct {
    /// If the file system is able to.
    #[default]
    Auto,
    /// Or the device is not opened.
    On,
    /// What is read and written goes through the page cache: memory is spent that `--memory` does not count.
    Off,
}

/// How a [`super::ReadQueue`] hands reads to the system.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ReadsBy {
    /// By io_uring, or by threads where there is none.
    #[default]
    Auto,
    /// By io_uring, or not at all.
    Uring,
    /// By a few threads for each queue.
    Threads,
}
