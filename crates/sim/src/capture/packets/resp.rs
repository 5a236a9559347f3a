//! Redis's protocol: commands as arrays of bulk strings, and what is answered.

use std::collections::VecDeque;

use super::reader::Reader;
use super::waiting::{Lost, Tells, Waiting};
use crate::trace::asked::{Asked, Word};
use crate::trace::field::digits;

/// The longest word that is kept. Of a longer one the length is known.
const WORD_BYTES_MAX: u64 = 4096;
/// Bytes of words of one command that are kept.
const KEPT_BYTES_MAX: usize = 1 << 20;
/// The most words of a command.
const WORDS_MAX: u64 = 1 << 16;
/// The longest line of an answer, and of the length of a word.
const LINE_BYTES_MAX: usize = 1 << 16;
/// Arrays in arrays of an answer.
const DEPTH_MAX: usize = 32;
/// The line ends behind a word.
const END_BYTES: u64 = 2;

/// Whether a segment begins with a command.
pub(super) fn begins(octets: &[u8]) -> bool {
    let Some(rest) = octets.strip_prefix(b"*") else { return false };
    let count = rest.iter().take_while(|octet| octet.is_ascii_digit()).count();
    count > 0 && rest[count..].starts_with(b"\r\n$")
}

/// A command that is being read.
pub(super) struct Commands {
    /// Words of it that have not come.
    left: u64,
    words: Vec<Word>,
    kept_bytes: usize,
    /// The length of the word of which bytes have come.
    word_bytes: Option<u64>,
    /// The number of the database that the connection uses.
    database: Vec<u8>,
}

impl Commands {
    /// No command yet.
    pub(super) fn new() -> Commands {
        Commands { left: 0, words: Vec::new(), kept_bytes: 0, word_bytes: None, database: b"0".to_vec() }
    }

    /// Forgets the command of which a part has come.
    pub(super) fn reset(&mut self) {
        *self = Commands { database: std::mem::take(&mut self.database), ..Commands::new() };
    }

    /// Whether no part of a command has come.
    pub(super) fn is_between(&self) -> bool {
        self.left == 0
    }

    /// Reads the commands that are there whole.
    pub(super) fn ask(
        &mut self,
        reader: &mut Reader,
        time_us: u64,
        waiting: &mut VecDeque<Waiting>,
        asked: &mut Asked,
    ) -> Result<Others, Lost> {
        let (mut at, mut others) = (0, 0);
        loop {
            if let Some(bytes) = self.word_bytes {
                let end = at + bytes as usize;
                if reader.buffer.len() < end + END_BYTES as usize {
                    break;
                }
                let text = reader.buffer[at..end].to_vec();
                at = end + END_BYTES as usize;
                self.add(Word::from(text));
            } else {
                let Some((line, behind)) = reader.line(at) else { break };
                let (kind, count) = line.split_first().ok_or(Lost)?;
                let count = digits(count).ok_or(Lost)?;
                at = behind;
                match (kind, self.left) {
                    (b'*', 0) if count <= WORDS_MAX => self.left = count,
                    (b'$', 1..) if self.keeps(count) => self.word_bytes = Some(count),
                    (b'$', 1..) => {
                        at = reader.pass(at, count + END_BYTES);
                        self.add(Word { text: Vec::new(), bytes: count });
                    }
                    _ => return Err(Lost),
                }
            }
            if self.left == 0 && !self.words.is_empty() {
                others += self.run(time_us, waiting, asked);
            }
        }
        reader.forget(at);
        if self.word_bytes.is_none() && reader.buffer.len() > LINE_BYTES_MAX {
            return Err(Lost);
        }
        Ok(others)
    }

    /// Passes over bytes of a word that were not captured, of which the length is known. Then the word may have been
    /// the last one of its command. `None` = more than one word is missing: then the command counts as far as it is
    /// known, and the place is lost.
    pub(super) fn hole(
        &mut self,
        reader: &mut Reader,
        bytes: u64,
        time_us: u64,
        waiting: &mut VecDeque<Waiting>,
        asked: &mut Asked,
    ) -> Option<Others> {
        let Some(word_bytes) = self.word_bytes else { return reader.hole(bytes).then_some(0) };
        let left = (word_bytes + END_BYTES).checked_sub(reader.buffer.len() as u64 + bytes);
        self.add(Word { text: Vec::new(), bytes: word_bytes });
        let Some(left) = left else {
            self.run(time_us, waiting, asked);
            return None;
        };
        reader.forget(reader.buffer.len());
        reader.pass(0, left);
        Some(if self.left == 0 { self.run(time_us, waiting, asked) } else { 0 })
    }

    fn keeps(&self, bytes: u64) -> bool {
        bytes <= WORD_BYTES_MAX && self.kept_bytes + bytes as usize <= KEPT_BYTES_MAX
    }

    fn add(&mut self, word: Word) {
        self.word_bytes = None;
        self.left -= 1;
        self.kept_bytes += word.text.len();
        self.words.push(word);
    }

    /// Takes the command whose words have all come. Returns how many commands have no request.
    fn run(&mut self, time_us: u64, waiting: &mut VecDeque<Waiting>, asked: &mut Asked) -> Others {
        let words = std::mem::take(&mut self.words);
        self.kept_bytes = 0;
        let (first, cut) = (asked.next_place(), asked.cut());
        let is_known = asked.add_command(time_us, &self.database, &words);
        let name = words[0].text.to_ascii_lowercase();
        let tells = match name.as_slice() {
            _ if asked.cut() > cut => Tells::Nothing,
            b"get" | b"getex" | b"getdel" => Tells::Whole,
            b"mget" => Tells::Each,
            b"select" => {
                self.database = words.get(1).map_or(b"0".to_vec(), |word| word.text.clone());
                Tells::Nothing
            }
            _ => Tells::Nothing,
        };
        waiting.push_back(match name.as_slice() {
            // Not one answer for each command.
            b"subscribe" | b"psubscribe" | b"ssubscribe" | b"monitor" | b"sync" | b"psync" => {
                Waiting::Anything
            }
            b"client" if words.get(1).is_some_and(|word| word.text.eq_ignore_ascii_case(b"reply")) => {
                Waiting::Anything
            }
            _ => Waiting::Resp { first, end: asked.next_place(), tells },
        });
        u64::from(!is_known)
    }
}

/// How many commands have no request.
pub(super) type Others = u64;

/// An answer that is being read.
#[derive(Default)]
pub(super) struct Answer {
    /// Elements that have not come, of each array that is open.
    open: Vec<u64>,
    /// How many elements of the outermost array have come.
    elements: u64,
    /// Nobody has asked for it.
    is_push: bool,
}

impl Answer {
    /// Reads the answers that are there whole.
    pub(super) fn read(
        &mut self,
        reader: &mut Reader,
        waiting: &mut VecDeque<Waiting>,
        asked: &mut Asked,
    ) -> Result<(), Lost> {
        let mut at = 0;
        while let Some((line, behind)) = reader.line(at) {
            let (&kind, rest) = line.split_first().ok_or(Lost)?;
            let count = digits(rest);
            at = behind;
            if self.open.is_empty() {
                (self.elements, self.is_push) = (0, matches!(kind, b'>' | b'|'));
            }
            let found = match (kind, count) {
                (b'$' | b'=' | b'!', Some(bytes)) => {
                    at = reader.pass(at, bytes + END_BYTES);
                    Some(Some(bytes))
                }
                (b'*' | b'~' | b'>' | b'%' | b'|', Some(elements @ 1..)) => {
                    let each = if matches!(kind, b'%' | b'|') { 2 } else { 1 };
                    self.open.push(elements.saturating_mul(each));
                    if self.open.len() > DEPTH_MAX {
                        return Err(Lost);
                    }
                    continue;
                }
                (b'*' | b'~' | b'>' | b'%' | b'|', Some(0)) => None,
                (b'$' | b'*', None) if rest == b"-1" => Some(None),
                (b'_', None) => Some(None),
                (b'+' | b'-' | b':' | b'#' | b',' | b'(', _) => None,
                _ => return Err(Lost),
            };
            self.tell(found, waiting.front(), asked);
            if self.close() && !self.is_push && !matches!(waiting.pop_front(), Some(Waiting::Resp { .. })) {
                return Err(Lost);
            }
        }
        reader.forget(at);
        if reader.buffer.len() > LINE_BYTES_MAX { Err(Lost) } else { Ok(()) }
    }

    /// Takes an element: the length of a value, or that there is none.
    fn tell(&self, found: Option<Option<u64>>, waits: Option<&Waiting>, asked: &mut Asked) {
        let (Some(value_bytes), Some(&Waiting::Resp { first, end, tells })) = (found, waits) else { return };
        let place = match (tells, self.open.len()) {
            (Tells::Whole, 0) => first,
            (Tells::Each, 1) => first + self.elements,
            _ => return,
        };
        if !self.is_push && place < end {
            asked.answer(place, value_bytes.is_some(), value_bytes);
        }
    }

    /// Ends an element, and the arrays of which it is the last one. `true` = the answer is whole.
    fn close(&mut self) -> bool {
        while let Some(left) = self.open.last_mut() {
            *left -= 1;
            let is_whole = *left == 0;
            self.elements += u64::from(self.open.len() == 1);
            if !is_whole {
                return false;
            }
            self.open.pop();
        }
        true
    }
}
