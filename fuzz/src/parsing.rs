//! Fuzzes the parser alone.

use larder_protocol::{ParseOptions, Step, parse};

/// Only inputs up to this length are tried with every prefix; longer ones are cut.
const PREFIX_BYTES_MAX: usize = 300;

/// Parses a stream of requests, and every prefix of each request.
pub(crate) fn run(input: &[u8]) {
    for whole_bytes_max in [0, 40, 16 << 10] {
        let options = ParseOptions { whole_bytes_max, line_bytes_max: 3000 };
        let mut rest = input;
        loop {
            let step = parse(rest, &options);
            check_prefixes(rest, &step, &options);
            let (consumed, behind) = match step {
                Step::NeedMore { at_least } => {
                    assert!(at_least > rest.len(), "more is wanted than is there");
                    break;
                }
                Step::Close | Step::Refuse(_) => break,
                Step::Request { consumed, .. } => (consumed, 0),
                Step::Upload { consumed, body_bytes, .. } => {
                    assert!(body_bytes as usize > whole_bytes_max);
                    (consumed, u64::from(body_bytes) + 2)
                }
                Step::Reject { error, consumed, swallow } => {
                    assert!(error.is_empty() || error.ends_with("\r\n"));
                    (consumed, swallow)
                }
            };
            assert!(consumed > 0 && consumed <= rest.len(), "{consumed} of {} bytes", rest.len());
            rest = &rest[consumed..];
            let gone = usize::try_from(behind).unwrap_or(usize::MAX).min(rest.len());
            rest = &rest[gone..];
        }
    }
}

fn check_prefixes(input: &[u8], whole: &Step<'_>, options: &ParseOptions) {
    let end = match whole {
        Step::Request { consumed, .. } | Step::Upload { consumed, .. } | Step::Reject { consumed, .. } => {
            *consumed
        }
        Step::NeedMore { .. } | Step::Close | Step::Refuse(_) => input.len(),
    };
    for cut in (0..input.len().min(end + 1)).take(PREFIX_BYTES_MAX) {
        match parse(&input[..cut], options) {
            Step::NeedMore { at_least } => assert!(at_least > cut, "cut at {cut}"),
            step => assert_eq!(&step, whole, "cut at {cut}"),
        }
    }
}
