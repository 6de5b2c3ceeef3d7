//! Connections that begin with the server, or without a name.

use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_types::Reason;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio_rustls::TlsConnector;

use super::client::{Client, config, inspected, tls, tls_on};
use super::server::{TestAuthority, serve};
use super::world::{UPSTREAM, World, in_namespace, policies};

const POLICY: &str = r#"
apiVersion: causeway/v1
kind: Policy
metadata: { name: agent, tenant: acme }
spec:
  selector: {}
  egress:
    - { name: shell, to: ["shell.allowed.example"], ports: [22, 25, 3306, 443, 5432] }
    - { name: mail, to: ["mail.allowed.example"], ports: [25] }
    - { name: web, to: ["api.allowed.example"], http: [{ methods: [GET], paths: ["/**"] }] }
    - { name: vhost, to: ["vhost.allowed.example"], ports: [25],
        http: [{ methods: [GET], paths: ["/**"] }] }
    - { name: no-mail, action: deny, to: ["quiet.allowed.example"], ports: [25] }
    - { name: quiet, to: ["quiet.allowed.example"], ports: [22] }
  secrets:
    TOKEN:
      hosts: ["shell.allowed.example"]
      inject: { header: authorization, format: "Bearer {secret}" }
"#;

const SHELL: &str = "shell.allowed.example";
const MAIL: &str = "mail.allowed.example";
const API: &str = "api.allowed.example";
const H1: &[&[u8]] = &[b"http/1.1"];

/// Greets, and then sends back what it gets.
async fn greeter(port: u16, greeting: &'static [u8]) {
    let listener = TcpListener::bind((UPSTREAM, port)).await.unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _source)) = listener.accept().await {
            tokio::spawn(async move {
                stream.write_all(greeting).await.unwrap();
                let (mut read, mut write) = stream.split();
                let _broken = tokio::io::copy(&mut read, &mut write).await;
            });
        }
    });
}

async fn expect(stream: &mut TcpStream, text: &[u8]) {
    let mut got = vec![0; text.len()];
    let read = tokio::time::timeout(Duration::from_secs(5), stream.read_exact(&mut got)).await;
    read.expect("in time").unwrap();
    assert_eq!(got, text);
}

#[test]
fn servers_that_speak_first_pass_by_name_and_port() {
    in_namespace(
        "tests::opening::servers_that_speak_first_pass_by_name_and_port",
        || async {
            let mut world = World::new(POLICY);
            for (port, greeting) in [
                (22, &b"SSH-2.0-OpenSSH_9.2p1\r\n"[..]),
                (25, b"220 mail.allowed.example ESMTP\r\n"),
                (3306, b"\x4a\0\0\0\x0a8.0.36\0"),
                (3307, b"not permitted"),
            ] {
                greeter(port, greeting).await;
            }
            let mut unpinned = world.connect(22).await;
            unpinned.write_all(b"SSH-2.0-x\r\n").await.unwrap();
            assert!(
                unpinned.read_u8().await.is_err(),
                "no name stands for the address"
            );
            world.pin(SHELL);
            // The client waits, or both speak at once.
            let start = Instant::now();
            let mut mail = world.connect(25).await;
            expect(&mut mail, b"220 mail.allowed.example ESMTP\r\n").await;
            assert!(
                start.elapsed() < Duration::from_secs(2),
                "within a short wait"
            );
            mail.write_all(b"EHLO me\r\nSTARTTLS\r\n").await.unwrap();
            expect(&mut mail, b"EHLO me\r\nSTARTTLS\r\n").await;
            let mut shell = world.connect(22).await;
            shell.write_all(b"SSH-2.0-x\r\n").await.unwrap();
            expect(&mut shell, b"SSH-2.0-OpenSSH_9.2p1\r\nSSH-2.0-x\r\n").await;
            shell.shutdown().await.unwrap();
            assert_eq!(
                shell.read(&mut [0; 1]).await.unwrap(),
                0,
                "half-close is handed on"
            );
            let mut database = world.connect(3306).await;
            expect(&mut database, b"\x4a\0\0\0\x0a8.0.36\0").await;
            let record = world.record(|record| record.port == Some(22) && record.rule.is_some());
            let record = record.await;
            assert_eq!(record.name.unwrap().as_str(), SHELL);
            assert_eq!(record.bytes_in, Some(34));
            // The port counts.
            let mut other = world.connect(3307).await;
            other.write_all(b"EHLO me\r\n").await.unwrap();
            assert!(other.read_u8().await.is_err());
            assert_eq!(world.refused(Reason::PortDenied), 1);
        },
    );
}

#[test]
fn several_names_at_one_address_have_to_agree() {
    in_namespace(
        "tests::opening::several_names_at_one_address_have_to_agree",
        || async {
            greeter(25, b"220 hello\r\n").await;
            let world = World::new(POLICY);
            world.pin(MAIL);
            world.pin(SHELL);
            expect(&mut world.connect(25).await, b"220 hello\r\n").await;
            // A name that has rules on requests there: what is none cannot be matched.
            world.pin("vhost.allowed.example");
            let mut stream = world.connect(25).await;
            stream.write_all(b"EHLO me\r\n").await.unwrap();
            assert!(stream.read_u8().await.is_err());
            assert_eq!(world.refused(Reason::Unsupported), 1);
            // A name that is denied there.
            let world = World::new(POLICY);
            world.pin(MAIL);
            world.pin("quiet.allowed.example");
            let mut stream = world.connect(25).await;
            stream.write_all(b"EHLO me\r\n").await.unwrap();
            assert!(stream.read_u8().await.is_err());
            assert_eq!(world.refused(Reason::DeniedByRule), 1);
        },
    );
}

#[test]
fn silence_is_no_way_around_names() {
    in_namespace("tests::opening::silence_is_no_way_around_names", || async {
        let world = World::new(
            &POLICY
                .replace(
                    "inject: { header: authorization, format: \"Bearer {secret}\" }",
                    "replace: [header]",
                )
                .replace(
                    "hosts: [\"shell.allowed.example\"]",
                    "hosts: [\"other.allowed.example\"]",
                ),
        );
        let _server = serve(&world.roots, Some(SHELL), H1).await;
        world.pin(SHELL);
        let silent = async || {
            let stream = world.connect(443).await;
            tokio::time::sleep(Duration::from_millis(300)).await;
            stream
        };
        // The control: slow, and permitted.
        let passed = tls_on(&world, silent().await, SHELL, H1).await.unwrap();
        assert!(!inspected(&world, &passed));
        // Slow, and for another name at the same address: told over HTTP, as ever.
        let refused = tls_on(&world, silent().await, "evil.example", H1)
            .await
            .unwrap();
        let mut client = Client::over(refused).await;
        let (status, denied, _body) = client.get("evil.example", "/").await;
        assert_eq!((status, denied.as_deref()), (403, Some("name_denied")));
        // After the server has spoken, by a reset.
        greeter(25, b"220 hello\r\n").await;
        world.pin(MAIL);
        for (hostile, reason) in [
            (
                &b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n"[..],
                Reason::Unsupported,
            ),
            (
                b"\r\n\r\nget / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
                Reason::Unsupported,
            ),
        ] {
            let mut stream = world.connect(25).await;
            expect(&mut stream, b"220 hello\r\n").await;
            stream.write_all(hostile).await.unwrap();
            assert!(stream.read_u8().await.is_err());
            assert!(world.refused(reason) > 0, "{reason}");
        }
        let before = world.refused(Reason::NameDenied);
        let mut stream = world.connect(25).await;
        expect(&mut stream, b"220 hello\r\n").await;
        assert!(tls_on(&world, stream, "evil.example", H1).await.is_err());
        assert_eq!(world.refused(Reason::NameDenied), before + 1);
    });
}

/// A `PostgreSQL` server as far as encryption goes: says `answer`, and then speaks TLS or echoes.
async fn postgres(authority: &TestAuthority, answer: u8) {
    let listener = TcpListener::bind((UPSTREAM, 5432)).await.unwrap();
    let acceptor = authority.acceptor(SHELL, &[b"postgresql"]);
    tokio::spawn(async move {
        while let Ok((mut stream, _source)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let mut request = [0; 8];
                while stream.read_exact(&mut request).await.is_ok() {
                    let tls = request[7] == 0x2f;
                    let said = if tls { answer } else { b'N' };
                    stream.write_all(&[said]).await.unwrap();
                    if !tls {
                        continue;
                    }
                    if answer == b'S' {
                        let Ok(tls) = acceptor.accept(stream).await else {
                            return;
                        };
                        let (mut read, mut write) = tokio::io::split(tls);
                        let _ended = tokio::io::copy(&mut read, &mut write).await;
                    } else {
                        let (mut read, mut write) = stream.split();
                        let _ended = tokio::io::copy(&mut read, &mut write).await;
                    }
                    return;
                }
            });
        }
    });
}

const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];
const GSS_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 48];

#[test]
fn postgresql_asks_for_tls() {
    in_namespace("tests::opening::postgresql_asks_for_tls", || async {
        let world = World::new(POLICY);
        postgres(&world.roots, b'S').await;
        let mut stream = world.connect(5432).await;
        stream.write_all(&SSL_REQUEST).await.unwrap();
        assert!(stream.read_u8().await.is_err(), "not resolved");
        world.pin(SHELL);
        // As libpq does: GSSAPI first, then TLS, with the name and without.
        for name in [SHELL, ""] {
            let mut stream = world.connect(5432).await;
            for (request, answer) in [(GSS_REQUEST, b"N"), (SSL_REQUEST, b"S")] {
                stream.write_all(&request).await.unwrap();
                expect(&mut stream, answer).await;
            }
            let mut config = config(&world, &[b"postgresql"]);
            config.enable_sni = !name.is_empty();
            let host = ServerName::try_from(SHELL).unwrap();
            let connector = TlsConnector::from(Arc::new(config));
            let mut tls = connector.connect(host, stream).await.unwrap();
            tls.write_all(b"query").await.unwrap();
            let mut rows = [0; 5];
            tls.read_exact(&mut rows).await.unwrap();
            assert_eq!(&rows, b"query");
        }
        // Another name inside; and one that does not wait for the answer.
        let mut stream = world.connect(5432).await;
        stream.write_all(&SSL_REQUEST).await.unwrap();
        expect(&mut stream, b"S").await;
        assert!(
            tls_on(&world, stream, "evil.example", &[b"postgresql"])
                .await
                .is_err()
        );
        assert_eq!(world.refused(Reason::NameDenied), 1);
        let mut stream = world.connect(5432).await;
        stream
            .write_all(&[&SSL_REQUEST[..], &[22, 3, 1]].concat())
            .await
            .unwrap();
        assert!(stream.read_u8().await.is_err());
        assert_eq!(world.refused(Reason::AmbiguousRequest), 1);
    });
}

#[test]
fn postgresql_without_tls() {
    in_namespace("tests::opening::postgresql_without_tls", || async {
        let world = World::new(POLICY);
        postgres(&world.roots, b'N').await;
        world.pin(SHELL);
        let mut stream = world.connect(5432).await;
        stream.write_all(&SSL_REQUEST).await.unwrap();
        expect(&mut stream, b"N").await;
        stream
            .write_all(b"\0\0\0\x0f\0\x03\0\0user\0x\0")
            .await
            .unwrap();
        expect(&mut stream, b"\0\0\0\x0f\0\x03\0\0user\0x\0").await;
    });
}

#[test]
fn tls_without_a_name() {
    in_namespace("tests::opening::tls_without_a_name", || async {
        let world = World::new(POLICY);
        let _server = serve(&world.roots, Some(API), H1).await;
        let nameless = async |name: &str| {
            let mut config = config(&world, H1);
            config.enable_sni = false;
            let host = ServerName::try_from(name.to_owned()).unwrap();
            let stream = world.connect(443).await;
            TlsConnector::from(Arc::new(config))
                .connect(host, stream)
                .await
        };
        assert!(nameless(API).await.is_err(), "not resolved");
        assert_eq!(world.refused(Reason::NoName), 1);
        // One name stands for the address, so that requests for it can be looked into.
        world.pin(API);
        let mut client = Client::over(nameless(API).await.unwrap()).await;
        assert_eq!(client.get(API, "/a").await.0, 200);
        assert_eq!(client.get("evil.example", "/a").await.0, 421);
        // With a second one nobody can say which it is.
        world.pin(SHELL);
        assert!(nameless(API).await.is_err());
        let control = tls(&world, 443, API, H1).await;
        assert!(control.is_ok(), "the control: the name is shown");
    });
}

#[test]
fn a_rule_on_requests_ends_what_passes_unseen() {
    in_namespace(
        "tests::opening::a_rule_on_requests_ends_what_passes_unseen",
        || async {
            greeter(25, b"220 hello\r\n").await;
            let world = World::new(POLICY);
            world.pin(MAIL);
            let mut stream = world.connect(25).await;
            stream.write_all(b"EHLO me\r\n").await.unwrap();
            expect(&mut stream, b"220 hello\r\nEHLO me\r\n").await;
            world.commit(vec![policies(&POLICY.replace("name: quiet", "name: q"))]);
            let quiet = tokio::time::timeout(Duration::from_millis(100), stream.read_u8()).await;
            assert!(quiet.is_err(), "a change that does not concern it");
            world.commit(vec![policies(&POLICY.replace(
                "ports: [25] }\n    - { name: web",
                "ports: [25], http: [{ methods: [GET], paths: [\"/**\"] }] }\n    - { name: web",
            ))]);
            assert!(stream.read_u8().await.is_err());
        },
    );
}

/// A hello of some 16 KB for a name, as one record, with these further extensions.
fn hello(name: &str, more: &[(u16, usize)]) -> Vec<u8> {
    let mut extensions = Vec::new();
    let mut add = |kind: u16, content: &[u8]| {
        extensions.extend(kind.to_be_bytes());
        extensions.extend(u16::try_from(content.len()).unwrap().to_be_bytes());
        extensions.extend(content);
    };
    let length = u16::try_from(name.len()).unwrap();
    let list = [
        &(length + 3).to_be_bytes()[..],
        &[0],
        &length.to_be_bytes(),
        name.as_bytes(),
    ];
    add(0, &list.concat());
    for (kind, size) in more {
        add(*kind, &vec![0; *size]);
    }
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.extend([0, 0, 2, 0x13, 1, 1, 0]);
    body.extend(u16::try_from(extensions.len()).unwrap().to_be_bytes());
    body.extend(extensions);
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    let message = [&[1, length[1], length[2], length[3]], &body[..]].concat();
    let size = u16::try_from(message.len()).unwrap().to_be_bytes();
    [&[22, 3, 1, size[0], size[1]], &message[..]].concat()
}

#[test]
fn long_hellos_in_small_pieces_and_encrypted_ones() {
    in_namespace(
        "tests::opening::long_hellos_in_small_pieces_and_encrypted_ones",
        || async {
            const PADDING: u16 = 21;
            const ENCRYPTED: u16 = 0xfe0d;
            let plain = POLICY.replace("hosts: [\"shell", "hosts: [\"other");
            let world = World::new(&plain);
            world.pin(SHELL);
            let listener = TcpListener::bind((UPSTREAM, 443)).await.unwrap();
            for extensions in [&[(PADDING, 16_000)][..], &[(ENCRYPTED, 300)]] {
                let sent = hello(SHELL, extensions);
                let mut client = world.connect(443).await;
                for piece in sent.chunks(611) {
                    client.write_all(piece).await.unwrap();
                    client.flush().await.unwrap();
                    tokio::task::yield_now().await;
                }
                let (mut server, _source) = listener.accept().await.unwrap();
                let mut got = vec![0; sent.len()];
                server.read_exact(&mut got).await.unwrap();
                assert!(got == sent, "bytes are passed as they are");
            }
            // What is hidden inside is not known: the outer name is what counts.
            let mut client = world.connect(443).await;
            let sent = hello("public.example", &[(ENCRYPTED, 300)]);
            client.write_all(&sent).await.unwrap();
            let mut answer = Vec::new();
            let _reset = client.read_to_end(&mut answer).await;
            assert_eq!(world.refused(Reason::NameDenied), 1);
            // More than any client needs.
            let endless = Arc::new(Notify::new());
            let mut client = world.connect(443).await;
            let huge = [22, 3, 1, 0x40, 0, 1, 1, 0, 0];
            client.write_all(&huge).await.unwrap();
            let _reset = client.write_all(&vec![0; 0x4000 - 4]).await;
            for _record in 0..4 {
                let _reset = client.write_all(&[22, 3, 1, 0x40, 0]).await;
                let _reset = client.write_all(&vec![0; 0x4000]).await;
            }
            let _reset = client.read_to_end(&mut answer).await;
            assert!(world.refused(Reason::BadTls) + world.refused(Reason::TooLarge) > 0);
            drop(endless);
        },
    );
}
