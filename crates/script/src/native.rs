//! The functions that `prelude.lua` is built on.
//!
//! A function that may fail answers `true` and its results, or `false` and what is wrong: the error is raised in Lua,
//! where it gets the place at which the script called.

use crate::asked::Asked;
use crate::control::Control;
use crate::libraries::Pulse;
use crate::name::Name;
use crate::pattern::{self, Capture, Fault, Match, Pattern};
use larder_protocol::resp::Version;
use mlua::chunk::ChunkMode;
use mlua::{IntoLua, Lua, LuaString, MultiValue, Result, Table, Value, Variadic};
use std::rc::Rc;

/// What scripts are called in errors.
pub(crate) const CHUNK: &str = "@user_script";
/// What `prelude.lua` is called in errors.
pub(crate) const PRELUDE: &str = "prelude";
/// The version of Redis that scripts see.
const VERSION: (&str, u32) = ("7.4.0", 0x0007_0400);
/// Steps of one search for a pattern, at most: some milliseconds.
const STEPS_MAX: u64 = 2_000_000;
/// The longest pattern, in bytes: a set of it is read in some hundred steps.
const PATTERN_BYTES_MAX: usize = 4 << 10;
/// The longest text that is compiled within a script, in bytes.
const COMPILED_BYTES_MAX: usize = 16 << 10;

/// All of them. `environment` is found when a script compiles another: it is made later.
pub(crate) fn native(lua: &Lua, control: &Rc<Control>) -> Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("version", VERSION.0)?;
    table.raw_set("version_number", VERSION.1)?;
    for (name, asked) in
        [("ASK_PCALL", Asked::Pcall), ("ASK_PERMISSION", Asked::Permission), ("ASK_LOG", Asked::Log)]
    {
        table.raw_set(name, asked.token())?;
    }
    table.raw_set("error_seen", lua.create_function(error_seen)?)?;
    let pulse = control.clone();
    table.raw_set("is_over", lua.create_function(move |_, ()| Ok(pulse.is_over()))?)?;
    table.raw_set("used_bytes", lua.create_function(|lua, ()| Ok(lua.used_memory()))?)?;
    table.raw_set("line", lua.create_function(|lua, ()| Ok(line(lua)))?)?;
    table.raw_set("error_text", lua.create_function(|lua, text| error_text(lua, &text))?)?;
    table.raw_set("text", lua.create_function(|lua, value| lua.coerce_string(value))?)?;
    table.raw_set("sha1hex", lua.create_function(|lua, values| sha1hex(lua, &values))?)?;
    let pulse = control.clone();
    table.raw_set("set_version", lua.create_function(move |lua, value| set_version(lua, &pulse, &value))?)?;
    let pulse = control.clone();
    table.raw_set("repeated", lua.create_function(move |lua, values| repeated(lua, &pulse, values))?)?;
    let pulse = control.clone();
    table.raw_set("find", lua.create_function(move |lua, values| find(lua, &pulse, values, true))?)?;
    let pulse = control.clone();
    table.raw_set("match", lua.create_function(move |lua, values| find(lua, &pulse, values, false))?)?;
    let pulse = control.clone();
    table.raw_set("search", lua.create_function(move |lua, values| search(lua, &pulse, values))?)?;
    let pulse = control.clone();
    table.raw_set("expand", lua.create_function(move |lua, values| expand(lua, &pulse, values))?)?;
    Ok(table)
}

/// `true` and these results.
fn done(lua: &Lua, results: impl IntoIterator<Item = Value>) -> Result<MultiValue> {
    let mut all = MultiValue::from_vec(results.into_iter().collect());
    all.push_front(true.into_lua(lua)?);
    Ok(all)
}

/// `false` and what is wrong.
fn wrong(lua: &Lua, what: &str) -> Result<MultiValue> {
    Ok(MultiValue::from_vec(vec![Value::Boolean(false), what.into_lua(lua)?]))
}

/// The line of the script at which the error was raised. `None` = the script is not on the stack: its last call was the
/// one that failed.
fn line(lua: &Lua) -> Option<usize> {
    for level in 1..64 {
        let found = lua.inspect_stack(level, |frame| {
            let is_script = frame.source().source.as_deref() == Some(CHUNK);
            frame.current_line().filter(|_| is_script)
        })?;
        if found.is_some() {
            return found;
        }
    }
    None
}

/// What a script sees of an error that it has caught.
fn error_seen(lua: &Lua, failure: Value) -> Result<Value> {
    match &failure {
        Value::Error(error) => Ok(Value::String(lua.create_string(message(error))?)),
        Value::String(text) => match without_place(&text.as_bytes()) {
            Some(rest) => Ok(Value::String(lua.create_string(rest)?)),
            None => Ok(failure.clone()),
        },
        _ => Ok(failure),
    }
}

/// An error without its place, if that is in `prelude.lua`: there a function of Lua was called for the script.
pub(crate) fn without_place(text: &[u8]) -> Option<&[u8]> {
    let rest = text.strip_prefix(PRELUDE.as_bytes())?.strip_prefix(b":")?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    rest[digits..].strip_prefix(b": ")
}

/// The text of an error as a reply has it: it begins with a code.
fn error_text(lua: &Lua, text: &LuaString) -> Result<LuaString> {
    let bytes = text.as_bytes();
    let rest = bytes.strip_prefix(b"-").unwrap_or(&bytes);
    let end = rest.len() - rest.iter().rev().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    let rest = &rest[..end];
    match rest.contains(&b' ') {
        true => lua.create_string(rest),
        false => lua.create_string([b"ERR ", rest].concat()),
    }
}

fn sha1hex(lua: &Lua, values: &Variadic<Value>) -> Result<MultiValue> {
    let [value] = &values[..] else { return wrong(lua, "wrong number of arguments") };
    let text = lua.coerce_string(value.clone())?;
    let name = Name::of(&text.map(|text| text.as_bytes().to_vec()).unwrap_or_default());
    done(lua, [lua.create_string(name.digits())?.into_lua(lua)?])
}

fn set_version(lua: &Lua, control: &Control, values: &Variadic<Value>) -> Result<MultiValue> {
    let [value] = &values[..] else {
        return wrong(lua, "server.setresp() requires one argument.");
    };
    control.version.set(match lua.coerce_number(value.clone())? {
        Some(2.0) => Version::Resp2,
        Some(3.0) => Version::Resp3,
        _ => return wrong(lua, "RESP version must be 2 or 3."),
    });
    done(lua, [])
}

/// `string.rep`.
fn repeated(lua: &Lua, control: &Control, values: Variadic<Value>) -> Result<MultiValue> {
    let mut values = values.into_iter();
    let text = lua.coerce_string(values.next().unwrap_or(Value::Nil))?;
    let Some(text) = text else { return wrong(lua, "bad argument #1 to 'rep' (string expected)") };
    let Some(count) = lua.coerce_number(values.next().unwrap_or(Value::Nil))? else {
        return wrong(lua, "bad argument #2 to 'rep' (number expected)");
    };
    if control.is_over() {
        return wrong(lua, "script stopped");
    }
    let count = if count > 0.0 { count as usize } else { 0 };
    let text = text.as_bytes();
    match text.len().checked_mul(count) {
        Some(bytes) if bytes <= control.bytes_left(lua) => {
            done(lua, [lua.create_string(text.repeat(count))?.into_lua(lua)?])
        }
        _ => wrong(lua, "not enough memory"),
    }
}

/// `string.find` and, if `shows_place` is not set, `string.match`.
fn find(lua: &Lua, control: &Control, values: Variadic<Value>, shows_place: bool) -> Result<MultiValue> {
    let name = if shows_place { "find" } else { "match" };
    let mut values = values.into_iter();
    let mut next = || values.next().unwrap_or(Value::Nil);
    let (text, pattern) = match texts(lua, [next(), next()], name)? {
        Ok(texts) => texts,
        Err(what) => return wrong(lua, &what),
    };
    let start = match next() {
        Value::Nil => 1.0,
        value => match lua.coerce_number(value)? {
            Some(start) => start,
            None => return wrong(lua, &format!("bad argument #3 to '{name}' (number expected)")),
        },
    };
    let is_plain = shows_place && !matches!(next(), Value::Nil | Value::Boolean(false));
    let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
    let from = match start {
        ..0.0 => text.len().saturating_sub(-start as usize),
        _ => (start as usize).saturating_sub(1).min(text.len()),
    };
    if shows_place && (is_plain || pattern::is_plain(&pattern)) {
        if control.is_over() {
            return wrong(lua, "script stopped");
        }
        return match memchr::memmem::find(&text[from..], &pattern) {
            Some(at) => done(lua, [from + at + 1, from + at + pattern.len()].map(number)),
            None => done(lua, [Value::Nil]),
        };
    }
    match matched(control, &text, &pattern, from, false) {
        Err(what) => wrong(lua, what),
        Ok(None) => done(lua, [Value::Nil]),
        Ok(Some(found)) => {
            let place = [found.start + 1, found.end].map(number);
            let mut results = if shows_place { place.to_vec() } else { Vec::new() };
            if !shows_place || !found.captures.is_empty() {
                captures(lua, &text, &found, &mut results)?;
            }
            done(lua, results)
        }
    }
}

/// The next match of a pattern in a text from a place on: where it begins and ends, and its captures, or all of it if
/// it has none. The fourth argument: `^` stands for itself.
fn search(lua: &Lua, control: &Control, values: Variadic<Value>) -> Result<MultiValue> {
    let mut values = values.into_iter();
    let mut next = || values.next().unwrap_or(Value::Nil);
    let (text, pattern) = match texts(lua, [next(), next()], "gsub")? {
        Ok(texts) => texts,
        Err(what) => return wrong(lua, &what),
    };
    let from = lua.coerce_number(next())?.unwrap_or(1.0).max(1.0) as usize - 1;
    let is_literal = next().as_boolean() == Some(true);
    let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
    if from > text.len() {
        return done(lua, [Value::Nil]);
    }
    match matched(control, &text, &pattern, from, is_literal) {
        Err(what) => wrong(lua, what),
        Ok(None) => done(lua, [Value::Nil]),
        Ok(Some(found)) => {
            let mut results = [found.start + 1, found.end].map(number).to_vec();
            captures(lua, &text, &found, &mut results)?;
            done(lua, results)
        }
    }
}

/// Searches, unless the time is over.
fn matched(
    control: &Control,
    text: &[u8],
    pattern: &[u8],
    from: usize,
    is_literal: bool,
) -> std::result::Result<Option<Match>, &'static str> {
    if control.is_over() {
        return Err("script stopped");
    }
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err("pattern too complex");
    }
    let mut steps = STEPS_MAX;
    let found = match is_literal {
        true => {
            Pattern::without_anchor(pattern, &mut steps).and_then(|read| read.find(text, from, &mut steps))
        }
        false => pattern::find(text, pattern, from, &mut steps),
    };
    found.map_err(|fault| match fault {
        Fault::Malformed(what) => what,
        Fault::TooLong => "the search for the pattern takes too long",
    })
}

/// A text and a pattern. The inner error says what is wrong with them.
fn texts(
    lua: &Lua,
    values: [Value; 2],
    name: &str,
) -> Result<std::result::Result<(LuaString, LuaString), String>> {
    let [text, pattern] = values;
    Ok(match (lua.coerce_string(text)?, lua.coerce_string(pattern)?) {
        (Some(text), Some(pattern)) => Ok((text, pattern)),
        (None, _) => Err(format!("bad argument #1 to '{name}' (string expected)")),
        (_, None) => Err(format!("bad argument #2 to '{name}' (string expected)")),
    })
}

fn number(number: usize) -> Value {
    Value::Number(number as f64)
}

/// Appends the captures of a match, or all of it if it has none.
fn captures(lua: &Lua, text: &[u8], found: &Match, results: &mut Vec<Value>) -> Result<()> {
    if found.captures.is_empty() {
        results.push(Value::String(lua.create_string(&text[found.start..found.end])?));
    }
    for capture in &found.captures {
        results.push(match capture {
            Capture::Text(range) => Value::String(lua.create_string(&text[range.clone()])?),
            Capture::Position(place) => number(*place),
        });
    }
    Ok(())
}

/// The replacement of a match: `%0` is all of it, `%1` to `%9` its captures.
fn expand(
    lua: &Lua,
    control: &Control,
    (by, whole, captures): (LuaString, LuaString, Variadic<Value>),
) -> Result<MultiValue> {
    let (by, bytes_left) = (by.as_bytes(), control.bytes_left(lua));
    let mut text = Vec::with_capacity(by.len());
    let mut bytes = by.iter();
    while let Some(byte) = bytes.next() {
        if text.len() > bytes_left {
            return wrong(lua, "not enough memory");
        }
        match byte {
            b'%' => match bytes.next() {
                Some(b'0') => text.extend_from_slice(&whole.as_bytes()),
                Some(digit @ b'1'..=b'9') => match captures.get(usize::from(digit - b'1')) {
                    Some(capture) => {
                        let capture = lua.coerce_string(capture.clone())?;
                        text.extend_from_slice(
                            &capture.map(|text| text.as_bytes().to_vec()).unwrap_or_default(),
                        );
                    }
                    None => return wrong(lua, "invalid capture index"),
                },
                Some(other) => text.push(*other),
                None => {}
            },
            byte => text.push(*byte),
        }
    }
    done(lua, [Value::String(lua.create_string(text)?)])
}

/// `loadstring`: a function, or nil and what is wrong. No compiled code is loaded.
pub(crate) fn compile(
    lua: &Lua,
    control: &Control,
    environment: &Table,
    values: Variadic<Value>,
) -> Result<MultiValue> {
    let mut values = values.into_iter();
    let refused = |what: &str| Ok(MultiValue::from_vec(vec![Value::Nil, what.into_lua(lua)?]));
    let Some(Value::String(text)) = values.next() else { return refused("string expected") };
    let name = values.next().and_then(|name| name.as_string().map(LuaString::to_string_lossy));
    let name = name.unwrap_or_else(|| text.to_string_lossy().chars().take(60).collect());
    let text = text.as_bytes();
    if text.len() > COMPILED_BYTES_MAX || control.is_over() {
        return refused("the text is too long to be compiled within a script");
    }
    let chunk = lua.load(&*text).set_mode(ChunkMode::Text).set_name(name);
    match chunk.set_environment(environment.clone()).into_function() {
        Ok(function) => Ok(MultiValue::from_vec(vec![Value::Function(function)])),
        Err(error) => refused(&message(&error)),
    }
}

/// What an error of Lua says, without the place in the server's own code.
pub(crate) fn message(error: &mlua::Error) -> String {
    let text = match error {
        mlua::Error::SyntaxError { message, .. } => message.clone(),
        mlua::Error::RuntimeError(message) | mlua::Error::MemoryError(message) => message.clone(),
        mlua::Error::CallbackError { cause, .. } => return message(cause),
        other => other.to_string(),
    };
    text.split("\nstack traceback:").next().unwrap_or_default().to_owned()
}
