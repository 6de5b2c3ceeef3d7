//! The lab's host, its internet, and the commands that a person would type.

use std::fs;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::Value;

use super::internet::{NAME_SERVER, SITES};
use super::process::run_with_input;
use super::{Finished, isolate, poll, run, run_ok};

/// The operator prefix of the lab, in the range of the former 6bone (RFC 3701).
pub const OPERATOR_PREFIX: &str = "3ffe:ca05:1::/48";

/// A network namespace in which a sandbox's code runs.
#[derive(Debug, Clone)]
pub struct Namespace {
    /// Its name, as `ip netns` shows it.
    pub name: String,
}

impl Namespace {
    /// Its path, as `--attach netns:` takes it.
    pub fn path(&self) -> PathBuf {
        Path::new("/run/netns").join(&self.name)
    }

    /// A command that runs inside. The mount namespace stays the lab's.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net={}", self.path().display()))
            .arg("--")
            .arg(program);
        command
    }
}

/// A host with an uplink to an internet of its own. Dropping it ends the processes; the
/// namespaces end with the process that entered them.
#[derive(Debug)]
pub struct Lab {
    /// Where the lab keeps its files: configuration, state, logs.
    pub folder: PathBuf,
    binary: PathBuf,
    internet: Child,
    agent: Option<Child>,
}

impl Lab {
    /// Builds the host and the internet. `binary` is the `causeway` command.
    pub fn set_up(binary: &Path) -> anyhow::Result<Self> {
        Self::set_up_in(binary, Path::new("/run/lab"))
    }

    /// The same, with its files in `folder`: a disk, where durability has to cost what it costs.
    pub fn set_up_in(binary: &Path, folder: &Path) -> anyhow::Result<Self> {
        isolate::settle()?;
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        use_causeway_resolver(folder)?;
        wire_internet()?;
        let internet = start_internet(binary, folder)?;
        let lab = Self {
            folder: folder.to_owned(),
            binary: binary.to_owned(),
            internet,
            agent: None,
        };
        lab.write_config("")?;
        Ok(lab)
    }

    /// Writes the agent's configuration, with `extra` lines in the section `[address]`.
    pub fn write_config(&self, extra: &str) -> anyhow::Result<()> {
        let folder = self.folder.display();
        let config = format!(
            r#"state_dir = "{folder}/state"
runtime_dir = "{folder}/run"

[address]
prefix = "{OPERATOR_PREFIX}"
{extra}

[uplink]
translate = "routed"

[egress]
resolvers = ["{NAME_SERVER}"]
extra_roots = ["{folder}/internet-root.pem"]
"#
        );
        fs::write(self.config(), config).context("cannot write the configuration")
    }

    /// The agent's configuration file.
    pub fn config(&self) -> PathBuf {
        self.folder.join("causeway.toml")
    }

    /// Where the agent's log goes.
    pub fn agent_log(&self) -> PathBuf {
        self.folder.join("agent.log")
    }

    /// Every request that reached the internet's servers so far.
    pub fn received(&self) -> anyhow::Result<Vec<Value>> {
        let text = fs::read_to_string(self.folder.join("received.jsonl"))?;
        text.lines()
            .map(|line| Ok(serde_json::from_str(line)?))
            .collect()
    }

    /// Starts `causeway up` and waits until it answers and is ready.
    pub fn start_agent(&mut self) -> anyhow::Result<()> {
        self.spawn_agent()?;
        self.await_ready()
    }

    /// Starts `causeway up` without waiting.
    pub fn spawn_agent(&mut self) -> anyhow::Result<()> {
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.agent_log())?;
        let child = Command::new(&self.binary)
            .args(["up", "--config"])
            .arg(self.config())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("cannot start the agent")?;
        self.agent = Some(child);
        Ok(())
    }

    /// Waits until the agent answers and says that it is ready.
    pub fn await_ready(&mut self) -> anyhow::Result<()> {
        let log = self.agent_log();
        let ready = poll("the agent to be ready", Duration::from_secs(20), || {
            if let Some(agent) = self.agent.as_mut()
                && let Some(status) = agent.try_wait()?
            {
                bail!("the agent ended: {status}");
            }
            let status = self.causeway(&["--json", "status"])?;
            let ready = serde_json::from_str::<Value>(&status.stdout)
                .ok()
                .is_some_and(|status| status["health"] == "ok");
            Ok(ready.then_some(()))
        });
        ready.with_context(|| {
            let log = fs::read_to_string(log).unwrap_or_default();
            let tail: Vec<_> = log.lines().rev().take(15).collect();
            format!(
                "the agent's log ends:\n{}",
                tail.into_iter().rev().collect::<Vec<_>>().join("\n")
            )
        })
    }

    /// The agent's process id.
    pub fn agent_pid(&self) -> anyhow::Result<u32> {
        Ok(self.agent.as_ref().context("the agent does not run")?.id())
    }

    /// Kills the agent as a crash would, and waits for its end.
    pub fn kill_agent(&mut self) -> anyhow::Result<()> {
        let mut agent = self.agent.take().context("the agent does not run")?;
        agent.kill()?;
        agent.wait()?;
        Ok(())
    }

    /// Stops the agent where it is, or lets it go on, so that nobody starts a proxy meanwhile.
    pub fn hold_agent(&self, hold: bool) -> anyhow::Result<()> {
        let agent = self.agent.as_ref().context("the agent does not run")?;
        let signal = if hold { "-STOP" } else { "-CONT" };
        run_ok(Command::new("kill").args([signal, &agent.id().to_string()]))?;
        Ok(())
    }

    /// Waits for the agent to end by itself.
    pub fn await_agent_end(&mut self) -> anyhow::Result<()> {
        let mut agent = self.agent.take().context("the agent does not run")?;
        poll("the agent's end", Duration::from_secs(10), || {
            Ok(agent.try_wait()?)
        })?;
        Ok(())
    }

    /// The agent's API socket.
    pub fn api_socket(&self) -> PathBuf {
        self.folder.join("run/causeway.sock")
    }

    /// A `causeway` command that talks to this lab's agent.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command
            .env("CAUSEWAY_CONFIG", self.config())
            .args(arguments);
        command
    }

    /// Runs a `causeway` command.
    pub fn causeway(&self, arguments: &[&str]) -> anyhow::Result<Finished> {
        run(&mut self.command(arguments))
    }

    /// Runs a `causeway` command with `input` on its standard input.
    pub fn causeway_with_input(&self, arguments: &[&str], input: &str) -> anyhow::Result<Finished> {
        run_with_input(&mut self.command(arguments), Some(input))
    }

    /// Runs a `causeway` command that has to succeed and to print JSON.
    pub fn json(&self, arguments: &[&str]) -> anyhow::Result<Value> {
        let mut all = vec!["--json"];
        all.extend(arguments);
        let text = run_ok(&mut self.command(&all))?;
        serde_json::from_str(&text).with_context(|| format!("not JSON: {text}"))
    }

    /// Makes a network namespace for a sandbox, as an orchestrator would.
    pub fn namespace(&self, name: &str) -> anyhow::Result<Namespace> {
        run_ok(Command::new("ip").args(["netns", "add", name]))?;
        Ok(Namespace {
            name: name.to_owned(),
        })
    }

    /// The internet's own namespace.
    pub fn internet(&self) -> Namespace {
        Namespace {
            name: "internet".to_owned(),
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for child in self.agent.iter_mut().chain([&mut self.internet]) {
            // What is gone already needs no ending.
            let _gone = child.kill();
            let _reaped = child.wait();
        }
    }
}

/// Every process of the lab resolves through Causeway's resolver, as a sandbox's image would.
fn use_causeway_resolver(folder: &Path) -> anyhow::Result<()> {
    let ours = folder.join("resolv.conf");
    fs::write(&ours, format!("nameserver {}\n", causeway_types::RESOLVER))?;
    let theirs = Path::new("/etc/resolv.conf");
    // Often a link into `/run`, which is ours and empty now.
    let target =
        fs::read_link(theirs).map_or(theirs.to_owned(), |link| Path::new("/etc").join(link));
    if !target.exists() {
        fs::create_dir_all(target.parent().unwrap_or(Path::new("/")))?;
        fs::write(&target, "")?;
    }
    run_ok(Command::new("mount").arg("--bind").arg(&ours).arg(&target))?;
    Ok(())
}

fn wire_internet() -> anyhow::Result<()> {
    let ip = |arguments: &str| run_ok(Command::new("ip").args(arguments.split_whitespace()));
    ip("netns add internet")?;
    ip("link add wan type veth peer name wan netns internet")?;
    ip("addr add 3ffe:b00:0:ff::2/64 dev wan nodad")?;
    ip("addr add 44.128.66.2/30 dev wan")?;
    ip("link set wan up")?;
    for end in [
        "link set lo up",
        "addr add 3ffe:b00:0:ff::1/64 dev wan nodad",
        "addr add 44.128.66.1/30 dev wan",
        "link set wan up",
    ] {
        ip(&format!("-n internet {end}"))?;
    }
    ip("-6 route add default via 3ffe:b00:0:ff::1")?;
    ip("route add default via 44.128.66.1")?;
    ip(&format!(
        "-n internet -6 route add {OPERATOR_PREFIX} via 3ffe:b00:0:ff::2"
    ))?;
    ip(&format!(
        "-n internet addr add {NAME_SERVER}/128 dev lo nodad"
    ))?;
    for site in SITES.iter().filter(|site| site.served) {
        if let Some(address) = site.v6 {
            ip(&format!("-n internet addr add {address}/128 dev lo nodad"))?;
        }
        if let Some(address) = site.v4 {
            ip(&format!("-n internet addr add {address}/32 dev lo"))?;
        }
    }
    Ok(())
}

fn start_internet(binary: &Path, folder: &Path) -> anyhow::Result<Child> {
    let internet = Namespace {
        name: "internet".to_owned(),
    };
    let log = fs::File::create(folder.join("internet.log"))?;
    let child = internet
        .command(&binary.to_string_lossy())
        .args(["demo", "--internet"])
        .arg(folder)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .context("cannot start the lab's internet")?;
    poll("the lab's internet", Duration::from_secs(10), || {
        Ok(folder.join("internet-ready").exists().then_some(()))
    })
    .with_context(|| fs::read_to_string(folder.join("internet.log")).unwrap_or_default())?;
    Ok(child)
}

/// Whether `address` lies in the lab's operator prefix.
pub fn is_operators(address: Ipv6Addr) -> bool {
    OPERATOR_PREFIX
        .parse::<ipnet::Ipv6Net>()
        .is_ok_and(|net| net.contains(&address))
}
