//! Values that contain their key, their version and a checksum.

/// Key, version and checksum of a value, 8 bytes each.
pub(crate) const FRAME_BYTES: usize = 24;

/// Pseudo-random numbers: splitmix64.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

fn sum_of(bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(0x1234_5678_9abc_def0, |sum: u64, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        (sum ^ u64::from_le_bytes(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23)
    })
}

/// A value of `bytes` bytes (at least the frame) that describes itself.
pub(crate) fn value_of(key: usize, version: u64, bytes: usize, out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(&(key as u64).to_le_bytes());
    out.extend_from_slice(&version.to_le_bytes());
    let mut numbers = Numbers(version ^ (key as u64) << 40);
    while out.len() + 16 <= bytes {
        out.extend_from_slice(&numbers.next().to_le_bytes());
    }
    let sum = sum_of(out);
    out.extend_from_slice(&sum.to_le_bytes());
}

/// The version that a value contains, after the value was checked.
pub(crate) fn version_of(key: usize, value: &[u8]) -> u64 {
    assert!(value.len() >= FRAME_BYTES, "key {key}: a value of {} bytes", value.len());
    let word = |at: usize| u64::from_le_bytes(value[at..at + 8].try_into().expect("eight bytes"));
    assert_eq!(word(0), key as u64, "key {key} got another key's value");
    let (body, sum) = value.split_at(value.len() - 8);
    assert_eq!(
        sum,
        sum_of(body).to_le_bytes(),
        "key {key}: version {} is torn, {} bytes",
        word(8),
        value.len()
    );
    word(8)
}
