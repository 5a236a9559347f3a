//! Encryption of client connections. Certificates are read anew once all settings of a change are taken, because a
//! certificate and its key belong together.

use crate::settings::names::one_of;
use crate::settings::row::Takes::Value;
use crate::settings::row::{At, BY_FILE, CONNECTIONS, Change, LISTENERS, ROW, Row, Topic, at};
use crate::settings::tls::{KEY_FORMATS, KeyFormat, TlsVersion, VERIFY, VERSIONS};
use crate::settings::values::{By, CIPHERS, Kind, PATH, SWITCH, Whole};

const TLS: Row = Row { topic: Topic::Tls, change: BY_FILE, ..ROW };

/// In any case.
const KEY_FORMAT: By<KeyFormat> =
    By(|text| KEY_FORMATS.read(&text.to_ascii_lowercase()), |format| KEY_FORMATS.write(format));
const VERSION: By<TlsVersion> = By(|text| one_of(text, VERSIONS), TlsVersion::to_string);

#[rustfmt::skip] // A row reads as a card.
pub(super) static ROWS: &[Row] = &[
    Row { letter: Some('Z'), name: "enable-ssl",
        help: "encrypt TCP connections (TLS); an address of -l that begins with notls: is not encrypted, with btls: it \
               is without client certificates, and with mtls: every client needs a certificate",
        value: at!(tls.enabled, SWITCH), change: LISTENERS, ..TLS },
    Row { name: "tls-cert", option: Some("ssl_chain_cert"), takes: Value("FILE"), example: "/etc/larder/server.pem",
        help: "PEM file with the certificate of the server, and the certificates between it and its authority; read \
               again on SIGHUP and by the command refresh_certs",
        value: at!(tls.chain_cert, PATH), ..TLS },
    Row { name: "tls-key", option: Some("ssl_key"), takes: Value("FILE"), example: "/etc/larder/server.key",
        help: "file with the private key; it is looked for in --tls-cert if not given",
        value: at!(tls.key, PATH), ..TLS },
    Row { name: "tls-key-format", option: Some("ssl_keyformat"), takes: Value("NAME"), example: "der",
        help: "format of the private key: pem (text) or der (bytes)",
        value: at!(tls.key_format, KEY_FORMAT), ..TLS },
    Row { name: "tls-verify", option: Some("ssl_verify_mode"), takes: Value("NAME"), example: "require",
        help: "whether clients show certificates: none (0), request (1, one that is shown must be valid), require (2) \
               or once (3, the same as require)",
        value: at!(tls.verify, VERIFY), ..TLS },
    Row { name: "tls-ca", option: Some("ssl_ca_cert"), takes: Value("FILE"), example: "/etc/larder/clients-ca.pem",
        help: "PEM file with the authorities whose client certificates are accepted",
        value: at!(tls.ca_cert, PATH), ..TLS },
    Row { name: "tls-ciphers", option: Some("ssl_ciphers"), takes: Value("NAMES"),
        example: "ECDHE-ECDSA-AES128-GCM-SHA256:TLS_AES_128_GCM_SHA256",
        help: "cipher suites that may be used, separated by colons, by the names of OpenSSL or of the standards; a \
               list without a suite of TLS 1.3 allows all suites of TLS 1.3",
        value: at!(tls.ciphers, CIPHERS), ..TLS },
    Row { name: "tls-min-version", option: Some("ssl_min_version"), takes: Value("NAME"),
        default: Some("1.2"), example: "1.3",
        help: "oldest version that is spoken: 1.2 or 1.3 (for memcached also 2 or 3; 0 and 1 mean versions that are \
               too old, and 1.2 is the oldest then)",
        value: at!(tls.min_version, VERSION), ..TLS },
    Row { name: "tls-kernel", option: Some("ssl_kernel_tls"),
        help: "let the kernel encrypt where it can (Linux with the module tls); the server encrypts where it cannot",
        value: at!(tls.kernel, SWITCH), change: CONNECTIONS, ..TLS },
    Row { name: "tls-session-cache", option: Some("ssl_session_cache"),
        help: "show in stats how many sessions began anew; clients can always resume sessions, with tickets that take \
               no memory here",
        value: at!(tls.session_cache, SWITCH), change: CONNECTIONS, ..TLS },
    Row { name: "tls-write-buffer", option: Some("ssl_wbuf_size"), takes: Value("KIB"),
        example: "64", topic: Topic::Compatibility,
        help: "accepted and ignored: buffers for encrypted output have the size that they need",
        value: at!(tls.write_buffer_kib, Whole(1, 1 << 20)), change: Change::NoSetting, ..TLS },
];
