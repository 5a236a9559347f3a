//! Fuzzes the parser alone.

use larder_protocol::{Found, ParseOptions, parse};
use std::fmt::Debug;

/// Only inputs up to this length are tried with every prefix; longer ones are cut.
const PREFIX_BYTES_MAX: usize = 300;

/// Parses a stream of requests, and every prefix of each request.
pub(crate) fn run(input: &[u8]) {
    for whole_bytes_max in [0, 40, 16 << 10] {
        let options = ParseOptions { whole_bytes_max, line_bytes_max: 3000 };
        walk(input, whole_bytes_max, b"\r\n".len(), |rest| {
            let step = parse(rest, &options);
            if let Found::Reject { error, .. } = step {
                assert!(error.is_empty() || error.ends_with("\r\n"));
            }
            check_prefixes(rest, &step, |cut| parse(cut, &options));
            step
        });
    }
}

/// Takes one request after the other off a stream. `end_bytes` follow a value that was not waited for.
pub(crate) fn walk<'a, R, E>(
    input: &'a [u8],
    whole_bytes_max: usize,
    end_bytes: usize,
    parse: impl Fn(&'a [u8]) -> Found<R, E>,
) {
    let mut rest = input;
    loop {
        let (consumed, behind) = match parse(rest) {
            Found::NeedMore { at_least } => {
                assert!(at_least > rest.len(), "more is wanted than is there");
                break;
            }
            Found::Close | Found::Refuse(_) => break,
            Found::Request { consumed, .. } => (consumed, 0),
            Found::Upload { consumed, body_bytes, .. } => {
                assert!(body_bytes as usize > whole_bytes_max);
                (consumed, u64::from(body_bytes) + end_bytes as u64)
            }
            Found::Reject { consumed, swallow, .. } => (consumed, swallow),
        };
        assert!(consumed > 0 && consumed <= rest.len(), "{consumed} of {} bytes", rest.len());
        rest = &rest[consumed..];
        let gone = usize::try_from(behind).unwrap_or(usize::MAX).min(rest.len());
        rest = &rest[gone..];
    }
}

/// Every prefix of a request wants more, or is parsed as the whole.
pub(crate) fn check_prefixes<'a, R: Debug + PartialEq, E: Debug + PartialEq>(
    input: &'a [u8],
    whole: &Found<R, E>,
    parse: impl Fn(&'a [u8]) -> Found<R, E>,
) {
    let end = match whole {
        Found::Request { consumed, .. } | Found::Upload { consumed, .. } | Found::Reject { consumed, .. } => {
            *consumed
        }
        Found::NeedMore { .. } | Found::Close | Found::Refuse(_) => input.len(),
    };
    for cut in (0..input.len().min(end + 1)).take(PREFIX_BYTES_MAX) {
        match parse(&input[..cut]) {
            Found::NeedMore { at_least } => assert!(at_least > cut, "cut at {cut}"),
            step => assert_eq!(&step, whole, "cut at {cut}"),
        }
    }
}
