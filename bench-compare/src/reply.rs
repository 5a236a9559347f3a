//! Parses the replies to GET and SET, with one parser per protocol.

use crate::wire::{KEY_BYTES, Protocol};

/// One reply.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reply<'a> {
    /// A value.
    Hit(&'a [u8]),
    /// The key does not exist.
    Miss,
    /// The SET was done.
    Stored,
    /// The request was refused; the line without its end.
    Refused(&'a [u8]),
}

/// The bytes are not a reply of this protocol.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NotAReply;

/// The longest accepted line in bytes.
const LINE_BYTES_MAX: usize = 2048;

/// Parses the reply at the start of `input`. Returns it with its length; `None` while it is incomplete.
pub(crate) fn parse(protocol: Protocol, input: &[u8]) -> Result<Option<(Reply<'_>, usize)>, NotAReply> {
    match protocol {
        Protocol::Text => parse_text(input),
        Protocol::Resp => parse_resp(input),
        Protocol::Binary => parse_binary(input),
    }
}

fn parse_text(input: &[u8]) -> Result<Option<(Reply<'_>, usize)>, NotAReply> {
    const VALUE: &[u8] = b"VALUE ";
    let Some(first) = input.first() else { return Ok(None) };
    if *first != b'V' {
        return Ok(line(input)?.map(|(line, consumed)| {
            let reply = match line {
                b"END" => Reply::Miss,
                b"STORED" => Reply::Stored,
                other => Reply::Refused(other),
            };
            (reply, consumed)
        }));
    }
    // All keys have the same length, so the position of the flags is known without examining the key.
    let Some((key, rest)) = input.split_at_checked(VALUE.len() + KEY_BYTES + 1) else { return Ok(None) };
    if !key.starts_with(VALUE) || key.last() != Some(&b' ') {
        return Err(NotAReply);
    }
    let Some((flags, at)) = decimal(rest)? else { return Ok(None) };
    let _ = flags;
    if rest.get(at) != Some(&b' ') {
        return if rest.len() == at { Ok(None) } else { Err(NotAReply) };
    }
    let Some((bytes, digits)) = decimal(&rest[at + 1..])? else { return Ok(None) };
    let start = key.len() + at + 1 + digits + 2;
    framed(input, start, bytes, b"\r\nEND\r\n")
}

fn parse_resp(input: &[u8]) -> Result<Option<(Reply<'_>, usize)>, NotAReply> {
    let Some(first) = input.first() else { return Ok(None) };
    match first {
        b'$' if input.get(1).is_none_or(|byte| byte.is_ascii_digit()) => {
            let Some((bytes, digits)) = decimal(&input[1..])? else { return Ok(None) };
            framed(input, 1 + digits + 2, bytes, b"\r\n")
        }
        b'$' | b'_' | b'+' | b'-' => {
            let Some((line, consumed)) = line(input)? else { return Ok(None) };
            let reply = match line {
                b"$-1" | b"_" => Reply::Miss,
                b"+OK" => Reply::Stored,
                other if other[0] == b'-' => Reply::Refused(&other[1..]),
                _ => return Err(NotAReply),
            };
            Ok(Some((reply, consumed)))
        }
        _ => Err(NotAReply),
    }
}

fn parse_binary(input: &[u8]) -> Result<Option<(Reply<'_>, usize)>, NotAReply> {
    const HEADER_BYTES: usize = 24;
    if input.first().is_some_and(|&magic| magic != 0x81) {
        return Err(NotAReply);
    }
    let Some(header) = input.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
    let [_, opcode, _, key, extras, _, _, status, b0, b1, b2, b3, ..] = *header;
    let end = HEADER_BYTES + u32::from_be_bytes([b0, b1, b2, b3]) as usize;
    let value_at = HEADER_BYTES + usize::from(key) + usize::from(extras);
    let Some(value) = input.get(value_at..end).or(input.get(end..end)) else { return Ok(None) };
    let reply = match (opcode, status) {
        (0x00, 0) => Reply::Hit(value),
        (0x00, 1) => Reply::Miss,
        (0x01, 0) => Reply::Stored,
        (_, 0) => return Err(NotAReply),
        _ => Reply::Refused(value),
    };
    Ok(Some((reply, end)))
}

/// A value of `bytes` bytes from `start`, with the line end before it and `trailer` after it.
fn framed<'a>(
    input: &'a [u8],
    start: usize,
    bytes: usize,
    trailer: &[u8],
) -> Result<Option<(Reply<'a>, usize)>, NotAReply> {
    let end = start + bytes;
    let Some(tail) = input.get(end..end + trailer.len()) else { return Ok(None) };
    if tail != trailer || &input[start - 2..start] != b"\r\n" {
        return Err(NotAReply);
    }
    Ok(Some((Reply::Hit(&input[start..end]), end + trailer.len())))
}

/// The number at the start of `input` and its digits, once the byte after it has arrived.
fn decimal(input: &[u8]) -> Result<Option<(usize, usize)>, NotAReply> {
    let mut number = 0usize;
    for (at, byte) in input.iter().enumerate() {
        if !byte.is_ascii_digit() {
            return if at == 0 { Err(NotAReply) } else { Ok(Some((number, at))) };
        }
        if at == 10 {
            return Err(NotAReply);
        }
        number = number * 10 + usize::from(byte - b'0');
    }
    Ok(None)
}

/// The line at the start of `input`, and its length with the line end.
fn line(input: &[u8]) -> Result<Option<(&[u8], usize)>, NotAReply> {
    match input.iter().take(LINE_BYTES_MAX).position(|&byte| byte == b'\n') {
        Some(at) if at > 1 && input[at - 1] == b'\r' => Ok(Some((&input[..at - 1], at + 1))),
        Some(_) => Err(NotAReply),
        None if input.len() >= LINE_BYTES_MAX => Err(NotAReply),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "larder:bench:object:0000000007";

    /// Every proper prefix is incomplete, and bytes that follow change nothing.
    fn check(protocol: Protocol, input: &str, expected: &Reply<'_>) {
        let bytes = input.as_bytes();
        for cut in 0..bytes.len() {
            assert_eq!(parse(protocol, &bytes[..cut]), Ok(None), "{input:?} cut at {cut}");
        }
        for more in ["", "\r", "END\r\n", "VALUE", "$5\r\n", "+OK\r\n"] {
            let longer = [bytes, more.as_bytes()].concat();
            match parse(protocol, &longer) {
                Ok(Some((reply, consumed))) => assert_eq!((&reply, consumed), (expected, bytes.len())),
                other => panic!("{longer:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn text_replies_cut_at_every_byte() {
        let text = Protocol::Text;
        check(text, &format!("VALUE {KEY} 0 5\r\nhello\r\nEND\r\n"), &Reply::Hit(b"hello"));
        check(
            text,
            &format!("VALUE {KEY} 4294967295 12\r\nEND\r\nEND\r\nab\r\nEND\r\n"),
            &Reply::Hit(b"END\r\nEND\r\nab"),
        );
        check(text, &format!("VALUE {KEY} 0 0\r\n\r\nEND\r\n"), &Reply::Hit(b""));
        check(text, "END\r\n", &Reply::Miss);
        check(text, "STORED\r\n", &Reply::Stored);
        check(text, "NOT_STORED\r\n", &Reply::Refused(b"NOT_STORED"));
        check(text, "SERVER_ERROR out of memory\r\n", &Reply::Refused(b"SERVER_ERROR out of memory"));
        check(text, "ERROR\r\n", &Reply::Refused(b"ERROR"));
    }

    #[test]
    fn resp_replies_cut_at_every_byte() {
        let resp = Protocol::Resp;
        check(resp, "$5\r\nhello\r\n", &Reply::Hit(b"hello"));
        check(resp, "$14\r\n+OK\r\n$-1\r\n\r\nab\r\n", &Reply::Hit(b"+OK\r\n$-1\r\n\r\nab"));
        check(resp, "$0\r\n\r\n", &Reply::Hit(b""));
        check(resp, "$-1\r\n", &Reply::Miss);
        check(resp, "_\r\n", &Reply::Miss);
        check(resp, "+OK\r\n", &Reply::Stored);
        check(resp, "-OOM command not allowed\r\n", &Reply::Refused(b"OOM command not allowed"));
    }

    #[test]
    fn binary_replies_cut_at_every_byte() {
        let binary = Protocol::Binary;
        let packet = |opcode: u8, status: u8, extras: &str, value: &str| {
            let mut bytes: Vec<u8> = vec![0x81, opcode, 0, 0, extras.len() as u8, 0, 0, status, 0, 0, 0];
            bytes.push((extras.len() + value.len()) as u8);
            bytes.extend([0; 12]);
            [&bytes, extras.as_bytes(), value.as_bytes()].concat()
        };
        for (bytes, expected) in [
            (packet(0, 0, "\0\0\0\0", "hello"), Reply::Hit(b"hello")),
            (packet(0, 0, "\0\0\0\0", ""), Reply::Hit(b"")),
            (packet(0, 1, "", "Not found"), Reply::Miss),
            (packet(1, 0, "", ""), Reply::Stored),
            (packet(1, 3, "", "Too large."), Reply::Refused(b"Too large.")),
        ] {
            for cut in 0..bytes.len() {
                assert_eq!(parse(binary, &bytes[..cut]), Ok(None), "{bytes:?} cut at {cut}");
            }
            assert_eq!(parse(binary, &bytes), Ok(Some((expected, bytes.len()))));
        }
        assert_eq!(parse(binary, b"STORED"), Err(NotAReply));
    }

    #[test]
    fn a_stream_of_replies_is_read_alike_however_it_is_cut() {
        let stream =
            format!("VALUE {KEY} 0 5\r\nhello\r\nEND\r\nEND\r\nSTORED\r\nVALUE {KEY} 1 2\r\nhi\r\nEND\r\n");
        let stream = stream.as_bytes();
        for cut in 0..=stream.len() {
            let (mut at, mut seen) = (0, 0);
            for end in [cut, stream.len()] {
                while let Some((_, consumed)) = parse(Protocol::Text, &stream[at..end]).expect("well-formed")
                {
                    at += consumed;
                    seen += 1;
                }
            }
            assert_eq!((at, seen), (stream.len(), 4), "cut at {cut}");
        }
    }

    #[test]
    fn nonsense_is_told() {
        for bad in [
            "VALUE short 0 5\r\nhello\r\nEND\r\nxxxxxxxxxxxxxxxxxx",
            "\n",
            "VALUX larder:bench:object:0000000007 0 1\r\n",
        ] {
            assert_eq!(parse(Protocol::Text, bad.as_bytes()), Err(NotAReply), "{bad}");
        }
        let wrong_length = format!("VALUE {KEY} 0 4\r\nhello\r\nEND\r\n");
        assert_eq!(parse(Protocol::Text, wrong_length.as_bytes()), Err(NotAReply));
        for bad in [":1\r\n", "$5\r\nhelloXX", "*1\r\n", "$x\r\n", "+PONG\r\n", "$99999999999\r\n"] {
            assert_eq!(parse(Protocol::Resp, bad.as_bytes()), Err(NotAReply), "{bad}");
        }
        assert_eq!(parse(Protocol::Text, &[b'a'; LINE_BYTES_MAX]), Err(NotAReply));
    }
}
