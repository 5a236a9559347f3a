//! Parses replies from bytes. Nothing here reads a socket.

use super::options::Protocol;

/// The longest accepted line.
const LINE_BYTES_MAX: usize = 4096;
/// The longest accepted value.
const VALUE_BYTES_MAX: u64 = 2 << 30;

/// One reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply<'a> {
    /// A value. RESP gives neither a key nor a CAS number.
    Value {
        /// The key, in memcached's replies.
        key: Option<&'a [u8]>,
        /// The CAS number.
        unique: Option<u64>,
        /// The value.
        data: &'a [u8],
    },
    /// `END` or a null: the item is absent.
    None,
    /// `STORED`, `HD`, `OK`.
    Stored,
    /// `NOT_STORED`.
    NotStored,
    /// `EXISTS`.
    Exists,
    /// `NOT_FOUND`.
    NotFound,
    /// `DELETED`.
    Deleted,
    /// A number.
    Number(i128),
    /// `ERROR`, `CLIENT_ERROR`, `SERVER_ERROR`, `-ERR` and the like: the line.
    Error(&'a [u8]),
}

/// The bytes at the start of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parsed<'a> {
    /// A reply and its length in bytes.
    Reply(Reply<'a>, usize),
    /// An incomplete reply of at least this many bytes.
    Incomplete(usize),
    /// Not a reply of this protocol.
    Garbage,
}

/// Parses the start of `input`.
#[inline]
pub(super) fn parse(protocol: Protocol, input: &[u8]) -> Parsed<'_> {
    match protocol {
        Protocol::Memcached => parse_memcached(input),
        Protocol::Resp => parse_resp(input),
    }
}

#[inline]
fn parse_memcached(input: &[u8]) -> Parsed<'_> {
    let (line, after) = match line(input) {
        Ok(found) => found,
        Err(other) => return other,
    };
    let reply = match line {
        b"END" => Reply::None,
        // `HD`: a meta command was done.
        b"STORED" | b"HD" => Reply::Stored,
        b"NOT_STORED" => Reply::NotStored,
        b"EXISTS" => Reply::Exists,
        b"NOT_FOUND" => Reply::NotFound,
        b"DELETED" => Reply::Deleted,
        _ if line.starts_with(b"VALUE ") => return memcached_value(input, &line[6..], after),
        b"ERROR" => Reply::Error(line),
        _ if line.starts_with(b"SERVER_ERROR") || line.starts_with(b"CLIENT_ERROR") => Reply::Error(line),
        _ => match whole_number(line) {
            Some(number) => Reply::Number(i128::from(number)),
            None => return Parsed::Garbage,
        },
    };
    Parsed::Reply(reply, after)
}

/// A value of memcached. `words` are key, flags, length and optionally a CAS number; the value starts at `start`.
#[inline]
fn memcached_value<'a>(input: &'a [u8], words: &'a [u8], start: usize) -> Parsed<'a> {
    let mut words = words.split(|&byte| byte == b' ');
    let key = words.next().filter(|key| !key.is_empty());
    let flags = words.next().and_then(whole_number);
    let bytes = words.next().and_then(whole_number).filter(|&bytes| bytes <= VALUE_BYTES_MAX);
    let unique = words.next().map(whole_number);
    let (Some(key), Some(_), Some(bytes), None) = (key, flags, bytes, words.next()) else {
        return Parsed::Garbage;
    };
    if unique == Some(None) {
        return Parsed::Garbage;
    }
    framed(input, start, bytes as usize, b"\r\nEND\r\n", |data| Reply::Value {
        key: Some(key),
        unique: unique.flatten(),
        data,
    })
}

#[inline]
fn parse_resp(input: &[u8]) -> Parsed<'_> {
    let (line, after) = match line(input) {
        Ok(found) => found,
        Err(other) => return other,
    };
    let Some((first, rest)) = line.split_first() else { return Parsed::Garbage };
    let reply = match first {
        b'$' if rest == b"-1" => Reply::None,
        b'$' => {
            let Some(bytes) = whole_number(rest).filter(|&bytes| bytes <= VALUE_BYTES_MAX) else {
                return Parsed::Garbage;
            };
            let value = |data| Reply::Value { key: None, unique: None, data };
            return framed(input, after, bytes as usize, b"\r\n", value);
        }
        b'_' if rest.is_empty() => Reply::None,
        b'+' if rest == b"OK" => Reply::Stored,
        b'-' if !rest.is_empty() => Reply::Error(line),
        b':' => {
            let (digits, sign) = rest.strip_prefix(b"-").map_or((rest, 1), |digits| (digits, -1));
            let Some(number) = whole_number(digits) else { return Parsed::Garbage };
            Reply::Number(sign * i128::from(number))
        }
        _ => return Parsed::Garbage,
    };
    Parsed::Reply(reply, after)
}

/// A value of `bytes` bytes from `start`, followed by `trailer`.
#[inline]
fn framed<'a>(
    input: &'a [u8],
    start: usize,
    bytes: usize,
    trailer: &[u8],
    reply: impl FnOnce(&'a [u8]) -> Reply<'a>,
) -> Parsed<'a> {
    let end = start + bytes;
    let came = &input[end.min(input.len())..(end + trailer.len()).min(input.len())];
    if *came != trailer[..came.len()] {
        return Parsed::Garbage;
    }
    if came.len() < trailer.len() {
        return Parsed::Incomplete(end + trailer.len());
    }
    Parsed::Reply(reply(&input[start..end]), end + trailer.len())
}

/// The line at the start of `input` without its end, and the start of the next line.
#[inline]
fn line(input: &[u8]) -> Result<(&[u8], usize), Parsed<'_>> {
    let looked_at = &input[..input.len().min(LINE_BYTES_MAX)];
    match looked_at.iter().position(|&byte| byte == b'\n') {
        Some(at) if at > 0 && input[at - 1] == b'\r' => Ok((&input[..at - 1], at + 1)),
        Some(_) => Err(Parsed::Garbage),
        None if looked_at.len() == LINE_BYTES_MAX => Err(Parsed::Garbage),
        None => Err(Parsed::Incomplete(input.len() + 1)),
    }
}

/// A decimal number without anything else.
#[inline]
pub(super) fn whole_number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |number, digit| {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 { None } else { number.checked_mul(10)?.checked_add(u64::from(digit)) }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BOTH: [Protocol; 2] = [Protocol::Memcached, Protocol::Resp];

    fn value<'a>(key: Option<&'a [u8]>, unique: Option<u64>, data: &'a [u8]) -> Reply<'a> {
        Reply::Value { key, unique, data }
    }

    /// Checks that every prefix is incomplete and asks for no more bytes than there are, and that bytes after the
    /// reply change nothing.
    fn check(protocol: Protocol, input: &[u8], expected: Reply<'_>) {
        for cut in 0..input.len() {
            match parse(protocol, &input[..cut]) {
                Parsed::Incomplete(needed) => assert!(needed > cut && needed <= input.len(), "cut at {cut}"),
                other => panic!("{:?} cut at {cut}: {other:?}", input.escape_ascii().to_string()),
            }
        }
        for more in [&b""[..], b"\r", b"END\r\n", b"$5\r\n", b"x"] {
            let longer = [input, more].concat();
            assert_eq!(parse(protocol, &longer), Parsed::Reply(expected, input.len()));
        }
    }

    #[test]
    fn memcached_replies_cut_at_every_octet() {
        let text = Protocol::Memcached;
        check(text, b"VALUE k 0 5\r\nhello\r\nEND\r\n", value(Some(b"k"), None, b"hello"));
        check(text, b"VALUE k 7 2 99\r\nhi\r\nEND\r\n", value(Some(b"k"), Some(99), b"hi"));
        let tricky = b"VALUE key 4294967295 12\r\nEND\r\nEND\r\nab\r\nEND\r\n";
        check(text, tricky, value(Some(b"key"), None, b"END\r\nEND\r\nab"));
        check(text, b"VALUE k 0 0\r\n\r\nEND\r\n", value(Some(b"k"), None, b""));
        check(text, b"END\r\n", Reply::None);
        check(text, b"STORED\r\n", Reply::Stored);
        check(text, b"NOT_STORED\r\n", Reply::NotStored);
        check(text, b"EXISTS\r\n", Reply::Exists);
        check(text, b"NOT_FOUND\r\n", Reply::NotFound);
        check(text, b"DELETED\r\n", Reply::Deleted);
        check(text, b"18446744073709551615\r\n", Reply::Number(u64::MAX.into()));
        check(text, b"ERROR\r\n", Reply::Error(b"ERROR"));
        check(text, b"SERVER_ERROR out of memory\r\n", Reply::Error(b"SERVER_ERROR out of memory"));
    }

    #[test]
    fn resp_replies_cut_at_every_octet() {
        let resp = Protocol::Resp;
        check(resp, b"$5\r\nhello\r\n", value(None, None, b"hello"));
        check(resp, b"$14\r\n+OK\r\n$-1\r\n\r\nab\r\n", value(None, None, b"+OK\r\n$-1\r\n\r\nab"));
        check(resp, b"$0\r\n\r\n", value(None, None, b""));
        check(resp, b"$-1\r\n", Reply::None);
        check(resp, b"_\r\n", Reply::None);
        check(resp, b"+OK\r\n", Reply::Stored);
        check(resp, b":-12\r\n", Reply::Number(-12));
        check(resp, b"-MOVED 12 h:1\r\n", Reply::Error(b"-MOVED 12 h:1"));
    }

    #[test]
    fn garbage_is_told() {
        for bad in [
            &b"VALUE k 0\r\n"[..],
            b"VALUE k 0 x\r\n",
            b"VALUE k 0 1 2 3\r\nx\r\nEND\r\n",
            b"VALUE k 0 4\r\nhello\r\nEND\r\n",
            b"VALUE k 0 1\r\nx\r\nEMD",
            b"\n",
            b"STORED\n",
            b"HTTP/1.1 400 Bad Request\r\n",
            b"12x\r\n",
            b"\r\n",
        ] {
            assert_eq!(parse(Protocol::Memcached, bad), Parsed::Garbage, "{}", bad.escape_ascii());
        }
        for bad in [
            &b"$5\r\nhelloXX"[..],
            b"*1\r\n",
            b"$x\r\n",
            b"+PONG\r\n",
            b"$99999999999\r\n",
            b":\r\n",
            b"\r\n",
        ] {
            assert_eq!(parse(Protocol::Resp, bad), Parsed::Garbage, "{}", bad.escape_ascii());
        }
        for protocol in BOTH {
            assert_eq!(parse(protocol, &[b'-'; LINE_BYTES_MAX]), Parsed::Garbage);
        }
    }

    /// The replies of a whole stream that arrives in pieces.
    fn in_pieces(protocol: Protocol, stream: &[u8], cuts: &[usize]) -> Vec<String> {
        let mut replies = Vec::new();
        let (mut at, mut needed) = (0, 0);
        for &end in cuts.iter().chain([&stream.len()]) {
            while end.saturating_sub(at) >= needed.max(1) {
                match parse(protocol, &stream[at..end]) {
                    Parsed::Reply(reply, taken) => {
                        replies.push(format!("{reply:?}"));
                        (at, needed) = (at + taken, 0);
                    }
                    Parsed::Incomplete(more) => needed = more,
                    Parsed::Garbage => {
                        replies.push("garbage".to_owned());
                        return replies;
                    }
                }
            }
        }
        replies
    }

    fn one_reply(protocol: Protocol) -> BoxedStrategy<Vec<u8>> {
        let data = proptest::collection::vec(prop_oneof![Just(b'\r'), Just(b'\n'), any::<u8>()], 0..40);
        let value = data.prop_map(move |data| {
            let head = match protocol {
                Protocol::Memcached => format!("VALUE some-key 0 {}\r\n", data.len()),
                Protocol::Resp => format!("${}\r\n", data.len()),
            };
            let tail: &[u8] = if protocol == Protocol::Resp { b"\r\n" } else { b"\r\nEND\r\n" };
            [head.as_bytes(), &data, tail].concat()
        });
        let lines: &[&[u8]] = match protocol {
            Protocol::Memcached => {
                &[b"END\r\n", b"STORED\r\n", b"DELETED\r\n", b"17\r\n", b"SERVER_ERROR x\r\n"]
            }
            Protocol::Resp => &[b"$-1\r\n", b"+OK\r\n", b":1\r\n", b"-OOM no\r\n"],
        };
        prop_oneof![value, proptest::sample::select(lines.to_vec()).prop_map(<[u8]>::to_vec)].boxed()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_stream_gives_the_same_replies_however_it_is_cut(
            (protocol, replies) in proptest::sample::select(BOTH.to_vec())
                .prop_flat_map(|p| (Just(p), proptest::collection::vec(one_reply(p), 1..6))),
        ) {
            let stream = replies.concat();
            let whole = in_pieces(protocol, &stream, &[]);
            prop_assert_eq!(whole.len(), replies.len());
            for cut in 0..=stream.len() {
                prop_assert_eq!(&in_pieces(protocol, &stream, &[cut]), &whole, "cut at {}", cut);
            }
            let every: Vec<usize> = (0..stream.len()).collect();
            prop_assert_eq!(&in_pieces(protocol, &stream, &every), &whole);
        }

        #[test]
        fn no_octets_make_the_parser_panic(
            input in proptest::collection::vec(
                prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'$'), Just(b'1'), any::<u8>()],
                0..80,
            ),
        ) {
            for protocol in BOTH {
                in_pieces(protocol, &input, &[]);
            }
        }
    }
}
