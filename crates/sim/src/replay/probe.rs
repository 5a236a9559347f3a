//! The first contact with a server: whether it is reachable, its protocol, and whether it accepts the login.

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use super::faults::shown;
use super::options::{Credentials, Options, Protocol};
use super::reply::{Parsed, Reply, parse};
use super::server::{Blocking, Server};
use super::wire::Wire;

/// The result of the first contact.
#[derive(Clone, Debug)]
pub(crate) struct ServerInfo {
    /// The protocol of the server.
    pub(crate) protocol: Protocol,
    /// The version that the server reports.
    pub(crate) version: String,
}

/// How to come to a server.
pub(crate) struct Way<'a> {
    pub(crate) server: &'a Server,
    /// `None` = detected.
    pub(crate) protocol: Option<Protocol>,
    pub(crate) credentials: Option<&'a Credentials>,
    /// The database for RESP's `SELECT`.
    pub(crate) database: Option<u32>,
    /// How long an answer may take.
    pub(crate) timeout: Duration,
}

/// Contacts a server on a connection of its own, which is closed again.
///
/// # Errors
/// One line: the server is unreachable, does not answer, or refuses the login.
pub(super) fn look(options: &Options) -> Result<ServerInfo, String> {
    let Options { server, protocol, database, timeout, .. } = options;
    let credentials = options.credentials.as_ref();
    let way = Way { server, protocol: *protocol, credentials, database: *database, timeout: *timeout };
    meet(&way).map(|(found, _)| found)
}

/// Contacts a server, and returns the connection, which has logged in.
///
/// # Errors
/// As [`look`].
pub(crate) fn meet(way: &Way<'_>) -> Result<(ServerInfo, Blocking), String> {
    let server = way.server;
    let failed = |error: std::io::Error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            format!("{server}: no answer within {:.1} s", way.timeout.as_secs_f64())
        }
        _ => format!("{server}: {error}"),
    };
    let unreachable = |error| format!("{}; start a server there, or name another", failed(error));
    let mut connection = server.connect_blocking(way.timeout).map_err(unreachable)?;
    // memcached answers `VERSION`; Redis reads the line as an unknown inline command.
    connection.write_all(b"version\r\n").map_err(failed)?;
    let line = read_line(&mut connection).map_err(failed)?;
    let spoken = match line.first() {
        Some(b'-' | b'+') => Protocol::Resp,
        _ if [&b"VERSION "[..], b"ERROR", b"CLIENT_ERROR", b"SERVER_ERROR"]
            .iter()
            .any(|w| line.starts_with(w)) =>
        {
            Protocol::Memcached
        }
        _ if way.protocol.is_some() => Protocol::Memcached,
        _ => {
            return Err(format!("{server}: neither memcached nor RESP: it answered '{}'", shown(&line)));
        }
    };
    let protocol = way.protocol.unwrap_or(spoken);
    log_in(way, protocol, &mut connection)?;
    let version = line.strip_prefix(b"VERSION ").map_or(String::new(), shown);
    Ok((ServerInfo { protocol, version }, connection))
}

/// Logs in once, so that a refusal is reported before anything else happens.
fn log_in(way: &Way<'_>, protocol: Protocol, connection: &mut Blocking) -> Result<(), String> {
    let mut words = Vec::new();
    let mut logins: Vec<(&str, Vec<u8>)> = Vec::new();
    if let Some(who) = way.credentials {
        Wire::put_login(protocol, &mut words, &who.user, &who.password);
        logins.push(("the login", std::mem::take(&mut words)));
    }
    if let Some(database) = way.database.filter(|_| protocol == Protocol::Resp) {
        Wire::put_select(&mut words, database);
        logins.push(("the database", words));
    }
    for (what, words) in logins {
        let server = way.server;
        let failed = |error: std::io::Error| format!("{server}: {error}");
        connection.write_all(&words).map_err(failed)?;
        let line = read_line(connection).map_err(failed)?;
        let whole = [&line[..], b"\r\n"].concat();
        if !matches!(parse(protocol, &whole), Parsed::Reply(Reply::Stored, _)) {
            return Err(format!("{server}: {what} was refused: '{}'", shown(&line)));
        }
    }
    Ok(())
}

/// A line without its end.
pub(crate) fn read_line(connection: &mut Blocking) -> std::io::Result<Vec<u8>> {
    let mut line = Vec::new();
    let mut octet = [0];
    while line.len() < 1024 {
        if connection.read(&mut octet)? == 0 {
            return match line.is_empty() {
                true => Err(std::io::Error::new(ErrorKind::UnexpectedEof, "it closed the connection")),
                false => Ok(line),
            };
        }
        if octet[0] == b'\n' {
            if line.last() == Some(&b'\r') {
                line.pop();
            }
            return Ok(line);
        }
        line.push(octet[0]);
    }
    Ok(line)
}
