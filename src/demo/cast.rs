//! The sandboxes of the demo, and what a program inside one can find out.

use std::fs;
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

use super::board::Probe;
use crate::lab::{Finished, Lab, Namespace, poll, run};

/// A sandbox: its name, its namespace and the address that it was given.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub(crate) tenant: &'static str,
    pub(crate) name: &'static str,
    pub(crate) namespace: Namespace,
    pub(crate) address: Ipv6Addr,
}

/// What a sandbox is made of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Role {
    pub(crate) tenant: &'static str,
    pub(crate) name: &'static str,
    pub(crate) networks: &'static [&'static str],
    /// The value of its label `role`.
    pub(crate) label: &'static str,
}

/// Everything that the probes need.
pub(crate) struct Stage {
    pub(crate) lab: Lab,
    /// Programs in sandboxes that run on.
    background: Vec<Child>,
}

impl Stage {
    pub(crate) fn new(lab: Lab) -> anyhow::Result<Self> {
        fs::write(lab.folder.join("client.py"), include_str!("client.py"))?;
        Ok(Self {
            lab,
            background: Vec::new(),
        })
    }

    /// Creates the sandbox as an orchestrator would: a namespace, then one command.
    pub(crate) fn create(&self, role: &Role) -> anyhow::Result<Member> {
        let namespace = self.lab.namespace(role.name)?;
        let attach = format!("netns:{}", namespace.path().display());
        let label = format!("role={}", role.label);
        let mut arguments = vec![
            "sandbox",
            "create",
            role.name,
            "--tenant",
            role.tenant,
            "--label",
            &label,
        ];
        for network in role.networks {
            arguments.extend(["--network", network]);
        }
        arguments.extend(["--attach", &attach]);
        let created = self.lab.json(&arguments)?;
        let address = text_at(&created, "address")?.parse()?;
        Ok(Member {
            tenant: role.tenant,
            name: role.name,
            namespace,
            address,
        })
    }

    /// A Python client inside `namespace`, trusting what a sandbox's image would: the usual
    /// roots and Causeway's.
    pub(crate) fn client(&self, namespace: &Namespace, arguments: &[&str]) -> Command {
        let mut command = namespace.command("python3");
        command
            .arg(self.lab.folder.join("client.py"))
            .args(arguments);
        command.env("SSL_CERT_FILE", self.bundle());
        command
    }

    /// `curl` inside the sandbox, ten seconds at the most.
    pub(crate) fn curl(&self, member: &Member, arguments: &[&str]) -> anyhow::Result<Finished> {
        let mut command = member.namespace.command("curl");
        command
            .args(["-sS", "--max-time", "10", "--cacert"])
            .arg(self.bundle())
            .args(arguments);
        run(&mut command)
    }

    /// The roots that clients in sandboxes trust.
    pub(crate) fn bundle(&self) -> PathBuf {
        self.lab.folder.join("bundle.pem")
    }

    /// Starts a TCP server inside the namespace that outlives the call.
    pub(crate) fn serve(&mut self, namespace: &Namespace, ports: &[&str]) -> anyhow::Result<()> {
        let ready = self.lab.folder.join(format!("{}-serves", namespace.name));
        let mut arguments = vec!["serve"];
        arguments.extend(ports);
        let mut command = self.client(namespace, &arguments);
        self.spawn(command.stdout(fs::File::create(&ready)?))?;
        poll("the server to listen", Duration::from_secs(5), || {
            Ok(fs::read_to_string(&ready)?.contains("ready").then_some(()))
        })
    }

    /// Starts a program that runs on, and returns its place for [`Stage::has_ended`].
    pub(crate) fn spawn(&mut self, command: &mut Command) -> anyhow::Result<usize> {
        let child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn()?;
        self.background.push(child);
        Ok(self.background.len() - 1)
    }

    /// Whether a program started with [`Stage::spawn`] has ended.
    pub(crate) fn has_ended(&mut self, index: usize) -> anyhow::Result<bool> {
        let child = self.background.get_mut(index).context("no such program")?;
        Ok(child.try_wait()?.is_some())
    }

    /// Evidence that a TCP server answers.
    pub(crate) fn connects(&self, from: &Namespace, to: Ipv6Addr, port: &str) -> Probe {
        let reply = run(&mut self.client(from, &["tcp", &to.to_string(), port]))?;
        ensure!(
            reply.ok(),
            "{} does not reach port {port}: {}",
            from.name,
            last_line(&reply.stderr)
        );
        Ok(format!("{} reads {:?}", from.name, reply.stdout.trim()))
    }

    /// Evidence that it does not.
    pub(crate) fn does_not_connect(&self, from: &Namespace, to: Ipv6Addr, port: &str) -> Probe {
        let reply = run(&mut self.client(from, &["tcp", &to.to_string(), port]))?;
        ensure!(
            !reply.ok(),
            "{} reached port {port}: {}",
            from.name,
            reply.stdout
        );
        Ok(format!(
            "{} on port {port}: {}",
            from.name,
            last_line(&reply.stderr)
        ))
    }

    /// How often packets of `member` were dropped for `reason`.
    pub(crate) fn drops(&self, member: &Member, reason: &str) -> anyhow::Result<u64> {
        let shown = self
            .lab
            .json(&["sandbox", "show", member.name, "--tenant", member.tenant])?;
        Ok(shown["counters"]["drops"][reason].as_u64().unwrap_or(0))
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        for child in &mut self.background {
            // What has ended already needs no ending.
            let _gone = child.kill();
            let _reaped = child.wait();
        }
    }
}

/// Evidence that `from` reaches `to`.
pub(crate) fn pings(from: &Member, to: &Member) -> Probe {
    let reply = ping(from, to)?;
    ensure!(
        reply.ok(),
        "no reply from {} to {}: {}",
        to.name,
        from.name,
        reply.output()
    );
    Ok(format!("{} pings {}", from.name, to.name))
}

/// Evidence that `from` does not reach `to`.
pub(crate) fn does_not_ping(from: &Member, to: &Member) -> Probe {
    let reply = ping(from, to)?;
    ensure!(!reply.ok(), "{} answered {}", to.name, from.name);
    Ok(format!("{} gets no answer from {}", from.name, to.name))
}

/// One echo request.
fn ping(from: &Member, to: &Member) -> anyhow::Result<Finished> {
    let mut command = from.namespace.command("ping");
    run(command.args(["-6", "-n", "-c", "1", "-W", "1", &to.address.to_string()]))
}

/// The text at `key`, which has to be there.
pub(crate) fn text_at<'a>(value: &'a Value, key: &str) -> anyhow::Result<&'a str> {
    value[key]
        .as_str()
        .with_context(|| format!("no `{key}` in {value}"))
}

/// The refusal that Causeway sent as JSON, which has to name `reason`.
pub(crate) fn refusal(finished: &Finished, reason: &str) -> Probe {
    let body: Value = serde_json::from_str(&finished.stdout)
        .with_context(|| format!("no refusal but: {}", finished.output()))?;
    if body["reason"] != reason {
        bail!("refused for another reason: {body}");
    }
    Ok(format!(
        "refused: {reason}: {}",
        body["explanation"].as_str().unwrap_or_default()
    ))
}

pub(crate) fn last_line(text: &str) -> &str {
    text.trim().lines().last().unwrap_or_default()
}
