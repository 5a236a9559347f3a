//! Every limit of the wire, with its reason beside it.

/// Longest key, in bytes of the token as sent. memcached's own; a base64 key must fit both encoded and decoded.
pub const KEY_BYTES_MAX: usize = 250;

/// Longest value a storage line may announce: 2^31 - 3 bytes, so that `<bytes> + 2` fits a signed 32-bit length.
pub const VALUE_BYTES_MAX: u32 = i32::MAX as u32 - 2;

/// Bytes that may be buffered without a line end before the connection is closed. Lines of `get`, `gets`,
/// `gat` and `gats` are exempt.
pub const LINE_BYTES_MAX: usize = 2048;

/// The longest line that is read when its end has come with it: memcached's read buffer. Lines of `gat` and `gats` may
/// have this length however they come.
pub const WHOLE_LINE_BYTES_MAX: usize = 16384;

/// Default of [`crate::ParseOptions::line_bytes_max`]: a `get` line of four thousand of the longest keys.
pub const GET_LINE_BYTES_MAX: usize = 1 << 20;

/// Leading spaces tolerated before `get ` or `gets ` when deciding whether a line is exempt.
pub const LEADING_SPACES_MAX: usize = 100;

/// A line shorter than this, its terminator included, cannot be a command.
pub const LINE_BYTES_MIN: usize = 4;

/// Most tokens of a meta line: command, key, data length and flags together.
pub const META_TOKENS_MAX: usize = 20;

/// Longest opaque token of a meta line, the letter `O` included.
pub const OPAQUE_BYTES_MAX: usize = 32;

/// Slab class numbers run from 1 to one less than this, in `stats cachedump` and `lru_crawler`.
pub const CLASSES_MAX: u32 = 64;
