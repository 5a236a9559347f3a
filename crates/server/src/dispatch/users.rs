//! The users that may log in (`-Y`).

use std::path::Path;

/// The most users in a file. The limit is memcached's.
const USERS_MAX: usize = 8;
/// The longest line of a file, in bytes. The limit is memcached's.
const USER_LINE_BYTES_MAX: usize = 256;

/// The users of a `-Y` file, which has one `user:password` per line.
#[derive(Clone, Debug, Default)]
pub struct Users {
    names_and_passwords: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Users {
    /// Reads the file.
    ///
    /// # Errors
    /// One line that says what is wrong with the file, and where.
    pub fn read(path: &Path) -> Result<Users, String> {
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
            let at = format!("{}:{}", path.display(), number + 1);
            if line.len() > USER_LINE_BYTES_MAX {
                return Err(format!("{at}: a line may have at most {USER_LINE_BYTES_MAX} bytes"));
            }
            let Some(colon) = line.iter().position(|&byte| byte == b':') else {
                return Err(format!("{at}: write user:password"));
            };
            users.push((line[..colon].to_vec(), line[colon + 1..].to_vec()));
        }
        match users.len() {
            0 => Err(format!("{}: no user in it; write user:password, one per line", path.display())),
            1..=USERS_MAX => Ok(Users { names_and_passwords: users }),
            more => Err(format!("{}: {more} users; at most {USERS_MAX} are allowed", path.display())),
        }
    }

    /// Whether the user has this password. The comparison takes the same time wherever two texts differ.
    pub(super) fn admits(&self, name: &[u8], password: &[u8]) -> bool {
        self.names_and_passwords
            .iter()
            .fold(false, |admitted, (user, secret)| admitted | (same(user, name) & same(secret, password)))
    }
}

fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differing, (x, y)| differing | (x ^ y)) == 0
}
