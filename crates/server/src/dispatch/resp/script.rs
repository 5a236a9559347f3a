//! Scripts: `EVAL`, `EVALSHA`, and what is kept of them with `SCRIPT`.
//!
//! A script is executed alone, as a transaction is (`transaction.rs`). The items that it names are brought from flash
//! first. One that it did not name stops it: the item is brought, and the script begins anew, unless it has changed
//! something already.

use super::compose::say_error;
use super::errors::{self, Error};
use super::keys_commands::flush_option;
use super::own_request::{item_keys, own_request};
use super::request::{Call, Work, after};
use super::session::{Connection, version_of};
use super::worker::Resp;
use crate::dispatch::execute::Executor;
use crate::dispatch::progress::Busy;
use crate::dispatch::window::{Hints, Progressed};
use larder_protocol::resp::{Args, Command, Id, Version, command_of, compose as words, decimal, flags};
use larder_script::{Called, Header, Host, Limits, Name, Request, Stop};
use std::borrow::Cow;
use std::time::{Duration, Instant};

/// A script whose items come from flash is begun anew until all are in memory, but not for ever: others may push them
/// out again.
const TRIES_MAX: u8 = 3;
/// Items beside its keys for which a script begins anew, at most, and the longest of their keys.
const MORE_KEYS_MAX: usize = 64;
const MORE_KEY_BYTES_MAX: usize = 1024;
/// A script of up to this number of bytes is compiled in some tens of microseconds.
const SHORT_SCRIPT_BYTES: usize = 2 << 10;
/// Scripts of a window that others wait for awake, at most: some microseconds.
const SHORT_SCRIPTS: u32 = 4;
/// The most memory of a script, in bytes.
const SCRIPT_BYTES_MAX: usize = 16 << 20;
/// After this time the scripts of a window give way to other workers.
const ALONE_MAX: Duration = Duration::from_millis(1);

/// A request to execute a script.
struct Run<'a> {
    name: Name,
    /// It may change nothing.
    is_read_only: bool,
    keys: Args<'a>,
    args: Args<'a>,
}

impl Resp {
    /// Whether the window has scripts: then the worker is alone while it executes the window, rather than for each
    /// script anew.
    #[inline]
    pub(in crate::dispatch) fn has_scripts(&self) -> bool {
        self.scripts.in_window > 0
    }

    /// Compiles a long script that is new, while others go on: some take a tenth of a second.
    pub(in crate::dispatch) fn prepare_script(&mut self, connection: &Connection, work: &Work<'_>) {
        if let Work::Call(Call { command: Some(command), args, .. }) = work
            && matches!(command.id, Id::Eval | Id::EvalRo)
            && let Some(text) = after(*args, 1).next().filter(|text| text.len() > SHORT_SCRIPT_BYTES)
            && connection.access().is_some()
        {
            // What is wrong with it is said when it is executed.
            let _ = self.compiled(Name::of(text), (Some(text), false));
        }
    }

    /// Lets no other worker execute requests until the window is executed. Returns `false` if databases were exchanged
    /// meanwhile: the window is gathered anew.
    pub(in crate::dispatch) fn be_alone_with_scripts(&mut self, executor: &mut Executor) -> bool {
        executor.offline();
        let alone = self.shared.gate.be_alone(self.number, self.scripts.in_window > SHORT_SCRIPTS);
        executor.online();
        self.scripts.alone = Some((alone, Instant::now()));
        self.scripts.has_run = false;
        !self.has_exchanged()
    }

    /// The window was executed.
    #[cold]
    pub(in crate::dispatch) fn end_scripts(&mut self) {
        (self.scripts.in_window, self.scripts.alone) = (0, None);
    }

    /// `EVAL` and its like.
    #[inline(never)]
    pub(super) fn run_script(
        &mut self,
        executor: &mut Executor,
        connection: &mut Connection,
        command: &'static Command,
        args: Args<'_>,
    ) -> Progressed {
        let in_transaction = connection.session.as_ref().is_some_and(|session| session.transaction.is_some());
        // A client that keeps input and gets nothing may have to go while buffers are short.
        let may_pause = !in_transaction && !connection.output.is_limited();
        let has_to_give_way =
            self.scripts.alone.as_ref().is_some_and(|(_, since)| since.elapsed() > ALONE_MAX);
        if has_to_give_way && self.scripts.has_run && may_pause {
            connection.progress.busy = Some(Busy::Pausing);
            return Progressed::Waits;
        }
        self.scripts.has_run = true;
        let run = match self.read_run(command, args) {
            Ok(run) => run,
            Err(error) => {
                say_error(&mut connection.output, &error);
                self.end_script(connection);
                return Progressed::Request;
            }
        };
        if !in_transaction
            && connection.progress.tries < TRIES_MAX
            && !self.bring_script(executor, connection, command, args)
        {
            return Progressed::Waits;
        }
        let progressed = {
            let Ok(_alone) = self.be_alone(executor, connection) else { return Progressed::Waits };
            self.run_alone(executor, connection, &run, in_transaction)
        };
        match progressed {
            Progressed::Request => self.end_script(connection),
            _ => self.settle_scripts(),
        }
        progressed
    }

    /// A script is answered.
    fn end_script(&mut self, connection: &mut Connection) {
        self.settle_scripts();
        if let Some(session) = &mut connection.session {
            session.unfinished.script_keys = Vec::new();
        }
    }

    fn settle_scripts(&mut self) {
        let workers = self.server.settings().threads;
        self.scripts.settle(&self.shared.scripts, workers, self.server.buffers());
    }

    /// Reads what is to be executed, and compiles it if it is new.
    fn read_run<'a>(&mut self, command: &Command, args: Args<'a>) -> Result<Run<'a>, Error> {
        let mut rest = after(args, 1);
        let script = rest.next().unwrap_or_default();
        let count = decimal(rest.next().unwrap_or_default()).ok_or(errors::NOT_INTEGER)?;
        let count = usize::try_from(count).map_err(|_| errors::NEGATIVE_KEYS)?;
        if count > rest.len() {
            return Err(errors::KEYS_ABOVE_ARGS);
        }
        let (name, header) = match command.id {
            Id::Evalsha | Id::EvalshaRo => {
                let name = Name::read(script).ok_or(errors::NO_SCRIPT)?;
                (name, self.compiled(name, (None, false))?)
            }
            _ => {
                let name = Name::of(script);
                (name, self.compiled(name, (Some(script), false))?)
            }
        };
        if header.is_not_for_clusters && self.fleet.is_some() {
            return Err(errors::NOT_ON_CLUSTER);
        }
        Ok(Run {
            name,
            is_read_only: header.is_read_only || command.has(flags::READONLY),
            keys: Args::new(rest.bytes(), count),
            args: after(rest, count),
        })
    }

    /// What the first line of a script says ([`ScriptWorker::compiled`](super::script_worker::ScriptWorker::compiled)).
    fn compiled(&mut self, name: Name, text: (Option<&[u8]>, bool)) -> Result<Header, Error> {
        let bytes_max = self.script_bytes_max();
        self.scripts.compiled(&self.shared.scripts, name, text, bytes_max, self.server.buffers())
    }

    /// How many bytes a script may take, beside what the interpreter has. What takes time in one piece takes the more
    /// of it, the larger its values are.
    fn script_bytes_max(&self) -> usize {
        self.request_bytes_max().min(SCRIPT_BYTES_MAX)
    }

    /// Brings the items of a script to memory: those of its keys, and those that it was found to need.
    fn bring_script(
        &mut self,
        executor: &mut Executor,
        connection: &mut Connection,
        command: &Command,
        args: Args<'_>,
    ) -> bool {
        if !executor.has_flash() {
            return true;
        }
        let own = connection.own_keys().cloned();
        let mut keys: Vec<Cow<'_, [u8]>> = item_keys(own.as_ref(), command, args).collect();
        let more = connection.session.as_ref().map_or(&[][..], |session| &session.unfinished.script_keys);
        keys.extend(more.iter().cloned().map(Cow::Owned));
        self.bring_keys(executor, connection, keys.iter().map(|key| &**key))
    }

    /// Executes a script while no other worker executes anything.
    fn run_alone(
        &mut self,
        executor: &mut Executor,
        connection: &mut Connection,
        run: &Run<'_>,
        in_transaction: bool,
    ) -> Progressed {
        let script_ms = self.server.in_effect().script_ms;
        let (time, more_max) = (Duration::from_millis(script_ms.into()), self.script_bytes_max());
        let state = self.server.clone();
        let mut scripts = std::mem::take(&mut self.scripts);
        self.scripts.time = Some(time);
        let before = begin(connection, in_transaction);
        let request = Request {
            name: run.name,
            keys: run.keys,
            args: run.args,
            limits: Limits { time, bytes: 0 },
            version: before.version,
        };
        let mut host = ScriptHost {
            resp: self,
            executor,
            connection,
            is_read_only: run.is_read_only,
            may_begin_anew: !in_transaction,
        };
        let ran = scripts.run(request, more_max, state.buffers(), &mut host);
        let output = &mut connection.output;
        let progressed = match ran {
            Err(Stop::Host) => Progressed::Waits,
            Err(Stop::Time) => {
                say_error(output, &errors::script_too_long(script_ms));
                Progressed::Request
            }
            Err(Stop::Memory) => {
                say_error(output, &errors::SCRIPT_TOO_LARGE);
                Progressed::Request
            }
            Ok(reply) => {
                output.buffer().extend_from_slice(reply);
                Progressed::Request
            }
        };
        self.scripts = scripts;
        if connection.database() != before.database {
            // A script's `SELECT` is its own.
            self.choose_database(connection, before.database);
        }
        before.restore(connection, in_transaction);
        progressed
    }

    /// `SCRIPT` and its subcommands. `args` = what follows them.
    pub(super) fn answer_about_scripts(
        &mut self,
        out: &mut Vec<u8>,
        id: Id,
        mut args: Args<'_>,
    ) -> Result<(), Error> {
        match id {
            Id::ScriptLoad => {
                let text = args.next().unwrap_or_default();
                let name = Name::of(text);
                let compiled = self.compiled(name, (Some(text), true));
                self.settle_scripts();
                compiled?;
                words::bulk(out, name.digits());
            }
            Id::ScriptExists => {
                let found = self.shared.scripts.has(args.map(Name::read));
                words::array_head(out, found.len());
                found.iter().for_each(|is_there| words::integer(out, (*is_there).into()));
            }
            Id::ScriptShow => {
                let text = args.next().and_then(Name::read).and_then(|name| self.shared.scripts.text(&name));
                words::bulk(out, &text.ok_or(errors::NO_SCRIPT)?);
            }
            _ => {
                flush_option(args).map_err(|_| errors::SCRIPT_FLUSH)?;
                self.shared.scripts.forget_all();
                words::simple(out, "OK");
            }
        }
        Ok(())
    }
}

/// What a connection had before a script.
struct Before {
    version: Version,
    database: u8,
    in_one_piece: bool,
    keys_done: usize,
}

/// Makes a connection ready for the commands of a script: it is alone, and each reply is complete at once.
fn begin(connection: &mut Connection, in_transaction: bool) -> Before {
    let before = Before {
        version: version_of(connection),
        database: connection.database(),
        in_one_piece: std::mem::replace(&mut connection.progress.in_one_piece, true),
        keys_done: std::mem::take(&mut connection.keys_done),
    };
    if let Some(session) = &mut connection.session
        && !in_transaction
    {
        session.transaction = Some(Box::default());
    }
    before
}

impl Before {
    fn restore(self, connection: &mut Connection, in_transaction: bool) {
        connection.keys_done = self.keys_done;
        connection.progress.in_one_piece = self.in_one_piece;
        if let Some(session) = &mut connection.session {
            session.version = self.version;
            if !in_transaction {
                session.transaction = None;
            }
            session.settle();
        }
    }
}

/// Executes the commands of a script.
struct ScriptHost<'h> {
    resp: &'h mut Resp,
    executor: &'h mut Executor,
    connection: &'h mut Connection,
    /// The script may change nothing.
    is_read_only: bool,
    /// It may begin anew: it is no part of a transaction, and has changed nothing.
    may_begin_anew: bool,
}

impl ScriptHost<'_> {
    /// The command that a script calls, if it may.
    fn checked(&self, call: &Call<'_>) -> Result<&'static Command, Error> {
        let command = command_of(call.args).ok_or(errors::UNKNOWN_IN_SCRIPT)?;
        let count = call.args.len();
        if !command.takes(count) {
            return Err(errors::ARITY_IN_SCRIPT);
        }
        let is_of_session = command.has(flags::SESSION) && command.id != Id::Select;
        if command.has(flags::NOSCRIPT) || is_of_session {
            return Err(errors::NOT_IN_SCRIPT);
        }
        // The keys of what was queued behind the script are those of the databases as they are.
        if command.id == Id::Swapdb && !self.may_begin_anew {
            return Err(errors::NO_EXCHANGE_IN_SCRIPT);
        }
        let publishes = matches!(command.id, Id::Publish | Id::Spublish);
        if self.is_read_only && (command.has(flags::WRITE) || publishes) {
            return Err(errors::WRITES_IN_SCRIPT);
        }
        self.resp.checked(self.connection, call, count).map_err(|error| match error {
            Some(error) if errors::is_redirection(&error) => errors::ELSEWHERE_IN_SCRIPT,
            error => error.unwrap_or(errors::UNKNOWN_IN_SCRIPT),
        })
    }

    /// Executes a command whose keys are those of the items. Its reply is appended to the output of the connection.
    fn execute(&mut self, args: Args<'_>) -> Called {
        let call = Call::of(args);
        let before = self.connection.output.len();
        let command = match self.checked(&call) {
            Ok(command) => command,
            Err(error) => {
                if let Some(command) = call.command {
                    self.resp.counts().rejected(command.id);
                }
                say_error(&mut self.connection.output, &error);
                return Called::Answered;
            }
        };
        let ScriptHost { resp, executor, connection, .. } = self;
        if !resp.forget_left_over(executor, connection, command, args) {
            return self.wait_for(command, args, before);
        }
        let hash = executor.hash(call.plain_key());
        let mut hints = Hints { epoch: 0, are_outdated: true };
        let progressed = resp.run(executor, connection, command, args, hash, &mut hints);
        connection.keys_done = 0;
        if progressed == Progressed::Waits {
            return self.wait_for(command, args, before);
        }
        self.may_begin_anew &= !command.has(flags::WRITE);
        resp.settle_call(executor, connection, command, args, before, None);
        if command.has(flags::FAST) { Called::Answered } else { Called::AnsweredSlowly }
    }

    /// A command needs items that are on flash.
    fn wait_for(&mut self, command: &Command, args: Args<'_>, before: usize) -> Called {
        let ScriptHost { executor, connection, may_begin_anew, .. } = self;
        connection.output.truncate(before);
        let Some(session) = &mut connection.session else { return Called::Stop };
        let more = &mut session.unfinished.script_keys;
        let before_these = more.len();
        for key in command.keys.of(args).filter(|key| key.len() <= MORE_KEY_BYTES_MAX) {
            if more.len() < MORE_KEYS_MAX && !more.iter().any(|other| other == key) {
                more.push(key.to_vec());
            }
        }
        if *may_begin_anew && more.len() > before_these {
            return Called::Stop;
        }
        executor.give_up_waiting(&mut connection.progress);
        say_error(&mut connection.output, &errors::ON_FLASH_IN_SCRIPT);
        Called::Answered
    }
}

impl Host for ScriptHost<'_> {
    fn call(&mut self, request: Args<'_>, version: Version, reply: &mut Vec<u8>) -> Called {
        if let Some(session) = &mut self.connection.session {
            session.version = version;
        }
        let before = self.connection.output.len();
        let called = match self.connection.own_keys().cloned() {
            None => self.execute(request),
            Some(own) => {
                let mut room = std::mem::take(&mut self.resp.own_request);
                let called = self.execute(own_request(&own, request, request.len(), &mut room));
                self.resp.own_request = room;
                called
            }
        };
        let output = &mut self.connection.output;
        reply.extend_from_slice(output.bytes().get(before..).unwrap_or_default());
        output.truncate(before);
        called
    }

    fn is_permitted(&mut self, request: Args<'_>) -> Option<bool> {
        command_of(request)?;
        let call = Call::of(request);
        Some(self.resp.checked(self.connection, &call, request.len()).is_ok())
    }

    fn log(&mut self, level: u8, text: &[u8]) {
        let text = String::from_utf8_lossy(text);
        match level {
            0 => tracing::debug!(target: "larder::scripts", "{text}"),
            1 | 2 => tracing::info!(target: "larder::scripts", "{text}"),
            _ => tracing::warn!(target: "larder::scripts", "{text}"),
        }
    }
}
