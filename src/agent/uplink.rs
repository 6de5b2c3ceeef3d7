//! What depends on the machine: its addresses, its resolvers, its way out, its backend.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use causeway_dataplane::Backend;
use causeway_dataplane::desired::InterfaceNameError;
use causeway_dataplane::kernel::{KernelBackend, KernelConfig, Translation, Uplink};
use causeway_dataplane::vpp::{Program, VppBackend, VppConfig};
use causeway_types::{AddressClass, classify};
use ipnet::{IpNet, Ipv6Net};

use vpp_config::installed::Installed;
use vpp_config::startup::Startup;

use super::start::StartError;
use crate::config;

/// How the router is set up on this node.
pub fn kernel_config(
    prefixes: Vec<Ipv6Net>,
    uplink: &config::Uplink,
) -> Result<KernelConfig, InterfaceNameError> {
    let uplink = match uplink {
        config::Uplink::Routed => Uplink::Host {
            translation: Translation::Routed,
        },
        config::Uplink::Masquerade => Uplink::Host {
            translation: Translation::Masquerade,
        },
        config::Uplink::Interface {
            name,
            addresses,
            gateways,
        } => Uplink::Interface {
            name: name.parse()?,
            addresses: addresses.clone(),
            gateways: gateways.clone(),
        },
    };
    Ok(KernelConfig {
        operator_prefixes: prefixes,
        uplink,
        ..KernelConfig::default()
    })
}

/// The backend of this node: VPP where its sockets are given.
pub fn backend(
    kernel: KernelConfig,
    vpp: Option<config::Vpp>,
) -> Result<Arc<dyn Backend>, StartError> {
    let program = |vpp: &config::Vpp| Some(vpp_program(vpp.supervise.as_ref()?, &vpp.api));
    let supervise = vpp.as_ref().and_then(program).transpose()?;
    match vpp {
        Some(vpp) => Ok(Arc::new(VppBackend::new(VppConfig {
            socket: vpp.api,
            stats: vpp.stats,
            shared_memory: vpp.shared_memory,
            watchdog: vpp.watchdog,
            supervise,
            kernel,
        }))),
        None => Ok(Arc::new(KernelBackend::new(kernel))),
    }
}

/// How VPP is started; its configuration is written where it has none.
fn vpp_program(supervise: &config::Supervise, socket: &Path) -> Result<Program, StartError> {
    let installed = match &supervise.program {
        Some(program) => Installed {
            program: program.clone(),
            plugins: None,
        },
        None => Installed::find()?,
    };
    let startup = match &supervise.startup {
        config::VppStartup::File(file) => file.clone(),
        config::VppStartup::For(sandboxes) => {
            let startup = Startup {
                sandboxes: *sandboxes,
                runtime_dir: socket.parent().unwrap_or(Path::new("/")).to_owned(),
                plugin_path: installed.plugins,
                ..Startup::default()
            };
            let path = supervise.folder.join("vpp.conf");
            let failed = |source| StartError::VppStartup {
                path: path.clone(),
                source,
            };
            let text = startup.render()?;
            std::fs::create_dir_all(&startup.runtime_dir).map_err(failed)?;
            std::fs::create_dir_all(&supervise.folder).map_err(failed)?;
            std::fs::write(&path, text).map_err(failed)?;
            path
        }
    };
    Ok(Program {
        program: installed.program,
        startup,
        socket: socket.to_owned(),
        log: supervise.folder.join("vpp.log"),
    })
}

/// What a rule reaches only when it names it: this host, and every sandbox.
pub(super) fn own_ranges(prefix: Ipv6Net) -> Vec<IpNet> {
    let mut ranges = host_addresses();
    ranges.push(IpNet::V6(prefix));
    ranges
}

/// Every address of this host, each as a range of its own. Link-local and loopback ones are
/// reserved by themselves, and come and go with every interface.
fn host_addresses() -> Vec<IpNet> {
    let Ok(interfaces) = nix::ifaddrs::getifaddrs() else {
        return Vec::new();
    };
    let mut addresses: Vec<IpNet> = interfaces
        .filter_map(|interface| {
            let address = interface.address?;
            if let Some(v4) = address.as_sockaddr_in() {
                return Some(IpAddr::V4(v4.ip()));
            }
            Some(IpAddr::V6(address.as_sockaddr_in6()?.ip()))
        })
        .filter(|address| {
            !matches!(
                classify(*address),
                AddressClass::LinkLocal | AddressClass::Host
            )
        })
        .map(IpNet::from)
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

/// The resolvers that the host uses and that can be reached from the router: loopback ones are
/// of the host's own namespace. With systemd-resolved the real ones are in another file.
pub(super) fn host_resolvers() -> Vec<SocketAddr> {
    const FILES: [&str; 2] = ["/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"];
    FILES
        .iter()
        .map(|file| resolvers_in(&std::fs::read_to_string(file).unwrap_or_default()))
        .find(|found| !found.is_empty())
        .unwrap_or_default()
}

fn resolvers_in(text: &str) -> Vec<SocketAddr> {
    const DNS: u16 = 53;
    text.lines()
        .filter_map(|line| line.trim().strip_prefix("nameserver"))
        .filter_map(|rest| rest.trim().parse::<IpAddr>().ok())
        .filter(|address| !address.is_loopback() && !address.is_unspecified())
        .map(|address| SocketAddr::new(address, DNS))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_resolvers_are_left_out() {
        let text = "# comment\nnameserver 127.0.0.53\nnameserver 192.0.2.1\n\
                    nameserver 2001:db8::53\nsearch example\nnameserver nonsense\n";
        assert_eq!(
            resolvers_in(text),
            [
                "192.0.2.1:53".parse().unwrap(),
                "[2001:db8::53]:53".parse().unwrap()
            ]
        );
        assert!(resolvers_in("nameserver ::1").is_empty());
    }
}
