//! What the backend knows of VPP, and how it changes what VPP carries.

use std::collections::{BTreeMap, BTreeSet};

use causeway_types::SandboxUid;

use super::direct::{Change, Direct, Link};
use super::make::{self, Port, Remains};
use super::routes;
use super::session::Vpp;
use crate::backend::BackendError;
use crate::elements::{Element, ElementChanges};

/// One port that is whole.
#[derive(Debug, Clone)]
pub(super) struct Known {
    pub(super) port: Port,
    pub(super) link: Link,
    pub(super) remains: Remains,
}

/// What the backend knows.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The connection that all of this was seen through; none before the first.
    pub(super) generation: u64,
    pub(super) ports: BTreeMap<SandboxUid, Known>,
    /// Ports that a setup could not make whole, which only another attach can.
    pub(super) hopeless: BTreeSet<SandboxUid>,
    /// The packet filter's elements.
    pub(super) elements: BTreeSet<Element>,
    /// What VPP carries by itself.
    pub(super) direct: Direct,
}

impl State {
    /// What VPP should carry by itself.
    pub(super) fn wanted(&self) -> Direct {
        self.wanted_with(&self.elements)
    }

    fn wanted_with(&self, elements: &BTreeSet<Element>) -> Direct {
        let links = self.ports.iter().map(|(uid, known)| (*uid, known.link));
        Direct::compile(elements, &links.collect())
    }

    /// The elements after a change, and what is direct then.
    pub(super) fn after(&self, changes: &ElementChanges) -> (BTreeSet<Element>, Direct) {
        let mut elements = self.elements.clone();
        for element in &changes.remove {
            elements.remove(element);
        }
        elements.extend(&changes.add);
        let wanted = self.wanted_with(&elements);
        (elements, wanted)
    }

    /// The interfaces towards sandboxes.
    pub(super) fn ports(&self) -> BTreeMap<SandboxUid, Port> {
        let ports = self.ports.iter().map(|(uid, known)| (*uid, known.port));
        ports.collect()
    }

    /// Makes changes in VPP, and notes each that was made. It goes on after a failure, so that
    /// as much as possible is narrowed, and reports the first.
    pub(super) async fn run(&mut self, vpp: &Vpp, changes: &[Change]) -> Result<(), BackendError> {
        let mut result = Ok(());
        for change in changes {
            match self.make(vpp, *change).await {
                Ok(()) => self.direct.apply(*change),
                Err(error) if result.is_ok() => result = Err(error),
                Err(_) => {}
            }
        }
        result
    }

    async fn make(&self, vpp: &Vpp, change: Change) -> Result<(), BackendError> {
        let port = |uid| self.ports.get(&uid).map(|known| known.port);
        match change {
            Change::Unbind(uid) => {
                let Some(port) = port(uid) else {
                    return Ok(());
                };
                make::classify(vpp, port.inlet, None).await?;
                routes::bind(vpp, port.inlet, 0).await
            }
            Change::RemoveRoute(group, address) => {
                routes::no_longer_direct(vpp, group, address).await
            }
            Change::RemoveTable(group) => routes::group(vpp, group, false).await,
            Change::AddTable(group) => routes::group(vpp, group, true).await,
            Change::AddRoute(group, address, uid) => {
                let Some(port) = port(uid) else {
                    return Ok(());
                };
                routes::direct(vpp, group, address, port.inlet).await
            }
            Change::Bind(uid, group) => {
                let Some(port) = port(uid) else {
                    return Ok(());
                };
                routes::bind(vpp, port.inlet, routes::table_of(group)).await?;
                self.classify(vpp, port).await
            }
        }
    }

    /// Lets the classifier take packets of a bound port out of its bridge.
    pub(super) async fn classify(&self, vpp: &Vpp, port: Port) -> Result<(), BackendError> {
        let [head, _] = port.tables;
        let head = (head != u32::MAX).then_some(head);
        make::classify(vpp, port.inlet, head).await
    }
}
