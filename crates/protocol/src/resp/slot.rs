//! Slots: which of 16,384 parts of all keys a key is in, as Redis Cluster defines it.

/// How many slots there are.
pub const SLOTS: u16 = 16384;

/// CRC-16/XMODEM: polynomial 0x1021, beginning with 0.
const TABLE: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 != 0 { crc << 1 ^ 0x1021 } else { crc << 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// The slot of a key. If the key has a `{` and a `}` behind it with something in between, only what is between the
/// first two counts, so that keys can be put into one slot: `{user1}.name` and `{user1}.age`.
#[inline]
pub fn slot_of(key: &[u8]) -> u16 {
    let hashed = match memchr::memchr(b'{', key) {
        None => key,
        Some(open) => match memchr::memchr(b'}', &key[open + 1..]) {
            None | Some(0) => key,
            Some(length) => &key[open + 1..open + 1 + length],
        },
    };
    hashed.iter().fold(0u16, |crc, byte| crc << 8 ^ TABLE[usize::from((crc >> 8) as u8 ^ byte)]) % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis_cluster() {
        for (key, slot) in [
            ("123456789", 0x31c3),
            ("", 0),
            ("foo", 12182),
            ("bar", 5061),
            ("{foo}bar", 12182),
            ("bar{foo}baz", 12182),
            ("{user1000}.following", slot_of(b"user1000")),
            ("foo{}{bar}", slot_of(b"foo{}{bar}")),
            ("foo{{bar}}zap", slot_of(b"{bar")),
            ("foo{bar}{zap}", 5061),
            ("foo{bar", slot_of(b"foo{bar")),
        ] {
            assert_eq!(slot_of(key.as_bytes()), slot, "{key}");
        }
    }
}
