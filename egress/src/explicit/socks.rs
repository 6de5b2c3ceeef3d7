//! SOCKS version 5 (RFC 1928) on the server's side, as far as bytes go. Pure.

use std::net::{Ipv4Addr, Ipv6Addr};

use causeway_types::Reason;

use crate::engine::{Host, parse_host};

/// The version that is spoken.
pub const VERSION: u8 = 5;
/// The method "no authentication required": who asks is known by the source address.
const NO_AUTHENTICATION: u8 = 0;
const CONNECT: u8 = 1;
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

/// Why a request is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SocksError {
    /// Another version, or a reserved byte that is not zero.
    #[error("this is not SOCKS version 5")]
    NotSocks,
    /// The client has no method that needs no authentication.
    #[error("the client does not offer to go without authentication")]
    Authentication,
    /// BIND, UDP ASSOCIATE, or an unknown command.
    #[error("the command {0} is not offered")]
    Command(u8),
    /// An address of an unknown type.
    #[error("{0} is no type of address")]
    AddressType(u8),
    /// A name that is none.
    #[error("the name is not a host name")]
    BadName,
}

/// Where a client wants to be connected to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub(crate) host: Host,
    pub(crate) port: u16,
}

/// Reads the client's methods: how many bytes they take, or none when more have to come.
pub fn greeting(bytes: &[u8]) -> Result<Option<usize>, SocksError> {
    match bytes {
        [version, ..] if *version != VERSION => Err(SocksError::NotSocks),
        [_, count, methods @ ..] => {
            let count = usize::from(*count);
            let Some(methods) = methods.get(..count) else {
                return Ok(None);
            };
            if methods.contains(&NO_AUTHENTICATION) {
                Ok(Some(2 + count))
            } else {
                Err(SocksError::Authentication)
            }
        }
        _ => Ok(None),
    }
}

/// Reads a request and says how many bytes it takes, or none when more have to come.
pub fn request(bytes: &[u8]) -> Result<Option<(Request, usize)>, SocksError> {
    let [version, command, reserved, kind, rest @ ..] = bytes else {
        return Ok(None);
    };
    if *version != VERSION || *reserved != 0 {
        return Err(SocksError::NotSocks);
    }
    if *command != CONNECT {
        return Err(SocksError::Command(*command));
    }
    let (host, after) = match *kind {
        IPV4 => match rest.split_first_chunk::<4>() {
            Some((octets, after)) => (Ok(Host::from(Ipv4Addr::from(*octets))), after),
            None => return Ok(None),
        },
        IPV6 => match rest.split_first_chunk::<16>() {
            Some((octets, after)) => (Ok(Host::from(Ipv6Addr::from(*octets))), after),
            None => return Ok(None),
        },
        NAME => match rest.split_first() {
            Some((length, rest)) => match rest.split_at_checked(usize::from(*length)) {
                Some((name, after)) => (read_name(name), after),
                None => return Ok(None),
            },
            None => return Ok(None),
        },
        other => return Err(SocksError::AddressType(other)),
    };
    let Some(port) = after.first_chunk::<2>() else {
        return Ok(None);
    };
    let used = bytes.len() - after.len() + 2;
    let port = u16::from_be_bytes(*port);
    Ok(Some((Request { host: host?, port }, used)))
}

fn read_name(name: &[u8]) -> Result<Host, SocksError> {
    let text = std::str::from_utf8(name).map_err(|_not_text| SocksError::BadName)?;
    parse_host(text).map_err(|_malformed| SocksError::BadName)
}

/// The choice of method.
pub(super) const CHOSEN: [u8; 2] = [VERSION, NO_AUTHENTICATION];
/// None of the methods is acceptable.
pub(super) const NO_METHOD: [u8; 2] = [VERSION, 0xff];

/// The reply with this code. The address that the proxy connected from is nobody's concern.
pub(super) const fn reply(code: u8) -> [u8; 10] {
    [VERSION, code, 0, IPV4, 0, 0, 0, 0, 0, 0]
}

/// The connection is there.
pub(super) const SUCCEEDED: u8 = 0;

/// The reply's code for a refusal.
pub(super) fn code(reason: Reason) -> u8 {
    match reason {
        Reason::Unresolved => 4,
        Reason::UpstreamUnreachable => 5,
        Reason::LimitReached | Reason::TimedOut => 1,
        // Not allowed by the rules.
        _ => 2,
    }
}

impl SocksError {
    /// The reason in the audit log.
    pub(super) fn reason(self) -> Reason {
        match self {
            Self::BadName => Reason::BadName,
            Self::NotSocks | Self::Authentication | Self::Command(_) | Self::AddressType(_) => {
                Reason::Unsupported
            }
        }
    }

    /// What the client gets.
    pub(super) fn reply(self) -> Option<Vec<u8>> {
        match self {
            Self::NotSocks => None,
            Self::Authentication => Some(NO_METHOD.to_vec()),
            Self::Command(_) => Some(reply(7).to_vec()),
            Self::AddressType(_) => Some(reply(8).to_vec()),
            Self::BadName => Some(reply(2).to_vec()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn named(name: &[u8]) -> Vec<u8> {
        let length = u8::try_from(name.len()).unwrap();
        [&[5, 1, 0, 3, length], name, &[1, 0xbb]].concat()
    }

    #[test]
    fn a_client_that_needs_no_password_is_welcome() {
        assert_eq!(greeting(&[5, 1, 0]), Ok(Some(3)));
        assert_eq!(greeting(&[5, 2, 2, 0, 9]), Ok(Some(4)));
        for part in [&[][..], &[5], &[5, 2, 2]] {
            assert_eq!(greeting(part), Ok(None), "{part:?}");
        }
        assert_eq!(greeting(&[5, 1, 2]), Err(SocksError::Authentication));
        assert_eq!(greeting(&[5, 0]), Err(SocksError::Authentication));
        assert_eq!(greeting(&[4, 1, 0]), Err(SocksError::NotSocks));
    }

    #[test]
    fn each_kind_of_address_is_read_in_one_form() {
        let host = |bytes: &[u8]| request(bytes).unwrap().unwrap().0.host;
        let v4 = host(&[5, 1, 0, 1, 192, 0, 2, 1, 0, 80]);
        assert_eq!(v4, Host::from(Ipv4Addr::new(192, 0, 2, 1)));
        assert_eq!(host(&named(b"192.0.2.1")), v4);
        let mapped = [
            &[5, 1, 0, 4][..],
            &[0; 10],
            &[0xff, 0xff, 192, 0, 2, 1, 0, 80],
        ]
        .concat();
        assert_eq!(host(&mapped), v4, "one address in two notations");
        let name = host(&named(b"A.example."));
        assert_eq!(name, Host::Name("a.example".parse().unwrap()));
        assert_eq!(request(&named(b"a.example")).unwrap().unwrap().0.port, 443);
    }

    #[test]
    fn names_that_end_early_elsewhere_are_refused() {
        assert!(
            request(&named(b"attacker.allowed.example")).is_ok(),
            "the control"
        );
        for bad in [
            &b"attacker.example\0.allowed.example"[..],
            b"",
            b"allowed.example:443",
            b"user@allowed.example",
            b"2130706433",
            b"0x7f000001",
            b"0177.0.0.1",
            b"127.1",
            b"127.0.0.1.",
            b"[::1]",
            b"a\xff.example",
        ] {
            assert_eq!(request(&named(bad)), Err(SocksError::BadName), "{bad:?}");
        }
    }

    #[test]
    fn what_is_not_offered_is_told() {
        for command in [0, 2, 3, 0x80] {
            let bytes = [5, command, 0, 1, 192, 0, 2, 1, 0, 80];
            assert_eq!(request(&bytes), Err(SocksError::Command(command)));
        }
        assert_eq!(request(&[5, 1, 0, 2, 0]), Err(SocksError::AddressType(2)));
        assert_eq!(request(&[5, 1, 1, 1, 0]), Err(SocksError::NotSocks));
    }

    proptest! {
        #[test]
        fn more_bytes_change_nothing(name in "[a-z]{1,20}\\.example", extra: Vec<u8>) {
            let whole = named(name.as_bytes());
            for cut in 0..whole.len() {
                prop_assert_eq!(request(&whole[..cut]), Ok(None));
            }
            let longer = [&whole[..], &extra].concat();
            let (read, used) = request(&longer).unwrap().unwrap();
            prop_assert_eq!(used, whole.len());
            prop_assert_eq!(read, request(&whole).unwrap().unwrap().0);
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes: Vec<u8>) {
            let _read = (greeting(&bytes), request(&bytes));
        }
    }
}
