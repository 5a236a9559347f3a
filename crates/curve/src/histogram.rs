//! The frequencies of distances, in bounded memory.

/// Frequencies of distances. Each distance below `2^bits` has a bucket of its own. Above, each power of two is
/// divided into `2^(bits - 1)` buckets, so that a distance is known to within a factor of `1 + 2^(1 - bits)`. A
/// bucket stands for its largest distance, so that a curve drawn from the histogram never promises a hit too early.
pub struct Histogram {
    bits: u32,
    counts: Vec<f64>,
}

impl Histogram {
    /// An empty histogram. Memory grows with the largest distance, to at most 8 bytes for each of `2^bits + (64 -
    /// bits) * 2^(bits - 1)` buckets.
    pub fn new(bits: u32) -> Histogram {
        Histogram { bits, counts: Vec::new() }
    }

    /// Counts a distance `weight` times.
    pub fn add(&mut self, distance: u64, weight: f64) {
        let at = self.bucket(distance);
        if at >= self.counts.len() {
            let len = (at + 1).max(self.counts.len() * 3 / 2);
            self.counts.resize(len, 0.0);
        }
        self.counts[at] += weight;
    }

    /// Halves all counts.
    pub fn halve(&mut self) {
        self.counts.iter_mut().for_each(|count| *count /= 2.0);
    }

    /// Bytes of memory that the counts take.
    pub fn bytes(&self) -> u64 {
        (self.counts.capacity() * size_of::<f64>()) as u64
    }

    fn bucket(&self, distance: u64) -> usize {
        let length = 64 - distance.leading_zeros();
        if length <= self.bits {
            return distance as usize;
        }
        let shift = length - self.bits;
        let half = 1_usize << (self.bits - 1);
        (1_usize << self.bits) + (shift as usize - 1) * half + ((distance >> shift) as usize - half)
    }

    /// The smallest and the largest distance of a bucket.
    fn bounds(&self, bucket: usize) -> (u64, u64) {
        let linear = 1_usize << self.bits;
        if bucket < linear {
            return (bucket as u64, bucket as u64);
        }
        let half = linear / 2;
        let shift = (bucket - linear) / half + 1;
        let least = ((half + (bucket - linear) % half) as u64) << shift;
        (least, least + ((1 << shift) - 1))
    }

    /// The non-empty buckets by rising distance: smallest distance, largest distance, count.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64, f64)> + '_ {
        self.counts.iter().enumerate().filter(|(_, count)| **count != 0.0).map(|(at, count)| {
            let (least, largest) = self.bounds(at);
            (least, largest, *count)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_distance_lies_in_its_bucket_and_buckets_are_as_narrow_as_promised() {
        for bits in [4, 10, 14] {
            let histogram = Histogram::new(bits);
            let mut distances: Vec<u64> = (0..3000).collect();
            distances.extend((12..63).flat_map(|power| [(1 << power) - 1, 1 << power, (1 << power) + 12345]));
            let mut last = None;
            for distance in distances {
                let at = histogram.bucket(distance);
                let (least, largest) = histogram.bounds(at);
                assert!(least <= distance && distance <= largest, "{distance}: {least} to {largest}");
                assert!((largest - least) as f64 <= distance as f64 / f64::from(1 << (bits - 1)));
                if let Some((distance_before, at_before)) = last
                    && distance_before < distance
                {
                    assert!(at_before <= at);
                }
                last = Some((distance, at));
            }
        }
    }
}
