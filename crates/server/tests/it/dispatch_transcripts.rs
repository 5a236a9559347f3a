//! The transcripts, played to a dispatcher in this process: whole, cut at every byte, cut in two behind every byte, and
//! with everything that a case sends at once. The replies are always the same.

#[path = "../dispatch_support/transcript.rs"]
mod transcript;

use crate::dispatch_support::{Client, Talk, dispatcher, on_a_connection};
use larder_cache::Cache;
use larder_server::dispatch::Dispatcher;
use larder_server::settings::Settings;
use std::collections::BTreeMap;
use std::sync::Arc;
use transcript::{Case, Names, Piece, Step, cases, compose, matches};

/// A case that sends more bytes than these is cut less often.
const CUT_BYTES_MAX: usize = 6000;
const SPLIT_BYTES_MAX: usize = 400;

/// The words before the number of connections in `stats`.
const TOTAL_CONNECTIONS: &str = "STAT total_connections ";

/// How what a case sends is divided into pieces.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Cut {
    Whole,
    EveryByte,
    /// In two pieces, the first of this length.
    Behind(usize),
    /// In one piece, before any reply is read.
    AllAtOnce,
}

/// The settings for a case's flags. `None` = a flag is only for a process.
fn settings_of(flags: &[String]) -> Option<Settings> {
    let mut settings = Settings { memory_bytes: 64 << 20, threads: 2, ..Settings::default() };
    let mut flags = flags.iter();
    while let Some(flag) = flags.next() {
        match flag.as_str() {
            "-A" => settings.shutdown_enabled = true,
            "-F" => settings.flush_enabled = false,
            "-M" => settings.evict = false,
            "-W" => settings.watch_enabled = false,
            "-X" => settings.dump_enabled = false,
            "-C" => settings.cas_enabled = false,
            "--enable-debugtime" => settings.debugtime_enabled = true,
            "-c" => settings.connections_max = flags.next()?.parse().ok()?,
            "-I" => {
                let text = flags.next()?;
                let (digits, unit) = match text.strip_suffix('m') {
                    Some(digits) => (digits, 1 << 20),
                    None => (text.strip_suffix('k')?, 1 << 10),
                };
                settings.item_bytes_max = digits.parse::<u32>().ok()? * unit;
            }
            _ => return None,
        }
    }
    Some(settings)
}

/// A server for all cases with the same flags.
struct Server {
    dispatcher: Dispatcher,
    cache: Arc<Cache>,
    flushes: bool,
}

/// One case on one connection.
struct Replay<'a> {
    server: &'a mut Server,
    talk: Talk,
    cut: Cut,
    sent: usize,
}

impl Replay<'_> {
    fn send(&mut self, bytes: &[u8]) {
        let pieces: Vec<&[u8]> = match self.cut {
            Cut::EveryByte if bytes.len() <= CUT_BYTES_MAX => bytes.chunks(1).collect(),
            Cut::Behind(place) if place > self.sent && place < self.sent + bytes.len() => {
                let (head, tail) = bytes.split_at(place - self.sent);
                vec![head, tail]
            }
            _ => vec![bytes],
        };
        self.sent += bytes.len();
        for piece in pieces {
            self.talk.send(&mut self.server.dispatcher, piece);
        }
    }

    /// Sends a request that is not part of the case, in one piece.
    fn ask(&mut self, question: &[u8], answer: &[u8]) -> Result<(), String> {
        self.talk.send(&mut self.server.dispatcher, question);
        let answered = std::mem::take(&mut self.talk.answered);
        if answered == answer { Ok(()) } else { Err(format!("{} -> {}", shown(question), shown(&answered))) }
    }

    fn play(&mut self, case: &Case) -> Result<(), String> {
        if self.server.flushes {
            self.ask(b"flush_all\r\n", b"OK\r\n")?;
        }
        let mut names = Names::new();
        if self.cut == Cut::AllAtOnce {
            self.send(&case.sent().expect("asked before"));
        }
        for step in &case.steps {
            self.step(step, &mut names)?;
        }
        if !matches!(case.steps.last(), Some(Step::Closed)) {
            self.ask(b"mn\r\n", b"MN\r\n")?;
        }
        Ok(())
    }

    fn step(&mut self, step: &Step, names: &mut Names) -> Result<(), String> {
        match step {
            Step::Send(_) if self.cut == Cut::AllAtOnce => {}
            Step::Send(pieces) => self.send(&compose(pieces, names)),
            Step::Wait(seconds) => {
                self.server.cache.clock().shift(seconds.ceil() as i64);
                self.server.cache.tick();
            }
            Step::Expect(pieces) => {
                let Some(line) = self.talk.line() else {
                    return Err(format!("expected {pieces:?}, got {}", shown(&self.talk.answered)));
                };
                if !matches(pieces, &line, names) {
                    return Err(format!("expected {pieces:?}, got {}", shown(&line)));
                }
            }
            Step::List(wanted, last) => {
                // Connections that no driver accepted are not counted.
                let is_counted = |pieces: &&Vec<Piece>| pieces[0] != Piece::Bytes(TOTAL_CONNECTIONS.into());
                let mut wanted: Vec<_> = wanted.iter().filter(is_counted).collect();
                loop {
                    let Some(line) = self.talk.loose_line() else { return Err(format!("no end {last:?}")) };
                    if matches(last, &line, &mut names.clone()) {
                        break;
                    }
                    wanted.retain(|pieces| !matches(pieces, &line, names));
                }
                if !wanted.is_empty() {
                    return Err(format!("no line like {wanted:?}"));
                }
            }
            Step::Closed => {
                if !self.talk.is_closed() || !self.talk.answered.is_empty() {
                    return Err(format!("expected the end, got {}", shown(&self.talk.answered)));
                }
            }
        }
        Ok(())
    }
}

fn shown(bytes: &[u8]) -> String {
    let head = &bytes[..bytes.len().min(300)];
    format!("\"{}\"", head.escape_ascii())
}

/// Whether everything can be sent before any reply is read.
fn can_pipeline(case: &Case) -> bool {
    let is_plain = |step: &Step| !matches!(step, Step::Wait(_) | Step::Closed);
    case.steps.iter().all(is_plain)
        && case.sent().is_some_and(|sent| {
            sent.len() < CUT_BYTES_MAX && !sent.windows(11).any(|window| window == b"lru_crawler")
        })
}

/// In which ways a case is cut.
fn cuts_of(case: &Case) -> Vec<Cut> {
    let mut cuts = vec![Cut::Whole];
    if case.uncut {
        return cuts;
    }
    cuts.push(Cut::EveryByte);
    if can_pipeline(case) {
        cuts.push(Cut::AllAtOnce);
    }
    let waits = case.steps.iter().any(|step| matches!(step, Step::Wait(_)));
    if let Some(sent) = case.sent()
        && sent.len() <= SPLIT_BYTES_MAX
        && !waits
    {
        cuts.extend((1..sent.len()).map(Cut::Behind));
    }
    cuts
}

/// Plays all cases with the same flags. Returns how many plays there were, and what went wrong.
fn play_group(settings: Settings, group: &[Case], client: &Client<'_>) -> (usize, Vec<String>) {
    let flushes = settings.flush_enabled;
    let (dispatcher, cache) = dispatcher(settings, None, Some(client));
    let mut server = Server { dispatcher, cache, flushes };
    let mut plays = 0;
    let mut wrong = Vec::new();
    for case in group {
        for cut in cuts_of(case) {
            plays += 1;
            let talk = Talk::open(&mut server.dispatcher, client.peer);
            let mut replay = Replay { server: &mut server, talk, cut, sent: 0 };
            let result = replay.play(case);
            let Replay { mut talk, .. } = replay;
            talk.close(&mut server.dispatcher);
            if let Err(error) = result {
                wrong.push(format!("{} ({cut:?}): {error}", case.name));
                break;
            }
        }
        server.cache.clock().run();
        server.cache.tick();
    }
    (plays, wrong)
}

#[test]
fn transcripts_are_answered_however_they_are_cut() {
    let report = on_a_connection(|client| {
        let mut groups: BTreeMap<Vec<String>, Vec<Case>> = BTreeMap::new();
        for case in cases() {
            groups.entry(case.flags.clone()).or_default().push(case);
        }
        let (mut played, mut skipped, mut plays, mut wrong) = (0, 0, 0, Vec::new());
        for (flags, group) in groups {
            match settings_of(&flags) {
                Some(settings) => {
                    let (more_plays, more_wrong) = play_group(settings, &group, client);
                    played += group.len();
                    plays += more_plays;
                    wrong.extend(more_wrong);
                }
                None => skipped += group.len(),
            }
        }
        println!("{played} cases, {plays} plays, {skipped} skipped, {} failed", wrong.len());
        (played, skipped, wrong)
    });
    let (played, skipped, wrong) = report;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(played > 300 && skipped < 10, "{played} cases played, {skipped} skipped");
}
