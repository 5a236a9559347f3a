//! The syntax of a command as a tree, for `COMMAND DOCS`.

/// One argument, or several that belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    /// What it is called: a word in lower case.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// The word in capitals that stands before it, or that it consists of.
    pub token: Option<&'static str>,
    /// It may be left out.
    pub is_optional: bool,
    /// It may be repeated.
    pub is_multiple: bool,
}

/// The kinds of arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A key.
    Key,
    /// Any text.
    Text,
    /// A whole number.
    Integer,
    /// A decimal number.
    Double,
    /// A time.
    UnixTime,
    /// A pattern of keys.
    Pattern,
    /// A word that stands for itself.
    Token,
    /// One of these.
    OneOf(Vec<Argument>),
    /// All of these, one behind the other.
    Block(Vec<Argument>),
}

impl Kind {
    /// Redis's name of the kind.
    pub fn name(&self) -> &'static str {
        match self {
            Kind::Key => "key",
            Kind::Text => "string",
            Kind::Integer => "integer",
            Kind::Double => "double",
            Kind::UnixTime => "unix-time",
            Kind::Pattern => "pattern",
            Kind::Token => "pure-token",
            Kind::OneOf(_) => "oneof",
            Kind::Block(_) => "block",
        }
    }

    /// The kind of an argument that is called so.
    fn of(name: &str) -> Kind {
        match name {
            "key" | "newkey" | "source" | "destination" | "src" | "dst" => Kind::Key,
            "pattern" => Kind::Pattern,
            "score" => Kind::Double,
            _ if name.starts_with("unix-time") => Kind::UnixTime,
            "seconds" | "milliseconds" | "cursor" | "count" | "start" | "end" | "offset" | "decrement"
            | "bit" | "db" | "index" | "index1" | "index2" | "destination-db" | "numreplicas" | "timeout"
            | "protover" | "client-id" | "slot" | "version" | "maxage" | "increment" | "limit"
            | "numfields" | "numkeys" | "stop" | "weight" => Kind::Integer,
            _ => Kind::Text,
        }
    }

    /// The kind that the syntax calls so, behind the name of an argument.
    fn called(kind: &str) -> Kind {
        [Kind::Integer, Kind::Double].into_iter().find(|known| known.name() == kind).unwrap_or(Kind::Text)
    }
}

/// The arguments of [`super::Command::syntax`].
pub fn arguments(syntax: &'static str) -> Vec<Argument> {
    let mut reader = Reader { rest: syntax };
    reader.sequence()
}

struct Reader {
    rest: &'static str,
}

impl Reader {
    fn skip_spaces(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn takes(&mut self, text: &str) -> bool {
        self.skip_spaces();
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn word(&mut self) -> &'static str {
        self.skip_spaces();
        let is_end = |at: char| at.is_whitespace() || "[]<>|".contains(at);
        let end = self.rest.find(is_end).unwrap_or(self.rest.len());
        let end = self.rest[..end].find("...").unwrap_or(end);
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }

    /// Arguments until the end, or until something closes.
    fn sequence(&mut self) -> Vec<Argument> {
        let mut all = Vec::new();
        loop {
            self.skip_spaces();
            if self.rest.is_empty() || self.rest.starts_with([']', '>', '|']) {
                return all;
            }
            let argument = self.argument();
            all.push(argument);
        }
    }

    /// What stands between `|`, or alone.
    fn choice(&mut self) -> Argument {
        let mut choices = Vec::new();
        loop {
            let mut parts = self.sequence();
            choices.push(match parts.len() {
                1 => parts.remove(0),
                _ => group("block", Kind::Block(parts)),
            });
            if !self.takes("|") {
                break;
            }
        }
        match choices.len() {
            1 => choices.remove(0),
            _ => group("condition", Kind::OneOf(choices)),
        }
    }

    fn argument(&mut self) -> Argument {
        let mut argument = if self.takes("[") {
            let mut inner = self.choice();
            self.takes("]");
            inner.is_optional = true;
            inner
        } else if self.takes("<") {
            let inner = self.choice();
            self.takes(">");
            inner
        } else {
            self.plain()
        };
        argument.is_multiple |= self.takes("...");
        argument
    }

    /// A word, or a word in capitals and what belongs to it.
    fn plain(&mut self) -> Argument {
        let word = self.word();
        if !word.chars().any(|letter| letter.is_ascii_uppercase()) {
            return match word.split_once(':') {
                Some((name, kind)) => group(name, Kind::called(kind)),
                None => group(word, Kind::of(word)),
            };
        }
        self.skip_spaces();
        let is_alone = self.rest.is_empty()
            || self.rest.starts_with([']', '>', '|', '['])
            || self.rest.starts_with(|letter: char| letter.is_ascii_uppercase());
        if is_alone {
            return Argument { token: Some(word), ..group(lower(word), Kind::Token) };
        }
        Argument { token: Some(word), ..self.argument() }
    }
}

fn group(name: &'static str, kind: Kind) -> Argument {
    Argument { name, kind, token: None, is_optional: false, is_multiple: false }
}

/// The names of words that stand for themselves.
fn lower(token: &'static str) -> &'static str {
    const NAMES: &str = "abort all async bit bylex byscore byte ch error fnx force fxx get gt incr \
                         keepttl lib-name lib-ver lt master match max min no normal nosave noscores \
                         novalues now nx off on persist pubsub replace replica rev save skip sum sync \
                         timeout type withscore withscores withvalues write xx yes";
    NAMES.split(' ').find(|name| name.eq_ignore_ascii_case(token)).unwrap_or(token)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::all;

    fn shown(arguments: &[Argument]) -> String {
        let one = |argument: &Argument| {
            let inner = match &argument.kind {
                Kind::OneOf(choices) => format!("oneof({})", shown(choices)),
                Kind::Block(parts) => format!("block({})", shown(parts)),
                kind => format!("{}:{}", argument.name, kind.name()),
            };
            let token = argument.token.map_or(String::new(), |token| format!("{token}="));
            let marks = [(argument.is_optional, "?"), (argument.is_multiple, "*")];
            let marks: String = marks.iter().filter(|(is_so, _)| *is_so).map(|(_, mark)| *mark).collect();
            format!("{token}{inner}{marks}")
        };
        arguments.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_syntax_is_a_tree() {
        for (syntax, expected) in [
            ("", ""),
            ("key", "key:key"),
            ("key...", "key:key*"),
            ("<key value>...", "block(key:key value:string)*"),
            (
                "key value [NX|XX] [GET] [EX seconds|KEEPTTL]",
                "key:key value:string oneof(NX=nx:pure-token XX=xx:pure-token)? GET=get:pure-token? \
                 oneof(EX=seconds:integer KEEPTTL=keepttl:pure-token)?",
            ),
            (
                "[<protover [AUTH <username password>]>]",
                "block(protover:integer AUTH=block(username:string password:string)?)?",
            ),
            ("command [arg...]", "command:string arg:string*?"),
            ("key min:double max", "key:key min:double max:string"),
            (
                "numkeys key... [WEIGHTS weight...] [AGGREGATE <SUM|MIN>]",
                "numkeys:integer key:key* WEIGHTS=weight:integer*? \
                 AGGREGATE=oneof(SUM=sum:pure-token MIN=min:pure-token)?",
            ),
        ] {
            let found = shown(&arguments(syntax)).replace("?*", "*?");
            assert_eq!(found, expected.replace("?*", "*?"), "{syntax}");
        }
    }

    #[test]
    fn the_syntax_of_every_command_is_read_to_its_end() {
        let rows = all().flat_map(|command| std::iter::once(command).chain(command.subcommands));
        for command in rows {
            let mut reader = Reader { rest: command.syntax };
            let arguments = reader.sequence();
            assert_eq!(reader.rest, "", "{}", command.full_name());
            assert_eq!(arguments.is_empty(), command.syntax.is_empty());
        }
    }
}
