//! Mutations that keep inputs almost valid.

/// A sequence of random numbers (SplitMix64) that starts from a seed.
pub struct Rng(pub u64);

impl Rng {
    /// The next random number.
    pub fn random(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A random number below `limit`, which must not be 0.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.random() % limit as u64) as usize
    }
}

/// Words that a parser knows.
pub const WORDS: [&str; 68] = [
    "get ",
    "gets ",
    "gat 0 ",
    "gats -1 ",
    "set a 0 0 1\r\nx\r\n",
    "set ",
    "add ",
    "replace ",
    "append ",
    "prepend ",
    "cas ",
    "touch ",
    "delete ",
    "incr ",
    "decr ",
    "mg ",
    "ms ",
    "md ",
    "ma ",
    "me ",
    "mn\r\n",
    "flush_all\r\n",
    "flush_prefix ",
    "mf ",
    "verbosity 1\r\n",
    "stats\r\n",
    "stats ",
    "slabs ",
    "lru ",
    "worth mode ",
    "worth objective ",
    "lru_crawler ",
    "extstore ",
    "watch ",
    "quit\r\n",
    "version\r\n",
    "cache_memlimit ",
    "debugtime ",
    " noreply",
    "\r\n",
    "\n",
    "\r",
    " ",
    "  ",
    "0",
    "1",
    "-1",
    "250",
    "2147483645",
    "4294967296",
    "18446744073709551615",
    "18446744073709551616",
    " v",
    " q",
    " k",
    " b",
    " T30",
    " Oabc",
    " N30",
    " R30",
    " I",
    " x",
    " C1",
    " E5",
    " MA",
    " MD",
    "a",
    "ms a 16400\r\n",
];

/// Changes `input` at a few positions, sometimes with a piece of `other`.
pub fn mutate(input: &mut Vec<u8>, other: &[u8], rng: &mut Rng) {
    for _ in 0..1 + rng.below(6) {
        let at = rng.below(input.len() + 1);
        let end = (at + rng.below(20)).min(input.len());
        match rng.below(9) {
            0 if at < input.len() => input[at] = rng.random() as u8,
            1 if at < input.len() => input[at] ^= 1 << rng.below(8),
            2 => drop(input.drain(at..end)),
            3 => {
                let copy = input[at..end].to_vec();
                input.splice(at..at, copy);
            }
            4 | 5 => drop(input.splice(at..at, WORDS[rng.below(WORDS.len())].bytes())),
            6 => drop(input.splice(at..end, WORDS[rng.below(WORDS.len())].bytes())),
            7 if !other.is_empty() => {
                let from = rng.below(other.len());
                let until = (from + rng.below(200)).min(other.len());
                input.splice(at..at, other[from..until].iter().copied());
            }
            8 if rng.below(20) == 0 => drop(input.splice(at..at, vec![b'v'; rng.below(20_000)])),
            _ => {}
        }
    }
    input.truncate(crate::target::INPUT_BYTES_MAX);
}
