//! What each fuzz target does with its input: take it, and check what must hold of the answer.

mod dns;
mod netlink;
mod policy;
mod secrets;
mod vpp;

use causeway_egress::control::{FromProxy, ToProxy};
use causeway_egress::explicit::socks;
use causeway_egress::sniff::{Sniffed, sniff};
use causeway_policy::CanonicalPath;
use causeway_types::DomainName;

pub use dns::dns_query;
pub use netlink::netlink_reply;
pub use policy::{policy_decision, policy_file, policy_import};
pub use secrets::{placeholder_swap, redaction};
pub use vpp::{vpp_reply, vpp_stats};

/// A host name in its canonical form is its own canonical form, and no address.
pub fn domain_name(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let Ok(name) = DomainName::parse(text) else {
        return;
    };
    let canonical = name.as_str();
    assert_eq!(DomainName::parse(canonical).as_ref(), Ok(&name));
    assert!(canonical.len() <= DomainName::MAX);
    assert!(!canonical.ends_with('.'));
    assert!(
        canonical
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && !byte.is_ascii_uppercase())
    );
    assert!(canonical.parse::<std::net::IpAddr>().is_err());
}

/// A path in its canonical form is its own canonical form, and leads nowhere up.
pub fn canonical_path(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let Ok(path) = CanonicalPath::parse(text) else {
        return;
    };
    let canonical = path.as_str();
    assert_eq!(CanonicalPath::parse(canonical).as_ref(), Ok(&path));
    assert!(canonical.starts_with('/'));
    for bad in [
        "//", "\\", "/./", "/../", "?", "#", "%2f", "%2F", "%5c", "%5C", "%00",
    ] {
        assert!(!canonical.contains(bad), "{canonical} has {bad}");
    }
    assert!(!canonical.ends_with("/.") && !canonical.ends_with("/.."));
}

/// A verdict on the first bytes stays when more arrive, and at some length there is one.
pub fn first_bytes(data: &[u8]) {
    let whole = sniff(data);
    let cuts = (0..data.len().min(64)).chain([data.len() / 2, data.len().saturating_sub(1)]);
    for cut in cuts {
        let early = sniff(&data[..cut]);
        if early.is_some() {
            assert_eq!(early, whole, "after {cut} bytes");
        }
    }
    if let Some(Sniffed::Tls(hello)) = whole {
        // Only looked at, so that every accessor has run on it.
        let _speaks_http = hello.may_speak_http();
    }
}

/// A SOCKS request that is read is the same with more bytes behind it, and asks for no name that
/// is an address.
pub fn socks_request(data: &[u8]) {
    let _greeting = socks::greeting(data);
    if let Ok(Some((read, used))) = socks::request(data) {
        assert!(used <= data.len(), "no more than there is");
        let exact = socks::request(&data[..used]);
        assert_eq!(exact, Ok(Some((read, used))), "nothing behind it counts");
        for cut in 0..used {
            assert_eq!(socks::request(&data[..cut]), Ok(None), "cut at {cut}");
        }
    }
}

/// A control message that is understood is written and understood again.
pub fn control_message(data: &[u8]) {
    if let Ok(message) = serde_json::from_slice::<ToProxy>(data) {
        let text = serde_json::to_vec(&message).expect("a message can be written");
        let again: ToProxy = serde_json::from_slice(&text).expect("and read");
        assert_eq!(text, serde_json::to_vec(&again).expect("and written again"));
    }
    if let Ok(message) = serde_json::from_slice::<FromProxy>(data) {
        let text = serde_json::to_vec(&message).expect("a message can be written");
        let again: FromProxy = serde_json::from_slice(&text).expect("and read");
        assert_eq!(message, again);
    }
}
