//! ASCII authentication (`-Y`): until a client has logged in, it can only `set` its name and password.

use super::{Connection, Dispatcher};
use crate::io::Ready;
use larder_protocol::reply;
use std::path::Path;

/// Most users in a file, and most bytes of one line; memcached's limits.
const USERS_MAX: usize = 8;
const USER_LINE_BYTES_MAX: usize = 256;
/// Longest `user password` block of a login, in bytes.
const TOKEN_BYTES_MAX: usize = 16 << 10;
/// Longest first line of a login before the connection is closed.
const LINE_BYTES_MAX: usize = 2048;

/// The users of a `-Y` file: one `user:password` per line.
#[derive(Clone, Debug, Default)]
pub struct AuthFile {
    users: Vec<(Vec<u8>, Vec<u8>)>,
}

impl AuthFile {
    /// Reads the file.
    ///
    /// # Errors
    /// One line that says what is wrong with the file, and where.
    pub fn read(path: &Path) -> Result<AuthFile, String> {
        let text = std::fs::read(path).map_err(|error| {
            format!(
                "cannot read the users in {} (-Y): {error}; name a file with lines of name:password",
                path.display()
            )
        })?;
        let mut users = Vec::new();
        for (number, line) in text.split(|&byte| byte == b'\n').enumerate() {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() {
                continue;
            }
            let place = format!("{}:{}", path.display(), number + 1);
            if line.len() > USER_LINE_BYTES_MAX {
                return Err(format!("{place}: a line may have at most {USER_LINE_BYTES_MAX} bytes"));
            }
            let Some(colon) = line.iter().position(|&byte| byte == b':') else {
                return Err(format!("{place}: write user:password"));
            };
            users.push((line[..colon].to_vec(), line[colon + 1..].to_vec()));
        }
        match users.len() {
            0 => Err(format!("{}: no user in it; write user:password, one per line", path.display())),
            1..=USERS_MAX => Ok(AuthFile { users }),
            more => Err(format!("{}: {more} users; at most {USERS_MAX} are allowed", path.display())),
        }
    }

    /// Whether this name has this password. Takes the same time wherever the two differ.
    fn admits(&self, name: &[u8], password: &[u8]) -> bool {
        self.users
            .iter()
            .fold(false, |admitted, (user, secret)| admitted | (same(user, name) & same(secret, password)))
    }
}

fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differing, (x, y)| differing | (x ^ y)) == 0
}

impl Dispatcher {
    /// Reads one login attempt from the front of the input.
    pub(super) fn log_in(&mut self, ready: &mut Ready<'_, Connection>) {
        let input = &ready.input[ready.consumed..];
        let connection = &mut *ready.connection;
        let Some(newline) = input.iter().take(LINE_BYTES_MAX).position(|&byte| byte == b'\n') else {
            if input.len() >= LINE_BYTES_MAX {
                connection.closing = true;
            }
            connection.input_wanted = input.len() + 1;
            return;
        };
        let line = input[..newline].strip_suffix(b"\r").unwrap_or(&input[..newline]);
        let words: Vec<&[u8]> = line.split(|&byte| byte == b' ').filter(|word| !word.is_empty()).collect();
        if line.len() < 6 {
            connection.closing = true;
            return;
        }
        if words.first() != Some(&&b"set"[..]) || !(5..=6).contains(&words.len()) {
            connection.say(reply::UNAUTHENTICATED);
            ready.consumed += newline + 1;
            return;
        }
        let Some(length) = std::str::from_utf8(words[4]).ok().and_then(|digits| digits.parse::<usize>().ok())
        else {
            connection.say(reply::BAD_FORMAT);
            ready.consumed += newline + 1;
            return;
        };
        if length > TOKEN_BYTES_MAX {
            connection.say(reply::AUTH_TOO_LONG);
            connection.closing = true;
            return;
        }
        let block_end = newline + 1 + length + 2;
        if input.len() < block_end {
            connection.input_wanted = block_end;
            return;
        }
        connection.input_wanted = 0;
        let block = &input[newline + 1..block_end];
        ready.consumed += block_end;
        self.worker.counters().auth_cmds.add(1);
        let answer = match block.strip_suffix(b"\r\n") {
            None => reply::AUTH_BAD_END,
            Some(token) => match token.iter().position(|&byte| byte == b' ') {
                None => reply::AUTH_BAD_FORMAT,
                Some(space) => {
                    let users = self.shared.auth.read().expect("no panic under this lock");
                    let admitted =
                        users.as_ref().is_none_or(|users| users.admits(&token[..space], &token[space + 1..]));
                    connection.authenticated = admitted;
                    if admitted { reply::STORED } else { reply::AUTH_FAILURE }
                }
            },
        };
        if !connection.authenticated {
            self.worker.counters().auth_errors.add(1);
        }
        connection.say(answer);
    }
}

impl super::Shared {
    /// SIGHUP: reads the file of users again. A file that cannot be read leaves the users as they are.
    pub fn reload_users(&self) {
        let Some(path) = self.settings.auth_file.as_deref() else { return };
        match AuthFile::read(path) {
            Ok(users) => {
                *self.auth.write().expect("no panic under this lock") = Some(users);
                tracing::info!("the users of {} were read again", path.display());
            }
            Err(error) => tracing::warn!("the users stay as they were: {error}"),
        }
    }
}
