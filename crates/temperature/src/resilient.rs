//! A hitmap that outlives its device.

use crate::cuda::{CudaError, CudaHitmap};
use crate::hitmap::Hitmap;
use crate::reference::{Digest, Reference};

/// A hitmap on a CUDA device, and on the CPU from the first failure on: memory refused at a growth, a batch refused, a
/// device that fails or does not answer. That is logged once.
///
/// Where the device still gives its bits back, nothing is forgotten, and the call that failed is done on the CPU. Where
/// it does not, all keys are cold.
#[derive(Debug)]
pub struct Resilient {
    at: At,
}

enum At {
    Device(Box<CudaHitmap>),
    Cpu { map: Box<dyn Hitmap>, why: CudaError },
}

impl std::fmt::Debug for At {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            At::Device(map) => map.fmt(f),
            At::Cpu { why, .. } => write!(f, "on the CPU: {why}"),
        }
    }
}

impl Resilient {
    /// Runs on this device for as long as it can.
    pub fn new(device: CudaHitmap) -> Resilient {
        Resilient { at: At::Device(Box::new(device)) }
    }

    /// Why it runs on the CPU, if it does.
    pub fn lost(&self) -> Option<&CudaError> {
        match &self.at {
            At::Device(_) => None,
            At::Cpu { why, .. } => Some(why),
        }
    }

    /// Does something on the device; none where it could not be done, which is on the CPU then.
    fn on_device<T>(&mut self, work: impl FnOnce(&mut CudaHitmap) -> T) -> Option<T> {
        let At::Device(device) = &mut self.at else { return None };
        let done = work(device);
        let Some(why) = device.error().cloned() else { return Some(done) };
        let map = match device.rescue() {
            Ok(map) => {
                tracing::warn!("CUDA device lost, the hitmap moves to the CPU with its bits: {why}");
                map
            }
            Err(_) => {
                tracing::warn!("CUDA device lost, the hitmap begins anew on the CPU: {why}");
                device.empty_on_cpu()
            }
        };
        self.at = At::Cpu { map, why };
        None
    }

    fn map(&self) -> &dyn Hitmap {
        match &self.at {
            At::Device(device) => device.as_ref(),
            At::Cpu { map, .. } => map.as_ref(),
        }
    }

    fn map_mut(&mut self) -> &mut dyn Hitmap {
        match &mut self.at {
            At::Device(device) => device.as_mut(),
            At::Cpu { map, .. } => map.as_mut(),
        }
    }
}

impl Hitmap for Resilient {
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

    fn age(&mut self) {
        match &mut self.at {
            // An aging that began on the device is brought to its end by whoever takes the bits.
            At::Device(_) => drop(self.on_device(|device| device.age())),
            At::Cpu { map, .. } => map.age(),
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

    fn levels(&self) -> u8 {
        self.map().levels()
    }

    fn place(&self) -> String {
        match &self.at {
            At::Device(device) => device.place(),
            At::Cpu { map, why } => format!("{} (CUDA device lost: {why})", map.place()),
        }
    }
}
