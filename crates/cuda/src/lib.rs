//! The hitmap of `larder-temperature` on a CUDA device (Catalyst, section 3.2).
//!
//! [`CudaHitmap`] implements `Hitmap` and `DeviceHitmap`, and its bits are those of the hitmap on the CPU after the
//! same calls. No GPU library is linked: the driver is looked up when a hitmap is opened, so that Larder builds and
//! runs on a machine without one.
//!
//! * `driver` finds the driver's functions, `context`, `stream`, `memory` and `module` wrap its handles;
//! * `kernels` starts the functions of `kernels/hitmap.cu`;
//! * `shape` is the arithmetic of a map's words, `page` holds the references of one batch;
//! * `hitmap` joins them.

mod context;
mod driver;
mod hitmap;
mod kernels;
mod memory;
mod module;
mod page;
mod shape;
mod stream;

pub use driver::CudaError;
pub use hitmap::{BatchTimes, CudaHitmap};
pub use memory::MemoryMode;
pub use shape::Layout;
