//! What VPP has to know of a port, and how it is written into names and tags.

use std::net::Ipv6Addr;
use std::path::PathBuf;

use causeway_types::{MacAddress, SandboxUid};

use super::direct::Link;

/// How VPP gets at a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Inlet {
    /// Through an interface of the host: one end of a veth pair, or a tap.
    Host(String),
    /// Through a vhost-user socket. VPP listens when nobody else does.
    VhostUser(PathBuf),
    /// Through a memif socket on which VPP listens.
    Memif(PathBuf),
}

/// The alias of the router's end begins with this.
const ALIAS: &str = "causeway vpp ";

impl Inlet {
    /// Whether the guest writes to memory that VPP works in.
    pub(super) fn is_shared_memory(&self) -> bool {
        match self {
            Self::Host(_) => false,
            Self::VhostUser(_) | Self::Memif(_) => true,
        }
    }

    /// As the alias of the router's end, so that it is known as long as that exists.
    pub(super) fn alias(&self) -> String {
        match self {
            Self::Host(name) => format!("{ALIAS}host {name}"),
            Self::VhostUser(socket) => format!("{ALIAS}vhost-user {}", socket.display()),
            Self::Memif(socket) => format!("{ALIAS}memif {}", socket.display()),
        }
    }

    /// Reads such an alias.
    pub(super) fn from_alias(alias: &str) -> Option<Self> {
        let (kind, argument) = alias.strip_prefix(ALIAS)?.split_once(' ')?;
        match kind {
            "host" => Some(Self::Host(argument.to_owned())),
            "vhost-user" => Some(Self::VhostUser(argument.into())),
            "memif" => Some(Self::Memif(argument.into())),
            _ => None,
        }
    }
}

/// What VPP has to know of a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) uid: SandboxUid,
    pub(super) address: Ipv6Addr,
    pub(super) mac: MacAddress,
    pub(super) mtu: u32,
    pub(super) inlet: Inlet,
}

impl Facts {
    /// What decides who it may exchange packets with directly.
    pub(super) fn link(&self) -> Link {
        Link {
            mtu: self.mtu,
            shared_memory: self.inlet.is_shared_memory(),
        }
    }
}

/// The host's end of the pair to a sandbox's namespace.
pub(super) fn port_link(uid: SandboxUid) -> String {
    format!("cv{uid}")
}

/// The host's end of the pair to the router.
pub(super) fn border_link(uid: SandboxUid) -> String {
    format!("cb{uid}")
}

/// What an object in VPP is, by its tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tag {
    /// The interface towards a sandbox, with the two classifier tables that are made for it.
    /// It is written last: a port that has it was made to the end.
    Port(SandboxUid, [u32; 2]),
    /// The interface towards the router.
    Border(SandboxUid),
    /// The bridge domain of the two.
    Bridge(SandboxUid),
}

impl Tag {
    pub(super) fn text(self) -> String {
        match self {
            Self::Port(uid, [first, second]) => format!("causeway port {uid} {first} {second}"),
            Self::Border(uid) => format!("causeway border {uid}"),
            Self::Bridge(uid) => format!("causeway bridge {uid}"),
        }
    }

    /// Reads a tag; somebody else's is none.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut words = text.strip_prefix("causeway ")?.split(' ');
        let kind = words.next()?;
        let uid = words.next()?.parse().ok()?;
        let mut number = || words.next()?.parse().ok();
        let tag = match kind {
            "port" => Self::Port(uid, [number()?, number()?]),
            "border" => Self::Border(uid),
            "bridge" => Self::Bridge(uid),
            _ => return None,
        };
        words.next().is_none().then_some(tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_and_aliases_are_read_as_they_are_written() {
        let uid = SandboxUid::from_random(0xfeed);
        for tag in [
            Tag::Port(uid, [7, u32::MAX]),
            Tag::Border(uid),
            Tag::Bridge(uid),
        ] {
            assert!(tag.text().len() < 64);
            assert_eq!(Tag::parse(&tag.text()), Some(tag));
        }
        for other in [
            "",
            "causeway",
            "causeway port",
            "causeway port x 1 2",
            "mine",
        ] {
            assert_eq!(Tag::parse(other), None, "{other}");
        }
        for inlet in [
            Inlet::Host("cv1".into()),
            Inlet::VhostUser("/run/a b".into()),
            Inlet::Memif("/run/m.sock".into()),
        ] {
            assert_eq!(Inlet::from_alias(&inlet.alias()), Some(inlet));
        }
        assert_eq!(Inlet::from_alias("causeway tap x"), None);
        assert!(port_link(uid).len() < 16 && border_link(uid).len() < 16);
    }
}
