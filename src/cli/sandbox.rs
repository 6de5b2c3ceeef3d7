//! `causeway sandbox`.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::str::FromStr;

use causeway_types::{Labels, NetworkName, SandboxName, TenantName};
use clap::{Args, Subcommand};
use http::Method;

use super::output::table;
use super::{CliError, Context};
use crate::api::model::{Attach, Sandbox, SandboxCreate, SandboxState, default_interface};

/// What is done to sandboxes.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create a sandbox and wire it; its address is usable when this returns.
    Create(Create),
    /// List sandboxes.
    List(List),
    /// Show a sandbox, with the placeholders of its secrets.
    Show(Target),
    /// Delete a sandbox. Its address is not given to another for some time.
    Delete(Target),
    /// Cut a sandbox off from everything, live connections included.
    Quarantine(Target),
    /// Let a sandbox out of quarantine.
    Release(Target),
}

/// A sandbox to create.
#[derive(Debug, Args)]
pub(crate) struct Create {
    /// Its name, unique within the tenant.
    name: SandboxName,
    /// Its owner.
    #[arg(long, value_name = "TENANT", env = "CAUSEWAY_TENANT")]
    tenant: TenantName,
    /// A private network to join; may be given several times.
    #[arg(long = "network", value_name = "NETWORK")]
    networks: Vec<NetworkName>,
    /// A label, which policies select by; may be given several times.
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = Labels::parse_pair)]
    labels: Vec<(String, String)>,
    /// The wiring: netns:PATH[,interface=NAME], tap:NAME, vhost-user:SOCKET or memif:SOCKET.
    #[arg(long, value_name = "HOW")]
    attach: AttachArgument,
    /// The address that it must get.
    #[arg(long)]
    address: Option<Ipv6Addr>,
    /// Also get a prefix of this length for what is nested inside it.
    #[arg(long, value_name = "64..127", value_parser = clap::value_parser!(u8).range(64..=127))]
    prefix_length: Option<u8>,
    /// The MTU of its interface, in bytes.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(1280..))]
    mtu: Option<u16>,
}

/// Whose sandboxes.
#[derive(Debug, Args)]
pub(crate) struct List {
    /// Only this tenant's.
    #[arg(long, value_name = "TENANT", env = "CAUSEWAY_TENANT")]
    tenant: Option<TenantName>,
}

/// A sandbox.
#[derive(Debug, Args)]
pub(crate) struct Target {
    /// The sandbox, as NAME with `--tenant`, or as TENANT/NAME.
    sandbox: SandboxArgument,
    /// Its owner.
    #[arg(long, value_name = "TENANT", env = "CAUSEWAY_TENANT")]
    tenant: Option<TenantName>,
}

/// `NAME` or `TENANT/NAME`.
#[derive(Debug, Clone)]
pub(crate) struct SandboxArgument {
    tenant: Option<TenantName>,
    name: SandboxName,
}

impl FromStr for SandboxArgument {
    type Err = causeway_types::NameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (tenant, name) = match text.split_once('/') {
            Some((tenant, name)) => (Some(tenant.parse()?), name),
            None => (None, text),
        };
        Ok(Self {
            tenant,
            name: name.parse()?,
        })
    }
}

impl SandboxArgument {
    /// The owner and the name. Ends the process with status 2 when no owner is named.
    pub(crate) fn resolve(self, tenant: Option<TenantName>) -> (TenantName, SandboxName) {
        match self.tenant.or(tenant) {
            Some(tenant) => (tenant, self.name),
            None => super::usage("name the tenant: write TENANT/NAME, or add `--tenant TENANT`"),
        }
    }
}

/// How a sandbox is wired, as one word.
#[derive(Debug, Clone)]
struct AttachArgument(Attach);

/// Why a word is not a wiring.
#[derive(Debug, thiserror::Error)]
enum AttachError {
    #[error(
        "`{text}` is no wiring: write netns:PATH, netns:PATH,interface=NAME, tap:NAME, \
         vhost-user:SOCKET or memif:SOCKET"
    )]
    Form { text: String },
}

impl FromStr for AttachArgument {
    type Err = AttachError;

    fn from_str(text: &str) -> Result<Self, AttachError> {
        let form = || AttachError::Form {
            text: text.to_owned(),
        };
        let (kind, rest) = text.split_once(':').ok_or_else(form)?;
        if rest.is_empty() {
            return Err(form());
        }
        Ok(Self(match kind {
            "netns" => {
                let (path, interface) = match rest.split_once(",interface=") {
                    Some((path, interface)) => (path, interface.to_owned()),
                    None => (rest, default_interface()),
                };
                Attach::Netns {
                    path: absolute(path),
                    interface,
                }
            }
            "tap" => Attach::Tap {
                name: rest.to_owned(),
            },
            "vhost-user" => Attach::VhostUser {
                socket: absolute(rest),
            },
            "memif" => Attach::Memif {
                socket: absolute(rest),
            },
            _ => return Err(form()),
        }))
    }
}

/// The agent runs in another directory than the command.
fn absolute(path: &str) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| PathBuf::from(path))
}

impl Command {
    pub(crate) async fn run(self, context: &Context) -> Result<(), CliError> {
        match self {
            Self::Create(arguments) => arguments.run(context).await,
            Self::List(arguments) => arguments.run(context).await,
            Self::Show(target) => {
                let sandbox: Sandbox = context.client.get(&target.path()).await?;
                context.output.show(&sandbox, describe)
            }
            Self::Delete(target) => {
                let path = target.path();
                context.client.change(Method::DELETE, &path).await?;
                context.output.done("deleted")
            }
            Self::Quarantine(target) => set_quarantine(context, target, "quarantine").await,
            Self::Release(target) => set_quarantine(context, target, "release").await,
        }
    }
}

async fn set_quarantine(
    context: &Context,
    target: Target,
    verb: &'static str,
) -> Result<(), CliError> {
    let path = format!("{}/{verb}", target.path());
    let sandbox: Sandbox = context.client.call(Method::POST, &path).await?;
    context.output.show(&sandbox, |sandbox| {
        let now = if sandbox.quarantined {
            "is in quarantine: nothing reaches it, and it reaches nothing"
        } else {
            "is not in quarantine"
        };
        format!("{}/{} {now}", sandbox.tenant, sandbox.name)
    })
}

impl Target {
    fn path(self) -> String {
        let (tenant, name) = self.sandbox.resolve(self.tenant);
        format!("/v1/tenants/{tenant}/sandboxes/{name}")
    }
}

impl Create {
    async fn run(self, context: &Context) -> Result<(), CliError> {
        let labels = match Labels::new(self.labels) {
            Ok(labels) => labels,
            Err(error) => super::usage(&error.to_string()),
        };
        let request = SandboxCreate {
            tenant: self.tenant,
            name: self.name,
            networks: self.networks.into_iter().collect(),
            labels,
            attach: self.attach.0,
            address: self.address,
            prefix_length: self.prefix_length,
            mtu: self.mtu,
        };
        let progress = context.output.progress("attaching");
        let created: Result<Sandbox, _> = context.client.post("/v1/sandboxes", &request).await;
        progress.finish_and_clear();
        context.output.show(&created?, describe)
    }
}

impl List {
    async fn run(self, context: &Context) -> Result<(), CliError> {
        let path = super::with_tenant("/v1/sandboxes", self.tenant.as_ref());
        let sandboxes: Vec<Sandbox> = context.client.get(&path).await?;
        context.output.show(&sandboxes, |sandboxes| {
            let rows: Vec<Vec<String>> = sandboxes.iter().map(row).collect();
            table(
                &["SANDBOX", "ADDRESS", "NETWORKS", "ATTACHED AS", "STATE"],
                &rows,
                "no sandboxes",
            )
        })
    }
}

fn row(sandbox: &Sandbox) -> Vec<String> {
    vec![
        format!("{}/{}", sandbox.tenant, sandbox.name),
        sandbox.address.to_string(),
        join(sandbox.networks.iter()),
        wiring(&sandbox.attach),
        state(sandbox).to_owned(),
    ]
}

fn state(sandbox: &Sandbox) -> &'static str {
    match sandbox.state {
        _ if sandbox.quarantined => "quarantined",
        SandboxState::Attaching => "attaching",
        SandboxState::Attached => "attached",
        SandboxState::Detaching => "detaching",
    }
}

fn wiring(attach: &Attach) -> String {
    match attach {
        Attach::Netns { path, interface } => format!("{interface} in {}", path.display()),
        Attach::Tap { name } => format!("tap {name}"),
        Attach::VhostUser { socket } => format!("vhost-user {}", socket.display()),
        Attach::Memif { socket } => format!("memif {}", socket.display()),
    }
}

fn join(items: impl Iterator<Item = impl ToString>) -> String {
    let items: Vec<String> = items.map(|item| item.to_string()).collect();
    if items.is_empty() {
        "-".to_owned()
    } else {
        items.join(", ")
    }
}

fn describe(sandbox: &Sandbox) -> String {
    let mut lines = BTreeMap::new();
    let labels = sandbox
        .labels
        .iter()
        .map(|(key, value)| format!("{key}={value}"));
    for (order, (title, value)) in [
        ("sandbox", format!("{}/{}", sandbox.tenant, sandbox.name)),
        ("state", state(sandbox).to_owned()),
        ("address", sandbox.address.to_string()),
        ("prefix", join(sandbox.prefix.iter())),
        ("gateway", sandbox.gateway.to_string()),
        ("resolver", sandbox.resolver.to_string()),
        ("mac", sandbox.mac.to_string()),
        ("mtu", sandbox.mtu.to_string()),
        ("attached as", wiring(&sandbox.attach)),
        ("networks", join(sandbox.networks.iter())),
        ("labels", join(labels)),
        ("policies", join(sandbox.policies.iter())),
    ]
    .into_iter()
    .enumerate()
    {
        lines.insert(order, format!("{title:<12} {value}"));
    }
    let mut text: Vec<String> = lines.into_values().collect();
    for (secret, placeholder) in &sandbox.placeholders {
        text.push(format!("{:<12} {secret}={placeholder}", "placeholder"));
    }
    if let Some(counters) = &sandbox.counters {
        let (packets, bytes) = (counters.sent_packets, counters.sent_bytes);
        text.push(format!("{:<12} {packets} packets, {bytes} bytes", "sent"));
        let (packets, bytes) = (counters.received_packets, counters.received_bytes);
        text.push(format!(
            "{:<12} {packets} packets, {bytes} bytes",
            "received"
        ));
        for (reason, count) in &counters.drops {
            text.push(format!("{:<12} {count} for {reason}", "dropped"));
        }
    }
    text.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wirings_are_one_word() {
        let parse = |text: &str| text.parse::<AttachArgument>().map(|argument| argument.0);
        assert_eq!(
            parse("netns:/run/netns/web").unwrap(),
            Attach::Netns {
                path: "/run/netns/web".into(),
                interface: "eth0".into()
            }
        );
        assert_eq!(
            parse("netns:/run/netns/web,interface=net1").unwrap(),
            Attach::Netns {
                path: "/run/netns/web".into(),
                interface: "net1".into()
            }
        );
        assert_eq!(
            parse("tap:vm0").unwrap(),
            Attach::Tap { name: "vm0".into() }
        );
        for bad in ["", "netns", "netns:", "bridge:br0", "/run/netns/web"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_sandbox_is_named_in_two_ways() {
        let tenant = TenantName::new("acme").unwrap();
        let short: SandboxArgument = "web".parse().unwrap();
        let long: SandboxArgument = "acme/web".parse().unwrap();
        assert_eq!(short.resolve(Some(tenant)), long.resolve(None));
        assert!("a/b/c".parse::<SandboxArgument>().is_err());
    }
}
