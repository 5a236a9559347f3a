//! How values are read from a text and written as one. A [`Kind`] has both directions, so that what one writes the
//! other reads. An error completes a sentence and says what was expected.

use super::flash::{Admit, FlashDevice};
use super::memory::UserNamespace;
use super::names::{Names, one_of};
use super::network::{Address, AdminAddress, Port};
use super::process::PinCpus;
use super::tls::ListenerTls;
use super::units::MIB;
use larder_cache::{Compress, Namespace, check_namespaces};
use std::fmt::Display;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

/// How a value of type `T` is spelt.
pub(super) trait Kind<T>: Sync {
    /// The value that a text means.
    fn read(&self, text: &str) -> Result<T, String>;

    /// The text that means a value.
    fn write(&self, value: &T) -> String;
}

/// Two functions: one reads, the other writes.
pub(super) struct By<T>(pub(super) fn(&str) -> Result<T, String>, pub(super) fn(&T) -> String);

impl<T> Kind<T> for By<T> {
    fn read(&self, text: &str) -> Result<T, String> {
        (self.0)(text)
    }

    fn write(&self, value: &T) -> String {
        (self.1)(value)
    }
}

/// `None` has no spelling: the setting is left out.
pub(super) struct Maybe<K>(pub(super) K);

impl<T, K: Kind<T>> Kind<Option<T>> for Maybe<K> {
    fn read(&self, text: &str) -> Result<Option<T>, String> {
        self.0.read(text).map(Some)
    }

    fn write(&self, value: &Option<T>) -> String {
        value.as_ref().map(|value| self.0.write(value)).unwrap_or_default()
    }
}

/// Values with one of these characters between. The first one is written.
pub(super) struct List<K>(pub(super) K, pub(super) &'static [char]);

impl<T, K: Kind<T>> Kind<Vec<T>> for List<K> {
    fn read(&self, text: &str) -> Result<Vec<T>, String> {
        text.split(self.1).map(|part| self.0.read(part)).collect()
    }

    fn write(&self, values: &Vec<T>) -> String {
        let parts: Vec<String> = values.iter().map(|value| self.0.write(value)).collect();
        parts.join(&self.1[0].to_string())
    }
}

// ---- names ----

impl<T: Copy + PartialEq + Sync> Kind<T> for Names<T> {
    fn read(&self, text: &str) -> Result<T, String> {
        one_of(text, self.0)
    }

    fn write(&self, value: &T) -> String {
        self.name(*value).to_owned()
    }
}

/// Whether what the flag names is done.
pub(super) const SWITCH: Names<bool> = Names(&[("true", true), ("false", false)]);
/// The same for a flag that says what is not done.
pub(super) const SWITCH_OFF: Names<bool> = Names(&[("true", false), ("false", true)]);
/// A key of the settings file that is on or off.
pub(super) const ON_OFF: Names<bool> = Names(&[("on", true), ("off", false)]);

// ---- numbers ----

/// A whole number from the first to the second.
pub(super) struct Whole(pub(super) u32, pub(super) u32);

impl<T: Copy + TryFrom<u32> + Display> Kind<T> for Whole {
    fn read(&self, text: &str) -> Result<T, String> {
        whole(text, self.0, self.1).and_then(fitting)
    }

    fn write(&self, value: &T) -> String {
        value.to_string()
    }
}

/// A number as the type of its field. The bounds of a [`Kind`] keep it within the type.
fn fitting<N, T: TryFrom<N>>(number: N) -> Result<T, String> {
    number.try_into().map_err(|_| "expected a smaller number".to_owned())
}

/// A whole number from `least` to `most`.
pub(super) fn whole(text: &str, least: u32, most: u32) -> Result<u32, String> {
    text.parse()
        .ok()
        .filter(|number| (least..=most).contains(number))
        .ok_or_else(|| format!("expected a whole number from {least} to {most}"))
}

/// A number of bytes. Without a letter the number counts units of the first field; the least and the most of them
/// follow.
pub(super) struct Bytes(pub(super) u64, pub(super) u64, pub(super) u64);

impl<T: Copy + TryFrom<u64> + Into<u64>> Kind<T> for Bytes {
    fn read(&self, text: &str) -> Result<T, String> {
        bytes(text, self.0, self.1, self.2).and_then(fitting)
    }

    fn write(&self, value: &T) -> String {
        size((*value).into())
    }
}

/// A number of bytes from `least` to `most`. Without a letter the number counts `unit` bytes; `k`, `m`, `g` and `t`
/// are powers of 1024, and so are `kb`, `mb`, `gb` and `tb`.
pub(super) fn bytes(text: &str, unit: u64, least: u64, most: u64) -> Result<u64, String> {
    let (digits, suffix) = text.split_at(text.trim_end_matches(|c: char| c.is_ascii_alphabetic()).len());
    let unit = match suffix.to_ascii_lowercase().as_str() {
        "" => Some(unit),
        "k" | "kb" => Some(1 << 10),
        "m" | "mb" => Some(1 << 20),
        "g" | "gb" => Some(1 << 30),
        "t" | "tb" => Some(1 << 40),
        _ => None,
    };
    let number: Option<u64> = digits.parse().ok();
    number
        .zip(unit)
        .and_then(|(number, unit)| number.checked_mul(unit))
        .filter(|bytes| (least..=most).contains(bytes))
        .ok_or_else(|| format!("expected a size from {} to {}", size(least), size(most)))
}

/// A size with the largest suffix that leaves it whole: `64m`, `1000`.
pub(super) fn size(bytes: u64) -> String {
    for (letter, power) in [('t', 40), ('g', 30), ('m', 20), ('k', 10)] {
        if bytes != 0 && bytes.is_multiple_of(1 << power) {
            return format!("{}{letter}", bytes >> power);
        }
    }
    bytes.to_string()
}

/// Permission bits in octal.
pub(super) const MODE: By<u32> = By(
    |text| {
        let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
        mode.ok_or_else(|| "expected permission bits in octal, 0 to 777".to_owned())
    },
    |mode| format!("{mode:o}"),
);

/// One character.
pub(super) const CHARACTER: By<u8> = By(
    |text| match text.as_bytes() {
        [character] => Ok(*character),
        _ => Err("expected one character, such as : or /".to_owned()),
    },
    |character| char::from(*character).to_string(),
);

// ---- files, addresses, users ----

/// The path of a file.
pub(super) const PATH: Maybe<By<PathBuf>> = Maybe(By(path, |path| path.display().to_string()));

fn path(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() { Err("expected the name of a file".to_owned()) } else { Ok(PathBuf::from(text)) }
}

/// A port; 0 is off, -1 any free port.
pub(super) const PORT: By<Port> = By(
    |text| match text.parse::<i32>() {
        Ok(-1) => Ok(Port::Random),
        Ok(0) => Ok(Port::Off),
        Ok(number @ 1..=65535) => Ok(Port::Fixed(number as u16)),
        _ => Err("expected a port from 1 to 65535, 0 for none, or -1 for any free one".to_owned()),
    },
    Port::to_string,
);

/// memcached's words for the encryption of an address.
const ENCRYPTIONS: [(&str, ListenerTls); 3] =
    [("notls:", ListenerTls::Off), ("btls:", ListenerTls::Basic), ("mtls:", ListenerTls::Mutual)];

/// `host`, `host:port`, `[v6]:port` or a bare IPv6 address, with a word for its encryption before it.
pub(super) const ADDRESS: By<Address> = By(address, |address| {
    let word = ENCRYPTIONS.iter().find(|(_, tls)| *tls == address.tls).map_or("", |(word, _)| word);
    format!("{word}{address}")
});

fn address(text: &str) -> Result<Address, String> {
    let named = ENCRYPTIONS.iter().find_map(|(word, tls)| Some((text.strip_prefix(word)?, *tls)));
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

/// `off`, or the address of the admin page. An address that is given is required.
pub(super) const ADMIN: By<Option<AdminAddress>> = By(
    |text| {
        if text == "off" {
            return Ok(None);
        }
        let at: Option<SocketAddr> = text.to_socket_addrs().ok().and_then(|mut found| found.next());
        let at = at.ok_or_else(|| "expected host:port, such as 127.0.0.1:11219, or off".to_owned())?;
        Ok(Some(AdminAddress { at, required: true }))
    },
    |admin| admin.map_or("off".to_owned(), |admin| admin.at.to_string()),
);

/// The name of a host, without a port.
pub(super) const HOST: By<String> = By(
    |text| {
        let known = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-' | '_');
        match text.trim() {
            name if !name.is_empty() && name.chars().all(known) => Ok(name.to_owned()),
            name => Err(format!("'{name}' is no name of a host: expected one such as cache-1.example.com")),
        }
    },
    String::clone,
);

/// The name or number of a user.
pub(super) const USER: Maybe<By<String>> = Maybe(By(
    |text| match text {
        "" => Err("expected the name or number of a user".to_owned()),
        _ => Ok(text.to_owned()),
    },
    String::clone,
));

/// Names with colons between.
pub(super) const CIPHERS: By<Vec<String>> = By(
    |text| {
        let names = text.split(':').map(str::trim).filter(|name| !name.is_empty());
        Ok(names.map(str::to_owned).collect())
    },
    |names| names.join(":"),
);

// ---- prefixes of keys ----

/// `auto`, `off`, or names of prefixes separated by commas.
pub(super) const COMPRESS: By<Compress> = By(
    |text| match text {
        "auto" => Ok(Compress::Auto),
        "off" => Ok(Compress::Off),
        _ => {
            let names: Vec<String> = text.split(',').map(str::to_owned).collect();
            // A word that somebody may take for a switch is no name.
            let no_names = ["", "auto", "off", "on", "true", "false", "yes", "no", "none", "all"];
            match names.iter().any(|name| no_names.contains(&name.to_lowercase().as_str())) {
                true => Err("expected auto alone, off alone, or names with a comma between".to_owned()),
                false => Ok(Compress::Only(names)),
            }
        }
    },
    |wanted| match wanted {
        Compress::Off => "off".to_owned(),
        Compress::Only(names) => names.join(","),
        Compress::Auto | Compress::Modelled(_) => "auto".to_owned(),
    },
);

/// `NAME=LEAST-MOST` or `NAME=LEAST-MOST/SECONDS`, separated by commas; nothing for none.
pub(super) const NAMESPACES: By<Vec<Namespace>> = By(
    |text| {
        let list = none_or_list(text, namespace)?;
        check_namespaces(&list)?;
        Ok(list)
    },
    |list| {
        joined(list, |one| {
            let ttl = if one.ttl_max_s == 0 { String::new() } else { format!("/{}", one.ttl_max_s) };
            format!("{}={}-{}{ttl}", one.name, one.least_percent, one.most_percent)
        })
    },
);

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
pub(super) const USER_NAMESPACES: By<Vec<UserNamespace>> = By(
    |text| {
        none_or_list(text, |text| {
            let found = text.split_once('=').filter(|(user, _)| !user.is_empty());
            let (user, namespace) =
                found.ok_or_else(|| format!("'{text}' is no namespace of a user: expected USER=NAME"))?;
            Ok(UserNamespace { user: user.to_owned(), namespace: namespace.to_owned() })
        })
    },
    |list| joined(list, |one| format!("{}={}", one.user, one.namespace)),
);

fn joined<T>(list: &[T], write: impl Fn(&T) -> String) -> String {
    list.iter().map(write).collect::<Vec<_>>().join(",")
}

fn none_or_list<T>(text: &str, read: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, String> {
    if text.is_empty() { Ok(Vec::new()) } else { text.split(',').map(read).collect() }
}

// ---- CPUs ----

/// `off`, `auto`, or a list of CPUs and ranges of them.
pub(super) const CPUS: By<PinCpus> = By(cpus, |pinned| match pinned {
    PinCpus::Off => "off".to_owned(),
    PinCpus::Auto => "auto".to_owned(),
    PinCpus::List(list) => joined(list, u32::to_string),
});

fn cpus(text: &str) -> Result<PinCpus, String> {
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

// ---- flash ----

/// `PATH`, `PATH:SIZE` or `sim:PROFILE:SIZE`. The part after the last colon of a path is a size if it looks like one;
/// otherwise it belongs to the path.
pub(super) const FLASH_DEVICE: By<FlashDevice> = By(flash_device, |device| {
    let size_bytes = match device {
        FlashDevice::Path { size_bytes, .. } => *size_bytes,
        FlashDevice::Simulated { size_bytes, .. } => Some(*size_bytes),
    };
    size_bytes.map_or(device.to_string(), |bytes| format!("{device}:{}", size(bytes)))
});

fn flash_device(text: &str) -> Result<FlashDevice, String> {
    let text = text.trim();
    if let Some(simulated) = text.strip_prefix("sim:") {
        let profiles = larder_ssd::PROFILES;
        let named = simulated.split_once(':').filter(|(profile, _)| profiles.contains(profile));
        let (profile, size) = named
            .ok_or_else(|| format!("expected sim:PROFILE:SIZE, where PROFILE is {}", profiles.join(", ")))?;
        let size_bytes = bytes(size, MIB, 64 << 20, 1 << 40)?;
        return Ok(FlashDevice::Simulated { profile: profile.to_owned(), size_bytes });
    }
    if let Some((before, behind)) = text.rsplit_once(':')
        && behind.starts_with(|first: char| first.is_ascii_digit())
    {
        let size_bytes = bytes(behind, MIB, 1 << 20, 1 << 50)?;
        return Ok(FlashDevice::Path { path: path(before)?, size_bytes: Some(size_bytes) });
    }
    Ok(FlashDevice::Path { path: path(text)?, size_bytes: None })
}

/// The evicted items to write to flash: `all`, or conditions separated by commas.
pub(super) const ADMIT: By<Admit> = By(
    |text| {
        let mut found = Admit::default();
        for word in text.split(',').map(str::trim) {
            match word.split_once('=').unwrap_or((word, "3600")) {
                ("all", _) if text == "all" => {}
                ("read", _) if word == "read" => found.only_read = true,
                ("reject-first", seconds) => found.reject_first_s = whole(seconds, 1, i32::MAX as u32)?,
                _ => {
                    return Err(
                        "expected all, or read and reject-first=SECONDS with a comma between".to_owned()
                    );
                }
            }
        }
        Ok(found)
    },
    Admit::to_string,
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_count_in_their_unit_or_by_their_letter() {
        assert_eq!(bytes("64", 1 << 20, 0, u64::MAX), Ok(64 << 20));
        assert_eq!(bytes("2k", 1, 0, u64::MAX), Ok(2048));
        assert_eq!(bytes("3G", 1, 0, u64::MAX), Ok(3 << 30));
        for (text, power) in [("1kb", 10), ("1MB", 20), ("1Gb", 30), ("1tB", 40), ("1T", 40)] {
            assert_eq!(bytes(text, 1, 0, u64::MAX), Ok(1 << power), "{text}");
        }
        for bad in
            ["", "k", "kb", "b", "-1", "1.5m", "1x", "64b", "64 mb", "1gib", "1kbb", "1mk", "99999999999999t"]
        {
            assert_eq!(
                bytes(bad, 1, 1 << 10, 1 << 30),
                Err("expected a size from 1k to 1g".to_owned()),
                "{bad}"
            );
        }
    }

    #[test]
    fn addresses_of_every_shape() {
        let read = |text| ADDRESS.read(text).map(|found| (found.host, found.port));
        assert_eq!(read("localhost"), Ok(("localhost".to_owned(), None)));
        assert_eq!(read("10.0.0.1:5"), Ok(("10.0.0.1".to_owned(), Some(5))));
        assert_eq!(read("::1"), Ok(("::1".to_owned(), None)));
        assert_eq!(read("[::1]:7"), Ok(("::1".to_owned(), Some(7))));
        assert_eq!(read("[::1]"), Ok(("::1".to_owned(), None)));
        let tls = |text| ADDRESS.read(text).map(|found| (found.port, found.tls));
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
        let read = |text: &str| List(FLASH_DEVICE, &[',']).read(text);
        let one = |path: &str, size_bytes| FlashDevice::Path { path: path.into(), size_bytes };
        assert_eq!(read("/dev/sdb"), Ok(vec![one("/dev/sdb", None)]));
        assert_eq!(read("/a:b/c"), Ok(vec![one("/a:b/c", None)]));
        assert_eq!(read("/a:b/c:10g"), Ok(vec![one("/a:b/c", Some(10 << 30))]));
        assert_eq!(read("/a:b/c:10GB"), Ok(vec![one("/a:b/c", Some(10 << 30))]));
        assert_eq!(read("x:64, /dev/sdb"), Ok(vec![one("x", Some(64 << 20)), one("/dev/sdb", None)]));
        for bad in ["", ":10g", "/x:0", "/x:10q", "/x:1k", "/x,", "/x:1g,:2g"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_simulated_drive_has_a_profile_and_a_size() {
        let devices = |text: &str| List(FLASH_DEVICE, &[',']).read(text);
        let drive = FlashDevice::Simulated { profile: "ftl-28".to_owned(), size_bytes: 1 << 30 };
        assert_eq!(devices("sim:ftl-28:1g"), Ok(vec![drive]));
        let wanted = "expected sim:PROFILE:SIZE, where PROFILE is ftl, ftl-28, zoned, open-channel";
        for bad in ["sim:", "sim:ftl", "sim:disk:1g"] {
            assert_eq!(devices(bad), Err(wanted.to_owned()), "{bad}");
        }
        assert_eq!(devices("sim:ftl:1m"), Err("expected a size from 64m to 1t".to_owned()));
    }

    #[test]
    fn conditions_of_admission() {
        assert_eq!(ADMIT.read("all"), Ok(Admit::default()));
        assert_eq!(ADMIT.read("reject-first"), Ok(Admit { reject_first_s: 3600, only_read: false }));
        assert_eq!(ADMIT.read("read,reject-first=9"), Ok(Admit { reject_first_s: 9, only_read: true }));
        for bad in ["", "all,read", "read=1", "reject-first=0", "warm"] {
            assert!(ADMIT.read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn lists_of_cpus() {
        assert_eq!(CPUS.read("0-2,7"), Ok(PinCpus::List(vec![0, 1, 2, 7])));
        assert_eq!(CPUS.read("auto"), Ok(PinCpus::Auto));
        for bad in ["", "x", "3-1", "0,", "-1", "1-99999"] {
            assert!(CPUS.read(bad).is_err(), "{bad}");
        }
    }
}
