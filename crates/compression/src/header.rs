//! The header of a frame (RFC 8878, section 3.1.1.1), which is left out of what is stored.

/// The longest header that is written here: magic number, descriptor, number of the dictionary, length of the value.
pub(crate) const HEADER_BYTES_MAX: usize = 4 + 1 + 4 + 8;

const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// The window is the whole value.
const SINGLE_SEGMENT: u8 = 1 << 5;

/// The header of the frame of a value of `plain_bytes` bytes, compressed with dictionary `number`; 0 = with none. Bytes
/// and their number.
pub(crate) fn header(plain_bytes: usize, number: u32) -> ([u8; HEADER_BYTES_MAX], usize) {
    let (mut out, mut at) = ([0; HEADER_BYTES_MAX], 0);
    let mut push = |bytes: &[u8]| {
        out[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
    };
    let (number_flag, number_bytes) = match number {
        0 => (0, 0),
        1..=0xff => (1, 1),
        0x100..=0xffff => (2, 2),
        _ => (3, 4),
    };
    let (length_flag, length, length_bytes) = match plain_bytes as u64 {
        length @ 0..0x100 => (0, length, 1),
        length @ 0x100..0x1_0100 => (1, length - 0x100, 2),
        length @ 0x1_0100..=0xffff_ffff => (2, length, 4),
        length => (3, length, 8),
    };
    push(&MAGIC);
    push(&[length_flag << 6 | SINGLE_SEGMENT | number_flag]);
    push(&number.to_le_bytes()[..number_bytes]);
    push(&length.to_le_bytes()[..length_bytes]);
    (out, at)
}
