//! What a client asks on a connection and the server answers.

use std::collections::VecDeque;

use super::memcached;
use super::reader::Reader;
use super::resp::{self, Answer, Commands};
use super::stream::{Octets, Piece, Stream};
use super::waiting::{Lost, Waiting};
use crate::trace::asked::Asked;

/// Answers that may be waited for.
const WAITING_MAX: usize = 10_000;

/// Bytes that show whether a request begins.
const BEGIN_BYTES: usize = 16;

/// The language of a connection.
enum Speech {
    /// No request has been recognised.
    Unknown,
    Memcached,
    Resp(Box<Commands>),
}

/// What is counted over all connections.
#[derive(Default)]
pub(super) struct Counts {
    /// Commands that are no request for the item of a key.
    pub(super) others: u64,
    /// How often requests were lost.
    pub(super) losses: u64,
}

/// What is said on a connection.
pub(super) struct Talk {
    speech: Speech,
    asks: Reader,
    /// Requests are looked for: the place in what is asked is not known.
    searches: bool,
    /// When the last request came.
    time_us: u64,
    answers: Reader,
    answer: Answer,
    waiting: VecDeque<Waiting>,
    /// Whether it is known which request an answer belongs to.
    is_matched: bool,
}

impl Talk {
    /// Nothing has been said.
    pub(super) fn new() -> Talk {
        Talk {
            speech: Speech::Unknown,
            asks: Reader::default(),
            searches: true,
            time_us: 0,
            answers: Reader::default(),
            answer: Answer::default(),
            waiting: VecDeque::new(),
            is_matched: false,
        }
    }

    /// Whether a request has been recognised.
    pub(super) fn is_known(&self) -> bool {
        !matches!(self.speech, Speech::Unknown)
    }

    /// Takes what the client has sent. `server` = the other direction.
    pub(super) fn ask(
        &mut self,
        piece: &Piece<'_>,
        server: &mut Stream,
        asked: &mut Asked,
        counts: &mut Counts,
    ) {
        let done = match piece {
            Piece::Octets(octets) => self.ask_octets(octets, server, asked),
            Piece::Hole(_) if self.searches => {
                self.asks = Reader::default();
                Ok(0)
            }
            Piece::Hole(bytes) => self.ask_hole(*bytes, asked),
        };
        match done {
            Ok(others) => counts.others += others,
            Err(Lost) => {
                counts.losses += 1;
                self.searches = true;
                self.asks = Reader::default();
                self.unmatch();
            }
        }
        if self.waiting.len() > WAITING_MAX {
            self.unmatch();
        }
    }

    fn ask_octets(
        &mut self,
        octets: &Octets<'_>,
        server: &mut Stream,
        asked: &mut Asked,
    ) -> Result<u64, Lost> {
        let begin = if self.searches { self.search(octets) } else { self.begin(octets) };
        if self.searches {
            return Ok(0);
        }
        if !self.is_matched
            && let (Some(begin), Some(acknowledges)) = (begin, octets.acknowledges)
            && server.is_quiet(begin, acknowledges)
        {
            self.unmatch();
            self.is_matched = true;
        }
        self.time_us = octets.time_us;
        let (time_us, waiting) = (self.time_us, &mut self.waiting);
        match &mut self.speech {
            Speech::Unknown => Ok(0),
            Speech::Memcached => memcached::ask(&mut self.asks, time_us, waiting, asked).map(|()| 0),
            Speech::Resp(commands) => commands.ask(&mut self.asks, time_us, waiting, asked),
        }
    }

    /// Takes data behind those that are known. Returns the number of their first byte if a request begins there.
    fn begin(&mut self, octets: &Octets<'_>) -> Option<u32> {
        let is_between = match &self.speech {
            Speech::Resp(commands) => self.asks.is_empty() && commands.is_between(),
            _ => self.asks.is_empty(),
        };
        self.asks.take(octets.octets);
        is_between.then_some(octets.sequence)
    }

    /// Looks for a request at the begin of a segment, which may have only the first bytes of it. Returns the number of
    /// the byte where one begins, and does not search any more.
    fn search(&mut self, octets: &Octets<'_>) -> Option<u32> {
        let before = std::mem::take(&mut self.asks.buffer);
        for before in [before.as_slice(), &[]] {
            if before.is_empty() && !octets.begins {
                break;
            }
            let both = [before, octets.octets].concat();
            if self.recognise(&both) {
                self.searches = false;
                self.asks.buffer = both;
                return Some(octets.sequence.wrapping_sub(before.len() as u32));
            }
            if both.len() < BEGIN_BYTES {
                self.asks.buffer = both;
                break;
            }
        }
        None
    }

    fn ask_hole(&mut self, bytes: u64, asked: &mut Asked) -> Result<u64, Lost> {
        match &mut self.speech {
            Speech::Resp(commands) => {
                commands.hole(&mut self.asks, bytes, self.time_us, &mut self.waiting, asked).ok_or(Lost)
            }
            _ if self.asks.hole(bytes) => Ok(0),
            _ => Err(Lost),
        }
    }

    /// Whether a segment begins with a request. A connection keeps its language.
    fn recognise(&mut self, octets: &[u8]) -> bool {
        match &mut self.speech {
            Speech::Unknown if memcached::begins(octets) => self.speech = Speech::Memcached,
            Speech::Unknown if resp::begins(octets) => self.speech = Speech::Resp(Box::new(Commands::new())),
            Speech::Memcached if memcached::begins(octets) => {}
            Speech::Resp(commands) if resp::begins(octets) => commands.reset(),
            _ => return false,
        }
        true
    }

    /// Takes what the server has sent.
    pub(super) fn answer(&mut self, piece: &Piece<'_>, asked: &mut Asked) {
        if !self.is_matched {
            return;
        }
        let done = match piece {
            Piece::Hole(bytes) if self.answers.hole(*bytes) => Ok(()),
            Piece::Hole(_) => Err(Lost),
            Piece::Octets(octets) => {
                self.answers.take(octets.octets);
                match self.speech {
                    Speech::Resp(_) => self.answer.read(&mut self.answers, &mut self.waiting, asked),
                    _ => memcached::answer(&mut self.answers, &mut self.waiting, asked),
                }
            }
        };
        if done.is_err() {
            self.unmatch();
        }
    }

    /// Gives up what is waited for, until it is known again which request an answer belongs to.
    fn unmatch(&mut self) {
        self.is_matched = false;
        self.waiting.clear();
        self.answers = Reader::default();
        self.answer = Answer::default();
    }
}
