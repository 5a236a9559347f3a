//! The empty server: only the wire, without a cache. Its cost is the lower bound for every server.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::mpsc::{Receiver, Sender, channel};

use anyhow::{Context, Result};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token, Waker};

use crate::wire::key;

const ARRIVAL: Token = Token(usize::MAX);

/// Replies prepared in one piece. More lines than this in one read are answered with several writes.
const REPLIES_AHEAD: usize = 1024;

/// One client. A reply that the socket did not take at once waits in `unsent`.
struct Client {
    stream: TcpStream,
    unsent: Vec<u8>,
}

/// Listens on `port` of the loopback address and answers every line with the same value of `value_bytes` bytes,
/// until the process is killed. Connections go to the `threads` in turn.
pub(crate) fn serve(port: u16, value_bytes: usize, threads: usize) -> Result<()> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let listener = TcpListener::bind(address).with_context(|| format!("listen on {address}"))?;
    let workers = (0..threads.max(1)).map(|_| start(value_bytes)).collect::<Result<Vec<_>>>()?;
    for (stream, (worker, waker)) in listener.incoming().zip(workers.iter().cycle()) {
        let stream = stream?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        worker.send(TcpStream::from_std(stream))?;
        waker.wake()?;
    }
    Ok(())
}

/// Starts a thread that answers on the connections that it is sent; the waker tells it of a new one.
fn start(value_bytes: usize) -> Result<(Sender<TcpStream>, Waker)> {
    let poll = Poll::new()?;
    let waker = Waker::new(poll.registry(), ARRIVAL)?;
    let (sender, arrivals) = channel();
    std::thread::spawn(move || {
        if let Err(error) = answer_all(poll, &arrivals, value_bytes) {
            eprintln!("the empty server: {error:#}");
            std::process::exit(1);
        }
    });
    Ok((sender, waker))
}

fn answer_all(mut poll: Poll, arrivals: &Receiver<TcpStream>, value_bytes: usize) -> Result<()> {
    let one = canned(value_bytes);
    let many = one.repeat(REPLIES_AHEAD);
    let mut input = vec![0; 64 * 1024];
    let mut clients: Vec<Option<Client>> = Vec::new();
    let mut events = Events::with_capacity(256);
    loop {
        match poll.poll(&mut events, None) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            other => other?,
        }
        for event in &events {
            if event.token() == ARRIVAL {
                take_all(arrivals, &poll, &mut clients)?;
                continue;
            }
            let slot = &mut clients[event.token().0];
            if let Some(client) = slot
                && !answer(client, &mut input, &many, one.len())
            {
                *slot = None;
            }
        }
    }
}

fn canned(value_bytes: usize) -> Vec<u8> {
    let mut reply = b"VALUE ".to_vec();
    reply.extend_from_slice(&key(0));
    reply.extend_from_slice(format!(" 0 {value_bytes}\r\n").as_bytes());
    reply.resize(reply.len() + value_bytes, b'x');
    reply.extend_from_slice(b"\r\nEND\r\n");
    reply
}

fn take_all(arrivals: &Receiver<TcpStream>, poll: &Poll, clients: &mut Vec<Option<Client>>) -> Result<()> {
    for mut stream in arrivals.try_iter() {
        let slot = clients.iter().position(Option::is_none).unwrap_or(clients.len());
        poll.registry().register(&mut stream, Token(slot), Interest::READABLE | Interest::WRITABLE)?;
        let client = Some(Client { stream, unsent: Vec::new() });
        if slot == clients.len() {
            clients.push(client);
        } else {
            clients[slot] = client;
        }
    }
    Ok(())
}

/// Sends unsent replies, reads what is available and answers it. Returns false when the client is gone.
fn answer(client: &mut Client, input: &mut [u8], replies: &[u8], reply_bytes: usize) -> bool {
    let waiting = std::mem::take(&mut client.unsent);
    if !waiting.is_empty() && !send(client, &waiting) {
        return false;
    }
    loop {
        let read = match client.stream.read(input) {
            Ok(0) => return false,
            Ok(read) => read,
            Err(error) => return matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        };
        let mut lines = input[..read].iter().filter(|&&byte| byte == b'\n').count();
        while lines > 0 {
            let now = lines.min(REPLIES_AHEAD);
            if !send(client, &replies[..now * reply_bytes]) {
                return false;
            }
            lines -= now;
        }
        // Readiness is reported again for every arrival, so a read that did not fill the buffer was the last.
        if read < input.len() {
            return true;
        }
    }
}

fn send(client: &mut Client, mut bytes: &[u8]) -> bool {
    while client.unsent.is_empty() && !bytes.is_empty() {
        match client.stream.write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(_) => return false,
        }
    }
    client.unsent.extend_from_slice(bytes);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply::{Reply, parse};
    use crate::wire::Protocol;

    #[test]
    fn the_canned_reply_is_a_value() {
        for bytes in [1, 32, 300, 1024] {
            let reply = canned(bytes);
            let Ok(Some((Reply::Hit(value), consumed))) = parse(Protocol::Text, &reply) else {
                panic!("{bytes}: not a value");
            };
            assert_eq!((value.len(), consumed), (bytes, reply.len()));
        }
    }
}
