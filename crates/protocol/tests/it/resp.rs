//! The RESP parser beside a slow twin that defines its answers.

use larder_protocol::resp::{Args, Fault, Options, Resume, Step, inline_args, lookup, parse};
use proptest::prelude::*;

/// What the twin says of the front of a buffer.
#[derive(Clone, Debug, PartialEq)]
enum Twin {
    NeedMore,
    Request(Vec<Vec<u8>>, usize),
    Inline(Vec<u8>, usize),
    Nothing(usize),
    /// The arguments before the long one, its length, how many follow, where it begins.
    Upload(Vec<Vec<u8>>, u32, usize, usize),
    Fault(Fault),
}

/// A number as Redis reads one, by way of the standard library.
fn number(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    let number: i64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

/// One header: the bytes behind the first one, and where the next line begins.
fn header(input: &[u8], from: usize, fault: Fault) -> Result<(Vec<u8>, usize), Twin> {
    let rest = &input[from..];
    match rest.iter().position(|byte| *byte == b'\r') {
        Some(end) if from + end + 1 >= input.len() => Err(Twin::NeedMore),
        Some(end) if end > 65536 => Err(Twin::Fault(fault)),
        Some(end) => Ok((rest.get(1..end).unwrap_or_default().to_vec(), from + end + 2)),
        None if rest.len() > 65536 => Err(Twin::Fault(fault)),
        None => Err(Twin::NeedMore),
    }
}

/// The twin: one step after the other, without any shortcut.
fn twin(input: &[u8], options: &Options) -> Twin {
    match array(input, options) {
        Ok(step) | Err(step) => step,
    }
}

fn array(input: &[u8], options: &Options) -> Result<Twin, Twin> {
    let Some(first) = input.first() else { return Ok(Twin::NeedMore) };
    if *first != b'*' {
        return Ok(line(input));
    }
    let (text, mut at) = header(input, 0, Fault::TooBigCount)?;
    if !input[..at].ends_with(b"\r\n") {
        return Err(Twin::Fault(Fault::InvalidLineEnd));
    }
    let count = number(&text).filter(|count| *count <= i64::from(i32::MAX));
    let count = count.ok_or(Twin::Fault(Fault::InvalidCount))?;
    if count > 10 && !options.is_authenticated {
        return Err(Twin::Fault(Fault::UnauthenticatedCount));
    }
    if count <= 0 {
        return Ok(Twin::Nothing(at));
    }
    let mut args: Vec<Vec<u8>> = Vec::new();
    for seen in 0..count as usize {
        let (text, begin) = header(input, at, Fault::TooBigLength)?;
        if input[at] != b'$' {
            return Err(Twin::Fault(Fault::ExpectedBulk(input[at])));
        }
        if !input[..begin].ends_with(b"\r\n") {
            return Err(Twin::Fault(Fault::InvalidLineEnd));
        }
        let length = number(&text).filter(|length| (0..=512 << 20).contains(length));
        let length = length.ok_or(Twin::Fault(Fault::InvalidLength))? as usize;
        if length > 16384 && !options.is_authenticated {
            return Err(Twin::Fault(Fault::UnauthenticatedLength));
        }
        let streams = args.first().and_then(|name| lookup(name)).map_or(0, |command| command.streams);
        let has_plain_key = args.get(1).is_some_and(|key| !key.is_empty() && key.len() <= 250);
        if length > options.whole_bytes_max && seen > 0 && seen == usize::from(streams) && has_plain_key {
            return Ok(Twin::Upload(args, length as u32, count as usize - seen - 1, begin));
        }
        let end = begin + length + 2;
        if end > options.request_bytes_max {
            return Err(Twin::Fault(Fault::TooLarge));
        }
        if end > input.len() {
            return Err(Twin::NeedMore);
        }
        if !input[..end].ends_with(b"\r\n") {
            return Err(Twin::Fault(Fault::InvalidLineEnd));
        }
        args.push(input[begin..begin + length].to_vec());
        at = end;
    }
    Ok(Twin::Request(args, at))
}

fn line(input: &[u8]) -> Twin {
    match input.iter().position(|byte| *byte == b'\n') {
        None if input.len() > 65536 => Twin::Fault(Fault::TooBigInline),
        None => Twin::NeedMore,
        Some(newline) if newline > 65536 => Twin::Fault(Fault::TooBigInline),
        Some(newline) => {
            let line = input[..newline].strip_suffix(b"\r").unwrap_or(&input[..newline]);
            let is_blank = line.iter().all(|byte| b" \t\n\r\x0b\x0c".contains(byte));
            if is_blank { Twin::Nothing(newline + 1) } else { Twin::Inline(line.to_vec(), newline + 1) }
        }
    }
}

fn owned(args: Args<'_>) -> Vec<Vec<u8>> {
    let announced = args.len();
    let all: Vec<Vec<u8>> = args.map(<[u8]>::to_vec).collect();
    assert_eq!(all.len(), announced);
    all
}

/// The parser's answer in the twin's words.
fn as_twin(step: Step<'_>) -> Twin {
    match step {
        Step::NeedMore { .. } => Twin::NeedMore,
        Step::Get { key, consumed } => Twin::Request(vec![b"GET".to_vec(), key.to_vec()], consumed),
        Step::Request { args, consumed } => Twin::Request(owned(args), consumed),
        Step::Inline { line, consumed } => Twin::Inline(line.to_vec(), consumed),
        Step::Nothing { consumed } => Twin::Nothing(consumed),
        Step::Upload(upload) => {
            Twin::Upload(owned(upload.args), upload.body_bytes, upload.args_left, upload.consumed)
        }
        Step::Fault(fault) => Twin::Fault(fault),
    }
}

/// The twin's answer, with the name of a `GET` as the parser gives it.
fn named(step: Twin) -> Twin {
    match step {
        Twin::Request(mut args, consumed) if args.len() == 2 && args[0].eq_ignore_ascii_case(b"get") => {
            args[0] = b"GET".to_vec();
            Twin::Request(args, consumed)
        }
        other => other,
    }
}

/// Compares the two on a stream and on all prefixes of it, each prefix once from the beginning and once on the way.
fn check(stream: &[u8], options: &Options) -> Result<(), TestCaseError> {
    let mut rest = stream;
    while !rest.is_empty() {
        let expected = named(twin(rest, options));
        let mut resume = Resume::default();
        prop_assert_eq!(named(as_twin(parse(rest, options, &mut resume))), expected.clone());
        let consumed = match &expected {
            Twin::Request(_, consumed) | Twin::Inline(_, consumed) | Twin::Nothing(consumed) => *consumed,
            Twin::Upload(.., body_bytes) => *body_bytes,
            Twin::NeedMore | Twin::Fault(_) => rest.len(),
        };
        let mut resume = Resume::default();
        for cut in 0..=consumed.min(rest.len()) {
            let step = parse(&rest[..cut], options, &mut resume);
            if let Step::NeedMore { at_least } = &step {
                prop_assert!(*at_least > cut);
            }
            let step = named(as_twin(step));
            prop_assert_eq!(&step, &named(twin(&rest[..cut], options)));
            if step != Twin::NeedMore {
                prop_assert_eq!(&step, &expected, "cut at {}", cut);
                break;
            }
        }
        rest = &rest[consumed.min(rest.len())..];
    }
    Ok(())
}

/// A piece of a stream: a request, a broken one, or anything.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let argument = prop_oneof![
        4 => prop::sample::select(vec!["get", "SET", "append", "setex", "mget", "k", "", "10", "value\r\n$3"])
            .prop_map(|text| text.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..60),
    ];
    let request = prop::collection::vec(argument, 1..6).prop_map(|args| {
        let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
        for argument in args {
            bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
            bytes.extend_from_slice(&argument);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes
    });
    let broken = prop::sample::select(vec![
        "*-1\r\n",
        "*0\r\n",
        "*\r\n",
        "*x\r\n",
        "*03\r\n",
        "*2147483648\r\n",
        "*11\r\n",
        "*1\r\n$-1\r\n",
        "*1\r\n$x\r\n",
        "*1\r\n$536870913\r\n",
        "*1\r\n$16385\r\n",
        "*2\r\n$3\r\nget\r\n$99999\r\n",
        "*1\r\n+x\r\n",
        "*1\r\n$00\r\nxx",
        "*1\r\n$1\rxax\n",
        "*1\rx$1\r\na\r\n",
        "PING\r\n",
        "\r\n",
        "  \n",
        "set k \"a b\"\r\n",
        "*1\r\n$0\r\n\r\n",
        "*2\r\n$3\r\nGET\r\n$0\r\n\r\n",
        "*2\r\n$3\r\nGET\r\n$1\r\nkxx",
    ])
    .prop_map(|text| text.as_bytes().to_vec());
    prop_oneof![6 => request, 2 => broken, 1 => prop::collection::vec(any::<u8>(), 0..20)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..Default::default() })]
    #[test]
    fn the_parser_answers_as_its_twin(
        pieces in prop::collection::vec(piece(), 1..6),
        whole_bytes_max in prop::sample::select(vec![0, 8, 65536]),
        request_bytes_max in prop::sample::select(vec![30, 200, 1 << 20]),
        is_authenticated: bool,
    ) {
        let options = Options { whole_bytes_max, request_bytes_max, is_authenticated };
        check(&pieces.concat(), &options)?;
    }

    #[test]
    fn a_line_of_words_has_no_bytes_that_were_not_there(line in prop::collection::vec(any::<u8>(), 0..80)) {
        let mut buffer = Vec::new();
        if let Ok(args) = inline_args(&line, &mut buffer) {
            let total: usize = args.map(<[u8]>::len).sum();
            prop_assert!(total <= line.len());
            prop_assert_eq!(owned(args).len(), args.len());
        }
    }
}

#[test]
fn a_line_without_an_end_is_given_up_after_64_kib() {
    for (first, fault) in [
        (&b"x"[..], Fault::TooBigInline),
        (b"*", Fault::TooBigCount),
        (b"*1\r\n$", Fault::TooBigLength),
        (b"\0", Fault::TooBigInline),
    ] {
        let mut input = first.to_vec();
        input.resize(65536, b'a');
        let (options, mut resume) = (Options::default(), Resume::default());
        assert!(matches!(parse(&input, &options, &mut resume), Step::NeedMore { .. }));
        input.resize(65536 + 10, b'a');
        assert_eq!(parse(&input, &options, &mut resume), Step::Fault(fault));
    }
}

/// A client that sends a long request byte by byte must not make the parser read all of it again for each byte. What
/// was read is overwritten here, so that a parser that looks at it again finds a fault.
#[test]
fn a_request_that_comes_in_small_pieces_is_read_once() {
    let count = 100_000;
    let mut input = format!("*{count}\r\n").into_bytes();
    (0..count).for_each(|_| input.extend_from_slice(b"$1\r\na\r\n"));
    let options = Options { request_bytes_max: input.len(), ..Options::default() };
    let (mut resume, mut seen) = (Resume::default(), input.clone());
    for cut in 0..input.len() {
        // An argument, and the line that counts them, have fewer bytes. The first byte says what the request is.
        if cut > 32 {
            seen[cut - 32] = b'x';
        }
        assert!(matches!(parse(&seen[..cut], &options, &mut resume), Step::NeedMore { .. }));
    }
    let Step::Request { args, consumed } = parse(&seen, &options, &mut resume) else { panic!("it is whole") };
    assert_eq!((args.len(), consumed), (count, input.len()));
}
