//! What the libraries share: calls and arguments, failures, limits.

use crate::number::whole;
use mlua::{Lua, LuaString, MultiValue, Table, Value};
use std::cell::Cell;
use std::rc::Rc;

/// The most levels of nesting that a value can have, whatever a script allows: each level holds up to two
/// references, and a Lua 5.1 state has room for about 8000.
pub(super) const DEEPEST: usize = 2000;

/// The most arguments and the most results of one call, a little under what a Lua 5.1 stack and mlua's
/// references hold.
pub(super) const MOST_VALUES: usize = 7800;

/// The number of steps between two questions to the pulse.
const STEPS: u32 = 1000;

/// What a long-running library function asks now and then (every 1000 elements or so): `true` = stop with the
/// message "script stopped".
pub(crate) trait Pulse {
    /// The most memory that the script may have, in bytes.
    fn bytes_max(&self) -> usize;

    /// Whether the time is over.
    fn is_over(&self) -> bool;
}

/// Why a function has no results.
#[derive(Debug)]
pub(super) enum Failure {
    /// The message for the script.
    Message(Vec<u8>),
    /// An error of the Lua state.
    State(mlua::Error),
}

impl From<mlua::Error> for Failure {
    fn from(error: mlua::Error) -> Self {
        Self::State(error)
    }
}

pub(super) type Answer<T> = Result<T, Failure>;

/// A failure with this message.
pub(super) fn failure(message: impl Into<Vec<u8>>) -> Failure {
    Failure::Message(message.into())
}

/// The count of a library's steps, which asks the pulse now and then.
#[derive(Clone)]
pub(super) struct Clock {
    pulse: Rc<dyn Pulse>,
    steps: Rc<Cell<u32>>,
}

impl Clock {
    pub(super) fn new(pulse: Rc<dyn Pulse>) -> Clock {
        Clock { pulse, steps: Rc::default() }
    }

    /// One step of a function that has written this number of bytes.
    pub(super) fn tick(&self, written: usize) -> Answer<()> {
        self.steps.set(self.steps.get().wrapping_add(1));
        if self.steps.get().is_multiple_of(STEPS) && self.pulse.is_over() {
            return Err(failure("script stopped"));
        }
        if written > self.pulse.bytes_max() {
            return Err(failure("result too long"));
        }
        Ok(())
    }
}

/// One call of a function: its name and its arguments, which count from 1.
pub(super) struct Call<'a> {
    pub(super) lua: &'a Lua,
    name: &'static str,
    pub(super) arguments: Vec<Value>,
}

impl Call<'_> {
    pub(super) fn argument(&self, index: usize) -> Option<&Value> {
        self.arguments.get(index.wrapping_sub(1))
    }

    pub(super) fn is_absent(&self, index: usize) -> bool {
        matches!(self.argument(index), None | Some(Value::Nil))
    }

    /// The argument as a number; a string that reads as one counts.
    pub(super) fn number(&self, index: usize) -> Answer<f64> {
        let number = match self.argument(index) {
            Some(Value::Integer(integer)) => Some(*integer as f64),
            Some(Value::Number(number)) => Some(*number),
            Some(text @ Value::String(_)) => self.lua.coerce_number(text.clone())?,
            _ => None,
        };
        number.ok_or_else(|| self.expected(index, "number"))
    }

    pub(super) fn integer(&self, index: usize) -> Answer<i64> {
        self.number(index).map(whole)
    }

    /// The argument as a string; a number counts.
    pub(super) fn text(&self, index: usize) -> Answer<LuaString> {
        let text = match self.argument(index) {
            Some(value) => self.lua.coerce_string(value.clone())?,
            None => None,
        };
        text.ok_or_else(|| self.expected(index, "string"))
    }

    /// The failure that the argument is of another type than this one.
    pub(super) fn expected(&self, index: usize, wanted: &str) -> Failure {
        let found = self.argument(index).map_or("no value", kind);
        self.bad(index, format!("{wanted} expected, got {found}"))
    }

    /// The failure that the argument is bad, for this reason.
    pub(super) fn bad(&self, index: usize, reason: impl AsRef<[u8]>) -> Failure {
        let start = format!("bad argument #{index} to '{}' (", self.name);
        failure([start.as_bytes(), reason.as_ref(), b")"].concat())
    }
}

/// The name of a value's type in Lua.
pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Nil => "nil",
        Value::Boolean(_) => "boolean",
        Value::Integer(_) | Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Table(_) => "table",
        Value::Function(_) => "function",
        Value::Thread(_) => "thread",
        _ => "userdata",
    }
}

/// Adds a function to a library.
pub(super) fn add<F>(lua: &Lua, library: &Table, name: &'static str, function: F) -> mlua::Result<()>
where
    F: Fn(&Call) -> Answer<Vec<Value>> + 'static,
{
    let native = lua.create_function(move |lua, arguments: MultiValue| {
        let call = Call { lua, name, arguments: arguments.into_iter().collect() };
        let answer = if call.arguments.len() > MOST_VALUES {
            Err(failure("stack overflow (too many arguments)"))
        } else {
            function(&call)
        };
        let (success, mut results) = match answer {
            Ok(results) => (true, MultiValue::from_iter(results)),
            Err(failure) => (false, MultiValue::from_iter([message(lua, failure)?])),
        };
        results.push_front(Value::Boolean(success));
        Ok(results)
    })?;
    library.raw_set(name, native)
}

/// A failure's message as a value; only the lack of memory stays an error.
fn message(lua: &Lua, failure: Failure) -> mlua::Result<Value> {
    let text = match failure {
        Failure::Message(text) => text,
        Failure::State(error @ mlua::Error::MemoryError(_)) => return Err(error),
        Failure::State(mlua::Error::StackError) => b"stack overflow".to_vec(),
        Failure::State(error) => error.to_string().into_bytes(),
    };
    lua.create_string(text).map(Value::String)
}
