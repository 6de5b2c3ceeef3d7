//! Commands that look at a node: status, events, trace, leases, ca; and reconcile.

use std::ops::ControlFlow;

use causeway_types::TenantName;
use clap::{Args, Subcommand};
use serde_json::Value;

use super::output::table;
use super::policy::split_port;
use super::sandbox::SandboxArgument;
use super::{CliError, Context};
use crate::api::model::{
    CaInfo, IpamInfo, LeaseInfo, Reconciled, Status, Trace as TraceReply, TraceRequest,
};

/// A packet to follow.
#[derive(Debug, Args)]
pub(crate) struct Trace {
    /// The sender, as NAME with `--tenant`, or as TENANT/NAME.
    sandbox: SandboxArgument,
    /// Where to: an address, a host name, NAME.NETWORK.internal or TENANT/SANDBOX, with a port.
    destination: String,
    /// The sender's owner.
    #[arg(long, value_name = "TENANT", env = "CAUSEWAY_TENANT")]
    tenant: Option<TenantName>,
    /// The protocol: tcp, udp, icmpv6 or a number.
    #[arg(long, value_name = "PROTOCOL")]
    protocol: Option<String>,
}

impl Trace {
    pub(crate) async fn run(self, context: &Context) -> Result<(), CliError> {
        let (tenant, sandbox) = self.sandbox.resolve(self.tenant);
        let (destination, port) = split_port(&self.destination);
        let request = TraceRequest {
            tenant,
            sandbox,
            destination,
            port,
            protocol: self.protocol,
        };
        let trace: TraceReply = context.client.post("/v1/trace", &request).await?;
        context.output.show(&trace, |trace| {
            let mut lines: Vec<String> = trace
                .steps
                .iter()
                .map(|step| {
                    let mark = if step.passed { "✓" } else { "✗" };
                    let place = format!("{} / {}", step.layer, step.check);
                    format!("{mark} {place:<28} {}", step.detail)
                })
                .collect();
            lines.push(match trace.reason {
                None => "permitted".to_owned(),
                Some(reason) => format!("denied: {reason}. {}", reason.explanation()),
            });
            lines.join("\n")
        })
    }
}

/// How the node is.
pub(crate) async fn status(context: &Context) -> Result<(), CliError> {
    let status: Status = context.client.get("/v1/status").await?;
    context.output.show(&status, |status| {
        let counts = status.counts;
        let proxy = match status.proxy.pid {
            Some(pid) => format!(
                "{} as process {pid}, generation {}",
                status.proxy.state, status.proxy.generation
            ),
            None => status.proxy.state.clone(),
        };
        let mut lines: Vec<String> = [
            ("health", status.health.clone()),
            (
                "agent",
                format!(
                    "causeway {} as process {}, up {} s",
                    status.version, status.pid, status.uptime_seconds
                ),
            ),
            ("backend", status.backend.clone()),
            ("proxy", proxy),
            ("generation", status.generation.to_string()),
            (
                "addresses",
                format!("{} of {}", status.node_block, status.prefix),
            ),
            ("uplink", status.uplink.clone()),
            (
                "holds",
                format!(
                    "{} tenants, {} sandboxes ({} in quarantine), {} networks, {} policies, {} \
                     guardrails, {} secrets",
                    counts.tenants,
                    counts.sandboxes,
                    counts.quarantined,
                    counts.networks,
                    counts.policies,
                    counts.guardrails,
                    counts.secrets
                ),
            ),
        ]
        .map(|(title, value)| format!("{title:<11} {value}"))
        .into();
        for problem in &status.problems {
            lines.push(format!("{:<11} {problem}", "problem"));
        }
        lines.join("\n")
    })
}

/// What to follow.
#[derive(Debug, Args)]
pub(crate) struct Events {
    /// Stop after this many events.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
}

impl Events {
    pub(crate) async fn run(self, context: &Context) -> Result<(), CliError> {
        let mut left = self.count;
        let mut outcome = Ok(());
        context
            .client
            .follow("/v1/events", |line| {
                // The first line is empty: it says that the stream is open.
                if line.is_empty() {
                    return ControlFlow::Continue(());
                }
                let shown = if context.output.is_json() {
                    line.to_owned()
                } else {
                    sentence(line)
                };
                outcome = context.output.line(&shown);
                left = left.map(|left| left - 1);
                if outcome.is_err() || left == Some(0) {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            })
            .await?;
        outcome
    }
}

fn sentence(line: &str) -> String {
    let Ok(event) = serde_json::from_str::<Value>(line) else {
        return line.to_owned();
    };
    let word = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
    match event["kind"].as_str() {
        Some("change") => format!(
            "{} {} {} (generation {})",
            word("time"),
            word("what"),
            word("subject"),
            event["generation"]
        ),
        Some("node") => format!("{} {} {}", word("time"), word("what"), word("detail")),
        Some("missed") => format!("… {} events were missed", event["count"]),
        _ => {
            let target = [word("method"), word("name"), word("path")].join(" ");
            let why = [word("rule"), word("reason")].join(" ");
            let port = &event["port"];
            format!(
                "{} {} {} {} {}:{port} {}",
                word("time"),
                word("decision"),
                word("sandbox"),
                word("protocol"),
                target.trim(),
                why.trim()
            )
        }
    }
}

/// Prints the certificate itself, so that it can be put into a file.
pub(crate) async fn ca(context: &Context) -> Result<(), CliError> {
    let ca: CaInfo = context.client.get("/v1/ca").await?;
    context.output.show(&ca, |ca| ca.certificate_pem.clone())
}

/// What is asked of the leases.
#[derive(Debug, Subcommand)]
pub(crate) enum Leases {
    /// List the leases, those in quarantine too.
    List,
    /// Show how full the address plan is.
    Usage,
}

impl Leases {
    pub(crate) async fn run(self, context: &Context) -> Result<(), CliError> {
        match self {
            Self::List => {
                let leases: Vec<LeaseInfo> = context.client.get("/v1/leases").await?;
                context.output.show(&leases, |leases| {
                    let rows: Vec<Vec<String>> = leases
                        .iter()
                        .map(|lease| {
                            vec![
                                lease.address.to_string(),
                                lease.state.clone(),
                                lease.sandbox.clone().unwrap_or_else(|| "-".to_owned()),
                                lease
                                    .prefix
                                    .map_or_else(|| "-".to_owned(), |prefix| prefix.to_string()),
                            ]
                        })
                        .collect();
                    table(
                        &["ADDRESS", "STATE", "SANDBOX", "PREFIX"],
                        &rows,
                        "no leases",
                    )
                })
            }
            Self::Usage => {
                let ipam: IpamInfo = context.client.get("/v1/ipam").await?;
                context.output.show(&ipam, |ipam| {
                    format!(
                        "{} of {}: {} held, {} in quarantine, {} free",
                        ipam.node_block, ipam.prefix, ipam.held, ipam.quarantined, ipam.free
                    )
                })
            }
        }
    }
}

/// Makes reality equal to the desired state.
pub(crate) async fn reconcile(context: &Context) -> Result<(), CliError> {
    let progress = context.output.progress("reconciling");
    let done: Result<Reconciled, _> = context
        .client
        .call(http::Method::POST, "/v1/reconcile")
        .await;
    progress.finish_and_clear();
    context.output.show(&done?, |done| {
        let mut lines = vec![format!(
            "{} changes, {} leases given back",
            done.changes, done.leases_freed
        )];
        lines.extend(
            done.problems
                .iter()
                .map(|problem| format!("problem: {problem}")),
        );
        lines.join("\n")
    })
}
