//! What a TLS handshake needs: certificates, keys and the authorities of clients, read from files and read again on
//! demand.
//!
//! A connection keeps the configuration with which its handshake began. So a reload changes new connections only, and
//! files that cannot be read change nothing. Session tickets are encrypted with keys of the configuration, which are in
//! memory only: no session outlives a reload, as its client's certificate may not be valid any more.

mod files;
mod suites;
mod validity;

use crate::settings::{ListenerTls, TlsSettings, TlsVersion, VerifyMode};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ServerConfig, WebPkiClientVerifier};
use rustls::version::{TLS12, TLS13};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme};
use std::path::Path;
use std::sync::{Arc, Mutex, RwLock};
use std::time::Instant;
use validity::Validity;

/// The present configuration, and how to make it anew.
#[derive(Debug)]
pub struct Tls {
    wants_kernel: bool,
    configs: RwLock<Configs>,
    refreshed: Mutex<Instant>,
}

/// One configuration for each way in which a listener may be encrypted.
#[derive(Clone, Debug)]
struct Configs {
    default: Arc<ServerConfig>,
    basic: Arc<ServerConfig>,
    mutual: Arc<ServerConfig>,
    /// Until when the certificate is valid.
    validity: Option<Validity>,
}

impl Tls {
    /// Reads the files that the settings name.
    ///
    /// # Errors
    /// One line that says which file is wrong, and how.
    pub fn load(settings: &TlsSettings) -> Result<Tls, String> {
        Ok(Tls {
            configs: RwLock::new(Configs::load(settings)?),
            wants_kernel: settings.kernel,
            refreshed: Mutex::new(Instant::now()),
        })
    }

    /// Reads the files that the settings name now. Connections that begin from now on use what they say.
    ///
    /// # Errors
    /// As [`Tls::load`]. Nothing has changed then.
    pub fn reload(&self, settings: &TlsSettings) -> Result<(), String> {
        let configs = Configs::load(settings)?;
        if let (Some(why), None) = (configs.certificate_problem(), self.certificate_problem()) {
            let shown = settings.chain_cert.as_deref().unwrap_or(Path::new("")).display();
            return Err(format!(
                "the certificate {shown} (--tls-cert) {why}, and the one that is served is valid"
            ));
        }
        *self.configs.write().expect("no panic under this lock") = configs;
        *self.refreshed.lock().expect("no panic under this lock") = Instant::now();
        Ok(())
    }

    /// Why the certificate is not valid now.
    pub fn certificate_problem(&self) -> Option<String> {
        self.configs.read().expect("no panic under this lock").certificate_problem()
    }

    /// The configuration of a listener. `None` = the listener is not encrypted.
    pub fn config(&self, listener: ListenerTls) -> Option<Arc<ServerConfig>> {
        let configs = self.configs.read().expect("no panic under this lock");
        match listener {
            ListenerTls::Off => None,
            ListenerTls::Default => Some(configs.default.clone()),
            ListenerTls::Basic => Some(configs.basic.clone()),
            ListenerTls::Mutual => Some(configs.mutual.clone()),
        }
    }

    /// Seconds since the files were read.
    pub fn refreshed_s(&self) -> u64 {
        self.refreshed.lock().expect("no panic under this lock").elapsed().as_secs()
    }

    /// Whether the kernel is to encrypt, where it can.
    pub fn wants_kernel(&self) -> bool {
        self.wants_kernel
    }
}

impl Configs {
    fn certificate_problem(&self) -> Option<String> {
        self.validity?.problem_now()
    }

    fn load(settings: &TlsSettings) -> Result<Configs, String> {
        let provider = Arc::new(suites::provider(settings)?);
        let (chain, key) = files::certificate_and_key(settings)?;
        let authorities = files::authorities(settings)?;
        // All sessions are resumed with the same tickets; the client's certificate is in them.
        let ticketer =
            ring::Ticketer::new().map_err(|error| format!("no keys for session tickets: {error}"))?;
        let build = |verify: VerifyMode| -> Result<Arc<ServerConfig>, String> {
            let versions: &[_] = match settings.min_version {
                TlsVersion::V1_2 => &[&TLS13, &TLS12],
                TlsVersion::V1_3 => &[&TLS13],
            };
            let mut config = ServerConfig::builder_with_provider(provider.clone())
                .with_protocol_versions(versions)
                .map_err(|error| format!("no cipher suite (--tls-ciphers) fits the versions: {error}"))?
                .with_client_cert_verifier(verifier(verify, &authorities, &provider)?)
                .with_single_cert(chain.clone(), key.clone_key())
                .map_err(|error| files::unfit_key(settings, &error))?;
            config.ticketer = ticketer.clone();
            config.enable_secret_extraction = settings.kernel;
            Ok(Arc::new(config))
        };
        Ok(Configs {
            default: build(settings.verify)?,
            basic: build(VerifyMode::None)?,
            mutual: build(VerifyMode::Require)?,
            validity: chain.first().and_then(|leaf| Validity::of(leaf)),
        })
    }
}

fn verifier(
    verify: VerifyMode,
    authorities: &Arc<RootCertStore>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, String> {
    if verify == VerifyMode::None {
        return Ok(WebPkiClientVerifier::no_client_auth());
    }
    if authorities.is_empty() {
        return Ok(Arc::new(Nobody {
            is_required: verify != VerifyMode::Request,
            provider: provider.clone(),
        }));
    }
    let builder = WebPkiClientVerifier::builder_with_provider(authorities.clone(), provider.clone());
    let builder = match verify {
        VerifyMode::Request => builder.allow_unauthenticated(),
        _ => builder,
    };
    builder.build().map_err(|error| format!("cannot verify clients by --tls-ca: {error}"))
}

/// Accepts no client certificate, because no authority is known. memcached starts so, too.
#[derive(Debug)]
struct Nobody {
    is_required: bool,
    provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for Nobody {
    fn client_auth_mandatory(&self) -> bool {
        self.is_required
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Err(CertificateError::UnknownIssuer.into())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(CertificateError::UnknownIssuer.into())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(CertificateError::UnknownIssuer.into())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
