//! Encryption of client connections.

use std::fmt;
use std::path::PathBuf;

/// How connections are encrypted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// Whether TCP listeners are encrypted that do not say otherwise. Default false.
    pub enabled: bool,
    /// A PEM file with the server's certificate, and those between it and its authority.
    pub chain_cert: Option<PathBuf>,
    /// A file with the private key. `None` = it stands in `chain_cert`.
    pub key: Option<PathBuf>,
    /// How the private key is written. Default [`KeyFormat::Pem`].
    pub key_format: KeyFormat,
    /// Whether clients show certificates, on listeners that do not say otherwise. Default [`VerifyMode::None`].
    pub verify: VerifyMode,
    /// A PEM file with the authorities whose client certificates are accepted.
    pub ca_cert: Option<PathBuf>,
    /// Cipher suites that may be used, by their names. Empty = all that are known.
    pub ciphers: Vec<String>,
    /// The oldest version of the protocol that is spoken. Default [`TlsVersion::V1_2`].
    pub min_version: TlsVersion,
    /// Whether sessions that begin anew are counted, as memcached does with its session cache. Clients can always
    /// resume their sessions with tickets. Default false.
    pub session_cache: bool,
    /// Whether the kernel encrypts, where it can. Default false.
    pub kernel: bool,
    /// memcached's buffer for encrypted output, in KiB. It is shown and has no effect. Default 16.
    pub write_buffer_kib: u32,
}

impl Default for TlsSettings {
    fn default() -> TlsSettings {
        TlsSettings {
            enabled: false,
            chain_cert: None,
            key: None,
            key_format: KeyFormat::Pem,
            verify: VerifyMode::None,
            ca_cert: None,
            ciphers: Vec::new(),
            min_version: TlsVersion::V1_2,
            session_cache: false,
            kernel: false,
            write_buffer_kib: 16,
        }
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

impl KeyFormat {
    /// memcached's number: that of OpenSSL.
    pub fn number(self) -> u8 {
        match self {
            KeyFormat::Pem => 1,
            KeyFormat::Der => 2,
        }
    }
}
