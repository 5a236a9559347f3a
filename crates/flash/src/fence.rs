//! Fences: on which page of a hash-ordered segment the records of a hash begin. Three bytes for each page.
//!
//! ```text
//!  page      0        1        2    ...     128       129   ...            last
//!  anchors   exact first hash                exact first hash              last hash of all
//!  fences    | 15 bits | S |  one for each page: its first hash, as a fraction between two anchors
//!  tails     | 8 bits |       one for each page: the hash of its last record, as a distance from the fence
//! ```
//!
//! The anchors are exact: the first hash of every 128th page. The fence of a page says where its first hash lies
//! between the two anchors around it. Where hashes are spread evenly, a step of a fence is 1/256 of a page. The bit S
//! says that the page before has records with the same fence as the first record of this page. So the answer is a range
//! of pages that always contains the right one, and is seldom wider than that page.
//!
//! The last record of a page may run on onto the next page. The tail of a page says whether it does, and where its hash
//! lies behind the page's fence. So the next page is read for that record, and for few others.

/// Pages between two anchors: fences, tails and anchors take `3 + 8 / 128` bytes a page.
const BLOCK: usize = 128;
/// Steps between two anchors.
const STEPS: u64 = (1 << 15) - 1;
/// Steps of a fence to one step of a tail.
const TAIL_STEPS: u64 = 4;
/// The highest position that a tail has. A record behind that position counts as the last one.
const TAIL_MAX: u8 = 254;
/// The tail of a page whose last record ends on it.
const ENDS: u8 = 255;

/// Data pages of a segment, to be read together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pages {
    /// Number of the first one, counted from the segment's first data page.
    pub first: u32,
    /// How many. 1 in most cases, 2 for a record that runs on onto the next page, seldom 3 or more; 0 if no record of
    /// the segment can have the hash.
    pub count: u32,
}

impl Pages {
    /// No page.
    const NONE: Pages = Pages { first: 0, count: 0 };
}

/// The fences of a segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fences {
    /// The first hash of every 128th page, and at the end the last hash of the segment.
    anchors: Box<[u64]>,
    /// The fence of each page: 15 bits of position between the anchors, and the lowest bit, S.
    pages: Box<[u16]>,
    /// The tail of each page: how far behind the page's fence the last record that begins on it lies, if that record
    /// runs on; [`ENDS`] if it does not.
    tails: Box<[u8]>,
}

/// The position of a hash between two anchors, in steps.
#[inline]
fn step(hash: u64, anchor: u64, next: u64) -> u64 {
    // Shifted so that the product fits into 64 bits. The bits that are lost are far below a step, and the order of
    // hashes stays.
    let span = next - anchor;
    let shift = 32u32.saturating_sub(span.leading_zeros());
    let (way, span) = ((hash - anchor) >> shift, span >> shift);
    (way * STEPS).checked_div(span).unwrap_or(0)
}

/// The position of a hash in the tail of the page that begins at the step `fence`.
#[inline]
fn tail(at: u64, fence: u64) -> u8 {
    (at.saturating_sub(fence) / TAIL_STEPS).min(TAIL_MAX as u64) as u8
}

/// Where in its block the fence of a step is, if hashes are spread evenly.
#[inline]
fn guess(at: u64) -> usize {
    at as usize * BLOCK / STEPS as usize
}

/// How many of the fences lie at a step or below it. Where hashes are spread evenly, the answer is close to a guess,
/// and the search stays within two cache lines around it.
fn first_above(fences: &[u16], at: u64) -> usize {
    let is_below = |fence: &u16| (*fence >> 1) as u64 <= at;
    let guess = guess(at).min(fences.len());
    let (mut low, mut high, mut stride) = (0, fences.len(), 4);
    // The answer lies from `low` to `high`.
    if fences.get(guess).is_some_and(is_below) {
        low = guess + 1;
        while low + stride < high && is_below(&fences[low + stride]) {
            low += stride + 1;
            stride *= 2;
        }
        high = high.min(low + stride);
    } else {
        high = guess;
        while high >= low + stride && !is_below(&fences[high - stride]) {
            high -= stride;
            stride *= 2;
        }
        low = high.saturating_sub(stride);
    }
    low + fences[low..high].partition_point(is_below)
}

/// What a builder knows of a page.
#[derive(Clone, Copy, Debug)]
struct PageHashes {
    /// The hash of the first record that begins on the page.
    first: u64,
    /// The hash of the last record that begins before the page.
    before: u64,
    /// The hash of the last record that begins on the page, if that record runs on onto the next page.
    runs_on: Option<u64>,
}

/// Builds fences from the hashes of a segment's records, as they are written.
#[derive(Default, Debug)]
pub struct FenceBuilder {
    pages: Vec<PageHashes>,
    begun: bool,
    last: u64,
}

impl FenceBuilder {
    /// A builder that has seen no record.
    pub fn new() -> FenceBuilder {
        FenceBuilder::default()
    }

    /// Adds the next record: its hash, and the data page that it begins on. Neither may be lower than that of the
    /// record before.
    pub fn push(&mut self, page: u32, hash: u64) {
        debug_assert!(self.pages.len() <= page as usize + 1 && (self.last <= hash || !self.begun));
        let begins = page as usize >= self.pages.len();
        if begins {
            let hashes = PageHashes { first: hash, before: self.last, runs_on: None };
            self.pages.resize(page as usize + 1, hashes);
        }
        (self.begun, self.last) = (true, hash);
    }

    /// The record that was added last runs on onto the page after the one that it begins on.
    pub fn runs_on(&mut self) {
        if let Some(page) = self.pages.last_mut() {
            page.runs_on = Some(self.last);
        }
    }

    /// Memory that the builder takes for a segment of `pages` pages, bytes.
    pub fn bytes_for(pages: u64) -> u64 {
        pages * size_of::<PageHashes>() as u64
    }

    /// The fences of a segment of `data_pages` data pages.
    pub fn finish(mut self, data_pages: u32) -> Fences {
        if !self.begun {
            return Fences { anchors: Box::default(), pages: Box::default(), tails: Box::default() };
        }
        // Pages at the end on which no record begins, because the last one runs over them.
        let none = PageHashes { first: self.last, before: self.last, runs_on: None };
        self.pages.resize((data_pages as usize).max(self.pages.len()), none);
        let mut anchors: Vec<u64> = self.pages.iter().step_by(BLOCK).map(|page| page.first).collect();
        anchors.push(self.last);
        let (mut pages, mut tails) = (Vec::new(), Vec::new());
        for (page, hashes) in self.pages.iter().enumerate() {
            let (anchor, next) = (anchors[page / BLOCK], anchors[page / BLOCK + 1]);
            let at = step(hashes.first, anchor, next);
            let shared = page > 0 && hashes.before >= anchor && step(hashes.before, anchor, next) == at;
            pages.push((at as u16) << 1 | shared as u16);
            // The last record of a block may have the hash of the next anchor, never a higher one.
            tails.push(hashes.runs_on.map_or(ENDS, |last| tail(step(last, anchor, next), at)));
        }
        Fences { anchors: anchors.into(), pages: pages.into(), tails: tails.into() }
    }
}

impl Fences {
    /// Builds fences where only the first hash of each data page is known (a page on which no record begins repeats
    /// that of the next page). They are less exact than those of a [`FenceBuilder`]: a hash that is a page's first is
    /// looked for on the page before as well, and a hash above the last page's first is always looked for.
    pub fn build(first_hashes: &[u64]) -> Fences {
        let mut builder = FenceBuilder::new();
        let last = first_hashes.len().saturating_sub(1);
        for (page, hash) in first_hashes.iter().enumerate() {
            // As if the page before ended with a record of the same hash.
            if page > 0 {
                builder.push(page as u32 - 1, *hash);
            }
            builder.push(page as u32, *hash);
            if page == last {
                builder.push(page as u32, u64::MAX);
            }
        }
        let fences = builder.finish(first_hashes.len() as u32);
        // As if every record ran on.
        Fences { tails: vec![0; fences.tails.len()].into(), ..fences }
    }

    /// The data pages on which the records of this hash begin, and the page after them if a record may run on onto it.
    pub fn page(&self, hash: u64) -> Pages {
        self.begins_at(hash).map_or(Pages::NONE, |(begins, at)| {
            let end = (begins.first + begins.count) as usize;
            let (fence, last) = ((self.pages[end - 1] >> 1) as u64, self.tails[end - 1]);
            let runs_on = last != ENDS && tail(at, fence) >= last && end < self.pages.len();
            Pages { count: begins.count + runs_on as u32, ..begins }
        })
    }

    /// The data pages on which the records of this hash begin: one, seldom two.
    pub fn begins(&self, hash: u64) -> Pages {
        self.begins_at(hash).map_or(Pages::NONE, |(begins, _)| begins)
    }

    /// Loads what the search for a hash probably looks at. The result means nothing.
    #[inline]
    pub(crate) fn touch(&self, hash: u64) -> u64 {
        let blocks = self.anchors.partition_point(|anchor| *anchor <= hash);
        let Some([anchor, next]) = self.anchors.get(blocks.wrapping_sub(1)..blocks + 1) else { return 0 };
        let page = (blocks - 1) * BLOCK + guess(step(hash, *anchor, *next));
        let (fence, tail) = (self.pages.get(page), self.tails.get(page));
        fence.map_or(0, |fence| *fence as u64) ^ tail.map_or(0, |tail| *tail as u64)
    }

    /// The data pages on which the records of this hash begin, and where the hash lies between the anchors around the
    /// last of them.
    fn begins_at(&self, hash: u64) -> Option<(Pages, u64)> {
        let (last, anchors) = self.anchors.split_last()?;
        let blocks = anchors.partition_point(|anchor| *anchor <= hash);
        if blocks == 0 || hash > *last {
            return None;
        }
        let mut block = blocks - 1;
        let last_at = step(hash, anchors[block], self.anchors[block + 1]);
        let mut at = last_at;
        let end = self.pages.len().min(blocks * BLOCK);
        let within = &self.pages[block * BLOCK..end];
        let end = block * BLOCK + first_above(within, at);
        // The fence of the block's first page is 0, so `end` is behind that page.
        let mut first = end.saturating_sub(1);
        while first > 0 && self.pages[first] & 1 == 1 && (self.pages[first] >> 1) as u64 == at {
            first -= 1;
            if first / BLOCK < block {
                // In the block before, this anchor is at the last step.
                (block, at) = (block - 1, STEPS);
                let (anchor, next) = (self.anchors[block], self.anchors[block + 1]);
                at = if anchor == next { 0 } else { at };
            }
        }
        (end > first).then_some((Pages { first: first as u32, count: (end - first) as u32 }, last_at))
    }

    /// The highest hash of a record; `None` without records.
    pub(crate) fn last_hash(&self) -> Option<u64> {
        self.anchors.last().copied()
    }

    /// The number of data pages of the segment.
    pub fn pages(&self) -> u32 {
        self.pages.len() as u32
    }

    /// Memory taken, bytes.
    pub fn bytes(&self) -> usize {
        size_of::<Fences>() + size_of_val(&*self.anchors) + size_of_val(&*self.pages) + self.tails.len()
    }

    /// Memory for a segment of `pages` data pages, bytes.
    pub fn bytes_for(pages: u64) -> u64 {
        size_of::<Fences>() as u64 + 3 * pages + 8 * (pages.div_ceil(BLOCK as u64) + 1)
    }

    /// Appends the fences in the form that [`Fences::from_bytes`] reads: the number of pages, anchors, fences, tails,
    /// little endian.
    pub fn to_bytes(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.pages.len() as u32).to_le_bytes());
        self.anchors.iter().for_each(|anchor| out.extend_from_slice(&anchor.to_le_bytes()));
        self.pages.iter().for_each(|page| out.extend_from_slice(&page.to_le_bytes()));
        out.extend_from_slice(&self.tails);
    }

    /// Reads fences; `None` if the bytes are no fences. Whatever the bytes are, no answer names a page beyond the
    /// number of pages at their beginning.
    pub fn from_bytes(bytes: &[u8]) -> Option<Fences> {
        let (pages, rest) = bytes.split_first_chunk::<4>()?;
        let pages = u32::from_le_bytes(*pages) as usize;
        let anchors = if pages == 0 { 0 } else { pages.div_ceil(BLOCK) + 1 };
        if rest.len() as u64 != anchors as u64 * 8 + pages as u64 * 3 {
            return None;
        }
        let (anchors, rest) = rest.split_at(anchors * 8);
        let (pages, tails) = rest.split_at(pages * 2);
        let anchors: Box<[u64]> =
            anchors.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
        let pages = pages.as_chunks::<2>().0.iter().map(|bytes| u16::from_le_bytes(*bytes)).collect();
        anchors.is_sorted().then_some(Fences { anchors, pages, tails: tails.into() })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition: the page on which each record begins, its hash, and whether it runs on onto the next page.
    struct Twin(Vec<(u32, u64, bool)>);

    impl Twin {
        /// Lays records of these lengths out in pages of `payload` bytes, in order of hash.
        fn lay_out(mut records: Vec<(u64, u32)>, payload: u32) -> (Twin, u32) {
            records.sort_unstable();
            let (mut offset, mut begins) = (0, Vec::new());
            for (hash, bytes) in records {
                begins.push((offset / payload, hash, offset % payload + bytes > payload));
                offset += bytes;
            }
            (Twin(begins), offset.div_ceil(payload))
        }

        fn fences(&self, data_pages: u32) -> Fences {
            let mut builder = FenceBuilder::new();
            for (page, hash, runs_on) in &self.0 {
                builder.push(*page, *hash);
                if *runs_on {
                    builder.runs_on();
                }
            }
            builder.finish(data_pages)
        }

        fn first_hashes(&self, data_pages: u32) -> Vec<u64> {
            let first =
                |page| self.0.iter().find(|(at, ..)| *at >= page).map_or(u64::MAX, |(_, hash, _)| *hash);
            (0..data_pages).map(first).collect()
        }

        /// Asserts that no record is missed; returns how many more pages are read than those that the records are on.
        fn check(&self, fences: &Fences, data_pages: u32) -> u32 {
            let mut more = 0;
            for (page, hash, runs_on) in &self.0 {
                let found = fences.page(*hash);
                let end = found.first + found.count;
                assert!(
                    found.first <= *page && *page < end && end <= data_pages,
                    "{hash:x} in {page}: {found:?}"
                );
                assert!(
                    !runs_on || end > *page + 1 || end == data_pages,
                    "{hash:x} in {page} runs on: {found:?}"
                );
                more += found.count - 1 - *runs_on as u32;
            }
            more
        }
    }

    fn written_and_read(fences: &Fences) -> Fences {
        let mut bytes = Vec::new();
        fences.to_bytes(&mut bytes);
        Fences::from_bytes(&bytes).expect("what was written")
    }

    fn spread(n: u64) -> u64 {
        let x = (n + 1).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let x = (x ^ (x >> 31)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 29)
    }

    #[test]
    fn three_bytes_a_page_and_only_the_pages_of_the_record() {
        // 64 MiB of 100-byte items, of 1-KB items, and of 2-KB items, in a ninth of the hashes.
        for bytes in [112, 1036, 2060] {
            let count = (64 << 20) / bytes as u64;
            let records = (0..count).map(|n| (spread(n) / 9 + (3 << 60), bytes)).collect();
            let (twin, pages) = Twin::lay_out(records, 4080);
            let fences = twin.fences(pages);
            let more = twin.check(&fences, pages) as f64 / count as f64;
            let per_page = fences.bytes() as f64 / pages as f64;
            println!("{bytes}-byte records: {per_page:.3} bytes a page, {more:.5} pages too many");
            assert!(per_page <= 3.1, "{per_page}");
            assert!(more < 0.03, "{more}");
            assert_eq!(fences.bytes() as u64, Fences::bytes_for(pages as u64));
            assert_eq!(fences.page(0).count + fences.page(u64::MAX).count, 0);
        }
    }

    #[test]
    fn a_segment_without_records_is_never_read() {
        let fences = FenceBuilder::new().finish(0);
        assert_eq!(fences.page(0).count, 0);
        assert_eq!(written_and_read(&fences).page(u64::MAX).count, 0);
        assert_eq!(Fences::build(&[]).page(1).count, 0);
    }

    fn hashes() -> impl Strategy<Value = u64> {
        // Spread, crowded at either end, crowded around two places, and a few that come again and again.
        prop_oneof![
            8 => any::<u64>(),
            2 => 0u64..40,
            2 => (0u64..40).prop_map(|n| u64::MAX - n),
            4 => (0u64..3000).prop_map(|n| (1 << 63) + n * n),
            2 => prop::sample::select(vec![7u64, 1 << 40, (1 << 63) + 9, u64::MAX]),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]
        #[test]
        fn no_record_is_missed(
            records in prop::collection::vec((hashes(), 8u32..150), 1..1500),
            payload in 100u32..200,
        ) {
            let (twin, pages) = Twin::lay_out(records, payload);
            let fences = twin.fences(pages);
            twin.check(&fences, pages);
            prop_assert_eq!(written_and_read(&fences), fences);
            let coarse = Fences::build(&twin.first_hashes(pages));
            twin.check(&coarse, pages);
        }

        #[test]
        fn no_record_is_missed_where_all_are_alike(
            hash in hashes(), others in prop::collection::vec(hashes(), 0..3), count in 1usize..800,
        ) {
            let mut records = vec![(hash, 50); count];
            records.extend(others.iter().map(|other| (*other, 50)));
            let (twin, pages) = Twin::lay_out(records, 100);
            twin.check(&twin.fences(pages), pages);
        }

        #[test]
        fn the_search_around_a_guess_finds_what_a_search_of_all_finds(
            mut fences in prop::collection::vec(prop_oneof![any::<u16>(), 0u16..900, 64_000u16..], 0..=BLOCK),
            at in prop_oneof![0..=STEPS, 0u64..500, STEPS - 500..=STEPS],
        ) {
            fences.sort_unstable();
            prop_assert_eq!(first_above(&fences, at), fences.partition_point(|fence| (*fence >> 1) as u64 <= at));
        }

        #[test]
        fn bytes_that_are_no_fences_answer_nothing_beyond_their_pages(
            pages in 0u32..400,
            mut anchors in prop::collection::vec(hashes(), 4),
            fences in prop::collection::vec(any::<u16>(), 400),
            hash in hashes(),
        ) {
            anchors.sort_unstable();
            anchors.truncate(if pages == 0 { 0 } else { pages.div_ceil(128) as usize + 1 });
            anchors.resize(if pages == 0 { 0 } else { pages.div_ceil(128) as usize + 1 }, u64::MAX);
            let mut bytes = pages.to_le_bytes().to_vec();
            anchors.iter().for_each(|anchor| bytes.extend_from_slice(&anchor.to_le_bytes()));
            fences[..pages as usize].iter().for_each(|fence| bytes.extend_from_slice(&fence.to_le_bytes()));
            bytes.extend(fences[..pages as usize].iter().map(|fence| (fence >> 3) as u8));
            let fences = Fences::from_bytes(&bytes).expect("well formed");
            let found = fences.page(hash);
            prop_assert!(found.first + found.count <= pages);
            fences.touch(hash);
            bytes.push(0);
            prop_assert_eq!(Fences::from_bytes(&bytes), None);
        }
    }
}
