//! What is in VPP, by tag and name, and what of it is as it should be.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};

use causeway_types::{GATEWAY, MacAddress, SandboxUid};
use vpp_config::messages::attach::{MemifDump, MemifSocketFilenameDump};
use vpp_config::messages::classify::{ClassifyTableIdsGet, ClassifyTableInfo};
use vpp_config::messages::interface::{SwInterfaceDetails, SwInterfaceDump, SwInterfaceGetTable};
use vpp_config::messages::ip::{IpRouteDump, IpTableDump};
use vpp_config::messages::l2::BridgeDomainDump;
use vpp_config::messages::neighbor::IpNeighborDump;
use vpp_config::types::{AddressFamily, FibPathType, IfStatusFlags, InterfaceIndex, IpRoute};

use super::classify;
use super::direct::Direct;
use super::facts::{Facts, Inlet, Tag};
use super::make::{Port, Remains};
use super::routes::{self, BORDER};
use super::session::{self, Vpp};
use crate::backend::BackendError;
use crate::elements::GroupId;

/// Everything of ours that VPP has.
#[derive(Debug, Default)]
pub(super) struct Found {
    interfaces: BTreeMap<u32, Interface>,
    bridges: BTreeMap<SandboxUid, Vec<(u32, BTreeSet<u32>)>>,
    neighbours: BTreeMap<(u32, Ipv6Addr), MacAddress>,
    /// Routes to the border by source; `None` when there is no such table.
    border: Option<BTreeMap<Ipv6Addr, u32>>,
    /// Groups' tables: whether the rest leads to the border, and what is direct.
    tables: BTreeMap<GroupId, (bool, BTreeMap<Ipv6Addr, u32>)>,
    /// Which table interfaces towards sandboxes are bound to.
    bound: BTreeMap<u32, u32>,
    /// Classifier tables that look like ours.
    classifiers: BTreeSet<u32>,
    /// Memif sockets by interface.
    memifs: BTreeMap<u32, String>,
}

#[derive(Debug)]
struct Interface {
    name: String,
    tag: Option<Tag>,
    up: bool,
    mtu: u32,
}

impl Interface {
    fn of(details: &SwInterfaceDetails) -> Self {
        Self {
            name: details.interface_name.to_str().into_owned(),
            tag: Tag::parse(&details.tag.to_str()),
            up: details.flags.contains(IfStatusFlags::ADMIN_UP),
            mtu: details.mtu.l3,
        }
    }

    /// The sandbox that it is for, by tag or by the name of the host's interface.
    fn uid(&self) -> Option<SandboxUid> {
        match self.tag {
            Some(Tag::Port(uid, _) | Tag::Border(uid) | Tag::Bridge(uid)) => Some(uid),
            None => {
                let name = self.name.strip_prefix("host-")?;
                let uid = name
                    .strip_prefix("cv")
                    .or_else(|| name.strip_prefix("cb"))?;
                uid.parse().ok()
            }
        }
    }
}

/// Looks at everything.
pub(super) async fn look(vpp: &Vpp) -> Result<Found, BackendError> {
    let mut found = Found::default();
    let all = SwInterfaceDump::default();
    for details in vpp.dump("list its interfaces", &all).await? {
        found
            .interfaces
            .insert(details.sw_if_index.0, Interface::of(&details));
    }
    for details in vpp
        .dump("list its bridges", &BridgeDomainDump::default())
        .await?
    {
        if let Some(Tag::Bridge(uid)) = Tag::parse(&details.bd_tag.to_str()) {
            let members = details.sw_if_details.iter().map(|m| m.sw_if_index.0);
            let bridges = found.bridges.entry(uid).or_default();
            bridges.push((details.bd_id, members.collect()));
        }
    }
    let neighbours = IpNeighborDump {
        af: AddressFamily::Ip6,
        ..IpNeighborDump::default()
    };
    for details in vpp.dump("list its neighbours", &neighbours).await? {
        let neighbour = details.neighbor;
        if let IpAddr::V6(address) = neighbour.ip_address {
            let mac = MacAddress::new(neighbour.mac_address.0);
            found
                .neighbours
                .insert((neighbour.sw_if_index.0, address), mac);
        }
    }
    look_at_tables(vpp, &mut found).await?;
    look_at_classifiers(vpp, &mut found).await?;
    look_at_memifs(vpp, &mut found).await?;
    Ok(found)
}

async fn look_at_tables(vpp: &Vpp, found: &mut Found) -> Result<(), BackendError> {
    for details in vpp.dump("list its tables", &IpTableDump::default()).await? {
        let table = details.table;
        if !routes::is_ours(&table) {
            continue;
        }
        let number = table.table_id;
        let mut rest = false;
        let mut to = BTreeMap::new();
        for details in vpp.dump("list its routes", &IpRouteDump { table }).await? {
            match read(&details.route) {
                Some(Route::ToBorder) => rest = true,
                Some(Route::Through(address, index)) => {
                    to.insert(address, index);
                }
                None => {}
            }
        }
        match routes::group_of(number) {
            Some(group) => {
                found.tables.insert(group, (rest, to));
            }
            None => found.border = Some(to),
        }
    }
    let inlets: Vec<u32> = found
        .interfaces
        .iter()
        .filter(|(_, interface)| matches!(interface.tag, Some(Tag::Port(..))))
        .map(|(index, _)| *index)
        .collect();
    for index in inlets {
        let request = SwInterfaceGetTable {
            sw_if_index: InterfaceIndex(index),
            is_ipv6: true,
        };
        let bound = vpp.call("tell an interface's table", &request).await?;
        found.bound.insert(index, bound.vrf_id);
    }
    Ok(())
}

enum Route {
    ToBorder,
    Through(Ipv6Addr, u32),
}

fn read(route: &IpRoute) -> Option<Route> {
    let [path] = route.paths.as_slice() else {
        return None;
    };
    match (route.prefix.address, route.prefix.len, path.r#type) {
        // VPP shows a look-up by source as one by destination.
        (IpAddr::V6(_), 0, FibPathType::Normal | FibPathType::SourceLookup)
            if path.table_id == BORDER && path.sw_if_index == InterfaceIndex::NONE =>
        {
            Some(Route::ToBorder)
        }
        (IpAddr::V6(address), 128, FibPathType::Normal) => {
            Some(Route::Through(address, path.sw_if_index.0))
        }
        _ => None,
    }
}

async fn look_at_classifiers(vpp: &Vpp, found: &mut Found) -> Result<(), BackendError> {
    let operation = "list its classifiers";
    let ids = vpp.call(operation, &ClassifyTableIdsGet::default()).await?;
    for table_id in ids.ids {
        let request = ClassifyTableInfo { table_id };
        // One that is gone meanwhile is not ours.
        if let Ok(table) = vpp.try_call(&request).await
            && classify::is_ours(&table.mask)
        {
            found.classifiers.insert(table_id);
        }
    }
    Ok(())
}

async fn look_at_memifs(vpp: &Vpp, found: &mut Found) -> Result<(), BackendError> {
    if !session::offers_memif(vpp) {
        return Ok(());
    }
    let sockets = MemifSocketFilenameDump::default();
    let sockets = vpp.dump("list its memif sockets", &sockets).await?;
    for memif in vpp.dump("list its memifs", &MemifDump::default()).await? {
        let socket = sockets
            .iter()
            .find(|socket| socket.socket_id == memif.socket_id);
        if let Some(socket) = socket {
            let path = socket.socket_filename.to_str().into_owned();
            found.memifs.insert(memif.sw_if_index.0, path);
        }
    }
    Ok(())
}

impl Found {
    /// Whether VPP has what there is one of for all ports.
    pub(super) fn ready(&self) -> bool {
        self.border.is_some() && self.tables.values().all(|(rest, _)| *rest)
    }

    /// Group tables in which the rest does not lead to the border.
    pub(super) fn broken_tables(&self) -> Vec<GroupId> {
        let broken = self.tables.iter().filter(|(_, (rest, _))| !rest);
        broken.map(|(group, _)| *group).collect()
    }

    /// The sandboxes that VPP has something of.
    pub(super) fn uids(&self) -> BTreeSet<SandboxUid> {
        let of_interfaces = self.interfaces.values().filter_map(Interface::uid);
        of_interfaces.chain(self.bridges.keys().copied()).collect()
    }

    /// VPP's part of a port, if it is whole and as it should be.
    pub(super) fn port(&self, facts: &Facts) -> Option<Port> {
        let uid = facts.uid;
        let mut inlets =
            self.interfaces
                .iter()
                .filter_map(|(index, interface)| match interface.tag {
                    Some(Tag::Port(of, tables)) if of == uid => Some((*index, tables)),
                    _ => None,
                });
        let mut borders = self
            .interfaces
            .iter()
            .filter(|(_, interface)| interface.tag == Some(Tag::Border(uid)));
        let ((inlet, tables), border) = (inlets.next()?, *borders.next()?.0);
        if inlets.next().is_some() || borders.next().is_some() {
            return None;
        }
        let fit = |index: u32| {
            let interface = self.interfaces.get(&index);
            interface.is_some_and(|i| i.up && i.mtu == facts.mtu)
        };
        let [(bridge, members)] = self.bridges.get(&uid)?.as_slice() else {
            return None;
        };
        let neighbour = |on, address, mac| self.neighbours.get(&(on, address)) == Some(&mac);
        let named = match &facts.inlet {
            Inlet::Host(name) => self.interfaces.get(&inlet)?.name == format!("host-{name}"),
            Inlet::VhostUser(_) => true,
            Inlet::Memif(path) => self.memifs.get(&inlet).map(String::as_str) == path.to_str(),
        };
        let classifiers = tables.iter().filter(|table| **table != u32::MAX);
        let whole = named
            && fit(inlet)
            && fit(border)
            && *members == BTreeSet::from([inlet, border])
            && neighbour(inlet, facts.address, facts.mac)
            && neighbour(border, GATEWAY, MacAddress::GATEWAY)
            && self.border.as_ref()?.get(&facts.address) == Some(&border)
            && classifiers
                .clone()
                .all(|table| self.classifiers.contains(table));
        whole.then_some(Port {
            inlet: InterfaceIndex(inlet),
            border: InterfaceIndex(border),
            bridge: *bridge,
            tables,
        })
    }

    /// Everything that there is of one sandbox, and of an interface that its inlet needs.
    pub(super) fn remains(&self, uid: SandboxUid, facts: Option<&Facts>) -> Remains {
        let wanted = facts.and_then(|facts| match &facts.inlet {
            Inlet::Host(name) => Some(format!("host-{name}")),
            _ => None,
        });
        let memif = facts.and_then(|facts| match &facts.inlet {
            Inlet::Memif(path) => Some(path.to_string_lossy().into_owned()),
            _ => None,
        });
        let mut remains = Remains {
            memif,
            ..Remains::default()
        };
        for (index, interface) in &self.interfaces {
            let named = wanted.as_ref() == Some(&interface.name);
            if interface.uid() != Some(uid) && !named {
                continue;
            }
            if let Some(Tag::Port(_, tables)) = interface.tag {
                remains.tables.extend(tables);
            }
            if let Some(socket) = self.memifs.get(index) {
                remains.memif = Some(socket.clone());
            }
            remains
                .interfaces
                .push((InterfaceIndex(*index), interface.name.clone()));
        }
        let bridges = self.bridges.get(&uid).map_or(&[][..], Vec::as_slice);
        remains.bridges = bridges.iter().map(|(bridge, _)| *bridge).collect();
        let address = facts.map(|facts| facts.address);
        for (source, index) in self.border.iter().flatten() {
            let on = remains.interfaces.iter().any(|(own, _)| own.0 == *index);
            if on || address == Some(*source) {
                remains.routes.push((*source, InterfaceIndex(*index)));
            }
        }
        remains
    }

    /// Classifiers and routes that belong to no port in `ports`.
    pub(super) fn strays(&self, ports: &BTreeMap<SandboxUid, Port>) -> Remains {
        let used: BTreeSet<u32> = ports.values().flat_map(|port| port.tables).collect();
        let borders: BTreeSet<u32> = ports.values().map(|port| port.border.0).collect();
        Remains {
            tables: self.classifiers.difference(&used).copied().collect(),
            routes: self
                .border
                .iter()
                .flatten()
                .filter(|(_, index)| !borders.contains(index))
                .map(|(source, index)| (*source, InterfaceIndex(*index)))
                .collect(),
            ..Remains::default()
        }
    }

    /// What VPP carries by itself. Routes to interfaces that are no port's lead to nobody.
    pub(super) fn direct(&self, ports: &BTreeMap<SandboxUid, Port>) -> Direct {
        let by_inlet: BTreeMap<u32, SandboxUid> = ports
            .iter()
            .map(|(uid, port)| (port.inlet.0, *uid))
            .collect();
        let nobody = SandboxUid::from_random(0);
        let mut direct = Direct::default();
        for (group, (_, routes)) in &self.tables {
            let routes = routes
                .iter()
                .map(|(address, index)| (*address, by_inlet.get(index).copied().unwrap_or(nobody)));
            direct.tables.insert(*group, routes.collect());
        }
        for (uid, port) in ports {
            let table = self.bound.get(&port.inlet.0).copied().unwrap_or(0);
            if let Some(group) = routes::group_of(table) {
                direct.bindings.insert(*uid, group);
            }
        }
        direct
    }
}
