//! Client-side caching: `CLIENT TRACKING` and what belongs to it, and the keys that connections read.

use super::channel_commands::namespace_of;
use super::clients::Client;
use super::compose::{say, say_error};
use super::errors::{self, Error};
use super::hearing::{Mode, Tracks};
use super::mailbox::Mailbox;
use super::request::switch;
use super::session::{Connection, Session};
use super::tracking::{TooMany, Tracking, Wish, set_changer};
use super::worker::Resp;
use crate::dispatch::execute::Executor;
use crate::dispatch::operation::ItemKey;
use larder_cache::Hearer;
use larder_protocol::resp::{Args, Command, Id, Keys, compose as words, decimal, flags};
use std::sync::Arc;

/// The most prefixes of one connection.
const PREFIXES_MAX: usize = 256;
/// The longest of them, in bytes.
const PREFIX_BYTES_MAX: usize = 250;

/// What `CLIENT TRACKING ON` asks for.
#[derive(Default)]
struct Options<'a> {
    redirect: Option<Arc<Client>>,
    prefixes: Vec<&'a [u8]>,
    is_broadcast: bool,
    is_opt_in: bool,
    is_opt_out: bool,
    ignores_own: bool,
}

impl Options<'_> {
    fn mode(&self) -> Mode {
        match self {
            Options { is_broadcast: true, .. } => Mode::Broadcast,
            Options { is_opt_in: true, .. } => Mode::OptIn,
            Options { is_opt_out: true, .. } => Mode::OptOut,
            _ => Mode::Read,
        }
    }

    /// Whether a connection that tracks keys as in `before` may do so.
    fn check(&self, before: Option<&Tracks>) -> Result<(), Error> {
        let before = before.map(|tracks| tracks.mode);
        if !self.is_broadcast && !self.prefixes.is_empty() {
            return Err(errors::PREFIX_WITHOUT_BROADCAST);
        }
        if before.is_some_and(|mode| (mode == Mode::Broadcast) != self.is_broadcast) {
            return Err(errors::SWITCHED_BROADCAST);
        }
        if self.is_broadcast && (self.is_opt_in || self.is_opt_out) {
            return Err(errors::OPT_WITH_BROADCAST);
        }
        if self.is_opt_in && self.is_opt_out {
            return Err(errors::OPT_BOTH);
        }
        let is_switched = match before {
            Some(Mode::OptOut) => self.is_opt_in,
            Some(Mode::OptIn) => self.is_opt_out,
            _ => false,
        };
        if is_switched { Err(errors::SWITCHED_OPT) } else { Ok(()) }
    }
}

/// How a connection tracks keys.
struct How {
    mode: Mode,
    prefixes: Vec<Vec<u8>>,
    ignores_own: bool,
    redirect: Option<(u64, Arc<Mailbox>)>,
}

/// Whether a prefix and each of `others` have no key in common.
fn check_overlap<'p>(
    prefix: &[u8],
    mut others: impl Iterator<Item = &'p [u8]>,
    which: &str,
) -> Result<(), Error> {
    let overlaps = |other: &&[u8]| other.starts_with(prefix) || prefix.starts_with(other);
    match others.find(overlaps) {
        None => Ok(()),
        Some(other) => {
            let begin = [b"ERR Prefix '", prefix, b"' overlaps with ", which.as_bytes(), b" '"].concat();
            let end = b"'. Prefixes for a single client must not overlap.";
            Err([&begin[..], other, end].concat().into())
        }
    }
}

/// Ends the effect of `CLIENT CACHING`, which is for one command, or for one transaction.
pub(super) fn end_caching(connection: &mut Connection) {
    if let Some(session) = &mut connection.session
        && session.transaction.is_none()
        && let Some(tracks) = session.hearing.as_mut().and_then(|hearing| hearing.tracks.as_mut())
    {
        tracks.is_turned = false;
    }
}

/// `CLIENT CACHING`.
pub(super) fn turn_caching(session: &mut Session, word: &[u8]) -> Result<(), Error> {
    let tracks = session.hearing.as_mut().and_then(|hearing| hearing.tracks.as_mut());
    let tracks = tracks.ok_or(errors::NO_CACHING)?;
    match (&word.to_ascii_lowercase()[..], tracks.mode) {
        (b"yes", Mode::OptIn) | (b"no", Mode::OptOut) => tracks.is_turned = true,
        (b"yes", _) => return Err(errors::CACHING_YES),
        (b"no", _) => return Err(errors::CACHING_NO),
        _ => return Err(errors::SYNTAX),
    }
    Ok(())
}

/// `CLIENT TRACKINGINFO`.
pub(super) fn compose_tracking(out: &mut Vec<u8>, session: &Session) {
    let tracks = session.hearing.as_ref().and_then(|hearing| hearing.tracks.as_ref());
    let words_of = |tracks: &Tracks| {
        let of_mode: &[&str] = match (tracks.mode, tracks.is_turned) {
            (Mode::Read, _) => &[],
            (Mode::Broadcast, _) => &["bcast"],
            (Mode::OptIn, false) => &["optin"],
            (Mode::OptIn, true) => &["optin", "caching-yes"],
            (Mode::OptOut, false) => &["optout"],
            (Mode::OptOut, true) => &["optout", "caching-no"],
        };
        let mut all = vec!["on"];
        all.extend(of_mode);
        all.extend(tracks.ignores_own.then_some("noloop"));
        all.extend(tracks.tracker.is_broken().then_some("broken_redirect"));
        all
    };
    let flags = tracks.map_or(vec!["off"], words_of);
    let version = session.version;
    words::map_head(out, version, 3);
    words::bulk(out, b"flags");
    words::set_head(out, version, flags.len());
    flags.iter().for_each(|flag| words::bulk(out, flag.as_bytes()));
    words::bulk(out, b"redirect");
    words::integer(out, tracks.map_or(-1, |tracks| tracks.tracker.redirect() as i64));
    words::bulk(out, b"prefixes");
    let prefixes = tracks.map_or(&[][..], |tracks| &tracks.prefixes);
    words::array_head(out, prefixes.len());
    prefixes.iter().for_each(|prefix| words::bulk(out, prefix));
}

impl Resp {
    /// `CLIENT TRACKING`. `args` = what follows it.
    pub(super) fn track(&mut self, executor: &mut Executor, connection: &mut Connection, args: Args<'_>) {
        let mut rest = args;
        let word = rest.next().unwrap_or_default();
        let done = self.read_tracking(connection, rest).and_then(|options| match switch(word)? {
            true => self.begin_tracking(executor, connection, &options),
            false => {
                if let Some(session) = &mut connection.session {
                    self.end_tracking(executor, session);
                }
                Ok(())
            }
        });
        match done {
            Ok(()) => say(&mut connection.output, "OK"),
            Err(error) => say_error(&mut connection.output, &error),
        }
    }

    fn read_tracking<'a>(&self, connection: &Connection, mut args: Args<'a>) -> Result<Options<'a>, Error> {
        let mut options = Options::default();
        while let Some(option) = args.next() {
            match &option.to_ascii_lowercase()[..] {
                b"redirect" if args.len() > 0 => {
                    if options.redirect.is_some() {
                        return Err(errors::REDIRECTED_TWICE);
                    }
                    let id = args.next().and_then(decimal).ok_or(errors::NOT_INTEGER)?;
                    let client = u64::try_from(id).ok().and_then(|id| self.shared.clients.find(id));
                    // A user with a namespace knows of its own connections alone.
                    let user = user_of(connection);
                    let is_own =
                        |client: &Arc<Client>| connection.namespace().is_none() || client.told().user == user;
                    options.redirect = Some(client.filter(is_own).ok_or(errors::NO_REDIRECT)?);
                }
                b"prefix" if args.len() > 0 => options.prefixes.extend(args.next()),
                b"bcast" => options.is_broadcast = true,
                b"optin" => options.is_opt_in = true,
                b"optout" => options.is_opt_out = true,
                b"noloop" => options.ignores_own = true,
                _ => return Err(errors::SYNTAX),
            }
        }
        Ok(options)
    }

    fn begin_tracking(
        &mut self,
        executor: &mut Executor,
        connection: &mut Connection,
        options: &Options<'_>,
    ) -> Result<(), Error> {
        let session = connection.session.as_ref();
        let before = session.and_then(|session| session.hearing.as_ref()?.tracks.as_ref());
        options.check(before)?;
        let mut prefixes = before.map_or(Vec::new(), |tracks| tracks.prefixes.clone());
        if options.is_broadcast {
            let new = &options.prefixes[..];
            for (at, prefix) in new.iter().enumerate() {
                check_overlap(prefix, prefixes.iter().map(|prefix| &prefix[..]), "an existing prefix")?;
                check_overlap(prefix, new[at + 1..].iter().copied(), "another provided prefix")?;
            }
            let is_all = new.is_empty() && !prefixes.iter().any(Vec::is_empty);
            prefixes.extend(new.iter().map(|prefix| prefix.to_vec()).chain(is_all.then(Vec::new)));
        }
        if prefixes.len() > PREFIXES_MAX || prefixes.iter().any(|prefix| prefix.len() > PREFIX_BYTES_MAX) {
            return Err(errors::TOO_MANY_PREFIXES_TRACKED);
        }
        let redirect = options.redirect.as_ref().map(|client| (client.id, client.mailbox().clone()));
        let how = How { mode: options.mode(), prefixes, ignores_own: options.ignores_own, redirect };
        self.set_tracker(executor, connection, how)
    }

    /// The connection tracks keys in this way from now on.
    fn set_tracker(
        &mut self,
        executor: &mut Executor,
        connection: &mut Connection,
        how: How,
    ) -> Result<(), Error> {
        // A worker that is in the middle of a change would not tell of it: see `Cache::tell_changes`.
        let _alone = self.be_alone_whatever_changes(executor, connection);
        let namespace = namespace_of(connection);
        let Some(session) = &mut connection.session else { return Ok(()) };
        let hearing = session.hearing.get_or_insert_default();
        let How { mode, prefixes, ignores_own, redirect } = how;
        let wish = Wish {
            client: session.client.id,
            mailbox: session.client.mailbox().clone(),
            redirect,
            ignores_own,
            namespace,
            prefixes: if mode == Mode::Broadcast { prefixes.clone() } else { Vec::new() },
        };
        let before = hearing.tracks.as_ref().map(|tracks| (&tracks.tracker, &tracks.prefixes[..]));
        let added = self.shared.told.tracking.add(wish, before, || {
            executor.cache().tell_changes(true);
            executor.cache().tell_departures(Hearer::Readers, true);
        });
        let tracker = added.map_err(|why| match why {
            TooMany::Trackers => errors::TOO_MANY_TRACKERS,
            TooMany::Prefixes => errors::TOO_MANY_PREFIXES_TRACKED,
        })?;
        session.client.set_tracking(Some(tracker.redirect()), mode == Mode::Broadcast);
        hearing.tracks = Some(Tracks { tracker, mode, is_turned: false, ignores_own, prefixes });
        session.settle();
        self.turn.tracks = true;
        Ok(())
    }

    /// The client of a connection has logged in: its keys may be others from now on, and its channels.
    pub(super) fn hear_as_user(&mut self, executor: &mut Executor, connection: &mut Connection) {
        let namespace = namespace_of(connection);
        let Some(hearing) = connection.session.as_ref().and_then(|session| session.hearing.as_ref()) else {
            return;
        };
        let has_other_channels = hearing.is_subscriber() && hearing.namespace != namespace;
        if let Some(tracks) = &hearing.tracks
            && tracks.tracker.namespace() != &*namespace
        {
            // What it has read as another user, it hears of no more.
            tracks.tracker.tell_all(&self.shared.told.post);
            let Tracks { mode, ignores_own, .. } = *tracks;
            let prefixes = tracks.prefixes.clone();
            // The other connection may belong to somebody else.
            let is_set = tracks.tracker.redirect() == 0
                && self
                    .set_tracker(executor, connection, How { mode, prefixes, ignores_own, redirect: None })
                    .is_ok();
            if !is_set && let Some(session) = &mut connection.session {
                self.end_tracking(executor, session);
            }
        }
        if has_other_channels && let Some(session) = &mut connection.session {
            self.leave_channels(session);
            session.settle();
        }
    }

    /// The connection tracks no keys any more.
    fn end_tracking(&self, executor: &Executor, session: &mut Session) {
        if let Some(hearing) = &mut session.hearing
            && let Some(tracks) = hearing.tracks.take()
        {
            self.shared.told.tracking.remove(&tracks.tracker, &tracks.prefixes, || {
                executor.cache().tell_changes(false);
                executor.cache().tell_departures(Hearer::Readers, false);
            });
        }
        session.client.set_tracking(None, false);
        session.settle();
    }

    /// The connection hears of nothing any more.
    pub(super) fn hear_no_more(&self, executor: &Executor, session: &mut Session) {
        if session.hearing.is_some() {
            self.end_tracking(executor, session);
            self.leave_channels(session);
            session.hearing = None;
        }
    }

    // ---- requests of those who track keys, and of others meanwhile ----

    /// Before a request while somebody tracks keys: notes whose it is, and which keys it reads.
    #[cold]
    pub(super) fn note_request(
        &mut self,
        executor: &Executor,
        connection: &Connection,
        command: &Command,
        args: Args<'_>,
    ) {
        let Some(session) = &connection.session else { return };
        // Those on several keys note them one by one.
        let is_by_key = matches!(command.id, Id::Mget | Id::Exists | Id::Touch);
        // A script has read what its commands have read.
        let has_keys = !command.keys.are_none() && command.keys != Keys::COUNTED;
        if command.has(flags::READONLY) && has_keys && !is_by_key && session.remembers_reads() {
            let Resp { shared, rooms: [room, _], .. } = self;
            for key in command.keys.of(args) {
                let item = room.item_key(key, |key| executor.hash(key));
                note_read(&shared.told.tracking, executor, session, &item, key);
            }
        }
        set_changer(session.client.id);
    }
}

/// Before a key is read: as `item` has it, and with what stands before the keys of its client.
pub(super) fn note_read(
    tracking: &Tracking,
    executor: &Executor,
    session: &Session,
    item: &ItemKey<'_>,
    key: &[u8],
) {
    let Some(tracks) = session.hearing.as_ref().and_then(|hearing| hearing.tracks.as_ref()) else { return };
    let is_new = match tracks.mode {
        Mode::Broadcast => {
            let begins_with = |shown: &[u8]| tracks.prefixes.iter().any(|prefix| shown.starts_with(prefix));
            tracks.tracker.shown(key).is_some_and(begins_with)
        }
        _ => tracking.note_read(&tracks.tracker, item.hash, key),
    };
    if is_new && let Some(expiry) = executor.expiry_after_changes(item) {
        tracking.note_expiry(item.hash, item.key, expiry);
    }
}

fn user_of(connection: &Connection) -> Vec<u8> {
    connection.session.as_ref().map_or(Vec::new(), |session| session.client.told().user.clone())
}
