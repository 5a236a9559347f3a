//! Accepting admin connections: few at a time, each with little memory and for a limited time.
//!
//! A connection takes a place. Where all are taken, the connection whose last request is longest ago gives its place to
//! the new one: of the same peer, if the peer has its share of the places, else of all. So clients that keep their
//! connections open, send half a request or never read keep nobody out. A browser and a scraper open theirs again
//! without telling anybody.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::io::address_block;

/// Connections served at a time.
const CONNECTIONS_MAX: usize = 64;
/// Of those, connections from one address: a few browsers, which open six each, and scrapers, behind one translation of
/// addresses.
const CONNECTIONS_PER_ADDRESS_MAX: usize = CONNECTIONS_MAX / 4;
/// The most bytes of a request's head, and of a reply's buffered part.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// How long the head of a request may take to come, from the end of the reply before it. A connection that asks for
/// nothing is closed after that time.
const HEAD_WAIT_MAX: Duration = Duration::from_secs(5);
/// How long a connection may last. A page that is open longer reconnects, which its reader does not notice.
const CONNECTION_AGE_MAX: Duration = Duration::from_secs(300);
/// How much longer a reply that is under way may take.
const LAST_ANSWER_MAX: Duration = Duration::from_secs(10);
/// How long to wait when the process can open no more files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A connection that is open.
struct Place {
    /// Whose it is.
    address: IpAddr,
    /// When its last request came, or the connection itself, in milliseconds since listening began.
    used_ms: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

/// Serves `routes` for ever.
pub(super) async fn serve(listener: TcpListener, routes: Router) {
    let begun = Instant::now();
    let mut places: Vec<Place> = Vec::new();
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let address = address_block(peer.ip());
                places.retain(|place| !place.task.is_finished());
                let taken = places.iter().map(|place| (place.address, place.used_ms.load(Ordering::Relaxed)));
                if let Some(at) = gives_way(taken, address) {
                    let place = places.swap_remove(at);
                    place.task.abort();
                    // It ended in whatever way: only that its socket is closed counts.
                    let _ = place.task.await;
                }
                let used_ms = Arc::new(AtomicU64::new(begun.elapsed().as_millis() as u64));
                let task = tokio::spawn(answer(stream, routes.clone(), used_ms.clone(), begun));
                places.push(Place { address, used_ms, task });
            }
            Err(error) => {
                tracing::debug!("the admin page could not accept a connection: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Which of the connections closes for a new one from `address`, if one has to. Each is given with its address and the
/// time of its last request.
fn gives_way(taken: impl Iterator<Item = (IpAddr, u64)> + Clone, address: IpAddr) -> Option<usize> {
    let of_the_same = taken.clone().filter(|(other, _)| *other == address).count();
    let has_its_share = of_the_same >= CONNECTIONS_PER_ADDRESS_MAX;
    if !has_its_share && taken.clone().count() < CONNECTIONS_MAX {
        return None;
    }
    let candidates = taken.enumerate().filter(|(_, (other, _))| !has_its_share || *other == address);
    candidates.min_by_key(|(_, (_, used_ms))| *used_ms).map(|(at, _)| at)
}

/// Answers the requests of one connection, and notes in `used_ms` when each came. Errors are the client's, and only
/// that client notices them.
async fn answer(stream: TcpStream, routes: Router, used_ms: Arc<AtomicU64>, begun: Instant) {
    let routes = TowerToHyperService::new(routes);
    let noted = service_fn(move |request: Request<Incoming>| {
        used_ms.store(begun.elapsed().as_millis() as u64, Ordering::Relaxed);
        routes.call(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WAIT_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), noted);
    let mut connection = std::pin::pin!(connection);
    if tokio::time::timeout(CONNECTION_AGE_MAX, connection.as_mut()).await.is_err() {
        connection.as_mut().graceful_shutdown();
        let _ = tokio::time::timeout(LAST_ANSWER_MAX, connection).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    #[test]
    fn the_longest_unused_connection_gives_way_to_a_new_one() {
        let mut taken: Vec<(IpAddr, u64)> = Vec::new();
        let way = |taken: &[(IpAddr, u64)], from| gives_way(taken.iter().copied(), from);
        for at in 0..CONNECTIONS_PER_ADDRESS_MAX {
            assert_eq!(way(&taken, address(1)), None);
            taken.push((address(1), 100 - at as u64));
        }
        // One address has its share: its own oldest goes, and others have room.
        assert_eq!(way(&taken, address(1)), Some(CONNECTIONS_PER_ADDRESS_MAX - 1));
        assert_eq!(way(&taken, address(2)), None);
        for other in (2..).take(CONNECTIONS_MAX - CONNECTIONS_PER_ADDRESS_MAX) {
            taken.push((address(other), 200));
        }
        taken[5].1 = 3;
        taken[40].1 = 1;
        assert_eq!(way(&taken, address(250)), Some(40));
        assert_eq!(way(&taken, address(1)), Some(5));
    }
}
