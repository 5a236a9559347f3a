//! Listening to a running server: what its clients ask for, as requests.

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use super::{Listener, Times};
use crate::live::Live;
use crate::replay::probe::{Way, meet, read_line};
use crate::replay::server::Blocking;
use crate::replay::{Credentials, Protocol, Server};
use crate::trace::events::{Events, Teller};
use crate::{Fields, Request, SourceError};

/// How long the server may take to answer at the beginning.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// How long one call waits for events.
const WAIT: Duration = Duration::from_millis(100);
/// The longest line that is read: the lines of `MONITOR` have values in them. A longer one is left out.
const LINE_BYTES_MAX: usize = 4 << 20;
/// Bytes of lines that are kept: there is always room behind a line that has not ended.
const BUFFER_BYTES: usize = LINE_BYTES_MAX + (1 << 20);

/// A connection on which a server tells what its clients do.
pub struct Capture {
    server: Server,
    connection: Blocking,
    events: Events,
    teller: Teller,
    /// Bytes of lines that are not read yet, in `..filled`.
    buffer: Vec<u8>,
    filled: usize,
    times: Times,
    unread: u64,
    /// The rest of a line that is too long is on its way.
    skips: bool,
    /// Whether the server tells of deletes.
    tells_deletes: bool,
    /// Why the connection ended before it was closed.
    broken: Option<String>,
    /// How many events the server had dropped at the beginning.
    dropped: f64,
}

impl Capture {
    /// Asks a server to tell. `protocol`: `None` = detected.
    ///
    /// # Errors
    /// One line: the server is unreachable, refuses the login, or does not tell.
    pub fn begin(
        server: &Server,
        protocol: Option<Protocol>,
        credentials: Option<&Credentials>,
    ) -> Result<Capture, String> {
        let (found, mut connection) =
            meet(&Way { server, protocol, credentials, database: None, timeout: ANSWER_TIMEOUT })?;
        let (teller, asks, wanted): (_, &[&str], _) = match found.protocol {
            // Releases before 1.6.21 do not tell of deletes.
            Protocol::Memcached => {
                (Teller::Watch, &["watch fetchers mutations deletions", "watch fetchers mutations"], "OK")
            }
            Protocol::Resp => (Teller::Monitor, &["MONITOR"], "+OK"),
        };
        let failed = |error| format!("{server}: {error}");
        let mut answer = String::new();
        for ask in asks {
            connection.write_all(format!("{ask}\r\n").as_bytes()).map_err(failed)?;
            answer = String::from_utf8_lossy(&read_line(&mut connection).map_err(failed)?).into_owned();
            if answer == wanted {
                connection.set_read_timeout(WAIT).map_err(failed)?;
                return Ok(Capture {
                    server: server.clone(),
                    connection,
                    events: Events::new(teller),
                    teller,
                    buffer: vec![0; BUFFER_BYTES],
                    filled: 0,
                    times: Times::default(),
                    unread: 0,
                    skips: false,
                    tells_deletes: teller == Teller::Monitor || ask.ends_with("deletions"),
                    broken: None,
                    dropped: if teller == Teller::Watch { dropped_by(server) } else { 0.0 },
                });
            }
        }
        Err(format!("{server}: it does not tell what its clients do: '{answer}'"))
    }

    /// Which lines the server tells.
    pub fn teller(&self) -> Teller {
        self.teller
    }

    fn give(&mut self, into: &mut Vec<Request>, is_over: bool) {
        while let Some(told) = self.events.pop(is_over) {
            into.push(self.times.stamp(told));
        }
    }
}

impl Listener for Capture {
    fn fields(&self) -> Fields {
        self.events.fields()
    }

    fn hit_ratio(&self) -> Option<(f64, u64)> {
        self.events.hit_ratio()
    }

    fn done_ratio(&self) -> Option<f64> {
        None
    }

    fn notice(&self) -> Option<String> {
        let dropped =
            if self.teller == Teller::Watch { dropped_by(&self.server) - self.dropped } else { 0.0 };
        let parts = [
            self.events.notice(),
            (dropped > 0.0).then(|| format!("the server had no room for {dropped} events")),
            (self.unread > 0).then(|| format!("{} lines could not be read", self.unread)),
            (!self.tells_deletes).then(|| "it does not tell of deletes, which count as reads".to_owned()),
            self.broken.as_ref().map(|why| format!("the connection broke: {why}")),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        (!parts.is_empty()).then(|| format!("{}: {}", self.server, parts.join("; ")))
    }

    fn take(&mut self, into: &mut Vec<Request>) -> Result<bool, SourceError> {
        let got = match self.connection.read(&mut self.buffer[self.filled..]) {
            Ok(got) => got,
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) =>
            {
                // What belongs together comes together.
                self.give(into, true);
                return Ok(true);
            }
            Err(error) => {
                self.broken = Some(error.to_string());
                0
            }
        };
        // What came before has no end of a line in it.
        let new = self.filled..self.filled + got;
        self.filled = new.end;
        let end = self.buffer[new.clone()].iter().rposition(|&octet| octet == b'\n');
        let end = end.map_or(0, |at| new.start + at + 1);
        for line in self.buffer[..end].split_inclusive(|&octet| octet == b'\n') {
            let line = line.trim_ascii();
            let is_rest = std::mem::take(&mut self.skips);
            if !is_rest && !line.is_empty() && self.events.push(line).is_err() {
                self.unread += 1;
            }
        }
        self.buffer.copy_within(end..self.filled, 0);
        self.filled -= end;
        if self.filled >= LINE_BYTES_MAX {
            self.unread += u64::from(!self.skips);
            (self.filled, self.skips) = (0, true);
        }
        self.give(into, got == 0);
        Ok(got > 0)
    }

    fn end(&mut self, into: &mut Vec<Request>) {
        self.give(into, true);
    }
}

/// How many events a memcached has dropped since its start, because its threads had no room for them. 0 where it does
/// not say.
fn dropped_by(server: &Server) -> f64 {
    let stats = Live::connect(server).and_then(|mut live| live.stats(""));
    stats.ok().and_then(|stats| stats.number("log_worker_dropped")).unwrap_or(0.0)
}
