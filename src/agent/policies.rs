//! Policies and guardrails: checked, applied as a whole, listed, deleted, explained.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use causeway_dataplane::SandboxSpec;
use causeway_egress::control::ToProxy;
use causeway_policy::model::Protocol;
use causeway_policy::{Document, Explanation, PolicyDiff, PolicySet, Query, Subject};
use causeway_types::{DomainName, Generation, Labels, PolicyRef, SandboxId, TenantName};

use super::state::{Applied, AppliedDocument, State};
use super::{Agent, Error};
use crate::api::model::{ExplainRequest, PolicyApplied, PolicyInfo};
use crate::store::{PolicyRecord, Write};

/// The most policies of one tenant, and the most guardrails: far above use, so that one tenant
/// cannot fill the memory of the node.
const MAX_POLICIES: usize = 1000;
/// The most text of one tenant's policies, and of the guardrails, in bytes: one message takes them
/// to the proxy, where a line break and a quote count twice.
const MAX_BYTES: usize = 6 * 1024 * 1024;
const HTTPS: u16 = 443;

/// Reads a policy file for use as a whole.
pub fn read_policies(source_name: &str, text: &str) -> Result<Vec<Document>, Error> {
    let documents = causeway_policy::parse(source_name, text)
        .map_err(|errors| Error::Policy(Box::new(errors)))?;
    if documents.is_empty() {
        return Err(Error::PolicyEmpty);
    }
    let mut seen = BTreeSet::new();
    for document in &documents {
        if !seen.insert(document.reference()) {
            return Err(Error::PolicyTwice {
                name: document.reference().to_string(),
            });
        }
    }
    Ok(documents)
}

impl Agent {
    /// Applies every document of a policy file, or none of them.
    pub async fn apply_policies(
        &self,
        source_name: &str,
        text: &str,
    ) -> Result<PolicyApplied, Error> {
        let documents = read_policies(source_name, text)?;
        let now = self.now().0 / 1000;
        let mut changed = BTreeMap::new();
        for document in documents {
            let reference = document.reference().clone();
            let applied = Applied {
                document: AppliedDocument::from(document),
                applied_unix: now,
            };
            changed.insert(reference, Some(applied));
        }
        let names = changed.keys().map(ToString::to_string).collect::<Vec<_>>();
        let (generation, sandboxes) = self.change_policies(changed, "policy_applied").await?;
        Ok(PolicyApplied {
            documents: names,
            sandboxes,
            generation,
        })
    }

    /// Deletes a policy or guardrail.
    pub async fn delete_policy(&self, reference: &PolicyRef) -> Result<(), Error> {
        let changed = BTreeMap::from([(reference.clone(), None)]);
        self.change_policies(changed, "policy_deleted").await?;
        Ok(())
    }

    /// Puts policies in place, or takes them away. Returns the generation, and how many sandboxes
    /// were touched.
    async fn change_policies(
        &self,
        changed: BTreeMap<PolicyRef, Option<Applied>>,
        what: &'static str,
    ) -> Result<(Generation, usize), Error> {
        let _alone = self.changes.write().await;
        check_change(&self.state(), &changed)?;
        let proxy = self.proxy.reserve().await?;
        let generation = self.state().advance();
        let mut writes = vec![Write::Generation(generation)];
        for (reference, applied) in &changed {
            writes.push(match applied {
                Some(applied) => Write::Policy(
                    reference.clone(),
                    PolicyRecord {
                        source: applied.document.source().to_owned(),
                        applied_unix: applied.applied_unix,
                    },
                ),
                None => Write::PolicyGone(reference.clone()),
            });
        }
        // Nobody else changes anything meanwhile, so that a failure here leaves all as it was.
        self.store.write(writes).await?;

        let names = changed.keys().map(ToString::to_string).collect::<Vec<_>>();
        let (specs, touched) = {
            let mut state = self.state();
            let owners: BTreeSet<Option<TenantName>> = changed
                .keys()
                .map(|reference| reference.tenant.clone())
                .collect();
            let touched = selected(&state, &changed);
            for (reference, applied) in changed {
                match applied {
                    Some(applied) => state.policies.insert(reference, applied),
                    None => state.policies.remove(&reference),
                };
            }
            state.policies_changed();
            let messages = owners
                .into_iter()
                .map(|owner| policies_message(&state, owner))
                .collect();
            proxy.send(generation, messages);
            (specs(&mut state, &touched), touched.len())
        };
        let (updated, settled) =
            tokio::join!(self.dataplane.update(specs), self.proxy.settled(generation));
        settled?;
        self.in_effect(generation, updated)?;
        self.events.change(generation, what, names.join(", "));
        Ok((generation, touched))
    }

    /// Every policy and guardrail, or a tenant's policies.
    pub fn policies(&self, tenant: Option<&TenantName>) -> Vec<PolicyInfo> {
        let state = self.state();
        state
            .policies
            .iter()
            .filter(|(reference, _)| {
                tenant.is_none_or(|tenant| reference.tenant.as_ref() == Some(tenant))
            })
            .map(|(reference, applied)| {
                let one = BTreeMap::from([(reference.clone(), Some(applied.clone()))]);
                PolicyInfo {
                    kind: match applied.document {
                        AppliedDocument::Policy(_) => "policy".to_owned(),
                        AppliedDocument::Guardrail(_) => "guardrail".to_owned(),
                    },
                    tenant: reference.tenant.clone(),
                    name: reference.name.to_string(),
                    selects: selected(&state, &one)
                        .iter()
                        .map(ToString::to_string)
                        .collect(),
                    source: applied.document.source().to_owned(),
                    applied: applied.applied_unix,
                }
            })
            .collect()
    }

    /// Says what the policies of a sandbox make of a request, rule by rule; with a file, as if it
    /// were applied.
    pub fn explain(&self, request: &ExplainRequest) -> Result<Explanation, Error> {
        let id = SandboxId::new(request.tenant.clone(), request.sandbox.clone());
        let record = self.record(&id)?;
        let question = Question {
            destination: &request.destination,
            port: request.port,
            protocol: request.protocol.as_deref(),
            method: request.method.clone(),
            path: request.path.clone(),
        };
        let query = question.query(id.tenant.clone(), record.labels.clone())?;
        let file = match &request.file {
            Some(file) => read_policies("the file", file)?,
            None => Vec::new(),
        };
        let state = self.state();
        let set = with_file(&state, file);
        let own = |policy: &&std::sync::Arc<causeway_policy::Policy>| policy.tenant == id.tenant;
        let policies: Vec<_> = set.policies.iter().filter(own).cloned().collect();
        let reserved = state.reserved.clone();
        drop(state);
        Ok(causeway_policy::explain(
            &policies,
            &set.guardrails,
            &reserved,
            &query,
        ))
    }

    /// Says what a policy file would change, for the sandboxes that there are.
    pub fn diff_policies(&self, source_name: &str, text: &str) -> Result<PolicyDiff, Error> {
        let documents = read_policies(source_name, text)?;
        let (before, after, subjects, reserved) = {
            let state = self.state();
            let records = state.sandboxes.values().map(|entry| &entry.record);
            let subjects: Vec<Subject> = records
                .map(|record| Subject {
                    name: record.id.to_string(),
                    tenant: record.id.tenant.clone(),
                    labels: record.labels.clone(),
                })
                .collect();
            let before = with_file(&state, Vec::new());
            let after = with_file(&state, documents);
            (before, after, subjects, state.reserved.clone())
        };
        Ok(causeway_policy::diff(&before, &after, &subjects, &reserved))
    }
}

/// What is in effect, with a file on top.
fn with_file(state: &State, file: Vec<Document>) -> PolicySet {
    let mut documents: BTreeMap<PolicyRef, AppliedDocument> = state
        .policies
        .iter()
        .map(|(reference, applied)| (reference.clone(), applied.document.clone()))
        .collect();
    for document in file {
        documents.insert(document.reference().clone(), document.into());
    }
    let mut set = PolicySet::default();
    for document in documents.into_values() {
        match document {
            AppliedDocument::Policy(policy) => set.policies.push(policy),
            AppliedDocument::Guardrail(guardrail) => set.guardrails.push(guardrail),
        }
    }
    set
}

/// A question in words, as the command line and the API take it.
#[derive(Debug)]
pub struct Question<'a> {
    /// A host name or an address.
    pub destination: &'a str,
    /// The port; 443 when there is none.
    pub port: Option<u16>,
    /// `tcp`, `udp` or `icmpv6`; TCP when there is none.
    pub protocol: Option<&'a str>,
    /// The method of a request.
    pub method: Option<String>,
    /// Its path.
    pub path: Option<String>,
}

impl Question<'_> {
    /// The question of a sandbox of `tenant` with `labels`.
    pub fn query(self, tenant: TenantName, labels: Labels) -> Result<Query, Error> {
        let (name, address) = destination(self.destination)?;
        let protocol = protocol(self.protocol)?;
        let port = match protocol {
            Protocol::Icmpv6 => 0,
            Protocol::Tcp | Protocol::Udp => self.port.unwrap_or(HTTPS),
        };
        Ok(Query {
            tenant,
            labels,
            name,
            address,
            port,
            protocol,
            tls: port != 80,
            method: self.method,
            path: self.path,
        })
    }
}

fn check_change(
    state: &State,
    changed: &BTreeMap<PolicyRef, Option<Applied>>,
) -> Result<(), Error> {
    for (reference, applied) in changed {
        if applied.is_none() && !state.policies.contains_key(reference) {
            return Err(Error::NotFound {
                kind: match reference.tenant {
                    Some(_) => "policy",
                    None => "guardrail",
                },
                name: reference.to_string(),
            });
        }
        let others = state
            .policies
            .keys()
            .filter(|known| known.tenant == reference.tenant && !changed.contains_key(*known))
            .count();
        let added = changed
            .iter()
            .filter(|(new, applied)| new.tenant == reference.tenant && applied.is_some())
            .count();
        if others + added > MAX_POLICIES {
            return Err(Error::TooManyPolicies { max: MAX_POLICIES });
        }
        let kept = state
            .policies
            .iter()
            .filter(|(known, _)| known.tenant == reference.tenant && !changed.contains_key(*known))
            .map(|(_, applied)| applied);
        let new = changed
            .iter()
            .filter(|(new, _)| new.tenant == reference.tenant)
            .filter_map(|(_, applied)| applied.as_ref());
        let sizes = kept
            .chain(new)
            .map(|applied| applied.document.source().len());
        let bytes: usize = sizes.sum();
        if bytes > MAX_BYTES && applied.is_some() {
            return Err(Error::PoliciesTooLarge {
                bytes,
                max: MAX_BYTES,
            });
        }
    }
    Ok(())
}

/// The sandboxes that any of these documents selects, as they are in `changed` or, for those
/// that go, as they are in effect.
fn selected(state: &State, changed: &BTreeMap<PolicyRef, Option<Applied>>) -> BTreeSet<SandboxId> {
    let documents: Vec<&AppliedDocument> = changed
        .iter()
        .flat_map(|(reference, applied)| {
            let before = state.policies.get(reference);
            applied.as_ref().into_iter().chain(before)
        })
        .map(|applied| &applied.document)
        .collect();
    state
        .sandboxes
        .values()
        .map(|entry| &entry.record)
        .filter(|record| {
            documents.iter().any(|document| match document {
                AppliedDocument::Policy(policy) => {
                    policy.selects(&record.id.tenant, &record.labels)
                }
                AppliedDocument::Guardrail(_) => true,
            })
        })
        .map(|record| record.id.clone())
        .collect()
}

fn specs(state: &mut State, ids: &BTreeSet<SandboxId>) -> Vec<SandboxSpec> {
    ids.iter()
        .filter_map(|id| {
            let record = state.sandboxes.get(id)?.record.clone();
            state.spec(&record).ok()
        })
        .collect()
}

/// A tenant's policies, or the guardrails, as the proxy takes them.
pub(super) fn policies_message(state: &State, tenant: Option<TenantName>) -> ToProxy {
    let documents = state
        .policies
        .iter()
        .filter(|(reference, _)| reference.tenant == tenant)
        .map(|(_, applied)| applied.document.source().to_owned())
        .collect();
    ToProxy::Policies { tenant, documents }
}

/// A host name or an address.
pub(super) fn destination(text: &str) -> Result<(Option<DomainName>, Option<IpAddr>), Error> {
    let bare = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'))
        .unwrap_or(text);
    if let Ok(address) = bare.parse::<IpAddr>() {
        return Ok((None, Some(address)));
    }
    match DomainName::parse(text) {
        Ok(name) => Ok((Some(name), None)),
        Err(_not_a_name) => Err(Error::Question {
            text: text.to_owned(),
            expected: "a host name or an address",
        }),
    }
}

fn protocol(text: Option<&str>) -> Result<Protocol, Error> {
    match text {
        None | Some("tcp") => Ok(Protocol::Tcp),
        Some("udp") => Ok(Protocol::Udp),
        Some("icmpv6") => Ok(Protocol::Icmpv6),
        Some(other) => Err(Error::Question {
            text: other.to_owned(),
            expected: "a protocol: write tcp, udp or icmpv6",
        }),
    }
}
