//! Every limit of RESP, with its reason.

/// Longest argument that may be announced, in bytes: Redis's default of `proto-max-bulk-len`, 512 MiB.
pub const BULK_BYTES_MAX: i64 = 512 << 20;

/// Longest line of words, in bytes. The limit is Redis's (`PROTO_INLINE_MAX_SIZE`).
pub const INLINE_BYTES_MAX: usize = 64 << 10;

/// Longest line that announces a number of arguments or a length, in bytes. The limit is Redis's.
pub const HEADER_BYTES_MAX: usize = 64 << 10;

/// Most arguments of a client that has not logged in. The limit is Redis's.
pub const UNAUTHENTICATED_ARGS_MAX: i64 = 10;

/// Longest argument of a client that has not logged in, in bytes. The limit is Redis's.
pub const UNAUTHENTICATED_BULK_BYTES_MAX: usize = 16384;

/// Longest key, in bytes. Redis has no limit but that of an argument. Here a key takes room in an item, and keys of
/// more than 250 bytes are hashed, so there has to be one.
pub const KEY_BYTES_MAX: usize = 64 << 10;

/// Longest key that an item can have as it is, in bytes: memcached's limit. The shortest has one byte.
pub const PLAIN_KEY_BYTES_MAX: usize = 250;

/// Longest part of an unknown command, or of its arguments, that an error repeats, in bytes. The limit is Redis's.
pub const REPEATED_BYTES_MAX: usize = 128;
