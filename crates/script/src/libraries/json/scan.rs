//! The tokens of a JSON text, as lenient as lua-cjson is.

use serde::de::{Deserializer as _, Error, Visitor};
use std::borrow::Cow;
use std::fmt;

pub(super) enum Token<'a> {
    ArrayBegin,
    ArrayEnd,
    ObjectBegin,
    ObjectEnd,
    Comma,
    Colon,
    Null,
    Boolean(bool),
    Number(f64),
    Text(Cow<'a, [u8]>),
    End,
    /// What is no token, in the words of lua-cjson.
    Wrong(&'static str),
}

impl Token<'_> {
    /// The name that lua-cjson's messages have for the token.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::ArrayBegin => "T_ARR_BEGIN",
            Self::ArrayEnd => "T_ARR_END",
            Self::ObjectBegin => "T_OBJ_BEGIN",
            Self::ObjectEnd => "T_OBJ_END",
            Self::Comma => "T_COMMA",
            Self::Colon => "T_COLON",
            Self::Null => "T_NULL",
            Self::Boolean(_) => "T_BOOLEAN",
            Self::Number(_) => "T_NUMBER",
            Self::Text(_) => "T_STRING",
            Self::End => "T_END",
            Self::Wrong(words) => words,
        }
    }
}

pub(super) struct Scanner<'a> {
    text: &'a [u8],
    position: usize,
    /// Where the last token began, or where it went wrong.
    start: usize,
    /// Whether numbers may be what JSON does not have: infinite, or with a sign or zeros in front.
    is_lenient: bool,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a [u8], is_lenient: bool) -> Self {
        Self { text, position: 0, start: 0, is_lenient }
    }

    /// The place of the last token, counted from 1.
    pub(super) fn place(&self) -> usize {
        self.start + 1
    }

    pub(super) fn next(&mut self) -> Token<'a> {
        let rest = self.text.get(self.position..).unwrap_or_default();
        let blanks = rest.iter().take_while(|byte| b" \t\r\n".contains(byte)).count();
        self.position += blanks;
        self.start = self.position;
        let rest = &rest[blanks..];
        let (token, length) = match rest.first() {
            None | Some(0) => return Token::End,
            Some(b'"') => return self.string(),
            Some(b'[') => (Token::ArrayBegin, 1),
            Some(b']') => (Token::ArrayEnd, 1),
            Some(b'{') => (Token::ObjectBegin, 1),
            Some(b'}') => (Token::ObjectEnd, 1),
            Some(b',') => (Token::Comma, 1),
            Some(b':') => (Token::Colon, 1),
            Some(b'-' | b'0'..=b'9') => return self.number(rest),
            Some(_) if rest.starts_with(b"null") => (Token::Null, 4),
            Some(_) if rest.starts_with(b"true") => (Token::Boolean(true), 4),
            Some(_) if rest.starts_with(b"false") => (Token::Boolean(false), 5),
            Some(b'+' | b'i' | b'I' | b'n' | b'N')
                if self.is_lenient && (rest[0] == b'+' || number_length(rest) > 0) =>
            {
                return self.number(rest);
            }
            Some(_) => return Token::Wrong("invalid token"),
        };
        self.position += length;
        token
    }

    fn number(&mut self, rest: &[u8]) -> Token<'a> {
        let length = number_length(rest);
        let text = str::from_utf8(&rest[..length]).unwrap_or_default();
        self.position += length;
        match (text.parse::<f64>(), rest.strip_prefix(b"-").unwrap_or(rest)) {
            (Err(_), _) => Token::Wrong("invalid number"),
            (_, [b'0', b'0'..=b'9' | b'x' | b'X', ..] | [b'i' | b'I' | b'n' | b'N', ..])
                if !self.is_lenient =>
            {
                Token::Wrong("invalid number")
            }
            (Ok(number), _) => Token::Number(number),
        }
    }

    fn string(&mut self) -> Token<'a> {
        let (begin, mut index, mut first_escape) = (self.position, self.position + 1, None);
        loop {
            match self.text.get(index) {
                Some(b'"') => break,
                Some(b'\\') => {
                    self.start = index;
                    if !self.text.get(index + 1).is_some_and(|letter| b"\"\\/bfnrtu".contains(letter)) {
                        return Token::Wrong("invalid escape code");
                    }
                    first_escape = first_escape.or(Some(index));
                    index += 2;
                }
                None | Some(0) => {
                    self.start = index;
                    return Token::Wrong("unexpected end of string");
                }
                Some(_) => index += 1,
            }
        }
        self.position = index + 1;
        let Some(escape) = first_escape else {
            self.start = begin;
            return Token::Text(Cow::Borrowed(&self.text[begin + 1..index]));
        };
        let text = unescaped(&self.text[begin..=index]);
        self.start = if text.is_some() { begin } else { escape };
        text.map_or(Token::Wrong("invalid unicode escape code"), |text| Token::Text(Cow::Owned(text)))
    }
}

/// The bytes of a string in quotes. Those that are no UTF-8 and raw control characters stay as they are.
fn unescaped(quoted: &[u8]) -> Option<Vec<u8>> {
    match serde_json::from_slice::<String>(quoted) {
        Ok(text) => Some(text.into_bytes()),
        Err(_) if str::from_utf8(quoted).is_ok() && quoted.iter().all(|byte| *byte >= b' ') => None,
        Err(_) => serde_json::Deserializer::from_slice(quoted).deserialize_bytes(Bytes).ok(),
    }
}

struct Bytes;

impl Visitor<'_> for Bytes {
    type Value = Vec<u8>;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("a string")
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
        Ok(bytes.to_vec())
    }
}

/// The length of the number that a text begins with, or 0.
fn number_length(text: &[u8]) -> usize {
    let sign = usize::from(matches!(text.first(), Some(b'+' | b'-')));
    let digits = |from: usize| text.iter().skip(from).take_while(|byte| byte.is_ascii_digit()).count();
    for word in ["infinity", "inf", "nan"] {
        let end = sign + word.len();
        if text.get(sign..end).is_some_and(|start| start.eq_ignore_ascii_case(word.as_bytes())) {
            return end;
        }
    }
    let mut length = sign + digits(sign);
    let mut count = length - sign;
    if text.get(length) == Some(&b'.') {
        let decimals = digits(length + 1);
        count += decimals;
        length += 1 + decimals;
    }
    if count == 0 {
        return 0;
    }
    if let Some(b'e' | b'E') = text.get(length) {
        let sign = usize::from(matches!(text.get(length + 1), Some(b'+' | b'-')));
        let exponent = digits(length + 1 + sign);
        if exponent > 0 {
            length += 1 + sign + exponent;
        }
    }
    length
}

#[cfg(test)]
mod tests {
    use super::{Scanner, Token, number_length};
    use proptest::prelude::*;

    #[test]
    fn numbers_end_where_they_end() {
        for (text, length) in
            [("1", 1), ("1.5x", 3), ("-", 0), ("1e", 1), ("1e+", 1), ("1e+5,", 4), ("-.5", 3)]
        {
            assert_eq!(number_length(text.as_bytes()), length, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_ends(text: Vec<u8>) {
            let mut scanner = Scanner::new(&text, true);
            let mut count = 0;
            while !matches!(scanner.next(), Token::End | Token::Wrong(_)) {
                count += 1;
            }
            prop_assert!(count <= text.len());
        }
    }
}
