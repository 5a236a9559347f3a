//! Parsers for the values of flags. Each error completes a sentence and says what was expected.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use larder_server::settings::{
    Address, AdminAddress, Admit, FlashDevice, ListenerTls, Namespace, OpsPolicy, PinCpus, Port,
    SIMULATED_PROFILES, UserNamespace,
};

/// A whole number from `least` to `most`.
pub(super) fn whole(text: &str, least: u32, most: u32) -> Result<u32, String> {
    text.parse()
        .ok()
        .filter(|number| (least..=most).contains(number))
        .ok_or_else(|| format!("expected a whole number from {least} to {most}"))
}

/// A number of bytes from `least` to `most`. Without a letter the number counts `unit` bytes; `k`, `m`, `g` and `t`
/// are powers of 1024.
pub(super) fn bytes(text: &str, unit: u64, least: u64, most: u64) -> Result<u64, String> {
    let (digits, unit) = match text.bytes().last().map(|letter| letter.to_ascii_lowercase()) {
        Some(b'k') => (&text[..text.len() - 1], 1 << 10),
        Some(b'm') => (&text[..text.len() - 1], 1 << 20),
        Some(b'g') => (&text[..text.len() - 1], 1 << 30),
        Some(b't') => (&text[..text.len() - 1], 1 << 40),
        _ => (text, unit),
    };
    let number: Option<u64> = digits.parse().ok();
    number
        .and_then(|number| number.checked_mul(unit))
        .filter(|bytes| (least..=most).contains(bytes))
        .ok_or_else(|| format!("expected a size from {} to {}", size(least), size(most)))
}

/// A size as it would be written: `1k`, `64m`.
fn size(bytes: u64) -> String {
    for (letter, power) in [('t', 40), ('g', 30), ('m', 20), ('k', 10)] {
        if bytes != 0 && bytes.is_multiple_of(1 << power) {
            return format!("{}{letter}", bytes >> power);
        }
    }
    bytes.to_string()
}

/// A port; 0 is off, -1 any free port.
pub(super) fn port(text: &str) -> Result<Port, String> {
    match text.parse::<i32>() {
        Ok(-1) => Ok(Port::Random),
        Ok(0) => Ok(Port::Off),
        Ok(number @ 1..=65535) => Ok(Port::Fixed(number as u16)),
        _ => Err("expected a port from 1 to 65535, 0 for none, or -1 for any free one".to_owned()),
    }
}

/// The devices of flash, with commas between.
pub(super) fn flash_devices(text: &str) -> Result<Vec<FlashDevice>, String> {
    text.split(',').map(str::trim).map(flash_device).collect()
}

/// `PATH`, `PATH:SIZE` or `sim:PROFILE:SIZE`. The part after the last colon of a path is a size if it looks like one;
/// otherwise it belongs to the path.
fn flash_device(text: &str) -> Result<FlashDevice, String> {
    if let Some(simulated) = text.strip_prefix("sim:") {
        let known = |profile: &str| SIMULATED_PROFILES.contains(&profile);
        let Some((profile, size)) = simulated.split_once(':').filter(|(profile, _)| known(profile)) else {
            return Err(format!(
                "expected sim:PROFILE:SIZE, where PROFILE is {}",
                SIMULATED_PROFILES.join(", ")
            ));
        };
        let size_bytes = bytes(size, 1 << 20, 64 << 20, 1 << 40)?;
        return Ok(FlashDevice::Simulated { profile: profile.to_owned(), size_bytes });
    }
    if let Some((before, behind)) = text.rsplit_once(':')
        && behind.starts_with(|first: char| first.is_ascii_digit())
    {
        let size_bytes = bytes(behind, 1 << 20, 1 << 20, 1 << 50)?;
        return Ok(FlashDevice::Path { path: path(before)?, size_bytes: Some(size_bytes) });
    }
    Ok(FlashDevice::Path { path: path(text)?, size_bytes: None })
}

/// The evicted items to write to flash: `all`, or conditions separated by commas.
pub(super) fn admit(text: &str) -> Result<Admit, String> {
    let mut found = Admit::default();
    for word in text.split(',').map(str::trim) {
        match word.split_once('=').unwrap_or((word, "3600")) {
            ("all", _) if text == "all" => {}
            ("read", _) if word == "read" => found.only_read = true,
            ("reject-first", seconds) => found.reject_first_s = whole(seconds, 1, i32::MAX as u32)?,
            _ => return Err("expected all, or read and reject-first=SECONDS with a comma between".to_owned()),
        }
    }
    Ok(found)
}

/// A policy of over-provisioning.
pub(super) fn ops(text: &str) -> Result<OpsPolicy, String> {
    match text.split_once('=') {
        None if text == "queuing" => Ok(OpsPolicy::Queuing),
        None if text == "heuristic" => Ok(OpsPolicy::Heuristic),
        None if text == "static" => Ok(OpsPolicy::Static(25)),
        Some(("static", percent)) => whole(percent, 1, 90).map(|percent| OpsPolicy::Static(percent as u8)),
        _ => Err("expected queuing, heuristic or static=PERCENT".to_owned()),
    }
}

/// `on` or `off`.
pub(super) fn on_off(text: &str) -> Result<bool, String> {
    one_of(text, &[("on", true), ("off", false)])
}

/// `true` or `false`.
pub(super) fn switch(text: &str) -> Result<bool, String> {
    one_of(text, &[("true", true), ("false", false)])
}

/// One of the names.
pub(super) fn one_of<T: Clone>(text: &str, names: &[(&str, T)]) -> Result<T, String> {
    match names.iter().find(|(name, _)| *name == text) {
        Some((_, value)) => Ok(value.clone()),
        None => {
            let mut list: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
            let last = list.pop().unwrap_or_default();
            Err(format!("expected {} or {last}", list.join(", ")))
        }
    }
}

/// The path of a file.
pub(super) fn path(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() { Err("expected the name of a file".to_owned()) } else { Ok(PathBuf::from(text)) }
}

/// `host`, `host:port`, `[v6]:port` or a bare IPv6 address, with memcached's words for its encryption before it.
pub(super) fn address(text: &str) -> Result<Address, String> {
    let words = [("notls:", ListenerTls::Off), ("btls:", ListenerTls::Basic), ("mtls:", ListenerTls::Mutual)];
    let named = words.iter().find_map(|(word, tls)| Some((text.strip_prefix(word)?, *tls)));
    let (text, tls) = named.unwrap_or((text, ListenerTls::Default));
    let bad = || format!("'{text}' is no address: expected host, host:port or [v6]:port");
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or_else(bad)?;
        match rest {
            "" => (host, None),
            _ => (host, Some(rest.strip_prefix(':').ok_or_else(bad)?)),
        }
    } else {
        match text.split_once(':') {
            Some((host, port)) if !port.contains(':') => (host, Some(port)),
            _ => (text, None),
        }
    };
    let port = match port {
        None => None,
        Some(port) => Some(port.parse::<u16>().ok().filter(|port| *port != 0).ok_or_else(bad)?),
    };
    let known = |letter: char| letter.is_ascii_alphanumeric() || ".-_:%*".contains(letter);
    if host.is_empty() || !host.chars().all(known) {
        return Err(bad());
    }
    Ok(Address { host: host.to_owned(), port, tls })
}

/// The name of a host, without a port.
pub(super) fn host_name(text: &str) -> Result<String, String> {
    let known = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-' | '_');
    match text.trim() {
        name if !name.is_empty() && name.chars().all(known) => Ok(name.to_owned()),
        name => Err(format!("'{name}' is no name of a host: expected one such as cache-1.example.com")),
    }
}

/// `off`, or the address of the admin page, which is then required.
pub(super) fn admin(text: &str) -> Result<Option<AdminAddress>, String> {
    if text == "off" {
        return Ok(None);
    }
    let at: Option<SocketAddr> = text.to_socket_addrs().ok().and_then(|mut found| found.next());
    match at {
        Some(at) => Ok(Some(AdminAddress { at, required: true })),
        None => Err("expected host:port, such as 127.0.0.1:11219, or off".to_owned()),
    }
}

/// `NAME=LEAST-MOST` or `NAME=LEAST-MOST/SECONDS`, separated by commas; nothing for none.
pub(super) fn namespaces(text: &str) -> Result<Vec<Namespace>, String> {
    let list: Vec<Namespace> = match text {
        "" => Vec::new(),
        _ => text.split(',').map(namespace).collect::<Result<_, _>>()?,
    };
    larder_server::settings::check_namespaces(&list)?;
    Ok(list)
}

fn namespace(text: &str) -> Result<Namespace, String> {
    let bad = || {
        format!("'{text}' is no namespace: expected NAME=LEAST-MOST or NAME=LEAST-MOST/SECONDS, in percent")
    };
    let (name, shares) = text.split_once('=').ok_or_else(bad)?;
    let (shares, ttl) = shares.split_once('/').unwrap_or((shares, "0"));
    let (least, most) = shares.split_once('-').ok_or_else(bad)?;
    Ok(Namespace {
        name: name.to_owned(),
        least_percent: least.parse().map_err(|_| bad())?,
        most_percent: most.parse().map_err(|_| bad())?,
        ttl_max_s: ttl.parse().map_err(|_| bad())?,
    })
}

/// `USER=NAME`, separated by commas; nothing for none.
pub(super) fn user_namespaces(text: &str) -> Result<Vec<UserNamespace>, String> {
    let one = |text: &str| {
        let bad = || format!("'{text}' is no namespace of a user: expected USER=NAME");
        let (user, namespace) = text.split_once('=').filter(|(user, _)| !user.is_empty()).ok_or_else(bad)?;
        Ok(UserNamespace { user: user.to_owned(), namespace: namespace.to_owned() })
    };
    match text {
        "" => Ok(Vec::new()),
        _ => text.split(',').map(one).collect(),
    }
}

/// `off`, `auto`, or a list of CPUs and ranges of them.
pub(super) fn cpus(text: &str) -> Result<PinCpus, String> {
    let bad = || "expected off, auto, or a list of CPUs such as 0-3,8".to_owned();
    match text {
        "off" => return Ok(PinCpus::Off),
        "auto" => return Ok(PinCpus::Auto),
        _ => {}
    }
    let mut list = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: u32 = first.parse().map_err(|_| bad())?;
        let last: u32 = last.parse().map_err(|_| bad())?;
        if first > last || last >= 4096 {
            return Err(bad());
        }
        list.extend(first..=last);
    }
    Ok(PinCpus::List(list))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_count_in_their_unit_or_by_their_letter() {
        assert_eq!(bytes("64", 1 << 20, 0, u64::MAX), Ok(64 << 20));
        assert_eq!(bytes("2k", 1, 0, u64::MAX), Ok(2048));
        assert_eq!(bytes("3G", 1, 0, u64::MAX), Ok(3 << 30));
        for bad in ["", "k", "-1", "1.5m", "1x", "99999999999999t"] {
            assert_eq!(
                bytes(bad, 1, 1 << 10, 1 << 30),
                Err("expected a size from 1k to 1g".to_owned()),
                "{bad}"
            );
        }
    }

    #[test]
    fn addresses_of_every_shape() {
        let read = |text| address(text).map(|found| (found.host, found.port));
        assert_eq!(read("localhost"), Ok(("localhost".to_owned(), None)));
        assert_eq!(read("10.0.0.1:5"), Ok(("10.0.0.1".to_owned(), Some(5))));
        assert_eq!(read("::1"), Ok(("::1".to_owned(), None)));
        assert_eq!(read("[::1]:7"), Ok(("::1".to_owned(), Some(7))));
        assert_eq!(read("[::1]"), Ok(("::1".to_owned(), None)));
        let tls = |text| address(text).map(|found| (found.port, found.tls));
        assert_eq!(tls("notls:127.0.0.1:7"), Ok((Some(7), ListenerTls::Off)));
        assert_eq!(tls("btls:[::1]:7"), Ok((Some(7), ListenerTls::Basic)));
        assert_eq!(tls("mtls:localhost"), Ok((None, ListenerTls::Mutual)));
        assert_eq!(tls("localhost"), Ok((None, ListenerTls::Default)));
        for bad in ["", ":5", "host:", "host:0", "host:x", "host:70000", "[::1", "[::1]5", "a b", "tcp://x"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_path_keeps_its_colons_unless_a_size_is_behind_the_last() {
        let read = |text: &str| flash_devices(text);
        let one = |path: &str, size_bytes| FlashDevice::Path { path: path.into(), size_bytes };
        assert_eq!(read("/dev/sdb"), Ok(vec![one("/dev/sdb", None)]));
        assert_eq!(read("/a:b/c"), Ok(vec![one("/a:b/c", None)]));
        assert_eq!(read("/a:b/c:10g"), Ok(vec![one("/a:b/c", Some(10 << 30))]));
        assert_eq!(read("x:64, /dev/sdb"), Ok(vec![one("x", Some(64 << 20)), one("/dev/sdb", None)]));
        for bad in ["", ":10g", "/x:0", "/x:10q", "/x:1k", "/x,", "/x:1g,:2g"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_simulated_drive_has_a_profile_and_a_size() {
        let drive = FlashDevice::Simulated { profile: "ftl-28".to_owned(), size_bytes: 1 << 30 };
        assert_eq!(flash_devices("sim:ftl-28:1g"), Ok(vec![drive]));
        let wanted = "expected sim:PROFILE:SIZE, where PROFILE is ftl, ftl-28, zoned, open-channel";
        for bad in ["sim:", "sim:ftl", "sim:disk:1g"] {
            assert_eq!(flash_devices(bad), Err(wanted.to_owned()), "{bad}");
        }
        assert_eq!(flash_devices("sim:ftl:1m"), Err("expected a size from 64m to 1t".to_owned()));
    }

    #[test]
    fn conditions_of_admission_and_policies() {
        assert_eq!(admit("all"), Ok(Admit::default()));
        assert_eq!(admit("reject-first"), Ok(Admit { reject_first_s: 3600, only_read: false }));
        assert_eq!(admit("read,reject-first=9"), Ok(Admit { reject_first_s: 9, only_read: true }));
        for bad in ["", "all,read", "read=1", "reject-first=0", "warm"] {
            assert!(admit(bad).is_err(), "{bad}");
        }
        assert_eq!(ops("static=7"), Ok(OpsPolicy::Static(7)));
        assert!(ops("static=99").is_err() && ops("dynamic").is_err());
    }

    #[test]
    fn lists_of_cpus() {
        assert_eq!(cpus("0-2,7"), Ok(PinCpus::List(vec![0, 1, 2, 7])));
        assert_eq!(cpus("auto"), Ok(PinCpus::Auto));
        for bad in ["", "x", "3-1", "0,", "-1", "1-99999"] {
            assert!(cpus(bad).is_err(), "{bad}");
        }
    }
}
