//! `SELECT` and `SWAPDB`, and where `MOVE` and `COPY ... DB` lead.

use super::compose::{say, say_error};
use super::errors::{self, Error};
use super::item_requests;
use super::request::after;
use super::session::Connection;
use super::worker::Resp;
use crate::dispatch::execute::Executor;
use crate::dispatch::window::Progressed;
use larder_protocol::resp::limits::KEY_BYTES_MAX;
use larder_protocol::resp::{Args, Command, Id, compose as words};

impl Resp {
    /// The database that a word names. The servers of a fleet have one.
    pub(super) fn database(&self, word: &[u8]) -> Result<u8, Error> {
        let count = if self.fleet.is_some() { 1 } else { self.server.databases().count() };
        let number = usize::try_from(item_requests::database(word)?).ok().filter(|number| *number < count);
        number.map(|number| number as u8).ok_or(errors::DB_INDEX)
    }

    /// `SELECT`.
    pub(super) fn select(&self, connection: &mut Connection, word: &[u8]) -> Result<(), Error> {
        let database = self.database(word)?;
        self.choose_database(connection, database);
        words::simple(connection.output.buffer(), "OK");
        Ok(())
    }

    /// The requests of a connection are about this database from now on.
    pub(super) fn choose_database(&self, connection: &mut Connection, database: u8) {
        self.server.databases().choose(database);
        connection.choose_database(database, self.server.databases());
        if let Some(session) = &connection.session {
            session.client.set_database(database);
        }
    }

    /// `SWAPDB`: two databases are exchanged, for all clients at once. It is the last request of its window.
    #[cold]
    pub(super) fn exchange_databases(
        &mut self,
        executor: &mut Executor,
        connection: &mut Connection,
        args: Args<'_>,
    ) -> Progressed {
        let Ok(_alone) = self.be_alone(executor, connection) else { return Progressed::Waits };
        match self.databases_to_exchange(connection, after(args, 1)) {
            Ok((one, other)) => {
                if one != other {
                    executor.databases().exchange(executor.cache(), one, other);
                    // More commands of a script or a transaction may follow.
                    connection.follow_exchange(executor.databases());
                }
                say(&mut connection.output, "OK");
            }
            Err(error) => say_error(&mut connection.output, &error),
        }
        Progressed::Request
    }

    pub(super) fn databases_to_exchange(
        &self,
        connection: &Connection,
        args: Args<'_>,
    ) -> Result<(u8, u8), Error> {
        for (which, word) in ["first", "second"].into_iter().zip(args) {
            item_requests::database(word)
                .map_err(|_| errors::made(format!("ERR invalid {which} DB index")))?;
        }
        let mut rest = args;
        let one = self.database(rest.next().unwrap_or_default())?;
        let other = self.database(rest.next().unwrap_or_default())?;
        if one != other && connection.namespace().is_some() {
            return Err(errors::NO_EXCHANGE);
        }
        Ok((one, other))
    }

    /// The database to which a request moves or copies an item; `None` = it says none.
    pub(super) fn destination(&self, command: &Command, args: Args<'_>) -> Result<Option<u8>, Error> {
        let mut words = after(args, if command.id == Id::Move { 2 } else { 3 });
        let mut destination = None;
        match command.id {
            Id::Move => destination = Some(self.database(words.next().unwrap_or_default())?),
            Id::Copy => {
                while let Some(word) = words.next() {
                    if word.eq_ignore_ascii_case(b"db") {
                        destination = Some(self.database(words.next().ok_or(errors::SYNTAX)?)?);
                    }
                }
            }
            _ => {}
        }
        Ok(destination)
    }

    /// What the key of an item in the database of the connection is in another one.
    pub(super) fn key_in(&self, connection: &Connection, key: &[u8], database: u8) -> Result<Vec<u8>, Error> {
        self.server.databases().choose(database);
        // A login between `MULTI` and `EXEC` may have given the client other keys.
        let here = connection.own_keys().map_or(&[][..], |own| own.prefix());
        let key = key.strip_prefix(here).ok_or(errors::SYNTAX)?;
        let there = self.server.databases().keys_of(connection.namespace(), database);
        let key = [there.as_ref().map_or(&[][..], |own| own.prefix()), key].concat();
        if key.len() > KEY_BYTES_MAX { Err(errors::KEY_TOO_LONG) } else { Ok(key) }
    }
}
