//! Accepting admin connections: few at a time, each with little memory and for a limited time.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// Connections served at a time. Others wait to be accepted.
const CONNECTIONS_MAX: usize = 64;
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

/// Serves `routes` for ever.
pub(super) async fn serve(listener: TcpListener, routes: Router) {
    let free = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let permit = free.clone().acquire_owned().await.expect("the semaphore is never closed");
        match listener.accept().await {
            Ok((stream, _)) => {
                let routes = routes.clone();
                tokio::spawn(async move {
                    answer(stream, routes).await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::debug!("the admin page could not accept a connection: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Answers the requests of one connection. Errors are the client's, and only that client notices them.
async fn answer(stream: TcpStream, routes: Router) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WAIT_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes));
    let mut connection = std::pin::pin!(connection);
    if tokio::time::timeout(CONNECTION_AGE_MAX, connection.as_mut()).await.is_err() {
        connection.as_mut().graceful_shutdown();
        let _ = tokio::time::timeout(LAST_ANSWER_MAX, connection).await;
    }
}
