//! `SUBSCRIBE`, `PUBLISH` and what belongs to them.

use super::channels::Kind;
use super::compose::say_error;
use super::errors::{self, Error};
use super::glob::Pattern;
use super::help;
use super::session::{Connection, Session};
use super::worker::Resp;
use larder_protocol::resp::{Args, Command, Id, Version, compose as words};

/// The longest name of a channel, in bytes.
const NAME_BYTES_MAX: usize = 4096;

impl Resp {
    /// Answers a request about channels. `args` = what follows the command and its subcommand.
    pub(super) fn run_on_channels(&mut self, connection: &mut Connection, command: &Command, args: Args<'_>) {
        let kind = match command.id {
            Id::Psubscribe | Id::Punsubscribe => Kind::Pattern,
            Id::Ssubscribe
            | Id::Sunsubscribe
            | Id::Spublish
            | Id::PubsubShardchannels
            | Id::PubsubShardnumsub => Kind::Shard,
            _ => Kind::Channel,
        };
        let done = match command.id {
            Id::Subscribe | Id::Psubscribe | Id::Ssubscribe => {
                { args }.try_for_each(|name| self.subscribe(connection, kind, name))
            }
            Id::Unsubscribe | Id::Punsubscribe | Id::Sunsubscribe => {
                self.unsubscribe(connection, kind, args);
                Ok(())
            }
            _ => self.answer_about_channels(connection, command, kind, args),
        };
        if let Some(session) = &mut connection.session {
            let counts = session.hearing.as_ref().map_or([0; 3], |hearing| hearing.counts());
            session.client.set_subscriptions(counts);
            session.settle();
        }
        if let Err(error) = done {
            say_error(&mut connection.output, &error);
        }
    }

    fn subscribe(&self, connection: &mut Connection, kind: Kind, name: &[u8]) -> Result<(), Error> {
        let most = self.request_bytes_max() as u64;
        let namespace = namespace_of(connection);
        let Connection { session: Some(session), output, .. } = connection else { return Ok(()) };
        let hearing = session.hearing.get_or_insert_default();
        hearing.namespace = namespace;
        if name.len() > NAME_BYTES_MAX {
            return Err(errors::CHANNEL_TOO_LONG);
        }
        if hearing.held_bytes() > most {
            return Err(errors::TOO_MANY_CHANNELS);
        }
        let is_new = hearing.add(kind, name, self.server.buffers()).ok_or(errors::TOO_MANY_CHANNELS)?;
        if is_new
            && let Err(error) = self.shared.told.channels.add(kind, &hearing.namespace, name, &session.client)
        {
            hearing.remove(kind, name);
            return Err(error);
        }
        compose(output.buffer(), session, kind, true, Some(name));
        Ok(())
    }

    fn unsubscribe(&self, connection: &mut Connection, kind: Kind, args: Args<'_>) {
        let Connection { session: Some(session), output, .. } = connection else { return };
        let mut names: Vec<Vec<u8>> = args.map(<[u8]>::to_vec).collect();
        if names.is_empty() {
            let all = session.hearing.as_ref().map(|hearing| hearing.names(kind).iter().cloned());
            names.extend(all.into_iter().flatten());
            if names.is_empty() {
                return compose(output.buffer(), session, kind, false, None);
            }
        }
        for name in names {
            if let Some(hearing) = &mut session.hearing
                && hearing.remove(kind, &name)
            {
                self.shared.told.channels.remove(kind, &hearing.namespace, &name, &session.client);
                // No message follows the confirmation. In a transaction it must not be in between either.
                let (mailbox, post) = (session.client.mailbox(), &self.shared.told.post);
                match session.transaction {
                    None => mailbox.take(post, session.version, true, usize::MAX, output.buffer()),
                    Some(_) if !hearing.is_subscriber() => mailbox.forget_messages(post),
                    Some(_) => {}
                }
            }
            compose(output.buffer(), session, kind, false, Some(&name));
        }
    }

    /// The connection hears of no channels any more. Nothing is told to it.
    pub(super) fn leave_channels(&self, session: &mut Session) {
        let Some(hearing) = &mut session.hearing else { return };
        for kind in Kind::ALL {
            while let Some(name) = hearing.names(kind).first().cloned() {
                hearing.remove(kind, &name);
                self.shared.told.channels.remove(kind, &hearing.namespace, &name, &session.client);
            }
        }
        session.client.mailbox().forget_messages(&self.shared.told.post);
        session.client.set_subscriptions([0; 3]);
    }

    fn answer_about_channels(
        &self,
        connection: &mut Connection,
        command: &Command,
        kind: Kind,
        mut args: Args<'_>,
    ) -> Result<(), Error> {
        let namespace = &*namespace_of(connection);
        let (out, told) = (connection.output.buffer(), &self.shared.told);
        match command.id {
            Id::Publish | Id::Spublish => {
                let name = args.next().unwrap_or_default();
                if name.len() > NAME_BYTES_MAX {
                    return Err(errors::CHANNEL_TOO_LONG);
                }
                let channel = [namespace, name].concat();
                let payload = args.next().unwrap_or_default();
                let most = told.post.message_bytes_max();
                if payload.len() > most {
                    return Err(errors::message_too_long(most));
                }
                words::integer(out, told.channels.publish(&told.post, kind, &channel, payload));
            }
            Id::PubsubChannels | Id::PubsubShardchannels => {
                if args.len() > 1 {
                    return Err(errors::wrong_subcommand("PUBSUB", &command.name.to_ascii_uppercase()));
                }
                let wanted =
                    args.next().map(|pattern| Pattern::read(pattern).ok_or(errors::PATTERN_TOO_LONG));
                let names = told.channels.names(kind, namespace, wanted.transpose()?.as_ref());
                words::array_head(out, names.len());
                names.iter().for_each(|name| words::bulk(out, name));
            }
            Id::PubsubNumsub | Id::PubsubShardnumsub => {
                words::map_head(out, Version::Resp2, args.len());
                for name in args {
                    words::bulk(out, name);
                    let count = told.channels.hearers(kind, &[namespace, name].concat());
                    words::integer(out, count as i64);
                }
            }
            Id::PubsubNumpat => words::integer(out, told.channels.patterns(namespace) as i64),
            _ => help::compose(out, command),
        }
        Ok(())
    }
}

/// What the names of a client's channels begin with.
pub(super) fn namespace_of(connection: &Connection) -> Box<[u8]> {
    connection.namespace().map_or(&[][..], |own| own.prefix()).into()
}

/// Tells that a subscription has begun or ended, and how many there are then. `None` = there was none.
fn compose(out: &mut Vec<u8>, session: &Session, kind: Kind, begins: bool, name: Option<&[u8]>) {
    let word: &[u8] = match (kind, begins) {
        (Kind::Channel, true) => b"subscribe",
        (Kind::Channel, false) => b"unsubscribe",
        (Kind::Pattern, true) => b"psubscribe",
        (Kind::Pattern, false) => b"punsubscribe",
        (Kind::Shard, true) => b"ssubscribe",
        (Kind::Shard, false) => b"sunsubscribe",
    };
    let [channels, patterns, shards] = session.hearing.as_ref().map_or([0; 3], |hearing| hearing.counts());
    let count = if kind == Kind::Shard { shards } else { channels + patterns };
    words::push_head(out, session.version, 3);
    words::bulk(out, word);
    match name {
        Some(name) => words::bulk(out, name),
        None => words::null(out, session.version),
    }
    words::integer(out, count as i64);
}
