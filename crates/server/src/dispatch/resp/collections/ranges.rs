//! Ranges of sorted sets: by rank, by score, by member.

use super::whole;
use crate::dispatch::resp::errors::{self, Error};
use larder_collection::{Collection, Entry};
use larder_protocol::resp::Id;
use std::ops::Range as Places;

/// A score, as Redis reads one. `None` for what is none, for `nan`, and for what is too large or too small.
pub(super) fn score(word: &[u8]) -> Option<f64> {
    let (text, number) = (std::str::from_utf8(word).ok()?, any_number(word)?);
    let is_written_out = text.bytes().any(|byte| byte.is_ascii_digit());
    let digits = text.split(['e', 'E']).next().unwrap_or_default();
    let is_out_of_range = is_written_out && number.is_infinite()
        || number == 0.0 && digits.bytes().any(|byte| (b'1'..=b'9').contains(&byte));
    (!is_out_of_range).then_some(number)
}

/// A number, which is infinite if it is too large, and 0 if it is too small.
fn any_number(word: &[u8]) -> Option<f64> {
    let number: f64 = std::str::from_utf8(word).ok()?.parse().ok()?;
    (!number.is_nan()).then_some(number)
}

/// An end of a range of scores.
#[derive(Clone, Copy)]
struct ScoreEnd {
    score: f64,
    /// The score itself is not in the range.
    is_open: bool,
}

impl ScoreEnd {
    fn read(word: &[u8]) -> Result<ScoreEnd, Error> {
        let (is_open, number) = match word.strip_prefix(b"(") {
            Some(number) => (true, number),
            None => (false, word),
        };
        // Nothing at all is 0, and what is too large or too small for a score is none of these errors.
        let number = if number.is_empty() { Some(0.0) } else { any_number(number) };
        Ok(ScoreEnd { score: number.ok_or(errors::SCORE_RANGE)?, is_open })
    }
}

/// An end of a range of members.
#[derive(Clone, Copy)]
enum MemberEnd<'a> {
    First,
    Last,
    At { member: &'a [u8], is_open: bool },
}

impl<'a> MemberEnd<'a> {
    fn read(word: &'a [u8]) -> Result<MemberEnd<'a>, Error> {
        match word {
            b"-" => Ok(MemberEnd::First),
            b"+" => Ok(MemberEnd::Last),
            [b'(', member @ ..] => Ok(MemberEnd::At { member, is_open: true }),
            [b'[', member @ ..] => Ok(MemberEnd::At { member, is_open: false }),
            _ => Err(errors::MEMBER_RANGE),
        }
    }
}

/// What is asked for.
#[derive(Clone, Copy)]
enum By<'a> {
    Rank(i64, i64),
    Score(ScoreEnd, ScoreEnd),
    Member(MemberEnd<'a>, MemberEnd<'a>),
}

/// A range of a sorted set.
#[derive(Clone, Copy)]
pub(super) struct Range<'a> {
    by: By<'a>,
    /// From the highest member on.
    is_reverse: bool,
    /// How many are left out, and how many are wanted at most; a negative number means all.
    limit: Option<(i64, i64)>,
    pub(super) with_scores: bool,
}

impl<'a> Range<'a> {
    /// By score, both ends included or not, as `ZCOUNT` and its like have them.
    pub(super) fn of_scores(low: &[u8], high: &[u8]) -> Result<Range<'a>, Error> {
        Ok(Range::of(By::Score(ScoreEnd::read(low)?, ScoreEnd::read(high)?)))
    }

    /// By member.
    pub(super) fn of_members(low: &'a [u8], high: &'a [u8]) -> Result<Range<'a>, Error> {
        Ok(Range::of(By::Member(MemberEnd::read(low)?, MemberEnd::read(high)?)))
    }

    /// By rank.
    pub(super) fn of_ranks(start: &[u8], end: &[u8]) -> Result<Range<'a>, Error> {
        Ok(Range::of(By::Rank(whole(start)?, whole(end)?)))
    }

    fn of(by: By<'a>) -> Range<'a> {
        Range { by, is_reverse: false, limit: None, with_scores: false }
    }

    /// The range of `ZRANGE`, of `ZRANGESTORE`, and of the commands before them. `words` = what follows the key.
    pub(super) fn read(id: Id, words: &[&'a [u8]]) -> Result<Range<'a>, Error> {
        let [low, high, options @ ..] = words else { return Err(errors::SYNTAX) };
        let is_general = matches!(id, Id::Zrange | Id::Zrangestore);
        let (mut by_score, mut by_member, mut is_reverse) = match id {
            Id::Zrangebyscore => (true, false, false),
            Id::Zrevrangebyscore => (true, false, true),
            Id::Zrangebylex => (false, true, false),
            Id::Zrevrangebylex => (false, true, true),
            Id::Zrevrange => (false, false, true),
            _ => (false, false, false),
        };
        let (mut limit, mut with_scores, mut options) = (None, false, options.iter());
        while let Some(option) = options.next() {
            match &option.to_ascii_lowercase()[..] {
                b"withscores" if id != Id::Zrangestore => with_scores = true,
                b"limit" => {
                    let (skip, most) = (options.next(), options.next());
                    let (Some(skip), Some(most)) = (skip, most) else { return Err(errors::SYNTAX) };
                    limit = Some((whole(skip)?, whole(most)?));
                }
                b"rev" if is_general && !is_reverse => is_reverse = true,
                b"byscore" if is_general && !by_score && !by_member => by_score = true,
                b"bylex" if is_general && !by_score && !by_member => by_member = true,
                _ => return Err(errors::SYNTAX),
            }
        }
        if !by_score && !by_member && limit.take().is_some_and(|(_, most)| most != -1) {
            return Err(errors::LIMIT_OF_RANKS);
        }
        if with_scores && by_member {
            return Err(errors::SCORES_OF_MEMBERS);
        }
        let (first, last) = if is_reverse && (by_score || by_member) { (high, low) } else { (low, high) };
        let range = match (by_score, by_member) {
            (true, _) => Range::of_scores(first, last)?,
            (_, true) => Range::of_members(first, last)?,
            _ => Range::of_ranks(first, last)?,
        };
        Ok(Range { is_reverse, limit, with_scores, ..range })
    }

    /// Which places of a sorted set are in the range, without its limit.
    pub(super) fn places(&self, present: Collection<'_>) -> Places<usize> {
        let length = present.len();
        let (from, until) = match self.by {
            By::Rank(start, end) => {
                let from_end = |at: i64| if at < 0 { at.saturating_add(length as i64) } else { at };
                let from = (from_end(start).max(0) as usize).min(length);
                let until = (from_end(end).saturating_add(1).max(0) as usize).clamp(from, length);
                if self.is_reverse { (length - until, length - from) } else { (from, until) }
            }
            By::Score(low, high) => (
                present.partition(|entry| entry.score < low.score || low.is_open && entry.score == low.score),
                present.partition(|entry| {
                    entry.score < high.score || !high.is_open && entry.score == high.score
                }),
            ),
            By::Member(low, high) => (before(present, low, true), before(present, high, false)),
        };
        from..until.max(from)
    }

    /// The members of a range, in its order.
    pub(super) fn members<'c>(&self, present: Collection<'c>) -> Vec<Entry<'c>> {
        let places = self.places(present);
        let (skip, most) = self.limit.unwrap_or((0, -1));
        let Ok(skip) = usize::try_from(skip) else { return Vec::new() };
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        match self.is_reverse {
            true => places.rev().skip(skip).take(most).filter_map(|place| present.at(place)).collect(),
            false => places.skip(skip).take(most).filter_map(|place| present.at(place)).collect(),
        }
    }
}

/// How many members stand before an end of a range. `is_low`: it is where the range begins.
fn before(present: Collection<'_>, end: MemberEnd<'_>, is_low: bool) -> usize {
    match end {
        MemberEnd::First => 0,
        MemberEnd::Last => present.len(),
        MemberEnd::At { member, is_open } => {
            present.partition(|entry| entry.field < member || is_open == is_low && entry.field == member)
        }
    }
}
