//! What a node makes up for itself at its first start and keeps: its prefix, its keys and its
//! certificate authority.

use std::net::Ipv6Addr;
use std::time::SystemTime;

use causeway_egress::ca::{CaError, CertificateAuthority};
use ipnet::Ipv6Net;
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::secrets::{KeyError, SealError, Vault};
use crate::store::{LoadError, Store, Write, WriteError};

const SEALED: &str = "identity";
const CERTIFICATE: &str = "ca_certificate";
const PREFIX: &str = "prefix";
/// The name that what is sealed is bound to.
const SEALED_NAME: &str = "node:identity";

/// Why a node's identity could not be made or read.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The key file is missing, exposed, or another one.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The store cannot be read.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The store cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The certificate authority could not be made.
    #[error("the certificate authority could not be made")]
    Ca(#[from] CaError),
    /// What must be secret could not be encrypted.
    #[error("the node's keys could not be encrypted")]
    Seal(#[from] SealError),
    /// The system gave no random numbers.
    #[error("the system gives no random numbers")]
    Random(#[source] getrandom::Error),
    /// What the store holds is not an identity.
    #[error("what the store holds as the node's {part} is damaged")]
    Damaged {
        /// Which part.
        part: &'static str,
    },
    /// The form for the store failed.
    #[error("the node's keys could not be encoded")]
    Encode(#[source] serde_json::Error),
}

/// What must not be on disk in clear.
#[derive(Serialize, Deserialize, Zeroize, ZeroizeOnDrop)]
#[serde(deny_unknown_fields)]
struct Keys {
    addresses: [u8; 16],
    placeholders: [u8; 16],
    ca_key_pem: String,
}

/// A node's identity.
pub(super) struct Identity {
    pub(super) vault: Vault,
    pub(super) prefix: Ipv6Net,
    /// Whether the prefix was made up, and not configured.
    pub(super) made_up: bool,
    pub(super) address_key: [u8; 16],
    pub(super) placeholder_key: [u8; 16],
    pub(super) ca_cert_pem: String,
    pub(super) ca_key_pem: Zeroizing<String>,
}

/// Reads the identity from the store, or makes one.
pub(super) fn load_or_make(
    store: &Store,
    key_path: &std::path::Path,
    configured: Option<Ipv6Net>,
) -> Result<Identity, IdentityError> {
    let sealed = store.meta(SEALED)?;
    let vault = Vault::open(key_path, sealed.is_none())?;
    let (keys, ca_cert_pem) = match sealed {
        Some(sealed) => {
            let keys = unseal(&vault, key_path, &sealed)?;
            (keys, text(store, CERTIFICATE)?)
        }
        None => make(store, &vault)?,
    };
    let stored = match store.meta(PREFIX)? {
        Some(_) => Some(
            text(store, PREFIX)?
                .parse()
                .map_err(|_bad| IdentityError::Damaged { part: PREFIX })?,
        ),
        None => None,
    };
    let prefix = match (configured, stored) {
        (Some(prefix), _) => prefix,
        (None, Some(prefix)) => prefix,
        (None, None) => {
            let prefix = random_ula()?;
            let bytes = prefix.to_string().into_bytes();
            store.write_blocking(&[Write::Meta(PREFIX, bytes)])?;
            prefix
        }
    };
    Ok(Identity {
        vault,
        prefix,
        made_up: configured.is_none(),
        address_key: keys.addresses,
        placeholder_key: keys.placeholders,
        ca_cert_pem,
        ca_key_pem: Zeroizing::new(keys.ca_key_pem.clone()),
    })
}

fn unseal(vault: &Vault, key_path: &std::path::Path, sealed: &[u8]) -> Result<Keys, IdentityError> {
    // It opens under one key only, so that this checks the key file too.
    let Ok(clear) = vault.unseal(SEALED_NAME, sealed) else {
        return Err(KeyError::Mismatch {
            path: key_path.to_owned(),
        }
        .into());
    };
    match serde_json::from_slice(&clear) {
        Ok(keys) => Ok(keys),
        Err(_damaged) => Err(IdentityError::Damaged { part: SEALED }),
    }
}

fn make(store: &Store, vault: &Vault) -> Result<(Keys, String), IdentityError> {
    let ca = CertificateAuthority::generate("Causeway sandbox egress", SystemTime::now())?;
    let keys = Keys {
        addresses: random()?,
        placeholders: random()?,
        ca_key_pem: ca.key_pem.as_str().to_owned(),
    };
    let clear = Zeroizing::new(serde_json::to_vec(&keys).map_err(IdentityError::Encode)?);
    let sealed = vault.seal(SEALED_NAME, &clear)?;
    store.write_blocking(&[
        Write::Meta(SEALED, sealed),
        Write::Meta(CERTIFICATE, ca.cert_pem.clone().into_bytes()),
    ])?;
    Ok((keys, ca.cert_pem))
}

fn text(store: &Store, part: &'static str) -> Result<String, IdentityError> {
    let bytes = store.meta(part)?.unwrap_or_default();
    match String::from_utf8(bytes) {
        Ok(text) if !text.is_empty() => Ok(text),
        _ => Err(IdentityError::Damaged { part }),
    }
}

fn random<const N: usize>() -> Result<[u8; N], IdentityError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(IdentityError::Random)?;
    Ok(bytes)
}

/// A unique local prefix with a random global identifier (RFC 4193, section 3.2).
fn random_ula() -> Result<Ipv6Net, IdentityError> {
    let [a, b, c, d, e] = random()?;
    let mut octets = [0; 16];
    octets[..6].copy_from_slice(&[0xfd, a, b, c, d, e]);
    Ok(Ipv6Net::new_assert(Ipv6Addr::from(octets), 48))
}
