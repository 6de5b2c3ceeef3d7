//! The command line. Each command does one thing to a running agent over its socket, except
//! for those that are the node themselves.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::client::Client;
use crate::config::Config;

mod demo;
mod error;
mod network;
mod node;
mod observe;
mod output;
mod policy;
mod sandbox;
mod secret;
mod vpp;

use error::CliError;
use output::Output;

/// The network for sandboxes that run untrusted code.
#[derive(Debug, Parser)]
#[command(name = "causeway", version, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// What every command takes.
#[derive(Debug, clap::Args)]
struct Global {
    /// Print JSON instead of text.
    #[arg(long, global = true)]
    json: bool,
    /// The agent's socket; otherwise the one that the configuration names.
    #[arg(long, global = true, value_name = "PATH", env = "CAUSEWAY_SOCKET")]
    socket: Option<PathBuf>,
    /// The configuration file [default: /etc/causeway/causeway.toml, where it exists].
    #[arg(long, global = true, value_name = "FILE", env = "CAUSEWAY_CONFIG")]
    config: Option<PathBuf>,
    /// How much is logged: error, warn, info, debug or trace.
    #[arg(long, global = true, value_name = "LEVEL", env = "CAUSEWAY_LOG")]
    log: Option<String>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a node, in the foreground.
    Up(node::Up),
    /// Remove everything that this node made; what it stored is kept.
    Down(node::Down),
    /// Tell the whole story on this machine, and check it.
    Demo(demo::Demo),
    /// Create, show, cut off and delete sandboxes.
    #[command(subcommand)]
    Sandbox(sandbox::Command),
    /// Create and delete private networks, and choose who belongs to them.
    #[command(subcommand)]
    Network(network::Command),
    /// Check, test, compare, apply, list, delete, explain, import and draft policies.
    #[command(subcommand)]
    Policy(policy::Command),
    /// Set, list and delete secrets.
    #[command(subcommand)]
    Secret(secret::Command),
    /// Show each decision that a packet would meet, without sending it.
    Trace(observe::Trace),
    /// Show how the node is.
    Status,
    /// Follow what happens.
    Events(observe::Events),
    /// Print the certificate that sandboxes must trust, PEM.
    Ca,
    /// Look at the leases of addresses.
    #[command(subcommand)]
    Leases(observe::Leases),
    /// Make reality equal to the desired state now.
    Reconcile,
    /// Prepare VPP for a node.
    #[command(subcommand)]
    Vpp(vpp::Command),
    /// Run the egress proxy. The agent does this itself.
    #[command(hide = true)]
    Egress(node::Egress),
}

/// What commands need.
struct Context {
    client: Client,
    output: Output,
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    // Exits with status 2 on wrong usage, and with 0 after `--help`.
    let cli = Cli::parse();
    let output = Output::new(cli.global.json);
    match run(cli) {
        Ok(code) => code,
        Err(error) => {
            output.error(&error);
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> Result<ExitCode, CliError> {
    let Cli { global, command } = cli;
    match command {
        // These come before any thread exists, or make their own runtime.
        Command::Egress(arguments) => {
            crate::logging::start(global.log.as_deref().unwrap_or("info"))?;
            return arguments.run().map(|()| ExitCode::SUCCESS);
        }
        Command::Demo(arguments) => return arguments.run(),
        Command::Up(arguments) => {
            crate::logging::start(global.log.as_deref().unwrap_or("info"))?;
            let config = Config::load(global.config.as_deref())?;
            return arguments.run(config).map(|()| ExitCode::SUCCESS);
        }
        _ => crate::logging::start(global.log.as_deref().unwrap_or("warn"))?,
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(CliError::Runtime)?;
    runtime.block_on(talk(global, command))?;
    Ok(ExitCode::SUCCESS)
}

/// The commands that talk to an agent, or clean up after one.
async fn talk(global: Global, command: Command) -> Result<(), CliError> {
    let output = Output::new(global.json);
    if let Command::Down(arguments) = command {
        let config = Config::load(global.config.as_deref())?;
        return arguments.run(&config, &output).await;
    }
    let command = match command {
        // Much of what is done with files needs no agent.
        Command::Policy(policy) => match policy.offline(output)? {
            Some(online) => Command::Policy(online),
            None => return Ok(()),
        },
        command => command,
    };
    if let Command::Vpp(command) = command {
        return command.run(output);
    }
    let socket = match global.socket {
        Some(socket) => socket,
        None => Config::load(global.config.as_deref())?.api_socket(),
    };
    let context = Context {
        client: Client::new(&socket),
        output,
    };
    match command {
        Command::Sandbox(command) => command.run(&context).await,
        Command::Network(command) => command.run(&context).await,
        Command::Policy(command) => command.run(&context).await,
        Command::Secret(command) => command.run(&context).await,
        Command::Trace(arguments) => arguments.run(&context).await,
        Command::Status => observe::status(&context).await,
        Command::Events(arguments) => arguments.run(&context).await,
        Command::Ca => observe::ca(&context).await,
        Command::Leases(command) => command.run(&context).await,
        Command::Reconcile => observe::reconcile(&context).await,
        // Handled above.
        Command::Up(_)
        | Command::Down(_)
        | Command::Demo(_)
        | Command::Vpp(_)
        | Command::Egress(_) => Ok(()),
    }
}

/// Ends the process with status 2, as wrong usage does that only shows after parsing.
fn usage(message: &str) -> ! {
    use clap::CommandFactory;
    Cli::command()
        .error(clap::error::ErrorKind::ValueValidation, message)
        .exit()
}

/// Names are checked, so none needs escaping in a query.
fn with_tenant(path: &str, tenant: Option<&causeway_types::TenantName>) -> String {
    match tenant {
        Some(tenant) => format!("{path}?tenant={tenant}"),
        None => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    /// Reading arguments ends the process where two of them share a name.
    #[test]
    fn every_policy_command_is_read() {
        for line in [
            "check f",
            "apply -",
            "list --tenant acme",
            "delete p --tenant acme",
            "delete g --guardrail",
            "explain acme/a b.example:443 --method GET --path /",
            "explain acme/a b.example --file f --offline --label a=b",
            "diff f --against g",
            "test f --policy g --policy h",
            "import --from e2b f --tenant acme --name n --label a=b --drop c",
            "suggest acme/a --audit-log f --name n --label a=b --refused",
            "schema",
        ] {
            let words = ["causeway", "--log", "warn", "policy"].into_iter();
            let cli = Cli::try_parse_from(words.chain(line.split(' ')));
            assert!(matches!(cli.unwrap().command, Command::Policy(_)), "{line}");
        }
        for line in [
            "explain acme/a b.example --offline",
            "import --from iptables f --tenant acme",
            "suggest acme/a",
        ] {
            let words = ["causeway", "policy"].into_iter();
            assert!(
                Cli::try_parse_from(words.chain(line.split(' '))).is_err(),
                "{line}"
            );
        }
    }

    #[test]
    fn wrong_usage_is_status_2() {
        for wrong in [
            vec!["causeway"],
            vec!["causeway", "sandbox", "create"],
            vec![
                "causeway",
                "sandbox",
                "show",
                "Not A Name",
                "--tenant",
                "acme",
            ],
            vec![
                "causeway", "secret", "set", "X", "--tenant", "acme", "--value", "v",
            ],
        ] {
            let error = Cli::try_parse_from(wrong).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{error}");
        }
    }
}
