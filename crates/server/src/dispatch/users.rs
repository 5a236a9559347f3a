//! The users that may log in (`-Y`), by whatever protocol, and what each may do.
//!
//! ```text
//! app:secret                          the user app with this password
//! app:#2bb80d53..(64 hex digits)      the same, with the SHA-256 digest of the password instead of the password
//! readonly dashboard:watcher          the user dashboard may read, and change nothing
//! # a comment                         as is an empty line
//! ```
//!
//! The first and the second kind of line are those of memcached (`user:password`) and of Redis (`#` and the digest). A
//! user may stand on several lines: each of its passwords is valid, so that passwords can be changed one client at a
//! time.
//!
//! Names and passwords are compared as digests, in a time that depends neither on where two differ nor on their
//! lengths, and all users are compared every time.

use super::own_keys::OwnKeys;
use crate::settings::{Settings, UserNamespace, read_short_file};
use ring::digest::{SHA256, digest};
use std::path::Path;
use std::sync::Arc;
use subtle::ConstantTimeEq;

/// The most lines with users in a file. Each of them costs every login about 50 ns.
const USERS_MAX: usize = 1024;
/// The longest line of a file, in bytes.
const LINE_BYTES_MAX: usize = 1024;
/// A line that begins so is a comment. memcached's format has no comments, but its clients cannot send a name with a
/// space in it.
const COMMENT: &[u8] = b"# ";
/// Stands before a user that may only read. Clients of memcached cannot send a name with a space in it.
const READ_ONLY: &[u8] = b"readonly ";

/// What a client may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Reads only. It changes no item, no setting and no statistic.
    ReadOnly,
    /// Everything.
    Full,
}

/// What a client that has logged in may do, and with which keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Rights {
    pub(super) access: Access,
    /// `None` = all keys.
    pub(super) keys: Option<Arc<OwnKeys>>,
}

type Digest = [u8; 32];

/// The users of a file, and which keys are theirs.
#[derive(Clone, Default)]
pub struct Users {
    users: Vec<User>,
    /// The names of those who have a namespace, and their keys.
    keys: Vec<(Digest, Arc<OwnKeys>)>,
    /// A user who has a namespace, and is not in the file.
    stranger: Option<String>,
    /// One sentence for each line that is probably not what it was meant to be.
    warnings: Vec<String>,
}

#[derive(Clone)]
struct User {
    name: Digest,
    password: Digest,
    access: Access,
}

impl Users {
    /// The users that these settings name, with their namespaces; `None` = clients do not log in.
    ///
    /// # Errors
    /// Those of [`Users::read`].
    pub fn of(settings: &Settings) -> Result<Option<Users>, String> {
        let Some(path) = &settings.auth_file else { return Ok(None) };
        let mut users = Users::read(path)?;
        for UserNamespace { user, namespace } in &settings.user_namespaces {
            if !users.has(user.as_bytes()) {
                users.stranger = Some(format!(
                    "the user '{user}' has a namespace (--user-namespaces) and is not in {} (-Y)",
                    path.display()
                ));
            }
            let keys = OwnKeys::new(namespace, settings.prefix_delimiter);
            users.keys.push((sha256(user.as_bytes()), Arc::new(keys)));
        }
        Ok(Some(users))
    }

    /// One line about a user who has a namespace and cannot log in. At a start it is an error: a user whose name was
    /// spelt otherwise would have all keys.
    pub fn stranger(&self) -> Option<&str> {
        self.stranger.as_deref()
    }

    /// Reads the file.
    ///
    /// # Errors
    /// One line that says what is wrong with the file, and where.
    pub fn read(path: &Path) -> Result<Users, String> {
        let shown = path.display();
        let text = read_short_file(path).map_err(|error| {
            format!("cannot read the users in {shown} (-Y): {error}; name a file with lines of name:password")
        })?;
        let (mut users, mut warnings) = (Vec::new(), Vec::new());
        for (number, line) in text.split(|&byte| byte == b'\n').enumerate() {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() || line.starts_with(COMMENT) || line == COMMENT.trim_ascii_end() {
                continue;
            }
            users.push(User::read(line).map_err(|wrong| format!("{shown}:{}: {wrong}", number + 1))?);
            let password = line.splitn(2, |&byte| byte == b':').nth(1).unwrap_or_default();
            if password.starts_with(b"#") && hashed(password).is_none() {
                warnings.push(format!(
                    "{shown}:{}: the password begins with # and is no digest, which has 64 hexadecimal digits: it is \
                     taken as it stands",
                    number + 1
                ));
            }
        }
        match users.len() {
            0 => Err(format!("{shown}: no user in it; write user:password, one per line")),
            1..=USERS_MAX => Ok(Users { users, warnings, ..Users::default() }),
            more => Err(format!("{shown}: {more} users; at most {USERS_MAX} are allowed")),
        }
    }

    /// Warns of lines that are probably not what they were meant to be.
    pub(crate) fn log_warnings(&self) {
        let warnings = self.warnings.iter().map(String::as_str).chain(self.stranger());
        warnings.for_each(|warning| tracing::warn!("{warning}"));
    }

    /// Whether there is a user of this name.
    pub(super) fn has(&self, name: &[u8]) -> bool {
        let name = sha256(name);
        self.users.iter().any(|user| user.name == name)
    }

    /// What the user may do, if this is its password.
    pub(super) fn admit(&self, name: &[u8], password: &[u8]) -> Option<Rights> {
        let (name, password) = (sha256(name), sha256(password));
        let access = self.users.iter().fold(None, |admitted, user| {
            let is_it = user.name.ct_eq(&name) & user.password.ct_eq(&password);
            if bool::from(is_it) { Some(user.access) } else { admitted }
        })?;
        let keys = self.keys.iter().find(|(of, _)| *of == name).map(|(_, keys)| Arc::clone(keys));
        Some(Rights { access, keys })
    }
}

impl User {
    fn read(line: &[u8]) -> Result<User, String> {
        if line.len() > LINE_BYTES_MAX {
            return Err(format!("a line may have at most {LINE_BYTES_MAX} bytes"));
        }
        let (access, line) = match line.strip_prefix(READ_ONLY) {
            Some(user) => (Access::ReadOnly, user),
            None => (Access::Full, line),
        };
        let colon = line.iter().position(|&byte| byte == b':').ok_or("write user:password")?;
        let (name, password) = (&line[..colon], &line[colon + 1..]);
        if name.is_empty() {
            return Err("a user needs a name: write user:password".to_owned());
        }
        Ok(User {
            name: sha256(name),
            password: hashed(password).unwrap_or_else(|| sha256(password)),
            access,
        })
    }
}

/// The digest that a hashed password spells out: `#` and 64 hexadecimal digits.
fn hashed(password: &[u8]) -> Option<Digest> {
    let digits = password.strip_prefix(b"#").filter(|digits| digits.len() == 64)?;
    let digits = Some(digits).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
    let mut found = Digest::default();
    for (byte, pair) in found.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(found)
}

fn sha256(text: &[u8]) -> Digest {
    digest(&SHA256, text).as_ref().try_into().expect("a SHA-256 digest has 32 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn users(text: &str) -> Result<Users, String> {
        let path = std::env::temp_dir().join(format!("larder-users-{:?}", std::thread::current().id()));
        std::fs::write(&path, text).expect("the folder for temporary files can be written");
        let users = Users::read(&path);
        let _ = std::fs::remove_file(path);
        users
    }

    #[test]
    fn plain_and_hashed_passwords_and_what_their_users_may_do() {
        // printf secret | sha256sum
        let digest = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
        let text = format!(
            "# who may come in\n#\n\napp:secret\r\nhashed:#{digest}\nHASHED:#{}\nreadonly eye:see:all\napp:second\n",
            digest.to_uppercase()
        );
        let users = users(&text).expect("a file of users");
        let admitted = |name: &str, password: &str| {
            users.admit(name.as_bytes(), password.as_bytes()).map(|rights| rights.access)
        };
        assert_eq!(admitted("app", "secret"), Some(Access::Full));
        assert_eq!(admitted("app", "second"), Some(Access::Full));
        assert_eq!(admitted("hashed", "secret"), Some(Access::Full));
        assert_eq!(admitted("HASHED", "secret"), Some(Access::Full));
        assert_eq!(admitted("eye", "see:all"), Some(Access::ReadOnly));
        for (name, password) in
            [("app", "secre"), ("app", "secrett"), ("ap", "secret"), ("eye", "secret"), ("", ""), ("app", "")]
        {
            assert_eq!(admitted(name, password), None, "{name}:{password}");
        }
        assert_eq!(admitted("hashed", &format!("#{digest}")), None, "the digest is no password");
        assert_eq!(admitted("readonly eye", "see:all"), None);
    }

    #[test]
    fn a_short_digest_is_a_password() {
        let users = users("a:#abc\nb:#zz").expect("a file of users");
        assert!(users.admit(b"a", b"#abc").is_some());
        assert!(users.admit(b"b", b"#zz").is_some());
        let said: Vec<_> =
            users.warnings.iter().map(|warning| warning.split(": ").next().unwrap_or_default()).collect();
        assert!(matches!(said[..], [a, b] if a.ends_with(":1") && b.ends_with(":2")), "{said:?}");
        assert!(!users.warnings.concat().contains("abc"), "a password is not shown");
    }

    #[test]
    fn a_file_that_is_wrong_says_where() {
        for (text, what) in [
            ("", "no user in it"),
            ("a:b\nnonsense\n", ":2: write user:password"),
            (":b", ":1: a user needs a name"),
            ("readonly :b", ":1: a user needs a name"),
        ] {
            let error = users(text).err().expect("the file is refused");
            assert!(error.contains(what), "{error}");
        }
        let many: String = (0..1025).map(|number| format!("u{number}:p\n")).collect();
        assert!(users(&many).err().expect("too many").contains("1025 users; at most 1024"));
    }
}
