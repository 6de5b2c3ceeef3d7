//! `causeway secret`. A value is read from standard input, and never printed.

use std::io::{IsTerminal, Read};

use bytes::Bytes;
use causeway_egress::secrets::Needles;
use causeway_types::{SecretName, TenantName};
use clap::{Args, Subcommand};
use http::Method;
use zeroize::Zeroizing;

use super::output::table;
use super::{CliError, Context};
use crate::api::model::SecretInfo;
use crate::secrets::{MAX_SECRET_BYTES, SecretValue};

/// What is done to secrets.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Set a secret to what standard input holds; one trailing line break is dropped.
    Set(Target),
    /// List the names of a tenant's secrets.
    List(List),
    /// Delete a secret. Requests that need it are refused from then on.
    Delete(Target),
}

/// A secret.
#[derive(Debug, Args)]
pub(crate) struct Target {
    /// Its name, such as `GITHUB_TOKEN`.
    name: SecretName,
    /// Its owner.
    #[arg(long, value_name = "TENANT", env = "CAUSEWAY_TENANT")]
    tenant: TenantName,
}

/// Whose secrets.
#[derive(Debug, Args)]
pub(crate) struct List {
    /// Their owner.
    #[arg(long, value_name = "TENANT", env = "CAUSEWAY_TENANT")]
    tenant: TenantName,
}

impl Target {
    fn path(&self) -> String {
        format!("/v1/tenants/{}/secrets/{}", self.tenant, self.name)
    }
}

impl Command {
    pub(crate) async fn run(self, context: &Context) -> Result<(), CliError> {
        match self {
            Self::Set(target) => {
                let value = read_value()?;
                let note = if value.expose().len() < Needles::SHORTEST {
                    "; it is too short to be looked for in answers"
                } else {
                    ""
                };
                let body = Bytes::from_owner(Owned(value));
                context
                    .client
                    .upload(
                        Method::PUT,
                        &target.path(),
                        "application/octet-stream",
                        body,
                    )
                    .await?;
                context
                    .output
                    .done(&format!("set {}/{}{note}", target.tenant, target.name))
            }
            Self::List(list) => {
                let path = format!("/v1/tenants/{}/secrets", list.tenant);
                let secrets: Vec<SecretInfo> = context.client.get(&path).await?;
                context.output.show(&secrets, |secrets| {
                    let rows: Vec<Vec<String>> = secrets
                        .iter()
                        .map(|secret| {
                            vec![
                                secret.name.to_string(),
                                if secret.used_by.is_empty() {
                                    "-".to_owned()
                                } else {
                                    secret.used_by.join(", ")
                                },
                            ]
                        })
                        .collect();
                    table(&["SECRET", "USED BY"], &rows, "no secrets")
                })
            }
            Self::Delete(target) => {
                let path = target.path();
                context.client.change(Method::DELETE, &path).await?;
                context.output.done("deleted")
            }
        }
    }
}

/// Bytes that are wiped when the last user is done with them.
struct Owned(SecretValue);

impl AsRef<[u8]> for Owned {
    fn as_ref(&self) -> &[u8] {
        self.0.expose().as_bytes()
    }
}

fn read_value() -> Result<SecretValue, CliError> {
    let input = std::io::stdin();
    if input.is_terminal() {
        return Err(CliError::SecretFromTerminal);
    }
    // Two bytes more than a value: a line break, and one that tells that it is too long.
    let limit = MAX_SECRET_BYTES + 3;
    let mut bytes = Zeroizing::new(Vec::with_capacity(limit));
    input
        .lock()
        .take(limit as u64)
        .read_to_end(&mut bytes)
        .map_err(CliError::Input)?;
    Ok(SecretValue::new(&bytes)?)
}
