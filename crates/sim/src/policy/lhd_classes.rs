//! What LHD learns: hits and evictions by age, in classes, and the hit densities that follow .

/// Classes by the sum of an item's last two ages at a hit.
const CLASSES: usize = 16;
/// The authors give each application 16 classes, and start the classes of application 1, the only one here,
/// with the numbers 17 to 32.
const FIRST_WEIGHT: usize = 17;
/// How much of the counts a reconfiguration keeps.
const DECAY: f32 = 0.9;
/// The reconfigurations that adapt the step of age, and which part of all ages an item's mean stay should
/// take.
const ADAPT_AT: [u32; 2] = [5, 25];
const STAY: f32 = 0.01;
/// Less than this many events are none.
const EVENTS_MIN: f32 = 1e-5;

/// Counts and densities by age.
struct Class {
    hits: Vec<f32>,
    evictions: Vec<f32>,
    densities: Vec<f32>,
}

/// All classes, and how ages are made coarse.
pub(super) struct Classes {
    classes: Vec<Class>,
    /// Ages go from 0 to this less 1; the last stands for all that is older.
    ages: usize,
    /// Requests in a step of age, as a shift.
    shift: u32,
    items: f32,
    items_mass: f32,
}

impl Classes {
    /// Nothing is known: the younger and the more lately used an item, the denser.
    pub(super) fn new(ages: usize, shift: u32) -> Classes {
        let class = |number: usize| Class {
            hits: vec![0.0; ages],
            evictions: vec![0.0; ages],
            densities: (0..ages).map(|age| (number + FIRST_WEIGHT) as f32 / (age + 1) as f32).collect(),
        };
        Classes { classes: (0..CLASSES).map(class).collect(), ages, shift, items: 0.0, items_mass: 0.0 }
    }

    /// The coarse age after so many requests.
    #[inline]
    pub(super) fn coarse(&self, requests: u64) -> usize {
        (requests >> self.shift).min(self.ages as u64 - 1) as usize
    }

    /// The class of an item whose last two ages have this sum: 16 less about the logarithm.
    #[inline]
    fn class_of(&self, ages: u32) -> usize {
        if ages == 0 {
            return CLASSES - 1;
        }
        let doublings = (0..CLASSES - 1).find(|&shift| (ages as usize) << shift >= self.ages);
        doublings.unwrap_or(CLASSES - 1)
    }

    /// The age that stands for all that is older.
    pub(super) fn oldest(&self) -> usize {
        self.ages - 1
    }

    /// Expected hits per unit of time for an item of that age.
    #[inline]
    pub(super) fn density(&self, ages: u32, age: usize) -> f32 {
        self.classes[self.class_of(ages)].densities[age]
    }

    /// An item was hit at that age.
    pub(super) fn count_hit(&mut self, ages: u32, age: usize) {
        let class = self.class_of(ages);
        self.classes[class].hits[age] += 1.0;
    }

    /// An item was evicted at that age.
    pub(super) fn count_eviction(&mut self, ages: u32, age: usize) {
        let class = self.class_of(ages);
        self.classes[class].evictions[age] += 1.0;
    }

    /// Ages the counts, adapts the step of age where it is time to, and computes the densities. `items` are
    /// resident; `ordinal` counts the reconfigurations before this one.
    pub(super) fn reconfigure(&mut self, items: u64, ordinal: u32) {
        for class in &mut self.classes {
            for count in class.hits.iter_mut().chain(&mut class.evictions) {
                *count *= DECAY;
            }
        }
        self.items = self.items * DECAY + items as f32;
        self.items_mass = self.items_mass * DECAY + 1.0;
        if ADAPT_AT.contains(&ordinal) {
            self.adapt_shift();
        }
        for class in &mut self.classes {
            class.model();
        }
    }

    fn adapt_shift(&mut self) {
        let step = self.items / self.items_mass / (STAY * self.ages as f32);
        let shift = (1..u32::BITS - 1).find(|&shift| (1u32 << shift) as f32 >= step).unwrap_or(u32::BITS - 1);
        for class in &mut self.classes {
            for counts in [&mut class.hits, &mut class.evictions] {
                if shift < self.shift {
                    stretch(counts, self.shift - shift);
                } else {
                    compress(counts, shift - self.shift);
                }
            }
        }
        self.shift = shift;
        self.items *= 8.0;
        self.items_mass *= 8.0;
    }
}

impl Class {
    /// From the oldest age down: hits to come over the time to come, for an item that has got to this age.
    fn model(&mut self) {
        let last = self.hits.len() - 1;
        let mut hits = self.hits[last];
        let mut events = hits + self.evictions[last];
        let mut lifetime = events;
        for age in (0..last).rev() {
            hits += self.hits[age];
            events += self.hits[age] + self.evictions[age];
            lifetime += events;
            self.densities[age] = if events > EVENTS_MIN { hits / lifetime } else { 0.0 };
        }
    }
}

/// Steps of age get shorter: each count is spread over `1 << shift` ages; those that no longer have one go to
/// the last.
fn stretch(counts: &mut [f32], shift: u32) {
    let last = counts.len() - 1;
    let lost: f32 = counts[counts.len() >> shift..last].iter().sum();
    counts[last] += lost;
    for age in (0..last).rev() {
        counts[age] = counts[age >> shift] / (1u32 << shift) as f32;
    }
}

/// Steps of age get longer: `1 << shift` counts become one. The last age stays what it is.
fn compress(counts: &mut [f32], shift: u32) {
    let last = counts.len() - 1;
    let kept = counts.len() >> shift;
    for age in 0..kept {
        counts[age] = counts[age << shift..(age + 1) << shift].iter().sum();
    }
    if kept <= last {
        counts[kept..last].fill(0.0);
    }
}
