use std::sync::Arc;

use proptest::prelude::*;
use rustls::pki_types::ServerName;

use super::*;

/// What rustls itself sends.
fn real_hello(name: &str, alpn: &[&[u8]]) -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|p| p.to_vec()).collect();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut connection = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let mut bytes = Vec::new();
    connection.write_tls(&mut bytes).unwrap();
    bytes
}

/// A hello with these extensions.
fn made_hello(extensions: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let mut list = Vec::new();
    for (kind, content) in extensions {
        list.extend(kind.to_be_bytes());
        list.extend(u16::try_from(content.len()).unwrap().to_be_bytes());
        list.extend(content);
    }
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.extend([0, 0, 2, 0x13, 1, 1, 0]);
    body.extend(u16::try_from(list.len()).unwrap().to_be_bytes());
    body.extend(list);
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    let mut message = vec![CLIENT_HELLO, length[1], length[2], length[3]];
    message.extend(body);
    message
}

/// Cuts a handshake message into records of `size` bytes.
fn records(message: &[u8], size: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for fragment in message.chunks(size) {
        bytes.extend([HANDSHAKE, 3, 1]);
        bytes.extend(u16::try_from(fragment.len()).unwrap().to_be_bytes());
        bytes.extend(fragment);
    }
    bytes
}

fn sni(name: &[u8]) -> Vec<u8> {
    let length = u16::try_from(name.len()).unwrap();
    let mut content = (length + 3).to_be_bytes().to_vec();
    content.push(0);
    content.extend(length.to_be_bytes());
    content.extend(name);
    content
}

#[test]
fn a_real_hello_is_read() {
    let bytes = real_hello("api.example.com", &[b"h2", b"http/1.1"]);
    let hello = parse(&bytes).unwrap().unwrap();
    assert_eq!(hello.sni, Sni::Name("api.example.com".parse().unwrap()));
    assert_eq!(hello.alpn, [b"h2".to_vec(), b"http/1.1".to_vec()]);
    assert!(!hello.encrypted && hello.may_speak_http());
    for cut in 0..bytes.len() {
        assert_eq!(parse(&bytes[..cut]), Ok(None), "cut at {cut}");
    }
}

#[test]
fn a_hello_over_many_records_is_read_and_crumbs_are_not() {
    let padding = (21_u16, vec![0; 16_000]);
    let message = made_hello(&[(SERVER_NAME, sni(b"a.example")), padding]);
    for size in [200, 1000, MAX_RECORD] {
        let hello = parse(&records(&message, size)).unwrap().unwrap();
        assert_eq!(hello.sni, Sni::Name("a.example".parse().unwrap()));
    }
    assert_eq!(parse(&records(&message, 10)), Err(HelloError::TooLong));
}

#[test]
fn every_spelling_is_canonical_or_malformed() {
    for good in ["A.Example", "a.example.", "a.example"] {
        let message = made_hello(&[(SERVER_NAME, sni(good.as_bytes()))]);
        let hello = parse(&records(&message, 100)).unwrap().unwrap();
        assert_eq!(hello.sni, Sni::Name("a.example".parse().unwrap()), "{good}");
    }
    let bad: [&[u8]; 9] = [
        b"",
        b"127.0.0.1",
        b"2130706433",
        b"0x7f000001",
        b"127.1",
        b"a.example\0.evil.example",
        b"user@a.example",
        b"a.example:443",
        "bücher.example".as_bytes(),
    ];
    for name in bad {
        let message = made_hello(&[(SERVER_NAME, sni(name))]);
        let hello = parse(&records(&message, 100)).unwrap().unwrap();
        assert_eq!(hello.sni, Sni::Malformed, "{name:?}");
    }
}

#[test]
fn absent_repeated_and_encrypted_are_told_apart() {
    let none = parse(&records(&made_hello(&[]), 100)).unwrap().unwrap();
    assert_eq!(none.sni, Sni::Absent);
    let twice = made_hello(&[
        (SERVER_NAME, sni(b"a.example")),
        (SERVER_NAME, sni(b"b.example")),
    ]);
    assert_eq!(parse(&records(&twice, 500)), Err(HelloError::Repeated));
    let encrypted = made_hello(&[(ENCRYPTED_CLIENT_HELLO, vec![0; 40])]);
    assert!(parse(&records(&encrypted, 500)).unwrap().unwrap().encrypted);
    let mut two_names = sni(b"a.example");
    two_names.extend([0, 0, 1, b'b']);
    two_names[1] += 4;
    let list = made_hello(&[(SERVER_NAME, two_names)]);
    assert_eq!(parse(&records(&list, 500)), Err(HelloError::Malformed));
}

#[test]
fn what_is_no_hello_is_named() {
    assert_eq!(parse(b"\x16\x02"), Err(HelloError::NotTls));
    assert_eq!(parse(b"\x16\x03\x01\x00\x00"), Err(HelloError::NotTls));
    let server_hello = records(&[2, 0, 0, 1, 0], 100);
    assert_eq!(parse(&server_hello), Err(HelloError::Malformed));
    let endless = [CLIENT_HELLO, 0xff, 0xff, 0xff];
    assert_eq!(parse(&records(&endless, 100)), Err(HelloError::TooLong));
}

proptest! {
    #[test]
    fn arbitrary_bytes_after_a_good_start_do_not_panic(
        tail in proptest::collection::vec(any::<u8>(), 0..2000),
    ) {
        let mut bytes = vec![HANDSHAKE, 3, 1, 4, 0, CLIENT_HELLO, 0, 3, 0xfc];
        bytes.extend(tail);
        let _result = parse(&bytes);
    }

    #[test]
    fn one_changed_byte_does_not_panic(at in 0_usize..200, value in any::<u8>()) {
        let mut bytes = real_hello("api.example.com", &[b"h2"]);
        let at = at.min(bytes.len() - 1);
        bytes[at] = value;
        let _result = parse(&bytes);
    }

    #[test]
    fn splitting_changes_nothing(size in 200_usize..5000) {
        let message = made_hello(&[(SERVER_NAME, sni(b"a.example")), (21, vec![0; 4000])]);
        let whole = parse(&records(&message, MAX_RECORD)).unwrap();
        prop_assert!(whole.is_some());
        prop_assert_eq!(parse(&records(&message, size)).unwrap(), whole);
    }
}
