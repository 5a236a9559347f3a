//! `CLIENT LIST`, `INFO` and `KILL`: connections as they are shown, and which of them are chosen.

use super::errors::{self, Error};
use super::session::{Connection, Session};
use crate::dispatch::resp::clients::{Client, ClientReport, NO_COMMAND};
use larder_protocol::resp::{Args, Command, all, decimal};
use std::sync::Arc;

/// What a connection takes beside what it holds, as far as it has no buffers.
const CONNECTION_BYTES: u64 = (size_of::<Connection>() + size_of::<Session>() + size_of::<Client>()) as u64;

/// One connection, on a line without its end. What has no meaning here is 0.
pub(in crate::dispatch) fn line(report: &ClientReport) -> Vec<u8> {
    let mut text =
        format!("id={} addr={} laddr={} fd={} name=", report.id, report.remote, report.local, report.fd)
            .into_bytes();
    text.extend_from_slice(&report.told.name);
    let (flags, traffic) = (flags(report), report.traffic);
    text.extend_from_slice(
        format!(
            " age={} idle={} flags={flags} capa= db={} sub={} psub={} ssub={} multi={} watch={} qbuf={} qbuf-free=0 \
             argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 omem={} tot-mem={} events=r cmd={} user=",
            report.age_s,
            report.idle_s,
            report.database,
            report.subscriptions[0],
            report.subscriptions[1],
            report.subscriptions[2],
            report.queued,
            report.watched,
            traffic.input,
            traffic.output,
            CONNECTION_BYTES + traffic.held,
            command_name(report.last_command)
        )
        .as_bytes(),
    );
    text.extend_from_slice(&report.told.user);
    text.extend_from_slice(
        format!(" redir={} resp={} lib-name=", report.redirect, report.version).as_bytes(),
    );
    text.extend_from_slice(&report.told.library);
    text.extend_from_slice(b" lib-ver=");
    text.extend_from_slice(&report.told.library_version);
    text.extend_from_slice(
        format!(" tot-net-in={} tot-net-out={} tot-cmds={}", traffic.received, traffic.sent, report.commands)
            .as_bytes(),
    );
    text
}

fn flags(report: &ClientReport) -> String {
    let all = [
        (is_subscriber(report), 'P'),
        (report.queued >= 0, 'x'),
        (report.redirect >= 0, 't'),
        (report.is_broadcast, 'B'),
    ];
    let flags: String = all.into_iter().filter(|(is_so, _)| *is_so).map(|(_, flag)| flag).collect();
    if flags.is_empty() { "N".to_owned() } else { flags }
}

/// Whether a connection hears of channels.
pub(in crate::dispatch) fn is_subscriber(report: &ClientReport) -> bool {
    report.subscriptions != [0; 3]
}

fn command_name(number: u16) -> String {
    if number == NO_COMMAND {
        return "NULL".to_owned();
    }
    let rows = all().flat_map(|command| std::iter::once(command).chain(command.subcommands));
    rows.into_iter().find(|command| command.id as u16 == number).map_or("NULL".to_owned(), Command::full_name)
}

/// Which connections are meant: those for which all of this holds.
#[derive(Default)]
pub(in crate::dispatch) struct Filter<'a> {
    conditions: Vec<Condition<'a>>,
    /// The connection that asks is not meant.
    skips_own: bool,
}

/// What has to hold of a connection, or with `is_not` must not.
struct Condition<'a> {
    is_not: bool,
    what: What<'a>,
}

enum What<'a> {
    Ids(Vec<i64>),
    OfType(Type),
    Address(&'a [u8]),
    OwnAddress(&'a [u8]),
    Ip(&'a [u8]),
    Name(&'a [u8]),
    User(&'a [u8]),
    Library(&'a [u8]),
    LibraryVersion(&'a [u8]),
    Flags(&'a [u8]),
    /// No connection has announced anything that it can.
    Never,
    Always,
    /// Seconds, at least.
    Age(i64),
    Idle(i64),
}

/// The types of connections.
enum Type {
    Normal,
    Subscriber,
    /// Of which there are none.
    Server,
}

/// The flags of connections in Valkey.
const FLAGS: &[u8] = b"AbBcdeEiIMNOPrStTuUx";

impl<'a> Filter<'a> {
    /// One address, the old form of `CLIENT KILL`.
    pub(in crate::dispatch) fn of_address(address: &'a [u8]) -> Filter<'a> {
        let condition = Condition { is_not: false, what: What::Address(address) };
        Filter { conditions: vec![condition], skips_own: false }
    }

    /// The words of `CLIENT LIST`, or with `skips_own` those of `CLIENT KILL`.
    ///
    /// # Errors
    /// The error to answer.
    pub(in crate::dispatch) fn read(
        mut words: Args<'a>,
        skips_own: bool,
        has_user: impl Fn(&[u8]) -> bool,
    ) -> Result<Filter<'a>, Error> {
        let mut filter = Filter { conditions: Vec::new(), skips_own };
        while let Some(word) = words.next() {
            let name = word.to_ascii_lowercase();
            let (is_not, name) = match name.strip_prefix(b"not-") {
                Some(rest) => (true, rest),
                None => (false, &name[..]),
            };
            if name == b"id" {
                let mut ids = Vec::new();
                while let Some(id) = words.clone().next().and_then(decimal) {
                    ids.push(Some(id).filter(|id| *id > 0).ok_or_else(|| must_be_positive("client-id"))?);
                    words.next();
                }
                filter.conditions.push(Condition { is_not, what: What::Ids(ids) });
                continue;
            }
            let value = words.next().ok_or(errors::SYNTAX)?;
            let what = match name {
                b"type" => What::OfType(read_type(value)?),
                b"addr" => What::Address(value),
                b"laddr" => What::OwnAddress(value),
                b"ip" => What::Ip(value),
                b"name" => What::Name(value),
                b"user" if has_user(value) => What::User(value),
                b"user" => return Err(errors::about("ERR No such user '", value, "'")),
                b"lib-name" => What::Library(value),
                b"lib-ver" => What::LibraryVersion(value),
                b"flags" if value.iter().all(|flag| FLAGS.contains(flag)) => What::Flags(value),
                b"flags" => {
                    let place = if is_not { "NOT-FLAGS" } else { "provided" };
                    let why = format!("ERR Unknown flags found in the {place} filter: ");
                    return Err(errors::about(&why, value, ""));
                }
                b"capa" => What::Never,
                b"db" => match decimal(value) {
                    Some(0) => What::Always,
                    Some(_) => return Err(errors::made("ERR DB number should be between 0 and 0")),
                    None => return Err(errors::made("ERR DB is not an integer or out of range")),
                },
                b"maxage" if !is_not => What::Age(seconds("maxage", value)?),
                b"idle" if !is_not => What::Idle(seconds("idle", value)?),
                b"skipme" if !is_not => {
                    filter.skips_own = match &value.to_ascii_lowercase()[..] {
                        b"yes" => true,
                        b"no" => false,
                        _ => return Err(errors::SYNTAX),
                    };
                    continue;
                }
                _ => return Err(errors::SYNTAX),
            };
            filter.conditions.push(Condition { is_not, what });
        }
        Ok(filter)
    }

    /// The connections that are meant. `own` = the one that asks.
    pub(in crate::dispatch) fn choose(&self, all: Vec<Arc<Client>>, own: u64) -> Vec<Arc<Client>> {
        let is_meant = |client: &Arc<Client>| {
            if self.skips_own && client.id == own {
                return false;
            }
            if self.conditions.is_empty() {
                return true;
            }
            let report = client.report();
            self.conditions.iter().all(|condition| condition.what.holds(&report) != condition.is_not)
        };
        all.into_iter().filter(is_meant).collect()
    }
}

impl What<'_> {
    fn holds(&self, client: &ClientReport) -> bool {
        match self {
            What::Ids(ids) => ids.contains(&(client.id as i64)),
            What::OfType(Type::Normal) => !is_subscriber(client),
            What::OfType(Type::Subscriber) => is_subscriber(client),
            What::OfType(Type::Server) => false,
            What::Address(address) => *address == client.remote.as_bytes(),
            What::OwnAddress(address) => *address == client.local.as_bytes(),
            What::Ip(ip) => {
                let host = client.remote.rsplit_once(':').map_or(&client.remote[..], |(host, _)| host);
                *ip == host.trim_matches(['[', ']']).as_bytes()
            }
            What::Name(name) => *name == client.told.name,
            What::User(name) => *name == client.told.user,
            What::Library(name) => *name == client.told.library,
            What::LibraryVersion(version) => *version == client.told.library_version,
            What::Flags(wanted) => wanted.iter().all(|flag| flags(client).as_bytes().contains(flag)),
            What::Never => false,
            What::Always => true,
            What::Age(least) => client.age_s as i64 >= *least,
            What::Idle(least) => client.idle_s as i64 >= *least,
        }
    }
}

fn must_be_positive(what: &str) -> Error {
    errors::made(format!("ERR {what} should be greater than 0"))
}

fn seconds(what: &str, text: &[u8]) -> Result<i64, Error> {
    let wrong = || errors::made(format!("ERR {what} is not an integer or out of range"));
    let seconds = decimal(text).ok_or_else(wrong)?;
    if seconds > 0 { Ok(seconds) } else { Err(must_be_positive(what)) }
}

fn read_type(name: &[u8]) -> Result<Type, Error> {
    match &name.to_ascii_lowercase()[..] {
        b"normal" => Ok(Type::Normal),
        b"pubsub" => Ok(Type::Subscriber),
        b"master" | b"primary" | b"replica" | b"slave" => Ok(Type::Server),
        _ => Err(errors::about("ERR Unknown client type '", name, "'")),
    }
}

/// Whether a connection may be called so, or a library.
pub(in crate::dispatch) fn is_name(name: &[u8]) -> bool {
    name.iter().all(|byte| (b'!'..=b'~').contains(byte))
}
