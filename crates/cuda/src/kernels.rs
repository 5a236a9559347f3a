//! The kernels of `kernels/hitmap.cu` and their arguments.

use std::ffi::CStr;
use std::sync::Arc;

use crate::context::Context;
use crate::driver::CudaError;
use crate::memory::DeviceMemory;
use crate::module::{Argument, Kernel, Module};
use crate::page::Page;
use crate::shape::Shape;
use crate::stream::Stream;

/// The kernels as PTX, which every driver compiles for its devices. `kernels/regenerate.sh` makes the text.
const PTX: &str = concat!(include_str!("../kernels/hitmap.ptx"), "\0");

/// The kernels of a layout, and the module that contains them.
pub(crate) struct Kernels {
    zones: Kernel,
    mark: Kernel,
    fold: Kernel,
    _module: Module,
}

impl Kernels {
    pub(crate) fn load(context: &Arc<Context>, shape: Shape) -> Result<Kernels, CudaError> {
        let ptx = CStr::from_bytes_with_nul(PTX.as_bytes()).expect("the text has one zero, at its end");
        let module = Module::load(context, ptx)?;
        let [zones, mark, fold] = match shape {
            Shape::Line { .. } => [c"line_zones", c"line_mark", c"line_fold"],
            Shape::Published { .. } => [c"published_zones", c"published_mark", c"published_fold"],
        };
        Ok(Kernels {
            zones: module.kernel(zones)?,
            mark: module.kernel(mark)?,
            fold: module.kernel(fold)?,
            _module: module,
        })
    }

    /// Writes the zones of the first `count` references of a page, which is more than 0. `Page::fill` has made room
    /// for them.
    pub(crate) fn zones(
        &self,
        stream: &Stream,
        (shape, map): (Shape, &DeviceMemory),
        page: &Page,
        count: u32,
    ) -> Result<(), CudaError> {
        let threads = u64::from(count);
        let (map, count) = (Argument::Wide(map.at(0)), Argument::Narrow(count));
        let (references, zones) = (Argument::Wide(page.references.at(0)), Argument::Wide(page.zones.at(0)));
        match shape {
            Shape::Line { lines } => {
                let arguments = [map, Argument::Wide(lines), references, count, zones];
                // SAFETY: line_zones(map, lines, references, count, zones). The map has this shape, the page has
                // room for `count` references, and both exist until the page is done.
                unsafe { stream.launch(&self.zones, threads, &arguments) }
            }
            Shape::Published { options, first_bits } => {
                let levels = Argument::Narrow(options.levels.into());
                let hashes = Argument::Narrow(options.hash_bits.into());
                let arguments = [map, Argument::Wide(first_bits), levels, hashes, references, count, zones];
                // SAFETY: published_zones(map, bits, levels, hashes, references, count, zones). The rest as above.
                unsafe { stream.launch(&self.zones, threads, &arguments) }
            }
        }
    }

    /// Marks the first `count` references of a page, which is more than 0. Their zones have been written.
    pub(crate) fn mark(
        &self,
        stream: &Stream,
        (shape, map): (Shape, &DeviceMemory),
        page: &Page,
        count: u32,
    ) -> Result<(), CudaError> {
        let threads = u64::from(count);
        let (map, count) = (Argument::Wide(map.at(0)), Argument::Narrow(count));
        let (references, zones) = (Argument::Wide(page.references.at(0)), Argument::Wide(page.zones.at(0)));
        match shape {
            Shape::Line { lines } => {
                let arguments = [map, Argument::Wide(lines), references, zones, count];
                // SAFETY: line_mark(map, lines, references, zones, count). The map has this shape, the page has
                // room for `count` references, and both exist until the page is done.
                unsafe { stream.launch(&self.mark, threads, &arguments) }
            }
            Shape::Published { options, first_bits } => {
                let levels = Argument::Narrow(options.levels.into());
                let hashes = Argument::Narrow(options.hash_bits.into());
                let set = Argument::Narrow(options.set_counter.into());
                let bits = Argument::Wide(first_bits);
                let arguments = [map, bits, levels, hashes, set, references, zones, count];
                // SAFETY: published_mark(map, bits, levels, hashes, set_counter, references, zones, count). The rest as
                // above.
                unsafe { stream.launch(&self.mark, threads, &arguments) }
            }
        }
    }

    /// Ages `count` lines, which is more than 0, from line `first` on. The kernels must be those of
    /// [`Shape::Line`].
    pub(crate) fn fold_lines(
        &self,
        stream: &Stream,
        (shape, map): (Shape, &DeviceMemory),
        first: u64,
        count: u64,
    ) -> Result<(), CudaError> {
        assert!(matches!(shape, Shape::Line { lines } if first + count <= lines));
        let arguments = [Argument::Wide(map.at(0)), Argument::Wide(first), Argument::Wide(count)];
        // SAFETY: line_fold(map, first, count). By the assertion, no line is past the last one. The map exists
        // until the stream is done.
        unsafe { stream.launch(&self.fold, count, &arguments) }
    }

    /// Makes a level the fold of the level above it, combined with the counter `also` of the same size. The kernels
    /// must be those of [`Shape::Published`].
    pub(crate) fn fold_level(
        &self,
        stream: &Stream,
        (shape, map): (Shape, &DeviceMemory),
        level: u8,
        also: Option<u8>,
    ) -> Result<(), CudaError> {
        let bytes = |level| {
            let (begin, end) = shape.counter(level);
            end - begin
        };
        assert!(matches!(shape, Shape::Published { .. }) && bytes(level + 1) == 2 * bytes(level));
        assert!(also.is_none_or(|also| bytes(also) == bytes(level)));
        let words = (bytes(level) / size_of::<u64>()) as u64;
        let address = |level| map.at(shape.counter(level).0);
        let arguments = [
            Argument::Wide(address(level)),
            Argument::Wide(address(level + 1)),
            Argument::Wide(also.map_or(0, address)),
            Argument::Wide(words),
        ];
        // SAFETY: published_fold(below, above, also, words). By the assertions, the level above has twice as many
        // words and `also` has as many. The map exists until the stream is done.
        unsafe { stream.launch(&self.fold, words, &arguments) }
    }
}
