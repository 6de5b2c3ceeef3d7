//! Real clients against real servers, through the whole product.

mod servers;

use std::path::Path;
use std::process::Command;

use causeway::lab::{Finished, Lab, run, run_ok};

use self::servers::{SCRIPTS, Servers, node_packages, program, python};
use crate::support::{Sandbox, in_lab};

const POLICY: &str = r#"
apiVersion: causeway/v1
kind: Policy
metadata: { name: clients, tenant: acme }
spec:
  selector: {}
  egress:
    - { name: static, to: [static.example], http: [{ methods: [GET, POST], paths: ["/ok/**"] }] }
    - { name: files, to: [files.forge.example] }
    - { name: legacy, to: [legacy.example] }
"#;

/// A lab with an agent, a policy, a sandbox, and the roots that a client needs in a file.
fn set_up(lab: &mut Lab, policy: &str) -> anyhow::Result<Sandbox> {
    lab.start_agent()?;
    let file = lab.folder.join("policy.yaml");
    std::fs::write(&file, policy)?;
    run_ok(&mut lab.command(&["policy", "apply", &file.to_string_lossy()]))?;
    let sandbox = Sandbox::create(lab, "acme", "one", &[], "")?;
    let roots = [
        run_ok(&mut lab.command(&["ca"]))?,
        std::fs::read_to_string(lab.folder.join("internet-root.pem"))?,
    ];
    std::fs::write(lab.folder.join("roots.pem"), roots.concat())?;
    Ok(sandbox)
}

#[test]
fn curl_by_every_way_in() {
    in_lab("clients::curl_by_every_way_in", |mut lab| {
        let one = set_up(&mut lab, POLICY)?;
        let roots = lab.folder.join("roots.pem");
        let fetch = |way: &[&str], url: &str| -> anyhow::Result<Finished> {
            let mut curl = one.namespace.command("curl");
            curl.args([
                "-sS",
                "--max-time",
                "10",
                "-w",
                "\n%{http_version} %{http_code}",
            ]);
            run(curl.arg("--cacert").arg(&roots).args(way).arg(url))
        };
        let ways: [&[&str]; 7] = [
            &[],
            &["--proxy", "http://[fd63:6175:7365::53]:3128"],
            &["--proxy", "http://proxy.internal:3128", "--proxytunnel"],
            &["--proxy", "http://proxy.internal:1080"],
            &["--proxy", "socks5h://proxy.internal:1080"],
            &["--proxy", "socks5://proxy.internal:1080"],
            &["--proxy", "socks5h://[fd63:6175:7365::53]:3128"],
        ];
        for way in ways {
            for (url, version) in [
                ("https://static.example/ok/a", "2 200"),
                ("https://files.forge.example/a", "2 200"),
                ("http://static.example/ok/a", "1.1 200"),
                ("https://legacy.example/a", "2 200"),
            ] {
                let got = fetch(way, url)?;
                assert!(
                    got.ok() && got.stdout.ends_with(version),
                    "{way:?} {url}: {}",
                    got.output()
                );
                let peer = got.stdout.contains(&one.address.to_string());
                assert!(
                    peer || url.contains("legacy"),
                    "from its own address: {}",
                    got.stdout
                );
            }
            let got = fetch(way, "https://static.example/no")?;
            assert!(
                got.stdout.contains("request_denied"),
                "{way:?}: {}",
                got.output()
            );
            for url in ["https://intruder.example/", "https://static.example:7000/"] {
                let got = fetch(way, url)?;
                assert!(
                    !got.ok() || got.stdout.ends_with("403"),
                    "{way:?} {url}: {}",
                    got.output()
                );
            }
        }
        let refused = fetch(
            &["--proxy", "http://proxy.internal:3128", "-v"],
            "https://intruder.example/",
        )?;
        assert!(
            refused.stderr.contains("< HTTP/1.1 403"),
            "{}",
            refused.stderr
        );
        assert!(
            refused.stderr.contains("x-causeway-denied: name_denied"),
            "{}",
            refused.stderr
        );
        // Other sandboxes, and the router, are not behind it.
        let two = Sandbox::create(&lab, "acme", "two", &[], "")?;
        let url = format!("http://[{}]:3128/", two.address);
        let got = fetch(&["--proxy", "http://proxy.internal:3128"], &url)?;
        assert!(got.stdout.contains("reserved_address"), "{}", got.output());
        let received = lab.received()?;
        assert!(received.iter().all(|request| request["path"] != "/no"));
        Ok(())
    });
}

/// Sends a datagram and says what came of it: an answer, or an error.
const DATAGRAM: &str = r"
import socket, sys, time
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
s.settimeout(5)
s.connect((sys.argv[1], int(sys.argv[2])))
start = time.monotonic()
try:
    s.send(b'\xc0' * 1200)
    said = 'answered' if s.recv(2000) else ''
except OSError as error:
    said = type(error).__name__
print(said, 'at once' if time.monotonic() - start < 1 else 'late')
";

#[test]
fn quic_is_refused_at_once() {
    in_lab("clients::quic_is_refused_at_once", |mut lab| {
        let policy = format!(
            "{POLICY}    - {{ name: echo, cidr: [\"3ffe:b00::20/128\"], ports: [\"udp/7000\"] }}\n"
        );
        let one = set_up(&mut lab, &policy)?;
        let send = |to: &str, port: &str| {
            let mut python = one.namespace.command("python3");
            run_ok(python.args(["-c", DATAGRAM, to, port]))
        };
        let control = send("3ffe:b00::20", "7000")?;
        assert!(control.starts_with("answered"), "{control}");
        let addresses = [
            "3ffe:b00::20",
            "3ffe:b00::66",
            "fd63:6175:7365:64::2c80:421e",
        ];
        for to in addresses {
            assert_eq!(send(to, "443")?.trim(), "PermissionError at once", "{to}");
        }
        let drops =
            run_ok(&mut lab.command(&["--json", "sandbox", "show", "one", "--tenant", "acme"]))?;
        assert!(drops.contains("egress_denied"), "{drops}");
        Ok(())
    });
}

const SECRET: &str = "s3cr3t-9d1f7a3c5b2e4680";

const REAL: &str = r#"
apiVersion: causeway/v1
kind: Policy
metadata: { name: real, tenant: acme }
spec:
  selector: {}
  egress:
    - { name: web, to: [web.clients.example],
        http: [{ methods: [GET, POST], paths: [/hello, /sum, /events] }] }
    - { name: git, to: [git.clients.example], http: [{ methods: [GET, POST], paths: ["/git/**"] }] }
    - { name: index, to: [index.clients.example],
        http: [{ methods: [GET], paths: ["/simple/**", "/files/**", "/npm/**"] }] }
    - { name: shell, to: [shell.clients.example], ports: [22] }
    - { name: db, to: [db.clients.example], ports: [5432] }
    - { name: rpc, to: [rpc.clients.example], http: [{ methods: [POST],
        paths: [/demo.Demo/Echo, /demo.Demo/Count, /demo.Demo/Add, /demo.Demo/Fail] }] }
    - { name: socket, to: [socket.clients.example], http: [{ methods: [GET], paths: [/ws] }] }
  secrets:
    TOKEN:
      hosts: [web.clients.example, git.clients.example, index.clients.example]
      inject: { header: x-token, format: "{secret}" }
"#;

/// A sandbox whose clients trust what they should.
struct Desk {
    sandbox: Sandbox,
    roots: String,
}

impl Desk {
    /// A lab in which `servers` run behind [`REAL`].
    fn set_up(lab: &mut Lab) -> anyhow::Result<(Self, Servers)> {
        let servers = Servers::set_up(lab)?;
        let sandbox = set_up(lab, REAL)?;
        let set = ["secret", "set", "TOKEN", "--tenant", "acme"];
        let set = lab.causeway_with_input(&set, SECRET)?;
        anyhow::ensure!(set.ok(), "{}", set.output());
        let roots = lab.folder.join("roots.pem").display().to_string();
        Ok((Self { sandbox, roots }, servers))
    }

    /// A client, with every variable by which one is told what to trust.
    fn client(&self, program: &Path) -> Command {
        let mut command = self.sandbox.namespace.command(&program.to_string_lossy());
        for variable in [
            "SSL_CERT_FILE",
            "REQUESTS_CA_BUNDLE",
            "CURL_CA_BUNDLE",
            "NODE_EXTRA_CA_CERTS",
            "GIT_SSL_CAINFO",
            "PIP_CERT",
            "npm_config_cafile",
        ] {
            command.env(variable, &self.roots);
        }
        command
            .env("HOME", "/run/lab")
            .env("GIT_CONFIG_NOSYSTEM", "1");
        command
    }

    /// Runs a script in the sandbox, which has to succeed.
    fn sh(&self, script: &str) -> anyhow::Result<String> {
        let mut shell = self.client(Path::new("sh"));
        run_ok(shell.args(["-ec", script]))
    }
}

/// Runs `body` in a lab, where these programs are.
fn with_programs(name: &str, programs: &[&str], body: impl FnOnce(Lab) -> anyhow::Result<()>) {
    match programs.iter().try_for_each(|name| program(name).map(drop)) {
        Ok(()) => in_lab(name, body),
        Err(reason) => causeway_testing::skip(name, &reason),
    }
}

#[test]
fn python_node_java_and_go() {
    let name = "clients::python_node_java_and_go";
    with_programs(name, &["nginx"], |mut lab| {
        let (desk, mut servers) = Desk::set_up(&mut lab)?;
        let missing = |client: &str, reason: String| {
            causeway_testing::skip(&format!("{name}::{client}"), &reason);
        };
        servers.start_web(&program("nginx").unwrap(), SECRET)?;
        let url = "https://web.clients.example/hello";
        let ok = desk.sh(&format!(
            "curl -sS --max-time 10 -w '%{{http_version}}' {url}"
        ))?;
        assert!(ok.contains("hello") && ok.ends_with('2'), "{ok}");
        let large =
            "head -c 64M /dev/zero | curl -sS --max-time 60 -T - -X POST -H 'Expect: 100-continue'";
        for version in ["--http1.1", "--http2"] {
            let sent = desk.sh(&format!(
                "{large} {version} https://web.clients.example/sum"
            ))?;
            assert!(sent.contains("\"length\": 67108864"), "{version}: {sent}");
        }
        match python() {
            Ok(python) => {
                let said = run_ok(desk.client(&python).arg(format!("{SCRIPTS}/web.py")))?;
                assert_eq!(said.matches("ok").count(), 3, "{said}");
            }
            Err(reason) => missing("python", reason),
        }
        match program("node") {
            Ok(node) => {
                let mut node = desk.client(&node);
                node.arg(format!("{SCRIPTS}/fetch.mjs"))
                    .args(node_packages());
                let said = run_ok(&mut node)?;
                assert!(said.contains("fetch ok"), "{said}");
                if !said.contains("undici ok") {
                    missing(
                        "undici",
                        "needs undici in target/clients (scripts/clients)".to_owned(),
                    );
                }
            }
            Err(reason) => missing("node", reason),
        }
        match program("java").and_then(|java| Ok((java, program("keytool")?))) {
            Ok((java, keytool)) => {
                let store = lab.folder.join("trust.p12").display().to_string();
                let ca = lab.folder.join("ca.pem");
                std::fs::write(&ca, run_ok(&mut lab.command(&["ca"]))?)?;
                let password = ["-storepass", "changeit", "-keystore", &store];
                run_ok(
                    Command::new(keytool)
                        .args(["-importcert", "-noprompt", "-alias", "causeway", "-file"])
                        .arg(&ca)
                        .args(password),
                )?;
                let password = "-Djavax.net.ssl.trustStorePassword=changeit";
                let trust = format!("-Djavax.net.ssl.trustStore={store}");
                let mut java = desk.client(&java);
                let said = run_ok(
                    java.args([&trust, password])
                        .arg(format!("{SCRIPTS}/Fetch.java")),
                )?;
                assert_eq!(said.matches("ok").count(), 2, "{said}");
            }
            Err(reason) => missing("java", reason),
        }
        match program("go") {
            Ok(go) => {
                let mut go = desk.client(&go);
                let cache = lab.folder.join("go");
                go.env("GOCACHE", &cache).env("GOFLAGS", "-mod=mod");
                let said = run_ok(go.arg("run").arg(format!("{SCRIPTS}/fetch.go")))?;
                assert!(said.contains("go ok"), "{said}");
            }
            Err(reason) => missing("go", reason),
        }
        Ok(())
    });
}

#[test]
fn git_clones_and_pushes_a_large_repository() {
    let name = "clients::git_clones_and_pushes_a_large_repository";
    with_programs(name, &["nginx", "git"], |mut lab| {
        let (desk, mut servers) = Desk::set_up(&mut lab)?;
        let folder = servers.folder.display().to_string();
        run_ok(Command::new("sh").env("HOME", &folder).args([
            "-ec",
            &format!(
                "cd {folder}; git config --global core.compression 0; export GIT_AUTHOR_NAME=t GIT_AUTHOR_EMAIL=t@t \
                 GIT_COMMITTER_NAME=t GIT_COMMITTER_EMAIL=t@t
                 git init -q -b main work; head -c 24M /dev/urandom > work/large
                 git -C work add . ; git -C work commit -qm first
                 git clone -q --bare work git/x.git; git -C git/x.git config http.receivepack true"
            ),
        ]))?;
        servers.start_web(&program("nginx").unwrap(), SECRET)?;
        let to = lab.folder.join("clone").display().to_string();
        desk.sh(&format!(
            "export GIT_AUTHOR_NAME=t GIT_AUTHOR_EMAIL=t@t GIT_COMMITTER_NAME=t GIT_COMMITTER_EMAIL=t@t
             git clone -q https://git.clients.example/git/x.git {to}; cd {to}
             cmp large {folder}/work/large
             head -c 8M /dev/urandom > more; git add . ; git commit -qm second
             git push -q origin main"
        ))?;
        let heads = run_ok(Command::new("sh").args([
            "-ec",
            &format!(
                "git -c safe.directory='*' -C {folder}/git/x.git rev-parse main; \
                 git -c safe.directory='*' -C {to} rev-parse main"
            ),
        ]))?;
        let heads: Vec<_> = heads.lines().collect();
        assert!(heads.len() == 2 && heads[0] == heads[1], "{heads:?}");
        // What a rule does not permit, Git shows with its status.
        let refused =
            desk.sh("git ls-remote https://git.clients.example/other/x.git 2>&1 || true")?;
        assert!(refused.contains("403"), "{refused}");
        Ok(())
    });
}

#[test]
fn pip_and_npm_install_from_an_index() {
    let name = "clients::pip_and_npm_install_from_an_index";
    with_programs(name, &["nginx"], |mut lab| {
        let (desk, mut servers) = Desk::set_up(&mut lab)?;
        servers.start_web(&program("nginx").unwrap(), SECRET)?;
        let out = lab.folder.join("installed").display().to_string();
        match python() {
            Ok(python) => {
                let mut pip = desk.client(&python);
                pip.args([
                    "-m",
                    "pip",
                    "--isolated",
                    "--disable-pip-version-check",
                    "install",
                ]);
                pip.args([
                    "--quiet",
                    "--no-cache-dir",
                    "--no-deps",
                    "--target",
                    &out,
                    "--cert",
                ]);
                pip.args([
                    &desk.roots,
                    "--index-url",
                    "https://index.clients.example/simple/",
                ]);
                run_ok(pip.arg("demo-pkg"))?;
                assert!(Path::new(&out).join("demo_pkg.py").exists());
            }
            Err(reason) => causeway_testing::skip(&format!("{name}::pip"), &reason),
        }
        match program("npm") {
            Ok(_npm) => {
                desk.sh(&format!(
                    "mkdir -p {out}/npm; cd {out}/npm; npm install --silent --no-audit --no-fund \
                     --no-update-notifier --userconfig /dev/null --cache {out}/cache \
                     --registry https://index.clients.example/npm/ demo-pkg"
                ))?;
                assert!(
                    Path::new(&out)
                        .join("npm/node_modules/demo-pkg/index.js")
                        .exists()
                );
            }
            Err(reason) => causeway_testing::skip(&format!("{name}::npm"), &reason),
        }
        Ok(())
    });
}

#[test]
fn grpc_and_websocket() {
    let name = "clients::grpc_and_websocket";
    let python = match python() {
        Ok(python) => python,
        Err(reason) => return causeway_testing::skip(name, &reason),
    };
    in_lab(name, |mut lab| {
        let (desk, mut servers) = Desk::set_up(&mut lab)?;
        let folder = servers.folder.display().to_string();
        let (key, certificate) = (
            format!("{folder}/server.key"),
            format!("{folder}/server.pem"),
        );
        let interpreter = python.display().to_string();
        for (script, address) in [("grpc", "3ffe:b00::86"), ("socket", "3ffe:b00::87")] {
            let script = format!("{SCRIPTS}/{script}_server.py");
            servers.start(&[&interpreter, &script, &key, &certificate], (address, 443))?;
        }
        for (script, said) in [("grpc", "grpc ok"), ("socket", "websocket ok")] {
            let mut client = desk.client(&python);
            client
                .arg(format!("{SCRIPTS}/{script}_client.py"))
                .arg(&desk.roots);
            assert_eq!(run_ok(&mut client)?.trim(), said);
        }
        Ok(())
    });
}

#[test]
fn ssh_to_openssh() {
    let name = "clients::ssh_to_openssh";
    with_programs(name, &["sshd", "ssh", "ssh-keygen"], |mut lab| {
        let (desk, mut servers) = Desk::set_up(&mut lab)?;
        let folder = servers.folder.display().to_string();
        let config = format!(
            "ListenAddress [3ffe:b00::84]:22\nHostKey {folder}/host\nPidFile none\nUsePAM no\n\
             PermitRootLogin yes\nStrictModes no\nAuthorizedKeysFile {folder}/user.pub\n"
        );
        std::fs::write(format!("{folder}/sshd_config"), config)?;
        run_ok(Command::new("sh").args([
            "-ec",
            &format!(
                "mkdir -p /run/sshd; chmod 755 /run/sshd; for key in host user; do \
                 ssh-keygen -q -t ed25519 -N '' -f {folder}/$key; done"
            ),
        ]))?;
        let sshd = program("sshd").unwrap().display().to_string();
        let conf = format!("{folder}/sshd_config");
        servers.start(&[&sshd, "-D", "-e", "-f", &conf], ("3ffe:b00::84", 22))?;
        let user = run_ok(Command::new("id").arg("-un"))?;
        let ssh = |host: &str, more: &str| {
            format!(
                "head -c 8M /dev/zero | ssh -F none -i {folder}/user -o BatchMode=yes \
                 -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR \
                 -o ConnectTimeout=10 {more} {}@{host} 'wc -c'",
                user.trim()
            )
        };
        let said = desk.sh(&ssh("shell.clients.example", ""))?;
        assert_eq!(said.trim(), "8388608");
        // Another port, and another host on this port.
        for (host, more) in [
            ("shell.clients.example", "-p 443"),
            ("web.clients.example", ""),
        ] {
            let refused = desk.sh(&format!("{} 2>&1 || echo refused", ssh(host, more)))?;
            assert!(refused.contains("refused"), "{host} {more}: {refused}");
        }
        Ok(())
    });
}

#[test]
fn psql_to_postgresql() {
    let name = "clients::psql_to_postgresql";
    let server = program("postgres").or_else(|missing| {
        let found =
            run_ok(Command::new("sh").args(["-c", "ls /usr/lib/postgresql/*/bin/postgres"]));
        let last = found
            .ok()
            .and_then(|all| all.lines().last().map(Into::into));
        last.ok_or(missing)
    });
    let server: std::path::PathBuf = match server {
        Ok(server) => server,
        Err(reason) => return causeway_testing::skip(name, &reason),
    };
    with_programs(name, &["psql", "setpriv"], |mut lab| {
        let (desk, mut servers) = Desk::set_up(&mut lab)?;
        let folder = servers.folder.display().to_string();
        let bin = std::fs::canonicalize(&server)?;
        let bin = bin.parent().unwrap_or(Path::new("/")).display().to_string();
        // It does not run as root.
        let nobody = "setpriv --reuid 65534 --regid 65534 --clear-groups";
        let prepared = run(Command::new("sh").args([
            "-ec",
            &format!(
                "chmod 755 {folder} {folder}/..; mkdir {folder}/db; \
                 cp {folder}/server.key {folder}/db.key; cp {folder}/server.pem {folder}/db.pem
                 chmod 600 {folder}/db.key; chown -R 65534:65534 {folder}/db {folder}/db.*
                 {nobody} {bin}/initdb -D {folder}/db -U tester --auth=trust --no-sync -E UTF8 >/dev/null
                 echo 'hostssl all all ::/0 trust' > {folder}/db/pg_hba.conf"
            ),
        ]))?;
        if !prepared.ok() {
            causeway_testing::skip(name, &format!("no database here: {}", prepared.output()));
            return Ok(());
        }
        let start = format!(
            "exec {nobody} {bin}/postgres -D {folder}/db -c listen_addresses=3ffe:b00::85 -c fsync=off \
             -c unix_socket_directories={folder}/db -c ssl=on -c ssl_cert_file={folder}/db.pem \
             -c ssl_key_file={folder}/db.key"
        );
        servers.start(&["sh", "-c", &start], ("3ffe:b00::85", 5432))?;
        for mode in ["require", "verify-full"] {
            let said = desk.sh(&format!(
                "psql -XtA 'host=db.clients.example user=tester dbname=postgres connect_timeout=10 \
                 sslmode={mode} sslrootcert={folder}/ca.pem' \
                 -c 'select ssl, (select count(*) from generate_series(1, 100000)) \
                 from pg_stat_ssl where pid = pg_backend_pid()'"
            ))?;
            assert_eq!(said.trim(), "t|100000", "{mode}");
        }
        // The same server on a name that no rule has on this port.
        let refused = desk.sh(
            "psql -X 'host=web.clients.example user=tester connect_timeout=3' -c 'select 1' 2>&1 \
             || echo refused",
        )?;
        assert!(refused.contains("refused"), "{refused}");
        Ok(())
    });
}
