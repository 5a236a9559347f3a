//! The libraries that Redis and Valkey give to scripts besides Lua's own: `bit`, `cjson`, `cmsgpack` and `struct`.
//!
//! No function here raises an error of Lua. Each returns `true` and its results, or `false` and a message, which a
//! wrapper in Lua raises: an error of Rust would reach the script as a userdata.

mod bit;
mod call;
mod json;
mod msgpack;
mod pack;

pub(crate) use call::Pulse;

use call::Clock;
use mlua::{Lua, Table};
use std::rc::Rc;

/// The four libraries, as a table of tables of native functions: `{ bit = {...}, cjson = {...},
/// cmsgpack = {...}, struct = {...} }`.
///
/// The state's global `next` has to be there still. `cjson.new` returns a table of native functions again,
/// which the wrapper has to wrap as it does `cjson` itself.
pub(crate) fn native(lua: &Lua, pulse: Rc<dyn Pulse>) -> mlua::Result<Table> {
    let clock = Clock::new(pulse);
    let libraries = lua.create_table()?;
    libraries.raw_set("bit", bit::library(lua)?)?;
    libraries.raw_set("cjson", json::library(lua, &clock)?)?;
    libraries.raw_set("cmsgpack", msgpack::library(lua, &clock)?)?;
    libraries.raw_set("struct", pack::library(lua, &clock)?)?;
    Ok(libraries)
}

#[cfg(test)]
mod tests;
