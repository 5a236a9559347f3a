//! Commands on the connection itself: logins, the version of the protocol, `CLIENT`.

use super::client_list::{Filter, is_name, line};
use super::compose::{say, say_error};
use super::errors::{self, Error};
use super::request::{after, switch};
use super::session::{Connection, Replies, Session};
use super::tracking_commands::{compose_tracking, turn_caching};
use super::worker::Resp;
use super::{help, info};
use crate::dispatch::execute::{Admission, Executor};
use crate::dispatch::window::Progressed;
use larder_protocol::resp::{Args, Command, Id, Version, compose as words, decimal};

/// The user of an `AUTH` without a name, and of a connection that did not have to log in.
const DEFAULT_USER: &[u8] = b"default";
/// The longest name of a connection or of a library, in bytes. Such names are not in the account of any memory.
const NAME_BYTES_MAX: usize = 1024;

impl Resp {
    /// `AUTH`.
    pub(super) fn authenticate(
        &mut self,
        executor: &mut Executor,
        connection: &mut Connection,
        args: Args<'_>,
    ) -> Progressed {
        let mut rest = after(args, 1);
        let user = match (rest.next(), rest.next(), rest.next()) {
            (Some(_), None, _) if !self.server.has_users() => {
                say_error(&mut connection.output, &errors::NO_PASSWORD_SET);
                return Progressed::Request;
            }
            (Some(password), None, _) => (DEFAULT_USER, password),
            (Some(name), Some(password), None) => (name, password),
            _ => {
                say_error(&mut connection.output, &errors::SYNTAX);
                return Progressed::Request;
            }
        };
        match self.admit(executor, connection, user) {
            Admission::Later => return Progressed::Waits,
            Admission::Refused => say_error(&mut connection.output, &errors::WRONG_PASSWORD),
            Admission::Admitted(_) => say(&mut connection.output, "OK"),
        }
        Progressed::Request
    }

    /// Logs a user in. One that is refused is what it was before.
    fn admit(
        &mut self,
        executor: &mut Executor,
        connection: &mut Connection,
        (name, password): (&[u8], &[u8]),
    ) -> Admission {
        // Without a file of users there is one user, whose password is any.
        let user = (self.server.has_users() || name == DEFAULT_USER).then_some((name, password));
        let in_transaction = connection.session.as_ref().is_some_and(|session| session.transaction.is_some());
        let admission = match user {
            Some(user) if in_transaction => executor.log_in_at_once(&mut connection.progress, user),
            None if in_transaction => Admission::Refused,
            user => executor.log_in(&mut connection.progress, user),
        };
        if let Admission::Admitted(rights) = &admission {
            connection.set_rights(Some(rights.clone()), executor.databases());
            self.hear_as_user(executor, connection);
            if let Some(session) = &connection.session {
                session.client.told().user = name[..name.len().min(NAME_BYTES_MAX)].to_vec();
            }
        }
        admission
    }

    /// `HELLO`.
    pub(super) fn greet(
        &mut self,
        executor: &mut Executor,
        connection: &mut Connection,
        args: Args<'_>,
    ) -> Progressed {
        let Hello { version, user, name } = match Hello::read(after(args, 1)) {
            Ok(hello) => hello,
            Err(error) => {
                say_error(&mut connection.output, &error);
                return Progressed::Request;
            }
        };
        if let Some(user) = user {
            match self.admit(executor, connection, user) {
                Admission::Later => return Progressed::Waits,
                Admission::Refused => {
                    say_error(&mut connection.output, &errors::WRONG_PASSWORD);
                    return Progressed::Request;
                }
                Admission::Admitted(_) => {}
            }
        }
        if connection.access().is_none() {
            say_error(&mut connection.output, &errors::HELLO_NO_AUTH);
            return Progressed::Request;
        }
        let Connection { session: Some(session), output, .. } = connection else {
            return Progressed::Request;
        };
        if let Some(name) = name {
            session.client.told().name = name.to_vec();
        }
        session.version = version.unwrap_or(session.version);
        session.settle();
        let (version, out) = (session.version, output.buffer());
        let mode = if self.fleet.is_some() { "cluster" } else { "standalone" };
        words::map_head(out, version, 7);
        let pair = |out: &mut Vec<u8>, name: &str, text: &str| {
            words::bulk(out, name.as_bytes());
            words::bulk(out, text.as_bytes());
        };
        pair(out, "server", "redis");
        pair(out, "version", info::REDIS_VERSION);
        words::bulk(out, b"proto");
        words::integer(out, if version == Version::Resp3 { 3 } else { 2 });
        words::bulk(out, b"id");
        words::integer(out, session.client.id as i64);
        pair(out, "mode", mode);
        pair(out, "role", "master");
        words::bulk(out, b"modules");
        words::array_head(out, 0);
        Progressed::Request
    }
}

/// What a `HELLO` asks for.
struct Hello<'a> {
    version: Option<Version>,
    user: Option<(&'a [u8], &'a [u8])>,
    name: Option<&'a [u8]>,
}

impl<'a> Hello<'a> {
    fn read(mut words: Args<'a>) -> Result<Hello<'a>, Error> {
        let mut hello = Hello { version: None, user: None, name: None };
        if let Some(version) = words.next() {
            hello.version = match decimal(version).ok_or(errors::PROTO_NOT_INTEGER)? {
                2 => Some(Version::Resp2),
                3 => Some(Version::Resp3),
                _ => return Err(errors::NO_PROTO),
            };
        }
        while let Some(option) = words.next() {
            if option.eq_ignore_ascii_case(b"auth") && words.len() >= 2 {
                hello.user = words.next().zip(words.next());
            } else if option.eq_ignore_ascii_case(b"setname") && words.len() >= 1 {
                hello.name = words.next();
                hello.name.map_or(Ok(()), check_name)?;
            } else {
                return Err(errors::about("ERR Syntax error in HELLO option '", option, "'"));
            }
        }
        Ok(hello)
    }
}

/// Whether a connection may be called so.
fn check_name(name: &[u8]) -> Result<(), Error> {
    if !is_name(name) {
        let why = "ERR Client names cannot contain spaces, newlines or special characters.";
        return Err(errors::made(why));
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(errors::made(format!("ERR Client names have {NAME_BYTES_MAX} bytes at most")));
    }
    Ok(())
}

/// Checks what `CLIENT PAUSE` is given. Nobody is paused, so a pause of some time is refused.
fn check_pause(mut args: Args<'_>) -> Result<(), Error> {
    let timeout_ms = args.next().and_then(decimal).ok_or(errors::TIMEOUT)?;
    if timeout_ms < 0 {
        return Err(errors::NEGATIVE_TIMEOUT);
    }
    match args.next().map(<[u8]>::to_ascii_lowercase).as_deref() {
        None | Some(b"write" | b"all") if timeout_ms == 0 => Ok(()),
        None | Some(b"write" | b"all") => Err(errors::NO_PAUSE),
        Some(_) => Err(errors::SYNTAX),
    }
}

impl Resp {
    /// `CLIENT` and its subcommands. `args` = what follows them.
    pub(super) fn run_on_client(&mut self, connection: &mut Connection, command: &Command, args: Args<'_>) {
        let Connection { session: Some(session), output, .. } = connection else { return };
        let word = args.clone().next().unwrap_or_default();
        let (out, mut kills_own) = (output.buffer(), false);
        let done = match command.id {
            Id::ClientList => Filter::read(args, false, |name| self.has_user(name)).map(|filter| {
                let chosen = filter.choose(self.shared.clients.list(), session.client.id);
                let lines = chosen.iter().flat_map(|client| [line(&client.report()), b"\n".to_vec()]);
                let text: Vec<u8> = lines.flatten().collect();
                words::verbatim(out, session.version, &text);
            }),
            Id::ClientKill => self.kill(session, args, word).map(|(reply, is_own)| {
                out.extend_from_slice(&reply);
                kills_own = is_own;
            }),
            _ => answer_alone(session, out, command, args),
        };
        if let Err(error) = done {
            say_error(output, &error);
        }
        if kills_own {
            output.close();
        }
    }

    /// `CLIENT KILL`: the reply, and whether the connection itself is among those that are closed.
    fn kill(&self, own: &Session, args: Args<'_>, word: &[u8]) -> Result<(Vec<u8>, bool), Error> {
        let is_old_form = args.len() == 1;
        let filter = match is_old_form {
            true => Filter::of_address(word),
            false => Filter::read(args, true, |name| self.has_user(name))?,
        };
        let (mut killed, mut kills_own) = (0, false);
        for client in filter.choose(self.shared.clients.list(), own.client.id) {
            let is_own = client.id == own.client.id;
            client.kill(is_own, &self.shared.told.post);
            kills_own |= is_own;
            killed += 1;
        }
        let mut reply = Vec::new();
        match (is_old_form, killed) {
            (true, 0) => return Err(errors::made("ERR No such client")),
            (true, _) => words::simple(&mut reply, "OK"),
            (false, killed) => words::integer(&mut reply, killed),
        }
        Ok((reply, kills_own))
    }

    /// Whether there is a user of this name.
    fn has_user(&self, name: &[u8]) -> bool {
        if self.server.has_users() { self.server.has_user(name) } else { name == DEFAULT_USER }
    }
}

/// Answers what a client asks of its own connection, or sets of it.
fn answer_alone(
    session: &mut Session,
    out: &mut Vec<u8>,
    command: &Command,
    args: Args<'_>,
) -> Result<(), Error> {
    let word = args.clone().next().unwrap_or_default();
    match command.id {
        Id::ClientId => words::integer(out, session.client.id as i64),
        Id::ClientGetname => match &session.client.told().name[..] {
            [] => words::null(out, session.version),
            name => words::bulk(out, name),
        },
        Id::ClientCaching => {
            turn_caching(session, word)?;
            words::simple(out, "OK");
        }
        Id::ClientGetredir => words::integer(out, session.client.report().redirect),
        Id::ClientInfo => {
            let text = [line(&session.client.report()), b"\n".to_vec()].concat();
            words::verbatim(out, session.version, &text);
        }
        Id::ClientTrackinginfo => compose_tracking(out, session),
        Id::ClientUnblock => {
            unblock(args)?;
            words::integer(out, 0);
        }
        Id::ClientSetname
        | Id::ClientSetinfo
        | Id::ClientNoEvict
        | Id::ClientNoTouch
        | Id::ClientPause
        | Id::ClientUnpause
        | Id::ClientReply => {
            set(session, command.id, word, args)?;
            words::simple(out, "OK");
        }
        _ => help::compose(out, command),
    }
    Ok(())
}

/// Sets something of a connection. `args` = what follows the subcommand, `word` = the first of it.
fn set(session: &mut Session, id: Id, word: &[u8], args: Args<'_>) -> Result<(), Error> {
    match id {
        Id::ClientSetname => {
            check_name(word)?;
            session.client.told().name = word.to_vec();
        }
        Id::ClientSetinfo => set_info(session, word, after(args, 1).next().unwrap_or_default())?,
        Id::ClientNoEvict => _ = switch(word)?,
        Id::ClientNoTouch => {
            session.leaves_no_trace = switch(word)?;
            session.settle();
        }
        Id::ClientPause => check_pause(args)?,
        Id::ClientReply => set_replies(session, word)?,
        _ => {}
    }
    Ok(())
}

/// `CLIENT REPLY`. What is written is taken back where the client does not want it.
fn set_replies(session: &mut Session, word: &[u8]) -> Result<(), Error> {
    session.replies = match (&word.to_ascii_lowercase()[..], session.replies) {
        (b"on", _) => Replies::All,
        (b"off", _) => Replies::None,
        (b"skip", Replies::None) => Replies::None,
        (b"skip", _) => Replies::NotNext,
        _ => return Err(errors::SYNTAX),
    };
    session.settle();
    Ok(())
}

/// `CLIENT SETINFO`.
fn set_info(session: &Session, what: &[u8], value: &[u8]) -> Result<(), Error> {
    let mut told = session.client.told();
    let kept = match &what.to_ascii_lowercase()[..] {
        b"lib-name" => &mut told.library,
        b"lib-ver" => &mut told.library_version,
        _ => return Err(errors::about("ERR Unrecognized option '", what, "'")),
    };
    if !is_name(value) || value.len() > NAME_BYTES_MAX {
        let why = " cannot contain spaces, newlines or special characters.";
        return Err(errors::about("ERR ", what, why));
    }
    *kept = value.to_vec();
    Ok(())
}

/// `CLIENT UNBLOCK`. No connection ever waits for what others do.
fn unblock(mut words: Args<'_>) -> Result<(), Error> {
    let id = words.next().unwrap_or_default();
    if words.len() == 1
        && let Some(reason) = words.next()
        && !reason.eq_ignore_ascii_case(b"timeout")
        && !reason.eq_ignore_ascii_case(b"error")
    {
        return Err(errors::made("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"));
    }
    decimal(id).map(|_| ()).ok_or(errors::NOT_INTEGER)
}
