//! The cipher suites, by the names that OpenSSL and the standards give them.

use crate::settings::TlsSettings;
use rustls::crypto::{CryptoProvider, ring};
use rustls::{CipherSuite, SupportedCipherSuite};

/// The suites that are served. Those of TLS 1.3 have one name, those of TLS 1.2 two.
const NAMES: &[(&str, &str, CipherSuite)] = &[
    ("TLS_AES_256_GCM_SHA384", "", CipherSuite::TLS13_AES_256_GCM_SHA384),
    ("TLS_AES_128_GCM_SHA256", "", CipherSuite::TLS13_AES_128_GCM_SHA256),
    ("TLS_CHACHA20_POLY1305_SHA256", "", CipherSuite::TLS13_CHACHA20_POLY1305_SHA256),
    (
        "ECDHE-ECDSA-AES256-GCM-SHA384",
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    ),
    (
        "ECDHE-ECDSA-AES128-GCM-SHA256",
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    ),
    (
        "ECDHE-ECDSA-CHACHA20-POLY1305",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
    (
        "ECDHE-RSA-AES256-GCM-SHA384",
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    ),
    (
        "ECDHE-RSA-AES128-GCM-SHA256",
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    ),
    (
        "ECDHE-RSA-CHACHA20-POLY1305",
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
];

/// The cryptography, with the suites that the settings name. As with OpenSSL, a list that names no suite of TLS 1.3
/// leaves all of those.
pub(super) fn provider(settings: &TlsSettings) -> Result<CryptoProvider, String> {
    let mut provider = ring::default_provider();
    if settings.ciphers.is_empty() {
        return Ok(provider);
    }
    let mut chosen = Vec::new();
    for name in &settings.ciphers {
        let named = NAMES.iter().find(|(short, long, _)| name == short || (name == long && !name.is_empty()));
        let Some((.., suite)) = named else {
            let known: Vec<&str> = NAMES.iter().map(|(short, ..)| *short).collect();
            return Err(format!(
                "no cipher suite '{name}' (--tls-ciphers) is served, only {}",
                known.join(", ")
            ));
        };
        chosen.push(*suite);
    }
    let is_13 = |suite: &SupportedCipherSuite| suite.tls13().is_some();
    let names_13 = provider.cipher_suites.iter().any(|one| is_13(one) && chosen.contains(&one.suite()));
    provider.cipher_suites.retain(|one| chosen.contains(&one.suite()) || (is_13(one) && !names_13));
    Ok(provider)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suites(names: &[&str]) -> Result<Vec<CipherSuite>, String> {
        let ciphers = names.iter().map(|name| (*name).to_owned()).collect();
        let provider = provider(&TlsSettings { ciphers, ..TlsSettings::default() })?;
        Ok(provider.cipher_suites.iter().map(|one| one.suite()).collect())
    }

    #[test]
    fn every_suite_has_a_name() {
        let named: Vec<CipherSuite> = NAMES.iter().map(|(.., suite)| *suite).collect();
        assert_eq!(suites(&[]), Ok(named));
    }

    #[test]
    fn a_list_limits_the_versions_that_it_names() {
        let old = suites(&["ECDHE-RSA-AES128-GCM-SHA256"]).expect("known");
        assert_eq!(old.len(), 4, "{old:?}");
        let new =
            suites(&["TLS_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"]).expect("known");
        assert_eq!(
            new,
            [CipherSuite::TLS13_AES_128_GCM_SHA256, CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]
        );
        assert!(suites(&["HIGH"]).expect_err("unknown").contains("no cipher suite 'HIGH'"));
    }
}
