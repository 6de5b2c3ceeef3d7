//! Real servers in a network of their own behind the lab's internet.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use causeway::lab::{Lab, Namespace, poll, run, run_ok};

/// Where the scripts are.
pub(super) const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/clients");
/// Where `scripts/clients` leaves what it fetches.
const FETCHED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/target/clients");
/// The folder of the administration's programs, which is not on every user's path.
const PATH: &str = "/usr/sbin:/sbin:/usr/bin:/bin";
/// An interpreter has to load its libraries first, on a machine that may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// The virtual environment's interpreter, if it is complete.
pub(super) fn python() -> Result<PathBuf, String> {
    let ready = Path::new(FETCHED).join("python-ready").exists();
    let missing = || format!("needs Python's client libraries in {FETCHED} (scripts/clients)");
    ready
        .then(|| Path::new(FETCHED).join("venv/bin/python"))
        .ok_or_else(missing)
}

/// Where Node's packages are, if they are.
pub(super) fn node_packages() -> Option<PathBuf> {
    let packages = Path::new(FETCHED).join("node");
    packages
        .join("node_modules/undici")
        .exists()
        .then_some(packages)
}

/// The path of a program.
pub(super) fn program(name: &str) -> Result<PathBuf, String> {
    let found = Command::new("sh")
        .env(
            "PATH",
            format!("{}:{PATH}", std::env::var("PATH").unwrap_or_default()),
        )
        .args(["-c", &format!("command -v {name}")])
        .output();
    match found {
        Ok(output) if output.status.success() => {
            Ok(String::from_utf8_lossy(&output.stdout).trim().into())
        }
        _ => Err(format!("needs `{name}`")),
    }
}

/// The servers, which end with this value.
#[derive(Debug)]
pub(super) struct Servers {
    namespace: Namespace,
    pub(super) folder: PathBuf,
    running: Vec<Child>,
}

impl Servers {
    /// Makes the network and the certificates. Before the agent starts, which is to trust them.
    pub(super) fn set_up(lab: &Lab) -> anyhow::Result<Self> {
        let namespace = lab.namespace("servers")?;
        let folder = lab.folder.join("servers");
        fs::create_dir_all(&folder)?;
        let ip = |arguments: &str| run_ok(Command::new("ip").args(arguments.split_whitespace()));
        ip("-n internet link add srv type veth peer name srv netns servers")?;
        for line in [
            "-n internet addr add 3ffe:b00:0:fe::1/64 dev srv nodad",
            "-n servers addr add 3ffe:b00:0:fe::2/64 dev srv nodad",
            "-n internet link set srv up",
            "-n servers link set srv up",
            "-n servers link set lo up",
            "-n internet -6 route add 3ffe:b00::80/121 via 3ffe:b00:0:fe::2",
            "-n servers -6 route add default via 3ffe:b00:0:fe::1",
        ] {
            ip(line)?;
        }
        for host in 0x81..=0x87 {
            ip(&format!(
                "-n servers addr add 3ffe:b00::{host:x}/128 dev lo nodad"
            ))?;
        }
        let mut forward = lab.internet().command("sh");
        let setting = "/proc/sys/net/ipv6/conf/all/forwarding";
        run_ok(forward.args(["-c", &format!("echo 1 > {setting}")]))?;
        certify(lab, &folder)?;
        Ok(Self {
            namespace,
            folder,
            running: Vec::new(),
        })
    }

    /// Starts a server, and waits until something listens at `address` and `port`.
    pub(super) fn start(&mut self, command: &[&str], listens: (&str, u16)) -> anyhow::Result<()> {
        let (program, arguments) = command.split_first().context("no program")?;
        let log = fs::File::create(self.folder.join(format!("log-{}", self.running.len())))?;
        let child = self
            .namespace
            .command(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {program}"))?;
        self.running.push(child);
        let (address, port) = listens;
        let probe =
            format!("import socket; socket.create_connection(('{address}', {port}), timeout=2)");
        let waited = poll(&format!("{program} to listen"), PATIENCE, || {
            let mut python = self.namespace.command("python3");
            let found = run(python.args(["-c", &probe]))?;
            Ok(found.ok().then_some(()))
        });
        let log = self.folder.join(format!("log-{}", self.running.len() - 1));
        waited.with_context(|| fs::read_to_string(log).unwrap_or_default())
    }

    /// nginx with TLS and HTTP/2 in front of `origin.py`. It answers only who knows `token`.
    pub(super) fn start_web(&mut self, nginx: &Path, token: &str) -> anyhow::Result<()> {
        let folder = self.folder.display().to_string();
        let origin = format!("{SCRIPTS}/origin.py");
        self.start(
            &["python3", &origin, &format!("{folder}/git")],
            ("::1", 9000),
        )?;
        let config = format!(
            r#"daemon off; master_process off; user root; pid {folder}/nginx.pid; error_log stderr;
events {{ }}
http {{
  access_log off; client_max_body_size 0;
  client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2; fastcgi_temp_path {folder}/t3;
  uwsgi_temp_path {folder}/t4; scgi_temp_path {folder}/t5;
  server {{
    listen [::]:443 ssl http2;
    ssl_certificate {folder}/server.pem; ssl_certificate_key {folder}/server.key;
    if ($http_x_token != "{token}") {{ return 401 "no token\n"; }}
    location / {{
      proxy_pass http://[::1]:9000; proxy_http_version 1.1; proxy_set_header Host $host;
      proxy_request_buffering off; proxy_buffering off;
    }}
  }}
}}
"#
        );
        fs::write(format!("{folder}/nginx.conf"), config)?;
        let nginx = nginx.display().to_string();
        let conf = format!("{folder}/nginx.conf");
        self.start(&[&nginx, "-p", &folder, "-c", &conf], ("3ffe:b00::81", 443))
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for child in &mut self.running {
            // It may have ended by itself.
            let _gone = child.kill();
            let _reaped = child.wait();
        }
    }
}

/// An authority that the node trusts besides the lab's, and one certificate for all names.
fn certify(lab: &Lab, folder: &Path) -> anyhow::Result<()> {
    let script = r#"set -e
cd "$0"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.pem \
  -days 2 -subj "/CN=Clients' Test Root" -addext basicConstraints=critical,CA:TRUE 2>/dev/null
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout server.key -out server.csr \
  -subj /CN=clients.example 2>/dev/null
printf 'subjectAltName=DNS:*.clients.example\nextendedKeyUsage=serverAuth\n' > server.ext
openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out server.pem -days 2 \
  -extfile server.ext 2>/dev/null
cat ca.pem >> "$1"
"#;
    let roots = lab.folder.join("internet-root.pem");
    run_ok(
        Command::new("sh")
            .args(["-c", script])
            .arg(folder)
            .arg(roots),
    )?;
    Ok(())
}
