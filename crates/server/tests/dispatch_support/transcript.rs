//! Reads transcripts; `tests/transcripts/README.md` describes the format.

#![allow(dead_code, reason = "each user takes its part")]

use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// A part of a line to send or to expect.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Piece {
    /// These bytes.
    Bytes(Vec<u8>),
    /// A run without space, CR and LF, not empty.
    Word,
    /// Anything up to the end of the line.
    Rest,
    /// A decimal number between two bounds.
    Range(u64, u64),
    /// What a name stands for, plus or minus a number.
    Name(String, Option<i64>),
}

/// One step of a case.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// All of this is sent at once.
    Send(Vec<Piece>),
    /// The next line of the answer.
    Expect(Vec<Piece>),
    /// Lines in any order, up to the last one.
    List(Vec<Vec<Piece>>, Vec<Piece>),
    /// The connection is closed.
    Closed,
    /// Seconds pass.
    Wait(f64),
}

/// One case.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// File, line and name.
    pub(crate) name: String,
    /// Only when a turn arrives in one piece.
    pub(crate) uncut: bool,
    /// The flags the server is started with.
    pub(crate) flags: Vec<String>,
    /// What is sent and expected.
    pub(crate) steps: Vec<Step>,
}

/// What names stand for.
pub(crate) type Names = HashMap<String, Vec<u8>>;

/// The folder of the transcripts.
pub(crate) fn folder() -> PathBuf {
    let from = Path::new(env!("CARGO_MANIFEST_DIR"));
    from.ancestors()
        .map(|folder| folder.join("tests/transcripts"))
        .find(|found| found.join("README.md").exists())
        .expect("the repository has transcripts")
}

/// All cases of all files, in order.
pub(crate) fn cases() -> Vec<Case> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder())
        .expect("the folder can be read")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
        .collect();
    files.sort();
    files.iter().flat_map(|path| read(path)).collect()
}

fn read(path: &Path) -> Vec<Case> {
    let text = std::fs::read_to_string(path).expect("a transcript is text");
    let mut cases: Vec<Case> = Vec::new();
    let mut wanted = Vec::new();
    for (number, line) in text.split('\n').enumerate() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let place = format!("{}:{}", path.file_name().expect("a file").to_string_lossy(), number + 1);
        if let Some(name) = line.strip_prefix("== ") {
            let name = format!("{place}: {}", name.trim());
            cases.push(Case { name, uncut: false, flags: Vec::new(), steps: Vec::new() });
            continue;
        }
        let case = cases.last_mut().unwrap_or_else(|| panic!("{place}: a line before the first case"));
        let rest = |mark: &str| line.strip_prefix(mark);
        let ended = |text: &str| [pieces(text, &place), vec![Piece::Bytes(b"\r\n".to_vec())]].concat();
        if line == "! uncut" {
            case.uncut = true;
        } else if let Some(flags) = rest("! -") {
            case.flags.extend(format!("-{flags}").split_whitespace().map(str::to_owned));
        } else if rest("! since ").is_some() || line == "! differs" {
        } else if let Some(text) = rest(">> ") {
            case.send(pieces(text, &place));
        } else if line == ">" {
            case.send(ended(""));
        } else if let Some(text) = rest("> ") {
            case.send(ended(text));
        } else if let Some(text) = rest("<? ") {
            wanted.push(pieces(text, &place));
        } else if let Some(text) = rest("<. ") {
            case.steps.push(Step::List(std::mem::take(&mut wanted), pieces(text, &place)));
        } else if line == "<eof" {
            case.steps.push(Step::Closed);
        } else if line == "<" {
            case.steps.push(Step::Expect(Vec::new()));
        } else if let Some(text) = rest("< ") {
            case.steps.push(Step::Expect(pieces(text, &place)));
        } else if let Some(seconds) = rest("~ ") {
            case.steps.push(Step::Wait(seconds.parse().unwrap_or_else(|_| panic!("{place}: no number"))));
        } else {
            panic!("{place}: an unknown kind of line");
        }
    }
    cases
}

impl Case {
    /// Lines that are sent in a row are one turn.
    fn send(&mut self, pieces: Vec<Piece>) {
        match self.steps.last_mut() {
            Some(Step::Send(turn)) => turn.extend(pieces),
            _ => self.steps.push(Step::Send(pieces)),
        }
    }

    /// Everything the case sends; `None` if some of it depends on the answers.
    pub(crate) fn sent(&self) -> Option<Vec<u8>> {
        let mut all = Vec::new();
        for step in &self.steps {
            if let Step::Send(pieces) = step {
                if pieces.iter().any(|piece| matches!(piece, Piece::Name(..))) {
                    return None;
                }
                all.extend(compose(pieces, &Names::new()));
            }
        }
        Some(all)
    }
}

fn pieces(text: &str, place: &str) -> Vec<Piece> {
    let mut found: Vec<Piece> = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if let Some(hex) = rest.strip_prefix("\\x").and_then(|hex| hex.get(..2))
            && let Ok(byte) = u8::from_str_radix(hex, 16)
        {
            found.push(Piece::Bytes(vec![byte]));
            rest = &rest[4..];
        } else if first == '\\' {
            let byte = match rest.as_bytes().get(1) {
                Some(b'r') => b'\r',
                Some(b'n') => b'\n',
                Some(b't') => b'\t',
                Some(b'0') => 0,
                Some(b'\\') => b'\\',
                _ => panic!("{place}: an unknown escape"),
            };
            found.push(Piece::Bytes(vec![byte]));
            rest = &rest[2..];
        } else if first == '{' {
            let end = rest.find('}').unwrap_or_else(|| panic!("{place}: a brace is open"));
            found.push(notation(&rest[1..end], place));
            rest = &rest[end + 1..];
        } else {
            let end = rest.find(['\\', '{']).unwrap_or(rest.len());
            found.push(Piece::Bytes(rest.as_bytes()[..end].to_vec()));
            rest = &rest[end..];
        }
    }
    found
}

fn notation(inside: &str, place: &str) -> Piece {
    let number = |text: &str| text.parse::<u64>().ok();
    if inside == "*" {
        return Piece::Word;
    }
    if inside == ".." {
        return Piece::Rest;
    }
    if let Some((least, most)) = inside.split_once("..")
        && let (Some(least), Some(most)) = (number(least), number(most))
    {
        return Piece::Range(least, most);
    }
    let letters = inside.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(inside.len());
    let (name, more) = inside.split_at(letters);
    if !name.is_empty() && (more.is_empty() || more.parse::<i64>().is_ok()) {
        return Piece::Name(name.to_owned(), more.parse().ok());
    }
    if let Some((text, times)) = inside.rsplit_once('*')
        && let Some(times) = number(times)
    {
        return Piece::Bytes(compose(&pieces(text, place), &Names::new()).repeat(times as usize));
    }
    panic!("{place}: an unknown notation {{{inside}}}")
}

/// The bytes to send.
pub(crate) fn compose(pieces: &[Piece], names: &Names) -> Vec<u8> {
    let mut out = Vec::new();
    for piece in pieces {
        match piece {
            Piece::Bytes(bytes) => out.extend_from_slice(bytes),
            Piece::Name(name, more) => out.extend(value(name, *more, names)),
            other => panic!("{other:?} has no meaning in a line to send"),
        }
    }
    out
}

fn value(name: &str, more: Option<i64>, names: &Names) -> Vec<u8> {
    let value = names.get(name).unwrap_or_else(|| panic!("{{{name}}} stands for nothing yet"));
    match more {
        None => value.clone(),
        Some(more) => {
            let number: i64 = String::from_utf8_lossy(value).parse().expect("a number");
            (number + more).to_string().into_bytes()
        }
    }
}

/// Whether `line` is what the pieces expect; if it is, names met for the first time are kept.
pub(crate) fn matches(pieces: &[Piece], line: &[u8], names: &mut Names) -> bool {
    let mut learnt = names.clone();
    let is_match = fits(pieces, line, &mut learnt);
    if is_match {
        *names = learnt;
    }
    is_match
}

fn fits(pieces: &[Piece], line: &[u8], names: &mut Names) -> bool {
    let Some((piece, more)) = pieces.split_first() else { return line.is_empty() };
    let run = |stops: &[u8]| line.iter().position(|byte| stops.contains(byte)).unwrap_or(line.len());
    let ends = match piece {
        Piece::Bytes(bytes) => {
            return line.strip_prefix(&bytes[..]).is_some_and(|rest| fits(more, rest, names));
        }
        Piece::Name(name, plus) if names.contains_key(name) => {
            let bytes = value(name, *plus, names);
            return line.strip_prefix(&bytes[..]).is_some_and(|rest| fits(more, rest, names));
        }
        Piece::Word => 1..=run(b" \r\n"),
        Piece::Rest => 0..=run(b"\r\n"),
        Piece::Range(..) => 1..=line.len(),
        Piece::Name(..) => 1..=run(b" \r"),
    };
    // The longest run first, as a regular expression would take it.
    ends.rev().any(|end| {
        let (run, rest) = line.split_at(end);
        match piece {
            Piece::Range(least, most) if !is_number_in(run, *least, *most) => return false,
            Piece::Name(name, _) => drop(names.insert(name.clone(), run.to_vec())),
            _ => {}
        }
        fits(more, rest, names)
    })
}

fn is_number_in(digits: &[u8], least: u64, most: u64) -> bool {
    digits.iter().all(u8::is_ascii_digit)
        && std::str::from_utf8(digits)
            .is_ok_and(|text| text.parse::<u64>().is_ok_and(|number| (least..=most).contains(&number)))
}
