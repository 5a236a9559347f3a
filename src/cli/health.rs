//! `larder health [ADDR]`: asks the admin page of a server whether it is ready. Containers without a shell need it.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use larder_server::settings::ADMIN_DEFAULT;

/// How long each step of the question may take.
const PATIENCE: Duration = Duration::from_secs(3);
/// The most bytes of an answer that are read.
const ANSWER_BYTES_MAX: u64 = 4096;

/// The answer of the server whose admin page is at `address`, or at the default address.
///
/// # Errors
/// One line: the server cannot be reached, or it is not ready, and why.
pub(crate) fn ask(address: Option<&str>) -> Result<String, String> {
    let address = address.map_or(ADMIN_DEFAULT.to_string(), str::to_owned);
    let answer = answer(&address).map_err(|error| format!("{address} does not answer: {error}"))?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).unwrap_or_default();
    match status {
        "200" => Ok(format!("{}\n", body.trim())),
        _ => Err(format!("{address} answers {status} {}", body.trim())),
    }
}

fn answer(address: &str) -> std::io::Result<String> {
    let missing = || std::io::Error::other("no address is known for this host");
    let at = address.to_socket_addrs()?.next().ok_or_else(missing)?;
    let mut stream = TcpStream::connect_timeout(&at, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    write!(stream, "GET /healthz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
