//! Ethernet addresses.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Why text is not an Ethernet address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not an Ethernet address: write six bytes, such as 02:00:00:00:00:01")]
pub struct MacError {
    /// The text, as given.
    pub text: String,
}

/// A 48-bit Ethernet address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MacAddress([u8; 6]);

impl MacAddress {
    /// The router's end of every attachment: one address, since each is its own link.
    pub const GATEWAY: Self = Self([0x02, 0xca, 0x05, 0xe0, 0x00, 0x01]);

    /// Takes the six bytes as they are.
    pub const fn new(bytes: [u8; 6]) -> Self {
        Self(bytes)
    }

    /// The address of the sandbox that holds `lease`: unicast and locally
    /// administered (IEEE 802, section 8.4), the low 40 bits of the lease below a fixed first
    /// byte. It depends on the lease alone, so it stays when the sandbox moves.
    pub fn for_lease(lease: Ipv6Addr) -> Self {
        let octets = lease.octets();
        let [.., b, c, d, e, f] = octets;
        Self([0x06, b, c, d, e, f])
    }

    /// The six bytes, in transmission order.
    pub const fn octets(self) -> [u8; 6] {
        self.0
    }

    /// The link-local address with the modified EUI-64 identifier of this address
    /// (RFC 4291, appendix A).
    pub fn link_local(self) -> Ipv6Addr {
        let [a, b, c, d, e, f] = self.0;
        Ipv6Addr::from([
            0xfe,
            0x80,
            0,
            0,
            0,
            0,
            0,
            0,
            a ^ 0x02,
            b,
            c,
            0xff,
            0xfe,
            d,
            e,
            f,
        ])
    }
}

impl FromStr for MacAddress {
    type Err = MacError;

    fn from_str(text: &str) -> Result<Self, MacError> {
        let error = || MacError {
            text: text.to_owned(),
        };
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts
                .next()
                .filter(|part| part.len() == 2)
                .ok_or_else(error)?;
            *byte = u8::from_str_radix(part, 16).ok().ok_or_else(error)?;
        }
        if parts.next().is_some() {
            Err(error())
        } else {
            Ok(Self(bytes))
        }
    }
}

impl TryFrom<String> for MacAddress {
    type Error = MacError;

    fn try_from(text: String) -> Result<Self, MacError> {
        text.parse()
    }
}

impl From<MacAddress> for String {
    fn from(mac: MacAddress) -> String {
        mac.to_string()
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips() {
        let mac = MacAddress::new([2, 0, 0xff, 1, 2, 3]);
        assert_eq!(mac.to_string(), "02:00:ff:01:02:03");
        assert_eq!(mac.to_string().parse::<MacAddress>().unwrap(), mac);
        for bad in [
            "",
            "02:00",
            "02:00:ff:01:02:03:04",
            "2:0:f:1:2:3",
            "02:00:ff:01:02:0g",
        ] {
            assert!(bad.parse::<MacAddress>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_lease_gives_a_local_unicast_address() {
        let mac = MacAddress::for_lease("2001:db8::ff:fe00:1".parse().unwrap());
        assert_eq!(mac.octets()[0] & 0x03, 0x02);
    }

    #[test]
    fn link_local_follows_rfc_4291() {
        let mac: MacAddress = "34:56:78:9a:bc:de".parse().unwrap();
        assert_eq!(
            mac.link_local(),
            "fe80::3656:78ff:fe9a:bcde".parse::<Ipv6Addr>().unwrap()
        );
    }
}
