//! A device that fails on request, for tests of the code above devices.
//!
//! Nothing depends on chance or on time. A test says beforehand which operation fails, by its number: 1 is the next
//! append, read, reset or sync, counted over all zones. To make an append slow, a test closes the gate
//! ([`FaultyDevice::close_gate`]); appends wait until it opens the gate.

use larder_flash::device::{
    Device, DeviceCounters, DeviceError, Geometry, PAGE_BYTES, PageBuffer, ReadDone, ReadQueue, ZoneId,
    ZoneReport, ZoneState,
};
use std::collections::{HashMap, HashSet};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// The error number of `EIO`.
const EIO: i32 = 5;

/// How an append goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AppendFault {
    /// The append fails, and nothing is written.
    Fail,
    /// This many pages are written, then the append fails.
    Short(usize),
    /// The append succeeds, but from this page on the contents are garbage: the power was lost during the write.
    Torn(usize),
}

/// How a read goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadFault {
    /// The read fails.
    Fail,
    /// The read succeeds, but all bits of the byte at this offset (modulo the length of the read) are flipped.
    Corrupt(usize),
}

#[derive(Default)]
struct Plan {
    appends: u64,
    reads: u64,
    resets: u64,
    syncs: u64,
    append_faults: HashMap<u64, AppendFault>,
    read_faults: HashMap<u64, ReadFault>,
    reset_faults: HashSet<u64>,
    sync_faults: HashSet<u64>,
    /// Zones whose last append failed. They take no appends until they are reset.
    failed: HashSet<ZoneId>,
    errors: u64,
    gone: bool,
    gate_closed: bool,
    at_gate: usize,
}

struct Shared {
    inner: Arc<dyn Device>,
    plan: Mutex<Plan>,
    gate: Condvar,
}

/// A device that wraps another device and fails on request. Clones are the same device.
#[derive(Clone)]
pub struct FaultyDevice(Arc<Shared>);

impl FaultyDevice {
    /// A device that behaves like `inner` until a fault is requested.
    pub fn new(inner: Arc<dyn Device>) -> FaultyDevice {
        FaultyDevice(Arc::new(Shared { inner, plan: Mutex::default(), gate: Condvar::new() }))
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.0.plan.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Makes the `nth` append from now go wrong; 1 is the next one.
    pub fn fault_append(&self, nth: u64, fault: AppendFault) {
        let mut plan = self.plan();
        let number = plan.appends + nth;
        plan.append_faults.insert(number, fault);
    }

    /// Makes the `nth` read from now go wrong; 1 is the next one. A read of a queue counts when it is submitted.
    pub fn fault_read(&self, nth: u64, fault: ReadFault) {
        let mut plan = self.plan();
        let number = plan.reads + nth;
        plan.read_faults.insert(number, fault);
    }

    /// Makes the `nth` reset from now fail. The zone keeps its contents.
    pub fn fault_reset(&self, nth: u64) {
        let mut plan = self.plan();
        let number = plan.resets + nth;
        plan.reset_faults.insert(number);
    }

    /// Makes the `nth` sync from now fail.
    pub fn fault_sync(&self, nth: u64) {
        let mut plan = self.plan();
        let number = plan.syncs + nth;
        plan.sync_faults.insert(number);
    }

    /// Makes all operations answer [`DeviceError::Gone`], or work again.
    pub fn set_gone(&self, gone: bool) {
        self.plan().gone = gone;
        self.0.gate.notify_all();
    }

    /// Makes appends wait from now on.
    pub fn close_gate(&self) {
        self.plan().gate_closed = true;
    }

    /// Lets waiting appends continue.
    pub fn open_gate(&self) {
        self.plan().gate_closed = false;
        self.0.gate.notify_all();
    }

    /// Number of appends that wait at the gate.
    pub fn at_gate(&self) -> usize {
        self.plan().at_gate
    }

    /// Blocks until `appends` appends wait at the gate.
    pub fn wait_at_gate(&self, appends: usize) {
        let mut plan = self.plan();
        while plan.at_gate < appends {
            plan = self.0.gate.wait(plan).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }

    fn io(&self, plan: &mut Plan, what: &str) -> DeviceError {
        plan.errors += 1;
        DeviceError::Io { errno: Some(EIO), what: format!("{what}: a failure that was asked for") }
    }

    /// The plan, unless the device is gone.
    fn present(&self) -> Result<MutexGuard<'_, Plan>, DeviceError> {
        let mut plan = self.plan();
        if plan.gone {
            plan.errors += 1;
            return Err(DeviceError::Gone);
        }
        Ok(plan)
    }

    /// The plan, once the gate is open.
    fn through_gate(&self) -> Result<MutexGuard<'_, Plan>, DeviceError> {
        let mut plan = self.present()?;
        if plan.gate_closed {
            plan.at_gate += 1;
            self.0.gate.notify_all();
            while plan.gate_closed && !plan.gone {
                plan = self.0.gate.wait(plan).unwrap_or_else(|poisoned| poisoned.into_inner());
            }
            plan.at_gate -= 1;
            drop(plan);
            return self.present();
        }
        Ok(plan)
    }

    /// Counts a read. Returns its fault, if one was requested.
    fn next_read(plan: &mut Plan) -> Option<ReadFault> {
        plan.reads += 1;
        let number = plan.reads;
        plan.read_faults.remove(&number)
    }

    fn apply(&self, fault: Option<ReadFault>, into: &mut PageBuffer) -> Result<(), DeviceError> {
        match fault {
            Some(ReadFault::Fail) => Err(self.io(&mut self.plan(), "reading")),
            Some(ReadFault::Corrupt(offset)) if !into.is_empty() => {
                let offset = offset % into.len();
                into[offset] ^= 0xff;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn write_short(&self, zone: ZoneId, pages: &[u8], count: usize) -> DeviceError {
        let bytes = (count * PAGE_BYTES).min(pages.len());
        if bytes > 0
            && let Err(error) = self.0.inner.append(zone, &pages[..bytes])
        {
            return error;
        }
        let mut plan = self.plan();
        plan.failed.insert(zone);
        self.io(&mut plan, "writing")
    }
}

/// The contents of pages whose write was torn: neither zeros nor the contents before.
fn tear(pages: &[u8], from_page: usize) -> Vec<u8> {
    let mut torn = pages.to_vec();
    let from = (from_page * PAGE_BYTES).min(torn.len());
    for (index, byte) in torn[from..].iter_mut().enumerate() {
        *byte = (index as u8).wrapping_mul(167) ^ 0x5a;
    }
    torn
}

impl Device for FaultyDevice {
    fn geometry(&self) -> Geometry {
        self.0.inner.geometry()
    }

    fn describe(&self) -> String {
        format!("{}, with faults", self.0.inner.describe())
    }

    fn report(&self, zone: ZoneId) -> Result<ZoneReport, DeviceError> {
        let plan = self.present()?;
        let failed = plan.failed.contains(&zone);
        drop(plan);
        let mut report = self.0.inner.report(zone)?;
        if failed {
            report.state = match report.state {
                ZoneState::Open(written) => ZoneState::Full(written),
                ZoneState::Empty => ZoneState::Full(0),
                other => other,
            };
        }
        Ok(report)
    }

    fn append(&self, zone: ZoneId, pages: &[u8]) -> Result<u64, DeviceError> {
        let mut plan = self.through_gate()?;
        plan.appends += 1;
        let number = plan.appends;
        let fault = plan.append_faults.remove(&number);
        if plan.failed.contains(&zone) {
            return Err(DeviceError::State { zone, what: "it failed before, and was not reset" });
        }
        drop(plan);
        match fault {
            None => self.0.inner.append(zone, pages),
            Some(AppendFault::Fail) => Err(self.write_short(zone, pages, 0)),
            Some(AppendFault::Short(count)) => Err(self.write_short(zone, pages, count)),
            Some(AppendFault::Torn(from)) => self.0.inner.append(zone, &tear(pages, from)),
        }
    }

    fn read(&self, zone: ZoneId, offset: u64, into: &mut PageBuffer) -> Result<(), DeviceError> {
        let fault = FaultyDevice::next_read(&mut *self.present()?);
        self.0.inner.read(zone, offset, into)?;
        self.apply(fault, into)
    }

    fn finish(&self, zone: ZoneId) -> Result<(), DeviceError> {
        drop(self.present()?);
        self.0.inner.finish(zone)
    }

    fn reset(&self, zone: ZoneId) -> Result<(), DeviceError> {
        let mut plan = self.present()?;
        plan.resets += 1;
        let number = plan.resets;
        if plan.reset_faults.remove(&number) {
            return Err(self.io(&mut plan, "erasing a zone"));
        }
        plan.failed.remove(&zone);
        drop(plan);
        self.0.inner.reset(zone)
    }

    fn sync(&self) -> Result<(), DeviceError> {
        let mut plan = self.present()?;
        plan.syncs += 1;
        let number = plan.syncs;
        if plan.sync_faults.remove(&number) {
            return Err(self.io(&mut plan, "fdatasync"));
        }
        drop(plan);
        self.0.inner.sync()
    }

    fn counters(&self) -> DeviceCounters {
        let mut counters = self.0.inner.counters();
        counters.errors += self.plan().errors;
        counters
    }

    fn reads(&self, depth: u32) -> Result<Box<dyn ReadQueue>, DeviceError> {
        drop(self.present()?);
        let inner = self.0.inner.reads(depth)?;
        Ok(Box::new(FaultyReads { device: self.clone(), inner, faults: HashMap::new(), next: 0 }))
    }
}

/// The queue of the inner device. Its tokens are replaced by numbers, so that each completion finds the fault of its
/// read.
struct FaultyReads {
    device: FaultyDevice,
    inner: Box<dyn ReadQueue>,
    faults: HashMap<u64, (u64, Result<Option<ReadFault>, DeviceError>)>,
    next: u64,
}

impl ReadQueue for FaultyReads {
    fn fd(&self) -> BorrowedFd<'_> {
        self.inner.fd()
    }

    fn has_room(&self) -> bool {
        self.inner.has_room()
    }

    fn submit(
        &mut self,
        token: u64,
        zone: ZoneId,
        offset: u64,
        buffer: PageBuffer,
    ) -> Result<(), PageBuffer> {
        if !self.has_room() {
            return Err(buffer);
        }
        let fault = self.device.present().map(|mut plan| FaultyDevice::next_read(&mut plan));
        self.inner.submit(self.next, zone, offset, buffer)?;
        self.faults.insert(self.next, (token, fault));
        self.next += 1;
        Ok(())
    }

    fn kick(&mut self) {
        self.inner.kick();
    }

    fn reap(&mut self, done: &mut Vec<ReadDone>) {
        let from = done.len();
        self.inner.reap(done);
        for read in &mut done[from..] {
            let Some((token, fault)) = self.faults.remove(&read.token) else { continue };
            read.token = token;
            let fault = if self.device.plan().gone { Err(DeviceError::Gone) } else { fault };
            match fault {
                Err(error) => read.result = Err(error),
                Ok(fault) if read.result.is_ok() => {
                    read.result = self.device.apply(fault, &mut read.buffer);
                }
                Ok(_) => {}
            }
        }
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }
}

#[cfg(test)]
mod tests;
