//! What the table says of a setting ([`Row`]): how it is named, spelt and shown, where its value is in [`Settings`],
//! and what becomes of a new value while the server runs.

use super::all::Settings;
use super::fleet::FleetSettings;
use super::values::Kind;
use larder_cache::Cache;

/// One setting, or a flag that stands for others.
pub struct Row {
    /// memcached's letter, if it has one.
    pub letter: Option<char>,
    /// Its name: that of the long flag, which is also the key of the settings file; `flash.tuning.KEY` for a key of
    /// that table; or `fleet`.
    pub name: &'static str,
    /// The name in memcached's `-o` list, if any.
    pub option: Option<&'static str>,
    /// What follows the flag.
    pub takes: Takes,
    /// The section of the help.
    pub topic: Topic,
    /// One sentence for the help, with the unit.
    pub help: &'static str,
    /// The default that the help shows, where it is not as [`Row::default`] finds it.
    pub default: Option<&'static str>,
    /// A valid value that differs from the default, for errors and tests; empty for a switch.
    pub example: &'static str,
    /// For a key of `[flash.tuning]`: the figure of `stats flash` that shows when another value pays.
    pub figure: &'static str,
    /// Where the value is, and how it is spelt.
    pub value: &'static dyn Place,
    /// What becomes of a new value while the server runs.
    pub change: Change,
}

/// What follows a flag.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    /// Nothing, or `=true` or `=false`.
    Nothing,
    /// Nothing, or `=N`. The number of times the flag is given counts.
    Count,
    /// One value with this name in the help.
    Value(&'static str),
    /// Values separated by commas; the flag may be repeated.
    List(&'static str),
    /// Options of memcached (`-o`), each of which may stand for a flag. With their name in the help.
    Options(&'static str),
}

/// The sections of the help, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the sections have their names")]
pub enum Topic {
    Network,
    Memory,
    Flash,
    Limits,
    Protocol,
    Tls,
    Process,
    Watching,
    Compatibility,
    /// Known only so that the error can explain why the flag is not supported; in no help.
    Refused,
    /// Keys of `[flash.tuning]` of the settings file, which are no flags.
    Tuning,
    /// Sections of the settings file that are neither flags nor keys with one value.
    Section,
}

/// What becomes of a new value while the server runs.
#[derive(Clone, Copy)]
pub enum Change {
    /// It takes effect at once, whether the settings file or a client has it. The function says why that is not
    /// possible, or does what is to be done before the value is taken.
    Live(Apply),
    /// The same, but clients cannot change it: it says what clients may do, or names a file.
    ByFile(Apply),
    /// It takes effect at the next start, for this reason.
    AtStart(&'static str),
    /// The row has no value of its own.
    NoSetting,
}

/// What is to be done before the value of a setting in the second `Settings` replaces that in the first, which are in
/// effect.
pub type Apply = fn(&dyn Effects, &Settings, &Settings) -> Result<(), String>;

/// Nothing is to be done: whoever needs the value looks at the settings in effect.
const NOTHING: Apply = |_, _, _| Ok(());

/// The setting takes effect at once, and nothing else is to be done.
pub(super) const LIVE: Change = Change::Live(NOTHING);
/// The same, but by the settings file only.
pub(super) const BY_FILE: Change = Change::ByFile(NOTHING);
pub(super) const LISTENERS: Change = Change::AtStart("listeners are opened once");
pub(super) const ARENA: Change = Change::AtStart("memory is laid out once");
pub(super) const THREADS: Change = Change::AtStart("threads are started once");
pub(super) const DEVICES: Change = Change::AtStart("flash is opened once");
pub(super) const CONNECTIONS: Change = Change::AtStart("connections that are open rely on it");
pub(super) const PREPARED: Change = Change::AtStart("the process is prepared once");

/// A row that says nothing yet. Others are made from it.
pub(super) const ROW: Row = Row {
    letter: None,
    name: "",
    option: None,
    takes: Takes::Nothing,
    topic: Topic::Network,
    help: "",
    default: None,
    example: "",
    figure: "",
    value: &Given(|_, _| Ok(())),
    change: Change::NoSetting,
};

/// What a change of settings reaches in a running server.
pub trait Effects {
    /// The cache.
    fn cache(&self) -> &Cache;

    /// Gives the server this much memory, buffers included. `now`: the settings in effect.
    ///
    /// # Errors
    /// Why that is not possible.
    fn set_memory_bytes(&self, now: &Settings, memory_bytes: u64) -> Result<(), String>;

    /// Lets the process have this many connections. `now`: the settings in effect.
    ///
    /// # Errors
    /// Why that is not possible.
    fn make_room_for_connections(&self, now: &Settings, connections_max: u32) -> Result<(), String>;

    /// Reads the file of users that these settings name.
    ///
    /// # Errors
    /// What is wrong with it.
    fn read_users(&self, settings: &Settings) -> Result<(), String>;

    /// Logs as much as this verbosity asks for.
    fn set_verbosity(&self, verbosity: u8);

    /// The server is part of this fleet, or of none.
    fn set_fleet(&self, fleet: Option<&FleetSettings>);
}

/// The program around the server. It knows where settings come from.
pub trait Host: Send + Sync {
    /// The settings as flags, settings file and environment have them today.
    ///
    /// # Errors
    /// One line that says what is wrong with them.
    fn read_settings(&self) -> Result<Settings, String>;

    /// Logs as much as this verbosity asks for, from now on.
    fn set_verbosity(&self, level: u8);

    /// Raises the limits of the process to what these settings need.
    ///
    /// # Errors
    /// One line that says what to do.
    fn raise_limits(&self, settings: &Settings) -> Result<(), String>;
}

impl Row {
    /// Sets the value that a text means. A switch gets `true` or `false`, a counter the number of times it was given.
    ///
    /// # Errors
    /// A description of a valid value.
    pub fn set(&self, settings: &mut Settings, text: &str) -> Result<(), String> {
        self.value.set(settings, text)
    }

    /// The value as it would be written after the flag; empty if there is none.
    pub fn text(&self, settings: &Settings) -> String {
        self.value.text(settings)
    }

    /// Whether it is a flag, not only a key of the settings file.
    pub fn is_flag(&self) -> bool {
        !matches!(self.topic, Topic::Tuning | Topic::Section)
    }

    /// Whether it is a flag that has an effect.
    pub fn is_obeyed_flag(&self) -> bool {
        self.is_flag() && self.topic != Topic::Refused
    }

    /// Its name within its table of the settings file.
    pub fn key(&self) -> &'static str {
        self.name.rsplit('.').next().unwrap_or(self.name)
    }

    /// The default as the help shows it. Empty where there is none, and for a switch that is off.
    pub fn default(&self) -> String {
        match self.default {
            Some(shown) => shown.to_owned(),
            None => Some(self.text(&Settings::default())).filter(|text| text != "false").unwrap_or_default(),
        }
    }

    /// When a new value takes effect.
    pub fn takes_effect(&self) -> String {
        match self.change {
            Change::Live(_) => "at once".to_owned(),
            Change::ByFile(_) => "at once, by the settings file only".to_owned(),
            Change::AtStart(why) => format!("at the next start: {why}"),
            Change::NoSetting => String::new(),
        }
    }
}

/// The place of a value in [`Settings`], and its spelling.
pub trait Place: Sync {
    /// Sets the value that a text means. The error describes a valid value.
    ///
    /// # Errors
    /// A description of a valid value.
    fn set(&self, settings: &mut Settings, text: &str) -> Result<(), String>;

    /// The text that means the value.
    fn text(&self, settings: &Settings) -> String;

    /// Takes the value from other settings.
    fn copy(&self, to: &mut Settings, from: &Settings);
}

/// A field of [`Settings`]. The macro [`at!`](at) makes one.
pub(super) struct At<T: 'static, K> {
    pub(super) kind: K,
    pub(super) field: fn(&Settings) -> &T,
    pub(super) field_mut: fn(&mut Settings) -> &mut T,
    /// What else a value that was given says.
    pub(super) then: fn(&mut Settings),
}

impl<T: Clone, K: Kind<T>> Place for At<T, K> {
    fn set(&self, settings: &mut Settings, text: &str) -> Result<(), String> {
        *(self.field_mut)(settings) = self.kind.read(text)?;
        (self.then)(settings);
        Ok(())
    }

    fn text(&self, settings: &Settings) -> String {
        self.kind.write((self.field)(settings))
    }

    fn copy(&self, to: &mut Settings, from: &Settings) {
        (self.field_mut)(to).clone_from((self.field)(from));
    }
}

/// `at!(FIELD, KIND)`: the place of a field, and how its value is spelt. `at!(FIELD, KIND, then FUNCTION)`: the
/// function changes what else the value says.
macro_rules! at {
    ($($field:ident).+, $kind:expr) => { at!($($field).+, $kind, then |_| {}) };
    ($($field:ident).+, $kind:expr, then $then:expr) => {
        &At { kind: $kind, field: |s| &s.$($field).+, field_mut: |s| &mut s.$($field).+, then: $then }
    };
}
pub(super) use at;

/// A part of what a field says.
pub(super) struct Part {
    pub(super) set: fn(&mut Settings, &str) -> Result<(), String>,
    pub(super) text: fn(&Settings) -> String,
    pub(super) copy: fn(&mut Settings, &Settings),
}

impl Place for Part {
    fn set(&self, settings: &mut Settings, text: &str) -> Result<(), String> {
        (self.set)(settings, text)
    }

    fn text(&self, settings: &Settings) -> String {
        (self.text)(settings)
    }

    fn copy(&self, to: &mut Settings, from: &Settings) {
        (self.copy)(to, from);
    }
}

/// No value of its own: a text is given to this function, which says what is wrong with it or changes settings.
pub(super) struct Given(pub(super) fn(&mut Settings, &str) -> Result<(), String>);

impl Place for Given {
    fn set(&self, settings: &mut Settings, text: &str) -> Result<(), String> {
        (self.0)(settings, text)
    }

    fn text(&self, _: &Settings) -> String {
        String::new()
    }

    fn copy(&self, _: &mut Settings, _: &Settings) {}
}
