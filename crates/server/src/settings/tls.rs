//! Encryption of client connections.

use super::defaults::settings;
use super::names::Names;
use std::fmt;
use std::path::PathBuf;

settings! {
    /// How connections are encrypted.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct TlsSettings {
        /// Whether TCP listeners are encrypted that do not say otherwise.
        pub enabled: bool = false,
        /// A PEM file with the server's certificate, and those between it and its authority.
        pub chain_cert: Option<PathBuf> = None,
        /// A file with the private key. `None` = it stands in `chain_cert`.
        pub key: Option<PathBuf> = None,
        /// How the private key is written.
        pub key_format: KeyFormat = KeyFormat::Pem,
        /// Whether clients show certificates, on listeners that do not say otherwise.
        pub verify: VerifyMode = VerifyMode::None,
        /// A PEM file with the authorities whose client certificates are accepted.
        pub ca_cert: Option<PathBuf> = None,
        /// Cipher suites that may be used, by their names. Empty = all that are known.
        pub ciphers: Vec<String> = Vec::new(),
        /// The oldest version of the protocol that is spoken.
        pub min_version: TlsVersion = TlsVersion::V1_2,
        /// Whether sessions that begin anew are counted, as memcached does with its session cache. Clients can always
        /// resume their sessions with tickets.
        pub session_cache: bool = false,
        /// Whether the kernel encrypts, where it can.
        pub kernel: bool = false,
        /// memcached's buffer for encrypted output, in KiB. It is shown and has no effect.
        pub write_buffer_kib: u32 = 16,
    }
}

impl TlsSettings {
    /// Tells of settings that contradict each other.
    pub(super) fn tell_problems(&self, wrong: &mut dyn FnMut(String)) {
        if self.enabled && self.chain_cert.is_none() {
            wrong(
                "TLS (-Z) needs a certificate: name a PEM file with --tls-cert FILE, and its key with --tls-key FILE"
                    .to_owned(),
            );
        }
    }
}

/// How a listener is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ListenerTls {
    /// As the settings say for all.
    #[default]
    Default,
    /// Not at all.
    Off,
    /// It is, and clients show no certificates.
    Basic,
    /// It is, and every client shows a certificate.
    Mutual,
}

/// Whether a client shows a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerifyMode {
    /// It is not asked for one.
    None,
    /// It is asked. One that it shows must be valid.
    Request,
    /// It must show a valid one.
    Require,
    /// The same: a connection is never asked a second time.
    Once,
}

/// The names of the modes, and memcached's numbers of them.
pub(super) const VERIFY: Names<VerifyMode> = Names(&[
    ("none", VerifyMode::None),
    ("request", VerifyMode::Request),
    ("require", VerifyMode::Require),
    ("once", VerifyMode::Once),
    ("0", VerifyMode::None),
    ("1", VerifyMode::Request),
    ("2", VerifyMode::Require),
    ("3", VerifyMode::Once),
]);

impl VerifyMode {
    /// memcached's number: it shows that of OpenSSL.
    pub fn number(self) -> u8 {
        match self {
            VerifyMode::None => 0,
            VerifyMode::Request => 1,
            VerifyMode::Require => 3,
            VerifyMode::Once => 7,
        }
    }
}

/// A version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    /// TLS 1.2.
    V1_2,
    /// TLS 1.3.
    V1_3,
}

/// The names of the versions: those of the standards, of OpenSSL, and memcached's numbers, of which 0 and 1 stand for
/// versions that are too old.
pub(super) const VERSIONS: &[(&str, TlsVersion)] = &[
    ("1.2", TlsVersion::V1_2),
    ("1.3", TlsVersion::V1_3),
    ("tlsv1.2", TlsVersion::V1_2),
    ("tlsv1.3", TlsVersion::V1_3),
    ("0", TlsVersion::V1_2),
    ("1", TlsVersion::V1_2),
    ("2", TlsVersion::V1_2),
    ("3", TlsVersion::V1_3),
];

impl fmt::Display for TlsVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TlsVersion::V1_2 => "tlsv1.2",
            TlsVersion::V1_3 => "tlsv1.3",
        })
    }
}

/// How a private key is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyFormat {
    /// As text.
    Pem,
    /// As bytes (ASN.1).
    Der,
}

/// The names of the formats, and memcached's numbers of them.
pub(super) const KEY_FORMATS: Names<KeyFormat> =
    Names(&[("pem", KeyFormat::Pem), ("der", KeyFormat::Der), ("1", KeyFormat::Pem), ("2", KeyFormat::Der)]);

impl KeyFormat {
    /// memcached's number: that of OpenSSL.
    pub fn number(self) -> u8 {
        match self {
            KeyFormat::Pem => 1,
            KeyFormat::Der => 2,
        }
    }
}
