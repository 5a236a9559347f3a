//! Would flash write less if what survives a reclaim went to zones of its own? A model of a log of zones, with a cache
//! in memory in front of it: `cargo run --release -p larder-laboratory --example hot_cold`.
//!
//! Items of one size are stored by Zipf's law. A store goes to the cache in memory (CLOCK), and what the cache evicts
//! is written to the open zone of the log. When erased zones are low, the zone with the fewest live items is reclaimed
//! (greedy): its live items are written again. They go to the same open zone as new ones (*together*), to an open zone
//! for survivors (*apart*), or to one for survivors of one reclaim and one for those of two and more (*by age*).
//!
//! The result is the device's writes divided by the items that the cache evicted, in the second half of the run. The
//! same command gives the same digits.

const ZONES: usize = 128;
const ZONE_ITEMS: usize = 2048;
/// Zones that are erased when a reclaim begins.
const LOW_ZONES: usize = 3;
const STORES_PER_ITEM: usize = 30;
const NONE: u32 = u32::MAX;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Items by Zipf's law. Neighbours in rank are no neighbours in number.
struct Zipf {
    sums: Vec<f64>,
    items: Vec<u32>,
}

impl Zipf {
    fn new(count: usize, theta: f64, random: &mut Random) -> Zipf {
        let mut items: Vec<u32> = (0..count as u32).collect();
        (1..count).rev().for_each(|at| items.swap(at, (random.next() % (at as u64 + 1)) as usize));
        let mut sum = 0.0;
        let sums = (1..=count).map(|rank| {
            sum += (rank as f64).powf(-theta);
            sum
        });
        Zipf { sums: sums.collect(), items }
    }

    fn next(&self, random: &mut Random) -> u32 {
        let at = random.fraction() * self.sums[self.sums.len() - 1];
        self.items[self.sums.partition_point(|sum| *sum < at).min(self.items.len() - 1)]
    }
}

/// The cache in memory: CLOCK.
struct Memory {
    slots: Vec<(u32, bool)>,
    slot_of: Vec<u32>,
    hand: usize,
}

impl Memory {
    /// An item is stored. Returns the one that is evicted for it.
    fn store(&mut self, item: u32) -> Option<u32> {
        if self.slot_of[item as usize] != NONE {
            self.slots[self.slot_of[item as usize] as usize].1 = true;
            return None;
        }
        while std::mem::take(&mut self.slots[self.hand].1) {
            self.hand = (self.hand + 1) % self.slots.len();
        }
        let (old, _) = std::mem::replace(&mut self.slots[self.hand], (item, false));
        self.slot_of[item as usize] = self.hand as u32;
        self.hand = (self.hand + 1) % self.slots.len();
        (old != NONE).then(|| {
            self.slot_of[old as usize] = NONE;
            old
        })
    }
}

#[derive(Clone, Default)]
struct Zone {
    /// Items and how many reclaims each survived.
    written: Vec<(u32, usize)>,
    live: usize,
}

struct Log {
    zones: Vec<Zone>,
    erased: Vec<usize>,
    /// The open zone for new items, and those for survivors.
    open: Vec<usize>,
    /// Where the live copy of an item is: zone and place.
    place: Vec<(u32, u32)>,
    writes: u64,
}

impl Log {
    fn new(items: usize, open: usize) -> Log {
        let erased: Vec<usize> = (open..ZONES).collect();
        let zones = vec![Zone::default(); ZONES];
        Log { zones, erased, open: (0..open).collect(), place: vec![(NONE, 0); items], writes: 0 }
    }

    fn append(&mut self, item: u32, age: usize) {
        let stream = age.min(self.open.len() - 1);
        if self.zones[self.open[stream]].written.len() == ZONE_ITEMS {
            self.open[stream] = self.erased.pop().expect("reclaim keeps some zones erased");
        }
        let zone = self.open[stream];
        let before = std::mem::replace(
            &mut self.place[item as usize],
            (zone as u32, self.zones[zone].written.len() as u32),
        );
        if before.0 != NONE {
            self.zones[before.0 as usize].live -= 1;
        }
        self.zones[zone].written.push((item, age));
        self.zones[zone].live += 1;
        self.writes += 1;
    }

    fn put(&mut self, item: u32) {
        self.append(item, 0);
        while self.erased.len() < LOW_ZONES {
            let is_closed = |zone: &usize| !self.erased.contains(zone) && !self.open.contains(zone);
            let victim = (0..ZONES).filter(is_closed).min_by_key(|zone| self.zones[*zone].live);
            let victim = victim.expect("more zones than open ones");
            let found = std::mem::take(&mut self.zones[victim].written);
            for (at, (item, age)) in found.into_iter().enumerate() {
                if self.place[item as usize] == (victim as u32, at as u32) {
                    self.append(item, age + 1);
                }
            }
            self.erased.push(victim);
        }
    }
}

/// The writes for each item that memory evicted.
fn amplification(memory_part: usize, theta: f64, fill: f64, open: usize) -> f64 {
    let items = ((ZONES - LOW_ZONES - 1) as f64 * ZONE_ITEMS as f64 * fill) as usize;
    let mut random = Random(88_172_645_463_325_252);
    let zipf = Zipf::new(items, theta, &mut random);
    let slots = vec![(NONE, false); items / memory_part];
    let mut memory = Memory { slots, slot_of: vec![NONE; items], hand: 0 };
    let mut log = Log::new(items, open);
    let (mut evicted, mut writes_before) = (0, 0);
    for number in 0..items * STORES_PER_ITEM {
        let item = if number < items { number as u32 } else { zipf.next(&mut random) };
        if let Some(out) = memory.store(item) {
            log.put(out);
            evicted += 1;
        }
        if number == items * STORES_PER_ITEM / 2 {
            (evicted, writes_before) = (0, log.writes);
        }
    }
    (log.writes - writes_before) as f64 / f64::from(evicted)
}

fn main() {
    println!("memory, of all items; theta; fill; writes for each item evicted: together, apart, by age");
    for memory_part in [1000, 50, 8] {
        for theta in [0.0, 0.99, 1.2] {
            for fill in [0.7, 0.8] {
                let [together, apart, by_age] =
                    [1, 2, 3].map(|open| amplification(memory_part, theta, fill, open));
                println!("1/{memory_part}; {theta}; {fill}; {together:.2}, {apart:.2}, {by_age:.2}");
            }
        }
    }
}
