//! The file that clients in a sandbox are pointed at.

use rustls::pki_types::CertificateDer;

/// Why no bundle was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BundleError {
    /// The system roots are broken: a block that begins as a certificate and is none.
    #[error("the system's root certificates cannot be read: entry {index} is broken")]
    BadRoots {
        /// Which certificate it is, counted from 1.
        index: usize,
    },
    /// The authority's certificate is missing or broken.
    #[error("the certificate of the authority cannot be read")]
    BadAuthority,
}

/// Puts the system's roots and Causeway's certificate into one PEM text: the variables by which
/// clients are told whom to trust replace the system's roots, so the file that they point at
/// has to hold both. Comments are dropped, and a certificate that appears twice is kept once.
pub fn bundle(system_roots_pem: &str, ca_pem: &str) -> Result<String, BundleError> {
    let mut all: Vec<CertificateDer<'_>> = Vec::new();
    let roots = rustls_pemfile::certs(&mut system_roots_pem.as_bytes())
        .enumerate()
        .map(|(index, cert)| cert.map_err(|_broken| BundleError::BadRoots { index: index + 1 }))
        .collect::<Result<Vec<_>, _>>()?;
    let ours = rustls_pemfile::certs(&mut ca_pem.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_broken| BundleError::BadAuthority)?;
    if ours.is_empty() {
        return Err(BundleError::BadAuthority);
    }
    for cert in roots.into_iter().chain(ours) {
        if !all.contains(&cert) {
            all.push(cert);
        }
    }
    Ok(all.iter().map(|cert| pem(cert)).collect())
}

fn pem(der: &[u8]) -> String {
    let mut text = String::from("-----BEGIN CERTIFICATE-----\n");
    for (index, c) in base64(der).chars().enumerate() {
        if index > 0 && index % 64 == 0 {
            text.push('\n');
        }
        text.push(c);
    }
    text.push_str("\n-----END CERTIFICATE-----\n");
    text
}

/// RFC 4648, section 4.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |index: usize| u32::from(chunk.get(index).copied().unwrap_or(0));
        let group = byte(0) << 16 | byte(1) << 8 | byte(2);
        for position in 0..4 {
            if position <= chunk.len() {
                let digit = (group >> (18 - 6 * position)) & 0x3f;
                text.push(char::from(ALPHABET[digit as usize]));
            } else {
                text.push('=');
            }
        }
    }
    text
}
