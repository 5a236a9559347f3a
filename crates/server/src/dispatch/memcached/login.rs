//! The login of text connections (`-Y`): until a client has logged in, it can only `set` its name and password.

use crate::dispatch::execute::Admission;
use crate::dispatch::output::Output;
use crate::dispatch::users::Rights;
use larder_protocol::reply;

/// The longest `user password` block of a login, in bytes.
const TOKEN_BYTES_MAX: usize = 16 << 10;
/// The longest first line of a login before the connection is closed, in bytes.
const LINE_BYTES_MAX: usize = 2048;
/// A shorter line, its carriage return included, is no attempt to log in, and closes the connection.
const LINE_BYTES_MIN: usize = 6;
/// The shortest input that is looked at, in bytes.
const INPUT_BYTES_MIN: usize = 3;

/// How far a login is.
#[derive(Default)]
pub(in crate::dispatch) struct Login {
    /// Bytes of the input that are dealt with.
    pub(in crate::dispatch) consumed: usize,
    /// Bytes of input that make another look worth while; 0 = any.
    pub(in crate::dispatch) input_wanted: usize,
    /// What the client may do from now on; `None` = it is not admitted.
    pub(in crate::dispatch) rights: Option<Rights>,
}

/// Reads one login attempt from the front of the input. `admit` says whether the user may log in; it is asked about
/// `None` where no name and password can be read. Nothing is consumed of an attempt that has to wait.
pub(in crate::dispatch) fn log_in(
    input: &[u8],
    output: &mut Output,
    admit: impl FnOnce(Option<(&[u8], &[u8])>) -> Admission,
) -> Login {
    let newline = input.iter().take(LINE_BYTES_MAX).position(|&byte| byte == b'\n');
    let Some(newline) = newline.filter(|_| input.len() >= INPUT_BYTES_MIN) else {
        if input.len() >= LINE_BYTES_MAX {
            output.close_failed();
        }
        return Login { input_wanted: input.len() + 1, ..Login::default() };
    };
    if newline < LINE_BYTES_MIN {
        output.close_failed();
        return Login::default();
    }
    let line_done = Login { consumed: newline + 1, ..Login::default() };
    let line = input[..newline].strip_suffix(b"\r").unwrap_or(&input[..newline]);
    let mut words = line.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
    let length = words.nth(4).and_then(|word| std::str::from_utf8(word).ok()?.parse::<u32>().ok());
    let Some(length) = length.filter(|_| line.starts_with(b"set")) else {
        output.say(reply::UNAUTHENTICATED);
        return line_done;
    };
    let length = length as usize;
    if length > TOKEN_BYTES_MAX {
        output.say(reply::AUTH_TOO_LONG);
        return line_done;
    }
    let block_end = newline + 1 + length + 2;
    if input.len() < block_end {
        return Login { input_wanted: block_end, ..Login::default() };
    }
    let token = input[newline + 1..block_end].strip_suffix(b"\r\n");
    let user = token.and_then(|token| {
        let space = token.iter().position(|&byte| byte == b' ')?;
        Some((&token[..space], &token[space + 1..]))
    });
    let rights = match admit(user) {
        Admission::Later => return Login::default(),
        Admission::Refused => None,
        Admission::Admitted(rights) => Some(rights),
    };
    output.say(match (token, user, &rights) {
        (None, ..) => reply::AUTH_BAD_END,
        (_, None, _) => reply::AUTH_BAD_FORMAT,
        (.., Some(_)) => reply::STORED,
        (.., None) => reply::AUTH_FAILURE,
    });
    Login { consumed: block_end, input_wanted: 0, rights }
}
