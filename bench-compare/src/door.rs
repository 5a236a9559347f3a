//! How a server is reached: the address, and what encrypts the connections to it.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// The name for which the certificate is made.
const SERVER_NAME: &str = "localhost";

/// A certificate that was made for this run, its key, and what makes a client trust it.
#[derive(Debug)]
pub(crate) struct Identity {
    /// PEM file of the certificate.
    pub(crate) certificate: PathBuf,
    /// PEM file of its private key.
    pub(crate) key: PathBuf,
    folder: PathBuf,
    client: Arc<ClientConfig>,
}

impl Identity {
    /// Makes a certificate, with a key on the curve P-256, and writes both into `folder`, which goes with this value.
    pub(crate) fn make(folder: &Path) -> Result<Self> {
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        let made =
            rcgen::generate_simple_self_signed([SERVER_NAME.to_owned()]).context("make a certificate")?;
        let identity = (folder.join("certificate.pem"), folder.join("key.pem"));
        std::fs::write(&identity.0, made.cert.pem()).with_context(|| identity.0.display().to_string())?;
        std::fs::write(&identity.1, made.signing_key.serialize_pem())
            .with_context(|| identity.1.display().to_string())?;
        let mut trusted = RootCertStore::empty();
        trusted.add(made.cert.der().clone())?;
        let client = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(trusted)
            .with_no_client_auth();
        let (certificate, key) = identity;
        Ok(Self { certificate, key, folder: folder.to_owned(), client: Arc::new(client) })
    }
}

impl Drop for Identity {
    fn drop(&mut self) {
        // Nothing but the two files is in it.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The way to a running server.
#[derive(Clone, Debug)]
pub(crate) struct Door {
    /// The address on which the server listens.
    pub(crate) address: SocketAddr,
    /// What encrypts connections; `None` = nothing does.
    pub(crate) identity: Option<Arc<Identity>>,
}

impl Door {
    /// A new connection, with its handshake done.
    pub(crate) fn connect(&self) -> Result<Stream> {
        let mut socket = TcpStream::connect(self.address).context("connect")?;
        socket.set_nodelay(true)?;
        let Some(identity) = &self.identity else { return Ok(Stream::Plain(socket)) };
        let name = ServerName::try_from(SERVER_NAME)?;
        let mut session = ClientConnection::new(identity.client.clone(), name)?;
        while session.is_handshaking() {
            session.complete_io(&mut socket).context("handshake")?;
        }
        ensure!(!session.wants_write(), "the end of the handshake was not sent");
        Ok(Stream::Encrypted(Box::new(StreamOwned::new(session, socket))))
    }
}

impl From<SocketAddr> for Door {
    fn from(address: SocketAddr) -> Self {
        Self { address, identity: None }
    }
}

/// A connection.
#[derive(Debug)]
pub(crate) enum Stream {
    /// The bytes travel as they are.
    Plain(TcpStream),
    /// The bytes are encrypted.
    Encrypted(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    /// The socket.
    pub(crate) fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Encrypted(stream) => &stream.sock,
        }
    }

    /// Whether a read that left room in its buffer has taken all that there is.
    pub(crate) fn reads_all_at_once(&self) -> bool {
        matches!(self, Self::Plain(_))
    }
}

impl Read for Stream {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(room),
            Self::Encrypted(stream) => stream.read(room),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write(bytes),
            Self::Encrypted(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.flush(),
            Self::Encrypted(stream) => stream.flush(),
        }
    }
}
