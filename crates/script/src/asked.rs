//! What `redis.call` and the like ask for.

use mlua::{LightUserData, MultiValue, Value};

/// What `redis.call` is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    /// A command, whose error is raised.
    Call,
    /// A command, whose error is a value (`redis.pcall`).
    Pcall,
    /// Whether the client may execute a command.
    Permission,
    /// A line in the log.
    Log,
}

impl Asked {
    const ALL: [Asked; 4] = [Asked::Call, Asked::Pcall, Asked::Permission, Asked::Log];

    /// The first argument that asks for it. No script can make such a value.
    pub(crate) fn token(self) -> Value {
        Value::LightUserData(LightUserData(std::ptr::without_provenance_mut(self as usize)))
    }

    /// Takes what is asked for from the arguments.
    pub(crate) fn take(values: &mut MultiValue) -> Asked {
        let token = match values.front() {
            Some(Value::LightUserData(token)) => token.0.addr(),
            _ => return Asked::Call,
        };
        let asked = Asked::ALL.get(token).copied().filter(|asked| *asked != Asked::Call);
        if asked.is_some() {
            values.pop_front();
        }
        asked.unwrap_or(Asked::Call)
    }
}
