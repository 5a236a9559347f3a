//! Patterns of keys, as `KEYS` and `SCAN MATCH` take them.
//!
//! `*` is any bytes, `?` is one byte, `[abc]` one of these, `[^abc]` none of these, `[a-z]` one of a range, and a
//! backslash takes the next byte as it is. A bracket that is not closed ends with the pattern.

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
        }
        assert!(matches(b"MAX*", b"maxmemory", true) && !matches(b"MAX*", b"maxmemory", false));
    }

    #[test]
    fn a_hostile_pattern_takes_no_longer_than_its_length_says() {
        let (pattern, text) = ("*a".repeat(2000), "a".repeat(1999));
        assert!(!matches(pattern.as_bytes(), text.as_bytes(), false));
    }
}
