//! The names under which the admin page answers.
//!
//! A page of the web may point a name of its own at this machine (DNS rebinding). A browser here would then let that
//! page read what the admin page says. The browser tells by which name it asks: only names that belong here are
//! answered.

use axum::extract::{Request, State};
use axum::http::header::HOST;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::IpAddr;
use std::sync::Arc;

/// The name of this machine; empty where the kernel does not tell.
pub(super) fn of_this_machine() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

/// The names that belong here, in lower case. Addresses and `localhost` do in any case: no web page can take them.
#[derive(Clone, Debug)]
pub(super) struct Hosts(Arc<[String]>);

impl Hosts {
    /// The name of this machine, and those that its user gives.
    pub(super) fn new(given: &[String]) -> Hosts {
        let own = of_this_machine();
        let all = given.iter().map(String::as_str).chain([own.as_str()]).filter(|name| !name.is_empty());
        Hosts(all.map(str::to_ascii_lowercase).collect())
    }

    /// Whether a request may be answered. One without a `Host` does not come from a browser.
    fn admit(&self, headers: &HeaderMap) -> bool {
        let Some(host) = headers.get(HOST) else { return true };
        let Some(host) = host.to_str().ok().and_then(|host| host.parse::<Authority>().ok()) else {
            return false;
        };
        let name = host.host().trim_end_matches('.').to_ascii_lowercase();
        let address = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(&name);
        address.parse::<IpAddr>().is_ok() || name == "localhost" || self.0.contains(&name)
    }
}

/// Answers a request, unless it asks by a name that does not belong here.
pub(super) async fn check(State(hosts): State<Hosts>, request: Request, next: Next) -> Response {
    if hosts.admit(request.headers()) {
        return next.run(request).await;
    }
    let why =
        "this server does not go by that name: ask by its address, or start it with --admin-host NAME\n";
    (StatusCode::MISDIRECTED_REQUEST, why).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_own_names_are_answered() {
        let hosts = Hosts::new(&["Cache-1.example".to_owned()]);
        let admits = |host: &str| {
            let headers = [(HOST, host.parse().expect("a header"))].into_iter().collect();
            hosts.admit(&headers)
        };
        let own = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        for host in [
            "127.0.0.1:11219",
            "192.0.2.7",
            "[::1]:11219",
            "[2001:db8::1]",
            "localhost:11219",
            "LOCALHOST",
            "cache-1.example:80",
            "cache-1.example.",
            own.trim(),
        ] {
            assert!(admits(host), "{host}");
        }
        for host in
            ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:11219", "a b", "", "[::1"]
        {
            assert!(!admits(host), "{host}");
        }
        assert!(hosts.admit(&HeaderMap::new()));
    }
}
