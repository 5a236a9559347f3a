//! A connection on its way from its listener to its worker.

use super::address_limit::AddressPlace;
use super::left_over::LeftOver;
use super::tls::Session;
use super::transport::Transport;
use rustls::server::ServerConfig;
use socket2::Socket;
use std::sync::Arc;

/// A socket on its way to its worker.
#[derive(Debug)]
pub(super) struct Accepted {
    pub(super) socket: Socket,
    pub(super) transport: Transport,
    /// The client speaks RESP. `false` = it is not known what it speaks.
    pub(super) is_resp: bool,
    /// A client of another machine, at a door that nobody has opened for it. It is told so, and not served.
    pub(super) is_stranger: bool,
    /// What it counts for among the connections of its address. `None` = it was not counted, or has no address.
    pub(super) place: Option<AddressPlace>,
    /// The handshake that comes first.
    pub(super) handshake: Option<Arc<ServerConfig>>,
    /// What encrypts the connection, behind its handshake.
    pub(super) session: Option<Box<Session>>,
    /// The kernel encrypts.
    pub(super) is_kernel_tls: bool,
    /// Requests that came together with the handshake.
    pub(super) plain: LeftOver,
    /// The client has said that it sends no more.
    pub(super) has_ended: bool,
}

impl Accepted {
    /// A connection that is not encrypted, or not yet.
    pub(super) fn new(socket: Socket, transport: Transport) -> Accepted {
        let plain = LeftOver::default();
        Accepted {
            socket,
            transport,
            is_resp: false,
            is_stranger: false,
            place: None,
            handshake: None,
            session: None,
            is_kernel_tls: false,
            plain,
            has_ended: false,
        }
    }
}
