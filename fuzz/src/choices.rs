//! Turns an input into decisions: first its bytes, then a fixed sequence of numbers.

/// The rest of an input, read as decisions.
pub(crate) struct Choices<'a> {
    input: &'a [u8],
    state: u64,
}

impl<'a> Choices<'a> {
    pub(crate) fn new(input: &'a [u8]) -> Choices<'a> {
        let state =
            input.iter().fold(7, |state: u64, &byte| (state ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
        Choices { input, state }
    }

    /// Whether all bytes of the input are used.
    pub(crate) fn is_empty(&self) -> bool {
        self.input.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        match self.input.split_first() {
            Some((&byte, rest)) => {
                self.input = rest;
                byte
            }
            None => {
                self.state = self
                    .state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                (self.state >> 40) as u8
            }
        }
    }

    /// A number below `limit`, which is at most 2^24.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        let mut number = self.byte() as usize;
        let mut range = 256;
        while range < limit {
            number = number << 8 | self.byte() as usize;
            range <<= 8;
        }
        number % limit
    }

    /// True once in `times`.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == times - 1
    }

    pub(crate) fn of<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}
