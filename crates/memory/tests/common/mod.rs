//! What several tests of the memory need.

use larder_memory::Memory;

/// Gives the slab with the most free columns back to the kernel, if all of its columns are free.
pub(crate) fn release_free_slab(memory: &Memory) -> bool {
    let Some(slab) = memory.begin_release_slab() else { return false };
    let released = memory.finish_release(slab);
    if !released {
        memory.cancel_release(slab);
    }
    released
}
