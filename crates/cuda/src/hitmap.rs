//! The hitmap on a CUDA device.
//!
//! ```text
//!   the host                                   the device
//!   page 0 or 1 (pinned)  ---- copy ---->  references ---> zones ---> mark   stream "marks"
//!   lookup page (pinned)  ---- copy ---->  digests --+               |
//!                                                    |   +- ready ---+
//!                                                    v   v
//!   lookup page (pinned)  <--- copy -----           zones                   stream "lookups"
//! ```
//!
//! The host submits a batch and does not wait for it; the batch's page is free again when the device says so. A
//! lookup waits for the earlier batches by means of an event, and its answer arrives before the next batch is
//! submitted. No kernel therefore reads what another kernel writes at the same time.
//!
//! A submission is a batch with a lookup behind it on the stream "marks", which is not waited for either. Four are
//! under way at most, each with pages of its own; what does not fit is dropped and counted. Its answer comes with a
//! later one.

use std::sync::Arc;
use std::time::Duration;

use larder_temperature::{Answers, DeviceHitmap, Digest, Hitmap, LineHitmap, Reference};

use crate::context::Context;
use crate::driver::CudaError;
use crate::kernels::Kernels;
use crate::memory::{DeviceMemory, MemoryMode, PinnedMemory};
use crate::page::Page;
use crate::shape::{Aging, Layout, Shape};
use crate::stream::{Event, Stream};

mod flights;
mod measure;

use flights::{Flight, Flights};

pub use measure::BatchTimes;

/// Number of bytes of a map that are downloaded or uploaded at once.
const STAGE_BYTES: usize = 1 << 20;
/// How long the device may take for submitted work before it counts as lost. The longest work is a growth, which
/// takes seconds at most.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The largest factor by which a map grows in one step, and the most rows of one copy. Devices limit the distance
/// between two rows to 2 GiB.
const GROWTH_MAX: u64 = 1 << 16;
const ROWS_MAX: usize = 1 << 20;

/// A hitmap on a CUDA device. Its bits are those of a [`LineHitmap`] or a
/// [`PublishedHitmap`](larder_temperature::PublishedHitmap) after the same calls. A device ages a published map at
/// once, where the CPU does it piece by piece. Both give the same zones meanwhile, and the same bits when the CPU is
/// done.
///
/// After its first [`error`](DeviceHitmap::error) it marks nothing and reports every key as cold.
/// [`ResilientHitmap`](larder_temperature::ResilientHitmap) then continues on the CPU.
pub struct CudaHitmap {
    device: Device,
    timeout: Duration,
    error: Option<CudaError>,
    shape: Shape,
    /// Where an aging stands: at a line, or at a step of [`Shape::aging`].
    cursor: Option<u64>,
    map: DeviceMemory,
    pages: Pages,
    stage: PinnedMemory,
    staged: Event,
    marks: Stream,
    lookups: Stream,
    ready: Event,
    kernels: Kernels,
    context: Arc<Context>,
}

/// Which device it is, and which kind of its memory the map lies in.
struct Device {
    number: u32,
    name: String,
    mode: MemoryMode,
}

/// What references, digests and zones travel in.
struct Pages {
    /// Batches use these in turn: the host fills one while the device reads the other.
    batches: [Page; 2],
    next: usize,
    lookup: Page,
    flights: Flights,
}

impl Pages {
    fn next(&mut self) -> &mut Page {
        let page = &mut self.batches[self.next];
        self.next = 1 - self.next;
        page
    }
}

impl std::fmt::Debug for CudaHitmap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let CudaHitmap { shape, cursor, error, .. } = self;
        write!(f, "CudaHitmap({}, {shape:?}, cursor {cursor:?}, error {error:?})", self.processor())
    }
}

impl CudaHitmap {
    /// Opens device number `number`, counted from 0, and makes an empty map for `items` items on it.
    ///
    /// # Errors
    /// There is no driver or no such device, or the device refuses something, usually the memory.
    ///
    /// # Panics
    /// If an option of the layout is out of its range.
    pub fn open(number: u32, layout: Layout, items: u64, mode: MemoryMode) -> Result<CudaHitmap, CudaError> {
        let shape = Shape::new(layout, items);
        let context = Context::of(number)?;
        let page = || Page::new(&context);
        let hitmap = CudaHitmap {
            device: Device { number, name: context.name()?, mode },
            timeout: TIMEOUT,
            error: None,
            shape,
            cursor: None,
            map: DeviceMemory::new(&context, shape.bytes(), mode)?,
            pages: Pages {
                batches: [page()?, page()?],
                next: 0,
                lookup: page()?,
                flights: Flights::new(&context)?,
            },
            stage: PinnedMemory::new(&context, STAGE_BYTES)?,
            staged: Event::new(&context, false)?,
            marks: Stream::new(&context)?,
            lookups: Stream::new(&context)?,
            ready: Event::new(&context, false)?,
            kernels: Kernels::load(&context, shape)?,
            context,
        };
        hitmap.marks.clear(&hitmap.map, 0, shape.bytes())?;
        hitmap.marks.record(&hitmap.staged)?;
        hitmap.staged.wait(hitmap.timeout)?;
        Ok(hitmap)
    }

    /// Sets how long the device may take for submitted work before it counts as lost. The default is 10 s.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// The line at which an aging of [`Layout::Line`] stands.
    pub fn cursor(&self) -> Option<u64> {
        self.cursor
    }

    /// All words of the map after the work submitted so far: those of a [`LineHitmap`], or those of each level of a
    /// [`PublishedHitmap`](larder_temperature::PublishedHitmap), from the first, followed by its set counter.
    ///
    /// # Errors
    /// The driver refuses the copy, or an earlier failure prevents it.
    pub fn download(&mut self) -> Result<Vec<u64>, CudaError> {
        self.context.enter()?;
        let mut words = Vec::with_capacity(self.shape.words());
        for begin in (0..self.shape.bytes()).step_by(STAGE_BYTES) {
            let bytes = STAGE_BYTES.min(self.shape.bytes() - begin);
            self.marks.copy_out(&mut self.stage, &self.map, begin, bytes)?;
            self.marks.record(&self.staged)?;
            self.staged.wait(self.timeout)?;
            words.extend(
                self.stage.slice()[..bytes].as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)),
            );
        }
        Ok(words)
    }

    /// Replaces all words of the map. An aging in progress is forgotten.
    ///
    /// # Errors
    /// [`CudaError::Size`], or the driver refuses the copy; the map is then partly replaced.
    pub fn upload(&mut self, words: &[u64]) -> Result<(), CudaError> {
        if words.len() != self.shape.words() {
            return Err(CudaError::Size);
        }
        self.try_to(|map| {
            map.cursor = None;
            for (chunk, words) in words.chunks(STAGE_BYTES / size_of::<u64>()).enumerate() {
                for (slot, word) in map.stage.slice_mut().as_chunks_mut().0.iter_mut().zip(words) {
                    *slot = word.to_ne_bytes();
                }
                map.marks.copy_in(&map.map, chunk * STAGE_BYTES, &map.stage, size_of_val(words))?;
                map.marks.record(&map.staged)?;
                map.staged.wait(map.timeout)?;
            }
            Ok(())
        })
    }

    /// Does `work` unless there was an error, and keeps the error if there is one now. After an error it is unknown
    /// which submitted work is done.
    fn try_to<T>(
        &mut self,
        work: impl FnOnce(&mut CudaHitmap) -> Result<T, CudaError>,
    ) -> Result<T, CudaError> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        let done = self.context.enter().and_then(|()| work(self));
        self.error = done.as_ref().err().cloned();
        done
    }

    /// Submits a batch. The `events` are recorded before the copy, after it, and at the end.
    fn submit(&mut self, references: &[Reference], events: Option<&[Event; 3]>) -> Result<(), CudaError> {
        let record = |at: usize| events.map_or(Ok(()), |events| self.marks.record(&events[at]));
        let page = self.pages.next();
        let count =
            page.fill(&self.context, self.timeout, references.iter().map(|reference| reference.bits()))?;
        record(0)?;
        if count > 0 {
            self.marks.copy_in(&page.references, 0, &page.host, references.len() * size_of::<u32>())?;
        }
        record(1)?;
        if count > 0 {
            self.kernels.zones(&self.marks, (self.shape, &self.map), page, count)?;
            self.kernels.mark(&self.marks, (self.shape, &self.map), page, count)?;
        }
        record(2)?;
        self.marks.record(&page.done)
    }

    /// Takes what has been answered, and submits a batch with a lookup behind it.
    fn fly(
        &mut self,
        references: &[Reference],
        digests: &[Digest],
        answers: &mut Answers,
    ) -> Result<(), CudaError> {
        let flights = &mut self.pages.flights;
        flights.land(answers)?;
        let flight = flights.begin(digests.len(), self.timeout).inspect_err(|_| self.context.abandon())?;
        let Some(Flight { references: marked, digests: asked, .. }) = flight else { return Ok(()) };
        let map = (self.shape, &self.map);
        // Neither page is waited for: what was in them has been answered.
        let words = references.iter().map(|reference| reference.bits());
        let count = marked.fill(&self.context, self.timeout, words)?;
        if count > 0 {
            self.marks.copy_in(&marked.references, 0, &marked.host, size_of_val(references))?;
            self.kernels.zones(&self.marks, map, marked, count)?;
            self.kernels.mark(&self.marks, map, marked, count)?;
        }
        self.marks.record(&marked.done)?;
        let words = digests.iter().map(|digest| digest.bits());
        let count = asked.fill(&self.context, self.timeout, words)?;
        if count > 0 {
            self.marks.copy_in(&asked.references, 0, &asked.host, size_of_val(digests))?;
            self.kernels.zones(&self.marks, map, asked, count)?;
            self.marks.copy_out(&mut asked.host, &asked.zones, 0, digests.len())?;
        }
        self.marks.record(&asked.done)
    }

    fn look_up(&mut self, digests: &[Digest], zones: &mut Vec<u8>) -> Result<(), CudaError> {
        if digests.is_empty() {
            return Ok(());
        }
        let page = &mut self.pages.lookup;
        let words = digests.iter().map(|digest| digest.bits());
        let count = page.fill(&self.context, self.timeout, words)?;
        self.lookups.copy_in(&page.references, 0, &page.host, digests.len() * size_of::<u32>())?;
        self.marks.record(&self.ready)?;
        self.lookups.after(&self.ready)?;
        self.kernels.zones(&self.lookups, (self.shape, &self.map), page, count)?;
        // The result overwrites the digests, which the device has read by then.
        self.lookups.copy_out(&mut page.host, &page.zones, 0, digests.len())?;
        self.lookups.record(&page.done)?;
        page.done.wait(self.timeout)?;
        zones.extend_from_slice(&page.host.slice()[..digests.len()]);
        Ok(())
    }

    /// Does the remaining steps of an aging of the published layout. The cursor is the next step.
    fn age_levels(&mut self) -> Result<(), CudaError> {
        let begin = self.cursor.unwrap_or(0);
        for (step, number) in self.shape.aging().zip(0..).skip(begin as usize) {
            match step {
                Aging::Fold { level, also } => {
                    self.kernels.fold_level(&self.marks, (self.shape, &self.map), level, also)?;
                }
                Aging::Copy { level, from } => {
                    let (begin, end) = self.shape.counter(from);
                    let to = (&self.map, self.shape.counter(level).0);
                    self.marks.copy_within(to, (&self.map, begin), end - begin)?;
                }
                Aging::Clear { level } => {
                    let (begin, end) = self.shape.counter(level);
                    self.marks.clear(&self.map, begin, end - begin)?;
                }
            }
            self.cursor = Some(number + 1);
        }
        self.cursor = None;
        Ok(())
    }

    /// Folds `bytes` bytes of lines, beginning at the cursor.
    fn age_lines(&mut self, bytes: usize) -> Result<bool, CudaError> {
        let (Shape::Line { lines }, Some(cursor)) = (self.shape, self.cursor) else { return Ok(false) };
        let count = ((bytes / LineHitmap::LINE_BYTES) as u64).min(lines - cursor);
        if count > 0 {
            self.kernels.fold_lines(&self.marks, (self.shape, &self.map), cursor, count)?;
        }
        self.cursor = (cursor + count < lines).then_some(cursor + count);
        Ok(self.cursor.is_some())
    }

    /// Grows the map by the factor `times`, a power of two. The old map exists until the new one is complete.
    fn multiply(&mut self, times: u64) -> Result<(), CudaError> {
        let shape = self.shape.multiplied(times);
        let map = DeviceMemory::new(&self.context, shape.bytes(), self.device.mode)?;
        // What has to be copied `times` times is copied once, and then the copies made so far are doubled.
        let doublings = || (0..times.ilog2()).map(|doubling| 1usize << doubling);
        match shape {
            Shape::Line { lines } => {
                let pitch = LineHitmap::LINE_BYTES * times as usize;
                let rows = (lines / times) as usize;
                for first in (0..rows).step_by(ROWS_MAX) {
                    let rows = ROWS_MAX.min(rows - first);
                    let (to, from) = (first * pitch, first * LineHitmap::LINE_BYTES);
                    self.marks.copy_rows(
                        (&map, to, pitch),
                        (&self.map, from, LineHitmap::LINE_BYTES),
                        LineHitmap::LINE_BYTES,
                        rows,
                    )?;
                    for copies in doublings() {
                        let width = copies * LineHitmap::LINE_BYTES;
                        self.marks.copy_rows((&map, to + width, pitch), (&map, to, pitch), width, rows)?;
                    }
                }
            }
            Shape::Published { options, .. } => {
                for level in 1..=options.levels + u8::from(options.set_counter) {
                    let (begin, end) = self.shape.counter(level);
                    let to = shape.counter(level).0;
                    self.marks.copy_within((&map, to), (&self.map, begin), end - begin)?;
                    for copies in doublings() {
                        let bytes = copies * (end - begin);
                        self.marks.copy_within((&map, to + bytes), (&map, to), bytes)?;
                    }
                }
            }
        }
        self.marks.record(&self.staged)?;
        self.staged.wait(self.timeout)?;
        self.map = map;
        self.shape = shape;
        if let Shape::Line { .. } = shape {
            self.cursor = self.cursor.map(|line| line * times);
        }
        Ok(())
    }
}

impl Hitmap for CudaHitmap {
    /// Does not wait for the device, unless the device has not finished the two batches before this one.
    fn mark(&mut self, references: &[Reference]) {
        let _ = self.try_to(|map| map.submit(references, None));
    }

    /// Waits for the device.
    fn zones(&mut self, digests: &[Digest], zones: &mut Vec<u8>) {
        let end = zones.len() + digests.len();
        let _ = self.try_to(|map| map.look_up(digests, zones));
        zones.resize(end, 0);
    }

    /// Does not wait for the device. After an error what is under way is never answered.
    fn submit(&mut self, references: &[Reference], digests: &[Digest], answers: &mut Answers) {
        let _ = self.try_to(|map| map.fly(references, digests, answers));
    }

    fn is_apart(&self) -> bool {
        true
    }

    fn late(&self) -> u64 {
        self.pages.flights.late()
    }

    /// Ages piece by piece with [`Layout::Line`], and all at once otherwise. Does not wait for the device.
    fn age(&mut self) {
        self.cursor.get_or_insert(0);
        if let Shape::Published { .. } = self.shape {
            let _ = self.try_to(CudaHitmap::age_levels);
        }
    }

    fn age_some(&mut self, bytes: usize) -> bool {
        self.try_to(|map| map.age_lines(bytes)).unwrap_or(false)
    }

    /// Waits for the device. The old and the new map exist at the same time for a moment.
    fn grow(&mut self, items: u64) {
        let _ = self.try_to(|map| {
            let wanted = map.shape.grown(items);
            while map.shape != wanted {
                map.multiply(wanted.times(map.shape).min(GROWTH_MAX))?;
            }
            Ok(())
        });
    }

    /// Bytes of the device's memory. The pages are not included: for each reference of the largest batch, they take
    /// up to 30 bytes of the device's memory and 24 bytes of pinned host memory.
    fn bytes_for(&self, items: u64) -> u64 {
        self.shape.grown(items).bytes() as u64
    }

    /// Managed memory counts: the driver may keep all of it in main memory.
    fn main_memory_bytes_for(&self, items: u64) -> u64 {
        match self.device.mode {
            MemoryMode::Explicit => 0,
            MemoryMode::Managed => self.bytes_for(items),
        }
    }

    fn levels(&self) -> u8 {
        self.shape.levels()
    }

    fn processor(&self) -> String {
        let Device { number, name, mode } = &self.device;
        let memory = if *mode == MemoryMode::Managed { ", managed memory" } else { "" };
        format!("CUDA device {number} ({name}{memory})")
    }
}

impl DeviceHitmap for CudaHitmap {
    type Error = CudaError;

    const KIND: &'static str = "CUDA device";

    fn error(&self) -> Option<&CudaError> {
        self.error.as_ref()
    }

    fn rescue(&mut self) -> Result<Box<dyn Hitmap>, CudaError> {
        let words = self.download()?;
        Ok(self.shape.on_cpu(words, self.cursor))
    }

    fn empty_on_cpu(&self) -> Box<dyn Hitmap> {
        self.shape.on_cpu(vec![0; self.shape.words()], None)
    }
}

impl Drop for CudaHitmap {
    /// Frees nothing while the device may be using it. If the device does not answer, nothing is freed at all.
    fn drop(&mut self) {
        if self.context.enter().is_ok() {
            for stream in [&self.marks, &self.lookups] {
                if stream.record(&self.staged).is_ok() {
                    let _ = self.staged.wait(self.timeout);
                }
            }
        }
    }
}

const _: () = assert!(
    LineHitmap::LINE_WORDS * size_of::<u64>() == LineHitmap::LINE_BYTES
        && STAGE_BYTES.is_multiple_of(LineHitmap::LINE_BYTES)
);
