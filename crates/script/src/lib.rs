//! Lua scripts, as Redis and Valkey run them.
//!
//! An [`Interpreter`] is one worker's Lua 5.1 with the functions and libraries that scripts of Redis have: `redis.call`
//! and its like, `cjson`, `cmsgpack`, `bit`, `struct`. What a script asks for is done by a [`Host`]. Scripts share
//! nothing: no script can change a global variable or a library, and each run begins with its own `KEYS` and `ARGV`.
//!
//! A run has [`Limits`]. A script that takes more time or memory is stopped wherever it is, also within `pcall`, in a
//! coroutine, or in a search for a pattern.
//!
//! * `interpreter` compiles and runs, `control` stops, `prelude.lua` is what scripts see, `asked` what they ask for;
//! * `native` has the functions that `prelude.lua` is built on, `libraries` those of `cjson` and the like, `pattern`
//!   searches for patterns;
//! * `convert` turns replies into Lua's values and back, `number` writes numbers as Redis does;
//! * `name` is what a script is called, `header` its first line.

#![forbid(unsafe_code)]

mod asked;
mod control;
mod convert;
mod header;
mod interpreter;
mod libraries;
mod name;
mod native;
mod number;
mod pattern;

pub use control::{LONGEST, Limits, Stop, processor_time};
pub use header::Header;
pub use interpreter::{Called, Host, Interpreter, Request};
pub use name::Name;
