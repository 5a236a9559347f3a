//! Patterns of keys, as `KEYS` and `SCAN MATCH` take them.
//!
//! `*` is any bytes, `?` is one byte, `[abc]` one of these, `[^abc]` none of these, `[a-z]` one of a range, and a
//! backslash takes the next byte as it is. A bracket that is not closed ends with the pattern.
//!
//! [`matches`] says what matches. It is good enough for names. [`Pattern`] says the same, and is for keys: they are up
//! to 64 KiB long, and a pattern such as `*aaaaaaab` may then take [`matches`] as many steps as the product of the two
//! lengths.

/// The longest pattern for keys, in bytes. Every 64 of them cost a step for each byte of a key.
pub(in crate::dispatch) const PATTERN_BYTES_MAX: usize = 1024;
/// Words of the longest pattern.
const WORDS_MAX: usize = PATTERN_BYTES_MAX / u64::BITS as usize + 1;
const BYTES: usize = 256;

/// A pattern, read once to be compared with many keys.
///
/// A pattern is a row of elements, each of which takes one byte, with stars between them. Bit `i` of the state says
/// that the bytes so far may be what the first `i` elements take. A byte moves on each bit whose element takes it; a
/// bit behind a star also stays. (Shift-And; Baeza-Yates and Gonnet, "A new approach to text searching", CACM 1992.)
pub(in crate::dispatch) struct Pattern {
    /// Words of a state.
    words: usize,
    /// For each byte a state with the bits before the elements that take it.
    takers: Box<[u64]>,
    /// The bits behind a star.
    stars: Box<[u64]>,
    /// The bit behind the last element.
    end: usize,
}

impl Pattern {
    /// Reads a pattern. `None` = it has more than [`PATTERN_BYTES_MAX`] bytes.
    pub(in crate::dispatch) fn read(pattern: &[u8]) -> Option<Pattern> {
        if pattern.len() > PATTERN_BYTES_MAX {
            return None;
        }
        let words = pattern.len() / u64::BITS as usize + 1;
        let mut takers = vec![0; BYTES * words].into_boxed_slice();
        let mut stars = vec![0; words].into_boxed_slice();
        let (mut at, mut end) = (0, 0);
        while let Some(first) = pattern.get(at) {
            if *first == b'*' {
                set_bit(&mut stars, end);
                at += 1;
                continue;
            }
            let mut length = 1;
            for (byte, state) in (0..=u8::MAX).zip(takers.chunks_exact_mut(words)) {
                let (is_taken, next) = one(&pattern[at..], byte, false);
                length = next;
                if is_taken {
                    set_bit(state, end);
                }
            }
            at += length;
            end += 1;
        }
        Some(Pattern { words, takers, stars, end })
    }

    /// Whether a key matches.
    pub(in crate::dispatch) fn matches(&self, key: &[u8]) -> bool {
        let mut room = [0; WORDS_MAX];
        let state = &mut room[..self.words];
        state[0] = 1;
        let ends_in_star = has_bit(&self.stars, self.end);
        for byte in key {
            if ends_in_star && has_bit(state, self.end) {
                return true;
            }
            let takers = &self.takers[usize::from(*byte) * self.words..][..self.words];
            let (mut carried, mut any) = (0, 0);
            for ((bits, takers), stars) in state.iter_mut().zip(takers).zip(&self.stars) {
                let moved = *bits & takers;
                *bits = moved << 1 | carried | *bits & stars;
                carried = moved >> (u64::BITS - 1);
                any |= *bits;
            }
            if any == 0 {
                return false;
            }
        }
        has_bit(state, self.end)
    }

    /// What a pattern of this length takes, in bytes.
    pub(in crate::dispatch) fn bytes_of(length: usize) -> usize {
        (BYTES + 1) * (length / u64::BITS as usize + 1) * size_of::<u64>()
    }

    /// What the pattern takes, in bytes.
    pub(in crate::dispatch) fn bytes(&self) -> usize {
        (self.takers.len() + self.stars.len()) * size_of::<u64>()
    }
}

fn set_bit(state: &mut [u64], bit: usize) {
    state[bit / u64::BITS as usize] |= 1 << (bit % u64::BITS as usize);
}

fn has_bit(state: &[u64], bit: usize) -> bool {
    state[bit / u64::BITS as usize] & 1 << (bit % u64::BITS as usize) != 0
}

/// Whether `text` matches the pattern. With `any_case`, letters of either case are alike.
///
/// After a `*` that could not be matched, the match goes on from the last `*` alone: an earlier one could only have
/// taken less. So the work is at most the product of the two lengths, whatever the pattern.
pub(in crate::dispatch) fn matches(pattern: &[u8], text: &[u8], any_case: bool) -> bool {
    let (mut at, mut rest) = (0, text);
    let mut last_star: Option<(usize, &[u8])> = None;
    loop {
        match pattern.get(at) {
            Some(b'*') => {
                at += 1;
                if at == pattern.len() {
                    return true;
                }
                last_star = Some((at, rest));
                continue;
            }
            None if rest.is_empty() => return true,
            Some(_) => {
                if let Some((byte, behind)) = rest.split_first() {
                    let (is_match, next) = one(&pattern[at..], *byte, any_case);
                    if is_match {
                        (at, rest) = (at + next, behind);
                        continue;
                    }
                }
            }
            None => {}
        }
        match last_star {
            Some((behind_star, [_, behind @ ..])) => {
                last_star = Some((behind_star, behind));
                (at, rest) = (behind_star, behind);
            }
            _ => return false,
        }
    }
}

/// Whether a byte matches what the pattern begins with, which is not `*`, and how long that is.
fn one(pattern: &[u8], byte: u8, any_case: bool) -> (bool, usize) {
    let same = |a: u8, b: u8| a == b || any_case && a.eq_ignore_ascii_case(&b);
    match pattern {
        [b'?', ..] => (true, 1),
        [b'\\', taken, ..] => (same(*taken, byte), 2),
        [b'[', ..] => set(pattern, byte, any_case),
        [taken, ..] => (same(*taken, byte), 1),
        [] => (false, 0),
    }
}

fn set(pattern: &[u8], byte: u8, any_case: bool) -> (bool, usize) {
    let is_negated = pattern.get(1) == Some(&b'^');
    let mut at = 1 + usize::from(is_negated);
    let mut found = false;
    let folded = |byte: u8| if any_case { byte.to_ascii_lowercase() } else { byte };
    loop {
        match pattern[at.min(pattern.len())..] {
            [] => break,
            [b'\\', taken, ..] => {
                found |= taken == byte;
                at += 2;
            }
            [b']', ..] => {
                at += 1;
                break;
            }
            [from, b'-', to, ..] => {
                let (from, to) = (folded(from), folded(to));
                found |= (from.min(to)..=from.max(to)).contains(&folded(byte));
                at += 3;
            }
            [taken, ..] => {
                found |= folded(taken) == folded(byte);
                at += 1;
            }
        }
    }
    (found != is_negated, at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The twin: every way to take bytes for a star is tried.
    fn twin(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern, text) {
            ([], []) => true,
            ([b'*', behind @ ..], _) => (0..=text.len()).any(|taken| twin(behind, &text[taken..])),
            ([], _) | (_, []) => false,
            (_, [byte, rest @ ..]) => {
                let (is_match, next) = one(pattern, *byte, false);
                is_match && twin(&pattern[next..], rest)
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..Default::default() })]
        #[test]
        fn the_last_star_is_enough(pattern in "[ab?*\\[\\]^\\\\-]{0,8}", text in "[ab]{0,8}") {
            let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
            prop_assert_eq!(matches(pattern, text, false), twin(pattern, text));
        }

        /// A pattern that fills a part of a word, one word, or several.
        #[test]
        fn a_pattern_that_was_read_matches_the_same(
            parts in prop::collection::vec("[ab?*\\[\\]^\\\\-]{0,4}|[ab]{0,40}", 0..8),
            text in "[ab]{0,8}|[ab]{0,200}",
            cut in 0usize..200,
        ) {
            let text = text.as_bytes();
            let pattern = parts.concat();
            let read = Pattern::read(pattern.as_bytes()).expect("it is short");
            prop_assert_eq!(read.matches(text), matches(pattern.as_bytes(), text, false));
            // A text that matches for sure, by the pattern's own bytes.
            let part = &text[cut.min(text.len())..];
            let pattern = [b"*".as_slice(), part].concat();
            prop_assert!(Pattern::read(&pattern).expect("it is short").matches(text));
        }
    }

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h*llo", "heeeello", true),
            ("h[ae]llo", "hallo", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-b]llo", "hbllo", true),
            ("h[b-a]llo", "hallo", true),
            ("h\\*llo", "h*llo", true),
            ("h\\*llo", "hello", false),
            ("[\\]]", "]", true),
            ("[abc", "b", true),
            ("a**b", "ab", true),
            ("*a*a*a*a*a*a*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes(), false), expected, "{pattern} {text}");
            let read = Pattern::read(pattern.as_bytes()).expect("it is short");
            assert_eq!(read.matches(text.as_bytes()), expected, "{pattern} {text}");
        }
        assert!(matches(b"MAX*", b"maxmemory", true) && !matches(b"MAX*", b"maxmemory", false));
    }

    #[test]
    fn a_hostile_pattern_takes_no_longer_than_its_length_says() {
        let (pattern, text) = ("*a".repeat(2000), "a".repeat(1999));
        assert!(!matches(pattern.as_bytes(), text.as_bytes(), false));
    }

    #[test]
    fn a_pattern_for_keys_has_a_longest_length() {
        assert!(Pattern::read(&[b'a'; PATTERN_BYTES_MAX + 1]).is_none());
        let longest = Pattern::read(&[b'a'; PATTERN_BYTES_MAX]).expect("it is allowed");
        assert!(
            longest.matches(&[b'a'; PATTERN_BYTES_MAX]) && !longest.matches(&[b'a'; PATTERN_BYTES_MAX - 1])
        );
    }
}
