//! The way from a JSON text to a Lua value.
//!
//! The brackets are followed without recursion: `serde_json` would need up to 3 KB of stack for each level,
//! and refuses texts that lua-cjson takes. Only strings with escapes are left to it, and numbers to Rust.

use super::super::call::{Answer, Clock, DEEPEST, Failure, failure};
use super::scan::{Scanner, Token};
use super::{Invalid, Settings};
use mlua::{Lua, LuaString, Table, Value};

/// The value of a JSON text. All numbers are doubles, and null is the light userdata NULL.
pub(super) fn decode(lua: &Lua, text: &[u8], settings: Settings, clock: &Clock) -> Answer<Value> {
    if text.len() > 1 && text[..2].contains(&0) {
        return Err(failure("JSON parser does not support UTF-16 or UTF-32"));
    }
    let scanner = Scanner::new(text, settings.decode_invalid == Invalid::Allowed);
    let deepest = DEEPEST.min(settings.decode_depth as usize);
    let mut decoder = Decoder { lua, scanner, deepest, levels: Vec::new() };
    let mut token = decoder.scanner.next();
    loop {
        clock.tick(0)?;
        token = match decoder.value(token)? {
            Step::Token(token) => token,
            Step::Value(value) => match decoder.place(value)? {
                Step::Token(token) => token,
                Step::Value(value) => return Ok(value),
            },
        }
    }
}

/// A table that is being read; it is an object where it has a key.
struct Level {
    table: Table,
    key: Option<LuaString>,
    count: i64,
}

/// What comes next: a value's first token, or a value that is complete.
enum Step<'a> {
    Token(Token<'a>),
    Value(Value),
}

struct Decoder<'a> {
    lua: &'a Lua,
    scanner: Scanner<'a>,
    deepest: usize,
    levels: Vec<Level>,
}

impl<'a> Decoder<'a> {
    /// The value that begins with this token; of a table only the beginning, unless it is empty.
    fn value(&mut self, token: Token<'a>) -> Answer<Step<'a>> {
        Ok(Step::Value(match token {
            Token::Null => Value::NULL,
            Token::Boolean(boolean) => Value::Boolean(boolean),
            Token::Number(number) => Value::Number(number),
            Token::Text(text) => Value::String(self.lua.create_string(text)?),
            Token::ArrayBegin => return self.begin(false),
            Token::ObjectBegin => return self.begin(true),
            other => return Err(self.unexpected("value", &other)),
        }))
    }

    fn begin(&mut self, is_object: bool) -> Answer<Step<'a>> {
        let depth = self.levels.len() + 1;
        if depth > self.deepest {
            let place = self.scanner.place();
            let text = format!("Found too many nested data structures ({depth}) at character {place}");
            return Err(failure(text));
        }
        let table = self.lua.create_table()?;
        let token = self.scanner.next();
        let (key, token) = match token {
            Token::ArrayEnd if !is_object => return Ok(Step::Value(Value::Table(table))),
            Token::ObjectEnd if is_object => return Ok(Step::Value(Value::Table(table))),
            token if is_object => (Some(self.key(token)?), self.scanner.next()),
            token => (None, token),
        };
        self.levels.push(Level { table, key, count: 0 });
        Ok(Step::Token(token))
    }

    /// The key that this token is, with the colon behind it.
    fn key(&mut self, token: Token<'a>) -> Answer<LuaString> {
        let Token::Text(text) = token else { return Err(self.unexpected("object key string", &token)) };
        match self.scanner.next() {
            Token::Colon => Ok(self.lua.create_string(text)?),
            other => Err(self.unexpected("colon", &other)),
        }
    }

    /// Puts a complete value where it belongs, and each table that is complete with it.
    fn place(&mut self, mut value: Value) -> Answer<Step<'a>> {
        while let Some(mut level) = self.levels.pop() {
            level.count += 1;
            let is_object = level.key.is_some();
            match level.key.take() {
                Some(key) => level.table.raw_set(key, value)?,
                None => level.table.raw_set(level.count, value)?,
            }
            match self.scanner.next() {
                Token::Comma => {
                    let mut token = self.scanner.next();
                    if is_object {
                        level.key = Some(self.key(token)?);
                        token = self.scanner.next();
                    }
                    self.levels.push(level);
                    return Ok(Step::Token(token));
                }
                Token::ArrayEnd if !is_object => value = Value::Table(level.table),
                Token::ObjectEnd if is_object => value = Value::Table(level.table),
                other if is_object => return Err(self.unexpected("comma or object end", &other)),
                other => return Err(self.unexpected("comma or array end", &other)),
            }
        }
        match self.scanner.next() {
            Token::End => Ok(Step::Value(value)),
            other => Err(self.unexpected("the end", &other)),
        }
    }

    fn unexpected(&self, wanted: &str, token: &Token) -> Failure {
        let (found, place) = (token.name(), self.scanner.place());
        failure(format!("Expected {wanted} but found {found} at character {place}"))
    }
}
