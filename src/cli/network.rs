//! `causeway network`.

use causeway_types::{NetworkName, TenantName};
use clap::{Args, Subcommand};
use http::Method;

use super::output::table;
use super::sandbox::SandboxArgument;
use super::{CliError, Context};
use crate::api::model::{Network, NetworkCreate, Sandbox};

/// What is done to private networks.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create a private network.
    Create(Target),
    /// List private networks and their members.
    List(List),
    /// Delete a private network that has no members.
    Delete(Target),
    /// Make a sandbox a member.
    Join(Member),
    /// End a sandbox's membership.
    Leave(Member),
}

/// A network.
#[derive(Debug, Args)]
pub(crate) struct Target {
    /// Its name.
    name: NetworkName,
    /// Its owner.
    #[arg(long, value_name = "TENANT", env = "CAUSEWAY_TENANT")]
    tenant: TenantName,
}

/// Whose networks.
#[derive(Debug, Args)]
pub(crate) struct List {
    /// Only this tenant's.
    #[arg(long, value_name = "TENANT", env = "CAUSEWAY_TENANT")]
    tenant: Option<TenantName>,
}

/// A sandbox and a network.
#[derive(Debug, Args)]
pub(crate) struct Member {
    /// The network.
    network: NetworkName,
    /// The sandbox, as NAME with `--tenant`, or as TENANT/NAME.
    sandbox: SandboxArgument,
    /// Their owner.
    #[arg(long, value_name = "TENANT", env = "CAUSEWAY_TENANT")]
    tenant: Option<TenantName>,
}

impl Command {
    pub(crate) async fn run(self, context: &Context) -> Result<(), CliError> {
        match self {
            Self::Create(target) => {
                let request = NetworkCreate {
                    tenant: target.tenant,
                    name: target.name,
                };
                let network: Network = context.client.post("/v1/networks", &request).await?;
                context.output.show(&network, |network| {
                    format!("created {}/{}", network.tenant, network.name)
                })
            }
            Self::List(list) => {
                let path = super::with_tenant("/v1/networks", list.tenant.as_ref());
                let networks: Vec<Network> = context.client.get(&path).await?;
                context.output.show(&networks, |networks| {
                    let rows: Vec<Vec<String>> = networks.iter().map(row).collect();
                    table(&["NETWORK", "MEMBERS"], &rows, "no networks")
                })
            }
            Self::Delete(target) => {
                let path = format!("/v1/tenants/{}/networks/{}", target.tenant, target.name);
                context.client.change(Method::DELETE, &path).await?;
                context.output.done("deleted")
            }
            Self::Join(member) => set_member(context, member, Method::PUT).await,
            Self::Leave(member) => set_member(context, member, Method::DELETE).await,
        }
    }
}

fn row(network: &Network) -> Vec<String> {
    let members: Vec<&str> = network
        .members
        .iter()
        .map(causeway_types::SandboxName::as_str)
        .collect();
    vec![
        format!("{}/{}", network.tenant, network.name),
        if members.is_empty() {
            "-".to_owned()
        } else {
            members.join(", ")
        },
    ]
}

async fn set_member(context: &Context, member: Member, method: Method) -> Result<(), CliError> {
    let (tenant, sandbox) = member.sandbox.resolve(member.tenant);
    let network = member.network;
    let path = format!("/v1/tenants/{tenant}/networks/{network}/members/{sandbox}");
    let sandbox: Sandbox = context.client.call(method, &path).await?;
    context.output.show(&sandbox, |sandbox| {
        let networks: Vec<&str> = sandbox.networks.iter().map(NetworkName::as_str).collect();
        let of = if networks.is_empty() {
            "no network".to_owned()
        } else {
            networks.join(", ")
        };
        format!("{}/{} is a member of {of}", sandbox.tenant, sandbox.name)
    })
}
