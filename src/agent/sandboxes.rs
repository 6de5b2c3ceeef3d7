//! A sandbox's life: created, joined to networks, cut off, let in again, deleted.

use causeway_dataplane::{Attachment, BackendError};
use causeway_egress::control::{SandboxInfo, ToProxy};
use causeway_ipam::{Owner, Request, UnixMillis};
use causeway_types::{
    GATEWAY, MacAddress, NetworkId, NetworkName, RESOLVER, SandboxId, SandboxUid, TenantName,
};

use super::state::State;
use super::{Agent, Error, convert};
use crate::api::model::{Sandbox, SandboxCreate, SandboxState};
use crate::store::{Phase, SandboxRecord, Write};

impl Agent {
    /// Creates a sandbox and wires it. When this returns, it can use its address.
    pub async fn create_sandbox(&self, request: SandboxCreate) -> Result<Sandbox, Error> {
        let attachment = convert::record(request.attach.clone());
        let id = SandboxId::new(request.tenant.clone(), request.name.clone());
        check_namespace(&id, &convert::attachment(&attachment)?)?;
        let mtu = request.mtu.unwrap_or(self.config.mtu);
        convert::mtu(mtu)?;
        if let Some(length) = request.prefix_length
            && !causeway_ipam::PREFIX_LENGTHS.contains(&length)
        {
            return Err(Error::PrefixLength { length });
        }
        let _shared = self.changes.read().await;
        let proxy = self.proxy.reserve().await?;
        let disk = self.store.reserve().await?;
        let uid = random_uid()?;
        let now = self.now();

        // In one critical section, so that queues have the order of the generations.
        let (record, spec, turn, pending, generation) = {
            let mut state = self.state();
            check_new(&state, &id, &request)?;
            let uid = if state.uids.contains_key(&uid) {
                free_uid(&state, uid)
            } else {
                uid
            };
            let owner = Owner::new(&uid.to_string())?;
            let wish = Request {
                address: request.address,
                prefix_length: request.prefix_length,
            };
            let mut transaction = state.ipam.begin();
            let lease = transaction.allocate(&owner, wish, now)?;
            let lease = match transaction.bind(&owner, lease.generation) {
                Ok(bound) => bound,
                // It was allocated a line above.
                Err(_not_held) => lease,
            };
            let leases = transaction.changes().to_vec();
            transaction.apply();
            let generation = state.advance();
            let record = SandboxRecord {
                uid,
                id: id.clone(),
                address: lease.address,
                prefix: lease.prefix,
                attachment,
                mtu,
                networks: request.networks,
                labels: request.labels,
                quarantined: false,
                phase: Phase::Attaching,
                created_unix: now.0 / 1000,
                generation,
            };
            let spec = state.spec(&record)?;
            let writes = vec![
                Write::Ipam(leases),
                Write::Sandbox(Box::new(record.clone())),
                Write::Generation(generation),
            ];
            let pending = disk.send(writes);
            proxy.send(generation, vec![ToProxy::Sandbox(info(&record))]);
            state.insert(record.clone());
            let turn = state
                .sandboxes
                .get(&id)
                .and_then(|entry| entry.turn.clone().try_lock_owned().ok());
            (record, spec, turn, pending, generation)
        };

        if let Err(error) = pending.done().await {
            self.forget(&record, OnDisk::No, Address::Rests).await;
            return Err(error.into());
        }
        let (attached, settled) =
            tokio::join!(self.dataplane.attach(spec), self.proxy.settled(generation));
        if let Err(error) = attached {
            // A port forwards nothing before its attach has succeeded, so no packet carried
            // the address.
            self.forget(&record, OnDisk::Yes, Address::WasNeverUsed)
                .await;
            return Err(Error::Attach {
                sandbox: id,
                source: Box::new(error),
            });
        }
        settled?;
        let view = self.finish_attach(&id).await;
        drop(turn);
        self.events
            .change(generation, "sandbox_created", id.to_string());
        view.ok_or_else(|| not_found(&id))
    }

    /// Marks a sandbox as attached. Its lease and record are on disk already: should this last
    /// write be lost, the next start finds it attaching and completes it, so nobody waits for it.
    pub(super) async fn finish_attach(&self, id: &SandboxId) -> Option<Sandbox> {
        let slot = self.store.reserve().await;
        let mut state = self.state();
        let entry = state.sandboxes.get_mut(id)?;
        entry.record.phase = Phase::Attached;
        let record = entry.record.clone();
        if let Ok(slot) = slot {
            drop(slot.send(vec![Write::Sandbox(Box::new(record.clone()))]));
        }
        Some(self.view(&state, &record))
    }

    /// Takes back a sandbox that did not come to be.
    pub(super) async fn forget(&self, record: &SandboxRecord, on_disk: OnDisk, address: Address) {
        let reserved = tokio::join!(self.proxy.reserve(), self.store.reserve());
        let pending = {
            let mut state = self.state();
            state.remove(&record.id);
            let leases = match address {
                Address::Rests => release(&mut state, record, self.now()),
                Address::WasNeverUsed => cancel(&mut state, record),
            };
            let generation = state.advance();
            if let Ok(slot) = reserved.0 {
                let gone = ToProxy::SandboxGone {
                    address: record.address,
                };
                slot.send(generation, vec![gone]);
            }
            match (on_disk, reserved.1) {
                (OnDisk::Yes, Ok(slot)) => Some(slot.send(vec![
                    Write::Ipam(leases),
                    Write::SandboxGone(record.id.clone()),
                    Write::Generation(generation),
                ])),
                _ => None,
            }
        };
        if let Some(pending) = pending
            && let Err(error) = pending.done().await
        {
            tracing::error!(
                sandbox = %record.id,
                error = %crate::chain(&error),
                "a sandbox that failed to attach could not be removed from the store"
            );
        }
    }

    /// Deletes a sandbox. Its address rests from then on.
    pub async fn delete_sandbox(&self, id: &SandboxId) -> Result<(), Error> {
        let _shared = self.changes.read().await;
        let _turn = self.turn(id).await?;
        let record = {
            let mut state = self.state();
            let entry = state.sandboxes.get_mut(id).ok_or_else(|| not_found(id))?;
            // From here on a reconciliation does not bring it back.
            entry.record.phase = Phase::Detaching;
            entry.record.clone()
        };
        // First out of everybody's reach, then off the disk: a crash in between brings it back,
        // and nobody was told that it is gone.
        let detached = self.dataplane.detach(record.uid).await;
        if let Err(error) = detached {
            if let Some(entry) = self.state().sandboxes.get_mut(id) {
                entry.record.phase = Phase::Attached;
            }
            return Err(Error::Detach {
                sandbox: id.clone(),
                source: Box::new(error),
            });
        }
        let proxy = self.proxy.reserve().await?;
        let disk = self.store.reserve().await?;
        let (pending, generation) = {
            let mut state = self.state();
            state.remove(id);
            let leases = release(&mut state, &record, self.now());
            let generation = state.advance();
            let gone = ToProxy::SandboxGone {
                address: record.address,
            };
            proxy.send(generation, vec![gone]);
            let writes = vec![
                Write::Ipam(leases),
                Write::SandboxGone(id.clone()),
                Write::Generation(generation),
            ];
            (disk.send(writes), generation)
        };
        let (stored, settled) = tokio::join!(pending.done(), self.proxy.settled(generation));
        stored.map_err(|source| Error::NotDurable { generation, source })?;
        settled?;
        self.events
            .change(generation, "sandbox_deleted", id.to_string());
        Ok(())
    }

    /// Cuts a sandbox off from everything, live flows included, or lets it in again.
    pub async fn set_quarantine(
        &self,
        id: &SandboxId,
        quarantined: bool,
    ) -> Result<Sandbox, Error> {
        let what = if quarantined {
            "sandbox_quarantined"
        } else {
            "sandbox_released"
        };
        self.modify(id, what, |record| {
            let changes = record.quarantined != quarantined;
            record.quarantined = quarantined;
            changes
        })
        .await
    }

    /// Makes a sandbox a member of a network. Doing it twice changes nothing.
    pub async fn join_network(
        &self,
        id: &SandboxId,
        network: &NetworkName,
    ) -> Result<Sandbox, Error> {
        check_network(&self.state(), &id.tenant, network)?;
        self.modify(id, "network_joined", |record| {
            record.networks.insert(network.clone())
        })
        .await
    }

    /// Ends a sandbox's membership of a network.
    pub async fn leave_network(
        &self,
        id: &SandboxId,
        network: &NetworkName,
    ) -> Result<Sandbox, Error> {
        check_network(&self.state(), &id.tenant, network)?;
        self.modify(id, "network_left", |record| record.networks.remove(network))
            .await
    }

    /// Changes what can change while a sandbox's traffic flows.
    async fn modify(
        &self,
        id: &SandboxId,
        what: &'static str,
        change: impl FnOnce(&mut SandboxRecord) -> bool + Send,
    ) -> Result<Sandbox, Error> {
        let _shared = self.changes.read().await;
        let _turn = self.turn(id).await?;
        let proxy = self.proxy.reserve().await?;
        let disk = self.store.reserve().await?;
        let (record, spec, pending, generation) = {
            let mut state = self.state();
            let entry = state.sandboxes.get(id).ok_or_else(|| not_found(id))?;
            let mut record = entry.record.clone();
            // The network may have gone while this waited for its turn.
            if !change(&mut record) {
                return Ok(self.view(&state, &record));
            }
            for network in &record.networks {
                check_network(&state, &id.tenant, network)?;
            }
            let generation = state.advance();
            record.generation = generation;
            let spec = state.spec(&record)?;
            if let Some(entry) = state.sandboxes.get_mut(id) {
                entry.record = record.clone();
            }
            proxy.send(generation, vec![ToProxy::Sandbox(info(&record))]);
            let writes = vec![
                Write::Sandbox(Box::new(record.clone())),
                Write::Generation(generation),
            ];
            (record, spec, disk.send(writes), generation)
        };
        // What restricts must not wait for the disk.
        let (stored, updated, settled) = tokio::join!(
            pending.done(),
            self.dataplane.update(vec![spec]),
            self.proxy.settled(generation)
        );
        stored.map_err(|source| Error::NotDurable { generation, source })?;
        settled?;
        self.in_effect(generation, updated)?;
        self.events.change(generation, what, id.to_string());
        Ok(self.view(&self.state(), &record))
    }

    /// Every sandbox, or a tenant's.
    pub fn sandboxes(&self, tenant: Option<&TenantName>) -> Vec<Sandbox> {
        let state = self.state();
        state
            .sandboxes
            .values()
            .filter(|entry| tenant.is_none_or(|tenant| entry.record.id.tenant == *tenant))
            .map(|entry| self.view(&state, &entry.record))
            .collect()
    }

    /// One sandbox.
    pub fn sandbox(&self, id: &SandboxId) -> Result<Sandbox, Error> {
        let state = self.state();
        let entry = state.sandboxes.get(id).ok_or_else(|| not_found(id))?;
        Ok(self.view(&state, &entry.record))
    }

    /// One sandbox, with what the dataplane counted for it.
    pub async fn sandbox_counted(&self, id: &SandboxId) -> Result<Sandbox, Error> {
        let mut sandbox = self.sandbox(id)?;
        let counted = self.dataplane.counters().await;
        let mut counted = counted.map_err(|error| Error::Dataplane(Box::new(error)))?;
        sandbox.counters = counted
            .sandboxes
            .remove(&sandbox.uid)
            .map(convert::counters);
        Ok(sandbox)
    }

    pub(super) fn record(&self, id: &SandboxId) -> Result<SandboxRecord, Error> {
        let state = self.state();
        let entry = state.sandboxes.get(id).ok_or_else(|| not_found(id))?;
        Ok(entry.record.clone())
    }

    /// Waits until nobody else changes the sandbox.
    async fn turn(&self, id: &SandboxId) -> Result<tokio::sync::OwnedMutexGuard<()>, Error> {
        let turn = {
            let state = self.state();
            let entry = state.sandboxes.get(id).ok_or_else(|| not_found(id))?;
            std::sync::Arc::clone(&entry.turn)
        };
        let guard = std::sync::Arc::clone(&turn).lock_owned().await;
        // Another may have deleted it meanwhile, and even made one of the same name.
        let state = self.state();
        match state.sandboxes.get(id) {
            Some(entry) if std::sync::Arc::ptr_eq(&entry.turn, &turn) => Ok(guard),
            _ => Err(not_found(id)),
        }
    }

    pub(super) fn view(&self, state: &State, record: &SandboxRecord) -> Sandbox {
        let policies = state.policies_of(record);
        let placeholders = policies
            .iter()
            .flat_map(|policy| policy.secrets.keys())
            .map(|secret| (secret.clone(), self.placeholder(record.uid, secret)))
            .collect();
        Sandbox {
            tenant: record.id.tenant.clone(),
            name: record.id.name.clone(),
            uid: record.uid,
            address: record.address,
            prefix: record.prefix,
            gateway: GATEWAY,
            resolver: RESOLVER,
            mac: MacAddress::for_lease(record.address),
            mtu: record.mtu,
            attach: convert::attach(&record.attachment),
            networks: record.networks.clone(),
            labels: record.labels.clone(),
            policies: policies
                .iter()
                .map(|policy| policy.reference.to_string())
                .collect(),
            placeholders,
            quarantined: record.quarantined,
            state: match record.phase {
                Phase::Attaching => SandboxState::Attaching,
                Phase::Attached => SandboxState::Attached,
                Phase::Detaching => SandboxState::Detaching,
            },
            created: record.created_unix,
            generation: record.generation,
            counters: None,
        }
    }
}

fn check_new(state: &State, id: &SandboxId, request: &SandboxCreate) -> Result<(), Error> {
    if state.sandboxes.contains_key(id) {
        return Err(Error::Exists {
            kind: "sandbox",
            name: id.to_string(),
        });
    }
    for network in &request.networks {
        check_network(state, &id.tenant, network)?;
    }
    Ok(())
}

/// The commonest mistake is found before an address is leased for it: that one would have to
/// rest. The backend looks again, and at more.
fn check_namespace(id: &SandboxId, attachment: &Attachment) -> Result<(), Error> {
    let Attachment::Netns { path, .. } = attachment else {
        return Ok(());
    };
    let missing = || BackendError::NamespaceMissing { path: path.clone() };
    let refused = |error: BackendError| Error::Attach {
        sandbox: id.clone(),
        source: Box::new(error),
    };
    match nix::sys::statfs::statfs(path) {
        Ok(found) if found.filesystem_type() == nix::sys::statfs::NSFS_MAGIC => Ok(()),
        Ok(_) => Err(refused(BackendError::NotANamespace { path: path.clone() })),
        Err(_absent) => Err(refused(missing())),
    }
}

fn check_network(state: &State, tenant: &TenantName, name: &NetworkName) -> Result<(), Error> {
    let network = NetworkId::new(tenant.clone(), name.clone());
    if state.networks.contains_key(&network) {
        Ok(())
    } else {
        Err(Error::NotFound {
            kind: "network",
            name: network.to_string(),
        })
    }
}

pub(super) fn not_found(id: &SandboxId) -> Error {
    Error::NotFound {
        kind: "sandbox",
        name: id.to_string(),
    }
}

/// Gives the sandbox's lease back, in memory; what is returned makes it durable. The address
/// rests for the time of the quarantine.
fn release(
    state: &mut State,
    record: &SandboxRecord,
    now: UnixMillis,
) -> Vec<causeway_ipam::Change> {
    change_leases(state, record, |transaction, owner| {
        transaction.release(owner, None, now);
    })
}

/// Takes the sandbox's lease back as if it had never been.
fn cancel(state: &mut State, record: &SandboxRecord) -> Vec<causeway_ipam::Change> {
    change_leases(state, record, |transaction, owner| {
        transaction.cancel(owner);
    })
}

fn change_leases(
    state: &mut State,
    record: &SandboxRecord,
    change: impl FnOnce(&mut causeway_ipam::Transaction<'_>, &Owner),
) -> Vec<causeway_ipam::Change> {
    let Ok(owner) = Owner::new(&record.uid.to_string()) else {
        return Vec::new();
    };
    let mut transaction = state.ipam.begin();
    change(&mut transaction, &owner);
    let changes = transaction.changes().to_vec();
    transaction.apply();
    changes
}

/// What the proxy is told of a sandbox.
pub(super) fn info(record: &SandboxRecord) -> SandboxInfo {
    SandboxInfo {
        address: record.address,
        prefix: record.prefix,
        id: record.id.clone(),
        uid: record.uid,
        labels: record.labels.clone(),
        networks: record.networks.clone(),
        quarantined: record.quarantined,
    }
}

fn random_uid() -> Result<SandboxUid, Error> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(Error::Random)?;
    Ok(SandboxUid::from_random(u64::from_ne_bytes(bytes)))
}

/// The next identifier that is not in use: needed once in 2^48 divided by the sandboxes.
fn free_uid(state: &State, taken: SandboxUid) -> SandboxUid {
    let mut next = taken;
    while state.uids.contains_key(&next) {
        next = SandboxUid::from_random(next.as_u64().wrapping_add(1));
    }
    next
}

/// Whether a sandbox's record has reached the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OnDisk {
    Yes,
    No,
}

/// What becomes of the address of a sandbox that did not come to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Address {
    /// A packet may have carried it: it rests before somebody else gets it.
    Rests,
    /// No packet carried it, and nobody was told of it.
    WasNeverUsed,
}
