//! Addresses of the standard library.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{DecodeError, EncodeError, Reader, Wire, Writer};

impl Wire for Ipv4Addr {
    const MIN: usize = 4;

    fn put(&self, out: &mut Writer) -> Result<(), EncodeError> {
        out.bytes(&self.octets());
        Ok(())
    }

    fn get(input: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self::from(input.array::<4>()?))
    }

    fn unset() -> Self {
        Self::UNSPECIFIED
    }
}

impl Wire for Ipv6Addr {
    const MIN: usize = 16;

    fn put(&self, out: &mut Writer) -> Result<(), EncodeError> {
        out.bytes(&self.octets());
        Ok(())
    }

    fn get(input: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self::from(input.array::<16>()?))
    }

    fn unset() -> Self {
        Self::UNSPECIFIED
    }
}

/// A family and a union as large as the larger address.
impl Wire for IpAddr {
    const MIN: usize = 17;

    fn put(&self, out: &mut Writer) -> Result<(), EncodeError> {
        match self {
            IpAddr::V4(address) => {
                out.bytes(&[0]);
                out.bytes(&address.octets());
                out.zeros(12);
            }
            IpAddr::V6(address) => {
                out.bytes(&[1]);
                out.bytes(&address.octets());
            }
        }
        Ok(())
    }

    fn get(input: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let [family, octets @ ..] = input.array::<17>()?;
        match family {
            0 => {
                let [a, b, c, d, ..] = octets;
                Ok(IpAddr::from([a, b, c, d]))
            }
            1 => Ok(IpAddr::from(octets)),
            _ => Err(DecodeError::Tag {
                union: "address",
                tag: family.into(),
            }),
        }
    }

    fn unset() -> Self {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED)
    }
}
