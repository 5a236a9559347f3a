//! A request as a line of words: `SET key "two words"`.

use super::args::Args;
use super::parse::{Fault, is_space};

/// Rewrites a line of words as bulk strings in `buffer`, and returns them as arguments. There is at least one word,
/// unless the line is blank or begins with a NUL byte.
///
/// Words are separated by white space. In double quotes `\n`, `\r`, `\t`, `\b`, `\a`, `\xHH` and a backslash before
/// any other byte mean what they mean in C; in single quotes only `\'` does. As in a shell and in Valkey, a word may
/// have several parts, quoted or not: `user:'a b'"c"`. A NUL byte ends the line.
///
/// # Errors
/// [`Fault::UnbalancedQuotes`].
pub fn inline_args<'b>(line: &[u8], buffer: &'b mut Vec<u8>) -> Result<Args<'b>, Fault> {
    buffer.clear();
    let line = match line.iter().position(|byte| *byte == 0) {
        Some(end) => &line[..end],
        None => line,
    };
    let mut count = 0;
    let mut word = Vec::new();
    let mut rest = line;
    loop {
        rest = &rest[rest.iter().position(|byte| !is_space(*byte)).unwrap_or(rest.len())..];
        if rest.is_empty() {
            return Ok(Args::new(buffer, count));
        }
        word.clear();
        rest = take_word(rest, &mut word).ok_or(Fault::UnbalancedQuotes)?;
        super::compose::bulk(buffer, &word);
        count += 1;
    }
}

/// Takes one word off the front of `rest`. `None` if a quote is not closed.
fn take_word<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        rest = match rest {
            [] => return Some(rest),
            [b'"', behind @ ..] => take_quoted(behind, word)?,
            [b'\'', behind @ ..] => take_literal(behind, word)?,
            [b' ' | b'\t' | b'\r' | b'\n', behind @ ..] => return Some(behind),
            [byte, behind @ ..] => {
                word.push(*byte);
                behind
            }
        };
    }
}

fn take_quoted<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        rest = match rest {
            [b'"', behind @ ..] => return Some(behind),
            [b'\\', b'x', high, low, behind @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                word.push(hex(*high) << 4 | hex(*low));
                behind
            }
            [b'\\', byte, behind @ ..] => {
                word.push(match byte {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                behind
            }
            [byte, behind @ ..] => {
                word.push(*byte);
                behind
            }
            [] => return None,
        };
    }
}

fn take_literal<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        rest = match rest {
            [b'\\', b'\'', behind @ ..] => {
                word.push(b'\'');
                behind
            }
            [b'\'', behind @ ..] => return Some(behind),
            [byte, behind @ ..] => {
                word.push(*byte);
                behind
            }
            [] => return None,
        };
    }
}

fn hex(digit: u8) -> u8 {
    (digit as char).to_digit(16).unwrap_or(0) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Result<Vec<String>, Fault> {
        let mut buffer = Vec::new();
        let args = inline_args(line.as_bytes(), &mut buffer)?;
        Ok(args.map(|word| word.escape_ascii().to_string()).collect())
    }

    #[test]
    fn words_are_split_as_redis_splits_them() {
        for (line, expected) in [
            ("PING", &["PING"][..]),
            ("  set\tkey  value ", &["set", "key", "value"]),
            (r#"set "two words" 'and two'"#, &["set", "two words", "and two"]),
            (r#"set k "\x00\n\r\t\b\a\"\q""#, &["set", "k", "\\x00\\n\\r\\t\\x08\\x07\\\"q"]),
            (r"set k 'it\'s \n'", &["set", "k", r"it\'s \\n"]),
            (r#"a"b c""#, &["ab c"]),
            (r#"set """tes"t-'k'e"y" "test"'-'value"#, &["set", "test-key", "test-value"]),
            (r#"set k """#, &["set", "k", ""]),
            (r#"set k "\xg1""#, &["set", "k", "xg1"]),
            ("get key\0behind", &["get", "key"]),
        ] {
            assert_eq!(words(line).expect("the quotes are closed"), expected, "{line:?}");
        }
    }

    #[test]
    fn a_quote_that_is_not_closed_is_a_fault() {
        for line in [r#"set k "abc"#, "set k 'abc", r#"set k "b"a"r"#, "set k 'b'a'r", r#"""""#, "\"a\0\""] {
            assert_eq!(words(line), Err(Fault::UnbalancedQuotes), "{line:?}");
        }
    }
}
