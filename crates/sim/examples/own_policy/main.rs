//! A policy of your own, simulated beside those of Larder. Copy this folder, rename `Mine`, change what it does, run
//!
//!     cargo run --release -p larder-sim --example own_policy -- TRACE

#[cfg(test)]
mod tests;

use larder_sim::policy::{self, Access, Framed, Policy, Scheme, Slots};
use larder_sim::{SourceError, progress::Progress, simulate, trace};

/// The one queue of this policy.
const QUEUE: u8 = 0;

/// CLOCK with a counter: an item at the end of the queue goes back to its head once for each read, and then leaves.
struct Mine {
    reads_max: u8,
}

impl Scheme for Mine {
    /// What the policy keeps with each item: the reads that count.
    type Data = u8;

    fn hit(&mut self, slots: &mut Slots<u8>, slot: u32, _: &Access) {
        *slots.data(slot) = self.reads_max.min(*slots.data(slot) + 1);
    }

    fn miss(&mut self, slots: &mut Slots<u8>, _: Option<u32>, access: &Access) {
        self.admit(slots, QUEUE, access, 0);
    }

    fn evict(&mut self, slots: &mut Slots<u8>) {
        let Some(oldest) = slots.tail(QUEUE) else { return };
        match slots.data(oldest) {
            0 => slots.free(oldest),
            reads => {
                *reads -= 1;
                slots.move_to(QUEUE, oldest);
            }
        }
    }

    fn metadata_bits(&self) -> f64 {
        2.0
    }
}

/// The policies by name: `mine`, or one of Larder's.
fn build(name: &str, capacity: u64, seed: u64) -> Result<Box<dyn Policy>, String> {
    match name {
        "mine" => Ok(Box::new(Framed::new(capacity, 1, Mine { reads_max: 3 }))),
        other => policy::build(other, capacity, seed),
    }
}

fn main() -> Result<(), SourceError> {
    let path = std::env::args().nth(1).ok_or_else(|| SourceError::new("give a trace"))?;
    let open = || trace::open(path.as_ref(), &trace::Options::default());
    let policies = ["mine", "lru", "clock", "s3-fifo", "larder"].map(str::to_owned).to_vec();
    let rules = simulate::Rules { policies, ..simulate::Rules::default() };
    let outcome = simulate::run_with(&open, &rules, &build, &mut Progress::new("simulate", false))?;
    print!("{}", simulate::report(&outcome, &rules).to_text());
    Ok(())
}
