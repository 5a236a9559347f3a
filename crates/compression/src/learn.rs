//! What many values have in common, with a bound on the memory that it takes to learn it.

use std::ffi::c_void;
use zstd_sys::{
    ZDICT_fastCover_params_t, ZDICT_isError, ZDICT_optimizeTrainFromBuffer_fastCover, ZDICT_params_t,
};

/// Segments of 8 bytes are counted in this number of counters. zstd itself takes 2^20 and 10 MiB; with 2^16 it takes
/// 2 MiB, and its dictionaries compress as well.
const COUNTERS_LOG2: u32 = 16;
const SEGMENT_BYTES: u32 = 8;
/// Lengths of what is taken at once that are tried.
const LENGTHS_TRIED: u32 = 4;

/// The dictionary of `bytes_max` bytes at most that values have, which stand one behind the other and have these
/// lengths (zstd's fast cover). `None` = they are too few, or have nothing in common. Takes 2 MiB of memory while it
/// runs.
pub(crate) fn learn(values: &[u8], lengths: &[usize], level: i32, bytes_max: usize) -> Option<Vec<u8>> {
    if lengths.iter().try_fold(0usize, |sum, length| sum.checked_add(*length)) != Some(values.len()) {
        return None;
    }
    let mut parameters = ZDICT_fastCover_params_t {
        k: 0,
        d: SEGMENT_BYTES,
        f: COUNTERS_LOG2,
        steps: LENGTHS_TRIED,
        nbThreads: 1,
        splitPoint: 0.0,
        accel: 1,
        shrinkDict: 0,
        shrinkDictMaxRegression: 0,
        zParams: ZDICT_params_t { compressionLevel: level, notificationLevel: 0, dictID: 0 },
    };
    let mut dictionary = vec![0u8; bytes_max];
    let samples = u32::try_from(lengths.len()).ok()?;
    // SAFETY: `dictionary` has room for `bytes_max` bytes; `lengths` has `samples` lengths, whose sum is `values.len()`
    // as was checked above, so no byte beyond `values` is read; `parameters` lives until the call returns, and nothing
    // is kept of any of them. `ZDICT_isError` takes any number.
    let (written, is_error) = unsafe {
        let written = ZDICT_optimizeTrainFromBuffer_fastCover(
            dictionary.as_mut_ptr().cast::<c_void>(),
            bytes_max,
            values.as_ptr().cast::<c_void>(),
            lengths.as_ptr(),
            samples,
            &raw mut parameters,
        );
        (written, ZDICT_isError(written) != 0)
    };
    if is_error {
        return None;
    }
    dictionary.truncate(written);
    Some(dictionary)
}
