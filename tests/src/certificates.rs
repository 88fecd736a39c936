//! Certificates of a test's own authority, as files and as text.

use std::path::PathBuf;

use anyhow::Result;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

/// An authority and one certificate of it, for servers and clients at 127.0.0.1.
#[derive(Debug)]
pub struct Certificates {
    folder: TempDir,
    /// The authority's certificate in PEM.
    pub ca: String,
    /// The certificate in PEM.
    pub certificate: String,
    /// Its key in PEM.
    pub key: String,
}

impl Certificates {
    /// Makes them.
    pub fn make() -> Result<Self> {
        let authority_key = KeyPair::generate()?;
        let mut authority = CertificateParams::new(Vec::new())?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = authority.self_signed(&authority_key)?.pem();
        let issuer = Issuer::new(authority, authority_key);
        let mut params = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()])?;
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key_pair = KeyPair::generate()?;
        let certificate = params.signed_by(&key_pair, &issuer)?.pem();
        let made = Self { folder: TempDir::new()?, ca, certificate, key: key_pair.serialize_pem() };
        for (path, text) in [
            (made.ca_file(), &made.ca),
            (made.certificate_file(), &made.certificate),
            (made.key_file(), &made.key),
        ] {
            std::fs::write(path, text)?;
        }
        Ok(made)
    }

    /// File of the authority's certificate.
    pub fn ca_file(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// File of the certificate.
    pub fn certificate_file(&self) -> PathBuf {
        self.folder.path().join("cert.pem")
    }

    /// File of its key.
    pub fn key_file(&self) -> PathBuf {
        self.folder.path().join("key.pem")
    }
}
