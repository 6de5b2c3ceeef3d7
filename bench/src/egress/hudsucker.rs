//! The peer: a proxy made with the hudsucker crate that terminates TLS, puts the header in and
//! forwards. It is a crate of its own, below `bench/peers`, so that nothing of it gets near
//! the product.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use causeway::lab::internet::address_of;
use causeway::lab::{Namespace, poll};

use super::client::Target;
use super::{GUARDED_SITE, origin};

/// Where it listens.
pub(crate) const PORT: u16 = 8080;
/// The longest that compiling it may take.
const PATIENCE: Duration = Duration::from_secs(420);

/// Compiles it where that was not done yet. On failure says why it cannot be had.
pub(crate) fn build(folder: &Path) -> Result<PathBuf, String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/hudsucker");
    let target = folder.join("peers");
    let log = folder.join("hudsucker-build.log");
    compile(&source, &target, &log).map_err(|error| format!("{error:#}: see {}", log.display()))?;
    Ok(target.join("release/hudsucker-peer"))
}

fn compile(source: &Path, target: &Path, log: &Path) -> anyhow::Result<()> {
    let log = fs::File::create(log)?;
    let mut cargo = Command::new("cargo")
        .args(["build", "--locked", "--release", "--manifest-path"])
        .arg(source.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(target)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .context("cargo cannot be run")?;
    let start = Instant::now();
    loop {
        match cargo.try_wait()? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => bail!("the crate hudsucker does not compile here ({status})"),
            None if start.elapsed() > PATIENCE => {
                cargo.kill()?;
                cargo.wait()?;
                bail!("compiling the crate hudsucker takes more than {PATIENCE:?}");
            }
            None => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

/// The running peer, which ends with this value.
#[derive(Debug)]
pub(crate) struct Peer {
    process: Child,
    listen: SocketAddr,
    /// Its certificate authority, PEM.
    pub(crate) authority: String,
}

impl Peer {
    /// Starts it in `namespace`; it trusts servers that `roots` certify.
    pub(crate) fn start(
        program: &Path,
        namespace: &Namespace,
        listen: SocketAddr,
        folder: &Path,
        roots: &[String],
    ) -> anyhow::Result<Self> {
        let trusted = folder.join("hudsucker-trusts.pem");
        let authority = folder.join("hudsucker-authority.pem");
        fs::write(&trusted, roots.concat())?;
        if authority.exists() {
            fs::remove_file(&authority)?;
        }
        let server = address_of(GUARDED_SITE).context("the site has no address")?;
        let process = namespace
            .command(&program.to_string_lossy())
            .arg(listen.to_string())
            .arg(SocketAddr::from((server, origin::PORT)).to_string())
            .arg(origin::CREDENTIAL)
            .arg(&trusted)
            .arg(&authority)
            .stdin(Stdio::null())
            .spawn()?;
        let mut peer = Self {
            process,
            listen,
            authority: String::new(),
        };
        peer.authority = poll("hudsucker to listen", Duration::from_secs(10), || {
            Ok(fs::read_to_string(&authority)
                .ok()
                .filter(|pem| pem.contains("-----END")))
        })?;
        Ok(peer)
    }

    /// Its process.
    pub(crate) fn process(&self) -> u32 {
        self.process.id()
    }

    /// Requests through it from `client`.
    pub(crate) fn target(&self, client: Namespace) -> Target {
        Target {
            namespace: client,
            host: GUARDED_SITE,
            address: self.listen,
            port: origin::PORT,
            connect: true,
            path: origin::GUARDED,
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // What is gone already needs no ending.
        let _gone = self.process.kill();
        let _reaped = self.process.wait();
    }
}
