//! The one name that a request is for.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use causeway_types::{DomainName, Reason};
use http::header::HOST;
use http::request::Parts;
use http::uri::Scheme;

use crate::judge::Target;
use crate::session::Session;

/// Who is asked for: the host and, where it is written, the port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Authority {
    pub(crate) host: Host,
    pub(crate) port: Option<u16>,
}

/// A host in canonical form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Host {
    Name(DomainName),
    Address(IpAddr),
}

impl From<Ipv4Addr> for Host {
    fn from(address: Ipv4Addr) -> Self {
        Self::Address(address.into())
    }
}

impl From<Ipv6Addr> for Host {
    fn from(address: Ipv6Addr) -> Self {
        // An IPv4 address in IPv6 notation (RFC 4291, section 2.5.5.2) is that address.
        Self::Address(IpAddr::V6(address).to_canonical())
    }
}

impl Authority {
    /// As it goes into `host` and `:authority` towards the upstream.
    pub(super) fn text(&self) -> String {
        let host = match &self.host {
            Host::Name(name) => name.as_str().to_owned(),
            Host::Address(IpAddr::V4(address)) => address.to_string(),
            Host::Address(IpAddr::V6(address)) => format!("[{address}]"),
        };
        match self.port {
            Some(port) => format!("{host}:{port}"),
            None => host,
        }
    }

    /// The host, when it is a name.
    pub(super) fn name(&self) -> Option<&DomainName> {
        match &self.host {
            Host::Name(name) => Some(name),
            Host::Address(_) => None,
        }
    }
}

/// Reads `host[:port]`. There is no user information, and nothing is left over.
pub(crate) fn parse(text: &str) -> Result<Authority, Reason> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => bracketed(rest)?,
        None => match text.split_once(':') {
            Some((host, port)) => (plain_host(host)?, Some(port)),
            None => (plain_host(text)?, None),
        },
    };
    let port = match port {
        None | Some("") => None,
        Some(digits) => Some(parse_port(digits)?),
    };
    Ok(Authority { host, port })
}

/// What follows `[`: an IPv6 address, `]`, and the port.
fn bracketed(rest: &str) -> Result<(Host, Option<&str>), Reason> {
    let (inside, after) = rest.split_once(']').ok_or(Reason::BadName)?;
    let address: Ipv6Addr = inside.parse().map_err(|_not_one| Reason::BadName)?;
    let port = match after {
        "" => None,
        after => Some(after.strip_prefix(':').ok_or(Reason::BadName)?),
    };
    Ok((Host::from(address), port))
}

/// Reads a host without a port, an IPv6 address without brackets.
pub(crate) fn parse_host(text: &str) -> Result<Host, Reason> {
    match text.parse::<Ipv6Addr>() {
        Ok(address) => Ok(Host::from(address)),
        Err(_not_one) => plain_host(text),
    }
}

fn plain_host(text: &str) -> Result<Host, Reason> {
    // Only the dotted form with four numbers is an address; every other numeric spelling is
    // refused by the name's parser.
    if let Ok(address) = text.parse::<Ipv4Addr>() {
        return Ok(Host::Address(IpAddr::V4(address)));
    }
    DomainName::parse(text)
        .map(Host::Name)
        .map_err(|_malformed| Reason::BadName)
}

fn parse_port(digits: &str) -> Result<u16, Reason> {
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    match digits.parse() {
        Ok(port) if plain => Ok(port),
        _ => Err(Reason::BadName),
    }
}

/// The authority of a request: what `host`, `:authority` and an absolute target say must be one.
pub(super) fn of_request(parts: &Parts) -> Result<Authority, Reason> {
    let mut hosts = parts.headers.get_all(HOST).iter();
    let header = match (hosts.next(), hosts.next()) {
        (_, Some(_second)) => return Err(Reason::AmbiguousRequest),
        (Some(host), None) => {
            let text = host.to_str().map_err(|_not_ascii| Reason::BadName)?;
            Some(parse(text)?)
        }
        (None, None) => None,
    };
    let target = parts.uri.authority().map(|a| parse(a.as_str()));
    match (header, target.transpose()?) {
        (None, None) => Err(Reason::BadName),
        (Some(one), None) | (None, Some(one)) => Ok(one),
        (Some(header), Some(target)) if header == target => Ok(header),
        (Some(_), Some(_)) => Err(Reason::NameMismatch),
    }
}

/// Checks the authority and scheme of a request against the connection that carries it, and
/// gives the target that the request is judged by.
pub(super) fn target(
    session: &Session,
    connection: Option<&Target>,
    parts: &Parts,
    authority: &Authority,
) -> Result<Target, Reason> {
    let tls = connection.is_some();
    let (scheme, default_port) = if tls {
        (&Scheme::HTTPS, 443)
    } else {
        (&Scheme::HTTP, 80)
    };
    if parts.uri.scheme().is_some_and(|given| given != scheme) {
        return Err(Reason::NameMismatch);
    }
    // A port that is left out is the scheme's. Clients that connect elsewhere write it.
    if authority.port.unwrap_or(default_port) != session.port {
        return Err(Reason::NameMismatch);
    }
    if !session.admits(authority.name()) {
        return Err(Reason::NameMismatch);
    }
    match (connection, &authority.host) {
        (Some(connection), Host::Name(name)) if connection.name.as_ref() == Some(name) => {
            Ok(connection.clone())
        }
        (Some(_), _) => Err(Reason::NameMismatch),
        (None, Host::Name(name)) => Ok(session.target(Some(name.clone()), false)),
        (None, Host::Address(address)) => {
            let target = session.target(None, false);
            let same = *address == target.address || *address == IpAddr::V6(session.destination);
            if same {
                Ok(target)
            } else {
                Err(Reason::NameMismatch)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn one_form_or_none() {
        let same = parse("API.Example.com.:443").unwrap();
        assert_eq!(same, parse("api.example.com:443").unwrap());
        assert_eq!(same.text(), "api.example.com:443");
        assert_eq!(
            parse("[2001:DB8::1]:80").unwrap().text(),
            "[2001:db8::1]:80"
        );
        assert_eq!(parse("a.example:").unwrap().port, None);
        for bad in [
            "",
            ":80",
            "allowed:x@attacker.example",
            "allowed@attacker.example",
            "a.example:80:80",
            "a.example:+80",
            "a.example:65536",
            "a.example/",
            "a.example\0.b",
            "a%00.example",
            "[a.example]:443",
            "[::1",
            "[::1]80",
            "2130706433",
            "0x7f000001",
            "127.1",
            "0177.0.0.1",
            "127.0.0.1.",
        ] {
            assert_eq!(parse(bad), Err(Reason::BadName), "{bad:?}");
        }
    }

    fn asked(uri: &str, hosts: &[&str]) -> Result<Authority, Reason> {
        let mut request = Request::builder().uri(uri);
        for host in hosts {
            request = request.header(HOST, *host);
        }
        of_request(&request.body(()).unwrap().into_parts().0)
    }

    #[test]
    fn all_names_of_a_request_are_one() {
        let good = parse("a.example").unwrap();
        assert_eq!(asked("/", &["a.example"]), Ok(good.clone()));
        assert_eq!(
            asked("http://A.example/", &["a.example."]),
            Ok(good.clone())
        );
        assert_eq!(asked("https://a.example/", &[]), Ok(good));
        assert_eq!(asked("/", &[]), Err(Reason::BadName));
        assert_eq!(
            asked("/", &["a.example", "a.example"]),
            Err(Reason::AmbiguousRequest)
        );
        assert_eq!(
            asked("http://a.example/", &["b.example"]),
            Err(Reason::NameMismatch)
        );
        assert_eq!(
            asked("http://a.example/", &["a.example:80"]),
            Err(Reason::NameMismatch)
        );
    }
}
