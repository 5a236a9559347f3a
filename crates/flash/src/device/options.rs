/// How a device is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeviceOptions {
    /// Bytes of the device. A file that does not exist is created with this length. Of a longer file or block device
    /// the first `bytes` bytes are used. `None` = the whole file or device. A zoned device is always used whole.
    pub bytes: Option<u64>,
    /// Bytes of a zone: a multiple of the page size. `None` = a power of two between 1 MiB and 1 GiB that gives about
    /// 256 zones. A zoned device has zones of its own.
    pub zone_bytes: Option<u64>,
    /// Whether reads and writes bypass the system's page cache.
    pub direct: Direct,
}

/// Whether reads and writes bypass the system's page cache (`O_DIRECT`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Direct {
    /// They bypass it if the file system supports that.
    #[default]
    Auto,
    /// They bypass it; a device that does not support that is not opened.
    On,
    /// They go through the page cache. The page cache takes memory that `--memory` does not count.
    Off,
}

/// How a [`super::ReadQueue`] hands reads to the system. The product always uses [`ReadsBy::Auto`]; tests try the
/// others, too.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ReadsBy {
    /// By io_uring where the system has it, else by threads.
    #[default]
    Auto,
    /// By io_uring. Without io_uring no queue can be created.
    Uring,
    /// By a few threads for each queue.
    Threads,
}
