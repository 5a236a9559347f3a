//! The files of certificates and keys.

use crate::settings::{KeyFormat, TlsSettings, read_short_file};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::path::Path;
use std::sync::Arc;

/// The server's certificate with those that lead to its authority, and its private key.
pub(super) fn certificate_and_key(
    settings: &TlsSettings,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), String> {
    let Some(path) = settings.chain_cert.as_deref() else { return Err("no certificate is named".to_owned()) };
    let chain = certificates(path, "--tls-cert")?;
    let key_path = settings.key.as_deref().unwrap_or(path);
    let bytes = read(key_path, "--tls-key")?;
    let key = match settings.key_format {
        KeyFormat::Pem => PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| error.to_string()),
        KeyFormat::Der => PrivateKeyDer::try_from(bytes).map_err(str::to_owned),
    };
    let key = key.map_err(|error| {
        format!(
            "no private key in {} (--tls-key): {error}; expected a key without a password, in PEM or, with \
             --tls-key-format der, in DER",
            key_path.display()
        )
    })?;
    Ok((chain, key))
}

/// The authorities of client certificates; none if the settings name none.
pub(super) fn authorities(settings: &TlsSettings) -> Result<Arc<RootCertStore>, String> {
    let mut store = RootCertStore::empty();
    if let Some(path) = settings.ca_cert.as_deref() {
        for certificate in certificates(path, "--tls-ca")? {
            store.add(certificate).map_err(|error| {
                format!("{} (--tls-ca) is no certificate of an authority: {error}", path.display())
            })?;
        }
    }
    Ok(Arc::new(store))
}

/// Why a certificate and a key cannot be used.
pub(super) fn unfit_key(settings: &TlsSettings, error: &rustls::Error) -> String {
    let shown = |path: &Option<std::path::PathBuf>| path.as_ref().map(|path| path.display().to_string());
    format!(
        "the certificate {} (--tls-cert) and the key {} (--tls-key) cannot be used: {error}",
        shown(&settings.chain_cert).unwrap_or_default(),
        shown(&settings.key).unwrap_or_else(|| "in it".to_owned()),
    )
}

fn certificates(path: &Path, flag: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let bytes = read(path, flag)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match found {
        Ok(found) if found.is_empty() => {
            Err(format!("no certificate in {} ({flag}): expected PEM", path.display()))
        }
        Ok(found) => Ok(found),
        Err(error) => Err(format!("cannot read the certificates in {} ({flag}): {error}", path.display())),
    }
}

fn read(path: &Path, flag: &str) -> Result<Vec<u8>, String> {
    read_short_file(path).map_err(|error| format!("cannot read {} ({flag}): {error}", path.display()))
}
