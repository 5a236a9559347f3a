//! Transcripts of bytes and of what the parser makes of them, whole and cut at every byte: meta commands, the commands
//! for administrators, and lines of all lengths. Retrievals and stores have a slow twin (`properties.rs`), and every
//! command has the transcripts that memcached itself answers (`tests/transcripts`).

use crate::shown::{session, show};
use larder_protocol::limits::LINE_BYTES_MAX;
use larder_protocol::{ParseOptions, Step, parse};

const OPTIONS: ParseOptions = ParseOptions { whole_bytes_max: 64, line_bytes_max: 1 << 20 };

/// Plays the questions and answers of a transcript. `>` lines are sent (`\r\n` is added, the usual escapes and
/// `*N` behind a character for N of them are understood, a `\` at the end means no line end); the lines under
/// them are what comes out, one per step, with a `...` when the parser wants more at the end.
fn check_transcript(text: &str) {
    let mut cases = 0;
    let mut sent: Vec<u8> = Vec::new();
    let mut expected: Vec<&str> = Vec::new();
    for line in text.lines().chain([""]) {
        let line = line.trim_end();
        if line.starts_with('#') {
            continue;
        }
        if let Some(question) = line.strip_prefix('>') {
            let question = question.strip_prefix(' ').unwrap_or(question);
            if !expected.is_empty() {
                check(&sent, &expected);
                cases += 1;
                sent.clear();
                expected.clear();
            }
            sent.extend(unescape(question));
        } else if !line.is_empty() {
            expected.push(line);
        }
    }
    check(&sent, &expected);
    assert!(cases > 5, "a transcript of {cases} cases is not being read right");
}

fn unescape(question: &str) -> Vec<u8> {
    let (text, end) = match question.strip_suffix('\\') {
        Some(text) => (text, &b""[..]),
        None => (question, &b"\r\n"[..]),
    };
    let mut bytes: Vec<u8> = Vec::new();
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match (character, characters.peek()) {
            ('\\', Some(_)) => bytes.push(match characters.next() {
                Some('r') => b'\r',
                Some('n') => b'\n',
                Some('t') => b'\t',
                Some('s') => b' ',
                Some('0') => 0,
                Some('f') => 0xff,
                other => panic!("unknown escape {other:?} in {question}"),
            }),
            ('*', Some('0'..='9')) => {
                let digits: String =
                    std::iter::from_fn(|| characters.next_if(|next| next.is_ascii_digit())).collect();
                let last = bytes.pop().expect("something before the star");
                bytes.extend(std::iter::repeat_n(last, digits.parse().expect("a count")));
            }
            _ => bytes.push(character as u8),
        }
    }
    bytes.extend_from_slice(end);
    bytes
}

fn check(input: &[u8], expected: &[&str]) {
    let steps = session(input, &OPTIONS);
    assert_eq!(steps, expected, "for {:?}", String::from_utf8_lossy(input));
    cut_everywhere(input);
}

/// A prefix of the first request gives `NeedMore`, with a promise that holds, or the same answer.
fn cut_everywhere(input: &[u8]) {
    let whole = parse(input, &OPTIONS);
    for cut in 0..input.len() {
        match parse(&input[..cut], &OPTIONS) {
            Step::NeedMore { at_least } => {
                assert!(at_least > cut, "{at_least} at {cut}");
                if !matches!(whole, Step::NeedMore { .. }) {
                    assert!(at_least <= input.len(), "{at_least} of {}", input.len());
                }
            }
            // A long line is read if its end arrived with it, but the parser does not wait for the end.
            Step::Close | Step::Refuse(_) if cut > LINE_BYTES_MAX => {}
            step => assert_eq!(show(&step), show(&whole), "cut at {cut}"),
        }
    }
}

#[test]
fn meta() {
    check_transcript(include_str!("../transcripts/meta.txt"));
}

#[test]
fn meta_storage() {
    check_transcript(include_str!("../transcripts/meta_storage.txt"));
}

#[test]
fn admin() {
    check_transcript(include_str!("../transcripts/admin.txt"));
}

#[test]
fn lines() {
    check_transcript(include_str!("../transcripts/lines.txt"));
}
