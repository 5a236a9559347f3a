//! Changes to inputs that keep them nearly right.

/// Numbers that a seed begins.
pub struct Numbers(pub u64);

impl Numbers {
    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`, which is not 0.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.draw() % limit as u64) as usize
    }
}

/// Words that mean something to a parser.
pub const WORDS: [&str; 64] = [
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
    "verbosity 1\r\n",
    "stats\r\n",
    "stats ",
    "slabs ",
    "lru ",
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

/// Changes `input` in a few places; `other` lends a piece now and then.
pub fn mutate(input: &mut Vec<u8>, other: &[u8], numbers: &mut Numbers) {
    for _ in 0..1 + numbers.below(6) {
        let at = numbers.below(input.len() + 1);
        let end = (at + numbers.below(20)).min(input.len());
        match numbers.below(9) {
            0 if at < input.len() => input[at] = numbers.draw() as u8,
            1 if at < input.len() => input[at] ^= 1 << numbers.below(8),
            2 => drop(input.drain(at..end)),
            3 => {
                let copy = input[at..end].to_vec();
                input.splice(at..at, copy);
            }
            4 | 5 => drop(input.splice(at..at, WORDS[numbers.below(WORDS.len())].bytes())),
            6 => drop(input.splice(at..end, WORDS[numbers.below(WORDS.len())].bytes())),
            7 if !other.is_empty() => {
                let from = numbers.below(other.len());
                let until = (from + numbers.below(200)).min(other.len());
                input.splice(at..at, other[from..until].iter().copied());
            }
            8 if numbers.below(20) == 0 => drop(input.splice(at..at, vec![b'v'; numbers.below(20_000)])),
            _ => {}
        }
    }
    input.truncate(crate::target::INPUT_BYTES_MAX);
}
