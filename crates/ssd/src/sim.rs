use super::at_once::AtOnce;
use super::clock::Clock;
use super::nand::Fault;
use super::profile::Profile;
use super::stats::{Histogram, Wear};
use super::timed_reads;
use super::zoned::{OpenChannel, ZoneLayout};
use larder_flash::device::{
    ChannelCounters, Device, DeviceCounters, DeviceError, Geometry, PageBuffer, ReadQueue, ZoneId, ZoneReport,
};
use std::sync::{Arc, Mutex, MutexGuard};

/// A simulated open-channel SSD: [`OpenChannel`] with a clock, as a [`Device`]. Clones are the same SSD.
///
/// A crash test calls [`SimSsd::cut_power_after`] with a number of operations, uses [`SimSsd::device`] until it
/// answers [`DeviceError::Gone`], calls [`SimSsd::power_on`], and opens a tier on the device again. An operation is a
/// page that is taken into the buffer, a program, the erase of a block, or a call of `finish`, `reset` or `sync`.
/// [`SimSsd::operations`] counts them, so a run without a cut tells how many moments there are to choose from.
///
/// After a cut of power:
/// * Everything that was synced is there.
/// * Of the pages that were appended to a zone after the last sync, up to the layout's `cache_bytes`, a random number
///   survives, from the first page on. The page behind them may be torn: its rest is random bytes.
/// * A zone whose reset was in progress is [`larder_flash::device::ZoneState::Unknown`]: its pages are old, random,
///   unreadable or empty.
/// * A reset that has returned stays, synced or not. (A test of a device that forgets resets needs another device.)
#[derive(Clone)]
pub struct SimSsd(Arc<Mutex<Inner>>, Clock);

struct Inner {
    ssd: OpenChannel,
    clock: Clock,
    counters: DeviceCounters,
    append_ns: Histogram,
    read_ns: Histogram,
}

impl SimSsd {
    /// An SSD whose zones are striped over all dies, with a volatile cache of 1 MiB per zone.
    pub fn new(profile: Profile, seed: u64) -> SimSsd {
        let layout = ZoneLayout { luns_per_zone: profile.luns(), cache_bytes: 1 << 20 };
        SimSsd::with_layout(profile, layout, seed)
    }

    /// An SSD with this layout of zones.
    ///
    /// # Panics
    /// If the layout does not divide the dies.
    pub fn with_layout(profile: Profile, layout: ZoneLayout, seed: u64) -> SimSsd {
        SimSsd::with_clock(profile, layout, seed, Clock::virtual_time())
    }

    /// An SSD in real time: its operations take as long as they would.
    ///
    /// # Panics
    /// If the layout does not divide the dies.
    pub fn in_real_time(profile: Profile, layout: ZoneLayout, seed: u64) -> SimSsd {
        SimSsd::with_clock(profile, layout, seed, Clock::real_time())
    }

    fn with_clock(profile: Profile, layout: ZoneLayout, seed: u64, clock: Clock) -> SimSsd {
        let inner = Inner {
            ssd: OpenChannel::new(profile, layout, seed),
            clock,
            counters: DeviceCounters::default(),
            append_ns: Histogram::default(),
            read_ns: Histogram::default(),
        };
        SimSsd(Arc::new(Mutex::new(inner)), clock)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().expect("no panic under this lock")
    }

    /// The SSD as a device. Every call returns another handle to the same SSD.
    pub fn device(&self) -> Arc<dyn Device> {
        Arc::new(self.clone())
    }

    /// Cuts the power during the operation that follows the next `operations` ones. From then on every call answers
    /// [`DeviceError::Gone`].
    pub fn cut_power_after(&self, operations: u64) {
        self.lock().ssd.nand_mut().cut_power_after(Some(operations));
    }

    /// Cuts the power now, between two operations.
    pub fn cut_power(&self) {
        self.lock().ssd.cut_power();
    }

    /// Restores the power. A cut that was requested and has not happened yet is cancelled.
    pub fn power_on(&self) {
        let mut inner = self.lock();
        inner.ssd.nand_mut().cut_power_after(None);
        inner.ssd.power_on();
    }

    /// Whether there is power.
    pub fn is_on(&self) -> bool {
        self.lock().ssd.nand().is_on()
    }

    /// Number of operations that completed.
    pub fn operations(&self) -> u64 {
        self.lock().ssd.nand().operations()
    }

    /// Makes the next program, erase or read of a page fail. Several requests add up.
    pub fn inject(&self, fault: Fault) {
        self.lock().ssd.nand_mut().inject(fault);
    }

    /// Time since the SSD was built, nanoseconds. Virtual time is advanced by the calls that wait.
    pub fn now_ns(&self) -> u64 {
        self.lock().clock.now_ns()
    }

    /// How evenly the blocks are worn.
    pub fn wear(&self) -> Wear {
        self.lock().ssd.nand().wear()
    }

    /// Latencies of appends and of reads in virtual time, as the host saw them.
    pub fn latencies(&self) -> [Histogram; 2] {
        let inner = self.lock();
        [inner.append_ns.clone(), inner.read_ns.clone()]
    }
}

impl Inner {
    fn count<T>(&mut self, result: Result<T, DeviceError>) -> Result<T, DeviceError> {
        self.counters.errors += result.is_err() as u64;
        result
    }

    fn read(&mut self, zone: ZoneId, offset: u64, into: &mut PageBuffer) -> (Result<(), DeviceError>, u64) {
        let now = self.clock.now_ns();
        let result = self.ssd.read(now, zone, offset, into);
        match self.count(result) {
            Ok(end) => {
                self.counters.reads += 1;
                self.counters.read_bytes += into.len() as u64;
                self.read_ns.add(end - now);
                (Ok(()), end)
            }
            Err(error) => (Err(error), now),
        }
    }
}

impl Device for SimSsd {
    fn geometry(&self) -> Geometry {
        self.lock().ssd.geometry()
    }

    fn describe(&self) -> String {
        format!("simulated SSD of zones, {}", self.lock().ssd.nand().profile().name)
    }

    fn report(&self, zone: ZoneId) -> Result<ZoneReport, DeviceError> {
        self.lock().ssd.report(zone)
    }

    fn append(&self, zone: ZoneId, pages: &[u8]) -> Result<u64, DeviceError> {
        let mut inner = self.lock();
        let now = inner.clock.now_ns();
        let result = inner.ssd.append(now, zone, pages);
        let (offset, accepted) = inner.count(result)?;
        inner.clock.reached(accepted);
        inner.append_ns.add(accepted - now);
        inner.counters.appends += 1;
        inner.counters.append_bytes += pages.len() as u64;
        drop(inner);
        self.1.wait_until(accepted);
        Ok(offset)
    }

    fn read(&self, zone: ZoneId, offset: u64, into: &mut PageBuffer) -> Result<(), DeviceError> {
        let (result, end) = self.read_now(zone, offset, into);
        self.reached(end);
        self.1.wait_until(end);
        result
    }

    fn finish(&self, zone: ZoneId) -> Result<(), DeviceError> {
        let mut inner = self.lock();
        let now = inner.clock.now_ns();
        let result = inner.ssd.finish(now, zone);
        let end = inner.count(result)?;
        inner.clock.reached(end);
        drop(inner);
        self.1.wait_until(end);
        Ok(())
    }

    fn reset(&self, zone: ZoneId) -> Result<(), DeviceError> {
        let mut inner = self.lock();
        let now = inner.clock.now_ns();
        let result = inner.ssd.reset(now, zone);
        // The host does not wait for an erase; the next operation on the same dies does.
        inner.count(result)?;
        inner.counters.resets += 1;
        Ok(())
    }

    fn sync(&self) -> Result<(), DeviceError> {
        let mut inner = self.lock();
        let result = inner.ssd.sync();
        inner.count(result)?;
        let end = inner.ssd.nand().idle_at_ns();
        inner.clock.reached(end);
        drop(inner);
        self.1.wait_until(end);
        Ok(())
    }

    fn counters(&self) -> DeviceCounters {
        let inner = self.lock();
        let (media_bytes, erases) = (inner.ssd.media().program_bytes, inner.ssd.nand().wear().spread());
        DeviceCounters { media_bytes: Some(media_bytes), erases: Some(erases), ..inner.counters }
    }

    fn channels(&self) -> Vec<ChannelCounters> {
        self.lock().ssd.nand().channels()
    }

    fn reads(&self, depth: u32) -> Result<Box<dyn ReadQueue>, DeviceError> {
        timed_reads::reads(self.clone(), self.1, depth)
    }
}

impl AtOnce for SimSsd {
    fn read_now(&self, zone: ZoneId, offset: u64, into: &mut PageBuffer) -> (Result<(), DeviceError>, u64) {
        self.lock().read(zone, offset, into)
    }

    fn reached(&self, ns: u64) {
        let mut inner = self.lock();
        inner.clock.reached(ns);
    }
}
