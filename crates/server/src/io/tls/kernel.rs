//! Encryption by the kernel (Linux, module `tls`): behind a handshake the kernel gets the keys, and the socket is read
//! and written as one without encryption.
//!
//! Where the kernel has no such module, or does not know a cipher suite, the server encrypts. A connection that the
//! kernel encrypts cannot change its keys, which no client of a cache sends enough data for, and is not told why it
//! ends: the kernel reports what is not data as an error, and the connection is closed.

use nix::libc;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{TcpTlsRx, TcpTlsTx, TcpUlp, TlsCryptoInfo};
use rustls::server::UnbufferedServerConnection;
use rustls::{ConnectionTrafficSecrets, ExtractedSecrets, ProtocolVersion};
use socket2::Socket;
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};

/// A kernel that encrypts.
#[derive(Debug)]
pub(crate) struct Kernel(());

impl Kernel {
    /// Tries it on a connection of this machine to itself. `None` = the kernel cannot encrypt.
    pub(crate) fn probe() -> Option<Kernel> {
        let probe = || -> io::Result<()> {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            let client = TcpStream::connect(listener.local_addr()?)?;
            let (_server, _) = listener.accept()?;
            Ok(setsockopt(&client, TcpUlp::default(), b"tls")?)
        };
        match probe() {
            Ok(()) => Some(Kernel(())),
            Err(error) => {
                tracing::info!("the kernel does not encrypt, the server does: {error}");
                None
            }
        }
    }

    /// Whether the kernel can take over the connection.
    pub(crate) fn knows(&self, connection: &UnbufferedServerConnection) -> bool {
        matches!(connection.protocol_version(), Some(ProtocolVersion::TLSv1_2 | ProtocolVersion::TLSv1_3))
    }

    /// Gives the keys to the kernel.
    ///
    /// # Errors
    /// The connection is of no further use then.
    pub(crate) fn take_over(
        &mut self,
        connection: UnbufferedServerConnection,
        socket: &Socket,
    ) -> io::Result<()> {
        let version = match connection.protocol_version() {
            Some(ProtocolVersion::TLSv1_2) => libc::TLS_1_2_VERSION,
            _ => libc::TLS_1_3_VERSION,
        };
        let (ExtractedSecrets { tx, rx }, _) =
            connection.dangerous_into_kernel_connection().map_err(io::Error::other)?;
        setsockopt(socket, TcpUlp::default(), b"tls")?;
        setsockopt(socket, TcpTlsTx, &keys(version, tx)?)?;
        setsockopt(socket, TcpTlsRx, &keys(version, rx)?)?;
        Ok(())
    }
}

/// The keys of one direction as the kernel wants them, with the number of its next record.
fn keys(version: u16, (sequence, secrets): (u64, ConnectionTrafficSecrets)) -> io::Result<TlsCryptoInfo> {
    let rec_seq = sequence.to_be_bytes();
    let info = |cipher_type| libc::tls_crypto_info { version, cipher_type };
    let wrong = |_| io::Error::other("keys of an unexpected length");
    Ok(match secrets {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv } => {
            TlsCryptoInfo::Aes128Gcm(libc::tls12_crypto_info_aes_gcm_128 {
                info: info(libc::TLS_CIPHER_AES_GCM_128),
                iv: iv.as_ref()[4..].try_into().map_err(wrong)?,
                key: key.as_ref().try_into().map_err(wrong)?,
                salt: iv.as_ref()[..4].try_into().map_err(wrong)?,
                rec_seq,
            })
        }
        ConnectionTrafficSecrets::Aes256Gcm { key, iv } => {
            TlsCryptoInfo::Aes256Gcm(libc::tls12_crypto_info_aes_gcm_256 {
                info: info(libc::TLS_CIPHER_AES_GCM_256),
                iv: iv.as_ref()[4..].try_into().map_err(wrong)?,
                key: key.as_ref().try_into().map_err(wrong)?,
                salt: iv.as_ref()[..4].try_into().map_err(wrong)?,
                rec_seq,
            })
        }
        ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => {
            TlsCryptoInfo::Chacha20Poly1305(libc::tls12_crypto_info_chacha20_poly1305 {
                info: info(libc::TLS_CIPHER_CHACHA20_POLY1305),
                iv: iv.as_ref().try_into().map_err(wrong)?,
                key: key.as_ref().try_into().map_err(wrong)?,
                salt: [],
                rec_seq,
            })
        }
        _ => return Err(io::Error::other("the kernel does not know the cipher suite")),
    })
}
