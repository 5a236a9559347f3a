//! What holds for every input: no panic, progress, and the same result however the bytes are cut.

use crate::shown::{session, show};
use larder_protocol::limits::{KEY_BYTES_MAX, LINE_BYTES_MAX, WHOLE_LINE_BYTES_MAX};
use larder_protocol::{
    MetaVerb, ParseOptions, Request, Step, StoreVerb, compose, decode_key, parse, reply, resume_keys,
};
use proptest::prelude::*;

const OPTIONS: ParseOptions = ParseOptions { whole_bytes_max: 40, line_bytes_max: 3000 };

/// Words that produce lines which are nearly right.
fn word() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => prop::sample::select(vec![
            "get", "gets", "gat", "gats", "set", "add", "replace", "append", "prepend", "cas", "touch", "delete",
            "incr", "decr", "mg", "ms", "md", "ma", "me", "mn", "flush_all", "verbosity", "stats", "slabs", "lru",
            "lru_crawler", "extstore", "watch", "shutdown", "quit", "version", "cache_memlimit", "HTTP/1.1",
        ]).prop_map(|word| word.as_bytes().to_vec()),
        4 => prop::sample::select(vec![
            "noreply", "0", "1", "2", "3", "30", "41", "-1", "4294967296", "v", "q", "k", "T30", "Oabc", "b", "Zm9v",
            "MS", "MA", "C5", "all", "hash", "detail", "on", "", " ", "  ", "\r", "\t",
        ]).prop_map(|word| word.as_bytes().to_vec()),
        3 => "[a-z0-9:]{1,30}".prop_map(String::into_bytes),
        1 => prop::collection::vec(any::<u8>(), 0..12),
        1 => (245usize..255).prop_map(|length| vec![b'k'; length]),
    ]
}

fn line() -> impl Strategy<Value = Vec<u8>> {
    let end = prop::sample::select(vec!["\r\n", "\r\n", "\r\n", "\n", "\r\r\n", " \r\n", ""]);
    (prop::collection::vec(word(), 0..8), end).prop_map(|(words, end)| {
        let mut line = words.join(&b' ');
        line.extend_from_slice(end.as_bytes());
        line
    })
}

fn stream() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(line(), 1..6).prop_map(|lines| lines.concat()),
        prop::collection::vec(any::<u8>(), 0..200),
        prop::collection::vec(prop::sample::select(b"get s\r\n01mvq ".to_vec()), 0..60),
    ]
}

fn progress(input: &[u8], step: &Step<'_>) -> Result<(), TestCaseError> {
    match step {
        Step::NeedMore { at_least } => prop_assert!(*at_least > input.len()),
        Step::Close | Step::Refuse(_) => prop_assert!(!input.is_empty()),
        Step::Request { consumed, .. } | Step::Upload { consumed, .. } | Step::Reject { consumed, .. } => {
            prop_assert!(*consumed > 0 && *consumed <= input.len());
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn every_stream_makes_progress_and_shows(input in stream()) {
        progress(&input, &parse(&input, &OPTIONS))?;
        session(&input, &OPTIONS);
    }

    #[test]
    fn a_prefix_wants_more_or_answers_the_same(input in stream()) {
        let whole = parse(&input, &OPTIONS);
        for cut in 0..input.len() {
            match parse(&input[..cut], &OPTIONS) {
                Step::NeedMore { at_least } => prop_assert!(at_least > cut),
                step => prop_assert_eq!(&step, &whole, "cut at {}", cut),
            }
        }
    }

    #[test]
    fn what_follows_a_request_does_not_change_it(input in stream(), more in stream()) {
        let alone = parse(&input, &OPTIONS);
        if !matches!(alone, Step::NeedMore { .. }) {
            let together = [input.clone(), more].concat();
            prop_assert_eq!(show(&parse(&together, &OPTIONS)), show(&alone));
            prop_assert_eq!(parse(&together, &OPTIONS), alone);
        }
    }

    #[test]
    fn retrievals_agree_with_the_slow_twin(
        words in prop::collection::vec(word(), 0..6),
        command in prop::sample::select(vec!["get", "gets"]),
        end in prop::sample::select(vec!["\r\n", "\n", " \r\n", "\r\r\n"]),
    ) {
        let mut input = [command.as_bytes(), b" "].concat();
        for word in words {
            input.push(b' ');
            input.extend(word.iter().filter(|&&byte| byte != b'\n'));
        }
        input.extend_from_slice(end.as_bytes());
        let step = parse(&input, &OPTIONS);
        match slow_keys(&input) {
            Some(expected) => {
                let Step::Request { request: Request::Get(get), consumed } = step else {
                    panic!("{}", show(&step))
                };
                prop_assert_eq!(consumed, input.len());
                prop_assert_eq!(get.keys.len(), expected.len());
                prop_assert_eq!(get.keys.clone().collect::<Vec<_>>(), expected.clone());
                // Whoever goes on behind any of the keys finds the others.
                for (nth, key) in get.keys.enumerate().take(expected.len().saturating_sub(1)) {
                    let end = key.as_ptr_range().end.addr() - input.as_ptr().addr();
                    let rest = resume_keys(&input[end..], expected.len() - nth - 1);
                    prop_assert_eq!(rest.collect::<Vec<_>>(), &expected[nth + 1..]);
                }
                prop_assert_eq!(get.with_cas, command == "gets");
            }
            None => prop_assert_eq!(
                step,
                Step::Reject { error: reply::BAD_FORMAT, consumed: input.len(), swallow: 0 }
            ),
        }
    }

    #[test]
    fn sets_agree_with_the_slow_twin(
        key in prop_oneof![4 => "[a-z]{1,20}".prop_map(String::into_bytes), 1 => word()],
        numbers in prop::collection::vec(
            prop_oneof![6 => "[0-9]{1,2}", 1 => "[0-9]{8,21}", 1 => "[-+]?[0-9x]{0,10}"], 2..5),
        extra in prop::sample::select(vec!["", "", " noreply", " x", " ", " x y"]),
        end in prop::sample::select(vec!["\r\n", "\r\n", "\n"]),
        tail in prop::sample::select(vec!["\r\n", "\r\n", "xx"]),
    ) {
        let mut input = b"set ".to_vec();
        input.extend(key.iter().filter(|&&byte| byte != b'\n'));
        for number in &numbers {
            input.push(b' ');
            input.extend_from_slice(number.as_bytes());
        }
        input.extend_from_slice(extra.as_bytes());
        input.extend_from_slice(end.as_bytes());
        let length = numbers.get(2).and_then(|number| number.parse::<usize>().ok()).unwrap_or(0).min(60);
        input.extend(std::iter::repeat_n(b'd', length));
        input.extend_from_slice(tail.as_bytes());
        prop_assert_eq!(show(&parse(&input, &OPTIONS)), slow_set(&input));
    }

    #[test]
    fn mg_agrees_with_the_other_meta_commands(words in prop::collection::vec(word(), 0..6)) {
        // `mg` has a fast reader; `md` goes through the general reader and takes the same flags.
        let mut text = words.join(&b' ');
        text.retain(|&byte| byte != b'\n');
        let spelled = |command: &str| [command.as_bytes(), &text, b"\r\n"].concat();
        let (mg, md) = (spelled("mg "), spelled("md "));
        match (parse(&mg, &OPTIONS), parse(&md, &OPTIONS)) {
            (
                Step::Request { request: Request::Meta(mg), consumed: mg_consumed },
                Step::Request { request: Request::Meta(mut md), consumed: md_consumed },
            ) => {
                md.verb = MetaVerb::Get;
                prop_assert_eq!(show_flags(&mg.flags), show_flags(&md.flags));
                prop_assert_eq!(mg.key, md.key);
                prop_assert_eq!(mg_consumed, md_consumed);
            }
            (mg, md) => prop_assert_eq!(mg, md),
        }
    }

    #[test]
    fn base64_is_undone(key in prop::collection::vec(any::<u8>(), 1..=KEY_BYTES_MAX)) {
        let mut encoded = Vec::new();
        compose::base64(&mut encoded, &key);
        let mut buffer = [0; KEY_BYTES_MAX];
        prop_assert_eq!(decode_key(&encoded, &mut buffer), Some(&key[..]));
    }

    #[test]
    fn decoding_never_panics(token in prop::collection::vec(any::<u8>(), 0..400)) {
        decode_key(&token, &mut [0; KEY_BYTES_MAX]);
    }

    #[test]
    fn a_dumped_key_can_be_asked_for(key in prop::collection::vec(any::<u8>(), 1..=180)) {
        let mut line = Vec::new();
        compose::mgdump_line(&mut line, &key, false);
        let Step::Request { request: Request::Meta(meta), consumed } = parse(&line, &OPTIONS) else {
            panic!("{line:?}")
        };
        prop_assert_eq!(consumed, line.len());
        let mut buffer = [0; KEY_BYTES_MAX];
        let named = if meta.flags.has(b'b') { decode_key(meta.key, &mut buffer) } else { Some(meta.key) };
        prop_assert_eq!(named, Some(&key[..]));
    }

    #[test]
    fn decimals_agree(number in any::<u64>(), shift in 0u32..64) {
        let mut out = Vec::new();
        compose::decimal(&mut out, number >> shift);
        compose::signed(&mut out, -((number >> shift >> 1) as i64));
        prop_assert_eq!(
            String::from_utf8(out).unwrap(),
            format!("{}{}", number >> shift, -((number >> shift >> 1) as i64))
        );
    }
}

fn show_flags(flags: &larder_protocol::MetaFlags<'_>) -> String {
    format!("{flags:?} {:?}", flags.iter().collect::<Vec<_>>())
}

/// The keys of a `get` line, or `None` if the line must be refused.
fn slow_keys(input: &[u8]) -> Option<Vec<&[u8]>> {
    let line = input.strip_suffix(b"\n").expect("a whole line");
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let keys: Vec<&[u8]> = line.split(|&byte| byte == b' ').filter(|word| !word.is_empty()).skip(1).collect();
    (!keys.is_empty() && keys.iter().all(|key| key.len() <= KEY_BYTES_MAX)).then_some(keys)
}

/// What the parser must show for a `set` line with everything behind it.
fn slow_set(input: &[u8]) -> String {
    let newline = input.iter().position(|&byte| byte == b'\n').expect("a line");
    let line = input[..newline].strip_suffix(b"\r").unwrap_or(&input[..newline]);
    let words: Vec<&[u8]> = line.split(|&byte| byte == b' ').filter(|word| !word.is_empty()).collect();
    let words = &words[1..];
    let number = |word: &[u8]| std::str::from_utf8(word).ok()?.parse::<i128>().ok();
    let refused = |noreply: bool, swallow: i128| {
        let error = if noreply { "silence" } else { "CLIENT_ERROR bad command line format" };
        if swallow == 0 { format!("! {error}") } else { format!("! {error} (swallow {swallow})") }
    };
    let bytes = match words.get(3).copied() {
        Some(b"-") => Some(0),
        Some(word) if word.len() <= 11 && !word.starts_with(b"+") => number(word),
        _ => None,
    };
    let Some(bytes) = bytes.filter(|bytes| (0..=i128::from(i32::MAX) - 2).contains(bytes)) else {
        return refused(false, 0);
    };
    let noreply = words.last() == Some(&&b"noreply"[..]);
    let flags = number(words[1]).filter(|flags| !words[1].starts_with(b"-") && u64::try_from(*flags).is_ok());
    let exptime = number(words[2]).filter(|exptime| i64::try_from(*exptime).is_ok());
    let (Some(flags), Some(exptime), true) = (flags, exptime, words[0].len() <= KEY_BYTES_MAX) else {
        return refused(noreply, bytes + 2);
    };
    let data_at = newline + 1;
    let end = data_at + bytes as usize + 2;
    let is_whole = bytes as usize <= OPTIONS.whole_bytes_max;
    if is_whole && end > input.len() {
        return format!("... {end}");
    }
    if is_whole && &input[end - 2..end] != b"\r\n" {
        return if noreply { "! silence" } else { "! CLIENT_ERROR bad data chunk" }.into();
    }
    let store = larder_protocol::Store {
        verb: StoreVerb::Set,
        key: words[0],
        flags: flags as u32,
        exptime: exptime as i32,
        cas: 0,
        noreply,
        bytes: bytes as u32,
        data: if is_whole { &input[data_at..end - 2] } else { &[] },
    };
    let request = Request::Store(store);
    show(&if is_whole {
        Step::Request { request, consumed: end }
    } else {
        Step::Upload { request, consumed: data_at, body_bytes: bytes as u32 }
    })
}

#[test]
fn the_bound_on_get_lines_is_the_callers() {
    let long = |length: usize| [b"get ".to_vec(), vec![b'a'; length - 4]].concat();
    assert_eq!(parse(&long(3000), &OPTIONS), Step::NeedMore { at_least: 3001 });
    assert_eq!(parse(&long(3001), &OPTIONS), Step::Refuse(reply::NO_MEMORY_REQUEST));
    let ended = |length: usize| [long(length), b"\n".to_vec()].concat();
    assert!(matches!(parse(&ended(3000), &OPTIONS), Step::Reject { .. }));
    assert!(
        matches!(parse(&ended(WHOLE_LINE_BYTES_MAX), &OPTIONS), Step::Reject { .. }),
        "its end came with it"
    );
    assert_eq!(parse(&ended(WHOLE_LINE_BYTES_MAX + 1), &OPTIONS), Step::Refuse(reply::NO_MEMORY_REQUEST));
    let lower = ParseOptions { line_bytes_max: 10, ..OPTIONS };
    assert_eq!(parse(&long(LINE_BYTES_MAX), &lower), Step::NeedMore { at_least: LINE_BYTES_MAX + 1 });
}

#[test]
fn a_long_line_is_read_if_its_end_came_with_it() {
    for command in ["delete ", "mg ", "ms ", "set ", "incr ", "nonsense "] {
        let long = |bytes: usize| [command.as_bytes(), &vec![b'k'; bytes - command.len()]].concat();
        assert_eq!(parse(&long(LINE_BYTES_MAX + 1), &OPTIONS), Step::Close, "{command}");
        let whole = [long(WHOLE_LINE_BYTES_MAX), b"\nmn\r\n".to_vec()].concat();
        let Step::Reject { consumed, swallow: 0, .. } = parse(&whole, &OPTIONS) else {
            panic!("{command}: {:?}", parse(&whole, &OPTIONS));
        };
        assert_eq!(consumed, WHOLE_LINE_BYTES_MAX + 1, "{command}");
        let longer = [long(WHOLE_LINE_BYTES_MAX + 1), b"\n".to_vec()].concat();
        assert_eq!(parse(&longer, &OPTIONS), Step::Close, "{command}");
    }
    let blanks = [b"mg a".to_vec(), vec![b' '; 3000], b"v\r\n".to_vec()].concat();
    assert!(matches!(parse(&blanks, &OPTIONS), Step::Request { consumed, .. } if consumed == blanks.len()));
}

#[test]
fn ten_thousand_keys_in_one_line() {
    let mut input = b"gets".to_vec();
    for number in 0..10_000 {
        input.extend(format!(" key:{number}").bytes());
    }
    input.extend_from_slice(b"\r\n");
    let Step::Request { request: Request::Get(get), consumed } = parse(&input, &ParseOptions::default())
    else {
        panic!("not a get");
    };
    assert_eq!(consumed, input.len());
    assert_eq!(get.keys.len(), 10_000);
    for (number, key) in get.keys.enumerate() {
        assert_eq!(key, format!("key:{number}").as_bytes());
    }
}
