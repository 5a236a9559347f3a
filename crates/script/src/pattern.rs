//! Lua 5.1's string patterns, with a budget of steps.
//!
//! A pattern is read once into a list of items ([`Pattern`]); the items are then tried in order
//! against the text. An item that can match more than one length leaves a choice behind, and a
//! failure goes back to the newest choice. The choices lie in a list of bounded length, so neither a
//! long text nor a long pattern uses up the stack.
//!
//! A mistake in a pattern counts only once a match gets as far as the mistake, as in Lua 5.1:
//! `("a"):find("x%")` finds nothing, `("x"):find("x%")` is an error.
//!
//! A pattern ends at its first NUL byte, as in Lua 5.1; `%z` stands for NUL. Texts are arbitrary bytes.
//!
//! What differs from Lua 5.1: an unfinished capture is an error whenever the pattern matches, whereas
//! `string.gsub` lets it pass when the replacement is a string that does not name the capture; and a
//! match that holds more than [`MAX_CHOICES`] choices open, or a pattern with more than 65536 sets, is an
//! error, where Lua 5.1 has no such bound.

use std::ops::Range;

/// The most captures that a pattern may have.
const MAX_CAPTURES: usize = 32;

/// The most choices that a match may hold open at once.
const MAX_CHOICES: usize = 200;

/// The text of the fault for a match with too many choices, or a pattern with too many sets.
const TOO_COMPLEX: &str = "pattern too complex";

/// The text of the fault for a set that has no end.
const NO_BRACKET: &str = "malformed pattern (missing ']')";

/// The text of the fault for a back reference to a capture that is missing or still open.
const BAD_INDEX: &str = "invalid capture index";

/// The reason for which there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The pattern is malformed; the text is Lua's own.
    Malformed(&'static str),
    /// The budget of steps is used up.
    TooLong,
}

/// What a capture holds after a match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Capture {
    /// A part of the text, as byte offsets from 0 on.
    Text(Range<usize>),
    /// A position in the text, counted from 1 on, as a position capture `()` gives it.
    Position(usize),
}

/// A match of a pattern in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Match {
    /// The offset of the first byte of the match, from 0 on.
    pub(crate) start: usize,
    /// The offset after the last byte of the match.
    pub(crate) end: usize,
    /// The captures in the order of their opening parentheses; empty when the pattern has none (Lua then
    /// takes the whole match where it needs a capture).
    pub(crate) captures: Vec<Capture>,
}

/// The first match of `pattern` in `text` from the offset `from` on; a leading `^` anchors at `from`.
///
/// Each comparison of one byte, each item tried and each byte of the pattern read takes 1 from `steps`; the
/// answer is [`Fault::TooLong`] when a step is due and none is left.
pub(crate) fn find(
    text: &[u8],
    pattern: &[u8],
    from: usize,
    steps: &mut u64,
) -> Result<Option<Match>, Fault> {
    Pattern::new(pattern, steps)?.find(text, from, steps)
}

/// Whether `pattern` has no special character, so that `string.find` looks for it as plain text.
///
/// Only the bytes before the first NUL are looked at, as in Lua 5.1. The plain text is then the whole of
/// `pattern`, with the NUL and what follows it.
pub(crate) fn is_plain(pattern: &[u8]) -> bool {
    !before_nul(pattern).iter().any(|byte| b"^$*+?.([%-".contains(byte))
}

/// The bytes of `pattern` before its first NUL.
fn before_nul(pattern: &[u8]) -> &[u8] {
    pattern.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Takes `count` from `steps`, or leaves 0 and fails when fewer are left.
fn spend(steps: &mut u64, count: usize) -> Result<(), Fault> {
    let left = u64::try_from(count).ok().and_then(|count| steps.checked_sub(count));
    *steps = left.unwrap_or(0);
    left.map(|_| ()).ok_or(Fault::TooLong)
}

/// A set of bytes, one bit for each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Set([u64; 4]);

impl Set {
    /// Adds `byte` to the set.
    fn add(&mut self, byte: u8) {
        self.0[usize::from(byte >> 6)] |= 1 << (byte & 63);
    }

    /// Adds all bytes of the class that `%letter` stands for.
    fn add_class(&mut self, letter: u8) {
        for byte in 0..=u8::MAX {
            if class_holds(letter, byte) {
                self.add(byte);
            }
        }
    }

    /// The set of all bytes that are not in this one.
    fn complement(self) -> Set {
        Set(self.0.map(|bits| !bits))
    }

    /// Whether `byte` is in the set.
    fn holds(&self, byte: u8) -> bool {
        self.0[usize::from(byte >> 6)] >> (byte & 63) & 1 == 1
    }
}

/// Whether `byte` is in the class that `%letter` stands for: a class of the C locale, its complement for an
/// upper-case letter, or `letter` itself when no class has that name.
fn class_holds(letter: u8, byte: u8) -> bool {
    let inside = match letter.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => matches!(byte, b' ' | b'\t'..=b'\r'),
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return letter == byte,
    };
    inside != letter.is_ascii_uppercase()
}

/// What one byte of the text can be.
#[derive(Debug, Clone, Copy)]
enum Single {
    /// Any byte.
    Any,
    /// This byte only.
    Byte(u8),
    /// A byte of the class of this letter.
    Class(u8),
    /// A byte of the set with this index.
    Set(u16),
}

/// A part of a pattern that is tried as one.
#[derive(Debug, Clone, Copy)]
enum Item {
    /// Exactly one byte.
    One(Single),
    /// One byte or none, one if possible (`?`).
    Optional(Single),
    /// As many bytes as possible (`*`).
    Many(Single),
    /// As many bytes as possible, at least one (`+`).
    AtLeastOne(Single),
    /// As few bytes as possible (`-`).
    Few(Single),
    /// The start of the capture with this index.
    Open(u8),
    /// The end of the capture with this index.
    Close(u8),
    /// The bytes of the capture with this index once more (`%1`).
    Again(u8),
    /// Nothing ever: a back reference to a position capture.
    Never,
    /// Text between two bytes that balance (`%b()`).
    Balance(u8, u8),
    /// A border between a byte outside the set with this index and one inside it (`%f[set]`).
    Frontier(u16),
    /// The end of the text (`$`).
    End,
}

/// How far a capture has been read, or of which kind it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A capture that is not closed.
    Unfinished,
    /// A capture of text.
    Text,
    /// A capture of a position.
    Position,
}

/// A pattern that has been read and can be used for many matches.
#[derive(Debug, Clone)]
pub(crate) struct Pattern {
    /// Whether a match may start only where the search starts.
    anchored: bool,
    /// The items up to the first mistake.
    items: Vec<Item>,
    /// The sets that the items name.
    sets: Vec<Set>,
    /// The captures that the items name.
    captures: Vec<Kind>,
    /// The mistake that a match meets after the last item.
    mistake: Option<&'static str>,
}

impl Pattern {
    /// Reads `pattern` for `string.find`, `string.match` and `string.gsub`, where a leading `^` is an anchor.
    /// Each byte of it takes 1 from `steps`. A mistake in the pattern is reported by the matches.
    pub(crate) fn new(pattern: &[u8], steps: &mut u64) -> Result<Pattern, Fault> {
        match pattern.strip_prefix(b"^") {
            Some(rest) => Pattern::read(rest, true, steps),
            None => Pattern::read(pattern, false, steps),
        }
    }

    /// Reads `pattern` for `string.gmatch`, where a leading `^` is an ordinary character. Each byte of it
    /// takes 1 from `steps`.
    pub(crate) fn without_anchor(pattern: &[u8], steps: &mut u64) -> Result<Pattern, Fault> {
        Pattern::read(pattern, false, steps)
    }

    /// The first match in `text` from the offset `from` on; with an anchor, the match at `from` or none.
    pub(crate) fn find(&self, text: &[u8], from: usize, steps: &mut u64) -> Result<Option<Match>, Fault> {
        let last = if self.anchored { from.min(text.len()) } else { text.len() };
        let mut matcher = Matcher::new(self, text, steps);
        for start in from..=last {
            if let Some(end) = matcher.attempt(start)? {
                return Ok(Some(Match { start, end, captures: matcher.captures() }));
            }
        }
        Ok(None)
    }

    /// Reads the items of `pattern`, up to its first NUL or its first mistake.
    fn read(pattern: &[u8], anchored: bool, steps: &mut u64) -> Result<Pattern, Fault> {
        let bytes = before_nul(pattern);
        spend(steps, bytes.len())?;
        let mut reader = Reader { bytes, at: 0, items: vec![], sets: vec![], captures: vec![] };
        let mut mistake = None;
        while mistake.is_none() && reader.at < bytes.len() {
            match reader.item() {
                Ok(item) => reader.items.push(item),
                Err(text) => mistake = Some(text),
            }
        }
        let Reader { items, sets, captures, .. } = reader;
        if mistake.is_none() && captures.contains(&Kind::Unfinished) {
            mistake = Some("unfinished capture");
        }
        Ok(Pattern { anchored, items, sets, captures, mistake })
    }

    /// Whether `byte` is in the set with this index.
    fn set_holds(&self, index: u16, byte: u8) -> bool {
        self.sets.get(usize::from(index)).is_some_and(|set| set.holds(byte))
    }

    /// Whether `single` can stand for `byte`.
    fn accepts(&self, single: Single, byte: u8) -> bool {
        match single {
            Single::Any => true,
            Single::Byte(wanted) => wanted == byte,
            Single::Class(letter) => class_holds(letter, byte),
            Single::Set(index) => self.set_holds(index, byte),
        }
    }
}

/// The state of reading a pattern.
struct Reader<'a> {
    /// The pattern, without its anchor.
    bytes: &'a [u8],
    /// The offset of the next byte to read.
    at: usize,
    /// The items read.
    items: Vec<Item>,
    /// The sets read.
    sets: Vec<Set>,
    /// The captures opened.
    captures: Vec<Kind>,
}

impl Reader<'_> {
    /// The byte `ahead` bytes after the next one.
    fn peek(&self, ahead: usize) -> Option<u8> {
        self.bytes.get(self.at.checked_add(ahead)?).copied()
    }

    /// The next byte, which is then read.
    fn take(&mut self) -> Option<u8> {
        let byte = self.peek(0)?;
        self.at += 1;
        Some(byte)
    }

    /// Reads one item.
    fn item(&mut self) -> Result<Item, &'static str> {
        match (self.peek(0), self.peek(1)) {
            (Some(b'('), _) => self.open(),
            (Some(b')'), _) => self.close(),
            (Some(b'$'), None) => {
                self.at += 1;
                Ok(Item::End)
            }
            (Some(b'%'), Some(b'b')) => self.balance(),
            (Some(b'%'), Some(b'f')) => self.frontier(),
            (Some(b'%'), Some(digit @ b'0'..=b'9')) => self.again(digit),
            _ => self.repeated(),
        }
    }

    /// Reads the start of a capture, or the whole of a position capture.
    fn open(&mut self) -> Result<Item, &'static str> {
        self.at += 1;
        let index = u8::try_from(self.captures.len()).map_err(|_| "too many captures")?;
        if self.captures.len() >= MAX_CAPTURES {
            return Err("too many captures");
        }
        if self.peek(0) == Some(b')') {
            self.at += 1;
            self.captures.push(Kind::Position);
        } else {
            self.captures.push(Kind::Unfinished);
        }
        Ok(Item::Open(index))
    }

    /// Reads the end of the capture that was opened last among those still open.
    fn close(&mut self) -> Result<Item, &'static str> {
        const NONE_OPEN: &str = "invalid pattern capture";
        self.at += 1;
        let position = self.captures.iter().rposition(|kind| *kind == Kind::Unfinished).ok_or(NONE_OPEN)?;
        let index = u8::try_from(position).map_err(|_| NONE_OPEN)?;
        self.captures[position] = Kind::Text;
        Ok(Item::Close(index))
    }

    /// Reads `%b` and its two bytes.
    fn balance(&mut self) -> Result<Item, &'static str> {
        self.at += 2;
        match (self.take(), self.take()) {
            (Some(left), Some(right)) => Ok(Item::Balance(left, right)),
            _ => Err("unbalanced pattern"),
        }
    }

    /// Reads `%f` and its set.
    fn frontier(&mut self) -> Result<Item, &'static str> {
        self.at += 2;
        match self.take() {
            Some(b'[') => Ok(Item::Frontier(self.set()?)),
            _ => Err("missing '[' after '%f' in pattern"),
        }
    }

    /// Reads a back reference, `%` and a digit.
    fn again(&mut self, digit: u8) -> Result<Item, &'static str> {
        self.at += 2;
        let index = (digit - b'0').checked_sub(1).ok_or(BAD_INDEX)?;
        match self.captures.get(usize::from(index)) {
            Some(Kind::Text) => Ok(Item::Again(index)),
            Some(Kind::Position) => Ok(Item::Never),
            Some(Kind::Unfinished) | None => Err(BAD_INDEX),
        }
    }

    /// Reads what stands for one byte, and the sign after it that says how often.
    fn repeated(&mut self) -> Result<Item, &'static str> {
        let single = self.single()?;
        let item = match self.peek(0) {
            Some(b'?') => Item::Optional(single),
            Some(b'*') => Item::Many(single),
            Some(b'+') => Item::AtLeastOne(single),
            Some(b'-') => Item::Few(single),
            _ => return Ok(Item::One(single)),
        };
        self.at += 1;
        Ok(item)
    }

    /// Reads what stands for one byte.
    fn single(&mut self) -> Result<Single, &'static str> {
        match self.take() {
            Some(b'.') => Ok(Single::Any),
            Some(b'[') => Ok(Single::Set(self.set()?)),
            Some(b'%') => match self.take() {
                Some(letter) if letter.is_ascii_alphabetic() => Ok(Single::Class(letter)),
                Some(byte) => Ok(Single::Byte(byte)),
                None => Err("malformed pattern (ends with '%')"),
            },
            Some(byte) => Ok(Single::Byte(byte)),
            None => Err(TOO_COMPLEX),
        }
    }

    /// Reads a set after its `[`, and gives its index.
    fn set(&mut self) -> Result<u16, &'static str> {
        let index = u16::try_from(self.sets.len()).map_err(|_| TOO_COMPLEX)?;
        let complement = self.peek(0) == Some(b'^');
        if complement {
            self.at += 1;
        }
        let start = self.at;
        let end = self.set_end()?;
        self.at = end + 1;
        let mut set = self.set_members(start, end);
        if complement {
            set = set.complement();
        }
        self.sets.push(set);
        Ok(index)
    }

    /// The offset of the `]` that ends the set whose first member is next. A `]` in first place is a member,
    /// and so is one after a `%`.
    fn set_end(&self) -> Result<usize, &'static str> {
        let mut at = self.at;
        loop {
            let step = if self.bytes.get(at) == Some(&b'%') { 2 } else { 1 };
            at += step;
            match self.bytes.get(at) {
                Some(b']') => return Ok(at),
                Some(_) => {}
                None => return Err(NO_BRACKET),
            }
        }
    }

    /// The members that the bytes from `start` to `end`, where the `]` is, stand for. The end of a range is
    /// taken as it is, even when it is a `%`, so that what follows such an end is read on its own; a `%`
    /// right before the end then stands for the `]`. Lua 5.1 does the same.
    fn set_members(&self, start: usize, end: usize) -> Set {
        let mut set = Set::default();
        let mut at = start;
        while at < end {
            match (self.bytes.get(at), self.bytes.get(at + 1), self.bytes.get(at + 2)) {
                (Some(b'%'), Some(letter), _) => {
                    set.add_class(*letter);
                    at += 2;
                }
                (Some(first), Some(b'-'), Some(last)) if at + 2 < end => {
                    (*first..=*last).for_each(|byte| set.add(byte));
                    at += 3;
                }
                (Some(byte), _, _) => {
                    set.add(*byte);
                    at += 1;
                }
                (None, _, _) => break,
            }
        }
        set
    }
}

/// An item that can still match another length.
#[derive(Debug, Clone, Copy)]
struct Choice {
    /// The index of the item.
    index: usize,
    /// The least offset at which the item may end.
    least: usize,
    /// The offset at which the item ends now.
    end: usize,
}

/// The state of matching one pattern against one text.
///
/// The captures need no undoing: a choice goes back to an item, and each capture that starts or ends after
/// this item is set anew before anything reads it.
struct Matcher<'a> {
    /// The pattern.
    pattern: &'a Pattern,
    /// The text.
    text: &'a [u8],
    /// The steps that are left.
    steps: &'a mut u64,
    /// The choices that are open, the newest last.
    choices: Vec<Choice>,
    /// The offsets at which the captures start.
    starts: [usize; MAX_CAPTURES],
    /// The offsets at which the captures end.
    ends: [usize; MAX_CAPTURES],
}

impl<'a> Matcher<'a> {
    /// A matcher that has tried nothing yet.
    fn new(pattern: &'a Pattern, text: &'a [u8], steps: &'a mut u64) -> Matcher<'a> {
        let zeros = [0; MAX_CAPTURES];
        Matcher { pattern, text, steps, choices: vec![], starts: zeros, ends: zeros }
    }

    /// The end of the match that starts at `start`, if there is one.
    fn attempt(&mut self, start: usize) -> Result<Option<usize>, Fault> {
        let pattern = self.pattern;
        self.choices.clear();
        let (mut index, mut at) = (0, start);
        loop {
            spend(self.steps, 1)?;
            let Some(item) = pattern.items.get(index) else {
                return pattern.mistake.map_or(Ok(Some(at)), |text| Err(Fault::Malformed(text)));
            };
            if let Some(end) = self.advance(*item, index, at)? {
                (index, at) = (index + 1, end);
            } else if let Some(next) = self.retreat()? {
                (index, at) = next;
            } else {
                return Ok(None);
            }
        }
    }

    /// The captures of the match found last.
    fn captures(&self) -> Vec<Capture> {
        let offsets = self.starts.iter().zip(&self.ends);
        let captures = self.pattern.captures.iter().zip(offsets);
        captures
            .map(|(kind, (start, end))| match kind {
                Kind::Position => Capture::Position(start + 1),
                Kind::Text | Kind::Unfinished => Capture::Text(*start..*end),
            })
            .collect()
    }

    /// The offset after `item`, which has the index `index` and is tried at the offset `at`.
    fn advance(&mut self, item: Item, index: usize, at: usize) -> Result<Option<usize>, Fault> {
        Ok(match item {
            Item::One(single) => self.accepts(single, at)?.then_some(at + 1),
            Item::Optional(single) => {
                let end = if self.accepts(single, at)? { at + 1 } else { at };
                return self.choose(index, at, end);
            }
            Item::Many(single) => {
                let end = self.run(single, at)?;
                return self.choose(index, at, end);
            }
            Item::AtLeastOne(single) => {
                if !self.accepts(single, at)? {
                    return Ok(None);
                }
                let end = self.run(single, at + 1)?;
                return self.choose(index, at + 1, end);
            }
            Item::Few(_) => {
                self.push(Choice { index, least: at, end: at })?;
                Some(at)
            }
            Item::Open(capture) => {
                self.starts[usize::from(capture)] = at;
                Some(at)
            }
            Item::Close(capture) => {
                self.ends[usize::from(capture)] = at;
                Some(at)
            }
            Item::Again(capture) => return self.again(usize::from(capture), at),
            Item::Never => None,
            Item::Balance(left, right) => return self.balance(left, right, at),
            Item::Frontier(set) => self.is_frontier(set, at).then_some(at),
            Item::End => (at == self.text.len()).then_some(at),
        })
    }

    /// The next index and offset to go on from, by the newest choice that has another length; the others
    /// after it are given up.
    fn retreat(&mut self) -> Result<Option<(usize, usize)>, Fault> {
        while let Some(mut choice) = self.choices.pop() {
            spend(self.steps, 1)?;
            if let Some(Item::Few(single)) = self.pattern.items.get(choice.index) {
                if !self.accepts(*single, choice.end)? {
                    continue;
                }
                choice.end += 1;
                self.choices.push(choice);
            } else {
                choice.end -= 1;
                if choice.end > choice.least {
                    self.choices.push(choice);
                }
            }
            return Ok(Some((choice.index + 1, choice.end)));
        }
        Ok(None)
    }

    /// The offset `end`, after a choice for the lengths down to `least` is left behind if there are any.
    fn choose(&mut self, index: usize, least: usize, end: usize) -> Result<Option<usize>, Fault> {
        if end > least {
            self.push(Choice { index, least, end })?;
        }
        Ok(Some(end))
    }

    /// Leaves a choice behind, or fails when too many are open.
    fn push(&mut self, choice: Choice) -> Result<(), Fault> {
        if self.choices.len() >= MAX_CHOICES {
            return Err(Fault::Malformed(TOO_COMPLEX));
        }
        self.choices.push(choice);
        Ok(())
    }

    /// Whether there is a byte at the offset `at` and `single` can stand for it.
    fn accepts(&mut self, single: Single, at: usize) -> Result<bool, Fault> {
        spend(self.steps, 1)?;
        Ok(self.text.get(at).is_some_and(|byte| self.pattern.accepts(single, *byte)))
    }

    /// The offset after the longest run from `at` on of bytes that `single` can stand for.
    fn run(&mut self, single: Single, at: usize) -> Result<usize, Fault> {
        let mut end = at;
        while self.accepts(single, end)? {
            end += 1;
        }
        Ok(end)
    }

    /// The offset after the bytes of `capture` once more at the offset `at`. Each byte of the capture takes
    /// one step.
    fn again(&mut self, capture: usize, at: usize) -> Result<Option<usize>, Fault> {
        let wanted = self.text.get(self.starts[capture]..self.ends[capture]).unwrap_or_default();
        spend(self.steps, wanted.len())?;
        let rest = self.text.get(at..).unwrap_or_default();
        Ok(rest.starts_with(wanted).then_some(at + wanted.len()))
    }

    /// The offset after the `right` that balances the `left` at the offset `at`. Each byte takes one step.
    fn balance(&mut self, left: u8, right: u8, at: usize) -> Result<Option<usize>, Fault> {
        let mut depth = 0_usize;
        for (offset, byte) in self.text.iter().enumerate().skip(at) {
            spend(self.steps, 1)?;
            if depth == 0 {
                if *byte != left {
                    return Ok(None);
                }
                depth = 1;
            } else if *byte == right {
                depth -= 1;
                if depth == 0 {
                    return Ok(Some(offset + 1));
                }
            } else if *byte == left {
                depth += 1;
            }
        }
        Ok(None)
    }

    /// Whether the byte before the offset `at` is outside the set and the byte at it inside. A NUL stands
    /// before the text and after it.
    fn is_frontier(&self, set: u16, at: usize) -> bool {
        let before = at.checked_sub(1).and_then(|at| self.text.get(at)).copied();
        let after = self.text.get(at).copied();
        !self.pattern.set_holds(set, before.unwrap_or(0)) && self.pattern.set_holds(set, after.unwrap_or(0))
    }
}

#[cfg(test)]
mod tests;
