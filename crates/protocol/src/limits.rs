//! Every limit of the protocol, with its reason.

/// Longest key, in bytes of the token as sent. The limit is memcached's. A base64 key must respect it both encoded
/// and decoded.
pub const KEY_BYTES_MAX: usize = 250;

/// Longest value a storage line may announce: 2^31 - 3 bytes, so that `<bytes> + 2` fits a signed 32-bit length.
pub const VALUE_BYTES_MAX: u32 = i32::MAX as u32 - 2;

/// Bytes that may be buffered without a line end before the connection is closed. The limit does not apply to lines
/// of `get`, `gets`, `gat` and `gats`.
pub const LINE_BYTES_MAX: usize = 2048;

/// The longest line that is accepted if its end arrives with it: the size of memcached's read buffer. Lines of
/// `gat` and `gats` may have this length however they arrive.
pub const WHOLE_LINE_BYTES_MAX: usize = 16384;

/// Default of [`crate::ParseOptions::line_bytes_max`]: a `get` line with four thousand keys of the longest kind.
pub const GET_LINE_BYTES_MAX: usize = 1 << 20;

/// Leading spaces that are tolerated before `get ` or `gets ` when [`LINE_BYTES_MAX`] is not applied to a line.
pub const LEADING_SPACES_MAX: usize = 100;

/// A line shorter than this, its end included, cannot be a command.
pub const LINE_BYTES_MIN: usize = 4;

/// Most tokens of a meta line: command, key, data length and flags together.
pub const META_TOKENS_MAX: usize = 20;

/// Longest opaque token of a meta line, the letter `O` included.
pub const OPAQUE_BYTES_MAX: usize = 32;

/// Slab class numbers in `stats cachedump` and `lru_crawler` run from 1 to one less than this.
pub const CLASSES_MAX: u32 = 64;

/// Longest name of a SASL mechanism, in bytes. The limit is memcached's.
pub const SASL_MECHANISM_BYTES_MAX: usize = 32;

/// Longest message to a SASL mechanism, in bytes: as long as the user and the password of a login over the text
/// protocol may be.
pub const SASL_DATA_BYTES_MAX: usize = 16 << 10;
