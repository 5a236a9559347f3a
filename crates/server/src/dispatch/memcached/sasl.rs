//! The login of the binary protocol: SASL with the one mechanism `PLAIN`.
//!
//! ```text
//! list mechanisms                     -> PLAIN
//! authenticate PLAIN, \0user\0secret  -> Authenticated
//! authenticate PLAIN, nothing         -> continue;   step PLAIN, \0user\0secret  -> Authenticated
//! ```

use crate::dispatch::output::Output;
use larder_protocol::binary::{Command, Echo, Status, reply};

const MECHANISM: &[u8] = b"PLAIN";
const AUTHENTICATED: &[u8] = b"Authenticated";

/// What a request of a login asks for.
pub(in crate::dispatch) enum SaslRequest<'a> {
    /// The mechanisms.
    List,
    /// `PLAIN` was named without a name and a password: they follow in a step.
    Begin,
    /// The user wants to log in. `None` = the client sent no name and password that can be read.
    LogIn(Option<(&'a [u8], &'a [u8])>),
}

/// Reads a request of a login. `None` = it is another request. `has_begun` = the last one of this connection was a
/// [`SaslRequest::Begin`].
pub(in crate::dispatch) fn read<'a>(command: &Command<'a>, has_begun: bool) -> Option<SaslRequest<'a>> {
    match *command {
        Command::SaslMechanisms => Some(SaslRequest::List),
        Command::Sasl { is_step, mechanism, data } => {
            let is_known = mechanism.eq_ignore_ascii_case(MECHANISM);
            Some(match data {
                _ if !is_known || (is_step && !has_begun) => SaslRequest::LogIn(None),
                [] if !is_step => SaslRequest::Begin,
                message => SaslRequest::LogIn(name_and_password(message)),
            })
        }
        _ => None,
    }
}

/// Reads a message of `PLAIN`: the user to act as, the user's name and the password, with a zero byte between them. A
/// client may not act as another user.
fn name_and_password(message: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut parts = message.splitn(3, |&byte| byte == 0);
    let (acts_as, name, password) = (parts.next()?, parts.next()?, parts.next()?);
    (acts_as.is_empty() || acts_as == name).then_some((name, password))
}

/// Words the outcome of a login that was allowed, or not.
pub(in crate::dispatch) fn compose(output: &mut Output, echo: Echo, is_admitted: bool) {
    let out = output.buffer();
    match is_admitted {
        true => reply::value_alone(out, echo, Status::Ok, AUTHENTICATED),
        false => reply::error(out, echo, Status::AuthError),
    }
}

/// Words the list of mechanisms.
pub(in crate::dispatch) fn compose_mechanisms(output: &mut Output, echo: Echo) {
    reply::value_alone(output.buffer(), echo, Status::Ok, MECHANISM);
}

/// Asks for the name and the password.
pub(in crate::dispatch) fn compose_continue(output: &mut Output, echo: Echo) {
    reply::value_alone(output.buffer(), echo, Status::AuthContinue, b"");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_three_parts() {
        assert_eq!(name_and_password(b"\0user\0pass"), Some((&b"user"[..], &b"pass"[..])));
        assert_eq!(name_and_password(b"user\0user\0pa\0ss"), Some((&b"user"[..], &b"pa\0ss"[..])));
        assert_eq!(name_and_password(b"\0user\0"), Some((&b"user"[..], &b""[..])));
        for bad in [&b""[..], b"user", b"\0user", b"root\0user\0pass"] {
            assert_eq!(name_and_password(bad), None);
        }
    }
}
