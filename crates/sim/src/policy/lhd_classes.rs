//! The statistics of LHD: hits and evictions by age and class, and the hit densities computed from them.

/// Number of classes. An item's class depends on the sum of its ages at its last two hits.
const CLASSES: usize = 16;
/// First weight of the initial densities. The authors' simulator reserves 16 classes for each application and starts
/// those of application 1, the only one here, with the weights 17 to 32.
const FIRST_WEIGHT: usize = 17;
/// Share of the counts that a reconfiguration keeps.
const DECAY: f32 = 0.9;
/// Reconfigurations that adapt the step of age, and the share of all ages that the mean stay of an item should then
/// span.
const ADAPT_AT: [u32; 2] = [5, 25];
const STAY: f32 = 0.01;
/// Fewer events than this count as none.
const EVENTS_MIN: f32 = 1e-5;

/// Counts and densities of one class, by age.
struct Class {
    hits: Vec<f32>,
    evictions: Vec<f32>,
    densities: Vec<f32>,
}

/// All classes, and the step of age.
pub(super) struct Classes {
    classes: Vec<Class>,
    /// Number of ages. Ages run from 0 to `ages - 1`; the last one stands for every older age.
    ages: usize,
    /// Requests per step of age, as a shift.
    shift: u32,
    items: f32,
    items_mass: f32,
}

impl Classes {
    /// Initial state without any statistics: younger and more recently used items have higher densities.
    pub(super) fn new(ages: usize, shift: u32) -> Classes {
        let class = |number: usize| Class {
            hits: vec![0.0; ages],
            evictions: vec![0.0; ages],
            densities: (0..ages).map(|age| (number + FIRST_WEIGHT) as f32 / (age + 1) as f32).collect(),
        };
        Classes { classes: (0..CLASSES).map(class).collect(), ages, shift, items: 0.0, items_mass: 0.0 }
    }

    /// The coarse age after this many requests.
    #[inline]
    pub(super) fn coarse(&self, requests: u64) -> usize {
        (requests >> self.shift).min(self.ages as u64 - 1) as usize
    }

    /// The class of an item whose last two ages have this sum. A larger sum gives a lower class, roughly by its
    /// logarithm.
    #[inline]
    fn class_of(&self, ages: u32) -> usize {
        if ages == 0 {
            return CLASSES - 1;
        }
        let doublings = (0..CLASSES - 1).find(|&shift| (ages as usize) << shift >= self.ages);
        doublings.unwrap_or(CLASSES - 1)
    }

    /// The last age, which stands for every older one.
    pub(super) fn oldest(&self) -> usize {
        self.ages - 1
    }

    /// Expected hits per unit of time of an item of this age.
    #[inline]
    pub(super) fn density(&self, ages: u32, age: usize) -> f32 {
        self.classes[self.class_of(ages)].densities[age]
    }

    /// Records a hit at this age.
    pub(super) fn count_hit(&mut self, ages: u32, age: usize) {
        let class = self.class_of(ages);
        self.classes[class].hits[age] += 1.0;
    }

    /// Records an eviction at this age.
    pub(super) fn count_eviction(&mut self, ages: u32, age: usize) {
        let class = self.class_of(ages);
        self.classes[class].evictions[age] += 1.0;
    }

    /// Decays the counts, adapts the step of age if due, and computes the densities. `items` is the number of stored
    /// items; `ordinal` is the number of reconfigurations before this one.
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
    /// Computes the densities from the oldest age to the youngest: future hits divided by future lifetime, for an
    /// item that reaches the age.
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

/// Makes the step of age shorter: spreads each count over `1 << shift` ages. Counts beyond the last age are added to
/// the last age.
fn stretch(counts: &mut [f32], shift: u32) {
    let last = counts.len() - 1;
    let lost: f32 = counts[counts.len() >> shift..last].iter().sum();
    counts[last] += lost;
    for age in (0..last).rev() {
        counts[age] = counts[age >> shift] / (1u32 << shift) as f32;
    }
}

/// Makes the step of age longer: joins `1 << shift` counts into one. The last age keeps its count.
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
