//! Replies of RESP as values of Lua, and values of Lua as replies.

use crate::control::{Control, STOPPED, Stop};
use crate::libraries::Pulse;
use crate::number::{self, whole};
use larder_protocol::resp::{Version, compose as words};
use mlua::{Error, Lua, Result, Table, Value};

/// Tables within tables that are answered, at most.
const DEPTH_MAX: usize = 128;
/// What a value takes beside its text, about, in bytes.
const HEAD_BYTES: usize = 8;

/// The next line of a reply, without its end.
fn line<'a>(reply: &mut &'a [u8]) -> &'a [u8] {
    let end = reply.windows(2).position(|two| two == b"\r\n").unwrap_or(reply.len());
    let line = &reply[..end];
    *reply = reply.get(end + 2..).unwrap_or_default();
    line
}

fn count(text: &[u8]) -> i64 {
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).unwrap_or(-1)
}

/// The bytes of a bulk string of this length.
fn bulk<'a>(reply: &mut &'a [u8], length: i64) -> Option<&'a [u8]> {
    let length = usize::try_from(length).ok()?;
    let bytes = reply.get(..length)?;
    *reply = reply.get(length + 2..).unwrap_or_default();
    Some(bytes)
}

/// A table with one field.
pub(crate) fn single(lua: &Lua, name: &str, value: impl mlua::IntoLua) -> Result<Value> {
    let table = lua.create_table_with_capacity(0, 1)?;
    table.raw_set(name, value)?;
    Ok(Value::Table(table))
}

/// Turns the reply at the front of `reply` into a value, as Redis does.
///
/// # Errors
/// There is no memory for it.
pub(crate) fn value_of(lua: &Lua, reply: &mut &[u8]) -> Result<Value> {
    let head = line(reply);
    let (kind, rest) = head.split_first().map_or((b'_', &[][..]), |(kind, rest)| (*kind, rest));
    Ok(match kind {
        b':' => Value::Number(count(rest) as f64),
        b'$' => match bulk(reply, count(rest)) {
            Some(bytes) => Value::String(lua.create_string(bytes)?),
            None => Value::Boolean(false),
        },
        b'+' => single(lua, "ok", lua.create_string(rest)?)?,
        b'-' => single(lua, "err", lua.create_string(rest)?)?,
        b'*' if rest.first() == Some(&b'-') => Value::Boolean(false),
        b'*' => Value::Table(elements(lua, reply, count(rest))?),
        b'%' => single(lua, "map", pairs(lua, reply, count(rest), value_of)?)?,
        b'~' => single(lua, "set", pairs(lua, reply, count(rest), |_, _| Ok(Value::Boolean(true)))?)?,
        b'#' => Value::Boolean(rest == b"t"),
        b',' => {
            let number = std::str::from_utf8(rest).ok().and_then(|text| text.parse::<f64>().ok());
            single(lua, "double", number.unwrap_or(f64::NAN))?
        }
        b'=' => {
            let text = bulk(reply, count(rest)).unwrap_or_default();
            let (format, string) = (text.get(..3).unwrap_or_default(), text.get(4..).unwrap_or_default());
            let table = lua.create_table()?;
            table.raw_set("format", lua.create_string(format)?)?;
            table.raw_set("string", lua.create_string(string)?)?;
            single(lua, "verbatim_string", table)?
        }
        _ => Value::Nil,
    })
}

fn elements(lua: &Lua, reply: &mut &[u8], count: i64) -> Result<Table> {
    let count = usize::try_from(count).unwrap_or(0);
    // What was announced is there: the reply is the server's own.
    let table = lua.create_table_with_capacity(count, 0)?;
    for at in 1..=count {
        table.raw_set(at, value_of(lua, reply)?)?;
    }
    Ok(table)
}

fn pairs(
    lua: &Lua,
    reply: &mut &[u8],
    count: i64,
    value: impl Fn(&Lua, &mut &[u8]) -> Result<Value>,
) -> Result<Table> {
    let count = usize::try_from(count).unwrap_or(0);
    let table = lua.create_table_with_capacity(0, count)?;
    for _ in 0..count {
        let key = value_of(lua, reply)?;
        table.raw_set(key, value(lua, reply)?)?;
    }
    Ok(table)
}

/// How replies are worded: for the client, and as the script has asked for (`redis.setresp`).
#[derive(Clone, Copy)]
pub(crate) struct Wording {
    pub(crate) client: Version,
    pub(crate) script: Version,
}

/// What an answer is composed with.
struct Answer<'a> {
    wording: Wording,
    control: &'a Control,
    /// How many bytes it may still have.
    bytes_left: usize,
}

/// Appends a value as a reply, as Redis does.
///
/// # Errors
/// There is no memory for it, or the time is over.
pub(crate) fn answer(
    value: &Value,
    wording: Wording,
    control: &Control,
    lua: &Lua,
    out: &mut Vec<u8>,
) -> Result<()> {
    let bytes_left = control.bytes_left(lua);
    Answer { wording, control, bytes_left }.value(value, out, 0)
}

impl Answer<'_> {
    /// Takes room for a value with this number of bytes.
    fn take(&mut self, bytes: usize) -> Result<()> {
        if self.control.is_over() {
            return Err(Error::runtime(STOPPED));
        }
        match self.bytes_left.checked_sub(bytes + HEAD_BYTES) {
            Some(left) => self.bytes_left = left,
            None => {
                self.control.stop(Stop::Memory);
                return Err(Error::runtime(STOPPED));
            }
        }
        Ok(())
    }

    fn value(&mut self, value: &Value, out: &mut Vec<u8>, depth: usize) -> Result<()> {
        let Wording { client, script } = self.wording;
        self.take(if let Value::String(text) = value { text.as_bytes().len() } else { 0 })?;
        match value {
            Value::String(text) => words::bulk(out, &text.as_bytes()),
            Value::Integer(number) => words::integer(out, *number),
            Value::Number(number) => words::integer(out, whole(*number)),
            Value::Boolean(is_true) => match script {
                Version::Resp2 if *is_true => words::integer(out, 1),
                Version::Resp2 => words::null(out, client),
                Version::Resp3 if client == Version::Resp2 => words::integer(out, (*is_true).into()),
                Version::Resp3 => out.extend_from_slice(if *is_true { b"#t\r\n" } else { b"#f\r\n" }),
            },
            Value::Table(_) if depth >= DEPTH_MAX => words::error(out, b"ERR reached lua stack limit"),
            Value::Table(table) => self.table(table, out, depth)?,
            _ => words::null(out, client),
        }
        Ok(())
    }

    /// A table that has a field of this name with such a value stands for something else than an array.
    fn table(&mut self, table: &Table, out: &mut Vec<u8>, depth: usize) -> Result<()> {
        let Wording { client, .. } = self.wording;
        // Most tables have elements, and nothing else.
        match (table.raw_get("err")?, table.raw_get("ok")?) {
            (Value::String(text), _) => {
                self.take(text.as_bytes().len())?;
                words::error(out, &text.as_bytes());
                return Ok(());
            }
            (_, Value::String(text)) => {
                self.take(text.as_bytes().len())?;
                let text: Vec<u8> = text.as_bytes().iter().map(|byte| without_end(*byte)).collect();
                out.push(b'+');
                out.extend_from_slice(&text);
                out.extend_from_slice(b"\r\n");
                return Ok(());
            }
            _ => {}
        }
        if let Some(float) = float(&table.raw_get("double")?) {
            let mut text = Vec::new();
            number::write(float, &mut text);
            match client {
                Version::Resp2 => words::bulk(out, &text),
                Version::Resp3 => out.extend_from_slice(&[b",", &text[..], b"\r\n"].concat()),
            }
            return Ok(());
        }
        if let Value::Table(map) = table.raw_get("map")? {
            let (mut pairs, mut count) = (Vec::new(), 0);
            for pair in map.pairs() {
                let (key, value): (Value, Value) = pair?;
                self.value(&key, &mut pairs, depth + 1)?;
                self.value(&value, &mut pairs, depth + 1)?;
                count += 1;
            }
            words::map_head(out, client, count);
            out.extend_from_slice(&pairs);
            return Ok(());
        }
        if let Value::Table(set) = table.raw_get("set")? {
            let (mut members, mut count) = (Vec::new(), 0);
            for pair in set.pairs() {
                let (member, _): (Value, Value) = pair?;
                self.value(&member, &mut members, depth + 1)?;
                count += 1;
            }
            words::set_head(out, client, count);
            out.extend_from_slice(&members);
            return Ok(());
        }
        if let Value::String(text) = table.raw_get("big_number")? {
            self.take(text.as_bytes().len())?;
            let text: Vec<u8> = text.as_bytes().iter().map(|byte| without_end(*byte)).collect();
            match client {
                Version::Resp2 => words::bulk(out, &text),
                Version::Resp3 => out.extend_from_slice(&[b"(", &text[..], b"\r\n"].concat()),
            }
            return Ok(());
        }
        if let Value::Table(verbatim) = table.raw_get("verbatim_string")?
            && let (Value::String(format), Value::String(text)) =
                (verbatim.raw_get("format")?, verbatim.raw_get("string")?)
        {
            self.take(text.as_bytes().len())?;
            match client {
                Version::Resp2 => words::bulk(out, &text.as_bytes()),
                Version::Resp3 => {
                    let format: Vec<u8> = format.as_bytes().iter().copied().chain(*b"   ").take(3).collect();
                    let body = [&format[..], b":", &text.as_bytes()].concat();
                    out.extend_from_slice(format!("={}\r\n", body.len()).as_bytes());
                    out.extend_from_slice(&body);
                    out.extend_from_slice(b"\r\n");
                }
            }
            return Ok(());
        }
        self.elements(table, out, depth)
    }

    /// An array ends before its first nil.
    fn elements(&mut self, table: &Table, out: &mut Vec<u8>, depth: usize) -> Result<()> {
        let mut elements = Vec::new();
        let mut count = 0;
        loop {
            let value: Value = table.raw_get(count + 1)?;
            if value.is_nil() {
                break;
            }
            count += 1;
            self.value(&value, &mut elements, depth + 1)?;
        }
        words::array_head(out, count);
        out.extend_from_slice(&elements);
        Ok(())
    }
}

fn float(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => Some(*number),
        Value::Integer(number) => Some(*number as f64),
        _ => None,
    }
}

/// A line end within a line is a space.
fn without_end(byte: u8) -> u8 {
    if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }
}
