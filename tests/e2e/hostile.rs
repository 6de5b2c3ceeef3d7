//! What hostile code, careless operators and bad luck do, through the whole product.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv6Addr, TcpStream, ToSocketAddrs as _, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};

use causeway::lab::internet::address_of;
use causeway::lab::{Finished, Lab, Namespace, poll, run, run_ok};
use causeway_types::RESOLVER;
use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{setsockopt, sockopt};
use nix::unistd::Pid;

use crate::support::{Sandbox, in_lab};

const SECRET: &str = "s3cr3t-5f0c1d2e3b4a";

/// Response codes (RFC 1035, section 4.1.1).
const NO_ERROR: u8 = 0;
const NO_SUCH_NAME: u8 = 3;

/// Bytes of a body that fills many packets.
const SIZE: usize = 1 << 20;

const POLICY: &str = r#"
apiVersion: causeway/v1
kind: Policy
metadata: { name: web, tenant: acme }
spec:
  selector: {}
  egress:
    - { name: static, to: [static.example], http: [{ methods: [GET, POST], paths: ["/ok/**"] }] }
    - { name: no-admin, action: deny, to: [static.example],
        http: [{ methods: ["*"], paths: ["/ok/admin", "/ok/admin/**"] }] }
    - { name: api, to: [api.forge.example], ports: [443] }
  secrets:
    TOKEN:
      hosts: [api.forge.example]
      inject: { header: x-api-key, format: "Bearer {secret}" }
"#;

/// Runs `body` in a sandbox's network namespace, on a thread of its own.
fn inside<T: Send>(namespace: &Namespace, body: impl FnOnce() -> T + Send) -> T {
    let file = File::open(namespace.path()).unwrap();
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            setns(file, CloneFlags::CLONE_NEWNET).unwrap();
            body()
        });
        thread.join().unwrap()
    })
}

/// Sends bytes as they are, and returns what comes back until the end, or until nothing follows.
fn exchange(sandbox: &Sandbox, to: Ipv6Addr, bytes: &[u8]) -> String {
    let deadline = Instant::now() + Duration::from_secs(10);
    inside(&sandbox.namespace, || {
        let mut stream = TcpStream::connect((to, 80)).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_millis(300)))
            .unwrap();
        // One that is turned away at once is gone before it has said anything.
        let _reset_already = stream.write_all(bytes);
        let (mut reply, mut buffer) = (Vec::new(), [0; 4096]);
        while Instant::now() < deadline {
            match stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(length) => reply.extend_from_slice(&buffer[..length]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
                    if !reply.is_empty() {
                        break;
                    }
                }
            }
        }
        String::from_utf8_lossy(&reply).into_owned()
    })
}

fn apply(lab: &Lab, policy: &str) -> anyhow::Result<()> {
    let file = lab.folder.join("policy.yaml");
    std::fs::write(&file, policy)?;
    run_ok(&mut lab.command(&["policy", "apply", &file.to_string_lossy()]))?;
    Ok(())
}

/// Has the sandbox's resolver hand out the address of a name, as everything does that connects.
fn resolve(sandbox: &Sandbox, name: &str) -> Ipv6Addr {
    let known = address_of(name).unwrap();
    inside(&sandbox.namespace, || {
        let found: Vec<_> = (name, 80).to_socket_addrs().unwrap().collect();
        assert!(found.iter().any(|address| address.ip() == known), "{name}");
    });
    known
}

fn fetch(sandbox: &Sandbox, url: &str, more: &[&str]) -> anyhow::Result<Finished> {
    let mut curl = sandbox.namespace.command("curl");
    run(curl.args(["-sSk", "--max-time", "10"]).args(more).arg(url))
}

fn paths(lab: &Lab) -> anyhow::Result<Vec<String>> {
    let received = lab.received()?;
    let path = |request: &serde_json::Value| request["path"].as_str().unwrap().to_owned();
    Ok(received.iter().map(path).collect())
}

#[test]
fn a_request_has_one_name_and_one_meaning() {
    in_lab(
        "hostile::a_request_has_one_name_and_one_meaning",
        |mut lab| {
            lab.start_agent()?;
            apply(&lab, POLICY)?;
            let one = Sandbox::create(&lab, "acme", "one", &[], "")?;
            let to = resolve(&one, "static.example");
            let get = |target: &str, host: &str| {
                format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
            };
            let post = |headers: &str, body: &str| {
                format!("POST /ok/p HTTP/1.1\r\nHost: static.example\r\n{headers}\r\n\r\n{body}")
            };
            let second = get("/ok/smuggled", "static.example");
            let hostile = [
                get("/ok/x", "intruder.example"),
                get("http://intruder.example/ok/x", "static.example"),
                get("http://static.example/ok/x", "intruder.example"),
                get(
                    "http://static.example@intruder.example/ok/x",
                    "static.example",
                ),
                get("http://x@static.example/ok/x", "static.example"),
                get("https://static.example/ok/x", "static.example"),
                get("/ok/x", "static.example@intruder.example"),
                get("/ok/x", "static.example:81"),
                get("/ok/x", "static.example\r\nHost: static.example"),
                get("/ok/x", "static.example\r\nHost : intruder.example"),
                get("/no", "static.example"),
                get("/ok/../no", "static.example"),
                get("/ok/%2e%2e/no", "static.example"),
                get("/ok/%252e%252e/no", "static.example"),
                get("//ok/x", "static.example"),
                get("/ok/%2fx", "static.example"),
                get("/ok/a\\x", "static.example"),
                get("/ok/x/..;/admin", "static.example"),
                get("/ok/admin", "static.example"),
                get("/ok/%61dmin/x", "static.example"),
                get("/ok/admin;x/y", "static.example"),
                get("/ok/admin%3bx/y", "static.example"),
                "GET /ok/x HTTP/1.0\r\n\r\n".to_owned(),
                "GET /ok/x\r\n\r\n".to_owned(),
                "CONNECT intruder.example:443 HTTP/1.1\r\nHost: intruder.example:443\r\n\r\n"
                    .to_owned(),
                post("Content-Length: 0\r\nContent-Length: 5", "abcde"),
                post("Content-Length: +5", "abcde"),
                post("Content-Length: 5, 6", "abcde"),
                post("Transfer-Encoding: xchunked", &format!("0\r\n\r\n{second}")),
                post("Transfer-Encoding: gzip, chunked", "0\r\n\r\n"),
                post(
                    "Transfer-Encoding:\r\n chunked",
                    &format!("0\r\n\r\n{second}"),
                ),
                post("Transfer-Encoding : chunked", &format!("0\r\n\r\n{second}")),
                post(
                    "Transfer-Encoding: \u{b}chunked",
                    &format!("0\r\n\r\n{second}"),
                ),
                post(
                    "X: a\rTransfer-Encoding: chunked",
                    &format!("0\r\n\r\n{second}"),
                ),
                post("X: a\0b", ""),
            ];
            for request in &hostile {
                let reply = exchange(&one, to, request.as_bytes());
                let status = reply.split_whitespace().nth(1).unwrap_or_default();
                assert!(status.starts_with(['4', '5']), "{request:?}: {reply:?}");
            }
            // Both lengths: the coding counts, and nothing is taken from what follows it.
            let both = post(
                "Content-Length: 5\r\nTransfer-Encoding: chunked",
                &format!("0\r\n\r\n{second}"),
            );
            exchange(&one, to, both.as_bytes());
            assert!(!paths(&lab)?.contains(&"/ok/smuggled".to_owned()));
            assert!(paths(&lab)?.iter().all(|path| path == "/ok/p"));

            // The next request on a connection is judged like the first.
            let two = |target: &str, host: &str| {
                format!(
                    "GET /ok/first HTTP/1.1\r\nHost: static.example\r\n\r\n{}",
                    get(target, host)
                )
            };
            for (target, host) in [("/no", "static.example"), ("/ok/x", "intruder.example")] {
                let reply = exchange(&one, to, two(target, host).as_bytes());
                assert!(reply.starts_with("HTTP/1.1 200"), "{reply:?}");
                assert!(reply.contains("HTTP/1.1 403"), "{reply:?}");
            }
            let reply = exchange(&one, to, two("/ok/second", "STATIC.Example.").as_bytes());
            assert_eq!(reply.matches("HTTP/1.1 200").count(), 2, "{reply:?}");
            let seen = paths(&lab)?;
            assert_eq!(seen.iter().filter(|path| *path == "/ok/first").count(), 3);
            assert_eq!(seen.iter().filter(|path| *path == "/ok/second").count(), 1);
            for request in lab.received()? {
                assert_eq!(request["host"], "static.example", "one spelling");
            }
            Ok(())
        },
    );
}

#[test]
fn the_injected_header_is_the_only_one_of_its_name() {
    in_lab(
        "hostile::the_injected_header_is_the_only_one_of_its_name",
        |mut lab| {
            lab.start_agent()?;
            apply(&lab, POLICY)?;
            let one = Sandbox::create(&lab, "acme", "one", &[], "")?;
            let set =
                lab.causeway_with_input(&["secret", "set", "TOKEN", "--tenant", "acme"], SECRET)?;
            assert!(set.ok(), "{}", set.output());
            let url = "https://api.forge.example/x";
            let forgeries: [&[&str]; 7] = [
                &["-H", "X-API-KEY: forged", "-H", "x-api-key: forged"],
                &["-H", "x-api-key: forged", "-H", "Connection: x-api-key"],
                &["-H", "x_api_key: forged", "-H", "X-Api_Key: forged"],
                &["-H", "Connection: Upgrade", "-H", "Upgrade: h2c"],
                &["--http1.1", "-H", "x-api-key;"],
                &["-I", "--http1.1"],
                &["-I", "--http2"],
            ];
            for more in forgeries {
                let fetched = fetch(&one, url, more)?;
                assert!(fetched.ok(), "{more:?}: {}", fetched.output());
            }
            let received = lab.received()?;
            assert_eq!(received.len(), forgeries.len());
            for request in &received {
                let headers = &request["headers"];
                let wanted = serde_json::json!([format!("Bearer {SECRET}")]);
                assert_eq!(headers["x-api-key"], wanted, "{request}");
                assert!(!headers.to_string().contains("forged"), "{request}");
                // Behind such a change of protocol come requests that no rule sees.
                assert!(!headers.to_string().contains("h2c"), "{request}");
            }
            // What is refused echoes nothing, and nothing leaves.
            for (url, more) in [
                ("http://api.forge.example/x", &[][..]),
                (url, &["-H", "Host: intruder.example"]),
                (url, &["-X", "TRACE"]),
                ("https://static.example/no", &["-I", "--http1.1"]),
                ("https://static.example/no", &["-I", "--http2"]),
            ] {
                let refused = fetch(&one, url, more)?;
                assert!(refused.ok(), "{url} {more:?}: {}", refused.output());
                let refused = refused.output();
                assert!(!refused.contains(SECRET), "{url} {more:?}: {refused}");
            }
            assert_eq!(lab.received()?.len(), forgeries.len());
            Ok(())
        },
    );
}

#[test]
fn aborted_and_idle_connections_of_one_slow_no_other() {
    in_lab(
        "hostile::aborted_and_idle_connections_of_one_slow_no_other",
        |mut lab| {
            lab.start_agent()?;
            apply(&lab, POLICY)?;
            let limits = POLICY
                .replace("name: web", "name: few")
                .replace("selector: {}", "selector: { role: few }")
                + "  limits: { connections: 20 }\n";
            let file = lab.folder.join("few.yaml");
            std::fs::write(&file, limits)?;
            run_ok(&mut lab.command(&["policy", "apply", &file.to_string_lossy()]))?;
            let noisy = Sandbox::create(&lab, "acme", "noisy", &[], "role=few")?;
            let quiet = Sandbox::create(&lab, "acme", "quiet", &[], "")?;
            let to = resolve(&noisy, "static.example");
            let request =
                b"GET /ok/x HTTP/1.1\r\nHost: static.example\r\nConnection: close\r\n\r\n";
            resolve(&quiet, "static.example");
            inside(&noisy.namespace, || {
                let linger = libc::linger {
                    l_onoff: 1,
                    l_linger: 0,
                };
                for _ in 0..2000 {
                    let stream = TcpStream::connect((to, 443)).unwrap();
                    // What is reset before it is accepted never was.
                    let _reset = (&stream).write(b"\x16\x03\x01");
                    setsockopt(&stream, sockopt::Linger, &linger).unwrap();
                }
            });
            // And more than it may have, which say nothing.
            let hold = |count| {
                inside(&noisy.namespace, || {
                    (0..count)
                        .map(|_| TcpStream::connect((to, 80)).unwrap())
                        .collect::<Vec<_>>()
                })
            };
            let mut held = hold(60);
            let began = Instant::now();
            for _ in 0..5 {
                let reply = exchange(&quiet, to, request);
                assert!(reply.starts_with("HTTP/1.1 200"), "{reply:?}");
            }
            assert!(
                began.elapsed() < Duration::from_secs(3),
                "{:?}",
                began.elapsed()
            );
            // The limit holds for the one that has it, as long as it holds them. Some came while
            // those that were aborted still had places, and were refused themselves.
            poll("the limit to be reached", Duration::from_secs(5), || {
                held.extend(hold(20));
                Ok(exchange(&noisy, to, request).is_empty().then_some(()))
            })?;
            drop(held);
            poll(
                "the places to be free again",
                Duration::from_secs(5),
                || {
                    let reply = exchange(&noisy, to, request);
                    Ok(reply.starts_with("HTTP/1.1 200").then_some(()))
                },
            )?;
            Ok(())
        },
    );
}

#[test]
fn a_proxy_that_hangs_is_replaced() {
    in_lab("hostile::a_proxy_that_hangs_is_replaced", |mut lab| {
        lab.start_agent()?;
        apply(&lab, POLICY)?;
        let one = Sandbox::create(&lab, "acme", "one", &[], "")?;
        let url = "http://static.example/ok/x";
        assert!(fetch(&one, url, &["-f"])?.ok());
        let pid = |lab: &Lab| -> anyhow::Result<Option<i64>> {
            Ok(lab.json(&["status"])?["proxy"]["pid"].as_i64())
        };
        let hung = pid(&lab)?.unwrap();
        // Nothing changes, so that nobody waits for it.
        kill(Pid::from_raw(i32::try_from(hung)?), Signal::SIGSTOP)?;
        poll("another proxy", Duration::from_secs(20), || {
            Ok(pid(&lab)?.filter(|pid| *pid != hung))
        })?;
        lab.await_ready()?;
        assert!(fetch(&one, url, &["-f"])?.ok());
        // One that hangs while there is no agent to notice.
        let hung = pid(&lab)?.unwrap();
        lab.kill_agent()?;
        kill(Pid::from_raw(i32::try_from(hung)?), Signal::SIGSTOP)?;
        lab.start_agent()?;
        assert_ne!(pid(&lab)?, Some(hung));
        assert!(fetch(&one, url, &["-f"])?.ok());
        Ok(())
    });
}

#[test]
fn a_full_disk_fails_a_change_whole_and_heals() {
    in_lab(
        "hostile::a_full_disk_fails_a_change_whole_and_heals",
        |mut lab| {
            let state = lab.folder.join("state");
            std::fs::create_dir_all(&state)?;
            run_ok(
                Command::new("mount")
                    .args(["-t", "tmpfs", "-o", "size=4m,mode=700", "small"])
                    .arg(&state),
            )?;
            lab.start_agent()?;
            apply(&lab, POLICY)?;
            let one = Sandbox::create(&lab, "acme", "one", &[], "")?;
            let filler = state.join("filler");
            let mut file = File::create(&filler)?;
            while file.write_all(&[0; 4096]).is_ok() {}
            lab.namespace("two")?;
            let create = [
                "sandbox",
                "create",
                "two",
                "--tenant",
                "acme",
                "--attach",
                "netns:/run/netns/two",
            ];
            // Until one does not fit into the pages that the file has to spare.
            let delete = ["sandbox", "delete", "two", "--tenant", "acme"];
            let failed = poll(
                "a change that does not fit",
                Duration::from_secs(20),
                || {
                    let made = lab.causeway(&create)?;
                    if made.ok() {
                        lab.causeway(&delete)?;
                    }
                    Ok((!made.ok()).then_some(made))
                },
            )?;
            assert!(failed.stderr.contains("stored"), "{}", failed.output());
            assert!(!lab.causeway(&create)?.ok(), "it is still full");
            let listed = lab.json(&["sandbox", "list"])?;
            assert_eq!(listed.as_array().map(Vec::len), Some(1), "{listed}");
            let links = run_ok(Command::new("ip").args(["-n", "two", "-br", "link"]))?;
            assert!(!links.contains("eth0"), "{links}");
            // What was there goes on.
            assert!(fetch(&one, "http://static.example/ok/x", &["-f"])?.ok());

            std::fs::remove_file(&filler)?;
            drop(file);
            let made = lab.causeway(&create)?;
            assert!(made.ok(), "with the space came back: {}", made.output());
            let before = lab.json(&["sandbox", "list"])?;
            lab.kill_agent()?;
            lab.start_agent()?;
            assert_eq!(lab.json(&["sandbox", "list"])?, before);
            assert_eq!(lab.json(&["reconcile"])?["changes"], 0);
            Ok(())
        },
    );
}

#[test]
fn down_and_up_again_bring_the_sandboxes_back() {
    in_lab(
        "hostile::down_and_up_again_bring_the_sandboxes_back",
        |mut lab| {
            lab.start_agent()?;
            apply(&lab, POLICY)?;
            let one = Sandbox::create(&lab, "acme", "one", &[], "")?;
            let url = "http://static.example/ok/x";
            assert!(fetch(&one, url, &["-f"])?.ok());
            // The namespace is made anew under its name: what was attached is gone with the old.
            run_ok(Command::new("ip").args(["netns", "delete", "one"]))?;
            lab.namespace("one")?;
            poll(
                "the sandbox in its new namespace",
                Duration::from_secs(10),
                || {
                    lab.json(&["reconcile"])?;
                    Ok(fetch(&one, url, &["-f"])?.ok().then_some(()))
                },
            )?;
            // While the agent runs, and once more when nothing is left.
            for _ in 0..2 {
                let down = lab.causeway(&["down"])?;
                assert!(down.ok(), "{}", down.output());
            }
            lab.await_agent_end()?;
            assert!(!fetch(&one, url, &["-f"])?.ok());
            lab.start_agent()?;
            assert!(fetch(&one, url, &["-f"])?.ok());
            Ok(())
        },
    );
}

#[test]
fn the_resolver_answers_names_that_rules_mention_and_no_others() {
    in_lab(
        "hostile::the_resolver_answers_names_that_rules_mention_and_no_others",
        |mut lab| {
            lab.start_agent()?;
            apply(&lab, POLICY)?;
            let one = Sandbox::create(&lab, "acme", "one", &[], "")?;
            for (name, kind, code, answers) in [
                ("static.example", 28, NO_ERROR, 1),
                ("STATIC.example", 28, NO_ERROR, 1),
                ("static.example", 255, NO_ERROR, 0),
                ("static.example", 16, NO_ERROR, 0),
                ("static.example", 65, NO_ERROR, 0),
                ("data.static.example", 28, NO_SUCH_NAME, 0),
                ("intruder.example", 28, NO_SUCH_NAME, 0),
                ("intruder.example", 16, NO_SUCH_NAME, 0),
                ("two.other.internal", 28, NO_SUCH_NAME, 0),
            ] {
                for tcp in [false, true] {
                    let reply = ask(&one, name, kind, tcp);
                    assert_eq!(
                        (reply[3] & 15, reply[7]),
                        (code, answers),
                        "{name} {kind} {tcp}"
                    );
                }
            }
            Ok(())
        },
    );
}

/// Asks the sandbox's resolver, byte by byte.
fn ask(sandbox: &Sandbox, name: &str, kind: u8, tcp: bool) -> Vec<u8> {
    let mut query = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        query.push(u8::try_from(label.len()).unwrap());
        query.extend_from_slice(label.as_bytes());
    }
    query.extend_from_slice(&[0, 0, kind, 0, 1]);
    let wait = Some(Duration::from_secs(5));
    inside(&sandbox.namespace, || {
        let mut reply = vec![0; 2048];
        if tcp {
            let mut stream = TcpStream::connect((RESOLVER, 53)).unwrap();
            stream.set_read_timeout(wait).unwrap();
            let length = u16::try_from(query.len()).unwrap().to_be_bytes();
            stream.write_all(&[&length[..], &query].concat()).unwrap();
            let mut length = [0; 2];
            stream.read_exact(&mut length).unwrap();
            reply.truncate(usize::from(u16::from_be_bytes(length)));
            stream.read_exact(&mut reply).unwrap();
        } else {
            let socket = UdpSocket::bind("[::]:0").unwrap();
            socket.set_read_timeout(wait).unwrap();
            socket.send_to(&query, (RESOLVER, 53)).unwrap();
            let length = socket.recv(&mut reply).unwrap();
            reply.truncate(length);
        }
        reply
    })
}

/// A policy of `acme` for every one of its sandboxes.
fn policy(name: &str, rules: &str) -> String {
    format!(
        "apiVersion: causeway/v1\nkind: Policy\nmetadata: {{ name: {name}, tenant: acme }}\n\
         spec:\n  selector: {{}}\n  egress: [{rules}]\n"
    )
}

#[test]
fn policies_add_up_and_what_goes_takes_its_flows_along() {
    in_lab(
        "hostile::policies_add_up_and_what_goes_takes_its_flows_along",
        |mut lab| {
            lab.start_agent()?;
            let one = Sandbox::create(&lab, "acme", "one", &[], "")?;
            let other = Sandbox::create(&lab, "other", "two", &[], "")?;
            let reaches = |sandbox: &Sandbox, name: &str| -> anyhow::Result<bool> {
                Ok(fetch(sandbox, &format!("http://{name}/x"), &["-f"])?.ok())
            };
            let (first, second) = ("static.example", "files.forge.example");
            assert!(!reaches(&one, first)?, "no policy");
            apply(&lab, &policy("first", "{ to: [static.example] }"))?;
            assert!(reaches(&one, first)? && !reaches(&one, second)?);
            apply(&lab, &policy("second", "{ to: [files.forge.example] }"))?;
            assert!(reaches(&one, first)? && reaches(&one, second)?);
            assert!(!reaches(&other, first)?, "another tenant's");

            // A live flow of each; only the one whose policy goes ends, and at once.
            let stream = |name: &str| {
                let mut curl = one.namespace.command("curl");
                curl.args(["-sSN", "-o", "/dev/null"])
                    .arg(format!("http://{name}/stream"));
                curl.spawn()
            };
            let (mut stays, mut goes) = (stream(first)?, stream(second)?);
            poll("both streams", Duration::from_secs(5), || {
                let paths = paths(&lab)?;
                Ok((paths.iter().filter(|path| *path == "/stream").count() == 2).then_some(()))
            })?;
            let delete = ["policy", "delete", "second", "--tenant", "acme"];
            run_ok(&mut lab.command(&delete))?;
            poll("the end of the stream", Duration::from_secs(1), || {
                Ok(goes.try_wait()?)
            })?;
            assert!(stays.try_wait()?.is_none());
            assert!(!reaches(&one, second)? && reaches(&one, first)?);

            // A denial wins over what another policy permits, on live flows too.
            apply(
                &lab,
                &policy("deny", "{ action: deny, to: [static.example] }"),
            )?;
            poll("the end of the other", Duration::from_secs(1), || {
                Ok(stays.try_wait()?)
            })?;
            assert!(!reaches(&one, first)?);
            run_ok(&mut lab.command(&["policy", "delete", "deny", "--tenant", "acme"]))?;
            assert!(reaches(&one, first)?);

            // A guardrail bounds every tenant.
            let guardrail = "apiVersion: causeway/v1\nkind: Guardrail\nmetadata: { name: bound }\n\
                 spec:\n  egress: [{ to: [files.forge.example] }]\n";
            apply(&lab, guardrail)?;
            assert!(!reaches(&one, first)?);
            assert!(!reaches(&one, second)?, "it permits nothing by itself");
            Ok(())
        },
    );
}

#[test]
fn a_smaller_mtu_on_the_way_is_found() {
    in_lab("hostile::a_smaller_mtu_on_the_way_is_found", |mut lab| {
        lab.start_agent()?;
        apply(&lab, POLICY)?;
        let one = Sandbox::create(&lab, "acme", "one", &[], "")?;
        let site = address_of("static.example").unwrap();
        // internet --1300-- middle --1500-- far, which has the site's address now.
        let far = lab.namespace("far")?;
        lab.namespace("middle")?;
        for line in [
            "-n internet link add m0 type veth peer name m1 netns middle",
            "-n middle link add f0 type veth peer name f1 netns far",
            "-n internet link set m0 mtu 1300 up",
            "-n middle link set m1 mtu 1300 up",
            "-n middle link set f0 up",
            "-n far link set f1 up",
            "-n internet addr add 3ffe:b00:1::1/64 dev m0 nodad",
            "-n middle addr add 3ffe:b00:1::2/64 dev m1 nodad",
            "-n middle addr add 3ffe:b00:2::1/64 dev f0 nodad",
            "-n far addr add 3ffe:b00:2::2/64 dev f1 nodad",
            "-n far -6 route add default via 3ffe:b00:2::1",
            "-n middle -6 route add default via 3ffe:b00:1::1",
            "netns exec internet sysctl -qw net.ipv6.conf.all.forwarding=1",
            "netns exec middle sysctl -qw net.ipv6.conf.all.forwarding=1",
            &format!("-n internet addr del {site}/128 dev lo"),
            &format!("-n far addr add {site}/128 dev f1 nodad"),
            &format!("-n internet -6 route add {site}/128 via 3ffe:b00:1::2"),
            &format!("-n middle -6 route add {site}/128 via 3ffe:b00:2::2"),
        ] {
            run_ok(Command::new("ip").args(line.split_whitespace()))?;
        }
        let body = lab.folder.join("body");
        std::fs::write(&body, vec![b'x'; SIZE])?;
        let listener = inside(&far, || std::net::TcpListener::bind((site, 80)).unwrap());
        let server = std::thread::spawn(move || {
            let (mut stream, peer) = listener.accept().unwrap();
            let (mut received, mut buffer) = (0, vec![0; 65536]);
            while received < SIZE {
                received += stream.read(&mut buffer).unwrap();
            }
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\n\r\n");
            stream.write_all(answer.as_bytes()).unwrap();
            stream.write_all(&vec![b'y'; SIZE]).unwrap();
            peer.ip()
        });
        let upload = format!("@{}", body.display());
        let more = ["-f", "--data-binary", &upload, "-H", "Expect:"];
        let fetched = fetch(&one, "http://static.example/ok/up", &more)?;
        assert!(fetched.ok(), "{}", fetched.stderr);
        assert_eq!(fetched.stdout.len(), SIZE);
        // It did come from the sandbox's own address, and so did the error about it go there.
        assert_eq!(server.join().unwrap(), one.address);
        Ok(())
    });
}
