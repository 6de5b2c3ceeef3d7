//! Secrets at rest: encrypted under a key file that only its owner can read, and wiped from
//! memory when they are dropped.

use std::fmt;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use causeway_types::{SecretName, TenantName};
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use zeroize::Zeroizing;

/// The largest value, in bytes: what fits into the header block of common servers, with room.
pub const MAX_SECRET_BYTES: usize = 64 * 1024;

const KEY_BYTES: usize = 32;
const NONCE_BYTES: usize = 24;

/// Why the key file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The system refused.
    #[error("the key file {} cannot be {action}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was being done: `read`, `created` and so on.
        action: &'static str,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// Others than the owner may read or write the file.
    #[error("the key file {} has mode {mode:03o}: others may read it", path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The file belongs to somebody else.
    #[error("the key file {} belongs to user {owner}, and this process is user {user}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// Who runs this process.
        user: u32,
    },
    /// The file does not hold a key.
    #[error("the key file {} has {length} bytes, and a key has 32", path.display())]
    Length {
        /// The file.
        path: PathBuf,
        /// Its length in bytes.
        length: u64,
    },
    /// The store was encrypted under a key that is gone.
    #[error("the key file {} is missing, and the store holds what was encrypted under it", path.display())]
    Missing {
        /// Where it should be.
        path: PathBuf,
    },
    /// The store was encrypted under another key.
    #[error("the key file {} is not the one that the store was encrypted under", path.display())]
    Mismatch {
        /// The file.
        path: PathBuf,
    },
    /// The system gave no random numbers.
    #[error("the system gives no random numbers")]
    Random(#[source] getrandom::Error),
}

impl KeyError {
    /// What to do about it.
    pub fn help(&self) -> &'static str {
        match self {
            Self::Io { .. } => "check that the state directory exists and is writable by root",
            Self::Exposed { .. } => {
                "if nobody else can have read it, make it private again with `chmod 600`; \
                 otherwise replace every secret"
            }
            Self::Foreign { .. } => "run the agent as the user who owns it",
            Self::Length { .. } | Self::Mismatch { .. } | Self::Missing { .. } => {
                "restore the key file from a backup; nothing in the store was changed"
            }
            Self::Random(_) => "wait until the system has gathered randomness, and start again",
        }
    }
}

/// What could not be encrypted.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// The system gave no random numbers.
    #[error("the system gives no random numbers")]
    Random(#[source] getrandom::Error),
    /// More than the cipher takes at once.
    #[error("too large to encrypt")]
    TooLarge,
}

/// What could not be decrypted.
#[derive(Debug, thiserror::Error)]
#[error("what is stored for {what} does not decrypt: it is damaged, or from another store")]
pub struct UnsealError {
    /// The secret's full name, or what else was sealed.
    pub what: String,
}

/// Why a value was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SecretValueError {
    /// No bytes at all.
    #[error("the value is empty")]
    Empty,
    /// More than [`MAX_SECRET_BYTES`].
    #[error("the value has {length} bytes, and {MAX_SECRET_BYTES} is the most")]
    TooLong {
        /// Its length in bytes.
        length: usize,
    },
    /// It cannot be sent in a header.
    #[error("the value has a line break or another control character at byte {position}")]
    Control {
        /// The position, counted from 1.
        position: usize,
    },
    /// It is not text.
    #[error("the value is not UTF-8 text")]
    NotText,
}

/// The value of a secret. It shows itself to nobody who formats it, and is wiped when dropped.
#[derive(Clone)]
pub struct SecretValue(Zeroizing<String>);

impl SecretValue {
    /// Takes the bytes of a value: text, 1 to [`MAX_SECRET_BYTES`] bytes, without the control
    /// characters that no header can carry (RFC 9110, section 5.5). One trailing line break,
    /// which `echo` and editors add, is dropped.
    pub fn new(bytes: &[u8]) -> Result<Self, SecretValueError> {
        let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        if bytes.is_empty() {
            return Err(SecretValueError::Empty);
        }
        if bytes.len() > MAX_SECRET_BYTES {
            return Err(SecretValueError::TooLong {
                length: bytes.len(),
            });
        }
        if let Some(index) = bytes
            .iter()
            .position(|byte| byte.is_ascii_control() && *byte != b'\t')
        {
            return Err(SecretValueError::Control {
                position: index + 1,
            });
        }
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Self(Zeroizing::new(text.to_owned()))),
            Err(_invalid) => Err(SecretValueError::NotText),
        }
    }

    /// The value itself, for the one place that sends it on.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretValue(…)")
    }
}

/// The cipher that seals what must not be on disk in clear.
pub struct Vault(XChaCha20Poly1305);

impl fmt::Debug for Vault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Vault(…)")
    }
}

impl Vault {
    /// Opens the key file at `path`, or makes one when there is none and `create` is set.
    pub fn open(path: &Path, create: bool) -> Result<Self, KeyError> {
        match Self::read(path) {
            Err(KeyError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                if create {
                    Self::create(path)
                } else {
                    Err(KeyError::Missing {
                        path: path.to_owned(),
                    })
                }
            }
            other => other,
        }
    }

    fn read(path: &Path) -> Result<Self, KeyError> {
        let io = |action| {
            move |source| KeyError::Io {
                path: path.to_owned(),
                action,
                source,
            }
        };
        let mut file = std::fs::OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
            .open(path)
            .map_err(io("opened"))?;
        let metadata = file.metadata().map_err(io("examined"))?;
        let mode = metadata.mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(KeyError::Exposed {
                path: path.to_owned(),
                mode,
            });
        }
        let user = nix::unistd::geteuid().as_raw();
        if metadata.uid() != user {
            return Err(KeyError::Foreign {
                path: path.to_owned(),
                owner: metadata.uid(),
                user,
            });
        }
        if metadata.len() != KEY_BYTES as u64 {
            return Err(KeyError::Length {
                path: path.to_owned(),
                length: metadata.len(),
            });
        }
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        file.read_exact(key.as_mut()).map_err(io("read"))?;
        Ok(Self(XChaCha20Poly1305::new((&*key).into())))
    }

    /// The key is on disk under its name before anything is encrypted under it: a crash in
    /// between leaves a `.new` file, which the next start writes over.
    fn create(path: &Path) -> Result<Self, KeyError> {
        let io = |action| {
            move |source| KeyError::Io {
                path: path.to_owned(),
                action,
                source,
            }
        };
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        getrandom::fill(key.as_mut()).map_err(KeyError::Random)?;
        let fresh = path.with_extension("new");
        match std::fs::remove_file(&fresh) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(io("replaced")(error));
            }
            _ => {}
        }
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
            .open(&fresh)
            .map_err(io("created"))?;
        file.write_all(key.as_ref()).map_err(io("written"))?;
        file.sync_all().map_err(io("written"))?;
        std::fs::rename(&fresh, path).map_err(io("created"))?;
        if let Some(directory) = path.parent() {
            File::open(directory)
                .and_then(|directory| directory.sync_all())
                .map_err(io("created"))?;
        }
        Ok(Self(XChaCha20Poly1305::new((&*key).into())))
    }

    /// Encrypts `clear` so that it opens only under the same `name`.
    pub fn seal(&self, name: &str, clear: &[u8]) -> Result<Vec<u8>, SealError> {
        let mut nonce = [0; NONCE_BYTES];
        getrandom::fill(&mut nonce).map_err(SealError::Random)?;
        let payload = Payload {
            msg: clear,
            aad: name.as_bytes(),
        };
        let mut sealed = nonce.to_vec();
        match self.0.encrypt(XNonce::from_slice(&nonce), payload) {
            Ok(bytes) => sealed.extend_from_slice(&bytes),
            Err(_opaque) => return Err(SealError::TooLarge),
        }
        Ok(sealed)
    }

    /// Decrypts what [`Vault::seal`] made for `name`.
    pub fn unseal(&self, name: &str, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, UnsealError> {
        let damaged = || UnsealError {
            what: name.to_owned(),
        };
        let (nonce, bytes) = sealed.split_at_checked(NONCE_BYTES).ok_or_else(damaged)?;
        let payload = Payload {
            msg: bytes,
            aad: name.as_bytes(),
        };
        match self.0.decrypt(XNonce::from_slice(nonce), payload) {
            Ok(clear) => Ok(Zeroizing::new(clear)),
            Err(_opaque) => Err(damaged()),
        }
    }
}

/// The name that a secret is sealed under, so that a value moved to another name does not open.
pub fn sealed_name(tenant: &TenantName, name: &SecretName) -> String {
    format!("secret:{tenant}/{name}")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_value_opens_only_under_its_name_and_key() {
        let dir = tempfile::tempdir().unwrap();
        let vault = Vault::open(&dir.path().join("key"), true).unwrap();
        let other = Vault::open(&dir.path().join("other"), true).unwrap();
        let sealed = vault.seal("secret:acme/A", b"hunter2").unwrap();
        assert!(!sealed.windows(7).any(|window| window == b"hunter2"));
        assert_eq!(
            &**vault.unseal("secret:acme/A", &sealed).unwrap(),
            b"hunter2"
        );
        assert!(vault.unseal("secret:acme/B", &sealed).is_err());
        assert!(other.unseal("secret:acme/A", &sealed).is_err());
        let mut flipped = sealed.clone();
        *flipped.last_mut().unwrap() ^= 1;
        assert!(vault.unseal("secret:acme/A", &flipped).is_err());
        assert!(vault.unseal("secret:acme/A", &sealed[..10]).is_err());
    }

    #[test]
    fn the_key_file_is_private_or_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        assert!(matches!(
            Vault::open(&path, false),
            Err(KeyError::Missing { .. })
        ));
        Vault::open(&path, true).unwrap();
        let mode = std::fs::metadata(&path).unwrap().mode() & 0o777;
        assert_eq!(mode, 0o600);
        Vault::open(&path, false).unwrap();
        for mode in [0o640, 0o604, 0o620] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert!(matches!(
                Vault::open(&path, true),
                Err(KeyError::Exposed { .. })
            ));
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::write(&path, b"short").unwrap();
        assert!(matches!(
            Vault::open(&path, true),
            Err(KeyError::Length { length: 5, .. })
        ));
    }

    #[test]
    fn values_lose_one_line_break_and_nothing_else() {
        assert_eq!(SecretValue::new(b"abc\n").unwrap().expose(), "abc");
        assert_eq!(SecretValue::new(b"abc\r\n").unwrap().expose(), "abc");
        assert_eq!(SecretValue::new(b" abc ").unwrap().expose(), " abc ");
        assert_eq!(
            SecretValue::new(b"a\nb").unwrap_err(),
            SecretValueError::Control { position: 2 }
        );
        assert!(SecretValue::new(b"\n").is_err());
        assert!(SecretValue::new(&[0xff]).is_err());
        assert!(SecretValue::new(&vec![b'x'; MAX_SECRET_BYTES]).is_ok());
        assert!(SecretValue::new(&vec![b'x'; MAX_SECRET_BYTES + 1]).is_err());
        let shown = format!("{:?}", SecretValue::new(b"hunter2").unwrap());
        assert!(!shown.contains("hunter2"));
    }
}
