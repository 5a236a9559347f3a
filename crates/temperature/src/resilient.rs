//! A hitmap that survives the failure of its device.

use crate::hitmap::{Answers, DeviceHitmap, Hitmap};
use crate::reference::{Digest, Reference};

/// A hitmap on a device `D` that moves to the CPU at the device's first failure and stays there.
///
/// A failure is memory refused at a growth, a refused batch, or a device that reports an error or does not answer.
/// The move is logged once. If the device still returns its bits, no mark is lost, and the failed call is repeated
/// on the CPU. If it does not, the map on the CPU begins empty and all keys are cold.
#[derive(Debug)]
pub struct ResilientHitmap<D: DeviceHitmap> {
    processor: Processor<D>,
    /// Submissions without an answer.
    under_way: usize,
    /// Those that came to nothing because the device was late.
    late: u64,
}

/// Which processor has the map.
enum Processor<D: DeviceHitmap> {
    Device(Box<D>),
    Cpu { map: Box<dyn Hitmap>, why: D::Error },
}

impl<D: DeviceHitmap + std::fmt::Debug> std::fmt::Debug for Processor<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Processor::Device(map) => map.fmt(f),
            Processor::Cpu { why, .. } => write!(f, "on the CPU: {why}"),
        }
    }
}

impl<D: DeviceHitmap> ResilientHitmap<D> {
    /// Runs on `device` until the device fails.
    pub fn new(device: D) -> ResilientHitmap<D> {
        ResilientHitmap { processor: Processor::Device(Box::new(device)), under_way: 0, late: 0 }
    }

    /// The failure that moved the map to the CPU, if there was one.
    pub fn lost(&self) -> Option<&D::Error> {
        match &self.processor {
            Processor::Device(_) => None,
            Processor::Cpu { why, .. } => Some(why),
        }
    }

    /// Does `work` on the device. Returns `None` if the map is on the CPU or has just moved there.
    fn on_device<T>(&mut self, work: impl FnOnce(&mut D) -> T) -> Option<T> {
        let Processor::Device(device) = &mut self.processor else { return None };
        let done = work(device);
        let Some(why) = device.error().cloned() else { return Some(done) };
        let map = match device.rescue() {
            Ok(map) => {
                tracing::warn!("{} lost, the hitmap moves to the CPU with its bits: {why}", D::KIND);
                map
            }
            Err(_) => {
                tracing::warn!("{} lost, the hitmap begins anew on the CPU: {why}", D::KIND);
                device.empty_on_cpu()
            }
        };
        self.processor = Processor::Cpu { map, why };
        None
    }

    fn map(&self) -> &dyn Hitmap {
        match &self.processor {
            Processor::Device(device) => device.as_ref(),
            Processor::Cpu { map, .. } => map.as_ref(),
        }
    }

    fn map_mut(&mut self) -> &mut dyn Hitmap {
        match &mut self.processor {
            Processor::Device(device) => device.as_mut(),
            Processor::Cpu { map, .. } => map.as_mut(),
        }
    }
}

impl<D: DeviceHitmap> Hitmap for ResilientHitmap<D> {
    fn mark(&mut self, references: &[Reference]) {
        if self.on_device(|device| device.mark(references)).is_none() {
            self.map_mut().mark(references);
        }
    }

    fn zones(&mut self, digests: &[Digest], zones: &mut Vec<u8>) {
        let begin = zones.len();
        if self.on_device(|device| device.zones(digests, zones)).is_none() {
            zones.truncate(begin);
            self.map_mut().zones(digests, zones);
        }
    }

    fn submit(&mut self, references: &[Reference], digests: &[Digest], answers: &mut Answers) {
        let known = answers.len();
        if self.on_device(|device| device.submit(references, digests, answers)).is_none() {
            // What was under way on a device that is lost is never answered.
            let unanswered = self.under_way - (answers.len() - known);
            answers.extend(std::iter::repeat_n(Vec::new(), unanswered));
            self.map_mut().submit(references, digests, answers);
        }
        self.under_way = self.under_way + 1 - (answers.len() - known);
        let late = self.late.max(self.map().late());
        if self.late == 0 && late > 0 {
            tracing::warn!("{} is late: the hitmap misses references", D::KIND);
        }
        self.late = late;
    }

    fn is_apart(&self) -> bool {
        self.map().is_apart()
    }

    fn late(&self) -> u64 {
        self.late
    }

    fn age(&mut self) {
        match &mut self.processor {
            // An aging that fails on the device is completed by `DeviceHitmap::rescue`.
            Processor::Device(_) => drop(self.on_device(|device| device.age())),
            Processor::Cpu { map, .. } => map.age(),
        }
    }

    fn age_some(&mut self, bytes: usize) -> bool {
        match self.on_device(|device| device.age_some(bytes)) {
            Some(more) => more,
            None => self.map_mut().age_some(bytes),
        }
    }

    fn grow(&mut self, items: u64) {
        if self.on_device(|device| device.grow(items)).is_none() {
            self.map_mut().grow(items);
        }
    }

    fn bytes_for(&self, items: u64) -> u64 {
        self.map().bytes_for(items)
    }

    fn main_memory_bytes_for(&self, items: u64) -> u64 {
        self.map().main_memory_bytes_for(items)
    }

    fn levels(&self) -> u8 {
        self.map().levels()
    }

    fn processor(&self) -> String {
        match &self.processor {
            Processor::Device(device) => device.processor(),
            Processor::Cpu { map, why } => format!("{} ({} lost: {why})", map.processor(), D::KIND),
        }
    }
}
