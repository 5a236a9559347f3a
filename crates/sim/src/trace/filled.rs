//! Sizes and penalties that a request does not tell, from other requests for the same key: a read that misses tells no
//! size, and the store that follows does.

use crate::mix::KeyMap;
use crate::{CHUNK_REQUESTS, Fields, Op, Request, Source, SourceError};

/// What is known of keys.
#[derive(Debug, Default)]
pub struct Known {
    /// The length of the value in bytes and the penalty in microseconds that were told last; 0 = none was.
    of_keys: KeyMap<(u32, u32)>,
    mean_bytes: u32,
}

impl Known {
    /// Reads a whole source.
    ///
    /// # Errors
    /// Those of the source.
    pub fn learn(source: &mut dyn Source) -> Result<Known, SourceError> {
        let mut known = Known::default();
        let (mut sum_bytes, mut sized) = (0u64, 0u64);
        let mut chunk = Vec::with_capacity(CHUNK_REQUESTS);
        while source.fill(&mut chunk, CHUNK_REQUESTS)? > 0 {
            for request in chunk.drain(..).filter(|request| request.op != Op::Delete) {
                if request.value_bytes > 0 || request.penalty_us > 0 {
                    let of_key = known.of_keys.entry(request.key).or_default();
                    of_key.0 = if request.value_bytes > 0 { request.value_bytes } else { of_key.0 };
                    of_key.1 = if request.penalty_us > 0 { request.penalty_us } else { of_key.1 };
                }
                sum_bytes += u64::from(request.value_bytes);
                sized += u64::from(request.value_bytes > 0);
            }
        }
        known.mean_bytes = (sum_bytes / sized.max(1)) as u32;
        Ok(known)
    }

    /// Tells a request what it does not tell itself. A key of which no size is known has one of the mean size.
    fn tell(&self, request: &mut Request) {
        if request.op == Op::Delete || (request.value_bytes > 0 && request.penalty_us > 0) {
            return;
        }
        let (value_bytes, penalty_us) = self.of_keys.get(&request.key).copied().unwrap_or_default();
        if request.value_bytes == 0 {
            request.value_bytes = if value_bytes > 0 { value_bytes } else { self.mean_bytes };
        }
        if request.penalty_us == 0 {
            request.penalty_us = penalty_us;
        }
    }
}

/// A source whose requests are told what is known.
pub struct Filled {
    inner: Box<dyn Source>,
    known: Known,
}

impl Filled {
    /// The requests of `inner`, of which `known` was learnt.
    pub fn new(inner: Box<dyn Source>, known: Known) -> Filled {
        Filled { inner, known }
    }
}

impl Source for Filled {
    fn fill(&mut self, into: &mut Vec<Request>, most: usize) -> Result<usize, SourceError> {
        let before = into.len();
        let got = self.inner.fill(into, most)?;
        into[before..].iter_mut().for_each(|request| self.known.tell(request));
        Ok(got)
    }

    fn fields(&self) -> Fields {
        self.inner.fields()
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn done_ratio(&self) -> Option<f64> {
        self.inner.done_ratio()
    }

    fn notices(&self) -> Vec<String> {
        self.inner.notices()
    }
}
