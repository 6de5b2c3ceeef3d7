//! Names and sizes of network interfaces.

use std::fmt;
use std::str::FromStr;

use causeway_types::SandboxUid;
use serde::{Deserialize, Serialize};

/// Why text is not an interface name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not an interface name: 1 to 15 visible characters other than `/` and `:`")]
pub struct InterfaceNameError {
    /// The text, as given.
    pub text: String,
}

/// The name of a Linux network interface: 1 to 15 bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct InterfaceName(String);

impl InterfaceName {
    /// The longest name, in bytes (`IFNAMSIZ` less the final zero).
    pub const MAX: usize = 15;

    /// Checks `name` and takes it.
    pub fn new(name: impl Into<String>) -> Result<Self, InterfaceNameError> {
        let text = name.into();
        let visible = text
            .bytes()
            .all(|b| b.is_ascii_graphic() && b != b'/' && b != b':');
        if text.is_empty() || text.len() > Self::MAX || !visible || text == "." || text == ".." {
            return Err(InterfaceNameError { text });
        }
        Ok(Self(text))
    }

    /// The router's end of a sandbox's attachment: `cw` and the identifier's digits.
    pub fn of_port(uid: SandboxUid) -> Self {
        Self(format!("cw{uid}"))
    }

    /// The sandbox whose router end has this name.
    pub fn port_uid(&self) -> Option<SandboxUid> {
        self.0.strip_prefix("cw")?.parse().ok()
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for InterfaceName {
    /// The interface that a sandbox gets when none is asked for: `eth0`.
    fn default() -> Self {
        Self("eth0".to_owned())
    }
}

impl FromStr for InterfaceName {
    type Err = InterfaceNameError;

    fn from_str(text: &str) -> Result<Self, InterfaceNameError> {
        Self::new(text)
    }
}

impl TryFrom<String> for InterfaceName {
    type Error = InterfaceNameError;

    fn try_from(text: String) -> Result<Self, InterfaceNameError> {
        Self::new(text)
    }
}

impl From<InterfaceName> for String {
    fn from(name: InterfaceName) -> Self {
        name.0
    }
}

impl fmt::Display for InterfaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for InterfaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// Why a number is not an MTU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{bytes} bytes is not an MTU for IPv6: from {min} to {max} are taken", min = Mtu::MIN.0, max = Mtu::MAX.0)]
pub struct MtuError {
    /// The number, as given.
    pub bytes: u32,
}

/// The largest IPv6 packet that an interface carries, in bytes: 1280 (RFC 8200, section 5)
/// to 65535.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Mtu(u32);

impl Mtu {
    /// The smallest that IPv6 allows.
    pub const MIN: Self = Self(1280);
    /// The largest that the kernel's virtual links take.
    pub const MAX: Self = Self(65535);

    /// Checks `bytes` and takes it.
    pub const fn new(bytes: u32) -> Result<Self, MtuError> {
        if bytes < Self::MIN.0 || bytes > Self::MAX.0 {
            return Err(MtuError { bytes });
        }
        Ok(Self(bytes))
    }

    /// The number of bytes.
    pub const fn bytes(self) -> u32 {
        self.0
    }
}

impl Default for Mtu {
    /// Ethernet's 1500 bytes.
    fn default() -> Self {
        Self(1500)
    }
}

impl TryFrom<u32> for Mtu {
    type Error = MtuError;

    fn try_from(bytes: u32) -> Result<Self, MtuError> {
        Self::new(bytes)
    }
}

impl From<Mtu> for u32 {
    fn from(mtu: Mtu) -> Self {
        mtu.0
    }
}

impl fmt::Display for Mtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_names_fit_the_kernel() {
        for good in ["eth0", "a", "cw0123456789abc", "tap.1"] {
            assert!(InterfaceName::new(good).is_ok(), "{good}");
        }
        for bad in ["", ".", "..", "a b", "a/b", "a:b", "sixteen-letters-", "é"] {
            assert!(InterfaceName::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_port_name_leads_back_to_its_sandbox() {
        let uid = SandboxUid::from_random(0xfeed);
        assert_eq!(InterfaceName::of_port(uid).port_uid(), Some(uid));
        assert_eq!(InterfaceName::new("cw-up").unwrap().port_uid(), None);
    }

    #[test]
    fn mtu_bounds() {
        for (bytes, good) in [(1279, false), (1280, true), (65535, true), (65536, false)] {
            assert_eq!(Mtu::new(bytes).is_ok(), good, "{bytes}");
        }
    }
}
