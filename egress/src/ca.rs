//! Causeway's certificate authority: the one certificate that sandboxes trust beside the
//! system roots, and the short-lived leaf certificates that it signs for inspected names.
//!
//! A leaf is minted when a name is first inspected and kept in a bounded cache. Two connections
//! that ask for one name at the same moment share one minting.

mod bundle;
mod mint;

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use causeway_types::DomainName;
use lru::LruCache;
use rcgen::{Issuer, KeyPair};
use rustls::sign::CertifiedKey;
use zeroize::Zeroizing;

pub use bundle::{BundleError, bundle};

/// How long a leaf certificate is valid, counted from its minting.
pub const LEAF_VALIDITY: Duration = Duration::from_secs(7 * 24 * 3600);
/// How long the certificate of a new authority is valid.
pub const CA_VALIDITY: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// How far certificates are dated back: the clock of a restored microVM is often behind.
pub const BACKDATED: Duration = Duration::from_secs(3600);
/// A leaf is minted anew when it would expire within this time, so that a client with a clock
/// that is ahead, or a long connection with late renegotiation, never meets an expired one.
const RENEWAL: Duration = Duration::from_secs(2 * 24 * 3600);
/// How many leaf certificates are kept: each holds a key and a certificate, about 2 KiB.
const LEAVES: NonZeroUsize = NonZeroUsize::new(4096).unwrap();

/// Why a certificate authority was not made or loaded, or a leaf certificate not minted.
#[derive(Debug, thiserror::Error)]
pub enum CaError {
    /// The authority's name is empty, or longer than X.520 allows.
    #[error("a certificate authority's name has 1 to 64 characters, and this one has {length}")]
    BadName {
        /// Its length in characters.
        length: usize,
    },
    /// No key could be made.
    #[error("a key could not be generated")]
    Generate(#[source] rcgen::Error),
    /// The system gave no random numbers.
    #[error("the system gave no random numbers: {0}")]
    Random(getrandom::Error),
    /// The clock shows a time that no certificate can carry.
    #[error("the system's clock shows {now:?}, which no certificate can carry")]
    Clock {
        /// The time that the clock shows.
        now: SystemTime,
    },
    /// The text holds no certificate, or one that cannot be read.
    #[error("the text holds no readable X.509 certificate in PEM form")]
    BadCertificate,
    /// The text holds no private key, or one of a kind that is not supported.
    #[error("the text holds no readable private key in PEM form (PKCS #8; ECDSA, Ed25519 or RSA)")]
    BadKey,
    /// The certificate may not sign others (RFC 5280, sections 4.2.1.3 and 4.2.1.9).
    #[error(
        "the certificate is not one of a certificate authority: basicConstraints CA and key usage keyCertSign are needed"
    )]
    NotAnAuthority,
    /// The certificate belongs to another key.
    #[error("the private key does not belong to the certificate")]
    KeyMismatch,
    /// The authority is not valid at this time.
    #[error("the certificate of the authority is not valid at {now:?}")]
    NotValidNow {
        /// The time asked for.
        now: SystemTime,
    },
    /// The leaf could not be signed.
    #[error("a certificate for `{name}` could not be signed")]
    Sign {
        /// The name to be certified.
        name: DomainName,
        /// What went wrong.
        source: rcgen::Error,
    },
    /// The TLS library does not take the leaf's key.
    #[error("the TLS library refuses the key of the certificate for `{name}`")]
    Tls {
        /// The name to be certified.
        name: DomainName,
        /// What went wrong.
        source: rustls::Error,
    },
}

/// A new authority's certificate and key, in PEM form. The key is overwritten on drop.
pub struct CaPem {
    /// The self-signed certificate, which sandboxes trust.
    pub cert_pem: String,
    /// Its private key (PKCS #8).
    pub key_pem: Zeroizing<String>,
}

impl fmt::Debug for CaPem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CaPem")
            .field("cert_pem", &self.cert_pem)
            .finish_non_exhaustive()
    }
}

/// An authority that signs leaf certificates.
pub struct CertificateAuthority {
    cert_pem: String,
    issuer: Issuer<'static, KeyPair>,
    not_before: SystemTime,
    not_after: SystemTime,
    leaves: Mutex<LruCache<DomainName, Arc<Slot>>>,
}

/// Where one name's leaf is put. Whoever holds the lock mints; others wait for it.
type Slot = Mutex<Option<Leaf>>;

struct Leaf {
    key: Arc<CertifiedKey>,
    not_before: SystemTime,
    not_after: SystemTime,
}

impl Leaf {
    fn serves(&self, now: SystemTime) -> bool {
        self.not_before <= now && now + RENEWAL < self.not_after
    }
}

impl CertificateAuthority {
    /// Makes a new authority: an ECDSA P-256 key and a self-signed certificate that is valid for
    /// [`CA_VALIDITY`] from `now` and may sign leaf certificates only. `name` becomes its common
    /// name: 1 to 64 characters. Key and serial number come from the system's random numbers.
    pub fn generate(name: &str, now: SystemTime) -> Result<CaPem, CaError> {
        mint::authority(name, now)
    }

    /// Loads an authority, and checks that the certificate may sign and belongs to the key.
    pub fn from_pem(cert_pem: &str, key_pem: &str) -> Result<Self, CaError> {
        let loaded = mint::load(cert_pem, key_pem)?;
        Ok(Self {
            cert_pem: cert_pem.to_owned(),
            issuer: loaded.issuer,
            not_before: loaded.not_before,
            not_after: loaded.not_after,
            leaves: Mutex::new(LruCache::new(LEAVES)),
        })
    }

    /// The authority's certificate, in PEM form, as it was loaded.
    pub fn cert_pem(&self) -> &str {
        &self.cert_pem
    }

    /// A certificate for exactly `name`, with its key: from the cache, or minted now, which
    /// takes about a tenth of a millisecond and does not block on anything else.
    pub fn leaf(&self, name: &DomainName, now: SystemTime) -> Result<Arc<CertifiedKey>, CaError> {
        if now < self.not_before || now >= self.not_after {
            return Err(CaError::NotValidNow { now });
        }
        let slot = {
            let mut leaves = self.leaves.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(leaves.get_or_insert_ref(name, Arc::default))
        };
        let mut leaf = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(leaf) = leaf.as_ref().filter(|leaf| leaf.serves(now)) {
            return Ok(Arc::clone(&leaf.key));
        }
        let minted = self.mint(name, now)?;
        let key = Arc::clone(&minted.key);
        *leaf = Some(minted);
        Ok(key)
    }

    fn mint(&self, name: &DomainName, now: SystemTime) -> Result<Leaf, CaError> {
        // A leaf inside the authority's own time: some clients check that the periods nest.
        let not_before = (now - BACKDATED).max(self.not_before);
        let not_after = (now + LEAF_VALIDITY).min(self.not_after);
        let key = mint::leaf(&self.issuer, name, not_before, not_after)?;
        Ok(Leaf {
            key: Arc::new(key),
            not_before,
            not_after,
        })
    }
}

impl fmt::Debug for CertificateAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificateAuthority")
            .field("not_before", &self.not_before)
            .field("not_after", &self.not_after)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
