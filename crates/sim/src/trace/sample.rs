//! A sample of a trace by key, after SHARDS (Waldspurger et al., FAST'15): either all requests of a key are kept, or
//! none.

use crate::mix::{GOLDEN, mix64};
use crate::{CHUNK_REQUESTS, Fields, Request, Source, SourceError};

/// A hash of the key that depends on `seed`.
#[inline]
pub(super) fn spread(key: u64, seed: u64) -> u64 {
    mix64(key.wrapping_add(seed.wrapping_mul(GOLDEN)).wrapping_add(GOLDEN))
}

/// The requests of a source to the keys whose hash is below the rate.
pub struct Sampled {
    inner: Box<dyn Source>,
    rate: f64,
    seed: u64,
    threshold: u64,
    chunk: Vec<Request>,
    failed: Option<SourceError>,
}

impl Sampled {
    /// Keeps about the share `rate` of the keys (above 0, at most 1). Another `seed` selects other keys.
    ///
    /// # Errors
    /// A rate outside its range.
    pub fn new(inner: Box<dyn Source>, rate: f64, seed: u64) -> Result<Sampled, SourceError> {
        if !(rate > 0.0 && rate <= 1.0) {
            return Err(SourceError::new(format!("a rate of {rate} is not above 0 and at most 1")));
        }
        // A rate of 1 becomes the largest threshold, and `keeps` then keeps every key.
        let threshold = (rate * 2f64.powi(64)) as u64;
        Ok(Sampled { inner, rate, seed, threshold, chunk: Vec::new(), failed: None })
    }

    /// Whether the requests to a key are kept.
    #[inline]
    pub fn keeps(&self, key: u64) -> bool {
        self.threshold == u64::MAX || spread(key, self.seed) < self.threshold
    }
}

impl Source for Sampled {
    fn fill(&mut self, into: &mut Vec<Request>, most: usize) -> Result<usize, SourceError> {
        let before = into.len();
        while into.len() - before < most && self.failed.is_none() {
            let room = most - (into.len() - before);
            self.chunk.clear();
            let mut chunk = std::mem::take(&mut self.chunk);
            let read = self.inner.fill(&mut chunk, room.min(CHUNK_REQUESTS));
            into.extend(chunk.iter().filter(|request| self.keeps(request.key)));
            self.chunk = chunk;
            match read {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) => self.failed = Some(error),
            }
        }
        match &self.failed {
            Some(error) if into.len() == before && most > 0 => Err(error.clone()),
            _ => Ok(into.len() - before),
        }
    }

    fn fields(&self) -> Fields {
        self.inner.fields()
    }

    fn describe(&self) -> String {
        format!("{}, keys sampled at {} (seed {})", self.inner.describe(), self.rate, self.seed)
    }

    fn done_ratio(&self) -> Option<f64> {
        self.inner.done_ratio()
    }

    fn notices(&self) -> Vec<String> {
        self.inner.notices()
    }
}
