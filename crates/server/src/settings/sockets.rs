//! The sockets that settings name.

use super::all::Settings;
use super::network::{EVERYWHERE, Port, THIS_MACHINE};
use super::tls::VerifyMode;
use std::net::SocketAddr;

/// Whether clients of other machines are served where no address is named: they are told apart by a password or a
/// certificate, they are the clients of a fleet, or the settings say that all may come.
pub fn serves_strangers(settings: &Settings) -> bool {
    let asks_for_certificates =
        settings.tls.enabled && matches!(settings.tls.verify, VerifyMode::Require | VerifyMode::Once);
    settings.open || settings.auth_file.is_some() || settings.fleet.is_some() || asks_for_certificates
}

/// The TCP addresses to bind, with host names looked up. Empty if TCP is off or a UNIX socket is used instead. Port
/// 0 asks the system for a free port. Without addresses in the settings these are `0.0.0.0` and `[::]`. The second
/// one may fail to bind on a machine without IPv6, and has to be opened for IPv6 only.
///
/// # Errors
/// The name of a host that nobody knows.
pub fn tcp_sockets(settings: &Settings) -> Result<Vec<SocketAddr>, String> {
    sockets(settings, settings.tcp_port, true)
}

/// The UDP addresses to bind, by the same rules as [`tcp_sockets`], but `127.0.0.1` and `[::1]` without
/// addresses in the settings. A port within an address is a TCP port. UDP has its own port, which is the same on
/// every address.
///
/// # Errors
/// The name of a host that nobody knows.
pub fn udp_sockets(settings: &Settings) -> Result<Vec<SocketAddr>, String> {
    sockets(settings, settings.udp_port, false)
}

fn sockets(settings: &Settings, port: Port, named_ports: bool) -> Result<Vec<SocketAddr>, String> {
    let Some(port) = port.number() else { return Ok(Vec::new()) };
    if settings.unix_socket.is_some() {
        return Ok(Vec::new());
    }
    if settings.addresses.is_empty() {
        let both = if named_ports { EVERYWHERE } else { THIS_MACHINE };
        return Ok(both.map(|ip| SocketAddr::new(ip, port)).to_vec());
    }
    let mut found = Vec::new();
    for address in &settings.addresses {
        let port = address.port.filter(|_| named_ports).unwrap_or(port);
        for at in address.resolve(port)? {
            if !found.contains(&at) || at.port() == 0 {
                found.push(at);
            }
        }
    }
    Ok(found)
}
