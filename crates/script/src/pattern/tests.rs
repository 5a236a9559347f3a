//! The search for patterns beside Lua's own.

use super::{Capture, Fault, Match, Pattern, find, is_plain};
use memchr::memmem;
use mlua::{Lua, Table, Value};
use proptest::prelude::{Just, Strategy, any};
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use proptest::{collection, prop_assert_eq, prop_oneof, sample};

/// More steps than any of the short examples needs.
const PLENTY: u64 = 100_000_000;

/// The answer of a search in one form for both engines: nothing, an error's text, or the match.
#[derive(Debug, Clone, PartialEq)]
enum Answer {
    /// No match.
    Nothing,
    /// An error and its text.
    Error(String),
    /// The start, the end and the captures of the match.
    Found(usize, usize, Vec<Held>),
}

/// A capture's value.
#[derive(Debug, Clone, PartialEq)]
enum Held {
    /// A part of the text.
    Bytes(Vec<u8>),
    /// A position from 1 on.
    Place(usize),
}

/// A captured value as this module gives it.
fn held(text: &[u8], capture: &Capture) -> Held {
    match capture {
        Capture::Text(range) => Held::Bytes(text[range.clone()].to_vec()),
        Capture::Position(position) => Held::Place(*position),
    }
}

/// What a fault comes to for a script.
fn error_text(fault: Fault) -> String {
    match fault {
        Fault::Malformed(text) => text.to_owned(),
        Fault::TooLong => "too long".to_owned(),
    }
}

/// This module's answer in the shape of `string.find`, with the plain search where Lua has it.
fn ours(text: &[u8], pattern: &[u8], from: usize) -> Answer {
    let mut steps = PLENTY;
    if is_plain(pattern) {
        return match text.get(from..).and_then(|text| memmem::find(text, pattern)) {
            Some(at) => Answer::Found(from + at, from + at + pattern.len(), vec![]),
            None => Answer::Nothing,
        };
    }
    match find(text, pattern, from, &mut steps) {
        Ok(Some(Match { start, end, captures })) => {
            Answer::Found(start, end, captures.iter().map(|capture| held(text, capture)).collect())
        }
        Ok(None) => Answer::Nothing,
        Err(fault) => Answer::Error(error_text(fault)),
    }
}

/// The real Lua 5.1, and functions that give a table of results or an error's text.
struct Real {
    /// The state that the functions belong to.
    lua: Lua,
    /// The results of `string.find`.
    find: mlua::Function,
    /// The first two captures of each match of `string.gmatch`.
    matches: mlua::Function,
    /// The results of `string.gsub`, which marks each match.
    replace: mlua::Function,
}

impl Real {
    /// A new state of Lua 5.1.
    fn new() -> Real {
        let lua = Lua::new();
        let load = |source: &str| {
            let wrap = format!(
                "local function work(...) {source} end
                 return function(...) local fine, value = pcall(work, ...) return value end"
            );
            lua.load(wrap).eval::<mlua::Function>().unwrap()
        };
        let find = load("return {string.find(...)}");
        let matches = load(
            "local all = {}
             for a, b in string.gmatch(...) do all[#all + 1] = a all[#all + 1] = b or false end
             return all",
        );
        let replace = load("local text, pattern = ... return {string.gsub(text, pattern, '<%0>')}");
        assert_eq!(lua.globals().get::<String>("_VERSION").unwrap(), "Lua 5.1");
        Real { lua, find, matches, replace }
    }

    /// The table that `function` gives, or the text of its error without the place.
    fn call(
        &self,
        function: &mlua::Function,
        text: &[u8],
        pattern: &[u8],
        from: usize,
    ) -> Result<Table, String> {
        let string = |bytes| self.lua.create_string(bytes).unwrap();
        match function.call((string(text), string(pattern), from + 1)).unwrap() {
            Value::Table(table) => Ok(table),
            Value::String(message) => {
                let message = message.to_string_lossy();
                Err(message.rsplit(": ").next().unwrap().to_owned())
            }
            other => panic!("{other:?}"),
        }
    }

    /// Lua's answer to `string.find`.
    fn find(&self, text: &[u8], pattern: &[u8], from: usize) -> Answer {
        let table = match self.call(&self.find, text, pattern, from) {
            Ok(table) => table,
            Err(message) => return Answer::Error(message),
        };
        let Some(start) = table.get::<Option<usize>>(1).unwrap() else {
            return Answer::Nothing;
        };
        let end = table.get::<usize>(2).unwrap();
        let captures = (3..=table.raw_len()).map(|index| real_held(table.get(index).unwrap()));
        Answer::Found(start - 1, end, captures.collect())
    }
}

/// A captured value as Lua gives it.
fn real_held(value: Value) -> Held {
    match value {
        Value::String(bytes) => Held::Bytes(bytes.as_bytes().to_vec()),
        Value::Integer(position) => Held::Place(usize::try_from(position).unwrap()),
        Value::Number(position) => Held::Place(position as usize),
        other => panic!("{other:?}"),
    }
}

/// The first two captures of each match, as a loop over `string.gmatch` gives them.
fn our_matches(text: &[u8], pattern: &[u8]) -> Result<Vec<Option<Held>>, Fault> {
    let mut steps = PLENTY;
    let pattern = Pattern::without_anchor(pattern, &mut steps)?;
    let mut all = vec![];
    let mut from = 0;
    while let Some(found) = pattern.find(text, from, &mut steps)? {
        from = resume(&found);
        let whole = Capture::Text(found.start..found.end);
        all.push(Some(held(text, found.captures.first().unwrap_or(&whole))));
        all.push(found.captures.get(1).map(|capture| held(text, capture)));
    }
    Ok(all)
}

/// Where the next match is looked for, as `prelude.lua` has it.
fn resume(found: &Match) -> usize {
    found.end.max(found.start + 1)
}

/// What `string.gsub` with the replacement `<%0>` gives, and the count.
fn our_replace(text: &[u8], pattern: &[u8]) -> Result<(Vec<u8>, usize), Fault> {
    let mut steps = PLENTY;
    let pattern = Pattern::new(pattern, &mut steps)?;
    let (mut result, mut count, mut from, mut copied) = (vec![], 0, 0, 0);
    while let Some(found) = pattern.find(text, from, &mut steps)? {
        result.extend_from_slice(&text[copied..found.start]);
        result.push(b'<');
        result.extend_from_slice(&text[found.start..found.end]);
        result.push(b'>');
        (copied, from, count) = (found.end, resume(&found), count + 1);
        if pattern.anchored {
            break;
        }
    }
    result.extend_from_slice(&text[copied..]);
    Ok((result, count))
}

/// A captured part of a text.
fn bytes(value: &str) -> Held {
    Held::Bytes(value.as_bytes().to_vec())
}

/// Checks one example, with places as Lua counts them, against this module and against Lua.
#[track_caller]
fn example(text: &str, pattern: &str, start: usize, end: usize, captures: &[Held]) {
    let expected = Answer::Found(start - 1, end, captures.to_vec());
    assert_eq!(ours(text.as_bytes(), pattern.as_bytes(), 0), expected);
    assert_eq!(Real::new().find(text.as_bytes(), pattern.as_bytes(), 0), expected);
}

#[test]
fn examples_match() {
    example("hello world", "wor", 7, 9, &[]);
    example("hello", "l+", 3, 4, &[]);
    example("hello", "(l)(l)", 3, 4, &[bytes("l"), bytes("l")]);
    example("key = value", "(%w+)%s*=%s*(%w+)", 1, 11, &[bytes("key"), bytes("value")]);
    example("aaa", "(a*)(a-)(a?)()", 1, 3, &[bytes("aaa"), bytes(""), bytes(""), Held::Place(4)]);
    example("aaab", "(a-)b", 1, 4, &[bytes("aaa")]);
    example("a", "(()a)", 1, 1, &[bytes("a"), Held::Place(1)]);
    example("f(a(b)c)d", "%b()", 2, 8, &[]);
    example("xax", "%bxx", 1, 3, &[]);
    example("THE (quick) fox", "%f[%a]%a+%f[%A]", 1, 3, &[]);
    example("a", "%f[%z]", 2, 1, &[]);
    example("say \"hi\" 'x'", "([\"'])(.-)%1", 5, 8, &[bytes("\""), bytes("hi")]);
    example("a$b", "a$b", 1, 3, &[]);
    example("a$$$", "a$*", 1, 4, &[]);
    example("a", "$", 2, 1, &[]);
    example("^a", "^^a", 1, 2, &[]);
    example("a*", "*", 2, 2, &[]);
    example("-", "[a-]", 1, 1, &[]);
    example("]", "[]]", 1, 1, &[]);
    example("]", "[a-%%]", 1, 1, &[]);
    example("a]", "[[:alpha:]]", 1, 2, &[]);
    example("a\0b", "a%zb", 1, 3, &[]);
    example("a\0b", "a*\0x", 1, 1, &[]);
    example("a\0b", "\0b", 2, 3, &[]);
    example("\u{b}", "%s", 1, 1, &[]);
}

#[test]
fn examples_do_not_match() {
    let examples = [
        ("a", "b"),
        ("b", "a+b"),
        ("aa", "()a%1"),
        ("a", "^$"),
        ("abc", "^b"),
        ("]", "[^]]"),
        ("", "%f[%z]"),
        ("a", "a)"),
        ("a", "x%"),
        ("a", "x[x"),
        ("-", "[]-a]"),
        ("\0", "%Z"),
        ("é", "%a"),
        ("(a", "%b()"),
    ];
    for (text, pattern) in examples {
        assert_eq!(ours(text.as_bytes(), pattern.as_bytes(), 0), Answer::Nothing, "{text} {pattern}");
        assert_eq!(Real::new().find(text.as_bytes(), pattern.as_bytes(), 0), Answer::Nothing);
    }
}

#[test]
fn malformed_patterns_are_errors() {
    let many = "()".repeat(33);
    let examples = [
        ("a%", "malformed pattern (ends with '%')"),
        ("%\0", "malformed pattern (ends with '%')"),
        ("[", "malformed pattern (missing ']')"),
        ("[^]", "malformed pattern (missing ']')"),
        ("[a%]", "malformed pattern (missing ']')"),
        ("%f[a", "malformed pattern (missing ']')"),
        ("%bx", "unbalanced pattern"),
        ("%fa", "missing '[' after '%f' in pattern"),
        ("(a", "unfinished capture"),
        ("(a))", "invalid pattern capture"),
        ("%1", "invalid capture index"),
        ("(a%1)", "invalid capture index"),
        ("%0", "invalid capture index"),
        (&many, "too many captures"),
    ];
    for (pattern, message) in examples {
        let expected = Answer::Error(message.to_owned());
        assert_eq!(ours(b"aa", pattern.as_bytes(), 0), expected, "{pattern}");
        assert_eq!(Real::new().find(b"aa", pattern.as_bytes(), 0), expected, "{pattern}");
    }
}

#[test]
fn every_byte_is_in_the_same_classes() {
    let real = Real::new();
    for letter in 1..=u8::MAX {
        for byte in 0..=u8::MAX {
            for pattern in [&[b'%', letter][..], &[b'[', b'%', letter, b']'], &[b'[', b'^', letter, b']']] {
                assert_eq!(ours(&[byte], pattern, 0), real.find(&[byte], pattern, 0), "{letter} {byte}");
            }
        }
    }
}

#[test]
fn the_start_of_the_search_counts() {
    assert_eq!(ours(b"abc", b"^b", 1), Answer::Found(1, 2, vec![]));
    assert_eq!(ours(b"abc", b"%f[%a]b", 1), Answer::Nothing);
    assert_eq!(ours(b"abc", b"()", 3), Answer::Found(3, 3, vec![Held::Place(4)]));
    for pattern in [&b"^"[..], b"a*", b"()", b""] {
        assert_eq!(ours(b"abc", pattern, 4), Answer::Nothing);
        assert_eq!(ours(b"abc", pattern, usize::MAX), Answer::Nothing);
    }
}

#[test]
fn exponential_patterns_end() {
    let text = [b'a'; 40];
    let patterns = [
        ["a-".repeat(20), "b".to_owned()],
        ["a*".repeat(20), "b".to_owned()],
        ["a?".repeat(30), "b".to_owned()],
        ["a?".repeat(30), "a".repeat(41)],
        ["(.-)".repeat(20), "%20b".to_owned()],
        ["a+".repeat(15), "b".to_owned()],
    ];
    for pattern in patterns {
        let mut steps = 1_000_000;
        let answer = find(&text, pattern.concat().as_bytes(), 0, &mut steps);
        assert_eq!((answer, steps), (Err(Fault::TooLong), 0), "{pattern:?}");
    }
}

#[test]
fn the_budget_counts() {
    for budget in 0..20 {
        let mut steps = budget;
        let answer = find(b"aaab", b"(a-)b", 0, &mut steps);
        if answer.is_ok() {
            assert!(budget > 9 && steps < budget - 9, "{budget} {steps}");
        } else {
            assert_eq!((answer, steps), (Err(Fault::TooLong), 0));
        }
    }
    assert_eq!(find(b"", b"", 0, &mut 0), Err(Fault::TooLong));
    assert_eq!(find(b"", b"", 0, &mut 1).map(|found| found.is_some()), Ok(true));
}

#[test]
fn long_texts_and_patterns_do_not_recurse() {
    let mut steps = PLENTY;
    let text = vec![b'a'; 1_000_000];
    let found = find(&text, b"^(.-)(a?)$", 0, &mut steps).unwrap().unwrap();
    assert_eq!(found.captures, [Capture::Text(0..999_999), Capture::Text(999_999..1_000_000)]);
    assert_eq!(find(&text, b"^a*%1", 0, &mut steps), Err(Fault::Malformed("invalid capture index")));
    assert_eq!(find(b"", "x*".repeat(100_000).as_bytes(), 0, &mut steps).map(|m| m.is_some()), Ok(true));
    let complex = Err(Fault::Malformed("pattern too complex"));
    assert_eq!(find(&text, "a?".repeat(201).as_bytes(), 0, &mut steps), complex);
    assert_eq!(find(&text, "a?".repeat(200).as_bytes(), 0, &mut steps).map(|m| m.is_some()), Ok(true));
    assert_eq!(find(b"", "a-".repeat(201).as_bytes(), 0, &mut steps), complex);
    assert_eq!(find(&text, "[b]?".repeat(65_537).as_bytes(), 0, &mut steps), complex);
}

/// Short patterns, from single characters or from whole items.
fn patterns() -> impl Strategy<Value = Vec<u8>> {
    let characters = collection::vec(sample::select(b"^$*+?.([%-])%[]abfzA12-\0".to_vec()), 0..10);
    let items = [
        "a", "b", "c", ".", "%a", "%l", "%W", "[ab]", "[^a]", "[a-b]", "[%a-]", "(", ")", "(", ")", "*", "+",
        "-", "?", "*", "-", "%b()", "%bab", "%f[a]", "%f[^b]", "%1", "%2", "()", "$", "^", "%z", "%", "[",
        "]", "\0",
    ];
    let items = collection::vec(sample::select(items.to_vec()), 0..12);
    let bodies = collection::vec(
        (
            sample::select(vec![
                "a", "b", ".", "%a", "[ab]", "[^a]", "(a)", "(a*)", "(.-)", "(b?)", "([ab]+)", "(a-)", "(a*",
                ")", "()", "%1", "%f[%z]",
            ]),
            sample::select(vec!["", "", "*", "+", "-", "?"]),
        ),
        0..7,
    );
    prop_oneof![
        characters,
        items.prop_map(|items| items.concat().into_bytes()),
        (prop_oneof![Just(""), Just("^")], bodies, prop_oneof![Just(""), Just("$")]).prop_map(
            |(anchor, bodies, end)| {
                let bodies: String = bodies.iter().flat_map(|(body, sign)| [*body, *sign]).collect();
                format!("{anchor}{bodies}{end}").into_bytes()
            }
        ),
    ]
}

/// Short texts over few characters.
fn texts() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        collection::vec(sample::select(b"aab".to_vec()), 0..10),
        collection::vec(sample::select(b"aabbcA()]-^%$1\0".to_vec()), 0..10),
    ]
}

/// The number of random cases: `PATTERN_CASES` from the environment, or a number that takes seconds.
fn runner() -> TestRunner {
    let cases = std::env::var("PATTERN_CASES").ok().and_then(|cases| cases.parse().ok());
    let config = Config { cases: cases.unwrap_or(2_000), failure_persistence: None, ..Config::default() };
    TestRunner::new(config)
}

#[test]
fn find_does_what_lua_does() {
    let real = Real::new();
    let work = |(text, pattern, from): (Vec<u8>, Vec<u8>, usize)| {
        let from = from.min(text.len());
        prop_assert_eq!(ours(&text, &pattern, from), real.find(&text, &pattern, from));
        Ok(())
    };
    runner().run(&(texts(), patterns(), prop_oneof![Just(0), 0..10_usize]), work).unwrap();
}

#[test]
fn sets_do_what_lua_does() {
    let real = Real::new();
    let work = |(members, text): (Vec<u8>, Vec<u8>)| {
        for pattern in [[&b"["[..], &members, b"]"].concat(), [&b"%f["[..], &members, b"]()"].concat()] {
            prop_assert_eq!(ours(&text, &pattern, 0), real.find(&text, &pattern, 0));
        }
        Ok(())
    };
    let bytes = || sample::select(b"^^]]%%---.[azAdws09 \xe9\xff\0".to_vec());
    let (members, text) = (collection::vec(bytes(), 0..7), collection::vec(bytes(), 1..5));
    runner().run(&(members, text), work).unwrap();
}

#[test]
fn gmatch_does_what_lua_does() {
    let real = Real::new();
    let work = |(text, pattern): (Vec<u8>, Vec<u8>)| {
        let expected = real.call(&real.matches, &text, &pattern, 0).map(|table| {
            let values = table.sequence_values::<Value>().map(|value| match value.unwrap() {
                Value::Boolean(false) => None,
                value => Some(real_held(value)),
            });
            values.collect::<Vec<_>>()
        });
        prop_assert_eq!(our_matches(&text, &pattern).map_err(error_text), expected);
        Ok(())
    };
    runner().run(&(texts(), patterns()), work).unwrap();
}

#[test]
fn gsub_does_what_lua_does() {
    let real = Real::new();
    let work = |(text, pattern): (Vec<u8>, Vec<u8>)| -> Result<(), TestCaseError> {
        let answer = our_replace(&text, &pattern);
        if answer == Err(Fault::Malformed("unfinished capture")) {
            return Ok(());
        }
        let expected = real.call(&real.replace, &text, &pattern, 0).map(|table| {
            let result = table.get::<mlua::LuaString>(1).unwrap().as_bytes().to_vec();
            (result, table.get::<usize>(2).unwrap())
        });
        prop_assert_eq!(answer.map_err(error_text), expected);
        Ok(())
    };
    runner().run(&(texts(), patterns()), work).unwrap();
}

#[test]
fn any_bytes_are_safe() {
    let any_bytes = || collection::vec(any::<u8>(), 0..40);
    let work = |(text, pattern, from, budget): (Vec<u8>, Vec<u8>, usize, u64)| {
        let mut steps = budget;
        if let Ok(Some(found)) = find(&text, &pattern, from, &mut steps) {
            assert!(from <= found.start && found.start <= found.end && found.end <= text.len());
        }
        Ok(())
    };
    let patterns = prop_oneof![any_bytes(), patterns()];
    runner().run(&(any_bytes(), patterns, 0..50_usize, 0..10_000_u64), work).unwrap();
}
