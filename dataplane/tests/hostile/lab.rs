//! A router namespace, sandboxes and an outside, all in namespaces that end with the test.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::net::Ipv6Addr;
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant as Clock};

use causeway_dataplane::elements::{Element, ElementChanges, GroupId, PortIndexes, PortRef};
use causeway_dataplane::kernel::nft::{Drops, Filter, Ruleset};
use causeway_types::{GATEWAY, MacAddress, RESOLVER, Reason};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use smoltcp::phy::{Device, Medium, RawSocket, RxToken, TxToken, wait};
use smoltcp::time::Instant;

use super::packet::{Packet, frame};

const ROUTER: &str = "causeway";
const MARK: u32 = 0xca05_e000;
pub(crate) const PROXY_PORT: u16 = 15001;
const PATIENCE: Duration = Duration::from_secs(5);

/// Runs `body` in network and mount namespaces of its own, which end with it.
pub(crate) fn isolated(body: impl FnOnce() + Send + 'static) {
    let thread = std::thread::spawn(|| {
        if let Err(errno) = unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS) {
            println!("skipped: needs the right to make namespaces ({errno})");
            return;
        }
        let none = None::<&str>;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
        mount(Some("lab"), "/run", Some("tmpfs"), MsFlags::empty(), none).unwrap();
        body();
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Runs `body` in a named network namespace. Sockets that it returns stay there.
pub(crate) fn inside<T: Send + 'static>(
    namespace: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> T {
    let file = File::open(format!("/run/netns/{namespace}")).unwrap();
    let thread = std::thread::spawn(move || {
        setns(file, CloneFlags::CLONE_NEWNET).unwrap();
        body()
    });
    thread.join().unwrap()
}

fn ip(script: &str) {
    let mut child = Command::new("ip")
        .args(["-6", "-batch", "-"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(script.as_bytes())
        .unwrap();
    assert!(child.wait().unwrap().success(), "{script}");
}

fn ip_in(namespace: &str, script: String) {
    inside(namespace, move || ip(&script));
}

/// One end of the lab: a sandbox, or the outside.
pub(crate) struct Host {
    pub(crate) address: Ipv6Addr,
    pub(crate) mac: MacAddress,
    pub(crate) index: u32,
    socket: RawSocket,
}

impl Host {
    pub(crate) fn link_local(&self) -> Ipv6Addr {
        self.mac.link_local()
    }

    /// Sends a frame as it is.
    pub(crate) fn send_frame(&mut self, bytes: &[u8]) {
        let token = self.socket.transmit(Instant::now()).unwrap();
        token.consume(bytes.len(), |buffer| buffer.copy_from_slice(bytes));
    }

    /// Sends a packet to the router.
    pub(crate) fn send(&mut self, packet: &Packet) {
        let bytes = frame(
            MacAddress::GATEWAY.octets(),
            self.mac.octets(),
            0x86dd,
            &packet.bytes(),
        );
        self.send_frame(&bytes);
    }

    fn receive(&mut self) -> Option<Vec<u8>> {
        let (token, _) = self.socket.receive(Instant::now())?;
        Some(token.consume(<[u8]>::to_vec))
    }

    /// Everything that has arrived, without what this host sent itself.
    pub(crate) fn arrived(&mut self) -> Vec<Vec<u8>> {
        let own = self.mac.octets();
        std::iter::from_fn(|| self.receive())
            .filter(|frame| frame.get(6..12) != Some(&own))
            .collect()
    }

    /// Waits for a frame that `wanted` says yes to; returns all that came until then.
    pub(crate) fn await_frame(&mut self, wanted: impl Fn(&[u8]) -> bool) -> Vec<Vec<u8>> {
        let deadline = Clock::now() + PATIENCE;
        let mut seen = Vec::new();
        while Clock::now() < deadline {
            for frame in self.arrived() {
                let found = wanted(&frame);
                seen.push(frame);
                if found {
                    return seen;
                }
            }
            let pause = smoltcp::time::Duration::from_millis(50);
            wait(self.socket.as_raw_fd(), Some(pause)).unwrap();
        }
        panic!(
            "nothing came that was waited for; {} other frames",
            seen.len()
        );
    }
}

/// Whether a frame carries these bytes.
pub(crate) fn carries(frame: &[u8], tag: &[u8]) -> bool {
    frame.windows(tag.len()).any(|window| window == tag)
}

/// The lab.
pub(crate) struct Lab {
    pub(crate) filter: Filter,
    pub(crate) hosts: BTreeMap<&'static str, Host>,
    pub(crate) uplink: u32,
    pub(crate) router_mac: String,
}

pub(crate) const OUTSIDE: &str = "outside";

pub(crate) fn address(name: &str) -> Ipv6Addr {
    let text = match name {
        OUTSIDE => "2a0f::1".to_owned(),
        letter => format!("2a0e:1:2::{letter}"),
    };
    text.parse().unwrap()
}

impl Lab {
    /// Builds a router with one port for each name, and the outside on its uplink.
    pub(crate) fn new(names: &[&'static str]) -> Self {
        for name in names.iter().chain(&[ROUTER, OUTSIDE]) {
            let made = Command::new("ip")
                .args(["netns", "add", name])
                .status()
                .unwrap();
            assert!(made.success());
        }
        let mut filter = inside(ROUTER, || {
            for (knob, value) in [
                ("conf/all/forwarding", "1"),
                ("conf/default/accept_dad", "0"),
                ("conf/default/addr_gen_mode", "1"),
            ] {
                std::fs::write(format!("/proc/sys/net/ipv6/{knob}"), value).unwrap();
            }
            Filter::open().unwrap()
        });
        let ruleset = Ruleset {
            uplink: "cw-up".to_owned(),
            proxy_mark: MARK,
            proxy_port: PROXY_PORT,
            operator_prefixes: vec!["2a0e:1:2::/48".parse().unwrap()],
            own_prefixes: vec!["2a0c:5::/32".parse().unwrap()],
        };
        filter = inside(ROUTER, move || {
            filter.install(&ruleset).unwrap();
            filter
        });
        ip_in(
            ROUTER,
            format!(
                "link set lo up\naddr add {RESOLVER}/128 dev lo\n\
                 rule add fwmark {MARK} lookup 77\nroute add local ::/0 dev lo table 77\n\
                 link add cw-up type veth peer name eth0 netns {OUTSIDE}\n\
                 link set cw-up up\naddr add 2a0f::ff/64 dev cw-up nodad\n\
                 route add default via 2a0f::1 dev cw-up\n"
            ),
        );
        ip_in(
            OUTSIDE,
            "link set eth0 addrgenmode none up\naddr add 2a0f::1/64 dev eth0 nodad\n\
             route add default via 2a0f::ff dev eth0\n"
                .to_owned(),
        );
        let uplink = index("cw-up");
        let outside = Host {
            address: address(OUTSIDE),
            mac: mac(OUTSIDE),
            index: 0,
            socket: socket(OUTSIDE),
        };
        let mut hosts = BTreeMap::from([(OUTSIDE, outside)]);
        for name in names {
            hosts.insert(name, sandbox(name));
        }
        let router_mac = inside(ROUTER, || read_mac("cw-up"));
        ip_in(
            OUTSIDE,
            format!("neigh replace 2a0f::ff lladdr {router_mac} dev eth0 nud permanent\n"),
        );
        ip_in(
            ROUTER,
            format!(
                "neigh replace 2a0f::1 lladdr {} dev cw-up nud permanent\n",
                mac(OUTSIDE)
            ),
        );
        let mut lab = Self {
            filter,
            hosts,
            uplink,
            router_mac,
        };
        let mut sources = Vec::new();
        for host in lab.hosts.values().filter(|host| host.index != 0) {
            for address in [host.address, host.link_local()] {
                sources.push(Element::Source {
                    port: PortRef::Index(host.index),
                    address,
                });
            }
        }
        lab.add(&sources);
        lab
    }

    pub(crate) fn host(&mut self, name: &str) -> &mut Host {
        self.hosts.get_mut(name).unwrap()
    }

    pub(crate) fn group(&mut self, name: &str, number: u32) {
        self.add(&[Element::Group {
            address: address(name),
            group: GroupId(number),
        }]);
    }

    pub(crate) fn add(&mut self, elements: &[Element]) {
        self.change(elements, &[]);
    }

    pub(crate) fn change(&mut self, add: &[Element], remove: &[Element]) {
        let changes = ElementChanges {
            add: add.to_vec(),
            remove: remove.to_vec(),
        };
        self.filter
            .apply(&changes, &PortIndexes::default())
            .unwrap();
    }

    pub(crate) fn drops(&mut self) -> Drops {
        self.filter.drops().unwrap()
    }

    /// What was added to the ledger since.
    pub(crate) fn since(&mut self, before: &Drops) -> Drops {
        let mut now = self.drops();
        for (key, count) in before {
            if let Some(value) = now.get_mut(key) {
                *value -= count;
            }
        }
        now.retain(|_, count| *count > 0);
        now
    }

    /// Forgets what arrived so far.
    pub(crate) fn quiet(&mut self) {
        for host in self.hosts.values_mut() {
            host.arrived();
        }
    }

    /// Sends the hostile packets and then the control, and waits for the control. The control
    /// arrives, none of the hostile packets does, and the ledger moves by `expected` alone.
    pub(crate) fn hostile(&mut self, case: &Case<'_>) {
        self.quiet();
        let before = self.drops();
        let from = self.host(case.from);
        let key = (from.index, case.reason);
        for bytes in &case.frames {
            from.send_frame(bytes);
        }
        from.send(&case.control);
        self.host(case.control_at)
            .await_frame(|frame| carries(frame, CONTROL));
        let moved = self.since(&before);
        let expected = Drops::from([(key, case.count)]);
        assert_eq!(moved, expected, "{}", case.name);
        for (name, host) in &mut self.hosts {
            for frame in host.arrived() {
                assert!(
                    !carries(&frame, HOSTILE) || *name == case.from,
                    "{}: arrived at {name}",
                    case.name
                );
            }
        }
    }
}

/// What hostile packets and controls carry.
pub(crate) const HOSTILE: &[u8] = b"hostile-payload!";
pub(crate) const CONTROL: &[u8] = b"control-payload!";

/// One hostile attempt beside its control.
pub(crate) struct Case<'a> {
    pub(crate) name: &'a str,
    pub(crate) from: &'a str,
    pub(crate) frames: Vec<Vec<u8>>,
    pub(crate) reason: Reason,
    pub(crate) count: u64,
    pub(crate) control: Packet,
    pub(crate) control_at: &'a str,
}

fn mac(name: &str) -> MacAddress {
    MacAddress::for_lease(address(name))
}

fn index(interface: &'static str) -> u32 {
    inside(ROUTER, move || {
        nix::net::if_::if_nametoindex(interface).unwrap()
    })
}

fn read_mac(interface: &str) -> String {
    let output = Command::new("ip")
        .args(["-br", "link", "show", "dev", interface])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_whitespace().nth(2).unwrap().to_owned()
}

/// Opens a packet socket in a namespace. It stays with this thread, which goes there and back.
fn socket(namespace: &str) -> RawSocket {
    let home = File::open("/proc/thread-self/ns/net").unwrap();
    let there = File::open(format!("/run/netns/{namespace}")).unwrap();
    setns(there, CloneFlags::CLONE_NEWNET).unwrap();
    let socket = RawSocket::new("eth0", Medium::Ethernet).unwrap();
    setns(home, CloneFlags::CLONE_NEWNET).unwrap();
    socket
}

fn sandbox(name: &'static str) -> Host {
    let (address, mac) = (address(name), mac(name));
    let (link_local, gateway) = (mac.link_local(), MacAddress::GATEWAY);
    ip_in(
        ROUTER,
        format!(
            "link add cw{name} address {gateway} type veth peer name eth0 address {mac} netns {name}\n\
             link set cw{name} addrgenmode none\naddr add {GATEWAY}/64 dev cw{name} nodad\n\
             link set cw{name} up\nneigh replace {address} lladdr {mac} dev cw{name} nud permanent\n\
             neigh replace {link_local} lladdr {mac} dev cw{name} nud permanent\n\
             route add {address}/128 dev cw{name}\n"
        ),
    );
    ip_in(
        name,
        format!(
            "link set lo up\nlink set eth0 addrgenmode none up\n\
             addr add {address}/128 dev eth0 nodad\naddr add {link_local}/64 dev eth0 nodad\n\
             neigh replace {GATEWAY} lladdr {gateway} dev eth0 nud permanent\n\
             route add default via {GATEWAY} dev eth0 onlink\n"
        ),
    );
    let interface: &'static str = Box::leak(format!("cw{name}").into_boxed_str());
    Host {
        address,
        mac,
        index: index(interface),
        socket: socket(name),
    }
}
