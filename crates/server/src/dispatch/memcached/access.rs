//! What becomes of a packet whose client may not do everything.

use crate::dispatch::users::Access;
use larder_protocol::binary::{self, Command, Refusal, Status};

/// What the parser of the binary protocol found, as far as the client may have it.
///
/// A client that has not logged in may do so, and ask for the mechanisms and the version. Anything else is refused, and
/// the connection closed. A client that may only read may not renew the expiry of what it reads. All else that it may
/// not do is refused by [`Operation::without_changes`](crate::dispatch::operation::Operation::without_changes).
#[cold]
pub(in crate::dispatch) fn allowed_packet(
    step: binary::Step<'_>,
    access: Option<Access>,
) -> binary::Step<'_> {
    let refuse = |echo, closes, consumed| {
        let error = Refusal { echo, status: Status::AuthError, closes };
        binary::Step::Reject { error, consumed, swallow: 0 }
    };
    match (access, &step) {
        (Some(Access::Full), _) => step,
        (Some(Access::ReadOnly), binary::Step::Request { request, consumed }) => match request.command {
            Command::Get { exptime: Some(_), .. } => refuse(request.echo, false, *consumed),
            _ => step,
        },
        (None, binary::Step::Request { request, consumed }) => match request.command {
            Command::SaslMechanisms | Command::Sasl { .. } | Command::Version => step,
            _ => refuse(request.echo, true, *consumed),
        },
        (None, binary::Step::Upload { request, consumed, .. }) => refuse(request.echo, true, *consumed),
        (None, binary::Step::Reject { error, consumed, .. })
            if !error.closes && !binary::is_login(error.echo.opcode) =>
        {
            refuse(error.echo, true, *consumed)
        }
        _ => step,
    }
}
