//! TLS from a certificate chain and its key.

use std::fmt;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use super::ServeError;

/// A certificate that can be served with.
#[derive(Clone)]
pub struct Tls(Arc<ServerConfig>);

impl Tls {
    /// From PEM texts: the chain, the server's own certificate first, and its key.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, ServeError> {
        let unusable = |error: Box<dyn std::error::Error + Send + Sync>| ServeError::Tls(error);
        let chain: Vec<_> = CertificateDer::pem_slice_iter(chain)
            .collect::<Result<_, _>>()
            .map_err(|error| unusable(error.into()))?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| unusable(error.into()))?;
        let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
            .map_err(|error| unusable(error.into()))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self(Arc::new(config)))
    }

    pub(super) fn config(self) -> Arc<ServerConfig> {
        self.0
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_certificate_is_refused() {
        assert!(matches!(Tls::from_pem(b"", b""), Err(ServeError::Tls(_))));
        assert!(matches!(Tls::from_pem(b"-----BEGIN CERTIFICATE-----", b"x"), Err(ServeError::Tls(_))));
    }
}
